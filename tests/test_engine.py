"""The engine, on toy formats made to use or to break its rules."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
import pparse.tree.context
import pparse.tree.index
import pparse.tree.node
from pparse import DONE, LIST, MAP, UNLOADED_VALUE, Entry, Limits, Parser, Status
from pparse.errors import CancelledError, EndOfDataError, EngineError, LimitError, MalformedError, SourceError
from pparse.limits import MemoryBudget
from pparse.testing import FailingData, FakeData, GappyData, UnknownSizeData
from pparse.tree.index import ChildIndex
from tests import sweep
from tests.rows import rows

HUGE = 1 << 62
MAGIC = b"REC\n"
HEAD = struct.Struct(">BBI")  # a mark, a kind, a length
MARK = 0x7E
KINDS = {ord("b"): "bytes", ord("l"): "list"}


def record(payload: bytes, kind: str = "b") -> bytes:
    return HEAD.pack(MARK, ord(kind), len(payload)) + payload


def nest(value) -> bytes:
    """Encode bytes, and lists of such."""
    if isinstance(value, bytes):
        return record(value)
    return record(b"".join(map(nest, value)), "l")


def document(values) -> bytes:
    return MAGIC + b"".join(map(nest, values))


class Records(Parser):
    """Records one after the other, lists of records in them; lengths in front, so nothing inside need be read."""

    name = "records"
    description = "toy"
    shapes = {"records": LIST, "list": LIST}
    child_state = "expect_record"

    def begin(self, ctx):
        if ctx.node.parent is None:
            return ctx.node.start, self.expect_magic, len(MAGIC)
        return ctx.node.start, self.expect_record, 0

    def expect_magic(self, ctx, block, base):
        if not block.startswith(MAGIC, ctx.pos - base):
            raise MalformedError("no magic", offset=ctx.pos)
        return ctx.pos + len(MAGIC), self.expect_record, 0

    def expect_record(self, ctx, block, base):
        at = ctx.pos - base
        if at >= len(block):
            return (ctx.pos, DONE, 0) if ctx.at_end else (ctx.pos, self.expect_record, 1)
        if len(block) - at < HEAD.size:
            return ctx.pos, self.expect_record, HEAD.size
        mark, kind, length = HEAD.unpack_from(block, at)
        if mark != MARK or kind not in KINDS:
            raise MalformedError("not a record", offset=ctx.pos)
        start = ctx.pos + HEAD.size
        end = start + length
        whole = ctx.data.available(start, length) and (ctx.end is None or end <= ctx.end)
        status = Status.COMPLETE if whole else Status.TRUNCATED
        ctx.emit(Entry(None, KINDS[kind], start, end, status=status, at=ctx.pos))
        return end, self.expect_record, 0 if whole else 1

    def resync(self, ctx, error):
        if ctx.state == self.expect_magic:
            return None
        pos = ctx.pos + 1
        for gap in ctx.data.gaps:
            if gap.length is not None and gap.offset <= pos < gap.offset + gap.length:
                pos = gap.offset + gap.length
        return pos, self.expect_mark, 0

    def expect_mark(self, ctx, block, base):
        if ctx.pos - base >= len(block):
            return (ctx.pos, DONE, 0) if ctx.at_end else (ctx.pos, self.expect_mark, 1)
        found = block.find(MARK, ctx.pos - base)
        if found < 0:
            return base + len(block), self.expect_mark, 0
        return base + found, self.expect_record, 0


class Kept(Records):
    """The same, with entries kept instead of offsets."""

    name = "kept"
    shapes = {"kept": LIST, "list": LIST}
    child_state = None


class Pairs(Parser):
    """A map: key, ``=``, value, newline."""

    name = "pairs"
    shapes = {"pairs": MAP}
    child_state = "expect_pair"

    def begin(self, ctx):
        return ctx.node.start, self.expect_pair, 0

    def expect_pair(self, ctx, block, base):
        at = ctx.pos - base
        end = block.find(b"\n", at)
        if end < 0:
            if not ctx.at_end:
                return ctx.pos, self.expect_pair, len(block) - at + 1
            return (ctx.pos, DONE, 0) if at == len(block) else (ctx.pos, self.expect_pair, len(block) - at + 1)
        key, equals, value = block[at:end].partition(b"=")
        if not equals:
            raise MalformedError("no '='", offset=ctx.pos)
        ctx.emit(Entry(key.decode(), "text", base + end - len(value), base + end, value.decode(), at=ctx.pos))
        return base + end + 1, self.expect_pair, 0


def test_the_path_of_a_child_indexes_no_children_behind_it():
    with read(b"".join(b"%d=%d\n" % (number, number) for number in range(20)), Pairs) as doc:
        for number in (0, 3):
            assert doc.root.child(number).path == f'["{number}"]'
            assert doc.root.index.count == number + 1


def read(source, parser=Records, **more):
    return pparse.open(source, format=parser.name, parsers=[parser], **more)


def tree(extraction):
    found, stack = [], [extraction.root]
    while stack:
        node = stack.pop()
        kids = list(node.children()) if node.shape != "scalar" else []
        value = node.load() if node.shape == "scalar" and node.status is Status.COMPLETE else None
        found.append((node.path, node.kind, node.start, node.end, node.status, value))
        stack.extend(reversed(kids))
    return found


def run_state(*states, data=b"0123456789" * 100, **more):
    """Parse ``data`` with a parser of these states, the first of which begins; ``more`` goes to `pparse.open`."""
    members = {state.__name__: state for state in states}
    first = states[0].__name__
    attributes = {
        **members,
        "name": "made-up",
        "shapes": {"made-up": LIST},
        "begin": lambda self, ctx: (ctx.node.start, getattr(self, first), 1),
    }
    parser = type("MadeUp", (Parser,), attributes)
    extraction = pparse.open(data, format="made-up", parsers=[parser], **more)
    extraction.root.load()
    return extraction


VALUES = st.recursive(st.binary(max_size=30), lambda inner: st.lists(inner, max_size=4), max_leaves=12)
SAMPLE = [b"one", [b"two", [], [[b"three" * 10]]], b"", [b"four"] * 3, b"\x7e" * 40]


# -- refill and jumps ------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(45))
@given(values=st.lists(VALUES, max_size=5))
def test_the_block_size_does_not_show(values):
    text = document(values)
    for parser in (Records, Kept):
        expected = tree(read(text, parser))
        assert read(text, parser).root.to_python() == values
        for size in (1, 2, 7, len(text) + 10):
            assert tree(read(text, parser, block_size=size)) == expected, size


def test_bytes_jumped_over_are_never_read():
    text = document([b"x" * 200_000] * 20)
    data = FakeData(text)
    extraction = read(data, block_size=HEAD.size)
    assert len(extraction.root) == 20
    assert sum(length for _, length in data.asked) == 21 * HEAD.size  # the first block holds the magic
    touched = {offset for offset, _ in data.asked}
    assert touched >= {len(MAGIC) + number * (200_000 + HEAD.size) for number in range(20)}
    adaptive = FakeData(text)
    assert len(read(adaptive).root) == 20
    assert sum(length for _, length in adaptive.asked) <= 21 * 4096


def test_blocks_grow_while_reading_goes_on_and_are_small_after_a_jump():
    data = FakeData(document([b"xy"] * 200_000 + [b"z" * 10**6, b"end"]))
    root = read(data).root
    assert len(root) == 200_002
    lengths = [length for _, length in data.asked]
    assert lengths[:4] == [4 << 10, 16 << 10, 64 << 10, 256 << 10]
    assert max(lengths) == 256 << 10
    assert lengths[-1] <= 4 << 10
    assert root[200_001].load() == b"end"


def test_a_state_that_asks_for_ever_more_does_not_read_everything_again():
    data = FakeData(b"k=" + b"v" * 1_000_000 + b"\n")
    extraction = read(data, Pairs)
    assert extraction.get("k") == "v" * 1_000_000
    assert extraction.status is Status.COMPLETE
    assert sum(length for _, length in data.asked) <= 5_000_000
    assert len(data.asked) < 20


def test_an_empty_source():
    assert (len(read(b"", Pairs).root), read(b"", Pairs).status) == (0, Status.COMPLETE)
    assert read(b"").status is Status.TRUNCATED


# -- asking for less -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parser", [Records, Kept])
def test_the_engine_stops_when_it_has_what_was_asked_for(parser):
    data = FakeData(document([b"x" * 5000] * 1000))
    extraction = read(data, parser)
    root = extraction.root
    assert root.child(2).load() == b"x" * 5000
    assert root.index.count == 3
    assert not root.index.complete
    assert root.index.context is not None
    assert root.value is UNLOADED_VALUE
    assert len(data.asked) < 8
    children = root.children()
    kid = [next(children) for _ in range(11)][-1]
    assert kid.start == len(MAGIC) + 11 * HEAD.size + 10 * 5000
    assert root.index.count == 11
    assert len(root) == 1000  # goes on where it stopped
    assert root.index.context is None
    assert root.status is Status.COMPLETE
    with pytest.raises(IndexError):
        root.child(1000)


def test_a_key_stops_the_engine_too():
    data = FakeData(b"".join(b"k%d=%d\n" % (number % 500, number) for number in range(100_000)))
    extraction = read(data, Pairs)
    root = extraction.root
    assert root.find("k7", 2).value == "507"
    assert root.index.count == 508
    assert sum(length for _, length in data.asked) < 64 << 10
    assert root.find("k7").value == "7"
    assert root.find("k7", 200).value == "99507"
    assert root.find("k7", 201) is None
    assert root.find("nope") is None
    assert root.find("k7", 3).path == "k7#3"
    third = root.find("k7", 3)
    assert root.at("k7#3") is third
    assert third.value == "1007"


def test_children_beyond_the_dense_part_are_read_again_from_checkpoints(monkeypatch):
    monkeypatch.setattr(pparse.tree.index, "DENSE_LIMIT", 1000)
    values = [b"%d" % number for number in range(5000)]
    for block_size in (0, 7):
        root = read(document(values), block_size=block_size).root
        assert len(root) == 5000
        assert root.index.memory == 8 * -(-5000 // 64)
        for ordinal in (0, 63, 64, 999, 1000, 1001, 4999):
            assert root[ordinal].load() == values[ordinal]
        assert root.to_python() == values


def test_entries_of_the_last_children_are_counted():
    index = ChildIndex(MemoryBudget("1MiB"), lambda: None)
    for offset in range(10):
        index.add(offset)
    assert index.memory == 8 * 10
    for offset in range(10, 15):
        index.add_last(Entry(None, "item", offset, offset + 1))
    assert index.memory == 8 * 10 + 200 * 5


def test_kept_entries_are_counted():
    extraction = read(document([b"x"] * 2000), Kept)
    assert len(extraction.root) == 2000
    assert extraction.root.index.memory == 200 * 2000
    assert extraction.session.budget.used >= 200 * 1900
    extraction.root.unload()
    assert extraction.session.budget.used == 0


# -- cut -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parser", [Records, Kept])
def test_every_prefix_gives_the_children_that_are_whole_in_it(parser):
    text = document(SAMPLE)
    everything = {path: (value, end) for path, kind, _, end, _, value in tree(read(text, parser)) if kind == "bytes"}
    assert len(everything) == 8
    most = 0
    for size in sweep.some(range(len(text)), 3, ends=8):
        for block_size in (0, 3):
            extraction = read(text[:size], parser, block_size=block_size)
            found = {
                path: value
                for path, kind, *_, status, value in tree(extraction)
                if kind == "bytes" and status is Status.COMPLETE
            }
            expected = {path: value for path, (value, end) in everything.items() if end <= size}
            assert found == expected, (size, block_size)
        assert len(found) >= most
        most = len(found)
        between = [len(document(SAMPLE[:count])) for count in range(len(SAMPLE))]
        assert (extraction.status is Status.COMPLETE) == (size in between), size


def test_a_cut_says_how_much_is_missing():
    extraction = read(document([b"abc"]) + HEAD.pack(MARK, ord("b"), 50)[:4])
    root = extraction.root
    assert root.status is Status.TRUNCATED
    assert (root.finding.code, root.finding.wanted, root.finding.got) == ("truncated", 6, 4)
    assert (root.finding.offset, root.end) == (17, 17)
    assert [str(finding) for finding in extraction.check()] == [str(root.finding)]
    with pytest.raises(EndOfDataError):
        root.to_python()
    cut = read(document([b"abc", b"x" * 50])[:-1]).root
    assert cut[1].status is Status.TRUNCATED
    with pytest.raises(EndOfDataError):
        cut[1].load()


@pytest.mark.parametrize("data", [b"0123456789", UnknownSizeData(b"0123456789"), UnknownSizeData(b"x" * 300_000)])
def test_a_need_beyond_all_measure_allocates_nothing(data):
    def expect_all(self, ctx, block, base):
        return ctx.pos, self.expect_all, HUGE

    expect_all.__name__ = "expect_all"
    tracemalloc.start()
    try:
        extraction = run_state(expect_all, data=data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert extraction.status is Status.TRUNCATED
    assert extraction.root.finding.wanted == HUGE
    assert extraction.session.budget.peak < 1 << 20
    assert peak < 2 << 20


def test_a_declared_length_beyond_the_end_is_not_believed():
    text = MAGIC + HEAD.pack(MARK, ord("b"), 0xFFFFFFFF) + b"abc"
    for source in (text, UnknownSizeData(text)):
        root = read(source).root
        assert root.status is Status.TRUNCATED
        assert root[0].status is Status.TRUNCATED
        with pytest.raises(EndOfDataError):
            root[0].load()
        assert root.extraction.session.budget.peak < 1 << 20


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parser", [Records, Kept])
@pytest.mark.parametrize("block_size", [0, 1, 7])
def test_after_damage_the_parser_goes_on_where_it_can(parser, block_size):
    good = document([b"one", b"two"])
    extraction = read(good + b"garbage" + record(b"three") + b"\x7e!!" + record(b"four"), parser, block_size=block_size)
    root = extraction.root
    assert [kid.load() for kid in root.children()] == [b"one", b"two", b"three", b"four"]
    assert root.status is Status.DAMAGED
    assert [finding.offset for finding in extraction.findings if finding.code == "malformed"] == [
        len(good),
        len(good) + 7 + HEAD.size + 5,
    ]
    assert root[3].load() == b"four"  # read again from its own offset
    assert [finding.code for finding in extraction.check()] == ["malformed"] * 2
    with pytest.raises(MalformedError):
        root.to_python()
    root.unload()
    assert [kid.load() for kid in root.children()] == [b"one", b"two", b"three", b"four"]
    assert root.status is Status.DAMAGED


def test_what_is_damaged_stays_so_when_it_also_ends_early():
    extraction = read(document([b"one"]) + b"garbage" + record(b"two")[:-1])
    assert extraction.status is Status.DAMAGED
    assert [finding.code for finding in extraction.findings] == ["malformed", "truncated"]


def test_without_a_way_to_go_on_what_came_before_stays():
    extraction = read(b"a=1\nb=2\nrubbish\nc=3\n", Pairs)
    assert list(extraction.root.keys()) == ["a", "b"]
    assert extraction.status is Status.DAMAGED
    assert (extraction.root.finding.offset, extraction.root.finding.reason) == (8, "no '='")
    assert extraction.root.find("c") is None
    assert read(b"XXXX").status is Status.DAMAGED
    assert len(read(b"XXXX").root) == 0


def test_a_resync_must_move_on():
    class Stuck(Records):
        name = "stuck"
        shapes = {"stuck": LIST}

        def resync(self, ctx, error):
            return ctx.pos, self.expect_record, 0

    with pytest.raises(EngineError, match="resync did not move on"):
        read(document([b"x"]) + b"garbage", Stuck).root.load()


# -- rules -----------------------------------------------------------------------------------------------------------


def test_standing_still_is_an_error():
    def still(self, ctx, block, base):
        return ctx.pos, self.still, 1

    with pytest.raises(EngineError, match="stands still") as caught:
        run_state(still)
    assert caught.value.state == "still"


def test_two_states_that_hand_over_to_each_other_stand_still():
    def ping(self, ctx, block, base):
        return ctx.pos, self.pong, 1

    def pong(self, ctx, block, base):
        return ctx.pos, self.ping, 5

    with pytest.raises(EngineError, match="stands still"):
        run_state(ping, pong)


def test_a_stack_that_grows_on_the_spot_stands_still():
    def push(self, ctx, block, base):
        ctx.stack.append(None)
        return ctx.pos, self.push, 1

    with pytest.raises(EngineError, match="stands still"):
        run_state(push)


def test_a_stack_that_goes_up_and_down_on_the_spot_stands_still():
    def seesaw(self, ctx, block, base):
        ctx.stack.pop() if ctx.stack else ctx.stack.append(None)
        return ctx.pos, self.seesaw, 1

    with pytest.raises(EngineError, match="stands still"):
        run_state(seesaw)


def test_standing_still_while_children_come_out_is_allowed():
    def emit_five(self, ctx, block, base):
        ctx.emit(Entry(None, "thing", 0, 0))
        return (ctx.pos, self.emit_five, 1) if ctx.emitted < 5 else (ctx.pos, DONE, 0)

    assert len(run_state(emit_five).root) == 5


def test_many_steps_on_the_spot_are_allowed_while_each_differs():
    def climb(self, ctx, block, base):
        ctx.stack.append(None)
        return (ctx.pos, self.climb, 1) if len(ctx.stack) < 1000 else (ctx.pos, self.descend, 1)

    def descend(self, ctx, block, base):
        ctx.stack.pop()
        return (ctx.pos, self.descend, 1) if ctx.stack else (ctx.pos + 1, DONE, 0)

    assert run_state(climb, descend).status is Status.COMPLETE


def test_a_jump_back_must_be_declared():
    def forth(self, ctx, block, base):
        return ctx.pos + 500, self.back, 1

    def back(self, ctx, block, base):
        return ctx.pos - 400, DONE, 0

    with pytest.raises(EngineError, match="moved back to 100 without declaring it") as caught:
        run_state(forth, back)
    assert (caught.value.offset, caught.value.state) == (500, "back")


@pytest.mark.parametrize("block_size", [0, 1, 7])
def test_a_declared_jump_back_works(block_size):
    seen = []

    def forth(self, ctx, block, base):
        seen.append(block[ctx.pos - base])
        return ctx.pos + 505, self.back, 1

    def back(self, ctx, block, base):
        seen.append(block[ctx.pos - base])
        ctx.jump_back()
        return ctx.pos - 502, self.last, 1

    def last(self, ctx, block, base):
        seen.append(block[ctx.pos - base])
        return ctx.pos + 1, DONE, 0

    extraction = run_state(forth, back, last, block_size=block_size)
    assert bytes(seen) == b"053"
    assert extraction.status is Status.COMPLETE


def test_a_declaration_holds_for_one_step():
    def forth(self, ctx, block, base):
        ctx.jump_back()
        return ctx.pos + 500, self.back, 1

    def back(self, ctx, block, base):
        return ctx.pos - 1, DONE, 0

    with pytest.raises(EngineError, match="without declaring"):
        run_state(forth, back)


def test_jumps_back_are_counted(monkeypatch):
    monkeypatch.setattr(pparse.tree.context, "MAX_JUMPS_BACK", 50)
    jumps = 0

    def forth(self, ctx, block, base):
        return ctx.pos + 1, self.back, 1

    def back(self, ctx, block, base):
        nonlocal jumps
        jumps += 1
        ctx.jump_back()
        return ctx.pos - 1, self.forth, 1

    extraction = run_state(forth, back)
    assert extraction.status is Status.DAMAGED
    assert "too many backward jumps" in extraction.root.finding.reason
    assert jumps == 51


def test_a_parser_must_say_how_to_begin():
    class Silent(Parser):
        name = "silent"
        shapes = {"silent": LIST}

    with pytest.raises(EngineError, match="does not say how to begin"):
        read(b"x", Silent).root.load()


def test_a_state_that_fails_is_begun_anew():
    """Whatever a state changed before it failed must not be seen twice."""
    failures = [ValueError("a bug"), KeyboardInterrupt()]

    def careless(self, ctx, block, base):
        ctx.emit(Entry(None, "thing", ctx.pos, ctx.pos + 1))
        if ctx.pos == 5 and failures:
            raise failures.pop()
        return ctx.pos + 1, self.careless if ctx.pos < 9 else DONE, 1

    with pytest.raises(KeyboardInterrupt):
        run_state(careless)
    failures.append(ValueError("a bug"))
    attributes = {
        "name": "careless",
        "shapes": {"careless": LIST},
        "careless": careless,
        "begin": lambda self, ctx: (0, self.careless, 1),
    }
    extraction = read(b"0123456789", type("Careless", (Parser,), attributes))
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            len(extraction.root)
    assert [kid.load() for kid in extraction.root.children()] == [b"%d" % digit for digit in range(10)]


# -- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 7, 8])
def test_a_gap_in_what_is_jumped_over_does_no_harm(block_size):
    text = document([b"x" * 100, b"two"])
    root = read(GappyData(text, [(20, 50)]), block_size=block_size).root
    assert root[1].load() == b"two"


@pytest.mark.parametrize("block_size", [0, 1, 7])
def test_a_gap_where_the_parser_reads_is_damage(block_size):
    text = document([b"one", b"two", b"three", b"four"])
    at = text.index(b"two") - 3  # inside the second record's head
    extraction = read(GappyData(text, [(at, 5)]), block_size=block_size)
    root = extraction.root
    values = [kid.load() for kid in root.children()]
    assert values == [b"one", b"three", b"four"]
    assert root.status is Status.DAMAGED
    assert "gap" in root.finding.reason
    assert root.finding.offset == at
    assert root[2].load() == b"four"
    assert any("gap" in finding.reason for finding in extraction.check())


@pytest.mark.parametrize("length", [3, None])
def test_a_gap_that_a_parser_cannot_pass(length):
    extraction = read(GappyData(b"a=1\nb=2\nc=3\n", [(9, length)]), Pairs)
    assert list(extraction.root.keys()) == ["a", "b"]
    assert (extraction.status, extraction.root.finding.offset) == (Status.DAMAGED, 9)


def test_a_gap_without_an_end_ends_the_search_for_what_follows():
    text = document([b"one", b"two"])
    data = GappyData(text, [(text.index(b"two") - 3, None)])
    data.size = None  # a stream whose rest cannot be decoded
    extraction = read(data)
    assert [kid.load() for kid in extraction.root.children()] == [b"one"]
    assert extraction.status is Status.DAMAGED


@rows("values", [[], [b"x"], SAMPLE, [b"y" * 100_000, b"z"]])
@rows("block_size", [0, 1, 7])
def test_a_source_of_unknown_size(values, block_size):
    text = document(values)
    expected = tree(read(text))
    assert tree(read(UnknownSizeData(text), block_size=block_size if len(text) < 5000 else 0))[1:] == expected[1:]
    cut = read(UnknownSizeData(text[:-1]), block_size=block_size)
    assert cut.status is Status.TRUNCATED


def test_records_inside_other_data_end_where_their_extraction_ends():
    text = document([b"one", b"two"])
    outer = read(b"before" + text + record(b"not ours"), Records)
    inner = outer.child("inner", outer.data, 6, 6 + len(text), "records")
    assert inner.root.to_python() == [b"one", b"two"]
    cut = outer.child("cut", outer.data, 6, 5 + len(text), "records")
    assert (cut.status, cut.root[0].load()) == (Status.TRUNCATED, b"one")


@pytest.mark.parametrize("parser", [Records, Kept])
def test_each_read_may_fail(parser):
    text = document(SAMPLE)
    expected = tree(read(text, parser))
    for number in range(1, 1000):
        data = FailingData(text, number)
        extraction = read(data, parser, block_size=5)
        try:
            tree(extraction)
        except SourceError:
            assert tree(extraction) == expected, number
        if data.reads < number:
            break
    assert number > 20


def test_a_read_that_fails_leaves_the_parse_where_it_was():
    text = document([b"x" * 40] * 400)
    data = FailingData(text, 12)
    extraction = read(data, Records, block_size=64)
    root = extraction.root
    with pytest.raises(SourceError):
        root.index_to(None)
    known = root.index.count
    assert known > 5
    before = extraction.session.stats.bytes
    assert len(root) == 400
    served = extraction.session.stats.bytes - before
    fresh = read(FakeData(text), Records, block_size=64)
    assert len(fresh.root) == 400
    assert served < fresh.session.stats.bytes * (400 - known) / 400 + 200


# -- stopping --------------------------------------------------------------------------------------------------------


def test_a_parse_that_was_cancelled_can_be_done_again():
    answers = iter([False] * 5 + [True] + [False] * 10**6)
    extraction = read(document([b"x" * 10_000] * 50), cancel=lambda: next(answers))
    with pytest.raises(CancelledError):
        len(extraction.root)
    assert len(extraction.root) == 50


def test_a_budget_that_is_too_small_names_the_option():
    def expect_much(self, ctx, block, base):
        if len(block) < 3 << 20:
            return ctx.pos, self.expect_much, 3 << 20
        return ctx.pos + len(block), DONE, 0

    data = bytes(3 << 20)
    with pytest.raises(LimitError, match="budget=") as caught:
        run_state(expect_much, data=data, budget="2MiB")
    assert "a scan block" in caught.value.reason
    extraction = run_state(expect_much, data=data, budget="8MiB")
    assert extraction.status is Status.COMPLETE
    assert extraction.session.budget.used == 0
    assert extraction.session.budget.peak >= 6 << 20


def test_blocks_leave_room_in_a_small_budget():
    extraction = read(document([b"xy"] * 100_000), budget="1MiB", limits=Limits(entries=200_000))
    assert len(extraction.root) == 100_000
    assert extraction.session.budget.peak <= 1 << 20


def test_a_limit_on_children():
    extraction = read(document([b"x"] * 20), limits=Limits(entries=10))
    with pytest.raises(LimitError, match=r"Limits\(entries"):
        len(extraction.root)
    assert extraction.root.child(5).load() == b"x"


# -- walks and values ------------------------------------------------------------------------------------------------


def test_a_walk_visits_everything_once():
    extraction = read(document(SAMPLE))
    visits = list(extraction.walk())
    expected = tree(read(document(SAMPLE)))
    assert [(visit.path, visit.kind, visit.start, visit.end) for visit in visits[1:]] == [
        (path, kind, start, end) for path, kind, start, end, *_ in expected[1:]
    ]
    assert [visit.depth for visit in visits[:5]] == [0, 1, 1, 2, 2]
    assert [visit.ordinal for visit in visits if visit.depth == 1] == list(range(5))


def test_a_walk_stops_above_the_depth_limit_and_says_so():
    value = b"deep"
    for _ in range(10):
        value = [value]
    extraction = read(document([value, b"after"]), limits=Limits(depth=4))
    assert [visit.depth for visit in extraction.walk()] == [0, 1, 2, 3, 4, 1]
    (finding,) = extraction.check()
    assert (finding.code, finding.path) == ("limit", "[0][0][0][0]")
    node = extraction.node("[0][0][0][0]")
    assert node.depth == 4
    with pytest.raises(LimitError, match=r"Limits\(depth"):
        node.load()
    with pytest.raises(LimitError, match=r"Limits\(depth"):
        extraction.node("[0][0][0][0][0]")


def test_keys_that_occur_again_are_numbered():
    root = read(b"a=1\na=2\na#2=3\na=4\n\xc3\xa9=5\n", Pairs).root
    assert root.to_python() == {"a": "1", "a#3": "2", "a#2": "3", "a#4": "4", "é": "5"}
    assert root.load() == {"a": "1", "a#2": "3", "é": "5"}
    assert [kid.path for kid in root.children()] == ["a", "a#2", '["a#2"]', "a#3", '["\\u00e9"]']


def test_made_up_names_do_not_replace_others():
    pairs = [(1, "a"), (1, "b"), ("1", "c"), ("1", "d"), ("1#3", "e"), (b"1", "f"), (b"1", "g")]
    found = pparse.tree.node.as_dict(pairs)
    assert found == {1: "a", "1#2": "b", "1": "c", "1#4": "d", "1#3": "e", b"1": "f", "b'1'#2": "g"}
    assert list(found.values()) == list("abcdefg")


# -- what a parser may get wrong when it is asked again --------------------------------------------------------------


class Forgetful(Records):
    """Indexes children, and makes no entries of them."""

    def entries(self, node, index, first, count):
        return super().entries(node, index, first, count) if first < 64 else []


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: list(root.children()),
        lambda root: root.child(70),
        lambda root: list(root.result.entries_from(root, 0)),
    ],
    ids=["children", "child", "entries"],
)
def test_children_that_are_counted_and_not_given_are_an_error_of_the_parser(ask):
    doc = pparse.open(document([b"a"] * 100), parsers=[Forgetful], format="records")
    with doc, pytest.raises(EngineError, match="children, but returns none from number 64 on"):
        ask(doc.root)


class WithRest(Records):
    """Makes a child of what is left where the input ends."""

    shapes = {"records": LIST, "list": LIST}

    def cut(self, ctx):
        ctx.emit(Entry(None, "rest", ctx.pos, None, b"rest", Status.TRUNCATED))
        return super().cut(ctx)


def test_a_child_that_was_made_at_the_cut_can_be_read_again():
    cut = document([b"abc"] * 70)[:-5]
    with pparse.open(cut, parsers=[WithRest], format="records") as doc:
        root = doc.root
        assert [kid.kind for kid in root.children()] == ["bytes"] * 69 + ["rest"]
        root.index.group = None
        assert [kid.kind for kid in root.children()][-2:] == ["bytes", "rest"]
        root.unload()
        assert root.child(69).kind == "rest"
        root.index.group = None
        assert (root.child(68).kind, root.result.entry(root, 69).kind, len(root)) == ("bytes", "rest", 70)


def test_the_way_down_costs_what_it_is_long():
    def calls(depth):
        value = b"x"
        for _ in range(depth):
            value = [value]
        count = 0
        with pparse.open(document(value), parsers=[Records], format="records") as doc:
            step_to = doc.parse().parser.step_to

            def counting(*arguments):
                nonlocal count
                count += 1
                return step_to(*arguments)

            doc.parse().parser.step_to = counting
            node = doc.root
            for _ in range(depth):
                node = node.child(0)
            assert node.depth == depth
        return count

    assert calls(400) <= 2 * calls(200) + 10
