"""JSON Lines (NDJSON), and JSON documents one after another: a list of rows, each of which is a document of its own.

States of the root::

    state            reads                                  goes to
    expect_children  text up to the end of the block; a     itself, until the data end
                     row is visible once its end is seen

Rules: where rows end is found without reading them: at a line break (JSON text has none in its strings), else at the
bracket that closes a document. Each row is decoded when it is listed. One that is not JSON is DAMAGED, under its own
number, and does not touch the others, unless it may be two rows, or half of one: then the numbers of the rows behind it
are uncertain. That is found while rows are indexed, so whoever asks for a row by its number hears of it. A row that
just ends early, with a sound one behind it, is one. Of documents on several lines, one without an end holds all behind
it: it is TRUNCATED, or DAMAGED if whole ones follow. Up to 256 KiB all rows are looked at before the first is shown.
Everything below a row is `JsonParser`'s.

Facts: jsonlines.org and the NDJSON specification: UTF-8, ``\\n`` ends a row, ``\\r`` before it is whitespace, and blank
lines are skipped by most readers.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from itertools import chain, islice, pairwise

from pparse.data.base import is_utf8
from pparse.data.index_files import find_index
from pparse.document.extraction import extraction_of
from pparse.errors import DataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.kernels import json_fold
from pparse.kernels.json_fold import Carry
from pparse.lazy import lazy_pattern
from pparse.parsers.json.damage import LOOK_FIRST, Damage
from pparse.parsers.json.parser import GROUP_READ, IndexScan, JsonParser
from pparse.parsers.json.record import Unsure
from pparse.parsers.json.text import BLANK, BOM, KINDS, NOT_FINITE, WHITESPACE, ChildText
from pparse.parsers.json.walk import TextWalk, row_visits, tokens
from pparse.tree.entry import LIST, SCALAR, UNLOADED_VALUE, Entry
from pparse.tree.parser import Confidence, Listing, signatures
from pparse.tree.row_index import RowIndex
from pparse.tree.visit import Member, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, Final

    from pparse.data.base import Range
    from pparse.tree.context import NodeContext, State
    from pparse.tree.index import ChildIndex
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result


# Between two documents there is no comma.
_ADJOINING: Final = lazy_pattern(rb"[}\]][ \t\r\n]*[{\[]")
# The same in a row that is wrong, with up to two other bytes in between.
_ADJOINED: Final = lazy_pattern(rb"[}\]][^,:]{0,2}[{\[]", re.DOTALL)
# What a value that is cut may end in behind what is sound: nothing, a comma, or a part of a word or number.
_LAST_WORD: Final = lazy_pattern(r",?[ \t]*[-+.\w]*")
_OPENER: Final = lazy_pattern(rb"[{\[]")
_FIRST_COLUMN: Final = lazy_pattern(rb"\n[{\[]")
# At how many places a whole document is looked for.
_PLACES: Final = 16
_CONTROL: Final = bytes(range(32)).translate(None, WHITESPACE)
# How many levels are looked at in `are_plain`, which costs one pass each.
_ROUNDS: Final = 24


def find_lines(block: bytes, pos: int, carry: Carry, base: int, out: array[int]) -> int:
    """Append to ``out`` the offset behind each line that is not blank, as far as its end is in ``block[pos:]``.

    ``carry.in_string`` tells whether the line that ``pos`` is in has begun before. Returns -1: no bracket ends a list.
    """
    find, append = block.find, out.append
    begun = carry.in_string
    while (at := find(b"\n", pos)) >= 0:
        if not begun and block[pos] in WHITESPACE:  # blank lines, perhaps many
            match = BLANK.match(block, pos)
            pos = match.end() if match is not None else pos
            if pos > at:
                continue
        append(base + at + 1)
        begun = 0
        pos = at + 1
    carry.in_string = int(bool(begun or block[pos:].strip(WHITESPACE)))
    return -1


def find_documents(block: bytes, pos: int, carry: Carry, base: int, out: array[int]) -> int:
    """Append to ``out`` the offset behind each bracket that closes a document in ``block[pos:]``. Returns -1."""
    size = len(block)
    document, opener = json_fold.nested(), _OPENER.search
    while pos < size:
        if carry.depth == 1:
            match = opener(block, pos)
            if match is None:
                break
            whole = document(block, match.start())
            if whole is not None:
                pos = whole.end()
                out.append(base + pos)
                continue
            carry.depth, carry.in_string, carry.escaped = 2, 0, 0
            pos = match.end()
        pos = json_fold.leave_nested(block, pos, carry)
        if carry.depth == 1:
            out.append(base + pos)
    return -1


def is_document(line: bytes) -> bool:
    """Return whether a line is an object or array of its own."""
    line = line.strip(WHITESPACE)
    return line[:1] in (b"{", b"[") and line[-1:] in (b"}", b"]") and is_json(line)


def is_json(line: bytes) -> bool:
    """Return whether a line is a JSON value of its own."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def odd_row(raw: bytes) -> str | None:
    """Return what is wrong with the text of a row that is sound but for what writers put around it."""
    text = raw.strip(WHITESPACE)
    if not text.strip(WHITESPACE + b"\0"):
        return "zeros, where a row was never written or is lost"
    if text.startswith(BOM) and is_json(text[len(BOM) :]):
        return "a byte order mark before the row"
    return "a comma behind the row" if text.endswith(b",") and is_json(text[:-1]) else None


