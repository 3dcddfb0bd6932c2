"""Tensors: a name, a type, a shape, and bytes that are read on demand."""

from __future__ import annotations

from math import gcd, prod

from pparse.data.base import Access
from pparse.data.reader import byte_view
from pparse.errors import (
    DamagedTensorError,
    EndOfDataError,
    GapError,
    LimitError,
    MalformedError,
    MissingTensorError,
    TruncatedTensorError,
    UnsupportedError,
)
from pparse.findings import Status
from pparse.limits import are, count_words, format_size, parse_size
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.tensor_facts import UNKNOWN_SHAPE, Span, TensorFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final, Literal, Self

    from numpy.typing import NDArray

    from pparse.data.base import Data

__all__ = ["DTYPES", "UNKNOWN_SHAPE", "DType", "Span", "Tensor"]

# Bytes per system read: large enough to cost nothing extra, small enough to be cancelled soon.
_PIECE: Final = 64 << 20
# Encodings whose bytes are those of the array.
_READABLE: Final = frozenset(("raw", "typed", "splat", "repeat", "zeros"))


def _bytes_of(buffer: Any) -> memoryview:
    """Return a flat view of a buffer's bytes, also for arrays with types that the buffer protocol does not know."""
    if not hasattr(buffer, "__array_interface__"):
        return byte_view(buffer)
    if not buffer.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    view: memoryview = buffer.reshape(-1).view("u1").data
    return view


