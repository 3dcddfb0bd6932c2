"""Cases: a sample in a wrapping, damaged, asked in one way; each has a text that makes it again.

``safetensors/zip-deflated/cut:30000/view``
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from tests.truth.damage import DRAWN, Damage, Reach, draw
from tests.truth.samples import SAMPLES, Sample
from tests.truth.wrappers import WRAPPERS, Wrapped, applies, wrap

WAY_NAMES = ("open", "view", "threads", "far", "handle", "ls", "info", "get", "check", "extract", "recover")
# How often a way is drawn: those that look at most find most.
WEIGHTS = {"view": 4, "recover": 4, "check": 3, "threads": 2}
DEFAULT_CASES = 450


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
        return reach if all(file.reach(damage).is_clean for file in leads) else replace(reach, lost=True)

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


# The cases of a default run: what `choose` gives, which takes seconds. ``python -m tests.truth.cases`` writes it.
TABLE = Path(__file__).parent / "cases.txt"
# Cases of other seeds in which something was wrong once, and is mended.
ONCE_WRONG = TABLE.with_name("once_wrong.txt")


def choose(count: int = DEFAULT_CASES, seed: int = 0) -> list[str]:
    """Return the texts of ``count`` cases, or of as many as cover every pair of sample, wrapper and kind of damage."""
    rng = random.Random(f"truth {seed}")
    pairs = [(sample, wrapper) for sample in SAMPLES for wrapper in WRAPPERS if applies(sample, wrapper)]
    wanted = {("sw", pair) for pair in pairs}
    wanted |= {("sd", (sample, kind)) for sample in SAMPLES for kind in DRAWN}
    wanted |= {("wd", (wrapper, kind)) for wrapper in WRAPPERS for kind in DRAWN}
    # A way has to meet every wrapper, and every kind of damage.
    wanted |= {("yw", (way, wrapper)) for way in WAY_NAMES for wrapper in WRAPPERS}
    wanted |= {("yd", (way, kind)) for way in WAY_NAMES for kind in DRAWN}
    ways = [way for way in WAY_NAMES for _ in range(WEIGHTS.get(way, 1))]
    found: list[str] = []
    while wanted or len(found) < count:
        # The best of some draws: what covers most of what is still to be covered.
        best: tuple[int, tuple[str, str, str, str]] | None = None
        ordered = sorted(wanted)
        for _ in range(12 if wanted else 1):
            sample, wrapper = rng.choice(pairs)
            if wanted and rng.random() < 0.5:
                what, (one, other) = rng.choice(ordered)
                sample, wrapper = next(
                    (
                        pair
                        for pair in rng.sample(pairs, len(pairs))
                        if {
                            "sw": pair == (one, other),
                            "sd": pair[0] == one,
                            "wd": pair[1] == one,
                            "yw": pair[1] == other,
                            "yd": True,
                        }[what]
                    ),
                )
                kind = other if what in ("sd", "wd", "yd") else rng.choice(DRAWN)
                way = one if what in ("yw", "yd") else rng.choice(ways)
            else:
                kind, way = rng.choice(DRAWN), rng.choice(ways)
            covered = wanted & set(keys(sample, wrapper, kind, way))
            if best is None or len(covered) > best[0]:
                best = (len(covered), (sample, wrapper, kind, way))
        assert best is not None
        sample, wrapper, kind, way = best[1]
        text = str(Case(sample, wrapper, draw_damage(rng, sample, wrapper, kind), way))
        wanted -= set(keys(sample, wrapper, kind, way))
        if text not in found:
            found.append(text)
        elif not wanted and kind == "none":
            count -= 1  # there are only so many sound ones
    return found + at_ends(seed, max(1, count // DEFAULT_CASES))


def at_ends(seed: int, rounds: int) -> list[str]:
    """Return the texts of cases of files that were not written to their ends, and of what is behind all members.

    Of each wrapper, some ways.
    """
    rng = random.Random(f"ends {seed}")
    found = []
    for _ in range(rounds):
        for wrapper in WRAPPERS:
            for way in rng.sample(("ls", "extract", "open", "view"), 1) + ["check", "recover"]:
                sample = rng.choice([name for name in SAMPLES if applies(name, wrapper)])
                found.append(str(Case(sample, wrapper, draw_damage(rng, sample, wrapper, "unwritten"), way)))
            size = len(wrap(sample, wrapper).content)
            noise = Damage("noise", max(0, size - rng.randrange(1, 1600)), 16, rng.randrange(1000))
            found.append(str(Case(sample, wrapper, noise, "recover")))
    return list(dict.fromkeys(found))


def keys(sample: str, wrapper: str, kind: str, way: str) -> list[tuple[str, tuple[str, str]]]:
    """Return the pairs that a case covers."""
    return [
        ("sw", (sample, wrapper)),
        ("sd", (sample, kind)),
        ("wd", (wrapper, kind)),
        ("yw", (way, wrapper)),
        ("yd", (way, kind)),
    ]


def draw_damage(rng: random.Random, sample: str, wrapper: str, kind: str) -> Damage:
    """Return damage of that kind to that file; in a folder, the index is hit at times."""
    wrapped = wrap(sample, wrapper)
    if wrapped.folder and rng.random() < 0.2:
        entry = wrapped.sample.entry
        return draw(rng, kind, len(wrapped.sample.siblings[entry]), (), entry if kind != "none" else "")
    return draw(rng, kind, len(wrapped.content), wrapped.landmarks)


if __name__ == "__main__":
    TABLE.write_text("".join(f"{case}\n" for case in choose()))
