"""numpy's .npy format, streamed (NEP 1: magic, version, header length, header, data in C order)."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Final

    import numpy as np

    from pparse.tensors.tensor import Tensor

MAGIC: Final = b"\x93NUMPY"


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a C-ordered array of ``shape``; the data begins at a multiple of 64 bytes (NEP 1)."""
    said = f"{{'descr': {_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    try:
        text, major = said.encode("latin-1"), 1
    except UnicodeEncodeError:  # names of fields
        text, major = said.encode(), 3
    if len(text) >= 65_000:
        major = max(major, 2)
    size = "<H" if major == 1 else "<I"
    head = 8 + struct.calcsize(size)
    text += b" " * (-(head + len(text) + 1) % 64) + b"\n"
    return MAGIC + bytes((major, 0)) + struct.pack(size, len(text)) + text


def _descr(dtype: np.dtype[Any]) -> Any:
    """Return numpy's description of a type; of one that numpy lacks, that of bytes of its width."""
    import numpy as np

    if dtype.names is not None:
        return np.lib.format.dtype_to_descr(dtype)
    if dtype.isbuiltin == 2:  # of ml_dtypes
        return f"<V{dtype.itemsize}" if dtype.itemsize > 1 else "|V1"
    return dtype.str


def write_npy(tensor: Tensor, stream: BinaryIO, *, block: int = 4 << 20) -> None:
    """Write ``tensor`` as .npy, a block at a time.

    Types that numpy lacks (bfloat16, float8 …) are written as numpy does: as bytes of that width (``<V2``).
    Raises the errors of `Tensor.blocks`.
    """
    stream.write(npy_header(tensor._known_dtype().numpy, tensor.shape))
    for part in tensor.blocks(max(block, 16)):
        stream.write(part.tobytes())
