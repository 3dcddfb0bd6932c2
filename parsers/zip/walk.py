"""Finds the records of a damaged zip archive: what is at a position, where the next record begins, where bytes end.

A header is judged by its known bytes. One that is broken, or lost in a gap, is found through what is left of the
directory (`Hints`), even if that is incomplete, or contradicts the file. Where the bytes of a member of unknown size
end is found by decoding them (`measure`), or by the data descriptor behind them (`Descriptors`).

All takes time linear in the input. Bytes that are decoded, summed up or searched in vain are counted, and a file that
causes too much of it is given up (`Work`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import namedtuple
from itertools import chain, compress, islice
from zlib import crc32

from pparse.codecs.base import decompressor
from pparse.data.window import Window
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.lazy import lazy_pattern
from pparse.limits import KIB, MIB
from pparse.parsers.zip.records import (
    BLOCK,
    CENTRAL,
    CENTRAL_SIZE,
    CODEC_OF_METHOD,
    DESCRIPTOR,
    ENCRYPTED,
    END,
    END64,
    EXTRA_DATA,
    LAYOUTS,
    LENGTHS,
    LOCAL,
    LOCAL_SIZE,
    LOCATOR,
    LOCATOR_SIZE,
    LZMA,
    LZMA_HEAD,
    MASKED,
    MOST_SIZE,
    SIGNATURE,
    STORED,
    STREAMED,
    TAIL,
    CentralEntry,
    LocalHeader,
    central_length,
    directory_ends,
    entry_at,
    is_extra,
    local_at,
    local_length,
    lzma_alone,
    match_descriptor,
    read_central,
    read_end,
    read_local,
)
from pparse.parsers.zip.trust import SAMPLES, TOLERANCE
from pparse.tree.index import KeyTable, ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from struct import Struct
    from typing import Final

    from pparse.data.base import Data
    from pparse.limits import MemoryBudget
    from pparse.tree.host import HostSession


# Bytes read for a decoder: few at first, since most members measured are tiny; then more each time, up to `_STEP`.
_FIRST_STEP: Final = 1 * KIB
_STEP: Final = 64 * KIB


class Work:
    """The number of bytes that may still be read in vain."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = 8 * size + 64 * MIB

    def spend(self, count: int) -> bool:
        """Count bytes; False if the limit is exceeded."""
        self.left -= count
        return self.left > 0


class Measure(namedtuple("Measure", "end size crc error")):
    """The result of decoding: where the stream ended, how many bytes it holds, their CRC-32, and the error that ended
    decoding (None if there was none)."""

    __slots__ = ()


def measure(
    data: Data, start: int, end: int, method: int, flags: int, size: int | None, session: HostSession
) -> Measure:
    """Decode the stream at ``start`` up to its end, the end of the data, or damage."""
    codec = CODEC_OF_METHOD[method]
    at, crc, total = start, 0, 0
    error: PparseError | None = None
    stream = None
    base, step = start, _FIRST_STEP
    try:
        # The dictionary of LZMA may be larger than the content.
        stream = decompressor(codec, budget=session.budget, size=size if method == LZMA else None)
        if method == LZMA:
            head = lzma_alone(data.pread(start, min(LZMA_HEAD + 5, end - start)), flags, size)
            if head is None:
                raise MalformedError("the stream lacks LZMA properties", offset=start)
            at = start + LZMA_HEAD + 5
            base = at - len(head)
            stream.decompress(head, 0)
        while not stream.eof:
            piece = b""
            if stream.needs_input:
                session.check_cancelled()
                piece = data.pread(at, min(step, end - at)) if at < end else b""
                at += len(piece)
                step = min(4 * step, _STEP)
                if not piece:
                    stream.finish()
            out = stream.decompress(piece, 2 * _STEP)
            crc = crc32(out, crc)
            total += len(out)
            session.limits.check("inflated_bytes", total, "the content of the member")
    except (MalformedError, EndOfDataError, GapError, UnsupportedError, LimitError) as caught:
        error = caught
    reached = base + stream.consumed if stream is not None else start
    if stream is not None:
        stream.close()
    return Measure(max(start, min(reached, end)), total, crc, error)


