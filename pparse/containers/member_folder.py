"""A folder in an archive: the members below a name."""

from __future__ import annotations

import errno

from pparse.data.spliced import SplicedData, derived
from pparse.document.folder import FILE, Folder, FolderItem, confine
from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pparse.containers.archive import ArchiveParser
    from pparse.containers.member import ArchiveMember
    from pparse.document.extraction import Extraction


class MemberFolder(Folder):
    """The members of an archive below ``prefix``, which is empty or ends in ``/``."""

    fetches_at_once = False  # the archive is the document's

    def __init__(self, parser: ArchiveParser, prefix: str) -> None:
        self.path = f"{parser.extraction.path}::{prefix.rstrip('/')}" if prefix else parser.extraction.path
        self._parser = parser
        self._prefix = prefix

    def _below(self, prefix: str) -> Iterator[tuple[str, ArchiveMember]]:
        """Yield the files right below ``prefix``, with their names there."""
        limits = self._parser.extraction.session.limits
        count = 0
        for member in self._parser.files():
            name = member.name.removeprefix("./")
            rest = name.removeprefix(prefix)
            if name.startswith(prefix) and rest and "/" not in rest and member.kind == "file":
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
        limits = self._parser.extraction.session.limits
        found: dict[str, int | None] = {}
        for member in self._parser.files():
            name = member.name.removeprefix("./")
            if member.kind == "file" and name.startswith(self._prefix) and name != self._prefix:
                found[name[len(self._prefix) :]] = member.size
                limits.check("entries", len(found), "the files of a folder in an archive")
        for name, size in sorted(found.items()):
            yield FolderItem(name, FILE, size)

    def open(self, name: str) -> SplicedData:
        """Return the content of the member ``name``."""
        return SplicedData([self.enter(name, None).reader], name)

    def enter(self, name: str, beside: object) -> Extraction:
        """Enter the member ``name``. Raises `EndOfDataError` if it may be in the part that the archive lacks."""
        full = self._prefix + "/".join(confine(name))
        if self._parser.member_node(full) is None:
            if self._parser.result.root.status is Status.TRUNCATED:
                raise EndOfDataError("it is not in the archive, which is truncated", path=full)
            reason = "the archive holds no such file beside it"
            raise SourceError(reason, errno=errno.ENOENT, source=f"{self._parser.extraction.path}::{full}")
        return self._parser.enter(full)

    def sizes(self, name: str) -> Sequence[int]:
        """Return the sizes of the members in the folder ``name``."""
        prefix = self._prefix + "/".join(confine(name)) + "/"
        return [member.size or 0 for _, member in self._below(prefix)]


def folder_in(parser: ArchiveParser, name: str) -> MemberFolder | None:
    """Return the folder ``name`` of an archive, ``.`` for all of it; None if no file lies right in it."""
    prefix = "" if name.rstrip("/") == "." else name.removeprefix("./").rstrip("/") + "/"
    folder = MemberFolder(parser, prefix)
    try:
        return folder if any(True for _ in folder._below(folder._prefix)) else None
    except PathError:
        return None
