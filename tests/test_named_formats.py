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


def test_a_zarr_folder_is_named(run, tmp_path):
    folder = tmp_path / "store.zarr"
    folder.mkdir()
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    ran = run("ls", folder)
    assert (ran.code, "a Zarr folder, which this version does not read yet" in ran.err) == (3, True)


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


@pytest.mark.parametrize("known", NAMED, ids=lambda known: known.name)
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


def test_the_readme_has_the_same_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S.*?) \|$", text[text.index("| not read yet |") :], re.MULTILINE)
    wanted = [(known.name, " ".join(known.extensions)) for known in NAMED]
    assert rows[: len(wanted)] == wanted


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
