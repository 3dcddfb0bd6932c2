"""Follows one command through the rooms: files, functions, calls, changes of file, climbs, reads.

``python -m tests.trace_calls ls model.safetensors`` runs the command with its output thrown away, and prints the
figures. A *climb* is a call of a function in a higher layer than its caller's; the order of the layers is that of
``tests/test_architecture.py``. Reads are those of all data, decoded ones too; ranges that are read again are listed.
``--calls N`` lists the N functions that are called most, ``--climbs N`` the N most frequent climbs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.test_architecture import FOLDERS, RANK, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType

ROOMS = {str(ROOT / folder) + "/": package.rpartition(".")[2] for package, folder in FOLDERS.items()}


class Trace:
    """What one command calls; see `show`."""

    def __init__(self) -> None:
        self.functions: Counter[CodeType] = Counter()
        self.climbs: Counter[tuple[CodeType, CodeType]] = Counter()
        self.changes = 0
        self.reads: Counter[tuple[str, int, int]] = Counter()
        self._ranks: dict[CodeType, int | None] = {}

    def run(self, words: Sequence[str]) -> int:
        """Run the command; return its exit code."""
        from pparse.cli import main
        from pparse.data.base import IoStats

        count = IoStats.count

        def counted(stats: IoStats, source: str, offset: int, length: int) -> None:
            self.reads[source, offset, length] += 1
            count(stats, source, offset, length)

        IoStats.count = counted  # type: ignore[method-assign]
        sys.setprofile(self._see)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return main(list(words))
        finally:
            sys.setprofile(None)
            IoStats.count = count  # type: ignore[method-assign]

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        rank = self._rank(code)
        if rank is None:
            return
        self.functions[code] += 1
        outer = frame.f_back
        while outer is not None and self._rank(outer.f_code) is None:  # through the standard library
            outer = outer.f_back
        if outer is None:
            return
        self.changes += outer.f_code.co_filename != code.co_filename
        if rank > (self._rank(outer.f_code) or 0):
            self.climbs[outer.f_code, code] += 1

    def _rank(self, code: CodeType) -> int | None:
        """Return the layer of a function; None if it is none of ours."""
        if code not in self._ranks:  # modules and classes being made are no calls, nor are parts of an expression
            counts = code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<"
            self._ranks[code] = layer_of(code.co_filename) if counts else None
        return self._ranks[code]

    def show(self, calls: int, climbs: int) -> list[str]:
        """Return the figures, a line each."""
        files = {code.co_filename for code in self.functions}
        ranges = len(self.reads)
        lines = [
            f"files       {len(files):,}",
            f"functions   {len(self.functions):,}",
            f"calls       {sum(self.functions.values()):,}",
            f"changes     {self.changes:,}",
            f"climbs      {sum(self.climbs.values()):,}",
            f"reads       {sum(self.reads.values()):,} of {ranges:,} ranges",
        ]
        lines += [
            f"  read {times} times: {name} [{at}, {at + size})"
            for (name, at, size), times in self.reads.items()
            if times > 1
        ]
        lines += [f"  {times:,} calls of {_name(code)}" for code, times in self.functions.most_common(calls)]
        lines += [
            f"  {times:,} climbs {_name(low)} -> {_name(high)}"
            for (low, high), times in self.climbs.most_common(climbs)
        ]
        return lines


def layer_of(path: str) -> int | None:
    """Return the layer of a file of the package; None if it is of no layer."""
    folder = max((folder for folder in ROOMS if path.startswith(folder)), key=len, default=None)
    if folder is None:
        return None
    room = ROOMS[folder] if ROOMS[folder] != "pparse" else path[len(folder) :].split("/")[0].removesuffix(".py")
    return RANK.get(room)


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"


def main(words: Sequence[str]) -> int:
    """Trace the command in ``words``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--climbs", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(words)
    trace = Trace()
    code = trace.run(args.command)
    sys.stdout.write("\n".join(trace.show(args.calls, args.climbs)) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
