"""Transposed chunks: files of the reference, odd and invalid machines, projection, round trips, bounds.

``data/riegeli``: files of the reference C++ library with their records in ``NAME.jsonl``; ``projection.jsonl`` (what it
read with a projection) and the ``t_*`` files of ``crafted.jsonl.gz`` (made by hand, with its verdicts).
"""

from __future__ import annotations

import hashlib
import io
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.errors import MalformedError
from pparse.kernels.riegeli import find_loop, is_canonical_message, sized_values, string_values, strings_of_stream
from pparse.kernels.varint import encode_varint, encode_varints
from pparse.riegeli import parts as parts_module
from pparse.riegeli import transposed
from pparse.riegeli.errors import InvalidArgumentError, RiegeliError, UnimplementedError
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor, codec_of, read_part, size_hint
from pparse.riegeli.transposed import (
    END_OF_SUBMESSAGE,
    EXISTENCE_ONLY,
    INLINE,
    LEN,
    NO_OP,
    NON_PROTO,
    START_OF_MESSAGE,
    START_OF_SUBMESSAGE,
    ChunkParts,
    FieldProjection,
    decode_transposed,
)
from pparse.riegeli.transposed_encoder import MAX_DEPTH, encode_transposed
from tests import sweep, zstd
from tests.riegeli_fixtures import CHUNK_HEADER, Chunk, chunk_at, digest, lines, manifest, raw, records, strip, table
from tests.rows import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = {"none": NONE, "brotli": BROTLI, "zstd": ZSTD, "snappy": SNAPPY}
TRANSPOSED = [name for name, entry in manifest().items() if any(chunk[2] == "t" for chunk in entry["chunks"])]


def chunks_of(name: str, kind: str = "t") -> list[tuple[Chunk, bytes]]:
    """Return the chunks of that kind in a file, with their data."""
    file = raw(name)
    return [
        (chunk, strip(file, chunk.begin, CHUNK_HEADER + chunk.data_size)[CHUNK_HEADER:])
        for chunk in table(name)
        if chunk.type == kind
    ]


def decode(data: bytes, contents: list[bytes], projection: list[list[int]] | None = None) -> list[bytes]:
    """Decode a chunk that holds these records."""
    size = sum(map(len, contents))
    return decode_transposed(data, len(contents), size, projection and FieldProjection(projection))


def encode(contents: list[bytes], kind: int = NONE, **options: int) -> bytes:
    return encode_transposed(contents, PartCompressor(kind), **options)


def options_of(name: str, kind: int) -> tuple[PartCompressor, int]:
    """Return the compressor and the bucket size that the chunks of that kind in a file were written with."""
    chunk_size, fraction, level, window_log = 4096 if kind == NONE else 1 << 20, 1.0, None, None
    for option in manifest()[name]["options"].split(","):
        key, _, value = option.partition(":")
        if key in ("brotli", "zstd"):
            level = int(value) if value and KINDS[key] == kind else None
        elif key == "window_log":
            window_log = min(int(value), 24)  # no library here writes Brotli with a larger one
        elif key == "chunk_size":
            chunk_size = int(value.removesuffix("k")) << 10
        elif key == "bucket_fraction":
            fraction = float(value)
    return PartCompressor(kind, level, window_log), max(1, round(chunk_size * fraction))


# -- files of the reference ------------------------------------------------------------------------------------------


@rows("name", TRANSPOSED)
def test_records_of_the_reference(name):
    expected = {record.pos: record for record in records(name)}
    for chunk, data in chunks_of(name):
        found = decode_transposed(data, chunk.num_records, chunk.decoded_size)
        assert len(found) == chunk.num_records
        for index, record in enumerate(found):
            want = expected[f"{chunk.begin}/{index}"]
            assert (len(record), digest(record)) == (want.size, want.digest), (name, chunk.begin, index)


@rows("name", TRANSPOSED)
def test_as_small_as_the_reference(name):
    for chunk, data in chunks_of(name):
        contents = decode_transposed(memoryview(data), chunk.num_records, chunk.decoded_size)
        compressor, bucket_size = options_of(name, data[0])
        again = encode_transposed(contents, compressor, bucket_size=bucket_size)
        assert decode(again, contents) == contents
        assert again[0] == data[0]
        assert len(again) <= 1.05 * chunk.data_size + 8, (len(again), chunk.data_size)


@pytest.mark.parametrize("name", [name for name, entry in manifest().items() if entry["metadata_hex"]])
def test_metadata_chunks_are_decoded_and_encoded_again(name):
    serialized = bytes.fromhex(manifest()[name]["metadata_hex"])
    chunk, data = chunks_of(name, "m")[0]
    assert decode_transposed(data, 1, chunk.decoded_size) == [serialized]
    again = encode_transposed([serialized], PartCompressor(data[0]))
    assert decode_transposed(again, 1, len(serialized)) == [serialized]


@rows("line", lines("projection.jsonl"), ids=lambda line: f"{line['file']}-{line['projection']}")
def test_projections_of_the_reference(line):
    found = []
    hashed = hashlib.sha256()
    for chunk, data in chunks_of(line["file"].removesuffix(".riegeli")):
        found += decode_transposed(data, chunk.num_records, chunk.decoded_size, FieldProjection(line["projection"]))
    if line["file"].startswith("simple"):
        assert not found  # nothing to filter there
        return
    for record in found:
        hashed.update(struct.pack("<Q", len(record)) + record)
    assert [record.hex() for record in found[: len(line["first"])]] == line["first"]
    assert (len(found), hashed.hexdigest()) == (line["count"], line["sha256"])


