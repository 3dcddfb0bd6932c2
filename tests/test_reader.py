from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.data.base import BytesData, Cursor, Range, Reader, byte_view
from pparse.errors import ClosedError, EndOfDataError, EndOfRangeError, GapError, SourceError
from pparse.testing.fakes import FailingData, FakeData, GappyData, ShortData, UnknownSizeData
from tests import sweep
from tests.rows import rows

CONTENT = bytes(number * 7 % 251 for number in range(300_000))
HUGE = 1 << 62


@pytest.fixture(params=["cursor", "range", "inner", "unknown", "unknown range"])
def reader(request):
    """A reader of `CONTENT`, whatever it stands on."""
    match request.param:
        case "cursor":
            return BytesData(CONTENT).open()
        case "range":
            return BytesData(CONTENT).range(0, len(CONTENT))
        case "inner":
            return BytesData(b"before" + CONTENT + b"after").range(6, 6 + len(CONTENT))
        case "unknown":
            return UnknownSizeData(CONTENT).open()
        case "unknown range":
            return UnknownSizeData(b"before" + CONTENT + b"after").range(6, 6 + len(CONTENT))


# -- reading ---------------------------------------------------------------------------------------------------------


@rows("step", [1, 7, 4096, 65_536, 65_537, 250_000, HUGE])
def test_read_in_steps(reader, step):
    if step == 1:
        reader.seek(len(CONTENT) - 5000)
    expected = CONTENT[reader.tell() :]
    pieces = []
    position = reader.tell()
    while chunk := reader.read(step):
        pieces.append(chunk)
        position += len(chunk)
        assert reader.tell() == position
    assert b"".join(pieces) == expected
    assert all(len(piece) == step for piece in pieces[:-1])
    assert reader.read(step) == reader.read() == b""


def test_read_without_a_count_goes_to_the_end(reader):
    assert reader.read() == CONTENT
    assert reader.tell() == len(CONTENT)
    reader.seek(-10, os.SEEK_END)
    assert reader.read(-1) == CONTENT[-10:]


def test_peek_does_not_move(reader):
    reader.read(100)
    for count in (0, 1, 10, 5000, 100_000, 1):
        assert reader.peek(count) == CONTENT[100 : 100 + count]
        assert reader.tell() == 100
    assert reader.read(3) == CONTENT[100:103]
    assert reader.peek(HUGE) == CONTENT[103:]


def test_peek_needs_a_count(reader):
    reader.read(100)
    with pytest.raises(ValueError, match="negative"):
        reader.peek(-1)
    reader.seek(len(CONTENT))
    with pytest.raises(ValueError, match="negative"):
        reader.peek(-1)


def test_read_exact_gives_all_bytes_or_stays_where_it_was(reader):
    assert reader.read_exact(0) == b""
    assert reader.read_exact(10) == CONTENT[:10]
    assert reader.read_exact(100_000) == CONTENT[10:100_010]
    with pytest.raises(ValueError, match="negative"):
        reader.read_exact(-1)
    reader.seek(len(CONTENT) - 3)
    with pytest.raises(EOFError) as caught:
        reader.read_exact(4)
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (reader.offset, 4, 3)
    assert caught.value.source == reader.data.name
    assert reader.tell() == len(CONTENT) - 3  # did not move
    assert reader.read_exact(3) == CONTENT[-3:]
    assert reader.read_exact(0) == b""
    with pytest.raises(EOFError):
        reader.read_exact(1)


def test_readinto_fills_any_buffer_and_moves_on(reader):
    reader.seek(5)
    for buffer in (bytearray(10), memoryview(bytearray(10)), np.zeros(5, "u2").data, np.zeros((5, 2), "u1").data):
        before = reader.tell()
        assert reader.readinto(buffer) == 10
        assert bytes(memoryview(buffer).cast("B")) == CONTENT[before : before + 10]
        assert reader.tell() == before + 10
    for empty in (bytearray(), np.empty((0, 3), "f4").data):
        assert reader.readinto(empty) == 0
    reader.seek(len(CONTENT) - 4)
    buffer = bytearray(b"\xee" * 10)
    assert reader.readinto(buffer) == 4
    assert buffer == CONTENT[-4:] + b"\xee" * 6
    assert reader.readinto(buffer) == 0


