"""Quantised modules of PyTorch, saved whole: their packed weights have the names of state_dict()."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

import pparse
from pparse import Severity
from pparse.tensors import dequantized


def word(text):
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def value(made):
    """Return the opcodes of plain data; bytes are opcodes already."""
    if isinstance(made, bytes):
        return made
    if isinstance(made, dict):
        return b"}(" + b"".join(value(part) for pair in made.items() for part in pair) + b"u"
    if isinstance(made, tuple | list):
        parts = b"".join(map(value, made))
        return b"(" + parts + b"t" if isinstance(made, tuple) else b"](" + parts + b"e"
    if isinstance(made, bool | None):
        return {None: b"N", True: b"\x88", False: b"\x89"}[made]
    if isinstance(made, float):
        return b"G" + struct.pack(">d", made)
    return word(made) if isinstance(made, str) else b"J" + struct.pack("<i", made)


def named(path):
    module, _, name = path.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def thing(path, state):
    """Return the opcodes of an object of a class with that path, and a state."""
    return named(path) + b")\x81" + value(state) + b"b"


def tensor(key, count, kind="Float", quantizer=None):
    """Return the opcodes of a tensor of one dimension, of all elements of a storage."""
    storage = value(("storage", named(f"torch.{kind}Storage"), str(key), "cpu", count)) + b"Q"
    rest = (False, named("collections.OrderedDict") + b")R")
    if quantizer is None:
        return named("torch._utils._rebuild_tensor_v2") + value((storage, 0, (count,), (1,), *rest)) + b"R"
    return named("torch._utils._rebuild_qtensor") + value((storage, 0, (count,), (1,), quantizer, *rest)) + b"R"


def module(path, own=None, below=None):
    parts = {"_parameters": {}, "_buffers": {}, "_modules": below or {}, "_hidden": "secret", **(own or {})}
    return thing(path, {"training": False, **parts})


def checkpoint(root, *storages):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + value(root) + b".")
        archive.writestr("m/byteorder", "little")
        for number, content in enumerate(storages):
            archive.writestr(f"m/data/{number}", content)
        archive.writestr("m/version", "3\n")
    return file.getvalue()


CODES, BIAS = np.int8([-1, 0, 2]), np.float32([0.5, 1, 1.5])
WEIGHT = tensor(0, 3, "QInt8", (named("torch.per_tensor_affine"), 0.5, 1))
PACKED = "__torch__.torch.classes.quantized."
LAYER = "torch.ao.nn.quantized."


def script_object(kind, state):
    return thing("torch.ScriptObject", (state, f"{PACKED}{kind}"))


def linear(top):
    """Return a linear layer as torch saves it with that prefix of modules: ``torch.…`` or ``__torch__.torch.…``."""
    weights = [WEIGHT, tensor(1, 3)]
    if top:
        held = {"_packed_params": thing(f"{PACKED}LinearPackedParamsBase", (weights[0], weights[1])), "dtype": 12}
        return thing(
            f"{top}{LAYER}modules.linear.Linear",
            {"scale": 0.25, "_packed_params": thing(f"{top}{LAYER}modules.linear.LinearPackedParams", held)},
        )
    held = {"_packed_params": script_object("LinearPackedParamsBase", weights), "dtype": named("torch.qint8")}
    params = module(f"{LAYER}modules.linear.LinearPackedParams", held)
    return module(f"{LAYER}modules.linear.Linear", {"scale": 0.25}, {"_packed_params": params})


def convolution(top):
    numbers = (1, 2, (3, 3), (1, 1), (0, 0), (1, 1), False, (0, 0), 1, "zeros")
    return thing(f"{top}{LAYER}modules.conv.Conv2d", (*numbers, WEIGHT, tensor(1, 3), 0.25, 74, False))


def embedding(top):
    state = (1, [WEIGHT], [0.5], [8])
    if top:
        return thing(f"{top}E", {"_packed_weight": thing(f"{PACKED}EmbeddingPackedParamsBase", state)})
    held = {"_packed_weight": script_object("EmbeddingPackedParamsBase", state)}
    return module(f"{LAYER}modules.embedding_ops.EmbeddingPackedParams", held)


@pytest.mark.parametrize("top", ["", "__torch__."])
@pytest.mark.parametrize(
    ("made", "weight", "bias"),
    [
        (linear, "_packed_params._packed_params.0", "_packed_params._packed_params.1"),
        (convolution, "weight", "bias"),
        (embedding, "_packed_weight", None),
    ],
)
def test_packed_weights_have_the_names_of_the_state_dict(made, weight, bias, top, tmp_path):
    with pparse.view(checkpoint(made(top), CODES.tobytes(), BIAS.tobytes())) as model:
        names = [weight, f"{weight}.scale", f"{weight}.zero_point", *([] if bias is None else [bias])]
        assert list(model) == names
        assert model[weight].numpy().tolist() == CODES.tolist()
        assert dequantized(model, weight).numpy().tolist() == [-1, -0.5, 0.5]
        if bias is not None:
            assert model[bias].numpy().tolist() == BIAS.tolist()
            assert model.metadata["scale"] == 0.25
        assert "_hidden" not in model.metadata
        pparse.convert(model, tmp_path / "m.safetensors", dequantize=True)
        with pparse.view(tmp_path / "m.safetensors") as written:
            assert set(written) == {weight, bias} - {None}


def test_weights_without_a_name_are_an_error_if_there_are_no_others(tmp_path, run):
    path = tmp_path / "m.pt"
    path.write_bytes(checkpoint(module("my.Model", {"_hidden": tensor(0, 3)}), BIAS.tobytes()))
    for command in ("ls", "info", "check"):
        assert run(command, path).code == 4, command
    ran = run("convert", path, "-o", tmp_path / "m.safetensors")
    assert (ran.code, "1 storage belongs to no tensor that is shown" in ran.err) == (4, True)
    assert not (tmp_path / "m.safetensors").exists()


def test_beside_others_they_are_noted(tmp_path):
    """A module's own attributes, such as masks that are not saved in a state_dict, are no part of the model."""
    shown = {"_hidden": tensor(0, 3), "shown": tensor(1, 3)}
    content = checkpoint(module("my.Model", shown), BIAS.tobytes(), BIAS.tobytes())
    with pparse.view(content) as model:
        assert list(model) == ["shown"]
        assert model.extent().is_sound
        assert [finding.severity for finding in model.findings] == [Severity.NOTE]
        report = pparse.convert(model, tmp_path / "m.npz")
    assert any("1 storage belongs to no tensor that is shown" in note for note in report.notes)
