"""Small pickles with everything that pickles have, and ways to make them."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WAYS = ("C", "Python", "fast", "optimized")


def dump(value: Any, protocol: int, way: str = "C") -> bytes:
    """Pickle a value, as one of `WAYS` does it."""
    out = io.BytesIO()
    pickler: Any = pickle._Pickler(out, protocol) if way == "Python" else pickle.Pickler(out, protocol)  # type: ignore[attr-defined]
    pickler.fast = way == "fast"
    pickler.dump(value)
    return pickletools.optimize(out.getvalue()) if way == "optimized" else out.getvalue()


def frozen(value: Any) -> Any:
    """Return what two equal values have in common: types and order too, NaN, -0.0, what is shared, and cycles."""
    seen: dict[int, int] = {}
    kept: list[Any] = []
    return _frozen(value, seen, kept)


def _frozen(value: Any, seen: dict[int, int], kept: list[Any]) -> Any:
    kind = "OrderedDict" if isinstance(value, OrderedDict) else type(value).__name__
    if isinstance(value, list | dict | set | bytearray):  # what can be changed must be shared as it was
        if id(value) in seen:
            return "again", seen[id(value)]
        seen[id(value)] = len(seen)
        kept.append(value)
    if isinstance(value, list | tuple):
        return kind, [_frozen(part, seen, kept) for part in value]
    if isinstance(value, dict):
        return kind, [(_frozen(key, seen, kept), _frozen(part, seen, kept)) for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(_frozen(part, seen, kept)) for part in value)
    return kind, repr(value)


class Thing:
    """An object with a state."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


class Kept(list):  # type: ignore[type-arg]
    """A list with a state."""


class Named(dict):  # type: ignore[type-arg]
    """A dict with a state."""


class New:
    """An object made with arguments and named arguments."""

    def __new__(cls, *args: Any, **named: Any) -> New:
        made = super().__new__(cls)
        made.args, made.named = args, named  # type: ignore[attr-defined]
        return made

    def __getnewargs_ex__(self) -> tuple[Any, Any]:
        return self.args, self.named  # type: ignore[attr-defined]

    def __getstate__(self) -> Any:
        return {"own": self}


class Set:
    """An object whose state is set by a function: protocol 4 and later write a call for it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Set, (), {"a": 1}, None, None, put


def put(target: Any, state: Any) -> None:
    """Set a state."""
    target.__dict__.update(state)


class Outside(pickle.Pickler):
    """Puts all complex numbers outside of the pickle."""

    def persistent_id(self, value: Any) -> Any:
        return ("outside", [str(value)]) if isinstance(value, complex) else None


def objects() -> list[Any]:
    """Return objects of every kind that pickles tell apart."""
    kept = Kept([1, "two", [3]])
    kept.note = {"of": "kept"}  # type: ignore[attr-defined]
    named = Named(a=1, b=[2])
    named.note = kept  # type: ignore[attr-defined]
    thing = Thing(name="t", shape=(2, 3))
    thing.me = thing  # type: ignore[attr-defined]
    around: list[Any] = []
    inside = (around,)
    around.append(inside)
    return [kept, named, thing, New(1, 2, key="v"), Set(), inside, len, Thing, kept, thing, range(3), 1j]


def plain(*, long: int = 1) -> dict[Any, Any]:
    """Return plain data of every type; with texts and numbers of ``long`` bytes."""
    shared = ["shared", 1]
    cycle: list[Any] = [1]
    cycle.append(cycle)
    return {
        "none": None,
        "bools": [True, False],
        "ints": [0, 255, 256, 65_535, 65_536, -1, 1 << 31, -(1 << 31), 1 << 70, -(1 << 70), 1 << 8 * long],
        "floats": [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")],
        "text": ["", "a", "ä€", "\udc80", "\\u\n\r\x1a\0", "x" * long],
        "bytes": [b"", b"ab", b"\xff\0", b"y" * long],
        "bytearray": bytearray(b"mutable"),
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))],
        "dict": {1: "int", None: "none", False: "bool", 1.5: "float", ("a", 1): "tuple", b"k": "bytes", "": {}},
        "sets": [set(), {1}, {"a", 2}, frozenset(), frozenset((1, "b"))],
        "complex": 1 - 2j,
        "ordered": OrderedDict([("z", 1), ("a", shared)]),
        "shared": [shared, shared],
        "cycle": cycle,
    }


def old() -> dict[str, bytes]:
    """Return pickles as other and older picklers write them, and by hand."""
    return {
        "python2-text": b"(dp1\nS'weights'\np2\n(lp3\nF1.5\naI7\naI01\naL5L\nasS'name'\np4\nS\"it's\"\np5\nsVk\\u20ac\np6\ng3\nsS'\\xff'\nNs.",  # noqa: E501
        "python2-binary": b"\x80\x02}q\x01(U\x04nameq\x02U\x03abcq\x03U\x02\xff\xfeq\x04]q\x05(K\x01h\x03eT\x03\0\0\0xyzh\x05u.",  # noqa: E501
        "old-classes": b"(dp0\nS'a'\np1\n(icollections\nThing\np2\n(dp3\nS'x'\nI1\nsbsS'b'\n(c__main__\nOld\np4\nI1\nI2\nop5\n(dS'y'\nI2\nsbs.",  # noqa: E501
        "persistent": b"\x80\x02](Pname\n\x80\x02(X\x02\0\0\0idK\x07tQ}X\x01\0\0\0kNQse.",
        "extensions": b"\x80\x02](\x82\x07\x83\x07\x01\x84\x07\x01\x01\x01\x82\x01)R}(K\x01K\x02ube.",
        "buffers": b"\x80\x05](\x97\x97\x98\x8c\x01ae.",
        "numbers": b"\x80\x02](K\x05r\x01\0\x01\0K\x06r\x02\0\x01\0]q\x07j\x01\0\x01\0h\x07h\x07e.",
        "several": dump([1, "a"], 2) + dump({"b": (2,)}, 4) + dump("c", 3),
    }


def samples() -> dict[str, bytes]:
    """Return small pickles of every protocol."""
    found = {f"plain{protocol}": dump(plain(), protocol) for protocol in (0, 2)}
    found["plain5"] = dump(plain(long=300), 5)
    found |= {f"objects{protocol}": dump(objects(), protocol) for protocol in (0, 2, 4)}
    out = io.BytesIO()
    Outside(out, 4).dump([1j, {"k": 2j, "same": 1j}])
    found["outside"] = out.getvalue()
    return found | old()


def deep(depth: int) -> bytes:
    """Return lists in lists, ``depth`` deep."""
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def shared_and_cyclic(seed: Any, leaves: list[Any], count: int) -> Any:
    """Return containers that hold each other at random."""
    made: list[Any] = [[], {}]
    for number in range(count):
        kind = seed.randrange(4)
        parts = [seed.choice(made + leaves) for _ in range(seed.randrange(5))]
        if kind == 0:
            made.append(parts)
        elif kind == 1:
            made.append(tuple(parts))
        elif kind == 2:
            made.append({f"k{number}.{nth}": part for nth, part in enumerate(parts)})
        else:
            target = seed.choice([value for value in made if isinstance(value, list | dict)])
            if isinstance(target, list):
                target.extend(parts)
            else:
                target.update({(number, nth): part for nth, part in enumerate(parts)})
    return made


def each(node: Any) -> Iterator[Any]:
    """Yield a node and all below it, depth first."""
    todo = [node]
    while todo:
        found = todo.pop()
        yield found
        if found.shape != "scalar":
            todo.extend(reversed(list(found.children())))
