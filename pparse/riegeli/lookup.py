"""`RecordLookup`: records of a Riegeli file by their numeric position, for an index into it."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import OrderedDict

from pparse.errors import EndOfDataError, LimitError, MalformedError, PparseError
from pparse.locking import RLock, guard
from pparse.riegeli.chunks import NOTHING_LOST, ChunkError
from pparse.riegeli.errors import HashMismatchError, InvalidArgumentError
from pparse.riegeli.reader import RecordReader
from pparse.riegeli.records import SkippedRegion, open_records
from pparse.riegeli.salvage import within_cut
from pparse.riegeli.verdicts import TOUCHED, Verdicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.compressed.env import DecodeEnv
    from pparse.data.base import Range
    from pparse.riegeli.chunks import Chunk
    from pparse.riegeli.records import ChunkRecords

    OnLoss = Callable[[SkippedRegion], object]

# Number of chunks whose record offsets and decoder are kept.
_KEPT: Final = 16


class RecordLookup:
    """Finds records of ``source`` by numeric position, for an index into a Riegeli file. Few chunks are kept open.

    The position is the offset of the chunk plus the index of the record in it.
    A range that was returned stays valid as long as somebody holds it. Its data report what the hash of the chunk says,
    now or later (`pparse.data.base.Data.why_suspect`). Several lookups of one file share ``verdicts``.
    ``verify`` is as for `RecordReader`; with "headers", records of a chunk with a wrong hash are returned all the same.
    Safe to use from several threads.
    """

    def __init__(
        self, source: Range, env: DecodeEnv, *, verify: str = "touched", verdicts: Verdicts | None = None
    ) -> None:
        self.verdicts = Verdicts() if verdicts is None else verdicts
        """Which chunks are known to be sound or damaged."""
        self.lock = RLock()  # the reader has a position, which each record changes
        self._range = source
        self._verify = verify
        self._env = env
        self._reader = self._new_reader()
        self._cut: Chunk | None = None
        # Chunks of a damaged file that `learn` found, by where they begin; the positions of records lead to them.
        self.known: dict[int, Chunk] = {}
        self._begins: list[int] | None = None
        self._opened: OrderedDict[int, tuple[Chunk, ChunkRecords]] = OrderedDict()

    def _new_reader(self, on_loss: OnLoss | None = None, verify: str = "headers") -> RecordReader:
        source, env = self._range.dup(), self._env
        given: Any = {"budget": env.budget, "limits": env.limits, "scratch": env.scratch}
        reader = RecordReader(source, recovery=on_loss, verify=verify, **given)
        reader._chunks.sightings = self.verdicts.sightings
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
        position = reader.pos.numeric if reader.seek_back() else None
        begin, chunk = self._tail(self._find(position).end if position is not None else 0)
        if begin < size if chunk is None else chunk.data_end > size:  # more than padding is missing
            found = within_cut(reader._chunks, chunk) if chunk is not None else None
            if found is not None:
                raise InvalidArgumentError(found.message, offset=begin, source=self._range.data.name)
            reason = f"the file ends inside the chunk at {begin}"
            raise EndOfDataError(reason, offset=size, source=self._range.data.name)
        return position

    def last_found(self) -> int | None:
        """Return the position of the last record that can be found in a damaged file; None if there is none."""
        reader = self._new_reader(lambda _region: None)
        reader.seek_numeric(reader.size())
        return reader.pos.numeric if reader.seek_back() else None

    def learn(self, on_loss: OnLoss, most: int) -> list[tuple[int, int]] | None:
        """Read a whole damaged file and compare every hash; return position and size of each record that is whole.

        Return None if there are more than ``most`` records. The chunks are in ``known`` afterwards, since other readers
        may not find them where bytes moved. ``on_loss`` is called for what was skipped and for damaged headers.
        """
        reader = self._new_reader(on_loss, verify="all")
        reader.enters_cut = True
        found: list[tuple[int, int]] = []
        with contextlib.suppress(MalformedError):  # nothing can be found behind it
            while (record := reader.open_record()) is not None:
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
        return chunk if chunk is not None and chunk.holds(position) else None

    def positions(self, on_loss: OnLoss) -> Iterator[int]:
        """Yield the positions of all records that can be found; ``on_loss`` is called for what was skipped."""
        reader = self._new_reader(on_loss)
        try:
            while reader.open_record() is not None:
                yield reader.last_pos.numeric
        except MalformedError:
            return
        _, chunk = self._tail(reader.pos.numeric)
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

    def survey(self, on_loss: OnLoss, on_limit: Callable[[LimitError], object]) -> None:
        """Go through the whole file as a recovery does: compare every hash and check every block header.

        ``on_loss`` is called for what was skipped, and for whole chunks with a damaged header in them; ``on_limit`` for
        chunks that cannot be checked within the budget.
        """
        reader = self._new_reader(on_loss, verify="all")
        chunks, healed, more = reader._chunks, 0, True
        while more:
            try:
                more = reader._next_chunk(lazily=True)
            except LimitError as error:
                on_limit(error)
                chunk = chunks.header(reader._pos)
                if chunk is not None:
                    reader._leave(chunk.end)
                    continue
                more = False
            except MalformedError:  # reported already, or by the search for the last record
                more = False
            for region in reader.healed[healed:]:
                on_loss(SkippedRegion(region.begin, region.end, region.message + NOTHING_LOST))
            healed = len(reader.healed)
            # Where bytes moved, other readers may not find the chunk that was compared here.
            if more and reader._chunk is not None and not healed and chunks.layout_at(reader._pos).shift == 0:
                self.verdicts.note_sound(reader._chunk.begin)

    def _tail(self, begin: int) -> tuple[int, Chunk | None]:
        """Return where the last whole chunk from ``begin`` on ends, and the chunk there, if it is cut."""
        try:
            return self._reader._chunks.last_boundary(begin)
        except ChunkError as error:
            return error.begin, None

    def missing(self) -> int:
        """Return how many bytes of a chunk are cut off by the end of the file, according to its header."""
        _, chunk = self._tail(0)
        return chunk.end - self._reader.size() if chunk is not None else 0

    def record(self, position: int) -> Range:
        """Return the record at ``position`` as a range, whose bytes are read on demand.

        Raise `MalformedError` if no record has that position, or if its chunk is damaged; `LimitError` if decoding
        needs more than the budget.
        """
        for begin, (chunk, records) in self._opened.items():
            if begin <= position < begin + max(1, chunk.header.num_records):
                self._refuse_wrong(chunk)  # found since it was opened
                self._opened.move_to_end(begin)
                return self._range_of(records, chunk, position)
        cut = self._cut
        if cut is not None and cut.holds(position):
            return self._range_of(self._open(cut), cut, position)
        chunk = self._known_at(position) or self._find(position)
        self._refuse_wrong(chunk)
        small = chunk.header.data_size <= TOUCHED
        if self._verify == "all" or (self._verify == "touched" and (small or self._is_suspect(chunk))):
            self._check(chunk)
        records = self._open(chunk)
        self._opened[chunk.begin] = (chunk, records)
        if len(self._opened) > _KEPT:
            self._opened.popitem(last=False)
        return self._range_of(records, chunk, position)

    def _refuse_wrong(self, chunk: Chunk) -> None:
        wrong = self.verdicts.error(chunk.begin) if self._verify != "headers" else None
        if wrong is not None:
            raise wrong

    def there(self, position: int) -> int:
        """Return how many bytes of a record are there, for a record of the chunk that is cut."""
        cut = self._cut
        if cut is None or not cut.holds(position):
            return len(self.record(position))
        records = self._open(cut)
        part = records.range(position - cut.begin)
        return max(0, min(part.end, records.extent()) - part.start)

    def is_cut(self, position: int) -> bool:
        """Say whether a record is in a chunk that is cut, as found by `positions`."""
        return self._cut is not None and self._cut.holds(position)

    def _find(self, position: int) -> Chunk:
        reader = self._reader
        size = reader.size()
        if position >= size:
            raise MalformedError("the record position is beyond the end of the file", wanted=position, got=size)
        try:
            chunk, _ = reader.chunk_at(position)
        except MalformedError as error:
            self._reader = self._new_reader()  # a reader keeps its error
            found = self._find_beyond(position)
            if found is None:
                raise error
            return found
        if chunk is None or not chunk.holds(position):
            raise MalformedError("there is no record at this position", wanted=position)
        return chunk

    def _find_beyond(self, position: int) -> Chunk | None:
        """Return the chunk of a position hidden by damage, if it is found and the hash of its data proves it whole."""
        try:
            chunk, _ = self._new_reader(lambda _region: None).chunk_at(position)
            if chunk is None or not chunk.holds(position):
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
        """Compare the hash of a chunk's data, unless that was done before. Raise `HashMismatchError` if it differs.

        If the file ends inside the chunk, or has a gap there, nothing is compared or recorded.
        """
        wrong = self.verdicts.error(chunk.begin)
        if wrong is not None:
            raise wrong
        if self.verdicts.is_sound(chunk.begin):
            return
        try:
            if self._reader._chunks.verify(chunk, blocks=False):
                self.verdicts.note_sound(chunk.begin)
        except ChunkError as error:
            if isinstance(error.error, HashMismatchError):
                self.verdicts.condemn(chunk.begin, error.error)
            raise error.error from None

    def _open(self, chunk: Chunk) -> ChunkRecords:
        records = open_records(self._reader._source, chunk, self._env, self.verdicts)
        if records is None:
            raise MalformedError("the chunk at this position holds no records", offset=chunk.begin)
        return records

    def _range_of(self, records: ChunkRecords, chunk: Chunk, position: int) -> Range:
        index = position - chunk.begin
        if index >= records.count:
            raise records.error or MalformedError("the record is lost: its chunk is truncated", offset=position)
        return records.range(index)


guard(RecordLookup, ("is_cut", "last", "learn", "last_found", "missing", "positions", "record", "there"))
