"""The records of one chunk. `ChunkRecords` gives each by itself, as a `Range`, whatever the size of the chunk.

The data of a simple chunk are ``u8 compression | varint64 n | n bytes: part with the sizes | rest: part with the
values``. `decode_simple` decodes one that fits in memory. `SimpleRecords` opens one of any size: places of records are
computed from the sizes if nothing is compressed, else they are ranges of a decompressed stream. A transposed chunk
(`pparse.riegeli.transposed`) is decoded as a whole.

`RecordPosition` is where a record is in a file, `SkippedRegion` what reading left out.
"""

from __future__ import annotations

from array import array
from functools import total_ordering
from itertools import accumulate
from operator import index

from pparse.data.base import blocks
from pparse.data.spliced import DerivedData
from pparse.errors import EndOfDataError, GapError, LimitError, MalformedError, PparseError
from pparse.kernels.varint import decode_varints, encode_varint, encode_varints
from pparse.lazy import ByValue
from pparse.locking import RLock
from pparse.riegeli.chunks import MAX_POSITION, METADATA, SIMPLE, TRANSPOSED, Chunk, ChunkData
from pparse.riegeli.errors import BoundsError, InvalidArgumentError
from pparse.riegeli.parts import NONE, codec_of, read_part, read_size, view_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.compressed.env import DecodeEnv
    from pparse.data.base import Data, Range
    from pparse.limits import Charge, MemoryBudget
    from pparse.riegeli.chunks import ChunkHeader
    from pparse.riegeli.parts import PartCompressor
    from pparse.riegeli.source import Source
    from pparse.riegeli.verdicts import Verdicts


@total_ordering
class RecordPosition(ByValue, by=("chunk_begin", "record_index")):
    """The position of a record: offset of its chunk, and index in the chunk. Immutable, ordered and hashable.

    Raise `BoundsError` (an OverflowError) if no file can have such a position.
    """

    __slots__ = ("_chunk_begin", "_record_index")

    def __init__(self, chunk_begin: int, record_index: int = 0) -> None:
        chunk_begin, record_index = index(chunk_begin), index(record_index)
        if chunk_begin < 0 or record_index < 0 or chunk_begin + record_index > MAX_POSITION:
            raise BoundsError(f"not a record position: {chunk_begin}/{record_index}")
        self._chunk_begin = chunk_begin
        self._record_index = record_index

    @property
    def chunk_begin(self) -> int:
        """File offset of the chunk."""
        return self._chunk_begin

    @property
    def record_index(self) -> int:
        """Index of the record within its chunk."""
        return self._record_index

    @property
    def numeric(self) -> int:
        """The sum of chunk offset and index: unique, and ascending in a valid file."""
        return self._chunk_begin + self._record_index

    @classmethod
    def from_str(cls, serialized: str) -> RecordPosition:
        """Parse ``"begin/index"``. Blanks around it and a plus sign are allowed, as in the reference."""
        begin, slash, record_index = serialized.partition("/")
        if not slash:
            raise InvalidArgumentError(f"not a record position: {serialized!r}")
        return cls(_decimal(begin, serialized), _decimal(record_index, serialized))

    def to_bytes(self) -> bytes:
        """Return the binary form: two ordered varints, which sort as the positions do."""
        return _ordered_varint(self._chunk_begin) + _ordered_varint(self._record_index)

    @classmethod
    def from_bytes(cls, serialized: bytes) -> RecordPosition:
        """Parse the binary form, or the older form of two big-endian 64-bit numbers."""
        begin, at = _read_ordered(serialized, 0)
        if at is not None:
            record_index, end = _read_ordered(serialized, at)
            if end == len(serialized):
                return cls(begin, record_index)
        if len(serialized) == 16:
            return cls(int.from_bytes(serialized[:8], "big"), int.from_bytes(serialized[8:], "big"))
        raise InvalidArgumentError(f"not a record position: {serialized.hex()}")

    def __str__(self) -> str:
        return f"{self._chunk_begin}/{self._record_index}"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, RecordPosition):
            return NotImplemented
        return (self._chunk_begin, self._record_index) < (other._chunk_begin, other._record_index)


