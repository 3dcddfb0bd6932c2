"""A StructuredValue as text: arguments and results of functions, as Python programs write them.

Specs read as TensorFlow prints them: ``TensorSpec(shape=(None, 4), dtype=tf.float32, name='x')``
(tensorflow/core/protobuf/struct.proto; tensorflow/python/framework/tensor.py).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Final

# Of a longer value, only the beginning is shown.
_MOST: Final = 2_000
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
    while waiting and length < _MOST:
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
