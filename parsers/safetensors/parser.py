"""safetensors files.

Layout (huggingface/safetensors, safetensors/src/tensor.rs and README.md): u64 little-endian length N of the header, N
bytes of JSON, then the tensors' bytes. ``data_offsets`` are ``[begin, end)`` counted from byte 8 + N; little-endian, C
order, alignment not guaranteed.

States of the root::

    state          needs    reads                                                   goes to
    expect_length  8        the header's length                                     expect_header
    expect_header  0        nothing: makes the header a child extraction, which     DONE, at the end of the data
                            the JSON parser reads, clipped to its length

The tree is ``header_size``, ``metadata`` (if any), ``tensors``; a tensor has the fields of its header entry and
``data``, its bytes. ``tensors`` keeps no index: its children are those of the header.
"""

from __future__ import annotations

from itertools import islice

from pparse.data.trailing_bytes import SHIFTED
from pparse.errors import MalformedError
from pparse.findings import Finding, Status
from pparse.parsers.safetensors.entry import (
    FIELDS,
    MEMBER,
    METADATA,
    REFERENCE_HEADER_LIMIT,
)
from pparse.parsers.safetensors.header import HeaderParser
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, signatures
from pparse.tree.views import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.parsers.safetensors.entry import TensorInfo
    from pparse.tree.context import State
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt


