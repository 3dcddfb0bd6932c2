"""Riegeli files as trees: chunks, records, metadata, and what is said of a file that is cut or damaged."""

from __future__ import annotations

import io
import random

import pytest

import pparse
from pparse import PparseError, Status
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, OptionError, PathError, UnsupportedError
from pparse.findings import Severity
from pparse.kernels.highway import hash64
from pparse.kernels.varint import encode_varint, encode_varints
from pparse.limits import Limits
from pparse.riegeli import RecordReader, RecordsMetadata, RecordWriter
from pparse.riegeli.chunks import ChunkHeader, pack_block
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor
from pparse.riegeli.transposed_encoder import encode_transposed
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.riegeli_damage import Edit, apply, flip, forged, made, places, read, salvaged, sound, written
from tests.riegeli_fixtures import BLOCK, CHUNK_HEADER, chunk_table, digest, lines, manifest, raw, records, table
from tests.rows import rows

NAMES = list(manifest())
KINDS = {"s": "signature", "m": "metadata", "p": "padding", "r": "simple", "t": "transposed"}
LISTS = ("simple", "transposed")


def tree(data, **options):
    return pparse.open(data, format="riegeli", **options)


def checked(extraction) -> list:
    """Check everything; the findings. The children of the root that are returned too hold on to what was found."""
    kids = list(extraction.root.children())
    return [list(extraction.check()), kids]


def of_chunks(extraction) -> list:
    return [kid for kid in extraction.root.children() if kid.kind in LISTS]


def listed(extraction) -> list[tuple[int, int, bytes]]:
    """The records of all chunks, as `tests.riegeli_damage.read` gives them."""
    chunks = of_chunks(extraction)
    return [(chunk.start, record.ordinal, record.load()) for chunk in chunks for record in chunk.children()]


# -- whole files -----------------------------------------------------------------------------------------------------


