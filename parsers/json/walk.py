"""One pass over a JSON document: which checks every byte of its grammar, with a compact stack.

What the tokenizer expects next::

    expect        reads                      goes to
    value         scalar                     after
                  ``{``                      first-key
                  ``[``                      first-value
    first-value   ``]``                      after (the array is done); else as value
    first-key     ``}``                      after (the object is done); else as key
    key           string and ``:``           value
    after         ``,``                      key or value, by the bracket that is open
                  ``}`` or ``]``             after; the document is done when no bracket is open

Rules: a piece of text that is small, shallow and closed goes to the strict decoder as a whole, unless every node is
needed. A fault is reported with its offset; reading continues after the next comma or closing bracket of the same
depth. Input that ends inside a value is truncated. Below the depth limit brackets are still matched (one byte a level),
but keys and duplicates are not.
"""

from __future__ import annotations

import codecs
import re
from array import array
from json import JSONEncoder
from operator import attrgetter

from pparse.errors import DataError, EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, FindingList, Severity, Status
from pparse.kernels.json_fold import Carry, depth_at_most, next_boundary
from pparse.parsers.json.text import (
    BLANK,
    BORN_LOADED,
    CLOSER,
    FOLLOWING,
    KINDS,
    NOT_FINITE,
    STRING,
    STRING_PART,
    SUBTREE,
    decode_key,
    fault_code,
)
from pparse.paths import KeyStep, format_path, join_step
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE
from pparse.tree.node import as_dict
from pparse.tree.visit import Trail, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.parsers.json.parser import JsonParser
    from pparse.paths import Step
    from pparse.tree.entry import Key
    from pparse.tree.node import Node


# -- Where a walk over JSON text stands: the text, a block at a time, and the brackets that are open -------------------

BLOCK: Final = 256 << 10
# Hashes of the keys of one object are kept as a set up to this number, as an array above.
_KEY_SET: Final = 4096
_SET_COST: Final = 64
_ARRAY_COST: Final = 8
# Memory of an open bracket, without its key.
_LEVEL_COST: Final = 320


class _OpenBracket:
    """One open bracket above the depth limit; ``around`` is the outer one, ``step`` leads from there to it."""

    __slots__ = ("around", "count", "depth", "hashes", "key", "keys", "occurrence", "repeats", "step")

    def __init__(self, around: _OpenBracket | None, step: Step | None) -> None:
        self.around = around
        self.step = step
        self.depth: int = 0 if around is None else around.depth + 1
        self.occurrence = 1  # of the key, among equal ones
        self.repeats: dict[str, int] | None = None
        self.count = 0
        self.key: str | None = None
        self.keys: set[int] | None = None
        self.hashes: array[int] | None = None

    def below(self, bracket: int) -> Step | None:
        """Return the step to the child being read; None in an object before a key."""
        if bracket == 0x5B:
            return KeyStep(self.count)
        return None if self.key is None else KeyStep(self.key, self.occurrence)


_around: Final = attrgetter("around")
_step: Final = attrgetter("step")


