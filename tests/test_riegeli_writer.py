"""The writer: its files equal the reference's, to the byte where nothing is compressed; round trips; appending."""

from __future__ import annotations

import io
import random
import threading
from functools import partial
from itertools import pairwise

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.riegeli import (
    FlushType,
    InvalidArgumentError,
    RecordPosition,
    RecordReader,
    RecordsMetadata,
    RecordWriter,
    RiegeliError,
    SkippedRegion,
    get_record_type,
    set_record_type,
)
from tests import sweep
from tests.riegeli_fixtures import (
    BLOCK,
    CHUNK_HEADER,
    SIGNATURE,
    Chunk,
    Pipe,
    advance,
    can_begin,
    chunk_table,
    manifest,
    raw,
    table,
)
from tests.rows import rows

COMPRESSIONS = ("uncompressed", "brotli", "zstd", "snappy")


def read(data: bytes) -> list[bytes]:
    with RecordReader(data) as reader:
        return list(reader.read_records())


def write(records: list[bytes], options: str = "", **more) -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options, **more) as writer:
        writer.write_records(records)
    return out.getvalue()


def record_chunks(data: bytes) -> list[Chunk]:
    return [chunk for chunk in chunk_table(data) if chunk.num_records]


# -- files of the reference, written again ---------------------------------------------------------------------------


def session(out: io.BytesIO, options: str, *parts: list[bytes], metadata: bytes = b"") -> None:
    """Write the parts at the end of ``out``, a flush after each but the last."""
    out.seek(0, io.SEEK_END)
    with RecordWriter(out, owns_dest=False, options=options, serialized_metadata=metadata) as writer:
        for number, part in enumerate(parts):
            if number:
                writer.flush()
            writer.write_records(part)


def again(name: str) -> bytes:
    """Write the records of a fixture as its options and notes say they were written."""
    entry = manifest()[name]
    options = entry["options"]
    metadata = bytes.fromhex(entry["metadata_hex"] or "")
    records = read(raw(name))
    out = io.BytesIO()
    match name:
        case "flush":
            session(out, options, records[:10], records[10:11], records[11:])
        case "many_empty_boundary_next":
            session(out, options, records[:65472], records[65472:])
        case "padding_4k":
            session(out, options, records[:20], records[20:], metadata=metadata)
        case "append":
            session(out, options, records[:8], metadata=metadata)
            session(out, "zstd,transpose", records[8:14])
            session(out, "uncompressed", records[14:])
        case "append_padding":
            session(out, options, records[:8])
            session(out, "zstd,initial_padding:1000,final_padding:512", records[8:])
        case "concatenated":
            second = io.BytesIO()
            session(out, options, records[:8], metadata=metadata)
            session(second, "transpose", records[8:], metadata=metadata)
            out.write(second.getvalue())
        case _:
            session(out, options, records, metadata=metadata)
    return out.getvalue()


UNCOMPRESSED = [
    name
    for name, entry in manifest().items()
    if "uncompressed" in entry["options"] and "transpose" not in entry["options"] and name != "empty_meta"
]


def test_there_are_files_to_compare_with():
    assert len(UNCOMPRESSED) >= 10


@rows("name", ["empty", *UNCOMPRESSED])
def test_equal_to_the_reference(name):
    assert again(name) == raw(name)


@rows("name", sweep.part(name for name in manifest() if name not in UNCOMPRESSED))
def test_chunks_equal_to_those_of_the_reference(name):
    """Where the compressor has a say: the same chunks, of the same contents; padding to the same places."""
    data = again(name)
    chunks = chunk_table(data)
    expected = table(name)
    assert [chunk.contents for chunk in chunks] == [chunk.contents for chunk in expected]
    assert [chunk.end for chunk in chunks if chunk.type == "p"] == [
        chunk.end for chunk in expected if chunk.type == "p"
    ]
    if name.startswith(("many_empty", "padding", "append_padding")):
        assert len(data) == len(raw(name))
    assert read(data) == read(raw(name))
    with RecordReader(data) as reader:
        assert (reader.read_serialized_metadata() or b"").hex() == (manifest()[name]["metadata_hex"] or "")


# -- where records go ------------------------------------------------------------------------------------------------


def grouped(sizes: list[int], chunk_size: int) -> list[list[int]]:
    """Which records share a chunk, by the rule: each costs its size and 8."""
    groups: list[list[int]] = [[]]
    left = chunk_size
    for number, size in enumerate(sizes):
        if groups[-1] and size + 8 > left:
            groups.append([])
            left = chunk_size
        groups[-1].append(number)
        left -= min(size + 8, left)
        if left < 8:
            groups.append([])
            left = chunk_size
    return [group for group in groups if group]


@pytest.mark.parametrize("name", ["simple_uncompressed", "simple_mixed_brotli11", "transpose_parallel"])
def test_the_rule_is_that_of_the_reference(name):
    sizes = [len(record) for record in read(raw(name))]
    chunk_size = {"simple_uncompressed": 2048, "simple_mixed_brotli11": 8192, "transpose_parallel": 2048}[name]
    counts = [chunk.num_records for chunk in table(name) if chunk.num_records]
    assert [len(group) for group in grouped(sizes, chunk_size)] == counts


