"""Graphs as text: Graphviz (``dot``) and JSON, streamed."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as _text

from pparse.viewers.tensorflow.graph import make_edge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.viewers.tensorflow.graph import Edge
    from pparse.viewers.tensorflow.nodes import Row


def quoted(text: str) -> str:
    """Return ``text`` as a quoted string of the DOT language; control characters are escaped as in JSON."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if text.isprintable():
        return f'"{text}"'
    shown = "".join(char if char.isprintable() else f"\\\\x{ord(char):02x}" for char in text)
    return f'"{shown}"'


def to_dot(part: Any, name: str = "") -> Iterator[str]:
    """Yield the lines of a Graphviz file: nodes with their operation, edges with ports, control edges dashed."""
    graph = part.graph
    yield f"digraph {quoted(name or graph.name or 'graph')} {{\n"
    yield "  node [shape=box];\n"
    for argument in graph.arguments() if part is graph else part.arguments:
        yield f"  {quoted(argument)} [shape=ellipse];\n"
    for row in part.rows():
        yield f"  {quoted(row[1])} [label={quoted(row[1])[:-1]}\\n{quoted(row[2])[1:]}];\n"
        for edge in row_edges(row, graph.is_function):
            yield f"  {quoted(edge.source)} -> {quoted(edge.target)}{_style(edge)};\n"
    yield "}\n"


def _style(edge: Edge) -> str:
    if edge.control:
        return " [style=dashed]"
    labels = []
    if edge.output:
        labels.append(f"taillabel={quoted(str(edge.output))}")
    if edge.input:
        labels.append(f"headlabel={quoted(str(edge.input))}")
    return f" [{', '.join(labels)}]" if labels else ""


def row_edges(row: Row, in_function: bool) -> Iterator[Edge]:
    """Yield the edges that end at a node."""
    port = 0
    for text in row[3]:
        edge = make_edge(text, row[1], port, in_function)
        port += not edge.control
        yield edge


def node_line(row: Row) -> str:
    """Return a node as a JSON object with ``name``, ``op``, ``inputs``, ``device``."""
    _, name, op, inputs, device, _ = row
    listed = ", ".join(map(_text, inputs))
    return f'{{"name": {_text(name)}, "op": {_text(op)}, "inputs": [{listed}], "device": {_text(device)}}}'


def edge_line(edge: Edge) -> str:
    """Return an edge as a JSON object with ``source``, ``output``, ``target``, ``input``, ``control``."""
    source, output, target, port, control = edge
    ends = f'{{"source": {_text(source)}, "output": {_port(output)}, "target": {_text(target)}, "input": {_port(port)}'
    return f'{ends}, "control": {"true" if control else "false"}}}'


def _port(port: int | str | None) -> str:
    return "null" if port is None else str(port) if isinstance(port, int) else _text(port)


def to_json(part: Any) -> Iterator[str]:
    """Yield pieces of ``{"nodes": [...], "edges": [...]}``, one line each."""
    yield '{"nodes": ['
    yield from _listed(map(node_line, part.rows()))
    yield '], "edges": ['
    yield from _listed(map(edge_line, part.edges))
    yield "]}"


def to_json_lines(part: Any) -> Iterator[str]:
    """Yield the nodes, then the edges, as one JSON object per line."""
    for line in map(node_line, part.rows()):
        yield line + "\n"
    for line in map(edge_line, part.edges):
        yield line + "\n"


def _listed(lines: Iterator[str]) -> Iterator[str]:
    comma = "\n"
    for line in lines:
        yield comma + line
        comma = ",\n"
    yield "\n"
