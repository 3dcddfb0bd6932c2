"""Damage to a file: what is done to it, where, and which of the original bytes it reaches.

A `Damage` is made of a short text and gives that text back, so that one line repeats a case:

======================  ==================================================
``none``                nothing
``cut:N``               the file ends before byte N
``bit:N:B``             bit B of byte N is another
``noise:N:L:S``         L bytes from N are noise, made of seed S
``zeros:N:L``           L bytes from N are zeros
``remove:N:L``          L bytes from N are not there, what follows moves up
``insert:N:L:S``        L bytes of noise stand before byte N
``unwritten:N``         byte N and all behind it were never written: a file of full size that ends with a hole
======================  ==================================================

A hole is ``zeros`` of 4,096 bytes. In a folder it is the main file that is hit, or with ``@name`` at the end that one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("none", "cut", "bit", "noise", "zeros", "remove", "insert", "hole", "unwritten")
# Those that are drawn together; a file that was not written to its end has cases of its own.
DRAWN = KINDS[:-1]
HOLE = 4096
PAGE = 4096


@dataclass(frozen=True)
class Damage:
    """One damage: ``kind``, ``offset``, ``length`` and ``detail`` (the bit, or the seed of the noise); ``file``."""

    kind: str
    offset: int = 0
    length: int = 0
    detail: int = 0
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> Damage:
        """Return the damage of that text."""
        text, _, file = text.partition("@")
        kind, *words = text.split(":")
        numbers = [int(word) for word in words]
        wanted = {"none": 0, "cut": 1, "bit": 2, "noise": 3, "zeros": 2, "remove": 2, "insert": 3, "unwritten": 1}
        if kind not in wanted or len(numbers) != wanted[kind]:
            raise ValueError(f"no damage: {text!r}")
        if kind == "bit":
            numbers = [numbers[0], 1, numbers[1]]
        return cls(kind, *numbers, file=file)

    def __str__(self) -> str:
        words: tuple[object, ...] = {
            "none": (),
            "cut": (self.offset,),
            "bit": (self.offset, self.detail),
            "noise": (self.offset, self.length, self.detail),
            "zeros": (self.offset, self.length),
            "remove": (self.offset, self.length),
            "insert": (self.offset, self.length, self.detail),
            "unwritten": (self.offset,),
        }[self.kind]
        return ":".join(map(str, (self.kind, *words))) + (f"@{self.file}" if self.file else "")

    def apply(self, content: bytes) -> bytes:
        """Return ``content`` with the damage done to it."""
        at, end = min(self.offset, len(content)), min(self.offset + self.length, len(content))
        before, behind = content[:at], content[end:]
        if self.kind == "none":
            return content
        if self.kind == "cut":
            return before
        if self.kind == "unwritten":
            return before + bytes(len(content) - at)
        if self.kind == "bit":
            return before + bytes(byte ^ 1 << self.detail for byte in content[at:end]) + behind
        if self.kind == "noise":
            return before + random.Random(self.detail).randbytes(end - at) + behind
        if self.kind == "zeros":
            return before + bytes(end - at) + behind
        if self.kind == "remove":
            return before + behind
        return before + random.Random(self.detail).randbytes(self.length) + content[at:]

    def write(self, path: Path, content: bytes) -> None:
        """Write ``content`` with the damage done to it; what was never written is a hole of the file."""
        with path.open("wb") as file:
            if self.kind == "unwritten":
                file.write(content[: self.offset])
                file.truncate(len(content))
            else:
                file.write(self.apply(content))

    def leaves_hole(self, size: int) -> bool:
        """Whether a file of ``size`` bytes has a hole then: file systems keep whole pages."""
        return self.kind == "unwritten" and -(-self.offset // PAGE) * PAGE < size

    def reach(self, content: bytes) -> Reach:
        """Return what of ``content``, the original, this reaches."""
        size = len(content)
        at, end = min(self.offset, size), min(self.offset + self.length, size)
        if self.apply(content) == content:
            return Reach()
        if self.kind == "cut":
            return Reach(((at, size),), cut=True)
        if self.kind == "unwritten":
            return Reach(((at, size),))
        if self.kind == "insert":  # the bytes stay what they are, but what has some on both sides is taken apart
            return Reach(((at, at),), shifted=True, came=self.length)
        if self.kind == "remove" and end == size:
            return Reach(((at, size),), cut=True)
        return Reach(((at, end),), shifted=self.kind == "remove")


@dataclass(frozen=True)
class Reach:
    """Which bytes of something damage may have changed.

    ``ranges`` of the original; one of no length marks a place where bytes came in. ``shifted``: what lies behind is at
    another offset now. ``cut``: what lies behind is not there, and nothing else is wrong. ``lost``: what leads to it is
    hit (its header), so that it need not be found, or under another name. ``doubt``: it was decoded from damaged bytes,
    or its checksum is hit, so that nobody can vouch for bytes that are right. ``frayed``: the stream that it comes from
    is hit, if only where it no longer matters: it need not be called whole, but what is in it is to be had.
    ``vouched``: in doubt or not, a checksum of its own that is not hit confirms it. ``came``: so many bytes came in.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    shifted: bool = False
    cut: bool = False
    lost: bool = False
    doubt: bool = False
    frayed: bool = False
    vouched: bool = False
    came: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all is wrong."""
        return not (self.ranges or self.lost or self.doubt or self.frayed)

    def touches(self, start: int, end: int) -> bool:
        """Whether any byte of ``[start, end)`` may be another, or some came in between."""
        return any(first < end and last > start for first, last in self.ranges if first < last) or any(
            start < first < end or first == start == 0 for first, last in self.ranges if first == last
        )

    @property
    def first(self) -> int | None:
        """The first byte that is reached."""
        return min((first for first, _ in self.ranges), default=None)


def draw(rng: random.Random, kind: str, size: int, landmarks: tuple[int, ...], file: str = "") -> Damage:
    """Return damage of a kind, half of the time at (or right beside) one of the landmarks."""
    size = max(size, 1)
    if landmarks and rng.random() < 0.5:
        at = rng.choice(landmarks) + rng.choice((-17, -8, -1, 0, 0, 1, 4, 15))
    else:
        at = rng.randrange(size)
    at = min(max(at, 0), size - 1)
    if kind == "none":
        return Damage("none")
    if kind in ("cut", "unwritten"):
        return Damage(kind, at, file=file)
    if kind == "bit":
        return Damage("bit", at, 1, rng.randrange(8), file)
    if kind == "hole":
        return Damage("zeros", at, HOLE, file=file)
    if kind == "zeros":
        return Damage("zeros", at, 16, file=file)
    length = 16 if kind == "noise" else rng.choice((1, 2, 7, 16, 100, 512, 4096))
    return Damage(kind, at, length, 0 if kind == "remove" else rng.randrange(1000), file)
