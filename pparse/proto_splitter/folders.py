"""Splits or merges a whole SavedModel folder: the message, all other files, and a new fingerprint.

::

    split_folder("model", "model-chunked", max_size="512MiB")   # saved_model.pb  -> saved_model.cpb
    merge_folder("model-chunked", "model-plain")                # saved_model.cpb -> saved_model.pb

The target is written beside its place under a temporary name and renamed at the end: it appears complete, or not at
all. ``variables/``, ``assets/``, ``assets.extra/`` and every other file are copied, block by block. If a folder has
both ``saved_model.cpb`` and ``saved_model.pb``, the ``.cpb`` is the model, as in TensorFlow. The ``notes`` of the
report say what was left out, and why.
"""

from __future__ import annotations

import os
import stat
from collections import namedtuple
from contextlib import suppress

from pparse.data.base import copy_into
from pparse.data.files import exists, inside, is_folder, open_file, real_path, same_file
from pparse.errors import (
    EndOfDataError,
    FormatError,
    LimitError,
    MalformedError,
    OptionError,
    SourceError,
    UnsupportedError,
    refused,
    spoken,
    system_error,
    told,
)
from pparse.limits import Limits
from pparse.proto_splitter.split import writing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.fingerprint import Fingerprint
    from pparse.proto_splitter.stream_merge import MergeReport
    from pparse.proto_splitter.stream_split import SplitReport

    Folder = str | os.PathLike[str]

CHUNKED: Final = "saved_model.cpb"
WHOLE: Final = "saved_model.pb"
_TEXT: Final = "saved_model.pbtxt"
FINGERPRINT: Final = "fingerprint.pb"
_PREFIX: Final = "saved_model"
# What a folder that is replaced is called until the new one has its name.
_OLD: Final = ".old"


