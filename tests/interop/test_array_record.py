"""ArrayRecord files: a C++ library whose files are Riegeli files, and who reads chunks with the Riegeli decoder.

Layout, worked out from its files: signature; chunks of ``group_size`` records; a chunk of footer records, the first
with the options, one more for each chunk (offset, decoded size, number of records); padding to a block boundary; a
postscript chunk of three equal records (offset of the footer chunk, a magic number); padding to a block boundary.
"""

from __future__ import annotations

import importlib
import io
import os
import random

import pytest

from pparse.riegeli import RecordPosition, RecordReader, RecordWriter
from tests.riegeli_fixtures import BLOCK, Chunk, chunk_table


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


array_record = library("array_record.python.array_record_module")

MAGIC = 0x71930E704FDAE05E
COMPRESSIONS = ("uncompressed", "brotli", "zstd", "snappy")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(chooser: random.Random, depth: int = 0) -> bytes:
    """Protobuf wire data: varints of all lengths, fixed numbers, strings, submessages and groups, many fields."""
    out = b""
    for _ in range(chooser.randrange(7)):
        field = chooser.choice((1, 2, 3, 15, 16, 99, 3000, 536870911, chooser.randrange(1, 400)))
        match chooser.choice("vvvsfFmg"):
            case "v":
                out += varint(field << 3) + varint(chooser.getrandbits(chooser.choice((1, 2, 7, 8, 21, 64))))
            case "s":
                text = chooser.randbytes(chooser.choice((0, 1, 5, 127, 128)))
                out += varint(field << 3 | 2) + varint(len(text)) + text
            case "f":
                out += varint(field << 3 | 5) + chooser.randbytes(4)
            case "F":
                out += varint(field << 3 | 1) + chooser.randbytes(8)
            case "m" if depth < 4:
                inner = message(chooser, depth + 1)
                out += varint(field << 3 | 2) + varint(len(inner)) + inner
            case "g" if depth < 4:
                out += varint(field << 3 | 3) + message(chooser, depth + 1) + varint(field << 3 | 4)
    return out


def make_records(kind: str) -> list[bytes]:
    chooser = random.Random(kind)
    match kind:
        case "few":
            return [b"rec%d" % number for number in range(7)]
        case "empty":
            return [b""] * 25
        case "messages":
            return [message(chooser) for _ in range(200)]
        case "mixed":
            near = [message(chooser) + b"\x08\x80" for _ in range(20)]
            noise = [chooser.randbytes(chooser.randrange(300)) for _ in range(40)]
            found = [*near, *noise, *(message(chooser) for _ in range(60)), b"", b"x" * 5000]
            chooser.shuffle(found)
            return found
        case "blocks":
            return [
                chooser.randbytes(1000) * 90,
                b"",
                b"y" * (3 * BLOCK),
                b"small",
                chooser.randbytes(BLOCK - 110),
                b"z" * 50,
            ]
    raise ValueError(kind)


KINDS = ("few", "empty", "messages", "mixed", "blocks")


