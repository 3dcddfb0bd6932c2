"""Where a content goes that is read through (`pparse.content`): a file of the target, made when it has a byte."""

from __future__ import annotations

from pparse.errors import LimitError, SourceError
from pparse.findings import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.content import Verdict
    from pparse.recovery.target import Expansion, Target, TargetFile

# A run of zeros becomes a hole of the file from this length on.
HOLE: Final = 64 << 10


class Sink:
    """Writes a content as it comes; the file is made with its first byte, or at the end of an empty content."""

    __slots__ = ("_lost", "_mtime", "_name", "_packed", "_target", "error", "expansion", "file", "interrupted")

    def __init__(self, target: Target, name: str, mtime: float | None, packed: int | None) -> None:
        self._target = target
        self._name = name
        self._mtime = mtime
        self._packed = packed
        self.expansion: Expansion | None = None
        self._lost = 0
        self.error: LimitError | None = None
        self.interrupted = False
        self.file: TargetFile | None = None

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        """Write ``chunk``; see `pparse.content.Sink`."""
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

    def skip(self, count: int) -> None:
        """Make a hole of the file."""
        try:
            self.open().skip(count)
        except LimitError as error:
            self.error = error
            raise

    def _write(self, chunk: bytes, unknown: list[tuple[int, int]]) -> None:
        if self.file is None and sum(count for _, count in unknown) == len(chunk):
            self._lost += len(chunk)  # nothing to write a file for, so far
            return
        file = self.open()
        if self.expansion is not None:
            self.expansion.add(len(chunk))
        if len(chunk) >= HOLE and not chunk.strip(b"\0"):
            file.skip(len(chunk))
        else:
            file.write(chunk)

    def settle(self, verdict: Verdict) -> None:
        """Make the file of a content that is whole and has no byte."""
        if self.file is None and verdict.status is Status.COMPLETE:
            self.open().close()

    def open(self) -> TargetFile:
        """Return the file, made if it is not there yet."""
        if self.file is None:
            self.file = self._target.create(self._name, None, self._mtime, packed=self._packed)
            self.file.skip(self._lost)
        return self.file

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.interrupted = error is not None
        if self.file is None:
            return
        if isinstance(error, SourceError):  # the disk is full, say: room for the report
            self.file.discard()
        else:
            self.file.close()


class Head:
    """Takes a content as a `Sink` does, and keeps the first ``most`` bytes of it: ``content``."""

    __slots__ = ("_most", "content")

    def __init__(self, most: int) -> None:
        self._most = most
        self.content = bytearray()

    def __call__(self, offset: int, chunk: bytes, unknown: list[tuple[int, int]], /) -> None:
        """Keep of ``chunk`` what there is room for."""
        self.content += chunk[: self._most - len(self.content)]

    def restart(self) -> None:
        """Forget what came."""
        self.content = bytearray()
