"""What the parser keeps of a member beside what every archive says of one: `ZipNote`; and which methods can be read."""

from __future__ import annotations

from pparse.parsers.zip.records import CODEC_OF_METHOD, STORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Methods that can be read.
READABLE: Final = frozenset((STORED, *CODEC_OF_METHOD))


class ZipNote:
    """The data that the parser keeps of a member."""

    __slots__ = ("broken", "declared", "flags", "listed", "listed_crc", "method", "rival", "sure")

    def __init__(
        self,
        flags: int,
        method: int,
        declared: str,
        *,
        listed: bool,
        sure: bool = True,
        listed_crc: int | None = None,
        rival: int | None = None,
        broken: bool = False,
    ) -> None:
        self.flags = flags
        """Flags of the member."""
        self.method = method
        """Number of the compression method."""
        self.declared = declared
        """Kind of the member by its name and mode."""
        self.listed = listed
        """Whether the member comes from the directory, so that its ``start`` is a local header."""
        self.sure = sure
        """Whether the size is reliable."""
        self.listed_crc = listed_crc
        """CRC-32 in the directory."""
        self.rival = rival
        """A differing CRC-32 in the local header or the descriptor."""
        self.broken = broken
        """Whether the local header is damaged."""
