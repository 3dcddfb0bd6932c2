"""Finds the chunks of a file from which bytes were removed, or into which bytes were inserted.

The metadata give the positions of chunks, and after such a place all positions have changed. Records can be found, each
proved whole by a hash, but they do not say which chunk they are. Their positions prove it:

- The records before the first lost range are at their positions and have their sizes.
- The records between the last such range and the metadata, which follow the last chunk, are the last chunks: all have
  their sizes, and all moved by the same distance. The distance is smaller than any chunk, so that none is missing
  without a lost range.
- Records between two such ranges moved by that distance or not at all, and only one of these fits.

If that proves nothing (more bytes were inserted than a chunk has, or at several places), sizes may: the records are
chunks in their order, and a record that can only be one chunk, whatever the others are, is that chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Final

    from pparse.parsers.cpb.metadata import ChunkInfo

    Record = tuple[int, int]  # its position, and its size

# Size of the header of a Riegeli chunk: closer positions belong to records of one chunk.
_CHUNK_HEADER: Final = 40


def check_belongs(
    positions: Callable[[], Iterable[int]], at: int, count: Callable[[], int], source: str | None = None
) -> None:
    """Raise `MalformedError` if a file has lost records that its metadata, at ``at``, name by ``positions``.

    The metadata are written last. If a chunk is not before them, and they name more chunks than there are records
    before them (``count``), they belong to another file, or the rest moved up, and other chunks are at their positions.
    """
    if max(positions(), default=-1) < at:
        return
    named, there = set(positions()), count()
    if len(named) > there:
        raise MalformedError(
            f"the chunk metadata do not belong to this file: they name {len(named):,} chunks, the last one at "
            f"{max(named)}, but stand at {at}, after only {there:,} records",
            offset=at,
            source=source,
        )


def chunks_moved(
    infos: Iterable[ChunkInfo], found: Sequence[Record], lost: Sequence[tuple[int, int]]
) -> dict[int, int | None] | None:
    """Return the new position of each chunk's record, by its old position; None for a lost chunk.

    ``found`` are the whole records before the metadata, ``lost`` the ranges of the file without any. Return None if the
    metadata are not proved to belong to the file.
    """
    sizes = {info.position: info.size for info in infos}
    expected = sorted(sizes.items())
    if not lost or not expected or not found:
        return None
    first, last = min(begin for begin, _ in lost), max(end for _, end in lost)
    before = [record for record in found if record[0] < first]
    behind = [record for record in found if record[0] >= last]
    if any(sizes.get(position) != size for position, size in before) or len(before) + len(behind) > len(expected):
        return None
    moved: dict[int, int | None] = dict.fromkeys(sizes)
    moved.update((position, position) for position, _ in before)
    distance = _distance(expected[len(expected) - len(behind) :], behind)
    if distance is None or abs(distance) >= _least_pitch(expected):
        placed = _by_sizes(expected, before, [record for record in found if record[0] >= first])
        moved.update(placed)
        return moved if placed else None
    for position, _ in behind:
        if moved[position + distance] is not None:
            return None
        moved[position + distance] = position
    limit = behind[0][0] + distance if behind else expected[-1][0] + 1
    for group in _between(found, lost, first, last):
        ways = {
            shift
            for shift in (0, distance)
            if all(
                sizes.get(position + shift) == size and moved[position + shift] is None and position + shift < limit
                for position, size in group
            )
        }
        if len(ways) == 1:
            shift = ways.pop()
            moved.update((position + shift, position) for position, _ in group)
    return moved if before or behind else None


def _distance(expected: Sequence[Record], behind: Sequence[Record]) -> int | None:
    """Return the distance by which all these records moved; None if they are not the expected ones."""
    distances = {want[0] - have[0] for want, have in zip(expected, behind, strict=True)}
    if any(want[1] != have[1] for want, have in zip(expected, behind, strict=True)) or len(distances) > 1:
        return None
    return distances.pop() if distances else 0


def _by_sizes(expected: Sequence[Record], before: Sequence[Record], rest: Sequence[Record]) -> dict[int, int]:
    """Return the positions of chunks that can only be one of the records ``rest``, none before the ones in ``before``.

    Each record is matched to the first chunk of its size that is possible, and to the last; the truth is between.
    """
    start = bisect_left(expected, before[-1]) + 1 if before else 0
    first, at = [], start
    for _, size in rest:
        while at < len(expected) and expected[at][1] != size:
            at += 1
        first.append(at)
        at += 1
    if at > len(expected):  # some record is not a chunk
        return {}
    at, placed = len(expected) - 1, {}
    for nth in range(len(rest) - 1, -1, -1):
        while expected[at][1] != rest[nth][1]:
            at -= 1
        if at == first[nth]:
            placed[expected[at][0]] = rest[nth][0]
        at -= 1
    return placed


def _least_pitch(expected: Sequence[Record]) -> int:
    """Return the least number of bytes of a chunk in the Riegeli file, as far as the positions show."""
    pitches = [after[0] - before[0] for before, after in pairwise(expected) if after[0] - before[0] >= _CHUNK_HEADER]
    return min(pitches, default=_CHUNK_HEADER)


def _between(found: Sequence[Record], lost: Sequence[tuple[int, int]], first: int, last: int) -> Iterable[list[Record]]:
    """Yield the groups of records between two lost ranges."""
    group: list[Record] = []
    ends = sorted(end for _, end in lost)
    current = -1
    for record in found:
        if not first <= record[0] < last:
            continue
        at = bisect_right(ends, record[0])
        if at != current and group:
            yield group
            group = []
        current = at
        group.append(record)
    if group:
        yield group
