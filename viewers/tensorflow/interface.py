"""How a model is called, for `pparse info`: signatures and functions, as ``saved_model_cli show --all`` tells them."""

from __future__ import annotations

from itertools import islice

from pparse.display.text import shape_words
from pparse.errors import PparseError
from pparse.parsers.protobuf.message import PASSING_OR_LIMIT
from pparse.viewers.tensor_proto.viewer import kids_of, node_at, text_at, value_at
from pparse.viewers.tensorflow.meta import signature_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.tree.node import Node
    from pparse.viewers.tensorflow.meta import Signature, TensorInfo


# -- A StructuredValue as text: arguments and results of functions, as Python programs write them ----------------------

# Specs read as TensorFlow prints them: ``TensorSpec(shape=(None, 4), dtype=tf.float32, name='x')``
# (tensorflow/core/protobuf/struct.proto; tensorflow/python/framework/tensor.py).

# Of a longer value, only the beginning is shown.
_LONGEST: Final = 2_000
_WORDS: Final = {
    "DT_HALF": "float16",
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INVALID": "invalid",
}


def words_of(value: Any) -> str:
    """Return the text of a StructuredValue given as plain data: a dict whose one key says what it is."""
    found: list[str] = []
    waiting: list[Any] = [value]
    length = 0
    while waiting and length < _LONGEST:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
            length += len(item)
        else:
            waiting += reversed(_pieces(item))
    return "".join(found) + ("…" if waiting else "")


def members_of(value: Any) -> list[Any]:
    """Return the values in a list or tuple; none if it is neither."""
    content = _content(value, "tuple_value") or _content(value, "list_value") or {}
    found = content.get("values", [])
    return found if isinstance(found, list) else []


def fields_of(value: Any) -> dict[str, Any]:
    """Return the values in a dict, or a named tuple, by name; none if it is neither."""
    fields = _content(value, "dict_value", {}).get("fields")
    if isinstance(fields, dict):
        return {str(name): fields[name] for name in sorted(fields, key=str)}  # a map has no order
    pairs = _content(value, "named_tuple_value", {}).get("values", [])
    return {str(pair.get("key", "")): pair.get("value", {}) for pair in pairs if isinstance(pair, dict)}


def text_in(value: Any) -> str:
    """Return the text that a value is; empty if it is none."""
    found = value.get("string_value", "") if isinstance(value, dict) else ""
    return found if isinstance(found, str) else ""


def spec_name(value: Any) -> str:
    """Return the name in a TensorSpec; empty if it is none, or has no name."""
    found = (_content(value, "tensor_spec_value") or _content(value, "bounded_tensor_spec_value") or {}).get("name", "")
    return found if isinstance(found, str) else ""


def _content(value: Any, kind: str, default: Any = None) -> Any:
    found = value.get(kind) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else default


def _pieces(value: Any) -> list[Any]:
    """Return the text of a value in pieces: texts, and values in it that are to be made texts of."""
    kind, content = next(iter(value.items()), ("", None)) if isinstance(value, dict) else ("", None)
    if kind in ("", "none_value"):
        return ["None"]
    if kind in ("list_value", "tuple_value"):
        inner = members_of(value)
        begin, end = "[]" if kind == "list_value" else "()"
        return [begin, *_joined([[item] for item in inner]), "," if end == ")" and len(inner) == 1 else "", end]
    if kind == "dict_value":
        return ["{", *_joined([[f"{name!r}: ", inner] for name, inner in fields_of(value).items()]), "}"]
    if kind == "named_tuple_value" and isinstance(content, dict):
        pairs = [[f"{name}=", inner] for name, inner in fields_of(value).items()]
        return [str(content.get("name") or "namedtuple"), "(", *_joined(pairs), ")"]
    if kind in ("tensor_spec_value", "bounded_tensor_spec_value") and isinstance(content, dict):
        return [_spec(content, "TensorSpec" if kind[0] == "t" else "BoundedTensorSpec")]
    if kind == "type_spec_value" and isinstance(content, dict):
        return [_class(content), content["type_state"]] if content.get("type_state") else [_class(content), "()"]
    if kind == "tensor_shape_value":
        return [f"TensorShape({_shape(content).replace('(', '[').replace(',)', ']').replace(')', ']')})"]
    if kind == "tensor_dtype_value":
        return [_dtype(content)]
    if kind in ("tensor_value", "numpy_value") and isinstance(content, dict):
        return [f"<array of {_dtype(content.get('dtype'))}>"]
    return [repr(content)]


