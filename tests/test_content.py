"""Contents read through: every byte, where bytes are missing, and the one verdict on it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.containers.content import GapLog, Verdict, read_through
from pparse.data.base import BytesData, Data, Gap, SuspectRange
from pparse.data.spliced import MissingData, SplicedData, ZeroData
from pparse.errors import (
    CancelledError,
    DataChangedError,
    EndOfDataError,
    Fault,
    GapError,
    LimitError,
    MalformedError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Status
from pparse.testing.fakes import FailingData, FakeData, UnknownSizeData
from tests import sweep

TEXT = bytes(range(200)) * 20
SIZE = len(TEXT)


class Content(FakeData):
    """Bytes with gaps, suspect ranges and an error."""

    def __init__(self, content=TEXT, gaps=(), suspect_ranges=(), error=None, size=-1):
        super().__init__(content)
        self.gaps, self.suspect_ranges, self.error = tuple(gaps), tuple(suspect_ranges), error
        if size != -1:
            self.size = size


@pytest.fixture
def session():
    with pparse.open(b"{}") as document:
        yield document.session


class Kept:
    """A sink: what it got, and that it came in order."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.unknown = []

    def __call__(self, offset, chunk, unknown):
        assert offset == len(self.content)
        self.content += chunk
        for start, count in unknown:
            assert offset <= start
            assert start + count <= offset + len(chunk)
            assert not any(chunk[start - offset : start - offset + count])
        self.unknown += unknown


def through(session, data, start=0, end=None, **more) -> tuple[Verdict, Kept]:
    sink = Kept()
    return read_through(session, data, start, end, sink=sink, **more), sink


def crc(content: bytes) -> tuple[str, int]:
    return "crc32", zlib.crc32(content)


# -- all is well -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [Content(), UnknownSizeData(TEXT), BytesData(TEXT)])
def test_all_of_it(session, data):
    verdict, sink = through(session, data)
    assert (verdict.status, verdict.reason, verdict.verified) == (Status.COMPLETE, None, None)
    assert sink.content == TEXT
    assert verdict.size == SIZE
    assert list(verdict.gaps) == []
    assert verdict.finding("p", "s") is None


def test_a_stretch_with_size_and_checksum_is_verified(session):
    verdict, sink = through(session, Content(), 10, 60, size=50, checksum=crc(TEXT[10:60]))
    assert (verdict.status, verdict.verified, verdict.size) == (Status.COMPLETE, True, 50)
    assert sink.content == TEXT[10:60]


@pytest.mark.parametrize("end", [7, None])
def test_a_content_of_no_bytes_is_complete_and_verified(session, end):
    data = Content() if end else Content(b"")
    verdict, sink = through(session, data, end or 0, end, size=0, checksum=("crc32", 0))
    assert (verdict.status, verdict.verified, verdict.size, sink.content) == (Status.COMPLETE, True, 0, b"")


def test_more_than_one_step(session):
    large = bytes(range(256)) * 12_000
    verdict, sink = through(session, BytesData(large), size=len(large), checksum=crc(large))
    assert verdict.verified is True
    assert sink.content == large


def test_without_a_sink(session):
    assert read_through(session, Content(), 0, SIZE, checksum=crc(TEXT)).verified is True


def test_another_checksum_than_crc32_says_nothing(session):
    verdict, _ = through(session, Content(), checksum=("sha1", 5))
    assert (verdict.status, verdict.verified) == (Status.COMPLETE, None)


# -- something is wrong ------------------------------------------------------------------------------------------------


def test_a_checksum_that_contradicts(session):
    verdict, sink = through(session, Content(), checksum=("crc32", 1))
    assert (verdict.status, verdict.verified, verdict.code) == (Status.DAMAGED, False, "checksum")
    assert "00000001" in verdict.reason
    assert sink.content == TEXT
    finding = verdict.finding("a/b", "file")
    assert (finding.code, finding.path, finding.source) == ("checksum", "a/b", "file")


