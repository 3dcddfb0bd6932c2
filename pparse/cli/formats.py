"""List the formats, built in and from plug-ins; with NAME, show everything about one."""

from __future__ import annotations

from pparse.cli.common import OK
from pparse.cli.output import Table
from pparse.display.text import safe
from pparse.document.appearance import NAMED, NOT_YET, Named, known_by, named_as
from pparse.document.registry import BUILTINS, builtin, default_registry, parser_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.registry import Registry
    from pparse.tree.parser import Parser

EXAMPLES: Final = """examples:
  pparse formats
  pparse formats safetensors
  pparse formats gguf
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("NAME", "show everything about one format (name or extension)", nargs="?")
    parser.add("-l --long", "in a terminal, nothing shortened")
    parser.add("-q --quiet", "names only")
    parser.add("--color", "colours", choices=("auto", "always", "never"), default="auto")
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    registry = default_registry()
    names, other = registry.names(), None
    if options.name is not None:
        name, other = _looked_up(registry, options.name)
        names = [name] if other is None else []
    rows = [_describe(parser_class(registry, name)) for name in names]
    shown = rows if other is None else [{**other.to_dict(), "description": f"{other.what}, {NOT_YET}"}]
    if options.json:
        named = [known.to_dict() for known in (NAMED if other is None else (other,))]
        out.json({"formats": rows, "named": named, "failed": registry.failed if other is None else {}}, indent=2)
    elif options.quiet:
        for row in shown:
            out.line(str(row["name"]))
    elif options.name is None:
        _show_all(rows, registry, out, full=options.long)
    else:
        _show_one(shown[0], out)
    return OK


def _show_all(rows: list[dict[str, Any]], registry: Registry, out: Output, *, full: bool) -> None:
    table = Table(out, ("NAME", "FILES", "FROM", "WHAT"), "<<<<", full=full)
    for row in rows:
        table.row(str(row["name"]), " ".join(row["extensions"]) or "-", str(row["from"]), safe(str(row["description"])))
    table.close()
    for name, reason in registry.failed.items():
        out.error(f"the plug-in {name!r} could not be loaded: {reason}")
    out.say("Recognised and named, but not read yet:")
    table = Table(out, ("NAME", "FILES", "TOLD BY", "WHAT"), "<<<<", full=full)
    for known in NAMED:
        table.row(known.name, " ".join(known.extensions), known.told_by, known.what)
    table.close()
    out.say("A zip that holds a model that is not read (Keras) is said to; its members are read.")
    out.say("'pparse formats NAME' shows options, limitations and references of a format")


def _looked_up(registry: Registry, word: str) -> tuple[str, Named | None]:
    """Return the format that a word names, also by extension, and its description if it is not read."""
    if word in registry.names() or named_as(word) is not None:
        return word, named_as(word)
    extension = "." + word.lower().removeprefix(".")
    read = (name for name in registry.names() if extension in parser_class(registry, name).extensions)
    return next(read, word), known_by(word)


def _describe(parser: type[Parser]) -> dict[str, Any]:
    known = builtin(parser.name)
    return {
        "name": parser.name,
        "description": parser.description,
        "extensions": list(known.extensions if known is not None else parser.extensions),
        "media_type": parser.media_type,
        "from": "built in" if known in BUILTINS else "plug-in",
        "refines": list(parser.refines),
        "root_at": parser.root_at,
        "viewer": bool(known is not None and known.viewer) or parser.name in default_registry().plugin_viewers(),
        "options": dict(parser.options),
        "limitations": list(parser.limitations),
        "references": list(parser.references),
    }


def _show_one(row: dict[str, Any], out: Output) -> None:
    for key, value in row.items():
        label = key.replace("_", " ") if key in ("told_by", "read_by") else key
        if isinstance(value, dict):
            value = [f"-O {name}=…: {text}" for name, text in value.items()]
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        for item in value if isinstance(value, list) else [value]:
            out.say(f"{out.paint(f'{label:12}', 'dim')} {safe(str(item))}", indent=13)
