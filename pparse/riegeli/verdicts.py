"""Remembers what the hashes of a file's chunks said, for everything that reads the file.

A chunk's bytes can be read in many ways: record by record, decoded or not, with hashes checked or without. The result
of comparing the hash is the same. So all readers of one document share one `Verdicts`: a chunk whose hash was found
wrong by any of them is wrong for the others, and for bytes that were returned before (`ChunkData.why_suspect`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from pparse.riegeli.chunks import ChunkError
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from pparse.riegeli.chunks import Chunk, ChunkReader

# How many chunks are remembered as sound; others are hashed again.
_SOUND: Final = 100_000
# How many errors are kept in full.
_ERRORS: Final = 1_000


class Verdicts:
    """Which chunks have a right hash and which have not, by offset. Wrong ones are never forgotten."""

    def __init__(self) -> None:
        self._sound: set[int] = set()
        self._wrong = array("Q")  # ascending
        self._errors: dict[int, InvalidArgumentError] = {}
        self.listeners: list[Callable[[int], object]] = []
        """Functions that are called with the offset of each chunk found wrong."""

    @property
    def version(self) -> int:
        """Number of chunks found wrong. It changes with each."""
        return len(self._wrong)

    def error(self, begin: int) -> InvalidArgumentError | None:
        """Return the known error in the data of the chunk at ``begin``; None if there is none."""
        at = bisect_left(self._wrong, begin)
        if at == len(self._wrong) or self._wrong[at] != begin:
            return None
        kept = self._errors.get(begin)
        reason = kept.reason if kept is not None else f"chunk data hash mismatch, chunk at {begin}"
        return HashMismatchError(reason, offset=begin)

    def is_sound(self, begin: int) -> bool:
        """Say whether the hash of the chunk's data was compared, and agreed."""
        return begin in self._sound

    def note_sound(self, begin: int) -> None:
        """Record that the hash of the chunk at ``begin`` agrees."""
        if len(self._sound) >= _SOUND:
            self._sound.clear()
        self._sound.add(begin)

    def condemn(self, begin: int, error: InvalidArgumentError) -> None:
        """Record that the hash of the chunk at ``begin`` does not match its data."""
        at = bisect_left(self._wrong, begin)
        if at < len(self._wrong) and self._wrong[at] == begin:
            return
        if len(self._errors) < _ERRORS:
            self._errors[begin] = error
        self._sound.discard(begin)
        self._wrong.insert(at, begin)
        for listener in self.listeners:
            listener(begin)

    def check(self, chunks: ChunkReader, chunk: Chunk) -> None:
        """Compare the hash of a chunk's data, unless that was done before. Raise `HashMismatchError` if it differs.

        If the file ends inside the chunk, or has a gap there, nothing is compared or recorded.
        """
        wrong = self.error(chunk.begin)
        if wrong is not None:
            raise wrong
        if chunk.begin in self._sound:
            return
        try:
            if chunks.verify(chunk, blocks=False):
                self.note_sound(chunk.begin)
        except ChunkError as error:
            if isinstance(error.error, HashMismatchError):
                self.condemn(chunk.begin, error.error)
            raise error.error from None
