"""Index a gzip file: find places about every 4 MiB of its content where decoding can begin.

Writes FILE.pindex (about 0.5 % of the content). Every command that reads FILE then uses it: a read in the middle need
not decode everything before it. FILE is decoded once, and its checksums are compared. An index never gives wrong bytes:
if FILE has changed, the index is ignored. Other commands use an index elsewhere with -O index=OUT, and none with
-O index=none.
"""

from __future__ import annotations

from pparse.cli.common import DAMAGED, OK, size_from
from pparse.display.text import safe
from pparse.errors import FormatError, PathError, SourceError
from pparse.limits import count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.compressed.gzip_index_builder import IndexReport

EXAMPLES: Final = """examples:
  pparse index backup.tar.gz
  pparse index backup.tar.gz --cache --spacing 1MiB
  pparse index backup.tar.gz -o elsewhere.pindex
  pparse index backup.tar.gz --check
"""
_SPACING: Final = "4MiB"


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a gzip file")
    where = parser.add_mutually_exclusive_group()
    parser.add("-o --output OUT", "the index to write (FILE.pindex)", where)
    parser.add("--cache", "write it to the cache ($XDG_CACHE_HOME or ~/.cache), where it is also found", where)
    spacing = f"content between two places; smaller: faster reads, larger index ({_SPACING})"
    least = size_from(64 << 10, "64KiB")  # what gzip_index_builder allows, which is not imported here
    parser.add("--spacing SIZE", spacing, type=least, default=_SPACING)
    parser.add("--check", "write nothing; compare the existing index with all of FILE")
    parser.add("--force", "replace an existing file, even if it is not an index")
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if options.format not in (None, "gzip"):
        raise FormatError(f"only gzip files are indexed, not {options.format}", source=options.file)
    for name, _ in options.options:
        raise PathError("this command has no such option (-O)", path=name)
    try:
        return _check(options, out) if options.check else _build(options, out)
    finally:
        out.progress.clear()


def _build(options: Any, out: Output) -> int:
    from pparse.writers.gzip_index import index

    report = index(
        options.file,
        options.output,
        cache=options.cache,
        spacing=options.spacing,
        force=options.force,
        budget=options.budget,
        limits=options.limits,
        progress=out.progress,
        stats=out.stats,
    )
    out.progress.clear()
    _tell(options, out, report)
    return DAMAGED if report.error is not None else OK


def _tell(options: Any, out: Output, report: IndexReport) -> None:
    """Report what was written."""
    error, path = report.error, report.path
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


def _check(options: Any, out: Output) -> int:
    from pparse.budget import MemoryBudget
    from pparse.compressed.gzip_index import find_index, load_index
    from pparse.compressed.gzip_index_builder import check_index
    from pparse.writers.gzip_index import opened, place_of

    budget = MemoryBudget(options.budget)
    with opened(options.file, out.stats) as source:
        if options.output or options.cache:
            index = load_index(place_of(source, options.file, options.output, cache=options.cache), source, budget)
        else:
            found, errors = find_index(options.file, source, budget)
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
