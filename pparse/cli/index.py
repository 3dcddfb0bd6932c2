"""Index a big file of gzip or JSON Lines, so that what is far in it is reached without reading all before it.

Writes FILE.pindex, which every command that reads FILE then uses: of gzip, places about every 4 MiB of the content
where decoding can begin (about 0.5 % of the content); of JSON Lines, where every 64th row begins (1/8 byte a row). FILE
is read once; of gzip, the checksums are compared. If FILE has changed, the index is ignored; one of rows, also if FILE
was copied or renamed, or has other attributes. Other commands use an index elsewhere with -O index=OUT, and none with
-O index=none.
"""

from __future__ import annotations

from pparse.cli.common import DAMAGED, OK, resources, size_from
from pparse.cli.common import open_file as open_document
from pparse.display.text import safe
from pparse.errors import FormatError, MalformedError, PathError, SourceError
from pparse.limits import count_words, format_size, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.compressed.gzip_index import IndexReport
    from pparse.data.base import Range
    from pparse.data.index_files import Kind
    from pparse.limits import MemoryBudget
    from pparse.writers.indexing import RowReport

EXAMPLES: Final = """examples:
  pparse index backup.tar.gz
  pparse index backup.tar.gz --cache --spacing 1MiB
  pparse index backup.tar.gz -o elsewhere.pindex
  pparse index backup.tar.gz --check
  pparse index rows.jsonl
"""
_SPACING: Final = "4MiB"
_FORMATS: Final = ("gzip", "json-lines")


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a file of gzip or JSON Lines")
    where = parser.one_of()
    parser.add("-o --output OUT", "the index to write (FILE.pindex)", where)
    parser.add("--cache", "write it to the cache ($XDG_CACHE_HOME or ~/.cache), where it is also found", where)
    spacing = f"content between two places; smaller: faster reads, larger index ({_SPACING})"
    least = size_from(64 << 10, "64KiB")  # what gzip_index allows, which is not imported here
    parser.add("--spacing SIZE", f"of gzip: {spacing}", type=least)
    parser.add("--check", "write nothing; compare the existing index with all of FILE")
    parser.add("--force", "replace an existing file, even if it is not an index")
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if options.format not in (None, *_FORMATS):
        raise FormatError(f"only {' and '.join(_FORMATS)} are indexed, not {options.format}", source=options.file)
    for name, _ in options.options:
        raise PathError("this command has no such option (-O)", path=name)
    return _check(options, out) if options.check else _build(options, out)


def _build(options: Any, out: Output) -> int:
    from pparse.writers.indexing import RowReport, index

    report = index(
        options.file,
        options.output,
        cache=options.cache,
        spacing=options.spacing,
        force=options.force,
        format=options.format,
        **resources(options, out),
    )
    if isinstance(report, RowReport):
        _tell_rows(options, out, report)
        return OK
    _tell(options, out, report)
    return DAMAGED if report.error is not None else OK


def _tell(options: Any, out: Output, report: IndexReport) -> None:
    """Report what was written."""
    error, path = report.error, report.path
    spacing = options.spacing or parse_size(_SPACING)
    if options.json:
        found = {
            "file": options.file,
            "output": path,
            "points": report.points,
            "spacing": spacing,
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
    out.say(
        f"{safe(path)}: {count_words(report.points, 'point')}, {format_size(report.file_size)}, {share} of the "
        f"{report.size:,} bytes in {count_words(report.members, 'member')}"
    )
    if error is not None:
        rest = report.source - report.end
        left = f"; the {count_words(rest, 'byte')} from {report.end:,} on are not indexed" if rest else ""
        error.source = options.file
        out.error(f"{error}; the index of the part before that was written{left}")
    elif report.size > 2 * spacing and report.size // report.points > 2 * spacing:
        apart = format_size(report.size // report.points)
        out.notes([f"points are {apart} apart, since the file has few places where decoding can begin"])


def _tell_rows(options: Any, out: Output, report: RowReport, *, sound: bool = False) -> None:
    """Report what was written of a file of rows, or that an index of it is ``sound``."""
    if options.json:
        told = {"file": options.file, "index" if sound else "output": report.path, "points": report.points}
        told |= {"rows": report.rows, "content_size": report.size, "index_size": report.file_size, "complete": True}
        out.json(told | {"sound": True} if sound else told)
        return
    counts = count_words(report.points, "point"), count_words(report.rows, "row")
    text = "{} of {}, all correct" if sound else f"{{}}, {format_size(report.file_size)}, of {{}}"
    out.say(f"{safe(report.path)}: {text.format(*counts)}")


def _existing(kind: type[Kind], options: Any, source: Range, budget: MemoryBudget) -> Kind:
    """Return the index of ``source`` that is to be checked. Raises `SourceError` if there is none."""
    from pparse.data.index_files import find_index, load_index
    from pparse.writers.indexing import place_of

    if options.output or options.cache:
        return load_index(kind, place_of(source, options.file, options.output, cache=options.cache), source, budget)
    found, errors = find_index(kind, source, budget)
    if found is None:
        raise errors[0] if errors else SourceError("it has no index", source=options.file)
    return found


def _check_rows(options: Any, out: Output, source: Range) -> None:
    """Compare the index of a file of rows with all of it. What is wrong with rows is the business of `pparse check`."""
    from pparse.tree.index import STRIDE
    from pparse.tree.row_index import RowIndex
    from pparse.writers.indexing import RowReport, rows_of

    options.options = [("index", "none")]
    with open_document(options, out) as document:
        index = rows_of(document)
        known = _existing(RowIndex, options, source, document.session.budget)
        report = RowReport(known.name, source.end, known.rows, known.points, known.file_size)
        known.close()
        if known.unsure_from != document.result.parser.unsure_from:
            raise MalformedError("the index is wrong: the numbers of other rows are uncertain", source=known.name)
        if index.count != known.rows or index.offsets[:: STRIDE // index.stride] != known.offsets:
            raise MalformedError("the index is wrong: the rows begin elsewhere", source=known.name)
        _tell_rows(options, out, report, sound=True)


def _check(options: Any, out: Output) -> int:
    from pparse.compressed.gzip_index import GzipIndex, check_index
    from pparse.limits import MemoryBudget
    from pparse.writers.indexing import opened

    budget = MemoryBudget(options.budget)
    with opened(options.file, out.stats) as (source, is_gzip):
        if not is_gzip:
            _check_rows(options, out, source)
            return OK
        index = _existing(GzipIndex, options, source, budget)
        check_index(index, source, budget=budget, limits=options.limits, progress=out.progress)
    if options.json:
        told = {"file": options.file, "index": index.name, "points": index.points, "content_size": index.size}
        out.json({**told, "index_size": index.file_size, "complete": index.complete, "sound": True})
    else:
        part = "" if index.complete else f" of the first {index.size:,} bytes"
        out.say(f"{safe(index.name)}: {count_words(index.points, 'point')}{part}, all correct")
    index.close()
    return OK
