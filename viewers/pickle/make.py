"""Makes tensors of what a checkpoint describes: PyTorch's, and numpy's arrays."""

from __future__ import annotations

from functools import partial

from pparse.data.base import BytesData, Distance
from pparse.data.spliced import FlippedData
from pparse.errors import PASSING, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.limits import LITTLE
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Span, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.arrays import Array
    from pparse.parsers.pytorch.rebuild import StorageId, StoredTensor
    from pparse.parsers.pytorch.storages import Stored

# Bytes that follow a storage in an archive, and count as its own if they are cut.
_DESCRIPTOR: Final = 24


class HeldSpan(Span):
    """A stretch of a storage that may have a checksum of its own."""

    __slots__ = ("_held",)
    _held: Stored

    def prove(self) -> None:
        """Compare the checksum of the storage."""
        if self._held.prove is not None:
            self._held.prove()

    def confirm(self) -> None:
        """Do what `prove` does, if the storage is small."""
        if self._held.size <= LITTLE and not self.is_proved:
            self.prove()


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


class StoredSpan(HeldSpan):
    """A stretch of a storage that is near."""

    __slots__ = ()

    def __init__(self, held: Stored, data: Data, begin: int, length: int, path: str, end: int) -> None:
        super().__init__(data, begin, length, path, end)
        self._held = held

    def agrees_with_holes(self, stretch: Callable[[int, int], int], most: int) -> bool:
        """Return whether zeros in its place are right; ``stretch`` tells how many of some bytes were never written.

        A storage that was not written at all is compared without reading it, another one is read if it has at most
        ``most`` bytes; larger ones are believed until somebody compares them.
        """
        held = self._held
        if held.zeros is None:
            return False
        data, begin, end = held.place
        if stretch(begin, end) == end - begin:
            return held.zeros()
        if end - begin <= most and not data.is_proved(begin, end):
            self.prove()
            return data.is_proved(begin, end)
        return True


