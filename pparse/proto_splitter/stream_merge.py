"""Merges a ``.cpb`` of any size into one plain ``.pb``, with bounded memory.

The merged message is written from the lazy tree (`pparse.parsers.protobuf.write`). Messages without chunks are copied
as they are; along the paths of chunks, messages are merged. Everything is read once before the first byte is written,
so a lost or damaged chunk is found before anything is on disk.
"""

from __future__ import annotations

import os
from array import array
from collections import namedtuple

from pparse.errors import Fault, MalformedError, OptionError, PparseError, spoken
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.write import measure, operations, write
from pparse.proto_splitter.merger import Uses
from pparse.proto_splitter.split import MAX_MESSAGE_BYTES, writing
from pparse.proto_splitter.stream_split import is_read
from pparse.writers.files import refuse_full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO, Final

    from pparse.document.extraction import Extraction
    from pparse.limits import MemoryBudget
    from pparse.parsers.cpb.metadata import ChunkedMessage, Step
    from pparse.proto_splitter.split import Progress
    from pparse.protobuf.schema import MessageType

# Deeper trees of chunked fields are refused when they are merged.
_MAX_NESTING: Final = 100


class MergeReport(namedtuple("MergeReport", "path size touched chunks type", defaults=(0, ""))):
    """What `merge_to_file` merged and wrote.

    ``path`` is that of the file written, empty for a stream; ``size`` that of the merged message, in bytes, and
    ``type`` the full name of its type. ``touched`` messages were merged from several parts. The ``.cpb`` had ``chunks``
    chunks.
    """

    __slots__ = ()

    @property
    def too_large(self) -> bool:
        """Whether the message is too large for protobuf's own parsers, and so for TensorFlow."""
        return bool(self.size > MAX_MESSAGE_BYTES)

    def __repr__(self) -> str:
        return f"<MergeReport {self.path!r}: {self.size} bytes, {self.touched} messages merged>"


def merge_to_file(
    source: Any,
    path: str | os.PathLike[str],
    *,
    message: str | None = None,
    descriptor: Any = None,
    budget: int | str = "64MiB",
    scratch: str | None = None,
    verify: str = "all",
    progress: Progress | None = None,
) -> MergeReport:
    """Merge the ``.cpb`` at ``source`` (anything that `pparse.open` takes) into the plain message file ``path``.

    ``message`` is the name of the type if the file does not show it. ``descriptor`` is a FileDescriptorSet that has it
    (a path or bytes; default: the built-in types). ``verify`` says which hashes are checked before anything is written.
    After an error no file is left.

    Raise `MalformedError` if a chunk is lost, damaged or does not fit; `OptionError` if the type is not known, the
    source is not a ``.cpb``, or ``path`` is the source or ends in ``.cpb``; `UnsupportedError` and `LimitError` if a
    chunk is merged too many times, or all chunks exceed the limit ``inflated_bytes``.
    """
    import pparse

    given = {"verify": verify, "message": message, "descriptor": descriptor}
    options = {name: value for name, value in given.items() if value is not None}
    with pparse.open(source, options=options, budget=budget, scratch=scratch, progress=progress) as document:
        return merge_document(document, os.fspath(path), progress)


def merge_document(document: Extraction, path: str, progress: Progress | None = None) -> MergeReport:
    """Merge an open document into the file ``path``, whole or not at all; see `merge_to_file`."""
    from pparse.writers.files import AtomicFile

    parser = check_mergeable(document)
    check_output(document, path)
    with AtomicFile(path, make_folders=True) as file:
        return _merge(parser, document, file.stream, progress, path)


def merge_to_stream(document: Extraction, stream: BinaryIO, progress: Progress | None = None) -> MergeReport:
    """Merge an open document into a binary stream; see `merge_to_file`. Nothing is written unless all is readable."""
    return _merge(check_mergeable(document), document, stream, progress)


def _merge(
    parser: CpbParser, document: Extraction, stream: BinaryIO, progress: Progress | None, path: str = ""
) -> MergeReport:
    check_uses(parser)
    root = document.root
    sizes = measure(operations(root))
    if path:
        refuse_full(path, sizes[0])
    with document.session.telling():
        out = writing(stream, sizes[0], "merging", progress, document.session.check_cancelled)
        written = write(operations(root), sizes, out)
    if written != sizes[0]:
        raise MalformedError("the source changed during the merge", wanted=sizes[0], got=written)
    assert parser.chunks is not None  # noqa: S101 -- what is mergeable has metadata
    return MergeReport(path, written, len(sizes) - 1, chunks=parser.chunks.metadata.chunk_count, type=root.kind)


