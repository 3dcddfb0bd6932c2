"""Text output: the table printer, status words, safe text, the report on a truncated file."""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock

from pparse.cli import screen, tell
from pparse.cli.common import DAMAGED, OK, USAGE, row_of
from pparse.display.text import columns_of, fitted, folded, safe, shorten, told_apart
from pparse.document.opening import (
    Resume,
    advise,
    downloads,
    first_hole,
    is_inside,
    outermost_file,
    outside,
    resume_lines,
)
from pparse.errors import DataError, PathError, PparseError, system_error
from pparse.findings import BROKEN, Severity, Status
from pparse.limits import MIB, are, count_words, format_size
from pparse.tensors.status import status_words, whole_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from threading import Event, Thread
    from typing import Any, BinaryIO, Final

    from pparse.data.base import IoStats, Range
    from pparse.document.extraction import Extraction, Session
    from pparse.findings import Finding
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# -- The one progress line: on stderr, only on a terminal, only after half a second ------------------------------------

_AFTER = 0.5
_EVERY = 0.1
# Of less than so many bytes, or of things that are counted otherwise, nobody asks how long they take.
_WORTH = 8 << 20
# After so many seconds without a report, what is known of the reads is drawn, with the time since the command began.
_SILENT = 0.4


class Progress:
    """Called with ``(done, total, what)``; draws one line that is wiped at the end.

    Between `start` and `stop` a thread draws it where nobody calls for long: what decodes, compares or formats need not
    report anything. It knows how far the file that `watch` was given is read.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        self._enabled = is_shown and sys.stderr.isatty()
        self._begun = time.monotonic()
        self._next = self._begun + _AFTER
        self._drawn = False
        self._what = "working"
        self._from = self._begun, 0  # when what is done now began, and with how much
        self._session: Session | None = None
        self._lock = allocate_lock()
        self._thread: Thread | None = None
        self._ended: Event | None = None

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it."""
        return self._enabled

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """Draw, if it is time."""
        if not self._enabled:
            return
        now = time.monotonic()
        if what != self._what or done < self._from[1]:
            self._what, self._from = what, (now, done)
        if total is not None and done >= total:
            self.clear()
            return
        if now < self._next:
            return
        self._draw(now, done, total, what, self._speed(now, done, total))

    def _speed(self, now: float, done: int, total: int | None) -> str:
        """Return how fast bytes are done, and how long the rest takes, in words; nothing if that is not clear yet."""
        since, first = self._from
        if total is None or total < _WORTH or now - since < 2 * _AFTER or done <= first:
            return ""
        rate = (done - first) / (now - since)
        left = round((total - done) / rate)
        words = (
            f"{left} s" if left < 100 else f"{left // 60}:{left % 60:02} min" if left < 6000 else f"{left / 3600:.1f} h"
        )
        return f", {format_size(int(rate))}/s, {words} left"

    def _draw(self, now: float, done: int, total: int | None, what: str, more: str = "") -> None:
        share = f"{100 * done // total:3d}% " if total else ""
        amount = f" ({format_size(done)} of {format_size(total)})" if total and total > 1 << 20 else ""
        # One column less than there are: a full line would wrap, and what wrapped cannot be wiped.
        line = fitted(f"{share}{safe(what)}{amount}{more}", screen(sys.stderr)[0] - 1)
        with self._lock:
            if now < self._next:  # something was printed meanwhile
                return
            self._next = now + _EVERY
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._drawn = True

    def watch(self, session: Session) -> None:
        """From now on, draw how far the file of ``session`` is read."""
        self._session = session

    def start(self) -> None:
        """Begin to draw without being called."""
        if self._enabled and self._thread is None:
            from threading import Event, Thread

            self._ended = Event()
            self._thread = Thread(target=self._tick, args=(self._ended,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End what `start` began, and wipe the line."""
        if self._thread is not None and self._ended is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        self.clear()

    def _tick(self, ended: Event) -> None:
        while not ended.wait(_SILENT / 2):
            now = time.monotonic()
            if now < self._next + _SILENT:
                continue
            session = self._session
            source = session.source if session is not None else None
            done, total = (0, None) if source is None else (source.place, source.size)
            what = (session.doing if session is not None else "") or self._what
            try:
                self._draw(now, min(done, total or 0), total, what, f", {now - self._begun:.0f} s")
            except (OSError, ValueError):  # nobody reads standard error, or it is closed
                return

    def clear(self) -> None:
        """Wipe the line; none is drawn for half a second."""
        if not self._enabled:
            return
        with self._lock:
            self._next = time.monotonic() + _AFTER
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False


# How many ends of rows a table keeps.
_MOST_ENDS: Final = 1_000
_COLORS: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}


class Output:
    """Standard output: buffered, in the encoding of the terminal, coloured if wanted."""

    def __init__(self, *, color: str = "auto") -> None:
        self._out: Any = sys.stdout
        self.terminal = self._out.isatty()
        self.columns, self.height = screen(self._out) if self.terminal else (0, 0)
        """Columns and lines of the terminal; 0 for anything else, where nothing is shortened."""
        no_color = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.color = color == "always" or (color == "auto" and self.terminal and not no_color)
        self.stats: IoStats | None = None
        self.progress = Progress()
        self.wrote: list[str] = []
        """The files that `write` wrote."""

    def line(self, text: str = "") -> None:
        """Write one line."""
        self.write(text + "\n")

    def say(self, text: str, indent: int = 2) -> None:
        """Write a line of words; in a terminal wrapped, what follows the first line ``indent``-ed."""
        self.line(folded(text, self.columns, indent) if self.columns else text)

    def write(self, text: str) -> None:
        """Write text as it is; a progress line on the terminal is cleared first."""
        if self.terminal:
            self.progress.clear()
        self._out.write(text)

    @property
    def writer(self) -> Callable[[str], object]:
        """What `write` does, for many short lines; only as long as nothing else is written to the terminal."""
        return self.write if self.terminal else self._out.write

    def json(self, found: dict[str, object], *, indent: int | None = None) -> None:
        """Write a JSON document, in a line if there is no ``indent``."""
        from json import dumps

        self.line(dumps({"schema": 1, **found}, indent=indent, default=str))  # what a plug-in's metadata may hold

    def field(self, name: str, value: str, *, full: bool = True) -> None:
        """Write a name and a value; if not in ``full``, on one line of the terminal."""
        line = f"{self.paint(f'{name:11}', 'dim')} {value}"
        self.say(line if full or not self.columns else fitted(line, self.columns, head=1), indent=12)

    def notes(self, notes: Iterable[str]) -> None:
        """Write notes, a line each."""
        for note in notes:
            self.say(f"{self.paint('note', 'dim')}    {safe(note)}", indent=8)

    def lines(self, lines: Iterable[str]) -> None:
        """Write lines of any text."""
        for line in lines:
            self.say(safe(line), indent=4 if line.startswith(" ") else 2)

    def binary(self) -> Any:
        """Return the stream for bytes."""
        self._out.flush()
        return self._out.buffer

    def flush(self) -> None:
        """Flush the output, and print the trace of reads if asked for."""
        self.progress.clear()
        self._out.flush()
        stats, self.stats = self.stats, None
        if stats is not None:
            for source, offset, length in stats.log or ():
                tell(f"read {safe(source)} [0x{offset:x}, 0x{offset + length:x}) {length} bytes")
            more = f" ({stats.dropped} ranges not shown)" if stats.dropped else ""
            tell(f"read {stats.bytes} bytes in {stats.reads} reads{more}")

    def error(self, text: str) -> None:
        """Write a message to stderr, behind what was written to the output."""
        self.progress.clear()
        tell(f"pparse: {shorten(safe(text), 2_000)}")

    @property
    def kind(self) -> tuple[bool, int, int, bool]:
        """What others must know to write as this does."""
        return self.terminal, self.columns, self.height, self.color

    def tell_written(self, code: int) -> None:
        """Report on stderr the files that were written, in a terminal, or if something is wrong with what they hold."""
        if code == DAMAGED or (code == OK and sys.stderr.isatty()):
            for path in self.wrote:
                self.error(f"wrote {path}, {format_size(os.path.getsize(path))}")

    def paint(self, text: str, color: str) -> str:
        """Return ``text`` in a colour, if colours are on."""
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if self.color else text

    def status(self, status: Status, verified: bool | None = None) -> str:
        """Return a status for display; ``complete`` always with what was verified."""
        color = {Status.COMPLETE: "green", Status.UNSUPPORTED: "yellow"}.get(status, "red")
        return self.paint(status_words(status, verified), color)

    def findings(self, findings: Iterable[Finding], limit: int = 10, shows_all: str = "check") -> None:
        """Write findings, a line each, at most ``limit``; errors first: they must not be lost among warnings.
        ``shows_all``: the command that does."""
        found = sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)
        for finding in found[:limit]:
            self.finding(finding)
        if len(found) > limit:
            self.say(f"… and {len(found) - limit} more; 'pparse {shows_all}' shows all")

    def finding(self, finding: Finding, path: str | None = None) -> None:
        """Write one finding; ``path``: what to call its place, if not by its path."""
        color = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity, "dim")
        source = f"{safe(finding.source)}: " if finding.source else ""
        text = shorten(safe(finding.words(finding.path if path is None else path)))
        self.say(f"{self.paint(f'{finding.severity!s:7}', color)} {source}{text}", indent=8)


class Recorded(Output):
    """Keeps what a command would write, to be written in another process to its output ``like`` this one."""

    def __init__(self, like: tuple[bool, int, int, bool]) -> None:
        self.terminal, self.columns, self.height, self.color = like
        self.stats, self.progress, self.wrote = None, Progress(is_shown=False), []
        self.told: list[tuple[bool, str]] = []
        """What was written, in order: whether it is an error, and the text."""
        self._out = self

    def write(self, text: str) -> None:
        """Keep text."""
        if self.told and not self.told[-1][0]:
            text = self.told.pop()[1] + text
        self.told.append((False, text))

    def error(self, text: str) -> None:
        """Keep a message."""
        self.told.append((True, text))

    def flush(self) -> None:
        """Do nothing: it is kept."""


class JsonRows:
    """Writes rows as ``--json`` does, in one document that begins with ``head``, or as ``--jsonl``, one a line."""

    def __init__(self, out: Output, options: Any, head: dict[str, object], label: str) -> None:
        from json import dumps

        self._out = out
        self._options = options
        self._dumps = dumps
        self._comma = "\n"
        if options.json:
            out.write(f'{dumps({"schema": 1, "file": options.file, **head})[:-1]}, "{label}": [')

    def add(self, row: dict[str, object]) -> None:
        """Write a row."""
        if self._options.jsonl:
            self._out.line(self._dumps(row_of(self._options, row)))
        else:
            self._out.write(f"{self._comma}{self._dumps(row)}")
            self._comma = ",\n"

    def end(self, tail: dict[str, object]) -> None:
        """End the document with what is known only now."""
        self._out.line(f"\n], {self._dumps(tail)[1:]}")


class Table:
    """Rows with aligned columns, not kept in memory: widths come from the first rows and grow when needed.

    ``align`` has ``<`` or ``>`` per column, ``<`` for the first; the last column is not padded. In a terminal, and not
    in ``full``, a row takes one line: the longest cells on the left are shortened, the last at its end, others in the
    middle, so that they can be told apart. If all of the first rows end with words in ``usual``, those that most of
    them have are left out: `usual` says which.
    """

    WINDOW = 100  #: rows that wait for the widths, and in a terminal to be told apart
    LETTERS = 1 << 18  #: most characters of text that wait for the widths
    LEAST = 10  #: columns of a terminal that a shortened cell takes at least
    LAST = 20  #: and the last one of a row

    def __init__(
        self, out: Output, header: Sequence[str], align: str, *, full: bool = False, usual: Collection[str] = ()
    ) -> None:
        self._out = out
        self._write = out.writer
        self._align = align
        self._header = header
        self._waiting: list[tuple[str, ...]] = []
        self._letters = 0
        self.has_written = False
        """Whether any row was written."""
        self._width = 0
        self._pattern = ""
        self._ends: dict[tuple[str, ...], str] = {}  # of rows, by cells: tensors differ in their names
        self._columns = 0 if full else out.columns
        self._words = usual if self._columns else ()
        self.usual = ""
        """What rows end with that show nothing at their end; empty: all rows show it."""
        self._widths: list[int] = []
        self._most = self._columns

    def row(self, first: str, *others: str) -> None:
        """Add a row of safe text."""
        if self._pattern:
            end = self._ends.get(others)
            if end is None:
                if len(self._ends) >= _MOST_ENDS:
                    self._ends.clear()
                end = self._ends[others] = self._pattern % others
            self._write(first.ljust(self._width) + end)
            return
        cells = first, *others
        self._waiting.append(cells)
        self._letters += sum(map(len, cells))
        if len(self._waiting) >= self.WINDOW or self._letters > self.LETTERS:
            self.close()

    def close(self) -> None:
        """Write the waiting rows: of the first ones the widths are known now."""
        if not self.has_written:
            self._begin()
        rows, self._waiting, self._letters = self._waiting, [], 0
        if self._columns:
            for line in self._lines(map(self._shown, rows)):
                self._out.line(line)
        else:
            for cells in rows:
                self.row(*cells)

    def _shown(self, cells: tuple[str, ...]) -> tuple[str, ...]:
        return (*cells[:-1], "") if cells[-1] == self.usual else cells

    def _begin(self) -> None:
        """Find the widths, and write the header."""
        self.has_written = True
        ends = [cells[-1] for cells in self._waiting]
        if ends and self._words and set(ends) <= set(self._words):
            self.usual = max(self._words, key=ends.count)
            self._header = (*self._header[:-1], "")
        if self._columns:
            rows = [self._header, *map(self._shown, self._waiting)]
            self._widths, self._most = self._fit([max(map(columns_of, cells)) for cells in zip(*rows, strict=True)])
        else:
            self._make_pattern()
        if self._waiting:
            head, *others = self._header
            if self._columns:
                (line,) = self._lines([self._header])
            else:
                line = head.ljust(self._width) + self._pattern[:-1] % tuple(others)
            self._out.line(self._out.paint(line, "dim"))

    def _make_pattern(self) -> None:
        """Find the width of the first cell, and what follows it as a %-pattern: half the time of padding each cell."""
        # One very long name must not push the other columns off the screen.
        self._width, *widths = [
            max(len(head), *(len(cell) for cell in cells if len(cell) <= 80), 0)
            for head, *cells in zip(self._header, *self._waiting, strict=True)
        ]
        sides = zip(self._align[1:], widths, strict=True)
        columns = [f"%{'-' if side == '<' else ''}{width}s" for side, width in sides]
        if self._align[-1] == "<":
            columns[-1] = "%s"
        self._pattern = "  ".join(["", *columns]) + "\n"

    def _fit(self, widths: list[int], least: int = LAST) -> tuple[list[int], int]:
        """Return the widths that a row can have in the terminal, and the most that one on the left can have.

        The last column gives way first, down to ``least``: it has reasons, which are told below, and others names.
        """
        *left, last = widths
        room = self._columns - 2 * sum(map(bool, widths[1:]))
        last = min(last, max(room - sum(left), least))
        most = self._most + 1
        while True:
            most -= 1
            capped = [min(w, most) if side == "<" else w for side, w in zip(self._align, left, strict=False)]
            if sum(capped) <= room - last or most <= self.LEAST:
                return [*capped, last], most

    def _lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """Yield rows for a terminal; a cell that is wider than its column takes what is free.

        Of a row that has a status where others have none, as much of it is shown as is free, and its first word.
        """
        fits = []
        for cells in rows:
            taken = [columns_of(cell) for cell in cells]
            least = self.LAST if self._widths[-1:] != [0] else columns_of(cells[-1].partition(":")[0])
            widths, _ = self._fit([max(pair) for pair in zip(self._widths, taken, strict=True)], least)
            fits.append((cells, taken, widths))
        shown = [
            told_apart((cells[at], widths[at]) for cells, taken, widths in fits if taken[at] > widths[at])
            for at in range(len(self._align) - 1)
        ]
        for cells, taken, widths in fits:
            line = ""
            for at, (side, width, cell) in enumerate(zip(self._align, widths, cells, strict=True)):
                if taken[at] > width:
                    cell = shown[at][cell, width] if at < len(shown) else fitted(cell, width, head=1)
                pad = " " * (width - columns_of(cell))
                line += (cell + pad if side == "<" else pad + cell) + "  "
            yield line.rstrip()


def cut_to_dict(document: Extraction, status: Status) -> dict[str, object]:
    """Return what is known of the missing part of a truncated document, as plain data for JSON."""
    files = _to_resume(document, status)
    return {
        "missing_bytes": (
            document.result.listing.missing() if status is Status.TRUNCATED and not _is_packed(document) else None
        ),
        "resume_at": next((file.at for file in files if file.helps), None),
        "resume": [file.to_dict() for file in files],
    }


def to_resume(document: Extraction) -> list[Resume]:
    """Return the files to resume in order to complete a document, as far as is known now."""
    from pparse.document.registry import viewer_for
    from pparse.recovery.document_verdict import document_status

    try:
        viewer = viewer_for(document)
        return viewer.extent().resume if viewer is not None else _to_resume(document, document_status(document))
    except DataError:  # too little of it exists for that
        return []


def _to_resume(document: Extraction, status: Status) -> list[Resume]:
    """Return the files to resume for a document without tensors: the outermost one, if that was truncated."""
    if status is Status.COMPLETE:
        return []
    outer, hole, cut = outermost_file(document), first_hole(document), status is Status.TRUNCATED
    if hole is not None:
        files = [Resume(outer.name, hole, hole=True)]
    elif is_inside(document):
        files = outside(document) if cut or outer.file_parts else []
    else:
        files = downloads(document, document.size or 0, cut=cut)
    advise(outer, files, None)
    return files


def report_document_cut(out: Output, document: Extraction, status: Status) -> None:
    """Report where a truncated document without tensors ends, what is missing as far as known, and where to resume."""
    files = _to_resume(document, status) if status in (Status.TRUNCATED, Status.DAMAGED) else []
    if files and files[0].hole:
        what = f"{safe(files[0].file)} around it" if is_inside(document) else "the file"
        out.say(
            f"{out.paint('not written', 'red')}: {what} has its full size, but parts of it were never written "
            f"(file holes) and read as zeros; resume the download at byte {files[0].at}"
        )
        return
    if status is not Status.TRUNCATED:
        out.lines(resume_lines(files))
        return
    size, kind = document.size or 0, document.root.kind
    missing = document.result.listing.missing()
    if missing is not None:
        of_content = " of its content" if _is_packed(document) else ""
        known = f"at least {count_words(missing, 'byte')}{of_content} {are(missing)} missing"
    else:
        known = f"{document.format} does not tell how much is missing"
    if not files:  # its end exists: the findings say what is wrong
        _report_whole_around(out, document)
        return
    inside = f" inside its {kind}" if size and kind != "unknown" else ""
    cut = f"the document ends at byte {size}{inside}" if missing is None else f"the file ends at byte {size}"
    first, *more = resume_lines(files)
    out.say(f"{out.paint('truncated', 'red')}: {cut}; {known}; {safe(first)}")
    out.lines(more)


def _report_whole_around(out: Output, document: Extraction) -> None:
    """Report, of a document in another file, that there is no download to resume: that file was not truncated."""
    if is_inside(document):
        outer = safe(outermost_file(document).name)
        out.say(f"no download to resume: {outer} around it is not truncated; this was truncated before it was put in")


def _is_packed(document: Extraction) -> bool:
    """Say whether the bytes of a document come from a compressed stream, not directly from the file."""
    return document.parsed.data is not outermost_file(document).data


def report_findings(out: Output, viewer: Viewer, extent: Extent) -> None:
    """Write the first findings on a model, but for what `report_cut` said."""
    cut = extent.missing_bytes or extent.missing_files
    found = viewer.all_findings(extent)
    out.findings(finding for finding in found if not cut or finding.code != "truncated")


def parameters_words(parameters: dict[str, int], *, noun: bool = True) -> str:
    """Return the number of parameters, in all and per dtype; without the ``noun``, for a line that has it in front."""
    total = sum(parameters.values())
    detail = ", ".join(
        f"{safe(name) or '?'} {count:,}" for name, count in sorted(parameters.items(), key=lambda x: -x[1])
    )
    return (count_words(total, "parameter") if noun else f"{total:,}") + (f" ({detail})" if total else "")


def report_cut(
    out: Output, extent: Extent, document: Extraction, tensor: Tensor | None = None, *, most: int | None = 10
) -> None:
    """Report on an incomplete model: actual and expected size, missing bytes, first tensor affected, what to resume.

    At most ``most`` files are named; then their number is given.
    """
    missing = extent.missing_bytes
    if not missing and not extent.missing_files:
        _report_hit(out, extent, document, most)
        return
    least = "at least " if extent.may_expect_more else ""
    lacks = f"; {count_words(extent.missing_files, 'file')} missing" if extent.missing_files else ""
    actual = extent.actual or 0
    decoded = "decoded " if _is_packed(document) else ""
    there = f"{count_words(actual, f'{decoded}byte')} {are(actual)} there"  # the size of missing files is not known
    if missing:
        there = (
            f"{actual:,} of {least}{count_words(extent.expected or 0, f'{decoded}byte')} {are(actual)} there, {least}"
            + (f"{missing:,} ({format_size(missing)})" if missing >= 1024 else count_words(missing, "byte"))
            + f" {are(missing)} missing"
        )
    word = "damaged" if extent.status is Status.DAMAGED else "truncated"
    out.say(out.paint(word, "red") + f": {there}{lacks}")
    if extent.first_hit is not None:
        detail = ""
        if tensor is not None and tensor.stored_nbytes:  # a lost shape has no bytes
            have = tensor.available_nbytes
            detail = f" ({have:,} of its {count_words(tensor.stored_nbytes, 'byte')} {are(have)} there)"
        out.say(f"first tensor hit: {safe(extent.first_hit)}{detail}")
    out.say(f"whole: {whole_words(extent)}")
    out.lines(resume_lines(extent.resume, most))
    if not extent.resume and extent.status is Status.TRUNCATED:
        _report_whole_around(out, document)


def _report_hit(out: Output, extent: Extent, document: Extraction, most: int | None) -> None:
    """Report on a model that has all its bytes, as far as is known: on parts never written, or damaged."""
    if extent.resume and extent.unwritten and extent.whole == extent.count:
        has = "the file has its" if len(extent.resume) == 1 else "the files have their"
        where, *more = resume_lines(extent.resume, most)
        out.say(
            out.paint("not written", "red")
            + f": {has} full size, but parts of it, with {count_words(extent.unwritten, 'tensor')}, "
            + f"were never written and read as zeros; {safe(where)}"
        )
        out.lines(more)
    elif extent.resume and extent.status in (Status.TRUNCATED, Status.DAMAGED):
        if extent.status is Status.TRUNCATED and _is_packed(document):
            end = f"the compressed data end early, after {count_words(extent.actual or 0, 'byte')} of content"
            out.say(f"{out.paint('truncated', 'red')}: {end}")
        out.lines(resume_lines(extent.resume, most))
    if extent.status in BROKEN and extent.whole < extent.count + extent.unlisted:
        out.say(f"whole: {whole_words(extent)}")


# -- Writes results: to standard output, to a file (completely or not at all), or to a pipe ----------------------------


def write(path: str | None, out: Output, give: Callable[[BinaryIO], Any], size: int = 0) -> Any:
    """Let ``give`` write to a file, completely or not at all; without ``path``, to standard output. Return its result.

    A file that surely will have ``size`` bytes or more is not begun where there is no room for it.
    """
    if path is None:
        found = give(out.binary())
        out.binary().flush()
    elif os.path.isdir(path):
        raise PathError("is a folder; name a file in it", path=path)
    elif os.path.exists(path) and not os.path.isfile(path):
        try:
            with open(path, "wb") as device:  # a pipe or a device must not be replaced
                found = give(device)
        except OSError as error:
            if isinstance(error, BrokenPipeError | PparseError):
                raise
            raise system_error(error, "cannot write", path) from error
    else:
        from pparse.writers.files import AtomicFile, refuse_full

        refuse_full(path, size)
        with AtomicFile(path, make_folders=True) as file:
            found = give(file.stream)
        out.wrote.append(path)
    return found


def write_binary(path: str | None, out: Output, give: Callable[[BinaryIO], object], code: int, size: int = 0) -> int:
    """`write` binary data, and return ``code``; refuse to write to a terminal."""
    if path is None and sys.stdout.isatty():
        return refuse_terminal(out)
    write(path, out, give, size)
    return code


def refuse_terminal(out: Output, instead: str = "") -> int:
    """Report that binary data do not go to a terminal, and what else to do ``instead``; return the exit code."""
    out.error("binary data is not for a terminal; use -o FILE or a pipe" + (f", or {instead}" if instead else ""))
    return USAGE


def copy(reader: Range, stream: BinaryIO) -> None:
    """Write the rest of ``reader``, a mebibyte at a time."""
    while chunk := reader.read(MIB):
        stream.write(chunk)


def pieces(text: str) -> Iterator[str]:
    """Yield a text and a line break, a mebibyte at a time: encoded as a whole it would be in memory twice."""
    for at in range(0, len(text), MIB):
        yield text[at : at + MIB]
    yield "\n"


def write_text(path: str | None, out: Output, parts: Iterable[str]) -> None:
    """`write` parts of a text."""
    if path is None:
        for part in parts:
            out.write(part)
    else:
        encoded = (part.encode("utf-8", "backslashreplace") for part in parts)
        write(path, out, lambda stream: stream.writelines(encoded))
