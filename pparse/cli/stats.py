"""Print statistics of tensors: range, mean, deviation, NaN and zeros of each, and of all together.

Each tensor is read once, in blocks. Quantised ones are taken for what they stand for. NaN and infinite values are
counted, and do not count for the rest; of complex numbers, real and imaginary parts count for themselves. Stretches of
floating numbers that do not look like the rest of their tensor (noise, text, zeros) are told as suspect, which is no
fault. Exit code 4 if something is not whole.
"""

from __future__ import annotations

from operator import attrgetter

from pparse.cli import jobs
from pparse.cli.common import OR_PATTERNS, each_file, refuse_own, size_from
from pparse.cli.files import split_files
from pparse.cli.model import OpenedModel, code_of
from pparse.cli.order import UNSORTED, Held, in_order, tell_rest
from pparse.cli.selection import Selection
from pparse.display.text import safe
from pparse.errors import OptionError
from pparse.findings import BROKEN
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.statistics import Statistics, TensorStatistics

EXAMPLES: Final = """examples:
  pparse stats model.safetensors
  pparse stats model.gguf 'blk.0.*' --histogram
  pparse stats model.safetensors --sort std -n 10
  pparse stats model.safetensors --svg model.svg
  pparse stats --sample 1MiB model.safetensors.index.json
  pparse stats --jsonl model.pt > statistics.jsonl
  pparse stats -j 8 --resume run.notes large/
"""

_BAR: Final = 40
_FIGURES: Final = ("min", "max", "mean", "std", "nan", "zeros")
# Memory of statistics that are held to be sorted: histograms are most of them.
_HELD: Final = 8_000


def _figure(name: str) -> Callable[[TensorStatistics], Any]:
    return lambda one: None if one.statistics is None else getattr(one.statistics, name)


# What rows are sorted by.
_COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": attrgetter("name"),
    "dtype": attrgetter("dtype"),
    **{name: _figure(name) for name in _FIGURES},
}
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files(OR_PATTERNS)
    parser.add("--histogram", "how many values of each tensor lie between powers of two")
    parser.add("--svg PICTURE", "draw histograms and figures of the first 100 tensors, and of all, for a report")
    parser.add(
        "--sample SIZE",
        "read at most so many bytes of each tensor, evenly spread: an estimate",
        type=size_from(1 << 10, "1KiB"),
    )
    parser.add("--codes", "of quantised tensors, the codes and scales as they are stored")
    jobs.add_arguments(parser)
    parser.add("-l --long", "in a terminal, nothing shortened")
    parser.add_json(lines="tensors, and one of all")
    parser.add_filters()
    parser.add_order("name", "dtype", *_FIGURES, default="that of the file")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.files, others = split_files(options.files)
    matches = options.matches = Selection(options.patterns, others, options)
    with jobs.Jobs(options, out, "stats", *options.files, *others, *options.patterns) as options.work:
        options.picture = _Picture() if options.svg is not None else None
        if options.svg is not None and not options.svg.lower().endswith(".svg"):
            raise OptionError(f"--svg writes a picture: name a file that ends in .svg, not {options.svg}")
        code = each_file(options, out, _measure, heading=True)
        if options.picture is not None:
            options.picture.save(options.svg, ", ".join(options.files))
    return matches.code(code, out)


def _measure(options: Any, out: Output) -> int:
    from pparse.measuring.statistics import Statistics, statistics_in

    with OpenedModel(options, out) as viewer:
        refuse_own(viewer.extraction, options.svg)
        chosen = None if options.matches.takes_all else options.matches.takes
        how: Any = {"sample": options.sample, "dequantize": not options.codes}
        how["workers"] = options.work.workers(viewer)
        found = _Summed(statistics_in(viewer, chosen, **how), Statistics())
        picture = options.picture
        held = Held(viewer.extraction.session.budget, lambda one: _HELD + 2 * len(one.name), asked=True)
        sort = options.sort or UNSORTED
        rows = in_order(found, sort, held, out, first=options.first, reverse=options.reverse, **_COLUMNS)
        if picture is not None:
            rows = picture.seeing(rows)
        if options.json or options.jsonl:
            _write(rows, found, options, out)
        else:
            _show(rows, found, options, out)
        if picture is not None:
            picture.add_up(found)
        options.matches.was_ended |= not found.is_done
        return code_of(viewer, options, out, found.lost > 0 or (None if found.is_done else False))