def test_huge_counts_and_offsets_read_what_there_is(reader):
    reader.seek(10)
    assert reader.read(HUGE) == CONTENT[10:]
    reader.seek(HUGE)
    assert reader.tell() == HUGE
    assert reader.read(10) == reader.peek(10) == reader.read() == b""
    assert reader.remaining in (0, None)
    with pytest.raises(EOFError):
        reader.read_exact(1)
    reader.seek(0)
    with pytest.raises(EOFError) as caught:
        reader.read_exact(HUGE)
    assert caught.value.got == len(CONTENT)


# -- moving ----------------------------------------------------------------------------------------------------------


def test_seek_tell_skip(reader):
    assert reader.tell() == 0
    assert reader.seek(100) == 100
    assert reader.seek(5, os.SEEK_CUR) == 105
    assert reader.seek(-5, os.SEEK_CUR) == 100
    assert reader.skip(20) == 120
    assert reader.skip(0) == 120
    assert reader.tell() == 120
    assert reader.read(4) == CONTENT[120:124]
    assert reader.offset == reader.start + 124


def test_seek_from_the_end():
    for made in (BytesData(CONTENT).open(), BytesData(b"x" + CONTENT + b"y").range(1, 1 + len(CONTENT))):
        assert made.seek(-4, os.SEEK_END) == len(CONTENT) - 4
        assert made.read() == CONTENT[-4:]
        assert made.seek(3, os.SEEK_END) == len(CONTENT) + 3
        assert made.read(1) == b""


def test_seek_from_an_unknown_end():
    cursor = UnknownSizeData(b"abc").open()
    with pytest.raises(EndOfDataError, match="not known"):
        cursor.seek(-1, os.SEEK_END)
    cursor.read()
    assert cursor.seek(-1, os.SEEK_END) == 2
    assert cursor.read() == b"c"


@rows(("offset", "whence"), [(-1, 0), (-101, 1), (-len(CONTENT) - 1, 2)])
def test_seek_before_the_start(reader, offset, whence):
    if whence == os.SEEK_END and reader.end is None:
        pytest.skip("the end is not known")
    reader.seek(100)
    with pytest.raises(ValueError, match="before the start"):
        reader.seek(offset, whence)
    assert reader.tell() == 100


@rows("whence", [3, -1])
def test_seek_from_nowhere(reader, whence):
    with pytest.raises(ValueError, match="whence"):
        reader.seek(0, whence)


def test_remaining_and_size():
    for made in (BytesData(b"abcdef").open(), BytesData(b"xxabcdefyy").range(2, 8)):
        assert (made.size, made.remaining) == (6, 6)
        made.read(2)
        assert (made.size, made.remaining) == (6, 4)
        made.seek(10)
        assert (made.size, made.remaining) == (6, 0)


def test_remaining_while_the_size_is_unknown():
    cursor = UnknownSizeData(b"abcdef").open()
    assert (cursor.size, cursor.remaining, cursor.end) == (None, None, None)
    cursor.read()
    assert (cursor.size, cursor.remaining, cursor.end) == (6, 0, 6)


def test_cursor_begins_at_its_offset():
    cursor = BytesData(b"abcdef").open(2)
    assert (cursor.tell(), cursor.start, cursor.offset) == (2, 0, 2)
    assert cursor.read(2) == b"cd"
    assert cursor.seek(0) == 0
    assert cursor.read(1) == b"a"
    assert Cursor(BytesData(b"abc")).read() == b"abc"
    with pytest.raises(ValueError, match="negative"):
        BytesData(b"abc").open(-1)


