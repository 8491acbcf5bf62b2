"""How the campus workload is made: devices first, then what each tells, then what they repeat.

Chance comes from the raw output of the Philox counter generator, keyed by the SHA-256 of a stream's
name. Every choice is made here with whole numbers, so no release of a library changes a workload
unnoticed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mnemes_lab.bench import _campus_words as words
from mnemes_lab.digest import preimage

T = TypeVar("T")
DOMAIN = "mnemes-lab/workload/v1"
_WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_TERMS = {
    "spring": (date(2031, 2, 1), date(2031, 7, 1)),
    "autumn": (date(2031, 9, 1), date(2032, 1, 1)),
}


class _Stream:
    """Whole numbers that a list of names fixes."""

    def __init__(self, *names: object) -> None:
        key = hashlib.sha256(preimage(DOMAIN, *(str(n) for n in names))).digest()[:16]
        self._bits = np.random.Philox(key=np.frombuffer(key, dtype="<u8").astype(np.uint64))
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """A number from 0 to n - 1; the bias of the multiplication is below n / 2**64."""
        if not self._words:
            self._words = self._bits.random_raw(512).tolist()
        return self._words.pop() * n >> 64

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], k: int) -> list[T]:
        """`k` different places of `items` (all if there are fewer), in random order."""
        left = list(items)
        for i in range(min(k, len(left))):
            j = i + self.below(len(left) - i)
            left[i], left[j] = left[j], left[i]
        return left[:k]


@dataclass(frozen=True)
class _Thing:
    name: str  # a code, or a person's name
    noun: tuple[str, str]
    adjective: str
    tail: str

    @property
    def subject(self) -> str:
        return f"{self.noun[0]} {self.name}"

    @property
    def description(self) -> tuple[str, str, str]:
        return self.adjective, self.noun[0], self.tail


@dataclass(frozen=True, eq=False)
class _Claim:
    """One value of one attribute of one thing; compared by identity."""

    thing: _Thing
    attribute: words.Attribute
    value: str
    since: date | None
    until: date | None
    when: str  # how the interval is said, or empty


class _Told(NamedTuple):
    """A claim in words: which statement pattern and which form of the subject were used."""

    claim: _Claim
    text: str
    pattern: int
    form: int


# How a sentence names its thing. Weights are percent.
_FORMS = (
    (30, "the {adjective} {noun} {name}"),
    (18, "the {noun} {name} {tail}"),
    (20, "the {adjective} {noun} {tail}"),
    (18, "the {adjective} {noun} {tail} ({name})"),
    (14, "{name}"),
)
_FORM_OF = tuple(i for i, (weight, _) in enumerate(_FORMS) for _ in range(weight))
_NAMES, _DESCRIBES = {0, 1, 3, 4}, {2, 3}


@dataclass
class _Habit:
    """What one device knows of one topic."""

    topic: words.Topic
    facts: int
    echoes: int
    partners: list[int]  # devices it hears the echoes from
    nouns: list[tuple[str, str]]
    adjectives: list[str]
    tails: list[str]
    told: list[_Told] = field(default_factory=list)  # first told here; echoes are not among them


@dataclass
class _Device:
    label: str
    stream: _Stream
    staff: list[str]
    habits: list[_Habit]
    heard: list[_Told] = field(default_factory=list)


class _Campus:
    """Makes the devices first, then what each tells, then what they repeat from each other."""

    def __init__(self, seed: int, devices: int, facts: int) -> None:
        self.seed = seed
        self.given, self.family = words.GIVEN.split(), words.FAMILY.split()
        self.leads = [part.strip() for part in " ".join(words.LEADS.split()).split("|")]
        self.taken: set[object] = set()  # names of people and descriptions already given
        self.numbers: dict[str, int] = defaultdict(lambda: 1000)
        ring, topics = _Stream(seed, "ring"), words.topics()
        first: list[words.Topic] = []
        while len(first) < devices:
            first += ring.sample(topics, len(topics))
        mains = [[topic] for topic in first[:devices]]
        for main in mains:
            second = ring.pick(topics)
            if ring.chance(50) and second is not main[0]:
                main.append(second)
        self.devices = [self._device(i, mains, facts) for i in range(devices)]
        for device in self.devices:
            for habit in device.habits:
                self._tell(device, habit, habit.facts - habit.echoes)
        for device in self.devices:
            for habit in device.habits:
                self._repeat(device, habit)

    def _device(self, i: int, mains: list[list[words.Topic]], facts: int) -> _Device:
        """A device and its habits; what its tail leaves over goes to its main topics."""
        stream, n = _Stream(self.seed, "device", i), len(mains)
        staff = [self._person(stream) for _ in range(14)]
        topic = mains[i][0]
        number = sum(main[0] is topic for main in mains[: i + 1])
        label = f"{topic.label} {number}"
        if not topic.prefix:  # a personal device
            label = f"{topic.label} {number} of {staff[0]}"
        habits: list[_Habit] = []
        for step, percent in ((-1, 9), (1, 7), (2, 4)):
            neighbour = (i + step) % n
            topic = mains[neighbour][0]
            if topic not in (*mains[i], *(h.topic for h in habits)):
                count = facts * percent // 100
                habits.append(self._habit(stream, topic, count, 40, [neighbour]))
        rest = facts - sum(h.facts for h in habits)
        minor = rest * 35 // 100 if len(mains[i]) == 2 else 0
        for topic, count in zip(mains[i], (rest - minor, minor), strict=False):
            same = [j for j in range(n) if j != i and topic in mains[j]]
            habits.append(self._habit(stream, topic, count, 9, stream.sample(same, 2)))
        return _Device(label, stream, staff, habits)

    def _habit(
        self, stream: _Stream, topic: words.Topic, facts: int, percent: int, partners: list[int]
    ) -> _Habit:
        echoes = facts * percent // 100 if partners else 0
        return _Habit(
            topic,
            facts,
            echoes,
            partners,
            nouns=stream.sample(topic.nouns, 7),
            adjectives=stream.sample(topic.adjectives, 7),
            tails=stream.sample(topic.tails, 6),
        )

    def _person(self, stream: _Stream) -> str:
        return f"{stream.pick(self.given)} {stream.pick(self.family)}"

    def _thing(self, stream: _Stream, habit: _Habit) -> _Thing:
        topic = habit.topic
        if topic.prefix:
            self.numbers[topic.prefix] += 1 + stream.below(7)
            name = f"{topic.prefix}-{self.numbers[topic.prefix]}"
        else:
            name = self._person(stream)
            while name in self.taken:
                given, family = self._person(stream).split()
                name = f"{given} {stream.pick('ABCDEFGHIJKLMNOPRSTUVWYZ')}. {family}"
            self.taken.add(name)
        for _ in range(20):  # prefer a description that nothing else has; large sizes run out
            noun, adjective = stream.pick(habit.nouns), stream.pick(habit.adjectives)
            thing = _Thing(name, noun, adjective, stream.pick(habit.tails))
            if thing.description not in self.taken:
                break
        self.taken.add(thing.description)
        return thing

    def _value(self, stream: _Stream, device: _Device, topic: words.Topic, spec: str) -> str:
        kind, *rest = spec.split()
        if kind == "@person":
            return stream.pick(device.staff) if stream.chance(80) else self._person(stream)
        if kind == "@room":
            near = topic if stream.chance(90) else stream.pick(words.topics())
            room = f"room {1 + stream.below(5)}{stream.below(60):02d}"
            return f"{room} of the {near.building}" if stream.chance(60) else room
        if kind == "@date":
            return _spell(_day(stream))
        if kind == "@slot":
            hour = f"{8 + stream.below(12):02d}:{15 * stream.below(4):02d}"
            return f"{stream.pick(_WEEKDAYS)} at {hour}"
        if kind == "@phone":
            return f"extension {2000 + stream.below(7000)}"
        low, high, *unit = rest  # @num
        amount = int(low) + stream.below(int(high) - int(low) + 1)
        return f"{amount:,} {' '.join(unit)}"

    def _claim(
        self, device: _Device, topic: words.Topic, thing: _Thing, about: words.Attribute
    ) -> _Claim:
        stream = device.stream
        value = stream.pick(about.values)
        if value[0] == "@":
            value = self._value(stream, device, topic, value)
        since, until, when = None, None, ""
        if about.validity == "term" and stream.chance(70):
            term = stream.pick(tuple(_TERMS))
            since, until = _TERMS[term]
            when = f" in the {term} term"
        elif about.validity == "since" and stream.chance(40):
            since = _day(stream)
            when = f", as of {_spell(since)}"
        return _Claim(thing, about, value, since, until, when)

    def _words(self, device: _Device, claim: _Claim, pattern: int) -> _Told:
        stream, thing = device.stream, claim.thing
        form = stream.pick(_FORM_OF)
        subject = _FORMS[form][1].format(
            name=thing.name, noun=thing.noun[0], adjective=thing.adjective, tail=thing.tail
        )
        text = claim.attribute.statements[pattern].format(s=subject, o=claim.value)
        if claim.when and stream.chance(60):
            text += claim.when
        if stream.chance(30):
            lead = stream.pick(self.leads)
            said = lead.format(p=stream.pick(device.staff), d=_spell(_day(stream)))
            text = f"{said} {text}"
        return _Told(claim, f"{text[0].upper()}{text[1:]}.", pattern, form)

    def _tell(self, device: _Device, habit: _Habit, count: int) -> None:
        """Add `count` statements about new things, in the device's own words."""
        stream, goal = device.stream, len(habit.told) + count
        while len(habit.told) < goal:
            thing = self._thing(stream, habit)
            about = habit.topic.attributes
            known = stream.sample(about, len(about) - stream.below(3))
            for attribute in known[: goal - len(habit.told)]:
                claim = self._claim(device, habit.topic, thing, attribute)
                pattern = stream.below(len(attribute.statements))
                habit.told.append(self._words(device, claim, pattern))

    def _repeat(self, device: _Device, habit: _Habit) -> None:
        """Take over statements of the partners, one in seven word for word."""
        stream = device.stream
        offered = [
            told
            for partner in habit.partners
            for other in self.devices[partner].habits
            if other.topic is habit.topic
            for told in other.told
        ]
        chosen = stream.sample(offered, habit.echoes)
        for told in chosen:
            if stream.below(7):
                patterns = len(told.claim.attribute.statements)
                pattern = (told.pattern + 1 + stream.below(patterns - 1)) % patterns
                told = self._words(device, told.claim, pattern)
            device.heard.append(told)
        self._tell(device, habit, habit.echoes - len(chosen))


