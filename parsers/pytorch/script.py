"""The source of TorchScript, as torch writes it into archives (``code/**.py``): what it defines, and its statements.

The text is that of torch's printer (torch/csrc/jit/serialization/python_print.cpp), a small part of Python: a statement
is a line, only the head of a function takes several, and everything but literals is a call. So a statement is read as
a short *program* in postfix order, for a stack: ``torch.add(x, 1)`` is ``x``, ``1``, and a call with two arguments.
There is no tree, and no recursion. What is not understood is a statement of the kind ``bad``, with the reason.
"""

from __future__ import annotations

from collections import namedtuple

from pparse.errors import MalformedError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    Step = tuple[str, str, int, tuple[str, ...]]  # what to do, a text, a number of values, names of the last of them
    Token = tuple[str, str]  # kind, text

# The longest line, or head of a function, and how many brackets may be open in one.
LONGEST: Final = 1 << 20
_DEEPEST: Final = 200

_HEADS: Final = lazy_pattern(r"^(class|def|  def) ([^\s(:]+)(?:\((\w*)\):)?", 8)  # re.MULTILINE
_FIELD: Final = lazy_pattern(r'^  (?:__annotations__\["((?:[^"\\\n]|\\.)*)"\] = |([^\s:="]+) : )(.+)$', 8)
_LISTED: Final = lazy_pattern(r"^  __(parameters|buffers)__ = \[(.*)\]$", 8)
_QUOTED: Final = lazy_pattern(r'"((?:[^"\\]|\\.)*)"')
_LINE: Final = lazy_pattern(r"( *)([^\n]*)\n?")
_TOKEN: Final = lazy_pattern(
    r"""\s*(?:(?P<name>[^\W\d]\w*)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>->|[][(){}.,:=-]))"""
)
_TARGETS: Final = lazy_pattern(r"([^\W\d]\w*(?:, [^\W\d]\w*)*)(?:,| : [^=]+)? = ")
_RETURNS: Final = lazy_pattern(r" *(?:->([^\n]*))?: *(?:\n|$)")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_OPENING: Final = {"(": "tuple", "[": "list", "{": "dict"}
_GOING_ON: Final = (".", "(", "[", ",", ":")
_BLOCKS: Final = ("if", "else", "while", "for", "with")
_LITERALS: Final = frozenset(("True", "False", "None", "inf", "nan"))


class Definition:
    """A class or a function: where it stands, and what its lines declare."""

    __slots__ = ("base", "begin", "buffers", "end", "fields", "head", "line", "methods", "parameters")

    def __init__(self, begin: int, line: int, base: str | None) -> None:
        self.begin, self.end = begin, begin
        self.line = line
        """Number of its first line, from 1 on."""
        self.base = base
        """Of a class, what it is: ``Module``, ``NamedTuple`` …; None: a function."""
        self.methods: dict[str, Definition] = {}
        self.fields: dict[str, str] = {}
        """Types of the attributes of a class; of a constant, with its value."""
        self.parameters: list[str] = []
        self.buffers: list[str] = []
        self.head: FunctionHead | None = None
        """Of a function, once it was read: see `head_of`."""


def definitions(text: str) -> dict[str, Definition]:
    """Return the classes and functions in a source by name, each from its head to the next one."""
    found: dict[str, Definition] = {}
    last: list[Definition] = []  # the class and the method, or the function, that are not ended
    line, pos = 1, 0
    for match in _HEADS.finditer(text):
        begin = match.start()
        line += text.count("\n", pos, begin)
        pos = begin
        made = Definition(begin, line, (match[3] or "") if match[1] == "class" else None)
        if match[1] == "  def" and last and last[0].base is not None:
            if len(last) > 1:
                last.pop().end = begin
            else:
                _declare(last[0], text[last[0].begin : begin])
            last[0].methods.setdefault(match[2], made)
            last.append(made)
            continue
        _end(last, begin, text)
        last = [made]
        found.setdefault(match[2], made)
    _end(last, len(text), text)
    return found


