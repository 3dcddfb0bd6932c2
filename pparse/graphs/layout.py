"""Where boxes and edges of a drawing go: layers, the order in each, and places.

An edge over several layers gets a point in each of those between, and boxes and points of a layer are moved as close
to their neighbours as their widths allow, by least squares.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

# -- Layers of boxes from top to bottom, and their order from left to right (Sugiyama, Tagawa and Toda, 1981) ----------

# Every step looks at each box and edge a bounded number of times, or sorts them. The same graph gets the same layers.

_ROUNDS: Final = 24
# Sweeps in all, and sweeps one after the other that find nothing better.
_SWEEPS: Final = 24
_IDLE: Final = 4


def find_layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box, the first is 0: few edges go up, and edges are short.

    What no edge leads to stands right above its first reader.
    """
    place = _sequence(count, edges)
    above, below = _neighbours(count, (sorted(edge, key=place.__getitem__) for edge in edges))
    layers = [0] * count
    for box in sorted(range(count), key=place.__getitem__):
        layers[box] = max((layers[other] + 1 for other in above[box]), default=0)
    _shorten(layers, above, below)
    for box in range(count):
        if below[box] and not above[box]:
            layers[box] = min(layers[other] for other in below[box]) - 1
    used = {layer: number for number, layer in enumerate(sorted(set(layers)))}
    return [used[layer] for layer in layers]


