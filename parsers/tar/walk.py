"""Goes through a tar archive from member to member, even after damage.

`TarWalker.step` reads what is at a position. Apart from the global pax records, its result does not depend on earlier
steps: reading can start at any member. The rules:

- Zero blocks are not the end: archives may be concatenated. The end is where the data end.
- A header is accepted if its checksum agrees; where a header is expected, also with a damaged checksum or byte.

`TarMender`, beside it, settles where the bytes of a member end if the next header is not where its size says, and goes
on where a header is destroyed.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember
from pparse.findings import Finding, Severity, Status
from pparse.limits import MIB, count_words
from pparse.parsers.tar.headers import (
    BLOCK,
    BODILESS,
    EXTENDED,
    Attributes,
    TarHeader,
    padded,
    read_name,
    read_records,
    text_of,
)
from pparse.parsers.tar.mend import Body, StepOutcome, TarMender
from pparse.parsers.tar.source import Blank, TarSource
from pparse.parsers.tar.sparse import read_old_map, read_pax_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.tar.headers import Records

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
    """Reads members one by one; see the module docstring."""

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
        if len(data) < size:
            return source.reach(start, end)
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
