"""What becomes of the stack of a pickle that is cut: which values on it were about to be put into which.

Above the value itself lie values and marks, in the order of the pickle. Of those that are next to each other, the
opcodes behind the cut would have told whether the second goes into the first. What picklers write is assumed: a value
that can be filled, and is not yet (`Program.closed`), is filled with one value at once, or with those above a mark.
"""

from __future__ import annotations

from pparse.kernels.pickle_scan import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# What can be filled, by the opcode that made it: lists and sets, dicts, objects.
FILLED: Final = frozenset(b"]l}d\x8fR\x81\x92oi")
# What cannot be a key: lists, sets, dicts, also those that are filled (`Program.closed`).
_NO_KEYS: Final = frozenset(b"]l}d\x8f\xff")
_DICTS: Final = frozenset(b"}d")
_BEGIN_CALLS: Final = frozenset(b"c\x93")
_CALLABLE: Final = frozenset(b"c\x93hjg")
# Texts may be parts of the name of a global; what is named again may be one, or its name.
NAMES: Final = frozenset(b"XV\x8c\x8dhjg")


def contents(slots: list[int]) -> list[int]:
    """Return what lies on the stack above the value itself, if the value can be filled; else all."""
    if not slots or slots[0] & 0xFF not in FILLED:
        return slots
    above = slots[1:]
    return above[1:] if above and above[0] & 0xFF == MARK else above


def open_from(slots: Sequence[int], *, paired: bool) -> int:
    """Return the number of the slot that begins the one value that is not finished; how many slots there are, if all
    are. ``paired``: keys and values by turns; a key is finished."""
    if paired:  # what cannot be a key is a further part of the value before it: of a tuple
        odd = next((nth for nth in range(2, len(slots), 2) if slots[nth] & 0xFF in _NO_KEYS), None)
        if odd is not None:
            return min(odd - 1, open_from(slots[:odd], paired=True))
    last = len(slots) - 1
    number = next((nth for nth, slot in enumerate(slots) if slot & 0xFF == MARK), last)
    found = len(slots)
    if number < last or (number == last and last >= 0 and _may_become_more(slots[last])):
        found = number
    # A call has its callable first, and of its arguments at most three are not yet in a tuple.
    for early in range(max(0, last - 3), number):
        if slots[early] & 0xFF in _CALLABLE:
            number = early
            found = number if _is_place(number, paired=paired) else found
            break
    # What stands before it may be what it is put into, and so on; or the first part of a name or call.
    while number > 0:
        step = _step_back(slots, number)
        if not step:
            break
        number -= step
        if _is_place(number, paired=paired):
            found = number
    return found


def _step_back(slots: Sequence[int], number: int) -> int:
    """Return how many slots before slot ``number`` the value begins that this one may be put into; 0: none."""
    before = slots[number - 1] & 0xFF
    if before in _BEGIN_CALLS or before in FILLED - _DICTS:
        return 1
    if before in _CALLABLE and slots[number] & 0xFF == MARK:
        return 1
    if number > 1 and slots[number - 2] & 0xFF in _DICTS:
        return 2
    if before in _DICTS or (before in NAMES and slots[number] & 0xFF in NAMES):
        return 1
    return 0


def _may_become_more(slot: int) -> bool:
    """Tell whether later opcodes may make something else of a value: fill it, call it, or take it for a name."""
    return slot & 0xFF in FILLED or slot & 0xFF in _BEGIN_CALLS or slot & 0xFF in NAMES or slot & 0xFF == MARK


def _is_place(number: int, *, paired: bool) -> bool:
    """Tell whether a value may stand there: keys are finished."""
    return not paired or number % 2 == 1
