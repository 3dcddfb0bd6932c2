"""Simple chunks: records one after the other, preceded by their sizes. Both parts may be compressed.

Data: ``u8 compression | varint64 n | n bytes: part with the sizes | rest: part with the values``.

`decode_simple` decodes a chunk that fits in memory. `SimpleRecords` opens one of any size and returns each record as a
`Range`: computed from the sizes if nothing is compressed, else a range of a decompressed stream.
"""

from __future__ import annotations

from array import array
from itertools import accumulate

from pparse.errors import EndOfDataError, GapError, MalformedError, PparseError
from pparse.kernels.varint import decode_varints, encode_varint, encode_varints, read_varint
from pparse.riegeli.errors import InvalidArgumentError
from pparse.riegeli.parts import NONE, codec_of, read_part
from pparse.riegeli.records import ChunkRecords

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.data.base import Data
    from pparse.data.scratch import Scratch
    from pparse.limits import Limits
    from pparse.riegeli.layout import ChunkHeader
    from pparse.riegeli.parts import PartCompressor

MAX_VARINT: Final = 10
# From here on, cutting records out one by one costs less than copying the chunk first.
_LARGE_RECORD: Final = 4 << 10


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
    values: bytes | memoryview
    if kind != NONE:
        values = read_part(kind, memoryview(data)[middle:], total)
    else:
        values = bytes(data[middle:]) if total < _LARGE_RECORD * len(ends) else memoryview(data)[middle:]
    if len(values) != total:
        raise _wrong_size(len(values), total)
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
    size, at = _varint(head, 1, "the size of the record sizes")
    if size > length - at:
        raise InvalidArgumentError("the record sizes extend beyond the chunk", wanted=size, got=length - at)
    return kind, at, at + size


def _varint(head: bytes, at: int, what: str) -> tuple[int, int]:
    try:
        return read_varint(head, at, len(head))
    except MalformedError as error:
        raise InvalidArgumentError(f"{what} is not a valid varint") from error


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


class SimpleRecords(ChunkRecords):
    """The records of a simple chunk, opened one by one; ``data`` may end early, or be damaged.

    The offsets (8 bytes a record) and the decoder's window are charged to the budget.
    """

    def __init__(
        self,
        data: Data,
        header: ChunkHeader,
        *,
        budget: MemoryBudget,
        limits: Limits | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        super().__init__()
        self.header = header
        """The chunk header."""
        self._budget = budget
        self._limits = limits
        self._scratch = scratch
        self._data = data
        size = data.size or 0
        self._charge: Charge | None = None
        self.kind, begin, middle = _split(data.pread(0, 1 + MAX_VARINT), header.data_size)
        self.stored = self.kind == NONE
        """Whether the values are not compressed."""
        if header.num_records:
            self._read_sizes(begin, min(middle, size))
        total = self._ends[-1] if self._ends else 0
        if self.error is None and total != header.decoded_data_size:
            self.error = _wrong_total(total, header)
        if self.error is None and self.stored and header.data_size - middle != total:
            self.error = _wrong_size(header.data_size - middle, total)
        self.values, self.values_at = self._part(middle, header.data_size, header.decoded_data_size)

    def close(self) -> None:
        """Release the memory."""
        if self._charge is not None:
            self._charge.release()
        if self.values is not self._data:
            self.values.close()

    def _part(self, begin: int, end: int, size: int | None) -> tuple[Data, int]:
        """Return the decompressed bytes of a part, as a Data and an offset in it."""
        codec = codec_of(self.kind)
        if codec is None:
            return self._data, begin
        from pparse.compressed.inflated import InflatedData

        head = self._data.pread(begin, min(MAX_VARINT, end - begin)) if begin < (self._data.size or 0) else b""
        try:
            _, after = read_varint(head, 0, len(head))
        except MalformedError:
            if self.error is None:
                self.error = InvalidArgumentError("reading the uncompressed size failed", offset=begin)
            after = len(head)
        part = self._data.range(min(begin + after, end), end)
        name = f"{self._data.name} values"
        return InflatedData(
            part,
            codec,
            size=size,
            budget=self._budget,
            limits=self._limits,
            scratch=self._scratch,
            name=name,
            stats=None,
        ), 0

    def _read_small_sizes(self, begin: int, end: int, most: int) -> bool:
        """Decode the sizes at once; False if they are cut or damaged, and are better streamed."""
        try:
            sizes = _sizes(read_part(self.kind, self._data.read_exact(begin, end - begin), most), most // MAX_VARINT)
            self._charge = self._budget.charge(8 * len(sizes), "the offsets of a chunk's records")
            self._ends.extend(accumulate(sizes))
        except (EndOfDataError, GapError, MalformedError, OverflowError):
            self._ends = array("Q")
            return False
        return True

    def _read_sizes(self, begin: int, end: int) -> None:
        count = self.header.num_records
        # A few sizes are decoded at once: a streaming decoder would allocate its whole window for them.
        most = count * MAX_VARINT
        small = self.kind != NONE and max(most, end - begin) <= self._budget.limit // 16
        if small and self._read_small_sizes(begin, end, most):
            return
        raw, at = self._part(begin, end, None)
        stop = end if raw is self._data else None
        rest, total, more = b"", 0, False
        self._charge = self._budget.charge(0, "the offsets of a chunk's records")
        try:
            while len(self._ends) < count:
                take = 1 << 16 if stop is None else min(1 << 16, stop - at)
                block = rest + (raw.pread(at, take) if take else b"")
                if len(block) == len(rest):
                    raise EndOfDataError("the record sizes end early", wanted=count, got=len(self._ends))
                at += len(block) - len(rest)
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
            if more or (at < stop if stop is not None else raw.pread(at, 1)):
                raise InvalidArgumentError("the number of sizes is not the number of records", wanted=count)
            if isinstance(wrong := getattr(raw, "error", None), EndOfDataError | MalformedError):
                raise wrong  # all sizes were decoded, but the stream is incomplete
        except (EndOfDataError, GapError, MalformedError) as error:
            cause = getattr(raw, "error", None) or error
            self.error = cause if isinstance(cause, PparseError) else InvalidArgumentError(str(cause))
        finally:
            if raw is not self._data:
                raw.close()