class TextWalk:
    """The text of a document, a block at a time, and the stack of open brackets.

    Patterns match at their place in the block, which `pparse.data.window.Window` would cut it out of each time.
    """

    def __init__(self, parser: JsonParser, node: Node) -> None:
        self.parser = parser
        self.source = parser.result.extraction.name
        self.findings = parser.result.findings  # where it tells what is wrong
        self.data = parser.result.extraction.data
        self.end = parser.result.extraction.find_end(node)
        self.limits = parser.result.extraction.session.limits
        self.base_steps = node.steps
        self.block = b""
        self.base = node.start
        self.pos = node.start  # an offset of the data
        self.brackets = bytearray()
        self.levels: list[_OpenBracket] = []
        self.trail: Trail  # the paths of open brackets
        self.kept = 0  # bytes, for the keys of open objects
        self.charge = parser.result.extraction.session.budget.charge(2 * BLOCK, "a walk over JSON text")
        self.refused_depth: int | None = None  # offset of the first bracket below the limit
        self.singly = 0  # up to here, one of the scalars is wrong: they are read one by one
        self.guessed = 0  # up to here, it is not guessed again where members end
        self.whole_leaves = False  # whether small containers are visited with their values, and not what is in them
        self.repeated = 0  # how many keys were met again in one object
        self.fault: Finding | None = None  # the first that is an error
        self.on_close: Callable[[], object] | None = None  # called when a bracket was closed …
        self.on_note: Callable[[Finding], object] | None = None  # … and when something was found wrong

    # -- text --------------------------------------------------------------------------------------------------------

    def have(self, count: int = 1) -> bool:
        """Load ``count`` bytes from ``pos`` on into the block; return False if the text ends earlier."""
        if self.pos + count <= self.base + len(self.block):
            return True
        wanted = min(count, self.end - self.pos)
        if self.pos + wanted > self.base + len(self.block):
            self._load(max(BLOCK, wanted))
        return self.pos + count <= self.base + len(self.block)

    def _load(self, size: int) -> None:
        """Let the block begin at ``pos``, with ``size`` bytes or as many as there are."""
        self.block = self.data.pread(self.pos, min(size, self.end - self.pos))
        self.base = self.pos

    def skip_blank(self) -> bool:
        """Move to the next byte that is not whitespace; False at the end of the text."""
        at = self.pos - self.base
        if at < len(self.block) and self.block[at] > 0x20:  # mostly
            return True
        while self.have():
            match = BLANK.match(self.block, self.pos - self.base)
            self.pos = self.base + match.end() if match is not None else self.pos
            if self.pos < self.base + len(self.block):
                return True
        return False

    def token(self, matcher: Any) -> bytes | None:
        """Return what ``matcher`` matches at ``pos``, reading on if the end of the block may cut the match."""
        match = matcher(self.block, self.pos - self.base)
        at_block_end = match is None or match.end() == len(self.block)
        if at_block_end and self.base + len(self.block) < self.end and self.pos > self.base:
            self._load(BLOCK)
            match = matcher(self.block, 0)
        return None if match is None else match[0]

    # -- stack -------------------------------------------------------------------------------------------------------

    @property
    def level(self) -> _OpenBracket | None:
        """The innermost open bracket, if it is within the depth limit."""
        return self.levels[-1] if len(self.levels) == len(self.brackets) and self.levels else None

    def enter(self, node: Node) -> None:
        """Open the bracket that ``node`` begins with."""
        self.push(self.data.pread(node.start, 1)[0])
        self.pos += 1

    def push(self, bracket: int) -> None:
        """Open a bracket."""
        self.brackets.append(bracket)
        depth = len(self.levels)
        if len(self.brackets) <= self.limits.depth:
            around = self.levels[-1] if depth else None
            step = around.below(self.brackets[depth - 1]) if around is not None else None
            level = _OpenBracket(around, step)
            if around is None:
                lock = self.parser.result.lock
                self.trail = Trail(level, format_path(self.base_steps), _around, _step, lock)
            self.levels.append(level)
            self.kept += _LEVEL_COST
        elif self.refused_depth is None:
            self.refused_depth = self.pos
            reason = f"nested deeper than depth={self.limits.depth}: no nodes below"
            self.warn("limit", LimitError(reason, option=self.limits.option("depth")).reason, self.pos)
        if not len(self.brackets) & (0x3FF if len(self.levels) == len(self.brackets) else 0xFFFF):
            self._account()

    def _account(self) -> None:
        self.charge.resize(2 * BLOCK + len(self.brackets) + self.kept)

    def pop(self) -> None:
        """Close the innermost bracket."""
        if len(self.levels) == len(self.brackets):
            level = self.levels.pop()
            self.kept -= _LEVEL_COST
            if level.hashes is not None:
                self._report_repeated(level.hashes)
                self.kept -= _ARRAY_COST * len(level.hashes)
            elif level.keys is not None:
                self.kept -= _SET_COST * len(level.keys)
        self.brackets.pop()
        if self.on_close is not None:
            self.on_close()

    def add_key(self, key: str) -> None:
        """Record a key of the innermost object, and report it if it is a repeated one."""
        level = self.level
        if level is None:
            return
        level.key, level.occurrence, hashed = key, 1, hash(key)
        if level.hashes is not None:
            level.hashes.append(hashed)
            self.kept += _ARRAY_COST
            if not len(level.hashes) & 0xFFFF:
                self._account()
            return
        if level.keys is None:
            level.keys = set()
        if hashed in level.keys:
            level.repeats = level.repeats or {}
            level.occurrence = level.repeats[key] = level.repeats.get(key, 1) + 1
            self.repeated += 1
            self.warn("duplicate-key", f"the key {key!r} occurs more than once", self.pos)
            return
        level.keys.add(hashed)
        self.kept += _SET_COST
        if not len(level.keys) & 0x3FF:
            self._account()
        self._keep_as_array(level)

    def _keep_as_array(self, level: _OpenBracket) -> None:
        if level.keys is not None and len(level.keys) > _KEY_SET:
            self.kept -= (_SET_COST - _ARRAY_COST) * len(level.keys)
            level.hashes, level.keys = array("q", level.keys), None

    def add_keys(self, keys: list[str]) -> bool:
        """Record keys of the innermost object; False, and nothing done, if any is too long or may be a repeated one."""
        level = self.level
        if level is None or max(map(len, keys)) > self.limits.name_bytes >> 2:
            return False
        hashes = [*map(hash, keys)]
        if level.hashes is not None:
            level.hashes.extend(hashes)
            self.kept += _ARRAY_COST * len(keys)
        elif len(hashed := set(hashes)) < len(keys) or not hashed.isdisjoint(level.keys or ()):
            return False
        else:
            level.keys = hashed.union(level.keys or ())
            self.kept += _SET_COST * len(keys)
            self._keep_as_array(level)
        level.key, level.occurrence = keys[-1], 1
        self._account()
        return True

    def _report_repeated(self, hashes: array[int]) -> None:
        if len(hashes) > 100_000:
            import numpy as np

            ranked = np.frombuffer(hashes, np.int64)
            ranked.sort()
            repeated = int((ranked[1:] == ranked[:-1]).sum())
        else:
            repeated = len(hashes) - len(set(hashes))
        if repeated:
            self.repeated += repeated
            self.warn("duplicate-key", f"{repeated} keys of this object occur more than once", self.pos)

    def path(self) -> str:
        """Return the path of what is being read."""
        if not self.levels:
            return format_path(self.base_steps)
        level = self.levels[-1]
        return join_step(self.trail.path(level), level.below(self.brackets[len(self.levels) - 1]))

    def here(self) -> Callable[[], str]:
        """Return a function that returns the path of what is being read, now or later."""
        trail, level = self.trail, self.levels[-1]
        step = level.below(self.brackets[len(self.levels) - 1])
        return lambda: join_step(trail.path(level), step)

    def note(
        self, code: str, reason: str, offset: int, severity: Severity = Severity.ERROR, option: str = ""
    ) -> Finding:
        """Add a finding at the current path."""
        findings = self.findings
        path = "" if findings.omitted else self.path()  # paths take time: skip those not kept
        finding = Finding(code, reason, severity=severity, path=path, source=self.source, offset=offset, option=option)
        findings.add(finding)
        if severity is Severity.ERROR and self.fault is None:
            self.fault = finding
        if self.on_note is not None:
            self.on_note(finding)
        return finding

    def warn(self, code: str, reason: str, offset: int) -> None:
        """Add a warning at the current path."""
        self.note(code, reason, offset, Severity.WARNING)

    # -- faults ------------------------------------------------------------------------------------------------------

    def malformed(
        self, reason: str, offset: int, *, code: str = "malformed", in_string: bool = False, option: str = ""
    ) -> Finding:
        """Report a fault, and move to the next comma or closing bracket of the same depth."""
        finding = self.note(code, reason, offset, option=option)
        carry = Carry()
        carry.in_string = int(in_string)
        while self.have():
            at = next_boundary(self.block, self.pos - self.base, carry)
            self.pos = self.base + at
            if at < len(self.block):
                break
        return finding

    def truncated(self) -> Finding:
        """Report that the text ends inside a value."""
        finding = Finding("truncated", "the document ends early", path=self.path(), source=self.source, offset=self.end)
        self.findings.add(finding)
        self.fault = self.fault or finding
        return finding


