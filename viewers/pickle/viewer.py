"""The arrays in a pickle: those of numpy, and of libraries that keep theirs in numpy's."""

from __future__ import annotations

from functools import cached_property

from pparse.containers.member import NameCounter
from pparse.data.base import Access, BytesData
from pparse.data.zero_runs import zeros_at_end
from pparse.document.extraction import Extraction
from pparse.document.opening import Resume, is_inside
from pparse.errors import PASSING, PparseError
from pparse.findings import Finding, Severity, Status
from pparse.parsers.pickle.arrays import Array, scalar_of
from pparse.parsers.pickle.values import Call, Global, Persistent
from pparse.parsers.pytorch.rebuild import Odd, storage_id
from pparse.parsers.pytorch.storages import Checkpoint
from pparse.tensors.node_viewer import node_called
from pparse.tensors.status import unwritten_in
from pparse.tensors.viewer import Viewer
from pparse.tree.node import Node
from pparse.viewers.pickle.make import StoredSpan, TensorMaker
from pparse.viewers.pickle.walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.parsers.pickle.parser import PickleParser
    from pparse.parsers.pytorch.rebuild import StorageId, StoredTensor
    from pparse.tensors.extent import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.viewers.pickle.walk import Found

    What = StoredTensor | Array | Odd

    from pparse.tensors.tensor import Span

# Storages with holes in them are read for their checksums up to so many bytes in all: a list must not read the file.
_READ: Final = 4 << 20


# Modules whose objects are, or hold, arrays.
_ARRAYS: Final = ("numpy.", "torch.", "joblib.")
_MOST_FACTS: Final = 10_000
_LONGEST: Final = 100_000
# So many zeros at the end may be what was not written.
_BLANK: Final = 512
# Memory that the description of a tensor takes in a table of names.
_NOTED: Final = 800


