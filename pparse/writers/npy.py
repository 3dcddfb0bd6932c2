"""numpy's .npy format, streamed (NEP 1: magic, version, header length, header, data in C order)."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from pparse.tensors.tensor import Tensor


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a C-ordered array of ``shape``; the data begins at a multiple of 64 bytes (NEP 1)."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin-1")
    version, size = ((1, 0), "<H") if len(text) < 65_000 else ((2, 0), "<I")
    head = 8 + struct.calcsize(size)
    text += b" " * (-(head + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack(size, len(text)) + text


def write_npy(tensor: Tensor, stream: BinaryIO, *, block: int = 4 << 20) -> None:
    """Write ``tensor`` as .npy, a block at a time.

    Types that numpy lacks (bfloat16, float8 …) are written as numpy does: as bytes of that width (``<V2``).
    Raises the errors of `Tensor.blocks`.
    """
    import numpy as np

    dtype = tensor.dtype.numpy if tensor.dtype is not None else np.dtype("u1")
    raw = f"<V{dtype.itemsize}" if dtype.itemsize > 1 else "|V1"
    try:
        descr = dtype.str if dtype.kind != "V" and np.dtype(dtype.str) == dtype else raw
    except TypeError:  # a type of ml_dtypes, whose code numpy does not know
        descr = raw
    stream.write(npy_header(descr, tensor.shape))
    for part in tensor.blocks(max(block, 16)):
        stream.write(part.tobytes())
