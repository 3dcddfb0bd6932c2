"""`Merger`: merges a chunked proto into a protobuf message, in memory.

A ``ChunkedMessage`` says where each chunk belongs: a tree whose nodes stand for messages. The rules are those of
TensorFlow's Merger (tensorflow/tools/proto_splitter/merge.cc) unless noted otherwise:

- A node's own chunk is merged into its message first, then its entries (``chunked_fields``) in order. Tags are compared
  step by step, fields by number and elements by index. A tag comes before those that it is a prefix of; equal tags are
  ordered by chunk index. Map keys are not compared, and entries for one key keep this order (TensorFlow stops comparing
  at them).
- An entry without a tag is another chunk of the node's message; entries below it are ignored. Any other entry leads
  from the message to a field. Missing messages on the way are created: an element whose index equals the current
  count is appended, a missing key is added.
- A chunk is merged into a message: scalars are replaced, elements appended. The chunk of a scalar is its new value as
  text (see `pparse.parsers.cpb.scalars`). An entry that needs a chunk but names none takes chunk 0, since an index that
  is not written is 0.
- Nothing is cleared first.

Supported beyond TensorFlow: elements of repeated scalars and scalar values of maps, keys above 32 bits, chunks given as
bytes. Errors here, where TensorFlow silently takes a wrong value or aborts the process: unsupported versions, chunks
that contradict the metadata (kind, size, position), chunks that do not parse, text that is not a value.

Chunks are given ones, or those of a ``.cpb``: a Riegeli/records file with the chunks first, then a ChunkMetadata
message as the last record. A chunk is found by the numeric position of its record.
"""

from __future__ import annotations

import os
from array import array
from collections import OrderedDict
from operator import itemgetter
from types import SimpleNamespace

from pparse.compressed.env import DecodeEnv
from pparse.data.base import BytesData
from pparse.data.files import exists, names_in, open_file, split
from pparse.errors import EndOfDataError, MalformedError, PparseError, SourceError, UnsupportedError
from pparse.limits import Limits, MemoryBudget, format_size
from pparse.parsers.cpb.metadata import BYTES, MESSAGE, UNSET, check_belongs, check_versions
from pparse.parsers.cpb.scalars import decode_scalar, key_as
from pparse.paths import KeyStep, format_path
from pparse.proto_splitter.fields import is_map, is_repeated, map_key, map_value
from pparse.protobuf.schema import TYPE_GROUP, TYPE_MESSAGE, TYPE_NAMES, TYPE_UINT64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.scratch import Scratch
    from pparse.riegeli.lookup import RecordLookup
    from pparse.riegeli.reader import RecordReader

    Prefix = str | os.PathLike[str]
    Chunk = Any  # a protobuf message, or bytes
    Step = tuple["_MergedField", Any]
    Path = tuple[Step, ...]


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


class ReadOptions(DecodeEnv):
    """Options for reading a file of chunks.

    ``budget`` limits the memory that reading holds, ``limits`` are caps on what a file may ask for, ``scratch`` takes
    data beyond the budget; None for nowhere.
    """

    __slots__ = ("verify",)

    def __init__(
        self,
        verify: str = "all",
        budget: int | str | MemoryBudget = "64MiB",
        limits: Limits | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        super().__init__(budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget), limits, scratch)
        self.verify = verify
        """Which hashes are checked, see `pparse.riegeli.RecordReader`."""

    def open(self, data: Data) -> RecordReader:
        """Return a reader of the records of ``data``."""
        from pparse.riegeli.reader import RecordReader

        return RecordReader(data, verify=self.verify, budget=self.budget, limits=self.limits, scratch=self.scratch)

    def lookup(self, data: Data) -> RecordLookup:
        """Return what finds the records of ``data`` by their positions."""
        from pparse.riegeli.lookup import RecordLookup

        return RecordLookup(data.range(0, data.size or 0), self, verify=self.verify)


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
    lookup = options.lookup(data)
    try:
        position = lookup.last()
        if position is None:
            raise MalformedError("the file has no records", got=data.size)
        found = lookup.record(position)
        record = found.read_exact(len(found))
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
        lambda: sum(1 for _ in lookup.positions(lambda _region: None)) - 1,
        data.name,
    )
    check_reader(metadata, data)
    return metadata


