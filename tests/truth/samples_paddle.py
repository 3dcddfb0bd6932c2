"""Samples: a program of PaddlePaddle, whose values are the fields of its root."""

from __future__ import annotations

import json
from typing import Any

from tests.paddle_files import program
from tests.truth.known import Sample, Value, sample


def plain(value: Any, field: Any = None) -> Any:
    """Return a message as plain data, enums by name."""
    if field is not None and field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if not hasattr(value, "ListFields"):
        return value
    return {
        field.name: [plain(one, field) for one in found] if field.is_repeated else plain(found, field)
        for field, found in value.ListFields()
    }


@sample
def make_paddle() -> Sample:
    made = program(60)
    made.ClearField("version")  # an int64, which --json writes as text, and others as a number: as are dims
    for variable in made.blocks[0].vars:
        variable.type.dense_tensor.tensor.ClearField("dims")
    for number in range(60):
        made.op_version_map.pair.add(op_name=f"operator{number}").op_version.version = number
    content = made.SerializeToString()
    ends = (content.rindex(made.op_version_map.SerializeToString()) - 3, len(content))
    values, start = {}, 0
    for name, end in zip(("blocks", "op_version_map"), ends, strict=True):
        told = json.dumps(plain(made)[name], sort_keys=True).encode()
        values[name] = Value(told, (start, end), ((0, start),) if start else ())
        start = end
    return Sample("paddle", "inference.pdmodel", content, "keys", values, "stream", (14, ends[0]))
