"""Statistics as a picture: a row for each tensor, with its histogram and its figures, as one SVG file for reports.

All histograms have one axis, from minus to plus, by powers of two: layers of another scale stand out. What lies beyond
it is in the columns at its ends. No scripts, nothing that is fetched; colours follow the browser, light or dark.
"""

from __future__ import annotations

from pparse.display.text import columns_of, fitted, in_xml, safe
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    from pparse.measuring.statistics import Range, Statistics, TensorStatistics

MOST: Final = 100
"""So many tensors have a row; all of them are in the first one."""
# Powers of two of each sign, and the share of values that may lie beyond each end.
_POWERS: Final = 24
_FEW: Final = 1e-4
_LEAST: Final = 8
_WIDTH: Final = 1080
_EDGE: Final = 28
_HEAD: Final = 104
_ROW: Final = 52
_BARS: Final = 30
# Where columns begin: names, histograms, and the ends of figures.
_LEFT: Final = 330
_ROOM: Final = 392
_FIGURES: Final = (("min", 796), ("max", 880), ("mean", 964), ("std", 1048))
_NAME: Final = 38
_NOTE: Final = 50
_STYLE: Final = """  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1e293b; }
  .back { fill: #ffffff; }
  .stripe { fill: #f6f8fa; }
  .head { font-size: 18px; font-weight: 600; }
  .name { font-size: 12px; font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .figure { font-size: 12px; text-anchor: end; font-variant-numeric: tabular-nums; }
  .small { font-size: 10.5px; fill: #64748b; }
  .end { text-anchor: end; }
  .middle { text-anchor: middle; }
  .warn { fill: #b45309; }
  .line { stroke: #94a3b8; stroke-opacity: 0.45; stroke-width: 1; fill: none; }
  .tick { stroke: #94a3b8; stroke-opacity: 0.22; stroke-width: 1; fill: none; }
  .minus { fill: #4f7cac; }
  .plus { fill: #3a9d8f; }
  .zero { fill: #94a3b8; }
  .beyond { fill: #d97706; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e2e8f0; }
    .back { fill: #14181f; }
    .stripe { fill: #1b212b; }
    .small { fill: #94a3b8; }
    .warn { fill: #fbbf24; }
    .minus { fill: #6c9bd1; }
    .plus { fill: #4fc3b0; }
  }
"""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def to_svg(title: str, tensors: Sequence[TensorStatistics], whole: Statistics, count: int) -> Iterator[str]:
    """Yield the lines of a picture of some tensors, of ``count``, and of all of them together."""
    rows = [one for one in tensors if one.statistics is not None][:MOST]
    axis = _Axis(whole.histogram)
    more = count - len(rows)
    height = _HEAD + _ROW * (len(rows) + 1) + (28 if more else 0) + _EDGE
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" role="img">\n'
    )
    yield f"<title>{in_xml(title)}</title>\n<style>\n{_STYLE}</style>\n"
    yield f'<rect class="back" width="{_WIDTH}" height="{height}"/>\n'
    yield f'<text class="head" x="{_EDGE}" y="38">{in_xml(fitted(safe(title), 90, head=0.3))}</text>\n'
    words = f"{count_words(count, 'tensor')}, {count_words(whole.count, 'value')}, norm {_number(whole.norm)}"
    words += "; values by powers of two, the same axis for all"
    yield f'<text class="small" x="{_EDGE}" y="57">{in_xml(words)}</text>\n'
    for number in range(0, len(rows) + 1, 2):
        place = f'x="{_EDGE - 12}" y="{_HEAD + _ROW * number + 1}" width="{_WIDTH - 2 * _EDGE + 24}"'
        yield f'<rect class="stripe" {place} height="{_ROW - 1}"/>\n'
    yield from axis.heads(height - _EDGE + 4 - (28 if more else 0))
    for name, x in _FIGURES:
        yield f'<text class="small end" x="{x}" y="{_HEAD - 8}">{name}</text>\n'
    yield f'<path class="line" d="M{_EDGE} {_HEAD}H{_WIDTH - _EDGE}"/>\n'
    yield from _row(axis, 0, "all tensors", "", _notes(whole), whole)
    for number, one in enumerate(rows, 1):
        yield from _row(axis, number, one.name, _kind(one), one.notes, one.statistics or whole)
    if more:
        words = f"and {count_words(more, 'other tensor')}: part of all tensors, above"
        yield f'<text class="small" x="{_EDGE}" y="{height - _EDGE - 2}">{words}</text>\n'
    yield "</svg>\n"


def _kind(one: TensorStatistics) -> str:
    shape = "" if one.shape is None else " × ".join(map(str, one.shape)) or "scalar"
    return f"{one.dtype}  {shape}"


def _notes(told: Statistics) -> list[str]:
    return [f"{count:,} {what}" for what, count in (("NaN", told.nan), ("infinite", told.infinite)) if count]


def _number(value: float | None) -> str:
    return "–" if value is None else (f"{value:.4g}").replace("-", "−")


