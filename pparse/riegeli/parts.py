"""Compressed parts, which chunks are made of.

A part of kind 0 is the bytes themselves. Any other part is ``varint64 size hint | stream``: exactly one Brotli stream,
Zstandard frame or raw Snappy block. Readers do not compare the hint with the decompressed size.
"""

from __future__ import annotations

from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.kernels.varint import encode_varint, read_varint
from pparse.riegeli.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

NONE: Final = 0
BROTLI: Final = 0x62
ZSTD: Final = 0x7A
SNAPPY: Final = 0x73

_CODECS: Final = {BROTLI: "brotli", ZSTD: "zstd", SNAPPY: "snappy"}


class BeyondSize(InvalidArgumentError):
    """A part decompresses to more bytes than declared or allowed."""


def codec_of(kind: int) -> str | None:
    """Return the codec of a compression byte, None for kind 0. Raise `UnimplementedError` for an unknown one."""
    if kind == NONE:
        return None
    codec = _CODECS.get(kind)
    if codec is None:
        raise UnimplementedError(f"unknown compression type 0x{kind:02x}")
    return codec


def read_part(kind: int, data: bytes | memoryview, max_size: int) -> bytes:
    """Return what `view_part` does, as bytes."""
    return bytes(view_part(kind, data, max_size))


def view_part(kind: int, data: bytes | memoryview, max_size: int) -> bytes | memoryview:
    """Return the decompressed bytes of the whole part ``data``, in memory of their own or as a view of it.

    Raise `InvalidArgumentError` if it is not exactly one valid stream, or holds more than ``max_size`` bytes (never
    more than that is produced); `UnimplementedError` for an unknown compression ``kind`` or variant of a codec;
    `ResourceExhaustedError` if memory runs out; `UnsupportedError` if a library is missing.
    """
    codec = codec_of(kind)
    if codec is None:
        if len(data) > max_size:
            raise BeyondSize("a part is larger than allowed", wanted=max_size, got=len(data))
        return data
    from pparse.codecs.base import TooMuchError, decompressed

    _, begin = read_size(data)
    try:
        return decompressed(codec, memoryview(data)[begin:], max_size)
    except UnsupportedError as error:
        if error.package is not None:
            raise
        raise UnimplementedError(f"decompressing a part failed: {error}") from error
    except LimitError as error:
        raise ResourceExhaustedError(f"decompressing a part failed: {error}", wanted=max_size) from error
    except TooMuchError as error:
        raise BeyondSize(f"decompressing a part failed: {error}") from error
    except (MalformedError, EndOfDataError) as error:
        raise InvalidArgumentError(f"decompressing a part failed: {error}") from error


def size_hint(kind: int, data: bytes | memoryview) -> int:
    """Return the decompressed size that the part declares. Raise as `read_part` if it declares none."""
    return len(data) if codec_of(kind) is None else read_size(data)[0]


def read_size(data: bytes | memoryview, at: int = 0, what: str = "the uncompressed size of a part") -> tuple[int, int]:
    """Return the varint at ``at``, and where it ends. Raise `InvalidArgumentError`, about ``what``, if it is none."""
    try:
        return read_varint(data, at, len(data), what=what)
    except MalformedError as error:
        raise InvalidArgumentError(error.reason) from error


class PartCompressor:
    """Compresses all parts of a chunk with one codec at one level (None: the default of the codec)."""

    __slots__ = ("_codec", "kind", "level", "window_log")

    def __init__(self, kind: int, level: int | None = None, window_log: int | None = None) -> None:
        self.kind = kind
        """Compression byte: `NONE`, or that of a codec."""
        self.level = level
        """Compression level; None for the default of the codec."""
        self.window_log = window_log
        """Binary logarithm of the compression window; None for the default of the codec."""
        self._codec = codec_of(kind)

    def part(self, data: bytes, *, pledged: bool = False) -> bytes:
        """Compress ``data`` into a part. With ``pledged``, a Zstandard frame also stores the decompressed size."""
        if self._codec is None:
            return data
        from pparse.codecs import compress

        stream = compress(self._codec, data, level=self.level, window_log=self.window_log, pledged=pledged)
        return encode_varint(len(data)) + stream