class SkippedRegion(ByValue, by=("begin", "end", "message")):
    """A region ``[begin, end)`` of the file that reading skipped, and why.

    ``begin`` and ``end`` are file offsets, or numeric positions of records where single records were skipped.
    """

    __slots__ = ("_begin", "_end", "_message")

    def __init__(self, begin: int, end: int, message: str) -> None:
        self._begin = index(begin)
        self._end = index(end)
        self._message = message

    @property
    def begin(self) -> int:
        """Where the region begins."""
        return self._begin

    @property
    def end(self) -> int:
        """Where reading continued."""
        return self._end

    @property
    def message(self) -> str:
        """Why it was skipped."""
        return self._message

    @property
    def length(self) -> int:
        """Bytes in the region."""
        return self._end - self._begin

    def __str__(self) -> str:
        return f"[{self._begin}..{self._end}): {self._message}"


def _decimal(text: str, whole: str) -> int:
    # The reference strips ASCII blanks and takes a leading plus sign (absl::SimpleAtoi).
    digits = text.strip(" \t\n\v\f\r").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > 20:
        raise InvalidArgumentError(f"not a record position: {whole!r}")
    return int(digits)


def _ordered_varint(value: int) -> bytes:
    length = next((n for n in range(1, 9) if value < 1 << 7 * n), 9)
    if length == 9:
        return b"\xff" + value.to_bytes(8, "big")
    return (value | (0xFF00 >> (length - 1) & 0xFF) << 8 * (length - 1)).to_bytes(length, "big")


def _read_ordered(raw: bytes, at: int) -> tuple[int, int | None]:
    """Return a value and where it ends; None as the end if this is not the shortest form of a value."""
    if at >= len(raw):
        return 0, None
    first = raw[at]
    length = 9 - (first ^ 0xFF).bit_length()  # 1 + the number of leading one bits
    end = at + length
    if end > len(raw):
        return 0, None
    value = int.from_bytes(raw[at:end], "big") & ((1 << 7 * length) - 1 if length < 9 else MAX_POSITION)
    shortest = length == 1 or value >= 1 << 7 * (length - 1)
    return value, end if shortest else None


MAX_VARINT: Final = 10
# From here on, cutting records out one by one costs less than copying the chunk first.
_LARGE_RECORD: Final = 4 << 10
_STEP: Final = 256 << 10
# A chunk that declares more than so many times its own bytes is tested before it is believed: it is decoded
# up to this fraction of the budget, which takes so many bytes of memory for each.
_PLAUSIBLE: Final = 64
_TRIAL: Final = 64
_TRIAL_COST: Final = 24


class ChunkRecords:
    """Records that lie one after the other in ``values``, from offset ``values_at`` on.

    `count` is the number of records whose size is known. If the chunk is cut, that is fewer than the chunk has.
    """

    stored = False

    def __init__(self, values: Data, ends: array[int]) -> None:
        self.values = values
        """The decoded records."""
        self.values_at = 0
        """Offset of the first record in `values`."""
        self.error: PparseError | None = None
        """Why records are missing; None if the chunk is whole."""
        self._ends = ends
        self._extent: int | None = None

    @property
    def count(self) -> int:
        """Number of records whose size is known."""
        return len(self._ends)

    @property
    def total(self) -> int:
        """Bytes of all records whose size is known, together."""
        return self._ends[-1] if self._ends else 0

    def range(self, index: int) -> Range:
        """Return the record as a `Range`, whose bytes are read on demand."""
        start = self.values_at + (self._ends[index - 1] if index else 0)
        return self.values.range(start, self.values_at + self._ends[index])

    def read(self, index: int) -> bytes:
        """Return a record as a whole.

        Raise `EndOfDataError` if the chunk is cut before the end of the record, `InvalidArgumentError` if it is
        damaged before.
        """
        part = self.range(index)
        chunk = part.data.known(part.start, len(part)) if len(part) else b""
        if len(chunk) < len(part):
            raise self._why(part.start + len(chunk), len(part), len(chunk))
        return chunk

    def _why(self, at: int, wanted: int, got: int) -> PparseError:
        error = self.values.error
        if isinstance(error, MalformedError):
            return InvalidArgumentError(f"the values are damaged: {error.reason}", wanted=wanted, got=got)
        return EndOfDataError("the chunk ends here", offset=at, wanted=wanted, got=got, source=self.values.name)

    def extent(self) -> int:
        """Return the offset in ``values`` up to which bytes can be decoded; decodes all of them, a block at a time."""
        values = self.values
        end = self.values_at + self.total
        if values.size is not None and not values.gaps and self.stored:
            return min(end, values.size)
        if self._extent is None:
            self._extent = self.values_at + sum(map(len, blocks(values.known, self.values_at, end, _STEP)))
        return self._extent

    def conclude(self, *, whole: bool) -> None:
        """Decode to the end. Raise `InvalidArgumentError` if the stream of values turns out to be invalid.

        ``whole`` says that all bytes of the chunk are there: a stream without its end is then invalid, too.
        """
        self.values.verify()
        error = self.values.error
        if isinstance(error, MalformedError) or (whole and isinstance(error, EndOfDataError)):
            raise InvalidArgumentError(f"the values are damaged: {error.reason}")


