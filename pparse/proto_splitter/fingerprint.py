"""The fingerprint of a SavedModel folder: hashes of its parts, as TensorFlow writes them into ``fingerprint.pb``.

::

    values = fingerprint("my_model")       # saved_model.cpb, or saved_model.pb
    values.singleprint                     # "8947653168630125217/15354238402988963670/…"
    write_fingerprint("my_model", values)

All hashes are FarmHash Fingerprint64 (`pparse.kernels.farmhash`), joined with `cat64`. Messages are hashed in the form
that C++ protobuf writes (`pparse.proto_splitter.canonical`). These are the rules of TensorFlow 2.21, found by
experiment:

``saved_model.pb`` (producer 4)
    The checksum is the hash of the whole message. The graph hash is that of the first MetaGraphDef's GraphDef, without
    what varies between equal models (see below). Signatures: key and message are joined on, in the order of keys.
    Object graph: for each concrete function, in the order of the number at the end of its name, the name without that
    number and the message are joined on; nodes do not count.

``saved_model.cpb`` (producer 2)
    Chunks are hashed as they are. A chunk counts for a target (the tag of a field) if one of the two tags is a prefix
    of the other. The checksum has the empty target, so all chunks except the root's own count. Graph, signatures and
    object graph: the hash of the field merged from the root chunk and the chunks whose tag is a prefix of the target
    (merged once per target of which it is a prefix), joined with the hash of the chunks. Nothing is regularized.

Chunks and large fields are hashed while they are read; none is held in memory.
"""

from __future__ import annotations

import os
from collections import namedtuple

from pparse.data.files import exists, inside, open_file
from pparse.errors import FormatError, MalformedError, UnsupportedError
from pparse.kernels.farmhash import Fingerprint64, cat64, fingerprint64
from pparse.kernels.varint import encode_varint
from pparse.lazy import lazy_pattern
from pparse.proto_splitter.canonical import (
    Addressed,
    Canonicalizer,
    Changes,
    blocks_of,
    content_of,
    element,
    last_number,
    last_text,
    span,
    submessage,
    text_map,
)
from pparse.proto_splitter.merger import ReadOptions, read_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Final

    from pparse.data.base import Data, Range
    from pparse.proto_splitter.canonical import Item
    from pparse.protobuf.schema import MessageType, Schema

    Folder = str | os.PathLike[str]
    Tag = tuple[tuple[str, int | bytes], ...]
    Steps = tuple[tuple[int, int | None], ...]

# Field numbers of SavedModel, MetaGraphDef and SavedObjectGraph.
META_GRAPHS: Final = 2
GRAPH_DEF: Final = 2
SIGNATURE_DEF: Final = 5
OBJECT_GRAPH_DEF: Final = 7
_CONCRETE_FUNCTIONS: Final = 2

PRODUCER_WHOLE: Final = 4
PRODUCER_CHUNKED: Final = 2

_FINGERPRINT_FILE: Final = "fingerprint.pb"
HASHES: Final = (
    "saved_model_checksum",
    "graph_def_program_hash",
    "signature_def_hash",
    "saved_object_graph_hash",
    "checkpoint_hash",
)
_MAX_FINGERPRINT_FILE: Final = 1 << 16

# Field numbers of GraphDef, NodeDef, AttrValue and NameAttrList.
_NODE, _LIBRARY, _VERSIONS = 1, 2, 4
_OP, _ATTR = 2, 5
_TEXT, _TYPE, _FUNCTION = 2, 6, 10
_FUNCTION_NAME: Final = 1
_DT_STRING: Final = 7

_CALLS: Final = (b"PartitionedCall", b"StatefulPartitionedCall")
# What C++ accepts as a number: blanks around it, a sign.
_NUMBER: Final = lazy_pattern(rb"[ \t\n\v\f\r]*([-+]?[0-9]{1,30})[ \t\n\v\f\r]*")

_META_GRAPH: Final[Tag] = (("field", 2), ("index", 0))
_GRAPH: Final[Tag] = (*_META_GRAPH, ("field", 2))
_SIGNATURES: Final[Tag] = (*_META_GRAPH, ("field", 5))
_OBJECTS: Final[Tag] = (*_META_GRAPH, ("field", 7))
_TARGETS: Final = (_GRAPH, _SIGNATURES, _OBJECTS)


