"""The commands on Riegeli files: whole, cut, damaged, and files that are something else."""

from __future__ import annotations

import hashlib
import json

import pytest

from pparse.riegeli import RecordReader, RecordsMetadata, RecordWriter
from tests import sweep
from tests.riegeli_damage import Edit, apply, flip, forged, sound
from tests.riegeli_fixtures import BLOCK, chunk_table, manifest, raw, records

COMMANDS = ("ls", "tree", "info", "check", "get")


@pytest.fixture
def file(tmp_path):
    """Write bytes under a name; return the path."""

    def write(data: bytes, name: str = "it.riegeli"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def station(tmp_path):
    """Metadata, a compressed chunk, an uncompressed one, and a transposed one."""
    path = tmp_path / "station.riegeli"
    metadata = RecordsMetadata(file_comment="a comment", record_type_name="a.Type", num_records=6)
    for number, options in enumerate(("zstd", "uncompressed", "transpose,snappy")):
        with RecordWriter(path, options=options, metadata=metadata, append=number > 0) as writer:
            writer.write_records([b"record %d" % (2 * number), b"record %d" % (2 * number + 1) * 5])
    return path


def contents(path) -> dict[str, bytes]:
    """The records of a file by their positions."""
    found = {}
    with RecordReader(path) as reader:
        while (record := reader.read_record()) is not None:
            found[str(reader.last_pos)] = record
    return found


def chunks_of(path) -> list:
    return [chunk for chunk in chunk_table(path.read_bytes()) if chunk.num_records]


# -- whole files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sweep.part(name for name in manifest() if not name.startswith("many_empty_boundary")))
def test_every_command_on_every_file(name, run, file):
    path = file(raw(name))
    listed = run("ls", path, "--json")
    assert listed.code == 0
    rows = [row for row in listed.json["members"] if row["kind"] == "record"]
    assert [(row["name"], row["size"]) for row in rows] == [(record.pos, record.size) for record in records(name)]
    assert {row["status"] for row in rows} <= {"complete"}
    for command in ("ls", "tree", "info", "check"):
        ran = run(command, path)
        assert (ran.code, ran.err) == (0, ""), command
        assert ran.out
    assert run("check", path, "--json").json["findings"] == []


def test_ls_lists_the_metadata_and_every_record(run, station):
    ran = run("ls", station)
    assert (ran.code, ran.err) == (0, "")
    names = [line.split("  ")[0].strip() for line in ran.lines[1:-1]]
    assert names == ["metadata", *contents(station)]
    assert "6 records" in ran.lines[-1]
    assert "riegeli" in ran.lines[-1]
    assert run("ls", station, "-q").lines == names
    first = names[1].partition("/")[0]
    assert run("ls", station, f"{first}/*", "-q").lines == names[1:3]
    assert [row["name"] for row in run("ls", station, "--jsonl").jsonl if "name" in row] == names


def test_every_name_that_ls_prints_works(run, station, tmp_path):
    found = contents(station)
    for name in run("ls", station, "-q").lines:
        ran = run("get", station, name)
        assert (ran.code, ran.err) == (0, ""), name
        if name == "metadata":
            continue
        assert ran.out.strip() == found[name].hex()
        out = tmp_path / "out"
        assert run("get", station, name, "--raw", "-o", out).code == 0
        assert out.read_bytes() == found[name]
        node = "[{}][{}]".format(*name.split("/"))
        assert run("get", station, node).out == ran.out
        assert run("get", station, name, "--json").code == 0


def test_get_and_info_show_the_metadata(run, station):
    assert json.loads(run("get", station, "metadata").out) == {
        "file_comment": "a comment",
        "record_type_name": "a.Type",
        "num_records": 6,
    }
    assert run("get", station, "metadata.file_comment").out == "a comment\n"
    found = run("info", station, "--json").json
    assert found["metadata"] == {"file_comment": "a comment", "record_type_name": "a.Type", "num_records": 6}
    text = run("info", station).out
    for words in ("file_comment = a comment", "record_type_name = a.Type", "num_records = 6"):
        assert words in text


def test_the_details_in_json_are_those_in_words(run, station):
    """One key for several lines: none may be lost."""
    words = [line.split(None, 1) for line in run("info", station).lines]
    found = run("info", station, "--json").json
    everything = json.dumps(found, ensure_ascii=False)
    for key, value in words:
        if key == "metadata":
            name, _, text = value.partition(" = ")
            assert str(found["metadata"][name]) == text
            details = found["details"].get("metadata", [])
            assert value in details or "metadata" not in found["details"]
        elif key in found["details"]:
            assert value in everything


def test_tree_shows_chunks_with_their_bytes_and_records(run, station):
    ran = run("tree", station)
    assert (ran.code, ran.err) == (0, "")
    chunks = chunks_of(station)
    for chunk, kind in zip(chunks, ("simple", "simple", "transposed"), strict=True):
        assert f"  {chunk.begin}: {kind} […]  [0x{chunk.begin:x}..0x{chunk.end:x})" in ran.lines
    assert sum("record" in line and "[" in line.split(":")[0] for line in ran.lines) == 6
    found = run("tree", station, f"[{chunks[1].begin}]", "--json").json
    assert json.dumps(found).count('"record"') == 2


# -- cut files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cut(station):
    """The last byte of the uncompressed chunk's second record is lost, and all behind it."""
    chunk = chunks_of(station)[1]
    path = station.with_name("cut.riegeli")
    path.write_bytes(station.read_bytes()[: chunk.end - 1])
    return path


def test_a_cut_file(run, cut, station):
    first, second, _ = chunks_of(station)
    listed = run("ls", cut, "--json")
    assert listed.code == 4
    found = json.loads(listed.out)
    assert [(row["name"], row["status"]) for row in found["members"] if row["kind"] == "record"] == [
        (f"{first.begin}/0", "complete"),
        (f"{first.begin}/1", "complete"),
        (f"{second.begin}/0", "complete"),
        (f"{second.begin}/1", "truncated"),
    ]
    assert found["status"] == "truncated"
    assert [finding["code"] for finding in found["findings"]] == ["truncated"]
    for command in ("ls", "tree", "info", "check"):
        ran = run(command, cut)
        assert ran.code == 4, command
        assert "1 byte" in ran.out + ran.err, command
    checked = json.loads(run("check", cut, "--json").out)
    assert (checked["ok"], checked["missing_bytes"], checked["resume_at"]) == (False, 1, cut.stat().st_size)


def test_what_is_left_of_a_cut_record(run, cut, station, tmp_path):
    name = f"{chunks_of(station)[1].begin}/1"
    content = contents(station)[name]
    ran = run("get", cut, name)
    assert (ran.code, ran.out) == (4, "")
    assert f"wanted {len(content)}, got {len(content) - 1}" in ran.err
    out = tmp_path / "part"
    assert run("get", cut, name, "--raw", "-o", out).code == 4
    assert out.read_bytes() == content[:-1]
    whole = f"{chunks_of(station)[1].begin}/0"
    assert run("get", cut, whole).out.strip() == contents(station)[whole].hex()
    assert run("get", cut, f"{chunks_of(station)[2].begin}/0").code == 2


def test_a_file_cut_at_every_byte(run, station):
    """No traceback, and an exit code that says what is wrong."""
    data = station.read_bytes()
    ends = {0} | {chunk.end for chunk in chunk_table(data)}
    for size in sweep.some(range(len(data) + 1), 4, keep=ends, ends=24):
        path = station.with_name("part.riegeli")
        path.write_bytes(data[:size])
        for command in ("ls", "check"):
            ran = run(command, path)
            expected = 0 if size in ends else 4
            assert ran.code == expected or size == 0, (size, command, ran.err)
            assert "Traceback" not in ran.err


# -- damaged files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(station):
    """The header of the uncompressed chunk is overwritten."""
    chunk = chunks_of(station)[1]
    path = station.with_name("damaged.riegeli")
    path.write_bytes(apply(station.read_bytes(), Edit(chunk.begin + 8, 16, b"0123456789abcdef")))
    return path


def test_a_damaged_file(run, damaged, station, tmp_path):
    first, hit, last = chunks_of(station)
    ran = run("ls", damaged)
    assert ran.code == 4
    names = run("ls", damaged, "-q").lines
    assert names == [
        "metadata",
        f"{first.begin}/0",
        f"{first.begin}/1",
        f"gap {hit.begin}",
        f"{last.begin}/0",
        f"{last.begin}/1",
    ]
    row = next(row for row in json.loads(run("ls", damaged, "--json").out)["members"] if row["kind"] == "gap")
    assert (row["size"], row["status"]) == (hit.end - hit.begin, "damaged")
    for command in ("ls", "tree", "info", "check"):
        ran = run(command, damaged)
        assert ran.code == 4, command
        assert f"[{hit.begin}] @0x{hit.begin:x}+{hit.end - hit.begin}: chunk header hash mismatch" in ran.out + ran.err
    found = contents(station)
    for name in names:
        ran = run("get", damaged, name)
        if name.startswith("gap"):
            assert (ran.code, ran.out) == (4, "")
            out = tmp_path / "gap"
            run("get", damaged, name, "--raw", "-o", out)
            assert out.read_bytes() == damaged.read_bytes()[hit.begin : hit.end]
        elif name != "metadata":
            assert (ran.code, ran.out.strip()) == (0, found[name].hex())
    ran = run("get", damaged, f"{hit.begin}/0")
    assert (ran.code, ran.out) == (4, "")
    assert "chunk header hash mismatch" in ran.err


def test_a_chunk_of_which_nothing_can_be_listed(run, station):
    """A transposed chunk that is cut has a line of its own, and that line has a name that works."""
    data = station.read_bytes()
    path = station.with_name("short.riegeli")
    path.write_bytes(data[:-3])
    last = chunks_of(station)[-1]
    names = run("ls", path, "-q").lines
    assert names[-1] == f"chunk {last.begin}"
    ran = run("get", path, names[-1])
    assert ran.code == 4
    assert "Traceback" not in ran.err
    assert run("get", path, f"{last.begin}/0").code == 4


def test_check_finds_a_flipped_byte_of_the_data(run, station):
    for chunk in chunks_of(station):
        path = station.with_name("flipped.riegeli")
        path.write_bytes(apply(station.read_bytes(), flip(station.read_bytes(), chunk.data_end - 2, 4)))
        assert run("ls", path).code in (0, 4)
        ran = run("check", path)
        assert ran.code == 4
        assert f"hash [{chunk.begin}] @0x{chunk.begin:x}: chunk data hash mismatch" in ran.out + ran.err
        [finding] = json.loads(run("check", path, "--json").out)["findings"]
        assert (finding["code"], finding["severity"], finding["path"], finding["offset"]) == (
            "hash",
            "error",
            f"[{chunk.begin}]",
            chunk.begin,
        )


def test_a_flipped_bit_is_noticed_unless_only_headers_are_verified(run, station):
    chunk = chunks_of(station)[1]
    path = station.with_name("flipped.riegeli")
    path.write_bytes(apply(station.read_bytes(), flip(station.read_bytes(), chunk.data_end - 1, 1)))
    name = f"{chunk.begin}/1"
    for words in ((), ("-O", "verify=touched"), ("-O", "verify=all")):
        ran = run("get", path, name, *words)
        assert (ran.code, ran.out) == (4, ""), words
        assert "read it anyway with -O verify=headers" in ran.err
    ran = run("get", path, name, "-O", "verify=headers")
    assert (ran.code, ran.err) == (0, "")
    true = contents(station)[name]
    assert bytes.fromhex(ran.out) == true[:-1] + bytes((true[-1] ^ 1,))
    ran = run("get", path, name, "-O", "verify=some")
    assert ran.code == 2
    assert "headers, touched, all" in ran.err


def test_a_file_whose_beginning_is_lost(run, file):
    path = file(raw("blocks_uncompressed")[BLOCK:])
    ran = run("ls", path)
    assert ran.code == 4
    whole = sound(raw("blocks_uncompressed"))
    lost = whole.chunks[1].end - BLOCK
    assert run("ls", path, "-q").lines[1:] == [f"{begin - BLOCK}/{index}" for begin, index, _ in whole.records[1:]]
    assert f"gap 0  {'gap':<6}" in ran.out or "gap 0" in ran.out
    assert f"+{lost}: " in ran.out + ran.err


def test_an_unknown_compression(run, file):
    path = file(forged(("r", b"\x7f\x01\x01x", 1, 1)))
    ran = run("check", path)
    assert ran.code == 4
    assert "unknown compression type 0x7f" in ran.out + ran.err
    assert "Traceback" not in ran.err


# -- something else --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"no records at all\n" * 20, b"\0" * 200, b"{}"], ids=["text", "zeros", "json"])
def test_a_file_of_something_else(content, run, file):
    """Its name says what it is not."""
    path = file(content)
    for command in ("ls", "tree", "info", "check"):
        ran = run(command, path)
        assert ran.code in (0, 3, 4), command
        if content != b"{}":
            assert ran.code != 0, command
        assert "Traceback" not in ran.err
        said = ran.out + ran.err
        assert content == b"{}" or "Riegeli" in said or "recognises" in said or "recognized" in said


def test_a_file_that_is_forced_to_be_read_as_one(run, file):
    path = file(b"no records at all\n" * 20, "it.txt")
    ran = run("check", path, "-f", "riegeli")
    assert ran.code in (3, 4)
    assert "Riegeli" in ran.out + ran.err


def test_an_empty_file(run, file):
    path = file(b"")
    for command in ("ls", "check"):
        ran = run(command, path)
        assert ran.code in (0, 3, 4)
        assert "empty" in ran.out + ran.err


def test_positions_that_lead_nowhere(run, station):
    first = chunks_of(station)[0]
    ran = run("get", station, f"{first.begin}/2")
    assert (ran.code, ran.out) == (2, "")
    assert "has 2 records" in ran.err
    ran = run("get", station, f"{first.begin + 1}/0")
    assert (ran.code, ran.out) == (2, "")
    assert f"{first.begin}/0" in ran.err  # what is near
    for nonsense in ("x/y", "1/", "/1", "-1/0", "99999999999999999999999/0", "gap x", "gap 1", "chunk 5"):
        ran = run("get", station, nonsense)
        assert ran.code == 2, nonsense
        assert "Traceback" not in ran.err


def test_a_budget_that_is_too_small_says_what_would_do(run, tmp_path):
    path = tmp_path / "large.riegeli"
    with RecordWriter(path, options="transpose,snappy,chunk_size:4M") as writer:
        writer.write_records([b"." * 500_000] * 4)
    ran = run("get", path, "64/1", "--budget", "2MiB")
    assert ran.code == 2
    assert "lift it with --budget" in ran.err
    needed = ran.err.rpartition("--budget ")[2].split()[0]
    assert run("get", path, "64/1", "--budget", needed, "--raw", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == b"." * 500_000
    for command in ("check", "ls"):
        ran = run(command, path, "--budget", "2MiB")
        assert ran.code in (2, 4)
        assert "lift it with --budget" in ran.out + ran.err


def test_a_large_record_is_streamed_to_a_file(run, tmp_path):
    path = tmp_path / "large.riegeli"
    content = bytes(range(256)) * 20_000
    with RecordWriter(path, options="zstd") as writer:
        writer.write_record(content)
    out = tmp_path / "out"
    assert run("get", path, "64/0", "--raw", "-o", out).code == 0
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(content).digest()


@pytest.mark.parametrize("command", ["ls", "tree", "info", "check"])
def test_json_has_a_schema(command, run, station, damaged, cut):
    for path, code in ((station, 0), (damaged, 4), (cut, 4)):
        ran = run(command, path, "--json")
        assert ran.code == code
        found = json.loads(ran.out)
        assert found["schema"] == 1
        assert found["file"] == str(path)
        assert found.get("format", "riegeli") == "riegeli"
        for finding in found.get("findings", []):
            assert set(finding) >= {"code", "severity", "path", "source", "offset", "length", "reason"}
