"""`RecordWriter`: records into a Riegeli/records file, with the names and behaviour of the reference's bindings.

What is ours beside them: `RecordWriter.write_record_from` writes a record of any size without holding it, and
appending (``append=True``, or a file opened with ``ab``) looks at the file's tail before it writes behind it.
"""

from __future__ import annotations

import contextlib
import enum
import os

from pparse.data.base import Data
from pparse.kernels.highway import hash64
from pparse.kernels.varint import encode_varint
from pparse.riegeli.chunk_writer import ChunkWriter, hash_of
from pparse.riegeli.errors import ClosedRecordsError, FailedPreconditionError, InternalError, InvalidArgumentError
from pparse.riegeli.layout import SIMPLE, TRANSPOSED, ChunkHeader
from pparse.riegeli.options import RecordWriterOptions, parse_options
from pparse.riegeli.parts import NONE, SNAPPY, PartCompressor, codec_of
from pparse.riegeli.positions import RecordPosition
from pparse.riegeli.simple import encode_simple
from pparse.riegeli.source import is_seekable
from pparse.riegeli.tail import examine_tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any, BinaryIO, Final, Self

    from pparse.data.reader import Reader
    from pparse.data.scratch import Scratch, Spool

    Encoded = tuple[ChunkHeader, bytes]
    Buffer = bytes | bytearray | memoryview

# What a record costs beside its bytes when chunks are filled (the reference's figure).
RECORD_COST: Final = 8
MAX_BROTLI_WINDOW: Final = 24
_PIECE: Final = 1 << 20
_MAX_SNAPPY: Final = (1 << 32) - 1


class FlushType(enum.Enum):
    """How far `RecordWriter.flush` goes."""

    FROM_OBJECT = 0  # out of the writer
    FROM_PROCESS = 1  # out of the process: survives its crash
    FROM_MACHINE = 2  # onto the disk: survives the machine's


class _Ticket:
    """A chunk to come: where it begins is known once it is written."""

    __slots__ = ("begin",)

    def __init__(self) -> None:
        self.begin: int | None = None


