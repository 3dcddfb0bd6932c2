"""A watchdog: a test that hangs shows where, fails, and leaves no process behind; so does all else that pytest runs.

Three things end what hangs, each if the one before does not reach it: an exception in the main thread, a thread that
ends the process, and a timer in C that ends it even if no other thread of Python gets to run.
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import math
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path

# Tests replace these in their modules.
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest

# What pytest handles everywhere, and hypothesis, unlike `pytest.fail.Exception`, does not try again.
from _pytest.outcomes import OutcomeException

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds: no sound test takes a tenth of this on a slow machine, and every place of a long sweep is looked at in this.
PATIENCE = 300.0
FULL_PATIENCE = 3600.0
# Seconds until the process of a test that does not end for an exception either is ended.
GRACE = 20.0

# What interrupts the main thread; on Windows, which sends no signals, Python itself calls the handler.
SIGNAL = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else signal.SIGBREAK


class HungTestError(OutcomeException):
    """Something does not end. No `Exception`, which the code under test might catch, but one that pytest expects."""


class Watchdog:
    """Looks after what runs in the main thread: a test, the import of its file, the end of the session.

    Only the main thread says what is watched, and only there the exception is raised: nothing changes between a look
    and what follows from it.
    """

    def __init__(self, seconds: float, grace: float = GRACE) -> None:
        self.seconds = seconds
        self.grace = grace
        # pytest redirects what is written to standard error: the stacks must be seen even if the process ends.
        self.stream = os.fdopen(os.dup(2), "w")
        self._what = ""
        self._deadline = math.inf
        self._interrupts = False
        self._hung: HungTestError | None = None
        self._main = threading.get_ident()
        signal.signal(SIGNAL, self._interrupt)
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    @contextmanager
    def over(self, what: str) -> Iterator[None]:
        """Give what runs in this context its time; the process ends, with all stacks shown, if it takes far more."""
        self._what, self._hung = what, None
        self._deadline = monotonic() + self.seconds
        self.rearm()
        try:
            yield
        finally:
            self._deadline = math.inf
            faulthandler.cancel_dump_traceback_later()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise `HungTestError` from this part of what is watched if time is over, and if it ended by itself then.

        It must be a part in which pytest expects exceptions.
        """
        if self._hung:
            # In the part before. What is left, the teardown, has a time of its own.
            self._hung, self._deadline = None, monotonic() + self.seconds
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False
            if self._hung:
                raise self._hung

    def rearm(self) -> None:
        """Start the timer in C anew: pytest cancels it at each failure, and there is one per process."""
        if self._deadline < math.inf:
            # The thread is faster, if it gets to run.
            self.end_after(self.seconds + 2 * self.grace)

    def end_after(self, seconds: float) -> None:
        """End the process, with all stacks shown, if it has not ended then; instead of what was said before."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.stream)

    def _look(self) -> None:
        while True:
            sleep(min(1.0, self.seconds / 5, self.grace / 5))
            late = monotonic() - self._deadline
            if late >= self.grace:
                self._tell("did not end for an exception either, the process ends")
                os._exit(70)
            if late >= 0:
                if hasattr(signal, "pthread_kill"):
                    signal.pthread_kill(self._main, SIGNAL)
                else:
                    _thread.interrupt_main(SIGNAL)

    def _interrupt(self, number: int, frame: object) -> None:
        if not self._interrupts or monotonic() < self._deadline:
            return
        __tracebackhide__ = True  # what hangs is shown last
        self._interrupts = False
        self._tell(f"did not end after {self.seconds:g} seconds")
        self._hung = HungTestError(f"{self._what}: no end after {self.seconds:g} seconds; the output has all stacks")
        raise self._hung

    def _tell(self, how: str) -> None:
        self.stream.write(f"\n{self._what} {how}; it is here:\n")
        self.stream.flush()
        faulthandler.dump_traceback(self.stream, all_threads=True)
        kill_children(os.getpid())


def fail_for_threads(patience: float = 1.0) -> None:
    """Fail if there are threads that keep the process from ending, and do not end in so many seconds; of each once.

    Those of pools do not: Python tells them to end, and a library may keep one pool for good, as dask does.
    """
    pools = sys.modules.get("concurrent.futures.thread")
    pooled = getattr(pools, "_threads_queues", {})
    left = [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread not in _known_threads and thread not in pooled
    ]
    _known_threads.update(left)
    for thread in left:
        thread.join(patience)  # it may be about to end
    names = [thread.name for thread in left if thread.is_alive()]
    if names:
        pytest.fail(f"left threads running that are no daemons: {', '.join(names)}", pytrace=False)


_known_threads = weakref.WeakSet([threading.main_thread()])


def kill_children(process: int) -> None:
    """Kill all processes that this one started, and what these started."""
    for child in children_of(process):
        kill_children(child)
        with contextlib.suppress(OSError):
            os.kill(child, getattr(signal, "SIGKILL", signal.SIGTERM))


def children_of(process: int) -> list[int]:
    """Return the processes that a process started and that still run."""
    if sys.platform == "win32":
        return []
    pairs = []
    if os.path.isdir("/proc/self"):
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                # The name, in brackets, may hold anything.
                pairs.append((int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])))
    else:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            command = ["ps", "-A", "-o", "pid=,ppid="]
            rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            pairs = [tuple(map(int, row.split())) for row in rows]
    return [child for child, parent in pairs if parent == process]
