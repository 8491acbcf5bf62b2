"""Units of measure: a table of common ones, and pint for the rest where it is installed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

# Dimension, then names with the factor to its base unit after a colon where it changes.
_TABLE = """
mass 1e-6:mg milligram 1e-3:g gram gramme 1:kg kilo kilogram kilogramme 1000:t ton tonne
mass 0.45359237:lb lbs 0.028349523125:oz ounce
length 1e-3:mm millimetre millimeter 0.01:cm centimetre centimeter 1:m metre meter
length 1000:km kilometre kilometer 1609.344:mile mi 0.0254:inch 0.3048:foot feet ft 0.9144:yard
time 1e-3:ms millisecond 1:sec 60:minute min 3600:hour hr 86400:day 604800:week
months 1:month 12:year
volume 1e-3:ml millilitre milliliter 0.01:cl 1:l litre liter 3.785411784:gallon
energy 1:wh 1000:kwh 1e6:mwh | power 1:w watt 1000:kw kilowatt 1e6:mw megawatt
frequency 1:hz 1000:khz 1e6:mhz 1e9:ghz | voltage 1:v volt 1000:kv | current 1:amp ampere
pressure 1:pa 100:hpa mbar 1000:kpa 1e5:bar 6894.757:psi
speed 1:km/h kmh kph 3.6:m/s 1.609344:mph 1.852:knot
size 1e-3:kb kilobyte 1:mb megabyte 1000:gb gigabyte 1e6:tb terabyte
percent 1:% percent | degree 1:° degree | pound 1:pound £ gbp | euro 1:€ eur euro
dollar 1:$ usd dollar | yen 1:¥ jpy yen | franc 1:chf franc | crown 1:crown
mmol/l 1:mmol/l | mg/l 1:mg/l 1000:g/l 10:mg/dl | l/min 1:l/min | mbit/s 1:mbit/s | kg/m 1:kg/m
celsius 1:°c celsius | fahrenheit 1:°f fahrenheit
"""


class Unit(NamedTuple):
    """The dimension a unit measures, and its size in the base unit of the dimension."""

    dimension: str
    factor: float


def _read_table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for entry in _TABLE.replace("|", "\n").splitlines():
        dimension, *names = entry.split() or [""]
        factor = 1.0
        for name in names:
            size, colon, name = name.rpartition(":")
            factor = float(size) if colon else factor
            table[name] = Unit(dimension, factor)
            if len(name) > 2 and name.isalpha():
                table.setdefault(
                    f"{name}{'es' if name == 'inch' else 's'}", Unit(dimension, factor)
                )
    return table


UNITS = _read_table()
CURRENCIES = frozenset("€$£¥")


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        return None
    return pint.UnitRegistry()


_SHARED = {"[length]": "length", "[mass]": "mass"}  # same base units in the table and in pint


@lru_cache(maxsize=4096)
def unusual(name: str) -> Unit | None:
    """A unit the table lacks, asked of pint when it is there; None when nobody knows it.

    Example:
        >>> unusual("no such unit") is None
        True
    """
    registry = _registry()
    if registry is None or not name.isalpha() or len(name) < 4:  # short names are plain words
        return None
    try:
        size = registry.Quantity(1.0, name).to_base_units()
    except Exception:  # pint raises many kinds of errors for words that are no units
        return None
    told = str(size.dimensionality)
    return Unit(_SHARED.get(told, f"pint {told}"), float(size.magnitude))