class PickleViewer(Viewer):
    """A mapping of names to arrays, by their paths in what was pickled."""

    most_facts = _MOST_FACTS

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser
        self.storages = self.parser if isinstance(self.parser, Checkpoint) else Checkpoint()
        """Where the storages of PyTorch are: a plain pickle has none."""
        self._room = _READ  # for comparing storages that have holes
        self._known = -1  # how much was known of the bytes when the names were judged
        self._doubted: dict[bool, str | None] = {}  # why the pickles with the names, and with constants, may be wrong
        self._has_room = True  # for a table of names
        self._table: dict[str, tuple[What, str | None]] | None = None

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return whether the pickle names anything of numpy or torch."""
        return any(name.startswith(_ARRAYS) for _, name in parser.global_names())

    def pickled(self) -> Node | None:
        """Return the value that was pickled; None if it is lost."""
        return self.root

    @property
    def default_node(self) -> Node:
        """What was pickled."""
        return self.pickled() or self.root

    @cached_property
    def maker(self) -> TensorMaker:
        """Makes the tensors."""
        return TensorMaker(self, self.storages.byteorder)

    def leaves(self) -> Iterator[Found]:
        """Yield everything that was pickled, name by name."""
        root = self.pickled()
        if root is not None:
            parser: PickleParser = root.result.parser  # type: ignore[assignment]
            yield from Walk(parser, self.open_bytes).leaves(root)

    def open_bytes(self, content: bytes) -> StorageId | None:
        """Return the storage in ``content``, a checkpoint with nothing else; None if it is not one that can be read."""
        outer = self.extraction
        data, name = BytesData(content, outer.name), f"{outer.name} (storage)"
        inner = Extraction(outer.session, name, data, 0, len(content), outer)
        try:
            inner.go_deeper()
            parser = inner.parse().parser
            root = parser.pickled() if isinstance(parser, Checkpoint) else None
            value = None if root is None else root.result.parser.to_python(root)
            found = storage_id(value) if isinstance(value, Persistent) else None
            if found is not None and isinstance(parser, Checkpoint):
                found.held = parser.stored(found.key)
        except PASSING:
            raise
        except PparseError:
            return None
        return found if found is not None and found.held is not None else None

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor, in the order of the pickle."""
        for name, what, dtype in self.named_tensors():
            yield self._make(name, what, dtype)

    def named_tensors(self) -> Iterator[tuple[str, What, str | None]]:
        """Yield names and descriptions of all tensors, and the types that arrays are to have."""
        names = NameCounter()
        for leaf in self.leaves():
            if leaf.array is not None:
                yield _numbered(names, leaf.name), leaf.array, leaf.dtype
            elif isinstance(leaf.value, Odd):
                yield _numbered(names, leaf.name), leaf.value, None
            elif leaf.tensors is None and isinstance(leaf.value, Persistent):
                meant = self.storages.named(leaf.value)
                leaf.tensors = None if meant is None else [("", meant)]
            for suffix, stored in leaf.tensors or ():
                name = leaf.name + suffix if leaf.name else suffix.removeprefix(".")
                yield _numbered(names, name), stored, None

    def is_constant(self, name: str) -> bool:
        """Return whether a tensor is a constant of code, which a pickle of their own names."""
        return False

    def _mark(self, tensor: Tensor) -> Tensor:
        """Note what is doubtful about a tensor besides its own storage: its name, and bytes never written."""
        why = self._doubt_of_names(self.is_constant(tensor.name))
        if why is not None and tensor.claimed_status is Status.COMPLETE:
            tensor.status = Status.DAMAGED
            reason = f"the pickle that describes it may be wrong: {why}"
            tensor.finding = Finding("doubt", reason, path=tensor.name, source=self.extraction.name)
        elif self.holes and tensor.spans and tensor.spans[0].data is self.extraction.parsed.data:
            span = tensor.spans[0]
            count = self._unwritten(span.offset, span.offset + span.length)
            if count and not (self.storages.has_checksums and self._agrees(span)):
                tensor.unwritten_nbytes = count
        return tensor

    def _doubt_of_names(self, constants: bool) -> str | None:
        """Return why the pickle that names tensors, or ``constants``, may be wrong; None if nothing suggests that."""
        discoveries = self.extraction.session.stats.discoveries
        if discoveries != self._known:
            self._known = discoveries
            self._doubted.clear()
        if constants not in self._doubted:
            self._doubted[constants] = _judged(self.storages.constants() if constants else self.pickled())
        return self._doubted[constants]

    def _unwritten(self, start: int, end: int) -> int:
        return unwritten_in(self.holes, start, end)[1]

    def _agrees(self, span: Span) -> bool:
        """Return whether the checksum of a storage, as far as that is compared, says that zeros are right."""
        if not isinstance(span, StoredSpan):
            return False
        most, self._room = self._room, max(0, self._room - span.length)
        return span.agrees_with_holes(self._unwritten, most)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether something is known against bytes that may be those of the names, or of a storage."""
        return self.extraction.session.stats.discoveries > 0

    def _make(self, name: str, what: What, dtype: str | None) -> Tensor:
        return self._mark(self.as_of_now(self._made(name, what, dtype)))

    def _made(self, name: str, what: What, dtype: str | None) -> Tensor:
        if isinstance(what, Array):
            return self.maker.of_numpy(name, what, dtype)
        if isinstance(what, Odd):
            return self.maker.unreadable(name, what.code, f"{what}")
        storage = what.storage
        held = None if storage is None else storage.held or self.storages.stored(storage.key)
        return self.maker.of_torch(name, what, held)

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added."""
        actual = extent.actual or 0
        extent.expected = actual
        root = self.pickled()
        status = self.root.status
        if status is Status.COMPLETE and root is not None:
            status = root.status
            if status is Status.TRUNCATED and root.extraction is not self.extraction.parsed:
                status = Status.DAMAGED  # no byte of the file is missing
                self._note_short_pickle(root)
        lacking = sum(self.maker.lacking.values())
        origin = self.extraction.parsed.origin
        if lacking and origin is not None and isinstance(origin[0], Checkpoint):
            file = self.extraction.parent.path if self.extraction.parent is not None else ""
            reason = f"it is the pickle of a checkpoint, which has the storages: open {file} instead"
            source = self.extraction.name
            self.findings.add(Finding("part-of-checkpoint", reason, severity=Severity.WARNING, source=source))
        written = self._written_end(lacking)
        if written is not None:
            self._note_blank(written, extent, lacking)
        elif status is Status.TRUNCATED:
            extent.document_status = Status.TRUNCATED
            extent.expected, extent.at_least = actual + max(1, lacking), True
            extent.resume_at = actual
        elif root is not None and status is Status.COMPLETE and self.stream_is_cut():
            extent.document_status, extent.resume_at = Status.TRUNCATED, extent.actual
        elif root is None or self.findings.errors or self._is_damaged(self.root) or self._is_damaged(root):
            extent.document_status = Status.DAMAGED
            if root is None and not self.findings.errors and self.root.status is Status.COMPLETE:
                reason = "no member is its data.pkl: it is no checkpoint, or that is lost; '-f zip' lists what there is"
                self.findings.add(Finding("no-pickle", reason, source=self.extraction.name))
        return self.keep_extent(extent)

    def _note_short_pickle(self, root: Node) -> None:
        inner = root.extraction
        reason = f"the pickle {inner.name} ends before its STOP, though the archive around it is whole"
        self.findings.add(Finding("malformed", reason, path=inner.name, source=self.extraction.name))

    def _is_damaged(self, node: Node) -> bool:
        """Return whether a node is damaged itself; bytes of the file that are in doubt may be those of tensors."""
        own = node.known_status is Status.DAMAGED or node.extraction.data is not self.extraction.parsed.data
        return node.status is Status.DAMAGED and own

    def _written_end(self, lacking: int) -> int | None:
        """Return where zeros begin that last to the end of the file, if they are enough for all that it lacks.

        A file of its full length was preallocated, and not written to its end.
        """
        inner = self.extraction.parsed
        start, end = inner.start, inner.known_end()
        if not lacking or is_inside(self.extraction) or inner.data.access is not Access.FREE:
            return None
        at = zeros_at_end(inner.data, start, end, self.extraction.session.check_cancelled)
        return at if end - at >= max(lacking, _BLANK) else None

    def _note_blank(self, written: int, extent: Extent, lacking: int) -> None:
        inner = self.extraction.parsed
        start, end = inner.start, inner.known_end()
        extent.document_status = Status.TRUNCATED
        extent.actual, extent.expected, extent.at_least = written - start, end - start, True
        extent.resume.append(Resume(self.extraction.name, written - start, hole=True))
        reason = (
            f"its last {end - written:,} bytes are zeros where {lacking:,} bytes of tensors should be: they were not "
            "written, or are lost"
        )
        where = {"source": self.extraction.name, "offset": written, "length": end - written}
        self.findings.add(Finding("unwritten", reason, **where))  # type: ignore[arg-type]

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None. The first look-up notes all names, if there is room."""
        table = self._table
        if table is None and self._has_room:
            table = self._note_names()
        if table is None:
            found = self._by_path(name) or next((found for found in self.named_tensors() if found[0] == name), None)
            return None if found is None else self._make(*found)
        what = table.get(name)
        return None if what is None else self._make(name, *what)

    def _by_path(self, name: str) -> tuple[str, What, str | None] | None:
        """Return what is called ``name`` by its path through dicts and lists, without going through all that is there.

        None if that does not find it: it may be an attribute of an object, or the second one of its name.
        """
        root = self.pickled()
        if root is None:
            return None
        parser: PickleParser = root.result.parser  # type: ignore[assignment]
        node = node_called(root, name)
        for leaf in Walk(parser, self.open_bytes).leaves(node, name) if node is not None else ():
            if leaf.name == name and leaf.array is not None:
                return name, leaf.array, leaf.dtype
            for suffix, stored in leaf.tensors or ():
                if leaf.name + suffix == name:
                    return name, stored, None
            break
        return None

    def _note_names(self) -> dict[str, tuple[What, str | None]] | None:
        table: dict[str, tuple[What, str | None]] = {}
        budget, held = self.extraction.session.budget, 0
        for name, what, dtype in self.named_tensors():
            table[name] = what, dtype
            held += _NOTED + (len(what.content or b"") if isinstance(what, Array) else 0)
            if held > budget.limit // 4:
                self._has_room = False
                return None
        self._charge = budget.charge(held, "the names of tensors", self._forget_names)
        self._table = table
        return table

    def _forget_names(self) -> None:
        self._table = None

    def tree(self) -> Any:
        """Return what was pickled as the program had it: dicts, lists and tuples, with tensors (not read) as leaves.

        Other objects are `pparse.viewers.pickle.tree.SavedObject`. Raises `LimitError` for pickles of more than 64 MiB.
        """
        from pparse.viewers.pickle.tree import tree_of

        return tree_of(self)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was pickled besides arrays, by name: the first 10,000 values; objects as the names of their classes."""
        found: dict[str, Any] = {}
        for leaf in self.leaves():
            is_tensor = leaf.tensors is not None or leaf.array is not None or isinstance(leaf.value, Odd)
            if not is_tensor and not (
                isinstance(leaf.value, Persistent) and self.storages.named(leaf.value) is not None
            ):
                found[leaf.name] = _plain(leaf.value)
                if len(found) >= _MOST_FACTS:
                    break
        return found


