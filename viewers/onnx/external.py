"""The files beside a model that hold the bytes of its tensors (onnx: docs/ExternalData.md, ExternalDataSecurity.md).

A location is a relative path with ``/`` that stays in the folder of the model. Symbolic links are followed, since
download caches consist of them, but not out of that folder, or the one where the model really is: the name of a file
that a hostile model chooses must not lead to the rest of the disk. A file that is not in the first folder is looked for
in the second. Nothing of a file is read before a tensor is.
"""

from __future__ import annotations

from collections import namedtuple

from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.display.text import shorten
from pparse.errors import EndOfDataError, PathError, SourceError
from pparse.findings import Finding, Status
from pparse.parsers.protobuf.message import Problem
from pparse.tensors.status import status_by_place
from pparse.tensors.tensor import Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Final

    from pparse.document.extraction import Extraction
    from pparse.document.folder import Folder
    from pparse.tensors.tensor import Tensor

# The keys (onnx/external_data_helper.py, ExternalDataInfo); "basepath" is what some writers leave behind, and
# onnxruntime adds "prepacked_0" and so on.
_LOCATION, _OFFSET, _LENGTH, _CHECKSUM = "location", "offset", "length", "checksum"
_KEYS: Final = (_LOCATION, _OFFSET, _LENGTH, _CHECKSUM, "basepath")
_PACKED: Final = "prepacked_"
_DIGITS: Final = 19
_FARTHEST: Final = 1 << 62
_BLOCK: Final = 1 << 20
_BEHIND_GAP: Final = "an unknown number of bytes is lost before it, so its bytes may be those of another place"


class PlacedOutside(namedtuple("PlacedOutside", "span status reason got")):
    """Where the bytes of a tensor are in another file.

    ``reason`` is what is wrong or odd, in words; empty: nothing. ``got`` is how many of the bytes are there, or how
    many the file states.
    """

    __slots__ = ()


class ExternalFile:
    """One file: what is in it, or why it cannot be read; and what its tensors need of it."""

    __slots__ = ("checksums", "content", "problem", "wanted")

    def __init__(self, content: Extraction | None, problem: Problem | None) -> None:
        self.content = content
        self.problem = problem
        self.wanted = 0
        """Where the last tensor in it ends."""
        self.checksums: set[str] = set()
        """Its SHA-1, as the tensors state it."""

    @property
    def lacks(self) -> bool:
        """Whether it is not there, or lacks bytes of a tensor; what may not be read at all, nobody has to fetch."""
        if self.problem is not None and self.problem.status is Status.DAMAGED:
            return False
        return self.content is None or self.there < self.wanted

    @property
    def loose_from(self) -> int | None:
        """From where on in its data the places of bytes are not known, since nobody knows how many are lost there."""
        if self.content is None:
            return None
        found = self.content.data.loose_gap(self.content.start)
        return None if found is None or found >= self.content.find_end() else found

    @property
    def is_longer(self) -> bool:
        """Whether more follows the last tensor in it that is known so far, and that is no padding."""
        content = self.content
        if content is None or self.there <= self.wanted:
            return False
        return has_odd_tail(content.data, content.start, content.start + self.wanted, content.start + self.there)

    @property
    def there(self) -> int:
        """How many bytes it has; 0 if it cannot be read."""
        return 0 if self.content is None else self.content.find_end() - self.content.start