@rows("line", [line for line in lines("crafted.jsonl") if line["name"].startswith("t_")], ids=lambda line: line["name"])
def test_crafted_chunks_are_decoded_or_refused_as_in_the_reference(line):
    file = bytes.fromhex(line["hex"])
    first = chunk_at(file, 64)
    assert first is not None
    chunk = chunk_at(file, first.end)
    assert chunk is not None
    assert chunk.type == "t"
    data = strip(file, chunk.begin, CHUNK_HEADER + chunk.data_size)[CHUNK_HEADER:]
    events = [event for event in line["strict"] if str(event[1]).startswith(f"{chunk.begin}/")]
    if any(event[0] == "end" for event in events):
        with pytest.raises(InvalidArgumentError):
            decode_transposed(data, chunk.num_records, chunk.decoded_size)
    else:
        found = decode_transposed(data, chunk.num_records, chunk.decoded_size)
        assert [record.hex() for record in found] == [event[2] for event in events]
        assert len(found) == chunk.num_records


# -- machines made by hand -------------------------------------------------------------------------------------------

STATE = tuple[int, int, int | None, int | None]  # tag, next, subtype, buffer


def machine(
    states: list[STATE],
    buckets: list[list[bytes]],
    moves: bytes = b"",
    first: int = 0,
    kind: int = NONE,
    *,
    lengths: list[int] | None = None,
    hint: int | None = None,
) -> bytes:
    """Return a chunk with these states, and buckets of buffers; ``lengths`` and ``hint`` are lies about them."""
    compressor = PartCompressor(kind)
    parts = [compressor.part(b"".join(bucket)) for bucket in buckets]
    if hint is not None:
        parts[0] = encode_varint(hint) + parts[0][1:]
    if lengths is None:
        lengths = [len(buffer) for bucket in buckets for buffer in bucket]
    tags, following, subtypes, buffers = zip(*states, strict=True) if states else ((), (), (), ())
    header = [
        encode_varints((len(parts), len(lengths))),
        encode_varints(map(len, parts)),
        encode_varints(lengths),
        encode_varints((len(states), *tags, *following)),
        bytes(subtype for subtype in subtypes if subtype is not None),
        encode_varints(buffer for buffer in buffers if buffer is not None),
        encode_varint(first),
    ]
    head = compressor.part(b"".join(header))
    return b"".join((bytes((kind,)), encode_varint(len(head)), head, *parts, compressor.part(moves)))


EXAMPLE = bytes.fromhex(
    """00 24   04 05  04 08 02 01  02 02 08 02 01
    08  18 01 03 10 08 02 26 0a  0b 0e 00 0f 0d 0f 0c 0a  0b 00 01  03 00 01 02  00
    06 05 2c 02  02 61 62 01 63 02 61 62  ff 21  02   05"""
)
EXAMPLE_RECORDS = [bytes.fromhex(text) for text in ("0a02616210051801", "0a0163220308ac02", "ff21", "0a02616210061801")]


def test_the_worked_example_of_the_format_is_decoded():
    assert chunks_of("transpose_example")[0][1] == EXAMPLE
    assert decode(EXAMPLE, EXAMPLE_RECORDS) == EXAMPLE_RECORDS
    made = machine(
        [
            (0x18, 8 + 3, INLINE + 1, None),
            (NON_PROTO, 8 + 6, None, 3),
            (START_OF_MESSAGE, 0, None, None),
            (0x10, 8 + 7, 0, 0),
            (0x08, 8 + 5, 1, 1),
            (START_OF_SUBMESSAGE, 8 + 7, None, None),
            (0x22 - LEN + END_OF_SUBMESSAGE, 8 + 4, None, None),
            (0x0A, 8 + 2, None, 2),
        ],
        [[b"\6\5", b"\x2c\2"], [b"\2ab\1c\2ab"], [b"\xff\x21"], [b"\2"]],
        bytes((1 << 2 | 1,)),
    )
    assert made == EXAMPLE


def test_every_prefix_of_the_example_is_refused():
    for size in range(len(EXAMPLE)):
        with pytest.raises(InvalidArgumentError):
            decode(EXAMPLE[:size], EXAMPLE_RECORDS)


@pytest.mark.parametrize(
    ("count", "size", "reason"),
    [
        (3, 26, "more records"),
        (5, 26, "fewer records"),
        (4, 25, "more is emitted"),
        (4, 27, "smaller than the chunk says"),
        (4, 17, "more is emitted"),
        (1 << 56, 26, "as many records as it says"),
        (4, 1 << 60, "smaller than the chunk says"),
    ],
)
def test_counts_are_those_of_the_chunk_header(count, size, reason):
    with pytest.raises(InvalidArgumentError, match=reason):
        decode_transposed(EXAMPLE, count, size)


def test_an_unknown_compression_is_refused_by_its_number():
    with pytest.raises(InvalidArgumentError, match="ends beyond the chunk"):
        decode(b"garbage", [])
    with pytest.raises(UnimplementedError, match="0x78"):
        decode(b"x" + EXAMPLE[1:], EXAMPLE_RECORDS)


