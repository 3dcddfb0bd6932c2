from __future__ import annotations

import bz2
import functools
import gc
import gzip
import itertools
import json
import lzma
import os
import random
import subprocess
import sys
import threading
import weakref
import zlib

import brotli
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.codecs import CHECKPOINT
from pparse.codecs.base import ZSTD
from pparse.compressed.env import DecodeEnv
from pparse.compressed.inflated import InflatedData
from pparse.compressed.kept import Checkpoint, Checkpoints, KeptOutput
from pparse.data.base import Access, BytesData, Gap, IoStats
from pparse.data.files import FileData
from pparse.data.scratch import Scratch
from pparse.data.spliced import SplicedData
from pparse.errors import (
    ClosedError,
    DataChangedError,
    EndOfDataError,
    GapError,
    LimitError,
    MalformedError,
    SourceError,
    UnsupportedError,
)
from pparse.limits import KIB, MIB, Limits, MemoryBudget
from pparse.testing.fakes import FailingData, FakeData, GappyData, ShortData, UnknownSizeData
from tests import sweep, zstd
from tests.rows import rows


def raw_deflate(data):
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def lz4_frame(data):
    stream = cramjam.lz4.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


MAKE = {
    "zlib": zlib.compress,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": raw_deflate,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=1),
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE, preset=1),
    "brotli": lambda data: brotli.compress(data, quality=3),
    "zstd": lambda data: zstd.compress(data, checksum=True),
    "lz4": lz4_frame,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
MAKE = {codec: functools.lru_cache(4)(make) for codec, make in MAKE.items()}  # the same is packed again and again
ALL = list(MAKE)
COPIED = ["zlib", "gzip", "deflate"]
RESTARTED = [codec for codec in ALL if codec not in COPIED]
JOINED = ["gzip", "bz2", "xz", "zstd", "lz4"]
CHECKED = ["zlib", "gzip", "bz2", "xz", "zstd", "lz4"]


