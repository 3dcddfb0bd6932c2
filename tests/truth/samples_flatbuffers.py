"""Samples: TFLite models, with their buffers in the FlatBuffer and behind it; kin of them by their own libraries."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path

import numpy as np

from tests.flatbuffers_files import tflite
from tests.truth.known import Sample, Value, mixed, sample

DATA = Path(__file__).parents[1] / "data" / "flatbuffers"
SIZES = {"f4": 4, "f2": 2, "i1": 1, "i4": 4, "i8": 8}


def make(name: str, seed: int, **how: object) -> Sample:
    rng = random.Random(seed)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {"embedding": ("f4", (64, 32))}
    for number in range(5):
        shapes |= {
            f"block{number}/kernel": ("f4", (24, 40)),
            f"block{number}/bias": ("f4", (40,)),
            f"block{number}/codes": ("i1", (40, 60)),
            f"block{number}/ids": ("i8", (40,)),
        }
    contents = {
        key: mixed(rng, prod(shape) * SIZES[kind], number) for number, (key, (kind, shape)) in enumerate(shapes.items())
    }
    tensors: list = [("input", "f4", (1, 64), None)]
    tensors += [(key, kind, shape, contents[key]) for key, (kind, shape) in shapes.items()]
    steps = [(0, [number, number + 1], [0]) for number in range(len(shapes))]
    content = tflite(tensors, steps, codes=[9], inputs=[0], outputs=[0], **how)
    places = {key: (content.index(raw), content.index(raw) + len(raw)) for key, raw in contents.items()}
    needs, at = [], 0
    for begin, end in sorted(places.values()):
        needs.append((at, begin))
        at = end
    needs.append((at, len(content)))
    needs = [pair for pair in needs if pair[0] < pair[1]]
    values = {key: Value(raw, places[key], tuple(needs)) for key, raw in contents.items()}
    landmarks = (4, 8, needs[0][1], at, *(end for _, end in places.values()))
    return Sample(name, "model.tflite", content, "tensors", values, "offset", landmarks, header=needs[0][1])


@sample
def make_tflite() -> Sample:
    return make("tflite", 61)


@sample
def make_tflite_far() -> Sample:
    return make("tflite-far", 62, far=True)


def real(
    name: str, file: str, values: dict[str, bytes], *, in_order: bool = False, others: tuple[str, ...] = ()
) -> Sample:
    """Return a sample of a file as its own library wrote it, whose values are known."""
    content = (DATA / file).read_bytes()
    places, behind = {}, 0
    for key, raw in values.items():
        begin = content.index(raw, behind)
        behind = begin + len(raw) if in_order else 0
        places[key] = (begin, begin + len(raw))
    needs, at = [], 0
    for begin, end in sorted(set(places.values())):
        needs.append((at, begin))
        at = end
    needs = tuple(pair for pair in (*needs, (at, len(content))) if pair[0] < pair[1])
    found = {key: Value(raw, places[key], needs) for key, raw in values.items()}
    landmarks = (4, 8, *(end for _, end in places.values()))
    return Sample(name, file, content, "tensors", found, "offset", landmarks, header=needs[0][1], others=others)


def onnx_weights() -> list:
    """Return the three weights of the model that ONNX Runtime and MNN converted."""
    rng = np.random.RandomState(0)
    made = [rng.rand(3, 2, 3, 3), rng.rand(3), rng.rand(108, 5)]
    return [array.astype("<f4") for array in made]


@sample
def make_ort() -> Sample:
    weights = dict(zip("wbk", onnx_weights(), strict=True))
    return real("ort", "small.ort", {name: array.tobytes() for name, array in weights.items()})


@sample
def make_mnn() -> Sample:
    kernel, bias, dense = onnx_weights()
    values = {"c.weight": kernel, "c.bias": bias, "y__matmul_converted.weight": dense.T}
    others = ("Concat11", "Const19", "Const26", "Unsqueeze17", "Unsqueeze24", "y__matmul_converted.bias")
    return real("mnn", "small.mnn", {name: array.tobytes() for name, array in values.items()}, others=others)


def parameters(*names: str) -> dict[str, bytes]:
    """Return the parameters of the module that ExecuTorch compiled, and a buffer, in the order of their bytes."""
    arrays = [(np.arange(size) / 8 + number).astype("<f4") for number, size in enumerate((32, 4, 18, 2))]
    arrays.append(np.arange(3, dtype="<i8"))
    return {name: array.tobytes() for name, array in zip(names, arrays, strict=True)}


@sample
def make_executorch() -> Sample:
    values = parameters(*(f"forward.{number}" for number in range(5)))
    values |= {"forward.6": np.int64(1).tobytes(), "forward.8": np.int64(2).tobytes()}
    return real("executorch", "small.pte", values, in_order=True)


@sample
def make_executorch_data() -> Sample:
    values = parameters("a.weight", "a.bias", "c.weight", "c.bias", "n")
    return real("executorch-data", "external.ptd", values, in_order=True)


@sample
def make_catboost() -> Sample:
    leaves = np.load(DATA / "small.cbm.leaves.npy")
    others = (
        *(f"FloatFeatures[{number}].Borders" for number in range(5)),
        *("TreeSplits", "TreeSizes", "TreeStartOffsets", "LeafWeights", "NonSymmetricNodeIdToLeafId", "MultiBias"),
    )
    return real("catboost", "small.cbm", {"LeafValues": leaves.astype("<f8").tobytes()}, others=others)
