"""Distributed checkpoints of PyTorch: the file ``.metadata`` of a folder, which names what lies in its shards.

It is a pickle of `torch.distributed.checkpoint.metadata.Metadata`, an object with these attributes
(torch/distributed/checkpoint/metadata.py, filesystem.py)::

    state_dict_metadata  name: TensorStorageMetadata(properties, size, chunks) or BytesStorageMetadata, an object
    planner_data         name: its path in what was saved
    storage_data         MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)

Each chunk of a tensor, and each object, is an archive of ``torch.save`` of its own, at that place of a shard
(`pparse.parsers.pytorch.distcp`). As a tree it is a pickle: `pparse.parsers.pickle.parser` has the rest.

A real one has hundreds of thousands of chunks. Their places are read once, a few at a time, into 32 bytes each.
"""

from __future__ import annotations

from array import array
from functools import cached_property

from pparse.errors import PathError, PparseError
from pparse.limits import count_words
from pparse.parsers.model_folder import ModelFolderParser
from pparse.parsers.pickle.parser import PickleParser
from pparse.parsers.pickle.values import Call
from pparse.parsers.pytorch.distcp import METADATA
from pparse.parsers.pytorch.rebuild import Odd, numbers
from pparse.tensors.status import sharers
from pparse.tree.entry import MAP
from pparse.tree.index import EACH, KeyTable, key_hash
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.document.extraction import FolderExtraction
    from pparse.limits import Charge
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt

# Of the words at the beginning, damage takes one.
_WORDS: Final = (b"torch.distributed.", b"checkpoint.metadata", b"state_dict_metadata")
# Memory of the place of a chunk, without its hash; and of the name of a file.
_PLACE: Final = 21
_FILE: Final = 200
# Places up to here are compared with each other: no file is larger.
_FAR: Final = 1 << 44
_MOST_FILES: Final = 1 << 20
_PACKED: Final = "its archive is packed"


class Place:
    """Where the archive of a chunk, or of an object, lies."""

    __slots__ = ("file", "is_shared", "length", "number", "offset")

    def __init__(self, number: int, file: int, offset: int, length: int, *, is_shared: bool) -> None:
        self.number = number
        """Its own number among all places."""
        self.file = file
        """The number of its file."""
        self.offset = offset
        """Where it begins there."""
        self.length = length
        """Its bytes."""
        self.is_shared = is_shared
        """Whether another archive has some of these bytes, too."""


class Places:
    """Where the archives lie, by name and offsets: found by the hash of these, and kept as numbers."""

    def __init__(self, parser: DcpParser) -> None:
        self.files: list[str] = []
        """The paths of the files, in the order in which they are named."""
        self.ends: list[int] = []
        """Where the last archive in each of them ends."""
        self.problem = ""
        """Why places are not known: of the first pair that cannot be read."""
        self.are_packed = False
        """Whether a chunk is not stored as it is (by ``_extensions`` of torch's writer)."""
        self._files, self._offsets, self._lengths = array("I"), array("q"), array("q")
        session = parser.result.extraction.session
        self._session = session
        self._charge: Charge = session.budget.charge(0, "the places of chunks")
        self._table = KeyTable(self._hashes(parser))
        self.proved = bytearray(len(self))
        """By number, whether the checksum was compared, and agrees."""
        self._shared = frozenset(sharers(session.budget, self._ranges()))

    def __len__(self) -> int:
        return len(self._files)

    def _hashes(self, parser: DcpParser) -> Iterator[int]:
        """Yield the hash of each key, and keep its value."""
        known: dict[str, int] = {}
        for key, value in parser.pairs("storage_data"):
            found = _place_of(key, value)
            self.are_packed = self.are_packed or found == _PACKED
            if isinstance(found, str):
                self.problem = self.problem or found
                continue
            text, path, offset, length = found
            number = known.get(path)
            if number is None:
                number = known[path] = len(known)
                self._session.limits.check("entries", number, "the files of a checkpoint")
                self.files.append(path)
                self.ends.append(0)
            self.ends[number] = max(self.ends[number], offset + length)
            self._files.append(number)
            self._offsets.append(offset)
            self._lengths.append(length)
            if not len(self) & 0x3FF or number == len(known) - 1:
                self._charge.resize((EACH + _PLACE) * len(self) + _FILE * len(known))
                self._session.check_cancelled()
            yield key_hash(text)

    def _ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield number, begin and end of each place, as if the files were one after the other."""
        for number, (file, offset, length) in enumerate(zip(self._files, self._offsets, self._lengths, strict=True)):
            if file < _MOST_FILES and length <= _FAR - offset:
                yield number, file * _FAR + offset, file * _FAR + offset + length

    def find(self, name: str, offsets: tuple[int, ...] | None) -> Place | None:
        """Return the place of the chunk of a tensor that begins at ``offsets``, or of an object; None: it has none."""
        number = self._table.nth(_key(name, offsets), 1)
        if number is None:
            return None
        place = self._files[number], self._offsets[number], self._lengths[number]
        return Place(number, *place, is_shared=number in self._shared)


def _key(name: str, offsets: tuple[int, ...] | None) -> str:
    return f"{offsets}{name}"


def _place_of(key: Any, value: Any) -> tuple[str, str, int, int] | str:
    """Return key, path, offset and length of an archive as a pair of ``storage_data`` has them, or what is wrong."""
    for part in (key, value):
        if isinstance(part, PparseError):
            return part.reason
    index, place = state_of(key), state_of(value)
    name, offsets = index.get("fqn"), index.get("offset")
    path, begin, length = place.get("relative_path"), place.get("offset"), place.get("length")
    try:
        where = None if offsets is None else numbers(offsets)
    except Odd as error:
        return str(error)
    if not isinstance(name, str) or not isinstance(path, str) or type(begin) is not int or type(length) is not int:
        return "the place of a chunk is not described as known"
    if place.get("transform_descriptors"):
        return _PACKED
    if not 0 <= begin < 1 << 62 or not 0 <= length < 1 << 62:
        return f"a chunk of {name!r} has the place {begin:,}, {length:,}"
    return _key(name, where), path, begin, length


def state_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object as its pickle has them; none of anything else."""
    return value.state if isinstance(value, Call) and isinstance(value.state, dict) else {}