def is_foreign(raw: bytes) -> bool:
    """Return whether a wrong row is a line of other text, as of a log, which is no row that it may have been, nor the
    end of one or its beginning: the numbers of rows behind it are those of lines."""
    text = raw.strip(WHITESPACE)
    begins, ends = text[:1] in (b"{", b"["), text[-1:] in (b"}", b"]")
    clean = len(text.translate(None, _CONTROL)) == len(text) and "\ufffd" not in text.decode(errors="replace")
    return clean and not begins and not ends


def is_followed(text: bytes) -> bool:
    """Return whether a document ends in ``text``, and another one begins behind it."""
    if _ADJOINING.search(text) is None:
        return False
    found = array("q")
    find_documents(text, 0, Carry(), 0, found)
    follower = text[found[0] :].lstrip(WHITESPACE)[:1] if found else b""
    return follower in (b"{", b"[") and is_document(text[: found[0]])


def find_follower(text: bytes) -> int:
    """Return where, in the text from a document on that has no end, whole documents begin again in the first column, as
    this one does; -1 if none is seen. Elements of a list are none: a comma or a bracket is behind them.

    Only the first of some places are tried, which bounds the time.
    """
    before = text[: len(text) - len(text.lstrip(WHITESPACE))]
    if before and not before.endswith(b"\n"):
        return -1
    for match in islice(_FIRST_COLUMN.finditer(text, len(before)), _PLACES):
        if is_followed(text[match.end() - 1 :]):
            return match.end() - 1
    return -1


def is_one(raw: bytes) -> bool:
    """Return whether the text of a wrong row is of just one row: it begins and ends as one, and not in between."""
    text = raw.strip(WHITESPACE).removeprefix(BOM)
    text = text[:-1] if text.endswith((b"},", b"],")) else text
    closer = {b"{": b"}", b"[": b"]"}.get(text[:1])
    if closer is None or text[-1:] != closer or len(text.translate(None, _CONTROL)) < len(text) - 1:
        return False
    if text.decode(errors="replace").count("\ufffd") > 1:
        return False
    found = array("q")
    find_documents(text, 0, Carry(), 0, found)
    return found[0] == len(text) if found else _ADJOINED.search(text) is None


def is_cut(raw: bytes) -> bool:
    """Return whether the text of a wrong row begins as one, and just ends early: inside of a string, or outside of one
    if all before is sound.

    If the next line is a sound row, this one was just cut: no string has a line break in it, and a row that one broke
    in two has the brackets that are missing here in its second part. A text that ends with a bracket may be two rows.
    """
    text, carry, found = raw.strip(WHITESPACE).removeprefix(BOM), Carry(), array("q")
    if text[:1] not in (b"{", b"[") or len(text.translate(None, _CONTROL)) < len(text):
        return False
    find_documents(text, 0, carry, 0, found)
    decoded = text.decode(errors="replace")
    if found or decoded.count("\ufffd") > 1:
        return False
    return bool(carry.in_string) or (text[-1:] not in (b"}", b"]") and _ends_early(decoded))


