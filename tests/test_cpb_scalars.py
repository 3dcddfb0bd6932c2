"""Scalars in chunks, and versions of the chunked format."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pparse.errors import MalformedError, UnsupportedError
from pparse.parsers.cpb.metadata import JOIN_VERSION, SPLITTER_VERSION, check_versions
from pparse.parsers.cpb.scalars import decode_scalar
from tests.rows import rows

TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "group": 10,
    "message": 11,
    "bytes": 12,
    "uint32": 13,
    "enum": 14,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
SIGNED = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
UNSIGNED = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
RANGES = {
    **{name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in SIGNED.items()},
    **{name: (0, (1 << bits) - 1) for name, bits in UNSIGNED.items()},
}


class Enum:
    numbers = {"DT_INVALID": 0, "DT_FLOAT": 1, "NEGATIVE": -5}


class Field:
    def __init__(self, name: str) -> None:
        self.type = TYPES[name]
        self.type_name = "tensorflow.DataType" if name == "enum" else name
        self.enum = Enum() if name == "enum" else None


def decode(name: str, text: bytes) -> object:
    return decode_scalar(text, Field(name))


@rows("name", RANGES)
def test_integers_are_decimal_text_within_their_range(name: str) -> None:
    least, most = RANGES[name]
    for value in (least, most, 0, 7):
        assert decode(name, str(value).encode()) == value
    assert decode(name, b"007") == 7
    assert decode(name, b"-0") == 0
    for value in (least - 1, most + 1, 10**30, -(10**30)):
        with pytest.raises(MalformedError, match=f"out of the range of {name}") as caught:
            decode(name, str(value).encode())
        assert caught.value.got == value
        assert caught.value.wanted == f"{least}..{most}"


# What TensorFlow makes of some of these: 12, 1, 0, 12, the greatest number, an abort.
@rows(
    "text",
    [
        b"",
        b" 12",
        b"12 ",
        b"12\n",
        b"12xyz",
        b"1.9",
        b"0x1f",
        b"+5",
        b"1_0",
        b"--1",
        b"-",
        b"1e3",
        b"\x01\0\0\0",
        "١٢".encode(),
        b"true",
        b"9" * 41,
        b"9" * 100_000,
    ],
)
@rows("name", ["int32", "uint32", "sint64", "fixed64"])
def test_what_is_no_decimal_text_is_an_error(name: str, text: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(name, text)


@pytest.mark.parametrize("name", ["double", "float"])
def test_floats_in_the_forms_of_python_and_c(name: str) -> None:
    wanted = {
        b"0.5": 0.5,
        b"-1.5": -1.5,
        b"1e+06": 1e6,
        b"1E2": 100.0,
        b"12": 12.0,
        b"12.": 12.0,
        b".5": 0.5,
        b"0.100000001490116119384765625": 0.10000000149011612,
        b"inf": math.inf,
        b"-inf": -math.inf,
        b"0": 0.0,
        b"0e5": 0.0,
    }
    for text, value in wanted.items():
        assert decode(name, text) == value, text
    assert math.isnan(decode(name, b"nan"))
    assert math.copysign(1, decode(name, b"-0.0")) == -1


@rows("name", ["double", "float"])
@rows(
    "text",
    [
        b"",
        b" 1.5",
        b"1.5 ",
        b"1.5f",
        b"0x1p3",
        b"1,5",
        b"NaN",
        b"INF",
        b"infinity",
        b"1e",
        b"e5",
        b".",
        b"-",
        b"1_0.0",
        b"1e1234567",
        struct.pack("<d", 1.5),
        b"1" * 2001,
    ],
)
def test_other_forms_of_floats_are_errors(name: str, text: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(name, text)


def test_the_ranges_of_floats() -> None:
    assert decode("double", b"1.7976931348623157e+308") == 1.7976931348623157e308
    assert decode("float", b"3.4028234663852886e+38") == 3.4028234663852886e38
    assert decode("float", b"1e-45") == struct.unpack("<f", b"\x01\0\0\0")[0]
    for name, texts in {"double": (b"1e309", b"-1e309", b"1e-400"), "float": (b"3.5e38", b"1e39", b"1e-60")}.items():
        for text in texts:
            with pytest.raises(MalformedError, match=f"out of the range of {name}"):
                decode(name, text)


def test_a_float_is_rounded_once() -> None:
    # Halfway between 1 and the next float32, and a little more than a double can tell.
    assert decode("float", b"1.000000059604644775390625") == 1.0
    assert decode("float", b"1.00000005960464477539062500000001") == 1.0000001192092896
    assert decode("float", b"1.000000178813934326171875") == 1.000000238418579
    assert decode("float", b"1.00000017881393432617187499999999") == 1.0000001192092896


@given(st.floats(width=32))
def test_float32_round_trip(value: float) -> None:
    assert struct.pack("<f", decode("float", repr(value).encode())) == struct.pack("<f", value) or math.isnan(value)


@given(st.floats())
def test_double_round_trip(value: float) -> None:
    assert struct.pack("<d", decode("double", repr(value).encode())) == struct.pack("<d", value) or math.isnan(value)


def test_bools_are_words() -> None:
    assert decode("bool", b"true") is True
    assert decode("bool", b"false") is False
    for text in (b"", b"1", b"0", b"True", b"tru", b"true ", b" true", b"trueish", b"\x01"):
        with pytest.raises(MalformedError, match="not a value of type bool"):
            decode("bool", text)


def test_enums_are_names() -> None:
    for name, number in Enum.numbers.items():
        assert decode("enum", name.encode()) == number
    for text in (b"", b"1", b"dt_float", b"DT_FLOAT ", b"OTHER", b"\xff"):
        with pytest.raises(MalformedError, match=r"tensorflow\.DataType"):
            decode("enum", text)


def test_text_and_bytes_are_themselves() -> None:
    assert decode("string", "grün\0".encode()) == "grün\0"
    assert decode("bytes", b"\xff\0") == b"\xff\0"
    assert decode("string", b"") == ""
    assert decode("bytes", bytes(3000)) == bytes(3000)
    with pytest.raises(MalformedError, match=r"not UTF-8 .* at byte 1"):
        decode("string", b"a\xff")


@pytest.mark.parametrize("name", ["message", "group"])
def test_messages_are_no_scalars(name: str) -> None:
    with pytest.raises(MalformedError, match=f"type {name} is not a scalar"):
        decode(name, b"1")


@given(st.binary(max_size=60), st.sampled_from(sorted(TYPES)))
def test_any_bytes_give_a_value_or_our_error(text: bytes, name: str) -> None:
    try:
        value = decode(name, text)
    except MalformedError:
        return
    assert isinstance(value, {"string": str, "bytes": bytes, "bool": bool}.get(name, int | float))


def test_versions_that_we_read() -> None:
    assert (SPLITTER_VERSION, JOIN_VERSION) == (1, 0)
    check_versions(0, ())
    check_versions(0, [1, 2, -1])
    check_versions(-1, ())


@pytest.mark.parametrize(
    ("join", "bad", "needed"), [(1, [], 1), (999, [0, 1], 999), (0, [0], 1), (0, [0, 1, 2], 3), (2, [2, 3], 4)]
)
def test_versions_that_we_do_not_read(join: int, bad: list[int], needed: int) -> None:
    with pytest.raises(UnsupportedError, match=f"needs join version {needed} or later, this reader has 0") as caught:
        check_versions(join, iter(bad), source="model.cpb")
    assert caught.value.source == "model.cpb"
    assert (caught.value.wanted, caught.value.got) == (needed, 0)
