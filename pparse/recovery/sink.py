"""Where a content goes as it is read: a file of the target, as far as limits allow."""

from __future__ import annotations

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
    from pparse.recovery.target import Target, TargetFile
    from pparse.recovery.target_file import Expansion

# A run of zeros becomes a hole of the file from this length on.
HOLE: Final = 64 << 10


class LimitMet:
    """A limit that cost files something: ``files``, how many; ``option``, what would have been enough for each."""

    __slots__ = ("_wanted", "files", "option")

    def __init__(self) -> None:
        self.files = 0
        self.option = ""
        self._wanted = -1

    def add(self, error: LimitError) -> None:
        """Count another file."""
        self.files += 1
        wanted = error.wanted if isinstance(error.wanted, int) else 0
        if wanted > self._wanted:
            self._wanted, self.option = wanted, error.option


class Sink:
    """Writes a content as it comes; the file is made with its first byte, or at the end of an empty content.

    ``error``: the limit that it met. ``file`` is None if nothing was written. ``interrupted``: an error came through.
    """

    __slots__ = ("_compressed_size", "_lost", "_mtime", "_name", "_target", "error", "expansion", "file", "interrupted")

    def __init__(self, target: Target, name: str, mtime: float | None, compressed_size: int | None) -> None:
        self._target = target
        self._name = name
        self._mtime = mtime
        self._compressed_size = compressed_size
        self.expansion: Expansion | None = None
        self._lost = 0
        self.error: LimitError | None = None
        self.interrupted = False
        self.file: TargetFile | None = None

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        """Write ``chunk``, of which ``unknown`` stretches are lost."""
        try:
            self._write(chunk, unknown)
        except LimitError as error:
            self.error = error
            raise

    def restart(self) -> None:
        """Begin the file again: what came is not what the data are, as their end showed."""
        if self.file is not None:
            self.file.discard()
            self.file = None
        self._lost = 0
        if self.expansion is not None:
            self.expansion.bytes = 0

    def conclude(self, verdict: Verdict) -> None:
        """Make the file of a content that is whole and has no byte."""
        if self.file is None and self.error is None and verdict.status is Status.COMPLETE:
            self.open().close()

    def skip(self, count: int) -> None:
        """Make a hole of the file."""
        try:
            self.open().skip(count)
        except LimitError as error:
            self.error = error
            raise

    def refuses(self, member: ArchiveMember) -> bool:
        """Say whether ``member`` is more than may still be written, by its size and by what can be in so few bytes."""
        compressed_size, size = member.compressed_size or 0, member.size or 0
        if self._compressed_size is not None:
            compressed_size = max(compressed_size * self._target.max_expansion, FREE_EXPANSION)
        try:
            self._target.take(min(compressed_size, size))
        except LimitError as error:
            self.error = error
            return True
        self._target.bytes -= min(compressed_size, size)
        return False

    def reading(self, read: Callable[[], Verdict]) -> Verdict:
        """Return what ``read`` says of the content; one that meets a limit ends there."""
        try:
            return read()
        except LimitError as error:
            self.error = error
            return Verdict()

    def _write(self, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        if self.file is None and sum(count for _, count in unknown) == len(chunk):
            self._lost += len(chunk)  # nothing to write a file for, so far
            return
        file = self.open()
        if self.expansion is not None:
            self.expansion.add(len(chunk))
        if len(chunk) >= HOLE and not chunk.strip(b"\0"):
            file.write_zeros(len(chunk))
        else:
            file.write(chunk)

    def open(self) -> TargetFile:
        """Return the file, made if it is not there yet."""
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
        if isinstance(error, SourceError) or was_stopped(error):  # the disk is full, say: room for the report
            self.file.discard()
        elif self.error is not None and not self.file.bytes:
            self.file.discard()
            self.file = None
        else:
            self.file.close()
