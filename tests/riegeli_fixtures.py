"""The Riegeli files of ``data/riegeli``, what the reference reader made of them, and the arithmetic of the format.

Nothing here uses ``pparse``: what the tests expect is worked out from the files and lists alone. ``data/riegeli`` was
written by the reference C++ library; see the tests for what each list holds.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import struct
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent / "data" / "riegeli"

BLOCK = 65536
BLOCK_HEADER = 24
CHUNK_HEADER = 40
USABLE = BLOCK - BLOCK_HEADER
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a90000000000000000e19f13c0e9b1c372"
    "73000000000000000000000000000000"
)


# -- the files and lists ---------------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """One record as the lists give it: where it is, how long, and the SHA-256 of its bytes."""

    begin: int
    index: int
    size: int
    digest: str

    @property
    def pos(self) -> str:
        return f"{self.begin}/{self.index}"


def digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()


def lines(name: str) -> list[dict]:
    """Return the objects of a JSON lines file, gzipped or not."""
    path = FOLDER / name
    text = path.read_bytes() if path.exists() else gzip.decompress((FOLDER / f"{name}.gz").read_bytes())
    return [json.loads(line) for line in text.splitlines() if line]


@functools.cache
def manifest() -> dict[str, dict]:
    """Return what is known of each file, by its name without ``.riegeli``."""
    entries = json.loads((FOLDER / "manifest.json").read_text())
    return {entry["file"].removesuffix(".riegeli"): entry for entry in entries}


@functools.cache
def raw(name: str) -> bytes:
    """Return the bytes of a file."""
    path = FOLDER / f"{name}.riegeli"
    return path.read_bytes() if path.exists() else gzip.decompress((FOLDER / f"{name}.riegeli.gz").read_bytes())


@functools.cache
def records(name: str) -> tuple[Expected, ...]:
    """Return the records of a file, runs of empty ones written out."""
    found = []
    for entry in lines(f"{name}.jsonl"):
        begin, index = map(int, entry["pos"].split("/"))
        known = entry.get("sha256") or digest(bytes.fromhex(entry.get("hex", "")))
        found += [Expected(begin, index + number, entry["size"], known) for number in range(entry.get("run", 1))]
    return tuple(found)


def edited(data: bytes, edits: list[list]) -> bytes:
    """Apply the edits of a damaged variant, in order."""
    content = bytearray(data)
    for edit in edits:
        match edit:
            case ["truncate", size]:
                del content[size:]
            case ["xor", at, mask]:
                content[at] ^= mask
            case ["write", at, text]:
                content[at : at + len(text) // 2] = bytes.fromhex(text)
            case ["zero", at, size]:
                content[at : at + size] = bytes(size)
            case ["delete", at, size]:
                del content[at : at + size]
            case ["insert", at, text]:
                content[at:at] = bytes.fromhex(text)
            case _:
                raise ValueError(f"an edit of no known kind: {edit}")
    return bytes(content)


# -- arithmetic of positions -----------------------------------------------------------------------------------------


def can_begin(position: int) -> bool:
    """Whether a chunk may begin here: not inside nor right after a block header."""
    return -position % BLOCK < USABLE


def round_up(position: int) -> int:
    """Return the next place where a chunk may begin."""
    return position + max(0, -position % BLOCK - (USABLE - 1))


def advance(begin: int, length: int) -> int:
    """Return where ``length`` bytes of a chunk end that begins at ``begin``."""
    return begin + length + BLOCK_HEADER * ((length + (begin + USABLE - 1) % BLOCK) // USABLE)


def end_of_chunk(begin: int, data_size: int, num_records: int) -> int:
    """Return where the chunk ends, padding included."""
    return max(advance(begin, CHUNK_HEADER + data_size), round_up(begin + num_records))


# -- chunks of a file ------------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """A chunk as its header describes it; the order is that of the manifest's chunk tables."""

    begin: int
    end: int
    type: str
    num_records: int
    decoded_size: int
    data_size: int

    @property
    def contents(self) -> tuple[str, int, int]:
        """What does not depend on how well it was compressed."""
        return (self.type, self.num_records, self.decoded_size)

    @property
    def data_end(self) -> int:
        return advance(self.begin, CHUNK_HEADER + self.data_size)


