"""Samples: PyTorch checkpoints, in a zip and as they were before."""

from __future__ import annotations

import random
from math import prod

from tests.pytorch_files import STORAGES, Made, checkpoint, legacy_checkpoint
from tests.truth.known import Sample, Value, mixed, sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "U8": "uint8"}


def shapes(first: int, count: int, width: int) -> dict[str, tuple[str, list[int]]]:
    """Return types and shapes of some layers of a model."""
    found: dict[str, tuple[str, list[int]]] = {"wte": ("float32", [64, 48])}
    for number in range(first, first + count):
        found |= {
            f"h.{number}.attn.weight": ("float32", [width, width]),
            f"h.{number}.attn.bias": ("float16", [width]),
            f"h.{number}.mask": ("bool", [width, 3]),
            f"h.{number}.mlp.weight": ("bfloat16", [width, 4 * width]),
            f"h.{number}.ids": ("int64", [width]),
            f"h.{number}.scale": ("float64", []),
        }
    return found | {"wpe": ("uint8", [100, 17])}


def made(name: str, file: str, seed: int, make: Callable[..., Made], *, hashed: bool) -> Sample:
    """Return a sample of a checkpoint that ``make`` writes."""
    rng = random.Random(seed)
    tensors = shapes(0, 4, 40)
    contents = {}
    for number, (key, (dtype, shape)) in enumerate(tensors.items()):
        content = mixed(rng, prod(shape) * STORAGES[dtype][1], number)
        contents[key] = bytes(byte & 1 for byte in content) if dtype == "bool" else content
    found = make(tensors, contents)
    values = {key: Value(contents[key], found.places[key], (*found.needs, *found.own[key])) for key in tensors}
    marks = [place for span in (*found.places.values(), *found.needs) for place in span]
    landmarks = (8, found.head // 2, found.head, *marks, len(found.content) - 22)
    return Sample(name, file, found.content, "tensors", values, "offset", landmarks, hashed=hashed, header=found.head)


@sample
def make_pytorch() -> Sample:
    return made("pytorch", "model.pt", 31, checkpoint, hashed=True)


@sample
def make_pytorch_legacy() -> Sample:
    return made("pytorch-legacy", "old.pt", 32, legacy_checkpoint, hashed=False)
