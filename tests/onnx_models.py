"""Small ONNX models, made of our own protos."""

from __future__ import annotations

from array import array

from pparse.protos import message_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODEL = message_class("onnx.ModelProto")
FLOAT, INT64, BOOL = 1, 7, 9


def model(**fields: Any) -> Any:
    """Return a model of IR version 8 with an operator set and an empty graph."""
    found = MODEL(ir_version=8, producer_name="tests", **fields)
    found.opset_import.add(version=17)
    found.graph.name = "main"
    return found


def initializer(graph: Any, name: str, values: list[float], *shape: int) -> Any:
    """Add a float32 initializer."""
    raw = array("f", values).tobytes()
    return graph.initializer.add(name=name, data_type=FLOAT, dims=shape or (len(values),), raw_data=raw)


def typed(values: Any, name: str, *shape: int | str, dtype: int = FLOAT) -> None:
    """Add the type of a value to a list of ValueInfoProtos."""
    info = values.add(name=name)
    info.type.tensor_type.elem_type = dtype
    info.type.tensor_type.shape.SetInParent()
    for size in shape:
        dim = info.type.tensor_type.shape.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        else:
            dim.dim_value = size


def node(graph: Any, op: str, inputs: list[str], outputs: list[str], name: str = "", **fields: Any) -> Any:
    """Add a node."""
    return graph.node.add(op_type=op, input=inputs, output=outputs, name=name, **fields)


def branching() -> Any:
    """Return a model with an If, whose second branch holds a Loop, and which captures two values."""
    found = model()
    graph = found.graph
    typed(graph.input, "cond", dtype=BOOL)
    typed(graph.input, "x", "batch", 2)
    typed(graph.output, "z", "batch", 2)
    typed(graph.value_info, "y", "batch", 2)
    initializer(graph, "outer", [1.0, 2.0])
    initializer(graph, "other", [3.0, 4.0])
    choice = node(graph, "If", ["cond"], ["y"], "if_1")
    first = choice.attribute.add(name="then_branch", type=5).g
    first.name = "then"
    initializer(first, "inner", [5.0, 6.0])
    node(first, "Add", ["x", "inner"], ["t"], "add")
    typed(first.output, "t", "batch", 2)
    second = choice.attribute.add(name="else_branch", type=5).g
    second.name = "else"
    loop = node(second, "Loop", ["count", "", "x"], ["e"], "loop")
    body = loop.attribute.add(name="body", type=5).g
    body.name = "body"
    for name in ("i", "go_on", "state"):
        typed(body.input, name)
    node(body, "Mul", ["state", "outer"], ["next"], "mul")
    node(body, "Identity", ["go_on"], ["go"], "keep")
    typed(body.output, "go")
    typed(body.output, "next")
    node(second, "Constant", [], ["count"], "c").attribute.add(name="value", type=4).t.CopyFrom(
        type(graph.initializer[0])(data_type=INT64, int64_data=[3])
    )
    typed(second.output, "e", "batch", 2)
    node(graph, "Relu", ["y"], ["z"])
    node(graph, "Neg", ["other"], ["unused"], "neg")
    return found
