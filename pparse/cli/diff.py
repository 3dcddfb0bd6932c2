"""Say what differs between two models, of any formats: tensors, their types, shapes and values, metadata and graphs.

Tensors go by their names; behind a prefix that all names of one model have, and with the same content, they are found
under other names. Bytes are read as far as they may differ. Metadata and graphs are compared if both are of one format.
Exit code 0: nothing differs; 1: something does; 4: one of them is not whole.
"""

from __future__ import annotations

import re

from pparse.cli import jobs
from pparse.cli.common import DAMAGED, DIFFERENT, OK, USAGE, worst
from pparse.cli.model import OpenedModel
from pparse.cli.selection import Selection
from pparse.display.text import safe, shorten
from pparse.errors import OptionError
from pparse.limits import count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.measuring.difference import Change, Comparison, Difference, ValueDistance
    from pparse.measuring.graph_difference import GraphDifference
    from pparse.tensors.viewer import Viewer

EXAMPLES: Final = """examples:
  pparse diff model.safetensors second-download.safetensors
  pparse diff model.pt converted.gguf
  pparse diff --tolerance 1e-6 before.safetensors after.safetensors 'h.17.*'
  pparse diff --long base/ finetuned/
"""

# So many differences are told one by one.
_ROWS: Final = 30
_LETTERS: Final = 60
_MOST_CHANGES: Final = 20
# What the last line calls verdicts.
_SUMMED: Final = {"values": "with other values", "type": "of another type", "shape": "of another shape"}


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("OLD", "the first model", dest="old")
    parser.add("NEW", "the second model", dest="new")
    parser.add("PATTERN", "only tensors that match one of these globs", dest="others", nargs="*")
    parser.add("--tolerance X", "values this far apart do not differ (0)", type=float, default=0.0)
    parser.add("--relative X", "… and this share of the value in NEW (0)", type=float, default=0.0)
    parser.add("--no-metadata", "metadata do not count; if tensors are selected, they never do", dest="no_metadata")
    parser.add("--no-graph", "graphs do not count; if tensors are selected, they never do", dest="no_graph")
    lists = "believe the lists that 'pparse hash --save' wrote beside both: tensors in them are not read"
    parser.add("--lists", lists)
    parser.add("-l --long", f"each difference, not a table by layers if there are more than {_ROWS}")
    jobs.add_arguments(parser)
    parser.add("-q --quiet", "no output, only the exit code")
    parser.add_json(lines="differences, and one of all")
    parser.add_filters()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.measuring.difference import Comparison

    options.several, matches = False, Selection(options.patterns, options.others, options)
    options.file = options.old
    with (
        jobs.Jobs(options, out, "diff", options.old, options.new, *options.patterns) as work,
        OpenedModel(options, out) as first,
    ):
        options.file = options.new
        with OpenedModel(options, out) as second:
            viewers = [first, second]
            how: Any = {"tolerance": options.tolerance, "relative": options.relative}
            if not matches.takes_all:
                how |= {"chosen": matches.takes_name, "admitted": matches.admits}
            how["workers"] = work.workers(*viewers)
            if options.lists:
                how["identities"] = _listed(options, first, second)
            report = _DiffReport(Comparison(*viewers, **how), viewers, options, out)
            takes_all = matches.takes_all
            code = report.run(
                with_metadata=takes_all and not options.no_metadata, with_graph=takes_all and not options.no_graph
            )
    return matches.code(code, out, nothing=USAGE)


