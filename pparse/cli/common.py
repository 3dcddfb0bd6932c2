"""What every command shares: options, opening, errors, exit codes, patterns of names."""

from __future__ import annotations

import argparse
import gc
import re
import sys
from itertools import islice

from pparse import errors
from pparse.cli import screen, tell
from pparse.errors import PathError, PparseError, SourceError, UnsupportedError, speak_of_commands
from pparse.findings import Severity
from pparse.lazy import lazy_pattern
from pparse.limits import MIB, Limits, count_words, parse_size
from pparse.paths import glob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from types import ModuleType
    from typing import Any, Final, NoReturn

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# -- The exit codes of the command line, and which error or finding leads to which -------------------------------------

OK: Final = 0
DIFFERENT: Final = 1
USAGE: Final = 2
UNKNOWN_FORMAT: Final = 3
DAMAGED: Final = 4
DANGEROUS: Final = 5
BUG: Final = 70

# Of several files: the first of these that one of them has.
_WORST: Final = (BUG, DANGEROUS, USAGE, UNKNOWN_FORMAT, DAMAGED, DIFFERENT)
# Any other error is of the content.
_CODES: Final = (
    (DAMAGED, (errors.NothingThereError,)),
    (UNKNOWN_FORMAT, (errors.FormatError,)),
    (USAGE, (SourceError, errors.PathError, errors.OptionError, errors.LimitError)),
    (USAGE, (errors.UnsupportedError, errors.CancelledError, errors.WorkerDiedError)),
    (BUG, (errors.EngineError, errors.ClosedError)),
)


def exit_code_of(error: PparseError) -> int:
    """Return the exit code for an error that ended a command."""
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), DAMAGED)


def exit_code_for(findings: Iterable[Finding], *, damaged: bool = False, strict: bool = False) -> int:
    """Return 4 if something is wrong with the file, else 0. With ``strict``, warnings count, too."""
    counted = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
    return DAMAGED if damaged or any(finding.severity in counted for finding in findings) else OK


def worst(codes: Collection[int]) -> int:
    """Return the exit code of a command on several files from that of each."""
    return next((code for code in _WORST if code in codes), OK)


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