class Summing:
    """CRC-32 of ``data[start:...]`` at ascending positions; each byte is read once (except the last 32)."""

    __slots__ = ("_at", "_crc", "_data", "_work", "known")

    def __init__(self, data: Data, start: int, work: Work) -> None:
        self._data = data
        self._at = start
        self._crc = 0
        self._work = work
        self.known = True  # no unknown byte so far

    def at(self, end: int) -> int | None:
        """Return the CRC of everything before ``end``; None if bytes are unknown, or too much was read in vain."""
        # Candidates may be slightly out of order: the sum stays behind by more than the longest descriptor.
        while self.known and end - self._at > 32:
            chunk = self._read(min(BLOCK, end - 32 - self._at))
            self._crc = crc32(chunk, self._crc)
            self._at += len(chunk)
        return crc32(self._read(end - self._at), self._crc) if self.known and end >= self._at else None

    def _read(self, count: int) -> bytes:
        chunk, unknown = self._data.read_known(self._at, count)
        if unknown or len(chunk) < count or not self._work.spend(count):
            self.known = False
        return chunk


# How many descriptors are remembered; beyond that the oldest are searched again.
_MOST: Final = 20_000
# A descriptor without signature may come before one of these.
_MARKS: Final = lazy_pattern(rb"PK(?:\x07\x08|\x03\x04|\x01\x02|\x05\x06|\x06\x06|\x06\x08)")
_UNSIGNED: Final = tuple((length, layout) for length, signed, layout in LAYOUTS if not signed)
_SIGNED: Final = tuple((length, layout) for length, signed, layout in LAYOUTS if signed)


class Descriptors:
    """Finds the data descriptor of a member by the begin of its bytes, with a size that matches the distance.

    The data are searched once, as far as needed; descriptors found for other members are remembered.
    """

    def __init__(self, data: Data, end: int, work: Work) -> None:
        self._data = data
        self._end = end
        self._work = work
        self._from = self._to = -1  # the range that was searched
        self._found: dict[int, list[tuple[int, int, int]]] = {}  # start: (end, descriptor length, crc)
        self._count = 0

    def find(self, start: int, stop: int, *, check: bool) -> tuple[int, int, int] | None:
        """Return ``(end of the bytes, length of the descriptor, crc)`` of the member whose bytes begin at ``start``.

        With ``check`` the stored bytes are the content, so their CRC must agree; if some are unknown, the size decides.
        The descriptor must begin before ``stop``. None if there is none.
        """
        if not self._from <= start <= self._to:
            self._from = self._to = start
            self._found.clear()
            self._count = 0
        summing = Summing(self._data, start, self._work) if check else None
        done = 0
        while True:
            candidates = self._found.get(start, [])
            while done < len(candidates):
                end, length, crc = candidates[done]
                done += 1
                if end >= stop:
                    return None
                if summing is None or (found := summing.at(end)) == crc or (found is None and not summing.known):
                    return end, length, crc
            if self._to >= min(stop + 24, self._end):
                return None
            self._look_on(start)

    def _look_on(self, start: int) -> None:
        low = self._to
        count = min(BLOCK, self._end - low)
        first = max(self._from, low - 20)
        block, _ = self._data.read_known(first, low - first + min(count + 27, self._end - low))
        for match in _MARKS.finditer(block, low - first):
            at = match.start()
            if at >= low - first + count:
                break
            for length, layout in _SIGNED if match[0] == DESCRIPTOR else _UNSIGNED:
                place = at if match[0] == DESCRIPTOR else at - length
                self._note(block, place, first, length, layout, start)
        self._to = low + count
        if self._to >= self._end:  # an unsigned descriptor may come last, or the next record may be cut
            for cut in range(4):
                if block.endswith((b"PK\x03"[:cut], b"PK\x01"[:cut])):
                    for length, layout in _UNSIGNED:
                        self._note(block, len(block) - cut - length, first, length, layout, start)

    def _note(self, block: bytes, place: int, base: int, length: int, layout: Struct, start: int) -> None:
        if place < 0 or len(block) - place < length:
            return
        crc, compressed_size, size = layout.unpack_from(block, place)
        begin = base + place - compressed_size
        if begin < self._from or size >= MOST_SIZE:
            return
        kept = self._found.setdefault(begin, [])
        if begin != start:
            self._count += 1
        # Longest first at one place: a 12-byte layout also fits the end of a 20-byte one of an empty member.
        kept.append((base + place, length, crc))
        while self._count > _MOST:
            oldest = next((key for key in self._found if key != start), None)
            if oldest is None:
                break
            self._count -= len(self._found.pop(oldest))
            self._from = max(self._from, oldest + 1)


