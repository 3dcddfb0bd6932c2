"""Riegeli files in containers whose checksums contradict: what a chunk's own hash proves is not in doubt."""

from __future__ import annotations

import io
import json
import random
import zipfile

import pytest

import pparse
from pparse import Status
from pparse.cli import main
from pparse.data.base import BytesData
from pparse.data.range_status import Stretches
from pparse.data.spliced import HiddenData
from pparse.errors import MalformedError
from pparse.riegeli import RecordReader, RecordWriter
from tests.riegeli_fixtures import chunk_table
from tests.truth.salvaged import values_in
from tests.truth.samples import load
from tests.truth.samples_proto import read_chunked

RECORDS = [random.Random(5).randbytes(60) + bytes([number]) * 90 for number in range(60)]


def records_file(options: str) -> bytes:
    made = io.BytesIO()
    with RecordWriter(made, owns_dest=False, options=f"{options},chunk_size:1500") as writer:
        for record in RECORDS:
            writer.write_record(record)
    return made.getvalue()


def contradicted(name: str, content: bytes, then: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip whose member holds ``then``, with the checksum of ``content``."""
    zips = []
    for each in (content, then):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo(name), each, method)
        zips.append(made.getvalue())
    with zipfile.ZipFile(io.BytesIO(zips[0])) as archive:
        right = archive.infolist()[0].CRC.to_bytes(4, "little")
    with zipfile.ZipFile(io.BytesIO(zips[1])) as archive:
        wrong = archive.infolist()[0].CRC.to_bytes(4, "little")
    assert zips[1].count(wrong) == 2
    return zips[1].replace(wrong, right)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def in_data_of(content: bytes, number: int) -> int:
    """The place of a byte in the data of a chunk of records."""
    chunk = [chunk for chunk in chunk_table(content) if chunk.num_records][number]
    return chunk.begin + 40 + chunk.data_size // 2


def without_last(content: bytes) -> bytes:
    """A file whose last chunk is damaged, its header too."""
    begin = chunk_table(content)[-1].begin
    return flipped(flipped(content, in_data_of(content, -1)), begin + 20)


def recovered(tmp_path, archive: bytes, *options: str) -> dict[str, dict]:
    (tmp_path / "x.zip").write_bytes(archive)
    assert main(["recover", str(tmp_path / "x.zip"), "-o", str(tmp_path / "o"), "-q", *options]) == 4
    report = json.loads((tmp_path / "o/RECOVERY.json").read_text())
    return {entry["path"]: entry for entry in report["files"]}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("options", ["uncompressed", "brotli", "transpose,zstd"])
def test_records_that_a_hash_proves_are_saved_though_the_archive_contradicts(tmp_path, options, method):
    content = records_file(options)
    files = recovered(tmp_path, contradicted("r.riegeli", content, flipped(content, in_data_of(content, 2)), method))
    with RecordReader(str(tmp_path / "o/r.riegeli")) as reader:
        saved = list(reader)
    table = [chunk.num_records for chunk in chunk_table(content) if chunk.num_records]
    lost = range(sum(table[:2]), sum(table[:3]))
    assert saved == [record for number, record in enumerate(RECORDS) if number not in lost]
    assert files["r.riegeli"]["status"] == "damaged"
    (stretch,) = files["r.doubtful.riegeli"]["doubtful"]
    hit = [chunk for chunk in chunk_table(content) if chunk.num_records][2]
    assert stretch == [hit.begin + 40, hit.data_size]


def test_chunks_that_a_hash_proves_are_merged_though_the_archive_contradicts(tmp_path):
    sample = load("cpb-zstd")
    content = sample.content
    at = in_data_of(content, 3)
    archive = contradicted("graph.cpb", content, flipped(content, at))
    recovered(tmp_path, archive, f"-Omessage={sample.message}")
    alone = tmp_path / "alone.cpb"
    alone.write_bytes(flipped(content, at))
    assert main(["recover", str(alone), "-o", str(tmp_path / "p"), "-q", f"-Omessage={sample.message}"]) == 4
    got = read_chunked(tmp_path / "o/graph.cpb", sample.message)
    assert got == read_chunked(tmp_path / "p/alone.cpb", sample.message)
    assert got == values_in(sample, tmp_path / "o/graph.pb")
    assert len(got) >= len(sample.values) // 2
    assert all(sample.values[name].content == value for name, value in got.items())


def test_an_end_that_no_hash_proves_is_lost_and_not_cut_off_without_a_word(tmp_path):
    """What is before it is not the whole file: that has the name, and all of it another one."""
    content = records_file("brotli")
    files = recovered(tmp_path, contradicted("r.riegeli", content, without_last(content)))
    assert set(files) == {"r.riegeli", "r.riegeli.rest.json", "r.doubtful.riegeli"}
    with RecordReader(str(tmp_path / "o/r.riegeli")) as reader:
        saved = list(reader)
    lost = [chunk.num_records for chunk in chunk_table(content) if chunk.num_records][-1]
    assert saved == RECORDS[:-lost]


def test_chunks_whose_metadata_no_hash_proves_are_no_cpb(tmp_path):
    sample = load("cpb-plain")
    archive = contradicted("graph.cpb", sample.content, without_last(sample.content))
    files = recovered(tmp_path, archive, f"-Omessage={sample.message}")
    assert set(files) == {"graph.cpb.partial/chunks.riegeli", "graph.rest.json", "graph.doubtful.cpb"}


@pytest.mark.parametrize("name", ["r.riegeli", "graph.cpb"])
def test_a_file_of_which_every_chunk_proves_is_written_under_its_own_name(tmp_path, name):
    """Only the checksum of the archive was hit."""
    content = records_file("brotli") if name == "r.riegeli" else load("cpb-zstd").content
    other = flipped(content, len(content) // 2)
    files = recovered(tmp_path, contradicted(name, other, content))
    assert set(files) == {name}
    assert (tmp_path / "o" / name).read_bytes() == content
    assert files[name]["status"] == "damaged"
    assert "CRC-32" in files[name]["reason"]


def test_a_listing_calls_damaged_just_the_records_whose_chunk_the_hash_contradicts(tmp_path, capsys):
    content = records_file("brotli")
    (tmp_path / "x.zip").write_bytes(contradicted("r.riegeli", content, flipped(content, in_data_of(content, 2))))
    assert main(["ls", f"{tmp_path}/x.zip::r.riegeli", "--json"]) == 4
    rows = [row for row in json.loads(capsys.readouterr().out)["members"] if row["kind"] == "record"]
    hit = [chunk for chunk in chunk_table(content) if chunk.num_records][2]
    begin = str(hit.begin)
    assert {row["name"].split("/")[0] for row in rows if row["status"] == "damaged"} == {begin}
    assert {row["status"] for row in rows if row["name"].split("/")[0] != begin} == {"complete"}
    with pparse.open(f"{tmp_path}/x.zip::r.riegeli") as document:
        for chunk in document.root.children():
            for record in chunk.children() if chunk.shape == "list" else ():
                if str(chunk.key) == begin:
                    assert record.status is Status.DAMAGED
                    with pytest.raises(MalformedError):
                        record.load()
                else:
                    assert record.status is Status.COMPLETE
                    assert record.load() in RECORDS


def test_what_no_hash_covers_stays_in_doubt():
    """A block header inside a chunk has a hash of its own: where that contradicts, it is not proved with the chunk."""
    made = io.BytesIO()
    with RecordWriter(made, owns_dest=False, options="uncompressed,chunk_size:1M") as writer:
        for number in range(1000):
            writer.write_record(bytes([number % 251]) * 200)
    content = flipped(made.getvalue(), 65536 + 9)
    data = BytesData(content)
    data.condemn(0, len(content), "the checksum contradicts")
    with RecordReader(data, verify="all", recovery=lambda _region: True) as reader:
        assert len(list(reader)) == 1000
    assert data.suspect_ranges_in(0, len(content)) == [(65536, 65536 + 24)]


def test_what_was_not_confirmed_is_what_lies_between_proofs():
    proofs = Stretches()
    for start, end in ((10, 20), (30, 40), (50, 60)):
        proofs.add(start, end)
    assert proofs.without(0, 100) == [(0, 10), (20, 30), (40, 50), (60, 100)]
    assert proofs.without(15, 35) == [(20, 30)]
    assert proofs.without(10, 20) == []
    assert proofs.without(20, 30) == [(20, 30)]
    assert proofs.without(12, 12) == []


def test_a_stored_record_with_a_gap_is_damaged_and_its_neighbours_are_not():
    made = io.BytesIO()
    with RecordWriter(made, owns_dest=False, options="uncompressed,chunk_size:1M") as writer:
        for number in range(100):
            writer.write_record(bytes([number]) * 200)
    at = made.getvalue().index(bytes([50]) * 200)
    data = HiddenData(BytesData(made.getvalue()), [(at + 20, at + 40)])
    with pparse.open(data) as document:
        (chunk,) = [kid for kid in document.root.children() if kid.shape == "list"]
        for number, record in enumerate(chunk.children()):
            if number == 50:
                assert record.status is Status.DAMAGED
                with pytest.raises(MalformedError):
                    record.load()
            else:
                assert record.status is Status.COMPLETE
                assert record.load() == bytes([number]) * 200
