"""Every public name of the reference's Python bindings, with its arguments, defaults, numbers and properties.

What differs is listed. More arguments, all with a default, may be ours.
"""

from __future__ import annotations

import enum
import inspect
import io
import pickle

import pytest

import pparse
from pparse import riegeli
from pparse.errors import PparseError
from pparse.riegeli.errors import BoundsError, ClosedRecordsError, HashMismatchError
from tests.rows import rows

ERRORS = {
    "CancelledError": 1,
    "UnknownError": 2,
    "InvalidArgumentError": 3,
    "DeadlineExceededError": 4,
    "NotFoundError": 5,
    "AlreadyExistsError": 6,
    "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8,
    "FailedPreconditionError": 9,
    "AbortedError": 10,
    "OutOfRangeError": 11,
    "UnimplementedError": 12,
    "InternalError": 13,
    "UnavailableError": 14,
    "DataLossError": 15,
    "UnauthenticatedError": 16,
}
BUFFERS = "min_buffer_size=4096, max_buffer_size=65536, buffer_size=None"
CALLS = {
    "RecordReader": f"(src, *, owns_src=True, assumed_pos=None, {BUFFERS}, field_projection=None, recovery=None)",
    "RecordReader.close": "(self)",
    "RecordReader.check_file_format": "(self)",
    "RecordReader.read_metadata": "(self)",
    "RecordReader.read_serialized_metadata": "(self)",
    "RecordReader.read_record": "(self)",
    "RecordReader.read_message": "(self, message_type)",
    "RecordReader.read_records": "(self)",
    "RecordReader.read_messages": "(self, message_type)",
    "RecordReader.set_field_projection": "(self, field_projection)",
    "RecordReader.seek": "(self, pos)",
    "RecordReader.seek_numeric": "(self, pos)",
    "RecordReader.seek_back": "(self)",
    "RecordReader.size": "(self)",
    "RecordReader.search": "(self, test)",
    "RecordReader.search_for_record": "(self, test)",
    "RecordReader.search_for_message": "(self, message_type, test)",
    "RecordWriter": f"(dest, *, owns_dest=True, assumed_pos=None, {BUFFERS}, options='', metadata=None, "
    "serialized_metadata=b'')",
    "RecordWriter.close": "(self)",
    "RecordWriter.write_record": "(self, record)",
    "RecordWriter.write_message": "(self, record)",
    "RecordWriter.write_records": "(self, records)",
    "RecordWriter.write_messages": "(self, records)",
    "RecordWriter.flush": "(self, flush_type=FlushType.FROM_PROCESS)",
    "RecordWriter.estimated_size": "(self)",
    "RecordPosition": "(chunk_begin, record_index)",
    "RecordPosition.to_bytes": "(self)",
    "RecordPosition.from_bytes": "(serialized)",
    "RecordPosition.from_str": "(serialized)",
    "SkippedRegion": "(begin, end, message)",
    "set_record_type": "(metadata, message_type)",
    "get_record_type": "(metadata)",
}
PROPERTIES = {
    "RecordReader": ("src", "last_pos", "pos", "supports_random_access"),
    "RecordWriter": ("dest", "last_pos", "pos"),
    "RecordPosition": ("chunk_begin", "record_index", "numeric"),
    "SkippedRegion": ("begin", "end", "length", "message"),
}
MANAGERS = ("RecordReader", "RecordWriter")


def found(name: str):
    value = riegeli
    for part in name.split("."):
        value = getattr(value, part)
    return value


def bare(parameter: inspect.Parameter) -> str:
    """A parameter without its annotation, and an enum's member by its name."""
    default = parameter.default
    if isinstance(default, enum.Enum):
        return f"{parameter.name}={default}"
    return str(parameter.replace(annotation=inspect.Parameter.empty))


def arguments(call: str) -> tuple[list[str], list[str]]:
    """The arguments that may be given by position, and those by name only."""
    before, _, after = call.strip("()").partition("*")
    return [part for part in before.split(", ") if part], [part for part in after.split(", ") if part]