@pytest.mark.parametrize("kind", KINDS.values())
def test_one_buffer_for_values_of_all_kinds(kind):
    # Backwards: a string, a fixed32, a varint of 2 bytes, a fixed64, a varint of 1, the record; then one kept whole.
    states: list[STATE] = [
        (0x0A, 7 + 1, None, 0),
        (0x15, 7 + 2, None, 0),
        (0x18, 7 + 3, 1, 0),
        (0x21, 7 + 4, None, 0),
        (0x28, 7 + 5, 0, 0),
        (START_OF_MESSAGE, 7 + 6, None, None),
        (NON_PROTO, 0, None, 0),
    ]
    # The buffer is also the last: lengths of records are read from it.
    buffer = b"\x83\0abc" + b"FOUR" + b"\x05\x02" + b"EIGHT..." + b"\x7f" + b"\3" + b"xyz"
    expected = [b"xyz", b"\x28\x7f" + b"\x21EIGHT..." + b"\x18\x85\x02" + b"\x15FOUR" + b"\x0a\x83\0abc"]
    assert decode(machine(states, [[buffer]], kind=kind), expected) == expected
    for short in range(len(buffer)):
        with pytest.raises(InvalidArgumentError):
            decode(machine(states, [[buffer[:short]]], kind=kind), expected)


@pytest.mark.parametrize(("tag", "subtype", "width"), [(0x0D, None, 4), (0x09, None, 8), (0x08, 0, 1), (0x08, 9, 10)])
def test_values_beyond_their_buffer(tag, subtype, width):
    def chunk(value: bytes) -> bytes:
        # What follows in the bucket belongs to another buffer.
        states: list[STATE] = [(tag, 2 + 1, subtype, 0), (START_OF_MESSAGE, 0, None, None)]
        return machine(states, [[value, bytes(16)]])

    expected = [bytes((tag,)) + b"\x80" * (width - 1) * (subtype is not None) + bytes(width * (subtype is None) or 1)]
    assert decode(chunk(bytes(width)), expected) == expected
    for short in range(width):
        with pytest.raises(InvalidArgumentError, match="beyond its buffer"):
            decode(chunk(bytes(short)), expected)


def test_stored_varints_keep_their_last_byte():
    states: list[STATE] = [(0x08, 2 + 1, 2, 0), (START_OF_MESSAGE, 0, None, None)]
    expected = [b"\x08\x81\x82\xff"]
    assert decode(machine(states, [[b"\x01\x82\xff"]]), expected) == expected


@rows(
    ("states", "first"),
    [([(tag, 0, None, None)], 0) for tag in (4, 5, 6, 7, 15, (1 << 29) - 1)]
    + [
        ([(0x08, 0, 138, None)], 0),
        ([(0x08, 0, 9, 1)], 0),
        ([(0x0A, 0, None, 1)], 0),
        ([(NO_OP, 2, None, None)], 0),
        ([(NO_OP, 1, None, None)], 0),
        ([(NO_OP, 2 + 1, None, None), (NO_OP, 2 + 0, None, None)], 0),
        ([(NO_OP, 0, None, None)], 1),
        ([(NO_OP, 0, None, None)], 100),
        ([], 0),
    ],
)
def test_states_that_cannot_be(states, first):
    assert decode(machine([(NO_OP, 0, None, None)], [[b"abc"]]), []) == []
    with pytest.raises(InvalidArgumentError):
        decode(machine(states, [[b"abc"]], first=first), [])
    if first < len(states):
        # Reached or not: behind another state, which ends it all.
        shift = [(tag, after + 1 + (after >= len(states)), *rest) for tag, after, *rest in states]
        with pytest.raises(InvalidArgumentError):
            decode(machine([(NO_OP, 0, None, None), *shift], [[b"abc"]]), [])


def test_moves_of_all_widths_lead_to_their_states():
    states: list[STATE] = [(START_OF_MESSAGE, 1, None, None)]
    states += [(8 * field, 66 + 0, INLINE + field, None) for field in range(1, 66)]
    chunk = machine(states, [], bytes((63 << 2 | 2, 0, 1 << 2)), first=5)
    # Backwards: first state 5, then offset 63 and two more of 0, an offset of 0, an offset of 1.
    expected = [encode_varint(8 * field) + bytes((field,)) for field in (2, 1, 1, 1, 64, 5)]
    assert decode(chunk, expected) == expected


def test_a_move_beyond_the_states():
    states: list[STATE] = [(START_OF_MESSAGE, 1, None, None), (NO_OP, 0, None, None)]
    assert decode(machine(states, [], bytes((0 << 2, 0 << 2))), [b"", b""]) == [b"", b""]
    with pytest.raises(InvalidArgumentError, match="not exist"):
        decode(machine(states, [], bytes((1 << 2,))), [b""])
    with pytest.raises(InvalidArgumentError, match="not exist"):
        decode(machine(states, [], bytes((63 << 2,))), [b""])


OPEN_1 = 0x0A - LEN + END_OF_SUBMESSAGE


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([(START_OF_SUBMESSAGE, 0, None, None)], "without an end"),
        ([(OPEN_1, 0, None, None)], "more is emitted|not complete"),
        ([(OPEN_1, 2 + 1, None, None), (START_OF_MESSAGE, 0, None, None)], "within a submessage"),
        ([(0x0B, 0, None, None)], "not complete"),
    ],
)
def test_groups_that_do_not_match_are_refused(states, reason):
    with pytest.raises(InvalidArgumentError, match=reason):
        decode_transposed(machine(states, []), 0, 1)


def nest(depth: int, value: bytes) -> tuple[bytes, int]:
    """Return a chunk of one record, a string in that many submessages, and the record's size."""
    states: list[STATE] = [
        (OPEN_1, 0, None, None),
        (0x12, 4 + 2, None, 0),
        (START_OF_SUBMESSAGE, 2, None, None),
        (START_OF_MESSAGE, 0, None, None),
    ]
    moves = bytes(depth - 1) + bytes((1 << 2,)) + bytes(depth - 1) + bytes((1 << 2,))
    size = 1 + len(value)
    for _ in range(depth):
        size += 1 + len(encode_varint(size))
    return machine(states, [[value]], moves), size


