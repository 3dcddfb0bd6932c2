"""A ``.cpb`` of any size into one plain ``.pb``, with bounded memory.

The merged message is written from the lazy tree (`pparse.parsers.protobuf.write`): what no chunk touches is copied as
it stands; along the paths that chunks go to, messages are put together anew. All is gone through before the first byte
is written, so a chunk that is lost or damaged is found before anything is left on the disk.
"""

from __future__ import annotations

from array import array

from pparse.errors import Fault, MalformedError, OptionError, PparseError
from pparse.parsers.cpb.parser import CpbParser
from pparse.parsers.protobuf.write import measure, write
from pparse.proto_splitter.merge_chunks import Uses
from pparse.proto_splitter.sources import is_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, Final

    from pparse.budget import MemoryBudget
    from pparse.document.extraction import Extraction
    from pparse.parsers.cpb.metadata import ChunkedMessage, Step
    from pparse.protobuf.schema import MessageType

    Progress = Callable[[int, int | None, str], None]

# protobuf, and with it TensorFlow, parses no message above this.
PROTOBUF_LIMIT: Final = (1 << 31) - 1
# Deeper trees of chunked fields are refused when they are merged.
_MAX_NESTING: Final = 100


class MergeReport:
    """What was merged: ``chunks`` of a ``.cpb`` into ``size`` bytes; ``touched`` messages were put together anew.

    ``path`` is the file written (empty: a stream), ``type`` the full name of the message.
    """

    __slots__ = ("chunks", "path", "size", "touched", "type")

    def __init__(self, path: str, size: int, touched: int, *, chunks: int = 0, type: str = "") -> None:
        self.path = path
        self.size = size
        self.touched = touched
        self.chunks = chunks
        self.type = type

    @property
    def too_large(self) -> bool:
        """Whether protobuf's own parsers, and TensorFlow, refuse a message of this size."""
        return self.size > PROTOBUF_LIMIT

    def __repr__(self) -> str:
        return f"<MergeReport {self.path!r}: {self.size} bytes, {self.touched} messages merged>"


def merge_to_file(
    source: Any,
    path: str,
    *,
    message: str | None = None,
    descriptor: Any = None,
    budget: int | str = "64MiB",
    scratch: str | None = None,
    verify: str = "all",
    progress: Progress | None = None,
) -> MergeReport:
    """Merge the ``.cpb`` at ``source`` (anything that `pparse.open` takes) into the plain message file ``path``.

    ``message`` names the type where the file does not show it, ``descriptor`` is a FileDescriptorSet that knows it (a
    path or bytes; else the built-in types). ``verify``: which hashes are checked before anything is written. Nothing is
    left behind if it fails.

    Raises `MalformedError` where a chunk is lost or damaged, or does not fit; `OptionError` without a type, for what is
    no ``.cpb``, and for a ``path`` that is the source, or ends in ``.cpb``; `UnsupportedError` and `LimitError` for
    chunks that are merged again and again, or add up to more than the limit ``inflated_bytes``.
    """
    import pparse

    options: dict[str, object] = {"verify": verify}
    if message is not None:
        options["message"] = message
    if descriptor is not None:
        options["descriptor"] = descriptor
    with pparse.open(source, options=options, budget=budget, scratch=scratch, progress=progress) as document:
        return merge_document(document, path, progress)


def merge_document(document: Extraction, path: str, progress: Progress | None = None) -> MergeReport:
    """Merge an open document into the file ``path``, whole or not at all; see `merge_to_file`."""
    from pparse.writers.files import AtomicFile

    parser = check_mergeable(document)
    check_output(document, path)
    with AtomicFile(path) as file:
        report = _merge(parser, document, file.stream, progress)
    report.path = path
    return report


def merge_to_stream(document: Extraction, stream: BinaryIO, progress: Progress | None = None) -> MergeReport:
    """Merge an open document into a binary stream; see `merge_to_file`. Nothing is written unless all is whole."""
    return _merge(check_mergeable(document), document, stream, progress)


