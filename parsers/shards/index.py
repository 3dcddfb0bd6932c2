"""Index of a model in shards: a JSON object that maps the names of tensors to files.

A convention of Hugging Face's libraries: ``weight_map`` (tensor name to shard file name) and ``metadata`` (or
``__metadata__``) with ``total_size``, the sum of the tensors' bytes. Shards lie in the index's folder and are opened on
demand, once each, as child extractions. A format's own parser says how its index and shards are named.

States of the root::

    state       needs  reads                                                             goes to
    expect_map  0      nothing: the JSON parser reads the text; metadata, weight_map     DONE
                       and the shards become children
"""

from __future__ import annotations

from pparse.document.extraction import extraction_of
from pparse.errors import PASSING, MalformedError, PparseError, SourceError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.parsers.shards.shard_set import ShardSet, template
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result

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
    def index(self) -> ShardIndexParser:
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
