"""From a message that describes a tensor to a `Tensor`, without reading its elements: what all such messages share.

A format says in `TensorMaker.read` what the fields of its message mean; here is where the bytes lie in the file, what a
cut or a contradiction makes of the tensor, and what becomes known of its bytes later.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, chain
from math import prod

from pparse.data.base import Range, blocks
from pparse.data.range_status import cut_status
from pparse.data.spliced import DerivedData
from pparse.errors import DataError, EndOfDataError, GapError, LimitError, MalformedError, UnsupportedError
from pparse.findings import COMPLETE, ENDS_EARLY, Finding, Severity, Status
from pparse.kernels.packed import count_varints, packed_array
from pparse.kernels.wire import PADDING, read_value
from pparse.locking import steps
from pparse.parsers.protobuf.index import ChunkRange, Lost, OverlayField
from pparse.parsers.protobuf.lists import CONTINUED
from pparse.parsers.protobuf.message import Message, Problem, problem_of, problem_of_lost
from pparse.parsers.protobuf.values import fixed_size
from pparse.protobuf.schema import signed
from pparse.tensors.span import Span
from pparse.tensors.status import finding_by_status
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.tensors.text_tensor import TextTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from threading import RLock
    from typing import Any, Final, TypeGuard

    from pparse.data.base import Data
    from pparse.document.extraction import Extraction
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.parsers.protobuf.index import PartScan, Piece, WireWindow
    from pparse.protobuf.schema import FieldType, MessageType
    from pparse.tensors.dtype import DType

# -- elements that a message lists one by one (``float_val``, ``int64_data`` …), decoded when they are read ------------

# The array is made on demand: `ValuesData` serves any stretch of it. In TensorFlow a field may have fewer elements
# than its tensor: the last one repeats to the end (a *splat*, if there is only one), and an empty field means zeros;
# repetitions are never held.

# Fields that hold packed numbers; beyond, they are not numbered one by one.
_MAX_BLOBS: Final = 1 << 16
# Packed varints up to this size are counted when the tensor is made, larger ones when it is read.
_COUNT_UP_TO: Final = 4 << 10
# In larger ones, every 4,096th offset is recorded.
_STRIDE: Final = 4_096
_BLOCK: Final = 64 << 10
# Elements decoded at a time.
_STEP: Final = 32 << 10
_FILL: Final = 64 << 10


class NumberValues:
    """The numbers of one typed field of a message, as elements of ``words`` numbers each (two for complex ones).

    ``code`` is the numpy type of a number in the array; ``cut`` tells whether the file ends inside. Raises
    `UnsupportedError` for numbers in chunks of their own, `LimitError` for fields in many pieces, `MalformedError`.
    """

    def __init__(self, message: Message, field: FieldType, code: str, words: int = 1) -> None:
        self.field = field
        self.code = code
        self.words = words
        self.size = fixed_size(field)
        self.cut = False
        self._segments: list[_Blobs | _Singles] = []
        for part, _ in message.runs(field.number, f"numbers of {field.name} are in chunks of their own"):
            packed = field.type_name == "bytes" or part.has_packed(field.number)
            there = min(part.part.end, message.make.data_end(part.part))
            segment = _Blobs(self, part, there, message) if packed else _Singles(self, part, there, message)
            self._segments.append(segment)
            if segment.cut:
                self.cut = True
                break

    @property
    def spans(self) -> Iterator[Range]:
        """The stretches that hold them: one per packed field, or one for all single values of a part."""
        for segment in self._segments:
            yield from segment.spans

    @property
    def counted(self) -> bool:
        """Whether `count` is known without reading."""
        return all(segment.counted for segment in self._segments)

    @property
    def count(self) -> int:
        """Number of whole elements."""
        return self._ends[-1] // self.words if self._segments else 0

    @property
    def extra_words(self) -> int:
        """Number of numbers left over: half a complex one."""
        return self._ends[-1] % self.words if self._segments else 0

    @cached_property
    def _ends(self) -> list[int]:
        """Where the numbers of each segment end."""
        return list(accumulate(segment.count for segment in self._segments))

    def as_stored(self, count: int) -> Range | None:
        """Return the one stretch that holds ``count`` elements as the array has them; None if there is none."""
        only = self._segments[0] if len(self._segments) == 1 else None
        if not isinstance(only, _Blobs) or only.direct is None:
            return None
        spans = list(only.spans)
        return spans[0] if len(spans) == 1 and len(spans[0]) == count * self.words * only.direct else None

    def read(self, first: int, count: int) -> bytes:
        """Return elements ``[first, first + count)`` as the array has them. Raises `MalformedError` and others."""

        def read(number: int, at: int, take: int) -> bytes:
            return self._segments[number].read(at, take)

        return _read_across(self._ends, first * self.words, count * self.words, read)

    def convert(self, raw: bytes) -> bytes:
        """Convert numbers from a packed payload to those of the array."""
        if self.size is not None or self.field.type_name == "bytes":
            return raw
        converted: bytes = packed_array(raw, self.field.type).astype(self.code, copy=False).tobytes()
        return converted

    @property
    def sources(self) -> list[Data]:
        """The data that the values are in, each once."""
        found = (segment.part.part.data for segment in self._segments)
        return list({id(data): data for data in found}.values())


def _read_across(ends: list[int], first: int, count: int, read: Callable[[int, int, int], bytes]) -> bytes:
    """Return ``count`` numbers from number ``first`` on, of parts that end at ``ends``; ``read`` reads one."""
    pieces = []
    while count:
        number = bisect_right(ends, first)
        before = ends[number - 1] if number else 0
        take = min(count, ends[number] - first)
        pieces.append(read(number, first - before, take))
        first += take
        count -= take
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Blobs:
    """The packed numbers of a part, as stretches of bytes; a single number counts as a stretch."""

    def __init__(self, owner: NumberValues, part: PartScan, there: int, message: Message) -> None:
        self.owner = owner
        self.part = part
        self.cut = False
        self._starts = array("q")
        self._stops = array("q")
        self._checkpoints: dict[int, array[int]] = {}
        slot = part.slots[owner.field.number]
        if slot.count > _MAX_BLOBS:
            reason = f"the field {owner.field.name} is in {slot.count} pieces"
            raise LimitError(reason, option="", wanted=slot.count, got=_MAX_BLOBS)
        single = owner.field.type_name == "bytes"
        window = message.window(part)
        for found in [part.last(owner.field.number, window)] if single else part.fields(owner.field.number, 0, window):
            if found.end > there:
                self.cut = True
            stop = min(found.end, there)
            if owner.size is not None:
                stop -= max(0, stop - found.start) % owner.size
            elif found.end > there and not single:
                stop = self._last_whole(found.start, stop)
            if stop > found.start:
                self._starts.append(found.start)
                self._stops.append(stop)

    @property
    def spans(self) -> Iterator[Range]:
        for start, stop in zip(self._starts, self._stops, strict=True):
            yield self.part.part.data.range(start, stop)

    @property
    def direct(self) -> int | None:
        """Bytes per number if file and array agree on it; None for varints."""
        return 1 if self.owner.field.type_name == "bytes" else self.owner.size

    @property
    def counted(self) -> bool:
        is_known = self.direct is not None or "_ends" in self.__dict__
        return is_known or sum(self._stops) - sum(self._starts) <= _COUNT_UP_TO

    @property
    def count(self) -> int:
        return self._ends[-1] if self._ends else 0

    @cached_property
    def _ends(self) -> list[int]:
        """Where the numbers of each blob end."""
        blobs, size = enumerate(zip(self._starts, self._stops, strict=True)), self.direct
        return list(accumulate((stop - at) // size if size else self._count(n, at, stop) for n, (at, stop) in blobs))

    def _count(self, number: int, start: int, stop: int) -> int:
        """Count the varints of a blob; in a long one, record where some of them begin."""
        if stop - start <= _COUNT_UP_TO:
            return count_varints(self.part.part.data.pread(start, stop - start))
        from pparse.kernels.packed import varint_checkpoints

        checkpoints, count = varint_checkpoints(blocks(self.part.part.data.read_exact, start, stop, _BLOCK), _STRIDE)
        self._checkpoints[number] = checkpoints
        return count

    def _last_whole(self, start: int, stop: int) -> int:
        """Return where the last whole varint ends in a blob that is cut at ``stop``."""
        if stop <= start:
            return start
        tail = self.part.part.data.pread(max(start, stop - 16), min(16, stop - start))
        return stop - len(tail) + len(tail.rstrip(CONTINUED))

    def read(self, first: int, count: int) -> bytes:
        return _read_across(self._ends, first, count, self._read)

    def _read(self, number: int, first: int, count: int) -> bytes:
        data, start, stop = self.part.part.data, self._starts[number], self._stops[number]
        size = self.direct
        if size is not None:
            return data.read_exact(start + first * size, count * size)
        kept = self._checkpoints.get(number)
        skip = first
        if kept is not None:
            slot, last = first // _STRIDE, -(-(first + count) // _STRIDE)
            if last < len(kept):
                stop = start + kept[last]
            start += kept[slot]
            skip = first - slot * _STRIDE
        raw = self.owner.convert(data.read_exact(start, stop - start))
        width = int(self.owner.code[-1])  # of a number in the array: ``<f4``, ``u1`` …
        return raw[skip * width : (skip + count) * width]


class _Singles:
    """The numbers of a part that are stored one by one, each with a tag."""

    counted = True

    def __init__(self, owner: NumberValues, part: PartScan, there: int, message: Message) -> None:
        self.owner = owner
        self.part = part
        slot = part.slots[owner.field.number]
        last = part.last(owner.field.number, message.window(part))
        self.cut = last.end > there
        self.count = slot.count - self.cut
        self.spans: tuple[Range, ...] = ()
        if self.count:
            begin = slot.offsets[0]
            self.spans = (part.part.data.range(begin, min(last.end, there)),)

    def read(self, first: int, count: int) -> bytes:
        window = self.part.window()
        raw = bytearray()
        for found in self.part.fields(self.owner.field.number, first, window):
            if not count:
                break
            raw += window.read(found.start, found.end)
            count -= 1
        return self.owner.convert(bytes(raw))


def numbers(message: Message, number: int) -> Iterator[int]:
    """Yield the values of a repeated int64 field, packed or not. Raises `MalformedError`, `EndOfDataError`."""
    for scan, window, at in message.occurrences(number):
        end = min(at.end, scan.part.end)
        raw = window.read(at.start, end) + PADDING
        pos, size = 0, end - at.start
        while pos < size:
            value, pos = read_value(raw, pos)
            yield signed(value, 64)


class ValuesData(DerivedData):
    """The bytes of ``count`` elements of ``itemsize`` bytes; the last one of ``values`` repeats, or zeros fill up.

    ``exact``: instead, another number of values is an error. ``whole=False``: the data ends with the last value, as the
    file is cut there. Values are found through the tree, a few at a time, under the session's ``lock``.
    """

    copies = False

    def __init__(
        self,
        values: NumberValues,
        itemsize: int,
        count: int,
        name: str,
        *,
        lock: RLock,
        whole: bool = True,
        exact: bool = False,
    ) -> None:
        super().__init__(name, itemsize * (count if whole else min(count, values.count)))
        self._exact = count if exact and whole else None
        self.sources = values.sources
        self._values = values
        self._itemsize = itemsize
        self._lock = lock
        self._last: bytes | None = None

    def pieces(self, start: int, end: int) -> list[tuple[Data, int, int]]:
        """Return where all values stand."""
        with self._lock:
            return [(span.data, span.start, span.end) for span in self._values.spans]

    def _how(self) -> tuple[object, ...]:
        return self._values.field.number, self._values.code, self._itemsize, self.size

    def _pread(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        self._preadinto(offset, memoryview(found))
        return bytes(found)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        width, wanted = self._itemsize, len(view)
        with self._lock:
            count = self._values.count
        if self._exact is not None and (count != self._exact or self._values.extra_words):
            raise miscounted(self._exact, count, self._values)
        listed = count * width
        done = 0
        while done < wanted and offset + done < listed:
            first = (offset + done) // width
            last = min(-(-(offset + wanted) // width), first + _STEP, listed // width)
            with self._lock:
                raw = self._values.read(first, last - first)
            if len(raw) < (last - first) * width:
                raise EndOfDataError("values of the tensor are missing", wanted=(last - first) * width, got=len(raw))
            skip = offset + done - first * width
            take = min(len(raw) - skip, wanted - done)
            view[done : done + take] = memoryview(raw)[skip : skip + take]
            done += take
        if done < wanted:
            self._fill(view[done:], (offset + done) % width)
        return wanted

    def _fill(self, view: memoryview, phase: int) -> None:
        """Fill ``view`` with the last value, from its byte ``phase`` on."""
        with self._lock:
            if self._last is None:
                count = self._values.count
                self._last = self._values.read(count - 1, 1) if count else bytes(self._itemsize)
            last = self._last
        block = (last[phase:] + last * (min(len(view), _FILL) // len(last) + 1))[: max(len(last), _FILL)]
        block = block[: len(block) // len(last) * len(last)]
        for at in range(0, len(view), len(block)):
            part = view[at : at + len(block)]
            part[:] = block[: len(part)]


def miscounted(wanted: int, got: int, values: NumberValues) -> MalformedError:
    """Return the error on a field that must list ``wanted`` elements, and does not."""
    reason = f"{values.field.name} lists {got:,} values; type and shape need {wanted:,}"
    return MalformedError(reason, wanted=wanted, got=got)


# -- Strings as TensorFlow stores them: all lengths as varints, in a bundle 4 bytes of a checksum, then all bytes


def string_list(content: Range, count: int, between: int = 0) -> Iterator[bytes]:
    """Yield ``count`` strings, with ``between`` bytes behind their lengths. Raises `MalformedError` if they are none.

    TensorFlow's C++ code writes this (tensorflow/core/platform/coding.cc, EncodeStringList; tensor_bundle.cc).
    """
    pos = strings_begin(content, count, between)
    for length, _ in lengths_in(content, count):
        yield content.data.read_exact(pos, length)
        pos += length


def strings_begin(content: Range, count: int, between: int) -> int:
    """Return where the bytes of the strings begin. Raises `MalformedError` if they are not those of the lengths.

    The lengths are read again for the strings, and never held: there may be as many as bytes.
    """
    pos, total = content.start, 0
    for length, behind in lengths_in(content, count):
        pos, total = behind, total + length
    if pos + between + total != content.end:
        reason, got = "the strings do not fill their bytes", content.end - pos - between
        raise MalformedError(reason, offset=pos, wanted=total, got=got, source=content.data.name)
    return pos + between


def lengths_in(content: Range, count: int) -> Iterator[tuple[int, int]]:
    """Yield ``count`` lengths, with where the next one, or the checksum, begins. Raises `MalformedError`."""
    pos = content.start
    stored = chain.from_iterable(blocks(content.data.read_exact, pos, content.end, _BLOCK))
    for _ in range(count):
        value = shift = 0
        for byte in stored:
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise MalformedError("the length of a string is not valid", offset=pos)
        else:
            raise MalformedError("the lengths of the strings end early", offset=pos)
        yield value, pos


def texts(message: Message, number: int, count: int) -> Generator[bytes]:
    """Yield ``count`` values of a repeated bytes field; the last one repeats, and without values all are empty.

    Raises `EndOfDataError` if the file ends earlier.
    """
    last, given = b"", 0
    for scan, _, found in message.occurrences(number, "strings are in chunks of their own"):
        if given >= count:
            return
        if found.end > scan.part.end:
            raise EndOfDataError("the string ends early", offset=found.start, source=scan.part.data.name)
        last = scan.part.data.read_exact(found.start, found.end - found.start)
        given += 1
        yield last
    if message.problem is not None:
        raise EndOfDataError(message.problem.reason, offset=message.problem.offset, wanted=count, got=given)
    for _ in range(count - given):
        yield last


# -- A tensor of a message: its bytes as `Tensor` has them, its texts, and what becomes known of both later ------------

# Statuses that doubts about the bytes do not change.
_SURE: Final = (Status.DAMAGED, Status.MISSING)


class ProtoTensor(TextTensor):
    """A tensor of a message of TensorFlow or ONNX.

    ``status``, ``verified`` and ``finding`` follow what becomes known about its bytes (``parts``): a checksum that
    fails later makes the tensor DAMAGED then.
    """

    __slots__ = ("_maker", "_parts")

    _parts: tuple[Range, ...]  # the bytes that it was made from
    _maker: TensorMaker | None

    @property
    def _why_suspect(self) -> str | None:
        """Return why its bytes may be wrong though they can be read."""
        maker = self._maker
        return None if maker is None else maker.make.why_suspect(self._parts)

    @property
    def status(self) -> Status:
        """Status as far as is known."""
        status = super().status
        return status if status in _SURE or not self._why_suspect else Status.DAMAGED

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
        if reason is None or self._maker is None or self._status in _SURE:
            return super().finding
        return self._maker.finding_on(self.name, "hash", reason)

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
                self._finding = self._maker.finding_on(self.name, "malformed", reason)
                self._maker.owner.note_damage()
            self._refuse_if_not_whole()
            raise


_MAX_ELEMENTS: Final = (1 << 63) - 1 >> 5


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

    def quick(self, name: str, pieces: Sequence[Piece], near: WireWindow) -> ProtoTensor | None:
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

    def tensor(self, name: str, pieces: Sequence[Piece], near: WireWindow | None = None) -> Tensor:
        """Return the tensor of a message made of ``pieces``; its status tells what is wrong."""
        found = self._made(name, pieces, near)
        if self.owner.holes and found.status is COMPLETE:
            found.unwritten_nbytes = self.owner.unwritten(found)[1]
        return found

    def _made(self, name: str, pieces: Sequence[Piece], near: WireWindow | None) -> ProtoTensor:
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
            found._maker, found._parts = self, tuple(parts)
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
            status=COMPLETE if problem is None else problem.status,
            finding=None if problem is None else self.finding(name, problem, problem.status),
            content=content,
            owner=self.owner,
        )
        made._maker, made._parts, made._listing = None, (), None
        return made

    def missing(self, name: str, problem: Problem, stored_dtype: str = "") -> ProtoTensor:
        """Return a tensor without any readable bytes."""
        if is_cut(problem):
            problem = problem._replace(status=Status.MISSING)
        return self.new(name, None, UNKNOWN_SHAPE, (), stored_dtype, problem)

    def judge(self, made: ProtoTensor, problem: Problem, status: Status | None = None, *numbers: int | None) -> None:
        """Give a tensor the status of a problem, or ``status``, and the finding on it: bytes wanted, bytes there."""
        made.status = status or problem.status
        made.finding = self.finding(made.name, problem, made.status, *numbers)

    # -- elements ----------------------------------------------------------------------------------------------------

    def bytes_of(self, message: Message, number: int, label: str) -> Range | Problem | None:
        """Return where the value of a bytes field is; None if it is not set."""
        found = message.last(number)
        if found is None:
            return None
        if not isinstance(found, OverlayField):
            part, at = found
            status, finding = self.make.overshoot(part.part, at, label)
            if finding is not None and status is not Status.TRUNCATED:
                return Problem(status, finding.reason, finding.offset)
            return part.part.data.range(at.start, at.end)
        chunk = next(reversed(found.whole(scalar=True)), None)
        if isinstance(chunk, Lost):
            return problem_of_lost(chunk)
        if not isinstance(chunk, Range):
            return Problem(Status.DAMAGED, f"no chunk holds a value of {label}")
        if isinstance(chunk, ChunkRange) and (wrong := chunk.why_not(message=False)) is not None:
            return Problem(Status.DAMAGED, wrong)
        return chunk

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
        for scan, slot in message.runs(number):
            if slot.count:
                begin = slot.offsets[0]
                end = min(scan.last(number, message.window(scan)).end, scan.part.end)
                spans += self.spans(scan.part.data.range(begin, max(begin, end)))
                count += slot.count
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

    def listed(
        self, name: str, message: Message, values: NumberValues, dtype: DType, shape: tuple[int, ...], stored: str
    ) -> ProtoTensor:
        """Return the tensor of numbers that a field lists, which must be as many as type and shape need."""
        made = self.new(name, dtype, shape, (), stored)
        size = dtype.stored_nbytes(made.size)
        unit = size if not dtype.packed and not made.size else dtype.itemsize
        count = size // unit if unit else 0
        problem = message.problem
        if self.as_stored(made, values, count):
            return made
        cut = problem is not None or values.cut
        listed = values.count if values.counted or values.cut else None
        self.list_values(made, dtype, values, dtype.itemsize, whole=not cut, exact=True)
        if cut:
            problem = problem or Problem(Status.TRUNCATED, "the file ends inside its values")
            there = values.count
            if made.size or problem.is_damage:
                self.judge(made, problem, cut_status(there, damaged=problem.is_damage), count, there)
        elif listed is not None and (listed != count or values.extra_words):
            reason = f"{values.field.name} lists {listed:,} values; type and shape need {count:,}"
            self.judge(made, Problem(Status.DAMAGED, reason), None, count, listed)
        return made

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

    def finding_on(self, name: str, code: str, reason: str, **more: Any) -> Finding:
        """Return a finding on a tensor; ``more`` as in `pparse.findings.Finding`."""
        return Finding(code, reason, path=name, source=self.extraction.name, **more)

    def finding(self, name: str, problem: Problem, status: Status, wanted: Any = None, got: Any = None) -> Finding:
        """Return the finding on a tensor that has a problem."""
        told = {"path": name, "source": self.extraction.name, "offset": problem.offset, "wanted": wanted, "got": got}
        return finding_by_status(status, problem.reason, "hash" if problem.contradicted else "", **told)

    def warning(self, code: str, reason: str, name: str, wanted: int, got: int) -> Finding:
        """Return a warning on a tensor."""
        return self.finding_on(name, code, reason, severity=Severity.WARNING, wanted=wanted, got=got)


def is_cut(problem: Problem | None) -> TypeGuard[Problem]:
    """Return whether a problem is that bytes are not there."""
    return problem is not None and problem.status in ENDS_EARLY


def has_too_many(shape: Sequence[int]) -> bool:
    """Return whether a shape has more elements than any file: products beyond 64 bits, dimensions beside a 0 too."""
    return max((prod(shape), *shape)) > _MAX_ELEMENTS
