"""A whole SavedModel folder split or merged: the message, all other files of the folder, a new fingerprint.

::

    split_folder("model", "model-chunked", max_size="512MiB")   # saved_model.pb  -> saved_model.cpb
    merge_folder("model-chunked", "model-plain")                # saved_model.cpb -> saved_model.pb

The target is made beside its place under another name, and renamed when all is there: it appears whole, or not at all.
``variables/``, ``assets/``, ``assets.extra/`` and every other file are copied, block by block. Where a folder has both
``saved_model.cpb`` and ``saved_model.pb``, the former is the model, as in TensorFlow. What was left out, and why, is
said in the ``notes`` of the report.
"""

from __future__ import annotations

import os
import stat

from pparse.data.base import FileData, copy_into
from pparse.errors import (
    EndOfDataError,
    FormatError,
    LimitError,
    MalformedError,
    OptionError,
    SourceError,
    UnsupportedError,
)
from pparse.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import IoStats
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.fingerprint import Fingerprint
    from pparse.proto_splitter.stream_merge import MergeReport
    from pparse.proto_splitter.stream_split import SplitReport

    Progress = Callable[[int, int | None, str], None]
    Folder = str | os.PathLike[str]

CHUNKED: Final = "saved_model.cpb"
WHOLE: Final = "saved_model.pb"
_TEXT: Final = "saved_model.pbtxt"
FINGERPRINT: Final = "fingerprint.pb"
_PREFIX: Final = "saved_model"


class FolderReport:
    """What was written: ``path``; ``model``, the report on the message; ``files`` and ``bytes`` that were copied.

    ``fingerprint`` is the new one, None if there is none; ``notes`` are sentences on what a reader may not expect.
    """

    __slots__ = ("bytes", "files", "fingerprint", "model", "notes", "path")

    def __init__(self, path: str, model: SplitReport | MergeReport) -> None:
        self.path = path
        self.model = model
        self.files = 0
        self.bytes = 0
        self.fingerprint: Fingerprint | None = None
        self.notes: list[str] = []

    def __repr__(self) -> str:
        return f"<FolderReport {self.path!r}: {self.model!r}, {self.files} other files>"


class FolderOptions:
    """How a folder is written, for `split_folder` and `merge_folder`.

    ``overwrite``: replace a target that is a SavedModel folder. ``follow_links``: copy what symbolic links that lead
    out of the folder name, too. ``fingerprint``: write one. ``budget`` bounds memory, ``verify`` says which hashes of
    chunks are checked; ``stats`` counts what is read.
    """

    __slots__ = (
        "budget",
        "cancel",
        "fingerprint",
        "follow_links",
        "limits",
        "overwrite",
        "progress",
        "scratch",
        "stats",
        "verify",
    )

    def __init__(
        self,
        *,
        overwrite: bool = False,
        follow_links: bool = False,
        fingerprint: bool = True,
        budget: int | str = "64MiB",
        limits: Limits | None = None,
        scratch: str | None = None,
        verify: str = "all",
        progress: Progress | None = None,
        cancel: Callable[[], bool] | None = None,
        stats: IoStats | None = None,
    ) -> None:
        self.overwrite = overwrite
        self.follow_links = follow_links
        self.fingerprint = fingerprint
        self.budget = budget
        self.limits = limits or Limits()
        self.scratch = scratch
        self.verify = verify
        self.progress = progress
        self.cancel = cancel
        self.stats = stats


def split_folder(
    source_dir: Folder,
    target_dir: Folder,
    *,
    max_size: int | str | None = None,
    writer_options: str | None = None,
    **options: Any,
) -> FolderReport:
    """Write the SavedModel folder ``source_dir``, its message split, as the new folder ``target_dir``.

    ``max_size`` and ``writer_options`` as for `pparse.proto_splitter.stream_split.split_file`; keyword arguments else
    are those of `FolderOptions`. A message within the limit stays a ``saved_model.pb``.

    Raises `FormatError` for a folder that is no SavedModel, `OptionError` if it is in chunks already, or the target is
    not empty, is the source, or lies in it; else as `split_file`.
    """
    from pparse.proto_splitter.stream_split import split_document

    given = FolderOptions(**options)
    source, target = os.fspath(source_dir), os.fspath(target_dir)
    model = _model_of(source)
    if model == CHUNKED:
        beside = f", which counts, and not the {WHOLE} beside it" if os.path.exists(os.path.join(source, WHOLE)) else ""
        raise OptionError(f"{source} is in chunks already: it has a {CHUNKED}{beside}; merge it first")

    def write(document: Extraction, folder: str) -> SplitReport:
        prefix = os.path.join(folder, _PREFIX)
        return split_document(document, prefix, limit=max_size, writer_options=writer_options, progress=given.progress)

    return _write_folder(source, target, model, write, given)


