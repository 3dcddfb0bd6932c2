"""What states may ask for: bytes, records, children whose end only their own states can find."""

from __future__ import annotations

import re
from struct import pack

import pytest

import pparse
from pparse import DONE, LIST, MAP, Container, Entry, Listing, MalformedError, Parser, Status
from pparse.errors import EngineError, LimitError
from pparse.testing import FakeData, UnknownSizeData
from pparse.tree.context import Field, Record
from pparse.tree.engine import LAST_BLOCK
from tests import sweep
from tests.small_files import ARRAY, TEXT, UINT32, SmallParser, SmallViewer, array, small_file, text, texts

HEAD = Record(Field("mark", "2s"), Field("count", ">H"), Field("size", ">I", "length"))


class Made(Parser):
    """Runs the state that a test gives it."""

    name = "made"
    description = "made up"
    shapes = {"made": LIST, "inner": LIST}

    def begin(self, ctx):
        return ctx.pos, self.expect_inner if ctx.node.kind == "inner" else self.expect_first, 0

    def expect_first(self, ctx, block, base):
        raise NotImplementedError

    def expect_inner(self, ctx, block, base):
        raise NotImplementedError


def read(source, *states, **more):
    """Open ``source`` with a parser whose first state is the first of ``states``; others go by their names."""
    members = {state.__name__: state for state in states}
    first = states[0].__name__
    parser = type("It", (Made,), {**members, "expect_first": lambda self, *step: getattr(self, first)(*step), **more})
    return pparse.open(source, format="made", parsers=[parser])


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 4096])
def test_a_state_gets_the_bytes_it_takes_whatever_the_blocks(size):
    def state(self, ctx, block, base):
        number, word = ctx.take(">IH")
        raw = ctx.take_bytes(3)
        ctx.skip(2)
        ctx.emit(Entry(None, "it", ctx.pos, ctx.pos, (number, word, raw, ctx.take_text(2))))
        return ctx.pos, DONE, 0

    parser = type("It", (Made,), {"expect_first": state})
    source = pack(">IH", 7, 8) + b"abc??" + "ü".encode()
    with pparse.open(source, format="made", parsers=[parser], block_size=size) as document:
        assert document.root[0].value == (7, 8, b"abc", "ü")
        assert document.root.end == len(source)


def test_children_emitted_before_a_state_needs_more_are_emitted_once():
    runs = []

    def state(self, ctx, block, base):
        runs.append(ctx.pos)
        while not ctx.is_at_end:
            start = ctx.pos
            (value,) = ctx.take(">H")
            ctx.emit(Entry(None, "it", start, ctx.pos, value))
        return ctx.pos, DONE, 0

    parser = type("It", (Made,), {"expect_first": state})
    with pparse.open(pack(">5H", *range(5)), format="made", parsers=[parser], block_size=3) as document:
        assert [node.value for node in document.root.children()] == [0, 1, 2, 3, 4]
    assert runs == sorted(runs)
    assert len(set(runs)) > 1


def test_nothing_is_read_for_bytes_that_cannot_be_there():
    def state(self, ctx, block, base):
        ctx.take_bytes(1 << 50)
        return ctx.pos, DONE, 0

    data = FakeData(bytes(10_000))
    with read(data, state) as document:
        assert document.status is Status.TRUNCATED
        assert sum(length for _, length in data.asked) <= 2 * 10_000


def test_text_that_is_not_utf_8_is_damage_where_it_is():
    def state(self, ctx, block, base):
        ctx.take_text(4, "the name")
        return ctx.pos, DONE, 0

    with read(b"ab\xff\xff", state) as document:
        assert document.status is Status.DAMAGED
        assert [(finding.reason, finding.offset) for finding in document.findings] == [("the name is not UTF-8", 2)]


