"""ExecuTorch: tensors of a program with bytes in it, of a data file by name, and the instructions as a graph.

A tensor with ``data_buffer_idx`` above 0 is constant, or has a state to begin with. Its bytes are in
``constant_buffer``, or in a segment behind the FlatBuffer: of the constants, or of a mutable tensor's own list; those
that are EXTERNAL are in a ``.ptd`` file under their name (pytorch/executorch schema/program.fbs). ``dim_order`` says in
which order the dimensions lie in memory.
"""

from __future__ import annotations

from pparse.errors import DataError, MalformedError, PparseError
from pparse.findings import Status
from pparse.graphs.source import Value
from pparse.parsers.flatbuffers.table import SharedError, Table, Tally
from pparse.tensors.dtype import dtype_named
from pparse.tensors.span import Span
from pparse.tensors.tensor import Tensor
from pparse.viewers.flatbuffers.table_graph import TableGraph
from pparse.viewers.flatbuffers.viewer import FlatBuffersViewer, packed_size, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.source import GraphSource
    from pparse.viewers.flatbuffers.table_graph import Read

_NAMES: Final = {
    "BYTE": "uint8",
    "CHAR": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "QINT8": "int8",
    "QUINT8": "uint8",
    "QINT32": "int32",
}
_EXTERNAL: Final = 1
# Data files that are looked into.
_MOST_FILES: Final = 64


class _SegmentViewer(FlatBuffersViewer):
    """A viewer of tensors that lie in segments."""

    def _segment(self, number: int) -> tuple[int, int]:
        """Return begin and size of a segment. Raises `MalformedError` if there is none."""
        root = Table.root(self.parser)
        references = root.references("segments")
        if number >= len(references):
            raise MalformedError(f"there is no segment {number}: there are {len(references)}", offset=root.at)
        segment = root.element("segments", references[number])
        return self.parser.beyond_start + segment.number("offset"), segment.number("size")

    def _stored(self, name: str, told: Table, start: int, length: int | None) -> Tensor:
        """Return a tensor of which ``told`` gives type, sizes and order; ``length``: of the bytes that are its own."""
        word, shape, order = told.word("scalar_type"), shape_of(told, "sizes"), told.numbers("dim_order")
        dtype = dtype_named(word, _NAMES)
        wanted = None if dtype is None else packed_size(dtype, shape)
        made = self.stored(Tensor, name, dtype, shape, start, wanted or 0 if length is None else length, word, wanted)
        if order and list(order) != sorted(order):
            if sorted(order) != list(range(len(shape))) or dtype is None:
                raise MalformedError(f"its dimensions lie in the order {list(order)}", offset=told.at)
            strides, step = [0] * len(shape), dtype.itemsize
            for axis in reversed(order):
                strides[axis], step = step, step * shape[axis]
            made._strides = tuple(strides)
        return made


class ExecutorchDataViewer(_SegmentViewer):
    """A mapping of names to the tensors of a data file."""

    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the tensors by their keys."""
        for entry in Table.root(self.parser).tables("named_data"):
            yield entry.text("key"), entry.at

    def tensor_of(self, name: str, what: Any) -> Tensor:
        """Return the tensor at a place; what has no layout is bytes."""
        entry = Table(self.parser, self.parser.schema.type("NamedData"), what)
        start, size = self._segment(entry.number("segment_index"))
        layout = entry.table("tensor_layout")
        if layout is None:
            return self.stored(Tensor, name, dtype_named("BYTE", _NAMES), (size,), start, size, "bytes", size)
        return self._stored(name, layout, start, size)

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield the version of the file."""
        yield "version", Table.root(self.parser).number("version")


