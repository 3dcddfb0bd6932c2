"""The folder that recovered files are written to. It is never left or overfilled, and nothing in it is overwritten.

::

    with Target("out", source_size=1 << 20) as target:
        with target.create("docs/read me.txt", mtime=1_700_000_000) as file:
            file.write(b"text")
            file.skip(1 << 20)      # a hole: takes no room on the disk
        file.path, file.bytes, file.sha256, file.crc32

It creates plain files and folders with the permissions of the user's umask: no links, no devices, no setuid bits. A
file gets its name when it is complete; until then it is in a hidden folder (`pparse.recovery.folder_writer`). A journal
is kept there, too, and the same run continues where it was killed.

Every name goes through `safe_name`, is created below an open folder without following links, and must be new. A name
that is taken gets a number: ``a~2.txt``. Names that differ only in case or composition also count as taken, so that the
folder can be copied to any file system. A folder with the name of a file becomes ``a~2`` for all its members.

Each name takes 8 bytes of memory (16 for a folder), a renamed folder more; all is charged to the memory budget. Use it
from one thread at a time.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import zlib
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from types import MappingProxyType

from pparse.containers.content import Verdict
from pparse.errors import ClosedError, LimitError, OptionError, SourceError, refused, system_error, told
from pparse.limits import FREE_EXPANSION, GIB, MIB, Limits, MemoryBudget, format_size
from pparse.recovery.folder_writer import WORK_NAME, Workspace, places
from pparse.recovery.names import MAX_DEPTH, changed, fold, names_root, numbered, plain, printable, safe_name
from pparse.writers.digest import Digest
from pparse.writers.files import refuse_full
from pparse.writers.journal import HashTable, Journal, is_disk_full, was_stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Any, Final, Self

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Buffer, Data

    Work = tuple[Any, str, int]

REPORT_NAME: Final = "RECOVERY.json"
_SPARE: Final = 64 * MIB
_MOST: Final = 16 * GIB
_REFUSED_NAMES: Final = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_RENAMED_COST: Final = 300  # bytes: an entry of a dict, its key and its text
# Runs of zeros from this length on become holes in the file.
HOLE: Final = 64 << 10
# So many holes of a source are left out of what it takes on the disk.
_MOST_HOLES: Final = 10_000
_ZEROS: Final = bytes(256 << 10)
_MAX_SYSTEM_CALL: Final = 1 << 30
_MAX_SECONDS: Final = 1 << 33  # the year 2242: nanoseconds fit in 64 bits


def default_max_output(source_size: int | None) -> int:
    """Return the default limit of output for a source of ``source_size`` bytes, in bytes: a copy of it always fits."""
    size = source_size or 0
    return _MOST if source_size is None else max(size + _SPARE, min(_MOST, 200 * size + _SPARE))


class Target:
    """A folder to write to; created if it is missing.

    With ``exist_ok`` it need not be empty: existing files stay, and new files get other names. ``max_bytes`` limits the
    bytes of all files together, without holes (default: `default_max_output` for ``source_size``), ``limits`` those of
    their holes (``hole_bytes``), the files and folders (``extracted_entries``), and what `Expansion` allows a member
    (``expansion_ratio``); ``max_depth`` the parts of a path (deeper folders are left out of it). ``run`` describes what
    is done, as plain data; its item ``of`` names the source for people. If the folder holds the ``journal`` of the same
    run, unfinished, that is continued. With ``threads``, two or more, one of them makes the digests of the files.

    As a context manager it ends with `close`. If the user stops it, or the disk is full, it keeps what is needed to
    continue. Raise `OptionError` if the folder is not empty or not a folder, or holds another unfinished run;
    `SourceError` if it cannot be created.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        source_size: int | None = None,
        max_bytes: int | None = None,
        limits: Limits | None = None,
        max_depth: int = MAX_DEPTH,
        budget: MemoryBudget | None = None,
        exist_ok: bool = False,
        run: Mapping[str, Any] = MappingProxyType({}),
        threads: int = 1,
    ) -> None:
        self.limits = limits or Limits()
        self.folder = os.fspath(folder)
        """Path of the folder."""
        self.max_bytes = default_max_output(source_size) if max_bytes is None else max_bytes
        self.max_depth = max_depth
        self.bytes = 0
        """Bytes written so far, without holes."""
        self.hole_bytes = 0
        """Bytes of holes so far."""
        self.entries = 0
        """Number of files and folders created."""
        self.closed = True
        self.journal: Journal
        self._budget = budget or MemoryBudget()
        self._thread: Executor | None = None
        self._threads = ExitStack()
        if threads > 1:
            from concurrent.futures import ThreadPoolExecutor  # costs 5 ms

            self._thread = self._threads.enter_context(ThreadPoolExecutor(1, "pparse-digest"))
        self._salt = os.urandom(16)  # so that nobody can choose names that make the table slow
        self._taken = HashTable(self._budget)
        self._renamed: dict[int, str] = {}  # folders created under another name than their own
        self._renamed_charge = self._budget.charge(0, "the table of renamed folders")
        self.places = places()
        self._root: Any = self._open()
        self._work = Workspace(self.places, self._root)
        try:
            with refused("cannot write", self.folder):
                self._begin(exist_ok, run)
        except BaseException:
            self._let_go(keep=True)
            raise
        self.closed = False
        for name in (WORK_NAME, REPORT_NAME):
            self._taken.add(self._key_of(name))

    def _open(self) -> Any:
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise OptionError(f"the target {self.folder} is not a folder")
        try:
            os.makedirs(self.folder, exist_ok=True)
            return self.places.root(self.folder)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            raise system_error(error, "cannot write", self.folder) from error

    # -- continuing a run ----------------------------------------------------------------------------------------------

    def _begin(self, exist_ok: bool, run: Mapping[str, Any]) -> None:
        """Continue the journal of the same run; or check that the folder is free, and begin one."""
        is_there = self._read_journal(make=False)
        if is_there and self._goes_on(self.journal, run):
            self._work.sweep()
            if self.journal.pending is not None:
                self.withdraw(self.journal.pending, pending=True)
            return
        if not exist_ok and not self.places.is_empty(self._root, WORK_NAME):
            raise OptionError(
                f"the target {self.folder} is not empty; name another folder, or allow it with "
                + told("--force", "exist_ok=True")
            )
        if not is_there:
            self._read_journal(make=True)
        if self.journal.run is not None:
            raise OptionError("another process is writing to this folder now")
        self._work.sweep()
        self.journal.begin(dict(run))

    def _read_journal(self, *, make: bool) -> bool:
        descriptor = self._work.journal(make=make)
        if descriptor is None:
            return False
        try:
            self.journal = Journal(descriptor, self._budget, lambda path: self._key("", path, "made"))
        except BaseException:
            os.close(descriptor)
            raise
        return True

    def _goes_on(self, journal: Journal, run: Mapping[str, Any]) -> bool:
        """Say whether ``journal`` is that of ``run``. Raise `OptionError` if it is that of another run."""
        found = journal.run
        if found is None:
            return False  # killed before its first line was complete
        if found == run:
            return True
        command, of = (printable(str(found.get(key, "?"))) for key in ("command", "of"))
        raise OptionError(
            f"{self.folder} holds the output of an unfinished 'pparse {command}' of {of}; repeat the very same command "
            "(same options, unchanged file) to continue it; for anything else name another folder, or remove this one"
        )

    def withdraw(self, offset: int, *, pending: bool = False) -> None:
        """Remove the files of the unit that begins at ``offset`` of the journal, unless they have changed.

        ``pending``: the unit was not finished. Nobody has a reason to change its files, so a changed one is somebody
        else's.
        """
        # The others: it is not a line of a journal.
        with refused("cannot write", self.folder), suppress(TypeError, IndexError, AttributeError):
            for at, _, entry in self.journal.entries(offset):
                if (entry[0] == "unit" and at != offset) or entry[0] in ("done", "entered"):
                    break
                if entry[0] == "name":
                    self._withdraw(entry[1], entry[2][: None if pending else 1])
                elif entry[0] == "claim" and pending:
                    self._withdraw(entry[1], None)

    def withdraw_all(self) -> None:
        """Remove all unchanged files that this run has written, and its folders if they are empty then."""
        with refused("cannot write", self.folder):
            for _, path, known in self.journal.lines("name"):
                self._withdraw(path, known)
            for path in sorted((path for _, path in self.journal.lines("folder")), key=len, reverse=True):
                place, name = self._reach(path)
                if place is not None:
                    with suppress(OSError):  # it holds other files
                        self.places.remove_folder(place, name)

    def _withdraw(self, path: str, known: list[Any] | None) -> None:
        """Remove a file of which so much is known, if that is still true; None: that it is empty."""
        place, name, found = self._find(path)
        if found is not None and (not found.st_size if known is None else _known(found)[: len(known)] == known):
            self.places.unlink(place, name)

    def _reach(self, path: str) -> tuple[Any, str]:
        """Return the place of ``path``, a path of the journal, and its name there; None if it does not exist."""
        *folders, name = path.split("/")
        place: Any = None
        if {"", ".", ".."}.isdisjoint((*folders, name)) and "\0" not in path:
            with suppress(OSError):
                inner = self._root
                for folder in folders:
                    inner = self.places.enter(inner, folder)
                place = inner
        return place, name

    def _find(self, path: str) -> tuple[Any, str, os.stat_result | None]:
        """Do what `_reach` does; add the status if that is a plain file."""
        place, name = self._reach(path)
        found = None if place is None else self.places.look(place, name)
        return place, name, found if found is not None and stat.S_ISREG(found.st_mode) else None

    def is_intact(self, path: str, known: Sequence[object]) -> bool:
        """Say whether the file ``path`` is the one that the journal knows: its inode, size and time."""
        with suppress(OSError):
            found = self._find(path)[2]
            return found is not None and _known(found) == list(known)
        return False

    def adopt(self, parts: tuple[str, ...], path: str | None, output: int, skipped: int) -> None:
        """Count a file in the journal as if it were written now."""
        self._walk(parts[:-1])
        if path is None:
            return
        self._count_entry()
        self.take(output)
        self.take_hole(skipped)
        self.entries += 1
        self._taken.add(self._key_of(path))

    # -- what is made --------------------------------------------------------------------------------------------------

    def create(
        self, name: str, raw_name: bytes | None = None, mtime: float | None = None, compressed_size: int | None = None
    ) -> TargetFile:
        """Create a new, empty file for the member stored as ``name``.

        ``raw_name`` are the bytes that ``name`` was decoded from. ``mtime`` is in seconds since 1970, set when the file
        is closed. ``compressed_size`` is the size of the compressed content, to apply `Expansion` to its stream. Raise
        `LimitError`, or `SourceError` if the disk refuses.
        """
        self._check()
        parts = safe_name(name, raw_name, depth=self.max_depth)
        place, folder = self._walk(parts[:-1])
        self._count_entry()

        def see_free(place: Any, name: str) -> None:
            if self.places.look(place, name) is not None:
                raise FileExistsError(errno.EEXIST, "is there", name)

        actual = self._claim(place, folder, parts[-1], see_free)
        try:
            work = self._work.create()
        except OSError as error:
            self._taken.discard(self._key_of(folder + actual))
            raise system_error(error, "cannot write", folder + actual) from error
        self.entries += 1
        file = TargetFile(self, work, place, parts, folder + actual, (name, raw_name))
        file.mtime = mtime
        if compressed_size is not None:
            file.expansion = Expansion(compressed_size, self.limits.expansion_ratio)
        return file

    def publish(self, file: TargetFile, work: Any, temporary: str, place: Any, found: os.stat_result) -> None:
        """Give a complete file its name, or the next free one. Raise OSError."""
        folder, slash, actual = file.path.rpartition("/")
        folder += slash

        def take(place: Any, name: str) -> None:
            path = folder + name
            self._note("name", path, _known(found))
            self.places.move(work, temporary, place, name, lambda: self._note("claim", path))

        try:
            take(place, actual)
        except OSError as error:
            base = file.parts[-1]
            if error.errno in _REFUSED_NAMES and base != plain(base):
                self._taken.discard(self._key_of(file.path))
                base = plain(base)
            elif not isinstance(error, FileExistsError):
                raise
            file.named(folder + self._claim(place, folder, base, take))
        self.journal.put("file", file.parts, file.path, _known(found), file.output, file.skipped)

    def forget(self, file: TargetFile) -> None:
        """Release the name and the bytes of a discarded file."""
        self.bytes -= file.output
        self.hole_bytes -= file.skipped
        self.entries -= 1
        if not self.closed:
            self._taken.discard(self._key_of(file.path))
            self.journal.put("file", file.parts, None, [], 0, 0)

    def _note(self, *entry: object) -> None:
        """Add a line that the next step relies on."""
        self.journal.put(*entry, flush=True)

    def make_folder(self, name: str, raw_name: bytes | None = None) -> str:
        """Create the folder stored as ``name``, unless it exists; return its path (``""`` for the target itself)."""
        self._check()
        if names_root(name):
            return ""
        _, folder = self._walk(safe_name(name, raw_name, depth=self.max_depth))
        return folder.rstrip("/")

    def digest(self) -> Digest:
        """Return what makes the digest of a file while it is written."""
        return Digest(self._budget, self._thread)

    def atomic(self) -> AtomicReport:
        """Return the report, which gets its name at the root when it is complete."""
        self._check()
        with refused("cannot write", REPORT_NAME):
            return AtomicReport(self, *self._work.create(), REPORT_NAME)

    def close(self, *, keep: bool = False) -> None:
        """Release the folder; may be called again. ``keep`` what the same run needs to continue."""
        if not self.closed:
            self.closed = True
            self._taken.close()
            self._renamed_charge.release()
            self._let_go(keep=keep)

    def _let_go(self, *, keep: bool) -> None:
        journal: Journal | None = getattr(self, "journal", None)
        self._threads.close()
        try:
            if journal is not None:
                journal.close()
                if keep:
                    os.close(journal.descriptor)
                else:
                    with suppress(OSError):
                        self._work.remove_journal(journal.descriptor)
        finally:
            self._work.close()
            self._root = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(keep=was_stopped(error) or is_disk_full(error))

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close(keep=True)  # it was not closed, so it is not done

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the target is closed", source=self.folder)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _key(self, folder: str, name: str, kind: str = "any") -> int:
        text = f"{kind}\0{folder}\0{name}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._salt).digest(), "little")

    def _key_of(self, path: str) -> int:
        """Return the key that is equal for all paths that some file system takes for the same in their folder."""
        folder, slash, name = path.rpartition("/")
        return self._key(folder + slash, fold(name))

    def _walk(self, parts: tuple[str, ...]) -> tuple[Any, str]:
        """Enter the folders ``parts``, creating missing ones; return the place and its path, with a slash at the end.

        Starts from the root every time, since a folder may have been replaced by a link.
        """
        place, folder = self._root, ""
        for part in parts:
            place, name = self._enter(place, folder, part)
            folder += f"{name}/"
        return place, folder

    def _enter(self, place: Any, folder: str, part: str) -> tuple[Any, str]:
        """Enter the folder ``part``, or the one created in its place, or create it; return it and its name."""
        exact = self._key(folder, part, "folder")
        name = self._renamed.get(exact, part)
        ours = exact in self._taken
        # A folder that somebody else made is entered, too: it was there before. One that the continued run made is made
        # again, so that it counts.
        if ours or (self._key_of(folder + part) not in self._taken and not self._was_made(folder + part)):
            try:
                below = self.places.enter(place, name)
            except (FileNotFoundError, NotADirectoryError):
                pass  # missing, or a file, or somebody put a link there
            except OSError as error:
                if error.errno not in _REFUSED_NAMES:
                    raise system_error(error, "cannot write", folder + name) from error
            else:
                if not ours:
                    self._taken.add(exact)
                    self._taken.add(self._key_of(folder + part))
                return below, name
        self._count_entry()
        self._taken.discard(exact)
        name = self._claim(place, folder, part, lambda place, name: self._make(place, folder, name), is_folder=True)
        self.entries += 1
        self._taken.add(exact)
        if name != part:
            self._renamed_charge.resize(self._renamed_charge.amount + _RENAMED_COST)
            self._renamed[exact] = name
        with refused("cannot write", folder + name):
            return self.places.enter(place, name), name

    def _was_made(self, path: str) -> bool:
        return self.journal.made_folder(path)

    def _make(self, place: Any, folder: str, name: str) -> None:
        """Create a folder, unless the run that this one continues has created it."""
        was_made = self._was_made(folder + name)
        if not was_made:
            self._note("folder", folder + name)
        try:
            self.places.make_folder(place, name)
        except FileExistsError:
            if not was_made:
                raise
            try:
                self.places.enter(place, name)
            except NotADirectoryError as error:
                raise FileExistsError(errno.EEXIST, "is there", name) from error

    def _claim(
        self, place: Any, folder: str, wanted: str, make: Callable[[Any, str], object], *, is_folder: bool = False
    ) -> str:
        """Call ``make`` with a free name; return the name."""
        base = name = wanted
        while True:
            key = self._key_of(folder + name)
            if key in self._taken:
                name = self._next_free(folder, base, is_folder)
                continue
            self._taken.add(key)  # first, since it may be refused
            try:
                make(place, name)
                return name
            except FileExistsError:
                continue  # taken by somebody else
            except OSError as error:
                self._taken.discard(key)
                if error.errno not in _REFUSED_NAMES or base == plain(base):
                    raise system_error(error, "cannot write", folder + name) from error
                base = name = plain(base)

    def _next_free(self, folder: str, base: str, is_folder: bool) -> str:
        """Return ``base`` with a number that is free while the number below it is not.

        Found by doubling and halving: a million members with one name take a million times twenty look-ups, not the
        square.
        """

        def is_taken(number: int) -> bool:
            return self._key_of(folder + numbered(base, number, folder=is_folder)) in self._taken

        low, high = 1, 2
        while is_taken(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_taken(middle) else (low, middle)
        return numbered(base, high, folder=is_folder)

    # -- limits --------------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the limit of entries is met, so that nothing more can be created."""
        return self.entries >= self.limits.extracted_entries

    def _count_entry(self) -> None:
        self.limits.check("extracted_entries", self.entries + 1, "the number of files and folders")

    def take(self, count: int) -> None:
        """Count ``count`` more bytes of output. Raise `LimitError`."""
        if count > self.max_bytes - self.bytes:
            wanted = self.bytes + count
            raise LimitError(
                f"the output would take {format_size(wanted)}, more than the {format_size(self.max_bytes)} allowed",
                option=f"--max-output {-(-max(wanted, 4 * self.max_bytes) // MIB)}MiB",
                wanted=wanted,
                got=self.max_bytes,
            )
        self.bytes += count

    def take_hole(self, count: int) -> None:
        """Count ``count`` more bytes of holes. Raise `LimitError`."""
        wanted = self.hole_bytes + count
        self.limits.check("hole_bytes", wanted, f"the size of all holes, {format_size(wanted)},")
        self.hole_bytes = wanted


def _known(found: os.stat_result) -> list[int]:
    return [found.st_ino, found.st_size, found.st_mtime_ns]


# -- files while they are written, and the limits that end that -------------------------------------------------------


class Expansion:
    """Counts the output of one compressed stream of ``compressed_size`` bytes, and stops decompression bombs.

    ``ratio``: how many bytes one may become; deflate reaches 1,032.
    """

    __slots__ = ("_compressed_size", "_limit", "_ratio", "bytes")

    def __init__(self, compressed_size: int, ratio: int = Limits.DEFAULTS["expansion_ratio"]) -> None:
        self._compressed_size = max(compressed_size, 1)
        self._ratio = ratio
        self._limit = max(self._compressed_size * ratio, FREE_EXPANSION)
        self.bytes = 0
        """Output so far."""

    def add(self, count: int) -> None:
        """Count ``count`` more bytes of output. Raise `LimitError` if they exceed the ratio."""
        if count > self._limit - self.bytes:
            wanted = self.bytes + count
            ratio = -(-wanted // self._compressed_size)
            raise LimitError(
                f"{format_size(self._compressed_size)} of a compressed stream decompress to more than {self._ratio} "
                "times as much",
                option=f"--limit expansion_ratio={max(ratio, 2 * self._ratio)}",
                wanted=wanted,
                got=self._limit,
            )
        self.bytes += count


class _OpenFile:
    """A file that is being written: ``name`` in the place ``work``, until it gets its final name."""

    def __init__(self, target: Target, work: Any, name: str, descriptor: int, path: str) -> None:
        self._target = target
        self._places: Any = target.places
        self._work: Any = work
        self._name = name
        self._descriptor = descriptor
        self.path = path
        self.closed = False

    def _write_all(self, data: Buffer, wrote: Callable[[memoryview], object]) -> None:
        """Write ``data``; call ``wrote`` with each piece handed to the system."""
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        with refused("cannot write", self.path):
            while view:
                done = os.write(self._descriptor, view[:_MAX_SYSTEM_CALL])
                wrote(view[:done])
                view = view[done:]

    def _remove(self) -> None:
        self.closed = True
        try:
            self._places.remove(self._work, self._name, self._descriptor)
        except OSError as error:
            if error.errno != errno.ENOENT:  # somebody else was faster
                raise system_error(error, "cannot write", self.path) from error
        finally:
            self._work = None

    def _drop(self) -> None:
        """Remove a file that could not get its name, after its descriptor was closed."""
        with suppress(OSError):
            self._places.unlink(self._work, self._name)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            if not self.closed:
                self._remove()


class TargetFile(_OpenFile):
    """A new file: write at its end, leave holes, close it or discard it.

    As a context manager it is closed at the end, and discarded after an exception; close it yourself to keep what was
    written until then. A file that is dropped without either is discarded.
    """

    def __init__(
        self,
        target: Target,
        work: Work,
        place: Any,
        parts: tuple[str, ...],
        path: str,
        stored: tuple[str, bytes | None],
    ) -> None:
        super().__init__(target, *work, path)
        self._place: Any = place
        self._digest = target.digest()
        self._stored = stored
        self.expansion: Expansion | None = None
        """What limits the output of a compressed stream."""
        self.mtime: float | None = None
        """Modification time to set, in seconds since 1970."""
        self.skipped = 0
        """Bytes that were left out with `skip`."""
        self.parts = parts
        self.crc32 = 0
        """CRC-32 of the content, holes as zeros."""
        self.bytes = 0
        """Size of the content in bytes, holes included."""
        self.hole_bytes = 0
        """Bytes of the content that are holes."""
        self.raw_name: str | None = None
        """The stored name, readable; None if it does not differ from the path."""
        self.named(path)

    def named(self, path: str) -> None:
        """Set the path that the file has, or will have."""
        self.path = path
        self.raw_name = _stored_name(*self._stored) if changed(self._stored[0], path.split("/")) else None

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the content so far, in hexadecimal, holes as zeros."""
        return self._digest.hexdigest()

    @property
    def output(self) -> int:
        """Bytes that count as output: all but the holes left with `skip`."""
        return self.bytes - self.skipped

    def write(self, data: Buffer) -> int:
        """Write ``data``; return its size.

        Raise `LimitError` (nothing is written then), `SourceError` if the disk is full.
        """
        count = memoryview(data).nbytes
        if self.expansion is not None:
            self.expansion.add(count)
        self._target.take(count)
        before = self.bytes
        try:
            self._write_all(data, self._hash)
        finally:
            self._target.bytes -= count - (self.bytes - before)
        return count

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def write_zeros(self, count: int) -> None:
        """Write ``count`` zeros as a hole, which takes no space on the disk; otherwise like `write`."""
        if self.expansion is not None:
            self.expansion.add(count)
        self._leave_hole(count, self._target.take)

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` zeros that were not decoded: it is not output, and has its own limit.

        Raise as `write`.
        """
        if count < 0:
            raise ValueError(f"a hole cannot be negative: {count}")
        self._leave_hole(count, self._target.take_hole)
        self.skipped += count

    def _leave_hole(self, count: int, take: Callable[[int], None]) -> None:
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        take(count)
        try:
            os.lseek(self._descriptor, count, os.SEEK_CUR)
        except (OSError, OverflowError) as error:
            take(-count)
            raise system_error(error, "cannot write", self.path) from error
        self.hole_bytes += count
        zeros = memoryview(_ZEROS)
        while count:
            piece = zeros[:count]
            self._hash(piece)
            count -= len(piece)

    def _hash(self, piece: memoryview) -> None:
        self._digest.update(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        self.bytes += len(piece)

    def close(self) -> None:
        """Finish the file, at its last hole if it ends with one, and give it its name; may be called again.

        Raise `SourceError` if the disk refuses. A time that the file system cannot store is left out.
        """
        if self.closed:
            return
        if self._target.closed:
            self.discard()
            raise ClosedError("the target is closed", source=self.path)
        try:
            if self.hole_bytes:
                os.ftruncate(self._descriptor, self.bytes)
        except OSError as error:
            self.discard()
            raise system_error(error, "cannot write", self.path) from error
        self.closed = True
        try:
            with refused("cannot write", self.path):
                found = self._places.finish(self._work, self._name, self._descriptor, _nanoseconds(self.mtime))
                self._target.publish(self, self._work, self._name, self._place, found)
        except BaseException:
            self._drop()
            self._target.forget(self)
            raise
        finally:
            self._work = self._place = None

    def discard(self) -> None:
        """Remove the file, unless it was closed; release its name and its bytes."""
        if self.closed:
            return
        try:
            self._remove()
        finally:
            self._place = None
            self._target.forget(self)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.discard()

    def __enter__(self) -> TargetFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class AtomicReport(_OpenFile):
    """Our own file at the root of a target. `commit` gives it its name, `discard` removes it if unfinished."""

    def write(self, data: Buffer) -> None:
        """Write ``data``. Raise `SourceError`."""
        self._write_all(data, lambda piece: None)

    def commit(self) -> None:
        """Give the file its name, replacing what has that name, even a link.

        May be called again, and after `discard`. After an error (`SourceError`) nothing is left of the file.
        """
        if self.closed:
            return
        self.closed = True
        with refused("cannot write", self.path):
            try:
                self._places.finish(self._work, self._name, self._descriptor, None)
                self._places.rename(self._work, self._name, self._target._root, self.path)
            except BaseException:
                self._drop()
                raise
            finally:
                self._work = None

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        if not self.closed:
            self._remove()


class LimitMet:
    """A limit that cut files or left them out."""

    def __init__(self) -> None:
        self.files = 0
        """Number of files concerned."""
        self.option = ""
        """The option that would have been enough for all of them."""
        self._wanted = -1

    def add(self, error: LimitError) -> None:
        """Count another file that met the limit."""
        self.files += 1
        wanted = error.wanted if isinstance(error.wanted, int) else 0
        if wanted > self._wanted:
            self._wanted, self.option = wanted, error.option


class FileSink:
    """Writes content as it arrives. The file is created with its first byte, or at the end of empty content."""

    def __init__(self, target: Target, name: str, mtime: float | None, compressed_size: int | None) -> None:
        self._target = target
        self._name = name
        self._mtime = mtime
        self._compressed_size = compressed_size
        self._lost = 0
        self.error: LimitError | None = None
        """The limit that was met; None if none was."""
        self.interrupted = False
        """Whether an exception ended the writing."""
        self.file: TargetFile | None = None
        """The file; None if nothing was written."""

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        """Write ``chunk``, in which the ranges ``unknown`` are lost."""
        if self.file is None and sum(count for _, count in unknown) == len(chunk):
            self._lost += len(chunk)  # nothing worth a file so far
            return
        with self._noting():
            file = self.open()
            if len(chunk) >= HOLE and not chunk.strip(b"\0"):
                file.write_zeros(len(chunk))
            else:
                file.write(chunk)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep the limit that is met."""
        try:
            yield
        except LimitError as error:
            self.error = error
            raise

    def restart(self) -> None:
        """Begin the file again: the end of the stream showed that the bytes so far were wrong."""
        if self.file is not None:
            self.file.discard()
            self.file = None
        self._lost = 0

    def conclude(self, verdict: Verdict) -> None:
        """Create the file for content without a byte that is complete, or would be if its name were sure."""
        if self.file is None and self.error is None and verdict.holds_all:
            self.open().close()

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` bytes in the file."""
        with self._noting():
            self.open().skip(count)

    def refuses(self, member: ArchiveMember) -> bool:
        """Say whether ``member`` exceeds what may still be written, by its size and the limit of expansion.

        Raise `SourceError` if it surely takes more than the disk has room for.
        """
        compressed_size, size = member.compressed_size or 0, member.size or 0
        if self._compressed_size is not None:
            if member.is_complete:  # what is stored may be zeros, which take no room
                refuse_full(self._target.folder, min(compressed_size, size))
            compressed_size = max(compressed_size * self._target.limits.expansion_ratio, FREE_EXPANSION)
        return self.refuses_bytes(min(compressed_size, size))

    def refused(self, data: Data, start: int, end: int) -> Verdict | None:
        """Return an empty verdict if ``[start, end)`` is more than may be written: a limit does not cut files."""
        holes = sum(stop - begin for begin, stop in islice(data.holes(start, end), _MOST_HOLES))
        return Verdict() if self.refuses_bytes(max(0, end - start - holes)) else None

    def refuses_bytes(self, count: int) -> bool:
        """Say whether ``count`` bytes are more than may still be written."""
        with suppress(LimitError), self._noting():
            self._target.take(count)
            self._target.bytes -= count
            return False
        return True

    def reading(self, read: Callable[[], Verdict]) -> Verdict:
        """Return the verdict of ``read``, which ends early if a limit is met."""
        with suppress(LimitError), self._noting():
            return read()
        return Verdict()

    def open(self) -> TargetFile:
        """Return the file; create it if necessary."""
        if self.file is None:
            self.file = self._target.create(self._name, None, self._mtime, compressed_size=self._compressed_size)
            self.file.skip(self._lost)
        return self.file

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.interrupted = error is not None
        if self.file is None:
            return
        if isinstance(error, SourceError) or was_stopped(error):  # perhaps a full disk: leave room for the report
            self.file.discard()
        elif self.error is not None and not self.file.bytes:
            self.file.discard()
            self.file = None
        else:
            self.file.close()


def _stored_name(name: str, raw: bytes | None) -> str:
    """Return a stored name in readable form, cut to the length of any path."""
    text = name if raw is None else raw[:8192].decode("utf-8", "backslashreplace")
    return text if len(text) <= 4096 else text[:4096] + "…"


def _nanoseconds(seconds: float | None) -> int | None:
    """Return a time in nanoseconds within the range of systems; None if it is not a valid time."""
    if seconds is None or not math.isfinite(seconds):
        return None
    least = 0 if os.name == "nt" else -_MAX_SECONDS
    return int(max(least, min(seconds, _MAX_SECONDS)) * 1_000_000_000)