ENDS = [
    pytest.param(length, id=f"{advance(64, length) - BLOCK:+d}") for length in range(65472 - 70, 65472 + 47)
]  # of the first chunk, relative to the block boundary; it cannot end within or right after the block header


@rows("second", ["uncompressed,chunk_size:1", "transpose,zstd,chunk_size:1"])
@rows("length", ENDS)
def test_a_chunk_that_ends_near_a_block_boundary(length, second):
    end = advance(64, length)
    records = [bytes([length % 256]) * (length - CHUNK_HEADER - 5), b"second!" * 9, b"", b"\x08\x01"]
    out = io.BytesIO()
    positions = []
    session(out, "uncompressed,chunk_size:1", records[:1])
    assert out.tell() == end
    with RecordWriter(out, owns_dest=False, options=second) as writer:
        assert writer.pos == RecordPosition(end, 0)
        for record in records[1:]:
            writer.write_record(record)
            positions.append(writer.last_pos)
    data = out.getvalue()
    chunks = record_chunks(data)
    assert (chunks[0].begin, chunks[0].end) == (64, end)
    assert positions == [RecordPosition(chunk.begin, 0) for chunk in chunks[1:]]
    assert read(data) == records
    with RecordReader(data) as reader:
        for chunk, record in reversed(list(zip(chunks, records, strict=True))):
            reader.seek(RecordPosition(chunk.begin, 0))
            assert reader.read_record() == record
            reader.seek_numeric(chunk.begin - 1)
            assert str(reader.pos) == f"{chunk.begin}/0"
            assert reader.read_record() == record


@pytest.mark.parametrize("count", [65471, 65472, 65473, 65480, 65496, 65497])
def test_more_records_than_bytes(count):
    """A chunk is padded to a byte for each record, and to a place where the next one may begin."""
    data = write([b""] * count + [b"last"], "zstd,chunk_size:8M")
    chunks = record_chunks(data)
    assert [chunk.num_records for chunk in chunks] == [count + 1]
    assert can_begin(len(data))
    with RecordReader(data) as reader:
        reader.seek_numeric(64 + count)
        assert reader.pos == RecordPosition(64, count)
        assert reader.read_record() == b"last"
        assert reader.read_record() is None


def padded(position: int, multiple: int) -> int:
    """Where padding to a multiple has to end."""
    if position % multiple == 0:
        return position
    end = position + -position % multiple
    while not can_begin(end) or end < advance(position, CHUNK_HEADER):
        end += multiple
    return end


@rows("multiple", [2, 24, 39, 40, 41, 100, 1000, 4096, 65536, 65537, 65540, 100_000])
@rows("kind", ["final_padding", "initial_padding"])
def test_padding_fills_the_file_up_to_the_multiple_asked_for(kind, multiple):
    for size in sweep.some([*range(12), 900, 65300, *range(65390, 65450, 3), 65500], 4):
        plain = write([bytes(size)], "uncompressed")
        end = padded(len(plain), multiple)
        if kind == "final_padding":
            data = write([bytes(size)], f"uncompressed,final_padding:{multiple}")
            assert len(data) == end, size
            expected = [bytes(size)]
        else:
            out = io.BytesIO(plain)
            session(out, f"uncompressed,initial_padding:{multiple}", [b"next"])
            data = out.getvalue()
            assert [chunk.begin for chunk in record_chunks(data)] == [64, end], size
            expected = [bytes(size), b"next"]
        assert [chunk.type for chunk in chunk_table(data)].count("p") == (end != len(plain))
        assert read(data) == expected


def test_no_padding_at_the_beginning_of_a_file():
    assert [chunk.type for chunk in chunk_table(write([b"a"], "initial_padding"))] == ["s", "r"]


def test_files_can_be_concatenated():
    first = write([b"a" * 100] * 3, "zstd,final_padding:64k")
    assert len(first) == BLOCK
    data = first + first + write([b"b"], "transpose", serialized_metadata=b"\x0a\x01x")
    assert read(data) == [b"a" * 100] * 6 + [b"b"]


# -- round trips -----------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(chooser: random.Random, depth: int = 0) -> bytes:
    """Protobuf wire data with a bit of everything."""
    out = b""
    for _ in range(chooser.choice((0, 1, 2, 5))):
        field = chooser.choice((1, 2, 3, 15, 16, 100, 2047, 2048, 536870911))
        match chooser.choice("vvfFssmmgx"):
            case "v":
                out += varint(field << 3) + varint(chooser.getrandbits(chooser.choice((1, 2, 7, 8, 14, 35, 63, 64))))
            case "f":
                out += varint(field << 3 | 5) + chooser.randbytes(4)
            case "F":
                out += varint(field << 3 | 1) + chooser.randbytes(8)
            case "s":
                text = chooser.randbytes(chooser.choice((0, 1, 3, 100, 130)))
                out += varint(field << 3 | 2) + varint(len(text)) + text
            case "m" if depth < 5:
                inner = message(chooser, depth + 1)
                out += varint(field << 3 | 2) + varint(len(inner)) + inner
            case "g" if depth < 5:
                out += varint(field << 3 | 3) + message(chooser, depth + 1) + varint(field << 3 | 4)
            case "x" if chooser.random() < 0.1:
                out += chooser.randbytes(3)
    return out


