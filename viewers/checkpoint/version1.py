"""The tensors of a checkpoint of version 1: one table, which holds the values (saved_tensor_slice.proto).

The key "" has the table of contents: name, shape, type and slices of each tensor. The values of a slice are at the key
that `name_prefix` and `slice_rest` make of its name and place: a TensorProto with typed values alone, without type and
shape. TensorFlow refuses a slice with more or fewer values than it has elements (tensor_slice_reader.h, CopySliceData):
it is DAMAGED.

The checksum of a block is compared before anything in it is used. If the block with the table of contents is lost, the
keys still have the names: these tensors are DAMAGED, as their shape is not known.
"""

from __future__ import annotations

from itertools import product
from math import prod

from pparse.data.spliced import DerivedData
from pparse.errors import EndOfDataError, GapError, MalformedError
from pparse.findings import Finding, Status
from pparse.kernels.wire import LEN
from pparse.parsers.protobuf.index import WireWindow
from pparse.parsers.protobuf.message import Message, Problem
from pparse.protos import schema as builtin_schema
from pparse.tensors.parts import Fragment, PartsData, box_of, covers, number_of, refusal
from pparse.tensors.span import Span
from pparse.tensors.viewer import Viewer
from pparse.viewers.checkpoint import entry as bundle
from pparse.viewers.tensor_proto.maker import NumberValues
from pparse.viewers.tensorflow.tensors import STRING_FIELD, TEXT_TYPES, TensorflowMaker, element_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from threading import RLock
    from typing import Any, Final

    from pparse.data.base import Data, Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.checkpoint.parser import CheckpointParser
    from pparse.parsers.checkpoint.table import SortedTable
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.tensor_proto.maker import ProtoTensor

_META, _DATA = 1, 2  # fields of a SavedTensorSlices
_TENSOR, _VERSIONS = 1, 2  # of its SavedTensorSliceMeta
_VALUES: Final = 3  # of its SavedSlice
_TRAILER: Final = 5
# Of a key, a dict of its own included, without its bytes.
_PLACE_BYTES: Final = 500


