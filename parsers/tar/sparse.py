"""Sparse files in a tar archive: which ranges are stored, and the content with zeros between them.

The map of the ranges is in the header and in blocks after it (old GNU), or in one of three pax versions: 0.0 (a record
for each number), 0.1 (one record) and 1.0 (decimal lines before the data).
"""

from __future__ import annotations

from array import array

from pparse.data.spliced import MissingData, SplicedData, ZeroData
from pparse.parsers.tar.headers import BLOCK, DIGITS, LARGEST, Attributes, TarHeader, read_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data, Range
    from pparse.limits import Charge, MemoryBudget
    from pparse.parsers.tar.mend import Body
    from pparse.parsers.tar.source import TarSource

_MAX_ENTRIES: Final = 1 << 20  # in a sparse map
_OLD_IN_HEADER: Final = 4
_OLD_IN_BLOCK: Final = 21
_TOO_MANY: Final = "the sparse map has more than a million entries"
_NOT_A_NUMBER: Final = "its sparse map has an entry that is not a number"
_PIECE_SIZE: Final = 240  # bytes of memory for a piece of a sparse file and the hole before it


class SparseContent(SplicedData):
    """The content of a sparse file: stored ranges, with zeros between. Holds a charge for its pieces."""

    def __init__(self, parts: list[Range], name: str, charge: Charge) -> None:
        super().__init__(parts, name=name)
        self._charge = charge

    def close(self) -> None:
        """Release the memory of the pieces."""
        super().close()
        self._charge.release()