@rows("name", sweep.sample(NAMES, len(NAMES) // 6))
def test_the_tree_of_a_file(name):
    with tree(raw(name)) as extraction:
        assert extraction.status is Status.COMPLETE
        kids = list(extraction.root.children())
        assert [(kid.start, kid.end, kid.kind) for kid in kids] == [
            (chunk.begin, chunk.end, KINDS[chunk.type]) for chunk in table(name)
        ]
        for kid, chunk in zip(kids, table(name), strict=True):
            assert kid.key == ("metadata" if (chunk.type, chunk.begin) == ("m", 64) else chunk.begin)
            assert extraction.root.find(kid.key) is kid
            if kid.kind in LISTS:
                assert len(kid) == chunk.num_records
                assert sum(len(record.parts[0]) for record in kid.children()) == chunk.decoded_size
        found = [
            (chunk.start, record.ordinal, len(record.parts[0]), digest(record.load()))
            for chunk in of_chunks(extraction)
            for record in chunk.children()
        ]
        assert found == [tuple(record) for record in records(name)]
        assert list(extraction.check()) == []
        assert [member.name for member in extraction.parse().parser.members() if member.kind == "record"] == [
            record.pos for record in records(name)
        ]


@pytest.mark.parametrize("name", [name for name in NAMES if manifest()[name]["metadata_hex"]])
def test_the_metadata_of_a_file(name):
    expected = RecordsMetadata.FromString(bytes.fromhex(manifest()[name]["metadata_hex"]))
    with tree(raw(name)) as extraction:
        node = extraction.root.find("metadata")
        fields = {kid.key: kid.load() for kid in node.children() if kid.shape == "scalar"}
        wanted = {field.name: value for field, value in expected.ListFields() if field.name != "file_descriptor"}
        assert fields == wanted
        assert extraction.node("metadata.num_records").load() == expected.num_records
        if expected.file_descriptor:
            assert list(node.find("file_descriptor").keys()) == [file.name for file in expected.file_descriptor]


def test_descriptors_are_there_byte_by_byte():
    from google.protobuf import descriptor_pb2

    from pparse.riegeli import get_record_type, set_record_type

    metadata = RecordsMetadata(file_comment="of descriptors", num_records=-5)
    set_record_type(metadata, descriptor_pb2.FileDescriptorProto)
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, metadata=metadata) as writer:
        writer.write_record(b"x")
    with tree(out.getvalue()) as extraction:
        assert extraction.get("metadata.num_records") == -5
        assert extraction.get("metadata.record_type_name") == "google.protobuf.FileDescriptorProto"
        file = metadata.file_descriptor[0]
        node = extraction.root.find("metadata").find("file_descriptor").find(file.name)
        assert node.load() == file.SerializeToString()
        assert dict(extraction.parse().parser.metadata())["file_descriptor"] == [file.name]
    assert get_record_type(metadata).DESCRIPTOR.full_name == "google.protobuf.FileDescriptorProto"


def test_a_file_is_recognised_by_its_first_bytes(tmp_path):
    (tmp_path / "no-name").write_bytes(raw("simple_zstd"))
    with pparse.open(tmp_path / "no-name") as extraction:
        assert extraction.format == "riegeli"
    for size in (8, 24, 63):
        with pparse.open(raw("simple_zstd")[:size]) as extraction:
            assert extraction.format == "riegeli"
    for name in ("rest.riegeli", "rest.array_record"):  # its beginning is lost: a block header is all that tells
        (tmp_path / name).write_bytes(raw("blocks_uncompressed")[BLOCK:])
        with pparse.open(tmp_path / name) as extraction:
            assert extraction.format == "riegeli", name


@pytest.mark.parametrize("name", ["simple_zstd", "transpose_brotli", "simple_uncompressed", "blocks_uncompressed"])
def test_what_was_unloaded_is_loaded_again(name):
    with tree(raw(name)) as extraction:
        before = listed(extraction)
        chunk = of_chunks(extraction)[0]
        record = chunk.child(1) if len(chunk) > 1 else chunk.child(0)
        content = record.load()
        for node in (record, chunk, extraction.root):
            node.unload()
            assert not node.loaded
        assert record.load() == content
        assert chunk.child(record.ordinal) is record
        assert listed(extraction) == before


def test_paths_lead_to_records():
    name = "flush"
    with tree(raw(name)) as extraction:
        parser = extraction.parse().parser
        for expected in records(name):
            path = f"[{expected.begin}][{expected.index}]"
            node = extraction.node(path)
            assert node.path == path
            assert digest(extraction.get(path)) == expected.digest
            assert parser.find_member(expected.pos) is node
        assert parser.find_member("no position") is None
        for lost in ("65/0", "64/10", f"{len(raw(name))}/0", "0/0"):
            with pytest.raises(PathError):
                parser.find_member(lost)


def test_a_file_within_other_bytes():
    """Offsets of chunks count from where the file begins; those of nodes, in the data."""
    data = raw("blocks_uncompressed")
    outer = pparse.BytesData(b"junk" * 25 + data)
    source = outer.range(100, 100 + len(data))
    regions = []
    with RecordReader(source, recovery=regions.append) as reader:
        assert [digest(record) for record in reader] == [record.digest for record in records("blocks_uncompressed")]
    assert regions == []


# -- where records lie -----------------------------------------------------------------------------------------------

STORED = [
    name
    for name in NAMES
    if "uncompressed" in manifest()[name]["options"] and any(chunk.type == "r" for chunk in table(name))
]


@rows("name", STORED)
def test_records_that_are_not_compressed_lie_in_the_file(name):
    data = raw(name)
    with tree(data) as extraction:
        for chunk in of_chunks(extraction):
            if chunk.kind != "simple":
                continue
            for record in chunk.children():
                [part] = record.parts
                stretches = part.data.locate(part.start, len(part))
                pieces = [(offset, length) for _, offset, length in stretches]
                assert b"".join(data[offset : offset + length] for offset, length in pieces) == record.load()
                assert tuple(pieces) == record.spans or not pieces
                for offset, length in pieces:
                    assert length > 0
                    assert offset // BLOCK == (offset + length - 1) // BLOCK, "a block header lies in between"
                    assert offset % BLOCK >= 24, "it begins in a block header"
                if pieces:
                    assert (record.start, record.end) == (pieces[0][0], sum(pieces[-1]))
                assert chunk.start <= record.start <= record.end <= chunk.end


def test_a_record_across_block_headers_is_read_in_slices():
    name = "blocks_uncompressed"
    data = raw(name)
    with tree(data) as extraction:
        node = extraction.node("[64][0]")
        whole = node.load()
        reader = node.open()
        for at in (0, 65_420, 65_427, 65_428, 130_938, 130_939, 130_940, len(whole) - 3):
            reader.seek(at)
            assert reader.read(7) == whole[at : at + 7]
        assert len(node.spans) == 3


# -- every prefix ----------------------------------------------------------------------------------------------------

ORDER = {Status.MISSING: 0, Status.TRUNCATED: 1, Status.COMPLETE: 2}


def plain(options: str, count: int = 7) -> bytes:
    return written(options, [b"record %d " % n + b"." * (5 * n % 17) if n % 3 else b"" for n in range(count)])


PREFIXES = {
    "uncompressed": plain("uncompressed,chunk_size:60"),
    "zstd": plain("zstd,chunk_size:60"),
    "brotli": plain("brotli,chunk_size:60"),
    "snappy": plain("snappy,chunk_size:60"),
    "transposed": plain("transpose,zstd,chunk_size:60"),
    "padded": plain("uncompressed,chunk_size:60,padding:128", 4),
    "example": raw("transpose_example"),
    "metadata": raw("empty_meta"),
    "many empty": raw("blocks_zero_zstd"),
}


def there(record) -> bytes:
    """What can be had of a record; a compressed one of which nothing can is a gap from its first byte on."""
    try:
        return record.open().read()
    except GapError:
        return b""


def check_prefix(data: bytes, size: int, whole: dict, seen: dict) -> None:
    """What is shown of the first ``size`` bytes: nothing but the truth, and no less than with fewer bytes."""
    with tree(data[:size]) as extraction:
        ends = {chunk.end for chunk in chunk_table(data)} | {0}
        assert (extraction.status is Status.COMPLETE) == (size in ends), size
        reached = 0
        for kid in extraction.root.children():
            assert kid.start == reached
            reached = kid.end
            if kid.kind not in LISTS:
                continue
            for record in kid.children():
                key = (kid.start, record.ordinal)
                content = whole[key]
                status = record.status
                assert len(record.parts[0]) == len(content), (size, key)
                assert ORDER[status] >= ORDER[seen.get(key, Status.MISSING)], (size, key)
                seen[key] = status
                if status is Status.COMPLETE:
                    assert record.load() == content, (size, key)
                else:
                    with pytest.raises(EndOfDataError):
                        record.load()
                    part = there(record)
                    assert content.startswith(part), (size, key)
                    assert len(part) < len(content) or not content
                    assert (status is Status.TRUNCATED) == bool(part), (size, key)
        for finding in extraction.check():
            assert finding.code == ("truncated" if size else "empty"), (size, finding)
            assert finding.offset is not None
            assert finding.offset <= size


@pytest.mark.parametrize("name", PREFIXES)
def test_every_prefix_shows_the_records_that_are_whole_in_it(name):
    data = PREFIXES[name]
    whole = {record[:2]: record[2] for record in sound(data).records}
    chunks = chunk_table(data)
    seen: dict = {}
    borders = {0, *(place for chunk in chunks for place in (chunk.begin + 1, chunk.data_end, chunk.end))}
    for size in sweep.some(range(len(data) + 1), 2, keep=borders, ends=24):
        check_prefix(data, size, whole, seen)
        for chunk in chunks:
            if chunk.data_end <= size:
                for index in range(chunk.num_records):
                    assert seen[chunk.begin, index] is Status.COMPLETE, (size, chunk)
    assert set(seen) == set(whole)


def test_every_prefix_of_an_uncompressed_file_to_the_byte():
    """A record is COMPLETE as soon as its last byte is there, TRUNCATED from its first on."""
    data = PREFIXES["uncompressed"]
    where = {}
    with tree(data) as extraction:
        for chunk in of_chunks(extraction):
            first = min((record.start for record in chunk.children() if len(record.parts[0])), default=chunk.end)
            for record in chunk.children():
                content = record.load()
                start = record.start if content else None
                where[chunk.start, record.ordinal] = (first, start, record.end, content)
    for size in range(len(data)):
        with tree(data[:size]) as extraction:
            shown = {(chunk.start, kid.ordinal): kid for chunk in of_chunks(extraction) for kid in chunk.children()}
            for key, (first, start, end, content) in where.items():
                if size < first:  # the sizes of the records stand before them
                    continue
                node = shown[key]
                if start is None:
                    continue
                expected = Status.COMPLETE if end <= size else Status.TRUNCATED if start < size else Status.MISSING
                assert node.status is expected, (size, key)
                if expected is Status.TRUNCATED:
                    assert node.open().read() == content[: size - start]
                    assert node.finding.wanted == len(content)
                    assert node.finding.got == size - start


def test_every_prefix_around_block_headers():
    """A record of three blocks, cut near its ends and near the block headers in it."""
    data = raw("blocks_uncompressed")
    with RecordReader(data) as reader:
        content = reader.read_record()
    begin = 64 + CHUNK_HEADER + 1 + 1 + 3  # behind the compression, the size of the sizes, and one size
    with tree(data) as extraction:
        assert extraction.node("[64][0]").start == begin
    cuts = {begin, begin + 1, 150_156, 150_157, 150_158, 150_204}
    cuts |= {block + n for block in (BLOCK, 2 * BLOCK) for n in (-1, 0, 1, 23, 24, 25)}
    for size in sorted(cuts):
        with tree(data[:size]) as extraction:
            node = extraction.node("[64][0]")
            there = held(begin, size, len(content))
            if there == len(content):
                assert node.status is Status.COMPLETE
                assert node.load() == content
            else:
                assert node.status is (Status.TRUNCATED if there else Status.MISSING)
                assert node.open().read() == content[:there]


def held(begin: int, size: int, most: int) -> int:
    """How many bytes of a record at ``begin`` there are in ``size`` bytes of file."""
    headers = sum(min(24, max(0, size - block)) for block in range(BLOCK, size, BLOCK) if block > begin)
    return min(most, size - begin - headers)


# -- every byte changed ----------------------------------------------------------------------------------------------

CHANGED = {
    "uncompressed": plain("uncompressed,chunk_size:60"),
    "zstd": plain("zstd,chunk_size:60"),
    "transposed": plain("transpose,snappy,chunk_size:60"),
    "padded": plain("uncompressed,chunk_size:60,padding:128", 4),
    "metadata": raw("empty_meta"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_every_flipped_byte(name):
    """Nothing wrong is ever shown as whole; all other chunks are; the check finds it."""
    file = sound(CHANGED[name])
    true = {record[:2]: record[2] for record in file.records}
    for at in sweep.some(range(len(file.data)), 3, ends=24):
        for mask in sweep.values((1, 0xFF), at, 1):
            damaged = apply(file.data, flip(file.data, at, mask))
            hit = file.chunk_of(at)
            with tree(damaged) as extraction:
                for chunk in of_chunks(extraction):  # as it is read, without a check of everything
                    for record in chunk.children():
                        try:
                            content = record.load()
                        except MalformedError:
                            continue
                        assert content == true.get((chunk.start, record.ordinal)), (at, mask)
            with tree(damaged) as extraction:
                findings, kids = checked(extraction)
                assert any(finding.severity is Severity.ERROR for finding in findings), (at, mask)
                whole = {}
                reached = 0
                for kid in kids:
                    assert kid.start == reached, (at, mask)
                    reached = kid.end
                    if kid.kind not in LISTS or kid.status is not Status.COMPLETE:
                        continue
                    for record in kid.children():
                        assert record.status is Status.COMPLETE
                        whole[kid.start, record.ordinal] = record.load()
                assert min(reached, len(damaged)) == len(damaged)
                assert all(true.get(key) == content for key, content in whole.items()), (at, mask)
                lost = [key for key in true if key not in whole and key[0] != hit.begin]
                assert not lost, (at, mask)


def test_a_gap_says_why_and_what_it_takes():
    file = made("uncompressed,chunk_size:120", "gap", 24, (3, 20))
    hit = file.chunks[2]
    damaged = apply(file.data, Edit(hit.begin + 8, 16, bytes(16)))
    with tree(damaged) as extraction:
        assert extraction.status is Status.DAMAGED
        gap = extraction.root.find(hit.begin)
        assert (gap.kind, gap.start, gap.end, gap.status) == ("gap", hit.begin, hit.end, Status.DAMAGED)
        assert (gap.finding.code, gap.finding.offset) == ("malformed", hit.begin)
        assert gap.finding.length == hit.end - hit.begin
        assert "chunk header hash mismatch" in gap.finding.reason
        with pytest.raises(MalformedError):
            gap.load()
        assert [finding.path for finding in extraction.check()] == [f"[{hit.begin}]"]


def whole_records(extraction) -> list[tuple[int, int, bytes]]:
    """The records of the chunks that are whole after a check."""
    _, kids = checked(extraction)
    return [
        (chunk.start, record.ordinal, record.load())
        for chunk in kids
        if chunk.kind in LISTS and chunk.status is Status.COMPLETE
        for record in chunk.children()
    ]


@rows("kind", sweep.part(["flipped", "zeroed", "cut", "inserted", "deleted"]))
@rows("options", ["uncompressed,chunk_size:2k", "zstd,chunk_size:30k"])
def test_a_damaged_file_shows_what_the_reader_saves(options, kind):
    """After a check: the chunks that are whole are those that a recovering reader gives."""
    file = made(options, "reader", 60, (0, 30, 3000, 9000))
    chooser = random.Random(kind)
    for at in places(file, chooser, 25 if sweep.full else 6):
        size = min(chooser.choice((1, 24, 100, 5000, 70_000)), len(file.data) - at)
        edit = {
            "flipped": flip(file.data, at, 0xFF),
            "zeroed": Edit(at, size, bytes(size)),
            "cut": Edit(at, len(file.data) - at, b""),
            "inserted": Edit(at, 0, chooser.randbytes(size)),
            "deleted": Edit(at, size, b""),
        }[kind]
        damaged = apply(file.data, edit)
        with tree(damaged) as extraction:
            found = whole_records(extraction)
        assert found == salvaged(damaged).records, edit


def test_bytes_lost_in_the_last_chunk_but_one():
    """By its header it reaches into the last chunk, so that less than a header of that seems to be left."""
    file = sound(raw("simple_brotli"))
    hit, last = file.chunks[-2:]
    lost = last.end - last.begin - 29
    damaged = apply(file.data, Edit(hit.begin + CHUNK_HEADER, lost, b""))
    with tree(damaged) as extraction:
        found = whole_records(extraction)
        said = {(finding.offset, finding.length) for finding in extraction.check()}
    assert (hit.begin, last.begin - lost - hit.begin) in said
    assert found == salvaged(damaged).records
    assert found[-1] == (last.begin - lost, last.num_records - 1, file.records[-1][2])


@pytest.mark.xfail(strict=True, reason="the tree believes the damaged chunk's own end, and loses a chunk before it")
def test_many_bytes_lost_within_a_chunk():
    """A whole chunk begins before the place where the damaged one's header says that it ends."""
    file = made("uncompressed,chunk_size:2k", "reader", 60, (0, 30, 3000, 9000))
    damaged = apply(file.data, Edit(59_536, 70_000, b""))
    with tree(damaged) as extraction:
        _, kids = checked(extraction)
        whole = {kid.start for kid in kids if kid.kind in LISTS and kid.status is Status.COMPLETE}
    assert {begin for begin, _, _ in salvaged(damaged).records} - whole == set()


@rows("case", [pytest.param(case, id=case["name"]) for case in lines("crafted.jsonl")])
def test_odd_and_invalid_files(case):
    """What the reference reads of them is shown as whole, and a check finds what it refuses."""
    data = bytes.fromhex(case["hex"])
    expected = [event[2] for event in case["recover"] if event[0] == "record"]
    refused = any(event[0] == "skipped" for event in case["recover"])
    with tree(data) as extraction:
        findings, kids = checked(extraction)
        found = []
        for chunk in kids:
            if chunk.kind in LISTS and chunk.status is Status.COMPLETE:
                found += [record.load().hex() for record in chunk.children()]
        assert found == expected
        assert findings or not refused


def parts(kind: int, sizes: list[int], cut: int = 0, *, cut_sizes: int = 0) -> bytes:
    """The data of a simple chunk of 100 bytes, and of these sizes; so many bytes are cut from the parts."""
    compressor = PartCompressor(kind)
    packed, values = compressor.part(encode_varints(sizes)), compressor.part(random.Random(1).randbytes(100))
    packed, values = packed[: len(packed) - cut_sizes], values[: len(values) - cut]
    return bytes((kind,)) + encode_varint(len(packed)) + packed + values


@rows("kind", [NONE, BROTLI, ZSTD, SNAPPY])
def test_a_check_finds_what_readers_refuse_in_chunks_whose_hashes_are_right(kind):
    wrong = [parts(kind, sizes) for sizes in ([50, 50, 0], [50, 50, 300], [50, 50, 1, 1], [100], [50, 49])]
    wrong += [parts(kind, [50, 50], cut) for cut in (1, 4, 10)]
    wrong += [parts(kind, [50, 50], cut_sizes=1), parts(kind, [50, 50]) + b"x"]
    for data in (parts(kind, [50, 50]), *wrong):
        file = forged(("r", data, 2, 100), ("r", b"\0\x01\x01x", 1, 1))
        with tree(file) as extraction:
            findings, kids = checked(extraction)
            assert kids[2].child(0).load() == b"x"
            if data in wrong:
                with pytest.raises(MalformedError):
                    read(file)
                assert [(finding.code, finding.path) for finding in findings] == [("malformed", "[64]")]
                assert kids[1].status is Status.DAMAGED
                if kind != NONE and data in wrong[5:8]:  # of some all bytes come out, and not the end of the stream
                    with tree(file) as anew, pytest.raises((MalformedError, EndOfDataError)):
                        of_chunks(anew)[0].child(1).load()
            else:
                assert [len(record) for *_, record in read(file).records] == [50, 50, 1]
                assert findings == []


@rows(
    ("kind", "data", "count", "decoded"),
    [("s", b"x" * 24, 0, 0), ("s", b"", 1, 0), ("s", b"", 0, 5), ("p", b"", 0, 0), ("r", b"", 0, 0), ("z", b"", 0, 0)],
)
def test_only_the_signature_to_its_last_field_begins_a_file(kind, data, count, decoded):
    header = ChunkHeader(ord(kind), len(data), hash64(data), count, decoded)
    file = pack_block(0, 64 + len(data)) + header.pack() + data
    file += forged(("r", b"\0\x01\x01x", 1, 1))[64:]
    with pytest.raises(MalformedError, match="missing file signature"):
        read(file)
    with tree(file) as extraction:
        findings, kids = checked(extraction)
        assert ("malformed", "[0]", 0) in [(finding.code, finding.path, finding.offset) for finding in findings]
        assert any("missing file signature" in finding.reason for finding in findings)
        assert kids[-1].child(0).load() == b"x"


# -- the option verify -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt() -> bytes:
    """Two chunks: one below the size up to which a chunk is hashed when touched, one above; each has a wrong byte."""
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed,chunk_size:64M") as writer:
        writer.write_records([b"small", b"good"])
        writer.flush()
        writer.write_records([b"large" * 900_000, b"good"])
    data = bytearray(out.getvalue())
    small, large = chunk_table(bytes(data))[1:]
    for chunk in (small, large):
        data[chunk.begin + CHUNK_HEADER + 8] ^= 1
    return bytes(data)


def test_verify_headers_hands_out_what_is_there(spoilt):
    with tree(spoilt, options={"verify": "headers"}) as extraction:
        first, second = of_chunks(extraction)
        assert first.child(0).load() not in (b"small",)
        assert [first.child(1).load(), second.child(1).load()] == [b"good", b"good"]


def test_verify_touched_checks_small_chunks(spoilt):
    for options in ({}, {"verify": "touched"}):
        with tree(spoilt, options=options) as extraction:
            first, second = of_chunks(extraction)
            for record in first.children():
                with pytest.raises(MalformedError, match=r'hash mismatch.*anyway with options={"verify": "headers"}'):
                    record.load()
            assert second.child(1).load() == b"good"
            # What is opened is not loaded.
            assert first.child(1).open().read() == b"good"


def test_verify_all_checks_every_chunk(spoilt):
    with tree(spoilt, options={"verify": "all"}) as extraction:
        for chunk in of_chunks(extraction):
            with pytest.raises(MalformedError, match="hash mismatch"):
                chunk.child(1).load()


@pytest.mark.parametrize("verify", ["headers", "touched", "all"])
def test_a_check_checks_all(spoilt, verify):
    with tree(spoilt, options={"verify": verify}) as extraction:
        findings, kids = checked(extraction)
        chunks = [kid for kid in kids if kid.kind in LISTS]
        assert [(finding.code, finding.path) for finding in findings] == [("hash", chunk.path) for chunk in chunks]
        assert all(chunk.status is Status.DAMAGED for chunk in chunks)


def test_verify_of_another_kind():
    with pytest.raises(OptionError, match="verify"):
        tree(raw("flush"), options={"verify": "some"}).root.load()


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_transposed_chunk_beyond_the_budget():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="transpose,snappy,chunk_size:4M") as writer:
        writer.write_records([b"." * 500_000] * 4)
    with tree(out.getvalue(), budget="2MiB") as extraction:
        [chunk] = of_chunks(extraction)
        with pytest.raises(LimitError) as caught:
            len(chunk)
        assert caught.value.option.startswith("--budget ")
        findings = list(extraction.check())
        assert [finding.code for finding in findings] == ["limit"]
        needed = caught.value.option.removeprefix("--budget ")
    with tree(out.getvalue(), budget=needed) as extraction:
        assert [len(record) for _, _, record in listed(extraction)] == [500_000] * 4


def test_metadata_beyond_the_budget():
    """They are not read; all else is. (What says that it is large, and is not, is damaged: `test_riegeli_claims`.)"""
    metadata = b"\x0a\x80\x80\x80\x01" + bytes(2 << 20)
    packed = encode_transposed([metadata], PartCompressor(ZSTD))
    data = forged(("m", packed, 0, len(metadata)), ("r", b"\0\x01\x01x", 1, 1))
    with tree(data, budget="2MiB") as extraction:
        findings, kids = checked(extraction)
        assert [(finding.code, finding.path) for finding in findings] == [("limit", "metadata")]
        assert kids[2].child(0).load() == b"x"
        with pytest.raises(LimitError):
            kids[1].load()


def test_a_record_beyond_the_limit_of_scalars():
    data = written("uncompressed,chunk_size:1M", [b"x" * 5000, b"y"])
    with tree(data, limits=Limits(scalar_bytes=1000)) as extraction:
        [chunk] = of_chunks(extraction)
        with pytest.raises(LimitError, match="scalar"):
            chunk.child(0).load()
        assert chunk.child(0).open().read() == b"x" * 5000
        assert chunk.child(1).load() == b"y"


def test_a_compressed_chunk_larger_than_the_budget(tmp_path):
    """It is decoded a block at a time."""
    contents = [b"%06d" % n + bytes(100_000) for n in range(60)]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="zstd,chunk_size:64M") as writer:
        writer.write_records(contents)
    with tree(out.getvalue(), budget="4MiB") as extraction:
        [chunk] = of_chunks(extraction)
        assert len(chunk) == 60
        assert [chunk.child(n).load()[:6] for n in (0, 30, 59)] == [b"000000", b"000030", b"000059"]
        assert list(extraction.check()) == []
        assert extraction.session.budget.peak <= extraction.session.budget.limit


def test_many_records_in_a_chunk():
    count = 100_000
    for options in ("uncompressed,chunk_size:64M", "snappy,chunk_size:64M", "transpose,snappy,chunk_size:64M"):
        data = written(options, [b"%05d" % n for n in range(count)])
        with tree(data) as extraction:
            [chunk] = of_chunks(extraction)
            assert len(chunk) == count
            for n in (0, 1, 77_777, count - 1):
                assert chunk.child(n).load() == b"%05d" % n
            assert extraction.parse().parser.find_member("64/99999").load() == b"99999"
            assert extraction.session.budget.peak <= extraction.session.budget.limit


@pytest.mark.parametrize("name", ["simple_uncompressed", "transpose_brotli", "padding_4k", "flush"])
def test_the_tree_does_not_depend_on_the_blocks_that_are_read(name):
    seen = []
    for block_size in (0, 1, 7, 64, 4096):
        with tree(raw(name), block_size=block_size) as extraction:
            seen.append([(kid.key, kid.kind, kid.spans) for kid in extraction.root.children()])
            assert [digest(record) for *_, record in listed(extraction)] == [record.digest for record in records(name)]
    assert all(other == seen[0] for other in seen)


def test_a_listing_reads_headers_only(tmp_path):
    path = tmp_path / "large.riegeli"
    with RecordWriter(path, options="uncompressed,chunk_size:1M") as writer:
        writer.write_records([bytes(900_000)] * 8)
    with tree(path) as extraction:
        assert [len(chunk) for chunk in of_chunks(extraction)] == [1] * 8
        assert extraction.session.stats.bytes < 200_000


def test_an_unknown_compression_is_unsupported():
    """A later version may know it: nothing is wrong with the file."""
    data = forged(("r", b"\x7f" + b"\x01\x01" + b"x", 1, 1), ("r", b"\0\x01\x01" + b"y", 1, 1))
    with tree(data) as extraction:
        findings, kids = checked(extraction)
        assert [(finding.code, finding.path) for finding in findings] == [("unsupported", "[64]")]
        assert [kid.status for kid in kids] == [Status.COMPLETE, Status.UNSUPPORTED, Status.COMPLETE]
        assert list(kids[1].children()) == []
        assert kids[2].child(0).load() == b"y"


def test_errors_are_ours():
    """Whatever is asked of a damaged document."""
    data = bytearray(raw("flush"))
    data[100:140] = bytes(40)
    with tree(bytes(data)) as extraction:
        for node in extraction.root.children():
            try:
                node.load()
            except (MalformedError, UnsupportedError, PparseError):
                pass


def lossy(content: bytes, *gaps: tuple[int, int]):
    """A member of something larger: it ends where ``content`` does, and more bytes follow."""
    data = GappyData(content + bytes(20_000), gaps)
    return pparse.open(data, format="riegeli").child("member", data, 0, len(content), "riegeli")


def test_a_gap_behind_the_end_of_a_member_is_none_of_its_own():
    """The parse ends where the member does, though its last chunk is lost and a gap begins there."""
    content = written("uncompressed,chunk_size:1000", [bytes([65 + n]) * 900 for n in range(5)])
    last = chunk_table(content)[-1].begin
    damaged = content[:last] + bytes(100) + content[last + 100 :]
    member = lossy(damaged, (len(content), 15_000))
    kids = list(member.root.children())
    assert kids[-1].kind == "gap"
    assert kids[-1].end == len(content)
    assert [kid.start for kid in kids if kid.kind == "gap"] == [last]


def test_of_a_chunk_with_a_gap_what_is_before_it_is_given_unverified():
    """Its hash cannot be compared: what is known can be had, and what lies behind the gap says that it cannot."""
    records = [random.Random(n).randbytes(100_000) for n in range(9)]
    content = written("zstd,chunk_size:2M", records)
    chunk = chunk_table(content)[-1]
    member = lossy(content, (chunk.begin + 500_000, 300))
    kids = list(list(member.root.children())[-1].children())
    assert len(kids) == 9
    given = 0
    for kid, record in zip(kids, records, strict=True):
        if kid.status is Status.COMPLETE:
            assert kid.load() == record
            given += 1
        else:
            assert kid.status is Status.DAMAGED
            with pytest.raises((MalformedError, GapError)):
                kid.load()
    assert 0 < given < 9


def test_many_small_gaps_cost_one_stretch():
    """What is known between two gaps and has no room for a header belongs to them."""
    content = written("uncompressed,chunk_size:1000", [bytes([65 + n]) * 900 for n in range(90)])
    first = chunk_table(content)[2].begin
    member = lossy(content, *((first + at, 5) for at in range(0, 30_000, 15)))
    assert sum(kid.kind == "gap" for kid in member.root.children()) < 10
