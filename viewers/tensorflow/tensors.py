"""TensorProto: from the message to a `Tensor`, without reading its elements.

The rules (tensorflow/core/framework/tensor.cc, Tensor::FromProto; tensor_util.MakeNdarray): a ``tensor_content`` that
is not empty counts, and must have exactly the bytes for type and shape, in little-endian order; types below 8 bits take
a byte each. Otherwise the field of the type lists elements. If there are too few, the last one repeats to the end; if
there are none, all are zeros (here too, with the warning ``no-values``, since the values may have been lost). If there
are too many, MakeNdarray refuses them, while FromProto, which runs graphs, takes the first ones; so do we, with the
warning ``extra-values``. A tensor without a type is DAMAGED: nothing reads its values.

Strings (DT_STRING) are not numbers: their dtype is None, and `TensorflowTensor.strings` yields them.
"""

from __future__ import annotations

from pparse.data.base import BytesData, FileData
from pparse.data.reader import Range
from pparse.errors import (
    PASSING,
    GapError,
    LimitError,
    MalformedError,
    PparseError,
    UnsupportedError,
)
from pparse.findings import Finding, Severity, Status
from pparse.kernels.wire import PADDING, read_length, read_value
from pparse.locking import steps
from pparse.parsers.protobuf.index import ChunkRange, Lost, OverlayField
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.tensor import Span, Tensor
from pparse.viewers.tensorflow.messages import Message, Problem, problem_of, problem_of_lost
from pparse.viewers.tensorflow.values import Values, ValuesData, string_list, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Piece
    from pparse.parsers.protobuf.window import Window
    from pparse.protobuf.schema import Schema

DT_STRING: Final = 7
_REF: Final = 100
_SMALL: Final = 16 << 10
_MAX_RANK: Final = 254
_MAX_ELEMENTS: Final = (1 << 63) - 1

# Fields of a TensorProto, and of the messages of its shape.
_DTYPE, _SHAPE, _CONTENT, _STRINGS, _FLOAT8 = 1, 2, 4, 8, 18
_DIM, _UNKNOWN_RANK, _SIZE = 2, 3, 1


def _byte(name: str) -> DType:
    """Return a type below 8 bits as TensorFlow stores it: one byte per element."""
    return DType(name, 8, DTYPES[name].kind)


# Per number of the enum DataType: the type, the field that lists its elements, the numpy type of one listed number in
# the array, and the number of these per element.
_TYPES: Final[dict[int, tuple[DType, int, str, int]]] = {
    1: (DTYPES["float32"], 5, "<f4", 1),
    2: (DTYPES["float64"], 6, "<f8", 1),
    3: (DTYPES["int32"], 7, "<i4", 1),
    4: (DTYPES["uint8"], 7, "u1", 1),
    5: (DTYPES["int16"], 7, "<i2", 1),
    6: (DTYPES["int8"], 7, "i1", 1),
    8: (DTYPES["complex64"], 9, "<f4", 2),
    9: (DTYPES["int64"], 10, "<i8", 1),
    10: (DTYPES["bool"], 11, "u1", 1),
    11: (DTYPES["int8"], 7, "i1", 1),
    12: (DTYPES["uint8"], 7, "u1", 1),
    13: (DTYPES["int32"], 7, "<i4", 1),
    14: (DTYPES["bfloat16"], 13, "<u2", 1),
    15: (DTYPES["int16"], 7, "<i2", 1),
    16: (DTYPES["uint16"], 7, "<u2", 1),
    17: (DTYPES["uint16"], 7, "<u2", 1),
    18: (DTYPES["complex128"], 12, "<f8", 2),
    19: (DTYPES["float16"], 13, "<u2", 1),
    22: (DTYPES["uint32"], 16, "<u4", 1),
    23: (DTYPES["uint64"], 17, "<u8", 1),
    24: (DTYPES["float8_e5m2"], _FLOAT8, "u1", 1),
    25: (DTYPES["float8_e4m3fn"], _FLOAT8, "u1", 1),
    26: (DTYPES["float8_e4m3fnuz"], _FLOAT8, "u1", 1),
    27: (DTYPES["float8_e4m3b11fnuz"], _FLOAT8, "u1", 1),
    28: (DTYPES["float8_e5m2fnuz"], _FLOAT8, "u1", 1),
    29: (_byte("int4"), 7, "i1", 1),
    30: (_byte("uint4"), 7, "u1", 1),
    31: (_byte("int2"), 7, "i1", 1),
    32: (_byte("uint2"), 7, "u1", 1),
    33: (_byte("float4_e2m1fn"), _FLOAT8, "u1", 1),
}  # fmt: skip


