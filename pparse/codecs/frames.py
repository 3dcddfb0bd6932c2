"""What Zstandard and LZ4 have in common: frames read step by step, among them some that are to be skipped."""

from __future__ import annotations

from pparse.codecs.base import Decompressor
from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from pparse.budget import MemoryBudget
    from pparse.codecs.base import Reread

SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5F


def skips(head: bytes) -> bool:
    """Say whether ``head`` begins, or may begin, a skippable frame."""
    return len(head) > 0 and head[0] & 0xF0 == 0x50 and SKIPPABLE.startswith(head[1:4])


class FrameDecompressor(Decompressor):
    """Decodes one frame; a skippable frame is an empty one.

    What a codec adds are steps. Each takes what it needs from the input, all or nothing, and names the next one.
    """

    def __init__(
        self, codec: str, budget: MemoryBudget | None = None, size: int | None = None, reread: Reread | None = None
    ) -> None:
        super().__init__(codec, budget, size)
        self._content: int | None = None  # declared size
        self._decoded = 0
        self._left = 0  # bytes that are still to come of what the step takes in parts
        self._step: Callable[[Any], bytes] = FrameDecompressor._first  # not bound: that would be a cycle

    def _produce(self) -> bytes:
        while not self._over:
            before = len(self._input), self._step
            out = self._step(self)
            if out:
                return out
            if (len(self._input), self._step) == before:
                break
        return b""

    def _first(self) -> bytes:
        head = bytes(self._input[:19])
        if not skips(head):
            return self._header(head)
        if len(head) >= 8:
            self._left = int.from_bytes(head[4:8], "little")
            del self._input[:8]
            self._step = FrameDecompressor._skippable
        return b""

    def _header(self, head: bytes) -> bytes:
        """Take the header of a frame that begins with ``head``."""
        raise NotImplementedError

    def _skippable(self) -> bytes:
        count = min(self._left, len(self._input))
        del self._input[:count]
        self._left -= count
        if not self._left:
            self._end()
        return b""

    def _compare_size(self) -> None:
        """Hold what came out of the whole frame against what it declares. Raises `MalformedError`."""
        if self._content is not None and self._decoded != self._content:
            reason = f"the {self.codec} frame declares another size"
            raise MalformedError(reason, offset=self.consumed, wanted=self._content, got=self._decoded)