def fields(record: bytes) -> dict[int, int | bytes]:
    """Read the varint and string fields of a flat message."""
    found: dict[int, int | bytes] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = record[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(record):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            assert tag & 7 == 2
            size = number()
            found[tag >> 3] = record[at : at + size]
            at += size
    return found


# -- what it writes, we read -----------------------------------------------------------------------------------------


def theirs(path, records: list[bytes], options: str) -> bytes:
    writer = array_record.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path.read_bytes()


OPTIONS = [
    "",
    "group_size:3",
    "group_size:1000,brotli:11",
    "group_size:20,zstd:-5,window_log:12",
    "group_size:7,zstd:19,max_parallelism:2,saturation_delay_ms:1",
    "group_size:13,brotli:0,window_log:22",
    "group_size:10,snappy",
    "group_size:4,uncompressed",
    "group_size:2,uncompressed,pad_to_block_boundary:true",
    "group_size:1000,uncompressed,transpose",
    "group_size:9,transpose,uncompressed,transpose_bucket_size:16",
    "group_size:50,transpose,zstd",
    "group_size:50,transpose,brotli:4,transpose_bucket_size:1k",
    "group_size:25,transpose,snappy,transpose_bucket_size:1",
    "group_size:30,transpose,zstd,pad_to_block_boundary:true",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options or "default")
def test_its_files_record_by_record(tmp_path, options, kind):
    records = make_records(kind)
    path = tmp_path / "file"
    data = theirs(path, records, options)
    group = int(options.removeprefix("group_size:").partition(",")[0]) if options else 1
    groups = [records[begin : begin + group] for begin in range(0, len(records), group)]
    chunks = [chunk for chunk in chunk_table(data) if chunk.num_records]
    assert [chunk.num_records for chunk in chunks] == [*map(len, groups), len(groups) + 1, 3]
    assert {chunk.type for chunk in chunks[:-2]} == {"t" if "transpose," in f"{options}," else "r"}

    with RecordReader(path) as reader:
        assert reader.check_file_format()
        found = []
        places = []
        for record in reader.read_records():
            found.append(record)
            places.append(reader.last_pos)
        # Chunk by chunk, numbered from 0 in each.
        assert places == [RecordPosition(chunk.begin, n) for chunk in chunks for n in range(chunk.num_records)]
        assert found[: len(records)] == records

        # Its own records: what each chunk holds, and where the list of that stands.
        footer = [fields(record) for record in found[len(records) : -3]]
        assert found[-3:] == [found[-1]] * 3
        postscript = fields(found[-1])
        assert postscript == {1: chunks[-2].begin, 2: MAGIC}
        header = fields(footer[0][1])
        assert (header[2], header[3]) == (len(groups), len(records))
        assert footer[1:] == [{1: chunk.begin, 2: chunk.decoded_size, 3: chunk.num_records} for chunk in chunks[:-2]]

        # Backwards, and anywhere.
        reader.seek_numeric(reader.size())
        assert reader.seek_back()
        assert reader.read_record() == found[-1]
        for number in random.Random(1).sample(range(len(found)), 5):
            reader.seek(places[number])
            assert reader.read_record() == found[number]


# -- what we write, it reads -----------------------------------------------------------------------------------------


def layout(records: list[bytes], options: str, group: int) -> bytes:
    """An ArrayRecord file, written by our writer."""
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=f"{options},chunk_size:1G") as writer:
        for begin in range(0, len(records), group):
            writer.write_records(records[begin : begin + group])
            writer.flush()
    chunks = [chunk for chunk in chunk_table(out.getvalue()) if chunk.num_records]
    assert [chunk.num_records for chunk in chunks] == [
        len(records[begin : begin + group]) for begin in range(0, len(records), group)
    ]
    close(out, chunks, options.replace("transpose", "") + ",chunk_size:1G,final_padding:64k", len(records))
    return out.getvalue()


def close(out: io.BytesIO, chunks: list[Chunk], options: str, count: int) -> None:
    """Append footer and postscript for these chunks."""
    used = b"group_size:1,transpose:false,pad_to_block_boundary:false,uncompressed"
    header = b"\x08\x01\x10" + varint(len(chunks)) + b"\x18" + varint(count) + b"\x22" + varint(len(used)) + used
    footer = [b"\x0a" + varint(len(header)) + header]
    for chunk in chunks:
        footer.append(
            b"\x08" + varint(chunk.begin) + b"\x10" + varint(chunk.decoded_size) + b"\x18" + varint(chunk.num_records)
        )
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        place = writer.pos.chunk_begin
        writer.write_records(footer)
    with RecordWriter(out, owns_dest=False, options="uncompressed,final_padding:64k") as writer:
        writer.write_records([b"\x08" + varint(place) + b"\x10" + varint(MAGIC)] * 3)


def read_by_it(path, options: str = "") -> list[bytes]:
    reader = array_record.ArrayRecordReader(str(path), options)
    assert reader.ok()
    found = reader.read_all()
    assert reader.num_records() == len(found)
    reader.close()
    return found


