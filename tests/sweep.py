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

# A multiple of every stride up to 15: values move from place to place whatever the stride.
TURN = 360_360
# Strides are by so much longer than a test says, for all sweeps together to fit into five minutes on two cores.
_LONGER = 4 / 3

# Set by conftest, from the options of the run.
offset = 0
full = False


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
    return ceil(every * _LONGER) if every > 1 else every


def some(places: Iterable[Value], every: int, *, keep: Iterable[Value] = (), ends: int = 0) -> list[Value]:
    """Return every n-th of ``places`` in order (see `stride`), those in ``keep``, and ``ends`` at either end.

    ``keep`` holds the places that must be looked at in every run: what once went wrong, and the borders of what is
    swept.
    """
    found = list(places)
    if full:
        return found
    kept = list(keep)
    every = stride(every)
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


def sample(table: Sequence[Value], count: int) -> Sequence[Value]:
    """Return ``count`` rows of a table, in its order, drawn by the offset."""
    if full or count >= len(table):
        return table
    return [table[number] for number in sorted(random.Random(f"rows {offset}").sample(range(len(table)), count))]
