"""`ShardTable`: which shard a tensor is mapped to."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from pparse.tree.key_table import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class ShardTable:
    """Which shard a tensor is mapped to, and whether it was seen: 13 bytes per name.

    Names are stored as 64-bit hashes, keyed by the process so that collisions cannot be constructed.
    """

    __slots__ = ("_hashes", "_seen", "_shards")

    def __init__(self, names: Iterable[tuple[str, str | None]], shards: list[str]) -> None:
        numbers = {name: number for number, name in enumerate(shards)}
        hashes, where = array("q"), array("i")
        for name, shard in names:
            hashes.append(hash(name))
            where.append(numbers.get(shard, -1) if shard is not None else -1)
        self._hashes, ranking = ranked(hashes)
        self._shards = array("i", (where[number] for number in ranking))
        self._seen = bytearray(len(hashes))

    def __len__(self) -> int:
        return len(self._hashes)

    def see(self, name: str) -> int | None:
        """Record that ``name`` was found; return the number of the shard it is mapped to (-1: none).

        None if it is not in the map.
        """
        slot = self._slot(name)
        if slot is None:
            return None
        self._seen[slot] = 1
        return self._shards[slot]

    def seen(self, name: str) -> bool:
        """Return whether `see` was called with this name."""
        slot = self._slot(name)
        return slot is not None and bool(self._seen[slot])

    @property
    def all_seen(self) -> bool:
        """Whether every name was seen."""
        return self._seen.count(1) == len(self._seen)

    def _slot(self, name: str) -> int | None:
        wanted = hash(name)
        slot = bisect_left(self._hashes, wanted)
        return slot if slot < len(self._hashes) and self._hashes[slot] == wanted else None
