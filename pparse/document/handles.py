"""Handles: what a document's parts are pickled as, and how another process opens them again.

A `Handle` names a document as `pparse.open` was asked for it, a part of it, and what identified its files then. See
docs/handles.md for what holds.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from weakref import WeakValueDictionary

from pparse.data.files import FileData
from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.data.files import FileIdentity
    from pparse.document.extraction import Extraction

# Documents opened for handles: all that are in use, and the last ones even if they are not. A worker gets one task
# after the other, and would open its document for each of them.
_LAST: Final = 4
_lock: Final = RLock()
_opened: Final[WeakValueDictionary[bytes, Extraction]] = WeakValueDictionary()
_viewers: Final[WeakValueDictionary[bytes, Any]] = WeakValueDictionary()
_latest: Final[deque[tuple[Extraction, Any]]] = deque(maxlen=_LAST)


class Handle:
    """How to open an extraction again: see `handle_of` and `reopen`."""

    __slots__ = ("files", "host", "inner", "keywords", "source", "unwrapped")

    def __init__(
        self,
        source: Any,
        keywords: Mapping[str, Any],
        inner: tuple[str, ...],
        unwrapped: bool,
        files: Mapping[str, FileIdentity],
        host: str,
    ) -> None:
        self.source = source
        """What `pparse.open` was given, paths made absolute."""
        self.keywords = keywords
        """Its keyword arguments, as far as they are not the usual ones."""
        self.inner = inner
        """Names of the extractions from the opened file to the one that is meant."""
        self.unwrapped = unwrapped
        """Whether the content of the compressed streams around it is meant."""
        self.files = files
        """What identified the files that it is read from, by absolute path."""
        self.host = host
        """Name of the machine: device and inode mean something there only."""

    def __reduce__(self) -> tuple[type[Handle], tuple[object, ...]]:
        return Handle, (self.source, self.keywords, self.inner, self.unwrapped, self.files, self.host)

    def __repr__(self) -> str:
        return f"<Handle of {self.source!r} {'::'.join(self.inner)!r}>"

    @property
    def key(self) -> bytes:
        """What is the same for all handles of one opened document."""
        first = next(iter(self.files.items()), None)  # a file that was replaced is another document
        return pickle.dumps((self.source, sorted(self.keywords.items(), key=_name), first, self.host))


def _name(item: tuple[str, object]) -> str:
    return item[0]


def handle_of(extraction: Extraction, parts: Iterable[Data | None] = ()) -> Handle:
    """Return the handle of ``extraction``, with the identity of all of its document's files.

    If all ``parts`` are files, only they and the opened file are named. Raises `SourceError` if the document cannot be
    opened again: it was not opened by `pparse.open`, or from an object that means nothing elsewhere.
    """
    session = extraction.session
    if session.opened is None:
        raise SourceError("only a document opened by pparse.open can be pickled", source=extraction.outermost.name)
    opened = session.opened
    source = portable(opened.source, opened.folder)
    _refuse_objects(source, extraction)
    inner: list[str] = []
    top = extraction
    while top.parent is not None:
        if not top.implicit:
            inner.append(top.name)
        top = top.parent
    needed: Sequence[Data | None] = list(parts)
    if not needed or not all(isinstance(data, FileData) for data in needed):
        needed = session.sources()
    files = {
        os.path.join(opened.folder, data.path): data.identity
        for data in (top.data, *needed)
        if isinstance(data, FileData)
    }
    return Handle(source, opened.keywords, tuple(reversed(inner)), extraction.implicit, files, _host())


def _refuse_objects(source: Any, extraction: Extraction) -> None:
    for part in source if isinstance(source, list) else (source,):
        if not isinstance(part, str | bytes):
            raise SourceError(
                f"a document opened from a {type(part).__name__} cannot be pickled; open it by its path",
                source=extraction.outermost.name,
            )


def portable(source: Any, folder: str) -> Any:
    """Return what `pparse.open` was given so that it can be given again in another folder, and another process."""
    if isinstance(source, str | os.PathLike):
        return os.path.join(folder, os.fspath(source))  # not normalised: "::" and names of members follow
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if isinstance(source, list | tuple):
        return [portable(part, folder) for part in source]
    return source


def _host() -> str:
    import platform

    return platform.node()


def reopen(handle: Handle) -> Extraction:
    """Return the extraction that ``handle`` means, of a document that this process shares among all its handles.

    Raises `DataChangedError` if a file is not what it was, and the errors of `pparse.open`.
    """
    with _lock:
        opened = _document(handle)
        _remember(opened, None)
    return _part(opened, handle)


def reopen_view(handle: Handle) -> Any:
    """Return the viewer of the extraction that ``handle`` means: one for all handles that mean the same."""
    with _lock:
        opened = _document(handle)
        key = handle.key + repr(handle.inner).encode()
        viewer = _viewers.get(key)
        if viewer is None or viewer.extraction.session.closed:
            viewer = _viewers[key] = _part(opened, handle).outermost.view()
        _remember(opened, viewer)
    return viewer


def _remember(opened: Extraction, viewer: Any) -> None:
    found = (opened, viewer)
    if found not in _latest:
        _latest.append(found)


def _document(handle: Handle) -> Extraction:
    """Return the opened document of ``handle``; all of its files that are open now are the ones that are meant."""
    key = handle.key
    opened = _opened.get(key)
    expected = {path: (identity, handle.host == _host()) for path, identity in handle.files.items()}
    if opened is None or opened.session.closed:
        from pparse.document.opening import open_expecting

        opened = open_expecting(handle.source, expected, **handle.keywords)
        _opened[key] = opened
        return opened
    session = opened.session
    for data in session.sources():
        known = expected.get(os.path.join(session.opened.folder, data.path)) if isinstance(data, FileData) else None
        if isinstance(data, FileData) and known is not None:
            known[0].refuse_another(data.identity, data.path, same_host=known[1])
    session.pool.expected.update(expected)
    return opened


def _part(opened: Extraction, handle: Handle) -> Extraction:
    from pparse.document.opening import enter_next

    found, names = opened.topmost, list(handle.inner)
    while names:
        try:
            found, taken = enter_next(found, names)
        except (PathError, EndOfDataError):
            found, taken = found.sibling(names[0]), 1  # a file of a set
        del names[:taken]
    if found.name == opened.name and found.parent is opened.parent:
        found = opened  # which may be of a format that was named
    return found.parsed if handle.unwrapped else found


def at_fork() -> None:
    """Forget, in a forked process, what was opened for handles: its lock may be taken by a thread that is not there."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    _latest.clear()
    _opened.clear()
    _viewers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=at_fork)
