"""Finds the length of a safetensors header if the length in the file is wrong."""

from __future__ import annotations

from array import array
from math import prod

from pparse.document.extraction import extraction_of
from pparse.findings import Finding
from pparse.lazy import lazy_pattern
from pparse.parsers.safetensors.header import METADATA, REFERENCE_HEADER_LIMIT, STORED_DTYPES, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.host import Host
    from pparse.tree.result import Result

TAIL: Final = 64
ODD_TAIL: Final = 1
SPACE_FOLLOWS: Final = 2
# The most bytes that may have been inserted into a damaged header.
_MOST_ADDED: Final = 4096
_OVERLAP: Final = 4096
# The beginning of a tensor's entry, as all writers format it.
_ENTRY: Final = lazy_pattern(
    rb'"dtype":\s*+"([A-Z0-9_]++)",\s*+"shape":\s*+\[([0-9]*+(?:,\s*+[0-9]++)*+)\],'
    rb'(?:\s*+"data_offsets":\s*+\[([0-9]++),)?+'
)
_OFFSETS: Final = lazy_pattern(rb'"data_offsets":\s*+\[([0-9]{1,18}+),\s*+([0-9]{1,18}+)\]')
_SCAN_BLOCK: Final = 256 << 10


class LengthFinder:
    """Finds where the header of a file ends, from its text and the tensors it names."""

    def __init__(self, result: Result) -> None:
        self.result = result
        """The tree of the file."""
        self.wrong: Finding | None = None
        """What is wrong with the length, as `determine` found."""
        self.adrift: str | None = None
        """Why it is unknown where tensors begin."""
        self.unproved = False
        """Whether the header may continue behind its length."""

    def determine(self, length: int, there: int) -> int:
        """Return the true length of a header whose declared length is ``length``; ``there`` bytes follow the length."""
        odd = self.oddity(length, there)
        if not odd:
            return length
        extraction, told = self.result.extraction, self.result.parser.finding_at
        found = self.find(there)
        if found is not None and found != length and odd == SPACE_FOLLOWS:
            self.adrift = "bytes were inserted in the header or after the data: it is unknown where tensors begin"
            found = length
        if found is None and length <= there:
            found = self.recount(length, there)
            if found is None and odd == ODD_TAIL:
                self.adrift = "the header's text does not end where its length says: it is unknown where tensors begin"
            if found == length:
                at = max(extraction.start, extraction.start + 8 + length - TAIL)
                self.wrong = told("malformed", "the header's text does not end properly", "", at, length=TAIL)
        self.unproved = found is None and odd == SPACE_FOLLOWS
        if found is None or found == length:
            return length
        reason = "the header's length is wrong: the tensors fit the file if it ends where its text does"
        self.wrong = told("malformed", reason, "", extraction.start, length=8, wanted=found, got=length)
        return found

    def oddity(self, length: int, there: int) -> int:
        """Return whether the header's text cannot end at its length, or may end behind it, and how; 0: neither."""
        if not 2 <= length <= there:
            return ODD_TAIL
        extraction = self.result.extraction
        end = extraction.start + 8 + length
        begin = max(extraction.start + 8, end - TAIL)
        block = extraction.data.known(begin, end - begin + 1)
        tail = block[: end - begin].rstrip()
        if tail and (tail[-1:] != b"}" or tail[:-1].rstrip()[-1:] not in (b"}", b"{")):
            return ODD_TAIL
        return SPACE_FOLLOWS if block[end - begin :] == b" " else 0

    def recount(self, length: int, there: int) -> int | None:
        """Return the length of a damaged header for which the last tensor ends with the file; None if there is none."""
        extraction = self.result.extraction
        start = extraction.start + 8
        stops, behind = self._possible_ends(start, min(start + length + _MOST_ADDED, start + there))
        lengths = {there - stop for stop in stops if there - stop >= 2}
        if length in lengths:
            wanted = min(_SCAN_BLOCK, max(0, start + length - behind))
            rest = extraction.data.known(behind, wanted)
            if len(rest) < wanted:
                return None
            # Otherwise there is one more entry, which cannot be read.
            return length if b'":' not in rest.replace(b'"data_offsets":', b"") else None
        found = [size for size in lengths if self._ends_there(start, size)]
        return found[0] if len(found) == 1 else None

    def _ends_there(self, start: int, length: int) -> bool:
        """Return whether the text of a header ends ``length`` bytes after ``start``, spaces included."""
        tail = self.result.extraction.data.known(start + max(0, length - TAIL), min(length, TAIL) + 1)
        return tail[-1:] != b" " and tail[: min(length, TAIL)].rstrip(b" ").endswith(b"}")

    def _possible_ends(self, start: int, stop: int) -> tuple[set[int], int]:
        """Return where the last tensor may end, counted from the start of the data, according to the readable entries.

        Also return the offset after the last of those entries.
        """
        data, ends, last = self.result.extraction.data, {0}, 0
        pos = behind = start
        pairs = 0  # where the last readable data_offsets end, even if their entry is damaged
        while pos < stop:
            block = data.known(pos, min(_SCAN_BLOCK, stop - pos))
            for found in _ENTRY.finditer(block):
                dtype, shape = STORED_DTYPES.get(found[1].decode()), found[2].split(b",")
                if dtype is None or any(len(size) > 18 for size in shape):
                    continue
                behind = max(behind, pos + found.end())
                size = prod(int(length) for length in shape if length) * dtype.bits // 8
                if found[3] and len(found[3]) < 19:
                    last = max(last, int(found[3]) + size)
                    ends = {last}
                else:
                    ends = {last, last + size}
            for found in _OFFSETS.finditer(block):
                if int(found[1]) <= int(found[2]):
                    pairs = max(pairs, int(found[2]))
                    behind = max(behind, pos + found.end())
            if pos + len(block) >= stop or not block:
                break
            pos += max(1, len(block) - _OVERLAP)
        return ends | {pairs} if pairs else ends, behind

    def find(self, there: int) -> int | None:
        """Return the length with which the tensors fill the file from the end of the header's text; None if none."""
        from pparse.kernels import json_fold

        extraction = self.result.extraction
        start = pos = extraction.start + 8
        limit = min(start + there, start + REFERENCE_HEADER_LIMIT)
        carry, commas, closed = json_fold.Carry(), array("q"), -1
        with extraction.session.budget.charge(2 * _SCAN_BLOCK, "searching the end of the header"):
            if extraction.data.known(start, 1) != b"{":
                return None
            pos += 1
            while closed < 0 and pos < limit:
                block = extraction.data.known(pos, min(_SCAN_BLOCK, limit - pos))
                if not block or b"\0" in block[:1]:
                    return None
                closed = json_fold.scan(block, 0, carry, pos, commas)
                del commas[:]
                pos += closed + 1 if closed >= 0 else len(block)
        return self._filling(start, pos, start + there) if closed >= 0 else None

    def _filling(self, start: int, stop: int, end: int) -> int | None:
        """Return the length of a header with text in ``[start, stop)`` if its tensors fill the file to ``end``."""
        extraction = extraction_of(self.result)
        child = extraction.child("header-found", extraction.data, start, stop, "json")
        json: JsonParser = child.parse().parser  # type: ignore[assignment]
        begins, ends = array("q"), array("q")
        for _, name, fields, entry in json.each_member(json.result.root):
            if name == METADATA:
                continue
            info = checked(fields)
            if entry is not None or info.problem is not None or info.end > end - stop:
                return None
            begins.append(info.begin)
            ends.append(info.end)
        if not begins or not json.result.is_complete:
            return None
        data_start = end - max(ends)
        if sorted([0, *ends]) != sorted([*begins, max(ends)]) or data_start - stop > _SCAN_BLOCK:
            return None
        between = extraction.data.known(stop, data_start - stop)
        if len(between) < data_start - stop or between.strip(b" \t\n\r"):
            return None
        return data_start - start


