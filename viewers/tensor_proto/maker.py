"""From a message that describes a tensor to a `Tensor`, without reading its elements: what all such messages share.

A format says in `TensorMaker.read` what the fields of its message mean; here is where the bytes lie in the file, what a
cut or a contradiction makes of the tensor, and what becomes known of its bytes later.
"""

from __future__ import annotations

from abc import abstractmethod
from math import prod

from pparse.data.range_status import cut_status
from pparse.data.reader import Range
from pparse.errors import DataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import Finding, Severity, Status
from pparse.locking import steps
from pparse.parsers.protobuf.index import ChunkRange, Lost, OverlayField
from pparse.parsers.protobuf.message import Message, Problem, problem_of, problem_of_lost
from pparse.tensors.tensor import UNKNOWN_SHAPE, Span, Tensor
from pparse.viewers.tensor_proto.values import ValuesData, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final, TypeGuard

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import Piece
    from pparse.parsers.protobuf.window import Window
    from pparse.protobuf.schema import MessageType
    from pparse.tensors.dtype import DType
    from pparse.viewers.tensor_proto.values import NumberValues

# -- A tensor of a message: its bytes as `Tensor` has them, its texts, and what becomes known of both later ------------

# Names of the types whose elements are strings.
_TEXTS: Final = frozenset(("DT_STRING", "DT_STRING_REF", "STRING"))


