"""Several requests at once, for far data: each costs mostly waiting."""

from __future__ import annotations

from threading import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final, TypeVar

    Item = TypeVar("Item")
    Found = TypeVar("Found")

THREADS: Final = 16


def in_parallel(
    work: Callable[[Item], Found], items: Sequence[Item], most: int = THREADS
) -> list[tuple[Found | None, Exception | None]]:
    """Call ``work`` with each of ``items``, up to ``most`` at a time; return what each call returned, and its error.

    The caller may hold locks, and waits for all: ``work`` must take none of those.
    """
    found: list[tuple[Found | None, Exception | None]] = [(None, None)] * len(items)
    waiting = iter(range(len(items)))  # one step of it is atomic
    stopped = False

    def run() -> None:
        for number in waiting:
            if stopped:
                return
            try:
                found[number] = work(items[number]), None
            except Exception as error:  # noqa: BLE001 -- it belongs to this item: the caller decides
                found[number] = None, error

    threads = [Thread(target=run, name=f"pparse-{number}", daemon=True) for number in range(min(most, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped = True  # interrupted: nothing more is begun
    return found
