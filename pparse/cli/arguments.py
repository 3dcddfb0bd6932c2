"""The arguments of a command with options among them, their errors, and help: by argparse."""

from __future__ import annotations

import argparse
import sys

from pparse.cli import screen, tell
from pparse.cli.common import USAGE, Arguments, declare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formatter with a known width: argparse makes one per argument, and would import shutil (2 ms) for the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(screen(sys.stdout)[0], 120) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a text with its paragraphs wrapped; of examples, which are indented, each line as in a shell."""
        fill = argparse.HelpFormatter._fill_text
        parts = text.strip().split("\n\n")
        return "\n\n".join(
            "\n".join(_as_shell(line, width + 2) for line in part.split("\n"))
            if "\n  " in part
            else fill(self, part, width, indent)
            for part in parts
        )

    # From 3.14 on: the theme imports dataclasses and inspect, for every argument that is added. Only help needs it.

    def _set_color(self, *args: Any, **more: Any) -> None:
        self._asked = args, more

    def __getattr__(self, name: str) -> Any:
        if name not in ("_theme", "_decolor") or not hasattr(argparse.HelpFormatter, "_set_color"):
            raise AttributeError(name)
        args, more = self._asked
        argparse.HelpFormatter._set_color(self, *args, **more)
        return self.__dict__[name]


def _as_shell(line: str, width: int) -> str:
    """Return a command line in lines of at most ``width`` columns, as far as its words allow that."""
    from textwrap import wrap

    if len(line) <= width:
        return line
    return " \\\n".join(
        wrap(line, width - 2, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
    )


class Parser(Arguments, argparse.ArgumentParser):
    """Parses what a command declares."""

    def __init__(self, **how: Any) -> None:
        argparse.ArgumentParser.__init__(self, **how)

    def declare(self, flags: list[str], to: Any, **more: Any) -> None:
        """Declare an option, or an argument without ``flags``."""
        (to or self).add_argument(*(flags or (more.pop("dest"),)), **more)

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return a group of options that the help shows together."""
        return self.add_argument_group(title)

    def one_of(self) -> argparse._MutuallyExclusiveGroup:
        """Return a group of options of which one can be given."""
        return self.add_mutually_exclusive_group()

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments, and end the command with exit code 2."""
        from difflib import get_close_matches

        for word in message.partition("unrecognized arguments: ")[2].split():
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1) if word[0] == "-" else []
            message += f"; did you mean {near[0]!r}?" if near else ""
        tell(f"{self.prog}: {message}; see '{self.prog} --help'")
        self.exit(USAGE)


def described(module: ModuleType, command: str) -> dict[str, Any]:
    """Return what the parser of a command is made with."""
    how = {"formatter_class": _HelpFormatter, "epilog": getattr(module, "EXAMPLES", None), "allow_abbrev": False}
    return {"prog": f"pparse {command}", "description": module.__doc__, **how}


def parsed(module: ModuleType, command: str, arguments: list[str]) -> argparse.Namespace:
    """Return the arguments of a command, options anywhere among them (plain argparse refuses ``FILE --json NAME``).

    Raises SystemExit once help was shown, or an error told.
    """
    parser = Parser(**described(module, command))
    declare(parser, module, command)
    words = list(arguments)
    held: dict[str, str] = {}
    if "--" in words:  # no options follow, even if they look like one; no argument can hold a NUL
        at = words.index("--")
        for number in range(at + 1, len(words)):
            if words[number].startswith("-"):
                held[f"\0{number}"] = words[number]
                words[number] = f"\0{number}"
        del words[at]
    # Words with no option between them need not be parsed twice, which takes a millisecond.
    kinds = "".join("-" if word.startswith("-") else "w" for word in words)
    options = parser.parse_intermixed_args(words) if "w-" in kinds.rstrip("-") else parser.parse_args(words)
    for name, value in vars(options).items():
        if isinstance(value, str) and value in held:
            setattr(options, name, held[value])
        elif isinstance(value, list):
            setattr(options, name, [held.get(item, item) if isinstance(item, str) else item for item in value])
    return options
