"""Members of a zip archive, made of what its directory or its local headers say, with what is wrong with them."""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember
from pparse.findings import Finding, Severity, Status
from pparse.parsers.zip.directory import cut_header
from pparse.parsers.zip.note import READABLE, ZipNote
from pparse.parsers.zip.records import (
    DEFLATE,
    ENCRYPTED,
    LOCAL_SIZE,
    MASKED,
    STORED,
    CentralEntry,
    LocalHeader,
    declared_kind,
    decode_name,
    describe_encryption,
    kind_of,
    method_name,
    mode_of,
    modified,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.zip.claims import MemberExtent
    from pparse.parsers.zip.directory import Directory
    from pparse.parsers.zip.scan import ScanStep

# The most bytes that one compressed byte can decode to.
_MOST_INFLATED: Final = {DEFLATE: 1_100}
_MOST_RATIO: Final = 1 << 15


class MemberMaker:
    """Makes the members of an archive, which is the extraction's data."""

    __slots__ = ("_extraction",)

    def __init__(self, extraction: Extraction) -> None:
        self._extraction = extraction

    def listed(self, entry: CentralEntry, at: int, directory: Directory) -> ArchiveMember:
        """Return the member that an entry of a trusted directory says."""
        start = entry.offset + directory.shift
        end = start + LOCAL_SIZE + len(entry.raw_name) + entry.compressed_size
        name = decode_name(entry.raw_name, entry.flags, entry.extra)
        declared = declared_kind(name, entry.creator, entry.external)
        member = ArchiveMember(
            name,
            entry.raw_name,
            kind_of(declared, entry.compressed_size and entry.size),
            at,
            start,
            end,
            entry.size,
            compressed_size=entry.compressed_size,
            mtime=modified(entry.date, entry.time, entry.extra),
            mode=mode_of(entry.creator, entry.external),
            method=method_name(entry.method, entry.flags),
            checksum=("crc32", entry.crc),
            extra=ZipNote(
                entry.flags,
                entry.method,
                declared,
                listed=True,
                listed_crc=entry.crc,
            ),
        )
        if directory.has_overlaps and directory.overlaps(at):
            self._blame(member, Status.DAMAGED, "overlap", "its bytes belong to an earlier member")
        elif start >= directory.begin:
            self._blame(member, Status.DAMAGED, "malformed", "its offset points past the last member")
        elif not self._refuse(member, entry.extra) and not self._check_size(member):
            gap = self._extraction.data.next_gap(start) if self._extraction.data.gaps else None
            if gap is not None and gap.offset < end:
                self._blame(member, Status.DAMAGED, "gap", "some of its bytes are missing")
        return member

    def gap(self, found: ScanStep) -> ArchiveMember:
        """Return what stands for bytes that no member can be told from."""
        data = self._extraction.data
        member = ArchiveMember("", b"", "gap", found.at, found.at, found.next, found.next - found.at)
        if cut_header(data, found.at, found.next):
            self._blame(member, Status.TRUNCATED, "truncated", "the archive ends in a local header")
        else:
            self._blame(member, Status.DAMAGED, "gap", "these bytes belong to no known member")
        return member

    def scanned(self, found: ScanStep) -> ArchiveMember:
        """Return the member that was found by scanning."""
        header, entry, extent = found.header, found.entry, found.extent
        assert header is not None  # noqa: S101 -- it is a member
        assert extent is not None  # noqa: S101
        name = decode_name(header.raw_name, header.flags, entry.extra if entry is not None else header.extra)
        creator, external = (entry.creator, entry.external) if entry is not None else (0, 0)
        declared = declared_kind(name, creator, external)
        times = header if entry is None else entry
        sure = extent.code != "contradiction"
        member = ArchiveMember(
            name,
            header.raw_name,
            kind_of(declared, extent.content),
            found.at,
            extent.start,
            extent.end,
            extent.size,
            compressed_size=extent.compressed_size,
            mtime=modified(times.date, times.time, times.extra),
            mode=mode_of(creator, external),
            method=method_name(header.method, header.flags),
            checksum=None if extent.crc is None else ("crc32", extent.crc),
            extra=ZipNote(
                header.flags,
                header.method,
                declared,
                listed=False,
                sure=sure,
                listed_crc=None if entry is None else entry.crc,
                rival=extent.rival,
                broken=any(code == "local-header" for code, *_ in found.notes),
            ),
        )
        if extent.missing is not None:
            member.pieces = self._pieces(extent)
        if not self._refuse(member, header.extra):
            self._check_size(member)
            self._judge(member, header, extent)
        return member

    def _judge(self, member: ArchiveMember, header: LocalHeader, extent: MemberExtent) -> None:
        data = self._extraction.data
        gap = data.next_gap(extent.start) if data.gaps else None
        if extent.cut:
            self._blame(member, Status.TRUNCATED, extent.code, extent.reason)
        elif extent.code == "contradiction":
            self._blame(member, Status.COMPLETE, extent.code, extent.reason)
        elif extent.code:
            self._blame(member, Status.DAMAGED, extent.code, extent.reason)
        elif gap is not None and gap.offset < extent.end:
            self._blame(member, Status.DAMAGED, "gap", "some of its bytes are missing")
        elif not header.whole:
            self._blame(member, Status.DAMAGED, "name", "part of its name is lost")

    def _pieces(self, extent: MemberExtent) -> tuple[Range, ...]:
        """Return the stored bytes of a member that lost ``extent.missing`` bytes."""
        from pparse.data.spliced import MissingData

        data, missing = self._extraction.data, extent.missing or 0
        head, tail = extent.gap_start - extent.start, max(0, extent.end - extent.gap_end)
        head = min(head, max(0, extent.compressed_size - tail))  # damage may have inserted bytes, too
        pieces = [data.range(extent.start, extent.start + head)]
        if missing:
            pieces.append(MissingData(missing).range(0, missing))
        if tail:
            pieces.append(data.range(extent.gap_end, extent.end))
        return tuple(pieces)

    def _refuse(self, member: ArchiveMember, extra: bytes) -> bool:
        """Say whether the member cannot be read, and add the reason."""
        note: ZipNote = member.extra
        if note.flags & (ENCRYPTED | MASKED):
            member.checksum = None
            self._blame(member, Status.UNSUPPORTED, "encrypted", f"it is {describe_encryption(note.method, extra)}")
        elif note.method not in READABLE:
            self._blame(member, Status.UNSUPPORTED, "unsupported", f"its method, {member.method}, is not supported")
        else:
            return False
        return True

    def _check_size(self, member: ArchiveMember) -> bool:
        """Say whether the declared size is impossible; the size then becomes unknown."""
        method = member.extra.method
        most = _MOST_INFLATED.get(method, _MOST_RATIO) * (member.compressed_size + 64)
        if method == STORED or member.size is None or member.size <= most:
            return False
        self._blame(
            member,
            Status.COMPLETE,
            "contradiction",
            f"its compressed bytes are too few for {member.size:,} bytes of content",
        )
        member.size = None
        return True

    def _blame(self, member: ArchiveMember, status: Status, code: str, reason: str) -> None:
        member.status = status
        member.finding = Finding(
            code,
            reason,
            path=member.name,
            source=self._extraction.name,
            offset=member.start,
            length=member.compressed_size,
            severity=Severity.WARNING if status is Status.COMPLETE else Severity.ERROR,
        )
