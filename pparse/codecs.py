"""Compressed streams in memory and piece by piece: one interface for every codec that containers use.

Known are the names in `CODECS`. `decompress` takes one whole stream from memory; `decompressor` makes a `Decompressor`
that is fed piece by piece and never gives more at a time than was asked for. `compress` and `compressor` write Brotli,
Zstandard and raw Snappy.

Sources: RFC 1950, 1951, 1952 (zlib, deflate, gzip), RFC 7932 (Brotli; the large-window variant is Google's extension),
RFC 8878 (Zstandard), the format descriptions of Snappy, of the LZ4 frame and of xz.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import threading
import zlib

from pparse.errors import EndOfDataError, LimitError, MalformedError, UnsupportedError
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data import Buffer

WBITS: Final = {"zlib": 15, "gzip": 31, "deflate": -15}


def _too_much(codec: str, max_size: int) -> MalformedError:
    return MalformedError(f"the {codec} stream holds more bytes than it may", wanted=max_size)


def _left_over(codec: str, count: int) -> MalformedError:
    return MalformedError(f"{count} bytes follow the {codec} stream")


def package(name: str) -> Any:
    """Import the library ``name`` that a codec needs. Raises `UnsupportedError` naming it if it is not there."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(f"this needs {name}, which cannot be imported ({error})", package=name) from error


# -- whole streams ---------------------------------------------------------------------------------------------------


