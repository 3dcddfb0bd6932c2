"""Decode a compressed stream: one whole stream from memory, or piece by piece."""

from __future__ import annotations

import sys

from pparse.codecs.table import codec_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pparse.budget import MemoryBudget
    from pparse.codecs.base import Decompressor, Reread
    from pparse.data.base import Buffer
    from pparse.data.scratch import Scratch


def decompress(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what the one stream in ``data`` holds.

    Raises `MalformedError` if the stream is bad, ends early, yields more than ``max_size`` bytes, or if bytes follow
    it; `UnsupportedError` for a codec, or a variant of one, that cannot be read here. Not much more than ``max_size``
    bytes are ever allocated, whatever window the stream declares. zstd and lz4: exactly one frame, not a skippable one.
    """
    if max_size < 0:
        raise ValueError(f"negative size: {max_size}")
    whole: Callable[[str, Buffer, int], bytes] = codec_named(codec).implementation("whole")
    return whole(codec, data, min(max_size, sys.maxsize >> 1))


def decompressor(
    codec: str,
    *,
    budget: MemoryBudget | None = None,
    size: int | None = None,
    reread: Reread | None = None,
    scratch: Scratch | None = None,
) -> Decompressor:
    """Return a streaming `Decompressor` for one stream (member, frame) of ``codec``.

    ``budget`` is charged for the decoder's window, as soon as the header of the stream says how wide it is.
    ``size``, where it is known, is the most that the stream may hold: more is damage, and a window wider than that is
    not made. ``reread(offset, length)`` returns bytes of the compressed stream once more: with it, what precedes
    damage is delivered to the last byte however far in it lies; without it, that is so with the zlib family, zstd,
    lz4 and snappy, and within the first 256 KiB of the others. ``scratch`` serves large-window Brotli, which can be
    decoded only whole, where that does not fit the budget. Raises `UnsupportedError` for an unknown codec, or one
    whose library is missing.
    """
    known = codec_named(codec)
    make: Callable[..., Decompressor] = known.implementation("stream")
    if known.spools:
        return make(codec, budget, size, reread, scratch=scratch)
    return make(codec, budget, size, reread)