def check_reader(metadata: Any, data: Data) -> None:
    """Raise `UnsupportedError` if a ChunkMetadata of ``data`` is for readers of other versions."""
    check_versions(metadata.version.join_version, metadata.version.bad_consumers, source=data.name)


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
        from pparse.riegeli.records import RecordPosition

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


CHUNKED, WHOLE = ".cpb", ".pb"
# The most files that an error lists.
_NAMED: Final = 3

SINGULAR, REPEATED, MAP = 0, 1, 2


class Merger:
    """Reads messages that were split into chunks: ``{prefix}.cpb``, or whole ones: ``{prefix}.pb``.

    ``prefix`` is a path without its suffix; with the suffix, exactly that file is read. A ``.cpb`` takes precedence
    over a ``.pb`` beside it. Everything is merged into ``message`` without clearing it; after an error, part of it may
    have been merged. Chunks are read one by one and not kept.

    Files are read with the keyword arguments of `ReadOptions`: ``verify`` says which
    hashes are checked ("all" by default, so that no damaged data are merged), ``budget`` limits the memory of reading,
    ``scratch`` takes what exceeds it. Fields deeper than ``limits.depth`` are refused.

    Errors: `SourceError` (no such file, or not readable), `MalformedError` (with the path of the field and the position
    of the record), `UnsupportedError` (versions; messages that cannot be serialized; a large chunk merged too many
    times), `LimitError` (fields too deep, chunks that add up to more than ``limits.inflated_bytes``).
    """

    @staticmethod
    def merge(
        chunks: Sequence[Chunk],
        chunked_message: Any,
        message: Any,
        *,
        in_listed_order: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """Merge ``chunks`` (messages, or bytes) into ``message`` according to ``chunked_message`` (a ChunkedMessage).

        Takes the result of a splitter's ``split()`` as it is. TensorFlow's function of this name processes the entries
        in the order they are listed, which may differ from the order of the rules; ``in_listed_order=True`` does the
        same.
        """
        tree = message_of(chunked_message, "ChunkedMessage")
        _Merge(GivenChunks(chunks), limits or Limits(), listed=in_listed_order).run(tree, _checked(message))

    @staticmethod
    def read(prefix: Prefix, message: Any, **options: Any) -> None:
        """Read ``{prefix}.cpb``, or else ``{prefix}.pb``, and merge it into ``message``."""
        _checked(message)
        path = _find(prefix)
        with open_file(path) as data:
            if path.endswith(CHUNKED):
                given = ReadOptions(**options)
                _merge_chunks(data, read_metadata(data, given), message, given)
            else:
                _merge_whole(data, message)

    @staticmethod
    def read_partial(prefix: Prefix, chunk_metadata: Any, message: Any, **options: Any) -> None:
        """Read the chunks of ``{prefix}.cpb`` that ``chunk_metadata`` (a ChunkMetadata, or its bytes) names.

        Usually that is the file's own metadata without some entries; the metadata in the file are not read. Raise
        `SourceError` if there is no ``.cpb``: a ``.pb`` cannot be read in part.
        """
        _checked(message)
        metadata = message_of(chunk_metadata, "ChunkMetadata")
        path = _find(prefix, partial=True)
        with open_file(path) as data:
            check_reader(metadata, data)
            _merge_chunks(data, metadata, message, ReadOptions(**options))

    @staticmethod
    def read_chunked_from_string(data: bytes | bytearray | memoryview, message: Any, **options: Any) -> None:
        """Merge ``data``, the bytes of a ``.cpb``, into ``message``."""
        _checked(message)
        given = ReadOptions(**options)
        with BytesData(data) as source:
            _merge_chunks(source, read_metadata(source, given), message, given)

    @staticmethod
    def can_read(prefix: Prefix) -> bool:
        """Say whether there is a file that `read` would read, without opening it."""
        try:
            _find(prefix)
        except SourceError:
            return False
        return True


# -- what is given ---------------------------------------------------------------------------------------------------


def _checked(message: Any) -> Any:
    """Return ``message``. Raise TypeError if it is not a protobuf message."""
    if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "MergeFromString") or isinstance(message, type):
        raise TypeError(f"expected a protobuf message to merge into, not {type(message).__name__}")
    return message


