"""The walk over fields, against a reader that does it byte by byte; blocks cut anywhere."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pparse.errors import MalformedError
from pparse.kernels.wire import (
    END_GROUP,
    FIXED32,
    FIXED64,
    LEN,
    MAX_GROUPS,
    PADDING,
    SLACK,
    START_GROUP,
    VARINT,
    fields,
    leave_groups,
    read_length,
    read_tag,
    read_value,
    scan,
    skip_payload,
    skip_varint,
)
from tests import sweep
from tests.protobuf_referee import Chooser, read_field, tagged, varint
from tests.rows import rows

NUMBERS = st.sampled_from([1, 2, 15, 16, 17, 2047, 2048, (1 << 29) - 1])
PAYLOADS = st.one_of(
    st.tuples(st.just(VARINT), st.builds(varint, st.integers(0, (1 << 64) - 1), st.integers(1, 10))),
    st.tuples(st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.tuples(st.just(LEN), st.binary(max_size=40) | st.sampled_from([bytes(127), bytes(128)])),
)
FLAT = st.builds(lambda number, item: tagged(number, *item), NUMBERS, PAYLOADS)
GROUPS = st.recursive(
    FLAT,
    lambda below: st.builds(lambda number, items: tagged(number, 3, b"".join(items)), NUMBERS, st.lists(below)),
    max_leaves=6,
)
MESSAGES = st.lists(GROUPS, max_size=12).map(b"".join)


def begins(raw: bytes) -> dict[int, list[int]]:
    """Where the fields of each tag begin, read one by one."""
    found: dict[int, list[int]] = defaultdict(list)
    pos = 0
    while pos < len(raw):
        number, wire, _, after = read_field(raw, pos)
        found[number << 3 | wire].append(pos)
        pos = after
    return dict(found)


def walked(raw: bytes, block: int) -> dict[int, list[int]]:
    """The same, with `scan` on blocks of that size, as an engine gives them."""
    found: dict[int, list[int]] = defaultdict(list)
    groups: list[int] = []
    pos = 0
    while pos < len(raw):
        piece = raw[pos : pos + max(block, SLACK)]
        final = pos + len(piece) >= len(raw)
        here: dict[int, list[int]] = defaultdict(list)
        stop = len(piece) if final else len(piece) - SLACK + 1
        after, last = scan(piece + PADDING if final else piece, 0, stop, here, groups, pos)
        assert 0 <= last < stop
        assert after >= stop or after > 0
        for tag, offsets in here.items():
            found[tag] += [pos + offset for offset in offsets]
        pos += after
    assert pos == len(raw)
    assert not groups
    return dict(found)


@settings(max_examples=sweep.examples(150))
@given(raw=MESSAGES)
@example(raw=b"")
@example(raw=tagged(1, 2, bytes(200)) * 3)
@example(raw=tagged(3, 3, tagged(3, 3, b"") * 2) * 2)
def test_fields_are_found_wherever_blocks_are_cut(raw):
    wanted = begins(raw)
    for block in (*range(SLACK, SLACK + 24), 61, len(raw) + 1):
        assert walked(raw, block) == wanted
    whole: dict[int, list[int]] = defaultdict(list)
    pos = 0
    for tag, start, end in fields(raw + PADDING, 0, len(raw)):
        assert pos < start <= end
        whole[tag].append(pos)
        pos = end
    assert whole == wanted


@rows(
    "raw",
    [tagged(1, 2, b"abc"), tagged(1, 0, varint(300)), tagged(2, 5, bytes(4)), tagged(3, 3, tagged(1, 1, bytes(8)))],
)
def test_a_message_that_is_cut_is_refused(raw):
    assert [tag for tag, _, _ in fields(b"\x08\1" + raw + PADDING, 2, 2 + len(raw))] == [raw[0]]
    for end in range(1, len(raw)):
        with pytest.raises(MalformedError):
            list(fields(raw[:end] + PADDING, 0, end))
    for wrong in (b"\x0c", b"\0\1", b"\x0e"):  # the end of a group, field number 0, wire type 6
        with pytest.raises(MalformedError):
            list(fields(raw + wrong + PADDING, 0, len(raw) + len(wrong)))


@rows("seed", range(20))
def test_fields_of_one_tag_in_a_run_and_mixed(seed):
    choose = Chooser.seeded(seed)
    items = [
        tagged(1, 0, b"\x05"),
        tagged(1, 2, b"ab"),
        tagged(2, 5, bytes(4)),
        tagged(3, 3, tagged(1, 0, b"\x07")),
        tagged(4, 1, bytes(8)),
        tagged(16, 2, bytes(choose.of([127, 128, 16_383, 16_384]))),
    ]
    raw = b"".join(choose.of(items) for _ in range(300))
    assert walked(raw, len(raw)) == begins(raw)
    assert walked(raw, 64) == begins(raw)


def test_the_last_field_may_end_beyond_the_block():
    """Then the walk says where it would end, and where it begins."""
    raw = tagged(1, 0, b"\x05") + b"\x12" + varint(1000) + b"abc"
    found: dict[int, list[int]] = defaultdict(list)
    assert scan(raw + PADDING, 0, len(raw), found, []) == (1005, 2)
    assert dict(found) == {8: [0], 18: [2]}
    for head, after in ((b"\x0d\x01", 5), (b"\x09", 9)):
        assert scan(head + PADDING, 0, len(head), defaultdict(list), []) == (after, 0)


def test_a_group_that_stays_open():
    raw = tagged(1, 0, b"\x05") + b"\x1b" + tagged(1, 0, b"\x01") + b"\x23"
    groups: list[int] = []
    found: dict[int, list[int]] = defaultdict(list)
    pos, last = scan(raw + PADDING, 0, len(raw), found, groups)
    assert groups == [3, 4]
    assert (pos, last) == (len(raw), 2)
    assert dict(found) == {8: [0], 27: [2]}
    # The rest comes in the next block, and what is in the groups belongs to nobody.
    rest = tagged(1, 0, b"\x02") + b"\x24" + tagged(1, 0, b"\x03") + b"\x1c" + tagged(1, 0, b"\x04")
    more: dict[int, list[int]] = defaultdict(list)
    assert scan(rest + PADDING, 0, len(rest), more, groups, 100) == (len(rest), len(rest) - 2)
    assert groups == []
    assert dict(more) == {8: [len(rest) - 2]}


@rows(
    ("raw", "offset", "reason"),
    [
        (b"\x08\x01\x0f", 2, "wire type 7"),
        (b"\x08\x01\x0e\x01", 2, "wire type 6"),
        (b"\x08\x01\x00\x01", 2, "field number 0"),
        (b"\x05abcd", 0, "field number 0"),
        (b"\x0c", 0, "group ends that was never opened"),
        (b"\x0b\x14", 1, "inside another"),
        (b"\x0b\x0b\x14", 2, "inside another"),
        (b"\x0b\x08\x01\x06", 3, "wire type 6"),
        (b"\x0b\x00\x0c", 1, "field number 0"),
        (b"\x08" + b"\xff" * 10 + b"\x01", 1, "more than ten bytes"),
        (b"\x0b\x08" + b"\xff" * 10 + b"\x01", 2, "more than ten bytes"),
        (b"\x12" + b"\xff" * 10, 1, "too large"),
        (b"\x12" + b"\xff" * 9 + b"\x01", 1, "too large"),
        (b"\x88\x80\x80\x80\x80\x00\x01", 0, "too long"),
        (b"\xf8\xff\xff\xff\x1f\x01", 0, "too long"),
        (b"\x0b\xf8\xff\xff\xff\x1f\x01", 1, "too long"),
    ],
)
def test_what_is_no_field(raw, offset, reason):
    """The offset counts from the begin of the block's source."""
    for base in (0, 1 << 40):
        with pytest.raises(MalformedError, match=reason) as caught:
            scan(raw + PADDING, 0, len(raw), defaultdict(list), [], base)
        assert caught.value.offset == base + offset


