"""Samples that other programs write, or that write as those do: the same formats, laid out in another way.

`safetensors-library` is what the library writes (tests/interop compares), `safetensors-ours` what ``pparse convert``
does; `npz-zipped` has no zip64 fields, as zipfile writes members whose size it knows; `gguf-raw` is of version 2,
with another alignment, and ends with its last tensor; `onnx-external` has its tensors in a file beside it; `gguf-parts`
is split; in `safetensors-mixed` each shard is another writer's.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from math import prod
from pathlib import Path

from tests.gguf_files import Writer
from tests.truth import samples_gguf, samples_numpy, samples_onnx
from tests.truth.known import Sample, Value, mixed, sample

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "BOOL": 1}
Shapes = dict[str, tuple[str, list[int]]]


def layers(first: int, count: int, width: int) -> Shapes:
    """Return types and shapes of some layers of a model."""
    return {
        f"h.{number}.{name}": shape
        for number in range(first, first + count)
        for name, shape in {
            "weight": ("F32", [width, width]),
            "bias": ("F16", [width]),
            "mask": ("BOOL", [width, 3]),
            "up": ("BF16", [width, 4 * width]),
            "ids": ("I64", [width]),
            "scale": ("F64", []),
        }.items()
    }


def contents_of(shapes: Shapes, seed: int) -> dict[str, bytes]:
    """Return bytes for all tensors."""
    rng, found = random.Random(seed), {}
    for number, (name, (kind, shape)) in enumerate(shapes.items()):
        content = mixed(rng, SIZES[kind] * prod(shape), number)
        found[name] = bytes(byte & 1 for byte in content) if kind == "BOOL" else content
    return found


def read_places(content: bytes) -> tuple[dict[str, tuple[int, int]], int]:
    """Return where the tensors of a sound safetensors file are, and the length of its header."""
    base = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:base])
    places = {
        name: (base + entry["data_offsets"][0], base + entry["data_offsets"][1])
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    return places, base


def as_library(shapes: Shapes, contents: dict[str, bytes], metadata: dict[str, str] | None = None) -> bytes:
    """Return a file as the safetensors library writes it: by type, then by name; compact JSON."""
    names = sorted(shapes, key=lambda name: (-RANKS[shapes[name][0]], name))
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name in names:
        end = at + len(contents[name])
        header[name] = {"dtype": shapes[name][0], "shape": shapes[name][1], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(contents[name] for name in names)


# The order of the types in the library (safetensors/src/tensor.rs, ``Dtype``), which sorts the highest first.
RANKS = {"BOOL": 0, "U8": 1, "F16": 8, "BF16": 9, "F32": 12, "F64": 14, "I64": 15}


def as_ours(shapes: Shapes, contents: dict[str, bytes], metadata: dict[str, str] | None = None) -> bytes:
    """Return a file as ``pparse convert`` writes it."""
    import tempfile

    import pparse
    from pparse.conversion import convert

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "it.safetensors")
        with pparse.view(as_library(shapes, contents, metadata)) as model:
            convert(model, path)
        return path.read_bytes()


def safetensors(name: str, file: str, content: bytes, contents: dict[str, bytes], **more: object) -> Sample:
    """Return the sample of a safetensors file."""
    places, base = read_places(content)
    values = {key: Value(contents[key], place, ((0, base),)) for key, place in places.items()}
    landmarks = (8, base // 2, base, *(end for _, end in places.values()))
    return Sample(name, file, content, "tensors", values, "offset", landmarks, header=base, **more)  # type: ignore[arg-type]


@sample
def make_safetensors_library() -> Sample:
    shapes = {"wte": ("F32", [64, 48]), **layers(0, 4, 40), "wpe": ("U8", [100, 17])}
    contents = contents_of(shapes, 81)
    content = as_library(shapes, contents, {"format": "pt"})
    return safetensors("safetensors-library", "model.safetensors", content, contents)


@sample
def make_safetensors_ours() -> Sample:
    shapes = {"wte": ("F32", [64, 48]), **layers(0, 4, 40), "wpe": ("U8", [100, 17])}
    contents = contents_of(shapes, 82)
    return safetensors("safetensors-ours", "ours.safetensors", as_ours(shapes, contents), contents)


@sample
def make_safetensors_mixed() -> Sample:
    """An index and three shards of several writers; the second is the one that is hit."""
    files, names, all_values, hit = {}, {}, {}, None
    for number, write in enumerate((as_ours, as_library, as_library)):
        file, shapes = f"model-{number + 1:05}-of-00003.safetensors", layers(number * 2, 2, 24)
        contents = contents_of(shapes, 83 + number)
        content = write(shapes, contents, {"format": "pt"} if number else None)
        names |= dict.fromkeys(shapes, file)
        if number == 1:
            hit = file, content, contents
            continue
        files[file] = content
        all_values |= safetensors("", file, content, contents).values
    assert hit is not None
    index = {"metadata": {}, "weight_map": names}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    more = {"siblings": files, "sibling_values": all_values, "entry": "model.safetensors.index.json"}
    return safetensors("safetensors-mixed", *hit, **more)


@sample
def make_npz_zipped() -> Sample:
    """An archive of arrays whose members zipfile wrote at once: 32-bit sizes, and no field for others."""
    rng, out = random.Random(86), io.BytesIO()
    shapes = samples_numpy.SHAPES
    contents = {key: samples_numpy.elements(rng, *shapes[key], number) for number, key in enumerate(shapes)}
    with zipfile.ZipFile(out, "w") as made:
        for key, content in contents.items():
            made.writestr(zipfile.ZipInfo(f"{key}.npy"), samples_numpy.header(*shapes[key]) + content)
        infos, directory = made.infolist(), made.start_dir
    raw, values, entry, marks = out.getvalue(), {}, directory, []
    for info, key in zip(infos, contents, strict=True):
        following = entry + 46 + len(info.filename)
        end = info.header_offset + 30 + len(info.filename) + info.file_size
        place = (end - len(contents[key]), end)
        values[key] = Value(contents[key], place, ((info.header_offset, place[0]), (entry, following)))
        marks += [info.header_offset, end]
        entry = following
    landmarks = (*marks, directory, len(raw) - 22)
    return Sample(
        "npz-zipped",
        "zipped.npz",
        raw,
        "tensors",
        values,
        "offset",
        landmarks,
        hashed=True,
        read=samples_numpy.read_arrays,
    )


def gguf(writer: Writer, pairs: list, shapes: dict, seed: int, alignment: int) -> tuple[bytes, dict[str, Value], int]:
    """Return a file of these tensors, without bytes behind the last one, its values, and where its data begin."""
    rng = random.Random(seed)
    contents, table, data = {}, [], b""
    for number, (name, (kind, shape)) in enumerate(shapes.items()):
        number_of_kind, size = samples_gguf.KINDS[kind]
        contents[name] = mixed(rng, prod(shape) * size, number)
        data += bytes(-len(data) % alignment)
        table.append((name, shape, number_of_kind, len(data)))
        data += contents[name]
    content = writer.file(pairs, table, data, alignment=alignment)
    base = len(content) - len(data)
    values = {
        name: Value(contents[name], (base + at, base + at + len(contents[name])), ((0, base),))
        for name, _, _, at in table
    }
    return content, values, base


@sample
def make_gguf_raw() -> Sample:
    shapes = {f"blk.{number}.{name}": shape for number in range(4) for name, shape in BLOCK.items()}
    pairs = [
        ("general.alignment", ("uint32", 64)),
        ("general.architecture", "raw"),
        ("x.scores", ("float32", [0.5] * 99)),
    ]
    content, values, base = gguf(Writer(version=2), pairs, shapes, 87, 64)
    landmarks = (8, 24, base // 2, base, *(value.place[1] for value in values.values()))
    return Sample(
        "gguf-raw",
        "raw.gguf",
        content,
        "tensors",
        values,
        "offset",
        landmarks,
        header=base,
        read=samples_gguf.read_gguf,
    )


BLOCK = {"q": ("F32", (40, 40)), "bias": ("F16", (40,)), "up": ("BF16", (40, 160)), "ids": ("I64", (40,))}


@sample
def make_gguf_parts() -> Sample:
    """A model in three parts, of which the first has no tensors; the second is the one that is hit."""
    files, sibling_values, hit = {}, {}, None
    for number in range(3):
        file = f"m-{number + 1:05}-of-00003.gguf"
        pairs = [
            ("split.no", ("uint16", number)),
            ("split.count", ("uint16", 3)),
            ("split.tensors.count", ("int32", 8)),
        ]
        pairs = pairs if number else [("general.architecture", "llama"), *pairs]
        shapes = {f"blk.{number}.{name}": shape for name, shape in BLOCK.items()} if number else {}
        content, values, base = gguf(Writer(), pairs, shapes, 88 + number, 32)
        if number == 1:
            hit = file, content, values, base
        else:
            files[file] = content
            sibling_values |= values
    assert hit is not None
    file, content, values, base = hit
    landmarks = (8, 24, base // 2, base, *(value.place[1] for value in values.values()))
    more = {"siblings": files, "sibling_values": sibling_values, "entry": "m-00001-of-00003.gguf"}
    more |= {"header": base, "folder_only": True, "read": samples_gguf.read_gguf}
    return Sample("gguf-parts", file, content, "tensors", values, "offset", landmarks, **more)  # type: ignore[arg-type]


@sample
def make_onnx_external() -> Sample:
    """The file with external data is hit; the model beside it says where each tensor stands."""
    rng = random.Random(91)
    shapes = samples_onnx.SHAPES
    contents = {
        name: mixed(rng, prod(shape) * samples_onnx.KINDS[kind][1], number)
        for number, (name, (kind, shape)) in enumerate(shapes.items())
    }
    model, data, values = samples_onnx.written(contents), b"", {}
    for tensor in model.graph.initializer:
        raw = contents[tensor.name]
        tensor.ClearField("raw_data")
        tensor.data_location = 1
        for key, value in (("location", "weights.data"), ("offset", str(len(data))), ("length", str(len(raw)))):
            pair = tensor.external_data.add()
            pair.key, pair.value = key, value
        values[tensor.name] = Value(raw, (len(data), len(data) + len(raw)))
        data += raw
    marks = (8, *dict.fromkeys(mark for value in values.values() for mark in value.place))
    return Sample(
        "onnx-external",
        "weights.data",
        data,
        "tensors",
        values,
        "offset",
        marks,
        siblings={"model.onnx": model.SerializeToString()},
        entry="model.onnx",
        folder_only=True,
        saved=("model.onnx", "model.safetensors"),
        read=samples_onnx.read_onnx,
    )
