"""Index of a sharded safetensors model: ``*.safetensors.index.json``.

A convention of Hugging Face's libraries, not part of the safetensors specification: a JSON object with ``weight_map``
(tensor name to shard file name) and ``metadata`` (or ``__metadata__``) with ``total_size``, the sum of the tensors'
bytes. Shards lie in the index's folder and are opened on demand, once each, as child extractions.

States of the root::

    state       needs  reads                                                             goes to
    expect_map  0      nothing: the JSON parser reads the text; metadata, weight_map     DONE
                       and the shards become children
"""

from __future__ import annotations

import re

from pparse.data.base import Distance
from pparse.document.extraction import extraction_of
from pparse.errors import PASSING, MalformedError, PparseError, SourceError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.tree.container import Container
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Parser
from pparse.tree.recognition import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.node import Node
    from pparse.tree.recognition import Excerpt
    from pparse.tree.result import Result

SUFFIX: Final = ".safetensors.index.json"
# Of far shards: how many are opened at once, how much of each is read first, and how long a header is read in advance.
_AT_ONCE: Final = 64
_FIRST: Final = 64 << 10
_LONGEST: Final = 4 << 20
# Up to this size an index is decoded at once; a larger one is read through its nodes.
_SMALL: Final = 1 << 20
# Memory that it takes then, in sizes of its text.
_DECODED: Final = 4
_MAP: Final = lazy_pattern(rb'"weight_map"\s*+:\s*+\{(?:\s*+\}|\s*+"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+:\s*+"([^"\\]*+)")?')


