"""The layout of a Riegeli/records file: block headers, chunk headers, and the arithmetic of positions.

A file is a sequence of chunks. A block header of 24 bytes stands at every multiple of 64 KiB; a chunk that reaches
there continues after it (google/riegeli, doc/riegeli_records_file_format.md, "Block header" and "Chunk").
"""

from __future__ import annotations

from struct import Struct

from pparse.kernels.highway import hash64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

BLOCK_SIZE: Final = 1 << 16
BLOCK_HEADER_SIZE: Final = 24
USABLE_SIZE: Final = BLOCK_SIZE - BLOCK_HEADER_SIZE
CHUNK_HEADER_SIZE: Final = 40

SIGNATURE: Final = 0x73  # 's'
METADATA: Final = 0x6D  # 'm'
PADDING: Final = 0x70  # 'p'
SIMPLE: Final = 0x72  # 'r'
TRANSPOSED: Final = 0x74  # 't'
TYPE_NAMES: Final = {
    SIGNATURE: "signature",
    METADATA: "metadata",
    PADDING: "padding",
    SIMPLE: "simple",
    TRANSPOSED: "transposed",
}

MAX_POSITION: Final = (1 << 64) - 1

# Chunk and block headers, behind their hash.
_CHUNK = Struct("<QQQQ")
_BLOCK = Struct("<QQ")


class Layout:
    """The arithmetic of positions, for one grid of block headers.

    Bytes lost from a damaged file, or inserted into it, move everything after them off the grid. A shift of ``s`` puts
    the block headers at offsets ``s + n * 65536``.
    """

    __slots__ = ("shift",)

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift % BLOCK_SIZE
        """Offset of the first block header, below 64 KiB; 0 in a valid file."""

    def block_of(self, pos: int) -> int:
        """Return where the block that holds offset ``pos`` begins."""
        return pos - (pos - self.shift) % BLOCK_SIZE

    def next_block(self, pos: int) -> int:
        """Return the first block boundary at or after ``pos``."""
        return pos + (self.shift - pos) % BLOCK_SIZE

    def can_begin(self, pos: int) -> bool:
        """Say whether a chunk may begin at ``pos``: neither inside nor right after a block header."""
        return (self.shift - pos) % BLOCK_SIZE < USABLE_SIZE

    def round_up(self, pos: int) -> int:
        """Return the first position at or after ``pos`` where a chunk may begin."""
        return pos + max(0, (self.shift - pos) % BLOCK_SIZE - (USABLE_SIZE - 1))

    def add(self, begin: int, length: int) -> int:
        """Return the position after the first ``length`` bytes of a chunk that begins at ``begin``."""
        within = (begin - self.shift + USABLE_SIZE - 1) % BLOCK_SIZE
        return begin + length + BLOCK_HEADER_SIZE * ((length + within) // USABLE_SIZE)

    def offset(self, begin: int, index: int) -> int:
        """Return the file offset of byte ``index`` of a chunk (header included) that begins at ``begin``."""
        return self.add(begin, index + 1) - 1

    def distance(self, begin: int, pos: int) -> int:
        """Return how many bytes of a chunk that begins at ``begin`` come before ``pos``: the inverse of `add`."""
        return (
            (pos - min((pos - self.shift) % BLOCK_SIZE, BLOCK_HEADER_SIZE))
            - (begin - min((begin - self.shift) % BLOCK_SIZE, BLOCK_HEADER_SIZE))
            - BLOCK_HEADER_SIZE * ((self.block_of(pos) - self.block_of(begin)) // BLOCK_SIZE)
        )

    def strip(self, raw: bytes | memoryview, at: int) -> bytes:
        """Return ``raw``, read at offset ``at``, without the block headers in it."""
        first = self.next_block(at) - at
        if first >= len(raw):
            return bytes(raw)
        raw = memoryview(raw)
        pieces = [raw[:first]] if first else []
        pieces += [raw[b + BLOCK_HEADER_SIZE : b + BLOCK_SIZE] for b in range(first, len(raw), BLOCK_SIZE)]
        return b"".join(pieces)


class ChunkHeader:
    """The 40 bytes at the head of a chunk."""

    __slots__ = ("chunk_type", "data_hash", "data_size", "decoded_data_size", "num_records")

    def __init__(
        self, chunk_type: int, data_size: int, data_hash: int, num_records: int, decoded_data_size: int
    ) -> None:
        self.chunk_type = chunk_type
        """Type of the chunk, as a byte: `SIMPLE`, `TRANSPOSED`, …"""
        self.data_size = data_size
        """Bytes of data, without the block headers in between."""
        self.data_hash = data_hash
        """Hash of the data."""
        self.num_records = num_records
        """Number of records."""
        self.decoded_data_size = decoded_data_size
        """Bytes of all records together, decoded."""

    @classmethod
    def unpack(cls, raw: bytes) -> ChunkHeader:
        """Parse a header from 40 bytes. Compare `stored_hash` with `chunk_header_hash` to know whether it is valid."""
        data_size, data_hash, mixed, decoded = _CHUNK.unpack_from(raw, 8)
        return cls(mixed & 0xFF, data_size, data_hash, mixed >> 8, decoded)

    def pack(self) -> bytes:
        """Return the 40 bytes."""
        mixed = self.chunk_type | self.num_records << 8
        body = _CHUNK.pack(self.data_size, self.data_hash, mixed, self.decoded_data_size)
        return hash64(body).to_bytes(8, "little") + body

    @property
    def type_name(self) -> str:
        """The name of the type in the format."""
        return TYPE_NAMES.get(self.chunk_type, f"type 0x{self.chunk_type:02x}")

    def is_signature(self) -> bool:
        """Say whether every field is that of the file signature."""
        return (
            self.chunk_type == SIGNATURE
            and self.data_size == self.num_records == self.decoded_data_size == 0
            and self.data_hash == hash64(b"")
        )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in ("data_size", "num_records", "decoded_data_size"))
        return f"ChunkHeader({self.type_name}, {sizes})"


def stored_hash(raw: bytes | memoryview, at: int = 0) -> int:
    """Return the hash stored in a block or chunk header."""
    return int.from_bytes(raw[at : at + 8], "little")


def chunk_header_hash(raw: bytes) -> int:
    """Compute and return the hash of a chunk header of 40 bytes."""
    return hash64(raw[8:CHUNK_HEADER_SIZE])


def block_header_hash(raw: bytes | memoryview, at: int = 0) -> int:
    """Compute and return the hash of the block header at ``at``."""
    return hash64(raw[at + 8 : at + BLOCK_HEADER_SIZE])


def unpack_block(raw: bytes | memoryview, at: int = 0) -> tuple[int, int]:
    """Return ``previous_chunk`` and ``next_chunk`` of the block header at ``at``."""
    previous, following = _BLOCK.unpack_from(raw, at + 8)
    return previous, following


def pack_block(previous_chunk: int, next_chunk: int) -> bytes:
    """Return the 24 bytes of a block header."""
    body = _BLOCK.pack(previous_chunk, next_chunk)
    return hash64(body).to_bytes(8, "little") + body


def block_is_sound(raw: bytes, at: int = 0) -> bool:
    """Say whether ``raw`` has a whole block header with a valid hash at ``at``."""
    return len(raw) - at >= BLOCK_HEADER_SIZE and block_header_hash(raw, at) == stored_hash(raw, at)


SIGNATURE_HEADER: Final = ChunkHeader(SIGNATURE, 0, hash64(b""), 0, 0)
FILE_SIGNATURE: Final = pack_block(0, 64) + SIGNATURE_HEADER.pack()
