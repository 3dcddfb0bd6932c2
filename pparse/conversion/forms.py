"""The forms of an output, what they hold, and their items: safetensors files, archives of arrays, and GGUF files."""

from __future__ import annotations

import json
from contextlib import suppress
from struct import calcsize, pack, unpack_from
from zlib import crc32

from pparse.display.text import few
from pparse.errors import OptionError, PparseError, told
from pparse.kernels.crc32c import joined_crc
from pparse.kernels.ggml_blocks import q8_0_of
from pparse.limits import MIB, are, count_words, format_size
from pparse.parsers.gguf.parser import ARRAY, LAYOUTS, TEXT, TYPES
from pparse.parsers.safetensors.header import METADATA, REFERENCE_HEADER_LIMIT, STORED_DTYPES, word_of
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.dtype import DType, as_type
from pparse.tensors.npy import npy_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from pparse.tensors.span import Span
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer
    from pparse.tree.node import Node

    # Name, type, shape, and where the bytes begin and end.
    Entry = tuple[str, str, Sequence[int], int, int]

# Bytes that are read at a time, and written while the next are read: what is written then still is in the processor's
# cache (with 4 MiB a copy took half as long again). Two buffers of that size are charged to the budget.
PIECE: Final = 1 * MIB
# Of elements that are computed, as many at a time as fit into the buffer with this much for each: the element, the same
# as a float32, the result, and what rounding needs.
_COMPUTED: Final = 32
# Memory of an item beside its tensor, without the name.
ITEM_BYTES: Final = 200
# Types of scales and of packed weights are left out: their numbers mean nothing without their blocks.
CASTS: Final = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
Q8_0: Final = DType("Q8_0", 8, "float")
"""Stands for the blocks of that name where a type is asked for: eight bits for each element, and a scale for 32."""
# What numpy appends to a name in an .npz.
NPY: Final = ".npy"
# The length of a name in a zip takes 16 bits.
_MOST_NAME: Final = 0xFFFF - len(NPY)
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def cast_target(name: object, form: str | None = None) -> DType:
    """Return the type that floating tensors are cast to, by any name that `DType.named` knows, or ``Q8_0``.

    Raises `OptionError` for any other than those of `CASTS`, and `Q8_0`; it names
    those that a file of ``form`` can hold.
    """
    if str(name).upper() == Q8_0.name:
        return Q8_0
    with suppress(ValueError):
        known = DType.named(name)
        if known.name in CASTS:
            return known
    of, types = f" of a .{form}", ", ".join(CASTS)
    if form is None:
        of, types = "", f"{types}, and for GGUF to {Q8_0.name}"
    elif form == "gguf":
        held = {known.dtype for known in TYPES.values()}
        types = ", ".join([name for name in CASTS if name in held] + [Q8_0.name])
    raise OptionError(f"floating tensors{of} can be cast to {types}, not to {str(name)!r}")