class FolderReport(namedtuple("FolderReport", "path model files bytes fingerprint notes")):
    """What `split_folder` or `merge_folder` wrote.

    ``path`` is that of the new folder, ``model`` the report on the message. ``files`` is the number of other files
    copied, ``bytes`` their size. ``fingerprint`` is the new `Fingerprint`; None if none was written. ``notes`` are
    sentences about anything that a reader may not expect.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<FolderReport {self.path!r}: {self.model!r}, {self.files} other files>"


class FolderOptions(
    namedtuple(
        "FolderOptions",
        "overwrite follow_links fingerprint budget limits scratch verify progress cancel stats",
        defaults=(False, False, True, "64MiB", None, None, "all", None, None, None),
    )
):
    """How `split_folder` and `merge_folder` write a folder.

    ``overwrite``: whether to replace a target that is a SavedModel folder. ``follow_links``: whether to copy what
    symbolic links out of the folder point to. ``fingerprint``: whether to write one. ``budget`` limits the memory used,
    in bytes or as text such as ``"64MiB"``; ``limits`` are caps on what a file may ask for. ``scratch`` is the folder
    for temporary files; None for no such files. ``verify`` says which hashes of chunks are checked, see
    `pparse.riegeli.RecordReader`. ``progress`` is called with the bytes done, bytes in all, and what is being done;
    ``cancel`` is called regularly, and True cancels the work. ``stats`` counts what is read.
    """

    __slots__ = ()


def split_folder(
    source_dir: Folder,
    target_dir: Folder,
    *,
    max_size: int | str | None = None,
    writer_options: str | None = None,
    **options: Any,
) -> FolderReport:
    """Write the SavedModel folder ``source_dir`` as the new folder ``target_dir``, with its message split.

    ``max_size`` and ``writer_options`` are as for `pparse.proto_splitter.stream_split.split_file`; the other keyword
    arguments are those of `FolderOptions`. A message within the limit stays a ``saved_model.pb``.

    Raise `FormatError` if the source is not a SavedModel; `OptionError` if it is in chunks already, or if the target is
    not empty, is the source, or lies in it; else as `split_file`.
    """
    from pparse.proto_splitter.stream_split import split_document

    given = FolderOptions(**options)
    source, target = os.fspath(source_dir), os.fspath(target_dir)
    model = _model_of(source)
    if model == CHUNKED:
        beside = f", which takes precedence over its {WHOLE}" if exists(inside(source, WHOLE)) else ""
        raise OptionError(f"{source} is in chunks already: it has a {CHUNKED}{beside}; merge it first")

    def write(document: Extraction, folder: str) -> SplitReport:
        prefix = os.path.join(folder, _PREFIX)
        return split_document(document, prefix, limit=max_size, writer_options=writer_options, progress=given.progress)

    return _write_folder(source, target, model, write, given)


def merge_folder(source_dir: Folder, target_dir: Folder, **options: Any) -> FolderReport:
    """Write the SavedModel folder ``source_dir`` as the new folder ``target_dir``, with ``saved_model.cpb`` merged.

    Keyword arguments are those of `FolderOptions`. Raise as `split_folder`, and `MalformedError` if a chunk is lost or
    damaged.
    """
    from pparse.proto_splitter.stream_merge import merge_document

    given = FolderOptions(**options)
    source, target = os.fspath(source_dir), os.fspath(target_dir)
    model = _model_of(source)
    if model == WHOLE:
        raise OptionError(f"{source} has no {CHUNKED}, only a plain {WHOLE}: there is nothing to merge")

    def write(document: Extraction, folder: str) -> MergeReport:
        return merge_document(document, os.path.join(folder, WHOLE), given.progress)

    return _write_folder(source, target, model, write, given)


def _model_of(source: str) -> str:
    """Return the name of the file that TensorFlow reads as the model of a folder."""
    if not is_folder(source):
        raise SourceError("is not a folder", source=source)
    for name in (CHUNKED, WHOLE):
        path = inside(source, name)
        if is_folder(path):
            raise FormatError("is a folder, but should be the model file; rename it", source=path)
        if exists(path):
            return name
    if exists(inside(source, _TEXT)):
        raise UnsupportedError(f"the model of {source} is in text form ({_TEXT}), which is not supported")
    raise FormatError(f"is not a SavedModel folder: it has neither {CHUNKED} nor {WHOLE}", source=source)


def _write_folder(
    source: str,
    target: str,
    model: str,
    write: Callable[[Extraction, str], Any],
    given: FolderOptions,
) -> FolderReport:
    import pparse

    _clear_leftovers(target)
    _check_target(source, target, given)
    notes: list[str] = []
    _note_link(source, model, notes)
    files = list(_inventory(source, given, notes))
    staging = _Staging(target)
    try:
        path = inside(source, model)
        with pparse.open(
            path,
            format="cpb" if model == CHUNKED else "saved-model",
            budget=given.budget,
            limits=given.limits,
            options={"verify": given.verify, "message": "tensorflow.SavedModel"},
            scratch=given.scratch,
            progress=given.progress,
            cancel=given.cancel,
            stats=given.stats,
        ) as document:
            check_cancelled = document.session.check_cancelled
            written = write(document, staging.path)
            copied = size = 0
            for name in files:
                check_cancelled()
                if name.endswith(os.sep):
                    os.makedirs(os.path.join(staging.path, name), exist_ok=True)
                    continue
                size += _copy(source, name, staging.path, given, check_cancelled)
                copied += 1
            values = _add_fingerprint(staging.path, given, notes) if given.fingerprint else None
        staging.commit(overwrite=given.overwrite)
        written = written._replace(path=os.path.join(target, os.path.basename(written.path)))
    finally:
        staging.discard()
    if model == CHUNKED and exists(inside(source, WHOLE)):
        notes.append(f"{source} also has a {WHOLE}, which was left out: the {CHUNKED} takes precedence")
    return FolderReport(target, written, copied, size, values, notes)


# -- the target --------------------------------------------------------------------------------------------------------


def _check_target(source: str, target: str, given: FolderOptions) -> None:
    """Raise `OptionError` for a target that would overwrite other data."""
    if same_file(source, target):
        raise OptionError(f"the target {target} is the source itself; name another folder")
    if _lies_in(target, source):
        raise OptionError(f"the target {target} lies in the source {source}; name another folder")
    if _lies_in(source, target):
        raise OptionError(f"the source {source} lies in the target {target}; name another folder")
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise OptionError(f"the target {target} is not a folder")
    found = os.listdir(target)
    if not found:
        return
    if not given.overwrite:
        raise OptionError(
            f"the target {target} is not empty; name another folder, or overwrite it "
            f"({told('--force', 'overwrite=True')})"
        )
    if not {CHUNKED, WHOLE, _TEXT} & set(found):
        raise OptionError(f"the target {target} is not empty, and not a SavedModel folder: it is not overwritten")


def _lies_in(path: str, folder: str) -> bool:
    return real_path(path).startswith(inside(real_path(folder), ""))


class _Staging:
    """The folder being written, beside its final place. `commit` renames it, `discard` removes it if not committed."""

    def __init__(self, target: str) -> None:
        from pparse.writers.files import make_locked

        self.target = os.path.realpath(target)  # a link is followed and stays
        with refused("cannot write", target):
            os.makedirs(os.path.dirname(self.target), exist_ok=True)
            self._lock, self.path = make_locked(_hidden(self.target), folder=True)

    def commit(self, *, overwrite: bool) -> None:
        """Move the folder to its final place; a folder that was there is removed afterwards."""
        mask = os.umask(0)
        os.umask(mask)
        old = ""
        try:
            os.chmod(self.path, 0o777 & ~mask)  # mkdtemp makes private folders
            if os.path.isdir(self.target):
                if overwrite and os.listdir(self.target):
                    old = self.path + _OLD
                    os.rename(self.target, old)
                else:
                    os.rmdir(self.target)  # fails if it was filled meanwhile
            os.rename(self.path, self.target)
            self.path = ""
        except OSError as error:
            if old and not os.path.lexists(self.target):
                os.rename(old, self.target)
            raise system_error(error, "cannot write", self.target) from error
        if old:
            _remove_tree(old)

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        if self.path:
            _remove_tree(self.path)
        os.close(self._lock)


def _clear_leftovers(target: str) -> None:
    """Remove what killed processes left beside the target. A target that one had moved away gets its name again."""
    from pparse.writers.files import leftovers, sweep

    target = os.path.realpath(target)
    sweep(_hidden(target))
    for old in leftovers(_hidden(target), _OLD):
        if os.path.lexists(old.removesuffix(_OLD)):
            continue  # a process is about to name its folder
        if os.path.lexists(target):
            _remove_tree(old)
        else:
            with suppress(OSError):
                os.rename(old, target)


def _hidden(path: str) -> str:
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}")


def _remove_tree(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


# -- all other files ---------------------------------------------------------------------------------------------------


def _inventory(source: str, given: FolderOptions, notes: list[str]) -> Iterator[str]:
    """Yield the paths to copy, relative to the folder, folders with a slash; ``notes`` get what is left out.

    Symbolic links to files in the folder are read through. Raise `OptionError` for a link out of the folder, unless
    ``follow_links`` is set, and for a link to a folder, which could form a cycle.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for name, entry in _listing(inside(source, folder), folder):
            if name in (CHUNKED, WHOLE, FINGERPRINT):
                continue
            if entry.is_symlink() and not _may_follow(source, name, given, notes):
                continue
            if entry.is_dir():
                waiting.append(name)
                yield inside(name, "")
            elif entry.is_file():
                yield name
            else:
                notes.append(f"{name} is neither a file nor a folder and was left out")