def _judged(root: Node | None) -> str | None:
    """Return why the pickle whose value is ``root`` may be wrong; None if nothing suggests that."""
    if root is None or not root.result.extraction.data.flawed:
        return None
    root.result.extraction.confirm()  # a checksum of its own may tell that it is right
    parser: PickleParser = root.result.parser  # type: ignore[assignment]
    start, end = root.result.extraction.start, parser.program(parser.starts[-1]).end
    return root.result.extraction.data.why_suspect(start, end)


def _numbered(names: NameCounter, name: str) -> str:
    number = names.add(name)
    return name if number == 1 else f"{name}#{number}"


def _number(scalar: Array) -> Any:
    """Return a numpy scalar as a number of Python, or as text."""
    import numpy as np

    try:
        dtype = np.dtype(scalar.type.dtype).newbyteorder(">" if scalar.type.big_endian else "<")
        value = np.frombuffer(scalar.content or b"", dtype, 1)[0].item()
    except (TypeError, ValueError):
        return f"<{scalar.type.what}>"
    return value if isinstance(value, str | int | float) else str(value)


def _plain(value: Any) -> Any:
    """Return a value as data that JSON knows, or as text."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"<text of {len(value):,} characters>"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Node):  # a node, of a large value or one that cannot be read
        return f"<{value.kind} of {(value.end or value.start) - value.start:,} bytes>"
    if isinstance(value, Call):
        scalar = scalar_of(value)
        if scalar is not None:
            return _number(scalar)
        return f"<{value.name or 'object'}>"
    if isinstance(value, Global):
        return str(value)
    if isinstance(value, Persistent):
        return "<persistent>"
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, set | frozenset):
        return f"<set of {len(value)}>"
    if isinstance(value, dict | list | tuple):
        return value if not value else f"<{type(value).__name__} of {len(value)}>"
    return str(value)