class RecordWriter:
    """Writes records to ``dest``: a path, or a binary file object (closed with the writer if ``owns_dest``).

    ``options`` is the option text of `pparse.riegeli.options`. At position 0 a signature is written, and the metadata
    if given (``metadata``, a message, or else ``serialized_metadata``); elsewhere records are appended. A file object
    that is not seekable begins at 0; ``assumed_pos`` says where ``dest`` stands without asking it. What it raises goes
    to the caller unchanged, at each later call too.

    ``append=True`` opens a path for appending: the file's tail is looked at first, and one that ends inside a chunk
    is refused (`FailedPreconditionError`); with ``repair=True`` such a chunk is cut off, or given the padding that it
    lacks. A file that is damaged otherwise, or none of Riegeli, is refused in any case. ``scratch`` is where huge
    records are compressed to (beside the file, or in the system's folder for such, if not given).

    A Brotli window above 24 is written as 24, which every reader takes: no library here writes a wider one.
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
            raise ValueError("repair=True mends the tail of a file that is appended to: it needs append=True")
        self._options = options if isinstance(options, RecordWriterOptions) else parse_options(options)
        self._compressor = _compressor(self._options)
        self._scratch = scratch
        self._records: list[bytes] = []
        self._size = 0  # of the open chunk, as it is counted
        self._ticket = _Ticket()
        self._last: tuple[_Ticket, int] | None = None
        self._pending: deque[tuple[_Ticket, Future[Encoded]]] | None = None
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
                from pparse.riegeli.transposed_encoder import encode_metadata

                self._chunks.write_metadata(metadata, encode_metadata(metadata, self._compressor))
        else:
            self._chunks.align()
            self._chunks.write_padding(self._options.initial_padding)

    def _put(self, piece: bytes) -> None:
        self._unwritten += piece
        if len(self._unwritten) >= self._room:
            self._write_out()

    def _write_out(self) -> None:
        """Hand what was gathered to the file, which may take it in pieces."""
        piece = bytes(self._unwritten)
        self._unwritten.clear()
        while piece:
            taken = self._stream.write(piece)
            if taken is None:  # as some files have it: all
                return
            if not 0 < taken <= len(piece):
                raise InternalError(f"the file object says that it wrote {taken} of {len(piece)} bytes")
            piece = piece[taken:]

    @property
    def dest(self) -> str | os.PathLike[str] | BinaryIO:
        """The destination as it was given."""
        return self._dest

    # -- positions ---------------------------------------------------------------------------------------------------

    @property
    def pos(self) -> RecordPosition:
        """Position of the next record, if no chunk is closed before it; waits for chunks in work."""
        self._drain()
        return RecordPosition(self._chunks.pos, len(self._records))

    @property
    def last_pos(self) -> RecordPosition:
        """Position of the record written last; waits for chunks in work. Raises `FailedPreconditionError` before it."""
        if self._last is None:
            raise FailedPreconditionError("no record was written")
        ticket, index = self._last
        if ticket.begin is None:
            self._drain()
        begin = self._chunks.pos if ticket.begin is None else ticket.begin
        return RecordPosition(begin, index)

    def estimated_size(self) -> int:
        """Return about how large the file would be if nothing more were written; nothing is closed or waited for."""
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
        """Write a protocol buffer message, serialized."""
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
        """Write what ``reader`` has from where it stands (of a `Data`: all) as one record in a simple chunk of its own.

        It is read twice if nothing is to be compressed (its hash stands before it in the file), else once, compressed
        into a scratch file. Raises `EndOfDataError` if it is shorter than it says, `FailedPreconditionError` if its
        size is not known.
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
                spool = self._compress(source, size)

            def data() -> Iterator[bytes]:
                yield head
                yield from _pieces(source, size) if spool is None else _spooled(spool)

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

    def _compress(self, source: Reader, size: int) -> Spool:
        """Compress ``size`` bytes into a scratch file."""
        spool = (self._scratch or self._default_scratch()).spool()
        options = self._compressor
        try:
            if options.kind == SNAPPY:
                for piece in _snappy(_pieces(source, size), size):
                    spool.append(piece)
            else:
                from pparse.codecs import compressor

                stream = compressor(codec_of(options.kind) or "", level=options.level, window_log=options.window_log)
                for piece in _pieces(source, size):
                    if made := stream.compress(piece):
                        spool.append(made)
                spool.append(stream.flush())
        except BaseException:
            spool.close()
            raise
        return spool

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
            from collections import deque
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(min(options.parallelism, (os.cpu_count() or 1) + 4), "riegeli")
            self._pending = deque()
        pending = self._pending
        assert pending is not None  # noqa: S101 -- made together with the pool
        pending.append((ticket, self._pool.submit(encode_chunk, records, options, self._compressor)))
        while len(pending) > options.parallelism or (pending and pending[0][1].done()):
            self._write_first()

    def _write_first(self) -> None:
        if self._pending:
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
        """Do ``action``; a writer that failed once writes no more, since its file may end anywhere."""
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

        A file object that is not owned is another object than the writer: ``FROM_OBJECT`` does not flush it.
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
                return  # no file of the system's
            os.fsync(descriptor)

    def _end_chunks(self) -> None:
        self._close_chunk()
        self._drain()
        self._guarded(lambda: self._chunks.write_padding(self._options.final_padding))
        self._guarded(self._write_out)

    def close(self) -> None:
        """Write what is open, and release the file; harmless when repeated. Raises what an earlier write raised."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(Exception):  # what is on its way already says more
                self.close()

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
    """Check that ``stream``, a file of ``size`` bytes to be appended to, ends where a chunk ends.

    A stream that can be neither read nor found by its name is left alone. Raises `FailedPreconditionError`.
    """
    path = getattr(stream, "name", None)
    readable = getattr(stream, "readable", None)
    if readable is not None and readable():
        at = stream.tell()
        tail = examine_tail(stream)
        stream.seek(at)
        tail.refuse()
    elif isinstance(path, str) and os.path.isfile(path) and os.path.getsize(path) == size:
        examine_tail(path).refuse()


def _open(path: str, append: bool, repair: bool) -> BinaryIO:
    if not append or not os.path.exists(path) or not os.path.getsize(path):
        return open(path, "wb")
    tail = examine_tail(path)
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
    if window is not None and options.compression == 0x62:
        window = min(window, MAX_BROTLI_WINDOW)
    return PartCompressor(options.compression, options.level if options.compression else None, window)


def _pieces(source: Reader, size: int) -> Iterator[bytes]:
    reader = source.dup()
    while size:
        piece = reader.read_exact(min(size, _PIECE))
        size -= len(piece)
        yield piece


def _spooled(spool: Spool) -> Iterator[bytes]:
    for at in range(0, spool.size, _PIECE):
        yield spool.pread(at, _PIECE)


def _snappy(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield a raw snappy block: its fragments of 64 KiB know nothing of each other, so pieces can be put together."""
    if size > _MAX_SNAPPY:
        raise InvalidArgumentError("raw snappy holds less than 4 GiB; choose zstd or brotli", wanted=size)
    from pparse.codecs import compress
    from pparse.kernels.varint import read_varint

    yield encode_varint(size)
    for piece in pieces:
        block = compress("snappy", piece)
        _, at = read_varint(block, 0, len(block))
        yield block[at:]
