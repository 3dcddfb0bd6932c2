"""PaddlePaddle programs in JSON form (``.json``), as version 3 writes them: a JSON document, read as that.

``{"base_code": {"magic": "pir", …}, "program": {"regions": [{"blocks": [{"ops": [OPERATOR, …]}]}]}}``; an operator
has its name under ``#``, inputs ``I``, outputs ``O``, attributes ``A``. That of a parameter is called ``p``: its name
is the last of its attributes, its type and dims are in ``O.TT.D`` (PaddlePaddle/Paddle
paddle/fluid/pir/serialize_deserialize, schema.h). Values: `pparse.parsers.paddle.params`.
"""

from __future__ import annotations

from pparse.errors import DataError, MalformedError, PathError
from pparse.findings import Status
from pparse.lazy import lazy_pattern
from pparse.parsers.json.parser import JsonParser
from pparse.parsers.json.text import BOM
from pparse.parsers.paddle.record import UNREADABLE, Parameter, ParameterLayout, operators_told
from pparse.tensors.dtype import DTYPES
from pparse.tree.entry import MAP, SCALAR
from pparse.tree.parser import Confidence, Listing, signatures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar, Final

    from pparse.tree.node import Node
    from pparse.tree.parser import Excerpt

_MAGIC: Final = lazy_pattern(
    rb'\s{0,99}\{\s{0,99}"base_code"\s{0,99}:\s{0,99}\{[^{}]{0,999}"magic"\s{0,9}:\s{0,9}"pir"'
)
_HEAD: Final = 4 << 10
_BLOCK: Final = "program.regions[0].blocks[0]"
_PARAMETER: Final = "p"
STORED: Final = "builtin.parameter"
"""The operator that stands for a parameter."""
# The number of a dialect, before the name of an operator (``DialectIdMap`` in schema.cc).
_DIALECTS: Final = {"0": "builtin", "1": "pd_op", "2": "cf", "3": "custom_op", "4": "pd_dist"}
_REGIONS: Final = "regions"
_LONGEST: Final = 1 << 14
# An operator up to the first size is read in one piece, of others each part up to the second.
_LARGE, _LARGEST = 1 << 16, 1 << 20
# Types of elements behind the number of their dialect and ``t_``: letters, and bits.
_TYPES: Final = {"i": "int", "u": "uint", "f": "float", "bf": "bfloat", "c": "complex"}
_COST: Final = 400  # memory of a parameter


class PaddleJsonParser(JsonParser, Listing):
    """A PaddlePaddle program in JSON form."""

    name = "paddle-json"
    description = "PaddlePaddle program in JSON form"
    extensions: ClassVar[tuple[str, ...]] = ()  # other files that are called so are no models
    usual_names: ClassVar[tuple[str, ...]] = (".json",)
    is_generic = False
    refines: ClassVar[tuple[str, ...]] = ("json",)
    signatures = signatures(b"{", b" ", b"\t", b"\n", b"\r", BOM)
    viewer = "pparse.viewers.paddle.viewer:PaddleJsonViewer"
    references: ClassVar[tuple[str, ...]] = ("PaddlePaddle/Paddle paddle/fluid/pir/serialize_deserialize",)
    limitations: ClassVar[tuple[str, ...]] = (
        "there are no checksums: a changed letter of a name may change the names of others of its shape",
    )

    @classmethod
    def match(cls, excerpt: Excerpt) -> Confidence:
        """LIKELY if the first key says that it is a program."""
        return Confidence.LIKELY if _MAGIC.match(excerpt.head(_HEAD).removeprefix(BOM)) else Confidence.NO

    @property
    def block(self) -> Node | None:
        """The main block; None if there is none."""
        try:
            found = self.result.root.at(_BLOCK)
        except (DataError, PathError):
            return None
        return None if found.shape == SCALAR else found

    def operators(self) -> Iterator[Node]:
        """Yield the operators of the main block, as far as they are there."""
        found = None if self.block is None else self.block.find("ops")
        try:
            yield from () if found is None or found.shape == SCALAR else found.children()
        except DataError:
            return

    def parameters(self) -> tuple[list[Parameter], Status]:
        """Return the parameters in the order of their names, as files have them; TRUNCATED: there may be more."""
        found: dict[str, Parameter] = {}
        status = Status.TRUNCATED
        with self.result.extraction.session.budget.charge(0, "the parameters of a program") as charge:
            for operator in self.operators():
                try:
                    parameter = _parameter(operator)
                except (DataError, LookupError, TypeError, ValueError):
                    break
                if parameter is not None:
                    found[parameter.name] = parameter
                    charge.resize(_COST * len(found))
            else:
                status = Status.COMPLETE if self.result.root.is_complete else status
        return [found[name] for name in sorted(found)], status

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield number and kinds of the operators of the main block."""
        yield from operators_told(operation(read_operator(operator)) for operator in self.operators())
        yield from super().details()


def read_operator(operator: Node) -> dict[str, Any]:
    """Return what an operator says, as far as it can be read; of a large one, of the blocks in it only that they are
    there."""
    found: dict[str, Any] = {}
    if operator.shape != MAP:
        return found
    try:
        if _length(operator) <= _LARGE:
            return dict(operator.to_python())
    except DataError:
        pass
    for key in ("#", "I", "O", "A", _REGIONS):
        try:
            kid = operator.find(key)
            if kid is not None:
                found[key] = None if key == _REGIONS or _length(kid) > _LARGEST else kid.to_python()
        except DataError:
            continue
    return found


def operation(told: dict[str, Any]) -> str:
    """Return the name of an operator with its dialect; `UNREADABLE` if it is not known."""
    word = told.get("#")
    if not isinstance(word, str):
        return UNREADABLE
    dialect, dot, name = word.partition(".")
    return STORED if word == _PARAMETER else f"{_DIALECTS.get(dialect, dialect)}{dot}{name}"


def _length(node: Node) -> int:
    return sum(length for _, length in node.spans)


def _parameter(operator: Node) -> Parameter | None:
    """Return what an operator says of a parameter; None if it is none. Raises what a text that says less leads to."""
    told = read_operator(operator)
    if told.get("#") != _PARAMETER:
        return None
    if _length(operator) > _LONGEST:
        raise MalformedError("a parameter is described at length", offset=operator.start)
    (type, dims, *_), name = told["O"]["TT"]["D"], told["A"][3]
    return Parameter(str(name), ParameterLayout(DTYPES[dtype_named(type["#"])], tuple(map(int, dims))))


def dtype_named(word: object) -> str:
    """Return the name of an element type, such as ``0.t_f32``."""
    name = str(word).partition(".t_")[2]
    if name.startswith("f8"):
        return f"float8_{name[2:]}"
    letters = name.rstrip("0123456789")
    return _TYPES.get(letters, letters) + name[len(letters) :]
