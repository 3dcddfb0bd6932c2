"""`Digest`: the SHA-256 of what is written, made here or by a thread while more is read and written."""

from __future__ import annotations

from collections import deque
from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from typing import Any, Final

MOST_WAITING: Final = 4 << 20
"""So many bytes may wait for the thread."""
# Below this, handing over costs more than hashing.
_WORTH: Final = 32 << 10


class Digest:
    """The SHA-256 of pieces in their order; ``thread`` is an executor of one thread that makes it, None if none does.

    Pieces that can change are copied for the thread.
    """

    def __init__(self, thread: Executor | None = None) -> None:
        self._hash, self._thread = sha256(), thread
        self._waiting: deque[tuple[int, Future[Any]]] = deque()
        self._bytes = 0

    def update(self, piece: memoryview) -> None:
        """Add ``piece``, of bytes."""
        if self._thread is None or (len(piece) < _WORTH and not self._waiting):
            self._hash.update(piece)
            return
        piece = piece if piece.readonly else memoryview(bytes(piece))
        self._waiting.append((len(piece), self._thread.submit(self._hash.update, piece)))
        self._bytes += len(piece)
        while self._bytes > MOST_WAITING or (self._waiting and self._waiting[0][1].done()):
            self._take()

    def _take(self) -> None:
        size, done = self._waiting.popleft()
        done.result()
        self._bytes -= size

    def hexdigest(self) -> str:
        """Return the digest so far, in hexadecimal."""
        while self._waiting:
            self._take()
        return self._hash.hexdigest()