def _find(prefix: Prefix, *, partial: bool = False) -> str:
    """Return the path of the file to read. Raise `SourceError` if there is none."""
    text: str = os.fspath(prefix)
    suffixes = (CHUNKED,) if partial else (CHUNKED, WHOLE)
    paths: list[str] = [text + suffix for suffix in suffixes] + [text] * text.endswith(suffixes)
    for path in paths:
        if exists(path):
            return path
    text = text.removesuffix(CHUNKED).removesuffix(WHOLE)
    if partial and exists(text + WHOLE):
        raise SourceError(f"there is no {CHUNKED}, only a {WHOLE}, which cannot be read in part", source=text)
    raise SourceError(f"neither {text}{CHUNKED} nor {text}{WHOLE} exists{_siblings(text)}")


def _siblings(prefix: str) -> str:
    """Return text to add to an error if there are files ``{prefix}.*.cpb``."""
    folder, base = split(prefix)
    names = sorted(name for name in names_in(folder) if name.startswith(f"{base}.") and name.endswith(CHUNKED))
    if not names:
        return ""
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return f"; there is {shown}, but the format does not allow a proto in several {CHUNKED} files"


# -- files -----------------------------------------------------------------------------------------------------------


def _merge_whole(data: Data, message: Any) -> None:
    from google.protobuf.message import DecodeError

    try:
        message.MergeFromString(data.pread(0, data.size or 0))
    except DecodeError as error:
        raise MalformedError(f"not a {message.DESCRIPTOR.full_name}: {error}", source=data.name) from error


def _merge_chunks(data: Data, metadata: Any, message: Any, options: ReadOptions) -> None:
    chunks = StoredChunks(data, metadata.chunks, options)
    try:
        _Merge(chunks, options.limits).run(metadata.message, message)
    finally:
        chunks.close()


# -- merging ---------------------------------------------------------------------------------------------------------


