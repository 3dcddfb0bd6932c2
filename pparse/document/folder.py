"""Folders: the files beside a file, or in a folder that is a document of its own.

What needs other files (a sharded model, a SavedModel) gets them from a `Folder`, whatever that is made of: a folder of
the system here, a folder in an archive in `pparse.containers.member`, or one that the caller gave
(``pparse.open(…, folder=…)``). Nothing outside of it is reached.
"""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from itertools import islice

from pparse.data.base import Distance
from pparse.data.files import (
    EDIT_JOURNAL,
    first_names,
    folder_of,
    inside,
    is_there,
    linked_name,
    name_of,
    open_file,
    real_path,
    split_set,
)
from pparse.errors import (
    CancelledError,
    ClosedError,
    DataChangedError,
    PathError,
    PparseError,
    SourceError,
    refused,
    system_error,
    told,
)
from pparse.findings import Finding, Severity
from pparse.lazy import Declared, lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any, BinaryIO, Final, TypeVar

    from pparse.data.base import Data, IoStats
    from pparse.data.files import DescriptorPool, SplitSet

    FileSource = Data | bytes | bytearray | memoryview | BinaryIO | str | os.PathLike[str]
    T = TypeVar("T")

# What ends a question, whatever is asked; and what keeps a folder, or a file in it, from saying anything.
STOPPED: Final = (CancelledError, ClosedError)
UNREADABLE: Final = (PparseError, OSError, ValueError)
# How many names of a folder are looked at.
_MOST_NAMES: Final = 20_000
# Those that hardly anything else is called.
_LATER: Final = lazy_pattern(r".+(?:\.\d{3,}|\.z\d\d+|[._-]part[._-]?\d+)", re.IGNORECASE)


def which_part(path: str, folder: Folder | None) -> str | None:
    """Return what to say of a file in ``folder`` that nothing recognises if its name is that of a later part."""
    name = name_of(path)
    names = names_in(folder)
    for first in first_names(name):
        if first in names and first != name:
            return f"its name is that of a part of a file; the first part, {first}, lies beside it: open that"
    firsts = list(first_names(name)) if _LATER.fullmatch(name) else []
    if not firsts or name in firsts:
        return None
    return f"it may be a part of a file: the first one ({firsts[-1]}) is not beside it"


def all_of(folder: str) -> str:
    """Return how to look into all models of a folder."""
    from shlex import quote

    where = quote(folder.rstrip("/") or "/")
    return f"'pparse check -R {where}' checks each, 'pparse ls -R {where}' lists all models in it"


def names_in(folder: Folder | None) -> frozenset[str]:
    """Return the names of the files in a folder, as far as they can be listed."""
    return frozenset() if folder is None else frozenset(_listed(lambda: folder.names() or ()))


def folders_with(folder: Folder, endings: tuple[str, ...]) -> list[str]:
    """Return the path of a file with such an ending in each folder below ``folder`` that holds one."""
    found: dict[str, str] = {}
    for item in _listed(folder.tree):
        below, slash, name = item.path.partition("/")
        if slash and name.lower().endswith(endings):
            found.setdefault(below, item.path)
    return list(found.values())


def _listed(give: Callable[[], Iterable[T]]) -> list[T]:
    """Return the first of what a folder gives; nothing if it cannot be listed."""
    try:
        return list(islice(give(), _MOST_NAMES))
    except STOPPED:
        raise
    except UNREADABLE:
        return []


FILE: Final = "file"
FOLDER: Final = "folder"


class FolderItem(Declared):
    """Something in a folder, or in one below it."""

    path: str
    """Its path from the folder, with ``/``."""
    kind: str
    """FILE, FOLDER, or in words why it is neither read nor entered."""
    size: int | None = None
    """The size of a file in bytes, if it is known."""
    stamp: tuple[int, ...] = ()
    """What is equal as long as the file is the same, and unchanged; empty if that is not known."""


