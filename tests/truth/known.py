"""What a sample is: a file, and the truth about it."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tests.truth.damage import Reach

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Value:
    """A value: its bytes; ``place``, the bytes of the file that it is made of; ``needs``, those that lead to it.

    ``ends``: those that tell where it ends; zeros in their place tell that too, since no text has any. ``at``: where
    in ``content`` the bytes of ``place`` are, if others are in other files.
    """

    content: bytes
    place: tuple[int, int]
    needs: tuple[tuple[int, int], ...] = ()
    ends: tuple[int, int] | None = None
    at: int = 0

    @property
    def part(self) -> bytes:
        """The bytes of ``place``."""
        return self.content[self.at : self.at + self.place[1] - self.place[0]]


def by_place(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return what stands where the values did: a file that `recover` writes as it is was sound, or it would not be.

    Or it was cut before the first of them, so that nothing tells that it had some: those that it ends before, it lacks.
    """
    content = path.read_bytes()
    there = {name: value.place for name, value in sample.values.items() if value.place[1] <= len(content)}
    return {name: content[slice(*place)] for name, place in there.items()}


@dataclass(frozen=True)
class Sample:
    """A file, and the truth about it.

    ``kind`` says how values are asked for: ``tensors``, ``records``, ``keys`` (of the root), ``blob`` (the bytes).
    ``layout``: ``offset`` (values stand where a header says), ``back`` (so far before what leads to them), ``stream``
    (what is behind damage may be misread), ``pickle`` (damage to a value is damage to it alone, that to what is between
    them may be damage to all) or ``chunks`` (hashed pieces, each found by itself). ``message`` is the option of that
    name. ``siblings`` are other files of its folder, ``entry`` the one that stands for the whole folder,
    ``sibling_values`` their values;
    ``leads``, those without which values cannot be found. ``folder_only``: it is asked for by its entry, in a folder.
    ``saved``: what `recover` may call what it makes of the file, if not as the file or with .safetensors instead of its
    suffix. ``read`` returns the values in one of these as the format's own library reads it, and raises what that
    raises; not asked of safetensors. ``linked``: what leads to a value counts from where it stands itself; over bytes
    that came in or went, it leads elsewhere.
    """

    name: str
    file: str
    content: bytes
    kind: str
    values: dict[str, Value]
    layout: str
    landmarks: tuple[int, ...] = ()
    hashed: bool = False
    message: str = ""
    siblings: dict[str, bytes] = field(default_factory=dict)
    sibling_values: dict[str, Value] = field(default_factory=dict)
    entry: str = ""
    header: int = 0
    linked: bool = False
    leads: tuple[str, ...] = ()
    folder_only: bool = False
    saved: tuple[str, ...] = ()
    read: Callable[[Sample, Path], dict[str, bytes]] = by_place

    @property
    def saved_as(self) -> tuple[str, ...]:
        """Names of files that are made of it."""
        return self.saved or (self.file, f"{self.file.rpartition('.')[0]}.safetensors")

    def spread(self, reach: Reach) -> Reach:
        """Return where values may be others if ``reach`` of the file is: damage to what leads to them spreads."""
        if reach.first is None or self.layout == "chunks":
            return reach
        size = len(self.content)
        at, end = reach.first, max(last for _, last in reach.ranges)
        inside = any(value.place[0] <= at and end <= value.place[1] for value in self.values.values())
        if self.layout == "back" and not reach.shifted:
            return reach
        if self.layout in ("offset", "back"):
            if at < self.header or self.layout == "back":
                return Reach(((0, size),), reach.shifted, reach.cut, True, reach.doubt, reach.frayed)
            ranges = ((at, size),) if reach.shifted else reach.ranges
            return Reach(ranges, reach.shifted, reach.cut, reach.lost, reach.doubt, reach.frayed)
        if inside and not reach.shifted and not reach.cut:
            return reach
        if self.layout == "pickle" and not reach.cut:
            # The opcodes are a program: one that is another one may drop what was made before it, or give it a name.
            return Reach(((0, size),), reach.shifted, reach.cut, True, reach.doubt, reach.frayed)
        return Reach(((at, size),), reach.shifted, reach.cut, reach.lost, reach.doubt, reach.frayed)

    def untouched(self, name: str, reach: Reach) -> bool:
        """Whether damage that reaches ``reach`` of the file leaves this value, and what leads to it, alone."""
        value = self.values[name]
        spread = self.spread(reach)
        if spread.lost or spread.touches(*value.place):
            return False
        if self.linked and reach.shifted and any(end > (reach.first or 0) for _, end in value.needs):
            return False
        return not any(reach.touches(*need) for need in value.needs)


SAMPLES: dict[str, Callable[[], Sample]] = {}


def sample(make: Callable[[], Sample]) -> Callable[[], Sample]:
    """Register a sample under the name of its function."""
    SAMPLES[make.__name__.removeprefix("make_").replace("_", "-")] = cache(make)
    return make


def load(name: str) -> Sample:
    """Return the sample of that name."""
    return SAMPLES[name]()


def mixed(rng: random.Random, count: int, number: int) -> bytes:
    """Return bytes that compress well, not at all, or in parts."""
    if number % 3 == 0:
        return rng.randbytes(count)
    words = struct.pack("<8f", *(rng.choice((0.5, -0.25, 1.0, 0.125)) for _ in range(8)))
    if number % 3 == 1:
        return (words * (count // 32 + 1))[:count]
    return (rng.randbytes(count // 2) + words * (count // 64 + 2))[:count]


def text_bytes(seed: int, size: int) -> bytes:
    """Return text of words."""
    rng = random.Random(seed)
    words = [bytes(rng.choices(b"abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(300)]
    return b" ".join(rng.choices(words, k=size // 4 + 9))[: size - 1] + b"\n"


def csv_bytes(seed: int, rows: int) -> bytes:
    """Return a table of numbers."""
    rng = random.Random(seed)
    lines = [f"{number},{rng.random():.6f},{rng.choice('abc')}\n" for number in range(rows)]
    return "".join(["number,value,class\n", *lines]).encode()
