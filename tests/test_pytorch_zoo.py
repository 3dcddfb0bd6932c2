"""The reader of PyTorch files and pickles against what torch, pickle and joblib read in the zoo."""

from __future__ import annotations

import pytest

import pparse
from tests.pytorch_zoo import SAMPLES, WITH_TENSORS, check
from tests.rows import rows

# torch compares no checksum, and reads these; here, small content that its checksum contradicts is refused.
CONTRADICTED = ("hostile/wrong_crc_data.pt", "hostile/wrong_crc_pickle.pt")


@pytest.mark.parametrize("name", CONTRADICTED)
def test_what_its_checksum_contradicts_is_listed_and_refused(name):
    with pparse.view(SAMPLES[name]) as viewer:
        assert [(tensor.name, tensor.shape) for tensor in viewer.tensors()] == [
            ("a", (4, 5)), ("view", (4, 4)), ("b", (6,)), ("c", (3,)),
        ]  # fmt: skip
        for tensor in viewer.tensors():
            with pytest.raises(pparse.DamagedTensorError, match="its CRC-32 is"):
                tensor.numpy()
            assert str(viewer[tensor.name].status) == "damaged"


@rows("name", [name for name in WITH_TENSORS if name not in CONTRADICTED])
def test_tensors_are_those_of_the_library(name):
    with pparse.view(SAMPLES[name]) as viewer:
        check(viewer, name)
