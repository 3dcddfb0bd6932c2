"""Compressed streams in memory and piece by piece: one interface for every codec that containers use.

Known are the names in `CODECS`. `decompress` takes one whole stream from memory; `decompressor` makes a `Decompressor`
that is fed piece by piece and never gives more at a time than was asked for. `compress` and `compressor` write Brotli,
Zstandard and raw Snappy.

Sources: RFC 1950, 1951, 1952 (zlib, deflate, gzip), RFC 7932 (Brotli; the large-window variant is Google's extension),
RFC 8878 (Zstandard), the format descriptions of Snappy, of the LZ4 frame and of xz.
"""

from __future__ import annotations

import sys

from pparse.codecs.base import CHECKPOINT, Decompressor
from pparse.codecs.writing import Compressor, compress, compressor
from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.codecs.base import Reread
    from pparse.data.base import Buffer
    from pparse.data.scratch import Scratch

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


class Codec:
    """A codec: its ``name``, a ``title`` for people, and what its streams look like from outside.

    ``magics``: how a stream begins (none: it cannot be told). ``checked``: whether a checksum covers what it holds
    (False also where that is optional). ``joins``: whether several streams, one after the other, are one. ``copies``:
    whether the state of its decoder can be copied. ``packages``: what has to be installed.
    """

    __slots__ = ("_module", "checked", "copies", "joins", "magics", "name", "packages", "title")

    def __init__(
        self,
        name: str,
        title: str,
        module: str,
        magics: tuple[bytes, ...] = (),
        *,
        checked: bool = False,
        joins: bool = False,
        copies: bool = False,
        packages: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.title = title
        self.magics = magics
        self.checked = checked
        self.joins = joins
        self.copies = copies
        self.packages = packages
        self._module = module

    def begins(self, head: bytes) -> bool:
        """Say whether a stream may begin with ``head``, which may be shorter than the magic bytes."""
        return any(head.startswith(magic) or magic.startswith(head) for magic in self.magics) or not self.magics

    def __repr__(self) -> str:
        return f"<Codec {self.name}>"

    def implementation(self, kind: str) -> Callable[..., Any]:
        """Return the function that decodes a whole stream (``whole``) or makes a decompressor (``stream``)."""
        import importlib

        module = importlib.import_module(f"pparse.codecs.{self._module}")
        family = {"gzip": "zlib", "deflate": "zlib", "xz": "lzma"}.get(self.name, self.name)
        found: Callable[..., Any] = getattr(module, f"whole_{family}" if kind == "whole" else f"{family}_stream")
        return found


# Frames that a reader skips: the sixteen magic numbers that Zstandard and LZ4 share.
_SKIPPABLE: Final = tuple(bytes([0x50 + number]) + b"\x2a\x4d\x18" for number in range(16))

_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

CODECS: Final[dict[str, Codec]] = {
    codec.name: codec
    for codec in (
        Codec(
            "zlib", "zlib", "standard", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), checked=True, copies=True
        ),
        Codec("gzip", "gzip", "standard", (b"\x1f\x8b",), checked=True, joins=True, copies=True),
        Codec("deflate", "raw deflate", "standard", copies=True),
        Codec("bz2", "bzip2", "standard", (b"BZh",), checked=True, joins=True),
        Codec("xz", "xz", "standard", (b"\xfd7zXZ\0",), checked=True, joins=True),
        Codec("lzma", "lzma (alone)", "standard", (b"\x5d\0\0",)),
        Codec("brotli", "Brotli", "brotli", packages=("brotli", "cramjam")),
        Codec("zstd", "Zstandard", "zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE), joins=True, packages=("zstandard",)),
        Codec("lz4", "LZ4 frame", "lz4", (b"\x04\x22\x4d\x18", *_SKIPPABLE), joins=True, packages=("cramjam",)),
        Codec("snappy", "raw Snappy", "snappy", packages=("cramjam",)),
    )
}


def _codec(name: str) -> Codec:
    try:
        return CODECS[name]
    except KeyError:
        raise UnsupportedError(f"no such codec: {name!r} (there are: {', '.join(CODECS)})") from None


_whole: dict[str, Callable[[str, Buffer, int], bytes]] = {}  # looked up once


def decompress(codec: str, data: Buffer, max_size: int) -> bytes:
    """Return what the one stream in ``data`` holds.

    Raises `MalformedError` if the stream is bad, ends early, yields more than ``max_size`` bytes, or if bytes follow
    it; `UnsupportedError` for a codec, or a variant of one, that cannot be read here. Not much more than ``max_size``
    bytes are ever allocated, whatever window the stream declares. zstd and lz4: exactly one frame, not a skippable one.
    """
    if max_size < 0:
        raise ValueError(f"negative size: {max_size}")
    whole = _whole.get(codec)
    if whole is None:
        whole = _whole[codec] = _codec(codec).implementation("whole")
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
    make = _codec(codec).implementation("stream")
    more = {"scratch": scratch} if codec == "brotli" else {}
    stream: Decompressor = make(codec, budget, size, reread, **more)
    return stream
