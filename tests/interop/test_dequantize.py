"""Quantised, sparse and nested tensors against torch: what codes stand for, bit by bit, and what sizes are."""

from __future__ import annotations

import io
import itertools
import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.tensors import dequantized
from tests.interop.test_gguf_library import library

torch = library("torch")
safetensors = library("safetensors.torch")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantisation, sparse and nested tensors are "deprecated", "beta", "prototype"
        yield


def quantized():
    """Yield quantised tensors of every kind, with scales that no type holds exactly, and overflowing differences."""
    some = torch.Generator().manual_seed(0)
    x = torch.randn(70, 33, generator=some) * 50
    for dtype in (torch.quint8, torch.qint8, torch.qint32):
        for scale, zero in ((0.1, 10), (1 / 3, 0), (1e-3, 7)):
            yield f"{dtype}-{zero}".replace(".", "-"), torch.quantize_per_tensor(x, scale, zero, dtype)
    yield "wrapped", torch.quantize_per_tensor(x * 1e8, 1.0, 1_000_001, torch.qint32)
    for axis, count in enumerate(x.shape):
        for dtype, low in ((torch.qint8, -5), (torch.quint8, 0), (torch.qint32, -5)):
            scales = torch.rand(count, dtype=torch.float64, generator=some) + 0.01
            zeros = torch.randint(low, 5, (count,), generator=some)
            yield f"{dtype}-along{axis}".replace(".", "-"), torch.quantize_per_channel(x, scales, zeros, axis, dtype)
    for dtype in (torch.quint8, torch.quint4x2):
        scales, zeros = torch.rand(70, generator=some) + 0.01, torch.rand(70, generator=some) * 5
        yield f"{dtype}-floats".replace(".", "-"), torch.quantize_per_channel(x, scales, zeros, 0, dtype)
    yield "view", torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).t()[3:]


@pytest.mark.parametrize("save", ["zip", "legacy", "pickle"])
def test_codes_stand_for_what_torch_makes_of_them(save, tmp_path):
    tensors = dict(quantized())
    if save == "pickle":
        # A storage in a pickle is a checkpoint of its own; torch itself cannot pickle packed ones so.
        tensors = {name: tensor for name, tensor in tensors.items() if tensor.dtype is not torch.quint4x2}
        content = pickle.dumps(tensors)
    else:
        file = io.BytesIO()
        torch.save(tensors, file, _use_new_zipfile_serialization=save == "zip")
        content = file.getvalue()
    with pparse.view(content) as model:
        for name, tensor in tensors.items():
            wanted = np.ascontiguousarray(tensor.dequantize().numpy())
            found = dequantized(model, name)
            assert found.numpy().tobytes() == wanted.tobytes(), name
            assert np.concatenate(list(found.blocks("1KiB"))).tobytes() == wanted.tobytes(), name
        pparse.convert(model, tmp_path / "m.safetensors", dequantize=True)
    written = safetensors.load_file(tmp_path / "m.safetensors")
    assert set(written) == set(tensors)
    assert all(torch.equal(written[name], tensor.dequantize()) for name, tensor in tensors.items())


def test_float8_is_multiplied_as_torch_does(tmp_path):
    """Blocks of 128 × 128, of which the last rows and columns are cut, as DeepSeek's weights have them."""
    codes = (torch.randn(300, 200, generator=torch.Generator().manual_seed(1)) * 100).to(torch.float8_e4m3fn)
    scale = torch.rand(3, 2) / 7
    safetensors.save_file({"w": codes, "w_scale_inv": scale}, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text('{"quantization_config": {"weight_block_size": [128, 128]}}')
    each = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:300, :200]
    for dtype in ("float32", "bfloat16"):
        pparse.convert(tmp_path / "m.safetensors", tmp_path / f"{dtype}.safetensors", dequantize=True, dtype=dtype)
        found = safetensors.load_file(tmp_path / f"{dtype}.safetensors")
        assert list(found) == ["w"]
        assert torch.equal(found["w"], (codes.float() * each).to(getattr(torch, dtype)))