_LEAF: Final = 64 << 10
# The longest beginning of an object with its first key that is looked for again.
_LIKELY: Final = 64
_WORD: Final = re.compile(rb"[^ \t\n\r,:\[\]{}\"]++").match
_NOT_SCALAR: Final = re.compile(rb"[\[{\\]").search
_HALF_PAIR: Final = re.compile(rb".*\\u[dD][89abAB][0-9a-fA-F]{2}", re.DOTALL).fullmatch
_CUT_ESCAPE: Final = re.compile(rb"(?:\\(?:u[0-9a-fA-F]{0,3})?)?").fullmatch


def walk_document(parser: JsonParser, node: Node, *, detail: bool) -> Iterator[Visit]:
    """Yield the visits of a walk from ``node`` (the root, or any container) on."""
    if node.shape == SCALAR:
        try:
            parser.resolve(node)
        except DataError as error:
            finding = Finding("malformed", error.reason, source=parser.result.extraction.name, offset=error.offset)
            parser.result.findings.add(node.finding or finding)
        yield Visit.of(node, 0)
        return
    node.index_to(None)  # finds the end, and what follows it
    yield Visit.of(node, 0)
    walk = TextWalk(parser, node)
    odd = parser.decoder.odd_numbers
    walk.enter(node)
    yield from tokens(walk, detail)
    if parser.decoder.odd_numbers > odd:
        walk.warn("not-finite", NOT_FINITE, node.start)
    walk.charge.release()


