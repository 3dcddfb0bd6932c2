"""Compressed streams in memory and piece by piece: one interface for every codec that containers use.

`CODECS` describes them all (`pparse.codecs.table`). `decompress` takes one whole stream from memory; `decompressor`
makes a `Decompressor` that is fed piece by piece and never gives more at a time than was asked for. `compress` and
`compressor` write Brotli, Zstandard and raw Snappy.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.codecs.base import CHECKPOINT, Decompressor, decompress, decompressor
    from pparse.codecs.table import CODECS, Codec
    from pparse.codecs.writing import Compressor, compress, compressor

__all__ = [
    "CHECKPOINT",
    "CODECS",
    "Codec",
    "Compressor",
    "Decompressor",
    "compress",
    "compressor",
    "decompress",
    "decompressor",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CHECKPOINT": "base",
        "CODECS": "table",
        "Codec": "table",
        "Compressor": "writing",
        "Decompressor": "base",
        "compress": "writing",
        "compressor": "writing",
        "decompress": "base",
        "decompressor": "base",
    },
)