def _listed(options: Any, first: Viewer, second: Viewer) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the lists beside both models say of their tensors."""
    from pparse.measuring.hash_list import algorithm_of, contents_beside

    old, new = contents_beside(options.old, first), contents_beside(options.new, second)
    if old and new and algorithm_of(old) != algorithm_of(new):
        raise OptionError(f"the lists beside {options.old} and {options.new} are of two algorithms")
    return old, new


class _DiffReport:
    """Tells of differences: each one if they are few, else by layers."""

    def __init__(self, comparison: Comparison, viewers: list[Viewer], options: Any, out: Output) -> None:
        self._comparison, self._viewers, self._options, self._out = comparison, viewers, options, out
        self._verdicts: dict[str, int] = {}
        self._layers: dict[str, _Layer] = {}
        self._rows: list[Difference] = []
        self._renamed: dict[tuple[str, str], int] = {}
        self._close_ones = 0

    def run(self, *, with_metadata: bool, with_graph: bool) -> int:
        """Print what differs; return the exit code."""
        from pparse.cli.output import JsonRows

        options, out = self._options, self._out
        as_json = options.json or options.jsonl
        options.file = options.old
        rows = JsonRows(out, options, {"new": options.new}, "tensors") if as_json else None
        total = differ = 0
        for one in self._comparison.tensors():
            total += 1
            if one.is_same:
                self._close_ones += one.verdict == "close"
                continue
            differ += 1
            self._verdicts[one.verdict] = self._verdicts.get(one.verdict, 0) + 1
            if rows is not None:
                rows.add(one.to_dict())
            else:
                self._add(one)
        changes = list(self._comparison.metadata()) if with_metadata else []
        graph = self._comparison.graph() if with_graph else None
        is_same = not differ and not changes and (graph is None or graph.is_same)
        lost = self._not_whole()
        told: dict[str, object] = {
            "identical": is_same and not lost,
            "equal": total - differ,
            "close": self._close_ones,
        }
        told["whole"] = list(self._comparison.are_whole())
        told |= {"metadata": [change.to_dict() for change in changes]}
        told |= {"graph": None if graph is None else graph.to_dict()}
        if rows is not None and options.json:
            rows.end(told)
        elif rows is not None:
            rows.add(told)
        elif not options.quiet and (total or with_metadata or with_graph):
            self._close(total, differ, changes, graph if graph is None or not graph.is_same else None, lost)
        codes = {OK} if is_same else {OK, DIFFERENT}
        return worst({*codes, DAMAGED} if lost else codes)

    def _not_whole(self) -> list[str]:
        """Return which of the two are not whole."""
        names = zip((self._options.old, self._options.new), self._viewers, self._comparison.are_whole(), strict=True)
        return [f"{safe(name)} is {viewer.status}" for name, viewer, is_whole in names if not is_whole]

    def _add(self, one: Difference) -> None:
        if one.new_name and one.verdict == "renamed" and one.name.endswith(one.new_name):
            key = one.name.removesuffix(one.new_name), ""
        elif one.new_name and one.verdict == "renamed" and one.new_name.endswith(one.name):
            key = "", one.new_name.removesuffix(one.name)
        else:
            key = None
        if key is not None:
            self._renamed[key] = self._renamed.get(key, 0) + 1
            return
        self._layers.setdefault(_layer_of(one.name), _Layer()).add(one)
        if self._options.long or len(self._rows) <= _ROWS:
            self._rows.append(one)

    def _close(
        self, total: int, differ: int, changes: list[Change], graph: GraphDifference | None, lost: list[str]
    ) -> None:
        out = self._out
        if self._rows and (self._options.long or len(self._rows) <= _ROWS):
            self._show_rows()
        elif self._rows:
            self._show_layers()
        for (strip, add), count in self._renamed.items():
            here = f"{safe(strip)}* → *" if strip else f"* → {safe(add)}*"
            out.say(f"renamed: {here} ({count_words(count, 'tensor')}, equal)")
        most = len(changes) if self._options.long else _MOST_CHANGES
        for change in changes[:most]:
            old, new = (_shown(value) for value in (change.old, change.new))
            out.say(f"metadata {safe(change.name)}: {old} → {new}")
        if len(changes) > most:
            out.say(f"… and {count_words(len(changes) - most, 'other change')} of metadata")
        if graph is not None:
            self._show_nodes(graph)
        for words in lost:
            out.say(out.paint(words, "red"))
        extent = self._viewers[0].extent()
        size = f", {format_size(extent.listed_bytes)}" if total == extent.count else ""
        if not differ and not changes and graph is None:
            word = "equal within the tolerance" if self._close_ones else "identical"
            word = word if not lost else "what is there is the same"
            out.say(f"{out.paint(word, 'green')}: {count_words(total, 'tensor')}{size}")
            return
        parts = [f"{count:,} {_SUMMED.get(verdict, verdict)}" for verdict, count in self._verdicts.items()]
        parts += [f"metadata: {count_words(len(changes), 'change')}"] if changes else []
        parts += [f"graph: {_counted(graph)}"] if graph is not None else []
        equal = f"{total - differ:,} of {count_words(total, 'tensor')} equal"
        out.say(f"{out.paint('different', 'yellow')}: {', '.join(parts)}; {equal}")

    def _show_rows(self) -> None:
        from pparse.cli.output import Table

        table = Table(self._out, ("NAME", "WHAT", "DTYPE", "SHAPE", "HOW"), "<<<<<", full=self._options.long)
        for one in self._rows:
            name = safe(one.name) + (f" → {safe(one.new_name)}" if one.new_name else "")
            shapes = [shape.replace(",", "×") or "scalar" for shape in one.shapes]
            shapes = [shape if dtype else "" for dtype, shape in zip(one.dtypes, shapes, strict=True)]
            table.row(name, one.verdict, _both(one.dtypes), _both(shapes), safe(_how(one)))
        table.close()

    def _show_nodes(self, graph: GraphDifference) -> None:
        from pparse.cli.output import Table

        is_long = self._options.long
        telling = [one for one in graph.nodes if one.verdict != "renamed"]
        renamed = [one for one in graph.nodes if one.verdict == "renamed"]
        telling += renamed if is_long or len(renamed) <= _ROWS else []
        most = len(telling) if is_long else _ROWS
        table = Table(self._out, ("NODE", "WHAT", "OPERATION", "HOW"), "<<<<", full=is_long)
        for one in telling[:most]:
            name = safe(one.name) + (f" → {safe(one.new_name)}" if one.new_name else "")
            name = f"{safe(one.body)}: {name}" if one.body else name
            how = "; ".join(f"{safe(told.what)}: {_said(told.old)} → {_said(told.new)}" for told in one.details)
            table.row(name or "(the graph)", one.verdict, safe(one.operation), how)
        table.close()
        more = sum(graph.counts.values()) - min(most, len(telling))
        if more:
            self._out.say(f"… and {count_words(more, 'other node')}")

    def _show_layers(self) -> None:
        from pparse.cli.order import natural
        from pparse.cli.output import Table

        table = Table(self._out, ("LAYER", "TENSORS", "WHAT", "CHANGED", "LARGEST"), "<><>>")
        for name in sorted(self._layers, key=natural):
            layer = self._layers[name]
            words = ", ".join(f"{count:,} {verdict}" for verdict, count in layer.verdicts.items())
            share = f"{100 * layer.changed / layer.values:.3g}%" if layer.values else ""
            largest = f"{layer.largest:.4g}" if layer.values else ""
            table.row(safe(name), str(sum(layer.verdicts.values())), words, share, largest)
        table.close()


class _Layer:
    """What differs in a layer."""

    def __init__(self) -> None:
        self.verdicts: dict[str, int] = {}
        self.changed = self.values = 0
        self.largest = 0.0

    def add(self, one: Difference) -> None:
        """Count a difference."""
        self.verdicts[one.verdict] = self.verdicts.get(one.verdict, 0) + 1
        if one.distance is not None:
            self.changed += one.distance.changed
            self.values += one.distance.count
            self.largest = max(self.largest, one.distance.largest)


def _layer_of(name: str) -> str:
    """Return the name of a layer: up to the first number, or the first word."""
    found = re.match(r"(?:.*?[._/])?\d+(?=[._/]|$)", name)
    return found[0] if found is not None else re.split(r"[./]", name, maxsplit=1)[0]


def _both(words: Any) -> str:
    old, new = words
    return safe(old if old == new or not new else new if not old else f"{old} → {new}")


def _how(one: Difference) -> str:
    if one.reason:
        return one.reason
    told = one.distance
    return "" if told is None else _distance(told, cast=one.verdict == "equal after a cast")


def _distance(told: ValueDistance, *, cast: bool) -> str:
    if cast and not told.changed:
        return "no value changed"
    words = [f"{told.changed:,} of {count_words(told.count, 'value')} changed", f"largest {told.largest:.4g}"]
    words += [f"mean {told.mean:.4g}"]
    words += [f"cosine {told.cosine:.6g}"] if told.cosine is not None else []
    words += [f"{told.not_finite:,} not finite on one side"] if told.not_finite else []
    return ", ".join(words)


def _counted(graph: GraphDifference) -> str:
    """Return in words how many nodes differ."""
    words = [f"{count:,} {verdict}" for verdict, count in graph.counts.items()]
    return ", ".join([*words, *([safe(graph.reason)] if graph.reason else [])])


def _said(value: Any) -> str:
    return shorten(safe(value), _LETTERS) if isinstance(value, str) else _shown(value)


def _shown(value: Any) -> str:
    return "(none)" if value is None else shorten(safe(repr(value)), _LETTERS)