def some_record(chooser: random.Random) -> bytes:
    match chooser.choice("mmmbnez"):
        case "m":
            return message(chooser)
        case "b":
            return chooser.randbytes(chooser.choice((1, 2, 10, 127, 128, 1000)))
        case "n":
            spoiled = bytearray(message(chooser) + b"\x08\x01")
            spoiled[chooser.randrange(len(spoiled))] ^= 1 << chooser.randrange(8)
            return bytes(spoiled)
        case "z":
            return bytes([chooser.getrandbits(8)]) * chooser.choice((4095, 16384, 65400, 65536, 200_000))
    return b""


SIZES = {"": None, "1": 1, "60": 60, "1k": 1024, "100k": 102_400}


@st.composite
def option_texts(draw) -> tuple[str, int]:
    """Options, and the chunk size they mean."""
    compression = draw(
        st.sampled_from(["uncompressed", "", "brotli:0", "brotli:4,window_log:10", "zstd", "zstd:-7", "snappy"])
    )
    chunk_size = draw(st.sampled_from(list(SIZES)))
    words = [
        compression,
        draw(st.sampled_from(["", "transpose"])),
        f"chunk_size:{chunk_size}" if chunk_size else "",
        draw(st.sampled_from(["", "bucket_fraction:0", "bucket_fraction:0.01", "bucket_fraction:0.5"])),
        draw(st.sampled_from(["", "padding:100", "initial_padding:4k", "final_padding"])),
        draw(st.sampled_from(["", "parallelism:2"])),
    ]
    default = 4096 if compression == "uncompressed" else 1 << 20
    return ",".join(words), SIZES[chunk_size] or default


@settings(max_examples=sweep.examples(120))
@given(option_texts(), st.integers(0, 2**32), st.integers(0, 40), st.sets(st.integers(0, 40), max_size=3))
def test_what_is_written_is_read_at_the_positions_that_were_told(options, seed, count, flushes):
    text, chunk_size = options
    chooser = random.Random(seed)
    records = [some_record(chooser) for _ in range(count)]
    out = io.BytesIO()
    positions = []
    with RecordWriter(out, owns_dest=False, options=text) as writer:
        for number, record in enumerate(records):
            if number in flushes:
                writer.flush()
            writer.write_record(record)
            positions.append(writer.last_pos)
    data = out.getvalue()
    assert read(data) == records

    chunks = record_chunks(data)
    cuts = [0, *sorted(flush for flush in flushes if 0 < flush < count), count]
    groups = [
        [begin + number for number in group]
        for begin, end in pairwise(cuts)
        for group in grouped([len(record) for record in records[begin:end]], chunk_size)
    ]
    assert [chunk.contents[1:] for chunk in chunks] == [
        (len(group), sum(len(records[number]) for number in group)) for group in groups
    ]
    assert {chunk.type for chunk in chunks} <= {"t" if "transpose" in text else "r"}
    assert positions == [
        RecordPosition(chunk.begin, index)
        for chunk, group in zip(chunks, groups, strict=True)
        for index in range(len(group))
    ]
    with RecordReader(data) as reader:
        for number in chooser.sample(range(count), min(count, 5)):
            reader.seek(positions[number])
            assert reader.read_record() == records[number]


# What takes a record apart must put it together again, and leave alone what is not canonical wire data.
ODD = {
    "empty": b"",
    "overlong varint": b"\x08\x80\x00",
    "overlong tag": b"\x88\x00\x01",
    "overlong length": b"\x0a\x81\x00a",
    "field 0": b"\x00\x01",
    "wire type 6": b"\x0e\x01",
    "wire type 7": b"\x0f\x01",
    "largest varint": b"\x08" + b"\xff" * 9 + b"\x01",
    "varint of 65 bits": b"\x08" + b"\xff" * 9 + b"\x02",
    "varint of 11 bytes": b"\x08" + b"\x80" * 10 + b"\x01",
    "largest tag": varint(536870911 << 3 | 5) + b"abcd",
    "tag of 33 bits": varint(1 << 33) + b"\x00",
    "cut varint": b"\x08\x80",
    "cut fixed32": b"\x0dabc",
    "cut fixed64": b"\x09abcdefg",
    "cut string": b"\x0a\x05abcd",
    "enormous string": b"\x0a" + varint(2**32 + 5) + b"abcd",
    "group": b"\x0b\x08\x01\x0c",
    "empty group": b"\x0b\x0c",
    "open group": b"\x0b\x08\x01",
    "closed group that was not open": b"\x0c",
    "crossed groups": b"\x0b\x13\x0c\x14",
    "group closed by another": b"\x0b\x14",
    "group across a submessage": b"\x0b\x0a\x01\x0c\x0c",
    "string that is a message": b"\x0a\x02\x08\x01",
    "string that is no message": b"\x0a\x02\x08\x80",
    "empty string": b"\x0a\x00",
    "string of an overlong varint": b"\x0a\x03\x08\x80\x00",
    "inline varints": b"\x08\x00\x08\x01\x08\x02\x08\x03\x08\x04\x08\x7f\x08\x80\x01",
    "one field, many lengths": b"".join(b"\x08" + varint(1 << bits) for bits in range(64)),
}


