"""JSON that ``pparse get`` writes: values that the standard encoder cannot write, tensors, several elements of a list.

Of a list, ``[5:10]``, ``[*].text`` and ``[5:10].tags[0]`` are read, decoded and written some elements at a time, as
lines of JSON, or with ``--json`` as one list. What cannot be read is null in its place: line k is element k.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import chain, islice, repeat
from json import JSONEncoder, dumps
from math import prod

from pparse.cli.common import DAMAGED, OK
from pparse.cli.get_tensor import form_of, refuse_dtype
from pparse.cli.output import write_text
from pparse.display.text import few, safe
from pparse.errors import DataError, LimitError, OptionError, PathError, UnsupportedError
from pparse.limits import count_words
from pparse.paths import KeyStep, parse_path, quote_bytes, split_rows
from pparse.tensors.selection import boxes
from pparse.tree.entry import LIST
from pparse.tree.result import near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.paths import Step
    from pparse.tree.node import Node

    # The way below an element: steps, and the part of the list that they lead to (None: that itself) …
    _Way = list[tuple[list[Step], slice | None]]

# The most levels that are indented: blanks grow with the square of the depth.
_INDENTED: Final = 200
# Digits of a number take time by their square: so many, a second or two.
_DIGITS: Final = 1_000_000
# What is in several places is written in each: some seconds for so many. A pickle of 60 bytes has 2^30.
_REPEATED: Final = 10_000_000


def deep_dumps(
    value: Any, default: Callable[[Any], Any], *, indent: int | None = None, ensure_ascii: bool = True
) -> str:
    """Return the result of `json.dumps` for any depth; values too deep for it are indented down to level 200.

    ``default``: see `Parser.json_default`. Keys of other types become text: bytes as in paths, all else as ``str``
    shows it. Raises `UnsupportedError` for a
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


# -- Several elements of a list, or one column of them -----------------------------------------------------------------

# Lines that are written together.
_LINES: Final = 256
# A step leads nowhere; an element cannot be read.
_MISSING: Final = object()
_LOST: Final = object()
# How many of the elements that cannot be read are named.
_NAMED: Final = 3


def give_rows(document: Extraction, options: Any, out: Output) -> int | None:
    """Write the elements of a list that ``options.path`` names by a slice; None if it has none, or leads to no list."""
    parts = split_rows(options.path)
    if parts is None:
        return None
    try:
        node = document.node(parts[0]) if parts[0] else document.root
    except PathError:
        return None  # the caller knows what is wrong with it
    if node.shape != LIST:
        raise PathError(
            f"it is of kind {node.kind}; only lists, bytes and texts have slices", path=parts[0] or "the root"
        )
    found = _CutElements(node, parts[1], parts[2], options)
    _choose_form(options)
    return found.give(out)


def _choose_form(options: Any) -> None:
    """Choose JSON if the extension says so. Raises `OptionError` for a form that lists do not have."""
    refuse_dtype(options)
    form = form_of(options.output)
    if options.raw or options.npy or form not in (None, ".json"):
        raise OptionError(
            "elements of a list are written as lines of JSON, or with --json as one list, in no other form"
        )
    options.json = options.json or form == ".json"


def _way_of(path: str) -> _Way:
    way: _Way = []
    while (parts := split_rows(path)) is not None:
        way.append((parse_path(parts[0]), parts[1]))
        path = parts[2]
    return [*way, (parse_path(path), None)]


