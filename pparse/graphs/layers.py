"""Layers of boxes from top to bottom, and their order from left to right (Sugiyama, Tagawa and Toda, 1981).

Every step looks at each box and edge a bounded number of times, or sorts them. The same graph gets the same layers.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

_ROUNDS: Final = 24
# Sweeps in all, and sweeps one after the other that find nothing better.
_SWEEPS: Final = 24
_IDLE: Final = 4


def find_layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box, the first is 0: few edges go up, and edges are short.

    What no edge leads to stands right above its first reader.
    """
    place = _sequence(count, edges)
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        high, low = sorted(edge, key=place.__getitem__)
        if high != low:
            above[low].append(high)
            below[high].append(low)
    layers = [0] * count
    for box in sorted(range(count), key=place.__getitem__):
        layers[box] = max((layers[other] + 1 for other in above[box]), default=0)
    _shorten(layers, above, below)
    for box in range(count):
        if below[box] and not above[box]:
            layers[box] = min(layers[other] for other in below[box]) - 1
    used = {layer: number for number, layer in enumerate(sorted(set(layers)))}
    return [used[layer] for layer in layers]


def _sequence(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the place of each box in a sequence in which few edges lead back; none, if none goes round.

    Boxes that no edge leads to go to the front, those that no edge leaves to the end; if there are none, the box with
    the most edges to others, compared with those from others, goes to the front (Eades, Lin and Smyth, 1993).
    """
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        if source != target:
            sources[target].append(source)
            targets[source].append(target)
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
