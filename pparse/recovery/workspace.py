"""The hidden folder at the root of a target: files are written there, and get their names when they are complete.

Everything in it is unfinished: files called ``<16 hexadecimal digits>.partial``, and the journal
(`pparse.recovery.journal`). It is removed when everything is done, unless somebody else put something into it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from pparse.errors import OptionError
from pparse.lazy import lazy_pattern
from pparse.writers.files import try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.recovery.folder_writer import Places

WORK_NAME: Final = ".pparse-unfinished"
JOURNAL_NAME: Final = "journal"
_PARTIAL: Final = lazy_pattern(r"[0-9a-f]{16}\.partial")


class Workspace:
    """The folder `WORK_NAME` of ``root``, created on demand. All methods raise OSError."""

    def __init__(self, places: Places, root: Any) -> None:
        self._places: Any = places
        self._root: Any = root
        self._place: Any = None

    @property
    def is_there(self) -> bool:
        """Say whether something has its name, such as the folder of an earlier run."""
        return self._places.look(self._root, WORK_NAME) is not None

    def open(self) -> Any:
        """Return the place of the folder; create it if it is missing. `close` releases it."""
        if self._place is None:
            with suppress(FileExistsError):
                self._places.make_folder(self._root, WORK_NAME)
            try:
                self._place = self._places.enter(self._root, WORK_NAME)
            except NotADirectoryError as error:
                raise OSError(errno.EEXIST, f"{WORK_NAME} exists and is not a folder") from error
        return self._place

    def create(self) -> tuple[Any, str, int]:
        """Create a new file; return its own place, its name, and its descriptor."""
        while True:
            place: Any = self._places.again(self.open())
            name = f"{os.urandom(8).hex()}.partial"
            try:
                return place, name, self._places.create(place, name)
            except FileExistsError:
                self._places.leave(place)
            except FileNotFoundError:
                # Another target of this folder finished, and removed the empty folder.
                self._places.leave(place)
                if self.is_there:
                    raise
                self._leave()
            except BaseException:
                self._places.leave(place)
                raise

    def sweep(self) -> None:
        """Remove the unfinished files of a run that was killed. Nothing else in the folder is touched."""
        place: Any = self.open()
        for name in self._places.names(place):
            if _PARTIAL.fullmatch(name):
                self._places.unlink(place, name)

    def journal(self, *, make: bool) -> int | None:
        """Open and lock the journal; None if there is none and ``make`` is false.

        Raise `OptionError` if another process has locked it.
        """
        while True:
            if not make and (not self.is_there or self._places.look(self.open(), JOURNAL_NAME) is None):
                return None
            descriptor: int = self._places.own(self.open(), JOURNAL_NAME)
            try:
                lock(descriptor)
                found = self._places.look(self.open(), JOURNAL_NAME)
            except BaseException:
                os.close(descriptor)
                raise
            if found is not None and found.st_ino == os.fstat(descriptor).st_ino:
                return descriptor
            os.close(descriptor)  # its run has just ended

    def remove_journal(self, descriptor: int) -> None:
        """Remove the journal and close it."""
        if os.name == "nt":  # Windows does not remove open files
            os.close(descriptor)
            self._places.unlink(self.open(), JOURNAL_NAME)
            return
        try:
            self._places.unlink(self.open(), JOURNAL_NAME)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the folder; remove it if it is empty."""
        if self._place is not None:
            self._leave()
            with suppress(OSError):
                self._places.remove_folder(self._root, WORK_NAME)

    def _leave(self) -> None:
        place, self._place = self._place, None
        self._places.leave(place)


def lock(descriptor: int) -> None:
    """Lock the journal. Raise `OptionError` if another process has; without support for locks, do nothing."""
    if try_lock(descriptor) is False:
        raise OptionError("another process is writing to this folder now")
