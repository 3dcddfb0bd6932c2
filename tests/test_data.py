from __future__ import annotations

import errno
import io
import os
import socket
import stat
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from pparse.data.base import Access, BytesData, Data, Gap, GapTable, IoStats, SuspectRange, blocks, copy_into
from pparse.data.file_object import StreamData
from pparse.data.files import DescriptorPool, FileData, FileIdentity
from pparse.data.window import windows
from pparse.errors import ClosedError, DataChangedError, EndOfDataError, GapError, MalformedError, SourceError
from pparse.testing.fakes import FailingData, GappyData, ShortData, UnknownSizeData
from tests import sweep
from tests.rows import rows

CONTENT = bytes(range(256)) * 40
HUGE = 1 << 62

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")


class Trickle(io.RawIOBase):
    """A seekable file object that serves at most seven bytes a read."""

    def __init__(self, content: bytes) -> None:
        self.inner = io.BytesIO(content)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def read(self, count: int = -1) -> bytes:
        return self.inner.read(min(count, 7) if count >= 0 else 7)


@pytest.fixture(params=["bytes", "bytearray", "array", "file", "stream", "trickle"])
def data(request, tmp_path):
    match request.param:
        case "bytes":
            made = BytesData(CONTENT)
        case "bytearray":
            made = BytesData(bytearray(CONTENT))
        case "array":
            made = BytesData(np.frombuffer(CONTENT, "<u4").reshape(2, -1).data)
        case "file":
            path = tmp_path / "content.bin"
            path.write_bytes(CONTENT)
            made = FileData(path)
        case "stream":
            made = StreamData(io.BytesIO(CONTENT))
        case "trickle":
            made = StreamData(Trickle(CONTENT))
    with made:
        yield made


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def write_with_time(path, content: bytes, seconds: int) -> None:
    """Write, with a modification time of its own: two writes within a tick of the clock would look the same."""
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))


# -- every kind ------------------------------------------------------------------------------------------------------


@rows(
    ("offset", "length"),
    [
        (0, 0),
        (0, 1),
        (0, 10),
        (5, 300),
        (0, len(CONTENT)),
        (len(CONTENT) - 3, 3),
        (len(CONTENT) - 3, 10),
        (len(CONTENT), 0),
        (len(CONTENT), 1),
        (len(CONTENT) + 1, 5),
        (HUGE, 5),
        (1 << 70, 5),
        (3, HUGE),
        (0, 1 << 70),
        (HUGE, HUGE),
    ],
)
def test_pread_and_preadinto_give_what_there_is_of_a_range(data, offset, length):
    expected = CONTENT[offset : offset + length]
    assert data.pread(offset, length) == expected
    buffer = bytearray(b"\xaa" * (min(length, len(CONTENT)) + 2))
    view = memoryview(buffer)[: min(length, len(CONTENT))]
    assert data.preadinto(offset, view) == len(expected[: len(view)])
    assert buffer[: len(expected)] == expected
    assert set(buffer[len(expected) :]) <= {0xAA}


def test_size_name_and_repr(data):
    assert data.size == len(CONTENT)
    assert data.access is Access.FREE
    assert data.gaps == ()
    assert f"{len(CONTENT)} bytes" in repr(data)
    assert data.name in repr(data)
    data.close()
    assert "closed" in repr(data)


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (-5, 10)])
def test_negative_offsets_and_lengths_are_refused(data, offset, length):
    with pytest.raises(ValueError, match="negative"):
        data.pread(offset, length)


def test_negative_offset_into(data):
    with pytest.raises(ValueError, match="negative"):
        data.preadinto(-1, bytearray(4))


def test_preadinto_takes_any_buffer(data):
    for buffer in (bytearray(8), memoryview(bytearray(8)), np.zeros(2, "u4").data, np.zeros((2, 2), "u2").data):
        assert data.preadinto(3, buffer) == 8
        assert bytes(memoryview(buffer).cast("B")) == CONTENT[3:11]


def test_preadinto_an_empty_buffer_reads_nothing(data):
    for buffer in (bytearray(), np.empty(0, "u1").data, np.empty((0, 3), "f4").data):
        assert data.preadinto(3, buffer) == 0


def test_preadinto_read_only_buffer(data):
    with pytest.raises((TypeError, BufferError, ValueError)):
        data.preadinto(0, bytes(8))


def test_huge_lengths_allocate_nothing(data):
    tracemalloc.start()
    try:
        for length in (HUGE, 1 << 70):
            assert data.pread(4, length) == CONTENT[4:]
            assert data.pread(len(CONTENT), length) == b""
            assert not data.available(0, length)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_read_exact_gives_all_bytes_or_says_how_many_there_are(data):
    assert data.read_exact(10, 20) == CONTENT[10:30]
    assert data.read_exact(len(CONTENT), 0) == b""
    with pytest.raises(EndOfDataError) as caught:
        data.read_exact(len(CONTENT) - 4, HUGE)
    error = caught.value
    assert (error.offset, error.wanted, error.got, error.source) == (len(CONTENT) - 4, HUGE, 4, data.name)


def test_available_answers_without_reading(data):
    size = len(CONTENT)
    for offset, count in [(0, 0), (0, size), (size, 0), (size - 1, 1), (5, size - 5)]:
        assert data.available(offset, count), (offset, count)
    for offset, count in [(0, size + 1), (size, 1), (size + 1, 1), (1, size), (HUGE, HUGE), (0, HUGE)]:
        assert not data.available(offset, count), (offset, count)
    assert data.stats.reads == 0