@pytest.mark.parametrize("wrap", [bytes, UnknownSizeData])
def test_skipping_more_than_there_is_cuts_the_node(wrap):
    def state(self, ctx, block, base):
        ctx.skip(8)
        return ctx.pos, DONE, 0

    for size, status in ((8, Status.COMPLETE), (7, Status.TRUNCATED)):
        with read(wrap(bytes(size)), state) as document:
            assert document.status is status


def test_what_was_emitted_before_damage_stays_and_nothing_comes_twice():
    def state(self, ctx, block, base):
        for _ in range(3):
            start = ctx.pos
            ctx.emit(Entry(None, "it", start, start + 1, *ctx.take("B")))
        raise MalformedError("enough", offset=ctx.pos)

    def resync(self, ctx, error):
        return (ctx.pos + 1, self.after, 0) if ctx.emitted == 3 else None

    def after(self, ctx, block, base):
        ctx.emit(Entry(None, "last", ctx.pos, ctx.pos + 1, *ctx.take("B")))
        return ctx.pos, DONE, 0

    with read(b"\1\2\3\4\5", state, after, resync=resync) as document:
        assert [node.load() for node in document.root.children()] == [1, 2, 3, 5]
        assert document.status is Status.DAMAGED


# -- records ---------------------------------------------------------------------------------------------------------


def test_a_record_has_values_by_name_and_entries_with_their_places():
    def state(self, ctx, block, base):
        head = ctx.emit_record(HEAD)
        assert (head.mark, head.count, head.size) == tuple(head) == (b"HI", 3, 9)
        with pytest.raises(AttributeError, match="no field 'other'"):
            head.other  # noqa: B018 -- looked up to fail
        return ctx.pos, DONE, 0

    with read(b"HI" + pack(">HI", 3, 9), state, shapes={"made": MAP}) as document:
        found = [(node.key, node.kind, node.start, node.end, node.value) for node in document.root.children()]
    assert found == [("mark", "bytes", 0, 2, b"HI"), ("count", "uint16", 2, 4, 3), ("size", "length", 4, 8, 9)]


@pytest.mark.parametrize("wrap", [bytes, UnknownSizeData])
def test_a_record_that_is_cut_shows_the_fields_before_the_cut(wrap):
    def state(self, ctx, block, base):
        ctx.emit_record(HEAD)
        return ctx.pos, DONE, 0

    whole = b"HI" + pack(">HI", 3, 9)
    for size in range(len(whole)):
        with read(wrap(whole[:size]), state, shapes={"made": MAP}) as document:
            assert [node.key for node in document.root.children()] == ["mark", "count"][: (size >= 2) + (size >= 4)]
            assert document.status is Status.TRUNCATED


def test_fields_of_a_record_have_one_byte_order():
    with pytest.raises(ValueError, match="one byte order"):
        Record(Field("a", "<I"), Field("b", ">I"))


# -- children whose end is unknown -----------------------------------------------------------------------------------

WORDS = [f"word{number:05}" for number in range(60_000)]
LARGE = small_file(
    [
        ("words", ARRAY, texts(WORDS)),
        ("lists", ARRAY, array(ARRAY, [texts(WORDS[:9000]), texts(WORDS[9000:])])),
        ("last", UINT32, pack("<I", 7)),
    ],
    {"w": ((4,), 0)},
    bytes(1 << 20),
)
META = len(LARGE) - (1 << 20)


def small(source, **more):
    return pparse.open(source, format="small", parsers=[SmallParser], **more)


JOBS = {
    "the root": lambda document: len(document.root),
    "a walk": lambda document: sum(1 for _ in document.walk()),
    "all values": lambda document: document.node("metadata").to_python(),
    "the last": lambda document: document.get("metadata.last"),
    "a list in a list": lambda document: document.get("metadata.lists[1][50999]"),
    "the end first": lambda document: (document.node("metadata.last"), document.get("metadata.words[59999]")),
}


@pytest.mark.parametrize("job", sweep.part(JOBS))
def test_each_byte_is_read_once(job):
    with small(LARGE) as document:
        JOBS[job](document)
        assert document.session.stats.bytes <= 1.05 * META + 2 * LAST_BLOCK
        assert document.session.budget.peak < 4 << 20


