"""Every limit, by name, how sizes are parsed and printed, and the one place that accounts for memory, and refuses it.

Limits make sure that no file can make a reader hang or exhaust memory. Real files do not reach the defaults; one that
does gets a `LimitError` that names ``--limit NAME=VALUE``.

Counted is what pparse itself keeps or buffers: scan blocks (times the kernel's factor), indexes, retained nodes,
checkpoints, decoder windows. Not counted is what the caller asked for: an array, a loaded scalar handed out.
Code that keeps memory holds a `Charge`; once the charge is released or collected, its bytes are free again. A charge
with ``evict`` may be asked to give its memory back when others need room, the least recently used one first.
"""

from __future__ import annotations

import _weakref as weakref  # `weakref` itself takes longer to import
from functools import lru_cache, partial

from pparse.errors import LimitError
from pparse.lazy import lazy_pattern
from pparse.locking import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, Final, TypeVar

    T = TypeVar("T")

KIB: Final = 1 << 10
MIB: Final = 1 << 20
# Up to this size, compressed and unpacked, a stream or member is read for its checksum before its values are returned.
LITTLE: Final = 4 * MIB
LITTLE_UNPACKED: Final = 32 * MIB
GIB: Final = 1 << 30

_UNITS: Final[dict[str, int]] = {"": 1, "b": 1} | {
    letter + ending: base**power
    for power, letter in enumerate("kmgt", 1)
    for ending, base in (("", KIB), ("ib", KIB), ("b", 1000))
}
_SIZE: Final = lazy_pattern(r"\s*(\d{1,18}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*")


@lru_cache(typed=True)
def parse_size(text: int | str) -> int:
    """Return the number of bytes in ``text``: ``64MiB`` and ``64M`` count in powers of 1024, ``64MB`` in 1000.

    Raises ValueError for anything else, a negative number included.
    """
    if isinstance(text, int):
        if text < 0:
            raise ValueError(f"a size cannot be negative: {text}")
        return text
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"not a size: {text!r} (write 64MiB, 64MB, 64M or plain bytes)")
    whole, _, fraction = match[1].partition(".")
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * unit // scale


def format_size(count: int) -> str:
    """Return ``count`` bytes as text in powers of 1024: ``0 B``, ``999 B``, ``1.5 KiB``, ``18.6 GiB``."""
    if count < KIB:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1024 or unit == "PiB":
            break
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def exact_size(count: int) -> str:
    """Return ``count`` bytes as text, and if that is long, also as `format_size` does: ``2,048 bytes (2.0 KiB)``."""
    return count_words(count, "byte") + (f" ({format_size(count)})" if count >= KIB else "")


# Layers around the data: each read passes through all of them, in nested calls.
MAX_NESTING: Final = 64


# Levels of nodes: the most steps of a path, see `pparse.paths`.
MAX_DEPTH: Final = 10_000
_MOST: Final = {"depth": MAX_DEPTH, "nesting": MAX_NESTING}
# Lifting a limit multiplies it by at least this, so that it is not raised again and again.
_STEPS: Final = {"depth": 4}


def count_words(count: int, noun: str) -> str:
    """Return ``1 tensor``, ``1,200 tensors``, ``2 entries``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def are(count: int) -> str:
    """Return the verb for ``count`` things: ``is`` or ``are``."""
    return "is" if count == 1 else "are"


class Limits:
    """The limits of one document; immutable. ``Limits(depth=5000)`` changes one."""

    depth: int = 1_000
    """Levels of nodes, at most MAX_DEPTH (scanning bytes has no such limit)."""
    entries: int = 100_000_000
    """Children of one node."""
    name_bytes: int = 1 * MIB
    """Bytes of one key or member name."""
    header_bytes: int = 1 * GIB
    """Bytes of one header that a parser has to index."""
    leaf_bytes: int = 256 * KIB
    """Bytes of the largest piece of text handed whole to a decoder while indexing."""
    leaf_depth: int = 200
    """Nesting of text handed whole to a recursive decoder."""
    number_bytes: int = 4_300
    """Digits of one number (Python's own default for int(str))."""
    scalar_bytes: int = 1 * GIB
    """Bytes of one scalar value that is loaded."""
    tensor_rank: int = 64
    """Dimensions of a tensor (numpy's own maximum)."""
    findings: int = 1_000
    """Findings kept per result; others are only counted."""
    open_files: int = 64
    """Descriptors open at a time."""
    scratch_bytes: int = 64 * GIB
    """Bytes of all scratch files of one document."""
    inflated_bytes: int = 1 << 44
    """Bytes that one compressed stream may yield."""
    nesting: int = 32
    """Nested archives and compressed streams, at most MAX_NESTING."""
    containers: int = 10_000
    """Containers that one walk enters."""
    extracted_entries: int = 1_000_000
    """Files and folders that one extraction makes."""
    expansion_ratio: int = 1_100
    """Bytes written per compressed byte read (deflate reaches 1,032)."""
    hole_bytes: int = 64 * GIB
    """Bytes of holes in all files that one extraction writes, as they are hashed too."""

    DEFAULTS: ClassVar[dict[str, int]]
    """The default of each, by name."""

    def __init__(self, **changes: int) -> None:
        unknown = [name for name in changes if name not in self.DEFAULTS]
        if unknown:
            raise ValueError(f"no such limit: {', '.join(unknown)} (there are: {', '.join(self.DEFAULTS)})")
        for name, value in changes.items():
            if value < 1:
                raise ValueError(f"limit {name} must be at least 1")
        self.__dict__.update(changes)
        if self.depth > MAX_DEPTH:
            raise ValueError(f"limit depth must be at most {MAX_DEPTH}: paths cannot have more steps")
        if self.nesting > MAX_NESTING:
            raise ValueError(f"limit nesting must be at most {MAX_NESTING}: each layer is read through all outer ones")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Limits are immutable; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Limits are immutable; use replace()")

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(Limits, **(self.DEFAULTS | self.__dict__)), ())

    def replace(self, **changes: int) -> Limits:
        """Return a copy with some limits changed."""
        return Limits(**(self.__dict__ | changes))

    def option(self, name: str, wanted: int = 0) -> str:
        """Return the option that lifts a limit to at least ``wanted``; empty if it cannot be lifted that far."""
        limit: int = getattr(self, name)
        lifted = max(wanted, _STEPS.get(name, 2) * limit)
        most = _MOST.get(name, lifted)
        return f"--limit {name}={min(lifted, most)}" if limit < most and wanted <= most else ""

    def check(self, name: str, value: int, what: str, *, offset: int | None = None, path: str | None = None) -> None:
        """Raise `LimitError` if ``value`` exceeds the limit ``name``; ``what`` is the subject of the message."""
        limit = getattr(self, name)
        if value > limit:
            raise LimitError(
                f"{what} is above the limit {name}={limit}",
                option=self.option(name, value),
                wanted=value,
                got=limit,
                offset=offset,
                path=path,
            )