def sound_end(parser: JsonParser, node: Node, levels: int, *, flawless: bool = False) -> int | None:
    """Return where a container ends, with ``levels`` or so in it; None if anything is wrong in its text, and at the
    first such place. Tells nothing of it, and makes no index.

    ``flawless``: None also for what is worth a warning, for more members than may be, and if more than blanks follow.
    """
    walk = TextWalk(parser, node)
    walk.limits = walk.limits.replace(depth=levels)
    walk.findings = FindingList()
    counted = parser.decoder.duplicates, parser.decoder.odd_numbers

    def stop(finding: Finding) -> None:
        if flawless or finding.severity is Severity.ERROR or finding.code == "limit":
            raise MalformedError(finding.reason)

    walk.on_note = stop
    try:
        walk.enter(node)
        outermost = walk.levels[0]
        for _ in tokens(walk, detail=False):
            pass
        end, odd = walk.pos, parser.decoder.odd_numbers > counted[1]
        told = flawless and (odd or outermost.count >= walk.limits.entries or walk.skip_blank() or walk.pos < walk.end)
        return None if told or walk.fault is not None else end
    except DataError:
        return None
    finally:
        parser.decoder.duplicates, parser.decoder.odd_numbers = counted
        walk.charge.release()


def judge_string(parser: JsonParser, node: Node) -> None:
    """Find out the status of a long string, by checking it piece by piece."""
    walk = TextWalk(parser, node)
    try:
        whole = walk.have() and _long_string(walk)
        if not whole:
            parser.result.close_node(node, Status.TRUNCATED, walk.truncated(), told=True)
        elif walk.skip_blank():
            parser.note_damage(node, MalformedError("more data after the value", offset=walk.pos))
        else:
            parser.result.close_node(node, Status.COMPLETE, None)
    except MalformedError as error:
        parser.note_damage(node, error)
    finally:
        walk.charge.release()


def assemble(parser: JsonParser, node: Node) -> Any:
    """Return a container and everything below it as plain Python, in one pass.

    Raises the error of the first thing that is not whole: `MalformedError`, `EndOfDataError`, `UnsupportedError` for a
    number out of the range of float64, `LimitError` for one with too many digits and below the depth limit.
    """
    node.index_to(None)
    node._refuse_if_not_whole()
    walk = TextWalk(parser, node)
    # Open containers, outermost first: whether it is a map, its key, its pairs or items so far.
    stack: list[tuple[bool, Key, list[Any]]] = [(node.kind == "object", None, [])]
    walk.whole_leaves = True
    walk.enter(node)
    for visit in tokens(walk, detail=True):
        refuse_fault(walk)
        _close_to(stack, visit.depth)
        if visit.shape != SCALAR:
            stack.append((visit.shape == MAP, visit.key, []))
            continue
        value = _value_of(walk, visit)
        is_map, _, items = stack[-1]
        items.append((visit.key, value) if is_map else value)
        if not is_map:
            items.extend(following_scalars(walk))
    refuse_fault(walk)
    walk.charge.release()
    parser.decoder.duplicates += walk.repeated
    return _close_to(stack, 0)


def _value_of(walk: TextWalk, visit: Visit) -> Any:
    """Return the value of a scalar that was just visited, which is decoded if it is long. Raises `LimitError`."""
    if visit.value is not UNLOADED_VALUE or visit.end is None:
        return visit.value
    length = visit.end - visit.start
    walk.limits.check("scalar_bytes", length, f"the {visit.kind}", offset=visit.start)
    return walk.parser.decoder.decode(walk.data.read_exact(visit.start, length), visit.start)


