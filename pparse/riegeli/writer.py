"""`RecordWriter`: writes records to a Riegeli/records file, with the names and behaviour of the reference's bindings.

Additions to the reference: `RecordWriter.write_record_from` writes a record of any size without holding it in memory,
and appending (``append=True``, or a file opened with ``ab``) checks the file's tail first: records appended after an
incomplete chunk would be lost, since the header of that chunk counts them as part of it.

A block header says where its chunk ends, so the size of a chunk must be known before its first byte is written. The
data of a chunk arrive in pieces, which may be read from a file: the chunk is never held as a whole (`ChunkWriter`).
"""

from __future__ import annotations

import enum
import math
import os
import re
from collections import deque
from itertools import chain

from pparse.data.base import Data, blocks
from pparse.kernels.highway import Highway64, hash64
from pparse.kernels.varint import encode_varint
from pparse.lazy import Declared, lazy_pattern
from pparse.riegeli.chunks import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    FILE_SIGNATURE,
    METADATA,
    PADDING,
    SIMPLE,
    TRANSPOSED,
    Chunk,
    ChunkError,
    ChunkHeader,
    ChunkReader,
    Layout,
    pack_block,
)
from pparse.riegeli.errors import ClosedRecordsError, FailedPreconditionError, InternalError, InvalidArgumentError
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor, codec_of
from pparse.riegeli.records import RecordPosition, encode_simple
from pparse.riegeli.source import Closable, Source, is_seekable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any, BinaryIO, Final

    from pparse.data.base import Reader
    from pparse.data.scratch import Scratch, Spool

    Write = Callable[[bytes], object]
    Encoded = tuple[ChunkHeader, bytes]
    Buffer = bytes | bytearray | memoryview