class Item:
    """A tensor to be written, as ``dtype`` (another one than its own: cast) and with ``nbytes`` bytes at ``at``.

    ``packed``: elements below 8 bits stay packed in bytes, as they are stored.
    """

    __slots__ = (
        *("at", "bits", "crc", "dtype", "given", "is_straight", "name", "nbytes", "number", "overflowed"),
        *("tensor", "wanted_crc"),
    )

    def __init__(self, tensor: Tensor, name: str, dtype: DType, number: int, *, packed: bool) -> None:
        self.tensor = self.given = tensor
        """The tensor to be written; that in the source, of which it may be what the codes stand for."""
        self.name = name
        """Its name in the output."""
        self.dtype = dtype
        """Its type in the output."""
        self.number = number
        """Its place among the tensors of the source, from 0."""
        self.bits = dtype.bits if packed and dtype.packed else 8 * dtype.itemsize
        """Bits of an element in the output."""
        self.nbytes = self.size_of(tensor.size)
        """Bytes in the output."""
        self.at = 0
        """Where its bytes begin in the output file."""
        self.crc = 0
        """CRC-32 of what was written of it."""
        self.wanted_crc: int | None = None
        """CRC-32 that its bytes must have, of a source that was not compared with it yet; else None."""
        self.overflowed = 0
        """How many of the numbers written ``dtype`` cannot hold, not even rounded."""
        self.is_straight = (
            dtype == tensor.dtype and (packed or not dtype.packed) and (not self.nbytes or tensor.is_stored_as_array)
        )
        """Whether the bytes are those of the source as they stand."""

    @property
    def end(self) -> int:
        """Where its bytes end in the output file."""
        return self.at + self.nbytes

    def size_of(self, count: int) -> int:
        """Return how many bytes in the output the first ``count`` elements have."""
        return -(-count * self.bits // 8)

    def elements_in(self, nbytes: int) -> int:
        """Return how many elements the first ``nbytes`` bytes in the output have, which end where one does."""
        return nbytes * 8 // self.bits

    def pieces(self, start: int, size: int, buffers: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` on, the end of a piece before; a piece is good until the next but one is made.

        ``buffers``: two of ``size`` bytes by turns, from one item to the next. Raises the errors of `Tensor.blocks`.
        """
        if not self.is_straight:
            count = size // _COMPUTED // 8 * 8
            if self.tensor.itemsize > _COMPUTED:  # texts and structures
                count = max(1, size // self.tensor.itemsize)
            yield from self._computed(start, count)
            return
        while start < self.nbytes:
            piece = next(buffers)[: self.nbytes - start]
            got = self.tensor.readinto_from(start, piece)
            yield piece[:got]
            start += got

    def plain_span(self) -> Span | None:
        """Return the stretch of a file that the bytes are, unchanged; None if they must be read. Raises as `pieces`."""
        tensor = self.tensor
        span = tensor.content_span if self.is_straight else None
        if span is None or span.data is None or tensor.is_checked_by_reading:
            return None
        tensor.readinto_from(0, bytearray())  # raises if it is not whole
        return span

    def _computed(self, start: int, count: int) -> Iterator[memoryview]:
        """Yield the bytes of ``count`` elements at a time; ``start`` is a multiple of that many, or the end."""
        import numpy as np

        for block in self.blocks(count * self.tensor.itemsize, self.elements_in(start)):
            yield memoryview(np.ascontiguousarray(block).view(np.uint8).reshape(-1).data)

    def blocks(self, max_bytes: int, start: int = 0) -> Iterator[Any]:
        """Yield the elements from number ``start`` on, as flat arrays of ``dtype``; ``max_bytes`` as they were."""
        for block in self.tensor.blocks(max_bytes, start=start):
            if self.dtype != self.tensor.dtype:
                block, lost = as_type(block, self.dtype)
                self.overflowed += lost
            yield block


class Form:
    """How a file holds its items. Unless a format says otherwise, each is its bytes, with nothing around them."""

    name = ""
    packed = True  #: elements below 8 bits share bytes; else they take one each
    holds_metadata: bool | None = True  #: metadata become texts in it; None: it has what the source has in their place
    has_checksums = False
    alignment = 1  #: of the bytes of an item

    def refusal(self, name: str, dtype: DType, shape: tuple[int, ...], size: int) -> str | None:
        """Return why a tensor of ``size`` elements cannot be written; None if it can."""
        return why_no_name(name, self.name)

    def copies(self, tensor: BlockTensor) -> bool:
        """Say whether the blocks of a tensor are written as they stand, whether or not anything decodes them."""
        return False

    def item(self, tensor: Tensor, name: str, dtype: DType, number: int) -> Item:
        """Return the item of a tensor that is to have ``dtype``."""
        return Item(tensor, name, dtype, number, packed=self.packed)

    def notes(self) -> Iterator[str]:
        """Yield what to tell of the output."""
        yield from ()

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Give each of ``items`` its place; return the size of what comes before them, and of the file."""
        self._place(items, 0)
        start = self.head_size(items, metadata, path)
        return start, self._place(items, start)

    def _place(self, items: list[Item], at: int) -> int:
        for item in items:
            item.at = at
            at += item.nbytes + -item.nbytes % self.alignment
        return at

    def head_size(self, items: list[Item], metadata: Mapping[str, str], path: str) -> int:
        """Return the size of what comes before all items, which are where they would be without it."""
        return 0

    def head(self, items: list[Item], metadata: Mapping[str, str], size: int) -> Iterator[bytes]:
        """Yield the ``size`` bytes before all items."""
        yield from ()

    def lead(self, item: Item) -> bytes:
        """Return what comes just before an item."""
        return b""

    def crc_of(self, item: Item, crc: int) -> int:
        """Return the CRC-32 of what is written of an item, whose bytes have ``crc``."""
        return crc

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items."""
        yield from ()


# -- what readers refuse, or cannot tell apart -------------------------------------------------------------------------


def is_text(text: str) -> bool:
    """Return whether UTF-8 can hold ``text``: not half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def why_no_name(name: str, form: str) -> str | None:
    """Return why no tensor can have that name in a file of ``form`` ("safetensors", "npz"); None if one can."""
    if not is_text(name):
        return "UTF-8 cannot hold its name"
    if form == "safetensors" and name == METADATA:
        return f"no tensor can be called {METADATA} in a safetensors file"
    if form == "npz" and "\0" in name:
        return "readers of zip files end a name at its NUL character"
    if form == "npz" and len(name.encode()) > _MOST_NAME:
        return "the name is longer than a zip file can hold"
    return None


def why_unfit(name: str, dtype: DType, size: int) -> str | None:
    """Return why no safetensors file can hold a tensor of ``size`` elements under that name; None if one can."""
    why = why_no_name(name, "safetensors")
    if why is not None:
        return why
    if not dtype.is_number:
        return f"its elements, of {dtype}, are not numbers"
    if word_of(dtype) is None:
        known = any(dtype.name == stored.name for stored in STORED_DTYPES.values())
        return f"safetensors has no type for {dtype}" + (" in whole bytes" if known else "")
    if size * dtype.bits % 8:
        return f"{size} elements of {dtype} do not fill whole bytes"
    return None


def safetensors_header(entries: Iterable[Entry], metadata: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Yield the header of a safetensors file: how it opens, a piece for each entry, how it closes."""
    yield b"{" if metadata is None else f'{{"{METADATA}":{_encode(dict(metadata))}'.encode()
    separator = "" if metadata is None else ","
    for name, word, shape, begin, end in entries:
        yield (
            f'{separator}{_encode(name)}:{{"dtype":"{word}","shape":[{",".join(map(str, shape))}],'
            f'"data_offsets":[{begin},{end}]}}'
        ).encode()
        separator = ","
    yield b"}"


def safetensors_head(header: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first ``size`` bytes of a safetensors file: the length of the header, the header, and spaces."""
    yield (size - 8).to_bytes(8, "little")
    at = 8
    for piece in header:
        at += len(piece)
        yield piece
    yield b" " * (size - at)


def measured(header: Iterable[bytes]) -> tuple[int, int]:
    """Return the length of what `safetensors_header` yields, filled up, and how many of its entries readers accept."""
    length, accepted = 0, -1  # how it opens is no entry
    for piece in header:
        length += len(piece)
        accepted += piece != b"}" and length < REFERENCE_HEADER_LIMIT  # one byte more closes it
    return length + -length % 8, max(0, accepted)


# -- safetensors -------------------------------------------------------------------------------------------------------

# The library sorts by type, the last one of its list first: so every tensor begins at a multiple of its item size.
_RANKS: Final = {dtype.name: -number for number, dtype in enumerate(STORED_DTYPES.values())}


class SafetensorsForm(Form):
    """How the format's own library writes a safetensors file."""

    name = "safetensors"

    def refusal(self, name: str, dtype: DType, shape: tuple[int, ...], size: int) -> str | None:
        """Return why a tensor of ``size`` elements cannot be written; None if it can."""
        return why_unfit(name, dtype, size)

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Order ``items`` and give each its place; return the size of what comes before them, and of the file."""
        items.sort(key=lambda item: (_RANKS[item.dtype.name], item.name))
        return super().lay(items, metadata, path)

    def head_size(self, items: list[Item], metadata: Mapping[str, str], path: str) -> int:
        """Return the size of what comes before all items, which are where they would be without it.

        Raises `OptionError` if the library would refuse the header as too long.
        """
        length, _ = measured(self._header(items, metadata))
        if length > REFERENCE_HEADER_LIMIT:
            raise OptionError(
                f"the header of {path} would take {length:,} bytes, more than the {REFERENCE_HEADER_LIMIT:,} that "
                f"readers accept; {told('--max-shard-size', 'max_shard_size=')} writes several files"
            )
        return 8 + length

    def head(self, items: list[Item], metadata: Mapping[str, str], size: int) -> Iterator[bytes]:
        """Yield the ``size`` bytes before the items."""
        return safetensors_head(self._header(items, metadata), size)

    def _header(self, items: list[Item], metadata: Mapping[str, str]) -> Iterator[bytes]:
        base = items[0].at if items else 0
        entries = (
            (item.name, str(word_of(item.dtype)), item.tensor.shape, item.at - base, item.at - base + item.nbytes)
            for item in items
        )
        return safetensors_header(entries, metadata or None)


def index_text(names: Iterable[tuple[str, str]], total: int) -> Iterator[bytes]:
    """Yield the index of a set: for each tensor, in order of the names, the file it is in; ``total`` bytes in all."""
    yield b'{\n  "metadata": {\n    "total_size": %d\n  },\n  "weight_map": {' % total
    separator = "\n"
    for name, file in names:
        yield f"{separator}    {json.dumps(name)}: {json.dumps(file)}".encode()
        separator = ",\n"
    yield b"\n  }\n}\n" if separator != "\n" else b"}\n}\n"


def shards_of(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the numbers of the tensors in each shard of at most ``most`` bytes, divided as huggingface_hub does.

    A tensor larger than that gets a shard of its own.
    """
    shards: list[list[int]] = []
    open_shard: list[int] = []
    filled = 0
    for number, size in enumerate(sizes):
        if size > most:
            shards.append([number])
            continue
        if filled + size > most:
            shards.append(open_shard)
            open_shard, filled = [], 0
        open_shard.append(number)
        filled += size
    return [*shards, open_shard] if open_shard else shards


# -- .npz --------------------------------------------------------------------------------------------------------------

_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_DAY: Final = 1 << 5 | 1  # 1980-01-01, for the same bytes each time
_UTF8: Final = 1 << 11
_MODE: Final = 0o100644 << 16  # a plain file


class NpzForm(Form):
    """An archive of arrays: a zip of .npy files, stored. `numpy.load` opens it.

    Types that numpy lacks are unsigned integers of that width with the same bits. All sizes are known beforehand, so
    every array has its place before the first byte is written; only the checksums of the headers come last.
    """

    name = "npz"
    packed = False
    holds_metadata = False
    has_checksums = True

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Give each of ``items`` its place; return the size of what comes before them, 0, and of the file.

        The checksum of an item begins with that of the header that numpy has before its elements.
        """
        at = 0
        for item in items:
            item.crc = first_crc(item)
            item.at = at + len(self.lead(item))
            at = item.end
        return 0, at + sum(map(len, self.tail(items)))

    def lead(self, item: Item) -> bytes:
        """Return what comes just before an item: the zip's header of the array, with its checksum, and numpy's."""
        name, inner = _name(item), array_header(item)
        size = len(inner) + item.nbytes
        extra = pack("<HHQQ", 1, 16, size, size) if size >= _FULL32 else b""
        short = min(size, _FULL32)
        what = pack("<5H", 45 if extra else 20, _flags(name), 0, 0, _DAY)
        sizes = pack("<3I2H", item.crc, short, short, len(name), len(extra))
        return b"PK\3\4" + what + sizes + name + extra + inner

    def crc_of(self, item: Item, crc: int) -> int:
        """Return the CRC-32 of what is written of an item, whose bytes have ``crc``: numpy's header comes first."""
        return joined_crc(first_crc(item), crc, item.nbytes)

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items: the zip's directory."""
        start = items[-1].end if items else 0
        length = at = 0
        for item in items:
            name, size = _name(item), len(array_header(item)) + item.nbytes
            large = [number for number in (size, size, at) if number >= _FULL32]
            extra = pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
            short = min(size, _FULL32)
            what = pack("<6H", 3 << 8 | 45, 45 if extra else 20, _flags(name), 0, 0, _DAY)
            sizes = pack("<3I5H2I", item.crc, short, short, len(name), len(extra), 0, 0, 0, _MODE, min(at, _FULL32))
            entry = b"PK\1\2" + what + sizes + name + extra
            yield entry
            length += len(entry)
            at = item.end
        if len(items) >= _FULL16 or start >= _FULL32 or length >= _FULL32:
            yield pack("<4sQ2H2I4Q", b"PK\6\6", 44, 3 << 8 | 45, 45, 0, 0, len(items), len(items), length, start)
            yield pack("<4sIQI", b"PK\6\7", 0, start + length, 1)
        count = min(len(items), _FULL16)
        yield pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, min(length, _FULL32), min(start, _FULL32), 0)


def array_header(item: Item) -> bytes:
    """Return numpy's header of an array."""
    dtype = item.dtype
    form = dtype.raw_numpy if dtype.numpy.isbuiltin == 2 else dtype.numpy
    return npy_header(form, item.tensor.shape)


def bits_note(dtype: DType) -> str:
    """Return what to tell of a type that numpy lacks."""
    return f"numpy has no {dtype}: its bits are written as {dtype.raw_numpy}; read them with .view(ml_dtypes.{dtype})"


def first_crc(item: Item) -> int:
    """Return the CRC-32 of what an array's file holds before its elements."""
    return crc32(array_header(item))


def _name(item: Item) -> bytes:
    return (item.name + NPY).encode()


def _flags(name: bytes) -> int:
    return 0 if name.isascii() else _UTF8


# -- GGUF --------------------------------------------------------------------------------------------------------------

_NUMBERS: Final = {known.name: known for known in TYPES.values()}
_BY_DTYPE: Final = {known.dtype: known for known in TYPES.values() if known.dtype is not None}
# What a file says of its own layout, as numbers; the package gguf gives what heads it the names GGUF.version etc.
_OWN_LAYOUT: Final = frozenset(("general.alignment", "split.no", "split.count", "split.tensors.count"))
_FILE_TYPE: Final = "general.file_type"
_HEAD: Final = "GGUF."
_LONGEST_KEY: Final = (1 << 16) - 1
LONGEST_NAME: Final = 63
_MOST_DIMENSIONS: Final = 4
# So many keys are named in a note.
_NAMED: Final = 3
# Key-values up to this size are copied, whatever the memory budget is.
_ALWAYS: Final = 8 * MIB


class GgufForm(Form):
    """A GGUF file: version 3, little-endian, tensors as they come, each at a multiple of 32.

    The key-values of a GGUF source of any version and byte order keep their types; of any other source, its metadata
    become texts, beside ``general.name``. Neither has those that say how the file itself is laid out. Blocks of
    quantised tensors are copied, too, unless a type is asked for.
    """

    name = "gguf"
    alignment = 32

    def __init__(self, viewer: Viewer, target: str, wanted: DType | None) -> None:
        self.unquantised = 0
        """Tensors that stay as they are, as their rows are no whole blocks."""
        self.scalars = 0
        """Tensors without dimensions: readers of GGUF files want one."""
        self._wanted = wanted
        self._pairs, self._uncopied = _copied_pairs(viewer) if viewer.format == "gguf" else (None, None)
        self.holds_metadata = True if self._pairs is None else None
        self._retyped = wanted is not None or self._pairs is None
        self._omitted: list[str] = []
        self._title = target.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")

    def refusal(self, name: str, dtype: DType, shape: tuple[int, ...], size: int) -> str | None:
        """Return why a tensor cannot be written; None if it can."""
        if dtype != Q8_0 and dtype.name not in _BY_DTYPE:
            return f"GGUF has no type for {dtype}"
        if len(name.encode()) > LONGEST_NAME:
            return f"ggml reads names of at most {LONGEST_NAME} bytes; {told('--rename', 'rename=')} shortens them"
        if len(shape) > _MOST_DIMENSIONS:
            return f"ggml reads at most {_MOST_DIMENSIONS} dimensions"
        return None

    def copies(self, tensor: BlockTensor) -> bool:
        """Say whether the blocks of a tensor are written as they stand, whether or not anything decodes them."""
        return self._wanted is None and tensor.block_order == "little"

    def item(self, tensor: Tensor, name: str, dtype: DType, number: int) -> Item:
        """Return the item of a tensor that is to have ``dtype``."""
        self.scalars += not tensor.shape
        if isinstance(tensor, BlockTensor):
            if self.copies(tensor):
                return _BlockItem(tensor, name, number, tensor.stored_dtype)
            self._retyped = True
        if dtype == Q8_0:
            if len(tensor.shape) > 1 and not tensor.shape[-1] % 32:
                return _BlockItem(tensor, name, number, "Q8_0")
            self.unquantised += 1
            assert tensor.dtype is not None  # noqa: S101 -- `Plan` refused it
            dtype = tensor.dtype if tensor.dtype.name in _BY_DTYPE else DType.of("float32")
        return super().item(tensor, name, dtype, number)

    def notes(self) -> Iterator[str]:
        """Yield what to tell of the output."""
        if self.unquantised:
            count = f"{count_words(self.unquantised, 'tensor')} {are(self.unquantised)}"
            yield f"{count} not quantised: of one dimension, or with rows that 32 does not divide"
        if self.scalars:
            yield f"{count_words(self.scalars, 'scalar')} got one dimension, of length 1"
        if self._uncopied is not None:
            yield f"the key-values did not keep their types, but became texts: {self._uncopied}"
        if self._omitted:
            names = few(self._omitted, _NAMED, len(self._omitted))
            yield f"key-values whose keys a GGUF file cannot have were left out: {names}"

    def head_size(self, items: list[Item], metadata: Mapping[str, str], path: str) -> int:
        """Return the size of what comes before all items, which are where they would be without it."""
        size = sum(map(len, self._header(items, metadata, 0)))
        return size + -size % self.alignment

    def head(self, items: list[Item], metadata: Mapping[str, str], size: int) -> Iterator[bytes]:
        """Yield the ``size`` bytes before the items."""
        length = 0
        for piece in self._header(items, metadata, size):
            length += len(piece)
            yield piece
        yield bytes(size - length)

    def _header(self, items: list[Item], metadata: Mapping[str, str], start: int) -> Iterator[bytes]:
        pairs = self._pairs
        if pairs is None:
            texts = {"general.name": self._title, **metadata}
            pairs = [(key, _text(key) + pack("<I", TEXT) + _text(value)) for key, value in texts.items()]
        omitted = _OWN_LAYOUT | ({_FILE_TYPE} if self._retyped else set())
        self._omitted = [key for key, _ in pairs if not is_key(key)]
        kept = [raw for key, raw in pairs if key not in omitted and is_key(key)]
        yield b"GGUF" + pack("<IQQ", 3, len(items), len(kept))
        yield from kept
        for item in items:
            kind = _NUMBERS[item.kind] if isinstance(item, _BlockItem) else _BY_DTYPE[item.dtype.name]
            shape = item.tensor.shape or (1,)
            place = pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind.number, item.at - start)
            yield _text(item.name) + place

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items: the padding of the last one."""
        if items:
            yield bytes(-items[-1].nbytes % self.alignment)


class _BlockItem(Item):
    """A tensor that is written as blocks: those of the source as they are, or made of its elements."""

    __slots__ = ("kind",)

    def __init__(self, tensor: Tensor, name: str, number: int, kind: str) -> None:
        self.kind = kind
        """What ggml calls the blocks."""
        super().__init__(tensor, name, DType.of("float32"), number, packed=True)
        same = isinstance(tensor, BlockTensor) and tensor.block_order == "little"
        self.is_straight = same and tensor.stored_dtype == kind

    def size_of(self, count: int) -> int:
        """Return how many bytes in the output the first ``count`` elements have: whole blocks."""
        known = _NUMBERS[self.kind]
        return count // known.block_size * known.block_bytes

    def elements_in(self, nbytes: int) -> int:
        """Return how many elements the first ``nbytes`` bytes in the output have, which end where a block does."""
        known = _NUMBERS[self.kind]
        return nbytes // known.block_bytes * known.block_size

    def _computed(self, start: int, count: int) -> Iterator[memoryview]:
        """Yield the blocks of ``count`` elements at a time; ``start`` is a multiple of theirs, or the end."""
        import numpy as np

        known = _NUMBERS[self.kind]
        size = known.block_size
        step = max(size, count // size * size)
        for block in self.tensor.blocks(step * self.tensor.itemsize, start=self.elements_in(start)):
            yield memoryview(q8_0_of(block.astype(np.float32, copy=False).reshape(-1, size)).reshape(-1).data)


def _text(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


def is_key(key: str) -> bool:
    """Say whether readers of GGUF files take a key."""
    return not key.startswith(_HEAD) and len(key.encode()) <= _LONGEST_KEY


# -- key-values of a GGUF source ---------------------------------------------------------------------------------------


def _copied_pairs(viewer: Viewer) -> tuple[list[tuple[str, bytes]] | None, str | None]:
    """Return the keys of a GGUF source with what is to be written of each; or None, and why they cannot be copied."""
    source: Any = viewer
    if viewer.is_set:
        try:
            source = source.shard_viewer(source.parser.shard_names()[0])
        except PparseError as error:
            return None, f"the first file cannot be read: {error.reason}"
    parser, node = source.parser, source.facts
    if node is None or source.table is None:  # what follows them is known only if they are whole
        return None, "they are not whole"
    node.load()
    most = max(source.extraction.session.budget.limit // 4, _ALWAYS)
    if node.end - node.start > most:
        return None, f"they take {format_size(node.end - node.start)}, and only up to {format_size(most)} are copied"
    pairs = raw_entries(node)
    if parser.order == "<" and parser.version > 1:
        return list(pairs), None
    return [(key, b"".join(_recoded(raw, parser.order, parser.length))) for key, raw in pairs], None


def raw_entries(node: Node) -> Iterator[tuple[str, bytes]]:
    """Yield the key of each entry of the key-values, or of the table, and its bytes, key and all."""
    node.load()
    places = [(entry.at, str(entry.key)) for _, entry in node.result.entries_from(node, 0)]
    ends = [at for at, _ in places[1:]] + [node.end or node.start]
    read = node.result.extraction.data.read_exact
    return ((key, read(at, end - at)) for (at, key), end in zip(places, ends, strict=False))


def _recoded(raw: bytes, order: str, length: str) -> Iterator[bytes]:
    """Yield a key and its value as version 3 has them, little-endian; ``length``: layout of a length in ``raw``."""
    import numpy as np

    at = 0

    def take(layout: str) -> tuple[Any, ...]:
        nonlocal at
        found = unpack_from(order + layout, raw, at)
        at += calcsize(order + layout)
        return found

    def take_text() -> bytes:
        nonlocal at
        (size,) = take(length)
        at += size
        return pack("<Q", size) + raw[at - size : at]

    yield take_text()
    (kind,) = take("I")
    yield pack("<I", kind)
    rest = [(kind, 1)]  # what is still to come, the next last: so many values of a type
    while rest:
        kind, count = rest.pop()
        if kind == TEXT:
            for _ in range(count):
                yield take_text()
        elif kind in LAYOUTS:
            layout = LAYOUTS[kind]
            numbers = np.frombuffer(raw, order + layout, count, at)
            at += numbers.nbytes
            yield numbers.astype("<" + layout).tobytes()
        elif kind == ARRAY and count:
            rest.append((ARRAY, count - 1))
            inner, size = take("I" + length)
            yield pack("<IQ", inner, size)
            rest.append((inner, size))
