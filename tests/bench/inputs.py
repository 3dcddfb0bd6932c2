"""What the benchmarks read: made in a temporary folder, sparse where only headers are looked at."""

from __future__ import annotations

import json
import os
import random
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def write_header(path: Path, entries: dict[str, tuple[str, list[int], int]]) -> None:
    """Write a safetensors file with these ``(dtype, shape, bytes)``; its data are a hole."""
    header, at = {}, 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def layer_names(count: int) -> list[str]:
    """Names as transformers have them."""
    parts = (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
        "input_layernorm",
        "post_attention_layernorm",
        "self_attn.rotary_emb",
    )
    return [f"model.layers.{number // 10}.{parts[number % 10]}.weight" for number in range(count)]


def sharded_set(folder: Path, shards: int, tensors: int, size: int) -> Path:
    """Write an index and ``shards`` sparse files of ``tensors`` F16 tensors, ``size`` bytes each; return the index."""
    folder.mkdir()
    names = layer_names(shards * tensors)
    weight_map = {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number * tensors : (number + 1) * tensors]
        write_header(folder / shard, {name: ("F16", [size // 2 // 100, 100], size) for name in part})
        weight_map.update(dict.fromkeys(part, shard))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": shards * tensors * size}, "weight_map": weight_map}))
    return index


def one_file(path: Path, tensors: int, size: int) -> Path:
    """Write one sparse file."""
    write_header(path, {name: ("F16", [size // 2 // 100, 100], size) for name in layer_names(tensors)})
    return path


def wide_header(path: Path, tensors: int) -> Path:
    """Write a file whose header alone is about 98 MB (800,000 tensors)."""
    write_header(
        path,
        {
            f"model.layers.{number // 256}.experts.{number % 256}.up_proj.weight": ("F16", [16, 16], 512)
            for number in range(tensors)
        },
    )
    return path


def header_as_json(path: Path, source: Path) -> Path:
    """Write the header of a safetensors file as a JSON document."""
    with source.open("rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        path.write_bytes(file.read(size).rstrip())
    return path


def records(path: Path, size: int) -> Path:
    """Write a JSON array of records of about 235 bytes."""
    rng = random.Random(1)
    with path.open("w") as file:
        file.write("[")
        done, number = 1, 0
        while done < size:
            record = {
                "id": number,
                "name": f"item-{rng.getrandbits(48):012x}",
                "score": round(rng.random() * 1000, 3),
                "tags": [f"t{rng.randrange(100)}" for _ in range(4)],
                "active": rng.random() < 0.5,
                "parent": None,
                "text": 'lorem ipsum "dolor" sit amet, ' * rng.randrange(1, 4),
                "place": {"x": rng.randrange(10_000), "y": rng.randrange(10_000)},
            }
            text = ("," if number else "") + json.dumps(record)
            file.write(text)
            done += len(text)
            number += 1
        file.write("]")
    return path


def random_tensors(path: Path, sizes: list[int]) -> Path:
    """Write a safetensors file of F32 tensors of random bytes."""
    write_header(path, {f"t.{number}": ("F32", [size // 4], size) for number, size in enumerate(sizes)})
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - sum(sizes))
        left = sum(sizes)
        while left:
            left -= file.write(os.urandom(min(left, 16 * MIB)))
    return path


def counting_tensor(path: Path, size: int) -> Path:
    """Write one U64 tensor whose elements count from 0 (with numpy, in pieces)."""
    import numpy as np

    write_header(path, {"count": ("U64", [size // 8], size)})
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - size)
        for start in range(0, size // 8, 4 * MIB):
            file.write(np.arange(start, min(size // 8, start + 4 * MIB), dtype=np.uint64).tobytes())
    return path


def weights(path: Path, size: int) -> Path:
    """Write ``size`` bytes of float32 weights, normally distributed (with numpy); from 256 MiB on they come again."""
    import numpy as np

    values = memoryview(np.random.default_rng(1).standard_normal(min(size, 256 * MIB) // 4, dtype=np.float32))
    with path.open("wb") as file:
        while size:
            size -= file.write(values.cast("B")[:size])
    return path


def lines(path: Path, count: int) -> Path:
    """Write numbers, one a line of 10 bytes."""
    path.write_bytes(b"".join(b"%09d\n" % number for number in range(count)))
    return path
