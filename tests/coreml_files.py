"""Core ML models for tests, written with protobuf's own classes, and a reader of few lines."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from pparse.protos import message_class

if TYPE_CHECKING:
    from pathlib import Path

SPEC = "CoreML.Specification."
BLOB_TYPES = {10: 1, 11: 2, 31: 3, 21: 4, 25: 8, 39: 12, 23: 14}


def model(version: int = 6) -> Any:
    found = message_class(f"{SPEC}Model")(specificationVersion=version)
    feature = found.description.input.add(name="x")
    feature.type.multiArrayType.dataType = 65568
    feature.type.multiArrayType.shape[:] = [1, 4]
    found.description.metadata.author = "ünknown"
    return found


def network(weights: dict[str, dict[str, Any]]) -> Any:
    """Return a network of a layer for each name: what its WeightParams have, as those of an inner product."""
    found = model(4)
    for name, fields in weights.items():
        layer = found.neuralNetwork.layers.add(name=name, input=["x"], output=[name])
        layer.innerProduct.inputChannels, layer.innerProduct.outputChannels = fields.pop("shape")
        bits = fields.pop("bits", None)
        params = message_class(f"{SPEC}WeightParams")(**fields)
        if bits is not None:
            params.quantization.numberOfBits, table = bits
            params.quantization.lookupTableQuantization.floatValue[:] = table
        layer.innerProduct.weights.CopyFrom(params)
    return found


def program(values: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return a program with a const for each name, and its weights.

    A value: type, shape, and the bytes of a blob, or the field of a TensorValue and what it lists.
    """
    found = model()
    function = found.mlProgram.functions["main"]
    function.opset = "CoreML5"
    block = function.block_specializations["CoreML5"]
    weights = bytearray(64)
    count = 0
    for name, (kind, shape, *content) in values.items():
        operation = block.operations.add(type="const")
        operation.outputs.add(name=name)
        value = operation.attributes["val"]
        value.type.tensorType.dataType, value.type.tensorType.rank = kind, len(shape)
        for size in shape:
            value.type.tensorType.dimensions.add().constant.size = size
        if len(content) == 1:
            count += 1
            weights += bytes(-len(weights) % 64)
            value.blobFileValue.fileName = "@model_path/weights/weight.bin"
            value.blobFileValue.offset = len(weights)
            head = struct.pack("<IIQQ", 0xDEADBEEF, BLOB_TYPES[kind], len(content[0]), len(weights) + 64)
            weights += head.ljust(64, b"\0") + content[0]
        else:
            field, listed = content
            inner = getattr(value.immediateValue.tensor, field)
            inner.SetInParent()
            if field == "bytes":
                inner.values = listed
            else:
                inner.values.extend(listed)
    weights[:8] = struct.pack("<II", count, 2)
    return found.SerializeToString(deterministic=True), bytes(weights)


def write_package(folder: Path, content: bytes, weights: bytes) -> Path:
    """Write a package; return its path."""
    inner = folder / "Data" / "com.apple.CoreML"
    (inner / "weights").mkdir(parents=True)
    (inner / "model.mlmodel").write_bytes(content)
    (inner / "weights" / "weight.bin").write_bytes(weights)
    (folder / "Manifest.json").write_text(
        '{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": {"path": "com.apple.CoreML/model.mlmodel"}}, '
        '"rootModelIdentifier": "A"}',
        encoding="utf-8",
    )
    return folder


def read_network(path: Path) -> dict[str, bytes]:
    """Return the weights of a network as bytes by the names of layers; raises what protobuf raises."""
    found = message_class(f"{SPEC}Model").FromString(path.read_bytes())
    values = {}
    for layer in found.neuralNetwork.layers:
        params = layer.innerProduct.weights
        floats = struct.pack(f"<{len(params.floatValue)}f", *params.floatValue)
        values[f"{layer.name}.weights"] = floats or params.float16Value or params.rawValue
    return values