def test_fields_before_the_damage_are_there():
    raw = tagged(1, 0, b"\x05") + tagged(2, 2, b"ab") + b"\x07"
    found: dict[int, list[int]] = defaultdict(list)
    with pytest.raises(MalformedError):
        scan(raw + PADDING, 0, len(raw), found, [])
    assert dict(found) == {8: [0], 18: [2]}


def test_groups_nested_too_deep():
    raw = b"\x0b" * (MAX_GROUPS + 1)
    with pytest.raises(MalformedError, match="nested deeper") as caught:
        scan(raw + PADDING, 0, len(raw), defaultdict(list), [])
    assert caught.value.offset == MAX_GROUPS
    fine = b"\x0b" * MAX_GROUPS + b"\x0c" * MAX_GROUPS
    assert scan(fine + PADDING, 0, len(fine), defaultdict(list), []) == (len(fine), 0)


def test_tags_longer_than_they_must_be():
    """protobuf reads tags of up to five bytes, however small the number."""
    for length in range(1, 6):
        assert read_tag(varint(8, length) + PADDING, 0) == (8, length)
        raw = varint(8, length) + b"\x05"
        assert walked(raw, 64) == {8: [0]}
        raw = varint(10, length) + b"\x01a\x0a\x01a" + varint(10, length) + b"\x80\x00"
        assert walked(raw, 64) == {10: [0, length + 2, length + 5]}
    assert read_tag(varint((1 << 32) - 1) + PADDING, 0) == ((1 << 32) - 1, 5)
    with pytest.raises(MalformedError, match="too long"):
        read_tag(varint(8, 6) + PADDING, 0)
    with pytest.raises(MalformedError, match="too long"):
        read_tag(varint(1 << 32) + PADDING, 0)


