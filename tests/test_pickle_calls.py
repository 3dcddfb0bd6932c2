"""What a pickle would name and call, against what CPython's unpicklers do with it."""

from __future__ import annotations

import pickle

import numpy as np

from tests.malicious_files import malicious_files
from tests.pickle_programs import program
from tests.pickle_referee import differences
from tests.pickle_samples import Kept, Named, New, Set, Thing, dump

# How many programs are looked at; `python -m tests.pickle_referee` looks at more.
PROGRAMS = 2_000


def real_pickles() -> list[bytes]:
    """Return small pickles of Python and numpy."""
    values = [
        [Thing(a=1), Kept([1, 2]), Named(a=1), New(1, b=2), Set(), {1, 2}, frozenset([3]), 1 << 70, 1.5, b"a", "é"],
        {"w": np.arange(3.0), "s": np.float32(1), "o": np.array([None, "a"], object), "t": np.dtype([("a", "i4")])},
        [bytearray(b"a"), complex(1, 2), range(3), ValueError("x"), print, slice(1), ...],
    ]
    return [dump(value, protocol) for value in values for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


def test_what_is_told_is_what_the_unpicklers_do() -> None:
    real = real_pickles()
    pickles = [*real, *(program(number, real) for number in range(PROGRAMS))]
    pickles += [data for _, name, data in malicious_files() if name.endswith(".pkl") and len(data) < 2_000]
    wrong = {}
    for number, data in enumerate(pickles, -len(real)):
        if found := differences(data):
            wrong[number] = found
    assert not wrong
