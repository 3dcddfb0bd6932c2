"""The reader of PyTorch files and pickles against what torch, pickle and joblib read in the zoo."""

from __future__ import annotations

import pytest

import pparse
from tests.pytorch_zoo import SAMPLES, WITH_TENSORS, check


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_tensors_are_those_of_the_library(name):
    with pparse.view(SAMPLES[name]) as viewer:
        check(viewer, name)
