"""What the hashes of a file's chunks said, remembered for everybody who reads the file.

A chunk's bytes can be had in many ways: record by record, decoded or by arithmetic, with hashes checked or without. The
verdict on them is one. So all readers of one document share one `Verdicts`: a chunk whose hash was found wrong by any
of them stays wrong for the others, and for the bytes that were handed out before (`ChunkData.why_suspect`).
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

# Chunks that are remembered as sound: they can be hashed again.
_SOUND: Final = 100_000
# Errors that are kept in full.
_ERRORS: Final = 1_000


class Verdicts:
    """Which chunks are sound and which are not, by where they begin. Those that are not are never forgotten.

    ``version`` changes with each chunk that is found wrong; ``listeners`` are called with its begin.
    """

    def __init__(self) -> None:
        self._sound: set[int] = set()
        self._wrong = array("Q")  # ascending
        self._errors: dict[int, InvalidArgumentError] = {}
        self.listeners: list[Callable[[int], object]] = []

    @property
    def version(self) -> int:
        """How many chunks were found wrong."""
        return len(self._wrong)

    def error(self, begin: int) -> InvalidArgumentError | None:
        """Return what is wrong with the data of the chunk at ``begin``; None where nothing is known to be."""
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
        """Note that the hash of the chunk at ``begin`` agrees."""
        if len(self._sound) >= _SOUND:
            self._sound.clear()
        self._sound.add(begin)

    def condemn(self, begin: int, error: InvalidArgumentError) -> None:
        """Note that the hash of the chunk at ``begin`` contradicts its data."""
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
        """Compare the hash of a chunk's data, unless that was done before. Raises `HashMismatchError` if it differs.

        Where the file ends in the chunk, or has a gap there, there is nothing to compare, and no verdict.
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