def _key_value(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return key, value


def _limit(text: str) -> tuple[str, int]:
    name, value = _key_value(text)
    if name not in Limits.DEFAULTS:
        raise argparse.ArgumentTypeError(f"no limit {name!r}; limits: {', '.join(Limits.DEFAULTS)}")
    found = size(value)
    try:
        Limits(**{name: found})
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the {error}") from error
    return name, found


def size_from(least: int, words: str = "") -> Callable[[str], int]:
    """Return what parses a size for argparse that is at least so many bytes."""

    def parse(text: str) -> int:
        try:
            found = parse_size(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if found < least:
            raise argparse.ArgumentTypeError(f"must be at least {words}, not {text!r}")
        return found

    return parse


size: Final = size_from(0)


class Arguments(argparse.ArgumentParser):
    """The arguments of a command, each declared as the help shows it."""

    def add(self, words: str, text: str, to: argparse._ActionsContainer | None = None, **more: Any) -> None:
        """Declare an option: ``-o --output OUT``; without a word for a value, it is a switch. ``text`` is its help.

        ``--include GLOB ...`` may be given several times; what begins with no dash is an argument: ``FILE``.
        """
        flags = [word for word in words.split() if word.startswith("-")]
        values = words.split()[len(flags) :]
        if values:
            more["metavar"] = values[0]
        elif "choices" not in more:
            more["action"] = "store_true"
        if values[1:]:
            more |= {"action": "append", "default": []}
        (to or self).add_argument(*(flags or (more.pop("dest", words.lower()),)), help=text, **more)

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the arguments, and end the command with exit code 2."""
        from difflib import get_close_matches

        for word in message.partition("unrecognized arguments: ")[2].split():
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1) if word[0] == "-" else []
            message += f"; did you mean {near[0]!r}?" if near else ""
        tell(f"{self.prog}: {message}; see '{self.prog} --help'")
        self.exit(USAGE)

    def add_one_of(self, **switches: str) -> None:
        """Declare options of which one can be given, with the help of each."""
        group = self.add_mutually_exclusive_group()
        for name, text in switches.items():
            self.add(f"--{name}", text, group)

    def add_files(self, more: str = "") -> None:
        """Declare FILE, one or more; ``more`` describes arguments that are not files."""
        self.add(
            "FILE", f"files, folders, - (standard input, a pipe too), or outer::inner{more}", dest="files", nargs="+"
        )

    def add_strict(self) -> None:
        """Add ``--strict``, for commands that do not apply the rules of a reference reader."""
        self.add("--strict", "exit code 4 for warnings, too")

    def add_json(self, lines: str | None = None) -> None:
        """Add ``--json``, and ``--jsonl`` if ``lines`` says what its lines are."""
        more = {} if lines is None else {"jsonl": f"one JSON object a line: {lines}"}
        self.add_one_of(json='one JSON document ("schema": 1)', **more)

    def add_common(self) -> None:
        """Add the options shared by all commands on a file."""
        to = self.add_argument_group("common options")
        self.add("-f --format NAME", "read it as this format (see 'pparse formats')", to)
        self.add("-O KEY=VALUE ...", "an option of the format; repeatable", to, dest="options", type=_key_value)
        budget = size_from(MIB, "1MiB")
        self.add("--budget SIZE", "memory for caches and buffers (64MiB)", to, type=budget, default=64 * MIB)
        self.add("--scratch DIR", "folder for scratch files, if a format or a pipe needs them", to)
        limit = "lift a limit that an error message named; repeatable"
        self.add("--limit NAME=N ...", limit, to, dest="limits", type=_limit)
        self.add("--trace-io", "report on stderr which bytes were read", to)
        color = "colour status words (auto: on a terminal, unless NO_COLOR is set)"
        self.add("--color", color, to, choices=("auto", "always", "never"), default="auto")


def run_command(module: ModuleType, command: str, arguments: list[str]) -> int:
    """Build the parser of one command, run it, and turn errors into a message and an exit code."""
    parser = Arguments(
        prog=f"pparse {command}",
        description=module.__doc__,
        formatter_class=_HelpFormatter,
        epilog=getattr(module, "EXAMPLES", None),
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    if command != "formats":
        parser.add_common()
    try:
        options = _parse(parser, module.prepare(arguments) if hasattr(module, "prepare") else arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    from pparse.cli.output import Output

    out = Output(color=options.color)
    if command != "formats":
        options.limits = Limits(**dict(options.limits))
        if options.trace_io:
            from pparse.data.base import IoStats

            out.stats = IoStats(log=True)
    _collect_less()
    out.progress.start()
    before = speak_of_commands(yes=True)
    try:
        code: int = module.run(options, out)
        out.flush()
        out.tell_written(code)
        return code
    except PparseError as error:
        out.flush()
        out.error(str(error))
        return exit_code_of(error)
    except OSError:  # of an output
        out.progress.clear()
        raise
    except MemoryError:
        out.error("out of memory: the result asked for is larger than this machine can hold")
        return USAGE
    except Exception as error:  # noqa: BLE001 -- the last line of defence: say that it is our fault
        missing = _missing_library(error)
        out.flush()
        if missing is not None:
            out.error(str(missing))
            return exit_code_of(missing)
        import traceback

        sys.stderr.write(traceback.format_exc())
        out.error("this is a bug of pparse, whatever the file holds; please report it with the lines above")
        return BUG
    finally:
        out.progress.stop()
        speak_of_commands(yes=before)


def _missing_library(error: Exception) -> UnsupportedError | None:
    """Return what to say if ``error`` is that a library of others, which is imported when needed, is not there."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if not name or name == "pparse" or name in sys.stdlib_module_names:
        return None
    return UnsupportedError(f"this needs {name} ({error})", package={"google": "protobuf"}.get(name, name))


def _collect_less() -> None:
    """Keep the garbage collector from scanning again and again what is no garbage.

    Rows are many short-lived objects without cycles. But an object in a cycle may hold a decoder, so collection must
    not wait for long.
    """
    gc.set_threshold(10_000)
    if not gc.isenabled():  # the process runs one command, and was started by `pparse.cli.main`
        gc.freeze()
        gc.enable()


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse arguments with options anywhere among them (plain argparse refuses ``FILE --json NAME``)."""
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


def is_there(word: str) -> bool:
    """Say whether a word of the command line is a file: one that exists, standard input, or something in a file."""
    from pparse.data import files

    parts = word.split("::")
    return word == "-" or any(files.is_there("::".join(parts[:count])) for count in range(len(parts), 0, -1))


def split_files(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the files among ``words`` (the first always is one), and the other words."""
    others = [word for word in words[1:] if not is_there(word)]
    return [words[0], *(word for word in words[1:] if is_there(word))], others


def each_file(
    options: Any, out: Output, run_one: Callable[[Any, Output], int], *, heading: bool = False, apart: bool = True
) -> int:
    """Run a command on each of ``options.files``, as ``options.file``; return the worst exit code.

    An error in one file does not end the others. With --json the results become one document. Else, empty lines set
    files ``apart``.
    """
    files = options.files
    options.several = len(files) > 1
    if not options.several:
        options.file = files[0]
        return run_one(options, out)
    lines = options.json or getattr(options, "jsonl", False) or getattr(options, "quiet", False)
    codes = options.exit_codes = []
    for number, file in enumerate(files):
        options.file = file
        if options.json:
            out.write('{"schema": 1, "files": [\n' if not number else ",\n")
        elif not lines and number and apart:
            out.line()
        if heading and not lines:
            from pparse.display.text import safe

            out.line(out.paint(f"{safe(file)}:", "bold"))
        try:
            codes.append(run_one(options, out))
        except PparseError as error:
            message = str(error)
            out.error(message if file in message or file == "-" else f"{file}: {message}")
            codes.append(exit_code_of(error))
            if options.json:
                out.json({"file": file, "error": error.reason, "code": codes[-1]})
    if options.json:
        out.line("]}")
    return worst(codes)


def row_of(options: Any, row: dict[str, object]) -> dict[str, object]:
    """Return a row of --jsonl; for several files, with the name of its file."""
    return {"file": options.file, **row} if options.several else row


def resources(options: Any, out: Any) -> dict[str, Any]:
    """Return the keywords of whatever opens a file for a command: memory and limits, and who is told of its work."""
    return {"budget": options.budget, "limits": options.limits, "progress": out.progress, "stats": out.stats}


def open_file(options: Any, out: Any) -> Extraction:
    """Open the file of a command. Raises the error of a folder if that is known."""
    from pparse.document.opening import open as open_document

    if options.options:
        from pparse.document.registry import check_options, default_registry

        check_options((name for name, _ in options.options), default_registry(), format=options.format, written=" (-O)")
    source = options.file
    if (known := getattr(options, "known", {}).get(source)) is not None:
        raise known
    if source == "-":
        if sys.stdin is None:  # type: ignore[unreachable, unused-ignore]
            raise SourceError("standard input is closed", source="<stdin>")
        if sys.stdin.isatty():
            raise SourceError("is a terminal: give a file, or pipe one in", source="<stdin>")
        source = sys.stdin.buffer  # a file given by redirection is read at any offset, a pipe spooled
    how = {"format": options.format, "options": dict(options.options), "scratch": options.scratch}
    document = open_document(source, **how, **resources(options, out))
    out.progress.watch(document.session)
    if options.format is not None:
        document.look_for_another_format()
    return document


# -- Patterns of names, and suggestions if nothing matches them --------------------------------------------------------

# How many names are kept for suggestions.
_KEPT: Final = 5_000
# The most patterns without a match that are reported one by one.
_COMPLAINTS: Final = 10


class Matcher:
    """Tells which names match one of ``patterns`` or ``words``: globs, or regular expressions that match anywhere.

    ``words`` come from places of the command line where a file may stand, so each may be meant as a file. Without any
    pattern all names match. Until every pattern has matched, similar names are collected for suggestions.
    """

    def __init__(self, patterns: Sequence[str], words: Sequence[str] = (), *, regex: bool = False) -> None:
        from pparse.tree.result import LONG_NAME

        self._longest = LONG_NAME
        self._unmet = [_Pattern(text, regex=regex) for text in dict.fromkeys(patterns)]
        self._unmet += [_Pattern(text, regex=regex, word=True) for text in dict.fromkeys(words)]
        self._met: list[_Pattern] = []
        self._asked = 0
        self._names: dict[int, list[str]] = {}
        self._kept = 0

    def __call__(self, name: str, others: Sequence[str] = (), rank: int = 0) -> bool:
        """Return whether to show what is called ``name``, and found by ``others``, the shortest last.

        Names of a low ``rank`` are suggested first.
        """
        if not self._unmet:
            return not self._met or any(pattern.fits(name, others) for pattern in self._met)
        self._asked += 1
        hits = [pattern for pattern in self._unmet if pattern.fits(name, others)]
        found = bool(hits) or any(pattern.fits(name, others) for pattern in self._met)
        if hits:
            self._met += hits
            self._unmet = [pattern for pattern in self._unmet if pattern not in hits]
        for pattern in self._unmet:
            pattern.look_inside(name, *others[-1:])
        for one in dict.fromkeys((name, *others[-1:])) if self._unmet else ():
            if self._kept < _KEPT and len(one) <= self._longest:
                self._names.setdefault(rank, []).append(one)
                self._kept += 1
        return found

    @property
    def takes_all(self) -> bool:
        """Whether there is no pattern."""
        return not self._unmet and not self._met

    def takes(self, viewer: Viewer, tensor: Tensor) -> bool:
        """Return whether to show a tensor: a pattern matches its name, or another one that it is found by."""
        if self.takes_all:
            return True
        others = viewer.other_names(tensor) if viewer.has_keys else ()
        return self(tensor.name, others, viewer.rank(tensor) if self._unmet else 0)

    def complaints(self) -> Iterator[str]:
        """Yield a message for each pattern without a match, with similar patterns, names or files."""
        groups = [self._names[rank] for rank in sorted(self._names)]
        for pattern in self._unmet[:_COMPLAINTS]:
            yield pattern.complaint(groups, self._asked)
        if len(self._unmet) > _COMPLAINTS:
            yield f"no name matches {count_words(len(self._unmet) - _COMPLAINTS, 'other pattern')}"

    def complain(self, out: Output) -> bool:
        """Write the `complaints`; return whether there is any."""
        found = list(self.complaints())
        for complaint in found:
            out.error(complaint)
        return bool(found)


class _Pattern:
    """A pattern, and similar names that were seen. ``word``: it may have been meant as a file."""

    def __init__(self, text: str, *, regex: bool, word: bool = False) -> None:
        self.text = text
        self.test = _expression(text) if regex else glob(text)
        self._is_plain = not set(text) & set("*?[](){}|^$+\\" if regex else "*?[{")
        self._is_path = word and self._is_plain and _FILE.search(text.partition("::")[0]) is not None
        self._wanted = "" if regex else text.strip("*?").lower()
        self._inside: dict[str, int] = {}  # parts of names, as spelled there, that equal the pattern

    def fits(self, name: str, others: Sequence[str]) -> bool:
        """Return whether the pattern matches ``name``, or one of ``others``."""
        return self.test(name) or any(map(self.test, others))

    def look_inside(self, *names: str) -> None:
        """Record where the first of the names of one thing that contains the pattern has it."""
        for name in names:
            at = name.lower().find(self._wanted) if self._wanted else -1
            if at >= 0:
                part = name[at : at + len(self._wanted)]
                self._inside[part] = self._inside.get(part, 0) + 1
                return

    def complaint(self, groups: list[list[str]], asked: int) -> str:
        """Return the message if nothing matched among ``asked`` names.

        ``groups`` are the first of these, from those that most likely were meant to the least likely.
        """
        what = f"no name matches {self.text!r}"
        files = _near_files(self.text) if self._is_path else []
        if self._inside and not files:
            part, count = next(iter(self._inside.items()))
            return f"{what}; did you mean '*{part}*' ({count:,} of {count_words(asked, 'name')})?"
        from pparse.tree.result import near_misses

        near = [*files, *next(filter(None, (near_misses(self.text.strip("*?"), names) for names in groups)), ())]
        if self._is_path and (files or not near):
            what += ", and there is no such file"
        if near:
            quoted = [f"'{name}'" for name in near]
            return f"{what}; did you mean {' or '.join(quoted)}?"
        return f"{what}; names look like '{groups[0][0]}'" if groups and self._is_plain else what


# Text that looks like a file: it has a folder or an extension.
_FILE: Final = lazy_pattern(r"/|\.[A-Za-z0-9_]{1,12}$")


def _near_files(path: str) -> list[str]:
    """Return up to three existing files with a path similar to ``path``, which may name something inside one."""
    from difflib import SequenceMatcher

    from pparse.data import files

    outer, mark, inner = path.partition("::")
    folder, name = files.split(outer)

    def nearness(one: str, other: str) -> float:
        return SequenceMatcher(None, one.lower(), other.lower()).ratio()

    stem = name.partition(".")[0]
    there = islice(files.names_in(folder), _KEPT)
    # A common extension does not make them similar.
    near = [(-nearness(name, other), other) for other in there if nearness(stem, other.partition(".")[0]) >= 0.6]
    best = sorted(pair for pair in near if pair[0] <= -0.6)
    return [files.inside(folder, other) + mark + inner for _, other in best[:3]]


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise PathError(f"not a regular expression: {error}", path=pattern) from error
    return lambda name: search(name) is not None