class ExternalFiles:
    """The files with external data of one model, each opened when the first tensor in it is listed."""

    def __init__(self, extraction: Extraction, learn: Callable[[], bool]) -> None:
        """``learn`` lists all tensors of the model, and returns whether none of them can be lost."""
        self._extraction = extraction
        self._files: dict[str, ExternalFile] = {}
        self._learn = learn
        self._are_known: bool | None = None  # None: their tensors were not all listed yet

    def __iter__(self) -> Iterator[tuple[str, ExternalFile]]:
        return iter(self._files.items())

    def __bool__(self) -> bool:
        return bool(self._files)

    def path_of(self, name: str) -> str:
        """Return the path of a file beside the model, as the caller who named the model would write it."""
        return name if self._folder is None else self._folder.path_of(name)

    def find(self, pairs: Mapping[str, str], size: int) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a tensor are that ``pairs`` place."""
        location = pairs.get(_LOCATION, "")
        if not location:
            return Problem(Status.DAMAGED, "its bytes are in another file, and no location is given")
        place: list[int | None] = []
        for key in (_OFFSET, _LENGTH):
            text = pairs.get(key)
            if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
                return Problem(Status.DAMAGED, f"the {key} of its external data is {text[:40]!r}, not a number")
            place.append(None if text is None else int(text))
        offset, length = place[0] or 0, place[1]
        if offset + size >= _FARTHEST:
            return Problem(Status.DAMAGED, f"its external data begin at byte {offset:,}, where no file can have any")
        if length is not None and length != size:
            reason = f"its external data have {length:,} bytes; type and shape need {size:,}"
            return Problem(Status.DAMAGED, reason, offset)
        file = self._file(location)
        checksum = pairs.get(_CHECKSUM)
        if checksum and len(file.checksums) < 2:
            file.checksums.add(checksum.lower())
        file.wanted = max(file.wanted, offset + size)
        content = file.content
        if content is None:
            return file.problem or Problem(Status.MISSING, f"its bytes are in {location}, which cannot be read")
        placed = self._placed(content, location, offset, length, size)
        odd = next((key for key in pairs if key not in _KEYS and not key.startswith(_PACKED)), None)
        if odd is not None and place[0] is None and size and placed.status is Status.COMPLETE:
            reason = f"its external data have {shorten(odd, 40)!r}, which no reader knows, and no offset"
            return PlacedOutside(placed.span, Status.DAMAGED, reason, size)
        return placed

    def _placed(self, content: Extraction, location: str, offset: int, length: int | None, size: int) -> PlacedOutside:
        there = content.find_end() - content.start
        folder = self._extraction.folder
        path = content.path if folder is None else folder.path_of(location)
        span = Span(content.data, content.start + offset, size, path, content.end)
        status = status_by_place(offset, offset + size, there)
        if status is not Status.COMPLETE:
            got = max(0, min(size, there - offset))
            reason = f"its bytes end at {offset + size:,} of {location}, which has {there:,} bytes"
            return PlacedOutside(span, status, reason, got)
        if length is None and there - offset != size:
            reason = f"no length is given, and {there - offset:,} bytes of {location} follow its offset: onnx takes all"
            return PlacedOutside(span, status, reason, there - offset)
        loose = self._files[location].loose_from
        if size and loose is not None and loose < span.offset + size:
            return PlacedOutside(span, Status.DAMAGED, _BEHIND_GAP, size)
        if size and self._has_grown(self._files[location]):
            return PlacedOutside(span, Status.DAMAGED, SHIFTED, size)
        return PlacedOutside(span, status, "", size)

    def _has_grown(self, file: ExternalFile) -> bool:
        """Say whether a file is longer than its tensors need, so that bytes may have been inserted anywhere in it.

        A checksum tells better, when it is compared.
        """
        if not file.is_longer or file.checksums:
            return False
        if self._are_known is None:
            self._are_known = False  # for those that are listed now
            self._are_known = self._learn()
        return self._are_known and file.is_longer

    # -- files ---------------------------------------------------------------------------------------------------------

    def _file(self, location: str) -> ExternalFile:
        file = self._files.get(location)
        if file is None:
            self._extraction.session.limits.check(
                "entries", len(self._files) + 1, "the number of files with external data"
            )
            file = self._files[location] = self._opened(location)
        return file

    def _opened(self, location: str) -> ExternalFile:
        extraction = self._extraction
        name = "/".join(part for part in location.split("/") if part != ".") if "/" in location else location
        folder = self._folder
        try:
            if folder is not None and not folder.keeps(name, extraction.data.path):
                reason = f"its bytes are in {location}, a link that leads out of the model's folder: it is not followed"
                return ExternalFile(None, Problem(Status.DAMAGED, reason))
            return ExternalFile(self._entered(name), None)
        except PathError as error:
            return ExternalFile(None, Problem(Status.DAMAGED, f"its bytes are in {location!r}: {error.reason}"))
        except (SourceError, EndOfDataError) as error:
            what = "is not there" if is_absent(error) else f"cannot be read: {error.reason}"
            if folder is None:
                what = "is not known, as is where the model lies (folder=)"
            return ExternalFile(None, Problem(Status.MISSING, f"its bytes are in {location}, which {what}"))

    @property
    def _folder(self) -> Folder | None:
        """The folder of the model; also where a walk through an archive came to it: its bytes are not all in it."""
        found = self._extraction.folder
        origin = self._extraction.outermost.origin
        return found if found is not None or origin is None else origin[0].folder_of(origin[1])

    def _entered(self, name: str) -> Extraction:
        extraction = self._extraction
        if extraction.folder is None and (folder := self._folder) is not None:
            entered: Extraction = folder.enter(name, extraction)
            entered.refuse_placeholder()
            return entered
        try:
            found = extraction.sibling(name)
            found.find_end()  # a file is opened when it is asked
            return found
        except SourceError as error:
            folder, path = extraction.folder, extraction.data.path
            behind = folder.behind(path) if folder is not None and path is not None and is_absent(error) else None
            if behind is None:
                raise
            entered = behind.enter(name, extraction)
            entered.refuse_placeholder()
            return entered

    def resolve(self, tensor: Tensor) -> None:
        """Compare the checksum of an archive for the file that has the bytes of a tensor, if that costs little."""
        for span in tensor.spans:
            for file in self._files.values():
                content = file.content
                if content is not None and content.data is span.data and content.start <= span.offset:
                    content.resolve()

    # -- what is wrong -------------------------------------------------------------------------------------------------

    def verify(self) -> Iterator[Finding]:
        """Compare the files with their checksums, also those of archives that they lie in; yield what is wrong."""
        from hashlib import sha1

        for location, file in self._files.items():
            content = file.content
            if content is None:
                continue
            if content.origin is not None and not content.proved:
                found = content.origin[0].verify_opened(content)
                content.proved = True
                if found is not None:
                    yield found
            if not file.checksums:
                continue
            digest = sha1(usedforsecurity=False)
            start, end = content.start, content.find_end()
            for at in range(start, end, _BLOCK):
                content.session.check_cancelled()
                digest.update(content.data.read_exact(at, min(_BLOCK, end - at)))
            if file.checksums == {digest.hexdigest()}:
                content.data.vouch(start, end)
                continue
            stated = " and ".join(sorted(file.checksums))
            reason = f"the SHA-1 of {location} is {digest.hexdigest()}; the model states {stated[:90]}"
            content.data.condemn(start, end, reason)
            yield Finding("hash", reason, source=content.path, offset=start, length=end - start)


def is_absent(error: Exception) -> bool:
    """Return whether an error means that there is no such file."""
    import errno

    return isinstance(error, SourceError) and error.errno == errno.ENOENT
