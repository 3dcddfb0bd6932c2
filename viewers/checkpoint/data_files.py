"""The data files of a TensorBundle: which there are, what is missing, and where their downloads go on."""

from __future__ import annotations

from errno import ENOENT

from pparse.document.opening import Resume
from pparse.errors import EndOfDataError, SourceError
from pparse.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.tensors.extent import Extent

MAX_SHARDS: Final = 1 << 20
# With more data files than these, only those are opened that the folder has.
_MANY: Final = 1_000
_FILE_BYTES: Final = 1_000


class DataFiles:
    """The data files beside an index, each opened when it is first asked for."""

    def __init__(self, index: Extraction, count: Callable[[], int], name_of: Callable[[int], str]) -> None:
        """``count`` tells how many there are (0: not known), ``name_of`` how one is called, by its number."""
        self._index = index
        self._count = count
        self.name_of = name_of
        self._files: dict[int, Extraction | Finding] = {}
        self._charge = index.session.budget.charge(0, "the list of the data files")
        self._listed: frozenset[str] | None = None
        self._unreadable: set[int] = set()
        self._needed: dict[int, int] = {}

    def open(self, shard: int) -> Extraction | Finding:
        """Return a data file, or why it cannot be read."""
        found = self._files.get(shard)
        if found is not None:
            return found
        count, source = self._count(), self._index.name
        if count and shard >= count:  # not kept: each entry may name another one
            return Finding("missing", f"it is in data file {shard}, and there are {count}", source=source)
        name = self.name_of(shard)
        self._charge.resize(self._charge.amount + _FILE_BYTES)
        try:
            if len(self._files) >= _MANY and self._names_there and name not in self._names_there:
                raise SourceError("the folder does not have it", errno=ENOENT)
            found = self._index.sibling(name)
            found.known_end()  # a file is opened when it is asked
        except (SourceError, EndOfDataError) as error:
            reason = f"{name} is not there"
            if isinstance(error, SourceError) and error.errno != ENOENT and self._index.folder is not None:
                reason = f"{name} cannot be read: {error.reason}"
                self._unreadable.add(shard)
            found = Finding("missing", reason, source=source)
        self._files[shard] = found
        return found

    def need(self, shard: int, end: int) -> None:
        """Note that a tensor in a data file, which is there, ends at ``end``."""
        self._needed[shard] = max(self._needed.get(shard, 0), end)

    @property
    def _names_there(self) -> frozenset[str]:
        """The names of the files in the folder, so that not each of very many is opened; none if they are not known."""
        if self._listed is None:
            folder = self._index.folder
            try:
                self._listed = frozenset((folder.names() if folder is not None else None) or ())
            except SourceError:
                self._listed = frozenset()
        return self._listed

    def there(self) -> Iterator[tuple[str, Extraction]]:
        """Yield those that are there, by name."""
        count = self._count()
        many = count > _MANY and self._names_there
        for shard in range(min(count, MAX_SHARDS)):
            name = self.name_of(shard)
            file = None if many and name not in self._names_there else self.open(shard)
            if file is not None and not isinstance(file, Finding):
                yield name, file

    def missing(self) -> Iterator[tuple[int, str]]:
        """Yield number, and why it cannot be read, of each that was asked for and is not there."""
        count = self._count()
        for shard, file in sorted(self._files.items()):
            if isinstance(file, Finding) and (not count or shard < count):
                yield shard, file.reason

    def path_of(self, name: str) -> str:
        """Return the path of a file beside the index, as the caller who opened it would write it."""
        folder = self._index.folder
        return name if folder is None else folder.path_of(name)

    def add_to(self, extent: Extent) -> None:
        """Add to an extent how large the files are and should be, and where their downloads go on."""
        extent.actual, extent.expected = extent.actual or 0, extent.expected or 0
        for shard, needed in sorted(self._needed.items()):
            file = self._files[shard]
            if not isinstance(file, Finding):
                there = file.known_end() - file.start
                extent.actual += there
                extent.expected += max(needed, there)
                if needed > there:
                    extent.cut_files += 1
                    extent.resume.append(Resume(self.path_of(self.name_of(shard)), there))
        for shard, _ in self.missing():
            extent.missing_files += 1
            extent.at_least = True
            if shard not in self._unreadable:  # to fetch it again would not help
                extent.resume.append(Resume(self.path_of(self.name_of(shard)), 0))
