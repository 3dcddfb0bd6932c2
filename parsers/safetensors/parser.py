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

from array import array

from pparse.data.zero_runs import unwritten
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import format_size
from pparse.parsers.json.damage import LOOK_FIRST
from pparse.parsers.safetensors.entry import FIELDS, MEMBER, TensorInfo, info_of, is_metadata
from pparse.parsers.safetensors.layout import (
    CONFLICTS,
    NAMESAKE,
    SHARED,
    Layout,
    lay,
    mark,
    place,
    plain_end,
    sharers,
)
from pparse.parsers.safetensors.length import (
    SHIFTED,
    LengthFinder,
    has_odd_tail,
    last_end,
    zeroed_header,
)
from pparse.tree.context import DONE, NodeContext
from pparse.tree.entry import LIST, MAP, UNLOADED_VALUE, Entry
from pparse.tree.key_table import has_repeats
from pparse.tree.parser import Confidence, Parser
from pparse.tree.views import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.reader import Reader
    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.context import State
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.result import Result

METADATA: Final = "__metadata__"
# The reference reader refuses longer headers (tensor.rs, MAX_HEADER_SIZE).
REFERENCE_HEADER_LIMIT: Final = 100_000_000
_MAX_HOLES: Final = 10_000


class SafetensorsParser(Parser):
    """A safetensors file."""

    name = "safetensors"
    description = "safetensors model file"
    extensions = (".safetensors",)
    media_type = "application/octet-stream"
    references = ("https://github.com/huggingface/safetensors (safetensors/src/tensor.rs)",)
    limitations = ("the format has no checksums: a changed payload byte cannot be noticed",)
    shapes = {"safetensors": MAP, "tensors": MAP, "tensor": MAP, "object": MAP, "array": LIST}

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._header: Result | None = None
        self._header_size: int | None = None
        self.adrift: str | None = None  # why it is unknown where the data begins
        self.shifted = False  # whether bytes after the last tensor are the reason
        self._looked_behind = False
        self._unproved = False  # the header seems to continue behind its end, which is unknown
        self.wrong_length: Finding | None = None  # set if the header's end was found in another way
        self.layout: Layout | None = None  # where the tensors lie, once all were read
        self.compared = False  # whether tensors were compared with each other
        self.conflicts = bytearray()  # the conflict of each header entry
        self.bad_metadata = False
        self.repeats: bool | None = None  # whether a name occurs twice; None: not known yet
        self._metadata_ordinals: list[int] | None = None

    @classmethod
    def match(cls, reader: Reader) -> Confidence:
        """CERTAIN for a plausible length followed by the beginning of a JSON object."""
        head = reader.peek(8 + 16)
        length = int.from_bytes(head[:8], "little")
        size = reader.size
        if len(head) < 8:
            return Confidence.NO
        if not 2 <= length <= 1 << 40:
            return cls._match_damaged(reader)
        text = head[8:].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\n\r")
        if text[:1] == b"{" and text[1:].lstrip(b" \t\n\r")[:1] in (b'"', b"}", b""):
            return Confidence.CERTAIN if size is None or length <= size or length < 1 << 31 else Confidence.POSSIBLE
        cut = not text and len(head) < 24 and length <= REFERENCE_HEADER_LIMIT
        return Confidence.POSSIBLE if cut else cls._match_damaged(reader)

    @staticmethod
    def _match_damaged(reader: Reader) -> Confidence:
        """LIKELY if a tensor's entry is near the beginning, though the first bytes are not those of a header."""
        return Confidence.LIKELY if MEMBER.search(reader.peek(4096), 8) is not None else Confidence.NO

    # -- the file ----------------------------------------------------------------------------------------------------

    def root_entry(self) -> Entry:
        """Describe the root; its status is known once it is loaded."""
        extraction = self.result.extraction
        return Entry(None, "safetensors", extraction.start, extraction.end, status=None)

    @property
    def header_size(self) -> int:
        """The header's length according to the file, or to its text if the tensors then fill the file.

        Raises `MalformedError` if the length is impossible, or not there.
        """
        if self._header_size is not None:
            return self._header_size
        extraction = self.result.extraction
        head = extraction.data.pread(extraction.start, min(8, max(0, extraction.known_end() - extraction.start)))
        if len(head) < 8:
            raise MalformedError(
                "the file ends inside the header's length", offset=extraction.start, wanted=8, got=len(head)
            )
        length = int.from_bytes(head, "little")
        there = max(0, extraction.known_end() - extraction.start - 8)
        finder = LengthFinder(self.result)
        length = finder.determine(length, there)
        self.adrift, self._unproved = finder.adrift or self.adrift, finder.unproved
        if finder.wrong is not None:
            self.wrong_length = finder.wrong
            self.result.findings.add(finder.wrong)
        if length <= there:
            extraction.session.limits.check("header_bytes", length, "the header's length", offset=extraction.start)
        elif length > extraction.session.limits.header_bytes:
            raise MalformedError(
                f"the header's length is beyond the file, and above the largest header "
                f"({format_size(extraction.session.limits.header_bytes)})",
                offset=extraction.start,
                wanted=length,
                got=there,
            )
        self._header_size = length
        return length

    @property
    def header(self) -> Result:
        """The JSON parser's result for the header."""
        header = self._header
        if header is None:
            with self.lock:  # here and not at a door: every look-up calls this several times
                header = self._header = self._header or self._read_header()
        return header

    def _read_header(self) -> Result:
        extraction = extraction_of(self.result)
        start = extraction.start + 8
        child = extraction.child("header", extraction.data, start, start + self.header_size, "json")
        header = child.parse()
        json: JsonParser = header.parser  # type: ignore[assignment]
        json.member = MEMBER
        json.is_all_there = start + self.header_size <= extraction.known_end()
        if self._unproved and json.is_all_there and header.status is Status.DAMAGED:
            # The space behind the header may be its own, pushed out by inserted bytes.
            self.adrift = "the header is damaged and may end elsewhere: it is unknown where tensors begin"
        return header

    @property
    def data_start(self) -> int:
        """Where the data section begins, as an offset of the extraction's data."""
        return self.result.extraction.start + 8 + self.header_size

    def enter(self, name: str) -> Extraction | None:
        """Return the child extraction ``header``."""
        return extraction_of(self.header) if name == "header" else None

    def unwritten(self) -> list[tuple[int, int]]:
        """Return the stretches of the file that were never written (file holes), at most 10,000.

        Zeros next to a hole count, as file systems allocate whole blocks.
        """
        extraction = self.result.extraction
        found = []
        for hole in unwritten(extraction.data, extraction.start, extraction.known_end()):
            found.append(hole)
            if len(found) >= _MAX_HOLES:
                break
        return found

    def zeroed_header(self) -> Finding | None:
        """Return a finding if the file begins with zeros in place of its header."""
        return zeroed_header(self.result.extraction)

    def infos(self, first: int = 0) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield ``(ordinal in the header, name, checked entry, JSON entry if that is not whole)`` of every tensor.

        Yields nothing without a readable header; the findings then tell why. Conflicts between tensors are known before
        the first one of a small header, and after the last one of a large header.
        """
        try:
            size, root = self.header_size, self.header.root
        except MalformedError:
            return
        if root.kind != "object":
            return
        if not self.compared and size <= LOOK_FIRST:
            held = list(self._each_info(0))
            self._compare(held)
            yield from (self._judged(*row) for row in held if row[0] >= first)
            return
        layout = Layout(self.result.extraction.session.budget) if self.layout is None and not first else None
        for row in self._each_info(first):
            if layout is not None:
                place(layout, row[2], row[3])
            yield self._judged(*row)
        if layout is not None:
            layout.close()
            if layout.again:
                layout = lay(self.result.extraction.session.budget, self._each_info(0))
            self.layout = layout
            if not self.compared:
                self._find_conflicts(self._each_info(0), self.repeated() if self.repeats else set())

    def _each_info(self, first: int) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield what `infos` does, without comparing tensors."""
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        metadata: list[int] = []
        for ordinal, name, fields, entry in json.each_member(self.header.root, first):
            if name == METADATA:
                metadata.append(ordinal)
                self.bad_metadata |= entry is None and not is_metadata(fields)
                continue
            if entry is not None and entry.status is Status.UNSUPPORTED:
                yield ordinal, name, *self._info(ordinal)
            else:
                yield ordinal, name, info_of(self.header, ordinal, fields), entry
        json.decoder.pairs = []  # free the whole header
        if not first:
            self._metadata_ordinals = metadata
            self.bad_metadata |= len(metadata) > 1

    # -- conflicts between tensors -------------------------------------------------------------------------

    def _compare(self, rows: list[tuple[int, str | None, TensorInfo, Entry | None]]) -> None:
        """Find out where the tensors of a small header lie, and which conflict."""
        seen: dict[str, int] = {}
        namesakes: set[int] = set()
        for ordinal, name, _, _ in rows:
            if name is not None and name in seen:
                namesakes |= {ordinal, seen[name]}
            elif name is not None:
                seen[name] = ordinal
        self.layout = lay(self.result.extraction.session.budget, rows)
        self.repeats = bool(namesakes) or self.repeats
        self._find_conflicts(iter(rows), namesakes)

    def _find_conflicts(
        self, rows: Iterator[tuple[int, str | None, TensorInfo, Entry | None]], namesakes: set[int]
    ) -> None:
        """Record the tensors that share bytes, and those with the same name: any of them may be the wrong one."""
        assert self.layout is not None  # noqa: S101 -- the callers made it
        if self.layout.overlaps:
            ordinals, begins, ends = array("q"), array("Q"), array("Q")
            with self.result.extraction.session.budget.charge(0, "the places of tensors") as charge:
                for ordinal, _, info, entry in rows:
                    if entry is None and info.problem is None:
                        ordinals.append(ordinal)
                        begins.append(info.begin)
                        ends.append(info.end)
                        if not len(ordinals) & 0xFFF:
                            charge.resize(48 * len(ordinals))
                mark(self.conflicts, (ordinals[at] for at in sharers(begins, ends)), SHARED)
        mark(self.conflicts, namesakes, NAMESAKE)
        self.compared = True

    def _judged(
        self, ordinal: int, name: str | None, info: TensorInfo, entry: Entry | None
    ) -> tuple[int, str | None, TensorInfo, Entry | None]:
        self._judge(ordinal, info)
        return ordinal, name, info, entry

    def _judge(self, ordinal: int, info: TensorInfo) -> TensorInfo:
        """Add the problem to a tensor that is in conflict."""
        if self.conflicts and info.problem is None and ordinal < len(self.conflicts):
            info.problem = CONFLICTS.get(self.conflicts[ordinal])
        return info

    def _know_conflicts(self) -> None:
        """Find conflicts if the header is small."""
        if not self.compared and self.header_size <= LOOK_FIRST and self.header.root.kind == "object":
            self._compare(list(self._each_info(0)))

    @property
    def is_at_odds(self) -> bool:
        """Whether the header, though readable, is known to be one that the reference reader refuses."""
        return (
            self.bad_metadata
            or not self.is_tiled
            or any(finding.code == "byte-order-mark" for finding in self.header.findings)
        )

    @property
    def is_tiled(self) -> bool:
        """Whether, as far as is known, the tensors follow each other up to the file's end."""
        layout = self.layout
        if layout is None:
            return True
        there = self.result.extraction.known_end() - self.data_start
        return not layout.breaks and (there <= layout.end or not layout.known)

    def info(self, ordinal: int) -> tuple[TensorInfo, Entry | None]:
        """Return one entry of the header, checked, and its JSON entry if that is not whole."""
        self._know_conflicts()
        info, entry = self._info(ordinal)
        return self._judge(ordinal, info), entry

    def _info(self, ordinal: int) -> tuple[TensorInfo, Entry | None]:
        """Return one entry of the header, read by itself, and its JSON entry if that is not whole.

        If a field that is not needed exceeds a limit (nested too deep, a number too large), reads the others.
        """
        header = self.header
        node, entry = header.root.child(ordinal), header.entry(header.root, ordinal)
        try:
            try:
                return info_of(header, ordinal, node.to_python()), None
            except (LimitError, UnsupportedError) as error:
                if node.kind != "object":
                    raise
                kids = ((name, node.find(name)) for name in FIELDS)
                info = info_of(header, ordinal, {name: kid.to_python() for name, kid in kids if kid is not None})
                header.findings.add(
                    Finding(
                        "limit",
                        f"a field that is not needed was skipped: {error.reason}",
                        severity=Severity.WARNING,
                        path=node.path,
                        source=header.extraction.name,
                        offset=error.offset,
                    )
                )
                return info, None
        except (EndOfDataError, MalformedError, LimitError, UnsupportedError) as error:
            refused = isinstance(error, LimitError | UnsupportedError)
            status = Status.UNSUPPORTED if refused else entry.status
            finding = entry.finding or Finding("limit" if refused else "malformed", error.reason, offset=error.offset)
            if status is Status.COMPLETE:
                status = Status.DAMAGED
            return TensorInfo(UNLOADED_VALUE), Entry(
                entry.key, entry.kind, entry.start, entry.end, status=status, finding=finding
            )

    def peek_member(self, name: str, occurrence: int) -> tuple[int, TensorInfo] | None:
        """Return ordinal and entry of a tensor in a small header without an index; None: use the index.

        Only once: one decoding is faster than making an index, but the index serves all later look-ups.
        """
        header = self.header
        json: JsonParser = header.parser  # type: ignore[assignment]
        pairs = json.decode_once(header.root)
        end = plain_end(pairs, METADATA) if pairs else None
        if end is None:
            return None
        self.compared, self.repeats = True, False
        self._judge_tail(end)
        for ordinal, (key, fields) in enumerate(pairs):
            if key == name:
                occurrence -= 1
                if not occurrence:
                    return ordinal, info_of(self.header, ordinal, fields)
        return None

    def repeated(self) -> set[int]:
        """Return the ordinals of header entries whose name may occur more than once."""
        root = self.header.root
        if root.kind != "object":
            return set()
        self._know_conflicts()
        if self.repeats is None and root.index_to(None).count > 1:
            self.repeats = has_repeats(self.header.parser.key_hashes(root))
        if not self.repeats:
            return set()
        found = self.header.same_keys(root)
        mark(self.conflicts, found, NAMESAKE)
        return found

    @property
    def has_duplicates(self) -> bool:
        """Whether a key occurs twice in one object of the header, as far as it was decoded."""
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        return bool(json.decoder.duplicates or self.repeats)

    def status_of(self, info: TensorInfo, there: int | None = None) -> Status:
        """Return the status of a tensor, from its entry, the number of data bytes ``there`` (None: find out), and
        what is known about those now."""
        status = self.claimed_status(info, there)
        if status is Status.DAMAGED or status is Status.UNSUPPORTED or info.begin == info.end:
            return status
        data = self.result.extraction.data
        if not data.flawed:
            return status
        found = data.standing(self.data_start + info.begin, self.data_start + info.end).status
        return found if status is Status.COMPLETE or found is Status.DAMAGED else status

    def claimed_status(self, info: TensorInfo, there: int | None = None) -> Status:
        """Return the status of a tensor from its entry and the number of data bytes ``there`` (None: find out)."""
        if info.problem is not None:
            return Status.UNSUPPORTED if info.unsupported else Status.DAMAGED
        if not self._looked_behind:
            self.look_behind()
        if self.adrift is not None and not (self.shifted and info.begin == info.end):
            return Status.DAMAGED
        if there is None:
            there = self.result.extraction.known_end() - self.data_start
        if info.end <= there or info.begin == info.end:
            return Status.COMPLETE
        return Status.TRUNCATED if info.begin < there else Status.MISSING

    def look_behind(self) -> None:
        """Find out whether bytes follow the last tensor, before any status is given."""
        self._looked_behind = True
        if self.header.root.kind != "object":
            return
        there = self.result.extraction.known_end() - self.data_start
        if self.layout is None and self.header_size > LOOK_FIRST and last_end(self.result, self.header_size) == there:
            return  # as with nearly all writers, the last entry is the last in the data
        self._know_conflicts()
        layout = self.layout or lay(self.result.extraction.session.budget, self._each_info(0))
        if layout.known and self.header.status is Status.COMPLETE:
            self._judge_tail(layout.end)

    def _judge_tail(self, end: int) -> None:
        """Record that tensors may lie elsewhere if bytes after the last one, from ``end``, may have been inserted."""
        self._looked_behind = True
        extraction = self.result.extraction
        if self.adrift is None and has_odd_tail(extraction, self.data_start + end):
            self.shifted, self.adrift = True, SHIFTED

    # -- states ------------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the root at its first byte; the other containers mirror a piece of the header."""
        node, index = ctx.node, ctx.index
        assert index is not None  # noqa: S101 -- entries() never runs the engine here
        if node.kind == "safetensors":
            return node.start, self.expect_length, 8
        if node.kind == "tensors":
            index.count = self.header.root.index_to(None).count - len(self.metadata_at())
            return node.start, DONE, 0
        mirrored = self._mirrored(node)
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
        metadata = root.find(METADATA)
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
        if status is None and node.kind in ("safetensors", "tensors") and self._header is not None:
            status = self._header.status
            if self.wrong_length is not None:
                status = Status.DAMAGED
            if status is Status.COMPLETE:
                self.repeated()
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
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        skipped = set(self.metadata_at())
        self._know_conflicts()
        for ordinal, key, fields, entry in json.each_member(self.header.root, self._header_ordinal(first)):
            if ordinal in skipped:
                continue
            if entry is not None and entry.status is Status.UNSUPPORTED:
                info, entry = self.info(ordinal)
            else:
                info = self._judge(ordinal, info_of(self.header, ordinal, fields))
            if entry is not None:
                kind = "tensor" if entry.kind == "object" else "invalid"
                found.append(Entry(key, kind, entry.start, entry.end, status=entry.status, finding=entry.finding))
            else:
                found.append(self._tensor_entry(key, info, isinstance(fields, str | int | float | None)))
            if len(found) == count:
                break
        return found

    def _tensor_entry(self, name: str | None, info: TensorInfo, is_scalar: bool) -> Entry:
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
        return Entry(name, "invalid" if is_scalar else "tensor", start, end, status=status, finding=finding)

    def metadata_at(self) -> list[int]:
        """Return the ordinals of ``__metadata__`` in the header: at most one in a good file."""
        if self._metadata_ordinals is None:
            self._metadata_ordinals = list(self.header.ordinals_of(self.header.root, METADATA))
        return self._metadata_ordinals

    def _header_ordinal(self, ordinal: int) -> int:
        for skipped in self.metadata_at():
            if skipped <= ordinal:
                ordinal += 1
        return ordinal

    def _info_at(self, ordinal: int) -> TensorInfo:
        return self.info(self._header_ordinal(ordinal))[0]

    def _mirrored(self, node: Node) -> Node:
        """Return the node of the header that ``node`` mirrors."""
        # By number: a key may occur twice.
        ordinals: list[int] = []
        while node.parent is not None and node.kind != "tensor":
            ordinals.append(node.ordinal)
            node = node.parent
        if node.kind == "tensor":
            found = self.header.root.child(self._header_ordinal(node.ordinal))
        else:
            ordinals.pop()  # "metadata"
            metadata = self.header.root.find(METADATA)
            assert metadata is not None  # noqa: S101 -- its node was made from it
            found = metadata
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
