"""What a program written for the reference's Python bindings does, with files of all kinds: it needs no change.

Names and arguments are in `test_riegeli_api_names`, errors in `test_riegeli_api_errors`.
"""

from __future__ import annotations

import functools
import io

import pytest

from pparse import riegeli
from tests.riegeli_files import KINDS, WAYS, Place
from tests.rows import rows

OPTIONS = ("", "parallelism:10", "transpose", "transpose,parallelism:10,zstd", "uncompressed", "snappy,chunk_size:300")
COUNT = 23


@functools.cache
def sample_class():
    """A message type with a number, bytes, and a child of its own type."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="api/sample.proto", package="api", syntax="proto2")
    message = file.message_type.add(name="Sample")
    message.field.add(name="id", number=1, type=5, label=1)
    message.field.add(name="payload", number=2, type=12, label=1)
    message.field.add(name="child", number=3, type=11, label=1, type_name=".api.Sample")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("api.Sample"))


def message(number: int):
    Sample = sample_class()  # noqa: N806
    return Sample(id=number, payload=b"%d." % number * 50, child=Sample(id=-number, payload=b"below"))


def record(number: int) -> bytes:
    return b"%d " % number * 70


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def written(place: Place, options: str = "chunk_size:500", records=None, **more) -> list[riegeli.RecordPosition]:
    """Write records; return their positions, and that of the end."""
    dest, given = place.writing()
    positions = []
    with riegeli.RecordWriter(dest, **given, options=options, **more) as writer:
        for found in map(record, range(COUNT)) if records is None else records:
            writer.write_record(found)
            positions.append(writer.last_pos)
        writer.close()
        positions.append(writer.pos)
    return positions


def reader_of(place: Place, **more) -> riegeli.RecordReader:
    src, given = place.reading()
    return riegeli.RecordReader(src, **given, **more, salvage=False)


# -- writing and reading -----------------------------------------------------------------------------------------------


@rows("options", OPTIONS)
def test_records_come_back_at_their_positions(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    positions = written(place, options)
    with reader_of(place) as reader:
        assert reader.check_file_format() is True
        assert reader.supports_random_access is place.random_access
        for number in range(COUNT):
            assert reader.read_record() == record(number)
            assert reader.last_pos == positions[number]
            assert reader.pos.numeric > reader.last_pos.numeric
        assert reader.read_record() is None
        assert reader.pos == positions[-1]
        reader.close()
        assert reader.pos == positions[-1]
    assert positions[-1] == riegeli.RecordPosition(len(place.content), 0)


def test_positions_of_a_writer_are_known_before_the_records(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    dest, given = place.writing()
    with riegeli.RecordWriter(dest, **given, options="chunk_size:1000") as writer:
        for number in range(5):
            here = writer.pos
            writer.write_record(record(number))
            assert writer.last_pos == here
            assert writer.pos > here
        assert writer.estimated_size() > 0
        last = writer.last_pos
        writer.close()
        assert writer.last_pos == last


def test_what_many_calls_write_one_call_writes(tmp_path, kind, way):
    one, many = Place(tmp_path, "memory", way), Place(tmp_path, kind, way)
    written(one, "transpose,zstd")
    dest, given = many.writing()
    with riegeli.RecordWriter(dest, **given, options="transpose,zstd") as writer:
        writer.write_records(record(number) for number in range(COUNT))
    assert many.content == one.content
    with reader_of(many) as reader:
        assert list(reader.read_records()) == [record(number) for number in range(COUNT)]
        assert list(reader.read_records()) == []


@rows("options", OPTIONS)
def test_messages_come_back(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    dest, given = place.writing()
    with riegeli.RecordWriter(dest, **given, options=options) as writer:
        writer.write_message(message(0))
        writer.write_messages(message(number) for number in range(1, COUNT))
    with reader_of(place) as reader:
        assert reader.read_message(sample_class()) == message(0)
        assert reader.last_pos.record_index == 0
        assert list(reader.read_messages(sample_class())) == [message(number) for number in range(1, COUNT)]
        assert reader.read_message(sample_class()) is None


@rows("buffers", [{"buffer_size": 1}, {"buffer_size": 100}, {"max_buffer_size": 1, "min_buffer_size": 1}])
def test_sizes_of_buffers_change_nothing(tmp_path, kind, way, buffers):
    place = Place(tmp_path, kind, way)
    positions = written(place, **buffers)
    with reader_of(place, **buffers) as reader:
        assert list(reader.read_records()) == [record(number) for number in range(COUNT)]
        assert reader.pos == positions[-1]
    other = Place(tmp_path, "memory")
    written(other)
    assert place.content == other.content


@pytest.mark.parametrize("kind", ["memory", "unbuffered", "buffered", "remote"])
@pytest.mark.parametrize("flush_type", list(riegeli.FlushType))
def test_what_was_flushed_is_there(tmp_path, kind, way, flush_type):
    if kind == "buffered" and flush_type is riegeli.FlushType.FROM_OBJECT:
        pytest.skip("what a file object of the caller's keeps back is its own affair, unless the writer owns it")
    place = Place(tmp_path, kind, way)
    dest, given = place.writing()
    with riegeli.RecordWriter(dest, **given) as writer:
        for number in range(3):
            writer.write_record(record(number))
            writer.flush(flush_type)
            with reader_of(Still(place)) as reader:
                assert list(reader.read_records()) == [record(found) for found in range(number + 1)]
        writer.write_record(record(3))
        writer.flush()
    with reader_of(place) as reader:
        assert len(list(reader.read_records())) == 4


class Still:
    """A place as it is now, without touching the file object that is being written."""

    def __init__(self, place: Place) -> None:
        self._content = place.content

    def reading(self):
        return io.BytesIO(self._content), {}


@pytest.mark.parametrize("owned", [True, False])
def test_flushing_from_the_object_flushes_what_is_owned(owned):
    flushed = []

    class Noted(io.BytesIO):
        def flush(self) -> None:
            flushed.append(self.tell())

    writer = riegeli.RecordWriter(Noted(), owns_dest=owned)
    writer.write_record(b"x")
    writer.flush(riegeli.FlushType.FROM_OBJECT)
    assert bool(flushed) is owned
    writer.flush(riegeli.FlushType.FROM_PROCESS)
    assert flushed
    with pytest.raises(TypeError):
        writer.flush("FROM_PROCESS")


# -- appending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "transpose", "parallelism:10", "final_padding:4k"])
def test_appending_goes_on_at_the_end(tmp_path, kind, options):
    place = Place(tmp_path, kind)
    end = written(place, options)[-1]
    dest, given = place.writing("ab")
    with riegeli.RecordWriter(dest, **given, options=options) as writer:
        assert writer.pos == end
        writer.write_record(b"appended")
        assert writer.last_pos == end
    with reader_of(place) as reader:
        assert list(reader.read_records()) == [*map(record, range(COUNT)), b"appended"]
        assert reader.last_pos == end


def test_appending_with_an_assumed_position(tmp_path, kind):
    place = Place(tmp_path, kind, "assumed")
    end = written(place)[-1]
    dest, given = place.writing("ab")
    with riegeli.RecordWriter(dest, **{**given, "assumed_pos": end.chunk_begin}) as writer:
        writer.write_record(b"appended")
    with reader_of(place) as reader:
        assert list(reader.read_records())[-1] == b"appended"


def test_metadata_are_not_written_again_when_appending(tmp_path, kind):
    place = Place(tmp_path, kind)
    written(place, metadata=riegeli.RecordsMetadata(file_comment="first"))
    before = place.content
    dest, given = place.writing("ab")
    with riegeli.RecordWriter(dest, **given, metadata=riegeli.RecordsMetadata(file_comment="second")):
        pass
    assert place.content == before


# -- one way -----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_seekable_begins_at_0(tmp_path, kind):
    """Wherever it stands: it is not asked."""
    place = Place(tmp_path, kind, "one way")
    positions = written(place)
    assert positions[0] == riegeli.RecordPosition(64, 0)
    with reader_of(place) as reader:
        assert reader.pos == riegeli.RecordPosition(0, 0)
        assert reader.read_record() == record(0)
        assert reader.last_pos == positions[0]


def test_with_an_assumed_position_a_file_is_not_asked(tmp_path, kind):
    place = Place(tmp_path, kind, "assumed")
    positions = written(place)
    src, given = place.reading()
    src.read(positions[3].chunk_begin)
    with riegeli.RecordReader(src, **{**given, "assumed_pos": positions[3].chunk_begin}) as reader:
        assert reader.supports_random_access is False
        assert reader.read_record() == record(3)
        assert reader.last_pos == positions[3]


@pytest.mark.parametrize("way", ["one way", "assumed"])
def test_without_random_access_there_is_no_size_and_no_way_back(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    positions = written(place)
    with reader_of(place) as reader:
        for number in range(12):
            assert reader.read_record() == record(number)
        calls = (
            reader.size,
            reader.seek_back,
            lambda: reader.seek(positions[0]),
            lambda: reader.seek_numeric(positions[3].numeric),
            lambda: reader.search_for_record(lambda found: 0),
        )
        for call in calls:
            with pytest.raises(riegeli.UnimplementedError):
                call()
        assert reader.read_record() == record(12)  # it is as it was


@pytest.mark.parametrize("way", ["one way", "assumed"])
@rows("options", OPTIONS)
def test_without_random_access_there_is_a_way_forwards(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    positions = written(place, options)
    for seek in (
        lambda reader, position: reader.seek(position),
        lambda reader, position: reader.seek_numeric(position.numeric),
    ):
        with reader_of(place) as reader:
            for number in (0, 3, 3, 7, COUNT - 1):
                seek(reader, positions[number])
                assert reader.pos == positions[number]
                assert reader.read_record() == record(number)
                assert reader.last_pos == positions[number]
                seek(reader, positions[number])  # in the chunk at hand there is a way back
            seek(reader, positions[-1])
            assert reader.read_record() is None
        beyond = riegeli.RecordPosition(positions[-1].chunk_begin + 100, 0)
        with reader_of(place, recovery=lambda region: None) as reader:
            seek(reader, beyond)
            assert reader.read_record() is None
        with pytest.raises(riegeli.InvalidArgumentError), reader_of(place) as reader:
            seek(reader, beyond)


@pytest.mark.parametrize("method", ["readinto1", "readinto", "read1", "read"])
@pytest.mark.parametrize("way", ["sought", "one way"])
def test_one_way_to_read_is_enough(tmp_path, method, way):
    place = Place(tmp_path, "memory")
    written(place)
    content = io.BytesIO(place.content)

    class Narrow:
        def seekable(self) -> bool:
            return way == "sought"

        def __getattr__(self, name: str):
            if name in ("readinto1", "readinto", "read1", "read") and name != method:
                raise AttributeError(name)
            return getattr(content, name)

    with riegeli.RecordReader(Narrow(), owns_src=False) as reader:
        assert list(reader.read_records()) == [record(number) for number in range(COUNT)]


def test_a_file_is_touched_when_it_is_read_and_not_before():
    class Noted(io.BytesIO):
        def seek(self, *args: int) -> int:
            raise KeyError("seek")

    reader = riegeli.RecordReader(Noted(b"Riegeli"))
    with pytest.raises(KeyError, match="seek"):
        reader.size()


# -- positions ---------------------------------------------------------------------------------------------------------

SEEKS = (0, 7, 8, 3, 3, COUNT - 1, 12)


@rows("options", OPTIONS)
def test_seeking_to_positions(tmp_path, kind, options):
    place = Place(tmp_path, kind)
    positions = written(place, options)
    with reader_of(place) as reader:
        for number in SEEKS:
            reader.seek(positions[number])
            assert reader.pos == positions[number]
            assert reader.read_record() == record(number)
            assert reader.last_pos == positions[number]
            reader.seek_numeric(positions[number].numeric)
            assert reader.pos == positions[number]
            assert reader.read_record() == record(number)
        reader.seek(positions[-1])
        assert reader.read_record() is None


@rows("number", range(0, COUNT, 4))
@rows("options", OPTIONS)
def test_the_position_after_seeking_and_closing_is_the_records(tmp_path, kind, options, number):
    place = Place(tmp_path, kind)
    positions = written(place, options)
    for move in (
        lambda reader: reader.seek(positions[number]),
        lambda reader: reader.seek_numeric(positions[number].numeric),
        lambda reader: (reader.seek(positions[number + 1]), reader.seek_back()),
    ):
        reader = reader_of(place)
        move(reader)
        reader.close()
        assert reader.pos == positions[number]
        reader.close()
        assert reader.pos == positions[number]


@rows("options", OPTIONS)
def test_going_back_record_by_record(tmp_path, kind, options):
    place = Place(tmp_path, kind)
    positions = written(place, options)
    with reader_of(place) as reader:
        reader.seek_numeric(reader.size())
        for number in reversed(range(COUNT)):
            assert reader.seek_back() is True
            assert reader.pos == positions[number]
            assert reader.read_record() == record(number)
            assert reader.seek_back() is True
        assert reader.seek_back() is False
        assert reader.read_record() == record(0)


@rows("options", OPTIONS)
def test_the_size_of_the_file(tmp_path, kind, options):
    place = Place(tmp_path, kind)
    written(place, options)
    with reader_of(place) as reader:
        reader.read_record()
        here = reader.pos
        assert reader.size() == len(place.content)
        assert reader.pos == here


def test_positions_are_ordered_values_with_texts_and_bytes(tmp_path):
    positions = written(Place(tmp_path, "memory"))
    assert sorted(positions, key=riegeli.RecordPosition.to_bytes) == sorted({*positions}) == positions
    for position in positions:
        assert riegeli.RecordPosition.from_str(str(position)) == position
        assert riegeli.RecordPosition.from_bytes(position.to_bytes()) == position
        assert position.numeric == position.chunk_begin + position.record_index
        assert repr(position) == f"RecordPosition({position.chunk_begin}, {position.record_index})"
    assert len({*positions, *positions}) == len(positions)
    assert positions[0] != "64/0"


# -- searching ---------------------------------------------------------------------------------------------------------


def order(wanted: int):
    return lambda number: (number > wanted) - (number < wanted)


@rows("wanted", [0, 7, COUNT - 1])
@rows("options", OPTIONS)
def test_searching_for_a_record(tmp_path, kind, options, wanted):
    place = Place(tmp_path, kind)
    positions = written(place, options)
    with reader_of(place) as reader:
        found = reader.search_for_record(lambda found: order(wanted)(int(found.split()[0])))
        assert (found, reader.pos) == (0, positions[wanted])
        assert reader.read_record() == record(wanted)
        assert reader.search_for_record(lambda found: -1) == -1
        assert reader.read_record() is None
        assert reader.search_for_record(lambda found: 1) == 1
        assert reader.pos == positions[0]
        assert reader.search_for_record(lambda found: None) is None


@rows("wanted", [0, 7, COUNT - 1])
@rows("options", OPTIONS)
def test_searching_for_a_message(tmp_path, kind, options, wanted):
    place = Place(tmp_path, kind)
    positions = written(place, options, [message(number).SerializeToString() for number in range(COUNT)])
    with reader_of(place) as reader:
        found = reader.search_for_message(sample_class(), lambda found: order(wanted)(found.id))
        assert (found, reader.pos) == (0, positions[wanted])
        assert reader.read_message(sample_class()) == message(wanted)
        assert reader.search(lambda reader: order(wanted)(reader.read_message(sample_class()).id)) == 0


def test_a_search_is_cancelled_by_stop_iteration_and_ended_by_other_exceptions(tmp_path, kind):
    place = Place(tmp_path, kind)
    written(place)

    def test(error: Exception):
        def raising(found: bytes) -> int:
            raise error

        return raising

    with reader_of(place) as reader:
        assert reader.search_for_record(test(StopIteration())) is None
        with pytest.raises(KeyError, match="mine"):
            reader.search_for_record(test(KeyError("mine")))


# -- metadata and projection -------------------------------------------------------------------------------------------


@rows("options", OPTIONS)
def test_metadata_come_back_with_the_type_of_the_records(tmp_path, kind, way, options):
    place = Place(tmp_path, kind, way)
    metadata = riegeli.RecordsMetadata(file_comment="a comment", record_writer_options=options, num_records=1)
    riegeli.set_record_type(metadata, sample_class())
    written(place, options, [message(5).SerializeToString()], metadata=metadata)
    with reader_of(place) as reader:
        found = reader.read_metadata()
        assert isinstance(found, riegeli.RecordsMetadata)
        assert found == metadata
        kind_of_record = riegeli.get_record_type(found)
        assert kind_of_record.DESCRIPTOR.full_name == "api.Sample"
        assert reader.read_message(kind_of_record).payload == message(5).payload
    with reader_of(place) as reader:
        assert reader.read_serialized_metadata() == metadata.SerializeToString()
        assert reader.read_message(sample_class()) == message(5)


def test_no_metadata_are_empty_ones(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    written(place)
    with reader_of(place) as reader:
        found = reader.read_metadata()
        assert found == riegeli.RecordsMetadata()
        assert riegeli.get_record_type(found) is None
        assert reader.read_record() == record(0)
    with reader_of(place) as reader:
        assert reader.read_serialized_metadata() == b""


def test_an_empty_file_has_nothing(tmp_path, kind, way):
    place = Place(tmp_path, kind, way)
    place.content = b""
    with reader_of(place) as reader:
        assert reader.check_file_format() is False
        assert reader.read_metadata() is None
        assert reader.read_serialized_metadata() is None
        assert reader.read_record() is None
        reader.close()
        assert reader.pos == riegeli.RecordPosition(0, 0)


@pytest.mark.parametrize("given", [bytes, bytearray, memoryview])
def test_serialized_metadata_may_be_any_bytes(tmp_path, given):
    place = Place(tmp_path, "memory")
    written(place, serialized_metadata=given(b"\x0a\x01x"))
    with reader_of(place) as reader:
        assert reader.read_metadata().file_comment == "x"


def test_metadata_are_given_once():
    with pytest.raises(TypeError):
        riegeli.RecordWriter(io.BytesIO(), metadata=riegeli.RecordsMetadata(), serialized_metadata=b"\x0a\x01x")


PROJECTIONS = {
    "one field": ([[1]], lambda sample: sample(id=7)),
    "a field below": ([[3, 1]], lambda sample: sample(child=sample(id=-7))),
    "all": ([[]], lambda sample: message(7)),
    "none": ([], lambda sample: sample()),
    "there or not": ([[2, riegeli.EXISTENCE_ONLY], [1]], lambda sample: sample(id=7, payload=b"")),
}


@rows("projection", PROJECTIONS.values(), ids=PROJECTIONS)
def test_a_projection_keeps_what_it_names(tmp_path, kind, way, projection):
    paths, expected = projection
    place = Place(tmp_path, kind, way)
    dest, given = place.writing()
    with riegeli.RecordWriter(dest, **given, options="transpose") as writer:
        writer.write_messages([message(7)] * 3)
    with reader_of(place, field_projection=paths) as reader:
        assert list(reader.read_messages(sample_class())) == [expected(sample_class())] * 3
    with reader_of(place) as reader:
        assert reader.read_message(sample_class()) == message(7)
        reader.set_field_projection(paths)
        assert reader.read_message(sample_class()) == expected(sample_class())
        reader.set_field_projection(None)
        assert reader.read_message(sample_class()) == message(7)


def test_going_forwards_passes_over_more_than_is_kept():
    """Chunks larger than what a file that is read forwards keeps in memory, without holding them."""
    memory = io.BytesIO()
    with riegeli.RecordWriter(memory, owns_dest=False, options="uncompressed,chunk_size:64M") as writer:
        positions = []
        for size in (40 << 20, 36 << 20, 5):
            writer.write_record(bytes(size))
            positions.append(writer.last_pos)
            writer.flush()
    memory.seek(0)
    for seek in ("seek", "seek_numeric"):
        with riegeli.RecordReader(memory, owns_src=False, assumed_pos=0) as reader:
            for position, size in zip(positions[1:], (36 << 20, 5), strict=True):
                getattr(reader, seek)(position if seek == "seek" else position.numeric)
                assert reader.pos == position
                record = reader.read_record()
                assert record == bytes(size)
        memory.seek(0)
