"""What is known about a tensor without reading it: name, type, shape, place and status."""

from __future__ import annotations

from math import prod

from pparse.data.range_status import cut_status
from pparse.display.text import shape_words, shorten
from pparse.findings import Finding, Status
from pparse.limits import are, count_words, format_size
from pparse.tensors.status import is_beyond_arrays, status_behind_gaps, status_of_spans, tensor_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Final

    from pparse.data.base import Data
    from pparse.data.range_status import RangeStatus
    from pparse.tensors.dtype import DType

# Encodings whose bytes in the file are not those of the array: a number may be a varint, or stand for many.
_LISTED: Final = frozenset(("typed", "splat", "repeat", "zeros"))
# Parts, or all, of its bytes are not there.
_CUT: Final = (Status.TRUNCATED, Status.MISSING)
# What nothing that is learned later changes.
_SETTLED: Final = (Status.DAMAGED, Status.UNSUPPORTED)
_TOO_LARGE: Final = "the shape is too large for an array, even for one without elements"


def there_words(there: int, wanted: int) -> str:
    """Return how many bytes of a tensor are there, in words."""
    return f"{f'{there:,}' if there else 'none'} of its {count_words(wanted, 'byte')} {are(there)} there"


class UnknownShape(tuple[int, ...]):
    """The shape of a tensor whose shape is not known; as a tuple, it is empty."""

    __slots__ = ()


UNKNOWN_SHAPE: Final = UnknownShape()


class Span:
    """A stretch of bytes in some data."""

    __slots__ = ("data", "end", "length", "offset", "path")

    is_placed: ClassVar[bool] = True
    """Whether its offset is known without reading."""
    is_open: ClassVar[bool] = True
    """Whether its data is open; nothing is known against data that was not opened yet."""

    def __init__(self, data: Data | None, offset: int, length: int, path: str, end: int | None = None) -> None:
        self.data = data
        """Where the bytes are; None: their file is missing."""
        self.offset = offset
        """Where they begin, as an offset of ``data``."""
        self.length = length
        """Their number."""
        self.path = path
        """What messages call the data."""
        self.end = end
        """Where the document ends in ``data``, if other bytes follow there, as in an archive; else None."""

    @property
    def there(self) -> int:
        """How many of the bytes exist."""
        if self.data is None:
            return 0
        length = self.length if self.end is None else max(0, min(self.length, self.end - self.offset))
        if self.data.flawed:
            return self.data.range_status(self.offset, self.offset + length).there
        size = self.data.size
        return length if size is None else max(0, min(length, size - self.offset))

    @property
    def found_in(self) -> Data | None:
        """Data in which the bytes are found: ``data``; of content that is opened when it is read, what it lies in."""
        return self.data

    @property
    def found_at(self) -> int:
        """Where in `found_in` what must be read for the bytes begins."""
        return self.offset

    @property
    def place(self) -> tuple[object, ...]:
        """What only spans of the same bytes have in common, as long as their document is open."""
        return id(self.data), self.offset, self.length

    @property
    def is_proved(self) -> bool:
        """Whether a checksum confirmed the bytes; never reads."""
        if not self.is_open or self.data is None or not (self.is_placed or self.data.has_proofs):
            return False
        return self.data.is_proved(self.offset, self.offset + self.length)

    def prove(self) -> None:
        """Compare the checksum of these bytes alone, if there is one: called if something is known against the data."""

    def to_dict(self) -> dict[str, object]:
        """Return the span as plain data, for JSON."""
        return {"file": self.path, "offset": self.offset, "length": self.length}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and (self.path, self.offset, self.length) == (
            other.path,
            other.offset,
            other.length,
        )

    def __hash__(self) -> int:
        return hash((self.path, self.offset, self.length))

    def __repr__(self) -> str:
        return f"Span({self.path!r}, {self.offset}, {self.length})"


