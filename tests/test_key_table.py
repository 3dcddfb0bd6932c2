"""Children by key, where there are too many for a table, and where a table must not be made."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import pparse
from pparse.kernels.varint import encode_varint
from pparse.tree.index import SLICE, KeyTable, key_hash, repeated_hashes

# Of so many keys there is no table in 1 MiB, and numpy sorts their hashes.
MANY = 52_000


@cache
def wide(many: int = MANY) -> bytes:
    """A map of many keys; two of them occur twice."""
    names = [f"key{number}" for number in range(many)]
    names[many - 7], names[many - 3] = "key5", "key40000"
    return ("{" + ",".join(f'"{name}":{number}' for number, name in enumerate(names)) + "}").encode()


@pytest.fixture(autouse=True)
def _thinned_out(monkeypatch):
    """Not the place of each key is kept."""
    monkeypatch.setattr("pparse.tree.index.DENSE_LIMIT", MANY - 2_000)


def test_every_lookup_gives_the_same_answer_where_a_table_has_no_room():
    with pparse.open(wide(), budget="1MiB") as doc:
        root = doc.root
        for _ in range(2):  # the second look-up is the one that makes a table
            assert root[f"key{MANY - 1}"].value == MANY - 1
            assert "no such key" not in root
        assert root.index.table is None
        assert root.find("key5", 2).ordinal == MANY - 7
        assert root.find("key5", 3) is None


def test_paths_and_iteration_need_no_table():
    with pparse.open(wide(), budget="1MiB") as doc:
        root = doc.root
        assert root.child(MANY - 1).path == f"key{MANY - 1}"
        assert root.child(MANY - 7).path == "key5#2"
        names = list(root.load())
        assert len(names) == MANY - 2
        assert names[:2] + names[-2:] == ["key0", "key1", f"key{MANY - 2}", f"key{MANY - 1}"]
        assert root.index.table is None


@pytest.mark.parametrize(("many", "budget", "passes"), [(MANY, "64MiB", 1), (MANY, "1MiB", 2), (105_000, "1MiB", 4)])
def test_repeated_keys_are_found_in_as_many_passes_as_leave_room_for_the_scan(many, budget, passes, monkeypatch):
    """16 bytes a key, beside the index and a quarter of the budget for what reads the keys."""
    with pparse.open(wide(many), budget=budget) as doc:
        root, result = doc.root, doc.parse()
        index = root.index_to(None)
        key_hashes, made = result.parser.key_hashes, []

        def counted(*args):
            made.append(args)
            return key_hashes(*args)

        monkeypatch.setattr(result.parser, "key_hashes", counted)
        assert result.repeated_keys(root) == {key_hash("key5"), key_hash("key40000")}
        assert len(made) == passes
        assert root.index is index  # it was not evicted for this
        assert result.repeated_keys(root) == {key_hash("key5"), key_hash("key40000")}
        assert len(made) == passes


def test_a_path_indexes_no_more_than_leads_to_it():
    text = b'{"a":1,' + b",".join(b'"k%d":[%s]' % (number, b"1," * 400 + b"1") for number in range(5_000)) + b"}"
    with pparse.open(text) as doc:
        assert doc.root.child(200).path == "k199"
        assert not doc.root.index.complete
        assert doc.session.stats.bytes < len(text) // 2


def test_a_table_grows_with_its_index(monkeypatch):
    monkeypatch.setattr("pparse.tree.index.key_hash", lambda key: key)
    rng = random.Random(3)
    hashes = [rng.randrange(1_000) - 500 for _ in range(9_000)]
    whole, grown = KeyTable(hashes), KeyTable()
    at = 0
    while at < len(hashes):
        step = rng.randrange(1, 300)
        grown.extend(hashes[at : at + step])
        at += step
        assert grown.covered == min(at, len(hashes))
    for key in range(-500, 500):
        expected = [number for number, one in enumerate(hashes) if one == key]
        assert list(whole.candidates(key)) == list(grown.candidates(key)) == expected
        for occurrence in (1, 2, len(expected), len(expected) + 1):
            wanted = expected[occurrence - 1] if 0 < occurrence <= len(expected) else None
            assert whole.nth(key, occurrence) == grown.nth(key, occurrence) == wanted or not occurrence
        assert grown.before(key, 4_500) == sum(number < 4_500 for number in expected)
    assert sorted(grown.repeated()) == sorted(whole.repeated())
    assert len(grown._slices) < 12


def test_a_table_of_several_slices_is_one(monkeypatch):
    monkeypatch.setattr("pparse.tree.index.SLICE", 100)
    monkeypatch.setattr("pparse.tree.index.key_hash", lambda key: key)
    hashes = [number % 250 for number in range(1_000)]
    table = KeyTable(hashes)
    assert len(table._slices) == 10
    assert list(table.candidates(7)) == [7, 257, 507, 757]
    assert table.nth(7, 3) == 507
    assert table.nth(7, 5) is None
    assert table.before(7, 600) == 3
    assert sorted(table.repeated()) == [[n, n + 250, n + 500, n + 750] for n in range(250)]
    assert SLICE > 100_000


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize("count", [40, 60_000])  # without numpy and with it
def test_repeated_hashes_are_found_in_parts(parts, count):
    hashes = [*range(-count, count), 5, -7, 5, count - 1]
    found = [number for part in range(parts) for number in repeated_hashes(hashes, part, parts)]
    assert sorted(found) == [-7, 5, count - 1]


def test_small_maps_with_a_key_twice():
    with pparse.open(b'{"a":1,"b":2,"a":3}') as doc:
        view = doc.root.load()
        assert list(view) == ["a", "b"]
        assert dict(view.items()) == {"a": 1, "b": 2}
        assert json.dumps([kid.path for kid in doc.root.children()]) == '["a", "b", "a#2"]'


# Numbers of which Python's hash() is the same.
ALIKE = [0, 2**61 - 1, -1, -2, 1, 2**61, -(2**61 - 1)]


@pytest.mark.parametrize("before", [0, 5, 80, 3000])
def test_integer_keys_that_python_hashes_alike_are_different_keys(before, tmp_path):
    """A map<int64, string>: beyond the first entries, keys are compared by their hashes."""
    files = FileDescriptorSet()
    file = files.file.add(name="a.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="x", number=1, type=11, label=3, type_name=".M.XEntry")
    entry = message.nested_type.add(name="XEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=3, label=1)
    entry.field.add(name="value", number=2, type=9, label=1)
    (tmp_path / "a.ds").write_bytes(files.SerializeToString())
    keys = [*range(10, 10 + before), *ALIKE]

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    pairs = (b"\x08" + encode_varint(key & 2**64 - 1) + field(2, b"%d" % key) for key in keys)
    (tmp_path / "a.pb").write_bytes(b"".join(field(1, pair) for pair in pairs))
    options = {"descriptor": str(tmp_path / "a.ds"), "message": "M"}
    with pparse.open(tmp_path / "a.pb", format="protobuf", options=options) as document:
        node = document.root["x"]
        assert [node.child(number).path for number in range(before, len(keys))] == [f"x[{key}]" for key in ALIKE]
        assert node.to_python() == {key: str(key) for key in keys}
        assert dict(document.root.value["x"].items()) == {key: str(key) for key in keys}
        assert list(document.root.value["x"]) == keys
        for key in ALIKE:
            assert node[key].value == node.find(key).value == str(key)
            assert node.find(key, 2) is None