class BlockData(DerivedData):
    """A compressed block of a table: decompressed when it is read, and not held."""

    copies = False

    def __init__(self, table: SortedTable, offset: int, length: int, size: int, lock: RLock) -> None:
        super().__init__(f"{table.data.name}::block at {offset}", size)
        self._table = table
        self._place = offset, length
        self._lock = lock
        self.sources = (table.data,)

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return the compressed bytes."""
        offset, length = self._place
        return ((self._table.data, offset, offset + length),)

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            return self._table.block(*self._place).raw[offset : offset + length]


class SliceMaker(TensorflowMaker):
    """Makes tensors from TensorProtos whose type and shape are known from elsewhere."""

    def slice(self, name: str, message: Message, number: int, shape: tuple[int, ...]) -> ProtoTensor:
        """Return the tensor of the values in ``message``; their number must be that of its elements."""
        stored = self.names.get(number, f"DT_{number}")
        if number in TEXT_TYPES:
            made = self._text(name, message, shape, stored, None)
            self._judge_count(made, self.text_places(message, STRING_FIELD)[1])
            return made
        known = element_type(number)
        if known is None:
            problem = Problem(Status.UNSUPPORTED, f"elements of type {stored} are not numbers")
            return self.new(name, None, shape, (), stored, problem)
        dtype, field, code, words = known
        made = self.new(name, dtype, shape, (), stored)
        values = NumberValues(message, self.type.fields[field], code, words)
        if message.problem is not None:
            self.judge(made, message.problem, Status.DAMAGED)
        elif not self.as_stored(made, values, made.size):
            self.list_values(made, dtype, values, dtype.itemsize, exact=True)
            self._judge_count(made, values.count, extra=values.extra_words)
        return made

    def _judge_count(self, made: ProtoTensor, listed: int, extra: int = 0) -> None:
        if listed != made.size or extra:
            reason = f"{listed:,} values for {made.size:,} elements"
            self.judge(made, Problem(Status.DAMAGED, reason), None, made.size, listed)


class Version1Viewer(Viewer):
    """A mapping of names to the variables of a checkpoint of version 1."""

    row_bytes = 900

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: CheckpointParser = extraction.parse().parser  # type: ignore[assignment]
        self._schema = builtin_schema()
        self._maker = SliceMaker(extraction, self.parser.make, self._schema, self)
        self._holes = []  # none is looked for: each block has a checksum
        # By what the keys of all slices of a tensor begin with (that of the table of contents: ""), then by the rest.
        self._places: dict[bytes, dict[bytes, tuple[Data, int, int]]] | None = None
        self._listed_at: dict[str, tuple[Data, int, int]] = {}
        self._repeats: dict[str, int] = {}
        self._versions: tuple[Data, int, int] | None = None

    # -- places --------------------------------------------------------------------------------------------------------

    @property
    def places(self) -> dict[bytes, dict[bytes, tuple[Data, int, int]]]:
        """Where the value of each key is; with the first call, all blocks are read once."""
        if self._places is None:
            session = self.extraction.session
            table = self.parser.table
            self._charge = session.budget.charge(
                _PLACE_BYTES * table.count + table.key_bytes, "the keys of the checkpoint"
            )
            found: dict[bytes, dict[bytes, tuple[Data, int, int]]] = {}
            for offset, size in zip(table.offsets, table.sizes, strict=True):
                session.check_cancelled()
                block = table.block(offset, size)
                data: Data = block.data
                if data is table.data:
                    data.vouch(offset, offset + size + _TRAILER)
                else:
                    data = BlockData(table, offset, size, len(block.raw), self.extraction.lock)
                    data.vouch(0, len(block.raw))
                for key, start, stop in block.entries():
                    prefix = bundle.prefix_in(key)
                    if prefix is not None or not key:  # others are no slices
                        prefix = prefix or b""
                        found.setdefault(prefix, {}).setdefault(key[len(prefix) :], (data, start, stop))
            self._places = found
            self._read_contents()
        return self._places

    def _read_contents(self) -> None:
        """Note where the table of contents has each tensor, or that the table is lost."""
        place = (self._places or {}).get(b"", {}).get(b"")
        try:
            if place is None:
                raise EndOfDataError("the table of contents is lost: only names are known")
            for number, low, high in _fields(*place):
                if number != _META:
                    continue
                for inner, start, stop in _fields(place[0], low, high):
                    if inner == _VERSIONS:
                        self._versions = place[0], start, stop
                    if inner == _TENSOR:
                        self._note_listed(place[0], start, stop)
        except (MalformedError, EndOfDataError, GapError) as error:
            self.findings.add(Finding("malformed", error.reason, source=self.extraction.name))

    def _note_listed(self, data: Data, start: int, stop: int) -> None:
        self.extraction.session.limits.check("scalar_bytes", stop - start, "a tensor in the table of contents")
        raw, _ = bundle.read_listed(data.read_exact(start, stop - start))
        name = plain = bundle.text_of(raw)
        while name in self._listed_at:
            number = self._repeats[plain] = self._repeats.get(plain, 1) + 1
            name = f"{plain}#{number}"
        self._charge.resize(self._charge.amount + _PLACE_BYTES + len(name))
        self._listed_at[name] = data, start, stop

    # -- tensors -------------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the table of contents; without it, in that of the keys."""
        if b"" in self.places:
            for name, place in self._listed_at.items():
                yield self._tensor(name, place)
            return
        for prefix, slices in self.places.items():
            yield self._lost(bundle.text_of(bundle.name_in(prefix)), slices)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        if b"" in self.places:
            place = self._listed_at.get(name)
            return None if place is None else self._tensor(name, place)
        slices = self.places.get(bundle.name_prefix(bundle.bytes_of(name)))
        return None if slices is None else self._lost(name, slices)

    def _lost(self, name: str, slices: dict[bytes, tuple[Data, int, int]]) -> Tensor:
        """Return a tensor of which only the keys are known."""
        data, start, stop = next(iter(slices.values()))
        span = Span(data, start, stop - start, self.extraction.path)
        reason = "the table of contents is lost, and with it its shape; its values can be read in the tree"
        return self._maker.new(name, None, (), (span,), "", Problem(Status.DAMAGED, reason, start))

    def _tensor(self, name: str, place: tuple[Data, int, int]) -> Tensor:
        data, start, stop = place
        try:
            raw, entry = bundle.read_listed(data.read_exact(start, stop - start))
            if bundle.text_of(raw) != name:
                raise MalformedError("the table of contents lists it more than once")
            return self._made(name, raw, entry)
        except (MalformedError, EndOfDataError, GapError) as error:
            return self._maker.missing(name, Problem(Status.DAMAGED, error.reason, error.offset))

    def _made(self, name: str, raw: bytes, entry: bundle.BundleEntry) -> Tensor:
        make, shape = self._maker, entry.shape
        stored = make.names.get(entry.type, f"DT_{entry.type}")
        known = element_type(entry.type)
        dtype = known[0] if known is not None else None
        wrong = self._wrong(entry)
        if wrong is not None:
            return make.new(name, dtype, shape, (), stored, wrong)
        boxes = [box_of(shape, extents) for extents in entry.slices()]
        if not boxes or not covers(shape, boxes):
            raise MalformedError("its slices overlap, or do not cover it")
        parts: list[ProtoTensor] = []
        problem = None
        places = self.places.get(bundle.name_prefix(raw), {})
        for (_, lengths), extents in zip(boxes, entry.slices(), strict=True):
            place = places.get(bundle.slice_rest(extents))
            if place is None:
                problem = problem or self._absent()
                continue
            parts.append(self._part(name, place, entry.type, lengths))
        bad = next((part for part in parts if not part.is_complete), None)
        if problem is None and bad is not None:
            reason = bad.finding.reason if bad.finding is not None else "a slice of it is not whole"
            problem = Problem(bad.status, reason)
        if problem is None and len(parts) == 1:
            return parts[0]
        spans = tuple(span for part in parts for span in part.spans)
        if problem is not None:
            status = Status.DAMAGED if parts and problem.status is Status.MISSING else problem.status
            made = make.new(name, dtype, shape, spans, stored, problem)
            make.judge(made, problem, status)
            return made
        if dtype is None:
            self.extraction.session.limits.check("scalar_bytes", 8 * prod(shape), "the strings in parts", path=name)
            made = make.new(name, None, shape, spans, stored)
            made._listing = (lambda: _joined(shape, boxes, parts)), None
            return made
        pieces = [
            Fragment(starts, lengths, _content(part))
            for (starts, lengths), part in zip(boxes, parts, strict=True)
            if part.size
        ]
        joined = PartsData(f"{self.extraction.name}::{name}", shape, dtype.itemsize, pieces)
        return make.new(name, dtype, shape, spans, stored, content=Span(joined, 0, joined.size or 0, joined.name))

    def _wrong(self, entry: bundle.BundleEntry) -> Problem | None:
        """Return what is wrong with what the table of contents says of a tensor."""
        session = self.extraction.session
        wrong = entry.wrong_shape(session.limits)
        if wrong is None and (reason := refusal(entry.part_count, len(entry.shape), session.budget)) is not None:
            wrong = Status.UNSUPPORTED, reason
        return None if wrong is None else Problem(*wrong)

    def _part(self, name: str, place: tuple[Data, int, int], number: int, shape: tuple[int, ...]) -> ProtoTensor:
        data, start, stop = place
        message = Message(
            self._maker.make, [data.range(start, stop)], self._schema.message("tensorflow.SavedTensorSlices")
        )
        held = message.message(_DATA)
        values = held.message(_VALUES) if held is not None else None
        if held is None or values is None or message.problem is not None or held.problem is not None:
            raise MalformedError("a slice of it has no values", offset=start)
        return self._maker.slice(name, values, number, shape)

    def _absent(self) -> Problem:
        """Return why a slice has no values: its block was cut off, or cannot be read."""
        cut = self.root.status is Status.TRUNCATED and not self.parser.table.broken
        if cut:
            return Problem(Status.MISSING, "the file ends before its values")
        return Problem(Status.DAMAGED, "its values are not there: their block is damaged, or was never written")

    # -- what the file says of itself ----------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The version of the writer."""
        found: dict[str, Any] = {"version": 1}
        if b"" in self.places and self._versions is not None:
            data, start, stop = self._versions
            kind = self._schema.message("tensorflow.VersionDef")
            message = Message(self._maker.make, [data.range(start, stop)], kind)
            for number, name in ((1, "producer"), (2, "min_consumer")):
                if number in message.fields:
                    found[name] = message.scalar(number)
        return found

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check the table, then each tensor."""
        yield from super().check(strict=strict)
        for tensor in self.tensors():
            if tensor.finding is not None:
                self.findings.add(tensor.finding)
                yield tensor.finding


def _fields(data: Data, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, and begin and end of the content, of each field of a message with a length."""
    window = WireWindow(data, stop)
    while start < stop:
        field = window.field(start)
        if field.next > stop:
            raise MalformedError("a field of the table of contents extends beyond it", offset=start)
        if field.tag & 7 == LEN:
            yield field.tag >> 3, field.start, field.end
        start = field.next


def _content(part: ProtoTensor) -> Range:
    """Return the bytes of the array of a slice."""
    span = part._content or part.spans[0]
    if span.data is None:
        raise EndOfDataError("a slice of it is not there")
    return span.data.range(span.offset, span.offset + span.length)


def _joined(
    shape: tuple[int, ...], boxes: list[tuple[tuple[int, ...], tuple[int, ...]]], parts: list[ProtoTensor]
) -> Iterator[bytes]:
    """Yield the strings of a tensor in parts, in C order."""
    found: list[bytes] = [b""] * prod(shape)
    for (starts, lengths), part in zip(boxes, parts, strict=True):
        ranges = (range(start, start + length) for start, length in zip(starts, lengths, strict=True))
        for index, text in zip(product(*ranges), part.strings(), strict=True):
            found[number_of(shape, index)] = text
    yield from found