class _CutElements:
    """Elements ``cut`` of the list ``node``, and the path ``rest`` below each to what is wanted."""

    def __init__(self, node: Node, cut: slice, rest: str, options: Any) -> None:
        if cut.step == 0 or (cut.step or 1) < 0:
            raise PathError("a slice of a list goes forwards, by 1 or more", path=options.path)
        if (cut.start or 0) < 0 or (cut.stop or 0) < 0:  # from the end
            cut = slice(*cut.indices(len(node)))
        self.node = node
        self.first, self.stop, self.step = cut.start or 0, cut.stop, cut.step or 1
        self.way = _way_of(rest)
        self.wanted = rest.removeprefix(".")
        self.options = options
        self.count = self.missing = self.lost = 0
        self.named: list[str] = []  # the first that cannot be read
        self.why: list[str] = []  # why the first of them, and why the list ends early

    def give(self, out: Output) -> int:
        """Write them; return the exit code. Raises `PathError` before anything is written if none has what is wanted,
        and `LimitError` behind the elements before the one that is beyond a limit."""
        options = self.options
        write_text(options.output or None, out, self._list() if options.json else self._lines())
        path = self.node.path or "the root"
        of = f"of {count_words(self.count, 'element')}"
        if self.missing:
            out.error(f"note: {path}: null for {self.missing:,} {of}, without {self.wanted!r}")
        if self.lost:
            named = few(self.named, _NAMED, self.lost)
            out.error(f"note: {path}: null for {self.lost:,} {of} that cannot be read: {named}")
        for reason in self.why:
            out.error(reason)
        if self.count:
            last = self.node.child(self.first + self.step * (self.count - 1))
            if (unsure := last.unsure_number) is not None:
                out.error(f"{last.path}: {unsure.reason}")
                return DAMAGED
        return DAMAGED if self.why else OK

    def _elements(self) -> Iterator[Any]:
        """Yield the elements from the first on, before `stop`; `_LOST` for each that cannot be read."""
        number = self.first
        while self.stop is None or number < self.stop:
            try:
                for value in self.node.values(number, self.stop):
                    yield value
                    number += 1
                return
            except LimitError:
                raise
            except DataError as error:
                reason = str(error)
            if number >= self.node.index_to(number + 1).count:  # the list ends early
                if reason not in self.why:
                    self.why.append(reason)
                return
            if (number - self.first) % self.step == 0:
                if len(self.named) < _NAMED:
                    self.named.append(self.node.child(number).path)
                self.why = self.why or [reason]
                self.lost += 1
            yield _LOST
            number += 1

    def _values(self) -> Iterator[Any]:
        """Yield what is wanted of each element. Raises `PathError` if none has it."""
        likely = None
        for value in islice(self._elements(), 0, None, self.step):
            self.count += 1
            if value is _LOST:
                found = None
            elif (found := _below(value, self.way)) is _MISSING:
                self.missing += 1
                likely = value if likely is None and isinstance(value, dict) else likely
                found = None
            elif self.missing + self.lost == self.count - 1:  # the first: those before were held back
                yield from repeat(None, self.count - 1)
            if self.missing + self.lost < self.count:
                yield found
        if self.missing and self.missing + self.lost == self.count:
            raise PathError(
                f"no element has {self.wanted!r}", path=self.options.path, suggestions=_near(likely, self.way[0][0])
            )
        if self.lost == self.count:
            yield from repeat(None, self.lost)

    def _encoder(self, *, ensure_ascii: bool) -> Callable[[Any], str]:
        default = self.node.result.parser.json_default
        plain = JSONEncoder(ensure_ascii=ensure_ascii, default=default).encode

        def encode(value: Any) -> str:
            try:
                return plain(value)
            except (RecursionError, TypeError, ValueError):  # deep, or with keys that are no texts
                return deep_dumps(value, default, ensure_ascii=ensure_ascii)

        return encode

    def _lines(self) -> Iterator[str]:
        encode = self._encoder(ensure_ascii=False)
        shown = sys.stdout.isatty() and not self.options.output
        texts = (safe(encode(value)) if shown else encode(value) for value in self._values())
        for lines in _together(texts, 1 if shown else _LINES):
            yield "\n".join(lines) + "\n"

    def _list(self) -> Iterator[str]:
        options, encode = self.options, self._encoder(ensure_ascii=True)
        values = self._values()
        values = chain(list(islice(values, 1)), values)  # nothing is written if no element has what is wanted
        if not options.bare:
            head = {"schema": 1, "file": options.file, "path": options.path, "kind": self.node.kind}
            yield encode(head)[:-1] + ', "value": '
        texts, comma = map(encode, values), ""
        yield "["
        for some in _together(texts, _LINES):
            yield comma + ", ".join(some)
            comma = ", "
        yield "]\n" if options.bare else "]}\n"


def _together(texts: Iterator[str], most: int) -> Iterator[list[str]]:
    """Yield up to ``most`` texts at a time; those before an error come before it."""
    some: list[str] = []
    try:
        for text in texts:
            some.append(text)
            if len(some) >= most:
                yield some
                some = []
    except DataError:
        if some:
            yield some
        raise
    if some:
        yield some


def _below(value: Any, way: _Way) -> Any:
    """Return what the way leads to below a value; `_MISSING` if it leads nowhere."""
    for number, (steps, cut) in enumerate(way):
        for step in steps:
            value = _one_below(value, step)
            if value is _MISSING:
                return _MISSING
        if cut is not None:
            if not isinstance(value, list):
                return _MISSING
            found = (_below(item, way[number + 1 :]) for item in value[cut])  # as deep as the path has slices
            return [None if item is _MISSING else item for item in found]
    return value


def _near(value: Any, steps: list[Step]) -> tuple[str, ...]:
    """Return names in an object that are like the one that is missing on the way ``steps`` below it."""
    for step in steps:
        found = _one_below(value, step)
        if found is _MISSING:
            is_name = isinstance(value, dict) and isinstance(step, KeyStep)
            return near_misses(str(step.key), map(str, value)) if is_name else ()
        value = found
    return ()


def _one_below(value: Any, step: Step) -> Any:
    if isinstance(value, dict) and isinstance(step, KeyStep):
        for key, occurrence in step.readings():
            named = f"{key}#{occurrence}" if occurrence > 1 and isinstance(key, str) else key
            if named in value:
                return value[named]
        return _MISSING
    number = step.key if isinstance(step, KeyStep) else step.ordinal
    values = list(value.values()) if isinstance(value, dict) else value
    if isinstance(values, list) and isinstance(number, int) and -len(values) <= number < len(values):
        return values[number]
    return _MISSING
