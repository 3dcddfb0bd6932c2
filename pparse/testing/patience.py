"""`Patience`: a time limit for cases that may never end, so that a test run does not hang."""

from __future__ import annotations

import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class EndlessCaseError(AssertionError):
    """A case took so long that it probably never ends."""


class Patience:
    """Raises `EndlessCaseError` in the main thread if one case takes longer than ``seconds``.

    The limit is far above what any sound case takes on a slow machine; it does not judge speed. Does nothing in other
    threads, and on systems without an interrupting timer.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        """The most seconds that one case may take."""
        self._case = ""
        self._before: Any = None
        self._armed = False

    def begin(self, case: str) -> None:
        """Start the time of ``case``; the one before has ended."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        self._case = case
        if not self._armed:
            self._before = signal.signal(signal.SIGALRM, self._out)
            self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def end(self) -> None:
        """Stop the time: all cases have ended."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._armed = False

    def _out(self, number: int, frame: FrameType | None) -> None:
        raise EndlessCaseError(f"{self._case}: no end after {self.seconds:g} seconds")