class _Merge:
    """One merge: walks a ChunkedMessage with an explicit stack."""

    def __init__(self, chunks: StoredChunks | GivenChunks, limits: Limits, *, listed: bool = False) -> None:
        from google.protobuf.message import DecodeError

        self._chunks = chunks
        self._uses = Uses(len(chunks), limits)
        self._limits = limits
        self._listed = listed
        self._fields: dict[Any, dict[int, _MergedField]] = {}  # those seen, by descriptor and number
        self._decode_error = DecodeError

    def run(self, tree: Any, message: Any) -> None:
        """Merge everything that ``tree`` names into ``message``."""
        try:
            self._run(tree, message)
        except PparseError as error:
            error.source = error.source or self._chunks.source
            raise

    def _run(self, tree: Any, message: Any) -> None:
        if tree.HasField("chunk_index"):
            self._merge_chunk(tree.chunk_index, message, ())
        root: Path = ()
        stack = [(message, self._entries(tree, message.DESCRIPTOR, root), root)]
        while stack:
            target, entries, path = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                continue
            steps, tree = entry
            here = path + steps
            if len(here) > self._limits.depth:
                self._limits.check("depth", len(here), "a field's depth", path=path_text(here))
            if not steps:
                self._merge_chunk(tree.chunk_index, target, path)
            elif steps[-1][0].message is None:
                self._set_scalar(tree.chunk_index, target, steps, here)
            else:
                target = self._reach(target, steps, here)
                if tree.HasField("chunk_index"):
                    self._merge_chunk(tree.chunk_index, target, here)
                if tree.chunked_fields:
                    stack.append((target, self._entries(tree, steps[-1][0].message, here), here))

    def _entries(self, tree: Any, start: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        """Return the entries of a node with their tags resolved, in the order in which they are merged.

        ``start`` is the descriptor of the node's message.
        """
        if self._listed:
            return ((self._resolve(entry.field_tag, start, path), entry.message) for entry in tree.chunked_fields)
        entries = []
        for entry in tree.chunked_fields:
            steps = self._resolve(entry.field_tag, start, path)
            order = order_of(steps, len(entry.field_tag)), entry.message.chunk_index
            entries.append((order, steps, entry.message))
        entries.sort(key=itemgetter(0))
        return ((steps, message) for _, steps, message in entries)

    def _chunk(self, index: int, path: Path, wanted: int) -> bytes:
        """Return the bytes of a chunk that is used as a message, or as a value."""
        if index >= len(self._chunks):
            raise MalformedError(
                f"there is no chunk {index}", path=path_text(path), wanted=index + 1, got=len(self._chunks)
            )
        try:
            chunk = self._chunks.read(index, wanted)
            self._uses.add(index, len(chunk))
            return chunk
        except PparseError as error:
            self._locate(error, path, index)
            raise

    def _resolve(self, tag: Any, start: Any, path: Path) -> Path:
        """Return the path of steps for a tag, in a message at ``path`` whose descriptor is ``start``.

        Raise `MalformedError`, with the path as far as it is valid; `LimitError` if the path is too deep.
        """
        if len(tag) > 2 * self._limits.depth:
            self._limits.check("depth", len(tag) // 2, "a field tag's depth", path=path_text(path))
        steps: list[Step] = []
        try:
            self._add_steps(tag, start, steps)
        except MalformedError as error:
            error.path = path_text(path + tuple(steps))
            raise
        return tuple(steps)

    def _add_steps(self, tag: Any, start: Any, steps: list[Step]) -> None:
        message = start
        waiting: _MergedField | None = None  # for its index or key
        for item in tag:
            kind = item.WhichOneof("kind")
            if kind is None:
                raise MalformedError("an empty step in a field tag")
            if kind != "field":
                if waiting is None:
                    what = "an index" if kind == "index" else "a map key"
                    raise MalformedError(f"{what} without a field before it")
                steps.append((waiting, waiting.argument(item, kind)))
                message, waiting = waiting.message, None
            elif waiting is not None:
                break
            elif message is None:
                scalar = steps[-1][0]  # TensorFlow accepts a singular one whose number is repeated
                if scalar.form != SINGULAR or scalar.number != item.field:
                    reason = f"a field tag names field {item.field} below {scalar.name}, which is not a message"
                    raise MalformedError(reason)
            else:
                field = self._field(message, item.field)
                if field.form == SINGULAR:
                    steps.append(field.step)
                    message = field.message
                else:
                    waiting = field
        if waiting is not None:
            what = "a map, without a key" if waiting.form == MAP else "repeated, without an index"
            raise MalformedError(f"a field tag names the field {waiting.name}, which is {what}")

    def _field(self, message: Any, number: int) -> _MergedField:
        fields = self._fields.setdefault(message, {})
        if number not in fields:
            descriptor = message.fields_by_number.get(number)
            if descriptor is None:
                raise MalformedError(f"there is no field with number {number} in {message.full_name}")
            fields[number] = _MergedField(descriptor)
        return fields[number]

    def _merge_chunk(self, index: int, target: Any, path: Path) -> None:
        chunk = self._chunk(index, path, MESSAGE)
        try:
            target.MergeFromString(chunk)
        except self._decode_error as error:
            bad: PparseError = MalformedError(f"chunk {index} is not a {target.DESCRIPTOR.full_name}: {error}")
            if "alloc" in str(error):
                bad = UnsupportedError(f"chunk {index} needs more memory than there is")
            self._locate(bad, path, index)
            raise bad from error

    def _set_scalar(self, index: int, target: Any, steps: Path, path: Path) -> None:
        field, argument = steps[-1]
        text = self._chunk(index, path, BYTES)
        try:
            value = decode_scalar(text, field)
        except MalformedError as error:
            self._locate(error, path, index)
            raise
        target = self._reach(target, steps[:-1], path)
        if field.form == SINGULAR:
            setattr(target, field.name, value)
            return
        items = getattr(target, field.name)
        if field.form == MAP or argument < len(items):
            items[argument] = value
        else:
            _check_next(argument, len(items), path)
            items.append(value)

    def _reach(self, target: Any, steps: Path, path: Path) -> Any:
        """Return the message that ``steps`` lead to; create missing messages on the way."""
        for field, argument in steps:
            items = getattr(target, field.name)
            if field.form == SINGULAR:
                items.SetInParent()
                target = items
            elif field.form == MAP or argument < len(items):
                target = items[argument]
            else:
                _check_next(argument, len(items), path)
                target = items.add()
        return target

    def _locate(self, error: PparseError, path: Path, index: int) -> None:
        """Add path, offset and source to an error, as far as it has none."""
        error.path = error.path or path_text(path)
        if error.offset is None:
            error.offset = self._chunks.offset(index)


def _check_next(index: int, count: int, path: Path) -> None:
    if index > count:
        raise MalformedError("the index is beyond the end of the list", path=path_text(path), wanted=index, got=count)


# -- tags --------------------------------------------------------------------------------------------------------------
#
# A tag is a list of FieldIndex messages, each a field number, or an index or key for the field before. Resolved against
# a message type it is a path of steps ``(field, argument)``. The argument is the index in a repeated field, the key in
# a map (with the type of the key), None for a singular field.


class _MergedField:
    """A field of a message type. For a map, ``type``, ``message`` and ``enum`` are those of its values.

    ``message`` is the descriptor of messages, None for scalars. `pparse.parsers.cpb.scalars.decode_scalar` takes it.
    """

    __slots__ = ("enum", "form", "key_type", "message", "name", "number", "step", "type", "type_name")

    def __init__(self, descriptor: Any) -> None:
        self.name: str = descriptor.name
        self.number: int = descriptor.number
        self.form = MAP if is_map(descriptor) else REPEATED if is_repeated(descriptor) else SINGULAR
        self.step: Step = (self, None)  # the step to a singular field, shared by all tags
        self.key_type: int = TYPE_UINT64  # an index
        if self.form == MAP:
            self.key_type = map_key(descriptor).type
            descriptor = map_value(descriptor)
        self.type: int = descriptor.type
        is_message = self.type in (TYPE_MESSAGE, TYPE_GROUP)
        self.message: Any = descriptor.message_type if is_message else None
        enum = descriptor.enum_type
        self.enum = enum and SimpleNamespace(numbers={value.name: value.number for value in enum.values})
        self.type_name: str = TYPE_NAMES[self.type] if self.enum is None else descriptor.enum_type.full_name

    def argument(self, item: Any, kind: str) -> int | bool | str:
        """Return the index or key in a FieldIndex of that kind, converted to the type of this field.

        As in TensorFlow, the form it is stored in does not matter: the text ``12`` is the number 12. Raise
        `MalformedError` if it cannot be converted, or is out of range.
        """
        given: int | bool | str = item.index
        if kind == "map_key":
            word = item.map_key.WhichOneof("type")
            if word is None:
                raise MalformedError(f"an empty map key for the field {self.name}")
            given = getattr(item.map_key, word)
        found = key_as(given, self.key_type)
        if found is None:
            what = "a map key" if self.form == MAP else "an index"
            raise MalformedError(f"{what} that is invalid for the field {self.name}", got=repr(given)[:40])
        return found


def order_of(steps: Path, length: int) -> tuple[int, ...]:
    """Return the sort key of a tag of ``length`` among the tags of one message: field numbers and indices.

    Map keys are left out: values of a map are independent of each other, and those of one key sort correctly.
    """
    order: list[int] = []
    for field, argument in steps:
        order.append(field.number)
        length -= 1 if field.form == SINGULAR else 2
        if field.form == REPEATED:
            order.append(argument)
    # The rest repeats the number of a scalar.
    return (*order, *order[-1:] * length)


def path_text(path: Path) -> str | None:
    """Return a path as text (see `pparse.paths`); None for the message itself."""
    words = (word for field, argument in path for word in (field.name, argument) if word is not None)
    return format_path(map(KeyStep, words)) or None