class SafetensorsParser(HeaderParser):
    """A safetensors file."""

    name = "safetensors"
    description = "safetensors model file"
    extensions = (".safetensors",)
    empty_is_nothing = True
    signatures = (*signatures(b"{", b" ", b"\n", b"\t", b"\r", b"\xef\xbb\xbf", at=8), *signatures(bytes(16)))
    viewer = "pparse.viewers.safetensors.viewer:SafetensorsViewer"
    media_type = "application/octet-stream"
    references = ("https://github.com/huggingface/safetensors (safetensors/src/tensor.rs)",)
    limitations = ("the format has no checksums: a changed payload byte cannot be noticed",)
    shapes = {"safetensors": MAP, "tensors": MAP, "tensor": MAP, "object": MAP, "array": LIST}

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN for a plausible length followed by the beginning of a JSON object."""
        head = excerpt.head(8 + 16)
        length = int.from_bytes(head[:8], "little")
        size = excerpt.size
        if len(head) < 8:
            return Confidence.NO
        if not 2 <= length <= 1 << 40:
            return cls._match_damaged(excerpt)
        text = head[8:].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\n\r")
        if text[:1] == b"{" and text[1:].lstrip(b" \t\n\r")[:1] in (b'"', b"}", b""):
            return Confidence.CERTAIN if size is None or length <= size or length < 1 << 31 else Confidence.POSSIBLE
        cut = not text and len(head) < 24 and length <= REFERENCE_HEADER_LIMIT
        return Confidence.POSSIBLE if cut else cls._match_damaged(excerpt)

    @staticmethod
    def _match_damaged(excerpt: Excerpt) -> Confidence:
        """LIKELY if a tensor's entry is near the beginning, though the first bytes are not those of a header."""
        return Confidence.LIKELY if MEMBER.search(excerpt.head(4096), 8) is not None else Confidence.NO

    # -- the file ----------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root; its status is known once it is loaded."""
        extraction = self.result.extraction
        return Entry(None, "safetensors", extraction.start, extraction.end, status=None)

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root at its first byte; the other containers mirror a piece of the header."""
        node, index = ctx.node, ctx.index
        assert index is not None  # noqa: S101 -- entries() never runs the engine here
        if node.kind == "safetensors":
            return node.start, self.expect_length, 8
        if node.kind == "tensors":
            index.count = self.count()
            return node.start, DONE, 0
        mirrored = index.note = self._mirrored(node)
        as_row = node.kind == "tensor" and mirrored.shape == LIST and len(mirrored) == len(FIELDS)
        for kid in mirrored.children():
            value = kid.value if kid.shape == "scalar" else UNLOADED_VALUE
            ctx.emit(
                Entry(
                    FIELDS[kid.ordinal] if as_row else kid.key,
                    kid.kind,
                    kid.start,
                    kid.end,
                    value,
                    kid.known_status,
                    kid.finding,
                )
            )
        if node.kind == "tensor":
            info = self._info_at(node.ordinal)
            start, end = self.data_start + info.begin, self.data_start + info.end
            status, finding = self.status_of(info), None
            if status in (Status.TRUNCATED, Status.MISSING):
                finding = Finding(
                    "truncated",
                    "the tensor extends beyond the end of the file",
                    path=node.path,
                    source=self.result.extraction.name,
                    offset=start,
                    wanted=end - start,
                    got=max(0, self.result.extraction.known_end() - start),
                )
            ctx.emit(Entry("data", "bytes", start, end, status=status, finding=finding))
        return node.start, DONE, 0

    def expect_length(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, State, int]:
        """Read the header's length."""
        zeroed = self.zeroed_header()
        if zeroed is not None:
            self.result.close_node(ctx.node, Status.DAMAGED, zeroed)
            return ctx.pos + 8, self.expect_end, 0
        size = self.header_size
        ctx.emit(Entry("header_size", "uint64", ctx.pos, ctx.pos + 8, size))
        return ctx.pos + 8, self.expect_header, 0

    def expect_header(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Hand the header to the JSON parser, and emit its parts."""
        root = self.header.root
        if root.kind != "object":
            self.note_damage(ctx.node, MalformedError("the header is not a JSON object", offset=root.start))
            return ctx.pos, DONE, 0
        metadata = self.metadata_node()
        if metadata is not None:
            ctx.emit(Entry("metadata", metadata.kind, metadata.start, metadata.end, status=metadata.known_status))
        end = self.result.extraction.known_end()
        ctx.emit(Entry("tensors", "tensors", min(self.data_start, end), end, status=None))
        return ctx.pos, DONE, 0

    def expect_end(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """End: nothing more is read."""
        return ctx.pos, DONE, 0

    def finish(self, ctx: NodeContext) -> None:
        """Close a container with the status of what is below it."""
        node = ctx.node
        status = node.known_status
        if status is None and node.kind in ("safetensors", "tensors") and self._header_size is not None:
            self.settle()
            status = self.text_status
            if self.wrong_length is not None:
                status = Status.DAMAGED
            if status is Status.COMPLETE:
                seen = {self.status_of(info) for _, _, info, _ in self.infos()}
                for worst in (Status.DAMAGED, Status.TRUNCATED, Status.MISSING, Status.UNSUPPORTED):
                    if worst in seen:
                        status = Status.TRUNCATED if worst is Status.MISSING else worst
                        break
                if self.is_at_odds:
                    status = Status.DAMAGED
        self.result.close_node(node, status or Status.COMPLETE, None, end=node.end)

    def cut(self, ctx: NodeContext) -> None:
        """Close the root: the file ends inside the header's length."""
        self.result.close_node(
            ctx.node,
            Status.TRUNCATED,
            Finding(
                "truncated",
                "the file ends inside the header's length",
                source=self.result.extraction.name,
                offset=self.result.extraction.known_end(),
                wanted=8,
                got=self.result.extraction.known_end() - ctx.pos,
            ),
        )

    # -- children ----------------------------------------------------------------------------------------------------

    def entries(self, node: Node, index: ChildIndex, first: int, count: int) -> list[Entry]:
        """Describe tensors by the header's entries."""
        if node.kind != "tensors":
            return super().entries(node, index, first, count)
        found: list[Entry] = []
        for _, key, info, entry in islice(self.infos(self.header_ordinal(first)), count):
            if entry is not None:
                kind = "tensor" if entry.kind == "object" else "invalid"
                found.append(Entry(key, kind, entry.start, entry.end, status=entry.status, finding=entry.finding))
            else:
                found.append(self._tensor_entry(key, info))
        return found

    def _tensor_entry(self, name: str | None, info: TensorInfo) -> Entry:
        status = self.status_of(info)
        start, end = self.data_start + info.begin, self.data_start + info.end
        finding = None
        if info.problem is not None:
            finding = Finding(
                "bad-entry",
                info.problem,
                severity=info.severity,
                path=name or "",
                source=self.result.extraction.name,
                offset=start,
                wanted=info.wanted,
                got=info.got,
            )
        elif self.shifted and info.begin < info.end:
            finding = Finding("shifted", SHIFTED, path=name or "", source=self.result.extraction.name, offset=start)
        return Entry(name, "invalid" if info.is_scalar else "tensor", start, end, status=status, finding=finding)

    def key_hashes(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the hashes of the keys; the names of tensors come from the header, whose entries need not be made."""
        if node.kind != "tensors":
            yield from super().key_hashes(node, first, stop)
            return
        names = self.name_hashes(self.header_ordinal(first))
        yield from islice(names, None if stop is None else max(0, stop - first))

    def header_ordinal(self, ordinal: int) -> int:
        """Return the number of the header entry of a tensor, counted with ``__metadata__``."""
        for skipped in self.metadata_at():
            if skipped <= ordinal:
                ordinal += 1
        return ordinal

    def _info_at(self, ordinal: int) -> TensorInfo:
        return self.info(self.header_ordinal(ordinal))[0]

    def _mirrored(self, node: Node) -> Node:
        """Return the node of the header that ``node`` mirrors; an index holds the one that its own node mirrors."""
        # By number: a key may occur twice.
        ordinals: list[int] = []
        found: Node | None = None
        while found is None and node.parent is not None and node.kind != "tensor":
            ordinals.append(node.ordinal)
            node = node.parent
            index = node.index  # read once: the budget may evict it at any time
            found = index.note if index is not None else None
        if found is None and node.kind == "tensor":
            found = self.header.root.child(self.header_ordinal(node.ordinal))
        elif found is None:
            ordinals.pop()  # "metadata"
            found = self.header.root.find(METADATA)
            assert found is not None  # noqa: S101 -- its node was made from it
        for ordinal in reversed(ordinals):
            found = found.child(ordinal)
        return found

    def load_scalar(self, node: Node) -> Any:
        """Return a tensor's bytes, or a long string of the header."""
        if node.kind in ("bytes", "uint64"):
            return super().load_scalar(node)
        return self._mirrored(node).load()

    def python_size(self, node: Node) -> int:
        """Count the header's text: `to_python` leaves the tensors' bytes out."""
        return super().python_size(node) if node.kind == "bytes" else self.header_size

    def to_python(self, node: Node) -> Any:
        """Return header entries as plain Python, without the tensors' bytes."""
        if node.kind == "tensor":
            return self._mirrored(node).to_python()
        if node.kind in ("tensors", "safetensors"):
            return as_dict([(kid.key, self.to_python(kid)) for kid in node.children()])
        return super().to_python(node)
