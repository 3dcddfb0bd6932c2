"""JSON of values that the encoder of the standard library refuses: nested too deep, or with keys of other types."""

from __future__ import annotations

import sys
from json import dumps

from pparse.errors import UnsupportedError
from pparse.paths import quote_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

# The most levels that are indented: blanks grow with the square of the depth.
_INDENTED: Final = 200
# Digits of a number take time by their square: so many, a second or two.
_DIGITS: Final = 1_000_000
# What is in several places is written in each: some seconds for so many. A pickle of 60 bytes has 2^30.
_REPEATED: Final = 10_000_000


def deep_dumps(
    value: Any, *, default: Callable[[Any], Any], indent: int | None = None, ensure_ascii: bool = True
) -> str:
    """Return the result of `json.dumps` for any depth; values too deep for it are indented down to level 200.

    Keys of other types become text: bytes as in paths, all else as ``str`` shows it. Raises `UnsupportedError` for a
    value that holds itself, one whose shared parts come to more than ten million values, or a number of more than a
    million digits.
    """
    _refuse_repeated(value)
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(_DIGITS)
    try:
        return dumps(value, default=default, indent=indent, ensure_ascii=ensure_ascii)
    except (RecursionError, TypeError, ValueError):
        return "".join(_pieces(value, default, indent, ensure_ascii))
    finally:
        sys.set_int_max_str_digits(digits)


def _refuse_repeated(value: Any) -> None:
    """Raise `UnsupportedError` if containers that are in several places would be written too many times."""
    sizes: dict[int, int] = {}  # of containers: how many values are written for one; -1 for one that is open
    distinct = 0
    stack = [value]
    while stack:
        item = stack[-1]
        values = item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else ()
        inner = [below for below in values if isinstance(below, dict | list | tuple)]
        if id(item) not in sizes:
            sizes[id(item)] = -1
            distinct += len(values)
            stack.extend(below for below in inner if id(below) not in sizes)
            continue
        stack.pop()
        if sizes[id(item)] < 0:
            sizes[id(item)] = size = len(values) + sum(max(sizes[id(below)], 0) for below in inner)
            if size - distinct > _REPEATED:
                raise UnsupportedError(
                    f"the same lists are in so many places that more than {_REPEATED:,} values would be written again; "
                    "--raw gives its bytes"
                )


def _pieces(value: Any, default: Callable[[Any], Any], indent: int | None, ensure_ascii: bool) -> Iterator[str]:
    """Yield the text of a value, with a stack of open containers: the remaining items, and the closing text."""
    stack: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    around: list[int] = []  # the containers that are open
    known: set[int] = set()
    is_first = True
    while stack:
        items, closer = stack[-1]
        found = next(items, None)
        if found is None:
            stack.pop()
            known.discard(around.pop() if around else 0)
            if closer:
                yield closer if is_first else _line(indent, len(stack) - 1) + closer
            is_first = False
            continue
        label, item = found
        if len(stack) > 1:
            comma = "" if is_first else "," if indent is not None else ", "
            yield comma + _line(indent, len(stack) - 1) + label
        is_first = isinstance(item, dict | list | tuple)
        if is_first:
            if id(item) in known:
                raise UnsupportedError("the value holds itself, and cannot be written; --raw gives its bytes")
            around.append(id(item))
            known.add(id(item))
        if isinstance(item, dict):
            labels = [dumps(_key(key), ensure_ascii=ensure_ascii) + ": " for key in item]
            stack.append((zip(labels, item.values(), strict=True), "}"))
            yield "{"
        elif isinstance(item, list | tuple):
            stack.append((zip([""] * len(item), item, strict=True), "]"))
            yield "["
        else:
            try:
                yield dumps(item, default=default, ensure_ascii=ensure_ascii)
            except ValueError as error:
                raise UnsupportedError(
                    f"a number of more than {_DIGITS:,} digits cannot be written; --raw gives its bytes"
                ) from error


def _line(indent: int | None, depth: int) -> str:
    return "" if indent is None else "\n" + " " * (indent * min(depth, _INDENTED))


def _key(key: Any) -> str:
    """Return a key as the standard encoder writes it, or as text."""
    if isinstance(key, bytes):
        return quote_bytes(key)
    return dumps(key) if key is None or isinstance(key, int | float) else str(key)
