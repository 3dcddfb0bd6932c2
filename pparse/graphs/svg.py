"""A drawing of a graph as SVG: text, boxes and curves; no scripts, no links, nothing that is fetched.

Labels are in a font of fixed width, so that their width is known, and shortened to fit; the whole text is in the
``title`` of each box and edge, which browsers show.
"""

from __future__ import annotations

from unicodedata import east_asian_width

from pparse.display.text import safe
from pparse.graphs.layout import Plan
from pparse.graphs.scopes import CONSTANT, INPUT, NODES, OUTPUT, Collapsed
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.graphs.scopes import Box

_LETTER: Final = 7.3  # width of a letter of the first line of a label, 12 pixels high; of the second, 10 pixels
_SMALL: Final = 6.1
_LETTERS: Final = 34
_HEIGHT: Final = 42
_BETWEEN: Final = 52
_EDGE: Final = 24
_HEAD: Final = 64
_STYLE: Final = """  text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  .name { font-size: 12px; fill: #1a202c; }
  .what { font-size: 10px; fill: #4a5568; }
  .head { font-size: 16px; font-weight: bold; fill: #1a202c; }
  .count { font-size: 9px; fill: #4a5568; }
  .back { fill: #ffffff; }
  .edge { fill: none; stroke: #718096; }
  .control { stroke-dasharray: 4 3; stroke: #a0aec0; }
  .scope { fill: #ebf4ff; stroke: #4a7ab5; }
  .node { fill: #ffffff; stroke: #718096; }
  .input { fill: #e6f6ec; stroke: #2f855a; }
  .output { fill: #fdf0dd; stroke: #c05621; }
  .constant { fill: #f4f0fa; stroke: #805ad5; }
"""


def to_svg(part: Any, title: str = "", depth: int | None = None, *, constants: bool = False) -> Iterator[str]:
    """Yield the lines of a drawing. Raises `LimitError` for too many boxes."""
    drawing = Collapsed(part, depth, constants=constants)
    labels = [_label(part.graph, box) for box in drawing.boxes]
    edges = list(drawing.edges)
    widths = [_width(*label) for label in labels]
    plan = Plan(widths, edges, [box.kind == INPUT for box in drawing.boxes], _HEIGHT, _BETWEEN)
    head = [safe(title or part.graph.name or "graph"), _summary(drawing)]
    width = max(plan.width, 9.8 * _letters(head[0]), _SMALL * _letters(head[1])) + 2 * _EDGE
    height = _HEAD + plan.height + _EDGE
    shift = (width - plan.width) / 2
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}">\n'
    )
    yield f"<title>{escaped(head[0])}</title>\n<style>\n{_STYLE}</style>\n"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5L8 4L0 7.5z" fill="#718096"/></marker></defs>\n'
    )
    yield f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>\n'
    yield f'<text class="head" x="{_EDGE}" y="28">{escaped(head[0])}</text>\n'
    yield f'<text class="what" x="{_EDGE}" y="46">{escaped(head[1])}</text>\n'
    counts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    places = [(x + shift, y + _HEAD) for x, y in plan.places]
    for number, edge in enumerate(edges):
        points = [(x + shift, y + _HEAD) for x, y in plan.routes[number]]
        yield from _edge(drawing, edge, [places[edge[0]], *points, places[edge[1]]], counts, taken)
    for number, box in enumerate(drawing.boxes):
        yield from _box(box, labels[number], *places[number], widths[number])
    yield from counts
    yield "</svg>\n"