def test_a_gap_is_passed_as_zeros_that_are_unknown(session):
    verdict, sink = through(session, Content(gaps=[Gap(100, 30)]), checksum=crc(TEXT))
    assert verdict.status is Status.DAMAGED
    assert verdict.verified is None
    assert list(verdict.gaps) == [(100, 30)]
    assert sink.content == TEXT[:100] + bytes(30) + TEXT[130:]
    assert sink.unknown == [(100, 30)]
    assert verdict.size == SIZE
    assert "30 bytes" in verdict.reason


def test_gaps_outside_are_of_no_concern(session):
    data = Content(gaps=[Gap(0, 10), Gap(90, 20), Gap(SIZE - 5, None)])
    verdict, sink = through(session, data, 10, 90, checksum=crc(TEXT[10:90]))
    assert (verdict.status, verdict.verified) == (Status.COMPLETE, True)
    assert sink.content == TEXT[10:90]


@pytest.mark.parametrize("before", [[], [Gap(5, 2)], [Gap(5, 2), Gap(50, 1)]])
def test_a_gap_of_unknown_length(session, before):
    data = Content(gaps=[*before, Gap(100, 30, exact=False), Gap(200, 3)])
    verdict, sink = through(session, data)
    assert verdict.status is Status.DAMAGED
    wanted = bytearray(TEXT[:100] + TEXT[130:200] + bytes(3) + TEXT[203:])
    for gap in before:
        wanted[gap.offset : gap.end] = bytes(gap.length)
    assert sink.content == wanted
    assert list(verdict.gaps) == [*[(gap.offset, gap.length) for gap in before], (100, None), (170, 3)]
    assert not verdict.gaps.exact
    assert "unknown number" in verdict.reason
    assert verdict.size == SIZE - 30


def test_it_begins_and_ends_in_a_gap_of_unknown_length(session):
    data = Content(gaps=[Gap(100, 30, exact=False), Gap(200, 50, exact=False)])
    verdict, sink = through(session, data, 110, 220)
    assert sink.content == TEXT[130:200]
    assert next(iter(verdict.gaps)) == (0, None)
    assert not verdict.gaps.exact
    assert verdict.status is Status.DAMAGED


def test_a_size_is_made_up_for_by_a_gap_of_unknown_length(session):
    """Nothing is missing at the end: what is missing is in the middle."""
    verdict, _ = through(session, Content(gaps=[Gap(100, 30, exact=False)]), size=SIZE + 40)
    assert verdict.status is Status.DAMAGED
    assert list(verdict.gaps) == [(100, None)]


def test_it_is_cut(session):
    verdict, sink = through(session, Content(), 0, SIZE + 100)
    assert (verdict.status, verdict.code) == (Status.TRUNCATED, "truncated")
    assert sink.content == TEXT
    assert list(verdict.gaps) == [(SIZE, 100)]
    verdict, _ = through(session, Content(), size=SIZE + 100)
    assert verdict.status is Status.TRUNCATED
    assert list(verdict.gaps) == [(SIZE, 100)]


def test_it_is_cut_by_a_gap_without_end(session):
    verdict, sink = through(session, Content(gaps=[Gap(100, None)]), 0, SIZE)
    assert verdict.status is Status.TRUNCATED
    assert sink.content == TEXT[:100]
    assert list(verdict.gaps) == [(100, SIZE - 100)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EndOfDataError("the stream is cut short"), Status.TRUNCATED),
        (MalformedError("the stream is damaged"), Status.DAMAGED),
        (UnsupportedError("no library"), Status.UNSUPPORTED),
    ],
)
def test_the_data_says_why_it_does_not_go_on(session, error, status):
    data = Content(TEXT[:100], gaps=[Gap(100, None)], error=error, size=None)
    verdict, sink = through(session, data)
    assert verdict.status is status
    assert verdict.reason == error.reason
    assert sink.content == TEXT[:100]
    assert Status.after(error) is status


