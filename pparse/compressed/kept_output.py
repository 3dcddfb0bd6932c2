"""Which output of a compressed stream is kept, so that it need not be decoded again: `KeptOutput`."""

from __future__ import annotations

from pparse.codecs.output_cache import OutputCache
from pparse.data.scratch import no_scratch
from pparse.errors import PparseError
from pparse.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from pparse.compressed.environment import DecodeEnv
    from pparse.data.scratch import Spool

# The latest output that is kept (a sixteenth of a small budget).
_CACHE: Final = 4 * MIB
_LEAST_CACHE: Final = 64 * KIB
# How often all may be decoded again by a codec that cannot go back, without a scratch file, for a reader that keeps
# what it comes back to, and so goes forwards but for a few times.
_MOST_AGAIN: Final = 8


class KeptOutput:
    """The latest output, and what somebody wants to come back to; or all of it, in memory or in a scratch file.

    Whether it is all is the restart policy: see `prepare_restart`.
    """

    __slots__ = ("_aside", "_env", "_latest", "_whole", "limit", "spool")

    def __init__(self, env: DecodeEnv) -> None:
        self._env = env
        self.limit = min(_CACHE, max(env.budget.limit // 16, _LEAST_CACHE))  # bytes of the latest that are kept
        self._latest = OutputCache(env.budget, self.limit, 0)
        self._whole: OutputCache | None = None
        self._aside: OutputCache | None = None
        self.spool: Spool | None = None

    @property
    def is_all(self) -> bool:
        """Whether all output is kept, from the very start on."""
        return self.spool is not None or self._whole is not None

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; none if they are not here."""
        if self.spool is not None and offset < self.spool.size:
            return self.spool.pread(offset, min(length, _CACHE))
        for kept in (self._whole, self._aside):
            if kept is not None and (found := kept.read(offset, length)):
                return found
        return self._latest.read(offset, length)

    def begin(self, out: int) -> None:
        """Forget the latest: what comes next begins at byte ``out``."""
        self._latest = OutputCache(self._env.budget, self.limit, out)

    def set_aside(self, kept: OutputCache) -> None:
        """Keep what somebody wants to come back to, instead of what that was before."""
        self._aside = kept

    def add(self, block: bytes, before: int) -> None:
        """Keep ``block``, which ``before`` bytes precede. Raises what writing to the scratch file raises."""
        if self.spool is not None:
            if self.spool.size == before:
                self._append(self.spool, block)
            return
        if self._whole is not None and (self._whole.end != before or (before and not self._whole.covers(0))):
            self._whole = None  # it had to go
        if self._whole is not None:
            self._whole.add(block)
        else:
            if self._latest.end != before:
                self.begin(before)
            self._latest.add(block)

    def _append(self, spool: Spool, block: bytes) -> None:
        try:
            spool.append(block)
        except PparseError:
            self.spool = None
            spool.close()
            raise

    def prepare_restart(self, codec: str, size: int | None, skipped: int, redone: int, furthest: int) -> bool:
        """Choose how a codec without saved states goes back: return whether that must be to the very start.

        ``skipped`` bytes would be decoded in vain, ``redone`` of ``furthest`` bytes were already. An output of a known
        ``size`` that is small is kept whole from now on; else, what would be decoded too often goes to a scratch file.
        Raises `LimitError` if there is none.
        """
        env = self._env
        if self.spool is not None:
            return True  # it was interrupted; what is spooled already stays
        if size is not None and size <= env.budget.limit // 4:
            self._whole = OutputCache(env.budget, size, 0)
            return True
        if env.scratch is None or env.scratch.folder is None:
            if redone < (1 if self._aside is None else _MOST_AGAIN) * furthest:
                return False
        elif redone + skipped <= furthest // 2:
            return False
        if env.scratch is None:
            raise no_scratch(f"seeking back repeatedly in {codec} data")
        self.spool = env.scratch.spool()
        return True

    def close(self) -> None:
        """Give back memory and scratch space."""
        self._whole = self._aside = None
        self.begin(0)
        if self.spool is not None:
            self.spool.close()
            self.spool = None
