"""The header of a safetensors file: how long it is, what its entries say of tensors, and what speaks against that.

Nothing here makes nodes: `pparse.parsers.safetensors.parser` does, and viewers ask for the entries as they stand.
"""

from __future__ import annotations

from array import array

from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.data.zero_runs import unwritten
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import format_size
from pparse.parsers.json.damage import LOOK_FIRST
from pparse.parsers.safetensors.entry import (
    FIELDS,
    MEMBER,
    METADATA,
    TensorInfo,
    info_of,
    is_metadata,
)
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
    LengthFinder,
    last_end,
    zeroed_header,
)
from pparse.tensors.status import status_by_place, tensor_status
from pparse.tree.container import Container
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.key_table import SeenKeys, has_repeats
from pparse.tree.listing import Listing
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.result import Result

_MAX_HOLES: Final = 10_000


class _Reached:
    """How far a listing came while the index of the header was made."""

    __slots__ = ("all", "count")

    def __init__(self) -> None:
        self.count = 0
        self.all = False  # the header was read to its end, and no name came twice


class HeaderParser(Parser, Listing, Container):
    """The part of `pparse.parsers.safetensors.parser.SafetensorsParser` that reads the header."""

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

    def infos(self) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield ``(ordinal in the header, name, checked entry, JSON entry if that is not whole)`` of every tensor.

        Yields nothing without a readable header; the findings then tell why. Conflicts between tensors are known before
        the first one of a small header, and after the last one of a large header.
        """
        try:
            extraction, size = self.result.extraction, self.header_size
            extraction.data.prefetch(((extraction.start, 8 + size),))  # all of it will be read
            root = self.header.root
        except MalformedError:
            return
        if root.kind != "object":
            return
        if not self.compared and size <= LOOK_FIRST:
            held = list(self._each_info())
            self._compare(held)
            yield from (self._judged(*row) for row in held)
            return
        layout = Layout(self.result.extraction.session.budget) if self.layout is None else None
        yield from self._placed(self._each_info(), layout)
        self._keep_layout(layout)
        self.compare()

    def infos_from(self, first: int) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield what `infos` does, from header entry ``first`` on; conflicts must be known."""
        return self._placed(self._each_info(first), None)

    @property
    def is_unread(self) -> bool:
        """Whether the header is a large one, sound as far as is known, that was not read in full yet: see `listed`."""
        try:
            size, root = self.header_size, self.header.root
        except MalformedError:
            return False
        known = self.repeats is not None or self.compared or self._unproved or self.adrift or self.wrong_length
        return size > LOOK_FIRST and root.kind == "object" and not known

    def listed(self, namesakes: set[int], late: set[int]) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield what `infos` does, of a header that `is_unread`, while its index is made: each byte is read once.

        Entries whose names occur twice are known from the second one on: they are added to ``namesakes`` before that
        is yielded, and to ``late`` if they were yielded before. The caller then calls `compare`. All that is remembered
        between two rows belongs to this listing: another one may go on at the same time.
        """
        layout = Layout(self.result.extraction.session.budget) if self.layout is None else None
        metadata: list[int] = []
        reached = _Reached()
        yield from self._placed(self._first_infos(metadata, reached), layout)
        if not reached.all:
            # Something is wrong, or there is no room: what is left is read as if nothing had been.
            namesakes.update(self.repeated())
            late.update(ordinal for ordinal in namesakes.difference(metadata) if ordinal < reached.count)
            yield from self._placed(self._each_info(reached.count, metadata), layout)
        self.bad_metadata |= len(metadata) > 1
        self._metadata_ordinals = metadata
        self._keep_layout(layout)

    def settle(self) -> None:
        """Read a large header in full, if it was not yet: the status of a tensor may depend on what comes later."""
        if self.is_unread:
            for _ in self.listed(set(), set()):
                pass
            self.compare()
        elif not self.compared and self.header_size > LOOK_FIRST and self.header.root.kind == "object":
            self.repeated()
            for _ in self.infos():
                pass

    def _first_infos(
        self, metadata: list[int], reached: _Reached
    ) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield entries up to the first one that is not whole, or whose name came before.

        Sets `repeats` if there is none; adds the ordinals of ``__metadata__`` to ``metadata``.
        """
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        root = self.header.root
        seen = SeenKeys(self.result.extraction.session.budget)
        try:
            for first, members in json.member_batches(root):
                if not seen.are_new([hash(name) for name, _ in members]):
                    return
                for ordinal, (name, fields) in enumerate(members, first):
                    if name == METADATA:
                        metadata.append(ordinal)
                        self.bad_metadata |= not is_metadata(fields)
                    else:
                        yield ordinal, name, info_of(self.header, ordinal, fields), None
                reached.count = first + len(members)
        finally:
            seen.release()
            json.decoder.pairs = []
        index = root.index
        if index is not None and index.complete and index.count == reached.count:
            reached.all = True
            self.repeats = False

    def _placed(
        self, rows: Iterator[tuple[int, str | None, TensorInfo, Entry | None]], layout: Layout | None
    ) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield ``rows``, judged by the conflicts that are known, and add them to ``layout``."""
        for ordinal, name, info, entry in rows:
            if layout is not None:
                place(layout, info, entry)
            if self.conflicts:
                self._judge(ordinal, info)
            yield ordinal, name, info, entry

    def _keep_layout(self, layout: Layout | None) -> None:
        """Keep the layout to which all tensors were added."""
        if layout is None:
            return
        layout.close()
        self.layout = lay(self.result.extraction.session.budget, self._each_info()) if layout.again else layout

    def compare(self) -> None:
        """Find the tensors that conflict, once the layout is known; later listings tell it of each."""
        if not self.compared and self.layout is not None:
            self._find_conflicts(self._each_info(), self.repeated() if self.repeats else set())

    def _each_info(
        self, first: int = 0, metadata: list[int] | None = None
    ) -> Iterator[tuple[int, str | None, TensorInfo, Entry | None]]:
        """Yield what `infos` does, without comparing tensors; adds the ordinals of ``__metadata__`` to ``metadata``."""
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        is_all = not first or metadata is not None
        metadata = [] if metadata is None else metadata
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
        if is_all:
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
        if self.conflicts and info.problem is None:
            info.problem = self.conflict_of(ordinal)
        return info

    def _know_conflicts(self) -> None:
        """Find conflicts if the header is small."""
        if not self.compared and self.header_size <= LOOK_FIRST and self.header.root.kind == "object":
            self._compare(list(self._each_info()))

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

    def conflict_of(self, ordinal: int) -> str | None:
        """Return why a tensor is in conflict with another, in words; None if, as far as is known, it is not."""
        conflicts = self.conflicts
        return CONFLICTS.get(conflicts[ordinal]) if ordinal < len(conflicts) else None

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
        status, data = self.claimed_status(info, there), self.result.extraction.data
        if info.begin == info.end or not data.flawed:
            return status
        start = self.data_start
        return tensor_status(status, lambda: data.range_status(start + info.begin, start + info.end))

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
        return status_by_place(info.begin, info.end, there)

    def look_behind(self) -> None:
        """Find out whether bytes follow the last tensor, before any status is given."""
        self._looked_behind = True
        if self.header.root.kind != "object":
            return
        if self.header_size > LOOK_FIRST and self.reaches_end:
            return
        self._know_conflicts()
        layout = self.layout or lay(self.result.extraction.session.budget, self._each_info())
        if layout.known and self.header.status is Status.COMPLETE:
            self._judge_tail(layout.end)

    @property
    def reaches_end(self) -> bool:
        """Whether no bytes follow the tensor of the last entry; as with nearly all writers, it is the last in the data.

        Costs one read: without it, whether bytes may have come in before a tensor is only known from all entries.
        """
        there = self.result.extraction.known_end() - self.data_start
        if there <= 0:
            return True
        end = last_end(self.result, self.header_size)
        return end is not None and end >= there

    def _judge_tail(self, end: int) -> None:
        """Record that tensors may lie elsewhere if bytes after the last one, from ``end``, may have been inserted."""
        self._looked_behind = True
        extraction = self.result.extraction
        if self.adrift is None and has_odd_tail(
            extraction.data, extraction.start, self.data_start + end, extraction.known_end()
        ):
            self.shifted, self.adrift = True, SHIFTED

    def metadata_at(self) -> list[int]:
        """Return the ordinals of ``__metadata__`` in the header: at most one in a good file."""
        if self._metadata_ordinals is None:
            self._metadata_ordinals = list(self.header.ordinals_of(self.header.root, METADATA))
        return self._metadata_ordinals
