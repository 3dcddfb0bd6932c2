"""What ``info`` says of a pickle."""

from __future__ import annotations

from pparse.display.text import shorten
from pparse.limits import count_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.parsers.pickle.parser import PickleParser

# The most globals that are listed, and that are counted.
_MOST_LISTED: Final = 20
_MOST_COUNTED: Final = 10_000


def details(parser: PickleParser) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: the number of pickles, the protocol of the first, and the globals that they name."""
    found: dict[str, list[int]] = {}
    named = 0
    for at, name in parser.global_names():
        named += 1
        known = found.get(name)
        if known is not None:
            known[0] += 1
        elif len(found) < _MOST_COUNTED:
            found[name] = [1, at]
    starts = parser.starts
    if len(starts) > 1:
        yield "pickles", f"{len(starts):,}"
    head = parser.result.extraction.data.pread(starts[0], 2) if starts else b""
    yield "protocol", str(head[1]) if len(head) == 2 and head[0] == 0x80 else "0 or 1"
    yield "globals", f"{len(found):,} different, named {count_words(named, 'time')}" if named else "none"
    often = sorted(found.items(), key=lambda item: -item[1][0])
    for name, (count, at) in often[:_MOST_LISTED]:
        times = "once" if count == 1 else f"{count:,} times, first"
        yield "global", f"{shorten(name, 80)}: {times} at offset {at}"
    if len(often) > _MOST_LISTED:
        yield "global", f"and {len(often) - _MOST_LISTED:,} others"
