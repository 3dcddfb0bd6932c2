"""Samples: files whose every value is known. A new format joins with one function; see docs/truth-matrix.md."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.truth.damage import Reach

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT, INT64, HALF = 1, 9, 19
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


@dataclass(frozen=True)
class Value:
    """A value: its bytes; ``place``, the bytes of the file that it is made of; ``needs``, those that lead to it."""

    content: bytes
    place: tuple[int, int]
    needs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Sample:
    """A file, and the truth about it.

    ``kind`` says how values are asked for: ``tensors``, ``records``, ``keys`` (of the root), ``blob`` (the bytes).
    ``layout``: ``offset`` (values stand where a header says), ``stream`` (what is behind damage may be misread) or
    ``chunks`` (hashed pieces, each found by itself). ``message`` is the option of that name. ``siblings`` are other
    files of its folder, ``entry`` the one that stands for the whole folder, ``sibling_values`` their values.
    """

    name: str
    file: str
    content: bytes
    kind: str
    values: dict[str, Value]
    layout: str
    landmarks: tuple[int, ...] = ()
    hashed: bool = False
    message: str = ""
    siblings: dict[str, bytes] = field(default_factory=dict)
    sibling_values: dict[str, Value] = field(default_factory=dict)
    entry: str = ""
    header: int = 0

    def spread(self, reach: Reach) -> Reach:
        """Return where values may be others if ``reach`` of the file is: damage to what leads to them spreads."""
        if reach.first is None or self.layout == "chunks":
            return reach
        size = len(self.content)
        at, end = reach.first, max(last for _, last in reach.ranges)
        inside = any(value.place[0] <= at and end <= value.place[1] for value in self.values.values())
        if self.layout == "offset":
            if at < self.header:
                return Reach(((0, size),), reach.shifted, reach.cut, True, reach.doubt, reach.frayed)
            ranges = ((at, size),) if reach.shifted else reach.ranges
            return Reach(ranges, reach.shifted, reach.cut, reach.lost, reach.doubt, reach.frayed)
        if inside and not reach.shifted and not reach.cut:
            return reach
        return Reach(((at, size),), reach.shifted, reach.cut, reach.lost, reach.doubt, reach.frayed)

    def untouched(self, name: str, reach: Reach) -> bool:
        """Whether damage that reaches ``reach`` of the file leaves this value, and what leads to it, alone."""
        value = self.values[name]
        spread = self.spread(reach)
        if spread.lost or spread.touches(*value.place):
            return False
        return not any(reach.touches(*need) for need in value.needs)


SAMPLES: dict[str, Callable[[], Sample]] = {}


def sample(make: Callable[[], Sample]) -> Callable[[], Sample]:
    """Register a sample under the name of its function."""
    SAMPLES[make.__name__.removeprefix("make_").replace("_", "-")] = cache(make)
    return make


def load(name: str) -> Sample:
    """Return the sample of that name."""
    return SAMPLES[name]()


def mixed(rng: random.Random, count: int, number: int) -> bytes:
    """Return bytes that compress well, not at all, or in parts."""
    if number % 3 == 0:
        return rng.randbytes(count)
    words = struct.pack("<8f", *(rng.choice((0.5, -0.25, 1.0, 0.125)) for _ in range(8)))
    if number % 3 == 1:
        return (words * (count // 32 + 1))[:count]
    return (rng.randbytes(count // 2) + words * (count // 64 + 2))[:count]


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
        for name, entry in header.items() if name != "__metadata__"
        for begin, end in [entry["data_offsets"]]
    }  # fmt: skip
    landmarks = (8, base // 2, base, *(value.place[1] for value in values.values()))
    return struct.pack("<Q", len(text)) + text + bytes(data), values, landmarks, base


def layers(first: int, count: int, width: int) -> dict[str, tuple[str, list[int]]]:
    """Return names, dtypes and shapes of some layers of a model."""
    found: dict[str, tuple[str, list[int]]] = {}
    for number in range(first, first + count):
        found |= {
            f"h.{number}.attn.weight": ("F32", [width, width]), f"h.{number}.attn.bias": ("F16", [width]),
            f"h.{number}.mask": ("BOOL", [width, 3]), f"h.{number}.mlp.weight": ("BF16", [width, 4 * width]),
            f"h.{number}.ids": ("I64", [width]), f"h.{number}.scale": ("F64", []),
        }  # fmt: skip
    return found


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
    return Sample("safetensors-sharded", file, content, "tensors", values, "offset", landmarks, header=base,
                  siblings=files, sibling_values=all_values, entry="model.safetensors.index.json")  # fmt: skip


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
        values[key] = Value(json.dumps(thing, sort_keys=True).encode(), (at, len(out)), ((0, at),))
        out += b",\n" if number < 39 else b"\n"
        assert start < at
    out += b"}\n"
    landmarks = tuple(place for value in values.values() for place in value.place)
    return Sample("json", "config.json", bytes(out), "keys", values, "stream", landmarks)


def text_bytes(seed: int, size: int) -> bytes:
    """Return text of words."""
    rng = random.Random(seed)
    words = [bytes(rng.choices(b"abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(300)]
    return b" ".join(rng.choices(words, k=size // 4 + 9))[: size - 1] + b"\n"


def csv_bytes(seed: int, rows: int) -> bytes:
    """Return a table of numbers."""
    rng = random.Random(seed)
    lines = [f"{number},{rng.random():.6f},{rng.choice('abc')}\n" for number in range(rows)]
    return "".join(["number,value,class\n", *lines]).encode()


def blob(name: str, file: str, content: bytes) -> Sample:
    values = {"": Value(content, (0, len(content)))}
    return Sample(name, file, content, "blob", values, "offset", (len(content) // 2,))


@sample
def make_text() -> Sample:
    return blob("text", "notes.txt", text_bytes(4, 30_000))


@sample
def make_noise() -> Sample:
    return blob("noise", "noise.bin", random.Random(5).randbytes(70_000))


# -- Riegeli ---------------------------------------------------------------------------------------------------------


def chunk_starts(content: bytes) -> list[int]:
    """Return where the chunks of a sound Riegeli file begin, and its end."""
    from pparse.riegeli import RecordReader

    with RecordReader(content) as reader:
        starts = {reader.last_pos.chunk_begin for _ in reader}
    return sorted({0, 64, *starts, len(content)})


def riegeli(name: str, options: str, count: int = 60, size: int = 1500) -> Sample:
    from pparse.riegeli import RecordReader, RecordWriter

    rng = random.Random(name)
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        for number in range(count):
            content = mixed(rng, rng.randrange(size), number)
            # A number makes each record another one, so that any order can be told.
            if "transpose" in options:  # a message, which is what transposing takes apart
                content = b"\x08" + bytes([number]) + b"\x12" + varint(len(content)) + content
            else:
                content = struct.pack("<H", number) + content
            writer.write_record(content)
    file = out.getvalue()
    starts = chunk_starts(file)
    values = {}
    with RecordReader(file) as reader:
        for content in reader:
            begin = reader.last_pos.chunk_begin
            end = starts[starts.index(begin) + 1]
            values[str(reader.last_pos)] = Value(content, (begin, end), ((0, 64),))
    marks = (24, 64, *starts, *(start + 40 for start in starts), *range(0, len(file), 65536))
    return Sample(name, "records.riegeli", file, "records", values, "chunks", marks, hashed=True)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@sample
def make_riegeli_plain() -> Sample:
    return riegeli("riegeli-plain", "uncompressed,chunk_size:16384", 90, 3000)


@sample
def make_riegeli_brotli() -> Sample:
    return riegeli("riegeli-brotli", "brotli:4,chunk_size:12000")


@sample
def make_riegeli_transposed() -> Sample:
    return riegeli("riegeli-transposed", "transpose,zstd,chunk_size:12000")


# -- protocol buffers ------------------------------------------------------------------------------------------------


def graph(seed: int, count: int, least: int = 600) -> tuple[object, dict[str, bytes]]:
    """Return a GraphDef of constants, and their bytes."""
    from pparse.protos import message_class

    rng = random.Random(seed)
    made = message_class("tensorflow.GraphDef")()
    made.versions.producer = 1994
    truth = {}
    for number in range(count):
        node = made.node.add(name=f"layer{number}/kernel", op="Const")
        node.attr["dtype"].type = FLOAT
        tensor = node.attr["value"].tensor
        tensor.dtype = FLOAT
        elements = least + rng.randrange(2000)
        tensor.tensor_shape.dim.add(size=elements)
        # No NaN: that has many representations.
        content = mixed(rng, elements * 4, number)
        tensor.tensor_content = content
        truth[node.name] = content
        made.node.add(name=f"layer{number}", op="Relu", input=[node.name])
    return made, truth


@sample
def make_graph_def() -> Sample:
    message, truth = graph(6, 12)
    content = message.SerializeToString(deterministic=True)
    values = {}
    for name, expected in truth.items():
        at = content.index(expected)
        values[name] = Value(expected, (at, at + len(expected)), ((0, at),))
    marks = tuple(place for value in values.values() for place in value.place)
    return Sample("graph-def", "graph.pb", content, "tensors", values, "stream", marks)


@sample
def make_protobuf() -> Sample:
    """A message without a schema: ten fields of text and bytes, by number."""
    rng = random.Random(7)
    out = bytearray()
    values = {}
    for number in range(1, 16):
        content = text_bytes(number, 50 + rng.randrange(900)) if number % 2 else b"\xff" + rng.randbytes(700)
        start = len(out)
        out += bytes([number << 3 | 2]) + varint(len(content))
        values[str(number)] = Value(content, (len(out), len(out) + len(content)), ((0, len(out)),))
        out += content
        assert start < len(out)
    marks = tuple(place for value in values.values() for place in value.place)
    return Sample("protobuf", "message.binpb", bytes(out), "keys", values, "stream", marks)


def chunked(name: str, compression: str, saved_model: bool = False) -> Sample:
    """Return a `.cpb` of constants, some of which share a chunk of the Riegeli file with the metadata."""
    from pparse.proto_splitter.stream_split import split_file
    from pparse.protos import message_class
    from pparse.riegeli import RecordReader

    message, truth = graph(8, 14, 300)
    kind = "tensorflow.GraphDef"
    if saved_model:
        kind = "tensorflow.SavedModel"
        saved = message_class(kind)(saved_model_schema_version=1)
        saved.meta_graphs.add().graph_def.CopyFrom(message)
        saved.meta_graphs[0].meta_info_def.tags.append("serve")
        message = saved
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole.pb")
        whole.write_bytes(message.SerializeToString(deterministic=True))
        prefix = os.path.join(folder, "graph")
        split_file(str(whole), prefix, message=kind, max_size="30KiB" if "transpose" in compression else "8KiB",
                   writer_options=compression)  # fmt: skip
        content = Path(prefix + ".cpb").read_bytes()
    starts = chunk_starts(content)
    records = []
    with RecordReader(content) as reader:
        for record in reader:
            begin = reader.last_pos.chunk_begin
            records.append((record, (begin, starts[starts.index(begin) + 1])))
    values = {}
    for tensor, expected in truth.items():
        # Other chunks hold the message around it, and the last one says where chunks belong.
        place = next(place for record, place in records if expected in record)
        named = [other for record, other in records if tensor.encode() in record]
        values[tensor] = Value(expected, place, ((0, 64), records[0][1], records[-1][1], *named))
    marks = (24, 64, *starts, *(start + 40 for start in starts), *range(0, len(content), 65536))
    return Sample(name, "graph.cpb", content, "tensors", values, "chunks", marks, hashed=True, message=kind)


@sample
def make_cpb_plain() -> Sample:
    return chunked("cpb-plain", "uncompressed", saved_model=True)


@sample
def make_cpb_zstd() -> Sample:
    return chunked("cpb-zstd", "zstd,chunk_size:20000")


@sample
def make_cpb_transposed() -> Sample:
    return chunked("cpb-transposed", "transpose,zstd")
