"""Processes that do tasks, of which one may die: the task that it did fails, and the next one gets a new process.

The pool of the standard library breaks as a whole when a process dies, does not tell at which task, and waits for ever
if one was killed while it wrote a result. So each process has a pipe and a thread of its own here: the pipe ends with
the process, and ends the process with whoever started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from warnings import catch_warnings, simplefilter

from pparse.errors import SourceError, WorkerDiedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from multiprocessing.connection import Connection
    from typing import Any, Final

# Workers come from a server without threads that has imported all of this once, which takes 100 ms. Not numpy: not all
# tasks need it, and workers import it side by side.
_METHOD: Final = "forkserver" if sys.platform == "linux" else "spawn"
_IMPORTED: Final = [f"pparse.{name}" for name in ("workers.results", "measuring.statistics", "measuring.difference")]
# How often a process is started, if it is killed at once.
_STARTS: Final = 20
# What comes of a process that another thread is waiting for, or has ended.
_ENDED: Final = (OSError, ValueError, AssertionError)
# What ends a process that handles none, and may be handled otherwise by the one it is a copy of.
_SIGNALS: Final = {signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])}
_SIGKILL: Final = 9
_SIGTERM: Final = 15
# Why no process can be started.
_DAEMONIC: Final = "a daemonic process, such as a worker of multiprocessing.Pool, cannot start worker processes"
_UNGUARDED: Final = (
    "worker processes end before they have anything to do; a program that has some starts them behind "
    "if __name__ == '__main__':"
)
# Seconds to wait for the exit code of a process that ended.
_PATIENCE: Final = 5


class ProcessPool(Executor):
    """An executor of ``count`` processes. One that dies fails the task it was doing, and nothing else."""

    def __init__(self, count: int, *, waiting: int | None = None) -> None:
        """``waiting``: this process is the pool's own: the first workers may be copies of it, which takes 2 ms.

        A copy has all pipes and locked files that this process has, and keeps them open. ``waiting`` threads of it
        only wait, and hold no lock: a copy does not miss them. If there are more threads, none is made.
        """
        from multiprocessing import current_process, get_context

        self._context: Any = get_context(_METHOD)
        self._forked: list[_Process] = []  # those that had no task yet
        self._why = _DAEMONIC if current_process().daemon else _UNGUARDED
        self._is_refused = self._why is _DAEMONIC  # the standard library lets such a process start none
        if _METHOD == "forkserver" and not self._is_refused:
            self._context.set_forkserver_preload(_IMPORTED)
            most = 0 if waiting is None else count
            while len(self._forked) < most and _count_threads() <= 1 + (waiting or 0):
                try:
                    self._forked.append(_Process(get_context("fork"), self._forked))
                except OSError:  # the system has no room for more now
                    break
            if not self._forked:
                from multiprocessing import forkserver

                with _without_signals(has_server=True), suppress(OSError):
                    forkserver.ensure_running()  # it imports while the caller opens what there is to do
        self._threads = ThreadPoolExecutor(count)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._all: set[_Process] = set(self._forked)
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do ``fn(*args, **kwargs)`` in a process.

        The future raises `WorkerDiedError` if that dies, `SourceError` if none can be started.
        """
        return self._threads.submit(self._call, (fn, args, kwargs))

    def _call(self, call: object) -> Any:
        data = pickle.dumps(call)
        process = getattr(self._own, "process", None) or self._started()
        self._own.process = process
        try:
            is_right, found = process.call(data)
        except WorkerDiedError:
            del self._own.process
            with self._lock:
                self._all.discard(process)
            raise
        if is_right:
            return found
        raise found

    def _started(self) -> _Process:
        """Return a process that is there: one that dies before it has a task fails none."""
        ready, why = pickle.dumps((os.getpid, (), {})), self._why
        for number in range(_STARTS):
            with self._lock:
                if self._is_closed or self._is_refused:
                    break
                if self._forked:
                    return self._forked.pop()
                try:
                    process = _Process(self._context)
                except (EOFError, OSError) as error:
                    # The server was killed; or it is that of the process that forked this one; or there is no room.
                    why = f"worker processes cannot be started: {str(error) or 'their server ended'}"
                    continue
                self._all.add(process)
            try:
                process.call(ready)
            except WorkerDiedError as error:
                with self._lock:
                    self._all.discard(process)
                    self._is_refused |= number > 0 and not error.was_killed  # any other would end like it
                continue
            return process
        raise SourceError(why)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: once all is done, or with ``cancel_futures`` at once."""
        if cancel_futures:
            self._end()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_closed = True
            processes, self._all = self._all, set()
        for process in processes:
            process.end()


class _Process:
    """A process that does one task after the other: of a server, or, if ``others`` are given, a copy of this one.

    A copy closes its ends of the pipes to these others, or it would keep them alive.
    """

    def __init__(self, context: Any, others: list[_Process] | None = None) -> None:
        self._connection, theirs = context.Pipe()
        ours = [] if others is None else [self._connection, *(other._connection for other in others)]
        self._process = context.Process(target=_serve, args=(theirs, ours), daemon=True)
        with _without_signals(has_server=others is None), catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of Python 3.12 on, that a copy lacks threads
            self._process.start()
        theirs.close()

    def call(self, data: bytes) -> tuple[bool, Any]:
        """Do a pickled call; return whether it returned, and what it returned or raised. Raises `WorkerDiedError`."""
        try:
            self._connection.send_bytes(data)
            found: tuple[bool, Any] = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._death() from None
        return found

    def _death(self) -> WorkerDiedError:
        code = None
        with suppress(*_ENDED):
            self._process.join(_PATIENCE)
            code = self._process.exitcode
        self.end()
        how = "" if code is None else f", by signal {-code}" if code < 0 else f", with exit code {code}"
        was_killed = code is not None and -code in (_SIGKILL, _SIGTERM)
        return WorkerDiedError(f"the process that did this died{how}", was_killed=was_killed)

    def end(self) -> None:
        """End it, whatever it does."""
        with suppress(*_ENDED):
            self._process.kill()
            self._process.join()
        with suppress(*_ENDED):
            self._connection.close()


@contextmanager
def _without_signals(*, has_server: bool) -> Iterator[None]:
    """Start processes to which an interrupt of the terminal does not come; copies, to which none comes at first."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if has_server:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT} if has_server else _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _count_threads() -> int:
    """Return how many threads this process has, of Python or not: a copy has one, and all locks that others hold."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return sys.maxsize


def _serve(connection: Connection, not_its_own: list[Connection]) -> None:
    """Do what comes, until nobody is there any more."""
    for other in not_its_own:
        other.close()
    if not_its_own:  # a copy has the handlers of the process that it is a copy of
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS - {signal.SIGINT}:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever sends tasks decides what that means
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    while True:
        try:
            data = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            fn, args, kwargs = pickle.loads(data)
            answer = pickle.dumps((True, fn(*args, **kwargs)))
        except Exception as error:  # noqa: BLE001 -- it is raised where the task came from
            answer = pickle.dumps((False, error))
        try:
            connection.send_bytes(answer)
        except OSError:
            return
