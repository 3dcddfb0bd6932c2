"""The tensors of a TensorBundle: an index, and data files beside it (tensorflow/core/util/tensor_bundle).

A tensor is called by its key; in an object-based checkpoint, by the name of the variable
(`pparse.viewers.checkpoint.entry`), and it is found by its key, too. Data files are called as the index, with
``.data-00000-of-00001`` for its ``.index``.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from math import prod
from struct import pack, unpack_from

from pparse.data.base import blocks
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.kernels.crc32c import crc32c, masked
from pparse.locking import Lock
from pparse.parsers.checkpoint.parser import key_of
from pparse.parsers.checkpoint.table import crc_of
from pparse.tensors.parts import MAX_FILES, DataFiles, Fragment, box_of, covers, put_together, refusal
from pparse.tensors.span import Span
from pparse.tensors.status import finding_by_status, status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.below import value_at
from pparse.tree.result import near_misses
from pparse.viewers.checkpoint import entry as bundle
from pparse.viewers.tensor_proto.maker import ProtoTensor, lengths_in, string_list, strings_begin
from pparse.viewers.tensorflow.tensors import TEXT_TYPES, dtype_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.findings import FindingList
    from pparse.limits import Charge
    from pparse.parsers.checkpoint.parser import CheckpointParser
    from pparse.tensors.dtype import DType
    from pparse.tensors.status import Extent
    from pparse.tree.node import Node


class CheckpointViewer(Viewer):
    """A mapping of names to the variables of a checkpoint of version 2."""

    has_keys = True
    row_bytes = 700

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: CheckpointParser = extraction.parse().parser  # type: ignore[assignment]
        self._files = DataFiles(
            extraction, lambda: self.header[0], lambda shard: self.parser.data_name(self.header[0], shard)
        )
        self._header: tuple[int, bool] | None = None
        self._names: bundle.VariableNames | None = None
        self._charge: Charge | None = None
        self._compared = False
        self._followed: Follower | None = None

    @property
    def has_values(self) -> bool:  # type: ignore[override]
        """Whether the index lies in a folder, where its data files can be."""
        return self.extraction.folder is not None

    # -- the index -----------------------------------------------------------------------------------------------------

    @property
    def header(self) -> tuple[int, bool]:
        """Number of data files, and whether numbers are big-endian; 0 files if the header is lost."""
        if self._header is None:
            self._header = 0, False
            found = self.root.find("")
            if found is not None:
                shards, order = (value_at(found, key) for key in ("num_shards", "endianness"))
                count = shards if isinstance(shards, int) and 0 < shards <= MAX_FILES else 0
                self._header = count, order in (1, "BIG")
            else:
                reason = "the header is lost, which says the byte order: numbers are read as little-endian"
                finding = Finding("byte-order", reason, severity=Severity.WARNING, source=self.extraction.name)
                self.findings.add(finding)
        return self._header

    def _entries(self) -> Iterator[tuple[str, bundle.BundleEntry | PparseError]]:
        """Yield the key of each tensor with its entry, or with what is wrong with that."""
        for key, value in self._pairs():
            try:
                yield key, bundle.read_entry(value)
            except MalformedError as error:
                yield key, error

    def _pairs(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and value of each tensor: not the header, and not the parts of tensors."""
        return ((bundle.text_of(key), value) for key, value in self.parser.pairs() if not _is_no_tensor(key))

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the keys."""
        names = self.names
        for key, entry in self._entries():
            yield self._tensor(names.name_of(key, self._is_key), key, entry)

    def _is_key(self, key: str) -> bool:
        return self._lookup(bundle.bytes_of(key)) is not None

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or that key; None if there is none."""
        named = self.names.key_of(name)
        for key in (name, name + bundle.VALUE) if named is None else (named,):
            entry = self._entry(key)
            if entry is not None:
                return self._tensor(name, key, entry)
        return None

    def _entry(self, key: str) -> bundle.BundleEntry | PparseError | None:
        """Return the entry at a key, or what is wrong with it; None if there is none."""
        try:
            raw = self._lookup(bundle.bytes_of(key))
            return None if raw is None else bundle.read_entry(raw)
        except (MalformedError, EndOfDataError, GapError) as error:
            return error

    @property
    def names(self) -> bundle.VariableNames:
        """The names of the variables: read with the first tensor."""
        if self._names is None:
            self._names, why = bundle.VariableNames(), None
            full: dict[str, str] = {}
            try:
                graph = self._object_graph()
                full = self._affordable(bundle.full_names(graph) if graph is not None else {})
            except DataError as error:
                why = error
            try:
                if why is not None:
                    full = self._affordable(self.parser.other_names())
                if full:
                    self._names.give(self._charged_keys(full), full, self._content_of)
            except LimitError as error:
                why, full, self._names = error, {}, bundle.VariableNames()
                if self._charge is not None:
                    self._charge.release()
            if why is not None:
                self._note_names("the names that the model itself has for them" if full else "their keys", why)
        return self._names

    def _note_names(self, by: str, error: PparseError) -> None:
        reason = f"tensors are called by {by}, as the names in the checkpoint cannot be read: {error.reason}"
        finding = Finding("names", reason, severity=Severity.WARNING, source=self.extraction.name, path=bundle.GRAPH)
        self.findings.add(finding)

    def _charged_keys(self, full: dict[str, str]) -> Iterator[str]:
        """Yield the keys of all tensors, those charged that ``full`` does not have."""
        for key, _ in self._pairs():
            if key not in full and self._charge is not None:
                self._charge.resize(self._charge.amount + bundle.cost_of({key: key}))
            yield key

    def _affordable(self, full: dict[str, str]) -> dict[str, str]:
        """Charge the memory of names, and return them. Raises `LimitError` if there is no room for them."""
        self._charge = self.extraction.session.budget.charge(bundle.cost_of(full), "the names of the variables")
        return full

    def _object_graph(self) -> bytes | None:
        """Return the message that has the names; None if the checkpoint was saved by name.

        Raises `PparseError` if it cannot be read, or its checksum is wrong.
        """
        entry = self._entry(bundle.GRAPH)
        if entry is None or self.extraction.folder is None:
            return None
        made = self._tensor(bundle.GRAPH, bundle.GRAPH, entry)
        if not isinstance(made, StringTensor) or made.shape:
            raise MalformedError("the object graph is no string")
        if not made.is_claimed_whole:
            raise EndOfDataError(made.finding.reason if made.finding is not None else "the object graph is not there")
        size = made.stored_nbytes
        self.extraction.session.limits.check("scalar_bytes", size, "the object graph")
        with self.extraction.session.budget.charge(4 * size, "the object graph of the checkpoint"):
            if made.verify() is False:
                raise MalformedError("the checksum of the object graph is wrong")
            return next(made.strings())

    def _content_of(self, key: str) -> Hashable | None:
        """Return what only copies of the tensor at ``key`` have in common; None if that is not known."""
        entry = self._entry(key)
        if not isinstance(entry, bundle.BundleEntry) or entry.crc is None or entry.part_count:
            return None
        return entry.type, entry.shape, entry.size, entry.crc

    def _lookup(self, key: bytes) -> bytes | None:
        """Return the value at the key of a tensor."""
        return None if _is_no_tensor(key) else self.parser.table.value_at(key)

    # -- one tensor ----------------------------------------------------------------------------------------------------

    def _tensor(self, name: str, key: str, entry: bundle.BundleEntry | PparseError) -> Tensor:
        """Return the tensor of an entry."""
        made = self._made(name, key, entry)
        made.key = key if key != name else None
        if made._is_flawed() and made.is_claimed_whole and made.stored_nbytes <= _CONFIRMED:
            self._compare(made)  # what is around it is in doubt: its own checksum decides
        return made

    def _made(self, name: str, key: str, entry: bundle.BundleEntry | PparseError) -> Tensor:
        if not isinstance(entry, bundle.BundleEntry):
            status = Status.TRUNCATED if isinstance(entry, EndOfDataError) else Status.DAMAGED
            found = self._bad(name, entry.reason)
            return Tensor(name, None, UNKNOWN_SHAPE, (), status=status, finding=found, owner=self)
        stored = type_name(entry.type)
        dtype, shape = dtype_of(entry.type), entry.shape
        wrong = self._wrong(entry, dtype)
        told: dict[str, Any] = {"stored_dtype": stored, "owner": self}
        if wrong is not None:
            status, reason = wrong
            return Tensor(name, dtype, shape, (), status=status, finding=self._bad(name, reason, status), **told)
        if self.extraction.folder is None:
            return Tensor(name, dtype, shape, (), status=Status.UNSUPPORTED, finding=self._alone, **told)
        if entry.part_count:
            return self._in_parts(name, key, entry, dtype, told)
        span, status, finding = self._span(name, entry)
        if dtype is not None and (size := dtype.stored_nbytes(prod(shape))) != entry.size:
            reason = f"it has {entry.size:,} bytes; type and shape need {size:,}"
            return Tensor(name, dtype, shape, (), status=Status.DAMAGED, finding=self._bad(name, reason), **told)
        kind = StringTensor if dtype is None else Tensor
        order = "big" if self.header[1] else "little"
        made = kind(name, dtype, shape, (span,), status=status, finding=finding, byteorder=order, **told)
        if isinstance(made, StringTensor):
            made.lie_in(span, entry.crc)
        return made

    def _wrong(self, entry: bundle.BundleEntry, dtype: DType | None) -> tuple[Status, str] | None:
        """Return what is wrong with an entry by itself, or why its values are no tensor."""
        wrong = entry.wrong_shape(self.extraction.session.limits)
        if wrong is not None:
            return wrong
        if entry.offset < 0 or entry.size < 0 or entry.shard < 0:
            return Status.DAMAGED, "its place is negative"
        if dtype is None and entry.type not in TEXT_TYPES:
            return Status.UNSUPPORTED, f"elements of type {type_name(entry.type)} are not numbers"
        if dtype is None and not entry.part_count and prod(entry.shape) > entry.size:
            return Status.DAMAGED, f"its {entry.size:,} bytes cannot hold {prod(entry.shape):,} lengths"
        return None

    def _span(self, name: str, entry: bundle.BundleEntry) -> tuple[Span, Status, Finding | None]:
        """Return where the bytes of a tensor are, and what is wrong with that."""
        file = self._files.open(entry.shard)
        if isinstance(file, Finding):
            status = Status.MISSING if entry.size else Status.COMPLETE
            finding = self._bad(name, file.reason, status) if entry.size else None
            return Span(None, entry.offset, entry.size, self._files.name_of(entry.shard)), status, finding
        there = file.find_end() - file.start
        self._files.need(entry.shard, entry.offset + entry.size)
        span = Span(file.data, file.start + entry.offset, entry.size, file.path, file.end)
        status = status_by_place(entry.offset, entry.offset + entry.size, there)
        if status is Status.COMPLETE:
            return span, status, None
        reason = f"its bytes end at {entry.offset + entry.size:,} of {file.name}, which has {there:,} bytes"
        return span, status, self._bad(name, reason, status)

    def _in_parts(
        self, name: str, key: str, entry: bundle.BundleEntry, dtype: DType | None, told: dict[str, Any]
    ) -> Tensor:
        """Return a tensor whose parts have entries of their own."""
        shape = entry.shape
        reason = "strings in parts are not put together"
        if dtype is not None:
            reason = refusal(entry.part_count, len(shape), self.extraction.session.budget) or ""
        if dtype is None or reason:
            finding = self._bad(name, reason, Status.UNSUPPORTED)
            return Tensor(name, dtype, shape, (), status=Status.UNSUPPORTED, finding=finding, **told)
        parts: list[Fragment] = []
        spans: list[Span] = []
        wrong: Finding | None = None
        try:
            boxes = [box_of(shape, extents) for extents in entry.slices()]
            if not covers(shape, boxes):
                raise MalformedError("its parts overlap, or do not cover it")
            for (starts, lengths), found in zip(boxes, self._part_entries(key, entry), strict=True):
                if (
                    found.shape != lengths
                    or found.type != entry.type
                    or found.size != dtype.stored_nbytes(prod(lengths))
                ):
                    raise MalformedError("a part of it has another type or size")
                span, _, bad = self._span(name, found)
                spans.append(span)
                wrong = wrong or bad
                if span.data is not None and span.length:
                    content = span.data.range(span.offset, span.offset + span.length)
                    parts.append(Fragment(starts, lengths, content, span.there))
        except (MalformedError, EndOfDataError, GapError) as error:
            status = Status.MISSING if isinstance(error, EndOfDataError) else Status.DAMAGED
            return Tensor(name, dtype, shape, (), status=status, finding=self._bad(name, error.reason, status), **told)
        order = "big" if self.header[1] else "little"
        called = f"{self.extraction.name}::{name}"
        worst, whole = put_together(called, shape, dtype.itemsize, spans, parts, is_whole=wrong is None)
        more: Any = {"finding": wrong, "byteorder": order, "content": whole, **told}
        return Tensor(name, dtype, shape, tuple(spans), status=worst, **more)

    def _part_entries(self, key: str, entry: bundle.BundleEntry) -> list[bundle.BundleEntry]:
        """Return the entries of the parts of a tensor, found in the order of their keys: each block is read once.

        Raises `EndOfDataError` if one is not there, `MalformedError` if one is named twice, or no entry.
        """
        prefix = bundle.name_prefix(bundle.bytes_of(key))
        rests = [bundle.slice_rest(extents) for extents in entry.slices()]
        if len(set(rests)) < len(rests):
            raise MalformedError("a part of it is named twice")
        found: dict[bytes, bundle.BundleEntry] = {}
        for rest in sorted(rests):
            raw = self.parser.table.value_at(prefix + rest)
            if raw is None:
                raise EndOfDataError("a part of it has no entry")
            found[rest] = bundle.read_entry(raw)
        return [found[rest] for rest in rests]

    @property
    def _alone(self) -> Finding:
        """The note that the data files were not looked for."""
        reason = (
            "the data files were not looked for, as the index does not lie in a folder; in an archive, name it alone"
        )
        return Finding("data-not-read", reason, severity=Severity.NOTE, source=self.extraction.name)

    def _bad(self, name: str, reason: str, status: Status = Status.DAMAGED) -> Finding:
        return finding_by_status(status, reason, path=name, source=self.extraction.name)

    # -- data files ----------------------------------------------------------------------------------------------------

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the data files that are there."""
        if self.extraction.folder is not None:
            yield from self._files.there()

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield the data files that tensors lie in and that are not there."""
        return ((self._files.name_of(shard), reason) for shard, reason in self._files.missing())

    def node_of(self, tensor: Tensor) -> Node | None:
        """Return the entry of a tensor in the index."""
        return self.root.find(key_of(bundle.bytes_of(tensor.key or tensor.name)))

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the tensor of an entry in the index."""
        return self.find(str(node.key)) if node.parent is self.root and node.key else None

    def why_unknown(self) -> str | None:
        """Return why variables are called by their keys, if they should have names."""
        return next((finding.reason for finding in self.findings if finding.code == "names"), None)

    def other_names(self, tensor: Tensor) -> Sequence[str]:
        """Return the key of a tensor, and what of it differs from those of others."""
        return () if tensor.key is None else (tensor.key, bundle.shown(tensor.key))

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return up to three similar names and keys; the object graph only if nothing else is similar."""
        names = self.names
        keys = (key for key, _ in islice(self._pairs(), _SUGGESTED) if key != bundle.GRAPH)
        found = near_misses(name, (called for key in keys for called in {names.name_of(key): 0, bundle.shown(key): 0}))
        return found or near_misses(name, (bundle.GRAPH,))

    def is_bookkeeping(self, tensor: Tensor) -> bool:
        """Return whether it is the object graph, which only says how the others are called."""
        return bundle.GRAPH in (tensor.name, tensor.key)

    # -- what the file says of itself ----------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Number of data files, byte order, and version of the writer."""
        count, big = self.header
        header = self.root.find("")
        found: dict[str, Any] = {}
        if header is not None:
            found = {"num_shards": count, "endianness": "big" if big else "little"}
        producer = value_at(header, "version", "producer")
        if producer is not None:
            found["producer"] = producer
        slots: dict[str, int] = {}
        for key, _ in self._pairs():
            slot = bundle.slot_of(key)
            if slot is not None:
                slots[slot] = slots.get(slot, 0) + 1
                if len(slots) > _MOST_SLOTS:
                    return found
        return {**found, "optimizer_slots": slots} if slots else found

    # -- checksums -----------------------------------------------------------------------------------------------------

    def resolve(self, tensor: Tensor) -> None:
        """Compare the checksum of a tensor of up to 64 MiB before its bytes are returned."""
        super().resolve(tensor)
        if tensor.stored_nbytes <= _CONFIRMED and tensor.is_claimed_whole:
            self._compare(tensor)

    def checker(self, tensor: Tensor) -> Callable[[int, memoryview], None] | None:
        """Compare the checksum of a larger tensor while its bytes are read in order."""
        if tensor.stored_nbytes <= _CONFIRMED or len(tensor.spans) != 1 or isinstance(tensor, StringTensor):
            return None
        span = tensor.spans[0]
        if span.data is None or not tensor.is_claimed_whole:
            return None
        follower = self._followed
        if follower is None or not follower.follows(span):
            entry = self._entry(tensor.key or tensor.name)
            if not isinstance(entry, bundle.BundleEntry) or entry.part_count or entry.crc is None:
                return None
            follower = self._followed = Follower(span, entry.crc, self._contradiction(tensor, span), self.findings)
        return follower.feed

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check the index, then the bytes of each tensor by their checksum."""
        told: set[Finding] = set()
        for noted in super().check(strict=strict):
            told.add(noted)
            yield noted
        for tensor in self.tensors():
            finding = tensor.finding
            if finding is None or finding.reason == CONTRADICTED:
                yield from self._compare(tensor)
                continue
            if finding not in told:
                self.findings.add(finding)
                yield finding
            if not finding.path:
                told.add(finding)  # it says the same of many
        self._compared = True

    def resolve_all(self) -> None:
        """Compare all checksums, so that no status changes later."""
        for tensor in self.tensors():
            self._compare(tensor)
        self._compared = True

    def _compare(self, tensor: Tensor) -> list[Finding]:
        """Compare the checksums of the bytes of a tensor, each stretch once; return what is wrong."""
        wrong: list[Finding] = []
        entry = self._entry(tensor.key or tensor.name)
        entries = [entry] if isinstance(entry, bundle.BundleEntry) else []
        if entries and entries[0].part_count:
            entries = self._part_entries(tensor.key or tensor.name, entries[0]) if tensor.spans else []
        for span, part in zip(tensor.spans, entries, strict=False):
            data = span.data
            if data is None or part.crc is None or not span.length:
                continue
            known = data.range_status(span.offset, span.offset + span.length)
            # Of a stream or member that is in doubt, what the checksum of a tensor confirms is right nevertheless.
            if known.reason == CONTRADICTED:  # another viewer of the same archive may have found that
                wrong.append(self._contradiction(tensor, span))
                continue
            # The checksum of a stream or member around it confirms what was stored, not what TensorFlow had written.
            if (known.verified and self._compared) or known.there < span.length:
                continue
            try:
                if isinstance(tensor, StringTensor):
                    agrees = _agrees(tensor)
                else:
                    agrees = crc_of(data, span.offset, span.length, self.extraction.session.check_cancelled) == part.crc
            except (GapError, EndOfDataError):  # found while it was read: the status tells of it
                continue
            if agrees:
                data.vouch(span.offset, span.offset + span.length)
            elif agrees is False:
                data.condemn(span.offset, span.offset + span.length, CONTRADICTED)
                wrong.append(self._contradiction(tensor, span))
        for finding in wrong:
            self.findings.add(finding)
        return wrong

    @staticmethod
    def _contradiction(tensor: Tensor, span: Span) -> Finding:
        return Finding("hash", CONTRADICTED, path=tensor.name, offset=span.offset, length=span.length, source=span.path)

    # -- how complete it is --------------------------------------------------------------------------------------------

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: the data files count, too."""
        self._files.close_extent(extent, self.root.status)
        return self.keep_extent(extent)


