"""Zstandard as its own library writes and reads it, with its options as keywords."""

from __future__ import annotations

import importlib
from typing import Any

from pparse.codecs.base import ZSTD

library: Any = importlib.import_module(ZSTD)
"""Python's `compression.zstd`, or what stands for it in the versions before."""


def compressor(level: int = 3, *, checksum: bool = False, content_size: bool = True, **options: int) -> Any:
    """Return a compressor (`compress` and `flush`); ``options`` are named as in `CompressionParameter`."""
    options |= {"compression_level": level, "checksum_flag": checksum, "content_size_flag": content_size}
    return library.ZstdCompressor(
        options={library.CompressionParameter[name]: int(value) for name, value in options.items()}
    )


def compress(data: bytes, level: int = 3, **options: Any) -> bytes:
    """Return one frame; options as for `compressor`."""
    return compressor(level, **options).compress(data, library.ZstdCompressor.FLUSH_FRAME)


def decompressor() -> Any:
    """Return a decompressor of one frame, with any window."""
    return library.ZstdDecompressor(options={library.DecompressionParameter.window_log_max: 31})


def content_size(frame: bytes) -> int | None:
    """Return the size that a frame declares."""
    return library.get_frame_info(frame).decompressed_size
