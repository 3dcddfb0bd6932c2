"""`Session`: what all extractions of an opened document share: budget, descriptors, counters, limits, registry."""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager

from pparse.budget import MemoryBudget
from pparse.compressed.env import DecodeEnv
from pparse.data.base import BytesData, Data, Distance, IoStats
from pparse.data.files import DescriptorPool, open_file
from pparse.errors import CancelledError
from pparse.limits import Limits
from pparse.locking import RLock
from pparse.tree.index import IndexLedger, KeptBlock, Retention

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from pparse.data.scratch import Scratch
    from pparse.document.registry import Registry

    # called with (bytes done, bytes in all or None, what is going on)
    Progress = Callable[[int, int | None, str], None]


class Session:
    """Shared state of one document. Closing it closes every source that it opened."""

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
        progress: Progress | None = None,
        cancel: Callable[[], bool] | None = None,
        stats: IoStats | None = None,
        block_size: int = 0,
    ) -> None:
        self.lock = RLock()  # see `pparse.locking`
        self.registry = registry
        """Which parsers and viewers there are."""
        self.budget = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
        """Memory of the document."""
        self.limits = limits or Limits()
        """Limits of the document."""
        self.options = dict(options or {})
        """Options of formats."""
        self.retain = retain
        """Bytes of nodes that stay alive although nobody holds them."""
        self.include = include
        """Path patterns of those nodes; empty: all."""
        self.exclude = exclude
        """Path patterns of other nodes."""
        self.scratch = scratch
        """Folder for scratch files; None: none are made."""
        self.progress = progress
        """Called with the progress of long work."""
        self.cancel = cancel
        """Asked between blocks whether to stop."""
        self.stats = stats or IoStats()
        """Counts what sources served."""
        self.pool = DescriptorPool(self.limits.open_files)
        """Open files of the document."""
        self._spools: Scratch | None = None
        self.block_size = block_size
        """Size of scan blocks; 0: adaptive. Tests set 1 or 7."""
        self.closed = False
        """Whether `close` was called."""
        self.source: Data | None = None
        """The open file, for reports of progress."""
        self.doing = "reading"
        """What is being done with it, in words; empty: do not report."""
        self._told = 0
        self.kept_block = KeptBlock(self.budget)
        """The block that was read last."""
        self.indexes = IndexLedger(self.budget)
        """Accounts for the indexes of all nodes."""
        self.opened: Any = None
        """What `pparse.open` was given (a `pparse.document.opening.Opened`); None: it was not opened by that."""
        self.let_go: Callable[[], object] | None = None
        """What closing does instead, in a document that is shared by handles."""
        self.given: weakref.WeakValueDictionary[str, Data] = weakref.WeakValueDictionary()
        """Files of a `pparse.Folder` that the caller gave, by name, as far as they are open."""
        self.expected: dict[str, object] = {}
        """What identifies those files, according to a handle."""
        self._sources: weakref.WeakSet[Data] = weakref.WeakSet()
        self._retentions: weakref.WeakSet[Retention] = weakref.WeakSet()

    def adopt(self, data: Data) -> Data:
        """Close ``data`` when the document is closed; return it."""
        with self.lock:
            self._sources.add(data)
        return data

    def take(
        self, source: Any, name: str | None = None, *, owned: bool = False, distance: Distance = Distance.NEAR
    ) -> Data:
        """Return ``source`` (a `Data`, bytes, a binary file object or a path) as data that the document closes.

        Far data get a cache; ``distance`` is that of a file object. One that cannot seek, such as a pipe, is read to
        its end first, into a scratch file: there is no other way to read it. A `Data` or file object is closed only if
        it is ``owned``. Raises `SourceError`, `LimitError`, and TypeError for anything else.
        """
        if isinstance(source, bytes | bytearray | memoryview):
            return self.adopt(BytesData(source, name or "<bytes>", self.stats))
        if isinstance(source, str | os.PathLike):
            return self.adopt(open_file(source, self.pool, self.stats))
        if isinstance(source, Data):
            return self._near(self.adopt(source) if owned else source)
        if hasattr(source, "read"):
            from pparse.data.file_object import StreamData, can_seek

            if not can_seek(source):
                return self.adopt(self._spooled(source, name or str(getattr(source, "name", "<stream>")), owned=owned))
            stats = self.stats if distance is Distance.NEAR else None  # the cache counts
            data = self.adopt(StreamData(source, name, stats, owned=owned))
            data.distance = distance
            return self._near(data)
        raise TypeError(
            f"cannot open a {type(source).__name__}: pass a path, bytes, a binary file, a Data or a list of them"
        )

    def _spooled(self, stream: Any, name: str, *, owned: bool) -> Data:
        """Return what a stream gives, in a scratch file: in the folder for these, or else that of the system."""
        import tempfile

        from pparse.data.file_object import SpooledData, spooled
        from pparse.data.scratch import Scratch

        def tell(count: int) -> None:
            self.check_cancelled()
            if self.progress is not None:
                self.progress(count, None, self.doing)

        scratch = self.spools
        if self.scratch is None:
            scratch = Scratch(tempfile.gettempdir(), self.limits.scratch_bytes)
        try:
            return SpooledData(spooled(stream, name, scratch, tell), name, self.stats)
        finally:
            if owned:
                stream.close()

    def _near(self, data: Data) -> Data:
        """Return ``data``, with a cache in front of it if it is far away."""
        if data.distance is Distance.NEAR:
            return data
        from pparse.data.block_cache import BlockCache

        return data if isinstance(data, BlockCache) else self.adopt(BlockCache(data, self.budget, self.stats))

    def sources(self) -> list[Data]:
        """Return the data that the document opened and that are still in use."""
        with self.lock:
            return list(self._sources)

    def new_retention(self) -> Retention:
        """Return a new retention policy, for one result."""
        retention = Retention(self.budget, self.retain, self.include, self.exclude)
        self._retentions.add(retention)
        return retention

    @property
    def spools(self) -> Scratch:
        """Makes scratch files, in the folder that the caller named, if any."""
        with self.lock:
            if self._spools is None:
                from pparse.data.scratch import Scratch

                self._spools = Scratch(self.scratch, self.limits.scratch_bytes)
            return self._spools

    @property
    def env(self) -> DecodeEnv:
        """What decoding may use: memory, limits and scratch files of the document; it is interrupted with it."""
        return DecodeEnv(self.budget, self.limits, self.spools, self.check_cancelled)

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the caller wants to stop; report how far in the file reading has come.

        Called often by all long work. Cheap if nothing was read since the last call.
        """
        if self.cancel is not None and self.cancel():
            raise CancelledError("cancelled by the caller")
        if self.progress is not None and self.stats.reads != self._told and self.doing:
            self._told = self.stats.reads
            if self.source is not None and self.source.place < (self.source.size or 1 << 63):
                self.progress(self.source.place, self.source.size, self.doing)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Leave reports of progress to the caller in the block."""
        before, self.doing = self.doing, ""
        try:
            yield
        finally:
            self.doing = before

    def close(self) -> None:
        """Close every source; nodes and tensors of the document raise `ClosedError` from here on.

        A document that was opened for handles is closed with the last object made of it (docs/handles.md).
        """
        if self.let_go is not None:
            self.let_go()
            return
        self.closed = True  # first: those that wait for the lock must see it
        with self.lock:
            for data in self.sources():
                data.close()
            for retention in list(self._retentions):
                retention.clear()
            self.kept_block.drop()