def nested(depth: int, kind: str) -> bytes:
    content = b"\x08\x05"
    for _ in range(depth):
        content = b"\x0a" + varint(len(content)) + content if kind == "messages" else b"\x0b" + content + b"\x0c"
    return content


ODD |= {
    f"{depth} nested {kind}": nested(depth, kind)
    for depth in (98, 99, 100, 101, 130)
    for kind in ("messages", "groups")
}


@rows("name", ODD)
def test_odd_records_transposed(name):
    for options in ("transpose,uncompressed", "transpose,zstd,bucket_fraction:0"):
        for records in ([ODD[name]], [ODD[name]] * 3, [b"\x08\x01", ODD[name], b"\xff", b"\x0a\x01x"]):
            assert read(write(records, options)) == records


@rows("compression", sweep.part(COMPRESSIONS))
@rows("fraction", ["0", "0.001", "1"])
def test_all_odd_records_in_one_transposed_chunk(compression, fraction):
    """More states than a transition can reach: bridges are needed."""
    chooser = random.Random(5)
    wide = [b"".join(varint(chooser.randrange(1, 700) << 3) + varint(n) for n in range(40)) for _ in range(60)]
    records = list(ODD.values()) + wide + [message(chooser) for _ in range(200)]
    data = write(records, f"transpose,{compression},bucket_fraction:{fraction},chunk_size:1M")
    assert [chunk.contents for chunk in chunk_table(data)[1:]] == [("t", len(records), sum(map(len, records)))]
    assert read(data) == records


def test_transposed_records_are_taken_apart():
    """Not just stored as they are: fields can be read without the rest, and like goes with like."""
    records = [b"\x08" + varint(n) + b"\x12\x05" + b"%05d" % (n * 977 % 9999) for n in range(500)]
    data = write(records, "transpose,uncompressed,chunk_size:1M")
    with RecordReader(data, field_projection=[[1]]) as reader:
        assert list(reader.read_records()) == [record[:-7] for record in records]
    with RecordReader(data, field_projection=[[2, 0]]) as reader:
        assert list(reader.read_records()) == [b"\x12\x00"] * 500


@rows(
    "options",
    [
        "brotli:11",
        "brotli:0,window_log:16",
        "brotli:3,window_log:25",
        "brotli_encoder:cbrotli",
        "brotli_encoder:rbrotli",
        "zstd:19",
        "zstd:-131072",
        "zstd:0",
        "zstd,window_log:10",
        "zstd,window_log:27",
        "snappy:1",
        "snappy:2",
        "default,transpose,snappy:2",
    ],
)
def test_levels_and_windows(options):
    chooser = random.Random(options)
    text = b" ".join(chooser.choice((b"some", b"words", b"again", b"and")) for _ in range(20_000))
    records = [text, b"", text[:5000], chooser.randbytes(70_000)]
    assert read(write(records, options)) == records


@pytest.mark.parametrize("name", ["brotli:12", "zstd,brotli", "unknown", "chunk_size:0"])
def test_options_that_are_none(name, tmp_path):
    path = tmp_path / "there"
    path.write_bytes(b"precious")
    with pytest.raises(InvalidArgumentError):
        RecordWriter(path, options=name)
    assert path.read_bytes() == b"precious"


# -- records too large to hold ---------------------------------------------------------------------------------------


@rows("size", [0, 1, 65422, 65423, 200_000, 2_500_000])
@rows("options", ["uncompressed", "brotli:1", "zstd", "snappy", "transpose,zstd", "zstd,parallelism:2"])
def test_a_record_written_from_elsewhere(options, size):
    """Streamed: a chunk of its own, between others, whatever the chunk size; without compression the same bytes."""
    from pparse.data.base import BytesData

    content = random.Random(size).randbytes(5000) * (size // 5000 + 1)
    records = [b"before", content[:size], b"after"]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        writer.write_record(records[0])
        writer.write_record_from(BytesData(records[1]))
        place = writer.last_pos
        writer.write_record(records[2])
    assert read(out.getvalue()) == records
    chunks = record_chunks(out.getvalue())
    assert [chunk.contents[1:] for chunk in chunks] == [(1, len(record)) for record in records]
    assert place == RecordPosition(chunks[1].begin, 0)
    if options == "uncompressed":
        held = io.BytesIO()
        session(held, options, records[:1], records[1:2], records[2:])
        assert out.getvalue() == held.getvalue()


# -- in parallel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose", ["", "transpose"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_parallelism_changes_nothing(compression, transpose):
    chooser = random.Random(compression)
    records = [message(chooser) + b"x" * chooser.randrange(3) for _ in range(300)]
    options = f"{compression},{transpose},chunk_size:500"
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=f"{options},parallelism:3") as writer:
        positions = []
        for number, record in enumerate(records):
            writer.write_record(record)
            if number % 50 == 0:
                positions.append((number, writer.last_pos))
            if number == 100:
                writer.flush()
                assert out.tell() == writer.pos.numeric == writer.estimated_size()
    single = io.BytesIO()
    session(single, options, records[:101], records[101:])
    assert out.getvalue() == single.getvalue()
    with RecordReader(out.getvalue()) as reader:
        for number, position in positions:
            reader.seek(position)
            assert reader.read_record() == records[number]


