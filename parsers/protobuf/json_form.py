"""The JSON form of protocol buffers: of a message of the tree, as plain Python for `json.dumps`; and of values.

Fields have the names of the ``.proto`` file. Left out are, as protobuf's own library does, fields that are not set, and
those that the schema does not have. Integers of 64 bits are texts, bytes are base64, values of enums their names,
numbers that JSON lacks ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``; a float has the fewest digits that read back as
the same 32 bits. Source: https://protobuf.dev/programming-guides/json/.

Values are read as protobuf's own library does, and nothing else is:

========================  ==========================================================================
kind of field             JSON
========================  ==========================================================================
integers of any kind      a number without a fraction, or a text of one
float, double             a number, a text of one, ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
bool                      ``true``, ``false``; as the key of a map a text
enum                      the name of the value, or its number
string                    a text
bytes                     base64, of either alphabet, with or without padding
========================  ==========================================================================
"""

from __future__ import annotations

import binascii
import struct

from pparse.errors import MalformedError, UnsupportedError
from pparse.findings import Status
from pparse.kernels.varint import encode_varint
from pparse.lazy import lazy_pattern
from pparse.parsers.protobuf.index import Origin
from pparse.parsers.protobuf.values import named
from pparse.protobuf import schema
from pparse.protobuf.schema import INTEGER_RANGES, MessageType
from pparse.tree.entry import LIST, SCALAR, UNLOADED_VALUE
from pparse.tree.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.protobuf.schema import FieldType

