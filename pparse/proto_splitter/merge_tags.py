"""Field tags for `pparse.proto_splitter.merger`: the field that a tag leads to, and the order of tags.

A tag is a list of FieldIndex messages, each a field number, or an index or key for the field before. Resolved against a
message type it is a path of steps ``(field, argument)``. The argument is the index in a repeated field, the key in a
map (with the type of the key), None for a singular field.
"""

from __future__ import annotations

from pparse.errors import MalformedError
from pparse.lazy import lazy_pattern
from pparse.parsers.cpb.scalars import TYPE_NAMES
from pparse.paths import KeyStep, format_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.limits import Limits

    Step = tuple["TagField", Any]
    Path = tuple[Step, ...]

SINGULAR, REPEATED, MAP = 0, 1, 2
_GROUP, _MESSAGE = 10, 11  # FieldDescriptorProto.Type
# FieldDescriptor.CppType of keys; an index counts as uint64.
_BOOL_KEY, _STRING_KEY, _INDEX = 7, 9, 4
_KEY_RANGES: Final = {
    1: (-1 << 31, (1 << 31) - 1),
    2: (-1 << 63, (1 << 63) - 1),
    3: (0, (1 << 32) - 1),
    4: (0, (1 << 64) - 1),
}
_WORDS: Final = {"true": True, "false": False}
_INTEGER: Final = lazy_pattern(r"-?[0-9]{1,20}")


class Type:
    """A message type, and its fields seen so far, by number."""

    __slots__ = ("descriptor", "fields")

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor
        """Descriptor of the message type."""
        self.fields: dict[int, TagField] = {}
        """The fields seen so far, by number."""


class Enum:
    """The numbers of an enum's values, by name."""

    __slots__ = ("numbers",)

    def __init__(self, descriptor: Any) -> None:
        self.numbers: dict[str, int] = {value.name: value.number for value in descriptor.values}


class TagField:
    """A field of a message type. For a map, ``type``, ``message`` and ``enum`` are those of its values.

    Has what `pparse.parsers.cpb.scalars.decode_scalar` needs to know of a field.
    """

    __slots__ = ("enum", "form", "key_type", "message", "name", "number", "step", "type", "type_name")

    def __init__(self, descriptor: Any, tags: Tags) -> None:
        self.name: str = descriptor.name
        self.number: int = descriptor.number
        self.form = REPEATED if _is_repeated(descriptor) else SINGULAR
        self.step: Step = (self, None)  # the step to a singular field, shared by all tags
        self.key_type = _INDEX
        entry = descriptor.message_type
        if self.form == REPEATED and entry is not None and entry.GetOptions().map_entry:
            self.form = MAP
            self.key_type = entry.fields_by_number[1].cpp_type
            descriptor = entry.fields_by_number[2]
        self.type: int = descriptor.type
        is_message = self.type in (_GROUP, _MESSAGE)
        self.message: Type | None = tags.type_of(descriptor.message_type) if is_message else None
        self.enum: Enum | None = None if descriptor.enum_type is None else Enum(descriptor.enum_type)
        self.type_name: str = TYPE_NAMES[self.type] if self.enum is None else descriptor.enum_type.full_name

    def argument(self, item: Any, kind: str) -> int | bool | str:
        """Return the index or key in a FieldIndex of that kind, converted to the type of this field.

        As in TensorFlow, the form it is stored in does not matter: the text ``12`` is the number 12. Raise
        `MalformedError` if it cannot be converted, or is out of range.
        """
        given: int | bool | str = item.index
        if kind == "map_key":
            word = item.map_key.WhichOneof("type")
            if word is None:
                raise MalformedError(f"an empty map key for the field {self.name}")
            given = getattr(item.map_key, word)
        found = _key(given, self.key_type)
        if found is None:
            what = "a map key" if self.form == MAP else "an index"
            raise MalformedError(f"{what} that is invalid for the field {self.name}", got=repr(given)[:40])
        return found


