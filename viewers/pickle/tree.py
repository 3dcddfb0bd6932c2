"""What was pickled, as the program had it: dicts, lists and tuples, with tensors that are not read as leaves."""

from __future__ import annotations

from pparse.errors import LimitError
from pparse.parsers.pickle.arrays import array_of, masked_of
from pparse.parsers.pickle.values import Call, Persistent
from pparse.parsers.pytorch.rebuild import Odd, tensors_of, with_storage
from pparse.tensors.node_viewer import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.parsers.pickle.parser import PickleParser
    from pparse.viewers.pickle.viewer import PickleViewer

_MOST: Final = 64 << 20


class SavedObject:
    """An object of a class that is not plain data: never made, only described."""

    __slots__ = ("args", "attributes", "items", "name", "pairs")

    def __init__(self, name: str) -> None:
        self.name = name
        """Full name of the class, or of the function that would make it."""
        self.args: Any = ()
        """The arguments of that call."""
        self.attributes: Any = None
        """Its state: usually a dict of its attributes; None: none."""
        self.items: list[Any] = []
        """What would be appended to it."""
        self.pairs: dict[Any, Any] = {}
        """Keys and values that would be set in it."""

    def __repr__(self) -> str:
        return f"<{self.name or 'object'}>"


def tree_of(viewer: PickleViewer) -> Any:
    """Return the tree of ``viewer``. Raises `LimitError` if its pickle is larger than 64 MiB."""
    root = viewer.pickled()
    if root is None:
        return None
    parser: PickleParser = root.result.parser  # type: ignore[assignment]
    size = parser.program(root.start).size_of(root.start, root.end or root.start)
    if size > _MOST:
        raise LimitError("the pickle is too large for a tree in memory", option="tensors()", wanted=size, got=_MOST)
    return _Builder(viewer, parser).build(root.to_python(None) if root.shape != "scalar" else root.load())


class _Builder:
    """Turns values of a pickle into those of the tree; what is shared stays shared."""

    def __init__(self, viewer: PickleViewer, parser: PickleParser) -> None:
        self._viewer = viewer
        self._parser = parser
        self._made: dict[int, Any] = {}
        self._todo: list[tuple[str, Any, Any]] = []  # names, values, and what was made of them and is still empty
        self._kept: list[Any] = []  # so that no id is used twice

    def build(self, value: Any) -> Any:
        """Return the tree of ``value``, without recursion: tuples become lists first where they hold others."""
        made = self._new("", value)
        while self._todo:
            name, source, target = self._todo.pop()
            if isinstance(target, dict):
                for key, part in source.items():
                    target[key] = self._new(join(name, key), part)
            elif isinstance(target, list):
                target.extend(self._new(join(name, number), part) for number, part in enumerate(source))
            else:
                self._fill(name, source, target)
        return made

    def _fill(self, name: str, call: Call, target: SavedObject) -> None:
        target.args = self._new(name, call.args)
        target.attributes = self._new(name, call.state)
        target.items = [self._new(join(name, number), part) for number, part in enumerate(call.items)]
        for key, part in call.pairs:
            hashable = key if isinstance(key, str | bytes | int | float | bool | None) else str(key)
            target.pairs[hashable] = self._new(join(name, key), part)

    def _new(self, name: str, value: Any) -> Any:
        if _is_plain(value):
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known
        made: Any
        if isinstance(value, Call) and value.array is not None and value.array.is_pickle:
            made = self._new(name, self._parser.value_inside(value.array))
        elif isinstance(value, Call | Persistent):
            made = self._leaf(name, value)
            if isinstance(made, SavedObject):
                self._todo.append((name, value, made))
        elif isinstance(value, tuple) and all(_is_plain(part) for part in value):
            made = value
        else:
            made = {} if isinstance(value, dict) else []
            self._todo.append((name, value, made))
        self._made[id(value)] = made
        self._kept.append(value)
        return made

    def _leaf(self, name: str, value: Call | Persistent) -> Any:
        viewer = self._viewer
        whole = with_storage(value, viewer.open_bytes) if isinstance(value, Call) else value
        try:
            parts = tensors_of(whole)
        except Odd:
            parts = None
        if parts is not None:
            made = {suffix.removeprefix("."): viewer._make(name + suffix, part, None) for suffix, part in parts}
            return made.get("", made)  # codes, without the scale that belongs to them
        if isinstance(value, Persistent):
            meant = viewer.storages.named(value)
            return value if meant is None else viewer._make(name, meant, None)
        array = array_of(value)
        if array is not None and array.objects is None:
            return viewer._make(name, array, None)
        masked = masked_of(value)
        if masked is not None and masked.elements.objects is None:
            both = {"elements": (name, masked.elements), "mask": (join(name, "mask"), masked.mask)}
            return {key: viewer._make(*part, None) for key, part in both.items()}
        return SavedObject(value.name)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list | tuple | Call | Persistent)
