"""How dangerous it is to load a pickle: a grade for each name that it looks up, by what it would call with it.

`pparse.tree.code_names` knows the names. Of what leads to others, ``getattr`` and its like, the result is followed as
far as its arguments are constant: what is called is graded by the name that it comes to.
"""

from __future__ import annotations

from pparse.errors import LimitError
from pparse.parsers.pickle.calls import CallReading, Event
from pparse.parsers.pickle.values import Call, Extension, Global, call_words
from pparse.tree.code_names import graded, is_leading, is_quiet
from pparse.tree.code_use import NOT_FOLLOWED, CodeUse, Grade

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_SHOWN: Final = 200  # characters of a name
# The most different names that are kept (five times as many of those that could run something).
_MOST_NAMES: Final = 20_000
# Pickles in bytes that a call loads: how deep, and how many in a row.
_MOST_NESTED: Final = 4
_MOST_IN_A_ROW: Final = 16
# How many calls lead from one name to another.
_MOST_STEPS: Final = 20
_NEVER_CALLED: Final = "looked up, and not called"


def _role(name: str) -> str:
    return graded(name).role if name else ""


class PickleVerdict:
    """What pickles would look up and call."""

    def __init__(self) -> None:
        self.uses: dict[str, CodeUse] = {}
        """What is looked up or called, by its name."""
        self._undecided: set[str] = set()

    def note(self, name: str, at: int, words: str | None = None) -> CodeUse:
        """Note that a name is looked up."""
        use = self._use(name, at, words)
        use.count += 1
        return use

    def _use(self, name: str, at: int, words: str | None) -> CodeUse:
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        use = self.uses.get(shown)
        if use is None:
            grade, reason, role = graded(name, words)
            if grade is None:
                grade, reason = (Grade.HARMLESS if role == "open" else Grade.UNKNOWN), _NEVER_CALLED
                self._undecided.add(shown)
            use = CodeUse(shown, 0, at, grade, reason)
            if len(self.uses) < _MOST_NAMES * (5 if grade is Grade.DANGEROUS else 1):
                self.uses[shown] = use
        return use

    def take_quiet(self, named: list[tuple[int, Global | Extension]]) -> bool:
        """Take names with their offsets, if none of them does harm whatever it is called with; return whether."""
        if not all(is_quiet(str(found), found.name) for _, found in named):
            return False
        for at, found in named:
            self.note(str(found), at, found.name)
        return True

    def read(self, reading: CallReading) -> None:
        """Follow a pickle; take what is dangerous for others, who read frames or joblib's arrays as something else.

        Nothing else of these, and as far as the C unpickler goes: so read, a sound file of joblib mixes names of its
        own pickle with those of pickles in its arrays.
        """
        self.follow(reading)
        for frames in [False] * reading.is_torn + [True] * (reading.behind is not None):
            other = PickleVerdict()
            where = reading.data, reading.start, reading.end, reading.session
            other.follow(CallReading(*where, frames=frames), certain=True)
            self._merge(other)

    def follow(self, reading: CallReading, depth: int = 0, *, certain: bool = False) -> None:
        """Run a pickle, and note all that it would look up and call; ``certain``: if the C unpickler reads it."""
        try:
            for event in reading.events():
                if certain and not event.certain:
                    break
                if event.kind == "name":
                    target = event.target
                    self.note(str(target), event.offset, target.name)
                elif event.kind != "persistent":
                    self._call(event, reading, depth)
        except LimitError as error:
            self.note_limit(error, reading.start)

    def note_limit(self, error: LimitError, start: int) -> None:
        """Note that a pickle is not followed, or not read, to its end: what it would call there is not known."""
        at = error.offset if error.offset is not None else start
        reason = f"not followed to its end: {error.reason}"
        self.uses.setdefault(NOT_FOLLOWED, CodeUse(NOT_FOLLOWED, 1, at, Grade.UNKNOWN, reason))

    def _merge(self, other: PickleVerdict) -> None:
        """Take what is dangerous of what another reader of the same pickles would do."""
        for name, use in other.uses.items():
            if use.grade is not Grade.DANGEROUS:
                continue
            known = self.uses.setdefault(name, use)
            if known is not use and use.grade < known.grade:
                known.worsen(use.grade, use.reason)

    def _call(self, event: Event, reading: CallReading, depth: int) -> None:
        if event.kind == "call" and event.made_by and not any(map(_role, event.made_by)):
            return  # what made the result that is called here was graded by its own name
        call = event.as_call()
        if event.kind == "method":
            # What a class or function is given changes what it does; other objects have methods for it.
            if isinstance(call.callable, Global):
                use = self._use(str(call.callable), event.offset, call.callable.name)
                use.worsen(Grade.DANGEROUS, "a class or function is changed")
                change = f"{call.callable} changed by {call_words(Call(event.opcode, (call.args,)))}"
                use.add_call(event.offset, change, event.opcode)
            return
        name, words = _name_of(call.callable)
        if not name and isinstance(call.callable, Call) and _got(call.callable):
            name, words = _name_of(call)  # what a getter gets, or calls
        if not name:
            return
        use = self._use(name, event.offset, words)
        role = _role(name)
        if name in self._undecided:
            if not use.called:
                use.grade, use.reason = Grade.HARMLESS, "harmless with these arguments"
            use.worsen(*_DECIDERS[role](call))
        if use.grade not in (Grade.HARMLESS, Grade.WEIGHTS_ONLY):
            use.add_call(event.offset, call_words(call), event.opcode)
        else:
            use.called += 1
        if role == "load" and depth < _MOST_NESTED:
            self._nested(event, reading, use, depth)

    def _nested(self, event: Event, reading: CallReading, use: CodeUse, depth: int) -> None:
        """Follow the pickles in the bytes that a call would load."""
        place = event.first_bytes()
        if place is None:
            use.worsen(Grade.DANGEROUS, "loads a pickle that other calls put together")
            return
        at, end = place
        found = 0
        while found < _MOST_IN_A_ROW:
            inner = CallReading(event.data, at, end, reading.session)
            self.follow(inner, depth + 1)
            found += 1
            at = inner.stopped_at
            if inner.trouble or at >= end:
                break
        if inner.trouble and found == 1:
            use.worsen(Grade.DANGEROUS, "loads bytes that are no whole pickle")


