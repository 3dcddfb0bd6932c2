"""Children, keys and tensors far behind cost a seek once the index exists: counted in bytes read."""

from __future__ import annotations

import json
import struct
from itertools import islice

import pytest

import pparse

COUNT = 60_000
FAR = 55_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A safetensors file of many tensors, whose header is too large to be decoded at once."""
    path = tmp_path_factory.mktemp("far") / "wide.safetensors"
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for number in range(COUNT):
        header[f"layers.{number}.weight"] = {
            "dtype": "F32",
            "shape": [1],
            "data_offsets": [4 * number, 4 * number + 4],
        }
    text = json.dumps(header).encode()
    assert len(text) > 4 << 20
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * COUNT))
    return path


def read_by(document: pparse.Extraction, step) -> int:
    """Return how many bytes ``step`` reads."""
    before = document.session.stats.bytes
    step()
    return document.session.stats.bytes - before


def test_a_far_child_reads_the_entries_between_two_checkpoints():
    document = pparse.open(json.dumps({f"key {number}": [number] for number in range(200_000)}).encode())
    root = document.root
    assert len(root) == 200_000
    for number in (199_999, 150_000, 70_001):
        assert read_by(document, lambda number=number: root.child(number)) < 64 * 64
    assert root.child(150_000).key == "key 150000"


def test_the_first_look_up_by_key_makes_no_entries():
    text = json.dumps({f"key {number}": [number] for number in range(101_000)}).encode()
    document = pparse.open(text)
    root = document.root
    assert len(root) == 101_000
    made: list[int] = []
    entries = document.parse().parser.entries
    document.parse().parser.entries = lambda *asked: made.append(asked[2]) or entries(*asked)
    # Twice: where children begin between two checkpoints, and their keys.
    assert read_by(document, lambda: root.find("key 100900")) < 2.5 * len(text)
    assert len(made) == 1  # those of the group in which it is
    assert root["key 100900"].to_python() == [100_900]
    assert read_by(document, lambda: root.find("key 200000")) < 2.5 * len(text)
    assert read_by(document, lambda: root.find("key 75000")) < 64 * 64


def test_a_repeated_key_is_found_by_its_occurrence_at_the_first_look_up():
    members = ",".join(f'"{number}":{number}' for number in range(1000)) + ',"7":"again"'
    for key, occurrence, value in (("7", 1, 7), ("7", 2, "again"), ("999", 1, 999)):
        root = pparse.open(b"{%s}" % members.encode()).root
        assert len(root) == 1001
        assert root.find(key, occurrence).load() == value
    root = pparse.open(b"{%s}" % members.encode()).root
    assert len(root) == 1001
    assert root.find("7", 3) is None


def test_a_tensor_is_found_in_the_tree_without_making_the_entries_before_it(wide):
    document = pparse.open(wide)
    tensors = document.root["tensors"]
    assert len(tensors) == COUNT
    size = wide.stat().st_size
    assert read_by(document, lambda: tensors.find(f"layers.{FAR}.weight")) < 4 * size
    node = tensors[f"layers.{FAR}.weight"]
    assert (node.ordinal, node.key) == (FAR, f"layers.{FAR}.weight")
    assert tensors.find("__metadata__") is None
    assert tensors.find("no such") is None


def test_tensors_from_a_number_on_are_those_of_a_whole_list(wide):
    model = pparse.view(wide)
    names = [f"layers.{number}.weight" for number in range(COUNT)]
    assert [tensor.name for tensor in islice(model.tensors_from(FAR), 3)] == names[FAR : FAR + 3]
    for step in (
        lambda: model.keys()[FAR : FAR + 50],
        lambda: model.values()[100:110],
        lambda: next(model.tensors_from(COUNT - 1)),
    ):
        assert read_by(model.extraction, step) < 1 << 19
    assert model.keys()[FAR : FAR + 50] == names[FAR : FAR + 50]
    assert model.keys()[FAR : FAR + 9 : 4] == names[FAR : FAR + 9 : 4]
    assert model.keys()[COUNT:] == model.keys()[5:5] == []
    assert [(name, tensor.spans) for name, tensor in model.items()[FAR : FAR + 2]] == [
        (name, model[name].spans) for name in names[FAR : FAR + 2]
    ]
    assert [tensor.name for tensor in model.values()[:2]] == names[:2]
    assert list(model.tensors_from(COUNT)) == []
    with pytest.raises(TypeError, match="slices"):
        model.keys()[3]


def test_slices_of_a_small_model_count_from_the_end_as_well():
    text = json.dumps(
        {name: {"dtype": "U8", "shape": [1], "data_offsets": [at, at + 1]} for at, name in enumerate("abcd")}
    )
    model = pparse.view(struct.pack("<Q", len(text)) + text.encode() + b"1234")
    assert model.keys()[-2:] == ["c", "d"]
    assert model.keys()[::-1] == ["d", "c", "b", "a"]
    assert model.keys()[1:-1] == ["b", "c"]
    assert [name for name, _ in model.items()[1:3]] == ["b", "c"]
    assert list(model.keys()) == ["a", "b", "c", "d"]
    assert set(model.keys()) & {"a"} == {"a"}
