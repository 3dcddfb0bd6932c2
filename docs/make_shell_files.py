"""Makes completions for bash, zsh and fish, and man pages, of the commands as they are declared: in ``share/``.

A release has them in its wheels; an installer puts them where shells and ``man`` look. Needs shtab and argparse-manpage
(the extra ``shell``), and nothing of it is needed to run pparse. ``python docs/make_shell_files.py`` in a clone;
``SOURCE_DATE_EPOCH`` is the date of the pages.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import pparse
from pparse.cli import COMMANDS
from pparse.cli.arguments import Parser, described
from pparse.cli.common import declare
from pparse.document.registry import default_registry

SHARE = Path(__file__).resolve().parent.parent / "share"
# Where each shell looks, below `SHARE`.
COMPLETIONS = {
    "bash": "bash-completion/completions/pparse",
    "zsh": "zsh/site-functions/_pparse",
    "fish": "fish/vendor_completions.d/pparse.fish",
}
# What stands for a file, or a folder, in the declarations.
FILES = {"FILE", "FILE|FOLDER", "FILE::NAME", "SOURCE", "TARGET", "OLD", "NEW", "OUT", "LIST", "EXPECTED", "PREFIX"}
FOLDERS = {"DIR"}
SUMMARY = "look into files that are too big, too broken or too dangerous to load"


def whole_parser(file: Any = None, folder: Any = None) -> argparse.ArgumentParser:
    """Return one parser with all commands; ``file`` and ``folder`` are what shtab takes for completing those."""
    parser = argparse.ArgumentParser(prog="pparse", description=f"{SUMMARY.capitalize()}.", allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=pparse.__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    formats = sorted(default_registry().names())
    for name, (path, text) in COMMANDS.items():
        module = importlib.import_module(path)
        command = commands.add_parser(name, help=text, **described(module, name))
        declare(command, module, name)
        for action in command._actions:
            if action.dest == "format" and action.option_strings:
                action.choices = formats
            words = action.metavar if isinstance(action.metavar, str) else ""
            complete = file if words in FILES else folder if words in FOLDERS else None
            if complete is not None:
                action.complete = complete  # type: ignore[attr-defined]
    return parser


def completions() -> dict[str, str]:
    """Return the script for each shell by its path below `SHARE`."""
    import shtab

    parser = whole_parser(shtab.FILE, shtab.DIRECTORY)
    return {path: shtab.complete(parser, shell=shell) for shell, path in COMPLETIONS.items()}


def man_pages() -> dict[str, str]:
    """Return a page on pparse, and one on each command, by their paths below `SHARE`."""
    from argparse_manpage.manpage import Manpage

    told = {"project_name": "pparse", "version": pparse.__version__, "manual_title": "pparse"}
    parser = whole_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    found = {}
    for name, command in commands.choices.items():
        command.prog = f"pparse-{name}"  # what `man` calls it
        examples, command.epilog = command.epilog, None
        page = Manpage(command, _data={**told, "description": COMMANDS[name][1]})
        page.synopsis = ["pparse", name, *page.synopsis[1:]]
        if examples:
            page.add_section("examples", ">", _as_typed(examples.partition("\n")[2]))
        found[f"man/man1/pparse-{name}.1"] = str(page)
    rows = "\n".join(f".TP\n.BR pparse\\-{name} (1)\n{_escaped(text)}" for name, (_, text) in COMMANDS.items())
    top = argparse.ArgumentParser(prog="pparse", usage="pparse COMMAND FILE ...", add_help=False)
    page = Manpage(top, _data={**told, "description": SUMMARY})
    page.add_section("commands", ">", rows)
    found["man/man1/pparse.1"] = str(page)
    return {path: _plain(text) for path, text in found.items()}


def _plain(text: str) -> str:
    """Return a page in ASCII, in which lines that begin with a dot are requests only if they are some."""
    text = re.sub(r"^(?=[.'])(?!\.(?:TH|SH|TP|BR?|nf|fi)\b)", r"\\&", text, flags=re.MULTILINE)
    return "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def _as_typed(text: str) -> str:
    lines = [_escaped(line.strip()) for line in text.strip().split("\n")]
    return "\n".join([".nf", *lines, ".fi"])


def main() -> None:
    """Write them."""
    os.environ["COLUMNS"] = "100"
    for path, text in {**completions(), **man_pages()}.items():
        target = SHARE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{target.relative_to(SHARE.parent)}\n")


if __name__ == "__main__":
    main()
