"""Tensors: a name, a type, a shape, and bytes that are read on demand."""

from __future__ import annotations

from itertools import accumulate
from math import gcd, prod
from operator import mul

from pparse.data.base import Access
from pparse.display.text import shape_words, shorten
from pparse.errors import (
    DamagedTensorError,
    EndOfDataError,
    GapError,
    LimitError,
    MalformedError,
    MissingTensorError,
    TruncatedTensorError,
    UnsupportedError,
    told,
)
from pparse.findings import COMPLETE, ENDS_EARLY, Finding, HasStatus, Status
from pparse.limits import are, count_words, format_size, parse_size
from pparse.tensors.dtype import DTYPES, DType, bytes_of, filler, new_array
from pparse.tensors.span import Span
from pparse.tensors.status import (
    SETTLED,
    WHOLE_OR_CUT,
    is_beyond_arrays,
    status_behind_gaps,
    status_of_spans,
    tensor_status,
    there_words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, Literal, Self

    from numpy.typing import NDArray

    from pparse.data.base import Data
    from pparse.data.range_status import RangeStatus

__all__ = ["DTYPES", "UNKNOWN_SHAPE", "DType", "Tensor"]

# Bytes per system read: large enough to cost nothing extra, small enough to be cancelled soon.
_PIECE: Final = 64 << 20
# Encodings whose bytes are those of the array.
_READABLE: Final = frozenset(("raw", "typed", "splat", "repeat", "zeros"))
# Encodings whose bytes in the file are not those of the array: a number may be a varint, or stand for many.
_LISTED: Final = frozenset(("typed", "splat", "repeat", "zeros"))
_TEXTS: Final = "its elements are texts, not numbers: use strings()"
_DIMENSIONS: Final = 32  # of an array of numpy 1 at most
_TOO_LARGE: Final = "the shape is too large for an array, even for one without elements"


class UnknownShape(tuple[int, ...]):
    """The shape of a tensor whose shape is not known; as a tuple, it is empty."""

    __slots__ = ()


UNKNOWN_SHAPE: Final = UnknownShape()


class Tensor(HasStatus):
    """One tensor of a document.

    Its bytes are read by `numpy`, ``numpy.asarray(…)``, ``tensor[…]``, iteration, `blocks`, `raw_blocks`, `readinto`
    and `torch`, and by nothing else. A tensor keeps its document open.
    """

    __slots__ = (
        "_content",
        "_finding",
        "_owner",
        "_shared",
        "_spans",
        "_status",
        "_strides",
        "_told",
        "_verified",
        "byteorder",
        "dtype",
        "encoding",
        "key",
        "name",
        "shape",
        "stored_dtype",
        "unwritten_nbytes",
    )

    def __init__(
        self,
        name: str,
        dtype: DType | None,
        shape: tuple[int, ...],
        spans: tuple[Span, ...] | Callable[[Any], tuple[Span, ...]],
        *,
        stored_dtype: str = "",
        strides: tuple[int, ...] | None = None,
        byteorder: str = "little",
        encoding: str = "raw",
        status: Status = Status.COMPLETE,
        verified: bool | None = None,
        finding: Finding | None = None,
        owner: Any = None,
        content: Span | None = None,
    ) -> None:
        self.name = name
        """Name in the model."""
        self.key: str | None = None
        """What the format itself calls it, if that is not its name: a key of a checkpoint of TensorFlow, say."""
        self.dtype = dtype
        """Element type; None if the stored type is unknown."""
        self.shape = shape
        """Length of each dimension; `UNKNOWN_SHAPE` if that is not known: cut off, or not to be believed."""
        self._spans = spans
        self.stored_dtype = stored_dtype
        """The format's own word for the type."""
        self._strides = strides
        self.byteorder = byteorder
        """``"little"`` or ``"big"``."""
        self.encoding = encoding
        """How the bytes hold the array: ``raw`` (as they are), ``typed``, ``splat``, ``repeat`` or ``zeros`` (values
        that the format lists, in full or in part); no other encoding can be read."""
        self._status = status
        self._verified = verified
        self._finding = finding
        self._told = 0  # how much was known of the document when the viewer last told it its status
        self.unwritten_nbytes = 0
        """How many of the bytes lie in holes of the file, and so read as zeros."""
        self._owner = owner
        self._shared: Data | None = None
        self._content = content
        if 0 in shape:
            self._check_empty()

    def _check_empty(self) -> None:
        """Refuse a shape without elements that no array can have."""
        if self._status is COMPLETE and is_beyond_arrays(self.shape):
            self._status = Status.UNSUPPORTED
            source = "" if self._owner is None else self._owner.extraction.name
            self._finding = self._finding or Finding("shape", _TOO_LARGE, path=self.name, source=source)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the bytes are; found on demand for a tensor in thousands of stretches."""
        if type(self._spans) is not tuple:
            self._spans = self._spans(self)  # type: ignore[operator]
        return self._spans

    @spans.setter
    def spans(self, spans: tuple[Span, ...]) -> None:
        self._spans = spans

    @property
    def held_spans(self) -> int:
        """How many spans are in memory: none, as long as nobody asked for those that are found on demand."""
        return len(self._spans) if type(self._spans) is tuple else 0

    @property
    def _sources(self) -> tuple[Span, ...]:
        """Where the bytes of the array are read."""
        return self.spans if self._content is None else (self._content,)

    @property
    def _source_nbytes(self) -> int:
        """Number of bytes of the array as they are read."""
        return self.stored_nbytes if self._content is None else self._content.length

    def _is_flawed(self) -> bool:
        """Whether anything is known against data it is read from; asked five times for each row of a list."""
        for span in self._sources:  # noqa: SIM110 -- any() would make a generator, for a tenth of a listing's time
            if span.is_open and span.data is not None and span.data.flawed:
                return True
        return False

    def _known(self) -> RangeStatus | None:
        """What is now known against the bytes it is read from; None: nothing."""
        found = status_of_spans(self._sources) or self._displaced()
        if found is not None and found.status is Status.MISSING and self.available_nbytes:
            found.status = Status.TRUNCATED  # the first of several spans exist
        return found

    def _learn(self) -> None:
        """Let the viewer say what a tensor that is made now would be told from the beginning, if it has news."""
        if self._owner is not None and self._owner._has_news and self._status not in SETTLED:
            self._owner.renew(self)

    def _claims(self) -> Any:
        """Return what is claimed of it, and by whom, to make another tensor of the same bytes."""
        return {
            "stored_dtype": self.stored_dtype,
            "status": self.claimed_status,
            "verified": self._verified,
            "finding": self._finding,
            "owner": self._owner,
        }

    def _displaced(self) -> RangeStatus | None:
        """What is known against the place where it is read; None: nothing."""
        if self._owner is None or not self._owner.places_by_offset or not self._is_flawed():
            return None
        return status_behind_gaps(self._sources, self._owner.extraction.parsed.start)

    @property
    def claimed_status(self) -> Status:
        """Status according to the format, whatever is known about the bytes."""
        self._learn()
        return self._status

    @property
    def is_claimed_whole(self) -> bool:
        """Whether it is complete according to the format, whatever is known about the bytes."""
        return self.claimed_status is Status.COMPLETE

    def doubt(self, finding: Finding | None, status: Status = Status.DAMAGED) -> None:
        """Note that a tensor that is claimed to be whole is not, and why; of any other, the claim says more."""
        if self.is_claimed_whole:
            self._status, self._finding = status, finding

    @property
    def status(self) -> Status:
        """Status as far as is known; changes when reading finds damage.

        A stream that is known to be cut or damaged is first decoded to that place.
        """
        self._learn()
        return tensor_status(self._status, self._known) if self._is_flawed() else self._status

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status

    def as_listed(self) -> tuple[Status, bool | None]:
        """Return `status` and `verified` for a list, which may be shown before the document was read in full."""
        return self.status, self.verified

    def why_listed(self) -> Finding | None:
        """Return `finding` for such a list."""
        return self.finding

    @property
    def verified(self) -> bool | None:
        """True: a checksum confirmed its bytes; False: one contradicts them; None: neither so far."""
        self._learn()
        if self._verified is False:
            return False
        found = self._known() if self._is_flawed() else None
        if found is not None:
            return found.verified
        if self._verified is None and self._status is COMPLETE:
            spans = self._sources
            for span in spans:
                if not span.is_proved:
                    return None
            return True if spans else None
        return self._verified

    @verified.setter
    def verified(self, verified: bool | None) -> None:
        self._verified = verified

    @property
    def finding(self) -> Finding | None:
        """What is wrong with it, if anything."""
        self._learn()
        return self._found()

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self._finding = finding

    def _found(self) -> Finding | None:
        """What is known to be wrong with it."""
        if self._finding is None and self.unwritten_nbytes:
            self._finding = self._owner.finding_of(self)
        if self._finding is None and (self._status is not COMPLETE or self._is_flawed()):
            found = self._known()
            if found is not None and found.reason is not None:
                length = self.spans[0].length
                return Finding(found.status.value, found.reason, path=self.name, length=length, **self._place())
        if self._finding is None and self._status in ENDS_EARLY:
            there, wanted = self.available_nbytes, self.stored_nbytes
            told = {"wanted": wanted, "got": there, **(self._place() or {"offset": 0, "source": ""})}
            return Finding(str(self._status), there_words(there, wanted), path=self.name, **told)
        return self._finding

    # -- what is known without reading -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of elements; 0 if the shape is not known."""
        return prod(self.shape) if type(self.shape) is not UnknownShape else 0

    @property
    def is_shape_known(self) -> bool:
        """Whether the shape is known."""
        return type(self.shape) is not UnknownShape

    @property
    def shape_text(self) -> str:
        """Its shape as lists show it: ``4096×1024``, ``scalar``, ``?`` if it is not known."""
        return shape_words(self.shape) if self.is_shape_known else "?"

    @property
    def type_name(self) -> str:
        """Its type as lists show it: the element type, or the format's own word if elements must be decoded."""
        return self.stored_dtype or "?" if self.dtype is None else self.dtype.name

    @property
    def alike(self) -> object:
        """What tensors of the same type and shape have in common, to be compared: models have few of these."""
        return type(self), self.dtype and self.dtype.name, self.stored_dtype, type(self.shape), self.shape

    @property
    def is_text(self) -> bool:
        """Whether its elements are text rather than numbers."""
        return False

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the array that `numpy` returns (types below 8 bits take one byte per element there)."""
        if self.dtype is None or self.status is Status.DAMAGED:  # do not trust the shape of a damaged tensor
            return self.stored_nbytes
        return self.size * self.dtype.itemsize

    @property
    def stored_nbytes(self) -> int:
        """Bytes in the file."""
        spans = self._spans if type(self._spans) is tuple else self.spans
        return spans[0].length if len(spans) == 1 else sum(span.length for span in spans)

    @property
    def last_byte(self) -> int:
        """Where the last of its bytes ends, as an offset of their data; 0 if that is not known without reading."""
        return max((span.offset + span.length for span in self.spans if span.is_placed), default=0)

    @property
    def listed_nbytes(self) -> int:
        """Size as lists show it: `stored_nbytes`; of values that the format lists or repeats, bytes of the array."""
        if self.encoding not in _LISTED or self.dtype is None or self.status is Status.DAMAGED:
            return self.stored_nbytes
        return self.dtype.stored_nbytes(self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension, in the file (0 for types below 8 bits)."""
        return self._c_strides if self._strides is None else self._strides

    @property
    def _c_strides(self) -> tuple[int, ...]:
        """The strides of an array in C order."""
        if self.dtype is None or self.dtype.packed or not self.shape:
            return (0,) * len(self.shape)
        return (*accumulate(self.shape[:0:-1], mul, initial=self.dtype.itemsize),)[::-1]

    @property
    def content_span(self) -> Span | None:
        """The one stretch that its bytes are read from, put together there if they lie in parts; None: in several."""
        return self._sources[0] if len(self._sources) == 1 else None

    @property
    def available_nbytes(self) -> int:
        """Bytes from the tensor's start that exist (or that it stands for), up to the first missing one."""
        total = 0
        for span in self._sources:
            there = span.there
            total += there
            if there < span.length:
                break
        return total

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        status = "" if self.is_complete else f", {self.status}"
        shape = self.shape_text if self.is_shape_known else "of unknown shape"
        if self.unwritten_nbytes:
            status += f", {self.unwritten_nbytes} bytes never written"
        size = format_size(self.listed_nbytes)
        return f"<Tensor {shorten(self.name)!r} {self.type_name} {shape}, {size}{status}>"

    # -- reading -----------------------------------------------------------------------------------------------------

    def numpy(
        self,
        *,
        dtype: object = None,
        copy: bool = True,
        raw: bool = False,
        partial: Literal["prefix", "fill"] | None = None,
        fill_value: Any = 0,
    ) -> NDArray[Any]:
        """Return the tensor as an array.

        ``dtype``, by any name that `DType.named` knows, converts numbers: floating ones to the nearest, ties to even,
        infinity if they are too large. ``copy=False`` returns a read-only view of the file and raises ValueError if
        bytes would have to change. ``raw=True`` returns the bits as integers. For a truncated tensor,
        ``partial="prefix"`` returns the whole rows along the first dimension, ``partial="fill"`` a masked array of the
        full shape, filled up with ``fill_value`` (by default zeros, of texts empty ones, of times without a unit NaT);
        ValueError if the type has no such value.

        Raises `TruncatedTensorError`, `MissingTensorError`, `DamagedTensorError`, `UnsupportedError`; `OptionError` for
        complex numbers as real ones.
        """
        own = self._known_dtype()
        if dtype is not None and ((wanted := DType.named(dtype)) != own or raw):
            from pparse.tensors.dtype import as_type

            if raw or not copy or not (own.is_number and wanted.is_number):
                raise ValueError(f"{self.name!r} is of {own}: only a copy of numbers can be made {wanted}")
            return as_type(self.numpy(partial=partial, fill_value=fill_value), wanted)[0]
        if partial is not None and partial not in ("prefix", "fill"):
            raise ValueError(f"partial must be 'prefix' or 'fill', not {partial!r}")
        if partial is not None and self.status is Status.TRUNCATED:
            return self._partial(own, raw, partial, fill_value)
        if copy and (found := self._read_at_once(own, raw)) is not None:
            return found
        try:
            self._refuse_if_not_whole()
            self._refuse_if_short(own)
        except TruncatedTensorError as error:
            if self.is_shape_known and self.shape and self._is_contiguous():  # `get` adds its own words
                error.reason += told("", '; numpy(partial="prefix") gives the whole rows, "fill" all of it, filled up')
            raise
        if not copy:
            return self._mapped(own, raw)
        return self._finish(self._read_codes(0, self.size), own, raw, self.shape)

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
            self._refuse_unless_cut()
            array = self._select_packed(items, dtype)
        else:
            selection = select(items, self.shape, self.strides)
            end = selection.offset + selection.extent(dtype.itemsize)
            self._refuse_stretch(selection.offset, end)
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
        self._refuse_unless_cut()
        self._check_unchanged()
        whole = self._whole_count(dtype)
        if self._strides is not None and not self._is_contiguous():
            yield from self._strided_blocks(start, step, dtype, raw)
            return
        for first in range(start, whole, step):
            count = min(step, whole - first)
            yield self._finish(self._read_codes(first, count), dtype, raw, (count,))
        if whole < self.size:
            raise self._truncated(self._source_nbytes)

    def readinto(self, buffer: bytearray | memoryview | NDArray[Any]) -> int:
        """Fill ``buffer`` with the tensor's bytes as stored (listed values decoded); return their number.

        Raises ValueError if the buffer is too small, and the errors of `numpy`.
        """
        self._refuse_if_not_whole()
        view, size = bytes_of(buffer), self._source_nbytes
        if len(view) < size:
            raise ValueError(f"the buffer has {len(view)} bytes, but the tensor has {size}")
        return self.readinto_from(0, view[:size])

    def readinto_from(self, offset: int, buffer: bytearray | memoryview | NDArray[Any]) -> int:
        """Fill ``buffer`` with the bytes as stored from byte ``offset`` of the tensor on; return how many those were.

        Fewer than the buffer holds only at the end of the tensor, 0 behind it. Raises the errors of `readinto`.
        """
        self._refuse_if_not_whole()
        view = bytes_of(buffer)
        size = max(0, min(len(view), self._source_nbytes - offset))
        self._check_unchanged()
        if size:
            self._read_into(offset, view[:size])
            self._check_read()
        return size

    @property
    def is_checked_by_reading(self) -> bool:
        """Whether a checksum is compared with its bytes as they are read."""
        return self._owner is not None and self._owner.checker(self) is not None

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
        self._refuse_unless_cut()
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

    def coded(self) -> Tensor:
        """Return what is stored of it, as a tensor: itself, unless its elements lie in blocks that must be decoded."""
        return self

    def over(self, span: Span) -> Tensor:
        """Return the same tensor, claimed to be whole, with its bytes in ``span``."""
        more: Any = {"stored_dtype": self.stored_dtype, "strides": self._strides, "byteorder": self.byteorder}
        return Tensor(self.name, self.dtype, self.shape, (span,), **more)

    # -- for other libraries -----------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        """Pickle a handle, not the content (docs/handles.md). Raises `SourceError` if it cannot be opened again."""
        from pparse.tensors.pickling import reduce_tensor

        return reduce_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self  # it holds no content of its own

    __copy__ = __deepcopy__

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
        if self.dtype is None or self.encoding not in _READABLE or type(self.shape) is UnknownShape:
            self._refuse_if_not_whole()  # a more specific error than an unknown type
        if self.dtype is None:
            unknown = f"unknown type {self.stored_dtype!r} of {self.name!r}"
            raise UnsupportedError(_TEXTS if self.is_text else unknown, path=self.name)
        if self.encoding not in _READABLE:
            raise UnsupportedError(f"unknown encoding {self.encoding!r} of {self.name!r}", path=self.name)
        return self.dtype

    def _refuse_stretch(self, start: int, end: int) -> None:
        """Raise if the bytes ``[start, end)`` of the array are not whole; other bytes do not matter."""
        self.resolve()
        if (status := self.status) in WHOLE_OR_CUT:
            if start < end and end > self.available_nbytes:
                raise self._truncated(end)
            return
        in_part = start < end and status in SETTLED and self.is_claimed_whole and self.verified is not False
        if in_part and self._displaced() is None and self._data().range_status(start, end).status is Status.COMPLETE:
            return
        self._refuse_if_not_whole()

    def resolve(self) -> None:
        """Compare the checksums that cover the tensor's bytes, if that costs little."""
        if self._owner is not None:
            self._owner.resolve(self)
            if self._is_flawed():  # around it: a checksum of its own may tell that its bytes are right nevertheless
                for span in self._sources:
                    span.verify()

    def verify_content(self) -> None:
        """If its bytes are put together from parts, compare the checksums of those that were not compared by now."""
        if self._content is not None and self._content.data is not None:
            self._content.data.verify()

    def _refuse_unless_cut(self) -> None:
        """Raise if it is neither whole nor cut: of one that is cut, what exists is read."""
        if not self.is_truncated:
            self._refuse_if_not_whole()

    def _refuse_if_not_whole(self) -> None:
        self.resolve()
        status = self.status
        if status is COMPLETE:
            return
        reason = self.finding.reason if self.finding is not None else f"the tensor is {status}"
        place, wanted, got = self._place(), self._source_nbytes, self.available_nbytes
        if status is Status.TRUNCATED:
            raise self._truncated(wanted)
        if status is Status.MISSING:
            numbers: Any = {"wanted": wanted, "got": got} if self.spans else {}
            raise MissingTensorError(reason, name=self.name, **place, **numbers)
        if status is Status.DAMAGED:
            raise DamagedTensorError(reason, name=self.name, **place)
        raise UnsupportedError(reason, path=self.name, offset=place.get("offset"))

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
        finding = self.finding
        if not self.is_shape_known:
            reason = finding.reason if finding is not None else "its shape is cut off"
            return TruncatedTensorError(reason, name=self.name, source=self._place().get("source"))
        reason = finding.reason if finding is not None else "the tensor extends beyond the end of the file"
        if self.shape and self.dtype is not None and self._is_contiguous():
            rows = self._whole_count(self.dtype) // max(1, prod(self.shape[1:]))
            reason += f"; {rows:,} of its {count_words(self.shape[0], 'row')} {are(rows)} whole"
        return TruncatedTensorError(reason, name=self.name, wanted=wanted, got=self.available_nbytes, **self._place())

    def _place(self) -> dict[str, Any]:
        """Return where it begins, as errors have it; nothing if that is nowhere."""
        spans = self.spans
        return {"offset": spans[0].offset, "source": spans[0].path} if spans else {}

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
        follow = None if self._owner is None else self._owner.checker(self)
        done = 0
        while done < len(view):
            try:
                got = data.preadinto(base + offset + done, view[done : done + _PIECE])
            except (GapError, MalformedError):
                self._check_read()  # may find damage only now
                raise
            if not got:
                self._check_read()
                told: Any = {"wanted": len(view), "got": done, "path": self.name, "source": data.name}
                raise EndOfDataError("the data ends inside the tensor", offset=base + offset + done, **told)
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

    def _read_at_once(self, dtype: DType, raw: bool) -> NDArray[Any] | None:
        """Return a sound tensor that stands in a file as in memory; None of others: step by step it is told what is
        wrong."""
        spans, owner = self._sources, self._owner
        is_plain = len(spans) == 1 and type(spans[0]) is Span and (owner is None or not owner._compares)
        if not is_plain or dtype.packed or not self.is_stored_as_array or len(self.shape) > _DIMENSIONS:
            return None
        if owner is not None:
            owner.extraction.resolve()
        span = spans[0]
        data, end = span.data, span.offset + span.length
        if data is None or end > min(data.size or 0, span.end or end) or self.status is not COMPLETE:
            return None
        array = new_array(self.shape, dtype.raw_numpy if raw else dtype.numpy, self.name)
        return array if data.read_unchanged(span.offset, array) else None

    def _read_codes(self, first: int, count: int) -> NDArray[Any]:
        """Return ``count`` elements in C order as raw bits, unpacked. ``first`` must begin at a whole byte."""
        import numpy as np

        dtype = self._known_dtype()
        if self._strides is not None and not self._is_contiguous():
            from pparse.tensors.selection import read, select

            selection = select([slice(None)] * len(self.shape), self.shape, self._strides)
            array = read(selection, dtype.raw_numpy, self._read_into).reshape(-1)
        elif dtype.packed:
            packed = np.empty(dtype.stored_nbytes(count), np.uint8)
            self._read_into(first * dtype.bits // 8, packed.data)
            array = dtype.unpack(packed, count)
        else:
            array = new_array(count, dtype.raw_numpy, self.name)
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
        array = codes if raw else codes.view(dtype.numpy)
        try:
            return array.reshape(shape)
        except ValueError as error:  # of numpy 1, arrays have 32 dimensions at most
            reason = f"an array of the installed numpy cannot have {len(shape)} dimensions"
            raise UnsupportedError(reason, package="numpy>=2", path=self.name) from error

    def _is_contiguous(self) -> bool:
        return self._strides is None or self._strides == self._c_strides

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
        """Select from elements below 8 bits: read and unpack everything between the first and the last row touched."""
        import numpy as np

        from pparse.tensors.selection import rows_around, shape_of

        form = shape_of(items, self.shape)
        if 0 in form:
            return np.empty(form, dtype.numpy)
        start, block, inner = rows_around(items, self.shape)
        count = prod((*block, *self.shape[len(block) :]))
        if (end := dtype.stored_nbytes(start + count)) > self.available_nbytes:
            raise self._truncated(end)
        group = 8 // gcd(8, dtype.bits)  # elements that fill whole bytes
        before = start % group
        codes = self._read_codes(start - before, before + count)[before:]
        rows = codes.view(dtype.numpy).reshape((*block, *self.shape[len(block) :]))
        return np.array(rows[(*inner, *items[len(block) :])], order="C")

    def _strided_blocks(self, start: int, step: int, dtype: DType, raw: bool) -> Iterator[NDArray[Any]]:
        import numpy as np

        from pparse.tensors.selection import boxes, read, recut, select, windows

        self._refuse_if_not_whole()
        self._refuse_if_short(dtype)
        if any(span.data is not None and span.data.access is not Access.FREE for span in self._sources):
            budget = None if self._owner is None else self._owner.extraction.session.budget
            self._check_unchanged()
            form = dtype.raw_numpy
            for codes in recut(windows(start, step, self.shape, self.strides, form, self._read_into, budget), step):
                self._check_read()
                yield self._finish(codes, dtype, raw, codes.shape)
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

    def _partial(self, dtype: DType, raw: bool, partial: str, fill_value: Any) -> NDArray[Any]:
        import numpy as np

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
        value = None if found.dtype.type is np.void else one[0]  # numpy takes none for raw bits of a wide type
        return np.ma.MaskedArray(full.reshape(self.shape), mask.reshape(self.shape), fill_value=value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._shared = None