def merge_folder(source_dir: Folder, target_dir: Folder, **options: Any) -> FolderReport:
    """Write the SavedModel folder ``source_dir``, its ``saved_model.cpb`` merged, as the new folder ``target_dir``.

    Keyword arguments are those of `FolderOptions`. Raises as `split_folder`, and `MalformedError` where a chunk is lost
    or damaged.
    """
    from pparse.proto_splitter.stream_merge import merge_document

    given = FolderOptions(**options)
    source, target = os.fspath(source_dir), os.fspath(target_dir)
    model = _model_of(source)
    if model == WHOLE:
        raise OptionError(f"{source} has no {CHUNKED}, but a plain {WHOLE}: there is nothing to merge")

    def write(document: Extraction, folder: str) -> MergeReport:
        return merge_document(document, os.path.join(folder, WHOLE), given.progress)

    return _write_folder(source, target, model, write, given)


def _model_of(source: str) -> str:
    """Return the name of the file that is the model of a folder, the one that TensorFlow takes."""
    if not os.path.isdir(source):
        raise SourceError("is no folder", source=source)
    for name in (CHUNKED, WHOLE):
        path = os.path.join(source, name)
        if os.path.isdir(path):
            raise FormatError("is a folder, where the model should be; give this another name", source=path)
        if os.path.exists(path):
            return name
    if os.path.exists(os.path.join(source, _TEXT)):
        raise UnsupportedError(f"{source} has its model in text form ({_TEXT}), which is not read here")
    raise FormatError(f"is no SavedModel folder: it has no {CHUNKED} and no {WHOLE}", source=source)


def _write_folder(
    source: str,
    target: str,
    model: str,
    write: Callable[[Extraction, str], Any],
    given: FolderOptions,
) -> FolderReport:
    import pparse

    _check_target(source, target, given)
    notes: list[str] = []
    _note_link(source, model, notes)
    files = list(_inventory(source, given, notes))
    staging = _Staging(target)
    try:
        path = os.path.join(source, model)
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
            written = write(document, staging.path)
            report = FolderReport(target, written)
            report.notes = notes
            for name in files:
                document.session.check_cancelled()
                if name.endswith(os.sep):
                    os.makedirs(os.path.join(staging.path, name), exist_ok=True)
                    continue
                report.bytes += _copy(source, name, staging.path, given)
                report.files += 1
            if given.fingerprint:
                _add_fingerprint(report, staging.path, given)
        staging.commit(overwrite=given.overwrite)
        written.path = os.path.join(target, os.path.basename(written.path))
    finally:
        staging.discard()
    if model == CHUNKED and os.path.exists(os.path.join(source, WHOLE)):
        notes.append(f"{source} has a {WHOLE}, too, which does not count beside a {CHUNKED} and was left out")
    return report


# -- the target --------------------------------------------------------------------------------------------------------


def _check_target(source: str, target: str, given: FolderOptions) -> None:
    """Refuse targets that would harm what is there. Raises `OptionError`."""
    if os.path.exists(target) and os.path.samefile(source, target):
        raise OptionError(f"the target {target} is the source itself; name another folder")
    if _lies_in(target, source):
        raise OptionError(f"the target {target} lies in the source {source}; name another folder")
    if _lies_in(source, target):
        raise OptionError(f"the source {source} lies in the target {target}; name another folder")
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise OptionError(f"the target {target} is no folder")
    found = os.listdir(target)
    if not found:
        return
    if not given.overwrite:
        raise OptionError(f"the target {target} is not empty; name another folder, or overwrite it (--force)")
    if not {CHUNKED, WHOLE, _TEXT} & set(found):
        raise OptionError(f"the target {target} is not empty and no SavedModel folder: it is not overwritten")


