"""Core ML models for tests, written with protobuf's own classes, and a reader of few lines."""

from __future__ import annotations

import math
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


# -- programs as text --------------------------------------------------------------------------------------------------

_WORDS = {"FLOAT8E4M3FN": "fp8e4m3fn", "BFLOAT16": "bf16"}


def _type_text(type: Any, *, old: bool) -> str:
    if type.WhichOneof("type") != "tensorType":
        return f"state<{_type_text(type.stateType.wrappedType, old=old)}>"
    tensor = type.tensorType
    name = tensor.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_number[tensor.dataType].name
    word = _WORDS.get(name) or name.lower().replace("float", "fp")
    sizes = [str(one.constant.size) if one.HasField("constant") else "?" for one in tensor.dimensions]
    return f"tensor<{word}, [{', '.join(sizes)}]>" if sizes or old else word


def _value_text(value: Any, *, old: bool) -> str:
    kind = _type_text(value.type, old=old)
    if value.HasField("blobFileValue"):
        text, number = ("tensor<string, []>", "tensor<uint64, []>") if old else ("string", "uint64")
        path = f'path = {text}("{value.blobFileValue.fileName}")'
        return f"{kind}(BLOBFILE({path}, offset = {number}({value.blobFileValue.offset})))"
    tensor = value.immediateValue.tensor
    field = tensor.WhichOneof("value")
    found = getattr(tensor, field).values
    name = value.type.tensorType.dataType
    if field == "bytes":
        codes = {10: "e", 21: "b", 31: "B", 22: "h", 32: "H", 33: "I"}
        bits = {25: 4, 35: 4, 36: 2, 37: 1, 38: 6, 39: 3}.get(name, 0)
        if bits:
            count = math.prod(one.constant.size for one in value.type.tensorType.dimensions)
            whole = int.from_bytes(found, "little")
            found = [whole >> at * bits & ((1 << bits) - 1) for at in range(count)]
            found = [code - 16 if name == 25 and code > 7 else code for code in found]
        else:
            found = struct.unpack(f"<{len(found) // struct.calcsize(codes[name])}{codes[name]}", found)
    words = {"strings": lambda text: f'"{text}"', "bools": lambda truth: str(truth).lower()}
    write = words.get(field, (lambda number: float(number).hex()) if name in (10, 11, 12) else str)
    listed = ", ".join(map(write, found))
    return f"{kind}([{listed}])" if value.type.tensorType.dimensions else f"{kind}({listed})"


def _operation_text(operation: Any, *, old: bool) -> str:
    def bound(binding: Any) -> str:
        return binding.name or _value_text(binding.value, old=old)

    made = ", ".join(f"{_type_text(one.type, old=old)} {one.name}" for one in operation.outputs)
    inputs = []
    for key, argument in operation.inputs.items():
        words = [bound(one) for one in argument.arguments]
        inputs.append(f"{key} = " + (words[0] if len(words) == 1 else f"({', '.join(words)})"))
    told = ", ".join(f"{key} = {_value_text(value, old=old)}" for key, value in operation.attributes.items())
    return f"{made} = {operation.type}({', '.join(inputs)})[{told}];"


def program_text(content: bytes, *, old: bool = False) -> str:
    """Return a program as Apple's compiler writes it, in the older form or the newer."""
    model = message_class(f"{SPEC}Model").FromString(content)
    lines = ["program(1.0)" if old else "program(1.3)", '[buildInfo = dict<string, string>({{"coremlc", "1"}})]', "{"]
    for name, function in model.mlProgram.functions.items():
        given = ", ".join(f"{_type_text(one.type, old=old)} {one.name}" for one in function.inputs)
        lines.append(f"    func {name}<{function.opset}>({given}) {{")
        block = function.block_specializations[function.opset]
        lines += [f"            {_operation_text(one, old=old)}" for one in block.operations]
        lines.append(f"        }} -> ({', '.join(block.outputs)});")
    return "\n".join([*lines, "}"])


def write_compiled(folder: Path, text: str, weights: bytes | None = None) -> Path:
    """Write a compiled model; return its path."""
    (folder / "weights").mkdir(parents=True)
    (folder / "coremldata.bin").write_bytes(b"\xf6\x01")
    (folder / "model.mil").write_text(text, encoding="utf-8")
    if weights is not None:
        (folder / "weights" / "weight.bin").write_bytes(weights)
    return folder
