"""The tensors of programs of ``torch.export``: what ``torch.export.load(FILE).state_dict`` and ``.constants`` have.

Those of the model ``model``, the only one that `torch.export.load` reads, have their own names, those of another one
``MODEL/NAME``; the arguments it was traced with follow ``example_inputs``. Weights whose description is lost are called
as their members are, ``data/weights/weight_0``.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice

from pparse.errors import DataError, MissingNameError, PathError, UnsupportedError
from pparse.findings import Status
from pparse.limits import count_words
from pparse.parsers.pytorch.exported import CONFIG, INPUTS, PROGRAM, SAVED, USUAL, ExportedProgramParser
from pparse.parsers.pytorch.rebuild import Broken, Odd, StorageId, StoredTensor, numbers
from pparse.tensors.dtype import DTYPES
from pparse.tensors.viewer import Signature, TensorInfo
from pparse.tree.below import kids_of, node_at, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.pickle.walk import Leaf
from pparse.viewers.pytorch.viewer import PyTorchViewer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.parsers.pytorch.exported import Part
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.pickle.viewer import What
    from pparse.viewers.pytorch.exported_graph import ExportedGraph

# torch/_export/serde/schema.py: ScalarType, and the one Layout of which there are bytes.
TYPES: Final = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
_STRIDED: Final = 7
_NAMELESS: Final = ("uint8", "nameless")
_EXAMPLES: Final = "example_inputs"
# A description of more bytes is none of a tensor.
_LONGEST: Final = 1 << 16
# Programs that `metadata` tells of, and ranges of dimensions of one.
_MOST: Final = 100


class ExportedProgramViewer(PyTorchViewer):
    """A mapping of names to tensors: parameters, buffers and constants, and the example inputs."""

    parser: ExportedProgramParser
    described_in = "the description of its tensors"

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.rules = ""  # what torch wants of these is not known

    # -- tensors -----------------------------------------------------------------------------------------------------

    def leaves(self) -> Iterator[Leaf]:
        """Yield every tensor, and what was saved beside them; then the weights that lost their description."""
        whole = True
        for part in self.parser.parts():
            if part.kind == CONFIG:
                root = self.parser.described(part)
                yield from self._of_config(part, root)
                whole &= root is not None and root.status is Status.COMPLETE
            elif part.kind != PROGRAM:
                yield from self._of_saved(part.name, _prefixed(part, _EXAMPLES * (part.kind == INPUTS)))
        if whole and self.root.status is Status.COMPLETE:
            return
        for key in self.parser.keys():  # noqa: SIM118 -- it is no mapping
            storage = self._storage(key, *_NAMELESS, 0)
            if storage.torch_dtype == _NAMELESS[1]:  # no description has named it
                yield Leaf(key, None, [("", StoredTensor(storage, *_NAMELESS, 0, (storage.count,), (1,)))])

    def _of_config(self, part: Part, root: Node | None) -> Iterator[Leaf]:
        """Yield what the JSON says of weights or constants."""
        folder = part.name[: part.name.rindex("/") + 1]
        for node in kids_of(None if root is None or root.shape == SCALAR else root.find("config")):
            name, what = _prefixed(part, str(node.key)), _told(node)
            if isinstance(what, Odd):
                yield Leaf(name, what)
                continue
            key = f"{folder}{what.get('path_name')}"
            if what.get("use_pickle") is True:
                self.first_ids.setdefault(key, StorageId(key, "uint8", "uint8", 0))
                if what.get("tensor_meta") is None:
                    yield Leaf(name, f"<custom object in {key}>")
                else:
                    yield from self._of_saved(key, name, (part.name,))
                continue
            try:
                made = self._described(key, what.get("tensor_meta"))
            except Odd as odd:
                yield Leaf(name, odd)
                continue
            made.told_by = (part.name,)
            yield Leaf(name, None, [("", made)])

    def _described(self, key: str, meta: Any) -> StoredTensor:
        """Return the tensor in a member that a ``TensorMeta`` describes. Raises `Odd`."""
        if not isinstance(meta, dict):
            raise Broken("its description has no type and shape")
        word = TYPES.get(_plain_number(meta.get("dtype")))
        if word is None or meta.get("layout") != _STRIDED:
            raise Odd(f"its type, {meta.get('dtype')!r}, or its layout, {meta.get('layout')!r}, is none that is known")
        shape, stride = (numbers([_int(one) for one in _list(meta.get(side))]) for side in ("sizes", "strides"))
        offset = _int(meta.get("storage_offset"))
        if type(offset) is not int or offset < 0 or len(shape) != len(stride):
            raise Broken("its offset, size and stride do not fit")
        needed = 0 if 0 in shape else offset + 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        held = self.parser.stored(key)
        if held is not None and needed and held.is_complete and not held.size:
            self.first_ids.setdefault(key, StorageId(key, word, word, 0))
            return StoredTensor(None, word, word, 0, shape, stride)  # saved without its values
        storage = self._storage(key, word, word, needed)
        if self.parser.byteorder == "big" and DTYPES[storage.dtype].itemsize != DTYPES[word].itemsize:
            raise Odd("its storage has elements of several sizes, and is big-endian")
        return StoredTensor(storage, word, word, offset, shape, stride)

    def _storage(self, key: str, dtype: str, word: str, needed: int) -> StorageId:
        """Return the storage that a member is; ``needed``: how many elements it should have at least."""
        known = self.first_ids.get(key)
        if known is None:
            held = self.parser.stored(key)
            count = (0 if held is None else held.size) // DTYPES[dtype].itemsize
            known = self.first_ids[key] = StorageId(key, dtype, word, max(count, needed))
        return known

    def _of_saved(self, key: str, prefix: str, told_by: Sequence[str] = ()) -> Iterator[Leaf]:
        """Yield what ``torch.save`` wrote into a member."""
        try:
            storages, root = self.parser.saved(key)
            if root is None:
                raise MissingNameError("its pickle is lost", path=key)
        except (DataError, MissingNameError) as error:
            self._note("lost", f"what it holds cannot be read: {error.reason}", key)
            return
        for leaf in self.walk(root, prefix):
            for _, tensor in leaf.tensors:
                if isinstance(tensor, StoredTensor):
                    tensor.told_by = (*told_by, key)
                    if tensor.storage is not None and tensor.storage.held is None:
                        tensor.storage.held = storages.stored(tensor.storage.key)
            yield leaf

    def _by_path(self, name: str) -> None:
        return None

    def is_bookkeeping(self, tensor: Tensor) -> bool:
        """Return whether it is an example input."""
        return tensor.name.rpartition("/")[2].startswith(f"{_EXAMPLES}.")

    @property
    def names_may_be_lost(self) -> bool:  # type: ignore[override]
        """True: further parts may have been described behind a cut."""
        return True

    # -- what is known of them -----------------------------------------------------------------------------------------

    def descriptions(self) -> Iterator[Node]:
        """Yield the roots of the JSON that describes tensors, and what ``torch.save`` saved."""
        for part in self.parser.parts():
            if part.kind != PROGRAM:
                root = self.parser.described(part)
                if root is None:
                    self._note("lost", "it cannot be read: what it describes is lost", part.name)
                else:
                    yield root

    def is_described(self) -> bool:
        """Return whether there are programs, or tensors: an archive may hold compiled code only."""
        return bool(self._programs) or any(self.parser.keys())

    def described_by(self, name: str, what: What) -> Sequence[str]:
        """Return the members that describe a tensor; of what does not say, all that ``torch.save`` wrote."""
        if isinstance(what, StoredTensor):
            return what.told_by
        return [part.name for part in self.parser.parts() if part.kind in (SAVED, INPUTS)]

    def description(self, key: str) -> Node | None:
        """Return the value of a member that describes tensors."""
        known = next((part for part in self.parser.parts() if part.name == key), None)
        if known is not None:
            return self.parser.described(known)
        try:
            return self.parser.saved(key)[1]
        except DataError:
            return None

    def _doubt_of_names(self, key: str) -> str | None:
        record = self.parser.record(key)
        if record is not None and record.is_renamed:
            return f"{key}, which describes it, has another name in its local header"
        return super()._doubt_of_names(key)

    def _mark(self, tensor: Tensor, what: What) -> Tensor:
        made = super()._mark(tensor, what)
        if isinstance(what, StoredTensor) and not what.told_by and made.is_claimed_whole:
            reason = "its name, type and shape were in a part of the archive that is lost: these are its bytes"
            made.doubt(self._finding(made.name, "unnamed", reason))
        return made

    def first_in(self, member: str) -> tuple[str, int] | None:
        """Return the name of the first tensor in the storage that a member is, and how many it holds."""
        own = member.removeprefix(self.parser.prefix)
        return self._note_storages().get(own) if len(own) < len(member) else None

    # -- programs ------------------------------------------------------------------------------------------------------

    @cached_property
    def _programs(self) -> list[Part]:
        return [part for part in self.parser.parts() if part.kind == PROGRAM]

    @property
    def graph(self) -> Graph | None:
        """The graph of the first program; None if there is none."""
        return self.graph_of() if self._programs else None

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the graph of program ``number``, in the order of the archive."""
        from pparse.graphs.graph import Graph

        return Graph(self._source(number), max_nodes)

    def _source(self, number: int) -> ExportedGraph:
        from pparse.viewers.pytorch.exported_graph import ExportedGraph

        if not self._programs:
            raise UnsupportedError(f"{self.extraction.name}: there is no program")
        if number >= len(self._programs):
            count = count_words(len(self._programs), "program")
            raise PathError(f"{self.extraction.name}: it has {count}", path="graph")
        part = self._programs[number]
        module = node_at(self.parser.described(part), "graph_module")
        root = None if module is None else module.find("graph")
        if module is None or root is None:
            raise PathError(f"{self.extraction.name}: {part.name} has no graph", path="graph")
        return ExportedGraph(self, root, module.find("signature"), prefix=_prefixed(part, ""), model=part.model)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """How each program is called: what it is given besides its parameters, and what it returns."""
        found: dict[str, Signature] = {}
        for number, part in enumerate(self._programs[:_MOST]):
            try:
                source = self._source(number)
                given, returned = _infos(source, source.inputs()), _infos(source, source.results())
            except (DataError, PathError):
                continue
            found[part.model] = Signature(part.model, given, returned, "forward")
        return found

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What each program says of itself: versions, and ranges of dimensions; and values besides tensors."""
        found: dict[str, Any] = {}
        for part in self._programs[:_MOST]:
            root = self.parser.described(part)
            told: dict[str, Any] = {"torch_version": value_at(root, "torch_version")}
            schema = [value_at(root, "schema_version", side) for side in ("major", "minor")]
            told["schema_version"] = ".".join(map(str, schema)) if None not in schema else None
            for key in ("opset_version", "range_constraints"):
                told[key] = {str(kid.key): _shown(kid) for kid in islice(kids_of(node_at(root, key)), _MOST)}
            found |= {_prefixed(part, key): value for key, value in told.items() if value not in (None, {})}
        return {**found, **super().metadata}


def _shown(node: Node) -> Any:
    """Return a number, or the bounds of a dimension as text."""
    if node.shape == SCALAR:
        return value_at(node)
    low, high = (value_at(node, side) for side in ("min_val", "max_val"))
    return f"{'…' if low is None else low} to {'…' if high is None else high}"


def _prefixed(part: Part, name: str) -> str:
    """Return a name as that of a model: only the usual one's are used as they are."""
    return name if part.model == USUAL else f"{part.model}/{name}"


def _told(node: Node) -> dict[str, Any] | Odd:
    """Return what an entry of the JSON says; or why it cannot be read."""
    try:
        if node.status is Status.COMPLETE and sum(length for _, length in node.spans) <= _LONGEST:
            found = node.to_python()
            if isinstance(found, dict):
                return found
    except DataError as error:
        return Broken(f"its description cannot be read: {error.reason}")
    return Broken("its description is cut, damaged, or none")


def _list(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []


def _int(told: Any) -> Any:
    """Return the number in a ``SymInt``; None if it is a symbol."""
    return told.get("as_int") if isinstance(told, dict) else None


def _plain_number(told: Any) -> int:
    return told if type(told) is int else -1


def _infos(source: ExportedGraph, names: Any) -> dict[str, TensorInfo]:
    """Return types and shapes of values by name."""
    found: dict[str, TensorInfo] = {}
    for name in names:
        value = source.value(name, None)
        dtype, shape = (value.dtype, value.shape) if value is not None else ("", None)
        sizes = None if shape is None else tuple(size if isinstance(size, int) else -1 for size in shape)
        found[name] = TensorInfo(name, DTYPES.get(dtype), dtype, sizes, {})
    return found
