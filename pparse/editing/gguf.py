"""The head of a GGUF file: counts, key-values, the table of tensors, and zeros up to where the data begin.

Where the data begin is not stored: they follow at the next multiple of ``general.alignment``. So a head that is to be
longer than it needs gets one more text, ``pparse.padding``, of spaces. ggml (``src/gguf.cpp``) wants each tensor where
the one before ends, padded: bytes of a dropped one cannot stay between others. The package gguf
(``gguf_writer.py``, ``GGUFValueType.get_type``) has the types that values get of which nothing else is known.
"""

from __future__ import annotations

import struct
from json import loads
from math import isinf

from pparse.conversion.forms import LONGEST_NAME, is_key, is_text, raw_entries
from pparse.editing.plan import Head
from pparse.errors import OptionError, UnsupportedError
from pparse.parsers.gguf.parser import ALIGNMENT, ARRAY, LAYOUTS, NAMES, TEXT
from pparse.viewers.gguf.viewer import TENSORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.editing.plan import Wishes
    from pparse.tensors.viewer import Viewer

FILLER: Final = "pparse.padding"
"""Key of the text that takes up room."""
_OURS: Final = (FILLER, ALIGNMENT)
_KINDS: Final = {name: kind for kind, name in enumerate(NAMES)} | {"string": TEXT, "str": TEXT}
_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
_BOOL, _INT32, _FLOAT32, _INT64 = (_KINDS[name] for name in ("bool", "int32", "float32", "int64"))
_MOST: Final = 1 << 30  # ggml reads no longer texts


