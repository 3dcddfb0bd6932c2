"""Sorted rows of a listing: held and sorted while they are few and small, else streamed in file order."""

from __future__ import annotations

from sys import getsizeof

from pparse.errors import LimitError
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.budget import Charge, MemoryBudget
    from pparse.cli.output import Output
    from pparse.tensors.tensor import Tensor
    from pparse.tree.visit import Member

# Up to this number rows are held and sorted; more are streamed in file order.
SORT_UP_TO: Final = 20_000
# Rows may take a quarter of the budget; three quarters if the user asked for an order.
_PARTS: Final = 4
# Rows are charged in steps.
_STEP: Final = 64 << 10
# Memory of a member without its name and the data of its format.
_MEMBER: Final = 600

_NUMBERS: Final = lazy_pattern(r"([0-9]{1,18})")


def natural(name: str) -> list[str | int]:
    """Return a sort key that puts layer 2 before layer 10."""
    # Text and numbers alternate, so that numbers are only compared with numbers.
    parts: list[str | int] = list(_NUMBERS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def member_weight(member: Member) -> int:
    """Return about how many bytes of memory a member takes; its format may hold the raw name, too."""
    return _MEMBER + 2 * getsizeof(member.name)


def tensor_weight(tensor: Tensor, each: int) -> int:
    """Return about how many bytes of memory a tensor takes; ``each`` is the least for its format."""
    return each + 2 * getsizeof(tensor.name) + 160 * len(tensor.spans) + 32 * len(tensor.shape)


class Held:
    """Rows that are held in ``items``, charged to ``budget`` by their ``weight``, as many as its share has room for.

    At most `SORT_UP_TO` rows, unless the user ``asked`` for an order, which also allows more of the budget.
    """

    def __init__(self, budget: MemoryBudget, weight: Callable[[Any], int], *, asked: bool = False) -> None:
        self.items: list[Any] = []
        self._weight = weight
        self._asked = asked
        self._most = budget.limit // _PARTS * (_PARTS - 1 if asked else 1)
        self._taken = 0
        self._charge: Charge = budget.charge(0, "the rows that are held to be sorted")

    def fill(self, rows: Iterator[Any]) -> bool:
        """Take rows while there is room, and one more; return whether those were all."""
        for row in rows:
            self.items.append(row)
            self._taken += self._weight(row)
            if not self._has_room():
                return False
        return True

    def _has_room(self) -> bool:
        if len(self.items) > SORT_UP_TO and not self._asked:
            return False
        if self._taken <= self._charge.amount:
            return True
        if self._taken > self._most:
            return False
        try:
            self._charge.resize(self._taken + _STEP)
        except LimitError:
            return False
        return True

    def drain(self) -> Iterator[Any]:
        """Yield the rows, and release their memory."""
        self.items.reverse()
        while self.items:
            yield self.items.pop()
        self._charge.release()


def in_order(
    rows: Iterable[Any],
    how: str | None,
    held: Held,
    out: Output,
    *,
    name: Any,
    size: Any,
    offset: Any,
    rank: Callable[[Any], int] = lambda item: 0,
) -> Iterator[Any]:
    """Return ``rows`` sorted (``how`` None: by rank and name); if they cannot be held, in file order with a note."""
    stream = iter(rows)
    if how == "none":
        return stream
    key: dict[str | None, Callable[[Any], Any]] = {
        "size": lambda item: (-size(item), natural(name(item))),
        "offset": offset,
        "name": lambda item: natural(name(item)),
        None: lambda item: (rank(item), natural(name(item))),
    }
    return _sorted(stream, key[how], held, out, asked=how is not None)


def _sorted(stream: Iterator[Any], key: Callable[[Any], Any], held: Held, out: Output, *, asked: bool) -> Iterator[Any]:
    if held.fill(stream):
        held.items.sort(key=key)
    elif asked:
        out.error(
            f"note: more than {len(held.items):,} rows, too many to sort in the memory budget: they are in the "
            "order of the file; a larger --budget sorts more"
        )
    yield from held.drain()
    yield from stream
