"""The arrays in a pickle: those of numpy, and of libraries that keep theirs in numpy's."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import accumulate
from operator import mul

from pparse.containers.member import NameCounter
from pparse.data.base import Access, BytesData, Distance
from pparse.data.spliced import FlippedData
from pparse.data.zero_runs import zeros_at_end
from pparse.document.extraction import Extraction
from pparse.document.opening import Resume, is_inside
from pparse.errors import DataError, told
from pparse.findings import COMPLETE, Finding, Severity, Status, worst_status
from pparse.limits import LITTLE
from pparse.parsers.pickle.arrays import Array, Described, number_of, scalar_of
from pparse.parsers.pickle.values import MOST_BITS, Call, Persistent
from pparse.parsers.pytorch.rebuild import Odd, Refused, storage_id
from pparse.parsers.pytorch.storages import StorageReader
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.node_viewer import node_called
from pparse.tensors.span import Span
from pparse.tensors.status import status_by_place, unwritten_in
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.node import Node
from pparse.viewers.pickle.walk import PickleWalk, tree_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.parser import PickleParser
    from pparse.parsers.pytorch.rebuild import StorageId, StoredTensor
    from pparse.parsers.pytorch.storages import Stored
    from pparse.tensors.status import Extent
    from pparse.viewers.pickle.walk import Leaf

    What = StoredTensor | Array | Odd

# -- Makes tensors of what a checkpoint describes: PyTorch's, and numpy's arrays ---------------------------------------

# Bytes that follow a storage in an archive, and count as its own if they are cut.
_DESCRIPTOR: Final = 24


class HeldSpan(Span):
    """A stretch of a storage that may have a checksum of its own."""

    __slots__ = ("_held",)

    def __init__(self, held: Stored, data: Data | None, begin: int, length: int, path: str, end: int | None) -> None:
        super().__init__(data, begin, length, path, end)
        self._held = held

    def part(self, start: int, length: int) -> Span:
        """Return so many of the bytes, which have the storage's checksum."""
        return HeldSpan(self._held, self.data, self.offset + start, length, self.path, self.end)

    def verify(self) -> None:
        """Compare the checksum of the storage."""
        self._held.verify()

    def resolve(self) -> None:
        """Do what `prove` does, if the storage is small."""
        if self._held.size <= LITTLE and not self.is_proved:
            self.verify()

    def agrees_with_holes(self, holes: list[tuple[int, int]], most: int) -> bool:
        """Return whether zeros in its place are right; ``holes`` were never written.

        A storage that was not written at all is compared without reading it, another one is read if it has at most
        ``most`` bytes; larger ones are believed until somebody compares them.
        """
        data, begin, end = self._held.place
        if unwritten_in(holes, begin, end)[1] == end - begin:
            return self._held.is_of_zeros()
        if end - begin <= most and not data.is_proved(begin, end):
            self.verify()
            return data.is_proved(begin, end)
        return True


class SpanToPlace(HeldSpan):
    """A stretch of a far storage, whose offset is read from the archive when it is asked for."""

    __slots__ = ("_begin", "_place")

    def __init__(self, held: Stored, begin: int, length: int, path: str) -> None:
        self.data = held.data
        self.length = length
        self.path = path
        self._held = held
        self._begin = begin
        self._place: tuple[int, int] | None = None

    def _find(self) -> tuple[int, int]:
        if self._place is None:
            _, start, stop = self._held.place
            self._place = start + self._begin, stop
        return self._place

    @property
    def is_placed(self) -> bool:  # type: ignore[override]
        """Whether the offset was read."""
        return self._place is not None

    @property
    def offset(self) -> int:  # type: ignore[override]
        """Where the bytes begin."""
        return self._find()[0]

    @property
    def end(self) -> int:  # type: ignore[override]
        """Where the storage ends."""
        return self._find()[1]


def _as_type(array: Array, wanted: str) -> Array:
    """Return an array with its elements as another type, as torch makes them; as it is if it has no numbers."""
    target = DTYPES.get(wanted)
    if target is None or target.packed:
        return Array(array.shape, Described(wanted, None, reason=f"the type {wanted} is not known"))
    try:
        source = DType.of(array.type.dtype or "")
    except ValueError:
        return array
    if array.content is None or source.packed or not source.is_number or len(array.content) % source.itemsize:
        return array
    import numpy as np

    stored = source.numpy.newbyteorder(">" if array.type.big_endian else "<")
    content = np.frombuffer(array.content, stored).astype(target.numpy).tobytes()
    return Array(array.shape, Described(array.type.what, wanted), content, fortran=array.fortran)


