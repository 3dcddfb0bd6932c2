"""Conversion: the tensors of any viewer, bit for bit, into safetensors files, sets of them, and .npz."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse import Registry, Status, Tensor, Viewer
from pparse.conversion import Options, convert_view
from pparse.data.base import IoStats
from pparse.errors import LimitError, NotWholeError, OptionError, SourceError, UnsupportedError
from pparse.measuring.hashing import content_hash
from pparse.measuring.statistics import statistics_of
from pparse.parsers.safetensors.header import STORED_DTYPES
from pparse.tensors import DTYPES, Span
from tests import zstd
from tests.conftest import safetensors
from tests.rows import rows
from tests.small_files import SmallParser, SmallViewer, small_file

SAMPLE = "docs/samples/tiny-gpt.safetensors"


def header_of(path) -> dict:
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length])


def bytes_of(path) -> dict[str, tuple[str, list, bytes]]:
    """Return type word, shape and bytes of each tensor of a safetensors file, read without the package."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    data = content[8 + length :]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    ends = sorted(tuple(row["data_offsets"]) for row in header.values())
    assert [end for _, end in ends[:-1]] == [begin for begin, _ in ends[1:]], "a reader refuses holes and overlaps"
    assert not ends or (ends[0][0], ends[-1][1]) == (0, len(data))
    return {name: (row["dtype"], row["shape"], data[slice(*row["data_offsets"])]) for name, row in header.items()}


def every_type() -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """A tensor of each of the 22 types, with bytes that tell them apart, and of awkward shapes."""
    tensors: dict = {}
    for number, (word, dtype) in enumerate(STORED_DTYPES.items()):
        for shape in ((), (0,), (8, 3), (2, 0, 4)) if dtype.bits >= 8 else ((0,), (8, 3), (4,)):
            size = dtype.stored_nbytes(int(np.prod(shape)))
            content = bytes((number * 7 + at) % (2 if word == "BOOL" else 251) for at in range(size))
            tensors[f"{word}.{'x'.join(map(str, shape)) or 'scalar'}"] = (word, shape, content)
    return tensors


# -- the same bits -----------------------------------------------------------------------------------------------------


