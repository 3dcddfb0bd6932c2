"""Records by numeric position, each as a range of bytes: for an index into a Riegeli file. Few chunks are kept open."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from pparse.errors import EndOfDataError, LimitError, MalformedError, PparseError
from pparse.locking import RLock, guard
from pparse.riegeli.chunks import ChunkError, header_size, parse_header
from pparse.riegeli.positions import SkippedRegion
from pparse.riegeli.records import open_records
from pparse.riegeli.search import chunk_at
from pparse.riegeli.sightings import Sightings
from pparse.riegeli.verdicts import Verdicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    from pparse.budget import MemoryBudget
    from pparse.data.reader import Range
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.riegeli.chunks import Chunk
    from pparse.riegeli.reader import RecordReader
    from pparse.riegeli.records import ChunkRecords

# Number of chunks whose record offsets and decoder are kept.
_KEPT: Final = 16
# With verify="touched", the hash of a chunk of at most this many bytes is checked when one of its records is looked up.
_TOUCHED: Final = 4 << 20


class _Tail:
    """What follows the last whole chunk: nothing (``begin`` is the file's end), or ``chunk``, which is cut."""

    __slots__ = ("begin", "chunk")

    def __init__(self, begin: int, chunk: Chunk | None) -> None:
        self.begin = begin
        self.chunk = chunk

    def is_cut(self, size: int) -> bool:
        """Say whether bytes of a chunk are missing; only padding may be."""
        if self.chunk is None:
            return self.begin < size
        return self.chunk.data_end > size


class RecordLookup:
    """Finds records of ``source`` by numeric position: the offset of the chunk plus the index of the record in it.

    A range that was returned stays valid as long as somebody holds it. Its data report what the hash of the chunk says,
    now or later (`pparse.data.base.Data.why_suspect`). Several lookups of one file share ``verdicts`` and
    ``sightings``. ``verify`` is as for `RecordReader`; with "headers", records of a chunk with a wrong hash are
    returned all the same. Safe to use from several threads.
    """

    def __init__(
        self,
        source: Range,
        *,
        verify: str = "touched",
        budget: MemoryBudget,
        limits: Limits | None = None,
        scratch: Scratch | None = None,
        verdicts: Verdicts | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        self.verdicts = Verdicts() if verdicts is None else verdicts
        """Which chunks are known to be sound or damaged."""
        self.lock = RLock()  # the reader has a position, which each record changes
        self._range = source
        self._verify = verify
        self._budget = budget
        self._limits = limits
        self._scratch = scratch
        self.sightings = Sightings() if sightings is None else sightings
        """Headers that searches of this file have found."""
        self._reader = self._new_reader()
        self._cut: Chunk | None = None
        # Chunks of a damaged file that `learn` found, by where they begin; the positions of records lead to them.
        self.known: dict[int, Chunk] = {}
        self._begins: list[int] | None = None
        self._opened: OrderedDict[int, tuple[Chunk, ChunkRecords]] = OrderedDict()

    def _new_reader(
        self, recovery: Callable[[SkippedRegion], object] | None = None, verify: str = "headers"
    ) -> RecordReader:
        from pparse.riegeli.reader import RecordReader

        reader = RecordReader(
            self._range.dup(),
            verify=verify,
            budget=self._budget,
            limits=self._limits,
            scratch=self._scratch,
            recovery=recovery,
        )
        reader._chunks.sightings = self.sightings
        return reader

    def last(self) -> int | None:
        """Return the position of the last record; None if there is none.

        Raise `RiegeliError` if the file is damaged there, and `EndOfDataError` if it is truncated: the last record that
        is left is not the last one that was written.
        """
        reader = self._new_reader()
        reader.check_file_format()
        size = reader.size()
        reader.seek_numeric(size)
        found = reader.seek_back()
        position = reader.pos.numeric if found else None
        tail = self._tail(self._find(position).end if position is not None else 0)
        if tail.is_cut(size):
            reason = f"the file ends inside the chunk at {tail.begin}"
            raise EndOfDataError(reason, offset=size, source=self._range.data.name)
        return position

    def last_found(self) -> int | None:
        """Return the position of the last record that can be found in a damaged file; None if there is none."""
        reader = self._new_reader(lambda _region: True)
        reader.seek_numeric(reader.size())
        return reader.pos.numeric if reader.seek_back() else None

    def learn(self, on_loss: Callable[[SkippedRegion], object], most: int) -> list[tuple[int, int]] | None:
        """Read a whole damaged file and compare every hash; return position and size of each record that is whole.

        Return None if there are more than ``most`` records. The chunks are in ``known`` afterwards, since other readers
        may not find them where bytes moved. ``on_loss`` is called for what was skipped and for damaged headers.
        """

        def told(region: SkippedRegion) -> bool:
            on_loss(region)
            return True

        reader = self._new_reader(told, verify="all")
        found: list[tuple[int, int]] = []
        while True:
            try:
                record = reader.open_record()
            except MalformedError:
                break
            if record is None:
                break
            if len(found) >= most:
                return None
            chunk = reader._chunk
            if chunk is not None:
                self.known[chunk.begin] = chunk
            found.append((reader.last_pos.numeric, len(record)))
        for region in reader.healed:
            on_loss(region)
        self._begins = None
        return found

    def _known_at(self, position: int) -> Chunk | None:
        """Return the chunk that `learn` found for a position."""
        if not self.known:
            return None
        if self._begins is None or len(self._begins) != len(self.known):
            self._begins = sorted(self.known)
        at = bisect_right(self._begins, position) - 1
        chunk = self.known[self._begins[at]] if at >= 0 else None
        return chunk if chunk is not None and position < chunk.begin + chunk.header.num_records else None

    def positions(self, on_loss: Callable[[SkippedRegion], object]) -> Iterator[int]:
        """Yield the positions of all records that can be found; ``on_loss`` is called for what was skipped."""

        def told(region: SkippedRegion) -> bool:
            on_loss(region)
            return True

        reader = self._new_reader(told)
        while True:
            try:
                found = reader.open_record()
            except MalformedError:
                return
            if found is None:
                break
            yield reader.last_pos.numeric
        chunk = self._tail(reader.pos.numeric).chunk
        if chunk is not None:  # of a chunk that is cut, each record that begins before the end
            self._cut = chunk
            try:
                records = self._open(chunk)
            except (PparseError, EOFError):
                return
            there = records.extent()
            for index in range(records.count):
                part = records.range(index)
                if part.start >= there and len(part):
                    return
                yield chunk.begin + index

    def survey(self, on_loss: Callable[[SkippedRegion], object], on_limit: Callable[[LimitError], object]) -> None:
        """Go through the whole file as a recovery does: compare every hash and check every block header.

        ``on_loss`` is called for what was skipped, and for whole chunks with a damaged header in them; ``on_limit`` for
        chunks that cannot be checked within the budget.
        """

        def told(region: SkippedRegion) -> bool:
            on_loss(region)
            return True

        reader = self._new_reader(told, verify="all")
        chunks = reader._chunks
        healed = 0
        while True:
            try:
                if not reader._next_chunk(lazily=True):
                    break
            except LimitError as error:
                on_limit(error)
                chunk = chunks.header(reader._pos)
                if chunk is None:
                    break
                reader._leave(chunk.end)
                continue
            except MalformedError:  # reported already, or by the search for the last record
                break
            for region in reader.healed[healed:]:
                on_loss(
                    SkippedRegion(
                        region.begin, region.end, f"{region.message}; the chunk's data are sound, and no record is lost"
                    )
                )
            # Where bytes moved, other readers may not find the chunk that was compared here.
            if reader._chunk is not None and not reader.healed and chunks.layout_at(reader._pos).shift == 0:
                self.verdicts.note_sound(reader._chunk.begin)
            healed = len(reader.healed)
        for region in reader.healed[healed:]:
            on_loss(
                SkippedRegion(
                    region.begin, region.end, f"{region.message}; the chunk's data are sound, and no record is lost"
                )
            )

    def _tail(self, begin: int) -> _Tail:
        """Return what follows the last whole chunk: nothing, or a chunk that is cut."""
        chunks = self._reader._chunks
        size = self._reader.size()
        while begin < size:
            layout = chunks.layout_at(begin)
            try:
                need = header_size(begin, layout)
                chunk = parse_header(chunks.get(begin, need), begin, layout)
            except ChunkError:
                return _Tail(begin, None)
            if chunk is None or chunk.end > size:
                return _Tail(begin, chunk)
            begin = chunk.end
        return _Tail(begin, None)

    def missing(self) -> int:
        """Return how many bytes of a chunk are cut off by the end of the file, according to its header."""
        tail = self._tail(0)
        size = self._reader.size()
        return tail.chunk.end - size if tail.chunk is not None else 0

    def record(self, position: int) -> Range:
        """Return the record at ``position`` as a range, whose bytes are read on demand.

        Raise `MalformedError` if no record has that position, or if its chunk is damaged; `LimitError` if decoding
        needs more than the budget.
        """
        with self.lock:
            return self._record(position)

    def _record(self, position: int) -> Range:
        for begin, (chunk, records) in self._opened.items():
            if begin <= position < begin + max(1, chunk.header.num_records):
                wrong = self.verdicts.error(begin) if self._verify != "headers" else None
                if wrong is not None:  # found since it was opened
                    raise wrong
                self._opened.move_to_end(begin)
                return self._range_of(records, chunk, position)
        cut = self._cut
        if cut is not None and self.is_cut(position):
            return self._range_of(self._open(cut), cut, position)
        chunk = self._known_at(position) or self._find(position)
        wrong = self.verdicts.error(chunk.begin) if self._verify != "headers" else None
        if wrong is not None:
            raise wrong
        small = chunk.header.data_size <= _TOUCHED
        if self._verify == "all" or (self._verify == "touched" and (small or self._is_suspect(chunk))):
            self._check(chunk)
        records = self._open(chunk)
        self._opened[chunk.begin] = (chunk, records)
        if len(self._opened) > _KEPT:
            self._opened.popitem(last=False)
        return self._range_of(records, chunk, position)

    def there(self, position: int) -> int:
        """Return how many bytes of a record are there, for a record of the chunk that is cut."""
        with self.lock:
            cut = self._cut
            if cut is None or not self.is_cut(position):
                return len(self._record(position))
            records = self._open(cut)
            part = records.range(position - cut.begin)
            return max(0, min(part.end, records.extent()) - part.start)

    def is_cut(self, position: int) -> bool:
        """Say whether a record is in a chunk that is cut, as found by `positions`."""
        cut = self._cut
        return cut is not None and cut.begin <= position < cut.begin + cut.header.num_records

    def _find(self, position: int) -> Chunk:
        reader = self._reader
        size = reader.size()
        if position >= size:
            raise MalformedError("the record position is beyond the end of the file", wanted=position, got=size)
        try:
            chunk, _ = chunk_at(reader, position)
        except MalformedError as error:
            self._reader = self._new_reader()  # a reader keeps its error
            found = self._find_beyond(position)
            if found is None:
                raise error
            return found
        if chunk is None or not chunk.begin <= position < chunk.begin + chunk.header.num_records:
            raise MalformedError("there is no record at this position", wanted=position)
        return chunk

    def _find_beyond(self, position: int) -> Chunk | None:
        """Return the chunk of a position hidden by damage, if it is found and the hash of its data proves it whole."""
        try:
            chunk, _ = chunk_at(self._new_reader(lambda _region: True), position)
            if chunk is None or not chunk.begin <= position < chunk.begin + chunk.header.num_records:
                return None
            self._check(chunk)
        except (PparseError, EOFError):
            return None
        return chunk

    def _is_suspect(self, chunk: Chunk) -> bool:
        """Say whether the file is in doubt where the chunk is. The chunk's own hash is stronger evidence."""
        data, base = self._reader._source.locate(0)
        return data.flawed and data.why_suspect(base + chunk.begin, base + chunk.data_end) is not None

    def _check(self, chunk: Chunk) -> None:
        self.verdicts.check(self._reader._chunks, chunk)

    def _open(self, chunk: Chunk) -> ChunkRecords:
        records = open_records(
            self._reader._source,
            chunk,
            budget=self._budget,
            limits=self._limits,
            scratch=self._scratch,
            verdicts=self.verdicts,
        )
        if records is None:
            raise MalformedError("the chunk at this position holds no records", offset=chunk.begin)
        return records

    def _range_of(self, records: ChunkRecords, chunk: Chunk, position: int) -> Range:
        index = position - chunk.begin
        if index >= records.count:
            raise records.error or MalformedError("the record is lost: its chunk is truncated", offset=position)
        return records.range(index)


guard(RecordLookup, ("is_cut", "last", "learn", "last_found", "missing", "positions", "record", "there"))