class ProtoTensor(Tensor):
    """A tensor of a message of TensorFlow or ONNX.

    ``status``, ``verified`` and ``finding`` follow what becomes known about its bytes (``parts``): a checksum that
    fails later makes the tensor DAMAGED then.
    """

    __slots__ = ("_listing", "_maker", "_parts")

    # How the strings are read, and the bytes they lie in if these are in one stretch.
    _listing: tuple[Callable[[], Iterator[bytes]], Range | None] | None
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
        """False if a checksum contradicts the bytes; True also if one confirmed the message that lists the numbers."""
        told = self._finding is not None and self._finding.code == "hash"
        if told or self._why_suspect is not None:
            return False
        known = super().verified
        if known is None and self._parts and self._status is Status.COMPLETE and self.encoding != "raw":
            listed = None if self._content is None else self._content.data  # made of the message
            proved = (part.data.is_proved(part.start, part.end) for part in self._parts if part.data is not listed)
            return True if all(proved) else None
        return known

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
        return self.stored_dtype in _TEXTS

    def strings(self) -> Iterator[bytes]:
        """Yield the elements of a tensor of strings, in C order.

        Raises `UnsupportedError` for other types, `MalformedError` or `EndOfDataError` if an element is not whole.
        """
        if self._listing is None:
            raise UnsupportedError(f"{self.name!r} is of type {self.stored_dtype}, not of strings", path=self.name)
        if self.status is not Status.TRUNCATED:
            self._refuse_if_not_whole()
        self._check_unchanged()
        yield from self._listing[0]()

    def numpy(self, **options: Any) -> Any:
        """Return the tensor as `Tensor.numpy` does; strings as an array of bytes objects (dtype object)."""
        if self.dtype is not None or self._listing is None or options.get("raw") or options.get("dtype") is not None:
            return super().numpy(**options)
        import numpy as np

        self._refuse_if_not_whole()
        size = 8 * self.size + self.stored_nbytes
        self._owner.extraction.session.limits.check("scalar_bytes", size, "the array of strings", path=self.name)
        array = np.empty(self.size, object)
        for number, text in enumerate(self.strings()):
            array[number] = text
        return array.reshape(self.shape)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects; for strings, bytes or an array of them, reading the list to the last one."""
        if self.dtype is not None or self._listing is None:
            return super().__getitem__(index)
        from pparse.tensors.selection import normalise, pick

        items = normalise(index, self.shape)
        self._refuse_if_not_whole()
        return pick(self.strings(), items, self.shape, self._owner.extraction.session.limits)


_MAX_ELEMENTS: Final = (1 << 63) - 1 >> 5
_CODES: Final = {Status.TRUNCATED: "truncated", Status.MISSING: "missing", Status.UNSUPPORTED: "unsupported"}
_CUT: Final = (Status.TRUNCATED, Status.MISSING)


class TensorMaker:
    """Makes tensors from messages of ``type`` in one document; ``owner`` is its viewer."""

    def __init__(self, extraction: Extraction, make: ValueEntries, type: MessageType, owner: Any) -> None:
        self.extraction = extraction
        self.make = make
        self.type = type
        self.owner = owner
        self._path = extraction.path
        self._is_sure = extraction.data.is_plain

    # -- what a format says ------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor that ``message`` describes; its status tells what is wrong. Raises `PparseError`."""

    def quick(self, name: str, pieces: Sequence[Piece], near: Window) -> ProtoTensor | None:
        """Return the tensor of a small, sound message, most of which is in ``near``; None to have it read by `read`."""
        return None

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

    def tensor(self, name: str, pieces: Sequence[Piece], near: Window | None = None) -> Tensor:
        """Return the tensor of a message made of ``pieces``; its status tells what is wrong."""
        found = self._made(name, pieces, near)
        if self.owner.holes and found.status is Status.COMPLETE:
            found.unwritten_nbytes = self.owner.unwritten(found)[1]
        return found

    def _made(self, name: str, pieces: Sequence[Piece], near: Window | None) -> ProtoTensor:
        try:
            found = self.quick(name, pieces, near) if near is not None and len(pieces) == 1 else None
            found = found or self.read(name, Message(self.make, pieces, self.type, near))
            parts = [piece for piece in pieces if isinstance(piece, Range)]
            alone = len(parts) == len(pieces) == 1 and parts[0].data is self.extraction.data
            if self._is_sure and alone and found._content is None and found.spans:
                return found  # its spans are in the file itself, where all that is known about them is found
            if found._listing is not None and found._listing[1] is not None:
                parts.append(found._listing[1])
            elif (content := found._content) is not None and content.data is not None:
                parts.append(content.data.range(content.offset, content.offset + content.length))
            found.made_of(self, tuple(parts))
            return found
        except (LimitError, UnsupportedError) as error:
            return self.missing(name, Problem(Status.UNSUPPORTED, error.reason, error.offset))
        except DataError as error:
            return self.missing(name, problem_of(error))

    def new(
        self,
        name: str,
        dtype: DType | None,
        shape: tuple[int, ...],
        spans: tuple[Span, ...] | Callable[[Any], tuple[Span, ...]],
        stored: str,
        problem: Problem | None = None,
        content: Span | None = None,
    ) -> ProtoTensor:
        """Return a tensor; with a ``problem``, of its status, and with a finding on it."""
        made = ProtoTensor(
            name,
            dtype,
            shape,
            spans,
            stored_dtype=stored,
            status=Status.COMPLETE if problem is None else problem.status,
            finding=None if problem is None else self.finding(name, problem),
            content=content,
            owner=self.owner,
        )
        made._maker, made._parts, made._listing = None, (), None
        return made

    def missing(self, name: str, problem: Problem, stored_dtype: str = "") -> ProtoTensor:
        """Return a tensor without any readable bytes."""
        made = self.new(name, None, UNKNOWN_SHAPE, (), stored_dtype, problem)
        if problem.status is Status.TRUNCATED:
            self.judge(made, problem, Status.MISSING)
        return made

    def judge(
        self,
        made: ProtoTensor,
        problem: Problem,
        status: Status | None = None,
        wanted: int | None = None,
        got: int | None = None,
    ) -> None:
        """Give a tensor the status of a problem, or ``status``, and the finding on it."""
        made.status = status or problem.status
        made.finding = self.finding(made.name, problem, made.status, wanted, got)

    # -- elements ----------------------------------------------------------------------------------------------------

    def bytes_of(self, message: Message, number: int, label: str) -> Range | Problem | None:
        """Return where the value of a bytes field is; None if it is not set, or empty."""
        found = message.last(number)
        if found is None:
            return None
        if not isinstance(found, OverlayField):
            part, at = found
            if at.end > part.part.end:
                status, finding = self.make.overshoot(part.part, at, label)
                if status is not Status.TRUNCATED:
                    return Problem(status, finding.reason, finding.offset)
            return part.part.data.range(at.start, at.end) if at.end > at.start else None
        chunk = next(reversed(found.whole(scalar=True)), None)
        if isinstance(chunk, Lost):
            return problem_of_lost(chunk)
        if not isinstance(chunk, Range):
            return Problem(Status.DAMAGED, f"no chunk holds a value of {label}")
        if isinstance(chunk, ChunkRange):
            try:
                chunk.check(message=False)
            except MalformedError as error:
                return Problem(Status.DAMAGED, error.reason)
        return chunk if chunk.end > chunk.start else None

    def of_bytes(
        self, name: str, message: Message, dtype: DType, shape: tuple[int, ...], stored: str, content: Range, label: str
    ) -> ProtoTensor:
        """Return the tensor whose elements are the bytes of the field called ``label``, at ``content``."""
        first = self.spans(content.data.range(content.start, content.start + min(1, len(content))))[0]
        # One stretch per 64 KiB of a Riegeli file: thousands, which are rarely needed.
        read = Span(content.data, content.start, len(content), first.path)
        made = self.new(name, dtype, shape, lambda _: self.spans(content), stored, content=read)
        wanted, length = dtype.stored_nbytes(made.size), len(content)
        there = max(0, min(self.make.data_end(content), content.end) - content.start)
        if length != wanted:
            problem = Problem(Status.DAMAGED, f"{label} has {length} bytes; type and shape need {wanted}", first.offset)
            self.judge(made, problem, None, wanted, length)
        elif there < length:
            problem = Problem(cut_status(there), "the file ends inside its content", first.offset)
            self.judge(made, problem, None, length, there)
        elif message.problem is not None and message.problem.status is not Status.TRUNCATED:
            self.judge(made, message.problem, Status.DAMAGED)
        return made

    def text_places(self, message: Message, number: int) -> tuple[tuple[Span, ...], int]:
        """Return where the texts in a repeated field are, and how many there are; none of those in chunks."""
        spans: tuple[Span, ...] = ()
        count = 0
        for item in message.fields.get(number, ()):
            if not isinstance(item, OverlayField) and item[1].count:
                scan, begin = item[0], item[1].offsets[0]
                end = min(scan.last(number, message.window(scan)).end, scan.part.end)
                spans += self.spans(scan.part.data.range(begin, max(begin, end)))
                count += item[1].count
        return spans, count

    def list_texts(self, made: ProtoTensor, message: Message, number: int) -> None:
        """Make the strings of a tensor those in a repeated field."""
        count = made.size  # not the tensor itself, which would hold itself
        made._listing = (lambda: steps(self.owner.lock, texts(message, number, count))), None

    def list_values(self, made: ProtoTensor, dtype: DType, values: NumberValues, itemsize: int, **options: Any) -> None:
        """Make the bytes of a tensor those of listed numbers, ``itemsize`` bytes each; options as for `ValuesData`."""
        made.spans = tuple(span for found in values.spans for span in self.spans(found))
        made.encoding = "typed"
        name = f"{self.extraction.name}::{made.name}"
        size = dtype.stored_nbytes(made.size)
        data = ValuesData(values, itemsize, size // itemsize, name, lock=self.extraction.lock, **options)
        made._content = Span(data, 0, size, name)

    def as_stored(self, made: ProtoTensor, values: NumberValues, count: int) -> bool:
        """If one stretch of the file is the array of ``count`` numbers, make it the bytes of the tensor."""
        stored = values.as_stored(count) if count else None
        if stored is None:
            return False
        made.spans = self.spans(stored)
        if len(made.spans) > 1:
            made._content = Span(stored.data, stored.start, len(stored), self._path)
        return True

    # -- findings ----------------------------------------------------------------------------------------------------

    def hash_finding(self, name: str, reason: str, code: str = "hash") -> Finding:
        """Return the finding for a tensor whose bytes are in doubt."""
        return self._on(name, code, reason)

    def _on(self, name: str, code: str, reason: str, **more: Any) -> Finding:
        return Finding(code, reason, path=name, source=self.extraction.name, **more)

    def finding(
        self,
        name: str,
        problem: Problem,
        status: Status | None = None,
        wanted: int | None = None,
        got: int | None = None,
    ) -> Finding:
        """Return the finding on a tensor that has a problem."""
        status = status or problem.status
        code = "hash" if problem.contradicted else _CODES.get(status, "bad-entry")
        severity = Severity.WARNING if status is Status.UNSUPPORTED else Severity.ERROR
        numbers = {"offset": problem.offset, "wanted": wanted, "got": got}
        return self._on(name, code, problem.reason, severity=severity, **numbers)

    def warning(self, code: str, reason: str, name: str, wanted: int, got: int) -> Finding:
        """Return a warning on a tensor."""
        return self._on(name, code, reason, severity=Severity.WARNING, wanted=wanted, got=got)


def is_cut(problem: Problem | None) -> TypeGuard[Problem]:
    """Return whether a problem is that bytes are not there."""
    return problem is not None and problem.status in _CUT


def has_too_many(shape: Sequence[int]) -> bool:
    """Return whether a shape has more elements than any file: products beyond 64 bits, dimensions beside a 0 too."""
    return max((prod(shape), *shape)) > _MAX_ELEMENTS
