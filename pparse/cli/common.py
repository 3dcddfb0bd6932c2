"""What every command shares: options, opening, errors, exit codes."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

from pparse import errors
from pparse.errors import PparseError, SourceError, UnsupportedError, speak_of_commands
from pparse.findings import Severity, Status
from pparse.lazy import module_called
from pparse.limits import MIB, Limits, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from types import ModuleType
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.findings import Finding

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


def refused_argument(reason: str) -> Exception:
    """Return what argparse makes an error of the command line of."""
    from argparse import ArgumentTypeError

    return ArgumentTypeError(reason)


def _key_value(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise refused_argument(f"expected NAME=VALUE, not {text!r}")
    return key, value


def _limit(text: str) -> tuple[str, int]:
    name, value = _key_value(text)
    if name not in Limits.DEFAULTS:
        raise refused_argument(f"no limit {name!r}; limits: {', '.join(Limits.DEFAULTS)}")
    found = size(value)
    try:
        Limits(**{name: found})
    except ValueError as error:
        raise refused_argument(f"the {error}") from error
    return name, found


def size_from(least: int, words: str = "") -> Callable[[str], int]:
    """Return what parses a size for argparse that is at least so many bytes."""

    def parse(text: str) -> int:
        try:
            found = parse_size(text)
        except ValueError as error:
            raise refused_argument(str(error)) from error
        if found < least:
            raise refused_argument(f"must be at least {words}, not {text!r}")
        return found

    return parse


size: Final = size_from(0)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or not int(text[:18]):
        raise refused_argument(f"a number from 1 on, not {text!r}")
    return int(text[:18])


def _status(text: str) -> str:
    known = [status.value for status in Status]
    if text not in known:
        raise refused_argument(f"no status {text!r}; statuses: {', '.join(known)}")
    return text


OR_PATTERNS: Final = "; after the first, an argument that is not a file is a PATTERN"
"""What FILE may be in commands that filter names."""
_PATTERN: Final = "only names that match this glob; repeatable"


class Arguments:
    """The arguments of a command, each declared as the help shows it.

    By itself it parses words among which is no option: argparse takes a tenth of the time of a short command, and
    `pparse.cli.arguments.Parser` is for those that need it.
    """

    takes_others = False
    """Whether arguments after the first may be something else than files."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}  # of options that are not given
        self._words: list[tuple[str, str | None]] = []  # what is no option: its name, and how many there may be
        self._needs_option = False

    def add(self, words: str, text: str, to: Any = None, **more: Any) -> None:
        """Declare an option: ``-o --output OUT``; without a word for a value, it is a switch. ``text`` is its help.

        ``--include GLOB ...`` may be given several times; what begins with no dash is an argument: ``FILE``. ``to`` is
        the group that it belongs to.
        """
        flags = [word for word in words.split() if word.startswith("-")]
        values = words.split()[len(flags) :]
        if values:
            more["metavar"] = values[0]
        elif "choices" not in more:
            more["action"] = "store_true"
        if values[1:]:
            more |= {"action": "append", "default": []}
        if more.get("nargs") == "*":
            more["default"] = []  # else messages call it required
        self.declare(flags, to, help=text, **more if flags else {"dest": words.lower(), **more})

    def declare(self, flags: list[str], to: Any, **more: Any) -> None:
        """Declare an option, or an argument without ``flags``, with what argparse calls it by."""
        long = next((flag for flag in flags if flag.startswith("--")), "".join(flags[:1]))
        name = more.get("dest") or long.strip("-").replace("-", "_")
        value = more.get("default", False if more.get("action") == "store_true" else None)
        self._values[name] = more["type"](value) if "type" in more and isinstance(value, str) else value
        self._needs_option = self._needs_option or more.get("required", False)
        if not flags:
            is_text = more.keys().isdisjoint(("type", "choices"))
            self._words.append((name, more.get("nargs") if is_text else "not a text"))

    def group(self, title: str) -> Any:
        """Return a group of options that the help shows together."""

    def one_of(self) -> Any:
        """Return a group of options of which one can be given."""

    def plain(self, words: list[str]) -> SimpleNamespace | None:
        """Return the values of all arguments if there is no option among ``words``; None: look closer."""
        if self._needs_option or any(word[:1] == "-" and len(word) > 1 for word in words):
            return None
        values, left = dict(self._values), list(words)
        for name, count in self._words:
            if count in ("*", "+") and (left or count == "*"):
                values[name], left = left, []
            elif count in (None, "?") and left:
                values[name] = left.pop(0)
            elif count != "?":
                return None
        return None if left else SimpleNamespace(**values)

    def add_one_of(self, **switches: str) -> None:
        """Declare options of which one can be given, with the help of each."""
        group = self.one_of()
        for name, text in switches.items():
            self.add(f"--{name}", text, group)

    def add_files(self, more: str = "", count: str = "+") -> None:
        """Declare FILE, one or more; ``more`` describes arguments that are not files."""
        words = f"files, folders, globs of them, - (standard input, a pipe too), or outer::inner{more}"
        self.add("FILE", words, dest="files", nargs=count)
        self.takes_others = bool(more)

    def add_filters(self, *, pattern: str = _PATTERN, dtype: str = "--dtype") -> None:
        """Declare which tensors count (`pparse.cli.selection.Selection`).

        ``pattern``: the help of ``--pattern``; none, if patterns are declared otherwise. ``dtype``: what that option is
        called where ``--dtype`` says what to write.
        """
        to = self.group("which tensors")
        if pattern:
            self.add("-p --pattern PATTERN ...", pattern, to, dest="patterns")
        types = "only this element type, or a glob such as 'float*'; repeatable"
        self.add(f"{dtype} NAME ...", types, to, dest="dtypes")
        shapes = "only this shape, with * for any length: 768,*; or scalar; repeatable"
        self.add("--shape SHAPE ...", shapes, to, dest="shapes")
        self.add("--min-size SIZE", "only of at least so many bytes", to, type=size)
        self.add("--max-size SIZE", "only of at most so many bytes", to, type=size)
        statuses = ", ".join(status.value for status in Status)
        self.add("--status NAME ...", f"only of this status: {statuses}; repeatable", to, dest="statuses", type=_status)
        variables = "only what a model has learned: no constants beside variables, nothing that says how it was saved"
        self.add("--variables", variables, to)

    def add_order(self, *columns: str, default: str) -> None:
        """Declare ``--sort`` by one of ``columns``, and how many rows to show; ``default``: the order otherwise."""
        to = self.group("which rows")
        self.add("--sort", f"order of rows ({default})", to, choices=(*columns, "none"))
        self.add("--reverse", "the other way round", to)
        first = "only the first N rows of each file; without --sort, the rest is not read"
        self.add("-n --first N", first, to, type=_at_least_one)

    def add_strict(self) -> None:
        """Add ``--strict``, for commands that do not apply the rules of a reference reader."""
        self.add("--strict", "exit code 4 for warnings, too")

    def add_json(self, lines: str | None = None) -> None:
        """Add ``--json``, and ``--jsonl`` if ``lines`` says what its lines are."""
        more = {} if lines is None else {"jsonl": f"one JSON object a line: {lines}"}
        self.add_one_of(json='one JSON document ("schema": 1)', **more)

    def add_common(self) -> None:
        """Add the options shared by all commands on a file."""
        to = self.group("common options")
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


def declare(parser: Arguments, module: ModuleType, command: str) -> None:
    """Declare all arguments of a command."""
    module.add_arguments(parser)
    if command != "formats":
        parser.add_common()


def run_command(module: ModuleType, command: str, arguments: list[str]) -> int:
    """Parse the arguments of one command, run it, and turn errors into a message and an exit code."""
    declared = Arguments()
    declare(declared, module, command)
    words = module.prepare(arguments) if hasattr(module, "prepare") else arguments
    options: Any = declared.plain(words)
    if options is None:
        try:  # a command's module and this one are reached by their names: what they are made of, they import
            options = module_called("pparse.cli.arguments").parsed(module, command, words)
        except SystemExit as stop:
            return int(stop.code or 0)
    from pparse.cli.output import Output

    if "files" in vars(options):
        from pparse.cli.files import expanded

        options.files = expanded(options.files, others=declared.takes_others)
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


def refuse_own(document: Extraction, path: str | None) -> None:
    """Raise `PathError` if an output would replace a file that is being read."""
    if path is not None and any(data.same_source(path) for data in (document.data, *document.session.sources())):
        raise errors.PathError("is the file being read; name another one", path=path)
