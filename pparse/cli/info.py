"""Describe a file: format, counts, sizes, metadata, status; for a truncated file, where it ends and where to resume."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice

from pparse.cli.common import OK, each_file, exit_code_for, open_file
from pparse.cli.graph import graph_facts, graph_words
from pparse.cli.output import cut_to_dict, parameters_words, report_cut, report_document_cut, report_findings
from pparse.display.text import safe
from pparse.document.registry import viewer_for
from pparse.findings import BROKEN, Status
from pparse.limits import count_words, exact_size, format_size
from pparse.recovery.document_verdict import all_findings, document_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.tensors.viewer import Viewer
    from pparse.tree.parser import Listing

    Field = tuple[str, str]  # label and value

# How many lines of metadata are shown, and from what length on a value comes behind the others.
_SHOWN: Final = 20
_LONG: Final = 200
# Lines on how a model is called.
_CALLS: Final = 60
# What those lines are called together.
_CALL: Final = dict.fromkeys(("signature", "  input", "  output", "function", "  callable"), "signature")
# Lines of a screen for the prompt, and for what is said of a file that is not whole.
_REST: Final = 1
_REST_BROKEN: Final = 7
# The fewest lines that are shown of a subject, with the one that says how many there are.
_LEAST: Final = 3
EXAMPLES: Final = """examples:
  pparse info model.safetensors
  pparse info *.safetensors -q
  pparse info records.riegeli
  pparse info half-a-download.safetensors --json
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files()
    parser.add("-l --long", "all of it: otherwise at most 20 facts, and in a terminal no more than fit its screen")
    parser.add("-q --quiet", "format and status only")
    parser.add("-R --recursive", "of a folder, describe each model in it and below")
    parser.add_strict()
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if options.recursive:
        from pparse.cli.inventory import spread

        spread(options, out)
        options.recursive = False
    return each_file(options, out, _tell)


def _tell(options: Any, out: Output) -> int:
    with open_file(options, out) as document:
        if document.is_folder:
            from pparse.cli.inventory import describe_folder, is_inventory

            if is_inventory(document, options):
                return describe_folder(document, options, out)  # type: ignore[arg-type]
        viewer = viewer_for(document)
        if viewer is not None:
            return _model(document, viewer, options, out)
        return _document(document, options, out)


def _in_short(options: Any, text: str) -> str:
    return f"{safe(options.file)}: {text}" if options.several else text


def _head(document: Extraction) -> list[Field]:
    parser = document.parse().parser
    fields = [("file", safe(document.path)), ("format", f"{parser.name}: {parser.description}")]
    around = document.parsed
    wrappings = []
    while around.implicit and around.parent is not None:
        around = around.parent
        wrappings += [name for name, result in around.results.items() if result.extraction is around]
    if wrappings:
        fields.append(("inside", ", in ".join(wrappings)))
    if not document.is_folder and document.size is not None:
        fields.append(("size", exact_size(document.size)))
    return fields


def _show(fields: list[Field], options: Any, out: Output, *, sound: bool) -> None:
    """Print fields; in a terminal as many as its screen takes, with what is said of a file that is not ``sound``.

    The longest runs of one subject (globals, signatures, metadata) are cut, and their number told.
    """
    runs = [list(run) for _, run in groupby(fields, lambda field: _CALL.get(field[0], field[0]))]
    room = out.height - (_REST if sound else _REST_BROKEN)
    most = max(map(len, runs))
    while most > _LEAST and sum(min(len(run), most) for run in runs) > room:
        most -= 1
    full = options.long or not out.columns
    for run in runs:
        cut = 0 if full or len(run) <= most else len(run) - most + 1
        for label, value in run[: len(run) - cut]:
            out.field(label, value, full=full)
        if cut:
            out.field(_CALL.get(run[0][0], run[0][0]), f"… {count_words(cut, 'more line')}; -l shows all")


