"""The tensors of a distributed checkpoint of PyTorch, put together from their chunks (`pparse.parsers.pytorch.dcp`).

What lists them reads the pickle ``.metadata`` alone, and asks for the sizes of the shards: a chunk's archive is opened
when its bytes are read. The type and shape that it has itself must be those that ``.metadata`` says.
"""

from __future__ import annotations

from array import array
from copy import copy
from math import prod
from zlib import crc32

from pparse.data.spliced import DerivedData
from pparse.document.extraction import Extraction
from pparse.document.registry import viewer_for
from pparse.errors import DataError, EndOfDataError, MalformedError
from pparse.findings import Finding, Severity, Status
from pparse.limits import LITTLE, are, count_words
from pparse.parsers.pytorch.dcp import state_of
from pparse.parsers.pytorch.rebuild import Odd, numbers, torch_type
from pparse.tensors.dtype import DTYPES
from pparse.tensors.node_viewer import NodeViewer, join
from pparse.tensors.parts import DataFiles, Fragment, box_of, covers, put_together, refusal
from pparse.tensors.span import Span
from pparse.tensors.status import finding_by_status
from pparse.tensors.tensor import UNKNOWN_SHAPE, Tensor
from pparse.viewers.pickle.viewer import MOST_FACTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.parsers.pickle.values import Call
    from pparse.parsers.pytorch.dcp import DcpParser, Place
    from pparse.tensors.dtype import DType
    from pparse.tensors.status import Extent
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node


_OBJECT: Final = "BytesStorageMetadata"
# torch counts these elements by two.
_BY_TWO: Final = "float4_e2m1fn_x2"


