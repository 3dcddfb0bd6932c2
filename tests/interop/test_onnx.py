"""ONNX models against onnx itself: every type in every form, every place of tensors, and what PyTorch exports."""

from __future__ import annotations

import importlib
import os
import warnings

import numpy as np
import pytest

import pparse
from pparse import Status
from tests import onnx_files as wire


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


onnx = library("onnx")
zoo = importlib.import_module("tests.interop.onnx_zoo")

# Indexes that reach into arrays of three and more dimensions as well as into those of two and one.
INDEXES = (..., slice(None, None, -1), slice(1, 3), slice(None, None, 2))


def compare(tensor, stored, shape, elements, name):
    """Compare a tensor with what onnx decoded: all of it, parts of it, its blocks and its bytes in the file."""
    assert (tensor.status, tensor.finding) == (Status.COMPLETE, None), name
    assert (tensor.stored_dtype, tensor.shape) == (stored, shape), name
    if stored == "STRING":
        assert list(tensor.strings()) == elements, name
        assert tensor.numpy().reshape(-1).tolist() == elements, name
        return
    array = tensor.numpy()
    assert tensor.dtype.name == elements.dtype.name, name
    assert array.dtype == elements.dtype, name
    assert array.shape == shape, name
    wanted = zoo.bits(elements, stored)
    assert zoo.bits(array, stored) == wanted, name
    if array.size:
        whole = np.concatenate(list(tensor.blocks(128)))
        assert zoo.bits(whole, stored) == wanted, name
    if shape:
        for index in (*INDEXES, *((0, -1) if shape[0] else ())):
            assert zoo.bits(np.asarray(tensor[index]), stored) == zoo.bits(elements[index], stored), (name, index)


def compare_all(folder):
    """Compare all tensors of the model in a folder with what onnx decodes."""
    path = folder / "model.onnx"
    theirs = onnx.ModelProto.FromString(path.read_bytes())
    wanted = zoo.contents(theirs, folder)
    with pparse.view(path) as model:
        assert sorted(model) == sorted(wanted)
        assert len(model) == len(wanted)
        for name, told in wanted.items():
            compare(model[name], *told, name)
        assert [name for name in model if name in {one.name for one in theirs.graph.initializer}] == list(
            dict.fromkeys(one.name for one in theirs.graph.initializer)
        )
        assert model.extent().status is Status.COMPLETE
        assert not [finding for finding in model.check() if finding.severity.value == "error"]
    return len(wanted)


@pytest.mark.parametrize("name", list(zoo.ZOO))
def test_what_onnx_decodes_is_what_is_found(name, tmp_path):
    zoo.ZOO[name](tmp_path)
    assert compare_all(tmp_path) or name == "nothing"


def test_the_zoo_has_every_type_in_every_form(tmp_path):
    found = {}
    for name in ("types_raw", "types_packed", "types_unpacked", "types_mixed", "types_external"):
        folder = tmp_path / name
        folder.mkdir()
        zoo.ZOO[name](folder)
        model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
        found[name] = {tensor.data_type for tensor in model.graph.initializer}
    every = set(zoo.TYPES)
    assert found["types_packed"] == found["types_unpacked"] == found["types_mixed"] == every
    assert found["types_raw"] == found["types_external"] == every - {onnx.TensorProto.STRING}


def test_signalling_nans_of_listed_floats_keep_their_bits():
    words = [0x7F80_0001, 0xFFBF_FFFF, 0x7FC0_1234]
    listed = [word.to_bytes(4, "little") for word in words]
    for how in ("packed", "unpacked"):
        content = wire.model_of(wire.tensor("n", [3], wire.FLOAT, wire.typed(wire.FLOATS, listed, how)))
        with pparse.view(content, format="onnx") as model:
            assert model["n"].numpy(raw=True).tolist() == words


def test_bytes_lie_where_the_spans_say(tmp_path):
    zoo.types_external(tmp_path)
    with pparse.view(tmp_path / "model.onnx") as model:
        for tensor in model.values():
            if not tensor.size:
                continue
            (span,) = tensor.spans
            content = (tmp_path / span.path.rpartition("::")[2]).read_bytes()[span.offset : span.offset + span.length]
            assert content == b"".join(tensor.raw_blocks(64)), tensor.name
    zoo.types_raw(tmp_path)
    whole = (tmp_path / "model.onnx").read_bytes()
    theirs = {tensor.name: tensor for tensor in onnx.ModelProto.FromString(whole).graph.initializer}
    with pparse.view(tmp_path / "model.onnx") as model:
        for tensor in model.values():
            if tensor.size:
                (span,) = tensor.spans
                assert whole[span.offset : span.offset + span.length] == theirs[tensor.name].raw_data


def test_what_the_producer_says_is_told(tmp_path):
    zoo.described(tmp_path)
    with pparse.view(tmp_path / "model.onnx") as model:
        told = repr(dict(model.metadata))
    for text in ("the zoo", "7.5", "somebody", "licence"):
        assert text in told


# -- models of PyTorch -------------------------------------------------------------------------------------------------


def networks():
    torch = library("torch")
    from torch import nn

    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.sum() > 0):
                y = self.one(x)
            else:
                y = self.two(x) + torch.ones(4)
            return y

    class Conditional(Branching):
        def forward(self, x):
            return torch.cond(x.sum() > 0, self.one, lambda y: self.two(y) + 1, (x,))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 3, 2, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    torch.manual_seed(3)
    small = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    row, picture = torch.ones(1, 4), torch.ones(1, 3, 4, 4)
    return {
        "small": (small, row),
        "half": (nn.Sequential(nn.Linear(4, 8), nn.ReLU()).half(), row.half()),
        "images": (images, picture),
        "recurrent": (Recurrent(), torch.ones(1, 5, 4)),
        "branching": (torch.jit.script(Branching()), row),
        "conditional": (Conditional(), row),
    }


# Each exporter has its own way to write conditions; only the newer one puts data beside the model.
EXPORTS = [(name, False, False) for name in ("small", "half", "images", "recurrent", "branching")]
EXPORTS += [
    (name, True, beside) for name in ("small", "half", "images", "recurrent", "conditional") for beside in (False, True)
]


@pytest.mark.parametrize(("name", "dynamo", "beside"), EXPORTS)
@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_exports(name, dynamo, beside, tmp_path):
    if dynamo:
        library("onnxscript")
    torch = library("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network, example = networks()[name]
        more = {"external_data": beside} if dynamo else {}
        network.eval()
        torch.onnx.export(network, (example,), str(tmp_path / "model.onnx"), dynamo=dynamo, **more)
    assert compare_all(tmp_path) >= 2
    weights = {
        array.tobytes(): key for key, array in ((k, v.numpy()) for k, v in network.state_dict().items()) if array.ndim
    }
    with pparse.view(tmp_path / "model.onnx") as model:
        found = {model[key].numpy().tobytes() for key in model if model[key].dtype is not None}
    if name == "small":
        assert set(weights) <= found