class GgufHead(Head):
    """Counts, key-values and table."""

    def __init__(self, viewer: Viewer, wishes: Wishes) -> None:
        super().__init__(viewer, wishes)
        source: Any = viewer
        parser = source.parser
        self._order, self._length = parser.order, parser.length
        self._facts, self._table = source.facts, source.table
        self.step, self.old_size = parser.alignment, parser.data_start
        self._begin = self.data.read_exact(0, 8)
        pairs = list(raw_entries(self._facts))
        known = dict(pairs)
        if len(known) < len(pairs):
            raise UnsupportedError("a key occurs more than once among the key-values", source=self.data.name)
        for key in (*wishes.delete, *wishes.rename, *wishes.rename.values(), *map(_plain, wishes.set)):
            if key in _OURS:
                raise OptionError(f"{key} says how the file is laid out, and is not edited")
        known.pop(FILLER, None)
        self._pairs = self.edited(known, self._encoded)
        there = (self.data.size or 0) - self.old_size if parser.layout.end else 0
        self._entries = [raw for _, raw in raw_entries(self._table)]
        if wishes.of_tensors:
            self._change_table(there)
        else:
            self.lay([(0, 0, there)], there)
        self.needed = len(self._bare())

    def _pack(self, layout: str, *values: object) -> bytes:
        return struct.pack(self._order + layout, *values)

    def _text(self, text: str) -> bytes:
        raw = text.encode()
        if len(raw) > _MOST:
            raise OptionError(f"a text of {len(raw):,} bytes; ggml reads at most {_MOST:,}")
        return self._pack(self._length, len(raw)) + raw

    def _behind_name(self, raw: bytes) -> bytes:
        """Return what follows the key or name of an entry."""
        (length,) = struct.unpack_from(self._order + self._length, raw)
        return raw[struct.calcsize(self._order + self._length) + length :]

    # -- key-values ----------------------------------------------------------------------------------------------------

    def rekeyed(self, key: str, value: bytes) -> tuple[str, bytes]:  # type: ignore[override]
        """Return what is kept of a value under another key."""
        return self._checked(key), self._text(key) + self._behind_name(value)

    def _checked(self, key: str) -> str:
        if not is_text(key) or not is_key(key):
            raise OptionError(f"readers of GGUF files take no key {key[:80]!r}")
        return key

    def _encoded(self, given: str, value: object) -> tuple[str, bytes]:
        """Return a key and its bytes; its type is the one that is said, that of the value there, or that of Python."""
        key, kind, inner = _plain(given), None, None
        if key != given:
            word = given[len(key) + 1 :]
            kind = _KINDS[word.removesuffix("[]")]
            kind, inner = (ARRAY, kind) if word.endswith("[]") else (kind, None)
        elif key in self._held:
            old = self._behind_name(self._held[key])
            (kind,) = struct.unpack_from(self._order + "I", old)
            inner = struct.unpack_from(self._order + "I", old, 4)[0] if kind == ARRAY else None
        elif ":" in key:
            words = ", ".join(name for name in NAMES if name != NAMES[ARRAY])
            told = f"{key}: {key.rpartition(':')[2]!r} is no type of GGUF values ({words}; each with [] for a list)"
            raise OptionError(f"{told}; a new key that has a colon is given with its type, {key}:text")
        elif isinstance(value, list | tuple):
            kind, inner = ARRAY, _kind_of(value[0]) if value else TEXT
        else:
            kind = _kind_of(value)
        try:
            body = self._value(kind, value) if inner is None else self._array(inner, value)
        except (ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
            name = NAMES[kind] if inner is None else f"{NAMES[inner]}[]"
            raise OptionError(f"{key}: {str(value)[:80]!r} is no {name} ({_expected(kind, inner)})") from error
        return self._checked(key), self._text(key) + self._pack("I", kind) + body

    def _value(self, kind: int, value: Any) -> bytes:
        if kind == TEXT:
            if not isinstance(value, str) or not is_text(value):
                raise TypeError("not a text of UTF-8")
            return self._text(value)
        if kind not in LAYOUTS:
            raise TypeError("arrays of arrays are not written")
        if isinstance(value, str):
            layout = LAYOUTS[kind]
            value = _WORDS[value.lower()] if layout == "?" else _number(value) if layout in "fd" else int(value, 0)
        if kind == _BOOL and value not in (0, 1):
            raise ValueError("neither true nor false")
        return self._pack(LAYOUTS[kind], value)

    def _array(self, inner: int, value: Any) -> bytes:
        items = loads(value, parse_float=_number) if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise TypeError("not a list, as JSON writes it")
        head = self._pack("I" + self._length, inner, len(items))
        return head + b"".join(self._value(inner, item) for item in items)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _change_table(self, there: int) -> None:
        """Take the new names; if tensors are dropped, the others follow each other without gaps."""
        nodes = list(self._table.children())
        old = [str(node.key) for node in nodes]
        new = self.new_names(old)
        drops = None in new
        at, entries, places = 0, [], []
        for node, raw, before, name in zip(nodes, self._entries, old, new, strict=True):
            if name is None:
                continue
            place, rest = node.note, self._behind_name(raw)
            if name != before:
                if not is_text(name) or len(name.encode()) > LONGEST_NAME:
                    raise OptionError(f"{name[:80]!r}: ggml reads names of at most {LONGEST_NAME} bytes of UTF-8")
                raw = self._text(name) + rest
            if drops:
                if place.size is None:
                    raise UnsupportedError(f"{before}: {place.problem}: how far it reaches is not known")
                room = place.size + -place.size % self.step
                raw = raw[:-8] + self._pack("Q", at)
                places.append((place.offset, at, room))
                at += room
            entries.append(raw)
        self._entries = entries
        if drops and TENSORS in self._pairs:
            self.notes.append(f"{TENSORS} counts the tensors of all files of the model, and is not changed")
        self.lay(places if drops else [(0, 0, there)], there)

    # -- the bytes -----------------------------------------------------------------------------------------------------

    def _bare(self, filler: bytes = b"") -> bytes:
        counts = self._pack(2 * self._length, len(self._entries), len(self._pairs) + bool(filler))
        return b"".join((self._begin, counts, *self._pairs.values(), filler, *self._entries))

    def _filler(self, size: int) -> bytes:
        return self._text(FILLER) + self._pack("I", TEXT) + self._text(" " * size)

    def fits(self, size: int) -> bool:
        """Return whether the new head can take exactly ``size`` bytes: padding alone may be too little for a filler."""
        spare = size - self.needed
        return 0 <= spare < self.step or spare >= len(self._filler(0))

    def written(self, size: int) -> bytes:
        """Return the new head as ``size`` bytes."""
        spare = size - self.needed
        filler = b"" if spare < self.step else self._filler(spare - len(self._filler(0)))
        return self._bare(filler).ljust(size, b"\0")


def _plain(key: str) -> str:
    """Return a key without the type behind it, ``:TYPE`` or ``:TYPE[]``."""
    name, mark, word = key.rpartition(":")
    return name if mark and word.removesuffix("[]") in _KINDS and word != "array" else key


def _number(text: str) -> float:
    """Return a number; raise `OverflowError` for digits that float64 has no room for."""
    number = float(text)
    if isinf(number) and any(map(str.isdigit, text)):
        raise OverflowError("too large")
    return number


def _expected(kind: int, inner: int | None) -> str:
    """Return what a value of a type, or a list of such, has to be."""
    one = kind if inner is None else inner
    layout = LAYOUTS.get(one, "")
    if one == TEXT:
        words = "text of UTF-8"
    elif layout == "?":
        words = "true or false"
    elif layout in ("f", "d"):
        words = "a number in its range"
    elif layout:
        bits = 8 * struct.calcsize(layout)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if layout.islower() else (0, (1 << bits) - 1)
        words = f"a whole number from {low} to {high}"
    else:
        words = "arrays of arrays are not written"
    return words if inner is None else f"a list in JSON, each item {words}"


def _kind_of(value: object) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT32 if -(1 << 31) <= value < 1 << 31 else _INT64
    return _FLOAT32 if isinstance(value, float) else TEXT
