"""Packed fields: the same values as protobuf's own parser gives, bit by bit, as lists and as arrays."""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from pparse.errors import MalformedError
from pparse.kernels import packed
from pparse.kernels.packed import count_varints, packed_array, varint_checkpoints
from tests.rows import rows

DTYPES = {
    1: "float64",
    2: "float32",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "uint64",
    7: "uint32",
    8: "bool",
    13: "uint32",
    14: "int32",
    15: "int32",
    16: "int64",
    17: "int32",
    18: "int64",
}
VARINT_TYPES = (3, 4, 5, 8, 13, 14, 17, 18)
FIXED_TYPES = (1, 2, 6, 7, 15, 16)
U64 = (1 << 64) - 1


def encode(value: int, pad: int = 0) -> bytes:
    """The varint of ``value``, made at least ``pad`` bytes long."""
    out = bytearray()
    while value > 0x7F or len(out) + 1 < pad:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def make_message():
    file = descriptor_pb2.FileDescriptorProto(name="packed_test.proto", package="packed_test", syntax="proto3")
    enum = file.enum_type.add(name="Kind")
    enum.value.add(name="ZERO", number=0)
    message = file.message_type.add(name="All")
    for number in DTYPES:
        field = message.field.add(name=f"f{number}", number=number, type=number, label=3)
        if number == 14:
            field.type_name = ".packed_test.Kind"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("packed_test.All"))


ALL = make_message()


def by_protobuf(data: bytes, number: int) -> list | None:
    try:
        message = ALL.FromString(encode(number << 3 | 2) + encode(len(data)) + data)
    except DecodeError:
        return None
    return list(getattr(message, f"f{number}"))


def by_us(data: bytes, number: int) -> list | None:
    """The values as Python numbers, None where they are refused."""
    try:
        found = packed_array(data, number)
    except MalformedError:
        return None
    assert found.dtype == np.dtype(DTYPES[number])
    assert found.dtype.isnative
    # Python numbers cannot tell a signalling NaN of 32 bits; the array keeps its bits.
    assert number not in (1, 2) or found.tobytes() == data
    return found.tolist()


def same(left: list | None, right: list | None) -> bool:
    """Equal, where a NaN equals itself, and bools are no ints."""
    if left is None or right is None:
        return left is right
    return list(map(repr, left)) == list(map(repr, right))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(packed, "BLOCK_SIZE", 16)
    monkeypatch.setattr(packed, "_SMALL", 0)


def test_the_peer_is_the_real_one():
    assert api_implementation.Type() == "upb"


KNOWN = [
    (3, "", []),
    (5, "00 01 7f 8001 ac02", [0, 1, 127, 128, 300]),
    (5, "ffffffffffffffffff01 f6ffffffffffffffff01", [-1, -10]),
    (3, "ffffffffffffffffff01 80808080808080808001", [-1, -(1 << 63)]),
    (4, "ffffffffffffffffff01", [U64]),
    (13, "ffffffff0f 8080808010 818080808001", [0xFFFFFFFF, 0, 1]),
    (17, "00 01 02 03 ffffffff0f feffffff0f", [0, -1, 1, -2, -(1 << 31), (1 << 31) - 1]),
    (18, "ffffffffffffffffff01 feffffffffffffffff01", [-(1 << 63), (1 << 63) - 1]),
    (8, "00 01 02 8001 8000 80808080808080808001", [False, True, True, True, False, True]),
    (14, "02 ffffffffffffffffff01", [2, -1]),
    (2, "0000803f 000000c0", [1.0, -2.0]),
    (15, "ffffffff 01000000", [-1, 1]),
    (6, "ffffffffffffffff", [U64]),
]
# Accepted by protobuf's parser, though no writer of it makes them; the bits above 64 are lost.
ODD = ["8300", "80808080808080808000", "80808080808080808002", "ffffffffffffffffff7f", "8080808080808080807e"]
CUT = ["80", "0580", "ff" * 9, "01" + "ff" * 9]
TOO_LONG = ["80" * 10 + "00", "80" * 10, "80" * 9 + "82", "07" + "ff" * 10 + "01", "80" * 30 + "01"]


@rows(("number", "text", "values"), KNOWN)
def test_known_values_are_unpacked_as_protobuf_does(number, text, values):
    data = bytes.fromhex(text)
    assert same(by_us(data, number), values)
    assert same(by_protobuf(data, number), values)


@rows("number", VARINT_TYPES)
@rows("text", [*ODD, *CUT, *TOO_LONG])
def test_odd_varints_as_protobuf_reads_them(text, number):
    for data in (bytes.fromhex(text), b"\x81\x01" + bytes.fromhex(text) + b"\x05"):
        assert same(by_us(data, number), by_protobuf(data, number))


@pytest.mark.parametrize("number", FIXED_TYPES)
def test_a_fixed_value_cut_short(number):
    size = 8 if DTYPES[number].endswith("64") else 4
    data = b"\x01" * (3 * size - 1)
    assert by_protobuf(data, number) is by_us(data, number) is None
    with pytest.raises(MalformedError, match="cut short") as caught:
        packed_array(data, number)
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (2 * size, size, size - 1)


@pytest.mark.parametrize("text", CUT)
def test_offset_of_a_cut_varint(text):
    data = bytes.fromhex(text)
    start = len(data.rstrip(bytes(range(0x80, 0x100))))
    for call in (lambda: packed_array(data, 3), lambda: varint_checkpoints([data], 1)):
        with pytest.raises(MalformedError, match="cut short") as caught:
            call()
        assert caught.value.offset == start