class ShardSet(Parser, Container):
    """Base of the two parsers for sets of shards: with an index, and for a folder."""

    is_set = True
    viewer = "pparse.viewers.safetensors.sharded:SafetensorsSetViewer"

    shapes = {"safetensors-index": MAP, "safetensors-folder": MAP, "shards": MAP, "object": MAP, "array": LIST}

    @property
    def index(self) -> SafetensorsIndexParser | None:
        """The parser of the index, if there is one."""
        return None

    def shard_names(self) -> list[str]:
        """Return the names of the shards, each once, in order of first mention."""
        return []

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield ``(tensor name, shard name)`` from the index; the shard is None if it is not a string."""
        yield from ()

    @property
    def has_map(self) -> bool:
        """Whether there is an index that maps tensors to shards."""
        return False

    def index_metadata(self) -> dict[str, Any]:
        """Return the metadata of the index."""
        return {}

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the index names for a tensor."""
        return None

    def map_size(self) -> int | None:
        """Return the number of tensors that the index names."""
        return None

    def extra_files(self) -> list[str]:
        """Return files in the folder that look like shards, but are not named by the index."""
        return []

    @property
    def is_alone(self) -> bool:
        """Whether it lies in no folder, so that shards cannot be looked for."""
        return extraction_of(self.result).folder is None

    def shard(self, name: str) -> Extraction:
        """Return the extraction of one shard. Raises `PathError` if the name leaves the folder, and `SourceError`."""
        return extraction_of(self.result).sibling(name)

    @property
    def home(self) -> Extraction:
        """What the shards lie beside."""
        return extraction_of(self.result)

    def fetch_ahead(self, names: Sequence[str], number: int, fetched: int) -> int:
        """If shards are far away, open them from ``number`` on at once, and read their headers.

        ``fetched`` is what the last call returned: the number of the first shard that was not fetched yet.
        """
        home = self.home
        if number < fetched:
            return fetched
        if not fetched and not _is_far(home):  # what tells it is the folder, or the shard before
            folder = None if number else home.folder
            before = home.children.get(names[number - 1]) if number else None
            if not _is_far(before) and (folder is None or folder.distance is Distance.NEAR):
                return fetched
        from pparse.data.parallel import in_parallel

        budget = home.session.budget
        last = number + max(1, min(_AT_ONCE, budget.limit // 8 // _FIRST))
        heads = home.fetch_siblings(names[number:last])
        sizes = [size or 0 for size, _ in in_parallel(_read_length, heads)]
        room, rest = budget.limit // 4, []
        for data, size in zip(heads, sizes, strict=True):
            room -= size
            if room >= 0 and size > _FIRST:
                rest.append((data, size))
        in_parallel(_read_head, rest)
        return last

    def enter(self, name: str) -> Extraction | None:
        """Return the shard ``name``."""
        return self.shard(name) if name in self.shard_names() else None

    def emit_shards(self, ctx: NodeContext) -> None:
        """Emit every shard file with its size."""
        names = self.shard_names()
        fetched = 0
        for number, name in enumerate(names):
            fetched = self.fetch_ahead(names, number, fetched)
            try:
                size = self.shard(name).size
                ctx.emit(Entry(name, "file", 0, 0, size))
            except PparseError:
                status = Status.UNSUPPORTED if self.is_alone else Status.MISSING
                ctx.emit(Entry(name, "file", 0, 0, None, status=status))


class SafetensorsIndexParser(ShardSet):
    """An index and the shards that it names."""

    suffix: ClassVar[str] = SUFFIX
    """How the name of an index ends."""
    endings: ClassVar[tuple[str, ...]] = (".safetensors",)
    """How the names of its shards end; the first one is that of new files."""
    if_empty: ClassVar[Confidence] = Confidence.CERTAIN
    """What an empty map under any other name is."""

    name = "safetensors-index"
    description = "sharded safetensors model (index and shards)"
    extensions = (SUFFIX,)
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
        extraction = extraction_of(result)
        self.json: Result = extraction.child("index", extraction.data, extraction.start, extraction.end, "json").parse()
        self._names: list[str] | None = None
        self._unnamed: list[str] | None = None
        self._decoded: dict[str, Any] | None = None
        self._tried = False

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

    def root_entry(self) -> Entry:
        """Describe the root."""
        extraction = self.result.extraction
        return Entry(None, self.name, extraction.start, extraction.end, status=None)

    def _small(self) -> dict[str, Any] | None:
        """Return the whole index, decoded at once, if it is small and sound; else None."""
        if not self._tried:
            self._tried = True
            extraction = self.result.extraction
            size = extraction.known_end() - extraction.start
            json: JsonParser = self.json.parser  # type: ignore[assignment]
            room = extraction.session.budget.fits(_DECODED * size)
            if size <= _SMALL and room and json.result.root.kind == "object":
                text = extraction.data.pread(json.result.root.start, size)
                try:
                    found = json.decoder.decode_shallow(text.rstrip(), json.result.root.start)
                except PASSING:
                    raise
                except PparseError:
                    return None
                if not json.decoder.duplicates and isinstance(found, dict):
                    self._charge = extraction.session.budget.charge(_DECODED * size, "the index of the shards")
                    self._decoded = found
                json.decoder.pairs = []
        return self._decoded

    @property
    def index(self) -> SafetensorsIndexParser:
        """This parser."""
        return self

    def _json_node(self, name: str) -> Node | None:
        root = self.json.root
        return root.find(name) if root.kind == "object" else None

    @property
    def has_map(self) -> bool:
        """Whether the index has a weight map."""
        small = self._small()
        return isinstance(small.get("weight_map"), dict) if small is not None else self._map() is not None

    def _map(self) -> Node | None:
        node = self._json_node("weight_map")
        return node if node is not None and node.kind == "object" else None

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield the weight map."""
        if not self.has_map:
            return
        small = self._small()
        if small is not None:
            for name, shard in small["weight_map"].items():
                yield name, shard if isinstance(shard, str) else None
            return
        node = self._map()
        assert node is not None  # noqa: S101 -- has_map looked
        json: JsonParser = self.json.parser  # type: ignore[assignment]
        for _, name, shard, entry in json.each_member(node):
            if name is not None and entry is None:
                yield name, shard if isinstance(shard, str) else None

    def text_status(self) -> Status:
        """Return the status of the index's text as far as it was read; DAMAGED without a weight map."""
        status = self.json.status
        if status is Status.COMPLETE and (not self.has_map or self.json.findings.errors):
            return Status.DAMAGED
        return status

    def map_size(self) -> int | None:
        """Return the number of entries in the weight map."""
        small = self._small()
        if small is not None and self.has_map:
            return len(small["weight_map"])
        node = self._map()
        return len(node) if node is not None else None

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the weight map names for a tensor."""
        small = self._small()
        if small is not None:
            shard = small["weight_map"].get(name) if self.has_map else None
            return shard if isinstance(shard, str) else None
        node = self._map()
        kid = node.find(name) if node is not None else None
        if kid is None or kid.kind != "string" or kid.status is not Status.COMPLETE:
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
        if self._small() is not None or not self.has_map:
            return False
        return self.text_status() is not Status.COMPLETE

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
        small = self._small()
        if small is not None:
            found = small.get("metadata") or small.get("__metadata__")
            return found if isinstance(found, dict) else {}
        for name in ("metadata", "__metadata__"):
            node = self._json_node(name)
            if node is not None and node.kind == "object":
                try:
                    found = node.to_python()
                except PASSING:
                    raise
                except PparseError:
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


def _is_far(shard: Extraction | None) -> bool:
    return shard is not None and shard.data.distance is Distance.FAR


def _read_length(data: Data) -> int:
    """Read the first bytes of a far shard; return where its header ends, 0 if that is too far."""
    data.prefetch([(0, _FIRST)])
    end = 8 + int.from_bytes(data.pread(0, 8), "little")
    return end if end <= _LONGEST else 0


def _read_head(head: tuple[Data, int]) -> None:
    data, end = head
    data.prefetch([(0, end)])


def template(name: str) -> str:
    """Return a file name with its numbers masked, which is the same for all shards of a model."""
    return re.sub(r"\d+", "#", name)
