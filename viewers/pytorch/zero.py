"""The tensors of a checkpoint of DeepSpeed's ZeRO: what its ``zero_to_fp32.py`` makes, without making it.

Parameters are those of ``param_shapes``, group by group. In stages 1 and 2, the pieces of a group
(``single_partition_of_fp32_groups``) of all ranks in a row are its parameters in a row, with
``param_alignment_paddings`` between them. In stage 3, each rank has the same part of every parameter, of which the end
is padding; a rank's groups (``fp32_flat_groups``) are in a row. Buffers, frozen and shared parameters are named by the
model's state, too. Buffers have the type in which they were saved.

Without the optimizer's files, or where the model's state says no shapes, it is a checkpoint as any.
"""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property
from math import prod

from pparse.document.folder import names_in
from pparse.errors import DataError, FormatError
from pparse.findings import Finding, Status, worst_status
from pparse.parsers.pytorch.rebuild import Odd, numbers
from pparse.parsers.pytorch.zero import MOST_RANKS, STATES, ranks_in
from pparse.parsers.pytorch.zip import PyTorchZipParser
from pparse.tensors.dtype import DTYPES
from pparse.tensors.parts import DataFiles
from pparse.tensors.span import Span
from pparse.tensors.status import finding_by_status
from pparse.tensors.tensor import Tensor
from pparse.tensors.viewer import Viewer
from pparse.tree.entry import MAP
from pparse.viewers.pytorch.viewer import PyTorchViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.tensors.status import Extent
    from pparse.tree.node import Node

_OPTIMIZER: Final = "optimizer_state_dict"
_MODULE: Final = "module"
_SHAPES: Final = ("param_shapes", "frozen_param_shapes")
_FRAGMENTS: Final = "frozen_param_fragments"
# Memory of a parameter without its name.
_HELD: Final = 400

Parameter = namedtuple("Parameter", "kind shape group offset own")
Parameter.__doc__ = """A parameter that is trained: its group, and where it begins there (None: not known); or one that
is frozen, or a buffer: what it is called in the model's state."""
_TRAINED: Final = "trained"
_FROZEN: Final = "frozen"
_BUFFER: Final = "buffer"
# The number of the file that was opened, of the model's state.
_STATES: Final = -1
Piece = namedtuple("Piece", "file name start count size")
Piece.__doc__ = """Elements of a flat tensor of ``size``: the number of its file, its name there."""


