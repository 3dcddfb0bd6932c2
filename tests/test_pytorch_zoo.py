"""The reader of PyTorch files and pickles against what torch, pickle and joblib read in the zoo."""

from __future__ import annotations

import pytest

import pparse
from tests.pytorch_zoo import SAMPLES, WITH_TENSORS, check

# joblib keeps the bytes of arrays between opcodes: not read (docs/pytorch.md, "Limits").
NOT_READ = (".joblib",)


@pytest.mark.parametrize("name", [name for name in WITH_TENSORS if not name.endswith(NOT_READ)])
def test_tensors_are_those_of_the_library(name):
    with pparse.view(SAMPLES[name]) as viewer:
        check(viewer, name)
