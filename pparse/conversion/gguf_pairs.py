"""The key-values of a GGUF source, as those of a little-endian file of version 3, with their types."""

from __future__ import annotations

from struct import calcsize, pack, unpack_from

from pparse.errors import PparseError
from pparse.limits import MIB, format_size
from pparse.parsers.gguf.types import ARRAY, LAYOUTS, TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.tensors.viewer import Viewer

# Key-values up to this size are copied, whatever the memory budget is.
_ALWAYS: Final = 8 * MIB


def copied_pairs(viewer: Viewer) -> tuple[list[tuple[str, bytes]] | None, str | None]:
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
