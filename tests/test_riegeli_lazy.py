"""Records that are opened and not read: what is touched, what is checked, and what it costs."""

from __future__ import annotations

import io
import random

import pytest

from pparse import BytesData, FileData
from pparse.data.scratch import Scratch
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError
from pparse.riegeli import InvalidArgumentError, RecordPosition, RecordReader, RecordWriter
from pparse.testing.fakes import UnknownSizeData
from tests import sweep
from tests.riegeli_damage import apply, flip, sound
from tests.riegeli_files import OneWay
from tests.riegeli_fixtures import BLOCK, CHUNK_HEADER, chunk_table, digest, manifest, raw, records
from tests.rows import rows

NAMES = list(manifest())
MIB = 1 << 20


def written_to(path, options: str, contents, flush: int = 0):
    with RecordWriter(path, options=options) as writer:
        for number, content in enumerate(contents, 1):
            writer.write_record(content)
            if flush and number % flush == 0:
                writer.flush()
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Four records of 3 MB in one uncompressed chunk, a small one, and one more of 3 MB in a chunk of its own."""
    path = tmp_path_factory.mktemp("lazy") / "large.riegeli"
    chooser = random.Random("lazy")
    contents = [chooser.randbytes(3_000_000) for _ in range(4)]
    with RecordWriter(path, options="uncompressed,chunk_size:64M") as writer:
        writer.write_records([*contents, b"small"])
        writer.flush()
        writer.write_record(contents[0][::-1])
    return path, [*contents, b"small", contents[0][::-1]]


@pytest.mark.parametrize("source", [UnknownSizeData, lambda content: OneWay(io.BytesIO(content))])
def test_a_chunk_that_is_padded_is_followed_by_the_next_one_where_no_size_is_known(source):
    """A chunk is at least as long as it has records, however few bytes these take."""
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="zstd") as writer:
        writer.write_records([b""] * 500)
        writer.flush()
        writer.write_record(b"after")
    content = out.getvalue()
    chunk = chunk_table(content)[1]
    assert chunk.end - chunk.data_end > 100
    with RecordReader(source(content)) as reader:
        assert list(reader) == [b""] * 500 + [b"after"]


# -- what is opened is what is read ----------------------------------------------------------------------------------


@rows("verify", ["headers", "touched", "all"])
@rows("name", sweep.part(NAMES))
def test_opened_records_are_those_that_are_read(name, verify):
    expected = records(name)
    with RecordReader(raw(name), verify=verify) as reader:
        count = 0
        while (opened := reader.open_record()) is not None:
            known = expected[count]
            assert str(reader.last_pos) == known.pos
            assert len(opened) == known.size
            if count < 300:
                assert digest(opened.read()) == known.digest
            count += 1
        assert count == len(expected)
        assert reader.open_record() is None


@pytest.mark.parametrize("name", ["simple_uncompressed", "simple_zstd", "transpose_brotli", "blocks_uncompressed"])
def test_reading_and_opening_take_turns(name):
    expected = records(name)
    with RecordReader(raw(name)) as reader:
        for number, known in enumerate(expected):
            assert reader.pos <= RecordPosition(known.begin, known.index)
            if number % 3:
                record = reader.read_record()
            else:
                opened = reader.open_record()
                assert opened is not None
                record = opened.read()
            assert record is not None
            assert digest(record) == known.digest
            assert str(reader.last_pos) == known.pos
        assert reader.read_record() is reader.open_record() is None


@pytest.mark.parametrize("name", ["simple_uncompressed", "simple_zstd", "transpose_snappy", "flush"])
def test_what_was_opened_stays_good(name):
    """However far the reader has gone."""
    with RecordReader(raw(name)) as reader:
        opened = []
        while (record := reader.open_record()) is not None:
            opened.append(record)
        reader.seek_numeric(0)
        reader.read_record()
        for record, known in zip(opened, records(name), strict=True):
            assert digest(record.read()) == known.digest
            assert record.read() == b""
            record.seek(0)
            assert len(record.read(3)) == min(3, known.size)


def test_seeking_to_a_record_and_opening_it(large):
    path, contents = large
    with RecordReader(path) as reader:
        reader.seek(RecordPosition(64, 2))
        opened = reader.open_record()
        assert opened is not None
        assert opened.read() == contents[2]
        assert reader.last_pos == RecordPosition(64, 2)
        assert reader.seek_back() is True
        assert reader.pos == RecordPosition(64, 2)


# -- what it costs ---------------------------------------------------------------------------------------------------


def test_a_slice_costs_that_slice(large):
    path, contents = large
    with FileData(path) as data, RecordReader(data) as reader:
        for content in contents:
            opened = reader.open_record()
            assert opened is not None
            assert len(opened) == len(content)
        opened_all = data.stats.bytes
        assert opened_all < 64 << 10
        reader.seek(RecordPosition(64, 0))
        opened = reader.open_record()
        assert opened is not None
        before = data.stats.bytes
        opened.seek(1_234_567)
        assert opened.read(10) == contents[0][1_234_567:1_234_577]
        assert data.stats.bytes - before <= 8 << 10


def test_opening_does_not_depend_on_the_size_of_the_chunk(tmp_path):
    costs = []
    for size in (100_000, 1_000_000, 10_000_000):
        path = written_to(tmp_path / f"{size}.riegeli", "uncompressed,chunk_size:64M", [bytes(size)] * 2)
        with FileData(path) as data, RecordReader(data) as reader:
            reader.open_record()
            reader.open_record()
            costs.append(data.stats.bytes)
    assert max(costs) < 16 << 10


def test_a_record_across_block_headers_is_read_in_slices():
    data = BytesData(raw("blocks_uncompressed"))
    with RecordReader(data) as reader:
        whole = reader.read_record()
    with RecordReader(data) as reader:
        opened = reader.open_record()
        assert opened is not None
        assert whole is not None
        for at in (0, 65_426, 65_427, 65_428, 130_938, 130_939, 149_990):
            for size in (1, 2, 10):
                opened.seek(at)
                assert opened.read(size) == whole[at : at + size]
        assert opened.read_exact(0) == b""
        buffer = bytearray(70_000)
        opened.seek(65_000)
        assert opened.readinto(buffer) == 70_000
        assert buffer == whole[65_000:135_000]
        # Where it is in the file: three stretches, no block header in any.
        stretches = opened.data.locate(opened.start, len(opened))
        places = [(offset % BLOCK, length) for _, offset, length in stretches]
        assert places == [(109, 65_427), (24, 65_512), (24, 19_061)]


@pytest.mark.parametrize("options", ["zstd", "brotli:1", "snappy"])
def test_a_compressed_record_is_streamed(options, tmp_path):
    """Decoded as far as is read, a block at a time: the whole would not fit."""
    chooser = random.Random(options)
    contents = [chooser.randbytes(1000) * 6000, b"small", chooser.randbytes(1000) * 2000]
    path = written_to(tmp_path / "it.riegeli", f"{options},chunk_size:64M", contents)
    scratch = Scratch(str(tmp_path), 1 << 26)
    with RecordReader(path, budget="6MiB", scratch=scratch) as reader:
        for content in contents:
            opened = reader.open_record()
            assert opened is not None
            assert len(opened) == len(content)
            assert opened.read(5000) == content[:5000]
        assert reader.verified is None
        reader.seek_numeric(64)
        opened = reader.open_record()
        assert opened is not None
        done = 0
        while piece := opened.read(100_000):
            assert piece == contents[0][done : done + len(piece)]
            done += len(piece)
        assert done == len(contents[0])
        assert reader._budget.peak <= reader._budget.limit


def test_a_small_record_at_the_front_of_a_compressed_chunk_decodes_no_more(tmp_path):
    contents = [b"first", random.Random(0).randbytes(8_000_000)]
    path = written_to(tmp_path / "it.riegeli", "zstd:1,chunk_size:64M", contents)
    with FileData(path) as data, RecordReader(data) as reader:
        opened = reader.open_record()
        assert opened is not None
        assert opened.read() == b"first"
        assert data.stats.bytes < 2_000_000


# -- what is checked -------------------------------------------------------------------------------------------------


def test_verified_tells_whether_the_hash_was_checked(large):
    path, _ = large
    for verify, opening, reading in (("headers", None, None), ("touched", None, True), ("all", True, True)):
        with RecordReader(path, verify=verify) as reader:
            assert reader.verified is None
            reader.open_record()
            assert reader.verified is opening, verify
            reader.seek(RecordPosition(sound(path.read_bytes()).chunks[-1].begin, 0))
            reader.read_record()
            assert reader.verified is reading, verify


def test_a_large_chunk_that_is_read_in_steps_is_not_checked(large):
    path, contents = large
    with RecordReader(path, budget="8MiB") as reader:
        assert [record[:10] for record in reader] == [content[:10] for content in contents]
        assert reader.verified is None
    with RecordReader(path, budget="8MiB", verify="all") as reader:
        assert reader.read_record() == contents[0]
        assert reader.verified is True


def spoilt(name: str) -> tuple[bytes, bytes]:
    """A file with a wrong byte in a record of its first chunk that has any; and what it stood for."""
    file = sound(raw(name))
    chunk = next(chunk for chunk in file.chunks if chunk.num_records)
    return apply(file.data, flip(file.data, chunk.data_end - 1, 1)), file.records[0][2]


@pytest.mark.parametrize("name", ["simple_uncompressed", "simple_zstd", "transpose_uncompressed"])
def test_verify_all_raises_before_anything_is_handed_out(name):
    data, _ = spoilt(name)
    for call in (RecordReader.open_record, RecordReader.read_record):
        reader = RecordReader(data, verify="all")
        with pytest.raises(InvalidArgumentError, match="data hash mismatch"):
            call(reader)
        with pytest.raises(InvalidArgumentError):  # for good
            reader.open_record()


def test_an_opened_record_of_a_damaged_chunk_is_what_is_there():
    data, first = spoilt("simple_uncompressed")
    for verify in ("headers", "touched"):
        with RecordReader(data, verify=verify) as reader:
            opened = reader.open_record()
            assert opened is not None
            assert opened.read() == first
            assert reader.verified is None
    reader = RecordReader(data)
    with pytest.raises(InvalidArgumentError, match="data hash mismatch"):
        reader.read_record()


def test_verify_all_with_a_recovery_passes_over_the_chunk():
    data, _ = spoilt("flush")
    regions = []
    with RecordReader(data, verify="all", recovery=regions.append) as reader:
        opened = []
        while (record := reader.open_record()) is not None:
            opened.append(digest(record.read()))
    expected = records("flush")
    first = expected[0].begin
    assert opened == [record.digest for record in expected if record.begin != first]
    assert [region.begin for region in regions] == [first]


@pytest.mark.parametrize("verify", ["headers", "touched", "all"])
def test_a_cut_file_gives_whole_chunks_only(verify):
    """Opening gives nothing of a chunk that is cut: that is for the tree."""
    file = sound(raw("flush"))
    for size in (file.chunks[-1].begin + CHUNK_HEADER + 1, file.chunks[-1].end - 1):
        expected = [record for _, _, record in file.records if _ is not None][: -file.chunks[-1].num_records]
        reader = RecordReader(file.data[:size], verify=verify)
        opened = []
        while (record := reader.open_record()) is not None:
            opened.append(record.read())
        assert opened == expected
        with pytest.raises(InvalidArgumentError, match="truncated"):
            reader.close()


def test_a_damaged_stream_says_where(tmp_path):
    """A record behind the damage raises; what was decoded before is there."""
    chooser = random.Random(5)
    contents = [b"".join(b"%d," % chooser.randrange(10**6) for _ in range(30_000)) for _ in range(10)]
    path = written_to(tmp_path / "it.riegeli", "zstd:1,chunk_size:64M", contents)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for at in range(middle, middle + 100_000, 100):
        data[at] ^= 0xFF
    with RecordReader(bytes(data), verify="headers") as reader:
        opened = []
        while (record := reader.open_record()) is not None:
            opened.append(record)
        assert len(opened) == 10
        assert opened[0].read() == contents[0]
        with pytest.raises((MalformedError, GapError, EndOfDataError)):
            opened[-1].read_exact(len(opened[-1]))


def test_a_transposed_chunk_beyond_the_budget_says_what_would_do(tmp_path):
    path = written_to(tmp_path / "it.riegeli", "transpose,snappy,chunk_size:64M", [b"." * 1_000_000] * 8)
    with RecordReader(path, budget="4MiB") as reader:
        with pytest.raises(LimitError) as caught:
            reader.open_record()
        option, needed = caught.value.option.split()
        assert option == "--budget"
        with pytest.raises(LimitError):  # and it can be asked again
            reader.open_record()
    with RecordReader(path, budget=needed) as reader:
        assert len(list(reader)) == 8


def test_many_opened_records_hold_little(tmp_path):
    """A range each, and nothing of what it ranges over."""
    import tracemalloc

    path = written_to(tmp_path / "it.riegeli", "uncompressed,chunk_size:64M", [bytes(50_000)] * 200)
    with RecordReader(path) as reader:
        reader.open_record()
        tracemalloc.start()
        try:
            opened = [reader.open_record() for _ in range(199)]
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(opened) == 199
        assert held < 200_000


def test_opening_in_a_pipe():
    from tests.riegeli_fixtures import Pipe

    for name in ("simple_zstd", "transpose_brotli"):
        with RecordReader(Pipe(raw(name)), assumed_pos=0) as reader:
            for known in records(name):
                opened = reader.open_record()
                assert opened is not None
                assert digest(opened.read()) == known.digest


def test_a_growing_file_is_followed_by_opening():
    data = raw("flush")
    stream = io.BytesIO(data[:150])
    with RecordReader(stream, owns_src=False) as reader:
        assert reader.open_record() is None
        stream.seek(0, io.SEEK_END)
        stream.write(data[150:])
        stream.seek(0)
        opened = []
        while (record := reader.open_record()) is not None:
            opened.append(digest(record.read()))
        assert opened == [record.digest for record in records("flush")]


def test_the_last_record_of_a_file_that_lacks_its_padding():
    """The end of the file is the end, though a chunk's positions go on behind it."""
    data = raw("many_empty_padding")[:-20]
    with RecordReader(data, recovery=lambda region: None) as reader:
        reader.seek_numeric(reader.size())
        assert reader.seek_back()
        assert str(reader.pos) == "64/3010"
