"""Keys and entries of checkpoints, read without nodes: an index has hundreds of thousands (tensor_bundle.proto)."""

from __future__ import annotations

from math import prod
from struct import unpack_from

from pparse.errors import MalformedError
from pparse.findings import Status
from pparse.kernels.wire import LEN, PADDING, fields, read_value
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from typing import Final

    from pparse.limits import Limits


_MAX_RANK = 254
_MAX_ELEMENTS = 1 << 58
_TOP = 1 << 63


class BundleEntry:
    """What an index says of one tensor."""

    __slots__ = ("_raw", "_slice_tag", "crc", "offset", "part_count", "shape", "shard", "size", "type", "unknown_rank")

    def __init__(self) -> None:
        self.type = 0
        """A number of the enum DataType."""
        self.shape: tuple[int, ...] = ()
        self.unknown_rank = False
        self.shard = 0
        """Which data file …"""
        self.offset = 0
        """… and where the bytes begin in it."""
        self.size = 0
        self.crc: int | None = None
        """Masked CRC-32C of the bytes; None if there is none."""
        self.part_count = 0
        """Of a tensor in parts: how many there are."""
        self._raw = b""
        self._slice_tag = 0

    def wrong_shape(self, limits: Limits) -> tuple[Status, str] | None:
        """Return what is wrong with the shape; None: nothing."""
        if self.unknown_rank or min(self.shape, default=0) < 0:
            return Status.DAMAGED, "its shape is not known"
        if max((prod(self.shape), *self.shape)) > _MAX_ELEMENTS:
            return Status.DAMAGED, "its shape has too many elements"
        if len(self.shape) > limits.tensor_rank:
            return Status.UNSUPPORTED, f"it has {len(self.shape)} dimensions"
        return None

    def slices(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """Yield start and length in each dimension of each part; length -1: all of it.

        They are read anew each time: a part may take four bytes of the entry, and would take hundreds of memory.
        """
        for tag, start, end in fields(self._raw, 0, len(self._raw) - len(PADDING)) if self.part_count else ():
            if tag == self._slice_tag:
                yield _extents(self._raw, start, end)

    def _add_part(self, raw: bytes, pos: int, end: int, tag: int) -> None:
        """Count a part. Raises `MalformedError` if it is none."""
        _extents(raw, pos, end)
        self.part_count += 1
        self._raw, self._slice_tag = raw, tag


def read_entry(raw: bytes) -> BundleEntry:
    """Return the entry in a whole BundleEntryProto. Raises `MalformedError`."""
    found = BundleEntry()
    shape: list[int] = []
    padded = raw + PADDING
    for tag, start, end in fields(padded, 0, len(raw)):
        if tag == 0x08:
            found.type, _ = read_value(padded, start)
        elif tag == 0x18:
            found.shard, _ = _signed(padded, start)
        elif tag == 0x20:
            found.offset, _ = _signed(padded, start)
        elif tag == 0x28:
            found.size, _ = _signed(padded, start)
        elif tag == 0x35:
            (found.crc,) = unpack_from("<I", padded, start)
        elif tag == 0x12:
            _add_shape(padded, start, end, found, shape)
        elif tag == 0x3A:
            found._add_part(padded, start, end, tag)
    found.shape = tuple(shape)
    return found


def read_listed(raw: bytes) -> tuple[bytes, BundleEntry]:
    """Return name, and shape, type and slices, of a whole SavedSliceMeta, as a table of contents of version 1 has them.

    Raises `MalformedError`.
    """
    found, name = BundleEntry(), b""
    shape: list[int] = []
    padded = raw + PADDING
    for tag, start, end in fields(padded, 0, len(raw)):
        if tag == 0x18:
            found.type, _ = read_value(padded, start)
        elif tag == 0x0A:
            name = raw[start:end]
        elif tag == 0x12:
            _add_shape(padded, start, end, found, shape)
        elif tag == 0x22:
            found._add_part(padded, start, end, tag)
    found.shape = tuple(shape)
    return name, found


def _signed(raw: bytes, pos: int) -> tuple[int, int]:
    value, pos = read_value(raw, pos)
    return (value - 2 * _TOP if value >= _TOP else value), pos


def _add_shape(raw: bytes, pos: int, end: int, found: BundleEntry, sizes: list[int]) -> None:
    """Add the sizes in a TensorShapeProto: of several, protobuf makes one."""
    for tag, start, stop in fields(raw, pos, end):
        if tag == 0x12:
            sizes.append(_number(raw, start, stop, 0x08))
            if len(sizes) > _MAX_RANK:
                raise MalformedError(f"the tensor has more than {_MAX_RANK} dimensions")
        elif tag == 0x18:
            found.unknown_rank = bool(read_value(raw, start)[0])


def _number(raw: bytes, pos: int, end: int, wanted: int, default: int = 0) -> int:
    """Return the last value of the varint field with the tag ``wanted`` in ``raw[pos:end]``."""
    value, after = _signed(raw, pos + 1) if pos < end and raw[pos] == wanted else (default, pos)
    for tag, start, _ in fields(raw, after, end) if after != end else ():  # mostly there is no other one
        if tag == wanted:
            value, _ = _signed(raw, start)
    return value


def _extents(raw: bytes, pos: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return start and length in each dimension of a TensorSliceProto; length -1: it has all of the dimension."""
    found: list[tuple[int, int]] = []
    for tag, start, stop in fields(raw, pos, end):
        if tag == 0x0A:
            found.append((_number(raw, start, stop, 0x08), _number(raw, start, stop, 0x10, -1)))
            if len(found) > _MAX_RANK:
                raise MalformedError(f"a part of the tensor has more than {_MAX_RANK} dimensions")
    return tuple(found)


# -- OrderedCode: numbers and texts as bytes that sort as they do (tensorflow/core/lib/strings/ordered_code.cc) --------

# The key of a part of a tensor is: the number 0, the name, the rank, and for each dimension start and length
# (tensorflow/core/util/saved_tensor_slice_util.cc, EncodeTensorNameSlice).

# A text ends with 0 and 1; zeros and 255 in it are escaped. Possessive, so that nothing is tried twice.
_NAME: Final = lazy_pattern(rb"\x00((?:[^\x00\xff]++|\x00\xff|\xff\x00)*+)\x00\x01")
_ESCAPED: Final = lazy_pattern(rb"(\x00)\xff|(\xff)\x00")


def name_prefix(name: bytes) -> bytes:
    """Return what the keys of all parts of the tensor ``name`` begin with."""
    return _ordered(0) + _ordered_text(name)


def slice_rest(extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the rest of the key of a part: start and length in each dimension, length -1 for all of it."""
    found = [_ordered(len(extents))]
    for start, length in extents:
        found += _ordered_signed(start), _ordered_signed(length)
    return b"".join(found)


def prefix_in(key: bytes) -> bytes | None:
    """Return the beginning of the key of a part that `name_prefix` makes; None if it is not such a key."""
    found = _NAME.match(key)
    return None if found is None else found[0]


def name_in(key: bytes) -> bytes:
    """Return the name of the tensor in the key of a part. Raises `MalformedError`."""
    found = _NAME.match(key)
    if found is None:
        raise MalformedError("the key is not that of a part of a tensor")
    return _ESCAPED.sub(rb"\1\2", found[1])


def _ordered(value: int) -> bytes:
    """Return a number ≥ 0: how many bytes it takes, and these, the highest first."""
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes((len(raw),)) + raw


def _ordered_text(value: bytes) -> bytes:
    """Return a text: two bytes end it, so zeros and 255 in it are escaped."""
    return b"\0\xff".join(piece.replace(b"\xff", b"\xff\0") for piece in value.split(b"\0")) + b"\0\1"


def _ordered_signed(value: int) -> bytes:
    """Return a number with a sign: the first bits tell its length, as many as bytes, with the sign as their value."""
    magnitude = ~value if value < 0 else value
    length = 1
    while magnitude >= 1 << (7 * length - 1):  # 6, 13, 20 … bits
        length += 1
    bits = 8 * length
    raw = value & ((1 << bits) - 1)
    header = ((1 << length) - 1) << (bits - length)
    # A positive number begins with as many ones as it has bytes, a negative one with as many zeros.
    raw = raw ^ header
    return raw.to_bytes(length, "big")


# -- Names of variables ------------------------------------------------------------------------------------------------
#
# What the tensors of an object-based checkpoint are called: the names of the variables that were saved.
#
# Such a checkpoint has the scalar string ``_CHECKPOINTABLE_OBJECT_GRAPH``, a TrackableObjectGraph: for each value that
# an object saved, its *full name*, which the variable had in the program (``dense/kernel``), and the key that it has in
# the table, a path through the objects (``layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE``)
# (tensorflow/core/protobuf/trackable_object_graph.proto).
#
# Full names need not be unique. Copies of one variable, which an export of Keras 3 has, are ``name`` and ``name#2``;
# different variables with one name are called by their keys, without what every key ends in.

GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT: Final = "/.OPTIMIZER_SLOT/"
# Memory of a key and its name, without their text.
_COST: Final = 400
_NODE, _ATTRIBUTE, _FULL_NAME, _KEY = 1, 2, 2, 3


class VariableNames:
    """The names of the tensors of one checkpoint."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def name_of(self, key: str, is_key: Callable[[str], bool] = lambda key: False) -> str:
        """Return what the tensor at ``key`` is called: without a name, its key, as short as no other key is."""
        name = self._names.get(key) or shown(key)
        return key if name != key and not self._names and is_key(name) else name

    def key_of(self, name: str) -> str | None:
        """Return the key of the tensor with a name that is not its key; None if there is none."""
        return self._keys.get(name)

    def give(
        self, keys: Iterable[str], full_names: dict[str, str], content_of: Callable[[str], Hashable | None]
    ) -> None:
        """Name the tensors at ``keys``, in this order.

        ``content_of`` tells, by the table alone, whether two tensors are copies; None: not known.
        """
        alike: dict[str, list[str]] = {}
        for key in keys:
            alike.setdefault(full_names.get(key) or shown(key), []).append(key)
        for name, several in alike.items():
            copies = len(several) == 1 or _are_copies(several, content_of)
            for number, key in enumerate(several, 1):
                called = (name if number == 1 else f"{name}#{number}") if copies else shown(key)
                while called in self._keys:  # the key of one is the name of another
                    called += "#2"
                self._names[key] = called
                self._keys[called] = key


def cost_of(full_names: dict[str, str]) -> int:
    """Return the approximate memory, in bytes, of names given by `VariableNames`."""
    return sum(_COST + len(key) + len(name) for key, name in full_names.items())


def _are_copies(keys: list[str], content_of: Callable[[str], Hashable | None]) -> bool:
    first = content_of(keys[0])
    return first is not None and all(content_of(key) == first for key in keys[1:])


def shown(key: str) -> str:
    """Return a key as a name: without what every key of an object-based checkpoint ends in."""
    return key.removesuffix(VALUE)


def slot_of(key: str) -> str | None:
    """Return what an optimizer keeps in the tensor at ``key`` for a variable, such as ``m``; None: it keeps nothing."""
    return shown(key).rpartition("/")[2] if SLOT in key else None


def full_names(raw: bytes) -> dict[str, str]:
    """Return the full names in a TrackableObjectGraph by key. Raises `MalformedError`."""
    found: dict[str, str] = {}
    size = len(raw)
    padded = raw + PADDING
    for tag, start, end in fields(padded, 0, size):
        if tag == _NODE << 3 | LEN:
            for inner, begin, stop in fields(padded, start, end):
                if inner == _ATTRIBUTE << 3 | LEN:
                    parts = {number >> 3: padded[at:to] for number, at, to in fields(padded, begin, stop)}
                    if parts.get(_FULL_NAME) and _KEY in parts:
                        found[text_of(parts[_KEY])] = text_of(parts[_FULL_NAME])
    return found


def text_of(key: bytes) -> str:
    """Return a key as text; bytes that are none are kept."""
    return key.decode("utf-8", "surrogateescape")


def bytes_of(key: str) -> bytes:
    """Return the key that `text_of` made a text of."""
    return key.encode("utf-8", "surrogateescape")
