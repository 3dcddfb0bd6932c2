"""What is saved of a model whose format has no form of its own: its whole tensors, and a list of the rest."""

from __future__ import annotations

import json

import numpy as np

import pparse
from pparse.recovery.recover import recover
from tests.small_files import SmallParser, SmallViewer, small_file

WHOLE = small_file(
    tensors={"up": ((2, 3), 0), "down": ((4,), 32), "last": ((3,), 64)}, data=np.arange(19, dtype="<f4").tobytes()
)


def test_a_cut_model_of_any_format_with_a_viewer_gives_its_whole_tensors(tmp_path):
    registry = pparse.Registry()
    registry.add(SmallParser, SmallViewer)
    with pparse.view(WHOLE, registry=registry) as viewer:
        originals = {tensor.name: tensor.numpy() for tensor in viewer.tensors()}
        cut = WHOLE[: max(tensor.spans[0].offset for tensor in viewer.tensors()) + 2]
    path = tmp_path / "x.smf"
    path.write_bytes(cut)
    with pparse.open(path, registry=registry) as document:
        recover(document, tmp_path / "out")
    with pparse.view(tmp_path / "out" / "x.safetensors") as saved:
        found = {tensor.name: tensor.numpy() for tensor in saved.tensors()}
    lost = json.loads((tmp_path / "out" / "x.safetensors.rest.json").read_text())["lost"]
    assert len(found) == len(originals) - 1 > 0
    assert [(entry["name"], entry["status"], entry["there"]) for entry in lost] == [
        (name, "truncated", 2) for name in originals.keys() - found.keys()
    ]
    for name, array in found.items():
        np.testing.assert_array_equal(array, originals[name])


def test_a_whole_model_is_written_as_it_is(tmp_path):
    registry = pparse.Registry()
    registry.add(SmallParser, SmallViewer)
    path = tmp_path / "x.smf"
    path.write_bytes(WHOLE)
    with pparse.open(path, registry=registry) as document:
        recover(document, tmp_path / "out")
    assert (tmp_path / "out" / "x.smf").read_bytes() == WHOLE
