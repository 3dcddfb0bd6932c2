"""Writes the zoo of GGUF files, and what is in them: ``python -m tests.interop.make_gguf_zoo [FOLDER]``.

Writes the sample of the documentation, too. Made with gguf 0.19.0 and numpy 2.4; FOLDER is ``tests/data/gguf`` by
default. ``expected.json`` holds, for each file and tensor, its type and shape, and the SHA-256 of its bytes as stored
and of the elements that the package dequantises (None where it does not).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

FOLDER = Path(__file__).resolve().parents[1] / "data" / "gguf"
PLAIN = {"F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}


def facts(writer: gguf.GGUFWriter) -> None:
    """Add a key-value of every type."""
    writer.add_name("zoo")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(f"zoo.{name}", 5 if name[0] == "u" else -5)
    writer.add_float32("zoo.float32", 1.5)
    writer.add_float64("zoo.float64", 0.1)
    writer.add_bool("zoo.bool", True)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "</s>", "a", "", "héllo", "▁"] * 20)
    writer.add_array("tokenizer.ggml.scores", [float(number) for number in range(120)])
    writer.add_array("zoo.small", [1, 2, 3])


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_type(path: Path) -> None:
    """Write tensors of all types: what the package quantises from numbers, else any bytes, which all blocks may be."""
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    facts(writer)
    for kind in GGMLQuantizationType:
        elements, size = GGML_QUANT_SIZES[kind]
        if kind.name in PLAIN:
            writer.add_tensor(f"blk.{kind.name}", rng.integers(-100, 100, (3, 5)).astype(PLAIN[kind.name]))
            continue
        numbers = rng.standard_normal((3, 2 * elements if elements > 1 else 5)).astype("f4")
        writer.add_tensor(f"any.{kind.name}", rng.integers(0, 256, (3, 2 * size), dtype=np.uint8), raw_dtype=kind)
        try:
            blocks = gguf.quantize(numbers, kind)
        except NotImplementedError:
            continue
        writer.add_tensor(f"blk.{kind.name}", blocks, raw_dtype=kind)
    finish(writer)


def layers(path: Path, **how: object) -> None:
    """Write 20 tensors of one size."""
    writer = gguf.GGUFWriter(path, "llama", **how)
    writer.add_name("layers")
    for number in range(20):
        rng = np.random.default_rng(number)
        writer.add_tensor(f"blk.{number}.weight", rng.standard_normal((4, 32)).astype("f4"))
    finish(writer)


def tiny(path: Path) -> None:
    """Write the sample of the documentation: two layers of a model, quantised."""
    rng = np.random.default_rng(9)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_array("tokenizer.ggml.tokens", [f"<{number}>" for number in range(100)])
    shapes = {"token_embd.weight": (100, 64), "output_norm.weight": (64,)}
    for number in range(2):
        shapes |= {f"blk.{number}.attn_norm.weight": (64,), f"blk.{number}.ffn_up.weight": (128, 64)}
    for name, shape in shapes.items():
        numbers = rng.standard_normal(shape).astype("f4")
        kind = GGMLQuantizationType.Q8_0 if name == "token_embd.weight" else GGMLQuantizationType.Q4_0
        if len(shape) > 1:
            writer.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)
    finish(writer)


def told(path: Path) -> dict[str, object]:
    """Return what the package reads in a file."""
    found = {}
    with np.errstate(all="ignore"):
        for tensor in gguf.GGUFReader(path).tensors:
            raw, kind = np.array(tensor.data), tensor.tensor_type
            try:
                values = raw if kind.name in PLAIN else gguf.dequantize(raw, kind)
            except NotImplementedError:
                values = None
            found[tensor.name] = {
                "type": kind.name,
                "shape": [int(length) for length in reversed(tensor.shape)],
                "stored": hashlib.sha256(raw.tobytes()).hexdigest(),
                "elements": None if values is None else hashlib.sha256(values.tobytes()).hexdigest(),
            }
    return found


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    every_type(folder / "types.gguf")
    layers(folder / "layers.gguf")
    (folder / "split").mkdir(exist_ok=True)
    layers(folder / "split" / "model.gguf", split_max_tensors=7)
    tiny(FOLDER.parents[2] / "docs" / "samples" / "tiny.gguf")
    expected = {name: told(folder / name) for name in ("types.gguf", "layers.gguf")}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
