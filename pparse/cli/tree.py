"""Show the nodes of a file, with errors where they are.

Containers below the depth are marked as not loaded; ``-d all`` walks the whole document in one pass.
"""

from __future__ import annotations

from pparse.cli.common import each_file, exit_code_for, open_file, refused_argument
from pparse.cli.files import split_files
from pparse.cli.output import JsonRows
from pparse.display.text import columns_of, fitted, safe
from pparse.document.registry import viewer_for
from pparse.errors import PathError, PparseError
from pparse.findings import Finding, Status
from pparse.tree.entry import SCALAR, UNLOADED_VALUE
from pparse.tree.visit import Trail, Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node

EXAMPLES: Final = """examples:
  pparse tree model.safetensors
  pparse tree config.json 'quantization' -d 3
  pparse tree records.riegeli -d 1
  pparse tree config.json -d all --jsonl
"""

# Columns of a terminal that a value takes at least.
_LEAST: Final = 20


def _depth(text: str) -> int:
    return -1 if text == "all" else _count(text, "a number or 'all'")


def _count(text: str, wanted: str = "a number, 0 for all") -> int:
    if not text.isdigit():
        raise refused_argument(f"{wanted}, not {text!r}")
    return int(text)


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add_files("; after the first, an argument that is not a file is a PATH: a node, or a tensor's name")
    parser.add("-d --depth N", "levels to show, or 'all' (2)", type=_depth, default=2)
    most = "children to show of each node; 0 for all (50; with -d all: all)"
    parser.add("-n --children N", most, type=_count, default=50)
    parser.add("-l --long", "in a terminal, nothing shortened")
    parser.add("-q --quiet", "paths only")
    parser.add_json(lines="nodes")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    options.files, paths = split_files(options.files)
    if len(paths) > 1:
        raise PathError("not a file, and the second path; a tree begins at one node", path=paths[1])
    options.path = paths[0] if paths else ""
    return each_file(options, out, _show_tree, heading=True)


def _show_tree(options: Any, out: Output) -> int:
    with open_file(options, out) as document:
        start = _start(document, options.path)
        file: Any = start.extraction  # perhaps one beside the document
        show = _Shower(options, out, document.format, viewer_for(file))
        if options.depth < 0:
            for visit in file.parse().parser.walk(start):
                show.visit(visit)
        else:
            _descend(start, options.depth, options.children or None, show)
        show.end(document)
        return exit_code_for(document.findings, damaged=show.damaged)


def _start(document: Extraction, path: str) -> Node:
    """Return the node to begin at: a member, the node of a tensor, which may be in a file beside it, or a path."""
    if not path:
        return document.root
    document.parse()
    viewer = viewer_for(document)
    tensor = viewer.find(path) if viewer is not None else None
    node = viewer.node_of(tensor) if viewer is not None and tensor is not None else None
    if node is None:
        node = document.result.listing.find_member(path)
    if node is not None:
        return node
    try:
        return document.node(path)
    except PathError as error:
        if tensor is None:
            raise
        raise PathError("this tensor has no node of its own; 'pparse get' reads it", path=path) from error


def _descend(start: Node, depth: int, most: int | None, show: _Shower) -> None:
    """Show nodes down to ``depth``, without recursion."""
    trail = Trail.of(start)
    show.node(start, 0, trail)
    stack: list[tuple[Node, Iterator[Node], int]] = []
    if start.shape != SCALAR and depth:
        stack.append((start, start.children(), 0))
    while stack:
        parent, children, shown = stack.pop()
        if most is not None and shown >= most:
            count = parent.index_to(None).count
            if count > shown:
                show.more(len(stack) + 1, count - shown)
            continue
        try:
            kid = next(children, None)
        except PparseError as error:
            show.problem(len(stack) + 1, str(error))
            continue
        if kid is None:
            continue
        stack.append((parent, children, shown + 1))
        show.node(kid, len(stack), trail)
        if kid.shape != SCALAR and len(stack) < depth:
            stack.append((kid, kid.children(), 0))


