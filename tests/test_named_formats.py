"""Formats that are not read yet are recognised by their bytes, named, and stand in one table."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

import pparse
from pparse.document.appearance import NAMED, named, named_as
from pparse.document.appearance import words as words_of
from pparse.document.registry import BUILTINS, import_dotted
from tests.rows import rows

ROOT = Path(__file__).resolve().parent.parent

# The first bytes of real files, as their own libraries write them.
FILES = {
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "joblib-zfile": b"ZF0x412" + b" " * 14 + zlib.compress(bytes(1042)),
}


# The same of formats that are no models, or are rare: enough of their first bytes.
HEADS = {
    "ggml": b"lmgg" + bytes.fromhex("007d0000"),
    "imatrix": struct.pack("<II", 224, 18) + b"blk.0.attn_output.weight",
    "tensorrt": b"ftrt" + bytes(20),
    "mlir": b"ML\xefR\x0d",
    "llvm-bitcode": b"BC\xc0\xde5\x14",
    "ncnn-param": b"7767517\n75 83\nInput data 0 1 data\n",
    "ncnn-binary": bytes.fromhex("dd857600"),
    "openvino": b'<?xml version="1.0"?>\n<net name="torch_jit" version="11">',
    "mxnet": struct.pack("<QQQ", 0x112, 0, 9),
    "darknet": struct.pack("<iiiq", 0, 2, 5, 32_013_312),
    "fasttext": struct.pack("<ii", 793_712_314, 12),
    "tiktoken": b"IQ== 0\nIg== 1\n",
    "xgboost": b"binf" + bytes(40),
    "ubjson": b"{L" + struct.pack(">q", 7) + b"learner{",
    "lightgbm": b"tree\nversion=v4\nnum_class=1\n",
    "faiss": b"IxF2" + struct.pack("<I", 128),
    "parquet": b"PAR1\x15\x04\x15",
    "arrow": b"ARROW1\0\0\xff\xff\xff\xff",
    "arrow-stream": b"\xff\xff\xff\xff\x78\1\0\0\x10\0\0\0",
    "orc": b"ORC\x11\0\0",
    "avro": b"Obj\1\x04\x14avro.codec",
    "sqlite": b"SQLite format 3\0" + struct.pack(">HBBBBBBII", 4096, 1, 1, 0, 64, 32, 32, 1, 3) + bytes(40),
    "duckdb": bytes(8) + b"DUCK" + struct.pack("<Q", 64),
    "lmdb": bytes(8) + struct.pack("<HHHHII", 0, 8, 0, 0, 0xBEEFC0DE, 1),
    "cbor": b"\xd9\xd9\xf7\xa1aa\1",
    "bson": struct.pack("<i", 22) + b"\x07_id\0" + bytes(range(12)) + b"\0",
    "netcdf": b"CDF\1" + bytes(8),
    "matlab": b"MATLAB 5.0 MAT-file, Platform: posix",
    "rdata": b"RDX3\nX\n\0\0\0\3",
    "fits": b"SIMPLE  =                    T",
    "pcap": struct.pack("<IHH", 0xA1B2C3D4, 2, 4),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4" + struct.pack("<IQQI", 1, 1_000, 50, 1),
    "rar": b"Rar!\x1a\7\1\0",
    "lzip": b"LZIP\1\x0c",
    "lzop": b"\x89LZO\0\r\n\x1a\n\x10",
    "compress": b"\x1f\x9d\x90abc",
    "cpio": b"070701" + b"0" * 104,
    "ar": b"!<arch>\ndebian-binary   ",
    "rpm": b"\xed\xab\xee\xdb\3\0",
    "cab": b"MSCF" + struct.pack("<III", 0, 500, 0) + bytes(20),
    "xar": b"xar!\0\x1c\0\1",
    "squashfs": b"hsqs" + bytes(36) + struct.pack("<Q", 9_000) + bytes(20),
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "gif": b"GIF89a\x10\0",
    "tiff": b"II*\0\x08\0\0\0",
    "webp": b"RIFF" + struct.pack("<I", 4_000) + b"WEBPVP8 " + bytes(20),
    "wav": b"RIFF" + struct.pack("<I", 4_000) + b"WAVEfmt " + bytes(20),
    "flac": b"fLaC\0\0\0\x22",
    "ogg": b"OggS\0\2",
    "mp4": b"\0\0\0\x20ftypisom",
    "matroska": b"\x1aE\xdf\xa3\x9f",
    "pdf": b"%PDF-1.7\n",
    "ole": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "elf": b"\x7fELF\2\1\1",
    "wasm": b"\0asm\1\0\0\0",
}
FOLDERS = {
    "zarr": [".zgroup"],
    "orbax": ["_CHECKPOINT_METADATA", "_METADATA"],
    "leveldb": ["CURRENT", "LOCK", "MANIFEST-000004"],
}
# What the headers tell of the whole size.
SIZES = {"sqlite": 12_288, "7z": 1_082, "cab": 500, "squashfs": 9_000, "webp": 4_008, "wav": 4_008}


def test_every_named_format_has_a_sample():
    assert {known.name for known in NAMED} == {*FILES, *HEADS, *FOLDERS}


@rows("name", HEADS)
def test_what_is_no_model_is_named_by_its_bytes(name):
    with pytest.raises(pparse.FormatError, match=re.escape(named_as(name).what)) as caught:
        pparse.open(HEADS[name] + bytes(range(1, 200))).parse()
    size = SIZES.get(name)
    assert ("it is cut" in str(caught.value)) == (size is not None)
    assert size is None or f"of the {size:,} bytes that its header tells" in str(caught.value)


@rows("name", FILES)
@rows("suffix", ["", ".bin", ".safetensors", ".pkl", ".gz"])
def test_what_is_not_read_yet_is_named_by_its_bytes(run, tmp_path, name, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(FILES[name])
    known = named_as(name)
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code == 3
        assert known.what in ran.err, ran.err
        assert "which this version does not read yet" in ran.err


@rows("name", FOLDERS)
def test_a_folder_is_named_by_what_is_in_it(run, tmp_path, name):
    folder = tmp_path / name
    for member in FOLDERS[name]:
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (folder / member).write_bytes(b"{}")
    ran = run("ls", folder)
    assert (ran.code, f"{named_as(name).what}, which this version does not read yet" in ran.err) == (3, True), ran.err


def test_files_that_are_read_are_not_named_as_others(samples):
    for path in (ROOT / "docs" / "samples").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".json") and path.name != "reading.binpb":
            content = path.read_bytes()
            assert named(content[:64]) is None, path


def test_formats_lists_what_the_parsers_say_and_then_what_is_not_read(run):
    parsers = [import_dotted(known.parser) for known in BUILTINS]
    shown = [(found.name, " ".join(found.extensions) or "-", "built in", found.description) for found in parsers]
    named = [(known.name, " ".join(known.extensions), known.told_by, known.what) for known in NAMED]
    ran = run("formats")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [
        *table(("NAME", "FILES", "FROM", "WHAT"), *shown),
        "Recognised and named, but not read yet:",
        *table(("NAME", "FILES", "TOLD BY", "WHAT"), *named),
        "A zip that holds a model that is not read (Keras) is said to; its members are read.",
        "'pparse formats NAME' shows options, limitations and references of a format",
    ]
    assert [row["name"] for row in run("formats", "--json").json["named"]] == [known.name for known in NAMED]


def table(*lines: tuple[str, ...]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in lines]


@rows("known", NAMED)
def test_formats_says_of_one_that_is_not_read_what_it_is_and_what_reads_it(run, known):
    ran = run("formats", known.name)
    assert (ran.code, ran.err) == (0, "")
    assert f"{known.what}, which this version does not read yet" in ran.out
    assert f"read by      {known.read_by}" in ran.lines
    assert run("formats", known.name, "-q").lines == [known.name]
    assert words_of(known).endswith(f"read by {known.read_by}"), "in Python, where nobody runs the command"
    assert run("formats", known.name, "--json").json["named"] == [known.to_dict()]
    assert known.read_by
    for extension in known.extensions:
        assert run("formats", extension).out == run("formats", extension[1:].upper()).out == ran.out


def test_formats_knows_a_format_that_is_read_by_its_extension_too(run):
    assert run("formats", "tgz").out == run("formats", ".gz").out == run("formats", "gzip").out
    assert run("formats", "whl").lines[0].split() == ["name", "zip"]
    ran = run("formats", "gguff")
    assert (ran.code, "did you mean 'gguf'" in ran.err) == (3, True)


@pytest.mark.parametrize("name", [*FILES, "lfs"])
def test_recover_does_not_ask_for_the_format_of_a_file_that_it_names(run, tmp_path, name):
    path = tmp_path / "x.model"
    path.write_bytes(FILES.get(name, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"))
    ran = run("recover", path, "-o", tmp_path / "out")
    assert ran.code == 3
    assert "-f" not in ran.err
    path.write_bytes(b"some text that nobody knows\n" * 9)
    assert "name the format with -f" in run("recover", path, "-o", tmp_path / "out").err


def test_the_readme_has_the_same_names():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.index("Recognised and named, but not read yet")
    told = re.findall(r"`([^`]+)`", text[start : text.index("\n\n", start)])
    assert [name for name in told if not name.startswith("pparse")] == [known.name for known in NAMED]


def zipped(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, b"\x80\x02}q\0.")
    return made.getvalue()


HELD = {
    "a Keras model": ("metadata.json", "config.json", "model.weights.h5"),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("cut", [0, 30])
def test_a_zip_that_holds_a_model_says_so(run, tmp_path, held, cut):
    path = tmp_path / "model.pt"
    content = zipped(*HELD[held])
    path.write_bytes(content[: len(content) - cut])
    words = f"{held}, whose tensors this version does not read yet"
    assert f"holds       {words}" in run("info", path).lines
    assert f"it holds {words}" in run("ls", path).lines
    with pytest.raises(pparse.UnsupportedError, match=re.escape(f"it holds {words}")):
        pparse.view(path)


def test_any_other_zip_says_nothing_of_models(run, tmp_path):
    path = tmp_path / "texts.zip"
    path.write_bytes(zipped("readme.txt", "a.npy"))
    assert "holds" not in run("info", path).out + run("ls", path).out


def saved(array: bytes, name: str = "hello.txt") -> bytes:
    """Return a zip archive with one member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, array)
    return out.getvalue()


