"""Tensors as JSON, a piece at a time: as Python's numbers, elements take dozens of times their bytes."""

from __future__ import annotations

from functools import partial
from json import dumps
from math import prod

from pparse.errors import UnsupportedError
from pparse.tensors.selection import boxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

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
