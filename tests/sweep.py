"""How much of a sweep one run does: some of the places, another part of them with every commit; all with ``--full``.

A sweep cuts or changes a file at each of its bytes. A default run takes every n-th place and two or three of the
values, from an offset that is made of the commit, so that what one run leaves out, another one does. The offset is
printed at the start and beside failures; ``--sweep-offset N`` repeats a run.
"""

from __future__ import annotations

import random
import subprocess
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Value = TypeVar("Value")

# A multiple of every stride up to 15, and of many above: values move from place to place whatever the stride.
TURN = 360_360
# Strides are by so much longer than a test says, and of the ends of what is swept a part is looked at in every run, for
# all sweeps together to fit into five minutes on two cores.
_LONGER = 4
_OF_ENDS = 1 / 2

# Set by conftest, from the options of the run; ``thin`` is by how much less than a default run --quick looks at.
offset = 0
full = False
thin = 1


def commit_offset() -> int:
    """Return an offset made of the commit that is checked out; 0 where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return int(found[:6], 16)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


def stride(every: int) -> int:
    """Return how far apart the places of a default run are where a test says ``every``."""
    return ceil(every * _LONGER * thin) if every > 1 else thin


def some(places: Iterable[Value], every: int, *, keep: Iterable[Value] = (), ends: int = 0) -> list[Value]:
    """Return every n-th of ``places`` in order (see `stride`), those in ``keep``, and half of ``ends`` at either end.

    ``keep`` holds the places that must be looked at in every run: what once went wrong, and the borders of what is
    swept.
    """
    found = list(places)
    if full:
        return found
    kept = list(keep)
    every = stride(every)
    ends = ceil(ends * _OF_ENDS / thin)
    return [
        place
        for number, place in enumerate(found)
        if (number + offset) % every == 0 or place in kept or number < ends or number >= len(found) - ends
    ]


def values(table: Sequence[Value], at: int, count: int = 2) -> Sequence[Value]:
    """Return ``count`` of the values in the table for the place ``at``: others at the next place."""
    if full or count >= len(table):
        return table
    first = (offset // TURN + at * count) % len(table)
    return [table[(first + number) % len(table)] for number in range(count)]


def faults(most: int, every: int = 3, *, first: int = 12) -> Iterable[int]:
    """Yield which read, write or step is to fail: the ``first`` ones, then every n-th below ``most``."""
    yield from (
        number for number in range(1, most) if full or number <= first / thin or (number + offset) % (every * thin) == 0
    )


def scaled(number: int, by: int = 4) -> int:
    """Return how many there are of something whose work has to grow with its number, or less: a part by default."""
    return number if full else number // by


def examples(number: int) -> int:
    """Return how many examples hypothesis tries; it draws others in every run."""
    return number if full else ceil(number / (4 * thin))


def part(table: Iterable[Value], share: float = 0.5) -> Sequence[Value]:
    """Return a share of a table, in its order, drawn by the offset; at least one row."""
    rows = list(table)
    return sample(rows, max(1, round(share * len(rows) / thin)))


def sample(table: Sequence[Value], count: int) -> Sequence[Value]:
    """Return ``count`` rows of a table, in its order, drawn by the offset."""
    if full or count >= len(table):
        return table
    return [table[number] for number in sorted(random.Random(f"rows {offset}").sample(range(len(table)), count))]
