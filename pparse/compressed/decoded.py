"""What `InflatedData` and `ResumedData` have in common: `DecodedData`."""

from __future__ import annotations

from pparse.data.base import Data
from pparse.data.identity import derived
from pparse.errors import ClosedError
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.compressed.environment import DecodeEnv
    from pparse.data.base import IoStats
    from pparse.data.reader import Range


class DecodedData(Data):
    """What the stream of ``codec`` in ``source`` holds: no better than its source, and proved with it.

    ``how``: what else decides which bytes come out, for the `identity`; None: what precedes the source does.
    """

    def __init__(
        self,
        source: Range,
        codec: str,
        env: DecodeEnv,
        *,
        size: int | None,
        name: str,
        stats: IoStats | None,
        checksum: tuple[str, int] | None,
        bounded: bool,
        how: tuple[object, ...] | None,
    ) -> None:
        super().__init__(name, size, stats)
        self._how = None if how is None else (codec, size, bounded, env.limits.inflated_bytes, *how)
        self.codec = codec
        self.checksum = checksum
        self._source = source
        self._env = env
        self._bounded = bounded
        self._lock = RLock()

    @property
    def identity(self) -> object | None:  # type: ignore[override]
        """That of the source, and how it is decoded."""
        return None if self._how is None else derived("decoded", [self._source], *self._how)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the data is closed", source=self.name)

    @property
    def flawed(self) -> bool:
        """Whether anything is known against this stream or its source."""
        return super().flawed or self._source.data.flawed

    @property
    def is_suspect(self) -> bool:
        """Whether anything but bytes behind its end is wrong with the stream itself."""
        return False

    @property
    def _taken(self) -> int:
        """Where the stream ends in the source, as far as that is known."""
        return self._source.end

    def why_suspect(self, start: int, end: int) -> str | None:
        """Say what damage of this stream, or of its source, touches ``[start, end)``."""
        own = super().why_suspect(start, end)
        if own is not None or super().is_proved(start, end):
            return own
        return self._source.data.why_suspect(self._source.start, self._taken)

    def is_proved(self, start: int, end: int) -> bool:
        """Say whether a checksum of this, or of its source, confirmed the bytes."""
        if super().is_proved(start, end):
            return True
        return not self.is_suspect and self._source.data.is_proved(self._source.start, self._taken)

    def same_source(self, path: str) -> bool:
        """Ask the source."""
        return self._source.data.same_source(path)

    def check_unchanged(self) -> None:
        """Check the source."""
        super().check_unchanged()
        self._source.data.check_unchanged()
