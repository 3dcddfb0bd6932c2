"""Compressed parts: what chunks of both kinds are made of.

A part of kind 0 is the bytes themselves. Any other is ``varint64 size hint | stream``: one Brotli stream, Zstd frame or
raw Snappy block, and nothing after it. Readers never compare the hint with what comes out.
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
    """More comes out than the size allows that was said, or asked for."""


def codec_of(kind: int) -> str | None:
    """Return the name of the codec of a compression byte, None for kind 0; any other is an `UnimplementedError`."""
    if kind == NONE:
        return None
    codec = _CODECS.get(kind)
    if codec is None:
        raise UnimplementedError(f"unknown compression type 0x{kind:02x}")
    return codec


def read_part(kind: int, data: bytes | memoryview, max_size: int) -> bytes:
    """Return what the part ``data`` holds, the whole of it, decompressed.

    Raises `InvalidArgumentError` if it is not exactly one valid stream or gives more than ``max_size`` bytes (never
    more than that is made), `UnimplementedError` for an unknown compression ``kind`` or variant of a codec,
    `ResourceExhaustedError` if there is no memory for it, `UnsupportedError` if a library is missing.
    """
    codec = codec_of(kind)
    if codec is None:
        if len(data) > max_size:
            raise BeyondSize("a part is larger than it may be", wanted=max_size, got=len(data))
        return bytes(data)
    from pparse.codecs import decompress
    from pparse.codecs.base import TooMuchError

    _, begin = _size_hint(data)
    try:
        return decompress(codec, memoryview(data)[begin:], max_size)
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
    """Return how many bytes the part says that it holds. Raises as `read_part`, if it does not say."""
    return len(data) if codec_of(kind) is None else _size_hint(data)[0]


def _size_hint(data: bytes | memoryview) -> tuple[int, int]:
    try:
        return read_varint(data, 0, len(data))
    except MalformedError as error:
        raise InvalidArgumentError("reading the uncompressed size of a part failed") from error


class PartCompressor:
    """Makes parts: one kind of compression at one level (None: the codec's default), for all parts of a chunk."""

    __slots__ = ("_codec", "kind", "level", "window_log")

    def __init__(self, kind: int, level: int | None = None, window_log: int | None = None) -> None:
        self.kind = kind
        self.level = level
        self.window_log = window_log
        self._codec = codec_of(kind)

    def part(self, data: bytes, *, pledged: bool = False) -> bytes:
        """Return the part that holds ``data``; ``pledged`` has Zstd write the size into its frame too."""
        if self._codec is None:
            return data
        from pparse.codecs import compress

        stream = compress(self._codec, data, level=self.level, window_log=self.window_log, pledged=pledged)
        return encode_varint(len(data)) + stream

    def __repr__(self) -> str:
        return f"PartCompressor({self._codec or 'none'}, level={self.level}, window_log={self.window_log})"
