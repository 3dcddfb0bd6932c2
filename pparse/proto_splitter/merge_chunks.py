"""Chunks for `pparse.proto_splitter.merger`: given ones or those of a ``.cpb``, and the metadata of these.

A ``.cpb`` is a Riegeli/records file: the chunks first, then a ChunkMetadata message as the last record. A chunk is
found by the numeric position of its record.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from pparse.budget import MemoryBudget
from pparse.errors import EndOfDataError, MalformedError, PparseError, UnsupportedError
from pparse.limits import Limits, format_size
from pparse.parsers.cpb.metadata import BYTES, MESSAGE, UNSET, check_versions
from pparse.parsers.cpb.moved import check_belongs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.scratch import Scratch
    from pparse.riegeli.reader import RecordReader

    Chunk = Any  # a protobuf message, or bytes

_CHUNK_TYPES: Final = {UNSET: "UNSET", MESSAGE: "MESSAGE", BYTES: "BYTES"}
# Records up to this size are read ahead with their neighbours, so that random order decodes nothing twice.
_SMALL: Final = 64 << 10
# Splitters use a chunk once. More often is allowed, without limit if it adds up to little.
MAX_USES: Final = 100
_MAX_REPEATED: Final = 16 << 20


class Uses:
    """Counts how often chunks are merged: a small file that repeats one chunk must not fill the memory."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._counts = array("I", bytes(4 * count))
        self._limits = limits
        self._total = 0

    def add(self, index: int, size: int, times: int = 1) -> None:
        """Count that a chunk of ``size`` bytes is merged ``times`` more.

        Raise `LimitError` if all chunks together exceed ``limits.inflated_bytes``, `UnsupportedError` if one chunk is
        merged more than `MAX_USES` times.
        """
        self._total += size * times
        self._limits.check("inflated_bytes", self._total, "what the chunks add up to")
        self._counts[index] += times
        times = self._counts[index]
        if times > MAX_USES and (times - MAX_USES) * size > _MAX_REPEATED:
            raise UnsupportedError(
                f"chunk {index}, of {format_size(size)}, is merged more than {MAX_USES:,} times, which no splitter "
                "writes"
            )


