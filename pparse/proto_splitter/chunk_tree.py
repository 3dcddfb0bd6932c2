"""The metadata of a ``.cpb`` being written: tags, and the tree of chunked fields, serialized."""

from __future__ import annotations

from pparse.kernels.varint import encode_varint
from pparse.kernels.wire import LEN
from pparse.parsers.cpb.versions import JOIN_VERSION, SPLITTER_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final, TypeAlias

    from pparse.protobuf.schema import FieldType

    # One FieldIndex, serialized as an element of ``field_tag``, and whether it is a map key.
    Step: TypeAlias = "tuple[bool, bytes]"
    Tag: TypeAlias = "tuple[Step, ...]"

# Kinds of keys that a tag can have, by the type of the key field: FieldIndex.MapKey.
_KEYS: Final = {9: 1, 8: 2, 13: 3, 4: 4, 5: 5, 3: 6}


def field_step(number: int) -> Step:
    """Return the step of a tag to a field."""
    return False, _len_field(1, b"\x08" + encode_varint(number))


def index_step(index: int) -> Step:
    """Return the step of a tag to an element of a repeated field."""
    return False, _len_field(1, b"\x18" + encode_varint(index))


def key_step(key_type: FieldType, key: Any) -> Step | None:
    """Return the tag step to a map key; None for keys that TensorFlow's Merger cannot find (it cuts 64 bits to 32)."""
    number = _KEYS.get(key_type.type)
    if number is None or (isinstance(key, int) and not -(1 << 31) <= key < 1 << 31):
        return None
    if isinstance(key, str):
        raw = _len_field(1, key.encode())
    else:
        raw = encode_varint(number << 3) + encode_varint(int(key) & 0xFFFFFFFFFFFFFFFF)
    return True, _len_field(1, _len_field(2, raw))


def _len_field(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | LEN) + encode_varint(len(content)) + content


def chunk_metadata(infos: Sequence[tuple[int, int, int]], fields: Sequence[tuple[Tag, int]]) -> bytes:
    """Return a serialized ChunkMetadata (tensorflow/tools/proto_splitter/chunk.proto) whose root is chunk 0.

    ``infos`` has type, size and position of each chunk; ``fields`` has a tag and a chunk index for each chunked field.
    """
    version = b"\x08" + encode_varint(SPLITTER_VERSION)
    if JOIN_VERSION:
        version += b"\x10" + encode_varint(JOIN_VERSION)
    pieces = [_len_field(1, version)]
    for kind, size, position in infos:
        info = b"\x08" + encode_varint(kind)
        info += b"\x10" + encode_varint(size) if size else b""
        pieces.append(_len_field(2, info + b"\x18" + encode_varint(position)))
    pieces.append(_len_field(3, b"\x08\x00" + _tree(fields)))
    return b"".join(pieces)


def _tree(fields: Sequence[tuple[Tag, int]]) -> bytes:
    """Return the chunked fields, serialized: flat, except for several fields below one map key.

    TensorFlow's Merger does not keep the order of fields that share a map key; fields nested below one come after it.
    The tree is as deep as maps are nested.
    """
    out: list[bytes] = []
    groups: dict[Tag, list[tuple[Tag, int]]] = {}
    for tag, index in fields:
        key = next((at for at, step in enumerate(tag) if step[0]), None)
        head = tag[: key + 1] if key is not None else None
        if head is None:
            out.append(_chunked_field(tag, index, b""))
        else:
            groups.setdefault(head, []).append((tag[len(head) :], index))
    for head, members in groups.items():
        if len(members) == 1:
            tag, index = members[0]
            out.append(_chunked_field((*head, *tag), index, b""))
            continue
        own = next((at for at, (tag, _) in enumerate(members) if not tag), None)
        first = members.pop(own)[1] if own is not None else None
        out.append(_chunked_field(head, first, _tree(members)))
    return b"".join(out)


def _chunked_field(tag: Tag, index: int | None, below: bytes) -> bytes:
    own = b"\x08" + encode_varint(index) if index is not None else b""
    return _len_field(2, b"".join(step for _, step in tag) + _len_field(3, own + below))
