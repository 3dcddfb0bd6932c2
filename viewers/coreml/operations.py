"""Operations of ML programs: what one consumes, makes and holds (apple/coremltools mlmodel/format/MIL.proto).

An input is bound to values that others make, by name, or to values in the operation itself; of several, each has its
number behind the name of the input: ``values[1]``. Attributes are values in the operation, too: in programs up to
iOS 17, those of ``constexpr_`` operations are what others have as inputs.
"""

from __future__ import annotations

from collections import namedtuple

from pparse.errors import MalformedError
from pparse.kernels.wire import LEN, PADDING, fields
from pparse.viewers.coreml.tensors import IMMEDIATE, TENSOR_TYPE, TYPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.data.base import Range
    from pparse.parsers.protobuf.index import WireWindow
    from pparse.viewers.coreml.places import CoremlPlaces

# Fields of an Operation; of an entry of a map, a NamedValueType and a Binding; of an Argument.
_TYPE, _INPUTS, _OUTPUTS, _BLOCKS, _ATTRIBUTES = 1, 2, 3, 4, 5
_NAME, _VALUE, _ARGUMENTS = 1, 2, 1
_TYPE_TAG, _INPUT_TAG, _OUTPUT_TAG, _BLOCK_TAG, _ATTRIBUTE_TAG = (number << 3 | LEN for number in range(1, 6))
_NAME_TAG, _VALUE_TAG = _NAME << 3 | LEN, _VALUE << 3 | LEN
# Of type and value of a Value; of a tensor, which is the first field of both.
_TYPED_TAG, _IMMEDIATE_TAG, _TENSOR_TAG = TYPE << 3 | LEN, IMMEDIATE << 3 | LEN, TENSOR_TYPE << 3 | LEN
# Operations up to this size are read in one go.
_SMALL: Final = 16 << 10


class Operation(namedtuple("Operation", "type outputs inputs values blocks")):
    """What an operation says.

    ``outputs``: their names. ``inputs``: each with the name of its value, or ``""`` for one that is in ``values``.
    ``values``: what the tensors in inputs and attributes are made of, by the names of these. ``blocks``: what the
    blocks in it are made of.
    """

    __slots__ = ()

    @property
    def label(self) -> str:
        """The name of its first output; its type, if that has none."""
        return str(next(iter(self.outputs), "") or self.type)

    def name_of(self, key: str) -> str:
        """Return what a tensor in it is called."""
        return self.label if self.type == "const" and key == "val" else f"{self.label}.{key}"


def read_operation(places: CoremlPlaces, pieces: Any, near: WireWindow | None) -> Operation:
    """Return what an operation says; ``near`` may hold its bytes. What cannot be read is left out, and noted."""
    found = _quick(places.plain(pieces), near)
    if found is not None:
        return found
    operation = places.message(pieces, "MILSpec.Operation", near)
    outputs = [places.text(one, _NAME) for one in places.elements(operation, _OUTPUTS)]
    inputs: list[tuple[str, str]] = []
    values: list[tuple[str, Any]] = [
        (str(key), value)
        for key, value in operation.items(_ATTRIBUTES)
        if key != "name" and places.is_tensor(value, operation)
    ]
    for key, argument in places.items(operation, _INPUTS):
        bindings = list(places.elements(argument, _ARGUMENTS))
        for at, binding in enumerate(bindings):
            label = f"{key}[{at}]" if len(bindings) > 1 else key
            value = binding.pieces(_VALUE)
            if not value:
                name = places.text(binding, _NAME)
                inputs += [(label, name)] if name else []
            elif places.is_tensor(value, operation):
                inputs.append((label, ""))
                values.append((label, value))
    blocks = list(operation.elements(_BLOCKS))
    return Operation(places.text(operation, _TYPE), outputs, inputs, values, blocks)


def _quick(part: Range | None, near: WireWindow | None) -> Operation | None:
    """Return the same; None for an operation that is large, in parts, unusual, or not whole."""
    if part is None or len(part) > _SMALL or near is None or near.data is not part.data:
        return None
    near.at(part.start)
    raw = near.read(part.start, part.end) + PADDING
    start, data = part.start, part.data
    type, outputs, blocks = "", [], []
    inputs: list[tuple[str, str]] = []
    values: list[tuple[str, Any]] = []
    seen: set[tuple[int, str]] = set()
    try:
        for tag, pos, end in fields(raw, 0, len(part)):
            if tag == _TYPE_TAG:
                type = raw[pos:end].decode()
            elif tag == _OUTPUT_TAG:
                outputs.append(_last(raw, pos, end, _NAME_TAG))
            elif tag == _BLOCK_TAG:
                blocks.append((data.range(start + pos, start + end),))
            elif tag in (_INPUT_TAG, _ATTRIBUTE_TAG):
                key, found = _entry(raw, tag, pos, end)
                if (tag, key) in seen:
                    return None
                seen.add((tag, key))
                values += [(label, (data.range(start + p, start + e),)) for label, name, p, e in found if not name]
                if tag == _INPUT_TAG:
                    inputs += [(label, name) for label, name, _, _ in found]
            else:  # no field of an operation
                return None
    except (MalformedError, UnicodeDecodeError):
        return None
    return Operation(type, outputs, inputs, values, blocks)


def _entry(raw: bytes, tag: int, pos: int, end: int) -> tuple[str, list[tuple[str, str, int, int]]]:
    """Return the key of an input or attribute, and its values: label, name, and where a tensor without a name is."""
    entry = {number: (p, e) for number, p, e in fields(raw, pos, end)}
    key = raw[slice(*entry.get(_NAME_TAG, (0, 0)))].decode()
    place = entry.get(_VALUE_TAG, (0, 0))
    if tag == _ATTRIBUTE_TAG:
        return key, [(key, "", *place)] if key != "name" and _holds_tensor(raw, *place) else []
    found: list[tuple[str, str, int, int]] = []
    bindings = [(p, e) for _, p, e in fields(raw, *place)]
    for at, binding in enumerate(bindings):
        label = f"{key}[{at}]" if len(bindings) > 1 else key
        bound = {number: (p, e) for number, p, e in fields(raw, *binding)}
        if _VALUE_TAG not in bound:
            name = raw[slice(*bound.get(_NAME_TAG, (0, 0)))].decode()
            found += [(label, name, 0, 0)] if name else []
        elif _holds_tensor(raw, *bound[_VALUE_TAG]):
            found.append((label, "", *bound[_VALUE_TAG]))
    return key, found


def _last(raw: bytes, pos: int, end: int, wanted: int) -> str:
    return next((raw[p:e].decode() for tag, p, e in reversed(list(fields(raw, pos, end))) if tag == wanted), "")


def _holds_tensor(raw: bytes, pos: int, end: int) -> bool:
    """Return whether a Value has the type of a tensor, or none, or is one whatever its type is."""
    told = [(tag, fields(raw, p, e)) for tag, p, e in fields(raw, pos, end) if tag in (_TYPED_TAG, _IMMEDIATE_TAG)]
    return all(tag != _TYPED_TAG for tag, _ in told) or any(first == _TENSOR_TAG for _, i in told for first, _, _ in i)