def _is_no_tensor(key: bytes) -> bool:
    """Return whether a key is that of the header, or of a part of a tensor."""
    return not key or bundle.prefix_in(key) is not None  # a name may begin with a zero byte, too


def type_name(number: int) -> str:
    """Return the name of a number of the enum DataType."""
    from pparse.protos import schema as builtin_schema

    return builtin_schema().enum("tensorflow.DataType").names.get(number, f"DT_{number}")


def _agrees(tensor: StringTensor) -> bool | None:
    """Compare the checksums of strings; bytes that are no strings are none of its own."""
    try:
        return tensor.verify()
    except MalformedError:
        return False


# -- Checksums of tensors: read for themselves, or followed while a large tensor is read, which need not be read twice

CONTRADICTED: Final = "its checksum is wrong"


class Follower:
    """The checksum of the bytes of one tensor that were read so far, from the first on. Thread-safe."""

    def __init__(self, span: Span, wanted: int, contradiction: Finding, findings: FindingList) -> None:
        """``wanted`` is the masked CRC-32C, ``contradiction`` what is added to ``findings`` if it is another."""
        self._span = span
        self._wanted = wanted
        self._contradiction = contradiction
        self._findings = findings
        self._lock = Lock()
        self._at = 0
        self._crc = 0

    def follows(self, span: Span) -> bool:
        """Return whether it is the checksum of these bytes."""
        own = self._span
        return own.data is span.data and own.offset == span.offset and own.length == span.length

    def feed(self, offset: int, piece: memoryview) -> None:
        """Take a stretch that was read; with the last one, vouch for all bytes, or condemn them.

        A stretch that does not begin where the last one ended, such as a slice, is not counted; the first begins anew.
        """
        with self._lock:
            if not offset:
                self._at = self._crc = 0
            if offset != self._at:
                return
            self._crc = crc32c(piece, self._crc)
            self._at += len(piece)
            done = self._at == self._span.length
        data = self._span.data
        if not done or data is None:
            return
        start, end = self._span.offset, self._span.offset + self._span.length
        if masked(self._crc) == self._wanted:
            data.vouch(start, end)
        else:
            data.condemn(start, end, CONTRADICTED)
            self._findings.add(self._contradiction)


