"""JSON that the standard encoder cannot write: of values nested too deep, of keys of other types, of tensors."""

from __future__ import annotations

import sys
from functools import partial
from json import dumps
from math import prod

from pparse.errors import UnsupportedError
from pparse.paths import quote_bytes
from pparse.tensors.selection import boxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

# The most levels that are indented: blanks grow with the square of the depth.
_INDENTED: Final = 200
# Digits of a number take time by their square: so many, a second or two.
_DIGITS: Final = 1_000_000
# What is in several places is written in each: some seconds for so many. A pickle of 60 bytes has 2^30.
_REPEATED: Final = 10_000_000


def deep_dumps(value: Any, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """Return the result of `json.dumps` for any depth; values too deep for it are indented down to level 200.

    Keys of other types become text: bytes as in paths, all else as ``str`` shows it. Raises `UnsupportedError` for a
    value that holds itself, one whose shared parts come to more than ten million values, or a number of more than a
    million digits.
    """
    _refuse_repeated(value)
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(_DIGITS)
    try:
        return dumps(value, default=plain_default, indent=indent, ensure_ascii=ensure_ascii)
    except (RecursionError, TypeError, ValueError):
        return "".join(_pieces(value, plain_default, indent, ensure_ascii))
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


def plain_default(value: object) -> object:
    """Return what stands in JSON for a value that it has no form for: of bytes their digits, else the text."""
    return {"hex": value.hex()} if isinstance(value, bytes) else str(value)


def _line(indent: int | None, depth: int) -> str:
    return "" if indent is None else "\n" + " " * (indent * min(depth, _INDENTED))


def _key(key: Any) -> str:
    """Return a key as the standard encoder writes it, or as text."""
    if isinstance(key, bytes):
        return quote_bytes(key)
    return dumps(key) if key is None or isinstance(key, int | float) else str(key)


# -- Tensors as JSON, a piece at a time: as Python's numbers, elements take dozens of times their bytes ----------------

# Elements that are Python's numbers at a time.
_PIECE: Final = 1 << 15
# Bytes of structures that are kept.
_MOST_KEPT: Final = 64 << 20
# Lists without elements that are written: nothing but a shape makes them.
_MOST_EMPTY: Final = 1 << 24


def json_of(shape: Sequence[int], dtype: Any, parts: Callable[[], Iterator[Any]]) -> Iterator[str]:
    """Yield an array as nested lists; ``parts`` returns its elements in C order, as flat arrays of any length.

    Complex numbers are pairs; NaN, infinities and long doubles are texts. A structure is an object with the lists of
    each field, for each of which all parts are gone through once.
    """
    if dtype.names is None:
        yield from _lists(shape, parts())
        return
    parts = _kept(parts)
    for number, name in enumerate(dtype.names):
        base, inner = dtype[name].subdtype or (dtype[name], ())
        yield ("{" if not number else ", ") + f"{dumps(name)}: "
        yield from json_of((*shape, *inner), base, partial(_field, name, parts))
    yield "}"


def _kept(parts: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    """Return what gives the same parts, from memory if they take little: else each field reads all of them again."""
    found, size = [], 0
    for part in parts():
        size += part.nbytes
        if size > _MOST_KEPT:
            return parts
        found.append(part)
    return lambda: iter(found)


def _field(name: str, parts: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    return (part[name].reshape(-1) for part in parts())


def _lists(shape: Sequence[int], parts: Iterator[Any]) -> Iterator[str]:
    import numpy as np

    inside: tuple[int, ...] = ()
    if 0 in shape:  # its elements are the empty lists
        shape, inside = shape[: shape.index(0)], (0,)
        total = prod(shape)
        if total > _MOST_EMPTY:
            raise UnsupportedError(f"the tensor has no elements, but {total:,} empty lists: more than {_MOST_EMPTY:,}")
        parts = (np.zeros((min(_PIECE, total - at), 0)) for at in range(0, total, _PIECE))
    inner = [prod(shape[axis:]) for axis in range(len(shape))]  # the elements of a list, for each depth
    at = deep = 0
    for part in parts:
        for first in range(0, len(part), _PIECE):
            piece = part[first : first + _PIECE]
            text, done = [], 0
            for box in boxes(at, at + len(piece), shape):
                if not box:  # no dimensions
                    yield dumps(_plain(piece.reshape(inside)))
                    return
                depth = next(axis for axis, item in enumerate(box) if isinstance(item, slice))
                form = [box[depth].stop - box[depth].start, *shape[depth + 1 :]]  # type: ignore[union-attr]
                count = prod(form)
                ended = sum(not at % size for size in inner[1 : deep + 1]) if at else 0
                begun = sum(not at % size for size in inner[1 : depth + 1]) + (not at)
                text.append("]" * ended + ", " * bool(at) + "[" * begun)
                text.append(dumps(_plain(piece[done : done + count].reshape(*form, *inside)))[1:-1])
                at, done, deep = at + count, done + count, depth
            yield "".join(text)
    yield "]" * (deep + 1)


def _plain(array: Any) -> Any:
    """Return an array as nested lists for JSON: complex numbers as pairs, NaN, infinities and long doubles as text."""
    import numpy as np

    if np.ma.isMaskedArray(array):  # missing values are null, not a number
        whole = np.array(_plain(np.ma.getdata(array)), dtype=object)
        mask = np.asarray(array.mask).reshape(array.shape + (1,) * (whole.ndim - array.ndim))
        whole[np.broadcast_to(mask, whole.shape)] = None
        return whole.tolist()
    if array.dtype == object:  # texts
        return np.array([_text_or_hex(text) for text in array.reshape(-1)], object).reshape(array.shape).tolist()
    if array.dtype.kind in "SUMm" or (array.dtype.isbuiltin != 2 and array.dtype.kind == "V"):
        return _of_no_numbers(array)
    if array.dtype.kind not in "biufc" or array.dtype.name.startswith(("bfloat", "float8")):
        array = array.astype(np.complex64 if array.dtype.name in ("complex32", "bcomplex32") else np.float64)
    if array.dtype.kind == "c":
        array = np.stack((array.real, array.imag), -1)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # more digits than a number of JSON has
        return array.astype(str).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        flat = [
            value if np.isfinite(value) else ("NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity")
            for value in array.reshape(-1).tolist()
        ]
        return np.array(flat, dtype=object).reshape(array.shape).tolist()
    return array.tolist()


def _of_no_numbers(array: Any) -> Any:
    """Return an array of texts, times or bytes for JSON: times as text, spans of time as numbers of their unit."""
    import numpy as np

    if array.dtype.kind in "Mm":
        has_unit = array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] != "generic"
        return np.datetime_as_string(array).tolist() if has_unit else array.astype("i8").tolist()
    flat = array.reshape(-1).tolist()
    if array.dtype.kind != "U":
        flat = [_text_or_hex(value) if array.dtype.kind == "S" else {"hex": value.hex()} for value in flat]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(array.shape).tolist()


def _text_or_hex(text: bytes) -> str | dict[str, str]:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"hex": text.hex()}
