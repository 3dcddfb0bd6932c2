from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.data.base import Access, BytesData, Data, Gap, SuspectRange
from pparse.data.files import FileData
from pparse.data.spliced import MissingData, SplicedData, ZeroData
from pparse.errors import ClosedError, DataChangedError, EndOfDataError, GapError, SourceError
from pparse.testing.fakes import FailingData, FakeData, GappyData, RestartData, ShortData, UnknownSizeData
from tests import sweep

DIGITS = b"0123456789"
HUGE = 1 << 62


def splice(*parts: tuple[Data, int, int]) -> SplicedData:
    return SplicedData(data.range(start, end) for data, start, end in parts)


@pytest.fixture
def three():
    """``123`` ``fghi`` ``789``, the first and the last of one source."""
    digits, letters = BytesData(DIGITS, "digits"), BytesData(b"abcdefghij", "letters")
    return splice((digits, 1, 4), (letters, 5, 9), (digits, 7, 10))


# -- reading ---------------------------------------------------------------------------------------------------------


def test_reads_across_parts(three):
    joined = b"123fghi789"
    assert three.size == 10
    assert three.access is Access.FREE
    assert three.gaps == ()
    for start in range(12):
        for length in range(13):
            assert three.pread(start, length) == joined[start : start + length]
            buffer = bytearray(b"#" * length)
            got = three.preadinto(start, buffer)
            assert buffer[:got] == joined[start : start + length]
            assert buffer[got:] == b"#" * (length - got)
    assert three.pread(0, HUGE) == joined
    assert three.pread(HUGE, HUGE) == b""
    assert three.open(2).read() == joined[2:]
    assert three.range(2, 8).read() == joined[2:8]


def test_a_splice_of_nothing_has_size_0():
    for empty in (SplicedData([]), splice((BytesData(DIGITS), 3, 3), (BytesData(DIGITS), 0, 0))):
        assert empty.size == 0
        assert empty.pread(0, 5) == b""
        assert empty.open().read() == b""
        assert empty.locate(0, 5) == []
        assert list(empty.holes(0, 5)) == []
        assert empty.mapped(0, 0) is None
        assert empty.mapped(0, 5) is None
        empty.check_unchanged()


def test_empty_parts_are_passed_over():
    data = BytesData(DIGITS)
    spliced = splice((data, 4, 4), (data, 1, 3), (data, 9, 9), (data, 5, 6), (data, 0, 0))
    assert spliced.pread(0, 10) == b"125"
    assert spliced.locate(0, 3) == [(data, 1, 2), (data, 5, 1)]


def test_parts_may_overlap_and_repeat():
    data = BytesData(DIGITS)
    assert splice((data, 0, 4), (data, 2, 5), (data, 2, 5)).pread(0, 100) == b"0123234234"


def test_only_the_parts_that_are_asked_for_are_read():
    sources = [FakeData(DIGITS, str(number)) for number in range(4)]
    spliced = splice(*((source, 2, 8) for source in sources))
    assert spliced.pread(10, 4) == b"6723"
    assert [source.asked for source in sources] == [[], [(6, 2)], [(2, 2)], []]


def test_range_beyond_signed_64_bits():
    spliced = splice((BytesData(DIGITS), 8, 1 << 64), (BytesData(DIGITS), 0, 1 << 63))
    assert spliced.size == (1 << 64) - 8 + (1 << 63)
    assert spliced.pread(0, HUGE) == b"89"
    with pytest.raises(GapError):
        spliced.pread(5, 1)
    assert spliced.pread((1 << 64) - 8, 3) == b"012"


