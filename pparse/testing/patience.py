"""A bound for what should end by itself: a loop without an end fails with the name of its case; no run hangs."""

from __future__ import annotations

import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class EndlessCaseError(AssertionError):
    """A case took so long that it will hardly end."""


class Patience:
    """Raises `EndlessCaseError` in the main thread when one case takes longer than ``seconds``.

    Far longer than any sound case takes on the slowest machine: it judges no speed. Does nothing where the system has
    no timer that interrupts, and in other threads.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self._case = ""
        self._before: Any = None
        self._armed = False

    def begin(self, case: str) -> None:
        """A case begins, and the one before has ended."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return
        self._case = case
        if not self._armed:
            self._before = signal.signal(signal.SIGALRM, self._out)
            self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def end(self) -> None:
        """All cases have ended."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._armed = False

    def _out(self, number: int, frame: FrameType | None) -> None:
        raise EndlessCaseError(f"{self._case}: no end after {self.seconds:g} seconds")
