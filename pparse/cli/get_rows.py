"""Get several elements of a list, or one column of them: ``[5:10]``, ``[*].text``, ``[5:10].tags[0]``.

They are read, decoded and written some at a time, as lines of JSON, or with ``--json`` as one list. What cannot be read
is null in its place, so that line k is element k.
"""

from __future__ import annotations

import sys
from itertools import chain, islice, repeat
from json import JSONEncoder

from pparse.cli.common import DAMAGED, OK
from pparse.cli.get_tensor import form_of
from pparse.cli.json_text import deep_dumps, plain_default
from pparse.cli.output import write_text
from pparse.display.text import safe
from pparse.errors import DataError, LimitError, OptionError, PathError
from pparse.findings import UNSURE_NUMBER
from pparse.limits import count_words
from pparse.paths import KeyStep, parse_path, split_rows
from pparse.tree.entry import LIST
from pparse.tree.result import near_misses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.paths import Step
    from pparse.tree.node import Node

    # The way below an element: steps, and the part of the list that they lead to (None: that itself) …
    _Way = list[tuple[list[Step], slice | None]]

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
    found = _Rows(node, parts[1], parts[2], options)
    _choose_form(options)
    return found.give(out)


def _choose_form(options: Any) -> None:
    """Choose JSON if the extension says so. Raises `OptionError` for a form that lists do not have."""
    form = form_of(options.output)
    if options.dtype is not None:
        raise OptionError("--dtype converts tensors, and this is not one")
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


class _Rows:
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
            named = ", ".join(self.named) + (" …" if self.lost > len(self.named) else "")
            out.error(f"note: {path}: null for {self.lost:,} {of} that cannot be read: {named}")
        for reason in self.why:
            out.error(reason)
        if self.count:
            last = self.node.child(self.first + self.step * (self.count - 1))
            if last.finding is not None and last.finding.code == UNSURE_NUMBER:
                out.error(f"{last.path}: {last.finding.reason}")
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

    def _lines(self) -> Iterator[str]:
        encode = _encoder(ensure_ascii=False)
        shown = sys.stdout.isatty() and not self.options.output
        texts = (safe(encode(value)) if shown else encode(value) for value in self._values())
        for lines in _together(texts, 1 if shown else _LINES):
            yield "\n".join(lines) + "\n"

    def _list(self) -> Iterator[str]:
        options, encode = self.options, _encoder(ensure_ascii=True)
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


def _encoder(*, ensure_ascii: bool) -> Callable[[Any], str]:
    plain = JSONEncoder(ensure_ascii=ensure_ascii, default=plain_default).encode

    def encode(value: Any) -> str:
        try:
            return plain(value)
        except (RecursionError, TypeError, ValueError):  # deep, or with keys that are no texts
            return deep_dumps(value, ensure_ascii=ensure_ascii)

    return encode


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