class TensorMaker:
    """Makes the tensors of one document."""

    def __init__(self, owner: Any, byteorder: str = "little") -> None:
        self._owner = owner
        self._path: str = owner.extraction.path
        self._source: str = owner.extraction.name
        self._beyond: int = owner.extraction.parsed.known_end()
        self.byteorder = byteorder
        """Byte order of the storages."""
        self.first: dict[str, StorageId] = {}
        """The first id of each storage that was met: torch keeps the type that it says (torch/serialization.py)."""
        self.lacking: dict[str, int] = {}
        """Bytes that are missing of storages, by key."""
        self.odd_sizes: dict[str, tuple[int, int]] = {}
        """Of storages that have others than they should: how many bytes are there, and should be."""

    def unreadable(
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
        return Tensor(
            name, dtype, shape, (), stored_dtype=word, status=Status.UNSUPPORTED, finding=finding, owner=self._owner
        )

    def _finding(self, name: str, code: str, reason: str, **more: Any) -> Finding:
        return Finding(code, reason, path=name, source=self._source, **more)

    def of_torch(self, name: str, stored: StoredTensor, held: Stored | None) -> Tensor:
        """Return a tensor of PyTorch; ``held``: its storage in the file, None if that is missing."""
        if stored.storage is not None and stored.storage.held is None:
            first = self.first.setdefault(stored.storage.key, stored.storage)
            if first.dtype != stored.storage.dtype and stored.dtype == stored.storage.dtype:
                reason = f"its storage is one of {first.torch_dtype}, and one of {stored.torch_dtype} here"
                return self.unreadable(name, "bad-tensor", reason, stored.shape, None, stored.torch_dtype)
        dtype = DTYPES.get(stored.dtype)
        word = stored.torch_dtype
        if stored.storage is None:
            reason = "a meta tensor: it has a shape and a type, but no values"
            return self.unreadable(name, "meta", reason, stored.shape, dtype, word, Severity.NOTE)
        if dtype is None:
            return self.unreadable(name, "unknown-type", f"the type {word} is not known", stored.shape, None, word)
        storage = stored.storage
        begin, end = _stretch(stored, dtype)
        meant = storage.count * DTYPES[storage.dtype].itemsize if not storage.view else end
        if held is None:
            self.lacking[storage.key] = meant
            reason = f"its storage, {storage.key!r}, is not in the file"
            finding = self._finding(name, "missing-storage", reason, wanted=end - begin, got=0)
            span = Span(None, self._beyond, end - begin, self._path)  # in order, it comes behind all that is there
            status = Status.MISSING if end > begin else Status.COMPLETE
            return Tensor(
                name, dtype, stored.shape, (span,), stored_dtype=word, status=status, finding=finding, owner=self._owner
            )
        status, why, stop = self._judged(name, storage, held, meant, (begin, end))
        contiguous = _is_contiguous(stored.shape, stored.stride)
        stored_as = DTYPES[storage.dtype]  # torch swaps by the type of the storage: not that of untyped ones
        swapped = self.byteorder == "big" and stored_as.itemsize > 1
        made = Tensor(
            name,
            dtype,
            stored.shape,
            (),
            stored_dtype=word,
            strides=None if contiguous else tuple(step * dtype.itemsize for step in stored.stride),
            byteorder="big" if swapped else "little",
            status=status,
            finding=why if status is not Status.COMPLETE else None,
            owner=self._owner,
        )
        made._spans = partial(self._spans, made, held, begin, end, stop)
        if (stored.conj or stored.neg) and status is Status.COMPLETE:
            span = made.spans[0]
            if span.data is not None:
                places = list(_signs(dtype, stored, swapped=swapped))
                part = span.data.range(span.offset, span.offset + span.length)
                made._content = Span(FlippedData(part, dtype.itemsize, places, name), 0, span.length, self._path)
        return made

    def _judged(
        self, name: str, storage: StorageId, held: Stored, meant: int, place: tuple[int, int]
    ) -> tuple[Status, Finding | None, int | None]:
        """Return status and finding of the tensor at ``place`` in a storage that should have ``meant`` bytes.

        And where what was written of it ends, if zeros follow.
        """
        status, end = held.status, place[1]
        if status is Status.COMPLETE and held.size != meant and not storage.view:
            self.odd_sizes[storage.key] = held.size, meant
        if status is Status.COMPLETE and end > held.size:
            reason = f"its storage, {storage.key!r}, is shorter than the tensor"
            return Status.DAMAGED, self._finding(name, "short-storage", reason, wanted=end, got=held.size), None
        if status is not Status.TRUNCATED:
            return status, held.finding, None
        there, stop = held.size, None
        if there > meant + _DESCRIPTOR:
            stop = _end_before_zeros(held, meant)
            if stop is None:
                reason = f"its storage, {storage.key!r}, does not end where it should"
                return Status.DAMAGED, self._finding(name, "bad-storage", reason, wanted=meant, got=there), None
            there = stop
        self.lacking[storage.key] = max(0, meant - there)
        return status_by_place(*place, there), held.finding, stop

    def _spans(self, tensor: Tensor, held: Stored, begin: int, end: int, written: int | None) -> tuple[Span, ...]:
        if held.data is not None and held.data.distance is Distance.FAR:
            return (SpanToPlace(held, begin, end - begin, self._path),)
        try:
            data, start, stop = held.place
        except PASSING:
            raise
        except PparseError as error:
            if tensor.claimed_status is Status.COMPLETE:
                tensor.status = Status.DAMAGED
                tensor.finding = self._finding(tensor.name, "bad-storage", error.reason)
            return (Span(None, 0, end - begin, self._path),)
        stop = stop if written is None else start + written
        return (StoredSpan(held, data, start + begin, end - begin, self._path, stop),)

    def of_numpy(self, name: str, array: Array, wanted: str | None = None) -> Tensor:
        """Return a numpy array, whose bytes are in the pickle; ``wanted``: the type that it is to have."""
        if (
            wanted is not None
            and array.type.dtype is not None
            and array.content is not None
            and array.type.dtype[0] != "["
        ):
            array = _as_type(array, wanted)
        if array.type.dtype is None or (array.content is None and array.place is None):
            reason = array.type.reason or f"of the type {array.type.what} of numpy there are no elements"
            return self.unreadable(name, "unknown-type", reason, array.shape, None, array.type.what)
        try:
            dtype = DType.of(array.type.dtype)
        except ValueError as error:
            return self.unreadable(name, "unknown-type", str(error), array.shape, None, array.type.what)
        distance, strides = dtype.itemsize, []
        for length in array.shape if array.fortran else ():
            strides.append(distance)
            distance *= length
        content = array.content or b""
        data, begin, end = array.place or (BytesData(content, self._source), 0, len(content))
        span = Span(data, begin, end - begin, self._path)
        made = Tensor(
            name,
            dtype,
            array.shape,
            (span,),
            stored_dtype=array.type.what,
            strides=tuple(strides) if array.fortran else None,
            byteorder="big" if array.type.big_endian and dtype.itemsize > 1 else "little",
            owner=self._owner,
        )
        meant = made.size * dtype.itemsize
        if array.doubt:
            made.status = Status.DAMAGED
            made.finding = self._finding(name, *array.doubt, offset=begin)
        elif meant == end - begin and array.place is not None and end > self._beyond:
            self._mark_cut(made, begin, end)
        elif meant != end - begin:
            made.status = Status.DAMAGED
            reason = "its bytes do not fill its shape"
            made.finding = self._finding(name, "bad-size", reason, wanted=meant, got=end - begin)
        return made

    def _mark_cut(self, made: Tensor, begin: int, end: int) -> None:
        """Note that the file ends before the bytes ``[begin, end)`` of an array do."""
        made.status = status_by_place(begin, end, self._beyond)
        if made.status is Status.COMPLETE:
            return
        there = max(0, self._beyond - begin)
        self.lacking[made.name] = end - begin - there
        made.finding = self._finding(
            made.name, "truncated", "its bytes end early", offset=self._beyond, wanted=end - begin, got=there
        )


def _as_type(array: Array, wanted: str) -> Array:
    """Return an array with its elements as another type, as torch makes them."""
    import numpy as np

    source = np.dtype(array.type.dtype).newbyteorder(">" if array.type.big_endian else "<")
    target = DTYPES.get(wanted)
    if target is None or len(array.content or b"") % source.itemsize:
        return array
    changed = type(array)(array.shape, type(array.type)(array.type.what, wanted))
    changed.fortran = array.fortran
    changed.content = np.frombuffer(array.content or b"", source).astype(target.numpy).tobytes()
    return changed


def _stretch(stored: StoredTensor, dtype: DType) -> tuple[int, int]:
    """Return begin and end of the bytes that a tensor touches in its storage."""
    first = stored.offset
    if stored.storage is not None and stored.storage.view:
        first += stored.storage.view[1]
    if 0 in stored.shape:
        return first * dtype.itemsize, first * dtype.itemsize
    count = 1 + sum((length - 1) * step for length, step in zip(stored.shape, stored.stride, strict=True))
    if dtype.packed:
        begin = first * dtype.bits // 8
        return begin, begin + dtype.stored_nbytes(count)
    return first * dtype.itemsize, (first + count) * dtype.itemsize


def _end_before_zeros(held: Stored, meant: int) -> int | None:
    """Return how many of the ``meant`` bytes of a storage precede zeros that last to the end of the file.

    The file has a length then, and its last part was not written. None: something else follows the storage.
    """
    written = None if held.written is None else held.written()
    return None if written is None or written > meant + _DESCRIPTOR else min(meant, written)


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    distance = 1
    for length, step in zip(reversed(shape), reversed(stride), strict=True):
        if length == 0:
            return True
        if length > 1 and step != distance:
            return False
        distance *= length
    return True


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