class SparseMap:
    """The stored ranges of a sparse member: ``pairs`` of offset and length, ascending, within ``real_size``.

    ``problem`` says what is wrong with the map, which then holds the part before that. ``skip`` is the number of stored
    bytes that the map itself takes.
    """

    __slots__ = ("pairs", "problem", "real_size", "skip")

    def __init__(self, pairs: array[int], real_size: int | None, skip: int = 0, problem: str | None = None) -> None:
        self.pairs, self.skip, self.problem = pairs, skip, problem
        self.real_size = 0 if real_size is None else real_size
        if real_size is None:
            self.problem = self.problem or "the size of the sparse file is not known"
            self.real_size = max((pairs[at] + pairs[at + 1] for at in range(0, len(pairs) - 1, 2)), default=0)

    @property
    def stored(self) -> int:
        """Sum of the lengths of the ranges, in bytes."""
        return sum(self.pairs[1::2])

    def spread(self, data: Data, start: int, name: str, budget: MemoryBudget) -> SparseContent:
        """Return the content ``name``: the stored ranges, which begin at ``start``, over its full size."""
        charge = budget.charge(_PIECE_SIZE * (len(self.pairs) // 2 + 1), "a sparse map")
        parts: list[Range] = []
        end = 0
        for offset, length in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            if offset > end:
                parts.append(ZeroData(offset - end).range(0, offset - end))
            parts.append(data.range(start, start + length))
            start += length
            end = offset + length
        if end < self.real_size:
            rest = self.real_size - end
            # The part that a broken map no longer describes is unknown, not zeros.
            parts.append((ZeroData(rest) if self.problem is None else MissingData(rest)).range(0, rest))
        return SparseContent(parts, name, charge)

    def check(self, compressed_size: int) -> None:
        """Cut the map where it contradicts itself, the size of the file, or ``compressed_size``, the bytes stored."""
        end = used = 0
        pairs = self.pairs
        for at in range(0, len(pairs), 2):
            if at + 1 >= len(pairs):
                reason = "ends in the middle of a pair"
            elif pairs[at] < end:
                reason = "is not in ascending order"
            elif pairs[at + 1] > self.real_size - pairs[at]:
                reason = "extends beyond the size of the file"
            elif pairs[at + 1] > compressed_size - used:
                reason = "lists more bytes than are stored"
            else:
                used += pairs[at + 1]
                end = pairs[at] + pairs[at + 1]
                continue
            self.problem = self.problem or f"its sparse map {reason}"
            del pairs[at:]
            return


def old_pairs(block: bytes, at: int, count: int, pairs: array[int]) -> bool:
    """Add the pairs of an old GNU map at ``at`` in a block to ``pairs``; return whether they are sound."""
    for place in range(at, at + 24 * count, 24):
        field = block[place : place + 24]
        if not field.strip(b"\0 "):
            continue
        offset, length = read_number(field[:12]), read_number(field[12:])
        if offset is None or length is None or not 0 <= offset < LARGEST or not 0 <= length < LARGEST:
            return False
        pairs.append(offset)
        pairs.append(length)
    return True


def old_map(header: bytes) -> tuple[SparseMap, bool]:
    """Return the map in an old GNU sparse header, and whether a block with more of it follows."""
    pairs = array("q")
    problem = None if old_pairs(header, 386, _OLD_IN_HEADER, pairs) else _NOT_A_NUMBER
    real = read_number(header[483:495])
    real = None if real is not None and not 0 <= real < LARGEST else real
    return SparseMap(pairs, real, 0, problem), header[482] not in (0, 0x30)


def extend_old_map(map: SparseMap, block: bytes) -> bool:
    """Add the pairs in a block after an old GNU sparse header; return whether another one follows."""
    if len(map.pairs) > 2 * _MAX_ENTRIES:
        map.problem = _TOO_MANY
        return False
    if not old_pairs(block, 0, _OLD_IN_BLOCK, map.pairs):
        map.problem = map.problem or _NOT_A_NUMBER
    return block[504] not in (0, 0x30)


class MapText:
    """Reads the decimal lines of a 1.0 map from blocks: ``feed`` blocks until it returns False."""

    __slots__ = ("_left", "_rest", "blocks", "pairs", "problem")

    def __init__(self) -> None:
        self.pairs = array("q")
        self.problem: str | None = None
        self.blocks = 0
        self._left = -1  # remaining numbers; -1: not known yet
        self._rest = b""

    def feed(self, block: bytes) -> bool:
        """Parse a block; return whether the map continues in the next one."""
        self.blocks += 1
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if not line.isdigit() or len(line) > DIGITS or int(line) >= LARGEST:
                return self._stop(_NOT_A_NUMBER)
            number = int(line)
            if self._left < 0:
                if number > _MAX_ENTRIES:
                    return self._stop(_TOO_MANY)
                self._left = 2 * number
            else:
                self.pairs.append(number)
                self._left -= 1
            if not self._left:
                return False
        if len(self._rest) > DIGITS:
            return self._stop(_NOT_A_NUMBER)
        return True

    def _stop(self, problem: str) -> bool:
        self.problem = problem
        return False

    def map(self, real_size: int | None) -> SparseMap:
        """Return the map read so far."""
        return SparseMap(self.pairs, real_size, self.blocks * BLOCK, self.problem)


def read_old_map(source: TarSource, header: TarHeader, pos: int) -> tuple[SparseMap, int]:
    """Read an old GNU sparse map, with its blocks after the header; return it and where the data begin."""
    map, more = old_map(header.raw)
    while more:
        block, unknown = source.read(pos, BLOCK)
        if len(block) < BLOCK or unknown:
            map.problem = map.problem or "its sparse map is lost or truncated"
            pos += BLOCK if unknown else 0
            break
        more = extend_old_map(map, block)
        pos += BLOCK
    return map, pos


def read_pax_map(source: TarSource, attributes: Attributes, body: Body) -> SparseMap:
    """Return the map in pax records, or before the data."""
    if attributes.map is not None:
        return SparseMap(attributes.map, attributes.real_size)
    text = MapText()
    for pos in range(body.start, body.end + BLOCK, BLOCK):
        block, unknown = source.read(pos, BLOCK)
        if len(block) < BLOCK or unknown or pos >= body.end:
            text.problem = text.problem or "its sparse map ends early"
            break
        if not text.feed(block):
            break
    return text.map(attributes.real_size)
