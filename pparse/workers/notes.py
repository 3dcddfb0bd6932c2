"""Notes of a run: results in order, a line each, with which the same run goes on after it was stopped.

The file is a journal (`pparse.writers.journal`) with lines ``["result", key, result, checksum]``; the result is null if
there was an error, and is made again. Tasks come in the same order in every run, so lines are read as tasks come: from
the first one on that has another key, or not its checksum, nothing is known, and the rest is cut off.
"""

from __future__ import annotations

import json
import os
from time import monotonic
from zlib import crc32

from pparse.errors import OptionError, refused
from pparse.writers.files import try_lock
from pparse.writers.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final, Self

    from pparse.limits import MemoryBudget

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Seconds after which notes are written at the latest.
_EVERY: Final = 0.2


class Notes:
    """Notes in the file ``path``, for ``with``: of the same ``run``, or new ones.

    Raises `OptionError` if the file holds something else, or is in use; `SourceError`.
    """

    def __init__(self, path: str, run: Mapping[str, Any], budget: MemoryBudget) -> None:
        with refused("cannot write", path):
            self._descriptor = os.open(path, _FLAGS, 0o666)
        try:
            if try_lock(self._descriptor) is False:
                raise OptionError(f"another process is writing to {path} now")
            self._journal = Journal(self._descriptor, budget, len, path)
            if self._journal.run is not None and self._journal.run != run:
                raise OptionError(f"{path} is of another command or of other options; remove it, or name another file")
            if self._journal.run is None:
                self._journal.begin(dict(run))
        except BaseException:
            os.close(self._descriptor)
            raise
        self._lines = self._journal.all_entries()
        self._at_end = False
        self._flushed = 0.0

    def known(self, key: str | None) -> tuple[Any] | None:
        """Return the result of the next task as it was noted, in a tuple; None: nothing was noted of it.

        If there was an error, the tuple holds None: it is made again, and not noted once more.
        """
        if self._at_end:
            return None
        offset, _, line = next(self._lines, (-1, -1, []))
        if line[:2] == ["result", key] and len(line) == 4 and line[3] == _checksum(*line[1:3]):
            return (line[2],)
        self._at_end = True
        if offset >= 0:
            self._journal.cut(offset)
        return None

    def note(self, key: str | None, result: Any) -> None:
        """Note the result of a task, as JSON has it; None: there was an error, or nothing tells the task from others.

        Raises `SourceError`.
        """
        now = monotonic()
        is_time = now > self._flushed + _EVERY
        told = result if key is not None else None
        self._journal.put("result", key, told, _checksum(key, told), flush=is_time)
        self._flushed = now if is_time else self._flushed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._journal.flush()
        self._journal.close()
        os.close(self._descriptor)


def _checksum(key: object, result: object) -> int:
    """Return the CRC-32 of a line as JSON: of what was read again the same as of what was noted."""
    return crc32(json.dumps([key, result]).encode("ascii"))