class ZeroViewer(Viewer):
    """A mapping of names to parameters, in full precision, and buffers."""

    has_values = True
    row_bytes = 1_200
    runs_ahead = 2  # a parameter may have a piece in the files of thousands of ranks

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.parser = extraction.parse().parser
        self.states = PyTorchViewer(extraction)
        """The model's state, as a checkpoint."""
        self._kind, there = ranks_in(names_in(extraction.folder))
        told = _plain(self._part("dp_world_size"))
        said = told if type(told) is int and 0 < told <= MOST_RANKS else 0
        self._ranks = max(there, said) if there else 0
        self._in_parts = extraction.name.endswith(STATES[1])
        self._count = self._ranks * 2 - 1 if self._in_parts and self._ranks else self._ranks
        self._files = DataFiles(extraction, lambda: self._count, self._name_of)
        self._viewers: dict[int, PyTorchViewer] = {_STATES: self.states}
        self._known_runs: dict[bool, list[list[int]]] = {}
        self._row = 0
        self._ends: list[int | None] = []  # of stages 1 and 2: where the parameters of each group end, if known

    def _name_of(self, number: int) -> str:
        """Return the name of a file: of the optimizer, by rank, then of the model's state of ranks from 1 on."""
        if number < self._ranks:
            return f"{self._kind}{number}_mp_rank_00_optim_states.pt"
        return STATES[1].replace("rank_0_", f"rank_{number - self._ranks + 1}_", 1)

    def _part(self, name: str, viewer: PyTorchViewer | None = None) -> Node | None:
        """Return what was saved under a name; None if there is nothing."""
        node = (viewer or self.states).pickled()
        for key in name.split("."):
            node = node.find(key) if node is not None and node.shape == MAP else None
        return node

    def _viewer(self, number: int) -> PyTorchViewer | Finding:
        """Return the checkpoint in a file, or why there is none."""
        known = self._viewers.get(number)
        if known is not None:
            return known
        file = self._files.open(number)
        if isinstance(file, Finding):
            return file
        try:
            if file.parse().parser.name != PyTorchZipParser.name:
                raise FormatError(f"it is {file.format}, no checkpoint")
            made = self._viewers[number] = PyTorchViewer(file)
        except DataError as error:
            return Finding("missing", f"{self._name_of(number)}: {error.reason}", source=self.extraction.name)
        return made

    # -- which parameters there are ----------------------------------------------------------------------------------

    @cached_property
    def _plan(self) -> dict[str, Parameter]:
        """The parameters by name; none if this is a checkpoint as any."""
        found: dict[str, Parameter] = {}
        shapes = self._part(_SHAPES[0])
        if not self._ranks or shapes is None:
            return found
        charge = self.extraction.session.budget.charge(0, "the list of parameters")
        paddings = self._paddings()
        offset, unknown = 0, None
        for group, table in enumerate(shapes.children()):
            offset = offset if self._in_parts else 0
            if table.kind != "dict":
                unknown = group
                self._note(_SHAPES[0], f"the shapes of group {group} are not described as known")
            for number, (name, shape) in enumerate(self._shapes_in(table)):
                if shape is None:
                    unknown = group
                    continue
                is_known = unknown is None if self._in_parts else unknown != group
                found[name] = Parameter(_TRAINED, shape, group, offset if is_known else None, "")
                size = prod(shape)
                offset += -(-size // self._ranks) if self._in_parts else size
                if group < len(paddings) and number < len(paddings[group]):
                    offset += paddings[group][number]
                charge.resize(_HELD * len(found))
            is_known = unknown != group and table.status is Status.COMPLETE and not self._in_parts
            self._ends.append(offset if is_known else None)
        self._row = offset  # of stage 3: how many elements of all parameters a rank has
        for name, shape in self._shapes_in(self._part(_SHAPES[1])):
            if shape is not None:
                found[name] = Parameter(_FROZEN, shape, None, None, f"{_FRAGMENTS}.{name}")
        buffers, shared = (_plain(self._part(name)) for name in ("buffer_names", "shared_params"))
        for name in buffers if isinstance(buffers, list) else ():
            found.setdefault(str(name), Parameter(_BUFFER, None, None, None, f"{_MODULE}.{name}"))
        for name, other in shared.items() if isinstance(shared, dict) else ():
            if other in found:
                found.setdefault(str(name), found[other])
        charge.resize(_HELD * (len(found) + 1))
        self._charge = charge
        return found

    def _shapes_in(self, table: Node | None) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        """Yield names and shapes of a dict; None where a shape is not known."""
        if table is None or table.kind != "dict":
            return
        parser: Any = table.result.parser
        for name, shape in parser.pairs_of(table):
            known = None
            try:
                known = numbers(shape) if isinstance(name, str) else None
            except Odd:
                self._note(name, "its shape is not described as known")
            yield name, known

    def _paddings(self) -> list[list[int]]:
        """Return how many elements lie behind each parameter of each group, where ranks say that."""
        first = self._first()
        told = None if first is None else _plain(self._part(f"{_OPTIMIZER}.param_alignment_paddings", first))
        rows = told if isinstance(told, list) else []
        return [[n if type(n) is int and n >= 0 else 0 for n in row] if isinstance(row, list) else [] for row in rows]

    def _first(self) -> PyTorchViewer | None:
        """Return the first file of the optimizer that is there."""
        made = (self._viewer(rank) for rank in range(self._ranks))
        return next((viewer for viewer in made if not isinstance(viewer, Finding)), None)

    @cached_property
    def _sizes(self) -> list[int]:
        """How many elements of each group a rank has."""
        first, sizes = self._first(), list[int]()
        while first is not None and (flat := first.find(self._flat_name(len(sizes)))) is not None:
            sizes.append(flat.size)
        return sizes

    @cached_property
    def _is_divided(self) -> bool:
        """Whether the parts of all parameters are just what a rank has: else another number of ranks divided them."""
        return bool(self._plan) and self._row == sum(self._sizes)

    def _flat_name(self, group: int) -> str:
        return f"{_OPTIMIZER}.{'fp32_flat_groups' if self._in_parts else 'single_partition_of_fp32_groups'}.{group}"

    def _note(self, name: str, reason: str) -> None:
        self.findings.add(Finding("malformed", reason, path=name, source=self.extraction.name))

    # -- one of them -------------------------------------------------------------------------------------------------

    def _pieces(self, wanted: Parameter) -> Iterator[Piece]:
        """Yield where the elements of a parameter lie. Raises `Odd`."""
        left, sizes = prod(wanted.shape), self._sizes
        if wanted.kind == _FROZEN:
            if not self._in_parts:
                yield Piece(_STATES, wanted.own, 0, left, left)
            for rank, count, part in self._shares(left, in_states=True) if self._in_parts else ():
                yield Piece(self._states_of(rank), wanted.own, 0, count, part)
            return
        if wanted.offset is None:
            raise Odd("where it lies is not known: a shape before it is not")
        if self._in_parts:
            if not self._is_divided:
                raise Odd(f"what a rank has is not what {self._ranks:,} ranks divide the parameters into")
            for rank, count, _ in self._shares(left):
                yield from self._of_rank(rank, wanted.offset, count)
            return
        size = sizes[wanted.group] if wanted.group < len(sizes) else 0
        if not self._fits(wanted.group, size):
            raise Odd("the pieces of its group are not as long as its parameters, up to what aligns them")
        at = wanted.offset
        while left:
            if not size or at // size >= self._ranks:
                raise Odd("it lies behind the end of its group")
            count = min(left, size - at % size)
            yield Piece(at // size, self._flat_name(wanted.group), at % size, count, size)
            at, left = at + count, left - count

    def _shares(self, left: int, *, in_states: bool = False) -> Iterator[tuple[int, int, int]]:
        """Yield each rank, how many of ``left`` elements it has, and how many with padding; ranks in a row whose files
        are not there as one."""
        part = -(-left // self._ranks)
        for rank, count in self._runs(in_states=in_states):
            if left <= 0:
                return
            yield rank, min(left, part * count), part
            left -= part * count

    def _runs(self, *, in_states: bool) -> list[list[int]]:
        """Return each rank whose file is there (of the model's state, or of the optimizer) with a 1, and the first of
        those in a row whose files are not, with their count."""
        known = self._known_runs.get(in_states)
        if known is not None:
            return known
        names, found, goes_on = names_in(self.extraction.folder), list[list[int]](), False
        for rank in range(self._ranks):
            number = self._states_of(rank) if in_states else rank
            is_there = number == _STATES or self._name_of(number) in names
            if goes_on and not is_there:
                found[-1][1] += 1
            else:
                found.append([rank, 1])
            goes_on = not is_there
        self._known_runs[in_states] = found
        return found

    def _states_of(self, rank: int) -> int:
        """Return the number of the file of the model's state of a rank, of stage 3."""
        return self._ranks + rank - 1 if rank else _STATES

    def _fits(self, group: int, size: int) -> bool:
        """Whether pieces of ``size`` elements, of all ranks, have the parameters of a group, and nothing else."""
        end, step = self._ends[group] if group < len(self._ends) else None, 2 * self._ranks
        return end is None or -(-end // step) == -(-size * self._ranks // step)

    def _of_rank(self, rank: int, at: int, left: int) -> Iterator[Piece]:
        """Yield where elements of a rank lie, of which the groups are in a row."""
        if isinstance(self._viewer(rank), Finding):  # it may be one of several in a row
            yield Piece(rank, self._flat_name(0), 0, left, 0)
            return
        for group, size in enumerate(self._sizes):
            count = min(left, max(0, size - at))
            if count:
                yield Piece(rank, self._flat_name(group), at, count, size)
                left -= count
            at = max(0, at - size)
        if left:
            raise Odd("it lies behind the end of what a rank has")

    def _made(self, name: str, wanted: Parameter) -> Tensor | None:
        if wanted.kind == _BUFFER:
            found = self.states.find(wanted.own)
            if found is not None:
                found.name = name
            return found
        try:
            return self._joined(name, wanted.shape, self._pieces(wanted))
        except Odd as error:
            finding = finding_by_status(Status.DAMAGED, str(error), path=name, source=self.extraction.name)
            told: Any = {"status": Status.DAMAGED, "finding": finding, "owner": self}
            return Tensor(name, DTYPES["float32"], wanted.shape, (), **told)

    def _joined(self, name: str, shape: tuple[int, ...], pieces: Iterable[Piece]) -> Tensor:
        """Return a tensor whose elements are those pieces. Raises `Odd`."""
        dtype, order = DTYPES["float32"], "little"
        spans: list[Span] = []
        worst, reason, seen = Status.COMPLETE, "", None
        for piece in pieces:
            viewer = self._viewer(piece.file)
            where = "the model's state" if piece.file == _STATES else self._name_of(piece.file)
            flat = None if isinstance(viewer, Finding) else viewer.find(piece.name)
            span = flat.spans[0] if flat is not None and flat.spans else None
            if flat is None or span is None or span.data is None or flat.dtype is None:
                lost = viewer.reason if isinstance(viewer, Finding) else f"{piece.name} of {where} is lost"
                spans.append(Span(None, 0, piece.count * dtype.itemsize, self.extraction.name))
                worst, reason = worst_status(worst, Status.TRUNCATED), reason or lost
                continue
            if flat.size != piece.size or len(flat.spans) > 1 or not flat.is_stored_as_array:
                raise Odd(f"{piece.name} of {where} does not hold what it should")
            if seen is not None and (flat.dtype, flat.byteorder) != seen:
                raise Odd(f"{piece.name} of {where} is {flat.dtype.name}, unlike that of others")
            seen = dtype, order = flat.dtype, flat.byteorder
            spans.append(span.part(piece.start * dtype.itemsize, piece.count * dtype.itemsize))
            # What is known of its bytes may change, and is asked of the spans.
            claimed = flat.claimed_status
            if claimed is Status.DAMAGED or (claimed is not Status.COMPLETE and spans[-1].there < spans[-1].length):
                worst = worst_status(worst, Status.DAMAGED if claimed is Status.DAMAGED else Status.TRUNCATED)
                told = flat.finding.reason if flat.finding is not None else str(claimed)
                reason = reason or f"{piece.name} of {where}: {told}"
        if worst is Status.TRUNCATED and not any(span.there for span in spans):
            worst = Status.MISSING
        finding = None
        if worst is not Status.COMPLETE:
            finding = finding_by_status(worst, reason, path=name, source=self.extraction.name)
        more: Any = {"status": worst, "finding": finding, "owner": self, "byteorder": order}
        made = Tensor(name, dtype, shape, tuple(spans), stored_dtype=dtype.name, **more)
        why = self.states._doubt_of_names("")
        if why is not None:
            made.doubt(finding_by_status(Status.DAMAGED, why, path=name, source=self.extraction.name))
        return made

    # -- all of them -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[Tensor]:
        """Yield the parameters, then frozen ones, buffers, and those that are shared."""
        if not self._plan:
            yield from self.states.tensors()
        for name, wanted in self._plan.items():
            tensor = self._made(name, wanted)
            if tensor is not None:
                yield tensor

    def find(self, name: str) -> Tensor | None:
        """Return the tensor with that name, or None."""
        wanted = self._plan.get(name)
        return self.states.find(name) if wanted is None else self._made(name, wanted)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the model's state says besides tensors and shapes."""
        shapes = tuple(f"{name}." for name in _SHAPES)
        return {name: value for name, value in self.states.metadata.items() if not name.startswith(shapes)}

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added: the files of all ranks count, too."""
        if not self._plan:
            return self.states.close_extent(extent)
        is_frozen = any(wanted.kind == _FROZEN for wanted in self._plan.values())
        for number in range(self._count if is_frozen else self._ranks):  # of those in a row, one was asked for
            self._files.open(number)
        for number, viewer in self._viewers.items():
            if number != _STATES:
                self._files.need(number, viewer.extent().expected or 0)
        pickled = self.states.pickled()
        own = Status.DAMAGED if pickled is None else pickled.status
        self._files.close_extent(extent, worst_status(self.root.status, own))
        return self.keep_extent(extent)

    def resolve_all(self) -> None:
        """Compare the checksums of all files, so that no status changes later."""
        for viewer in self._there():
            viewer.is_sound()

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Check the files of all ranks."""
        for viewer in self._there():
            yield from viewer.check(strict=strict)
        yield from self.tell_faults() if self._plan else ()

    def _there(self) -> Iterator[PyTorchViewer]:
        yield self.states
        for number in range(self._count):
            viewer = self._viewer(number)
            if not isinstance(viewer, Finding):
                yield viewer

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the files of other ranks that are there."""
        return self._files.there()

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield those that are not."""
        return ((self._name_of(number), reason) for number, reason in self._files.missing())


def _plain(node: Node | None) -> Any:
    """Return a value as plain data; None if it is lost."""
    try:
        return None if node is None else node.to_python()
    except DataError:
        return None
