"""The folder that recovered files are written to. It is never left or overfilled, and nothing in it is overwritten.

::

    with Target("out", source_size=1 << 20) as target:
        with target.create("docs/read me.txt", mtime=1_700_000_000) as file:
            file.write(b"text")
            file.skip(1 << 20)      # a hole: takes no room on the disk
        file.path, file.bytes, file.sha256, file.crc32

It creates plain files and folders with the permissions of the user's umask: no links, no devices, no setuid bits. A
file gets its name when it is complete; until then it is in a hidden folder (`pparse.recovery.folder_writer`). If the
target is given a ``run``, a journal is kept there, too, and the same run continues where it was killed.

Every name goes through `safe_name`, is created below an open folder without following links, and must be new. A name
that is taken gets a number: ``a~2.txt``. Names that differ only in case or composition also count as taken, so that the
folder can be copied to any file system. A folder with the name of a file becomes ``a~2`` for all its members.

Each name takes 8 bytes of memory (16 for a folder), a renamed folder more; all is charged to the memory budget. Use it
from one thread at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from hashlib import blake2b

from pparse.budget import MemoryBudget
from pparse.errors import ClosedError, LimitError, OptionError, refused, system_error, told
from pparse.limits import GIB, MIB, Limits, format_size
from pparse.recovery.folder_writer import WORK_NAME, Workspace, places
from pparse.recovery.journal import HashTable, Journal, is_disk_full, was_stopped
from pparse.recovery.names import MAX_DEPTH, fold, names_root, numbered, plain, printable, safe_name
from pparse.recovery.target_file import AtomicReport, Expansion, TargetFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final, Self

__all__ = ["AtomicReport", "Expansion", "Target", "TargetFile", "default_max_output"]

REPORT_NAME: Final = "RECOVERY.json"
_SPARE: Final = 64 * MIB
_MOST: Final = 16 * GIB
_REFUSED_NAMES: Final = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_RENAMED_COST: Final = 300  # bytes: an entry of a dict, its key and its text


def default_max_output(source_size: int | None) -> int:
    """Return the default limit of output for a source of ``source_size`` bytes, in bytes: a copy of it always fits."""
    size = source_size or 0
    return _MOST if source_size is None else max(size + _SPARE, min(_MOST, 200 * size + _SPARE))


class Target:
    """A folder to write to; created if it is missing.

    With ``exist_ok`` it need not be empty: existing files stay, and new files get other names. ``max_bytes`` limits the
    bytes of all files together, without holes (default: `default_max_output` for ``source_size``), ``limits`` those of
    their holes (``hole_bytes``), the files and folders (``extracted_entries``), and what `Expansion` allows a member
    (``expansion_ratio``); ``max_depth`` the parts of a path (deeper folders are left out of it). ``reserved`` are names
    at the root that members cannot have. ``run`` describes what is done, as plain data; its item ``of`` names the
    source for people. With a ``run`` there is a ``journal``, and if the folder holds the journal of the same run,
    unfinished, that is continued.

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
        reserved: tuple[str, ...] = (REPORT_NAME,),
        run: Mapping[str, Any] | None = None,
    ) -> None:
        limits = limits or Limits()
        self.max_expansion = limits.expansion_ratio
        self.folder = os.fspath(folder)
        """Path of the folder."""
        self.max_bytes = default_max_output(source_size) if max_bytes is None else max_bytes
        self.max_entries = limits.extracted_entries
        self.max_depth = max_depth
        self.max_hole_bytes = limits.hole_bytes
        self.bytes = 0
        """Bytes written so far, without holes."""
        self.hole_bytes = 0
        """Bytes of holes so far."""
        self.entries = 0
        """Number of files and folders created."""
        self.closed = True
        self.journal: Journal | None = None
        self._budget = budget or MemoryBudget()
        self._salt = os.urandom(16)  # so that nobody can choose names that make the table slow
        self._taken = HashTable(self._budget)
        self._renamed: dict[int, str] = {}  # folders created under another name than their own
        self._renamed_charge = self._budget.charge(0, "the table of renamed folders")
        self.places = places()
        self._reserved = reserved
        self._root: Any = self._open()
        self._work = Workspace(self.places, self._root)
        try:
            with refused("cannot write", self.folder):
                self._begin(exist_ok, run)
        except BaseException:
            self._let_go(keep=True)
            raise
        self.closed = False
        for name in (WORK_NAME, *reserved):
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

    def _begin(self, exist_ok: bool, run: Mapping[str, Any] | None) -> None:
        """Continue the journal of the same run; or check that the folder is free, and begin one."""
        if run is not None:
            self.journal = self._read_journal(make=False)
        if run is not None and self.journal is not None and self._goes_on(self.journal, run):
            self._work.sweep()
            if self.journal.pending is not None:
                self.withdraw(self.journal.pending, pending=True)
            return
        if not exist_ok and not self.places.is_empty(self._root, "" if run is None else WORK_NAME):
            raise OptionError(
                f"the target {self.folder} is not empty; name another folder, or allow it with "
                + told("--force", "exist_ok=True")
            )
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
        assert self.journal is not None  # noqa: S101 -- its caller has it
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
        """Remove all unchanged files that this run has written, and its folders if they are empty then.

        Without a journal no files are known, and none are removed.
        """
        if self.journal is None:
            return
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
        place, name = self._reach(path)
        found = None if place is None else self.places.look(place, name)
        if found is None or not stat.S_ISREG(found.st_mode):
            return
        if not found.st_size if known is None else _known(found)[: len(known)] == known:
            self.places.unlink(place, name)

    def _reach(self, path: str) -> tuple[Any, str]:
        """Return the place of ``path``, a path of the journal, and its name there; None if it does not exist."""
        *folders, name = path.split("/")
        if not {"", ".", ".."}.isdisjoint((*folders, name)) or "\0" in path:
            return None, name
        place: Any = self._root
        with suppress(OSError):
            for folder in folders:
                place = self.places.enter(place, folder)
            return place, name
        return None, name

    def is_intact(self, path: str, known: Sequence[object]) -> bool:
        """Say whether the file ``path`` is the one that the journal knows: its inode, size and time."""
        place, name = self._reach(path)
        found = None
        with suppress(OSError):
            found = None if place is None else self.places.look(place, name)
        return found is not None and stat.S_ISREG(found.st_mode) and _known(found) == list(known)

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
        self,
        name: str,
        raw_name: bytes | None = None,
        mtime: float | None = None,
        *,
        compressed_size: int | None = None,
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
        actual = self._claim(place, folder, parts[-1], self._see_free)
        try:
            work = self._work.create()
        except OSError as error:
            self._taken.discard(self._key_of(folder + actual))
            raise system_error(error, "cannot write", folder + actual) from error
        self.entries += 1
        expansion = None if compressed_size is None else Expansion(compressed_size, self.max_expansion)
        return TargetFile(self, work, place, parts, folder + actual, (name, raw_name), mtime, expansion)

    def _see_free(self, place: Any, name: str) -> None:
        if self.places.look(place, name) is not None:
            raise FileExistsError(errno.EEXIST, "is there", name)

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
        if self.journal is not None:
            self.journal.put("file", file.parts, file.path, _known(found), file.output, file.skipped)

    def publish_own(self, work: Any, temporary: str, name: str) -> None:
        """Give our own file its name at the root, replacing what has that name. Raise OSError."""
        self.places.rename(work, temporary, self._root, name)

    def forget(self, file: TargetFile) -> None:
        """Release the name and the bytes of a discarded file."""
        self.bytes -= file.output
        self.hole_bytes -= file.skipped
        self.entries -= 1
        if not self.closed:
            self._taken.discard(self._key_of(file.path))
            if self.journal is not None:
                self.journal.put("file", file.parts, None, [], 0, 0)

    def _note(self, *entry: object) -> None:
        """Add a line that the next step relies on."""
        if self.journal is not None:
            self.journal.put(*entry, flush=True)

    def make_folder(self, name: str, raw_name: bytes | None = None) -> str:
        """Create the folder stored as ``name``, unless it exists; return its path (``""`` for the target itself)."""
        self._check()
        if names_root(name):
            return ""
        _, folder = self._walk(safe_name(name, raw_name, depth=self.max_depth))
        return folder.rstrip("/")

    def atomic(self, name: str) -> AtomicReport:
        """Return a file at the root that gets ``name``, a reserved name, when it is complete."""
        self._check()
        if name not in self._reserved:
            raise ValueError(f"a member may have that name: {name!r}")
        with refused("cannot write", name):
            return AtomicReport(self, *self._work.create(), name)

    def close(self, *, keep: bool = False) -> None:
        """Release the folder; may be called again. ``keep`` what the same run needs to continue."""
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
        return self.journal is not None and self.journal.made_folder(path)

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
        """Whether the limit of entries is met, so that nothing more can be created."""
        return self.entries >= self.max_entries

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


def _known(found: os.stat_result) -> list[int]:
    return [found.st_ino, found.st_size, found.st_mtime_ns]