def _listing(path: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    with refused("cannot list", path), os.scandir(path) as found:
        return sorted((inside(folder, entry.name), entry) for entry in found)


def _may_follow(source: str, name: str, given: FolderOptions, notes: list[str]) -> bool:
    """Say whether to copy what a symbolic link points to. Raise `OptionError` if that is not allowed."""
    path = inside(source, name)
    real = real_path(path)
    if not exists(real):
        notes.append(f"{name} is a broken link and was left out")
        return False
    if is_folder(real):
        raise OptionError(
            f"{path} is a link to the folder {real}: such links are not followed; replace it by a real folder"
        )
    if _lies_in(real, source):
        return True
    if not given.follow_links:
        raise OptionError(f"{path} is a link out of the folder, to {real}: allow it with {spoken('--follow-links')}")
    notes.append(f"{name} was a link out of the folder: its target {real} was copied")
    return True


def _note_link(source: str, model: str, notes: list[str]) -> None:
    """Add a note if the model is a link out of the folder, as in download caches."""
    real = real_path(inside(source, model))
    if not _lies_in(real, source):
        notes.append(f"{model} was a link out of the folder: its target {real} was read")


def _copy(source: str, name: str, target: str, given: FolderOptions, check_cancelled: Callable[[], None]) -> int:
    """Copy one file, block by block, with its permissions; return its size."""
    path, copy = inside(source, name), os.path.join(target, name)
    with open_file(path, stats=given.stats) as data:
        size = data.size or 0
        with refused("cannot write", copy), open(copy, "xb") as out:
            copy_into(data, 0, size, writing(out, size, f"copying {name}", given.progress, check_cancelled))
            os.chmod(copy, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IWUSR)
    return size


def _add_fingerprint(folder: str, given: FolderOptions, notes: list[str]) -> Fingerprint | None:
    """Write the fingerprint of the new folder, and return it; add a note if there can be none."""
    from pparse.data.scratch import Scratch
    from pparse.proto_splitter.fingerprint import fingerprint, write_fingerprint

    limits = given.limits or Limits()
    scratch = Scratch(given.scratch, limits.scratch_bytes)
    try:
        values = fingerprint(folder, budget=given.budget, limits=limits, scratch=scratch)
    except (EndOfDataError, FormatError, LimitError, MalformedError, UnsupportedError) as error:
        notes.append(f"no {FINGERPRINT} was written: {error.reason}")
        return None
    return write_fingerprint(folder, values)


__all__ = ["FolderOptions", "FolderReport", "merge_folder", "split_folder"]