@pytest.mark.parametrize("save", [torch.save, pickle.dump])
def test_sparse_and_nested_tensors_can_be_made_again(save):
    i, v = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    dense = torch.arange(16.0).reshape(4, 4) * (torch.arange(16).reshape(4, 4) % 3 == 0)
    tensors = {
        "coo": torch.sparse_coo_tensor(i, v, (5, 7)),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
    }
    nested = torch.nested.nested_tensor([torch.arange(6.0).reshape(2, 3), torch.arange(3.0).reshape(1, 3)])
    file = io.BytesIO()
    save({**tensors, "nested": nested}, file)
    with pparse.view(file.getvalue()) as model:
        found = model.state_dict()
        coo = torch.sparse_coo_tensor(found["coo.indices"], found["coo.values"], tuple(found["coo.size"].tolist()))
        assert torch.equal(coo.to_dense(), tensors["coo"].to_dense())
        for name, (first, second) in {"r": ("crow", "col"), "c": ("ccol", "row")}.items():
            for kind in (f"cs{name}", f"bs{name}"):
                parts = (found[f"{kind}.{part}"] for part in (f"{first}_indices", f"{second}_indices", "values"))
                size = tuple(found[f"{kind}.size"].tolist())
                made = torch.sparse_compressed_tensor(*parts, size, layout=tensors[kind].layout)
                assert torch.equal(made.to_dense(), tensors[kind].to_dense()), kind
        parts = (found[f"nested.{part}"] for part in ("values", "sizes", "strides", "offsets"))
        made = torch._nested_view_from_buffer(*parts)
        assert all(torch.equal(one, other) for one, other in zip(made.unbind(), nested.unbind(), strict=True))


def modules():
    """Yield quantised modules that pack their weights."""
    ao = torch.ao.nn.quantized
    for kind in (ao.Linear, ao.dynamic.Linear, torch.ao.nn.intrinsic.quantized.LinearReLU):
        yield kind(4, 3)
    kinds = (ao.Conv1d, ao.Conv2d, ao.Conv3d, ao.ConvTranspose2d, ao.dynamic.Conv2d)
    for kind in (*kinds, torch.ao.nn.intrinsic.quantized.ConvReLU2d):
        yield kind(2, 3, 3)
    yield ao.Embedding(10, 4)
    yield ao.EmbeddingBag(10, 4)
    yield ao.Embedding(10, 4, dtype=torch.quint4x2)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.LSTMCell):
        whole = torch.nn.Sequential(kind(4, 3))
        yield torch.ao.quantization.quantize_dynamic(whole, {kind}, dtype=torch.qint8)
    whole = torch.nn.Sequential(torch.nn.Linear(4, 3))
    yield torch.ao.quantization.quantize_dynamic(whole, {torch.nn.Linear}, dtype=torch.float16)


@pytest.mark.parametrize("number", range(16))
def test_modules_saved_whole_and_as_script_have_the_names_of_their_state_dict(number):
    module = next(itertools.islice(modules(), number, None))
    state, whole, script = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(module.state_dict(), state)
    torch.save(module, whole)
    torch.jit.save(torch.jit.script(module), script)
    with pparse.view(state.getvalue()) as named:
        wanted = {name: tensor.numpy().tobytes() for name, tensor in named.items()}
    for content in (whole.getvalue(), script.getvalue()):
        with pparse.view(content) as model:
            found = {name: tensor.numpy().tobytes() for name, tensor in model.items()}
            values = {name for name in wanted if name in model.metadata}  # numbers of the module, there a tensor
            missing = {name for name in wanted if name not in found} - values
            assert not missing, missing
            assert all(found[name] == content for name, content in wanted.items() if name in found)
            assert not [finding for finding in model.findings if finding.code == "unnamed-storage"]
            plain = {name: part for name, part in module.state_dict().items() if isinstance(part, torch.Tensor)}
            for name, part in plain.items():
                if part.is_quantized:
                    assert dequantized(model, name).numpy().tobytes() == part.dequantize().numpy().tobytes()


def test_elements_of_four_bits_are_those_of_ml_dtypes():
    """MXFP4 and NVFP4 are read by its types: the values of both, as the formats are specified."""
    values = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert values.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
