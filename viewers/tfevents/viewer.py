"""Event files of TensorBoard as arrays: what was logged under each tag, a row for each step.

Numbers are an array of structures with the fields ``step``, ``wall_time`` and ``value``; histograms as TensorBoard 1
logs them have their statistics instead of a value, and their buckets, if each has as many. Texts, pictures and sounds
are an array of strings, whose steps are another array, ``TAG.steps``. Tensors of one tag that differ in type or shape
are arrays of their own, ``TAG@STEP``. Rows are in the order of the file.

All records are gone through once, and their checksums compared; of each value its place is kept, 32 bytes a row. A
record that is damaged is left out. Fields: tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from math import prod
from struct import Struct

from pparse.data.spliced import DerivedData
from pparse.errors import DataError, FaultError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity
from pparse.kernels.wire import PADDING, fields, read_value, within
from pparse.limits import count_words
from pparse.locking import steps
from pparse.protobuf.schema import signed
from pparse.protos import schema as builtin_schema
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.span import Span
from pparse.tensors.text_tensor import TextTensor
from pparse.tensors.viewer import Viewer
from pparse.tree.index import name_of_repeated
from pparse.viewers.tensorflow.tensors import TensorflowMaker, element_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor

    _Added = tuple["_Series", int, int, tuple[int, int]]

# Tags of fields: of an Event, a Summary, a Value, its metadata and plug-in; a TensorProto, its shape and a dimension.
_TIME, _STEP, _VERSION, _SUMMARY, _VALUE, _TAG, _SIMPLE = 0x09, 0x10, 0x1A, 0x2A, 0x0A, 0x0A, 0x15
_METADATA, _PLUGIN, _PLUGIN_NAME, _DTYPE, _SHAPE, _DIM, _SIZE = 0x4A, 0x0A, 0x0A, 0x08, 0x12, 0x12, 0x08
_CONTENT, _FLOATS, _STRINGS = 0x22, 0x2A, 0x42
_HISTO, _TENSOR = 0x2A, 0x42
# Fields of an Event that are a graph as bytes, by their tags; so many are named.
_GRAPHS: Final = {0x22: "graph_def", 0x4A: "meta_graph_def"}
_MOST_GRAPHS: Final = 100
# Kinds of values that are bytes: their tag, and that of the field which has these; 0: all of it.
_BLOBS: Final = {0x1A: 0, 0x22: 0x22, 0x32: 0x22}
_WORDS: Final = {0x1A: "old histogram", 0x22: "image", 0x32: "audio"}
# The numbers of a HistogramProto, and the tags of its lists, packed.
_STATISTICS: Final = ("min", "max", "num", "sum", "sum_squares")
_LIMITS, _BUCKETS = 0x32, 0x3A
_STRING: Final = 7
_BLOCK: Final = 64 << 10
# Tensors with more dimensions or bytes are in no structure of numpy.
_MOST_DIMS, _MOST_BYTES = 30, 1 << 30
# Memory of a tag, and of a row.
_EACH, _ROW = 600, 32
_HEAD: Final = Struct("<qd")
_DOUBLE: Final = Struct("<d")
# The fields of nearly all events; how many events are known, and the most bytes in each besides its numbers.
_USUAL: Final = ([_TIME, _SUMMARY], [_TIME, _STEP, _SUMMARY])
_MOST_KNOWN, _LONGEST_KNOWN = 1_024, 256


class _Series:
    """What was logged under one tag: where the value of each step is."""

    __slots__ = ("alike", "ends", "kind", "odd", "shape", "starts", "steps", "times", "type")

    def __init__(self, kind: int, type: int, shape: tuple[int, ...]) -> None:
        self.kind, self.type, self.shape = kind, type, shape
        self.alike, self.odd = True, False
        self.steps, self.times, self.starts, self.ends = array("q"), array("d"), array("q"), array("q")

    @property
    def is_text(self) -> bool:
        return self.kind in _BLOBS or (self.kind == _TENSOR and self.type == _STRING)

    def add(self, step: int, time: float, start: int, end: int) -> None:
        self.steps.append(step)
        self.times.append(time)
        self.starts.append(start)
        self.ends.append(end)


class _KnownEvents(dict[object, tuple[_Series, int, int]]):
    """Events that were read: nearly all are a time, a step and one value, and differ from earlier ones in numbers only.

    Has the series, and the place of the value behind the step, by what is around its numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, tuple[int, int]] = {}  # where they are, by how long an event is behind the step

    def find(self, block: bytes, size: int) -> tuple[_Series, int, int, int] | None:
        """Return series, step, and begin and end of the value of an event; None if it has to be read."""
        step, pos = read_value(block, 10) if block[9] == _STEP and block[0] == _TIME else (0, 9)
        place = self._numbers.get(size - pos) if block[0] == _TIME else None
        if place is None:
            return None
        found = self.get((place, block[pos : pos + place[0]] + block[pos + place[1] : size]))
        return None if found is None else (found[0], step, pos + found[1], pos + found[2])

    def keep(self, block: bytes, size: int, series: _Series, first: int, last: int, numbers: tuple[int, int]) -> None:
        """Remember an event with the fields of nearly all, and a value of which the ``numbers`` may be any."""
        pos = read_value(block, 10)[1] if block[9] == _STEP else 9
        low, high = numbers
        if low < high and size - pos - (high - low) <= _LONGEST_KNOWN and len(self) < _MOST_KNOWN:
            place = self._numbers[size - pos] = low - pos, high - pos
            self[place, block[pos:low] + block[high:size]] = series, first - pos, last - pos