class DcpParser(PickleParser):
    """The file that names what the shards of a distributed checkpoint hold."""

    name = "pytorch-dcp"
    description = "PyTorch distributed checkpoint (its .metadata, and the .distcp files beside it)"
    extensions: ClassVar[tuple[str, ...]] = (METADATA,)
    signatures = signatures(*(b"\x80" + bytes([protocol]) for protocol in range(2, 6)))
    viewer = "pparse.viewers.pytorch.dcp:DcpViewer"
    refines = ("pickle",)
    is_generic = False
    named_is_enough = False
    needs_folder = True
    references: ClassVar[tuple[str, ...]] = (
        "torch/distributed/checkpoint/metadata.py",
        "torch/distributed/checkpoint/filesystem.py",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "tensors inside of objects that were saved as a whole are not listed: open the shard",
        "chunks that were compressed, or written as safetensors, are not read",
    )

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a pickle, if the words are there that it begins with."""
        head = excerpt.head(256)
        return super().match(excerpt) if sum(word in head for word in _WORDS) > 1 else Confidence.NO

    def part(self, name: str) -> Node | None:
        """Return an attribute of the checkpoint; None if it is lost."""
        root = self.result.root
        if root.kind != "call":
            return None
        # In a pickle that is cut, the state has no name yet.
        states = (kid for kid in root.children() if kid.kind == "dict")
        found = (state.find(name) for state in states)
        return next((node for node in found if node is not None and node.shape == MAP), None)

    def pairs(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values of an attribute, decoded; nothing if it is lost."""
        node = self.part(name)
        if node is not None and node.kind == "dict":
            yield from self.pairs_of(node)

    @cached_property
    def described(self) -> Node | None:
        """What describes the tensors and objects, by name; None if it is lost."""
        return self.part("state_dict_metadata")

    @cached_property
    def places(self) -> Places:
        """Where the chunks of tensors lie, and the objects: read when it is first asked for."""
        return Places(self)

    def value_of(self, node: Node) -> Any:
        """Return the value of a node. Raises `DataError`."""
        node._refuse_if_not_whole()
        return self.decoded(self.program(node.start), node.start, node.end or node.start)

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        files = self.places.files
        shown = f" ({files[0]}{' …' if len(files) > 1 else ''})" if files else ""
        yield (
            "chunks",
            f"{count_words(len(self.places), 'archive')} of torch.save in {count_words(len(files), 'file')}{shown}",
        )
        yield from super().details()


class DcpFolderParser(ModelFolderParser):
    """A folder with a distributed checkpoint, for which its ``.metadata`` stands."""

    name = "pytorch-dcp-folder"
    description = "folder with a PyTorch distributed checkpoint"
    member_parts = (METADATA,)
    is_generic = False
    shapes: ClassVar[dict[str, str]] = {"pytorch-dcp-folder": MAP}
    references = DcpParser.references
    limitations: ClassVar[tuple[str, ...]] = ("without its .metadata, the shards are shown one by one",)

    @classmethod
    def models_in(cls, folder: FolderExtraction) -> Sequence[str]:
        """Return the file that stands for the checkpoint."""
        try:
            is_one = METADATA in folder.members and folder.sibling(METADATA).own_result.parser.name == DcpParser.name
        except (PathError, PparseError):
            is_one = False
        return [METADATA] if is_one else []

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """CERTAIN by the file."""
        return Confidence.CERTAIN if cls.models_in(folder) else Confidence.NO