NPY = b"\x93NUMPY\1\0v\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n\0\0\x80?"
SAFETENSORS = struct.pack("<Q", 56) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(56) + bytes(4)
GRAPH_TEXT = b'node {\n  name: "x"\n  op: "NoOp"\n}\n'
GRAPH = b"\n\x09\n\1x\x12\x04NoOp"
SAVED_MODEL = b"\x08\1\x12" + bytes((len(GRAPH) + 2,)) + b"\x12" + bytes((len(GRAPH),)) + GRAPH


@rows(
    "name, content, format, told",
    [
        ("m.safetensors", pickle.dumps({"a": 1}), "pickle", "it is named like safetensors, but is pickle ("),
        ("m.safetensors", NPY, "npy", "it is named like safetensors, but is npy (numpy array), and read as that"),
        ("m.bin", saved(b"hi"), "zip", "it is named like pytorch, but is zip ("),
        ("m.bin", SAFETENSORS, "safetensors", "it is named like pytorch, but is safetensors ("),
        ("m.safetensors.gz", gzip.compress(NPY), "gzip", "it is named like safetensors, but is npy ("),
        ("m.pth.tar", saved(b"", "archive/data.pkl"), "pytorch", None),
        ("m.joblib", gzip.compress(pickle.dumps({"a": 1})), "gzip", None),  # compressed by joblib
        ("m.zip", saved(NPY, "a.npy"), "npz", None),  # a zip all the same
        ("m.safetensors.part", SAFETENSORS, "safetensors", None),
        ("m.of_nobody", NPY, "npy", None),
        ("m.pb", SAVED_MODEL, "saved-model", "and such a file is called saved_model.pb"),
        ("m.meta", SAVED_MODEL, "saved-model", "it is named like meta-graph, but is saved-model ("),
        ("saved_model.pb", SAVED_MODEL, "saved-model", None),
        ("saved_model.pb", GRAPH, "graph-def", "it is named like saved-model, but is graph-def ("),
        ("saved_model.pb", GRAPH_TEXT, "tensorflow-text", "it is named like saved-model, but is tensorflow-text ("),
        ("graph.pb", GRAPH_TEXT, "tensorflow-text", "and such a file is called *.pbtxt"),
        ("graph.pb", GRAPH, "graph-def", None),
    ],
)
def test_a_name_that_belies_the_content_is_told_once(tmp_path, name, content, format, told):
    path = tmp_path / name
    path.write_bytes(content)
    for source in (path, [saved(content, name)]):
        with pparse.open(source) as outer:
            document = outer if source == path else outer.result.container.enter(name)
            result = document.own_result
            found = [finding for finding in document.parsed.result.findings if finding.code == "misnamed"]
            assert result.format == format
            assert [str(finding.severity) for finding in found] == ["note"] * (told is not None)
            assert told is None or told in found[0].reason
    with pparse.open(path, format=format) as document:
        assert not [finding for finding in document.findings if finding.code == "misnamed"]


@rows("content, format", [(GRAPH, "graph-def"), (GRAPH_TEXT, "graph-def"), (SAVED_MODEL, "saved-model-folder")])
def test_a_folder_whose_saved_model_is_something_else_is_opened_as_that(tmp_path, run, content, format):
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pparse.open(tmp_path) as document:
        assert document.result.format == format
    for words in (("ls",), ("info",), ("check",)):
        ran = run(*words, tmp_path)
        assert (ran.code, (ran.out + ran.err).count("misnamed")) == (0, content is not SAVED_MODEL), words


def test_a_folder_with_a_saved_model_as_text_under_the_name_of_a_message_is_read(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"saved_model_schema_version: 1\nmeta_graphs {\n  graph_def {\n  }\n}\n")
    with pparse.open(tmp_path) as document:
        assert document.result.format == "saved-model-folder"
        assert document.get("meta_graphs[0].graph_def") is not None
        assert [finding.code for finding in document.findings] == ["misnamed"]
