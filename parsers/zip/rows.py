"""The listing of a zip archive with a trusted directory: rows directly from its entries, without nodes."""

from __future__ import annotations

from operator import attrgetter
from struct import Struct

from pparse.containers.archive import NameCounter
from pparse.errors import MalformedError
from pparse.findings import Status
from pparse.parsers.zip.attributes import FULL, STREAMED, UTF8
from pparse.parsers.zip.directory import BLOCK, CENTRAL_SIZE, read_central
from pparse.parsers.zip.members import LARGE, READABLE
from pparse.tree.visit import Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.parsers.zip.parser import ZipParser
    from pparse.parsers.zip.trust import Directory

# How many hashes of names are kept in a set; more are kept in a compact table.
_MOST_NAMES: Final = 100_000
# flags and method in one, compressed size, size, lengths of name, extra field and comment, the upper byte of the unix
# mode, offset
_LISTED: Final = Struct("<8xI8xIIHHH7xBI").unpack_from
# Flags and methods of members that need no second look.
_PLAIN: Final = frozenset(
    flags | method << 16 for flags in (0, 2, 4, 6, STREAMED, UTF8, STREAMED | UTF8) for method in READABLE
)
# Upper bytes of modes of files and folders, and of modes without a kind.
_MODES: Final = frozenset((*range(16), *range(0x40, 0x50), *range(0x80, 0x90)))
_NAME: Final = attrgetter("name")


class ZipRow(Member):
    """A row of a listing; its ``note``, the `ArchiveMember`, is made on demand."""

    __slots__ = ("_at", "_parser")

    # Class attributes: values that are not set per row cost nothing.
    kind = "file"
    status = Status.COMPLETE
    _reason = None

    def __init__(self, name: str, start: int, size: int, at: int, parser: ZipParser) -> None:
        self.name = name
        self.start = start
        self.size = size
        self._at = at
        self._parser = parser

    @property
    def note(self) -> Any:
        """The `ArchiveMember`, read again."""
        return self._parser.listed_member(self._at)


class _ZipFolder(ZipRow):
    __slots__ = ()

    kind = "folder"


def listing(parser: ZipParser, directory: Directory) -> Iterator[Member]:
    """Yield the rows of the members in ``directory``; the second of two equal names as ``name#2``."""
    seen: set[int] = set()
    names: NameCounter | None = None  # made if a name repeats, or if there are many
    at = directory.begin
    while at < directory.end:
        rows, length = _rows(parser, directory, at)
        if names is None:
            before = len(seen)
            seen.update(map(hash, map(_NAME, rows)))
            if len(seen) < before + len(rows) or len(seen) > _MOST_NAMES:
                names = _count_names(parser, directory, at)
                seen.clear()
        if names is not None:
            for row in rows:
                number = names.add(row.name)
                if number > 1:
                    row.name += f"#{number}"
        yield from rows
        at += length
    root = parser.result.root
    if root.known_status is None:  # all were read
        parser.result.close_node(root, Status.COMPLETE, None)


def _count_names(parser: ZipParser, directory: Directory, end: int) -> NameCounter:
    """Return a counter of the names of all entries before ``end``."""
    names, at = NameCounter(), directory.begin
    while at < end:
        rows, length = _rows(parser, directory, at)
        for row in rows:
            names.add(row.name)
        at += length
    return names


def _rows(parser: ZipParser, directory: Directory, base: int) -> tuple[list[Member], int]:
    """Return the rows of a block of entries from ``base`` on, and its length. The entries were checked before."""
    parser.result.extraction.session.check_cancelled()
    block = parser.result.extraction.data.pread(base, min(BLOCK, directory.end - base))
    shift, plain, zip64 = directory.shift, _PLAIN, directory.zip64
    rows: list[Member] = []
    # Locals save a tenth of the time.
    append, row, folder, listed, modes = rows.append, ZipRow, _ZipFolder, _LISTED, _MODES
    head, end, large = CENTRAL_SIZE, len(block), LARGE
    text = block.decode("latin-1")
    pos, last = 0, end - head
    while pos <= last:
        how, packed, size, name_length, extra_length, comment_length, mode, offset = listed(block, pos)
        name_at = pos + head
        name_end = name_at + name_length
        following = name_end + extra_length + comment_length
        if following > end:
            break
        name = text[name_at:name_end]
        if (
            mode in modes
            and not (size and name[-1:] == "/")
            and how in plain
            and not (zip64 and FULL in (size, offset))
            and packed < large
            and name.isascii()
            and not (extra_length and b"up" in block[name_end : name_end + extra_length])
        ):
            append((folder if name[-1:] == "/" else row)(name, offset + shift, size, base + pos, parser))
        elif (entry := read_central(block, pos)) is not None:
            member = parser.listed(entry, base + pos, directory)
            parser.note_size(member)
            rows.append(Member(member.name, member.kind, member.start, member.size or 0, member.status, member))
        pos = following
    if not pos:
        raise MalformedError("no directory entry is at this offset", offset=base, source=parser.result.extraction.name)
    return rows, pos
