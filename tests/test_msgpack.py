"""MessagePack: values of every type, keys, streams, laziness, hostile input."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import islice
from struct import pack

import pytest

import pparse
from pparse import EndOfDataError, LimitError, MalformedError, OptionError, PparseError, Status
from pparse.data.base import BytesData
from pparse.kernels.msgpack_skip import skip, sound
from pparse.limits import Limits
from pparse.parsers.msgpack.parser import Timestamp, pass_sound
from pparse.tree import engine
from tests import sweep
from tests.msgpack_samples import EVERYTHING, Raw, encode, ext, pairs
from tests.rows import rows


def opened(content: object, **more: object):
    return pparse.open(content, format="msgpack", **more)  # type: ignore[arg-type]


def test_every_type_has_its_kind_and_value() -> None:
    with opened(EVERYTHING) as document:
        numbers = [*(0, 127, 128, 255, 256, 65535, 65536, 1 << 32, (1 << 64) - 1)]
        numbers += [-1, -32, -33, -129, -40000, -(1 << 40)]
        assert document.node("numbers").to_python() == numbers
        assert {kid.kind for kid in document.node("numbers").children()} == {"int"}
        assert document.node("floats").to_python() == [1.5, 0.25, float("inf")]
        assert [kid.kind for kid in document.node("floats").children()] == ["float64", "float32", "float64"]
        assert document.node("constants").to_python() == [None, True, False]
        assert document.node("texts").to_python() == ["", "é", "x" * 40, "y" * 260]
        assert document.node("bytes").to_python() == [b"", b"\x00\xff", b"z" * 9]
        kinds = [kid.kind for kid in document.node("extensions").children()]
        assert kinds == ["ext(5)", "ext(-7)", "ext(1)", "ext(2)", "ext(3)"]
        assert document.node("extensions").to_python() == [b"", b"abc", b"d", bytes(16), bytes(9)]
        assert document.get("wide.k15") == 15
        assert document.get("deep[0][0][0][0][0]") == "bottom"


def test_timestamps_have_nanoseconds() -> None:
    with opened(EVERYTHING) as document:
        times = document.node("times").to_python()
    assert times == [Timestamp(1), Timestamp(1 << 33, 999_999_999), Timestamp(-1, 5)]
    assert [str(found) for found in times] == [
        "1970-01-01T00:00:01Z",
        "2242-03-16T12:56:32.999999999Z",
        "1969-12-31T23:59:59.000000005Z",
    ]
    assert times[2].to_datetime() == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert str(Timestamp(1 << 60, 7)) == f"1970-01-01T00:00:00Z +{1 << 60} s + 0.000000007"


@pytest.mark.parametrize("payload", [b"", b"12345", pack(">Q", 10**9 << 34), pack(">Iq", 10**9, 0)])
def test_a_wrong_timestamp_is_damaged_and_nothing_around_it(payload: bytes) -> None:
    with opened(encode([1, ext(-1, payload), 2])) as document:
        assert [finding.code for finding in document.check()] == ["malformed"]
        kids = list(document.root.children())
        assert (kids[0].load(), kids[1].status, kids[2].load()) == (1, Status.DAMAGED, 2)
        with pytest.raises(MalformedError):
            kids[1].load()


def test_keys_of_any_type_lead_to_their_values() -> None:
    with opened(EVERYTHING) as document:
        node = document.node("keys")
        paths = ["keys[1]", 'keys[b"b"]', "keys[#2]", "keys[#3]", "keys[#4]", "keys[true]"]
        assert [kid.path for kid in node.children()] == paths
        values = ["int", "bytes", "nil", "float", "array", "bool"]
        assert [document.get(path) for path in paths] == values
        plain = node.to_python()
        assert plain == {1: "int", b"b": "bytes", None: "nil", 1.5: "float", (1, 2): "array", "True#2": "bool"}
        assert document.get("twice.k") == 1
        assert document.get("twice.k#2") == 2
        assert document.node("twice").to_python() == {"k": 1, "k#2": 2}


def test_a_long_key_and_one_that_holds_containers_are_passed_over() -> None:
    deep = Raw(b"\x91" * 5000 + b"\xc0")
    content = encode(pairs(("n" * 5000, "first"), (deep, [2]), (b"x" * 70_000, 3), ("last", 4)))
    for size in (0, 1, 7):
        with opened(content, block_size=size) as document:
            assert [kid.key for kid in document.root.children()] == [None, None, None, "last"]
            assert list(document.root.to_python().values()) == ["first", [2], 3, 4]
            assert len(document.root.to_python()) == 4
    with opened(content[:-1]) as document:
        assert document.status is Status.TRUNCATED


def test_a_text_that_is_not_utf8_is_damaged_and_read_as_bytes() -> None:
    long = b"\xdb" + pack(">I", 300_000) + b"a" * 299_999 + b"\xff"
    content = encode(["ok", Raw(b"\xa2\xc3("), Raw(long), "end"])
    with opened(content) as document:
        found = [(finding.path, finding.code, finding.offset) for finding in document.check()]
        assert found == [("[1]", "malformed", 5), ("[2]", "malformed", len(content) - 5)]
        assert document.get("[0]") == "ok"
        assert document.get("[3]") == "end"
        for number in (1, 2):
            with pytest.raises(MalformedError):
                document.get(f"[{number}]")
        assert document.node("[1]").open().read() == b"\xc3("
    with opened(encode(pairs((Raw(b"\xa2\xc3("), 1)))) as document:
        assert list(document.root.keys()) == [b"\xc3("]


@rows(
    "content, is_old",
    [
        ({"w": Raw(b"\xda\0\x28" + b"\x80" * 40), "s": Raw(b"\xa1\xff")}, True),  # a length that str8 is for
        ({"w": Raw(b"\xdb\0\1\0\0" + b"\x80?\0\xfe" * (1 << 14)), "k": "text"}, True),  # no text at all
        ({"w": Raw(b"\xda\0\x28" + b"\x80" * 40), "s": b"bin"}, False),
        (
            {
                "w": Raw(b"\xda\0\x28" + b"\x80" * 40),
                "k": "text",
                1: Raw(b"\xda\0\x28" + b"\x80" * 40),
                2: Raw(b"\xda\0\x28" + b"\x80" * 40),
                3: b"bin",
            },
            True,
        ),  # what is new is of damage
        ({"w": Raw(b"\xda\1\1" + b"a" * 256 + b"\xff")}, False),  # a changed byte
        ([*([0] * 10_000), Raw(b"\xda\0\x28" + b"\x80" * 40)], False),  # farther than is looked
    ],
)
def test_a_raw_of_before_2013_is_bytes_and_told_once(content: object, is_old: bool) -> None:
    with opened(encode(content), block_size=64) as document:
        assert [finding.code for finding in document.check()] == ["old-raw" if is_old else "malformed"]
        if is_old:
            assert type(document.get("w")) is bytes
            assert document.get(list(content)[1]) in (b"\xff", "text")  # type: ignore[call-overload]
            assert document.status is Status.COMPLETE


def test_a_text_across_blocks_is_checked_once() -> None:
    for size in (127_990, 128 << 10, 400_000):
        text = "é" * (size // 2)
        with opened(encode([Raw(b"\xc4\x03abc"), text, text + "x", ext(-1, pack(">I", 1))])) as document:
            assert not list(document.check())
        broken = text.encode()[:-1] + b"a"
        with opened(encode([Raw(b"\xdb" + pack(">I", len(broken)) + broken)])) as document:
            assert [finding.offset for finding in document.check()] == [6 + len(broken) - 2]


def test_a_small_container_of_a_walk_is_read_to_its_first_child_and_on_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []
    run = engine.run
    monkeypatch.setattr("pparse.tree.result.run", lambda ctx, parser: runs.append(ctx.node.start) or run(ctx, parser))
    with opened(encode([{"a": number, "b": "x"} for number in range(100)])) as document:
        assert sum(1 for _ in document.walk()) == 301
        assert len([start for start in runs if start]) <= 200


def test_values_one_after_the_other_are_a_stream() -> None:
    content = encode({"identifier": 1}) + encode([2]) + encode("three")
    with opened(content) as document:
        assert document.root.kind == "stream"
        assert document.root.to_python() == [{"identifier": 1}, [2], "three"]
        assert document.get("[0].identifier") == 1
    with opened(content[:-1]) as document:
        assert document.root.status is Status.TRUNCATED
        assert document.get("[1][0]") == 2
    with opened(encode(7)) as document:
        assert document.root.to_python() == [7]
    with opened(content, options={"documents": "one"}) as document:
        assert document.get("identifier") == 1
        assert [finding.code for finding in document.check()] == ["trailing-data"]
    with opened(encode({"identifier": 1}) + encode(7)) as document:  # rather what damage left of the map
        assert (document.root.kind, [finding.code for finding in document.check()]) == ("map", ["trailing-data"])
    with opened(b"") as document:
        assert document.status is Status.TRUNCATED
    with pytest.raises(OptionError):
        opened(content, options={"documents": "two"}).root  # noqa: B018


def test_a_long_first_value_is_not_passed_over_to_look_for_a_second() -> None:
    content = encode({"identifier": list(range(3000))}) * 1
    long = encode({"long": ["x" * 1000] * 2000})
    data = BytesData(long + content)
    with opened(data) as document:
        assert document.root.kind == "map"
        assert data.stats.bytes < 2 << 20
        assert [finding.code for finding in document.check()] == ["trailing-data"]
    with opened(long + content, options={"documents": "many"}) as document:
        assert len(document.root) == 2


def test_what_means_nothing_damages_from_there_on() -> None:
    content = encode({"a": [1, 2], "b": [3, Raw(b"\xc1"), 4], "c": 5})
    with opened(content) as document:
        assert document.node("a").to_python() == [1, 2]
        assert document.get("b[0]") == 3
        assert document.node("b").status is Status.DAMAGED
        assert document.root.status is Status.DAMAGED
        assert "there is no type 0xc1" in [finding.reason for finding in document.check()]


@pytest.mark.parametrize(
    "content",
    [
        b"\xdd\xff\xff\xff\xff\x01\x02\x03\x04\x05",
        b"\xdf\xff\xff\xff\xff\xa1a\x01",
        b"\xc6\xff\xff\xff\xff1234",
        b"\xdb\xff\xff\xff\xff1234",
        b"\xc9\xff\xff\xff\xff\x011234",
        b"\x92" + b"\xdd\xff\xff\xff\xff" * 500,
        b"\xdf\xff\xff\xff\xff" * 500,
        b"\x81\xdb\xff\xff\xff\xff",
        b"\x81\xdd\xff\xff\xff\xff",
        b"\xdc\xff",
    ],
)
def test_claims_without_bytes_behind_them_are_cut_and_nothing_is_allocated(content: bytes) -> None:
    with opened(content, budget="1MiB") as document:
        try:
            assert list(document.check())
            for visit in document.walk():
                assert visit.status is not Status.COMPLETE or visit.shape == "scalar"
        except LimitError:
            pass
        assert document.root.known_status in (Status.TRUNCATED, Status.DAMAGED)
        assert document.session.budget.peak <= 1 << 20


@pytest.mark.parametrize("level", [b"\x91", b"\x92\x01", b"\x81\x01", b"\x81\xa1k"])
def test_levels_without_end_are_passed_over_in_linear_time(level: bytes) -> None:
    depth = sweep.scaled(300_000, 3)
    # Each of the levels that are shown is passed over once.
    limits = Limits() if sweep.full else Limits(depth=250)
    started = time.process_time()
    with opened(b"\x93\xa5first" + level * depth + b"\xc0" + b"\x07", limits=limits) as document:
        assert [kid.kind for kid in document.root.children()][0::2] == ["str", "int"]
        assert document.get("[2]") == 7
        codes = {finding.code for finding in document.check()}
    assert codes <= {"limit"}
    assert time.process_time() - started < (60 if sweep.full else 2)


def test_first_values_inside_of_each_other_take_time_by_their_number() -> None:
    def seconds(towers: int) -> float:
        tower = b"\x92" * 500 + b"\x01" * 501
        started = time.perf_counter()
        with opened(b"\xdc" + pack(">H", towers) + tower * towers) as document:
            assert sum(1 for _ in document.walk()) == 1 + towers * 1001
        return time.perf_counter() - started

    few = seconds(1)
    assert seconds(4) < 4 * few * 4 + 1


def test_listing_reads_heads_and_no_payloads() -> None:
    content = encode({f"blob{number}": bytes(1 << 20) for number in range(16)})
    data = BytesData(content)
    with opened(data) as document:
        assert len(document.root) == 16
        assert data.stats.bytes < 300_000
        assert not list(document.check())
        assert data.stats.bytes < 4 << 20


def test_runs_of_numbers_are_found_at_once_and_read_alone() -> None:
    mixed = [1.5] * 1000 + [0.25, None] * 40 + list(range(70_000, 90_000)) + [1.5] * 120_000 + ["end"]
    data = BytesData(encode(mixed))
    with opened(data) as document:
        assert len(document.root) == len(mixed)
        before = data.stats.bytes
        assert document.get(f"[{len(mixed) - 1}]") == "end"
        assert document.get("[1001]") is None
        assert document.get("[50000]") == 1.5
        assert data.stats.bytes - before < 100_000
        assert list(document.root.to_python()) == mixed


def test_every_cut_gives_what_comes_before_it() -> None:
    content = encode({"identifier": 1, "list": [1, "two", b"three"], "last": "text"})
    with opened(content) as document:
        leaves = [(visit.path, visit.end) for visit in document.walk() if visit.shape == "scalar"]
    for size in range(1, len(content)):
        with opened(content[:size]) as document:
            for path, end in leaves:
                if end < size:
                    assert document.get(path) is not None
                elif end > size:
                    with pytest.raises((PparseError, EndOfDataError)):
                        document.get(path)
            assert document.root.status is Status.TRUNCATED


def test_recognised_by_content_with_good_evidence_only() -> None:
    for content in (
        encode({"identifier": 1}),
        encode([{"identifier": 1}] * 3),
        encode({"a": 1}),
        encode({"model_config": {"x": bytes(5000)}, "b": 1}),
    ):
        with pparse.open(content) as document:
            assert document.format == "msgpack", content[:20]
    for content in (encode([1, 2, 3]), b"\x81\x01\x02", b"\x85\xa1a", b"\xdc\x00\x01\x05", bytes(range(128, 256)) * 9):
        with pytest.raises(PparseError):
            pparse.open(content).format  # noqa: B018
    with pparse.open(BytesData(encode([1, 2, 3]), name="numbers.msgpack")) as document:
        assert document.format == "msgpack"


def test_the_first_of_many_children_come_without_the_rest() -> None:
    data = BytesData(encode([{"identifier": number, "text": "x" * 200} for number in range(20_000)]))
    with opened(data, options={"documents": "one"}) as document:
        kids = list(islice(document.root.children(), 10))
        assert [kid["identifier"].load() for kid in kids] == list(range(10))
        assert data.stats.bytes < 200_000


def test_a_key_that_is_no_text_though_it_says_so_is_an_error():
    with pparse.open(b"\x82\xa3\x80ab\x00\xa1b\x01", format="msgpack") as document:
        assert [finding.offset for finding in document.check()] == [1]
        assert [kid.key for kid in document.root.children()] == [b"\x80ab", "b"]
    with pparse.open(b"\x81\xc4\x01\x80\x00", format="msgpack") as document:  # bytes may be anything
        assert list(document.check()) == []


def test_what_check_says_in_one_pass_is_what_the_nodes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(content: bytes) -> list[str]:
        with opened(content) as document:
            return [*map(str, document.check()), str(document.status)]

    values = [*range(40), 1.5, "x" * 31, "é" * 9, "y" * 300, ext(-1, bytes(4)), b"\xff" * 9, {"k": ["", "z" * 40]}]
    content = encode([*values, {"a": values, "b": values}])
    for block in (1 << 17, 64, 61):  # values across the ends of blocks
        monkeypatch.setattr("pparse.parsers.msgpack.parser._BLOCK", block)
        for at in sweep.some(range(len(content)), 40):
            for byte in (0xFF, 0xC1, content[at] ^ 4):
                damaged = content[:at] + bytes((byte,)) + content[at + 1 :]
                found = said(damaged)
                with monkeypatch.context() as slowly:
                    slowly.setattr(
                        f"{pass_sound.__module__}.pass_sound", lambda _, at, end, pending, *__, **___: (at, pending)
                    )
                    assert said(damaged) == found, damaged
    for many in (content, content * 3):
        with opened(many) as document:
            parser, is_stream = document.result.parser, many != content
            assert pass_sound(parser, 0, len(many), 3 if is_stream else 1, 61, is_known=True) == (len(many), 0)
            assert list(document.check()) == []
            assert (document.root.index is None) != is_stream


@rows(
    "values",
    [
        [1.5] * 40 + [2, 3.5, "a"],
        [*[1.5] * 14, 1, *[1.5] * 15, 2, *[1.5] * 16, 3, 1 << 20, 1 << 10, -300],
        [200, 200, 70_000, -(1 << 40), 1 << 63] * 9,
        ["", "a" * 31, "é", "b" * 31, "c" * 40, {"k": [1.25, "x"], "": {}}] * 4,
        [[[[[[[]]]]]], {"a": {"b": {"c": [[], 0.5]}}}, b"xyz", ext(5, b"\xcb\xcb")] * 3,
        [{"id": number, "v": [number / 7] * (number % 5)} for number in range(60)],
        [[7] * 20, {f"k{number}": number for number in range(20)}],
    ],
)
def test_sound_values_are_passed_over_as_any_are(values: list[object]) -> None:
    block = encode(values) + encode(values)
    for pending in (1, 2, 3, 1 << 62):
        behind, left = skip(block, 0, pending, len(block))
        assert sound(block, 0, pending) == (behind, left)
    for cut in range(1, len(block)):
        at, left = sound(block[:cut], 0, 2)
        found, missing = skip(block, at, left, len(block))
        assert (found, missing, left > 0 or at > cut) == (len(block), 0, True)


def test_more_children_than_may_be_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pparse.parsers.msgpack.parser._BLOCK", 64)
    for value in ([0] * 301, [1, [0] * 9000], {"a": {str(number): "x" * 30 for number in range(301)}}):
        with opened(encode(value), limits=Limits().replace(entries=300)) as document, pytest.raises(LimitError):
            list(document.check())
    with opened(encode([[0] * 300] * 300), limits=Limits().replace(entries=300)) as document:
        assert list(document.check()) == []


def test_where_an_only_value_ends_is_found_without_reading_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    for module in (skip.__module__, pass_sound.__module__):
        monkeypatch.setattr(f"{module}.skip", lambda *place: passed.append(place[1]) or skip(*place))
    rows_of_text = [{"id": number, "text": "word"} for number in range(3000)]
    with opened(encode(rows_of_text)) as document:
        assert document.root.kind == "array"
        assert list(document.check()) == []
    assert len(passed) < 9  # not value by value
    with opened(encode(["x" * 900_000, 1])) as document:
        assert document.root.kind == "array"
        assert document.session.stats.bytes < 100_000


@rows("count", [63, 64, 65, 200])
@rows("behind", [60, 6000])
def test_a_list_that_is_not_whole_behind_many_keys_hides_none_of_them(count: int, behind: int) -> None:
    """Its path, in what is found, asks which of the same keys it is: while the map is being read."""
    value = {**{f"k{number}": number % 100 for number in range(count)}, "list": [["text"] * 3] * 2000, "z": 1}
    content = encode(value)
    at = content.index(b"list") + behind
    spoiled = content[:at] + b"\xc1" * 6 + content[at + 6 :]
    for data, status in ((content[:at], Status.TRUNCATED), (spoiled, Status.DAMAGED)):
        with opened(data) as document:
            assert any(finding.path.startswith("list") for finding in document.check())
            assert [kid.key for kid in document.root.children()][: count + 1] == [*value][: count + 1]
            assert document.root.find("list").status is status
            assert document.root.find(f"k{count - 1}").load() == (count - 1) % 100


def test_the_same_without_room_for_a_table_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pparse.tree.result.BY_READING", 80)
    monkeypatch.setattr("pparse.tree.result.Result.key_table", lambda *_: None)
    content = encode({**{f"k{number}": 1 for number in range(200)}, "list": [["text"] * 3] * 2000})
    with opened(content[: content.index(b"list") + 6000]) as document:
        assert any(finding.path.startswith("list") for finding in document.check())
        assert len(list(document.root.children())) == 201
