"""The pickle parser against `pickle`: plain data of every kind, shared and in cycles, by every pickler and protocol."""

from __future__ import annotations

import io
import pickle
import random
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import MalformedError
from pparse.parsers.pickle import reading
from pparse.parsers.pickle.parser import PickleParser
from pparse.parsers.pickle.values import Call, Extension, Global, OutOfBand, Persistent
from tests import sweep
from tests.pickle_samples import WAYS, dump, each, frozen, objects, old, plain, shared_and_cyclic
from tests.rows import rows

LEAVES = [None, True, 1, -5, 1 << 70, "a", "b" * 300, b"x", b"y" * 300, 1.5, (), (1, 2), frozenset((1, "z")), 1j]
BLOCKS = (0, 1, 7)

_atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 2100), 1 << 2100)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=20)
    | st.complex_numbers()
)
_keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5).map(tuple),
    max_leaves=4,
)
_values = st.recursive(
    _atoms | st.binary(max_size=9).map(bytearray) | st.sets(_keys, max_size=4) | st.frozensets(_keys, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(_keys, inner, max_size=5)
        | st.lists(st.tuples(_keys, inner), max_size=4).map(OrderedDict)
    ),
    max_leaves=25,
)


def opened(content: bytes, block: int = 0) -> Any:
    """Open a pickle."""
    return pparse.open(content, parsers=[PickleParser], format="pickle", block_size=block)


def by_nodes(node: Any) -> Any:
    """Return the value of a node, made of the values of its children."""
    if node.shape == "scalar":
        return node.load()
    if node.kind == "dict":
        return {kid.key: by_nodes(kid) for kid in node.children()}
    kids = [by_nodes(kid) for kid in node.children()]
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[node.kind](kids)


@settings(max_examples=sweep.examples(150))
@given(value=_values, protocol=st.integers(0, 5), way=st.sampled_from(WAYS), block=st.sampled_from(BLOCKS))
def test_plain_data_are_what_pickle_makes(value: Any, protocol: int, way: str, block: int) -> None:
    content = dump(value, protocol, way)
    with opened(content, block) as document:
        assert frozen(document.root.to_python()) == frozen(pickle.loads(content))
        for node in each(document.root):
            assert node.status is pparse.Status.COMPLETE, node
            if node.shape == "scalar":
                node.load()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("way", ["C", "Python", "optimized"])
def test_what_is_shared_and_what_holds_itself_is_so(protocol: int, way: str) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        content = dump(shared_and_cyclic(chance, LEAVES, chance.randrange(12)), protocol, way)
        with opened(content, chance.choice(BLOCKS)) as document:
            assert frozen(document.root.to_python()) == frozen(pickle.loads(content)), seed
            for _, node in zip(range(200), each(document.root), strict=False):
                assert node.status is pparse.Status.COMPLETE, (seed, node)
                if node.shape == "scalar":
                    node.load()


