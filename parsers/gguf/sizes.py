"""How much of a GGUF file each type of its tensors takes, as `pparse info` shows it."""

from __future__ import annotations

from math import prod

from pparse.limits import count_words, format_size
from pparse.parsers.gguf.types import NAMES, TYPES
from pparse.tree.record import NumberArray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pparse.parsers.gguf.parser import GgufParser
    from pparse.tree.node import Node


def details(parser: GgufParser) -> Iterator[tuple[str, str]]:
    """Yield labels and values: version and byte order, alignment, number of key-values; then sizes, type by type."""
    root = parser.result.root
    root.find("data")  # all before it is read then
    if not parser.version:
        return
    yield "version", f"{parser.version}, {'little' if parser.order == '<' else 'big'}-endian"
    yield "alignment", f"{parser.alignment}"
    facts, table = root.find("metadata"), root.find("tensors")
    if facts is not None:
        kinds: dict[str, int] = {}
        for node in facts.children():
            name = f"array of {_element(node)}" if node.kind == "array" else node.kind
            kinds[name] = kinds.get(name, 0) + 1
        words = ", ".join(f"{name} {count:,}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
        yield "key-values", f"{len(facts):,} ({words})" if words else "0"
    found: dict[int, list[int]] = {}  # numbers of tensors, elements, and bytes, by type
    for node in table.children() if table is not None else ():
        place = node.note
        if place.size is not None:
            sums = found.setdefault(place.kind, [0, 0, 0])
            for at, more in enumerate((1, prod(place.shape), place.size)):
                sums[at] += more
    for kind, sums in sorted(found.items(), key=lambda item: -item[1][2]):
        yield TYPES[kind].name, _words(sums)
    if len(found) > 1:
        yield "all types", _words([sum(column) for column in zip(*found.values(), strict=True)])


def _element(node: Node) -> str:
    """Return what the elements of an array are called."""
    return node.note.field.kind if isinstance(node.note, NumberArray) else NAMES[node.note[0]]


def _words(sums: list[int]) -> str:
    tensors, elements, size = sums
    bits = f", {8 * size / elements:.2f} bits each" if elements else ""
    return f"{count_words(tensors, 'tensor')}, {count_words(elements, 'parameter')}, {format_size(size)}{bits}"
