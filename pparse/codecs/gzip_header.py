"""The header of a gzip member (RFC 1952, section 2.3), read field by field."""

from __future__ import annotations

import struct
from operator import ne
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_MAGIC: Final = b"\x1f\x8b\x08"
FTEXT, FHCRC, FEXTRA, FNAME, FCOMMENT = 1, 2, 4, 8, 16

SYSTEMS: Final = (
    "FAT",
    "Amiga",
    "VMS",
    "Unix",
    "VM/CMS",
    "Atari TOS",
    "HPFS",
    "Macintosh",
    "Z-System",
    "CP/M",
    "TOPS-20",
    "NTFS",
    "QDOS",
    "Acorn RISCOS",
)

# The empty block at the end of a BGZF file (SAM specification, section 4.1.2).
BGZF_END: Final = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")

# A header longer than this is none (FEXTRA alone may have 64 KiB; names and comments have no limit of their own).
MAX_HEADER: Final = 256 << 10


class GzipHeader:
    """What the header says; ``length``: its bytes. ``block_size``: of a BGZF block, all of it, else None.

    ``sound``: whether its magic bytes are right, reserved flags zero, and its checksum (if it has one) agrees.
    """

    def __init__(self, flags: int, mtime: int, level: int, system: int) -> None:
        self.flags, self.mtime, self.level, self.system = flags, mtime, level, system
        self.extra: bytes | None = None
        self.name: bytes | None = None
        self.comment: bytes | None = None
        self.header_crc: int | None = None
        self.block_size: int | None = None
        self.length = 10
        self.sound = True


def parse_header(head: bytes, *, tolerant: bool = False) -> GzipHeader | None:
    """Return the header at the start of ``head``; None if there is none, or it goes on beyond ``head``.

    ``tolerant``: magic bytes may be wrong, one of the three, or two.
    """
    if not begins_header(head, tolerant=tolerant):
        return None
    flags, mtime, level, system = struct.unpack_from("<BIBB", head, 3)
    header = GzipHeader(flags, mtime, level, system)
    at = 10
    if flags & FEXTRA:
        if len(head) < at + 2:
            return None
        size = head[at] | head[at + 1] << 8
        at += 2
        if len(head) - at < size:
            return None
        header.extra = head[at : at + size]
        header.block_size = _bgzf_size(header.extra)
        at += size
    for flag, field in ((FNAME, "name"), (FCOMMENT, "comment")):
        if flags & flag:
            end = head.find(b"\0", at)
            if end < 0:
                return None
            setattr(header, field, head[at:end])
            at = end + 1
    if flags & FHCRC:
        if len(head) < at + 2:
            return None
        header.header_crc = head[at] | head[at + 1] << 8
        header.sound = header.header_crc == crc32(head[:at]) & 0xFFFF
        at += 2
    header.length = at
    header.sound = header.sound and head.startswith(_MAGIC)
    return header


def begins_header(head: bytes, *, tolerant: bool = False) -> bool:
    """Say whether ``head`` begins as a header does, which may be longer; ``tolerant``: see `parse_header`."""
    wrong = sum(map(ne, head, _MAGIC))
    return len(head) >= 10 and wrong <= (2 if tolerant else 0) and not head[3] & 0xE0


def _bgzf_size(extra: bytes) -> int | None:
    """Return the size of a BGZF block from its extra field "BC" (SAM specification, section 4.1)."""
    at = 0
    while len(extra) - at >= 4:
        size = extra[at + 2] | extra[at + 3] << 8
        if extra[at : at + 2] == b"BC" and size == 2 and len(extra) - at >= 6:
            return (extra[at + 4] | extra[at + 5] << 8) + 1
        at += 4 + size
    return None
