"""Arrays as joblib keeps them: between the opcodes of a pickle (joblib/numpy_pickle.py, joblib 0.10 to 1.6).

==============  ======================================================================================================
opcodes         make a ``NumpyArrayWrapper`` with its state: ``subclass``, ``shape``, ``order`` (``C`` or ``F``),
                ``dtype``, ``allow_mmap``, ``numpy_array_alignment_bytes`` (since joblib 1.2; None: no padding)
BUILD           gives it the state
padding         a byte with a length, and so many bytes 0xff: what follows is aligned in the file
the array       its bytes, in C or Fortran order; or, if it has objects, a pickle with a STOP of its own
opcodes         the pickle goes on; its frames (protocol 4) end at the BUILD
==============  ======================================================================================================

No opcode tells how long the bytes are: type and shape do. So the first reading of a pickle stops behind BUILD
(`ArrayFinder`), and only where such a class was named before; later readings know the places: `Arrays`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from math import prod

from pparse.data.trailing_bytes import LAST_BEFORE_BREAK
from pparse.errors import DataError, LimitError, UnsupportedError
from pparse.findings import Status
from pparse.parsers.pickle.values import Call, Decoder, Global, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from pparse.data.base import Data
    from pparse.limits import Charge
    from pparse.parsers.pickle.program import Program
    from pparse.tree.host import HostSession

WATCHED: Final = b"NumpyArrayWrapper"
_MODULE: Final = "joblib.numpy_pickle"  # also as a part of another package: scikit-learn had its own until 0.22
_RECONSTRUCTORS: Final = frozenset(("copyreg._reconstructor", "copy_reg._reconstructor"))
_BESIDE: Final = frozenset(("NDArrayWrapper", "ZNDArrayWrapper"))
_ALIGNMENT: Final = "numpy_array_alignment_bytes"
# Bytes of opcodes that make a wrapper, without its state: joblib's are up to 150.
_LONGEST_MAKER: Final = 4096
_LONGEST_NAME: Final = 1024
# What values may have that a wrapper names.
_MOST_NAMED: Final = 1 << 20
_LARGEST: Final = 1 << 62
_MOST_DIMENSIONS: Final = 64
_WIDEST: Final = 1 << 31
_WINDOW: Final = 1024
_ORDERS: Final = ("<", ">", "=", "|")
_STATUS: Final = {LimitError: Status.UNSUPPORTED, UnsupportedError: Status.UNSUPPORTED}


def wrapper_name(call: Call) -> str:
    """Return the name of the class of joblib that ``call`` makes, without its module; "" if it makes none."""
    made: Any = call.callable
    if call.name in _RECONSTRUCTORS and isinstance(call.args, tuple) and call.args:
        made = call.args[0]
    if not isinstance(made, Global):
        return ""
    module = made.module.removesuffix("_compat")
    return made.name if module == _MODULE or module.endswith(f".{_MODULE}") else ""


def file_beside(call: Call) -> str | None:
    """Return the name of the file that holds an array of joblib before 0.10; None if ``call`` is none of those."""
    state = call.state
    name = state.get("filename") if wrapper_name(call) in _BESIDE and isinstance(state, dict) else None
    return name if isinstance(name, str) else None


class ArrayFinder:
    """Finds the arrays in a pickle while it is read for the first time."""

    def __init__(self, program: Program, origin: int) -> None:
        """``origin``: where the file begins, in which bytes are aligned."""
        self._program, self._origin = program, origin
        self._decoder = Decoder(program, _WINDOW)
        self.trouble = ""
        """Why the end of an array is not known, or what is wrong with its pickle."""
        self.status = Status.DAMAGED
        """What the pickle is for that reason."""

    def named(self, pos: int) -> int:
        """Stop behind each BUILD from here on if the global that ends at ``pos`` is the class of an array."""
        self._program.here = pos
        start = self._program.state.slots[-1] >> 8
        if not self._program.state.asks and pos - start <= _LONGEST_NAME:
            self._program.catch_up()
            try:
                made = self._decoder.decode(start, pos, _MOST_NAMED)
            except DataError:
                return pos
            if isinstance(made, Global) and wrapper_name(Call(made, ())) == WATCHED.decode():
                self._program.state.asks = True
        return pos

    def behind(self, pos: int) -> int | None:
        """Return where opcodes go on behind the BUILD that ends at ``pos``; None: that is not known."""
        self._program.here = pos
        made, given = self._program.state.built
        start, middle = made >> 8, given >> 8
        self._program.catch_up()
        try:
            is_wrapper = self._is_wrapper(start, middle)
        except DataError as error:
            return self._broken(start, error.reason, Status.UNSUPPORTED) if self._program.is_tired else pos
        if not is_wrapper:
            return pos
        try:
            state = self._decoder.decode(middle, pos - 1, _MOST_NAMED)
        except DataError as error:
            return self._broken(start, error.reason, _STATUS.get(type(error), Status.DAMAGED))
        return self._find(start, pos, state) if isinstance(state, dict) else self._broken(start, "its state is no dict")

    def _is_wrapper(self, start: int, end: int) -> bool:
        """Tell whether the object that the opcodes ``[start, end)`` make is one for an array."""
        made = self._decoder.global_at(start, end)
        if str(made) in _RECONSTRUCTORS and end - start <= _LONGEST_MAKER:
            made = self._decoder.decode(start, end, _MOST_NAMED)
        elif made is not None:
            made = Call(made, ())
        return isinstance(made, Call) and wrapper_name(made) == WATCHED.decode()

    def _broken(self, start: int, why: str, status: Status = Status.DAMAGED) -> int | None:
        self.trouble = f"where the array at offset {start} ends is not known: {why}"
        self.status = status
        return None

    def _find(self, start: int, pos: int, state: dict[Any, Any]) -> int | None:
        shape, known = state.get("shape"), element_size(state.get("dtype"))
        if not isinstance(shape, tuple) or not all(type(length) is int and 0 <= length < _LARGEST for length in shape):
            return self._broken(start, "its shape is not one")
        if len(shape) > _MOST_DIMENSIONS:
            return self._broken(start, f"it has {len(shape)} dimensions")
        if known is None:
            return self._broken(start, "the type of its elements is not known", Status.UNSUPPORTED)
        if state.get("order") not in ("C", "F"):
            return self._broken(start, "its order is neither C nor F")
        size, has_objects = known
        if has_objects:
            return self._find_pickle(start, pos)
        size *= prod(shape)
        if size >= _LARGEST - pos:
            return self._broken(start, "it has more bytes than a file can have")
        return self._place(start, pos, size, state.get(_ALIGNMENT))

    def _place(self, start: int, pos: int, size: int, alignment: Any) -> int:
        """Note an array of ``size`` bytes behind the BUILD that ends at ``pos``."""
        arrays = self._program.arrays
        if alignment is None:
            arrays.add(start, pos, pos, pos + size, doubtful=False)
            return pos + size
        doubtful = type(alignment) is not int or not 0 < alignment <= 255
        alignment = 16 if doubtful else alignment
        expected = alignment - (pos + 1 - self._origin) % alignment
        head = self._program.data.known(pos, min(1 + 255, self._program.find_end - pos))
        padding = head[0] if head else expected
        begin = pos + 1 + padding
        if head and not (0 < padding <= alignment and head[1 : 1 + padding].strip(b"\xff") == b""):
            doubtful = True
        arrays.add(start, pos, begin, begin + size, doubtful=doubtful)
        arrays.note_alignment((begin - self._origin) % alignment)
        return begin + size

    def _find_pickle(self, start: int, pos: int) -> int | None:
        """Note an array of objects: behind BUILD stands another pickle, whose memo is its own."""
        program = self._program
        inner = program.inner(pos)
        cut = bool(inner.trouble) and inner.status is Status.TRUNCATED
        end = program.find_end + 1 if cut else inner.end  # beyond the data: that ends the reading
        program.arrays.add(start, pos, pos, end, pickled=True, doubtful=False)
        if inner.trouble and not cut:
            return self._broken(start, f"in its pickle, {inner.trouble}", inner.status)
        return end


# Bytes of the elements of types whose word does not hold a number that can be trusted alone.
_SIZES: Final = frozenset((1, 2, 4, 8, 12, 16, 24, 32))
_HAS_OBJECTS: Final = 1  # a flag of types (numpy/ndarraytypes.h, NPY_ITEM_REFCOUNT)


def order_of(state: Any) -> str | None:
    """Return the byte order in the state of a type; None: it is none."""
    order = as_text(state[1]) if isinstance(state, tuple) and len(state) > 4 else "="
    return order if isinstance(order, str) and order in _ORDERS else None


def element_size(dtype: Any) -> tuple[int, bool] | None:
    """Return how many bytes an element has, and whether it has objects; None: that is not known.

    The state of a type is ``(version, order, subarray, names, fields, size, alignment, flags …)``; types that always
    have one size say -1 for it (numpy/core/src/multiarray/descriptor.c, ``arraydescr_reduce``).
    """
    if not isinstance(dtype, Call) or dtype.name != "numpy.dtype" or not isinstance(dtype.args, tuple):
        return None
    word = as_text(dtype.args[0]) if dtype.args else None
    state = dtype.state
    if order_of(state) is None:
        return None
    if isinstance(state, tuple) and (len(state) < 8 or type(state[5]) is not int or type(state[7]) is not int):
        return None
    size = state[5] if isinstance(state, tuple) else -1
    if isinstance(word, Global):
        return (size, False) if 0 < size <= _WIDEST and not state[7] & _HAS_OBJECTS else None
    if not isinstance(word, str):
        return None
    word = word.lstrip("<>=|")
    if word[:1] == "O" or (size > 0 and state[7] & _HAS_OBJECTS):
        return 8, True
    digits = word[1:]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return None
    told = int(digits) * (4 if word[0] == "U" else 1)
    if word[0] in "SUV":
        return (told, False) if 0 < told <= _WIDEST and size in (-1, told) else None
    return (told, False) if word[0] in "biufcmM" and told in _SIZES and size == -1 else None


# -- Where arrays stand between the opcodes of a pickle, and which opcodes belong to them ------------------------------

# What is known of an array, as bits: it is a pickle; its padding is wrong; it is not aligned from the file's begin on.
_PICKLED, _DOUBTFUL, _SHIFTED = 1, 2, 4
# Bytes that the place of an array takes, and its object in a set; for so many at once.
_PLACE: Final = 128
_STEP: Final = 1024


class RawArray:
    """The place of an array between opcodes."""

    __slots__ = ("begin", "data", "doubt", "end", "is_pickle")

    def __init__(self, data: Data, begin: int, end: int, doubt: tuple[str, str] | None, *, is_pickle: bool) -> None:
        self.data = data
        """What holds the bytes."""
        self.begin = begin
        """Where they begin."""
        self.end = end
        """Where they end, or would."""
        self.doubt = doubt
        """Code and words why the place may be wrong; None: nothing suggests that."""
        self.is_pickle = is_pickle
        """Whether it has objects: a pickle stands there."""


class Arrays:
    """The places of the arrays in one pickle."""

    def __init__(self, session: HostSession, data: Data, find_end: int) -> None:
        self._session, self._data = session, data
        self._charge: Charge | None = None
        self._known_end = find_end
        self._owners = array("q")
        self._behind = array("q")
        self._begins = array("q")
        self._ends = array("q")
        self._facts = bytearray()
        self._totals = array("q", [0])  # of the bytes of arrays, before each
        self._owned: frozenset[int] | None = None
        self._aligned: set[int] = set()  # the remainders that places leave, two at most
        self._aligned_count = 0
        self._is_last_sure = True  # opcodes that can be read follow the last one, to an end with nothing behind it

    def __len__(self) -> int:
        return len(self._behind)

    def add(self, owner: int, behind: int, begin: int, end: int, *, pickled: bool = False, doubtful: bool) -> None:
        """Note an array: of the object that begins at ``owner``, and whose BUILD ends at ``behind``."""
        self._session.limits.check("entries", len(self) + 1, "the number of arrays", offset=behind)
        if self._charge is None:
            self._charge = self._session.budget.charge(_PLACE * _STEP, "the places of arrays")
        elif not len(self) % _STEP:
            self._charge.resize(_PLACE * (len(self) + _STEP))
        self._owners.append(owner)
        self._behind.append(behind)
        self._begins.append(begin)
        self._ends.append(end)
        self._facts.append(_PICKLED * pickled | _DOUBTFUL * doubtful)
        self._totals.append(self._totals[-1] + (0 if pickled else end - behind))

    def doubt_last(self) -> None:
        """Note that the last one may not end where it seems to: what follows it cannot be read, or is too much."""
        self._is_last_sure = False

    def note_alignment(self, remainder: int) -> None:
        """Note what remains when the place of the array added last is divided by the alignment."""
        if remainder:
            self._facts[-1] |= _SHIFTED
        if len(self._aligned) < 2:
            self._aligned.add(remainder)
        self._aligned_count += 1

    def named(self, pos: int) -> int:
        """Return where opcodes go on behind a global: there."""
        return pos

    def behind(self, pos: int) -> int:
        """Return where opcodes go on behind the BUILD that ends at ``pos``."""
        number = self.number_behind(pos)
        return pos if number is None else self._ends[number]

    def number_behind(self, pos: int) -> int | None:
        """Return the number of the array whose BUILD ends at ``pos``; None: there is none."""
        number = bisect_left(self._behind, pos)
        return number if number < len(self) and self._behind[number] == pos else None

    def number_of(self, start: int, end: int) -> int | None:
        """Return the number of the array that the value ``[start, end)`` is; None: it is none.

        Opcodes that make no value, as those of frames, may stand between its end and ``end``.
        """
        number = bisect_right(self._behind, end) - 1
        is_there = number >= 0 and self._owners[number] == start and min(self._ends[number], self._known_end) <= end
        return number if is_there else None

    def owns(self, start: int) -> bool:
        """Whether the object that begins at ``start`` has an array."""
        if self._owned is None or len(self._owned) < len(self):
            self._owned = frozenset(self._owners)
        return start in self._owned

    def end_of_maker(self, start: int, end: int) -> int | None:
        """Return where the opcodes end that describe the array that the value ``[start, end)`` is; None: it is none, or
        one of objects."""
        number = self.number_of(start, end)
        return None if number is None or self.is_pickle(number) else self._behind[number]

    def bytes_in(self, start: int, end: int) -> int:
        """Return how many bytes of arrays stand in ``[start, end)``, besides those of objects."""
        first, last = bisect_left(self._behind, start), bisect_right(self._ends, end)
        found = self._totals[last] - self._totals[first] if last > first else 0
        if first <= last < len(self) and self._behind[last] < end and not self._facts[last] & _PICKLED:
            found += end - self._behind[last]  # it is cut
        return found

    def stretches(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the stretches of opcodes in ``[start, end)``."""
        found = []
        for number in range(bisect_left(self._behind, start), bisect_left(self._behind, end)):
            found.append((start, self._behind[number]))
            start = self._ends[number]
        return [*found, (start, end)] if start < end else found

    def array(self, number: int) -> RawArray:
        """Return the place of an array."""
        place = self._data, self._begins[number], self._ends[number]
        return RawArray(*place, self._doubt(number), is_pickle=self.is_pickle(number))

    def is_pickle(self, number: int) -> bool:
        """Whether an array is a pickle of objects."""
        return bool(self._facts[number] & _PICKLED)

    def _doubt(self, number: int) -> tuple[str, str] | None:
        facts = self._facts[number]
        if facts & _DOUBTFUL:
            return "bad-padding", "the padding before its bytes is not as joblib writes it"
        if facts & _SHIFTED and (len(self._aligned) > 1 or self._aligned_count < 2):
            return "bad-padding", "its bytes are not aligned as those of joblib are"
        if not self._is_last_sure and number == len(self) - 1:
            return "shifted", LAST_BEFORE_BREAK
        return None

    def pickles(self) -> Iterator[int]:
        """Yield where the pickles of arrays of objects begin."""
        return (self._begins[number] for number, facts in enumerate(self._facts) if facts & _PICKLED)

    def pickle_around(self, pos: int) -> int | None:
        """Return where the pickle of an array of objects begins that ``pos`` is in; None: it is in none."""
        number = bisect_right(self._begins, pos) - 1
        inside = number >= 0 and self.is_pickle(number) and pos < self._ends[number]
        return self._begins[number] if inside else None

    @property
    def last_end(self) -> int:
        """Where the last one ends, or would; 0: there is none."""
        return self._ends[-1] if self._ends else 0

    def next_from(self, pos: int, end: int) -> int:
        """Return where the opcodes from ``pos`` on end before an array, or the pickle does, at ``end``."""
        number = bisect_left(self._behind, pos)
        return self._behind[number] if number < len(self) else end