@settings(max_examples=sweep.examples(200))
@given(st.data())
def test_any_parts_read_as_their_bytes_joined(draw):
    sources = [BytesData(draw.draw(st.binary(max_size=40)), str(number)) for number in range(3)]
    parts = []
    for _ in range(draw.draw(st.integers(0, 6))):
        source = draw.draw(st.sampled_from(sources))
        start = draw.draw(st.integers(0, source.size))
        parts.append((source, start, draw.draw(st.integers(start, source.size))))
    joined = b"".join(source.pread(start, end - start) for source, start, end in parts)
    spliced = splice(*parts)
    if draw.draw(st.booleans()):  # spliced again out of pieces of itself
        cut = draw.draw(st.integers(0, len(joined)))
        spliced = splice((spliced, cut, len(joined)), (spliced, 0, cut))
        joined = joined[cut:] + joined[:cut]
    assert spliced.size == len(joined)
    for _ in range(4):
        offset = draw.draw(st.integers(0, len(joined) + 2))
        length = draw.draw(st.integers(0, len(joined) + 2))
        expected = joined[offset : offset + length]
        assert spliced.pread(offset, length) == expected
        buffer = bytearray(length)
        assert spliced.preadinto(offset, buffer) == len(expected)
        assert buffer[: len(expected)] == expected
        located = spliced.locate(offset, length)
        assert b"".join(source.pread(start, count) for source, start, count in located) == expected
        assert all(isinstance(source, BytesData) for source, _, _ in located)
        assert spliced.available(offset, length) is (length <= len(joined) - offset or length == 0)


def test_threads_that_share_a_splice_read_what_is_there(three):
    errors = []

    def work() -> None:
        for number in range(300):
            if three.pread(number % 10, 5) != b"123fghi789"[number % 10 :][:5]:
                errors.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_stats_are_its_own_and_the_sources(three):
    three.pread(2, 5)
    assert (three.stats.reads, three.stats.bytes) == (1, 5)
    sources = {source.name: source for source, _, _ in three.locate(0, 10)}
    assert sources["digits"].stats.bytes == 1
    assert sources["letters"].stats.bytes == 4


# -- where the bytes are ---------------------------------------------------------------------------------------------


def test_locate_names_the_source_of_every_stretch(three):
    found = three.locate(1, 8)
    assert [(source.name, start, count) for source, start, count in found] == [
        ("digits", 2, 2),
        ("letters", 5, 4),
        ("digits", 7, 2),
    ]
    assert three.locate(0, 0) == []
    assert [count for _, _, count in three.locate(8, 100)] == [2]
    assert three.locate(10, 1) == []
    assert three.locate(50, 1) == []


def test_locate_joins_what_adjoins():
    data, other = BytesData(DIGITS), BytesData(DIGITS)
    spliced = splice((data, 1, 4), (data, 4, 6), (other, 6, 7), (data, 7, 8), (data, 9, 10))
    assert spliced.locate(0, 100) == [(data, 1, 5), (other, 6, 1), (data, 7, 1), (data, 9, 1)]


def test_locate_goes_to_the_outermost():
    data = BytesData(DIGITS)
    inner = splice((data, 5, 8), (data, 0, 2))
    outer = splice((inner, 1, 5), (inner, 0, 1))
    assert outer.pread(0, 9) == b"67015"
    assert outer.locate(0, 5) == [(data, 6, 2), (data, 0, 2), (data, 5, 1)]
    assert outer.locate(1, 2) == [(data, 7, 1), (data, 0, 1)]


class HoleyData(FakeData):
    """Bytes of which ``[3, 6)`` and ``[8, 10)`` were never written."""

    def holes(self, start, end):
        for first, last in ((3, 6), (8, 10)):
            if max(first, start) < min(last, end):
                yield max(first, start), min(last, end)


def test_holes_are_in_its_own_offsets():
    holey, plain = HoleyData(DIGITS), BytesData(DIGITS)
    spliced = splice((plain, 0, 5), (holey, 4, 9), (holey, 0, 10))
    assert list(spliced.holes(0, 20)) == [(5, 7), (9, 10), (13, 16), (18, 20)]
    assert list(spliced.holes(6, 14)) == [(6, 7), (9, 10), (13, 14)]
    assert list(spliced.holes(0, 5)) == []
    assert list(spliced.holes(7, 7)) == []
    assert list(spliced.holes(9, 2)) == []
    assert list(spliced.holes(19, HUGE)) == [(19, 20)]
    assert list(spliced.holes(30, 40)) == []


def test_mapped_serves_stretches_within_one_part_only(three):
    assert bytes(three.mapped(3, 4)) == b"fghi"
    assert bytes(three.mapped(8, 2)) == b"89"
    assert three.mapped(2, 2) is None  # in two parts
    assert three.mapped(8, 3) is None  # more than there is: the source goes on, this does not
    assert splice((BytesData(DIGITS), 0, 4)).mapped(2, 5) is None
    assert splice((FakeData(DIGITS), 0, 4)).mapped(1, 2) is None  # its source cannot
    three.close()
    with pytest.raises(ClosedError):
        three.mapped(3, 4)


