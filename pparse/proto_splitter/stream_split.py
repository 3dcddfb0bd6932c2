"""Splits a message file of any size into a ``.cpb``, with bounded memory, along its wire format.

The message need not fit into memory, and may exceed the 2 GiB that protobuf can parse. TensorFlow's Merger can merge
the result. The rules:

- A field above a third of the limit is *large*. A large message is taken apart itself; if the rest is still large, it
  becomes a chunk at its own tag. In a list an empty element keeps its place.
- A large ``bytes`` or ``string`` field becomes a chunk of its bytes, of any size.
- The rest of a message with its own chunks is cut between fields into slices within the limit. All slices have the tag
  of the message and are merged in order, as protobuf's parsers merge a message in pieces.
- Map values are addressed by key only if they are messages; packed numbers are cut between two numbers.
- Fields whose meaning depends on other fields are not moved: a singular field or a map key that occurs twice, members
  of a oneof that occur together. Nor are extensions, which TensorFlow's Merger cannot find.
- A part above the limit that cannot be cut further (such as an element of a repeated ``bytes`` field) is a
  `SplitError`.
"""

from __future__ import annotations

import os
from collections import Counter, namedtuple

from pparse.data.base import BytesData, Range, copy_into, find_not_utf8
from pparse.data.spliced import SplicedData
from pparse.errors import MalformedError, OptionError, SplitError, refused, spoken
from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.limits import format_size
from pparse.parsers.cpb.metadata import BYTES, MESSAGE
from pparse.parsers.protobuf.index import WireField, WireWindow, accepts
from pparse.parsers.protobuf.values import decode, fixed_size, is_message
from pparse.proto_splitter import split
from pparse.proto_splitter.fields import KEY_KINDS
from pparse.protobuf.schema import TYPE_BYTES, TYPE_MESSAGE, TYPE_STRING
from pparse.protos import message_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.split import Progress, Tag
    from pparse.protobuf.schema import FieldType, MessageType

# Records from this size on are streamed into a Riegeli chunk of their own.
_LARGE_RECORD: Final = 1 << 20
_MAX_VARINT: Final = 10
_MAX_DEPTH: Final = 100


class SplitReport(namedtuple("SplitReport", "path message_size limit type removed size chunks fields largest")):
    """What `split_file` wrote.

    ``path`` and ``size`` (in bytes) are those of the file written, ``message_size`` is the size of the whole message,
    ``type`` the full name of its type. A message chunk may have ``limit`` bytes at most. ``removed`` is the path of the
    earlier file with the other suffix, which was removed; empty if there was none. ``chunks`` and ``fields`` are the
    numbers of chunks and of chunked fields, ``largest`` is the size of the largest chunk in bytes; all 0 for a ``.pb``.
    """

    __slots__ = ()

    @property
    def chunked(self) -> bool:
        """Whether a ``.cpb`` was written."""
        return bool(self.chunks)

    def __repr__(self) -> str:
        return f"<SplitReport {self.path!r}: {self.chunks} chunks, {self.size} bytes>"


def split_file(
    source: Any,
    prefix: str | os.PathLike[str],
    *,
    message: str | None = None,
    descriptor: Any = None,
    max_size: int | str | None = None,
    writer_options: str | None = None,
    budget: int | str = "64MiB",
    scratch: str | None = None,
    progress: Progress | None = None,
) -> SplitReport:
    """Split the message file ``source`` into ``{prefix}.cpb``; copy it to ``{prefix}.pb`` if it has at most
    ``max_size``.

    ``message`` is the name of the type if the content does not show it; ``descriptor`` is a FileDescriptorSet that has
    it. ``writer_options`` are Riegeli's (``brotli:6`` if None; ``uncompressed``, ``zstd`` …). A file of the other
    suffix is removed when everything is written. The source is neither replaced nor removed; after an error no file is
    left.

    Raise `SplitError` if no way of splitting keeps the limit, `MalformedError` if the message is truncated or damaged,
    `OptionError` if it is not a plain message of a known type.
    """
    import pparse

    given = {"message": message, "descriptor": descriptor}
    options = {name: value for name, value in given.items() if value is not None}
    format = "protobuf" if options else None
    with pparse.open(
        source, format=format, options=options, budget=budget, scratch=scratch, progress=progress
    ) as document:
        return split_document(
            document, os.fspath(prefix), limit=max_size, writer_options=writer_options, progress=progress
        )


