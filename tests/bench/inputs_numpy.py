"""Archives of arrays."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


def arrays(path: Path, count: int, side: int, compressed: bool = False) -> Path:
    """Write ``count`` float32 matrices of ``side`` × ``side`` with numpy, one after the other."""
    rng = np.random.default_rng(1)
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        for number in range(count):
            info = zipfile.ZipInfo(f"layers.{number}.weight.npy")
            info.compress_type = method
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, rng.standard_normal((side, side)).astype("f4"))
    return path
