"""How a node shows itself in a notebook: where it is, and its first children."""

from __future__ import annotations

from itertools import islice

from pparse.display.text import table
from pparse.errors import PparseError
from pparse.findings import Status
from pparse.paths import format_path
from pparse.tree.entry import SCALAR, UNLOADED_VALUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final


# The most children of a table.
_CHILDREN: Final = 20
# The most characters of a value that are looked at.
_TEXT: Final = 1_000


def node_html(node: Any) -> str:
    """Return a table of a node's first children, which are read for it; of a scalar its value, if that is loaded."""
    note = ""
    try:
        where = node.path or "the root"
        found = [] if node.shape == SCALAR else list(islice(node.children(), _CHILDREN + 1))
    except PparseError as error:
        where, found, note = "Node", [], str(error)
    status = node.known_status
    rows = [_row(kid) for kid in found[:_CHILDREN]]
    if len(found) > _CHILDREN:
        note = f"these are the first {_CHILDREN}"
    if not rows:
        return table(f"{where}: {node.kind}", (), [(_value(node),)], note)
    said = "" if status in (None, Status.COMPLETE) else f", {status}"
    return table(f"{where}: {node.kind}{said}", ("name", "kind", "value", "bytes", "status"), rows, note)


def _row(node: Any) -> tuple[object, ...]:
    step = node.result.parser.step_to(node.parent, node.ordinal, node.key) if node.parent is not None else None
    end = "…" if node.end is None else f"{node.end:,}"
    name = "" if step is None else format_path([step])
    return name, node.kind, _value(node), f"{node.start:,} to {end}", node.known_status or ""


def _value(node: Any) -> str:
    if node.shape != SCALAR:
        return ""
    value = node.value
    if isinstance(value, str | bytes):
        value = value[:_TEXT]  # a table shortens it anyway
    return "not loaded" if value is UNLOADED_VALUE else repr(value)
