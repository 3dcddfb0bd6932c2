"""TensorProto of ONNX: from the message to a `Tensor`, without reading its elements.

The rules (onnx/onnx-ml.proto; onnx.numpy_helper.to_array; docs/ExternalData.md): with ``data_location`` EXTERNAL the
bytes are in a file beside the model. Otherwise ``raw_data`` counts if it is set: little-endian, types below 8 bits
packed with the first element in the low bits. Otherwise the field of the type lists the elements, 2- and 4-bit ones by
the byte, 16- and 8-bit floats as their bits. The number of elements must be that of the shape: nothing is repeated or
left out. Strings are never raw. Tensors in parts (``segment``) are refused by every reader, and here.
"""

from __future__ import annotations

from collections import namedtuple
from functools import partial
from itertools import islice
from math import prod

from pparse.data.base import blocks
from pparse.data.range_status import cut_status
from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.display.text import shorten
from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.findings import Finding, Status
from pparse.kernels.wire import LEN, PADDING, read_length, read_value
from pparse.parsers.onnx.parser import ELEMENT_TYPES, STRING, STRING_DATA
from pparse.parsers.protobuf.message import Message, Problem
from pparse.protobuf.schema import signed
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import UNKNOWN_SHAPE, Span
from pparse.viewers.tensor_proto.maker import NumberValues, TensorMaker, has_too_many, is_cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.document.folder import Folder
    from pparse.parsers.onnx.parser import ElementType
    from pparse.parsers.protobuf.entries import ValueEntries
    from pparse.protobuf.schema import Schema
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.tensor_proto.maker import ProtoTensor

# -- the files beside a model that hold bytes of its tensors (onnx: docs/ExternalData.md, ExternalDataSecurity.md) -----

# A location is a relative path with ``/`` that stays in the folder of the model. Symbolic links are followed, since
# download caches consist of them, but not out of that folder, or the one where the model really is: the name of a
# file that a hostile model chooses must not lead to the rest of the disk. A file that is not in the first folder is
# looked for in the second. Nothing of a file is read before a tensor is.

# The keys (onnx/external_data_helper.py, ExternalDataInfo); "basepath" is what some writers leave behind, and
# onnxruntime adds "prepacked_0" and so on.
_LOCATION, _OFFSET, _LENGTH, _CHECKSUM = "location", "offset", "length", "checksum"
_KEYS: Final = (_LOCATION, _OFFSET, _LENGTH, _CHECKSUM, "basepath")
_PACKED: Final = "prepacked_"
_DIGITS: Final = 19
_FARTHEST: Final = 1 << 62
_BLOCK: Final = 1 << 20
_BEHIND_GAP: Final = "an unknown number of bytes is lost before it, so its bytes may be those of another place"


class PlacedOutside(namedtuple("PlacedOutside", "span status reason got")):
    """Where the bytes of a tensor are in another file.

    ``reason`` is what is wrong or odd, in words; empty: nothing. ``got`` is how many of the bytes are there, or how
    many the file states.
    """

    __slots__ = ()


class ExternalFile:
    """One file: what is in it, or why it cannot be read; and what its tensors need of it."""

    __slots__ = ("checksums", "content", "problem", "wanted")

    def __init__(self, content: Extraction | None, problem: Problem | None) -> None:
        self.content = content
        self.problem = problem
        self.wanted = 0
        """Where the last tensor in it ends."""
        self.checksums: set[str] = set()
        """Its SHA-1, as the tensors state it."""

    @property
    def lacks(self) -> bool:
        """Whether it is not there, or lacks bytes of a tensor; what may not be read at all, nobody has to fetch."""
        if self.problem is not None and self.problem.is_damage:
            return False
        return self.content is None or self.there < self.wanted

    @property
    def loose_from(self) -> int | None:
        """From where on in its data the places of bytes are not known, since nobody knows how many are lost there."""
        if self.content is None:
            return None
        found = self.content.data.loose_gap(self.content.start)
        return None if found is None or found >= self.content.find_end() else found

    @property
    def is_longer(self) -> bool:
        """Whether more follows the last tensor in it that is known so far, and that is no padding."""
        content = self.content
        if content is None or self.there <= self.wanted:
            return False
        return has_odd_tail(content.data, content.start, content.start + self.wanted, content.start + self.there)

    @property
    def there(self) -> int:
        """How many bytes it has; 0 if it cannot be read."""
        return 0 if self.content is None else self.content.find_end() - self.content.start