def _day(stream: _Stream) -> date:
    return date(2031, 1, 1) + timedelta(days=stream.below(365))


def _spell(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def make(
    seed: int, devices: int, facts_per_device: int, questions: int
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows of facts, queries and relevance, each in the order of its key."""
    campus = _Campus(seed, devices, facts_per_device)
    width, digits = max(2, len(str(devices - 1))), max(4, len(str(facts_per_device - 1)))
    facts, places = [], defaultdict(list)
    for d, device in enumerate(campus.devices):
        every = [told for habit in device.habits for told in habit.told] + device.heard
        for i, told in enumerate(device.stream.sample(every, len(every))):
            claim = told.claim
            fact_id = f"campus-d{d:0{width}d}-{i:0{digits}d}"
            says = (claim.thing.subject, claim.attribute.name, claim.value)
            space = claim.attribute.namespace
            facts.append((fact_id, device.label, space, told.text, *says))
            places[claim].append((d, fact_id, told.form))
    asked = _ask(_Stream(seed, "questions"), places, questions)
    digits = max(4, len(str(questions - 1)))
    queries, relevance = [], []
    for i, (claim, text) in enumerate(asked):
        query_id = f"campus-q{i:0{digits}d}"
        queries.append((query_id, text, None))
        relevance += [(query_id, fact_id, 1.0) for _, fact_id, _ in places[claim]]
    return facts, queries, relevance


def _ask(
    stream: _Stream, places: dict[_Claim, list[tuple[int, str, int]]], wanted: int
) -> list[tuple[_Claim, str]]:
    """Choose what is asked: a third told on several devices, half by name, half by description.

    A question points at a thing only in a way that some gold fact does too, and a description
    fits one thing, so the texts answer it. More than a quarter of the facts can be asked about.
    """
    names: dict[object, set[str]] = defaultdict(set)
    for claim in places:
        names[claim.thing.description].add(claim.thing.name)
    spread = wanted * 34 // 100
    quota = {(True, way): (spread + way) // 2 for way in (True, False)}  # several, by name
    quota |= {(False, way): (wanted - spread + way) // 2 for way in (True, False)}
    asked: list[tuple[_Claim, str]] = []
    spare: list[tuple[_Claim, bool]] = []
    for claim in stream.sample(list(places), len(places)):
        forms = {form for _, _, form in places[claim]}
        ways = [True] if forms & _NAMES else []
        if forms & _DESCRIBES and len(names[claim.thing.description]) == 1:
            ways.append(False)
        several = len({d for d, _, _ in places[claim]}) > 1
        open_ways = [way for way in ways if quota[several, way]]
        if open_ways:
            way = stream.pick(open_ways)
            quota[several, way] -= 1
            asked.append((claim, _question(stream, claim, way)))
        elif ways:
            spare.append((claim, ways[0]))
    asked += [(c, _question(stream, c, way)) for c, way in spare[: wanted - len(asked)]]
    return stream.sample(asked, wanted)


def _question(stream: _Stream, claim: _Claim, by_name: bool) -> str:
    thing, noun = claim.thing, stream.pick(claim.thing.noun)
    if by_name:
        subject = stream.pick((thing.name, f"the {noun} {thing.name}"))
    else:
        subject = f"the {thing.adjective} {noun} {thing.tail}"
    return stream.pick(claim.attribute.questions).format(s=subject)
