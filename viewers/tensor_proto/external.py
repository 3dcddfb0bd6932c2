"""Files beside a model of one message that hold bytes of its tensors: ONNX's external data, Core ML's weights."""

from __future__ import annotations

from collections import namedtuple

from pparse.data.base import blocks
from pparse.data.trailing_bytes import SHIFTED, has_odd_tail
from pparse.data.zero_runs import first_unwritten
from pparse.display.text import few
from pparse.document.opening import Resume
from pparse.errors import EndOfDataError, GapError, LimitError, PathError, SourceError
from pparse.findings import Finding, Status
from pparse.parsers.protobuf.message import Problem
from pparse.tensors.span import Span
from pparse.tensors.status import status_by_place
from pparse.viewers.tensor_proto.maker import TensorMaker
from pparse.viewers.tensor_proto.viewer import ProtoViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.document.folder import Folder
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.tensor_proto.maker import ProtoTensor

# -- the files (onnx: docs/ExternalData.md, ExternalDataSecurity.md) ---------------------------------------------------

# A location is a relative path with ``/`` that stays in the folder of the model. Symbolic links are followed, since
# download caches consist of them, but not out of that folder, or the one where the model really is: the name of a
# file that a hostile model chooses must not lead to the rest of the disk. A file that is not in the first folder is
# looked for in the second. Nothing of a file is read before a tensor is.

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
        if self.problem is not None and self.problem.is_damage:
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

    def place(
        self, location: str, offset: int, length: int | None, size: int, checksum: str | None = None
    ) -> PlacedOutside | Problem:
        """Return where the ``size`` bytes of a tensor are that begin at ``offset`` of the file ``location``.

        ``length``: how many bytes the model states, None if it does not; ``checksum``: the SHA-1 of the file.
        """
        if offset + size >= _FARTHEST:
            return Problem(Status.DAMAGED, f"its external data begin at byte {offset:,}, where no file can have any")
        if length is not None and length != size:
            reason = f"its external data have {length:,} bytes; type and shape need {size:,}"
            return Problem(Status.DAMAGED, reason, offset)
        file = self.file(location)
        if checksum and len(file.checksums) < 2:
            file.checksums.add(checksum.lower())
        file.wanted = max(file.wanted, offset + size)
        content = file.content
        if content is None:
            return file.problem or Problem(Status.MISSING, f"its bytes are in {location}, which cannot be read")
        return self._placed(content, location, offset, length, size)

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

    def file(self, location: str) -> ExternalFile:
        """Return a file, which is opened when it is asked for first."""
        file = self._files.get(location)
        if file is None:
            limits = self._extraction.session.limits
            limits.check("entries", len(self._files) + 1, "the number of files with external data")
            file = self._files[location] = self._opened(location)
        return file

    def has(self, location: str) -> bool:
        """Return whether a file is there: one that the model can do without, since it may be in other files."""
        is_there = self.file(location).content is not None
        if not is_there:
            del self._files[location]
        return is_there

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
        folder = self._folder if extraction.folder is None else None
        if folder is None:
            try:
                found = extraction.sibling(name)
                found.find_end()  # a file is opened when it is asked
                return found
            except SourceError as error:
                own, path = extraction.folder, extraction.data.path
                folder = own.behind(path) if own is not None and path is not None and is_absent(error) else None
                if folder is None:
                    raise
        entered: Extraction = folder.enter(name, extraction)
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
            try:
                for block in blocks(content.data.read_exact, start, end, _BLOCK):
                    content.session.check_cancelled()
                    digest.update(block)
            except (EndOfDataError, GapError):
                continue
            if file.checksums == {digest.hexdigest()}:
                content.data.vouch(start, end)
                continue
            if file.lacks or content.data.range_status(start, end).status is not Status.COMPLETE:
                continue  # what is known to be wrong with it explains that, and other tensors in it may be whole
            stated = " and ".join(sorted(file.checksums))
            reason = f"the SHA-1 of {location} is {digest.hexdigest()}; the model states {stated[:90]}"
            content.data.condemn(start, end, reason)
            yield Finding("hash", reason, source=content.path, offset=start, length=end - start)


def is_absent(error: Exception) -> bool:
    """Return whether an error means that there is no such file."""
    import errno

    return isinstance(error, SourceError) and error.errno == errno.ENOENT


