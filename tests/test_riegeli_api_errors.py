"""What goes wrong, as the reference's Python bindings tell of it: errors, recovery, exceptions of file objects."""

from __future__ import annotations

import io
import random
from functools import cache

import pytest
from google.protobuf.message import DecodeError

import pparse
from pparse import riegeli
from tests.riegeli_files import KINDS, WAYS, Place
from tests.rows import rows
from tests.test_riegeli_api import message, reader_of, sample_class, written

# One that no message begins with, and one that breaks off.
BROKEN = (b"\xff\xff\xff", b"\x12\x05ab")
OPTIONS = ("", "parallelism:10", "transpose", "uncompressed,chunk_size:100")
COUNT = 9


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


# -- messages that do not parse ----------------------------------------------------------------------------------------


def with_broken(place: Place, options: str, *broken: int) -> list[riegeli.RecordPosition]:
    records = [message(number).SerializeToString() for number in range(COUNT)]
    for number in broken:
        records[number] = BROKEN[number % 2]
    return written(place, options, records)


@rows("broken", [(0,), (4,), (COUNT - 1,), (3, 4), tuple(range(COUNT))], ids=str)
@rows("options", OPTIONS)
def test_a_record_that_does_not_parse_is_a_decode_error_and_the_next_read_gives_the_next(
    tmp_path, kind, way, options, broken
):
    place = Place(tmp_path, kind, way)
    positions = with_broken(place, options, *broken)
    with reader_of(place) as reader:
        for number in range(COUNT):
            if number in broken:
                with pytest.raises(DecodeError):
                    reader.read_message(sample_class())
            else:
                assert reader.read_message(sample_class()) == message(number)
            assert reader.last_pos == positions[number]
        assert reader.read_message(sample_class()) is None
        reader.close()
        assert reader.pos == positions[-1]


