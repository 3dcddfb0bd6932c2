"""`ParserContract` finds bugs: ten are planted in the toy parser, one at a time, and each is caught."""

from __future__ import annotations

import sys
from struct import pack
from threading import Lock, current_thread, main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from pparse import DONE, Confidence
from pparse.testing import ParserContract
from pparse.testing.contract import EndlessCaseError, Patience
from tests.test_how_to_write_a_parser import record, toy_parser

if TYPE_CHECKING:
    from pathlib import Path

ToyParser = toy_parser.ToyParser
SAMPLE = b"TOY1" + record(1, "a", b"12345") + record(2, "g", record(1, "b", b"6")) + record(1, "c", b"7" * 40)
_seen: dict[str, Any] = {}


class MatchReadsAll(ToyParser):
    """Looks for its magic everywhere."""

    @classmethod
    def match(cls, excerpt):
        reader = excerpt._reader  # what no match should do
        content = reader.data.pread(0, reader.size or 0)
        return Confidence.CERTAIN if content.startswith(b"TOY1") and b"\0" in content else Confidence.NO


class ListingReadsAll(ToyParser):
    """Looks at every payload while it lists."""

    def expect_record(self, ctx, block, base):
        start = ctx.pos
        found = super().expect_record(ctx, block, base)
        ctx.data.pread(start, ctx.pos - start)
        return found


class KeepsUncharged(ToyParser):
    """Keeps what it loads."""

    def load_scalar(self, node):
        found = super().load_scalar(node)
        _seen.setdefault("kept", []).append(bytearray(found))
        return found


class RecursesOnInput(ToyParser):
    """Measures the depth of groups by recursion."""

    def begin(self, ctx):
        if ctx.node.kind == "toy":
            self.depth_from(ctx.data, 4)
        return super().begin(ctx)

    def depth_from(self, data, at):
        head = data.pread(at, 8)
        return 1 + self.depth_from(data, at + 8) if head[:1] == b"\2" else 0


class ForgetsTheThread(ToyParser):
    """Keeps what it is reading in the class."""

    turn = Lock()

    def load_scalar(self, node):
        ForgetsTheThread.node = node
        # One thread waits here, once, for the others: all of them would wait for each other at the same record.
        if current_thread() is not main_thread() and ForgetsTheThread.turn.acquire(blocking=False):
            end = monotonic() + 5  # on a busy machine the others take long to get here
            # The same record of another document would not do: its value is equal.
            while (taken := ForgetsTheThread.node).path == node.path and monotonic() < end:
                sleep(0.0005)
            return super().load_scalar(taken)
        return super().load_scalar(ForgetsTheThread.node)


class LocalParser:
    """A place for a class that pickle cannot find."""

    def make(self):
        class Hidden(ToyParser):
            """Cannot be imported."""

        return Hidden


class ClaimsTheCut(ToyParser):
    """Takes the last record that is whole for the end of the file."""

    def expect_record(self, ctx, block, base):
        content = ctx.data.pread(ctx.pos, 1000)
        header = 7 + int.from_bytes(content[1:3], "little")
        if len(content) < header + int.from_bytes(content[header - 4 : header], "little"):
            return ctx.pos, DONE, 0
        return super().expect_record(ctx, block, base)


class NeverEnds(ToyParser):
    """Goes round in circles behind a zero byte."""

    def expect_record(self, ctx, block, base):
        while ctx.pos - base < len(block) and block[ctx.pos - base] == 0:
            pass
        return super().expect_record(ctx, block, base)


class DependsOnBlocks(ToyParser):
    """Names records by what is in the block with them."""

    def expect_record(self, ctx, block, base):
        found = super().expect_record(ctx, block, base)
        if ctx._last is not None and len(block) < 16:
            ctx._last.key = ctx._last.key.upper()
        return found


class RaisesOthersErrors(ToyParser):
    """Lets an error of Python through."""

    def expect_record(self, ctx, block, base):
        at = ctx.pos - base
        if at < len(block) and block[at] > 0x7F:
            raise KeyError(block[at])
        return super().expect_record(ctx, block, base)


class Contract(ParserContract):
    """The contract of the toy, with the files that the two optional tests ask for."""

    __test__ = False
    samples = {"plain": SAMPLE}
    changes = (0x00, 0xFF)
    patience = Patience(1.0)

    def is_whole(self, name, prefix):
        return len(prefix) in (4, 4 + 13, 4 + 13 + 17)

    def large(self):
        return b"TOY1" + b"".join(record(1, f"r{number}", bytes(3 << 20)) for number in range(4))

    def nested(self, depth):
        inner = record(1, "x", b"1")
        for _ in range(depth):
            inner = pack("<BHcI", 2, 1, b"g", len(inner)) + inner
        return b"TOY1" + inner


PLANTED = {
    "a match that reads everything": (MatchReadsAll, "test_match_reads_little", AssertionError),
    "a listing that reads everything": (
        ListingReadsAll,
        "test_listing_reads_little_and_keeps_what_it_charges",
        AssertionError,
    ),
    "memory that is not charged": (
        KeepsUncharged,
        "test_listing_reads_little_and_keeps_what_it_charges",
        AssertionError,
    ),
    "recursion on input": (RecursesOnInput, "test_nesting", RecursionError),
    "state that threads share": (ForgetsTheThread, "test_threads", AssertionError),
    "a parser that pickle cannot find": (LocalParser().make(), "test_pickles", Exception),
    "a complete root over a lost leaf": (
        ClaimsTheCut,
        "test_a_prefix_that_loses_a_leaf_is_not_complete",
        AssertionError,
    ),
    "an endless loop": (NeverEnds, "test_every_byte_changed", EndlessCaseError),
    "a tree that depends on blocks": (DependsOnBlocks, "test_block_sizes", AssertionError),
    "an error of Python": (RaisesOthersErrors, "test_every_byte_changed", KeyError),
}


def run(parser: type, test: str, tmp_path: Path) -> None:
    contract = type("Planted", (Contract,), {"parser": parser})()
    if parser is NeverEnds:
        contract.patience = Patience(0.3)  # all of it is waited for
    method = getattr(contract, test)
    try:
        method(tmp_path) if test in ("test_pickles", "test_one_descriptor") else method()
    finally:
        contract.teardown_method()
        _seen.clear()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    parser, test, error = PLANTED[name]
    if error is EndlessCaseError and sys.platform == "win32":
        pytest.skip("no alarms there")
    with pytest.raises(error):
        run(parser, test, tmp_path)


# The others are those of TestToyContract in test_how_to_write_a_parser.
FIRST_SHOWN_HERE = (
    "test_listing_reads_little_and_keeps_what_it_charges",
    "test_nesting",
    "test_threads",
    "test_pickles",
)


@pytest.mark.parametrize("test", FIRST_SHOWN_HERE)
def test_the_toy_without_a_bug_passes(test: str, tmp_path: Path) -> None:
    run(ToyParser, test, tmp_path)
