"""A model in several files, whatever their format: known by an index, by a folder, or by names with numbers."""

from __future__ import annotations

import re
from functools import cached_property

from pparse.data.base import Distance
from pparse.document.extraction import extraction_of
from pparse.document.folder import several_models
from pparse.errors import DataError, MalformedError, PparseError, SourceError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Container, Parser, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

# Of far shards: how many are opened at once, how much of each is read first, and how long a header is read in advance.
_AT_ONCE: Final = 64
_FIRST: Final = 64 << 10
_LONGEST: Final = 4 << 20
# So many bytes tell how long a header is.
_HEAD: Final = 8


class ShardSet(Parser, Container):
    """Base of the parsers of a model in several files: by an index, by a folder, or by their names alone."""

    is_set = True

    shapes = {"shards": MAP, "object": MAP, "array": LIST}

    index: ShardIndexParser | None = None
    """The parser of the index, if there is one."""

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield ``(tensor name, shard name)`` from the index; the shard is None if it is not a string."""
        return self.index.weight_map() if self.index is not None else iter(())

    @property
    def has_map(self) -> bool:
        """Whether there is an index that maps tensors to shards."""
        return self.index is not None and self.index.has_map

    def index_metadata(self) -> dict[str, Any]:
        """Return the metadata of the index."""
        return self.index.index_metadata() if self.index is not None else {}

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the index names for a tensor."""
        return self.index.map_lookup(name) if self.index is not None else None

    def map_size(self) -> int | None:
        """Return the number of tensors that the index names."""
        return self.index.map_size() if self.index is not None else None

    def extra_files(self) -> list[str]:
        """Return files in the folder that look like shards, but are not named by the index."""
        return []

    @property
    def is_alone(self) -> bool:
        """Whether it lies in no folder, so that shards cannot be looked for."""
        return extraction_of(self.result).folder is None

    def shard(self, name: str) -> Extraction:
        """Return the extraction of one shard. Raises `PathError` if the name leaves the folder, and `SourceError`."""
        return self.home.sibling(name)

    @property
    def home(self) -> Extraction:
        """What the shards lie beside: the index, if there is one."""
        return extraction_of((self.index or self).result)

    def in_order(self, alone: int = 0) -> Iterator[tuple[int, str]]:
        """Yield number and name of each shard.

        If shards are far away, many are opened at once, and their headers read, before the first of them is yielded;
        the first ``alone`` ones are not.
        """
        names, fetched = self.shard_names(), 0
        for number, name in enumerate(names):
            if number >= max(fetched, alone) and (fetched or self._are_far(names, number)):
                fetched = self._fetch(names, number)
            yield number, name

    def _are_far(self, names: Sequence[str], number: int) -> bool:
        """Return whether shards are far away: what tells it is the index, the folder, or the shard before."""
        home = self.home
        if number:
            return _is_far(home) or _is_far(home.children.get(names[number - 1]))
        return _is_far(home) or (home.folder is not None and home.folder.distance is not Distance.NEAR)

    def _fetch(self, names: Sequence[str], number: int) -> int:
        """Open far shards from ``number`` on at once, and read their headers; return the number of the next one."""
        from pparse.data.block_cache import in_parallel

        budget = self.home.session.budget
        last = number + max(1, min(_AT_ONCE, budget.limit // 8 // _FIRST))
        heads = self.home.fetch_siblings(names[number:last])
        sizes = [size or 0 for size, _ in in_parallel(self._read_length, heads)]
        room, rest = budget.limit // 4, []
        for data, size in zip(heads, sizes, strict=True):
            room -= size
            if room >= 0 and size > _FIRST:
                rest.append((data, size))
        in_parallel(_read_head, rest)
        return last

    def head_size(self, first: bytes) -> int:
        """Return how much of a far shard, which begins with ``first``, is read in advance; 0: no more than `_FIRST`."""
        return 0

    def _read_length(self, data: Data) -> int:
        """Read the first bytes of a far shard; return where its header ends, 0 if that is not known, or too far."""
        data.prefetch([(0, _FIRST)])
        end = self.head_size(data.pread(0, _HEAD))
        return end if end <= _LONGEST else 0

    def enter(self, name: str) -> Extraction | None:
        """Return the shard ``name``."""
        return self.shard(name) if name in self.shard_names() else None

    def emit_shards(self, ctx: NodeContext) -> None:
        """Emit every shard file with its size."""
        for _, name in self.in_order():
            try:
                size = self.shard(name).size
                ctx.emit(Entry(name, "file", 0, 0, size))
            except PparseError:
                status = Status.UNSUPPORTED if self.is_alone else Status.MISSING
                ctx.emit(Entry(name, "file", 0, 0, None, status=status))


def _is_far(shard: Extraction | None) -> bool:
    return shard is not None and shard.data.distance is Distance.FAR


def _read_head(head: tuple[Data, int]) -> None:
    data, end = head
    data.prefetch([(0, end)])


def template(name: str) -> str:
    """Return a file name with its numbers masked, which is the same for all shards of a model."""
    return re.sub(r"\d+", "#", name)


# -- Index of a model in shards: a JSON object that maps the names of tensors to files ---------------------------------

# A convention of Hugging Face's libraries: ``weight_map`` (tensor name to shard file name) and ``metadata`` (or
# ``__metadata__``) with ``total_size``, the sum of the tensors' bytes. Shards lie in the index's folder and are opened
# on demand, once each, as child extractions. A format's own parser says how its index and shards are named.
#
# States of the root::
#
#     state       needs  reads                                                             goes to
#     expect_map  0      nothing: the JSON parser reads the text; metadata, weight_map     DONE
#                        and the shards become children

# Up to this size an index is decoded at once; a larger one is read through its nodes.
_SMALL: Final = 1 << 20
# Memory that it takes then, in sizes of its text.
_DECODED: Final = 4
_MAP: Final = lazy_pattern(rb'"weight_map"\s*+:\s*+\{(?:\s*+\}|\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+"([^"\\]*+)")?')


class ShardIndexParser(ShardSet):
    """An index and the shards that it names: base of those of each format."""

    suffix: ClassVar[str]
    """How the name of an index ends."""
    endings: ClassVar[tuple[str, ...]]
    """How the names of its shards end; the first one is that of new files."""
    if_empty: ClassVar[Confidence] = Confidence.NO
    """What an empty map under any other name is."""

    signatures = signatures(b"{", b" ", b"\t", b"\n", b"\r")
    media_type = "application/json"
    refines = ("json",)
    references = ("huggingface/transformers and huggingface_hub (sharded checkpoints)",)
    limitations = (
        "shard names must stay in the index's folder",
        "a walk through an archive shows an index without its shards, which are models of their own there",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.index = self
        extraction = extraction_of(result)
        self.json: Result = extraction.child("index", extraction.data, extraction.start, extraction.end, "json").parse()
        self._names: list[str] | None = None
        self._unnamed: list[str] | None = None

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN for a ``weight_map`` whose first shard is of the right format, by its name."""
        found = _MAP.search(excerpt.head(64 << 10))
        if found is None:
            return Confidence.NO
        endings = tuple(ending.encode() for ending in cls.endings)
        if found[1] is None:
            return Confidence.CERTAIN if excerpt.ends_with((cls.suffix,)) else cls.if_empty
        return Confidence.CERTAIN if found[1].endswith(endings) else Confidence.NO

    @cached_property
    def _small(self) -> dict[str, Any] | None:
        """The whole index, decoded at once, if it is small and sound; else None."""
        extraction = self.result.extraction
        size = extraction.find_end() - extraction.start
        json: JsonParser = self.json.parser  # type: ignore[assignment]
        room = extraction.session.budget.fits(_DECODED * size)
        if size > _SMALL or not room or json.result.root.kind != "object":
            return None
        text = extraction.data.pread(json.result.root.start, size)
        try:
            found = json.decoder.decode_shallow(text.rstrip(), json.result.root.start)
        except DataError:
            return None
        is_sound = not json.decoder.duplicates and isinstance(found, dict)
        json.decoder.pairs = []
        if not is_sound:
            return None
        self._charge = extraction.session.budget.charge(_DECODED * size, "the index of the shards")
        return found  # type: ignore[no-any-return]

    def _object(self, name: str) -> Node | None:
        """Return the object at a key of the index; None if it has none."""
        node = self.json.root.find(name)
        return node if node is not None and node.kind == "object" else None

    @property
    def has_map(self) -> bool:
        """Whether the index has a weight map."""
        return self._map() is not None

    def _map(self) -> dict[str, Any] | Node | None:
        """Return the weight map; None if the index has none."""
        if self._small is None:
            return self._object("weight_map")
        found = self._small.get("weight_map")
        return found if isinstance(found, dict) else None

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield the weight map."""
        found = self._map()
        pairs: Iterable[tuple[str, Any]] = ()
        if isinstance(found, dict):
            pairs = found.items()
        elif found is not None:
            json: JsonParser = self.json.parser  # type: ignore[assignment]
            members = json.each_member(found)
            pairs = ((name, shard) for _, name, shard, entry in members if name is not None and entry is None)
        for name, shard in pairs:
            yield name, shard if isinstance(shard, str) else None

    def text_status(self) -> Status:
        """Return the status of the index's text as far as it was read; DAMAGED without a weight map."""
        status = self.json.status
        if status is Status.COMPLETE and (not self.has_map or self.json.findings.errors):
            return Status.DAMAGED
        return status

    def map_size(self) -> int | None:
        """Return the number of entries in the weight map."""
        found = self._map()
        return len(found) if found is not None else None

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the weight map names for a tensor."""
        found = self._map()
        if isinstance(found, dict):
            shard = found.get(name)
            return shard if isinstance(shard, str) else None
        kid = found.find(name) if found is not None else None
        if kid is None or kid.kind != "string" or not kid.is_complete:
            return None
        try:
            return str(kid.load())
        except MalformedError:  # a long string, which is decoded only now
            return None

    def shard_names(self) -> list[str]:
        """Return the shards named by the weight map; if it is cut or damaged, also files in the folder."""
        if self._names is None:
            named = self._named_shards()
            self._names = named + self.unnamed_shards()
        return self._names

    def _named_shards(self) -> list[str]:
        return list(dict.fromkeys(shard for _, shard in self.weight_map() if shard is not None))

    def unnamed_shards(self) -> list[str]:
        """Return files in the folder that are shards, and would be named by the index if it were whole."""
        if self._unnamed is None:
            self._unnamed = self._files_like_shards() if self._is_broken() else []
        return self._unnamed

    def _is_broken(self) -> bool:
        """Return whether the index may have named more shards than can be read."""
        return self._small is None and self.has_map and self.text_status() is not Status.COMPLETE

    def extra_files(self) -> list[str]:
        """Return files that look like shards of this index (same name but for digits) and that it does not name."""
        return [] if self._is_broken() else self._files_like_shards()

    def _files_like_shards(self) -> list[str]:
        extraction = extraction_of(self.result)
        folder = extraction.folder
        if folder is None:
            return []
        named = set(self._named_shards())
        stem = extraction.outermost.name.rpartition("/")[2].removesuffix(".gz").removesuffix(self.suffix)
        templates = {template(name) for name in named}
        if not named and self._is_broken():
            templates = {template(f"{stem}-1-of-1{self.endings[0]}")}
        try:
            files = folder.names() or []
        except SourceError:
            return []
        return [name for name in files if name not in named and template(name) in templates]

    def index_metadata(self) -> dict[str, Any]:
        """Return ``metadata`` (or ``__metadata__``)."""
        small = self._small
        if small is not None:
            found = small.get("metadata") or small.get("__metadata__")
            return found if isinstance(found, dict) else {}
        for name in ("metadata", "__metadata__"):
            node = self._object(name)
            if node is not None:
                try:
                    found = node.to_python()
                except DataError:
                    continue
                return found if isinstance(found, dict) else {}
        return {}

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root; the other containers mirror the JSON text."""
        node = ctx.node
        if node.kind == self.name:
            return node.start, self.expect_map, 0
        if node.kind == "shards":
            self.emit_shards(ctx)
        else:
            self._emit_children(ctx, self._mirrored(node))
        return node.start, DONE, 0

    @staticmethod
    def _emit_children(ctx: NodeContext, mirrored: Node) -> None:
        for kid in mirrored.children():
            value = kid.value if kid.shape == SCALAR else UNLOADED_VALUE
            ctx.emit(Entry(kid.key, kid.kind, kid.start, kid.end, value, kid.known_status, kid.finding))

    def expect_map(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Emit the content of the JSON text, and the shards."""
        root = self.json.root
        if root.kind != "object":
            self.note_damage(ctx.node, MalformedError("the index is not a JSON object", offset=root.start))
            return ctx.pos, DONE, 0
        self._emit_children(ctx, root)
        if self.shard_names():
            ctx.emit(Entry("shards", "shards", 0, 0))
        return ctx.pos, DONE, 0

    def finish(self, ctx: NodeContext) -> None:
        """Close a container with the status of its JSON text."""
        node = ctx.node
        status = node.known_status
        if node.kind == self.name:
            status = status or self.json.status
        self.result.close_node(node, status or Status.COMPLETE, None, end=node.end)

    def _mirrored(self, node: Node) -> Node:
        ordinals: list[int] = []  # by number: a key may occur twice
        while node.parent is not None:
            ordinals.append(node.ordinal)
            node = node.parent
        found = self.json.root
        for ordinal in reversed(ordinals):
            found = found.child(ordinal)
        return found

    def load_scalar(self, node: Node) -> Any:
        """Return a shard's size, or a long string of the text."""
        return super().load_scalar(node) if node.kind == "file" else self._mirrored(node).load()


# -- A folder that holds one model: an index with its shards, shards without an index, or one file ---------------------

# The folders of each format differ in the names of their files: a format's own parser says which those are.
#
# States of the root::
#
#     state          needs  reads                                            goes to
#     expect_shards  0      nothing: the folder was listed when it was       DONE
#                           opened; its shards become children

NUMBERED = lazy_pattern(r"(.*?)(\d+)-of-(\d+)(\.\w+)")
"""Names of shards that say how many there are."""


class ShardFolderParser(ShardSet):
    """A folder with the files of one model: base of those of each format."""

    index_parser: ClassVar[type[ShardIndexParser]]
    """What reads an index of this format, and knows how it and its shards are named."""

    reads = "folder"
    references = ("huggingface/transformers and huggingface_hub (sharded checkpoints)",)
    limitations = ("a folder with several models lists them and asks for one",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        models = self.models_in(folder)
        if len(models) > 1:
            raise several_models(folder.folder, models)
        if models and models[0].endswith(self.index_parser.suffix):
            self.index = folder.sibling(models[0]).parse(self.index_parser.name).parser  # type: ignore[assignment]
        self._files = sorted(name for group in self.groups_in(folder) for name in group)

    @classmethod
    def models_in(cls, folder: FolderExtraction) -> list[str]:
        """Return the indexes in a folder; without any, the first file of each group."""
        indexes = [name for name in folder.members if name.endswith(cls.index_parser.suffix)]
        return indexes or [group[0] for group in cls.groups_in(folder)]

    @classmethod
    def groups_in(cls, folder: FolderExtraction) -> list[list[str]]:
        """Return the files of models in a folder, those together whose names differ in nothing but numbers."""
        return grouped(name for name in folder.members if name.endswith(cls.index_parser.endings))

    def shard_names(self) -> list[str]:
        """Return the shards named by the index; without one, the files there and those their numbering lacks."""
        if self.index is not None:
            return self.index.shard_names()
        return self._numbered() or self._files

    def _numbered(self) -> list[str] | None:
        """Return all names that ``…-00001-of-00007.safetensors`` implies; None if files are not numbered like that."""
        found = [match.groups() for match in map(NUMBERED.fullmatch, self._files) if match is not None]
        if not found or len(found) < len(self._files) or len({total for _, _, total, _ in found}) > 1:
            return None
        head, number, total, tail = found[0]
        if not len(self._files) <= int(total) <= 100_000:
            return None
        first = 1 if all(int(number) for _, number, *_ in found) else 0
        numbers = range(first, first + int(total))
        names = [f"{head}{at:0{len(number)}d}-of-{total}{tail}" for at in numbers]
        return names if set(self._files) <= set(names) else None

    def extra_files(self) -> list[str]:
        """Return files of this format in the folder that the index does not name."""
        named = set(self.shard_names())
        return [name for name in self._files if name not in named]

    def root_entry(self) -> Entry:
        """Describe the root."""
        return Entry(None, self.name, 0, 0, status=None)

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root, or its list of shards."""
        if ctx.node.kind == "shards":
            self.emit_shards(ctx)
            return 0, DONE, 0
        return 0, self.expect_shards, 0

    def expect_shards(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Emit the index's metadata and the shards."""
        for key, value in self.index_metadata().items():
            if isinstance(value, str | int | float | bool) or value is None:
                ctx.emit(Entry(key, "metadata", 0, 0, value))
        ctx.emit(Entry("shards", "shards", 0, 0))
        return 0, DONE, 0


def grouped(names: Iterable[str]) -> list[list[str]]:
    """Return names in groups of those that differ in nothing but numbers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(template(name), []).append(name)
    return list(groups.values())
