"""Where the tensors of a GGUF file lie, by its table, and what contradicts ggml's rules there."""

from __future__ import annotations

from math import prod

from pparse.findings import Finding, Severity
from pparse.limits import count_words
from pparse.parsers.gguf.types import TYPES, type_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

_MOST_BYTES: Final = 1 << 63


class TensorPlace:
    """What the table says of one tensor."""

    __slots__ = ("kind", "offset", "problem", "shape", "size")

    def __init__(self, kind: int, shape: tuple[int, ...], offset: int) -> None:
        self.kind = kind
        """Number of its type."""
        self.shape = shape
        """Its dimensions, outermost first."""
        self.offset = offset
        """Where it begins in the data."""
        self.size: int | None = None
        """Its bytes; None if they cannot be known."""
        self.problem: str | None = None
        """Why they cannot be known."""
        self._measure()

    def _measure(self) -> None:
        known, row = TYPES.get(self.kind), self.shape[-1] if self.shape else 1
        if known is None:
            self.problem = type_words(self.kind)
        elif row % known.block_size:
            self.problem = f"its rows of {row} elements are no whole blocks of {known.block_size}"
        else:
            count = prod(self.shape)
            size = count // known.block_size * known.block_bytes
            if max(size, count) + self.offset < _MOST_BYTES:
                self.size = size
            else:
                self.problem = f"no file has {count} elements at {self.offset}"

    def to_dict(self) -> dict[str, Any]:
        """Return what its node shows."""
        known = TYPES.get(self.kind)
        kind = known.name if known is not None else self.kind
        return {"shape": list(self.shape), "type": kind, "offset": self.offset, "size": self.size}


class GgufLayout:
    """The tensors in the order of the table: ggml wants them one after the other, each at the next aligned place."""

    __slots__ = ("alignment", "end", "first_hole", "first_unaligned", "holes", "overlaps", "unaligned", "unknown")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        """What offsets should be multiples of."""
        self.end = 0
        """Where the last tensor ends in the data."""
        self.overlaps = False
        """Whether a tensor begins before another one ends: they share bytes, or are out of order."""
        self.holes = self.unaligned = 0
        """How many tensors do not begin where the one before lets expect; how many not at an aligned place."""
        self.first_hole = self.first_unaligned = 0
        """The offsets of the first of them."""
        self.unknown = False
        """Whether a tensor came of which the size is not known."""

    def add(self, place: TensorPlace) -> None:
        """Add the next tensor."""
        if not place.size:
            self.unknown = self.unknown or place.size is None
            return
        offset = place.offset
        if offset % self.alignment:
            self.first_unaligned = self.first_unaligned if self.unaligned else offset
            self.unaligned += 1
        if offset < self.end:
            self.overlaps = True
        elif offset > self.end + -self.end % self.alignment and not self.unknown:
            self.first_hole = self.first_hole if self.holes else offset
            self.holes += 1
        self.unknown = False
        self.end = max(self.end, offset + place.size)

    def findings(self, start: int, source: str) -> Iterator[Finding]:
        """Yield what ggml would refuse, though it can be read; ``start`` is where the data begin."""
        for code, count, first, what in (
            ("unaligned", self.unaligned, self.first_unaligned, f"not at multiples of {self.alignment}"),
            ("gap", self.holes, self.first_hole, "not where the one before ends"),
        ):
            if count:
                reason = f"{count_words(count, 'tensor')} begin{'s' * (count == 1)} {what}"
                yield Finding(code, reason, severity=Severity.WARNING, source=source, offset=start + first)
