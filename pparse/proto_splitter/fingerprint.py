"""The fingerprint of a SavedModel folder: hashes of its parts, as TensorFlow writes them into ``fingerprint.pb``.

::

    values = fingerprint("my_model")       # saved_model.cpb, or saved_model.pb
    values.singleprint                     # "8947653168630125217/15354238402988963670/…"
    write_fingerprint("my_model", values)

All hashes are FarmHash Fingerprint64 (`pparse.kernels.farmhash`), joined with `cat64`. Messages are hashed in the form
that C++ protobuf writes (`pparse.proto_splitter.canonical`). These are the rules of TensorFlow 2.21, found by
experiment:

``saved_model.pb`` (producer 4)
    The checksum is the hash of the whole message. The graph hash is that of the first MetaGraphDef's GraphDef,
    regularized (`pparse.proto_splitter.regularize`). Signatures: key and message are joined on, in the order of keys.
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

from pparse.budget import MemoryBudget
from pparse.data.files import exists, inside, open_file
from pparse.errors import FormatError, MalformedError, UnsupportedError
from pparse.kernels.farmhash import Fingerprint64, cat64, fingerprint64
from pparse.limits import Limits
from pparse.proto_splitter.canonical import Canonicalizer
from pparse.proto_splitter.pieces import blocks_of, content_of, element, submessage, text_map
from pparse.proto_splitter.regularize import graph_changes, suffix_number, without_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch
    from pparse.proto_splitter.pieces import Item
    from pparse.protobuf.schema import Schema

    Folder = str | os.PathLike[str]

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


class Fingerprint:
    """The fields of a ``tensorflow.FingerprintDef``.

    Two are equal if all their fields are; `same_model` ignores the uuid.
    """

    __slots__ = (*HASHES, "producer", "uuid")

    def __init__(
        self,
        saved_model_checksum: int = 0,
        graph_def_program_hash: int = 0,
        signature_def_hash: int = 0,
        saved_object_graph_hash: int = 0,
        checkpoint_hash: int = 0,
        uuid: str = "",
        producer: int = 0,
    ) -> None:
        self.saved_model_checksum = saved_model_checksum
        """Hash of the whole SavedModel."""
        self.graph_def_program_hash = graph_def_program_hash
        """Hash of the graph of the first MetaGraphDef."""
        self.signature_def_hash = signature_def_hash
        """Hash of its signatures."""
        self.saved_object_graph_hash = saved_object_graph_hash
        """Hash of its object graph."""
        self.checkpoint_hash = checkpoint_hash
        """Hash of the index of the checkpoint; 0 if there is none."""
        self.uuid = uuid
        """A random identifier of this copy."""
        self.producer = producer
        """Version of the rules that the hashes were computed by."""

    @property
    def hashes(self) -> tuple[int, ...]:
        """The five hashes, in the order of their fields."""
        return tuple(getattr(self, name) for name in HASHES)

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint):
            return NotImplemented
        return self.same_model(other) and self.uuid == other.uuid

    def __hash__(self) -> int:
        return hash((self.hashes, self.uuid))

    def __repr__(self) -> str:
        return f"<Fingerprint {self.singleprint} (producer {self.producer})>"


def fingerprint(
    path: Folder,
    *,
    uuid: str | None = None,
    verify: str = "all",
    budget: int | str | MemoryBudget = "64MiB",
    limits: Limits | None = None,
    scratch: Scratch | None = None,
) -> Fingerprint:
    """Compute the fingerprint of a SavedModel folder as TensorFlow does. ``saved_model.cpb`` takes precedence over .pb.

    ``uuid`` is random by default. ``verify`` says which hashes of a ``.cpb`` are checked on the way (see
    `pparse.riegeli.RecordReader`). Messages are held without their large values; what does not fit in ``budget`` goes
    to ``scratch``.

    Raise `FormatError` if there is no SavedModel, `SourceError` if it cannot be read, `MalformedError` or
    `EndOfDataError` if it is damaged or truncated, `UnsupportedError` where TensorFlow's own result is not determined,
    `LimitError` if a limit is exceeded.
    """
    folder = os.fspath(path)
    limits = limits or Limits()
    budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
    chunked, whole = (inside(folder, f"saved_model{suffix}") for suffix in (".cpb", ".pb"))
    with Canonicalizer(budget, limits, scratch) as canonicalizer:
        if exists(chunked):
            from pparse.proto_splitter.chunk_hashes import chunked_hashes
            from pparse.proto_splitter.merge_chunks import ReadOptions

            with open_file(chunked) as data:
                hashes = chunked_hashes(data, ReadOptions(verify, budget, limits, scratch), canonicalizer)
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
    model: list[Item] = [content_of(data.range(0, data.size or 0))]
    checksum = whole_checksum(data.range(0, data.size or 0), canonicalizer)
    meta_graph = element(model, META_GRAPHS, 0)
    if meta_graph is None:
        raise MalformedError("the SavedModel has no MetaGraphDef", source=data.name)
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
