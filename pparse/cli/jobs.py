"""Who does the work of a command: this process, several, or a cluster; and what a run that is stopped leaves."""

from __future__ import annotations

from contextlib import ExitStack

from pparse.cli import waiting_threads, without_waiting
from pparse.cli.common import refused_argument
from pparse.errors import OptionError, PparseError, UnsupportedError
from pparse.limits import count_words
from pparse.workers.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor
    from typing import Any, Final, Self

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.tensors.viewer import Viewer
    from pparse.workers.notes import Notes
    from pparse.workers.results import Workers

    _RunOne = Callable[[Any, Output], int]

_MOST: Final = 256


def add_arguments(parser: Arguments, *, resume: bool = True) -> None:
    """Declare the options; ``resume``: of a command whose results can be noted."""
    to = parser.group("who does the work")
    parser.add("-j --jobs N", "so many processes (1); 0: as many as there are processors", to, type=count, default=1)
    parser.add("--scheduler ADDRESS", "the workers of a dask cluster, such as tcp://10.0.0.7:8786", to)
    if resume:
        words = "note in this file what is done; if it is there, go on from it: for runs that may be stopped"
        parser.add("--resume NOTES", words, to)


def count(text: str) -> int:
    """Return the number of `--jobs`."""
    if not text.isascii() or not text.isdecimal() or int(text) > _MOST:
        raise refused_argument(f"must be a number up to {_MOST}, not {text!r}")
    return int(text)


def number(options: Any) -> int:
    """Return how many are to work: for 0, as many as there are processors."""
    import os

    return options.jobs or os.cpu_count() or 1