def escaped(text: str) -> str:
    """Return text for an XML document; what could mislead, or is not allowed in XML, is escaped."""
    text = "".join(char if char not in "\ufffe\uffff" else f"\\u{ord(char):04x}" for char in safe(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


# -- labels ----------------------------------------------------------------------------------------------------------


def _letters(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _short(text: str) -> str:
    """Return a name with its middle left out, if it is long: its end tells most."""
    text = safe(text)
    if _letters(text) <= _LETTERS:
        return text
    if not text.isascii():
        while _letters(text) >= _LETTERS:
            text = text[1:]
        return f"…{text}"
    return f"{text[:10]}…{text[-(_LETTERS - 11) :]}"


def _clipped(text: str) -> str:
    """Return the second line of a label, cut at its end if it is long."""
    text = safe(text)
    while _letters(text) > _LETTERS + 8:
        text = f"{text[:-2]}…"
    return text


def _label(graph: Any, box: Box) -> tuple[str, str]:
    """Return the two lines in a box."""
    name, what = _words(graph, box)
    return name, _clipped(f"{what}, {box.note}" if box.note else what)


def _words(graph: Any, box: Box) -> tuple[str, str]:
    name = _short(box.name) + (f" and {box.others:,} alike" if box.others else "")
    if box.kind in (INPUT, OUTPUT):
        known = graph.value(box.name) if box.count == 1 and not box.others else None
        typed = str(known)[len(box.name) + 1 :] if known is not None else ""
        return name, f"{box.kind} {typed}".rstrip()
    if box.kind == CONSTANT:
        return name, CONSTANT
    operations = sorted(box.operations.items(), key=lambda item: (-item[1], item[0]))
    if box.count == 1:
        return name, operations[0][0]
    most = ", ".join(f"{op} {count:,}" for op, count in operations[:2])
    return name, f"{box.count:,} nodes: {most}{' …' if len(operations) > 2 else ''}"


def _width(name: str, what: str) -> float:
    return max(80.0, _LETTER * _letters(name), _SMALL * _letters(what)) + 20.0


def _summary(drawing: Collapsed) -> str:
    graph, part = drawing.graph, drawing.part
    of = f" of {graph.node_count:,}" if part is not graph else ""
    text = f"{graph.kind}: {part.node_count:,}{of} nodes, {len(drawing.boxes):,} boxes"
    if all(box.count == 1 for box in drawing.boxes):
        return text
    if not drawing.numbered:
        return f"{text}; names are cut behind 1 scope, and numbers in it are #"
    depth = count_words(drawing.depth, "scope")
    return f"{text}; names are cut behind {depth}" if drawing.depth else f"{text}; neighbours in the file are one box"


# -- shapes ----------------------------------------------------------------------------------------------------------


def _box(box: Box, label: tuple[str, str], middle: float, top: float, width: float) -> Iterator[str]:
    shape = box.kind if box.kind != NODES else "node" if box.count == 1 else "scope"
    corner = 4 if box.kind == NODES else _HEIGHT / 2
    operations = "".join(f"\n{op} {count:,}" for op, count in box.operations.items()) if box.count > 1 else ""
    more = f" and {box.others:,} alike" if box.others else ""
    yield f"<g><title>{escaped(box.name)}{more}{''.join(map(escaped_line, operations.splitlines()))}</title>"
    yield (
        f'<rect class="{shape}" x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}"'
        f' height="{_HEIGHT}" rx="{corner}"/>'
    )
    for style, text, low in (("name", label[0], 18), ("what", label[1], 33)):
        yield f'<text class="{style}" text-anchor="middle" x="{middle:.1f}" y="{top + low:.1f}">{escaped(text)}</text>'
    yield "</g>\n"


def escaped_line(line: str) -> str:
    """Return a further line of a title."""
    return f"\n{escaped(line)}" if line else ""


def _edge(
    drawing: Collapsed,
    edge: tuple[int, int],
    places: list[tuple[float, float]],
    counts: list[str],
    taken: list[tuple[float, float, float]],
) -> Iterator[str]:
    """Yield a curve through the tops of the layers at ``places``."""
    source, target = edge
    data, control = drawing.edges[edge]
    down = places[-1][1] >= places[0][1]
    near, far = (0, _HEIGHT) if down else (_HEIGHT, 0)
    stops = [(places[0][0], places[0][1] + far)]
    for x, top in places[1:-1]:
        stops += [(x, top + near), (x, top + far)]
    stops.append((places[-1][0], places[-1][1] + near))
    path = f"M{stops[0][0]:.1f} {stops[0][1]:.1f}"
    for place in range(0, len(stops) - 1, 2):
        (x, y), (to_x, to_y) = stops[place], stops[place + 1]
        half = (to_y - y) / 2
        path += f"C{x:.1f} {y + half:.1f} {to_x:.1f} {to_y - half:.1f} {to_x:.1f} {to_y:.1f}"
        if place + 2 < len(stops):
            path += f"V{stops[place + 2][1]:.1f}"
    total = data + control
    thick = min(1.0 + total.bit_length() / 4, 4.0)
    told = f"{drawing.boxes[source].name} → {drawing.boxes[target].name}: {count_words(total, 'edge')}"
    told += f", {control:,} of control" if control else ""
    style = "edge control" if not data else "edge"
    yield (
        f'<path class="{style}" stroke-width="{thick:.2g}" marker-end="url(#tip)" d="{path}">'
        f"<title>{escaped(told)}</title></path>\n"
    )
    if total > 1:
        counts.extend(_count(f"{total:,}", stops, taken))


def _count(text: str, stops: list[tuple[float, float]], taken: list[tuple[float, float, float]]) -> Iterator[str]:
    """Yield the number of edges, written on the first or last stretch where there is room for it."""
    width = 5.6 * len(text)
    for (x, y), (to_x, to_y) in (stops[:2], stops[-2:]):
        for part in (0.5, 0.65, 0.35, 0.8):
            bend = part * part * (3 - 2 * part)  # of the curve, whose ends are upright
            at, height = x + bend * (to_x - x), y + part * (to_y - y) + 3
            if all(abs(at - other) > (width + wide) / 2 + 3 or abs(height - high) > 10 for other, high, wide in taken):
                taken.append((at, height, width))
                left, high = at - width / 2 - 2, height - 9
                yield f'<rect class="back" x="{left:.1f}" y="{high:.1f}" width="{width + 4:.1f}" height="12"/>'
                yield f'<text class="count" text-anchor="middle" x="{at:.1f}" y="{height:.1f}">{text}</text>\n'
                return
