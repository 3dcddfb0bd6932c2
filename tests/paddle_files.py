"""PaddlePaddle programs for tests, written with protobuf's own classes, and files with parameters."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from pparse.protos import message_class

FLOAT, INT64, BFLOAT = 5, 3, 22


def record(data_type: int, dims: tuple[int, ...], content: bytes, levels: tuple[int, ...] = ()) -> bytes:
    """Return a parameter as paddle writes it."""
    told = message_class("paddle.framework.proto.VarType.TensorDesc")(data_type=data_type, dims=dims)
    described = told.SerializeToString()
    sequence = struct.pack("<IQ", 0, len(levels)) + b"".join(struct.pack("<Q", size) + bytes(size) for size in levels)
    return sequence + struct.pack("<Ii", 0, len(described)) + described + content


def read_records(content: bytes) -> list[bytes]:
    """Return the elements of each parameter, as paddle reads them: none has levels."""
    found, at = [], 0
    while at < len(content):
        (size,) = struct.unpack_from("<i", content, at + 16)
        told = message_class("paddle.framework.proto.VarType.TensorDesc").FromString(content[at + 20 : at + 20 + size])
        start = at + 20 + size
        at = start + prod(told.dims) * {FLOAT: 4, INT64: 8, BFLOAT: 2}[told.data_type]
        if at > len(content):
            raise ValueError("a parameter ends early")
        found.append(content[start:at])
    return found


def json_program(parameters: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Return a program in JSON form with these parameters, of a type and dims each."""
    operators = []
    for number, (name, (word, dims)) in enumerate(parameters.items(), 1):
        type = {"#": "0.t_dtensor", "D": [{"#": f"0.t_{word}"}, list(dims), "NCHW", [], 0]}
        operators.append({"#": "p", "A": [0, 1, 1, name], "DA": [], "O": {"%": number, "TT": type}, "OA": [1, 0, 1]})
    operators.append({"#": "1.data", "A": [{"AT": {"#": "0.a_str", "D": "x"}, "N": "name"}], "I": [], "O": [{"%": 99}]})
    block = {"#": "block_0", "args": [], "ops": operators}
    program = {"regions": [{"#": "region_0", "blocks": [block]}]}
    return {"base_code": {"magic": "pir", "trainable": True, "version": 4}, "program": program}


def program(layers: int = 2, *, stored: bool = True) -> Any:
    """Return a program that feeds ``x`` through so many layers, each with a parameter, and fetches what comes out.

    ``stored``: whether files have values of the parameters.
    """
    found = message_class("paddle.framework.proto.ProgramDesc")()
    block = found.blocks.add(idx=0, parent_idx=-1)
    last = "x"
    _operator(block, "feed", ["feed"], ["x"])
    for number in range(layers):
        weight = block.vars.add(name=f"fc_{number}.w_0", persistable=stored)
        weight.type.type = 7
        weight.type.dense_tensor.tensor.data_type = 5
        weight.type.dense_tensor.tensor.dims.extend((4, 4))
        _operator(block, "mul", [last, weight.name], [f"fc_{number}.tmp_0"])
        last = f"fc_{number}.tmp_0"
    _operator(block, "fetch", [last], ["fetch"])
    found.version.version = 3003001
    found.op_version_map.pair.add(op_name="mul").op_version.version = 1
    return found


def _operator(block: Any, type: str, inputs: list[str], outputs: list[str]) -> None:
    declared = {variable.name for variable in block.vars}
    for name in dict.fromkeys((*inputs, *outputs)):
        if name not in declared:
            block.vars.add(name=name).type.type = 7
    made = block.ops.add(type=type)
    made.inputs.add(parameter="X", arguments=inputs)
    made.outputs.add(parameter="Out", arguments=outputs)
    made.attrs.add(name="op_role", type=0, i=1)
