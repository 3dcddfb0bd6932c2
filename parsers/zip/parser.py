"""Zip archives, complete or damaged.

States::

    state          needs  reads                                              goes to
    expect_member  0..    a directory entry, where the directory accounts    expect_member behind it; DONE at the end
                          for the archive; else what stands at a position    of the directory, or of the data
                          of the archive (`pparse.parsers.zip.scan`)

The root is a map of names to members. With a trusted directory, a member's ``at`` is its directory entry, and ``start``
its local header, which is not read before the member is opened; ``[start, end)`` then holds header and bytes, as far as
the directory knows. Otherwise ``at`` is the local header, and ``[start, end)`` the stored bytes.
"""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import islice

from pparse.containers.archive import ArchiveMember, ArchiveParser
from pparse.containers.content import Verdict
from pparse.data.base import Distance
from pparse.data.trailing_bytes import trailing_severity
from pparse.data.window import Window
from pparse.errors import MalformedError, UnsupportedError, spoken
from pparse.findings import UNSURE_NAME, Finding, Severity, Status
from pparse.limits import KIB, count_words
from pparse.parsers.zip import records
from pparse.parsers.zip.members import (
    AHEAD,
    READABLE,
    ZipNote,
    agrees,
    likely_size,
    listed_member,
    listing,
    lzma_source,
    verified_content,
)
from pparse.parsers.zip.records import (
    BLOCK,
    CENTRAL_SIZE,
    CODEC_OF_METHOD,
    ENCRYPTED,
    END_SIZE,
    LOCAL_SIZE,
    LZMA,
    MASKED,
    SPLIT_MARKS,
    STORED,
    STREAMED,
    CentralEntry,
    LocalHeader,
    central_length,
    check_encoding,
    decode_name,
    descriptor_crc,
    entries,
    entry_at,
    is_extra,
    is_japanese,
    local_at,
    needs_guess,
    read_central,
)
from pparse.parsers.zip.trust import TAIL_READ, find_directory, find_record, match_front, match_tail, match_zip
from pparse.tree.context import DONE
from pparse.tree.parser import Confidence, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, ClassVar, Final

    from pparse.containers.content import ContentSink, Skip
    from pparse.data.base import Data, Range
    from pparse.parsers.zip.scan import Scanner, ScanStep
    from pparse.parsers.zip.trust import Directory
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Member, Visit


# Zeros that fill up the last block of a tar, which a member may end with whose size was mended.
_BLOCK: Final = 512
# Bytes at the end of a far archive that are read at once.
_TAIL: Final = 256 * KIB
# At how many members a listing looks for one whose size may be a wrong one.
_MOST_LOOKS: Final = 16
# Of how many members the size is remembered that only reading them showed.
_MOST_SIZES: Final = 4096
# The code page of a Japanese Windows, the only one that is guessed, and at how many entries a guess looks.
_JAPANESE: Final = "cp932"
_MOST_GUESSED: Final = 65_536
# Entries added at a time, if their members are asked for.
_GROUP: Final = 64
# Codes of what may be wrong with an entry of the directory, and not with the member.
_SAID_WRONG: Final = ("encrypted", "unsupported", "contradiction")


