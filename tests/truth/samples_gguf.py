"""Samples: a GGUF file."""

from __future__ import annotations

import random
from math import prod
from typing import TYPE_CHECKING

from tests.gguf_files import Writer, read_tensors
from tests.truth.known import Sample, Value, mixed, sample

if TYPE_CHECKING:
    from pathlib import Path

# Number of the type, bytes of an element.
KINDS = {"F32": (0, 4), "F16": (1, 2), "I8": (24, 1), "I64": (27, 8), "F64": (28, 8), "BF16": (30, 2)}


def read_gguf(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the tensors of a file."""
    return read_tensors(path.read_bytes(), dict(KINDS.values()))


@sample
def make_gguf() -> Sample:
    rng, writer = random.Random(51), Writer()
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F32", (64, 48))}
    for number in range(5):
        shapes |= {
            f"blk.{number}.attn_q.weight": ("F32", (40, 40)),
            f"blk.{number}.attn_q.bias": ("F16", (40,)),
            f"blk.{number}.ffn_up.weight": ("BF16", (40, 160)),
            f"blk.{number}.ids": ("I64", (40,)),
            f"blk.{number}.scale": ("F64", ()),
        }
    shapes["codes"] = ("I8", (100, 16))
    contents, table, data = {}, [], b""
    for number, (name, (kind, shape)) in enumerate(shapes.items()):
        contents[name] = mixed(rng, prod(shape) * KINDS[kind][1], number)
        table.append((name, shape, KINDS[kind][0], len(data)))
        data += contents[name] + bytes(-len(contents[name]) % 32)
    words = [f"token {number}" for number in range(300)]
    pairs = [("general.architecture", "llama"), ("tokenizer.ggml.tokens", words), ("llama.block_count", ("uint32", 5))]
    content = writer.file(pairs, table, data)
    base = len(content) - len(data)
    values = {
        name: Value(contents[name], (base + at, base + at + len(contents[name])), ((0, base),))
        for name, _, _, at in table
    }
    landmarks = (8, 24, base // 2, base, *(value.place[1] for value in values.values()))
    return Sample("gguf", "model.gguf", content, "tensors", values, "offset", landmarks, header=base, read=read_gguf)
