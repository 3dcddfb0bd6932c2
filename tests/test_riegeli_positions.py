"""Positions of records and option strings, and the reference's verdicts on them (``positions``, ``options.jsonl``)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pparse.riegeli import InvalidArgumentError, RecordPosition, RiegeliError
from pparse.riegeli.writer import parse_options
from tests.riegeli_fixtures import lines
from tests.rows import rows

POSITIONS = lines("positions.jsonl")
OPTIONS = lines("options.jsonl")
MOST = 2**64 - 1


@st.composite
def positions(draw) -> RecordPosition:
    """Any position: beginnings and indices of all magnitudes whose sum fits into 64 bits."""
    begin = draw(st.integers(0, 64).flatmap(lambda bits: st.integers(0, (1 << bits) - 1)))
    index = draw(st.integers(0, 64).flatmap(lambda bits: st.integers(0, (1 << bits) - 1)))
    return RecordPosition(begin, min(index, MOST - begin))


# -- text and bytes --------------------------------------------------------------------------------------------------


@rows("case", [case for case in POSITIONS if case["ok"]], ids=lambda case: repr(case["str"]))
def test_a_position_is_number_bytes_and_text_as_in_the_reference(case):
    position = RecordPosition.from_str(case["str"])
    assert position.numeric == case["numeric"]
    assert position.to_bytes() == bytes.fromhex(case["bytes"])
    assert RecordPosition.from_bytes(bytes.fromhex(case["bytes"])) == position
    begin, index = map(int, case["str"].split("/"))
    assert (position.chunk_begin, position.record_index) == (begin, index)
    assert str(position) == f"{begin}/{index}"
    assert RecordPosition(begin, index) == position


@pytest.mark.parametrize("case", [case for case in POSITIONS if not case["ok"]], ids=lambda case: repr(case["str"]))
def test_text_that_is_no_position_is_refused(case):
    with pytest.raises(ValueError):  # noqa: PT011 (that it is one is the point)
        RecordPosition.from_str(case["str"])


@rows("text", ["", "/", "1//2", "1/2 x", "٣/1", "1/²", "1/2\x00", "1.0/2", "a/b", "1/-0", "++1/2"])
def test_no_position_either(text):
    with pytest.raises(ValueError):  # noqa: PT011
        RecordPosition.from_str(text)


@rows(
    "content",
    [
        "",
        "40",  # one number
        "80",  # the second byte of the first is missing
        "400300",  # a byte too many
        "800003",  # 0 in two bytes
        "807f03",  # 127 in two bytes
        "40c0000f",  # 15 in three
        "ff00ffffffffffffff00",  # nine bytes where eight do
        "ffffffffffffffffff01",  # the sum does not fit
        "ffffffffffffffffff",
        "00" * 15,
        "00" * 17,
        "ffffffffffffffff0000000000000001",  # the old form: the sum does not fit
    ],
)
def test_no_position_in_bytes(content):
    with pytest.raises(ValueError):  # noqa: PT011
        RecordPosition.from_bytes(bytes.fromhex(content))


@given(positions())
def test_all_forms_of_a_position_say_the_same(position):
    assert RecordPosition.from_str(str(position)) == position
    assert RecordPosition.from_bytes(position.to_bytes()) == position
    old = struct.pack(">QQ", position.chunk_begin, position.record_index)
    assert RecordPosition.from_bytes(old) == position
    assert position.numeric == position.chunk_begin + position.record_index


@given(positions(), positions())
def test_positions_are_ordered_by_chunk_then_record_and_so_are_their_bytes(one, two):
    pair = (one.chunk_begin, one.record_index), (two.chunk_begin, two.record_index)
    assert (one < two, one <= two, one == two, one >= two, one > two) == (
        pair[0] < pair[1],
        pair[0] <= pair[1],
        pair[0] == pair[1],
        pair[0] >= pair[1],
        pair[0] > pair[1],
    )
    assert (one.to_bytes() < two.to_bytes()) == (one < two)


def test_positions_are_values():
    assert (
        len({RecordPosition(64, 1), RecordPosition(64, 1), RecordPosition.from_str("64/1"), RecordPosition(65, 0)}) == 2
    )
    assert RecordPosition(64, 1) != RecordPosition(65, 0)
    assert RecordPosition(64, 1) != "64/1"
    assert RecordPosition(64, 1) != (64, 1)
    assert "64" in repr(RecordPosition(64, 1))
    with pytest.raises(TypeError):
        _ = RecordPosition(64, 1) < 5
    with pytest.raises((AttributeError, TypeError)):
        RecordPosition(64, 1).chunk_begin = 3


@pytest.mark.parametrize(("begin", "index"), [(-1, 0), (0, -1), (MOST + 1, 0), (0, MOST + 1), (MOST, 1), (1, MOST)])
def test_numbers_that_are_no_position(begin, index):
    with pytest.raises((ValueError, OverflowError)):
        RecordPosition(begin, index)


# -- options ---------------------------------------------------------------------------------------------------------

KEYS = (
    "transpose",
    "compression",
    "level",
    "chunk_size",
    "bucket_fraction",
    "initial_padding",
    "final_padding",
    "parallelism",
)


def test_no_key_of_the_list_is_forgotten():
    assert {key for case in OPTIONS for key in case} == {"options", "ok", "error", *KEYS}


@rows("case", [case for case in OPTIONS if case["ok"]], ids=lambda case: repr(case["options"]))
def test_options_are_parsed_as_in_the_reference(case):
    options = parse_options(case["options"])
    assert {key: getattr(options, key) for key in KEYS} == {key: case[key] for key in KEYS}
    assert isinstance(options.transpose, bool)


@rows("case", [case for case in OPTIONS if not case["ok"]], ids=lambda case: repr(case["options"]))
def test_options_that_the_reference_refuses_are_refused(case):
    with pytest.raises(InvalidArgumentError) as caught:
        parse_options(case["options"])
    assert isinstance(caught.value, RiegeliError)
    assert isinstance(caught.value, ValueError)


@rows(
    ("text", "window_log"),
    [
        ("", None),
        ("window_log:auto", None),
        ("brotli:9,window_log:10", 10),
        ("window_log:30,brotli:9", 30),
        ("zstd,window_log:31", 31),
        ("window_log:31,zstd:-5", 31),
        ("window_log:auto,zstd", None),
        ("uncompressed", None),
    ],
)
def test_the_window_log_is_parsed_from_the_options(text, window_log):
    assert parse_options(text).window_log == window_log


@rows(
    "text",
    [
        "window_log:20,snappy",
        "window_log:auto,uncompressed",
        "window_log:31,brotli",
        "window_log",
        "parallelism:2147483648",
        "parallelism:1.5",
        "brotli:6.0",
        "brotli:+",
        "chunk_size:1KB",
        "chunk_size:1kk",
        "chunk_size:nan",
        "bucket_fraction:-0.1",
        "bucket_fraction:1k",
        "padding:auto",
        "padding:1,padding:1",
        "default:1",
        "default,default",
        "transpose:True",
        ":",
        ":5",
        "chunk_size:0x10",
        "brotli:٣",
        "chunk_size:٣",
    ],
)
def test_no_options_either(text):
    """By the rules of the format page, though not on the reference's list."""
    with pytest.raises(InvalidArgumentError):
        parse_options(text)


@pytest.mark.parametrize(
    ("text", "chunk_size"),
    [("1T", 1 << 40), ("1P", 1 << 50), ("1E", 1 << 60), ("3G", 3 << 30), ("1K", 1024), ("0.5", 1), ("0.5k", 512)],
)
def test_sizes_in_options_have_units(text, chunk_size):
    assert parse_options(f"chunk_size:{text}").chunk_size == chunk_size
    assert parse_options(f"final_padding:{text}").final_padding == chunk_size


def test_paddings_the_later_one_wins():
    assert parse_options("final_padding:20,padding:10").final_padding == 10
    assert parse_options("initial_padding,padding:10,final_padding:30").initial_padding == 10
    assert parse_options("initial_padding,padding:10,final_padding:30").final_padding == 30