class _Axis:
    """The powers of two that all histograms have in common."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        found: dict[int, int] = {}
        for low, high, count in ranges:
            power = _power(low, high)
            found[power] = found.get(power, 0) + count
        total = sum(found.values())
        best, self.high = 0, 0
        for power in found:  # the powers with most of the values
            inside = sum(found.get(power - down, 0) for down in range(_POWERS))
            best, self.high = max((best, self.high), (inside, power))
        powers = sorted(power for power in found if self.high - _POWERS < power <= self.high)
        while len(powers) > _LEAST and found[powers[-1]] < _FEW * total:
            powers.pop()
        while len(powers) > _LEAST and found[powers[0]] < _FEW * total:
            del powers[0]
        self.high = powers[-1] if powers else 0
        self.low = min(powers[0] if powers else 0, self.high - _LEAST + 1)
        self.count = self.high - self.low + 1
        self.step = _ROOM / (2 * self.count + 1)

    def heads(self, bottom: float) -> Iterator[str]:
        """Yield labels above the columns, and lines through them."""
        every = max(2, -(-self.count // 4))
        for sign in (-1, 1):
            for power in range(self.high + 1, self.low, -every):
                x = self._edge(sign, power)
                yield f'<path class="tick" d="M{x:.1f} {_HEAD}V{bottom:.1f}"/>\n'
                label = f"{'−' if sign < 0 else ''}2{str(power).translate(_RAISED)}"
                yield f'<text class="small middle" x="{x:.1f}" y="{_HEAD - 8}">{label}</text>\n'
        x = _LEFT + _ROOM / 2
        yield f'<path class="tick" d="M{x:.1f} {_HEAD}V{bottom:.1f}"/>\n'
        yield f'<text class="small middle" x="{x:.1f}" y="{_HEAD - 8}">0</text>\n'

    def _edge(self, sign: int, power: int) -> float:
        """Return where two to the ``power`` is."""
        return _LEFT + _ROOM / 2 + sign * self.step * (0.5 + power - self.low)

    def bars(self, told: Statistics, bottom: float) -> Iterator[str]:
        """Yield the bars of a histogram, all of one colour in one path."""
        columns: dict[tuple[int, int], int] = {(0, 0): told.zeros} if told.zeros else {}
        beyond = set()
        for low, high, count in told.histogram:
            sign, power = (1 if high > 0 else -1 if low < 0 else 0), _power(low, high)
            if low < 0 < high or power < self.low:
                sign = 0  # nearer to zero than the axis goes
            elif power > self.high:
                beyond.add((sign, self.high))
            key = (sign, min(power, self.high) if sign else 0)
            columns[key] = columns.get(key, 0) + count
        most = max(columns.values(), default=1)
        paths: dict[str, str] = {}
        for (sign, power), count in columns.items():
            kind = "beyond" if (sign, power) in beyond else ("zero", "plus", "minus")[sign]
            size = max(1.2, _BARS * count / most)
            left = min(self._edge(sign, power), self._edge(sign, power + 1)) if sign else self._edge(-1, self.low)
            wide = self.step - min(1.0, self.step / 5)
            bar = f"M{left:.1f} {bottom:.1f}v{-size:.1f}h{wide:.1f}v{size:.1f}z"
            paths[kind] = paths.get(kind, "") + bar
        for kind, path in paths.items():
            yield f'<path class="{kind}" d="{path}"/>\n'
        yield f'<path class="line" d="M{_LEFT} {bottom + 0.5:.1f}h{_ROOM}"/>\n'


def _power(low: float, high: float) -> int:
    """Return the power of two that a range begins with, on the side of zero."""
    from math import frexp

    near = min(abs(low), abs(high)) if low * high >= 0 else 0.0
    return frexp(near)[1] - 1 if near else frexp(max(abs(low), abs(high)))[1] - 2


def _row(axis: _Axis, number: int, name: str, kind: str, notes: Sequence[str], told: Statistics) -> Iterator[str]:
    top = _HEAD + _ROW * number
    whole = "; ".join(notes)
    about = (name, kind, f"{count_words(told.count, 'value')}, norm {_number(told.norm)}", whole)
    lines = "\n".join(map(in_xml, filter(None, about)))
    yield f"<g><title>{lines}</title>\n"
    first, second = (22, 38) if kind or notes else (30, 38)
    yield f'<text class="name" x="{_EDGE}" y="{top + first}">{in_xml(fitted(safe(name), _NAME, head=0.4))}</text>\n'
    kind = fitted(safe(kind), _NOTE, head=1)
    left = max(0, _NOTE - columns_of(kind) - 3)
    style = "warn" if told.nan or told.infinite or "suspect" in whole else "small"
    if notes:
        kind += " · " if kind else ""
        kind = f'{in_xml(kind)}<tspan class="{style}">{in_xml(fitted(safe(whole), max(12, left), head=1))}</tspan>'
    else:
        kind = in_xml(kind)
    yield f'<text class="small" x="{_EDGE}" y="{top + second}">{kind}</text>\n'
    yield from axis.bars(told, top + _ROW - 11)
    for figure, x in _FIGURES:
        yield f'<text class="figure" x="{x}" y="{top + 31}">{_number(getattr(told, figure))}</text>\n'
    yield "</g>\n"