def test_errors_of_the_file_come_out_of_threads():
    class Full(io.BytesIO):
        def write(self, data) -> int:
            if self.tell() + len(data) > 64:
                raise OSError(28, "no space left on the device")
            return super().write(data)

    before = threading.active_count()
    for parallelism in (0, 2):
        writer = RecordWriter(Full(), options=f"parallelism:{parallelism},chunk_size:100")
        with pytest.raises(OSError, match="no space left"):  # noqa: PT012 (which call it is may differ)
            writer.write_record(b"x" * 500)
            writer.flush()
        # Where the file ends now nobody knows: no more is written.
        for call in (partial(writer.write_record, b"y"), writer.flush, writer.close):
            with pytest.raises(OSError, match="no space left"):
                call()
    assert threading.active_count() == before


# -- destinations ----------------------------------------------------------------------------------------------------

THREE = [b"one", b"", b"three" * 1000]


@pytest.mark.parametrize("way", ["path", "str", "file", "BytesIO", "pipe"])
def test_every_kind_of_destination_gets_the_same_bytes(way, tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"what was there before" * 1000)
    dest = {"path": path.absolute, "str": path.as_posix, "BytesIO": io.BytesIO, "pipe": Pipe}.get(way, path.open)(
        *(["wb"] if way == "file" else [])
    )
    assumed = {"assumed_pos": 0} if way == "pipe" else {}
    with RecordWriter(dest, owns_dest=way not in ("BytesIO", "pipe"), options="zstd", **assumed) as writer:
        writer.write_records(THREE)
    data = dest.getvalue() if way == "BytesIO" else bytes(dest.written) if way == "pipe" else path.read_bytes()
    assert data == write(THREE, "zstd")


@pytest.mark.parametrize("owns", [True, False])
def test_who_closes_the_destination(owns):
    dest = io.BytesIO()
    with RecordWriter(dest, owns_dest=owns) as writer:
        assert writer.dest is dest
    assert dest.closed is owns


def test_bytes_are_no_destination():
    with pytest.raises(TypeError):
        RecordWriter(b"bytes")


def test_a_destination_that_stands_elsewhere():
    """At another place than 0: what is written continues a file, without signature and metadata."""
    dest = Pipe()
    with RecordWriter(
        dest, owns_dest=False, assumed_pos=64, options="uncompressed", serialized_metadata=b"x"
    ) as writer:
        assert str(writer.pos) == "64/0"
        writer.write_records(THREE)
    assert SIGNATURE + bytes(dest.written) == write(THREE, "uncompressed")


@pytest.mark.parametrize("position", [1, 24, BLOCK + 1, BLOCK + 24])
def test_a_destination_that_stands_where_no_chunk_may_begin(position):
    dest = Pipe()
    with RecordWriter(dest, owns_dest=False, assumed_pos=position, options="uncompressed") as writer:
        writer.write_records(THREE)
    gap = -position % BLOCK
    assert dest.written[:gap] == bytes(gap)
    # From there on as it would be at any other block boundary.
    other = Pipe()
    with RecordWriter(other, owns_dest=False, assumed_pos=7 * BLOCK, options="uncompressed") as writer:
        writer.write_records(THREE)
    assert dest.written[gap:] == other.written


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_records(kind):
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False) as writer:
        record = bytearray(b"content")
        writer.write_record(kind(record))
        record[:] = b"changed"
        with pytest.raises(TypeError):
            writer.write_record("text")
    assert read(out.getvalue()) == [b"content"]


def test_a_record_that_changes_after_it_was_written():
    """What is written is what was handed over, not what became of it."""
    for options in ("uncompressed", "transpose", "parallelism:2"):
        out = io.BytesIO()
        record = bytearray(b"\x08\x01" * 10)
        with RecordWriter(out, owns_dest=False, options=options) as writer:
            for number in range(5):
                record[1] = number
                writer.write_record(record)
        assert [found[1] for found in read(out.getvalue())] == [0, 1, 2, 3, 4]


