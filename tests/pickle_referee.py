"""Compares the verdict on a pickle (`pparse.parsers.pickle.calls`) with what CPython's unpicklers do: `differences`.

The C unpickler's steps must be the certain events, one for one, with all arguments that are told. Those of the one in
Python must be among all events: it goes on in places where the one in C stops, and the other way round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pparse.data.base import BytesData
from pparse.parsers.pickle.calls import events
from pparse.parsers.pickle.values import Call, Extension, Global, OutOfBand, Persistent
from tests.pickle_programs import EXTENSIONS
from tests.pickle_tracer import CUT, c_trace, python_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What kinds of opcodes a step may come from.
OPCODES = {
    "find_class": {"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"},
    "__call__": {"REDUCE", "OBJ", "INST"},
    "__new__": {"NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"},
    "__setstate__": {"BUILD"},
    "extend": {"APPEND", "APPENDS"},
    "append": {"APPEND", "APPENDS"},
    "__setitem__": {"SETITEM", "SETITEMS"},
    "add": {"ADDITEMS"},
    "persistent_load": {"PERSID", "BINPERSID"},
}
#: The largest index of the memo that a program may have: the C unpickler reserves as much memory.
MOST_INDEX = 1 << 20


def same(real: Any, told: Any) -> bool:
    """Return whether what is told of a value is what it really is; ``...`` tells nothing."""
    if told is ... or real == CUT:
        return True
    kind = real[0]
    if kind == "global":
        if type(told) is Extension:
            return EXTENSIONS.get(told.code) == real[1:]
        return type(told) is Global and (told.module, told.name) == real[1:]
    if kind == "call":
        return (
            type(told) is Call
            and same(real[1], told.callable)
            and same(real[2], as_tuple(told.args))
            and same_named(real[3], told.kwargs)
        )
    if kind == "persistent":
        return type(told) is Persistent and same(real[1], told.id)
    if kind in ("list", "tuple", "set", "frozenset", "dict"):
        return type(told).__name__ == kind and _same_parts(kind, real[1:], told)
    if type(told) is OutOfBand:
        return kind in ("bytes", "memoryview") and real[1] == b""
    if kind == "float":
        return type(told) is float and (told.hex() == real[1] or (math.isnan(told) and real[1] == "nan"))
    return type(told).__name__ == kind and bool(told == real[1])


def as_tuple(args: Any) -> Any:
    """Return arguments as the unpickler in Python takes them, which is content with whatever can be iterated over."""
    return tuple(args) if type(args) in (str, bytes, list, dict, set, frozenset, bytearray) else args


def _same_parts(kind: str, real: tuple[Any, ...], told: Any) -> bool:
    if kind in ("list", "tuple"):
        given = list(told)
        if given and given[-1] is ... and len(real) >= len(given):
            return all(map(same, real, given[:-1]))
        return len(real) == len(given) and all(map(same, real, given))
    if kind == "dict":
        whole = ... not in told
        return (not whole or len(real) <= len(told)) and all(
            any(same(key, one) and same(value, other) for one, other in told.items()) or not whole
            for key, value in real
        )
    whole = ... not in told
    return all(any(same(part, one) for one in told) or not whole for part in real)


def same_named(real: Any, told: Any) -> bool:
    """Return whether named arguments are those; None: there are none."""
    return same(real, {} if told is None else told)


def spread(found: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield what an event is as steps: opcode, target, arguments, named arguments."""
    target, args, opcode = found.target, found.args, found.opcode
    if found.kind == "name":
        yield opcode, target, None, None
    elif found.kind == "call":
        yield opcode, target, args, found.kwargs
    elif found.kind == "persistent":
        yield opcode, None, (args.id if opcode == "PERSID" and type(args) is Persistent else args,), None
    elif opcode == "BUILD" or opcode in ("APPEND", "APPENDS"):
        yield opcode, target, (args,), None
    else:
        size = 1 if opcode == "ADDITEMS" else 2
        for number in range(0, len(args), size):
            yield opcode, target, tuple(args[number : number + size]) if args[-1] is not ... else ..., None


def _same_step(step: Any, told: tuple[Any, Any, Any, Any]) -> bool:
    opcode, target, args, named = told
    if opcode not in OPCODES[step.how]:
        return False
    if step.kind != "persistent" and not same(step.target, target):
        return False
    if step.kind == "name":
        return True
    if step.how == "append":
        args = args if args is ... else tuple(args[0])
    return same(step.args, as_tuple(args)) and (step.kind != "call" or same_named(step.kwargs, named))


def told_of(data: bytes) -> list[tuple[bool, int, tuple[Any, Any, Any, Any]]]:
    """Return what pparse tells of a pickle: whether it is certain, the offset, and the step."""
    return [(one.certain, one.offset, step) for one in events(BytesData(data), 0, len(data)) for step in spread(one)]


def differences(data: bytes) -> str:
    """Return how the verdict on a pickle differs from what the unpicklers do: "" if it does not."""
    python = python_trace(data)
    if python.most_index > MOST_INDEX:
        return ""
    c = c_trace(data)
    told = told_of(data)
    certain = [step for sure, _, step in told if sure]
    for number, step in enumerate(c.steps):
        if number >= len(certain):
            return f"missed: {step} ({c.error!r})"
        if not _same_step(step, certain[number]):
            return f"differs: {step}, told {certain[number]} ({c.error!r})"
    if len(certain) > len(c.steps) and not _is_refused_call(c.error, certain[len(c.steps) :]):
        return f"invented: {certain[len(c.steps) :]} ({c.error!r})"
    offsets = [offset for _, offset, _ in told]
    if offsets != sorted(offsets):
        return f"in no order: {told}"
    return _python_differs(python, [step for _, _, step in told], "Python's")


def _is_refused_call(error: Exception | None, more: list[Any]) -> bool:
    """Tell whether what is told besides begins with a call whose names of arguments are no text: ``__new__`` of a class
    written in C may take them, that of an inert one does not."""
    return more[0][0] == "NEWOBJ_EX" and str(error) == "keywords must be strings"


def _python_differs(trace: Any, told: list[Any], whose: str) -> str:
    """Return the first step of another unpickler that is not told, in its order."""
    at = 0
    for step in trace.steps:
        while at < len(told) and not _same_step(step, told[at]):
            at += 1
        if at == len(told):
            return f"{whose} is missed: {step} ({trace.error!r})"
        at += 1
    return ""