def _model(document: Extraction, viewer: Viewer, options: Any, out: Output) -> int:
    extent = viewer.extent()
    metadata = dict(viewer.metadata)
    code = exit_code_for(viewer.findings, damaged=not extent.is_sound, strict=options.strict)
    if options.json:
        found = {
            "file": options.file,
            "format": viewer.format,
            "description": document.parse().parser.description,
            "status": extent.status.value,
            "size": extent.actual,
            "extent": extent.to_dict(),
            "graph": graph_facts(viewer),
            "interface": viewer.interface(),
            **viewer.outline(),
            "metadata": metadata,
            "globals": _globals(viewer.extraction.parse().listing),
            "findings": [finding.to_dict() for finding in viewer.all_findings(extent)],
        }
        out.json(found, indent=2)
        return code
    if options.quiet:
        out.line(_in_short(options, f"{viewer.format} {out.status(extent.status, extent.all_verified)}"))
        return code
    fields = [*_head(document), *_details(viewer)]
    if document.is_folder:
        from pparse.cli.inventory import taken

        fields += taken(document, configs=True)  # type: ignore[arg-type]
    fields.append(("tensors", f"{extent.count:,} in {format_size(extent.listed_bytes)}"))
    if extent.counts_parameters:
        fields.append(("parameters", parameters_words(extent.parameters, noun=False)))
    lines = ((label, safe(value)) for label, value in viewer.interface_lines())
    calls = list(lines if options.long else islice(lines, _CALLS + 1))
    # Signatures say more than the ends of the graph.
    fields += [field for field in graph_words(viewer) if not calls or field[0] == "graph"]
    if not options.long and len(calls) > _CALLS:
        calls[_CALLS:] = [("…", "'pparse info FILE --json' shows all signatures and functions")]
    fields += calls
    fields += _outline_fields(viewer, options)
    fields += _metadata_fields(viewer, metadata, options, brief=bool(out.columns))
    fields.append(("status", out.status(extent.status, extent.all_verified)))
    _show(fields, options, out, sound=extent.is_sound)
    hit = viewer.find(extent.first_hit) if extent.first_hit is not None else None
    report_cut(out, extent, document, hit if hit is not None and hit.status is Status.TRUNCATED else None)
    report_findings(out, viewer, extent)
    return code


def _outline_fields(viewer: Viewer, options: Any) -> list[Field]:
    """Return what the model consists of: the first lines of each subject, or all."""
    found: list[Field] = []
    for label, run in groupby(viewer.outline_lines(), lambda line: line[0]):
        lines = [(label, safe(text)) for _, text in (run if options.long else islice(run, _SHOWN))]
        more = sum(1 for _ in run)
        found += lines
        if more:
            found.append((label, f"… {more:,} more; 'pparse info FILE --json' shows all"))
    return found


def _metadata_fields(viewer: Viewer, metadata: dict[str, Any], options: Any, *, brief: bool) -> list[Field]:
    """Return the first facts of the metadata, or all; those of one name and value in many places are counted."""
    facts = [(safe(str(name)), safe(value)) for name, value in sorted(_facts(metadata), key=_rank)]
    if options.long:
        return [("metadata", f"{name} = {value}") for name, value in facts]
    counts = Counter((name.rpartition(".")[2], value) for name, value in facts)
    found: dict[object, tuple[str, str, int]] = {}
    for number, (name, value) in enumerate(facts):
        same = (name.rpartition(".")[2], value)
        count = counts[same] if counts[same] > 2 else 1
        found.setdefault(same if count > 1 else number, (name, value, count))
    shown = list(found.values())
    fields = []
    is_cut = viewer.most_facts is not None and len(metadata) >= viewer.most_facts
    most = len(shown) if brief and not is_cut else _SHOWN  # `_show` cuts more
    for name, value, count in shown[:most]:
        more = f" (and in {count - 1:,} other places)" if count > 1 else ""
        fields.append(("metadata", f"{name} = {value[:200]}{'…' if len(value) > 200 else ''}{more}"))
    rest = len(facts) - sum(count for _, _, count in shown[:most])
    if rest:
        is_node = len(facts) == len(metadata) and viewer.root.find("metadata") is not None
        how = "get FILE metadata" if is_node else "info FILE --json"
        least, those = ("at least ", "those") if is_cut else ("", "all")
        fields.append(("metadata", f"… {least}{rest:,} more; 'pparse {how}' shows {those}"))
    return fields