# -- Tensors of strings in a data file (tensor_bundle.cc, WriteStringTensor) -------------------------------------------

# All lengths as varints, u32 masked CRC-32C of the lengths, then all bytes. That checksum is of each length as u32, or
# as u64 from 2^32 on; both in the byte order of the machine. The one in the index is of these lengths, the stored
# checksum and the bytes.

_CRC: Final = 4


class StringTensor(ProtoTensor):
    """A tensor of strings in a data file; ``_crc`` is their checksum in the index, None if there is none."""

    __slots__ = ("_crc",)

    _crc: int | None

    def lie_in(self, span: Span, crc: int | None) -> None:
        """Note the bytes in the data file, which may not be there, and the checksum of them that the index states."""
        data, self._listing, self._crc = span.data, None, crc
        self._maker, self._parts = None, ()
        if data is not None:
            content = data.range(span.offset, span.offset + span.length)
            self._listing = partial(string_list, content, self.size, _CRC), content

    def strings(self) -> Iterator[bytes]:
        """Yield the elements in C order. Raises `MalformedError` if the lengths are not those of the content."""
        self._refuse_if_not_whole()
        yield from super().strings()

    def verify(self) -> bool | None:
        """Compare the checksums, reading all of it; None if there is none."""
        content = None if self._listing is None else self._listing[1]
        if self._crc is None or content is None or not self.is_complete:
            return None
        return string_crc(content, self.size, self.byteorder) == self._crc