def test_a_file_that_the_library_wrote_comes_out_byte_for_byte(tmp_path, samples):
    report = pparse.convert(SAMPLE, tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == Path(SAMPLE).read_bytes()
    assert (report.tensors, report.bytes, report.is_whole, report.notes) == (21, os.path.getsize(SAMPLE), True, [])
    assert os.listdir(tmp_path) == ["out.safetensors"]


def test_every_type_keeps_its_bits(tmp_path, model):
    tensors = every_type()
    source = model(tensors)
    pparse.convert(source, tmp_path / "out.safetensors")
    found = bytes_of(tmp_path / "out.safetensors")
    assert found == {name: (word, list(shape), content) for name, (word, shape, content) in tensors.items()}
    order = list(STORED_DTYPES)[::-1]
    assert list(found) == sorted(tensors, key=lambda name: (order.index(tensors[name][0]), name))
    length = int.from_bytes((tmp_path / "out.safetensors").read_bytes()[:8], "little")
    assert length % 8 == 0
    with pparse.view(tmp_path / "out.safetensors") as written:
        assert not [finding for finding in written.check(strict=True) if str(finding.severity) != "note"]


def test_every_type_is_read_back_from_an_npz_bit_for_bit(tmp_path, model):
    tensors = every_type()
    report = pparse.convert(model(tensors), tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays, pparse.view(tmp_path / "model.safetensors") as source:
        assert set(arrays) == set(tensors)
        for name in tensors:
            expected = source[name].numpy()
            assert arrays[name].shape == expected.shape
            known = expected.dtype.isbuiltin == 1
            assert arrays[name].dtype == (expected.dtype if known else np.dtype(f"u{expected.itemsize}"))
            assert arrays[name].tobytes() == expected.tobytes(), name
        halves = arrays["BF16.8x3"].view(ml_dtypes.bfloat16)
        assert np.array_equal(halves, source["BF16.8x3"].numpy(), equal_nan=True)
    noted = [note for note in report.notes if "bfloat16" in note]
    assert len(noted) == 1
    assert ".view(ml_dtypes.bfloat16)" in noted[0]
    assert zipfile.ZipFile(tmp_path / "out.npz").testzip() is None


NAMES = (
    "",
    " ",
    "ä/ö",
    "名前",
    "🙂",
    "../../etc/passwd",
    "a\nb",
    'a"quote\\',
    "\x7f\x01",
    "x.npy",
    "a" * 5000,
    "é",
    "é",
)


def test_names_of_all_kinds(tmp_path, model):
    tensors = {name: ("U8", (1,), bytes((number,))) for number, name in enumerate(NAMES)}
    source = model(tensors)
    pparse.convert(source, tmp_path / "out.safetensors")
    assert {name: content for name, (_, _, content) in bytes_of(tmp_path / "out.safetensors").items()} == {
        name: content for name, (_, _, content) in tensors.items()
    }
    pparse.convert(source, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        assert {name: arrays[name].tobytes() for name in arrays} == {name: row[2] for name, row in tensors.items()}


def test_a_name_that_no_target_can_hold_is_refused(tmp_path, model):
    source = model({"a\0b": ("U8", (1,), b"1"), "ok": ("U8", (1,), b"2")})
    with pytest.raises(UnsupportedError, match="NUL"):
        pparse.convert(source, tmp_path / "out.npz")
    report = pparse.convert(source, tmp_path / "out.npz", skip_unsupported=True)
    assert [(entry.name, entry.status) for entry in report.left_out] == [("a\0b", Status.UNSUPPORTED)]
    assert report.is_whole
    pparse.convert(source, tmp_path / "out.safetensors")
    assert set(bytes_of(tmp_path / "out.safetensors")) == {"a\0b", "ok"}
    with pytest.raises(UnsupportedError, match="__metadata__"):
        pparse.convert(source, tmp_path / "no.safetensors", rename=["ok=__metadata__"])


def test_a_source_without_tensors_gives_a_file_without_tensors(tmp_path, model):
    pparse.convert(model({}, metadata={"a": "b"}), tmp_path / "out.safetensors")
    assert header_of(tmp_path / "out.safetensors") == {"__metadata__": {"a": "b"}}
    pparse.convert(model({}), tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        assert list(arrays) == []


# -- viewers of all kinds ----------------------------------------------------------------------------------------------


class GivenViewer(SmallViewer):
    """Shows tensors that a test gives, over the bytes of the file."""

    given: list = []

    def tensors(self):
        yield from (Tensor(owner=self, **facts) for facts in self.given)

    @property
    def metadata(self):
        return {"format": "pt", "layers": 2, "nested": {"a": [1, None, "ü"]}, "flag": True}


@pytest.fixture
def given(tmp_path):
    """Return a viewer of tensors made of ``(name, dtype, shape, offset, length, more)`` over some bytes."""
    opened: list[Viewer] = []

    def make(data: bytes, *tensors) -> Viewer:
        path = tmp_path / "given.bin"
        path.write_bytes(data)
        extraction = pparse.open(small_file(), parsers=[SmallParser])
        source = pparse.open(path, format="json").data
        viewer = GivenViewer(extraction)
        viewer.given = [
            {
                "name": name,
                "dtype": DTYPES[dtype],
                "shape": shape,
                "spans": (Span(source, offset, length, str(path)),),
                **more,
            }
            for name, dtype, shape, offset, length, more in tensors
        ]
        opened.append(viewer)
        return viewer

    yield make
    for viewer in opened:
        viewer.close()


def test_strides_and_byte_order_are_put_right(tmp_path, given):
    values = np.arange(6 * 5 * 4, dtype=np.int32)
    data = values.tobytes() + values.astype(">i4").tobytes()
    array = values.reshape(6, 5, 4)
    viewer = given(
        data,
        ("turned", "int32", (4, 6, 5), 0, 480, {"strides": (4, 80, 16)}),
        ("each.second", "int32", (3, 5, 4), 0, 480, {"strides": (160, 16, 4)}),
        ("spread", "int32", (7, 5), 0, 480, {"strides": (0, 16)}),
        ("big", "int32", (6, 5, 4), 480, 480, {"byteorder": "big"}),
        ("as.it.is", "int32", (6, 5, 4), 0, 480, {}),
    )
    expected = {
        "turned": array.transpose(2, 0, 1),
        "each.second": array[::2],
        "spread": np.broadcast_to(array[0, :, 0], (7, 5)),
        "big": array,
        "as.it.is": array,
    }
    pparse.convert(viewer, tmp_path / "out.safetensors")
    found = bytes_of(tmp_path / "out.safetensors")
    for name, wanted in expected.items():
        assert found[name] == ("I32", list(wanted.shape), np.ascontiguousarray(wanted).tobytes()), name


def test_metadata_that_are_not_text_are_written_as_json(tmp_path, given):
    viewer = given(bytes(4), ("a", "uint8", (4,), 0, 4, {}))
    pparse.convert(viewer, tmp_path / "out.safetensors")
    assert header_of(tmp_path / "out.safetensors")["__metadata__"] == {
        "format": "pt",
        "layers": "2",
        "nested": '{"a":[1,null,"ü"]}',
        "flag": "true",
    }


def test_tensors_over_the_same_bytes_get_copies_or_are_noted(tmp_path, given):
    data = bytes(range(32))
    same = ("float32", (4,), 8, 16, {})
    viewer = given(
        data,
        ("z.weight", *same),
        ("b.weight", *same),
        ("a.weight", "float32", (2, 2), 8, 16, {}),  # the same bytes in another shape
        ("c.weight", "int32", (4,), 8, 16, {}),  # … of another type
        ("d.weight", "float32", (3,), 12, 12, {}),  # a part of them
        ("e.weight", "float32", (2,), 8, 16, {}),  # … that the place does not tell
        ("empty.1", "float32", (0,), 8, 0, {}),
        ("empty.2", "float32", (0,), 8, 0, {}),
    )
    report = pparse.convert(viewer, tmp_path / "out.safetensors")
    found = bytes_of(tmp_path / "out.safetensors")
    assert found["z.weight"] == found["b.weight"] == ("F32", [4], data[8:24])
    assert found["d.weight"] == ("F32", [3], data[12:24])
    assert found["e.weight"] == ("F32", [2], data[8:16])
    assert (report.shared_copies, report.shared_bytes, report.aliases) == (1, 16, {})
    assert any("1 tensor with the same bytes" in note and "dedupe=True" in note for note in report.notes)
    report = pparse.convert(viewer, tmp_path / "one.safetensors", dedupe=True)
    assert report.aliases == {"z.weight": "b.weight"}
    assert set(bytes_of(tmp_path / "one.safetensors")) == set(found) - {"z.weight"}
    metadata = header_of(tmp_path / "one.safetensors")["__metadata__"]
    assert (metadata["z.weight"], metadata["format"]) == ("b.weight", "pt")
    with pytest.raises(OptionError, match="dedupe=True"):
        pparse.convert(viewer, tmp_path / "one.npz", dedupe=True)


def test_saved_models_lose_only_what_the_target_cannot_hold(tmp_path, samples):
    pparse.convert("docs/samples/chunked-model", tmp_path / "out.safetensors")
    with pparse.view("docs/samples/chunked-model") as source, pparse.view(tmp_path / "out.safetensors") as written:
        assert sorted(source) == sorted(written)
        for name, tensor in source.items():
            assert np.array_equal(tensor.numpy(), written[name].numpy(), equal_nan=True)
        assert json.loads(written.metadata["meta_graphs"])[0]["tags"] == ["serve"]


def test_one_value_for_millions_of_elements_is_written_out_within_a_limit(tmp_path, given):
    viewer = given(bytes(4), ("a", "float32", (50_000, 50_000), 0, 4, {"strides": (0, 0)}))
    with pytest.raises(LimitError) as caught:
        pparse.convert(viewer, tmp_path / "out.safetensors")
    assert caught.value.wanted == 10**10
    assert "expansion_ratio" in caught.value.option
    assert os.listdir(tmp_path) == ["given.bin"]


def test_one_value_for_any_number_of_elements_is_not_measured_for_ever(given):
    more = {"strides": (0,)}
    viewer = given(bytes(8), ("a", "float32", (1 << 62,), 0, 4, more), ("b", "float32", (1 << 20,), 4, 4, more))
    assert [one.status for one in pparse.stats(viewer).tensors] == [Status.UNSUPPORTED, Status.COMPLETE]
    assert [one.status for one in pparse.hash(viewer).tensors] == [Status.UNSUPPORTED, Status.COMPLETE]
    for measured in (statistics_of, content_hash):
        with pytest.raises(LimitError, match="4 B stand for all of its"):
            measured(next(iter(viewer.tensors())))


# -- sets --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def set_of_many(tmp_path):
    """A set of 200 shards, with two tensors each; returns the path of the index."""
    folder = tmp_path / "set"
    folder.mkdir()
    weight_map = {}
    for shard in range(200):
        name = f"model-{shard + 1:05d}-of-00200.safetensors"
        header = {"__metadata__": {"format": "pt", "shard": str(shard)}}
        for number in range(2):
            tensor = f"layers.{shard}.{number}"
            header[tensor] = {"dtype": "F32", "shape": [2], "data_offsets": [8 * number, 8 * number + 8]}
            weight_map[tensor] = name
        (folder / name).write_bytes(safetensors(header, struct.pack("<4f", shard, -shard, 0.5, 1 / (shard + 1))))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 3200, "license": "mit"}, "weight_map": weight_map}))
    return index