def test_the_layout_is_understood(tmp_path):
    """Without compression our file is its file, but for the words that say how it was made."""
    records = make_records("few")
    data = theirs(tmp_path / "theirs", records, "group_size:3,uncompressed")
    ours = layout(records, "uncompressed", 3)
    cut = [chunk.end for chunk in chunk_table(data) if chunk.type == "r"][2]
    assert ours[:cut] == data[:cut]
    assert [chunk.contents[:2] for chunk in chunk_table(ours)] == [chunk.contents[:2] for chunk in chunk_table(data)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [1, 6, 1000])
@pytest.mark.parametrize("form", ["", "transpose"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_our_files_record_by_record(tmp_path, compression, form, group, kind):
    records = make_records(kind)
    path = tmp_path / "file"
    path.write_bytes(layout(records, f"{compression},{form}", group))
    assert read_by_it(path) == records
    # Not in a stream but chunk by chunk, as it does for random access.
    reader = array_record.ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    chosen = random.Random(2).sample(range(len(records)), min(len(records), 5))
    assert reader.read(chosen) == [records[number] for number in chosen]
    reader.close()


@pytest.mark.parametrize(
    "options",
    [
        "brotli:0",
        "brotli:11,window_log:10",
        "zstd:-7,window_log:10",
        "zstd:19",
        "snappy:2",
        "transpose,uncompressed,bucket_fraction:0",
        "transpose,brotli:11,bucket_fraction:0",
        "transpose,brotli,window_log:18,bucket_fraction:0.000001",
        "transpose,zstd,bucket_fraction:0.0000001",
        "transpose,snappy,bucket_fraction:0",
        "transpose,zstd:19,parallelism:2",
    ],
)
def test_our_levels_and_buckets(tmp_path, options):
    """Buckets are laid out by the chunk size, 1 GiB here: small fractions are what divides them."""
    records = make_records("mixed") + make_records("messages")
    path = tmp_path / "file"
    path.write_bytes(layout(records, options, 100))
    assert read_by_it(path) == records


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_array_record_reads_a_file_of_many_fields(tmp_path, compression):
    """More states than one byte of transitions can reach."""
    chooser = random.Random(3)
    records = [
        b"".join(varint(chooser.randrange(1, 900) << 3) + varint(chooser.randrange(9)) for _ in range(50))
        for _ in range(100)
    ]
    path = tmp_path / "file"
    path.write_bytes(layout(records, f"transpose,{compression}", 1000))
    assert read_by_it(path) == records


@pytest.mark.parametrize("length", [*range(65430, 65472, 3), *range(65472, 65520, 2)])
def test_our_chunks_near_a_block_boundary(tmp_path, length):
    """A chunk ends, and the next begins, at all places around a block boundary."""
    records = [b"a" * (length - 45), b"second" * 20, b"", b"third"]
    path = tmp_path / "file"
    path.write_bytes(layout(records, "uncompressed", 1))
    assert read_by_it(path) == records


@pytest.mark.parametrize("options", ["uncompressed", "brotli:2", "zstd", "snappy"])
def test_our_streamed_records(tmp_path, options):
    """Records that are not held while they are compressed: pieces put together must be what it takes for one."""
    from pparse.data.base import BytesData

    chooser = random.Random(4)
    words = [chooser.randbytes(50) for _ in range(20)]
    records = [b"".join(chooser.choices(words, k=60_000)), b"", chooser.randbytes(70_000), bytes(1 << 20)]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        for record in records:
            writer.write_record_from(BytesData(record))
    close(out, [chunk for chunk in chunk_table(out.getvalue()) if chunk.num_records], "final_padding:64k", len(records))
    path = tmp_path / "file"
    path.write_bytes(out.getvalue())
    assert read_by_it(path) == records


def test_array_record_reads_what_we_padded(tmp_path):
    records = make_records("mixed")
    path = tmp_path / "file"
    path.write_bytes(layout(records, "zstd,padding:4k", 30))
    assert read_by_it(path) == records
