"""Samples: the weights of a program of Core ML, without the program."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from tests.coreml_files import program
from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path


def read(sample: Sample, path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    count, version = struct.unpack_from("<II", content)
    if version != 2:
        raise ValueError("not the version")
    found, at = {}, 64
    for number in range(count):
        at += -at % 64
        sentinel, _, length, start = struct.unpack_from("<IIQQ", content, at)
        if sentinel != 0xDEADBEEF or start != at + 64 or start + length > len(content):
            raise ValueError("no blob")
        found[f"blob_{number}"] = content[start : start + length]
        at = start + length
    return found


@sample
def make_coreml_weights() -> Sample:
    rng = random.Random(91)
    blobs = [mixed(rng, 1500 + 64 * number, number) for number in range(12)]
    _, content = program({f"w{number}": (31, (len(raw),), raw) for number, raw in enumerate(blobs)})
    values, landmarks, before = {}, [8, 64], 64
    for number, raw in enumerate(blobs):
        at = content.index(raw, before)
        values[f"blob_{number}"] = Value(raw, (at, at + len(raw)), ((0, 64), (before, at)))
        landmarks += [at - 64, at]
        before = at + len(raw)
    return Sample("coreml-weights", "weight.bin", content, "tensors", values, "stream", tuple(landmarks), read=read)