class Jobs:
    """What does the tasks of a command, for ``with``; processes are started when the first one is given to them.

    Raises `OptionError` if the notes are of another run, `UnsupportedError` if dask is not installed.
    """

    def __init__(self, options: Any, out: Output, *run: str) -> None:
        """``run``: the command, and what it is to read: notes of anything else are refused."""
        self._options, self._out = options, out
        self._stack = ExitStack()
        self._executor: Executor | None = None
        self._count = number(options)
        if options.scheduler is not None and options.jobs != 1:
            raise OptionError("give --scheduler or --jobs, not both")
        self._notes: Notes | None = None
        self.executor  # noqa: B018 -- processes start while files are opened, and do not inherit the notes
        if getattr(options, "resume", None) is not None:
            import pparse
            from pparse.limits import MemoryBudget
            from pparse.workers.notes import Notes

            about = {"run": list(run), "version": pparse.__version__}
            self._notes = self._stack.enter_context(Notes(options.resume, about, MemoryBudget(options.budget)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        self._stack.__exit__(kind, *error)
        if kind is KeyboardInterrupt and self._notes is not None:
            words = f"interrupted; the same command goes on from what is noted in {self._options.resume}"
            without_waiting(lambda: self._out.error(words))

    @property
    def executor(self) -> Executor | None:
        """What does the tasks; None: this process."""
        if self._executor is None:
            if self._options.scheduler is not None:
                self._executor = self._cluster(self._options.scheduler)
            elif self._count > 1:
                from pparse.workers.pool import ProcessPool

                pool = ProcessPool(self._count, waiting=waiting_threads())
                self._stack.callback(pool.shutdown, cancel_futures=True)
                self._executor = pool
        return self._executor

    def _cluster(self, address: str) -> Executor:
        try:
            from dask.distributed import Client
        except ImportError as error:
            raise UnsupportedError("--scheduler needs the package distributed", package="distributed") from error
        try:
            client = self._stack.enter_context(Client(address, timeout=_PATIENCE))
        except (OSError, ValueError) as error:
            raise OptionError(f"no scheduler of dask answers at {address}: {error}") from error
        self._count = max(1, sum(client.nthreads().values()))
        self._out.progress.clear()
        found: Executor = self._stack.enter_context(client.get_executor())
        return found

    def workers(self, *viewers: Viewer) -> Workers:
        """Return who works on tensors, with progress in what these models have."""
        from pparse.workers.results import Workers

        executor, progress = self.executor, self._out.progress
        if not viewers or (executor is None and self._notes is None):
            return Workers(executor, self._count)
        total = sum(viewer.extent().listed_bytes for viewer in viewers) if progress.is_shown else None
        words = f"with {count_words(self._count, 'worker')}" if executor is not None else "working"
        return Workers(executor, self._count, notes=self._notes, progress=lambda done: progress(done, total, words))

    def results(self, tasks: Iterable[Any]) -> Iterator[Callable[[], Any]]:
        """Yield what returns the result of each task, or raises its error; to be called in order."""
        from pparse.workers.results import Workers

        return Workers(self.executor, self._count, notes=self._notes).results(tasks)

    def of_files(self, run_one: _RunOne, options: Any) -> _RunOne:
        """Return what does a command on ``options.file``: by a worker, if there are some. Files come as they are named.

        What ``run_one`` adds to ``options.bad`` is added here.
        """
        if len(options.files) == 1 or (self.executor is None and self._notes is None):
            return run_one
        tasks = [_Told(file, options, self._out, run_one) for file in options.files]
        made = zip(tasks, self.results(tasks), strict=False)

        def tell(options: Any, out: Output) -> int:
            task, result = next(made)
            try:
                told, bad, code, _ = result()
            except PparseError:
                options.bad += task.options.bad
                raise
            for is_error, text in told:
                (out.error if is_error else out.write)(text)
            options.bad += map(tuple, bad)
            return int(code)

        return tell


class OneFile(Task):
    """A task on one file, with the options of a command."""

    def __init__(self, file: str, options: Any, out: Output) -> None:
        from argparse import Namespace

        known = {name: value for name, value in vars(options).items() if name not in _HERE}
        self.options = Namespace(**known, file=file, bad=[], work=None, rests_on_others=True)
        self._out: Output | None = out
        self._kind = out.kind

    @property
    def out(self) -> Output:
        """The output of the command; in a worker, one that keeps what is written."""
        if self._out is None:
            from pparse.cli.output import Recorded

            self._out = Recorded(self._kind)
        return self._out

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_out": None}

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """The size of the file; of what is none, as much as goes out by itself."""
        from os import stat

        try:
            return stat(self.options.file).st_size
        except OSError:
            return 1 << 30

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        """Whether it can only be read here: standard input."""
        return bool(self.options.file == "-")

    def key(self) -> str | None:
        """Return what tells the file, and the list of identities beside it, from others; None of a folder."""
        from os import stat
        from stat import S_ISREG

        from pparse.measuring.hash_list import list_beside

        file = self.options.file
        told = [file]
        try:
            for path in (file, list_beside(file)):
                if path is not None:
                    found = stat(path)
                    told += [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
                    if not S_ISREG(found.st_mode):
                        return None
        except (OSError, ValueError):
            return None
        return repr(told)


class _Told(OneFile):
    """A command on one file, with what it tells."""

    def __init__(self, file: str, options: Any, out: Output, run_one: _RunOne) -> None:
        super().__init__(file, options, out)
        self._run = run_one

    def run(self) -> list[Any]:
        """Do it; return what it tells, what it found to be bad, its exit code, and whether it rests on other files."""
        from pparse.cli.output import Recorded

        out = Recorded(self._kind)
        code = self._run(self.options, out)
        return [out.told, self.options.bad, code, self.options.rests_on_others]

    def noted(self, result: Any) -> Any:
        """Return a result; None if it rests on other files than this one: it is made again."""
        return None if result[-1] else result


# Attributes of options that do not go to workers.
_HERE: Final = frozenset(("work", "file", "files", "bad", "exit_codes"))
# Seconds to wait for a scheduler.
_PATIENCE: Final = "10s"