# -- appending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["append", "ab", "BytesIO"])
def test_records_are_appended_behind_those_that_are_there(way, tmp_path):
    path = tmp_path / "out"
    with RecordWriter(path, options="zstd", serialized_metadata=b"\x0a\x01x") as writer:
        writer.write_record(b"first")
    before = path.read_bytes()
    memory = io.BytesIO(before)
    memory.seek(0, io.SEEK_END)
    for record in (b"second", b"third"):
        dest = {"append": path, "ab": None, "BytesIO": memory}[way] or open(path, "ab")  # noqa: SIM115
        append = {"append": True} if way == "append" else {}
        with RecordWriter(dest, owns_dest=way != "BytesIO", options="zstd", **append) as writer:
            here = writer.pos
            writer.write_record(record)
            assert writer.last_pos == here
    data = memory.getvalue() if way == "BytesIO" else path.read_bytes()
    assert data.startswith(before)
    assert [chunk.type for chunk in chunk_table(data)] == ["s", "m", "r", "r", "r"]
    assert read(data) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("existing", [True, False])
def test_append_to_nothing(existing, tmp_path):
    path = tmp_path / "out"
    if existing:
        path.touch()
    with RecordWriter(path, append=True, options="zstd", serialized_metadata=b"\x0a\x01x") as writer:
        writer.write_records(THREE)
    assert path.read_bytes() == write(THREE, "zstd", serialized_metadata=b"\x0a\x01x")


CUTS = [
    pytest.param("chunk_size_1", 30, id="in the signature"),
    pytest.param("chunk_size_1", 1153 + 10, id="in a chunk header"),
    pytest.param("chunk_size_1", 1100, id="in the data"),
    pytest.param("chunk_size_1", 1215, id="one byte short"),
    pytest.param("many_empty_padding", 2000, id="in the padding of a chunk"),
    pytest.param("padding_4k", 5000, id="in a padding chunk"),
    pytest.param("blocks_uncompressed", BLOCK, id="at a block boundary"),
    pytest.param("blocks_uncompressed", BLOCK + 10, id="in a block header"),
    pytest.param("boundary_20", 65536, id="in a chunk header, at a block boundary"),
]


@pytest.mark.parametrize("way", ["append", "ab", "r+b"])
@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_append_to_a_truncated_file(name, cut, way, tmp_path):
    """New records must not be buried in the chunk that was cut: refused, or done so that they can be read."""
    path = tmp_path / "out"
    path.write_bytes(raw(name)[:cut])
    before = read_all_that_is_whole(raw(name)[:cut])
    dest = path if way == "append" else open(path, way)  # noqa: SIM115
    if way != "append":
        dest.seek(0, io.SEEK_END)
    try:
        with RecordWriter(dest, **({"append": True} if way == "append" else {})) as writer:
            writer.write_records([b"new"] * 3)
    except RiegeliError:
        if way != "append":
            dest.close()
        assert path.read_bytes() == raw(name)[:cut]
    else:
        assert read_all_that_is_whole(path.read_bytes())[-3:] == [b"new"] * 3
        assert len(read_all_that_is_whole(path.read_bytes())) >= len(before) + 3


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_repair_before_appending(name, cut, tmp_path):
    """What could be read before can be read after, now without recovery."""
    path = tmp_path / "out"
    path.write_bytes(raw(name)[:cut])
    before = read_all_that_is_whole(raw(name)[:cut])
    with RecordWriter(path, append=True, repair=True) as writer:
        writer.write_records([b"new"] * 3)
    assert read(path.read_bytes()) == [*before, *[b"new"] * 3]


@pytest.mark.parametrize("at", [64 + 3, 134 + 3, 134 + 50, 1153 + 3], ids=["first", "header", "data", "last"])
def test_repair_takes_nothing_that_can_be_read(at, tmp_path):
    """Damage is not truncation: what follows it must not be cut off."""
    data = bytearray(raw("chunk_size_1"))
    data[at] ^= 1
    path = tmp_path / "out"
    path.write_bytes(data)
    before = read_all_that_is_whole(bytes(data))
    assert len(before) >= 11
    try:
        with RecordWriter(path, append=True, repair=True) as writer:
            writer.write_record(b"new")
    except RiegeliError:
        assert path.read_bytes() == data
    else:
        assert read_all_that_is_whole(path.read_bytes()) == [*before, b"new"]


def read_all_that_is_whole(data: bytes) -> list[bytes]:
    with RecordReader(data, recovery=lambda region: None) as reader:
        return list(reader.read_records())


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    "content",
    [b"hello", b"hello world " * 100, bytes(BLOCK), bytes(3 * BLOCK + 7)],
    ids=["short", "long", "block", "blocks"],
)
def test_append_to_something_else(content, repair, tmp_path):
    """Somebody's file that is none of ours is not touched, repair or no repair."""
    path = tmp_path / "out"
    path.write_bytes(content)
    with pytest.raises(RiegeliError), RecordWriter(path, append=True, repair=repair) as writer:
        writer.write_record(b"new")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "name", ["blocks_uncompressed", "boundary_00", "boundary_01", "padding_64k", "many_empty_boundary"]
)
def test_append_to_a_whole_file(name, tmp_path):
    path = tmp_path / "out"
    path.write_bytes(raw(name))
    with RecordWriter(path, append=True, options="uncompressed") as writer:
        writer.write_record(b"new")
    data = path.read_bytes()
    assert data.startswith(raw(name))
    assert record_chunks(data)[-1].contents == ("r", 1, 3)
    with RecordReader(data) as reader:
        reader.seek_numeric(reader.size())
        assert reader.seek_back()
        assert reader.read_record() == b"new"


