from __future__ import annotations

import errno
import gc
import os
import random
import threading
from types import SimpleNamespace

import pytest

import pparse
from pparse.data.scratch import Scratch, no_scratch
from pparse.errors import CancelledError, ClosedError, LimitError, SourceError
from tests.conftest import safetensors


@pytest.fixture
def scratch(tmp_path):
    return Scratch(tmp_path, 1 << 20)


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def test_what_is_written_can_be_read_anywhere(scratch):
    source = random.Random(1)
    content = source.randbytes(100_000)
    spool = scratch.spool()
    assert spool.size == 0
    assert spool.pread(0, 10) == b""
    at = 0
    while at < len(content):
        step = source.choice((0, 1, 100, 30_000))
        spool.append(source.choice((bytes, bytearray, memoryview))(content[at : at + step]))
        at = min(len(content), at + step)
        assert spool.size == scratch.used == at
        first = source.randrange(at + 10)
        assert spool.pread(first, 1000) == content[first : min(at, first + 1000)]
    assert spool.pread(0, 1 << 60) == content
    assert spool.pread(1 << 60, 10) == b""
    for offset, length in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            spool.pread(offset, length)


def test_no_file_has_a_name(scratch, tmp_path):
    before = descriptors()
    spools = [scratch.spool() for _ in range(5)]
    for number, spool in enumerate(spools):
        spool.append(bytes([number]) * 1000)
    if os.name == "posix":
        assert list(tmp_path.iterdir()) == []
    assert [spool.pread(999, 5) for spool in spools] == [bytes([number]) for number in range(5)]
    for spool in spools:
        spool.close()
        spool.close()
        for call in (lambda spool=spool: spool.pread(0, 1), lambda spool=spool: spool.append(b"x")):
            with pytest.raises(ClosedError):
                call()
        with pytest.raises(ClosedError):
            spool.memory(10)
    assert scratch.used == 0
    assert descriptors() == before
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_spool_gives_everything_back(scratch):
    before = descriptors()
    gc.disable()
    try:
        spool = scratch.spool()
        spool.append(bytes(1000))
        assert scratch.used == 1000
        del spool
        assert scratch.used == 0
        assert descriptors() == before
    finally:
        gc.enable()


def test_the_cap_is_on_all_together(scratch):
    one, two = scratch.spool(), scratch.spool()
    one.append(bytes(1 << 19))
    two.append(bytes(1 << 19))
    for spool in (one, two):
        with pytest.raises(LimitError, match="scratch_bytes=1048576") as caught:
            spool.append(b"x")
        assert caught.value.option == "--limit scratch_bytes=2097152"
        assert (caught.value.wanted, caught.value.got) == ((1 << 20) + 1, 1 << 20)
    with pytest.raises(LimitError):
        scratch.spool().memory(1)
    assert one.size == two.size == 1 << 19
    assert scratch.used == 1 << 20
    one.close()
    two.append(bytes(1 << 19))
    assert two.pread(1 << 19, 1 << 20) == bytes(1 << 19)


def test_without_a_folder_the_option_is_named():
    with pytest.raises(LimitError, match="scratch=DIR"):
        Scratch(None, 1 << 20).spool()
    assert str(no_scratch("sorting")) == "sorting needs a scratch file; lift it with scratch=DIR"


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(SourceError, match="cannot make a scratch file") as caught:
        Scratch(tmp_path / "missing", 1).spool()
    assert caught.value.errno == errno.ENOENT
    assert caught.value.source == str(tmp_path / "missing")


def test_a_full_disk_is_an_error_of_ours(scratch, monkeypatch):
    spool = scratch.spool()
    spool.append(b"before")
    real = os.write
    calls = []

    def write(descriptor, data):
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:3])  # short, as systems may be

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(SourceError, match="cannot write a scratch file: No space left") as caught:
        spool.append(b"0123456789")
    assert caught.value.errno == errno.ENOSPC
    calls[:] = [1, 1, 1]
    spool.append(b"abcdef")
    monkeypatch.undo()
    assert spool.pread(0, 100) == b"before012abcdef"
    spool.close()
    assert scratch.used == 0


def test_short_reads_of_the_system(scratch, monkeypatch):
    spool = scratch.spool()
    spool.append(bytes(range(200)))
    real = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: real(descriptor, min(count, 7)))
    assert spool.pread(3, 100) == bytes(range(3, 103))

    def broken(descriptor, count):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", broken)
    with pytest.raises(SourceError, match="cannot read a scratch file") as caught:
        spool.pread(0, 1)
    assert caught.value.errno == errno.EIO


def test_scratch_serves_as_memory_and_is_counted(scratch):
    spool = scratch.spool()
    memory = spool.memory(100_000)
    assert len(memory) == spool.size == scratch.used == 100_000
    assert memory[:] == bytes(100_000)
    memory[50_000:50_005] = b"hello"
    assert spool.pread(49_999, 7) == b"\0hello\0"
    memory.close()
    with pytest.raises(LimitError):
        scratch.spool().memory(1 << 21)


def test_threads_that_share_a_spool_read_what_was_written(scratch):
    spool = scratch.spool()
    content = random.Random(2).randbytes(400_000)
    wrong = []

    def read():
        source = random.Random(threading.get_ident())
        for _ in range(300):
            offset = source.randrange(spool.size + 1)
            got = spool.pread(offset, 5000)
            if content[offset : offset + len(got)] != got:
                wrong.append(offset)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(0, len(content), 1000):
        spool.append(content[at : at + 1000])
    for thread in threads:
        thread.join()
    assert wrong == []
    assert spool.pread(0, 1 << 20) == content


@pytest.fixture
def pipe():
    """Make a pipe that gives ``content``: its end to read."""
    ends = []

    def make(content: bytes):
        reading, writing = os.pipe()
        ends.append(os.fdopen(reading, "rb"))
        with os.fdopen(writing, "wb") as end:
            end.write(content)
        return ends[-1]

    yield make
    for end in ends:
        end.close()


def test_a_stream_that_cannot_seek_is_spooled(pipe, tmp_path):
    content = safetensors({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}, b"abc")
    before = descriptors()
    stream = pipe(content)
    with pparse.view(stream) as model:
        assert model["a"].numpy().tolist() == [97, 98, 99]
    assert not stream.closed
    assert descriptors() <= before + 1
    told = []
    with pparse.open(pipe(content), scratch=str(tmp_path), progress=lambda *what: told.append(what)) as document:
        assert document.size == len(content)
    assert told[0][:2] == (len(content), None)
    with pytest.raises(LimitError, match="scratch_bytes=9"):
        pparse.open(pipe(content), limits=pparse.Limits(scratch_bytes=9))
    with pytest.raises(CancelledError):
        pparse.open(pipe(content), cancel=lambda: True)
    with pytest.raises(SourceError, match="binary mode"):
        pparse.open(SimpleNamespace(read=lambda count: "text"))
    assert descriptors() <= before + 4
    assert os.listdir(tmp_path) == []


def test_a_url_is_told_for_what_it_is():
    with pytest.raises(
        SourceError, match=r"^https://a\.b/c\.pt: is a URL, which is not opened here: pass a file object"
    ):
        pparse.open("https://a.b/c.pt")
