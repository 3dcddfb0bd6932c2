"""The Riegeli/records file format: reader and writer, with the names of the reference's Python bindings.

::

    with riegeli.RecordReader("records.riegeli") as reader:
        for record in reader:
            ...

    with riegeli.RecordWriter("records.riegeli", options="zstd") as writer:
        writer.write_record(b"...")

Names are imported when first asked for.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.riegeli.errors import (
        AbortedError,
        AlreadyExistsError,
        CancelledError,
        DataLossError,
        DeadlineExceededError,
        FailedPreconditionError,
        InternalError,
        InvalidArgumentError,
        NotFoundError,
        OutOfRangeError,
        PermissionDeniedError,
        ResourceExhaustedError,
        RiegeliError,
        UnauthenticatedError,
        UnavailableError,
        UnimplementedError,
        UnknownError,
    )
    from pparse.riegeli.metadata import RecordsMetadata, get_record_type, set_record_type
    from pparse.riegeli.reader import RecordReader
    from pparse.riegeli.records import RecordPosition, SkippedRegion
    from pparse.riegeli.transposed import EXISTENCE_ONLY
    from pparse.riegeli.writer import FlushType, RecordWriter, RecordWriterOptions, parse_options

__all__ = [
    "EXISTENCE_ONLY",
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FlushType",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "RecordPosition",
    "RecordReader",
    "RecordWriter",
    "RecordWriterOptions",
    "RecordsMetadata",
    "ResourceExhaustedError",
    "RiegeliError",
    "SkippedRegion",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "get_record_type",
    "parse_options",
    "set_record_type",
]

_NAMES = {
    "metadata": "RecordsMetadata get_record_type set_record_type",
    "reader": "RecordReader",
    "records": "RecordPosition SkippedRegion",
    "transposed": "EXISTENCE_ONLY",
    "writer": "FlushType RecordWriter RecordWriterOptions parse_options",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
# The other names are those of errors.
__getattr__ = lazy_names(__name__, {name: _MODULES.get(name, "errors") for name in __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
