"""A drawing of a graph, collapsed by scope: boxes for scopes, and edges between them with counts, as SVG.

The names of nodes are paths (``encoder/layer_0/attention/MatMul``, ``model.layers.0.mlp``): all nodes in one scope are
one box. Scopes are cut as deep as the number of boxes allows. Where names have no scopes, neighbours in the file are
one box.
"""

from __future__ import annotations

from array import array
from itertools import islice
from types import MappingProxyType

from pparse.display.text import columns_of, fitted, in_xml, safe, told_apart
from pparse.errors import LimitError, told
from pparse.graphs.index import NOBODY
from pparse.graphs.layout import LayerPlan
from pparse.lazy import lazy_pattern
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.graphs.graph import Graph

    Point = tuple[float, float]
    Room = tuple[float, float, float]  # of a number: its middle, its height and its width

# So many boxes are made if no depth is given; more than the second number are refused.
BOXES: Final = 200
_MOST: Final = 1_000
_DEEPEST: Final = 12
# Fewer boxes of scopes without their numbers tell less than neighbours in the file do.
_TELLING: Final = 8
# A scope with more than this part of all nodes is opened, if that makes no more boxes than are allowed.
_SHARE: Final = 12
# Inputs, outputs and constants up to this many have boxes of their own.
_ENDS: Final = 24
# Boxes with the same neighbours, from this many on, become one. So many are made in the hope that few remain.
_ALIKE: Final = 6
_BEFORE: Final = 16_000
_EDGES: Final = 50_000
# Edges from one input to more boxes, and control edges from more boxes to one, are told, not drawn.
_DRAWN: Final = 8
# Memory of a box, and of an edge between two.
_BOX_BYTES: Final = 600
_EDGE_BYTES: Final = 300
# Operations that are counted in one box.
_OPS: Final = 64
_NO_BOX: Final = 0xFFFF
_NUMBERS: Final = lazy_pattern(r"[\d#]+")
_SCOPE_ENDS: Final = lazy_pattern(r"(?<=[^/.])[/.]")  # a name may begin with a separator

NODES = "nodes"
INPUT = "input"
OUTPUT = "output"
CONSTANT = "constant"


class Box:
    """One box: a scope, a node, or an input, output or constant."""

    __slots__ = ("count", "kind", "name", "note", "operations", "others")

    def __init__(self, name: str, kind: str = NODES, count: int = 0) -> None:
        self.name = name
        """The scope, or the name of the only node; for inputs and outputs, what they are."""
        self.kind = kind
        """``nodes``, ``input``, ``output`` or ``constant``."""
        self.count = count
        """How many nodes or values it stands for."""
        self.operations: dict[str, int] = {}
        """Number of nodes per operation, of up to 64 operations."""
        self.note = ""
        """Edges that are not drawn, in words."""
        self.others = 0
        """How many further boxes, which have the same neighbours, are in it."""

    def add(self, op: str) -> None:
        """Count a node."""
        self.count += 1
        if op in self.operations or len(self.operations) < _OPS:
            self.operations[op] = self.operations.get(op, 0) + 1


