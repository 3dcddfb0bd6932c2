"""Texts that ``torch.export.load`` evaluates, without a pickle: whether they are plain expressions.

Dimensions that are not fixed have an ``expr_str``, which goes to ``sympy.sympify`` (torch/_export/serde/serialize.py,
``_parse_sym_expr``): Python code, run with the names of sympy and Python's own functions. torch writes what sympy's
``srepr`` makes of an expression, ``Add(Symbol('s77', integer=True), Integer(1))``; before 2.7 ``s77 + 1``.
"""

from __future__ import annotations

from pparse.lazy import lazy_pattern
from pparse.tree.code_names import graded
from pparse.tree.code_use import Grade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

KEY: Final = "expr_str"
"""The key of such a text in the JSON of a program."""
CALLED: Final = "sympy.sympify"
"""What is called with it."""
_PLAIN: Final = Grade.HARMLESS, "evaluates plain expressions"
_TOKEN: Final = lazy_pattern(
    r"[ \t]+|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z][A-Za-z0-9_]*)"
    r"|(?P<text>'[A-Za-z0-9_.+-]*')|(?P<open>\()|(?P<close>\))|(?P<sign>!=|[-+*/%,=<>&|~^])"
)


def grade_of(text: Any) -> tuple[Grade, str]:
    """Return how dangerous it is to evaluate a text, and why."""
    if not isinstance(text, str):
        return Grade.UNKNOWN, "evaluates what is no text"
    at, before, name, found = 0, "", "", _PLAIN
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind = "" if match is None else match.lastgroup
        if match is None or (kind == "text" and before not in ("open", "sign")):
            return Grade.DANGEROUS, f"runs {text[at : at + 20]!r} in it as code"
        at = match.end()
        if kind is None:
            continue
        if kind == "open" and before in ("close", "text", "number"):
            return Grade.DANGEROUS, "calls what another call returns"
        if kind == "open" and before == "name":
            grade = graded(f"expression.{name}", name).grade or Grade.UNKNOWN
            found = min(found, (grade, f"calls {name:.50}"))
        before, name = kind, match[0]
    return found if found[0] is not Grade.HARMLESS else _PLAIN


def texts_in(told: Any) -> Iterator[Any]:
    """Yield what dicts in plain data have under `KEY`, at any depth."""
    waiting = [told]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            waiting += item.values()
            yield from (value for key, value in item.items() if is_key(key))


def is_key(key: object) -> bool:
    """Return whether a key is `KEY`, also the second one of a map."""
    return isinstance(key, str) and key.partition("#")[0] == KEY
