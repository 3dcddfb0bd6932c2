"""The folder that recovered files are written to: never left, never overrun, nothing in it ever overwritten.

::

    with Target("out", source_size=1 << 20) as target:
        with target.create("docs/read me.txt", mtime=1_700_000_000) as file:
            file.write(b"text")
            file.skip(1 << 20)      # a hole: takes no room on the disk
        file.path, file.bytes, file.sha256, file.crc32

What is made are plain files and folders, with the rights the user's umask gives: no links, no devices, nothing setuid.
Every name goes through `safe_name`, is made below an open folder without following links, and must be new. A name that
is taken gets a number, ``a~2.txt``; taken are names that differ in case or composition only, too, so that the folder
can be copied to any file system, and a folder where a file of the same name is becomes ``a~2`` for all its members.

Of a name 8 bytes are kept (16 of a folder), of a folder that was renamed more; this is charged to the memory budget.
One thread at a time.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from contextlib import suppress
from hashlib import blake2b, sha256

from pparse.budget import MemoryBudget
from pparse.errors import ClosedError, LimitError, OptionError, SourceError
from pparse.limits import GIB, MIB, format_size
from pparse.recovery.names import MAX_DEPTH, changed, fold, names_root, numbered, plain, safe_name
from pparse.recovery.places import places
from pparse.recovery.taken import HashTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Self

    from pparse.data import Buffer

REPORT_NAME: Final = "RECOVERY.json"
MAX_ENTRIES: Final = 1_000_000
MAX_EXPANSION: Final = 1_100  # deflate reaches 1,032
FREE_EXPANSION: Final = 64 * MIB  # what any stream may yield: a few bytes of bz2 or zstd are a megabyte of zeros
_ZEROS: Final = bytes(256 << 10)
_MAX_SYSTEM_CALL: Final = 1 << 30
_MAX_SECONDS: Final = 1 << 33  # the year 2242: within what counts nanoseconds in 64 bits
_REFUSED_NAMES: Final = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_RENAMED_COST: Final = 300  # bytes: an entry of a dict, its key and its text


def default_max_output(source_size: int | None) -> int:
    """Return how many bytes may come out of ``source_size`` bytes unless the user says more."""
    return 16 * GIB if source_size is None else min(16 * GIB, 200 * source_size + 64 * MIB)


class Expansion:
    """Counts what comes out of one compressed stream of ``packed`` bytes, and stops a bomb."""

    __slots__ = ("_limit", "_packed", "_ratio", "bytes")

    def __init__(self, packed: int, ratio: int = MAX_EXPANSION) -> None:
        self._packed = max(packed, 1)
        self._ratio = ratio
        self._limit = max(self._packed * ratio, FREE_EXPANSION)
        self.bytes = 0

    def add(self, count: int) -> None:
        """Count ``count`` more bytes that came out. Raises `LimitError` if that is more than the ratio allows."""
        if count > self._limit - self.bytes:
            wanted = self.bytes + count
            ratio = -(-wanted // self._packed)
            raise LimitError(
                f"{format_size(self._packed)} of a compressed stream give more than {self._ratio} times as much",
                option=f"--limit expansion_ratio={ratio}",
                wanted=wanted,
                got=self._limit,
            )
        self.bytes += count


class Target:
    """A folder to write to; made if it is missing.

    ``exist_ok``: it need not be empty (what is there stays, and new files get other names). ``max_bytes``: what all
    files may hold together, holes included; by default what `default_max_output` gives for ``source_size``.
    ``max_entries`` counts files and folders, ``max_depth`` the parts of a path (deeper folders are left out of it).
    ``reserved`` are names at the root that no member gets. ``max_expansion``: what `Expansion` allows a member.

    ``bytes``, ``entries`` say what was made. Raises `OptionError` if the folder is not empty or is none, `SourceError`
    if it cannot be made.
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
    ) -> None:
        self.max_expansion = max_expansion
        self.folder = os.fspath(folder)
        self.max_bytes = default_max_output(source_size) if max_bytes is None else max_bytes
        self.max_entries = max_entries
        self.max_depth = max_depth
        self.bytes = 0
        self.entries = 0
        self.closed = True
        self._budget = budget or MemoryBudget()
        self._salt = os.urandom(16)  # names cannot be chosen so that the table becomes slow
        self._taken = HashTable(self._budget)
        self._renamed: dict[int, str] = {}  # folders that are not there under their own name
        self._renamed_charge = self._budget.charge(0, "the table of renamed folders")
        self._places = places()
        self._reserved = reserved
        self._root = self._open(exist_ok)
        self.closed = False
        for name in reserved:
            self._taken.add(self._key("", fold(name)))

    def _open(self, exist_ok: bool) -> Any:
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            raise OptionError(f"the target {self.folder} is no folder")
        try:
            os.makedirs(self.folder, exist_ok=True)
            root: Any = self._places.root(self.folder)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte
            raise _cannot_write(error, self.folder) from error
        try:
            usable = exist_ok or self._places.is_empty(root)
        except OSError as error:
            self._places.leave(root)
            raise _cannot_write(error, self.folder) from error
        if not usable:
            self._places.leave(root)
            raise OptionError(f"the target {self.folder} is not empty; name another folder, or allow it (--force)")
        return root

    # -- what is made --------------------------------------------------------------------------------------------------

    def create(
        self, name: str, raw_name: bytes | None = None, mtime: float | None = None, *, packed: int | None = None
    ) -> TargetFile:
        """Make a new, empty file for the member stored as ``name``.

        ``raw_name``: the bytes ``name`` was decoded from. ``mtime``: seconds since 1970, set when the file is closed.
        ``packed``: how many compressed bytes the content comes from, if its own stream is to be held to `Expansion`.
        Raises `LimitError`, and `SourceError` if the disk refuses.
        """
        self._check()
        parts = safe_name(name, raw_name, depth=self.max_depth)
        place, folder = self._walk(parts[:-1])
        try:
            self._count_entry()
            actual, descriptor = self._claim(place, folder, parts[-1], self._places.create)
        except BaseException:
            self._places.leave(place)
            raise
        self.entries += 1
        path = folder + actual
        stored = _stored(name, raw_name) if changed(name, path.split("/")) else None
        return TargetFile(
            self,
            place,
            actual,
            descriptor,
            path,
            stored,
            mtime,
            None if packed is None else Expansion(packed, self.max_expansion),
        )

    def make_folder(self, name: str, raw_name: bytes | None = None) -> str:
        """Make the folder stored as ``name``, unless it is there; return its path (``""``: the target itself)."""
        self._check()
        if names_root(name):
            return ""
        place, folder = self._walk(safe_name(name, raw_name, depth=self.max_depth))
        self._places.leave(place)
        return folder.rstrip("/")

    def atomic(self, name: str) -> AtomicReport:
        """Return a file at the root that appears under ``name``, one of those reserved, when it is whole."""
        self._check()
        if name not in self._reserved:
            raise ValueError(f"a member might have that name: {name!r}")
        place: Any = self._places.again(self._root)
        try:
            actual, descriptor = self._claim(place, "", f".{name}.partial", self._places.create)
        except BaseException:
            self._places.leave(place)
            raise
        return AtomicReport(self, place, actual, descriptor, name)

    def close(self) -> None:
        """Let go of the folder; harmless when repeated."""
        if not self.closed:
            self.closed = True
            self._taken.close()
            self._renamed_charge.release()
            self._places.leave(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close()

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
        place: Any = self._places.again(self._root)
        folder = ""
        for part in parts:
            try:
                below, name = self._enter(place, folder, part)
            finally:
                self._places.leave(place)
            place, folder = below, f"{folder}{name}/"
        return place, folder

    def _enter(self, place: Any, folder: str, part: str) -> tuple[Any, str]:
        """Enter the folder ``part``, or the one that stands for it, or make it; return it and its name."""
        exact = self._key(folder, part, "folder")
        name = self._renamed.get(exact, part)
        ours = exact in self._taken
        # A name that somebody else made is entered, too: a folder that was there before.
        if ours or self._key(folder, fold(part)) not in self._taken:
            try:
                below = self._places.enter(place, name)
            except (FileNotFoundError, NotADirectoryError):
                pass  # not yet there; or a file, or somebody put a link there
            except OSError as error:
                if error.errno not in _REFUSED_NAMES:
                    raise _cannot_write(error, folder + name) from error
            else:
                if not ours:
                    self._remember(exact, folder, part)
                return below, name
        self._count_entry()
        self._taken.discard(exact)
        name, _ = self._claim(place, folder, part, self._places.make_folder)
        self.entries += 1
        self._taken.add(exact)
        if name != part:
            self._renamed_charge.resize(self._renamed_charge.amount + _RENAMED_COST)
            self._renamed[exact] = name
        try:
            return self._places.enter(place, name), name
        except OSError as error:
            raise _cannot_write(error, folder + name) from error

    def _remember(self, exact: int, folder: str, name: str) -> None:
        self._taken.add(exact)
        self._taken.add(self._key(folder, fold(name)))

    def _claim(self, place: Any, folder: str, wanted: str, make: Callable[[Any, str], Any]) -> tuple[str, Any]:
        """Make something under a name that nothing has; return the name and what ``make`` gave."""
        is_folder = make == self._places.make_folder
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
                    raise _cannot_write(error, folder + name) from error
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
                option=f"--limit extracted_entries={self.entries + 1}",
                wanted=self.entries + 1,
                got=self.max_entries,
            )

    def _take(self, count: int) -> None:
        if count > self.max_bytes - self.bytes:
            wanted = self.bytes + count
            raise LimitError(
                f"the output would take {format_size(wanted)}, more than the {format_size(self.max_bytes)} allowed",
                option=f"--max-output {-(-max(wanted, 4 * self.max_bytes) // MIB)}MiB",
                wanted=wanted,
                got=self.max_bytes,
            )
        self.bytes += count