def _stretch(stored: StoredTensor, dtype: DType, count: int) -> tuple[int, int]:
    """Return begin and end of the bytes that a tensor touches in its storage, of so many elements."""
    first = stored.offset
    if stored.storage is not None and stored.storage.view:
        first += stored.storage.view[1]
    if not count:
        return first * dtype.itemsize, first * dtype.itemsize
    if dtype.packed:
        begin = first * dtype.bits // 8
        return begin, begin + dtype.stored_nbytes(count)
    return first * dtype.itemsize, (first + count) * dtype.itemsize


def _reach(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, bool]:
    """Return from the first to behind which element a tensor reaches, and whether these are its own, in C order."""
    last = distance = 1
    is_contiguous = True
    for length, step in zip(reversed(shape), reversed(stride), strict=True):
        if not length:
            return 0, is_contiguous
        last += (length - 1) * step
        is_contiguous = is_contiguous and (length == 1 or step == distance)
        distance *= length
    return last, is_contiguous


_MOST_SIZES: Final = 8  # of what is worth remembering, and takes little memory
_known_reach = lru_cache(1_000)(_reach)  # models have few shapes


def _signs(dtype: DType, stored: StoredTensor, *, swapped: bool) -> Iterator[int]:
    """Yield the places, in an element, of the bytes with the signs that are the other way round."""
    if dtype.kind == "complex":
        half = dtype.itemsize // 2
        real, imag = (0, half) if swapped else (half - 1, dtype.itemsize - 1)
        if stored.neg:
            yield real
        if stored.neg is not stored.conj:
            yield imag
    elif stored.neg:
        yield 0 if swapped else dtype.itemsize - 1


# Storages with holes in them are read for their checksums up to so many bytes in all: a list must not read the file.
_READ: Final = 4 << 20


# Modules whose objects are, or hold, arrays.
_ARRAYS: Final = ("numpy.", "torch.", "joblib.")
MOST_FACTS: Final = 10_000
_LONGEST: Final = 100_000
# So many zeros at the end may be what was not written.
_BLANK: Final = 512
# Memory that the description of a tensor takes in a table of names.
_NOTED: Final = 800
_THE_PICKLE: Final = ("",)
# What describes tensors, and what ends it: a pickle, or JSON.
_FORMS: Final = (("pickle", "STOP"), ("JSON", "last bracket"))


