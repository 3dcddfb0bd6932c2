"""Samples: an ONNX model with its tensors in it."""

from __future__ import annotations

import random
from math import prod
from typing import TYPE_CHECKING, Any

from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path

# Number of the type, bytes of an element.
KINDS = {"F32": (1, 4), "U8": (2, 1), "I64": (7, 8), "F16": (10, 2), "F64": (11, 8), "BF16": (16, 2)}
SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "embed": ("F32", (64, 48)),
    **{
        f"h{number}.{name}": shape
        for number in range(5)
        for name, shape in {
            "weight": ("F32", (40, 40)),
            "bias": ("F16", (40,)),
            "up": ("BF16", (40, 160)),
            "ids": ("I64", (40,)),
            "scale": ("F64", ()),
        }.items()
    },
    "codes": ("U8", (100, 16)),
}


def written(contents: dict[str, bytes]) -> Any:
    """Return a model whose nodes use all of its tensors."""
    from tests.onnx_models import initializer, model, node, typed

    found = model()
    graph = found.graph
    typed(graph.input, "x", "batch", 48)
    typed(graph.output, "y", "batch", 48)
    for name, (kind, shape) in SHAPES.items():
        stored = initializer(graph, name, [], *shape)
        stored.data_type, stored.raw_data = KINDS[kind][0], contents[name]
        stored.dims[:] = shape
        node(graph, "Add", ["x", name], [f"{name}.out"], f"{name}.node")
    node(graph, "Sum", [f"{name}.out" for name in SHAPES], ["y"], "last")
    return found


def read_onnx(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the initializers of a model by name, also those in files beside it; raises what protobuf raises."""
    from tests.onnx_models import MODEL

    found: dict[str, bytes] = {}
    for tensor in MODEL.FromString(path.read_bytes()).graph.initializer:
        raw = tensor.raw_data
        if tensor.data_location:
            where = {pair.key: pair.value for pair in tensor.external_data}
            begin, length = int(where["offset"]), int(where["length"])
            raw = (path.parent / where["location"]).read_bytes()[begin : begin + length]
            assert len(raw) == length
        found[tensor.name] = raw
    return found


@sample
def make_onnx() -> Sample:
    rng = random.Random(61)
    contents = {
        name: mixed(rng, prod(shape) * KINDS[kind][1], number)
        for number, (name, (kind, shape)) in enumerate(SHAPES.items())
    }
    content = written(contents).SerializeToString()
    values, before = {}, 0
    for name, raw in contents.items():
        at = content.index(raw, before)
        needs = ((0, at),) if not before else ((before, at),)
        values[name] = Value(raw, (at, at + len(raw)), needs)
        before = at + len(raw)
    landmarks = (8, 24, *(place for value in values.values() for place in value.place))
    return Sample("onnx", "model.onnx", content, "tensors", values, "stream", landmarks, read=read_onnx)


def read_onnx_data(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the values of a map by the names that they have here; raises what protobuf raises."""
    from pparse.protos import message_class

    found = message_class("onnx.MapProto").FromString(path.read_bytes())
    keys = (key.decode("utf-8", "backslashreplace") for key in found.string_keys)  # bytes, by the schema
    return {f"batch[{key}]": value.raw_data for key, value in zip(keys, found.values.tensor_values, strict=True)}


@sample
def make_onnx_data() -> Sample:
    from pparse.protos import message_class

    rng = random.Random(62)
    found = message_class("onnx.MapProto")(name="batch", key_type=8)
    found.values.elem_type = 1
    contents = {}
    for number, (name, (kind, shape)) in enumerate(SHAPES.items()):
        contents[name] = mixed(rng, prod(shape) * KINDS[kind][1], number)
        found.string_keys.append(name.encode())
        found.values.tensor_values.add(dims=shape, data_type=KINDS[kind][0], raw_data=contents[name])
    content = found.SerializeToString()
    values, before = {}, 0
    for name, raw in contents.items():
        at = content.index(raw, before)
        values[f"batch[{name}]"] = Value(raw, (at, at + len(raw)), ((before, at),))
        before = at + len(raw)
    landmarks = (8, 24, *(place for value in values.values() for place in value.place))
    return Sample("onnx_data", "output_0.pb", content, "tensors", values, "stream", landmarks, read=read_onnx_data)