@given(value=st.integers(0, (1 << 64) - 1), length=st.integers(1, 10))
@example(value=(1 << 63) - 1, length=10)
@example(value=(1 << 64) - 1, length=1)
def test_varints_are_read_and_skipped_and_too_large_ones_refused(value, length):
    raw = b"\xff" + varint(value, length) + PADDING
    end = len(raw) - SLACK
    assert read_value(raw, 1) == (value, end)
    assert skip_varint(raw, 1) == end
    if value < 1 << 63 and (length <= 5 or (value >> 35 and length < 10)):
        assert read_length(raw, 1) == (value, end)
    else:
        with pytest.raises(MalformedError, match="too large") as caught:
            read_length(raw, 1, 40)
        assert caught.value.offset == 41


def test_the_tenth_byte_of_a_varint():
    """Bits above the 64th are dropped, as protobuf does."""
    assert read_value(b"\xff" * 9 + b"\x7f", 0) == ((1 << 64) - 1, 10)
    for read in (read_value, skip_varint):
        with pytest.raises(MalformedError, match="more than ten"):
            read(b"\xff" * 10 + b"\x01" + PADDING, 0)


def test_payloads_passed_over():
    assert skip_payload(b"\x03abc", 0, LEN) == 4
    assert skip_payload(varint(300) + PADDING, 0, VARINT) == 2
    assert skip_payload(bytes(9), 1, FIXED64) == 9
    assert skip_payload(bytes(9), 1, FIXED32) == 5


def test_groups_are_left_at_their_own_end_mark():
    groups = [7]
    raw = tagged(1, 0, b"\x01") + tagged(2, 3, b"") + varint(7 << 3 | END_GROUP) + tagged(1, 0, b"\x09")
    pos, last = leave_groups(raw + PADDING, 0, len(raw), groups, 0)
    assert (pos, last, groups) == (5, 4, [])
    groups = [7]
    assert leave_groups(raw + PADDING, 0, 3, groups, 0) == (3, 2)
    assert groups == [7, 2]
    assert tagged(2, START_GROUP, b"") == raw[2:4]