class _Open:
    """A file that is being written, and the place it is in."""

    __slots__ = ("_descriptor", "_name", "_place", "_places", "closed", "path")

    def __init__(self, target: Target, place: Any, name: str, descriptor: int, path: str) -> None:
        self._places = target._places
        self._place = place
        self._name = name
        self._descriptor = descriptor
        self.path = path
        self.closed = False

    def _write_all(self, data: Buffer, wrote: Callable[[memoryview], None]) -> None:
        """Write ``data``, and tell ``wrote`` of each piece that is on its way to the disk."""
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        try:
            while view:
                done = os.write(self._descriptor, view[:_MAX_SYSTEM_CALL])
                wrote(view[:done])
                view = view[done:]
        except OSError as error:
            raise _cannot_write(error, self.path) from error

    def _finish(self, changed: int | None) -> None:
        self.closed = True
        try:
            self._places.finish(self._place, self._name, self._descriptor, changed)
        finally:
            self._places.leave(self._place)

    def _remove(self) -> None:
        self.closed = True
        try:
            self._places.remove(self._place, self._name, self._descriptor)
        except OSError as error:
            if error.errno != errno.ENOENT:  # somebody else was faster
                raise _cannot_write(error, self.path) from error
        finally:
            self._places.leave(self._place)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            if not self.closed:
                self._finish(None)