# -- gaps ------------------------------------------------------------------------------------------------------------


def test_gaps_of_the_sources():
    gappy = GappyData(DIGITS, [(2, 3), (8, None)])
    assert splice((gappy, 0, 10)).gaps == (Gap(2, 3), Gap(8, 2))
    assert splice((gappy, 3, 9)).gaps == (Gap(0, 2), Gap(5, 1))
    assert splice((gappy, 5, 8)).gaps == ()
    assert splice((gappy, 0, 2), (gappy, 0, 4), (gappy, 4, 6), (gappy, 9, 10)).gaps == (Gap(4, 2), Gap(6, 1), Gap(8, 1))


def test_reads_stop_before_a_gap():
    gappy, plain = GappyData(DIGITS, [(2, 3)]), BytesData(b"abc")
    spliced = splice((plain, 0, 3), (gappy, 0, 10), (plain, 0, 3))
    assert spliced.pread(1, 100) == b"bc01"
    buffer = bytearray(100)
    assert spliced.preadinto(1, buffer) == 4
    with pytest.raises(GapError) as caught:
        spliced.pread(6, 1)
    assert (caught.value.offset, caught.value.length) == (6, 2)
    with pytest.raises(GapError):
        spliced.preadinto(6, bytearray(1))
    assert spliced.pread(8, 100) == b"56789abc"
    assert not spliced.available(0, 6)
    assert spliced.available(8, 8)
    reader = spliced.open()
    assert reader.read() == b"abc01"
    with pytest.raises(GapError):
        reader.read_exact(1)


def test_a_part_that_its_source_cannot_fill_is_a_gap_at_its_end():
    short, plain = BytesData(b"abc"), BytesData(DIGITS)
    spliced = splice((short, 1, 6), (plain, 0, 3), (short, 50, 52), (plain, 3, 4))
    assert spliced.size == 11
    assert spliced.gaps == (Gap(2, 3), Gap(8, 2))
    assert spliced.pread(0, 100) == b"bc"
    assert spliced.pread(5, 100) == b"012"
    assert spliced.pread(10, 100) == b"3"
    for offset in (2, 4, 8, 9):
        with pytest.raises(GapError):
            spliced.pread(offset, 1)


def test_a_stream_that_ends_early_is_a_gap_once_that_is_known():
    stream, plain = UnknownSizeData(b"abc"), BytesData(DIGITS)
    spliced = splice((stream, 1, 6), (plain, 0, 3))
    assert spliced.gaps == ()
    assert spliced.pread(0, 100) == b"bc"
    assert spliced.gaps == (Gap(2, 3),)
    with pytest.raises(GapError) as caught:
        spliced.pread(3, 1)
    assert (caught.value.offset, caught.value.length) == (3, 2)
    assert spliced.pread(5, 3) == b"012"


@pytest.mark.parametrize("into", [False, True])
def test_a_read_that_begins_where_a_stream_turns_out_to_have_ended(into):
    spliced = splice((UnknownSizeData(b"abc"), 1, 6), (BytesData(DIGITS), 0, 3))
    with pytest.raises(GapError) as caught:
        spliced.preadinto(2, bytearray(4)) if into else spliced.pread(2, 4)
    assert caught.value.offset == 2


class LateGapData(FakeData):
    """Bytes whose gap at 4 is known only when it is met, as damage in a compressed stream is."""

    def _pread(self, offset, length):
        if offset + length > 4:
            self.gaps = (Gap(4, 2),)
            return super()._pread(offset, self._clip(offset, length))
        return super()._pread(offset, length)


@pytest.mark.parametrize("into", [False, True])
def test_a_gap_that_is_met_on_the_way(into):
    def read(spliced, offset):
        buffer = bytearray(100)
        return bytes(buffer[: spliced.preadinto(offset, buffer)]) if into else spliced.pread(offset, 100)

    def parts():
        return (BytesData(b"ab"), 0, 2), (LateGapData(DIGITS), 3, 10)

    assert read(splice(*parts()), 0) == b"ab3"
    spliced = splice(*parts())
    with pytest.raises(GapError) as caught:
        read(spliced, 4)
    assert (caught.value.offset, caught.value.length) == (4, 1)
    assert spliced.gaps == (Gap(3, 2),)
    assert read(spliced, 5) == b"6789"
    # The part begins in the gap: what comes before it is still served.
    assert read(splice((BytesData(b"ab"), 0, 2), (LateGapData(DIGITS), 4, 10)), 0) == b"ab"