COMPRESSIONS: Final = {"uncompressed": NONE, "brotli": BROTLI, "zstd": ZSTD, "snappy": SNAPPY}
_PADDINGS: Final = ("padding", "initial_padding", "final_padding")
_OF_CHUNKS: Final = ("chunk_size", "bucket_fraction", *_PADDINGS, "parallelism")
VALID: Final = ("default", "transpose", *COMPRESSIONS, "window_log", "brotli_encoder", *_OF_CHUNKS)
LEVELS: Final = {"brotli": (0, 11, 6), "zstd": (-131072, 22, 3), "snappy": (1, 2, 1)}
WINDOW_LOGS: Final = {"brotli": (10, 30), "zstd": (10, 31)}
DEFAULT_PADDING: Final = 64 << 10
MAX_SIZE: Final = (1 << 64) - 1
_SUFFIXES: Final = {"": 0, "B": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_REAL: Final = lazy_pattern(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([A-Za-z]*)", re.ASCII)
_INTEGER: Final = lazy_pattern(r"[ \t\n\v\f\r]*([+-]?\d{1,30})[ \t\n\v\f\r]*", re.ASCII)


# -- options -------------------------------------------------------------------------------------------------------


class RecordWriterOptions(Declared):
    """What a `RecordWriter` does. `parse_options` makes one from text."""

    transpose: bool = False
    """Whether chunks are transposed: records taken apart by field."""
    compression: int = BROTLI
    """Compression in the file: 0 for none, or the byte of ``b`` (Brotli), ``z`` (Zstandard), ``s`` (Snappy)."""
    level: int = 6
    """Compression level."""
    window_log: int | None = None
    """Binary logarithm of the compression window; None for the default of the library."""
    chunk_size: int = 1 << 20
    """Bytes of records after which a chunk is closed."""
    bucket_fraction: float = 1.0
    """Size of a bucket of a transposed chunk, as a fraction of the chunk size."""
    initial_padding: int = 1
    """Multiple of bytes up to which the file is padded before the first chunk; 1 for no padding."""
    final_padding: int = 1
    """Multiple of bytes up to which the file is padded at the end; 1 for no padding."""
    parallelism: int = 0
    """Chunks that are compressed at the same time, beside the one being filled."""

    @property
    def bucket_size(self) -> int | None:
        """Bytes of one bucket of a transposed chunk; None for no limit."""
        if self.compression == NONE:
            return None
        size = self.chunk_size * self.bucket_fraction
        return max(1, int(min(size, float(MAX_SIZE)) + 0.5))

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(type(self).__annotations__))
        return f"RecordWriterOptions({held})"


def parse_options(text: str) -> RecordWriterOptions:
    """Parse the options in ``text``, such as ``"transpose,zstd:9,chunk_size:4M"``.

    Items are separated by commas; empty ones are ignored. Each item is a key, or a key and a value after the first
    colon. Case and blanks matter. Each key may appear once (google/riegeli, doc/record_writer_options.md).

    Raise `InvalidArgumentError`, with the option, its value and the valid ones, if an option is unknown or invalid.
    """
    given: dict[str, str | None] = {}
    for item in text.split(","):
        if not item:
            continue
        key, colon, value = item.partition(":")
        if key not in VALID:
            raise InvalidArgumentError(f"unknown option {key}; valid options: {', '.join(VALID)}")
        if key in given:
            raise InvalidArgumentError(f"option {key} is present more than once")
        if key == "default" and given:
            raise InvalidArgumentError("option default must be the first one")
        given[key] = value if colon else None
    options = RecordWriterOptions()
    _compression(given, options)
    _chunks(given, options)
    if given.get("default") is not None:
        raise _bad("default", given["default"], "(empty)")
    return options


def _bad(key: str, value: str | None, valid: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"option {key}: invalid value: {value or '(empty)'}; valid values: {valid}")


def _compression(given: dict[str, str | None], options: RecordWriterOptions) -> None:
    named = [key for key in COMPRESSIONS if key in given]
    if len(named) > 1:
        raise InvalidArgumentError(f"options {named[0]} and {named[1]} exclude each other")
    name = named[0] if named else "brotli"
    options.compression = COMPRESSIONS[name]
    if name == "uncompressed":
        if given.get(name):
            raise _bad(name, given[name], "(empty)")
        options.level = 0
        options.chunk_size = 4 << 10
    else:
        least, most, usual = LEVELS[name]
        value = given.get(name)
        options.level = _integer(name, value, least, most, "(empty), ") if value else usual
    if "window_log" in given:
        if name not in WINDOW_LOGS:
            raise InvalidArgumentError(f"options window_log and {name} exclude each other")
        if given["window_log"] != "auto":
            least, most = WINDOW_LOGS[name]
            options.window_log = _integer("window_log", given["window_log"], least, most, "auto, ")
    encoder = given.get("brotli_encoder", "rbrotli_or_cbrotli")
    if encoder not in ("rbrotli_or_cbrotli", "cbrotli", "rbrotli"):
        raise _bad("brotli_encoder", encoder, "rbrotli_or_cbrotli, cbrotli, rbrotli")


def _chunks(given: dict[str, str | None], options: RecordWriterOptions) -> None:
    if "transpose" in given:
        value = given["transpose"]
        if value not in (None, "", "true", "false"):
            raise _bad("transpose", value, "(empty), true, false")
        options.transpose = value != "false"
    if "chunk_size" in given and given["chunk_size"] != "auto":
        options.chunk_size = _size("chunk_size", given["chunk_size"], "auto, ")
    if "bucket_fraction" in given:
        options.bucket_fraction = _fraction(given["bucket_fraction"])
    if "parallelism" in given:
        options.parallelism = _integer("parallelism", given["parallelism"], 0, (1 << 31) - 1, "")
    for key, value in given.items():  # the later one wins, so keep the order
        if key in _PADDINGS:
            size = _size(key, value, "(empty), ") if value else DEFAULT_PADDING
            if key != "final_padding":
                options.initial_padding = size
            if key != "initial_padding":
                options.final_padding = size


def _integer(key: str, value: str | None, least: int, most: int, also: str) -> int:
    match = _INTEGER.fullmatch(value or "")
    if match is None or not least <= int(match[1]) <= most:
        raise _bad(key, value, f"{also}integers in the range [{least}..{most}]")
    return int(match[1])


def _size(key: str, value: str | None, also: str) -> int:
    match = _REAL.fullmatch(value or "")
    number = float(match[1]) if match else math.nan
    shift = _SUFFIXES.get(match[2]) if match else None
    if shift is None or not number * 2.0**shift >= 0.5:
        what = f"{also}integers expressed as reals with optional suffix [BkKMGTPE]"
        raise _bad(key, value, f"{what}, in the range [1..{MAX_SIZE}]")
    scaled = number * 2.0**shift
    return MAX_SIZE if scaled >= MAX_SIZE else int(scaled + 0.5)


def _fraction(value: str | None) -> float:
    match = _REAL.fullmatch(value or "")
    number = float(match[1]) if match and not match[2] else math.nan
    if not 0 <= number <= 1:
        raise _bad("bucket_fraction", value, "reals in the range [0..1]")
    return number


# What a record counts beside its bytes when chunks are filled (as in the reference).
RECORD_COST: Final = 8
MAX_BROTLI_WINDOW: Final = 24
# The most padding that is rewritten: a chunk has at least as many bytes as records.
MAX_PADDING: Final = 1 << 30
_PIECE: Final = 1 << 20
_ZEROS: Final = bytes(1 << 16)
_MAX_SNAPPY: Final = (1 << 32) - 1


class FlushType(enum.Enum):
    """How far `RecordWriter.flush` writes the data out."""

    FROM_OBJECT = 0  # written to the file object
    FROM_PROCESS = 1  # handed to the system: survives a crash of the process
    FROM_MACHINE = 2  # written to disk: survives a crash of the machine


class _Ticket:
    """A chunk to be written: ``begin`` is known once it is."""

    __slots__ = ("begin",)

    def __init__(self) -> None:
        self.begin: int | None = None


class RecordWriter(Closable):
    """Writes records to ``dest``: a path, or a binary file object (closed with the writer if ``owns_dest``).

    ``options`` is text as `parse_options` takes it, or its result. At position 0 the file signature is written, and the
    metadata if given (as a message in ``metadata``, or as ``serialized_metadata``); elsewhere records are appended. A
    file object that is not seekable begins at 0; ``assumed_pos`` gives the position of ``dest`` without asking it.
    Exceptions of the file object are passed on unchanged, and raised again by every later call.

    ``append=True`` opens a path for appending, and checks the file's tail first. A file that ends inside a chunk raises
    `FailedPreconditionError`; with ``repair=True`` the incomplete chunk is cut off, or gets its missing padding. A file
    that is damaged otherwise, or not a Riegeli file, is always refused. ``scratch`` takes huge records while they are
    compressed (default: the folder of the file, else the temporary folder of the system).

    A Brotli window above 24 is written as 24, which every reader accepts: no library used here writes a wider one.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str] | BinaryIO,
        *,
        owns_dest: bool = True,
        assumed_pos: int | None = None,
        min_buffer_size: int = 4096,
        max_buffer_size: int = 65536,
        buffer_size: int | None = None,
        options: str | RecordWriterOptions = "",
        metadata: Any = None,
        serialized_metadata: bytes = b"",
        append: bool = False,
        repair: bool = False,
        scratch: Scratch | None = None,
    ) -> None:
        if repair and not append:
            raise ValueError("repair=True repairs the tail of a file before appending to it: it needs append=True")
        self._options = options if isinstance(options, RecordWriterOptions) else parse_options(options)
        self._compressor = _compressor(self._options)
        self._scratch = scratch
        self._records: list[bytes] = []
        self._size = 0  # of the open chunk, as counted against chunk_size
        self._ticket = _Ticket()
        self._last: tuple[_Ticket, int] | None = None
        self._pending: deque[tuple[_Ticket, Future[Encoded]]] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._failed: BaseException | None = None
        self._unwritten = bytearray()
        self._room = max_buffer_size if buffer_size is None else buffer_size
        self.closed = False
        self._owns = owns_dest
        self._stream: Any = dest
        self._dest = dest
        if metadata is not None:
            if serialized_metadata:
                raise TypeError("give metadata= or serialized_metadata=, not both")
            serialized_metadata = metadata.SerializeToString()
        if isinstance(dest, str | os.PathLike):
            self._owns = True
            self._stream = _open(os.fspath(dest), append, repair)
        elif not hasattr(dest, "write"):
            raise TypeError("give a path or a binary file object to write to")
        elif append:
            raise ValueError("append= is for paths; open the file with 'ab' or 'r+b' yourself")
        try:
            self._begin(assumed_pos, bytes(serialized_metadata or b""), checked=append)
        except BaseException:
            if isinstance(dest, str | os.PathLike):
                self._stream.close()
            raise

    def _begin(self, assumed_pos: int | None, metadata: bytes, *, checked: bool) -> None:
        pos = assumed_pos
        if pos is None:
            pos = self._stream.tell() if is_seekable(self._stream) else 0
            if not checked and pos:
                check_tail(self._stream, pos)
        self._chunks = ChunkWriter(self._put, pos)
        if pos == 0:
            self._chunks.begin_file()
            if metadata:
                from pparse.riegeli.transposed_encoder import encode_transposed

                data = encode_transposed([metadata], self._compressor)
                self._chunks.write_chunk(ChunkHeader(METADATA, len(data), hash64(data), 0, len(metadata)), [data])
        else:
            self._chunks.align()
            self._chunks.write_padding(self._options.initial_padding)

    def _put(self, piece: bytes) -> None:
        self._unwritten += piece
        if len(self._unwritten) >= self._room:
            self._write_out()

    def _write_out(self) -> None:
        """Write the gathered bytes to the file, which may accept them in pieces."""
        piece = bytes(self._unwritten)
        self._unwritten.clear()
        while piece:
            taken = self._stream.write(piece)
            if taken is None:  # some file objects return None: all was written
                return
            if not 0 < taken <= len(piece):
                raise InternalError(f"the file object reports {taken} of {len(piece)} bytes written")
            piece = piece[taken:]

    @property
    def dest(self) -> str | os.PathLike[str] | BinaryIO:
        """The destination as it was given."""
        return self._dest

    # -- positions ---------------------------------------------------------------------------------------------------

    @property
    def pos(self) -> RecordPosition:
        """Position of the next record, if no chunk is closed before it; waits for chunks being encoded."""
        self._drain()
        return RecordPosition(self._chunks.pos, len(self._records))

    @property
    def last_pos(self) -> RecordPosition:
        """Position of the last record written; waits for chunks being encoded.

        Raise `FailedPreconditionError` before the first record.
        """
        if self._last is None:
            raise FailedPreconditionError("no record was written")
        ticket, index = self._last
        if ticket.begin is None:
            self._drain()
        begin = self._chunks.pos if ticket.begin is None else ticket.begin
        return RecordPosition(begin, index)

    def estimated_size(self) -> int:
        """Return an estimate of the final size if nothing more is written, in bytes. Closes and awaits nothing."""
        return self._chunks.pos + self._size

    # -- records -----------------------------------------------------------------------------------------------------

    def write_record(self, record: Buffer) -> None:
        """Write one record."""
        self._check()
        if type(record) is not bytes:
            record = memoryview(record).tobytes()
        size = len(record) + RECORD_COST
        chunk_size = self._options.chunk_size
        if self._size + size > chunk_size and self._records:
            self._close_chunk()
        self._records.append(record)
        self._size += size
        self._last = self._ticket, len(self._records) - 1
        if chunk_size - self._size < RECORD_COST:
            self._close_chunk()

    def write_message(self, record: Any) -> None:
        """Serialize a protocol buffer message and write it as a record."""
        self.write_record(record.SerializeToString())

    def write_records(self, records: Iterable[Buffer]) -> None:
        """Write several records."""
        for record in records:
            self.write_record(record)

    def write_messages(self, records: Iterable[Any]) -> None:
        """Write several messages."""
        for record in records:
            self.write_message(record)

    def write_record_from(self, reader: Reader | Data) -> None:
        """Write the bytes of ``reader``, from its position on (of a `Data`: all), as one record in a chunk of its own.

        Without compression the bytes are read twice, since their hash comes first in the file; otherwise once, and
        compressed into a scratch file. Raise `EndOfDataError` if there are fewer bytes than its size,
        `FailedPreconditionError` if the size is not known.
        """
        self._check()
        source: Reader = reader.open() if isinstance(reader, Data) else reader
        size = source.remaining
        if size is None:
            raise FailedPreconditionError("the size of the record is not known")
        self._close_chunk()
        self._drain()
        self._guarded(lambda: self._stream_record(source, size))

    def _stream_record(self, source: Reader, size: int) -> None:
        kind = self._compressor.kind
        sizes = self._compressor.part(encode_varint(size))
        head = b"".join((bytes((kind,)), encode_varint(len(sizes)), sizes))
        spool: Spool | None = None
        try:
            if kind != NONE:
                head += encode_varint(size)
                spool = (self._scratch or self._default_scratch()).spool()
                for piece in self._compressed(source, size):
                    spool.append(piece)

            def data() -> Iterator[bytes]:
                yield head
                yield from _pieces(source, size) if spool is None else blocks(spool.pread, 0, spool.size, _PIECE)

            data_hash = hash_of(data())
            ticket = self._ticket
            ticket.begin = self._chunks.pos
            length = len(head) + (size if spool is None else spool.size)
            self._chunks.write_chunk(ChunkHeader(SIMPLE, length, data_hash, 1, size), data())
            self._last = ticket, 0
            self._ticket = _Ticket()
        finally:
            if spool is not None:
                spool.close()

    def _compressed(self, source: Reader, size: int) -> Iterator[bytes]:
        """Yield ``size`` bytes, compressed."""
        options = self._compressor
        if options.kind == SNAPPY:
            yield from _snappy(_pieces(source, size), size)
            return
        from pparse.codecs import compressor

        stream = compressor(codec_of(options.kind) or "", level=options.level, window_log=options.window_log)
        yield from filter(None, map(stream.compress, _pieces(source, size)))
        yield stream.flush()

    def _default_scratch(self) -> Scratch:
        import tempfile

        from pparse.data.scratch import Scratch
        from pparse.limits import Limits

        folder = tempfile.gettempdir()
        if isinstance(self._dest, str | os.PathLike):
            folder = os.path.dirname(os.path.abspath(self._dest))
        return Scratch(folder, Limits().scratch_bytes)

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _close_chunk(self) -> None:
        """Encode the open chunk: now, or in a thread while the next one is filled."""
        if not self._records:
            return
        records, ticket = self._records, self._ticket
        self._records, self._size, self._ticket = [], 0, _Ticket()
        options = self._options
        if not options.parallelism:
            self._guarded(lambda: self._write(ticket, encode_chunk(records, options, self._compressor)))
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(min(options.parallelism, (os.cpu_count() or 1) + 4), "riegeli")
        pending = self._pending
        pending.append((ticket, self._pool.submit(encode_chunk, records, options, self._compressor)))
        while len(pending) > options.parallelism or (pending and pending[0][1].done()):
            self._write_first()

    def _write_first(self) -> None:
        ticket, future = self._pending.popleft()
        self._guarded(lambda: self._write(ticket, future.result()))

    def _write(self, ticket: _Ticket, encoded: Encoded) -> None:
        ticket.begin = self._chunks.pos
        header, data = encoded
        self._chunks.write_chunk(header, [data])

    def _drain(self) -> None:
        while self._pending:
            self._write_first()

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run ``action``. After a failure the writer refuses to write: its file may end anywhere."""
        try:
            action()
        except BaseException as error:
            self._failed = error
            raise

    def _check(self) -> None:
        if self.closed:
            raise ClosedRecordsError("the writer is closed")
        self._check_failed()

    def _check_failed(self) -> None:
        if isinstance(self._failed, Exception):
            raise self._failed
        if self._failed is not None:
            raise FailedPreconditionError("an earlier write was interrupted") from self._failed

    # -- the end -----------------------------------------------------------------------------------------------------

    def flush(self, flush_type: FlushType = FlushType.FROM_PROCESS) -> None:
        """Close the open chunk, write the final padding, and flush the file as far as ``flush_type`` says.

        A file object that is not owned is not flushed by ``FROM_OBJECT``.
        """
        if not isinstance(flush_type, FlushType):
            raise TypeError(f"flush takes a FlushType, not {flush_type!r}")
        self._check()
        self._end_chunks()
        if self._owns or flush_type is not FlushType.FROM_OBJECT:
            self._guarded(self._stream.flush)
        if flush_type is FlushType.FROM_MACHINE:
            try:
                descriptor = self._stream.fileno()
            except (AttributeError, OSError):
                return  # not a file of the operating system
            os.fsync(descriptor)

    def _end_chunks(self) -> None:
        self._close_chunk()
        self._drain()
        self._guarded(lambda: self._chunks.write_padding(self._options.final_padding))
        self._guarded(self._write_out)

    def close(self) -> None:
        """Write the open chunk and release the file; may be called again. Raise the error of an earlier write."""
        if self.closed:
            return
        try:
            self._check_failed()
            self._end_chunks()
            if not self._owns:
                self._stream.flush()
        finally:
            self.closed = True
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
            if self._owns:
                self._stream.close()

    def __repr__(self) -> str:
        return f"<RecordWriter of {getattr(self._stream, 'name', self._stream)!r} at {self._chunks.pos}>"


def encode_chunk(records: list[bytes], options: RecordWriterOptions, compressor: PartCompressor) -> Encoded:
    """Return the header and the data of a chunk that holds ``records``."""
    if options.transpose:
        from pparse.riegeli.transposed_encoder import encode_transposed

        kind, data = TRANSPOSED, encode_transposed(records, compressor, bucket_size=options.bucket_size)
    else:
        kind, data = SIMPLE, encode_simple(records, compressor)
    return ChunkHeader(kind, len(data), hash64(data), len(records), sum(map(len, records))), data


def check_tail(stream: Any, size: int) -> None:
    """Check that ``stream``, a file of ``size`` bytes to append to, ends where a chunk ends.

    A stream that can neither be read nor opened by its name is not checked. Raise `FailedPreconditionError`.
    """
    path = getattr(stream, "name", None)
    readable = getattr(stream, "readable", None)
    if readable is not None and readable():
        at = stream.tell()
        tail = Tail(stream)
        stream.seek(at)
        tail.refuse()
    elif isinstance(path, str) and os.path.isfile(path) and os.path.getsize(path) == size:
        Tail(path).refuse()


def _open(path: str, append: bool, repair: bool) -> BinaryIO:
    if not append or not os.path.exists(path) or not os.path.getsize(path):
        return open(path, "wb")
    tail = Tail(path)
    if not repair:
        tail.refuse()
    stream = open(path, "r+b")  # noqa: SIM115 -- the writer closes it
    try:
        tail.mend(stream)
    except BaseException:
        stream.close()
        raise
    return stream


def _compressor(options: RecordWriterOptions) -> PartCompressor:
    window = options.window_log
    if window is not None and options.compression == BROTLI:
        window = min(window, MAX_BROTLI_WINDOW)
    return PartCompressor(options.compression, options.level if options.compression else None, window)


def _pieces(source: Reader, size: int) -> Iterator[bytes]:
    reader = source.dup()
    while size:
        piece = reader.read_exact(min(size, _PIECE))
        size -= len(piece)
        yield piece


def _snappy(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield a raw Snappy block. Fragments of 64 KiB are independent, so compressed pieces can be concatenated."""
    if size > _MAX_SNAPPY:
        raise InvalidArgumentError("raw snappy holds less than 4 GiB; choose zstd or brotli", wanted=size)
    from pparse.codecs import compress
    from pparse.kernels.varint import read_varint

    yield encode_varint(size)
    for piece in pieces:
        block = compress("snappy", piece)
        _, at = read_varint(block, 0, len(block))
        yield block[at:]


class ChunkWriter:
    """Writes chunks one after the other from position ``pos`` on, through the function ``write``."""

    def __init__(self, write: Write, pos: int) -> None:
        self._write = write
        self._layout = Layout()
        self.pos = pos
        """Offset in the file at which the next byte is written."""

    def begin_file(self) -> None:
        """Write the file signature."""
        self._write(FILE_SIGNATURE)
        self.pos += len(FILE_SIGNATURE)

    def align(self) -> None:
        """Write zeros up to the next position where a chunk can begin, if none can begin here."""
        if not self._layout.can_begin(self.pos):
            end = self._layout.next_block(self.pos)
            self._write(bytes(end - self.pos))
            self.pos = end

    def write_chunk(self, header: ChunkHeader, pieces: Iterable[bytes]) -> None:
        """Write one chunk. ``pieces`` together must hold ``header.data_size`` bytes of data."""
        chunk = Chunk(self.pos, header, self._layout)
        padding = self._layout.distance(chunk.begin, chunk.end) - CHUNK_HEADER_SIZE - header.data_size
        for piece in _with_blocks(chunk, chunk.begin, chain((header.pack(),), pieces, _zeros(padding))):
            self._write(piece)
        self.pos = chunk.end

    def write_padding(self, multiple: int) -> None:
        """Write a padding chunk that ends at a multiple of ``multiple``; none if `pos` is such a multiple."""
        begin = self.pos
        if multiple <= 1 or begin % multiple == 0:
            return
        end = begin + -begin % multiple
        while not self._layout.can_begin(end) or self._layout.distance(begin, end) < CHUNK_HEADER_SIZE:
            end += multiple
        size = self._layout.distance(begin, end) - CHUNK_HEADER_SIZE
        header = ChunkHeader(PADDING, size, hash_of(_zeros(size)), 0, 0)
        self.write_chunk(header, _zeros(size))


def hash_of(pieces: Iterable[bytes]) -> int:
    """Return the hash of ``pieces`` taken together."""
    digest = Highway64()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[:count]
        count -= len(_ZEROS)


def _with_blocks(chunk: Chunk, pos: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``pieces``, the bytes of a chunk from position ``pos`` on, with the block headers in between."""
    for piece in pieces:
        view = memoryview(piece)
        while view:
            boundary = chunk.layout.next_block(pos)
            if boundary == pos:
                yield pack_block(pos - chunk.begin, chunk.end - pos)
                pos += BLOCK_HEADER_SIZE
                boundary += BLOCK_SIZE
            take = min(len(view), boundary - pos)
            yield view[:take] if take < len(piece) else piece  # type: ignore[misc]
            pos += take
            view = view[take:]


class Tail:
    """The state of the end of a Riegeli file ``src``: a path, or a binary file that can be read.

    Reads the header of the last block, and the chunk headers from there on. Raise `FailedPreconditionError` if it is
    not a Riegeli file, or damaged (not just cut) there.
    """

    __slots__ = ("end", "name", "size", "unpadded")

    def __init__(self, src: Any) -> None:
        source = Source(src, owns=False)
        self.end = 0
        """Offset at which the last whole chunk ends."""
        self.unpadded: Chunk | None = None
        """The chunk at `end`, if it lacks only its padding."""
        try:
            self.size = source.size()
            """Size of the file, in bytes."""
            self.name = source.data.name
            """Name of the file."""
            self._examine(ChunkReader(source))
        except ChunkError as error:
            reason = f"cannot append to a file that is damaged at its end: {error.error.reason}"
            raise FailedPreconditionError(reason, offset=error.error.offset, source=source.data.name) from error
        finally:
            if isinstance(src, str | os.PathLike):
                source.close(0)

    def _examine(self, chunks: ChunkReader) -> None:
        head, size = chunks.get(0, len(FILE_SIGNATURE)), self.size
        if not FILE_SIGNATURE.startswith(head):
            raise FailedPreconditionError("not a Riegeli file: cannot append to it", offset=0)
        if len(head) < len(FILE_SIGNATURE):
            return
        block = chunks.layout_at(size - 1).block_of(size - 1)
        if block and size - block < BLOCK_HEADER_SIZE:  # the last block header is cut: use the one before
            block -= BLOCK_SIZE
        self.end, chunk = chunks.last_boundary(chunks.start_for(block, block))
        if chunk is not None and chunk.end - chunk.data_end <= MAX_PADDING:
            self.unpadded = chunk if chunks.sound_data(chunk) is not None else None

    def refuse(self) -> None:
        """Raise `FailedPreconditionError` if the tail needs repair."""
        if self.end == self.size:
            return
        wanted, reason = self.end, f"the file's last {self.size - self.end:,} bytes are not a whole chunk"
        if self.unpadded is not None:
            wanted, reason = self.unpadded.end, f"the padding of the file's last chunk, at {self.end}, is cut off"
        reason += "; records appended after it would be lost. repair=True repairs it"
        raise FailedPreconditionError(reason, offset=self.end, wanted=wanted, got=self.size, source=self.name)

    def mend(self, stream: BinaryIO) -> None:
        """Cut an incomplete chunk off the file, or write the padding that the last chunk lacks; seek to the end."""
        chunk = self.unpadded
        if chunk is not None:
            zeros = chunk.layout.distance(chunk.begin, chunk.end) - CHUNK_HEADER_SIZE - chunk.header.data_size
            stream.seek(chunk.data_end)
            for piece in _with_blocks(chunk, chunk.data_end, _zeros(zeros)):
                stream.write(piece)
        elif self.end != self.size:
            stream.truncate(self.end)
        stream.seek(0, os.SEEK_END)