class TargetFile(_Open):
    """A new file: write at its end, leave holes, close it or discard it.

    ``path`` below the target, with slashes; ``raw_name`` what was stored, for people, None if that is the same;
    ``bytes``, ``sha256`` and ``crc32`` of the content, holes as zeros; ``hole_bytes`` how much of it is holes.

    As a context manager it is closed at the end, and discarded if an error comes through: who wants to keep what was
    written until then closes it.
    """

    __slots__ = ("_expansion", "_sha256", "_target", "bytes", "crc32", "hole_bytes", "mtime", "raw_name")

    def __init__(
        self,
        target: Target,
        place: Any,
        name: str,
        descriptor: int,
        path: str,
        raw_name: str | None,
        mtime: float | None,
        expansion: Expansion | None,
    ) -> None:
        super().__init__(target, place, name, descriptor, path)
        self._target = target
        self._expansion = expansion
        self._sha256 = sha256()
        self.crc32 = 0
        self.bytes = 0
        self.hole_bytes = 0
        self.raw_name = raw_name
        self.mtime = mtime

    @property
    def sha256(self) -> str:
        """Return the digest of what was written so far, in hexadecimal."""
        return self._sha256.hexdigest()

    def write(self, data: Buffer) -> None:
        """Write ``data``. Raises `LimitError` (nothing of it is written), `SourceError` if the disk is full."""
        count = memoryview(data).nbytes
        if self._expansion is not None:
            self._expansion.add(count)
        self._target._take(count)
        before = self.bytes
        try:
            self._write_all(data, self._hash)
        finally:
            self._target.bytes -= count - (self.bytes - before)

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` zeros, which takes no room on the disk but counts as output. Raises as `write`."""
        if count < 0:
            raise ValueError(f"a hole cannot be negative: {count}")
        if self.closed:
            raise ClosedError("the file is closed", source=self.path)
        self._target._take(count)
        try:
            os.lseek(self._descriptor, count, os.SEEK_CUR)
        except (OSError, OverflowError) as error:
            self._target.bytes -= count
            raise _cannot_write(error, self.path) from error
        self.hole_bytes += count
        zeros = memoryview(_ZEROS)
        while count:
            piece = zeros[:count]
            self._hash(piece)
            count -= len(piece)

    def _hash(self, piece: memoryview) -> None:
        self._sha256.update(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        self.bytes += len(piece)

    def close(self) -> None:
        """End the file, at its last hole if it ends with one; harmless when repeated.

        Raises `SourceError` if the disk refuses; a time that the disk cannot keep is left out.
        """
        if self.closed:
            return
        try:
            try:
                if self.hole_bytes:
                    os.ftruncate(self._descriptor, self.bytes)
            finally:
                self._finish(_nanoseconds(self.mtime))
        except OSError as error:
            raise _cannot_write(error, self.path) from error

    def discard(self) -> None:
        """Remove the file, unless it was closed; its name and its bytes are free again."""
        if self.closed:
            return
        self._target.bytes -= self.bytes
        self._target.entries -= 1
        self._remove()
        if not self._target.closed:
            folder, _, name = self.path.rpartition("/")
            self._target._taken.discard(self._target._key(f"{folder}/" if folder else "", fold(name)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __repr__(self) -> str:
        return f"<TargetFile {self.path!r}: {self.bytes} bytes>"


class AtomicReport(_Open):
    """A file of ours at the root of a target: it gets its name with `commit`; `discard` removes what is unfinished."""

    __slots__ = ("_final",)

    def __init__(self, target: Target, place: Any, name: str, descriptor: int, final: str) -> None:
        super().__init__(target, place, name, descriptor, final)
        self._final = final

    def write(self, data: Buffer) -> None:
        """Write ``data``. Raises `SourceError`."""
        self._write_all(data, lambda piece: None)

    def commit(self) -> None:
        """Give the file its name; what had it, even a link, is replaced. Raises `SourceError`."""
        if self.closed:
            return
        self.closed = True
        try:
            try:
                self._places.finish(self._place, self._name, self._descriptor, None)
                self._places.rename(self._place, self._name, self._final)
            finally:
                self._places.leave(self._place)
        except OSError as error:
            raise _cannot_write(error, self._final) from error

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        if not self.closed:
            self._remove()


def _stored(name: str, raw: bytes | None) -> str:
    """Return a stored name for people, cut where no path is so long."""
    text = name if raw is None else raw[:8192].decode("utf-8", "backslashreplace")
    return text if len(text) <= 4096 else text[:4096] + "…"


def _nanoseconds(seconds: float | None) -> int | None:
    """Return a time in nanoseconds within what systems take; None if it is none."""
    if seconds is None or not math.isfinite(seconds):
        return None
    least = 0 if os.name == "nt" else -_MAX_SECONDS
    return int(max(least, min(seconds, _MAX_SECONDS)) * 1_000_000_000)


def _cannot_write(error: Exception, path: str) -> SourceError:
    reason = getattr(error, "strerror", None) or error
    return SourceError(f"cannot write: {reason}", errno=getattr(error, "errno", None), source=path)