class Fingerprint(
    namedtuple(
        "Fingerprint",
        "saved_model_checksum graph_def_program_hash signature_def_hash saved_object_graph_hash checkpoint_hash "
        "uuid producer",
        defaults=(0, 0, 0, 0, 0, "", 0),
    )
):
    """The fields of a ``tensorflow.FingerprintDef``.

    Hashes: of the whole SavedModel, of the graph of the first MetaGraphDef, of its signatures, of its object graph, and
    of the index of the checkpoint (0 if there is none). ``uuid`` is a random identifier of this copy, ``producer`` the
    version of the rules that the hashes were computed by. Two are equal if all fields are; `same_model` ignores the
    uuid.
    """

    __slots__ = ()

    @property
    def hashes(self) -> tuple[int, ...]:
        """The five hashes, in the order of their fields."""
        return self[: len(HASHES)]

    @property
    def singleprint(self) -> str:
        """One string that identifies the model: the hashes of graph, signatures, object graph and checkpoint."""
        return "/".join(map(str, self.hashes[1:]))

    def same_model(self, other: Fingerprint) -> bool:
        """Say whether all hashes are equal, and computed by the same rules."""
        return self.hashes == other.hashes and self.producer == other.producer

    def to_bytes(self) -> bytes:
        """Return the serialized FingerprintDef."""
        from pparse.protos import message_class

        message = message_class("tensorflow.FingerprintDef")(uuid=self.uuid)
        for name in HASHES:
            setattr(message, name, getattr(self, name))
        if self.producer:
            message.version.producer = self.producer
        serialized: bytes = message.SerializeToString(deterministic=True)
        return serialized

    @classmethod
    def from_bytes(cls, serialized: bytes) -> Fingerprint:
        """Parse a serialized FingerprintDef. Raise `MalformedError` if it is something else."""
        from google.protobuf.message import DecodeError

        from pparse.protos import message_class

        try:
            message = message_class("tensorflow.FingerprintDef").FromString(serialized)
        except DecodeError as error:
            raise MalformedError(f"not a FingerprintDef: {error}") from error
        found = {name: getattr(message, name) for name in (*HASHES, "uuid")}
        return cls(producer=message.version.producer, **found)


def fingerprint(path: Folder, *, uuid: str | None = None, **options: Any) -> Fingerprint:
    """Compute the fingerprint of a SavedModel folder as TensorFlow does. ``saved_model.cpb`` takes precedence over .pb.

    ``uuid`` is random by default. The other keyword arguments are those of
    `pparse.proto_splitter.merger.ReadOptions`: ``verify`` says which hashes of a ``.cpb`` are checked on the way.
    Messages are held without their large values; what does not fit in ``budget`` goes to ``scratch``.

    Raise `FormatError` if there is no SavedModel, `SourceError` if it cannot be read, `MalformedError` or
    `EndOfDataError` if it is damaged or truncated, `UnsupportedError` where TensorFlow's own result is not determined,
    `LimitError` if a limit is exceeded.
    """
    folder = os.fspath(path)
    given = ReadOptions(**options)
    chunked, whole = (inside(folder, f"saved_model{suffix}") for suffix in (".cpb", ".pb"))
    with Canonicalizer(given.budget, given.limits, given.scratch) as canonicalizer:
        if exists(chunked):
            with open_file(chunked) as data:
                hashes = _chunked_hashes(data, given, canonicalizer)
            producer = PRODUCER_CHUNKED
        elif exists(whole):
            with open_file(whole) as data:
                hashes = _whole_hashes(data, canonicalizer)
            producer = PRODUCER_WHOLE
        elif exists(inside(folder, "saved_model.pbtxt")):
            raise UnsupportedError(f"{folder}: TensorFlow computes no fingerprint of a SavedModel in text form")
        else:
            raise FormatError("the folder has no saved_model.cpb or saved_model.pb", source=folder)
    if uuid is None:
        import secrets

        uuid = str(secrets.randbits(128))
    return Fingerprint(*hashes, checkpoint_hash(folder), uuid, producer)


