"""Raw deflate entered at any bit, with a window that is not known, or known in part.

The stream is decoded twice, once after a window that has zeros where nothing is known and once after one that has
0xFF there. What is copied from the window, however often and by however many steps, stays different in the two;
everything else is the same. So the first output is the content with zeros for what is unknown, and where it differs
from the second is exactly what is unknown. (The idea, with numbers for markers, is that of pugz and rapidgzip.)
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from copy import copy

from pparse.codecs.base import CHECKPOINT
from pparse.codecs.library import Core, LibraryDecompressor
from pparse.kernels.deflate_blocks import prefix_for
from pparse.limits import KIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Final

    from pparse.codecs.base import Decompressor, Reread
    from pparse.limits import MemoryBudget

WINDOW: Final = 32 * KIB
# Output compared together, so that the temporary arrays stay small.
_PIECE: Final = 16 * KIB
# What an entry needs beside the states: the two windows as zlib's objects keep them, the second output, the arrays.
_BESIDE: Final = 2 * WINDOW + 64 * KIB + 16 * _PIECE


class DeflateEntry(Core):
    """A decoder of raw deflate that begins at bit ``phase`` of the first byte fed.

    ``window`` is what is known to precede that point, as far as it is known without a break. What precedes that is
    unknown, as far back as ``unknown`` and ``window`` together make 32 KiB; a smaller ``unknown`` says that the stream
    began there (so ``unknown=0`` and no window: it begins here). ``holes`` are stretches (start, length) of ``window``
    that are unknown too. Raises ValueError for a phase that no byte has, and for negative numbers.

    Unknown bytes come out as zeros. To learn more about the window later is to make another entry with it.
    """

    __slots__ = ("_edges", "_last_unknown", "_prefix", "_second")

    def __init__(
        self, phase: int, window: bytes = b"", unknown: int = WINDOW, holes: Iterable[tuple[int, int]] = ()
    ) -> None:
        if unknown < 0:
            raise ValueError(f"negative length: {unknown}")
        cut = max(len(window) - WINDOW, 0)
        room = min(unknown, WINDOW - len(window) + cut)
        low = bytearray(room) + window[cut:]
        high = bytearray(b"\xff") * room + window[cut:]
        last = room
        for start, length in holes:
            if start < 0 or length < 0:
                raise ValueError(f"a hole of {length} bytes at {start}")
            begin, end = (min(max(at - cut, 0) + room, len(low)) for at in (start, start + length))
            low[begin:end] = bytes(end - begin)
            high[begin:end] = b"\xff" * (end - begin)
            if begin < end:
                last = max(last, end)
        # Where the last unknown byte ends, in the output; before the entry is negative.
        self._last_unknown = last - len(low)
        self._prefix: tuple[bytes, int, int] | None = (*prefix_for(phase), phase)
        super().__init__(_inflater(low))
        self._second = _inflater(high) if last else None
        self._edges = array("q")

    def feed(self, data: bytes, limit: int) -> bytes:
        """Take ``data`` (empty: go on with what was taken); return ``limit`` bytes or so, fewer if hungry then.

        Raises zlib.error for damage.
        """
        if self._prefix is not None:
            if not data:
                return b""
            before, low, phase = self._prefix
            data = b"".join((before, bytes((data[0] >> phase << phase | low,)), data[1:]))
            self._prefix = None
        tail = self._stream.unconsumed_tail
        if tail:
            data = tail + data
        out: bytes = self._stream.decompress(data, limit)
        if self._second is not None:
            other: bytes = self._second.decompress(data, limit)
            if out != other:
                self._compare(out, other)
            if self.total_out + len(out) - self._last_unknown >= WINDOW:
                self._second = None  # nothing unknown is in reach any more: the two would agree for ever
        self.total_out += len(out)
        self.hungry = len(out) < limit
        return out

    def _compare(self, out: bytes, other: bytes) -> None:
        import numpy as np

        for at in range(0, len(out), _PIECE):
            count = min(_PIECE, len(out) - at)
            differs = np.zeros(count + 2, np.bool_)
            np.not_equal(
                np.frombuffer(out, np.uint8, count, at), np.frombuffer(other, np.uint8, count, at), out=differs[1:-1]
            )
            edges = np.flatnonzero(differs[1:] != differs[:-1]) + (self.total_out + at)
            if len(edges):
                if self._edges and self._edges[-1] == edges[0]:
                    self._edges.pop()
                    edges = edges[1:]
                self._edges.frombytes(edges.astype(np.int64).tobytes())
                self._last_unknown = int(edges[-1])

    def take_unknown(self) -> list[tuple[int, int]]:
        """Return the unknown stretches of the output since the last call: (offset from the entry, length), ascending.

        One that goes on over several calls comes in parts.
        """
        return stretches(self.take_edges())

    def take_edges(self) -> array[int]:
        """Return what `take_unknown` does, in less memory: where each stretch begins and ends, one after the other."""
        edges, self._edges = self._edges, array("q")
        return edges

    @property
    def resolved(self) -> bool:
        """Whether nothing unknown can come any more: the last 32 KiB are known. One decoder is enough then."""
        return self._second is None

    def copy(self) -> DeflateEntry:
        """Return a second decoder in the same state. It reports the stretches of what it puts out itself."""
        twin = copy(self)
        twin._stream = self._stream.copy()
        twin._second = None if self._second is None else self._second.copy()
        twin._edges = array("q")
        return twin


def _inflater(window: bytearray) -> Any:
    return zlib.decompressobj(-15, zdict=bytes(window)) if window else zlib.decompressobj(-15)


def stretches(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Return ``(start, length)`` of stretches of which ``edges`` tell where each begins and ends."""
    ends = iter(edges)
    return [(start, end - start) for start, end in zip(ends, ends, strict=True)]


