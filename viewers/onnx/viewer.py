"""ONNX models: initializers, attributes of nodes, functions; inline of any size, or in files beside the model."""

from __future__ import annotations

from functools import cached_property
from itertools import count, islice

from pparse.data.base import Range
from pparse.errors import FaultError, LimitError, MalformedError, PathError
from pparse.findings import Finding
from pparse.limits import count_words
from pparse.parsers.onnx.parser import MAP, SEQUENCE, TENSOR
from pparse.parsers.protobuf.message import Message, Problem
from pparse.protos import schema as builtin_schema
from pparse.tree.below import kids_of, value_at
from pparse.tree.entry import SCALAR
from pparse.viewers.onnx.places import OnnxPlace, OnnxPlaces, function_name
from pparse.viewers.onnx.tensors import NAME, OnnxMaker
from pparse.viewers.tensor_proto.external import ExternalViewer
from pparse.viewers.tensor_proto.maker import numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.parsers.onnx.parser import OnnxDataParser
    from pparse.parsers.protobuf.index import Piece, WireWindow
    from pparse.protobuf.schema import Schema
    from pparse.tensors.status import Extent
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node

    # A value still to be gone through: its name, its type, its message, and a window near that.
    Value = tuple[str, str, Sequence[Piece], WireWindow | None]

_FACTS: Final = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string")
# The most values of a list that `metadata` has.
_MOST: Final = 10_000


class OnnxViewer(ExternalViewer):
    """A mapping of names to the tensors of a model; see `pparse.viewers.onnx.places` for the names."""

    constants: OnnxPlaces
    rules = "onnx.checker for the names in a graph"
    needs_graph = True
    """Whether a message without a graph lacks something."""
    names_may_be_lost = True  # unlike a graph of TensorFlow, a model has its weights in it

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        schema = builtin_schema()
        self._maker = OnnxMaker(self.source, self.parser.make, schema, self)
        self.constants = OnnxPlaces(self.parser, self._maker, schema)
        self.external = self._maker.external

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Return the main graph, the only one that has a number."""
        from pparse.graphs.graph import Graph
        from pparse.viewers.onnx.graph import OnnxGraph

        root = self.root.find("graph")
        if root is None or number:
            reason = "the model has no graph" if root is None else "an ONNX model has one main graph"
            raise PathError(f"{self.extraction.name}: {reason}", path="graph")
        return Graph(OnnxGraph(self.constants, root), max_nodes)

    def tensor_at(self, node: Node) -> Tensor | None:
        """Return the tensor of an initializer of the main graph."""
        table = node.parent
        graph = None if table is None or table.key != "initializer" else table.parent
        return self.find(value_at(node, "name") or "") if graph is not None and graph.parent is self.root else None

    def placed(self) -> Iterator[tuple[OnnxPlace, Tensor]]:
        """Yield every tensor in file order, with its place."""
        found: Any
        for found, name in self._numbered():
            yield found, self.constants.tensor(found, name)

    # -- what the file says of itself --------------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the model says about itself: versions, producer, operator sets, inputs and outputs, its properties."""
        root = self.root
        found: dict[str, Any] = {key: value for key in _FACTS if (value := value_at(root, key)) not in (None, "")}
        opsets = islice(kids_of(root.find("opset_import")), _MOST)
        found["opset_imports"] = {value_at(kid, "domain") or "ai.onnx": value_at(kid, "version") for kid in opsets}
        name = value_at(root, "graph", "name")
        if name:
            found["graph"] = name
        functions = [function_name(kid) for kid in islice(kids_of(root.find("functions")), _MOST)]
        if functions:
            found["functions"] = functions
        for kid in islice(kids_of(root.find("metadata_props")), _MOST):
            found[f"metadata_props.{value_at(kid, 'key')}"] = value_at(kid, "value")
        return found

    def frames(self) -> Iterator[Node]:
        """Yield the nodes of the graph, the functions, and the graphs of training."""
        root = self.root
        for key in ("graph", "functions", "training_info"):
            found = root.find(key)
            if found is not None and found.shape != SCALAR:
                yield found

    # -- how complete it is ------------------------------------------------------------------------------------------

    def check(self, *, strict: bool = False) -> Iterator[Finding]:
        """Parse everything, look at each tensor, and compare the files beside the model with their checksums."""
        yield from super().check(strict=strict)
        if strict and self.is_whole():
            yield from self._check_graph()

    def _check_graph(self) -> Iterator[Finding]:
        """Yield why onnx.checker would refuse the graph: values that nothing makes, which may show a damaged name."""
        try:
            found = [] if self.root.find("graph") is None else list(self.graph_of().check())
        except LimitError:
            return  # a graph of very many nodes: `pparse graph --max-nodes`
        for finding in found:
            self.findings.add(finding)
            yield finding

    def close_extent(self, extent: Extent) -> Extent:
        """Complete an extent to which all tensors were added; a model without a graph is not whole."""
        if self.needs_graph and self.root.find("graph") is None and self.is_whole():
            reason = "the model has no graph: it may be cut behind its first fields"
            self.findings.add(Finding("no-graph", reason, source=self.source.name, offset=self.source.find_end()))
            extent.end_early(1)
            return self.keep_extent(extent)
        return super().close_extent(extent)


