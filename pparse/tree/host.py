"""What nodes, parsers and the engine ask of the document that they are part of.

`pparse.document` has the classes that answer; the tree knows these interfaces alone, and imports nothing of them.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import RLock

    from pparse.budget import MemoryBudget
    from pparse.data.base import Data, IoStats
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.tree.index import IndexLedger
    from pparse.tree.node import Node
    from pparse.tree.result import Result
    from pparse.tree.retention import Retention


class Session(Protocol):
    """What all extractions of one document share; `pparse.document.session.Session`."""

    lock: RLock
    budget: MemoryBudget
    limits: Limits
    stats: IoStats
    indexes: IndexLedger
    block_size: int
    closed: bool

    @property
    def options(self) -> Mapping[str, object]:
        """What the caller said of formats: which message a protobuf file holds, say."""

    @property
    def spools(self) -> Scratch:
        """The maker of scratch files."""

    def check_cancelled(self) -> None:
        """Raise `CancelledError` if the caller wants to stop."""

    def new_retention(self) -> Retention:
        """Return the retention policy for one result."""


class Host(Protocol):
    """A named piece of data, which results are made of; `pparse.document.extraction.Extraction`."""

    lock: RLock
    name: str
    data: Data
    start: int
    end: int | None

    @property
    def session(self) -> Session:
        """What it shares with the other extractions of its document."""

    @property
    def path(self) -> str:
        """Names from the outermost extraction to this one."""

    @property
    def size(self) -> int | None:
        """Bytes that it is said to have; None while unknown."""

    @property
    def reader(self) -> Range:
        """A new reader of its bytes."""

    def known_end(self, node: Node | None = None) -> int:
        """Return where its bytes (or those of ``node``) end in fact."""

    def parse(self) -> Result:
        """Return what the best parser makes of it."""

    def confirm(self) -> None:
        """Compare checksums that cost little, before values are given."""
