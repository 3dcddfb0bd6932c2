"""`Digest`: the SHA-256 of what is written, made here or by a thread while more is read and written."""

from __future__ import annotations

from collections import deque
from hashlib import sha256

from pparse.errors import LimitError
from pparse.limits import evictor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from typing import Any, Final

    from pparse.limits import MemoryBudget

_MOST_WAITING: Final = 4 << 20  # bytes that wait for the thread
# Below this, handing over costs more than hashing.
_WORTH: Final = 32 << 10


class Digest:
    """The SHA-256 of pieces in their order; ``thread`` is an executor of one thread that makes it, None if none does.

    Pieces that can change are copied for the thread. What waits for it is charged to ``budget``, and hashed at once if
    others need the room: where there is none, the thread gets nothing to do.
    """

    def __init__(self, budget: MemoryBudget, thread: Executor | None = None) -> None:
        self._hash, self._thread = sha256(), thread
        self._waiting: deque[tuple[int, Future[Any]]] = deque()
        self._bytes = 0
        self._charge = budget.charge(0, "bytes that wait for their digest", evictor(self, Digest._wait))

    def update(self, piece: memoryview) -> None:
        """Add ``piece``, of bytes."""
        if self._thread is None or (len(piece) < _WORTH and not self._waiting):
            self._hash.update(piece)
            return
        while self._waiting and (self._bytes + len(piece) > _MOST_WAITING or self._waiting[0][1].done()):
            self._take()
        if not self._has_room(len(piece)):
            self._take_all()
            self._hash.update(piece)
            return
        piece = piece if piece.readonly else memoryview(bytes(piece))
        self._waiting.append((len(piece), self._thread.submit(self._hash.update, piece)))
        self._bytes += len(piece)

    def _has_room(self, size: int) -> bool:
        if size > _MOST_WAITING:
            return False
        try:
            self._charge.resize(self._bytes + size)
        except LimitError:
            return False
        return True

    def _take(self) -> None:
        size, done = self._waiting.popleft()
        done.result()
        self._bytes -= size

    def _take_all(self) -> None:
        while self._waiting:
            self._take()
        self._charge.release()

    def _wait(self) -> None:
        """Wait until nothing waits any more; for another thread, too, that needs the room."""
        for _, done in self._waiting.copy():
            done.result()

    def hexdigest(self) -> str:
        """Return the digest so far, in hexadecimal."""
        self._take_all()
        return self._hash.hexdigest()
