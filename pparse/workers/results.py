"""Gives tasks to an executor, and yields what they return in order.

- Tasks go out in batches of some megabytes, a few more than there are workers; results are taken one by one.
- What raises an error of ours in a worker is done once more here: so an error is raised where the document is open, and
  is known there. What cannot be sent is done here, too.
- A batch at which a worker died is done once more. If another one dies, its tasks go out one by one; a task that kills
  two raises `WorkerDiedError`. Workers that somebody else killed count less: ten of them are as many as two.
- Without an executor, each task is done here when its result is asked for. A result is the same wherever it was made.
"""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from importlib import import_module

from pparse.errors import PparseError, WorkerDiedError
from pparse.lazy import Declared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future
    from typing import Any, Final

    from pparse.workers.notes import Notes
    from pparse.workers.task import Task


_MOST_TOGETHER: Final = 256
# How often a worker may be killed at a task; if it dies of itself, half as often is once.
_DEATHS: Final = 10
# What executors raise if a worker died: ours, those of the standard library and of dask, which are not imported.
_DEATH_NAMES: Final = {"WorkerDiedError", "BrokenExecutor", "CancelledError", "KilledWorker", "CommClosedError"}


class Workers:
    """Does tasks in order: here, or with ``executor``, which does ``count`` of them at once (as many as processors).

    ``notes``: results that are there need not be made, new ones are noted. ``progress`` is called with bytes done.
    """

    def __init__(
        self,
        executor: Executor | None = None,
        count: int | None = None,
        *,
        notes: Notes | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.engine = executor, count
        """The executor, and how much it does at once."""
        self._executor, self._notes = executor, notes
        self._ahead = 2 * (count or os.cpu_count() or 1) + 2
        self._progress, self._done = progress, 0

    def results(self, tasks: Iterable[Task]) -> Iterator[Callable[[], Any]]:
        """Yield for each task what returns its result or raises its error; to be called once, before the next one."""
        batches = self._batches(tasks)
        window: deque[_Batch] = deque()
        ahead = self._ahead if self._executor is not None else 1
        try:
            while True:
                while len(window) < ahead and (batch := next(batches, None)) is not None:
                    self._submit(batch)
                    window.append(batch)
                if not window:
                    return
                batch = window.popleft()
                for number in range(len(batch.tasks)):
                    yield partial(self._result, batch, number)
        finally:  # nobody asks for the others any more
            for batch in window:
                if batch.future is not None:
                    batch.future.cancel()

    def _batches(self, tasks: Iterable[Task]) -> Iterator[_Batch]:
        some: list[Task] = []
        total = 0
        for task in tasks:
            known = self._notes.known(task.key()) if self._notes is not None else None
            if self._executor is None or known is not None or task.is_local:
                if some:
                    yield _Batch(some)
                yield _Batch([task], True, known)
                some, total = [], 0
                continue
            if some and (total + task.nbytes > task.together or len(some) == _MOST_TOGETHER):
                yield _Batch(some)
                some, total = [], 0
            some.append(task)
            total += task.nbytes
        if some:
            yield _Batch(some)

    def _submit(self, batch: _Batch) -> None:
        if self._executor is not None and not batch.is_here:
            batch.future = self._executor.submit(_run_all, batch.tasks)
            for name in {name for task in batch.tasks for name in task.needs}:
                import_module(name)

    def _result(self, batch: _Batch, number: int) -> Any:
        task, notes = batch.tasks[number], self._notes
        if batch.known is not None and batch.known[0] is not None:
            result = task.known(batch.known[0])
        else:
            made = None if batch.is_here else self._made(batch)[number]
            try:
                if isinstance(made, WorkerDiedError):
                    raise made
                result = task.run() if made is None else made[0]
            except PparseError:
                if notes is not None and batch.known is None:
                    notes.note(task.key(), None)
                raise
            if notes is not None and batch.known is None:
                notes.note(task.key(), task.noted(result))
        self._done += task.nbytes
        if self._progress is not None:
            self._progress(self._done)
        return result

    def _made(self, batch: _Batch) -> list[Any]:
        """Return for each task of a batch a list of its result, None if it is to be done here, or an error."""
        while batch.made is None:
            try:
                batch.made = batch.future.result() if batch.future is not None else [None] * len(batch.tasks)
            except Exception as error:
                if isinstance(error, PparseError) and not isinstance(error, WorkerDiedError):
                    batch.future = None
                elif any(kind.__name__ in _DEATH_NAMES for kind in type(error).__mro__):
                    self._do_again(batch, error)
                else:
                    raise
        return batch.made

    def _do_again(self, batch: _Batch, error: BaseException) -> None:
        was_killed = isinstance(error, WorkerDiedError) and error.was_killed
        batch.deaths += 1 if was_killed else _DEATHS // 2
        if batch.deaths < _DEATHS:
            self._submit(batch)
        elif len(batch.tasks) == 1:
            batch.made = [WorkerDiedError(f"worker processes died while they read it: {error}")]
        else:
            batch.made = []
            for task in batch.tasks:
                single = _Batch([task])
                self._submit(single)
                batch.made += self._made(single)


class _Batch(Declared):
    """Tasks that go out together."""

    tasks: list[Any]
    is_here: bool = False
    known: tuple[Any] | None = None
    future: Future[Any] | None = None
    made: list[Any] | None = None
    deaths: int = 0


def _run_all(tasks: list[Task]) -> list[tuple[Any] | None]:
    """Do tasks in a worker; None stands for one that is to be done by whoever sent it."""
    made: list[tuple[Any] | None] = []
    for task in tasks:
        try:
            made.append((task.run(),))
        except PparseError:
            made.append(None)
    return made
