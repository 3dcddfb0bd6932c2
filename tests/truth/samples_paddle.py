"""Samples: a program of PaddlePaddle, whose values are the fields of its root, and parameters without their names."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tests.paddle_files import FLOAT, INT64, json_program, program, read_records, record
from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path


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
    made = program(60, stored=False)
    made.ClearField("version")  # an int64, which --json writes as text, and others as a number: as are dims
    for variable in made.blocks[0].vars:
        if variable.type.HasField("dense_tensor"):
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


def read(sample: Sample, path: Path) -> dict[str, bytes]:
    return {f"param_{number}": raw for number, raw in enumerate(read_records(path.read_bytes()))}


@sample
def make_paddle_params() -> Sample:
    rng = random.Random(71)
    content, values = b"", {}
    for number in range(14):
        kind, size = ((FLOAT, 4), (INT64, 8))[number % 2]
        raw = mixed(rng, (20 + number) * 30 * size, number)
        before, content = len(content), content + record(kind, (20 + number, 30), raw)
        at = len(content) - len(raw)
        values[f"param_{number}"] = Value(raw, (at, len(content)), ((before, at),))
    landmarks = tuple(place for value in values.values() for place in value.place)
    return Sample("paddle-params", "inference.pdiparams", content, "tensors", values, "stream", landmarks, read=read)


@sample
def make_paddle_json() -> Sample:
    made = json_program({})
    made["program"]["regions"][0]["blocks"][0]["ops"] *= 60
    content, values = "{", {}
    for key, value in made.items():
        content += f"{json.dumps(key)}: "
        at = len(content)
        content += json.dumps(value)
        told = json.dumps(value, sort_keys=True).encode()
        values[key] = Value(told, (at, len(content)), ((0, at),), (len(content) - 1, len(content) + 1))
        content += ", " if key == "base_code" else "}"
    landmarks = tuple(place for value in values.values() for place in value.place)
    return Sample("paddle-json", "inference.json", content.encode(), "keys", values, "stream", landmarks)
