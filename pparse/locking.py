"""One document, many threads: the lock of a session, and the doors at which it is taken.

A session has one re-entrant lock. It guards what parsers and viewers know of a document: indexes, groups of entries,
tables of keys, the children of nodes and extractions, what a viewer keeps. It is taken where somebody comes in from
outside, and held until the answer is there; what is called from inside finds it taken. Three rules keep that safe:

- *Order.* The session's lock is the outermost one, those of `Data` lie inside it (that of a stream outside of that of
  its source), those of the budget, the findings and the counters innermost. Who holds an inner lock takes no outer one:
  a `Data` never calls back into the tree, and what the budget evicts is dropped without a lock.
- *Streams.* A generator never holds the lock while it is suspended. `steps` takes it for a group of items at a time.
- *Bytes.* The bytes of tensors, and whatever else is read through a `Data`, are read without it.
"""

from __future__ import annotations

from functools import wraps
from itertools import islice
from types import FunctionType, GeneratorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterator
    from threading import RLock
    from typing import Any, Final, TypeVar

    T = TypeVar("T")

# Items that a stream is ahead of its reader at most, who pays for one taking of the lock with them.
GROUP: Final = 64
# Streams of which each item may take long, or is to be shown at once.
_ONE_BY_ONE: Final = frozenset(("check",))
# What of the methods with underscores comes from outside.
_OPERATORS: Final = frozenset(("__contains__", "__getitem__", "__iter__", "__len__", "__repr__"))


def steps(lock: RLock, source: Generator[T], most: int = GROUP) -> Iterator[T]:
    """Yield what ``source`` yields, which runs only while ``lock`` is held: for 1 item, 2, 4 … at most ``most``."""
    size = 1
    while True:
        group: list[T] = []
        try:
            with lock:
                group.extend(islice(source, size))  # keeps what came before an error
        except BaseException:
            yield from group
            raise
        yield from group
        if len(group) < size:
            return
        size = min(2 * size, most)


def guarded(method: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return ``method`` as a door: called from outside, it runs under the ``lock`` of its object; see the module.

    A generator that it returns runs in `steps`.
    """
    most = 1 if (name or method.__name__) in _ONE_BY_ONE else GROUP

    @wraps(method)
    def door(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock = self.lock
        if lock._is_owned():  # from inside
            return method(self, *args, **kwargs)
        with lock:
            found = method(self, *args, **kwargs)
        return steps(lock, found, most) if type(found) is GeneratorType else found

    door.__guarded__ = True  # type: ignore[attr-defined]
    return door


def guard(owner: type, names: Container[str] | None = None) -> None:
    """Make doors of the methods and properties of ``owner`` that have one of these names (None: that are public)."""
    for name, member in list(vars(owner).items()):
        if not (_is_public(name) if names is None else name in names):
            continue
        if isinstance(member, FunctionType):
            if not hasattr(member, "__guarded__"):
                setattr(owner, name, guarded(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(owner, name, property(guarded(member.fget), member.fset, member.fdel, member.__doc__))


def _is_public(name: str) -> bool:
    # Closing does not wait for what others are at; whoever waits for the lock finds the document closed.
    return (not name.startswith("_") and name not in ("close", "lock")) or name in _OPERATORS


class Guarded:
    """Base of what comes from viewers: every public method and property of a subclass is a door."""

    lock: RLock

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        guard(cls)
