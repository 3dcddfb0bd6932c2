"""Varints: canonical when written, over-long accepted when read, everything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pparse.errors import MalformedError
from pparse.kernels.varint import decode_varints, encode_varint, encode_varints, read_varint, read_varints
from tests.rows import rows

U32 = (1 << 32) - 1
U64 = (1 << 64) - 1

KNOWN = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (0x3FF, "ff07"),
    (0x400, "8008"),
    (0x3FFF, "ff7f"),
    (0x4000, "808001"),
    (U32, "ffffffff0f"),
    (1 << 63, "80808080808080808001"),
    (U64, "ffffffffffffffffff01"),
]
# Varints that are not canonical, of 64 bits unless said otherwise.
OVER_LONG = [(3, "8300"), (0, "808000"), (5, "85808080808080808000")]
TOO_LARGE_64 = ["80808080808080808002", "ffffffffffffffffff7f", "8080808080808080808000", "80" * 11]
TOO_LARGE_32 = ["8080808010", "ffffffff1f", "808080808000", "80808080808080808001"]
CUT = ["", "80", "ffff", "808080808080808080"]

values = st.one_of(st.integers(0, 300), st.integers(0, 1 << 15), st.integers(0, U64))


@rows(("value", "text"), KNOWN)
def test_known_varints_are_read_and_written(value, text):
    data = bytes.fromhex(text)
    assert encode_varint(value) == data
    assert read_varint(b"\x80" + data + b"\x80", 1, len(data) + 1) == (value, len(data) + 1)
    assert decode_varints(data, 1) == [value]


def test_negative_is_refused():
    with pytest.raises(ValueError, match="negative"):
        encode_varint(-1)


@pytest.mark.parametrize(("value", "text"), OVER_LONG)
def test_longer_forms_are_accepted(value, text):
    data = bytes.fromhex(text)
    assert read_varint(data, 0, len(data)) == (value, len(data))
    assert decode_varints(data + b"\x07", 2) == [value, 7]
    assert read_varints(data + b"\x07", 0, len(data) + 1, 2) == ([value, 7], len(data) + 1)


@pytest.mark.parametrize(
    ("text", "size"), [*((text, 10) for text in TOO_LARGE_64), *((text, 5) for text in TOO_LARGE_32)]
)
def test_too_large_is_refused(text, size):
    data = bytes.fromhex(text) + b"\x01"
    with pytest.raises(MalformedError, match=f"thing does not fit into {32 if size == 5 else 64} bits"):
        read_varint(data, 0, len(data), size, "thing")
    with pytest.raises(MalformedError, match="thing does not fit"):
        read_varints(data, 0, len(data), 2, size, "thing")
    with pytest.raises(MalformedError, match="thing does not fit"):
        decode_varints(b"\x01" + data, 9, size, "thing")


@pytest.mark.parametrize("text", CUT)
def test_cut_is_refused(text):
    data = bytes.fromhex(text)
    with pytest.raises(MalformedError, match="cut short") as caught:
        read_varint(data + b"\x01", 0, len(data))
    assert caught.value.got == len(data)
    with pytest.raises(MalformedError):
        read_varints(data, 0, len(data), len(data) or 1)
    if data:
        with pytest.raises(MalformedError, match="cut short") as caught:
            decode_varints(b"\x05\x85\x05" + data, 9)
        assert caught.value.offset == 3


@pytest.mark.parametrize("text", ["ffffffff0f", "8080808008"])
def test_32_bits_at_their_limit(text):
    data = bytes.fromhex(text)
    value = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data))
    assert read_varint(data, 0, 5, 5) == (value, 5)
    assert decode_varints(data, 1, 5) == [value]


@given(st.lists(values))
def test_lists_of_varints_are_read_and_written_as_single_ones_are(numbers):
    data = encode_varints(numbers)
    assert data == b"".join(map(encode_varint, numbers))
    assert decode_varints(data, len(numbers)) == numbers
    assert read_varints(b"\xff" + data + b"\x01", 1, len(data) + 2, len(numbers)) == (numbers, 1 + len(data))
    if numbers:
        with pytest.raises(MalformedError, match="more values than expected") as caught:
            decode_varints(data, len(numbers) - 1)
        assert (caught.value.wanted, caught.value.got) == (len(numbers) - 1, len(numbers))


@given(st.binary(max_size=30), st.sampled_from([5, 10]))
def test_all_ways_agree_on_any_bytes(data, size):
    expected: list[int] | None = []
    pos = 0
    try:
        while pos < len(data):
            value, pos = read_varint(data, pos, len(data), size)
            expected.append(value)
            assert value <= (U32 if size == 5 else U64)
    except MalformedError:
        expected = None
    if expected is None:
        with pytest.raises(MalformedError):
            decode_varints(data, len(data), size)
    else:
        assert decode_varints(data, len(data), size) == expected
        assert read_varints(data, 0, len(data), len(expected), size) == (expected, len(data))


def test_a_count_is_held_against_the_bytes_first():
    with pytest.raises(MalformedError, match="more values than there are bytes") as caught:
        read_varints(b"\1\2\3", 1, 3, 1 << 60)
    assert (caught.value.wanted, caught.value.got) == (1 << 60, 2)
