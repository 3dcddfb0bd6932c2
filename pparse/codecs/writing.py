"""What is written compressed: Brotli, Zstandard, raw Snappy."""

from __future__ import annotations

from pparse.codecs.base import ZSTD, package
from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pparse.data.base import Buffer


class Compressor:
    """Compresses one stream piece by piece: `compress` any number of times, then `flush` once."""

    def __init__(self, compress: Callable[[Buffer], bytes], flush: Callable[[], bytes], errors: Any) -> None:
        self._compress, self._flush, self._errors = compress, flush, errors

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
        zstd, stream = _zstd_compressor(level, window_log, pledged=size is not None)
        stream.set_pledged_input_size(size)
        return Compressor(stream.compress, stream.flush, zstd.ZstdError)
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
        zstd, stream = _zstd_compressor(level, window_log, pledged=pledged)
        return bytes(stream.compress(data, zstd.ZstdCompressor.FLUSH_FRAME))
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


def _zstd_compressor(level: int | None, window_log: int | None, pledged: bool) -> tuple[Any, Any]:
    """Return the library, and a compressor of it whose frames have no checksum, and their size if it is known."""
    _check("level of zstd", level, -131072, 22)
    _check("window_log of zstd", window_log, 10, 31)
    zstd = package(ZSTD)
    option = zstd.CompressionParameter
    options = {option.compression_level: level or 3, option.content_size_flag: int(pledged)}
    if window_log is not None:
        options[option.window_log] = window_log
    return zstd, zstd.ZstdCompressor(options=options)