# -- values by themselves: the tensors of a TensorProto, a SequenceProto, an OptionalProto or a MapProto ---------------

# Names: a tensor has its own, or else that of the file. The elements of a sequence are ``NAME[0]``, ``NAME[1]`` …,
# those of a map ``NAME[KEY]``; of values in values, ``NAME[KEY][0]``. A sparse tensor is ``NAME.values`` and
# ``NAME.indices``.

_SPARSE: Final = "onnx.SparseTensorProto"
# The fields of a sequence (and an optional value), by what is in them.
_ELEMENTS: Final = ((3, TENSOR), (4, _SPARSE), (5, SEQUENCE), (6, MAP), (7, SEQUENCE))
_KEY_TYPE, _INT_KEYS, _TEXT_KEYS, _VALUES = 2, 3, 4, 5
# The type of keys that are texts; those of every other one are integers (onnx/numpy_helper.py, to_dict).
_TEXT: Final = 8
# Those of a sequence that are none; which kind of elements it has, each in the field that is two behind.
_NO_ELEMENTS: Final = {1, 2}
_KIND, _BEHIND = 2, 2
# Longer keys are cut.
_KEY: Final = 1 << 10


class OnnxDataPlaces(OnnxPlaces):
    """The tensors of one value, in order."""

    def __init__(self, parser: OnnxDataParser, maker: OnnxMaker, schema: Schema, name: str) -> None:
        super().__init__(parser, maker, schema)
        self._name = name  # of what has none
        self._types = {kind: schema.message(kind) for kind in (SEQUENCE, MAP)}
        self._unsure: tuple[int, str] | None = None  # from which offset on names may be those of others, and why

    def places(self, *, most: int | None = None, scopes: list[Any] | None = None) -> Iterator[OnnxPlace]:
        """Yield where each tensor is, with its name, which may not be unique, of the first ``most`` ones."""
        for ordinal, place in enumerate(islice(self._places(), most)):
            place.at = 0, 1, ordinal  # in no list of initializers
            yield place

    def at(self, scopes: Sequence[Any], *numbers: int) -> Iterator[OnnxPlace]:
        """Yield the place with this number."""
        return islice(self.places(), numbers[-1], numbers[-1] + 1)

    def worth_searching(self, name: str) -> Iterator[OnnxPlace]:
        """Return all places: there is no faster way to one, and no need to hold their names."""
        return self.places()

    def _places(self) -> Iterator[OnnxPlace]:
        session = self.parser.result.extraction.session
        root = self.parser.message_name or TENSOR
        waiting: list[Iterator[Value]] = [iter([(self._name, root, self.parser.root_pieces(), None)])]
        is_own = True
        while waiting:
            session.check_cancelled()
            try:
                found = next(waiting[-1], None)
            except FaultError as error:  # what is before it is there
                self.note(error)
                found = None
            if found is None:
                waiting.pop()
                continue
            name, kind, pieces, near = found
            if kind == TENSOR:
                own = self.text(Message(self.make, pieces, self.maker.type, near), NAME) if is_own else ""
                yield OnnxPlace(own or name, pieces, near)
            elif kind == _SPARSE:
                yield from self._sparse(name, pieces, near)
            else:
                session.limits.check("depth", len(waiting), "the depth of values in values")
                waiting.append(self._values(name, kind, pieces, near, is_own=is_own))
            is_own = False

    def _values(
        self, name: str, kind: str, pieces: Sequence[Piece], near: WireWindow | None, *, is_own: bool
    ) -> Iterator[Value]:
        """Yield what a sequence or a map has in it; ``is_own``: under the name that it has itself."""
        message = Message(self.make, pieces, self._types[kind], near)
        name = (is_own and self.text(message, 1)) or name
        labels: Iterator[Any] = count()
        around = [message]
        if kind == MAP:
            labels = self._keys(message)
            values = message.message(_VALUES)
            if values is None:
                return
            message = values
            around.append(message)
        self._look_for_strays(around)
        for number, inner in _ELEMENTS:
            for element in message.elements(number):
                yield f"{name}[{next(labels, '?')}]", inner, element, message.near

    def _look_for_strays(self, around: Sequence[Message]) -> None:
        """Note from where on elements of a sequence, the last of ``around``, may be those of other numbers or keys.

        A field that is none of its kind, behind the first element, is one whose tag is damaged. Before it in ``around``
        is the map that it is of, if any; onnx refuses one with more or fewer values than keys of the type that it says
        (onnx/numpy_helper.py, to_dict).
        """
        if any(message.problem is not None for message in around) or self._unsure is not None:
            return  # elements are read up to where it breaks
        last = around[-1]
        # All are of one kind, and damage behind them may say another one: that of the first one counts.
        firsts = ((run.offsets[0], number) for number, _ in _ELEMENTS for _, run in last.runs(number))
        begin, kind = min(firsts, default=(0, 0))
        elements = {kind}
        others = [(last, set(last.fields) - elements - _NO_ELEMENTS)]
        others += [(message, set(message.fields) - set(message.type.fields)) for message in around[:-1]]
        strays = [run.offsets[0] for message, more in others for number in more for _, run in message.runs(number)]
        strays += [
            at for number in _NO_ELEMENTS for _, run in last.runs(number) for at in run.offsets if at > begin > 0
        ]
        alike = [run for number in elements for _, run in last.runs(number)]
        first, found = min(strays, default=0), sum(run.count for run in alike)
        wrong = None if last is around[0] else self._wrong_keys(around[0], found)
        if wrong is not None:
            self._unsure = first, wrong
            self.note(MalformedError(wrong, offset=first), "malformed")
        elif found and not strays and last.scalar(_KIND) + _BEHIND not in elements:
            self.note(MalformedError("the elements are of another kind than is said of them"), "malformed")
        elif last is around[0] and strays and any(first < run.last for run in alike):
            self._unsure = first, "a field that is no element is among the elements"

    def tensor(self, place: OnnxPlace, name: str | None = None) -> Tensor:
        """Return the tensor at a place, under that name, which may be that of another one."""
        made = super().tensor(place, name)
        if self._unsure is None or isinstance(place.value, Problem):
            return made
        (first, why), part = self._unsure, place.value[0]
        if isinstance(part, Range) and part.start > first:
            reason = f"{why}: it may have the name of another one"
            made.doubt(Finding("bad-entry", reason, path=made.name, source=self.make.extraction.name))
        return made

    @staticmethod
    def _wrong_keys(message: Message, values: int) -> str | None:
        """Return what is wrong with the keys of a map of so many values: those of the type that it says name them."""
        texts = sum(run.count for _, run in message.runs(_TEXT_KEYS))
        keys, others = sum(1 for _ in numbers(message, _INT_KEYS)), texts
        if message.scalar(_KEY_TYPE) == _TEXT:
            keys, others = others, keys
        if others:
            return "the map has keys of another type than it says"
        return None if keys == values else f"the map has {count_words(keys, 'key')} and {count_words(values, 'value')}"

    @staticmethod
    def _keys(message: Message) -> Iterator[Any]:
        """Yield the keys of a map, and behind them numbers.

        All keys are of one kind, and stand before the values. If there are two, what is behind the first is damage.
        """
        firsts = ((run.offsets[0], kind) for kind in (_TEXT_KEYS, _INT_KEYS) for _, run in message.runs(kind))
        number = -1
        if min(firsts, default=(0, _TEXT_KEYS))[1] == _INT_KEYS:
            for number, key in enumerate(numbers(message, _INT_KEYS)):  # noqa: B007 -- the last one counts
                yield key
        else:
            for number, (scan, _, at) in enumerate(message.occurrences(_TEXT_KEYS)):  # noqa: B007
                raw = scan.part.data.pread(at.start, min(at.end - at.start, _KEY))
                yield raw.decode("utf-8", "backslashreplace")
        yield from count(number + 1)