# -- flushing, sizes, the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(FlushType))
def test_what_was_flushed_can_be_read(kind, tmp_path):
    path = tmp_path / "out"
    with RecordWriter(path, options="zstd") as writer:
        for number in range(3):
            writer.write_record(b"%d" % number)
            writer.flush(kind)
            if kind is not FlushType.FROM_OBJECT:
                assert read(path.read_bytes()) == [b"%d" % n for n in range(number + 1)]
        assert str(writer.pos) == f"{writer.estimated_size()}/0"
    assert [chunk.num_records for chunk in record_chunks(path.read_bytes())] == [1, 1, 1]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False) as writer:
        writer.write_record(b"in memory")
        writer.flush(kind)
        assert read(out.getvalue()) == [b"in memory"]


def test_kinds_of_flushes():
    assert [kind.name for kind in FlushType] == ["FROM_OBJECT", "FROM_PROCESS", "FROM_MACHINE"]


def test_flush_pads_up_to_the_final_padding():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="final_padding:4k") as writer:
        writer.write_record(b"x")
        writer.flush()
        assert len(out.getvalue()) == 4096
        writer.flush()
        assert len(out.getvalue()) == 4096
        assert writer.pos == RecordPosition(4096, 0)


def test_estimated_size_grows_to_the_size():
    out = io.BytesIO()
    writer = RecordWriter(out, owns_dest=False, options="uncompressed,chunk_size:10k")
    sizes = [writer.estimated_size()]
    for _ in range(50):
        writer.write_record(b"x" * 1000)
        sizes.append(writer.estimated_size())
    assert sizes == sorted(sizes)
    assert sizes[0] <= 64 + 100
    assert abs(sizes[-1] - 50_000) < 12_000
    writer.flush()
    assert writer.estimated_size() == len(out.getvalue()) == out.tell()
    writer.close()


def test_a_file_of_no_records_is_the_signature():
    assert write([]) == SIGNATURE
    assert write([], "transpose,parallelism:2") == SIGNATURE
    data = write([], serialized_metadata=b"\x0a\x01x")
    assert [chunk.contents for chunk in chunk_table(data)] == [("s", 0, 0), ("m", 0, 3)]
    assert read(data) == []


def test_the_first_position_is_after_the_metadata():
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, serialized_metadata=b"\x0a\x01x") as writer:
        here = writer.pos
        writer.write_record(b"x")
        assert writer.last_pos == here
    assert here.chunk_begin == chunk_table(out.getvalue())[1].end
    with RecordWriter(io.BytesIO()) as writer:
        assert str(writer.pos) == "64/0"


def test_a_closed_writer_says_so():
    out = io.BytesIO()
    writer = RecordWriter(out, owns_dest=False)
    writer.write_record(b"x")
    writer.close()
    writer.close()
    size = out.tell()
    for call in (lambda: writer.write_record(b"y"), writer.flush, lambda: writer.write_records([b"z"])):
        with pytest.raises((RiegeliError, ValueError)):
            call()
    assert out.tell() == size


def test_an_error_in_the_block_is_the_callers(tmp_path):
    path = tmp_path / "out"
    with RecordWriter(path) as writer:
        writer.write_record(b"x")
        with pytest.raises(KeyError, match="mine"), writer:
            raise KeyError("mine")
    assert read(path.read_bytes()) in ([], [b"x"])


# -- messages and metadata -------------------------------------------------------------------------------------------


def timestamps(count: int):
    from google.protobuf.timestamp_pb2 import Timestamp

    return [Timestamp(seconds=n, nanos=n * n) for n in range(count)]


@pytest.mark.parametrize("options", ["", "transpose", "uncompressed,chunk_size:20"])
def test_messages_are_written_as_serialized(options):
    messages = timestamps(20)
    kind = type(messages[0])
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        writer.write_message(messages[0])
        writer.write_messages(iter(messages[1:]))
    assert read(out.getvalue()) == [message.SerializeToString() for message in messages]
    with RecordReader(out.getvalue()) as reader:
        first = reader.read_message(kind)
        assert first == messages[0]
        assert isinstance(first, kind)
        assert list(reader.read_messages(kind)) == messages[1:]
        assert reader.read_message(kind) is None


