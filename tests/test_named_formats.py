"""Formats that are not read yet are recognised by their bytes, named, and stand in one table."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

import pparse
from pparse.document.named_formats import NAMED, named, named_as
from pparse.document.registry import BUILTINS, import_dotted
from tests.rows import rows

ROOT = Path(__file__).resolve().parent.parent

# The first bytes of real files, as their own libraries write them.
FILES = {
    "ort": struct.pack("<I", 28) + b"ORTM" + bytes.fromhex("14002000") + bytes(range(200)),
    "tflite": struct.pack("<I", 28) + b"TFL3" + bytes.fromhex("14002000") + bytes(range(200)),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "joblib-zfile": b"ZF0x412" + b" " * 14 + zlib.compress(bytes(1042)),
}


# The same of formats that are no models, or are rare: enough of their first bytes.
HEADS = {
    "executorch": bytes.fromhex("30000000") + b"ET12",
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
    "sentencepiece": b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02",
    "tiktoken": b"IQ== 0\nIg== 1\n",
    "xgboost": b"binf" + bytes(40),
    "ubjson": b"{L" + struct.pack(">q", 7) + b"learner{",
    "lightgbm": b"tree\nversion=v4\nnum_class=1\n",
    "catboost": b"CBM1" + bytes(12),
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
    "coreml-package": ["Manifest.json", "Data/x.mlmodel"],
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
            assert named(content[:64], content[-8:]) is None, path


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
        "A zip that holds a model that is not read (.pt2, Keras) is said to; its members are read.",
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
    "a PyTorch exported program (.pt2)": ("m/archive_format", "m/models/model.json", "m/data/weights/weight_0"),
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
