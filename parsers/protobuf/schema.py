"""Finds the schema of a message: built-in types, a FileDescriptorSet, or the metadata of a Riegeli file."""

from __future__ import annotations

from pparse.errors import MalformedError, OptionError, PathError
from pparse.protobuf.schema import Schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from pparse.limits import Limits
    from pparse.protobuf.schema import MessageType

_SHOWN: Final = 20
# RecordsMetadata: record_type_name, file_descriptor (google/riegeli: records_metadata.proto).
_TYPE_NAME, _FILE_DESCRIPTOR = 2, 3


def find_type(options: Mapping[str, object], default: str | None, limits: Limits) -> MessageType | None:
    """Return the message type that the options ``message`` and ``descriptor`` name; None if they name none.

    ``default`` is the type of a format that is a single message. ``descriptor`` is a `Schema`, the bytes of a
    FileDescriptorSet, its path, or the path of a Riegeli file whose metadata have descriptors (and name the type).
    Raise `OptionError` if the type is not found.
    """
    name = options.get("message", default)
    source = options.get("descriptor")
    if source is None:
        if name is None:
            return None
        from pparse.protos import schema as builtin_schema

        schema = builtin_schema()
        try:
            return schema.message(str(name))
        except PathError as error:
            raise OptionError(
                f"{name}: {error.reason}; give the descriptors of your own types with -O descriptor=FILE "
                "(protoc --include_imports --descriptor_set_out=FILE)"
            ) from error
    schema, named = _read(source, limits)
    name = name or named
    if name is None:
        names = sorted(schema.message_names())
        if len(names) != 1:
            shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
            raise OptionError(f"name the message type with -O message=NAME; types: {shown or 'none'}")
        name = names[0]
    return schema.message(str(name))


def _read(source: object, limits: Limits) -> tuple[Schema, str | None]:
    """Return the schema in ``source``, and the type that it names, if any."""
    if isinstance(source, Schema):
        return source, None
    if isinstance(source, bytes):
        return Schema(source), None
    from pparse.data.files import open_file
    from pparse.riegeli.chunks import FILE_SIGNATURE

    with open_file(str(source)) as data:
        try:
            if data.pread(0, len(FILE_SIGNATURE)) == FILE_SIGNATURE:
                return _from_riegeli(str(source))
            limits.check("header_bytes", data.size or 0, "the descriptor set")
            return Schema(data.read_exact(0, data.size or 0)), None
        except MalformedError as error:
            raise OptionError(f"{source} is not a FileDescriptorSet: {error.reason}") from error


def _from_riegeli(path: str) -> tuple[Schema, str | None]:
    from pparse.riegeli import RecordReader
    from pparse.riegeli.metadata import fields

    with RecordReader(path) as reader:
        metadata = reader.read_serialized_metadata() or b""
    name: str | None = None
    files: list[bytes] = []
    for number, value in fields(metadata):
        if number == _TYPE_NAME and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif number == _FILE_DESCRIPTOR and isinstance(value, bytes):
            files.append(value)
    if not files:
        raise OptionError(f"the metadata of {path} have no descriptors of its records")
    return Schema.from_descriptors(files), name
