"""Tables of rows that are one test: ``rows`` instead of ``pytest.mark.parametrize`` where there are dozens of them.

Collecting an item costs a millisecond in every worker, running it some more; a row of a table costs what it tests. All
rows are gone through, whatever becomes of the first (but for ``-x``), and those that fail are named.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# How many failing rows are named.
NAMED = 12

# Whether the first row that fails ends the test; set by conftest from ``-x``.
stop_at_first = False


def rows(names: str | Sequence[str], values: Iterable[Any], ids: Any = None) -> Callable[[Callable], Callable]:
    """Call the test for every row of ``values``; takes what ``pytest.mark.parametrize`` takes, and stacks as it does.

    Fixtures are made once for all rows: a test that changes what it is given (``monkeypatch``, a folder) is none for
    this.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    ids = list(ids) if ids is not None and not callable(ids) else ids
    table = [labelled(wanted, number, row, ids) for number, row in enumerate(values)]
    if not table:
        raise ValueError(f"no rows of {', '.join(wanted)}: the test would pass without a look")

    def decorate(test: Callable) -> Callable:
        signature = inspect.signature(test)
        missing = set(wanted) - set(signature.parameters)
        if missing:
            raise TypeError(f"{test.__name__} has no argument {', '.join(sorted(missing))}")

        @functools.wraps(test)
        def every_row(*args: Any, **more: Any) -> None:
            failed: list[str] = []
            skipped: list[BaseException] = []
            first: Exception | None = None
            for label, row in table:
                try:
                    test(*args, **more, **row)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    failed.append(label)
                    first = first or error
                    if stop_at_first:
                        break
            if first is not None:
                named = failed[:NAMED] + ["…"] * (len(failed) > NAMED)
                first.add_note(
                    f"{len(failed)} of {len(table)} rows fail, the first of them like this: {', '.join(named)}"
                )
                raise first
            if len(skipped) == len(table):
                raise skipped[0]

        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        every_row.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return every_row

    return decorate


def labelled(names: list[str], number: int, row: Any, ids: Any) -> tuple[str, dict[str, Any]]:
    """Return what a row is called, and its arguments."""
    label = None
    if isinstance(row, type(pytest.param())):
        if row.marks:
            raise ValueError("a row cannot have marks of its own")
        label, row = row.id, row.values if len(names) > 1 else row.values[0]
    values = tuple(row) if len(names) > 1 else (row,)
    if len(values) != len(names):
        raise ValueError(f"row {number} has {len(values)} values for {', '.join(names)}")
    if label is None and ids is not None:
        label = "-".join(str(ids(value)) for value in values) if callable(ids) else str(ids[number])
    if label is None:
        label = "(" + ", ".join(shortened(value) for value in values) + ")"
    return f"{number} {label}", dict(zip(names, values, strict=True))


def shortened(value: Any) -> str:
    """Return the text of a value, on a short line."""
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
