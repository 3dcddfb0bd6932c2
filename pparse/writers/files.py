"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

from pparse.errors import PparseError, SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Self


class AtomicFile:
    """Write beside ``path``, and move into place at the end; nothing is left behind when writing fails."""

    def __init__(self, path: str) -> None:
        # Through a link, what it names is written; the link stays.
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        self._temporary = ""
        try:
            prefix = os.path.basename(self.path)[:40] + "."  # names have a length limit
            descriptor, self._temporary = tempfile.mkstemp(
                prefix=prefix, suffix=".partial", dir=os.path.dirname(self.path) or "."
            )
        except OSError as error:
            raise SourceError(f"cannot write: {error.strerror or error}", errno=error.errno, source=path) from error
        except ValueError as error:  # a NUL byte
            raise SourceError(f"cannot write: {error}", source=repr(path)) from error
        self.stream: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, PparseError):
            with suppress(OSError):
                self.stream.close()
            self._remove()
            raise SourceError(
                f"cannot write: {error.strerror or error}", errno=error.errno, source=self.path
            ) from error
        try:
            self.stream.close()
            if kind is None:
                # mkstemp makes private files; give the rights that open() would.
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self.path)
                self._temporary = ""
        except OSError as failed:
            raise SourceError(
                f"cannot write: {failed.strerror or failed}", errno=failed.errno, source=self.path
            ) from failed
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._temporary:
            os.unlink(self._temporary)
            self._temporary = ""
