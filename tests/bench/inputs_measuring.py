"""Models with weights as trained ones are, and the same with one value changed in each tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from inputs import write_header

if TYPE_CHECKING:
    from pathlib import Path

_SIDE = 4096


def weights(path: Path, dtype: str, count: int, changed: bool = False) -> Path:
    """Write ``count`` matrices of ``F32`` or ``BF16``, 4,096 × 4,096; if ``changed``, one value of each is another."""
    size = {"F32": 4, "BF16": 2}[dtype]
    write_header(path, {f"h.{n}.w": (dtype, [_SIDE, _SIDE], _SIDE * _SIDE * size) for n in range(count)})
    rng = np.random.default_rng(1)
    values = rng.standard_normal(_SIDE * _SIDE, np.float32) * np.float32(0.02)
    with path.open("r+b") as file:
        file.seek(int.from_bytes(file.read(8), "little") + 8)
        for number in range(count):
            made = np.roll(values, number * 977)
            made[5_000_003] += changed
            file.write(made if dtype == "F32" else (made.view(np.uint32) >> 16).astype(np.uint16))
    return path