def _joined(parts: Iterable[list[Any]]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        found += [", ", *part] if found else part
    return found


def _spec(content: dict[str, Any], what: str) -> str:
    name = content.get("name")
    return f"{what}(shape={_shape(content.get('shape'))}, dtype={_dtype(content.get('dtype'))}, name={name or None!r})"


def _shape(shape: Any) -> str:
    """Return a shape as TensorFlow prints it: ``(None, 4)``; of unknown rank, ``<unknown>``."""
    if not isinstance(shape, dict) or shape.get("unknown_rank"):
        return "<unknown>" if isinstance(shape, dict) else "()"
    dims = shape.get("dim", [])
    sizes = [dim.get("size", 0) if isinstance(dim, dict) else 0 for dim in dims] if isinstance(dims, list) else []
    shown = ["None" if size == -1 else str(size) for size in sizes]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def _dtype(number: Any) -> str:
    """Return a type as TensorFlow prints it: ``tf.float32``."""
    text = number if isinstance(number, str) else f"DT_{number or 'INVALID'}"
    return f"tf.{_WORDS.get(text) or text.removeprefix('DT_').lower()}"


def _class(content: dict[str, Any]) -> str:
    """Return the class of a type spec: ``RaggedTensorSpec``."""
    name = content.get("type_spec_class_name")
    if name:
        return str(name).rpartition(".")[2]
    return "".join(part.capitalize() for part in str(content.get("type_spec_class", "type_spec")).split("_"))


# -- The functions of a SavedModel that a program may call, and what each is callable with -----------------------------

# A SavedObjectGraph has the objects that were saved. Those of the root's children that are functions are what a loaded
# model offers by their names (``saved_model_cli show --all`` calls them concrete functions); each has a list of
# concrete functions, of which one is run, by the arguments. Their arguments are a tuple of positional ones and a dict
# of named ones (tensorflow/core/protobuf/saved_object_graph.proto).

# The most signatures of a meta graph, functions, and concrete functions of one, that are told.
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
    nodes = node_at(graph, "nodes")
    root = next(kids_of(nodes), None)
    if graph is None or nodes is None or root is None:
        return
    count = len(nodes)
    found: list[tuple[str, Node]] = []
    for child in islice(kids_of(root.find("children")), _MOST):
        number = value_at(child, "node_id", default=0)
        if isinstance(number, int) and 0 < number < count:
            found.append((text_at(child, "local_name"), nodes.child(number)))
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


def interface_of(meta_graphs: Iterable[Node]) -> list[dict[str, Any]]:
    """Return, for each meta graph, its tags, signatures and functions as plain data."""
    return [
        {
            "tags": tags_of(graph),
            "signatures": {found.name: found.to_dict() for found in signatures_of(graph)},
            "functions": {name: [way.to_dict() for way in ways] for name, ways in functions_of(graph)},
        }
        for graph in meta_graphs
    ]


def interface_lines(meta_graphs: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Yield the lines of `pparse info`: labels and texts, a line for each input, output, and way to call."""
    graphs = list(meta_graphs)
    for graph in graphs:
        where = f"  (tags: {', '.join(tags_of(graph)) or 'none'})" if len(graphs) > 1 else ""
        for signature in signatures_of(graph):
            yield "signature", f"{signature.name}{where}" + f"  {signature.method_name}".rstrip()
            yield from _sides(signature)
        for name, ways in functions_of(graph):
            yield "function", f"{name}{where}"
            for way in ways:
                yield "  callable", str(way)


def signatures_of(graph: Node) -> Iterator[Signature]:
    """Yield the signatures of a meta graph, in the order of names."""
    found = list(islice(kids_of(graph.find("signature_def")), _MOST))
    for node in sorted(found, key=lambda node: str(node.key)):
        yield signature_of(str(node.key), node)


def tags_of(graph: Node) -> list[str]:
    """Return the tags of a meta graph."""
    return [text_at(kid) for kid in kids_of(node_at(graph, "meta_info_def", "tags"))]


def _sides(signature: Signature) -> Iterator[tuple[str, str]]:
    for label, side in (("  input", signature.inputs), ("  output", signature.outputs)):
        for name, info in sorted(side.items()):
            yield label, f"{name}  {_type(info)}  {info.tensor or ', '.join(info.parts.values())}"


def _type(info: TensorInfo) -> str:
    dtype = info.dtype.name if info.dtype is not None else info.stored_dtype
    if info.shape is None:
        return f"{dtype} of unknown rank"
    return f"{dtype} {shape_words(['?' if size == -1 else size for size in info.shape])}"