@pytest.mark.parametrize("protocol", range(6))
def test_all_types_by_to_python_and_by_nodes(protocol: int) -> None:
    value = plain()
    del value["cycle"], value["shared"], value["ordered"], value["sets"], value["dict"]
    with opened(dump(value, protocol)) as document:
        assert frozen(document.root.to_python()) == frozen(pickle.loads(dump(value, protocol)))
        assert frozen(by_nodes(document.root)) == frozen(value)
        assert frozen(document.root["text"].to_python()) == frozen(value["text"])
        assert document.root["ints"].child(4).load() == 65_536


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("way", ["C", "Python"])
def test_a_large_list_and_dict(protocol: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3_000
    if (protocol, way) == (4, "C"):  # so many that not the place of each is kept
        count = 110_000 if sweep.full else 6_000
        monkeypatch.setattr("pparse.tree.index.DENSE_LIMIT", count // 2)
    value = {"list": [f"item {nth}" for nth in range(count)], "dict": {f"k{nth}": (nth, [nth]) for nth in range(count)}}
    with opened(dump(value, protocol, way)) as document:
        listed, mapped = document.root["list"], document.root["dict"]
        assert len(list(listed.children())) == count
        for nth in (0, 63, 64, 999, 1000, 1001, count // 2, count - 1):
            assert listed.child(nth).load() == f"item {nth}"
            assert mapped.child(nth).key == f"k{nth}"
            assert mapped.child(nth).to_python() == (nth, [nth])
        assert mapped[f"k{count - 7}"].to_python() == (count - 7, [count - 7])
        assert mapped.find("none") is None


def test_several_pickles_are_a_list() -> None:
    values = [plain(), "text", [1], {}]
    with opened(
        b"".join(dump(value, protocol) for value, protocol in zip(values, (2, 3, 4, 5), strict=True))
    ) as document:
        assert document.root.kind == "pickles"
        assert frozen([kid.to_python() for kid in document.root.children()]) == frozen(
            [pickle.loads(dump(value, 4)) for value in values]
        )


def test_pickles_of_python_2_and_by_hand() -> None:
    made = {}
    for name, content in old().items():
        with opened(content) as document:
            made[name] = document.root.to_python()
            assert not [finding for finding in document.check() if finding.severity is pparse.Severity.ERROR], name
    assert made["python2-text"] == {
        "weights": [1.5, 7, True, 5],
        "name": "it's",
        "k€": [1.5, 7, True, 5],
        b"\xff": None,
    }
    assert made["python2-binary"] == {"name": "abc", b"\xff\xfe": [1, "abc"], "xyz": [1, "abc"]}
    one, two = made["old-classes"]["a"], made["old-classes"]["b"]
    assert (one.name, one.args, one.state) == ("collections.Thing", (), {"x": 1})
    assert (two.name, two.args, two.state) == ("__main__.Old", (1, 2), {"y": 2})
    first, second, third = made["persistent"]
    assert (first.id, second.id) == ("name", ("id", 7))
    assert isinstance(third["k"], Persistent)
    *codes, call = made["extensions"]
    assert [code.code for code in codes if isinstance(code, Extension)] == [7, 263, 16_843_015]
    assert isinstance(call, Call)
    assert (call.state, call.items) == ({1: 2}, [])
    assert isinstance(made["buffers"][0], OutOfBand)
    assert made["numbers"][3:] == [5, made["numbers"][2], made["numbers"][2]]


def test_an_ordered_dict_of_python_2_is_made_of_lists() -> None:
    content = b"\x80\x02]q\x00(ccollections\nOrderedDict\nq\x01](]q\x02(U\x01aK\x01e]q\x03(U\x01bK\x02ee\x85q\x04Rq\x05h\x01)Rq\x06U\x01cK\x03se."  # noqa: E501
    with opened(content) as document:
        assert frozen(document.root.to_python()) == frozen([OrderedDict(a=1, b=2), OrderedDict(c=3)])
        first, second = document.root.children()
        assert first["args"].child(0).child(1).to_python() == ["b", 2]
        assert second["c"].load() == 3


def test_what_is_taken_from_the_stack_again() -> None:
    with opened(b"\x80\x02](K\x01K\x02200(K\x03K\x041K\x05N0e.") as document:
        assert document.root.to_python() == [1, 5]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("way", ["C", "Python", "optimized"])
def test_objects_are_calls(protocol: int, way: str) -> None:
    with opened(dump(objects(), protocol, way)) as document:
        kept, named, thing, new, setter, inside, length, kind, again, once_more, span, number = (
            document.root.to_python()
        )
        assert (kept.items or kept.args[2]) == [1, "two", [3]]
        assert kept.state == {"note": {"of": "kept"}}
        assert (dict(named.pairs) or named.args[2]) == {"a": 1, "b": [2]}
        assert named.state["note"] is kept
        assert again is kept
        assert once_more is thing
        assert thing.state["me"] is thing
        assert thing.state["shape"] == (2, 3)
        assert new.state["own"] is new
        assert isinstance(setter, Call)
        assert inside[0][0] is inside
        assert (str(length).rpartition(".")[2], str(kind)) == ("len", "tests.pickle_samples.Thing")
        assert isinstance(length, Global)
        assert (span.args, number) == ((0, 3, 1), 1j)
        assert document.root.child(2)["state"]["shape"].to_python() == (2, 3)
        if protocol < 2:
            return  # the items are an argument of copyreg._reconstructor
        assert [kid.load() for kid in document.root.child(0)["items"].children() if kid.shape == "scalar"] == [1, "two"]
        assert document.root.child(1)["pairs"]["a"].load() == 1


def test_buffers_outside_of_the_pickle_are_named() -> None:
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5, buffer_callback=lambda buffer: False)
    pickler.dump([pickle.PickleBuffer(b"out of band")])
    with opened(out.getvalue()) as document:
        assert isinstance(document.root.to_python()[0], OutOfBand)
        assert document.root.child(0).kind == "buffer"


def test_in_a_cut_pickle_the_entries_of_a_group_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value that is cut is kept apart from the others: a group without it is whole nevertheless."""
    content = pickle.dumps({f"key{number}": number for number in range(60)}, 0)
    calls: list[int] = []
    entries = PickleParser.entries
    monkeypatch.setattr(
        PickleParser, "entries", lambda self, node, *where: calls.append(node.start) or entries(self, node, *where)
    )
    with pparse.open(content[:-5]) as document:
        paths = [node.path for node in document.root.children()]
        assert len(paths) > 55
        assert paths[:2] == ["key0", "key1"]
    assert len(calls) <= 3
    calls.clear()
    with pparse.open(pickle.dumps([{"a": number, "b": str(number)} for number in range(300)])) as document:
        assert sum(1 for _ in document.walk()) == 901
        assert len(calls) <= 300 // 64 + 1  # the dicts tell their entries when they are indexed
        calls.clear()
    with pparse.open(pickle.dumps([{"a": number, "b": [number]} for number in range(300)])) as document:
        assert list(document.check()) == []
        assert len(calls) <= 300 // 64 + 1
        assert document.root.child(7).index is None  # nothing is indexed of what is whole


def test_what_check_finds_at_once_is_what_the_nodes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(content: bytes) -> list[str]:
        with pparse.open(content, format="pickle") as document:
            return [*map(str, document.check()), str(document.status)]

    value = [{"a": (1, {"b": "text", 2: {3, "x"}}), "c": [None, b"\0" * 300]}, [[]], OrderedDict(d=1), complex(1, 2)]
    nodes = "pparse.parsers.pickle.parser.PickleParser.is_sound_inside"
    for protocol in (0, 2, 4):
        content = pickle.dumps(value, protocol)
        for at in sweep.some(range(len(content)), 2):
            for byte in (content[at] ^ 0x80, content[at] ^ 1, 0x62):
                damaged = content[:at] + bytes((byte,)) + content[at + 1 :]
                found = said(damaged)
                with monkeypatch.context() as slowly:
                    slowly.setattr(nodes, lambda *_: None)
                    slowly.setattr(
                        nodes.replace("is_sound_inside", "children_in_doubt"), lambda _, node: node.children()
                    )
                    assert said(damaged) == found, damaged


@pytest.mark.parametrize("protocol", range(6))
def test_a_tuple_that_begins_with_a_value_that_is_filled(protocol: int) -> None:
    """Its first opcode is that of the value, and a large value behind it parts what is read at once."""
    for first in ({"a": 1, "b": 2}, [1, 2], {1: {2: 3}}, {1, 2}, OrderedDict(a=1)):
        for more in ([], ["x" * 400], ["x" * 200, "y" * 300], [b"z" * 70_000, "x" * 400]):
            for value in ((first, *more), [(first, *more)], {"k": (first, *more, 1)}):
                with pparse.open(pickle.dumps(value, protocol), format="pickle") as document:
                    assert [str(finding) for finding in document.check()] == []
                    found = document.root.to_python()
                    assert frozen(found) == frozen(value)


def test_a_protocol_or_frame_that_python_refuses_is_told() -> None:
    whole = pickle.dumps(["abc", 1], 4)
    length = int.from_bytes(whole[3:11], "little")
    for code, content in (
        ("protocol", b"\x80\x0a" + whole[2:]),
        ("frame", whole[:3] + (length + 1).to_bytes(8, "little") + whole[11:]),
    ):
        with pytest.raises((ValueError, pickle.UnpicklingError)):
            pickle.loads(content)
        with pparse.open(content, format="pickle") as document:
            assert document.root.to_python() == ["abc", 1]
            assert [finding.code for finding in document.check()] == [code]


def test_the_uppermost_value_is_the_one_that_counts() -> None:
    for content in (b"I1\nI2\n.", b"\x80\x04]q\x00K\x01a(K\x02."):
        with pparse.open(content, format="pickle") as document:
            assert document.root.value == pickle.loads(content) == 2
            assert [finding.code for finding in document.check()] == ["unused"]
            assert document.status is pparse.Status.COMPLETE
    with pparse.open(b"I1\n(.", format="pickle") as document:
        assert document.status is pparse.Status.DAMAGED


@rows("opcode", [b"\x82\x62", b"\x83\x62\1", b"\x84\x62\1\2\0"])
def test_a_class_that_is_named_by_a_code_is_told(opcode: bytes) -> None:
    """Its name is in a registry of the program that wrote the pickle, and no other one reads it (PEP 307)."""
    with pparse.open(b"\x80\2]" + opcode + b")Ra.", format="pickle") as document:
        (name, found) = (document.result.listing.globals(), list(document.check()))
        assert [(finding.code, finding.offset) for finding in found] == [("extension", 3), ("unknown-code", 3)]
        assert [use.name for use in name] == [f"extension {int.from_bytes(opcode[1:], 'little')}"]
        assert document.status is pparse.Status.COMPLETE
    refused = b"\x80\2" + opcode[:1] + bytes(len(opcode) - 1) + b"."
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(refused)
    with pparse.open(refused, format="pickle") as document:
        assert document.status is pparse.Status.DAMAGED


@pytest.mark.parametrize("protocol", [1, 2, 4, 5])
def test_what_was_filled_before_the_cut_is_closed(protocol: int) -> None:
    """An inner dict that has its items takes no more: what follows belongs to the outer one."""
    inner = {"a": 1, "b": [1, 2], "c": {"d": "text" * 20}}
    value = {"one": dict(inner), "list": [dict(inner), dict(inner)], "x": {"x": 1}, "z": 3, "last": "l" * 50}
    content = pickle.dumps(value, protocol)
    whole = leaves(content)
    for cut in range(len(content) // 4, len(content)):
        for path, found in leaves(content[:cut]).items():
            assert whole.get(path) == found, (cut, path)
    cut = pickle.dumps({"z": ({"k": 1}, {"m": 2}, 3), "y": 1}, protocol)
    with pparse.open(cut[: cut.index(b"m") + 3], format="pickle") as document:
        assert [(kid.key, kid.kind) for kid in document.root.children()] == [("z", "unfinished")]  # no dict is a key


def test_a_mark_that_damage_makes_a_part_is_shown_as_one() -> None:
    """A call that takes a mark for what it calls has its arguments where they are; what a mark opens has none."""
    with pparse.open(b"\x80\x02(K\x05\x85R.", format="pickle") as document:
        parts = [(kid.key, kid.kind, kid.start) for kid in document.root.children()]
        assert parts == [("callable", "unfinished", 2), ("args", "tuple", 3)]
        assert [finding.reason for finding in document.check()] == ["an opcode takes a mark for a value"]
    with pparse.open(b"\x80\x02(cbuiltins\nint\no.", format="pickle") as document:
        assert [(kid.key, kid.kind) for kid in document.root.children()] == [("callable", "global")]


def leaves(content: bytes) -> dict[tuple[Any, ...], Any]:
    """Return the scalars that are whole, by the keys that lead to them, without those of what has no name yet."""
    found, stack = {}, []
    with pparse.open(content, format="pickle") as document:
        stack.append(((), document.root))
        while stack:
            path, node = stack.pop()
            if node.shape == "scalar" and node.status is pparse.Status.COMPLETE:
                found[path] = node.value
            elif node.shape != "scalar" and node.kind != "unfinished":
                stack += [((*path, kid.ordinal if kid.key is None else kid.key), kid) for kid in node.children()]
    return found


def test_a_large_container_of_small_values_is_scanned_once_and_decoded_in_stretches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its opcodes are read by `scan` once; `check` makes no nodes of what is whole, and one of what is not."""
    content = pickle.dumps([{"a": number, "b": str(number)} for number in range(3000)], 4)
    scanned: list[int] = []
    inner = reading.scan

    def counted(buf: bytes, i: int, *rest: Any) -> tuple[int, int]:
        end, why = inner(buf, i, *rest)
        scanned.append(end - i)
        return end, why

    monkeypatch.setattr(reading, "scan", counted)
    with pparse.open(content) as document:
        assert list(document.check()) == []
        assert sum(scanned) <= len(content)
        assert len(list(document.parse().check())) == 0
        assert document.root.child(2999).to_python() == {"a": 2999, "b": "2999"}
        assert sum(scanned) <= len(content)
    damaged = content.replace(b"2500", b"\xff500")
    with pparse.open(damaged) as document:
        assert [finding.reason for finding in document.check()] != []
        assert document.root.child(2499).to_python() == {"a": 2499, "b": "2499"}


def test_nothing_is_duplicated_across_a_mark() -> None:
    """DUP finds nothing above a mark, as in CPython's own unpickler (`Pdata`, its fence)."""
    with pparse.open(b"\x80\x04](K\x01(2te.") as document:
        assert document.root.child(0).load() == 1
        with pytest.raises(MalformedError):
            document.root.to_python()
    with pparse.open(b"\x80\x04]2K\x01a.") as document, pytest.raises(pparse.UnsupportedError, match="DUP takes"):
        document.root.to_python()


@rows("value", [[*range(20_000)], tuple(range(20_000)), {f"k{number}": [number] for number in range(20_000)}])
def test_parts_that_are_too_many_to_keep_are_read_again(value):
    with pparse.open(pickle.dumps(value), format="pickle", budget=4 << 20) as doc:
        root = doc.parse().root
        last = root.child(19_999)
        assert [kid.to_python() for kid in root.children()] == [*(value.values() if root.shape == "map" else value)]
        assert (last.key, root.index.note.memory) == (None if root.shape == "list" else "k19999", 0)