class _Shower:
    """Shows nodes as indented lines, as paths, or as JSON."""

    def __init__(self, options: Any, out: Output, format_name: str, viewer: Viewer | None) -> None:
        self.options = options
        self.out = out
        self.damaged = False
        as_json = options.json or options.jsonl
        self._rows = JsonRows(out, options, {"format": format_name}, "nodes") if as_json else None
        self._text = not (as_json or options.quiet)
        self._viewer = viewer if self._text else None
        self._omitted = 0
        self._problems: list[dict[str, object]] = []

    def end(self, document: Any) -> None:
        """End the output with the findings that belong to no node shown."""
        if self._rows is not None and self.options.json:
            findings = [finding.to_dict() for finding in document.findings] + self._problems
            self._rows.end({"omitted": self._omitted, "findings": findings})
        elif self._text:
            self.out.findings(document.findings, limit=20)
        elif self._omitted:
            self.out.error(f"{self._omitted:,} children are not shown (-n 0 shows all)")

    def node(self, node: Node, depth: int, trail: Trail) -> None:
        """Show a node."""
        if node.shape != SCALAR and node.known_status is None:
            try:
                node.index_to(1)
            except PparseError as error:
                self.problem(depth, str(error))
                return
        visit = Visit.of(node, depth, trail)
        if visit.is_complete:
            visit.status = node.status  # looks for what contradicts it
        self.visit(visit, self._tensor_words(node))

    def _tensor_words(self, node: Node) -> str:
        """Return type and shape of the tensor that a node describes, and its name if the node has another; else
        nothing."""
        try:
            tensor = self._viewer.tensor_at(node) if self._viewer is not None else None
        except PparseError:  # what is wrong is shown with the node
            return ""
        if tensor is None:
            return ""
        name = "" if tensor.name in (node.key, node.path) else f" {tensor.name}"
        return safe(f"{name} {tensor.type_name} {tensor.shape_text}")

    def visit(self, visit: Visit, tensor: str = "") -> None:
        """Show a node of a walk; ``tensor``: what is known of the tensor that it describes."""
        if visit.status not in (None, Status.COMPLETE, Status.UNSUPPORTED):
            self.damaged = True
        if self._rows is not None:
            self._rows.add(_to_dict(visit))
        elif self.options.quiet:
            self.out.line(safe(visit.path) or "(root)")
        else:
            self._show(visit, tensor)

    def more(self, depth: int, count: int) -> None:
        """Report that children are not shown."""
        self._omitted += count
        if self._text:
            self.out.say("  " * depth + self.out.paint(f"… {count:,} more (-n 0 shows all)", "dim"))

    def problem(self, depth: int, text: str) -> None:
        """Show an error in its place."""
        self.damaged = True
        if self._text:
            self.out.say("  " * depth + self.out.paint(f"! {safe(text)}", "red"), indent=2 * depth + 2)
        elif self.options.json:
            self._problems.append(Finding("not-read", text).to_dict())
        else:
            self.out.error(text)

    def _show(self, visit: Visit, tensor: str) -> None:
        is_root = not visit.depth and not visit.path
        label = "(root)" if is_root else f"[{visit.ordinal}]" if visit.key is None else str(visit.key)
        kind, value, start, end = visit.kind, visit.value, visit.start, visit.end
        # A node made from other pieces (a list of files) has no bytes of its own.
        where = "" if start == end == 0 else f"  [0x{start:x}..{f'0x{end:x}' if end is not None else ''})"
        if visit.shape != SCALAR:
            content = self.out.paint(f"{kind} {{…}}" if visit.shape == "map" else f"{kind} […]", "bold")
        elif value is UNLOADED_VALUE:
            content = f"{kind} (not loaded)"
        else:
            shown = safe(repr(value) if not isinstance(value, str) else _quoted(value))
            content = f"{kind} {shown[:120]}{'…' if len(shown) > 120 else ''}"
        content += tensor
        trouble = ""
        if visit.status not in (None, Status.COMPLETE):
            reason = visit.finding.reason if visit.finding is not None else ""
            trouble = "  " + self.out.paint(f"{visit.status}" + (f": {safe(reason)}" if reason else ""), "red")
        indent, label, tail = "  " * min(visit.depth, 200), safe(label), self.out.paint(where, "dim") + trouble
        columns = 0 if self.options.long else self.out.columns
        if columns and columns_of(f"{indent}{label}: {content}{tail}") > columns:
            # A value gives way first, and of a tensor the kind; then a name, but never where it is.
            room = columns - columns_of(f"{indent}{label}: {tail}")
            content = tensor.strip() or fitted(content, max(room, _LEAST), head=1)
            label = fitted(label, max(columns - columns_of(f"{indent}: {content}{tail}"), _LEAST))
        line = f"{indent}{label}: {content}{tail}"
        self.out.line(fitted(line, columns, head=1) if columns else line)


def _to_dict(visit: Visit) -> dict[str, object]:
    """Return a node as plain data for JSON."""
    end, value, status = visit.end, visit.value, visit.status
    row: dict[str, object] = {
        "path": visit.path,
        "depth": visit.depth,
        "kind": visit.kind,
        "status": status.value if status is not None else None,
        "offset": visit.start,
        "length": end - visit.start if end is not None else None,
        "loaded": value is not UNLOADED_VALUE,
    }
    if value is not UNLOADED_VALUE:
        row["value"] = value if isinstance(value, str | int | float | bool | None) else repr(value)
    if visit.finding is not None:
        row["reason"] = visit.finding.reason
    return row


def _quoted(text: str) -> str:
    from json import dumps

    return dumps(text, ensure_ascii=False)
