"""Values of packed repeated protobuf fields, as numpy arrays.

A packed field is one length-delimited payload of values without tags: varints, or little-endian numbers of 4 or 8
bytes (https://protobuf.dev/programming-guides/encoding/#packed). ``type`` is a number of
``google.protobuf.FieldDescriptorProto.Type`` everywhere.

Values are read as in protobuf's own parser (upb): a varint has at most ten bytes and need not be canonical; bits above
the 64th are dropped; 32-bit types keep the low 32 bits (negative int32 are written as ten bytes), before zigzag is
undone; a bool is true if any of its 64 bits is set. An enum is read as int32; the caller checks whether its number has
a name.

Varints become an array block by block, eight bytes of each value at a time. The temporaries take up to 34 times the
block, hence the block size.
"""

from __future__ import annotations

from pparse.errors import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable
    from typing import Any, Final

    from numpy.typing import NDArray

BLOCK_SIZE: Final = 256 * 1024
MAX_BYTES: Final = 10
# Below this size, counting is faster without numpy.
_SMALL: Final = 2048

_CONTINUED: Final = bytes(range(0x80, 0x100))

# Types of fixed size: bytes per value, name of the dtype.
_FIXED: Final = {
    1: (8, "float64"),
    2: (4, "float32"),
    6: (8, "uint64"),
    7: (4, "uint32"),
    15: (4, "int32"),
    16: (8, "int64"),
}
_BOOL: Final = 8
_ZIGZAG: Final = (17, 18)
# Types written as varints: name of the dtype.
_VARINT: Final = {
    3: "int64",
    4: "uint64",
    5: "int32",
    _BOOL: "bool",
    13: "uint32",
    14: "int32",
    17: "int32",
    18: "int64",
}
# The bits that count in the first eight bytes of a varint, by the number of its bytes after the first.
_GROUPS: Final = tuple(0x7F7F7F7F7F7F7F7F & ((1 << 8 * min(extra + 1, 8)) - 1) for extra in range(MAX_BYTES))
# The upper half of each pair of groups, of each pair of pairs, of all; and how far it moves down.
_CLOSE_UP: Final = ((0x7F007F007F007F00, 1), (0x3FFF00003FFF0000, 2), (0x0FFFFFFF00000000, 4))


def packed_array(data: bytes, type: int) -> NDArray[Any]:
    """Return the values of ``data``, the payload of a packed field of that type, as an array of one dimension.

    Its dtype is int32, int64, uint32, uint64, float32, float64 or bool, according to the type. Fixed-size numbers are a
    read-only view of ``data``; varints are decoded. Raises `MalformedError`, with the offset of the value, for a value
    that the end of the data cuts and for a varint of more than ten bytes; ValueError for a type that is never packed.
    """
    import numpy as np

    if type in _FIXED:
        size, name = _FIXED[type]
        count, rest = divmod(len(data), size)
        if rest:
            raise MalformedError("packed value is cut short", offset=len(data) - rest, wanted=size, got=rest)
        return np.frombuffer(data, np.dtype(name).newbyteorder("<"), count).astype(name, copy=False)
    name = _VARINT.get(type, "")
    if not name:
        raise ValueError(f"fields of type {type} are never packed")
    # Decoded in place, as unsigned numbers of the same size; the view at the end changes no bits.
    dtype = np.dtype(name)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    values = np.empty(count_varints(data), unsigned)
    if len(data) > _SMALL:
        # Once freed, this makes glibc keep freed blocks of its size; otherwise every temporary is mapped again.
        np.empty(2 << 20, np.uint8)
    pos = done = 0
    while pos < len(data):
        block = data[pos : pos + BLOCK_SIZE]
        count, used = _decode_block(block, pos, values[done:])
        done += count
        pos += used
    if type in _ZIGZAG:
        _undo_zigzag(values)
    return values.view(dtype)


def count_varints(block: bytes) -> int:
    """Return how many varints end in ``block``: each has exactly one byte without bit 7."""
    if block.isascii():
        return len(block)
    if len(block) < _SMALL:
        return len(block.translate(None, _CONTINUED))
    import numpy as np

    count = 0
    # Compare whole vectors, piece by piece, so that they stay in the cache.
    for at in range(0, len(block), BLOCK_SIZE):
        piece = np.frombuffer(block, np.uint8, min(BLOCK_SIZE, len(block) - at), at)
        count += int(np.count_nonzero(piece < 0x80))
    return count