def test_short_reads_are_passed_on():
    short, plain = ShortData(DIGITS, short_at=1, most=2), BytesData(b"abc")
    spliced = splice((short, 0, 5), (plain, 0, 3))
    with pytest.raises(EndOfDataError) as caught:
        spliced.read_exact(0, 8)
    assert caught.value.got == 2
    assert spliced.pread(0, 8) == b"01234abc"


def test_a_failing_source_raises_and_is_asked_again():
    failing, plain = FailingData(DIGITS, fail_at=1), BytesData(b"abc")
    spliced = splice((plain, 0, 3), (failing, 0, 5))
    with pytest.raises(SourceError):
        spliced.pread(0, 8)
    assert spliced.pread(0, 8) == b"abc01234"


# -- what it says of its sources -------------------------------------------------------------------------------------


def test_access_is_that_of_the_costliest():
    checkpoint = FakeData(DIGITS)
    checkpoint.access = Access.CHECKPOINT
    free, restart = BytesData(DIGITS), RestartData(DIGITS)
    assert splice((free, 0, 1), (free, 0, 1)).access is Access.FREE
    assert splice((free, 0, 1), (checkpoint, 0, 1)).access is Access.CHECKPOINT
    assert splice((free, 0, 1), (restart, 0, 1), (checkpoint, 0, 1)).access is Access.RESTART
    assert splice((splice((restart, 0, 2)), 0, 1)).access is Access.RESTART
    assert splice((restart, 3, 3), (free, 0, 1)).access is Access.FREE  # an empty part costs nothing


def test_reading_forward_does_not_restart():
    restart = RestartData(DIGITS)
    spliced = splice((restart, 0, 3), (restart, 4, 8))
    assert spliced.open().read(7) == b"0124567"
    assert restart.restarts == 0
    spliced.pread(0, 1)
    assert restart.restarts == 1


