"""What all extractions of one opened document share: budget, descriptors, counters, limits, registry."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager

from pparse.budget import MemoryBudget
from pparse.data.base import IoStats
from pparse.data.files import DescriptorPool
from pparse.errors import CancelledError
from pparse.limits import Limits
from pparse.tree.index import IndexLedger
from pparse.tree.retention import Retention

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pparse.data.base import Data
    from pparse.data.scratch import Scratch
    from pparse.document.registry import Registry

    # called with (bytes done, bytes in all or None, what is being done)
    Progress = Callable[[int, int | None, str], None]


class Session:
    """Shared state of one document. Closing it closes every source it opened."""

    def __init__(
        self,
        *,
        registry: Registry,
        budget: int | str | MemoryBudget = "64MiB",
        limits: Limits | None = None,
        options: Mapping[str, object] | None = None,
        retain: float | str = 0,
        include: tuple[str, ...] = (),
        exclude: tuple[str, ...] = (),
        scratch: str | None = None,
        strict: bool = False,
        progress: Progress | None = None,
        cancel: Callable[[], bool] | None = None,
        stats: IoStats | None = None,
        block_size: int = 0,
    ) -> None:
        self.lock = threading.RLock()  # see `pparse.locking`
        self.registry = registry
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        self.limits = limits or Limits()
        self.options = dict(options or {})
        self.retain = retain
        self.include = include
        self.exclude = exclude
        self.scratch = scratch
        self.strict = strict
        self.progress = progress
        self.cancel = cancel
        self.stats = stats or IoStats()
        self.pool = DescriptorPool(self.limits.open_files)
        self._spools: Scratch | None = None
        self.block_size = block_size  # 0: adaptive; tests set 1 or 7
        self.closed = False
        # The file that is open, and what is done with it: what `check_cancelled` tells the progress of.
        self.source: Data | None = None
        self.doing = "reading"
        self._told = 0
        self.indexes = IndexLedger(self.budget)
        self._sources: weakref.WeakSet[Data] = weakref.WeakSet()
        self._retentions: weakref.WeakSet[Retention] = weakref.WeakSet()

    def adopt(self, data: Data) -> Data:
        """Close ``data`` when the document is closed."""
        with self.lock:
            self._sources.add(data)
        return data

    def new_retention(self) -> Retention:
        """Return the retention policy for one result."""
        retention = Retention(self.budget, self.retain, self.include, self.exclude)
        self._retentions.add(retention)
        return retention

    @property
    def spools(self) -> Scratch:
        """The maker of scratch files, in the folder that the caller named for them, if any."""
        with self.lock:
            if self._spools is None:
                from pparse.data.scratch import Scratch

                self._spools = Scratch(self.scratch, self.limits.scratch_bytes)
            return self._spools

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the caller wants to stop; tell how far in the file reading has come.

        Called often, from all that may take long. It costs little where nothing was read since the call before.
        """
        if self.cancel is not None and self.cancel():
            raise CancelledError("cancelled by the caller")
        if self.progress is not None and self.stats.reads != self._told and self.doing:
            self._told = self.stats.reads
            if self.source is not None and self.source.place < (self.source.size or 1 << 63):
                self.progress(self.source.place, self.source.size, self.doing)

    @contextmanager
    def telling(self, doing: str = "") -> Iterator[None]:
        """While this lasts, say that ``doing`` is done; nothing by itself, if the caller tells the progress."""
        before, self.doing = self.doing, doing
        try:
            yield
        finally:
            self.doing = before

    def close(self) -> None:
        """Close every source; nodes and tensors of the document raise `ClosedError` from here on."""
        self.closed = True  # at once: who waits for the lock finds it so
        with self.lock:
            for data in list(self._sources):
                data.close()
            for retention in list(self._retentions):
                retention.clear()
