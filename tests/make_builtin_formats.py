"""Writes the table of built-in formats from the parsers' classes: ``python tests/make_builtin_formats.py``.

The table tells the registry of every format without importing a parser. Run this after a change of a parser's name,
signatures, extensions, viewer or place. Formats are listed in the table's order; a new one comes last: move its row
and run this again if it belongs elsewhere.
The parsers of compressed streams come last, in the order of `pparse.codecs.table`, which describes them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pparse.parsers  # noqa: E402 -- the folder was just added
from pparse.codecs.table import CODECS  # noqa: E402
from pparse.document.builtin_formats import ROWS  # noqa: E402
from pparse.document.registry import import_dotted  # noqa: E402
from pparse.tree.parser import Parser  # noqa: E402

TABLE = ROOT / "pparse/document/builtin_formats.py"
HEAD = '''"""What the parsers' classes say, for the registry: written by ``python tests/make_builtin_formats.py``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# The arguments of `pparse.document.registry.Builtin`, a format a row.
# fmt: off
ROWS: Final[tuple[tuple[Any, ...], ...]] = (
'''


def parsers() -> list[str]:
    """Return the parser of each format: of those in the table in its order, then of new ones."""
    found = set()
    for module in pkgutil.walk_packages(pparse.parsers.__path__, "pparse.parsers."):
        for name, made in vars(importlib.import_module(module.name)).items():
            own = isinstance(made, type) and issubclass(made, Parser) and made.__module__ == module.name
            if own and made.name and not name.startswith("_") and made.name not in CODECS:
                found.add(f"{module.name}:{name}")
    known = [row[1] for row in ROWS if row[1] in found]
    return known + sorted(found.difference(known)) + [codec.parser for codec in CODECS.values() if codec.told_by]


def magic(parser: type[Parser]) -> tuple[tuple[int, tuple[bytes, ...]], ...]:
    """Return the bytes of a parser's signatures, those at one offset together."""
    found: dict[int, list[bytes]] = {}
    for mark in parser.signatures:
        found.setdefault(mark.at, []).append(mark.magic)
    return tuple((at, tuple(magics)) for at, magics in found.items())


def row(dotted: str) -> tuple[object, ...]:
    """Return the row of one parser."""
    parser: type[Parser] = import_dotted(dotted)
    rare = (parser.usual_names, parser.member_parts)
    return (
        parser.name,
        dotted,
        parser.viewer,
        magic(parser),
        parser.extensions,
        parser.is_generic,
        parser.reads == "folder",
        parser.named_is_enough,
        # What refines a format is not looked for where even that one does not begin.
        not parser.refines and parser.match_further.__func__ is not Parser.match_further.__func__,  # type: ignore[attr-defined]
        parser.is_data_set,
        *(rare if parser.member_parts else rare[: bool(parser.usual_names)]),
    )


def line(dotted: str) -> str:
    """Return the line of one parser."""
    found = f"    {row(dotted)!r},"
    return found + ("  # noqa: E501\n" if len(found) > 120 else "\n")


def table() -> str:
    """Return the module's text."""
    return HEAD + "".join(map(line, parsers())) + ")\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