def text(size, seed=1):
    """Text that compresses by a factor of about 3."""
    source = random.Random(seed)
    words = [bytes(source.choices(b"abcdefghijklmnop", k=source.randint(2, 9))) for _ in range(3000)]
    return b" ".join(source.choices(words, k=size // 4 + 1))[:size]


LARGE = text(3 * MIB)
SMALL = text(300) + b"hello world " * 20 + random.Random(3).randbytes(100)
FRONT, BACK = b"in front of it", b"behind it"


def inflate(codec, data, *, budget=None, kind=BytesData, **options):
    """Return `InflatedData` of a range in the middle of a source."""
    source = kind(FRONT + data + BACK)
    return InflatedData(
        source.range(len(FRONT), len(FRONT) + len(data)), codec, budget=budget or MemoryBudget(64 * MIB), **options
    )


def served(data):
    """Return how many bytes the source of ``data`` served."""
    return data._source.data.stats.bytes


def read_all(data):
    """Return what can be read from the front."""
    try:
        return data.open().read()
    except GapError:
        return b""


def common(one, two):
    """Return how many bytes are the same from the front."""
    least, most = 0, min(len(one), len(two))
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if one[:middle] == two[:middle] else (least, middle - 1)
    return least


# -- reading ---------------------------------------------------------------------------------------------------------


@rows("codec, known", sweep.part(itertools.product(ALL, (True, False)), 0.3))
def test_reading_from_front_to_back(codec, known):
    data = inflate(codec, MAKE[codec](LARGE), size=len(LARGE) if known else None)
    assert data.access is (Access.CHECKPOINT if codec in COPIED else Access.RESTART)
    assert data.size == (len(LARGE) if known else None)
    assert data.open().read() == LARGE
    assert data.size == len(LARGE)
    assert data.consumed == len(MAKE[codec](LARGE))
    assert (data.error, data.gaps) == (None, ())
    assert data.pread(len(LARGE), 10) == b""
    assert data.pread(len(LARGE) - 3, 10) == LARGE[-3:]
    # Once over the source, but for the blocks that it is read in.
    assert served(data) < data.consumed + 2 * 64 * KIB


@pytest.mark.parametrize(("codec", "known"), sweep.part(itertools.product(ALL, (True, False))))
def test_reads_at_random(codec, known, tmp_path):
    data = inflate(
        codec,
        MAKE[codec](LARGE),
        size=len(LARGE) if known else None,
        scratch=Scratch(tmp_path, 1 << 30),
        budget=MemoryBudget(8 * MIB),
    )
    source = random.Random(codec)
    for _ in range((60 if sweep.full else 25) if codec != "snappy" else 12):
        offset = source.randrange(len(LARGE) + 1000)
        length = source.choice((0, 1, 100, 5000, 300_000))
        assert data.pread(offset, length) == LARGE[offset : offset + length]
        buffer = bytearray(b"#" * 1000)
        got = data.preadinto(offset, buffer)
        assert bytes(buffer) == LARGE[offset : offset + 1000] + b"#" * (1000 - got)
    data.verify()
    assert (data.size, data.error) == (len(LARGE), None)
    assert data.open().read() == LARGE


@pytest.mark.parametrize("codec", ALL)
@settings(max_examples=20)
@given(
    content=st.binary(max_size=3000),
    reads=st.lists(st.tuples(st.integers(0, 3500), st.integers(0, 2000)), max_size=8),
    known=st.booleans(),
)
def test_any_content_any_reads(codec, content, reads, known):
    data = inflate(codec, MAKE[codec](content), size=len(content) if known else None)
    for offset, length in reads:
        assert data.pread(offset, length) == content[offset : offset + length]
    data.verify()
    assert (data.size, data.error, data.gaps) == (len(content), None, ())


@rows("codec", ALL)
def test_a_stream_of_nothing_has_size_0_and_no_gaps(codec):
    for size in (None, 0):
        data = inflate(codec, MAKE[codec](b""), size=size)
        assert data.pread(0, 10) == b""
        data.verify()
        assert (data.size, data.error, data.gaps, data.consumed) == (0, None, (), len(MAKE[codec](b"")))


def test_large_window_brotli():
    content = random.Random(1).randbytes(65536)
    head = 0x11 | 30 << 8 | 65535 << (14 + 3) | 1 << (14 + 19)  # a stored meta-block, behind 14 bits of window
    packed = head.to_bytes(5, "little") + content + b"\x03"
    data = inflate("brotli", packed)
    assert data.pread(50_000, 100) == content[50_000:50_100]
    assert data.pread(100, 100) == content[100:200]
    assert data.open().read() == content


def test_readers_work_on_it():
    data = inflate("xz", MAKE["xz"](SMALL))
    cursor = data.open(5)
    assert cursor.read_exact(10) == SMALL[5:15]
    assert data.range(10, 30).read() == SMALL[10:30]
    assert data.range(10, 1 << 60).read() == SMALL[10:]
    assert cursor.read() == SMALL[15:]
    with pytest.raises(EndOfDataError):
        data.open(len(SMALL) - 2).read_exact(3)
    assert data.locate(3, 4) == [(data, 3, 4)]
    assert data.mapped(0, 10) is None
    assert repr(data) == f"<InflatedData '<inflated>', {len(SMALL)} bytes>"


def test_one_in_the_other():
    inner = MAKE["gzip"](LARGE)
    outer = MAKE["xz"](FRONT + inner)
    budget = MemoryBudget(64 * MIB)
    middle = InflatedData(BytesData(outer).range(0, len(outer)), "xz", budget=budget, name="outer")
    data = InflatedData(middle.range(len(FRONT), 1 << 60), "gzip", budget=budget, name="inner")
    assert data.open().read() == LARGE
    assert (data.size, data.error, middle.size) == (len(LARGE), None, len(FRONT) + len(inner))
    spliced = SplicedData([data.range(0, 1000), data.range(2000, 3000)])
    assert spliced.access is Access.CHECKPOINT
    assert spliced.pread(0, 5000) == LARGE[:1000] + LARGE[2000:3000]
    cut = InflatedData(BytesData(outer[:-5000]).range(0, len(outer) - 5000), "xz", budget=budget, name="outer")
    data = InflatedData(cut.range(len(FRONT), 1 << 60), "gzip", budget=budget, name="inner")
    whole = data.open().read()
    assert LARGE.startswith(whole)
    assert len(whole) > len(LARGE) - 50_000
    assert isinstance(data.error, GapError)
    assert data.error.source == "outer"
    assert data.error.offset == cut.gaps[0].offset


# -- sizes -----------------------------------------------------------------------------------------------------------


@rows("codec", sweep.part(ALL))
def test_available_decodes_no_more_than_asked(codec):
    data = inflate(codec, MAKE[codec](LARGE))
    assert data.available(0, 0)
    for offset, count in ((0, 1), (5, 100), (100_000, 23_456), (50, 100)):
        assert data.available(offset, count)
        assert data.produced <= max(offset + count, data.produced)
    assert data.produced == 123_456
    assert data.pread(123_455, 2) == LARGE[123_455:123_457]
    assert data.available(0, len(LARGE))
    assert not data.available(0, len(LARGE) + 1)
    assert data.size == len(LARGE)
    assert not data.available(len(LARGE), 1)
    known = inflate(codec, MAKE[codec](LARGE), size=len(LARGE))
    assert known.available(0, len(LARGE))
    assert not known.available(1, len(LARGE))
    assert served(known) == 0


def test_available_one_by_one_is_not_slow():
    data = inflate("gzip", MAKE["gzip"](LARGE))
    for count in range(1, 20_000, 3):
        assert data.available(0, count)
    assert data.produced == 19_999 - 19_999 % 3 + 1 or data.produced < 20_000
    assert data.pread(0, 19_000) == LARGE[:19_000]


@rows("codec", ALL)
def test_a_size_is_exact(codec):
    packed = MAKE[codec](SMALL)
    data = inflate(codec, packed, size=len(SMALL) + 5)
    assert data.size == len(SMALL) + 5
    assert data.pread(0, 5000) == SMALL
    assert data.gaps == (Gap(len(SMALL), 5),)
    assert isinstance(data.error, MalformedError)
    assert (data.error.wanted, data.error.got) == (len(SMALL) + 5, len(SMALL))
    with pytest.raises(GapError) as caught:
        data.pread(len(SMALL), 1)
    assert caught.value.length == 5
    data = inflate(codec, packed, size=len(SMALL) - 5)
    assert data.pread(0, 5000) == SMALL[:-5]
    assert (data.size, data.gaps) == (len(SMALL) - 5, ())
    assert isinstance(data.error, MalformedError)
    data = inflate(codec, packed, size=0)
    data.verify()
    assert isinstance(data.error, MalformedError)


def test_with_a_size_the_checksum_is_checked_with_the_last_byte():
    for codec in CHECKED:
        packed = bytearray(MAKE[codec](SMALL))
        packed[-1 if codec in ("zlib", "zstd", "lz4") else -8 if codec == "gzip" else -3] ^= 0x11
        data = inflate(codec, bytes(packed), size=len(SMALL))
        assert data.pread(0, len(SMALL) - 1) == SMALL[:-1]
        assert data.pread(len(SMALL) - 1, 1) == SMALL[-1:]
        assert isinstance(data.error, MalformedError), codec
        assert data.gaps == ()
        cut = inflate(codec, MAKE[codec](SMALL)[:-1], size=len(SMALL))
        assert cut.open().read() == SMALL
        assert isinstance(cut.error, EndOfDataError)
        assert cut.gaps == ()


# -- damage ----------------------------------------------------------------------------------------------------------


@rows("codec", ALL)
@rows("known", [True, False])
def test_every_prefix_gives_a_prefix_of_the_content_and_a_gap_behind_it(codec, known):
    packed = MAKE[codec](SMALL)
    size = len(SMALL) if known else None
    come = []
    for cut in sweep.some(range(len(packed)), 4, ends=24):
        data = inflate(codec, packed[:cut], size=size)
        whole = read_all(data)
        assert SMALL.startswith(whole)
        come.append(len(whole))
        data.verify()
        assert type(data.error) is EndOfDataError
        assert data.error.offset == len(FRONT) + cut
        assert data.error.source == "<bytes>"
        assert data.size == size
        assert data.consumed is None
        if not known or len(whole) < len(SMALL):
            assert data.gaps == (Gap(len(whole), len(SMALL) - len(whole) if known else None),)
            for offset in (len(whole), len(SMALL) - 1 if known else 1 << 50):
                with pytest.raises(GapError):
                    data.pread(offset, 1)
            assert not data.available(0, len(whole) + 1)
        if whole:
            assert data.available(0, len(whole))
            assert data.pread(len(whole) - 1, 10) == whole[-1:]
            assert data.pread(0, 1) == whole[:1]
    assert come == sorted(come)


@rows("codec", ALL)
def test_a_changed_byte_is_noticed_where_there_is_a_checksum(codec):
    packed = MAKE[codec](SMALL)
    for at in sweep.some(range(len(packed)), 6):
        for mask in (0x01, 0xFF):
            bad = bytearray(packed)
            bad[at] ^= mask
            data = inflate(codec, bytes(bad), size=len(SMALL))
            whole = read_all(data)
            if data.error is None and codec in CHECKED:
                assert whole == SMALL
            if data.error is not None:
                assert isinstance(data.error, (MalformedError, EndOfDataError, UnsupportedError))
                assert len(FRONT) <= data.error.offset <= len(FRONT) + len(packed)
            if len(whole) < len(SMALL):
                assert data.gaps == (Gap(len(whole), len(SMALL) - len(whole)),)
                assert data.error is not None
            # Read once more, in other steps, it is the same.
            again = inflate(codec, bytes(bad), size=len(SMALL))
            for offset in range(0, len(whole), 77):
                assert again.pread(offset, 77) == whole[offset : offset + 77]
            for offset in range(0, len(whole), 391):
                assert data.pread(offset, 100) == whole[offset : offset + 100]


@pytest.mark.parametrize("codec", sweep.part(ALL))
def test_damage_in_the_middle_of_a_large_stream(codec, tmp_path):
    """What precedes it is all there, is so again after going back, and the damage comes at the same place."""
    packed = bytearray(MAKE[codec](LARGE))
    middle = len(packed) * 2 // 3
    packed[middle : middle + 300] = random.Random(1).randbytes(300)
    data = inflate(codec, bytes(packed), scratch=Scratch(tmp_path, 1 << 30), budget=MemoryBudget(8 * MIB))
    whole = data.open().read()
    if data.error is None:
        assert codec not in CHECKED
        return
    assert middle <= data.error.offset + 70_000  # the start of a block, for some
    if codec != "snappy":  # which notices late
        assert common(whole, LARGE) > len(LARGE) * 2 // 3 - 150_000
    assert data.gaps == (Gap(len(whole), None),)
    for offset in (0, len(whole) - 100, 1 * MIB, len(whole) // 2, len(whole) - 1):
        assert data.pread(offset, 5000) == whole[offset : offset + 5000]
    with pytest.raises(GapError):
        data.pread(len(whole), 1)
    assert data.open().read() == whole


def test_a_gap_in_the_source_is_damage():
    packed = MAKE["gzip"](LARGE)
    for length in (10, None):

        def gappy(content, length=length):
            return GappyData(content, [(len(FRONT) + 500_000, length)])

        data = inflate("gzip", packed, kind=gappy)
        whole = data.open().read()
        assert LARGE.startswith(whole)
        assert len(whole) > len(LARGE) // 3
        assert isinstance(data.error, GapError)
        assert data.error.offset == len(FRONT) + 500_000
        assert data.gaps == (Gap(len(whole), None),)


def test_a_source_that_ends_before_the_range():
    packed = MAKE["bz2"](SMALL)
    data = InflatedData(BytesData(packed[:-2]).range(0, len(packed)), "bz2", budget=MemoryBudget())
    assert data.open().read() == SMALL
    assert isinstance(data.error, EndOfDataError)
    assert data.error.offset == len(packed) - 2
    data = InflatedData(BytesData(b"abc").range(10, 20), "gzip", budget=MemoryBudget())
    with pytest.raises(GapError):
        data.pread(0, 1)
    assert isinstance(data.error, EndOfDataError)


@pytest.mark.parametrize("codec", ["gzip", "xz", "zstd"])
def test_a_source_that_fails_now_and_then(codec):
    """Every read of the source fails once; the read of ours that met it may be repeated."""
    packed = MAKE[codec](LARGE[: 1 * MIB])
    number = 0
    while True:
        number += 1
        source = FailingData(packed, number)
        data = InflatedData(source.range(0, len(packed)), codec, budget=MemoryBudget(), size=1 * MIB)
        out = b""
        failures = 0
        while len(out) < 1 * MIB:
            try:
                out += data.pread(len(out), 100_000)
            except SourceError:
                failures += 1
        assert out == LARGE[: 1 * MIB]
        try:
            data.verify()
        except SourceError:
            data.verify()
        assert (data.error, data.gaps) == (None, ())
        assert failures <= 1
        if source.reads < number:
            break
    assert number > 3


@pytest.mark.parametrize("codec", ["gzip", "bz2", "xz", "brotli"])
def test_a_source_that_fails_while_damage_is_looked_into(codec):
    packed = bytearray(MAKE[codec](LARGE[: 1 * MIB]))
    middle = len(packed) * 2 // 3
    packed[middle : middle + 400] = b"\xff" * 400
    packed = bytes(packed)
    data = InflatedData(BytesData(packed).range(0, len(packed)), codec, budget=MemoryBudget())
    wanted = read_all(data)
    assert isinstance(data.error, MalformedError)
    step = 1 if sweep.full else 7
    number = sweep.offset % step + 1 - step
    while True:
        number += step
        source = FailingData(packed, number)
        data = InflatedData(source.range(0, len(packed)), codec, budget=MemoryBudget())
        out, failures = b"", 0
        while not data.gaps or len(out) < data.gaps[0].offset:
            try:
                out += data.pread(len(out), 100_000)
            except SourceError:
                failures += 1
            except GapError:
                break
        assert out == wanted
        assert failures <= 1
        if source.reads < number:
            break
    assert number > 10 or codec == "gzip"


@pytest.mark.parametrize("kind", [lambda content: ShortData(content, None, 7), UnknownSizeData])
@pytest.mark.parametrize("codec", ["gzip", "bz2", "zstd", "brotli"])
def test_sources_of_other_kinds(codec, kind):
    data = inflate(codec, MAKE[codec](LARGE[:200_000]), kind=kind)
    assert data.open().read() == LARGE[:200_000]
    assert data.error is None


# -- one after the other ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", JOINED)
def test_members_are_one_stream_if_so_asked(codec):
    one, two = MAKE[codec](LARGE[:300_000]), MAKE[codec](LARGE[300_000:500_000])
    for size in (None, 500_000):
        data = inflate(codec, one + two + one[:0], concatenated=True, size=size)
        assert data.open().read() == LARGE[:500_000]
        assert (data.size, data.error, data.consumed) == (500_000, None, len(one) + len(two))
        assert data.pread(299_999, 2) == LARGE[299_999:300_001]
    for cut in range(1, 12):
        data = inflate(codec, one + two[:cut], concatenated=True)
        assert data.open().read() == LARGE[:300_000]
        assert isinstance(data.error, EndOfDataError)
        assert data.gaps == (Gap(300_000, None),)
    data = inflate(codec, one + two)
    assert data.open().read() == LARGE[:300_000]
    assert isinstance(data.error, MalformedError)
    assert data.error.offset == len(FRONT) + len(one)
    assert (data.size, data.gaps, data.consumed) == (300_000, (), len(one))
    data = inflate(codec, one + two, tail_is_error=False)
    assert data.open().read() == LARGE[:300_000]
    assert (data.error, data.gaps, data.consumed) == (None, (), len(one))


@rows("codec", JOINED)
def test_a_member_that_has_no_room_in_the_size_is_an_error(codec):
    """Even of one byte, where the members before it are all there should be."""
    one, two = MAKE[codec](LARGE[:300_000]), MAKE[codec](b"x")
    data = inflate(codec, one + two, concatenated=True, size=300_000)
    assert data.open().read() == LARGE[:300_000]
    assert isinstance(data.error, MalformedError)
    assert (data.size, data.produced) == (300_000, 300_000)


@rows("codec", ALL)
def test_a_tail_that_is_no_member(codec):
    for more in (b"garbage", b"\xff", b"\x1e\x8b"):
        for concatenated in (True, False) if codec in JOINED else (False,):
            data = inflate(codec, MAKE[codec](SMALL) + more, concatenated=concatenated)
            assert data.open().read() == SMALL
            assert isinstance(data.error, MalformedError)
            assert (data.size, data.gaps) == (len(SMALL), ())
            data = inflate(codec, MAKE[codec](SMALL) + more, concatenated=concatenated, tail_is_error=False)
            assert data.open().read() == SMALL
            assert (data.error, data.size, data.consumed) == (None, len(SMALL), len(MAKE[codec](SMALL)))


@pytest.mark.parametrize("codec", ["gzip", "xz"])
def test_zeros_may_follow_a_member(codec):
    packed = MAKE[codec](SMALL)
    for middle, end in ((4, 0), (0, 4), (100_000, 200_000), (65536 - len(packed), 65536)):
        data = inflate(codec, packed + bytes(middle) + packed + bytes(end), concatenated=True)
        assert data.open().read() == SMALL + SMALL
        assert (data.error, data.consumed) == (None, 2 * len(packed) + middle)
    data = inflate(codec, packed + bytes(8) + b"x", concatenated=True)
    assert data.open().read() == SMALL
    assert isinstance(data.error, MalformedError)


def test_members_across_the_blocks_of_the_source():
    """A member may begin at any byte of the blocks that the source is read in."""
    for front in range(65536 - 12, 65536 + 3):
        first = gzip.compress(b"", mtime=0)
        name = b"n" * (front - len(first) - 1) + b"\0"
        first = first[:3] + b"\x08" + first[4:10] + name + first[10:]
        assert len(first) == front
        data = inflate("gzip", first + MAKE["gzip"](SMALL), concatenated=True)
        assert data.open().read() == SMALL
        assert data.error is None


@pytest.mark.parametrize("codec", JOINED)
def test_many_small_members(codec):
    parts = [b"%d," % number for number in range(2000)]
    content = b"".join(parts)
    data = inflate(codec, b"".join(map(MAKE[codec], parts)), concatenated=True)
    assert data.open().read() == content
    assert data.error is None
    assert served(data) < 4 * data.consumed
    assert data.pread(3000, 100) == content[3000:3100]


def test_skippable_frames_are_passed_over():
    skip = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"
    for codec in ("zstd", "lz4"):
        packed = skip + MAKE[codec](SMALL) + skip + skip + MAKE[codec](SMALL) + skip
        data = inflate(codec, packed, concatenated=True)
        assert data.open().read() == SMALL + SMALL
        assert (data.error, data.consumed) == (None, len(packed))


@pytest.mark.parametrize("codec", JOINED)
def test_going_back_to_the_start_of_a_member(codec):
    parts = [LARGE[at : at + 256 * KIB] for at in range(0, len(LARGE), 256 * KIB)]
    packed = b"".join(map(MAKE[codec], parts)) * 2
    content = LARGE * 2
    data = inflate(codec, packed, concatenated=True)
    assert data.open().read() == content
    before = served(data)
    for offset in (4 * MIB, 3 * MIB + 5):
        assert data.pread(offset, 10) == content[offset : offset + 10]
    assert served(data) - before < len(packed)


# -- going back ------------------------------------------------------------------------------------------------------


@rows("codec", sweep.part(ALL))
def test_small_steps_back_cost_nothing(codec):
    data = inflate(codec, MAKE[codec](LARGE))
    data.pread(1_500_000, 10)
    before = served(data)
    for offset in range(1_500_000, 1_000_000, -7777):
        assert data.pread(offset, 100) == LARGE[offset : offset + 100]
    assert served(data) == before


@pytest.mark.parametrize("codec", sweep.sample(COPIED, 1))
def test_checkpoints_shorten_the_way_back(codec):
    content = LARGE * 4
    packed = MAKE[codec](content)
    data = inflate(codec, packed)
    data.verify()
    before = served(data)
    source = random.Random(1)
    for _ in range(20):
        offset = source.randrange(len(content) - 100)
        assert data.pread(offset, 100) == content[offset : offset + 100]
    # 1 MiB between them, a bit for where they can be made, and a block of the source.
    assert (served(data) - before) / 20 < (1.7 * MIB) * len(packed) / len(content) + 64 * KIB


def test_checkpoints_are_few_and_charged(monkeypatch):
    monkeypatch.setattr("pparse.compressed.kept._SPACING", 256 * KIB)
    content = LARGE * 16
    budget = MemoryBudget(64 * MIB)
    data = inflate("gzip", gzip.compress(content, 1), budget=budget)
    spacings = set()
    for offset in range(0, len(content), 100_000):
        data.pread(offset, 1)
        assert len(data._checkpoints.points) <= 80
        spacings.add(data._checkpoints.spacing)
    assert len(spacings) > 1
    outs = [point.out for point in data._checkpoints.points]
    assert outs == sorted(outs)
    assert len(outs) > 24
    assert max(b - a for a, b in itertools.pairwise(outs)) < 2.5 * data._checkpoints.spacing
    kept = 5 * MIB  # 4 MiB of output, and a fourth for the allocator
    assert len(outs) * CHECKPOINT <= budget.used <= len(outs) * (CHECKPOINT + 1000) + kept + 700 * KIB
    for offset in (0, 5_000_000, 123, 40_000_000):
        assert data.pread(offset, 9) == content[offset : offset + 9]


def test_checkpoints_are_spread_over_what_was_decoded():
    found = Checkpoints(Checkpoint(0, 0, 0), MemoryBudget(64 * MIB))
    for number in range(1, 1000):
        found.add(Checkpoint(number * MIB, number, number * MIB))
    outs = [point.out for point in found.points]
    assert len(outs) <= 80
    assert max(b - a for a, b in itertools.pairwise(outs)) < 2 * found.spacing
    # The last 16 may be nearer to each other: so many are left alone, or were added since.
    assert min(b - a for a, b in itertools.pairwise(outs[:-17])) >= found.spacing > MIB


def test_checkpoints_are_kept_up_to_80_and_thinned_out_by_the_next():
    budget = MemoryBudget(64 * MIB)
    found = Checkpoints(Checkpoint(0, 0, 0), budget)
    for number in range(1, 80):
        found.add(Checkpoint(number * MIB, number, number * MIB))
    assert [point.out for point in found.points] == [number * MIB for number in range(80)]
    assert found.spacing == MIB
    assert not found.wants(80 * MIB - 1)
    found.add(Checkpoint(80 * MIB - 1, 80, 80 * MIB - 1))  # near one that is there
    assert len(found.points) == 80
    assert found.wants(80 * MIB)
    found.add(Checkpoint(80 * MIB, 80, 80 * MIB))
    outs = [point.out for point in found.points]
    assert outs == [*range(0, 72 * MIB, 2 * MIB), *range(72 * MIB, 81 * MIB, MIB)]
    assert found.spacing == 2 * MIB
    for out in (0, 1, 2 * MIB - 1):
        assert found.nearest(out).out == 0
    assert found.nearest(73 * MIB).out == 73 * MIB
    found.close()
    assert [point.out for point in found.points] == [0]


def test_a_checkpoint_that_the_budget_took_is_passed_over():
    budget = MemoryBudget(1 * MIB)
    found = Checkpoints(Checkpoint(0, 0, 0), budget)
    for number in range(1, 6):
        found.add(Checkpoint(number * MIB, number, number * MIB))
    assert found.nearest(4 * MIB).out == 4 * MIB
    assert found.start.out == 0
    assert not found.wants(4 * MIB)
    found.points[4].drop()
    assert found.wants(4 * MIB)
    assert found.nearest(4 * MIB).out == 3 * MIB
    assert found.nearest(5 * MIB).out == 5 * MIB
    with budget.charge(budget.limit, "all"):
        assert found.nearest(5 * MIB) is found.start
        found.add(Checkpoint(2 * MIB, 2, 2 * MIB))
        assert found.points == [found.start]  # there is no room, and it can do without


def test_a_small_step_back_stays_cheap_where_checkpoints_are_far_apart(monkeypatch):
    monkeypatch.setattr("pparse.compressed.kept._SPACING", 256 * KIB)
    monkeypatch.setattr("pparse.compressed.kept._POINTS", 20)
    content = LARGE * 16
    data = inflate("gzip", gzip.compress(content, 1))
    data.verify()
    assert data._checkpoints.spacing >= 4 * MIB
    for offset in range(30_000_000, 40_000_000, 1_000_000):
        data.pread(offset + 1_900_000, 10)
        before = served(data)
        assert data.pread(offset + 600_000, 10) == content[offset + 600_000 : offset + 600_010]
        assert served(data) - before < 1 * MIB * data._source.data.size / len(content)


@pytest.mark.parametrize("codec", sweep.part(RESTARTED))
def test_the_second_way_back_needs_scratch(codec):
    data = inflate(codec, MAKE[codec](LARGE), budget=MemoryBudget(8 * MIB))
    assert data.open().read() == LARGE
    assert data.open().read() == LARGE  # once is allowed
    for _ in range(2):
        with pytest.raises(LimitError, match="scratch=DIR") as caught:
            data.pread(0, 10)
        assert codec in str(caught.value)
    assert data.pread(len(LARGE) - 10, 20) == LARGE[-10:]  # what is at hand, is


@pytest.mark.parametrize("codec", RESTARTED)
def test_with_scratch_any_number_of_ways_back_is_linear(codec, tmp_path):
    packed = MAKE[codec](LARGE)
    scratch = Scratch(tmp_path, 1 << 30)
    data = inflate(codec, packed, scratch=scratch, budget=MemoryBudget(8 * MIB))
    for offset in range(len(LARGE) - 1000, 0, -60_000):
        assert data.pread(offset, 1000) == LARGE[offset : offset + 1000]
    assert served(data) < 2.2 * len(packed) + 10 * 64 * KIB
    assert 0 < scratch.used <= len(LARGE)
    assert data.pread(0, len(LARGE)) == LARGE
    data.close()
    assert scratch.used == 0


def test_decoding_goes_on_behind_what_is_spooled(tmp_path):
    packed = MAKE["zstd"](LARGE)
    scratch = Scratch(tmp_path, 1 << 30)
    data = inflate("zstd", packed, scratch=scratch, budget=MemoryBudget(8 * MIB))
    for offset in (1_500_000, 0, 1_500_000, 10):
        assert data.pread(offset, 10) == LARGE[offset : offset + 10]
    assert 0 < scratch.used < 200_000  # as far as was read
    before = served(data)
    assert data.pread(2_000_000, 10) == LARGE[2_000_000:2_000_010]
    assert 2_000_000 <= scratch.used < 2_200_000
    assert served(data) - before < len(packed)
    assert data.open().read() == LARGE
    assert scratch.used == len(LARGE)


def test_an_interrupt_leaves_it_sound(tmp_path):
    class Interrupted(FakeData):
        left = -1

        def _pread(self, offset, length):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super()._pread(offset, length)

    for number, codec in enumerate(("gzip", "zstd", "bz2")):
        packed = MAKE[codec](LARGE)
        for left in sweep.values((1, 2, 3), number, 1):
            source = Interrupted(packed)
            scratch = Scratch(tmp_path, 1 << 30)
            data = InflatedData(source.range(0, len(packed)), codec, budget=MemoryBudget(8 * MIB), scratch=scratch)
            for offset in (1_500_000, 0, 1_500_000, 10):
                assert data.pread(offset, 10) == LARGE[offset : offset + 10]
            assert (scratch.used > 0) == (codec != "gzip")
            source.left = left
            with pytest.raises(KeyboardInterrupt):
                data.pread(2_500_000, 10)
            for offset in (2_600_000, 100_000, 1_400_000, 2_000_000):
                assert data.pread(offset, 10) == LARGE[offset : offset + 10]
            assert data.open().read() == LARGE
            data.close()


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bz2"])
def test_an_interrupt_within_the_decoder_leaves_it_sound(codec, tmp_path, monkeypatch):
    data = inflate(codec, MAKE[codec](LARGE), scratch=Scratch(tmp_path, 1 << 30))
    assert data.pread(1_000_000, 10) == LARGE[1_000_000:1_000_010]
    decoder = type(data._run.decoder)
    decompress = decoder.decompress

    def interrupted(self, piece, room):
        decompress(self, piece, room)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decoder, "decompress", interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.pread(1_500_000, 10)
    for offset in (1_500_000, 1_000_000, 2_000_000):
        assert data.pread(offset, 10) == LARGE[offset : offset + 10]
    assert data.open().read() == LARGE


def test_scratch_that_is_too_small(tmp_path):
    scratch = Scratch(tmp_path, 1 * MIB)
    data = inflate("zstd", MAKE["zstd"](LARGE), scratch=scratch, budget=MemoryBudget(8 * MIB))
    assert data.open().read() == LARGE
    assert data.open().read() == LARGE
    assert data.pread(100, 10) == LARGE[100:110]
    with pytest.raises(LimitError, match="scratch_bytes="):
        data.pread(2_000_000, 10)
    assert scratch.used == 0
    assert data.pread(100, 10) == LARGE[100:110]
    data.close()
    assert scratch.used == 0


@pytest.mark.parametrize("codec", sweep.part(RESTARTED))
def test_small_outputs_of_known_size_are_kept(codec):
    budget = MemoryBudget(16 * MIB)
    data = inflate(codec, MAKE[codec](LARGE), size=len(LARGE), budget=budget)
    assert data.open().read() == LARGE
    assert data.pread(0, 10) == LARGE[:10]
    data.pread(len(LARGE) - 1, 1)
    before = served(data)
    for offset in range(len(LARGE) - 1000, 0, -60_000):
        assert data.pread(offset, 1000) == LARGE[offset : offset + 1000]
    assert data.open().read() == LARGE
    assert served(data) == before
    assert len(LARGE) <= budget.used < len(LARGE) + 2 * MIB
    # Somebody else needs the room.
    charge = budget.charge(15 * MIB, "something else")
    assert budget.used <= 16 * MIB
    charge.release()
    for offset in (3_000_000, 5, 2_000_000, 7):
        assert data.pread(offset, 10) == LARGE[offset : offset + 10]


def test_output_that_comes_a_second_time_replaces_what_was_kept_of_the_first():
    kept = KeptOutput(DecodeEnv(MemoryBudget(16 * MIB)))
    assert kept.prepare_restart("snappy", 8, 4, 0, 4)
    for _ in range(2):
        kept.begin(0)
        kept.add(b"abcd", 0)
        assert (kept.read(0, 8), kept.read(4, 4)) == (b"abcd", b"")


def test_output_whose_beginning_the_budget_took_is_not_all():
    budget = MemoryBudget(16 * MIB)
    kept = KeptOutput(DecodeEnv(budget))
    assert kept.prepare_restart("snappy", 8, 4, 0, 4)
    kept.add(b"abcd", 0)
    assert kept.is_all
    budget.charge(budget.limit, "something else").release()
    kept.add(b"efgh", 4)
    assert not kept.is_all
    assert (kept.read(0, 8), kept.read(4, 8)) == (b"", b"efgh")


# -- budget and limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [*COPIED, "snappy"])
def test_the_least_budget_is_kept(codec, tmp_path):
    budget = MemoryBudget(1 * MIB)
    content = LARGE[: 1 * MIB] if codec == "snappy" else LARGE
    data = inflate(codec, MAKE[codec](content), budget=budget, scratch=Scratch(tmp_path, 1 << 30))
    source = random.Random(1)
    for _ in range(30):
        offset = source.randrange(len(content))
        assert data.pread(offset, 1000) == content[offset : offset + 1000]
    assert budget.peak <= 1 * MIB
    assert data.open().read() == content
    data.close()
    assert budget.used == 0


def test_everything_kept_can_be_had_back(tmp_path):
    for codec in dict.fromkeys((*sweep.part(ALL), "xz")):  # which charges for its window
        budget = MemoryBudget(16 * MIB)
        data = inflate(codec, MAKE[codec](LARGE), budget=budget, scratch=Scratch(tmp_path, 1 << 30))
        for offset in (2_000_000, 1_000_000, 2_500_000):
            data.pread(offset, 10)
            if data._kept.spool is None:  # then it is at work
                budget.charge(16 * MIB, "everything").release()
                assert budget.used == 0
            assert data.pread(offset + 5, 10) == LARGE[offset + 5 : offset + 15]
        assert data.pread(100, 10) == LARGE[100:110]


def test_a_window_above_the_budget_names_it():
    content = text(200_000)
    packed = lzma.compress(content, preset=9)
    budget = MemoryBudget(32 * MIB)
    data = inflate("xz", packed, budget=budget)
    for _ in range(2):
        with pytest.raises(LimitError, match="budget="):
            data.pread(0, 10)
    assert (data.error, data.gaps) == (None, ())
    known = inflate("xz", packed, budget=budget, size=len(content))
    assert known.open().read() == content
    larger = inflate("xz", packed, budget=MemoryBudget(128 * MIB))
    assert larger.open().read() == content


def test_many_at_once_share_a_budget():
    """Decoders at rest make room for the one at work."""
    budget = MemoryBudget(8 * MIB)
    contents = [text(400_000, seed) for seed in range(6)]
    source = [inflate("bz2", bz2.compress(content, 9), budget=budget) for content in contents]
    for data, content in zip(source, contents, strict=True):
        assert data.pread(1000, 100) == content[1000:1100]
    for data, content in zip(source, contents, strict=True):
        assert data.pread(300_000, 100) == content[300_000:300_100]
    assert budget.peak <= 8 * MIB


def test_the_limit_of_a_stream_is_named():
    limits = Limits(inflated_bytes=100_000)
    for size in (100_000, 99_999):
        data = inflate("gzip", MAKE["gzip"](LARGE[:size]), limits=limits)
        assert data.open().read() == LARGE[:size]
        assert data.error is None
    for size in (None, 100_001):
        data = inflate("gzip", MAKE["gzip"](LARGE[:100_001]), limits=limits, size=size)
        for _ in range(2):
            with pytest.raises(LimitError, match="inflated_bytes=100000") as caught:
                data.pread(100_000, 1)
            assert caught.value.option == "--limit inflated_bytes=200000"
            assert data.pread(0, 100_000) == LARGE[:100_000]
            with pytest.raises(LimitError):
                data.verify()
        assert data.available(0, 100_000)
        if size is None:
            with pytest.raises(LimitError):
                data.available(0, 100_001)


def test_unknown_codecs_and_missing_libraries(monkeypatch):
    with pytest.raises(UnsupportedError, match="no such codec"):
        inflate("rar", b"")
    monkeypatch.setitem(sys.modules, ZSTD, None)
    with pytest.raises(UnsupportedError, match=f"this needs {ZSTD} "):
        inflate("zstd", b"")


# -- threads, ends, leaks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_threads_that_share_a_stream_read_what_is_there(codec, tmp_path):
    budget = MemoryBudget(4 * MIB)
    data = inflate(codec, MAKE[codec](LARGE), scratch=Scratch(tmp_path, 1 << 30), budget=budget)
    wrong = []

    def read(seed):
        source = random.Random(seed)
        for _ in range(25):
            offset = source.randrange(len(LARGE))
            length = source.choice((1, 1000, 200_000))
            if data.pread(offset, length) != LARGE[offset : offset + length]:
                wrong.append(offset)

    def disturb():
        for _ in range(300):
            try:
                budget.charge(1 * MIB, "a passer-by").release()
            except LimitError:
                pass

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)] + [threading.Thread(target=disturb)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    data.close()
    assert budget.used == 0


@pytest.mark.parametrize("codec", ALL)
def test_closing_gives_everything_back(codec, tmp_path):
    budget = MemoryBudget(64 * MIB)
    scratch = Scratch(tmp_path, 1 << 30)
    data = inflate(codec, MAKE[codec](LARGE), budget=budget, scratch=scratch)
    for offset in (2_500_000, 1000, 2_500_000, 2000):
        data.pread(offset, 10)
    assert budget.used or scratch.used
    data.close()
    data.close()
    assert (budget.used, scratch.used) == (0, 0)
    for call in (lambda: data.pread(0, 1), data.verify, lambda: data.available(0, 1), data.check_unchanged):
        with pytest.raises(ClosedError):
            call()
    assert not data._source.data.closed


@pytest.mark.parametrize("codec", sweep.part(ALL))
def test_nothing_is_held_in_a_circle(codec, tmp_path):
    budget = MemoryBudget(64 * MIB)
    scratch = Scratch(tmp_path, 1 << 30)
    gc.collect()
    gc.disable()
    try:
        packed = MAKE[codec](LARGE)
        for cut, gaps in ((0, []), (2000, []), (0, [(len(packed) - 2000, 5)])):
            source = GappyData(packed[: len(packed) - cut], gaps)
            gone = weakref.ref(source)
            data = InflatedData(source.range(0, len(packed)), codec, budget=budget, scratch=scratch)
            for offset in (2_500_000, 1000, 2_500_000, 2000):
                data.pread(offset, 10)
            data.verify()
            del source, data
            assert gone() is None
            assert (budget.used, scratch.used) == (0, 0)
    finally:
        gc.enable()


def test_a_source_that_changed_is_noticed(tmp_path):
    path = tmp_path / "data.gz"
    path.write_bytes(MAKE["gzip"](LARGE))
    with FileData(path) as source:
        data = InflatedData(source.range(0, source.size), "gzip", budget=MemoryBudget())
        assert data.pread(0, 10) == LARGE[:10]
        data.check_unchanged()
        path.write_bytes(MAKE["gzip"](LARGE) + b"x")
        with pytest.raises(DataChangedError):
            data.check_unchanged()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_stream_that_ends_elsewhere_the_second_time(codec):
    """A source that cannot notice by itself that it changed."""
    source = FakeData(MAKE[codec](LARGE))
    data = InflatedData(source.range(0, 1 << 40), codec, budget=MemoryBudget(8 * MIB))
    assert data.open().read() == LARGE
    source.content = MAKE[codec](LARGE[: 1 * MIB])
    source.size = len(source.content)
    with pytest.raises(DataChangedError):
        data.pread(0, len(LARGE))


def test_what_it_serves_is_counted():
    stats = IoStats(log=True)
    data = inflate("gzip", MAKE["gzip"](SMALL), stats=stats, name="member")
    data.pread(5, 10)
    assert stats.log == [("member", 5, 10)]
    assert (stats.reads, stats.bytes) == (1, 10)


# -- memory ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import json, random, sys
import bz2, lzma, zlib, brotli, cramjam, tempfile
from pparse.limits import MemoryBudget
from pparse.codecs.base import ZSTD, package
from pparse.data.files import FileData
from pparse.compressed.inflated import InflatedData
from pparse.data.scratch import Scratch
import pparse.codecs.brotli, pparse.codecs.lz4, pparse.codecs.snappy, pparse.codecs.standard, pparse.codecs.zstd

package(ZSTD)

def memory(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

codec, path, folder, limit, unit = sys.argv[1:]
before = memory("VmRSS")
budget = MemoryBudget(limit)
unit = bytes(range(256)) * 16
right = True
with FileData(path) as source:
    data = InflatedData(source.range(0, source.size), codec, budget=budget, scratch=Scratch(folder, 1 << 40))
    cursor, total = data.open(), 0
    while chunk := cursor.read(1 << 16):
        total += len(chunk)
    for _ in range(8):
        offset = random.randrange(total // 4096) * 4096
        right = right and data.pread(offset, 4096) == unit
print(json.dumps({"grown": memory("VmHWM") - before, "total": total, "right": right, "peak": budget.peak}))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
@pytest.mark.parametrize(("codec", "limit"), [("gzip", "1MiB"), ("gzip", "64MiB"), ("zstd", "16MiB"), ("xz", "16MiB")])
def test_memory_is_bounded_whatever_the_size(codec, limit, tmp_path):
    size = (96 if sweep.full else 64) * MIB
    block = bytes(range(256)) * 4096
    writer = {
        "gzip": lambda: zlib.compressobj(1, zlib.DEFLATED, 31),
        "zstd": zstd.compressor,
        "xz": lambda: lzma.LZMACompressor(preset=0),
    }[codec]()
    path = tmp_path / "packed"
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(writer.compress(block))
        file.write(writer.flush())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [codec, path, scratch, limit, "4096"]
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *map(os.fspath, words)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["total"], result["right"]) == (size, True)
    assert result["peak"] <= int(limit.removesuffix("MiB")) * MIB
    assert result["grown"] <= result["peak"] + 6 * MIB
    assert list(scratch.iterdir()) == []
