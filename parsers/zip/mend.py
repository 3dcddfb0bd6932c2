"""Goes on where the directory of a zip archive is missing or not trusted: members are what `Scanner` finds.

`ZipParser.expect_member` and `ZipParser.resync` call `add_scanned` then.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember
from pparse.data.range_status import cut_status
from pparse.findings import Finding, Severity, Status
from pparse.limits import KIB
from pparse.parsers.zip.attributes import declared_kind, decode_name, kind_of, method_name, mode_of, modified
from pparse.parsers.zip.directory import CENTRAL, DESCRIPTOR, END, END64, END_SIZE, LocalHeader, cut_header
from pparse.parsers.zip.members import ZipNote, blame, has_wrong_size, is_refused, may_wrap
from pparse.parsers.zip.walk import why_scanned
from pparse.tree.context import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.reader import Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.zip.parser import ZipParser
    from pparse.parsers.zip.scan import MemberExtent, ScanStep
    from pparse.tree.context import NodeContext

# Members added at a time, as long as they are near each other.
_GROUP: Final = 64
_NEAR: Final = 256 * KIB
_SEVERITIES: Final = {"local-header": Severity.ERROR, "prefix": Severity.NOTE, "stale": Severity.NOTE}
_NO_ZIP: Final = "it is no zip: there is neither a member nor a directory"
# The least number of bytes that are worth a file of their own.
_LEAST: Final = 32
_HEAD: Final = 64 * KIB
# Directory and descriptor bytes belong to no member.
_RECORDS: Final = (CENTRAL, END, END64, DESCRIPTOR)


def add_scanned(parser: ZipParser, ctx: NodeContext) -> tuple[int, Any, int]:
    """Add the member at the position, and more if they are near: one at a time is slow."""
    begin = pos = ctx.pos
    for _ in range(_GROUP):
        found = parser.scanner.step(pos)
        pos = max(found.next, pos)
        for code, offset, length, reason in found.notes:
            if ctx.collected is None or code == "local-header":
                parser.note(code, reason, offset, length, severity=_SEVERITIES.get(code, Severity.WARNING))
        if found.kind == "end":
            if ctx.collected is None:
                _close(parser, ctx, whole=found.closed)
            return pos, DONE, 0
        is_gap = found.kind == "gap"
        member = _gap(parser.extraction, found) if is_gap else parser.scanned(found)
        ctx.emit(parser.entry_of(member))
        if pos - begin > _NEAR or ctx.answer is not None or (ctx.collected is not None and ctx.satisfied):
            break
    return pos, parser.expect_member, 0


def _close(parser: ZipParser, ctx: NodeContext, *, whole: bool) -> None:
    """Add a finding on why the directory is not trusted."""
    scanner, source = parser.scanner, parser.extraction.name
    start, end = scanner.start, scanner.end
    if end == start:
        finding = Finding("empty", "the archive is empty", source=source, offset=end)
        parser.result.close_node(ctx.node, Status.TRUNCATED, finding)
        return
    first = scanner.step(start)
    if first.kind == "gap" and first.next >= end and scanner.read(start, 2)[0] != b"PK":
        parser.result.close_node(ctx.node, Status.DAMAGED, Finding("magic", _NO_ZIP, source=source, offset=start))
        return
    code, reason = why_scanned(parser.extraction.data, start, end, whole=whole)
    reason = f"{reason}; its members were found by their local headers"
    worse = whole or ctx.node.known_status is Status.DAMAGED
    finding = Finding(code, reason, source=source, offset=end)
    parser.result.close_node(ctx.node, cut_status(damaged=worse), finding)


# -- members ---------------------------------------------------------------------------------------------------------


def _gap(extraction: Extraction, found: ScanStep) -> ArchiveMember:
    """Return what stands for bytes that no member can be told from."""
    data, source = extraction.data, extraction.name
    member = ArchiveMember("", b"", "gap", found.at, found.at, found.next, found.next - found.at)
    if cut_header(data, found.at, found.next):
        blame(member, source, Status.TRUNCATED, "truncated", "the archive ends in a local header")
    else:
        blame(member, source, Status.DAMAGED, "gap", "these bytes belong to no known member")
    return member


def scanned_member(extraction: Extraction, found: ScanStep, encoding: str) -> ArchiveMember:
    """Return the member that was found by scanning; its name may be in ``encoding``."""
    header, entry, extent = found.header, found.entry, found.extent
    assert header is not None  # noqa: S101 -- it is a member
    assert extent is not None  # noqa: S101
    extra = entry.extra if entry is not None else header.extra
    name, guessed = decode_name(header.raw_name, header.flags, extra, encoding)
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
            guessed=guessed,
            wraps=entry is not None and may_wrap(entry, extent.compressed_size),
        ),
    )
    if extent.missing is not None:
        member.pieces = _pieces(extraction.data, extent)
    if not is_refused(member, extraction.name, header.extra):
        has_wrong_size(member, extraction.name)
        _judge(extraction, member, header, extent)
    return member


def _judge(extraction: Extraction, member: ArchiveMember, header: LocalHeader, extent: MemberExtent) -> None:
    data, source = extraction.data, extraction.name
    gap = data.next_gap(extent.start) if data.gaps else None
    if extent.cut:
        blame(member, source, Status.TRUNCATED, extent.code, extent.reason)
    elif extent.code == "contradiction":
        blame(member, source, Status.COMPLETE, extent.code, extent.reason)
    elif extent.code:
        blame(member, source, Status.DAMAGED, extent.code, extent.reason)
    elif gap is not None and gap.offset < extent.end:
        blame(member, source, Status.DAMAGED, "gap", "some of its bytes are missing")
    elif not header.whole:
        blame(member, source, Status.DAMAGED, "name", "part of its name is lost")


def _pieces(data: Data, extent: MemberExtent) -> tuple[Range, ...]:
    """Return the stored bytes of a member that lost ``extent.missing`` bytes."""
    from pparse.data.spliced import MissingData

    missing = extent.missing or 0
    head, tail = extent.gap_start - extent.start, max(0, extent.end - extent.gap_end)
    head = min(head, max(0, extent.compressed_size - tail))  # damage may have inserted bytes, too
    pieces = [data.range(extent.start, extent.start + head)]
    if missing:
        pieces.append(MissingData(missing).range(0, missing))
    if tail:
        pieces.append(data.range(extent.gap_end, extent.end))
    return tuple(pieces)


# -- bytes of no member ----------------------------------------------------------------------------------------------


def unclaimed(data: Data, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ``data[start:end]`` that lie outside of the members at ``spans`` and are not records."""
    at = start
    for begin, stop in (*spans, (end, end)):
        if begin - at >= _LEAST:
            head = data.read_known(at, min(begin - at, _HEAD))[0]
            mark = head.find(END) if head.startswith((CENTRAL, END)) else -1
            if mark >= 0 and begin - at - mark > END_SIZE + _LEAST:
                at += mark + END_SIZE + int.from_bytes(head[mark + 20 : mark + 22], "little")
                head = data.read_known(at, max(0, min(begin - at, _HEAD)))[0]
            if head.strip(b"\0") and not head.startswith(_RECORDS):
                yield at, begin
        at = max(at, stop)