def test_200_shards_become_one_file_and_the_metadata_of_both_are_kept(tmp_path, set_of_many):
    report = pparse.convert(set_of_many, tmp_path / "one.safetensors")
    found = bytes_of(tmp_path / "one.safetensors")
    assert len(found) == report.tensors == 400
    assert found["layers.7.1"] == ("F32", [2], struct.pack("<2f", 0.5, 1 / 8))
    assert header_of(tmp_path / "one.safetensors")["__metadata__"] == {"license": "mit", "format": "pt", "shard": "0"}
    assert any("differ in their metadata (shard)" in note for note in report.notes)


def test_a_set_is_divided_as_hugging_face_divides_it(tmp_path, model):
    sizes = {"a": 10, "b": 30, "big": 250, "c": 60, "d": 1, "e": 100, "zero": 0, "f": 1}
    source = model({name: ("U8", (size,), bytes((size,)) * size) for name, size in sizes.items()})
    report = pparse.convert(source, tmp_path / "m.safetensors", max_shard_size=100)
    names = [f"m-0000{number}-of-00005.safetensors" for number in range(1, 6)]
    assert [os.path.basename(file.path) for file in report.files] == [*names, "m.safetensors.index.json"]
    # huggingface_hub: a tensor above the size has its own shard, and does not end the one that is being filled.
    divided = [set(bytes_of(tmp_path / name)) for name in names]
    assert divided == [{"big"}, {"a", "b", "c"}, {"d"}, {"e", "zero"}, {"f"}]
    index = json.loads((tmp_path / "m.safetensors.index.json").read_text())
    where = {tensor: name for name, tensors in zip(names, divided, strict=True) for tensor in tensors}
    assert index == {"metadata": {"total_size": sum(sizes.values())}, "weight_map": where}
    expected = json.dumps(index, indent=2, sort_keys=True) + "\n"
    assert (tmp_path / "m.safetensors.index.json").read_text() == expected
    assert [file.bytes for file in report.files] == [os.path.getsize(file.path) for file in report.files]
    with pparse.view(tmp_path / "m.safetensors.index.json") as written:
        assert not list(written.check(strict=True))
    back = pparse.convert(tmp_path / "m.safetensors.index.json", tmp_path / "back.safetensors")
    assert back.tensors == 8
    assert bytes_of(tmp_path / "back.safetensors") == bytes_of(source)