def _ends_early(text: str) -> bool:
    """Return whether a text is the beginning of a JSON value: what is wrong is its end, or the word that it ends in."""
    try:
        json.loads(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        return _LAST_WORD.fullmatch(text, error.pos) is not None
    return False


def are_plain(lines: bytes, count: int) -> bool:
    """Return whether each of ``count`` lines, all of which end in a line break, is surely no more and no less than one
    row: an object, or an array, by its brackets and quotes. What else is wrong in it makes no number uncertain.

    Some passes over all of the text at once, a twentieth of the time of decoding it.
    """
    text = b"\n" + (lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines)
    braces = text.count(b"\n{")
    first, last = (b"\n{", b"}\n") if braces else (b"\n[", b"]\n")
    if text.count(first) != count or text.count(last) != count or len(text.translate(None, _CONTROL)) < len(text):
        return False
    if not text.isascii() and not is_utf8(text):
        return False
    outside = json_fold.brackets_outside(text, b"\n")
    if outside.count(b"\n") != text.count(b"\n"):
        return False  # a string goes on in the next line
    inside = outside.replace(b"\n[", b"\n").replace(b"]\n", b"\n")
    for _ in range(_ROUNDS):
        shorter = inside.replace(b"[]", b"")
        if len(shorter) == len(inside):
            break
        inside = shorter
    return not inside.strip(b"\n")


# Rows up to this long are decoded when they are listed; of longer ones the brackets at both ends must do.
_DECODED: Final = 64 << 10
# Rows that are decoded together.
_BATCH: Final = 512
# How many beginnings of rows in an index file are compared with the text before them, and what may be there.
_SAMPLES: Final = 64
_BEFORE_ROWS: Final = frozenset((b"\n", b"\r", b" ", b"\t", b"}", b"]"))
# How many rows tell whether a text is JSON Lines.
_TRIED: Final = 8
_BETWEEN: Final = os.urandom(8).hex().encode()
_HEAD: Final = 64 << 10
_OPENERS: Final = b"{["
# Of how many wrong rows it is remembered what is wrong.
_MOST_WRONG: Final = 10_000


class RowDamage(Damage):
    """What is known of wrong rows. Rows are apart: damage of one is not mended with the help of others."""

    def __init__(self, parser: JsonParser) -> None:
        super().__init__(parser)
        self._mended = {}
        self.wrong: dict[int, Finding] = {}
        """What is wrong with rows, by where they begin."""

    def note(self, start: int, finding: Finding, end: int, *, shifts: bool) -> None:
        """Note that the row at ``start`` is wrong. ``shifts``: it may be more or less than one, so that the numbers of
        the rows up to ``end`` are uncertain."""
        if start in self.wrong or len(self.wrong) >= _MOST_WRONG:
            return
        self.wrong[start] = finding
        root = self._result.root
        if root.known_status is Status.COMPLETE:
            self._result.close_node(root, Status.DAMAGED, finding, told=True)  # it is told under the row's path
        if shifts and not self.unsure:
            self.begin_unsure(start, end)

    def begin_unsure(self, start: int, end: int) -> None:
        """Note that the numbers of the rows behind that at ``start``, up to ``end``, are uncertain."""
        self.unsure = [Unsure(-1, start, start + 1, end)]
        self._result.findings.add(self.unsure[0].finding(self._result.extraction.name))


class JsonLinesParser(JsonParser, Listing):
    """A list of JSON documents."""

    name = "json-lines"
    description = "JSON Lines: a JSON document a line, or one after another"
    extensions: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".jsonlines", ".geojsonl")
    signatures = signatures(*(bytes((byte,)) for byte in _OPENERS + WHITESPACE), BOM)
    is_generic = False
    refines = ("json",)
    media_type = "application/jsonl"
    references: ClassVar[tuple[str, ...]] = ("jsonlines.org", "RFC 8259")
    limitations: ClassVar[tuple[str, ...]] = (
        "rows that are no objects or arrays are recognised by the file's extension, or with -f",
        "a file that is cut between two rows looks whole",
        "bytes that went with a line break may leave one row of two, without a trace",
        *JsonParser.limitations[1:],
    )
    options: ClassVar[dict[str, str]] = {
        "index": "the index of the file: auto (default: FILE.pindex or the cache), none, or the path of one"
    }
    keeps_row_index = True
    shapes: ClassVar[dict[str, str]] = {"rows": LIST, "documents": LIST, **JsonParser.shapes}
    separators: ClassVar[dict[str, int]] = {"documents": 0}
    damage: RowDamage

    # -- recognising -------------------------------------------------------------------------------------------------

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if most of the first lines are objects or arrays of their own, or a second one follows the first.

        By its extension POSSIBLE if any is JSON, or begins so; but not for one list that is written on many lines.
        """
        named = excerpt.ends_with(cls.extensions)
        for size in (4 << 10, 64 << 10):
            head = excerpt.head(size)
            text = head.removeprefix(BOM).lstrip(WHITESPACE)
            if not named and (not text or text[0] not in _OPENERS):
                return Confidence.NO
            lines = [line for line in text.split(b"\n") if line.strip(WHITESPACE)][: _TRIED + 1]
            if lines and len(head) == size and len(lines) <= _TRIED:
                lines.pop()  # the excerpt ends in it
            sound = sum(map(is_document, lines[:_TRIED]))
            if sound >= (1 if named else 2) and 3 * sound >= 2 * len(lines[:_TRIED]):
                return Confidence.LIKELY
            if is_followed(text):
                return Confidence.LIKELY
            if sound or len(head) < size:
                break
        first = next(iter(lines), b"").strip(WHITESPACE)
        if not named or (first[:1] == b"[" and (len(first) == 1 or first[-1:] == b",")):
            return Confidence.NO
        begun = not text.strip(WHITESPACE) or text[0] in _OPENERS or sound > 0 or is_json(first)
        return Confidence.POSSIBLE if begun else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """LIKELY if the first line is a document too long for the excerpt, and another one begins behind it."""
        head = excerpt.head(_HEAD)
        if len(head) < _HEAD or b"\n" in head or head.removeprefix(BOM).lstrip(WHITESPACE)[:1] not in (b"{", b"["):
            return Confidence.NO
        text = reader.peek(1 << 20).removeprefix(BOM)
        end = text.find(b"\n")
        follows = text[end:].lstrip(WHITESPACE)[:1]
        likely = end > 0 and follows and follows in _OPENERS and text[:end].rstrip(WHITESPACE)[-1:] in (b"}", b"]")
        return Confidence.LIKELY if likely else Confidence.NO

    # -- the root ----------------------------------------------------------------------------------------------------

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.damage = RowDamage(self)
        self._is_surveyed = False
        self._rest = 0, b""  # where the first row begins that was not, and as much of it as the block had
        self._surveyed = 0  # rows up to this offset were looked at: whether any makes numbers uncertain is known
        self._repeats: tuple[int, int] | None = None  # the first row with a repeated key, and where it begins

    def root_entry(self) -> Entry:
        """Describe the root: a list of rows, each on a line, or of documents that are told apart by their brackets."""
        first = self.first_text()
        if isinstance(first, Entry):
            return first
        start, end = first[0], self.result.extraction.find_end()
        head = self.result.extraction.data.read_known(start, min(_HEAD, end - start))[0]
        apart = not is_document(head.partition(b"\n")[0]) and is_followed(head)  # by brackets, not by lines
        return Entry(None, "documents" if apart else "rows", start, None, status=None)

    def begin(self, ctx: NodeContext) -> tuple[int, State, int]:
        """Begin with the first row, or inside of one."""
        if ctx.node.parent is not None:
            return super().begin(ctx)
        first = self._take_kept_index(ctx)
        ctx.scratch = IndexScan(self._choose_kernel(ctx.node), first)
        return first, self.expect_children, 1

    def _take_kept_index(self, ctx: NodeContext) -> int:
        """Index what an index file tells of the rows; return where the first one begins that it does not tell."""
        extraction, index, start = extraction_of(self.result), ctx.index, ctx.node.start
        if extraction.parent is not None or not extraction.data.is_file or index is None:
            return start
        session = extraction.session
        option = str(session.options.get("index", "auto"))
        source = extraction.reader
        kept, errors = find_index(RowIndex, source, session.budget, session.pool, session.stats, option=option)
        if kept is not None:
            kept.close()
            some = kept.offsets[1 :: len(kept.offsets) // _SAMPLES + 1]
            before = {source.data.known(offset - 1, 1) for offset in some}
            if kept.offsets[0] == start and before <= _BEFORE_ROWS:
                index.restore(kept.offsets)
                self._surveyed = max(self._surveyed, kept.offsets[-1])
                if kept.unsure_from is not None and not self.damage.unsure:
                    self.damage.begin_unsure(kept.unsure_from, extraction.find_end())
                return kept.offsets[-1]
            errors.append(MalformedError("it is of rows that begin elsewhere", source=kept.name))
        for error in errors:
            reason = f"the index is not used: {error.reason}"
            found = Finding("index", reason, source=error.source or option, severity=Severity.WARNING)
            self.result.findings.add(found)
        return start

    def _choose_kernel(self, node: Node) -> Callable[[bytes, int, Carry, int, array[int]], int]:
        if node.parent is not None:
            return super()._choose_kernel(node)
        return find_lines if node.kind == "rows" else find_documents

    def cut(self, ctx: NodeContext) -> None:
        """Close the root: the data end where a row does, or inside of the last one."""
        if ctx.node.parent is not None:
            super().cut(ctx)
            return
        end = self.result.extraction.find_end()
        self._take_last(ctx, end)
        index = ctx.index
        status, finding = Status.COMPLETE, None
        if index.note:
            path = f"[{index.count - 1}]"
            status, finding = Status.TRUNCATED, self.note("truncated", "the row ends early", end, path=path)
        if self.damage.wrong:
            status, finding = Status.DAMAGED, next(iter(self.damage.wrong.values()))
        elif self.damage.unsure:
            status, finding = Status.DAMAGED, self.damage.unsure[0].finding(self.result.extraction.name)
        self.result.close_node(ctx.node, status, finding, end=end)

    def resync(self, ctx: NodeContext, error: MalformedError) -> tuple[int, State, int] | None:
        """Go on behind a gap: the row that it is in is lost, and perhaps others."""
        if ctx.node.parent is not None:
            return super().resync(ctx, error)
        data = self.result.extraction.data
        gap = data.next_gap(ctx.pos)
        if gap is None or gap.end is None or gap.end >= self.result.extraction.find_end():
            self._take_last(ctx, error.offset if error.offset is not None else ctx.pos)
            self.result.close_node(ctx.node, Status.DAMAGED, None, end=error.offset)
            return None
        ctx.scratch.carry = Carry()
        ctx.scratch.carry.in_string = 1  # the row has begun, though perhaps in the gap
        return gap.end, self.expect_children, 1

    def _take_last(self, ctx: NodeContext, end: int) -> None:
        """Index the row behind the last that ended, if there is one; note whether it is cut."""
        scan: IndexScan = ctx.scratch
        index = ctx.index
        start, separator = scan.pending, self.separators.get(ctx.node.kind, 1)
        text, _ = self.result.extraction.data.read_known(start, min(GROUP_READ, end - start))
        if text.strip(WHITESPACE) or end - start > GROUP_READ:
            index.add(start)
            index.note = self._is_open(start, end) or None
            follower = find_follower(text) if index.note and ctx.node.kind == "documents" else -1
            if follower > 0:
                reason = f"its end is lost: whole documents begin again at byte {start + follower}"
                name, path = self.result.extraction.name, f"[{index.count - 1}]"
                finding = Finding("malformed", reason, path=path, source=name, offset=start)
                self.result.findings.add(finding)
                self.damage.note(start, finding, end, shifts=True)
                index.note = None
            elif not index.note and end - start <= GROUP_READ:
                self._wrong_in(text, start, end, index.count - 1)
            start = end + separator
        index.end = start - 1

    def _is_open(self, start: int, end: int) -> bool:
        """Return whether the text of the last row ends inside of its brackets or quotes."""
        data, carry, found = self.result.extraction.data, Carry(), array("q")
        while start < end and not found:
            block, _ = data.read_known(start, min(GROUP_READ, end - start))
            if not block:
                return True
            find_documents(block, 0, carry, start, found)
            start += len(block)
        return not found and carry.depth > 1

    @property
    def unsure_from(self) -> int | None:
        """Where the row begins behind which numbers are uncertain, as far as was read."""
        return self.damage.unsure[0].lost if self.damage.unsure else None

    # -- rows --------------------------------------------------------------------------------------------------------

    def child_text(self, start: int, end: int, is_map: bool) -> ChildText:
        """Read the text of a child, empty if it begins in a gap."""
        try:
            return super().child_text(start, end, is_map)
        except GapError:
            return ChildText(b"", start, end)

    def fill(self, node: Node, index: ChildIndex) -> bool:
        """Look at all rows of a short text, before the first is shown; index nothing."""
        if node.parent is None and not self._is_surveyed:
            self._is_surveyed = True
            start, size = node.start, self.result.extraction.find_end() - node.start
            if size <= LOOK_FIRST:
                text, _ = self.result.extraction.data.read_known(start, size)
                starts = array("q", [start])
                self._choose_kernel(node)(text, 0, Carry(), start, starts)
                self._judge_each(node, text, start, starts, 0)  # the last is told when the end is met
        return False

    def look_at(self, ctx: NodeContext, block: bytes, base: int, starts: array[int]) -> None:
        """Find the first row that makes the numbers behind it uncertain, while rows are indexed: so whoever asks for a
        row by its number hears of it, whatever else was read."""
        node, behind, damage = ctx.node, ctx.scratch.pending, self.damage
        if node.parent is not None or behind <= self._surveyed or damage.unsure or len(damage.wrong) >= _MOST_WRONG:
            return
        starts = array("q", [start for start in starts if start >= self._surveyed])
        self._surveyed = behind
        first = ctx.index.count - len(starts)
        bounds = array("q", [*starts, behind])
        (at, rest), self._rest = self._rest, (behind, block[behind - base :])
        if bounds[0] < base == at + len(rest) and at == bounds[0]:
            block, base = rest + block, at
        if bounds[0] < base:  # the first began in an earlier block
            extraction, size = self.result.extraction, bounds[1] - bounds[0]
            if size <= extraction.session.limits.leaf_bytes:
                self._survey(node, extraction.data.read_known(bounds[0], size)[0], bounds[:2], first)
            first += 1
            del bounds[0]
        if len(bounds) > 1:
            self._survey(node, block[bounds[0] - base : behind - base], bounds, first)

    def _survey(self, node: Node, text: bytes, bounds: array[int], first: int) -> None:
        """Look at the rows in ``text``, which lie within ``bounds``, for one that makes numbers uncertain."""
        data, start = self.result.extraction.data, bounds[0]
        gap = data.next_gap(start) if data.gaps else None
        if gap is None or gap.offset >= bounds[-1]:
            if node.kind == "rows" and are_plain(text, len(bounds) - 1):
                return
            rows = [text[at - start : end - start] for at, end in self._spans(node, bounds)]
            repeated, odd = self.decoder.duplicates, self.decoder.odd_numbers
            is_sound = self._decode_rows(rows, start, values=False) is not None
            self.decoder.duplicates, self.decoder.odd_numbers = repeated, odd
            if is_sound:
                return
        self._judge_each(node, text, start, bounds, first)

    def _spans(self, node: Node, bounds: array[int]) -> Iterator[tuple[int, int]]:
        """Yield where each of the rows begins and ends that lie within ``bounds``."""
        separator = self.separators.get(node.kind, 1)
        return ((start, behind - separator) for start, behind in pairwise(bounds))

    def _judge_each(self, node: Node, text: bytes, start: int, bounds: array[int], first: int) -> None:
        most = self.result.extraction.session.limits.leaf_bytes
        for ordinal, (at, end) in enumerate(self._spans(node, bounds), first):
            if end - at <= most:
                self._wrong_in(text[at - start : end - start], at, end, ordinal)

    def describe(self, node: Node, text: ChildText) -> Entry:
        """Return the entry of a child; a row is decoded, if it is not long."""
        entry = super().describe(node, text)
        if node.parent is None and entry.status is not Status.TRUNCATED:
            entry.finding = self._wrong_in(text.raw, text.at, text.end, None) or entry.finding
            if entry.finding is not None and entry.status is Status.COMPLETE:
                entry.status = Status.DAMAGED
        return entry

    def _wrong_in(self, raw: bytes, start: int, end: int, ordinal: int | None) -> Finding | None:
        """Return what is wrong with a row, by its text if ``raw`` is all of it; note it for whoever asks again."""
        known = self.damage.wrong.get(start)
        if known is not None:
            if ordinal is not None and not known.path:
                known.path = f"[{ordinal}]"
                self.result.findings.add(known)
            return known
        extraction = self.result.extraction
        gap = extraction.data.next_gap(start) if extraction.data.gaps else None
        offset: int | None = start
        if gap is not None and gap.offset < end:
            reason, offset = "bytes of it are lost", gap.offset
        elif len(raw) < end - start:
            return None
        else:
            repeated = self.decoder.duplicates
            try:
                self.decoder.decode_shallow(raw.strip(WHITESPACE), start + len(raw) - len(raw.lstrip(WHITESPACE)))
                return None
            except (LimitError, UnsupportedError):
                return None
            except DataError as error:
                reason, offset = odd_row(raw) or error.reason, error.offset
            finally:
                self.decoder.duplicates = repeated
        path = "" if ordinal is None else f"[{ordinal}]"
        finding = Finding("malformed", reason, path=path, source=extraction.name, offset=offset)
        if path:
            self.result.findings.add(finding)  # else `_entries` does, which knows the number
        root, behind = self.result.root, extraction.find_end()
        apart = root.kind == "rows"  # else a bracket too many is one more document
        one = end >= behind - 1 or (apart and is_one(raw))
        if apart and not one and is_foreign(raw):  # scalars are like other text, brackets are not
            near = (extraction.data.pread(at, 1) for at in (root.start, end + 1))
            one = any(byte in (b"{", b"[") for byte in near)
        if apart and not one and gap is None and is_cut(raw):
            following = extraction.data.read_known(end + 1, min(extraction.session.limits.leaf_bytes, behind - end - 1))
            one = is_document(following[0].lstrip(WHITESPACE).partition(b"\n")[0])
        self.damage.note(start, finding, behind, shifts=gap is not None or not one)
        return finding

    def _batches(
        self, node: Node, *, values: bool = True, first: int = 0
    ) -> Iterator[tuple[int, list[tuple[int, int]], list[bytes], list[Any] | None]]:
        """Yield ``(first, spans, rows, values)`` of some rows at a time: where they are, their text, empty if that is
        long or not all there, and their values, or without ``values`` what `StrictDecoder.skim` makes of them; None if
        one is wrong, or too deep."""
        session, data = self.result.extraction.session, self.result.extraction.data
        while True:
            session.check_cancelled()
            index = node.index_to(first + _BATCH)
            last = index.count - bool(index.complete and index.note)  # a cut row is told by its entry
            count = min(_BATCH, last - first)
            if count <= 0:
                return
            bounds = self._bounds(node, index, first, count)
            while count > 1 and bounds[count] - bounds[0] > GROUP_READ:
                count = max(1, count // 2)
            spans = list(self._spans(node, bounds[: count + 1]))
            begin, end = spans[0][0], spans[-1][1]
            text = data.pread(begin, end - begin) if end - begin <= session.limits.leaf_bytes and not data.gaps else b""
            rows = [text[start - begin : stop - begin] for start, stop in spans]
            repeated = self.decoder.duplicates
            yield first, spans, rows, self._decode_rows(rows, begin, values=values) if text else None
            if self.decoder.duplicates > repeated and self._repeats is None:
                at = self._first_repeating(rows)
                self._repeats = first + at, spans[at][0]
            first += count

    def _first_repeating(self, rows: list[bytes]) -> int:
        """Return the number of the first of some rows with an object in which a key occurs more than once."""
        known = self.decoder.duplicates
        try:
            for at, row in enumerate(rows):
                self.decoder.skim(row)
                if self.decoder.duplicates > known:
                    return at
            return 0
        finally:
            self.decoder.duplicates = known

    def _rows(
        self, node: Node, *, sound: bool = True, values: bool = False, first: int = 0
    ) -> Iterator[tuple[int, int, int, Any, Finding | None]]:
        """Yield ``(ordinal, start, end, value, finding)`` of all rows from ``first`` on, decoding many at a time.

        The value is `UNLOADED_VALUE` for a row that is wrong, or too long to be decoded with others. Without ``sound``,
        batches are left out in which all is in order; without ``values``, not all values are there, but something else
        than `UNLOADED_VALUE` is.
        """
        data = self.result.extraction.data
        for begin, spans, rows, found in self._batches(node, values=values, first=first):
            if found is not None:
                for at, value in enumerate(found if sound else ()):
                    yield begin + at, *spans[at], value, None
                continue
            for ordinal, (row, (start, end)) in enumerate(zip(rows, spans, strict=True), begin):
                if not row and end - start <= _DECODED:
                    row = data.read_known(start, end - start)[0]
                alone = self._decode_rows([row], start, values=values) if len(row) == end - start else None
                if alone is not None:
                    yield ordinal, start, end, alone[0], None
                else:
                    yield ordinal, start, end, UNLOADED_VALUE, self._wrong_in(row, start, end, ordinal)

    def _decode_rows(self, rows: list[bytes], offset: int, *, values: bool) -> list[Any] | None:
        """Return the values of some rows, or what `StrictDecoder.skim` makes of them; None if one is wrong or too deep.

        A word that no file knows stands between them: else one row that is two would make up for two that are one.
        """
        text = b"[%s]" % (b',"%s",' % _BETWEEN).join(rows)
        # Counting the brackets of each row is a quarter of the work of matching them.
        most = self.result.extraction.session.limits.leaf_depth
        is_shallow = all(len(row) < most or row.count(b"[") + row.count(b"{") < most for row in rows)
        try:
            if is_shallow and not values:
                found = self.decoder.skim(text)
            else:
                found = (self.decoder.decode if is_shallow else self.decoder.decode_shallow)(text, offset)
        except DataError:
            return None
        if found is UNLOADED_VALUE or len(found) != 2 * len(rows) - 1:
            return None
        words = found[1::2]
        return found[::2] if words.count(_BETWEEN.decode()) == len(words) else None

    def members(self) -> Iterator[Member]:
        """Yield the rows of `pparse ls`, many decoded at a time."""
        root, data = self.result.root, self.result.extraction.data
        if root.shape == SCALAR:
            return
        end, done = self.result.extraction.find_end(), 0
        repeated = self.decoder.duplicates
        for first, spans, rows, found in self._batches(root, values=False):
            if found is None or self.damage.unsure or data.flawed:
                for row in rows if found is None else ():
                    self.decoder.skim(row)  # counts repeated keys
                entries = islice(self.result.entries_from(root, first), len(rows))
                yield from (self._member(root, ordinal, entry, end) for ordinal, entry in entries)
            else:
                for ordinal, ((start, _), row) in enumerate(zip(spans, rows, strict=True), first):
                    text = row.lstrip(WHITESPACE)
                    start += len(row) - len(text)
                    size = len(text.rstrip(WHITESPACE))
                    yield Member(f"[{ordinal}]", KINDS[text[0]], start, size, Status.COMPLETE)
            done = first + len(rows)
        self._tell_repeated(repeated)
        for ordinal, entry in self.result.entries_from(root, done):  # one that is cut
            yield self._member(root, ordinal, entry, end)

    def _tell_repeated(self, before: int) -> None:
        """Note how many keys were met again in an object since there were ``before`` in all."""
        count = self.decoder.duplicates - before
        if count:
            number, start = self._repeats or (0, self.result.root.start)
            reason = f"{count} keys occur more than once in one object; this is the first such row"
            self.note("duplicate-key", reason, start, path=f"[{number}]", severity=Severity.WARNING)

    def judged_rows(self) -> Iterator[tuple[int, int, int, Finding | None]]:
        """Yield ``(ordinal, start, end, finding)`` of all rows, each read to its end, without the blanks around it.

        The finding tells what is wrong with the row, not that its number is uncertain.
        """
        root = self.result.root
        for ordinal, start, end, value, wrong in self._rows(root):
            if wrong is None and value is UNLOADED_VALUE:
                wrong = self._fault_in(root.child(ordinal))
            begin = self.skip_blank(start, end) if wrong is None else start
            yield ordinal, begin, self.without_blanks(start, end), wrong
        index = root.index_to(None)
        if index.note:
            cut = root.child(index.count - 1)
            yield cut.ordinal, cut.start, cut.end or self.result.extraction.find_end(), cut.finding

    def _fault_in(self, row: Node) -> Finding | None:
        """Read a row that is too long to be decoded at once; return what is wrong with it."""
        if row.shape == SCALAR:
            try:
                self.resolve(row)
            except DataError as error:
                return row.finding or Finding("malformed", error.reason, offset=error.offset)
            return row.finding if row.known_status is not Status.COMPLETE else None
        walk = TextWalk(self, row)
        walk.enter(row)
        for _ in tokens(walk, detail=False):
            pass
        if walk.fault is None and walk.skip_blank():
            walk.malformed("more data after the value", walk.pos)
        walk.charge.release()
        return walk.fault

    def values(self, node: Node, first: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Yield the rows as plain Python, many decoded at a time, or what is below one."""
        if node.parent is not None:
            yield from super().values(node, first, stop)
            return
        for ordinal, _, _, value, finding in self._rows(node, values=True, first=first):
            if stop is not None and ordinal >= stop:
                return
            if finding is not None:
                raise MalformedError(finding.reason, path=f"[{ordinal}]", offset=finding.offset, source=finding.source)
            yield node.child(ordinal).to_python() if value is UNLOADED_VALUE else value
        index = node.index_to(None)
        if index.note and (stop is None or stop >= index.count):
            node.child(index.count - 1)._refuse_if_not_whole()
        elif not first and stop is None:
            node._refuse_if_not_whole()

    def to_python(self, node: Node) -> Any:
        """Return a list of all rows, or what is below one."""
        if node.parent is not None:
            return super().to_python(node)
        return list(self.values(node))

    def walk(self, node: Node, *, detail: bool = True) -> Iterator[Visit]:
        """Read all rows once; those that are wrong are told as a whole."""
        if node.parent is not None or node.shape == SCALAR:
            yield from super().walk(node, detail=detail)
            return
        index = node.index_to(None)
        yield Visit.of(node, 0)
        repeated, odd = self.decoder.duplicates, self.decoder.odd_numbers
        walk = TextWalk(self, node)
        walk.push(0x5B)
        cut = ((at, 0, UNLOADED_VALUE) for at in range(index.count - bool(index.note), index.count))
        found = self._rows(node, sound=detail)
        for ordinal, start, value in chain(((row[0], row[1], row[3]) for row in found), cut):
            if value is not UNLOADED_VALUE:
                if detail:
                    yield from map(self.damage.doubted, row_visits(walk, ordinal, start))
                continue
            kid = node.child(ordinal)
            if kid.known_status is Status.COMPLETE or kid.unsure_number:
                for visit in super().walk(kid, detail=detail):
                    visit.depth += 1
                    yield visit
            else:
                yield Visit.of(kid, 1)
        walk.charge.release()
        if not detail:
            self._tell_repeated(repeated)
        if self.decoder.odd_numbers > odd and not detail:
            self.note("not-finite", NOT_FINITE, node.start, severity=Severity.WARNING)
