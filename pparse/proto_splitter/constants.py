"""The default size limit of a chunk. Each splitter can override it with ``max_size=``.

TensorFlow's Python splitter has the same default (1 GiB), its C++ one 2^31 - 500 bytes.
"""

from __future__ import annotations

from pparse.limits import GIB, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

DEFAULT_MAX_SIZE: Final = 1 * GIB
# No protobuf implementation serializes or parses a larger message.
MAX_MESSAGE_BYTES: Final = (1 << 31) - 1

_current = DEFAULT_MAX_SIZE


def max_size() -> int:
    """Return the default for the largest size of a message chunk, in bytes."""
    return min(_current, MAX_MESSAGE_BYTES)


class set_max_size:  # noqa: N801 -- called like a function
    """Set what `max_size` returns (bytes, or text such as ``"64MiB"``). As a context manager, only for its block.

    The setting belongs to the process: threads that need different limits pass ``max_size=`` to their splitters. A size
    above 2 GiB - 1 counts as that. Raise ValueError for a size that is not positive.
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


# The name in TensorFlow's splitter.
debug_set_max_size = set_max_size


def checked_size(size: int | str) -> int:
    """Return ``size`` in bytes. Raise ValueError if it is not positive."""
    checked = parse_size(size)
    if checked < 1:
        raise ValueError("the size limit of a chunk must be at least one byte")
    return checked
