"""The tensors of a model in several files: an index with its shards, a folder of them, or the files alone."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_left
from itertools import chain

from pparse.document.extraction import extraction_of
from pparse.document.opening import Resume
from pparse.errors import DataError, LimitError, SourceError
from pparse.findings import Finding, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.limits import count_words
from pparse.tensors.parts import is_absent, why_absent
from pparse.tensors.status import Extent
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.index import ranked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.limits import Charge
    from pparse.parsers.shards import ShardIndexParser, ShardSet

# Up to this many names are tracked with the number of shards that have them.
_MAX_OTHERS: Final = 100_000
# So many names are searched in all shards before it is noted which one has which.
_SEARCHES: Final = 2
# Memory of a name in a `ShardTable` while it is made.
_TABLE_ROW: Final = 40
# A name that ends as those do that come again, and memory of one.
_NUMBERED: Final = lazy_pattern(r"#[0-9]{1,9}\Z")
_TAKEN: Final = 100


class ShardSetViewer(Viewer):
    """A mapping of tensor names to tensors over all shards: base of those of each format."""

    is_set = True
    counts_itself = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: ShardSet = extraction.parse().parser  # type: ignore[assignment]
        self._last: tuple[str, Any] | None = None
        self._resolved = False
        self._searches = 0  # how often shards were gone through for a name
        self._homes: tuple[ShardTable, int, Charge] | None = None  # of each name, as of so many discoveries
        self._taken: tuple[set[int], Charge] | None = None  # hashes of names that are `_NUMBERED`

    def shard_viewer(self, name: str) -> Any:
        """Return the viewer of one shard. Raises the error of opening it."""
        if self._last is not None and self._last[0] == name:
            return self._last[1]
        viewer = self.open_shard(self.parser.shard(name))
        self._last = (name, viewer)
        if self._resolved:
            self.resolve_shard(name, viewer)
        return viewer

    def resolve_shard(self, name: str, viewer: Any) -> None:
        """Find out what the statuses of the tensors of one shard depend on."""
        viewer.resolve_all()

    @abstractmethod
    def open_shard(self, shard: Extraction) -> Any:
        """Return the viewer of ``shard``. Raises `FormatError` if it is not one."""

    def _note(self, code: str, reason: str, severity: Severity = Severity.ERROR, **where: Any) -> Finding:
        finding = Finding(code, reason, severity=severity, source=self.extraction.name, **where)
        self.findings.add(finding)
        return finding

    def resolve_all(self) -> None:
        """From now on, read the header of each shard in full before its tensors are listed."""
        self._resolved, self._last = True, None

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors shard by shard, then those that the index names and no shard has."""
        extent = self.new_extent()
        yield from self._all_tensors(extent)
        self.close_extent(extent)

    def _all_tensors(self, extent: Extent) -> Iterator[Tensor]:
        parser = self.parser
        names = parser.shard_names()
        table = ShardTable(parser.weight_map(), names) if parser.has_map else None
        if parser.index is not None and table is None:
            self._note("no-weight-map", "the index has no weight_map object: it names no tensors")
        if parser.is_alone:
            yield from self._unread(extent)
            return
        others: dict[int, int] = {}  # hashes of names found in other shards than the index says, with counts
        missing: dict[str, Finding] = {}
        for number, name in parser.in_order():
            try:
                viewer = self.shard_viewer(name)
            except (DataError, SourceError) as error:
                extent.missing_files += 1
                # Only a missing file can be fetched; a download mends neither a wrong file in its place nor a bad name.
                missing[name] = self._note("missing-shard", why_absent(name, error), path=name)
                if is_absent(error):
                    extent.resume.append(Resume(self.extraction.path_beside(name), 0))
                continue
            cut_before = extent.at_least
            extent.at_least = False
            yield from self._shard_tensors(number, viewer, table, names, extent, others)
            if extent.at_least:  # its header is cut: which tensors it names is unknown
                what = f"{name} is cut: what it has besides these is not known"
                missing[name] = self._note("truncated", what, path=name)
            extent.at_least |= cut_before
        if table is not None and not table.all_seen:
            for tensor in self._unseen(table, missing):
                extent.add(tensor)
                yield tensor
        for name in parser.extra_files():
            self._note("extra-shard", "a shard that the index does not name", Severity.WARNING, path=name)

    def _unread(self, extent: Extent) -> Iterator[Tensor]:
        """Yield what the map names if the shards are not looked for."""
        finding = self._alone()
        for name, _ in self.parser.weight_map():
            tensor = self._unread_tensor(name, finding, Status.UNSUPPORTED)
            extent.add(tensor)
            yield tensor

    def _unread_tensor(self, name: str, finding: Finding, status: Status = Status.MISSING) -> Tensor:
        return Tensor(name, None, UNKNOWN_SHAPE, (), status=status, finding=finding, owner=self)

    def _alone(self) -> Finding:
        reason = "its shards were not read, as it does not lie in a folder; open them one by one"
        return self._note("shards-not-read", reason, Severity.NOTE)

    def _note_unnamed(self, index: ShardIndexParser, status: Status) -> None:
        """Report shards in the folder that the damaged index no longer names."""
        end = index.result.extraction.find_end()
        source = extraction_of(index.result).name
        where = f"ends early: resume its download at byte {end}" if status is Status.TRUNCATED else "is damaged"
        unnamed = index.unnamed_shards()
        names = ", ".join(unnamed[:3]) + ", …" * (len(unnamed) > 3)
        verb = "is" if len(unnamed) == 1 else "are"
        reason = (
            f"the index {where}; {count_words(len(unnamed), 'shard')} that it does not name ({names}) {verb} beside "
            f"it, and {verb} shown too"
        )
        self.findings.add(Finding("extra-shard", reason, source=source, offset=end))

    def _shard_tensors(
        self,
        number: int,
        viewer: Any,
        table: ShardTable | None,
        names: list[str],
        extent: Extent,
        others: dict[int, int],
    ) -> Iterator[Tensor]:
        own, name, index = viewer.new_extent(), names[number], self.parser.index
        unnamed = index.unnamed_shards() if index is not None else []
        for tensor in viewer.tensors():
            own.add(tensor)
            if table is None:
                self._rename(tensor, None, others)
            else:
                place = table.see(tensor.name)
                if place is None:
                    self._rename(tensor, None, others)
                    if name not in unnamed:
                        self._attach(tensor, "unmapped", f"{name} has this tensor, but the index does not name it")
                elif place != number:
                    where = repr(names[place]) if place >= 0 else "no shard"
                    self._rename(tensor, names[place] if place >= 0 else None, others)
                    self._attach(tensor, "misplaced", f"{name} has this tensor, but the index says it is in {where}")
            yield tensor
        own = viewer.close_extent(own)
        extent.add_all(own)
        for finding in viewer.findings:
            self.findings.add(finding)
        if own.missing_bytes:
            extent.cut_files += 1
            self.findings.add(viewer.truncation(own))
        if own.resume_at is not None:
            extent.resume.append(Resume(self.extraction.path_beside(name), own.resume_at, hole=bool(own.unwritten)))
        self.let_go(viewer)

    def let_go(self, viewer: Any) -> None:
        """Forget what was read of a shard, unless its nodes are in use: it is read again when needed.

        There may be 5,000 shards.
        """
        result = viewer.extraction.results.get(viewer.format)
        if result is not None and not result.root._kids:
            viewer.extraction.results.clear()
            viewer.extraction.children.clear()

    def _rename(self, tensor: Tensor, mapped: str | None, others: dict[int, int]) -> None:
        """Name a tensor ``name#2`` if it is not where the index says and another one has its name."""
        name, number = tensor.name, hash(tensor.name)
        before = others.get(number)
        if before is None:
            if len(others) >= _MAX_OTHERS:
                return
            before = int(mapped is not None and self._in_shard(mapped, name) is not None)
        others[number] = self._next_number(name, before) if before else 1
        if before:
            tensor.name = f"{name}#{others[number]}"

    def _next_number(self, name: str, before: int) -> int:
        """Return the number of a name that comes again, behind ``before``: no tensor is called ``name#number``."""
        if self._taken is None:
            found, charge = set[int](), self.extraction.session.budget.charge(0, "names that end in a number")
            try:
                for other, _ in chain(self._names_in_shards(), self.parser.weight_map()):
                    if _NUMBERED.search(other):
                        found.add(hash(other))
                        charge.resize(_TAKEN * len(found))
            except BaseException:
                charge.release()
                raise
            self._taken = found, charge
        number = before + 1
        while hash(f"{name}#{number}") in self._taken[0]:
            number += 1
        return number

    def _in_shard(self, shard: str, name: str) -> Tensor | None:
        try:
            return self.shard_viewer(shard).find(name)  # type: ignore[no-any-return]
        except (DataError, SourceError):
            return None

    def _attach(self, tensor: Tensor, code: str, reason: str) -> None:
        if tensor.finding is None:
            tensor.finding = self._note(code, reason, Severity.WARNING, path=tensor.name)
        else:
            self.findings.add(tensor.finding)

    def _unseen(self, table: ShardTable, missing: dict[str, Finding]) -> Iterator[Tensor]:
        """Yield what the map names and no shard has."""
        for name, shard in self.parser.weight_map():
            if table.seen(name):
                continue
            finding = missing.get(shard) if shard is not None else None
            if finding is None:
                finding = self._note("stale-entry", _stale(shard), path=name)
            yield self._unread_tensor(name, finding)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name from the shard that the index names, or from any other that has it."""
        parser = self.parser
        shard = parser.map_lookup(name)
        if shard is not None and parser.is_alone:
            return self._unread_tensor(name, self._alone(), Status.UNSUPPORTED)
        if shard is not None:
            try:
                tensor: Tensor | None = self.shard_viewer(shard).find(name)
            except (DataError, SourceError) as error:
                told = Finding("missing-shard", why_absent(shard, error), path=name, source=self.extraction.name)
                return self._unread_tensor(name, told)
            if tensor is not None:
                return tensor
        for candidate in self._shards_with(name):
            tensor = self._in_shard(candidate, name)
            if tensor is not None:
                return tensor
        tensor = self._find_other(name)
        if tensor is not None:
            return tensor
        if shard is not None:
            finding = Finding("stale-entry", _stale(shard), path=name, source=self.extraction.name)
            return self._unread_tensor(name, finding)
        return None

    def _shards_with(self, name: str) -> Iterator[str]:
        """Yield the shards that may have a name, in order: all of them, until it pays to note what each has."""
        if self._homes is None and self._searches == _SEARCHES:
            self._note_homes()
        self._searches += 1
        if self._homes is not None and self._knows_homes():
            names = self.parser.shard_names()
            yield from (names[number] for number in self._homes[0].shards_of(name))
        else:
            yield from (shard for _, shard in self.parser.in_order(alone=1))

    def _knows_homes(self) -> bool:
        """Return whether it is noted which shards have which names, and nothing was learned since: names, perhaps."""
        return self._homes is not None and self._homes[1] == self.extraction.session.stats.discoveries

    def _note_homes(self) -> None:
        """Go through all shards, and note which names each has."""
        charge = self.extraction.session.budget.charge(0, "the shard of each name")

        def counted() -> Iterator[tuple[str, str]]:
            for count, pair in enumerate(self._names_in_shards(), 1):
                if not count & 0x3FF:
                    charge.resize(_TABLE_ROW * (count + 0x400))
                yield pair

        try:
            table = ShardTable(counted(), self.parser.shard_names())
        except LimitError:
            charge.release()
            return
        self._homes = table, self.extraction.session.stats.discoveries, charge

    def _names_in_shards(self) -> Iterator[tuple[str, str]]:
        for _, shard in self.parser.in_order():
            try:
                viewer = self.shard_viewer(shard)
            except (DataError, SourceError):  # it has none
                continue
            for tensor in viewer.tensors():
                yield tensor.name, shard
            self.let_go(viewer)

    def _find_other(self, name: str) -> Tensor | None:
        """Return the tensor ``name#2`` (or 3 …): the second one, if several shards have the name."""
        base, mark, number = name.rpartition("#")
        if not (mark and number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 1):
            return None
        mapped = self.parser.map_lookup(base)
        shards = sorted(self._shards_with(base), key=lambda shard: shard != mapped)  # the right one first
        left = last = 1
        while last < int(number) and left < len(shards):
            left, last = left + 1, self._next_number(base, last)
        if last != int(number):
            return None
        if self._knows_homes():
            shards, left = shards[left - 1 : left], 1
        for shard in shards:
            tensor = self._in_shard(shard, base)
            left -= tensor is not None
            if tensor is not None and not left:
                tensor.name = name
                return tensor
        return None

    def size_hint(self) -> int | None:
        """Return the number of tensors that the index names."""
        return self.parser.map_size()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the index; without an index, those of the first shard."""
        found = self.parser.index_metadata()
        if not found and not self.parser.has_map:
            for name in self.parser.shard_names()[:1]:
                try:
                    return self.shard_viewer(name).metadata  # type: ignore[no-any-return]
                except (DataError, SourceError):
                    return {}
        return found

    def metadata_of_parts(self) -> Iterator[Mapping[str, Any]]:
        """Yield the metadata of each shard that can be read."""
        for name in self.parser.shard_names():
            try:
                yield self.shard_viewer(name).metadata
            except (DataError, SourceError):  # what is wrong with it is a finding
                continue

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check each shard by the rules of its own viewer, and yield each finding as it is made."""
        seen = 0
        for number, _ in enumerate(chain(self.tensors(), self._check_shards(strict=strict), (None,))):
            while seen < len(self.findings) - self.findings.omitted:
                yield self.findings[seen]
                seen += 1
            if not number & 0xFFF:
                self.extraction.session.check_cancelled()

    def _check_shards(self, *, strict: bool) -> Iterator[None]:
        """Check each shard, and add what is found."""
        rules = set()
        for name in self.parser.shard_names():
            try:
                viewer = self.shard_viewer(name)
            except (DataError, SourceError):
                continue  # listing the tensors told it
            for finding in viewer.check(strict=strict):
                self.findings.add(finding)
                yield
            rules.add(viewer.rules)
        self.rules = rules.pop() if len(rules) == 1 else ""

    def _flawed(self) -> Iterator[tuple[int, int]]:
        """Yield nothing: each shard says of itself where its bytes are damaged."""
        yield from ()

    def new_extent(self) -> Extent:
        """Return an empty extent."""
        return Extent(0, 0, self.extraction.session.stats.discoveries)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: compare the index's total size."""
        index = self.parser.index
        if extent.missing_files:
            extent.at_least = True
            if not self.parser.has_map:  # else the tensors that it names show what is lost
                extent.worsen(Status.TRUNCATED)
        if index is not None and (status := index.text_status()) is not Status.COMPLETE:
            extent.document_status = status
            for finding in index.json.findings:
                self.findings.add(finding)
            if index.unnamed_shards():
                self._note_unnamed(index, status)
            if status is Status.TRUNCATED:
                source = extraction_of(index.result)
                path = source.name if source.parent is None else self.extraction.path_beside(source.name)
                extent.resume.append(Resume(path, source.find_end()))
        promised = self.parser.index_metadata().get("total_size")
        known = not extent.missing_files and not extent.at_least and not self.parser.is_alone
        if known and type(promised) is int and promised != extent.tensor_bytes:
            reason = "the index's total_size is not the sum of its tensors' bytes"
            self._note("total-size", reason, Severity.WARNING, wanted=promised, got=extent.tensor_bytes)
        return self.keep_extent(extent)


def _stale(shard: str | None) -> str:
    """Return what is wrong with an entry of an index whose tensor no shard has."""
    if shard is None:
        return "the index names no shard for it"
    return f"the index says it is in {shard!r}, which has no such tensor"


# -- `ShardTable`: which shard a tensor is mapped to -------------------------------------------------------------------


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

    def shards_of(self, name: str) -> list[int]:
        """Return the numbers of the shards that a name was given with, or another one of its hash, in order."""
        slot, found = self._slot(name), []
        while slot is not None and slot < len(self._hashes) and self._hashes[slot] == hash(name):
            found.append(self._shards[slot])
            slot += 1
        return sorted(found)

    def _slot(self, name: str) -> int | None:
        wanted = hash(name)
        slot = bisect_left(self._hashes, wanted)
        return slot if slot < len(self._hashes) and self._hashes[slot] == wanted else None