def nested(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values of metadata; of nested ones first all, then ``name.key``, ``name[0].key``."""
    waiting: list[tuple[str, Any]] = [(str(name), value) for name, value in reversed(list(metadata.items()))]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting += [(f"{name}.{key}", inner) for key, inner in reversed(list(value.items()))]
        elif _has_dicts(value):
            waiting += [(f"{name}[{number}]", inner) for number, inner in reversed(list(enumerate(value)))]


def _has_dicts(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(inner, dict) for inner in value)


def _facts(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values of metadata as text, of those that have no others in them."""
    for name, value in nested(metadata):
        if not isinstance(value, dict) and not _has_dicts(value):
            yield name, _in_words(value)


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) if value else "(an empty list)"
    text = str(value)
    return f"({len(text):,} spaces)" if len(text) > 1 and text.count(" ") == len(text) else text


def _rank(fact: tuple[str, str]) -> tuple[bool, bool, int]:
    """Return what facts are ordered by: what stands in lists comes last, such as the groups of an optimizer, and
    before it long texts; of the others, epochs and options at the top come first."""
    name, value = fact
    parts = name.split(".")
    in_list = any(part.isdecimal() for part in parts) or "[" in name
    return in_list, len(value) > _LONG, len(parts)


def _details(viewer: Viewer) -> list[Field]:
    """Return facts that only some viewers have."""
    if viewer.is_set:
        return [
            ("shards", f"{len(viewer.parser.shard_names()):,}"),
            ("size", f"{viewer.extent().actual or 0:,} bytes in all shards"),
        ]
    listing = viewer.extraction.parse().listing
    try:
        size = listing.header_size
    except ValueError:
        return []
    if size is None:
        return [(label, safe(text)) for label, text in listing.details()]
    return [("header", f"{size:,} bytes")]


def _globals(listing: Listing) -> list[dict[str, object]]:
    """Return the globals that pickles in a document name."""
    from pparse.tree.code_use import in_order

    return [use.to_dict() for use in in_order(listing.globals())]


def _document(document: Extraction, options: Any, out: Output) -> int:
    root = document.root
    count = None if root.shape == "scalar" else len(root)
    listing = document.parse().listing
    details = list(listing.details())
    status = document_status(document, damaged=exit_code_for(document.findings) != OK)
    damaged = status in BROKEN
    code = exit_code_for(document.findings, damaged=damaged, strict=options.strict)
    if options.json:
        shown = {label: text for label, text in details if label not in ("metadata", "global")}  # keys of their own
        found = {
            "file": options.file,
            "format": document.format,
            "description": document.parse().parser.description,
            "status": status.value,
            "size": document.size,
            "kind": root.kind,
            "members": count,
            "metadata": listing.metadata(),
            "details": shown,
            "globals": _globals(listing),
            **cut_to_dict(document, status),
            "findings": [finding.to_dict() for finding in all_findings(document, status)],
        }
        out.json(found, indent=2)
        return code
    if options.quiet:
        out.line(_in_short(options, f"{document.format} {out.status(status)}"))
        return code
    fields = _head(document)
    if not details:
        fields.append(("root", root.kind + (f" of {count_words(count, 'member')}" if count is not None else "")))
    fields += [(label, safe(value)) for label, value in details]
    _show([*fields, ("status", out.status(status))], options, out, sound=not damaged)
    report_document_cut(out, document, status)
    out.findings(all_findings(document, status))
    return code
