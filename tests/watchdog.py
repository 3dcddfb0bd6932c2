"""A watchdog per test: one that hangs shows where, fails, and leaves no process behind."""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds: no sound test takes a tenth of this on a slow machine, and every place of a long sweep is looked at in this.
PATIENCE = 300.0
FULL_PATIENCE = 3600.0
# Seconds until the process of a test that does not end for an exception either is ended.
GRACE = 20.0


class HungTestError(BaseException):
    """A test does not end. Not an `Exception`: the code under test must not catch it."""


class Watchdog:
    """One thread that looks after the test that runs in the main thread."""

    def __init__(self, seconds: float, grace: float = GRACE) -> None:
        self.seconds = seconds
        self.grace = grace
        # pytest redirects what is written to standard error: the stacks must be seen even if the process ends.
        self.stream = os.fdopen(os.dup(2), "w")
        self._changed = threading.Condition()
        self._test: str | None = None
        self._count = 0
        self._main = threading.get_ident()
        if hasattr(signal, "pthread_kill"):
            signal.signal(signal.SIGUSR1, self._raise)
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    @contextmanager
    def over(self, test: str) -> Iterator[None]:
        """Raise `HungTestError` in the main thread if what runs in this context does not end."""
        with self._changed:
            self._test = test
            self._count += 1
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._test = None
                self._changed.notify()

    def _look(self) -> None:
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._test is not None)
                count = self._count
                if self._ends(count, self.seconds):
                    continue
                self._tell()
                kill_children(os.getpid())
                self._interrupt()
                if not self._ends(count, self.grace):
                    self.stream.write(f"{self._test} does not end for an exception either: the process ends\n")
                    self.stream.flush()
                    os._exit(70)

    def _ends(self, count: int, seconds: float) -> bool:
        return self._changed.wait_for(lambda: self._test is None or self._count != count, seconds)

    def _tell(self) -> None:
        self.stream.write(f"\n{self._test} did not end after {self.seconds:g} seconds; it is here:\n")
        self.stream.flush()
        faulthandler.dump_traceback(self.stream, all_threads=True)

    def _interrupt(self) -> None:
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._main, signal.SIGUSR1)
        else:
            _thread.interrupt_main()

    def _raise(self, number: int, frame: object) -> None:
        if self._test is not None:
            raise HungTestError(f"no end after {self.seconds:g} seconds; all stacks stand in the output")


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
    try:
        if os.path.isdir("/proc/self"):
            stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
            # The name, in brackets, may hold anything.
            rows = [f"{stat.split(' ', 1)[0]} {stat.rpartition(')')[2].split()[1]}" for stat in stats]
        else:
            command = ["ps", "-A", "-o", "pid=,ppid="]
            rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    pairs = [tuple(map(int, row.split())) for row in rows]
    return [child for child, parent in pairs if parent == process]