def write_fingerprint(folder: Folder, values: Fingerprint | None = None) -> Fingerprint:
    """Write ``fingerprint.pb`` into a SavedModel folder and return the fingerprint; by default, compute it first.

    The file is replaced as a whole or not at all. Raise `SourceError` if it cannot be written, else as `fingerprint`.
    """
    from pparse.writers.files import AtomicFile

    values = values or fingerprint(folder)
    serialized = values.to_bytes()
    with AtomicFile(os.path.join(os.fspath(folder), _FINGERPRINT_FILE)) as file:
        file.stream.write(serialized)
    return values


def read_fingerprint(folder: Folder) -> Fingerprint | None:
    """Return the content of ``fingerprint.pb`` in a SavedModel folder; None if there is no such file.

    Raise `MalformedError` if it is something else, `SourceError` if it cannot be read.
    """
    path = inside(os.fspath(folder), _FINGERPRINT_FILE)
    if not exists(path):
        return None
    with open_file(path) as data:
        if (data.size or 0) > _MAX_FINGERPRINT_FILE:
            raise MalformedError("the file is too large", source=path, wanted=_MAX_FINGERPRINT_FILE, got=data.size)
        return Fingerprint.from_bytes(data.pread(0, _MAX_FINGERPRINT_FILE))


def checkpoint_hash(folder: str) -> int:
    """Return the hash of the index of the folder's checkpoint; 0 if there is none."""
    path = inside(folder, "variables", "variables.index")
    if not exists(path):
        return 0
    with open_file(path) as data:
        return hash_of(data.range(0, data.size or 0))


def hash_of(found: Range) -> int:
    """Return the hash of bytes as they are, read piece by piece."""
    hashing = Fingerprint64()
    for block in blocks_of(found):
        hashing.update(block)
    return hashing.digest()


# -- a whole message ---------------------------------------------------------------------------------------------------


def whole_checksum(message: Range, canonicalizer: Canonicalizer) -> int:
    """Return the checksum of a SavedModel in one message (producer 4). Raise as `Canonicalizer.fingerprint`."""
    from pparse.protos import schema

    return canonicalizer.fingerprint(schema().message("tensorflow.SavedModel"), [content_of(message)])


def _whole_hashes(data: Data, canonicalizer: Canonicalizer) -> tuple[int, int, int, int]:
    """Return the checksum, and the hashes of the graph, of the signatures and of the object graph."""
    from pparse.protos import schema

    types = schema()
    model = data.range(0, data.size or 0)
    checksum = whole_checksum(model, canonicalizer)
    meta_graph = _meta_graph([content_of(model)], data)
    graph = canonicalizer.fingerprint(
        types.message("tensorflow.GraphDef"),
        submessage(meta_graph, GRAPH_DEF) or [],
        graph_changes(canonicalizer, types.message("tensorflow.AttrValue")),
    )
    signatures = 0
    for key, value in sorted(text_map(meta_graph, SIGNATURE_DEF).items()):
        signatures = cat64(signatures, fingerprint64(key))
        signatures = cat64(signatures, canonicalizer.fingerprint(types.message("tensorflow.SignatureDef"), value))
    objects = submessage(meta_graph, OBJECT_GRAPH_DEF) or []
    return checksum, graph, signatures, _object_graph_hash(objects, types, canonicalizer)


def _meta_graph(model: list[Item], data: Data) -> list[Item]:
    """Return the items of the first MetaGraphDef of a SavedModel."""
    found = element(model, META_GRAPHS, 0)
    if found is None:
        raise MalformedError("the SavedModel has no MetaGraphDef", source=data.name)
    return found


def _object_graph_hash(objects: list[Item], types: Schema, canonicalizer: Canonicalizer) -> int:
    functions = text_map(objects, _CONCRETE_FUNCTIONS)
    by_number: dict[int, bytes] = {}
    for name in functions:
        number = suffix_number(name)
        shown = name.decode(errors="backslashreplace")
        if number is None:
            raise MalformedError(f"the name of the function {shown!r} does not end in a number")
        if number in by_number:
            raise UnsupportedError(
                f"two functions end in {number}, {shown!r} is one of them: TensorFlow may take either"
            )
        by_number[number] = name
    result = 0
    kind = types.message("tensorflow.SavedConcreteFunction")
    for number, name in sorted(by_number.items()):
        result = cat64(result, fingerprint64(without_number(name, number)))
        result = cat64(result, canonicalizer.fingerprint(kind, functions[name]))
    return result


