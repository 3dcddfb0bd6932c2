"""``pparse get -o``: the extension says in which form; several tensors by pattern."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.cli.get_tensor import chosen, file_of
from pparse.conversion.plan import write_file
from pparse.protos import message_class
from pparse.tensors.dtype import DType
from tests.conftest import safetensors

A = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
B = np.arange(5, dtype=np.int64)
C = np.arange(4).astype(ml_dtypes.bfloat16)


@pytest.fixture
def path(model):
    return model(
        {
            "a.q_proj": ("F32", (2, 3), A.tobytes()),
            "b.q_proj": ("I64", (5,), B.tobytes()),
            "c.half": ("BF16", (4,), C.tobytes()),
            "d.flag": ("BOOL", (2,), b"\1\0"),
        }
    )


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    return {name: (row["dtype"], row["shape"], data[slice(*row["data_offsets"])]) for name, row in header.items()}


def test_the_extension_says_in_which_form_a_tensor_is_written(run, path, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for form in (".npy", ".npz", ".safetensors", ".json", ".csv"):
        ran = run("get", path, "a.q_proj", "-o", out / f"x{form}")
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert np.array_equal(np.load(out / "x.npy"), A)
    with np.load(out / "x.npz") as arrays:
        assert np.array_equal(arrays["a.q_proj"], A)
    assert read_safetensors(out / "x.safetensors") == {"a.q_proj": ("F32", [2, 3], A.tobytes())}
    assert json.loads((out / "x.json").read_text())["data"] == A.tolist()
    assert (out / "x.csv").read_text() == "0.0,0.25,0.5\n0.75,1.0,1.25\n"


def test_a_slice_is_written_in_the_form_too(run, path, tmp_path):
    assert run("get", path, "a.q_proj[1]", "-o", tmp_path / "x.csv").code == 0
    assert (tmp_path / "x.csv").read_text() == "0.75\n1.0\n1.25\n"
    assert run("get", path, "a.q_proj[:, 1:]", "-o", tmp_path / "x.safetensors").code == 0
    assert read_safetensors(tmp_path / "x.safetensors")["a.q_proj"] == ("F32", [2, 2], A[:, 1:].tobytes())


@pytest.mark.parametrize("name", ["x.pt", "x.bin", "x", "x.h5"])
def test_any_other_extension_needs_raw(run, path, tmp_path, name):
    ran = run("get", path, "a.q_proj", "-o", tmp_path / name)
    assert ran.code == 2
    assert "--raw for the bytes as they are stored" in ran.err
    assert not (tmp_path / name).exists()
    assert run("get", path, "a.q_proj", "--raw", "-o", tmp_path / name).code == 0
    assert (tmp_path / name).read_bytes() == A.tobytes()


def test_several_tensors_by_pattern_go_into_one_file(run, path, tmp_path):
    ran = run("get", path, "-p", "*.q_proj", "-o", tmp_path / "x.npz")
    assert (ran.code, ran.err) == (0, "")
    with np.load(tmp_path / "x.npz") as arrays:
        assert sorted(arrays) == ["a.q_proj", "b.q_proj"]
        assert np.array_equal(arrays["b.q_proj"], B)
    assert run("get", path, "-p", "*", "-o", tmp_path / "x.safetensors").code == 0
    found = read_safetensors(tmp_path / "x.safetensors")
    assert found["c.half"] == ("BF16", [4], C.tobytes())
    assert found["d.flag"] == ("BOOL", [2], b"\1\0")
    one = run("get", path, "-p", "*.q_proj", "-o", tmp_path / "x.npy")
    assert (one.code, "holds one tensor, and 2 match" in one.err) == (2, True)
    none = run("get", path, "-p", "q_proj", "-o", tmp_path / "y.npz")
    assert (none.code, "did you mean '*q_proj*'" in none.err) == (2, True)
    assert not (tmp_path / "y.npz").exists()
    assert run("get", path, "-p", "*").code == 2


@pytest.mark.parametrize("form", [".npy", ".npz"])
def test_of_bfloat16_it_is_said_that_numpy_cannot_read_it_back(run, path, tmp_path, form):
    ran = run("get", path, "c.half", "-o", tmp_path / f"x{form}")
    assert ran.code == 0
    if form == ".npy":
        assert "numpy reads bfloat16 back as bytes" in ran.err
    else:  # as `convert` writes it
        assert "numpy has no bfloat16: its bits are written as uint16" in ran.err
        with np.load(tmp_path / "x.npz") as arrays:
            assert arrays["c.half"].tobytes() == C.tobytes()
            assert arrays["c.half"].dtype == np.uint16
    assert "--dtype float32" in ran.err
    ran = run("get", path, "c.half", "-o", tmp_path / f"y{form}", "--dtype", "float32")
    assert (ran.code, ran.err) == (0, "")
    found = np.load(tmp_path / f"y{form}")
    found = found if form == ".npy" else found["c.half"]
    assert found.dtype == np.float32
    assert found.tolist() == [0, 1, 2, 3]
    assert run("get", path, "c.half", "-o", tmp_path / "z.npy", "--dtype", "flaot").code == 2


def test_dtype_rounds_once_as_convert_does(run, model, tmp_path):
    between = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40])  # rounded to float32 first, both lie on a tie
    path = model({"x": ("F64", [2], between.tobytes())})
    for name, words in (("get", ("-p", "*")), ("convert", ())):
        assert run(name, path, *words, "-o", tmp_path / f"{name}.safetensors", "--dtype", "bfloat16").code == 0
        kind, _, content = read_safetensors(tmp_path / f"{name}.safetensors")["x"]
        assert (kind, content) == ("BF16", b"\x81\x3f\x80\x3f")


def test_an_npz_into_a_stream_that_cannot_seek_is_the_same():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *_):
            raise OSError

    header = {"x": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}
    content = safetensors(header, np.array([1e300, 2.0]).tobytes())
    written = []
    for stream in (io.BytesIO(), Pipe()):
        with pparse.view(content) as viewer:
            file = file_of([chosen(viewer["x"], DType.of("float32"))], ".npz", "x.npz", {})
            write_file(file, stream)
        written.append((stream.getvalue(), file.items[0].overflowed))
    assert written[0] == written[1]
    assert written[0][1] == 1
    with np.load(io.BytesIO(written[1][0])) as arrays:
        assert arrays["x"].tolist() == [np.inf, 2.0]


@pytest.mark.parametrize("packed", [False, True])
def test_of_several_tensors_the_whole_ones_are_written_and_the_others_named(run, model, tmp_path, packed):
    count = 14
    tensors = {f"t{number}": ("U8", [400], bytes((number,)) * 400) for number in range(count)}
    path = model(tensors, cut=12 * 400 - 10)
    if packed:
        content = gzip.compress(model(tensors).read_bytes(), 0)
        path = tmp_path / "cut.safetensors.gz"
        path.write_bytes(content[: len(content) - 8 - 12 * 400 + 10])
    ran = run("get", path, "-p", "*", "-o", tmp_path / "x.npz")
    assert ran.code == 4
    with np.load(tmp_path / "x.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays} == {"t0": [0] * 400, "t1": [1] * 400}
    told = ran.err.splitlines()
    assert told[0].startswith("pparse: t2: truncated: ")
    assert told[1].startswith("pparse: t3: missing: ")
    assert told[10:] == [
        "pparse: not complete, and left out: 2 other tensors",
        "pparse: 2 of 14 tensors written",
        f"pparse: wrote {tmp_path / 'x.npz'}, 1.2 KiB",
    ]
    assert run("get", path, "-p", "t1", "-o", tmp_path / "y.npz").code == 0


def test_if_no_tensor_that_matches_is_whole_nothing_is_written_and_it_is_said(run, model, tmp_path):
    path = model({"a": ("U8", [4], b"\1\2\3\4"), "b": ("U8", [4], b"\1\2\3\4")}, cut=2)
    ran = run("get", path, "-p", "b", "-o", tmp_path / "x.npz")
    assert ran.code == 4
    assert ran.err.splitlines()[-1] == "pparse: none of the matching tensors is complete: nothing was written"
    assert not (tmp_path / "x.npz").exists()


@pytest.fixture
def graph(tmp_path):
    """A graph of a text, numbers, and a grid of texts."""
    made = message_class("tensorflow.GraphDef")()
    for name, values in (
        ("text", {"dtype": 7, "string_val": [b"one"]}),
        ("numbers", {"dtype": 3, "int_val": [1, 2]}),
        ("grid", {"dtype": 7, "string_val": [b"hello", "t\u00e4st".encode(), b"\xff\0", b"d"]}),
    ):
        tensor = made.node.add(name=name, op="Const").attr["value"].tensor
        tensor.dtype = values.pop("dtype")
        ((field, found),) = values.items()
        getattr(tensor, field).extend(found)
        for size in (2, 2) if name == "grid" else (len(found),):
            tensor.tensor_shape.dim.add(size=size)
    path = tmp_path / "g.pb"
    path.write_bytes(made.SerializeToString())
    return path


def test_texts_are_left_out_of_a_file_of_arrays_with_a_note(run, graph, tmp_path):
    ran = run("get", graph, "-p", "*", "-o", tmp_path / "g.npz")
    assert (ran.code, ran.err) == (0, "pparse: note: 2 tensors of texts left out: text, grid\n")
    with np.load(tmp_path / "g.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays} == {"numbers": [1, 2]}
    for words in (("-p", "text"), ("text",)):
        ran = run("get", graph, *words, "-o", tmp_path / "h.npz")
        assert ran.code == 2
        assert "not arrays of numbers" in ran.err
        assert "--json" in ran.err
        assert not (tmp_path / "h.npz").exists()


def test_metadata_of_a_safetensors_source_are_kept(run, model, tmp_path, samples):
    row = {"a": ("U8", [1], b"\1"), "b": ("U8", [1], b"\1")}
    path = model(row, metadata={"format": "pt", "who": "m\u00e4"})
    packed = tmp_path / "m.safetensors.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    out = tmp_path / "x.safetensors"
    for words in ((path, "-p", "*"), (path, "a"), (path, "a[:1]"), (packed, "-p", "a")):
        assert run("get", *words, "-o", out).code == 0
        assert run("info", out, "--json").json["metadata"] == {"format": "pt", "who": "m\u00e4"}
        assert run("check", "--strict", out).code == 0
    assert run("get", f"{samples}/sharded", "-p", "ln_f*", "-o", out).code == 0
    shard = f"{samples}/sharded/model-00001-of-00003.safetensors"
    assert run("info", out, "--json").json["metadata"] == run("info", shard, "--json").json["metadata"] != {}


def test_a_node_is_no_tensor_to_write(run, path, tmp_path):
    ran = run("get", path, "header_size", "-o", tmp_path / "x.npz")
    assert (ran.code, "only a tensor can be written as .npz" in ran.err) == (2, True)


# -- nodes, and options that contradict each other ---------------------------------------------------------------------

RECORDS = "/records.cut.riegeli"


def test_a_node_is_written_as_json_where_the_extension_says_so(run, path, samples, tmp_path):
    out = tmp_path / "x.json"
    for words in (
        (path, "header_size"),
        (path, "tensors"),
        (samples + RECORDS, "787/0"),
        (samples + RECORDS, "787/0[1:3]"),
    ):
        assert run("get", *words, "-o", out).code == 0
        assert json.loads(out.read_text()) == run("get", *words, "--json").json


@pytest.mark.parametrize("words", [("787/0",), ("787/0[1:3]",), ("787/1", "--partial", "prefix"), ("metadata",)])
@pytest.mark.parametrize("name", ["r.pb", "r.bin"])
def test_bytes_are_not_written_as_hex_under_a_name_that_asks_for_something_else(run, samples, tmp_path, words, name):
    out = tmp_path / name
    ran = run("get", samples + RECORDS, *words, "-o", out)
    assert (ran.code, ran.out) == (2, "")
    assert all(word in ran.err for word in (name, "--raw", ".json", ".txt"))
    assert not out.exists()
    for more in (tmp_path / "r.txt", tmp_path / "r"):
        assert run("get", samples + RECORDS, *words, "-o", more).code in (0, 4)
        assert more.read_text() == run("get", samples + RECORDS, *words).out
    assert run("get", samples + RECORDS, *words, "--raw", "-o", out).code in (0, 4)
    assert out.read_bytes()


def test_a_text_is_written_as_it_is_whatever_the_name(run, tmp_path):
    (tmp_path / "a.json").write_text('{"a": "text", "n": 3, "list": [1]}')
    for name in ("x.md", "x", "x.txt"):
        assert run("get", tmp_path / "a.json", "a", "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text() == "text\n"
    assert run("get", tmp_path / "a.json", "list", "-o", tmp_path / "x.bin").code == 2


def test_a_member_is_written_as_its_bytes_whatever_the_name(run, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.json", b"[1]")
    for name in ("x.json", "x.npy", "x.pb", "x"):
        assert run("get", tmp_path / "a.zip", "a.json", "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_bytes() == b"[1]"
        assert run("get", tmp_path / "a.zip", "a.json[1:2]", "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_bytes() == b"1"


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "-o", "x.npy"),
        ("--json", "-o", "x.csv"),
        ("--npy", "-o", "x.csv"),
        ("--npy", "-o", "x.json"),
        ("--raw", "-o", "x.npz"),
        ("--raw", "-o", "x.npy"),
        ("--raw", "-o", "x.bin", "--dtype", "float64"),
    ],
)
def test_options_that_contradict_each_other_are_refused(run, path, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    ran = run("get", path, "a.q_proj", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "leave" in ran.err
    assert sorted(tmp_path.iterdir()) == before


def test_dtype_converts_what_is_shown_and_what_is_json_too(run, path):
    assert run("get", path, "b.q_proj", "--dtype", "float32").lines[-1] == "[0. 1. 2. 3. 4.]"
    assert run("get", path, "b.q_proj", "--dtype", "torch.half", "--json").json["dtype"] == "float16"
    assert run("get", path, "a.q_proj[1]", "--dtype", "int32").lines[-1] == "[0 1 1]"
    found = run("get", path, "a.q_proj", "--json", "--dtype", "int16").json
    assert (found["dtype"], found["data"]) == ("int16", [[0, 0, 0], [0, 1, 1]])
    assert run("get", path, "b.q_proj", "--dtype", "flaot").code == 2


def test_dtype_is_refused_where_nothing_is_converted(run, path, samples):
    for words in ((path, "header_size"), (samples + RECORDS, "787/0"), (samples + RECORDS, "787/0[1:3]")):
        ran = run("get", *words, "--dtype", "float32")
        assert (ran.code, ran.out) == (2, "")
        assert "--dtype converts tensors" in ran.err


# -- texts -------------------------------------------------------------------------------------------------------------


def test_texts_are_nested_as_their_shape_says(run, graph):
    found = run("get", graph, "grid", "--json").json
    assert (found["shape"], found["data"]) == ([2, 2], [["hello", "t\u00e4st"], [{"hex": "ff00"}, "d"]])
    assert run("get", graph, "text", "--json").json["data"] == ["one"]
    assert run("get", graph, "text[0]", "--json").json["data"] == "one"
    assert run("get", graph, "grid[:0]", "--json").json["data"] == []


def test_a_slice_of_texts_is_shown_as_all_of_them_are(run, graph):
    whole = run("get", graph, "grid").lines
    assert run("get", graph, "grid[0]").lines == whole[:3]
    assert run("get", graph, "grid[:, 1]").lines == [whole[0], whole[2], whole[4]]
    assert run("get", graph, "grid[0, 1]").lines == [whole[0], "t\u00e4st"]


def test_texts_do_not_count_as_parameters(run, graph):
    assert run("ls", graph).lines[-1].startswith("3 tensors, ")
    assert "2 parameters (int32 2)" in run("ls", graph).lines[-1]
    assert run("info", graph, "--json").json["extent"]["parameters"] == {"int32": 2}


def test_json_of_texts_without_end_is_refused_before_they_are_held(run, tmp_path):
    made = message_class("tensorflow.GraphDef")()
    tensor = made.node.add(name="a", op="Const").attr["value"].tensor
    tensor.dtype = 7
    tensor.string_val.append(b"x")
    tensor.tensor_shape.dim.add(size=1 << 40)
    (tmp_path / "g.pb").write_bytes(made.SerializeToString())
    ran = run("get", tmp_path / "g.pb", "a", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert run("get", tmp_path / "g.pb", "a").lines[-1] == "\u2026"


def test_a_long_write_is_refused_where_the_disk_has_no_room(run, model, tmp_path, monkeypatch):
    content = random.Random(1).randbytes(2 << 20)
    big, zipped = model({"big": ("U8", [2 << 20], content)}), tmp_path / "big.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big.bin", content)
    asked = []

    def usage(place):
        asked.append(place)
        return 1 << 40, 0, 1 << 20

    for number, (command, source, *more, name) in enumerate(
        (
            ("get", big, "big", "a.npy"),
            ("get", big, "big", "--raw", "a.bin"),
            ("get", big, "-p", "*", "a.npz"),
            ("get", zipped, "big.bin", "a.bin"),
            ("convert", big, "b.safetensors"),
            ("extract", zipped, "a"),
            ("recover", zipped, "a"),
        )
    ):
        words = (command, source, *more, "-o", tmp_path / f"out{number}" / name)
        with monkeypatch.context() as full:
            full.setattr(shutil, "disk_usage", usage)
            ran = run(*words)
            assert (ran.code, asked.pop().startswith(str(tmp_path))) == (2, True), words
            assert "2.0 MiB are to be written, and 1.0 MiB are free there (" in ran.err
            left = sum(path.stat().st_size for path in (tmp_path / f"out{number}").rglob("*") if path.is_file())
            assert left < 1 << 16
        assert run(*words).code == 0