class PickleViewer(Viewer):
    """A mapping of names to arrays, by their paths in what was pickled."""

    most_facts = MOST_FACTS

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser
        self.storages = self.parser if isinstance(self.parser, StorageReader) else StorageReader()
        """Where the storages of PyTorch are: a plain pickle has none."""
        self.first_ids: dict[str, StorageId] = {}
        """The first id of each storage that was met: torch keeps the type that it says (torch/serialization.py)."""
        self.lacking: dict[str, int] = {}
        """Bytes that are missing of storages, by key."""
        self.odd_sizes: dict[str, tuple[int, int]] = {}
        """Of storages that have others than they should: how many bytes are there, and should be."""
        self._room = _READ  # for comparing storages that have holes
        self._known = -1  # how much was known of the bytes when the names were judged
        self._doubted: dict[str, str | None] = {}  # why what describes tensors may be wrong, by its key
        self._has_room = True  # for a table of names
        self._table: dict[str, tuple[What, str | None]] | None = None
        self._noted_at = 0  # how much was known of the bytes when the table was made

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether the pickle names anything of numpy or torch."""
        return any(name.startswith(_ARRAYS) for name in parser.global_names())

    def pickled(self) -> Node | None:
        """Return the value that was pickled; None if it is lost."""
        return self.root

    @property
    def default_node(self) -> Node:
        """What was pickled."""
        return self.pickled() or self.root

    def leaves(self) -> Iterator[Leaf]:
        """Yield everything that was pickled, name by name."""
        root = self.pickled()
        return iter(()) if root is None else self.walk(root)

    def walk(self, root: Node, name: str = "") -> Iterator[Leaf]:
        """Yield everything in a node of a pickle, which is called ``name``."""
        return PickleWalk(root.result.parser, self.open_bytes).leaves(root, name)  # type: ignore[arg-type]

    def open_bytes(self, content: bytes) -> StorageId | None:
        """Return the storage in ``content``, a checkpoint with nothing else; None if it is not one that can be read."""
        outer = self.extraction
        data, name = BytesData(content, outer.name), f"{outer.name} (storage)"
        inner = Extraction(outer.session, name, data, 0, len(content), outer)
        try:
            inner.go_deeper()
            parser = inner.parse().parser
            root = parser.pickled() if isinstance(parser, StorageReader) else None
            value = None if root is None else root.result.parser.to_python(root)
            found = storage_id(value) if isinstance(value, Persistent) else None
            if found is not None and isinstance(parser, StorageReader):
                found.held = parser.stored(found.key)
                if found.held is not None:
                    found.held.verify()  # its bytes are in memory, and it is opened anew by whoever lists it again
        except DataError:
            return None
        return found if found is not None and found.held is not None else None

    def __len__(self) -> int:
        return sum(1 for _ in self._each_name())  # whose table serves who lists them behind that, as `list` does

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the pickle."""
        for name, what, dtype in self.named_tensors():
            yield self._make(name, what, dtype)

    def _each_name(self) -> Generator[tuple[str, tuple[What, str | None]], None, None]:
        """Yield each name and what has it, and note that: who asks for all names wants it again."""
        if self._table is None and self._has_room:
            yield from self._note_names()
        else:
            yield from ((name, (what, dtype)) for name, what, dtype in self.named_tensors())

    def _given(self, name: str, what: Any) -> Tensor:
        return self._make(name, *what)

    def named_tensors(self) -> Iterator[tuple[str, What, str | None]]:
        """Yield names and descriptions of all tensors, and the types that arrays are to have."""
        table = self._table
        if table is not None and self._noted_at == self.extraction.session.stats.discoveries:
            yield from ((name, *what) for name, what in table.items())
            return
        names = NameCounter()
        for leaf in self.leaves():
            for name, what, dtype in self._named_in(leaf):
                number = names.add(name)
                yield name if number == 1 else f"{name}#{number}", what, dtype

    def _named_in(self, leaf: Leaf) -> Iterator[tuple[str, What, str | None]]:
        """Yield the same of one leaf; nothing if it is no tensor. Equal names are not told apart."""
        meant = self.storages.named(leaf.value) if isinstance(leaf.value, Persistent) and not leaf.tensors else None
        for suffix, what in leaf.tensors if meant is None else [("", meant)]:
            yield leaf.name + suffix if leaf.name else suffix.removeprefix("."), what, leaf.dtype

    def described_by(self, name: str, what: What) -> Sequence[str]:
        """Return the keys of what describes a tensor, for `description`; by default, the one pickle."""
        return _THE_PICKLE

    described_by.__guarded__ = True  # type: ignore[attr-defined]  # it reads nothing

    def description(self, key: str) -> Node | None:
        """Return the value of what describes tensors; None if it is lost."""
        return self.pickled()

    def descriptions(self) -> Iterator[Node]:
        """Yield the values of all that describes tensors, as far as they are there."""
        root = self.pickled()
        if root is not None:
            yield root

    def _mark(self, tensor: Tensor, what: What) -> Tensor:
        """Note what is doubtful about a tensor besides its own storage: its name, and bytes never written."""
        for key in self.described_by(tensor.name, what):
            why = self._doubt_of_names(key)
            if why is not None and tensor.is_claimed_whole:
                tensor.doubt(self._finding(tensor.name, "doubt", why))
                return tensor
        holes = self.holes if self._holes is None else self._holes
        if holes and tensor.spans and tensor.spans[0].data is self.extraction.parsed.data:
            span = tensor.spans[0]
            count = unwritten_in(holes, span.offset, span.offset + span.length)[1]
            if count and not (self.storages.has_checksums and self._agrees(span)):
                tensor.unwritten_nbytes = count
        return tensor

    def _doubt_of_names(self, key: str) -> str | None:
        """Return why what describes tensors may be wrong; None if nothing suggests that."""
        discoveries = self.extraction.session.stats.discoveries
        if discoveries != self._known:
            self._known = discoveries
            self._doubted.clear()
        if key not in self._doubted:
            self._doubted[key] = _judged(self.description(key))
        return self._doubted[key]

    def _agrees(self, span: Span) -> bool:
        """Return whether the checksum of a storage, as far as that is compared, says that zeros are right."""
        if not isinstance(span, HeldSpan):
            return False
        most, self._room = self._room, max(0, self._room - span.length)
        return span.agrees_with_holes(self.holes, most)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether something is known against bytes that may be those of the names, or of a storage."""
        return self.extraction.session.stats.doubts > 0

    def _make(self, name: str, what: What, dtype: str | None) -> Tensor:
        return self._mark(self.as_of_now(self._made(name, what, dtype)), what)

    def _made(self, name: str, what: What, dtype: str | None) -> Tensor:
        if isinstance(what, Array):
            return self._of_numpy(name, what, dtype)
        if isinstance(what, Odd):
            made = self._unreadable(name, what.code, f"{what}")
            if isinstance(what, Refused):
                made.status = Status.DAMAGED
            return made
        storage = what.storage
        held = None if storage is None else storage.held or self.storages.stored(storage.key)
        return self._of_torch(name, what, held)

    def _unreadable(
        self,
        name: str,
        code: str,
        reason: str,
        shape: tuple[int, ...] = UNKNOWN_SHAPE,
        dtype: DType | None = None,
        word: str = "",
        severity: Severity = Severity.ERROR,
    ) -> Tensor:
        """Return a tensor that cannot be read, for a reason."""
        finding = self._finding(name, code, reason, severity=severity)
        return Tensor(name, dtype, shape, (), stored_dtype=word, status=Status.UNSUPPORTED, finding=finding, owner=self)

    def _finding(self, name: str, code: str, reason: str, **more: Any) -> Finding:
        return Finding(code, reason, path=name, source=self.extraction.name, **more)

    def _note(self, code: str, reason: str, path: str = "", **more: Any) -> None:
        self.findings.add(self._finding(path, code, reason, **more))

    def _of_torch(self, name: str, stored: StoredTensor, held: Stored | None) -> Tensor:
        """Return a tensor of PyTorch; ``held``: its storage in the file, None if that is missing."""
        rank, most = len(stored.shape), self.extraction.session.limits.tensor_rank
        if rank > most:
            reason = f"it has {rank:,} dimensions, more than the limit tensor_rank={most}"
            return self._unreadable(name, "limit", reason, word=stored.torch_dtype)
        if stored.storage is not None and stored.storage.held is None:
            first = self.first_ids.setdefault(stored.storage.key, stored.storage)
            if first.dtype != stored.storage.dtype and stored.dtype == stored.storage.dtype:
                reason = f"its storage is one of {first.torch_dtype}, and one of {stored.torch_dtype} here"
                return self._unreadable(name, "bad-tensor", reason, stored.shape, None, stored.torch_dtype)
        more: dict[str, Any]
        dtype, word, storage = DTYPES.get(stored.dtype), stored.torch_dtype, stored.storage
        if storage is None:
            reason = "a meta tensor: it has a shape and a type, but no values"
            return self._unreadable(name, "meta", reason, stored.shape, dtype, word, Severity.NOTE)
        if dtype is None:
            return self._unreadable(name, "unknown-type", f"the type {word} is not known", stored.shape, None, word)
        reach = _known_reach if rank <= _MOST_SIZES else _reach
        count, is_contiguous = reach(stored.shape, stored.stride)
        begin, end = _stretch(stored, dtype, count)
        meant = storage.count * DTYPES[storage.dtype].itemsize if not storage.view else end
        if held is None:
            self.lacking[storage.key] = meant
            reason = f"its storage, {storage.key!r}, is not in the file"
            lost = self._finding(name, "missing-storage", reason, wanted=end - begin, got=0)
            if end == begin:  # nothing is missing of the tensor, but of the file
                self.findings.add(lost)
            last = self.extraction.parsed.find_end()  # in order, it comes behind all that is there
            span = Span(None, last, end - begin, self.extraction.path)
            status, finding = (Status.MISSING, lost) if end > begin else (Status.COMPLETE, None)
            more = {"stored_dtype": word, "status": status, "finding": finding}
            return Tensor(name, dtype, stored.shape, (span,), owner=self, **more)
        status, why, stop = self._status_in(name, storage, held, meant, (begin, end))
        strides = None if is_contiguous else tuple(step * dtype.itemsize for step in stored.stride)
        stored_as = DTYPES[storage.dtype]  # torch swaps by the type of the storage: not that of untyped ones
        swapped = self.storages.byteorder == "big" and stored_as.itemsize > 1
        order, found = "big" if swapped else "little", why if status is not COMPLETE else None
        places = partial(self._places_of, held, begin, end, stop)
        if strides is None and found is None and status is COMPLETE and 0 not in stored.shape:
            made = Tensor(name, dtype, stored.shape, places)  # keywords would take twice the time
            made.stored_dtype, made.byteorder, made._owner = word, order, self
        else:
            more = {"stored_dtype": word, "strides": strides, "byteorder": order, "status": status, "finding": found}
            made = Tensor(name, dtype, stored.shape, places, owner=self, **more)
        if (stored.conj or stored.neg) and status is COMPLETE:
            span = made.spans[0]
            if span.data is not None:
                part = span.data.range(span.offset, span.offset + span.length)
                flipped = FlippedData(part, dtype.itemsize, list(_signs(dtype, stored, swapped=swapped)), name)
                made._content = Span(flipped, 0, span.length, self.extraction.path)
        return made

    def _status_in(
        self, name: str, storage: StorageId, held: Stored, meant: int, place: tuple[int, int]
    ) -> tuple[Status, Finding | None, int | None]:
        """Return status and finding of the tensor at ``place`` in a storage that should have ``meant`` bytes.

        And where what was written of it ends, if zeros follow.
        """
        status, end = held.status, place[1]
        if status is COMPLETE and held.size != meant and not storage.view:
            self.odd_sizes[storage.key] = held.size, meant
        if status is COMPLETE and end <= held.size:
            return status, held.finding, None
        if status is COMPLETE:
            reason = f"its storage, {storage.key!r}, is shorter than the tensor"
            return Status.DAMAGED, self._finding(name, "short-storage", reason, wanted=end, got=held.size), None
        if status is not Status.TRUNCATED:
            return status, held.finding, None
        there, stop = held.size, None
        if there > meant + _DESCRIPTOR:
            written = held.written()  # of a file that has a length, and whose last part was not written
            if written is None or written > meant + _DESCRIPTOR:
                reason = f"its storage, {storage.key!r}, does not end where it should"
                return Status.DAMAGED, self._finding(name, "bad-storage", reason, wanted=meant, got=there), None
            there = stop = min(meant, written)
        self.lacking[storage.key] = max(0, meant - there)
        return status_by_place(*place, there), held.finding, stop

    def _places_of(self, held: Stored, begin: int, end: int, written: int | None, tensor: Tensor) -> tuple[Span, ...]:
        if held.data is not None and held.data.distance is Distance.FAR:
            return (SpanToPlace(held, begin, end - begin, self.extraction.path),)
        try:
            data, start, stop = held.place
        except DataError as error:
            tensor.doubt(self._finding(tensor.name, "bad-storage", error.reason))
            return (Span(None, 0, end - begin, self.extraction.path),)
        stop = stop if written is None else start + written
        return (HeldSpan(held, data, start + begin, end - begin, self.extraction.path, stop),)

    def _of_numpy(self, name: str, array: Array, wanted: str | None = None) -> Tensor:
        """Return a numpy array, whose bytes are in the pickle; ``wanted``: the type that it is to have."""
        if wanted is not None:
            array = _as_type(array, wanted)
        what = array.type
        if what.dtype is None or (array.content is None and array.place is None):
            reason = what.reason or f"of the type {what.what} of numpy there are no elements"
            return self._unreadable(name, "unknown-type", reason, array.shape, None, what.what)
        try:
            dtype = DType.of(what.dtype)
        except ValueError as error:
            return self._unreadable(name, "unknown-type", str(error), array.shape, None, what.what)
        strides = tuple(accumulate(array.shape[:-1], mul, initial=dtype.itemsize)) if array.fortran else None
        content = array.content or b""
        data, begin, end = array.place or (BytesData(content, self.extraction.name), 0, len(content))
        span = Span(data, begin, end - begin, self.extraction.path)
        order, said = "big" if what.big_endian and dtype.itemsize > 1 else "little", what.what
        made = Tensor(
            name, dtype, array.shape, (span,), stored_dtype=said, strides=strides, byteorder=order, owner=self
        )
        meant = made.size * dtype.itemsize
        if array.doubt:
            made.status = Status.DAMAGED
            made.finding = self._finding(name, *array.doubt, offset=begin)
        elif meant == end - begin and array.place is not None and end > self.extraction.parsed.find_end():
            self._mark_cut(made, begin, end)
        elif meant != end - begin:
            made.status, reason = Status.DAMAGED, "its bytes do not fill its shape"
            made.finding = self._finding(name, "bad-size", reason, wanted=meant, got=end - begin)
        return made

    def _mark_cut(self, made: Tensor, begin: int, end: int) -> None:
        """Note that the file ends before the bytes ``[begin, end)`` of an array do."""
        last = self.extraction.parsed.find_end()
        made.status = status_by_place(begin, end, last)
        if made.is_complete:
            return
        there = max(0, last - begin)
        self.lacking[made.name] = end - begin - there
        more = {"offset": last, "wanted": end - begin, "got": there}
        made.finding = self._finding(made.name, "truncated", "its bytes end early", **more)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added."""
        extent.expected = extent.actual or 0
        roots = list(self.descriptions())
        status = self.root.status
        for root in roots if status is Status.COMPLETE else ():
            own = root.status
            if own is Status.TRUNCATED and root.extraction is not self.extraction.parsed:
                own = Status.DAMAGED  # no byte of the file is missing
                what, end = _FORMS[root.result.parser.name == "json"]
                name = root.extraction.name
                reason = f"the {what} {name} ends before its {end}, though the archive around it is whole"
                self._note("malformed", reason, name)
            status = worst_status(status, own)
        is_whole, lacking = status is Status.COMPLETE, sum(self.lacking.values())
        origin = self.extraction.parsed.origin
        if lacking and origin is not None and isinstance(origin[0], StorageReader):
            file = self.extraction.parent.path if self.extraction.parent is not None else ""
            reason = f"it is the pickle of a checkpoint, which has the storages: open {file} instead"
            self._note("part-of-checkpoint", reason, severity=Severity.WARNING)
        written = self._written_end(lacking)
        if written is not None:
            self._note_blank(written, extent, lacking)
        elif status is Status.TRUNCATED:
            extent.end_early(lacking)
        elif roots and is_whole and self.stream_is_cut():
            extent.document_status, extent.resume_at = Status.TRUNCATED, extent.actual
        elif (lost := not roots and self.is_described()) or self.findings.errors or self._hit(self.root, *roots):
            extent.document_status = Status.DAMAGED
            if lost and is_whole and not self.findings.errors:
                how = told("'-f zip'", 'format="zip"')
                reason = f"no member is {self.described_in}, or that is lost; {how} lists what there is"
                self._note("no-pickle", reason)
            for root in roots if not self.findings.errors else ():
                if root.finding is not None and self._hit(root):  # it lies in another document, whose check tells more
                    name, there = root.extraction.name, root.extraction.data is self.extraction.parsed.data
                    place = {"offset": root.finding.offset} if there else {}
                    self._note("malformed", f"what describes its tensors: {root.finding.reason}", name, **place)
        return self.keep_extent(extent)

    described_in = "its data.pkl: it is no checkpoint"
    """What the file lacks if nothing in it describes tensors."""

    def is_described(self) -> bool:
        """Return whether something in the file should describe tensors."""
        return True

    def _hit(self, *nodes: Node) -> bool:
        """Return whether a node is damaged itself; bytes of the file that are in doubt may be those of tensors."""
        file = self.extraction.parsed.data
        return any(
            node.status is Status.DAMAGED and (node.known_status is Status.DAMAGED or node.extraction.data is not file)
            for node in nodes
        )

    def _written_end(self, lacking: int) -> int | None:
        """Return where zeros begin that last to the end of the file, if they are enough for all that it lacks.

        A file of its full length was preallocated, and not written to its end.
        """
        inner = self.extraction.parsed
        start, end = inner.start, inner.find_end()
        if not lacking or is_inside(self.extraction) or inner.data.access is not Access.FREE:
            return None
        at = zeros_at_end(inner.data, start, end, self.extraction.session.check_cancelled)
        return at if end - at >= max(lacking, _BLANK) else None

    def _note_blank(self, written: int, extent: Extent, lacking: int) -> None:
        inner = self.extraction.parsed
        start, end = inner.start, inner.find_end()
        extent.document_status = Status.TRUNCATED
        extent.actual, extent.expected, extent.at_least = written - start, end - start, True
        extent.resume.append(Resume(self.extraction.name, written - start, hole=True))
        reason = (
            f"its last {end - written:,} bytes are zeros where {lacking:,} bytes of tensors should be: they were not "
            "written, or are lost"
        )
        self._note("unwritten", reason, offset=written, length=end - written)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None. The first look-up notes all names, if there is room."""
        if self._table is None and self._has_room:
            any(not self._has_room for _ in self._note_names())  # all names, unless there is no room for more
        table = self._table
        if table is None:
            found = self._by_path(name) or next((found for found in self.named_tensors() if found[0] == name), None)
            return None if found is None else self._make(*found)
        what = table.get(name)
        return None if what is None else self._make(name, *what)

    def _by_path(self, name: str) -> tuple[str, What, str | None] | None:
        """Return what is called ``name`` by its path through dicts and lists, without going through all that is there.

        None if that does not find it: it may be an attribute of an object, or the second one of its name.
        """
        root = self.pickled()
        node = None if root is None else node_called(root, name)
        for leaf in self.walk(node, name) if node is not None else ():
            return next((found for found in self._named_in(leaf) if found[0] == name), None)
        return None

    def _note_names(self) -> Iterator[tuple[str, tuple[What, str | None]]]:
        """Yield all names and what has them; behind the last one they are in the table, if there is room for all."""
        table: dict[str, tuple[What, str | None]] = {}
        stats, budget, held = self.extraction.session.stats, self.extraction.session.budget, 0
        known, has_room = stats.discoveries, True
        for name, what, dtype in self.named_tensors():
            if has_room:
                table[name] = what, dtype
                held += _NOTED + (len(what.content or b"") if isinstance(what, Array) else 0)
                if held > budget.limit // 4:
                    self._has_room = has_room = False
                    table.clear()
            yield name, (what, dtype)
        if has_room:
            self._charge = budget.charge(held, "the names of tensors", self._forget_names)
            self._table, self._noted_at = table, known

    def _forget_names(self) -> None:
        self._table = None

    def tree(self) -> Any:
        """Return what was pickled as the program had it: dicts, lists and tuples, with tensors (not read) as leaves.

        Other objects are `pparse.viewers.pickle.walk.SavedObject`. Raises `LimitError` for pickles of more than 64 MiB.
        """
        return tree_of(self)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was pickled besides arrays, by name: the first 10,000 values; objects as the names of their classes."""
        found: dict[str, Any] = {}
        for leaf in self.leaves():
            if next(self._named_in(leaf), None) is None:
                found[leaf.name] = plain(leaf.value)
                if len(found) >= MOST_FACTS:
                    break
        return found


