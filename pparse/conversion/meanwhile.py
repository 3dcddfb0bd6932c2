"""Writes one piece in a thread while the next is read: system calls and checksums run at the same time."""

from __future__ import annotations

from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _queue import SimpleQueue
    from collections.abc import Callable
    from threading import Thread
    from typing import Final

    Job = Callable[[], object]

# How long a wait lasts before it looks again, in seconds: a signal may have eaten what was to wake it.
_PATIENCE: Final = 0.5


class Meanwhile:
    """Does one job at a time in a thread of its own, which is made for the first.

    `begin` and `wait` are for one thread. A signal that comes in either leaves it able to `wait` and `stop`: what is
    done is counted, and the queues only wake.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._jobs: SimpleQueue[tuple[int, Job] | None]
        self._ended: SimpleQueue[None]
        self._begun = 0
        self._done = 0
        self._error: BaseException | None = None

    def begin(self, job: Job) -> None:
        """Do ``job`` while the caller goes on; first `wait` for the one before."""
        self.wait()
        if self._thread is None:
            self._start()
        self._jobs.put((self._begun + 1, job))
        self._begun += 1

    def _start(self) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._jobs, self._ended = SimpleQueue(), SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (given := self._jobs.get()) is not None:
            number, job = given
            try:
                job()
            except BaseException as error:  # noqa: BLE001 -- it is raised where the job was given
                self._error = error
            del given, job  # what it wrote may be unused from now on
            self._done = number
            self._ended.put(None)

    def wait(self) -> None:
        """Return when no job is being done. Raises the error of one that failed, each time."""
        if self._done < self._begun:
            from queue import Empty

            while self._done < self._begun:
                with suppress(Empty):
                    self._ended.get(timeout=_PATIENCE)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread once it has done what was begun; nothing is raised."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()