def decompress(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what the one stream in ``data`` holds.

    Raises `MalformedError` if the stream is bad, ends early, yields more than ``max_size`` bytes, or if bytes follow
    it; `UnsupportedError` for a codec, or a variant of one, that cannot be read here. Not much more than ``max_size``
    bytes are ever allocated, whatever window the stream declares.
    """
    if max_size < 0:
        raise ValueError(f"negative size: {max_size}")
    whole = _WHOLE.get(codec)
    if whole is None:
        raise UnsupportedError(f"no such codec: {codec!r}")
    return whole(codec, data, min(max_size, sys.maxsize - 1))


def _whole_zlib(codec: str, data: Buffer, max_size: int) -> bytes:
    stream = zlib.decompressobj(WBITS[codec])
    try:
        out = stream.decompress(data, max_size + 1)
    except zlib.error as error:
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error
    return _checked(codec, out, stream.eof, len(stream.unused_data), max_size)


def _checked(codec: str, out: bytes, eof: bool, left: int, max_size: int) -> bytes:
    if len(out) > max_size:
        raise _too_much(codec, max_size)
    if not eof:
        raise MalformedError(f"the {codec} stream ends early", got=len(out))
    if left:
        raise _left_over(codec, left)
    return out


def _whole_bz2(codec: str, data: Buffer, max_size: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    try:
        out = stream.decompress(data, max_size + 1)
    except (OSError, ValueError) as error:
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error
    return _checked(codec, out, stream.eof, len(stream.unused_data), max_size)


def _whole_brotli(codec: str, data: Buffer, max_size: int) -> bytes:
    if len(data) and memoryview(data)[0] == 0x11:
        return _whole_large_brotli(codec, data, max_size)
    brotli = package("brotli")
    stream = brotli.Decompressor()
    try:
        out: bytes = stream.process(data, output_buffer_limit=max_size + 1)
        return _checked(codec, out, stream.is_finished(), 0, max_size)
    except brotli.error as error:
        raise MalformedError(f"the {codec} stream is damaged, or bytes follow it ({error})") from error


def _whole_large_brotli(codec: str, data: Buffer, max_size: int) -> bytes:
    cramjam = package("cramjam")
    import mmap

    def attempt(source: Buffer, target: mmap.mmap) -> int:
        try:
            return int(cramjam.brotli.decompress_into(source, target))
        except cramjam.DecompressionError as error:
            if "write whole buffer" in str(error):
                raise _too_much(codec, max_size) from error
            raise MalformedError(f"the {codec} stream is damaged or ends early ({error})") from error

    # Anonymous pages cost nothing until they are written to: the memory is that of the output, not of max_size.
    with mmap.mmap(-1, max(1, max_size)) as target:
        size = attempt(data, target)
        out = target[:size]
    if size > max_size:
        raise _too_much(codec, max_size)
    with mmap.mmap(-1, max(1, size)) as target:
        # The library does not say how much of its input it took; a stream that ends at the last byte needs that byte.
        try:
            attempt(memoryview(data)[:-1], target)
        except MalformedError:
            return out
    raise MalformedError(f"bytes follow the {codec} stream")


def _whole_snappy(codec: str, data: Buffer, max_size: int) -> bytes:
    cramjam = package("cramjam")
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_size:
            raise _too_much(codec, max_size)
        # An element of 3 bytes yields at most 64: a size beyond that would be allocated for nothing.
        if size > 22 * len(data):
            raise MalformedError(f"the {codec} stream declares more than it can hold", wanted=size)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error


# Contexts whose window is larger are not kept: they would hold that memory as long as the thread lives.
_KEPT_WINDOW: Final = 2 * MIB
_local = threading.local()


def _whole_zstd(codec: str, data: Buffer, max_size: int) -> bytes:
    zstandard = package("zstandard")
    view = memoryview(data)
    try:
        frame = zstandard.get_frame_parameters(view)
        start = zstandard.frame_header_size(view)
    except zstandard.ZstdError as error:
        raise MalformedError(f"not a {codec} frame ({error})") from error
    if view[0] != 0x28:
        raise MalformedError(f"a skippable {codec} frame where data was expected")
    if frame.dict_id:
        raise UnsupportedError(f"the {codec} frame needs the dictionary {frame.dict_id}")
    bound, end = _zstd_extent(view, start)
    end += 4 if frame.has_checksum else 0
    if end > len(view):
        raise MalformedError(f"the {codec} stream ends early", wanted=end, got=len(view))
    if end < len(view):
        raise _left_over(codec, len(view) - end)
    window = frame.window_size
    unknown = frame.content_size == zstandard.CONTENTSIZE_UNKNOWN
    if not unknown:
        if frame.content_size > max_size:
            raise _too_much(codec, max_size)
        if frame.content_size > bound:
            raise MalformedError(f"the {codec} frame declares more than it can hold", wanted=frame.content_size)
        window = 0  # decoded straight into the output
    elif window > _KEPT_WINDOW and window > bound:
        view, window = _zstd_narrowed(view, bound)
    size = min(bound, max_size) if unknown else frame.content_size
    try:
        if window <= _KEPT_WINDOW:
            stream = _kept_zstd(zstandard)
        else:
            stream = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        # 0 would mean that the frame has to say its size.
        out: bytes = stream.decompress(view, max_output_size=max(1, size), allow_extra_data=False)
    except zstandard.ZstdError as error:
        if bound > max_size and "did not decompress full frame" in str(error):
            raise _too_much(codec, max_size) from error
        raise MalformedError(f"the {codec} stream is damaged ({error})") from error
    except MemoryError as error:
        raise MalformedError(f"the {codec} stream needs more memory than there is", wanted=size) from error
    if len(out) > max_size:
        raise _too_much(codec, max_size)
    return out


def _kept_zstd(zstandard: Any) -> Any:
    # Not safe across threads: one each.
    try:
        return _local.zstd
    except AttributeError:
        _local.zstd = stream = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        return stream


def _zstd_extent(view: memoryview, at: int) -> tuple[int, int]:
    """Walk the blocks from ``at``; return the most bytes that they can yield and where the last one ends."""
    bound = 0
    length = len(view)
    while at + 3 <= length:
        header = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        kind = header >> 1 & 3
        size = header >> 3
        bound += size if kind < 2 else 1 << 17
        at += 4 if kind == 1 else 3 + size
        if header & 1:
            return bound, at
    raise MalformedError("the zstd stream ends early", got=length)


def _zstd_narrowed(view: memoryview, bound: int) -> tuple[memoryview, int]:
    """Return the frame with a window no larger than its output needs (no checksum covers that byte)."""
    log = max(17, (bound - 1).bit_length())
    narrowed = bytearray(view)
    narrowed[5] = (log - 10) << 3
    return memoryview(narrowed), 1 << log


_WHOLE: Final[dict[str, Callable[[str, Buffer, int], bytes]]] = {
    "zlib": _whole_zlib,
    "gzip": _whole_zlib,
    "deflate": _whole_zlib,
    "bz2": _whole_bz2,
    "brotli": _whole_brotli,
    "snappy": _whole_snappy,
    "zstd": _whole_zstd,
}


# -- writing ---------------------------------------------------------------------------------------------------------


class Compressor:
    """Compresses one stream piece by piece: `compress` any number of times, then `flush` once."""

    def __init__(self, compress: Callable[[Buffer], bytes], flush: Callable[[], bytes], errors: Any) -> None:
        self._compress = compress
        self._flush = flush
        self._errors = errors

    def compress(self, data: Buffer) -> bytes:
        """Take ``data``; return what is ready (may be empty). Raises ValueError for more data than ``size`` said."""
        try:
            return self._compress(data)
        except self._errors as error:
            raise ValueError(f"cannot compress: {error}") from error

    def flush(self) -> bytes:
        """End the stream; return the rest of it. Raises ValueError if ``size`` bytes were promised and did not come."""
        try:
            return self._flush()
        except self._errors as error:
            raise ValueError(f"cannot end the stream: {error}") from error


def compressor(
    codec: str, *, level: int | None = None, window_log: int | None = None, size: int | None = None
) -> Compressor:
    """Return a streaming `Compressor` for ``brotli`` or ``zstd``.

    ``size``, if given, is the exact number of bytes to come; a zstd frame then declares it. Levels and windows as
    for `compress`.
    """
    if codec == "brotli":
        brotli = package("brotli")
        stream = brotli.Compressor(**_brotli_options(level, window_log))
        return Compressor(stream.process, stream.finish, brotli.error)
    if codec == "zstd":
        zstandard = package("zstandard")
        options = _zstd_options(zstandard, level, window_log, size or 0, pledged=size is not None)
        stream = zstandard.ZstdCompressor(**options).compressobj(**({} if size is None else {"size": size}))
        return Compressor(stream.compress, stream.flush, zstandard.ZstdError)
    raise UnsupportedError(f"{codec!r} cannot be written piece by piece")


def compress(
    codec: str, data: Buffer, *, level: int | None = None, window_log: int | None = None, pledged: bool = False
) -> bytes:
    """Return ``data`` compressed as one stream of ``brotli``, ``zstd`` or ``snappy`` (raw).

    ``level``: brotli 0..11 (6), zstd -131072..22 (3, and 0 means 3), snappy 1..2 (no difference). ``window_log``:
    brotli 10..24 (22), zstd 10..31; wider Brotli windows (25..30) can be read but not written: `UnsupportedError`.
    ``pledged``: whether a zstd frame declares the size of its content. Raises ValueError for a level or window that
    does not exist.
    """
    if codec == "brotli":
        options = _brotli_options(level, window_log)
        return bytes(package("brotli").compress(data, **options))
    if codec == "zstd":
        zstandard = package("zstandard")
        options = _zstd_options(zstandard, level, window_log, len(memoryview(data)), pledged=pledged)
        return bytes(zstandard.ZstdCompressor(**options).compress(data))
    if codec == "snappy":
        _check("level of snappy", level, 1, 2)
        if window_log is not None:
            raise ValueError("snappy has no window to choose")
        if len(memoryview(data)) >> 32:
            raise ValueError("raw snappy holds less than 4 GiB")
        return bytes(package("cramjam").snappy.compress_raw(data))
    raise UnsupportedError(f"{codec!r} cannot be written")


def _check(what: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ValueError(f"the {what} is {least} to {most}, not {value}")


def _brotli_options(level: int | None, window_log: int | None) -> dict[str, int]:
    _check("level of brotli", level, 0, 11)
    _check("window_log of brotli", window_log, 10, 30)
    if window_log is not None and window_log > 24:
        raise UnsupportedError(f"no library here writes Brotli with a window_log of {window_log} (at most 24)")
    return {"quality": 6 if level is None else level, "lgwin": 22 if window_log is None else window_log}


def _zstd_options(zstandard: Any, level: int | None, window_log: int | None, size: int, pledged: bool) -> dict[str, Any]:
    _check("level of zstd", level, -131072, 22)
    _check("window_log of zstd", window_log, 10, 31)
    if window_log is None:
        return {"level": level or 3, "write_content_size": pledged, "write_checksum": False}
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level or 3, source_size=size, window_log=window_log, write_content_size=pledged, write_checksum=False
    )
    return {"compression_params": parameters}