def _judged(root: Node | None) -> str | None:
    """Return why the pickle, or the JSON, whose value is ``root`` may be wrong; None if nothing suggests that."""
    extraction = None if root is None else root.result.extraction
    if root is None or extraction is None or not extraction.data.flawed:
        return None
    extraction.resolve()  # a checksum of its own may tell that it is right
    parser: PickleParser = root.result.parser  # type: ignore[assignment]
    is_json = parser.name == "json"
    end = extraction.find_end() if is_json else parser.program(parser.starts[-1]).end
    why = extraction.data.why_suspect(extraction.start, end)
    return None if why is None else f"the {_FORMS[is_json][0]} that describes it may be wrong: {why}"


def plain(value: Any) -> Any:
    """Return a value as data that JSON knows, or as text."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"<text of {len(value):,} characters>"
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"<int of {value.bit_length():,} bits>"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Node):  # a node, of a large value or one that cannot be read
        return f"<{value.kind} of {(value.end or value.start) - value.start:,} bytes>"
    if isinstance(value, Call):
        scalar = scalar_of(value)
        return number_of(scalar) if scalar is not None else f"<{value.name or 'object'}>"
    if isinstance(value, Persistent):
        return "<persistent>"
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, set | frozenset):
        return f"<set of {len(value)}>"
    if isinstance(value, dict | list | tuple):
        return value if not value else f"<{type(value).__name__} of {len(value)}>"
    return str(value)
