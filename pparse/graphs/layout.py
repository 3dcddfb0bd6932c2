"""Where boxes and edges of a drawing go, in the layers and the order that `layers` finds.

An edge over several layers gets a point in each of those between, and boxes and points of a layer are moved as close
to their neighbours as their widths allow, by least squares.
"""

from __future__ import annotations

from pparse.graphs.layers import find_layers, order_layers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# Points of edges between layers, in all; the longest edges beyond that are drawn straight.
_POINTS: Final = 6_000
_SWEEPS: Final = 40
_GAP: Final = 24.0
_POINT: Final = 10.0
# Parts that no edge joins stand side by side up to this width.
_WIDE: Final = 1_400.0


class Plan:
    """Where everything goes: parts of a graph that no edge joins are laid out each for itself, and side by side.

    ``first`` says which boxes stand at the top if no edge leads to or from them.
    """

    def __init__(
        self,
        widths: Sequence[float],
        edges: Sequence[tuple[int, int]],
        first: Sequence[bool],
        height: float,
        between: float,
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
            laid.append(Layout([widths[box] for box in part], links))
        order = sorted(range(len(parts)), key=lambda n: (not (first[parts[n][0]] and not mine[n]), -len(parts[n])))
        widest = max((layout.span for layout in laid), default=0.0)
        x = y = low = 0.0
        step = height + between
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
        self.height = max(0.0, low - between)


def _parts(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the boxes that edges join, in groups."""
    near: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        near[source].append(target)
        near[target].append(source)
    found: list[list[int]] = []
    seen = bytearray(count)
    for box in range(count):
        if seen[box]:
            continue
        seen[box] = 1
        group = [box]
        for other in group:  # grows meanwhile
            for neighbour in near[other]:
                if not seen[neighbour]:
                    seen[neighbour] = 1
                    group.append(neighbour)
        found.append(sorted(group))
    return found


class Layout:
    """Places of boxes that edges join: the layer of each, and the middle of each across; routes of edges."""

    def __init__(self, widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> None:
        self.count = len(widths)
        self.layers = find_layers(self.count, edges)
        """The layer of each box, then of each point; the first is 0."""
        self.widths = list(widths)
        self.routes: list[list[int]] = []
        """Per edge, the numbers of its points, from its source to its target."""
        links = self._route(edges)
        above: list[list[int]] = [[] for _ in self.layers]
        below: list[list[int]] = [[] for _ in self.layers]
        for high, low in links:
            above[low].append(high)
            below[high].append(low)
        self.rows = order_layers(self.layers, above, below)
        """The boxes and points of each layer, from left to right."""
        self.middles = [0.0] * len(self.layers)
        self._place(above, below)
        self.span = max(
            (middle + width / 2 for middle, width in zip(self.middles, self.widths, strict=True)), default=0
        )
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
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                both = sweep >= _SWEEPS - 4
                wishes = []
                for number in row:
                    near = above[number] if down else below[number]
                    near = above[number] + below[number] if both or not near else near
                    wishes.append(
                        sum(self.middles[other] for other in near) / len(near) if near else self.middles[number]
                    )
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
