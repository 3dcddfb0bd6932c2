"""Handles: what a document's parts are pickled as, and how another process opens them again.

A `Handle` names a document as `pparse.open` was asked for it, a part of it, and what identified its files then. See
docs/handles.md for what holds.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict

from pparse.data.files import FileIdentity, inside
from pparse.document.folder import Folder
from pparse.document.registry import viewer_for
from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.lazy import Declared
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction, Session

# Documents opened for handles: all that are in use, and the last ones even if they are not. A worker gets one task
# after the other, and would open its document for each of them.
_LAST: Final = 4
_MOST_LOCKS: Final = 1_000
_lock: Final = RLock()  # of the tables; nothing is opened under it
_opening: Final[dict[bytes, RLock]] = {}  # one at a time opens a document; by its key
_opened: Final[dict[bytes, weakref.WeakSet[Extraction]]] = {}
_viewers: Final[weakref.WeakValueDictionary[tuple[int, tuple[str, ...]], Any]] = weakref.WeakValueDictionary()
_latest: Final[OrderedDict[int, tuple[Extraction, list[Any]]]] = OrderedDict()


class Handle(Declared):
    """How to open an extraction again: see `handle_of` and `reopen`."""

    source: Any
    """What `pparse.open` was given, paths made absolute."""
    keywords: Mapping[str, Any]
    """Its keyword arguments, as far as they are not the usual ones."""
    inner: tuple[str, ...]
    """Names of the extractions from the opened file to the one that is meant."""
    unwrapped: bool
    """Whether the content of the compressed streams around it is meant."""
    files: Mapping[str, FileIdentity]
    """What identified the files that it is read from, by absolute path."""
    host: str
    """Name of the machine: device and inode mean something there only."""
    key: bytes
    """What is the same for all handles of one source that was opened alike."""
    given: Mapping[str, object] | None = None
    """What identified the files of a `pparse.Folder` that was given, by name."""

    def __repr__(self) -> str:
        return f"<Handle of {self.source!r} {'::'.join(self.inner)!r}>"


def handle_of(extraction: Extraction, parts: Iterable[Data | None] = ()) -> Handle:
    """Return the handle of ``extraction``, with the identity of all of its document's files.

    If all ``parts`` are files, only they and the opened file are named. Raises `SourceError` if the document cannot be
    opened again: it was not opened by `pparse.open`, or from an object that means nothing elsewhere.
    """
    session = extraction.session
    if session.opened is None:
        raise SourceError("only a document opened by pparse.open can be pickled", source=extraction.outermost.name)
    opened = session.opened
    _refuse_objects(opened.portable, extraction)
    inner: list[str] = []
    top = extraction
    while top.parent is not None:
        if not top.implicit:
            inner.append(top.name)
        top = top.parent
    needed: Sequence[Data | None] = list(parts)
    if not needed or not all(data is not None and data.is_file for data in needed):
        needed = session.sources()
    files = _identities(opened.folder, (top.data, *needed))
    names = tuple(reversed(inner))
    given = _given(session)
    return Handle(opened.portable, opened.keywords, names, extraction.implicit, files, _host(), opened.key, given)


def _given(session: Session) -> dict[str, object] | None:
    """Return what identifies the files of a folder that was given, as far as they are open and can tell."""
    with session.lock:
        opened = list(session.given.items())
    known = {name: data.identity for name, data in opened if not data.closed}
    return {name: identity for name, identity in known.items() if identity is not None} or None


def _identities(folder: str, sources: Iterable[Data | None]) -> dict[str, FileIdentity]:
    """Return what identifies each file among ``sources``, by absolute path; relative ones begin in ``folder``."""
    return {
        inside(folder, data.path): data.identity
        for data in sources
        if data is not None and data.is_file and data.path is not None and isinstance(data.identity, FileIdentity)
    }


def _refuse_objects(source: Any, extraction: Extraction) -> None:
    for part in source if isinstance(source, list) else (source,):
        if not isinstance(part, str | bytes | Folder):
            raise SourceError(
                f"a document opened from a {type(part).__name__} cannot be pickled; open it by its path",
                source=extraction.outermost.name,
            )


def _host() -> str:
    import platform

    return platform.node()


def reopen(handle: Handle) -> Extraction:
    """Return the extraction that ``handle`` means, of a document that this process shares among all its handles.

    Raises `DataChangedError` if a file is not what it was, and the errors of `pparse.open`.
    """
    opened = _document(handle)
    _remember(opened)
    return _part(opened, handle)


def reopen_view(handle: Handle) -> Any:
    """Return the viewer of the extraction that ``handle`` means: one for all handles that mean the same."""
    opened = _document(handle)
    key = id(opened.session), handle.inner
    with opened.lock:
        viewer = _viewers.get(key)
        if viewer is None:
            viewer = _viewers[key] = _part(opened, handle).outermost.view()
    _remember(opened, viewer)
    return viewer


def _remember(opened: Extraction, viewer: Any = None) -> None:
    """Keep a document that was used just now, and its viewer, instead of the one whose use is the longest ago."""
    with _lock:
        _, viewers = _latest.pop(id(opened), (opened, []))
        if viewer is not None and not any(viewer is known for known in viewers):
            viewers.append(viewer)
        _latest[id(opened)] = opened, viewers
        while len(_latest) > _LAST:
            _latest.popitem(last=False)


def _document(handle: Handle) -> Extraction:
    """Return a document that ``handle`` was opened for: one that reads the files that are meant."""
    with _lock:
        if len(_opening) > _MOST_LOCKS:
            _opening.clear()  # at worst a document is opened twice
            for key in [key for key, documents in _opened.items() if not documents]:
                del _opened[key]
        own = _opening.setdefault(handle.key, RLock())
    with own:
        for known in _living(handle.key):
            if _agrees(known.session, handle):
                return known
        from pparse.document.opening import open_expecting

        opened = open_expecting(handle.source, _expected(handle), handle.given, **handle.keywords)
        session = opened.session
        session.let_go = lambda: _forget(handle.key, session)
        with _lock:
            _opened.setdefault(handle.key, weakref.WeakSet()).add(opened)
        return opened


def _living(key: bytes) -> list[Extraction]:
    """Return the documents that are open for handles with this key."""
    with _lock:
        return list(_opened.get(key, ()))


def _forget(key: bytes, session: Session) -> None:
    """Open another document for the next handle; whoever uses this one goes on using it."""
    with _lock:
        for opened in _living(key):
            if opened.session is session:
                _opened[key].discard(opened)
                _latest.pop(id(opened), None)


def _expected(handle: Handle) -> dict[str, tuple[FileIdentity, bool]]:
    """Return what the files of ``handle`` must be, and whether that was found out on this machine."""
    here = handle.host == _host()
    return {path: (identity, here) for path, identity in handle.files.items()}


def _agrees(session: Session, handle: Handle) -> bool:
    """Say whether a document reads the files that ``handle`` means; from now on, those that it opens later, too."""
    wanted = _expected(handle)
    with session.lock:
        now = _identities(session.opened.folder, session.sources())
        for path, (identity, here) in wanted.items():
            known = session.pool.expected.get(path)
            for other in (now.get(path), None if known is None else known[0]):
                if other is not None and not identity.is_same(other, same_host=here):
                    return False
        given = handle.given or {}
        opened = _given(session) or {}
        for name, wanted_identity in given.items():
            for known_identity in (opened.get(name), session.expected.get(name)):
                if known_identity is not None and known_identity != wanted_identity:
                    return False
        session.pool.expected.update(wanted)
        session.expected.update(given)
    return True


def _part(opened: Extraction, handle: Handle) -> Extraction:
    from pparse.document.opening import enter_next

    found, names = opened.topmost, list(handle.inner)
    while names:
        try:
            found, taken = enter_next(found, names)
        except (PathError, EndOfDataError):
            if not _is_set(found):
                raise
            found, taken = found.sibling(names[0]), 1
        del names[:taken]
    if found.name == opened.name and found.parent is opened.parent:
        found = opened  # which may be of a format that was named
    return found.parsed if handle.unwrapped else found


def _is_set(document: Extraction) -> bool:
    """Say whether a document stands for files beside it, by its parser, or else its viewer."""
    container = document.parse().container
    if container is not None and container.is_set:
        return True
    viewer = viewer_for(document)
    return viewer is not None and bool(getattr(viewer, "is_set", False))


def at_fork() -> None:
    """Forget, in a forked process, what was opened for handles: its lock may be taken by a thread that is not there."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    for table in (_latest, _opened, _viewers, _opening):
        table.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=at_fork)
