"""Standard streams and interrupts of the process: closed, full, left by their reader, or read by nobody."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, Final, TextIO

# Seconds until an interrupt is sent again that was not raised, or raised where exceptions are dropped: in a `__del__`.
_AGAIN: Final = 0.1
# After so many times as many seconds it is in any case, unless it has ended the command.
_PATIENCE: Final = 30

_SIGINT: Final = 2

_ending: list[bool] = []
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
    _thread.start_new_thread(repeat, ())


def end_interrupts() -> int:
    """Send an interrupt no longer: it has ended the command. Return the exit code that says so."""
    _ending.append(True)
    return 128 + (_ended_by[0] if _ended_by else _SIGINT)