class Folder(ABC):
    """Files by name; those of folders below it by a path with ``/``. Subclass it for files that are elsewhere.

    If files are far away, `open` is called from several threads at once, and must not use the document. Tensors of a
    document that was opened with it can be pickled if it can be.
    """

    path: str = ""
    """What messages call the folder, before the names of files in it; empty: nothing."""
    identity: object | None = None
    """What is equal for the same folder only (not for the same content): hashable, can be pickled; None: not known."""
    distance: Distance = Distance.NEAR
    """FAR: opening a file takes a request, and so does each read of a file object. A `Data` says it for itself."""
    fetches_at_once: bool = True
    """Whether several threads may open files of it at once."""

    @abstractmethod
    def list(self) -> Sequence[str] | None:
        """Return the names of the files in it, without those of folders below; None if it cannot be listed.

        Raises `OSError` (`SourceError` is one).
        """

    @abstractmethod
    def open(self, name: str) -> FileSource:
        """Return the file ``name``: a `Data`, bytes, a seekable binary file object, or the path of a file.

        The document closes it. ``name`` never leads out of the folder. Raises `FileNotFoundError` if there is no such
        file, another `OSError` if it cannot be opened.
        """

    def sizes(self, name: str) -> Sequence[int]:
        """Return the sizes in bytes of the files in the folder ``name`` below, as far as they are known."""
        return ()

    def tree(self, followed: Collection[str] = (), skipped: str = "") -> Iterator[FolderItem]:
        """Yield everything in it and in the folders below it, as far as they can be listed.

        Links to folders are not entered, but for those that are called as ``followed`` says; nor is the folder of the
        system at ``skipped``. Raises `SourceError`.
        """
        for name in self.names() or ():
            yield FolderItem(name, FILE)

    def folders(self) -> Sequence[str]:
        """Return the names of the folders right below it that hold anything, sorted; links to folders are left out."""
        return sorted({item.path.partition("/")[0] for item in self.tree() if "/" in item.path})

    def unreadable(self) -> Sequence[FolderItem]:
        """Return what lies right in it and is neither a file nor a folder, such as links that lead nowhere."""
        return ()

    def split(self, name: str) -> SplitSet | None:
        """Return the parts of a split file if ``name`` is that of its first one; None where nobody joins them."""
        return None

    def below(self, name: str) -> Folder:
        """Return the folder ``name`` below it."""
        return FolderBelow(self, f"{name}/")

    def keeps(self, name: str, path: str | None) -> bool:
        """Return whether ``name`` is in this folder, or in the one where the file ``path`` of it really is.

        Formats ask that let a file name others which need not belong to it. Raises `PathError` for a name that leads
        out of the folder.
        """
        confine(name)
        return True

    def behind(self, path: str) -> Folder | None:
        """Return the folder where the file ``path`` of this one really is, if it is a link; else None."""
        return None

    # -- how documents use it ----------------------------------------------------------------------------------------

    def names(self) -> Sequence[str] | None:
        """Return the names of the files in it, sorted; None if that is not known. Raises `SourceError`."""
        with refused("cannot list", self.path or "<folder>"):
            names = self.list()
            return None if names is None else sorted(names)

    def path_of(self, name: str) -> str:
        """Return the path of a file in it, as the caller who named the folder would write it."""
        return name if self.path in ("", ".") else inside(self.path, name)

    def fetch(self, name: str) -> FileSource:
        """Return what `open` returns. Raises `PathError` for a name that leads out of the folder, and `SourceError`."""
        confine(name)
        try:
            return self.open(name)
        except SourceError:
            raise
        except OSError as error:
            number = error.errno or (errno.ENOENT if isinstance(error, FileNotFoundError) else None)
            reason = error.strerror or (os.strerror(number) if number else error)
            raise SourceError(f"cannot open: {reason}", errno=number, source=self.path_of(name)) from error

    def enter(self, name: str, beside: Any) -> Any:
        """Return the file ``name`` as an extraction, for the one ``beside`` which it belongs to.

        Raises `PathError` if the name leads out of the folder, `SourceError` if there is no such file, and
        `DataChangedError` if it is not the one that a handle means.
        """
        return self.entered(name, self.fetch(name), beside)

    def entered(self, name: str, source: FileSource, beside: Any) -> Any:
        """Return what was fetched as an extraction."""
        session = beside.session
        data: Data = session.take(source, name, owned=True, distance=self.distance)
        session.given[name] = data
        wanted = session.expected.get(name)
        if wanted is not None and wanted != data.identity:
            raise DataChangedError("the file is not the one that was pickled", source=self.path_of(name))
        found = beside.file(name, data)
        below, mark, _ = name.rpartition("/")
        found.lies_in = FolderBelow(self, below + mark) if mark else self
        return found


