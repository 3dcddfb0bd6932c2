"""Values of ONNX: the tensors of a TensorProto, a SequenceProto, an OptionalProto or a MapProto.

Names: a tensor has its own, or else that of the file. The elements of a sequence are ``NAME[0]``, ``NAME[1]`` …, those
of a map ``NAME[KEY]``; of values in values, ``NAME[KEY][0]``. A sparse tensor is ``NAME.values`` and ``NAME.indices``.
"""

from __future__ import annotations

from functools import cached_property
from itertools import count, islice

from pparse.errors import DataError, EndOfDataError, LimitError, PathError
from pparse.parsers.onnx.data import MAP, SEQUENCE, TENSOR
from pparse.parsers.protobuf.index import OverlayField
from pparse.parsers.protobuf.message import Message
from pparse.protos import schema as builtin_schema
from pparse.tree.entry import SCALAR
from pparse.viewers.onnx.places import OnnxPlace, OnnxPlaces
from pparse.viewers.onnx.tensors import NAME, numbers
from pparse.viewers.onnx.viewer import OnnxViewer
from pparse.viewers.tensor_proto.viewer import value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.document.extraction import Extraction
    from pparse.graphs.graph import Graph
    from pparse.parsers.onnx.data import OnnxDataParser
    from pparse.parsers.protobuf.index import Piece
    from pparse.parsers.protobuf.window import Window
    from pparse.protobuf.schema import Schema
    from pparse.tree.node import Node
    from pparse.viewers.onnx.tensors import OnnxMaker

    # A value still to be gone through: its name, its type, its message, and a window near that.
    Value = tuple[str, str, Sequence[Piece], Window | None]

_SPARSE: Final = "onnx.SparseTensorProto"
# The fields of a sequence (and an optional value), by what is in them.
_ELEMENTS: Final = ((3, TENSOR), (4, _SPARSE), (5, SEQUENCE), (6, MAP), (7, SEQUENCE))
_INT_KEYS, _TEXT_KEYS, _VALUES = 3, 4, 5
# Longer keys are cut.
_KEY: Final = 1 << 10


class OnnxDataPlaces(OnnxPlaces):
    """The tensors of one value, in order."""

    def __init__(self, parser: OnnxDataParser, maker: OnnxMaker, schema: Schema, name: str) -> None:
        super().__init__(parser, maker, schema)
        self._name = name  # of what has none
        self._types = {kind: schema.message(kind) for kind in (SEQUENCE, MAP)}

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
            except LimitError:
                raise
            except DataError as error:  # what is before it is there
                self.note(error, "truncated" if isinstance(error, EndOfDataError) else "malformed")
                found = None
            if found is None:
                waiting.pop()
                continue
            name, kind, pieces, near = found
            if kind == TENSOR:
                own = self._text(Message(self.make, pieces, self.maker.type, near), NAME) if is_own else ""
                yield OnnxPlace(own or name, pieces, near)
            elif kind == _SPARSE:
                yield from self._sparse(name, pieces, near)
            else:
                session.limits.check("depth", len(waiting), "the depth of values in values")
                waiting.append(self._values(name, kind, pieces, near, is_own=is_own))
            is_own = False

    def _values(
        self, name: str, kind: str, pieces: Sequence[Piece], near: Window | None, *, is_own: bool
    ) -> Iterator[Value]:
        """Yield what a sequence or a map has in it; ``is_own``: under the name that it has itself."""
        message = Message(self.make, pieces, self._types[kind], near)
        name = (is_own and self._text(message, 1)) or name
        labels: Iterator[Any] = count()
        if kind == MAP:
            labels = self._keys(message)
            values = message.message(_VALUES)
            if values is None:
                return
            message = values
        for number, inner in _ELEMENTS:
            for element in message.elements(number):
                yield f"{name}[{next(labels, '?')}]", inner, element, message.near

    def _keys(self, message: Message) -> Iterator[Any]:
        """Yield the keys of a map, and behind them numbers."""
        number = -1
        for number, key in enumerate(numbers(message, _INT_KEYS)):  # noqa: B007 -- the last one counts
            yield key
        for item in message.fields.get(_TEXT_KEYS, ()):
            if isinstance(item, OverlayField):
                continue
            for at in item[0].fields(_TEXT_KEYS, 0, message.window(item[0])):
                raw = item[0].part.data.pread(at.start, min(at.end - at.start, _KEY))
                yield raw.decode("utf-8", "backslashreplace")
                number += 1
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
        found: dict[str, Any] = {"message": self.parser.message_name}
        for key in ("name", "doc_string"):
            value = value_at(self.root, key)
            if value:
                found[key] = value
        return found

    def graph_of(self, number: int = 0, max_nodes: int | None = None) -> Graph:
        """Raise `PathError`: a value has no graph."""
        raise PathError(f"{self.extraction.name}: a value of ONNX has no graph", path="graph")

    def frames(self) -> Iterator[Node]:
        """Yield the lists of values."""
        return (kid for kid in self.root.children() if kid.shape != SCALAR)