def strip(data: bytes, begin: int, length: int) -> bytes:
    """Return ``length`` bytes of the chunk at ``begin`` without block headers; fewer where the file ends."""
    end = min(advance(begin, length), len(data))
    pieces = []
    while begin < end:
        if begin % BLOCK == 0:
            begin += BLOCK_HEADER
        stop = min(end, begin - begin % BLOCK + BLOCK)
        pieces.append(data[begin:stop])
        begin = stop
    return b"".join(pieces)


def chunk_at(data: bytes, begin: int) -> Chunk | None:
    """Return the chunk whose header is at ``begin`` (its hash is not looked at), None when that is cut off."""
    header = strip(data, begin, CHUNK_HEADER)
    if len(header) < CHUNK_HEADER:
        return None
    data_size, _, kind, decoded_size = struct.unpack_from("<QQQQ", header, 8)
    count = kind >> 8
    return Chunk(begin, end_of_chunk(begin, data_size, count), chr(kind & 255), count, decoded_size, data_size)


def chunk_table(data: bytes) -> list[Chunk]:
    """Return the chunks of a whole file, all block headers held against them."""
    chunks = []
    begin = 0
    while begin < len(data):
        assert can_begin(begin), f"a chunk begins at {begin}"
        chunk = chunk_at(data, begin)
        assert chunk is not None, f"the chunk at {begin} is cut off"
        assert chunk.end <= len(data), f"the chunk {chunk} ends after the file, at {len(data)}"
        for block in range(-(-begin // BLOCK) * BLOCK, chunk.end, BLOCK):
            distances = struct.unpack_from("<QQ", data, block + 8)
            assert distances == (block - begin, chunk.end - block), f"block header at {block}, in {chunk}: {distances}"
        chunks.append(chunk)
        begin = chunk.end
    return chunks


def table(name: str) -> list[Chunk]:
    """Return the chunks of a file of ours, from the manifest."""
    return [Chunk(*row) for row in manifest()[name]["chunks"]]


def surviving(name: str, damaged: bytes, begin: int, chunk: Chunk) -> bool:
    """Whether a chunk of ``name`` stands at ``begin`` of its damaged form: whole but perhaps for its padding.

    So it does too where its blocks moved with it, though it is on no multiple of the block size then.
    """
    if begin < 0:
        return False
    if damaged[begin : begin + chunk.end - chunk.begin] == raw(name)[chunk.begin : chunk.end]:
        return True
    length = CHUNK_HEADER + chunk.data_size
    return can_begin(begin) and strip(damaged, begin, length) == strip(raw(name), chunk.begin, length)


def shifts(edits: list[list]) -> set[int]:
    """Return by how much parts of the file may have moved."""
    moved = {0}
    for edit in edits:
        change = -edit[2] if edit[0] == "delete" else len(edit[2]) // 2 if edit[0] == "insert" else 0
        moved |= {shift + change for shift in moved}
    return moved


# -- ways to hand a file over ----------------------------------------------------------------------------------------


class Pipe:
    """A stream to read from, a few bytes at a time, or to write to; it cannot seek nor tell where it is."""

    def __init__(self, data: bytes = b"", step: int = 1000) -> None:
        self._stream = io.BytesIO(data)
        self._step = step
        self.closed = False
        self.written = bytearray()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(self._step if size < 0 else min(size, self._step))

    def readinto(self, buffer: bytearray) -> int:
        view = memoryview(buffer)
        return self._stream.readinto(view[: min(len(view), self._step)])

    def write(self, data: bytes) -> int:
        self.written += data
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