def test_dup_moves_apart(reader):
    reader.read(10)
    other = reader.dup()
    assert type(other) is type(reader)
    assert (other.tell(), other.start, other.end) == (10, reader.start, reader.end)
    assert other.read(5) == CONTENT[10:15]
    assert reader.tell() == 10
    reader.seek(0)
    assert (reader.read(3), other.read(3)) == (CONTENT[:3], CONTENT[15:18])
    assert other.data is reader.data


# -- ranges ----------------------------------------------------------------------------------------------------------


def test_sub_range_counts_from_the_readers_start(reader):
    reader.seek(1000)
    part = reader.range(10, 20)
    assert isinstance(part, Range)
    assert (part.tell(), part.size, len(part)) == (0, 10, 10)
    assert part.start == reader.start + 10
    assert part.read() == CONTENT[10:20]
    assert part.range(2, 5).read() == CONTENT[12:15]
    assert reader.tell() == 1000


def test_sub_range_may_be_all_of_its_parent(reader):
    assert reader.range(0, len(CONTENT)).read() == CONTENT
    assert reader.range(0, 0).read() == b""


def test_sub_range_is_clipped_to_its_parent():
    outer = BytesData(b"0123456789").range(2, 7)
    assert outer.range(3, 100).read() == b"56"
    assert outer.range(3, HUGE).range(1, HUGE).read() == b"6"
    beyond = outer.range(50, 60)
    assert (len(beyond), beyond.start, beyond.end) == (0, 7, 7)
    assert beyond.read() == b""
    assert BytesData(b"0123").open().range(2, HUGE).end == 4


def test_sub_range_of_unknown_size_is_not_clipped():
    part = UnknownSizeData(b"0123456789").open().range(8, 20)
    assert len(part) == 12
    assert part.read() == b"89"


@rows(("start", "end"), [(-1, 5), (5, 4), (-3, -2)])
def test_ends_before_starts_and_negative_ones_are_no_ranges(reader, start, end):
    with pytest.raises(ValueError, match="not a range"):
        reader.range(start, end)
    with pytest.raises(ValueError, match="not a range"):
        Range(reader.data, start, end)


def test_empty_range_is_true():
    part = BytesData(b"abc").range(1, 1)
    assert part
    assert len(part) == 0
    assert part.read() == b""
    assert part.read_exact(0) == b""
    with pytest.raises(EndOfRangeError):
        part.read_exact(1)


def test_range_cannot_be_left():
    part = BytesData(b"0123456789").range(2, 5)
    assert part.read(100) == b"234"
    part.seek(0)
    assert part.peek(100) == b"234"
    part.seek(4)
    assert part.read(1) == b""
    buffer = bytearray(4)
    assert part.readinto(buffer) == 0
    part.seek(1)
    assert part.readinto(buffer) == 2


def test_range_of_more_than_there_is():
    part = BytesData(b"abc").range(1, HUGE)
    assert len(part) == HUGE - 1
    assert part.read() == b"bc"
    assert part.read(5) == b""


def test_ranges_are_equal_by_place():
    data, other = BytesData(b"abcdef"), BytesData(b"abcdef")
    one, two = data.range(1, 3), data.range(1, 3)
    two.read(1)
    assert one == two
    assert hash(one) == hash(two)
    assert one != data.range(1, 4)
    assert one != data.range(0, 3)
    assert one != other.range(1, 3)
    assert one != "range"
    assert len({one, two, data.range(0, 3)}) == 2


# -- which end -------------------------------------------------------------------------------------------------------


def test_end_of_data_and_end_of_range():
    data = BytesData(b"0123456789", "ten")
    with pytest.raises(EndOfDataError) as of_data:
        data.open(8).read_exact(5)
    assert (of_data.value.offset, of_data.value.wanted, of_data.value.got) == (8, 5, 2)
    part = data.range(2, 6)
    part.seek(3)
    with pytest.raises(EndOfRangeError) as of_range:
        part.read_exact(5)
    assert (of_range.value.offset, of_range.value.wanted, of_range.value.got) == (5, 5, 1)
    assert of_range.value.source == "ten"