class ZipParser(ArchiveParser):
    """A zip archive, also one that is truncated, damaged, or without a directory."""

    name = "zip"
    description = "zip archive"
    extensions: ClassVar[tuple[str, ...]] = (".zip", ".jar", ".whl")
    signatures = (
        *signatures(b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"PK\x03"),
        *signatures(b"K\x03\x04", at=1),
        *signatures(b"MZ", b"#!", b"\x7fELF"),  # programs that unpack what is behind them
    )
    is_generic = True
    named_is_enough = False
    media_type = "application/zip"
    options: ClassVar[dict[str, str]] = {
        "encoding": "of names that are not flagged as UTF-8: cp932, gbk, cp1251 ...; default: UTF-8, cp932 or cp437"
    }
    root_at = "back"
    references: ClassVar[tuple[str, ...]] = ("PKWARE APPNOTE.TXT 6.3.10", "Info-ZIP extrafld.txt")
    limitations: ClassVar[tuple[str, ...]] = (
        "encrypted members, deflate64 and other rare methods are listed, not read",
        "of a split archive without all of its parts beside it, only the members in those that are there are read",
        "DOS times have no time zone and are taken as UTC",
        "only the directory distinguishes symbolic links from files",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self._start = result.extraction.start
        self._shown = False  # whether findings on the whole archive were added
        self._ahead: Window | None = None  # of a check that is going on
        self._given = check_encoding(str(result.extraction.session.options.get("encoding", "")))
        self._looks = _MOST_LOOKS  # at how many members it is to be seen yet whether their sizes may be wrong ones
        self._sizes: dict[int, int] = {}  # of such members that were read, by the offset of their entry
        self._guessed = False  # whether it was told that the encoding of names is guessed

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """CERTAIN by a plausible local header or an empty directory at the front."""
        return match_front(excerpt.head(4 * KIB))

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY by a directory after other data, or a first header with a damaged signature.

        Reads only the head and the last 64 KiB, and a little of a directory found by them.
        """
        return match_zip(reader.data, reader.start, reader.start + (reader.size or 0))

    @classmethod
    def match_further(cls, reader: Range, *, thorough: bool) -> Confidence:
        """LIKELY by a directory at the very end of data of unknown type."""
        data, start = reader.data, reader.start
        if data.size is None:
            return Confidence.NO
        end = start + (reader.size or 0)
        return match_tail(data, start, end, TAIL_READ if thorough else _BLOCK + END_SIZE, at_end=True)

    @classmethod
    def search(cls, reader: Range, poll: Callable[[], object]) -> int | None:
        """Return the offset of the first possible local header or directory entry."""
        return find_record(reader.data, reader.start, reader.start + (reader.size or 0), poll)

    # -- how it is read ----------------------------------------------------------------------------------------------

    @cached_property
    def directory(self) -> Directory | None:
        """The directory, if it accounts for the archive. Raise `LimitError` if overlaps exceed the budget."""
        extraction = self.extraction
        data, end = extraction.data, extraction.find_end()
        if data.distance is Distance.FAR:  # end record and directory in one request, of some 2,000 members
            low = max(self._start, end - _TAIL)
            data.prefetch([(low, end - low)])
        parts = [part.size for part in extraction.file_parts]
        return find_directory(data, self._start, end, extraction.session.budget, parts)

    @cached_property
    def scanner(self) -> Scanner:
        """Reads the archive without trusting its directory."""
        from pparse.parsers.zip.scan import Scanner  # what goes on without a directory is imported where it must

        extraction = self.extraction
        loose = (max(gap.offset, self._start) for gap in extraction.data.gaps if gap.length is None)
        return Scanner(extraction.data, self._start, min([extraction.find_end(), *loose]), extraction.session)

    def begin(self, ctx: NodeContext) -> tuple[int, Any, int]:
        """Begin at the first entry of the directory, or at the front."""
        directory = self.directory
        return (self._start if directory is None else directory.begin), self.expect_member, 0

    def expect_member(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Add the members of the next directory entries, or of the records at the position."""
        directory = self.directory
        return self._add_scanned(ctx) if directory is None else self._list(ctx, directory, block, base)

    def _add_scanned(self, ctx: NodeContext) -> Step:
        from pparse.parsers.zip.scan import add_scanned

        return add_scanned(self, ctx)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, Any, int] | None:
        """Continue after a gap in the data."""
        if self.directory is not None:
            return None
        pos, state, need = self._add_scanned(ctx)
        return (pos, state, need) if pos > ctx.pos else (ctx.pos + 1, DONE, 0)

    # -- by the directory --------------------------------------------------------------------------------------------

    def _list(self, ctx: NodeContext, directory: Directory, block: bytes, base: int) -> Step:
        """Add some directory entries: their offsets, and their members if asked for."""
        if ctx.collected is None:
            self._note_archive(directory)
        asked = ctx.collected is not None or ctx.wanted_occurrence
        most = _GROUP if asked or ctx.wanted_count is not None else BLOCK
        places = array("q")
        pos, need = ctx.pos, 0
        while pos < directory.end and most:
            at = pos - base
            need = min(CENTRAL_SIZE, directory.end - pos)
            if len(block) - at >= CENTRAL_SIZE:
                need = central_length(block, at)
            if len(block) - at < need:
                break
            if asked:
                entry = read_central(block, at)
                if entry is None:
                    raise MalformedError("no directory entry is at this offset", offset=pos, source=ctx.data.name)
                ctx.emit(self.entry_of(self.listed(entry, pos, directory)))
            else:
                places.append(pos)
            pos, need, most = pos + need, 0, most - 1
        if places:
            ctx.index.add_many(places)
            ctx.emitted += len(places)
            ctx.result.extraction.session.limits.check("entries", ctx.index.count, "the number of members")
        return pos, DONE if pos >= directory.end else self.expect_member, need

    def listed(self, entry: CentralEntry, at: int, directory: Directory) -> ArchiveMember:
        """Return the member that an entry of a trusted directory describes."""
        encoding = self._encoding_of(entry.raw_name, entry.flags)
        member = listed_member(self.extraction, entry, at, directory, encoding)
        if member.finding is not None and member.finding.code in _SAID_WRONG:
            header = self._fitting_header(member, entry.crc)
            if header is not None:
                entry = copy(entry)
                entry.flags, entry.method = header.flags, header.method
                entry.compressed_size, entry.size = header.compressed_size or 0, header.size or 0
                member = listed_member(self.extraction, entry, at, directory, encoding)
        return self._known(member)

    def _fitting_header(self, member: ArchiveMember, crc: int) -> LocalHeader | None:
        """Return the local header of a listed member if it fits the file, and the directory says something else.

        It has the name and the CRC of the directory, and what follows the bytes that it tells of is a record.
        """
        header, note = local_at(self.extraction.data, member.start, self.extraction.find_end()), member.extra
        if header is None or header.raw_name != member.raw_name or header.crc != crc:
            return None
        packed, size = header.compressed_size or 0, header.size or 0
        odd = (not crc and size) or header.flags & (ENCRYPTED | MASKED | STREAMED) or header.method not in READABLE
        said = note.flags & (ENCRYPTED | MASKED), note.method, member.compressed_size, member.size
        if odd or said == (0, header.method, packed, size) or (header.method == STORED and packed != size):
            return None
        if not self.scanner.is_boundary(member.start + header.length + packed):
            return None
        reason = "the directory has another method or size than its local header, which fits the file"
        self._note_member(member, "contradiction", reason, severity=Severity.ERROR)
        return header

    def scanned(self, found: ScanStep) -> ArchiveMember:
        """Return the member that was found by scanning."""
        from pparse.parsers.zip.scan import scanned_member

        assert found.header is not None  # noqa: S101 -- it is a member
        encoding = self._encoding_of(found.header.raw_name, found.header.flags)
        return self._known(scanned_member(self.extraction, found, encoding))

    def _encoding_of(self, raw: bytes, flags: int) -> str:
        """Return the encoding of a name: the one that was given, or what all such names in the directory can only be
        (without a directory, this one); empty if that is not known."""
        if self._given or not needs_guess(raw, flags):
            return self._given
        return self._guess if self.directory is not None else _JAPANESE if is_japanese([raw]) else ""

    @cached_property
    def _guess(self) -> str:
        """In which encoding all names are that nothing is said of, if they are in one; else empty."""
        names = (entry.raw_name for _, entry in islice(self._entries(), _MOST_GUESSED))
        return _JAPANESE if is_japanese(raw for raw in names if needs_guess(raw, 0)) else ""

    def _entries(self) -> Iterator[tuple[int, CentralEntry]]:
        """Yield the entries of a trusted directory, and where they are."""
        if (directory := self.directory) is not None:
            yield from entries(Window(self.extraction.data, directory.end), directory.begin, directory.end)

    def look_at_names(self) -> None:
        """Add the note on names in a guessed encoding, if any in the directory is."""
        odd = (at for at, entry in self._entries() if needs_guess(entry.raw_name, entry.flags))
        if not self._given and (at := next(odd, None)) is not None:
            self.listed_member(at)

    def _known(self, member: ArchiveMember) -> ArchiveMember:
        """Return ``member`` with the size that reading showed; add a finding, once, if its name is only guessed."""
        if member.at in self._sizes:
            member.size, member.extra.wraps = self._sizes[member.at], False
        raw = member.raw_name
        japanese = not self._given and needs_guess(raw, 0) and member.name == raw.decode(_JAPANESE, "replace")
        if (japanese or member.extra.guessed) and not self._guessed:
            self._guessed = True
            read = "cp932 (Japanese), which all such names here can be" if japanese else "code page 437"
            reason = f"its name is not UTF-8, and read as {read}; if it looks wrong, {spoken('-O encoding=NAME')} "
            others = f"{'cp437' if japanese else 'cp932'}, gbk, euc-kr, cp1251 ..."
            reason += f"reads such names in another encoding: {others}"
            self._note_member(member, "encoding", reason, severity=Severity.NOTE)
        return member

    def listed_member(self, at: int) -> ArchiveMember | None:
        """Return the member whose directory entry is at ``at``."""
        directory = self.directory
        entry = entry_at(self.extraction.data, at, directory.end) if directory is not None else None
        return None if entry is None or directory is None else self.listed(entry, at, directory)

    def _note_archive(self, directory: Directory) -> None:
        """Add findings on an archive with a sound directory, once."""
        if self._shown:
            return
        self._shown = True
        start, end = self._start, self.extraction.find_end()
        marked = directory.first - start == 4 and self.extraction.data.known(start, 4) in (*SPLIT_MARKS, b"")
        if directory.first > start and not marked:
            from pparse.parsers.zip.scan import STALE

            reason = STALE if directory.stale else "other bytes precede the archive"
            code = "stale" if directory.stale else "prefix"
            self.note(code, reason, start, directory.first - start, severity=Severity.NOTE)
        if directory.declared not in (directory.count, directory.count & 0xFFFF):
            reason = "the end record gives a different number of entries"
            self.note("count", reason, directory.end, wanted=directory.declared, got=directory.count)
        if not directory.fits:
            reason = "the end record gives another size of the directory: other readers do not find it"
            self.note("contradiction", reason, directory.end, severity=Severity.ERROR)
        if directory.finish < end:
            rest = end - directory.finish
            zeros = rest <= BLOCK and not self.extraction.data.known(directory.finish, rest).strip(b"\0")
            reason = "zeros follow the archive" if zeros else "other bytes follow the archive"
            severity = trailing_severity("archive", zeros=zeros)
            self.note("trailing", reason, directory.finish, rest, severity=severity)
        elif directory.finish > end:
            self.note("truncated", "the archive's comment is cut", end, wanted=directory.finish - end, got=0)

    def note(self, code: str, reason: str, offset: int | None, length: int | None = None, **more: Any) -> Finding:
        """Add a finding on the archive: a warning, if ``more`` does not say otherwise."""
        more.setdefault("severity", Severity.WARNING)
        return super().note(code, reason, offset, length, **more)

    def needs_proof(self, member: ArchiveMember) -> bool:
        """Say whether only the CRC can prove ``member`` right: its bytes, or bytes before them, are suspect."""
        note, directory = member.extra, self.directory
        if not isinstance(note, ZipNote) or member.checksum is None or not member.is_complete:
            return False
        lost = note.broken
        if note.listed and directory is not None and directory.torn:
            lost = local_at(self.extraction.data, member.start, self.extraction.find_end()) is None
        return lost or super().needs_proof(member)

    def members(self) -> Iterator[Member]:
        """Yield the rows of `pparse ls`; with a trusted directory, without making nodes."""
        directory = self.directory
        odd = directory is None or directory.has_overlaps or directory.torn or directory.places is not None
        if directory is None or odd or self.spoilt or self.extraction.data.flawed:
            return self._rows()
        self.result.check_open()
        self._note_archive(directory)
        return listing(self, directory)

    def _rows(self) -> Iterator[Member]:
        for row in super().members():
            self.note_size(row.note)
            yield row

    def note_size(self, member: ArchiveMember) -> None:
        """Add a finding, once, if the size of a member that is listed may be a wrong one."""
        note = member.extra
        if isinstance(note, ZipNote) and note.wraps and self._looks and member.size is not None:
            self._looks -= 1
            if likely_size(self.extraction.data, member) != member.size:
                self._looks = 0
                size = f"{member.size:,} bytes, by a multiple of 4 GiB"
                reason = (
                    f"it may hold more than {size}: macOS wrote the archive without zip64; 'pparse check' finds out"
                )
                self._note_member(member, "modulo", reason, severity=Severity.NOTE)

    # -- what a member holds -----------------------------------------------------------------------------------------

    def content(self, member: ArchiveMember) -> tuple[Data, int, int | None]:
        """Return data, start and end of the content of ``member``. Raise `UnsupportedError`, `MalformedError`."""
        note: ZipNote | None = member.extra
        data = self.extraction.data
        if note is None:
            return data, member.start, member.end
        if member.finding is not None and member.status is Status.UNSUPPORTED:
            raise UnsupportedError(member.finding.reason, path=member.name, offset=member.start)
        if member.finding is not None and member.finding.code == "overlap":
            header = local_at(data, member.start, self.extraction.find_end())
            if header is not None:  # else its offset is wrong, and no byte may belong to two members
                raise MalformedError(member.finding.reason, path=member.name, offset=member.start)
        start, end = self._find_bytes(member) if note.listed else (member.start, member.end)
        if note.listed and note.method != STORED and note.listed_crc is not None:
            header = self._fitting_header(member, note.listed_crc)
            if header is not None:  # which of the sizes is right, the content tells
                end = start + (header.compressed_size or 0)
                note.sure = False
                if header.method == STORED and header.size == member.size:  # nobody keeps what became no smaller
                    note.method = STORED
        beyond = end > self.extraction.find_end()  # it was cut, by its size
        if member.pieces is not None:
            from pparse.data.spliced import SplicedData

            data = SplicedData(member.pieces, f"{self.extraction.name}::{member.name}")
            start, end = 0, data.size or 0
        if note.method == STORED:
            return data, start, end
        if member.pieces is None:
            end = max(start, min(end, self.extraction.find_end()))
        source = data.range(start, end)
        suspect = beyond or member.pieces is not None or self.is_suspect(member)
        bounded = not beyond and not member.is_truncated
        return self._inflated(member, note, source, suspect=suspect, bounded=bounded), 0, None

    def _find_bytes(self, member: ArchiveMember) -> tuple[int, int]:
        """Return begin and end of the bytes of a listed member, by its local header. Raise `MalformedError`."""
        pos = member.start
        data, end = self.extraction.data, self.extraction.find_end()
        header = local_at(data, pos, end)
        odd = header is not None and (header.raw_name != member.raw_name or not is_extra(header.extra))
        mended = self.scanner.mended(pos, header) if header is not None and odd else None
        if header is None or mended is not None:
            header = mended or local_at(data, pos, end, broken=True)
            if header is None or header.raw_name != member.raw_name:
                pos, header = self.scanner.lost_header(pos, member.raw_name)
            gap = data.next_gap(member.start) if data.gaps else None
            lost = gap is not None and gap.offset < member.start + LOCAL_SIZE + len(member.raw_name)
            reason = f"its local header is {'missing' if lost else 'damaged'}"
            if header is None:
                reason += ", so the start of its bytes is not known"
                raise MalformedError(reason, path=member.name, offset=pos, source=self.extraction.name)
            reason += "; its data come from the directory"
            self._note_member(member, "local-header", reason, severity=Severity.ERROR)
        return pos + header.length, pos + header.length + member.compressed_size

    def _inflated(self, member: ArchiveMember, note: ZipNote, source: Range, *, suspect: bool, bounded: bool) -> Data:
        from pparse.compressed.resumed import ResumedData

        session = self.extraction.session
        size = member.size if note.sure else None
        if note.wraps and size is not None:
            size = likely_size(self.extraction.data, member)
        if note.method == LZMA:
            source = lzma_source(source, note.flags, size, member.name)
        return ResumedData(
            source,
            CODEC_OF_METHOD[note.method],
            size=size,
            budget=session.budget,
            limits=session.limits,
            scratch=session.spools,
            concatenated=CODEC_OF_METHOD[note.method] == "zstd",
            name=f"{self.extraction.name}::{member.name}",
            stats=session.stats,
            tail_is_error=note.method != LZMA,
            poll=session.check_cancelled,
            suspect=suspect,
            checksum=member.checksum,
            bounded=bounded,
        )

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Read every member."""
        with self.reading_ahead():
            yield from super().check(strict=strict)

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Until the end of a pass over all members, read small ones that follow each other in one block."""
        self._ahead = Window(self.extraction.data, self.extraction.find_end(), ahead=AHEAD)
        try:
            yield
        finally:
            self._ahead = None

    def examine(self, member: ArchiveMember, sink: ContentSink | None, skip: Skip | None) -> Verdict:
        """Read all of the content, and compare the local header with the directory.

        If they contradict each other about sizes, the one that the content agrees with is right. If they have different
        checksums, the content agrees with at most one: it is not verified, and it is damaged unless that is the one in
        the directory.
        """
        note: ZipNote | None = member.extra
        if note is None:
            return super().examine(member, sink, skip)
        if note.wraps and member.size is not None:
            return self._examine_unsure(member, sink, skip)
        if note.declared not in (member.kind, "file"):
            said = "socket" if note.declared == "other" else note.declared
            reason = f"its mode or name says {said}, but it has content: read as a file"
            self._note_member(member, "kind", reason, severity=Severity.NOTE)
        if note.listed and (verdict := self._verify_small(member, note, sink)) is not None:
            return verdict
        rival, named = note.rival, True
        if note.listed and (member.finding is None or member.finding.code not in ("overlap", "gap", "malformed")):
            header = local_at(self.extraction.data, member.start, self.extraction.find_end())
            named = header is None or self._is_named_alike(member, header)
            if header is not None and not self._agrees(member, header):
                # By the directory, which says by itself that it is wrong, or by what its values make of the content,
                # torch opens no such file, Python's zipfile no such member.
                better = self._better(member)
                is_odd = better is not member or (note.method == STORED and member.size != member.compressed_size)
                severity = Severity.ERROR if is_odd else Severity.WARNING
                reason = "its local header has a different size, method or CRC"
                self._note_member(member, "contradiction", reason, severity=severity)
                rival = self._local_crc(member, header)
                member = better
        verdict = super().examine(member, sink, skip)
        if verdict.verified and member.checksum is not None:
            self._compare_checksums(verdict, member, member.checksum[1], note.listed_crc, rival)
        if not named:
            verdict.verified = verdict.verified and None
            verdict.worsen(Status.DAMAGED, UNSURE_NAME, "its local header has a different name: one of them is wrong")
            verdict.suspect = ((0, verdict.size),)
        return verdict

    def _examine_unsure(self, member: ArchiveMember, sink: ContentSink | None, skip: Skip | None) -> Verdict:
        """Read all of the content of a member whose size is known modulo 2^32; then it is known."""
        said, member.size = member.size or 0, None
        self._opened.pop(member.at, None)  # it may be taken for smaller than it is
        try:
            verdict = self.examine(member, sink, skip)
        finally:
            member.size = said
        if verdict.verified and (verdict.size - said) % records.WRAP:
            reason = f"it holds {verdict.size:,} bytes; the directory says {said:,}, or a multiple of 4 GiB more"
            self._note_member(member, "contradiction", reason)
        if verdict.verified and len(self._sizes) < _MOST_SIZES:
            self._sizes[member.at] = member.size = verdict.size
            member.extra.wraps = False
        return verdict

    def _verify_small(self, member: ArchiveMember, note: ZipNote, sink: ContentSink | None) -> Verdict | None:
        """Return the verdict on a small member of which nothing is wrong; None if it must be read as any other."""
        data, session = self.extraction.data, self.extraction.session
        if member.at in self._opened or data.flawed:
            return None
        session.check_cancelled()
        if (found := verified_content(self._ahead or data, member, note, session.limits)) is None:
            return None
        if sink is not None and found[1]:
            sink(0, found[1], [])
        verdict = Verdict()
        verdict.verified, verdict.size = True, len(found[1])
        if note.method == STORED:
            verdict.source = data, found[0]
        return verdict

    def _compare_checksums(
        self, verdict: Verdict, member: ArchiveMember, crc: int, listed: int | None, rival: int | None
    ) -> None:
        """Withdraw that content with ``crc`` is verified, if the archive has another CRC for it anywhere."""
        if listed not in (None, crc):
            verdict.verified = False
            reason = f"its CRC-32 is {crc:08x}, as its local header says; the directory says {listed:08x}"
            verdict.worsen(Status.DAMAGED, "checksum", reason)
        elif rival not in (None, crc):
            verdict.verified = None
            reason = f"its CRC-32 is {crc:08x}; its local header or descriptor has {rival:08x}"
            self._note_member(member, "checksum", reason)

    # Whether the readers of the format refuse a member that its local header and the directory call differently.
    goes_by_both_names = True

    def _is_named_alike(self, member: ArchiveMember, header: LocalHeader) -> bool:
        """Say whether a listed member has the same name in its local header, in another spelling perhaps.

        A name of another length was put there by a writer that goes by the directory: then that one counts.
        """
        raw, flags = header.raw_name, header.flags
        if raw == member.raw_name:
            return True
        shown, _ = decode_name(raw, flags, header.extra, self._encoding_of(raw, flags))
        self._note_member(member, "name", f"its local header has a different name: {shown[:200]}")
        alike = shown.replace("\\", "/") == member.name.replace("\\", "/")
        return alike or len(raw) != len(member.raw_name) or not self.goes_by_both_names

    def _agrees(self, member: ArchiveMember, header: LocalHeader) -> bool:
        """Say whether the local header (and the descriptor) of a listed member agree with the directory."""
        return agrees(member, header, lambda: self._behind(member, header))

    def _behind(self, member: ArchiveMember, header: LocalHeader) -> bytes:
        """Return what stands behind the bytes of a listed member: its descriptor, if it has one."""
        at = member.start + header.length + member.compressed_size
        return self.extraction.data.known(at, 24)

    def _local_crc(self, member: ArchiveMember, header: LocalHeader) -> int | None:
        """Return the CRC-32 in the local header of a listed member, or in its descriptor; None if there is none."""
        if header.flags & STREAMED:
            return descriptor_crc(self._behind(member, header), member.compressed_size, member.size)
        return header.crc if header.crc or header.compressed_size or header.size else None

    def _better(self, member: ArchiveMember) -> ArchiveMember:
        """Return ``member`` with the values of its local header, if only these are right."""
        if super().examine(member, None, None).verified:
            return member
        found = self.scanner.alone(member.start)
        if found is None:
            return member
        other = self.scanned(found)
        return other if super().examine(other, None, None).verified else member

    def _note_member(self, member: ArchiveMember, code: str, reason: str, **more: Any) -> None:
        self.note(code, reason, member.start, path=member.name, **more)

    @property
    def leaves_unclaimed(self) -> bool:
        """Without a directory, nobody knows whose the bytes between members are."""
        return self.directory is None

    def unclaimed(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield what lies outside of the members, and is not of a directory."""
        from pparse.parsers.zip.scan import unclaimed

        return unclaimed(self.extraction.data, self._start, self.extraction.find_end(), spans)

    def holds(self) -> str | None:
        """Return the kind of model that the members form, if any."""
        from pparse.document.appearance import MOST_NAMES, held_model

        most = MOST_NAMES if self.directory is not None else 64  # more would mean searching the archive
        return held_model(member.name for member in islice(self.members(), most))

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        held, directory = self.holds(), self.directory
        if held is not None:
            yield "holds", f"{held}, whose tensors this version does not read yet"
        told = f"{count_words(directory.count, 'entry')} at {directory.begin:,}" if directory is not None else ""
        yield "directory", told or "missing or not trusted"
