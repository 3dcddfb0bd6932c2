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

from pparse.errors import PASSING, EndOfDataError, LimitError, MalformedError, PparseError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.kernels.json_fold import depth_at_most
from pparse.parsers.json.text import BORN_LOADED, CLOSER, KINDS, SUBTREE, decode_key, unsupported_code
from pparse.parsers.json.walk_state import BLOCK, TextWalk
from pparse.tree.entry import LIST, MAP, SCALAR, UNLOADED_VALUE
from pparse.tree.views import as_dict
from pparse.tree.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.parsers.json.parser import JsonParser
    from pparse.tree.entry import Key
    from pparse.tree.node import Node

_LEAF: Final = 64 << 10
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL).match
_WORD: Final = re.compile(rb"[^ \t\n\r,:\[\]{}\"]++").match
_NOT_SCALAR: Final = re.compile(rb"[\[{\\]").search
_STRING_TEXT: Final = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+').match
_HALF_PAIR: Final = re.compile(rb".*\\u[dD][89abAB][0-9a-fA-F]{2}", re.DOTALL).fullmatch
_CUT_ESCAPE: Final = re.compile(rb"(?:\\(?:u[0-9a-fA-F]{0,3})?)?").fullmatch


def walk_document(parser: JsonParser, node: Node, *, detail: bool) -> Iterator[Visit]:
    """Yield the visits of a walk from ``node`` (the root, or any container) on."""
    if node.shape == SCALAR:
        try:
            if node.known_status is None:
                parser.judge(node)
            elif not node.loaded and node.known_status is Status.COMPLETE:
                judge_string(parser, node)
            else:
                node.load()
        except PASSING:
            raise
        except PparseError as error:
            finding = Finding("malformed", error.reason, source=parser.result.extraction.name, offset=error.offset)
            parser.result.findings.add(node.finding or finding)
        yield Visit.of(node, 0)
        return
    node.index_to(None)  # finds the end, and what follows it
    yield Visit.of(node, 0)
    walk = TextWalk(parser, node)
    before = parser.decoder.duplicates
    walk.push(walk.data.pread(node.start, 1)[0])
    walk.pos += 1
    yield from tokens(walk, detail)
    if parser.decoder.duplicates > before and not detail:
        walk.note(
            "duplicate-key",
            f"{parser.decoder.duplicates - before} keys occur more than once in one object",
            node.start,
            severity=Severity.WARNING,
        )
    walk.charge.release()


def judge_string(parser: JsonParser, node: Node) -> None:
    """Find out the status of a long string, by checking it piece by piece."""
    walk = TextWalk(parser, node)
    try:
        whole = walk.have() and _long_string(walk)
        if not whole:
            finding = walk.truncated()
            parser.result.close_node(node, Status.TRUNCATED, finding)
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
    walk.push(walk.data.pread(node.start, 1)[0])
    walk.pos += 1
    for visit in tokens(walk, detail=True):
        _refuse_fault(walk)
        _close_to(stack, visit.depth)
        if visit.shape != SCALAR:
            stack.append((visit.shape == MAP, visit.key, []))
            continue
        value = visit.value
        if value is UNLOADED_VALUE and visit.end is not None:
            length = visit.end - visit.start
            walk.limits.check("scalar_bytes", length, f"the {visit.kind}", offset=visit.start)
            value = parser.decoder.decode(walk.data.read_exact(visit.start, length), visit.start)
        is_map, _, items = stack[-1]
        items.append((visit.key, value) if is_map else value)
    _refuse_fault(walk)
    walk.charge.release()
    return _close_to(stack, 0)


def following_scalars(walk: TextWalk) -> list[Any]:
    """Return the elements after the one that was just visited, as far as the block shows them to be plain scalars.

    The visits go on behind them. A quick way through long arrays of numbers.
    """
    text = walk.block[walk.pos - walk.base :]
    end = text.find(b"]")
    end = text.rfind(b",") if end < 0 else end
    if end <= 0 or walk.level is None or text[:1] != b"," or _NOT_SCALAR(text, 0, end) is not None:
        return []
    try:
        found = walk.parser.decoder.decode(b"[%s]" % text[1:end], walk.pos)
    except PASSING:
        raise
    except PparseError:
        return []  # the visits tell what is wrong, and where
    walk.pos += end
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


def _refuse_fault(walk: TextWalk) -> None:
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