def test_data_that_ends_inside_the_range():
    part = BytesData(b"abc").range(1, 100)
    with pytest.raises(EndOfDataError) as caught:
        part.read_exact(5)
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (1, 5, 2)
    part.seek(50)
    with pytest.raises(EndOfDataError):
        part.read_exact(5)
    part.seek(200)
    with pytest.raises(EndOfRangeError):
        part.read_exact(5)


def test_unknown_data_that_ends_inside_the_range():
    part = UnknownSizeData(b"abc").range(1, 100)
    with pytest.raises(EndOfDataError):
        part.read_exact(5)


# -- gaps and faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown_size", [False, True])
@pytest.mark.parametrize("length", [50, None])
def test_a_read_stops_before_a_gap_and_the_next_one_raises(unknown_size, length):
    data = GappyData(CONTENT, [(100, length)])
    if unknown_size:
        data.size = None
    for reader in (data.open(), data.range(0, 1000)):
        assert reader.read(1000) == CONTENT[:100]
        assert reader.tell() == 100
        with pytest.raises(GapError):
            reader.read(1)
        assert reader.tell() == 100
        with pytest.raises(GapError):
            reader.peek(1)
        with pytest.raises(GapError):
            reader.read_exact(1)
        with pytest.raises(GapError):
            reader.readinto(bytearray(1))
        reader.seek(90)
        assert reader.read() == CONTENT[90:100]
        with pytest.raises(GapError):
            reader.read()
        reader.seek(90)
        with pytest.raises(GapError) as caught:
            reader.read_exact(11)
        assert (caught.value.offset, caught.value.length) == (100, length)
        assert reader.tell() == 90
        assert reader.read_exact(10) == CONTENT[90:100]
        if length is not None:
            reader.seek(150)
            assert reader.read(10) == CONTENT[150:160]


def test_range_that_ends_before_the_gap_meets_none():
    part = GappyData(CONTENT, [(100, 50)]).range(90, 100)
    assert part.read() == CONTENT[90:100]
    with pytest.raises(EndOfRangeError):
        part.read_exact(1)


def test_failed_read_leaves_the_position():
    reader = FailingData(CONTENT, fail_at=2).open()
    assert reader.read(4096) == CONTENT[:4096]
    with pytest.raises(SourceError):
        reader.read(10)
    assert reader.tell() == 4096
    assert reader.read(10) == CONTENT[4096:4106]


def test_short_reads_are_passed_on():
    reader = ShortData(CONTENT, short_at=1, most=3).open()
    with pytest.raises(EndOfDataError) as caught:
        reader.read_exact(10)
    assert (caught.value.wanted, caught.value.got) == (10, 3)
    assert reader.read(5) == CONTENT[:5]


