"""The file beside an ML program that holds its weights: blobs, each with a header of 64 bytes.

The format: `pparse.parsers.milblob`. There are no checksums: behind a place where bytes came in, or went, no
header stands where a value names one; the blob in which that is, the header behind it tells.
"""

from __future__ import annotations

from pparse.errors import DataError
from pparse.findings import Status
from pparse.parsers.milblob import HEADER, SENTINEL, SIZE, TYPES
from pparse.parsers.protobuf.message import Problem, problem_of
from pparse.viewers.tensor_proto.external import ExternalFiles, PlacedOutside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.viewers.tensor_proto.external import ExternalFile

# The numbers of types in headers, by their names in MIL.
_TYPES: Final = {word: number for number, word in enumerate(TYPES, 1)}
_ROOT: Final = "@model_path/"


class BlobFiles(ExternalFiles):
    """The files with weights of one model."""

    def find(self, name: str, offset: int, type_word: str, size: int) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a value are whose header is at ``offset`` of the file ``name``."""
        location = name.removeprefix(_ROOT)
        file = self.file(location)
        if file.content is None or offset + SIZE > file.there:
            return self.place(location, offset + SIZE, None, size)
        if not file.wanted:
            file.wanted = self._end(file)
        found = _header(file, offset)
        if isinstance(found, Problem):
            return found
        kind, length, start = found
        if kind != _TYPES.get(type_word, kind):
            return Problem(Status.DAMAGED, f"the header of its bytes in {location} says type {kind}", offset)
        placed = self.place(location, start, length, size)
        if isinstance(placed, Problem) or placed.status is not Status.COMPLETE:
            return placed
        behind = _aligned(start + length)
        if behind + SIZE <= file.there and isinstance(_header(file, behind), Problem):
            reason = f"no header follows its bytes in {location}: some may have gone there, or come in"
            return placed._replace(status=Status.DAMAGED, reason=reason)
        return placed

    def _end(self, file: ExternalFile) -> int:
        """Return where the last blob ends that is reached from header to header."""
        count = self._fields(file, 0)[0]
        at, end = SIZE, SIZE
        for number in range(min(count, file.there // SIZE)):
            if not number & 0xFF:
                self._extraction.session.check_cancelled()
            if at + SIZE > file.there or isinstance(found := _header(file, at), Problem):
                break
            end = found[2] + found[1]
            if end <= at or end > file.there:
                break
            at = _aligned(end)
        return min(end, file.there)

    @staticmethod
    def _fields(file: ExternalFile, at: int) -> Any:
        content: Any = file.content
        return HEADER.unpack(content.data.read_exact(content.start + at, HEADER.size))


def _header(file: ExternalFile, at: int) -> tuple[int, int, int] | Problem:
    """Return type, length and begin of the blob whose header is at ``at``."""
    try:
        sentinel, kind, length, start, _ = BlobFiles._fields(file, at)
    except DataError as error:
        return problem_of(error)
    if sentinel != SENTINEL or start < at + SIZE or start % SIZE:
        return Problem(Status.DAMAGED, f"there is no header of a blob at byte {at:,} of its file", at)
    return kind, length, start


def _aligned(at: int) -> int:
    return -(-at // SIZE) * SIZE