def test_all_calls_on_closed_data_raise_closed_error(data):
    data.close()
    data.close()
    for act in (
        lambda: data.pread(0, 1),
        lambda: data.pread(0, 0),
        lambda: data.preadinto(0, bytearray(1)),
        lambda: data.read_exact(0, 1),
        lambda: data.open().read(1),
        lambda: data.range(0, 4).read(1),
        data.check_unchanged,
    ):
        with pytest.raises(ClosedError) as caught:
            act()
        assert caught.value.source == data.name


def test_context_manager_closes():
    with BytesData(b"abc") as data:
        assert not data.closed
    assert data.closed


def test_threads_read_the_right_bytes(data):
    errors = []

    def work(seed: int) -> None:
        try:
            for number in range(60):
                offset = (seed * 7919 + number * 104729) % len(CONTENT)
                if data.pread(offset, 500) != CONTENT[offset : offset + 500]:
                    errors.append(("pread", offset))
                buffer = bytearray(100)
                got = data.preadinto(offset, buffer)
                if buffer[:got] != CONTENT[offset : offset + 100]:
                    errors.append(("preadinto", offset))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_stats_count_what_was_served(data):
    data.pread(0, 10)
    data.pread(len(CONTENT) - 4, 100)
    data.preadinto(5, bytearray(6))
    assert (data.stats.reads, data.stats.bytes) == (3, 20)
    data.pread(len(CONTENT), 10)  # nothing there: nothing read
    data.pread(3, 0)
    assert (data.stats.reads, data.stats.bytes) == (3, 20)
    assert data.stats.log is None


def test_copy_into_copies_in_steps_and_raises_at_the_end(data):
    out = io.BytesIO()
    copy_into(data, 3, 1000, out.write, step=64)
    assert out.getvalue() == CONTENT[3:1003]
    assert data.stats.reads == 16
    with pytest.raises(EndOfDataError):
        copy_into(data, len(CONTENT) - 10, 11, out.write)


def test_locate_is_itself(data):
    assert data.locate(3, 5) == [(data, 3, 5)]


def test_range_and_cursor(data):
    assert data.open(5).read(3) == CONTENT[5:8]
    assert data.range(5, 8).read() == CONTENT[5:8]


# -- statistics ------------------------------------------------------------------------------------------------------


def test_stats_are_shared_and_logged():
    stats = IoStats(log=True)
    one, two = BytesData(CONTENT, "one", stats), BytesData(CONTENT, "two", stats)
    one.pread(0, 4)
    one.pread(4, 4)
    two.pread(8, 4)
    one.pread(8, 1)
    one.pread(20, 1)
    assert stats.log == [("one", 0, 8), ("two", 8, 4), ("one", 8, 1), ("one", 20, 1)]
    assert (stats.reads, stats.bytes, stats.dropped) == (5, 14, 0)


def test_stats_log_is_bounded():
    stats = IoStats(log=True)
    for number in range(IoStats.MAX_LOG + 5):
        stats.count("f", number * 10, 1)
    assert len(stats.log) == IoStats.MAX_LOG
    assert stats.dropped == 5
    stats.count("f", (IoStats.MAX_LOG - 1) * 10 + 1, 1)  # adjoins the last kept one
    assert (stats.dropped, stats.log[-1][2]) == (5, 2)
    assert stats.reads == stats.bytes == IoStats.MAX_LOG + 6


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_bytes_are_not_copied():
    content = bytearray(b"abcdef")
    data = BytesData(content)
    content[0] = ord("X")
    assert data.pread(0, 2) == b"Xb"


@pytest.mark.parametrize("length", [0, 3])
def test_bytes_mapped_after_close(length):
    data = BytesData(b"abcdef")
    data.close()
    with pytest.raises(ClosedError):
        data.mapped(0, length)


def test_bytes_are_mapped_readonly_as_far_as_they_go():
    data = BytesData(bytearray(b"abcdef"))
    view = data.mapped(1, 3)
    assert bytes(view) == b"bcd"
    assert view.readonly
    assert data.mapped(4, 3) is None
    assert data.mapped(9, 1) is None
    assert bytes(data.mapped(6, 0)) == b""
    data.close()
    assert bytes(view) == b"bcd"


@pytest.mark.parametrize("content", [b"", bytearray(), np.empty(0, "u1").data, np.empty((0, 2), "f4").data])
def test_empty_bytes_have_size_0_and_read_as_nothing(content):
    data = BytesData(content)
    assert data.size == 0
    assert data.pread(0, 5) == b""
    assert data.open().read() == b""


# -- streams ---------------------------------------------------------------------------------------------------------


def test_stream_is_not_closed_with_the_data():
    stream = io.BytesIO(b"abc")
    StreamData(stream).close()
    assert not stream.closed


def test_a_stream_is_named_after_its_file_or_as_asked():
    named = io.BytesIO(b"")
    named.name = "hello.bin"
    assert StreamData(named).name == "hello.bin"
    assert StreamData(named, "mine").name == "mine"
    assert StreamData(io.BytesIO(b"")).name == "<stream>"


def test_stream_of_text():
    with pytest.raises(SourceError, match=r"^<text>: the file object returns text; open it in binary mode$"):
        StreamData(io.StringIO("abc"), "<text>")


def test_stream_that_cannot_be_sought():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb"), pytest.raises(SourceError, match="cannot seek"):
        StreamData(stream, "pipe")


def test_stream_closed_by_its_owner():
    stream = io.BytesIO(b"abc")
    data = StreamData(stream)
    stream.close()
    with pytest.raises(SourceError, match="cannot read"):
        data.pread(0, 1)
    with pytest.raises(SourceError):
        StreamData(stream)


def test_stream_that_shrank():
    stream = io.BytesIO(CONTENT)
    data = StreamData(stream)
    stream.truncate(100)
    assert data.pread(0, 100) == CONTENT[:100]
    with pytest.raises(SourceError, match="fewer bytes"):
        data.pread(0, 101)


