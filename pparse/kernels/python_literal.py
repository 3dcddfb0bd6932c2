"""Literals of Python, as numpy writes its headers: dicts, lists, tuples, texts, whole numbers, True, False and None.

Nothing is evaluated, and nothing recurses: what is open is kept on a stack of at most `MAX_DEPTH` levels. What numpy
reads besides is read: texts with a ``u`` before them, and numbers with an ``L`` behind them (both of Python 2). Numbers
have at most 19 digits.
"""

from __future__ import annotations

from pparse.errors import MalformedError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MAX_DEPTH: Final = 32

_TOKEN: Final = lazy_pattern(
    r"""[ \t\n\r\f]*+(?:([\[({])|([\])}])|([,:])|[uU]?('(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""
    r"""|([+-]?(?:0|[1-9][0-9]{0,18}))L?(?![\w.])|(True|False|None)(?!\w))"""
)
_ESCAPE: Final = lazy_pattern(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[01][0-9a-fA-F]{5})|([\\'\"abfnrtv]))")
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLOSED_BY: Final = {"[": "]", "(": ")", "{": "}"}
_WORDS: Final = {"True": True, "False": False, "None": None}
_MAX_CODE: Final = 0x10FFFF
_SPACE: Final = " \t\n\r\f"
# The groups of a token.
_OPENING, _CLOSING, _MARK, _QUOTED, _NUMBER = range(1, 6)


def read_literal(text: str, found: dict[str, tuple[Any, int, int]] | None = None) -> Any:
    """Return the value that ``text`` consists of.

    Of a dict, ``found`` receives each value with its begin and end in the text, also if the text is cut behind it.
    Raises `MalformedError` whose offset counts characters. A key may occur only once, and only texts may be keys.
    """
    outside = _OpenLiteral("", 0)
    stack = [outside]
    pos = 0
    while not outside.items:
        token = _TOKEN.match(text, pos)
        if token is None:
            raise MalformedError("a value is expected" if text[pos:].strip(_SPACE) else "it ends early", offset=pos)
        kind = token.lastindex or 0
        begin, pos = token.start(kind), token.end()
        if kind == _MARK:
            stack[-1].take_mark(token[kind], begin)
        elif kind == _OPENING:
            if len(stack) > MAX_DEPTH:
                raise MalformedError(f"it is nested more than {MAX_DEPTH} deep", offset=begin)
            stack[-1].expect_value(begin)
            stack.append(_OpenLiteral(token[kind], begin))
        else:
            if kind == _CLOSING:
                begin, value = stack[-1].begin, stack[-1].close(token[kind], begin)
                stack.pop()
            else:
                stack[-1].expect_value(begin)
                value = _scalar(token[kind], kind, begin)
            stack[-1].take_value(value, begin)
            if found is not None and len(stack) == 2 and stack[1].opening == "{" and stack[1].expects == "comma":
                found[stack[1].key] = value, begin, pos
    if text[pos:].strip(_SPACE):
        raise MalformedError("something follows the value", offset=pos)
    return outside.items[0]


def _scalar(text: str, kind: int, at: int) -> Any:
    """Return the value of a token."""
    if kind == _QUOTED:
        return _unescaped(text, at)
    return int(text) if kind == _NUMBER else _WORDS[text]


class _OpenLiteral:
    """A list, tuple or dict that is being read."""

    __slots__ = ("_dict", "begin", "expects", "items", "key", "opening")

    def __init__(self, opening: str, begin: int) -> None:
        self.opening = opening
        self.begin = begin
        self.key = ""  # of the value read last
        self.items: list[Any] = []
        self._dict: dict[str, Any] = {}
        self.expects = "first"  # "first", "item", "colon", "value" or "comma"

    def expect_value(self, at: int) -> None:
        if self.expects not in ("first", "item", "value"):
            raise MalformedError(f"a {self.expects} is expected", offset=at)

    def take_mark(self, mark: str, at: int) -> None:
        if mark != {"colon": ":", "comma": ","}.get(self.expects):
            raise MalformedError("a value is expected", offset=at)
        self.expects = "value" if mark == ":" else "item"

    def take_value(self, value: Any, at: int) -> None:
        if self.opening != "{":
            self.items.append(value)
        elif self.expects == "value":
            self._dict[self.key] = value
        else:
            if not isinstance(value, str):
                raise MalformedError("a key is no text", offset=at)
            if value in self._dict:
                raise MalformedError(f"the key {value!r} is there twice", offset=at)
            self.key, self.expects = value, "colon"
            return
        self.expects = "comma"

    def close(self, closing: str, at: int) -> Any:
        if closing != _CLOSED_BY.get(self.opening) or self.expects in ("colon", "value"):
            raise MalformedError(f"a {closing!r} is not expected", offset=at)
        if self.opening == "{":
            return self._dict
        if self.opening == "[":
            return self.items
        if len(self.items) == 1 and self.expects == "comma":
            return self.items[0]  # in parentheses, but no tuple
        return tuple(self.items)


def _unescaped(quoted: str, at: int) -> str:
    """Return the text that a quoted one stands for."""
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner
    pieces: list[str] = []
    pos = 0
    while (start := inner.find("\\", pos)) >= 0:
        escape = _ESCAPE.match(inner, start)
        code = 0 if escape is None else int(escape[1] or escape[2] or escape[3] or "0", 16)
        if escape is None or code > _MAX_CODE:
            raise MalformedError("an escape sequence is not known", offset=at + 1 + start)
        letter = escape[4]
        pieces += inner[pos:start], chr(code) if letter is None else _ESCAPED.get(letter, letter)
        pos = escape.end()
    return "".join((*pieces, inner[pos:]))