def tokens(walk: TextWalk, detail: bool) -> Iterator[Visit]:
    """Yield the visits of what is below the bracket that ``walk`` just opened, until it is closed or the text ends."""
    session = walk.parser.result.extraction.session
    expect = "first-key" if walk.brackets[0] == 0x7B else "first-value"
    while walk.brackets:
        session.check_cancelled()
        if not walk.skip_blank():
            walk.parser.result.findings.add(walk.truncated())
            return
        byte = walk.block[walk.pos - walk.base]
        if expect == "after":
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
            walk.parser.result.findings.add(walk.truncated())
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
    quoted = walk.token(_STRING)
    most = walk.limits.name_bytes
    if quoted is None and walk.end - start > BLOCK:
        match = _STRING(walk.data.pread(start, min(most, walk.end - start)))
        quoted = match[0] if match is not None else None
    if quoted is None:
        if walk.end - start <= most:
            walk.parser.result.findings.add(walk.truncated())
            walk.pos = walk.end
        else:
            refused = walk.parser.decoder.refuse_key(start)
            walk.malformed(refused.reason, start, code="limit", option=refused.option)
        return False
    try:
        key = decode_key(quoted, start, walk.parser.decoder)
    except PASSING:
        raise
    except PparseError as error:
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
    depth, level = len(walk.brackets), walk.level
    key: Key = level.key if level is not None and walk.brackets[-1] == 0x7B else None
    ordinal = level.count if level is not None else 0
    if kind is None:
        finding = walk.malformed("expected a value", start)
        return _visit(walk, depth, key, ordinal, "invalid", start, finding), "after"
    if kind in CLOSER:
        if not detail and _whole_leaf(walk):
            return None, "after"
        visit = None
        if level is not None:
            shape = MAP if byte == 0x7B else LIST
            visit = Visit(depth, key, ordinal, kind, shape, start, None, walk.here())
        walk.push(byte)
        walk.pos += 1
        return visit, "first-key" if byte == 0x7B else "first-value"
    try:
        value: object = UNLOADED_VALUE
        if kind == "string":
            text = walk.token(_STRING)
            if text is not None and len(text) <= _LEAF:
                value = walk.parser.decoder.decode(text, start)
                walk.pos = start + len(text)
            elif not _long_string(walk):
                finding = walk.truncated()
                walk.parser.result.findings.add(finding)
                walk.pos = walk.end
                return _visit(walk, depth, key, ordinal, kind, start, finding, Status.TRUNCATED), "after"
        else:
            text = walk.token(_WORD) or b""
            if start + len(text) >= walk.end:  # it may continue beyond the cut
                finding = walk.truncated()
                walk.parser.result.findings.add(finding)
                walk.pos = walk.end
                return _visit(walk, depth, key, ordinal, kind, start, finding, Status.TRUNCATED), "after"
            value = walk.parser.decoder.decode(text, start)
            walk.pos = start + len(text)
    except (LimitError, UnsupportedError) as refused:
        finding = walk.malformed(refused.reason, start, code=unsupported_code(refused), option=refused.option)
        return _visit(walk, depth, key, ordinal, kind, start, finding, Status.UNSUPPORTED), "after"
    except MalformedError as error:
        offset = error.offset if error.offset is not None else start
        finding = walk.malformed(error.reason, offset, in_string=walk.pos > start)  # still inside a long string
        return _visit(walk, depth, key, ordinal, "invalid", start, finding), "after"
    if not detail or level is None:
        return None, "after"
    kept = value if walk.pos - start <= BORN_LOADED else UNLOADED_VALUE
    return Visit(depth, key, ordinal, kind, SCALAR, start, walk.pos, walk.here(), kept), "after"


def _visit(
    walk: TextWalk,
    depth: int,
    key: Key,
    ordinal: int,
    kind: str,
    start: int,
    finding: Finding,
    status: Status = Status.DAMAGED,
) -> Visit:
    return Visit(depth, key, ordinal, kind, SCALAR, start, walk.pos, walk.path(), UNLOADED_VALUE, status, finding)


def _whole_leaf(walk: TextWalk) -> bool:
    """Skip a small, shallow, whole container in one step; return False if it is something else, or not valid."""
    at = walk.pos - walk.base
    match = SUBTREE.match(walk.block, at, at + _LEAF)
    if match is None:
        if at + _LEAF <= len(walk.block) or walk.base + len(walk.block) >= walk.end or not at:
            return False
        walk.block = walk.data.pread(walk.pos, min(BLOCK, walk.end - walk.pos))
        walk.base = walk.pos
        match = SUBTREE.match(walk.block, 0, _LEAF)
        if match is None:
            return False
    text = match[0]
    if not depth_at_most(text, walk.limits.leaf_depth):
        return False
    duplicates = walk.parser.decoder.duplicates
    try:
        walk.parser.decoder.decode(text, walk.pos)
    except PASSING:
        raise
    except PparseError:
        return False  # read it again token by token, to find the exact place
    if walk.parser.decoder.duplicates != duplicates:
        walk.parser.decoder.duplicates = duplicates
        return False  # the same for a repeated key
    walk.pos += len(text)
    return True


def _long_string(walk: TextWalk) -> bool:
    """Check a string longer than a block, piece by piece; return False if the text ends inside it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    walk.pos += 1
    while walk.have(16) or walk.have():
        at = walk.pos - walk.base
        match = _STRING_TEXT(walk.block, at)
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