def _end(last: list[Definition], end: int, text: str) -> None:
    if len(last) == 1 and last[0].base is not None:
        _declare(last[0], text[last[0].begin : end])
    for one in last:
        one.end = end


def _declare(made: Definition, text: str) -> None:
    for match in _FIELD.finditer(text):
        made.fields[match[1] if match[1] is not None else match[2]] = match[3]
    for match in _LISTED.finditer(text):
        setattr(made, match[1], _QUOTED.findall(match[2]))


# -- lines -------------------------------------------------------------------------------------------------------------


class Statement:
    """One line: what kind it is, the names that it sets, and the program of its expressions."""

    __slots__ = ("after", "count", "indent", "kind", "line", "names", "opens", "program", "text", "unpacks")

    def __init__(self, indent: int, line: int, text: str, after: int) -> None:
        self.indent, self.line, self.text = indent, line, text
        self.after = after
        """Where the next line begins."""
        self.kind = "pass"
        """``assign``, ``set`` (an attribute), ``return``, ``if``, ``else``, ``for``, ``while``, ``with``, ``pass``;
        ``def``: what is run apart, without arguments; ``bad``: then ``text`` is the reason."""
        self.names: list[str] = []
        self.unpacks = False
        """Whether the names are those of the parts of one value, not of several outputs."""
        self.opens = text.endswith(":")
        """Whether a block follows."""
        self.program: list[Step] = []
        self.count = 0
        """How many values the program leaves."""


def statements(text: str, begin: int, end: int, line: int) -> Iterator[Statement]:
    """Yield the statements between two offsets, one at a time."""
    pos = begin
    while pos < end:
        match = _LINE.match(text, pos, end)
        if match is None or match.end() == pos:
            return
        pos = match.end()
        if match[2]:
            yield _statement(Statement(len(match[1]), line, match[2], pos))
        line += 1


def _statement(made: Statement) -> Statement:
    try:
        _read(made, _tokens(made.text))
    except MalformedError as error:
        named = _TARGETS.match(made.text[:LONGEST])
        made.names = named[1].split(", ") if named is not None else []
        made.kind, made.text, made.program, made.unpacks = "bad", error.reason, [], False
    return made


def _tokens(text: str) -> list[Token]:
    if len(text) > LONGEST:
        raise MalformedError(f"a line has {len(text):,} characters: more than {LONGEST:,}")
    found: list[Token] = []
    pos, last = 0, len(text.rstrip())
    while pos < last:
        match = _TOKEN.match(text, pos)
        if match is None:  # at once: who looked for the end of a text again and again would take long
            raise MalformedError(f"{text[pos : pos + 20].strip()!r} is not understood")
        found.append((match.lastgroup or "", match[match.lastgroup or 0]))
        pos = match.end()
    return found


def _read(made: Statement, tokens: list[Token]) -> None:
    """Say what a line is, by its first word and its mark ``=``."""
    first = tokens[0][1] if tokens[0][0] == "name" else ""
    if first in _BLOCKS:
        made.kind = first
        tokens = _inside(made, tokens)
    elif first in ("return", "pass"):
        made.kind, tokens = first, tokens[1:]
    elif first == "def" and [text for _, text in tokens[2:]] == ["(", ")", ":"]:
        made.kind, made.names, tokens = first, [tokens[1][1]], []
    else:
        made.kind = "assign"
        tokens = _targets(made, tokens)
    if tokens or made.kind not in ("return", "pass", "else", "def"):
        made.program, made.count = program(tokens)
    wanted = 1 if first in _BLOCKS else made.count
    wanted = {"set": 2, "pass": 0, "else": 0}.get(made.kind, wanted)
    if made.count != wanted or (made.kind == "assign" and 1 < made.count != len(made.names)):
        raise MalformedError(f"{made.kind!r} has {made.count} values")


