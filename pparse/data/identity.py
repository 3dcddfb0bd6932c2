"""What identifies content (`Data.identity`): of memory, of file objects, and of data made of other data.

An identity is hashable and can be pickled. Equal ones mean the same, unchanged content, as far as the source tells.
"""

from __future__ import annotations

from pparse.data.hashing import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pparse.data.reader import Range


def derived(what: str, sources: Iterable[Range], *how: object) -> tuple[object, ...] | None:
    """Return the identity of data made of ``sources`` by ``what``, with parameters ``how``; None if one has none.

    Of many ranges only a digest is kept.
    """
    from array import array

    known: dict[int, int] = {}
    identities: list[object] = []
    numbers = array("q")
    for source in sources:
        number = known.get(id(source.data))
        if number is None:
            identity = source.data.identity
            if identity is None:
                return None
            number = known[id(source.data)] = len(identities)
            identities.append(identity)
        numbers.extend((number, source.start, source.end))
    places: object = tuple(numbers) if len(numbers) <= 3 else digest((numbers.tobytes(),))
    return what, tuple(identities), places, *how
