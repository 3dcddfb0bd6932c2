"""Show the graph of a TensorFlow model: its nodes and edges, inputs and outputs, and functions.

Without --dot, --json or --jsonl, a summary. With --outputs, only the nodes that these outputs need (the result of
TensorFlow's extract_sub_graph); -o writes such a part as a separate GraphDef.
"""

from __future__ import annotations

from pparse.cli.common import open_file
from pparse.cli.exit_codes import DAMAGED, exit_code_for
from pparse.display.text import safe
from pparse.errors import UnsupportedError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.recovery.document_verdict import document_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph, Selection

EXAMPLES: Final = """examples:
  pparse graph saved_model.pb
  pparse graph model.pb --dot | dot -Tsvg > model.svg
  pparse graph model.pb --outputs logits --inputs
  pparse graph model.pb --outputs logits,probabilities -o part.pb
  pparse graph saved_model.cpb --function __inference_call_42 --jsonl
"""

# The most names that a summary shows.
_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="a file, a folder, or outer::inner")
    parser.add_argument("--outputs", metavar="NAME,...", help="only the nodes that these need (ports are ignored)")
    parser.add_argument("--inputs", action="store_true", help="only the names of the inputs to feed, one a line")
    parser.add_argument("--function", metavar="NAME", help="the body of this function instead of the graph")
    parser.add_argument("--meta-graph", metavar="N", type=_number_of, default=0, help="which one of a SavedModel (0)")
    parser.add_argument(
        "--max-nodes", metavar="N", type=_number_of, default=None, help="refuse graphs with more nodes (500000)"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="write a GraphDef, or the result of --dot, --json, --jsonl, to this file"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="names of nodes only")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help='one JSON document ("schema": 1)')
    group.add_argument("--jsonl", action="store_true", help="one JSON object a line: nodes, then edges")
    group.add_argument("--dot", action="store_true", help="for Graphviz")


def _number_of(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"not a number: {text!r}")
    return int(text)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    with open_file(options, out) as document:
        whole = _graph_of(document, options)
        graph: Graph = whole if options.function is None else whole.bodies[options.function]
        part: Graph | Selection = graph
        wanted = [name for name in (options.outputs or "").split(",") if name]
        if options.outputs is not None:
            part = graph.subgraph(wanted)
        if options.dot:
            _emit(part.to_dot(), options, out)
            return DAMAGED if _frame(document) is not Status.COMPLETE else exit_code_for(document.findings)
        graph.check()
        if options.json:
            _emit(_json(document, whole, graph, part, wanted, options), options, out)
        elif options.jsonl:
            _emit(part.to_json_lines(), options, out)
        elif options.output is not None:
            size = part.save(options.output)
            if not options.quiet:
                out.line(f"{safe(options.output)}: {_count(part)}, {count_words(size, 'byte')}")
        elif options.inputs:
            for name in _inputs(graph, part):
                out.line(safe(name))
        elif options.quiet:
            for row in part.rows():
                out.line(safe(row[1]))
        else:
            _summary(document, whole, graph, part, wanted, out)
        return exit_code_for(graph.findings, damaged=_status(document, graph) is not Status.COMPLETE)


def _graph_of(document: Extraction, options: Any) -> Graph:
    from pparse.document.registry import viewer_for

    viewer = viewer_for(document)
    if viewer is None:
        raise UnsupportedError(f"{document.name}: {document.format} has no graph")
    found: Graph = viewer.graph_of(options.meta_graph, options.max_nodes)
    return found


def _frame(document: Extraction) -> Status:
    """Return the status of the document as far as it was read."""
    return document_status(document, damaged=exit_code_for(document.findings) == DAMAGED)


def _status(document: Extraction, graph: Graph) -> Status:
    """Return the status of the document and its content."""
    status = _frame(document)
    return Status.DAMAGED if status is Status.COMPLETE and exit_code_for(graph.findings) == DAMAGED else status


def _emit(pieces: Iterable[str], options: Any, out: Output) -> None:
    """Write pieces of text to the output, or to the file given."""
    if options.output is None:
        for piece in pieces:
            out.write(piece)
        return
    from pparse.writers.files import AtomicFile

    with AtomicFile(options.output) as file:
        for piece in pieces:
            file.stream.write(piece.encode("utf-8", "backslashreplace"))


def _inputs(graph: Graph, part: Any) -> Iterator[str]:
    """Yield the names of the inputs that a graph, or a part of it, needs."""
    if part is graph:
        yield from graph.inputs
        return
    wanted = graph.index.placeholders
    yield from part.arguments
    for row in part.rows():
        if wanted[row[0]]:
            yield row[1]


# -- for people ------------------------------------------------------------------------------------------------------


def _field(out: Output, name: str, value: str) -> None:
    out.line(f"{out.paint(f'{name:11}', 'dim')} {value}")


