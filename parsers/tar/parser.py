"""tar archives: v7, ustar, pax, GNU and star, also concatenated ones, and what is left of damaged ones.

State::

    state          needs  reads                                            goes to
    expect_member  0      zeros, extended headers, and one header, through expect_member behind the member; DONE at the
                          `TarWalker`, which reads ahead                   end of the data

The decisions are made by `TarWalker`. Listing does not use the engine: see `TarParser.files`.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember, ArchiveParser
from pparse.data.base import Access
from pparse.data.spliced import SplicedData
from pparse.findings import Finding, Severity, Status
from pparse.limits import MIB, count_words
from pparse.parsers.tar.headers import (
    BLOCK,
    BODILESS,
    EXTENDED,
    LARGEST,
    USUAL,
    Attributes,
    TarHeader,
    dialect_of,
    padded,
    read_header,
    read_name,
    read_number,
    read_records,
    sum_of,
    text_of,
)
from pparse.parsers.tar.mend import Body, StepOutcome, TarMender, first_header
from pparse.parsers.tar.source import Blank, TarSource, judge_header
from pparse.parsers.tar.sparse import read_old_map, read_pax_map
from pparse.tree.context import DONE
from pparse.tree.parser import Confidence, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, ClassVar, Final

    from pparse.containers.content import ContentSink, Skip, Verdict
    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction
    from pparse.errors import MalformedError
    from pparse.parsers.tar.headers import Records
    from pparse.parsers.tar.sparse import SparseMap
    from pparse.tree.context import NodeContext
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

_PEEK: Final = 64 << 10
_SEARCH: Final = 1 << 20  # bytes read at a time in a search for headers
_GROUP: Final = 64  # the most members added at a time

_KINDS: Final = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"M": "file",
    b"1": "hardlink",
    b"2": "symlink",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "fifo",
    b"D": "folder",
    b"V": "other",
}
_MAX_RECORDS: Final = 4 * MIB  # bytes of data of one pax header
_MAX_GLOBALS: Final = 256


class Pending:
    """The content of extended headers for the next member; ``at`` is the offset of the first of them."""

    __slots__ = ("at", "link", "name", "only_global", "problem", "records")

    def __init__(self, at: int) -> None:
        self.at = at
        self.name: bytes | None = None
        self.link: bytes | None = None
        self.records: list[Records] = []
        self.problem: str | None = None
        self.only_global = True

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self.problem = self.problem or problem


class TarWalker:
    """Goes through an archive from member to member, even after damage.

    `step` reads what is at a position. Apart from the global pax records, its result does not depend on earlier steps:
    reading can start at any member. The rules:

    - Zero blocks are not the end: archives may be concatenated. The end is where the data end.
    - A header is accepted if its checksum agrees; where a header is expected, also with a damaged checksum or byte.

    `TarMender` settles where the bytes of a member end if the next header is not where its size says, and goes on where
    a header is destroyed.
    """

    def __init__(self, extraction: Extraction) -> None:
        self.source = TarSource(extraction)
        self.mender = TarMender(self.source)
        self._limits = extraction.session.limits
        self.globals: list[tuple[int, Records]] = []  # the offset of each, and all records in force from there on

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, pos: int, *, keep_map: bool = False) -> StepOutcome:
        """Read what is at ``pos``: the next member, and where to continue.

        With ``keep_map`` the map of a sparse member is left in its ``extra``.
        """
        begin, zeros = pos, 0
        blank: tuple[Status | None, Finding | None] = (None, None)
        pending: Pending | None = None
        while True:
            found = self.source.probe(pos)
            if isinstance(found, TarHeader):
                if found.letter not in EXTENDED:
                    return self._member(found, pos, pending, keep_map)._replace(blank=blank)
                pending = pending or Pending(pos)
                pos = self._extend(found, pos, pending)
            elif found is Blank.ZERO and (pending is None or pending.only_global):
                after = self.source.skip_zeros(pos)
                zeros += (after - pos) // BLOCK
                start, (pos, pending) = pos, (max(after, pos + BLOCK), None)
                last = self.source.probe(pos)
                at_end = last is Blank.END or (last is Blank.CUT and self._is_zero(pos))
                blank = self.source.judge_blank(start, pos, at_end=at_end)
            elif found is Blank.END or (found is Blank.CUT and zeros and self._is_zero(pos)):
                return self._end(begin, pos, zeros, pending)._replace(blank=blank)
            elif found is Blank.CUT:
                at = pos if pending is None else pending.at
                return self.mender.cut_header(at, pos, self._attributes(pos, pending))
            else:
                at = begin if pending is None else pending.at
                return self.mender.lost(at, pos, zeros, self._attributes(pos, pending))

    def _is_zero(self, pos: int) -> bool:
        return not self.source.read(pos, BLOCK)[0].strip(b"\0")

    def _end(self, begin: int, pos: int, zeros: int, pending: Pending | None) -> StepOutcome:
        """Return the outcome where the data end, at ``pos``."""
        code = "truncated"
        if pending is not None and not pending.only_global:
            reason = "the archive ends between an extended header and its member"
        elif begin == self.mender.unpadded:
            reason = "the archive ends inside the padding of its last member"
        elif begin == self.source.start and not zeros and pending is None:
            reason = "the file is empty: not even the blocks of zeros are there that end an archive without members"
            code = "empty"
        elif zeros < 2:
            marks = "blocks of zeros that end a tar"
            missing = f"one of the two {marks} is missing" if zeros else f"the two {marks} are missing"
            finding = self.source.finding(
                "no-end-mark", f"{missing}; it may be truncated", pos, severity=Severity.WARNING
            )
            return StepOutcome(None, None, None, finding)
        else:
            return StepOutcome(None, None)
        return StepOutcome(None, None, Status.TRUNCATED, self.source.finding(code, reason, pos))

    # -- extended headers --------------------------------------------------------------------------------------------

    def _extend(self, header: TarHeader, pos: int, pending: Pending) -> int:
        """Apply an extended header at ``pos``; return where to continue."""
        source, start = self.source, pos + BLOCK
        size = header.size
        pending.only_global = pending.only_global and header.letter == b"g"
        pending.note(header.problem)
        end = start + padded(size or 0)
        if not header.sound or size is None or source.reach(start, start + size) < start + size or source.is_bad(end):
            after = self.mender.search_from(start, pos)
            if after is not None and (size is None or after < end):
                pending.note("the size of an extended header is wrong")
                size, end = after - start, after
        if size is None:
            size, end = 0, start
        is_name = header.letter in (b"L", b"K")
        limit = self._limits.name_bytes if is_name else min(self._limits.header_bytes, _MAX_RECORDS)
        if size > limit:
            pending.note(f"an extended header of {count_words(size, 'byte')} was skipped")
            return source.reach(start, end)
        data, unknown = source.read(start, size)
        if unknown:
            pending.note("bytes of an extended header are lost")
            changed = bytearray(data)
            for at, length in unknown:
                changed[at : at + length] = b"?" * length
            data = bytes(changed)
        if len(data) == size:
            self._apply(header.letter, data, pos, pending)
        return source.reach(start, end)

    def _apply(self, letter: bytes, data: bytes, pos: int, pending: Pending) -> None:
        if letter == b"L":
            pending.name = read_name(data) or pending.name
        elif letter == b"K":
            pending.link = read_name(data) or pending.link
        else:
            records, problem = read_records(data)
            pending.note(problem)
            if letter != b"g":
                pending.records.append(records)
            else:
                self._note_globals(pos, records, pending)

    def _note_globals(self, pos: int, records: Records, pending: Pending) -> None:
        """Keep global records that describe files; they apply to everything after them."""
        records = [(key, value) for key, value in records if key in (b"path", b"linkpath", b"size", b"mtime")]
        if not records or (self.globals and self.globals[-1][0] >= pos):
            return
        if len(self.globals) >= _MAX_GLOBALS or sum(len(key) + len(value) for key, value in records) > 64 << 10:
            pending.note("there are too many global pax records; these were skipped")
            return
        merged = dict(self.globals[-1][1]) if self.globals else {}
        merged.update(records)
        self.globals.append((pos, list(merged.items())))

    def _attributes(self, pos: int, pending: Pending | None) -> Attributes:
        """Return what extended headers say of what is at ``pos``: pax records before GNU names."""
        attributes = Attributes()
        for begin, records in reversed(self.globals):
            if begin < pos:
                attributes.apply(records)
                break
        if pending is not None:
            for records in pending.records:
                attributes.apply(records)
            attributes.path, attributes.link = attributes.path or pending.name, attributes.link or pending.link
            attributes.problem = pending.problem or attributes.problem
        return attributes

    # -- members -----------------------------------------------------------------------------------------------------

    def _member(self, header: TarHeader, pos: int, pending: Pending | None, keep_map: bool) -> StepOutcome:
        """Return the outcome for the member whose header is at ``pos``."""
        attributes = self._attributes(pos, pending)
        raw_name, raw_link = attributes.path or header.raw_name, attributes.link or header.raw_link
        problem = header.problem or attributes.problem
        kind = _KINDS.get(header.letter, "file")
        if kind == "file" and header.letter == b"\0" and raw_name.endswith(b"/"):
            kind = "folder"  # as in v7
        size, start, map = attributes.size_of(header), pos + BLOCK, None
        if header.letter == b"S":
            map, start = read_old_map(self.source, header, start)
        body = self._body(header, kind, pos, start, size)
        declared = kind
        if kind not in ("file", "other") and body.size and header.letter != b"D":
            kind = "file"  # it has bytes, whatever the type says
        if attributes.sparse is not None:
            map = read_pax_map(self.source, attributes, body)
        if map is not None:
            map.check(body.end - body.start - map.skip if body.pieces is None else body.size or 0)
            if map.problem is not None:
                body.spoil(Status.DAMAGED, "malformed", map.problem)
        if problem is not None:
            body.spoil(Status.DAMAGED, "malformed", problem)
        if header.letter == b"M":
            body.spoil(Status.TRUNCATED, "truncated", "it begins in another volume; this is the rest of it")
        member = ArchiveMember(
            text_of(raw_name),
            raw_name,
            kind,
            pos if pending is None else pending.at,
            body.start,
            body.end,
            body.size if map is None else map.real_size,
            mtime=attributes.mtime if attributes.mtime is not None else header.mtime,
            mode=None if header.mode is None else header.mode & 0o7777,
            link=text_of(raw_link) if kind in ("symlink", "hardlink") else None,
            pieces=body.pieces,
            extra=None if map is None else map if keep_map else True,
        )
        if declared != kind and not body.reason:
            reason = f"its type says {declared}, but it has content: read as a file"
            place, length = member.start, member.compressed_size
            member.finding = self.source.finding(
                "kind", reason, place, length, name=member.name, severity=Severity.NOTE
            )
            return StepOutcome(member, body.next, None, member.finding)
        return self.mender.outcome(member, body)

    def _body(self, header: TarHeader, kind: str, pos: int, start: int, size: int | None) -> Body:
        """Find the stored bytes of a member, and where to continue."""
        source = self.source
        if size and (header.letter in BODILESS or kind == "folder") and header.letter != b"D":
            # Some writers give a size to links and folders, and no bytes.
            end = start + padded(size)
            if not source.is_bad(start) or source.reach(start, end) < start + size or source.is_bad(end):
                size = 0
        body = Body(start, size)
        self.mender.mend(body, header, pos)
        return body


class TarParser(ArchiveParser):
    """A tar archive."""

    name = "tar"
    description = "tar archive (v7, ustar, pax, GNU, star)"
    extensions: ClassVar[tuple[str, ...]] = (".tar",)
    signatures = (Signature(b"ustar", 257), Signature(bytes(64)))
    is_generic = True
    media_type = "application/x-tar"
    references: ClassVar[tuple[str, ...]] = (
        "POSIX.1-2017, pax: Extended Interchange Format",
        "GNU tar manual: Tar Internals",
        "star(5)",
    )
    limitations: ClassVar[tuple[str, ...]] = (
        "owners, devices' numbers, extended attributes and access lists are not read",
        "of a part of a multi-volume archive, the parts of files in it are read",
        "sparse files written by star (SCHILY.realsize) are read as stored",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.walker = TarWalker(self.extraction)
        self._missing: int | None = None
        self._tail: Finding | None = None  # the finding about zeros at the end of the last member
        self._checking = False

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by a header with a right checksum, LIKELY by one that is damaged or follows zeros."""
        head = excerpt.head(BLOCK)
        if len(head) < BLOCK:
            return Confidence.NO
        sure = Confidence.CERTAIN
        if not head.strip(b"\0"):
            head = excerpt.head(_PEEK)
            begin = (len(head) - len(head.lstrip(b"\0"))) // BLOCK * BLOCK
            head = head[begin : begin + BLOCK]
            sure = Confidence.LIKELY
        header = judge_header(head) if len(head) == BLOCK else None
        if header is None:
            return Confidence.NO
        return sure if header.sound and header.dialect != "v7" else Confidence.LIKELY

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY by a sound header after a first one that is destroyed."""
        return cls.match_further(reader, thorough=True) if len(excerpt.head(BLOCK)) == BLOCK else Confidence.NO

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """LIKELY by a sound header after a first one that is destroyed."""
        if not thorough:
            return Confidence.NO
        head = reader.peek(_PEEK)
        if len(head) < 2 * BLOCK:
            return Confidence.NO
        size = read_number(head[124:136])  # gives the position of the second header, if this field is intact
        places = [BLOCK + padded(size)] if size is not None and 0 < size < LARGEST else []
        for at in (*places, *range(BLOCK, len(head) - BLOCK + 1, BLOCK)):
            raw = head[at : at + BLOCK]
            if not raw and reader.data.access is Access.FREE and reader.remaining is not None:
                raw = reader.data.pread(reader.start + at, max(0, min(BLOCK, reader.remaining - at)))
            if len(raw) == BLOCK and dialect_of(raw) is not None and read_header(raw) is not None:
                return Confidence.LIKELY
        return Confidence.NO

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return the offset of the first sound header with a magic, at any alignment."""
        at, end = reader.start, reader.start + (reader.size or 0)
        while end - at >= BLOCK:
            poll()
            block, _ = reader.data.read_known(at, min(_SEARCH, end - at))
            if len(block) < BLOCK:
                break
            found = first_header(block, [], at, None)
            if found is not None:
                return found - reader.start
            at += len(block) - BLOCK + 1
        return None

    # -- members -----------------------------------------------------------------------------------------------------

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin the archive."""
        return ctx.node.start, self.expect_member, 0

    def expect_member(self, ctx: NodeContext, block: bytes, base: int) -> tuple[int, Any, int]:
        """Add the next member, and those whose headers are in the same block: one at a time is slow."""
        if block:
            self.walker.source.offer(block, base)
        pos = ctx.pos
        for _ in range(_GROUP):
            outcome = self.walker.step(pos)
            self._take(ctx, outcome)
            if outcome.pos is None:
                return max(pos, self.walker.source.find_end()), DONE, 0
            pos = outcome.pos
            enough = ctx.answer is not None or (ctx.collected is not None and ctx.satisfied)
            if enough or pos + BLOCK > base + len(block):
                break
        return pos, self.expect_member, 0

    def _take(self, ctx: NodeContext, outcome: StepOutcome) -> None:
        if ctx.collected is None:
            self._note(outcome, ctx.node)
        if outcome.member is not None:
            ctx.emit(self.entry_of(outcome.member))

    def _note(self, outcome: StepOutcome, root: Node) -> None:
        """Add findings on a member, or on the end of the archive."""
        member, (status, finding) = outcome.member, outcome.blank
        self._close(root, status, finding)
        status, finding = outcome.status, outcome.finding
        hole = finding is not None and finding.code == "unwritten"
        if status is Status.TRUNCATED and member is not None and member.size is not None and not hole:
            self._missing = max(0, member.size - (member.end - member.start))
        self._close(root, status, None if self._checking and member is not None and status is not None else finding)

    def _close(self, root: Node, status: Status | None, finding: Finding | None) -> None:
        """Give the archive a status; None: only add the finding."""
        if status is not None:
            self.result.close_node(root, status, finding)
        elif finding is not None:
            self.result.findings.add(finding)

    def note_damage(self, node: Node, error: MalformedError) -> None:
        """Do nothing: a gap in the data is not damage until it is known what lies in it."""

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue after a gap that begins where a header should be."""
        outcome = self.walker.step(ctx.pos)
        self._take(ctx, outcome)
        if outcome.pos is None:
            if ctx.collected is None:
                self.finish(ctx)
            return None
        return outcome.pos, self.expect_member, 0

    def files(self) -> Iterator[ArchiveMember]:
        """Yield every member, in order, without the engine: usual members are read in a tight loop."""
        root = self.result.root
        pos: int | None = self.walker.source.start
        while pos is not None:
            self.result.check_open()
            pos = yield from self._usual_files(pos)
            outcome = self.walker.step(pos)
            self._note(outcome, root)
            if outcome.member is not None:
                yield outcome.member
            pos = outcome.pos

    def _usual_files(self, pos: int) -> Generator[ArchiveMember, None, int]:
        """Yield files and folders whose headers have the usual form; return the position of the first that has not.

        A member is yielded once the header after it is known to be right; otherwise the general code continues at the
        member.
        """
        walker = self.walker
        source, match = walker.source, USUAL.match
        data = source.data
        if walker.globals or data.gaps or source.has_holes:
            return pos
        jumps = data.access is Access.FREE and data.size is not None
        block, base = source.stretch(pos)
        have = base + len(block) - BLOCK
        member: ArchiveMember | None = None
        while True:
            if pos > have:
                if not jumps and pos > base + len(block):
                    break
                if member is not None and not jumps:
                    source.probe(member.at)  # remembered, since decoded data should not be read backwards
                block, base = source.stretch(pos)
                have = base + len(block) - BLOCK
                if pos > have:
                    break
            at = pos - base
            found = match(block, at + 100)
            if found is None:
                break
            mode, digits, mtime, checksum, letter, version = found.groups()
            raw = block[at : at + BLOCK]
            name = raw[:100].split(b"\0", 1)[0]
            size = int(digits, 8)
            folder = letter == b"5"
            if sum_of(raw) != int(checksum, 8) or (size if folder else letter == b"\0" and name[-1:] == b"/"):
                break
            if version == b"\x0000" and raw[345]:
                if raw[508] == 0x74:  # "tar": star has another prefix
                    break
                name = raw[345:500].split(b"\0", 1)[0] + b"/" + name
            if member is not None:
                yield member
            start = pos + BLOCK
            member = ArchiveMember(
                name.decode("utf-8", "surrogateescape"),
                name,
                "folder" if folder else "file",
                pos,
                start,
                start + size,
                size,
                compressed_size=size,
                mtime=int(mtime, 8),
                mode=int(mode, 8) & 0o7777,
            )
            pos = start + size + (-size % BLOCK)
        return pos if member is None else member.at

    # -- content -----------------------------------------------------------------------------------------------------

    def content(self, member: ArchiveMember) -> tuple[Data, int, int | None]:
        """Return the content of a member: a range of the archive, or pieces of it with zeros or lost bytes between."""
        data, start, end = self.result.extraction.data, member.start, member.end
        if member.pieces is not None:
            data = SplicedData(member.pieces, name=member.name)
            start, end = 0, data.size or 0
        if member.extra is None:
            return data, start, end
        found = self.walker.step(member.at, keep_map=True).member
        map: SparseMap | None = found.extra if found is not None else None
        if map is None:
            return data, start, end
        content = map.spread(data, start + map.skip, member.name, self.extraction.session.budget)
        return content, 0, content.size

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Read every member; problems in a member are reported by this instead of while members are found."""
        visits = super().check(strict=strict)
        while True:
            self._checking = True  # reset while suspended: another thread may list the archive meanwhile
            try:
                visit = next(visits, None)
            finally:
                self._checking = False
            if visit is None:
                return
            yield visit

    def examine(self, member: ArchiveMember, sink: ContentSink | None, skip: Skip | None) -> Verdict:
        """Read a member; only bytes of it that were never written may be wrong."""
        verdict = super().examine(member, sink, skip)
        if member.finding is not None and member.finding.code == "unwritten" and member.extra is None:
            found = self.walker.source.unwritten_in(member.start, member.end)
            verdict.suspect = tuple((low - member.start, high - low) for low, high in found)
            verdict.source = None  # the file system reports it to every reader
        elif verdict.is_complete and self._tail is None:
            self._tail = self.walker.source.zeros_to_the_end(member)
            if self._tail is not None:
                self.result.findings.add(self._tail)
        return verdict

    def missing(self) -> int | None:
        """Return how many bytes are missing of the member at the end of a truncated archive."""
        return self._missing if self.result.root.known_status is Status.TRUNCATED else None
