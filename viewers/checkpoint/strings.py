"""Tensors of strings in a data file (tensor_bundle.cc, WriteStringTensor).

All lengths as varints, u32 masked CRC-32C of the lengths, then all bytes. That checksum is of each length as u32, or as
u64 from 2^32 on; both in the byte order of the machine. The one in the index is of these lengths, the stored checksum
and the bytes.
"""

from __future__ import annotations

from struct import pack, unpack_from

from pparse.errors import EndOfDataError, MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.kernels.crc32c import crc32c, masked
from pparse.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.reader import Range

_BLOCK: Final = 64 << 10
_CRC: Final = 4


class StringTensor(Tensor):
    """A tensor of strings; ``content`` are its bytes in the data file."""

    __slots__ = ("_content_range", "_crc")

    _content_range: Range | None
    _crc: int | None

    @property
    def is_text(self) -> bool:
        """Whether its elements are strings."""
        return True

    def strings(self) -> Iterator[bytes]:
        """Yield the elements in C order. Raises `MalformedError` if the lengths are not those of the content."""
        self._refuse_if_not_whole()
        content = self._content_range
        if content is None:
            raise UnsupportedError(f"{self.name!r} has no content", path=self.name)
        pos = strings_begin(content, self.size)
        for length, _ in lengths_in(content, self.size):
            yield content.data.read_exact(pos, length)
            pos += length

    def numpy(self, **options: Any) -> Any:
        """Return the strings as an array of bytes objects."""
        if options.get("raw"):
            return super().numpy(**options)
        import numpy as np

        self._refuse_if_not_whole()
        self._owner.extraction.session.limits.check(
            "scalar_bytes", 8 * self.size + self.stored_nbytes, "the array of strings", path=self.name
        )
        array = np.empty(self.size, object)
        for number, text in enumerate(self.strings()):
            array[number] = text
        return array.reshape(self.shape)

    def __getitem__(self, index: Any) -> Any:
        """Return what ``index`` selects: bytes, or an array of them."""
        from pparse.tensors.selection import normalise, pick

        items = normalise(index, self.shape)
        self._refuse_if_not_whole()
        return pick(self.strings(), items, self.shape, self._owner.extraction.session.limits)

    def verify(self) -> bool | None:
        """Compare the checksums, reading all of it; None if there is none."""
        content = self._content_range
        if self._crc is None or content is None or self.status is not Status.COMPLETE:
            return None
        return string_crc(content, self.size, self.byteorder) == self._crc


def lengths_in(content: Range, count: int) -> Iterator[tuple[int, int]]:
    """Yield ``count`` lengths, with where the next one, or the checksum, begins. Raises `MalformedError`."""
    size = len(content)
    if count > size:
        raise MalformedError(
            f"{size} bytes cannot hold {count:,} lengths", offset=content.start, wanted=count, got=size
        )
    pos, total = content.start, 0
    block, base = b"", content.start
    for _ in range(count):
        value = shift = 0
        while True:
            if pos - base >= len(block):
                base, block = pos, content.data.read_exact(pos, min(_BLOCK, content.end - pos))
                if not block:
                    raise EndOfDataError("the lengths of the strings end early", offset=pos)
            byte = block[pos - base]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise MalformedError("the length of a string is not valid", offset=pos)
        total += value
        if total > size:
            raise MalformedError("the strings are longer than their bytes", offset=pos, wanted=total, got=size)
        yield value, pos


def strings_begin(content: Range, count: int) -> int:
    """Return where the bytes of the strings begin. Raises `MalformedError` if they are not those of the lengths.

    The lengths are read again for the strings, and never held: there may be as many as bytes.
    """
    pos, total = content.start, 0
    for length, behind in lengths_in(content, count):
        pos, total = behind, total + length
    if pos + _CRC + total != content.end:
        reason = "the strings do not fill their bytes"
        raise MalformedError(reason, offset=pos, wanted=total, got=(content.end or 0) - pos - _CRC)
    return pos + _CRC


def string_crc(content: Range, count: int, byteorder: str = "little") -> int:
    """Return the masked checksum that an index states for a tensor of strings; -1 if the one inside is wrong.

    Lengths and inner checksum are in the byte order of the machine that wrote them.
    """
    order = ">" if byteorder == "big" else "<"
    pos = strings_begin(content, count)
    crc = 0
    for length, _ in lengths_in(content, count):
        crc = crc32c(pack(order + ("I" if length < 1 << 32 else "Q"), length), crc)
    stored = content.data.read_exact(pos - _CRC, _CRC)
    (stated,) = unpack_from(order + "I", stored)
    if masked(crc) != stated:
        return -1
    crc = crc32c(stored, crc)
    while pos < content.end:
        block = content.data.read_exact(pos, min(1 << 20, content.end - pos))
        crc = crc32c(block, crc)
        pos += len(block)
    return masked(crc)