class ExternalMaker(TensorMaker):
    """Makes tensors of which some lie in files beside the model."""

    external: ExternalFiles

    def put(self, made: ProtoTensor, found: PlacedOutside | Problem, size: int, location: str) -> None:
        """Give a tensor of ``size`` bytes the place that was found for it, in the file ``location``."""
        if isinstance(found, Problem):
            if found.status is Status.MISSING:
                made.spans = (Span(None, 0, size, location),)
            self.judge(made, found)
            return
        made.spans = (found.span,)
        made.status = found.status
        if found.reason:
            if found.status is Status.COMPLETE:
                made.finding = self.warning("external-data", found.reason, made.name, size, found.got)
            elif found.status is Status.DAMAGED:  # all of its bytes are there
                where: Any = {"source": self.extraction.name, "offset": found.span.offset}
                made.finding = Finding("shifted", found.reason, path=made.name, **where)
            else:
                self.judge(made, Problem(found.status, found.reason, found.span.offset), None, size, found.got)
        made.unwritten_nbytes = self.owner.unwritten(made)[1] if made.is_complete else 0


class ExternalViewer(ProtoViewer):
    """A viewer of a model whose tensors may lie in files beside it."""

    external: ExternalFiles
    """The files."""
    _resolved = False

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the files with external data that are there."""
        self._list_files()
        for name, file in self.external:
            if file.content is not None:
                yield name, file.content

    def _list_files(self) -> None:
        """List all tensors, so that all files beside are known, and what is needed of them."""
        for _ in self.tensors():
            pass

    def knows_files(self) -> bool:
        """List all tensors, so that it is known what of the files beside is needed; return whether none can be lost."""
        try:
            self._list_files()
        except LimitError:
            return False
        return self.is_whole()

    def resolve_all(self) -> None:
        """From now on, let checksums of external files be compared before their tensors are listed."""
        if not self._resolved:
            self._resolved = True
            self._list_files()
            for _ in self._check_files():
                pass

    @property
    def _compares(self) -> bool:  # type: ignore[override]
        """Whether tensors lie in files beside the model."""
        return bool(self.external)

    def resolve(self, tensor: Tensor) -> None:
        """Compare the checksums that cover the bytes of ``tensor``, if that costs little, before they are returned."""
        super().resolve(tensor)
        self.external.resolve(tensor)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything, look at each tensor, and compare the files beside the model with their checksums."""
        yield from super().check(strict=strict)
        self._resolved = True
        yield from self._check_files()

    def _check_files(self) -> Iterator[Finding]:
        """Compare the checksums of the files that listed tensors are in, and yield what is wrong."""
        for finding in self.external.verify():
            self.findings.add(finding)
            self.note_damage()
            yield finding

    def _lacking(self) -> list[tuple[str, ExternalFile]]:
        """Return the files that lack bytes of a model that is whole itself."""
        found = [(name, file) for name, file in self.external if file.lacks]
        return found if found and self.is_whole() else []

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; files beside the model may lack bytes, too."""
        for name, file in self.external:
            if file.content is not None and not file.checksums and file.is_longer and self.knows_files():
                where: Any = {"source": name, "offset": file.wanted, "length": file.there - file.wanted}
                reason = "bytes after the last tensor belong to no tensor"
                self.findings.add(Finding("trailing-bytes", reason, **where))
        for name, file in self.external if extent.unwritten else ():
            content = file.content
            hole = None if content is None else first_unwritten(content.data, content.start, content.find_end())
            if hole is not None:
                extent.resume.append(Resume(self.external.path_of(name), hole, hole=True))
        lacking = self._lacking()
        if not lacking:
            return super().close_extent(extent)
        extent.actual = (extent.actual or 0) + sum(file.there for _, file in self.external)
        extent.expected = extent.actual
        for name, file in lacking:
            extent.missing_files += file.content is None
            extent.cut_files += file.content is not None
            extent.expected += max(0, file.wanted - file.there)
            extent.resume.append(Resume(self.external.path_of(name), file.there, size=file.wanted))
        extent.at_least = bool(extent.missing_files)
        return self.keep_extent(extent)

    def truncation(self, extent: Extent) -> Finding:
        """Return the finding on a model that lacks bytes, its own or of files beside it."""
        lacking = self._lacking()
        if not lacking:
            return super().truncation(extent)
        name, file = lacking[0]
        what = f"{name}, beside the model, " + ("is not there" if file.content is None else "lacks bytes")
        if len(lacking) > 1:
            what = f"{len(lacking)} files beside the model lack bytes or are not there: "
            what += few(name for name, _ in lacking)
        hit = f"; first tensor hit: {extent.first_hit}" if extent.first_hit is not None else ""
        return Finding("truncated", what + hit, source=self.extraction.name)
