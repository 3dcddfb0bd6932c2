"""`ShardSet`: a model in several files, whatever their format and however it is known which they are."""

from __future__ import annotations

import re

from pparse.data.base import Distance
from pparse.document.extraction import extraction_of
from pparse.errors import PparseError
from pparse.findings import Status
from pparse.tree.container import Container
from pparse.tree.entry import LIST, MAP, Entry
from pparse.tree.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.shards.index import ShardIndexParser
    from pparse.tree.context import NodeContext

# Of far shards: how many are opened at once, how much of each is read first, and how long a header is read in advance.
_AT_ONCE: Final = 64
_FIRST: Final = 64 << 10
_LONGEST: Final = 4 << 20
# So many bytes tell how long a header is.
_HEAD: Final = 8


class ShardSet(Parser, Container):
    """Base of the parsers of a model in several files: by an index, by a folder, or by their names alone."""

    is_set = True

    shapes = {"shards": MAP, "object": MAP, "array": LIST}

    @property
    def index(self) -> ShardIndexParser | None:
        """The parser of the index, if there is one."""
        return None

    def shard_names(self) -> list[str]:
        """Return the names of the shards, each once, in order of first mention."""
        return []

    def weight_map(self) -> Iterator[tuple[str, str | None]]:
        """Yield ``(tensor name, shard name)`` from the index; the shard is None if it is not a string."""
        yield from ()

    @property
    def has_map(self) -> bool:
        """Whether there is an index that maps tensors to shards."""
        return False

    def index_metadata(self) -> dict[str, Any]:
        """Return the metadata of the index."""
        return {}

    def map_lookup(self, name: str) -> str | None:
        """Return the shard that the index names for a tensor."""
        return None

    def map_size(self) -> int | None:
        """Return the number of tensors that the index names."""
        return None

    def extra_files(self) -> list[str]:
        """Return files in the folder that look like shards, but are not named by the index."""
        return []

    @property
    def is_alone(self) -> bool:
        """Whether it lies in no folder, so that shards cannot be looked for."""
        return extraction_of(self.result).folder is None

    def shard(self, name: str) -> Extraction:
        """Return the extraction of one shard. Raises `PathError` if the name leaves the folder, and `SourceError`."""
        return extraction_of(self.result).sibling(name)

    @property
    def home(self) -> Extraction:
        """What the shards lie beside."""
        return extraction_of(self.result)

    def fetch_ahead(self, names: Sequence[str], number: int, fetched: int) -> int:
        """If shards are far away, open them from ``number`` on at once, and read their headers.

        ``fetched`` is what the last call returned: the number of the first shard that was not fetched yet.
        """
        home = self.home
        if number < fetched:
            return fetched
        if not fetched and not _is_far(home):  # what tells it is the folder, or the shard before
            folder = None if number else home.folder
            before = home.children.get(names[number - 1]) if number else None
            if not _is_far(before) and (folder is None or folder.distance is Distance.NEAR):
                return fetched
        from pparse.data.parallel import in_parallel

        budget = home.session.budget
        last = number + max(1, min(_AT_ONCE, budget.limit // 8 // _FIRST))
        heads = home.fetch_siblings(names[number:last])
        sizes = [size or 0 for size, _ in in_parallel(self._read_length, heads)]
        room, rest = budget.limit // 4, []
        for data, size in zip(heads, sizes, strict=True):
            room -= size
            if room >= 0 and size > _FIRST:
                rest.append((data, size))
        in_parallel(_read_head, rest)
        return last

    def head_size(self, first: bytes) -> int:
        """Return how much of a far shard, which begins with ``first``, is read in advance; 0: no more than `_FIRST`."""
        return 0

    def _read_length(self, data: Data) -> int:
        """Read the first bytes of a far shard; return where its header ends, 0 if that is not known, or too far."""
        data.prefetch([(0, _FIRST)])
        end = self.head_size(data.pread(0, _HEAD))
        return end if end <= _LONGEST else 0

    def enter(self, name: str) -> Extraction | None:
        """Return the shard ``name``."""
        return self.shard(name) if name in self.shard_names() else None

    def emit_shards(self, ctx: NodeContext) -> None:
        """Emit every shard file with its size."""
        names = self.shard_names()
        fetched = 0
        for number, name in enumerate(names):
            fetched = self.fetch_ahead(names, number, fetched)
            try:
                size = self.shard(name).size
                ctx.emit(Entry(name, "file", 0, 0, size))
            except PparseError:
                status = Status.UNSUPPORTED if self.is_alone else Status.MISSING
                ctx.emit(Entry(name, "file", 0, 0, None, status=status))


def _is_far(shard: Extraction | None) -> bool:
    return shard is not None and shard.data.distance is Distance.FAR


def _read_head(head: tuple[Data, int]) -> None:
    data, end = head
    data.prefetch([(0, end)])


def template(name: str) -> str:
    """Return a file name with its numbers masked, which is the same for all shards of a model."""
    return re.sub(r"\d+", "#", name)