def differences(name: str, expected: str) -> list[str]:
    parameters = inspect.signature(found(name)).parameters.values()
    ours = [
        [bare(each) for each in parameters if (each.kind is each.KEYWORD_ONLY) is by_name] for by_name in (False, True)
    ]
    wanted = arguments(expected)
    more = [each for each in parameters if bare(each) not in wanted[0] + wanted[1]]
    told = [f"{name}: {word} is not there" for side in (0, 1) for word in wanted[side] if word not in ours[side]]
    told += [f"{name}: {each.name} has no default" for each in more if each.default is each.empty]
    if ours[0][: len(wanted[0])] != wanted[0]:
        told.append(f"{name}: {ours[0]} instead of {wanted[0]}")
    return told


# What differs: nothing that a program would have to be changed for.
DIFFERENT = [
    "RecordPosition: record_index is not there",  # it has a default here
    "RecordPosition: ['chunk_begin', 'record_index=0'] instead of ['chunk_begin', 'record_index']",
]


def test_every_call_has_its_arguments_and_defaults():
    assert [difference for name, call in CALLS.items() for difference in differences(name, call)] == DIFFERENT


def test_the_table_notices_what_differs():
    assert differences("RecordReader.seek", "(self, position)") == [
        "RecordReader.seek: position is not there",
        "RecordReader.seek: pos has no default",
        "RecordReader.seek: ['self', 'pos'] instead of ['self', 'position']",
    ]
    assert differences("RecordWriter.flush", "(self, flush_type=FlushType.FROM_OBJECT)") != []
    assert differences("RecordWriter", "(dest, owns_dest=True)") != []


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_is_one_and_read_only(name):
    for word in PROPERTIES[name]:
        found_property = found(f"{name}.{word}")
        assert isinstance(found_property, property), word
        assert found_property.fset is None, word


@pytest.mark.parametrize("name", MANAGERS)
def test_what_is_opened_is_a_context_manager(name):
    memory = io.BytesIO()
    opened = found(name)(memory)
    with opened as entered:
        assert entered is opened
    assert memory.closed


def test_kinds_of_flushes():
    kinds = {"FROM_OBJECT": 0, "FROM_PROCESS": 1, "FROM_MACHINE": 2}
    assert {kind.name: kind.value for kind in riegeli.FlushType} == kinds
    assert issubclass(riegeli.FlushType, enum.Enum)


def test_names_beside_the_classes_are_those_of_the_bindings():
    assert riegeli.EXISTENCE_ONLY == 0
    fields = {field.name: field.number for field in riegeli.RecordsMetadata.DESCRIPTOR.fields}
    assert fields == {
        "file_comment": 1,
        "record_type_name": 2,
        "file_descriptor": 3,
        "record_writer_options": 4,
        "num_records": 5,
    }
    assert not riegeli.RecordsMetadata().HasField("file_comment")


def test_every_name_is_exported():
    names = {name.partition(".")[0] for name in CALLS} | set(ERRORS)
    names |= {"RiegeliError", "FlushType", "EXISTENCE_ONLY", "RecordsMetadata"}
    assert names <= set(riegeli.__all__) == set(dir(riegeli))
    for name in riegeli.__all__:
        assert getattr(riegeli, name) is not None


# -- errors ------------------------------------------------------------------------------------------------------------


