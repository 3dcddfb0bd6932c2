"""PaddlePaddle programs for tests, written with protobuf's own classes."""

from __future__ import annotations

from typing import Any

from pparse.protos import message_class


def program(layers: int = 2) -> Any:
    """Return a program that feeds ``x`` through so many layers, each with a parameter, and fetches what comes out."""
    found = message_class("paddle.framework.proto.ProgramDesc")()
    block = found.blocks.add(idx=0, parent_idx=-1)
    last = "x"
    _operator(block, "feed", ["feed"], ["x"])
    for number in range(layers):
        weight = block.vars.add(name=f"fc_{number}.w_0", persistable=True)
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
    made = block.ops.add(type=type)
    made.inputs.add(parameter="X", arguments=inputs)
    made.outputs.add(parameter="Out", arguments=outputs)
    made.attrs.add(name="op_role", type=0, i=1)
