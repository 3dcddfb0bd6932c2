"""The functions of a SavedModel that a program may call, and what each is callable with.

A SavedObjectGraph has the objects that were saved. Those of the root's children that are functions are what a loaded
model offers by their names (``saved_model_cli show --all`` calls them concrete functions); each has a list of concrete
functions, of which one is run, by the arguments. Their arguments are a tuple of positional ones and a dict of named
ones (tensorflow/core/protobuf/saved_object_graph.proto).
"""

from __future__ import annotations

from itertools import islice

from pparse.errors import PparseError
from pparse.parsers.protobuf.message import PASSING_OR_LIMIT
from pparse.viewers.tensor_proto.viewer import kids_of
from pparse.viewers.tensorflow.meta import value_at
from pparse.viewers.tensorflow.structured import fields_of, members_of, spec_name, text_in, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.tree.node import Node

# The most functions, and concrete functions of one, that are told.
_MOST: Final = 10_000
# The most arguments that are told, of all functions: each of many may have the same long list of them.
_MOST_ARGUMENTS: Final = 100_000


class ConcreteFunction:
    """One way to call a function."""

    __slots__ = ("arguments", "keywords", "name", "result")

    def __init__(self, name: str, arguments: dict[str, str], keywords: dict[str, str], result: str | None) -> None:
        self.name = name
        """Name in the library of the graph."""
        self.arguments = arguments
        """Positional arguments by name, as texts; of one whose name is not known, its number is the name."""
        self.keywords = keywords
        """Named arguments, as texts."""
        self.result = result
        """What it returns, as a text; None if that is not known."""

    @property
    def size(self) -> int:
        """About how many values a call takes and returns."""
        return len(self.arguments) + len(self.keywords) + len(self.result or "") // 16

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        parts = [f"{name}: {value}" for name, value in self.arguments.items()]
        parts += [f"{name}={value}" for name, value in self.keywords.items()]
        return f"({', '.join(parts)}) -> {self.result or '?'}"

    def __repr__(self) -> str:
        return f"<ConcreteFunction {self.name!r} {self}>"


def functions_of(meta_graph: Node) -> Iterator[tuple[str, list[ConcreteFunction]]]:
    """Yield the functions of a MetaGraphDef by name, each with the ways to call it, in the order of names."""
    graph = meta_graph.find("object_graph_def")
    nodes = graph.find("nodes") if graph is not None else None
    root = next(kids_of(nodes), None)
    if graph is None or nodes is None or root is None:
        return
    count = len(nodes)
    found: list[tuple[str, Node]] = []
    for child in islice(kids_of(root.find("children")), _MOST):
        number = value_at(child, "node_id", default=0)
        if isinstance(number, int) and 0 < number < count:
            found.append((str(value_at(child, "local_name", default="")), nodes.child(number)))
    room = _MOST_ARGUMENTS
    for name, node in sorted(found, key=lambda pair: pair[0]):
        concrete = []
        for one in _concrete(graph, node):
            concrete.append(one)
            room -= 1 + one.size
            if room < 0:
                break
        if concrete:
            yield name, concrete
        if room < 0:
            return


def _concrete(graph: Node, node: Node) -> Iterator[ConcreteFunction]:
    """Yield the concrete functions of an object, if it is a function."""
    table = graph.find("concrete_functions")
    function = node.find("function")
    bare = node.find("bare_concrete_function")
    if function is not None:
        names = list(_texts(function.find("concrete_functions")))
        spec = _plain(function.find("function_spec"))
    elif bare is not None:
        names = [value_at(bare, "concrete_function_name", default="")]
        spec = _plain(bare.find("function_spec"))
    else:
        return
    known = [text_in(value) for value in members_of(fields_of(spec.get("fullargspec", {})).get("args", {}))]
    if spec.get("is_method") and known[:1] == ["self"]:
        del known[0]
    for name in sorted(set(names)):  # to name one twice says nothing
        about = _plain(table.find(name) if table is not None else None)
        signature = members_of(about.get("canonicalized_input_signature", {}))
        positional = members_of(signature[0]) if signature else []
        keywords = fields_of(signature[1]) if len(signature) > 1 else {}
        arguments = {}
        for number, value in enumerate(positional):
            called = spec_name(value) or (known[number] if number < len(known) else "")
            arguments[called if called and called not in arguments else str(number + 1)] = words_of(value)
        result = about.get("output_signature")
        named = {key: words_of(value) for key, value in keywords.items()}
        yield ConcreteFunction(name, arguments, named, None if result is None else words_of(result))


def _plain(node: Node | None) -> dict[str, Any]:
    """Return a message as plain data; nothing if there is none, or it cannot be read."""
    try:
        found = node.to_python() if node is not None else {}
    except PASSING_OR_LIMIT:
        raise
    except PparseError:
        return {}
    return found if isinstance(found, dict) else {}


def _texts(node: Node | None) -> Iterator[str]:
    for kid in islice(kids_of(node), _MOST):
        value = value_at(kid, default="")
        if isinstance(value, str) and value:
            yield value
