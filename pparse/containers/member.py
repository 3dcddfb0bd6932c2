"""What an archive says of one member, which one of equal names a name is, and folders in archives."""

from __future__ import annotations

import errno
from array import array

from pparse.data.spliced import SplicedData, derived
from pparse.document.folder import FILE, Folder, FolderItem, confine
from pparse.errors import EndOfDataError, SourceError
from pparse.findings import Finding, HasStatus, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any, Final

    from pparse.containers.archive import ArchiveParser
    from pparse.data.base import Range
    from pparse.document.extraction import Extraction

# Sizes of a table of names, powers of two: the first, and the one from which it grows by 2 instead of 4.
_LEAST_NAMES: Final = 1024
_MANY_NAMES: Final = 1 << 18


class ArchiveMember(HasStatus):
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
        self.status = Status.COMPLETE
        self.finding: Finding | None = None
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


class MemberFolder(Folder):
    """The members of an archive below ``prefix``, which is empty or ends in ``/``."""

    fetches_at_once = False  # the archive is the document's

    def __init__(self, parser: ArchiveParser, prefix: str) -> None:
        self.path = f"{parser.extraction.path}::{prefix.rstrip('/')}" if prefix else parser.extraction.path
        self._parser, self._prefix = parser, prefix

    def _below(self, prefix: str, *, deep: bool = False) -> Iterator[tuple[str, ArchiveMember]]:
        """Yield the files right below ``prefix``, or anywhere below it, with their names there."""
        limits = self._parser.extraction.session.limits
        count = 0
        for member in self._parser.files():
            name = member.name.removeprefix("./")
            rest = name.removeprefix(prefix)
            if name.startswith(prefix) and rest and (deep or "/" not in rest) and member.kind == "file":
                count += 1
                limits.check("entries", count, "the files of a folder in an archive")
                yield rest, member

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the archive, and where in it the folder is."""
        reader = self._parser.extraction.reader
        return derived("folder in an archive", [(reader.data, reader.start, reader.end)], self._prefix)

    def list(self) -> Sequence[str]:
        """Return the names of the files in it."""
        return sorted({name for name, _ in self._below(self._prefix)})

    def tree(self, followed: Collection[str] = (), skipped: str = "") -> Iterator[FolderItem]:
        """Yield the files in it and in the folders below it."""
        found = {name: member.size for name, member in self._below(self._prefix, deep=True)}
        for name, size in sorted(found.items()):
            yield FolderItem(name, FILE, size)

    def _inside(self, name: str) -> str:
        """Return the whole name of what is called ``name`` in it."""
        return self._prefix + "/".join(confine(name))

    def below(self, name: str) -> MemberFolder:
        """Return the folder ``name`` below it."""
        return MemberFolder(self._parser, self._inside(name) + "/")

    def open(self, name: str) -> SplicedData:
        """Return the content of the member ``name``."""
        return SplicedData([self.enter(name, None).reader], name)

    def enter(self, name: str, beside: object) -> Extraction:
        """Enter the member ``name``. Raises `EndOfDataError` if it may be in the part that the archive lacks."""
        full = self._inside(name)
        if self._parser.member_node(full) is None:
            if self._parser.is_cut:
                raise EndOfDataError("it is not in the archive, which is truncated", path=full)
            reason = "the archive holds no such file beside it"
            raise SourceError(reason, errno=errno.ENOENT, source=f"{self._parser.extraction.path}::{full}")
        return self._parser.enter(full)

    def sizes(self, name: str) -> Sequence[int]:
        """Return the sizes of the members in the folder ``name``."""
        return [member.size or 0 for _, member in self._below(self._inside(name) + "/")]


def folder_in(parser: ArchiveParser, name: str) -> MemberFolder | None:
    """Return the folder ``name`` of an archive, ``.`` for all of it; None if no file lies in it, or below."""
    prefix = "" if name.rstrip("/") == "." else name.removeprefix("./").rstrip("/") + "/"
    folder = MemberFolder(parser, prefix)
    return folder if any(True for _ in folder.tree()) else None
