"""Cases: a sample in a wrapping, damaged, asked in one way; each has a text that makes it again.

``safetensors/zip-deflated/cut:30000/view``
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations, cycle, islice, product
from pathlib import Path

from tests.truth.damage import DRAWN, Damage, Reach, draw
from tests.truth.samples import SAMPLES, Sample
from tests.truth.wrappers import WRAPPERS, Wrapped, applies, wrap

WAY_NAMES = ("open", "view", "threads", "far", "handle", "ls", "info", "get", "check", "extract", "recover")
# How often a way is drawn: those that look at most find most.
WEIGHTS = {"view": 4, "recover": 4, "check": 3, "threads": 2}


@dataclass(frozen=True)
class Case:
    """One case; its text is ``sample/wrapper/damage/way``."""

    sample_name: str
    wrapper: str
    damage: Damage
    way: str

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case of that text."""
        sample, wrapper, damage, way = text.split("/")
        if sample not in SAMPLES or wrapper not in WRAPPERS or way not in WAY_NAMES or not applies(sample, wrapper):
            raise ValueError(f"no case: {text!r}")
        return cls(sample, wrapper, Damage.parse(damage), way)

    def __str__(self) -> str:
        return f"{self.sample_name}/{self.wrapper}/{self.damage}/{self.way}"

    @property
    def wrapped(self) -> Wrapped:
        """The sample in its wrapping, as it was before."""
        return wrap(self.sample_name, self.wrapper)

    @property
    def sample(self) -> Sample:
        """The sample."""
        return self.wrapped.sample

    @property
    def reach(self) -> Reach:
        """What of the sample's file the damage reaches."""
        if self.damage.file:
            return Reach(lost=True)
        reach = self.wrapped.reach(self.damage)
        room = self.wrapped.main.removesuffix(self.sample.file)
        leads = [self.wrapped.files[room + name] for name in self.sample.leads if self.wrapped.inner]
        damage = self.damage.reach(self.wrapped.content)
        found = all(file.reach(damage).is_clean and not file.renamed(damage) for file in leads)
        return reach if found else replace(reach, lost=True)

    def write(self, folder: Path) -> str:
        """Write the damaged file, or folder; return its path."""
        wrapped = self.wrapped
        beside = wrapped.folder or (wrapped.sample.leads and not wrapped.inner)
        files = dict(wrapped.sample.siblings) if beside else {}
        files[wrapped.name] = wrapped.content
        hit = self.damage.file or wrapped.name
        for name, content in files.items():
            (self.damage if name == hit else Damage("none")).write(folder / name, content)
        return str(folder / (wrapped.sample.entry if wrapped.folder else wrapped.name))


# Cases in which something was wrong once, and is mended.
ONCE_WRONG = Path(__file__).parent / "once_wrong.txt"


def plan_of(sample: str, seed: int) -> list[str]:
    """Return cases of a sample without the numbers of their damage: in all wrappers, with all kinds of damage.

    They depend on nothing but the sample, so that one more changes none of the others.
    """
    rng = random.Random(f"truth {seed} {sample}")
    ways = [way for way in WAY_NAMES for _ in range(WEIGHTS.get(way, 1))]
    wrappers = [wrapper for wrapper in WRAPPERS if applies(sample, wrapper)]
    columns = [rng.sample(column, len(column)) for column in (wrappers, DRAWN, ways)]
    count = max(map(len, columns))
    return ["/".join((sample, *case)) for case in islice(zip(*map(cycle, columns), strict=True), count)]


def plan(seed: int = 0) -> list[str]:
    """Return cases of all samples, without the numbers of their damage.

    They hold every pair of wrapper, kind of damage and way; and of each wrapper some files that were not written to
    their ends, or are hit there.
    """
    rng = random.Random(f"truth {seed}")
    found = [case for sample in SAMPLES for case in plan_of(sample, seed)]
    tables = list(WRAPPERS), DRAWN, WAY_NAMES
    met = {pair for case in found for pair in combinations(case.split("/")[1:], 2)}
    missing = [pair for some in combinations(tables, 2) for pair in product(*some) if pair not in met]
    for pair in missing:
        found.append(
            case_with(rng, *(next((word for word in pair if word in table), rng.choice(table)) for table in tables))
        )
    for wrapper in WRAPPERS:
        ways = rng.choice(("ls", "extract", "open", "view")), "check", "recover"
        found += [case_with(rng, wrapper, "unwritten", way) for way in ways]
        found.append(case_with(rng, wrapper, "tail", "recover"))
    return list(dict.fromkeys(found))


def case_with(rng: random.Random, *words: str) -> str:
    """Return a case, without the numbers of its damage, of some sample in this wrapper."""
    return "/".join((rng.choice([name for name in SAMPLES if applies(name, words[0])]), *words))


def drawn(planned: str, seed: int = 0) -> str:
    """Return the text of a case: the numbers of its damage are drawn, unless it has some."""
    if ":" in planned:
        return planned
    sample, wrapper, kind, way = planned.split("/")
    return str(Case(sample, wrapper, draw_damage(random.Random(f"{seed} {planned}"), sample, wrapper, kind), way))


def choose(count: int = 1, seed: int = 0) -> list[str]:
    """Return the texts of at least ``count`` cases: of one whole plan after the other."""
    found: dict[str, None] = {}
    number = 1000 * seed
    while not found or len(found) < count:
        found |= dict.fromkeys(drawn(case, number) for case in plan(number))
        number += 1
    return list(found)


def draw_damage(rng: random.Random, sample: str, wrapper: str, kind: str) -> Damage:
    """Return damage of that kind to that file; in a folder, the index is hit at times. ``tail``: noise at its end."""
    wrapped = wrap(sample, wrapper)
    if kind == "tail":
        return Damage("noise", max(0, len(wrapped.content) - rng.randrange(1, 1600)), 16, rng.randrange(1000))
    if wrapped.folder and kind in DRAWN and rng.random() < 0.2:
        entry = wrapped.sample.entry
        return draw(rng, kind, len(wrapped.sample.siblings[entry]), (), entry if kind != "none" else "")
    return draw(rng, kind, len(wrapped.content), wrapped.landmarks)