class Collapsed:
    """The boxes of a graph or part of one, and the edges between them: numbers of boxes to [edges, control edges].

    ``depth`` cuts names behind so many scopes. Raises `LimitError` if that makes too many boxes.
    """

    def __init__(
        self,
        part: Any,
        depth: int | None = None,
        *,
        constants: bool = False,
        captured: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.part = part
        self._captured = captured
        graph: Graph = part.graph
        self.graph = graph
        self.boxes: list[Box] = []
        self.edges: dict[tuple[int, int], list[int]] = {}
        self.depth = depth if depth is not None else self._fitting_depth()
        """How many scopes of a name are kept; 0 if names have none to tell nodes apart."""
        self.numbered = True
        """Whether scopes that differ in numbers only are several."""
        self.opened: set[str] = set()
        """The scopes that hold so much of the graph that their names are cut one scope deeper."""
        self.stretches: dict[str, int] = {}
        """Of large scopes that hold too many others to open them, and are cut into neighbours: nodes to a box."""
        if depth is None and self.depth:
            self._open_scopes()
        self._scoped = False
        self._constants = constants
        index = graph.index
        room = 2 * index.total + _BOX_BYTES * _BEFORE + _EDGE_BYTES * _EDGES
        with graph.extraction.session.budget.charge(room, "the boxes of a drawing"):
            if self.depth or depth is not None:
                self._collapse()
            else:
                self._collapse_flat()
        if len(self.boxes) > _MOST:
            raise _too_many(f"the drawing would have {len(self.boxes):,} boxes")
        self._leave_out()

    def _collapse_flat(self) -> None:
        """Find another way if names have more than 200 first scopes.

        Cut behind them, if few boxes remain once those that are alike are one; else take scopes that differ in numbers
        only for one; else, or if names have no scopes, neighbours in the file.
        """
        self.depth = 1
        for self.numbered in (True, False):
            try:
                self._collapse()
            except LimitError:
                continue
            if (1 if self.numbered else _TELLING) <= len(self.boxes) <= BOXES and self._scoped:
                return
        self.depth, self.numbered = 0, True
        self._collapse()

    def _collapse(self) -> None:
        self.boxes, self.edges = [], {}
        box_of = array("H", [_NO_BOX]) * self.graph.index.total
        self._make_boxes(box_of)
        self._add_ends(box_of)
        self._connect(box_of)
        self._add_bodies(box_of)
        self._add_outputs(box_of)
        self._merge_alike()

    # -- boxes -------------------------------------------------------------------------------------------------------

    def _fitting_depth(self) -> int:
        """Return the greatest depth with at most 200 scopes; 0 if there is none."""
        scopes: list[set[str]] = [set() for _ in range(_DEEPEST)]
        fitting = _DEEPEST
        for row in self.part.rows():
            names = prefixes(row[1], fitting)
            for depth in range(fitting):
                scopes[depth].add(names[min(depth, len(names) - 1)])
                if len(scopes[depth]) > BOXES:
                    fitting = depth
                    break
            if not fitting:
                return 0
        counts = [len(found) for found in scopes[:fitting]]
        return counts.index(counts[-1]) + 1  # deeper, there is nothing more

    def _open_scopes(self) -> None:
        """Open large scopes, the largest first, while the boxes are few enough; those of one size all or none.

        One that holds more than there may be boxes is cut into stretches of neighbours.
        """
        for _ in range(_DEEPEST):
            inner: dict[str, dict[str, int]] = {}
            for row in self.part.rows():
                names = prefixes(row[1], 2 * _DEEPEST)
                place = names.index(self._cut(row[1]))
                kids = inner.setdefault(names[place], {})
                kid = names[min(place + 1, len(names) - 1)]
                if kid in kids or len(kids) <= BOXES:
                    kids[kid] = kids.get(kid, 0) + 1
                else:
                    kids[""] = kids.get("", 0) + 1  # what is not told apart any more
            sizes = {name: sum(kids.values()) for name, kids in inner.items()}
            before, total = len(self.opened), len(inner)
            self.stretches = {}
            for size in sorted(set(sizes.values()), reverse=True):
                if size * _SHARE <= self.part.node_count:
                    break
                large = [name for name, count in sizes.items() if count == size and set(inner[name]) != {name}]
                more = sum(len(inner[name]) - 1 for name in large)
                if total + more <= BOXES:
                    total += more
                    self.opened.update(large)
                elif self.part.node_count > BOXES:
                    self.stretches |= {name: -(-size * len(large) // (BOXES // 2)) for name in large}
            if len(self.opened) == before:
                break

    def _cut(self, name: str) -> str:
        """Return the scope of a node that is a box."""
        names = prefixes(name, 2 * _DEEPEST if self.opened else self.depth)
        place = min(self.depth, len(names)) - 1
        while names[place] in self.opened and place + 1 < len(names):
            place += 1
        return names[place]

    def _make_boxes(self, box_of: array[int]) -> None:
        """Give each node its box. Inputs have their own, while they are few."""
        index = self.graph.index
        waiting = index.placeholders
        alone = self.graph.inputs.only(self.part.marks).node_count <= _ENDS
        stretch = max(1, -(-self.part.node_count // BOXES))
        known: dict[str, int] = {}
        counts: dict[str, int] = {}
        for number, row in enumerate(self.part.rows()):
            is_input = alone and waiting[row[0]]
            if is_input or (stretch == 1 and not self.depth):
                name = f"\0{row[0]}"
            elif self.depth:
                name = self._cut(row[1])
                self._scoped = self._scoped or name != row[1]
                name = name if self.numbered else without_numbers(name)
                if name in self.stretches:
                    counts[name] = counts.get(name, -1) + 1
                    name = f"\0{name}\0{counts[name] // self.stretches[name]}"
            else:
                name = f"\0{number // stretch}"
            if name not in known:
                known[name] = self._new(name if name[:1] != "\0" else row[1], INPUT if is_input else NODES)
            box = self.boxes[known[name]]
            box.add(row[2])
            if (not self.depth or name[:1] == "\0") and box.count == 2:
                box.name += " …"
            box_of[row[0]] = known[name]

    def _new(self, name: str, kind: str, count: int = 0) -> int:
        if len(self.boxes) >= _BEFORE:
            raise _too_many(f"depth {self.depth} makes more than {_BEFORE:,} boxes")
        self.boxes.append(Box(name, kind, count))
        return len(self.boxes) - 1

    def _add_ends(self, box_of: array[int]) -> None:
        """Make boxes for the inputs and constants that are no nodes: one for each if they are few, else one for all."""
        index = self.graph.index
        marks, first = self.part.marks, index.count
        names = {first + number: name for number, name in enumerate(index.arguments) if marks[first + number]}
        held = {number: self._captured[name] for number, name in names.items() if name in self._captured}
        inputs = {number: name for number, name in names.items() if number not in held}
        self._add_values(box_of, list(inputs), iter(inputs.values()), INPUT)
        self._add_values(box_of, list(held), iter(held.values()), CONSTANT)
        if self._constants:
            numbers = [number for number in range(index.first_constant, index.total) if marks[number]]
            self._add_values(box_of, numbers, self.part.constants(), CONSTANT)

    def _add_values(self, box_of: array[int], numbers: Sequence[int], names: Iterator[str], kind: str) -> None:
        if len(numbers) > _ENDS:
            box = self._new(f"{len(numbers):,} {kind}s", kind, len(numbers))
            for number in numbers:
                box_of[number] = box
            return
        for number, name in zip(numbers, names, strict=True):
            box_of[number] = self._new(name, kind, 1)

    # -- edges -------------------------------------------------------------------------------------------------------

    def _connect(self, box_of: array[int]) -> None:
        index, source = self.graph.index, self.graph.source
        starts, numbers = index.input_starts, index.input_numbers
        producer, mark = source.producer, source.control
        for row in self.part.rows():
            place = starts[row[0]]
            target = box_of[row[0]]
            for text in row[3]:
                if producer(text) is None:
                    continue
                number = numbers[place]
                place += 1
                box = box_of[number] if number != NOBODY else _NO_BOX
                if box != target and box != _NO_BOX:
                    self._add_edge(box, target, control=bool(mark) and text.startswith(mark))
            for number in index.beside(row[0]) if row[5] and source.names_values else ():
                if box_of[number] not in (target, _NO_BOX):  # captured by a body
                    self._add_edge(box_of[number], target)

    def _add_edge(self, source: int, target: int, *, control: bool = False) -> None:
        counts = self.edges.setdefault((source, target), [0, 0])
        if len(self.edges) > _EDGES:
            raise _too_many(f"the drawing would have more than {_EDGES:,} edges")
        counts[control] += 1

    def _add_bodies(self, box_of: array[int]) -> None:
        """Make boxes for the branches and loops inside of nodes, while they are few, behind dashed edges."""
        graph = self.graph
        names = [name for name in islice(graph.bodies, _ENDS + 1) if name not in graph.functions]
        for name in names if len(names) <= _ENDS else ():
            node = graph.nodes.get(name.rpartition(".")[0])
            if node is None or box_of[node.ordinal] == _NO_BOX:
                continue
            operations = graph.bodies[name].operations
            number = self._new(name, NODES, sum(operations.values()))
            self.boxes[number].operations = operations
            self._add_edge(box_of[node.ordinal], number, control=True)

    def _add_outputs(self, box_of: array[int]) -> None:
        """Make boxes for what the graph returns, behind the boxes that make it."""
        found = self._outputs(box_of)
        one = self._new(f"{len(found):,} outputs", OUTPUT, len(found)) if len(found) > _ENDS else None
        for name, box in found:
            number = self._new(name, OUTPUT, 1) if one is None else one
            if box != _NO_BOX:
                self._add_edge(box, number)

    def _outputs(self, box_of: array[int]) -> list[tuple[str, int]]:
        """Return names of outputs, each with the box that makes it."""
        graph, index, wanted = self.graph, self.graph.index, self.part.wanted
        texts = dict(graph.results) if wanted is None else {name: name for name in wanted}
        if not texts:
            texts = {text: text for way in graph.signatures.values() for text in way.outputs.values() if text}
        if not texts:
            ends = graph.unconsumed.only(self.part.marks)
            return [(row[1], box_of[row[0]]) for row in ends.rows() if self.boxes[box_of[row[0]]].kind == NODES]
        found = []
        for name, text in texts.items():
            number = index.ordinal(graph.source.producer(text) or text)
            number = graph.number_of(text) if number is None else number
            found.append((name, box_of[number] if number is not None else _NO_BOX))
        return found

    # -- fewer boxes -------------------------------------------------------------------------------------------------

    def _merge_alike(self) -> None:
        """Make one box of many that have the same neighbours, such as the variables of a model."""
        around: list[tuple[list[int], list[int]]] = [([], []) for _ in self.boxes]
        for source, target in self.edges:
            around[source][1].append(target)
            around[target][0].append(source)
        groups: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for number, (sources, targets) in enumerate(around):
            key = self.boxes[number].kind, tuple(sorted(sources)), tuple(sorted(targets))
            groups.setdefault(key, []).append(number)
        into = list(range(len(self.boxes)))
        for (kind, _, _), group in groups.items():
            if len(group) < _ALIKE or kind not in (NODES, OUTPUT):
                continue
            first = self.boxes[group[0]]
            first.others = len(group) - 1
            for number in group[1:]:
                into[number] = group[0]
                first.count += self.boxes[number].count
                for op, count in self.boxes[number].operations.items():
                    first.operations[op] = first.operations.get(op, 0) + count
        self._renumber(into)

    def _renumber(self, into: list[int]) -> None:
        """Leave out the boxes that are in others."""
        kept = [number for number, home in enumerate(into) if home == number]
        new = {number: place for place, number in enumerate(kept)}
        self.boxes = [self.boxes[number] for number in kept]
        edges, self.edges = self.edges, {}
        for (source, target), (data, control) in edges.items():
            key = new[into[source]], new[into[target]]
            if key[0] != key[1]:
                found = self.edges.get(key, (0, 0))
                self.edges[key] = [found[0] + data, found[1] + control]

    def _leave_out(self) -> None:
        """Leave out edges that would cover everything: of an input of many boxes, and to what waits for many."""
        lead: dict[int, list[tuple[int, int]]] = {}
        wait: dict[int, list[tuple[int, int]]] = {}
        for edge, (data, _) in self.edges.items():
            if self.boxes[edge[0]].kind in (INPUT, CONSTANT):
                lead.setdefault(edge[0], []).append(edge)
            elif not data or self.boxes[edge[1]].kind == OUTPUT:
                wait.setdefault(edge[1], []).append(edge)
        for found, words in ((lead, "to"), (wait, "after")):
            for number, edges in found.items():
                if len(edges) > _DRAWN:
                    self.boxes[number].note = f"{words} {len(edges):,} boxes"
                    for edge in edges:
                        del self.edges[edge]


def _too_many(reason: str) -> LimitError:
    return LimitError(reason, option=told("a smaller --depth", "a smaller depth"))


def without_numbers(name: str) -> str:
    """Return a name with each of its numbers as ``#``."""
    return _NUMBERS.sub("#", name)


def prefixes(name: str, most: int) -> list[str]:
    """Return the scopes of a name, from the outermost on, then the name itself; at most so many."""
    ends = [found.start() for found in islice(_SCOPE_ENDS.finditer(name), most)]
    return [name[:end] for end in (ends if 0 < most == len(ends) else [*ends, len(name)])]


# -- A drawing of a graph as SVG: text, boxes and curves; no scripts, no links, nothing that is fetched ----------------

# Labels are in a font of fixed width, so that their width is known, and shortened to fit; the whole text is in the
# ``title`` of each box and edge, which browsers show.

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


def to_svg(part: Any, title: str = "", depth: int | None = None, **options: Any) -> Iterator[str]:
    """Yield the lines of a drawing; options as of `Collapsed`. Raises `LimitError` for too many boxes."""
    drawing = Collapsed(part, depth, **options)
    shown = [(safe(box.name), _LETTERS) for box in drawing.boxes]
    names = told_apart(shown)
    labels = [_label(part.graph, box, names[name]) for box, name in zip(drawing.boxes, shown, strict=True)]
    edges = list(drawing.edges)
    widths = [max(80.0, _LETTER * columns_of(name), _SMALL * columns_of(what)) + 20.0 for name, what in labels]
    plan = LayerPlan(widths, edges, [box.kind == INPUT for box in drawing.boxes], _HEIGHT, _BETWEEN)
    head = [safe(title or part.graph.name or "graph"), _summary(drawing)]
    width = max(plan.width, 9.8 * columns_of(head[0]), _SMALL * columns_of(head[1])) + 2 * _EDGE
    height = _HEAD + plan.height + _EDGE
    shift = (width - plan.width) / 2
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}">\n'
    )
    yield f"<title>{in_xml(head[0])}</title>\n<style>\n{_STYLE}</style>\n"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5L8 4L0 7.5z" fill="#718096"/></marker></defs>\n'
    )
    yield f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>\n'
    yield f'<text class="head" x="{_EDGE}" y="28">{in_xml(head[0])}</text>\n'
    yield f'<text class="what" x="{_EDGE}" y="46">{in_xml(head[1])}</text>\n'
    counts: list[str] = []
    taken: list[Room] = []
    places = [(x + shift, y + _HEAD) for x, y in plan.places]
    for number, edge in enumerate(edges):
        points = [(x + shift, y + _HEAD) for x, y in plan.routes[number]]
        yield from _edge(drawing, edge, [places[edge[0]], *points, places[edge[1]]], counts, taken)
    for number, box in enumerate(drawing.boxes):
        yield from _box(box, labels[number], *places[number], widths[number])
    yield from counts
    yield "</svg>\n"


# -- labels ----------------------------------------------------------------------------------------------------------


def _label(graph: Any, box: Box, name: str) -> tuple[str, str]:
    """Return the two lines in a box, which is called ``name`` there."""
    what = box.kind
    if box.kind in (INPUT, OUTPUT):
        known = graph.value(box.name) if box.count == 1 and not box.others else None
        what += str(known)[len(box.name) :] if known is not None else ""
    elif box.kind == NODES:
        operations = sorted(box.operations.items(), key=lambda item: (-item[1], item[0]))
        most = ", ".join(f"{op} {count:,}" for op, count in operations[:2])
        more = " …" if len(operations) > 2 else ""
        what = operations[0][0] if box.count == 1 else f"{box.count:,} nodes: {most}{more}"
    what = safe(f"{what}, {box.note}" if box.note else what)
    return name + (f" and {box.others:,} alike" if box.others else ""), fitted(what, _LETTERS + 8, head=1)


def _summary(drawing: Collapsed) -> str:
    graph, part = drawing.graph, drawing.part
    of = f" of {graph.node_count:,}" if part is not graph else ""
    text = f"{graph.kind}: {part.node_count:,}{of} nodes, {len(drawing.boxes):,} boxes"
    if all(box.count == 1 for box in drawing.boxes):
        return text
    if not drawing.numbered:
        return f"{text}; names are cut behind 1 scope, and numbers in it are #"
    depth = count_words(drawing.depth, "scope")
    if not drawing.depth:
        return f"{text}; neighbours in the file are one box"
    more = ", those of large scopes later" if drawing.opened else ""
    more += "; neighbours in a large scope are one box" if drawing.stretches else ""
    return f"{text}; names are cut behind {depth}{more}"


# -- shapes ----------------------------------------------------------------------------------------------------------


def _box(box: Box, label: tuple[str, str], middle: float, top: float, width: float) -> Iterator[str]:
    shape = box.kind if box.kind != NODES else "node" if box.count == 1 else "scope"
    corner = 4 if box.kind == NODES else _HEIGHT / 2
    counts = "\n".join(f"{op} {count:,}" for op, count in box.operations.items()) if box.count > 1 else ""
    operations = "".join(f"\n{in_xml(line)}" for line in counts.splitlines() if line)
    more = f" and {box.others:,} alike" if box.others else ""
    yield f"<g><title>{in_xml(box.name)}{more}{operations}</title>"
    yield (
        f'<rect class="{shape}" x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}"'
        f' height="{_HEIGHT}" rx="{corner}"/>'
    )
    for style, text, low in (("name", label[0], 18), ("what", label[1], 33)):
        yield f'<text class="{style}" text-anchor="middle" x="{middle:.1f}" y="{top + low:.1f}">{in_xml(text)}</text>'
    yield "</g>\n"


def _edge(
    drawing: Collapsed, edge: tuple[int, int], places: list[Point], counts: list[str], taken: list[Room]
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
        f"<title>{in_xml(told)}</title></path>\n"
    )
    if total > 1:
        counts.extend(_count(f"{total:,}", stops, taken))


def _count(text: str, stops: list[Point], taken: list[Room]) -> Iterator[str]:
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
