"""Every codec, described once: the one place to add one.

A codec is a file in this folder with its decoder, and an entry in `CODECS`. From the entry follow how its streams are
recognised, which parser reads them, how the content is named, what is tried behind damage, and what `pparse formats`
says. Nothing heavy is imported for it: decoders and parsers are named here, and imported on first use.

Sources: RFC 1950, 1951, 1952 (zlib, deflate, gzip), RFC 7932 (Brotli), RFC 8878 (Zstandard), the format descriptions of
bzip2, Snappy, the LZ4 frame, xz and lzma.
"""

from __future__ import annotations

from operator import ne

from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final


class Codec:
    """What is to be known of a codec before its decoder is imported."""

    description = ""
    """One line for `pparse formats`; by default the title."""
    magics: tuple[bytes, ...] = ()
    """How a sound stream begins, the usual way first; none: nothing marks it."""
    heads: tuple[bytes, ...] = ()
    """The magic bytes, and those that always follow them: enough to tell a stream by if one of them is wrong."""
    marks: tuple[tuple[int, bytes], ...] = ()
    """``(offset, bytes)``, one of which makes it worth asking the parser; damaged beginnings are among them. By default
    the magic bytes."""
    told_by = ""
    """``magic``: first bytes and a trial tell it; ``name``: only the extension does; ``parser``: its own parser
    knows; empty: no file is made of it alone."""
    extensions: tuple[str, ...] = ()
    """How names of such files end."""
    tar_extensions: tuple[str, ...] = ()
    """Those of the extensions that stand for a tar in such a stream."""
    media_type = "application/octet-stream"
    """The MIME type."""
    references: tuple[str, ...] = ()
    """The specifications."""
    limitations: tuple[str, ...] = ()
    """What is not read, for `pparse formats`."""
    resync: str | None = None
    """The module of `pparse.compressed.resync` that reads on behind damage; None: nothing can."""
    checked = False
    """Whether a checksum always covers what the stream holds."""
    checks_blocks = False
    """Whether each of its blocks has a checksum: damage in one is never noticed later than at its end."""
    optional_check: tuple[int, bytes] | None = None
    """Where a stream says which checksum it has, and those that are compared; None: there is no choice."""
    sure_members = False
    """Whether a member that decoded to its end did so rightly, whatever is wrong with those behind it."""
    ends_with_size = False
    """Whether a stream ends with the size of what it holds: four bytes, the lowest first."""
    joins = False
    """Whether streams, one after the other, are one."""
    copies = False
    """Whether the state of the decoder can be copied."""
    zero_padding = False
    """Whether zeros may follow a stream."""

    def __init__(self, name: str, title: str, decoder: str, **said: Any) -> None:
        self.name = name
        """How the code and the command line name it."""
        self.title = title
        """How messages name it."""
        self.decoder = decoder
        """``module:family``: a module of `pparse.codecs` with ``whole_FAMILY`` and a decompressor ``FamilyStream``."""
        self.__dict__.update(said)
        self.description = self.description or title
        self.heads = self.heads or self.magics
        self.marks = self.marks or tuple((0, magic) for magic in self.magics)
        self._implementations: dict[str, Callable[..., Any]] = {}  # looked up once: archives have many small streams

    @property
    def parser(self) -> str:
        """``module:class`` of the parser of such files."""
        return f"pparse.parsers.streams:{self.name.capitalize()}Parser"

    @property
    def suffixes(self) -> dict[str, str]:
        """By extension, what stands in its place in the name of the content: nothing, or ``.tar``."""
        return {extension: ".tar" if extension in self.tar_extensions else "" for extension in self.extensions}

    def begins(self, head: bytes) -> bool:
        """Say whether a stream may begin with ``head``, which may be shorter than the magic bytes."""
        return any(head.startswith(magic) or magic.startswith(head) for magic in self.magics) or not self.magics

    def resembles(self, head: bytes) -> bool:
        """Say whether ``head`` is the beginning of a stream but for one wrong byte, or zeros never written over."""
        begun = head.rstrip(b"\0")
        if begun and any(len(head) > 2 * len(known) and known.startswith(begun) for known in self.heads):
            return True
        return any(len(head) >= len(known) > 2 and sum(map(ne, head, known)) == 1 for known in self.heads)

    def implementation(self, kind: str) -> Callable[..., Any]:
        """Return the function that decodes a whole stream (``whole``) or is its decompressor (``stream``)."""
        found = self._implementations.get(kind)
        if found is None:
            import importlib

            module, _, family = self.decoder.partition(":")
            name = f"whole_{family}" if kind == "whole" else f"{family.capitalize()}Stream"
            found = self._implementations[kind] = getattr(importlib.import_module(f"pparse.codecs.{module}"), name)
        return found


# Frames that a reader skips: the sixteen magic numbers that Zstandard and LZ4 share.
_SKIPPABLE: Final = tuple(bytes([0x50 + number]) + b"\x2a\x4d\x18" for number in range(16))