def check_mergeable(document: Extraction) -> CpbParser:
    """Return the parser of a document in chunks, after checking that its metadata and type are known.

    Raise `OptionError` for another document or type, `MalformedError` if the metadata are lost or the file is
    truncated.
    """
    parser = document.parse().parser
    if not isinstance(parser, CpbParser):
        raise OptionError(
            f"{document.name} is not a chunked proto (.cpb), but {parser.name}: there is nothing to merge"
        )
    if parser.chunks is None and parser.problem is None:
        raise OptionError(f"{document.name} has no .cpb, only a plain saved_model.pb: there is nothing to merge")
    check_end(parser)
    if parser.problem is not None:
        raise MalformedError(
            f"cannot read the chunk metadata (the last record): {parser.problem.reason}",
            source=document.name,
            offset=parser.problem.offset,
            fault=Fault.UNREADABLE,
        )
    unsound = parser.verify_metadata()
    if unsound is not None:
        unsound.source = document.name
        raise unsound
    if parser.root_type is None:
        check_first(parser)
        raise OptionError(f"the message type of {document.name} is not known; give it with {spoken('-O message=NAME')}")
    return parser


def check_output(document: Extraction, path: str) -> None:
    """Raise `OptionError` if ``path`` is a file that the document is read from, or has the suffix of chunked files."""
    if is_read(document, path):
        raise OptionError(f"the output {path} is the file being read; name another one")
    if path.endswith(".cpb"):
        raise OptionError(f"the output {path} has the suffix of a file in chunks; name it {path[:-4]}.pb")


def check_uses(parser: CpbParser) -> None:
    """Raise as `Uses.add` if the chunked fields repeat chunks too often."""
    session = parser.result.extraction.session
    assert parser.chunks is not None  # noqa: S101 -- the caller looked
    metadata = parser.chunks.metadata
    counts = array("Q", bytes(8 * metadata.chunk_count))
    for index in _used(metadata.root, parser.root_type, session.budget):
        if index < len(counts):
            counts[index] += 1
    uses = Uses(len(counts), session.limits)
    for index, (times, chunk) in enumerate(zip(counts, metadata.chunks(), strict=True)):
        if times:
            try:
                uses.add(index, chunk.size, times)
            except PparseError as error:
                error.source, error.offset = parser.result.extraction.name, chunk.position
                raise


def _used(root: ChunkedMessage, type: MessageType | None, budget: MemoryBudget) -> Iterator[int]:
    """Yield the chunk of each node in the tree of chunked fields; skip unreadable nodes, which are reported later."""
    if root.chunk_index is not None:
        yield root.chunk_index
    stack = [(root.fields(range(root.count)), type)]
    while stack:
        fields, type = stack[-1]
        found = next(fields, None)
        if found is None:
            stack.pop()
            continue
        try:
            message = found[1].message(budget)
            plain = message.chunk_index is not None and not message.count
            below = None if plain else _type_at(found[1].steps(), type)
        except MalformedError:
            continue
        # Only a message has fields below it; anything else needs a chunk, and takes chunk 0 if none is named.
        if message.chunk_index is not None or below is None:
            yield message.chunk_index or 0
        if below is not None and message.count and len(stack) <= _MAX_NESTING:
            stack.append((message.fields(range(message.count)), below))


def _type_at(steps: list[Step], type: MessageType | None) -> MessageType | None:
    """Return the message type that a tag leads to from ``type``; None if it leads to none."""
    if not steps:
        return None
    for number, _, _ in steps:
        field = type.fields.get(number) if type is not None else None
        if field is not None and field.is_map:
            field = field.map_value
        type = field.message if field is not None else None
    return type


def check_first(parser: CpbParser) -> None:
    """Raise an error if the root chunk cannot be read, which is why the type is not known."""
    index = parser.chunks.metadata.root.chunk_index if parser.chunks is not None else None
    if parser.chunks is None or index is None:
        return
    try:
        parser.chunks.open(index)
    except PparseError as error:
        error.reason = f"cannot read chunk {index}, which would show the type: {error.reason}"
        error.source = error.source or parser.result.extraction.name
        error.fault = Fault.UNREADABLE
        raise


def check_end(parser: CpbParser) -> None:
    """Raise `MalformedError` if the file is truncated: its last record then only looks like metadata."""
    from pparse.riegeli import RecordReader

    reader = RecordReader(parser.source(), verify="headers")
    reader.seek_numeric(reader.size())
    reader.open_record()
    reader.close()


__all__ = [
    "MergeReport",
    "check_end",
    "check_first",
    "check_mergeable",
    "check_output",
    "merge_document",
    "merge_to_file",
    "merge_to_stream",
]