class FolderBelow(Folder):
    """A folder in a folder that a caller gave; it cannot be listed."""

    def __init__(self, outer: Folder, prefix: str) -> None:
        self.path = outer.path_of(prefix.rstrip("/"))
        self.distance = outer.distance
        self.fetches_at_once = outer.fetches_at_once
        self._outer = outer
        self._prefix = prefix

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the folder it is in, and its name."""
        return None if self._outer.identity is None else ("below", self._outer.identity, self._prefix)

    def list(self) -> None:
        """Return None: the names are not known."""

    def open(self, name: str) -> FileSource:
        """Return the file ``name``."""
        return self._outer.open(self._prefix + name)


def several_models(folder: Folder, models: Sequence[str], about: Sequence[str] = ()) -> PathError:
    """Return the error that asks which of the models in a folder is meant; each is called by the file to open.

    ``about``: what else is to be known of them.
    """
    shown = ", ".join(models[:8]) + (f" and {len(models) - 8} more" if len(models) > 8 else "")
    reason = "the folder holds several models" + (told(f": {all_of(folder.path)}", "") if folder.path else "")
    path, (_, dot, ending) = folder.path.rstrip("/"), models[0].rpartition(".")
    reason += f"; name one of them, e.g. {path}/{models[0]}"
    if dot and all(model.endswith(f".{ending}") and "/" not in model for model in models):
        reason += told(f", or, where several files can be named, '{path}/*.{ending}'", "")
    reason += f". There are: {shown}"
    return PathError(reason + "".join(f"; {known}" for known in about), path=folder.path)


def edit_notes(path: str) -> tuple[Finding, ...]:
    """Return the warning that an edit of a file was cut off (`pparse.editing`), if its journal lies beside the file."""
    real = path if linked_name(path) is None else real_path(path)
    if not is_there(real + EDIT_JOURNAL):
        return ()
    advice = told(f"'pparse edit {path}'", f"pparse.edit({path!r})")
    reason = f"an edit of it was cut off, and it may be neither old nor new: {advice} finishes it"
    return (Finding("edit", reason, severity=Severity.WARNING, source=path),)


class LocalFolder(Folder):
    """A folder of the system. Symbolic links in it are followed, since download caches consist of them."""

    def __init__(self, path: str, pool: DescriptorPool | None = None, stats: IoStats | None = None) -> None:
        self.path = path
        self._pool = pool
        self._stats = stats

    @property
    def identity(self) -> object:  # type: ignore[override]
        """The path that it has in the end."""
        return "folder", real_path(self.path or ".")

    def list(self) -> Sequence[str]:
        """Return the names of the files in it."""
        return [item.name for item in self._entries() if _is(item.is_file)]

    def _entries(self, below: str = "") -> Sequence[os.DirEntry[str]]:
        with os.scandir(inside(self.path or ".", below)) as listing:
            return [*listing]

    def folders(self) -> Sequence[str]:
        """Return the names of the folders in it."""
        with refused("cannot list", self.path or "<folder>"):
            return sorted(item.name for item in self._entries() if item.is_dir(follow_symlinks=False))

    def unreadable(self) -> Sequence[FolderItem]:
        """Return links that lead nowhere, devices, pipes and sockets in it; not links to folders."""
        try:
            items = self._entries()
        except OSError:  # listing it says so
            return ()
        return [_item(item, item.name, ()) for item in items if not (_is(item.is_file) or _is(item.is_dir))]

    def split(self, name: str) -> SplitSet | None:
        """Return the parts of the file that ``name`` is the first part of."""
        return split_set(inside(self.path, *confine(name)))

    def below(self, name: str) -> Folder:
        """Return the folder ``name`` in it."""
        return LocalFolder(inside(self.path, *confine(name)), self._pool, self._stats)

    def open(self, name: str) -> Data:
        """Open the file ``name``."""
        return open_file(inside(self.path, *confine(name)), self._pool, self._stats)

    def entered(self, name: str, source: FileSource, beside: Any) -> Any:
        """Return what was fetched; what it must be, the pool knows by its path."""
        found = beside.file(name, beside.session.take(source, name, owned=True))
        found.notes += edit_notes(inside(self.path, name))
        return found

    def keeps(self, name: str, path: str | None) -> bool:
        """Return whether ``name`` is in this folder, or in the one where ``path`` is, links resolved."""
        real = real_path(inside(self.path, *confine(name)))
        homes = [real_path(self.path or ".")]
        if path is not None:
            homes.append(folder_of(real_path(path)))
        return any(real.startswith(inside(home, "")) for home in homes)

    def behind(self, path: str) -> Folder | None:
        """Return the folder where the link ``path`` leads to; None if that is this one."""
        home = folder_of(real_path(path))
        return None if home == real_path(self.path or ".") else LocalFolder(home, self._pool, self._stats)

    def tree(self, followed: Collection[str] = (), skipped: str = "") -> Iterator[FolderItem]:
        """Yield everything in it and in the folders below it."""
        below = [""]
        while below:
            prefix = below.pop()
            try:
                items = sorted(self._entries(prefix), key=lambda item: item.name)
            except OSError as error:
                failed = system_error(error, "cannot list", self.path)
                if not prefix:
                    raise failed from error
                yield FolderItem(prefix.rstrip("/"), failed.reason)
                continue
            folders: list[str] = []
            for item in items:
                found = _item(item, prefix + item.name, followed)
                if found.kind == FOLDER:
                    if skipped and real_path(item.path) == skipped:
                        continue
                    folders.append(f"{found.path}/")
                yield found
            below += reversed(folders)

    def sizes(self, name: str) -> Sequence[int]:
        """Return the sizes of the files in the folder ``name``."""
        try:
            return [item.stat().st_size for item in self._entries("/".join(confine(name))) if item.is_file()]
        except OSError:
            return []


def _is(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except OSError:  # a link that leads to itself
        return False


def _item(item: os.DirEntry[str], path: str, followed: Collection[str]) -> FolderItem:
    """Describe an entry of a folder."""
    try:
        if item.is_dir(follow_symlinks=False) or (path in followed and item.is_dir()):
            return FolderItem(path, FOLDER)
        if item.is_file():
            found = item.stat()
            return FolderItem(path, FILE, found.st_size, (found.st_size, found.st_mtime_ns, found.st_ino))
        if item.is_dir():
            return FolderItem(path, "a link to a folder")
        return FolderItem(path, "a link that leads nowhere" if item.is_symlink() else "a device, pipe or socket")
    except OSError as error:  # a link that leads to itself
        return FolderItem(path, f"cannot be opened: {error.strerror or error}")


def leads_out(name: str) -> bool:
    """Return whether a path leads out of the folder that it is in, on any system.

    `confine` refuses such a name, and others; `pparse.recovery.names` makes one that stays inside of any.
    """
    depth = 0
    for part in name.replace("\\", "/").split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return name[:1] in ("/", "\\") or name[1:2] == ":"


def confine(name: str) -> Sequence[str]:
    """Return the parts of a relative file name that stays in its folder. Raises `PathError` for any other name."""
    parts = name.split("/")
    if leads_out(name) or "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise PathError("the file name is not valid, or leads out of its folder", path=name)
    return parts
