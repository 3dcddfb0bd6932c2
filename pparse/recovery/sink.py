"""Writes content to a file of the target while it is read, within the limits."""

from __future__ import annotations

from itertools import islice

from pparse.containers.content import Verdict
from pparse.errors import LimitError, SourceError
from pparse.findings import Status
from pparse.recovery.target import was_stopped
from pparse.recovery.target_file import FREE_EXPANSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.containers.archive import ArchiveMember
    from pparse.data.base import Data
    from pparse.recovery.target import Target, TargetFile
    from pparse.recovery.target_file import Expansion

# Runs of zeros from this length on become holes in the file.
HOLE: Final = 64 << 10
# So many holes of a source are left out of what it takes on the disk.
_MOST_HOLES: Final = 10_000


class LimitMet:
    """A limit that cut files or left them out."""

    __slots__ = ("_wanted", "files", "option")

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


class Sink:
    """Writes content as it arrives. The file is created with its first byte, or at the end of empty content."""

    __slots__ = ("_compressed_size", "_lost", "_mtime", "_name", "_target", "error", "expansion", "file", "interrupted")

    def __init__(self, target: Target, name: str, mtime: float | None, compressed_size: int | None) -> None:
        self._target = target
        self._name = name
        self._mtime = mtime
        self._compressed_size = compressed_size
        self.expansion: Expansion | None = None
        self._lost = 0
        self.error: LimitError | None = None
        """The limit that was met; None if none was."""
        self.interrupted = False
        """Whether an exception ended the writing."""
        self.file: TargetFile | None = None
        """The file; None if nothing was written."""

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        """Write ``chunk``, in which the ranges ``unknown`` are lost."""
        try:
            self._write(chunk, unknown)
        except LimitError as error:
            self.error = error
            raise

    def restart(self) -> None:
        """Begin the file again: the end of the stream showed that the bytes so far were wrong."""
        if self.file is not None:
            self.file.discard()
            self.file = None
        self._lost = 0
        if self.expansion is not None:
            self.expansion.bytes = 0

    def conclude(self, verdict: Verdict) -> None:
        """Create the file for complete content without a byte."""
        if self.file is None and self.error is None and verdict.status is Status.COMPLETE:
            self.open().close()

    def skip(self, count: int) -> None:
        """Leave a hole of ``count`` bytes in the file."""
        try:
            self.open().skip(count)
        except LimitError as error:
            self.error = error
            raise

    def refuses(self, member: ArchiveMember) -> bool:
        """Say whether ``member`` exceeds what may still be written, by its size and the limit of expansion."""
        compressed_size, size = member.compressed_size or 0, member.size or 0
        if self._compressed_size is not None:
            compressed_size = max(compressed_size * self._target.max_expansion, FREE_EXPANSION)
        return self.refuses_bytes(min(compressed_size, size))

    def refused(self, data: Data, start: int, end: int) -> Verdict | None:
        """Return an empty verdict if ``[start, end)`` is more than may be written: a limit does not cut files."""
        holes = sum(stop - begin for begin, stop in islice(data.holes(start, end), _MOST_HOLES))
        return Verdict() if self.refuses_bytes(max(0, end - start - holes)) else None

    def refuses_bytes(self, count: int) -> bool:
        """Say whether ``count`` bytes are more than may still be written."""
        try:
            self._target.take(count)
        except LimitError as error:
            self.error = error
            return True
        self._target.bytes -= count
        return False

    def reading(self, read: Callable[[], Verdict]) -> Verdict:
        """Return the verdict of ``read``, which ends early if a limit is met."""
        try:
            return read()
        except LimitError as error:
            self.error = error
            return Verdict()

    def _write(self, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        if self.file is None and sum(count for _, count in unknown) == len(chunk):
            self._lost += len(chunk)  # nothing worth a file so far
            return
        file = self.open()
        if self.expansion is not None:
            self.expansion.add(len(chunk))
        if len(chunk) >= HOLE and not chunk.strip(b"\0"):
            file.write_zeros(len(chunk))
        else:
            file.write(chunk)

    def open(self) -> TargetFile:
        """Return the file; create it if necessary."""
        if self.file is None:
            self.file = self._target.create(self._name, None, self._mtime, compressed_size=self._compressed_size)
            self.file.skip(self._lost)
        return self.file

    def __enter__(self) -> Sink:
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