def dtype_of(number: int) -> DType | None:
    """Return the element type of a number of the enum DataType; a reference type counts as the type it refers to."""
    found = _TYPES.get(number - _REF if number > _REF else number)
    return found[0] if found is not None else None


class TensorflowTensor(Tensor):
    """A tensor of a TensorFlow proto.

    ``status``, ``verified`` and ``finding`` follow what becomes known about its bytes (``parts``): a checksum that
    fails later makes the tensor DAMAGED then.
    """

    __slots__ = ("_maker", "_parts", "_texts")

    _texts: Any
    _parts: tuple[Range, ...]
    _maker: TensorMaker | None

    def made_of(self, maker: TensorMaker, parts: tuple[Range, ...]) -> None:
        """Record which bytes the tensor was made from."""
        self._maker, self._parts = maker, parts

    @property
    def _why_suspect(self) -> str | None:
        """Return why its bytes may be wrong though they can be read."""
        maker = self._maker
        return None if maker is None else maker.make.why_suspect(self._parts)

    @property
    def status(self) -> Status:
        """Status as far as is known."""
        status = super().status
        return (
            status if status is Status.DAMAGED or status is Status.MISSING or not self._why_suspect else Status.DAMAGED
        )

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status

    @property
    def verified(self) -> bool | None:
        """False if a checksum contradicts the bytes."""
        told = self._finding is not None and self._finding.code == "hash"
        return False if told or self._why_suspect is not None else super().verified

    @verified.setter
    def verified(self, verified: bool | None) -> None:
        self._verified = verified

    @property
    def finding(self) -> Finding | None:
        """What is wrong with it, if anything."""
        reason = self._why_suspect
        if reason is None or self._maker is None or self._status is Status.DAMAGED or self._status is Status.MISSING:
            return super().finding
        return self._maker.hash_finding(self.name, reason)

    @finding.setter
    def finding(self, finding: Finding | None) -> None:
        self._finding = finding

    def _read_into(self, offset: int, view: memoryview) -> None:
        try:
            super()._read_into(offset, view)
        except (MalformedError, GapError) as error:
            # Found while reading: a stream in a chunk whose hash was not compared.
            if self._status is Status.COMPLETE and self._maker is not None:
                cause = next((part.data.error for part in self._parts if part.data.error is not None), None)
                reason = (cause or error).reason
                self._status = Status.DAMAGED
                self._finding = self._maker.hash_finding(self.name, reason, "malformed")
                self._maker.owner.note_damage()
            self._refuse_if_not_whole()
            raise

    @property
    def is_text(self) -> bool:
        """Whether its elements are strings, which `strings` yields."""
        return self.stored_dtype in ("DT_STRING", "DT_STRING_REF")

    def strings(self) -> Iterator[bytes]:
        """Yield the elements of a string tensor (DT_STRING), in C order.

        Raises `UnsupportedError` for other types, `MalformedError` or `EndOfDataError` if an element is not whole.
        """
        if self._texts is None:
            raise UnsupportedError(f"{self.name!r} is of type {self.stored_dtype}, not of strings", path=self.name)
        if self.status is not Status.TRUNCATED:
            self._refuse_if_not_whole()
        self._check_unchanged()
        message, content = self._texts
        if content is not None:
            yield from string_list(content, self.size)
        else:
            yield from steps(self._owner.lock, texts(message, _STRINGS, self.size))

    def numpy(self, **options: Any) -> Any:
        """Return the tensor as `Tensor.numpy` does; strings as an array of bytes objects (dtype object)."""
        if self.dtype is not None or self._texts is None or options.get("raw"):
            return super().numpy(**options)
        import numpy as np

        self._refuse_if_not_whole()
        self._owner.extraction.session.limits.check("scalar_bytes", 8 * self.size, "the array of strings",
                                                       path=self.name)  # fmt: skip
        array = np.empty(self.size, object)
        for number, text in enumerate(self.strings()):
            array[number] = text
        return array.reshape(self.shape)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects; for strings, bytes or an array of them, reading the list to the last one."""
        if self.dtype is not None or self._texts is None:
            return super().__getitem__(index)
        from pparse.tensors.selection import normalise

        return self.numpy()[tuple(normalise(index, self.shape))]

    def _known_dtype(self) -> DType:
        if self.dtype is None and self._texts is not None:
            self._refuse_if_not_whole()
            raise UnsupportedError("strings are not an array of numbers: use strings()", path=self.name)
        return super()._known_dtype()


class TensorMaker:
    """Makes tensors from TensorProtos of one document.

    ``lost_content``: chunks exist, but no metadata to assign them, so the values of an empty constant are elsewhere.
    ``misplaced`` tells what is wrong with the places of chunks, if anything: such a constant may then be damaged.
    """

    def __init__(
        self, extraction: Extraction, make: ValueEntries, schema: Schema, owner: Any,
        misplaced: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.extraction = extraction
        self.make = make
        self.type = schema.message("tensorflow.TensorProto")
        self.shape_type = schema.message("tensorflow.TensorShapeProto")
        self.names = schema.enum("tensorflow.DataType").names
        self.owner = owner
        self.lost_content = False
        self._misplaced = misplaced
        self._path = extraction.path
        # Plain bytes of a file have no checksum and no stream that could contradict them.
        self._is_sure = type(extraction.data) in (FileData, BytesData)

    # -- places ------------------------------------------------------------------------------------------------------

    def spans(self, found: Range) -> tuple[Span, ...]:
        """Return the stretches of the file that hold these bytes; for decompressed ones, those of the output."""
        data: Data = found.data
        if data is self.extraction.data:
            return (Span(data, found.start, len(found), self._path),)
        located = data.locate(found.start, len(found))
        if all(source is self.extraction.data for source, _, _ in located):
            return tuple(Span(source, offset, length, self._path) for source, offset, length in located)
        return (Span(data, found.start, len(found), data.name),)

    # -- the tensor --------------------------------------------------------------------------------------------------

    def missing(self, name: str, problem: Problem, stored_dtype: str = "") -> TensorflowTensor:
        """Return a tensor without any readable bytes."""
        status = Status.MISSING if problem.status is Status.TRUNCATED else problem.status
        return self._tensor(name, None, (), (), stored_dtype, status, self._finding(name, problem, status))

    def tensor(self, name: str, pieces: Sequence[Piece], near: Window | None = None) -> Tensor:
        """Return the tensor of a TensorProto made of ``pieces``; its status tells what is wrong."""
        found = self._made(name, pieces, near)
        if self.owner.holes and found.status is Status.COMPLETE:
            found.unwritten_nbytes = self.owner.unwritten(found)[1]
        return found

    def _made(self, name: str, pieces: Sequence[Piece], near: Window | None) -> TensorflowTensor:
        try:
            found = self._quick(name, pieces, near) if near is not None and len(pieces) == 1 else None
            found = found or self._read(name, Message(self.make, pieces, self.type, near))
            parts = [piece for piece in pieces if isinstance(piece, Range)]
            if self._is_sure and len(parts) == len(pieces) == 1 and parts[0].data is self.extraction.data:
                return found
            if found._texts is not None and found._texts[1] is not None:
                parts.append(found._texts[1])
            elif (content := found._content) is not None and content.data is not None:
                parts.append(content.data.range(content.offset, content.offset + content.length))
            found.made_of(self, tuple(parts))
            return found
        except PASSING:
            raise
        except LimitError as error:
            return self.missing(name, Problem(Status.UNSUPPORTED, error.reason, error.offset))
        except UnsupportedError as error:
            return self.missing(name, Problem(Status.UNSUPPORTED, error.reason, error.offset))
        except PparseError as error:
            return self.missing(name, problem_of(error))

    def _quick(self, name: str, pieces: Sequence[Piece], near: Window) -> TensorflowTensor | None:
        """Return the tensor of a small TensorProto with ``tensor_content``, if that is all."""
        part = pieces[0]
        if not isinstance(part, Range) or isinstance(part, ChunkRange) or part.data is not near.data:
            return None
        size = part.end - part.start
        if size > _SMALL or part.end > self.make.data_end(part):
            return None
        found = content_tensor(near.read(part.start, part.end) + PADDING, size)
        known = _TYPES.get(found[0]) if found is not None else None
        if found is None or known is None:
            return None
        number, shape, start, length = found
        made = self._tensor(
            name, known[0], shape, self.spans(part.data.range(part.start + start, part.start + start + length)),
            self.names[number],
        )  # fmt: skip
        # What is odd is looked at again, and gets its words there.
        return made if made.nbytes == length and len(made.spans) == 1 else None

    def _read(self, name: str, message: Message) -> TensorflowTensor:
        number = int(message.scalar(_DTYPE))
        stored = self.names.get(number, f"DT_{number}")
        problem = message.problem
        if not number and problem is not None:
            return self.missing(name, problem)
        shape, wrong = self._shape(message)
        known = _TYPES.get(number - _REF if number > _REF else number)
        is_text = number in (DT_STRING, DT_STRING + _REF)
        cut = wrong or (problem if _SHAPE not in message.fields else None)
        if cut is not None and cut.status in (Status.TRUNCATED, Status.MISSING):
            return self.missing(name, cut, stored)  # the number of elements is unknown
        if wrong is not None:
            dtype = known[0] if known is not None else None
            return self._tensor(name, dtype, shape, (), stored, wrong.status, self._finding(name, wrong, wrong.status))
        content = self._content(message)
        if isinstance(content, Problem):
            dtype = known[0] if known is not None else None
            status = content.status
            return self._tensor(name, dtype, shape, (), stored, status, self._finding(name, content, status))
        if is_text:
            return self._text(name, message, shape, stored, content)
        if known is None:
            problem = Problem(Status.UNSUPPORTED, f"elements of type {stored} are not numbers")
            if not number and content is None and message.fields:
                problem = Problem(Status.DAMAGED, "it has no type and no values: they were lost or never written")
            spans = self.spans(content) if content is not None else ()
            return self._tensor(
                name, None, shape, spans, stored, problem.status, self._finding(name, problem, problem.status)
            )
        if content is not None:
            return self._from_content(name, message, known[0], shape, stored, content)
        return self._from_values(name, message, known, shape, stored)

    def _tensor(
        self, name: str, dtype: DType | None, shape: tuple[int, ...],
        spans: tuple[Span, ...] | Callable[[], tuple[Span, ...]], stored: str,
        status: Status = Status.COMPLETE, finding: Finding | None = None, encoding: str = "raw",
        content: Span | None = None,
    ) -> TensorflowTensor:  # fmt: skip
        made = TensorflowTensor(
            name, dtype, shape, spans, stored_dtype=stored, status=status, finding=finding, encoding=encoding,
            content=content, owner=self.owner,
        )  # fmt: skip
        made._maker, made._parts = None, ()
        made._texts = None
        return made

    def hash_finding(self, name: str, reason: str, code: str = "hash") -> Finding:
        """Return the finding for a tensor whose bytes are in doubt."""
        return Finding(code, reason, path=name, source=self.extraction.name)

    def _finding(
        self, name: str, problem: Problem, status: Status, wanted: int | None = None, got: int | None = None
    ) -> Finding:
        code = {Status.TRUNCATED: "truncated", Status.MISSING: "missing", Status.UNSUPPORTED: "unsupported"}
        severity = Severity.WARNING if status is Status.UNSUPPORTED else Severity.ERROR
        return Finding(
            "hash" if problem.contradicted else code.get(status, "bad-entry"), problem.reason, severity=severity,
            path=name, source=self.extraction.name, offset=problem.offset, wanted=wanted, got=got,
        )  # fmt: skip

    def _extra(self, name: str, count: int, listed: int) -> Finding:
        return Finding(
            "extra-values", f"{listed} values for {count} elements: only the first ones are used",
            severity=Severity.WARNING, path=name, source=self.extraction.name, wanted=count, got=listed,
        )  # fmt: skip

    def _no_values(self, made: TensorflowTensor, what: str) -> None:
        """Warn of a tensor without values: this is valid, but may also be what is left of lost values."""
        made.finding = Finding(
            "no-values", f"it has no values: all {made.size:,} elements read as {what}",
            severity=Severity.WARNING, path=made.name, source=self.extraction.name, wanted=made.size, got=0,
        )  # fmt: skip

    # -- type and shape ----------------------------------------------------------------------------------------------

    def _shape(self, message: Message) -> tuple[tuple[int, ...], Problem | None]:
        """Return the shape, with -1 for unknown dimensions, and what is wrong with it for a constant."""
        shape = message.message(_SHAPE)
        if shape is None:
            return (), None
        if shape.problem is not None:
            return (), shape.problem
        sizes: list[int] = []
        dim_type = self.shape_type.fields[_DIM].message
        for pieces in shape.elements(_DIM):
            if len(sizes) >= _MAX_RANK:
                return (), Problem(Status.DAMAGED, f"the tensor has more than {_MAX_RANK} dimensions")
            assert dim_type is not None  # noqa: S101 -- the schema is ours
            dim = Message(self.make, pieces, dim_type, shape.near)
            if dim.problem is not None:
                return tuple(sizes), dim.problem
            sizes.append(int(dim.scalar(_SIZE)))
        found = tuple(sizes)
        if found and shape.scalar(_UNKNOWN_RANK):  # without dimensions, TensorFlow reads a scalar anyway
            return found, Problem(Status.DAMAGED, "the tensor has dimensions, but its rank is marked as unknown")
        count = 1
        for size in sizes:
            if size < 0:
                return found, Problem(Status.DAMAGED, "a dimension of the tensor is unknown")
            count *= size
        if max((count, *sizes)) > _MAX_ELEMENTS >> 5:
            return found, Problem(Status.DAMAGED, "the shape has too many elements")
        return found, None

    # -- elements ----------------------------------------------------------------------------------------------------

    def _content(self, message: Message) -> Range | Problem | None:
        """Return where ``tensor_content`` is; None if it is not set, or empty."""
        found = message.last(_CONTENT)
        if found is None:
            return None
        if not isinstance(found, OverlayField):
            part, at = found
            if at.end > part.part.end:
                status, finding = self.make.overshoot(part.part, at, "tensor_content")
                if status is not Status.TRUNCATED:
                    return Problem(status, finding.reason, finding.offset)
            return part.part.data.range(at.start, at.end) if at.end > at.start else None
        chunk = next(reversed(found.whole(scalar=True)), None)
        if isinstance(chunk, Lost):
            return problem_of_lost(chunk)
        if not isinstance(chunk, Range):
            return Problem(Status.DAMAGED, "no chunk holds a value of tensor_content")
        if isinstance(chunk, ChunkRange):
            try:
                chunk.check(message=False)
            except MalformedError as error:
                return Problem(Status.DAMAGED, error.reason)
        return chunk if chunk.end > chunk.start else None

    def _from_content(
        self, name: str, message: Message, dtype: DType, shape: tuple[int, ...], stored: str, content: Range
    ) -> TensorflowTensor:
        first = self.spans(content.data.range(content.start, content.start + min(1, len(content))))[0]
        # One stretch per 64 KiB of a Riegeli file: thousands, which are rarely needed.
        read = Span(content.data, content.start, len(content), first.path)
        made = self._tensor(name, dtype, shape, lambda: self.spans(content), stored, content=read)
        wanted, length = made.nbytes, len(content)
        there = max(0, min(self.make.data_end(content), content.end) - content.start)
        if length != wanted:
            made.status = Status.DAMAGED
            problem = Problem(
                Status.DAMAGED, f"tensor_content has {length} bytes; type and shape need {wanted}", first.offset
            )
            made.finding = self._finding(name, problem, made.status, wanted, length)
        elif there < length:
            made.status = Status.TRUNCATED if there else Status.MISSING
            problem = Problem(made.status, "the file ends inside its content", first.offset)
            made.finding = self._finding(name, problem, made.status, length, there)
        elif message.problem is not None and message.problem.status is not Status.TRUNCATED:
            made.status = Status.DAMAGED
            made.finding = self._finding(name, message.problem, made.status)
        return made

    def _from_values(
        self, name: str, message: Message, known: tuple[DType, int, str, int], shape: tuple[int, ...], stored: str
    ) -> TensorflowTensor:
        dtype, number, code, words = known
        values = Values(message, self.type.fields[number], code, words)
        made = self._tensor(name, dtype, shape, (), stored)
        count = made.size
        problem = message.problem
        stored_as = values.as_stored(count) if count else None
        if stored_as is not None:
            made.spans = self.spans(stored_as)
            if len(made.spans) > 1:
                made._content = Span(stored_as.data, stored_as.start, len(stored_as), self._path)
        else:
            made.spans = tuple(span for found in values.spans for span in self.spans(found))
            listed = values.count if values.counted or values.cut else None
            if listed is not None:
                made.encoding = _encoding(listed, count)
            else:
                made.encoding = "typed"
            if listed is not None and not values.cut and (listed > count or values.extra_words):
                made.finding = self._extra(name, count, listed)
            cut = problem is not None or values.cut
            data = ValuesData(values, dtype.itemsize, count, f"{self.extraction.name}::{name}",
                              lock=self.extraction.lock, whole=not cut)  # fmt: skip
            made._content = Span(data, 0, made.nbytes, data.name)
            if cut:
                self._judge_cut(made, values, problem)
            elif listed == 0 and count:
                self._no_values(made, "zeros")
        if not made.spans and made.size and self.lost_content and problem is None:
            reason = "its values are in a chunk that cannot be identified without the metadata"
            made.status = Status.MISSING
            made.finding = self._finding(name, Problem(made.status, reason), made.status)
        self._check_empty(made)
        return made

    def _check_empty(self, made: TensorflowTensor) -> None:
        """Do not let a constant without values read as zeros if its chunk may have gone elsewhere."""
        if made.spans or not made.size or made.status is not Status.COMPLETE:
            return
        reason = self._misplaced()
        if reason is not None:
            made.status = Status.DAMAGED
            why = f"it has no values, and chunks are in wrong places: {reason}"
            made.finding = self._finding(made.name, Problem(made.status, why), made.status)

    def _judge_cut(self, made: TensorflowTensor, values: Values, problem: Problem | None) -> None:
        """Set the status of a tensor whose message ends early: its last values may be missing, so nothing repeats."""
        if problem is not None and problem.status is Status.DAMAGED:
            made.status = Status.DAMAGED
            made.finding = self._finding(made.name, problem, made.status)
            return
        there = values.count if made.dtype is not None else 0
        if not made.size:
            return
        made.encoding = "typed"
        made.status = Status.TRUNCATED if there else problem.status if problem is not None else Status.MISSING
        if made.status is Status.TRUNCATED and not there:
            made.status = Status.MISSING
        reason = problem.reason if problem is not None else "the file ends inside its values"
        offset = problem.offset if problem is not None else None
        made.finding = self._finding(made.name, Problem(made.status, reason, offset), made.status, made.size, there)

    def _text(self, name: str, message: Message, shape: tuple[int, ...], stored: str, content: Range | None
    ) -> TensorflowTensor:  # fmt: skip
        spans: tuple[Span, ...] = ()
        if content is not None:
            spans = self.spans(content)
        else:
            for item in message.fields.get(_STRINGS, ()):
                if not isinstance(item, OverlayField) and item[1].count:
                    part = item[0]
                    first = part.part.data
                    last = part.last(_STRINGS, message.window(part))
                    spans += self.spans(first.range(item[1].offsets[0], min(last.end, part.part.end)))
        made = self._tensor(name, None, shape, spans, stored)
        made._texts = (message, content)
        listed = sum(item[1].count for item in message.fields.get(_STRINGS, ()) if not isinstance(item, OverlayField))
        if content is None and listed > made.size:
            made.finding = self._extra(name, made.size, listed)
        problem = message.problem
        cut = content is not None and content.end > self.make.data_end(content)
        if problem is not None or cut:
            damaged = problem is not None and problem.status is Status.DAMAGED
            made.status = Status.DAMAGED if damaged else Status.TRUNCATED if spans else Status.MISSING
            problem = problem or Problem(Status.TRUNCATED, "the file ends inside its strings")
            made.finding = self._finding(name, problem, made.status)
        elif self.lost_content and not spans and made.size:
            reason = "its strings are in a chunk that cannot be identified without the metadata"
            made.status = Status.MISSING
            made.finding = self._finding(name, Problem(made.status, reason), made.status)
        elif not spans and made.size:
            self._no_values(made, "empty strings")
        self._check_empty(made)
        return made


def content_tensor(raw: bytes, size: int) -> tuple[int, tuple[int, ...], int, int] | None:
    """Return type, shape, and begin and length of the content of the TensorProto ``raw[:size]`` (`PADDING` follows it).

    None unless it consists of just a type, a shape of small dimensions, perhaps a version, and a content.
    """
    number = start = length = 0
    shape: list[int] = []
    pos = 0
    order = 0
    try:
        while pos < size:
            tag = raw[pos]
            if tag <= order:
                return None  # a repeated field, or another order
            order = tag
            pos += 1
            if tag in (0x08, 0x18):
                value, pos = read_value(raw, pos)
                number = value if tag == 0x08 else number
                continue
            length, pos = read_length(raw, pos)
            end = pos + length
            if tag == 0x22:
                start = pos
            elif tag == 0x12 and end <= size:
                while pos < end:
                    if raw[pos] != 0x12 or raw[pos + 2] != 0x08:
                        return None
                    after = pos + 2 + raw[pos + 1]
                    value, pos = read_value(raw, pos + 3)
                    if pos != after or after > end or value >> 40:
                        return None
                    shape.append(value)
            else:
                return None
            pos = end
    except (MalformedError, IndexError):
        return None
    return (
        (number, tuple(shape), start, length) if pos == size and order == 0x22 and length and len(shape) < 8 else None
    )


def _encoding(listed: int, count: int) -> str:
    if listed >= count:
        return "typed"
    return "zeros" if not listed else "splat" if listed == 1 else "repeat"
