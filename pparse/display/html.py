"""Tables for notebooks, as HTML without a script: everything escaped, nothing without a bound."""

from __future__ import annotations

from html import escape

from pparse.display.text import safe, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

# The most characters of one cell.
_CELL: Final = 200
_TABLE: Final = "font-family:monospace;white-space:pre-wrap"
_TEXT: Final = "text-align:left"


def text(value: object) -> str:
    """Return ``value`` as the text of an element: short, visible, escaped."""
    return escape(shorten(safe(str(value)), _CELL))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table with ``caption`` above and ``note`` below it. All arguments are plain text."""
    # "mathjax_ignore": a notebook would typeset what stands between dollar signs.
    parts = [f'<div class="mathjax_ignore tex2jax_ignore"><div>{text(caption)}</div><table style="{_TABLE}">']
    if heads:
        parts.append("<thead><tr>")
        parts += [f'<th style="{_TEXT}">{text(head)}</th>' for head in heads]
        parts.append("</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        parts.append("<tr>")
        parts += [f'<td style="{_TEXT}">{text(cell)}</td>' for cell in row]
        parts.append("</tr>")
    parts.append("</tbody></table>")
    if note:
        parts.append(f"<div>{text(note)}</div>")
    parts.append("</div>")
    return "".join(parts)