def varint_checkpoints(blocks: Iterable[bytes], stride: int) -> tuple[array[int], int]:
    """Return where the values 0, ``stride``, 2 * ``stride``, … begin, and how many values there are.

    ``blocks`` follow each other without a gap and may be cut anywhere; offsets count from the start of the first. Keeps
    8 bytes per checkpoint, and one block at a time. Raises `MalformedError` where `packed_array` does.
    """
    from array import array

    import numpy as np

    if stride < 1:
        raise ValueError(f"the stride must be at least 1, not {stride}")
    starts = array("q", (0,))
    count = base = begun = 0  # complete values; offset of the piece; offset of the open value
    for block in blocks:
        for at in range(0, len(block), BLOCK_SIZE):
            piece = np.frombuffer(block, np.uint8, min(BLOCK_SIZE, len(block) - at), at)
            after = np.flatnonzero(piece < 0x80).astype(np.int64, copy=False)
            after += base + 1
            base += len(piece)
            if len(after):
                _check_lengths(after, begun)
                # The value after number count + i of all.
                starts.frombytes(after[(-count - 1) % stride :: stride].tobytes())
                count += len(after)
                begun = int(after[-1])
            if base - begun >= MAX_BYTES:
                raise _too_long(begun)
    if begun < base:
        raise _cut(begun)
    # The last checkpoint may be where no value follows.
    del starts[(count + stride - 1) // stride :]
    return starts, count


def _check_lengths(after: NDArray[Any], begun: int) -> None:
    """Raise for varints of more than ten bytes; they end before the offsets ``after``, the first began at ``begun``."""
    if int(after[0]) - begun > MAX_BYTES:
        raise _too_long(begun)
    if len(after) > 1:
        too_long = (after[1:] - after[:-1]) > MAX_BYTES
        first = int(too_long.argmax())
        if too_long[first]:
            raise _too_long(int(after[first]))


def _decode_block(block: bytes, base: int, out: NDArray[Any]) -> tuple[int, int]:
    """Write the whole varints of ``block`` to ``out``; return how many there are and how many bytes they take.

    ``block`` begins at offset ``base``, with a value. A varint that its end cuts is left for the next block, which
    begins with it. A block of less than `BLOCK_SIZE` bytes is the last one; there, a cut varint is an error.
    """
    import numpy as np

    text = np.frombuffer(block, np.uint8)
    if block.isascii():
        _store(text, out)
        return len(block), len(block)
    ends = np.flatnonzero(text < 0x80)
    used = int(ends[-1]) + 1 if len(ends) else 0
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    # Bytes after the first one.
    ends -= starts
    longest = int(ends.max(initial=0))
    if longest >= MAX_BYTES:
        raise _too_long(base + int(starts[(ends >= MAX_BYTES).argmax()]))
    if len(block) - used >= MAX_BYTES:
        raise _too_long(base + used)
    if used < len(block) < BLOCK_SIZE:
        raise _cut(base + used)
    extra = ends.astype(np.uint8)
    del ends
    _store(_gather(block, starts, extra, longest), out)
    return len(starts), used


def _store(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Write unsigned ``values`` to the front of ``out``: the low bits of each, or for bool whether any bit is set."""
    import numpy as np

    if out.itemsize == 1:
        np.not_equal(values, 0, out=out[: len(values)].view(np.bool_))
    else:
        out[: len(values)] = values


def _gather(block: bytes, starts: NDArray[Any], extra: NDArray[Any], longest: int) -> NDArray[Any]:
    """Return the varints that begin at ``starts`` and have ``extra`` bytes after the first, at most ``longest``."""
    import numpy as np

    # Read eight bytes at each start, and mask what follows the value. The groups of 7 bits then close up in three
    # steps: pairs, fours, all eight. (The same steps for any length: twice as fast as one round per byte.)
    words = np.ndarray((len(block),), "<u8", block + bytes(8), 0, (1,))
    values: NDArray[Any] = words[starts].astype(np.uint64, copy=False)
    values &= np.array(_GROUPS, np.uint64)[extra]
    for mask, shift in _CLOSE_UP:
        upper = values & np.uint64(mask)
        values ^= upper
        upper >>= np.uint64(shift)
        values |= upper
    if longest >= 8:
        text = np.frombuffer(block, np.uint8)
        for index in range(8, longest + 1):
            among = np.flatnonzero(extra >= index)
            more = text[starts[among] + index].astype(np.uint64)
            more &= np.uint64(0x7F)
            # One bit of the tenth byte remains.
            more <<= np.uint64(7 * index)
            values[among] |= more
    return values


def _undo_zigzag(values: NDArray[Any]) -> None:
    """Convert 0, 1, 2, 3 … to the bits of 0, -1, 1, -2 … in place, block by block."""
    for at in range(0, len(values), BLOCK_SIZE):
        part = values[at : at + BLOCK_SIZE]
        sign = part & 1
        part >>= 1
        # All bits set if the number is negative.
        part ^= ~sign + 1


def _cut(offset: int) -> MalformedError:
    return MalformedError("packed varint is cut short", offset=offset)


def _too_long(offset: int) -> MalformedError:
    return MalformedError(f"packed varint has more than {MAX_BYTES} bytes", offset=offset)