@pytest.mark.parametrize("text", TOO_LONG)
def test_offset_of_a_too_long_varint(text):
    data = b"\x05\x81\x01" + bytes.fromhex(text)
    start = 3 + (text[:2] == "07")
    for call in (lambda: packed_array(data, 3), lambda: varint_checkpoints([data], 1)):
        with pytest.raises(MalformedError, match="more than 10 bytes") as caught:
            call()
        assert caught.value.offset == start


@pytest.mark.parametrize("number", [0, 9, 10, 11, 12, 19])
def test_types_that_are_never_packed(number):
    with pytest.raises(ValueError, match="never packed"):
        packed_array(b"", number)


varints = st.one_of(
    st.integers(0, 127).map(encode),
    st.integers(0, 1 << 32).map(encode),
    st.integers(0, U64).map(encode),
    st.integers(-(1 << 31), -1).map(lambda value: encode(value & U64)),
    st.builds(encode, st.integers(0, (1 << 70) - 1), st.integers(0, 10)),
)
lists = st.lists(varints, max_size=40).map(b"".join)


@given(lists, st.sampled_from(VARINT_TYPES))
@example(b"\xff" * 9 + b"\x7f", 3)
def test_varints_as_protobuf_reads_them(data, number):
    values = by_us(data, number)
    assert values is not None
    assert same(values, by_protobuf(data, number))
    assert count_varints(data) == len(values)


@given(
    st.one_of(lists, st.binary(max_size=60), st.lists(st.sampled_from(b"\x00\x01\x7f\x80\xff"), max_size=40).map(bytes))
)
def test_any_bytes_as_protobuf_reads_them(data):
    for number in DTYPES:
        assert same(by_us(data, number), by_protobuf(data, number))


@given(st.lists(varints, min_size=10, max_size=60).map(b"".join), st.integers(0, 20))
def test_blocks_may_end_anywhere(data, shift):
    data = bytes(shift) + data
    whole = {number: by_protobuf(data, number) for number in VARINT_TYPES}
    before = packed.BLOCK_SIZE, packed._SMALL
    packed.BLOCK_SIZE, packed._SMALL = 16, 0
    try:
        for number, values in whole.items():
            assert packed_array(data, number).tolist() == values
        assert count_varints(data) == len(whole[3])
    finally:
        packed.BLOCK_SIZE, packed._SMALL = before


@rows("length", range(1, 40))
@pytest.mark.usefixtures("small_blocks")
def test_faults_are_found_across_blocks(length):
    for fault in (b"\x80", b"\xff" * 9, b"\xff" * 12, b"\x80" * 10 + b"\x01\x02"):
        assert by_us(b"\x03" * length + fault, 5) is None
        data = b"\x83\x01" * length + fault
        assert by_us(data, 5) is None
        with pytest.raises(MalformedError) as caught:
            varint_checkpoints([data], 3)
        assert caught.value.offset == 2 * length


def test_values_over_many_blocks_are_unpacked_in_order():
    random = np.random.default_rng(7)
    values = random.integers(-(1 << 62), 1 << 62, 150_000) >> random.integers(0, 62, 150_000)
    message = ALL(f3=values.tolist())
    data = message.SerializeToString()[4:]  # without the tag and a length of three bytes
    assert len(data) > 3 * packed.BLOCK_SIZE
    found = packed_array(data, 3)
    assert np.array_equal(found, values)
    assert count_varints(data) == len(values)
    starts, count = varint_checkpoints([data[:300_001], data[300_001:]], 1000)
    assert count == len(values)
    for index in (0, 1, 77, 149):
        end = starts[index + 1] if index + 1 < len(starts) else len(data)
        assert (
            packed_array(data[starts[index] : end], 3).tolist() == values[1000 * index : 1000 * index + 1000].tolist()
        )


@pytest.mark.parametrize("value", [-1, 1 << 40, 300, 5])
def test_zigzag_of_more_than_a_block(value):
    count = packed.BLOCK_SIZE + 100
    wide = value << 1 ^ value >> 63
    found = packed_array(encode(wide & U64) * count, 18)
    assert len(found) == count
    assert (found == value).all()


@given(lists, st.integers(1, 12), st.lists(st.integers(0, 200), max_size=6))
def test_checkpoints_stand_at_every_nth_varint(data, stride, cuts):
    begins = [0]
    for at, byte in enumerate(data, 1):
        if byte < 0x80:
            begins.append(at)
    begins.pop()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[start:end] for start, end in pairwise(edges)]
    starts, count = varint_checkpoints(iter(blocks), stride)
    assert isinstance(starts, array)
    assert starts.typecode == "q"
    assert count == len(begins)
    assert list(starts) == begins[::stride]


def test_checkpoints_of_nothing():
    assert varint_checkpoints([], 3) == (array("q"), 0)
    assert varint_checkpoints([b"", b""], 1) == (array("q"), 0)
    with pytest.raises(ValueError, match="stride"):
        varint_checkpoints([b"\x01"], 0)


def test_fixed_numbers_are_not_copied():
    data = struct.pack("<3f", 1.0, float("nan"), -0.0)
    found = packed_array(data, 2)
    assert not found.flags.writeable
    assert found.base is not None
    assert found.tobytes() == data