def _neighbours(count: int, edges: Iterable[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Return, for each box, where edges to it come from, and where edges from it lead; loops do not count."""
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        if source != target:
            sources[target].append(source)
            targets[source].append(target)
    return sources, targets


def _sequence(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the place of each box in a sequence in which few edges lead back; none, if none goes round.

    Boxes that no edge leads to go to the front, those that no edge leaves to the end; if there are none, the box with
    the most edges to others, compared with those from others, goes to the front (Eades, Lin and Smyth, 1993).
    """
    sources, targets = _neighbours(count, edges)
    waiting = [[len(found) for found in sources], [len(found) for found in targets]]

    def rank(box: int) -> tuple[float, int]:
        before, behind = waiting[0][box], waiting[1][box]
        return (before - behind if before and behind else -inf), box

    heap = [rank(box) for box in range(count)]
    heapify(heap)
    places = [-1] * count
    front, end = 0, count
    while heap:
        entry = heappop(heap)
        box = entry[1]
        if places[box] >= 0 or entry != rank(box):
            continue
        if waiting[1][box]:
            places[box] = front
            front += 1
        else:
            end -= 1
            places[box] = end
        for near, counts in ((targets, waiting[0]), (sources, waiting[1])):
            for other in near[box]:
                if places[other] < 0:
                    counts[other] -= 1
                    heappush(heap, rank(other))
    return places


# -- short edges -----------------------------------------------------------------------------------------------------


def _shorten(layers: list[int], above: list[list[int]], below: list[list[int]]) -> None:
    """Move groups of boxes up or down, as far as edges allow, while that shortens edges, and some rounds at most."""
    for _ in range(_ROUNDS):
        moved = False
        for group, pull in _groups(layers, above, below):
            inside = set(group)
            near, step = (above, -1) if pull > 0 else (below, 1)
            room = min(abs(layers[o] - layers[box]) for box in group for o in near[box] if o not in inside) - 1
            for box in group if room else ():
                layers[box] += room * step
                moved = True
        if not moved:
            return


def _groups(layers: list[int], above: list[list[int]], below: list[list[int]]) -> list[tuple[list[int], int]]:
    """Return groups of boxes that had better move together, each with its edges from above less those to below.

    Edges between neighbouring layers make trees. Of a tree, the part behind an edge is one group with the rest unless
    the edges of that part pull it away from the rest. That is the sign of a cut value in the network simplex of
    Gansner, Koutsofios, North and Vo (1993); they move one group at a time, and end with the shortest edges.
    """
    parent = [-1] * len(layers)
    sequence: list[int] = []
    for root in range(len(layers)):
        if parent[root] >= 0:
            continue
        parent[root] = root
        tree = [root]
        for box in tree:  # grows meanwhile
            for other in above[box] + below[box]:
                if parent[other] < 0 and abs(layers[other] - layers[box]) == 1:
                    parent[other] = box
                    tree.append(other)
        sequence += tree
    pull = [len(high) - len(low) for high, low in zip(above, below, strict=True)]
    for box in reversed(sequence):
        if pull[box] * (layers[parent[box]] - layers[box]) > 0:
            parent[box] = box
        elif parent[box] != box:
            pull[parent[box]] += pull[box]
    groups: dict[int, list[int]] = {}
    for box in sequence:
        parent[box] = parent[parent[box]]  # the first of the group: that of a parent is known
        groups.setdefault(parent[box], []).append(box)
    return [(group, pull[first]) for first, group in groups.items() if pull[first]]


# -- order -----------------------------------------------------------------------------------------------------------


def order_layers(layers: Sequence[int], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """Return what is in each layer, from left to right, with few crossings; links lead to the next layer only.

    Down and up in turns, a layer is sorted by the mean place of its neighbours in the layer before.
    """
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for number in _walk(above, below):
        rows[layers[number]].append(number)
    at = [0] * len(layers)
    for row in rows:
        _note(row, at)
    best, fewest, idle = [row[:] for row in rows], _crossings(rows, below, at), 0
    for sweep in range(_SWEEPS):
        if not fewest or idle == _IDLE:
            break
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _sort(row, above if down else below, at)
        found = _crossings(rows, below, at)
        idle += 1
        if found < fewest:
            best, fewest, idle = [row[:] for row in rows], found, 0
    return best


def _walk(above: list[list[int]], below: list[list[int]]) -> list[int]:
    """Return all in the order of a depth-first search: a tree that branches downwards then has no crossing."""
    seen = bytearray(len(above))
    walked = []
    for root in range(len(above)):
        stack = [root]
        while stack:
            number = stack.pop()
            if not seen[number]:
                seen[number] = 1
                walked.append(number)
                stack += reversed(below[number] + above[number])
    return walked


def _note(row: list[int], at: list[int]) -> None:
    for place, number in enumerate(row):
        at[number] = place


def _sort(row: list[int], near: list[list[int]], at: list[int]) -> None:
    """Sort a layer; what has no neighbours stays where it is."""
    means = {number: sum([at[other] for other in near[number]]) / len(near[number]) for number in row if near[number]}
    moved = iter(sorted(means, key=means.__getitem__))
    row[:] = [next(moved) if number in means else number for number in row]
    _note(row, at)


def _crossings(rows: list[list[int]], below: list[list[int]], at: list[int]) -> int:
    """Count crossings with a tree of sums, in n log n steps (Barth, Jünger and Mutzel, 2002)."""
    total = 0
    for row in rows:
        ends = [end for number in row for end in sorted([at[other] for other in below[number]])]
        size = max(ends, default=0) + 1
        sums = [0] * (size + 1)
        for before, end in enumerate(ends):
            total += before  # less those that end at the same place or left of it
            place = end + 1
            while place:
                total -= sums[place]
                place &= place - 1
            place = end + 1
            while place <= size:
                sums[place] += 1
                place += place & -place
    return total


# Points of edges between layers, in all; the longest edges beyond that are drawn straight.
_POINTS: Final = 6_000
_PASSES: Final = 40
_GAP: Final = 24.0
_POINT: Final = 10.0
# Parts that no edge joins stand side by side up to this width.
_WIDE: Final = 1_400.0


class LayerPlan:
    """Where everything goes: parts of a graph that no edge joins are laid out each for itself, and side by side.

    ``top`` says which boxes stand at the top if no edge leads to or from them.
    """

    def __init__(
        self, widths: Sequence[float], edges: Sequence[tuple[int, int]], top: Sequence[bool], height: float, gap: float
    ) -> None:
        self.places: list[tuple[float, float]] = [(0.0, 0.0)] * len(widths)
        """The middle of the upper side of each box."""
        self.routes: list[list[tuple[float, float]]] = [[] for _ in edges]
        """Per edge, the upper ends of its points, from its source to its target."""
        self.width = self.height = 0.0
        parts = _parts(len(widths), edges)
        mine: list[list[int]] = [[] for _ in parts]
        where = {box: number for number, part in enumerate(parts) for box in part}
        for number, (source, _) in enumerate(edges):
            mine[where[source]].append(number)
        laid = []
        for part, own in zip(parts, mine, strict=True):
            new = {box: number for number, box in enumerate(part)}
            links = [(new[edges[number][0]], new[edges[number][1]]) for number in own]
            laid.append(GraphLayout([widths[box] for box in part], links))
        order = sorted(range(len(parts)), key=lambda n: (not (top[parts[n][0]] and not mine[n]), -len(parts[n])))
        widest = max((layout.span for layout in laid), default=0.0)
        x = y = low = 0.0
        step = height + gap
        lone = True
        for number in order:
            layout = laid[number]
            lone_now = len(parts[number]) == 1
            if x and (x + layout.span > max(widest, _WIDE) or lone != lone_now):
                x, y = 0.0, low
            lone = lone_now
            for box, middle, layer in zip(parts[number], layout.middles, layout.layers, strict=False):
                self.places[box] = (x + middle, y + layer * step)
            for edge, route in zip(mine[number], layout.routes, strict=True):
                self.routes[edge] = [(x + layout.middles[n], y + layout.layers[n] * step) for n in route]
            x += layout.span + 2 * _GAP
            low = max(low, y + len(layout.rows) * step)
            self.width = max(self.width, x - 2 * _GAP)
        self.height = max(0.0, low - gap)


def _parts(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the boxes that edges join, in groups."""
    sources, targets = _neighbours(count, edges)
    found: list[list[int]] = []
    seen = bytearray(count)
    for box in range(count):
        if seen[box]:
            continue
        seen[box] = 1
        group = [box]
        for other in group:  # grows meanwhile
            for neighbour in sources[other] + targets[other]:
                if not seen[neighbour]:
                    seen[neighbour] = 1
                    group.append(neighbour)
        found.append(sorted(group))
    return found


class GraphLayout:
    """Places of boxes that edges join: the layer of each, and the middle of each across; routes of edges."""

    def __init__(self, widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> None:
        self.count = len(widths)
        self.layers = find_layers(self.count, edges)
        """The layer of each box, then of each point; the first is 0."""
        self.widths = list(widths)
        self.routes: list[list[int]] = []
        """Per edge, the numbers of its points, from its source to its target."""
        links = self._route(edges)
        above, below = _neighbours(len(self.layers), links)
        self.rows = order_layers(self.layers, above, below)
        """The boxes and points of each layer, from left to right."""
        self.middles = [0.0] * len(self.layers)
        self._place(above, below)
        self.span = max((at + width / 2 for at, width in zip(self.middles, self.widths, strict=True)), default=0)
        """How wide it is."""

    def _route(self, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Give edges points in the layers they cross; return the links between neighbours, each one layer down."""
        links = []
        left = _POINTS
        long = set()
        for number in sorted(range(len(edges)), key=lambda number: self._length(edges[number])):
            left -= max(0, self._length(edges[number]) - 1)
            if left < 0:
                long.add(number)
        for number, (source, target) in enumerate(edges):
            route: list[int] = []
            self.routes.append(route)
            high, low = sorted((source, target), key=self.layers.__getitem__)
            if number in long or self.layers[high] == self.layers[low]:
                continue
            before = high
            for layer in range(self.layers[high] + 1, self.layers[low]):
                self.layers.append(layer)
                self.widths.append(_POINT)
                route.append(len(self.layers) - 1)
                links.append((before, route[-1]))
                before = route[-1]
            links.append((before, low))
            if high != source:
                route.reverse()
        return links

    def _length(self, edge: tuple[int, int]) -> int:
        return abs(self.layers[edge[0]] - self.layers[edge[1]])

    # -- across ------------------------------------------------------------------------------------------------------

    def _place(self, above: list[list[int]], below: list[list[int]]) -> None:
        for row in self.rows:
            self._settle(row, [0.0] * len(row))
        for sweep in range(_PASSES):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                both = sweep >= _PASSES - 4
                wishes = []
                for number in row:
                    near = above[number] if down else below[number]
                    near = (above[number] + below[number] if both or not near else near) or [number]
                    wishes.append(sum(self.middles[other] for other in near) / len(near))
                self._settle(row, wishes)
        least = min((self.middles[n] - self.widths[n] / 2 for row in self.rows for n in row), default=0.0)
        self.middles = [middle - least for middle in self.middles]

    def _settle(self, row: list[int], wishes: list[float]) -> None:
        """Move what is in a layer as close to ``wishes`` as its order and its widths allow, by least squares.

        With the room that those to the left take subtracted, the places must only ascend: runs that do not are
        averaged (pool adjacent violators). A point of an edge weighs more than a box, so that edges run straight.
        """
        offsets = []
        offset = 0.0
        for place, number in enumerate(row):
            if place:
                offset += (self.widths[row[place - 1]] + self.widths[number]) / 2 + _GAP
            offsets.append(offset)
        runs: list[tuple[float, float, int]] = []  # sum of wishes, weight, members
        for place, number in enumerate(row):
            weight = 1.0 if number < self.count else 2.0
            total, members = weight * (wishes[place] - offsets[place]), 1
            while runs and runs[-1][0] / runs[-1][1] >= total / weight:
                before = runs.pop()
                total, weight, members = total + before[0], weight + before[1], members + before[2]
            runs.append((total, weight, members))
        place = 0
        for total, weight, members in runs:
            for _ in range(members):
                self.middles[row[place]] = total / weight + offsets[place]
                place += 1
