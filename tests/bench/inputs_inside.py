"""Files of many small things: the same data in each format that packages write."""

from __future__ import annotations

import json
import pickle
import random

import msgpack  # here, so that a run without it ends as it begins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def many(path: Path, count: int) -> Path:
    """Write ``count`` float32 matrices of 16 × 8, as the ending of ``path`` says."""
    import inputs_gguf
    import inputs_numpy
    import inputs_onnx
    import inputs_pytorch
    import numpy as np
    from safetensors.numpy import save_file

    ending = path.suffix
    if ending == ".safetensors":
        rng = np.random.default_rng(1)
        save_file(
            {f"layers.{number}.weight": rng.standard_normal((16, 8)).astype("f4") for number in range(count)}, path
        )
        return path
    if ending == ".npz":
        return inputs_numpy.arrays(path, count, 11)
    if ending == ".pt":
        return inputs_pytorch.checkpoint(path, count, count * 1024)
    if ending == ".onnx":
        return inputs_onnx.model(path, count, count * 512)
    return inputs_gguf.model(path, count, count * 512, 0)


def rows(path: Path, count: int) -> Path:
    """Write ``count`` small dicts as JSON, MessagePack or a pickle."""
    rng = random.Random(1)
    value = [
        {
            "id": number,
            "name": f"row {number}",
            "score": rng.random(),
            "tags": ["a", "b"],
            "more": {"x": None, "y": True},
        }
        for number in range(count)
    ]
    pack = {".json": lambda value: json.dumps(value).encode(), ".msgpack": msgpack.packb, ".pkl": pickle.dumps}
    path.write_bytes(pack[path.suffix](value))
    return path