class ChunkArray(DerivedData):
    """The bytes of a chunk as an array in C order: its archive is opened when they are read.

    The checksum of a small one is compared then; that of a larger one once all were read, in their order.
    """

    copies = False

    def __init__(self, owner: DcpViewer, file: Extraction, place: Place, dtype: DType, shape: tuple[int, ...]) -> None:
        super().__init__(f"{file.name}[{place.offset:,}]", dtype.stored_nbytes(prod(shape)))
        self.begin = file.start + place.offset
        """Where the archive begins."""
        self.end = self.begin + place.length
        """Where it ends."""
        self.sources = (file.data,)
        self._owner, self._file, self._number, self._dtype, self._shape = owner, file, place.number, dtype, shape
        self._direct: tuple[Data, int] | None = None  # where the bytes stand as in memory
        self._checked = False
        self._wanted = -1  # the CRC-32 of the bytes that stand there; -1: none
        self._read = 0, 0  # how many were read in order, and the CRC-32 of those
        if self._is_checked:
            self._prove()

    def pieces(self, start: int, end: int) -> tuple[tuple[Data, int, int], ...]:
        """Return the archive, as far as it is there."""
        return ((self._file.data, self.begin, self.end),)

    def _how(self) -> tuple[object, ...]:
        return (self._shape, self._dtype.name)

    @property
    def there(self) -> int:
        """How many of the bytes there are, from the first on, in a file that may end in the archive."""
        last = self._file.find_end()
        if self.end <= last or self.begin >= last:
            return self.size or 0 if self.end <= last else 0
        try:
            inner = self._open()
        except DataError:
            return 0
        return inner.available_nbytes if inner.is_stored_as_array else 0

    @property
    def offset(self) -> int:
        """Where the bytes begin in the file; of one that cannot be opened, or has others, where the archive does."""
        if self._direct is None:
            try:
                self._open()
            except DataError:
                return self.begin
        return self.begin if self._direct is None or self._direct[0] is not self._file.data else self._direct[1]

    def _open(self) -> Tensor:
        """Return the tensor in the archive. Raises `DataError` if there is none, or another one."""
        inner = self._owner.open_archive(self._file, self.begin, self.end)
        found = None if inner is None else next(iter(inner.tensors()), None)
        reason, is_there = "", self.end <= self._file.find_end()
        if found is None or found.name:
            reason = "a chunk of it is no archive with one tensor"
        elif found.is_shape_known and (found.dtype is not self._dtype or found.shape != self._shape):
            reason = f"a chunk of it is of type and shape {found.type_name} {found.shape_text} in its archive"
        else:
            if found._is_flawed():
                found.resolve()  # around it, something is wrong: its own checksum may tell that it is right
            if not found.is_complete and (is_there or found.status is not Status.TRUNCATED):
                reason = f"in the archive of a chunk, {'it is lost' if found.finding is None else found.finding.reason}"
        if found is None or reason:
            if is_there:
                self._file.data.condemn(self.begin, self.end, reason)
            raise MalformedError(reason, offset=self.begin)
        span = found.content_span
        if (self.size or 0) <= LITTLE:
            self._compare(found)
        if inner is not None and found.is_stored_as_array and span is not None and span.data is not None:
            if not self._is_checked and is_there:
                (self._wanted,) = inner.resolve_all_but((found,)) or (-1,)
            self._direct = span.data, span.offset
        return found

    @property
    def _is_checked(self) -> bool:
        return self._checked or bool(self._owner.parser.places.proved[self._number])

    def _prove(self) -> None:
        """Note that the checksum agrees: whatever is said of the archive around the bytes, these are right."""
        self._owner.parser.places.proved[self._number] = 1
        self.vouch(0, self.size or 0)

    def verify(self) -> None:
        """Compare the checksum of the bytes, once."""
        if not self._is_checked:
            try:
                self._compare(self._open())
            except DataError:  # told as the status
                pass

    def _compare(self, found: Tensor) -> None:
        if self._is_checked:
            return
        self._checked = True
        for span in found.spans:
            span.verify()
        if found.is_complete and found.verified:
            self._prove()
            for finding in found._owner.extraction.findings:  # of the archive around what is right
                if finding.is_fault:
                    self._owner.findings.add(finding)

    def _follow(self, offset: int, view: memoryview) -> None:
        """Take bytes into the checksum, if those before were."""
        done, crc = self._read
        if self._wanted < 0 or not offset <= done < offset + len(view):
            return
        done, crc = self._read = offset + len(view), crc32(view[done - offset :], crc)
        if done < (self.size or 0):
            return
        if crc == self._wanted:
            self._prove()
            self._file.data.stats.discover(good=True)
        self._wanted = -1
        self.verify()  # if it is another one, this says why

    def _pread(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        return bytes(found[: self._preadinto(offset, memoryview(found))])

    def _preadinto(self, offset: int, view: memoryview) -> int:
        inner = None if self._direct is not None else self._open()
        if self._direct is not None:
            data, base = self._direct
            got = data.preadinto(base + offset, view)
            self._follow(offset, view[:got])
            return got
        item, done = self._dtype.itemsize, 0
        skip = offset % item
        for block in inner.array_blocks(start=offset // item) if inner is not None else ():
            piece = block[skip : skip + len(view) - done]
            view[done : done + len(piece)] = piece
            done, skip = done + len(piece), 0
            if done == len(view):
                break
        return done


class ChunkSpan(Span):
    """Where the bytes of a chunk are: found when it is asked for."""

    __slots__ = ("chunk",)

    def __init__(self, chunk: ChunkArray, file: Extraction) -> None:
        self.chunk, self.data, self.length = chunk, file.data, chunk.size or 0
        self.path, self.end = file.path, file.end

    @property
    def is_placed(self) -> bool:  # type: ignore[override]
        """Whether the archive was opened."""
        return self.chunk._direct is not None

    @property
    def offset(self) -> int:  # type: ignore[override]
        """Where the bytes begin."""
        return self.chunk.offset

    @property
    def there(self) -> int:
        """How many of the bytes exist."""
        return self.chunk.there

    @property
    def found_at(self) -> int:
        """Where the archive begins."""
        return self.chunk.begin

    @property
    def place(self) -> tuple[object, ...]:
        """The archive."""
        return id(self.data), self.chunk.begin, self.length

    def verify(self) -> None:
        """Compare the checksum: of a small chunk, reading it does."""
        self.chunk.verify()

    @property
    def is_proved(self) -> bool:
        """Whether its checksum agreed; never reads."""
        return self.chunk.is_proved(0, self.length)

    def resolve(self) -> None:
        """Compare that of a small chunk if something is known against the file: it may tell that the chunk is right."""
        if self.length <= LITTLE and self.data is not None and self.data.flawed:
            self.chunk.verify()


class DcpViewer(NodeViewer):
    """A mapping of names to the tensors of a distributed checkpoint."""

    parser: DcpParser
    needs_name = False
    most_facts = MOST_FACTS
    resolves_late = True
    row_bytes = 1_500
    runs_ahead = 2  # a tensor may have thousands of chunks

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser  # type: ignore[assignment]
        parser = self.parser
        self._files = DataFiles(extraction, lambda: len(parser.places.files), lambda file: parser.places.files[file])

    @property
    def has_values(self) -> bool:  # type: ignore[override]
        """Whether it lies in a folder, where its shards can be."""
        return self.extraction.folder is not None

    @property
    def table(self) -> Node | None:
        """What describes the tensors and objects, by name."""
        return self.parser.described

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors, with `runs_ahead`."""
        yield from super().tensors()

    # -- one tensor ----------------------------------------------------------------------------------------------------

    def tensor_of(self, node: Node, name: str) -> Tensor | None:
        """Return the tensor that a child of the table describes; None if it is an object, or was saved as one."""
        try:
            value = self.parser.value_of(node)
        except DataError as error:
            status = Status.UNSUPPORTED if not isinstance(error, EndOfDataError) else Status.TRUNCATED
            status = node.status if node.status is not Status.COMPLETE else status
            return self._bad(name, error.reason, status)
        kind = str(getattr(value, "callable", "")).rpartition(".")[2]
        if kind == _OBJECT:
            return None
        try:
            return self._made(name, str(node.key), value)
        except (Odd, MalformedError) as error:
            return self._bad(name, getattr(error, "reason", str(error)))

    @property
    def _alone(self) -> Finding:
        """The note that the shards were not looked for."""
        reason = "the shards were not looked for, as .metadata does not lie in a folder; in an archive, name it alone"
        return Finding("data-not-read", reason, severity=Severity.NOTE, source=self.extraction.name)

    def _bad(self, name: str, reason: str, status: Status = Status.DAMAGED, **more: Any) -> Tensor:
        finding = finding_by_status(status, reason, path=name, source=self.extraction.name)
        told = {"dtype": None, "shape": UNKNOWN_SHAPE, "spans": (), "owner": self, **more}
        return Tensor(name, status=status, finding=finding, **told)

    def _made(self, name: str, key: str, value: Call) -> Tensor:
        """Return a tensor as its metadata describe it. Raises `Odd`, `MalformedError`."""
        state, session = state_of(value), self.extraction.session
        properties, chunks = getattr(state.get("properties"), "state", None), state.get("chunks")
        first = properties.get("dtype") if isinstance(properties, dict) else properties
        known = torch_type(first[0] if isinstance(first, tuple) and first else first)
        if known is None or not isinstance(chunks, list):
            raise Odd("its type, or its chunks, are not described as known")
        counted = numbers(state.get("size"))  # as torch counts
        if max((prod(counted), *counted)) >= 1 << 58:
            raise Odd("its shape has too many elements")
        dtype = DTYPES.get(known[0])
        twice = known[1] == _BY_TWO and bool(counted)
        shape = (*counted[:-1], 2 * counted[-1]) if twice else counted
        told: dict[str, Any] = {"stored_dtype": known[1], "dtype": dtype, "shape": shape}
        reason = f"elements of type {known[1]} are not known" if dtype is None else ""
        if len(shape) > session.limits.tensor_rank:
            reason = f"it has {len(shape)} dimensions"
        elif dtype is not None and dtype.packed and not twice and len(chunks) > 1:
            reason = f"chunks of {dtype} are not put together"
        reason = reason or refusal(len(chunks), len(shape), session.budget) or ""
        if dtype is None:
            finding = Finding("bad-tensor", reason, path=name, source=self.extraction.name)
            return Tensor(name, spans=(), status=Status.UNSUPPORTED, finding=finding, owner=self, **told)
        if reason:
            return self._bad(name, reason, Status.UNSUPPORTED, **told)
        if self.extraction.folder is None:
            return Tensor(name, spans=(), status=Status.UNSUPPORTED, finding=self._alone, owner=self, **told)
        if self.parser.places.are_packed:
            return self._bad(name, "its chunks are packed, which is not read yet", Status.UNSUPPORTED, **told)
        boxes = []
        for chunk in chunks:
            inner = state_of(chunk)
            starts, lengths = numbers(inner.get("offsets")), numbers(inner.get("sizes"))
            if len(starts) != len(lengths):
                raise Odd("the offsets and sizes of a chunk do not fit")
            boxes.append(box_of(counted, list(zip(starts, lengths, strict=True))))
        if not covers(counted, boxes):
            raise Odd("its chunks overlap, or do not cover it")
        return self._in_chunks(name, key, dtype, boxes, told, twice=twice)

    def _in_chunks(
        self,
        name: str,
        key: str,
        dtype: DType,
        boxes: list[tuple[tuple[int, ...], tuple[int, ...]]],
        told: dict[str, Any],
        *,
        twice: bool,
    ) -> Tensor:
        """Return a tensor whose chunks are those boxes. Raises `Odd`, `MalformedError`."""
        shape, parts = told["shape"], list[Fragment]()
        spans: list[Span] = []
        lacking: list[str] = []  # why a chunk is not whole
        for starts, lengths in boxes:
            own = (*lengths[:-1], 2 * lengths[-1]) if twice else lengths
            size = dtype.stored_nbytes(prod(own))
            place = self.parser.places.find(key, starts)
            if place is None:
                lacking.append(self.parser.places.problem or "the place of a chunk is not in .metadata")
                spans.append(Span(None, 0, size, self.extraction.name))
                continue
            file = self._files.open(place.file)
            if place.is_shared and not isinstance(file, Finding) and file.data.pread(file.start + 8, 1) == b"{":
                # FileSystemWriter(serialization_format=SAFETENSORS) says that all chunks begin at 0.
                reason = f"{file.name} is written as safetensors, which is not read yet"
                return self._bad(name, reason, Status.UNSUPPORTED, **told)
            if size > place.length or place.is_shared:
                raise Odd(
                    "its chunks share bytes with others"
                    if place.is_shared
                    else f"a chunk has {size:,} bytes, and its archive {place.length:,}"
                )
            if isinstance(file, Finding):
                lacking += [file.reason] if size else []
                spans.append(Span(None, place.offset, size, self._files.name_of(place.file)))
                continue
            chunk = ChunkArray(self, file, place, dtype, own)
            spans.append(ChunkSpan(chunk, file))
            spans[-1].resolve()
            if chunk.there < size:
                end, there = place.offset + place.length, file.find_end() - file.start
                lacking.append(f"an archive ends at {end:,} of {file.name}, which has {there:,} bytes")
            if size:
                parts.append(Fragment(starts, lengths, chunk.range(0, size), chunk.there))
        counted = (*shape[:-1], shape[-1] // 2) if twice else shape
        if dtype.packed and not twice:  # there is one chunk: its bytes are those of the whole
            counted = (dtype.stored_nbytes(prod(shape)),)
            parts = [Fragment((0,), counted, part.content, part.there) for part in parts]
        called = f"{self.extraction.name}::{name}"
        status, content = put_together(called, counted, dtype.itemsize, spans, parts, is_whole=not lacking)
        finding = None
        if lacking:
            whole = len(spans) - len(lacking)
            reason = f"{whole:,} of its {count_words(len(spans), 'chunk')} {are(whole)} whole: {lacking[0]}"
            finding = finding_by_status(status, reason, path=name, source=self.extraction.name)
        more: Any = {"status": status, "finding": finding, "owner": self, "content": content}
        return Tensor(name, dtype, shape, tuple(spans), stored_dtype=told["stored_dtype"], **more)

    def open_archive(self, file: Extraction, begin: int, end: int) -> Viewer | None:
        """Return the viewer of an archive in a shard, which nothing keeps; None if it is none. Raises `DataError`."""
        if begin >= (end := min(end, file.find_end())):
            raise EndOfDataError("its archive begins behind the end of the file", offset=begin)
        opened = Extraction(file.session, f"{file.name}[{begin - file.start:,}]", file.data, begin, end, file)
        opened.go_deeper()
        opened.parse("pytorch")
        opened.assume("pytorch")
        viewer: Viewer | None = viewer_for(opened)
        return viewer

    # -- objects -------------------------------------------------------------------------------------------------------

    def _places_of_objects(self) -> Iterator[tuple[str, tuple[Extraction, int, int] | str]]:
        """Yield the name of each object that was saved as a whole, and its shard, with begin and end of its archive
        there; or why that is not known."""
        for name, value in self.parser.pairs("state_dict_metadata"):
            kind = str(getattr(value, "callable", "")).rpartition(".")[2]
            if kind != _OBJECT or not isinstance(name, str) or self.extraction.folder is None:
                continue
            place = self.parser.places.find(name, None)
            if place is None:
                yield name, self.parser.places.problem or "its place is not in .metadata"
                continue
            file = self._files.open(place.file)
            begin = 0 if isinstance(file, Finding) else file.start + place.offset
            yield name, file.reason if isinstance(file, Finding) else (file, begin, begin + place.length)

    def _objects(self) -> Iterator[tuple[str, Viewer | Finding]]:
        """Yield name and viewer of each object that was saved as a whole; or why it cannot be read."""
        for name, place in self._places_of_objects():
            if isinstance(place, str):
                yield name, self._lost(name, place)
                continue
            try:
                viewer = self.open_archive(*place)
            except DataError as error:
                yield name, self._lost(name, error.reason)
                continue
            if viewer is not None:
                yield name, viewer

    def _lost(self, name: str, reason: str) -> Finding:
        severity = Severity.WARNING if self.parser.places.are_packed else Severity.ERROR
        told: Any = {"severity": severity, "path": name, "source": self.extraction.name}
        return Finding("object", f"an object cannot be read: {reason}", **told)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The objects that were saved besides tensors, by name, and by the paths in them."""
        found: dict[str, Any] = {}
        for name, inner in self._objects():
            for path, value in inner.metadata.items() if not isinstance(inner, Finding) else ():
                found[join(name, path) if path else name] = value
                if len(found) >= MOST_FACTS:
                    return found
        return found

    # -- files, and how complete it is ---------------------------------------------------------------------------------

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the shards that are there."""
        if self.extraction.folder is not None:
            yield from self._files.there()

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield the shards that are not there."""
        return ((self._files.name_of(file), reason) for file, reason in self._files.missing())

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: the shards count, too."""
        for file, end in enumerate(self.parser.places.ends) if self.extraction.folder is not None else ():
            if not isinstance(self._files.open(file), Finding):
                self._files.need(file, end)
        self._files.close_extent(extent, self.root.status)
        if extent.cut_files or extent.missing_files:  # objects are not among the tensors
            places = (place for _, place in self._places_of_objects())
            if any(isinstance(place, str) or place[2] > place[0].find_end() for place in places):
                extent.worsen(Status.TRUNCATED)
        return self.keep_extent(extent)

    def resolve_all(self) -> None:
        """Compare all checksums, so that no status changes later."""
        for tensor in self.tensors():
            for span in tensor.spans:
                span.verify()

    def resolve_all_but(self, tensors: Sequence[Tensor]) -> Sequence[int]:
        """Leave all checksums for later: chunks compare their own while they are read, and when they are verified."""
        return array("q", (-1,)) * len(tensors)

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check the pickle, then the archive of each chunk and object."""
        yield from super().check(strict=strict)
        yield from self.tell_faults(verify=True)
        for name, inner in self._objects():
            for finding in [inner] if isinstance(inner, Finding) else self._check_object(name, inner, strict=strict):
                self.findings.add(finding)
                yield finding
        self.note_damage()  # what was proved is news, too

    def _check_object(self, name: str, inner: Viewer, *, strict: bool) -> Iterator[Finding]:
        for finding in inner.extraction.check(strict=strict, around=False, viewer=inner):
            told = copy(finding)  # the original keeps its own path
            told.path = join(name, finding.path) if finding.path else name
            yield told
        count = sum(1 for _ in inner.tensors())
        if count:
            reason = f"the object has {count_words(count, 'tensor')}, which the shard lists by itself"
            yield Finding("object", reason, severity=Severity.NOTE, path=name, source=self.extraction.name)
