"""Rows in order: sorted while they can be held, else in the order of the file; and the first of them."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof

from pparse.errors import LimitError
from pparse.findings import COMPLETE
from pparse.lazy import lazy_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.limits import Charge, MemoryBudget
    from pparse.tensors.tensor import Tensor

UNSORTED: Final = "none"
"""The order of the file."""
# Up to this number rows are held and sorted if nobody asked for an order; more are streamed in file order.
SORT_UP_TO: Final = 20_000
# Rows may take a quarter of the budget; three quarters if the user asked for an order.
_PARTS: Final = 4
_STEP: Final = 64 << 10
# Of many rows of which few are wanted, those are held, and so many others before they are dropped.
_SPARE: Final = 1_000
# Columns of which the largest number comes first.
_LARGEST_FIRST: Final = frozenset(("size", "max", "std", "nan", "zeros"))

_NUMBERS: Final = lazy_pattern(r"([0-9]{1,18})")


def natural(name: str) -> list[str | int]:
    """Return a sort key that puts layer 2 before layer 10."""
    # Text and numbers alternate, so that numbers are only compared with numbers.
    parts: list[str | int] = list(_NUMBERS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _status(tensor: Tensor) -> tuple[bool, str]:
    status, _ = tensor.as_listed()
    return status is COMPLETE, status.value  # what is not whole comes first


def _offset(tensor: Tensor) -> tuple[str, int]:
    return (tensor.spans[0].path, tensor.spans[0].offset) if tensor.spans else ("", 1 << 63)


# What rows that begin with a tensor are sorted by.
COLUMNS: Final[dict[str, Callable[[Any], Any]]] = {
    "name": lambda row: row[0].name,
    "size": lambda row: row[0].listed_nbytes,
    "dtype": lambda row: row[0].type_name,
    "shape": lambda row: row[0].shape if row[0].is_shape_known else None,
    "status": lambda row: _status(row[0]),
    "offset": lambda row: _offset(row[0]),
}


def tensor_weight(tensor: Tensor, each: int) -> int:
    """Return about how many bytes of memory a tensor takes; ``each`` is the least for its format."""
    return each + 2 * getsizeof(tensor.name) + 160 * tensor.held_spans + 32 * len(tensor.shape)


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

    def fill(self, rows: Iterator[Any], first: Callable[[list[Any]], None] | None = None, count: int = 0) -> bool:
        """Take rows while there is room, and one more; return whether those were all.

        ``first`` leaves the first ``count`` in a list: then only they are needed.
        """
        for row in rows:
            self.items.append(row)
            self._taken += self._weight(row)
            if first is not None and len(self.items) >= 2 * count + _SPARE:
                first(self.items)
                self._taken = sum(map(self._weight, self.items))
            if (len(self.items) > SORT_UP_TO and not self._asked) or self._taken > self._most:
                return False
            if self._taken > self._charge.amount:
                try:
                    self._charge.resize(self._taken + _STEP)
                except LimitError:
                    return False
        return True

    def flush(self) -> Iterator[Any]:
        """Yield the rows, and release their memory."""
        self.items.reverse()
        try:
            while self.items:
                yield self.items.pop()
        finally:
            self._charge.release()


def in_order(
    rows: Iterable[Any],
    how: str | None,
    held: Held,
    out: Output,
    *,
    first: int | None = None,
    reverse: bool = False,
    **by: Callable[[Any], Any],
) -> Iterator[Any]:
    """Yield ``rows`` sorted (``how`` None: by rank and name); if they cannot be held, in file order with a note.

    ``by`` gives the name of a row, and what else it can be sorted by: a number, a text, or None, which comes last.
    With ``first``, only so many; no further rows are asked for if none could come before these.
    """
    stream = iter(rows)
    if how == UNSORTED:
        yield from islice(stream, first)
        return
    key = _key(how, by)

    def sort(items: list[Any]) -> None:
        items.sort(key=key, reverse=reverse)
        del items[len(items) if first is None else first :]

    if held.fill(stream, sort if first is not None else None, first or 0):
        sort(held.items)
        yield from held.flush()
        return
    if how is not None:
        out.error(
            f"note: more than {len(held.items):,} rows, too many to sort in the memory budget: they are in the "
            "order of the file; a larger --budget sorts more"
        )
    yield from islice(_chained(held, stream), first)


def tell_rest(first: int | None, count: int, out: Output, *, is_done: bool) -> None:
    """Print that not all rows were shown, if so: ``count`` are known, which are all if the file ``is_done``."""
    if not is_done:
        out.say(f"ended after the first {count:,}: what else there is was not looked at")
    elif first is not None and count > first:
        out.say(f"the first {first:,} of {count:,} are shown")


def _chained(held: Held, stream: Iterator[Any]) -> Iterator[Any]:
    yield from held.flush()
    yield from stream


def _key(how: str | None, by: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    name = by["name"]
    of = None if how == "name" else by.get(how or "rank")
    sign = -1 if how in _LARGEST_FIRST else 1

    def key(row: Any) -> Any:
        value = None if of is None else of(row)
        return value is None, value if sign > 0 or value is None else -value, natural(name(row))

    return key
