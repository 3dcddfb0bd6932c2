"""The size limit of a chunk: a default for all splitters, which each can override with ``max_size=``.

TensorFlow's Python splitter has the same default (1 GiB), its C++ one 2^31 - 500 bytes.
"""

from __future__ import annotations

from pparse.limits import GIB, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

DEFAULT_MAX_SIZE: Final = 1 * GIB
# No implementation of protobuf serializes or parses a message above this.
MAX_MESSAGE_BYTES: Final = (1 << 31) - 1

_current = DEFAULT_MAX_SIZE


def max_size() -> int:
    """Return the largest size in bytes that a message chunk may have, where a splitter was not told otherwise."""
    return min(_current, MAX_MESSAGE_BYTES)


class set_max_size:  # noqa: N801 -- called like a function
    """Set what `max_size` returns (bytes, or text such as ``"64MiB"``); as a context manager, only for its block.

    It is one setting of the process: threads that want different limits give ``max_size=`` to their splitters. Above
    2 GiB - 1 it counts as that. Raises ValueError for what is not a positive size.
    """

    def __init__(self, size: int | str) -> None:
        global _current  # noqa: PLW0603 -- the setting itself
        self._before = _current
        _current = checked_size(size)

    def __enter__(self) -> int:
        return max_size()

    def __exit__(self, *exc: object) -> None:
        global _current  # noqa: PLW0603 -- the setting itself
        _current = self._before


# The name that users of TensorFlow's splitter know.
debug_set_max_size = set_max_size


def checked_size(size: int | str) -> int:
    """Return ``size`` in bytes. Raises ValueError for what is not a positive size."""
    checked = parse_size(size)
    if checked < 1:
        raise ValueError("a chunk must be allowed at least one byte")
    return checked
