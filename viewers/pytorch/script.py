"""The program of a TorchScript archive: objects that were saved, classes of its code, operators of its byte code.

An object is named by the path to it, its class by the source that defines it: ``__torch__.net.Block`` is the class
``Block`` in ``code/__torch__/net.py`` (torch/csrc/jit/serialization/import_source.cpp). ``bytecode.pkl``, for the
mobile interpreter, is a version and functions, each with its instructions and operators
(torch/csrc/jit/mobile/import.cpp).
"""

from __future__ import annotations

from collections import Counter

from pparse.errors import DataError
from pparse.parsers.pytorch.script import definitions
from pparse.viewers.pickle.viewer import plain
from pparse.viewers.pickle.walk import PickleWalk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.findings import Finding
    from pparse.limits import Charge
    from pparse.parsers.pytorch.script import Definition
    from pparse.tree.node import Node
    from pparse.viewers.pickle.viewer import PickleViewer
    from pparse.viewers.pickle.walk import Leaf

OWN: Final = "__torch__."
# Classes of C++, such as packed weights, whose code no file has.
COMPILED: Final = "__torch__.torch.classes."
_MODULE: Final = "Module"
# Memory of a name that is kept, and of a source in proportion to its length, with what it defines.
_EACH: Final = 250
_TIMES: Final = 3
# Characters of a literal, and parts of a list, that are shown.
_LONGEST: Final = 200
_PARTS: Final = 1_000
# Names that are shown with their numbers.
_FIRST: Final = 20
# Instructions of byte code with an operator, by number (torch/csrc/jit/runtime/instruction.h).
_OPERATORS: Final = ("OP", "OPN")


