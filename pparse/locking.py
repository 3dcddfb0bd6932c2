"""The lock of a session, which lets many threads share a document, and the doors at which it is taken.

A session has one re-entrant lock. It guards what parsers and viewers know about a document: indexes, groups of
entries, tables of keys, the children of nodes and extractions, the caches of viewers. Public methods take it and hold
it until they return; calls from inside find it taken. Three rules keep that safe:

- *Order.* The session's lock is the outermost. Inside it are the locks of `Data`, that of a stream outside that of its
  source; innermost are those of the budget, the findings and the counters. Code that holds an inner lock takes no outer
  one: a `Data` never calls back into the tree, and what the budget evicts is dropped without a lock.
- *Streams.* A suspended generator never holds the lock. `steps` takes it for a group of items at a time.
- *Bytes.* Bytes of tensors, and anything else read through a `Data`, are read without it.
"""

from __future__ import annotations

from _thread import RLock as RLock
from _thread import allocate_lock
from itertools import islice
from types import FunctionType, GeneratorType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterator
    from typing import Any, ClassVar, Final, TypeVar

    T = TypeVar("T")

Lock: Final = allocate_lock
# The most items that a generator runs ahead, to take the lock less often.
GROUP: Final = 64
# Generators whose items may each take long, or should be shown at once.
_ONE_BY_ONE: Final = frozenset(("check",))
# Methods with underscores that are called from outside.
_OPERATORS: Final = frozenset(("__contains__", "__getitem__", "__iter__", "__len__", "__repr__"))


def steps(lock: RLock, source: Generator[T], most: int = GROUP) -> Iterator[T]:
    """Yield the items of ``source``, advanced only under ``lock``: by 1 item, then 2, 4 … up to ``most`` at a time."""
    size = 1
    while True:
        group: list[T] = []
        try:
            with lock:
                group.extend(islice(source, size))  # keeps the items before an error
        except Exception:  # not an interrupt: whoever takes the items may wait, for a reader, say
            yield from group
            raise
        yield from group
        if len(group) < size:
            return
        size = min(2 * size, most)


def guarded(method: Callable[..., Any], most: int = GROUP) -> Callable[..., Any]:
    """Return ``method`` as a door: called from outside, it runs under the ``lock`` of its object.

    If it returns a generator, that runs in `steps`.
    """
    most = 1 if method.__name__ in _ONE_BY_ONE else most

    def door(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock = self.lock
        if lock._is_owned():  # from inside
            return method(self, *args, **kwargs)
        with lock:
            found = method(self, *args, **kwargs)
        return steps(lock, found, most) if type(found) is GeneratorType else found

    # As `functools.wraps` does, in half the time: there are a hundred at the start of a command.
    door.__module__, door.__name__, door.__qualname__ = method.__module__, method.__name__, method.__qualname__
    door.__doc__, door.__annotations__ = method.__doc__, method.__annotations__
    door.__dict__.update(method.__dict__, __wrapped__=method, __guarded__=True)
    return door


def guard(owner: type, names: Container[str] | None = None, most: int = GROUP) -> None:
    """Make doors of the methods and properties of ``owner`` with these names (None: all public ones); ``most``: how
    many items their generators run ahead."""
    for name, member in list(vars(owner).items()):
        if not (_is_public(name) if names is None else name in names):
            continue
        if isinstance(member, FunctionType):
            if not hasattr(member, "__guarded__"):
                setattr(owner, name, guarded(member, most))
        elif isinstance(member, property) and member.fget is not None:
            setattr(owner, name, property(guarded(member.fget), member.fset, member.fdel, member.__doc__))


def _is_public(name: str) -> bool:
    # close() does not wait for work in other threads; those that wait for the lock find the document closed.
    return (not name.startswith("_") and name not in ("close", "lock")) or name in _OPERATORS


class Guarded:
    """Base of viewers and of what they return: every public method and property of a subclass is a door."""

    runs_ahead: ClassVar[int] = GROUP
    """The most items that generators of the class itself run ahead: fewer where each takes much memory."""
    lock: RLock
    """Lock of the session."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        guard(cls, most=cls.runs_ahead)


class Doored:
    """Base of classes with some doors: the methods that the ``doors`` of any of its bases name, in subclasses too."""

    doors: ClassVar[frozenset[str]] = frozenset()
    """Names of methods that are called from outside, and so run under the session's lock."""
    lock: RLock
    """Lock of the session."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        guard(cls, {name for base in cls.__mro__ if issubclass(base, Doored) for name in base.doors})