def string_crc(content: Range, count: int, byteorder: str = "little") -> int:
    """Return the masked checksum that an index states for a tensor of strings; -1 if the one inside is wrong.

    Lengths and inner checksum are in the byte order of the machine that wrote them.
    """
    order = ">" if byteorder == "big" else "<"
    pos = strings_begin(content, count, _CRC)
    crc = 0
    for length, _ in lengths_in(content, count):
        crc = crc32c(pack(order + ("I" if length < 1 << 32 else "Q"), length), crc)
    stored = content.data.read_exact(pos - _CRC, _CRC)
    (stated,) = unpack_from(order + "I", stored)
    if masked(crc) != stated:
        return -1
    crc = crc32c(stored, crc)
    for block in blocks(content.data.read_exact, pos, content.end, 1 << 20):
        crc = crc32c(block, crc)
    return masked(crc)


# Optimizers keep a few things for each variable; more names than that are no names of such.
_MOST_SLOTS: Final = 1_000
# Names that are compared with one that is not found.
_SUGGESTED: Final = 20_000
# Tensors up to this size are compared with their checksum before they are returned.
_CONFIRMED: Final = 64 << 20


# -- Which viewer shows a checkpoint: that of its version --------------------------------------------------------------


def viewer_of_version(extraction: Extraction) -> Viewer:
    """Return the viewer of a checkpoint of version 1 or 2."""
    parser: Any = extraction.parse().parser
    if parser.version == 1:
        from pparse.viewers.checkpoint.version1 import Version1Viewer

        return Version1Viewer(extraction)

    return CheckpointViewer(extraction)