class ReadOptions:
    """Options for reading a file of chunks."""

    def __init__(
        self,
        verify: str = "all",
        budget: int | str | MemoryBudget = "64MiB",
        limits: Limits | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self.verify = verify
        """Which hashes are checked, see `pparse.riegeli.RecordReader`."""
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        """Budget of the memory that reading holds."""
        self.limits = limits or Limits()
        """Caps on what a file may ask for."""
        self.scratch = scratch
        """Where data beyond the budget go; None for nowhere."""

    def open(self, data: Data) -> RecordReader:
        """Return a reader of the records of ``data``."""
        from pparse.riegeli.reader import RecordReader

        return RecordReader(data, verify=self.verify, budget=self.budget, limits=self.limits, scratch=self.scratch)


def message_of(given: Any, name: str) -> Any:
    """Return ``given``, of type ``tensorflow.proto_splitter.{name}``, or parsed if it is bytes."""
    if not isinstance(given, bytes | bytearray | memoryview):
        if getattr(getattr(given, "DESCRIPTOR", None), "name", None) != name:
            raise TypeError(f"expected a {name}, not {type(given).__name__}")
        return given
    from google.protobuf.message import DecodeError

    from pparse.protos import message_class

    try:
        return message_class(f"tensorflow.proto_splitter.{name}").FromString(bytes(given))
    except DecodeError as error:
        raise MalformedError(f"not a {name}: {error}") from error


def read_metadata(data: Data, options: ReadOptions) -> Any:
    """Return the ChunkMetadata at the end of a file.

    Raise `MalformedError` if there is none, `UnsupportedError` if it is for readers of other versions.
    """
    try:
        record, position = _last_record(options.open(data))
        metadata = message_of(record, "ChunkMetadata")
    except (MalformedError, EndOfDataError) as error:
        raise MalformedError(
            f"cannot read the chunk metadata at its end: {error.reason}", offset=error.offset, source=data.name
        ) from error
    # If a file lost its end, its last record is another one, and most messages parse as most other types. But an empty
    # record is an empty ChunkMetadata.
    tree = metadata.message
    says_something = metadata.chunks or metadata.HasField("version") or tree.chunked_fields
    if record and not (metadata.HasField("message") and says_something):
        raise MalformedError(
            "the last record is not chunk metadata; the file may be truncated", offset=position, source=data.name
        )
    check_belongs(
        lambda: (info.offset for info in metadata.chunks),
        position,
        lambda: _count_records(options.open(data)) - 1,
        data.name,
    )
    check_reader(metadata, data)
    return metadata


def check_reader(metadata: Any, data: Data) -> None:
    """Raise `UnsupportedError` if a ChunkMetadata of ``data`` is for readers of other versions."""
    check_versions(metadata.version.join_version, metadata.version.bad_consumers, source=data.name)


def _count_records(reader: RecordReader) -> int:
    """Return the number of records in a file; close the reader."""
    with reader:
        return sum(1 for _ in iter(reader.open_record, None))


def _last_record(reader: RecordReader) -> tuple[bytes, int]:
    """Return the last record and its position; close the reader."""
    with reader:
        size = reader.size()
        reader.seek_numeric(size)
        record = reader.read_record() if reader.seek_back() else None
        if record is None:
            reader.seek_numeric(0)
            reader.check_file_format()
            raise MalformedError("the file has no records", got=size)
        position = reader.last_pos.numeric
        reader.read_record()  # no record, but perhaps the beginning of one: then close() raises
        return record, position


class StoredChunks:
    """The chunks of a file, by index, read on demand."""

    def __init__(self, data: Data, infos: Any, options: ReadOptions) -> None:
        self.source: str | None = data.name
        self._data = data
        self._infos = infos
        self._options = options
        self._reader: RecordReader | None = None
        self._sizes = {info.offset: info.size for info in infos}  # of the chunks not used yet, by position
        self._ahead: OrderedDict[int, bytes] = OrderedDict()
        self._ahead_size = 0
        self._entered = -1  # begin of the Riegeli chunk that was read ahead last
        self._room = options.budget.limit // 4
        self._charge = options.budget.charge(0, "chunks read ahead", self._drop)

    def __len__(self) -> int:
        return len(self._infos)

    def offset(self, index: int) -> int:
        """Return the numeric position of a chunk's record."""
        found: int = self._infos[index].offset
        return found

    def read(self, index: int, wanted: int) -> bytes:
        """Return the bytes of a chunk that is used as ``wanted`` (1 a message, 2 a value).

        Raise `MalformedError` if the record does not match its ChunkInfo.
        """
        info = self._infos[index]
        if info.type not in (UNSET, wanted):
            found = _CHUNK_TYPES.get(info.type, str(info.type))
            raise MalformedError(
                f"chunk {index} has the wrong type for its field", wanted=_CHUNK_TYPES[wanted], got=found
            )
        record = self._ahead.pop(info.offset, None)
        if record is None:
            record = self._record(info.offset)
        else:
            self._ahead_size -= len(record)
        self._sizes.pop(info.offset, None)  # used: not read ahead again
        if record is None:
            raise MalformedError(f"no record begins where chunk {index} should be")
        if len(record) != info.size:
            raise MalformedError(f"chunk {index} is not as long as the metadata say", wanted=info.size, got=len(record))
        return record

    def _record(self, offset: int) -> bytes | None:
        """Return the record at a position, None if there is none; keep the small ones around it."""
        reader = self._reader
        if reader is None:
            reader = self._reader = self._options.open(self._data)
        if reader.pos.numeric != offset:
            reader.seek_numeric(offset)
        record = reader.read_record()
        if record is None or reader.last_pos.numeric != offset:
            return None
        begin = reader.last_pos.chunk_begin
        if begin != self._entered:  # else it is still decoded, and seeking in it is cheap
            self._entered = begin
            try:
                self._read_ahead(reader, begin)
            except PparseError:  # in a chunk that was not asked for, and may never be
                self._drop()
                self._reader = None
        return record

    def _read_ahead(self, reader: RecordReader, begin: int) -> None:
        """Keep the small chunks of the Riegeli chunk at ``begin``, which is decoded now, that are still needed."""
        from pparse.riegeli.positions import RecordPosition

        reader.seek(RecordPosition(begin))
        while (here := reader.pos).chunk_begin == begin:
            offset, size = here.numeric, self._sizes.get(here.numeric, _SMALL + 1)
            if size > _SMALL or offset in self._ahead:
                reader.seek(RecordPosition(begin, here.record_index + 1))
                continue
            if not self._make_room(size, begin, offset):
                break
            record = reader.read_record()
            if record is not None and len(record) == size:
                self._ahead[offset] = record
                self._ahead_size += size
        self._charge.resize(self._ahead_size)

    def _make_room(self, size: int, begin: int, end: int) -> bool:
        """Release the oldest record read ahead; False if it lies between ``begin`` and ``end``."""
        while self._ahead and self._ahead_size + size > self._room:
            if begin <= next(iter(self._ahead)) <= end:
                return False
            self._ahead_size -= len(self._ahead.popitem(last=False)[1])
        return True

    def _drop(self) -> None:
        """Release everything that was read ahead."""
        self._ahead.clear()
        self._ahead_size = 0
        self._entered = -1

    def close(self) -> None:
        """Release everything."""
        self._drop()
        self._charge.release()
        if self._reader is not None:
            try:
                self._reader.close()
            except PparseError:
                pass  # raised already, or in a chunk that was not asked for


class GivenChunks:
    """Chunks in memory, as messages or bytes."""

    source: str | None = None

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def offset(self, index: int) -> int | None:
        """Return None: the chunks are not in a file."""
        return None

    def read(self, index: int, wanted: int) -> bytes:
        """Return the bytes of a chunk."""
        chunk = self._chunks[index]
        if isinstance(chunk, bytes | bytearray | memoryview):
            return bytes(chunk)
        if not hasattr(chunk, "SerializePartialToString"):
            raise TypeError(f"chunk {index} is neither a protobuf message nor bytes, but {type(chunk).__name__}")
        from google.protobuf.message import EncodeError

        try:
            serialized: bytes = chunk.SerializePartialToString()
            return serialized
        except EncodeError as error:  # above 2 GiB, or too deep
            raise UnsupportedError(f"chunk {index} cannot be serialized: {error}") from error