class ExternalFiles:
    """The files with external data of one model, each opened when the first tensor in it is listed."""

    def __init__(self, extraction: Extraction, learn: Callable[[], bool]) -> None:
        """``learn`` lists all tensors of the model, and returns whether none of them can be lost."""
        self._extraction = extraction
        self._files: dict[str, ExternalFile] = {}
        self._learn = learn
        self._are_known: bool | None = None  # None: their tensors were not all listed yet

    def __iter__(self) -> Iterator[tuple[str, ExternalFile]]:
        return iter(self._files.items())

    def __bool__(self) -> bool:
        return bool(self._files)

    def path_of(self, name: str) -> str:
        """Return the path of a file beside the model, as the caller who named the model would write it."""
        return name if self._folder is None else self._folder.path_of(name)

    def find(self, pairs: Mapping[str, str], size: int) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a tensor are that ``pairs`` place."""
        location = pairs.get(_LOCATION, "")
        if not location:
            return Problem(Status.DAMAGED, "its bytes are in another file, and no location is given")
        place: list[int | None] = []
        for key in (_OFFSET, _LENGTH):
            text = pairs.get(key)
            if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
                return Problem(Status.DAMAGED, f"the {key} of its external data is {text[:40]!r}, not a number")
            place.append(None if text is None else int(text))
        offset, length = place[0] or 0, place[1]
        if offset + size >= _FARTHEST:
            return Problem(Status.DAMAGED, f"its external data begin at byte {offset:,}, where no file can have any")
        if length is not None and length != size:
            reason = f"its external data have {length:,} bytes; type and shape need {size:,}"
            return Problem(Status.DAMAGED, reason, offset)
        file = self._file(location)
        checksum = pairs.get(_CHECKSUM)
        if checksum and len(file.checksums) < 2:
            file.checksums.add(checksum.lower())
        file.wanted = max(file.wanted, offset + size)
        content = file.content
        if content is None:
            return file.problem or Problem(Status.MISSING, f"its bytes are in {location}, which cannot be read")
        placed = self._placed(content, location, offset, length, size)
        odd = next((key for key in pairs if key not in _KEYS and not key.startswith(_PACKED)), None)
        if odd is not None and place[0] is None and size and placed.status is Status.COMPLETE:
            reason = f"its external data have {shorten(odd, 40)!r}, which no reader knows, and no offset"
            return PlacedOutside(placed.span, Status.DAMAGED, reason, size)
        return placed

    def _placed(self, content: Extraction, location: str, offset: int, length: int | None, size: int) -> PlacedOutside:
        there = content.find_end() - content.start
        folder = self._extraction.folder
        path = content.path if folder is None else folder.path_of(location)
        span = Span(content.data, content.start + offset, size, path, content.end)
        status = status_by_place(offset, offset + size, there)
        if status is not Status.COMPLETE:
            got = max(0, min(size, there - offset))
            reason = f"its bytes end at {offset + size:,} of {location}, which has {there:,} bytes"
            return PlacedOutside(span, status, reason, got)
        if length is None and there - offset != size:
            reason = f"no length is given, and {there - offset:,} bytes of {location} follow its offset: onnx takes all"
            return PlacedOutside(span, status, reason, there - offset)
        loose = self._files[location].loose_from
        if size and loose is not None and loose < span.offset + size:
            return PlacedOutside(span, Status.DAMAGED, _BEHIND_GAP, size)
        if size and self._has_grown(self._files[location]):
            return PlacedOutside(span, Status.DAMAGED, SHIFTED, size)
        return PlacedOutside(span, status, "", size)

    def _has_grown(self, file: ExternalFile) -> bool:
        """Say whether a file is longer than its tensors need, so that bytes may have been inserted anywhere in it.

        A checksum tells better, when it is compared.
        """
        if not file.is_longer or file.checksums:
            return False
        if self._are_known is None:
            self._are_known = False  # for those that are listed now
            self._are_known = self._learn()
        return self._are_known and file.is_longer

    # -- files ---------------------------------------------------------------------------------------------------------

    def _file(self, location: str) -> ExternalFile:
        file = self._files.get(location)
        if file is None:
            limits = self._extraction.session.limits
            limits.check("entries", len(self._files) + 1, "the number of files with external data")
            file = self._files[location] = self._opened(location)
        return file

    def _opened(self, location: str) -> ExternalFile:
        extraction = self._extraction
        name = "/".join(part for part in location.split("/") if part != ".") if "/" in location else location
        folder = self._folder
        try:
            if folder is not None and not folder.keeps(name, extraction.data.path):
                reason = f"its bytes are in {location}, a link that leads out of the model's folder: it is not followed"
                return ExternalFile(None, Problem(Status.DAMAGED, reason))
            return ExternalFile(self._entered(name), None)
        except PathError as error:
            return ExternalFile(None, Problem(Status.DAMAGED, f"its bytes are in {location!r}: {error.reason}"))
        except (SourceError, EndOfDataError) as error:
            what = "is not there" if is_absent(error) else f"cannot be read: {error.reason}"
            if folder is None:
                what = "is not known, as is where the model lies (folder=)"
            return ExternalFile(None, Problem(Status.MISSING, f"its bytes are in {location}, which {what}"))

    @property
    def _folder(self) -> Folder | None:
        """The folder of the model; also where a walk through an archive came to it: its bytes are not all in it."""
        found = self._extraction.folder
        origin = self._extraction.outermost.origin
        return found if found is not None or origin is None else origin[0].folder_of(origin[1])

    def _entered(self, name: str) -> Extraction:
        extraction = self._extraction
        folder = self._folder if extraction.folder is None else None
        if folder is None:
            try:
                found = extraction.sibling(name)
                found.find_end()  # a file is opened when it is asked
                return found
            except SourceError as error:
                own, path = extraction.folder, extraction.data.path
                folder = own.behind(path) if own is not None and path is not None and is_absent(error) else None
                if folder is None:
                    raise
        entered: Extraction = folder.enter(name, extraction)
        entered.refuse_placeholder()
        return entered

    def resolve(self, tensor: Tensor) -> None:
        """Compare the checksum of an archive for the file that has the bytes of a tensor, if that costs little."""
        for span in tensor.spans:
            for file in self._files.values():
                content = file.content
                if content is not None and content.data is span.data and content.start <= span.offset:
                    content.resolve()

    # -- what is wrong -------------------------------------------------------------------------------------------------

    def verify(self) -> Iterator[Finding]:
        """Compare the files with their checksums, also those of archives that they lie in; yield what is wrong."""
        from hashlib import sha1

        for location, file in self._files.items():
            content = file.content
            if content is None:
                continue
            if content.origin is not None and not content.proved:
                found = content.origin[0].verify_opened(content)
                content.proved = True
                if found is not None:
                    yield found
            if not file.checksums:
                continue
            digest = sha1(usedforsecurity=False)
            start, end = content.start, content.find_end()
            for block in blocks(content.data.read_exact, start, end, _BLOCK):
                content.session.check_cancelled()
                digest.update(block)
            if file.checksums == {digest.hexdigest()}:
                content.data.vouch(start, end)
                continue
            stated = " and ".join(sorted(file.checksums))
            reason = f"the SHA-1 of {location} is {digest.hexdigest()}; the model states {stated[:90]}"
            content.data.condemn(start, end, reason)
            yield Finding("hash", reason, source=content.path, offset=start, length=end - start)


def is_absent(error: Exception) -> bool:
    """Return whether an error means that there is no such file."""
    import errno

    return isinstance(error, SourceError) and error.errno == errno.ENOENT


# -- The message -------------------------------------------------------------------------------------------------------

DIMS, DATA_TYPE, SEGMENT, NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 3, 8, 9, 13, 14
EXTERNAL: Final = 1
"""The value of ``data_location`` for bytes in another file."""
PAYLOAD: Final = frozenset((4, 5, 6, 7, RAW_DATA, 10, 11, EXTERNAL_DATA, DATA_LOCATION))
"""The fields that hold the elements, or say where they are."""
_MAX_RANK: Final = 64  # of what is read quickly
_TAG_DIM, _TAG_TYPE = DIMS << 3, DATA_TYPE << 3
_TAG_NAME, _TAG_RAW = NAME << 3 | LEN, RAW_DATA << 3 | LEN


class OnnxMaker(TensorMaker):
    """Makes tensors from TensorProtos of one model."""

    def __init__(self, extraction: Extraction, make: ValueEntries, schema: Schema, owner: Any) -> None:
        super().__init__(extraction, make, schema.message("onnx.TensorProto"), owner)
        self.pair_type = schema.message("onnx.StringStringEntryProto")
        self.external = ExternalFiles(extraction, owner.knows_files)
        self._most_dims = extraction.session.limits.tensor_rank

    def of_head(self, shown: str, head: tuple[int, tuple[int, ...], str, int, int], part: Range) -> ProtoTensor | None:
        """Return the tensor of a plain TensorProto, of which ``head`` was read; None: look closer."""
        number, shape, _, start, length = head
        known = ELEMENT_TYPES.get(number)
        dtype = None if known is None else known.dtype
        if known is None or dtype is None or part.data is not self.extraction.data or not self._is_sure:
            return None
        is_odd = length != dtype.stored_nbytes(prod(shape)) or (not length and has_too_many(shape))
        if is_odd or len(shape) > self._most_dims:
            return None
        return self.new(shown, dtype, shape, (Span(part.data, part.start + start, length, self._path),), known.name)

    def read(self, name: str, message: Message) -> ProtoTensor:
        """Return the tensor of a TensorProto."""
        number = int(message.scalar(DATA_TYPE))
        known = ELEMENT_TYPES.get(number)
        stored = known.name if known is not None else f"type {number}"
        problem = message.problem
        if problem is not None and not number:
            return self.missing(name, problem)
        shape, wrong = self._shape(message)
        cut = wrong or (problem if DIMS not in message.fields else None)
        if is_cut(cut):
            return self.missing(name, cut, stored)  # the number of elements is unknown
        wrong = wrong or self._refused(message)
        if wrong is None and known is None:
            unknown = Problem(Status.UNSUPPORTED, f"its data_type is {number}, which onnx does not have")
            wrong = unknown if number else Problem(Status.DAMAGED, "it has no data_type")
        if wrong is not None or known is None:
            return self.new(name, known.dtype if known is not None else None, shape, (), stored, wrong)
        if message.scalar(DATA_LOCATION) in (EXTERNAL, "EXTERNAL"):
            return self._external(name, message, known, shape)
        if known.dtype is None:
            return self._text(name, message, shape)
        if RAW_DATA in message.fields:
            raw = self.bytes_of(message, RAW_DATA, "raw_data")
            if isinstance(raw, Problem):
                return self.new(name, known.dtype, shape, (), stored, raw)
            where = self.extraction.data.range(0, 0) if raw is None else raw
            made = self.of_bytes(name, message, known.dtype, shape, stored, where, "raw_data")
            if len(where) and problem is not None and made.is_complete:
                self.judge(made, problem)  # what would win over the data may be behind the cut
            return made
        return self._listed(name, message, known, shape)

    @staticmethod
    def _refused(message: Message) -> Problem | None:
        """Return why a whole TensorProto with a sound shape has no values; None if it has."""
        if SEGMENT in message.fields:
            return Problem(Status.UNSUPPORTED, "it is a segment of a larger tensor, which no reader puts together")
        location = message.scalar(DATA_LOCATION)
        if location in (0, EXTERNAL, "DEFAULT", "EXTERNAL"):
            return None
        return Problem(Status.DAMAGED, f"its data_location is {location}")

    def _shape(self, message: Message) -> tuple[tuple[int, ...], Problem | None]:
        """Return the shape, and what is wrong with it."""
        most = self._most_dims
        shape = tuple(islice(numbers(message, DIMS), most + 1))
        if len(shape) > most:
            return UNKNOWN_SHAPE, Problem(Status.UNSUPPORTED, f"the tensor has more than {most} dimensions")
        if min(shape, default=0) < 0:
            return shape, Problem(Status.DAMAGED, f"a dimension of the tensor is negative: {min(shape)}")
        if has_too_many(shape):
            return shape, Problem(Status.DAMAGED, "the shape has too many elements")
        return shape, None

    # -- elements that are listed --------------------------------------------------------------------------------------

    def _listed(self, name: str, message: Message, known: ElementType, shape: tuple[int, ...]) -> ProtoTensor:
        dtype = known.listed
        assert dtype is not None  # noqa: S101 -- of strings, `_text` makes the tensor
        values = NumberValues(message, self.type.fields[known.field], known.code, known.words)
        made = self.new(name, dtype, shape, (), known.name)
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

    def _text(self, name: str, message: Message, shape: tuple[int, ...]) -> ProtoTensor:
        spans, listed = self.text_places(message, STRING_DATA)
        made = self.new(name, None, shape, spans, ELEMENT_TYPES[STRING].name)
        self.list_texts(made, message, STRING_DATA)
        problem = message.problem
        if problem is not None:
            self.judge(made, problem, cut_status(spans, damaged=problem.is_damage))
        elif listed != made.size:
            reason = f"string_data lists {listed:,} strings; the shape needs {made.size:,}"
            self.judge(made, Problem(Status.DAMAGED, reason), None, made.size, listed)
        return made

    # -- elements in another file --------------------------------------------------------------------------------------

    def _external(self, name: str, message: Message, known: ElementType, shape: tuple[int, ...]) -> ProtoTensor:
        dtype = known.dtype
        wrong = partial(self.new, name, dtype, shape, (), known.name)
        problem = message.problem
        if problem is not None:
            return self.missing(name, problem, known.name) if is_cut(problem) else wrong(problem)
        if dtype is None:
            return wrong(Problem(Status.DAMAGED, "strings cannot be in another file"))
        pairs: dict[str, str] = {}
        for pieces in message.elements(EXTERNAL_DATA):
            pair = Message(self.make, pieces, self.pair_type, message.near)
            pairs[str(pair.scalar(1))] = str(pair.scalar(2))
        made = self.new(name, dtype, shape, (), known.name)
        size = dtype.stored_nbytes(made.size)
        found = self.external.find(pairs, size)
        if isinstance(found, Problem):
            if found.status is Status.MISSING:
                made.spans = (Span(None, 0, size, pairs.get("location", "")),)
                self.judge(made, found)
                return made
            return wrong(found)
        made.spans = (found.span,)
        made.status = found.status
        if found.reason:
            if found.status is Status.COMPLETE:
                made.finding = self.warning("external-data", found.reason, name, size, found.got)
            elif found.status is Status.DAMAGED:  # all of its bytes are there
                where: Any = {"source": self.extraction.name, "offset": found.span.offset}
                made.finding = Finding("shifted", found.reason, path=name, **where)
            else:
                self.judge(made, Problem(found.status, found.reason, found.span.offset), None, size, found.got)
        made.unwritten_nbytes = self.owner.unwritten(made)[1] if made.is_complete else 0
        return made


def numbers(message: Message, number: int) -> Iterator[int]:
    """Yield the values of a repeated int64 field, packed or not. Raises `MalformedError`, `EndOfDataError`."""
    for scan, window, at in message.occurrences(number):
        end = min(at.end, scan.part.end)
        raw = window.read(at.start, end) + PADDING
        pos, size = 0, end - at.start
        while pos < size:
            value, pos = read_value(raw, pos)
            yield signed(value, 64)


def read_head(raw: bytes, at: int, there: int, size: int) -> tuple[int, tuple[int, ...], str, int, int] | None:
    """Return the head of a TensorProto of ``size`` bytes at ``raw[at:]``, of which ``there`` were read (more follows).

    That is: its data_type, dimensions, name, where in the message its ``raw_data`` begin, and their length. None unless
    it consists of these, ``raw_data`` last, as onnx writes them.
    """
    shape: list[int] = []
    number = 0
    name = ""
    order, pos, stop = 0, at, at + there
    try:
        while pos < stop:
            tag, value = raw[pos], raw[pos + 1]
            pos += 2
            if value >= 0x80:
                if (byte := raw[pos]) < 0x80:
                    value += (byte << 7) - 0x80
                    pos += 1
                else:
                    value, pos = read_length(raw, pos - 1)
            if tag == _TAG_DIM and order <= _TAG_DIM:
                if value >> 40 or len(shape) >= _MAX_RANK:
                    return None
                shape.append(value)
            elif tag <= order:
                return None
            elif tag == _TAG_TYPE:
                number = value
            elif tag == _TAG_NAME:
                if pos + value > stop:
                    return None
                name = raw[pos : pos + value].decode()
                pos += value
            elif tag == _TAG_RAW:
                is_plain = pos <= stop and pos + value == at + size
                return (number, tuple(shape), name, pos - at, value) if is_plain else None
            else:
                return None
            order = tag
    except (ValueError, IndexError):  # MalformedError is one
        return None
    return None