def split_document(
    document: Extraction,
    prefix: str,
    *,
    limit: int | str | None = None,
    writer_options: str | None = None,
    progress: Progress | None = None,
) -> SplitReport:
    """Split an open document; see `split_file`."""
    from pparse.parsers.cpb.parser import CpbParser
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.writers.files import AtomicFile

    parser = document.parse().parser
    if not isinstance(parser, ProtobufParser):
        raise OptionError(f"{document.name} is not a protocol buffer message, but {parser.name}")
    if isinstance(parser, CpbParser) and (parser.chunks is not None or parser.problem is not None):
        raise OptionError(f"{document.name} is in chunks already (.cpb): merge it first")
    if parser.root_type is None:
        raise OptionError(f"the message type of {document.name} is not known; give it with {spoken('-O message=NAME')}")
    allowed = min(split.max_size() if limit is None else split.checked_size(limit), split.MAX_MESSAGE_BYTES)
    pieces = parser.root_pieces()
    part = pieces[0] if pieces else None
    if not isinstance(part, Range):
        raise OptionError(f"{document.name} is not a plain message")
    whole = len(part) <= allowed
    output, other = (f"{prefix}.pb", f"{prefix}.cpb") if whole else (f"{prefix}.cpb", f"{prefix}.pb")
    if is_read(document, output):
        why = ", which is within the limit: there is nothing to do" if whole else "; name another output"
        raise OptionError(f"{output} is the file being split{why}")
    check_type(part, parser.root_type, document.name)
    check_cancelled = document.session.check_cancelled
    cutter = Cutter(allowed, parser.root_type, check_cancelled)
    if whole:
        for _ in _walk(part, parser.root_type):
            pass  # raises if the fields do not fill the message exactly
    else:
        cutter.cut(part)
    split.make_folder(prefix, os.path.dirname(prefix))
    with document.session.telling(), AtomicFile(output) as file:
        if whole:
            write = split.writing(file.stream, len(part), "copying", progress, check_cancelled)
            copy_into(part.data, part.start, len(part), write)
        else:
            split.write_chunks(file.stream, _records(cutter, progress, check_cancelled), _tree(cutter), writer_options)
    largest = max((chunk.size for chunk in cutter.chunks), default=0)
    counts = len(cutter.chunks), len(cutter.fields), largest
    size = os.path.getsize(output)
    type = parser.root_type.full_name
    return SplitReport(output, len(part), allowed, type, _remove(other, document), size, *counts)


def check_type(part: Range, type: MessageType, name: str) -> None:
    """Raise `OptionError` if the type has none of the fields of the message: none could be moved into a chunk."""
    fields = 0
    for _, known, _ in _walk(part, type):
        if known is not None:
            return
        fields += 1
    if fields:
        raise OptionError(f"{type.full_name} has none of the fields of {name}; check --type")


def _remove(path: str, document: Extraction) -> str:
    """Remove the file of an earlier split; return its path, or "" if there is none, or it is the source."""
    if not os.path.lexists(path) or is_read(document, path):
        return ""
    with refused("cannot be removed", path):
        os.unlink(path)
    return path


def _records(
    cutter: Cutter, progress: Progress | None, check_cancelled: Callable[[], None]
) -> Iterator[tuple[int, bytes | Data]]:
    """Yield type and bytes of each chunk; ``progress`` is told once it is written."""
    done, total = 0, sum(chunk.size for chunk in cutter.chunks)
    for chunk in cutter.chunks:
        check_cancelled()
        data = SplicedData(chunk.parts, "chunk")
        yield chunk.type, data if chunk.size >= _LARGE_RECORD else data.read_exact(0, chunk.size)
        done += chunk.size
        if progress is not None:
            progress(done, total, "splitting")


def _tree(cutter: Cutter) -> Any:
    """Return the ``ChunkedMessage`` that says where each chunk belongs."""
    tree = message_class(f"{split.PACKAGE}.ChunkedMessage")(chunk_index=0)
    fields = sorted(cutter.fields, key=lambda field: bool(split.path_to_key(field[0])))  # what is below a map key last
    split.fill_tree(tree, fields, _ordered(fields))
    return tree


# -- what goes where -------------------------------------------------------------------------------------------------


