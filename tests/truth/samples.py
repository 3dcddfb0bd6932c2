"""Samples: files whose every value is known. A new format has its own ``samples_*.py``; see docs/truth-matrix.md."""

from __future__ import annotations

import json
import math
import random
import struct
from importlib import import_module
from pathlib import Path

from tests.truth.known import SAMPLES, Sample, Value, csv_bytes, load, mixed, sample, text_bytes

__all__ = ["SAMPLES", "SIZES", "Sample", "Value", "csv_bytes", "load", "mixed", "text_bytes"]
for module in sorted(Path(__file__).parent.glob("samples_*.py")):
    import_module(f"tests.truth.{module.stem}")  # which registers its own
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


# -- safetensors -----------------------------------------------------------------------------------------------------


def safetensors_file(tensors: dict[str, tuple[str, list[int]]], seed: int, metadata: dict | None = None) -> tuple:
    """Return a file of these tensors, its values, its landmarks and the length of its header."""
    rng = random.Random(seed)
    header: dict = {"__metadata__": metadata} if metadata else {}
    data = bytearray()
    for number, (name, (dtype, shape)) in enumerate(tensors.items()):
        count = SIZES[dtype]
        for length in shape:
            count *= length
        content = mixed(rng, count, number)
        if dtype == "BOOL":
            content = bytes(byte & 1 for byte in content)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + count]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    base = 8 + len(text)
    values = {
        name: Value(bytes(data[begin:end]), (base + begin, base + end), ((0, base),))
        for name, entry in header.items()
        if name != "__metadata__"
        for begin, end in [entry["data_offsets"]]
    }
    landmarks = (8, base // 2, base, *(value.place[1] for value in values.values()))
    return struct.pack("<Q", len(text)) + text + bytes(data), values, landmarks, base


def layers(first: int, count: int, width: int) -> dict[str, tuple[str, list[int]]]:
    """Return names, dtypes and shapes of some layers of a model."""
    found: dict[str, tuple[str, list[int]]] = {}
    for number in range(first, first + count):
        found |= {
            f"h.{number}.attn.weight": ("F32", [width, width]),
            f"h.{number}.attn.bias": ("F16", [width]),
            f"h.{number}.mask": ("BOOL", [width, 3]),
            f"h.{number}.mlp.weight": ("BF16", [width, 4 * width]),
            f"h.{number}.ids": ("I64", [width]),
            f"h.{number}.scale": ("F64", []),
        }
    return found


def read_safetensors(path: Path) -> dict[str, bytes]:
    """Return the tensors of a file; raises what the library raises. Where it is not installed, its rules are ours."""
    content = path.read_bytes()
    try:
        import safetensors
    except ImportError:
        (length,) = struct.unpack_from("<Q", content)
        entries = {name: entry for name, entry in json.loads(content[8 : 8 + length]).items() if name != "__metadata__"}
        at, found = 0, {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            if begin != at or end - begin != math.prod(entry["shape"]) * SIZES[entry["dtype"]]:
                raise ValueError(f"{name} does not follow what is before it") from None
            found[name] = content[8 + length + begin : 8 + length + end]
            at = end
        if 8 + length + at != len(content):
            raise ValueError("the file is not covered") from None
        return found
    return {name: bytes(tensor["data"]) for name, tensor in safetensors.deserialize(content)}


@sample
def make_safetensors() -> Sample:
    shapes = {"wte": ("F32", [64, 48]), **layers(0, 5, 40), "wpe": ("U8", [100, 17]), "empty": ("F32", [0, 4])}
    content, values, landmarks, base = safetensors_file(shapes, 1)
    return Sample("safetensors", "model.safetensors", content, "tensors", values, "offset", landmarks, header=base)


@sample
def make_safetensors_meta() -> Sample:
    shapes = {**layers(0, 4, 16), "big": ("F32", [90, 128]), "codes": ("F8_E4M3", [33, 7])}
    content, values, landmarks, base = safetensors_file(shapes, 2, {"format": "pt", "note": "äöü ::[0]"})
    return Sample("safetensors-meta", "meta.safetensors", content, "tensors", values, "offset", landmarks, header=base)


@sample
def make_safetensors_sharded() -> Sample:
    """An index and three shards; the second is the one that is hit, and the one that stands alone in an archive."""
    files, all_values, made = {}, {}, []
    for number in range(3):
        file = f"model-{number + 1:05}-of-00003.safetensors"
        made.append((file, *safetensors_file(layers(number * 3, 3, 24), 10 + number, {"format": "pt"})))
        files[file] = made[-1][1]
        if number != 1:
            all_values |= made[-1][2]
    names = {name: file for file, _, values, _, _ in made for name in values}
    total = sum(len(content) - base for _, content, _, _, base in made)
    index = {"metadata": {"total_size": total}, "weight_map": names}
    files["model.safetensors.index.json"] = json.dumps(index, indent=1).encode()
    file, content, values, landmarks, base = made[1]
    del files[file]
    return Sample(
        "safetensors-sharded",
        file,
        content,
        "tensors",
        values,
        "offset",
        landmarks,
        header=base,
        siblings=files,
        sibling_values=all_values,
        entry="model.safetensors.index.json",
    )


# -- JSON, text, noise -----------------------------------------------------------------------------------------------


@sample
def make_json() -> Sample:
    rng = random.Random(3)
    out = bytearray(b"{\n")
    values = {}
    for number in range(40):
        thing: object = [rng.randrange(10**6) for _ in range(rng.randrange(80))]
        if number % 3 == 1:
            thing = "wörd ☃ " * rng.randrange(60)
        elif number % 3 == 2:
            thing = {"a": rng.random(), "b": [None, True, {"c": "d" * rng.randrange(200)}]}
        key = f"key {number}"
        start = len(out)
        out += f" {json.dumps(key)}: ".encode()
        at = len(out)
        out += json.dumps(thing, ensure_ascii=bool(number % 2)).encode()
        end = len(out)
        # A comma or the last bracket tells that it ends there: before anything else, a quote may be of damage's making.
        ends = (end - 1, end + (1 if number < 39 else 2))
        values[key] = Value(json.dumps(thing, sort_keys=True).encode(), (at, end), ((0, at),), ends)
        out += b",\n" if number < 39 else b"\n"
        assert start < at
    out += b"}\n"
    landmarks = tuple(place for value in values.values() for place in value.place)
    return Sample("json", "config.json", bytes(out), "keys", values, "stream", landmarks)


@sample
def make_json_list() -> Sample:
    """Elements that differ in nothing but what they say: only their number tells them apart."""
    rng = random.Random(6)
    out, values = bytearray(b"["), {}
    for number in range(400):
        thing = {"n": number, "s": f"text {number}", "v": [rng.random(), None, {"k": [number, True]}]}
        start = len(out)
        out += json.dumps(thing).encode()
        end = len(out)
        out += b", "
        # The comma tells where an element ends: without it, it may go on.
        needs = ((0, start), (end, end + 2))
        values[str(number)] = Value(json.dumps(thing, sort_keys=True).encode(), (start, end), needs)
    out[-2:] = b"]"
    landmarks = tuple(place for value in values.values() for place in value.place)[:40]
    return Sample("json-list", "rows.json", bytes(out), "keys", values, "stream", landmarks)


@sample
def make_json_lines() -> Sample:
    """Rows of their own, which a line break ends."""
    rng = random.Random(8)
    out, values = bytearray(), {}
    for number in range(300):
        thing = {"n": number, "s": f"text {number}", "v": [rng.random(), None, {"k": [number, True]}]}
        start = len(out)
        out += json.dumps(thing).encode()
        end = len(out)
        out += b"\n"
        # A row is what stands between two line breaks: what came in before its first byte or behind its last is of it.
        needs = ((0, start + 1), (end - 1, end + 1))
        values[str(number)] = Value(json.dumps(thing, sort_keys=True).encode(), (start, end), needs)
    landmarks = tuple(place for value in values.values() for place in value.place)[:40]
    return Sample("json-lines", "rows.jsonl", bytes(out), "keys", values, "stream", landmarks)


def blob(name: str, file: str, content: bytes) -> Sample:
    values = {"": Value(content, (0, len(content)))}
    return Sample(name, file, content, "blob", values, "offset", (len(content) // 2,))


@sample
def make_text() -> Sample:
    return blob("text", "notes.txt", text_bytes(4, 30_000))


@sample
def make_noise() -> Sample:
    return blob("noise", "noise.bin", random.Random(5).randbytes(70_000))
