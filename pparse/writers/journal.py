"""Records what a run has done, in the folder that it writes to, so that the same command can continue it.

One JSON array a line, only ever appended to. A line that is incomplete was being written when the run was killed, and
is dropped. Names are recorded before they are taken, so that a file of the run can be told from a file of somebody
else:
=====================================  ===============================================================================
``{"journal": 1, "run": {…}}``         the first line: what run it is; only the same run continues
``["folder", path]``                   a folder is about to be created
``["unit", number, key]``              a unit of work begins: a member, a document
``["name", path, known]``              a whole file is about to get its name
``["claim", path]``                    an empty file is about to take the name first, if there are no hard links
``["file", parts, path, known, …]``    a file has its name, known are its inode, size and time; path null: discarded
``["told", status, gaps, known]``      an entry of the report
``["found", list, finding]``           a finding
``["omitted", list, count, errors]``   findings that were counted but not kept
``["at", …]``, ``["moving"]``          of a conversion: how far it has come, see `pparse.conversion.converting`
``["done"]``, ``["entered"]``          the unit is done; or it was a container, whose members are units of their own
``["result", key, result, checksum]``  of tasks in order, see `pparse.workers.notes`
=====================================  ===============================================================================

A unit that was not finished when the run was killed is repeated from its beginning, with the same number.
"""

from __future__ import annotations

import errno
import json
import os
from array import array

from pparse.errors import CancelledError, OptionError, SourceError, refused
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, Final

    from pparse.limits import MemoryBudget

SCHEMA: Final = 1
_NAME: Final = "the journal"  # in messages, of one in a folder of ours
_HEAD: Final = b'{"journal":%d,"run":{' % SCHEMA
_BLOCK: Final = 64 << 10
_LONGEST: Final = 64 * MIB  # of a line: the gaps of a file are bounded, and so are names
_FLUSHED: Final = 64 << 10
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_FREE: Final = 0
_REMOVED: Final = 1  # a search continues after it
_FIRST_SLOTS: Final = 1 << 10