class StreamChunk:
    """A chunk, or what may become one: whole fields of a message, or the bytes of one field."""

    __slots__ = ("parts", "size", "type")

    def __init__(self, type: int = MESSAGE) -> None:
        self.type = type
        """1 message, 2 bytes."""
        self.parts: list[Range] = []
        """Its bytes: ranges of the source, and new bytes between them."""
        self.size = 0
        """Their number."""

    def add(self, part: Range) -> None:
        """Append bytes; a range that continues the last one extends it."""
        if not len(part):
            return
        self.size += len(part)
        last = self.parts[-1] if self.parts else None
        if last is not None and last.end == part.start and last.data is part.data:
            self.parts[-1] = last.data.range(last.start, part.end)
        else:
            self.parts.append(part)


class UncutRest:
    """The rest of a message without its large parts: slices, each within the limit."""

    __slots__ = ("limit", "size", "slices")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.slices: list[StreamChunk] = []
        self.size = 0

    def add(self, parts: list[Range], what: str) -> None:
        """Append one whole field. Raise `SplitError` if it is above the limit by itself."""
        size = sum(map(len, parts))
        if size > self.limit:
            raise SplitError(
                f"{what} takes {format_size(size)} and cannot be cut; the limit is {format_size(self.limit)}",
                wanted=size,
                got=self.limit,
            )
        if not self.slices or self.slices[-1].size + size > self.limit:
            self.slices.append(StreamChunk())
        for part in parts:
            self.slices[-1].add(part)
        self.size += size

    def framed(self, tag: int) -> list[Range]:
        """Return all of it as the value of a field: with tag and length before it."""
        return _framed(tag, [part for piece in self.slices for part in piece.parts])


def _framed(tag: int, parts: list[Range]) -> list[Range]:
    """Return a length-delimited field with this content."""
    return [_new(encode_varint(tag) + encode_varint(sum(map(len, parts)))), *parts]


def _new(raw: bytes) -> Range:
    """Return bytes that are not in the source."""
    return BytesData(raw).range(0, len(raw))


