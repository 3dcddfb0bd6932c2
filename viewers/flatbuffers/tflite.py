"""TFLite models: constants and weights of all subgraphs, how their codes are meant, and the graph.

A tensor names a buffer by its number; buffer 0, and any without bytes, is that of a value that is computed. The bytes
are in the buffer's table; or, in models beyond 2 GiB, behind the FlatBuffer at an offset in the file (values above 1
count); or in a file beside the model (``external_buffers``). All are little-endian, elements of less than a byte packed
from the lowest bits on (tflite/converter/schema/schema.fbs; tflite/core/model_builder.cc,
tflite/core/interpreter_builder.cc). Strings: ``int32`` number, offsets of all and of the end, the bytes
(tflite/string_util.cc).
"""

from __future__ import annotations

from functools import partial
from struct import unpack_from

from pparse.errors import DataError, EndOfDataError, MalformedError
from pparse.findings import Finding, Status
from pparse.parsers.flatbuffers.table import SharedError, Table, Tally
from pparse.parsers.protobuf.message import Problem
from pparse.tensors.dtype import DTYPES, dtype_named
from pparse.tensors.scales import Grid, Quantisation
from pparse.tensors.span import Span
from pparse.tensors.tensor import Tensor
from pparse.tensors.text_tensor import TextTensor
from pparse.tensors.viewer import Signature, TensorInfo
from pparse.tree.index import meant_by_name
from pparse.viewers.flatbuffers.tflite_sparse import SparseTensor
from pparse.viewers.flatbuffers.viewer import FlatBuffersViewer, packed_size, shape_of
from pparse.viewers.tensor_proto.external import ExternalFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.source import GraphSource
    from pparse.limits import Charge
    from pparse.tensors.dtype import DType

    # Number of the subgraph, and where the table of the tensor is.
    Place = tuple[int, int]

_SMALLEST: Final = 1
# Memory of the number of an external buffer, and of where the reference to it stands.
_EXTERNAL_COST: Final = 150
# Bytes of a buffer begin at a multiple of that at most, and padding stands between their table and them.
_ALIGNED: Final = 64


