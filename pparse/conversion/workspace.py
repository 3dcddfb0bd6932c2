"""Where the files of a conversion are until they are whole: a hidden folder beside the target, with a journal.

``.NAME.pparse-convert`` holds a file for each one of the output (``000000.part``) and the journal, by which the same
command continues a run that was stopped. Beside the lines that begin a journal (`pparse.recovery.journal`):

====================================  =================================================================================
``["at", number, done, crc, lost]``   of the item ``number``, ``done`` bytes are on the disk; their CRC-32 so far, and
                                      how many of their numbers were too large for the new type
``["moving"]``                        everything is on the disk and is whole; now the files get their names
``["name", number, known]``           a file is about to get its name; known are its inode and its size
====================================  =================================================================================
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from pparse.errors import OptionError, refused
from pparse.recovery.journal import Journal
from pparse.writers.files import refuse_existing, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _queue import SimpleQueue
    from collections.abc import Callable, Iterable, Mapping
    from threading import Thread
    from typing import Any, Final

    from pparse.budget import MemoryBudget

    Job = Callable[[], object]

_SUFFIX: Final = ".pparse-convert"
_JOURNAL: Final = "journal"
_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Waking a thread takes as long as writing so many bytes.
_WORTH_A_THREAD: Final = 128 << 10
# How long a wait for a thread lasts before it looks again, in seconds: a signal may have eaten what was to wake it.
_PATIENCE: Final = 0.5
# Data and length, without times; where the system lacks it, all.
_sync: Final = getattr(os, "fdatasync", os.fsync)


class OtherRunError(Exception):
    """There is an unfinished run of another kind."""


class Place:
    """How far a run has come: in the item ``number``, ``done`` bytes are written."""

    __slots__ = ("begun", "done", "known", "moving", "number")

    def __init__(self) -> None:
        self.begun = False
        """Whether the files were made, and hold what comes before their items."""
        self.number = 0
        """The item; those before it are done."""
        self.done = 0
        """Bytes of it on the disk."""
        self.known: dict[int, tuple[int, int]] = {}
        """Of items, as far as they are done: CRC-32, and how many numbers were too large. Without those of 0."""
        self.moving = False
        """Whether all is done, and the files get their names."""


class Meanwhile:
    """Does one job at a time in a thread of its own, which is made for the first: system calls and checksums overlap.

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


def _folder_of(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:100]}{_SUFFIX}")


def is_begun(target: str) -> bool:
    """Return whether there is an unfinished conversion to ``target``, which the same command continues."""
    return os.path.isdir(_folder_of(target))


