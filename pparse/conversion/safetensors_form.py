"""Safetensors files as the format's own library writes them, and the index of a set as Hugging Face's does."""

from __future__ import annotations

import json

from pparse.conversion.items import Item
from pparse.errors import OptionError
from pparse.parsers.safetensors.entry import REFERENCE_HEADER_LIMIT, STORED_DTYPES, word_of
from pparse.recovery.reader_rules import measured, safetensors_header, why_unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Final

    from pparse.tensors.block_tensor import BlockTensor
    from pparse.tensors.dtype import DType
    from pparse.tensors.tensor import Tensor

# The library sorts by type, the last one of its list first: so every tensor begins at a multiple of its item size.
_RANKS: Final = {dtype.name: -number for number, dtype in enumerate(STORED_DTYPES.values())}


class SafetensorsForm:
    """How a safetensors file holds its items."""

    name = "safetensors"
    packed = True  #: elements below 8 bits share bytes
    holds_metadata = True
    has_checksums = False

    def refusal(self, name: str, dtype: DType, shape: tuple[int, ...], size: int) -> str | None:
        """Return why a tensor of ``size`` elements cannot be written; None if it can."""
        return why_unfit(name, dtype, size)

    def copies(self, tensor: BlockTensor) -> bool:
        """Say whether the blocks of a tensor are written as they stand: no, only GGUF has blocks."""
        return False

    def item(self, tensor: Tensor, name: str, dtype: DType, number: int) -> Item:
        """Return the item of a tensor that is to have ``dtype``."""
        return Item(tensor, name, dtype, number, packed=self.packed)

    def notes(self) -> Iterator[str]:
        """Yield what to tell of the output: nothing."""
        yield from ()

    def lay(self, items: list[Item], metadata: Mapping[str, str], path: str) -> tuple[int, int]:
        """Order ``items`` and give each its place; return the size of what comes before them, and of the file.

        Raises `OptionError` if the library would refuse the header as too long.
        """
        items.sort(key=lambda item: (_RANKS[item.dtype.name], item.name))
        self._place(items, 0)
        length, _ = measured(self._header(items, metadata))
        if length > REFERENCE_HEADER_LIMIT:
            raise OptionError(
                f"the header of {path} would take {length:,} bytes, more than the {REFERENCE_HEADER_LIMIT:,} that "
                "readers accept; --max-shard-size writes several files"
            )
        return 8 + length, self._place(items, 8 + length)

    def _place(self, items: list[Item], at: int) -> int:
        for item in items:
            item.at = at
            at += item.nbytes
        return at

    def head(self, items: list[Item], metadata: Mapping[str, str], size: int) -> Iterator[bytes]:
        """Yield the ``size`` bytes before the items."""
        yield (size - 8).to_bytes(8, "little")
        length = 0
        for piece in self._header(items, metadata):
            length += len(piece)
            yield piece
        yield b" " * (size - 8 - length)

    def _header(self, items: list[Item], metadata: Mapping[str, str]) -> Iterator[bytes]:
        base = items[0].at if items else 0
        entries = (
            (item.name, str(word_of(item.dtype)), item.tensor.shape, item.at - base, item.at - base + item.nbytes)
            for item in items
        )
        yield from safetensors_header(entries, metadata or None)

    def lead(self, item: Item) -> bytes:
        """Return what comes just before an item: nothing."""
        return b""

    def crc_of(self, item: Item, crc: int) -> int:
        """Return the CRC-32 of what is written of an item, whose bytes have ``crc``: nothing else is."""
        return crc

    def tail(self, items: list[Item]) -> Iterator[bytes]:
        """Yield what comes after the items: nothing."""
        yield from ()


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
    if open_shard:
        shards.append(open_shard)
    return shards