def following_scalars(walk: TextWalk) -> list[Any]:
    """Return the elements after the one that was just visited, as far as the block shows them to be plain scalars.

    The visits go on behind them. A quick way through long arrays of numbers.
    """
    block, at = walk.block, walk.pos - walk.base
    if walk.pos < walk.singly or walk.level is None or block[at : at + 1] != b",":
        return []
    stop = min(len(block), at + _LEAF)
    end = block.find(b"]", at, stop)
    other = _NOT_SCALAR(block, at, stop if end < 0 else end)
    if other is not None or end < 0:
        end = block.rfind(b",", at, stop if other is None else other.start())
    if end <= at:
        walk.singly = walk.base + (stop if other is None else other.start())
        return []
    try:
        found = walk.parser.decoder.decode_plain(b"[%s]" % block[at + 1 : end], walk.pos)
    except DataError:
        walk.singly = walk.base + end
        return []  # the visits tell what is wrong, and where
    walk.pos = walk.base + end
    walk.level.count += len(found)
    return list(found)


def _close_to(stack: list[tuple[bool, Key, list[Any]]], depth: int) -> Any:
    """Close the containers from ``depth`` on, adding each to its parent; return the last one."""
    value: Any = None
    while len(stack) > depth:
        is_map, key, items = stack.pop()
        value = as_dict(items) if is_map else items
        if stack:
            stack[-1][2].append((key, value) if stack[-1][0] else value)
    return value


def refuse_fault(walk: TextWalk) -> None:
    """Raise the error of the first thing that is not whole, if there is any; see `assemble`."""
    if walk.refused_depth is not None:
        walk.limits.check("depth", walk.limits.depth + 1, "the depth of the tree", offset=walk.refused_depth)
    fault = walk.fault
    if fault is None:
        return
    if fault.code == "limit":
        raise LimitError(fault.reason, option=fault.option, path=fault.path, offset=fault.offset, told=True)
    if fault.code == "unsupported":
        raise UnsupportedError(fault.reason, path=fault.path, offset=fault.offset)
    kind = EndOfDataError if fault.code == "truncated" else MalformedError
    raise kind(fault.reason, path=fault.path, offset=fault.offset, source=walk.source)


def row_visits(walk: TextWalk, ordinal: int, start: int) -> Iterator[Visit]:
    """Yield the visits of one row and of what is in it; ``walk`` has opened the list of rows. The row is sound."""
    walk.levels[0].count, walk.pos = ordinal, start
    walk.skip_blank()
    visit, _ = _value(walk, True)
    if visit is not None:
        yield visit
    if len(walk.brackets) > 1:
        yield from tokens(walk, True, 1)


def tokens(walk: TextWalk, detail: bool, outside: int = 0) -> Iterator[Visit]:
    """Yield the visits of what is below the bracket that ``walk`` just opened, until it is closed or the text ends.

    ``outside``: how many brackets are open around it.
    """
    session = walk.parser.result.extraction.session
    expect = "first-key" if walk.brackets[-1] == 0x7B else "first-value"
    while len(walk.brackets) > outside:
        session.check_cancelled()
        if not walk.skip_blank():
            walk.truncated()
            return
        byte = walk.block[walk.pos - walk.base]
        if expect == "after":
            if byte == 0x2C and not detail and _skip_following(walk):
                continue
            expect = _after(walk, byte)
            continue
        if byte in b"]}" and expect in ("first-key", "first-value"):
            expect = _after(walk, byte)
            continue
        if expect in ("key", "first-key"):
            if not _key(walk, byte):
                expect = "after"
                continue
        elif byte in b"]}":  # a comma before the closing bracket
            walk.note("malformed", "a comma before the closing bracket", walk.pos)
            expect = "after"
            continue
        if not walk.skip_blank():
            walk.truncated()
            return
        visit, expect = _value(walk, detail)
        if visit is not None:
            yield visit