@rows("options", OPTIONS)
def test_an_iterator_over_messages_goes_on_after_one_that_does_not_parse(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    with_broken(place, options, 2)
    with reader_of(place) as reader:
        messages = reader.read_messages(sample_class())
        found = [next(messages), next(messages)]
        with pytest.raises(DecodeError):
            next(messages)
        assert [*found, *messages] == [message(number) for number in range(COUNT) if number != 2]


def test_an_iterator_over_records_repeats_the_error_that_ended_reading(tmp_path):
    place = Place(tmp_path, "memory")
    positions = written(place, "uncompressed,chunk_size:100", [b"x" * 90] * 4)
    spoil(place, positions[2].chunk_begin + 60)
    reader = reader_of(place)
    records = reader.read_records()
    assert [next(records), next(records)] == [b"x" * 90] * 2
    for _ in range(2):
        with pytest.raises(riegeli.InvalidArgumentError):
            next(records)


@rows("broken", [(0,), (4,), (COUNT - 1,), (3, 4), tuple(range(COUNT))], ids=str)
@rows("options", OPTIONS)
def test_a_recovery_skips_the_records_that_do_not_parse_and_them_alone(tmp_path, kind, way, options, broken):
    place = Place(tmp_path, kind, way)
    numbers = [position.numeric for position in with_broken(place, options, *broken)]
    regions: list[riegeli.SkippedRegion] = []
    with reader_of(place, recovery=regions.append) as reader:
        found = list(reader.read_messages(sample_class()))
    assert found == [message(number) for number in range(COUNT) if number not in broken]
    assert [(region.begin, region.end) for region in regions] == [(numbers[at], numbers[at + 1]) for at in broken]
    for region in regions:
        assert region.length == region.end - region.begin
        assert str(region) == f"[{region.begin}..{region.end}): {region.message}"
        assert region.message


def stop(region: riegeli.SkippedRegion) -> None:
    raise StopIteration


def refuse(region: riegeli.SkippedRegion) -> None:
    raise KeyError("mine")


@rows("options", OPTIONS)
def test_a_recovery_that_stops_ends_the_call_and_the_next_goes_on_behind(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    positions = with_broken(place, options, 3)
    with reader_of(place, recovery=stop) as reader:
        assert list(reader.read_messages(sample_class())) == [message(number) for number in range(3)]
        assert reader.pos.numeric == positions[4].numeric
        assert reader.read_message(sample_class()) == message(4)
        assert list(reader.read_messages(sample_class())) == [message(number) for number in range(5, COUNT)]


@rows("options", OPTIONS)
def test_other_exceptions_of_a_recovery_come_to_the_caller(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    with_broken(place, options, 0)
    with reader_of(place, recovery=refuse) as reader, pytest.raises(KeyError, match="mine"):
        reader.read_message(sample_class())


def test_a_search_among_messages_tells_of_one_that_does_not_parse(tmp_path, kind):
    place = Place(tmp_path, kind)
    with_broken(place, "", *range(COUNT))
    with reader_of(place) as reader, pytest.raises(DecodeError):
        reader.search_for_message(sample_class(), lambda found: 0)


# -- metadata that do not parse ----------------------------------------------------------------------------------------


def with_broken_metadata(place: Place, options: str) -> list[riegeli.RecordPosition]:
    return written(place, options, [b"first", b"second"], serialized_metadata=b"\x0a\x7fcut")


@rows("options", OPTIONS)
def test_metadata_that_do_not_parse_are_a_decode_error_and_the_records_are_there(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    positions = with_broken_metadata(place, options)
    with reader_of(place) as reader:
        with pytest.raises(DecodeError):
            reader.read_metadata()
        assert reader.pos.numeric == positions[0].numeric
        assert list(reader.read_records()) == [b"first", b"second"]


@rows("options", OPTIONS)
def test_a_recovery_skips_metadata_that_do_not_parse(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    positions = with_broken_metadata(place, options)
    regions: list[riegeli.SkippedRegion] = []
    with reader_of(place, recovery=regions.append) as reader:
        assert reader.read_metadata() == riegeli.RecordsMetadata()
        assert list(reader.read_records()) == [b"first", b"second"]
    assert [(region.begin, region.end) for region in regions] == [(64, positions[0].chunk_begin)]


@rows("options", OPTIONS)
def test_a_recovery_that_stops_leaves_no_metadata(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    with_broken_metadata(place, options)
    with reader_of(place, recovery=stop) as reader:
        assert reader.read_metadata() is None
        assert list(reader.read_records()) == [b"first", b"second"]


@pytest.mark.parametrize("recovery", [stop, lambda region: None], ids=["stops", "goes on"])
def test_a_metadata_chunk_that_is_damaged_is_recovered_like_one_that_does_not_parse(tmp_path, kind, way, recovery):
    place = Place(tmp_path, kind, way)
    written(place, "uncompressed", [b"first"], metadata=riegeli.RecordsMetadata(file_comment="a comment"))
    spoil(place, 64 + 45)
    with reader_of(place, recovery=recovery) as reader:
        assert reader.read_metadata() == (None if recovery is stop else riegeli.RecordsMetadata())
        assert list(reader.read_records()) == [b"first"]


# -- damaged files -----------------------------------------------------------------------------------------------------


def spoil(place: Place, at: int) -> None:
    content = bytearray(place.content)
    content[at] ^= 1
    place.content = bytes(content)


def test_an_invalid_file_is_an_invalid_argument(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    place.content = b"no Riegeli file at all, whatever its name may say " * 10
    for call in ("check_file_format", "read_metadata", "read_serialized_metadata", "read_record"):
        with pytest.raises(riegeli.InvalidArgumentError) as caught, reader_of(place) as reader:
            getattr(reader, call)()
        assert caught.value.code == 3
        assert isinstance(caught.value, riegeli.RiegeliError)
        assert isinstance(caught.value, pparse.MalformedError)


def test_damage_ends_reading_and_closing_repeats_it(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    positions = written(place, "uncompressed,chunk_size:100", [b"x" * 90] * 3)
    spoil(place, positions[1].chunk_begin + 60)
    reader = reader_of(place)
    assert reader.read_record() == b"x" * 90
    for call in (reader.read_record, reader.read_record, reader.close):
        with pytest.raises(riegeli.InvalidArgumentError):
            call()
    assert reader.pos == positions[1]


def test_a_recovery_skips_a_damaged_chunk_and_may_stop_there(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    contents = [bytes((number,)) * 90 for number in range(4)]
    positions = written(place, "uncompressed,chunk_size:100", contents)
    spoil(place, positions[1].chunk_begin + 60)
    regions: list[riegeli.SkippedRegion] = []
    with reader_of(place, recovery=regions.append) as reader:
        assert list(reader.read_records()) == [contents[0], *contents[2:]]
    expected = [(positions[1].chunk_begin, positions[2].chunk_begin)]
    assert [(region.begin, region.end) for region in regions] == expected
    with reader_of(place, recovery=stop) as reader:
        assert list(reader.read_records()) == contents[:1]
        assert reader.pos == positions[2]
        assert list(reader.read_records()) == contents[2:]


def test_a_file_that_is_cut_ends_and_closing_tells(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    positions = written(place, "uncompressed,chunk_size:100", [b"x" * 90] * 3)
    place.content = place.content[:-7]
    reader = reader_of(place)
    assert list(reader.read_records()) == [b"x" * 90] * 2
    with pytest.raises(riegeli.InvalidArgumentError):
        reader.close()
    regions: list[riegeli.SkippedRegion] = []
    with reader_of(place, recovery=regions.append) as reader:
        assert list(reader.read_records()) == [b"x" * 90] * 2
        assert regions == []
    assert [(region.begin, region.end) for region in regions] == [(positions[2].chunk_begin, len(place.content))]


def test_seeking_beyond_the_end_is_an_invalid_argument(tmp_path, kind):
    place = Place(tmp_path, kind)
    end = written(place)[-1].numeric
    beyond = riegeli.RecordPosition(end + 100, 0)
    for move in (lambda reader: reader.seek_numeric(end + 1), lambda reader: reader.seek(beyond)):
        with pytest.raises(riegeli.InvalidArgumentError), reader_of(place) as reader:
            move(reader)


# -- states ------------------------------------------------------------------------------------------------------------


def test_metadata_are_at_the_beginning_only(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    written(place)
    with reader_of(place) as reader:
        reader.read_record()
        for call in (reader.read_metadata, reader.read_serialized_metadata):
            with pytest.raises(riegeli.FailedPreconditionError) as caught:
                call()
            assert caught.value.code == 9
        assert reader.read_record() is not None


def test_there_is_no_last_position_before_the_first_record(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    dest, given = place.writing()
    with riegeli.RecordWriter(dest, **given) as writer, pytest.raises(riegeli.FailedPreconditionError):
        writer.last_pos  # noqa: B018
    with reader_of(place) as reader, pytest.raises(riegeli.FailedPreconditionError):
        reader.last_pos  # noqa: B018


def test_what_is_closed_says_so_by_both_names(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    written(place)
    dest, given = Place(tmp_path, "memory").writing()
    writer = riegeli.RecordWriter(dest, **given)
    reader = reader_of(place)
    for closed in (writer, reader, writer, reader):
        closed.close()
    calls = (
        lambda: writer.write_record(b"x"),
        lambda: writer.write_records([b"x"]),
        lambda: writer.write_message(message(1)),
        writer.flush,
        reader.read_record,
        reader.read_metadata,
        reader.read_serialized_metadata,
        reader.check_file_format,
        lambda: reader.read_message(sample_class()),
        lambda: next(reader.read_records()),
        lambda: next(reader.read_messages(sample_class())),
        lambda: reader.seek_numeric(0),
        lambda: reader.seek(riegeli.RecordPosition(0, 0)),
        reader.seek_back,
        reader.size,
        lambda: reader.search_for_record(lambda found: 0),
    )
    for call in calls:
        for error in (riegeli.FailedPreconditionError, pparse.ClosedError):
            with pytest.raises(error):
                call()


@pytest.mark.parametrize("owned", [True, False])
def test_who_owns_a_file_closes_it(owned):
    memory = io.BytesIO()
    with riegeli.RecordWriter(memory, owns_dest=owned) as writer:
        assert writer.dest is memory
        writer.write_record(b"x")
        content = bytearray()
        writer.flush()
        content += memory.getvalue()
    assert memory.closed is owned
    source = io.BytesIO(content)
    with riegeli.RecordReader(source, owns_src=owned) as reader:
        assert reader.src is source
        assert reader.read_record() == b"x"
    assert source.closed is owned


# -- exceptions of the file object -------------------------------------------------------------------------------------

FAILURES = [
    OSError(28, "the disk is full"),
    ValueError("I/O operation on closed file"),
    EOFError("nothing more"),
    KeyError("a key"),
    riegeli.NotFoundError("of another library's"),
]


class Failing(io.BytesIO):
    """A file whose ``method`` raises ``error`` from the call on that ``calls`` says."""

    def __init__(self, content: bytes, method: str, error: Exception, calls: int = 0) -> None:
        super().__init__(content)
        self.left = calls
        self.method, self.error = method, error
        setattr(self, method, self._fail)
        self._sound = getattr(io.BytesIO, method)

    def _fail(self, *args: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self._sound(self, *args)


@pytest.fixture(params=FAILURES, ids=lambda error: type(error).__name__)
def error(request):
    return request.param


@rows("method", ["seekable", "tell"])
def test_what_a_file_raises_at_the_beginning_comes_out_unchanged(method, error):
    for made in (riegeli.RecordReader, riegeli.RecordWriter):
        with pytest.raises(type(error)) as caught:
            made(Failing(b"", method, error))
        assert caught.value is error


@cache
def noise_file(options):
    """Return a file of 20 records."""
    memory = io.BytesIO()
    with riegeli.RecordWriter(memory, owns_dest=False, options=options) as writer:
        writer.write_records(random.Random(number).randbytes(30_000) for number in range(20))
    return memory.getvalue()


@rows("options", ["uncompressed", "brotli", "transpose", "zstd,chunk_size:100k"])
@rows("recovery", [None, lambda region: None], ids=["strict", "recovering"])
@rows("budget", ["64MiB", "1MiB"])
@rows("calls", [0, 1, 2])
def test_what_a_file_raises_when_read_comes_out_unchanged(options, recovery, budget, calls, error):
    regions = []
    given = {} if recovery is None else {"recovery": regions.append}
    file = Failing(noise_file(options), "seek", error, calls)
    reader = riegeli.RecordReader(file, budget=budget, salvage=False, **given)
    with pytest.raises(type(error)) as caught:
        list(reader.read_records())
    assert caught.value is error
    assert regions == []


@rows("way", ["sought", "one way"])
def test_what_read_raises_comes_out_unchanged(way, error):
    class File(io.BytesIO):
        def seekable(self) -> bool:
            return way == "sought"

        def readinto(self, buffer: object) -> int:
            raise error

    for call in ("read_record", "read_metadata", "read_serialized_metadata", "check_file_format", "open_record"):
        reader = riegeli.RecordReader(File(b"x" * 100), recovery=lambda region: None)
        with pytest.raises(type(error)) as caught:
            getattr(reader, call)()
        assert caught.value is error


@rows("options", ["", "parallelism:10"])
@rows("method", ["write", "flush"])
def test_what_a_file_raises_when_written_comes_out_unchanged_each_time(options, method, error):
    writer = riegeli.RecordWriter(Failing(b"", method, error), options=options)
    writer.write_record(b"x")
    for call in (writer.flush, writer.flush, lambda: writer.write_record(b"y"), writer.close):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_what_a_file_raises_at_closing_comes_out_unchanged(error):
    memory = io.BytesIO()
    with riegeli.RecordWriter(memory, owns_dest=False) as writer:
        writer.write_record(b"x")
    for closed in (
        riegeli.RecordReader(Failing(memory.getvalue(), "close", error)),
        riegeli.RecordWriter(Failing(b"", "close", error)),
    ):
        with pytest.raises(type(error)) as caught:
            closed.close()
        assert caught.value is error


def test_an_exception_in_the_block_is_not_replaced_by_one_of_closing(error):
    cut = riegeli.RecordReader(b"\x83\xaf", recovery=refuse)
    assert cut.read_record() is None
    for entered in (
        riegeli.RecordWriter(Failing(b"", "write", error)),
        riegeli.RecordWriter(Failing(b"", "close", error)),
        riegeli.RecordReader(Failing(b"", "close", error)),
        cut,
    ):
        with pytest.raises(IndexError, match="of the block"), entered:
            raise IndexError("of the block")


def test_a_writer_of_which_a_file_takes_pieces_writes_them_all():
    class Slow(io.BytesIO):
        def write(self, piece: bytes) -> int:
            return super().write(piece[:1000])

    file = Slow()
    with riegeli.RecordWriter(file, owns_dest=False, options="uncompressed") as writer:
        writer.write_records([b"x" * 10_000] * 10)
    assert list(riegeli.RecordReader(file.getvalue())) == [b"x" * 10_000] * 10


def test_a_file_that_says_it_wrote_more_than_it_was_given_is_refused():
    class Boasting(io.BytesIO):
        def write(self, piece: bytes) -> int:
            return super().write(piece) + 1

    writer = riegeli.RecordWriter(Boasting())
    with pytest.raises(riegeli.InternalError):
        writer.flush()
