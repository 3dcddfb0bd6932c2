"""Names of things of which several have one key: the second of two keys ``a`` is called ``a#2``.

If there are keys ``a#2``, that one counts as one more of them, behind the last: it is ``a#2#2`` if there is one. So no
name is given twice, none has to be remembered, and a name tells what it means without a list of all.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, TypeVar

    T = TypeVar("T")

# No list is so long that a number in it has more.
_DIGITS: Final = 18


def name_of_repeated(key: str, number: int, nth: Callable[[str, int], object | None]) -> str:
    """Return the name of the ``number``-th of equal keys; ``nth`` finds the n-th with a key, None: there are fewer."""
    name = key if number == 1 else f"{key}#{number}"
    while number > 1 and nth(name, 1) is not None:
        number = 2
        while nth(name, number) is not None:
            number += 1
        name = f"{name}#{number}"
    return name


def meant_by_name(name: str, nth: Callable[[str, int], T | None]) -> T | None:
    """Return what `name_of_repeated` calls ``name``; None if there is no such thing."""
    found = nth(name, 1)
    while found is None:
        base, _, digits = name.rpartition("#")
        if not digits.isascii() or not digits.isdecimal() or digits[0] == "0" or digits == "1" or len(digits) > _DIGITS:
            return None
        number = int(digits)
        found = nth(base, number)
        if found is None and nth(base, number - 1) is None:
            return None
        name = base  # one more than there are keys ``base``: it is not one of them, but was to be called so
    return found