class ConversionFolder:
    """The hidden folder of a conversion to ``target``, locked; created if it is missing.

    ``run`` describes what is done, as plain data; None: it cannot be compared with another run. Raises `OptionError`
    if another process uses the folder, `SourceError` if it cannot be created, and `OtherRunError` if that of another
    run must not be given up (``keep_other``).
    """

    def __init__(
        self, target: str, run: Mapping[str, Any] | None, budget: MemoryBudget, *, keep_other: bool = False
    ) -> None:
        self.folder = _folder_of(target)
        """Its path."""
        self.place = Place()
        """How far an earlier run has come that this one continues."""
        self.started_over = False
        """Whether there was an unfinished run of another kind, which was given up."""
        self._open: Any = None
        self._number = -1
        self._meanwhile = Meanwhile()
        self._disk = Meanwhile()  # brings the open file to it
        self._noted: list[tuple[int, int, int, int]] | None = None  # lines for the journal, once it has
        self._descriptor = -1
        try:
            with refused("cannot write", self.folder):
                while not self._lock(target):  # a run that ended just now has removed it
                    os.close(self._descriptor)
                self._journal = self._begin(run, budget, keep_other=keep_other)
        except BaseException:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            raise

    def _lock(self, target: str) -> bool:
        """Open the journal, and lock it; return whether it is still there then."""
        self._make()
        path = os.path.join(self.folder, _JOURNAL)
        self._descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_APPEND, 0o666)
        if try_lock(self._descriptor) is False:
            raise OptionError(f"another process is converting to {target} now")
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _make(self) -> None:
        above = os.path.dirname(self.folder)
        with refused("cannot write", above):
            os.makedirs(above or ".", exist_ok=True)
        try:
            os.mkdir(self.folder)
        except FileExistsError:
            if os.path.islink(self.folder) or not os.path.isdir(self.folder):
                raise OptionError(f"{self.folder} is in the way: it is not a folder of ours; remove it") from None

    def _begin(self, run: Mapping[str, Any] | None, budget: MemoryBudget, *, keep_other: bool) -> Journal:
        """Continue the journal of the same run, or begin one."""
        journal = Journal(self._descriptor, budget, lambda path: 0)
        if run is not None and journal.run == run:
            self._read_place(journal)
            return journal
        self.started_over = journal.run is not None
        journal.close()
        if self.started_over and run is not None and keep_other:
            raise OtherRunError
        self._remove_parts()
        os.ftruncate(self._descriptor, 0)
        journal = Journal(self._descriptor, budget, lambda path: 0)
        journal.begin({} if run is None else dict(run))
        return journal

    def _read_place(self, journal: Journal) -> None:
        place = self.place
        try:
            for _, number, done, crc, lost in journal.lines("at"):
                place.begun, place.number, place.done = True, int(number), int(done)
                if crc or lost:
                    place.known[place.number] = int(crc), int(lost)
            place.moving = next(journal.lines("moving"), None) is not None
        except (TypeError, ValueError):  # not lines of ours
            self.place = Place()

    # -- the files -----------------------------------------------------------------------------------------------------

    def part(self, number: int) -> str:
        """Return the path of the unfinished file ``number``."""
        return os.path.join(self.folder, f"{number:06d}.part")

    def has_part(self, number: int, size: int) -> bool:
        """Return whether the unfinished file ``number`` is there, with ``size`` bytes."""
        try:
            return os.stat(self.part(number)).st_size == size
        except OSError:
            return False

    def write(self, number: int, at: int, pieces: Iterable[bytes | memoryview], size: int | None = None) -> None:
        """Write ``pieces`` into the file ``number`` from ``at`` on; ``size``: of the file, which is then made anew.

        Raises `SourceError`.
        """
        self._meanwhile.wait()
        self._write(number, at, pieces, size)

    def _write(self, number: int, at: int, pieces: Iterable[bytes | memoryview], size: int | None = None) -> None:
        with refused("cannot write", self.part(number)):
            self._turn_to(number, size)
            self._open.seek(at)
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[self._open.write(view) :]

    def write_meanwhile(self, number: int, at: int, piece: memoryview) -> None:
        """Do what `write` does in a thread, and let the caller make the next piece; this one must stay as it is.

        Until the next call has returned, or that of another method: they wait. Raises `SourceError`, perhaps for the
        piece before.
        """
        self._meanwhile.wait()
        if self._number != number or len(piece) < _WORTH_A_THREAD:
            self._write(number, at, (piece,))
        else:
            self._meanwhile.begin(partial(self._write, number, at, (piece,)))

    def _turn_to(self, number: int, size: int | None) -> None:
        if self._number == number and size is None:
            return
        self._close_part()
        flags = _FLAGS if size is None else _FLAGS | os.O_CREAT | os.O_TRUNC
        self._open = os.fdopen(os.open(self.part(number), flags, 0o666), "r+b", buffering=0)
        self._number = number
        if size is not None:
            self._open.truncate(size)

    def _close_part(self, *, sync: bool = True) -> None:
        """Close the open file; with ``sync`` all of it is on the disk then."""
        if self._open is None:
            return
        if sync:
            self.note([], wait=True)
        self._open.close()
        self._open, self._number = None, -1

    def note(self, lines: list[tuple[int, int, int, int]], *, wait: bool = False) -> None:
        """Record how far items are done, once that is on the disk: number, bytes, CRC-32, numbers too large.

        ``wait``: return only then; else the disk works while more is written. Raises `SourceError`.
        """
        self._meanwhile.wait()
        self._settle()
        if self._open is not None:
            self._disk.begin(partial(_sync, self._open.fileno()))
        self._noted = lines  # only now: a signal may come at any moment
        if wait or self._open is None:
            self._settle()

    def _settle(self) -> None:
        """Wait for the disk, and record what is on it now."""
        with refused("cannot write", self.part(self._number)):
            self._disk.wait()
        noted, self._noted = self._noted, None
        if noted is not None:
            for line in noted:
                self._journal.put("at", *line)
            self._journal.flush()

    # -- the end -------------------------------------------------------------------------------------------------------

    def publish(self, paths: list[str], *, force: bool) -> None:
        """Give the files their names, in order. Raises `OptionError` for a name that is taken, unless ``force``."""
        self._close_part()
        if not self.place.moving:
            self._journal.put("moving", flush=True)
        known = {number: stat for _, number, stat in self._journal.lines("name")}
        with refused("cannot write", self.folder):
            for number, path in enumerate(paths):
                self._publish(number, path, known, force=force)
            self._sync_folder(paths[0])

    def _publish(self, number: int, path: str, known: Mapping[int, object], *, force: bool) -> None:
        part = self.part(number)
        if number in known and not os.path.lexists(part):
            found = os.stat(path)
            if [found.st_ino, found.st_size] != known[number]:
                raise OptionError(f"{path} was changed after this conversion had written it; name another target")
            return
        refuse_existing((path,), force=force)
        found = os.stat(part)
        self._journal.put("name", number, [found.st_ino, found.st_size], flush=True)
        os.replace(part, path)

    def was_published(self, number: int, path: str) -> bool:
        """Return whether the run that this one continues gave the file ``number`` its name, ``path``."""
        return self.place.moving and not os.path.lexists(self.part(number)) and os.path.lexists(path)

    def _sync_folder(self, path: str) -> None:
        """Wait until the names are on the disk, where the system can tell."""
        if os.name == "nt":
            return
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            with suppress(OSError):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, *, keep: bool) -> None:
        """Release everything; ``keep``: leave the folder, for the same command to continue."""
        self._meanwhile.stop()
        self._disk.stop()
        self._close_part(sync=False)
        self._journal.close()
        if os.name == "nt":  # Windows does not remove open files
            os.close(self._descriptor)
        if not keep:
            self._remove_parts()
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, _JOURNAL))
                os.rmdir(self.folder)
        if os.name != "nt":
            os.close(self._descriptor)

    def _remove_parts(self) -> None:
        """Remove the unfinished files; nothing else in the folder is touched."""
        for name in os.listdir(self.folder):
            if name.endswith(".part") and name[:-5].isdecimal():
                with suppress(OSError):
                    os.unlink(os.path.join(self.folder, name))