def test_a_reader_of_closed_data_raises_closed_error():
    data = BytesData(CONTENT)
    reader = data.open()
    data.close()
    with pytest.raises(ClosedError):
        reader.read(1)


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_small_reads_share_blocks_that_grow():
    data = FakeData(CONTENT)
    reader = data.open()
    for _ in range(len(CONTENT) // 10):
        reader.read(10)
    assert [length for _, length in data.asked[:4]] == [4 << 10, 16 << 10, 64 << 10, 64 << 10]
    assert len(data.asked) == 7


def test_blocks_grow_when_they_are_read_to_their_end():
    data = FakeData(CONTENT)
    reader = data.open()
    for size in (4 << 10, 16 << 10, 1 << 10, 1 << 10):
        reader.read(size)
    assert data.asked == [(0, 4 << 10), (4 << 10, 16 << 10), (20 << 10, 64 << 10)]


def test_what_was_peeked_at_is_not_read_again():
    data = FakeData(CONTENT)
    reader = data.open(100)
    reader.peek(10), reader.peek(4096), reader.read(10), reader.seek(100), reader.read(5)
    assert data.asked == [(100, 4096)]


def test_large_reads_are_not_kept():
    reader = BytesData(CONTENT).open()
    reader.read(200_000)
    reader.peek(100_000)
    assert len(reader._block) <= 64 << 10


def test_a_jump_starts_small_again():
    data = FakeData(CONTENT)
    reader = data.open()
    for _ in range(3000):
        reader.read(10)
    reader.seek(200_000)
    reader.read(10)
    assert data.asked[-1] == (200_000, 4 << 10)
    reader.seek(100_000)
    reader.read(10)
    assert data.asked[-1] == (100_000, 4 << 10)


def test_no_byte_beyond_a_range_is_read():
    data = FakeData(CONTENT)
    part = data.range(100, 110)
    part.read(1), part.read(2), part.peek(100)
    assert data.asked == [(100, 10)]


def test_large_reads_are_asked_for_as_they_are():
    data = FakeData(CONTENT)
    data.open().read(200_000)
    assert data.asked == [(0, 200_000)]


@settings(max_examples=sweep.examples(150))
@given(st.data())
def test_any_sequence_is_as_on_a_file(draw):
    """A reader and io.BytesIO, moved alike, serve alike."""
    import io

    content = CONTENT[: draw.draw(st.sampled_from([0, 1, 100, 9_000, 100_000]))]
    kind = draw.draw(st.sampled_from(["cursor", "range", "unknown"]))
    reader: Reader
    if kind == "cursor":
        reader = BytesData(content).open()
    elif kind == "range":
        reader = BytesData(b"##" + content + b"##").range(2, 2 + len(content))
    else:
        reader = UnknownSizeData(content).open()
    file = io.BytesIO(content)
    count = st.integers(0, 20) | st.integers(0, 70_000)
    for _ in range(draw.draw(st.integers(1, 12))):
        match draw.draw(st.sampled_from(["read", "peek", "seek", "skip", "into", "all", "back"])):
            case "read":
                number = draw.draw(count)
                assert reader.read(number) == file.read(number)
            case "peek":
                number = draw.draw(count)
                at = file.tell()
                assert reader.peek(number) == file.read(number)
                file.seek(at)
            case "seek":
                number = draw.draw(st.integers(0, len(content) + 10))
                assert reader.seek(number) == file.seek(number)
            case "skip":
                number = draw.draw(count)
                assert reader.skip(number) == file.seek(number, os.SEEK_CUR)
            case "back":
                number = draw.draw(st.integers(0, file.tell()))
                assert reader.seek(-number, os.SEEK_CUR) == file.seek(-number, os.SEEK_CUR)
            case "into":
                one, two = bytearray(draw.draw(count)), bytearray()
                two[:] = one
                assert reader.readinto(one) == file.readinto(two)
                assert one == two
            case "all":
                assert reader.read() == file.read()
        assert reader.tell() == file.tell()


def test_readers_of_one_data_in_threads():
    data = BytesData(CONTENT)
    errors = []

    def work(start: int) -> None:
        reader = data.open(start)
        for _ in range(200):
            at = reader.tell()
            if reader.read(37) != CONTENT[at : at + 37]:
                errors.append(at)

    threads = [threading.Thread(target=work, args=(number * 1000,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_repr_shows_name_range_and_position():
    cursor = BytesData(b"abc", "name").open(1)
    assert repr(cursor) == "<Cursor of 'name' [0, 3) at 1>"
    assert repr(BytesData(b"abcdef", "name").range(2, 4)) == "<Range of 'name' [2, 4) at 0>"
    assert "?" in repr(UnknownSizeData(b"").open())


def test_a_byte_view_shows_the_bytes_of_any_buffer():
    assert byte_view(np.zeros((2, 3), "f4").data).shape == (24,)
    assert byte_view(np.zeros((2, 0), "f4").data).nbytes == 0
    writable = bytearray(4)
    byte_view(writable)[1] = 7
    assert writable == b"\0\x07\0\0"


def test_readers_are_small():
    for made in (BytesData(b"").open(), BytesData(b"").range(0, 0)):
        assert not hasattr(made, "__dict__")
    assert isinstance(BytesData(b"").open(), Cursor)
