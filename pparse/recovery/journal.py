"""What a run has done so far, noted in the folder that it writes to, so that the same command can go on.

One JSON array a line, only ever appended to. A line that is not whole was being written when the run was killed, and
is dropped. What is done twice must be told apart from what somebody else did, so names are noted before they are taken:

=====================================  ===============================================================================
``{"journal": 1, "run": {…}}``         the first line: what run it is; only the same one goes on
``["folder", path]``                   a folder is about to be made
``["unit", number, key]``              a unit of work begins: a member, a document
``["name", path, known]``              a whole file is about to get its name
``["claim", path]``                    an empty file is about to take the name first, where there are no hard links
``["file", parts, path, known, …]``    a file has its name, known are its inode, size and time; path null: discarded
``["told", status, gaps, known]``      an entry of the report
``["found", list, finding]``           a finding
``["omitted", list, count, errors]``   findings that were only counted
``["done"]``, ``["entered"]``          the unit is done; or it was a container, whose members are units of their own
=====================================  ===============================================================================

A unit that was not done when the run was killed is done again from its beginning, with the same number.
"""

from __future__ import annotations

import json
import os
from array import array

from pparse.errors import SourceError
from pparse.limits import MIB
from pparse.recovery.taken import HashTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.budget import MemoryBudget

SCHEMA: Final = 1
_BLOCK: Final = 64 << 10
_LONGEST: Final = 64 * MIB  # a line: the gaps of a file are bounded, names too
_FLUSHED: Final = 64 << 10
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    """The journal of the open file ``descriptor``.

    ``run`` is that of the first line, None in a new file: `begin` writes it then. ``name_key`` hashes a path, for the
    table of folders. ``pending``: where the unit begins that was not done.
    """

    def __init__(self, descriptor: int, budget: MemoryBudget, name_key: Callable[[str], int]) -> None:
        self.descriptor = descriptor
        self._name_key = name_key
        self._lines = _Lines(descriptor)
        self._buffer = bytearray()
        self._made = HashTable(budget)
        self._units = array("Q")  # where the unit of each number begins; 0: it is not done
        self._charge = budget.charge(0, "the journal")
        self.pending: int | None = None
        self.run: dict[str, Any] | None = None
        self._read()

    # -- what was done before ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Look through all of it, and cut off what is not whole."""
        end = 0
        first = self._lines.at(0)
        head = _decoded(first[0]) if first is not None else None
        if first is not None and isinstance(head, dict) and head.get("journal") == SCHEMA:
            self.run = head.get("run")
            begun: tuple[int, int] | None = None
            end = first[1]
            for offset, stop, entry in self.entries(end):
                try:
                    begun = self._index(entry, offset, begun)
                except (IndexError, ValueError):
                    break  # no line of ours
                end = stop
            self.pending = None if begun is None else begun[1]
        try:
            os.ftruncate(self.descriptor, end)
        except OSError as error:
            raise _cannot_write(error) from error

    def _index(self, entry: list[Any], offset: int, begun: tuple[int, int] | None) -> tuple[int, int] | None:
        """Note one line; return the unit that is not done behind it. Raises ValueError and IndexError."""
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
            elif begun is not None:  # done again, since its files were changed
                self._units[begun[0]] = begun[1]
            return None
        return begun

    def entries(self, offset: int) -> Iterator[tuple[int, int, list[Any]]]:
        """Yield the lines from ``offset`` on: where each begins and ends, and what it says."""
        while (found := self._lines.at(offset)) is not None:
            entry = _decoded(found[0])
            if not isinstance(entry, list) or not entry:
                return
            yield offset, found[1], entry
            offset = found[1]

    def names(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield all files that have got their names: the path, and what is known of it. Raises `SourceError`."""
        for entry in self._all("name"):
            yield entry[1], entry[2]

    def folders(self) -> Iterator[str]:
        """Yield the paths of all folders that were made. Raises `SourceError`."""
        for entry in self._all("folder"):
            yield entry[1]

    def _all(self, kind: str) -> Iterator[list[Any]]:
        self.flush()
        self._lines = _Lines(self.descriptor)
        first = self._lines.at(0)
        for _, _, entry in self.entries(first[1] if first is not None else 0):
            if entry[0] == kind:
                yield entry

    def unit(self, number: int) -> int | None:
        """Return where the unit ``number`` begins, if it is done."""
        offset = self._units[number] if number < len(self._units) else 0
        return offset or None

    def made_folder(self, path: str) -> bool:
        """Say whether the folder ``path`` was made by the run that this one goes on with."""
        return self._name_key(path) in self._made

    @property
    def units(self) -> int:
        """How many units were done before."""
        return len(self._units)

    # -- what is done now ----------------------------------------------------------------------------------------------

    def begin(self, run: dict[str, Any]) -> None:
        """Write the first line."""
        self.run = run
        self._append({"journal": SCHEMA, "run": run})
        self.flush()

    def put(self, *entry: object, flush: bool = False) -> None:
        """Add a line; ``flush``: what comes next relies on it. Raises `SourceError`."""
        self._append(entry)
        if flush or len(self._buffer) >= _FLUSHED:
            self.flush()

    def put_unit(self, number: int, key: str) -> None:
        """Add the line with which a unit begins; ``key``: hexadecimal digits."""
        self._buffer += b'["unit",%d,"%s"]\n' % (number, key.encode("ascii"))

    def put_end(self, *, entered: bool) -> None:
        """Add the line with which a unit ends, and hand over what was added. Raises `SourceError`."""
        self._buffer += b'["entered"]\n' if entered else b'["done"]\n'
        self.flush()

    def _append(self, entry: object) -> None:
        self._buffer += _encode(entry).encode("ascii") + b"\n"

    def flush(self) -> None:
        """Hand over to the system what was added. Raises `SourceError`."""
        view = memoryview(bytes(self._buffer))
        self._buffer = bytearray()
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            raise _cannot_write(error) from error

    def close(self) -> None:
        """Give the memory back; the file stays open."""
        self._made.close()
        self._charge.release()


class _Lines:
    """Reads lines at any offset, blocks at a time."""

    __slots__ = ("_base", "_block", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._block = b""
        self._base = 0

    def at(self, offset: int) -> tuple[bytes, int] | None:
        """Return the line that begins at ``offset``, and where the next one does; None if there is no whole one."""
        size = _BLOCK
        while True:
            start = offset - self._base
            if 0 <= start < len(self._block):
                stop = self._block.find(b"\n", start)
                if stop >= 0:
                    return self._block[start:stop], self._base + stop + 1
            if size > _LONGEST:
                return None
            self._load(offset, size)
            if len(self._block) < size and b"\n" not in self._block:
                return None
            size *= 8

    def _load(self, offset: int, size: int) -> None:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        pieces = []
        while size and (piece := os.read(self._descriptor, size)):
            pieces.append(piece)
            size -= len(piece)
        self._block = b"".join(pieces)
        self._base = offset


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _cannot_write(error: OSError) -> SourceError:
    return SourceError(f"cannot write: {error.strerror or error}", errno=error.errno, source="the journal")