def test_bytes_that_follow_a_whole_stream_cost_it_nothing(session):
    data = Content(TEXT[:100], error=MalformedError("bytes follow the stream", fault=Fault.TRAILING))
    verdict, sink = through(session, data)
    assert (verdict.status, verdict.reason, sink.content) == (Status.COMPLETE, None, TEXT[:100])
    # If it is short even so, that is no damage that the data would tell of.
    assert through(session, data, size=101)[0].status is Status.TRUNCATED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, Status.TRUNCATED),
        (EndOfDataError("the stream is cut short"), Status.TRUNCATED),
        (MalformedError("the stream is damaged"), Status.DAMAGED),
    ],
)
@pytest.mark.parametrize("where", [{"size": 101}, {"end": 101}])
def test_what_is_short_is_damaged_only_if_the_data_are(session, error, status, where):
    verdict, _ = through(session, Content(TEXT[:100], error=error), **where)
    assert verdict.status is status
    assert verdict.reason.startswith("it ends after 100 of 101 bytes")
    assert error is None or error.reason in verdict.reason


@pytest.mark.parametrize("size", [None, 50])
def test_what_is_wrong_behind_it_is_of_no_concern(session, size):
    data = Content(TEXT[:100], gaps=[Gap(100, None)], error=EndOfDataError("the stream is cut short"), size=None)
    verdict, _ = through(session, data, 10, 60, size=size)
    assert verdict.status is Status.COMPLETE


def test_more_than_it_should_hold(session):
    verdict, _ = through(session, Content(), size=SIZE - 1)
    assert (verdict.status, verdict.code) == (Status.DAMAGED, "malformed")


def test_a_suspect_range_damages_only_contents_that_touch_it(session):
    data = Content(suspect_ranges=[SuspectRange(50, 60, "somebody said so")])
    assert through(session, data)[0].status is Status.DAMAGED
    assert through(session, data)[0].reason == "somebody said so"
    assert through(session, data, 0, 50)[0].status is Status.COMPLETE
    assert through(session, data, 60, 90)[0].status is Status.COMPLETE


def test_a_checksum_settles_a_doubt(session):
    data = Content(suspect_ranges=[SuspectRange(50, 60, "somebody said so")])
    verdict, _ = through(session, data, checksum=crc(TEXT))
    assert (verdict.status, verdict.verified, verdict.reason) == (Status.COMPLETE, True, None)
    verdict, _ = through(session, data, checksum=crc(b"x"))
    assert (verdict.status, verdict.verified) == (Status.DAMAGED, False)


def test_a_checksum_does_not_fill_gaps(session):
    """Zeros stand for what is missing; that they happen to be right is chance."""
    content = TEXT[:100] + bytes(30) + TEXT[130:]
    verdict, _ = through(session, Content(content, gaps=[Gap(100, 30)]), checksum=crc(content))
    assert (verdict.status, verdict.verified) == (Status.DAMAGED, None)


def test_reading_comes_upon_damage(session):
    class Late(Data):
        def _pread(self, offset, length):
            if offset >= 100:
                raise MalformedError("broken", offset=12_345)
            return TEXT[offset : min(offset + length, 100)]

    verdict, sink = through(session, Late("<late>", SIZE))
    assert verdict.status is Status.DAMAGED
    assert "broken" in verdict.reason
    assert verdict.offset == 12_345
    assert sink.content == TEXT[: len(sink.content)]


@pytest.mark.parametrize(
    "error", [SourceError("disk"), LimitError("limit", option="--budget 2MiB"), DataChangedError("changed")]
)
def test_what_says_nothing_of_the_data_is_raised(session, error):
    class Broken(Data):
        def _pread(self, offset, length):
            raise error

    with pytest.raises(type(error)):
        through(session, Broken("<broken>", SIZE))


def test_the_failure_of_a_source_is_raised(session):
    with pytest.raises(SourceError):
        through(session, FailingData(TEXT, 1))


def test_it_can_be_cancelled():
    stop = []
    with (
        pparse.open(b"{}", cancel=lambda: bool(stop)) as document,
        pytest.raises(CancelledError),
    ):
        read_through(document.session, BytesData(bytes(5 << 20)), 0, None, sink=lambda *_: stop.append(1))


def test_spliced_zeros_and_missing(session):
    data = SplicedData([BytesData(TEXT).range(0, 50), ZeroData(20).range(0, 20), MissingData(30).range(0, 30)])
    verdict, sink = through(session, data)
    assert sink.content == TEXT[:50] + bytes(20)
    assert list(verdict.gaps) == [(70, 30)]
    assert verdict.status is Status.TRUNCATED