class SimpleRecords(ChunkRecords):
    """The records of a simple chunk, opened one by one; ``data`` may end early, or be damaged.

    The offsets (8 bytes a record) and the decoder's window are charged to the budget.
    """

    def __init__(self, data: Data, header: ChunkHeader, env: DecodeEnv) -> None:
        super().__init__(data, array("Q"))
        self.header = header
        """The chunk header."""
        self._env = env
        self._data = data
        size = data.size or 0
        self._charge = env.budget.charge(0, "the offsets of a chunk's records")
        self.kind, begin, middle = _split(data.pread(0, 1 + MAX_VARINT), header.data_size)
        self.stored = self.kind == NONE
        """Whether the values are not compressed."""
        if header.num_records:
            self._read_sizes(begin, min(middle, size))
        total = self.total
        if self.error is None and total != header.decoded_data_size:
            self.error = _wrong_total(total, header)
        if self.error is None and self.stored and header.data_size - middle != total:
            self.error = _wrong_size(header.data_size - middle, total)
        self.values, self.values_at = self._part(middle, header.data_size, header.decoded_data_size)

    def _part(self, begin: int, end: int, size: int | None) -> tuple[Data, int]:
        """Return the decompressed bytes of a part, as a Data and an offset in it."""
        codec = codec_of(self.kind)
        if codec is None:
            return self._data, begin
        head = self._data.pread(begin, min(MAX_VARINT, end - begin)) if begin < (self._data.size or 0) else b""
        try:
            _, after = read_size(head)
        except InvalidArgumentError as error:
            error.offset = begin
            self.error = self.error or error
            after = len(head)
        part = self._data.range(min(begin + after, end), end)
        return self._env.inflate(part, codec, size=size, name=f"{self._data.name} values"), 0

    def _read_small_sizes(self, begin: int, end: int, most: int) -> bool:
        """Decode the sizes at once; False if they are cut or damaged, and are better streamed."""
        try:
            sizes = _sizes(read_part(self.kind, self._data.read_exact(begin, end - begin), most), most // MAX_VARINT)
            self._charge.resize(8 * len(sizes))
            self._ends.extend(accumulate(sizes))
        except (EndOfDataError, GapError, MalformedError, OverflowError):
            self._ends = array("Q")
            return False
        return True

    def _read_sizes(self, begin: int, end: int) -> None:
        count = self.header.num_records
        # A few sizes are decoded at once: a streaming decoder would allocate its whole window for them.
        most = count * MAX_VARINT
        small = self.kind != NONE and max(most, end - begin) <= self._env.budget.limit // 16
        if small and self._read_small_sizes(begin, end, most):
            return
        raw, at = self._part(begin, end, None)
        reader = raw.range(at, end) if raw is self._data else raw.open(at)
        rest, total, more = b"", 0, False
        try:
            while len(self._ends) < count:
                block = rest + reader.read(1 << 16)
                if len(block) == len(rest):
                    raise EndOfDataError("the record sizes end early", wanted=count, got=len(self._ends))
                cut = len(block)
                while cut and block[cut - 1] >= 0x80 and len(block) - cut < MAX_VARINT:
                    cut -= 1
                rest = block[cut:]
                sizes = decode_varints(block[:cut], count - len(self._ends) + 1)
                more = len(self._ends) + len(sizes) > count or bool(rest)
                self._charge.resize(8 * (len(self._ends) + len(sizes)))
                for size in sizes[: count - len(self._ends)]:
                    total += size
                    if total > self.header.decoded_data_size:
                        raise _wrong_total(total, self.header)
                    self._ends.append(total)
            if more or reader.read(1):
                raise InvalidArgumentError("the number of sizes is not the number of records", wanted=count)
            if isinstance(raw.error, EndOfDataError | MalformedError):
                raise raw.error  # all sizes were decoded, but the stream is incomplete
        except (EndOfDataError, GapError, MalformedError) as error:
            self.error = raw.error or error
        finally:
            if raw is not self._data:
                raw.close()


def decode_simple(data: bytes | memoryview, header: ChunkHeader) -> list[bytes]:
    """Return the records of a simple chunk. Raise `InvalidArgumentError`, `UnimplementedError`."""
    kind, begin, middle = _split(bytes(data[: 1 + MAX_VARINT]), len(data))
    packed = bytes(data[begin:middle])
    if kind != NONE:
        packed = read_part(kind, packed, header.num_records * MAX_VARINT)
    ends = list(accumulate(_sizes(packed, header.num_records)))
    total = ends[-1] if ends else 0
    if total != header.decoded_data_size:
        raise _wrong_total(total, header)
    values = view_part(kind, memoryview(data)[middle:], len(data) if kind == NONE else total)
    if len(values) != total:
        raise _wrong_size(len(values), total)
    if total < _LARGE_RECORD * len(ends):
        values = bytes(values)
    starts = [0, *ends]
    if isinstance(values, memoryview):  # large records, cut out without copying the chunk first
        return [bytes(values[a:b]) for a, b in zip(starts, ends)]  # noqa: B905 -- one start too many, on purpose
    return [values[a:b] for a, b in zip(starts, ends)]  # noqa: B905


def encode_simple(records: Sequence[bytes], compressor: PartCompressor) -> bytes:
    """Return the data of a simple chunk that holds ``records``."""
    sizes = compressor.part(encode_varints([len(record) for record in records]))
    values = compressor.part(b"".join(records))
    return b"".join((bytes((compressor.kind,)), encode_varint(len(sizes)), sizes, values))


def _split(head: bytes, length: int) -> tuple[int, int, int]:
    """Return the compression, and where the sizes and the values begin, from the chunk's first 11 bytes."""
    if not length:
        raise InvalidArgumentError("the chunk has no compression type")
    if not head:
        raise EndOfDataError("the chunk's data are missing", wanted=length, got=0)
    kind = head[0]
    codec_of(kind)  # raises if it is unknown
    size, at = read_size(head, 1, "the size of the record sizes")
    if size > length - at:
        raise InvalidArgumentError("the record sizes extend beyond the chunk", wanted=size, got=length - at)
    return kind, at, at + size


def _sizes(raw: bytes, count: int) -> list[int]:
    try:
        sizes = decode_varints(raw, count)
    except MalformedError as error:
        raise InvalidArgumentError(f"the record sizes are invalid: {error}") from error
    if len(sizes) != count:
        raise InvalidArgumentError("the number of sizes is not the number of records", wanted=count, got=len(sizes))
    return sizes


def _wrong_total(total: int, header: ChunkHeader) -> InvalidArgumentError:
    reason = "the sizes of the records do not add up to the decoded size"
    return InvalidArgumentError(reason, wanted=header.decoded_data_size, got=total)


def _wrong_size(got: int, total: int) -> InvalidArgumentError:
    return InvalidArgumentError("the length of the values is not the sum of the record sizes", wanted=total, got=got)


class _Decoded(DerivedData):
    """The records of a transposed chunk, which is decoded as a whole, as one Data.

    They are dropped when others need the memory, and decoded again on demand. Raise `LimitError` if it does not fit in
    the budget, `InvalidArgumentError` or `UnimplementedError` if it is invalid.
    """

    copies = False

    def __init__(self, packed: ChunkData, chunk: Chunk, budget: MemoryBudget) -> None:
        super().__init__(f"{packed.name} records", None, packed.stats)
        self._packed = packed
        self.sources = (packed,)
        self._chunk = chunk
        self._budget = budget
        self._lock = RLock()
        self._content: bytes | None = None  # the budget may drop it at any time
        self._charge: Charge | None = None
        self.ends = array("Q")
        self.size = len(self._decode())

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return all data of the chunk: each record may depend on any byte of them."""
        return ((self._packed, 0, self._chunk.header.data_size),)

    def _decode(self) -> bytes:
        from pparse.riegeli.transposed import decode_transposed

        header = self._chunk.header
        check_room(self._chunk, self._packed, self._budget)
        with self._budget.charge(decoding_weight(self._chunk), "decoding a transposed chunk"):
            packed = self._packed.read_exact(0, header.data_size)
            records = decode_transposed(packed, header.num_records, header.decoded_data_size)
            self.ends = array("Q", accumulate(map(len, records)))
            content = b"".join(records)
        self._charge = self._budget.charge(len(content), "the records of a chunk", self._drop)
        self._content = content
        return content

    def _drop(self) -> None:
        self._content = None

    def _pread(self, offset: int, length: int) -> bytes:
        with self._lock:
            content = self._content
            content = self._decode() if content is None else content
        return content[offset : offset + length]


def decoding_weight(chunk: Chunk) -> int:
    """Return the memory that decoding a transposed chunk takes, in bytes: its data, the pieces, and the records."""
    header = chunk.header
    return int(2 * (header.data_size + header.decoded_data_size) + 100 * header.num_records)


def check_room(chunk: Chunk, packed: ChunkData, budget: MemoryBudget) -> None:
    """Raise `LimitError` if a transposed chunk cannot be decoded within the budget.

    A chunk that declares more than its bytes can hold raises `InvalidArgumentError` instead.
    """
    wanted = decoding_weight(chunk)
    if budget.fits(wanted):
        return
    header = chunk.header
    most = budget.limit // _TRIAL
    weight = 2 * header.data_size + _TRIAL_COST * most
    if max(header.decoded_data_size, header.num_records) > _PLAUSIBLE * header.data_size and budget.fits(weight):
        from pparse.riegeli.transposed import disprove

        with budget.charge(weight, "checking a transposed chunk"):
            data = packed.read_exact(0, header.data_size)
            count = 1 if header.chunk_type == METADATA else header.num_records
            error = disprove(data, count, header.decoded_data_size, most)
        if error is not None:
            error.offset = chunk.begin
            raise error
    raise LimitError(
        f"the transposed chunk at {chunk.begin} must be decoded as a whole",
        option=f"--budget {-(-wanted >> 20) + 1}MiB",
        wanted=wanted,
        got=budget.limit,
        offset=chunk.begin,
    )


def open_records(source: Source, chunk: Chunk, env: DecodeEnv, verdicts: Verdicts | None = None) -> ChunkRecords | None:
    """Open the records of a chunk; None if chunks of its type have none. The hash of its data is not checked.

    The data of the records report what ``verdicts`` know, now or later (`pparse.data.base.Data.why_suspect`).
    """
    data = ChunkData(source, chunk, verdicts)
    if chunk.header.chunk_type == SIMPLE:
        return SimpleRecords(data, chunk.header, env)
    if chunk.header.chunk_type != TRANSPOSED:
        return None
    decoded = _Decoded(data, chunk, env.budget)
    return ChunkRecords(decoded, decoded.ends)
