"""Large GGUF files that the benchmarks read; written without the package gguf, as llama.cpp writes them."""

from __future__ import annotations

import os
import random
from struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz ▁"


def _text(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


def model(path: Path, count: int, size: int, words: int) -> Path:
    """Write ``count`` tensors of float32 in ``size`` bytes of zeros, and a vocabulary of ``words`` texts."""
    rng = random.Random(1)
    vocabulary = b"".join(_text("".join(rng.choices(LETTERS, k=rng.randint(1, 12)))) for _ in range(words))
    pairs = [
        _text("general.architecture") + pack("<I", 8) + _text("llama"),
        _text("tokenizer.ggml.tokens") + pack("<IIQ", 9, 8, words) + vocabulary,
        _text("tokenizer.ggml.scores") + pack("<IIQ", 9, 6, words) + bytes(4 * words),
    ]
    each = size // count // 128 * 128
    table = [
        _text(f"blk.{number // 10}.{number % 10}.weight") + pack("<IQQIQ", 2, 32, each // 128, 0, number * each)
        for number in range(count)
    ]
    head = b"GGUF" + pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs + table)
    head += bytes(-len(head) % 32)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + count * each)
    return path


def blocks(path: Path, kinds: dict[str, tuple[int, int, int]], elements: int) -> Path:
    """Write a tensor of random blocks for each of ``kinds``: number of the type, elements and bytes of a block."""
    table, data, at = [], [], 0
    for name, (number, per_block, size) in kinds.items():
        rows, row = elements // 8192, 8192
        content = os.urandom(rows * row // per_block * size)
        table.append(_text(name) + pack("<IQQIQ", 2, row, rows, number, at))
        data.append(content + bytes(-len(content) % 32))
        at += len(data[-1])
    head = b"GGUF" + pack("<IQQ", 3, len(table), 0) + b"".join(table)
    path.write_bytes(head + bytes(-len(head) % 32) + b"".join(data))
    return path
