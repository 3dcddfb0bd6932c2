"""Samples: a neural network of Core ML."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.coreml_files import network, read_network
from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {"float16Value": 2, "rawValue": 1}


def read(sample: Sample, path: Path) -> dict[str, bytes]:
    return read_network(path)


@sample
def make_coreml() -> Sample:
    rng = random.Random(67)
    weights, contents = {}, {}
    for number in range(12):
        field, size = list(FIELDS.items())[number % 2]
        shape = (24 + number, 40)
        name = f"layer{number}"
        contents[f"{name}.weights"] = raw = mixed(rng, shape[0] * shape[1] * size, number)
        weights[name] = {"shape": shape, field: raw}
    content = network(weights).SerializeToString()
    values, before = {}, 0
    for name, raw in contents.items():
        at = content.index(raw, before)
        values[name] = Value(raw, (at, at + len(raw)), ((before, at),))
        before = at + len(raw)
    landmarks = (2, 8, *(place for value in values.values() for place in value.place))
    return Sample("coreml", "net.mlmodel", content, "tensors", values, "stream", landmarks, read=read)