Limits.DEFAULTS = {name: value for name, value in vars(Limits).items() if isinstance(value, int) and name[0] != "_"}


DEFAULT_BUDGET = 64 * MIB
# So many bytes may come of any few: those of bz2 or zstd are a megabyte of zeros, one value a tensor of any size.
FREE_EXPANSION = 64 * MIB


class Charge:
    """Bytes held by some part of a document; freed by `release`, or when the charge is collected."""

    __slots__ = ("__weakref__", "_budget", "_evict", "amount", "what")

    def __init__(self, budget: MemoryBudget, what: str, evict: Callable[[], None] | None) -> None:
        self.amount = 0
        """Bytes held now."""
        self._budget = budget
        self._evict = evict
        self.what = what
        """What holds them, in words for the error message."""

    def resize(self, amount: int) -> None:
        """Hold ``amount`` bytes from now on. Raises `LimitError`, and keeps the old amount, if there is no room."""
        budget = self._budget
        with budget._lock:
            delta = amount - self.amount  # under the lock: it may be evicted at any time
            if delta > 0 and budget.used + delta > budget.limit:
                budget._make_room(delta, self)
            budget.used += delta
            self.amount += delta
            if budget.used > budget.peak:
                budget.peak = budget.used
            if self._evict is not None:
                self.touch()

    def touch(self) -> None:
        """Record a use just now, so that others are evicted first."""
        if self._evict is not None:
            with self._budget._lock:
                self._budget._evictable.pop(id(self), None)
                self._budget._evictable[id(self)] = weakref.ref(self)

    def release(self) -> None:
        """Give everything back; releasing twice is harmless."""
        with self._budget._lock:
            self._budget.used -= self.amount
            self.amount = 0
            self._budget._evictable.pop(id(self), None)

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self.amount or getattr(self, "_evict", None) is not None:  # an interrupt may come while it is made
            self.release()


def evictor(owner: T, evict: Callable[[T], object]) -> Callable[[], None]:
    """Return what a charge may call to have the memory of ``owner`` back; it does not keep that alive."""
    ref = weakref.ref(owner)

    def call() -> None:
        found = ref()
        if found is not None:
            evict(found)

    return call


class MemoryBudget:
    """A number of bytes shared by everything that belongs to one document. Thread-safe."""

    def __init__(self, limit: int | str = DEFAULT_BUDGET) -> None:
        self.limit = parse_size(limit)
        """The most bytes that may be held."""
        if self.limit < MIB:
            raise ValueError(f"a budget must be 1 MiB at least, not {limit}")
        self.used = 0
        """Bytes held now."""
        self.peak = 0
        """The most bytes ever held."""
        self._lock = RLock()
        # In order of last use.
        self._evictable: dict[int, weakref.ref[Charge]] = {}

    def charge(self, amount: int, what: str, evict: Callable[[], None] | None = None) -> Charge:
        """Return a `Charge` of ``amount`` bytes for ``what`` (words for the error message).

        When room is needed, ``evict``, if given, is called; it must drop the memory and release the charge. Raises
        `LimitError` naming ``--budget`` if there is still no room.
        """
        charge = Charge(self, what, evict)
        if amount:  # what holds nothing cannot be evicted
            charge.resize(amount)
        return charge

    def fits(self, amount: int) -> bool:
        """Return whether ``amount`` more bytes could be held after evicting everything that can go."""
        with self._lock:
            # A copy: meanwhile a charge may be collected and leave the table.
            held = sum(charge.amount for ref in list(self._evictable.values()) if (charge := ref()) is not None)
            return self.used - held + amount <= self.limit

    def _make_room(self, delta: int, for_whom: Charge) -> None:
        for key in list(self._evictable):
            if self.used + delta <= self.limit:
                return
            ref = self._evictable.get(key)
            victim = ref() if ref is not None else None
            if victim is None:
                self._evictable.pop(key, None)
            elif victim is not for_whom and victim.amount and victim._evict is not None:
                self._evictable.pop(key, None)
                victim._evict()
                victim.release()
        if self.used + delta > self.limit:
            raise LimitError(
                f"{for_whom.what} needs {format_size(for_whom.amount + delta)}, more than is left of the memory "
                f"budget of {format_size(self.limit)}",
                option=f"--budget {-(-(self.used + delta) // MIB)}MiB",
                wanted=for_whom.amount + delta,
                got=self.limit - self.used,
            )
