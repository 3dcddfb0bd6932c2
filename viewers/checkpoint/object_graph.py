"""What the tensors of an object-based checkpoint are called: the names of the variables that were saved.

Such a checkpoint has the scalar string ``_CHECKPOINTABLE_OBJECT_GRAPH``, a TrackableObjectGraph: for each value that an
object saved, its *full name*, which the variable had in the program (``dense/kernel``), and the key that it has in the
table, a path through the objects (``layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE``)
(tensorflow/core/protobuf/trackable_object_graph.proto).

Full names need not be unique. Copies of one variable, which an export of Keras 3 has, are ``name`` and ``name#2``;
different variables with one name are called by their keys, without what every key ends in.
"""

from __future__ import annotations

from pparse.kernels.wire import LEN, PADDING, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Final

GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT: Final = "/.OPTIMIZER_SLOT/"
# Memory of a key and its name, without their text.
_COST: Final = 400
_NODE, _ATTRIBUTE, _FULL_NAME, _KEY = 1, 2, 2, 3


class VariableNames:
    """The names of the tensors of one checkpoint."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def name_of(self, key: str, is_key: Callable[[str], bool] = lambda key: False) -> str:
        """Return what the tensor at ``key`` is called: without a name, its key, as short as no other key is."""
        name = self._names.get(key) or shown(key)
        return key if name != key and not self._names and is_key(name) else name

    def key_of(self, name: str) -> str | None:
        """Return the key of the tensor with a name that is not its key; None if there is none."""
        return self._keys.get(name)

    def give(
        self, keys: Iterable[str], full_names: dict[str, str], content_of: Callable[[str], Hashable | None]
    ) -> None:
        """Name the tensors at ``keys``, in this order.

        ``content_of`` tells, by the table alone, whether two tensors are copies; None: not known.
        """
        alike: dict[str, list[str]] = {}
        for key in keys:
            alike.setdefault(full_names.get(key) or shown(key), []).append(key)
        for name, several in alike.items():
            copies = len(several) == 1 or _are_copies(several, content_of)
            for number, key in enumerate(several, 1):
                called = (name if number == 1 else f"{name}#{number}") if copies else shown(key)
                while called in self._keys:  # the key of one is the name of another
                    called += "#2"
                self._names[key] = called
                self._keys[called] = key


def cost_of(full_names: dict[str, str]) -> int:
    """Return the approximate memory, in bytes, of names given by `VariableNames`."""
    return sum(_COST + len(key) + len(name) for key, name in full_names.items())


def _are_copies(keys: list[str], content_of: Callable[[str], Hashable | None]) -> bool:
    first = content_of(keys[0])
    return first is not None and all(content_of(key) == first for key in keys[1:])


def shown(key: str) -> str:
    """Return a key as a name: without what every key of an object-based checkpoint ends in."""
    return key.removesuffix(VALUE)


def slot_of(key: str) -> str | None:
    """Return what an optimizer keeps in the tensor at ``key`` for a variable, such as ``m``; None: it keeps nothing."""
    return shown(key).rpartition("/")[2] if SLOT in key else None


def full_names(raw: bytes) -> dict[str, str]:
    """Return the full names in a TrackableObjectGraph by key. Raises `MalformedError`."""
    found: dict[str, str] = {}
    size = len(raw)
    padded = raw + PADDING
    for tag, start, end in fields(padded, 0, size):
        if tag == _NODE << 3 | LEN:
            for inner, begin, stop in fields(padded, start, end):
                if inner == _ATTRIBUTE << 3 | LEN:
                    parts = {number >> 3: padded[at:to] for number, at, to in fields(padded, begin, stop)}
                    if parts.get(_FULL_NAME) and _KEY in parts:
                        found[_text(parts[_KEY])] = _text(parts[_FULL_NAME])
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