def _count(part: Any) -> str:
    graph = part.graph
    if part is graph:
        return count_words(len(graph.source), "node")
    return f"{part.node_count:,} of {count_words(len(graph.source), 'node')}"


def _summary(document: Extraction, whole: Graph, graph: Graph, part: Any, wanted: list[str], out: Output) -> None:
    """Print a summary, one field a line."""
    parser = document.parse().parser
    _field(out, "file", safe(document.path))
    _field(out, "format", f"{parser.name}: {parser.description}")
    if graph is not whole:
        _field(out, graph.kind, safe(graph.name))
    _field(out, "nodes", _count(part).rpartition(" ")[0])
    operations, edges, control = _counts(graph, part)
    _field(out, "edges", f"{edges:,}" + (f" ({control:,} of control)" if control else ""))
    shown = [f"{safe(op)} {count:,}" for op, count in list(operations.items())[:_SHOWN]]
    _listed(out, "operations", shown, len(operations))
    _names(out, "inputs", _inputs(graph, part))
    _ends(graph, part, wanted, out)
    if part is whole:
        for name, signature in whole.signatures.items():
            takes, makes = (
                ", ".join(f"{safe(key)}={safe(text)}" for key, text in found.items()) or "nothing"
                for found in (signature.inputs, signature.outputs)
            )
            _field(out, "signature", f"{safe(name)}: {takes} → {makes}")
        if whole.functions:
            _names(out, "functions", iter(whole.functions))
    _field(out, "status", out.status(_status(document, graph)))
    out.findings([*document.findings, *graph.findings], limit=10)


def _ends(graph: Graph, part: Any, wanted: list[str], out: Output) -> None:
    """Print the outputs of a graph (all, or those asked for), or the results of a function."""
    if part is not graph:
        _names(out, "outputs", iter(wanted))
    elif graph.kind == "function":
        _names(out, "results", (f"{name}={text}" for name, text in graph.results.items()))
    else:
        _names(out, "outputs", iter(graph.outputs))


def _counts(graph: Graph, part: Any) -> tuple[dict[str, int], int, int]:
    """Return the number of nodes per operation, of edges, and of control edges."""
    index = graph.index
    if part is graph:
        return graph.operations, index.edge_count, index.control_count
    operations: dict[str, int] = {}
    edges = control = 0
    producer, mark = graph.source.producer, graph.source.control
    for row in part.rows():
        operations[row[2]] = operations.get(row[2], 0) + 1
        edges += sum(producer(text) is not None for text in row[3])
        control += sum(text.startswith(mark) for text in row[3]) if mark else 0
    return dict(sorted(operations.items(), key=lambda item: (-item[1], item[0]))), edges, control


def _names(out: Output, label: str, names: Iterator[str]) -> None:
    shown: list[str] = []
    count = 0
    for name in names:
        count += 1
        if count <= _SHOWN:
            shown.append(safe(name))
    _listed(out, label, shown, count)


def _listed(out: Output, label: str, shown: list[str], count: int) -> None:
    more = f" … {count - len(shown):,} more" if count > len(shown) else ""
    _field(out, label, (", ".join(shown) or "none") + more)


# -- for programs ----------------------------------------------------------------------------------------------------


def _json(
    document: Extraction, whole: Graph, graph: Graph, part: Any, wanted: list[str], options: Any
) -> Iterator[str]:
    """Yield pieces of the JSON document; lists of names are streamed, too."""
    from json import dumps

    operations, edges, control = _counts(graph, part)
    head = {
        "schema": 1,
        "file": options.file,
        "format": document.format,
        "function": options.function,
        "node_count": _number(graph, part),
        "edge_count": edges,
        "control_edge_count": control,
        "operations": operations,
    }
    yield dumps(head)[:-1]
    for label, names in (
        ("inputs", _inputs(graph, part)),
        ("outputs", iter(graph.outputs if part is graph else wanted)),
        ("functions", iter(whole.functions)),
    ):
        yield f', "{label}": ['
        comma = ""
        for name in names:
            yield comma + dumps(name)
            comma = ", "
        yield "]"
    results = graph.results
    yield f', "results": {dumps(results)}, "signatures": '
    yield dumps({name: signature.to_dict() for name, signature in whole.signatures.items()})
    yield ",\n"
    pieces = part.to_json()
    yield next(pieces)[1:]  # without the brace that opens it
    last = ""
    for piece in pieces:
        yield last
        last = piece
    yield last[:-1]
    found = [finding.to_dict() for finding in [*document.findings, *graph.findings]]
    yield f', "status": "{_status(document, graph)}", "findings": {dumps(found)}}}\n'


def _number(graph: Graph, part: Any) -> int:
    return len(graph.source) if part is graph else part.node_count