def test_one_shard_is_no_set(tmp_path, samples):
    report = pparse.convert(SAMPLE, tmp_path / "m.safetensors", max_shard_size="1GB")
    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert len(report.files) == 1
    with pytest.raises(OptionError, match="max_shard_size"):
        pparse.convert(SAMPLE, tmp_path / "m.npz", max_shard_size="1GB")


# -- names -------------------------------------------------------------------------------------------------------------


@rows(
    ("rules", "name", "renamed"),
    [
        (["model.=m."], "model.layers.1", "m.layers.1"),
        (["model.=m."], "submodel.layers", "submodel.layers"),
        (["model.="], "model.a", "a"),
        (["=x."], "a", "x.a"),
        (["h.*.attn.w=layers.*.w"], "h.12.attn.w", "layers.12.w"),
        (["h.*.attn.w=layers.*.w"], "h.12.attn.w.more", "h.12.attn.w.more"),
        (["*.weight=*.w"], "a.weight.weight", "a.weight.w"),
        (["a=b", "b=c"], "a", "b"),
        (["aa=1", "a=2"], "ab", "2b"),
        (["a=b=c"], "a", "b=c"),
        (["a.*=*"], "a.\n", "\n"),
    ],
)
def test_rules_for_names(rules, name, renamed):
    assert Options(rename=rules).renamed(name) == renamed