def test_what_the_scan_learned_is_not_read_again():
    with small(LARGE) as document:
        assert len(document.root) == 7
        before = document.session.stats.bytes
        node = document.root["metadata"]
        assert node.end is not None
        assert node.status is Status.COMPLETE
        assert [(kid.key, kid.end is not None, kid.status) for kid in node.children()] == [
            ("words", True, Status.COMPLETE),
            ("lists", True, Status.COMPLETE),
            ("last", True, Status.COMPLETE),
        ]
        assert len(node["words"]) == 60_000
        assert document.session.stats.bytes - before <= 20_000
        assert node["words"][12_345].value == "word12345"
        assert document.session.stats.bytes - before <= 30_000


def test_a_child_that_somebody_holds_is_the_one_that_is_read():
    with small(LARGE) as document:
        metadata = document.root.child(4)
        words = metadata.child(0)
        word = words.child(5)
        assert words.end is None
        assert len(document.root) == 7
        assert words.end is not None
        assert words.child(5) is word
        assert metadata.child(0) is words


def test_the_answers_do_not_depend_on_what_was_read_before():
    orders = [["metadata", "table", "data"], ["data", "table", "metadata"], ["table", "metadata", "data"]]
    found = []
    for order in sweep.sample(orders, 2):
        with small(LARGE) as document:
            answers = {name: document.root[name] for name in order}
            for node in answers.values():
                node.load()
            found.append([(name, node.start, node.end, node.known_status) for name, node in sorted(answers.items())])
    assert all(one == found[0] for one in found)


def test_little_memory_gives_the_same_answers():
    with small(LARGE, budget="1MiB") as document:
        for _ in range(2):
            assert document.get("metadata.lists[1][50999]") == "word59999"
            assert len(document.root) == 7
            assert document.get("metadata.last") == 7
        assert document.session.budget.peak <= 1 << 20


def test_damage_in_a_child_ends_what_is_around_it_where_nothing_says_where_it_ends():
    inner = array(ARRAY, [texts(["x"]), pack("<IQ", 77, 1) + b"????"])
    with small(small_file([("a", ARRAY, inner), ("b", TEXT, text("lost"))])) as document:
        assert document.status is Status.DAMAGED
        lists = document.node("metadata.a")
        assert lists.status is Status.DAMAGED
        assert lists[0].to_python() == ["x"]
        assert [kid.key for kid in document.root["metadata"].children()] == ["a"]
        reasons = [finding.reason for finding in document.check()]
        assert "there is no type 77" in reasons
        assert "where the array ends is not known" in reasons


def test_a_text_that_is_not_utf_8_costs_nothing_around_it():
    source = bytearray(small_file([("a", ARRAY, texts(["x", "y", "z"])), ("b", TEXT, text("kept"))]))
    source[source.index(b"\1\0\0\0\0\0\0\0y") + 8] = 0xFF
    with small(bytes(source)) as document:
        assert [kid.status for kid in document.node("metadata.a").children()] == [
            Status.COMPLETE,
            Status.DAMAGED,
            Status.COMPLETE,
        ]
        with pytest.raises(MalformedError, match="not UTF-8"):
            document.get("metadata.a[1]")
        assert document.get("metadata.b") == "kept"
        assert [finding.reason for finding in document.check()] == ["the text is not UTF-8"]


def test_a_state_that_emits_what_comes_next_goes_on_behind_it():
    def state(self, ctx, block, base):
        while not ctx.is_at_end:
            (length,) = ctx.take("B")
            ctx.emit_next(None, "bytes", length)
        return ctx.pos, DONE, 0

    source = b"".join(bytes([number % 200]) + bytes([7]) * (number % 200) for number in range(300))
    for size in (0, 1, 7, 64, 4096):
        parser = type("It", (Made,), {"expect_first": state})
        with pparse.open(source, format="made", parsers=[parser], block_size=size) as document:
            assert [len(node.load()) for node in document.root.children()] == [number % 200 for number in range(300)]
            assert document.status is Status.COMPLETE


