"""Archives of arrays (.npz): a zip of .npy files, stored. `numpy.load` opens them.

All sizes are known beforehand, so every array has its place before the first byte is written; only the checksums of the
headers come last.
"""

from __future__ import annotations

from struct import pack
from zlib import crc32

from pparse.conversion.items import Item
from pparse.kernels.joined_crc import joined_crc
from pparse.recovery.reader_rules import NPY, why_no_name
from pparse.writers.npy import npy_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final

    from pparse.tensors.block_tensor import BlockTensor
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor

_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_DAY: Final = 1 << 5 | 1  # 1980-01-01, for the same bytes each time
_UTF8: Final = 1 << 11
_MODE: Final = 0o100644 << 16  # a plain file


class NpzForm:
    """How an .npz holds its items. Types that numpy lacks are unsigned integers of that width with the same bits."""

    name = "npz"
    packed = False  #: elements below 8 bits take a byte each
    holds_metadata = False
    has_checksums = True

    def refusal(self, name: str, dtype: DType, shape: tuple[int, ...], size: int) -> str | None:
        """Return why a tensor cannot be written; None if it can."""
        return why_no_name(name, self.name)

    def copies(self, tensor: BlockTensor) -> bool:
        """Say whether the blocks of a tensor are written as they stand: no, only GGUF has blocks."""
        return False

    def item(self, tensor: Tensor, name: str, dtype: DType, number: int) -> Item:
        """Return the item of a tensor that is to have ``dtype``."""
        return Item(tensor, name, dtype, number, packed=self.packed)

    def notes(self) -> Iterator[str]:
        """Yield what to tell of the output: nothing."""
        yield from ()

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Give each of ``items`` its place; return the size of what comes before them, 0, and of the file.

        The checksum of an item begins with that of the header that numpy has before its elements.
        """
        at = 0
        for item in items:
            item.crc = first_crc(item)
            item.at = at + len(self.lead(item))
            at = item.at + item.nbytes
        return 0, at + sum(map(len, self.tail(items)))

    def head(self, items: list[Item], metadata: Mapping[str, str], size: int) -> Iterator[bytes]:
        """Yield what comes before all items: nothing."""
        yield from ()

    def lead(self, item: Item) -> bytes:
        """Return what comes just before an item: the zip's header of the array, with its checksum, and numpy's."""
        name, inner = _name(item), array_header(item)
        size = len(inner) + item.nbytes
        extra = pack("<HHQQ", 1, 16, size, size) if size >= _FULL32 else b""
        short = min(size, _FULL32)
        what = pack("<5H", 45 if extra else 20, _flags(name), 0, 0, _DAY)
        sizes = pack("<3I2H", item.crc, short, short, len(name), len(extra))
        return b"PK\3\4" + what + sizes + name + extra + inner

    def crc_of(self, item: Item, crc: int) -> int:
        """Return the CRC-32 of what is written of an item, whose bytes have ``crc``: numpy's header comes first."""
        return joined_crc(first_crc(item), crc, item.nbytes)

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items: the zip's directory."""
        start = items[-1].at + items[-1].nbytes if items else 0
        length = at = 0
        for item in items:
            name, size = _name(item), len(array_header(item)) + item.nbytes
            large = [number for number in (size, size, at) if number >= _FULL32]
            extra = pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
            short = min(size, _FULL32)
            what = pack("<6H", 3 << 8 | 45, 45 if extra else 20, _flags(name), 0, 0, _DAY)
            sizes = pack("<3I5H2I", item.crc, short, short, len(name), len(extra), 0, 0, 0, _MODE, min(at, _FULL32))
            entry = b"PK\1\2" + what + sizes + name + extra
            yield entry
            length += len(entry)
            at = item.at + item.nbytes
        if len(items) >= _FULL16 or start >= _FULL32 or length >= _FULL32:
            yield pack(
                "<4sQ2H2I4Q", b"PK\6\6", 44, 3 << 8 | 45, 45, 0, 0, len(items), len(items), length, start
            ) + pack("<4sIQI", b"PK\6\7", 0, start + length, 1)
        count = min(len(items), _FULL16)
        yield pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, min(length, _FULL32), min(start, _FULL32), 0)


def array_header(item: Item) -> bytes:
    """Return numpy's header of an array."""
    dtype = item.dtype
    form = dtype.raw_numpy if dtype.numpy.isbuiltin == 2 else dtype.numpy
    return npy_header(form, item.tensor.shape)


def bits_note(dtype: DType) -> str:
    """Return what to tell of a type that numpy lacks."""
    return f"numpy has no {dtype}: its bits are written as {dtype.raw_numpy}; read them with .view(ml_dtypes.{dtype})"


def first_crc(item: Item) -> int:
    """Return the CRC-32 of what an array's file holds before its elements."""
    return crc32(array_header(item))


def _name(item: Item) -> bytes:
    return (item.name + NPY).encode()


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else _UTF8
