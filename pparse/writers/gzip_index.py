"""`index`: writes the index of a gzip file beside it, or into the cache of the user."""

from __future__ import annotations

import os
from contextlib import contextmanager
from copy import copy

from pparse.budget import MemoryBudget
from pparse.compressed.gzip_index import NAME, SUFFIX, cache_path
from pparse.compressed.gzip_index_builder import build_index
from pparse.data.files import is_there, open_file
from pparse.errors import FormatError, OptionError, system_error, told
from pparse.limits import parse_size
from pparse.writers.files import AtomicFile, refuse_existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pparse.compressed.gzip_index_builder import IndexReport, Progress
    from pparse.data.base import IoStats
    from pparse.data.reader import Range
    from pparse.limits import Limits


@contextmanager
def opened(path: str, stats: IoStats | None = None) -> Iterator[Range]:
    """Open a gzip file to index. Raises `OptionError` for what is no separate file, `FormatError` for another file."""
    if path == "-" or ("::" in path and not is_there(path)):
        raise OptionError(f"{path} is not a separate file; only such a file can be indexed")
    with open_file(path, stats=stats) as data:
        if not data.pread(0, 3).startswith(b"\x1f\x8b\x08"):
            raise FormatError("not a gzip file; only gzip files are indexed", source=data.name)
        yield data.range(0, data.size or 0)


def place_of(source: Range, path: str, output: str | None, *, cache: bool) -> str:
    """Return where the index of the file at ``path`` is written."""
    return cache_path(source) if cache else str(output or path + SUFFIX)


def index(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    cache: bool = False,
    spacing: int | str = "4MiB",
    force: bool = False,
    budget: int | str = "64MiB",
    limits: Limits | None = None,
    progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None,
    stats: IoStats | None = None,
) -> IndexReport:
    """Index the gzip file at ``path``, so that a read in its middle does not decode all before it.

    ``path``.pindex is written, or ``output``, or with ``cache`` a file in the user's cache; `pparse.open` finds the
    first and the last. About every ``spacing`` bytes of the content there is a point to begin at (64 KiB at least). An
    existing file that is no index is replaced with ``force`` only. If the file is damaged, what precedes that is
    indexed, and the report's ``error`` says why no more.

    Raises `FormatError` for a file that is not gzip, `OptionError`, `SourceError`, `LimitError`, `MalformedError` if
    there is nothing to index, ValueError for a spacing that is too small.
    """
    path = os.fspath(path)
    with opened(path, stats) as source:
        target = place_of(source, path, None if output is None else os.fspath(output), cache=cache)
        _refuse_other(target, path, force=force)
        if cache:
            folder = os.path.dirname(target)
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                raise system_error(error, "cannot create the folder", folder) from error
        with AtomicFile(target, make_folders=True) as file:
            report = build_index(
                source,
                file.stream,
                spacing=parse_size(spacing),
                budget=MemoryBudget(budget),
                limits=limits,
                progress=progress,
                cancel=cancel,
            )
            if report.error is not None and not report.size:  # nothing to write
                failed = copy(report.error)
                failed.reason = f"{failed.reason}; no index was written"
                failed.source = source.data.name
                raise failed from report.error
    report.path = target
    return report


def _refuse_other(target: str, path: str, *, force: bool) -> None:
    """Raise `OptionError` for an output that exists and is not an index."""
    refuse_existing([target], path, force=True)
    if force or not os.path.isfile(target):
        return
    with open(target, "rb") as file:
        if file.read(len(NAME)) != NAME:
            raise OptionError(
                f"{target} exists and is not an index; name another output, or replace it with "
                f"{told('--force', 'force=True')}"
            )
