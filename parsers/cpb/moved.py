"""Chunks of a file that bytes were taken out of, or put into: which record each of them is now.

The metadata name chunks by their positions, and behind such a place all positions are others. What can be found are
records, each with a hash that proves it whole, but none that says which chunk it is. That is proved by where they
stand:

- the records before the first stretch that is lost are at their positions, and have their sizes;
- the records between the last such stretch and the metadata, which follow the last chunk, are the last chunks: all have
  their sizes, and all moved by one distance. That distance is less than any chunk takes, so that none is missing
  without a stretch that tells of it;
- records between two such stretches moved by that distance, or not at all, and only one of it fits.

Where it is not proved so (more bytes came in than a chunk takes, or at several places), their sizes may: the records
are chunks in their order, and those that can be one chunk only, whichever the others are, are that one.
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

# What the header of a Riegeli chunk takes: positions that are closer are those of records of one chunk.
_CHUNK_HEADER: Final = 40


def check_belongs(
    positions: Callable[[], Iterable[int]], at: int, count: Callable[[], int], source: str | None = None
) -> None:
    """Raise `MalformedError` if records are gone of a file whose metadata, at ``at``, name chunks at ``positions``.

    They are written last: if a chunk is not before them, and they name more chunks than there are records before them
    (``count``), then they are of another file, or what is left moved up, and other chunks are at their positions.
    """
    if max(positions(), default=-1) < at:
        return
    named, there = set(positions()), count()
    if len(named) > there:
        raise MalformedError(
            f"the chunk metadata do not belong to this file: they name {len(named):,} chunks, one of them at "
            f"{max(named)}, and there are {there:,} records before them, which are at {at}",
            offset=at,
            source=source,
        )


def chunks_moved(
    infos: Iterable[ChunkInfo], found: Sequence[Record], lost: Sequence[tuple[int, int]]
) -> dict[int, int | None] | None:
    """Return where the record of each chunk is now, by the position it had; None for a chunk that is lost.

    ``found`` are the records before the metadata that are whole, ``lost`` the stretches of the file where none is.
    None as a whole if the metadata are not proved to be those of the file.
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
    """Return by how much these records moved, all of them; None if they are not those that are expected."""
    distances = {want[0] - have[0] for want, have in zip(expected, behind, strict=True)}
    if any(want[1] != have[1] for want, have in zip(expected, behind, strict=True)) or len(distances) > 1:
        return None
    return distances.pop() if distances else 0


def _by_sizes(expected: Sequence[Record], before: Sequence[Record], rest: Sequence[Record]) -> dict[int, int]:
    """Return where chunks are that only one of the records ``rest`` can be, none of them before those at ``before``.

    Each record is taken for the first chunk of its size that it can be, and for the last one; the truth is between.
    """
    start = bisect_left(expected, before[-1]) + 1 if before else 0
    first, at = [], start
    for _, size in rest:
        while at < len(expected) and expected[at][1] != size:
            at += 1
        first.append(at)
        at += 1
    if at > len(expected):  # a record is none of the chunks
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
    """Return how many bytes a chunk of the Riegeli file takes at least, as far as the positions tell."""
    pitches = [after[0] - before[0] for before, after in pairwise(expected) if after[0] - before[0] >= _CHUNK_HEADER]
    return min(pitches, default=_CHUNK_HEADER)


def _between(found: Sequence[Record], lost: Sequence[tuple[int, int]], first: int, last: int) -> Iterable[list[Record]]:
    """Yield the records between two lost stretches each, in groups."""
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
