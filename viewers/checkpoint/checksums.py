"""Checksums of tensors: read for themselves, or followed while a large tensor is read, which need not be read twice."""

from __future__ import annotations

from pparse.errors import EndOfDataError
from pparse.kernels.crc32c import crc32c, masked
from pparse.locking import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.findings import Finding, FindingList
    from pparse.tensors.tensor import Span

_BLOCK: Final = 256 << 10
CONTRADICTED: Final = "its checksum is wrong"


class Follower:
    """The checksum of the bytes of one tensor that were read so far, from the first on. Thread-safe."""

    def __init__(self, span: Span, wanted: int, contradiction: Finding, findings: FindingList) -> None:
        """``wanted`` is the masked CRC-32C, ``contradiction`` what is added to ``findings`` if it is another."""
        self._span = span
        self._wanted = wanted
        self._contradiction = contradiction
        self._findings = findings
        self._lock = Lock()
        self._at = 0
        self._crc = 0

    def follows(self, span: Span) -> bool:
        """Return whether it is the checksum of these bytes."""
        own = self._span
        return own.data is span.data and own.offset == span.offset and own.length == span.length

    def feed(self, offset: int, piece: memoryview) -> None:
        """Take a stretch that was read; with the last one, vouch for all bytes, or condemn them.

        A stretch that does not begin where the last one ended, such as a slice, is not counted; the first begins anew.
        """
        with self._lock:
            if not offset:
                self._at = self._crc = 0
            if offset != self._at:
                return
            self._crc = crc32c(piece, self._crc)
            self._at += len(piece)
            done = self._at == self._span.length
        data = self._span.data
        if not done or data is None:
            return
        start, end = self._span.offset, self._span.offset + self._span.length
        if masked(self._crc) == self._wanted:
            data.vouch(start, end)
        else:
            data.condemn(start, end, CONTRADICTED)
            self._findings.add(self._contradiction)


def crc_of(data: Data, offset: int, length: int, poll: Any) -> int:
    """Return the masked CRC-32C of bytes, read piece by piece."""
    crc = 0
    # One buffer for all of it: a new one each time costs as much as the checksum.
    buffer = memoryview(bytearray(min(_BLOCK, length)))
    for at in range(offset, offset + length, _BLOCK):
        poll()
        view = buffer[: min(_BLOCK, offset + length - at)]
        if data.preadinto(at, view) < len(view):
            raise EndOfDataError("the bytes of the tensor end early", offset=at, wanted=len(view))
        crc = crc32c(view, crc)
    return masked(crc)