_TEXTS: Final = frozenset(
    (schema.TYPE_INT64, schema.TYPE_UINT64, schema.TYPE_FIXED64, schema.TYPE_SFIXED64, schema.TYPE_SINT64)
)
_FLOATS: Final = (schema.TYPE_FLOAT, schema.TYPE_DOUBLE)
_FLOAT: Final = struct.Struct("<f")
_INTEGER: Final = lazy_pattern(r"-?[0-9]{1,20}")
_NUMBER: Final = lazy_pattern(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST: Final = 1000
_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_PLAIN: Final = bytes.maketrans(b"-_", b"+/")
_SHOWN: Final = 40
_LAYOUTS: Final = {schema.TYPE_FLOAT: "f", schema.TYPE_DOUBLE: "d"}
_VARINTS: Final = (schema.TYPE_INT32, schema.TYPE_INT64, schema.TYPE_UINT32, schema.TYPE_UINT64)
_DIGITS: Final = frozenset("-0123456789")
_MASK: Final = (1 << 64) - 1

WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that JSON writes as the value of their only field."""
ANY: Final = "google.protobuf.Any"
"""The message that holds a message of any type."""
OWN_FORMS: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)
"""Messages that have a JSON form of their own, which is neither written nor read here."""


def json_form(node: Node) -> Any:
    """Return ``node`` and everything below it in JSON form; `UNLOADED_VALUE` for one without a schema.

    Raises `UnsupportedError` for a message that has a JSON form of its own, and the error of the first node that is not
    whole.
    """
    if node.note is None:  # a file of messages, or a record that is none
        if node.shape == SCALAR:
            return UNLOADED_VALUE
        forms = [kid.to_json(None) for kid in node.children()]
        return UNLOADED_VALUE if any(form is UNLOADED_VALUE for form in forms) else forms
    origin: Origin = node.note
    if node.shape == SCALAR:
        return UNLOADED_VALUE if origin.field is None else json_scalar(origin.field, node.load())
    if origin.type is None and origin.field is None:
        return UNLOADED_VALUE
    # Open containers, outermost first: the node, its key in the one around it, its pairs or items so far, its children.
    stack: list[tuple[Node, str, list[Any], Iterator[Any]]] = [(node, "", [], _children(node))]
    while True:
        parent, name, items, children = stack[-1]
        found = next(children, None)
        if found is not None:
            key, kid, value = found
            if value is UNLOADED_VALUE:
                stack.append((kid, key, [], _children(kid)))
            else:
                items.append((key, value))
            continue
        stack.pop()
        made = _closed(parent, items)
        if not stack:
            return made
        if made is not UNLOADED_VALUE:
            stack[-1][2].append((name, made))


def _children(node: Node) -> Iterator[tuple[str, Node | None, Any]]:
    """Yield the key and the value of each child that JSON has; for a container its node, without a value."""
    parent: Origin = node.note
    is_list = node.shape == LIST
    in_map = not is_list and parent.type is None
    if parent.type is not None and parent.type.full_name in OWN_FORMS:
        reason = f"{parent.type.full_name} has a JSON form of its own, which is not written"
        raise UnsupportedError(reason, path=node.path, offset=node.start)
    if parent.type is not None and parent.type.full_name == ANY:
        yield from _in_any(node)
        return
    for ordinal, entry in node.result.entries_from(node, 0):
        origin: Origin = entry.note
        known = origin.field if origin is not None else None
        if not is_list and not in_map and not isinstance(entry.key, str):
            continue  # a field that the schema does not have
        if known is None:
            node.child(ordinal).load()  # raises: it is damaged
            continue
        key = _map_key(entry.key) if in_map else str(entry.key)
        if node.result.parser.shape(entry.kind) != SCALAR:
            yield key, node.child(ordinal), UNLOADED_VALUE
            continue
        value = entry.value
        if value is UNLOADED_VALUE or entry.status is not Status.COMPLETE:
            value = node.child(ordinal).load()
        if is_list or in_map or known.has_presence or not _is_default(known, value):
            yield key, None, json_scalar(known, value)


def _closed(node: Node, items: list[tuple[str, Any]]) -> Any:
    """Return the form of a container that was read; `UNLOADED_VALUE` for a list or map that is not set."""
    if node.status in (Status.TRUNCATED, Status.DAMAGED):
        node._refuse_if_not_whole()
    origin: Origin = node.note
    if node.shape == LIST:
        return [value for _, value in items] or UNLOADED_VALUE
    type = origin.type
    if type is None:
        return dict(items) or UNLOADED_VALUE
    if type.full_name in WRAPPERS:
        field = type.by_name["value"]
        return items[0][1] if items else json_scalar(field, named(field, field.default))
    return dict(items)


def _in_any(node: Node) -> Iterator[tuple[str, Node | None, Any]]:
    """Yield the type of the message in an Any, and its fields; as one value if JSON writes the message as that."""
    said, content = node.find("type_url"), node.find("value")
    if said is None and content is None:
        return
    url = "" if said is None else str(said.load())
    origin: Origin = node.note
    type = origin.type.schema.find(url.rpartition("/")[2]) if origin.type is not None else None
    if not isinstance(type, MessageType) or type.full_name == ANY:
        raise UnsupportedError(f"it holds a message of type {url!r}, which is not known", path=node.path)
    yield "@type", None, url
    parser: ProtobufParser = node.result.parser  # type: ignore[assignment]
    pieces = () if content is None else (content.open(),)
    inside = Node(node.result, node, 0, parser.make.merged("value", Origin(None, type, pieces=pieces)))
    if type.full_name in WRAPPERS:
        yield "value", inside, UNLOADED_VALUE
    else:
        yield from _children(inside)
        _closed(inside, [])  # raises if it is not whole


def json_scalar(field: FieldType, value: Any) -> Any:
    """Return the JSON form of a scalar."""
    type = field.type
    if type in _TEXTS:
        return str(value)
    if type == schema.TYPE_BYTES:
        return binascii.b2a_base64(value, newline=False).decode()
    if type not in _FLOATS:
        return value
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return shortest(value) if type == schema.TYPE_FLOAT else value


def shortest(value: float) -> float:
    """Return the float64 with the shortest text that is, as a float of 32 bits, ``value``."""
    for digits in (6, 7, 8):
        text = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.unpack(_FLOAT.pack(text))[0] == value:
                return text
        except OverflowError:  # rounded up, beyond the largest
            continue
    return float(f"{value:.9g}")


def _map_key(key: Any) -> str:
    """Return the text of the key of a map."""
    return key if isinstance(key, str) else "true" if key is True else "false" if key is False else str(key)


def _is_default(field: FieldType, value: Any) -> bool:
    """Return whether ``value`` is that of a field which is not set; -0.0 is not."""
    if field.type in _FLOATS:
        return not value and str(value)[:1] != "-"
    has_own = field.type in (schema.TYPE_ENUM, schema.TYPE_BOOL)
    return bool(value == named(field, field.default)) if has_own else not value


# -- reading values ----------------------------------------------------------------------------------------------------


def value_of(field: FieldType, value: Any) -> Any:
    """Return the value of the field that ``value``, a scalar of a JSON text, stands for. Raise `MalformedError`."""
    type = field.type
    if type == schema.TYPE_STRING and isinstance(value, str):
        return value
    if type == schema.TYPE_BYTES and isinstance(value, str):
        return decode_base64(value)
    if type == schema.TYPE_BOOL and isinstance(value, bool):
        return value
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        if type in (schema.TYPE_FLOAT, schema.TYPE_DOUBLE):
            return _float(field, value)
        if type == schema.TYPE_ENUM:
            return _enum(field, value)
        if type in INTEGER_RANGES:
            return _integer(type, field.type_name, value)
    raise _not(value, field.type_name)


def packed_at_once(field: FieldType, values: list[Any]) -> bytes | None:
    """Return many numbers in wire format, without tags; None if each must be looked at, for one may be no such number.

    Takes numbers for float and double, and numbers or texts, all of one sort, for integers of varints without a zigzag.
    """
    types = set(map(type, values))
    layout = _LAYOUTS.get(field.type)
    if layout is not None and types <= {int, float}:
        try:
            return struct.pack(f"<{len(values)}{layout}", *values)
        except (OverflowError, struct.error):
            return None  # one of them is out of range
    if field.type not in _VARINTS or len(types) != 1 or not types <= {int, str}:
        return None
    if str in types:
        text = "".join(values)
        if not _DIGITS.issuperset(text) or len(text) > 20 * len(values):
            return None
        try:
            values = list(map(int, values))
        except ValueError:
            return None
    allowed = INTEGER_RANGES[field.type]
    if min(values) not in allowed or max(values) not in allowed:
        return None
    return b"".join([encode_varint(value & _MASK) for value in values])


def key_of(field: FieldType, text: str) -> Any:
    """Return the key of a map that ``text`` stands for. Raise `MalformedError`."""
    if field.type == schema.TYPE_BOOL and text in ("true", "false"):
        return text == "true"
    return value_of(field, text)


def decode_base64(text: str) -> bytes:
    """Return the bytes of a base64 text of either alphabet, with or without padding. Raise `MalformedError`."""
    try:
        plain = text.encode("ascii").translate(_PLAIN)
        for blank in (b"\n", b"\r", b"\t"):
            plain = plain.replace(blank, b"")
        plain = plain[:-2] + plain[-2:].rstrip(b"=")
        return binascii.a2b_base64(plain + b"=" * (-len(plain) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise MalformedError("the text is not base64") from error


def _not(value: object, name: str) -> MalformedError:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return MalformedError(f"{text[:_SHOWN]} is no {name}")


def _integer(type: int, name: str, value: float | str) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is not None:
            value = int(value)
        elif len(value) <= _LONGEST and _NUMBER.fullmatch(value) is not None:
            value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or value not in INTEGER_RANGES[type]:
        raise _not(value, name)
    return value


def _float(field: FieldType, value: float | str) -> float:
    if isinstance(value, str):
        if value in _WORDS:
            return _WORDS[value]
        if len(value) > _LONGEST or _NUMBER.fullmatch(value) is None:
            raise _not(value, field.type_name)
    try:
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise OverflowError
        if field.type == schema.TYPE_FLOAT:
            _FLOAT.pack(number)
    except OverflowError as error:
        raise MalformedError(f"the number is out of the range of {field.type_name}") from error
    return number


def _enum(field: FieldType, value: float | str) -> int:
    numbers = field.enum.numbers if field.enum is not None else {}
    if isinstance(value, str) and value in numbers:
        return numbers[value]
    return _integer(schema.TYPE_INT32, field.type_name, value)
