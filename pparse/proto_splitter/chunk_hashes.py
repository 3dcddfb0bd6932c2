"""Hashes of a SavedModel in chunks (``.cpb``). See `pparse.proto_splitter.fingerprint` for the rules."""

from __future__ import annotations

from pparse.errors import MalformedError, UnsupportedError
from pparse.kernels.farmhash import Fingerprint64, cat64, fingerprint64
from pparse.parsers.cpb.versions import check_versions
from pparse.proto_splitter.merge_chunks import read_metadata
from pparse.proto_splitter.pieces import Addressed, blocks_of, content_of, element, span, submessage, text_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.proto_splitter.canonical import Canonicalizer
    from pparse.proto_splitter.merge_chunks import ReadOptions
    from pparse.proto_splitter.pieces import Item

    Tag = tuple[tuple[str, int | bytes], ...]
    Steps = tuple[tuple[int, int | None], ...]

_META_GRAPH: Final[Tag] = (("field", 2), ("index", 0))
GRAPH: Final[Tag] = (*_META_GRAPH, ("field", 2))
SIGNATURES: Final[Tag] = (*_META_GRAPH, ("field", 5))
OBJECTS: Final[Tag] = (*_META_GRAPH, ("field", 7))
_TARGETS: Final = (GRAPH, SIGNATURES, OBJECTS)


def chunked_checksum(data: Data, options: ReadOptions) -> int:
    """Return the checksum alone. Raise as `chunked_hashes`."""
    metadata = read_metadata(data, options)
    check_versions(metadata.version.join_version, metadata.version.bad_consumers, source=data.name)
    with options.open(data) as reader:
        return _checksum(metadata.message, _Chunks(reader, metadata.chunks))


def chunked_hashes(data: Data, options: ReadOptions, canonicalizer: Canonicalizer) -> tuple[int, int, int, int]:
    """Return the checksum, and the hashes of the graph, of the signatures and of the object graph.

    Raise `MalformedError`, `EndOfDataError`, `UnsupportedError` (unsupported version) or `LimitError`.
    """
    from pparse.protos import schema

    metadata = read_metadata(data, options)
    check_versions(metadata.version.join_version, metadata.version.bad_consumers, source=data.name)
    types = schema()
    root = metadata.message
    with options.open(data) as reader:
        chunks = _Chunks(reader, metadata.chunks)
        checksum = _checksum(root, chunks)
        model = _pruned_items(root, chunks)
        meta_graph = element(model, 2, 0)
        if meta_graph is None:
            raise MalformedError("the SavedModel has no MetaGraphDef", source=data.name)
        own = canonicalizer.fingerprint(types.message("tensorflow.GraphDef"), submessage(meta_graph, 2) or [])
        graph = cat64(own, chunks.hash_of(root, GRAPH))
        signatures, chunked = 0, chunks.hash_of(root, SIGNATURES)
        kind = types.message("tensorflow.SignatureDef")
        for key, value in sorted(text_map(meta_graph, 5).items()):
            pair = cat64(fingerprint64(key), canonicalizer.fingerprint(kind, value))
            signatures = cat64(cat64(signatures, pair), chunked)
        own = canonicalizer.fingerprint(types.message("tensorflow.SavedObjectGraph"), submessage(meta_graph, 7) or [])
        return checksum, graph, signatures, cat64(own, chunks.hash_of(root, OBJECTS))