class _Summed:
    """Passes statistics on, and adds them up."""

    def __init__(self, tensors: Iterator[TensorStatistics], whole: Statistics) -> None:
        self._tensors = tensors
        self.whole = whole
        self.seen = self.count = self.with_nan = self.lost = self.suspect = 0
        self.is_estimate = self.is_done = False

    def __iter__(self) -> Iterator[TensorStatistics]:
        for one in self._tensors:
            if one.statistics is not None:
                self.whole += one.statistics
                self.count += 1
                self.with_nan += one.statistics.nan + one.statistics.infinite > 0
                self.is_estimate |= one.is_estimate
                self.suspect += bool(one.suspect)
            elif one.status in BROKEN:
                self.lost += 1
            self.seen += 1
            yield one
        self.is_done = True


class _Picture:
    """What is drawn: the first tensors of all files, and all together."""

    def __init__(self) -> None:
        from pparse.measuring.statistics import Statistics

        self._tensors: list[TensorStatistics] = []
        self._whole = Statistics()
        self._count = 0

    def seeing(self, rows: Iterator[TensorStatistics]) -> Iterator[TensorStatistics]:
        """Pass rows on."""
        from pparse.measuring.picture import MOST

        for one in rows:
            if len(self._tensors) < MOST and one.statistics is not None:
                self._tensors.append(one)
            yield one

    def add_up(self, found: _Summed) -> None:
        """Add what was found in a file."""
        self._whole += found.whole
        self._count += found.count

    def save(self, path: str, title: str) -> None:
        """Write the picture."""
        from pparse.measuring.picture import to_svg
        from pparse.writers.files import AtomicFile

        with AtomicFile(path, make_folders=True) as file:
            for line in to_svg(title, self._tensors, self._whole, self._count):
                file.stream.write(line.encode())


def _write(shown: Iterator[TensorStatistics], found: _Summed, options: Any, out: Output) -> None:
    from pparse.cli.output import JsonRows

    rows = JsonRows(out, options, {}, "tensors")
    for one in shown:
        rows.add(one.to_dict())
    whole: dict[str, object] = {"whole": found.whole.to_dict()}
    if options.json:
        rows.end(whole)
    else:
        rows.add(whole)


def _show(shown: Iterator[TensorStatistics], found: _Summed, options: Any, out: Output) -> None:
    from pparse.cli.output import Table

    heads = ("NAME", "DTYPE", "MIN", "MAX", "MEAN", "STD", "NOTES")
    table = Table(out, heads, "<<>>>><", full=options.long)
    for one in shown:
        told = one.statistics
        cells = ("", "", "", "") if told is None else _cells(told)
        notes = out.paint(f"{one.status}: {safe(one.reason)}", "yellow") if told is None else ", ".join(one.notes)
        table.row(safe(one.name), safe(one.dtype), *cells, notes)
        if options.histogram and told is not None:
            table.close()
            for line in _bars(told):
                out.line(f"    {line}")
    table.close()
    tell_rest(options.first, found.seen, out, is_done=found.is_done)
    whole = found.whole
    if not whole.count:
        out.say("no values")
        return
    low, high, mean, std = _cells(whole)
    zeros = f"{whole.zero_share} zeros" if whole.zeros else "no zeros"
    about = "estimated of " if found.is_estimate else ""
    out.say(
        f"{count_words(found.count, 'tensor')}, {about}{count_words(whole.count, 'value')}: {low} to {high}, "
        f"mean {mean}, std {std}, norm {_number(whole.norm)}, {zeros}"
    )
    if found.with_nan:
        words = f"{whole.nan:,} NaN, {whole.infinite:,} infinite"
        out.say(out.paint(f"not finite: {words}, in {count_words(found.with_nan, 'tensor')}", "yellow"))
    if found.suspect:
        words = "with stretches that do not look like the rest"
        out.say(out.paint(f"suspect: {count_words(found.suspect, 'tensor')} {words}", "yellow"))


def _cells(told: Statistics) -> tuple[str, str, str, str]:
    return _number(told.min), _number(told.max), _number(told.mean), _number(told.std)


def _number(value: float | None) -> str:
    """Return a number in a few digits; whole ones as they are."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _bars(told: Statistics) -> Iterator[str]:
    """Yield a line for each range of a histogram."""
    rows = [*told.histogram, *([(0.0, 0.0, told.zeros)] if told.zeros else [])]
    most = max((count for _, _, count in rows), default=1)
    for low, high, count in sorted(rows):
        full, rest = divmod(round(count / most * _BAR * 8), 8)
        bar = "█" * full + _EIGHTHS[rest].strip()
        where = "0" if low == high else f"{low:.4g} to {high:.4g}"
        yield f"{where:>24}  {bar or '▏'} {count:,}"