class Tensor(TensorFacts):
    """One tensor of a document.

    Its bytes are read by `numpy`, ``numpy.asarray(…)``, ``tensor[…]``, iteration, `blocks`, `raw_blocks`, `readinto`
    and `torch`, and by nothing else. A tensor keeps its document open. The attributes are described in
    `pparse.tensors.tensor_facts.TensorFacts`.
    """

    __slots__ = ()

    # -- reading -----------------------------------------------------------------------------------------------------

    def numpy(
        self,
        *,
        copy: bool = True,
        raw: bool = False,
        partial: Literal["prefix", "fill"] | None = None,
        fill_value: Any = 0,
    ) -> NDArray[Any]:
        """Return the tensor as an array.

        ``copy=False`` returns a read-only view of the file and raises ValueError if bytes would have to change.
        ``raw=True`` returns the bits as integers. For a truncated tensor, ``partial="prefix"`` returns the whole rows
        along the first dimension, ``partial="fill"`` a masked array of the full shape, filled up with ``fill_value``
        (by default zeros, of texts empty ones, of times without a unit NaT); ValueError if the type has no such value.

        Raises `TruncatedTensorError`, `MissingTensorError`, `DamagedTensorError`, `UnsupportedError`.
        """
        dtype = self._known_dtype()
        if partial is not None and partial not in ("prefix", "fill"):
            raise ValueError(f"partial must be 'prefix' or 'fill', not {partial!r}")
        if partial is not None and self.status is Status.TRUNCATED:
            return self._partial(dtype, raw, partial, fill_value)
        self._refuse_if_not_whole()
        self._refuse_if_short(dtype)
        if not copy:
            return self._mapped(dtype, raw)
        return self._finish(self._read_codes(0, self.size), dtype, raw, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            array = self.numpy(copy=False)
            if dtype is not None and array.dtype != dtype:
                raise ValueError("a copy is needed to change the type")
            return array
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` (ints, slices with steps, ``...``) selects, reading only that.

        Reads runs of bytes at most 4 KiB apart together. Works for the whole rows of a truncated tensor. Raises
        IndexError, TypeError, and the errors of `numpy`.
        """
        from pparse.tensors.selection import normalise, read, select

        dtype = self._known_dtype()
        items = normalise(index, self.shape)
        if dtype.packed:
            if self.status is not Status.TRUNCATED:
                self._refuse_if_not_whole()
            array = self._select_packed(items, dtype)
        else:
            selection = select(items, self.shape, self.strides)
            end = selection.offset + selection.extent(dtype.itemsize)
            self._refuse_stretch(selection.offset, end)
            if end > self.available_nbytes and 0 not in selection.shape and self.status is not Status.DAMAGED:
                raise self._truncated(end)
            self._check_unchanged()
            array = self._finish(
                read(selection, dtype.raw_numpy, self._read_into), dtype, raw=False, shape=selection.shape
            )
            self._check_unchanged()
            self._refuse_stretch(selection.offset, end)
        return array[()] if not array.shape else array

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def blocks(self, max_bytes: int | str = "4MiB", *, raw: bool = False, start: int = 0) -> Iterator[NDArray[Any]]:
        """Yield the elements in C order as one-dimensional arrays of at most ``max_bytes`` each, from ``start`` on.

        ``start`` is the number of an element; a multiple of 8 for elements below 8 bits. Raises the errors of `numpy`.
        A truncated tensor yields what exists, then raises `TruncatedTensorError`.
        """
        dtype = self._known_dtype()
        limit = parse_size(max_bytes)
        # Elements below 8 bits are read in groups that fill whole bytes.
        group = 8 if dtype.packed else 1
        step = limit // dtype.itemsize // group * group
        if not step:
            raise ValueError(f"a block of {limit} bytes cannot hold {group} element(s) of {dtype}")
        if start < 0 or start % group:
            raise ValueError(f"cannot begin at element {start}: blocks of {dtype} begin at multiples of {group}")
        if self.status is not Status.TRUNCATED:
            self._refuse_if_not_whole()
        self._check_unchanged()
        total, whole = self.size, self._whole_count(dtype)
        if self._strides is not None and not self._is_contiguous():
            yield from self._strided_blocks(start, step, dtype, raw)
            return
        for first in range(start, whole, step):
            count = min(step, whole - first)
            yield self._finish(self._read_codes(first, count), dtype, raw, (count,))
        if whole < total:
            raise self._truncated(self._source_nbytes)

    def readinto(self, buffer: bytearray | memoryview | NDArray[Any]) -> int:
        """Fill ``buffer`` with the tensor's bytes as stored (listed values decoded); return their number.

        Raises ValueError if the buffer is too small, and the errors of `numpy`.
        """
        self._refuse_if_not_whole()
        view = _bytes_of(buffer)
        size = self._source_nbytes
        if len(view) < size:
            raise ValueError(f"the buffer has {len(view)} bytes, but the tensor has {size}")
        self._check_unchanged()
        self._read_into(0, view[:size])
        self._check_read()
        return size

    def readinto_from(self, offset: int, buffer: bytearray | memoryview | NDArray[Any]) -> int:
        """Fill ``buffer`` with the bytes as stored from byte ``offset`` of the tensor on; return how many those were.

        Fewer than the buffer holds only at the end of the tensor, 0 behind it. Raises the errors of `readinto`.
        """
        self._refuse_if_not_whole()
        view = _bytes_of(buffer)
        size = max(0, min(len(view), self._source_nbytes - offset))
        self._check_unchanged()
        if size:
            self._read_into(offset, view[:size])
            self._check_read()
        return size

    @property
    def is_stored_as_array(self) -> bool:
        """Whether the bytes as stored are those of the array in C order, little-endian (packed below 8 bits)."""
        dtype = self.dtype
        if dtype is None or self.encoding not in _READABLE or not self._is_contiguous():
            return False
        straight = self.byteorder == "little" or dtype.bits <= 8
        return straight and self._source_nbytes == dtype.stored_nbytes(self.size)

    def array_blocks(self, max_bytes: int | str = "4MiB", *, start: int = 0) -> Iterator[bytes]:
        """Yield the elements as files of arrays hold them: C order, little-endian, those below 8 bits packed.

        At most ``max_bytes`` at a time, from element ``start`` on, as for `blocks`. Raises the errors of `blocks`.
        """
        if self._known_dtype().packed and not start:
            yield from self.raw_blocks(max_bytes)
        else:
            for block in self.blocks(max_bytes, raw=True, start=start):
                yield block.tobytes()

    def raw_blocks(self, max_bytes: int | str = "4MiB") -> Iterator[bytes]:
        """Yield the bytes as stored, at most ``max_bytes`` at a time. Raises the errors of `blocks`."""
        limit = parse_size(max_bytes)
        if not limit:
            raise ValueError("a block of 0 bytes cannot hold anything")
        if self.status is not Status.TRUNCATED:
            self._refuse_if_not_whole()
        whole = self.available_nbytes
        self._check_unchanged()
        for first in range(0, whole, limit):
            piece = bytearray(min(limit, whole - first))
            self._read_into(first, memoryview(piece))
            self._check_read()
            yield bytes(piece)
        if whole < self._source_nbytes or not self.is_shape_known:
            raise self._truncated(self._source_nbytes)

    def torch(self) -> Any:
        """Return the tensor as a torch tensor (a copy). Raises `UnsupportedError` if torch is not installed.

        bfloat16 and the float8 types keep their bits; ``float4_e2m1fn`` becomes torch's packed ``float4_e2m1fn_x2``.
        """
        from pparse.tensors.state_dict import to_torch

        return to_torch(self, self._known_dtype(), self._source_nbytes)

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The tensors whose bytes are read for its elements: itself, unless it is computed of others."""
        return (self,)

    def over(self, span: Span) -> Tensor:
        """Return the same tensor, claimed to be whole, with its bytes in ``span``."""
        more: Any = {"stored_dtype": self.stored_dtype, "strides": self._strides, "byteorder": self.byteorder}
        return Tensor(self.name, self.dtype, self.shape, (span,), **more)

    # -- for other libraries -----------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Pickle a handle, not the content (docs/handles.md). Raises `SourceError` if it cannot be opened again."""
        from pparse.tensors.pickling import reduce_tensor

        return reduce_tensor(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it holds no content of its own

    def _repr_html_(self) -> str:
        from pparse.tensors.notebook import tensor_html

        return tensor_html(self)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an array. Raises `UnsupportedError` for an unknown type."""
        return self._known_dtype().itemsize

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of `__dlpack__`: the processor's memory."""
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        """Read the tensor, and share the array (``np.from_dlpack``, ``torch.from_dlpack``).

        Raises the errors of `numpy`, and `UnsupportedError` for a type that numpy cannot export.
        """
        self._known_dtype()
        array = self.numpy()
        try:
            return array.__dlpack__(**options)
        except BufferError as error:
            reason = f"{self.dtype} cannot be shared by DLPack; torch() and numpy() return it"
            raise UnsupportedError(reason, path=self.name) from error

    def to_dask(self, chunks: Any = "auto") -> Any:
        """Return a dask array of which each chunk is read where it is computed, from a handle (docs/handles.md).

        ``chunks`` as for ``dask.array.from_array``. Raises `UnsupportedError` if dask is not installed.
        """
        from importlib import import_module

        try:
            array: Any = import_module("dask.array")
        except ImportError as error:
            raise UnsupportedError("to_dask() needs the package dask", package="dask[array]") from error
        self._known_dtype()
        return array.from_array(self, chunks=chunks)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _known_dtype(self) -> DType:
        if self.dtype is None or self.encoding not in _READABLE or not self.is_shape_known:
            self._refuse_if_not_whole()  # a more specific error than an unknown type
        if self.dtype is None and self.is_text:
            raise UnsupportedError("its elements are texts, not numbers: use strings()", path=self.name)
        if self.dtype is None:
            raise UnsupportedError(f"unknown type {self.stored_dtype!r} of {self.name!r}", path=self.name)
        if self.encoding not in _READABLE:
            raise UnsupportedError(f"unknown encoding {self.encoding!r} of {self.name!r}", path=self.name)
        return self.dtype

    def _refuse_stretch(self, start: int, end: int) -> None:
        """Raise if the bytes ``[start, end)`` of the array are not whole; other bytes do not matter."""
        self._confirm()
        status = self.status
        if status is Status.COMPLETE or status is Status.TRUNCATED:
            return
        lost = status is Status.DAMAGED or status is Status.UNSUPPORTED  # perhaps only in part
        gap_only = self.claimed_status is Status.COMPLETE and lost and self.verified is not False
        gap_only = gap_only and self._displaced() is None
        if gap_only and start < end and self._data().range_status(start, end).status is Status.COMPLETE:
            return
        self._refuse_if_not_whole()

    def _confirm(self) -> None:
        """Compare the checksums that cover the tensor's bytes, if that costs little."""
        if self._owner is not None:
            self._owner.confirm(self)
            if self._is_flawed():  # around it: a checksum of its own may tell that its bytes are right nevertheless
                for span in self._sources:
                    span.prove()

    def _refuse_if_not_whole(self) -> None:
        self._confirm()
        status = self.status
        if status is Status.COMPLETE:
            return
        reason = self.finding.reason if self.finding is not None else f"the tensor is {status}"
        offset = self.spans[0].offset if self.spans else None
        source = self.spans[0].path if self.spans else None
        wanted, got = self._source_nbytes, self.available_nbytes
        if status is Status.TRUNCATED:
            raise self._truncated(wanted)
        if status is Status.MISSING:
            numbers = {"wanted": wanted, "got": got} if self.spans else {}
            raise MissingTensorError(reason, name=self.name, offset=offset, source=source, **numbers)
        if status is Status.DAMAGED:
            raise DamagedTensorError(reason, name=self.name, offset=offset, source=source)
        raise UnsupportedError(reason, path=self.name, offset=offset)

    def _whole_count(self, dtype: DType) -> int:
        """Return how many elements exist, from the first on, up to the first that does not."""
        return min(self.size, self.available_nbytes * 8 // dtype.bits)

    def _refuse_if_short(self, dtype: DType) -> None:
        """Raise if the spans cannot fill the shape, before allocating anything for it."""
        if self._is_contiguous():
            end = dtype.stored_nbytes(self.size)
        else:
            from pparse.tensors.selection import select

            selection = select([slice(None)] * self.ndim, self.shape, self.strides)
            end = selection.offset + selection.extent(dtype.itemsize)
        if end > self.available_nbytes:
            raise self._truncated(end)

    def _truncated(self, wanted: int) -> TruncatedTensorError:
        if not self.is_shape_known:
            reason = self.finding.reason if self.finding is not None else "its shape is cut off"
            source = self.spans[0].path if self.spans else None
            return TruncatedTensorError(reason, name=self.name, source=source)
        reason = "the tensor extends beyond the end of the file"
        if self.shape and self.dtype is not None and self._is_contiguous():
            row = prod(self.shape[1:])
            rows = self._whole_count(self.dtype) // row if row else 0
            reason += f"; {rows:,} of its {count_words(self.shape[0], 'row')} {are(rows)} whole"
        return TruncatedTensorError(
            reason,
            name=self.name,
            offset=self.spans[0].offset if self.spans else None,
            wanted=wanted,
            got=self.available_nbytes,
            source=self.spans[0].path if self.spans else None,
        )

    def _data(self) -> Data:
        """Return one Data that holds all spans in a row, from offset 0."""
        if self._shared is None:
            from pparse.data.spliced import SplicedData

            parts = [span.data.range(span.offset, span.offset + span.length) for span in self._sources if span.data]
            self._shared = SplicedData(parts, self.name)
        return self._shared

    def _read_into(self, offset: int, view: memoryview) -> None:
        sources = self._sources
        if len(sources) == 1 and sources[0].data is not None:
            data, base = sources[0].data, sources[0].offset
        else:
            data, base = self._data(), 0
        follow = None if self._owner is None else self._owner.follow(self)
        done = 0
        while done < len(view):
            try:
                got = data.preadinto(base + offset + done, view[done : done + _PIECE])
            except (GapError, MalformedError):
                self._check_read()  # may find damage only now
                raise
            if not got:
                self._check_read()
                raise EndOfDataError(
                    "the data ends inside the tensor",
                    offset=base + offset + done,
                    wanted=len(view),
                    got=done,
                    path=self.name,
                    source=data.name,
                )
            if follow is not None:
                follow(offset + done, view[done : done + got])
            done += got

    def _check_read(self) -> None:
        """Raise if the source changed during the read, or the read found damage."""
        self._check_unchanged()
        if self.status is not self._status:
            self._refuse_if_not_whole()

    def _check_unchanged(self) -> None:
        for span in self._sources:
            if span.data is not None:
                span.data.check_unchanged()

    def _read_codes(self, first: int, count: int) -> NDArray[Any]:
        """Return ``count`` elements in C order as raw bits, unpacked. ``first`` must begin at a whole byte."""
        import numpy as np

        dtype = self._known_dtype()
        self._check_unchanged()
        if self._strides is not None and not self._is_contiguous():
            from pparse.tensors.selection import read, select

            selection = select([slice(None)] * len(self.shape), self.shape, self._strides)
            array = read(selection, dtype.raw_numpy, self._read_into).reshape(-1)
        elif dtype.packed:
            packed = np.empty(dtype.stored_nbytes(count), np.uint8)
            self._read_into(first * dtype.bits // 8, packed.data)
            array = dtype.unpack(packed, count)
        else:
            try:
                array = np.empty(count, dtype.raw_numpy)
            except (MemoryError, ValueError) as error:  # few bytes may stand for any number of elements
                reason = f"the array would take {format_size(count * dtype.itemsize)}"
                raise LimitError(reason, option="a slice", wanted=count * dtype.itemsize, path=self.name) from error
            if count:
                self._read_into(first * dtype.itemsize, array.view(np.uint8).data)
        self._check_read()
        return array

    def _finish(self, codes: NDArray[Any], dtype: DType, raw: bool, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return raw bits as the requested array."""
        if self.byteorder == "big" and dtype.itemsize > 1:
            flat = codes.reshape(-1)
            if dtype.kind == "other":  # text is swapped by character, a structure by field
                codes = flat.view(dtype.numpy.newbyteorder(">")).astype(dtype.numpy).view(dtype.raw_numpy)
            else:
                width = dtype.itemsize // (2 if dtype.kind == "complex" else 1)
                codes = flat.view(f"u{width}").byteswap().view(dtype.raw_numpy)
        array = codes if raw else dtype.from_codes(codes) if dtype.packed else codes.view(dtype.numpy)
        try:
            return array.reshape(shape)
        except ValueError as error:  # of numpy 1, arrays have 32 dimensions at most
            reason = f"an array of the installed numpy cannot have {len(shape)} dimensions"
            raise UnsupportedError(reason, package="numpy>=2", path=self.name) from error

    def _is_contiguous(self) -> bool:
        return self._strides is None or self._strides == Tensor(self.name, self.dtype, self.shape, ()).strides

    def _mapped(self, dtype: DType, raw: bool) -> NDArray[Any]:
        import numpy as np

        if dtype.packed or (self.byteorder == "big" and dtype.itemsize > 1) or len(self._sources) > 1:
            raise ValueError(f"{self.name!r} needs a copy: its bytes must be changed or joined")
        self._check_unchanged()
        if not self.size:
            array: NDArray[Any] = np.empty(self.shape, dtype.raw_numpy)
            array.flags.writeable = False
        else:
            span = self._sources[0]
            view = span.data.mapped(span.offset, span.length) if span.data is not None else None
            if view is None:
                raise ValueError(f"{self.name!r} needs a copy: its source cannot be mapped")
            array = np.ndarray(self.shape, dtype.raw_numpy, view, 0, self.strides)
        return array if raw else array.view(dtype.numpy)

    def _select_packed(self, items: list[int | slice], dtype: DType) -> NDArray[Any]:
        """Select from elements below 8 bits: read and unpack everything between the first and the last row touched.

        The rows are those of the first dimension in which more than one is touched.
        """
        import numpy as np

        from pparse.tensors.selection import select

        form = select(items, self.shape, (0,) * self.ndim).shape
        if 0 in form:
            return np.empty(form, dtype.numpy)
        start, row = 0, self.size
        block: list[int] = []  # the shape of what is read
        inner: list[int | slice] = []  # and the index into it
        for item, length in zip(items, self.shape, strict=True):
            touched = range(item, item + 1) if isinstance(item, int) else range(*item.indices(length))
            low, high = min(touched[0], touched[-1]), max(touched[0], touched[-1]) + 1
            row //= length
            start += low * row
            block.append(high - low)
            if isinstance(item, int):
                inner.append(0)
            else:
                stop = touched[-1] - low + (1 if touched.step > 0 else -1)
                inner.append(slice(touched[0] - low, None if stop < 0 else stop, touched.step))
            if high - low > 1:
                break
        count = row * prod(block)
        end = dtype.stored_nbytes(start + count)
        if end > self.available_nbytes:
            raise self._truncated(end)
        group = 8 // gcd(8, dtype.bits)  # elements that fill whole bytes
        before = start % group
        codes = self._read_codes(start - before, before + count)[before:]
        rows = dtype.from_codes(codes).reshape((*block, *self.shape[len(block) :]))
        return np.array(rows[(*inner, *items[len(block) :])], order="C")

    def _strided_blocks(self, start: int, step: int, dtype: DType, raw: bool) -> Iterator[NDArray[Any]]:
        import numpy as np

        from pparse.tensors.selection import boxes, read, select

        self._refuse_if_not_whole()
        self._refuse_if_short(dtype)
        if any(span.data is not None and span.data.access is not Access.FREE for span in self._sources):
            yield from self._blocks_by_passes(start, step, dtype, raw)
            return
        for first in range(start, self.size, step):
            stop = min(first + step, self.size)
            self._check_unchanged()
            parts = [
                read(select(box, self.shape, self.strides), dtype.raw_numpy, self._read_into).reshape(-1)
                for box in boxes(first, stop, self.shape)
            ]
            self._check_read()
            codes = parts[0] if len(parts) == 1 else np.concatenate(parts)
            yield self._finish(codes, dtype, raw, (stop - first,))

    def _blocks_by_passes(self, start: int, step: int, dtype: DType, raw: bool) -> Iterator[NDArray[Any]]:
        from pparse.tensors.passes import recut, windows

        budget = None if self._owner is None else self._owner.extraction.session.budget
        self._check_unchanged()
        form = dtype.raw_numpy
        for codes in recut(windows(start, step, self.shape, self.strides, form, self._read_into, budget), step):
            self._check_read()
            yield self._finish(codes, dtype, raw, codes.shape)

    def _partial(self, dtype: DType, raw: bool, partial: str, fill_value: Any) -> NDArray[Any]:
        import numpy as np

        from pparse.tensors.filling import filler

        if not self._is_contiguous():
            raise self._truncated(self._source_nbytes)
        whole = self._whole_count(dtype)
        if partial == "prefix":
            if not self.shape:
                raise self._truncated(self._source_nbytes)
            row = prod(self.shape[1:])
            rows = whole // row if row else self.shape[0]
            return self._finish(self._read_codes(0, rows * row), dtype, raw, (rows, *self.shape[1:]))
        found = self._finish(self._read_codes(0, whole), dtype, raw, (whole,))
        one = filler(dtype, found.dtype, fill_value)
        try:
            zeros = not one.view(np.uint8).any()
            full = np.zeros(self.size, found.dtype) if zeros else np.full(self.size, one[0], found.dtype)
        except (MemoryError, ValueError) as error:
            reason = f"the whole tensor would take {format_size(self.nbytes)}, but little of it exists"
            raise LimitError(reason, option="partial='prefix'", wanted=self.nbytes, path=self.name) from error
        full[:whole] = found
        mask = np.ones(self.size, bool)
        mask[:whole] = False
        # numpy takes no value for raw bits of a wide type.
        value = None if found.dtype.type is np.void else one[0]
        return np.ma.MaskedArray(full.reshape(self.shape), mask.reshape(self.shape), fill_value=value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._shared = None
