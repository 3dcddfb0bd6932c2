"""Values of pickles as short texts: what stands for an object that is never made. Bounded, whatever the value is."""

from __future__ import annotations

from itertools import islice

from pparse.parsers.pickle.values import Call, Global

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

# How deep values in values are shown, how many of each, letters of a text, bits of an integer, and letters in all.
_DEPTH: Final = 3
_ITEMS: Final = 6
_LETTERS: Final = 40
_BITS: Final = 256
_MOST: Final = 200
# What picklers call to make an object of a class: its first argument.
_MAKERS: Final = frozenset(("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__"))


def call_words(call: Call) -> str:
    """Return what a call would make: ``datetime.date(b'…')``, ``shop.Cart() with {'total': 3}``."""
    return _cut(_call(call, _DEPTH), _MOST)


def _call(call: Call, depth: int) -> str:
    name, args = call.name, call.args
    if name in _MAKERS and type(args) is tuple and args and isinstance(args[0], Global):
        name, args = str(args[0]), ()
    if depth <= 0:
        return f"{name or '…'}(…)"
    name = name or _words(call.callable, depth - 1)
    shown = _parts(args, depth - 1) if type(args) is tuple else f"*{_words(args, depth - 1)}"
    if call.kwargs:
        shown += f", **{_words(call.kwargs, depth - 1)}"
    more = [_words(given, depth - 1) for given in (call.state, call.items) if given]
    if call.pairs:
        more.append(f"{{{_pairs(call.pairs, len(call.pairs), depth - 2)}}}")
    return f"{name}({shown})" + (f" with {' and '.join(more)}" if more else "")


def _words(value: Any, depth: int) -> str:
    if isinstance(value, Call):
        return _call(value, max(0, depth))
    if isinstance(value, str | bytes | bytearray):
        start = value[:_LETTERS]
        shown = repr(start if isinstance(start, str) else bytes(start))
        return shown + "…" * (len(value) > _LETTERS)
    if type(value) is int and value.bit_length() > _BITS:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, dict):
        return f"{{{_pairs(value.items(), len(value), depth - 1) if depth > 0 else '…' * bool(value)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        around = "[]" if type(value) is list else "()" if type(value) is tuple else "{}"
        inner = _parts(value, depth - 1) if depth > 0 else "…" * bool(value)
        return around[0] + inner + "," * (type(value) is tuple and len(value) == 1 and depth > 0) + around[1]
    return _cut(repr(value), 2 * _LETTERS)


def _parts(values: Any, depth: int) -> str:
    return _joined((_words(value, depth) for value in values), len(values))


def _pairs(pairs: Iterable[tuple[Any, Any]], count: int, depth: int) -> str:
    return _joined((f"{_words(key, depth)}: {_words(value, depth)}" for key, value in pairs), count)


def _joined(texts: Iterable[str], count: int) -> str:
    shown = list(islice(texts, _ITEMS))
    return ", ".join(shown + ["…"] * (count > _ITEMS))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
