"""Samples: TFLite models, with their buffers in the FlatBuffer and behind it; kin of them by their own libraries."""

from __future__ import annotations

import random
import struct
from math import prod
from pathlib import Path

import numpy as np

from tests.flatbuffers_files import Builder, Flex, element, step, tflite, vector_at
from tests.truth.known import Sample, Value, mixed, sample

DATA = Path(__file__).parents[1] / "data" / "flatbuffers"
# Numbers of members of OpParameter in MNN's schema.
BLOB, CONVOLUTION = 7, 9
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
    header = needs[0][1]
    return Sample(name, "model.tflite", content, "tensors", values, "offset", landmarks, header=header, linked=True)


@sample
def make_tflite() -> Sample:
    return make("tflite", 61)


@sample
def make_tflite_far() -> Sample:
    return make("tflite-far", 62, far=True)


def real(name: str, file: str, values: dict[str, bytes], *, in_order: bool = False) -> Sample:
    """Return a sample of a file as its own library wrote it, whose values are known."""
    content = (DATA / file).read_bytes()
    places, behind = {}, 0
    for key, raw in values.items():
        begin = content.index(raw, behind)
        behind = begin + len(raw) if in_order else 0
        places[key] = (begin, begin + len(raw))
    return placed(name, file, places)


def placed(name: str, file: str, places: dict[str, tuple[int, int]]) -> Sample:
    """Return a sample of a file whose values stand at these places."""
    content = (DATA / file).read_bytes()
    needs, at = [], 0
    for begin, end in sorted(set(places.values())):
        needs.append((at, begin))
        at = end
    needs = tuple(pair for pair in (*needs, (at, len(content))) if pair[0] < pair[1])
    found = {key: Value(content[begin:end], (begin, end), needs) for key, (begin, end) in places.items()}
    landmarks = (4, 8, *(end for _, end in places.values()))
    return Sample(name, file, content, "tensors", found, "offset", landmarks, header=needs[0][1], linked=True)


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
    """All constants and weights, found by their places in the file; the weights are those that were converted."""
    content = (DATA / "small.mnn").read_bytes()
    ops = step(content, struct.unpack_from("<I", content)[0], 3)
    places: dict[str, tuple[int, int]] = {}
    for number in range(struct.unpack_from("<I", content, ops)[0]):
        op = element(content, ops, number)
        vtable = op - struct.unpack_from("<i", content, op)[0]
        kind = content[op + struct.unpack_from("<H", content, vtable + 6)[0]]
        start, end = vector_at(content, step(content, op, 3), 1)
        name = content[start:end].decode()
        if kind == BLOB:
            places[name] = vector_at(content, step(content, step(content, op, 2), 5), 4)
        elif kind == CONVOLUTION:
            main = step(content, op, 2)
            places |= {
                f"{name}.{key}": vector_at(content, step(content, main, at), 4)
                for at, key in ((1, "weight"), (2, "bias"))
            }
    values = {name: content[start:end] for name, (start, end) in places.items()}
    kernel, bias, dense = onnx_weights()
    told = {"c.weight": kernel, "c.bias": bias, "y__matmul_converted.weight": dense.T}
    assert all(values[name] == array.tobytes() for name, array in told.items())
    return placed("mnn", "small.mnn", places)


@sample
def make_catboost() -> Sample:
    """All vectors of the trees, found by their places in the file; the leaves are those that CatBoost tells."""
    content = (DATA / "small.cbm").read_bytes()
    trees = step(content, 8 + struct.unpack_from("<I", content, 8)[0], 1)
    fields = {
        "TreeSplits": (1, 4),
        "TreeSizes": (2, 4),
        "TreeStartOffsets": (3, 4),
        "LeafValues": (8, 8),
        "LeafWeights": (9, 8),
    }
    fields |= {"NonSymmetricNodeIdToLeafId": (11, 4), "MultiBias": (16, 8)}
    places = {name: vector_at(content, step(content, trees, slot), size) for name, (slot, size) in fields.items()}
    features = step(content, trees, 5)
    for number in range(struct.unpack_from("<I", content, features)[0]):
        feature = element(content, features, number)
        places[f"FloatFeatures[{number}].Borders"] = vector_at(content, step(content, feature, 3), 4)
    start, end = places["LeafValues"]
    assert content[start:end] == np.load(DATA / "small.cbm.leaves.npy").astype("<f8").tobytes()
    return placed("catboost", "small.cbm", places)


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
def make_flexbuffers() -> Sample:
    """A map: each key stands before its value, what leads to both behind them all."""
    rng = random.Random(63)
    contents: dict[str, bytes | str] = {}
    for number in range(24):
        raw = mixed(rng, rng.choice((20, 60, 200, 3_000, 70_000)), number)
        contents[f"block{number:02}"] = raw if number % 3 else raw.hex()
    content, values, before = Flex(contents).content, {}, 0
    for key, value in contents.items():
        raw = value if isinstance(value, bytes) else value.encode()
        start = content.index(raw, before)
        end = start + len(raw)
        zero = ((end, end + 1),) if isinstance(value, str) else ()  # behind a text, and libraries verify it
        values[key] = Value(raw, (start, end), ((before, start), *zero))
        before = end
    needs = ((before, len(content)),)
    values = {key: Value(each.content, each.place, each.needs + needs) for key, each in values.items()}
    landmarks = (before, len(content) - 3, *(end for each in values.values() for end in each.place))
    return Sample("flexbuffers", "options.flexbuf", content, "keys", values, "back", landmarks)


@sample
def make_flatbuffers() -> Sample:
    """Texts of a root table, of which no schema tells."""
    rng = random.Random(64)
    contents = [rng.randbytes(rng.choice((20, 60, 200, 3_000))).hex() for _ in range(24)]
    build = Builder()
    places = [build.text(text) for text in reversed(contents)][::-1]
    content = build.finish(build.table(**{f"t{slot}": (slot, "@", place) for slot, place in enumerate(places)}))
    starts = [len(content) - place + 4 for place in places]
    needs = [
        ((0, starts[0] - 4), (start - 4, start), (start + len(text), start + len(text) + 1))
        for start, text in zip(starts, contents, strict=True)
    ]
    values = {
        str(slot): Value(text.encode(), (start, start + len(text)), need)
        for slot, (text, start, need) in enumerate(zip(contents, starts, needs, strict=True))
    }
    landmarks = (4, starts[0] - 4, *starts)
    return Sample("flatbuffers", "texts.fb", content, "keys", values, "offset", landmarks, header=starts[0] - 4)
