"""`JsonText`: the text of a JSON document: where its value begins, and the texts of children."""

from __future__ import annotations

from pparse.data.range_status import cut_status
from pparse.errors import DataError, LimitError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.parsers.json.text import (
    BLANK,
    BOM,
    BORN_LOADED,
    CLOSER,
    DECODE_BATCH,
    KEY,
    KINDS,
    NOT_FINITE,
    NUMBER_START,
    STRING,
    WHITESPACE,
    ChildText,
    StrictDecoder,
    unsupported_code,
)
from pparse.tree.entry import UNLOADED_VALUE, Entry
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Final

    from pparse.tree.result import Result

# Children with longer text are described from its two ends.
_WHOLE_CHILD: Final = 4 << 10
_HEAD: Final = 512
GROUP_READ: Final = 256 << 10


class JsonText(Parser):
    """A parser of JSON text, as those see it who read the text without nodes."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.decoder = StrictDecoder(result.extraction.session.limits)
        self.decoder.is_lenient = True
        # Pattern of the members of the first level with their keys, if a format has one: finds them behind damage.
        self.member: re.Pattern[bytes] | None = None
        self.is_all_there = False  # the text has its full length: if it ends early, it was damaged
        self.headless: Finding | None = None  # set if the text lacks its first bracket

    # -- the root ----------------------------------------------------------------------------------------------------

    def first_text(self) -> Entry | tuple[int, bytes]:
        """Return where the first value begins, after whitespace and a byte order mark, and how; or what is there
        instead of JSON text."""
        extraction = self.result.extraction
        start = pos = extraction.start
        data, size = extraction.data, extraction.find_end()
        block = data.pread(pos, min(4096, max(0, size - pos)))
        if block.startswith(BOM):
            reason = "a byte order mark, which JSON text must not have (RFC 8259 §8.1)"
            self.note("byte-order-mark", reason, pos, 3, severity=Severity.WARNING)
            pos += 3
            block = block[3:]
        elif self.member is None and (
            block[:2] in (b"\xff\xfe", b"\xfe\xff")
            or (any(block[:4]) and b"\0\0" in (block[0:3:2], block[1:4:2]))  # ASCII in two or four bytes a character
        ):
            finding = self.note("malformed", "the text is UTF-16 or UTF-32; JSON is UTF-8 (RFC 8259 §8.1)", pos, 2)
            return Entry(None, "invalid", start, size, status=Status.DAMAGED, finding=finding)
        elif BOM.startswith(block):
            block = b""  # a cut mark
        step = 4096
        while block and not (text := block.lstrip(WHITESPACE)):
            pos += len(block)
            step = min(step * 4, GROUP_READ)
            block = data.pread(pos, min(step, max(0, size - pos)))
        if not block:
            finding = self.note("truncated", "the document is empty", size)
            return Entry(None, "unknown", size, size, status=Status.TRUNCATED, finding=finding)
        return pos + len(block) - len(text), text

    def root_entry(self) -> Entry:
        """Find where the value of the document begins, and what it is."""
        first = self.first_text()
        if isinstance(first, Entry):
            return first
        (pos, text), size = first, self.result.extraction.find_end()
        kind = KINDS.get(text[0])
        if self.member is not None and kind != "object":
            return self._damaged_object(pos, text)
        if kind is None:
            finding = self.note("malformed", "expected a value", pos)
            return Entry(None, "invalid", pos, size, status=Status.DAMAGED, finding=finding)
        if kind in CLOSER:
            return Entry(None, kind, pos, None, status=None)
        return self._root_scalar(kind, pos, size)

    def _root_scalar(self, kind: str, pos: int, size: int) -> Entry:
        size = self.without_blanks(pos, size)
        if size - pos > DECODE_BATCH:
            if kind == "string":
                return Entry(None, kind, pos, size, status=None)
            excess = self.note("malformed", f"more data than a {kind} can have", pos, size - pos)
            return Entry(None, "invalid", pos, size, status=Status.DAMAGED, finding=excess)
        text = self.result.extraction.data.read_exact(pos, size - pos)
        stop = len(text.rstrip(WHITESPACE))
        status, value = Status.COMPLETE, UNLOADED_VALUE
        finding: Finding | None = None
        try:
            value = self.decoder.decode(text[:stop], pos)
            if self.decoder.odd_numbers:
                self.note("not-finite", NOT_FINITE, pos, stop, severity=Severity.WARNING)
        except (LimitError, UnsupportedError) as error:
            status, finding = Status.UNSUPPORTED, self.note(unsupported_code(error), error.reason, pos, stop)
        except DataError as error:
            if kind == "string":
                cut = STRING.match(text) is None
            elif kind == "number":
                cut = NUMBER_START.fullmatch(text) is not None
            else:
                cut = kind.encode().startswith(text)
            status = cut_status(damaged=not cut)
            finding = self.note("truncated" if cut else "malformed", error.reason, error.offset or pos)
        return Entry(None, kind, pos, pos + stop, value, status, finding)

    def _damaged_object(self, pos: int, text: bytes) -> Entry:
        """Return the root for a format whose text must be an object, and whose opening brace is damaged."""
        assert self.member is not None  # noqa: S101 -- the caller looked
        if self.member.search(text) is None:
            kind = KINDS.get(text[0], "invalid")
            if kind in CLOSER:
                return Entry(None, kind, pos, None, status=None)
            return Entry(None, kind, pos, self.result.extraction.find_end(), status=Status.DAMAGED)
        self.headless = self.note("malformed", "expected '{'", pos, 1)
        return Entry(None, "object", pos - text.startswith(b'"'), None, status=None)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def child_text(self, start: int, end: int, is_map: bool) -> ChildText:
        """Read the text of a child, or only the ends that `ChildText` needs if it is long."""
        data = self.result.extraction.data
        if end - start <= _WHOLE_CHILD:
            return ChildText(data.pread(start, end - start), start, end)
        size = _HEAD
        raw = data.pread(start, size)
        name_limit = self.result.extraction.session.limits.name_bytes
        # A gap ends what can be read.
        while is_map and KEY.match(raw) is None and size <= len(raw) < min(name_limit, end - start):
            size = min(8 * size, name_limit, end - start)
            raw = data.pread(start, size)
        skipped = 0
        match = KEY.match(raw) if is_map else BLANK.match(raw)
        if match is not None and len(raw) - match.end() < BORN_LOADED:
            value_at = self.skip_blank(start + match.end(), end)
            skipped = value_at - start - match.end()
            raw = raw[: match.end()] + data.pread(value_at, min(_HEAD, end - value_at))
        tail_at, tail, step = end, b"", 64
        while not tail.strip(WHITESPACE + b"\0") and tail_at > start:
            stop, tail_at = tail_at, max(start, tail_at - step)
            tail = data.pread(tail_at, stop - tail_at)
            step = min(step * 8, GROUP_READ)
        return ChildText(raw, start, end, tail, tail_at, skipped)

    def without_blanks(self, start: int, end: int) -> int:
        """Return where the text before ``end`` ends without trailing whitespace."""
        data = self.result.extraction.data
        while end > start:
            at = max(start, end - DECODE_BATCH)
            kept = data.pread(at, end - at).rstrip(WHITESPACE)
            if kept:
                return at + len(kept)
            end = at
        return end

    def skip_blank(self, start: int, end: int) -> int:
        """Return the offset of the first byte in ``[start, end)`` that is not whitespace; ``end`` if there is none."""
        data = self.result.extraction.data
        step = 256
        while start < end:
            block = data.pread(start, min(step, end - start))
            rest = block.lstrip(WHITESPACE)
            if rest or not block:
                return start + len(block) - len(rest)
            start += len(block)
            step = GROUP_READ
        return end
