"""Writes SMF1 files, the small format of docs/examples/small_parser.py."""

from __future__ import annotations

import sys
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING

EXAMPLES = Path(__file__).resolve().parent.parent / "docs/examples"
sys.path.insert(0, str(EXAMPLES))

from small_parser import SmallParser as SmallParser  # noqa: E402 -- the folder was just added
from small_viewer import SmallViewer as SmallViewer  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEXT, ARRAY, UINT32, FLOAT32 = 8, 9, 4, 6


def text(value: str | bytes) -> bytes:
    """Encode a text."""
    value = value.encode() if isinstance(value, str) else value
    return pack("<Q", len(value)) + value


def texts(values: Sequence[str]) -> bytes:
    """Encode an array of texts."""
    return array(TEXT, [text(value) for value in values])


def array(kind: int, items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded items."""
    return pack("<IQ", kind, len(items)) + b"".join(items)


def small_file(
    pairs: Sequence[tuple[str, int, bytes]] = (),
    tensors: Mapping[str, tuple[tuple[int, ...], int]] | None = None,
    data: bytes = b"",
) -> bytes:
    """Encode a file; ``pairs`` are keys, types and encoded values, ``tensors`` shapes and offsets by name."""
    tensors = tensors or {}
    out = pack("<4sIQQ", b"SMF1", 1, len(tensors), len(pairs))
    out += b"".join(text(key) + pack("<I", kind) + value for key, kind, value in pairs)
    for name, (shape, offset) in tensors.items():
        out += text(name) + pack(f"<I{len(shape)}QIQ", len(shape), *shape, FLOAT32, offset)
    return out + (bytes(-len(out) % 32) + data if data else b"")