_CODECS: Final = (
    Codec(
        "gzip",
        "gzip",
        "standard:zlib",
        description="gzip (members, BGZF too)",
        magics=(b"\x1f\x8b",),
        heads=(b"\x1f\x8b\x08",),
        marks=((0, b"\x1f\x8b"), (1, b"\x8b\x08"), (0, b"\x1f")),
        told_by="parser",
        extensions=(".gz", ".tgz", ".bgz"),
        tar_extensions=(".tgz",),
        media_type="application/gzip",
        references=("RFC 1952", "RFC 1951", "SAM/BAM specification 4.1 (BGZF)"),
        limitations=("at most 262,144 members are listed one by one; all of them are read",),
        resync="deflate",
        checked=True,
        ends_with_size=True,
        joins=True,
        copies=True,
        zero_padding=True,
    ),
    Codec(
        "bz2",
        "bzip2",
        "standard:bz2",
        magics=(b"BZh",),
        heads=tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)),
        told_by="magic",
        extensions=(".bz2", ".tbz2", ".tbz"),
        tar_extensions=(".tbz2", ".tbz"),
        media_type="application/x-bzip2",
        references=("bzip2 1.0.8",),
        resync="bz2",
        checked=True,
        checks_blocks=True,
        joins=True,
    ),
    Codec(
        "xz",
        "xz",
        "standard:lzma",
        description="xz (streams, blocks)",
        magics=(b"\xfd7zXZ\0",),
        marks=((0, b"\xfd7zXZ"),),
        told_by="magic",
        extensions=(".xz", ".txz"),
        tar_extensions=(".txz",),
        media_type="application/x-xz",
        references=("The .xz file format 1.2.0",),
        resync="xz",
        checked=True,
        checks_blocks=True,
        optional_check=(7, b"\x01\x04\x0a"),  # xz file format 2.1.1.2: CRC-32, CRC-64, SHA-256
        joins=True,
        zero_padding=True,
    ),
    Codec(
        "lzma",
        "lzma (alone)",
        "standard:lzma",
        description="lzma, the format before xz",
        magics=(b"\x5d\0\0",),
        told_by="parser",
        extensions=(".lzma", ".tlz"),
        tar_extensions=(".tlz",),
        media_type="application/x-lzma",
        references=("LZMA SDK: lzma-specification.txt",),
        limitations=("nothing behind damage can be read: the format has no blocks",),
    ),
    Codec(
        "zstd",
        "Zstandard",
        "zstd:zstd",
        description="Zstandard (frames)",
        magics=(b"\x28\xb5\x2f\xfd", *_SKIPPABLE),
        told_by="magic",
        extensions=(".zst", ".tzst", ".zstd"),
        tar_extensions=(".tzst",),
        media_type="application/zstd",
        references=("RFC 8878",),
        resync="zstd",
        sure_members=True,
        joins=True,
    ),
    Codec(
        "lz4",
        "LZ4 frame",
        "lz4:lz4",
        description="LZ4 frames (legacy ones too)",
        magics=(b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18", *_SKIPPABLE),
        marks=((0, b"\x04\x22\x4d\x18"), (0, b"\x02\x21\x4c\x18")),
        told_by="magic",
        extensions=(".lz4", ".tlz4"),
        tar_extensions=(".tlz4",),
        media_type="application/x-lz4",
        references=("LZ4 Frame Format Description 1.6.4",),
        resync="lz4",
        joins=True,
    ),
    Codec(
        "zlib",
        "zlib",
        "standard:zlib",
        description="zlib stream",
        magics=(b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
        told_by="parser",
        extensions=(".zz", ".zlib"),
        media_type="application/zlib",
        references=("RFC 1950", "RFC 1951"),
        resync="deflate",
        checked=True,
        copies=True,
    ),
    Codec(
        "deflate",
        "raw deflate",
        "standard:zlib",
        description="raw deflate stream",
        told_by="name",
        extensions=(".deflate",),
        references=("RFC 1951",),
        resync="deflate",
        copies=True,
    ),
    Codec(
        "brotli",
        "Brotli",
        "brotli:brotli",
        told_by="name",
        extensions=(".br",),
        media_type="application/x-brotli",
        references=("RFC 7932",),
        limitations=("nothing behind damage can be read: blocks depend on all that precedes them",),
    ),
    Codec("snappy", "raw Snappy", "snappy:snappy"),
)

CODECS: Final[dict[str, Codec]] = {codec.name: codec for codec in _CODECS}
"""The codecs by name; those of which files are made in the order in which they are asked."""


def codec_named(name: str) -> Codec:
    """Return the codec ``name``. Raises `UnsupportedError` naming those there are."""
    try:
        return CODECS[name]
    except KeyError:
        raise UnsupportedError(f"no such codec: {name!r} (there are: {', '.join(CODECS)})") from None