def test_deep_nesting_is_linear():
    value = encode_varint(2_000_000) + b"v" * 2_000_000
    chunk, size = nest(20_000, value)
    (record,) = decode_transposed(chunk, 1, size)
    assert len(record) == size
    assert record.endswith(b"\x12" + value)
    assert record.startswith(b"\x0a" + encode_varint(size - 1 - len(encode_varint(size))))
    with pytest.raises(InvalidArgumentError):
        decode_transposed(chunk, 1, size - 1)


def chain(tag: int, length: int, moves: int, subtype: int | None = None) -> bytes:
    """Return a chunk with a chain of implicit states, which is run through again and again from varying places."""
    states = [(tag, length + place + 1, subtype, None) for place in range(length - 1)]
    return machine([*states, (tag, 0, subtype, None)], [], bytes(move * 4 % 256 | 3 for move in range(moves)))


@rows("projection", sweep.part([None, [[9]], [[1, 0]], [[1]], [[1, 1, 1]]]), ids=str)
@rows(
    ("tag", "subtype"),
    [(NO_OP, None), (START_OF_MESSAGE, None), (START_OF_SUBMESSAGE, None), (OPEN_1, None), (0x0B, None), (0x0C, None)]
    + [(0x08, INLINE + 1)],
)
def test_work_is_bounded_by_the_sizes_pledged(tag, subtype, projection):
    # Run as they stand these take up to 5·10^8 steps.
    chunk = chain(tag, 10_000, 2_500, subtype)
    for count in (1, 1 << 56):
        with pytest.raises(InvalidArgumentError):
            decode_transposed(chunk, count, 10_000, projection and FieldProjection(projection))


def test_parts_are_bounded_by_the_sizes_pledged():
    def bomb(**which: bytes) -> bytes:
        compressor = PartCompressor(ZSTD)
        bucket = compressor.part(which.get("bucket", b""))
        header = encode_varints((1, 1, len(bucket), len(which.get("bucket", b"")), 1, NO_OP, 0, 0))
        head, moves = (compressor.part(which.get(name, usual)) for name, usual in (("header", header), ("moves", b"")))
        return b"z" + encode_varint(len(head)) + head + bucket + moves

    assert decode_transposed(bomb(), 0, 0) == []
    for chunk in (bomb(bucket=bytes(1 << 24)), bomb(moves=bytes(1 << 24)), bomb(header=bytes(1 << 24))):
        tracemalloc.start()
        try:
            with pytest.raises(InvalidArgumentError):
                decode_transposed(chunk, 1, 1000)
            assert tracemalloc.get_traced_memory()[1] < 2 << 20
        finally:
            tracemalloc.stop()


def test_counts_are_held_against_the_header():
    for numbers in ((1 << 30, 0), (0, 1 << 30), (0, 0, 1 << 31)):
        header = encode_varints(numbers)
        with pytest.raises(InvalidArgumentError):
            decode(b"\0" + encode_varint(len(header)) + header, [])