def test_search_for_message():
    messages = timestamps(200)
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="chunk_size:100") as writer:
        writer.write_messages(messages)
    with RecordReader(out.getvalue()) as reader:
        found = reader.search_for_message(
            type(messages[0]), lambda message: (message.seconds > 77) - (message.seconds < 77)
        )
        assert found == 0
        assert reader.read_message(type(messages[0])) == messages[77]


@pytest.mark.parametrize("bad", [1, 2, 5])
def test_a_record_that_is_no_such_message(bad):
    """It alone is skipped: from its position to that of the next record."""
    messages = timestamps(6)
    kind = type(messages[0])
    records = [message.SerializeToString() for message in messages]
    records[bad] = b"\xff\xff\xff"
    out = io.BytesIO()
    positions = []
    with RecordWriter(out, owns_dest=False, options="zstd") as writer:
        for number, record in enumerate(records):
            if number == 3:
                writer.flush()
            writer.write_record(record)
            positions.append(writer.last_pos.numeric)
    positions.append(len(out.getvalue()))

    reader = RecordReader(out.getvalue())
    for number in range(bad):
        assert reader.read_message(kind) == messages[number]
    with pytest.raises(DecodeError):
        reader.read_message(kind)
    assert list(reader.read_messages(kind)) == messages[bad + 1 :]

    regions: list[SkippedRegion] = []
    with RecordReader(out.getvalue(), recovery=regions.append) as reader:
        assert list(reader.read_messages(kind)) == messages[:bad] + messages[bad + 1 :]
    assert [(region.begin, region.end) for region in regions] == [(positions[bad], positions[bad + 1])]


def test_metadata_name_the_type_and_describe_its_files():
    kind = type(timestamps(1)[0])
    metadata = RecordsMetadata()
    metadata.file_comment = "a comment"
    metadata.record_writer_options = "transpose"
    metadata.num_records = 3
    set_record_type(metadata, kind)
    assert metadata.record_type_name == "google.protobuf.Timestamp"
    assert [file.name for file in metadata.file_descriptor] == ["google/protobuf/timestamp.proto"]
    for options in ("", "uncompressed", "zstd,transpose", "snappy"):
        out = io.BytesIO()
        with RecordWriter(out, owns_dest=False, options=options, metadata=metadata) as writer:
            writer.write_messages(timestamps(3))
        with RecordReader(out.getvalue()) as reader:
            found = reader.read_metadata()
            assert found == metadata
            assert found.SerializeToString() == metadata.SerializeToString()
            there = get_record_type(found)
            assert there is not None
            assert there.DESCRIPTOR.full_name == "google.protobuf.Timestamp"
            assert [message.nanos for message in reader.read_messages(there)] == [0, 1, 4]


def test_record_type_that_needs_other_files():
    """A class whose file imports another one, known to no pool but that of the file it is read from."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    inner = descriptor_pb2.FileDescriptorProto(name="riegeli_test/inner.proto", package="riegeli_test")
    inner.message_type.add(name="Inner").field.add(name="text", number=1, type=9, label=1)
    outer = descriptor_pb2.FileDescriptorProto(name="riegeli_test/outer.proto", package="riegeli_test")
    outer.dependency.append(inner.name)
    holder = outer.message_type.add(name="Holder").nested_type.add(name="Outer")
    holder.field.add(name="inner", number=5, type=11, label=3, type_name=".riegeli_test.Inner")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(inner) if hasattr(pool, "Add") else pool.AddSerializedFile(inner.SerializeToString())
    pool.Add(outer) if hasattr(pool, "Add") else pool.AddSerializedFile(outer.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("riegeli_test.Holder.Outer"))

    metadata = RecordsMetadata()
    set_record_type(metadata, kind)
    assert metadata.record_type_name == "riegeli_test.Holder.Outer"
    assert [file.name for file in metadata.file_descriptor] == [inner.name, outer.name]
    data = write([kind(inner=[{"text": "a"}, {"text": "b"}]).SerializeToString()], metadata=metadata)
    with RecordReader(data) as reader:
        found = get_record_type(reader.read_metadata())
        assert found is not None
        assert [inner.text for inner in reader.read_message(found).inner] == ["a", "b"]


def test_no_record_type():
    assert get_record_type(RecordsMetadata()) is None
    with RecordReader(raw("transpose_brotli")) as reader:
        metadata = reader.read_metadata()
        assert metadata is not None
        assert (metadata.file_comment, metadata.record_type_name, metadata.num_records) == (
            "made for testing",
            "test.Message",
            80,
        )
        # A name, and nothing to make it of.
        with pytest.raises(InvalidArgumentError):
            get_record_type(metadata)
    with RecordReader(b"") as reader:
        assert reader.read_metadata() is None
    with RecordReader(raw("flush")) as reader:
        assert reader.read_metadata() == RecordsMetadata()


def test_serialized_metadata_need_not_be_a_message():
    for content in (b"\xff\xff", b"plain words", b"\x0a\x01x\x0a\x01y"):
        with RecordReader(write([b"x"], serialized_metadata=content)) as reader:
            assert reader.read_serialized_metadata() == content
            assert reader.read_record() == b"x"