class ExecutorchViewer(_SegmentViewer):
    """A mapping of names to the tensors of a program: ``METHOD.NUMBER`` where a tensor has no name."""

    _files: list[tuple[str, Extraction]] | None = None

    def _plans(self) -> Iterator[Table]:
        return Table.root(self.parser).tables("execution_plan")

    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the tensors that have bytes, in the program or in a data file."""
        seen: set[object] = set()
        tally = Tally(self.parser)
        for plan in self._plans():
            method = plan.text("name")
            try:
                values = tally.of(plan.references("values"))
            except SharedError as error:
                yield method, error
                return
            for number, reference in enumerate(values):
                try:
                    tensor = plan.element("values", reference).table("val")
                    if tensor is None or tensor.type.name != "Tensor":
                        continue
                    extra, index = tensor.table("extra_tensor_info"), tensor.number("data_buffer_idx")
                    key = "" if extra is None else extra.text("fully_qualified_name")
                    outside = extra is not None and extra.number("location") == _EXTERNAL
                    own = (index, tensor.has("allocation_info"), key)
                    if (not index and not outside) or own in seen:  # methods share their constants
                        continue
                    seen.add(own)
                    yield key or f"{method}.{number}", tensor.at
                except DataError as error:
                    yield f"{method}.{number}", error

    def tensor_of(self, name: str, what: Any) -> Tensor:
        """Return the tensor at a place."""
        table = Table(self.parser, self.parser.schema.type("Tensor"), what)
        extra, index, root = table.table("extra_tensor_info"), table.number("data_buffer_idx"), Table.root(self.parser)
        if extra is not None and extra.number("location") == _EXTERNAL:
            return self._beside(name, self._stored(name, table, 0, 0), extra.text("fully_qualified_name"))
        if table.has("allocation_info"):
            number = extra.number("mutable_data_segments_idx") if extra is not None else 0
            lists = root.references("mutable_data_segments")
            if number >= len(lists):
                raise MalformedError(f"there is no list {number} of mutable tensors", offset=table.at)
            return self._stored(
                name, table, self._in_segment(root.element("mutable_data_segments", lists[number]), index), None
            )
        segment = root.table("constant_segment")
        if segment is not None and segment.place("offsets")[1]:
            return self._stored(name, table, self._in_segment(segment, index), None)
        buffers = root.references("constant_buffer")
        if index >= len(buffers):
            raise MalformedError(f"there is no constant {index}: there are {len(buffers)}", offset=table.at)
        start, length = root.element("constant_buffer", buffers[index]).place("storage")
        return self._stored(name, table, start, length)

    def _beside(self, name: str, told: Tensor, key: str) -> Tensor:
        """Return a tensor whose bytes a data file beside the program has under a key."""
        for _, file in self.files_beside():
            found = file.view().find(key)
            if found is None:
                continue
            if (found.dtype, found.shape) != (told.dtype, told.shape):
                wrong = Status.DAMAGED, "bad-entry", f"{file.name} has it as {found.type_name} {found.shape_text}"
                return self.faulty(name, told.dtype, told.shape, told.stored_dtype, wrong, found.spans)
            made = Tensor(name, told.dtype, told.shape, found.spans, stored_dtype=told.stored_dtype, owner=self)
            made._strides, made._status, made._finding = found._strides, found.claimed_status, found.finding
            return made
        lost = f"its bytes are in a data file (.ptd), as {key!r}, and none beside the program has it"
        span = Span(None, 0, told.size * (1 if told.dtype is None else told.dtype.itemsize), "*.ptd")
        lack = Status.MISSING, "missing-file", lost
        return self.faulty(name, told.dtype, told.shape, told.stored_dtype, lack, (span,))

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the data files in the folder of the program, if one of its tensors may lie there."""
        if self._files is None:
            folder = self.extraction.folder
            names = [] if folder is None else sorted(name for name in folder.names() or () if name.endswith(".ptd"))
            self._files = []
            for name in names[:_MOST_FILES]:
                try:
                    file = self.extraction.sibling(name)
                    if file.format == "executorch-data":
                        self._files.append((name, file))
                except (PparseError, ValueError):
                    continue
        yield from self._files

    def _in_segment(self, told: Table, index: int) -> int:
        """Return where the bytes begin that a list of offsets into a segment has for a number."""
        start, size = self._segment(told.number("segment_index"))
        at, count = told.place("offsets")
        if index >= count:
            raise MalformedError(f"there is no tensor {index} in the segment: there are {count}", offset=told.at)
        offset = int.from_bytes(self.parser.reader.take(at + 8 * index, 8), "little")
        if offset > size:
            raise MalformedError(f"a tensor at {offset:,} of a segment of {size:,} bytes", offset=at + 8 * index)
        return start + offset

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield version, methods, operators, backends."""
        yield "version", Table.root(self.parser).number("version")
        methods, operators, backends = list[str](), set[str](), set[str]()
        for plan in self._plans():
            methods.append(plan.text("name"))
            yield "methods", methods
            operators.update(map(_operator, plan.tables("operators")))
            yield "operators", sorted(operators)
            backends.update(one.text("id") for one in plan.tables("delegates"))
            yield "backends", sorted(backends)

    def graph_source(self, number: int) -> GraphSource | None:
        """Return method ``number``."""
        plans = list(self._plans())
        return ExecutorchGraph(self, plans[number], number) if number < len(plans) else None


def _operator(told: Table) -> str:
    overload = told.text("overload")
    return told.text("name") + (f".{overload}" if overload else "")


class ExecutorchGraph(TableGraph):
    """The instructions of a method, with values by their numbers."""

    format = "ExecuTorch"
    where = "backend"

    def __init__(self, viewer: ExecutorchViewer, plan: Table, number: int) -> None:
        chain = next(plan.tables("chains"), None)
        super().__init__(viewer, chain, "instructions", ("execution_plan", number, "chains", 0))
        self._plan = plan
        self._operators = [_operator(one) for one in plan.tables("operators")]

    def read(self, element: Table) -> Read:
        """Return what an instruction says: a kernel makes its last argument, a backend outputs of the method."""
        step = element.table("instr_args")
        if step is None:
            return "", "nothing", (), "", (), ()
        op = step.type.name
        made: Sequence[int] = ()
        inputs: Sequence[int] = ()
        if op == "KernelCall":
            number, args = step.number("op_index"), step.numbers("args")
            op = self._operators[number] if 0 <= number < len(self._operators) else f"operator {number}"
            if op.partition(".")[0].endswith("_"):  # it changes a value that is there
                made, inputs = (), args
            else:
                made, inputs = args[-1:], tuple(one for one in args if one != args[-1])
        elif op == "DelegateCall":
            outputs, args = set(self._plan.numbers("outputs")), step.numbers("args")
            made, inputs = (tuple(one for one in args if (one in outputs) is side) for side in (True, False))
        elif op == "MoveCall":
            made, inputs = (step.number("move_to"),), (step.number("move_from"),)
        return f"{op};{element.at:x}", op, list(map(str, inputs)), "", (), list(map(str, made))

    def inputs(self) -> Sequence[str]:
        """Return the inputs."""
        return [str(number) for number in self._plan.numbers("inputs")]

    def constants(self) -> Iterator[str]:
        """Yield the values that are no inputs, and that no instruction makes."""
        made = {name for row in self.rows() for name in row[6] or ()} | set(self.inputs())
        for number in range(len(self._plan.references("values"))):
            if str(number) not in made:
                yield str(number)

    def results(self) -> Mapping[str, str]:
        """Return the outputs."""
        return {str(number): str(number) for number in self._plan.numbers("outputs")}

    def value(self, name: str, ordinal: int | None) -> Value | None:
        """Return type and shape of a tensor, the type of another value."""
        references = self._plan.references("values")
        if not name.isdecimal() or int(name) >= len(references):
            return None
        try:
            value = self._plan.element("values", references[int(name)]).table("val")
        except DataError:
            return None
        if value is None or value.type.name != "Tensor":
            return None if value is None else Value(name, value.type.name, None)
        word = value.word("scalar_type")
        return Value(name, str(dtype_named(word, _NAMES) or word), tuple(value.numbers("sizes")))
