"""Index a big file of gzip or JSON Lines, so that what is far in it is reached without reading all before it.

Writes FILE.pindex, which every command that reads FILE then uses: of gzip, places about every 4 MiB of the content
where decoding can begin (about 0.5 % of the content); of JSON Lines, where every 64th row begins (1/8 byte a row). FILE
is read once; of gzip, the checksums are compared. If FILE has changed, the index is ignored (one of rows by the
modification time, too). Other commands use an index elsewhere with -O index=OUT, and none with -O index=none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from copy import copy

from pparse.cli.common import DAMAGED, OK, size_from
from pparse.cli.common import open_file as open_document
from pparse.cli.output import refuse_existing
from pparse.display.text import safe
from pparse.errors import FormatError, MalformedError, OptionError, PathError, SourceError, system_error
from pparse.limits import count_words, format_size, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.compressed.gzip_index_builder import IndexReport
    from pparse.data.reader import Range
    from pparse.tree.result import Result

EXAMPLES: Final = """examples:
  pparse index backup.tar.gz
  pparse index backup.tar.gz --cache --spacing 1MiB
  pparse index backup.tar.gz -o elsewhere.pindex
  pparse index backup.tar.gz --check
  pparse index rows.jsonl
"""
_SPACING: Final = "4MiB"


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a file of gzip or JSON Lines")
    where = parser.add_mutually_exclusive_group()
    parser.add("-o --output OUT", "the index to write (FILE.pindex)", where)
    parser.add("--cache", "write it to the cache ($XDG_CACHE_HOME or ~/.cache), where it is also found", where)
    spacing = f"content between two places; smaller: faster reads, larger index ({_SPACING})"
    least = size_from(64 << 10, "64KiB")  # what gzip_index_builder allows, which is not imported here
    parser.add("--spacing SIZE", f"of gzip: {spacing}", type=least)
    parser.add("--check", "write nothing; compare the existing index with all of FILE")
    parser.add("--force", "replace an existing file, even if it is not an index")
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.data.files import exists, open_file

    for name, _ in options.options:
        raise PathError("this command has no such option (-O)", path=name)
    if options.file == "-" or ("::" in options.file and not exists(options.file)):
        raise OptionError(f"{options.file} is not a separate file; only such a file can be indexed")
    with open_file(options.file, stats=out.stats) as data:
        source = data.range(0, data.size or 0)
        is_gzip = data.pread(0, 3).startswith(b"\x1f\x8b\x08")
        try:
            if options.format not in (None, "gzip") or not is_gzip:
                return _index_rows(options, out, source)
            options.spacing = options.spacing or parse_size(_SPACING)
            return _check(options, out, source) if options.check else _build(options, out, source)
        finally:
            out.progress.clear()


def _place(options: Any, source: Range) -> str:
    """Return where the index is written."""
    from pparse.data.index_files import SUFFIX, cache_path

    if options.cache:
        return cache_path(source)
    return str(options.output or options.file + SUFFIX)


def _refuse_existing(path: str, options: Any) -> None:
    """Raise `OptionError` for an output that exists and is not an index."""
    from pparse.compressed.gzip_index import NAME
    from pparse.tree.row_index import NAME as ROWS_NAME

    refuse_existing([path], options.file, force=True)
    if options.force or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if file.read(len(NAME)) not in (NAME, ROWS_NAME):
            raise OptionError(f"{path} exists and is not an index; name another output, or replace it with --force")


def _prepare_place(options: Any, source: Range) -> str:
    """Return where the index is written: nothing else is there, and the folder of the cache is."""
    path = _place(options, source)
    _refuse_existing(path, options)
    if options.cache:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        except OSError as error:
            raise system_error(error, "cannot create the folder", os.path.dirname(path)) from error
    return path


def _index_rows(options: Any, out: Output, source: Range) -> int:
    """Write the index of a file of rows, or check one. What is wrong with rows is the business of `pparse check`."""
    from pparse.data.index_files import find_index, load_index
    from pparse.tree.index import STRIDE
    from pparse.tree.row_index import RowIndex, write_index
    from pparse.writers.files import AtomicFile

    if options.spacing:
        raise OptionError("--spacing is for gzip; of rows, every 64th is in the index")
    options.options = [("index", "none")]
    result: Result | None = None
    with open_document(options, out) as document:
        with suppress(FormatError):  # which does not know what can be indexed
            result = document.result
        if result is None or not result.parser.keeps_row_index or result.extraction is not document:
            raise FormatError("not a file of gzip or JSON Lines; only such files are indexed", source=options.file)
        budget = document.session.budget
        told: dict[str, object] = {"file": options.file}
        if not options.check:
            path = _prepare_place(options, source)
            with AtomicFile(path, make_folders=True) as file:
                rows, points, size = write_index(result.root.index_to(None), source, file.stream)
                document.data.check_unchanged()
            told |= {"output": path}
            text = f"{count_words(points, 'point')}, {format_size(size)}, of {count_words(rows, 'row')}"
        else:
            if options.output or options.cache:
                known = load_index(RowIndex, _place(options, source), source, budget)
            else:
                found, errors = find_index(RowIndex, source, budget)
                if found is None:
                    raise errors[0] if errors else SourceError("it has no index", source=options.file)
                known = found
            path, rows, points, size = known.name, known.rows, known.points, known.file_size
            known.close()
            index = result.root.index_to(None)
            if index.count != rows or index.offsets[:: STRIDE // index.stride] != known.offsets:
                raise MalformedError("the index is wrong: the rows begin elsewhere", source=path)
            told |= {"index": path}
            text = f"{count_words(points, 'point')} of {count_words(rows, 'row')}, all correct"
    out.progress.clear()
    if options.json:
        told |= {"points": points, "rows": rows, "content_size": source.end, "index_size": size, "complete": True}
        out.json(told | {"sound": True} if options.check else told)
    else:
        out.line(f"{safe(path)}: {text}")
    return OK


def _build(options: Any, out: Output, source: Range) -> int:
    from pparse.budget import MemoryBudget
    from pparse.compressed.gzip_index_builder import build_index
    from pparse.writers.files import AtomicFile

    path = _prepare_place(options, source)
    with AtomicFile(path, make_folders=True) as file:
        report = build_index(
            source,
            file.stream,
            spacing=options.spacing,
            budget=MemoryBudget(options.budget),
            limits=options.limits,
            progress=out.progress,
        )
        if report.error is not None and not report.size:  # nothing to write
            failed = copy(report.error)
            failed.reason = f"{failed.reason}; no index was written"
            failed.source = source.data.name
            raise failed from report.error
    out.progress.clear()
    _tell(options, out, path, report)
    return DAMAGED if report.error is not None else OK


def _tell(options: Any, out: Output, path: str, report: IndexReport) -> None:
    """Report what was written."""
    error = report.error
    if options.json:
        found = {
            "file": options.file,
            "output": path,
            "points": report.points,
            "spacing": options.spacing,
            "members": report.members,
            "content_size": report.size,
            "indexed_bytes": report.end,
            "size": report.source,
            "index_size": report.file_size,
            "complete": error is None,
            "reason": None if error is None else error.reason,
            "offset": None if error is None else error.offset,
        }
        out.json(found)
        return
    share = f"{100 * report.file_size / report.size:.2f}%" if report.size else "0%"
    out.line(
        f"{safe(path)}: {count_words(report.points, 'point')}, {format_size(report.file_size)}, {share} of the "
        f"{report.size:,} bytes in {count_words(report.members, 'member')}"
    )
    if error is not None:
        rest = report.source - report.end
        left = f"; the {count_words(rest, 'byte')} from {report.end:,} on are not indexed" if rest else ""
        error.source = options.file
        out.error(f"{error}; the index of the part before that was written{left}")
    elif report.size > 2 * options.spacing and report.size // report.points > 2 * options.spacing:
        apart = format_size(report.size // report.points)
        out.notes([f"points are {apart} apart, since the file has few places where decoding can begin"])


def _check(options: Any, out: Output, source: Range) -> int:
    from pparse.budget import MemoryBudget
    from pparse.compressed.gzip_index import GzipIndex
    from pparse.compressed.gzip_index_builder import check_index
    from pparse.data.index_files import find_index, load_index

    budget = MemoryBudget(options.budget)
    if options.output or options.cache:
        index = load_index(GzipIndex, _place(options, source), source, budget)
    else:
        found, errors = find_index(GzipIndex, source, budget)
        if found is None:
            raise errors[0] if errors else SourceError("it has no index", source=options.file)
        index = found
    check_index(index, source, budget=budget, limits=options.limits, progress=out.progress)
    out.progress.clear()
    if options.json:
        told = {
            "file": options.file,
            "index": index.name,
            "points": index.points,
            "content_size": index.size,
            "index_size": index.file_size,
            "complete": index.complete,
            "sound": True,
        }
        out.json(told)
    else:
        part = "" if index.complete else f" of the first {index.size:,} bytes"
        out.line(f"{safe(index.name)}: {count_words(index.points, 'point')}{part}, all correct")
    index.close()
    return OK
