"""What pickles say that is not plain data: names of globals, calls that nobody makes, ids; and the few calls whose
result is plain data, such as that of ``set``."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from pparse.errors import LimitError, MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

    from pparse.parsers.pickle.reading import RawArray

# Tuples are compared and hashed by recursion, and shared ones again and again: larger ones are no keys.
_KEY_DEPTH: Final = 100
_KEY_PARTS: Final = 10_000


class Global:
    """The name of a class or function. It is never looked up."""

    __slots__ = ("_full", "module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        """The module that it is said to be in."""
        self.name = name
        """Its name there; with dots for what is inside of a class."""
        self._full = f"{module}.{name}"  # each object of its class is told by it

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"Global({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Global) and (self.module, self.name) == (other.module, other.name)

    def __hash__(self) -> int:
        return hash((self.module, self.name))


class Call:
    """An object as its pickle describes it: a call that is not made, and what would be done with the result."""

    __slots__ = ("args", "array", "callable", "end", "items", "kwargs", "pairs", "start", "state")

    def __init__(self, callable: Any, args: Any, kwargs: Any = None, start: int = 0) -> None:
        self.callable = callable
        """What would be called: a `Global`, or anything else that the pickle says."""
        self.args = args
        """With which arguments: a tuple, in pickles that real picklers make."""
        self.kwargs = kwargs
        """And with which named ones; None: none."""
        self.state: Any = None
        """What the object would be given as its state; None: nothing."""
        self.items: list[Any] = []
        """What would be appended to it."""
        self.pairs: list[tuple[Any, Any]] = []
        """Keys and values that would be set in it."""
        self.array: RawArray | None = None
        """The array of joblib that it stands for."""
        self.start = start
        """Offset at which the object begins in the pickle."""

    @property
    def name(self) -> str:
        """Full name of what would be called; "" if that is not a global."""
        return self.callable._full if type(self.callable) is Global else ""

    def __repr__(self) -> str:

        return call_words(self)


class Persistent:
    """A value that lies outside of the pickle, by its id there."""

    __slots__ = ("id",)

    def __init__(self, id: Any) -> None:
        self.id = id
        """The id: any value; torch's are tuples."""

    def __repr__(self) -> str:
        return f"Persistent({self.id!r})" if not isinstance(self.id, tuple | list | dict) else "<Persistent>"


class Extension:
    """A global by its number in a registry that the pickle does not hold (PEP 307)."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code
        """The number."""

    def __repr__(self) -> str:
        return f"Extension({self.code})"


class OutOfBand:
    """A buffer that was stored outside of the pickle (PEP 574)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OutOfBand()"


class Ordered(OrderedDict):  # type: ignore[type-arg]
    """A ``collections.OrderedDict``, and the state that it was given."""

    state: Any = None
    """Its attributes; None: none."""


def check_key(key: Any) -> None:
    """Raise the error of a key, or member of a set, that cannot be hashed, or not in little time."""
    kind = type(key)
    if kind is str or kind is int:
        return
    todo, parts = [(key, 0)], 0
    while todo:
        value, depth = todo.pop()
        if isinstance(value, list | dict | set | bytearray):
            raise MalformedError(f"a {type(value).__name__} is a key, or in a set: it cannot be")
        if isinstance(value, tuple | frozenset):
            parts += len(value)
            if depth >= _KEY_DEPTH or parts > _KEY_PARTS:
                raise LimitError("a key of the pickle is too large", option="", wanted=parts, got=_KEY_PARTS)
            todo.extend((part, depth + 1) for part in value)


def as_set(items: Iterable[Any], into: set[Any]) -> set[Any]:
    """Add ``items`` to a set. Raises `MalformedError` if one cannot be in a set."""
    for item in items:
        check_key(item)
        into.add(item)
    return into


def plain_result(name: str, args: Any) -> Any:
    """Return what a call would return if that is plain data, else None. ``name`` is that of the global, in full."""
    maker, least, most = _MAKERS.get(name, (None, 0, 0))
    if maker is None or type(args) is not tuple or not least <= len(args) <= most:
        return None
    return maker(*args)


def _set(items: Any = ()) -> Any:
    return as_set(items, set()) if isinstance(items, list | tuple) else None


def _frozenset(items: Any = ()) -> Any:
    return frozenset(as_set(items, set())) if isinstance(items, list | tuple) else None


def _encode(text: Any, encoding: Any = "latin1") -> Any:
    """Bytes as protocols 0 to 2 write them: text of the characters 0 to 255."""
    if type(text) is not str or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        return None
    content = as_latin1(text)
    if content is None:
        raise MalformedError("bytes are written as text with characters above 255")
    return content


def as_latin1(text: str) -> bytes | None:
    """Return the bytes that ``text`` has, a character each; None if a character is above 255."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def as_text(word: Any) -> Any:
    """Return a word that Python 2 wrote as bytes as a text; anything else as it is."""
    return word.decode("latin-1") if isinstance(word, bytes) else word


def _bytes(content: Any = b"") -> Any:
    return bytes(content) if type(content) is bytes else None


def _bytearray(content: Any = b"", encoding: Any = None) -> Any:
    if encoding is not None:
        content = _encode(content, encoding)
    if isinstance(content, list):
        whole = all(type(code) is int and 0 <= code < 256 for code in content)
        content = bytes(content) if whole else None
    return bytearray(content) if type(content) is bytes else None


def _complex(real: Any = 0.0, imag: Any = 0.0) -> Any:
    return complex(real, imag) if type(real) is float and type(imag) is float else None


def _ordered(pairs: Any = ()) -> Any:
    if not isinstance(pairs, list | tuple):
        return None
    made = Ordered()
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            return None
        check_key(pair[0])
        made[pair[0]] = pair[1]
    return made


# What makes the results, and how many arguments it takes at least and at most.
_MAKERS: Final[dict[str, tuple[Callable[..., Any] | None, int, int]]] = {
    "_codecs.encode": (_encode, 1, 2),
    "collections.OrderedDict": (_ordered, 0, 1),
    **{
        f"{module}.{name}": maker
        for module in ("builtins", "__builtin__")
        for name, maker in {
            "set": (_set, 0, 1),
            "frozenset": (_frozenset, 0, 1),
            "bytes": (_bytes, 0, 1),
            "bytearray": (_bytearray, 0, 2),
            "complex": (_complex, 1, 2),
        }.items()
    },
}


# -- Values of pickles as short texts: what stands for an object that is never made. Bounded, whatever the value is ----

# How deep values in values are shown, how many of each, letters of a text, bits of an integer, and letters in all.
_DEPTH: Final = 3
_ITEMS: Final = 6
_LETTERS: Final = 40
_BITS: Final = 256
_MOST: Final = 200
# What picklers call to make an object of a class: its first argument.
_CLASS_MAKERS: Final = frozenset(("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__"))


def call_words(call: Call) -> str:
    """Return what a call would make: ``datetime.date(b'…')``, ``shop.Cart() with {'total': 3}``."""
    return _cut(_call(call, _DEPTH), _MOST)


def _call(call: Call, depth: int) -> str:
    name, args = call.name, call.args
    if name in _CLASS_MAKERS and type(args) is tuple and args and isinstance(args[0], Global):
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
