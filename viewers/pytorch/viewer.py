"""The tensors of a PyTorch checkpoint; and of a shard of a distributed one: of its items, behind their numbers."""

from __future__ import annotations

import re
from array import array
from collections import deque
from itertools import chain, islice

from pparse.document.registry import viewer_for
from pparse.errors import DataError, LimitError, MalformedError, PathError
from pparse.findings import Finding, Severity, Status
from pparse.limits import count_words
from pparse.parsers.pytorch.rebuild import StoredTensor
from pparse.parsers.pytorch.storages import Stored
from pparse.parsers.pytorch.zip import PyTorchZipParser
from pparse.tensors.viewer import Viewer
from pparse.viewers.pickle.viewer import MOST_FACTS, PickleViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.limits import Charge
    from pparse.parsers.pytorch.distcp import DistcpParser
    from pparse.parsers.pytorch.storages import Place, StorageReader
    from pparse.parsers.pytorch.zip import StorageRecord
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.pickle.viewer import What
    from pparse.viewers.pickle.walk import Leaf
    from pparse.viewers.pytorch.script import Script
    from pparse.viewers.pytorch.script_graph import ScriptGraph

# -- Why torch would refuse a checkpoint that is whole: the rules of its reader, for ``pparse check --strict`` ---------

# torch opens an archive by its first bytes and by the directory at its end; the folder of the first member is that of
# all (``PyTorchStreamReader::init`` and ``getAllRecords`` of caffe2/serialize/inline_container.cc). Names are looked
# up as miniz does, whatever their case. It compares no checksums. ``torch.load`` wants every member in that folder,
# ``torch.jit.load``, which reads TorchScript, does not. Compared with torch 2.13, archive by archive.

# The versions of archives that torch reads (caffe2/serialize/versions.h).
_VERSIONS: Final = range(1, 11)
# The ways of packing that torch reads: those of miniz.
_METHODS: Final = ("stored", "deflate")
# Bytes of a small member that are looked at.
_MOST: Final = 4096
# Memory for the name of a tensor by the key of its storage.
_NAMED: Final = 400


def refusals(parser: PyTorchZipParser) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each thing for which torch refuses the archive; the name is empty for the whole."""
    extraction = parser.result.extraction
    if extraction.data.pread(extraction.start, 4) != b"PK\3\4":
        yield "", "the file does not begin with a member of the archive: torch takes it for a file of its old format"
        return
    if parser.directory is None:
        yield "", "the directory at its end is missing or damaged"
        return
    records = parser.records
    first = next(iter(records), "")
    folder, slash, _ = first.partition("/")
    if not slash:
        yield first, "the first member lies in no folder"
        return
    folder += slash
    lower = {name.lower(): record for name, record in records.items()}
    version = lower.get(f"{folder}.data/version".lower()) or lower.get(f"{folder}version".lower())
    if version is None:
        yield "", f"there is no member {folder}version: the folder is that of the first member"
        return
    yield from _of_values(folder, version, lower.get(f"{folder}byteorder".lower()))
    if f"{folder}data.pkl".lower() not in lower:
        yield "", f"there is no member {folder}data.pkl"
    alignment = lower.get(f"{folder}.storage_alignment".lower())
    if alignment is not None and not re.fullmatch(rb"\s*[+-]?\d+\s*", text := alignment.text(_MOST)):
        yield f"{folder}.storage_alignment", f"it says {_shown(text)}, which is no number"
    is_script = f"{folder}constants.pkl".lower() in lower
    for name, record in records.items():
        member = record.unusual
        if record.status is Status.UNSUPPORTED or (member is not None and member.method not in _METHODS):
            yield name, "it is encrypted, or packed by a method that torch does not read"
        if not is_script and not name.startswith(folder):
            yield name, f"it is not in the folder {folder}, which is that of the first member"


def _of_values(folder: str, version: StorageRecord, order: StorageRecord | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with what the members say that torch reads first."""
    text = version.text(_MOST)
    number = re.match(rb"\s*\+?(\d{1,19})", text)
    if number is None:
        yield f"{folder}version", f"it says {_shown(text)}, which is no number"
    elif int(number[1]) not in _VERSIONS:
        yield f"{folder}version", f"it says {int(number[1])}; torch reads {_VERSIONS[0]} to {_VERSIONS[-1]}"
    if order is not None and (text := order.text(_MOST)) not in (b"little", b"big"):
        yield f"{folder}byteorder", f"it says {_shown(text)}, not 'little' or 'big'"