def _inside(made: Statement, tokens: list[Token]) -> list[Token]:
    """Take the first word of the head of a block, the colon, and the name that is set; return what is between them."""
    if tokens[-1][1] != ":":
        raise MalformedError("there is no colon at its end")
    tokens = tokens[1:-1]
    if made.kind == "for":
        if len(tokens) < 3 or tokens[1][1] != "in":
            raise MalformedError("a loop has no 'in'")
        made.names, tokens = [tokens[0][1]], tokens[2:]
    elif made.kind == "with" and len(tokens) > 2 and tokens[-2][1] == "as":
        made.names, tokens = [tokens[-1][1]], tokens[:-2]
    return tokens


def _targets(made: Statement, tokens: list[Token]) -> list[Token]:
    """Take the names before ``=``, if there are any; return the tokens of the value.

    Of an attribute that is set (``self.state = x``), those of the object and the value: ``self, x``.
    """
    depth = at = 0
    while at < len(tokens) and (depth or tokens[at] != ("mark", "=")):
        kind, text = tokens[at]
        if kind == "mark":
            depth += (text in _CLOSING) - (text in _CLOSING.values())
        at += 1
    if at == len(tokens):
        return tokens
    left, right = tokens[:at], tokens[at + 1 :]
    if len(left) > 2 and left[-2][1] == "." and left[-1][0] == "name":
        made.kind, made.names = "set", [left[-1][1]]
        return [*left[:-2], ("mark", ","), *right]
    if len(left) > 2 and left[1][1] == ":":  # with its type
        left = left[:1]
    made.unpacks = bool(left) and left[-1][1] == ","
    if made.unpacks:
        left = left[:-1]
    made.names = [text for _, text in left[::2]]
    if not left or any(kind != "name" for kind, _ in left[::2]) or any(text != "," for _, text in left[1::2]):
        raise MalformedError("what stands before '=' is not a list of names")
    return right


class _Bracket:
    """A bracket that is open: which step it becomes, and what is in it."""

    __slots__ = ("closing", "commas", "count", "names", "what")

    def __init__(self, what: str, mark: str) -> None:
        self.what, self.closing = what, _CLOSING.get(mark, "")
        self.count = self.commas = 0
        self.names: list[str] = []


def program(tokens: list[Token]) -> tuple[list[Step], int]:
    """Return the steps that leave the values of one or several expressions, and how many these are.

    Steps: ``name``, ``literal``, ``attr``, and ``method`` if that is called; ``call``, ``index``, ``list``, ``tuple``,
    ``dict`` with a number of values.
    """
    steps: list[Step] = []
    opened = [_Bracket("", "")]
    ready = False  # whether a value was just read
    at, last = 0, len(tokens)
    while at < last:
        kind, text = tokens[at]
        inner = opened[-1]
        if kind == "mark" and text == inner.closing:
            opened.pop()
            inner.count += ready
            _close(inner, steps)
            ready = True
        elif ready:
            at += _behind_value(tokens, at, opened, steps)
            ready = text == "." or text not in _GOING_ON
        elif kind == "mark" and text in _CLOSING:
            _open(opened, _OPENING[text], text)
        elif kind == "mark" and text == "-" and at + 1 < last and tokens[at + 1][0] in ("number", "name"):
            at, ready = at + 1, True
            steps.append(("literal", "-" + tokens[at][1], 0, ()))
        elif kind == "mark":
            raise MalformedError(f"{text!r} stands where a value should")
        elif kind == "name" and inner.what == "call" and at + 1 < last and tokens[at + 1] == ("mark", "="):
            inner.names.extend([""] * (inner.count - len(inner.names)) + [text])
            at += 1
        else:
            steps.append(("name" if kind == "name" and text not in _LITERALS else "literal", text, 0, ()))
            ready = True
        at += 1
    if len(opened) > 1:
        raise MalformedError("a bracket is not closed")
    total = opened[0].count + ready
    if not total:
        raise MalformedError("there is no value")
    return steps, total


