"""What an archive says of one member, and which one of equal names a name is."""

from __future__ import annotations

from array import array

from pparse.findings import Finding, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.reader import Range

# Sizes of a table of names, powers of two: the first, and the one from which it grows by 2 instead of 4.
_LEAST_NAMES: Final = 1024
_MANY_NAMES: Final = 1 << 18


class ArchiveMember:
    """What an archive says about a member. Offsets are those of the extraction's data."""

    __slots__ = (
        "at",
        "checksum",
        "compressed_size",
        "end",
        "extra",
        "finding",
        "kind",
        "link",
        "method",
        "mode",
        "mtime",
        "name",
        "pieces",
        "raw_name",
        "shifted",
        "size",
        "start",
        "status",
    )

    def __init__(
        self,
        name: str,
        raw_name: bytes,
        kind: str,
        at: int,
        start: int,
        end: int,
        size: int | None,
        *,
        compressed_size: int | None = None,
        mtime: float | None = None,
        mode: int | None = None,
        link: str | None = None,
        method: str = "stored",
        checksum: tuple[str, int] | None = None,
        status: Status = Status.COMPLETE,
        finding: Finding | None = None,
        pieces: tuple[Range, ...] | None = None,
        extra: Any = None,
    ) -> None:
        self.name = name
        """Name, with ``/`` between folders. Not safe to write to."""
        self.raw_name = raw_name
        """Name as stored."""
        self.kind = kind
        """Kind: file, folder, symlink, hardlink, device, fifo, gap or other."""
        self.at = at
        """Offset of the header."""
        self.start = start
        """Offset of the first stored byte."""
        self.end = end
        """Offset after the last stored byte."""
        self.size = size
        """Size of the content in bytes; None if unknown."""
        self.compressed_size = end - start if compressed_size is None else compressed_size
        """Number of stored bytes."""
        self.mtime = mtime
        """Modification time in seconds since 1970, or None."""
        self.mode = mode
        """Permission bits, or None."""
        self.link = link
        """Target of a link."""
        self.method = method
        """Compression method."""
        self.checksum = checksum
        """``("crc32", value)`` of the content, or None."""
        self.status = status
        self.finding = finding
        self.pieces = pieces
        """The parts of the content, if that is not simply ``[start, end)``."""
        self.extra = extra
        """Data of the parser."""
        self.shifted = False
        """Whether bytes of it are missing or came in at an unknown place: any of them may stand at a wrong one."""

    def __repr__(self) -> str:
        return f"<ArchiveMember {self.name!r}, {self.kind}, {self.size} bytes at {self.at}: {self.status}>"


class NameCounter:
    """Counts equal names, in 16 to 32 bytes per name (64 while there are few).

    A set of hashes with open addressing; Python's own set would hold an object per hash.
    """

    __slots__ = ("_again", "_room", "_table")

    def __init__(self) -> None:
        self._table = array("q", bytes(8 * _LEAST_NAMES))  # 0 is a free slot; half of them stay free
        self._room = _LEAST_NAMES // 2
        self._again: dict[str, int] = {}

    def add(self, name: str) -> int:
        """Return 1 for the first ``name``, 2 for the second … (compared by hash)."""
        table = self._table
        key = hash(name) or 1
        mask = len(table) - 1
        place = key & mask
        while found := table[place]:
            if found == key:
                self._again[name] = self._again.get(name, 1) + 1
                return self._again[name]
            place = (place + 1) & mask
        table[place] = key
        self._room -= 1
        if not self._room:
            self._grow()
        return 1

    def _grow(self) -> None:
        size = len(self._table) * (4 if len(self._table) < _MANY_NAMES else 2)
        table, mask = array("q", bytes(8)) * size, size - 1
        for key in self._table:
            if key:
                place = key & mask
                while table[place]:
                    place = (place + 1) & mask
                table[place] = key
        self._room = (size - len(self._table)) // 2
        self._table = table
