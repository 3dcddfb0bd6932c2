"""The fields of a Riegeli file's metadata (``RecordsMetadata``), for the tree, without a protobuf library.

Fields: 1 file_comment, 2 record_type_name, 3 file_descriptor (repeated), 4 record_writer_options, 5 num_records;
extensions of users from 1000 on (google/riegeli, riegeli/records/records_metadata.proto).
"""

from __future__ import annotations

from itertools import islice

from pparse.kernels.varint import MAX_BYTES_32, read_varint
from pparse.riegeli.errors import InvalidArgumentError
from pparse.tree.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.tree.node import Node

NAMES: Final = {1: "file_comment", 2: "record_type_name", 4: "record_writer_options", 5: "num_records"}
DESCRIPTORS: Final = 3
_MAX_NESTING: Final = 100
# More than any real file has; each needs an entry in memory.
MAX_FIELDS: Final = 1 << 16


def metadata_entries(node: Node, serialized: bytes) -> list[Entry]:
    """Return the children of the metadata node, or of its descriptors. Raise `InvalidArgumentError`."""
    start, end = node.start, node.end
    found = list(islice(fields(serialized), MAX_FIELDS + 1))
    if len(found) > MAX_FIELDS:
        raise InvalidArgumentError("the metadata have too many fields", got=MAX_FIELDS)
    if node.kind == "descriptors":
        files = [value for number, value in found if number == DESCRIPTORS and isinstance(value, bytes)]
        return [
            Entry(_file_name(value, ordinal), "descriptor", start, end, value) for ordinal, value in enumerate(files)
        ]
    entries: dict[str, Entry] = {}
    for number, value in found:
        name = NAMES.get(number)
        if number == DESCRIPTORS:
            entries["file_descriptor"] = Entry("file_descriptor", "descriptors", start, end)
        elif number == 5 and isinstance(value, int):
            entries["num_records"] = Entry("num_records", "int64", start, end, value - (value >> 63 << 64))
        elif name is not None and isinstance(value, bytes):
            entries[name] = Entry(name, "string", start, end, value.decode("utf-8", "replace"))
        else:
            entries[str(number)] = Entry(str(number), "extension", start, end, value)
    return list(entries.values())


def _file_name(descriptor: bytes, ordinal: int) -> str:
    """Return the name in a FileDescriptorProto (field 1)."""
    for number, value in fields(descriptor):
        if number == 1 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
    return f"#{ordinal}"


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield ``(number, value)`` of each field of a serialized message: an int, or bytes if it is length-delimited.

    Groups are skipped. Raise `InvalidArgumentError` if it is not a message.
    """
    pos, end, nesting = 0, len(message), 0
    try:
        while pos < end:
            tag, pos = read_varint(message, pos, end, MAX_BYTES_32)
            number, wire = tag >> 3, tag & 7
            value: int | bytes
            if wire == 0:
                value, pos = read_varint(message, pos, end)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                value, pos = int.from_bytes(message[pos : pos + size], "little"), pos + size
            elif wire == 2:
                length, pos = read_varint(message, pos, end)
                value, pos = message[pos : pos + length], pos + length
            elif wire == 3 and nesting < _MAX_NESTING:
                nesting += 1
                continue
            elif wire == 4 and nesting:
                nesting -= 1
                continue
            else:
                raise InvalidArgumentError(f"the metadata are not a message: wire type {wire}", offset=pos)
            if pos > end or not number:
                raise InvalidArgumentError("the metadata are not a message: a field extends beyond them", offset=pos)
            if not nesting:
                yield number, value
    except ValueError as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"the metadata are not a message: {error}") from error