class TensorFacts:
    """What is known about a tensor without reading it; the base of `pparse.tensors.tensor.Tensor`."""

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
        spans: tuple[Span, ...] | Callable[[], tuple[Span, ...]],
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
        if 0 in shape and status is Status.COMPLETE and is_beyond_arrays(shape):
            self._status = Status.UNSUPPORTED
            if finding is None:
                source = "" if owner is None else owner.extraction.name
                self._finding = Finding("shape", _TOO_LARGE, path=name, source=source)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the bytes are; found on demand for a tensor in thousands of stretches."""
        spans = self._spans
        if not isinstance(spans, tuple):
            spans = self._spans = spans()
        return spans

    @spans.setter
    def spans(self, spans: tuple[Span, ...]) -> None:
        self._spans = spans

    @property
    def _sources(self) -> tuple[Span, ...]:
        """Where the bytes of the array are read."""
        spans = self._spans if self._content is None else (self._content,)
        return spans if type(spans) is tuple else self.spans

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
        found = status_of_spans(self._sources)
        found = self._displaced() if found is None else found
        if found is not None and found.status is Status.MISSING and self.available_nbytes:
            found.status = cut_status(self.available_nbytes)  # the first of several spans exist
        return found

    def _learn(self) -> None:
        """Let the viewer say what a tensor that is made now would be told from the beginning."""
        if self._status not in _SETTLED:
            self._owner.judge_again(self)

    def _displaced(self) -> RangeStatus | None:
        """What is known against the place where it is read; None: nothing."""
        if self._owner is None or not self._owner.places_by_offset or not self._is_flawed():
            return None
        return status_behind_gaps(self._sources, self._owner.extraction.parsed.start)

    @property
    def claimed_status(self) -> Status:
        """Status according to the format, whatever is known about the bytes."""
        if self._owner is not None and self._owner._has_news:
            self._learn()
        return self._status

    @property
    def status(self) -> Status:
        """Status as far as is known; changes when reading finds damage.

        A stream that is known to be cut or damaged is first decoded to that place.
        """
        if self._owner is not None and self._owner._has_news:
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
        if self._owner is not None and self._owner._has_news:
            self._learn()
        if self._verified is False:
            return False
        found = self._known() if self._is_flawed() else None
        if found is not None:
            return found.verified
        if self._verified is None and self._status is Status.COMPLETE:
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
        if self._owner is not None and self._owner._has_news:
            self._learn()
        return self._found()

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self._finding = finding

    def _found(self) -> Finding | None:
        """What is known to be wrong with it."""
        if self._finding is None and self.unwritten_nbytes:
            self._finding = self._owner.finding_of(self)
        if self._finding is None:
            found = self._known()
            if found is not None and found.reason is not None:
                span = self.spans[0]
                return Finding(
                    str(found.status),
                    found.reason,
                    path=self.name,
                    source=span.path,
                    offset=span.offset,
                    length=span.length,
                )
        if self._finding is None and self._status in _CUT:
            span = self.spans[0] if self.spans else Span(None, 0, 0, "")
            there, wanted = self.available_nbytes, self.stored_nbytes
            reason = there_words(there, wanted)
            return Finding(
                str(self._status),
                reason,
                path=self.name,
                source=span.path,
                offset=span.offset,
                wanted=wanted,
                got=there,
            )
        return self._finding

    # -- what is known without reading -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of elements; 0 if the shape is not known."""
        return prod(self.shape) if self.is_shape_known else 0

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
    def listed_nbytes(self) -> int:
        """Size as lists show it: `stored_nbytes`; of values that the format lists or repeats, bytes of the array."""
        if self.encoding not in _LISTED or self.dtype is None or self.status is Status.DAMAGED:
            return self.stored_nbytes
        return self.dtype.stored_nbytes(self.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in bytes between neighbours along each dimension, in the file (0 for types below 8 bits)."""
        if self._strides is not None:
            return self._strides
        if self.dtype is None or self.dtype.packed:
            return (0,) * len(self.shape)
        strides = []
        distance = self.dtype.itemsize
        for length in reversed(self.shape):
            strides.append(distance)
            distance *= length
        return tuple(reversed(strides))

    @property
    def is_complete(self) -> bool:
        """Whether the status is complete."""
        return self.status is Status.COMPLETE

    @property
    def content_span(self) -> Span | None:
        """The one stretch that its bytes are read from, put together there if they lie in parts; None: in several."""
        return self._sources[0] if len(self._sources) == 1 else None

    @property
    def available_nbytes(self) -> int:
        """Bytes from the tensor's start that exist (or that it stands for), up to the first missing one."""
        there = 0
        for span in self._sources:
            there += span.there
            if span.there < span.length:
                break
        return there

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        status = "" if self.status is Status.COMPLETE else f", {self.status}"
        shape = self.shape_text if self.is_shape_known else "of unknown shape"
        if self.unwritten_nbytes:
            status += f", {self.unwritten_nbytes} bytes never written"
        size = format_size(self.listed_nbytes)
        return f"<Tensor {shorten(self.name)!r} {self.type_name} {shape}, {size}{status}>"
