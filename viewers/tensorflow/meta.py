"""What TensorFlow's protos say of themselves, and how a model is called: signatures, functions, collections, assets."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from itertools import chain, count, islice

from pparse.display.text import few, shape_words
from pparse.errors import FaultError
from pparse.protos import schema as builtin_schema
from pparse.tensors.viewer import Signature, TensorInfo
from pparse.tree.below import kids_of, node_at, text_at, value_at
from pparse.viewers.tensorflow.constants import GRAPH, META_GRAPH, SAVED_MODEL, count_of
from pparse.viewers.tensorflow.tensors import dtype_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.tree.node import Node

# The most elements of a list that are shown, of signatures and functions of a meta graph, and of ways to call one.
_MOST: Final = 10_000
# Lists of a MetaGraphDef of which the length is told, and as what.
_COUNTED: Final = {"signature_def": "signatures", "collection_def": "collections", "asset_file_def": "assets"}
# Collections whose bytes are VariableDefs (tensorflow/python/framework/ops.py, GraphKeys).
_VARIABLES: Final = frozenset(
    (
        "variables",
        "trainable_variables",
        "local_variables",
        "model_variables",
        "moving_average_variables",
        "global_step",
        "metric_variables",
        "saveable_objects",
        "concatenated_variables",
    )
)


def _scalars(node: Node | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return the scalars at keys of a node, as far as they exist and can be read."""
    found = {key: value_at(node, key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _list_at(node: Node | None, *keys: str) -> list[Any]:
    """Return the scalars of a list, at most 10,000, as far as they can be read."""
    found: list[Any] = []
    try:
        for kid in islice(kids_of(node_at(node, *keys)), _MOST):
            found.append(kid.load())
    except FaultError:
        pass
    return found


def metadata_of(root: Node) -> dict[str, Any]:
    """Return the metadata of a document as plain data."""
    if root.kind == SAVED_MODEL:
        found = _scalars(root, ("saved_model_schema_version",))
        found["meta_graphs"] = [_of_meta_graph(graph) for graph in kids_of(root.find("meta_graphs"))]
        return found
    if root.kind == META_GRAPH:
        return _of_meta_graph(root)
    return _of_graph(root) if root.kind == GRAPH else {}


def _of_meta_graph(graph: Node) -> dict[str, Any]:
    info = graph.find("meta_info_def")
    found: dict[str, Any] = {"tags": _list_at(info, "tags")}
    keys = ("meta_graph_version", "tensorflow_version", "tensorflow_git_version", "stripped_default_attrs")
    found.update(_scalars(info, keys))
    saver = graph.find("saver_def")
    if saver is not None:
        found["saver"] = _scalars(saver, ("version", "max_to_keep", "sharded"))
    ops = node_at(info, "stripped_op_list", "op")
    if ops is not None:
        found["stripped_ops"] = [value_at(op, "name", default="") for op in islice(kids_of(ops), _MOST)]
    inner = graph.find("graph_def")
    if inner is not None:
        found.update(_of_graph(inner))
    for key, label in _COUNTED.items():
        kids = graph.find(key)
        if kids is not None:
            found[label] = count_of(kids)
    return found


def _of_graph(graph: Node) -> dict[str, Any]:
    found = _scalars(graph.find("versions"), ("producer", "min_consumer"))
    bad = _list_at(graph, "versions", "bad_consumers")
    if bad:
        found["bad_consumers"] = bad
    found["nodes"] = count_of(graph.find("node"))
    functions = node_at(graph, "library", "function")
    if functions is not None:
        found["functions"] = count_of(functions)
    return found


# -- signatures ------------------------------------------------------------------------------------------------------


def shape_of(node: Node | None) -> tuple[int, ...] | None:
    """Return the shape in a TensorShapeProto; None if the rank is unknown, or there is no shape."""
    if node is None or value_at(node, "unknown_rank", default=False):
        return None
    return tuple(int(value_at(dim, "size", default=0)) for dim in kids_of(node.find("dim")))


def tensor_info_of(node: Node) -> TensorInfo:
    """Return the content of a TensorInfo."""
    stored = value_at(node, "dtype", default="DT_INVALID")
    numbers = builtin_schema().enum("tensorflow.DataType").numbers
    number = stored if isinstance(stored, int) else numbers.get(stored, 0)
    parts: dict[str, str] = {}
    if (sparse := node.find("coo_sparse")) is not None:
        keys = ("values", "indices", "dense_shape")
        parts = {key: value_at(sparse, f"{key}_tensor_name", default="") for key in keys}
    for kid in islice(kids_of(node_at(node, "composite_tensor", "components")), _MOST):
        parts[str(kid.ordinal)] = value_at(kid, "name", default="")
    word = stored if isinstance(stored, str) else f"DT_{stored}"
    name, shape = value_at(node, "name", default=""), shape_of(node.find("tensor_shape"))
    return TensorInfo(name, dtype_of(number), word, shape, parts)


def signature_of(name: str, node: Node) -> Signature:
    """Return the content of a SignatureDef."""
    inputs, outputs = (
        {str(kid.key): tensor_info_of(kid) for kid in kids_of(node.find(key))} for key in ("inputs", "outputs")
    )
    return Signature(name, inputs, outputs, value_at(node, "method_name", default=""))


# -- collections and assets ------------------------------------------------------------------------------------------


def collection_of(name: str, node: Node) -> list[Any]:
    """Return the values of a CollectionDef; those that are VariableDefs as dicts."""
    for kid in kids_of(node):
        values = kid.find("value")
        if values is None:
            return []
        if kid.key == "any_list":
            return [value.to_python() for value in kids_of(values)]
        found = [value.load() for value in kids_of(values)]
        return [_variable(value, node) for value in found] if name in _VARIABLES and kid.key == "bytes_list" else found
    return []


def _variable(value: Any, node: Node) -> Any:
    """Return a serialized VariableDef as a dict; any other value unchanged."""
    from pparse.document.opening import open as open_document

    if not isinstance(value, bytes):
        return value
    try:
        options = {"message": "tensorflow.VariableDef"}
        with open_document(value, format="protobuf", options=options) as document:
            found = document.root.to_python()
            known = all(isinstance(key, str) for key in found)
            return found if known and "variable_name" in found else value
    except FaultError:
        return value


class Asset(namedtuple("Asset", "filename tensor")):
    """A file that the graph needs: its name in the folder ``assets``, and that of the tensor that takes its path."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Asset {self.filename!r} for {self.tensor!r}>"


def assets_of(graph: Node) -> Iterator[Asset]:
    """Yield the assets of a meta graph."""
    for kid in kids_of(graph.find("asset_file_def")):
        yield Asset(value_at(kid, "filename", default=""), value_at(kid, "tensor_info", "name", default=""))


class NodeMapping(Mapping[str, "Any"]):
    """A map field of all meta graphs as a mapping; makes each value from its node on demand."""

    def __init__(self, graphs: Iterable[Node], field: str, make: Callable[[str, Node], Any]) -> None:
        self._make = make
        self._field = field
        self._nodes: dict[str, Node] = {}
        for graph in graphs:
            for kid in kids_of(graph.find(field)):
                name = str(kid.key)
                numbered = chain((name,), (f"{name}#{number}" for number in count(2)))
                self._nodes[next(shown for shown in numbered if shown not in self._nodes)] = kid

    def __getitem__(self, name: str) -> Any:
        node = self._nodes[name]
        return self._make(str(node.key), node)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<{_COUNTED[self._field]}: {few(self._nodes)}>"


# -- A StructuredValue as text: arguments and results of functions, as Python programs write them ----------------------

# Specs read as TensorFlow prints them: ``TensorSpec(shape=(None, 4), dtype=tf.float32, name='x')``
# (tensorflow/core/protobuf/struct.proto; tensorflow/python/framework/tensor.py).

# Of a longer value, only the beginning is shown.
_LONGEST: Final = 2_000
_WORDS: Final = {"DT_HALF": "float16", "DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_INVALID": "invalid"}


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

# The most arguments that are told, of all functions: each of many may have the same long list of them.
_MOST_ARGUMENTS: Final = 100_000


class ConcreteFunction(namedtuple("ConcreteFunction", "name arguments keywords result")):
    """One way to call a function, called ``name`` in the library of the graph.

    ``arguments``: positional ones by name, as texts (of one whose name is not known, its number is the name);
    ``keywords``: named ones; ``result``: what it returns, as a text, None if that is not known.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """About how many values a call takes and returns."""
        return len(self.arguments) + len(self.keywords) + len(self.result or "") // 16

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return dict(sorted(self._asdict().items()))

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
    found: list[tuple[str, Node]] = []
    for child in islice(kids_of(root.find("children")), _MOST):
        number = value_at(child, "node_id", default=0)
        if isinstance(number, int) and 0 < number < len(nodes):
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
    except FaultError:
        return {}
    return found if isinstance(found, dict) else {}


def _texts(node: Node | None) -> Iterator[str]:
    for kid in islice(kids_of(node), _MOST):
        value = value_at(kid, default="")
        if isinstance(value, str) and value:
            yield value


def signatures_of(graph: Node) -> Iterator[Signature]:
    """Yield the signatures of a meta graph, in the order of names."""
    found = list(islice(kids_of(graph.find("signature_def")), _MOST))
    for node in sorted(found, key=lambda node: str(node.key)):
        yield signature_of(str(node.key), node)


def tags_of(graph: Node) -> list[str]:
    """Return the tags of a meta graph."""
    return [text_at(kid) for kid in kids_of(node_at(graph, "meta_info_def", "tags"))]


def sides_of(signature: Signature) -> Iterator[tuple[str, str]]:
    """Yield a line for each input and output of a signature: a label and a text."""
    for label, side in (("  input", signature.inputs), ("  output", signature.outputs)):
        for name, info in sorted(side.items()):
            yield label, f"{name}  {_type(info)}  {info.tensor or ', '.join(info.parts.values())}"


def _type(info: TensorInfo) -> str:
    dtype = info.dtype.name if info.dtype is not None else info.stored_dtype
    if info.shape is None:
        return f"{dtype} of unknown rank"
    return f"{dtype} {shape_words(['?' if size == -1 else size for size in info.shape])}"