class _Chunks:
    """The chunks of a file, as ranges and as hashes. Each is hashed once."""

    def __init__(self, reader: Any, infos: Any) -> None:
        self._reader = reader
        self._infos = infos
        self._hashes: dict[int, int] = {}

    def open(self, index: int) -> Range:
        """Return the bytes of a chunk. Raise `MalformedError` if position or size contradict the metadata."""
        if index >= len(self._infos):
            raise MalformedError(f"there is no chunk {index}", wanted=index, got=len(self._infos))
        info = self._infos[index]
        self._reader.seek_numeric(info.offset)
        found: Range | None = self._reader.open_record()
        if found is None or self._reader.last_pos.numeric != info.offset:
            raise MalformedError(f"no record begins where chunk {index} should be", offset=info.offset)
        if len(found) != info.size:
            raise MalformedError(
                f"chunk {index} is not as long as the metadata say",
                offset=info.offset,
                wanted=info.size,
                got=len(found),
            )
        return found

    def fingerprint(self, index: int) -> int:
        """Return the hash of a chunk."""
        if index not in self._hashes:
            hashing = Fingerprint64()
            for block in blocks_of(self.open(index)):
                hashing.update(block)
            self._hashes[index] = hashing.digest()
        return self._hashes[index]

    def hash_of(self, tree: Any, target: Tag) -> int:
        """Return the joined hashes of the chunks below ``tree`` that count for a target.

        As in TensorFlow, the relative tags of nested trees are compared with the whole target.
        """
        walks = [self._walk(tree, target)]
        answer: int | None = None
        while walks:
            try:
                walks.append(self._walk(walks[-1].send(answer), target))
                answer = None
            except StopIteration as done:
                walks.pop()
                answer = done.value
        return answer or 0

    def _walk(self, tree: Any, target: Tag) -> Generator[Any, Any, int]:
        """Yield each tree whose hash is needed, and receive it; return the hash of this tree."""
        total = 0
        for entry in tree.chunked_fields:
            tag, inner = _tag(entry), entry.message
            matching = _common(tag, target)
            if matching == len(target):
                total = cat64(total, self.fingerprint(inner.chunk_index) if _has_chunk(inner) else (yield inner))
            elif matching == len(tag) and _has_chunk(inner):
                if tag:
                    raise UnsupportedError("TensorFlow computes no fingerprint if a chunk holds a whole MetaGraphDef")
                total = cat64(total, (yield inner))
            elif matching == len(tag):
                for below in inner.chunked_fields:  # the tags of these, and their chunks, do not count
                    total = cat64(total, (yield below.message))
        return total


def _checksum(root: Any, chunks: _Chunks) -> int:
    return cat64(chunks.hash_of(root, ()), fingerprint64(b""))


def _has_chunk(tree: Any) -> bool:
    found: bool = tree.HasField("chunk_index")
    return found


def _tag(entry: Any) -> Tag:
    return tuple(_step(index) for index in entry.field_tag)


def _step(index: Any) -> tuple[str, int | bytes]:
    kind = index.WhichOneof("kind")
    if kind is None:
        raise MalformedError("a tag has an empty step")
    value = getattr(index, kind)
    return kind, value if isinstance(value, int) else value.SerializeToString(deterministic=True)


def _common(first: Tag, second: Tag) -> int:
    """Return the length of the common prefix."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _pruned_items(root: Any, chunks: _Chunks) -> list[Item]:
    """Return the SavedModel of the root chunk and the chunks at or above a target, in merging order."""
    items: list[Item] = []
    waiting: list[tuple[Any, Steps]] = [(root, ())]
    while waiting:
        tree, at = waiting.pop()
        index = tree.chunk_index if _has_chunk(tree) else None
        items.append(_at(at, chunks, index))
        inner: list[tuple[Any, Steps]] = []
        for tag, _, entry in sorted(_matching(tree), key=lambda found: found[:2]):
            if tag:
                inner.append((entry.message, (*at, *_steps(tag))))
            else:  # comes before all others; chunks below it are ignored
                items.append(_at(at, chunks, entry.message.chunk_index))
        waiting += reversed(inner)
    return items


def _matching(tree: Any) -> list[tuple[Tag, int, Any]]:
    """Return the entries whose tag is a prefix of a target, once for each such target."""
    found = []
    for entry in tree.chunked_fields:
        tag = _tag(entry)
        times = sum(_common(tag, target) == len(tag) for target in _TARGETS)
        found += [(tag, entry.message.chunk_index, entry)] * times
    return found


def _steps(tag: Tag) -> list[tuple[int, int | None]]:
    """Return field numbers, each with the index that follows it; prefixes of targets have no other steps."""
    steps: list[tuple[int, int | None]] = []
    for kind, value in tag:
        if kind == "field":
            steps.append((int(value), None))
        else:
            steps[-1] = (steps[-1][0], int(value))
    return steps


def _at(steps: Steps, chunks: _Chunks, index: int | None) -> Item:
    """Return a chunk as an item; an empty message if there is no chunk."""
    content = span(b"") if index is None else content_of(chunks.open(index))
    return Addressed(steps, content) if steps else content