def _arguments(call: Call) -> tuple[Any, ...]:
    return call.args if isinstance(call.args, tuple) else ()


def _name_of(target: Any) -> tuple[str, str | None]:
    """Return the name that something comes to which is called, and the part of it behind the module; "": unknown."""
    attributes: list[str] = []
    for _ in range(_MOST_STEPS):
        if isinstance(target, Global):
            words = ".".join([target.name, *reversed(attributes)])
            return f"{target.module}.{words}", words
        if isinstance(target, Extension):
            return str(target), ""
        if not isinstance(target, Call):
            return "", None
        args = _arguments(target)
        role = _role(target.name)
        if role == "getattr" and len(args) >= 2 and isinstance(args[1], str):
            attributes.append(args[1])
            target = args[0]
        elif role == "import" and args and isinstance(args[0], str):
            words = ".".join(reversed(attributes))
            return f"{args[0]}.{words}" if words else args[0], words or args[0]
        elif role == "partial" and args:
            target = args[0]
        elif role == "item" and len(args) == 2 and isinstance(args[1], str):
            attributes.append(args[1])
            target = args[0]
        elif isinstance(target.callable, Call) and (found := _got(target.callable)) is not None and len(args) == 1:
            attributes.append(found)
            target = args[0]
        else:
            return "", None
    return "", None


def _got(getter: Call) -> str | None:
    """Return the attribute that an ``operator.attrgetter`` gets, or ``methodcaller`` calls."""
    args = _arguments(getter)
    return args[0] if args and _role(getter.name) == "getter" and isinstance(args[0], str) else None