class RowsData(DerivedData):
    """The rows of a tag, ``width`` bytes each: step and time, and what ``decode`` makes of the bytes of a value."""

    copies = False

    def __init__(self, data: Data, series: _Series, width: int, decode: Any, name: str) -> None:
        super().__init__(name, width * len(series.steps))
        self.sources = (data,)
        self._series, self._width, self._decode = series, width, decode

    def pieces(self, start: int, end: int) -> list[tuple[Data, int, int]]:
        """Return where the values of these rows are."""
        rows, series = range(start // self._width, -(-end // self._width)), self._series
        return [(self.sources[0], series.starts[row], series.ends[row]) for row in rows]

    def is_proved(self, start: int, end: int) -> bool:
        """Return whether the values are; those of most rows lie in a stretch that is."""
        first, last = start // self._width, -(-end // self._width)
        around = self._series.starts[first : first + 1], self._series.ends[last - 1 : last]
        return bool(around[0] and self.sources[0].is_proved(*around[0], *around[1])) or super().is_proved(start, end)

    def why_suspect(self, start: int, end: int) -> str | None:
        """Return None where checksums agree; else ask about each value."""
        return None if self.is_proved(start, end) else super().why_suspect(start, end)

    def _how(self) -> tuple[object, ...]:
        return self._width, self.name

    def _pread(self, offset: int, length: int) -> bytes:
        series, first = self._series, offset // self._width
        found = bytearray()
        for row in range(first, -(-(offset + length) // self._width)):
            value = b""
            if self._decode is not None:
                found += _HEAD.pack(series.steps[row], series.times[row])
                value = self._decode(self.sources[0], series.starts[row], series.ends[row])
            else:
                value = series.steps[row].to_bytes(8, "little", signed=True)
            found += value
        skip = offset - first * self._width
        return bytes(found[skip : skip + length])


class SeriesTensor(TextTensor):
    """What was logged under a tag."""

    __slots__ = ("_last", "_words", "is_odd")

    _words: str
    _last: int
    is_odd: bool
    """Whether it has to be read to know whether all values have the bytes that their shape needs. Texts are counted."""

    @property
    def type_name(self) -> str:
        """The type of the values, and the first and the last step."""
        return str(self._words)

    @property
    def last_byte(self) -> int:
        """Where the last value ends in the file."""
        return self._last

    @property
    def alike(self) -> object:
        """What tensors of the same type, shape and steps have in common."""
        return super().alike, self._words


class TfeventsViewer(Viewer):
    """A mapping of tags to arrays with a row for each step."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        parser: Any = extraction.parse().parser
        self.parser = parser
        self._maker = TensorflowMaker(extraction, parser.make, builtin_schema(), self)
        self._series: tuple[object, dict[str, _Series], dict[str, tuple[str, int | None]]] | None = None
        self._charge = extraction.session.budget.charge(0, "the places of what was logged")
        self._version = ""
        self._plugins: set[str] = set()
        self._graphs: list[str] = []
        self._known = _KnownEvents()

    # -- the records ---------------------------------------------------------------------------------------------------

    def _index(self) -> tuple[dict[str, _Series], dict[str, tuple[str, int | None]]]:
        """Return the series by tag, and the tag and step's number that each name means; None: all of its steps."""
        data = self.extraction.parsed.data
        stamp = (data.revision, data.reach)
        if self._series is None or self._series[0] != stamp:
            found: dict[str, _Series] = {}
            known = self._known = _KnownEvents()
            self._plugins, self._graphs = set(), []
            rows = 0
            for ordinal, start, raw, entry in self.parser.records():
                if not ordinal & 0x3FF:
                    self.extraction.session.check_cancelled()
                    self._charge.resize(_ROW * rows + _EACH * (len(found) + len(known)))
                try:
                    raw = self.parser.sound_data(ordinal, entry) if raw is None else raw
                    rows += 0 if raw is None else self._read(raw, ordinal, start, found)
                except (DataError, LimitError) as error:
                    self._leave_out(f"record {ordinal}", error, start)
            known.clear()
            self._charge.resize(_ROW * rows + _EACH * len(found))
            self._series = stamp, found, _names(found)
        return self._series[1], self._series[2]

    def _leave_out(self, what: str, error: DataError | LimitError, offset: int) -> None:
        where: Any = {"source": self.extraction.name, "offset": offset}
        self.findings.add(Finding("malformed", f"{what} is left out: {error.reason}", **where))

    def _read(self, raw: bytes, ordinal: int, base: int, found: dict[str, _Series]) -> int:
        """Add the values of an event, and return their number."""
        block, size = raw + PADDING, len(raw)
        known = self._known.find(block, size)
        if known is not None:
            series, step, first, last = known
            series.add(signed(step, 64), _DOUBLE.unpack_from(block, 1)[0], base + first, base + last)
            return 1
        time, step = 0.0, 0
        tags = []
        for tag, p, end in fields(block, 0, size):
            tags.append(tag)
            if tag == _TIME:
                (time,) = _DOUBLE.unpack_from(block, p)
            elif tag == _STEP:
                step = signed(read_value(block, p)[0], 64)
            elif tag in _GRAPHS and len(self._graphs) < _MOST_GRAPHS:
                self._graphs.append(f"[{ordinal}].{_GRAPHS[tag]}")
            elif tag == _VERSION:
                self._version = raw[p:end].decode("utf-8", "replace")
        values = list(within(block, 0, size, _SUMMARY, _VALUE))
        added: list[_Added] = []
        for p, end in values:
            try:
                added += self._add(block, p, end, (step, time, base), found)
            except (DataError, LimitError) as error:
                self._leave_out(f"a value of record {ordinal}", error, base + p)
        if tags in _USUAL and len(values) == len(added) == 1:
            self._known.keep(block, size, *added[0])
        return len(added)

    def _add(
        self, block: bytes, pos: int, end: int, when: tuple[int, float, int], found: dict[str, _Series]
    ) -> list[_Added]:
        """Add a value; return its series, its place, and that of the numbers in it; nothing if it is none."""
        name = plugin = ""
        place = None
        for tag, p, e in fields(block, pos, end):
            if tag == _TAG:
                name = block[p:e].decode("utf-8", "replace")
            elif tag in (_SIMPLE, _HISTO, _TENSOR) or tag in _BLOBS:
                place = tag, p, e
            elif tag == _METADATA:
                found_plugin = next(within(block, p, e, _PLUGIN, _PLUGIN_NAME), (p, p))
                plugin = block[slice(*found_plugin)].decode("utf-8", "replace")
        if plugin:
            self._plugins.add(plugin)
        if place is None:
            return []
        kind, p, e = place
        type, shape, hole = _type_of(block, kind, p, e)
        series = found.get(name)
        if series is None:
            self.extraction.session.limits.check("entries", len(found) + 1, "the tags")
            series = found[name] = _Series(kind, type, shape)
        if kind != series.kind:
            reason = f"it is of another kind than those of {name!r} before it"
            raise MalformedError(reason, offset=when[2] + p)
        series.alike = series.alike and (series.type, series.shape) == (type, shape)
        if kind == _TENSOR and type == _STRING:
            series.odd |= sum(1 for _ in within(block, p, e, _STRINGS)) != prod(shape)
        elif kind == _TENSOR and (known := element_type(type)) is not None:
            series.odd |= hole[1] - hole[0] != known[0].itemsize * prod(shape)
        series.add(when[0], when[1], when[2] + p, when[2] + e)
        return [(series, p, e, hole)]

    # -- tensors -------------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield what was logged under each tag, in the order in which they come first."""
        for name in self._index()[1]:
            yield self._made(name)

    def find(self, name: str) -> Tensor | None:
        """Return what was logged under a tag; None if there is no such tag."""
        return self._made(name) if name in self._index()[1] else None

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Compare all checksums, then read all that was logged: records and values that are left out, tensors."""
        told = set()
        for finding in super().check(strict=strict):
            told.add(finding)
            yield finding
        for tensor in self.tensors():
            wrong = tensor.finding if not tensor.is_complete else self._flaw_of(tensor)
            if wrong is not None:
                self.findings.add(wrong)
                told.add(wrong)
                yield wrong
        yield from (finding for finding in self.findings if finding not in told)

    def _flaw_of(self, tensor: Tensor) -> Finding | None:
        """Return what is wrong with the values of a tensor whose bytes are all there."""
        try:
            odd = isinstance(tensor, SeriesTensor) and not tensor.is_text and tensor.is_odd
            for _ in tensor.blocks(_BLOCK) if odd else ():
                self.extraction.session.check_cancelled()
        except FaultError as error:
            where: Any = {"source": self.extraction.name, "offset": error.offset}
            return Finding("malformed", error.reason, path=tensor.name, **where)
        return None

    def new_extent(self) -> Extent:
        """Return an extent that counts no parameters."""
        made = super().new_extent()
        made.counts_parameters = False
        return made

    def size_hint(self) -> int | None:
        """Return how many there are, once the records were gone through."""
        return None if self._series is None else len(self._series[2])

    def _made(self, name: str) -> Tensor:
        series, names = self._index()
        tag, row = names[name]
        found = series[tag]
        data = self.extraction.parsed.data
        if row is not None and row >= 0:
            return self._maker.tensor(name, (data.range(found.starts[row], found.ends[row]),))
        if row is not None:
            return self._rows(name, found, DTYPES["int64"], 8, None, "int64")
        last = f" to {found.steps[-1]}" if len(found.steps) > 1 else ""
        words = f", step {found.steps[0]}{last}"
        if found.is_text:
            return self._texts(name, found, _WORDS.get(found.kind, "string") + words)
        if found.kind == _HISTO:
            buckets = max(0, found.type) if found.alike else 0
            described: list[Any] = [(word, "<f8") for word in _STATISTICS]
            described += [(word, "<f8", (buckets,)) for word in ("bucket_limit", "bucket") if buckets]
            width = 16 + 40 + 16 * buckets
            made = self._rows(name, found, _structure(*described), width, _Histogram(buckets), "histogram" + words)
            if (not found.alike or found.type < 0) and made.finding is None:
                reason = "the number of its buckets differs from step to step: they are in the records only"
                if found.alike:
                    reason = "it has not as many buckets as limits of these: they are in the records only"
                where: Any = {"path": name, "source": self.extraction.name}
                made.finding = Finding("buckets", reason, severity=Severity.NOTE, **where)
            return made
        dtype = DTYPES["float32"] if found.kind == _SIMPLE else element_type(found.type)[0]  # type: ignore[index]
        width = prod(found.shape) * dtype.itemsize
        value = ("value", _code(dtype), found.shape) if found.shape else ("value", _code(dtype))
        words = f"{dtype.name} {'×'.join(map(str, found.shape))}".rstrip() + words
        decode = _RowValue(self._maker, found, dtype, width)
        return self._rows(name, found, _structure(value), 16 + width, decode, words)

    def _rows(self, name: str, series: _Series, dtype: DType, width: int, decode: Any, words: str) -> SeriesTensor:
        """Return a tensor with ``width`` bytes for each row."""
        rows = RowsData(self.extraction.parsed.data, series, width, decode, f"{self.extraction.name}::{name}")
        span = Span(rows, 0, rows.size or 0, f"{self.extraction.path}::{name}")  # made of bytes, and in no file
        return self._of_series(name, series, (len(series.steps),), (span,), dtype, words)

    def _of_series(
        self,
        name: str,
        series: _Series,
        shape: tuple[int, ...],
        spans: tuple[Span, ...],
        dtype: DType | None,
        words: str,
    ) -> SeriesTensor:
        stored = "STRING" if dtype is None else str(dtype)
        made = SeriesTensor(name, dtype, shape, spans, stored_dtype=stored, owner=self)
        made._listing, made._words, made._last = None, words, max(series.ends, default=0)
        made.is_odd = series.odd
        return made

    def _texts(self, name: str, series: _Series, words: str) -> SeriesTensor:
        data = self.extraction.parsed.data
        shape = (len(series.steps), *(series.shape if series.alike and series.kind == _TENSOR else ()))
        spans = tuple(
            Span(data, start, end - start, self.extraction.path, self.extraction.end)
            for start, end in zip(series.starts, series.ends, strict=True)
        )
        made = self._of_series(name, series, shape, spans, None, words)
        made._listing = (lambda: steps(self.lock, _strings(data, series))), None
        return made

    # -- what the file says of itself ----------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The version of the format, the number of tags, first and last step, and the plug-ins that show them."""
        series = self._index()[0]
        found: dict[str, Any] = {"file_version": self._version, "tags": len(series)}
        every = [step for one in series.values() for step in (min(one.steps), max(one.steps))]
        if every:
            found["steps"] = f"{min(every)} to {max(every)}"
        more = {"plugins": sorted(self._plugins), "graphs": self._graphs}
        return {**found, **{key: value for key, value in more.items() if value}}

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Raise `UnsupportedError`, which tells how to get the graph that a record has as bytes."""
        self._index()
        if not self._graphs:
            return super().graph_of(number, max_nodes)
        way = (
            f"'pparse get FILE \"{self._graphs[0]}\" --raw -o graph.pb' writes it, and 'pparse graph graph.pb' shows it"
        )
        raise UnsupportedError(f"{self.extraction.name}: its graph is bytes in a record: {way}")


def _names(found: dict[str, _Series]) -> dict[str, tuple[str, int | None]]:
    """Return what each name means: a tag and None, -1 for its steps, or the number of a row."""
    keys: dict[str, list[tuple[str, int | None]]] = {}
    for tag, series in found.items():
        is_text = series.is_text
        fits = series.alike and not series.odd if is_text else _fits_a_structure(series)
        if series.kind == _TENSOR and not fits:
            for row, step in enumerate(series.steps):
                keys.setdefault(f"{tag}@{step}", []).append((tag, row))
            continue
        keys.setdefault(tag, []).append((tag, None))
        if is_text:
            keys.setdefault(f"{tag}.steps", []).append((tag, -1))

    def nth(key: str, number: int) -> object:
        return keys[key] if len(keys.get(key, ())) >= number else None

    each = ((key, number, what) for key, meant in keys.items() for number, what in enumerate(meant, 1))
    return {name_of_repeated(key, number, nth): what for key, number, what in each}


def _fits_a_structure(series: _Series) -> bool:
    """Return whether all tensors are of one shape, and of a type and a size that numpy's structures may have."""
    known = element_type(series.type) if series.alike and len(series.shape) <= _MOST_DIMS else None
    if known is None or not _code(known[0]):
        return False
    # Beside a length of 0, numpy wants the others to fit, too.
    return known[0].itemsize * prod(max(1, size) for size in series.shape) <= _MOST_BYTES


@lru_cache(maxsize=64)
def _structure(*values: Any) -> DType:
    """Return the type of a row."""
    return DType.of(repr([("step", "<i8"), ("wall_time", "<f8"), *values]))


def _code(dtype: DType) -> str:
    """Return how a structure of numpy names a type; empty if it cannot."""
    letter = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}.get(dtype.kind, "")
    plain = dtype.name in (f"{dtype.kind}{dtype.bits}", "bool") and dtype.bits >= 8
    return f"{'|' if dtype.itemsize == 1 else '<'}{letter}{dtype.itemsize}" if letter and plain else ""


def _type_of(block: bytes, kind: int, pos: int, end: int) -> tuple[int, tuple[int, ...], tuple[int, int]]:
    """Return the type and shape of a tensor; of a histogram the number of buckets, -1 if limits are not as many.

    And where the numbers are of which nothing of this depends.
    """
    if kind == _HISTO:
        limits, buckets = (sum((e - p) // 8 for p, e in within(block, pos, end, tag)) for tag in (_LIMITS, _BUCKETS))
        return buckets if limits == buckets else -1, (), (end, end)
    type, hole = 0, (pos, end) if kind == _SIMPLE else (end, end)
    for tag, p, e in fields(block, pos, end) if kind == _TENSOR else ():
        if tag == _DTYPE:
            type = read_value(block, p)[0]
        elif tag in (_CONTENT, _FLOATS):
            hole = p, e
    shape = []
    for dim in within(block, pos, end, _SHAPE, _DIM) if kind == _TENSOR else ():
        *_, size = 0, *(read_value(block, at)[0] for at, _ in within(block, *dim, _SIZE))
        shape.append(size)
    return type, tuple(shape), hole


class _RowValue:
    """Decodes the value of a row: a float32, or a TensorProto."""

    def __init__(self, maker: TensorflowMaker, series: _Series, dtype: DType, width: int) -> None:
        self._maker, self._series, self._dtype, self._width = maker, series, dtype, width

    def __call__(self, data: Data, start: int, end: int) -> bytes:
        raw = data.read_exact(start, end - start)
        if self._series.kind == _SIMPLE:
            return raw
        for tag, p, e in fields(raw + PADDING, 0, len(raw)):
            if (tag == _CONTENT or (tag == _FLOATS and self._dtype == "float32")) and e - p == self._width:
                return raw[p:e]
        tensor = self._maker.tensor("", (data.range(start, end),))
        content: bytes = tensor.numpy().tobytes()
        if len(content) != self._width:
            raise MalformedError(f"a value has {len(content)} bytes, its shape needs {self._width}", offset=start)
        return content


class _Histogram:
    """Decodes a HistogramProto: its statistics, and so many limits and buckets."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def __call__(self, data: Data, start: int, end: int) -> bytes:
        raw = data.read_exact(start, end - start)
        numbers = [bytes(8)] * len(_STATISTICS)
        padded = raw + PADDING
        for tag, p, e in fields(padded, 0, len(raw)):
            if tag & 7 == 1 and 1 <= tag >> 3 <= len(numbers):
                numbers[(tag >> 3) - 1] = raw[p:e]
        lists = [b"".join(raw[p:e] for p, e in within(padded, 0, len(raw), tag)) for tag in (_LIMITS, _BUCKETS)]
        size = 8 * self._buckets
        if size and any(len(content) != size for content in lists):
            raise MalformedError(f"a histogram has other than {count_words(self._buckets, 'bucket')}", offset=start)
        return b"".join([*numbers, *(content[:size] for content in lists)])


def _strings(data: Data, series: _Series) -> Generator[bytes]:
    """Yield the strings of all rows."""
    field = _STRINGS if series.kind == _TENSOR else _BLOBS[series.kind]
    for start, end in zip(series.starts, series.ends, strict=True):
        raw = data.read_exact(start, end - start)
        yield from (raw[p:e] for p, e in within(raw + PADDING, 0, len(raw), field)) if field else (raw,)