gaps_of_any_kind = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.booleans()), max_size=12
)  # (room before, length, exact)


@settings(max_examples=sweep.examples(200))
@given(layout=gaps_of_any_kind, start=st.integers(0, 300), length=st.integers(0, 600))
def test_gaps_that_touch_are_joined_wherever_they_lie(layout, start, length):
    gaps, at = [], 0
    for room, count, exact in layout:
        at += room
        gaps.append(Gap(at, count, exact=exact))
        at += count
    end = start + length
    wanted, unknown, offset = bytearray(), [], start
    while offset < min(end, SIZE):
        gap = next((gap for gap in gaps if gap.offset <= offset < gap.end), None)
        if gap is None:
            wanted.append(TEXT[offset])
            offset += 1
        elif gap.exact:
            count = min(gap.end, end) - offset
            unknown.append((len(wanted), count))
            wanted += bytes(count)
            offset += count
        else:
            unknown.append((len(wanted), None))
            offset = gap.end
    with pparse.open(b"{}") as document:
        verdict, sink = through(document.session, Content(gaps=gaps), start, end)
    joined = []
    for first, count in unknown:
        if joined and count is not None and joined[-1][1] is not None and sum(joined[-1]) == first:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((first, count))
    if joined and joined[-1][1] is not None and sum(joined[-1]) == len(wanted):
        del wanted[joined[-1][0] :]  # what is lost at the end is not made up: the content ends there
    assert sink.content == wanted
    assert verdict.size == len(wanted)
    assert list(verdict.gaps) == joined
    assert (verdict.status is Status.COMPLETE) == (not joined)


# -- the log of gaps -------------------------------------------------------------------------------------------------


def test_gaps_next_to_each_other_are_one():
    log = GapLog()
    for offset in (0, 10, 25):
        log.add(offset, 10)
    assert list(log) == [(0, 20), (25, 10)]
    assert (len(log), log.known, log.exact) == (2, 30, True)
    log.add(40, None)
    assert list(log)[-1] == (40, None)
    assert not log.exact
    assert log.known == 30


def test_no_more_than_some_are_kept_apart():
    log = GapLog()
    for number in range(200_000):
        log.add(100 * number, 10)
    assert len(log) <= 1 << 16
    found = list(log)
    assert found[0][0] == 0
    assert found[-1][0] + found[-1][1] == 100 * 199_999 + 10
    # Nothing that is missing is left out.
    ends = [(start, start + count) for start, count in found]
    place = 0
    for number in range(200_000):
        while ends[place][1] < 100 * number + 10:
            place += 1
        assert ends[place][0] <= 100 * number


def test_very_many_gaps_of_unknown_length():
    log = GapLog()
    for number in range(70_000):
        log.add(100 * number, None)
    assert not log.exact
    assert 0 < len(log) <= 1 << 16
    assert next(iter(log)) == (0, None)


# -- verdicts --------------------------------------------------------------------------------------------------------


def test_the_order_of_statuses_from_the_best_to_the_worst():
    order = [Status.COMPLETE, Status.UNSUPPORTED, Status.TRUNCATED, Status.MISSING, Status.DAMAGED]
    for one in order:
        for other in order:
            verdict = Verdict()
            verdict.worsen(one, "one", "one")
            verdict.worsen(other, "other", "other")
            assert verdict.status is max(one, other, key=order.index), (one, other)


def test_the_worst_status_counts_and_the_first_code():
    verdict = Verdict()
    verdict.worsen(Status.TRUNCATED, "truncated", "it ends early")
    verdict.worsen(Status.DAMAGED, "gap", "a gap")
    verdict.worsen(Status.TRUNCATED, "other", "a gap")
    assert (verdict.status, verdict.code) == (Status.DAMAGED, "truncated")
    assert verdict.reason == "it ends early; a gap"
    assert Status.after(None) is Status.COMPLETE
    assert Status.after(GapError(5, None)) is Status.DAMAGED


def test_a_range_that_no_file_has_is_of_unknown_length():
    log = GapLog()
    log.add(5, 1 << 64)  # as a damaged header may say
    assert (log.exact, len(log)) == (False, 1)