def test_stream_that_fails():
    class Failing(io.BytesIO):
        def read(self, count=-1):
            if count:
                raise OSError(errno.EIO, "broken disk")
            return b""

    data = StreamData(Failing(b"abc"), "bad")
    with pytest.raises(SourceError, match="broken disk") as caught:
        data.pread(1, 1)
    assert (caught.value.source, caught.value.offset) == ("bad", 1)


def test_stream_whose_seek_returns_nothing():
    class Quiet(io.BytesIO):
        def seek(self, *args):
            super().seek(*args)

    assert StreamData(Quiet(b"abc")).pread(1, 5) == b"bc"


# -- unknown size, gaps, faults --------------------------------------------------------------------------------------


def test_an_unknown_size_is_learned_by_reading_to_the_end():
    data = UnknownSizeData(CONTENT)
    assert data.size is None
    assert "unknown size" in repr(data)
    assert data.available(0, len(CONTENT))
    assert data.available(10, 0)
    assert data.size is None  # no more was produced than was asked about
    assert not data.available(0, len(CONTENT) + 1)
    assert data.size == len(CONTENT)
    assert data.pread(5, HUGE) == CONTENT[5:]


def test_available_produces_no_more_than_asked():
    data = UnknownSizeData(bytes(1 << 20))
    assert data.available(100, 300_000)
    assert max(offset + length for offset, length in data.asked) <= 300_100
    assert max(length for _, length in data.asked) <= 1 << 16


def test_read_exact_of_unknown_size():
    data = UnknownSizeData(b"abcdef")
    assert data.read_exact(2, 4) == b"cdef"
    with pytest.raises(EndOfDataError) as caught:
        data.read_exact(4, HUGE)
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (4, HUGE, 2)


def test_read_stops_before_a_gap_and_fails_in_it():
    data = GappyData(CONTENT, [(100, 50), (200, 10)])
    assert data.pread(0, 1000) == CONTENT[:100]
    assert data.pread(0, 50) == CONTENT[:50]
    assert data.pread(150, 1000) == CONTENT[150:200]
    assert data.pread(210, 10) == CONTENT[210:220]
    buffer = bytearray(120)
    assert data.preadinto(90, buffer) == 10
    for offset, left in ((100, 50), (149, 1), (200, 10)):
        with pytest.raises(GapError) as caught:
            data.pread(offset, 5)
        assert (caught.value.offset, caught.value.length) == (offset, left)
        with pytest.raises(GapError):
            data.preadinto(offset, bytearray(5))


def test_gap_of_unknown_length():
    data = GappyData(CONTENT, [(100, None)])
    assert data.pread(90, 1000) == CONTENT[90:100]
    for offset in (100, 5000, HUGE):
        with pytest.raises(GapError) as caught:
            data.pread(offset, 1)
        assert (caught.value.offset, caught.value.length) == (offset, None)


def test_read_exact_into_a_gap_is_not_the_end_of_the_data():
    data = GappyData(CONTENT, [(100, 50)])
    assert data.read_exact(90, 10) == CONTENT[90:100]
    with pytest.raises(GapError) as caught:
        data.read_exact(90, 11)
    assert (caught.value.offset, caught.value.length) == (100, 50)
    with pytest.raises(EndOfDataError):
        data.read_exact(len(CONTENT) - 1, 2)


@pytest.mark.parametrize("unknown_size", [False, True])
def test_available_looks_for_gaps(unknown_size):
    data = GappyData(CONTENT, [(100, 50), (300, None)])
    if unknown_size:
        data.size = None
    for offset, count, there in [
        (0, 100, True),
        (0, 101, False),
        (99, 1, True),
        (99, 2, False),
        (100, 1, False),
        (149, 1, False),
        (150, 150, True),
        (150, 151, False),
        (160, 0, True),
        (301, 1, False),
    ]:
        assert data.available(offset, count) is there, (offset, count)


def test_gap_is_a_value():
    assert Gap(1, 2) == Gap(1, 2)
    assert Gap(1, 2) != Gap(1, None)
    assert hash(Gap(1, 2)) == hash(Gap(1, 2))
    assert repr(Gap(1, None)) == "Gap(1, None)"
    assert Gap(1, 2) != (1, 2)


def test_failing_read_is_an_error_once():
    data = FailingData(CONTENT, fail_at=2)
    assert data.pread(0, 4) == CONTENT[:4]
    with pytest.raises(SourceError) as caught:
        data.pread(4, 4)
    assert (caught.value.errno, caught.value.offset) == (5, 4)
    assert data.pread(4, 4) == CONTENT[4:8]
    assert data.stats.bytes == 8  # the failed read served nothing


def test_a_source_that_fails_forever_raises_every_time():
    data = FailingData(CONTENT, fail_at=1, forever=True)
    for _ in range(3):
        with pytest.raises(SourceError):
            data.preadinto(0, bytearray(3))


def test_short_read_is_told_with_numbers():
    data = ShortData(CONTENT, short_at=1, most=3)
    with pytest.raises(EndOfDataError) as caught:
        data.read_exact(5, 10)
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (5, 10, 3)


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.bin"
    write_with_time(path, CONTENT, 1_000_000_000)
    return path


def test_short_system_reads_are_made_up_for(path, monkeypatch):
    real_pread, real_preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real_pread(fd, min(length, 7), offset))
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: real_preadv(fd, [views[0][:5]], offset))
    with FileData(path) as data:
        assert data.pread(3, 1000) == CONTENT[3:1003]
        buffer = bytearray(1000)
        assert data.preadinto(3, buffer) == 1000
        assert buffer == CONTENT[3:1003]
        assert data.pread(len(CONTENT) - 20, 100) == CONTENT[-20:]


