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

from pparse.data.range_status import cut_status
from pparse.data.reader import Range
from pparse.errors import (
    PASSING,
    LimitError,
    MalformedError,
    PparseError,
    UnsupportedError,
)
from pparse.findings import Finding, Severity, Status
from pparse.kernels.wire import PADDING, read_length, read_value
from pparse.parsers.protobuf.index import ChunkRange, Lost, OverlayField
from pparse.tensors.tensor import Span, Tensor
from pparse.viewers.tensorflow.element_types import ELEMENT_TYPES, STRING_FIELD, TEXT_TYPES, element_type
from pparse.viewers.tensorflow.messages import Message, Problem, problem_of, problem_of_lost
from pparse.viewers.tensorflow.tensor import TensorflowTensor
from pparse.viewers.tensorflow.values import Values, ValuesData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Piece
    from pparse.parsers.protobuf.window import Window
    from pparse.protobuf.schema import Schema
    from pparse.tensors.dtype import DType

_SMALL: Final = 16 << 10
_MAX_RANK: Final = 254
_MAX_ELEMENTS: Final = (1 << 63) - 1

# Fields of a TensorProto, and of the messages of its shape.
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_DIM, _UNKNOWN_RANK, _SIZE = 2, 3, 1


class TensorMaker:
    """Makes tensors from TensorProtos of one document.

    ``lost_content``: chunks exist, but no metadata to assign them, so the values of an empty constant are elsewhere.
    ``misplaced`` tells what is wrong with the places of chunks, if anything: such a constant may then be damaged.
    """

    def __init__(
        self,
        extraction: Extraction,
        make: ValueEntries,
        schema: Schema,
        owner: Any,
        misplaced: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.extraction = extraction
        self.make = make
        self.type = schema.message("tensorflow.TensorProto")
        self.shape_type = schema.message("tensorflow.TensorShapeProto")
        self.names = schema.enum("tensorflow.DataType").names
        self.owner = owner
        self.lost_content = False
        self._misplaced = misplaced
        self._path = extraction.path
        self._is_sure = extraction.data.is_plain

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
        known = ELEMENT_TYPES.get(found[0]) if found is not None else None
        if found is None or known is None:
            return None
        number, shape, start, length = found
        made = self._tensor(
            name,
            known[0],
            shape,
            self.spans(part.data.range(part.start + start, part.start + start + length)),
            self.names[number],
        )
        # What is odd is looked at again, and gets its words there.
        return made if made.nbytes == length and len(made.spans) == 1 else None

    def _read(self, name: str, message: Message) -> TensorflowTensor:
        number = int(message.scalar(_DTYPE))
        stored = self.names.get(number, f"DT_{number}")
        problem = message.problem
        if not number and problem is not None:
            return self.missing(name, problem)
        shape, wrong = self._shape(message)
        known = element_type(number)
        is_text = number in TEXT_TYPES
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
        self,
        name: str,
        dtype: DType | None,
        shape: tuple[int, ...],
        spans: tuple[Span, ...] | Callable[[], tuple[Span, ...]],
        stored: str,
        status: Status = Status.COMPLETE,
        finding: Finding | None = None,
        encoding: str = "raw",
        content: Span | None = None,
    ) -> TensorflowTensor:
        made = TensorflowTensor(
            name,
            dtype,
            shape,
            spans,
            stored_dtype=stored,
            status=status,
            finding=finding,
            encoding=encoding,
            content=content,
            owner=self.owner,
        )
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
            "hash" if problem.contradicted else code.get(status, "bad-entry"),
            problem.reason,
            severity=severity,
            path=name,
            source=self.extraction.name,
            offset=problem.offset,
            wanted=wanted,
            got=got,
        )

    def _extra(self, name: str, count: int, listed: int) -> Finding:
        return Finding(
            "extra-values",
            f"{listed} values for {count} elements: only the first ones are used",
            severity=Severity.WARNING,
            path=name,
            source=self.extraction.name,
            wanted=count,
            got=listed,
        )

    def _no_values(self, made: TensorflowTensor, what: str) -> None:
        """Warn of a tensor without values: this is valid, but may also be what is left of lost values."""
        made.finding = Finding(
            "no-values",
            f"it has no values: all {made.size:,} elements read as {what}",
            severity=Severity.WARNING,
            path=made.name,
            source=self.extraction.name,
            wanted=made.size,
            got=0,
        )

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
            made.status = cut_status(there)
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
            data = ValuesData(
                values,
                dtype.itemsize,
                count,
                f"{self.extraction.name}::{name}",
                lock=self.extraction.lock,
                whole=not cut,
            )
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
        made.status = cut_status(there)
        if problem is not None and not there and problem.status is not Status.TRUNCATED:
            made.status = problem.status
        reason = problem.reason if problem is not None else "the file ends inside its values"
        offset = problem.offset if problem is not None else None
        made.finding = self._finding(made.name, Problem(made.status, reason, offset), made.status, made.size, there)

    def _text(
        self, name: str, message: Message, shape: tuple[int, ...], stored: str, content: Range | None
    ) -> TensorflowTensor:
        spans: tuple[Span, ...] = ()
        if content is not None:
            spans = self.spans(content)
        else:
            for item in message.fields.get(STRING_FIELD, ()):
                if not isinstance(item, OverlayField) and item[1].count:
                    part = item[0]
                    first = part.part.data
                    last = part.last(STRING_FIELD, message.window(part))
                    spans += self.spans(first.range(item[1].offsets[0], min(last.end, part.part.end)))
        made = self._tensor(name, None, shape, spans, stored)
        made._texts = (message, content)
        listed = sum(
            item[1].count for item in message.fields.get(STRING_FIELD, ()) if not isinstance(item, OverlayField)
        )
        if content is None and listed > made.size:
            made.finding = self._extra(name, made.size, listed)
        problem = message.problem
        cut = content is not None and content.end > self.make.data_end(content)
        if problem is not None or cut:
            damaged = problem is not None and problem.status is Status.DAMAGED
            made.status = cut_status(spans, damaged=damaged)
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
