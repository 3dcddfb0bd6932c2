"""GGUF against the package gguf: every type, bit by bit, and files that it writes now."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import UnsupportedError
from pparse.kernels.ggml_blocks import DECODERS, HALVES, swapped
from pparse.parsers.gguf.parser import TYPES, decoder
from tests.gguf_files import Q8_0, Writer
from tests.rows import rows


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


gguf = library("gguf")
constants = library("gguf.constants")
KINDS = constants.GGMLQuantizationType
SIZES = constants.GGML_QUANT_SIZES
# Of ggml, and not of every release of the package.
NEWER = {42: ("Q2_0", (64, 18))}


def any_blocks(kind, count, seed):
    """Return random blocks: all bits may be anything, also those of scales that are infinite or no number."""
    return np.random.default_rng(seed).integers(0, 256, (count, SIZES[kind][1]), dtype=np.uint8)


def test_the_types_are_those_of_the_library():
    ours = {number: (known.name, (known.block_size, known.block_bytes)) for number, known in TYPES.items()}
    assert ours == NEWER | {int(kind): (kind.name, SIZES[kind]) for kind in KINDS}


@rows("name", list(DECODERS))
def test_any_blocks_decode_to_the_same_bits(name):
    kind = KINDS[name]
    blocks = any_blocks(kind, 4096, 1)
    out = np.empty((len(blocks), SIZES[kind][0]), np.float32)
    with np.errstate(all="ignore"):
        DECODERS[name](blocks, out)
        assert out.tobytes() == gguf.dequantize(blocks, kind).tobytes()


def test_all_that_the_library_decodes_is_decoded():
    for kind in KINDS:
        if SIZES[kind][0] > 1 and kind.name not in DECODERS:
            assert decoder(kind.name, "little") is None
            with pytest.raises(NotImplementedError):
                gguf.dequantize(any_blocks(kind, 1, 1), kind)


@rows("name", list(HALVES))
def test_blocks_of_big_endian_files_are_swapped_as_the_library_does(name):
    endian = library("gguf.scripts.gguf_convert_endian")
    kind = KINDS[name]
    blocks = any_blocks(kind, 40, 2)

    class One:
        data = blocks.copy().reshape(-1)

    for number in range(len(blocks)):
        endian.byteswap_tensors[kind](One, number * SIZES[kind][1])
    assert swapped(name, blocks).tobytes() == One.data.tobytes()
    assert [known.name for known in TYPES.values() if decoder(known.name, "big")] == list(HALVES)


@rows("big", [False, True])
def test_a_file_that_the_library_writes_now(big, tmp_path):
    path = tmp_path / "model.gguf"
    endian = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_array("words", ["one", "two"])
    writer.add_uint32("n", 7)
    numbers = np.random.default_rng(4).standard_normal((3, 64)).astype("f4")
    writer.add_tensor("plain", numbers)
    if not big:
        writer.add_tensor("q", gguf.quantize(numbers, KINDS.Q8_0), raw_dtype=KINDS.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pparse.view(path) as model:
        assert model.metadata == {"general.architecture": "llama", "words": ["one", "two"], "n": 7}
        assert model["plain"].numpy().tobytes() == numbers.tobytes()
        assert big or model["q"].numpy().tobytes() == gguf.dequantize(model["q"].numpy(raw=True), KINDS.Q8_0).tobytes()
        assert model.extent().status.value == "complete"
        assert not list(model.check())


def test_what_the_library_cannot_decode_is_raw_only():
    with pparse.view("tests/data/gguf/types.gguf") as model:
        for tensor in gguf.GGUFReader("tests/data/gguf/types.gguf").tensors:
            found = model[tensor.name]
            if tensor.tensor_type.name in ("Q8_1", "Q8_K", "Q1_0"):
                assert found.numpy(raw=True).tobytes() == tensor.data.tobytes()
                with pytest.raises(UnsupportedError):
                    found.numpy()


# -- GGUF files that we write ------------------------------------------------------------------------------------------


def numbers() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    return {
        "wide": rng.standard_normal((300, 64)).astype("f4") * 3,
        "deep": rng.standard_normal((2, 3, 96)).astype("f2"),
        "row": rng.standard_normal(64).astype("f4"),
        "odd": rng.standard_normal((4, 33)).astype("f2"),
        "zeros": np.zeros((3, 32), "f4"),
        "whole": np.arange(6, dtype="i4").reshape(2, 3),
        "one": np.array(2.5, "f4"),
    }


@rows("dtype", [None, "F32", "F16", "BF16", "Q8_0"])
def test_what_is_converted_is_read_by_the_library(dtype, tmp_path):
    save = library("safetensors.numpy").save_file
    source, target = tmp_path / "source.safetensors", tmp_path / "out.gguf"
    save(numbers(), source, metadata={"note": "x"})
    report = pparse.convert(source, target, dtype=dtype, force=True)
    assert any("not quantised" in note for note in report.notes) == (dtype == "Q8_0")
    reader = gguf.GGUFReader(target)
    assert [reader.fields[name].contents() for name in ("general.name", "note")] == ["out", "x"]
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert set(found) == set(numbers())
    for name, array in numbers().items():
        tensor, kind = found[name], array.dtype
        wanted = {"f4": "F32", "f2": "F16", "i4": "I32"}[kind.str[1:]]
        if kind.kind == "f" and dtype == "Q8_0":
            wanted = dtype if name in ("wide", "deep", "zeros") else wanted
        elif kind.kind == "f" and dtype is not None:
            wanted = dtype
        assert tensor.tensor_type.name == wanted, name
        array = array.astype("f4") if array.dtype.kind == "f" else array
        blocks = array if wanted == "I32" else gguf.quantize(array.reshape(array.shape or 1), KINDS[wanted])
        assert np.array(tensor.data).tobytes() == blocks.tobytes(), name
    with pparse.view(target) as model:
        assert not list(model.check(strict=True))


def test_blocks_and_key_values_of_a_source_are_copied(tmp_path):
    target = tmp_path / "out.gguf"
    pparse.convert("tests/data/gguf/types.gguf", target, skip_unsupported=True, exclude=["blk.F*"])
    ours, theirs = gguf.GGUFReader(target), gguf.GGUFReader("tests/data/gguf/types.gguf")
    originals = {tensor.name: tensor for tensor in theirs.tensors}
    assert len(ours.tensors) > 25
    for tensor in ours.tensors:
        original = originals[tensor.name]
        assert (tensor.tensor_type, tensor.data.tobytes()) == (original.tensor_type, original.data.tobytes())
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert ours.fields[name].contents() == field.contents()
            assert ours.fields[name].types == field.types


@rows("how", [{"version": 1}, {"version": 2}, {"version": 3}, {"order": ">"}, {"version": 1, "order": ">"}])
def test_key_values_of_any_version_and_byte_order_keep_their_types(how, tmp_path):
    pairs = [
        ("general.alignment", ("uint32", 64)),
        ("general.file_type", ("uint32", 7)),
        ("name", "naïve"),
        ("n", ("int16", -7)),
        ("x", ("float64", 2.5)),
        ("yes", ("bool", True)),
        ("words", ["a", "", "bc"]),
        ("many", ("float32", [0.5, -1.0])),
        ("none", ("uint64", [])),
        ("split.no", ("uint16", 0)),
        ("GGUF.version", "4"),
        ("deep", [["a", "b"], []]),
        ("last", ("uint64", 1 << 40)),
    ]
    writer = Writer(**how)
    content = writer.file(pairs, [("w", (2, 32), Q8_0, 0)], bytes(68), 64)
    report = pparse.convert(content, tmp_path / "out.gguf", force=True)
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    kept = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    left = {"general.alignment", "split.no", "GGUF.version"}
    if how.get("order") == ">":  # the blocks become float32
        left.add("general.file_type")
    assert list(kept) == [name for name, _ in pairs if name not in left]
    assert [kept[name].contents() for name in ("name", "n", "x", "yes", "words")] == [
        "naïve",
        -7,
        2.5,
        True,
        ["a", "", "bc"],
    ]
    kinds = [str(kept[name].types[0].name) for name in ("n", "x", "yes", "last")]
    assert kinds == ["INT16", "FLOAT64", "BOOL", "UINT64"]
    assert [kind.name for kind in kept["many"].types] == ["ARRAY", "FLOAT32"]
    with pparse.view(content) as one, pparse.view(tmp_path / "out.gguf") as other:
        assert {name: one.metadata[name] for name in kept} == other.metadata
    assert report.notes == ["key-values whose keys a GGUF file cannot have were left out: GGUF.version"]


def test_texts_that_only_numbers_can_be_are_not_written(tmp_path):
    save = library("safetensors.numpy").save_file
    source, target = tmp_path / "source.safetensors", tmp_path / "out.gguf"
    wrong = ("general.alignment", "general.file_type", "split.no", "split.count", "GGUF.version", "k" * 70_000)
    save({"a": np.ones((2, 32), "f4")}, source, metadata=dict.fromkeys(wrong, "32") | {"fine": "x"})
    report = pparse.convert(source, target)
    reader = gguf.GGUFReader(target)
    assert [name for name in reader.fields if not name.startswith("GGUF.")] == ["general.name", "fine"]
    assert reader.alignment == 32
    assert len(report.notes) == 1
    assert "cannot have were left out" in report.notes[0]
    assert "GGUF.version" in report.notes[0]


def test_a_split_model_becomes_one_file(tmp_path):
    pparse.convert("tests/data/gguf/split/model-00002-of-00003.gguf", tmp_path / "out.gguf")
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    assert len(reader.tensors) == 20
    assert reader.fields["general.name"].contents() == "layers"
    assert not [name for name in reader.fields if name.startswith("split.")]


# -- GGUF files that we edit -------------------------------------------------------------------------------------------


def all_of(path):
    """Return values, and kind, shape and bytes of tensors, by the library; offsets are those that ggml wants."""
    reader = gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    values.pop("pparse.padding", None)
    end = reader.data_offset
    for tensor in reader.tensors:
        assert tensor.data_offset == end, tensor.name
        end += tensor.n_bytes + -tensor.n_bytes % reader.alignment
    tensors = {
        tensor.name: (tensor.tensor_type, tensor.shape.tolist(), np.array(tensor.data).tobytes())
        for tensor in reader.tensors
    }
    return values, tensors


@rows("big", [False, True])
@rows("way", [None, "copy"])
def test_what_is_edited_is_read_by_the_library(big, way, tmp_path_factory):
    path = tmp_path_factory.mktemp("edit") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE)
    writer.add_array("words", ["one", "two"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_uint32("n", 7)
    for name, array in numbers().items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values, tensors = all_of(path)
    wishes = {"n": 8, "scores": [1.5], "text": "é" * 5000, "flag": True, "small:int8": -1, "real": 0.25, "list": [1, 2]}
    pparse.edit(path, set_metadata=wishes, rename_metadata={"words": "tokens"}, way=way)
    values = {key: value for key, value in values.items() if key != "words"} | {"tokens": ["one", "two"]}
    values |= wishes | {"small": -1}
    del values["small:int8"]
    assert all_of(path) == (values, tensors)
    kinds = {
        name: gguf.GGUFReader(path).fields[name].types[0].name for name in ("n", "small", "real", "list", "scores")
    }
    assert kinds == {"n": "UINT32", "small": "INT8", "real": "FLOAT32", "list": "ARRAY", "scores": "ARRAY"}
    pparse.edit(path, delete_metadata=["text", "flag"], rename=["w=blk.0.w"], drop=["deep", "zeros"])
    values = {key: value for key, value in values.items() if key not in ("text", "flag")}
    tensors = {f"blk.0.{name}" if name[0] == "w" else name: kept for name, kept in tensors.items()}
    del tensors["deep"], tensors["zeros"]
    assert all_of(path) == (values, tensors)


def test_every_type_is_kept_in_an_edit(tmp_path):
    path = tmp_path / "types.gguf"
    path.write_bytes(Path("tests/data/gguf/types.gguf").read_bytes())
    values, tensors = all_of(path)
    first = next(iter(tensors))
    pparse.edit(path, set_metadata={"k": "v" * 9000}, drop=[first])
    del tensors[first]
    assert all_of(path) == (values | {"k": "v" * 9000}, tensors)