def test_loops_are_found():
    from array import array

    count = 50_000
    line = array("I", [count + place + 1 for place in range(count - 1)])
    assert find_loop(array("I", [*line, 0]), count) == -1
    assert find_loop(array("I", [*line, count + count // 2]), count) >= count // 2
    assert find_loop(array("I", [1]), 1) == 0
    assert find_loop(array("I", [0]), 1) == -1


# -- round trips -----------------------------------------------------------------------------------------------------


def field(number: int, wire: int, value: bytes) -> bytes:
    return encode_varint(number << 3 | wire) + value


def delimited(number: int, value: bytes) -> bytes:
    return field(number, 2, encode_varint(len(value)) + value)


def group(number: int, value: bytes) -> bytes:
    return field(number, 3, value) + field(number, 4, b"")


numbers = st.one_of(st.integers(1, 4), st.integers(1, 20), st.sampled_from([16, 2047, 2048, (1 << 29) - 1]))
uint64 = st.one_of(st.integers(0, 5), st.integers(0, 300), st.integers(0, (1 << 64) - 1))
leaves = st.one_of(
    st.builds(lambda number, value: field(number, 0, encode_varint(value)), numbers, uint64),
    st.builds(lambda number, value: field(number, 1, value), numbers, st.binary(min_size=8, max_size=8)),
    st.builds(lambda number, value: field(number, 5, value), numbers, st.binary(min_size=4, max_size=4)),
    st.builds(delimited, numbers, st.binary(max_size=10)),
)


def nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    around = st.one_of(leaves, st.builds(delimited, numbers, inner), st.builds(group, numbers, inner))
    return st.lists(around, max_size=4).map(b"".join)


messages = st.recursive(st.lists(leaves, max_size=6).map(b"".join), nested, max_leaves=8)
anything = st.one_of(messages, messages, messages.map(lambda message: message[:-1]), st.binary(max_size=20))


@given(st.lists(anything, max_size=12), st.sampled_from(sorted(KINDS)), st.sampled_from([None, 1, 5, 40]), st.data())
def test_what_is_encoded_is_decoded_to_the_same_records(contents, kind, bucket_size, data):
    contents *= data.draw(st.sampled_from([1, 1, 5, 15]))
    chunk = encode(contents, KINDS[kind], bucket_size=bucket_size)
    assert chunk[0] == KINDS[kind]
    assert decode(chunk, contents) == contents
    assert encode([memoryview(record) for record in contents], KINDS[kind], bucket_size=bucket_size) == chunk


@settings(max_examples=sweep.examples(200))
@given(st.lists(anything, min_size=1, max_size=6), st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=4))
def test_projection_is_what_filtering_gives(contents, paths):
    try:
        projection = FieldProjection(paths)
    except InvalidArgumentError:
        assert any(0 in path[:-1] for path in paths)
        return
    for kind in (NONE, ZSTD):
        chunk = encode(contents, kind, bucket_size=1)
        found = decode_transposed(chunk, len(contents), sum(map(len, contents)), projection)
        assert found == [
            filtered(record, projection.root) if is_canonical_message(record, 0, len(record)) else record
            for record in contents
        ]


def filtered(data: bytes, inside: dict | None, depth: int = 0) -> bytes:
    """Filter a canonical message, value by value (the plain way: recursively)."""
    pos = 0
    out = []
    while pos < len(data):
        start = pos
        tag, pos = parts_module.read_varint(data, pos, len(data))
        wire, found = tag & 7, None if inside is None else inside.get(tag >> 3, "drop")
        begin = pos
        if wire == 0:
            _, pos = parts_module.read_varint(data, pos, len(data))
            zero, whole = b"\0", data[begin:pos]
        elif wire in (1, 5):
            pos += 8 if wire == 1 else 4
            zero, whole = bytes(pos - begin), data[begin:pos]
        elif wire == 2:
            length, content = parts_module.read_varint(data, pos, len(data))
            pos = content + length
            value = data[content:pos]
            zero, whole = b"\0", data[begin:pos]
            if value and depth < 100 and is_canonical_message(value, 0, length) and found != "drop":
                value = filtered(value, found, depth + 1)
                zero = whole = encode_varint(len(value)) + value
        else:
            end = end_of_group(data, pos)
            value = filtered(data[pos:end], {} if found == "drop" else found, depth + 1)
            pos = end + len(encode_varint(tag))
            zero = whole = value + encode_varint(tag + 1)
        if found != "drop":
            out.append(data[start:begin] + (zero if found == {} else whole))
    return b"".join(out)


def end_of_group(data: bytes, pos: int) -> int:
    """Return where the tag is that ends the group whose first field is at ``pos``."""
    open_groups = 1
    while True:
        start = pos
        tag, pos = parts_module.read_varint(data, pos, len(data))
        open_groups += (tag & 7 == 3) - (tag & 7 == 4)
        if not open_groups:
            return start
        if tag & 7 == 0:
            _, pos = parts_module.read_varint(data, pos, len(data))
        elif tag & 7 == 2:
            length, pos = parts_module.read_varint(data, pos, len(data))
            pos += length
        else:
            pos += {1: 8, 5: 4}.get(tag & 7, 0)


CHUNKS = [(name, chunk, data) for name in TRANSPOSED for chunk, data in chunks_of(name) if chunk.decoded_size < 10_000]


@settings(max_examples=sweep.examples(400))
@given(st.data())
def test_mutations_give_records_or_our_errors(data):
    if data.draw(st.booleans()):
        _, chunk, content = data.draw(st.sampled_from(CHUNKS))
        count, size = chunk.num_records, chunk.decoded_size
    else:
        contents = data.draw(st.lists(anything, max_size=5))
        content = encode(contents)
        count, size = len(contents), sum(map(len, contents))
    mutated = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(mutated), 300)))
        what = data.draw(st.sampled_from(["set", "delete", "insert"]))
        mutated[at : at + (what != "insert")] = data.draw(st.binary(max_size=2)) if what != "delete" else b""
    paths = data.draw(st.sampled_from([None, [[1]], [[6, 2], [3, 0]], [[8, 0]]]))
    try:
        found = decode_transposed(bytes(mutated), count, size, paths and FieldProjection(paths))
    except (InvalidArgumentError, UnimplementedError):
        return
    assert len(found) == count
    assert sum(map(len, found)) == size or (paths and sum(map(len, found)) <= size)


# -- the encoder -----------------------------------------------------------------------------------------------------


def tags_of(contents: list[bytes]) -> set[int]:
    """Return the tags of the states that the records were taken apart into."""
    data = encode(contents)
    assert decode(data, contents) == contents
    return set(ChunkParts(memoryview(data), len(contents), sum(map(len, contents))).header.tags)


MESSAGE = {START_OF_MESSAGE}
SUBMESSAGE_3 = {START_OF_SUBMESSAGE, 3 << 3 | END_OF_SUBMESSAGE}


