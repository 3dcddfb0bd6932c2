"""Goes through a tar archive from member to member, even after damage.

`TarWalker.step` reads what is at a position. Apart from the global pax records, its result does not depend on earlier
steps: reading can start at any member. The rules:

- Zero blocks are not the end: archives may be concatenated. The end is where the data end.
- A header is accepted if its checksum agrees; where a header is expected, also with a damaged checksum or byte.
- A member must be followed by a header, zeros or the end. If it is not, and a header *inside* of its declared size
  leads past the member's end, the size is wrong: the member ends at that header.
- A header a few bytes *after* the expected position, preceded by the member's padding, means that as many bytes were
  inserted into the member: it is that much longer.
- A block in place of a header that is not one counts as a destroyed header. The bytes between it and the next header
  are a ``gap`` (or a file, if extended headers before it survive that name it).
- After a gap of unknown length no position is known: the next header is searched at any offset. If the size of the
  member around the gap leaves room for it, the bytes before that header are its tail.
"""

from __future__ import annotations

from pparse.containers.archive import ArchiveMember
from pparse.data.base import Access
from pparse.data.trailing_bytes import trailing_severity
from pparse.errors import MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import MIB, count_words
from pparse.parsers.tar.blank import judge_blank, note_unwritten
from pparse.parsers.tar.extended import (
    Attributes,
    MapText,
    SparseMap,
    extend_old_map,
    name_of,
    old_map,
    read_name,
    read_records,
)
from pparse.parsers.tar.headers import BLOCK, TarHeader, size_that_fits
from pparse.parsers.tar.repair import SEARCHED, Body, holds_archive, leads_past, padded, rejoin, trusts_end
from pparse.parsers.tar.source import Blank, TarSource
from pparse.parsers.tar.steps import Pending, StepOutcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.parsers.tar.extended import Records

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
_EXTENDED: Final = frozenset((b"L", b"K", b"x", b"g", b"X"))
_BODILESS: Final = frozenset((b"1", b"2", b"3", b"4", b"5", b"6", b"V"))
_MAX_RECORDS: Final = 4 * MIB  # bytes of data of one pax header
_MAX_GLOBALS: Final = 256
_MAGIC: Final = b"ustar"
_UNPADDED: Final = "no padding follows it: some of its bytes are damaged, missing or inserted"
_RECORD: Final = 20 * BLOCK  # what most writers fill an archive up to
_MOST_SHIFTED: Final = 8 << 10  # how far after a member the rest of a torn header is searched