class Journal:
    """The journal in the open file ``descriptor``, to which is only appended (``O_APPEND``).

    ``name_key`` hashes a path, for the table of folders. ``path``: that of a file which a user named; if it holds
    anything else, `OptionError` is raised, and it stays as it is. In a folder of ours, that does not count.
    """

    def __init__(
        self, descriptor: int, budget: MemoryBudget, name_key: Callable[[str], int], path: str | None = None
    ) -> None:
        self.descriptor = descriptor
        """Descriptor of the file."""
        self._path = path
        self._name_key = name_key
        self._reader: BinaryIO | None = None  # None: what was written since is not where it believes to be
        self._buffer = bytearray()
        self._made = HashTable(budget)
        self._units = array("Q")  # offset of each unit, by number; 0: it is not done
        self._charge = budget.charge(0, "the journal")
        self.pending: int | None = None
        """Offset of the unit that was begun and not finished; None if there is none."""
        self.run: dict[str, Any] | None = None
        """Description of the run, from the first line; None in a new file until `begin` writes it."""
        self._read()

    # -- what was done before ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read and index the whole journal, and cut off an incomplete line."""
        end = 0
        head = self._at(0).read(len(_HEAD))
        if self._path is not None and head != _HEAD[: len(head)]:
            raise OptionError(f"{self._path} holds something else than notes of a run; name another file")
        first = self._line_at(0)
        about = _decoded(first[0]) if first is not None else None
        if first is not None and isinstance(about, dict) and about.get("journal") == SCHEMA:
            self.run = about.get("run")
            begun: tuple[int, int] | None = None
            end = first[1]
            for offset, stop, entry in self.entries(end):
                try:
                    begun = self._index(entry, offset, begun)
                except (IndexError, ValueError):
                    break  # not a line of a journal
                end = stop
            self.pending = None if begun is None else begun[1]
        with refused("cannot write", self._path or _NAME):
            os.ftruncate(self.descriptor, end)
        self._reader = None

    def _at(self, offset: int) -> BinaryIO:
        """Return what reads the file, at ``offset``."""
        if self._reader is None:
            self._reader = os.fdopen(self.descriptor, "rb", _BLOCK, closefd=False)
        self._reader.seek(offset)
        return self._reader

    def _line_at(self, offset: int) -> tuple[bytes, int] | None:
        """Return the line at ``offset`` and the offset of the next; None if there is no complete line."""
        line = self._at(offset).readline(_LONGEST)
        return (line[:-1], offset + len(line)) if line.endswith(b"\n") else None

    def _index(self, entry: list[Any], offset: int, begun: tuple[int, int] | None) -> tuple[int, int] | None:
        """Index one line; return the unit that is unfinished after it. Raise ValueError or IndexError."""
        if entry[0] == "folder":
            self._made.add(self._name_key(str(entry[1])))
        elif entry[0] == "unit":
            number = entry[1]
            if not isinstance(number, int) or not 0 <= number <= len(self._units):
                raise ValueError(f"no unit has the number {number!r}")
            return number, offset
        elif entry[0] in ("done", "entered"):
            if begun is not None and begun[0] == len(self._units):
                self._charge.resize(8 * (len(self._units) + 1))
                self._units.append(begun[1])
            elif begun is not None:  # repeated, since its files had changed
                self._units[begun[0]] = begun[1]
            return None
        return begun

    def entries(self, offset: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Yield begin, end and content of each line from ``offset`` on."""
        while (found := self._line_at(offset)) is not None:
            entry = _decoded(found[0])
            if not isinstance(entry, list) or not entry:
                return
            yield offset, found[1], entry
            offset = found[1]

    def all_entries(self) -> Iterator[tuple[int, int, list[Any]]]:
        """Yield what `entries` does behind the first line. Raise `SourceError`."""
        self.flush()
        first = self._line_at(0)
        yield from self.entries(first[1] if first is not None else 0)

    def lines(self, kind: str) -> Iterator[list[Any]]:
        """Yield the lines of one kind, also those that only whoever continues the run knows. Raise `SourceError`."""
        for _, _, entry in self.all_entries():
            if entry[0] == kind:
                yield entry

    def cut(self, offset: int) -> None:
        """Drop the lines from ``offset`` on. Raise `SourceError`."""
        self.flush()
        with refused("cannot write", self._path or _NAME):
            os.ftruncate(self.descriptor, offset)

    def unit(self, number: int) -> int | None:
        """Return the offset of the unit ``number`` if it is done, else None."""
        offset = self._units[number] if number < len(self._units) else 0
        return offset or None

    def made_folder(self, path: str) -> bool:
        """Say whether the folder ``path`` was created by the run that this one continues."""
        return self._name_key(path) in self._made

    # -- what is done now ----------------------------------------------------------------------------------------------

    def begin(self, run: dict[str, Any]) -> None:
        """Write the first line."""
        self.run = run
        self._append({"journal": SCHEMA, "run": run})
        self.flush()

    def put(self, *entry: object, flush: bool = False) -> None:
        """Add a line. ``flush`` if the next step relies on it. Raise `SourceError`."""
        self._append(entry)
        if flush or len(self._buffer) >= _FLUSHED:
            self.flush()

    def _append(self, entry: object) -> None:
        self._buffer += _encode(entry).encode("ascii") + b"\n"

    def flush(self) -> None:
        """Write the added lines to the file. Raise `SourceError`."""
        view = memoryview(bytes(self._buffer))
        self._buffer = bytearray()
        with refused("cannot write", self._path or _NAME):
            while view:
                view = view[os.write(self.descriptor, view) :]
        self._reader = None

    def close(self) -> None:
        """Release the memory; the file stays open."""
        self._made.close()
        self._charge.release()


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def was_stopped(error: BaseException | None) -> bool:
    """Say whether an error means that the user stops, and may continue later."""
    return isinstance(error, CancelledError) or (error is not None and not isinstance(error, Exception))


def is_disk_full(error: BaseException | None) -> bool:
    """Say whether an error means that the disk, or the quota, is full."""
    return isinstance(error, SourceError) and error.errno in _FULL


class HashTable:
    """A set of integers below 2^64, 8 bytes each: the names that are taken, even if there are millions.

    They are in an array that is at most two thirds full (open addressing, linear probing).

    Its memory is charged to ``budget``. 0 and 1 are not distinguished from 2 and 3, which is harmless for hashes.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._charge = budget.charge(8 * _FIRST_SLOTS, "the table of names")
        self._slots = _empty(_FIRST_SLOTS)
        self._used = 0  # slots that are not free, the removed ones included

    def __contains__(self, key: int) -> bool:
        return self._slots[self._find(key)] != _FREE

    def add(self, key: int) -> None:
        """Add ``key``. Raise `LimitError` if the table must grow beyond the memory budget."""
        if 3 * self._used >= 2 * len(self._slots):
            self._grow()
        at = self._find(key)
        if self._slots[at] == _FREE:
            self._slots[at] = _legal(key)
            self._used += 1

    def discard(self, key: int) -> None:
        """Remove ``key``, if it is there."""
        at = self._find(key)
        if self._slots[at] != _FREE:
            self._slots[at] = _REMOVED

    def close(self) -> None:
        """Release the memory."""
        self._slots = _empty(1)
        self._charge.release()

    def _find(self, key: int) -> int:
        """Return the slot of ``key``, or the free one at which the search for it ended."""
        key, slots = _legal(key), self._slots
        mask = len(slots) - 1
        at = key & mask
        while slots[at] not in (_FREE, key):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        old, size = self._slots, 2 * len(self._slots)
        self._charge.resize(8 * (size + len(old)))
        self._slots, self._used = _empty(size), 0
        for key in old:
            if key > _REMOVED:
                self._slots[self._find(key)] = key
                self._used += 1
        self._charge.resize(8 * size)


def _legal(key: int) -> int:
    return key if key > _REMOVED else key + 2


def _empty(slots: int) -> array[int]:
    return array("Q", bytes(8 * slots))
