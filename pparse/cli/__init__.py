"""The command line: one module per command, imported only when it runs.

Exit codes: 0 complete; 1 different (diff, hash --check), or nothing found (find); 2 usage, or cannot open; 3 format not
recognised; 4 something is truncated, damaged or missing (the readable part was still printed or written); 5 dangerous
to load (check, scan); 70 a bug in pparse; 128 + the number of a signal (130, 141).

Standard streams and interrupts of the process are minded here: closed, full, left by their reader, or read by nobody.
"""

from __future__ import annotations

import gc
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any, Final, TextIO

# name: (module, one line for the help)
COMMANDS: Final = {
    "ls": ("pparse.cli.ls", "list tensors, or the members of a document"),
    "info": ("pparse.cli.info", "format, counts, sizes, metadata, status; where a truncated file ends"),
    "tree": ("pparse.cli.tree", "the tree of nodes, with errors where they are"),
    "get": ("pparse.cli.get", "one node or tensor: text, --json, --raw, --npy; slices"),
    "check": ("pparse.cli.check", "check everything; each finding with its byte range"),
    "scan": ("pparse.cli.scan", "what loading files would run: pickles, wherever they lie"),
    "find": ("pparse.cli.find", "tensors by type, size, content; duplicates, NaN, bytes that no tensor uses"),
    "diff": ("pparse.cli.diff", "what differs between two models, of any formats"),
    "stats": ("pparse.cli.stats", "range, mean, deviation, NaN and zeros of tensors; histograms"),
    "hash": ("pparse.cli.hash", "identities of models and tensors, the same in every format; compared with a list"),
    "extract": ("pparse.cli.extract", "write the members of an archive to a folder, safely"),
    "recover": ("pparse.cli.recover", "save everything that can be saved of a damaged file"),
    "convert": ("pparse.cli.convert", "tensors of any format into safetensors, .npz or GGUF"),
    "edit": ("pparse.cli.edit", "metadata and names of a safetensors or GGUF file, without a copy"),
    "index": ("pparse.cli.index", "index a file of gzip or JSON Lines, for fast reads in its middle"),
    "graph": ("pparse.cli.graph", "nodes and edges of a graph (ONNX, TensorFlow, TFLite …); what some outputs need"),
    "split": ("pparse.cli.split", "cut a big protocol buffer message into chunks (.cpb)"),
    "merge": ("pparse.cli.merge", "merge the chunks of a .cpb"),
    "formats": ("pparse.cli.formats", "formats, limitations, plug-ins"),
}