# -- what is removed from a graph --------------------------------------------------------------------------------------
#
# TensorFlow removes from the graph of a plain saved_model.pb what varies between equal models. The rules are those of
# its ``graph_regularization::SimpleDelete``, found by experiment:
#
# - the function library and the versions are emptied;
# - a ``PartitionedCall`` or ``StatefulPartitionedCall`` loses the number at the end of the name of the function that it
#   calls (``__inference_f_12`` becomes ``__inference_f_``), and the content of its ``config_proto``;
# - a ``Const`` of strings loses its value.
#
# Changes are written as parts that follow a node's own: parsing merges, and the last entry of a map wins.


def suffix_number(name: bytes) -> int | None:
    """Return the number after the last underscore of a function's name; None if there is none, or above 64 bits."""
    match = _NUMBER.fullmatch(name.rpartition(b"_")[2])
    number = int(match[1]) if match else 1 << 63
    return number if -(1 << 63) <= number < 1 << 63 else None


def without_number(name: bytes, number: int) -> bytes:
    """Return the name without the number at its end, if it is written as C++ writes it."""
    return name.removesuffix(str(number).encode())


def graph_changes(canonicalizer: Canonicalizer, attr_value: MessageType) -> Changes:
    """Return the changes to a GraphDef; ``attr_value`` is the type ``tensorflow.AttrValue``."""

    def rewrite(node: list[Item]) -> list[Item]:
        op = last_text(node, _OP)
        if op == b"Const":
            return node + _constant_changes(node)
        return node + _call_changes(node, canonicalizer, attr_value) if op in _CALLS else node

    return Changes((_LIBRARY, _VERSIONS), _NODE, rewrite)


def _constant_changes(node: list[Item]) -> list[Item]:
    attrs = text_map(node, _ATTR)
    if b"value" not in attrs or last_number(attrs.get(b"dtype", []), _TYPE) != _DT_STRING:
        return []
    return [_entry(b"value", b"")]


def _call_changes(node: list[Item], canonicalizer: Canonicalizer, attr_value: MessageType) -> list[Item]:
    attrs = text_map(node, _ATTR)
    changes = []
    if b"config_proto" in attrs:
        changes.append(_entry(b"config_proto", _field(_TEXT, b"")))
    if b"f" in attrs:
        value = canonicalizer.run(attr_value, attrs[b"f"]).tobytes()
        name = last_text(submessage([span(value)], _FUNCTION) or [], _FUNCTION_NAME)
        number = suffix_number(name)
        if number is not None:
            new = _field(_FUNCTION, _field(_FUNCTION_NAME, without_number(name, number)))
            changes.append(_entry(b"f", value + new))
    return changes