def _shown(text: bytes) -> str:
    return repr(text[:64].decode("latin-1"))


# How TorchScript's code calls its constants: ``CONSTANTS.c0``.
_CONSTANTS: Final = "CONSTANTS"
_CONSTANT: Final = f"{_CONSTANTS}.c"
_OF_CODE: Final = ("constants",)
# How many reasons for which torch would refuse a file are told.
_MOST_REFUSALS: Final = 20


class _LostConstant(Stored):
    """The storage of a constant that is not in the file."""

    size, status = 0, Status.MISSING

    def __init__(self, key: str) -> None:
        self._reason = f"its storage, 'constants/{key}', is not in the file"
        self.finding = Finding("missing-storage", self._reason)

    @property
    def place(self) -> Place:
        raise MalformedError(self._reason)


class PyTorchViewer(PickleViewer):
    """A mapping of names to tensors: those of ``torch.load``, by their paths in what was saved."""

    parser: StorageReader
    resolves_late = True
    _first: tuple[dict[str, tuple[str, int]], Charge] | None = None
    _script: Script | None = None
    _graph: ScriptGraph | None = None
    _sound: bool | None = None
    """Whether all checksums were compared, but for those that who reads the storages compares."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        if isinstance(self.parser, PyTorchZipParser):  # what torch wants of its older formats is not known
            self.rules = "torch"

    @classmethod
    def applies(cls, parser: Any) -> bool:
        """Return True: a checkpoint is recognised by more than what its pickle names."""
        return True

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether something is known against bytes, or members are known that are not whole."""
        return super()._has_news or (isinstance(self.parser, PyTorchZipParser) and bool(self.parser.spoilt))

    @property
    def names_may_be_lost(self) -> bool:  # type: ignore[override]
        """Whether not all that describes tensors is there."""
        roots = list(self.descriptions())
        return not roots or self.parser.has_code or any(root.status is not Status.COMPLETE for root in roots)

    def pickled(self) -> Node | None:
        """Return the value that was saved; None if it is lost."""
        return self.parser.pickled()

    def leaves(self) -> Iterator[Leaf]:
        """Yield everything that was saved, name by name, and the constants of code, as the code calls them."""
        yield from super().leaves()
        yield from self.constant_leaves()

    def constant_leaves(self) -> Iterator[Leaf]:
        """Yield the constants of code."""
        root = self.parser.constants()
        for leaf in self.walk(root, _CONSTANTS) if root is not None else ():
            leaf.name = f"{_CONSTANTS}.c{leaf.name[len(_CONSTANTS) + 1 :]}"
            for _, tensor in leaf.tensors:
                if isinstance(tensor, StoredTensor) and tensor.storage is not None and tensor.storage.held is None:
                    # Their keys are other ones: a constant that is lost must not be read from the storage of that key.
                    tensor.storage.held = self.parser.constant(tensor.storage.key) or _LostConstant(tensor.storage.key)
            yield leaf

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Look at everything and yield each finding; ``strict`` adds why torch would refuse the file."""
        yield from super().check(strict=strict)
        if strict and isinstance(self.parser, PyTorchZipParser):
            self.extraction.parsed.verify()  # first: who reads a tensor tells just the archive what is wrong with it
            self.extent()  # which lists all tensors
            sizes = (
                (f"{self.parser.prefix}data/{key}", f"it has {there:,} bytes, and its tensors say {meant:,}")
                for key, (there, meant) in self.odd_sizes.items()
            )
            for name, why in islice(chain(refusals(self.parser), sizes), _MOST_REFUSALS):
                yield self._finding(name, "refused", f"torch refuses this, because {why}", severity=Severity.WARNING)

    # -- the program of TorchScript ------------------------------------------------------------------------------------

    @property
    def script(self) -> Script | None:
        """The program that was saved with the tensors, whose pickle is gone through once; None if there is none."""
        if self._script is None and self.parser.has_code:
            from pparse.viewers.pytorch.script import Script

            self._script = Script(self, self.constant_leaves())
        return self._script

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the graph of the model's ``forward``. Raises `DataError` if its code cannot be read."""
        script = self.script
        if script is None:
            return super().graph_of(number, max_nodes)
        name = self.extraction.name
        if number:
            raise PathError(f"{name}: a TorchScript model has one graph", path="graph")
        from pparse.graphs.graph import Graph
        from pparse.viewers.pytorch.script_run import graph_of

        if self._graph is None:
            try:
                self._graph = graph_of(script)
            except MalformedError as error:
                raise MalformedError(f"{name}: the model has no graph: {error.reason}") from error
        return Graph(self._graph, max_nodes)

    @property
    def graph(self) -> Graph | None:
        """The graph of ``forward``; None if there is none, or it cannot be read."""
        try:
            return None if self.script is None else self.graph_of()
        except DataError:
            return None

    def outline(self) -> dict[str, Any]:
        """Return the modules, and the operators of the byte code for mobile devices with their numbers.

        The modules are None if they are more than fit into the budget.
        """
        try:
            script = self.script
            if script is None:
                return {}
            return {"modules": list(script.modules()), "operators": script.operators()}
        except LimitError:
            return {"modules": None, "operators": {}}

    def outline_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the number of modules by class, a line for each with its tensors, and the operators."""
        try:
            yield from () if self.script is None else self.script.lines()
        except LimitError as error:
            yield "modules", f"not told: {error.reason}"

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the first tensor in the storage that a member of a zip is."""
        first = self.first_in(str(node.key)) if node.parent is self.root else None
        return None if first is None else self.find(first[0])

    def first_in(self, member: str) -> tuple[str, int] | None:
        """Return the name of the first tensor in the storage that a member of a zip is, and how many it holds."""
        parser = self.parser
        if not isinstance(parser, PyTorchZipParser) or not member.startswith(prefix := f"{parser.prefix}data/"):
            return None
        return self._note_storages().get(member[len(prefix) :])

    def _note_storages(self) -> dict[str, tuple[str, int]]:
        """Return by key of a storage the name of the first tensor in it, and how many there are: no more than there is
        room for."""
        known = self._first
        if known is not None:
            return known[0]
        found: dict[str, tuple[str, int]] = {}
        budget = self.extraction.session.budget
        for name, what, _ in self.named_tensors():
            storage = what.storage if isinstance(what, StoredTensor) else None
            if storage is None or storage.held is not None:
                continue
            first, count = found.get(storage.key, (name, 0))
            found[storage.key] = first, count + 1
            if len(found) * _NAMED > budget.limit // 4:
                break
        charge = budget.charge(len(found) * _NAMED, "the names of storages", self._forget_storages)
        self._first = found, charge
        return found

    def _forget_storages(self) -> None:
        self._first = None

    def described_by(self, name: str, what: What) -> Sequence[str]:
        """Return which pickle describes a tensor: that of the constants of code, by its name."""
        return _OF_CODE if name.startswith(_CONSTANT) else super().described_by(name, what)

    described_by.__guarded__ = True  # type: ignore[attr-defined]  # it reads nothing

    def description(self, key: str) -> Node | None:
        """Return the value of a pickle."""
        return self.parser.constants() if key else self.pickled()

    def resolve_all(self) -> None:
        """From now on, let `tensors` first compare the checksums of all storages, once."""
        self.is_sound()

    def is_sound(self) -> bool:
        """Compare the checksums of all storages, once; return whether nothing was wrong."""
        if self._sound is None:
            self._sound = self.parser.verify_storages() is not None
        return self._sound

    def resolve_all_but(self, tensors: Sequence[Tensor]) -> Sequence[int] | None:
        """Compare the checksums that are not just of one of ``tensors``; return those that are."""
        places: dict[int, int] = {}
        for tensor in tensors:
            place = self._place_of(tensor)
            if place is not None:
                places[place[0]] = max(place[1], places.get(place[0], 0))
        left = self.parser.verify_storages(places)
        if left is None:
            return None
        self.is_resolved = True
        found = array("q")
        for tensor in tensors:
            place = self._place_of(tensor)
            found.append(left.get(place[0], -1) if place is not None and places[place[0]] == place[1] else -1)
        return found

    def _place_of(self, tensor: Tensor) -> tuple[int, int] | None:
        """Return begin and end of a tensor that lies in the file in one piece, as it is read; None of any other."""
        spans = tensor.spans
        if len(spans) != 1 or tensor._content is not None or spans[0].data is not self.extraction.parsed.data:
            return None
        return spans[0].offset, spans[0].offset + spans[0].length

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent; tell of storages that belong to none of the tensors that were listed."""
        extent = super().close_extent(extent)
        rest = [key for key in self.parser.keys() if key not in self.first_ids]  # noqa: SIM118 -- it is no mapping
        if rest:
            are = "belongs" if len(rest) == 1 else "belong"
            reason = f"{count_words(len(rest), 'storage')} {are} to no tensor that is shown, the first is {rest[0]!r}"
            # What a program keeps beside its tensors may stay without a name; but not all that there is.
            self._note("unnamed-storage", reason, severity=Severity.NOTE if extent.count else Severity.ERROR)
            if not extent.count and extent.document_status is Status.COMPLETE:
                extent.document_status = Status.DAMAGED
        return extent


# Items of a shard that stay open.
_HELD: Final = 64


class DistcpViewer(Viewer):
    """A mapping of names to tensors: ``3`` if item 3 is a tensor, ``3/NAME`` if it is an object that has some."""

    may_have_had_more = True

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser: DistcpParser = extraction.parse().parser  # type: ignore[assignment]
        self._held: deque[Viewer] = deque(maxlen=_HELD)

    def _viewers(self) -> Iterator[tuple[int, Viewer]]:
        """Yield the numbers of items, and their viewers."""
        for number in range(len(self.parser.items) - 1):
            viewer = self._viewer(number)
            if viewer is not None:
                yield number, viewer

    def _viewer(self, number: int) -> Viewer | None:
        """Return the viewer of an item; None if nothing is left of it that has tensors."""
        try:
            opened = self.parser.enter(str(number))
            viewer: Viewer | None = viewer_for(opened)
        except (DataError, PathError) as error:
            if self.parser.item(number).finding is None:  # else that says what is wrong
                told: Any = {"path": str(number), "source": self.extraction.name, "offset": self.parser.items[number]}
                self.findings.add(Finding("malformed", f"the item cannot be read: {error.reason}", **told))
            return None
        if viewer is not None:
            self._held.append(viewer)
        return viewer

    def _named(self, number: int, tensor: Tensor) -> Tensor:
        tensor.name = f"{number}/{tensor.name}" if tensor.name else str(number)
        if self.parser.is_unsure(number):
            reason = "archives may be lost before it: its number may be another one"
            tensor.doubt(Finding("shifted", reason, path=tensor.name, source=self.extraction.name))
        tensor._owner = self
        return self.as_of_now(tensor)

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of all items."""
        for number, viewer in self._viewers():
            for tensor in viewer.tensors():
                yield self._named(number, tensor)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        number, _, inner = name.partition("/")
        if not number.isdecimal() or len(number) > 18 or int(number) >= len(self.parser.items) - 1:
            return None
        viewer = self._viewer(int(number))
        tensor = None if viewer is None else viewer.find(inner)
        return None if tensor is None or str(int(number)) != number else self._named(int(number), tensor)

    @property
    def _has_news(self) -> bool:  # type: ignore[override]
        """Whether something is known against bytes of an item."""
        return self.extraction.session.stats.discoveries > 0

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was saved besides tensors, by item and name."""
        found: dict[str, Any] = {}
        for number, viewer in self._viewers():
            for name, value in viewer.metadata.items():
                found[f"{number}/{name}" if name else str(number)] = value
                if len(found) >= MOST_FACTS:
                    return found
        return found

    def resolve_all(self) -> None:
        """From now on, let `tensors` first compare all checksums."""
        for _, viewer in self._viewers():
            viewer.resolve_all()

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Look at everything in all items, and compare their checksums."""
        from copy import copy

        for number in range(len(self.parser.items) - 1):
            finding = self.parser.item(number).finding
            if finding is not None:
                self.findings.add(finding)
                yield finding
        for number, viewer in self._viewers():
            for finding in viewer.extraction.check(strict=strict, around=False, viewer=viewer):
                told = copy(finding)  # the original keeps its own path
                told.path = f"{number}/{finding.path}" if finding.path else str(number)
                self.findings.add(told)
                yield told
