"""The header of a safetensors file: how long it is, what its entries say of tensors, and what speaks against that.

The reference reader (tensor.rs, ``Metadata::validate``) requires the tensors one after the other, without gaps, from
the start of the data to the end of the file, and each name once. Nothing here makes nodes:
`pparse.parsers.safetensors.parser` does, and viewers ask for the entries as they stand.

A sound header is gone through once, by `pparse.parsers.safetensors.plain_text`. Any other text is one for the JSON
parser, which is also asked for the nodes below the entries. Either way a header is judged as a whole: `settle`.
"""

from __future__ import annotations

from itertools import chain

from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.data.zero_runs import unwritten
from pparse.document.extraction import extraction_of
from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import format_size
from pparse.parsers.safetensors.entry import (
    FIELDS,
    MEMBER,
    METADATA,
    TensorInfo,
    checked,
    info_of,
    is_metadata,
)
from pparse.parsers.safetensors.length import (
    LengthFinder,
    last_end,
    zeroed_header,
)
from pparse.parsers.safetensors.plain_text import SMALL, PlainText, State
from pparse.tensors.places import CONFLICTS, NAMESAKE, SHARED, Places, mark, sharers
from pparse.tensors.status import status_by_place, tensor_status
from pparse.tree.container import Container
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.listing import Listing
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.node import Node
    from pparse.tree.result import Result

    Row = tuple[int, str | None, TensorInfo, Entry | None]

_MAX_HOLES: Final = 10_000