def _field(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def _entry(key: bytes, value: bytes) -> Item:
    """Return an entry of a node's attributes."""
    return span(_field(_ATTR, _field(1, key) + _field(2, value)))


# -- a message in chunks -----------------------------------------------------------------------------------------------


def chunked_checksum(data: Data, options: ReadOptions) -> int:
    """Return the checksum of a SavedModel in chunks (producer 2). Raise as `fingerprint`."""
    return _HashedChunks(data, options).checksum()


def _chunked_hashes(data: Data, options: ReadOptions, canonicalizer: Canonicalizer) -> tuple[int, int, int, int]:
    """Return the checksum, and the hashes of the graph, of the signatures and of the object graph."""
    from pparse.protos import schema

    types, chunks = schema(), _HashedChunks(data, options)
    checksum = chunks.checksum()
    meta_graph = _meta_graph(chunks.pruned_items(), data)
    own = canonicalizer.fingerprint(types.message("tensorflow.GraphDef"), submessage(meta_graph, GRAPH_DEF) or [])
    graph = cat64(own, chunks.joined_hash(_GRAPH))
    signatures, chunked = 0, chunks.joined_hash(_SIGNATURES)
    kind = types.message("tensorflow.SignatureDef")
    for key, value in sorted(text_map(meta_graph, SIGNATURE_DEF).items()):
        pair = cat64(fingerprint64(key), canonicalizer.fingerprint(kind, value))
        signatures = cat64(cat64(signatures, pair), chunked)
    objects = submessage(meta_graph, OBJECT_GRAPH_DEF) or []
    own = canonicalizer.fingerprint(types.message("tensorflow.SavedObjectGraph"), objects)
    return checksum, graph, signatures, cat64(own, chunks.joined_hash(_OBJECTS))


class _HashedChunks:
    """The chunks of a file, as ranges and as hashes. Each is hashed once."""

    def __init__(self, data: Data, options: ReadOptions) -> None:
        metadata = read_metadata(data, options)
        self._name, self._lookup = data.name, options.lookup(data)
        self._infos = metadata.chunks
        self._root = metadata.message
        self._hashes: dict[int, int] = {}

    def open(self, index: int) -> Range:
        """Return the bytes of a chunk. Raise `MalformedError` if position or size contradict the metadata."""
        if index >= len(self._infos):
            raise MalformedError(f"there is no chunk {index}", wanted=index, got=len(self._infos))
        info = self._infos[index]
        try:
            found = self._lookup.record(info.offset)
        except MalformedError as error:
            error.source = self._name
            raise
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
            self._hashes[index] = hash_of(self.open(index))
        return self._hashes[index]

    def checksum(self) -> int:
        """Return the hash of all chunks except the root's own."""
        return cat64(self.joined_hash(()), fingerprint64(b""))

    def joined_hash(self, target: Tag) -> int:
        """Return the joined hashes of the chunks that count for a target.

        As in TensorFlow, the relative tags of nested trees are compared with the whole target.
        """
        walks = [self._walk(self._root, target)]
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
            above, has_chunk = target[: len(tag)] == tag, inner.HasField("chunk_index")
            if tag[: len(target)] == target:
                total = cat64(total, self.fingerprint(inner.chunk_index) if has_chunk else (yield inner))
            elif above and has_chunk:
                if tag:
                    raise UnsupportedError("TensorFlow computes no fingerprint if a chunk holds a whole MetaGraphDef")
                total = cat64(total, (yield inner))
            elif above:
                for below in inner.chunked_fields:  # the tags of these, and their chunks, do not count
                    total = cat64(total, (yield below.message))
        return total

    def pruned_items(self) -> list[Item]:
        """Return the SavedModel of the root chunk and the chunks at or above a target, in merging order."""
        items: list[Item] = []
        waiting: list[tuple[Any, Steps]] = [(self._root, ())]
        while waiting:
            tree, at = waiting.pop()
            items.append(self._item(at, tree.chunk_index if tree.HasField("chunk_index") else None))
            inner: list[tuple[Any, Steps]] = []
            for tag, message in _matching(tree):
                if tag:
                    inner.append((message, (*at, *_steps(tag))))
                else:  # comes before all others; chunks below it are ignored
                    items.append(self._item(at, message.chunk_index))
            waiting += reversed(inner)
        return items

    def _item(self, steps: Steps, index: int | None) -> Item:
        """Return a chunk as an item; an empty message if there is no chunk."""
        content = span(b"") if index is None else content_of(self.open(index))
        return Addressed(steps, content) if steps else content


def _tag(entry: Any) -> Tag:
    return tuple(_step(index) for index in entry.field_tag)


def _step(index: Any) -> tuple[str, int | bytes]:
    kind = index.WhichOneof("kind")
    if kind is None:
        raise MalformedError("a tag has an empty step")
    value = getattr(index, kind)
    return kind, value if isinstance(value, int) else value.SerializeToString(deterministic=True)


def _matching(tree: Any) -> list[tuple[Tag, Any]]:
    """Return the entries whose tag is a prefix of a target, once for each such target, by tag and chunk index."""
    tagged = [(_tag(entry), entry.message) for entry in tree.chunked_fields]
    found = [(tag, inner) for tag, inner in tagged for target in _TARGETS if target[: len(tag)] == tag]
    return sorted(found, key=lambda item: (item[0], item[1].chunk_index))


def _steps(tag: Tag) -> list[tuple[int, int | None]]:
    """Return field numbers, each with the index that follows it; prefixes of targets have no other steps."""
    steps: list[tuple[int, int | None]] = []
    for kind, value in tag:
        if kind == "field":
            steps.append((int(value), None))
        else:
            steps[-1] = (steps[-1][0], int(value))
    return steps
