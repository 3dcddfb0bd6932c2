"""The command line: ``pparse get``."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tarfile
import zipfile
from math import prod

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.limits import format_size
from tests.conftest import safetensors
from tests.rows import rows

WORDS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}


def entry(array):
    return (WORDS[array.dtype.name], array.shape, array.tobytes())


def u8(*shape):
    return entry((np.arange(np.prod(shape)) % 251).astype(np.uint8).reshape(shape))


@pytest.fixture
def bytes_of(tmp_path):
    """Run a command with ``-o`` and return what the file holds."""

    def call(run, *words, code=0, text=False):
        out = tmp_path / "out.bin"
        form = () if text or {"--raw", "--npy", "--json"} & set(words) else ("--raw",)
        ran = run(*words, *form, "-o", out)
        told = "" if "--npy" not in words or not ran.err.startswith("pparse: note: numpy reads ") else ran.err
        told = "pparse: b: 22 of its 40 bytes are there\n" if "--partial" in words else told
        told += f"pparse: wrote {out}, {format_size(out.stat().st_size)}\n" if code else ""
        assert (ran.code, ran.out, ran.err) == (code, "", told)
        content = out.read_bytes()
        out.unlink()
        return content

    return call


# -- what is found -----------------------------------------------------------------------------------------------------

NAMES = [
    "a.b.c",
    "x:0",
    "save/.ATTRIBUTES/VARIABLE_VALUE",
    "br[0]",
    "sl[0:2]",
    "[3]",
    "#2",
    "a#2",
    "..",
    ".",
    "metadata",
    "tensors",
    "*",
    "?",
    "sp ace",
    'q"uote',
    "back\\slash",
    "lit\\x0a",
    "::",
    "a::b",
    "é",
    "日本",
    "😀",
    "",
    "new\nline",
    "tab\t",
    "n\0ul",
    "rtl\u202ex",
    "zero\u200b",
    "header_size",
    "tensors[0]",
    'tensors["a"]',
    "-1",
    "0",
    "a,b",
    "sl[0:2][0]",
    "header[#1]",
]


@pytest.fixture
def odd(model):
    return model({name: u8(3, 2 + number) for number, name in enumerate(NAMES)}, metadata={"format": "pt", "a.b": "c"})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_that_ls_prints_works(name, run, odd):
    rows = 2 + NAMES.index(name)
    shown = next(row for row in run("ls", odd, "-q").out.split("\n") if row == name or _same(row, name))
    for written in {name, shown}:
        words = ("--", written) if written.startswith("-") else (written,)
        if "\0" not in written:
            found = run("get", odd, "--json", *words).json
            assert (found["name"], found["shape"]) == (name, [3, rows])
        words = (*words[:-1], words[-1] + "[1, -2:]")
        if written and "\0" not in written:
            found = run("get", odd, "--json", *words).json
            assert (found["name"], found["data"]) == (name, [2 * rows - 2, 2 * rows - 1])


def _same(row, name):
    from pparse.display.text import unescaped

    return "\\" in row and unescaped(row) == name


def test_an_exact_name_wins_over_a_slice_and_an_escape(run, model):
    path = model({"w": u8(4), "w[0:2]": u8(9), "e\\x0a": u8(1), "e\n": u8(2)})
    assert run("get", path, "w[0:2]", "--json").json["shape"] == [9]
    assert run("get", path, "w[0:3]", "--json").json["shape"] == [3]
    assert run("get", path, "w[0:2][0:2]", "--json").json["shape"] == [2]
    assert run("get", path, "e\\x0a", "--json").json["shape"] == [1]
    assert run("get", path, "e\n", "--json").json["shape"] == [2]


def test_nodes_are_found_where_no_tensor_is(run, odd):
    assert run("get", odd, "metadata.format").lines[0].startswith("metadata.format") is False
    assert run("get", odd, "metadata.format").out == "pt\n"
    assert run("get", odd, 'metadata["a.b"]').out == "c\n"
    assert run("get", odd, 'tensors["x:0"].dtype').out == "U8\n"
    assert run("get", odd, 'tensors["n\\u0000ul"].shape[0]').out == "3\n"
    assert run("get", odd, "tensors[#0].data_offsets", "--json").json["value"] == [0, 6]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h.0.attn.wieght", "h.0.attn.weight"),
        ("h.0.attn.weigh[0]", "h.0.attn.weight"),
        ("attn.weight", "h.0.attn.weight"),
        ("H.0.ATTN.WEIGHT", "h.0.attn.weight"),
    ],
)
def test_near_misses_are_suggested(name, near, run, model):
    path = model({f"h.{number}.attn.weight": u8(2) for number in range(3)} | {"out": u8(1)})
    for more in ((), ("--json",), ("--raw",)):
        ran = run("get", path, name, *more)
        assert (ran.code, ran.out) == (2, "")
        assert f"{name}: no tensor and no node has this name; did you mean " in ran.err
        assert repr(near) in ran.err
    assert "did you mean" not in run("get", path, "zzzzzz").err


def test_the_second_of_a_name(run, tmp_path):
    one = '"a":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    text = ("{" + one % (0, 1) + "," + one % (1, 2) + "}").encode()
    path = tmp_path / "twice.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\x05\x06")
    assert run("ls", path, "-q").lines == ["a", "a#2"]
    for name in ("a", "a#2"):  # nobody can tell which of the two it is
        ran = run("get", path, name, "--json")
        assert ran.code == 4
        assert "its name occurs more than once" in ran.err


# -- slices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        "[0]",
        "[-1]",
        "[1:]",
        "[:2, 3]",
        "[..., 1]",
        "[::2, ::-1]",
        "[0, 0, 0]",
        "[2:0]",
        "[:]",
        "[1:9, -2:, :]",
        "[...]",
        "[-3:-1,::3]",
        "[ 1 , 2 ]",
    ],
)
def test_a_slice_is_what_numpy_gives_in_every_output_format(index, run, model, bytes_of):
    array = (np.arange(60) % 250).astype(np.int16).reshape(3, 4, 5)
    path = model({"t": entry(array)})
    wanted = np.asarray(eval(f"array{index}"))
    found = run("get", path, f"t{index}", "--json").json
    assert (found["shape"], found["data"]) == (list(wanted.shape), wanted.tolist())
    assert bytes_of(run, "get", path, f"t{index}", "--raw") == wanted.tobytes()
    assert np.array_equal(np.load(io.BytesIO(bytes_of(run, "get", path, f"t{index}", "--npy"))), wanted)
    assert run("get", path, f"t{index}").out.split("\n", 1)[1] == f"{wanted}\n"


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("[3]", "index 3 is out of bounds for axis 0 with size 3"),
        ("[0,0,0,0]", "too many indices"),
        ("[::0]", "slice step cannot be zero"),
        ("[..., ...]", "only have a single ellipsis"),
        ("[a]", "not a slice: numbers and ranges"),
        ("[0", "is not closed"),
        ("[1.5]", "not a slice"),
        ("[]", "not a slice"),
    ],
)
def test_a_slice_that_is_none_writes_nothing_and_says_why(index, words, run, model, tmp_path):
    path = model({"t": u8(3, 4, 5)})
    for more in ((), ("--json",), ("--raw", "-o", tmp_path / "out"), ("--npy", "-o", tmp_path / "out")):
        ran = run("get", path, f"t{index}", *more)
        assert ran.code == 2
        assert words in ran.err
    assert [item.name for item in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_slice_of_a_text_is_of_its_characters(run, tmp_path):
    (tmp_path / "a.json").write_text('{"a": "s\\u00fc\\u00df and sour", "b": [1, 2]}')
    assert run("get", tmp_path / "a.json", "a[1:3]").out == "üß\n"
    found = json.loads(run("get", tmp_path / "a.json", "a[-4:]", "--json").out)
    assert (found["value"], found["offset"], found["kind"]) == ("sour", 8, "string")
    assert run("get", tmp_path / "a.json", "b[1]").out == "2\n"
    wrong = run("get", tmp_path / "a.json", "a[1]")
    assert (wrong.code, wrong.out) == (2, "")
    assert "bytes and texts take one slice, [a:b]" in wrong.err


def test_a_guessed_text_is_sliced_by_characters_as_it_is_shown(run, samples):
    path = f"{samples}/reading.binpb"
    whole = run("get", path, "[1][1]").out
    assert whole == "samples/reading.proto\n"
    assert run("get", path, "[1][1][8:15]").out == "reading\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("o.l[..., 1]", "o.l: lists take one slice, [a:b] or [*]; 'o.l[0]' is an element"),
        ("o[0:1]", "o: it is of kind object; only lists, bytes and texts have slices"),
        ("o[*]", "o: it is of kind object; only lists, bytes and texts have slices"),
        ("list[::-1]", "a slice of a list goes forwards"),
        ("int[0:2]", "int: it is of kind number; only"),
        ("t[0:1]", "t: it is of kind true; only"),
        ("n[:2]", "n: it is of kind null; only"),
        ("int[0]", "int: it is of kind number; only"),
        ("list[0][0:1]", "list[0]: it is of kind number; only"),
    ],
)
def test_what_has_no_slices_says_so(run, tmp_path, path, said):
    (tmp_path / "a.json").write_text('{"list": [1, 2], "int": 12345, "t": true, "n": null, "o": {"l": [1]}}')
    for more in ((), ("--json",), ("--raw", "-o", tmp_path / "out")):
        ran = run("get", tmp_path / "a.json", path, *more)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
    assert run("get", tmp_path / "a.json", "list[0]").out == "1\n"


def test_a_slice_of_a_number_of_a_binary_format_is_refused(run, model, samples):
    ran = run("get", model({"t": u8(3)}), "header_size[0:2]")
    assert (ran.code, "header_size: it is of kind uint64; only" in ran.err) == (2, True)
    ran = run("get", f"{samples}/chunked-model", "meta_graphs[0].graph_def.node[1].attr.dtype.type[0:1]")
    assert (ran.code, "only lists, bytes and texts have slices" in ran.err) == (2, True)
    ran = run("get", model({"t": u8(3)}), "tensors[0:1]")
    assert (ran.code, "tensors: " in ran.err) == (2, True)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_slice_of_a_member_is_its_bytes_as_all_of_it_is(method, run, tmp_path, bytes_of, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("notes.txt", "hello, world\n" * 9)
    file = tmp_path / "a.zip"
    assert run("get", file, "notes.txt[7:12]").out == "world"
    assert bytes_of(run, "get", file, "notes.txt[111:]", text=True) == b"world\n"
    found = json.loads(run("get", file, "notes.txt[7:12]", "--json").out)
    assert (found["value"], found["offset"]) == ({"hex": b"world".hex()}, 7)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run("get", file, "notes.txt[7:12]").out == "world"


def test_a_slice_reads_only_its_bytes(run, model):
    path = model({"t": u8(1000, 1000)})
    ran = run("get", path, "t[500, 7:9]", "--json", "--trace-io")
    assert json.loads(ran.out)["data"] == [(500_007) % 251, (500_008) % 251]
    assert int(re.search(r"read (\d+) bytes in", ran.err)[1]) < 16_384


# -- forms -------------------------------------------------------------------------------------------------------------


@rows("name", WORDS)
def test_forms_of_every_type(name, run, model, bytes_of):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    array = np.arange(6).astype(dtype).reshape(2, 3)
    path = model({"t": entry(array)})
    assert bytes_of(run, "get", path, "t", "--raw") == bytes_of(run, "get", path, "t") == array.tobytes()
    loaded = np.load(io.BytesIO(bytes_of(run, "get", path, "t", "--npy")))
    assert (loaded.shape, loaded.itemsize, loaded.tobytes()) == ((2, 3), array.itemsize, array.tobytes())
    assert loaded.dtype == dtype or loaded.dtype.kind == "V"
    found = run("get", path, "t", "--json").json
    assert set(found) == {"schema", "file", "name", "dtype", "stored_dtype", "shape", "status", "verified", "data"}
    assert (found["schema"], found["file"], found["name"], found["dtype"]) == (1, str(path), "t", name)
    wanted = [[0, 1, 2], [3, 4, 5]] if name != "bool" else [[False, True, True], [True, True, True]]
    if name == "complex64":
        wanted = [[[number, 0] for number in row] for row in wanted]
    if name == "float8_e8m0fnu":
        wanted = [["NaN", 1, 2], [4, 4, 4]]  # it has powers of two only
    assert found["data"] == wanted
    assert type(found["data"][0][1]) is type(wanted[0][1]) or name.startswith(("float", "bfloat"))


@rows("shape", [(), (7,), (3, 5), (2, 3, 1, 2), (4, 1), (0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_json_of_a_tensor_is_written_a_piece_at_a_time(run, tmp_path, shape):
    """Pieces end anywhere; slices of it, structures and what is filled up are read by parts, too."""
    path = tmp_path / "a.npy"
    whole = np.arange(prod(shape), dtype="<i8").reshape(shape)
    fields = np.zeros(shape, [("a", "<i2"), ("b", ">f4", (2,))])
    fields["a"], fields["b"][..., 1] = whole, whole
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pparse.cli.get_tensor.LITTLE", 16)
        patched.setattr("pparse.cli.get_json._PIECE", 3)
        for array in (whole, np.asfortranarray(whole), whole.astype("<c8")):
            np.save(path, array)
            wanted = (np.stack((array.real, array.imag), -1) if array.dtype.kind == "c" else array).tolist()
            assert run("get", path, "a", "--json", "--bare").out == f"{json.dumps(wanted)}\n"
        np.save(path, fields)
        wanted = {name: fields[name].tolist() for name in "ab"}
        assert run("get", path, "a", "--json", "--bare").out == f"{json.dumps(wanted)}\n"
        np.save(path, whole)
        for index in ("[::-1]", "[1:, ...]", "[..., ::2]", "[..., ::-2]") if shape else ():
            wanted = eval(f"whole{index}", {"whole": whole}).tolist()
            assert run("get", path, f"a{index}", "--json", "--bare").out == f"{json.dumps(wanted)}\n"
        if whole.size > 1 and len(shape) > 1:
            path.write_bytes(path.read_bytes()[:-12])
            row = whole.size // shape[0]
            rest = [[*whole.reshape(-1)[:-2].tolist(), None, None][at : at + row] for at in range(0, whole.size, row)]
            found = run("get", path, "a", "--json", "--partial", "fill")
            assert (found.code, np.array(found.json["data"], object).reshape(-1, row).tolist()) == (4, rest)
            whole = whole[: (whole.size - 2) // row]
            assert run("get", path, "a", "--json", "--partial", "prefix").json["data"] == whole.tolist()


def test_sub_byte_types(run, model, bytes_of):
    path = model({"t": ("F4", [2, 2], b"\x21\xf4"), "s": ("F6_E2M3", [4], b"\x41\x20\x0c")})
    assert run("get", path, "t", "--json").json["data"] == [[0.5, 1.0], [2.0, -6.0]]
    assert bytes_of(run, "get", path, "t", "--raw") == b"\x21\xf4"
    assert run("get", path, "t[1]", "--json").json["data"] == [2.0, -6.0]
    assert run("get", path, "s", "--json").json["data"] == [0.125, 0.125, 0.25, 0.375]


def test_json_of_what_json_has_no_number_for(run, model):
    odd = [np.nan, np.inf, -np.inf, 1.5]
    path = model(
        {
            "f32": entry(np.array(odd, np.float32)),
            "f16": entry(np.array([odd], np.float16)),
            "bf16": entry(np.array(odd, ml_dtypes.bfloat16)),
            "scalar": entry(np.array(np.nan, np.float64)),
            "c64": entry(np.array([complex(np.nan, 1), complex(2, -np.inf)], np.complex64)),
            "f8": entry(np.array([np.nan, 1], ml_dtypes.float8_e4m3fn)),
            "none": entry(np.zeros((0, 3), np.float32)),
            "big": entry(np.array([2**63, 2**64 - 1], np.uint64)),
            "bool": ("BOOL", [3], b"\0\1\1"),
        }
    )

    def data(name):
        ran = run("get", path, name, "--json")
        return json.loads(ran.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["data"]

    wanted = ["NaN", "Infinity", "-Infinity", 1.5]
    assert data("f32") == data("bf16") == wanted
    assert data("f16") == [wanted]
    assert data("scalar") == "NaN"
    assert data("c64") == [["NaN", 1.0], [2.0, "-Infinity"]]
    assert data("f8") == ["NaN", 1.0]
    assert data("none") == []
    assert data("big") == [2**63, 2**64 - 1]
    assert data("bool") == [False, True, True]


def test_text_of_a_tensor(run, model):
    path = model({"t": entry(np.arange(6, dtype=np.float32).reshape(2, 3)), "s": entry(np.array(7, np.int8))})
    assert run("get", path, "t").out == ("t  float32  2×3  24 B  complete, unverified\n[[0. 1. 2.]\n [3. 4. 5.]]\n")
    assert run("get", path, "s").out == "s  int8  scalar  1 B  complete, unverified\n7\n"


def test_text_of_a_large_tensor_shows_its_ends(run, model):
    path = model({"t": ("U8", [1 << 13, 1 << 14], b"")})
    header = path.read_bytes().replace(b"[0, 0]", b"[0, %d]" % (1 << 27))
    header = (len(header) - 8).to_bytes(8, "little") + header[8:]
    path.write_bytes(header)
    os.truncate(path, len(header) + (1 << 27))
    ran = run("get", path, "t", "--trace-io")
    assert "… 8,186 rows; ask for some with a slice" in ran.out
    assert int(re.search(r"read (\d+) bytes in", ran.err)[1]) < 1 << 20


def test_bytes_to_standard_output(model, capfdbinary):
    from pparse.cli import main

    array = np.arange(256, dtype=np.uint8)
    path = model({"t": entry(array)})
    assert main(["get", str(path), "t", "--raw"]) == 0
    assert capfdbinary.readouterr() == (array.tobytes(), b"")
    assert main(["get", str(path), "t", "--npy"]) == 0
    out, err = capfdbinary.readouterr()
    assert np.array_equal(np.load(io.BytesIO(out)), array)
    assert main(["get", str(path), "t", "--raw", "--trace-io"]) == 0
    out, err = capfdbinary.readouterr()
    assert out == array.tobytes()
    assert b"[0x0, 0x148) 328 bytes\n" in err  # the header and the tensor behind it, each byte once
    assert err.splitlines()[-1].endswith(b" reads")


def test_no_bytes_on_a_terminal(run, model, monkeypatch):
    import sys

    path = model({"t": u8(4)}, metadata={"format": "pt"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for words in (("t", "--raw"), ("t", "--npy"), ("metadata.format", "--raw")):
        ran = run("get", path, *words)
        assert (ran.code, ran.out) == (2, "")
        assert "binary data is not for a terminal; use -o FILE or a pipe" in ran.err
    assert run("get", path, "t").code == 0


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_nodes_of_a_document(run, tmp_path, bytes_of):
    path = tmp_path / "it.json"
    path.write_text('{"a": [1, {"b": "text é 😀"}], "n": null, "t": true, "f": 1.50, "esc": "\\u001b[31m"}')
    assert run("get", path, "a[1].b").out == "text é 😀\n"
    assert run("get", path, "a[0]").out == "1\n"
    assert run("get", path, "n").out == "null\n"
    assert run("get", path, "a").out == '[\n  1,\n  {\n    "b": "text é 😀"\n  }\n]\n'
    ran = run("get", path, "a", "--json")
    assert ran.json == {
        "schema": 1,
        "file": str(path),
        "path": "a",
        "kind": "array",
        "status": "complete",
        "value": [1, {"b": "text é 😀"}],
    }
    assert ran.out.isascii()
    assert run("get", path, "--json").json["value"]["f"] == 1.5
    assert bytes_of(run, "get", path, "a[1].b", "--raw") == '"text é 😀"'.encode()
    assert bytes_of(run, "get", path, "f", "--raw") == b"1.50"
    assert bytes_of(run, "get", path, "a[1].b", text=True) == "text é 😀\n".encode()
    assert json.loads(bytes_of(run, "get", path, "a", "--json"))["value"][0] == 1
    for words in (("a", "--npy"), ("a", "-o", tmp_path / "a.npy")):
        ran = run("get", path, *words)
        assert (ran.code, ran.out) == (2, "")
        assert "only a tensor can be written as .npy" in ran.err
    ran = run("get", path, "b")
    assert (ran.code, ran.out) == (2, "")


def test_text_for_a_terminal_is_safe(run, tmp_path, monkeypatch):
    import sys

    path = tmp_path / "it.json"
    path.write_text('{"esc": "\\u001b[31mred\\nblue"}')
    assert run("get", path, "esc").out == "\x1b[31mred\nblue\n"  # into a file or a pipe: what it is
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run("get", path, "esc").out == "\\x1b[31mred\nblue\n"


def test_a_damaged_node(run, tmp_path):
    path = tmp_path / "it.json"
    path.write_text('{"a": [1, nul], "b": [1, 2')
    for name in ("a[1]", "a"):
        ran = run("get", path, name)
        assert ran.code == 4
        assert ran.out == ""
    assert run("get", path, "a[0]").code == 0
    assert run("get", path, "b[0]").code == 0
    for more in ((), ("--json",)):
        assert run("get", path, "b", *more).code == 4


# -- tensors that are not whole ----------------------------------------------------------------------------------------


@pytest.fixture
def cut(model):
    """``b`` has 5 whole rows of 4 and half of the sixth; ``c`` is missing."""
    return model({"a": u8(8), "b": u8(10, 4), "c": u8(3)}, cut=3 + 18)


def test_a_truncated_tensor(run, cut, tmp_path):
    short = "22 of its 40 bytes are there; 5 of its 10 rows are whole; --partial"
    words = rf"{cut}: b @0x[0-9a-f]+: {short} .* \(wanted 40, got 22\)"
    into = ("-o", tmp_path / "out")
    for more in ((), ("--json",), ("--raw", *into), ("--npy", *into), ("--json", *into)):
        ran = run("get", cut, "b", *more)
        assert ran.code == 4
        assert re.search(words, ran.err)
        assert not more or ran.out == ""
        assert not (tmp_path / "out").exists()
    assert [item.name for item in tmp_path.iterdir()] == ["model.safetensors"]
    ran = run("get", cut, "c")
    assert ran.code == 4
    assert "(wanted 3, got 0)" in ran.err
    assert run("get", cut, "a").code == 0


def test_whole_rows_of_a_truncated_tensor(run, cut):
    ran = run("get", cut, "b[1:5, ::2]", "--json")
    assert ran.code == 4  # the tensor is not whole: the rows that were asked for are
    assert ran.json["data"] == [[4, 6], [8, 10], [12, 14], [16, 18]]
    assert ran.json["status"] == "truncated"
    assert run("get", cut, "b[5]", "--json").out == ""
    assert run("get", cut, "b[-1]", "--json").code == 4


def test_partial_gives_the_whole_rows_of_a_cut_tensor_or_fills_it_up(run, cut, bytes_of):
    whole = np.arange(40, dtype=np.uint8).reshape(10, 4)
    found = run("get", cut, "b", "--partial", "prefix", "--json")
    assert found.code == 4
    assert (found.json["shape"], found.json["data"]) == ([5, 4], whole[:5].tolist())
    full = whole.astype(object)
    full.reshape(-1)[22:] = None  # null: a zero would look like a value
    found = run("get", cut, "b", "--partial", "fill", "--json")
    assert found.code == 4
    assert found.json["data"] == full.tolist()
    full = np.where(np.arange(40) < 22, np.arange(40), 0).astype(np.uint8).reshape(10, 4)
    assert bytes_of(run, "get", cut, "b", "--partial", "prefix", "--raw", code=4) == whole[:5].tobytes()
    assert bytes_of(run, "get", cut, "b", "--partial", "fill", "--raw", code=4) == full.tobytes()
    for partial, wanted in (("prefix", whole[:5]), ("fill", full)):
        content = bytes_of(run, "get", cut, "b", "--partial", partial, "--npy", code=4)
        assert np.array_equal(np.load(io.BytesIO(content)), wanted)
    assert "[16 17 18 19]" in run("get", cut, "b", "--partial", "prefix").out
    assert "--" in run("get", cut, "b", "--partial", "fill").out  # as numpy shows what is masked
    assert run("get", cut, "c", "--partial", "prefix").code == 4
    assert run("get", cut, "a", "--partial", "fill", "--json").json["data"] == list(range(8))


# -- where it is written -----------------------------------------------------------------------------------------------


def test_the_name_of_the_output_file_tells_the_format(run, model, tmp_path):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    path = model({"t": entry(array)})
    out = tmp_path / "out"
    out.mkdir()
    for name, more in (("a.npy", ()), ("b", ("--npy",))):
        assert run("get", path, "t", "-o", out / name, *more).code == 0
        assert np.array_equal(np.load(out / name), array)
    for name in ("c.bin", "d"):
        assert run("get", path, "t", "-o", out / name, "--raw").code == 0
        assert (out / name).read_bytes() == array.tobytes()
    for name in ("e.json", "f.any"):
        assert run("get", path, "t", "-o", out / name, "--json").code == 0
        assert json.loads((out / name).read_text())["data"] == array.tolist()
    assert sorted(item.name for item in out.iterdir()) == ["a.npy", "b", "c.bin", "d", "e.json", "f.any"]
    mask = os.umask(0)
    os.umask(mask)
    assert (out / "a.npy").stat().st_mode & 0o777 == 0o666 & ~mask


def test_output_is_written_whole_or_not_at_all(run, model, cut, tmp_path, monkeypatch):
    from pparse.tensors.tensor import Tensor

    path = model({"t": u8(1000)}, name="whole.safetensors")
    out = tmp_path / "out" / "t.bin"
    out.parent.mkdir()
    out.write_bytes(b"before")
    assert run("get", cut, "b", "--raw", "-o", out).code == 4

    def breaks(self, max_bytes=0):
        yield b"half"
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "raw_blocks", breaks)
        ran = run("get", path, "t", "--raw", "-o", out)
        assert ran.code == 2
        assert "Input/output error" in ran.err
        patch.setattr(Tensor, "raw_blocks", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr("pparse.cli.silence", lambda stream: None)
        assert run("get", path, "t", "--raw", "-o", out).code == 130
    assert [item.name for item in out.parent.iterdir()] == ["t.bin"]
    assert out.read_bytes() == b"before"
    assert run("get", path, "t", "--raw", "-o", out).code == 0
    assert out.stat().st_size == 1000


def test_where_nothing_can_be_written(run, model, tmp_path):
    path = model({"t": u8(4)})
    ran = run("get", path, "t", "--raw", "-o", path / "t.bin")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot write: " in ran.err
    assert run("get", path, "t", "--raw", "-o", tmp_path / "new" / "one" / "t.bin").code == 0
    assert (tmp_path / "new" / "one" / "t.bin").stat().st_size == 4
    for folder in (tmp_path, f"{tmp_path}/"):
        ran = run("get", path, "t", "--raw", "-o", folder)
        assert ran.code == 2
        assert "is a folder; name a file in it" in ran.err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["model.safetensors", "new"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_written_to_not_replaced(run, model, tmp_path):
    import stat
    import threading

    path, pipe = model({"t": u8(4)}), tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert run("get", path, "t", "-o", pipe).code == 0
    reader.join(10)
    assert got == [b"\0\1\2\3"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_output_in_place_of_a_link_and_under_a_long_name(run, model, tmp_path):
    path, target, link = model({"t": u8(4)}), tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to(target)
    assert run("get", path, "t", "--raw", "-o", tmp_path / ("x" * 250)).code == 0
    assert run("get", path, "t", "--raw", "-o", link).code == 0
    assert not link.is_symlink()
    assert (link.read_bytes(), target.read_bytes()) == (b"\0\1\2\3", b"before")


def test_numbers_that_a_type_cannot_hold_are_counted(run, tmp_path):
    np.save(tmp_path / "a.npy", np.array([1e10, 1, 2.5, np.nan, -7e4]))
    for dtype, told in (("float16", "2 numbers"), ("int8", "3 numbers"), ("float32", "")):
        ran = run("get", tmp_path / "a.npy", "a", "-o", tmp_path / "b.npy", "--dtype", dtype)
        assert (ran.code, told in ran.err, bool(ran.err)) == (0, True, bool(told))
    np.save(tmp_path / "c.npy", np.array([1 + 2j]))
    for name, dtype in (("c", "float32"), ("a", "S3")):
        assert run("get", tmp_path / f"{name}.npy", name, "-o", tmp_path / "b.npy", "--dtype", dtype).code == 2


def test_an_array_of_objects_is_no_fault_of_the_file(run, tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    for command in ("ls", "info", "check", "tree"):
        assert run(command, tmp_path / "a.npy").code == 0


def test_the_last_child_by_a_negative_number(run, tmp_path):
    (tmp_path / "a.json").write_text("[1, 2, [3, 4]]")
    assert run("get", tmp_path / "a.json", "[-1][-2]", "--json").json["value"] == 3
    assert "the root has 3 children, no child -4" in run("get", tmp_path / "a.json", "[-4]").err


def test_what_is_no_zip_is_not_taken_for_a_cut_one(run, tmp_path):
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    for form in ("zip", "npz", "pytorch"):
        ran = run("check", "-f", form, tmp_path / "a.json")
        assert ran.code == 4
        assert "it is no zip" in ran.out
        assert "resume" not in ran.out


def test_empty_lists_without_end_are_refused_and_structures_are_read_once(run, tmp_path, monkeypatch):
    path = tmp_path / "empty.safetensors"
    shapes = {"a": [1 << 40, 0], "b": [3, 0]}
    entries = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    path.write_bytes(safetensors(entries))
    ran = run("get", path, "a", "--json")
    assert (ran.code, "1,099,511,627,776 empty lists" in ran.err) == (2, True), ran.err
    assert run("get", path, "b", "--json").json["data"] == [[], [], []]
    many = np.zeros(4, [(f"f{number}", "u1") for number in range(300)])
    np.save(tmp_path / "s.npy", many)
    read = []
    real = pparse.Tensor.blocks
    monkeypatch.setattr(pparse.Tensor, "blocks", lambda *given, **more: read.append(1) or real(*given, **more))
    assert len(run("get", tmp_path / "s.npy", "--json").json["data"]) == 300
    assert len(read) < 5


def test_the_near_end_of_a_large_stream_is_looked_at_before_a_member_of_it_is_right(run, tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, size in (("first", 6 << 20), ("wanted", 600), ("last", 3 << 20)):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(b"x" * size))
    packed = bytearray(gzip.compress(content.getvalue(), 0))
    packed[-8] ^= 1  # of the CRC-32
    (tmp_path / "a.tar.gz").write_bytes(packed)
    ran = run("get", tmp_path / "a.tar.gz", "wanted", "-o", tmp_path / "out")
    assert (ran.code, "the checksum of the stream contradicts" in ran.err) == (4, True)
    assert (tmp_path / "out").read_bytes() == b"x" * 600
