"""`index`: writes the index of a file of gzip or JSON Lines beside it, or into the cache of the user."""

from __future__ import annotations

import os
from collections import namedtuple
from contextlib import contextmanager, suppress
from copy import copy

from pparse.compressed.gzip_index import NAME, build_index
from pparse.data.files import is_there, open_file
from pparse.data.index_files import SUFFIX, cache_path
from pparse.document.opening import open as open_document
from pparse.errors import FormatError, OptionError, refused, told
from pparse.limits import MemoryBudget, parse_size
from pparse.tree.row_index import NAME as ROWS_NAME
from pparse.tree.row_index import write_index
from pparse.writers.files import AtomicFile, refuse_existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pparse.compressed.gzip_index import IndexReport, Progress
    from pparse.data.base import IoStats, Range
    from pparse.document.extraction import Extraction
    from pparse.limits import Limits
    from pparse.tree.index import ChildIndex


class RowReport(namedtuple("RowReport", "path size rows points file_size")):
    """What `index` wrote of a file of rows.

    ``path``: where the index is; ``size``: bytes of the file that is indexed; ``rows``: how many it has; ``points``: of
    how many of them the index says the beginning; ``file_size``: bytes of the index.
    """

    __slots__ = ()


@contextmanager
def opened(path: str, stats: IoStats | None = None) -> Iterator[tuple[Range, bool]]:
    """Open a file to index; yield its bytes, and whether it is of gzip. Raises `OptionError` for no separate file."""
    if path == "-" or ("::" in path and not is_there(path)):
        raise OptionError(f"{path} is not a separate file; only such a file can be indexed")
    with open_file(path, stats=stats) as data:
        yield data.range(0, data.size or 0), data.pread(0, 3).startswith(b"\x1f\x8b\x08")


def rows_of(document: Extraction) -> ChildIndex:
    """Return the index of a file of rows, all of which are read. Raises `FormatError` for another file."""
    result = None
    with suppress(FormatError):  # which does not know what can be indexed
        result = document.result
    if result is None or not result.parser.keeps_row_index or result.extraction is not document:
        raise FormatError("not a file of gzip or JSON Lines; only such files are indexed", source=document.name)
    return result.root.index_to(None)


def place_of(source: Range, path: str, output: str | None, *, cache: bool) -> str:
    """Return where the index of the file at ``path`` is written."""
    return cache_path(source) if cache else str(output or path + SUFFIX)


def index(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    cache: bool = False,
    spacing: int | str | None = None,
    force: bool = False,
    format: str | None = None,
    budget: int | str = "64MiB",
    limits: Limits | None = None,
    progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None,
    stats: IoStats | None = None,
) -> IndexReport | RowReport:
    """Index the file of gzip or JSON Lines at ``path``: what is far in it is reached without reading all before it.

    ``path``.pindex is written, or ``output``, or with ``cache`` a file in the user's cache; `pparse.open` finds the
    first and the last. Of gzip, there is a point to begin at about every ``spacing`` bytes of the content (4 MiB; 64
    KiB at least); of rows, every 64th. An existing file that is no index is replaced with ``force`` only. ``format``
    names that of rows. If a gzip file is damaged, what precedes that is indexed, and the report's ``error`` says why no
    more.

    Raises `FormatError` for another file, `OptionError`, `SourceError`, `LimitError`, `MalformedError` if there is
    nothing to index, ValueError for a spacing that is too small.
    """
    path = os.fspath(path)
    with opened(path, stats) as (source, is_gzip):
        if not is_gzip and spacing is not None:
            raise OptionError(f"{told('--spacing', 'spacing=')} is for gzip; of rows, every 64th is in the index")
        target = place_of(source, path, None if output is None else os.fspath(output), cache=cache)
        _refuse_other(target, path, force=force)
        if cache:
            folder = os.path.dirname(target)
            with refused("cannot create the folder", folder):
                os.makedirs(folder, mode=0o700, exist_ok=True)
        if not is_gzip:
            more = {"progress": progress, "cancel": cancel, "stats": stats, "limits": limits, "format": format}
            with open_document(path, options={"index": "none"}, budget=budget, **more) as document:  # type: ignore[arg-type]
                rows = rows_of(document)
                with AtomicFile(target, make_folders=True) as file:
                    told_of = write_index(rows, document.result.parser.unsure_from, source, file.stream)
                    document.data.check_unchanged()
            return RowReport(target, source.end, *told_of)
        with AtomicFile(target, make_folders=True) as file:
            report = build_index(
                source,
                file.stream,
                spacing=parse_size(spacing if spacing is not None else "4MiB"),
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
    return report._replace(path=target)


def _refuse_other(target: str, path: str, *, force: bool) -> None:
    """Raise `OptionError` for an output that exists and is not an index."""
    refuse_existing([target], path, force=True)
    if force or not os.path.isfile(target):
        return
    with open(target, "rb") as file:
        if file.read(len(NAME)) not in (NAME, ROWS_NAME):
            raise OptionError(
                f"{target} exists and is not an index; name another output, or replace it with "
                f"{told('--force', 'force=True')}"
            )