def _merge(parser: CpbParser, document: Extraction, stream: BinaryIO, progress: Progress | None) -> MergeReport:
    check_uses(parser)
    root = document.root
    sizes = measure(root)
    done = 0

    def out(block: bytes) -> None:
        nonlocal done
        document.session.check_cancelled()
        stream.write(block)
        done += len(block)
        if progress is not None:
            progress(done, sizes[0], "merging")

    with document.session.telling():
        written = write(root, sizes, out)
    if written != sizes[0]:
        raise MalformedError("the source changed while it was merged", wanted=sizes[0], got=written)
    assert parser.chunks is not None  # noqa: S101 -- what is mergeable has metadata
    return MergeReport("", written, len(sizes) - 1, chunks=parser.chunks.metadata.chunk_count, type=root.kind)


def check_mergeable(document: Extraction) -> CpbParser:
    """Return the parser of a document in chunks whose metadata could be read, and whose type is known.

    Raises `OptionError` for another document or type, `MalformedError` if the metadata are lost, or the file is cut.
    """
    parser = document.parse().parser
    if not isinstance(parser, CpbParser):
        raise OptionError(f"{document.name} is no chunked proto (.cpb), but {parser.name}: there is nothing to merge")
    if parser.chunks is None and parser.problem is None:
        raise OptionError(f"{document.name} has no .cpb, but a plain saved_model.pb: there is nothing to merge")
    check_end(parser)
    if parser.problem is not None:
        raise MalformedError(
            f"the chunk metadata, the last record, cannot be read: {parser.problem.reason}",
            source=document.name,
            offset=parser.problem.offset,
            fault=Fault.UNREADABLE,
        )
    unsound = parser.prove_metadata()
    if unsound is not None:
        unsound.source = document.name
        raise unsound
    if parser.root_type is None:
        check_first(parser)
        raise OptionError(f"the message type of {document.name} is not known: name it (-O message=NAME)")
    return parser


def check_output(document: Extraction, path: str) -> None:
    """Raise `OptionError` for a file that the document is read from, and for one that readers would take for chunks."""
    if is_read(document, path):
        raise OptionError(f"the output {path} is the file being read; name another one")
    if path.endswith(".cpb"):
        raise OptionError(f"the output {path} would pass for a file in chunks; name it {path[:-4]}.pb")


def check_uses(parser: CpbParser) -> None:
    """Raise as `Uses.add` if the chunked fields make too much of the chunks."""
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
    """Yield the chunk of each node of the tree of chunked fields; what cannot be read is left out, and found later."""
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
        # Only of a message is anything below; anything else needs a chunk, and takes 0 where none is named.
        if message.chunk_index is not None or below is None:
            yield message.chunk_index or 0
        if below is not None and message.count and len(stack) <= _MAX_NESTING:
            stack.append((message.fields(range(message.count)), below))


def _type_at(steps: list[Step], type: MessageType | None) -> MessageType | None:
    """Return the type of the message that a tag leads to from one of ``type``; None if it leads to none."""
    if not steps:
        return None
    for number, _, _ in steps:
        field = type.fields.get(number) if type is not None else None
        if field is not None and field.is_map:
            field = field.map_value
        type = field.message if field is not None else None
    return type


def check_first(parser: CpbParser) -> None:
    """Raise an error if the chunk of the root cannot be read: then the type is not seen because of that."""
    index = parser.chunks.metadata.root.chunk_index if parser.chunks is not None else None
    if parser.chunks is None or index is None:
        return
    try:
        parser.chunks.open(index)
    except PparseError as error:
        error.reason = f"chunk {index}, which would show the type, cannot be read: {error.reason}"
        error.source = error.source or parser.result.extraction.name
        error.fault = Fault.UNREADABLE
        raise


def check_end(parser: CpbParser) -> None:
    """Raise `MalformedError` if the file is cut: then its last record is another one, which may pass for metadata."""
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