_HELP = """usage: pparse COMMAND FILE ...

Look into files that are too big, too broken or too dangerous to load.

{commands}

examples:
  pparse ls model.safetensors               every tensor with its status
  pparse ls model.safetensors '*.weight'    those that match
  pparse info half-a-download.safetensors   what is there, and where to resume
  pparse get model.safetensors 'h.0.attn.weight[0:2]'

'pparse COMMAND --help' describes a command. Exit code 4 means that something in the
file is truncated, damaged or missing; what could be read was still delivered. Exit
code 5 of check and scan means that loading the file would do harm.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # modules are many objects without cycles
        deliver_interrupts()
        fill_buffers()
    prepare()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        code = end_interrupts()
        silence(sys.stdout)
        silence(sys.stderr)  # perhaps nobody reads that either
        return code
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:  # of an output
        return _cannot_write(error)
    finally:
        flush_errors()
        if argv is None:
            gc.freeze()  # the process ends: what is left is not scanned for cycles once more


def _cannot_write(error: OSError) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # it is standard output that takes no more
        silence(sys.stdout)
    # What cannot be written to has no name here: outputs that have one raise errors of ours.
    what = "cannot write" if error.filename is None and error.errno is not None else error.filename
    tell(f"pparse: {f'{what}: ' if what else ''}{error.strerror or error}")
    return 2


def _dispatch(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] in ("-h", "--help", "help"):
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {name:8} {text}" for name, (_, text) in COMMANDS.items())
        stream = sys.stdout if arguments else sys.stderr
        stream.write(_HELP.format(commands=rows))
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        import pparse

        sys.stdout.write(f"pparse {pparse.__version__}\n")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        return _unknown(command, arguments)
    from pparse.cli.common import run_command
    from pparse.lazy import module_called

    return run_command(module_called(COMMANDS[command][0]), command, arguments[1:])


# What other programs call the commands.
_OTHER_WORDS: Final = {
    **dict.fromkeys(("list", "dir", "l"), "ls"),
    **dict.fromkeys(("search", "grep", "duplicates", "dedupe"), "find"),
    **dict.fromkeys(("compare", "cmp", "delta"), "diff"),
    **dict.fromkeys(("statistics", "summary", "summarize", "histogram"), "stats"),
    **dict.fromkeys(("show", "stat", "file", "inspect", "describe"), "info"),
    **dict.fromkeys(("cat", "read", "print", "load", "head"), "get"),
    **dict.fromkeys(("dump", "walk"), "tree"),
    **dict.fromkeys(("verify", "test", "validate", "fsck"), "check"),
    **dict.fromkeys(("audit", "safety", "malware"), "scan"),
    **dict.fromkeys(("digest", "checksum", "sha256", "fingerprint"), "hash"),
    **dict.fromkeys(("unzip", "untar", "unpack", "x"), "extract"),
    **dict.fromkeys(("repair", "salvage", "fix", "rescue"), "recover"),
    **dict.fromkeys(("export", "save", "transcode"), "convert"),
    **dict.fromkeys(("draw", "plot"), "graph"),
    **dict.fromkeys(("rename", "set", "set-metadata"), "edit"),
    **dict.fromkeys(("join", "concat"), "merge"),
}


def _unknown(command: str, arguments: list[str]) -> int:
    from pparse.data.files import exists

    if exists(command) or "::" in command:
        tell(f"pparse: name a command, for example: pparse ls {' '.join(arguments)}")
    else:
        from difflib import get_close_matches

        near = [_OTHER_WORDS[command]] if command in _OTHER_WORDS else get_close_matches(command, COMMANDS, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        tell(f"pparse: no command {command!r}; {meant}commands: {', '.join(COMMANDS)}")
    return 2


# -- standard streams and interrupts -----------------------------------------------------------------------------------

# Seconds until an interrupt is sent again that was not raised, or raised where exceptions are dropped: in a `__del__`.
_AGAIN: Final = 0.1
# After so many times as many seconds it is in any case, unless it has ended the command.
_PATIENCE: Final = 30

_SIGINT: Final = 2

_ending: list[bool] = []
# Threads that only wait for a signal.
_repeating: list[int] = []
_ended_by: list[int] = []


def prepare() -> None:
    """Let the streams take any character, and give Python some where the shell closed them.

    One that takes nothing for standard output (``>&-``): who asks for output must hear that there was none.
    """
    if sys.stdout is None:  # type: ignore[unreachable, unused-ignore]
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115 -- as long as the process
    if sys.stderr is None:  # type: ignore[unreachable, unused-ignore]
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a test may have put something else there
            stream.reconfigure(errors="backslashreplace")


def fill_buffers() -> None:
    """Let standard output write all that it is given.

    With ``PYTHONUNBUFFERED``, Python drops what a pipe does not take at once, also when the reader has gone.
    """
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        raw: Any = sys.stdout.buffer
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)


def screen(stream: Any) -> tuple[int, int]:
    """Return columns and lines of the terminal that ``stream`` writes to: what COLUMNS and LINES say, or it; 80 and 24
    if none does."""
    said = [int(value) if (value := os.environ.get(name, "")).isdigit() else 0 for name in ("COLUMNS", "LINES")]
    try:
        known: tuple[int, int] = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):  # it is no terminal
        known = (0, 0)
    columns, lines = (one or other or default for one, other, default in zip(said, known, (80, 24), strict=True))
    return max(columns, 20), max(lines, 10)


def tell(text: str) -> None:
    """Write a line to standard error behind what was written to standard output: both may be one pipe.

    In a terminal it is wrapped. Raises `OSError` if standard output takes no more. If standard error takes no more,
    there is nobody to tell.
    """
    sys.stdout.flush()
    if sys.stderr.isatty():
        from pparse.display.text import folded

        text = folded(text, screen(sys.stderr)[0], len("pparse: "))
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def flush_errors() -> None:
    """Write what waits in standard error, or drop it if that takes no more: Python would end with a code of its own."""
    try:
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Drop what waits in a stream and what is still written to it: the interpreter flushes it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass


def without_waiting(write: Callable[[], object]) -> None:
    """``write`` what the standard streams take at once, and drop the rest: after an interrupt, perhaps nobody reads."""
    waiting = []
    for stream in (sys.stdout, sys.stderr):
        try:
            number = stream.fileno()
            if os.get_blocking(number):
                waiting.append(os.dup(number))  # the stream may be silenced
                os.set_blocking(number, False)
        except (OSError, ValueError):  # not a file, or one that cannot (Windows)
            continue
    try:
        write()
    except BlockingIOError:
        silence(sys.stdout)
    finally:
        for number in waiting:
            os.set_blocking(number, True)
            os.close(number)


def deliver_interrupts() -> None:
    """See to it that a signal ends the command as an interrupt does: it leaves what can be continued with, no more.

    Even if it waits in a call of the system, for a reader, say.

    Python notes a signal and acts when the call ends. One that comes just before a write to a full pipe is noted, and
    then the write waits: for ever, if nobody reads. So a thread sends the signal again until `end_interrupts`.
    """
    import _thread

    if TYPE_CHECKING:
        import signal
    else:
        import _signal as signal  # the same without enums, which take a millisecond

    if os.name == "nt":  # Windows interrupts such calls
        return
    # Who starts us in the background, or for longer than a terminal lasts, may have us ignore some.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    numbers = [number for number, handler in usual.items() if signal.getsignal(number) == handler]
    if not numbers:
        return
    ours, pythons = os.pipe()
    os.set_blocking(pythons, False)
    raised: list[int] = []
    main = _thread.get_ident()
    tell_dropped = sys.unraisablehook

    def take(number: int, frame: FrameType | None) -> None:
        raised.append(number)
        _ended_by.append(number)
        raise KeyboardInterrupt

    def repeat() -> None:
        from time import sleep

        number = os.read(ours, 1)[0]
        times = 0
        while not _ending:
            sleep(_AGAIN)
            times += 1
            if (not raised or times % _PATIENCE == 0) and not _ending:
                signal.pthread_kill(main, number)

    def drop(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            raised.clear()
        else:
            tell_dropped(dropped)

    sys.unraisablehook = drop
    for number in numbers:
        signal.signal(number, take)
    signal.set_wakeup_fd(pythons, warn_on_full_buffer=False)
    _repeating.append(_thread.start_new_thread(repeat, ()))


def waiting_threads() -> int:
    """Return how many threads only wait for a signal: a copy of this process does not miss them."""
    return len(_repeating)


def end_interrupts() -> int:
    """Send an interrupt no longer: it has ended the command. Return the exit code that says so."""
    _ending.append(True)
    return 128 + (_ended_by[0] if _ended_by else _SIGINT)