def shorten(text: str) -> str:
    """Return the text of a literal, cut if it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def plain_class(name: str) -> str:
    """Return the name of a class without where it is, and without what torch adds to tell those of one name apart."""
    return name.rpartition(".")[2]


class ScriptSource:
    """One source: its text, what it defines, and what is wrong with it."""

    __slots__ = ("charge", "defined", "finding", "path", "text")

    def __init__(self, path: str, content: bytes, finding: Finding | None, charge: Charge) -> None:
        self.path, self.finding, self.charge = path, finding, charge
        self.text = content.decode("utf-8", "replace")
        self.defined = definitions(self.text)


class Script:
    """What the pickle and the sources say; sources are read when they are first asked for."""

    def __init__(self, viewer: PickleViewer, constants: Iterable[Leaf]) -> None:
        """``constants`` are those of the code, by the names that it has for them."""
        self.viewer = viewer
        self.objects: dict[str, str] = {}
        """Class of each object, by its path; the model itself has the empty one."""
        self.tensors: set[str] = set()
        """Names of tensors."""
        self.values: dict[str, Any] = {}
        """Attributes that are no objects and have no tensors in them, as plain data, by path."""
        self.groups: dict[str, list[str]] = {}
        """Names of the tensors in attributes that are lists and the like."""
        self.attributes: dict[str, dict[str, None]] = {}
        """Names of the attributes of each object that are not objects, by its path."""
        self._sources: dict[str, ScriptSource | None] = {}
        self._held = 0
        self._charge = viewer.extraction.session.budget.charge(0, "the objects of a model")
        self._read_objects()
        path = ""
        for leaf in constants:
            path = ".".join(leaf.name.split(".")[:2])
            self._add(path, leaf)
        self._end(viewer.storages.constants(), path)

    def _note(self, name: str, kind: str) -> None:
        if kind.startswith(OWN):
            self.objects[name] = kind

    def _read_objects(self) -> None:
        root = self.viewer.pickled()
        if root is None:
            return
        path = ""
        walk = PickleWalk(root.result.parser, self.viewer.open_bytes, self._note)  # type: ignore[arg-type]
        for leaf in walk.leaves(root):
            owner, name = self._owner(leaf.name)
            path = f"{owner}.{name}" if owner else name
            self.attributes.setdefault(owner, {})[name] = None
            self._add(path, leaf)
        self._end(root, path)

    def _add(self, path: str, leaf: Leaf) -> None:
        """Note a leaf, which is the attribute ``path`` or a part of it."""
        found = [tensor for tensor, *_ in self.viewer._named_in(leaf)]
        self.tensors.update(found)
        if found and found != [path]:
            self.groups.setdefault(path, []).extend(found)
        elif not found and leaf.name == path:
            self.values[path] = plain(leaf.value)
        elif not found:
            parts = self.values.setdefault(path, [])
            if isinstance(parts, list) and len(parts) < _PARTS:
                parts.append(plain(leaf.value))
        self._held += _EACH + 2 * len(leaf.name)
        if self._held > self._charge.amount:
            self._charge.resize(self._held + 0xFFFF)

    def _end(self, root: Node | None, last: str) -> None:
        """Forget the value of the last attribute of a pickle that is not whole: it may be a part of another one."""
        if root is not None and not root.is_complete:
            self.values.pop(last, None)
            self.groups.pop(last, None)

    def _owner(self, name: str) -> tuple[str, str]:
        """Return the path of the object that a leaf belongs to, and the name of the attribute that it is, or is in."""
        owner = name
        while owner:
            owner = owner.rpartition(".")[0]
            if owner in self.objects:
                break
        return owner, name[len(owner) + 1 if owner else 0 :].partition(".")[0]

    # -- classes -------------------------------------------------------------------------------------------------------

    def source(self, name: str) -> ScriptSource | None:
        """Return a source by its name in code, ``__torch__.net``; None if it is not in the file."""
        if name not in self._sources:
            charge = self.viewer.extraction.session.budget.charge(0, "the code of a model")
            found = self.viewer.storages.source(name.replace(".", "/"), lambda count: charge.resize(_TIMES * count))
            self._sources[name] = None if found is None else ScriptSource(*found, charge)
        return self._sources[name]

    def find(self, name: str) -> tuple[ScriptSource | None, Definition | None]:
        """Return what defines a class or function, and the source it is in; None for what there is not."""
        place, _, last = name.rpartition(".")
        source = self.source(place)
        return source, None if source is None else source.defined.get(last)

    def forget(self) -> None:
        """Let go of the sources."""
        self._sources.clear()

    def modules(self) -> Iterator[dict[str, Any]]:
        """Yield the modules: name, class, names of parameters, buffers, and other attributes with their values.

        What is inferred says so: if the source of its class is damaged, what it declares; if there is none, that the
        object is a module, and all its tensors are ``tensors``.
        """
        tensors = self.tensors
        for path, kind in self.objects.items():
            source, defined = self.find(kind)
            if kind.startswith(COMPILED) or (defined is not None and defined.base != _MODULE):
                continue
            below = f"{path}." if path else ""
            own = [name for name in self.attributes.get(path, ()) if below + name in tensors]
            sides = ([], []) if defined is None else (defined.parameters, defined.buffers)
            listed = [[name for name in side if name in own] for side in sides]
            made: dict[str, Any] = {
                "name": path,
                "class": kind,
                "parameters": listed[0],
                "buffers": listed[1],
                "tensors": [name for name in own if name not in listed[0] and name not in listed[1]],
                "attributes": {
                    name: self.values[below + name]
                    for name in self.attributes.get(path, ())
                    if below + name in self.values
                },
            }
            if defined is None or source is None or source.finding is not None:
                made["inferred"] = True
            yield made
        self.forget()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`."""
        modules = list(self.modules())
        if modules:
            counts = Counter(plain_class(made["class"]) for made in modules)
            yield "modules", f"{len(modules):,}: {_counted(counts.most_common())}"
        for made in modules:
            own = ", ".join([*made["parameters"], *made["buffers"], *made["tensors"]])
            inferred = "  (inferred: its code is lost or damaged)" if "inferred" in made else ""
            yield "module", f"{made['name'] or '(model)'}  {plain_class(made['class'])}  {own}".rstrip() + inferred
        operators = self.operators()
        if operators:
            yield "operators", _counted(list(operators.items()))

    # -- byte code -----------------------------------------------------------------------------------------------------

    def operators(self) -> dict[str, int]:
        """Return the operators of the byte code with how often instructions name them, the most frequent first."""
        root = self.viewer.storages.bytecode()
        found: dict[str, int] = {}
        try:
            for function in root.children() if root is not None else ():
                for name in _named_operators(function):
                    found[name] = found.get(name, 0) + 1
        except DataError:
            pass  # what precedes it is whole; `check` tells of the rest
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _counted(counts: list[tuple[str, int]]) -> str:
    """Return names with their numbers as text, the first 20."""
    shown = ", ".join(f"{name} {count:,}" for name, count in counts[:_FIRST])
    return shown + (f" … {len(counts) - _FIRST:,} more" if len(counts) > _FIRST else "")


def _named_operators(function: Node) -> Iterator[str]:
    """Yield the operator of each instruction of one function that has one; nothing of anything else."""
    value = function.load() if function.shape == "scalar" else function.to_python()
    if not isinstance(value, tuple) or len(value) < 2 or not isinstance(value[1], tuple):
        return
    parts = {part[0]: part[1] for part in value[1] if isinstance(part, tuple) and len(part) == 2}
    operators, instructions = parts.get("operators"), parts.get("instructions")
    if not isinstance(operators, tuple) or not isinstance(instructions, tuple):
        return
    for step in instructions:
        if isinstance(step, tuple) and len(step) == 3 and step[0] in _OPERATORS and isinstance(step[1], int):
            op = operators[step[1]] if 0 <= step[1] < len(operators) else None
            if isinstance(op, tuple) and len(op) > 1:
                yield f"{op[0]}.{op[1]}" if op[1] else str(op[0])


def literal(value: Any) -> str:
    """Return plain data as torch's code has it."""
    if isinstance(value, str):
        return '"' + shorten(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shorten(f"[{', '.join(map(literal, value))}]" if isinstance(value, list) else str(value))
