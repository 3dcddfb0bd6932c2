"""A compressed stream behind damage: where pieces are placed, what reads of it give, and what it says of itself."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse.compressed.resync.deflate
from pparse.compressed.env import DecodeEnv
from pparse.compressed.resumed import ResumedData
from pparse.compressed.resync import Failure, Piece, module_of
from pparse.data.base import BytesData, Gap, SuspectRange
from pparse.errors import ClosedError, EndOfDataError, GapError, LimitError, MalformedError, PparseError, SourceError
from pparse.limits import MIB, Limits, MemoryBudget
from pparse.testing.fakes import FailingData, FakeData, GappyData, UnknownSizeData
from tests import sweep
from tests.deflate_samples import content, deflate
from tests.stream_referee import noise, read_all, resumed, sample_of, zeros

HALF = 1000


def broken(out: int = HALF) -> bytes:
    """A zlib stream that gives ``out`` bytes (stored, so that each is there) and then fails for certain."""
    writer = zlib.compressobj(0)
    return writer.compress(bytes(range(250)) * (out // 250)) + writer.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 3000


TRUTH = bytes(range(250)) * (HALF // 250)


@pytest.fixture
def planted(monkeypatch):
    """Have these pieces found behind the damage; returns what makes the data."""

    def make(*pieces, suspect_from=None, **more) -> ResumedData:
        seen = []

        def find(source, failure, env, *, codec, size):
            seen.append((failure, codec, size))
            failure.suspect_from = suspect_from
            yield from pieces

        monkeypatch.setattr(pparse.compressed.resync.deflate, "pieces", find)
        stream = broken()
        data = resumed(stream, "zlib", concatenated=False, **more)
        data.seen = seen
        return data

    return make


def piece(text: bytes, at: int, position=None, *, gaps=(), suspect_ranges=(), **more) -> Piece:
    data = GappyData(text, [(gap.offset, gap.length) for gap in gaps])
    data.gaps = tuple(gaps)
    data.suspect_ranges = tuple(suspect_ranges)
    return Piece(data, at, more.pop("end", at + 10), position=position, **more)


def all_of(data) -> tuple[bytes, list[tuple[int, int]]]:
    return data.read_known(0, 1 << 20)


@pytest.mark.parametrize("codec", ["gzip", "bz2", "xz", "zstd", "lz4"])
def test_a_misspelt_keyword_of_pieces_is_refused(codec):
    source = BytesData(b"").range(0, 0)
    failure, env = Failure(0, 0, 0, MalformedError("damaged")), DecodeEnv(MemoryBudget())
    with pytest.raises(TypeError, match="sise"):
        module_of(codec).pieces(source, failure, env, codec=codec, sise=3)


# -- placing ---------------------------------------------------------------------------------------------------------


def test_nothing_behind_the_damage(planted):
    data = planted()
    assert data.pread(0, 5000) == TRUTH
    assert data.size is None
    assert tuple(data.gaps) == (Gap(HALF, None),)
    assert isinstance(data.error, MalformedError)
    assert len(data.problems) == 1
    with pytest.raises(GapError) as caught:
        data.pread(HALF, 1)
    assert caught.value.length is None
    failure = data.seen[0][0]
    assert (failure.out, failure.start, failure.start_out) == (HALF, 0, 0)


def test_a_piece_of_known_position(planted):
    data = planted(piece(b"abcdef", 2000, HALF + 50))
    data.verify()
    assert tuple(data.gaps) == (Gap(HALF, 50),)
    assert all_of(data) == (TRUTH + bytes(50) + b"abcdef", [(HALF, 50)])
    assert data.size == HALF + 56
    assert data.error is None
    assert data.pread(HALF + 52, 99) == b"cdef"
    assert data.pread(0, 1 << 20) == TRUTH


def test_a_piece_of_unknown_position(planted):
    data = planted(piece(b"abcdef", 2000))
    data.verify()
    (gap,) = data.gaps
    assert (gap.offset, gap.exact) == (HALF, False)
    assert gap.length > 0
    assert data.pread(gap.end, 99) == b"abcdef"
    assert data.size == gap.end + 6


def test_a_piece_that_joins(planted):
    data = planted(piece(b"abc", 1100, joins=True, end=1500), piece(b"def", 1500, joins=True))
    data.verify()
    lost = [gap for gap in data.gaps if not gap.exact]
    assert len(lost) <= 1  # before the first, source bytes were passed over
    assert data.read_known(data.size - 6, 6) == (b"abcdef", [])


def test_two_pieces_of_which_the_last_has_a_position(planted):
    """Two places lack bytes, the sum is known: the last piece is where it belongs, neither gap is exact."""
    data = planted(piece(b"abc", 1500), piece(b"def", 2000, HALF + 103))
    data.verify()
    assert [gap.exact for gap in data.gaps] == [False, False]
    assert data.pread(HALF + 103, 9) == b"def"
    assert sum(gap.length for gap in data.gaps) == 100
    assert data.gaps[0].length > 0
    assert data.gaps[1].length > 0


def test_pieces_that_join_share_an_exact_gap(planted):
    data = planted(piece(b"abc", 1500, end=1600), piece(b"def", 1600, HALF + 103, joins=True))
    data.verify()
    assert tuple(data.gaps) == (Gap(HALF, 100),)
    assert data.pread(HALF + 100, 99) == b"abcdef"


def test_a_piece_begins_before_what_came_out_ends(planted):
    """The last bytes before the failure were garbage, and too many."""
    data = planted(piece(b"abcdef", 1100, HALF - 200), suspect_from=HALF - 300)
    data.verify()
    assert tuple(data.gaps) == ()
    assert all_of(data) == (TRUTH[: HALF - 200] + b"abcdef", [])
    assert data.size == HALF - 194
    assert data.why_suspect(HALF - 200, HALF) is None
    assert data.why_suspect(HALF - 201, HALF - 200) is not None
    assert data.why_suspect(0, HALF - 300) is None


def test_gaps_and_doubts_of_pieces_move_with_them(planted):
    one = piece(b"abcdefgh", 1500, HALF + 100, gaps=[Gap(2, 3)], suspect_ranges=[SuspectRange(6, 8, "why")])
    data = planted(one)
    data.verify()
    assert tuple(data.gaps) == (Gap(HALF, 100), Gap(HALF + 102, 3))
    assert all_of(data)[0][HALF + 100 :] == b"ab\0\0\0fgh"
    assert all_of(data)[1] == [(HALF, 100), (HALF + 102, 3)]
    assert data.why_suspect(HALF + 106, HALF + 107) == "why"
    assert data.why_suspect(HALF + 100, HALF + 106) is None


def test_where_the_last_piece_ends_by_damage_it_goes_on_nowhere(planted):
    data = planted(piece(b"abc", 1500, HALF + 10, error=MalformedError("broken again", offset=1510)))
    data.verify()
    assert data.size is None
    assert tuple(data.gaps) == (Gap(HALF, 10), Gap(HALF + 13, None))
    assert data.error.reason == "broken again"
    assert [problem.at for problem in data.problems] == sorted(problem.at for problem in data.problems)
    assert data.problems[-1].reason == "broken again"


def test_a_declared_size_is_what_there_is(planted):
    data = planted(piece(b"abc", 1500, HALF + 10), size=HALF + 100)
    data.verify()
    assert data.size == HALF + 100
    assert tuple(data.gaps) == (Gap(HALF, 10), Gap(HALF + 13, 87))
    assert len(all_of(data)[0]) == HALF + 100
    assert data.pread(HALF + 100, 1) == b""


def test_pieces_are_looked_for_once(planted):
    data = planted(piece(b"abc", 1500, HALF + 10))
    for _ in range(3):
        data.verify()
        data.pread(0, 10)
    assert len(data.seen) == 1
    assert data.seen[0][1:] == ("zlib", None)


def test_the_end_is_told_once(planted):
    data = planted(piece(b"abc", 1500, HALF + 10))
    told = []
    data.on_end = lambda: told.append(data.size)
    assert not data.finished
    data.pread(0, 10)
    data.verify()
    data.verify()
    assert data.finished
    assert told == [HALF + 13]


# -- reads -----------------------------------------------------------------------------------------------------------


def damaged() -> dict[str, tuple[bytes, str]]:
    text, mixed, plain = content("text", 60_000), content("mixed", 120_000), content("noise", 90_000)
    streams = {}
    known = sample_of([(mixed, deflate(mixed, 6, 3))])
    streams["exact"] = noise(known.stream, known.block_headers()[9], 200)[0], "gzip"
    known = sample_of([(mixed, deflate(mixed, 6, 3))], "zlib")
    streams["inexact"] = noise(known.stream, known.block_headers()[9], 200)[0], "zlib"
    known = sample_of([(plain, deflate(plain, 6, 3)), (text, deflate(text, 6, 3))])
    cut = noise(known.stream, known.block_headers()[7], 200)[0]
    streams["members"] = zeros(cut, known.block_headers()[-9], 300)[0], "gzip"
    streams["cut"] = streams["exact"][0][:-9000], "gzip"
    streams["whole"] = gzip.compress(text), "gzip"
    return streams


DAMAGED = damaged()


class Expected:
    """What reading once through gave."""

    def __init__(self, name: str) -> None:
        data = self.open(name)
        data.verify()
        self.size, self.gaps, self.error = data.size, tuple(data.gaps), str(data.error)
        self.content, unknown = data.read_known(0, 1 << 22)
        self.known = bytearray(b"\1" * len(self.content))
        for start, count in unknown:
            self.known[start : start + count] = bytes(count)

    @staticmethod
    def open(name: str, budget: int = 8 * MIB) -> ResumedData:
        stream, codec = DAMAGED[name]
        return resumed(stream, codec, budget=budget, concatenated=codec == "gzip")

    def pread(self, at: int, length: int) -> bytes | None:
        """None where it is a gap."""
        if at < len(self.content) and not self.known[at] and length:
            return None
        end = min(at + length, len(self.content))
        stop = self.known.find(0, at, end)
        return self.content[at : stop if stop >= 0 else end]


EXPECTED = {name: Expected(name) for name in DAMAGED}


def test_the_samples_are_what_they_are_named():
    exact = {name: all(gap.exact for gap in known.gaps) for name, known in EXPECTED.items()}
    assert exact["exact"]
    assert not exact["inexact"]
    assert len(EXPECTED["members"].gaps) > 2
    assert EXPECTED["cut"].size is None
    assert EXPECTED["whole"].gaps == ()
    assert min(sum(known.known) for known in EXPECTED.values()) > 20_000


reads = st.lists(
    st.tuples(
        st.sampled_from(["pread", "preadinto", "read_known", "available", "verify", "next_gap"]),
        st.integers(0, 160_000),
        st.one_of(st.integers(0, 300), st.integers(0, 200_000)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("name", DAMAGED)
@settings(max_examples=40 if sweep.full else 12)
@given(steps=reads)
def test_reads_in_any_order_agree(name, steps):
    known = EXPECTED[name]
    data = known.open(name)
    for what, at, length in steps:
        wanted = known.pread(at, length)
        if what == "verify":
            data.verify()
            assert (data.size, tuple(data.gaps), str(data.error)) == (known.size, known.gaps, known.error)
        elif what == "read_known":
            got, unknown = data.read_known(at, length)
            assert got == known.content[at : at + length]
            marks = bytearray(b"\1" * len(got))
            for start, count in unknown:
                assert at <= start
                assert start + count <= at + len(got)
                marks[start - at : start - at + count] = bytes(count)
            assert marks == known.known[at : at + len(got)]
        elif what == "available":
            there = at + length <= len(known.content) and 0 not in known.known[at : at + length]
            assert data.available(at, length) == (there or not length)
        elif what == "next_gap":
            data.verify()
            gap = data.next_gap(at)
            assert gap == next((gap for gap in known.gaps if gap.end is None or gap.end > at), None)
        elif not length:
            continue
        elif wanted is None or (at >= len(known.content) and known.size is None and length):
            with pytest.raises(GapError):
                data.pread(at, length)
        elif what == "pread":
            assert data.pread(at, length) == wanted
        else:
            buffer = bytearray(length)
            assert data.preadinto(at, buffer) == len(wanted)
            assert buffer[: len(wanted)] == wanted
    data.close()


@pytest.mark.parametrize("name", DAMAGED)
def test_small_reads_from_front_to_end(name):
    known = EXPECTED[name]
    data = known.open(name, 1 * MIB)
    at, out = 0, []
    while True:
        got, _ = data.read_known(at, 777)
        if not got:
            break
        out.append(got)
        at += len(got)
    assert b"".join(out) == known.content


def test_threads_see_the_same():
    known = EXPECTED["members"]
    data = known.open("members")
    wrong = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(30):
            at = rng.randrange(len(known.content))
            got, _ = data.read_known(at, 3000)
            if got != known.content[at : at + 3000]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_is_whole_before_the_damage_is_read_without_looking_behind():
    text = content("text", 3_000_000)
    stream = gzip.compress(text, 1)
    cut, _, _ = noise(stream, len(stream) - 5000, 500)
    source = BytesData(cut)
    data = resumed(cut, source=source)
    assert data.pread(0, 1000) == text[:1000]
    assert data.available(0, 5000)
    assert not data.finished
    assert source.stats.bytes < len(cut) // 4


# -- sources ---------------------------------------------------------------------------------------------------------


def test_a_source_of_unknown_size_with_damage():
    stream, _ = DAMAGED["exact"]
    source = UnknownSizeData(stream)
    data = ResumedData(source.range(0, 1 << 62), "gzip", budget=MemoryBudget(8 * MIB), concatenated=True)
    data.verify()
    assert data.read_known(0, 1 << 22)[0] == EXPECTED["exact"].content
    assert tuple(data.gaps) == EXPECTED["exact"].gaps


def test_a_range_of_a_source():
    stream, _ = DAMAGED["exact"]
    source = BytesData(b"#" * 1234 + stream + b"\x1f\x8b\x08" * 999)
    data = ResumedData(source.range(1234, 1234 + len(stream)), "gzip", budget=MemoryBudget(8 * MIB), concatenated=True)
    data.verify()
    assert data.read_known(0, 1 << 22)[0] == EXPECTED["exact"].content
    assert tuple(data.gaps) == EXPECTED["exact"].gaps
    plain = EXPECTED["exact"].open("exact")
    plain.verify()
    assert [(one.at, one.end) for one in data.problems] == [(one.at + 1234, one.end + 1234) for one in plain.problems]


def test_what_is_left_of_a_stream_is_what_was_not_decoded_of_its_source():
    truth = content("text", 900_000)
    stream = gzip.compress(truth)
    source = BytesData(b"#" * 1234 + stream + b"\x1f\x8b\x08" * 999)
    data = ResumedData(source.range(1234, 1234 + len(stream)), "gzip", budget=MemoryBudget(8 * MIB))
    assert data.left == len(stream)
    before = data.left
    for offset in (0, 300_000, 600_000):
        assert data.pread(offset, 10) == truth[offset : offset + 10]
        assert 0 < data.left < before
        before = data.left
    data.verify()
    assert data.left == 0


def test_doubts_of_the_source_are_passed_on_unless_a_checksum_clears_them():
    stream = gzip.compress(content("text", 5000))
    for codec, reason in (("deflate", "somebody said so"), ("gzip", None)):
        source = FakeData(stream[10:-8] if codec == "deflate" else stream)
        source.suspect_ranges = (SuspectRange(100, 200, "somebody said so"),)
        data = resumed(stream, codec, source=source)
        assert data.why_suspect(0, 1) == "somebody said so"
        data.verify()
        assert data.why_suspect(0, 1) == reason
        assert data.range_status(0, 5000).verified is (reason is None)


@pytest.mark.parametrize("name", ["exact", "members", "whole"])
def test_errors_of_the_source_pass_through_and_leave_no_trace(name):
    """The n-th read fails, n = 1, 2, 3 …; the next attempt gives what a clean one gives."""
    known = EXPECTED[name]
    stream, codec = DAMAGED[name]
    plain = known.open(name)
    plain.verify()
    failing = 0
    for number in sweep.faults(400, 29):
        source = FailingData(stream, number)
        data = resumed(stream, codec, source=source)
        try:
            data.verify()
        except SourceError:
            failing += 1
        data.verify()
        if source.reads < number:  # it did not come to the read that fails: reading again may
            break
        assert data.read_known(0, 1 << 22)[0] == known.content, number
        assert tuple(data.gaps) == known.gaps, number
        assert repr(data.problems) == repr(plain.problems), number
        assert repr(data.suspect_ranges) == repr(plain.suspect_ranges), number
    assert failing


def test_a_search_that_is_interrupted_can_be_begun_again():
    known = EXPECTED["members"]
    plain = known.open("members")
    plain.verify()

    class Stop(Exception):
        pass

    for number in (1, 2, 5, 20, 60, 200):
        calls = [0]

        def poll(number=number, calls=calls) -> None:
            calls[0] += 1
            if calls[0] == number:
                raise Stop

        data = resumed(DAMAGED["members"][0], poll=poll)
        try:
            data.verify()
        except Stop:
            data.verify()
        assert data.read_known(0, 1 << 22)[0] == known.content
        assert repr(data.problems) == repr(plain.problems)
        assert repr(data.suspect_ranges) == repr(plain.suspect_ranges)


def test_the_limit_of_what_comes_out():
    stream = gzip.compress(bytes(5_000_000))
    data = resumed(stream, limits=Limits(inflated_bytes=1_000_000))
    assert data.pread(999_990, 10) == bytes(10)
    for _ in range(2):
        with pytest.raises(LimitError, match="inflated_bytes"):
            data.verify()
        with pytest.raises(LimitError, match="inflated_bytes"):
            data.pread(1_000_000, 1)


@pytest.mark.parametrize("codec", ["gzip", "zlib", "deflate", "bz2", "xz", "lzma", "zstd", "lz4", "brotli"])
def test_garbage_is_an_error_of_ours(codec):
    rng = random.Random(codec)
    for size in (0, 1, 2, 9, 30, 3000, 100_000):
        stream = rng.randbytes(size)
        try:
            data = resumed(stream, codec, concatenated=codec not in ("deflate", "zlib", "lzma", "brotli"))
            data.verify()
        except LimitError:
            continue  # a window of gigabytes
        except PparseError:
            pytest.fail("only limits are raised; all else is an `error`")
        assert data.error is not None or codec in ("deflate", "brotli", "lzma")


# -- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DAMAGED)
def test_closing_gives_back_the_memory(name):
    stream, codec = DAMAGED[name]
    budget = MemoryBudget(8 * MIB)
    source = BytesData(stream)
    data = ResumedData(source.range(0, len(stream)), codec, budget=budget, concatenated=codec == "gzip")
    data.verify()
    data.read_known(0, 1 << 22)
    assert budget.peak > 0
    data.close()
    data.close()
    assert budget.used == 0
    for call in (lambda: data.pread(0, 1), lambda: data.read_known(0, 1), data.check_unchanged):
        with pytest.raises(ClosedError):
            call()
    assert source.pread(0, 2) == stream[:2]  # the source belongs to whoever opened it


def test_closing_before_anything_was_read():
    stream, _ = DAMAGED["exact"]
    data = resumed(stream)
    data.close()
    with pytest.raises(ClosedError):
        data.pread(0, 1)
    with pytest.raises(ClosedError):
        data.verify()


# -- statements ------------------------------------------------------------------------------------------------------


def test_members_before_the_damage():
    parts = [content("noise", 5000), content("text", 5000), content("floats", 5000)]
    members = [gzip.compress(part) for part in parts]
    data = resumed(b"".join(members))
    data.verify()
    starts = [0, len(members[0]), len(members[0] + members[1])]
    assert data.member_places() == [(start, 5000 * number) for number, start in enumerate(starts)]
    assert data.members_end() == sum(map(len, members))


def test_problems_ascend_and_lie_in_the_source():
    for name, (stream, _) in DAMAGED.items():
        data = EXPECTED[name].open(name)
        data.verify()
        at = 0
        for problem in data.problems:
            assert at <= problem.at <= problem.end <= len(stream)
            at = problem.at
        assert bool(data.problems) == (name != "whole")


def test_a_stream_that_is_cut_is_no_damage():
    text = content("text", 50_000)
    stream = gzip.compress(text)
    for cut in (5, 10, 11, 100, len(stream) // 2, len(stream) - 9, len(stream) - 1):
        data = resumed(stream[:cut])
        data.verify()
        assert isinstance(data.error, EndOfDataError)
        assert data.suspect_ranges == ()
        assert data.size is None
        assert tuple(data.gaps) == (Gap(len(data.read_known(0, 1 << 20)[0]), None),)


def test_stretches_between_gaps_are_never_empty():
    for name in DAMAGED:
        data = EXPECTED[name].open(name)
        data.verify()
        end = 0
        for gap in data.gaps:
            assert gap.offset >= end
            assert gap.length is None or gap.length > 0
            end = gap.end if gap.end is not None else 1 << 62
        assert sum(len(stretch.content) for stretch in read_all(data)) > 0


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
def test_memory_is_bounded_by_the_budget(tmp_path):
    """30 MB of content, two damages; read through, and back and forth."""
    rng = random.Random(1)
    words = [rng.randbytes(rng.randint(3, 12)).hex().encode() for _ in range(5000)]
    writer = zlib.compressobj(1, zlib.DEFLATED, 31)
    texts = [b" ".join(rng.choices(words, k=60_000)) for _ in range(3)]
    parts = [writer.compress(texts[number % 3] + rng.randbytes(200_000)) for number in range(30)]
    stream = bytearray(b"".join([*parts, writer.flush()]))
    for at in (len(stream) // 3, len(stream) // 2):
        stream[at : at + 3000] = rng.randbytes(3000)
    path = tmp_path / "big.gz"
    path.write_bytes(stream)
    script = """
        import json, random, sys
        import numpy, pparse, pparse.compressed.resumed, pparse.compressed.resync.deflate, pparse.kernels.deflate_blocks
        from pparse.data.files import FileData
        from pparse.limits import MemoryBudget
        from pparse.compressed.resumed import ResumedData

        def memory(word):
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

        numpy.zeros(1000).sum()
        before = memory("VmRSS")
        source = FileData(sys.argv[1])
        for budget in sys.argv[2:]:
            stream = source.range(0, source.size)
            data = ResumedData(stream, "gzip", budget=MemoryBudget(budget), concatenated=True)
            at = total = 0
            while True:
                got, unknown = data.read_known(at, 1 << 18)
                if not got:
                    break
                at += len(got)
                total += len(got) - sum(count for _, count in unknown)
            rng = random.Random(2)
            for _ in range(10):
                data.read_known(rng.randrange(at), 1000)
            print(json.dumps({"grown": memory("VmHWM") - before, "known": total, "gaps": len(data.gaps)}))
            data.close()
    """
    budgets = (2, 16)  # from small to large: the peak of one process only rises
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), path, *(f"{budget}MiB" for budget in budgets)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for budget, line in zip(budgets, done.stdout.splitlines(), strict=True):
        result = json.loads(line)
        assert result["known"] > 20_000_000
        # Gaps of known length take tens of bytes each.
        assert result["grown"] <= budget * MIB + 10 * MIB + 100 * result["gaps"], result