def _lies_in(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


class _Staging:
    """The folder that is written, beside its place: `commit` renames it, `discard` removes what was not committed."""

    def __init__(self, target: str) -> None:
        import tempfile

        self.target = os.path.realpath(target)  # through a link, what it names is written; the link stays
        parent, name = os.path.split(self.target)
        try:
            os.makedirs(parent, exist_ok=True)
            self.path = tempfile.mkdtemp(prefix=f".{name[:40]}.", suffix=".partial", dir=parent)
        except OSError as error:
            raise _cannot_write(error, target) from error

    def commit(self, *, overwrite: bool) -> None:
        """Move the folder into its place; what was there goes when the new one is in place."""
        mask = os.umask(0)
        os.umask(mask)
        old = ""
        try:
            os.chmod(self.path, 0o777 & ~mask)  # mkdtemp makes private folders
            if os.path.isdir(self.target):
                if overwrite and os.listdir(self.target):
                    old = f"{self.path}.old"
                    os.rename(self.target, old)
                else:
                    os.rmdir(self.target)  # refused, if it was filled meanwhile
            os.rename(self.path, self.target)
            self.path = ""
        except OSError as error:
            if old and not os.path.lexists(self.target):
                os.rename(old, self.target)
            raise _cannot_write(error, self.target) from error
        if old:
            _remove_tree(old)

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        if self.path:
            _remove_tree(self.path)


def _remove_tree(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _cannot_write(error: OSError, path: str) -> SourceError:
    return SourceError(f"cannot write: {error.strerror or error}", errno=error.errno, source=path)


# -- all other files ---------------------------------------------------------------------------------------------------


def _inventory(source: str, given: FolderOptions, notes: list[str]) -> Iterator[str]:
    """Yield what is to be copied, relative to the folder, folders with a slash; what is left out goes to ``notes``.

    Symbolic links to files in the folder are read through. Raises `OptionError` for one that leads out of it, unless
    ``follow_links`` says so, and for one to a folder, which could go round in circles.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for name, entry in _listing(os.path.join(source, folder), folder):
            if name in (CHUNKED, WHOLE, FINGERPRINT):
                continue
            if entry.is_symlink() and not _may_follow(source, name, given, notes):
                continue
            if entry.is_dir():
                waiting.append(name)
                yield os.path.join(name, "")
            elif entry.is_file():
                yield name
            else:
                notes.append(f"{name} is neither a file nor a folder and was left out")


def _listing(path: str, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(path) as found:
            return sorted((os.path.join(folder, entry.name), entry) for entry in found)
    except OSError as error:
        raise SourceError(f"cannot list: {error.strerror or error}", errno=error.errno, source=path) from error


def _may_follow(source: str, name: str, given: FolderOptions, notes: list[str]) -> bool:
    """Say whether a symbolic link is to be copied as what it names; raises `OptionError` if it must not be."""
    path = os.path.join(source, name)
    real = os.path.realpath(path)
    if not os.path.exists(real):
        notes.append(f"{name} is a link to nothing and was left out")
        return False
    if os.path.isdir(real):
        raise OptionError(f"{path} is a link to the folder {real}: it is not followed; put a real folder there")
    if _lies_in(real, source):
        return True
    if not given.follow_links:
        raise OptionError(
            f"{path} is a link out of the folder, to {real}: it is not followed unless you say so (--follow-links)"
        )
    notes.append(f"{name} was a link out of the folder: what it names, {real}, was copied")
    return True


def _note_link(source: str, model: str, notes: list[str]) -> None:
    """Say of a model that is a link out of the folder, as in download caches, what was read."""
    real = os.path.realpath(os.path.join(source, model))
    if not _lies_in(real, source):
        notes.append(f"{model} was a link out of the folder: what it names, {real}, was read")


def _copy(source: str, name: str, target: str, given: FolderOptions) -> int:
    """Copy one file, block by block, with its rights; return its size."""
    path, copy = os.path.join(source, name), os.path.join(target, name)
    done = 0
    with FileData(path, stats=given.stats) as data:
        size = data.size or 0
        try:
            with open(copy, "xb") as out:

                def write(block: bytes) -> None:
                    nonlocal done
                    out.write(block)
                    done += len(block)
                    if given.progress is not None:
                        given.progress(done, size, f"copying {name}")

                copy_into(data, 0, size, write)
                os.chmod(copy, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IWUSR)
        except SourceError:  # of what is read
            raise
        except OSError as error:
            raise _cannot_write(error, copy) from error
    return size


def _add_fingerprint(report: FolderReport, folder: str, given: FolderOptions) -> None:
    """Write the fingerprint of the new folder; where there can be none, say so."""
    from pparse.data.scratch import Scratch
    from pparse.proto_splitter.fingerprint import fingerprint, write_fingerprint

    scratch = Scratch(given.scratch, given.limits.scratch_bytes)
    try:
        values = fingerprint(folder, budget=given.budget, limits=given.limits, scratch=scratch)
    except (EndOfDataError, FormatError, LimitError, MalformedError, UnsupportedError) as error:
        report.notes.append(f"no {FINGERPRINT} was written: {error.reason}")
        return
    report.fingerprint = write_fingerprint(folder, values)


__all__ = ["FolderOptions", "FolderReport", "merge_folder", "split_folder"]
