"""Compares the verdict on a pickle (`pparse.parsers.pickle.calls`) with what CPython's unpicklers do: `differences`.

The C unpickler's steps must be the certain events, one for one, with all arguments that are told. Those of the one in
Python must be among all events, as must those of both with codes of EXT1 … EXT4 registered, and those from an opened
file, where the C unpickler reads ahead: there, among those of one of the two ways to read frames.
``python -m tests.pickle_referee 0 100000`` compares many programs.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pparse.data.base import BytesData
from pparse.parsers.pickle.calls import CallReading
from pparse.parsers.pickle.values import Call, Extension, Global, OutOfBand, Persistent
from tests.pickle_programs import EXTENSIONS, program
from tests.pickle_tracer import CUT, buffered_trace, c_trace, python_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.pickle_tracer import Step, Trace

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
#: Opcodes that are longer than a byte.
HAVE_ARGUMENTS = {"GLOBAL", "INST", "PERSID", "EXT1", "EXT2", "EXT4"}
FRAME = b"\x95"
#: Of texts and bytes that are longer only the beginning is told.
LONG, CUT_AT = 4_000, 200
#: Of what is given at once, how many values are told at most; behind these, ``...`` stands for more.
PARTS = 16
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
        return type(told) is Global and _same_text(real[1], told.module) and _same_text(real[2], told.name)
    if kind == "call":
        return (
            type(told) is Call
            and same(real[1], told.callable)
            and same(real[2], as_tuple(told.args))  # the dict of named arguments may have been changed since
        )
    if kind == "persistent":
        return type(told) is Persistent and same(real[1], told.id)
    if kind in ("list", "tuple", "set", "frozenset", "dict"):
        return type(told).__name__ == kind and _same_parts(kind, real[1:], told)
    if kind == "memoryview" and type(told) is bytearray:
        return bool(told == real[1])
    if type(told) is OutOfBand:
        return kind in ("bytes", "memoryview") and real[1] == b""
    if kind == "str":
        return _same_text(real[1], told)
    if kind == "bytes" and type(told) is bytes and len(real[1]) > LONG:
        return bool(real[1].startswith(told))
    if kind == "float":
        return type(told) is float and (told.hex() == real[1] or (math.isnan(told) and real[1] == "nan"))
    return type(told).__name__ == kind and bool(told == real[1])


def as_tuple(args: Any) -> Any:
    """Return arguments as the unpickler in Python takes them, which is content with whatever can be iterated over."""
    if type(args) is OutOfBand:  # given ones have no bytes
        return ()
    if type(args) in (set, frozenset) or (type(args) in (str, bytes) and len(args) >= CUT_AT):
        return ...  # in any order; or only the beginning is told
    return tuple(args) if type(args) in (str, bytes, list, dict, bytearray) else args


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


def _same_text(real: str, told: Any) -> bool:
    cut = len(real) > LONG // 4 and type(told) is str and told.endswith("…") and real.startswith(told[:-2])
    return bool(cut or real == told)


def same_named(real: Any, told: Any) -> bool:
    """Return whether named arguments are those; None: there are none."""
    return same(real, {} if told is None else told)


class Told(NamedTuple):
    """A step as pparse tells it."""

    opcode: str
    offset: int
    certain: bool
    target: Any
    args: Any = None
    kwargs: Any = None
    more: bool = False  #: whether more steps of the same kind follow, which are not told


def spread(found: Any) -> Iterator[Told]:
    """Yield what an event is as steps."""
    args, opcode = found.args, found.opcode
    told = Told(opcode, found.offset, found.certain, found.target, args, found.kwargs)
    if found.kind in ("name", "call"):
        yield told
    elif found.kind == "persistent":
        yield told._replace(args=(args.id if opcode == "PERSID" and type(args) is Persistent else args,))
    elif opcode == "BUILD" or opcode in OPCODES["extend"]:
        yield told._replace(args=(args,), more=opcode != "BUILD" and args[-1:] == [...])
    else:
        size, given = (1 if opcode == "ADDITEMS" else 2), list(args)
        more = len(given) > PARTS
        del given[len(given) - more :]
        last = len(given) - size
        for number in range(0, len(given), size):
            yield told._replace(args=tuple(given[number : number + size]), more=more and number == last)


def _same_step(step: Step, told: Told) -> bool:
    if told.opcode not in OPCODES[step.how]:
        return False
    if step.kind != "persistent" and not same(step.target, told.target):
        return False
    if step.kind == "name":
        return True
    args = as_tuple(told.args)
    if step.how == "append":  # of the unpickler in Python; all that an event of APPENDS tells are steps of their own
        return args[0] is ... or same(step.args, (args[0][0],))
    return same(step.args, args) and (step.kind != "call" or same_named(step.kwargs, told.kwargs))


def told_of(data: bytes, *, frames: bool = True) -> list[Told]:
    """Return what pparse tells of a pickle."""
    return [step for one in CallReading(BytesData(data), 0, len(data), frames=frames).events() for step in spread(one)]


def follow(steps: list[Step], told: list[Told], *, all_told: bool) -> tuple[Step | None, int]:
    """Return the first step that is not told, and how much of what is told was done by then.

    ``all_told``: a step must be the next that is told; else others may be told between.
    """
    at, skipped = 0, ""
    for step in steps:
        place = at
        while not all_told and place < len(told) and not _same_step(step, told[place]):
            place += 1
        if place < len(told) and _same_step(step, told[place]):
            at = place + 1
            skipped = step.how if told[place].more else ""
        elif step.how != skipped:
            return step, at
    return None, at


def differences(data: bytes, done: Counter[str] | None = None) -> str:
    """Return how the verdict on a pickle differs from what the unpicklers do: "" if it does not.

    ``done`` counts the steps of the C unpickler.
    """
    python = python_trace(data)
    if python.most_index > MOST_INDEX:
        return ""
    c = c_trace(data)
    if done is not None:
        done.update(step.kind for step in c.steps)
        done["programs with a call"] += any(step.kind == "call" for step in c.steps)
    told = told_of(data)
    return _certain_differ(c, told, FRAME in data) or _others_differ(data, python, told)


def _certain_differ(c: Trace, told: list[Told], framed: bool) -> str:
    """Compare what the C unpickler does with what is certain."""
    certain = [step for step in told if step.certain]
    step, at = follow(c.steps, certain, all_told=True)
    if step is not None:
        return f"not told, or otherwise: {step}, told {certain[at : at + 1]} ({c.error!r})"
    if at < len(certain) and not _is_refused_call(c.error, certain[at]) and not isinstance(c.error, MemoryError):
        return f"told, and not done: {certain[at:]} ({c.error!r})"
    if not framed and not any(step.more for step in certain):  # the unpickler reads no more than an opcode
        for step, one in zip(c.steps, certain, strict=False):
            if one.opcode not in HAVE_ARGUMENTS and one.offset != step.end - 1:
                return f"not there: {one}, but {step.end - 1}"
    if [step.offset for step in told] != sorted(step.offset for step in told):
        return f"in no order: {told}"
    return ""


def _others_differ(data: bytes, python: Trace, told: list[Told]) -> str:
    """Compare what other unpicklers do with all that is told."""
    traces = [python]
    if any(opcode in data for opcode in (b"\x82", b"\x83", b"\x84")):
        traces += [python_trace(data, EXTENSIONS), c_trace(data, EXTENSIONS)]
    for trace in traces:
        step, _ = follow(trace.steps, told, all_told=False)
        if step is not None:
            return f"another unpickler's is not told: {step} ({trace.error!r})"
    if FRAME in data:
        trace = buffered_trace(data)
        ways = (told, told_of(data, frames=False))
        if all(follow(trace.steps, way, all_told=False)[0] for way in ways):
            return f"what is done from a file that is read ahead is not told: {trace.steps} ({trace.error!r})"
    return ""


def _is_refused_call(error: Exception | None, told: Told) -> bool:
    """Tell whether names of arguments are no text: ``__new__`` of a class written in C may take them, that of an inert
    one does not."""
    return told.opcode == "NEWOBJ_EX" and str(error) == "keywords must be strings"


def main(start: int, count: int, corpus: str = "") -> None:
    """Compare many programs: ``python -m tests.pickle_referee START COUNT [FOLDER of pickles]``."""
    real = [path.read_bytes() for path in sorted(Path(corpus).rglob("*.pkl"))] if corpus else []
    real = [data for data in real if 0 < len(data) < 4_000]
    import resource  # no Windows has it

    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))  # a length of gigabytes ends as soon as it is read
    began, sums, wrong = time.perf_counter(), Counter[str](), 0
    for number in range(start, start + count):
        data = program(number, real)
        try:
            found = differences(data, sums)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            wrong += 1
            print(f"{number}: {data[:500]!r}\n    {found[:1_000]}")
    spent = time.perf_counter() - began
    print(f"{count} programs from {start}: {wrong} differ; {dict(sums)}; {count / spent:.0f} programs/s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