@rows("rule", ["a", "a*=b", "a=b*", "*a*=*b*"])
def test_rules_that_cannot_be_meant(rule):
    with pytest.raises(OptionError):
        Options(rename=[rule])


def test_names_that_collide_are_refused_before_anything_is_written(tmp_path, model):
    source = model({"a.x": ("U8", (1,), b"1"), "b.x": ("U8", (1,), b"2"), "c": ("U8", (1,), b"3")})
    with pytest.raises(OptionError, match=r"'a\.x' and 'b\.x' would both be 'b\.x'"):
        pparse.convert(source, tmp_path / "out.safetensors", rename=["a.=b."])
    assert os.listdir(tmp_path) == ["model.safetensors"]
    pparse.convert(source, tmp_path / "out.safetensors", rename=["a.=b."], exclude=["b.*"])
    assert bytes_of(tmp_path / "out.safetensors")["b.x"][2] == b"1"


def test_include_and_exclude(tmp_path, samples):
    pparse.convert(SAMPLE, tmp_path / "out.safetensors", include=["h.0.*", "wte.weight"], exclude=["*.mask"])
    found = set(bytes_of(tmp_path / "out.safetensors"))
    assert found == {name for name in bytes_of(SAMPLE) if name.startswith("h.0.") and "mask" not in name} | {
        "wte.weight"
    }


# -- what is not whole -------------------------------------------------------------------------------------------------


def test_tensors_that_are_not_whole_are_refused_or_left_out(tmp_path, samples):
    cut = "docs/samples/tiny-gpt.cut.safetensors"
    with pytest.raises(NotWholeError, match="10 tensors are not whole") as caught:
        pparse.convert(cut, tmp_path / "out.safetensors")
    assert caught.value.lost[0][:2] == ("h.1.mlp.c_proj.weight", "truncated")
    assert len(caught.value.lost) == 10
    assert os.listdir(tmp_path) == []
    report = pparse.convert(cut, tmp_path / "out.safetensors", skip_damaged=True)
    assert not report.is_whole
    assert {entry.name for entry in report.left_out} == {name for name, _, _ in caught.value.lost}
    whole = bytes_of(SAMPLE)
    found = bytes_of(tmp_path / "out.safetensors")
    assert len(found) == 11
    assert all(whole[name] == row for name, row in found.items())
    report = pparse.convert(cut, tmp_path / "some.safetensors", include=list(found))
    assert report.is_whole


def test_a_header_that_was_cut_may_have_named_more(tmp_path, model):
    source = model({"a": ("U8", (4,), b"1234"), "b": ("U8", (4,), b"5678")})
    content = source.read_bytes()
    source.write_bytes(content[:90])
    with pytest.raises(NotWholeError):
        pparse.convert(source, tmp_path / "out.safetensors")
    with pytest.raises(NotWholeError):
        pparse.convert(source, tmp_path / "out.safetensors", skip_damaged=True)  # nothing of it is whole
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_missing_shard(tmp_path, set_of_many):
    (set_of_many.parent / "model-00003-of-00200.safetensors").unlink()
    with pytest.raises(NotWholeError, match=r"layers\.2\.0"):
        pparse.convert(set_of_many, tmp_path / "out.safetensors")
    report = pparse.convert(set_of_many, tmp_path / "out.safetensors", skip_damaged=True)
    assert [entry.name for entry in report.left_out] == ["layers.2.0", "layers.2.1"]
    assert len(bytes_of(tmp_path / "out.safetensors")) == 398


def test_bytes_that_were_never_written_are_not_taken_for_zeros(tmp_path, model):
    content = os.urandom(1 << 20)
    source = model({"a": ("U8", (1 << 20,), content), "b": ("U8", (1 << 20,), content)})
    size = source.stat().st_size
    with source.open("r+b") as file:
        file.truncate(size - (1 << 20))
        file.truncate(size)
    with pparse.view(source) as viewer:
        if not viewer["b"].unwritten_nbytes:
            pytest.skip("the file system does not tell of holes")
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(source, tmp_path / "out.safetensors")
    assert [(name, status) for name, status, _ in caught.value.lost] == [("b", "truncated")]


