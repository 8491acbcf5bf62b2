"""The error family: one root, three parts, conventional bases."""

from __future__ import annotations

import inspect
import pickle

import pytest

from mnemes_lab import errors
from mnemes_lab.errors import MissingColumnError, MissingExtraError, MnemesError, SchemaError

FAMILY = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, Exception)]


@pytest.mark.parametrize("error", FAMILY, ids=lambda c: c.__name__)
def test_every_error_is_documented_and_belongs_to_the_family(error):
    assert issubclass(error, MnemesError)
    assert inspect.getdoc(error)
    assert error.__name__.endswith("Error")


@pytest.mark.parametrize("error", FAMILY, ids=lambda c: c.__name__)
def test_message_survives_str_and_another_process(error):
    raised = error("Something is wrong.", hint="do this")
    again = pickle.loads(pickle.dumps(raised))
    assert str(raised) == "Something is wrong. Hint: do this"
    assert (type(again), str(again), again.hint) == (error, str(raised), "do this")


def test_message_has_its_three_parts():
    error = MnemesError("k is too small.", found=0, hint="use 1 or more")
    assert str(error) == "k is too small. Found 0. Hint: use 1 or more"
    assert (error.what, error.hint) == ("k is too small.", "use 1 or more")


@pytest.mark.parametrize("found", [None, False, 0, "", []])
def test_empty_values_are_shown(found):
    assert f"Found {found!r}." in str(MnemesError("Wrong.", found=found))


def test_nothing_found_is_not_shown():
    assert str(MnemesError("Wrong.")) == "Wrong."


def test_long_values_are_cut():
    message = str(MnemesError("Wrong.", found="x" * 100_000))
    assert len(message) < 250
    assert "..." in message


def test_half_a_character_in_a_value_can_still_be_printed():
    str(MnemesError("Wrong.", found="Bad \ud83d tail")).encode()


def test_all_problems_are_listed():
    error = SchemaError("Bad frame.", problems=["a: missing", "b: too small"], hint="look")
    assert error.problems == ["a: missing", "b: too small"]
    assert str(error) == "Bad frame. [a: missing] [b: too small] Hint: look"


def test_key_error_shows_its_message_not_its_repr():
    error = MissingColumnError("Missing column(s) ['text'].")
    assert str(error) == "Missing column(s) ['text']."


@pytest.mark.parametrize(
    ("error", "convention"),
    [
        (errors.BudgetError, ValueError),
        (errors.InstantError, ValueError),
        (errors.SchemaError, ValueError),
        (errors.MissingColumnError, KeyError),
        (errors.FactNotFoundError, LookupError),
        (errors.ConflictError, ValueError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_python_conventions_hold(error, convention):
    with pytest.raises(convention):
        raise error("Wrong.")


def test_missing_extra_names_feature_package_and_extra():
    error = MissingExtraError.of("GraphView", "pyvis", "lab")
    assert str(error) == "GraphView needs pyvis. Hint: pip install 'mnemes-lab[lab]'"