def _behind_value(tokens: list[Token], at: int, opened: list[_Bracket], steps: list[Step]) -> int:
    """Read what follows a value; return how many tokens more than one that are."""
    kind, text = tokens[at]
    inner = opened[-1]
    if kind != "mark" or (text not in _GOING_ON) or (text == ":" and inner.what not in ("dict", "index")):
        raise MalformedError(f"{text[:20]!r} follows a value")
    if text == ".":
        if at + 1 == len(tokens) or tokens[at + 1][0] != "name":
            raise MalformedError("no name follows a dot")
        called = at + 2 < len(tokens) and tokens[at + 2] == ("mark", "(")
        steps.append(("method" if called else "attr", tokens[at + 1][1], 0, ()))
        return 1
    if text in ("(", "["):
        _open(opened, "call" if text == "(" else "index", text)
    else:
        inner.count += 1
        inner.commas += 1
    return 0


def _open(opened: list[_Bracket], what: str, mark: str) -> None:
    if len(opened) > _DEEPEST:
        raise MalformedError(f"more than {_DEEPEST} brackets are open")
    opened.append(_Bracket(what, mark))


def _close(inner: _Bracket, steps: list[Step]) -> None:
    if inner.names and len(inner.names) != inner.count:
        raise MalformedError("an argument has no name behind one that has, or no value")
    if inner.what != "tuple" or inner.commas or not inner.count:
        steps.append((inner.what, "", inner.count, tuple(inner.names)))


def assigned(text: str, begin: int, end: int, indent: int) -> Iterator[str]:
    """Yield the names that the lines of a block set, which stand further right than ``indent``; some several times."""
    pos = begin
    while pos < end:
        match = _LINE.match(text, pos, end)
        if match is None or match.end() == pos or (match[2] and len(match[1]) <= indent):
            return
        pos = match.end()
        named = _TARGETS.match(match[2])
        if named is not None:
            yield from named[1].split(", ")


# -- heads of functions ------------------------------------------------------------------------------------------------

Parameter = namedtuple("Parameter", "name type default")
Parameter.__doc__ = """An argument: its name, type, and default; these are empty if there is none."""


class FunctionHead(namedtuple("Head", "parameters returns body line")):
    """The head of a function: its arguments, what it returns, where its body begins, and in which line."""

    __slots__ = ()


def head_of(text: str, definition: Definition) -> FunctionHead:
    """Read the head of a function once, which may take several lines. Raises `MalformedError`."""
    if definition.head is not None:
        return definition.head
    found: list[Parameter] = []
    part, marks = ["", "", ""], {":": 1, "=": 2}  # of an argument: name, type, default
    begin, which, depth = -1, 0, 0
    pos = text.find("(", definition.begin, definition.end)
    last = min(definition.end, definition.begin + LONGEST)
    while 0 <= pos < last:
        match = _TOKEN.match(text, pos, last)
        if match is None:
            break
        pos = match.end()
        mark = match["mark"] or ""
        start = match.start(match.lastgroup or 0)
        if depth == 1 and mark in (",", ")", *marks):
            if begin >= 0:
                part[which] = text[begin:start].strip()
            begin, which = pos, marks.get(mark, 0)
            if not which and part[0]:
                found.append(Parameter(*part))
                part = ["", "", ""]
        depth += (mark in _CLOSING) - (mark in _CLOSING.values())
        if depth == 1 and begin < 0:
            begin = pos
        if not depth:
            break
    match = _RETURNS.match(text, pos, last) if pos >= 0 and not depth else None
    if match is None:
        raise MalformedError("the head of a function is not understood")
    line = definition.line + text.count("\n", definition.begin, match.end())
    definition.head = FunctionHead(found, match[1] or "", match.end(), line)
    return definition.head
