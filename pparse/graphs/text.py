"""Graphs as text: Graphviz (``dot``) and JSON, streamed."""

from __future__ import annotations

from itertools import chain, repeat
from json.encoder import encode_basestring_ascii as _text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.graphs.source import Edge, Row


def quoted(text: str) -> str:
    """Return ``text`` as a quoted string of the DOT language; control characters are escaped as in JSON."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if text.isprintable():
        return f'"{text}"'
    shown = "".join(char if char.isprintable() else f"\\\\x{ord(char):02x}" for char in text)
    return f'"{shown}"'


def to_dot(part: Any, name: str = "", constants: bool = False) -> Iterator[str]:
    """Yield the lines of a Graphviz file: nodes with their operation, edges with ports, control edges dashed.

    Stored values that are no nodes are left out, with their edges, unless ``constants`` are asked for.
    """
    graph = part.graph
    named = graph.source.names_values
    yield f"digraph {quoted(name or graph.name or 'graph')} {{\n"
    yield "  node [shape=box];\n"
    stored = part.constants() if constants else ()
    for value, shape in chain(zip(part.arguments, repeat("ellipse")), zip(stored, repeat("note"))):
        label = f", label={quoted(value)}" if named else ""
        yield f"  {_identifier(value, 'value', named)} [shape={shape}{label}];\n"
    for row in part.rows():
        label, target = quoted(row[1]), _identifier(row[1], "node", named)
        yield f"  {target} [label={label[:-1]}\\n{quoted(row[2])[1:]}];\n"
        for edge in graph.edges_of(row):
            if constants or not named or edge.output is not None or not graph.is_constant(edge.source):
                yield f"  {_source(edge, named)} -> {target}{_style(edge)};\n"
    if named:
        yield from _results(part)
    yield "}\n"


def _identifier(name: str, kind: str, named: bool) -> str:
    """Return the identifier of a node or value; where values have ``named`` themselves, no node has that of one."""
    return quoted(f"{kind} {name}" if named else name)


def _source(edge: Edge, named: bool) -> str:
    return _identifier(edge.source, "value" if edge.output is None else "node", named)


def _results(part: Any) -> Iterator[str]:
    """Yield what a graph whose values have names returns, with the edges from their nodes."""
    for number, (name, edge) in enumerate(part.graph.result_edges()):
        if part.wanted is None or name in part.wanted:
            result = quoted(f"result {number}")
            yield f"  {result} [shape=ellipse, peripheries=2, label={quoted(name)}];\n"
            yield f"  {_source(edge, True)} -> {result}{_style(edge._replace(input=0))};\n"


def _style(edge: Edge) -> str:
    if edge.control:
        return " [style=dashed]"
    if edge.input is None and edge.output is not None:
        return " [style=dotted]"  # captured by a body of the target
    labels = []
    if edge.output:
        labels.append(f"taillabel={quoted(str(edge.output))}")
    if edge.input:
        labels.append(f"headlabel={quoted(str(edge.input))}")
    return f" [{', '.join(labels)}]" if labels else ""


def node_line(row: Row, where: str = "device") -> str:
    """Return a node as a JSON object: ``name``, ``op``, ``inputs``, device or domain, and ``outputs`` with names."""
    _, name, op, inputs, place, _, outputs = row
    listed = ", ".join(map(_text, inputs))
    made = f', "outputs": [{", ".join(map(_text, outputs))}]' if outputs is not None else ""
    return f'{{"name": {_text(name)}, "op": {_text(op)}, "inputs": [{listed}], "{where}": {_text(place)}{made}}}'


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
    yield from _listed(_node_lines(part))
    yield '], "edges": ['
    yield from _listed(map(edge_line, part.edges))
    yield "]}"


def to_json_lines(part: Any) -> Iterator[str]:
    """Yield the nodes, then the edges, as one JSON object per line."""
    for line in chain(_node_lines(part), map(edge_line, part.edges)):
        yield line + "\n"


def _node_lines(part: Any) -> Iterator[str]:
    where = part.graph.source.where
    return (node_line(row, where) for row in part.rows())


def _listed(lines: Iterator[str]) -> Iterator[str]:
    comma = "\n"
    for line in lines:
        yield comma + line
        comma = ",\n"
    yield "\n"
