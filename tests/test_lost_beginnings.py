"""Riegeli files whose beginning is lost, or all of which is: they are known for what they are, and nobody calls them
whole."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile

import pytest

import pparse
from pparse import Status
from pparse.cli import main
from pparse.riegeli import RecordReader, RecordWriter
from tests.truth.samples import load
from tests.truth.samples_proto import read_chunked


def in_a_tar(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def verdicts(tmp_path, archive: bytes, *options: str) -> dict[str, dict]:
    """What recover wrote of an archive, after check and recover agreed that it is not whole."""
    (tmp_path / "x.tar").write_bytes(archive)
    assert main(["check", "-R", "-q", str(tmp_path / "x.tar"), *options]) == 4
    assert main(["recover", "-q", str(tmp_path / "x.tar"), "-o", str(tmp_path / "o"), *options]) == 4
    report = json.loads((tmp_path / "o/RECOVERY.json").read_text())
    return {entry["path"]: entry for entry in report["files"]}


@pytest.mark.parametrize("lost", [64, 512, 4096])
@pytest.mark.parametrize("name", ["cpb-plain", "cpb-zstd", "cpb-transposed"])
def test_a_cpb_in_a_tar_whose_beginning_is_zeros_is_damaged(tmp_path, name, lost):
    sample = load(name)
    content = bytes(lost) + sample.content[lost:]
    files = verdicts(tmp_path, in_a_tar(sample.file, content), f"-Omessage={sample.message}")
    assert all(entry["status"] != "complete" for path, entry in files.items() if not path.endswith(".pb"))
    if sample.file in files:
        got = read_chunked(tmp_path / "o" / sample.file, sample.message)
        assert all(sample.values[each].content == value for each, value in got.items())
    else:
        assert all(".partial/" in path or path.endswith(".rest.json") for path in files)


def test_a_cpb_that_lacks_its_signature_alone_loses_no_chunk(tmp_path):
    sample = load("cpb-zstd")
    verdicts(tmp_path, in_a_tar(sample.file, bytes(64) + sample.content[64:]), f"-Omessage={sample.message}")
    got = read_chunked(tmp_path / "o" / sample.file, sample.message)
    assert {name: value.content for name, value in sample.values.items()} == got


@pytest.mark.parametrize("lost", [70_000, 140_000, 300_000])
def test_records_behind_a_lost_beginning_of_several_blocks_are_saved(tmp_path, lost):
    made = io.BytesIO()
    with RecordWriter(made, owns_dest=False, options="uncompressed,chunk_size:5000") as writer:
        for number in range(4000):
            writer.write_record(bytes([number % 251]) * 100)
    verdicts(tmp_path, in_a_tar("r.riegeli", bytes(lost) + made.getvalue()[lost:]))
    with RecordReader(str(tmp_path / "o/r.riegeli")) as reader:
        saved = list(reader)
    assert len(saved) > (len(made.getvalue()) - lost - 65536) // 110
    assert set(saved) <= {bytes([number]) * 100 for number in range(251)}


def test_zeros_under_the_name_of_a_cpb_are_no_whole_file(tmp_path):
    files = verdicts(tmp_path, in_a_tar("m.cpb", bytes(5000)))
    assert list(files) == ["m.cpb.partial/as-found.bin"]
    # Nor under that of any other model; noise is none under a name that nothing else has.
    for name, content in (("m.index", bytes(5000)), ("m.onnx", b"\xfe\x01" * 999), ("m.pt", b"\xfe\x01" * 999)):
        folder = tmp_path / name
        folder.mkdir()
        assert list(verdicts(folder, in_a_tar(name, content))) == [f"{name}.partial/as-found.bin"]
        assert (folder / f"o/{name}.partial/as-found.bin").read_bytes() == content
    with pytest.raises(pparse.FormatError, match="fe 01"):  # no file names itself
        pparse.open(f"{tmp_path}/m.onnx/x.tar::m.onnx").parse()


def test_another_file_that_has_the_name_of_a_cpb_is_left_alone(tmp_path):
    noise = b"\x01\x02\x03\x04 pages and pictures \xfe" * 500
    pointer = b"version https://git-lfs"
    others = ("comic.cpb", noise), ("w.index", noise), ("m.onnx", b"./x\n"), ("m.safetensors", pointer)
    for name, content in others:
        (tmp_path / "x.tar").write_bytes(in_a_tar(name, content))
        assert main(["check", "-R", "-q", str(tmp_path / "x.tar")]) == 0
        assert main(["recover", "-q", str(tmp_path / "x.tar"), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name / name).read_bytes() == content


def test_a_file_that_is_a_gap_to_its_end_is_no_row_of_gaps(tmp_path):
    """A zip that ends shortly behind the header of a member."""
    content = load("riegeli-brotli").content
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.riegeli", content)
    (tmp_path / "x.zip").write_bytes(made.getvalue()[: 30 + len("r.riegeli") + 15])
    with pparse.open(f"{tmp_path}/x.zip::r.riegeli") as document:
        assert document.root.status is Status.MISSING
        assert list(document.root.children()) == []
        assert len(list(document.check())) <= 3


def test_a_zip_that_lost_its_first_header_and_its_directory_is_known_by_the_next_header(tmp_path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.bin", "b.csv", "c.txt"):
            archive.writestr(name, "".join(f"{name} {number}\n" for number in range(9000)))
    content = made.getvalue()
    content = content[:6] + bytes(4096) + content[4102 : content.index(b"PK\1\2") - 40]
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    assert main(["check", "-R", "-q", str(path)]) == 4
    assert main(["recover", "-q", str(path), "-o", str(tmp_path / "o")]) == 4
    assert (tmp_path / "o/b.csv").read_text() == "".join(f"b.csv {number}\n" for number in range(9000))