def _after(walk: TextWalk, byte: int) -> str:
    """Read what follows a value: a comma, or the bracket that closes."""
    if byte == 0x2C:
        walk.pos += 1
        if walk.level is not None:
            walk.level.count += 1
        return "key" if walk.brackets[-1] == 0x7B else "value"
    if byte in b"]}":
        if byte != walk.brackets[-1] + 2:
            walk.note("malformed", f"expected {chr(walk.brackets[-1] + 2)!r}, found {chr(byte)!r}", walk.pos)
        walk.pos += 1
        walk.pop()
        return "after"
    walk.malformed("expected ',' or the closing bracket", walk.pos)
    return "after"


def _key(walk: TextWalk, byte: int) -> bool:
    """Read a key and its colon."""
    start = walk.pos
    if byte != 0x22:
        walk.malformed("expected a key in double quotes", start)
        return False
    quoted = walk.token(STRING.match)
    most = walk.limits.name_bytes
    if quoted is None and walk.end - start > BLOCK:
        match = STRING.match(walk.data.pread(start, min(most, walk.end - start)))
        quoted = match[0] if match is not None else None
    if quoted is None:
        if walk.end - start <= most:
            walk.truncated()
            walk.pos = walk.end
        else:
            refused = walk.parser.decoder.refuse_key(start)
            walk.malformed(refused.reason, start, code="limit", option=refused.option)
        return False
    try:
        key = decode_key(quoted, start, walk.parser.decoder)
    except DataError as error:
        walk.malformed(error.reason, error.offset if error.offset is not None else start)
        return False
    walk.add_key(key)
    walk.pos = start + len(quoted)
    if not walk.skip_blank():
        return False
    if walk.block[walk.pos - walk.base] != 0x3A:
        walk.malformed("expected ':'", walk.pos)
        return False
    walk.pos += 1
    return True


def _value(walk: TextWalk, detail: bool) -> tuple[Visit | None, str]:
    """Read a value, or open it; return its visit, and what is expected next."""
    start = walk.pos
    byte = walk.block[start - walk.base]
    kind = KINDS.get(byte)
    if kind is None:
        finding = walk.malformed("expected a value", start)
        return _faulty(walk, "invalid", start, finding), "after"
    if kind in CLOSER:
        if (not detail or walk.whole_leaves) and (leaf := _whole_leaf(walk, detail)) is not UNLOADED_VALUE:
            whole = detail and walk.level is not None
            return Visit(*_place(walk), kind, SCALAR, start, walk.pos, "", leaf) if whole else None, "after"
        visit = None
        if walk.level is not None:
            shape = MAP if byte == 0x7B else LIST
            visit = Visit(*_place(walk), kind, shape, start, None, walk.here())
        walk.push(byte)
        walk.pos += 1
        return visit, "first-key" if byte == 0x7B else "first-value"
    try:
        value: object = UNLOADED_VALUE
        cut = False
        if kind == "string":
            text = walk.token(STRING.match)
            if text is not None and len(text) <= _LEAF:
                value = walk.parser.decoder.decode(text, start)
                walk.pos = start + len(text)
            else:
                cut = not _long_string(walk)
        else:
            text = walk.token(_WORD) or b""
            cut = start + len(text) >= walk.end  # it may continue beyond the cut
            if not cut:
                value = walk.parser.decoder.decode(text, start)
                walk.pos = start + len(text)
    except (LimitError, UnsupportedError) as refused:
        finding = walk.malformed(refused.reason, start, code=fault_code(refused), option=refused.option)
        return _faulty(walk, kind, start, finding, Status.UNSUPPORTED), "after"
    except MalformedError as error:
        offset = error.offset if error.offset is not None else start
        finding = walk.malformed(error.reason, offset, in_string=walk.pos > start)  # still inside a long string
        return _faulty(walk, "invalid", start, finding), "after"
    if cut:
        finding = walk.truncated()
        walk.pos = walk.end
        return _faulty(walk, kind, start, finding, Status.TRUNCATED), "after"
    if not detail or walk.level is None:
        return None, "after"
    kept = value if walk.pos - start <= BORN_LOADED else UNLOADED_VALUE
    return Visit(*_place(walk), kind, SCALAR, start, walk.pos, walk.here(), kept), "after"


def _place(walk: TextWalk) -> tuple[int, Key, int]:
    """Return depth, key and number of the value that is being read."""
    depth, level = len(walk.brackets), walk.level
    if level is None:
        return depth, None, 0
    return depth, level.key if walk.brackets[-1] == 0x7B else None, level.count


