"""Writes the output of a conversion, continues one that was stopped, and gives files their names when all are whole.

Until then they are in a hidden folder beside the target: ``.NAME.pparse-convert`` holds a file for each one of the
output (``000000-….part``, with a hash of what is written) and the journal, by which the same command continues a run
that was stopped. A worker of a run that was given up, and lives on, thus never finds the files of the next one. Beside
the lines that begin a journal (`pparse.writers.journal`):

====================================  =================================================================================
``["at", number, done, crc, lost]``   of the item ``number``, ``done`` bytes are on the disk; their CRC-32 so far, and
                                      how many of their numbers were too large for the new type
``["moving"]``                        everything is on the disk and is whole; now the files get their names
``["name", number, known]``           a file is about to get its name; known are its inode and its size
====================================  =================================================================================
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from itertools import cycle
from zlib import crc32

from pparse import errors
from pparse.conversion.forms import PIECE
from pparse.conversion.plan import LeftOut, Options, Plan, refuse_damage
from pparse.conversion.stretch import stretches
from pparse.data.base import digest
from pparse.document.opening import refuse_unknown
from pparse.findings import Status
from pparse.kernels.crc32c import joined_crc
from pparse.lazy import lazy_pattern
from pparse.limits import MIB, are, count_words, parse_size
from pparse.workers.parts import measured
from pparse.workers.results import Workers
from pparse.workers.task import Task
from pparse.writers.files import refuse_existing, refuse_full, sync_folder, try_lock
from pparse.writers.journal import Journal, was_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _queue import SimpleQueue
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from threading import Thread
    from typing import Any, Final, NoReturn

    from pparse.conversion.forms import Item
    from pparse.conversion.plan import Report
    from pparse.document.opening import Source
    from pparse.limits import MemoryBudget
    from pparse.tensors.span import Span
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

    Job = Callable[[], object]

# After so many bytes it is made sure that they are on the disk, and the journal says so.
CHECKPOINT: Final = 256 * MIB
COPIED: Final = 16 * MIB
"""Bytes that the system is asked to copy at once, between two looks at whether the user stops."""
# How often tensors are left out, and the rest begun again, if damage only shows while reading.
_TRIES: Final = 4
_SUFFIX: Final = ".pparse-convert"
_JOURNAL: Final = "journal"
_PART: Final = lazy_pattern(r"[0-9]{6,}(-[0-9a-f]{16})?\.part")
_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Waking a thread, or asking the system to copy, takes as long as writing so many bytes.
_WORTH_A_THREAD: Final = 128 << 10
# How long a wait for a thread lasts before it looks again, in seconds: a signal may have eaten what was to wake it.
_PATIENCE: Final = 0.5
# Data and length, without times; where the system lacks it, all.
_sync: Final = getattr(os, "fdatasync", os.fsync)


class _UnresolvedError(Exception):
    """All checksums must be compared first: a tensor has another one, or an unfinished run may know of damage."""


class _SpoiledError(Exception):
    """Tensors that were believed to be whole turned out not to be; the arguments are their numbers."""


def convert(
    source: Source | Viewer,
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    max_shard_size: int | str | None = None,
    dtype: object = None,
    dequantize: bool = False,
    rename: Iterable[str] = (),
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    skip_damaged: bool = False,
    skip_unsupported: bool = False,
    dedupe: bool = False,
    force: bool = False,
    dry_run: bool = False,
    executor: Any = None,
    **how: Any,
) -> Report:
    """Write the tensors of ``source`` to a new file ``target``: .safetensors, .npz or .gguf, as its extension or ``to``
    says.

    ``max_shard_size`` (bytes, or ``"5GB"``) divides them among files ``NAME-00001-of-00003.safetensors``, with an
    index. ``dtype``, by any name that `DType.named` knows, casts floating tensors, rounding to the nearest, ties to
    even. ``dequantize`` multiplies codes by the scales that the source has for them, and leaves these out; without it,
    both are kept. ``rename`` are rules ``old=new`` for the beginnings of names, or with a ``*`` for whole names; the
    first that fits counts. ``include`` and ``exclude`` are patterns of names or keys in the source. ``skip_damaged``
    and ``skip_unsupported`` leave out tensors that are not whole, or that the target cannot hold, instead of writing
    nothing. ``dedupe`` writes tensors with the same bytes once. ``force`` replaces existing files; ``dry_run`` writes
    nothing. ``executor``: who casts and dequantises, a `pparse.ProcessPool` or any other executor of
    `concurrent.futures` that sees the same files. A `Viewer` is not closed; of any other source, ``how`` are keyword
    arguments of `pparse.view`.

    No file has its name before all are whole. A call that was interrupted is continued by the same call.

    Raises `NotWholeError`, `UnsupportedError`, `OptionError`, `SourceError` if the disk refuses, `LimitError`.
    """
    from pparse.tensors.viewer import Viewer, view

    options = Options(
        target=os.fspath(target),
        to=to,
        max_shard_size=None if max_shard_size is None else parse_size(max_shard_size),
        dtype=dtype,
        dequantize=dequantize,
        rename=rename,
        chosen=_choice(list(include), list(exclude)),
        skip_damaged=skip_damaged,
        skip_unsupported=skip_unsupported,
        dedupe=dedupe,
        force=force,
    )
    refuse_unknown("convert", how)
    if isinstance(source, Viewer):
        return convert_view(source, target, options, dry_run=dry_run, workers=Workers(executor))
    with view(source, **how) as viewer:
        return convert_view(viewer, target, options, dry_run=dry_run, workers=Workers(executor))


def _choice(include: list[str], exclude: list[str]) -> Callable[[Viewer, Tensor], bool] | None:
    from pparse.paths import glob

    if not include and not exclude:
        return None
    wanted, unwanted = [glob(pattern) for pattern in include], [glob(pattern) for pattern in exclude]

    def chosen(viewer: Viewer, tensor: Tensor) -> bool:
        names = (tensor.name, *viewer.other_names(tensor))
        found = not wanted or any(fits(name) for fits in wanted for name in names)
        return found and not any(fits(name) for fits in unwanted for name in names)

    return chosen


def convert_view(
    viewer: Viewer,
    target: str | os.PathLike[str],
    options: Options,
    *,
    dry_run: bool = False,
    look: Callable[[Plan], object] | None = None,
    workers: Workers | None = None,
) -> Report:
    """Do what `convert` does, for a viewer. ``look`` is called with the plan before anything is written."""
    spoiled: set[int] = set()
    resolved = dry_run  # else checksums are compared while tensors are copied, where that is possible
    for _ in range(_TRIES):
        plan = Plan(viewer, os.fspath(target), options, dry_run=dry_run, spoiled=spoiled, resolved=resolved)
        try:
            if look is not None:
                look(plan)
            _refuse_own_sources(plan)
            if dry_run:
                refuse_existing(plan.paths, force=options.force)
                return plan.report
            return _ConversionRun(plan, workers or Workers()).go()
        except _UnresolvedError:
            # All is read first, so that all damage is known: what is left out is left out at once. An unfinished run
            # may be one that knew it.
            resolved = True
        except _SpoiledError as error:
            spoiled.update(error.args)
        finally:
            plan.charge.release()
    raise errors.NotWholeError(f"damage was found {_TRIES} times while tensors were read, and nothing was written")


def _refuse_own_sources(plan: Plan) -> None:
    """Raise `OptionError` if the output would replace what is read."""
    session = plan.viewer.extraction.session
    sources = {id(data): data for data in (*plan.sources(), *session.sources())}
    for path in plan.paths:
        if any(data.same_source(path) for data in sources.values()):
            raise errors.OptionError(f"{path} is a file of the source, which is being read; name another output")


class _ConversionRun:
    """One run: from an empty folder, or from where an earlier run was stopped, to files with their names."""

    def __init__(self, plan: Plan, workers: Workers) -> None:
        self._plan, self._workers = plan, workers
        self._session = plan.viewer.extraction.session
        self._items = plan.work()
        self._work = ConversionFolder(
            plan.target, self._description(), self._session.budget, keep_other=plan.is_unresolved
        )
        if self._work.started_over:
            plan.report.notes.append(
                "an unfinished conversion to this name, with other options or of another source, was given up"
            )
        self._pending: list[tuple[int, int, int, int]] = []  # lines for the journal, once the bytes are on the disk
        self._unsure = 0  # bytes written since then
        self._written = 0
        self._state = (0, 0, 0, 0)  # how far the item is that is being written, as the journal has it

    def _description(self) -> dict[str, object] | None:
        """Return everything that changes the output, as plain data; None if the source has nothing to be told by."""
        import pparse

        stamp = self._plan.source_stamp()
        if stamp is None:
            return None
        return {
            "command": "convert",
            "of": self._plan.viewer.extraction.name,
            "source": stamp,
            "output": self._plan.fingerprint(),
            "version": pparse.__version__,
        }

    def go(self) -> Report:
        """Write everything; return the report."""
        keep = False
        plan, work = self._plan, self._work
        try:
            paths = plan.paths
            taken = [path for number, path in enumerate(paths) if not work.was_published(number, path)]
            keep = work.place.begun
            refuse_existing(taken, force=plan.options.force)
            keep = False
            if not work.place.moving:
                self._write()
                self._verify_source()
            keep = True
            work.publish(paths, force=plan.options.force)
            keep = False
        except BaseException as error:
            may_go_on = was_stopped(error) or isinstance(error, errors.SourceError | errors.WorkerDiedError)
            keep = keep or (work.place.begun and may_go_on)
            raise
        finally:
            work.close(keep=keep)
        self._tell_overflow()
        return plan.report

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        plan, work = self._plan, self._work
        if not (work.place.begun and all(work.has_part(at, file.size) for at, file in enumerate(plan.files))):
            work.place = RunPlace()
        place = work.place
        self._written = sum(item.nbytes for _, item in self._items[: place.number]) + place.done
        refuse_full(plan.target, plan.bytes - max(self._written, work.held()))
        if not place.begun:
            for number, file in enumerate(plan.files):
                work.write(number, 0, file.head(), file.size)
            work.note([(0, 0, 0, 0)], wait=True)
            place.begun = True
        for number, (_, item) in enumerate(self._items[: place.number + 1]):
            item.crc, item.overflowed = place.known.get(number, (item.crc, 0))
            if number < place.number:
                self._compare(item)
            self._state = (number, place.done, item.crc, item.overflowed)  # for who stops before the first item
        done = place.done
        plan.report.resumed_bytes = self._written
        budget = self._session.budget
        size = min(PIECE, max(4096, budget.limit // 8))
        with budget.charge(3 * size, "the buffers of the conversion"), self._session.telling():
            buffers = size, cycle((memoryview(bytearray(size)), memoryview(bytearray(size))))
            try:
                self._write_items(place.number, done, buffers)
            except (errors.TensorError, errors.GapError, errors.MalformedError, errors.EndOfDataError) as error:
                self._spoil([(self._items[self._state[0]][1], Status.DAMAGED, str(error))])
            except BaseException as error:
                if was_stopped(error):
                    self._pending.append(self._state)
                    with suppress(errors.PparseError, OSError, ValueError):  # the journal then ends earlier
                        self._checkpoint(wait=True)
                raise
        for number, file in enumerate(plan.files):
            work.write(number, file.end, file.form.tail(file.items))
        if plan.index_path is not None:
            work.write(len(plan.files), 0, plan.index(), plan.report.files[-1].bytes)
        self._checkpoint(wait=True)

    def _write_items(self, first: int, done: int, buffers: tuple[int, Iterator[memoryview]]) -> None:
        """Write the items from number ``first`` on, of which ``done`` bytes are there: here, or by workers."""
        plan, places = self._plan, {first: done}
        how = {"dequantize": plan.options.dequantize, "has_crc": plan.form.has_checksums}

        def parts_of(number: int) -> Sequence[Task]:
            file, item = self._items[number]
            there, parts = places.get(number, 0), list[Task]()
            if self._workers.engine[0] is not None:
                path = os.path.abspath(self._work.part(file))  # workers may have another current folder
                parts += stretches(plan.viewer, item, there, path, **how)
            return parts or [_Here(partial(self._write_item, number, buffers))]

        for number, parts in measured(range(first, len(self._items)), parts_of, self._workers):
            item = self._items[number][1]
            self._state = (number, places.get(number, 0), item.crc, item.overflowed)
            for part in parts:
                made = part()
                if made is not None:  # by a worker
                    self._take(number, *made)
            self._end_item(number)

    def _take(self, number: int, length: int, crc: int, overflowed: int) -> None:
        """Count a stretch that was written by a worker."""
        file, item = self._items[number]
        self._work.turn_to(file)
        _, done, before, _ = self._state
        item.overflowed += overflowed
        whole = joined_crc(before, crc, length) if self._plan.form.has_checksums else 0
        self._count(length, (number, done + length, whole, item.overflowed))

    def _write_item(self, number: int, buffers: tuple[int, Iterator[memoryview]]) -> None:
        """Write what is left of an item."""
        file, item = self._items[number]
        has_sums = self._plan.form.has_checksums or item.wanted_crc is not None
        span = item.plain_span() if not has_sums and item.nbytes >= _WORTH_A_THREAD else None
        done = self._state[1]
        while span is not None and done < item.nbytes:
            copied = self._work.copy(file, item.at + done, span, done, min(COPIED, item.nbytes - done))
            if not copied:
                break
            done += copied
            self._count(copied, (number, done, 0, 0))
        for piece in item.pieces(done, *buffers):
            self._work.write_meanwhile(file, item.at + done, piece)
            done += len(piece)
            crc = crc32(piece, self._state[2]) if has_sums else 0
            self._count(len(piece), (number, done, crc, item.overflowed))

    def _end_item(self, number: int) -> None:
        """Compare and note an item that was written, and write what comes before it."""
        file, item = self._items[number]
        _, done, item.crc, _ = self._state
        if done != item.nbytes:
            self._spoil([(item, Status.DAMAGED, f"it has {done:,} bytes, and not {item.nbytes:,}")])
        self._compare(item)
        lead = self._plan.form.lead(item)
        if lead:
            self._work.write(file, item.at - len(lead), (lead,))
        self._pending.append(self._state)

    def _compare(self, item: Item) -> None:
        """Begin again if an item that was copied is not what a checksum of the source says."""
        if item.wanted_crc is not None and item.crc != self._plan.form.crc_of(item, item.wanted_crc):
            raise _UnresolvedError

    def _count(self, written: int, state: tuple[int, int, int, int]) -> None:
        """Count a piece that was written; at times, make sure that all of them are on the disk."""
        self._state = state  # at once: an interruption comes at any moment
        self._written += written
        self._unsure += written
        if self._session.progress is not None:
            self._session.progress(self._written, self._plan.bytes, "writing")
        self._session.check_cancelled()
        if self._unsure >= CHECKPOINT:
            self._pending.append(state)
            self._checkpoint()

    def _checkpoint(self, *, wait: bool = False) -> None:
        self._work.note(self._pending, wait=wait)
        self._pending = []
        self._unsure = 0

    # -- the end -------------------------------------------------------------------------------------------------------

    def _verify_source(self) -> None:
        """Find out whether all that was read is right: streams are read to their ends, where their checksums are."""
        plan = self._plan
        for data in plan.sources():
            if not data.is_plain:
                data.verify()
            data.check_unchanged()
        plan.viewer.extraction.parsed.verify()  # the checksum of the member that it is
        flaws = plan.flaws()
        if flaws:
            self._spoil(flaws)
        plan.judge_document()
        if not plan.options.skip_damaged:
            refuse_damage(plan.report)

    def _spoil(self, flaws: list[tuple[Item, Status, str]]) -> NoReturn:
        """Begin again without these items; or refuse to write anything, if they must not be left out.

        If there may be more of them that nothing has told yet, all are looked for first.
        """
        plan = self._plan
        if plan.is_unresolved:
            raise _UnresolvedError
        if plan.options.skip_damaged:
            raise _SpoiledError(*(item.number for item, _, _ in flaws))
        plan.report.left_out += [LeftOut(item.tensor.name, status, reason) for item, status, reason in flaws]
        refuse_damage(plan.report)
        raise errors.EngineError("a tensor that is not whole was not refused")

    def _tell_overflow(self) -> None:
        """Report numbers that were too large for their new type."""
        report = self._plan.report
        report.overflowed = {item.name: item.overflowed for _, item in self._items if item.overflowed}
        if report.overflowed:
            count, target = sum(report.overflowed.values()), self._plan.options.dtype
            name = "" if target is None else target.name
            has_no_infinity = name.startswith("float8") and name != "float8_e5m2"
            report.notes.append(
                f"{count_words(count, 'number')} in {count_words(len(report.overflowed), 'tensor')} "
                f"{are(count)} too large for {target}, and written as {'NaN' if has_no_infinity else 'infinity'}"
            )


class _Here(Task):
    """What only this process does."""

    is_local = True

    def __init__(self, job: Job) -> None:
        self._job = job

    def run(self) -> None:
        """Do it."""
        self._job()


# -- the folder --------------------------------------------------------------------------------------------------------


class RunPlace:
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
    if another process uses the folder, `SourceError` if it cannot be created, and `_UnresolvedError` if that of
    another run must not be given up (``keep_other``).
    """

    def __init__(
        self, target: str, run: Mapping[str, Any] | None, budget: MemoryBudget, *, keep_other: bool = False
    ) -> None:
        self.folder = _folder_of(target)
        """Its path."""
        self.place = RunPlace()
        """How far an earlier run has come that this one continues."""
        self.started_over = False
        """Whether there was an unfinished run of another kind, which was given up."""
        told = os.urandom(16) if run is None else json.dumps(run, sort_keys=True).encode()
        self._mark = digest([told]).hex()[:16]
        self._open: Any = None
        self._number = -1
        self._meanwhile = Meanwhile()
        self._disk = Meanwhile()  # brings the open file to it
        self._noted: list[tuple[int, int, int, int]] | None = None  # lines for the journal, once it has
        self._descriptor = -1
        try:
            with errors.refused("cannot write", self.folder):
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
            raise errors.OptionError(f"another process is converting to {target} now")
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _make(self) -> None:
        above = os.path.dirname(self.folder)
        with errors.refused("cannot write", above):
            os.makedirs(above or ".", exist_ok=True)
        try:
            os.mkdir(self.folder)
        except FileExistsError:
            if os.path.islink(self.folder) or not os.path.isdir(self.folder):
                raise errors.OptionError(
                    f"{self.folder} is in the way: it is not a folder of ours; remove it"
                ) from None

    def _begin(self, run: Mapping[str, Any] | None, budget: MemoryBudget, *, keep_other: bool) -> Journal:
        """Continue the journal of the same run, or begin one."""
        journal = Journal(self._descriptor, budget, lambda path: 0)
        if run is not None and journal.run == run:
            self._read_place(journal)
            return journal
        self.started_over = journal.run is not None
        journal.close()
        if self.started_over and run is not None and keep_other:
            raise _UnresolvedError
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
                else:
                    place.known.pop(place.number, None)
            place.moving = next(journal.lines("moving"), None) is not None
        except (TypeError, ValueError):  # not lines of ours
            self.place = RunPlace()

    # -- the files -----------------------------------------------------------------------------------------------------

    def part(self, number: int) -> str:
        """Return the path of the unfinished file ``number``."""
        return os.path.join(self.folder, f"{number:06d}-{self._mark}.part")

    def has_part(self, number: int, size: int) -> bool:
        """Return whether the unfinished file ``number`` is there, with ``size`` bytes."""
        try:
            return os.stat(self.part(number)).st_size == size
        except OSError:
            return False

    def held(self) -> int:
        """Return how many bytes the unfinished files take on the disk, as far as the system tells."""
        return sum(512 * getattr(os.stat(path), "st_blocks", 0) for path in self._parts())

    def write(self, number: int, at: int, pieces: Iterable[bytes | memoryview], size: int | None = None) -> None:
        """Write ``pieces`` into the file ``number`` from ``at`` on; ``size``: of the file, which is then made anew.

        Raises `SourceError`.
        """
        self._meanwhile.wait()
        self._write(number, at, pieces, size)

    def _write(self, number: int, at: int, pieces: Iterable[bytes | memoryview], size: int | None = None) -> None:
        with errors.refused("cannot write", self.part(number)):
            self.turn_to(number, size)
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

    def copy(self, number: int, at: int, span: Span, start: int, length: int) -> int:
        """Let the system copy bytes of a file, from ``start`` of ``span`` on; return how many it did. As `write`."""
        self._meanwhile.wait()
        with errors.refused("cannot write", self.part(number)):
            self.turn_to(number)
            copied: int = span.data.copy_to(span.offset + start, length, self._open.fileno(), at)  # type: ignore[union-attr]
            return copied

    def turn_to(self, number: int, size: int | None = None) -> None:
        """Open the file ``number``, of ``size`` if it is made anew; the one before is on the disk then."""
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
        with errors.refused("cannot write", self.part(self._number)):
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
        with errors.refused("cannot write", self.folder):
            for number, path in enumerate(paths):
                self._publish(number, path, known, force=force)
            sync_folder(paths[0])

    def _publish(self, number: int, path: str, known: Mapping[int, object], *, force: bool) -> None:
        part = self.part(number)
        if number in known and not os.path.lexists(part):
            found = os.stat(path)
            if [found.st_ino, found.st_size] != known[number]:
                raise errors.OptionError(
                    f"{path} was changed after this conversion had written it; name another target"
                )
            return
        refuse_existing((path,), force=force)
        found = os.stat(part)
        self._journal.put("name", number, [found.st_ino, found.st_size], flush=True)
        os.replace(part, path)

    def was_published(self, number: int, path: str) -> bool:
        """Return whether the run that this one continues gave the file ``number`` its name, ``path``."""
        return self.place.moving and not os.path.lexists(self.part(number)) and os.path.lexists(path)

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
        for path in self._parts():
            with suppress(OSError):
                os.unlink(path)

    def _parts(self) -> list[str]:
        return [os.path.join(self.folder, name) for name in os.listdir(self.folder) if _PART.fullmatch(name)]
