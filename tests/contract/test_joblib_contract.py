"""The pickle parser passes the contract with files of joblib."""

from __future__ import annotations

import pickle

import numpy as np

from tests.contract.test_pickle_contract import TestPickle as Pickles
from tests.joblib_samples import described, one_array, padded, state

BYTES = np.arange(5, dtype="u1")


def unaligned() -> bytes:
    """Return two arrays without padding, as joblib wrote them before 1.2, and a text behind them."""
    plain = state(BYTES)
    del plain["numpy_array_alignment_bytes"]
    return b"\x80\x02](" + 2 * (described(plain) + BYTES.tobytes()) + b"X\4\0\0\0texte."


def lines() -> bytes:
    """Return an array in a pickle of protocol 0."""
    made = pickle.dumps(state(BYTES), 0)[:-1]
    head = (
        b"(lp0\nccopy_reg\n_reconstructor\n(cjoblib.numpy_pickle\nNumpyArrayWrapper\nc__builtin__\nobject\nNtR"
        + made
        + b"b"
    )
    return head + padded(len(head), BYTES.tobytes()) + b"aI7\na."


class TestJoblib(Pickles):
    samples = {
        "one": one_array(),
        "objects": b"\x80\x02]("
        + described(state(np.array(["a", 1], dtype=object)))
        + b"\x80\x02](X\1\0\0\0aK\1e."
        + b"K\2e.",
        "lines": lines(),
        "unaligned": unaligned(),
    }
    changes = (0x00, 0x2E, 0x62, 0xFF)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """Whether the prefix is all: there is one pickle in each."""
        return len(prefix) == len(self.samples[name])

    def large(self) -> bytes:
        made = b"\x80\x02}("
        for number in range(9):
            array = np.full(1 << 20, number, dtype="u1")
            made += b"X\1\0\0\0" + bytes([97 + number]) + described(state(array))
            made += padded(len(made), array.tobytes())
        return made + b"X\4\0\0\0nameX\5\0\0\0largeu."


del Pickles