def _faulty(walk: TextWalk, kind: str, start: int, finding: Finding, status: Status = Status.DAMAGED) -> Visit:
    return Visit(*_place(walk), kind, SCALAR, start, walk.pos, walk.path(), UNLOADED_VALUE, status, finding)


def _whole_leaf(walk: TextWalk, keep: bool) -> Any:
    """Skip a small, shallow, whole container in one step; `UNLOADED_VALUE` if it is something else, or not valid.

    ``keep``: return its value, keys that occur twice with their names; else what `StrictDecoder.skim` makes of it.
    """
    at = walk.pos - walk.base
    match = SUBTREE.match(walk.block, at, at + _LEAF)
    if match is None and at + _LEAF > len(walk.block) and walk.base + len(walk.block) < walk.end and at:
        walk._load(BLOCK)
        match = SUBTREE.match(walk.block, 0, _LEAF)
    text, decoder = match[0] if match is not None else b"", walk.parser.decoder
    if not text or not depth_at_most(text, walk.limits.leaf_depth):
        return UNLOADED_VALUE
    duplicates = decoder.duplicates
    if keep:
        try:
            value = decoder.decode(text, walk.pos)
        except DataError:
            return UNLOADED_VALUE
    else:
        value = decoder.skim(text)
        if value is UNLOADED_VALUE or decoder.duplicates != duplicates:
            decoder.duplicates = duplicates
            return UNLOADED_VALUE  # read it again token by token, to find the exact place, or the repeated key
    walk.pos += len(text)
    return value


def _skip_following(walk: TextWalk) -> bool:
    """Skip the small members that follow the comma at the position, as far as one step finds them sound."""
    if walk.pos < walk.singly or walk.level is None:
        return False
    at = walk.pos - walk.base
    if walk.pos >= walk.guessed and len(walk.brackets) + walk.limits.leaf_depth < walk.limits.depth:
        end = _likely_end(walk.block, at)
        if end and _skip_members(walk, at, end):
            return True
        walk.guessed = walk.base + max(at + 1, end)
    match = FOLLOWING[walk.brackets[-1]].match(walk.block, at, at + _LEAF)
    if match is None or _skip_members(walk, at, match.end()):
        return match is not None
    walk.singly = walk.base + match.end()
    return False


def _skip_members(walk: TextWalk, at: int, end: int) -> bool:
    """Skip the text of the block from the comma ``at`` to ``end``, if it is members of the innermost bracket."""
    if end <= at:
        return False  # compiled, a slice of less than nothing is an error
    is_map, level = walk.brackets[-1] == 0x7B, walk.level
    found = walk.parser.decoder.skim_members(walk.block[at + 1 : end], is_map)
    if not found or level is None or (is_map and not walk.add_keys([key for key, _ in found])):
        return False
    level.count += len(found)
    walk.pos = walk.base + end
    return True


def _likely_end(block: bytes, at: int) -> int:
    """Return where a member behind the comma ``at`` ends, the last in a step: by what stands around this comma. 0 if
    there is none. It may be in another object or string: what is before it must be decoded."""
    begin = at - 1 if at and block[at - 1] in b"}]" else at
    match = BLANK.match(block, at + 1)
    behind = match.end() if match is not None else at + 1
    first = block[behind : behind + 1]
    if first == b"{":  # with its first key
        behind = block.find(b'"', block.find(b'"', behind) + 1, behind + _LIKELY)
    behind += first in (b"{", b"[", b'"')
    found = block.rfind(block[begin:behind], at + 1, at + _LEAF) if behind > at else -1
    return found + at - begin if found > at else 0