def _is_hidden(words: str) -> bool:
    """Return whether attributes lead to others; of a long text, only the beginning is kept."""
    return "…" in words or any(part.startswith("__") or is_leading(part) for part in words.split("."))


def _decide_getattr(call: Call) -> tuple[Grade, str]:
    args = _arguments(call)
    if len(args) < 2 or not isinstance(args[1], str):
        return Grade.DANGEROUS, "gets an attribute whose name other calls put together"
    name, words = _name_of(call)
    if name and is_quiet(name, words):
        return Grade.HARMLESS, "gets an attribute"
    if _is_hidden(args[1]):
        return Grade.DANGEROUS, f"gets the attribute {args[1]!r}"
    if name and graded(name, words).grade is Grade.DANGEROUS:
        return Grade.DANGEROUS, f"gets {name}"
    is_quiet_class = bool(name) and is_quiet(_name_of(args[0])[0])
    return (Grade.HARMLESS if is_quiet_class else Grade.UNKNOWN), "gets an attribute"


def _decide_getter(call: Call) -> tuple[Grade, str]:
    args = _arguments(call)
    named = isinstance(args[0], str) if args else False
    if not named or any(word is ... or (isinstance(word, str) and _is_hidden(word)) for word in args):
        return Grade.DANGEROUS, "gets attributes by hidden names, or such as other calls put together"
    return Grade.UNKNOWN, "gets an attribute"


def _decide_import(call: Call) -> tuple[Grade, str]:
    args = _arguments(call)
    if not args or not isinstance(args[0], str):
        return Grade.DANGEROUS, "imports a module whose name other calls put together"
    grade = graded(f"{args[0]}.x").grade
    return (grade or Grade.UNKNOWN), f"imports {args[0]}"


def _decide_type(call: Call) -> tuple[Grade, str]:
    many = not isinstance(call.args, tuple) or len(call.args) != 1
    return (Grade.UNKNOWN, "makes a class") if many else (Grade.HARMLESS, "tells the class of an object")


def _decide_item(call: Call) -> tuple[Grade, str]:
    args = _arguments(call)
    name, words = _name_of(call)
    if name and words and _is_hidden(words):
        return Grade.DANGEROUS, f"gets {name}"
    is_data = bool(args) and isinstance(args[0], dict | list | tuple | str | bytes)
    return (Grade.HARMLESS if is_data else Grade.UNKNOWN), "gets an item"


def _decide_open(call: Call) -> tuple[Grade, str]:
    return Grade.DANGEROUS, "opens a file"


def _decide_load(call: Call) -> tuple[Grade, str]:
    return Grade.UNKNOWN, "loads a pickle inside"


def _decide_expressions(call: Call) -> tuple[Grade, str]:
    """Grade texts in JSON that torch evaluates."""
    from json import loads

    from pparse.tree.expressions import grade_of, texts_in

    args = _arguments(call)
    try:
        told = args[0] if args else None
        if isinstance(told, Call) and told.name == "_codecs.encode" and _arguments(told)[1:] == ("latin1",):
            told = _arguments(told)[0].encode("latin1")  # bytes, in old protocols
        if isinstance(told, bytes):
            found = map(grade_of, texts_in(loads(told.decode())))
            return min(found, default=(Grade.HARMLESS, "makes a tensor without values"))
    except (ValueError, AttributeError, RecursionError):
        pass
    return Grade.DANGEROUS, "evaluates texts in what is no JSON, or put together by other calls"


# By what ``globals.txt`` says of a name whose arguments decide.
_DECIDERS: Final[dict[str, Callable[[Call], tuple[Grade, str]]]] = {
    "getattr": _decide_getattr,
    "getter": _decide_getter,
    "import": _decide_import,
    "type": _decide_type,
    "item": _decide_item,
    "load": _decide_load,
    "expressions": _decide_expressions,
    "open": _decide_open,
}
