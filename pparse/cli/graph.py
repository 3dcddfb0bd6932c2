"""Show the graph of a model: its nodes and edges, inputs and outputs, functions and bodies.

Without --dot, --svg, --json or --jsonl, a summary. With --outputs, only the nodes that these outputs need (for
TensorFlow, the result of extract_sub_graph); -o writes such a part as a model of its own. What only saves and restores
variables is left out, except with --all, --outputs and in a model that is written.
"""

from __future__ import annotations

from itertools import islice

from pparse.cli.common import DAMAGED, OK, exit_code_for, open_file, refuse_own, refused_argument
from pparse.cli.output import write, write_text
from pparse.display.text import safe
from pparse.errors import DataError, EndOfDataError, LimitError, UnsupportedError
from pparse.findings import BROKEN, Status
from pparse.graphs.graph import Called
from pparse.graphs.source import Value
from pparse.limits import count_words
from pparse.recovery.document_verdict import document_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph, GraphSelection
    from pparse.tensors.viewer import Viewer

# What a graph can be shown as: options, and extensions of an output.
_FORMS: Final = ("json", "jsonl", "dot", "svg")

EXAMPLES: Final = """examples:
  pparse graph saved_model.pb
  pparse graph model.pb --dot | dot -Tsvg > model.svg
  pparse graph model.pb --depth 3 -o model.svg
  pparse graph saved_model/ --signature serving_default -o model.svg
  pparse graph model.pb --outputs logits --inputs
  pparse graph model.pb --outputs logits,probabilities -o part.pb
  pparse graph saved_model.cpb --body __inference_call_42 --jsonl
  pparse graph saved_model.pb --all --quiet
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a file, a folder, - or outer::inner")
    parser.add("--outputs NAME,...", "only the nodes that these need (ports are ignored)")
    parser.add("--inputs", "only the names of the inputs to feed, one a line")
    parser.add("--body --function NAME", "this function or body of a node instead of the graph", dest="body")
    called = "the function that this signature runs (in --dot and --svg, that of the only one is shown anyway)"
    parser.add("--signature NAME", called)
    parser.add("--all", "also what saves and restores variables, and stored values in --dot and --svg")
    parser.add("--meta-graph N", "which one of a SavedModel (0)", type=_number_of, default=0)
    parser.add("--max-nodes N", "refuse graphs with more nodes (500000)", type=_number_of)
    parser.add("--depth N", "cut names in --svg behind N scopes (about 200 boxes)", type=_number_of)
    parser.add("-o --output OUT", "write to this file: .svg, .dot, .json, .jsonl as these options do, else a model")
    parser.add("-q --quiet", "names of nodes only")
    parser.add_one_of(
        json='one JSON document ("schema": 1)',
        jsonl="one JSON object a line: nodes, then edges",
        dot="for Graphviz",
        svg="a drawing, scopes of names as boxes",
    )


def _number_of(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise refused_argument(f"not a number: {text!r}")
    return int(text)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    ending = (options.output or "").lower().rpartition(".")[2]
    if ending in _FORMS and not any(getattr(options, form) for form in _FORMS):
        setattr(options, ending, True)
    with open_file(options, out) as document:
        refuse_own(document, options.output)
        whole = _graph_of(document, options)
        graph, captured = _called(whole, options)
        part = _part_of(graph, options)
        if options.dot or options.svg:
            if options.dot:
                pieces = part.to_dot(constants=options.all)
            else:
                name = document.name.replace("\\", "/").rstrip("/").rpartition("/")[2] or document.name
                title = f"{name}: {graph.name}" if graph.name else name
                pieces = part.to_svg(title, options.depth, constants=options.all, captured=captured)
            write_text(options.output, out, pieces)
            return _code(document)
        graph.check()
        if options.json:
            write_text(options.output, out, _json(document, whole, graph, part, options))
        elif options.jsonl:
            write_text(options.output, out, part.to_json_lines())
        elif options.output is not None:
            size = write(options.output, out, lambda stream: part.write(stream.write))
            if not options.quiet:
                if out.terminal:  # the next line says it there
                    out.wrote.clear()
                out.say(f"{safe(options.output)}: {_nodes(graph, part)} nodes, {count_words(size, 'byte')}")
                for note in graph.source.notes_on_part(part.wanted or ()):
                    out.error(f"note: {safe(note)}")
        elif options.inputs or options.quiet:
            inputs = (name for name in inputs_of(graph, part) if name not in captured)
            for name in inputs if options.inputs else (row[1] for row in part.rows()):
                out.line(safe(name))
        else:
            _summary(document, whole, Called(graph, captured), part, options, out)
        return _code(document, graph)


def _part_of(graph: Graph, options: Any) -> Graph | GraphSelection:
    """Return what is shown or written of a graph."""
    if options.outputs is not None:
        return graph.subgraph([name for name in options.outputs.split(",") if name])
    writes = options.output is not None and not (options.dot or options.svg or options.json or options.jsonl)
    if options.all or writes or graph.kind != "graph":
        return graph
    try:
        return graph.visible
    except LimitError:  # --dot streams a graph of any size, whole
        if not options.dot:
            raise
        return graph


def _called(whole: Graph, options: Any) -> Called:
    """Return the graph that is meant: of a body, or of what a signature runs (of pictures, the only one), or all."""
    if options.body is not None:
        return Called(whole.bodies[options.body])
    if options.signature is not None:
        return whole.called_by(options.signature)
    if (options.dot or options.svg) and options.outputs is None and not options.all:
        names = [name for name in whole.signatures if not name.startswith("__")]
        if len(names) == 1:
            return whole.called_by(names[0])
    return Called(whole)


def _graph_of(document: Extraction, options: Any) -> Graph:
    from pparse.document.registry import viewer_for

    viewer = viewer_for(document)
    if viewer is None:
        raise UnsupportedError(f"{document.name}: {document.format} has no graph")
    try:
        found: Graph = viewer.graph_of(options.meta_graph, options.max_nodes)
    except UnsupportedError as error:
        status = viewer.extent().status
        if status not in BROKEN:
            raise
        reason = f"{error.reason} in what is left of it: the file is {status}"
        raise EndOfDataError(reason) from error
    return found


def _status(document: Extraction, graph: Graph | None = None) -> Status:
    """Return the status of the document as far as it was read, and of a graph in it that was checked."""
    found = [*document.findings, *(() if graph is None else graph.findings)]
    return document_status(document, damaged=exit_code_for(found) != OK)


def _code(document: Extraction, graph: Graph | None = None) -> int:
    return OK if _status(document, graph) is Status.COMPLETE else DAMAGED


# -- for people ------------------------------------------------------------------------------------------------------


def _nodes(graph: Graph, part: Graph | GraphSelection) -> str:
    return f"{part.node_count:,}" + ("" if part.wanted is None else f" of {graph.node_count:,}")


def _summary(
    document: Extraction, whole: Graph, called: Called, part: Graph | GraphSelection, options: Any, out: Output
) -> None:
    """Print a summary, one field a line."""
    graph: Graph = called.graph
    captured = called.captured
    parser = document.parse().parser
    out.field("file", safe(document.path))
    out.field("format", f"{parser.name}: {parser.description}")
    if graph is not whole:
        out.field(graph.kind, safe(graph.name))
    out.field("nodes", _nodes(graph, part))
    if part is not graph and options.outputs is None:
        hidden = f"{count_words(graph.hidden_count, 'node')} that only save and restore variables (--all shows them)"
        out.field("hidden", hidden)
    operations, edges, control = _counts(graph, part)
    out.field("edges", f"{edges:,}" + (f" ({control:,} of control)" if control else ""))
    out.field("operations", _first(operations, lambda op: f"{safe(op)} {operations[op]:,}"))
    constants = sum(1 for _ in part.constants())
    if constants:
        out.field("constants", f"{constants:,}")
    takes = inputs_of(graph, part)
    out.field("inputs", typed_names(graph, [name for name in takes if name not in captured] if captured else takes))
    if captured:
        out.field("captured", _first(captured.values()))
    if part is graph and graph.kind == "function":
        results = (f"{name}={text}" if name != text else name for name, text in graph.results.items())
        out.field("results", _first(results))
    else:
        out.field("outputs", typed_names(graph, outputs_of(graph, part)))
    if graph is whole and options.outputs is None:
        _around(whole, options, out)
    out.field("status", out.status(_status(document, graph)))
    out.findings([*document.findings, *graph.findings], shows_all="graph --json")  # 'pparse check' goes by the file


def _around(whole: Graph, options: Any, out: Output) -> None:
    """Print signatures, and the names of functions and of bodies."""
    for name, signature in whole.signatures.items():
        takes, makes = (
            ", ".join(f"{safe(key)}={safe(text)}" for key, text in found.items()) or "nothing"
            for found in (signature.inputs, signature.outputs)
        )
        out.field("signature", f"{safe(name)}: {takes} → {makes}")
    functions = whole.functions
    if functions:
        out.field("functions", _first(_shown(whole, functions, options)))
    if len(whole.bodies) > len(functions):
        out.field("bodies", _first(name for name in whole.bodies if name not in functions))


def _shown(whole: Graph, functions: Iterable[str], options: Any) -> Iterator[str]:
    """Yield the names of functions; without --all, not of those that save and restore."""
    is_saver = whole.source.is_saver
    return (name for name in functions if options.all or not is_saver(name))


def _counts(graph: Graph, part: Graph | GraphSelection) -> tuple[dict[str, int], int, int]:
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
        edges += len(row[5]) if graph.source.names_values else 0
        control += sum(text.startswith(mark) for text in row[3]) if mark else 0
    return dict(sorted(operations.items(), key=lambda item: (-item[1], item[0]))), edges, control


# -- for programs ----------------------------------------------------------------------------------------------------


def _json(
    document: Extraction, whole: Graph, graph: Graph, part: Graph | GraphSelection, options: Any
) -> Iterator[str]:
    """Yield pieces of the JSON document; lists of names are streamed, too."""
    from json import dumps

    operations, edges, control = _counts(graph, part)
    head = {
        "schema": 1,
        "file": options.file,
        "format": document.format,
        "function": options.body if graph.kind == "function" else None,
        "body": options.body,
        "node_count": part.node_count,
        "hidden_count": graph.hidden_count if part is not graph and options.outputs is None else 0,
        "edge_count": edges,
        "control_edge_count": control,
        "constant_count": sum(1 for _ in part.constants()),
        "operations": operations,
    }
    yield dumps(head)[:-1]
    functions = whole.functions
    takes, makes = inputs_of(graph, part), outputs_of(graph, part)
    lists: dict[str, Iterable[object] | None] = {
        "inputs": None if _is_lost(graph, takes) else takes,
        "outputs": None if _is_lost(graph, makes) else makes,
        "functions": _shown(whole, functions, options),
        "bodies": (name for name in whole.bodies if name not in functions),
        "input_values": described(graph, takes),
        "output_values": described(graph, makes),
    }
    for label, items in lists.items():
        yield from (f', "{label}": null',) if items is None else _list(label, map(dumps, items))
    yield f', "results": {dumps(dict(graph.results))}, "signatures": '
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


def _list(label: str, items: Iterable[str]) -> Iterator[str]:
    yield f', "{label}": ['
    comma = ""
    for item in items:
        yield comma + item
        comma = ", "
    yield "]"


# -- Inputs and outputs of a graph with their types and shapes, for `graph` and `info` ---------------------------------

# The most names that are shown.
_SHOWN: Final = 20
# The most inputs or outputs that are described in JSON.
_MOST: Final = 1_000
# `info` looks at the inputs and outputs of graphs up to this many nodes.
_NODES: Final = 20_000


def inputs_of(graph: Graph, part: Graph | GraphSelection) -> Collection[str]:
    """Return the names of the inputs that a graph, or a part of it, needs."""
    return graph.inputs.only(part.marks)


def outputs_of(graph: Graph, part: Graph | GraphSelection) -> Collection[str]:
    """Return the names of the outputs of a graph or of what is shown of it; of a subgraph, those asked for."""
    if part.wanted is not None:
        return part.wanted
    return graph.outputs if graph.source.names_values else graph.unconsumed.only(part.marks)


def _is_lost(graph: Graph, names: Collection[str]) -> bool:
    """Return whether there are no inputs or outputs, perhaps since the file is cut before them."""
    if any(True for _ in names):
        return False
    is_cut = graph.kind == "graph" and graph.extraction.root.is_truncated
    return is_cut or not graph.source.is_whole


def typed_names(graph: Graph, names: Collection[str]) -> str:
    """Return names with types and shapes as text, as far as they are known; the first 20."""
    if _is_lost(graph, names):
        return "not known: the file is cut before them"
    return _first(names, lambda name: safe(str(graph.value(name) or name)))


def _first(names: Iterable[str], word: Callable[[str], str] = safe) -> str:
    """Return the first 20 names as text, each as ``word`` shows it, and how many more there are."""
    left = iter(names)
    shown = ", ".join(map(word, islice(left, _SHOWN))) or "none"
    more = sum(1 for _ in left)
    return shown + (f" … {more:,} more" if more else "")


# -- in `info` -------------------------------------------------------------------------------------------------------


def graph_words(viewer: Viewer) -> list[tuple[str, str]]:
    """Return what `info` says of the graph of a model, if it has one that can be read: labels and texts."""
    graph = _readable_graph(viewer)
    if graph is None:
        return []
    ends = [(label, typed_names(graph, names)) for label, names in _ends_of(graph)]
    faults = f"; {count_words(len(graph.findings), 'finding')}: see 'pparse graph'" if graph.findings else ""
    return [("graph", count_words(graph.node_count, "node") + faults), *ends]


def graph_facts(viewer: Viewer) -> dict[str, object] | None:
    """Return the same as plain data, with what is wrong with the graph as far as that is known without going through it
    again; inputs and outputs are None if they are not known, or of too many nodes."""
    graph = _readable_graph(viewer)
    if graph is None:
        return None
    ends = {label: described(graph, names) for label, names in _ends_of(graph)}
    findings = [finding.to_dict() for finding in graph.findings]
    return {"node_count": graph.node_count, "inputs": None, "outputs": None, **ends, "findings": findings}


def _ends_of(graph: Graph) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the names of the inputs and the outputs, unless the graph has too many nodes."""
    if graph.node_count <= _NODES:
        yield "inputs", inputs_of(graph, graph.visible)
        yield "outputs", outputs_of(graph, graph.visible)


def _readable_graph(viewer: Viewer) -> Graph | None:
    """Return the graph of a model; None if there is none, or it cannot be read (`graph` tells why)."""
    try:
        graph = viewer.graph
        if graph is not None and graph.node_count <= _NODES:
            _ = graph.index
    except DataError:
        return None
    return graph


def described(graph: Graph, names: Collection[str]) -> list[dict[str, object]] | None:
    """Return name, type and shape of the first inputs or outputs as plain data; None if they are lost."""
    if _is_lost(graph, names):
        return None
    return [(graph.value(name) or Value(name, "", None)).to_dict() for name in islice(names, _MOST)]
