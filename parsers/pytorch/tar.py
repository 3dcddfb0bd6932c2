"""PyTorch checkpoints of 0.1.1 to 0.1.9: a tar archive with ``sys_info``, ``pickle``, ``storages`` and ``tensors``.

The formats of the members (torch/serialization.py, ``legacy_load``):

- ``storages``: a pickled number; for each, a pickled ``(key, location, class)``, the number of elements as i64, the
  elements; then a pickled list of parts of storages: ``(key, key of the whole, first element, number)``;
- ``tensors``: a pickled number; for each, a pickled ``(key, key of the storage, class)``, i32 rank, 4 bytes of padding,
  i64 sizes, i64 strides, i64 first element;
- ``pickle``: what was saved; its persistent ids are keys of tensors and storages.
"""

from __future__ import annotations

from functools import cached_property
from struct import Struct

from pparse.data.base import Access
from pparse.data.trailing_bytes import LAST_BEFORE_BREAK
from pparse.data.zero_runs import zeros_at_end
from pparse.display.text import shorten
from pparse.errors import DataError, MalformedError
from pparse.findings import Status
from pparse.parsers.pytorch.storages import StorageReader, StoredAt, first_value
from pparse.parsers.tar.parser import TarParser
from pparse.tree.parser import Confidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, TypeVar

    from pparse.containers.member import ArchiveMember
    from pparse.data.base import Range
    from pparse.document.extraction import Extraction
    from pparse.parsers.pickle.values import Persistent
    from pparse.parsers.pytorch.rebuild import StorageId, StoredTensor
    from pparse.parsers.pytorch.storages import Stored
    from pparse.tree.code_use import CodeUse
    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt
    from pparse.tree.result import Result
    from pparse.tree.visit import Visit

    Found = TypeVar("Found")

_MEMBERS: Final = frozenset(("sys_info", "pickle", "storages", "tensors"))
_MOST_RANK: Final = 64
# Of a key, in a message.
_SHOWN: Final = 40


class _MemberReader:
    """Reads pickles and numbers from a member, one behind the other."""

    def __init__(self, document: Extraction) -> None:
        self.data = document.data
        self.pos = document.start
        self.end = document.find_end()
        self.is_cut = False
        """Whether the member ended in what was read last."""
        self.session = document.session

    @property
    def is_at_pickle(self) -> bool:
        """Whether a pickle begins here, by its PROTO; also at the end of what is there."""
        return self.pos >= self.end or self.data.pread(self.pos, 1) == b"\x80"

    def value(self) -> Any:
        """Return the value of the next pickle; None if it is not whole."""
        from pparse.parsers.pickle.program import Program

        program = Program(self.session, self.data, self.pos, self.end)
        if program.trouble:
            self.is_cut = program.status is Status.TRUNCATED
            return None
        self.pos = program.end
        return program.value()

    def numbers(self, count: int, form: str = "q") -> tuple[int, ...] | None:
        """Return the next ``count`` numbers, by default of 64 bits; None if they are not there."""
        layout = Struct(f"<{count}{form}")
        raw = self.data.pread(self.pos, layout.size) if self.pos + layout.size <= self.end else b""
        if len(raw) < layout.size:
            self.is_cut = True
            return None
        self.pos += layout.size
        return layout.unpack(raw)

    def rank(self) -> int | None:
        """Return the rank of a tensor, a number of 32 bits with 4 of padding; None if it is not there, or none."""
        found = self.numbers(1, "i4x")
        return found[0] if found is not None and 0 <= found[0] <= _MOST_RANK else None


