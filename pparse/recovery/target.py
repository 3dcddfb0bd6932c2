"""The folder that recovered files are written to: never left, never overrun, nothing in it ever overwritten.

::

    with Target("out", source_size=1 << 20) as target:
        with target.create("docs/read me.txt", mtime=1_700_000_000) as file:
            file.write(b"text")
            file.skip(1 << 20)      # a hole: takes no room on the disk
        file.path, file.bytes, file.sha256, file.crc32

What is made are plain files and folders, with the rights the user's umask gives: no links, no devices, nothing setuid.
A file gets its name when it is whole; until then it is in a hidden folder (`pparse.recovery.workspace`), where a
journal lies, too, if the target is given a ``run``: the same run goes on where it was killed.

Every name goes through `safe_name`, is made below an open folder without following links, and must be new. A name that
is taken gets a number, ``a~2.txt``; taken are names that differ in case or composition only, too, so that the folder
can be copied to any file system, and a folder where a file of the same name is becomes ``a~2`` for all its members.

Of a name 8 bytes are kept (16 of a folder), of a folder that was renamed more; this is charged to the memory budget.
One thread at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from hashlib import blake2b

from pparse.budget import MemoryBudget
from pparse.errors import CancelledError, ClosedError, LimitError, OptionError, SourceError
from pparse.limits import GIB, MIB, Limits, format_size
from pparse.recovery.journal import Journal
from pparse.recovery.names import MAX_DEPTH, fold, names_root, numbered, plain, printable, safe_name
from pparse.recovery.places import places
from pparse.recovery.taken import HashTable
from pparse.recovery.target_file import MAX_EXPANSION, AtomicReport, Expansion, TargetFile, cannot_write
from pparse.recovery.workspace import WORK_NAME, Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final, Self

__all__ = ["AtomicReport", "Expansion", "Target", "TargetFile", "default_max_output"]

REPORT_NAME: Final = "RECOVERY.json"
MAX_ENTRIES: Final = 1_000_000
_REFUSED_NAMES: Final = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RENAMED_COST: Final = 300  # bytes: an entry of a dict, its key and its text


def default_max_output(source_size: int | None) -> int:
    """Return how many bytes may come out of ``source_size`` bytes unless the user says more."""
    return 16 * GIB if source_size is None else min(16 * GIB, 200 * source_size + 64 * MIB)


class Target:
    """A folder to write to; made if it is missing.

    ``exist_ok``: it need not be empty (what is there stays, and new files get other names). ``max_bytes``: what all
    files may hold together, without holes; by default what `default_max_output` gives for ``source_size``;
    ``max_hole_bytes``: what their holes may come to.
    ``max_entries`` counts files and folders, ``max_depth`` the parts of a path (deeper folders are left out of it).
    ``reserved`` are names at the root that no member gets. ``max_expansion``: what `Expansion` allows a member.
    ``run``: what is being done, as plain data, ``of`` in it to what, for people. Then there is a ``journal``; if the
    folder has one of the very same run, that was stopped, this one goes on with it.

    ``bytes``, ``hole_bytes``, ``entries`` say what was made. As a context manager it ends as `close` does; if it is
    stopped by the user, or by a full disk, with what is needed to go on. Raises `OptionError` if the folder is not
    empty or is none, or another run is unfinished there; `SourceError` if it cannot be made.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        source_size: int | None = None,
        max_bytes: int | None = None,
        max_entries: int = MAX_ENTRIES,
        max_depth: int = MAX_DEPTH,
        budget: MemoryBudget | None = None,
        exist_ok: bool = False,
        reserved: tuple[str, ...] = (REPORT_NAME,),
        max_expansion: int = MAX_EXPANSION,
        max_hole_bytes: int = Limits.DEFAULTS["hole_bytes"],
        run: Mapping[str, Any] | None = None,
    ) -> None:
        self.max_expansion = max_expansion
        self.folder = os.fspath(folder)
        self.max_bytes = default_max_output(source_size) if max_bytes is None else max_bytes
        self.max_entries = max_entries
        self.max_depth = max_depth
        self.max_hole_bytes = max_hole_bytes
        self.bytes = 0
        self.hole_bytes = 0
        self.entries = 0
        self.closed = True
        self.journal: Journal | None = None
        self._budget = budget or MemoryBudget()
        self._salt = os.urandom(16)  # names cannot be chosen so that the table becomes slow
        self._taken = HashTable(self._budget)
        self._renamed: dict[int, str] = {}  # folders that are not there under their own name
        self._renamed_charge = self._budget.charge(0, "the table of renamed folders")
        self.places = places()
        self._reserved = reserved
        self._root: Any = self._open()
        self._work = Workspace(self.places, self._root)
        try:
            self._begin(exist_ok, run)
            self._withdraw_pending()
        except BaseException as error:
            self._let_go(keep=True)
            if isinstance(error, OSError) and not isinstance(error, SourceError):
                raise cannot_write(error, self.folder) from error
            raise
        self.closed = False
        for name in (WORK_NAME, *reserved):
            self._taken.add(self._key("", fold(name)))

    def _open(self) -> Any:
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise OptionError(f"the target {self.folder} is no folder")
        try:
            os.makedirs(self.folder, exist_ok=True)
            return self.places.root(self.folder)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            raise cannot_write(error, self.folder) from error

    # -- a run that goes on --------------------------------------------------------------------------------------------

    def _begin(self, exist_ok: bool, run: Mapping[str, Any] | None) -> None:
        """Go on with the journal of the same run, or see that the folder is free and begin one."""
        if run is not None:
            self.journal = self._read_journal(make=False)
        if run is not None and self.journal is not None and self._goes_on(self.journal, run):
            self._work.sweep()
            return
        if not exist_ok and not self.places.is_empty(self._root, "" if run is None else WORK_NAME):
            raise OptionError(f"the target {self.folder} is not empty; name another folder, or allow it (--force)")
        if run is None:
            return
        journal = self.journal or self._read_journal(make=True)
        if journal is None or journal.run is not None:
            raise OptionError("another process is writing to this folder now")
        self.journal = journal
        self._work.sweep()
        journal.begin(dict(run))

    def _read_journal(self, *, make: bool) -> Journal | None:
        descriptor = self._work.journal(make=make)
        if descriptor is None:
            return None
        try:
            return Journal(descriptor, self._budget, lambda path: self._key("", path, "made"))
        except BaseException:
            os.close(descriptor)
            raise

    def _goes_on(self, journal: Journal, run: Mapping[str, Any]) -> bool:
        """Say whether ``journal`` is that of ``run``. Raises `OptionError` if it is that of another."""
        found = journal.run
        if found is None:
            return False  # killed before its first line was whole
        if found == run:
            return True
        command, of = (printable(str(found.get(key, "?"))) for key in ("command", "of"))
        raise OptionError(
            f"{self.folder} holds what an unfinished 'pparse {command}' of {of} has written; the very same command "
            "(of the same, unchanged file, with the same options) goes on with it; for anything else name another "
            "folder, or remove that one"
        )

    def _withdraw_pending(self) -> None:
        if self.journal is not None and self.journal.pending is not None:
            self.withdraw(self.journal.pending, pending=True)

    def withdraw(self, offset: int, *, pending: bool = False) -> None:
        """Remove the files of the unit that begins at ``offset`` of the journal, as far as they are still the same.

        ``pending``: the unit was not done; nobody has had a reason to change its files, so a changed one is not ours.
        """
        assert self.journal is not None  # noqa: S101 -- its caller has it
        try:
            for at, _, entry in self.journal.entries(offset):
                if (entry[0] == "unit" and at != offset) or entry[0] in ("done", "entered"):
                    break
                if entry[0] == "name":
                    known = entry[2][: None if pending else 1]
                    self._withdraw(entry[1], lambda found, known=known: _known(found)[: len(known)] == known)  # type: ignore[misc]
                elif entry[0] == "claim" and pending:
                    self._withdraw(entry[1], lambda found: found.st_size == 0)
        except (TypeError, IndexError, AttributeError):
            return  # no line of ours
        except OSError as error:
            raise cannot_write(error, self.folder) from error

    def withdraw_all(self) -> None:
        """Remove all files that this run has written, as far as they are still the same, and its folders if empty then.

        Without a journal there are none that are known.
        """
        if self.journal is None:
            return
        try:
            for path, known in self.journal.names():
                self._withdraw(path, lambda found, known=known: _known(found)[: len(known)] == known)  # type: ignore[misc]
            for path in sorted(self.journal.folders(), key=len, reverse=True):
                place, name = self._reach(path)
                if place is not None:
                    with suppress(OSError):  # somebody else's files are in it
                        self.places.remove_folder(place, name)
                    self.places.leave(place)
        except OSError as error:
            raise cannot_write(error, self.folder) from error

    def _withdraw(self, path: str, is_ours: Callable[[os.stat_result], bool]) -> None:
        place, name = self._reach(path)
        if place is None:
            return
        try:
            found = self.places.look(place, name)
            if found is not None and stat.S_ISREG(found.st_mode) and is_ours(found):
                self.places.unlink(place, name)
        finally:
            self.places.leave(place)

    def _reach(self, path: str) -> tuple[Any, str]:
        """Return the place that ``path``, as told by the journal, is in, and its name there; None if it is none."""
        *folders, name = path.split("/")
        if not {"", ".", ".."}.isdisjoint((*folders, name)) or "\0" in path:
            return None, name
        place: Any = self.places.again(self._root)
        for folder in folders:
            try:
                below = self.places.enter(place, folder)
            except OSError:
                below = None
            finally:
                self.places.leave(place)
            if below is None:
                return None, name
            place = below
        return place, name

    def is_intact(self, path: str, known: Sequence[object]) -> bool:
        """Say whether the file ``path`` is the one that the journal knows: its inode, size and time."""
        place, name = self._reach(path)
        if place is None:
            return False
        try:
            found = self.places.look(place, name)
        except OSError:
            return False
        finally:
            self.places.leave(place)
        return found is not None and stat.S_ISREG(found.st_mode) and _known(found) == list(known)

    def adopt(self, parts: tuple[str, ...], path: str | None, output: int, skipped: int) -> None:
        """Take in a file that the journal knows, as if it had been written now."""
        place, _ = self._walk(parts[:-1])
        self.places.leave(place)
        if path is None:
            return
        self._count_entry()
        self.take(output)
        self.take_hole(skipped)
        self.entries += 1
        folder, _, name = path.rpartition("/")
        self._taken.add(self._key(f"{folder}/" if folder else "", fold(name)))

    # -- what is made --------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        raw_name: bytes | None = None,
        mtime: float | None = None,
        *,
        compressed_size: int | None = None,
    ) -> TargetFile:
        """Make a new, empty file for the member stored as ``name``.

        ``raw_name``: the bytes ``name`` was decoded from. ``mtime``: seconds since 1970, set when the file is closed.
        ``compressed_size``: how many compressed bytes the content comes from, if its own stream is to be held to
        `Expansion`. Raises `LimitError`, and `SourceError` if the disk refuses.
        """
        self._check()
        parts = safe_name(name, raw_name, depth=self.max_depth)
        place, folder = self._walk(parts[:-1])
        try:
            self._count_entry()
            actual, _ = self._claim(place, folder, parts[-1], self._see_free)
            try:
                work = self._work.create()
            except OSError as error:
                self._taken.discard(self._key(folder, fold(actual)))
                raise cannot_write(error, folder + actual) from error
        except BaseException:
            self.places.leave(place)
            raise
        self.entries += 1
        expansion = None if compressed_size is None else Expansion(compressed_size, self.max_expansion)
        return TargetFile(self, work, place, parts, folder + actual, (name, raw_name), mtime, expansion)

    def _see_free(self, place: Any, name: str) -> None:
        if self.places.look(place, name) is not None:
            raise FileExistsError(errno.EEXIST, "is there", name)

    def publish(self, file: TargetFile, work: Any, temporary: str, place: Any, found: os.stat_result) -> None:
        """Give a file that is whole its name, or the next one that is free. Raises OSError."""
        folder, _, actual = file.path.rpartition("/")
        folder = f"{folder}/" if folder else ""

        def take(place: Any, name: str) -> None:
            path = folder + name
            claiming: Callable[[], object] = int  # nothing to be noted
            if self.journal is not None:
                self.journal.put("name", path, _known(found), flush=True)
                claiming = lambda: self._note("claim", path)  # noqa: E731
            self.places.move(work, temporary, place, name, claiming)

        try:
            take(place, actual)
        except OSError as error:
            base = file.parts[-1]
            if error.errno in _REFUSED_NAMES and base != plain(base):
                self._taken.discard(self._key(folder, fold(actual)))
                base = plain(base)
            elif not isinstance(error, FileExistsError):
                raise
            actual, _ = self._claim(place, folder, base, take)
            file.named(folder + actual)
        if self.journal is not None:
            self.journal.put("file", file.parts, file.path, _known(found), file.output, file.skipped)

    def publish_own(self, work: Any, temporary: str, name: str) -> None:
        """Give a file of ours its name at the root, whatever has that. Raises OSError."""
        self.places.rename(work, temporary, self._root, name)

    def forget(self, file: TargetFile) -> None:
        """Free what a file that was discarded had."""
        self.bytes -= file.output
        self.hole_bytes -= file.skipped
        self.entries -= 1
        if not self.closed:
            folder, _, name = file.path.rpartition("/")
            self._taken.discard(self._key(f"{folder}/" if folder else "", fold(name)))
            if self.journal is not None:
                self.journal.put("file", file.parts, None, [], 0, 0)

    def _note(self, *entry: object) -> None:
        if self.journal is not None:
            self.journal.put(*entry, flush=True)

    def make_folder(self, name: str, raw_name: bytes | None = None) -> str:
        """Make the folder stored as ``name``, unless it is there; return its path (``""``: the target itself)."""
        self._check()
        if names_root(name):
            return ""
        place, folder = self._walk(safe_name(name, raw_name, depth=self.max_depth))
        self.places.leave(place)
        return folder.rstrip("/")

    def atomic(self, name: str) -> AtomicReport:
        """Return a file at the root that appears under ``name``, one of those reserved, when it is whole."""
        self._check()
        if name not in self._reserved:
            raise ValueError(f"a member might have that name: {name!r}")
        try:
            return AtomicReport(self, *self._work.create(), name)
        except OSError as error:
            raise cannot_write(error, name) from error

    def close(self, *, keep: bool = False) -> None:
        """Let go of the folder; harmless when repeated. ``keep``: the same run may go on."""
        if not self.closed:
            self.closed = True
            self._taken.close()
            self._renamed_charge.release()
            self._let_go(keep=keep)

    def _let_go(self, *, keep: bool) -> None:
        journal, self.journal = self.journal, None
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
            self.places.leave(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(keep=was_stopped(error) or is_disk_full(error))

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close(keep=True)  # nobody said that it is done

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the target is closed", source=self.folder)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _key(self, folder: str, name: str, kind: str = "any") -> int:
        text = f"{kind}\0{folder}\0{name}".encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._salt).digest(), "little")

    def _walk(self, parts: tuple[str, ...]) -> tuple[Any, str]:
        """Enter the folders ``parts``, making what is missing; return the place and its path, with a slash at the end.

        Every time from the root, since what was a folder may be a link by now.
        """
        place: Any = self.places.again(self._root)
        folder = ""
        for part in parts:
            try:
                below, name = self._enter(place, folder, part)
            finally:
                self.places.leave(place)
            place, folder = below, f"{folder}{name}/"
        return place, folder

    def _enter(self, place: Any, folder: str, part: str) -> tuple[Any, str]:
        """Enter the folder ``part``, or the one that stands for it, or make it; return it and its name."""
        exact = self._key(folder, part, "folder")
        name = self._renamed.get(exact, part)
        ours = exact in self._taken
        # A name that somebody else made is entered, too: a folder that was there before. One that the run made that
        # this one goes on with is made again, so that it counts.
        if ours or (self._key(folder, fold(part)) not in self._taken and not self._was_made(folder + part)):
            try:
                below = self.places.enter(place, name)
            except (FileNotFoundError, NotADirectoryError):
                pass  # not yet there; or a file, or somebody put a link there
            except OSError as error:
                if error.errno not in _REFUSED_NAMES:
                    raise cannot_write(error, folder + name) from error
            else:
                if not ours:
                    self._remember(exact, folder, part)
                return below, name
        self._count_entry()
        self._taken.discard(exact)
        name, _ = self._claim(place, folder, part, lambda place, name: self._make(place, folder, name), is_folder=True)
        self.entries += 1
        self._taken.add(exact)
        if name != part:
            self._renamed_charge.resize(self._renamed_charge.amount + _RENAMED_COST)
            self._renamed[exact] = name
        try:
            return self.places.enter(place, name), name
        except OSError as error:
            raise cannot_write(error, folder + name) from error

    def _was_made(self, path: str) -> bool:
        return self.journal is not None and self.journal.made_folder(path)

    def _make(self, place: Any, folder: str, name: str) -> None:
        """Make a folder, unless the run that this one goes on with has made it."""
        was_made = self._was_made(folder + name)
        if not was_made:
            self._note("folder", folder + name)
        try:
            self.places.make_folder(place, name)
        except FileExistsError:
            if not was_made:
                raise
            try:
                below: Any = self.places.enter(place, name)
            except NotADirectoryError as error:
                raise FileExistsError(errno.EEXIST, "is there", name) from error
            self.places.leave(below)

    def _remember(self, exact: int, folder: str, name: str) -> None:
        self._taken.add(exact)
        self._taken.add(self._key(folder, fold(name)))

    def _claim(
        self, place: Any, folder: str, wanted: str, make: Callable[[Any, str], Any], *, is_folder: bool = False
    ) -> tuple[str, Any]:
        """Make something under a name that nothing has; return the name and what ``make`` gave."""
        base = name = wanted
        while True:
            key = self._key(folder, fold(name))
            if key in self._taken:
                name = self._next_free(folder, base, is_folder)
                continue
            self._taken.add(key)  # first: it may be refused
            try:
                return name, make(place, name)
            except FileExistsError:
                continue  # by somebody else; so it is taken
            except OSError as error:
                self._taken.discard(key)
                if error.errno not in _REFUSED_NAMES or base == plain(base):
                    raise cannot_write(error, folder + name) from error
                base = name = plain(base)

    def _next_free(self, folder: str, base: str, is_folder: bool) -> str:
        """Return ``base`` with a number that is free though the one below it is not.

        By doubling and halving: a million members of one name cost a million times twenty looks, not their square.
        """

        def is_taken(number: int) -> bool:
            return self._key(folder, fold(numbered(base, number, folder=is_folder))) in self._taken

        low, high = 1, 2
        while is_taken(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_taken(middle) else (low, middle)
        return numbered(base, high, folder=is_folder)

    # -- limits --------------------------------------------------------------------------------------------------------

    def _count_entry(self) -> None:
        if self.entries >= self.max_entries:
            raise LimitError(
                f"the output has {self.entries:,} files and folders",
                option=f"--limit extracted_entries={2 * self.max_entries}",
                wanted=self.entries + 1,
                got=self.max_entries,
            )

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be made: the limit of entries is met."""
        return self.entries >= self.max_entries

    def take(self, count: int) -> None:
        """Count ``count`` more bytes of output. Raises `LimitError`."""
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
        """Count ``count`` more bytes of holes. Raises `LimitError`."""
        if count > self.max_hole_bytes - self.hole_bytes:
            wanted = self.hole_bytes + count
            raise LimitError(
                f"the holes of files would come to {format_size(wanted)}, more than the "
                f"{format_size(self.max_hole_bytes)} allowed",
                option=f"--limit hole_bytes={max(wanted, 2 * self.max_hole_bytes)}",
                wanted=wanted,
                got=self.max_hole_bytes,
            )
        self.hole_bytes += count


def was_stopped(error: BaseException | None) -> bool:
    """Say whether an error means that the user wants to stop, and may want to go on."""
    return isinstance(error, CancelledError) or (error is not None and not isinstance(error, Exception))


def is_disk_full(error: BaseException | None) -> bool:
    """Say whether an error is that of a disk, or of a share of it, that has no more room."""
    return isinstance(error, SourceError) and error.errno in _FULL


def _known(found: os.stat_result) -> list[int]:
    return [found.st_ino, found.st_size, found.st_mtime_ns]
