"""Binary file objects as Data: those that can seek, and pipes, which are spooled."""

from __future__ import annotations

import os

from pparse.data.base import Data
from pparse.errors import PparseError, SourceError
from pparse.limits import MIB
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.data.base import IoStats
    from pparse.data.scratch import Scratch, Spool


class StreamData(Data):
    """A binary file object of the caller (``io.BytesIO``, an open file, a remote file), read under a lock.

    Closing the data leaves the object open, since it belongs to the caller, unless it is ``owned``.
    """

    def __init__(
        self, stream: Any, name: str | None = None, stats: IoStats | None = None, *, owned: bool = False
    ) -> None:
        self._stream = stream
        self._owned = owned
        self._lock = Lock()
        try:
            size = stream.seek(0, os.SEEK_END)
            if size is None:
                size = stream.tell()
        except (OSError, ValueError) as error:
            raise SourceError(f"the stream cannot seek ({error}); save it to a file first", source=name) from error
        try:
            is_binary = isinstance(stream.read(0), bytes)
        except (OSError, ValueError) as error:
            raise SourceError(f"cannot read: {error}", source=name) from error
        if not is_binary:
            raise SourceError("the file object returns text; open it in binary mode", source=name)
        super().__init__(name or str(getattr(stream, "name", "<stream>")), size, stats)
        if os.path.isfile(self.name) and os.path.getsize(self.name) == size:  # so what lies beside it can be found
            self.path = self.name

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """What the file object tells of its content: see `of_stream`; None for one in memory."""
        return of_stream(self._stream, self.size)

    def close(self) -> None:
        """Close the object, if it is owned."""
        super().close()
        if self._owned:
            with self._lock:
                self._stream.close()

    def _pread(self, offset: int, length: int) -> bytes:
        pieces = []
        try:
            with self._lock:
                self._stream.seek(offset)
                while length:
                    chunk = self._stream.read(length)
                    if not chunk:
                        break
                    pieces.append(chunk)
                    length -= len(chunk)
        except (OSError, ValueError) as error:
            raise SourceError(f"cannot read: {error}", source=self.name, offset=offset) from error
        if length:
            raise SourceError("the stream returned fewer bytes than its size", source=self.name, offset=offset)
        return b"".join(pieces)


def can_seek(stream: Any) -> bool:
    """Return whether a file object can be read at any offset; a pipe and the response of a server cannot."""
    tell = getattr(stream, "seekable", None)
    try:
        return hasattr(stream, "seek") and (tell is None or bool(tell()))
    except ValueError:  # it is closed, as reading it will say
        return True


class SpooledData(Data):
    """What a stream that cannot seek gave, in a scratch file."""

    is_plain = True

    def __init__(self, spool: Spool, name: str, stats: IoStats | None = None) -> None:
        super().__init__(name, spool.size, stats)
        self._spool = spool

    def _pread(self, offset: int, length: int) -> bytes:
        return self._spool.pread(offset, length)

    def close(self) -> None:
        """Delete the scratch file."""
        super().close()
        self._spool.close()


def spooled(stream: Any, name: str, scratch: Scratch, tell: Callable[[int], object]) -> Spool:
    """Read a stream to its end into a scratch file; ``tell`` is called with the bytes so far.

    Raises `SourceError` if it cannot be read or the disk is full, `LimitError` above the cap of ``scratch``.
    """
    spool = scratch.spool()
    try:
        while chunk := stream.read(MIB):
            if not isinstance(chunk, bytes):
                raise SourceError("the file object returns text; open it in binary mode", source=name)
            spool.append(chunk)
            tell(spool.size)
    except BaseException as error:
        spool.close()
        if isinstance(error, PparseError) or not isinstance(error, OSError | ValueError):
            raise
        raise SourceError(f"cannot read: {error}", source=name, offset=spool.size) from error
    return spool


# What file objects of fsspec and of cloud libraries know of the file: any of these changes with its content.
_VALIDATORS: Final = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "updated")


def of_stream(stream: Any, size: int | None) -> object | None:
    """Return the identity of a seekable file object.

    It is made of what can be had: class and size, and the identity of the file if it reads one of the system (perhaps
    unpacked); else its name, and what it knows of its content (fsspec's ``details``, as an ETag or a time). With a name
    alone two contents of one size are not told apart. None for an object without a name, such as ``io.BytesIO``.
    """
    from pparse.data.files import identity_of
    from pparse.errors import SourceError

    kind = type(stream).__qualname__
    try:
        return kind, size, identity_of(stream.fileno(), str(getattr(stream, "name", "<stream>")))
    except (AttributeError, OSError, ValueError, TypeError, SourceError):
        pass  # no file of the system
    name = next((name for key in ("full_name", "name", "path") if isinstance(name := getattr(stream, key, 0), str)), "")
    details = getattr(stream, "details", None)
    known: tuple[str, ...] = ()
    if isinstance(details, dict):
        known = tuple(f"{key}={details[key]}" for key in _VALIDATORS if details.get(key) is not None)
    return (kind, size, name, *known) if name or known else None