class Cutter:
    """What becomes a chunk: ``chunks`` in file order, and ``fields``, each a tag and an index into ``chunks``."""

    def __init__(self, limit: int, type: MessageType, check_cancelled: Callable[[], None]) -> None:
        self.limit = limit
        self.large = max(1, limit // 3)
        self.type = type
        self.chunks: list[StreamChunk] = []
        self.fields: list[tuple[Tag, int]] = []  # a tag, and an index into chunks
        self._check_cancelled = check_cancelled

    def cut(self, part: Range) -> None:
        """Cut the whole message: chunk 0 is its first slice."""
        self.chunks.append(StreamChunk())
        slices = self._reduce(part, self.type, (), 0).slices
        if slices:
            self.chunks[0] = slices[0]
        self._emit((), slices[1:])

    def _emit(self, tag: Tag, chunks: list[StreamChunk]) -> None:
        for chunk in chunks:
            self.fields.append((tag, len(self.chunks)))
            self.chunks.append(chunk)

    def _reduce(self, part: Range, type: MessageType, tag: Tag, depth: int) -> UncutRest:
        """Move the large parts of a message into chunks, and return the rest. The sizes bound the depth."""
        if depth > _MAX_DEPTH:
            raise SplitError(f"messages are nested deeper than {_MAX_DEPTH}")
        rest = UncutRest(self.limit)
        ordinals: dict[int, int] = {}
        fixed = _fixed(part, type, self.large)
        for field, known, _ in _walk(part, type):
            number = field.tag >> 3
            ordinal = ordinals.get(number, 0)
            if known is not None and known.repeated and not known.is_map:
                ordinals[number] = ordinal + 1
            whole = part.data.range(field.begin, field.next)
            size = field.end - field.start
            if size <= self.large or known is None or number in fixed or known.name.startswith("["):
                rest.add([whole], _what(field, known))
                continue
            self._check_cancelled()
            if known.is_map:
                self._reduce_pair(part, field, known, tag, depth, rest)
            elif known.type == TYPE_MESSAGE:
                index = (_step(index=ordinal),) if known.repeated else ()
                self._reduce_field(part, field, known, (*tag, _step(field=number), *index), depth, rest)
            elif _is_scalar_chunk(part, field, known):
                chunk = StreamChunk(BYTES)
                chunk.add(part.data.range(field.start, field.end))
                self._emit((*tag, _step(field=number)), [chunk])
            elif known.repeated and field.tag & 7 == LEN and known.wire_type != LEN:
                for piece in _cut_packed(part, field, known, self.limit):
                    rest.add(piece, _what(field, known))
            else:
                rest.add([whole], _what(field, known))
        return rest

    def _reduce_field(
        self, part: Range, field: WireField, known: FieldType, tag: Tag, depth: int, rest: UncutRest
    ) -> None:
        """Reduce a large message; the rest stays in its place if it is small, and becomes chunks otherwise."""
        assert known.message is not None  # noqa: S101 -- it is a message
        inner = self._reduce(part.data.range(field.start, field.end), known.message, tag, depth + 1)
        if inner.size <= self.large:
            rest.add(inner.framed(field.tag), _what(field, known))
            return
        self._emit(tag, inner.slices)
        if known.repeated:
            rest.add(_framed(field.tag, []), _what(field, known))

    def _reduce_pair(
        self, part: Range, pair: WireField, known: FieldType, tag: Tag, depth: int, rest: UncutRest
    ) -> None:
        """Reduce the value of a large map entry, which is addressed by its key."""
        value_type, key_type = known.map_value, known.map_key
        key, value, key_raw = _pair_parts(part, pair, known)
        step = _key_step(key_type, key) if key_type is not None else None
        if value_type is None or not is_message(value_type) or value is None or step is None:
            rest.add([part.data.range(pair.begin, pair.next)], _what(pair, known))
            return
        tag = (*tag, _step(field=known.number), step)
        assert value_type.message is not None  # noqa: S101 -- it is a message
        inner = self._reduce(part.data.range(value.start, value.end), value_type.message, tag, depth + 1)
        if inner.size <= self.large:
            rest.add(_framed(pair.tag, [_new(key_raw), *inner.framed(value.tag)]), _what(pair, known))
        else:
            self._emit(tag, inner.slices)


def _walk(part: Range, type: MessageType) -> Iterator[tuple[WireField, FieldType | None, WireWindow]]:
    """Yield the fields of a message, each with its type in the schema, None if unknown or of another wire type.

    Raise `MalformedError` if the message is truncated or damaged.
    """
    window = WireWindow(part.data, part.end)
    pos = part.start
    fields = type.fields
    while pos < part.end:
        field = window.field(pos)
        if field.tag < 8 or field.next > part.end:
            reason = "a field extends beyond its message" if field.tag >= 8 else "this is not a field"
            raise MalformedError(
                f"cannot split: {reason} ({type.full_name})",
                offset=pos,
                wanted=field.next - pos,
                got=part.end - pos,
                source=part.data.name,
            )
        known = fields.get(field.tag >> 3)
        yield field, known if known is not None and accepts(known, field.tag & 7) else None, window
        pos = field.next


def _fixed(part: Range, type: MessageType, large: int) -> set[int]:
    """Return the numbers of fields that must not be moved, since that could change which of several values is the last.

    These are singular fields that occur several times, members of the same oneof, and maps in which the key of a large
    entry occurs again.
    """
    counts: dict[int, int] = {}
    oneofs: dict[str, set[int]] = {}
    keys: dict[int, set[Any]] = {}  # keys of large entries, by the number of the map
    found: set[int] = set()
    for field, known, _ in _walk(part, type):
        if known is None:
            continue
        if known.is_map:
            if field.end - field.start > large:
                key = _pair_parts(part, field, known)[0]
                there = keys.setdefault(known.number, set())
                if key in there:
                    found.add(known.number)
                there.add(key)
        elif not known.repeated:
            counts[known.number] = counts.get(known.number, 0) + 1
            if known.oneof is not None:
                oneofs.setdefault(known.oneof, set()).add(field.tag >> 3)
    found.update(number for number, count in counts.items() if count > 1)
    for members in oneofs.values():
        if len(members) > 1:
            found |= members
    if keys:
        found |= _repeated_keys(part, type, large, keys)
    return found


def _repeated_keys(part: Range, type: MessageType, large: int, keys: dict[int, set[Any]]) -> set[int]:
    """Return the numbers of maps in which a small entry has the key of a large one."""
    return {
        known.number
        for field, known, _ in _walk(part, type)
        if known is not None
        and known.is_map
        and known.number in keys
        and field.end - field.start <= large
        and _pair_parts(part, field, known)[0] in keys[known.number]
    }


def _what(field: WireField, known: FieldType | None) -> str:
    return f"the field {known.name} at {field.begin}" if known is not None else f"field {field.tag >> 3}"


def _pair_parts(part: Range, pair: WireField, known: FieldType) -> tuple[Any, WireField | None, bytes]:
    """Return the key of a map entry, its value's field (None unless there is exactly one), and the key's bytes."""
    key: Any = known.map_key.default if known.map_key is not None else None
    value: WireField | None = None
    raw = b""
    assert known.message is not None  # noqa: S101 -- pairs are messages
    keys = values = 0
    for field, inner, window in _walk(part.data.range(pair.start, pair.end), known.message):
        if inner is None:
            return key, None, raw
        if field.tag >> 3 == 1:
            keys += 1
            key = decode(inner, field.tag & 7, window.read(field.start, field.end))
            raw = window.read(field.begin, field.next)
        else:
            values += 1
            value = field
    return key, value if values == 1 and keys <= 1 else None, raw


def _is_scalar_chunk(part: Range, field: WireField, known: FieldType) -> bool:
    """Say whether a field can be a chunk of bytes: mergers take text only if it is UTF-8 (proto2 allows anything)."""
    if known.repeated or known.type != TYPE_STRING:
        return not known.repeated and known.type == TYPE_BYTES
    return find_not_utf8(part.data, field.start, field.end) is None


def _cut_packed(part: Range, field: WireField, known: FieldType, limit: int) -> Iterator[list[Range]]:
    """Yield a packed field as several fields, each within the limit."""
    size = fixed_size(known)
    room = max(limit - len(encode_varint(field.tag)) - len(encode_varint(limit)), 1)
    start = field.start
    whole = not (field.end - start) % size if size is not None else part.data.read_exact(field.end - 1, 1)[0] < 0x80
    if not whole:
        raise MalformedError(f"{_what(field, known)} ends inside a number", offset=field.end, source=part.data.name)
    while start < field.end:
        stop = min(field.end, start + room)
        if stop < field.end:
            if size is not None:
                stop -= (stop - start) % size
            else:
                tail = part.data.read_exact(max(start, stop - 10), stop - max(start, stop - 10))
                if len(tail) == _MAX_VARINT and min(tail) >= 0x80:
                    reason = f"{_what(field, known)} has a number of more than ten bytes"
                    raise MalformedError(reason, offset=stop - _MAX_VARINT, source=part.data.name)
                stop -= len(tail) - 1 - max((at for at, byte in enumerate(tail) if byte < 0x80), default=-1)
        if stop <= start:
            raise SplitError(f"{_what(field, known)} has numbers that do not fit into {limit} bytes")
        yield _framed(field.tag, [part.data.range(start, stop)])
        start = stop


# -- tags --------------------------------------------------------------------------------------------------------------


def _step(**kind: Any) -> bytes:
    """Return a step of a tag, serialized: a field, or the index or the map key of the field before."""
    step: bytes = message_class(f"{split.PACKAGE}.FieldIndex")(**kind).SerializeToString()
    return step


def _key_step(key_type: FieldType, key: Any) -> bytes | None:
    """Return the tag step to a map key; None for keys that TensorFlow's Merger cannot find (it cuts 64 bits to 32)."""
    kind = KEY_KINDS.get(key_type.type)
    if kind is None or (isinstance(key, int) and not -(1 << 31) <= key < 1 << 31):
        return None
    return _step(map_key={kind: key})


def _ordered(fields: list[tuple[Tag, int]]) -> list[Tag]:
    """Return the paths to map keys below which there are several chunks.

    TensorFlow's Merger does not keep the order of fields that share a map key; fields nested below one come after it.
    """
    paths = Counter(tag[:at] for tag, _ in fields for at, step in enumerate(tag, 1) if step[0] == split.MAP_KEY_TAG)
    return [path for path, count in paths.items() if count > 1]


# -- the files that a document is read from: an output must not replace them -------------------------------------------


def _sources(document: Extraction) -> Iterator[Data]:
    """Yield what a document is read from: for a folder the model, for a part the whole file, too."""
    if document.is_folder:
        for member in document.children.values():
            yield member.data
    extraction: Extraction | None = document
    while extraction is not None:
        yield extraction.data
        extraction = extraction.parent


def is_read(document: Extraction, path: str) -> bool:
    """Say whether ``path`` is one of the files that a parsed document is read from, under any name."""
    return any(data.same_source(path) for data in _sources(document))


__all__ = ["SplitReport", "is_read", "split_document", "split_file"]