def test_two_tensors_of_one_name(tmp_path):
    entry = '{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    header = '{"a":' + entry % (0, 1) + ',"a":' + entry % (1, 2) + "}"
    path = tmp_path / "twice.safetensors"
    path.write_bytes(safetensors(header.encode(), b"12"))
    with pytest.raises(NotWholeError):
        pparse.convert(path, tmp_path / "out.safetensors")


@pytest.mark.parametrize("kind", ["checksum", "cut"])
def test_damage_that_shows_only_at_the_end_of_a_stream(tmp_path, model, kind):
    """The tensors come out whole and in order, and only the stream's end says that they are wrong."""
    generator = np.random.default_rng(5)
    tensors = {name: ("U8", (200_000,), generator.bytes(200_000)) for name in "ba"}
    content = bytearray(gzip.compress(model(tensors).read_bytes(), 1))
    content = content[:-5] if kind == "cut" else content
    content[-8] ^= kind == "checksum"
    path = tmp_path / "packed.safetensors.gz"
    path.write_bytes(content)
    with pytest.raises(NotWholeError):
        pparse.convert(path, tmp_path / "out.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "packed.safetensors.gz"]


def test_damage_in_an_archive_that_shows_only_when_all_is_read(tmp_path, model):
    tensors = {name: ("U8", (3 << 20,), np.random.default_rng(5).bytes(3 << 20)) for name in "ba"}
    path = tmp_path / "archive.zip"
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.write(model(tensors), "m.safetensors")
        content = bytearray(path.read_bytes())
        content[5 << 20] ^= 1  # in a stored block of the stream: only the checksum of the member tells
        path.write_bytes(content)
        with pytest.raises(NotWholeError):
            pparse.convert(f"{path}::m.safetensors", tmp_path / "out.safetensors")
        assert sorted(os.listdir(tmp_path)) == ["archive.zip", "model.safetensors"]
        with pytest.raises(NotWholeError):  # nothing in it is sure
            pparse.convert(f"{path}::m.safetensors", tmp_path / "out.safetensors", skip_damaged=True)


def test_damage_that_is_known_only_after_all_was_written(tmp_path, samples, monkeypatch):
    from pparse.conversion import plan

    written: list[object] = []
    judge = plan.flaw_of
    monkeypatch.setattr(
        plan,
        "flaw_of",
        lambda tensor: (Status.DAMAGED, "found late") if written and tensor.name == "wpe.weight" else judge(tensor),
    )
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(SAMPLE, tmp_path / "m.npz", progress=lambda *what: written.append(what))
    assert caught.value.lost == (("wpe.weight", "damaged", "found late"),)
    assert os.listdir(tmp_path) == []
    written.clear()
    report = pparse.convert(SAMPLE, tmp_path / "m.npz", skip_damaged=True, progress=lambda *what: written.append(what))
    assert ([entry.name for entry in report.left_out], report.tensors) == (["wpe.weight"], 20)


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_a_compressed_source_is_read_in_its_own_order(tmp_path, model, codec):
    generator = np.random.default_rng(5)
    tensors = {f"{letter}": ("U8", (3 << 19,), generator.bytes(3 << 19)) for letter in "hgfedcba"}
    content = model(tensors).read_bytes()
    if codec == "gz":
        packed = gzip.compress(content, 1)
    else:
        packed = zstd.compress(content, 1)
    path = tmp_path / f"packed.safetensors.{codec}"
    path.write_bytes(packed)
    stats = IoStats(log=True)
    with pparse.view(path, budget="4MiB", stats=stats) as viewer:
        pparse.convert(viewer, tmp_path / "out.safetensors")
    assert sum(length for name, _, length in stats.log if name == str(path)) < 2.1 * len(packed)  # once for the end
    assert {name: row[2] for name, row in bytes_of(tmp_path / "out.safetensors").items()} == {
        name: row[2] for name, row in tensors.items()
    }


# -- where it is written -----------------------------------------------------------------------------------------------


def test_what_is_there_is_replaced_only_by_force(tmp_path, samples):
    target = tmp_path / "out.safetensors"
    target.write_bytes(b"precious")
    with pytest.raises(OptionError, match="force=True"):
        pparse.convert(SAMPLE, target)
    assert target.read_bytes() == b"precious"
    pparse.convert(SAMPLE, target, force=True)
    assert target.read_bytes() == Path(SAMPLE).read_bytes()
    with pytest.raises(OptionError, match="is a folder"):
        pparse.convert(SAMPLE, tmp_path, to="npz", force=True)
    pparse.convert(SAMPLE, tmp_path / "new" / "one" / "out.npz")
    assert [item.name for item in (tmp_path / "new" / "one").iterdir()] == ["out.npz"]
    with pytest.raises(SourceError, match="cannot write"):
        pparse.convert(SAMPLE, target / "out.npz")


def test_a_shard_that_is_there_is_not_replaced_either(tmp_path, samples):
    (tmp_path / "m-00002-of-00002.safetensors").write_bytes(b"precious")
    with pytest.raises(OptionError, match="m-00002-of-00002"):
        pparse.convert(SAMPLE, tmp_path / "m.safetensors", max_shard_size="20KB")
    assert os.listdir(tmp_path) == ["m-00002-of-00002.safetensors"]


def test_the_source_is_never_replaced(tmp_path, set_of_many, model):
    shard = set_of_many.parent / "model-00003-of-00200.safetensors"
    before = shard.read_bytes()
    link = tmp_path / "link.safetensors"
    link.symlink_to(shard)
    for target in (shard, link):
        with pytest.raises(OptionError, match="is a file of the source"):
            pparse.convert(set_of_many, target, force=True)
    with pytest.raises(OptionError, match="is a file of the source"):
        pparse.convert(set_of_many, set_of_many, to="safetensors", force=True)
    with pytest.raises(OptionError, match="is a file of the source"):  # even if none of its tensors is wanted
        pparse.convert(set_of_many, shard, include=["layers.9.*"], force=True)
    assert shard.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["link.safetensors", "set"]


def test_a_link_is_replaced_and_its_target_stays(tmp_path, samples):
    (tmp_path / "real.safetensors").write_bytes(b"old")
    (tmp_path / "link.safetensors").symlink_to("real.safetensors")
    pparse.convert(SAMPLE, tmp_path / "link.safetensors", force=True)
    assert not (tmp_path / "link.safetensors").is_symlink()
    assert (tmp_path / "link.safetensors").read_bytes() == Path(SAMPLE).read_bytes()
    assert (tmp_path / "real.safetensors").read_bytes() == b"old"


def test_a_dry_run_tells_the_same_and_writes_nothing(tmp_path, samples):
    told = pparse.convert(SAMPLE, tmp_path / "m.safetensors", max_shard_size="9KB", dry_run=True)
    assert os.listdir(tmp_path) == []
    done = pparse.convert(SAMPLE, tmp_path / "m.safetensors", max_shard_size="9KB")
    assert told.to_dict() == {**done.to_dict(), "dry_run": True}


def test_the_extension_or_the_option_says_what_to_write(tmp_path, samples):
    with pytest.raises(OptionError, match="does not say"):
        pparse.convert(SAMPLE, tmp_path / "out.bin")
    pparse.convert(SAMPLE, tmp_path / "out.bin", to="npz")
    assert zipfile.is_zipfile(tmp_path / "out.bin")
    with pytest.raises(OptionError, match="cannot write 'onnx'"):
        pparse.convert(SAMPLE, tmp_path / "out.bin", to="onnx")


def test_progress_and_cancel(tmp_path, samples):
    told = []
    pparse.convert(SAMPLE, tmp_path / "a.npz", progress=lambda *what: told.append(what))
    writing = [what for what in told if what[2] == "writing"]
    assert writing[-1][0] == writing[-1][1] > 0
    assert [done for done, _, _ in writing] == sorted(done for done, _, _ in writing)
    with pytest.raises(pparse.CancelledError):
        pparse.convert(SAMPLE, tmp_path / "b.npz", cancel=lambda: len(told) > 0)
    assert not (tmp_path / "b.npz").exists()


def test_more_tensors_than_memory_has_room_for(tmp_path, several):
    with pytest.raises(LimitError, match="budget=") as refused:
        pparse.convert(several, tmp_path / "out.safetensors", budget="2MiB")
    assert os.listdir(tmp_path) == []
    advised = refused.value.option.removeprefix("--budget ")
    assert pparse.convert(several, tmp_path / "out.safetensors", budget=advised).tensors == 6_000


def test_a_viewer_that_was_handed_over_stays_open(tmp_path, samples):
    with pparse.view(SAMPLE) as viewer:
        convert_view(viewer, tmp_path / "a.safetensors", Options())
        assert viewer["wte.weight"].numpy().shape == (64, 16)
        assert viewer.extraction.session.budget.used < 8 << 20


def test_registry_is_passed_on(tmp_path):
    registry = Registry()
    with pytest.raises(pparse.FormatError):
        pparse.convert(b"SMF1 nothing", tmp_path / "out.npz", registry=registry)