class HeaderParser(Parser, Listing, Container):
    """The part of `pparse.parsers.safetensors.parser.SafetensorsParser` that reads the header."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._header: Result | None = None
        self._header_size: int | None = None
        self._plain: PlainText | None = None
        self.adrift: str | None = None  # why it is unknown where the data begins
        self.shifted = False  # whether bytes after the last tensor are the reason
        self._unproved = False  # the header seems to continue behind its end, which is unknown
        self.wrong_length: Finding | None = None  # set if the header's end was found in another way
        self.is_settled = False  # whether the header was judged as a whole
        self.places: Places | None = None  # where the tensors lie; None: not known yet
        self.conflicts = bytearray()  # the conflict of each header entry
        self.bad_metadata = False
        self.namesakes: set[int] = set()  # entries whose name occurs more than once
        self._metadata_ordinals: list[int] | None = None

    @property
    def header_size(self) -> int:
        """The header's length according to the file, or to its text if the tensors then fill the file.

        Raises `MalformedError` if the length is impossible, or not there.
        """
        if self._header_size is None:
            self._header_size = self._find_size()
            if self.result.extraction.session.options:
                self.header  # noqa: B018 -- the JSON parser refuses wrong values of its options
        return self._header_size

    def _find_size(self) -> int:
        extraction = self.result.extraction
        head = extraction.data.pread(extraction.start, min(8, max(0, extraction.known_end() - extraction.start)))
        if len(head) < 8:
            raise MalformedError(
                "the file ends inside the header's length", offset=extraction.start, wanted=8, got=len(head)
            )
        length = int.from_bytes(head, "little")
        there = max(0, extraction.known_end() - extraction.start - 8)
        if 2 <= length <= min(there, SMALL, extraction.session.limits.header_bytes):
            plain = self._new_text(length)
            if plain.read_all() and plain.behind != b" ":  # else the header may go on behind its end
                self._plain = plain
                return length
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
        is_right = self.is_plain and self.wrong_length is None
        return None if is_right else zeroed_header(self.result.extraction)

    # -- the entries -------------------------------------------------------------------------------------------------

    @property
    def plain(self) -> PlainText:
        """The text as far as it is written as all writers do. Raises `MalformedError` without a length."""
        if self._plain is None:
            extraction = self.result.extraction
            size = self.header_size
            extraction.data.prefetch(((extraction.start, 8 + size),))  # all of it will be read
            self._plain = self._plain or self._new_text(size)
        return self._plain

    def _new_text(self, length: int) -> PlainText:
        start = self.result.extraction.start + 8
        return PlainText(self.result.extraction, start, start + length)

    @property
    def is_plain(self) -> bool:
        """Whether the text was read to its end, is sound, and no name occurs twice in it."""
        return self._plain is not None and self._plain.state is State.COMPLETE

    @property
    def is_object(self) -> bool:
        """Whether the header is an object, as far as its beginning tells."""
        return self.is_plain or self.header.root.kind == "object"

    @property
    def text_status(self) -> Status:
        """Status of the header's text, with what is known about its bytes."""
        is_sound = self.is_plain and not self.result.extraction.data.flawed
        return Status.COMPLETE if is_sound else self.header.status

    @property
    def text_findings(self) -> Iterable[Finding]:
        """What is known to be wrong with the header's text."""
        return () if self.is_plain else self.header.findings

    def settle(self) -> None:
        """Go through the header, if that was not done yet, and judge it as a whole.

        Any entry may contradict another, or show that bytes behind the tensors have moved them. Does nothing without a
        readable header; the findings then tell why.
        """
        if not self.is_settled:
            with self.lock:
                self._judge()

    def _judge(self) -> None:
        try:
            if self.is_settled or (not self.plain.read_all() and self.header.root.kind != "object"):
                return
        except MalformedError:
            return
        if self.is_plain:
            self._metadata_ordinals = self.plain.metadata_at
            self.places = self.plain.places
        else:
            self._go_through()
        if self.places is not None and (self.places.again or self.places.overlaps):
            self.places = self.all_places()  # only these tell where each break is
        self._find_conflicts()
        self.is_settled = True

    def _go_through(self) -> None:
        """Read all entries by the JSON parser, and find out where tensors lie and whether a name occurs twice."""
        places, metadata = Places(self.result.extraction.session.budget), list[int]()
        for _, _, info, entry in self._each_info(metadata):
            place(places, info, entry)
        places.close()
        self.places, self._metadata_ordinals = places, metadata
        self.bad_metadata |= len(metadata) > 1
        root = self.header.root
        if root.index_to(None).count > 1 and self.header.repeated_keys(root):
            self.namesakes = self.header.same_keys(root).difference(metadata)

    def all_places(self) -> Places:
        """Return the places of the tensors, of which all are held meanwhile."""
        places = Places(self.result.extraction.session.budget, keep=True)
        for _, _, info, entry in self._rows():
            place(places, info, entry)
        places.close()
        return places

    def _find_conflicts(self) -> None:
        """Record the tensors that share bytes, and those with the same name: any of them may be the wrong one."""
        places = self.places
        assert places is not None  # noqa: S101 -- the caller made them
        if places.overlaps:
            sound = ((n, info.begin, info.end) for n, _, info, entry in self._rows() if not (entry or info.problem))
            mark(self.conflicts, sharers(self.result.extraction.session.budget, sound), SHARED)
        mark(self.conflicts, self.namesakes, NAMESAKE)
        if places.known and self.text_status is Status.COMPLETE:
            extraction, end = self.result.extraction, self.data_start + places.end
            if self.adrift is None and has_odd_tail(extraction.data, extraction.start, end, extraction.known_end()):
                self.shifted, self.adrift = True, SHIFTED

    def infos(self, first: int = 0) -> Iterator[Row]:
        """Yield ``(ordinal in the header, name, checked entry, JSON entry if that is not whole)`` of every tensor, from
        header entry ``first`` on, judged.

        Yields nothing without a readable header; the findings then tell why.
        """
        self.settle()
        if self.is_settled and not self.conflicts:
            yield from self._rows(first)
        elif self.is_settled:
            for ordinal, name, info, entry in self._rows(first):
                yield ordinal, name, self._judged(ordinal, info), entry

    @property
    def streams(self) -> bool:
        """Whether `unjudged` has entries of a large header before all of it was read."""
        try:
            if self.is_settled or self.header_size <= SMALL or self._unproved or self.adrift or self.wrong_length:
                return False
        except MalformedError:
            return False
        return self.plain.state is not State.STOPPED and self._reaches_end

    def unjudged(self) -> Iterator[Row]:
        """Yield what `infos` does, but each entry as soon as it is read; only for a header that `streams`.

        What comes later may contradict an entry; at the end, all are judged.
        """
        return chain(self.plain.rows(), self._rest())

    def _rest(self) -> Iterator[Row]:
        self.settle()
        if not self.is_plain:
            yield from self.infos(self.plain.count)

    def _rows(self, first: int = 0) -> Iterator[Row]:
        """Yield what `infos` does, as the entries stand."""
        if self.is_plain:
            return self.plain.rows(first)
        return self._each_info([], first)

    def _each_info(self, metadata: list[int], first: int = 0) -> Iterator[Row]:
        """Yield what `infos` does, read by the JSON parser; adds the ordinals of ``__metadata__`` to ``metadata``."""
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        for ordinal, name, fields, entry in json.each_member(self.header.root, first):
            if name == METADATA:
                metadata.append(ordinal)
                self.bad_metadata |= entry is None and not is_metadata(fields)
            elif entry is not None and entry.status is Status.UNSUPPORTED:
                yield ordinal, name, *self._lone_info(ordinal)
            elif entry is not None:
                yield ordinal, name, checked(fields), entry
            else:
                yield ordinal, name, info_of(self.header, ordinal, fields), None
        json.decoder.pairs = []  # free the whole header

    def _judged(self, ordinal: int, info: TensorInfo) -> TensorInfo:
        """Return an entry with its conflict, if it has one."""
        conflict = self.conflict_of(ordinal) if info.problem is None else None
        return info if conflict is None else info.with_problem(conflict)

    def conflict_of(self, ordinal: int) -> str | None:
        """Return why a tensor is in conflict with another, in words; None if, as far as is known, it is not."""
        conflicts = self.conflicts
        return CONFLICTS.get(conflicts[ordinal]) if ordinal < len(conflicts) else None

    def info(self, ordinal: int) -> tuple[TensorInfo, Entry | None]:
        """Return one entry of the header, checked and judged, and its JSON entry if that is not whole."""
        self.settle()
        info = self.plain.row(ordinal)[1] if self.is_plain else None
        info, entry = (info, None) if info is not None else self._lone_info(ordinal)
        return self._judged(ordinal, info), entry

    def _lone_info(self, ordinal: int) -> tuple[TensorInfo, Entry | None]:
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
            return checked(UNLOADED_VALUE), Entry(
                entry.key, entry.kind, entry.start, entry.end, status=status, finding=finding
            )

    # -- names -------------------------------------------------------------------------------------------------------

    def look_up(self, name: str, occurrence: int) -> tuple[int, TensorInfo, Entry | None] | None:
        """Return ordinal, judged entry and JSON entry, if that is not whole, of the n-th tensor with that name; None if
        there are fewer."""
        if name == METADATA:
            return None
        if not self.is_settled:
            try:
                self.plain.keep_hashes()
            except MalformedError:
                return None
            self.settle()
        if self.is_plain:
            found = self.plain.find(name) if occurrence == 1 else None
            if found is None or found[1] is None:
                return None
            return found[0], self._judged(found[0], found[1]), None
        ordinal = self.header.find(self.header.root, name, occurrence) if self.is_settled else None
        return None if ordinal is None else (ordinal, *self.info(ordinal))

    def name_hashes(self, first: int = 0) -> Iterator[int]:
        """Yield the hashes of the names of tensors, from header entry ``first`` on."""
        self.settle()
        if self.is_plain:
            return (hash(name) for _, name, _, _ in self.plain.rows(first))
        skipped = set(self.metadata_at())
        hashes = self.header.parser.key_hashes(self.header.root, first)
        return (number for ordinal, number in enumerate(hashes, first) if ordinal not in skipped)

    def metadata_at(self) -> list[int]:
        """Return the ordinals of ``__metadata__`` in the header: at most one in a good file."""
        self.settle()
        return self._metadata_ordinals or []

    def metadata_node(self) -> Node | None:
        """Return the node of ``__metadata__``; None if there is none. Reads no further than it takes to find it."""
        try:
            plain = self.plain
        except MalformedError:
            return None
        while plain.state is State.READING and not plain.metadata_at:
            plain.read_on()
        if plain.state is State.COMPLETE and not plain.metadata_at:
            return None
        root = self.header.root
        return root.find(METADATA) if root.kind == "object" else None

    def count(self) -> int:
        """Return the number of tensors."""
        self.settle()
        if not self.is_settled:
            return 0
        entries = self.plain.count if self.is_plain else self.header.root.index_to(None).count
        return entries - len(self.metadata_at())

    @property
    def has_duplicates(self) -> bool:
        """Whether a key occurs twice in one object of the header, as far as it was decoded."""
        if self.is_plain:
            return False
        json: JsonParser = self.header.parser  # type: ignore[assignment]
        return bool(json.decoder.duplicates or self.namesakes or len(self.metadata_at()) > 1)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def is_at_odds(self) -> bool:
        """Whether the header, though readable, is known to be one that the reference reader refuses."""
        return (
            self.bad_metadata
            or not self.is_tiled
            or any(finding.code == "byte-order-mark" for finding in self.text_findings)
        )

    @property
    def is_tiled(self) -> bool:
        """Whether, as far as is known, the tensors follow each other up to the file's end."""
        places = self.places
        if places is None:
            return True
        there = self.result.extraction.known_end() - self.data_start
        return not places.breaks and (there <= places.end or not places.known)

    def status_of(self, info: TensorInfo, there: int | None = None) -> Status:
        """Return the status of a tensor, from its judged entry, the number of data bytes ``there`` (None: find out),
        and what is known about those now."""
        status, data = self.claimed_status(info, there), self.result.extraction.data
        if info.begin == info.end or not data.flawed:
            return status
        start = self.data_start
        return tensor_status(status, lambda: data.range_status(start + info.begin, start + info.end))

    def claimed_status(self, info: TensorInfo, there: int | None = None) -> Status:
        """Return the status of a tensor from its entry and the number of data bytes ``there`` (None: find out)."""
        if info.problem is not None:
            return Status.UNSUPPORTED if info.unsupported else Status.DAMAGED
        if self.adrift is not None and not (self.shifted and info.begin == info.end):
            return Status.DAMAGED
        if there is None:
            there = self.result.extraction.known_end() - self.data_start
        return status_by_place(info.begin, info.end, there)

    @property
    def _reaches_end(self) -> bool:
        """Whether no bytes follow the tensor of the last entry; as with nearly all writers, it is the last in the data.

        Costs one read: without it, whether bytes may have come in before a tensor is only known from all entries.
        """
        there = self.result.extraction.known_end() - self.data_start
        if there <= 0:
            return True
        end = last_end(self.result, self.header_size)
        return end is not None and end >= there


def place(places: Places, info: TensorInfo, entry: Entry | None) -> None:
    """Add a tensor to ``places`` if its place is known."""
    if entry is not None or not info.is_placed:
        places.known = False
    else:
        places.add(info.begin, info.end)