class TarWalker:
    """Reads members one by one; see the module docstring."""

    def __init__(self, extraction: Extraction) -> None:
        self.source = TarSource(extraction)
        self._extraction = extraction
        self._limits = extraction.session.limits
        self.globals: list[tuple[int, Records]] = []  # the offset of each, and all records in force from there on
        self._found: tuple[int, int | None, int | None] | None = None  # the last search: start, grid modulo 512, result
        self._unpadded: int | None = None  # the end of the data, if inside the padding of the last member

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
                if found.letter not in _EXTENDED:
                    outcome = self._member(found, pos, pending, keep_map)
                    outcome.blank = blank
                    return outcome
                pending = pending or Pending(pos)
                pos = self._extend(found, pos, pending)
            elif found is Blank.ZERO and (pending is None or pending.only_global):
                after = self.source.skip_zeros(pos)
                zeros += (after - pos) // BLOCK
                start, (pos, pending) = pos, (max(after, pos + BLOCK), None)
                last = self.source.probe(pos)
                at_end = last is Blank.END or (last is Blank.CUT and self._is_zero(pos))
                blank = judge_blank(self.source, start, pos, at_end=at_end)
            elif found is Blank.END or (found is Blank.CUT and zeros and self._is_zero(pos)):
                outcome = self._end(begin, pos, zeros, pending)
                outcome.blank = blank
                return outcome
            elif found is Blank.CUT:
                return self._cut_header(pos, pending)
            else:
                return self._lost(begin, pos, zeros, pending)

    def _is_zero(self, pos: int) -> bool:
        return not self.source.read(pos, BLOCK)[0].strip(b"\0")

    def _end(self, begin: int, pos: int, zeros: int, pending: Pending | None) -> StepOutcome:
        """Return the outcome where the data end, at ``pos``."""
        if pending is not None and not pending.only_global:
            finding = self._finding(
                "truncated", "the archive ends between an extended header and its member", "", pos, None
            )
            return StepOutcome(None, None, Status.TRUNCATED, finding)
        if begin == self._unpadded:
            reason = "the archive ends inside the padding of its last member"
            return StepOutcome(None, None, Status.TRUNCATED, self._finding("truncated", reason, "", pos, None))
        if begin == self.source.start and not zeros and pending is None:
            reason = "the file is empty: not even the blocks of zeros are there that end an archive without members"
            return StepOutcome(None, None, Status.TRUNCATED, self._finding("empty", reason, "", pos, None))
        if zeros < 2:
            marks = "blocks of zeros that end a tar"
            missing = f"one of the two {marks} is missing" if zeros else f"the two {marks} are missing"
            reason = f"{missing}; it may be truncated"
            return StepOutcome(None, None, None, self._finding("no-end-mark", reason, "", pos, None, "warning"))
        return StepOutcome(None, None)

    def _finding(
        self, code: str, reason: str, name: str, offset: int, length: int | None, severity: str = "error"
    ) -> Finding:
        return Finding(
            code,
            reason,
            path=name,
            source=self._extraction.name,
            offset=offset,
            length=length,
            severity=Severity(severity),
        )

    def search_from(self, pos: int, grid: int | None) -> int | None:
        """Return the position of the first header at or after ``pos``; the last search is not repeated."""
        rest = None if grid is None else grid % BLOCK
        known = self._found
        if known is not None and known[0] <= pos and known[1] == rest and (known[2] is None or pos <= known[2]):
            return known[2]
        found = self.source.search(pos, grid)
        self._found = (pos, rest, found)
        return found

    # -- extended headers --------------------------------------------------------------------------------------------

    def _extend(self, header: TarHeader, pos: int, pending: Pending) -> int:
        """Apply an extended header at ``pos``; return where to continue."""
        source, start = self.source, pos + BLOCK
        size = header.size
        pending.only_global = pending.only_global and header.letter == b"g"
        pending.note(header.problem)
        end = start + padded(size or 0)
        if not header.sound or size is None or source.reach(start, start + size) < start + size or self._is_bad(end):
            after = self.search_from(start, pos)
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

    def _is_bad(self, pos: int) -> bool:
        return self.source.probe(pos) in (Blank.BAD, Blank.GAP)

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
        """Return the attributes in the pax records in force at ``pos``."""
        attributes = Attributes()
        for begin, records in reversed(self.globals):
            if begin < pos:
                attributes.apply(records)
                break
        for records in pending.records if pending is not None else ():
            attributes.apply(records)
        return attributes

    # -- members -----------------------------------------------------------------------------------------------------

    def _member(self, header: TarHeader, pos: int, pending: Pending | None, keep_map: bool) -> StepOutcome:
        """Return the outcome for the member whose header is at ``pos``."""
        attributes = self._attributes(pos, pending)
        raw_name, raw_link = header.raw_name, header.raw_link
        problem = header.problem
        if pending is not None:
            raw_name, raw_link = pending.name or raw_name, pending.link or raw_link
            problem = problem or pending.problem
        raw_name, raw_link = attributes.path or raw_name, attributes.link or raw_link
        problem = problem or attributes.problem
        kind = _KINDS.get(header.letter, "file")
        if kind == "file" and header.letter == b"\0" and raw_name.endswith(b"/"):
            kind = "folder"  # as in v7
        size = header.size if attributes.size is None else attributes.size
        start, map = pos + BLOCK, None
        if header.letter == b"S":
            map, start = self._old_map(header, start)
        body = self._body(header, kind, pos, start, size)
        declared = kind
        if kind not in ("file", "other") and body.size and header.letter != b"D":
            kind = "file"  # it has bytes, whatever the type says
        if attributes.sparse is not None:
            map = self._pax_map(attributes, body)
        if map is not None:
            map.check(body.end - body.start - map.skip if body.pieces is None else body.size or 0)
            if map.problem is not None:
                body.spoil(Status.DAMAGED, "malformed", map.problem)
        if problem is not None:
            body.spoil(Status.DAMAGED, "malformed", problem)
        if header.letter == b"M":
            body.spoil(Status.TRUNCATED, "truncated", "it begins in another volume; this is the rest of it")
        member = ArchiveMember(
            name_of(raw_name),
            raw_name,
            kind,
            pos if pending is None else pending.at,
            body.start,
            body.end,
            body.size if map is None else map.real_size,
            mtime=attributes.mtime if attributes.mtime is not None else header.mtime,
            mode=None if header.mode is None else header.mode & 0o7777,
            link=name_of(raw_link) if kind in ("symlink", "hardlink") else None,
            pieces=body.pieces,
            extra=None if map is None else map if keep_map else True,
        )
        if declared != kind and not body.reason:
            reason = f"its type says {declared}, but it has content: read as a file"
            member.finding = self._finding("kind", reason, member.name, member.start, member.compressed_size, "note")
            return StepOutcome(member, body.next, None, member.finding)
        return self._outcome(member, body)

    def _outcome(self, member: ArchiveMember, body: Body) -> StepOutcome:
        if not body.reason:
            return StepOutcome(member, body.next)
        member.status, member.shifted = body.status, body.shifted
        place, length = body.place or (member.start, member.compressed_size)
        member.finding = self._finding(body.code, body.reason, member.name, place, length)
        return StepOutcome(member, body.next, body.status, member.finding)

    def _old_map(self, header: TarHeader, pos: int) -> tuple[SparseMap, int]:
        """Read an old GNU sparse map, with its blocks after the header; return it and where the data begin."""
        map, more = old_map(header.raw)
        while more:
            block, unknown = self.source.read(pos, BLOCK)
            if len(block) < BLOCK or unknown:
                map.problem = map.problem or "its sparse map is lost or truncated"
                pos += BLOCK if unknown else 0
                break
            try:
                more = extend_old_map(map, block)
            except MalformedError as error:
                map.problem, more = error.reason, False
            pos += BLOCK
        return map, pos

    def _pax_map(self, attributes: Attributes, body: Body) -> SparseMap:
        """Return the map in pax records, or before the data."""
        if attributes.map is not None:
            return SparseMap(attributes.map, attributes.real_size)
        text = MapText()
        pos = body.start
        while True:
            block, unknown = self.source.read(pos, BLOCK)
            if len(block) < BLOCK or unknown or pos >= body.end:
                text.end()
                break
            pos += BLOCK
            if not text.feed(block):
                break
        return text.map(attributes.real_size)

    # -- the bytes of a member ---------------------------------------------------------------------------------------

    def _body(self, header: TarHeader, kind: str, pos: int, start: int, size: int | None) -> Body:
        """Find the stored bytes of a member, and where to continue."""
        source = self.source
        if size and (header.letter in _BODILESS or kind == "folder") and header.letter != b"D":
            # Some writers give a size to links and folders, and no bytes.
            end = start + padded(size)
            if not self._is_bad(start) or source.reach(start, end) < start + size or self._is_bad(end):
                size = 0
        body = Body(start, size)
        if size is None:
            self._until_header(body, pos, header)
            return body
        there = source.reach(start, body.next)
        gap = source.gap_in(start, min(there, body.next))
        if gap is not None and gap.offset < body.end:
            rejoin(self, body, gap)
        elif gap is not None:
            body.next = gap.offset  # the content is whole; its padding is lost
        elif there < body.end:
            self._cut_body(body, pos, there, header.sound)
        elif there < body.next:
            body.next = self._unpadded = there
        elif not header.sound:
            self._check_suspect(body, pos)
        elif self._is_bad(body.next):
            self._check_size(body, pos)
        elif source.probe(body.next) in (Blank.ZERO, Blank.END) and size:
            self._check_last(body, pos)
        self._note_lost(body)
        return body

    def _note_lost(self, body: Body) -> None:
        """Record gaps of known length."""
        if body.pieces is None and self.source.data.gaps:
            lost, count = self.source.lost_in(body.start, body.end)
            if lost:
                reason = f"{count_words(lost, 'byte')} lost in {count_words(count, 'gap')}"
                body.spoil(Status.DAMAGED, "gap", reason)
        note_unwritten(self.source, body)

    def _until_header(self, body: Body, pos: int, header: TarHeader) -> None:
        """Handle a lost size: the member extends to the next header, or as the intact digits of its size say."""
        after = self.search_from(body.start, pos)
        if after is None:
            body.next = self.source.known_end()
            body.end = self.source.trim_zeros(body.start, body.next)
        else:
            body.end = body.next = after
        if self.source.gap_in(body.start, body.end) is None:
            body.size = size_that_fits(header.raw[124:136], body.end - body.start)
        if body.size is not None:
            body.end = body.start + body.size
            body.spoil(Status.DAMAGED, "malformed", "its size was damaged; restored from what follows")
        else:
            body.spoil(Status.DAMAGED, "malformed", "its size cannot be read; assumed to end at the next header")

    def _cut_body(self, body: Body, pos: int, there: int, sound: bool) -> None:
        """Handle data that end inside the member, unless its size is wrong."""
        if trusts_end(self.source, body.start, there):
            after = self.search_from(body.start, pos)
            after = after if not sound or after != body.start else None
            if after is not None and leads_past(self.source, after, body.next, there):
                self._cut_at(body, after, sound=sound)
                return
        body.spoil(Status.TRUNCATED, "truncated", f"it ends after {there - body.start:,} of {body.size or 0:,} bytes")
        body.end = body.next = there

    def _check_size(self, body: Body, pos: int) -> None:
        """Handle a member without a header after it: its size is wrong, or the next header is destroyed."""
        after = self.search_from(body.start, pos)
        if after is None:
            if self._has_more(body):
                body.shift("malformed", _UNPADDED)
        elif after < body.next:
            if after > body.start or leads_past(self.source, after, body.next, None):
                self._cut_at(body, after)
            else:
                self._check_nested(body, pos)
        elif after > body.next:
            self._check_behind(body, after)

    def _check_behind(self, body: Body, after: int) -> None:
        """Handle a member whose next header comes late."""
        if not self._has_grown(body, after):
            if self._has_more(body) and (after - body.start) % BLOCK == 0:
                # Only on the grid: if bytes are missing or inserted, the sizes are right, and headers may be lost.
                self._cut_at(body, after)
            elif self._has_more(body):
                body.shift("malformed", _UNPADDED)
            elif (after - body.next) % BLOCK and not self._header_was_here(body, after):
                body.shift("malformed", "what follows it is shifted: bytes were inserted there")

    def _check_nested(self, body: Body, pos: int) -> None:
        """Handle an archive in the archive without a header after it: if bytes of it are missing, the next header lies
        before its declared end, if bytes came in, behind it. Headers of its own, which may be there, too, do not lead
        past that."""
        after = self.search_from(max(body.start + 1, body.next - _MOST_SHIFTED), pos)
        for _ in range(_MOST_SHIFTED // BLOCK):
            if after is None or after >= body.next:
                if after is not None and after > body.next:
                    self._check_behind(body, after)
                return
            if leads_past(self.source, after, body.next, None):
                self._cut_at(body, after)
                return
            after = self.search_from(after + 1, pos)

    def _has_grown(self, body: Body, after: int) -> bool:
        """Say whether bytes were inserted into the member, so that it extends beyond its size; if so, move its end.

        The header at ``after`` is then as far from its expected position as there are inserted bytes. The member's
        padding comes before it, and no other header was lost.
        """
        more = after - body.next
        padding, unknown = self.source.read(body.end + more, body.next - body.end)
        if more > _MOST_SHIFTED or unknown or padding.strip(b"\0"):
            return False
        if (more % BLOCK == 0 and not self._has_more(body)) or self._header_was_here(body, after):
            return False
        body.shift(
            "size",
            f"bytes were inserted: {body.size or 0:,} are declared, and it has {count_words(more, 'byte')} more",
        )
        body.end, body.next, body.size = body.end + more, after, body.end + more - body.start
        return True

    def _check_last(self, body: Body, pos: int) -> None:
        """Handle a member followed by zeros, or nothing: if bytes of it are missing, it reaches over the last headers.

        A header across its end, in place of padding, shows that; or an empty member right before the zeros, if its
        header is the only one inside. A nested archive begins with a header, and has more of them. Or the archive ends
        with less than a record, and the zeros in the member's end follow members of the archive.
        """
        source = self.source
        if source.data.access is not Access.FREE or isinstance(source.probe(body.start), TarHeader):
            return  # decoded data should not be read backwards
        tail = source.trim_zeros(max(body.start, body.next - _MOST_SHIFTED), body.next)
        is_odd = (source.known_end() - source.start) % _RECORD and body.next - body.start <= SEARCHED
        last = source.probe(tail - BLOCK) if tail - BLOCK > body.start else None
        if body.end < body.next and self._has_more(body):
            after = self.search_from(body.start, pos)
            if after is not None and after < body.next and leads_past(source, after, body.end, None):
                self._cut_at(body, after)
        elif isinstance(last, TarHeader) and last.sound and not last.size:
            if self.search_from(body.start, pos) == tail - BLOCK:
                self._cut_at(body, tail - BLOCK)
        elif is_odd and body.next - _MOST_SHIFTED < tail <= body.end - 16:
            after = self.search_from(body.start, pos)
            if after is not None and after < tail and holds_archive(source, after, source.known_end()):
                self._cut_at(body, after)

    def _header_was_here(self, body: Body, after: int) -> bool:
        """Say whether the bytes that shift the header at ``after`` lie after the member, in the header after it.

        The magic of that header is left. Or the padding is all zeros, and a name begins right after it: if bytes had
        been inserted or lost before that, the padding would be different.
        """
        head, unknown = self.source.read(body.next, min(after - body.next, _MOST_SHIFTED))
        if unknown or not head:
            return False
        return _MAGIC in head or (body.end < body.next and head[0] != 0 and not self._has_more(body))

    def _has_more(self, body: Body) -> bool:
        """Say whether the padding of a member is not all zeros."""
        padding, _ = self.source.read(body.end, body.next - body.end)
        return bool(padding.strip(b"\0"))

    def _check_suspect(self, body: Body, pos: int) -> None:
        """Handle a damaged header, whose size may be wrong: any header before the member's end decides."""
        after = self.search_from(body.start, pos)
        if after is None:
            if self._has_more(body):
                self._cut_at(body, body.next, sound=False)
        elif after < body.next:
            if after > body.start or not holds_archive(self.source, after, body.next):
                self._cut_at(body, after, sound=False)
        elif self._has_more(body) or (after > body.next and self._is_bad(body.next)):
            self._cut_at(body, after, sound=False)

    def _cut_at(self, body: Body, after: int, *, sound: bool = True) -> None:
        """Handle a wrong size: the member ends where the next one begins.

        If its header is right, so is the size there, and bytes are missing or came in.
        """
        reason = (
            f"its size is wrong: {body.size or 0:,} bytes are declared, but the next header follows "
            f"after {after - body.start:,}"
        )
        if sound:
            body.shift("size", reason)
        else:
            body.spoil(Status.DAMAGED, "size", reason)
        body.end = body.next = after
        body.size = after - body.start

    # -- damage ------------------------------------------------------------------------------------------------------

    def _cut_header(self, pos: int, pending: Pending | None) -> StepOutcome:
        """Handle data that end inside a header: a member without content if it is recognised, else a gap."""
        from pparse.parsers.tar.headers import judge_header

        raw, unknown = self.source.read(pos, BLOCK)
        there = len(raw)
        header = judge_header(raw + bytes(BLOCK - there), [*unknown, (there, BLOCK - there)])
        attributes = self._attributes(pos, pending)
        name = attributes.path or (pending.name if pending is not None else None)
        name = name or (header.raw_name if header is not None else None)
        at, end = pos if pending is None else pending.at, pos + there
        reason = "the archive ends inside its header"
        if name is None or (header is not None and header.letter in _EXTENDED):
            member = ArchiveMember(f"gap {pos}", b"", "gap", at, pos, end, end - pos)
        else:
            size = attributes.size if attributes.size is not None else header.size if header is not None else None
            member = ArchiveMember(name_of(name), name, "file", at, end, end, size)
        body = Body(member.start, member.size)
        body.next = end
        body.spoil(Status.TRUNCATED, "truncated", reason)
        return self._outcome(member, body)

    def _lost(self, begin: int, pos: int, zeros: int, pending: Pending | None) -> StepOutcome:
        """Handle a missing header: continue at the next one, and return the bytes before it."""
        source = self.source
        gap = source.gap_in(pos, pos + BLOCK)
        if gap is not None and gap.length is not None:
            after = self.search_from(gap.offset + gap.length, None)
        else:
            after = self.search_from(pos + 1, pos)
        end = after
        if end is None:
            end = source.known_end()
            if end <= pos:  # a gap extends to the end
                reason = "the bytes from here to the end of the archive are lost"
                return StepOutcome(None, None, Status.TRUNCATED, self._finding("truncated", reason, "", pos, None))
            body_end = source.trim_zeros(pos, end)
        else:
            body_end = end
        attributes = self._attributes(pos, pending)
        name = attributes.path or (pending.name if pending is not None else None)
        body = Body(pos, None)
        body.end, body.next = body_end, end
        at = begin if pending is None else pending.at
        if name is not None and gap is None:
            body.start = min(pos + BLOCK, body.end)
            size = attributes.size
            if size is not None and size <= body.end - body.start:
                body.end, body.size = body.start + size, size
                body.next = min(end, body.start + padded(size))
            body.spoil(Status.DAMAGED, "malformed", "its header is destroyed; its name comes from an extended header")
            member = ArchiveMember(name_of(name), name, "file", at, body.start, body.end, body.size)
            return self._outcome(member, body)
        whole = source.gap_in(pos, body.end) is None
        if gap is not None and gap.offset <= pos and (gap.length or 0) >= body.end - pos:
            reason = "an unknown number of bytes is lost here, headers among them"
        elif gap is not None:
            reason = "bytes whose header is lost, up to the next header"
        else:
            reason = f"{count_words(body.end - pos, 'byte')} without a header, up to the next header or the end"
        member = ArchiveMember(f"gap {pos}", b"", "gap", at, pos, body.end, body.end - pos if whole else None)
        if after is None and zeros >= 2 and gap is None and not source.lost_in(pos, body.end)[0]:
            # After the end mark, and not an archive: foreign bytes.
            reason = f"{count_words(body.end - pos, 'byte')} follow the end of the archive"
            member.finding = self._finding(
                "trailing", reason, member.name, pos, member.compressed_size, trailing_severity("archive").value
            )
            return StepOutcome(member, body.next, None, member.finding)
        body.spoil(Status.DAMAGED, "header", reason)
        return self._outcome(member, body)