@rows(
    ("record", "tags"),
    [
        (b"", MESSAGE),
        (b"\x08\x05", MESSAGE | {0x08}),
        (b"\x08\x80\x00", {NON_PROTO}),
        (b"\x08" + b"\xff" * 9 + b"\x01", MESSAGE | {0x08}),
        (b"\x08" + b"\xff" * 9 + b"\x02", {NON_PROTO}),
        (b"\x08" + b"\x80" * 10 + b"\x01", {NON_PROTO}),
        (b"\x08", {NON_PROTO}),
        (b"\x00\x00", {NON_PROTO}),
        (b"\x88\x00\x05", {NON_PROTO}),
        (b"\x80\x01\x05", MESSAGE | {0x80}),
        (b"\xf8\xff\xff\xff\x0f\x05", MESSAGE | {0xFFFFFFF8}),
        (b"\xf8\xff\xff\xff\x1f\x05", {NON_PROTO}),
        (b"\x0e", {NON_PROTO}),
        (b"\x0f", {NON_PROTO}),
        (b"\x0d123", {NON_PROTO}),
        (b"\x0d1234", MESSAGE | {0x0D}),
        (b"\x091234567", {NON_PROTO}),
        (b"\x0912345678", MESSAGE | {0x09}),
        (b"\x1a", {NON_PROTO}),
        (b"\x1a\x03ab", {NON_PROTO}),
        (b"\x1a\x82\x00ab", {NON_PROTO}),
        (b"\x1a\x00", MESSAGE | {0x1A}),
        (b"\x1a\x02ab", MESSAGE | {0x1A}),
        (b"\x1a\x02\x08\x05", MESSAGE | SUBMESSAGE_3 | {0x08}),
        (b"\x1a\x03\x08\x85\x00", MESSAGE | {0x1A}),
        (b"\x1a\x02\x1a\x00", MESSAGE | SUBMESSAGE_3 | {0x1A}),
        (b"\x0b\x0c", MESSAGE | {0x0B, 0x0C}),
        (b"\x0b\x13\x14\x0c", MESSAGE | {0x0B, 0x0C, 0x13, 0x14}),
        (b"\x0b\x13\x0c\x14", {NON_PROTO}),
        (b"\x0b\x14", {NON_PROTO}),
        (b"\x0b", {NON_PROTO}),
        (b"\x0c", {NON_PROTO}),
        (b"\x1a\x01\x0b", MESSAGE | {0x1A}),
        (b"\x0b\x1a\x01\x0c\x0c", MESSAGE | {0x0B, 0x0C, 0x1A}),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else "",
)
def test_what_is_taken_apart(record, tags):
    assert tags_of([record]) == tags


def test_nesting_is_taken_apart_to_a_depth():
    record = b"\x08\x05"
    for _ in range(150):
        record = delimited(3, record)
    data = encode([record])
    assert decode(data, [record]) == [record]
    states = ChunkParts(memoryview(data), 1, len(record)).header.tags
    assert states.count(3 << 3 | END_OF_SUBMESSAGE) == MAX_DEPTH == 100
    # The rest is a string in the innermost of them.
    assert states.count(3 << 3 | LEN) == 1
    groups = b"\x0b" * 5000 + b"\x0c" * 5000
    assert tags_of([groups]) == MESSAGE | {0x0B, 0x0C}


def test_equal_names_at_different_places_do_not_share_buffers():
    record = field(1, 0, b"\x7f") + delimited(3, field(1, 0, b"\x7e")) + group(5, field(1, 0, b"\x7d"))
    header = ChunkParts(memoryview(encode([record])), 1, len(record)).header
    assert header.buffer_lengths == [1, 1, 1]


def test_buffers_are_put_into_buckets_of_the_size_asked_for():
    contents = [field(1, 0, b"\x81\x01") + field(2, 0, b"\x7f") + field(3, 5, b"1234") + delimited(4, b"text"), b"\xff"]
    for bucket_size, expected in (
        (None, [3, 4, 5, 1, 1]),
        (1, [1, 2, 4, 5, 1, 1]),
        (2, [1, 2, 4, 5, 1, 1]),
        (3, [3, 4, 5, 1, 1]),
    ):
        data = encode(contents, SNAPPY, bucket_size=bucket_size)
        parts = ChunkParts(memoryview(data), 2, sum(map(len, contents)))
        assert parts.header.buffer_lengths == [1, 2, 4, 5, 1, 1]
        assert [size_hint(SNAPPY, bucket) for bucket in parts.buckets] == expected
        assert decode(data, contents) == contents
    assert encode(contents, bucket_size=1) == encode(contents)


def test_many_fields_make_trees_of_lists():
    contents = [field((number * 7919) % 9000 + 1, 0, b"\x07") for number in range(9000)]
    contents += [field(number % 300 + 1, 0, b"\x07") for number in range(12_000)]
    data = encode(contents)
    assert decode(data, contents) == contents
    states = ChunkParts(memoryview(data), len(contents), sum(map(len, contents))).header.tags
    assert states.count(NO_OP) > 9000 // 64


def test_lists_are_filled_from_the_top():
    contents = [field(number, 0, b"\x07") for number in range(1, 67)]
    transitions = ChunkParts(memoryview(encode(contents)), len(contents), sum(map(len, contents))).transitions
    # 65 moves; 63 states are reached by one, the others by two.
    assert sum(1 + (byte & 3) for byte in transitions) == 63 + 2 * 2


def test_frames_of_header_and_buckets_tell_their_size():
    contents = [delimited(1, b"text"), delimited(2, b"more")] * 3
    data = encode(contents, ZSTD)
    size = data[1]
    frames = [data[3 : 2 + size], *(bytes(bucket[1:]) for bucket in ChunkParts(memoryview(data), 6, 36).buckets)]
    assert [zstd.content_size(frame) for frame in frames] == [data[2], 30]
    moves = data[2 + size + sum(len(frame) + 1 for frame in frames[1:]) :]
    assert zstd.content_size(moves[1:]) is None


def test_a_chunk_of_no_records_has_the_known_bytes():
    for kind in KINDS.values():
        assert decode(encode([], kind), []) == []
    assert encode([]) == bytes.fromhex("00060000010000 00")


def test_repeats_are_packed():
    contents = [b"\x08\x00" if number % 2 else b"\x10\x00" for number in range(4000)]
    assert len(encode(contents)) < 40 + 4000 / 4 * 2


def test_states_often_followed_by_the_same_have_their_own_lists():
    def pair(number: int) -> bytes:
        first, other, chance, *_ = hashlib.sha256(b"%d" % number).digest()
        return field(1 + first % 40, 0, b"\x07") + field(41 + (other if chance < 25 else first) % 40, 0, b"\x08")

    contents = [pair(number) for number in range(10_000)]
    transitions = ChunkParts(memoryview(encode(contents)), len(contents), sum(map(len, contents))).transitions
    # The likely move from each is offset 0, so that it mostly is part of the byte before.
    assert len(transitions) < 13_000


# -- memory, and what is not read ------------------------------------------------------------------------------------


def test_large_values_are_copied_but_once():
    contents = [delimited(1, b"\xff" * (4 << 20)), b"\xff" * (4 << 20)]
    size = sum(map(len, contents))
    for projection in (None, [[1]]):
        data = encode(contents)
        tracemalloc.start()
        try:
            assert decode(data, contents, projection) == contents
            # The buffers, and the records.
            assert tracemalloc.get_traced_memory()[1] < 2.1 * size
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", [BROTLI, ZSTD, SNAPPY])
def test_buckets_not_needed_are_not_decompressed(kind, monkeypatch):
    contents = [
        field(1, 0, encode_varint(1000 + n)) + delimited(2, b"name %d" % n) + field(3, 5, b"1234") for n in range(50)
    ]
    data = encode(contents, kind, bucket_size=1)
    seen = []

    def spy(kind: int, part: bytes, max_size: int) -> bytes:
        content = read_part(kind, part, max_size)
        seen.append(content[:4])
        return content

    monkeypatch.setattr(transposed, "read_part", spy)
    whole = decode(data, contents)
    assert len(seen) == 5
    seen.clear()
    assert decode(data, contents, [[3]]) == [record[-5:] for record in whole]
    assert seen[2:] == [b"1234"]
    seen.clear()
    assert decode(data, contents, [[1, 0], [2, 0]]) == [b"\x08\0\x12\0"] * 50
    assert len(seen) == 2


def test_damage_in_a_bucket_not_needed():
    contents = [field(1, 5, b"1234") + delimited(2, b"some text")] * 20
    data = encode(contents, ZSTD)
    at = data.index(b"1234")
    damaged = data[: at - 6] + b"????" + data[at - 2 :]
    assert decode(damaged, contents, [[2]]) == [delimited(2, b"some text")] * 20
    for projection in (None, [[1]]):
        with pytest.raises(InvalidArgumentError):
            decode(damaged, contents, projection)


@pytest.mark.parametrize("kind", [BROTLI, ZSTD, SNAPPY])
def test_with_a_projection_hints_must_be_right(kind):
    states: list[STATE] = [(0x0D, 2 + 1, None, 0), (START_OF_MESSAGE, 0, None, None)]
    record = b"\x0d1234"
    for hint in (3, 5):
        chunk = machine(states, [[b"1234"]], kind=kind, hint=hint)
        assert decode(chunk, [record]) == [record]
        with pytest.raises(InvalidArgumentError):
            decode(chunk, [record], [[1]])
    # A hint that fits the buffer, but not what is in the bucket; then one that fits that, but not the buffer.
    for content, length, hint in ((b"123", 4, 4), (b"12345", 4, 4), (b"12345", 4, 5)):
        chunk = machine(states, [[content]], kind=kind, lengths=[length], hint=hint)
        for projection in (None, [[1]]):
            with pytest.raises(InvalidArgumentError):
                decode(chunk, [record], projection)


def test_buckets_and_buffers_must_fit():
    idle: list[STATE] = [(NO_OP, 0, None, None)]
    for buckets, lengths in (
        ([], []),
        ([[]], []),
        ([[b""]], [0]),
        ([[b""], []], [0]),
        ([[b"abc"], [], [b"d"], []], [2, 1, 1]),
    ):
        for projection in (None, [[1]]):
            assert decode(machine(idle, buckets, lengths=lengths), [], projection) == []
    for buckets, lengths in (
        ([], [0]),
        ([[], []], []),
        ([[b"a"]], []),
        ([[b"abc"]], [2]),
        ([[b"ab"], [b"c"]], [3]),
        ([[b"ab"], [b"c"]], [1, 2]),
        ([[], [b"a"]], [1]),
    ):
        for projection in (None, [[1]]):
            with pytest.raises(InvalidArgumentError):
                decode(machine(idle, buckets, lengths=lengths), [], projection)


# -- projections -----------------------------------------------------------------------------------------------------


@rows(
    ("paths", "root"),
    [
        ([[]], None),
        ([[1], []], None),
        ([], {}),
        ([[0]], {}),
        ([[1]], {1: None}),
        ([[1, 0]], {1: {}}),
        ([[1, 0], [1]], {1: None}),
        ([[1], [1, 0]], {1: None}),
        ([[1], [1, 2]], {1: None}),
        ([[1, 2], [1]], {1: None}),
        ([[1, 2], [1, 0]], {1: {2: None}}),
        ([[6, 2, 7], [1], [6, 3, 0]], {6: {2: {7: None}, 3: {}}, 1: None}),
        ([[1, 1]], {1: {1: None}}),
    ],
)
def test_paths_of_a_projection_make_its_tree(paths, root):
    projection = FieldProjection(paths)
    assert projection.root == root


@pytest.mark.parametrize("path", [[0, 1], [1, 0, 0], [-1], [1 << 29]])
def test_projections_that_mean_nothing(path):
    with pytest.raises(InvalidArgumentError):
        FieldProjection([path])


@pytest.mark.parametrize("path", [["1"], [1.0]])
def test_projections_of_no_numbers(path):
    with pytest.raises(TypeError):
        FieldProjection([path])


def test_a_projection_of_everything_leaves_records_as_they_are():
    assert FieldProjection().root is None
    assert EXISTENCE_ONLY == 0
    assert decode(EXAMPLE, EXAMPLE_RECORDS, [[]]) == EXAMPLE_RECORDS


def test_projection_of_the_example():
    expected = ["0a026162", "0a0163", "ff21", "0a026162"]
    assert [record.hex() for record in decode(EXAMPLE, EXAMPLE_RECORDS, [[1]])] == expected
    expected = ["0a001000", "0a0022020800", "ff21", "0a001000"]
    assert [record.hex() for record in decode(EXAMPLE, EXAMPLE_RECORDS, [[1, 0], [2, 0], [4, 1, 0]])] == expected


def test_groups_that_do_not_match_are_refused_with_a_projection():
    def chunk(*tags: int) -> bytes:
        states: list[STATE] = [(tag, len(tags) + 2 + place, None, None) for place, tag in enumerate(tags)]
        return machine([*states, (START_OF_MESSAGE, 0, None, None)], [])

    assert decode(chunk(0x0C, 0x0B), [b"\x0b\x0c"], [[1]]) == [b"\x0b\x0c"]
    assert decode(chunk(0x0B, 0x0C), [b"\x0c\x0b"]) == [b"\x0c\x0b"]
    for tags in (
        (0x0B, 0x0C),
        (OPEN_1, 0x0B),
        (0x0C, START_OF_SUBMESSAGE),
        (0x0C,),
        (OPEN_1, 0x0C, START_OF_SUBMESSAGE, 0x0B),
    ):
        with pytest.raises(InvalidArgumentError, match=r"without an end|overlap|within a submessage"):
            decode_transposed(chunk(*tags), 1, 100, FieldProjection([[1]]))


def test_with_a_projection_no_more_is_emitted_than_pledged():
    everything = FieldProjection([[1], [2], [3], [4]])
    assert decode_transposed(EXAMPLE, 4, 26, everything) == EXAMPLE_RECORDS
    for size in (25, 24, 16):
        with pytest.raises(InvalidArgumentError):
            decode_transposed(EXAMPLE, 4, size, everything)


# -- readers ---------------------------------------------------------------------------------------------------------


def test_readers_of_lengths_stop_at_the_end():
    def strings(buffer: bytes) -> Iterator[bytes | memoryview]:
        return string_values(b"\1x" + buffer + b"\0" * 9, 2, 2 + len(buffer))

    def streamed(buffer: bytes) -> Iterator[bytes]:
        return strings_of_stream(io.BytesIO(buffer).read)

    for reader in (strings, streamed):
        for length in (0, 1, 127, 128, 70_000):
            value = encode_varint(length) + bytes(length)
            values = reader(value + b"\0" + value[:-1])
            assert bytes(next(values)) == value
            assert bytes(next(values)) == b"\0"
            with pytest.raises(MalformedError):
                next(values)
        for bad in (b"", b"\x80", b"\x80\x80\x80\x80\x10" + bytes(100)):
            with pytest.raises(MalformedError):
                next(reader(bad))
        assert bytes(next(reader(b"\x83\x80\x00abc"))) == b"\x83\x80\x00abc"


def test_readers_of_sized_values_stop_at_the_end():
    values = sized_values(io.BytesIO(b"abcd").read, io.BytesIO(b"\2\x80\0\3").read)
    assert [next(values), next(values)] == [b"ab", b""]
    with pytest.raises(MalformedError, match="ends beyond"):
        next(values)
    with pytest.raises(MalformedError, match="cut short"):
        next(sized_values(io.BytesIO(b"abcd").read, io.BytesIO(b"").read))


# -- parts -----------------------------------------------------------------------------------------------------------


@rows("kind", KINDS.values())
@rows("content", [b"", b"x", b"text " * 1000])
@rows("pledged", [False, True])
def test_a_part_is_read_back_and_neither_cut_nor_followed_by_bytes(kind, content, pledged):
    part = PartCompressor(kind).part(content, pledged=pledged)
    assert read_part(kind, part, len(content)) == content
    assert read_part(kind, memoryview(part), 1 << 40) == content
    assert size_hint(kind, part) == len(content)
    if content:
        with pytest.raises(InvalidArgumentError):
            read_part(kind, part, len(content) - 1)
    if kind != NONE:
        assert read_part(kind, b"\x83\0" + part[len(encode_varint(len(content))) :], len(content)) == content
        for broken in (part + b"x", part[:-1], part[:1] if content else b"", b"", b"\x80"):
            with pytest.raises(InvalidArgumentError):
                read_part(kind, broken, len(content))


def test_only_zstd_is_told_the_size():
    assert PartCompressor(ZSTD).part(b"text") != PartCompressor(ZSTD).part(b"text", pledged=True)
    for kind in (NONE, BROTLI, SNAPPY):
        assert PartCompressor(kind).part(b"text") == PartCompressor(kind).part(b"text", pledged=True)


def test_levels_are_handed_on():
    content = b"".join(b"%d," % (number * number) for number in range(2000))
    for kind in (BROTLI, ZSTD):
        sizes = [len(PartCompressor(kind, level).part(content)) for level in (1, 11)]
        assert sizes[0] > sizes[1]


def test_kinds_of_compression_have_their_codecs_and_others_none():
    assert [codec_of(kind) for kind in (NONE, BROTLI, ZSTD, SNAPPY)] == [None, "brotli", "zstd", "snappy"]
    for use in (codec_of, PartCompressor, lambda kind: read_part(kind, b"", 0), lambda kind: size_hint(kind, b"")):
        with pytest.raises(UnimplementedError):
            use(0x78)
    assert issubclass(UnimplementedError, RiegeliError)


def test_variants_of_codecs_that_are_not_read():
    # A Zstd frame that asks for a dictionary.
    with pytest.raises(UnimplementedError, match="dictionary"):
        read_part(ZSTD, b"\0" + bytes.fromhex("28b52ffd 21 05 00") + b"\x01\x00\x00", 100)
