"""Print statistics of tensors: range, mean, deviation, NaN and zeros of each, and of all together.

Each tensor is read once, in blocks. Quantised ones are taken for what they stand for. NaN and infinite values are
counted, and do not count for the rest; of complex numbers, real and imaginary parts count for themselves. Exit code 4
if something is not whole.
"""

from __future__ import annotations

from pparse.cli import jobs
from pparse.cli.common import DAMAGED, USAGE, Matcher, each_file, size, split_files
from pparse.cli.model import OpenedModel, code_of
from pparse.display.text import safe
from pparse.findings import BROKEN
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.statistics import Statistics, TensorStatistics

EXAMPLES: Final = """examples:
  pparse stats model.safetensors
  pparse stats model.gguf 'blk.0.*' --histogram
  pparse stats --sample 1MiB model.safetensors.index.json
  pparse stats --jsonl model.pt > statistics.jsonl
  pparse stats -j 8 --resume run.notes large/
"""

_BAR: Final = 40
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files("; after the first, an argument that is not a file is a PATTERN")
    parser.add("-p --pattern PATTERN ...", "only tensors that match this glob; repeatable", dest="patterns")
    parser.add("--histogram", "how many values of each tensor lie between powers of two")
    parser.add("--sample SIZE", "read at most so many bytes of each tensor, evenly spread: an estimate", type=size)
    parser.add("--codes", "of quantised tensors, the codes and scales as they are stored")
    jobs.add_arguments(parser)
    parser.add_json(lines="tensors, and one of all")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.files, others = split_files(options.files)
    options.matches = Matcher(options.patterns, others)
    with jobs.Jobs(options, out, "stats", *options.files, *others, *options.patterns) as options.work:
        code = each_file(options, out, _measure, heading=True)
    return USAGE if options.matches.complain(out) else code


def _measure(options: Any, out: Output) -> int:
    from pparse.measuring.statistics import Statistics, statistics_in

    with OpenedModel(options, out) as viewer:
        chosen = None if options.matches.takes_all else options.matches.takes
        how: Any = {"sample": options.sample, "dequantize": not options.codes}
        how["workers"] = options.work.workers(viewer)
        found = _Summed(statistics_in(viewer, chosen, **how), Statistics())
        if options.json or options.jsonl:
            _write(found, options, out)
        else:
            _show(found, options, out)
        code = code_of(viewer)
    return DAMAGED if found.lost else code


class _Summed:
    """Passes statistics on, and adds them up."""

    def __init__(self, tensors: Iterator[TensorStatistics], whole: Statistics) -> None:
        self._tensors = tensors
        self.whole = whole
        self.count = self.with_nan = self.lost = 0
        self.is_estimate = False

    def __iter__(self) -> Iterator[TensorStatistics]:
        for one in self._tensors:
            if one.statistics is not None:
                self.whole += one.statistics
                self.count += 1
                self.with_nan += one.statistics.nan + one.statistics.infinite > 0
                self.is_estimate |= one.is_estimate
            elif one.status in BROKEN:
                self.lost += 1
            yield one


def _write(found: _Summed, options: Any, out: Output) -> None:
    from pparse.cli.output import JsonRows

    rows = JsonRows(out, options, {}, "tensors")
    for one in found:
        rows.add(one.to_dict())
    whole: dict[str, object] = {"whole": found.whole.to_dict()}
    if options.json:
        rows.end(whole)
    else:
        rows.add(whole)


def _show(found: _Summed, options: Any, out: Output) -> None:
    from pparse.cli.output import Table

    heads = ("NAME", "DTYPE", "MIN", "MAX", "MEAN", "STD", "NOTES")
    table = Table(out, heads, "<<>>>><")
    for one in found:
        told = one.statistics
        cells = ("", "", "", "") if told is None else _cells(told)
        notes = out.paint(f"{one.status}: {safe(one.reason)}", "yellow") if told is None else _notes(one, told)
        table.row(safe(one.name), safe(one.dtype), *cells, notes)
        if options.histogram and told is not None:
            table.close()
            for line in _bars(told):
                out.line(f"    {line}")
    table.close()
    whole = found.whole
    if not whole.count:
        out.say("no values")
        return
    low, high, mean, std = _cells(whole)
    zeros = f"{_share(whole)} zeros" if whole.zeros else "no zeros"
    about = "estimated of " if found.is_estimate else ""
    out.say(
        f"{count_words(found.count, 'tensor')}, {about}{count_words(whole.count, 'value')}: {low} to {high}, "
        f"mean {mean}, std {std}, norm {_number(whole.norm)}, {zeros}"
    )
    if found.with_nan:
        words = f"{whole.nan:,} NaN, {whole.infinite:,} infinite"
        out.say(out.paint(f"not finite: {words}, in {count_words(found.with_nan, 'tensor')}", "yellow"))


def _cells(told: Statistics) -> tuple[str, str, str, str]:
    return _number(told.min), _number(told.max), _number(told.mean), _number(told.std)


def _share(told: Statistics) -> str:
    return f"{100 * told.zeros / told.count:.3g}%"


def _number(value: float | None) -> str:
    """Return a number in a few digits; whole ones as they are."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _notes(one: TensorStatistics, told: Statistics) -> str:
    notes = [f"{told.nan:,} NaN"] if told.nan else []
    notes += [f"{told.infinite:,} infinite"] if told.infinite else []
    if told.count and told.zeros == told.count:
        notes.append("all zero")
    elif told.count > 1 and not told.nan and not told.infinite and told.min == told.max:
        notes.append("all the same")
    elif told.zeros:
        notes.append(f"{_share(told)} zeros")
    if one.is_estimate:
        notes.append(f"estimated of {told.count:,}")
    return ", ".join(notes)


def _bars(told: Statistics) -> Iterator[str]:
    """Yield a line for each range of a histogram."""
    rows = [*told.histogram, *([(0.0, 0.0, told.zeros)] if told.zeros else [])]
    most = max((count for _, _, count in rows), default=1)
    for low, high, count in sorted(rows):
        full, rest = divmod(round(count / most * _BAR * 8), 8)
        bar = "█" * full + _EIGHTHS[rest].strip()
        where = "0" if low == high else f"{low:.4g} to {high:.4g}"
        yield f"{where:>24}  {bar or '▏'} {count:,}"