def test_check_unchanged_looks_at_every_source_once(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(DIGITS)
    os.utime(path, (1, 1))
    checked = []

    class Watched(FakeData):
        def check_unchanged(self):
            checked.append(self.name)

    watched = Watched(DIGITS, "watched")
    with FileData(path) as file:
        spliced = splice((watched, 0, 2), (file, 0, 2), (watched, 3, 4), (splice((file, 2, 4)), 0, 2))
        spliced.check_unchanged()
        assert checked == ["watched"]
        os.utime(path, (2, 2))
        with pytest.raises(DataChangedError):
            spliced.check_unchanged()


def test_close_leaves_the_sources_open(three):
    sources = [source for source, _, _ in three.locate(0, 10)]
    three.close()
    three.close()
    with pytest.raises(ClosedError):
        three.pread(0, 1)
    with pytest.raises(ClosedError):
        three.check_unchanged()
    assert three.locate(0, 10) == []
    assert not any(source.closed for source in sources)


def test_a_closed_source_raises_closed_error():
    data = BytesData(DIGITS)
    spliced = splice((data, 0, 5))
    data.close()
    with pytest.raises(ClosedError):
        spliced.pread(0, 1)
    with pytest.raises(ClosedError):
        spliced.check_unchanged()


def test_many_parts_are_found_quickly():
    data = FakeData(bytes(range(256)) * 4)
    spliced = SplicedData(data.range(number % 1000, number % 1000 + 2) for number in range(50_000))
    assert spliced.size == 100_000
    for offset in (0, 1, 77_777, 99_999):
        number = offset // 2 % 1000 + offset % 2
        assert spliced.pread(offset, 1) == data.content[number : number + 1]
    assert len(data.asked) == 4


# -- gaps that are read over, zeros, and what is missing ---------------------------------------------------------------


def test_read_known_over_parts():
    middle = GappyData(b"abcdefghij", [(2, 3), (8, None)])
    joined = splice((BytesData(DIGITS), 0, 4), (middle, 0, 10), (BytesData(DIGITS), 5, 10))
    wanted = b"0123" + b"ab\0\0\0fgh\0\0" + b"56789"
    unknown = [6, 7, 8, 12, 13]
    for start in range(21):
        for length in (0, 1, 2, 5, 30, HUGE):
            got, stretches = joined.read_known(start, length)
            assert got == wanted[start : start + length]
            places = [place for first, count in stretches for place in range(first, first + count)]
            assert places == [place for place in unknown if start <= place < start + len(got)]


def test_gaps_keep_their_kind():
    part = BytesData(DIGITS)
    part.gaps = (Gap(2, 3, exact=False), Gap(7, 1))
    assert tuple(splice((BytesData(DIGITS), 0, 5), (part, 0, 10)).gaps) == (Gap(7, 3, exact=False), Gap(12, 1))


def test_read_known_of_a_part_that_its_source_cannot_fill():
    joined = splice((BytesData(DIGITS), 5, 20), (BytesData(DIGITS), 0, 3))
    assert joined.size == 18
    assert joined.read_known(0, 30) == (b"56789" + bytes(10) + b"012", [(5, 10)])
    late = splice((UnknownSizeData(DIGITS), 5, 20), (BytesData(DIGITS), 0, 3))
    assert late.read_known(0, 30) == (b"56789" + bytes(10) + b"012", [(5, 10)])


def test_read_known_lets_errors_pass():
    joined = splice((FailingData(DIGITS, 1), 0, 10))
    with pytest.raises(SourceError):
        joined.read_known(0, 5)
    joined.close()
    with pytest.raises(ClosedError):
        joined.read_known(0, 5)


def test_doubt_of_the_parts():
    part = BytesData(DIGITS)
    part.suspect_ranges = (SuspectRange(2, 4, "why"),)
    joined = splice((BytesData(DIGITS), 0, 5), (part, 3, 10), (part, 0, 3))
    assert joined.why_suspect(0, 5) is None
    assert joined.why_suspect(5, 6) == "why"
    assert joined.why_suspect(6, 12) is None
    assert joined.why_suspect(12, 14) is None
    assert joined.why_suspect(14, 15) == "why"
    assert joined.why_suspect(0, 99) == "why"


def test_doubts_are_in_its_own_offsets():
    part = BytesData(DIGITS)
    part.suspect_ranges = (SuspectRange(2, 4, "why"), SuspectRange(8, 9, "why"))
    joined = splice((BytesData(DIGITS), 0, 5), (part, 3, 10), (part, 0, 3))
    assert joined.suspect_ranges_in(0, 99) == [(5, 6), (10, 11), (14, 15)]
    assert joined.suspect_ranges_in(0, 11) == [(5, 6), (10, 11)]
    assert joined.suspect_ranges_in(6, 10) == []
    assert joined.suspect_ranges_in(0, 0) == []


def test_zero_data_of_any_size_reads_as_zeros():
    zeros = ZeroData(1 << 50)
    assert zeros.size == 1 << 50
    assert tuple(zeros.gaps) == ()
    assert zeros.pread((1 << 50) - 3, 100) == bytes(3)
    buffer = bytearray(b"###")
    assert zeros.preadinto(5, buffer) == 3
    assert buffer == bytes(3)
    assert list(zeros.holes(0, 1 << 50)) == []
    assert zeros.read_known(7, 5) == (bytes(5), [])
    assert ZeroData(0).pread(0, 1) == b""
    zeros.close()
    with pytest.raises(ClosedError):
        zeros.pread(0, 1)


def test_what_is_missing():
    lost = MissingData(20)
    assert tuple(lost.gaps) == (Gap(0, 20),)
    with pytest.raises(GapError) as caught:
        lost.pread(5, 3)
    assert (caught.value.offset, caught.value.length) == (5, 15)
    assert lost.pread(20, 1) == b""
    assert lost.read_known(15, 100) == (bytes(5), [(15, 5)])
    assert not lost.available(0, 1)
    assert tuple(MissingData(0).gaps) == ()
    assert MissingData(0).pread(0, 5) == b""


def test_a_sparse_file_with_a_stretch_lost():
    joined = SplicedData(
        [
            ZeroData(100).range(10, 15),
            BytesData(DIGITS).range(0, 3),
            MissingData(4).range(0, 4),
            ZeroData(2).range(0, 2),
        ]
    )
    assert joined.read_known(0, 99) == (bytes(5) + b"012" + bytes(6), [(8, 4)])
    assert joined.pread(0, 99) == bytes(5) + b"012"
    assert tuple(joined.gaps) == (Gap(8, 4),)
    assert joined.pread(12, 5) == bytes(2)