# By chance, so many line feeds follow a carriage return once in 2^128 times.
_LINES: Final = 16
# More parts no split zip has; a damaged end record may say so.
_MOST_DISKS: Final = 10_000
_CENTRALS: Final = lazy_pattern(re.escape(CENTRAL))
# So many entries with one name are looked at.
_MOST_ALIKE: Final = 64


class Hints:
    """Entries of an incomplete or contradictory directory, believed only where the file agrees.

    ``shifts`` are candidates for the number to add to an offset to get a position, the likeliest first. After a gap of
    unknown length no position follows from an offset. ``whole``: the archive's own directory is complete and lies where
    its end record says, so its positions are certain, even if the local header there is destroyed.
    """

    def __init__(self, data: Data, start: int, end: int, budget: MemoryBudget) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._charge = budget.charge(0, "what is left of a zip directory")
        self._offsets = array("q")  # as stored, ascending
        self._places = array("q")
        self._names = KeyTable(())
        self.shifts: list[int] = []
        loose = data.loose_gap()
        self._reach = end if loose is None else loose
        self.trusted = False  # whether local headers are where entries say, or the directory is where it should be
        self.whole = False
        self._apart = False  # no two members share bytes, according to the entries
        self._cached: dict[int, CentralEntry | None] = {}
        try:
            self._collect(budget)
        except LimitError:  # go on without them
            self._offsets, self._places, self._names = array("q"), array("q"), KeyTable(())
        if self._offsets:
            self._find_shifts()

    def __len__(self) -> int:
        return len(self._offsets)

    def _collect(self, budget: MemoryBudget) -> None:
        offsets, places, names, ends = array("q"), array("q"), array("q"), array("q")
        high, lowest = self._end, max(self._start, self._end - TAIL)
        seen = False
        while high > lowest or (high > self._start and seen):
            low = max(self._start, high - MIB)
            block, _ = self._data.read_known(low, min(high - low + 3, self._end - low))
            seen = False
            for match in _CENTRALS.finditer(block):
                at = low + match.start()
                entry = entry_at(self._data, at, self._end)
                if entry is not None and entry.is_sane() and entry.offset < 1 << 62:
                    seen = True
                    offsets.append(entry.offset)
                    places.append(at)
                    names.append(hash(entry.raw_name))
                    ends.append(entry.offset + LOCAL_SIZE + len(entry.raw_name) + min(entry.compressed_size, 1 << 61))
            self._charge.resize(64 * len(offsets))
            high = low
        if nested := self._nested(offsets, places):
            kept = [place not in nested for place in places]
            columns = (offsets, places, names, ends)
            offsets, places, names, ends = (array("q", compress(column, kept)) for column in columns)
        self._offsets, order = ranked(offsets)
        starts = iter(self._offsets[1:])
        self._apart = all(ends[ordinal] <= start + TOLERANCE for ordinal, start in zip(order, starts, strict=False))
        self._places = array("q", (places[ordinal] for ordinal in order))
        self._names = KeyTable(names[ordinal] for ordinal in order)

    def _nested(self, offsets: array[int], places: array[int]) -> range:
        """Return where entries lie between members, in nested archives, if the archive's own directory is complete."""
        for _, record, stop in islice(directory_ends(self._data, self._start, self._end), 1):
            begin = stop - record.size
            listed = [offset for offset, place in zip(offsets, places, strict=True) if begin <= place < stop]
            if listed and len(listed) == record.entries:
                return range(begin - record.offset + min(listed), begin)
        return range(0)

    @property
    def first_place(self) -> int:
        """Offset of the first entry."""
        return min(self._places)

    def _find_shifts(self) -> None:
        """Find what to add to offsets, by the local headers that some entries lead to."""
        wanted = [self._start]
        exact = False  # whether a directory lies where its end record says, counted from the start
        own = list(directory_ends(self._data, self._start, self._end))
        for _, record, stop in own:
            begin = stop - record.size
            wanted.append(begin - record.offset)
            exact = exact or (wanted[-1] == self._start and not self._data.gaps and begin in self._places)
        some = range(0, len(self._offsets), max(1, len(self._offsets) // SAMPLES))
        scores = {shift: sum(self._agrees(ordinal, shift) for ordinal in some) for shift in dict.fromkeys(wanted)}
        self.shifts = sorted(scores, key=lambda shift: -scores[shift])
        self.trusted = scores[self.shifts[0]] > 0 or exact
        if exact and self._apart and self.shifts[0] == self._start:
            _, record, stop = own[0]
            self.whole = stop - record.size == self.first_place and record.entries == len(self._offsets)

    def _agrees(self, ordinal: int, shift: int) -> bool:
        entry = self.entry(ordinal)
        pos = self._offsets[ordinal] + shift
        if entry is None or not self._start <= pos < self._end:
            return False
        header = local_at(self._data, pos, self._end)
        return header is not None and header.raw_name == entry.raw_name

    def entry(self, ordinal: int) -> CentralEntry | None:
        """Return an entry by its rank among all offsets."""
        place = self._places[ordinal]
        if place not in self._cached:
            if len(self._cached) >= 256:
                self._cached.clear()
            self._cached[place] = entry_at(self._data, place, self._end)
        return self._cached[place]

    def for_header(self, pos: int, header: LocalHeader) -> CentralEntry | None:
        """Return the entry of the member whose local header is at ``pos``; None if no entry has its name.

        An entry with the right offset is preferred; then the nearest with the same name, and the same CRC or size.
        """
        for shift in self.shifts:
            for ordinal in self._at(pos - shift):
                entry = self.entry(ordinal)
                if entry is not None and entry.raw_name == header.raw_name:
                    return entry
        alike = (
            entry
            for _, entry in self._named(header.raw_name)
            if entry.method == header.method
            and (not header.crc or header.crc == entry.crc)
            and (not header.size or header.size == entry.size)
        )
        return min(alike, key=lambda entry: abs(pos - self.shifts[0] - entry.offset), default=None)

    def _named(self, raw_name: bytes) -> Iterator[tuple[int, CentralEntry]]:
        """Yield ranks and entries of the members with a name; of thousands, the first ones."""
        for ordinal in islice(self._names.candidates(raw_name), _MOST_ALIKE):
            entry = self.entry(ordinal)
            if entry is not None and entry.raw_name == raw_name:
                yield ordinal, entry

    def replaced(self, pos: int, header: LocalHeader) -> bool:
        """Say whether the directory names another member so, and agrees with the header of that one only; or that has
        another checksum, if its header is damaged.

        So does an archive that was changed in place: what the member at ``pos`` holds is no longer part of it.
        """
        if not self.whole or not header.whole or self.entry_for(pos) is not None:
            return False
        for ordinal, entry in self._named(header.raw_name):
            return self._agrees(ordinal, self.shifts[0]) or bool(header.crc and header.crc != entry.crc)
        return False

    def _at(self, offset: int) -> Iterator[int]:
        place = bisect_left(self._offsets, offset)
        while place < len(self._offsets) and self._offsets[place] == offset:
            yield place
            place += 1

    def entry_for(self, pos: int) -> CentralEntry | None:
        """Return the entry whose local header should be at ``pos``, whatever is there."""
        at = next(self._at(pos - self.shifts[0]), None) if self.trusted and pos < self._reach else None
        return None if at is None else self.entry(at)

    def names_at(self, pos: int) -> Iterator[bytes]:
        """Yield the names of entries whose local headers may be at ``pos``, whatever is there."""
        for at in chain.from_iterable(self._at(pos - shift) for shift in (self.shifts if self.trusted else ())):
            entry = self.entry(at)
            if entry is not None:
                yield entry.raw_name

    def next_position(self, pos: int) -> int | None:
        """Return the first position from ``pos`` on where a local header should be; None if none is known."""
        place = bisect_left(self._offsets, pos - self.shifts[0]) if self.trusted else len(self._offsets)
        found = self._reach if place == len(self._offsets) else self._offsets[place] + self.shifts[0]
        return found if found < self._reach else None

    def precedes(self, header: LocalHeader, entry: CentralEntry | None) -> bool:
        """Say whether the member with ``header`` is listed right before ``entry`` (None: last), in file order."""
        place = len(self._offsets) if entry is None else bisect_left(self._offsets, entry.offset)
        before = self.entry(place - 1) if place else None
        return before is not None and before.raw_name == header.raw_name


def why_scanned(data: Data, start: int, end: int, *, whole: bool) -> tuple[str, str]:
    """Return a code, and words, for why the directory of an archive is of no use; ``whole``: it is there."""
    block = data.read_known(start, min(MIB, end - start))[0]
    pairs = block.count(b"\r\n")
    # Each line feed behind a carriage return, and others without a line feed, which a text does not have.
    if pairs >= _LINES and block.count(b"\n") == pairs and block.count(b"\r") - pairs >= pairs // 4:
        reason = "its line feeds were made carriage return and line feed: fetch it again, not in text mode"
        return "text-mode", reason
    if not whole:
        return "truncated", "its directory, at the end, is missing or truncated"
    _, record, _ = next(directory_ends(data, start, end), (0, None, 0))
    if record is not None and 0 < record.disk < _MOST_DISKS:
        parts = f"{record.disk + 1} parts, which are read as one if all lie beside it (.z01, .z02 ..., .zip)"
        return "split", f"its directory is that of a zip split into {parts}"
    return "directory", "its directory does not match its content"


_RECORDS: Final = lazy_pattern(rb"PK(?:\x03\x04|\x01\x02|\x05\x06|\x06\x06)")
_LOCALS: Final = lazy_pattern(re.escape(LOCAL))
_BOUNDARIES: Final = (CENTRAL, END, END64, EXTRA_DATA)
# For how many members with a lost header the begin of their bytes is remembered.
_MOST_STARTS: Final = 4096
# Bytes read for a header: at first, and where others follow it.
_AHEAD: Final = 64 << 10
SHORT: Final = 4 << 10


def _starts(end: int, entry: CentralEntry) -> list[tuple[int, int]]:
    """Return where the bytes of a member begin that ends at ``end``, with each length that its descriptor may have."""
    lengths = (*(LENGTHS if entry.flags & STREAMED else ()), 0)
    return [(end - length - entry.compressed_size, length) for length in lengths]


class Walker:
    """Reads the records in ``data[start:end]``."""

    def __init__(self, data: Data, start: int, end: int, session: HostSession) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.session = session
        self.hints = Hints(data, start, end, session.budget)
        self._window = Window(data, end, least=SHORT, ahead=_AHEAD)
        self.work = Work(end - start)
        self.unsure: set[int] = set()  # positions of those without an agreeing CRC
        self._starts: dict[int, int] = {}  # for members with a lost header: its position, and where the bytes begin

    def read(self, pos: int, count: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return bytes at ``pos``, unknown ones as zeros, and the unknown ranges, relative to ``pos``."""
        found, unknown = self._window.read_known(pos, count)
        return found, [(first - pos, length) for first, length in unknown]

    def _entry_at(self, pos: int) -> CentralEntry | None:
        """Return the entry of a directory at ``pos``, if all of it but a comment is known."""
        head, unknown = self.read(pos, CENTRAL_SIZE)
        if len(head) == CENTRAL_SIZE and not unknown:
            head, unknown = self.read(pos, central_length(head))
        return read_central(head[: max(0, unknown[0][0])] if unknown else head)

    def _broken(self, pos: int) -> tuple[LocalHeader | None, list[tuple[int, int]]]:
        """Return the local header at ``pos``, whatever its signature is, and which of its bytes are unknown."""
        head, unknown = self.read(pos, LOCAL_SIZE)
        if len(head) < LOCAL_SIZE:
            return None, unknown
        block, unknown = self.read(pos, local_length(head))
        return read_local(block, broken=True), unknown

    def header_at(self, pos: int) -> LocalHeader | None:
        """Return the local header at ``pos``, as far as it is known; None if there is none."""
        head, unknown = self.read(pos, LOCAL_SIZE)
        if len(head) < LOCAL_SIZE or not head.startswith(LOCAL):
            return None
        if unknown and any(first < 30 and first + count > 26 for first, count in unknown):
            return None
        block, unknown = self.read(pos, local_length(head))
        header = read_local(block)
        if header is None:
            return None
        if unknown and (self.data.inexact_gap(pos, pos + header.length) or not header.mask(unknown)):
            return None
        if not header.is_sane() and not self._leads_on(pos, header):
            return None
        if header.extra and not self._is_extra(pos + LOCAL_SIZE + len(header.raw_name), header):
            header.length -= len(header.extra)
            header.extra = b""
        return header

    def _leads_on(self, pos: int, header: LocalHeader) -> bool:
        """Say whether a record follows the member of a header with an odd name, method or flag."""
        if header.compressed_size is None or (header.flags & STREAMED and not header.compressed_size):
            return False
        end = pos + header.length + header.compressed_size
        signature, unknown = self.read(end, 4)
        return end == self.end or (not unknown and signature in (LOCAL, DESCRIPTOR, *_BOUNDARIES))

    def _is_extra(self, pos: int, header: LocalHeader) -> bool:
        """Say whether the extra field is plausible: a damaged length makes it cover the next records."""
        if is_extra(header.extra):
            return True
        inside = (pos + match.start() for match in _LOCALS.finditer(header.extra))
        blocks = (self.read(at, min(self.end - at, LOCAL_SIZE + 256))[0] for at in inside)
        return not any(other is not None and other.is_sane() for other in map(read_local, blocks))

    def mended(self, pos: int, header: LocalHeader) -> LocalHeader | None:
        """Return the local header at ``pos`` with the length that it should have, by what follows the member; None if
        that of ``header`` is right, or nobody knows.

        It is wrong if the member's bytes would run into the next one, or if those before the next record have the CRC.
        """
        found = self.listed_at(pos, meant=True)
        if found is None or found[0].length == header.length:
            return None
        listed, entry = found
        return None if self._has_room(pos, header, entry) and not self._sums_up(pos + listed.length, entry) else listed

    def _has_room(self, pos: int, header: LocalHeader, entry: CentralEntry) -> bool:
        """Say whether the bytes of a member end before the next one begins, if they stand behind ``header``."""
        following = self.hints.next_position(pos + 1)
        return following is None or pos + header.length <= following - entry.compressed_size

    def listed_at(self, pos: int, *, meant: bool) -> tuple[LocalHeader, CentralEntry] | None:
        """Return the broken or unknown header that should be at ``pos``, with the values of the directory.

        ``meant``: there is other evidence for this position. Otherwise the name must be there.
        """
        entry = self.hints.entry_for(pos)
        if entry is None or not entry.is_sane():
            return None
        head, unknown = self.read(pos, LOCAL_SIZE + len(entry.raw_name))
        if not unknown and head[LOCAL_SIZE:] == entry.raw_name:
            header, _ = self._broken(pos)
            if header is not None and header.raw_name == entry.raw_name and self._has_room(pos, header, entry):
                if header.method != entry.method:  # also broken
                    header.method, header.flags = entry.method, entry.flags
                return header, entry
        start = self._start_before_next(pos, entry) if meant or unknown or self.hints.whole else None
        if start is None and self.hints.whole:
            start = self._start_by_content(pos, entry)
        if start is None:
            return None
        fields = (20, entry.flags, entry.method, entry.time, entry.date, entry.crc, 0, 0)
        header = LocalHeader(fields, entry.raw_name, b"")
        header.compressed_size = header.size = header.crc = None
        header.length = start - pos
        return header, entry

    def broken_at(self, pos: int) -> LocalHeader | None:
        """Return the header with a broken signature at ``pos``, if its sizes lead to the next record."""
        header, unknown = self._broken(pos)
        if header is None or unknown or not header.is_sane() or header.compressed_size is None:
            return None
        alike = sum(have == meant for have, meant in zip(self.read(pos, 4)[0], LOCAL, strict=True))
        fits = bool(header.compressed_size) and self.is_boundary(pos + header.length + header.compressed_size)
        return header if alike == 3 or (alike and fits) else None

    def _start_before_next(self, pos: int, entry: CentralEntry) -> int | None:
        """Return where the bytes of a member with a lost local header begin, by their end at the next record."""
        least = pos + LOCAL_SIZE + len(entry.raw_name)
        end = self.hints.next_position(pos + 1)
        if end is None:
            low = least + entry.compressed_size
            end = self.next_record(low, min(low + 0xFFFF + LENGTHS[0], self.end), members=False)
        if not self.is_boundary(end) and self.read(end, 4) != (bytes(4), [(0, 4)]):
            return None
        for start, length in _starts(end, entry):
            block, _ = self.read(end - length, length)
            agrees = not length or match_descriptor(block, entry.crc, entry.compressed_size, entry.size) == length
            if agrees and least <= start <= least + 0xFFFF:
                return start
        return None

    def _start_by_content(self, pos: int, entry: CentralEntry) -> int | None:
        """Return where the bytes of a member begin if its local header, and perhaps the next record, is lost.

        Name and extra field may be as long as in the directory, or the bytes end where the next record begins. The CRC
        decides; if it agrees with none, the first possible offset is returned. None if there is none.
        """
        if pos in self._starts:
            return self._starts[pos]
        least = pos + LOCAL_SIZE + len(entry.raw_name)
        end = self.hints.next_position(pos + 1) or self.hints.first_place
        starts = dict.fromkeys((*(start for start, _ in _starts(end, entry)), least + len(entry.extra), least))
        possible = [at for at in starts if least <= at <= least + 0xFFFF and at + entry.compressed_size <= end]
        found = next((at for at in possible if self._sums_up(at, entry)), None)
        if found is None and possible:
            found = possible[0]
            if len(self.unsure) < _MOST_STARTS:
                self.unsure.add(pos)
        if found is not None and len(self._starts) < _MOST_STARTS:
            self._starts[pos] = found
        return found

    def _sums_up(self, start: int, entry: CentralEntry) -> bool:
        """Say whether a member whose bytes begin at ``start`` has the CRC in the directory."""
        end = start + entry.compressed_size
        if entry.flags & (ENCRYPTED | MASKED) or not self.work.spend(entry.compressed_size):
            return False
        if entry.method == STORED:
            return Summing(self.data, start, self.work).at(end) == entry.crc
        if entry.method not in CODEC_OF_METHOD:
            return False
        found = measure(self.data, start, end, entry.method, entry.flags, entry.size, self.session)
        return found.error is None and found.crc == entry.crc

    def find_next(self, pos: int, *, members: bool = True) -> int:
        """Return where the next record of an archive begins, from ``pos`` on; the end of the data if there is none.

        A broken local header is found if the directory is certain of it.
        """
        while True:
            listed = self.hints.next_position(pos) if members else None
            stop = self.end if listed is None else min(listed, self.end)
            found = self.next_record(pos, stop, members=members)
            if found < stop or listed is None or listed >= self.end:
                return found
            if self.header_at(listed) is not None or self.listed_at(listed, meant=False) is not None:
                return listed
            pos = listed + 1

    def next_record(self, low: int, stop: int, *, members: bool = True) -> int:
        """Return where the next record begins in ``[low, stop)``; ``stop`` if there is none."""
        size = SHORT
        while low < stop:
            self.session.check_cancelled()
            wanted = min(size, stop - low + 3, self.end - low)
            # Where one begins right behind the other, the bytes of the one before are at hand.
            block = self._window.at_hand(low, wanted) if size == SHORT else self.data.read_known(low, wanted)[0]
            for match in _RECORDS.finditer(block):
                at = low + match.start()
                if at >= stop:
                    break
                if (members or match[0] != LOCAL) and self._is_record(at, match[0]):
                    return at
            if len(block) < 4:
                break
            low += len(block) - 3
            size = min(4 * size, BLOCK)
        return stop

    def _is_record(self, at: int, signature: bytes) -> bool:
        if signature == LOCAL:
            return self.header_at(at) is not None
        if signature == CENTRAL:
            entry = self._entry_at(at)
            return entry is not None and entry.is_sane()
        if signature == END:
            record = read_end(self.read(at, 22)[0])
            return record is not None and (record.size <= at - self.start or record.needs_64)
        return int.from_bytes(self.read(at + 4, 8)[0], "little") < 1 << 20

    def is_boundary(self, pos: int) -> bool:
        """Say whether a member may end at ``pos``."""
        if pos >= self.end:
            return pos == self.end
        signature, unknown = self.read(pos, 4)
        if not unknown and signature in _BOUNDARIES:
            return True
        if signature == LOCAL and self.header_at(pos) is not None:
            return True
        return self.listed_at(pos, meant=False) is not None

    def record_length(self, pos: int) -> int:
        """Return the length of the directory record at ``pos``; 0 if there is none."""
        signature, unknown = self.read(pos, 4)
        if unknown or signature[:2] != b"PK":
            return 0
        if signature == CENTRAL:
            entry = self._entry_at(pos)
            return entry.length if entry is not None and entry.is_sane() else 0
        if signature == END:
            record = read_end(self.read(pos, 22)[0])
            if record is None:
                return 0
            # A damaged length must not hide what follows.
            return self.next_record(pos + 22, min(pos + record.length, self.end)) - pos
        if signature == LOCATOR:
            return LOCATOR_SIZE
        length = {
            END64: 12 + int.from_bytes(self.read(pos + 4, 8)[0], "little"),
            SIGNATURE: 6 + int.from_bytes(self.read(pos + 4, 2)[0], "little"),
            EXTRA_DATA: 8 + int.from_bytes(self.read(pos + 4, 4)[0], "little"),
        }.get(signature, 0)
        follows = self.read(pos + length, 4)[0] if length else b""
        return length if follows in (LOCATOR, END, END64, CENTRAL) else 0
