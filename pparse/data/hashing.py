"""Hashes of content, to tell it from other content."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def digest(content: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """Return the BLAKE2b of all of ``content``, 16 bytes."""
    from hashlib import blake2b

    found = blake2b(digest_size=16)
    for piece in content:
        found.update(piece)
    return found.digest()