def last_end(result: Result, length: int) -> int | None:
    """Return where the tensor of the last entry ends in a header of that ``length``; None if unknown."""
    extraction = result.extraction
    end = extraction.start + 8 + length
    begin = max(extraction.start + 8, end - _OVERLAP)
    found = _OFFSETS.findall(extraction.data.known(begin, end - begin))
    return int(found[-1][1]) if found else None


def zeroed_header(extraction: Host) -> Finding | None:
    """Return a finding if the file begins with zeros in place of its header."""
    size = extraction.size
    head = extraction.data.pread(extraction.start, 8 if size is None else min(8, size))
    if len(head) < 8 or any(head):
        return None
    end = extraction.find_end()  # only now: the end of a compressed stream may be far
    zeros, step = extraction.start, 4096
    while zeros < end:
        block = extraction.data.pread(zeros, min(step, end - zeros))
        rest = block.lstrip(b"\0")
        zeros += len(block) - len(rest)
        if rest or zeros - extraction.start > 16 << 20:
            break
        step = 256 << 10
    count = zeros - extraction.start
    more = " or more" if zeros < end and count > 16 << 20 else ""
    reason = f"the file begins with {count}{more} zero bytes in place of its header: that part was never written"
    return Finding("zeroed-header", reason, source=extraction.name, offset=extraction.start, length=count)