def test_an_interrupted_child_begins_anew():
    runs = []

    def state(self, ctx, block, base):
        if ctx.is_at_end:
            return ctx.pos, DONE, 0
        ctx.emit(Entry(None, "inner", ctx.pos, None, status=None))
        return ctx.behind_child(self.expect_first)

    def expect_inner(self, ctx, block, base):
        for number in range(4):
            ctx.emit(Entry(None, "it", ctx.pos, ctx.pos + 1, *ctx.take("B")))
            runs.append(number)
            if len(runs) == 2:
                raise KeyboardInterrupt
        return ctx.pos, DONE, 0

    with read(bytes(range(12)), state, expect_inner) as document:
        first = document.root.child(0)
        with pytest.raises(KeyboardInterrupt):
            len(document.root)
        assert [kid.to_python() for kid in document.root.children()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert first.to_python() == [0, 1, 2, 3]


def test_what_a_look_up_learned_of_a_list_is_kept_though_nobody_holds_it():
    with small(LARGE) as document:
        for _ in range(2):
            assert document.get("metadata.last") == 7
            assert document.get("metadata.words[59999]") == "word59999"
            assert document.get("metadata.lists[1][50999]") == "word59999"
        assert document.session.stats.bytes < 1.1 * META + 4 * LAST_BLOCK


def test_descending_with_ends_reads_no_level_for_each_other():
    nested = texts(["x"])
    for _ in range(300):
        nested = array(ARRAY, [nested, texts(["y" * 60])])
    with small(small_file([("deep", ARRAY, nested)])) as document:
        node = document.node("metadata.deep")
        for _ in range(300):
            node = node.child(0)
            assert node.end is not None or node.status is Status.COMPLETE
        assert document.session.stats.bytes < 40 * len(nested)


def test_rows_are_the_same_whatever_was_asked_before():
    source = small_file([(f"k{number}", ARRAY, texts(["a"])) for number in range(130)])

    class Pairs(SmallParser):
        name = "small-pairs"
        description = "the pairs alone"

        def begin(self, ctx):
            return (24, self.expect_pair, 0) if ctx.node.parent is None else super().begin(ctx)

    Pairs.child_state = {**SmallParser.child_state, "small-pairs": "expect_pair"}
    Pairs.shapes = {**SmallParser.shapes, "small-pairs": MAP}
    Pairs.root_entry = lambda self: Entry(None, "small-pairs", 0, len(source), status=None, note=130)
    with pparse.open(source, format="small-pairs", parsers=[Pairs]) as document:
        rows = [[(row.name, row.size, row.status) for row in document.result.listing.members()] for _ in range(2)]
        assert rows[0] == rows[1]
        assert {row[1:] for row in rows[0]} == {(9, Status.COMPLETE)}


@pytest.mark.parametrize("count", [1 << 62, (1 << 64) - 1])
def test_a_count_that_cannot_be_is_a_cut(count):
    source = bytearray(LARGE[:META])
    place = source.index(pack("<IQ", TEXT, len(WORDS)))
    source[place + 4 : place + 12] = pack("<Q", count)
    with small(bytes(source)) as document:
        assert document.status in (Status.TRUNCATED, Status.DAMAGED)
        assert document.get("metadata.words[59999]") == "word59999"
        assert document.session.budget.peak < 8 << 20


def test_nesting_is_bounded_and_costs_no_stack():
    def nested(depth):
        return small_file([("deep", ARRAY, pack("<IQ", ARRAY, 1) * (depth - 1) + texts(["x"]))])

    with small(nested(900)) as document:
        assert document.get("metadata.deep" + "[0]" * 900) == "x"
        assert len(document.root) == 7
    with small(nested(100_000)) as document:
        with pytest.raises(LimitError):
            len(document.root)
        assert document.session.stats.bytes < 200_000


def test_a_child_whose_states_emit_nothing_and_end_nowhere_is_an_engine_error():
    def state(self, ctx, block, base):
        ctx.emit(Entry(None, "inner", ctx.pos, None, status=None))
        return ctx.behind_child(self.expect_first)

    def expect_inner(self, ctx, block, base):
        return ctx.pos, self.expect_inner, 0

    with read(b"abc", state, expect_inner) as document, pytest.raises(EngineError):
        len(document.root)


def test_children_without_bytes_are_bounded_by_the_limit_on_entries():
    def state(self, ctx, block, base):
        ctx.emit(Entry(None, "inner", ctx.pos, None, status=None))
        return ctx.behind_child(self.expect_first)

    def expect_inner(self, ctx, block, base):
        return ctx.pos, DONE, 0

    parser = type("It", (Made,), {"expect_first": state, "expect_inner": expect_inner})
    limits = pparse.Limits(entries=1000)
    with pparse.open(b"abc", format="made", parsers=[parser], limits=limits) as document, pytest.raises(LimitError):
        len(document.root)


# -- the three bases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("base", "method"), [(Listing, "members"), (Listing, "details"), (Container, "verify_stream")])
def test_a_method_that_nobody_would_call_is_refused(base, method):
    told = f"{re.escape(__file__)}: It has the name {method}, .* asks of a {base.__name__}: derive it .*another name"
    with pytest.raises(TypeError, match=told):
        type("It", (Made,), {method: lambda self: None})
    type("It", (Made, base), {method: lambda self: None})


def test_a_parser_is_a_listing_only_if_it_says_so():
    with read(b"abc", lambda self, ctx, block, base: (ctx.pos, DONE, 0)) as document:
        assert type(document.result.listing) is Listing
        assert document.result.container is None
        assert list(document.result.listing.members()) == []


# -- a viewer by table -----------------------------------------------------------------------------------------------


def test_a_viewer_by_table_numbers_what_repeats_and_survives_damage():
    registry = pparse.Registry()
    registry.add(SmallParser, SmallViewer)
    long = texts(["w"] * 100)
    pairs = [
        ("n", UINT32, pack("<I", 1)),
        ("n", UINT32, pack("<I", 2)),
        ("n", UINT32, pack("<I", 3)),
        ("long", ARRAY, long),
    ]
    source = small_file([*pairs, ("bad", TEXT, text(b"\xff"))], {"w": ((2,), 0)}, bytes(8))
    with pparse.view(source, registry=registry) as model:
        found = dict(model.metadata)
        assert found.pop("bad").startswith("damaged: ")
        assert found == {"n": 1, "n#2": 2, "n#3": 3, "long": "100 elements"}
        assert list(model) == ["w"]
    for size in sweep.some(range(len(source)), 3, ends=16):
        with pparse.view(source[:size], registry=registry, format="small") as model:
            assert model.status is not Status.COMPLETE
            list(model.metadata)


def test_of_an_array_of_numbers_nothing_is_indexed():
    numbers = array(UINT32, [pack("<I", number) for number in range(200_000)])
    with small(small_file([("numbers", ARRAY, numbers)])) as document:
        node = document.node("metadata.numbers")
        before = document.session.stats.bytes
        assert len(node) == 200_000
        assert (node[199_999].load(), node[7].load()) == (199_999, 7)
        assert document.session.stats.bytes - before <= 8 * LAST_BLOCK
        assert node.index.memory < 100


def test_a_cut_array_of_numbers_has_those_that_exist():
    numbers = array(UINT32, [pack("<I", number) for number in range(100)])
    with small(small_file([("numbers", ARRAY, numbers)])[:-42]) as document:
        node = document.node("metadata.numbers")
        assert [kid.load() for kid in node.children()] == list(range(89))
        assert node.status is pparse.Status.TRUNCATED