@rows("name", ERRORS)
def test_errors_have_their_names_and_codes(name):
    kind = found(name)
    error = kind("a reason")
    assert (kind.__name__, error.code, str(error)) == (name, ERRORS[name], "a reason")
    assert issubclass(kind, riegeli.RiegeliError)
    assert issubclass(kind, PparseError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (kind, ERRORS[name], "a reason")


def below(kind: type) -> set[type]:
    return {kind, *(found for child in kind.__subclasses__() for found in below(child))}


def test_there_is_one_name_for_each_error():
    public = {name: value for name in riegeli.__all__ if inspect.isclass(value := getattr(riegeli, name))}
    errors = {name: kind for name, kind in public.items() if issubclass(kind, Exception)}
    assert set(errors) == {*ERRORS, "RiegeliError"}
    assert len(set(errors.values())) == len(errors)
    assert below(riegeli.RiegeliError) >= set(errors.values())
    for kind in below(riegeli.RiegeliError):
        assert kind.__name__.endswith("Error") or not kind.__module__.endswith("errors")


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (riegeli.InvalidArgumentError, pparse.MalformedError),
        (riegeli.InvalidArgumentError, ValueError),
        (riegeli.CancelledError, pparse.CancelledError),
        (HashMismatchError, riegeli.InvalidArgumentError),
        (BoundsError, riegeli.InvalidArgumentError),
        (BoundsError, OverflowError),
        (ClosedRecordsError, riegeli.FailedPreconditionError),
        (ClosedRecordsError, pparse.ClosedError),
    ],
)
def test_an_error_is_what_the_package_calls_it_too(kind, also):
    assert issubclass(kind, also)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "index"), [(-1, 0), (0, -1), (1 << 64, 0), ((1 << 64) - 1, 1), (0, 1 << 64)])
def test_a_position_that_is_too_large_or_negative_is_an_overflow(begin, index):
    with pytest.raises(OverflowError):
        riegeli.RecordPosition(begin, index)


@pytest.mark.parametrize("value", ["64", 64.0, None, b"64"])
def test_a_position_is_made_of_integers(value):
    for arguments in ((value, 0), (0, value)):
        with pytest.raises(TypeError):
            riegeli.RecordPosition(*arguments)
    with pytest.raises(TypeError):
        riegeli.SkippedRegion(value, 100, "a reason")


@pytest.mark.parametrize("text", ["", "64", "64/", "/1", "64/1/2", "-64/1", "a/b", f"{1 << 64}/0"])
def test_a_text_that_is_no_position_is_an_invalid_argument(text):
    with pytest.raises(riegeli.InvalidArgumentError):
        riegeli.RecordPosition.from_str(text)


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x01\x02\x03", b"\xff"])
def test_bytes_that_are_no_position_are_an_invalid_argument(raw):
    with pytest.raises(riegeli.InvalidArgumentError):
        riegeli.RecordPosition.from_bytes(raw)


def test_positions_compare_with_positions_only():
    position = riegeli.RecordPosition(64, 3)
    assert position < riegeli.RecordPosition(65, 0) <= riegeli.RecordPosition(65, 0)
    assert riegeli.RecordPosition(65, 0) > position >= position
    assert position != 67
    assert position != (64, 3)
    with pytest.raises(TypeError):
        position < 67  # noqa: B015
    with pytest.raises(AttributeError):
        position.chunk_begin = 1
    assert pickle.loads(pickle.dumps(position)) == position


@pytest.mark.parametrize(
    ("projection", "error"),
    [
        ([[1 << 29]], OverflowError),
        ([[-1]], OverflowError),
        ([["1"]], TypeError),
        ([[1.0]], TypeError),
        ([1], TypeError),
        (1, TypeError),
        ([[0, 1]], riegeli.InvalidArgumentError),
    ],
)
def test_projections_that_are_none(projection, error):
    reader = riegeli.RecordReader(io.BytesIO())
    with pytest.raises(error):
        reader.set_field_projection(projection)
    with pytest.raises(error):
        riegeli.RecordReader(io.BytesIO(), field_projection=projection)


@pytest.mark.parametrize("options", ["unknown", "zstd:99", "brotli,zstd", "transpose:maybe", "chunk_size:-1"])
def test_options_that_are_none_are_an_invalid_argument(options):
    with pytest.raises(riegeli.InvalidArgumentError):
        riegeli.RecordWriter(io.BytesIO(), options=options)


@pytest.mark.parametrize("record", ["text", 5, None, [1]])
def test_a_record_is_made_of_bytes(record):
    writer = riegeli.RecordWriter(io.BytesIO())
    with pytest.raises(TypeError):
        writer.write_record(record)


@pytest.mark.parametrize("pos", [64, "64/0", (64, 0), None])
def test_seeking_takes_a_position(pos):
    with pytest.raises(TypeError):
        riegeli.RecordReader(io.BytesIO()).seek(pos)
