"""Conversion, against the real safetensors library: what it reads of our files, and the bytes that it writes itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import ml_dtypes
import numpy as np

import pparse
from pparse.parsers.safetensors.header import STORED_DTYPES
from tests.conftest import model as model
from tests.interop.test_safetensors_library import library
from tests.rows import rows
from tests.test_convert import NAMES, every_type, header_of

safetensors = library("safetensors")
safetensors_numpy = library("safetensors.numpy")
torch = library("torch")
safetensors_torch = library("safetensors.torch")

# Types that the library's numpy side writes.
TYPES = ("bool", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "f8", "i8", "u8")
SHAPES = ((), (1,), (7,), (3, 5), (0,), (2, 0, 3), (2, 3, 4, 1))


def random_arrays(seed: int) -> dict[str, np.ndarray]:
    chance = random.Random(seed)
    generator = np.random.default_rng(seed)
    found = {}
    for number in range(chance.randrange(1, 30)):
        dtype, shape = np.dtype(chance.choice(TYPES)), chance.choice(SHAPES)
        content = generator.bytes(int(np.prod(shape)) * dtype.itemsize)
        if dtype.kind == "b":
            content = bytes(byte & 1 for byte in content)
        name = "".join(chance.choice('abAB._-019 "\\ä名🙂\n\x1f\x7f/') for _ in range(chance.randrange(12)))
        found[f"{name}{number}"] = np.frombuffer(content, dtype).reshape(shape)
    return found


@rows("seed", range(200))
def test_files_are_the_same_byte_for_byte(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("same")
    arrays = random_arrays(seed)
    metadata = [None, {"format": "np"}, {"": 'ü"\n'}][seed % 3]
    path = folder / "library.safetensors"
    safetensors_numpy.save_file(arrays, str(path), metadata=metadata)
    # The tensors in another order, as another writer may leave them.
    header, order = header_of(path), list(arrays)
    random.Random(seed).shuffle(order)
    base = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    content, data, entries = path.read_bytes(), b"", {}
    for name in order:
        begin, end = header[name]["data_offsets"]
        entries[name] = {**header[name], "data_offsets": [len(data), len(data) + end - begin]}
        data += content[base + begin : base + end]
    if metadata is not None:
        entries["__metadata__"] = metadata
    text = json.dumps(entries).encode()
    (folder / "other.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    pparse.convert(folder / "other.safetensors", folder / "ours.safetensors")
    assert (folder / "ours.safetensors").read_bytes() == content


def test_the_library_reads_every_type_and_name(tmp_path, model):
    tensors = every_type() | {name: ("U8", (1,), bytes((number,))) for number, name in enumerate(NAMES)}
    pparse.convert(model(tensors), tmp_path / "ours.safetensors")
    with safetensors.safe_open(str(tmp_path / "ours.safetensors"), "np") as opened:
        assert set(opened.keys()) == set(tensors)
        for name, (word, shape, content) in tensors.items():
            part = opened.get_slice(name)
            assert (part.get_dtype(), part.get_shape()) == (word, list(shape)), name
            if STORED_DTYPES[word].numpy.isbuiltin == 1:
                assert opened.get_tensor(name).tobytes() == content, name
    blobs = dict(safetensors.deserialize((tmp_path / "ours.safetensors").read_bytes()))
    assert {name: bytes(blob["data"]) for name, blob in blobs.items()} == {
        name: content for name, (_, _, content) in tensors.items()
    }


def test_torch_reads_casts_as_it_makes_them(tmp_path):
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator, dtype=torch.int64).to(torch.int32)
    single = bits.view(torch.float32)
    tensors = {"single": single, "half": single.to(torch.float16), "whole": bits.clone()}
    safetensors_torch.save_file(tensors, str(tmp_path / "a.safetensors"), metadata={"format": "pt"})
    for name in ("bfloat16", "float16", "float32", "float64"):
        target = tmp_path / f"{name}.safetensors"
        pparse.convert(tmp_path / "a.safetensors", target, dtype=name)
        found = safetensors_torch.load_file(str(target))
        assert found["single"].dtype == found["half"].dtype == getattr(torch, name)
        assert torch.equal(found["whole"], bits)
        for key in ("single", "half"):
            expected = tensors[key].to(getattr(torch, name))
            assert torch.equal(torch.isnan(found[key]), torch.isnan(expected))
            assert torch.equal(found[key][~torch.isnan(expected)], expected[~torch.isnan(expected)]), (name, key)
        assert header_of(target)["__metadata__"] == {"format": "pt"}


def test_bfloat16_of_torch_comes_back_through_both_targets(tmp_path):
    weight = torch.randn(1000, 30, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    safetensors_torch.save_file({"w": weight}, str(tmp_path / "a.safetensors"))
    pparse.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert torch.equal(safetensors_torch.load_file(str(tmp_path / "b.safetensors"))["w"], weight)
    pparse.convert(tmp_path / "a.safetensors", tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as arrays:
        assert np.array_equal(arrays["w"].view(ml_dtypes.bfloat16).astype("f4"), weight.float().numpy())


def test_what_save_model_dedupes_is_deduped_the_same_way(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

    safetensors_torch.save_model(Tied(), str(tmp_path / "tied.safetensors"))
    metadata = header_of(tmp_path / "tied.safetensors")["__metadata__"]
    assert metadata["head.weight"] == "embed.weight"  # the first name is kept, as --dedupe keeps it
    pparse.convert(tmp_path / "tied.safetensors", tmp_path / "copy.safetensors")
    model = Tied()
    missing, unexpected = safetensors_torch.load_model(model, str(tmp_path / "copy.safetensors"))
    assert (list(missing), list(unexpected)) == ([], [])
    assert header_of(tmp_path / "copy.safetensors")["__metadata__"] == metadata


def test_a_set_is_opened_shard_by_shard(tmp_path):
    arrays = {f"t{number}": np.full((number + 1, 3), number, np.float32) for number in range(40)}
    safetensors_numpy.save_file(arrays, str(tmp_path / "a.safetensors"), metadata={"format": "np"})
    report = pparse.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", max_shard_size=1000)
    index = json.loads((tmp_path / "b.safetensors.index.json").read_text())
    assert len(report.files) > 5
    found = {}
    for name in sorted(set(index["weight_map"].values())):
        part = safetensors_numpy.load_file(str(tmp_path / name))
        assert all(index["weight_map"][tensor] == name for tensor in part)
        assert Path(tmp_path / name).stat().st_size
        found |= part
    assert set(found) == set(arrays)
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())


def test_constants_of_a_saved_model(tmp_path):
    source = Path(__file__).resolve().parent.parent.parent / "docs" / "samples" / "chunked-model"
    pparse.convert(source, tmp_path / "a.safetensors")
    found = safetensors_numpy.load_file(str(tmp_path / "a.safetensors"))
    with pparse.view(source) as viewer:
        assert set(found) == set(viewer)
        assert all(np.array_equal(found[name], tensor.numpy()) for name, tensor in viewer.items())
