"""FarmHash as TensorFlow computes it."""

from __future__ import annotations

import random

import pytest

from pparse.kernels import farmhash


@pytest.mark.parametrize("function", [farmhash.fingerprint64, farmhash.fingerprint64_python])
def test_fingerprints_are_those_of_tensorflow(referee, function):
    chooser = random.Random(1)
    for length in [*range(270), 511, 512, 513, 4095, 100_003]:
        text = chooser.randbytes(length)
        assert function(text) == referee.fingerprint64(text), length