def _long_string(walk: TextWalk) -> bool:
    """Check a string longer than a block, piece by piece; return False if the text ends inside it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    walk.pos += 1
    while walk.have(16) or walk.have():
        at = walk.pos - walk.base
        match = STRING_PART.match(walk.block, at)
        piece = match[0] if match is not None else b""
        more = walk.base + len(walk.block) < walk.end
        cut = False
        if at + len(piece) + 6 > len(walk.block):
            cut = not more and _CUT_ESCAPE(walk.block, at + len(piece)) is not None
            if (more or cut) and _HALF_PAIR(piece.replace(b"\\\\", b"__")):
                piece = piece[:-6]  # the other half is in the next block, or beyond the cut
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(piece)
        except UnicodeDecodeError as error:
            raise MalformedError("not UTF-8", offset=walk.pos - pending + error.start) from error
        walk.parser.decoder.refuse_lone_surrogates(piece, walk.pos)
        walk.pos += len(piece)
        if cut:
            return False
        follower = walk.block[at + len(piece) : at + len(piece) + 1]
        if follower == b'"':
            pending = len(decoder.getstate()[0])
            if pending:
                raise MalformedError("not UTF-8", offset=walk.pos - pending)
            walk.pos += 1
            return True
        if follower == b"\\":
            if more and at + len(piece) + 12 > len(walk.block):
                walk.block, walk.base = b"", walk.pos  # the escape may continue in the next block
                continue
            raise MalformedError("an unknown escape in a string", offset=walk.pos)
        if follower:
            raise MalformedError("a control character in a string", offset=walk.pos)
    return False


# How many levels are indented: blanks grow with the square of the depth.
_INDENTED: Final = 200
# Pieces of text are joined up to so many characters.
_JOINED: Final = 64 << 10


def rewritten(parser: JsonParser, node: Node, indent: int | None, ensure_ascii: bool) -> Iterator[str] | None:
    """Return what yields the text of a container as `json.dumps` writes it, a piece at a time: a block is held, not the
    value. None if its keys occur twice, and must be given other names.

    All of it is read once before, and what is wrong with it raised as by `assemble`.
    """
    node.index_to(None)
    node._refuse_if_not_whole()
    repeated = parser.decoder.duplicates
    walk = TextWalk(parser, node)
    walk.enter(node)
    for _ in tokens(walk, detail=False):
        pass
    refuse_fault(walk)
    walk.charge.release()
    if walk.repeated or parser.decoder.duplicates != repeated:
        parser.decoder.duplicates = repeated
        return None
    again = TextWalk(parser, node)
    again.enter(node)
    return _Writer(again, indent, ensure_ascii).pieces(node)


class _Writer:
    """Writes the visits of a walk over sound text."""

    def __init__(self, walk: TextWalk, indent: int | None, ensure_ascii: bool) -> None:
        walk.whole_leaves = True
        self._walk = walk
        self._indent = indent
        self._comma = ", " if indent is None else ","
        self._encode: Callable[[Any], str] = JSONEncoder(ensure_ascii=ensure_ascii, indent=indent).encode
        self._flat: Callable[[Any], str] = JSONEncoder(ensure_ascii=ensure_ascii).encode

    def pieces(self, node: Node) -> Iterator[str]:
        """Yield the text."""
        found: list[str] = []
        size = 0
        for text in self._texts(node):
            found.append(text)
            size += len(text)
            if size >= _JOINED:
                yield "".join(found)
                found, size = [], 0
        self._walk.charge.release()
        yield "".join(found)

    def _texts(self, node: Node) -> Iterator[str]:
        walk = self._walk
        closers = ["}" if node.kind == "object" else "]"]
        yield "{" if node.kind == "object" else "["
        empty = True
        for visit in tokens(walk, detail=True):
            refuse_fault(walk)
            while len(closers) > visit.depth:
                yield (closers.pop() if empty else self._line(len(closers) - 1) + closers.pop())
                empty = False
            yield ("" if empty else self._comma) + self._line(visit.depth)
            if closers[-1] == "}":
                yield f"{self._flat(visit.key)}: "
            empty = visit.shape != SCALAR
            if empty:
                closers.append("}" if visit.shape == MAP else "]")
                yield "{" if visit.shape == MAP else "["
                continue
            yield self._value(visit)
            if closers[-1] == "]" and (more := following_scalars(walk)):
                yield self._comma + self._line(visit.depth) + self._run(more, visit.depth)
        refuse_fault(walk)
        while closers:
            yield (closers.pop() if empty else self._line(len(closers) - 1) + closers.pop())
            empty = False

    def _line(self, depth: int) -> str:
        return "" if self._indent is None else "\n" + " " * (self._indent * min(depth, _INDENTED))

    def _value(self, visit: Visit) -> str:
        text = self._encode(_value_of(self._walk, visit))
        return text.replace("\n", self._line(visit.depth)) if self._indent is not None else text

    def _run(self, values: list[Any], depth: int) -> str:
        """Return elements of a list: of no text with a comma in it, in one go."""
        text = self._flat(values)[1:-1]
        between = self._comma + self._line(depth)
        if '"' in text:
            return between.join(map(self._flat, values))
        return text if self._indent is None else text.replace(", ", between)
