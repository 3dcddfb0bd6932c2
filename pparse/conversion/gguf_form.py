"""GGUF files as a target: version 3, little-endian, tensors as they come, each at a multiple of 32.

The key-values of a GGUF source of any version and byte order keep their types; of any other source, its metadata become
texts, beside ``general.name``. Neither has those that say how the file itself is laid out. Blocks of quantised tensors
are copied, too, unless a type is asked for.
"""

from __future__ import annotations

from struct import calcsize, pack, unpack_from

from pparse.conversion.cast import Q8_0
from pparse.conversion.forms import Form, Item
from pparse.display.text import shorten
from pparse.errors import PparseError
from pparse.kernels.ggml_blocks import q8_0_of
from pparse.limits import MIB, count_words, format_size
from pparse.parsers.gguf.types import ARRAY, LAYOUTS, TEXT, TYPES
from pparse.tensors.block_tensor import BlockTensor
from pparse.tensors.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

_ALIGNMENT: Final = 32
_NUMBERS: Final = {known.name: known for known in TYPES.values()}
_BY_DTYPE: Final = {known.dtype: known for known in TYPES.values() if known.dtype is not None}
# What a file says of its own layout, as numbers; the package gguf gives what heads it the names GGUF.version etc.
_OWN_LAYOUT: Final = frozenset(("general.alignment", "split.no", "split.count", "split.tensors.count"))
_FILE_TYPE: Final = "general.file_type"
_HEAD: Final = "GGUF."
_LONGEST_KEY: Final = (1 << 16) - 1
_LONGEST_NAME: Final = 63
_MOST_DIMENSIONS: Final = 4
# So many keys are named in a note.
_NAMED: Final = 3
# Key-values up to this size are copied, whatever the memory budget is.
_ALWAYS: Final = 8 * MIB


class GgufForm(Form):
    """How a GGUF file holds its items."""

    name = "gguf"

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
        if len(name.encode()) > _LONGEST_NAME:
            return f"ggml reads names of at most {_LONGEST_NAME} bytes; --rename shortens them"
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
                return _Blocks(tensor, name, number, tensor.stored_dtype)
            self._retyped = True
        if dtype == Q8_0:
            if len(tensor.shape) > 1 and not tensor.shape[-1] % 32:
                return _Blocks(tensor, name, number, "Q8_0")
            self.unquantised += 1
            assert tensor.dtype is not None  # noqa: S101 -- `Plan` refused it
            dtype = tensor.dtype if tensor.dtype.name in _BY_DTYPE else DType.of("float32")
        return super().item(tensor, name, dtype, number)

    def notes(self) -> Iterator[str]:
        """Yield what to tell of the output."""
        if self.unquantised:
            are = "tensor is" if self.unquantised == 1 else "tensors are"
            yield f"{self.unquantised:,} {are} not quantised: of one dimension, or with rows that 32 does not divide"
        if self.scalars:
            yield f"{count_words(self.scalars, 'scalar')} got one dimension, of length 1"
        if self._uncopied is not None:
            yield f"the key-values did not keep their types, but became texts: {self._uncopied}"
        if self._omitted:
            names = ", ".join(shorten(key, 80) for key in self._omitted[:_NAMED])
            more = f" and {len(self._omitted) - _NAMED:,} more" if len(self._omitted) > _NAMED else ""
            yield f"key-values whose keys a GGUF file cannot have were left out: {names}{more}"

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Give each of ``items`` its place; return the size of what comes before them, and of the file."""
        for item in items:
            item.at = 0
        start = sum(map(len, self._header(items, metadata, 0)))
        at = start = start + -start % _ALIGNMENT
        for item in items:
            item.at = at
            at += item.nbytes + -item.nbytes % _ALIGNMENT
        return start, at

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
        self._omitted = [key for key, _ in pairs if not _is_key(key)]
        kept = [raw for key, raw in pairs if key not in omitted and _is_key(key)]
        yield b"GGUF" + pack("<IQQ", 3, len(items), len(kept))
        yield from kept
        for item in items:
            kind = _NUMBERS[item.kind] if isinstance(item, _Blocks) else _BY_DTYPE[item.dtype.name]
            shape = item.tensor.shape or (1,)
            place = pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind.number, max(0, item.at - start))
            yield _text(item.name) + place

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items: the padding of the last one."""
        if items:
            yield bytes(-items[-1].nbytes % _ALIGNMENT)


class _Blocks(Item):
    """A tensor that is written as blocks: those of the source as they are, or made of its elements."""

    __slots__ = ("kind",)

    def __init__(self, tensor: Tensor, name: str, number: int, kind: str) -> None:
        self.kind = kind
        """What ggml calls the blocks."""
        known = _NUMBERS[kind]
        super().__init__(tensor, name, DType.of("float32"), number, packed=True)
        self.nbytes = tensor.size // known.block_size * known.block_bytes
        same = isinstance(tensor, BlockTensor) and tensor.block_order == "little"
        self.is_straight = same and tensor.stored_dtype == kind

    def _computed(self, start: int, count: int) -> Iterator[memoryview]:
        """Yield the blocks of ``count`` elements at a time; ``start`` is a multiple of theirs, or the end."""
        import numpy as np

        known = _NUMBERS[self.kind]
        size = known.block_size
        first, step = start // known.block_bytes * size, max(size, count // size * size)
        for block in self.tensor.blocks(step * self.tensor.itemsize, start=first):
            yield memoryview(q8_0_of(block.astype(np.float32, copy=False).reshape(-1, size)).reshape(-1).data)


def _text(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


def _is_key(key: str) -> bool:
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
    places = [(entry.at, str(entry.key)) for _, entry in node.result.entries_from(node, 0)]
    ends = [at for at, _ in places[1:]] + [node.end]
    read = source.extraction.data.read_exact
    pairs = ((key, read(at, end - at)) for (at, key), end in zip(places, ends, strict=False))
    if parser.order == "<" and parser.version > 1:
        return list(pairs), None
    return [(key, b"".join(_recoded(raw, parser.order, parser.length))) for key, raw in pairs], None


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