class PyTorchTarParser(TarParser, StorageReader):
    """A checkpoint of before torch 0.1.10."""

    name = "pytorch-tar"
    description = "PyTorch checkpoint of before 0.1.10 (tar)"
    extensions = (".pt", ".pth", ".pth.tar")
    viewer = "pparse.viewers.pytorch.viewer:PyTorchViewer"
    is_generic = False
    named_is_enough = False
    refines = ("tar",)
    references = ("torch/serialization.py",)
    limitations = ("objects of unknown classes are shown by their attributes, and never made",)

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        # Storages that have one key, by that key.
        self._twins: dict[str, list[tuple[StorageId, StoredAt]]] = {}

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """As sure as that it is a tar archive, if its first member is called as one of a checkpoint."""
        return super().match(excerpt) if cls._begins_so(excerpt) else Confidence.NO

    @classmethod
    def probe(cls, excerpt: Excerpt, reader: Range) -> Confidence:
        """As sure as that it is a tar archive, under the same condition."""
        return super().probe(excerpt, reader) if cls._begins_so(excerpt) else Confidence.NO

    @classmethod
    def _begins_so(cls, excerpt: Excerpt) -> bool:
        """Tell whether two members of a checkpoint begin the archive; the first ones, but for storages, are small."""
        first = _name_at(excerpt.head(100), 0)
        if first not in _MEMBERS:
            return False
        head = excerpt.head(64 << 10)
        return first == "storages" or any(_name_at(head, at) in _MEMBERS for at in range(512, len(head) - 511, 512))

    def _document(self, name: str) -> Extraction | None:
        for candidate in (name, f"./{name}"):
            try:
                return self.extraction.children.get(candidate) or self.enter(candidate)
            except DataError:
                continue
        return None

    def tells_shifts(self, member: ArchiveMember) -> bool:
        """Say so of the storages: where one ends, the pickle of the next one must begin."""
        return member.name.removeprefix("./") == "storages"

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of `pparse info`: of the archive, and of the pickle in it."""
        yield from super().details()
        yield from self.saved_details()

    def globals(self) -> Iterator[CodeUse]:
        """Yield the globals that the pickle of what was saved names."""
        return self.saved_globals()

    def pickled(self) -> Node | None:
        """Return what was saved."""
        document = self._document("pickle")
        try:
            return None if document is None else first_value(document)
        except DataError:
            return None

    def check(self, *, strict: bool = False) -> Iterator[Visit]:
        """Check all members; and that the first one, which nothing else needs, is what it should be."""
        self._read_part("sys_info", self._read_about, None)
        return super().check(strict=strict)

    def _read_about(self, reader: _MemberReader, found: None) -> None:
        if reader.value() is None:
            raise MalformedError("it is no pickle", offset=reader.pos)

    # -- storages ----------------------------------------------------------------------------------------------------

    def _read_part(self, name: str, read: Callable[[_MemberReader, Found], None], found: Found) -> bool:
        """Let ``read`` find what a member tells; return whether it could, and note why not."""
        document = self._document(name)
        try:
            if document is not None:
                read(_MemberReader(document), found)
        except DataError as error:
            self.note("malformed", f"its part {name}: {error.reason}", error.offset)
            return False
        return True

    @cached_property
    def _storages(self) -> dict[str, tuple[StorageId, StoredAt]]:
        found: dict[str, tuple[StorageId, StoredAt]] = {}
        if not self._read_part("storages", self._read_storages, found):
            self._doubt_last(found)
        return found

    def _read_storages(self, reader: _MemberReader, found: dict[str, tuple[StorageId, StoredAt]]) -> None:
        from pparse.parsers.pytorch.rebuild import StorageId, storage_type
        from pparse.tensors.dtype import DTYPES

        count = reader.value()
        for _ in range(count if type(count) is int else 0):
            begin, is_there = reader.pos, reader.is_at_pickle
            about: Any = reader.value() if is_there else None
            size = reader.numbers(1) if is_there else None
            known = storage_type(about[2]) if isinstance(about, tuple) and len(about) == 3 else None
            dtype = DTYPES.get(known[0]) if known is not None else None
            if known is None or dtype is None or size is None or size[0] < 0:
                if not reader.is_cut:
                    self._doubt_last(found)
                self._take_back(reader, begin, found)
                return
            storage = StorageId(str(about[0]), *known, size[0])
            stored = StoredAt(reader.data, reader.pos, size[0] * dtype.itemsize, reader.end)
            if storage.key in found:
                self._twins.setdefault(storage.key, [found[storage.key]]).append((storage, stored))
            found[storage.key] = storage, stored
            reader.pos += size[0] * dtype.itemsize
            if reader.pos > reader.end:
                return
        is_cut = reader.pos >= reader.end
        views = reader.value() if reader.is_at_pickle else None
        if not is_cut and (not isinstance(views, list) or reader.pos < reader.end):
            self._doubt_last(found)
        for view in views if isinstance(views, list) else ():
            whole = found.get(str(view[1])) if isinstance(view, tuple) and len(view) == 4 else None
            if whole is None or any(type(number) is not int or number < 0 for number in view[2:]):
                continue
            storage = StorageId(str(view[0]), whole[0].dtype, whole[0].torch_dtype, view[3])
            item = DTYPES[storage.dtype].itemsize
            data, begin, _ = whole[1].place
            part = StoredAt(data, begin + view[2] * item, view[3] * item, reader.end)
            if whole[1].finding is not None and part.is_complete:
                part.status, part.finding = whole[1].status, whole[1].finding
            found[storage.key] = storage, part

    def _of_type(self, key: str, about: tuple[Any, ...]) -> tuple[StorageId, StoredAt] | None:
        """Return the storage with that key.

        If damage made it the key of two, that of the tensor's type is the right one; two of that type are in doubt.
        """
        twins = self._twins.get(key) if key in self._storages else None
        if twins is None:
            return self._storages.get(key)
        meant = _lost(about)
        fitting = [twin for twin in twins if meant is None or twin[0].dtype == meant.dtype] or twins
        storage, stored = fitting[0]
        if len(fitting) > 1 and stored.is_complete:
            stored.status = Status.DAMAGED
            reason = f"{len(fitting)} storages have its key, {shorten(key, _SHOWN)!r}"
            stored.finding = self.finding_at("duplicate", reason, "", stored.place[1], length=stored.size)
        storage.held = stored
        return storage, stored

    def _doubt_last(self, found: dict[str, tuple[StorageId, StoredAt]]) -> None:
        """Put the last storage in doubt: nothing but its own length tells where it ends, and no pickle is there."""
        stored = found[next(reversed(found))][1] if found else None
        if stored is not None and stored.is_complete:
            stored.status = Status.DAMAGED
            stored.finding = self.finding_at("shifted", LAST_BEFORE_BREAK, "", stored.place[1], length=stored.size)

    @staticmethod
    def _take_back(reader: _MemberReader, at: int, found: dict[str, tuple[StorageId, StoredAt]]) -> None:
        """Take back what lies in zeros that last from before ``at``, where a storage should begin, to the end.

        The file has a length, and was not written to its end.
        """
        if reader.data.access is not Access.FREE:
            return
        first = min((stored.place[1] for _, stored in found.values()), default=at)
        blank = zeros_at_end(reader.data, first, reader.end, reader.session.check_cancelled)
        for key, (storage, stored) in found.items() if blank <= at else ():
            data, begin, end = stored.place
            if end > blank:
                found[key] = storage, StoredAt(data, begin, end - begin, blank)

    def stored(self, key: str) -> Stored | None:
        """Return a storage by its key."""
        found = self._storages.get(key)
        return None if found is None else found[1]

    def keys(self) -> Iterator[str]:
        """Yield the keys of the storages."""
        return iter(self._storages)

    # -- tensors -----------------------------------------------------------------------------------------------------

    def named(self, value: Persistent) -> StoredTensor | None:
        """Return the tensor, or the storage, that a persistent id means; None if there is none."""
        key = str(value.id[0] if isinstance(value.id, tuple) and value.id else value.id)
        found = self._tensors.get(key)
        if found is None and key in self._storages:
            found = self._storages[key][0].as_tensor()
        if found is None and not isinstance(value.id, tuple):  # that of a class
            reason = f"its part tensors does not tell of {shorten(key, _SHOWN)!r}, which the pickle names"
            self.note("missing-tensor", reason, None)
        return found

    @cached_property
    def _tensors(self) -> dict[str, StoredTensor]:
        found: dict[str, StoredTensor] = {}
        self._read_part("tensors", self._read_tensors, found)
        return found

    def _read_tensors(self, reader: _MemberReader, found: dict[str, StoredTensor]) -> None:
        from pparse.parsers.pytorch.rebuild import StoredTensor

        count = reader.value()
        for _ in range(count if type(count) is int else 0):
            about, rank = reader.value(), reader.rank()
            shape = reader.numbers(rank) if rank is not None else None
            stride = reader.numbers(rank or 0)
            first = reader.numbers(1)
            if not isinstance(about, tuple) or len(about) < 2 or shape is None or stride is None or first is None:
                return
            storage = self._of_type(str(about[1]), about)
            if min((*shape, *stride, *first), default=0) < 0:
                continue
            known = storage[0] if storage is not None else _lost(about)
            if known is not None:
                found[str(about[0])] = StoredTensor(known, known.dtype, known.torch_dtype, first[0], shape, stride)


def _name_at(head: bytes, at: int) -> str:
    """Return the name of the member whose header is at ``head[at]``."""
    return head[at : at + 100].split(b"\0", 1)[0].decode("latin-1").removeprefix("./")


def _lost(about: tuple[Any, ...]) -> StorageId | None:
    """Return what is known of a storage that the file has lost: its type, by the tensor's class."""
    from pparse.parsers.pickle.values import Global
    from pparse.parsers.pytorch.rebuild import StorageId, storage_type

    kind = about[2] if len(about) > 2 else None
    known = None
    if isinstance(kind, Global) and kind.name.endswith("Tensor"):
        known = storage_type(Global("torch", kind.name.removesuffix("Tensor") + "Storage"))
    return None if known is None else StorageId(str(about[1]), *known, 0)