class OnnxDataViewer(OnnxViewer):
    """A mapping of names to the tensors of a value."""

    needs_graph = False

    def __init__(self, extraction: Extraction) -> None:
        super().__init__(extraction)
        self.constants = OnnxDataPlaces(self.parser, self._maker, builtin_schema(), self.name)  # type: ignore[arg-type]

    @cached_property
    def name(self) -> str:
        """What a value is called that has no name: as the file, without its extension."""
        last = self.extraction.outermost.name.replace("\\", "/").rpartition("/")[2]
        stem = last.partition(".")[0]
        return stem if stem and stem[0] != "<" else "value"  # bytes in memory have no name

    @property
    def default_name(self) -> str | None:
        """That of the tensor, if the value is one by itself."""
        return next(iter(self), None) if self.parser.message_name == TENSOR else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the message says besides tensors: its type, its name, and what it is described as."""
        facts = {key: value for key in ("name", "doc_string") if (value := value_at(self.root, key))}
        return {"message": self.parser.message_name, **facts}

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Raise `PathError`: a value has no graph."""
        raise PathError(f"{self.extraction.name}: a value of ONNX has no graph", path="graph")

    def frames(self) -> Iterator[Node]:
        """Yield the lists of values."""
        return (kid for kid in self.root.children() if kid.shape != SCALAR)