def test_system_calls_are_no_larger_than_the_system_takes(path, monkeypatch):
    asked = []
    real_pread, real_preadv = os.pread, os.preadv

    def pread(fd, length, offset):
        asked.append(length)
        return real_pread(fd, length, offset)

    def preadv(fd, views, offset):
        asked.append(len(views[0]))
        return real_preadv(fd, views, offset)

    monkeypatch.setattr("pparse.data.files.MAX_SYSTEM_READ", 100)
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)
    with FileData(path) as data:
        assert data.pread(1, 950) == CONTENT[1:951]
        assert data.preadinto(1, bytearray(950)) == 950
    assert max(asked) == 100
    assert sum(asked) == 1900


def test_system_that_serves_nothing(path, monkeypatch):
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: b"")
    monkeypatch.setattr(os, "preadv", lambda fd, views, offset: 0)
    with FileData(path) as data:
        with pytest.raises(SourceError, match="fewer bytes"):
            data.pread(0, 10)
        with pytest.raises(SourceError, match="fewer bytes"):
            data.preadinto(0, bytearray(10))


def test_system_error_is_a_source_error(path, monkeypatch):
    def fail(*_args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    with FileData(path) as data:
        for act in (lambda: data.pread(16, 4), lambda: data.preadinto(16, bytearray(4))):
            with pytest.raises(SourceError, match="Input/output") as caught:
                act()
            assert caught.value.errno == errno.EIO
            assert caught.value.source == str(path)
            assert "16" in str(caught.value)


def test_a_system_without_preadv_reads_the_same(path, monkeypatch):
    monkeypatch.setattr("pparse.data.files._HAS_PREADV", False)
    with FileData(path) as data:
        buffer = bytearray(1000)
        assert data.preadinto(3, buffer) == 1000
        assert buffer == CONTENT[3:1003]


def test_a_system_without_pread_reads_the_same(path, monkeypatch):
    monkeypatch.setattr("pparse.data.files._HAS_PREAD", False)
    monkeypatch.setattr("pparse.data.files._HAS_PREADV", False)
    with FileData(path) as data:
        assert data.pread(3, 1000) == CONTENT[3:1003]
        buffer = bytearray(1000)
        assert data.preadinto(3, buffer) == 1000
        assert buffer == CONTENT[3:1003]


def test_an_empty_file_has_size_0_and_no_holes(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    with FileData(path) as data:
        assert data.size == 0
        assert data.pread(0, HUGE) == b""
        assert data.open().read() == b""
        assert list(data.holes(0, 10)) == []


def test_file_name_and_identity(path):
    with FileData(path) as data:
        assert data.name == data.path == str(path)
        info = os.stat(path)
        assert data.identity == FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        assert hash(data.identity) == hash(FileIdentity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))
        assert data.identity != "it"
        data.check_unchanged()


@needs_proc
def test_file_that_is_dropped_leaks_nothing(path):
    pool = DescriptorPool()
    before = open_files()
    data = FileData(path, pool)
    assert open_files() == before + 1
    del data
    assert open_files() == before
    assert pool.open_count == 0


@needs_proc
def test_close_gives_the_descriptor_back(path):
    before = open_files()
    data = FileData(path)
    data.close()
    assert open_files() == before


@needs_proc
@pytest.mark.parametrize(
    "use",
    [
        lambda data: data.pread(0, 4),
        lambda data: data.preadinto(0, bytearray(4)),
        lambda data: data.check_unchanged(),
        lambda data: list(data.holes(0, 100)),
        lambda data: next(iter(data.holes(0, 100)), None),
        lambda data: data.mapped(0, 4).release(),
        lambda data: data.mapped(0, HUGE),
    ],
)
def test_every_use_lets_go_of_the_descriptor(path, use):
    before = open_files()
    data = FileData(path)
    use(data)
    use(data)
    data.close()
    assert open_files() == before


def test_offsets_beyond_the_system(path):
    file = DescriptorPool().register(str(path))
    for act in (lambda: file.pread(1 << 63, 1), lambda: file.preadv(1 << 63, [memoryview(bytearray(1))])):
        with pytest.raises(SourceError, match="no file reaches") as caught:
            act()
        assert caught.value.offset == 1 << 63
    file.close()


def test_a_file_is_mapped_readonly_as_far_as_it_goes(path):
    with FileData(path) as data:
        for offset, length in ((0, 10), (5000, 3000), (4096, 1), (len(CONTENT) - 1, 1)):
            view = data.mapped(offset, length)
            assert bytes(view) == CONTENT[offset : offset + length]
            assert view.readonly
        for offset in (0, 5, 4096, len(CONTENT)):
            assert bytes(data.mapped(offset, 0)) == b""
        assert data.mapped(0, len(CONTENT) + 1) is None
        assert data.mapped(len(CONTENT), 1) is None
        assert data.mapped(HUGE, 1) is None
        assert data.mapped(0, HUGE) is None
        with pytest.raises(ValueError, match="negative"):
            data.mapped(-1, 1)
        view = data.mapped(0, 10)
    assert bytes(view) == CONTENT[:10]  # outlives the data
    with pytest.raises(ClosedError):
        data.mapped(0, 10)


# -- what is no file ---------------------------------------------------------------------------------------------------


def test_a_folder_is_refused_as_no_file(tmp_path):
    with pytest.raises(SourceError, match="folder") as caught:
        FileData(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a folder, not a file"
    assert caught.value.errno == errno.EISDIR
    assert caught.value.source == str(tmp_path)


def test_no_such_file(tmp_path):
    with pytest.raises(SourceError) as caught:
        FileData(tmp_path / "nothing")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(OSError, match="cannot open"):
        FileData(tmp_path / "nothing")


def test_file_as_a_folder(path):
    with pytest.raises(SourceError) as caught:
        FileData(path / "below")
    assert caught.value.errno == errno.ENOTDIR


@pytest.mark.parametrize("name", ["", "a\0b", "\0", "x" * 5000])
def test_names_that_no_file_can_have_raise_source_error(tmp_path, name):
    with pytest.raises(SourceError):
        FileData(str(tmp_path) + "/" + name if name else "")


def test_lone_surrogate_in_the_name(tmp_path):
    with pytest.raises(SourceError):
        FileData(str(tmp_path / "\ud800"))


def test_link_that_leads_nowhere_and_in_a_circle(tmp_path):
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(SourceError):
        FileData(tmp_path / "dangling")
    with pytest.raises(SourceError) as caught:
        FileData(tmp_path / "circle")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_without_permission_raises_source_error_with_errno(path):
    path.chmod(0)
    with pytest.raises(SourceError) as caught:
        FileData(path)
    assert caught.value.errno == errno.EACCES


def test_file_that_the_system_refuses(path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pparse.data.files.os.open", refuse)
    with pytest.raises(SourceError, match="Permission denied") as caught:
        FileData(path)
    assert caught.value.errno == errno.EACCES


@needs_proc
@pytest.mark.skipif(not os.path.exists(os.devnull), reason="no null device")
def test_a_device_is_refused_and_not_left_open():
    before = open_files()
    with pytest.raises(SourceError, match="device"):
        FileData(os.devnull)
    assert open_files() == before


def test_the_size_of_a_block_device_is_where_it_ends(path, monkeypatch):
    """The system says that it has no bytes; a file stands for it here."""
    fstat = os.fstat

    def disguised(descriptor):
        info = list(fstat(descriptor))
        info[0], info[6] = stat.S_IFBLK | 0o600, 0
        return os.stat_result(info)

    monkeypatch.setattr("pparse.data.files.os.fstat", disguised)
    with FileData(path) as data:
        assert data.size == len(CONTENT)
        assert data.pread(len(CONTENT) - 10, 20) == CONTENT[-10:]


@needs_fifo
@needs_proc
def test_pipe_does_not_block(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    before = open_files()
    outcome: list[object] = []

    def work() -> None:
        try:
            outcome.append(FileData(path))
        except SourceError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "opening a pipe waits for a writer"
    assert isinstance(outcome[0], SourceError)
    assert outcome[0].errno == errno.ESPIPE
    assert "pipe" in str(outcome[0])
    assert open_files() == before


@needs_fifo
def test_pipe_with_a_writer_is_left_alone(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(both, b"abc")
        with pytest.raises(SourceError, match="pipe"):
            FileData(path)
        assert os.read(both, 10) == b"abc"
    finally:
        os.close(both)


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no unix sockets")
def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(SourceError):
            FileData("s")


# -- files that change -----------------------------------------------------------------------------------------------


def test_file_that_grew(path):
    with FileData(path) as data:
        write_with_time(path, CONTENT + b"more", 1_000_000_001)
        with pytest.raises(DataChangedError) as caught:
            data.check_unchanged()
        assert (caught.value.wanted, caught.value.got) == (len(CONTENT), len(CONTENT) + 4)
        assert f"had {len(CONTENT)} bytes and now has {len(CONTENT) + 4}" in str(caught.value)
        assert data.size == len(CONTENT)


def test_file_that_shrank(path):
    with FileData(path) as data:
        os.truncate(path, 100)
        assert data.pread(0, 100) == CONTENT[:100]
        for act in (
            lambda: data.pread(0, 101),
            lambda: data.pread(5000, 1),
            lambda: data.preadinto(90, bytearray(20)),
            lambda: data.read_exact(90, 20),
            data.check_unchanged,
        ):
            with pytest.raises(DataChangedError) as caught:
                act()
            assert (caught.value.wanted, caught.value.got) == (len(CONTENT), 100)
        assert data.mapped(0, len(CONTENT)) is None


def test_file_that_was_rewritten(path):
    with FileData(path) as data:
        write_with_time(path, bytes(len(CONTENT)), 1_000_000_002)
        with pytest.raises(DataChangedError, match="written to"):
            data.check_unchanged()


def test_file_replaced_by_another_is_read_on_while_open(path):
    with FileData(path) as data:
        other = path.with_name("other")
        write_with_time(other, bytes(len(CONTENT)), 1_000_000_000)
        os.replace(other, path)
        assert data.pread(0, 10) == CONTENT[:10]


@needs_proc
@pytest.mark.parametrize("how", ["replaced", "grown", "rewritten", "removed"])
def test_closed_descriptor_is_not_reopened_on_a_changed_file(path, how):
    pool = DescriptorPool(limit=1)
    before = open_files()
    data = FileData(path, pool)
    filler = path.with_name("filler")
    filler.write_bytes(b"x")
    other = FileData(filler, pool)  # takes the only descriptor
    assert pool.open_count == open_files() - before == 1
    if how == "replaced":
        changed = path.with_name("changed")
        write_with_time(changed, CONTENT, 1_000_000_000)
        os.replace(changed, path)
    elif how == "grown":
        write_with_time(path, CONTENT + b"x", 1_000_000_000)
    elif how == "rewritten":
        write_with_time(path, CONTENT, 1_000_000_001)
    else:
        path.unlink()
    for act in (lambda: data.pread(0, 4), lambda: data.preadinto(0, bytearray(4)), data.check_unchanged):
        with pytest.raises(SourceError if how == "removed" else DataChangedError) as caught:
            act()
        assert caught.value.source == str(path)
    assert other.pread(0, 1) == b"x"  # the pool still works
    data.close(), other.close()
    assert pool.open_count == 0
    assert open_files() == before


def test_closed_descriptor_is_reopened_on_the_same_file(path):
    pool = DescriptorPool(limit=1)
    filler = path.with_name("filler")
    filler.write_bytes(b"x")
    with FileData(path, pool) as data, FileData(filler, pool) as other:
        for _ in range(3):
            assert data.pread(5, 5) == CONTENT[5:10]
            assert other.pread(0, 1) == b"x"
            assert pool.open_count == 1
            data.check_unchanged()


# -- descriptors -----------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path):
    paths = []
    for number in range(300):
        path = tmp_path / f"shard-{number:03}"
        path.write_bytes(b"shard %03d" % number)
        paths.append(path)
    return paths


def test_pool_keeps_64_unless_told():
    assert DescriptorPool().limit == 64


@needs_proc
def test_many_files_on_few_descriptors(many):
    pool = DescriptorPool(limit=8)
    before = open_files()
    most = 0
    shards = []
    for path in many:
        shards.append(FileData(path, pool))
        most = max(most, open_files() - before)
    for _ in range(2):
        for number, shard in enumerate(shards):
            assert shard.pread(6, 10) == b"%03d" % number
            most = max(most, open_files() - before)
    assert most <= 8
    assert pool.open_count == open_files() - before == 8
    for shard in shards:
        shard.close()
    assert pool.open_count == 0
    assert open_files() == before


@needs_proc
def test_least_recently_used_is_closed_first(many):
    pool = DescriptorPool(limit=3)
    shards = [FileData(path, pool) for path in many[:3]]
    shards[0].pread(0, 1)
    shards.append(FileData(many[3], pool))
    names = {os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in _shard_descriptors()}
    assert names == {"shard-000", "shard-002", "shard-003"}
    for shard in shards:
        shard.close()


def _shard_descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "shard-" in os.readlink(f"/proc/self/fd/{fd}"):
                found.append(fd)
        except OSError:
            pass
    return found


@needs_proc
def test_threads_on_few_descriptors(many):
    pool = DescriptorPool(limit=8)
    shards = [FileData(path, pool) for path in many[:60]]
    before = open_files()
    errors = []

    def work(seed: int) -> None:
        try:
            for step in range(150):
                number = (seed * 31 + step * 17) % len(shards)
                if shards[number].pread(6, 3) != b"%03d" % number:
                    errors.append(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.open_count <= 8
    assert open_files() == before
    for shard in shards:
        shard.close()


@needs_proc
def test_close_waits_for_a_read_in_another_thread(path, monkeypatch):
    before = open_files()
    data = FileData(path)
    reading, go_on = threading.Event(), threading.Event()
    real = os.pread

    def slow(fd, length, offset):
        reading.set()
        assert go_on.wait()
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", slow)
    got = []
    thread = threading.Thread(target=lambda: got.append(data.pread(0, 4)))
    thread.start()
    assert reading.wait()
    data.close()
    assert open_files() == before + 1  # not pulled away under the read
    go_on.set()
    thread.join()
    assert got == [CONTENT[:4]]
    assert open_files() == before


@needs_proc
def test_a_failed_open_leaves_no_descriptor(tmp_path, many):
    pool = DescriptorPool(limit=2)
    before = open_files()
    for _ in range(5):
        for bad in (tmp_path, tmp_path / "nothing", os.devnull):
            with pytest.raises(SourceError):
                FileData(bad, pool)
    assert open_files() == before
    assert pool.open_count == 0


@needs_proc
def test_dropped_files_make_room(many):
    pool = DescriptorPool(limit=4)
    before = open_files()
    kept = FileData(many[0], pool)
    for path in many[1:50]:
        FileData(path, pool)
    assert pool.open_count == 1
    assert open_files() == before + 1
    assert kept.pread(6, 3) == b"000"
    kept.close()


# -- holes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sparse(tmp_path):
    """A MiB unwritten, 64 KiB of data, a MiB unwritten."""
    if not hasattr(os, "SEEK_HOLE"):
        pytest.skip("the system has no SEEK_HOLE")
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.truncate((2 << 20) + (64 << 10))
        file.seek(1 << 20)
        file.write(b"\xff" * (64 << 10))
    with open(path, "rb") as file:
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) != 0:
            pytest.skip("the file system has no holes")
    return path


def test_holes_are_those_stretches_of_a_range_that_were_never_written(sparse):
    mib, end = 1 << 20, (2 << 20) + (64 << 10)
    with FileData(sparse) as data:
        assert list(data.holes(0, end)) == [(0, mib), (mib + (64 << 10), end)]
        assert list(data.holes(0, HUGE)) == [(0, mib), (mib + (64 << 10), end)]
        assert list(data.holes(100, 200)) == [(100, 200)]
        assert list(data.holes(mib, mib + (64 << 10))) == []
        assert list(data.holes(mib - 5, mib + 5)) == [(mib - 5, mib)]
        assert list(data.holes(end - 7, end)) == [(end - 7, end)]
        assert list(data.holes(end, end + 10)) == []
        assert list(data.holes(5, 5)) == []
        assert list(data.holes(9, 5)) == []
        assert data.pread(mib - 2, 4) == b"\0\0\xff\xff"


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="the system has no SEEK_HOLE")
def test_what_does_not_read_as_zeros_is_no_hole(tmp_path, monkeypatch):
    """Whatever the system says: it may not know yet what was written just now."""
    path = tmp_path / "f"
    path.write_bytes(bytes(8192) + b"x" + bytes(8191) + b"y")
    ends = {os.SEEK_HOLE: {0: 0, 8192: 9000}, os.SEEK_DATA: {0: 8192, 9000: 16385}}
    monkeypatch.setattr(os, "lseek", lambda descriptor, offset, how: ends[how][offset])
    with FileData(str(path)) as data:
        assert list(data.holes(0, 16385)) == [(0, 8192)]


def test_no_holes_in_a_written_file(path):
    with FileData(path) as data:
        assert list(data.holes(0, len(CONTENT))) == []


def test_no_holes_where_the_system_cannot_tell(sparse, monkeypatch):
    with FileData(sparse) as data:
        real = os.lseek

        def refuse(fd, offset, whence):
            if whence in (os.SEEK_HOLE, os.SEEK_DATA):
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(fd, offset, whence)

        monkeypatch.setattr(os, "lseek", refuse)
        assert list(data.holes(0, 1 << 20)) == []
        monkeypatch.setattr(os, "lseek", lambda fd, at, how: at if how == os.SEEK_HOLE else refuse(fd, at, how))
        assert list(data.holes(0, 1 << 20)) == []
        monkeypatch.undo()
        monkeypatch.delattr(os, "SEEK_HOLE")
        assert list(data.holes(0, 1 << 20)) == []


def test_memory_has_no_holes():
    assert list(BytesData(bytes(10)).holes(0, 10)) == []


def test_sparse_offsets_beyond_four_gigabytes(tmp_path):
    path = tmp_path / "big"
    size = (5 << 30) + 3
    with open(path, "wb") as file:
        try:
            file.truncate(size)
            file.seek(size - 3)
            file.write(b"end")
        except OSError:
            pytest.skip("the file system takes no large files")
    if os.stat(path).st_blocks * 512 > 1 << 24:
        pytest.skip("the file system has no holes")
    with FileData(path) as data:
        assert data.size == size
        assert data.pread(size - 3, HUGE) == b"end"
        assert data.read_exact(size - 5, 5) == b"\0\0end"
        assert bytes(data.mapped(size - 3, 3)) == b"end"
        assert not data.available(0, size + 1)


if sys.platform == "win32":  # pragma: no cover
    pytest.skip("files behave differently", allow_module_level=True)


# -- gaps that are read over -----------------------------------------------------------------------------------------


def gappy(*gaps: Gap, content: bytes = CONTENT) -> GappyData:
    data = GappyData(content, [])
    data.gaps = tuple(gaps)
    return data


def test_blocks_are_read_as_they_are_taken_and_end_as_their_reads_do():
    data = gappy(Gap(25, 5))
    taken = blocks(data.pread, 3, 40, 10)
    assert (next(taken), data.stats.bytes) == (CONTENT[3:13], 10)
    assert [next(taken), next(taken)] == [CONTENT[13:23], CONTENT[23:25]]
    with pytest.raises(GapError):
        next(taken)
    assert list(blocks(data.pread, 3, 17, 10)) == [CONTENT[3:13], CONTENT[13:17]]
    assert b"".join(blocks(data.known, 3, 40, 10)) == CONTENT[3:25]
    with pytest.raises(GapError):
        list(blocks(data.read_exact, 3, 40, 10))
    assert [len(block) for block in blocks(data.pread, len(CONTENT) - 7, HUGE, 5)] == [5, 2]
    with pytest.raises(EndOfDataError):
        list(blocks(data.read_exact, len(CONTENT) - 7, HUGE, 5))


def test_windows_leave_gaps_out_and_overlap_only_what_is_joined():
    data = gappy(Gap(25, 5), Gap(60, None))
    found = list(windows(data, 3, 100, 10, 4))
    ranges = [(3, 13), (9, 23), (19, 25), (30, 40), (36, 50), (46, 60)]
    assert found == [(start, CONTENT[start:end]) for start, end in ranges]
    assert data.stats.bytes == 52


@pytest.mark.parametrize("table", [False, True])
def test_read_known_goes_on_behind_gaps(table):
    gaps = [Gap(10, 5), Gap(15, 2, exact=False), Gap(40, 1), Gap(100, 50)]
    data = gappy(*gaps)
    if table:
        data.gaps = GapTable(gaps)
    shown = bytearray(CONTENT)
    for gap in gaps:
        shown[gap.offset : gap.end] = bytes(gap.length)
    for start in (0, 9, 10, 12, 15, 17, 39, 40, 41, 99, 120, 150, 200):
        for length in (0, 1, 3, 7, 200, HUGE):
            got, unknown = data.read_known(start, length)
            assert got == shown[start : start + length]
            wanted = [place for place in range(start, min(start + length, len(CONTENT))) if in_gap(gaps, place)]
            assert [place for first, count in unknown for place in range(first, first + count)] == wanted
            assert all(count > 0 for _, count in unknown)


def in_gap(gaps, place: int) -> bool:
    return any(gap.offset <= place < gap.end for gap in gaps)


def test_read_known_ends_at_a_gap_without_end():
    data = gappy(Gap(10, 5), Gap(100, None))
    assert data.read_known(5, 500) == (CONTENT[5:10] + bytes(5) + CONTENT[15:100], [(10, 5)])
    assert data.read_known(100, 10) == (b"", [])
    assert data.read_known(5000, 10) == (b"", [])


def test_read_known_gives_what_is_before_an_error(monkeypatch):
    """As `pread` does, and the next read raises."""
    data = GappyData(CONTENT, [(10, 5)])
    served = data._pread

    def fail(offset, length):
        if offset >= 40:
            raise MalformedError("nothing decodes this", offset=40)
        return served(offset, min(length, 40 - offset))

    monkeypatch.setattr(data, "_pread", fail)
    assert data.read_known(5, 50) == (CONTENT[5:10] + bytes(5) + CONTENT[15:40], [(10, 5)])
    with pytest.raises(MalformedError):
        data.read_known(40, 10)


@pytest.mark.parametrize("length", [3, 5000])
def test_read_known_does_not_pass_the_end(length):
    data = BytesData(b"abcde")
    assert data.read_known(2, length) == (b"cde", [])
    assert data.read_known(5, length) == (b"", [])
    assert data.read_known(HUGE, length) == (b"", [])
    assert gappy(Gap(3, 2), content=b"abcde").read_known(2, length) == (b"c\0\0", [(3, 2)])


def test_read_known_of_what_is_closed():
    data = gappy(Gap(10, 5))
    data.close()
    with pytest.raises(ClosedError):
        data.read_known(0, 20)


def test_read_known_lets_errors_pass():
    with pytest.raises(SourceError):
        FailingData(CONTENT, 1).read_known(0, 5)


@pytest.mark.parametrize("table", [False, True])
def test_the_next_gap(table):
    gaps = [Gap(10, 5), Gap(20, 1, exact=False), Gap(50, None)]
    data = gappy(*gaps)
    if table:
        data.gaps = GapTable(gaps)
    for offset in range(70):
        wanted = next((gap for gap in gaps if gap.end is None or offset < gap.end), None)
        assert data.next_gap(offset) == wanted
    assert gappy(Gap(3, 4)).next_gap(7) is None
    assert BytesData(b"").next_gap(0) is None
    assert data.next_gap(HUGE) == Gap(50, None)


def test_gaps_of_which_the_length_is_a_guess():
    sure, guess = Gap(5, 10), Gap(5, 10, exact=False)
    assert sure != guess
    assert len({sure, guess, Gap(5, 10)}) == 2
    assert "exact" in repr(guess)
    assert "exact" not in repr(sure)
    assert (sure.end, Gap(5, None).end) == (15, None)
    # Reads treat both alike.
    data = gappy(guess)
    with pytest.raises(GapError) as caught:
        data.pread(7, 1)
    assert caught.value.length == 8


def test_a_table_of_gaps_is_the_gaps():
    gaps = [Gap(0, 1), Gap(5, 10, exact=False), Gap(1 << 40, 1 << 41), Gap(HUGE, None)]
    table = GapTable(gaps)
    assert list(table) == gaps
    assert table == gaps
    assert table == tuple(gaps)
    assert table != gaps[:2]
    assert len(table) == 4
    assert table[-1] == gaps[-1]
    assert table[1:3] == tuple(gaps[1:3])
    assert [table.place(offset) for offset in (0, 4, 5, 6, HUGE)] == [1, 1, 2, 2, 4]
    assert not GapTable()
    with pytest.raises(IndexError):
        table[4]
    moved = GapTable()
    moved.add(3, 0)  # no gap
    moved.add_all(table[:2], 100)
    moved.add_all(GapTable([Gap(50, 1)]), 100)
    assert list(moved) == [Gap(100, 1), Gap(105, 10, exact=False), Gap(150, 1)]


def test_many_gaps_take_little_memory_and_are_found_quickly():
    count = sweep.scaled(200_000)
    tracemalloc.start()
    table = GapTable(Gap(10 * number, 3) for number in range(count))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 40 * count
    data = FakeOfSize(10 * count)
    data.gaps = table
    assert data.next_gap(10 * count // 2 + 5) == Gap(10 * (count // 2 + 1), 3)
    got, unknown = data.read_known(5, 10_000)
    assert len(got) == 10_000
    assert len(unknown) == 1000


class FakeOfSize(Data):
    def __init__(self, size: int) -> None:
        super().__init__("<fake>", size)

    def _pread(self, offset: int, length: int) -> bytes:
        return b"x" * length


def test_why_suspect_gives_the_reason_of_the_first_range_that_is_touched():
    data = BytesData(CONTENT)
    assert data.why_suspect(0, len(CONTENT)) is None
    data.suspect_ranges = (SuspectRange(10, 20, "one"), SuspectRange(30, 40, "two"))
    for start, end, wanted in (
        (0, 10, None),
        (0, 11, "one"),
        (19, 20, "one"),
        (20, 30, None),
        (20, 31, "two"),
        (0, 99, "one"),
        (40, 99, None),
    ):
        assert data.why_suspect(start, end) == wanted, (start, end)


# -- all documents of the process ------------------------------------------------------------------------------------


@needs_proc
def test_all_pools_together_leave_half_of_the_descriptors(many):
    script = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from pparse.data.files import FileData
from pparse.data.files import DescriptorPool
pools = [DescriptorPool(limit=20) for _ in range(6)]
files = [FileData(path, pools[number % 6]) for number, path in enumerate(sys.argv[1:])]
most = 0
for _ in range(2):
    for number, file in enumerate(files):
        assert file.pread(6, 3) == b"%03d" % number
        most = max(most, len(os.listdir("/proc/self/fd")))
print(most, sum(pool.open_count for pool in pools))
for file in files:
    file.close()
print(sum(pool.open_count for pool in pools))
"""
    ran = subprocess.run([sys.executable, "-c", script, *map(str, many[:90])], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    most, together, left = map(int, ran.stdout.split())
    assert together <= 32
    assert most <= 32 + 8
    assert left == 0


def test_a_file_whose_time_was_put_back_has_changed(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"a" * 5_000)
    data = FileData(path)
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(b"b" * 5_000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if path.stat().st_ctime_ns == before.st_ctime_ns:
        pytest.skip("the clock of this file system is too coarse, or it has none")
    with pytest.raises(DataChangedError, match="its modification time was put back"):
        data.check_unchanged()
    data.close()


def test_what_leaves_the_content_alone_is_no_change(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"a" * 5_000)
    data = FileData(path)
    path.chmod(0o600)
    data.check_unchanged()
    os.link(path, tmp_path / "other name")
    data.check_unchanged()
    path.rename(tmp_path / "model.part")
    data.check_unchanged()
    assert data.pread(0, 3) == b"aaa"
    data.close()
