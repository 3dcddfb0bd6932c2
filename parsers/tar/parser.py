"""tar archives: v7, ustar, pax, GNU and star, also concatenated ones, and what is left of damaged ones.

State::

    state          needs  reads                                            goes to
    expect_member  0      zeros, extended headers, and one header, through expect_member behind the member; DONE at the
                          `pparse.parsers.tar.walk`, which reads ahead     end of the data

The decisions are made in `pparse.parsers.tar.walk`. Listing does not use the engine: see `TarParser.files`.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember, ArchiveParser
from pparse.data.base import Access
from pparse.data.spliced import SplicedData
from pparse.findings import Status
from pparse.parsers.tar.headers import BLOCK, LARGEST, USUAL, dialect_of, padded, read_header, read_number, sum_of
from pparse.parsers.tar.judge import judge_header
from pparse.parsers.tar.mend import first_header
from pparse.parsers.tar.walk import TarWalker
from pparse.tree.context import DONE
from pparse.tree.parser import Confidence, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, ClassVar, Final

    from pparse.containers.content import ContentSink, Skip, Verdict
    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.errors import MalformedError
    from pparse.findings import Finding
    from pparse.parsers.tar.mend import StepOutcome
    from pparse.parsers.tar.sparse import SparseMap
    from pparse.tree.context import NodeContext
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

_PEEK: Final = 64 << 10
_SEARCH: Final = 1 << 20  # bytes read at a time in a search for headers
_GROUP: Final = 64  # the most members added at a time


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
        """Give the archive a status, unless it is damaged already; None: only add the finding."""
        if status is not None:
            known = root.known_status
            self.result.close_node(root, known if known is Status.DAMAGED else status, finding)
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
        elif verdict.status is Status.COMPLETE and self._tail is None:
            self._tail = self.walker.source.zeros_to_the_end(member)
            if self._tail is not None:
                self.result.findings.add(self._tail)
        return verdict

    def missing(self) -> int | None:
        """Return how many bytes are missing of the member at the end of a truncated archive."""
        return self._missing if self.result.root.known_status is Status.TRUNCATED else None
