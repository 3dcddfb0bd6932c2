"""What CPython's own unpicklers name and call, without importing or calling anything.

`c_trace` lets the C ``pickle.Unpickler`` read a pickle, `python_trace` the ``pickle._Unpickler`` that is written in
Python; each has ``find_class`` and ``persistent_load`` overridden and is otherwise the real one. Whatever a pickle
names, and whatever a call returns, is an inert class: its metaclass notes calls (REDUCE, INST, OBJ), ``__new__``
(NEWOBJ, NEWOBJ_EX), ``__setstate__`` (BUILD), ``extend`` (APPEND, APPENDS), ``__setitem__`` (SETITEM, SETITEMS) and
``add`` (ADDITEMS), and returns the next inert class. So every opcode accepts it where it would accept some object.

What happens is a list of `Step`. Its parts are plain values as they are at that moment: tuples that begin with the name
of their kind. What is inert is told by how it was made: ("global", module, name), ("call", function, arguments, named
arguments) or ("persistent", id).
"""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many values of one argument are written down, and how deep. `CUT` stands for the others.
MOST_PARTS, MOST_DEPTH = 400, 12
CUT = ("…",)


class Step(NamedTuple):
    """Something that an unpickler did."""

    kind: str  #: "name", "call", "method", "persistent"
    how: str  #: "find_class", "__call__", "__new__", "__setstate__", "extend", "append", "__setitem__", "add"
    target: Any  #: what is named or called, or given something
    args: Any  #: a tuple; of a name None
    kwargs: Any  #: a dict
    end: int  #: where the unpickler had read to; behind the opcode, unless it is in a frame


class Trace:
    """The steps of one unpickling, and how it ended."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.error: Exception | None = None
        self.named: dict[tuple[str, str], Any] = {}
        self.file: Any = None
        self.most_index = 0  # of what the unpickler in Python memoized

    def note(self, kind: str, how: str, target: Any, args: Any = (), kwargs: Any = ()) -> Inert:
        """Write a step down, and return what it makes."""
        if kind == "call":
            made = inert(self, ("call", target, args, kwargs))
        else:
            made = inert(self, ("persistent", *args) if kind == "persistent" else ("none",))
        self.steps.append(Step(kind, how, plain(target), plain(args), plain(kwargs), self.file.tell()))
        return made

    def find(self, module: str, name: str) -> Inert:
        """Return the class that stands for a name: one for each."""
        made = self.named.get((module, name))
        if made is None:
            made = self.named[module, name] = inert(self, ("global", module, name))
        self.steps.append(Step("name", "find_class", plain(made), None, None, self.file.tell()))
        return made


class Inert(type):
    """The type of all that stands for an unknown object."""

    trace: Trace
    way: tuple[Any, ...]  # how it was made

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.trace.note("call", "__call__", cls, args, kwargs)

    def __setstate__(cls, state: Any) -> None:
        cls.trace.note("method", "__setstate__", cls, (state,))

    def extend(cls, items: Any) -> None:
        cls.trace.note("method", "extend", cls, (items,))

    def append(cls, item: Any) -> None:
        cls.trace.note("method", "append", cls, (item,))

    def __setitem__(cls, key: Any, value: Any) -> None:
        cls.trace.note("method", "__setitem__", cls, (key, value))

    def add(cls, item: Any) -> None:
        cls.trace.note("method", "add", cls, (item,))


def _new(cls: Inert, /, *args: Any, **kwargs: Any) -> Any:
    return cls.trace.note("call", "__new__", cls, args, kwargs)


def inert(trace: Trace, way: tuple[Any, ...]) -> Inert:
    """Make the class that stands for what was made in a way."""
    return Inert("Inert", (), {"trace": trace, "way": way, "__new__": _new, "__slots__": ()})


def plain(value: Any) -> Any:
    """Return a value as it is now, as tuples that begin with the name of their kind."""
    return _plain(value, [MOST_PARTS], 0)


def _plain(value: Any, left: list[int], depth: int) -> Any:
    kind = type(value)
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEPTH:
        return CUT
    if kind is Inert:
        head, *parts = value.way
        return (head, *(parts if head == "global" else [_plain(part, left, depth + 1) for part in parts]))
    if kind is tuple or kind is list:
        return (kind.__name__, *[_plain(part, left, depth + 1) for part in value])
    if kind is dict:
        pairs = [(_plain(key, left, depth + 1), _plain(part, left, depth + 1)) for key, part in value.items()]
        return ("dict", *pairs)
    if kind is set or kind is frozenset:
        return (kind.__name__, *[_plain(part, left, depth + 1) for part in value])
    if kind is bytearray:
        return ("bytearray", bytes(value))
    if kind is float:
        return ("float", value.hex())
    if kind is memoryview:
        return ("memoryview", bytes(value))
    return (kind.__name__, value)


class _Names:
    """What both unpicklers get instead of their own ways to find a class and an object that lies elsewhere."""

    trace: Trace

    def find_class(self, module: str, name: str, /) -> Any:
        return self.trace.find(module, name)

    def persistent_load(self, pid: Any, /) -> Any:
        return self.trace.note("persistent", "persistent_load", None, (pid,))


class CTracer(_Names, pickle.Unpickler):
    """The unpickler written in C."""


class PythonTracer(_Names, pickle._Unpickler):  # type: ignore[misc]
    """The unpickler written in Python."""


def _run(unpickler: Any, file: Any, extensions: Mapping[int, tuple[str, str]], encoding: str) -> Trace:
    trace = Trace()
    trace.file = file
    reader = unpickler(trace.file, encoding=encoding, buffers=itertools.repeat(b""))
    reader.trace = trace
    inverted, cache = copyreg._inverted_registry, copyreg._extension_cache  # type: ignore[attr-defined]
    before = dict(inverted)
    try:
        inverted.update(extensions)
        with warnings.catch_warnings(action="ignore"):  # of escapes
            reader.load()
    except Exception as error:  # whatever the opcodes do
        error.__traceback__ = None
        trace.error = error
    finally:
        inverted.clear()
        inverted.update(before)
        cache.clear()
    trace.most_index = max(reader.memo, default=0) if unpickler is PythonTracer else 0
    return trace


def c_trace(data: bytes, extensions: Mapping[int, tuple[str, str]] = {}, encoding: str = "latin1") -> Trace:
    """Return what the C unpickler does with a pickle; ``extensions`` are the codes that EXT1 … EXT4 find."""
    return _run(CTracer, io.BytesIO(data), extensions, encoding)


def buffered_trace(data: bytes, encoding: str = "latin1") -> Trace:
    """Return what the C unpickler does with a pickle in a file that was opened: it reads ahead, and keeps that."""
    return _run(CTracer, io.BufferedReader(io.BytesIO(data)), {}, encoding)


def python_trace(data: bytes, extensions: Mapping[int, tuple[str, str]] = {}, encoding: str = "latin1") -> Trace:
    """Return what the unpickler in Python does with a pickle."""
    return _run(PythonTracer, io.BytesIO(data), extensions, encoding)