class EntryDecompressor(LibraryDecompressor):
    """The decompressor of a raw deflate stream entered at bit ``phase`` of the first byte it is given.

    ``window``, ``unknown`` and ``holes`` say what is known of the output before; see `DeflateEntry`, also for the
    ValueErrors. ``size``: the bytes that may come, ``reread``: compressed bytes once more, from the first byte given.
    Unknown bytes are delivered as zeros; `take_unknown` says which those are.
    """

    errors = (zlib.error,)

    def __init__(
        self,
        phase: int,
        window: bytes = b"",
        unknown: int = WINDOW,
        holes: Iterable[tuple[int, int]] = (),
        budget: MemoryBudget | None = None,
        size: int | None = None,
        reread: Reread | None = None,
    ) -> None:
        super().__init__("deflate", budget, size, reread)
        self._entry = phase, window, unknown, tuple(holes)
        first = DeflateEntry(*self._entry)  # complains now, not in the midst of decoding
        self._memory = 2 * CHECKPOINT + WINDOW if first.resolved else 4 * CHECKPOINT + _BESIDE
        self._edges = array("q")
        self._compared = 0  # output of which the stretches are known

    def _look(self, head: bytes) -> tuple[int, bytes] | None:
        return self._memory, b""

    def _make(self) -> Core:
        return DeflateEntry(*self._entry)

    @property
    def resolved(self) -> bool:
        """Whether the decoder knows that nothing unknown can come any more."""
        return isinstance(self._core, DeflateEntry) and self._core.resolved

    def take_unknown(self) -> list[tuple[int, int]]:
        """Return the unknown stretches of what was delivered since the last call: (offset from the entry, length).

        They ascend, and adjacent ones are one, but for one that goes on over several calls: it comes in parts.
        """
        return stretches(self.take_edges())

    def take_edges(self) -> array[int]:
        """Return what `take_unknown` does, in less memory: where each stretch begins and ends, one after the other."""
        self._collect()
        count = bisect_left(self._edges, self.total_out)
        taken, self._edges = self._edges[:count], self._edges[count:]
        if count & 1:  # in the midst of a stretch
            taken.append(self.total_out)
            if self._edges[0] == self.total_out:
                del self._edges[0]
            else:
                self._edges.insert(0, self.total_out)
        return taken

    def _collect(self) -> None:
        """Take over what the core knows. After damage a second one goes the same way: what it repeats is left out."""
        core = self._core
        if not isinstance(core, DeflateEntry):
            return
        edges = core.take_edges()
        done = bisect_left(edges, self._compared)
        if done & 1:
            done -= 1
            edges[done] = self._compared
            if edges[done + 1] == self._compared:
                done += 2
        if len(edges) > done:
            if self._edges and self._edges[-1] == edges[done]:
                self._edges.pop()
                done += 1
            self._edges += edges[done:]
        self._compared = max(self._compared, core.total_out)

    def _produce(self) -> bytes:
        out = super()._produce()
        self._collect()
        return out

    def copy(self) -> Decompressor | None:
        """Return a checkpoint; see `Decompressor.copy`."""
        other = super().copy()
        if isinstance(other, EntryDecompressor):
            other._edges = array("q")
            other._compared = other.total_out
        return other

    def _drop(self) -> None:
        self._collect()
        super()._drop()
