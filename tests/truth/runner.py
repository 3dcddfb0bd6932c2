"""Running a case: the damaged file is written, asked, and what came of it judged; an endless loop is told of."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import threading
from typing import TYPE_CHECKING

from tests.truth.attempt import Attempt, counted
from tests.truth.cases import Case
from tests.truth.oracle import judge
from tests.truth.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Seconds. Not a measure of speed: no case takes a hundredth of it.
PATIENCE = 120


@contextlib.contextmanager
def watched(case: Case) -> Iterator[None]:
    """Raise TimeoutError, which names the case, if it does not end."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"{case} does not end; repeat it with: pytest tests/truth --truth-case '{case}'")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    # Should a loop in C keep the signal waiting, the stack is shown at least.
    faulthandler.dump_traceback_later(PATIENCE + 60, exit=False, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt_case(case: Case, folder: Path) -> Attempt:
    """Ask the damaged file in the case's way; return what came of it."""
    where = folder / "in"
    where.mkdir()
    attempt = Attempt(case, folder, case.write(where))
    with watched(case), counted(attempt):
        WAYS[case.way](attempt)
    return attempt


def is_undecided(case: Case) -> bool:
    """Whether nobody knows which of two files with one name is the present one: what tells it is hit, or leads
    elsewhere."""
    directory = case.wrapped.directory
    if directory is None:
        return False
    reach = case.damage.reach(case.wrapped.content)
    return reach.shifted or reach.cut or reach.touches(*directory)


def run_case(text: str, folder: Path) -> list[tuple[str, str]]:
    """Run the case of that text; return what is wrong, as pairs of clause and sentence."""
    case = Case.parse(text)
    try:
        attempt = attempt_case(case, folder)
        with watched(case):
            found = judge(attempt)
        return [(letter, said) for letter, said in found if letter == "e"] if is_undecided(case) else found
    except TimeoutError as error:
        return [("e", str(error))]