def _key(given: int | bool | str, wanted: int) -> int | bool | str | None:
    """Return ``given`` as a key of that CppType; None if it cannot be one."""
    if wanted == _STRING_KEY:
        return given if isinstance(given, str) else None if isinstance(given, bool) else str(given)
    if wanted == _BOOL_KEY:
        return _WORDS.get(given) if isinstance(given, str) else bool(given)
    if isinstance(given, str) and _INTEGER.fullmatch(given):
        given = int(given)
    least, most = _KEY_RANGES[wanted]
    fits = isinstance(given, int) and not isinstance(given, bool) and least <= given <= most
    return given if fits else None


def _is_repeated(descriptor: Any) -> bool:
    try:
        repeated: bool = descriptor.is_repeated
    except AttributeError:  # before protobuf 6.31
        repeated = descriptor.label == 3
    return repeated


class Tags:
    """Resolves field tags; caches the types and fields that it has seen."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._types: dict[Any, Type] = {}

    def type_of(self, descriptor: Any) -> Type:
        """Return the `Type` of a message descriptor."""
        found = self._types.get(descriptor)
        if found is None:
            found = self._types[descriptor] = Type(descriptor)
        return found

    def resolve(self, tag: Any, start: Type, path: Path) -> Path:
        """Return the path of steps for a tag, in a message of type ``start`` at ``path``.

        Raise `MalformedError`, with the path as far as it is valid; `LimitError` if the path is too deep.
        """
        if len(tag) > 2 * self._limits.depth:
            self._limits.check("depth", len(tag) // 2, "a field tag's depth", path=path_text(path))
        steps: list[Step] = []
        try:
            self._resolve(tag, start, steps)
        except MalformedError as error:
            error.path = path_text(path + tuple(steps))
            raise
        return tuple(steps)

    def _resolve(self, tag: Any, start: Type, steps: list[Step]) -> None:
        type_: Type | None = start
        waiting: TagField | None = None  # for its index or key
        for item in tag:
            kind = item.WhichOneof("kind")
            if kind is None:
                raise MalformedError("an empty step in a field tag")
            if kind != "field":
                if waiting is None:
                    what = "an index" if kind == "index" else "a map key"
                    raise MalformedError(f"{what} without a field before it")
                steps.append((waiting, waiting.argument(item, kind)))
                type_, waiting = waiting.message, None
            elif waiting is not None:
                break
            elif type_ is None:
                _check_below_scalar(steps[-1][0], item.field)
            else:
                field = type_.fields.get(item.field) or self._field(type_, item.field)
                if field.form == SINGULAR:
                    steps.append(field.step)
                    type_ = field.message
                else:
                    waiting = field
        if waiting is not None:
            what = "a map, without a key" if waiting.form == MAP else "repeated, without an index"
            raise MalformedError(f"a field tag names the field {waiting.name}, which is {what}")

    def _field(self, type_: Type, number: int) -> TagField:
        descriptor = type_.descriptor.fields_by_number.get(number)
        if descriptor is None:
            raise MalformedError(f"there is no field with number {number} in {type_.descriptor.full_name}")
        field = type_.fields[number] = TagField(descriptor, self)
        return field


def _check_below_scalar(field: TagField, number: int) -> None:
    # TensorFlow accepts a singular scalar whose number is repeated.
    if field.form != SINGULAR or field.number != number:
        raise MalformedError(f"a field tag names field {number} below {field.name}, which is not a message")


def order_of(steps: Path, length: int) -> tuple[int, ...]:
    """Return the sort key of a tag of ``length`` among the tags of one message: field numbers and indices.

    Map keys are left out: values of a map are independent of each other, and those of one key sort correctly.
    """
    order: list[int] = []
    for field, argument in steps:
        order.append(field.number)
        length -= 1 if field.form == SINGULAR else 2
        if field.form == REPEATED:
            order.append(argument)
    # The rest repeats the number of a scalar.
    return (*order, *order[-1:] * length)


def path_text(path: Path) -> str | None:
    """Return a path as text (see `pparse.paths`); None for the message itself."""
    words = (word for field, argument in path for word in (field.name, argument) if word is not None)
    return format_path(map(KeyStep, words)) or None