class TfliteViewer(FlatBuffersViewer):
    """A mapping of names to the tensors that have bytes in the model, those of all subgraphs."""

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self._buffers: tuple[int, int] | None = None
        # Models share such files: that one is longer than a model needs says nothing.
        self.external = ExternalFiles(extraction, lambda: False)
        self._external_buffers: tuple[object, dict[int, int], Charge] | None = None

    @property
    def model(self) -> Table:
        """The root table. Raises `DataError`."""
        return Table.root(self.parser)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def described(self) -> Iterator[tuple[str, Any]]:
        """Yield the tensors that have bytes; of a cut model, then the buffers that none of them names."""
        named: set[int] = set()
        lost, tally = False, Tally(self.parser)
        for number, graph in enumerate(self._subgraphs()):
            if graph is None:
                lost = True
                continue
            try:
                tensors = tally.of(graph.references("tensors"))
                lost = lost or len(tensors) < graph.place("tensors")[1]
            except SharedError as error:
                yield f"subgraph_{number}", error
                return
            except DataError:
                lost = True
                continue
            yield from self._of_subgraph(number, graph, tensors, named)
        try:
            buffers = range(1, len(self.model.references("buffers"))) if lost else ()
        except DataError:
            return  # what the root is, its status tells
        for number in buffers:
            try:
                if number not in named and self._place_of_buffer(number)[1]:
                    yield f"buffer_{number}", number
            except DataError:
                continue  # nothing is known of it

    def _subgraphs(self) -> Iterator[Table | None]:
        """Yield the subgraphs; None for what cannot be read, be it one of them or all."""
        try:
            model = self.model
            references, (start, count) = model.references("subgraphs"), model.place("subgraphs")
        except DataError:
            yield None
            return
        for reference in references:
            try:
                yield model.element("subgraphs", reference)
            except DataError:
                yield None
        if len(references) < count or not start:
            yield None

    def _of_subgraph(self, number: int, graph: Table, tensors: range, named: set[int]) -> Iterator[tuple[str, Any]]:
        for ordinal, reference in enumerate(tensors):
            try:
                tensor = graph.element("tensors", reference)
                named.add(tensor.number("buffer"))
                if self._has_bytes(tensor):
                    yield tensor_name(tensor, ordinal), (number, tensor.at)
            except DataError as error:
                yield f"tensor_{ordinal}", error

    def _has_bytes(self, tensor: Table) -> bool:
        if tensor.number("external_buffer"):
            return True
        try:
            buffer = self._buffer(tensor.number("buffer"))
            return buffer is not None and (buffer.has("data") or buffer.number("size") > 0)
        except DataError:
            return True  # `tensor_of` says what is wrong

    def _buffer(self, number: int) -> Table | None:
        """Return the table of a buffer; None for number 0. Raises `DataError`."""
        if not number:
            return None
        if self._buffers is None:
            self._buffers = self.model.place("buffers")
        start, count = self._buffers
        if number >= count:
            raise MalformedError(f"there is no buffer {number:,}: there are {count:,}", offset=start)
        reader = self.parser.reader
        return Table(self.parser, self.parser.schema.type("Buffer"), reader.target(start + 4 * number))

    def tensor_of(self, name: str, what: Place | int) -> Tensor:
        """Return the tensor at a place, or the bytes of a buffer by its number."""
        if isinstance(what, int):
            return self._nameless(name, what)
        table = self._table(what[1])
        word = table.word("type")
        shape = shape_of(table, "shape")
        dtype = dtype_named(word)
        wanted = None if dtype is None else packed_size(dtype, shape)
        start, length = self._bytes_of(table)
        sparsity = table.table("sparsity")
        if sparsity is not None and dtype is not None and start is not None:
            count = 8 * length // dtype.bits
            values = self.stored(Tensor, name, dtype, (count,), start, length, word, packed_size(dtype, (count,)))
            return SparseTensor(name, dtype, shape, values, sparsity)
        if start is None:
            return self._external(name, dtype, shape, table, word, wanted)
        kind = TextTensor if word == "STRING" else Tensor
        made = self.stored(kind, name, dtype, shape, start, length, word, wanted)
        if isinstance(made, TextTensor):
            content = self.extraction.data.range(start, start + length)
            made._listing = partial(strings_in, content, made.size), content
        return made

    def _nameless(self, name: str, number: int) -> Tensor:
        """Return the bytes of a buffer whose tensor is lost: they are there, but not what they are."""
        start, length = self._place_of_buffer(number)
        made = self.stored(Tensor, name, DTYPES["uint8"], (length,), start, length, "bytes", length)
        reason = "its name, type and shape are cut off: these are the bytes of a buffer"
        made.doubt(Finding("nameless", reason, path=name, source=self.extraction.name, offset=start))
        return made

    def _place_of_buffer(self, number: int) -> tuple[int, int]:
        """Return where the bytes of a buffer begin, and their number.

        All tables of buffers share a vtable, which the converter puts last. Without it, a table is taken for one that
        has bytes, and nothing else, if what it leads to begins right behind it.
        """
        try:
            buffer = self._buffer(number)
            return (0, 0) if buffer is None else self._bytes_in(buffer)
        except EndOfDataError:
            reader = self.parser.reader
            table = reader.target(self.model.place("buffers")[0] + 4 * number)
            vector = reader.target(table + 4)
            if not 0 <= vector - table - 8 < _ALIGNED:
                raise
            return reader.vector(vector, 1)

    def _table(self, at: int) -> Table:
        return Table(self.parser, self.parser.schema.type("Tensor"), at)

    def _bytes_of(self, table: Table) -> tuple[int | None, int]:
        """Return where the bytes of a tensor are, and their number; None: in another file."""
        if table.number("external_buffer"):
            return None, 0
        buffer = self._buffer(table.number("buffer"))
        return (self.parser.buffer_start, 0) if buffer is None else self._bytes_in(buffer)

    def _bytes_in(self, buffer: Table) -> tuple[int, int]:
        """Return where the bytes of a buffer begin, in its table or behind the FlatBuffer, and their number."""
        if buffer.number("offset") > _SMALLEST:
            return self.parser.buffer_start + buffer.number("offset"), buffer.number("size")
        return buffer.place("data")

    def _external(
        self, name: str, dtype: DType | None, shape: tuple[int, ...], table: Table, word: str, wanted: int | None
    ) -> Tensor:
        """Return a tensor whose bytes are in a file beside the model."""
        model, wanted_id = self.model, table.number("external_buffer")
        reference = self._outside().get(wanted_id)
        if reference is None:
            raise MalformedError(f"there is no external buffer {wanted_id}", offset=table.at)
        buffer, groups = model.element("external_buffers", reference), model.references("external_buffer_groups")
        number = buffer.number("group")
        if number >= len(groups):
            raise MalformedError(f"there is no group {number} of external buffers", offset=buffer.at)
        file = model.element("external_buffer_groups", groups[number]).text("name")
        length = buffer.number("length")
        size = length if wanted is None else wanted
        found = self.external.place(file, buffer.number("offset"), length, size)
        if isinstance(found, Problem):
            spans = (Span(None, 0, size, file),) if found.status is Status.MISSING else ()
            return self.faulty(name, dtype, shape, word, (found.status, found.status.code, found.reason), spans)
        if found.status is not Status.COMPLETE:
            told = found.status, found.status.code, found.reason
            return self.faulty(name, dtype, shape, word, told, (found.span,))
        return Tensor(name, dtype, shape, (found.span,), stored_dtype=word, owner=self)

    def _outside(self) -> dict[int, int]:
        """Return where the references to the external buffers stand, by their numbers; the first of a number counts."""
        data, model = self.extraction.data, self.model
        stamp = (data.revision, data.reach)
        if self._external_buffers is None or self._external_buffers[0] != stamp:
            references = model.references("external_buffers")
            charge = self.extraction.session.budget.charge(_EXTERNAL_COST * len(references), "the external buffers")
            found: dict[int, int] = {}
            for reference in references:
                try:
                    found.setdefault(model.element("external_buffers", reference).number("id"), reference)
                except DataError:
                    continue  # nothing is known of it
            self._external_buffers = stamp, found, charge
        return self._external_buffers[1]

    def files_beside(self) -> Iterator[tuple[str, Extraction]]:
        """Yield the files with external buffers that are there."""
        contents = ((name, self.external.file(name).content) for name in self._file_names())
        return ((name, content) for name, content in contents if content is not None)

    def files_missing(self) -> Iterator[tuple[str, str]]:
        """Yield the files with external buffers that are not there, and why."""
        problems = ((name, self.external.file(name).problem) for name in self._file_names())
        return ((name, problem.reason) for name, problem in problems if problem is not None)

    def _file_names(self) -> Sequence[str]:
        try:
            return list(dict.fromkeys(one.text("name") for one in self.model.tables("external_buffer_groups")))
        except DataError:
            return ()

    # -- codes ---------------------------------------------------------------------------------------------------------

    def quantisation(self, tensor: Tensor) -> Quantisation | None:
        """Return how the codes of a tensor are meant: by its scales and zero points, or those in other tensors."""
        rows = self._list()[0]
        number = meant_by_name(tensor.name, self._nth)
        if number is None or not isinstance(rows[number][1], tuple) or tensor.dtype is None:
            return None
        graph, at = rows[number][1]
        told = self._table(at).table("quantization")
        if told is None or tensor.dtype.kind not in ("int", "uint"):
            return None
        if told.has("details"):
            return self._by_blocks(tensor, told, graph)
        scales, zeros = told.place("scale"), told.place("zero_point")
        if not scales[1]:
            return None
        found = Quantisation(tensor.name, tensor, ())
        scale = self._numbers(f"{tensor.name}.scale", "float32", *scales)
        zero = self._numbers(f"{tensor.name}.zero_point", "int64", *zeros) if zeros[1] else None
        found.parts = (scale,) if zero is None else (scale, zero)
        found.told |= {"scale": scale} | ({} if zero is None else {"zero_point": zero})
        axis = told.number("quantized_dimension")
        each = scales[1] > 1 or (
            0 <= axis < tensor.ndim and tensor.shape[axis] == 1 and scales[1] == 1 and zeros[1] > 1
        )
        if not each and zeros[1] in (0, 1):
            found.scales, found.zero = [Grid(scale)], None if zero is None else Grid(zero)
            return found
        found.told["axis"] = axis
        if not (0 <= axis < tensor.ndim and scales[1] == tensor.shape[axis] and zeros[1] in (0, scales[1])):
            found.problem = f"it has {scales[1]} scales and {zeros[1]} zero points for dimension {axis}"
            return found
        found.scales = [Grid(scale, (axis,), (1,))]
        found.zero = None if zero is None else Grid(zero, (axis,), (1,))
        return found

    def _by_blocks(self, tensor: Tensor, told: Table, graph: int) -> Quantisation | None:
        """Return how codes are meant whose scales, one for a block along the last dimension, are another tensor."""
        details = told.table("details")
        if details is None or details.type.name != "BlockwiseQuantization":
            return None
        model = self.model
        tensors = model.element("subgraphs", model.references("subgraphs")[graph])
        references = tensors.references("tensors")
        found = Quantisation(tensor.name, tensor, ())
        number, size = details.number("scales"), details.number("block_size")
        if not (0 <= number < len(references) and size > 0 and tensor.ndim):
            found.problem = f"its scales are tensor {number}, for blocks of {size}"
            return found
        table = tensors.element("tensors", references[number])
        scale = self.tensor_of(tensor_name(table, number), (graph, table.at))
        axes = tuple(range(tensor.ndim))
        steps = (*(1 for _ in axes[1:]), size)
        found.parts, found.told = (scale,), {"scale": scale, "block_size": size}
        blocks = (*tensor.shape[:-1], -(-tensor.shape[-1] // size))
        if scale.shape != blocks:
            found.problem = (
                f"its scale {scale.name} is of {scale.shape_text}, for blocks of {size} of {tensor.shape_text}"
            )
            return found
        found.scales = [Grid(scale, axes, steps)]
        return found

    def _numbers(self, name: str, dtype: str, start: int, count: int) -> Tensor:
        kind = DTYPES[dtype]
        length = count * kind.itemsize
        return self.stored(Tensor, name, kind, (count,), start, length, dtype, None)

    # -- what the file says of itself ----------------------------------------------------------------------------------

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Yield version, description, operators, subgraphs, names of the metadata."""
        model = self.model
        yield "version", model.number("version")
        yield "description", model.text("description")
        yield "operators", sorted({operator_name(code) for code in model.tables("operator_codes")})
        names = [graph.text("name") for graph in model.tables("subgraphs")]
        yield "subgraphs", names if any(names) else []
        yield "metadata", [entry.text("name") for entry in model.tables("metadata")]

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The ways to call the model: its signatures; without any, inputs and outputs of its first subgraph."""
        found: dict[str, Signature] = {}
        try:
            model = self.model
            graphs = list(model.tables("subgraphs"))
            for told in model.tables("signature_defs"):
                number = told.number("subgraph_index")
                if number < len(graphs):
                    name = told.text("signature_key") or f"subgraph {number}"
                    inputs, outputs = (self._named(graphs[number], told.tables(side)) for side in ("inputs", "outputs"))
                    found[name] = Signature(name, inputs, outputs, "")
            if not found and graphs:
                name = graphs[0].text("name") or "main"
                inputs, outputs = (self._infos(graphs[0], graphs[0].numbers(side)) for side in ("inputs", "outputs"))
                found[name] = Signature(name, inputs, outputs, "")
        except DataError:
            pass
        return found

    def _named(self, graph: Table, pairs: Iterator[Table]) -> dict[str, TensorInfo]:
        return {pair.text("name"): self._info(graph, pair.number("tensor_index")) for pair in pairs}

    def _infos(self, graph: Table, numbers: Sequence[int]) -> dict[str, TensorInfo]:
        return {info.tensor: info for info in (self._info(graph, number) for number in numbers)}

    def _info(self, graph: Table, number: int) -> TensorInfo:
        references = graph.references("tensors")
        if not 0 <= number < len(references):
            return TensorInfo(f"tensor_{number}", None, "", None, {})
        table = graph.element("tensors", references[number])
        word = table.word("type")
        shape = table.numbers("shape_signature") or table.numbers("shape")
        return TensorInfo(tensor_name(table, number), dtype_named(word), word, tuple(shape), {})

    def graph_source(self, number: int) -> GraphSource | None:
        """Return subgraph ``number``."""
        from pparse.viewers.flatbuffers.tflite_graph import TfliteGraph

        return TfliteGraph(self, number) if number < len(self.model.references("subgraphs")) else None


def tensor_name(tensor: Table, ordinal: int) -> str:
    """Return the name of a tensor, or one by its number in its subgraph."""
    return tensor.text("name") or f"tensor_{ordinal}"


def operator_name(code: Table) -> str:
    """Return the name of an operation: that of a custom one is its own.

    Operations above 126 are in a field of 32 bits; the older one has 127 then, or their number in files of before
    (tflite/converter/schema/schema_utils.cc: the larger one counts).
    """
    number = max(code.number("deprecated_builtin_code"), code.number("builtin_code"))
    names = code.type.fields[3].type.names
    word = names.get(number, f"operator {number}")
    return code.text("custom_code") or word if word == "CUSTOM" else word


def strings_in(content: Any, count: int) -> Iterator[bytes]:
    """Yield the strings of a buffer. Raises `MalformedError` if they are not ``count``, or leave the buffer."""
    data, start, size = content.data, content.start, len(content)
    (stated,) = unpack_from("<i", data.read_exact(start, 4)) if size >= 4 else (0,)
    if stated != count or 4 * (count + 2) > size:
        raise MalformedError(f"the buffer has {stated:,} strings, the shape needs {count:,}", offset=start)
    begin: int | None = None
    for number in range(0, count + 1, 1024):
        some = min(1024, count + 1 - number)
        for end in unpack_from(f"<{some}i", data.read_exact(start + 4 + 4 * number, 4 * some)):
            if begin is not None:
                if not 0 <= begin <= end <= size:
                    raise MalformedError("a string leaves the buffer", offset=start)
                yield data.read_exact(start + begin, end - begin)
            begin = end
