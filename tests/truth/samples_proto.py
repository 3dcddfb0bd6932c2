"""Samples of records and messages: Riegeli, protocol buffers, chunked protos."""

from __future__ import annotations

import io
import math
import os
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

from tests.truth.known import Sample, Value, mixed, sample, text_bytes

FLOAT = 1


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
    return Sample(name, "records.riegeli", file, "records", values, "chunks", marks, hashed=True, read=read_riegeli)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def read_riegeli(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the records of a file that must be sound, by number."""
    from pparse.riegeli import RecordReader

    with RecordReader(path, salvage=False) as reader:
        return {str(number): record for number, record in enumerate(reader)}


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


def plain(name: str, file: str, message: object, truth: dict[str, bytes]) -> Sample:
    """Return a message of constants as it stands."""
    content = message.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    values = {}
    for tensor, expected in truth.items():
        at = content.index(expected)
        values[tensor] = Value(expected, (at, at + len(expected)), ((0, at),))
    marks = tuple(place for value in values.values() for place in value.place)
    # Heads of messages stand before the names and the contents: their tags and lengths are hit too.
    heads = tuple(content.index(tensor.encode()) - 2 for tensor in truth)
    return Sample(name, file, content, "tensors", values, "stream", marks + heads, read=read_plain)


def read_graph(path: Path, kind: str) -> dict[str, bytes]:
    """Return the constants of a GraphDef or SavedModel; raises what protobuf raises.

    TensorFlow runs a constant that has a type and no values as one of zeros, and refuses one that has no type.
    """
    from pparse.protos import message_class

    message: Any = message_class(kind)()
    message.ParseFromString(path.read_bytes())
    graphs = [meta.graph_def for meta in message.meta_graphs] if kind.endswith("SavedModel") else [message]
    return {
        node.name: content
        for graph in graphs
        for node in graph.node
        if node.op == "Const" and (content := constant_bytes(node.attr["value"].tensor))
    }


def constant_bytes(tensor: Any) -> bytes:
    """Return the elements of a constant of floats as TensorFlow has them; none of one that it refuses."""
    if not tensor.dtype:
        return b""
    zeros: bytes = bytes(4 * math.prod(dim.size for dim in tensor.tensor_shape.dim))
    return tensor.tensor_content or zeros


def read_plain(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the constants of a message of its own kind."""
    saved_model = sample.file.startswith("saved_model")
    return read_graph(path, "tensorflow.SavedModel" if saved_model else "tensorflow.GraphDef")


@sample
def make_graph_def() -> Sample:
    message, truth = graph(6, 12)
    return plain("graph-def", "graph.pb", message, truth)


@sample
def make_saved_model() -> Sample:
    from pparse.protos import message_class

    message, truth = graph(9, 8)
    saved = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    saved.meta_graphs.add().graph_def.CopyFrom(message)
    saved.meta_graphs[0].meta_info_def.tags.append("serve")
    return plain("saved-model", "saved_model.pb", saved, truth)


@sample
def make_protobuf() -> Sample:
    """A message without a schema: ten fields of text and bytes, by number."""
    rng = random.Random(7)
    out = bytearray()
    tags: list[tuple[int, int]] = []
    values = {}
    for number in range(1, 16):
        content = text_bytes(number, 50 + rng.randrange(900)) if number % 2 else b"\xff" + rng.randbytes(700)
        start = len(out)
        out += bytes([number << 3 | 2]) + varint(len(content))
        values[str(number)] = Value(content, (len(out), len(out) + len(content)), ((0, len(out)),))
        tags.append((start, len(out)))
        out += content
    # A tag that is hit may be that of any other field, and of two of a number the last one counts.
    values = {name: Value(value.content, value.place, (*value.needs, *tags)) for name, value in values.items()}
    marks = tuple(place for value in values.values() for place in value.place)
    return Sample("protobuf", "message.binpb", bytes(out), "keys", values, "stream", marks)


def numbers_behind(content: bytes, first: int) -> set[str]:
    """Return the numbers of the fields of a message that begin at ``first`` or behind it, up to what is no field."""
    found, at, depth = set(), 0, 0
    while at < len(content):
        begin = at
        tag, at = read_varint(content, at)
        number, wire = tag >> 3, tag & 7
        if not number or wire > 5 or at > len(content):
            break
        depth += (wire == 3) - (wire == 4)
        if depth < 0:  # a group ends that never began
            break
        if begin >= first and not depth - (wire == 3):
            found.add(str(number))
        if wire == 0:
            _, at = read_varint(content, at)
        elif wire == 2:
            length, at = read_varint(content, at)
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
    return found


def read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and where it ends: beyond the content if it does not."""
    number = shift = 0
    while at < len(content):
        number |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return number, at
    return 0, len(content) + 1


def read_chunked(path: Path, kind: str) -> dict[str, bytes]:
    """Return the constants of a `.cpb`, put together by the merger."""
    from pparse.proto_splitter import Merger
    from pparse.protos import message_class

    message: Any = message_class(kind)()
    Merger.read(str(path).removesuffix(".cpb"), message)
    whole = path.with_name(path.name + ".merged")
    whole.write_bytes(message.SerializeToString())
    try:
        return read_graph(whole, kind)
    finally:
        whole.unlink()


def read_saved(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the constants of a `.cpb`, or of the message that was made of it."""
    return (read_chunked if path.suffix == ".cpb" else read_graph)(path, sample.message)


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
        split_file(
            str(whole),
            prefix,
            message=kind,
            max_size="30KiB" if "transpose" in compression else "8KiB",
            writer_options=compression,
        )
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
    more = {"message": kind, "saved": ("graph.cpb", "graph.pb"), "read": read_saved}
    return Sample(name, "graph.cpb", content, "tensors", values, "chunks", marks, hashed=True, **more)  # type: ignore[arg-type]


@sample
def make_cpb_plain() -> Sample:
    return chunked("cpb-plain", "uncompressed", saved_model=True)


@sample
def make_cpb_zstd() -> Sample:
    return chunked("cpb-zstd", "zstd,chunk_size:20000")


@sample
def make_cpb_transposed() -> Sample:
    return chunked("cpb-transposed", "transpose,zstd")
