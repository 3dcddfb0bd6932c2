"""Damaged JSON text goes on at its next member, and so does the header of a safetensors file."""

from __future__ import annotations

import functools
import itertools
import json
import struct

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import pparse
from pparse import Status
from pparse.data.base import BytesData
from pparse.findings import clipped
from pparse.parsers.json.mend import JsonMender
from pparse.paths import KeyStep, join_step
from pparse.testing import GappyData
from tests import sweep
from tests.rows import rows

DTYPES = (np.float32, np.int64, np.float16, np.uint8)
SHAPES = ((4, 3), (7,), (2, 5), (16,))


def model() -> tuple[bytes, dict[str, np.ndarray], dict[str, tuple[int, int]]]:
    """Return a file of 31 tensors, the tensors, and where the header's entry of each is in the file."""
    random = np.random.default_rng(1)
    tensors = {
        f"layers.{at}.attn.weight": random.integers(0, 200, size=SHAPES[at // 3 % 4]).astype(DTYPES[at % 4])
        for at in range(31)
    }
    content = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    extents = {}
    for name in tensors:
        start = content.index(json.dumps(name).encode())
        extents[name] = start, content.index(b"}", start) + 1
    return content, tensors, extents


FILE, TENSORS, EXTENTS = model()
HEADER_END = 8 + struct.unpack("<Q", FILE[:8])[0]


def complete(content: bytes) -> tuple[Status, dict[str, tuple[bytes, str, tuple[int, ...]]]]:
    with pparse.open(content, format="safetensors") as document:
        view = document.view()
        found = {
            tensor.name: (tensor.numpy().tobytes(), str(tensor.dtype), tensor.shape)
            for tensor in view.tensors()
            if tensor.status is Status.COMPLETE
        }
        return view.extent().status, found


def whole(name: str) -> tuple[bytes, str, tuple[int, ...]]:
    return TENSORS[name].tobytes(), str(TENSORS[name].dtype), TENSORS[name].shape


def spared(start: int, stop: int) -> set[str]:
    return {name for name, (first, last) in EXTENTS.items() if stop <= first or last <= start}


@pytest.mark.parametrize("first", range(8))
def test_zeros_in_a_header_cost_the_tensors_whose_entries_they_hit(first):
    for at in sweep.some(range(8 + first, HEADER_END - 3, 24), 3):
        status, found = complete(FILE[:at] + bytes(4) + FILE[at + 4 :])
        assert status is Status.DAMAGED, at
        assert spared(at, at + 4) <= set(found), at
        assert all(found[name] == whole(name) for name in found), at


@pytest.mark.parametrize("left", [b"", b" ", b'"dtype":"U8",', b'"dtype":"U8","shape":[4],'])
def test_a_tensor_whose_entry_is_lost_up_to_the_next_key_does_not_take_in_those_behind_it(left):
    entries = [b'"t%d":{"dtype":"U8","shape":[4],"data_offsets":[%d,%d]}' % (at, 4 * at, 4 * at + 4) for at in range(6)]
    for lost in range(5):
        for padding in (b"", b"   "):
            joined = entries[lost][:6] + left + entries[lost + 1]
            header = b"{" + b",".join([*entries[:lost], joined, *entries[lost + 2 :]]) + b"}" + padding
            status, found = complete(struct.pack("<Q", len(header)) + header + bytes(24))
            assert status is Status.DAMAGED, header
            assert set(found) == {f"t{at}" for at in range(6) if at != lost}, header


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_header_costs_the_tensor_whose_entry_it_hit(bit):
    for at in sweep.some(range(8, HEADER_END, 13), 3):
        changed = FILE[:at] + bytes([FILE[at] ^ 1 << bit]) + FILE[at + 1 :]
        status, found = complete(changed)
        try:
            json.loads(changed[8:HEADER_END])
        except ValueError:
            assert status is Status.DAMAGED, at
            assert spared(at, at + 1) <= set(found), at
            assert all(found.get(name) == whole(name) for name in found), at


def test_a_file_that_the_library_refuses_for_zeros_in_its_header_is_never_complete():
    for at in sweep.some(range(8, HEADER_END - 3, 7), 3):
        changed = FILE[:at] + bytes(4) + FILE[at + 4 :]
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(changed)
        assert complete(changed)[0] is Status.DAMAGED


def test_bytes_lost_from_a_header_do_not_shift_the_data():
    for at in range(130, 2300, 41):
        for count in sweep.values((1, 4, 11), at // 41, 1):
            _, found = complete(FILE[:at] + FILE[at + count :])
            kept = spared(at, at + count) & set(found)
            assert len(kept) >= 29, (at, count)
            assert all(found[name] == whole(name) for name in kept), (at, count)


def test_noise_put_into_a_header_does_not_shift_the_data():
    for at in range(200, 2300, 97):
        _, found = complete(FILE[:at] + b"\x93\xfa\x01z\xc0" + FILE[at:])
        kept = set(found) & set(TENSORS)
        assert all(found[name] == whole(name) for name in kept), at


@pytest.mark.parametrize("length", [0, 1, 1 << 20, 1 << 62])
def test_a_wrong_header_length_is_found_out_by_the_tensors_that_fill_the_file(length):
    status, found = complete(struct.pack("<Q", length) + FILE[8:])
    assert status is Status.DAMAGED
    assert found == {name: whole(name) for name in TENSORS}


def test_the_lost_stretch_of_a_header_is_a_finding_with_offset_and_length():
    at = FILE.index(b'"layers.5.') - 3
    with pparse.open(FILE[:at] + bytes(4) + FILE[at + 4 :], format="safetensors") as document:
        findings = list(document.view().check())
    assert any(
        finding.offset is not None and finding.length and finding.offset <= at < finding.offset + finding.length
        for finding in findings
    )


def test_an_index_of_a_thousand_names_loses_those_that_were_hit():
    names = {f"layer.{at}.weight": f"model-{at % 3}.safetensors" for at in range(1000)}
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": names}).encode()
    for at in sweep.some(range(text.index(b"layer.500"), text.index(b"layer.501")), 3):
        with pparse.open(text[:at] + bytes(4) + text[at + 4 :], format="json") as document:
            node = document.node("weight_map")
            found = {kid.key: kid.load() for kid in node.children() if kid.status is Status.COMPLETE}
            assert document.status in (Status.DAMAGED, Status.COMPLETE)
            assert node.status in (Status.DAMAGED, Status.COMPLETE)
        assert len(found) >= 998, at
        assert found.items() <= names.items(), at


def test_a_lost_bracket_does_not_put_members_into_another_object():
    text = b'{"a": {"x": "s"\x00, "b": [1, 2], "c": {"k": "v"}}'
    with pparse.open(text, format="json") as document:
        assert document.status is Status.DAMAGED
        assert list(document.root.keys()) == ["a", "b", "c"]
        assert document.get("b[1]") == 2
        assert document.get("c.k") == "v"


def test_a_lost_quote_costs_one_member():
    with pparse.open(b'{"a": "x#, "b": "y", "c": "z", "d": [1]}', format="json") as document:
        assert document.status is Status.DAMAGED
        assert {kid.key: str(kid.status) for kid in document.root.children()} == {
            "a": "damaged",
            "b": "complete",
            "c": "complete",
            "d": "complete",
        }


def test_an_array_goes_on_at_its_next_element():
    rows = json.dumps([{"id": at} for at in range(50)]).encode()
    at = rows.index(b'{"id": 20')
    with pparse.open(rows[:at] + bytes(4) + rows[at + 4 :], format="json") as document:
        kids = [kid for kid in document.root.children() if kid.kind == "object"]
        found = [kid.to_python() for kid in kids if kid.ordinal != 20]
        sure = [kid.to_python() for kid in kids if kid.status is Status.COMPLETE]
        assert {kid.finding.code for kid in kids if kid.ordinal > 20} == {"unsure-number"}
    assert found == [{"id": at} for at in range(50) if at != 20]
    assert sure == found[:20]


def test_an_element_that_begins_where_its_comma_is_lost_is_an_element_of_its_own():
    with pparse.open(b'[{"id": 1}, {"id": 2\0\0 {"id": 3}, {"id": 4}]', format="json") as document:
        assert document.status is Status.DAMAGED
        kids = list(document.root.children())
        assert len(kids) == 4
        assert [kids[number].find("id").load() for number in (0, 2, 3)] == [1, 3, 4]


def test_a_large_object_goes_on_behind_damage():
    members = {f"key{at}": {"n": at, "t": "x" * 40} for at in range(8000)}
    text = json.dumps(members).encode()
    at = text.index(b'"key4000"') - 2
    assert len(text) > 256 << 10
    with pparse.open(text[:at] + bytes(4) + text[at + 4 :], format="json") as document:
        found = [kid.key for kid in document.root.children() if kid.status is Status.COMPLETE]
        assert document.status is Status.DAMAGED
    assert len(found) >= 7998


@pytest.mark.parametrize("text", [b"[1, tru, 3]", b'{"a": 1 2}', b'{"a": {"b": tru}}', b'{"a": "\xff"}'])
def test_a_text_that_does_not_parse_is_damaged_before_anything_of_it_is_read(text):
    with pparse.open(text, format="json") as document:
        assert document.status is Status.DAMAGED


HOSTILE = {
    "faults": lambda number: b"{%s}" % b",".join(b'"k%d":{"a":1 2}' % at for at in range(number)),
    "quotes": lambda number: b"{%s}" % b",".join(b'"k%d":"v' % at for at in range(number)),
    "open brackets": lambda number: b'{"a":' + b"[" * number + b'1,"b":2}',
    "closing brackets": lambda number: b'{"a":1' + b"]" * number + b',"b":2}',
    "colons": lambda number: b'{"a"' + b":" * number + b',"b":2}',
    "zeros": lambda number: b'{"a":1,' + bytes(number) + b'"b":2}',
    "damaged entries": lambda number: (
        b"{%s}"
        % b",".join(
            b'"k%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]' % (at, at, at + 1) for at in range(number)
        )
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("format_name", ["json", "safetensors"])
def test_the_work_on_damaged_text_grows_as_its_length_does(kind, format_name, monkeypatch):
    work = 0
    read, search = BytesData.pread, JsonMender.search

    def counted_read(self, offset, length):
        nonlocal work
        work += min(length, 1 << 20)
        return read(self, offset, length)

    def counted_search(self, pattern, offset, stop=None):
        nonlocal work
        found = search(self, pattern, offset, stop)
        work += (found if found is not None else min(self.end, stop or self.end)) - offset
        return found

    monkeypatch.setattr(BytesData, "pread", counted_read)
    monkeypatch.setattr(JsonMender, "search", counted_search)
    took = []
    for number in (600, 2400):
        text = HOSTILE[kind](number)
        content = text if format_name == "json" else struct.pack("<Q", len(text)) + text
        work = 0
        with pparse.open(content, format=format_name) as document:
            assert document.status is not Status.COMPLETE
            sum(1 for _ in document.root.children())
            list(document.check())
        took.append(work / len(text))
    assert took[1] < 2 * took[0] + 40, took


def test_objects_that_nobody_closes_cost_no_more_each_the_deeper_they_are():
    """A path asked for the entries of all levels above, of which the latest 64 are kept."""
    took = []
    for number in (64, 74):
        text = HOSTILE["damaged entries"](number)
        with pparse.open(struct.pack("<Q", len(text)) + text, format="safetensors") as document:
            list(document.check())
            took.append(document.session.stats.bytes)
    assert took[1] < 2 * took[0], took


NESTED = {
    "objects": b'{"a":',
    "arrays": b"[",
    "both": b'{"a":[',
    "names to be quoted": b'{"a b.\\"\\u00e9#[":',
    "members before": b'{"x":1,"y":[2],"z":{"q":tru},"a":',
    "equal names": b'{"a":1,"a":',
    "many members before": b"{%s" % b"".join(b'"m%d":%d,' % (at, at) for at in range(65)) + b'"a":',
    "long names": b'{"%s":' % (b"n" * 300),
}
ENDS = {"unclosed": (b"", b""), "a fault inside": (b'1 2,"b":3', b"}")}


def descend(document: pparse.Document) -> None:
    node = document.root
    while node.shape != "scalar" and len(node):
        node = node.child(len(node) - 1)


LOOKS = {
    "check": lambda document: list(document.check()),
    "walk": lambda document: [visit.path for visit in document.walk()],
    "nodes": descend,
}


DEEP_LOOKS = list(itertools.product(NESTED, LOOKS, ENDS, ("json", "safetensors")))


@pytest.mark.parametrize(("kind", "look", "end", "format_name"), sweep.part(DEEP_LOOKS))
def test_each_level_of_deep_damaged_text_is_read_a_few_times(kind, end, look, format_name, monkeypatch):
    levels, left = 75, 1_000_000
    inner, closer = ENDS[end]
    text = NESTED[kind] * levels + inner + closer * levels
    read = BytesData.pread

    def limited_read(self, offset, length):
        nonlocal left
        found = read(self, offset, length)
        left -= len(found)
        assert left > 0
        return found

    left += (3 * levels if look == "nodes" else 30) * len(text)
    monkeypatch.setattr(BytesData, "pread", limited_read)
    content = text if format_name == "json" else struct.pack("<Q", len(text)) + text
    with pparse.open(content, format=format_name) as document:
        LOOKS[look](document)


@pytest.mark.parametrize("kind", NESTED)
def test_findings_and_nodes_deep_in_damaged_text_have_the_same_paths(kind):
    text = b'{"u":"#,"v":' + NESTED[kind] * 75
    with pparse.open(struct.pack("<Q", len(text)) + text, format="safetensors") as document:
        node, told = document.result.parser.header.root, 0
        while node.shape != "scalar" and len(node):
            node = node.child(len(node) - 1)
            if node.finding is not None and node.finding.path:
                own = KeyStep(node.ordinal if node.parent.shape == "list" else node.key)
                assert node.finding.path == clipped(join_step(node.parent.path, own))
                told += 1
    assert told >= 75


# -- how many elements were lost -------------------------------------------------------------------------------------

LISTED = json.dumps(
    {
        "name": "x",
        "layers": [{"w": at, "s": f"str{at}", "v": [at * 1.5, None, True]} for at in range(1300)],
        "tail": {"z": 1, "y": [1, 2]},
    }
).encode()
HITS = {
    "zeros": lambda at: LISTED[:at] + bytes(4096) + LISTED[at + 4096 :],
    "signs": lambda at: LISTED[:at] + b"#" * 16 + LISTED[at + 16 :],
    "noise": lambda at: LISTED[:at] + np.random.default_rng(at).bytes(16) + LISTED[at + 16 :],
    "removed": lambda at: LISTED[:at] + LISTED[at + 90 :],
}


def scalars(document: pparse.Document) -> dict[str, tuple[Status, object]]:
    return {
        visit.path: (visit.status, visit.value)
        for visit in document.walk()
        if visit.shape == "scalar" and visit.status is not None
    }


@functools.cache
def original() -> dict[str, tuple[Status, object]]:
    with pparse.open(LISTED, format="json") as document:
        return scalars(document)


@pytest.mark.parametrize("kind", HITS)
def test_no_element_behind_damage_is_complete_under_a_number_that_is_not_its_own(kind):
    for at in sweep.some(range(16300, 16420, 5), 12):
        content = HITS[kind](at)
        with pparse.open(content, format="json") as document:
            found = scalars(document)
        if kind != "removed" or document_is_broken(content):
            wrong = {
                path
                for path, (status, value) in found.items()
                if status is Status.COMPLETE and original().get(path, (status, None))[1] != value
            }
            # In the element that was hit, what stands before the fault may be of another one.
            assert len({path.partition("]")[0] for path in wrong}) <= 1, (at, sorted(wrong)[:5])
            assert all(310 <= int(path[7 : path.index("]")]) <= 316 for path in wrong), (at, sorted(wrong)[:5])


def document_is_broken(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return True
    return False


def test_an_element_whose_number_is_not_sure_can_be_read_and_says_so():
    at = LISTED.index(b'"str560"')
    with pparse.open(HITS["zeros"](at), format="json") as document:
        element = document.node("layers[1000]")
        assert (element.status, element.finding.code) == (Status.DAMAGED, "unsure-number")
        assert "its number is uncertain" in element.finding.reason
        assert element.to_python()["w"] != 1000
        assert (element["w"].status, element["v"][0].status) == (Status.DAMAGED, Status.DAMAGED)
        assert document.node("layers[559].w").status is Status.COMPLETE
        layers = document.node("layers")
        assert (layers.status, layers.finding.code) == (Status.DAMAGED, "unsure-number")
        assert layers.finding.offset <= at < at + 4096 <= layers.finding.offset + layers.finding.length


def test_members_of_objects_are_complete_behind_an_array_that_lost_elements():
    with pparse.open(HITS["zeros"](LISTED.index(b'"str560"')), format="json") as document:
        for path, value in (("tail.z", 1), ("tail.y[1]", 2), ("name", "x")):
            assert (document.node(path).status, document.get(path)) == (Status.COMPLETE, value)


def test_a_large_document_whose_text_was_overwritten_knows_it_before_an_element_is_shown():
    rows = json.dumps([{"id": at} for at in range(40_000)]).encode()
    at = rows.index(b'{"id": 9000}')
    assert len(rows) > 256 << 10
    for noise in (bytes(512), np.random.default_rng(5).bytes(512)):
        with pparse.open(rows[:at] + noise + rows[at + 512 :], format="json") as document:
            assert document.node("[30000].id").status is Status.DAMAGED
            assert document.node("[100].id").status is Status.COMPLETE


def test_a_check_of_a_large_document_doubts_numbers_behind_a_fault_of_plain_letters():
    rows = json.dumps([{"id": at} for at in range(40_000)]).encode()
    at = rows.index(b'{"id": 9000}')
    with pparse.open(rows[:at] + b"#" * 40 + rows[at + 40 :], format="json") as document:
        codes = {finding.code for finding in document.check()}
        assert "unsure-number" in codes
        assert document.node("[30000].id").status is Status.DAMAGED


@pytest.mark.parametrize("word", [b"NULL", b"-inf", b"None", b'"caf\xe9"', b'"\\ud800"'])
def test_what_is_one_value_for_sure_leaves_the_numbers_behind_it_alone(word):
    with pparse.open(b'{"a": [0, %s, 2]}' % word, format="json") as document:
        assert (document.node("a[2]").status, document.get("a[2]")) == (Status.COMPLETE, 2)
        assert document.node("a[1]").status is Status.DAMAGED


ZEROED = ['{"a": "abc"', '{"a": [1, 2]', '{"n": 1, "a": {"x": [2]}', '{"a": ["' + "b" * 9_000 + '"]']


@rows("behind", [b"", b', "z": 3}'])
@rows("zeros", [1, 40, 70_000])
@rows("text", ZEROED)
def test_a_value_that_is_closed_before_zeros_is_whole(text, zeros, behind) -> None:
    content = text.encode() + bytes(zeros) + behind
    with pparse.open(content, format="json") as document:
        found = {node.key: node for node in document.root.children()}
        assert found["a"].status is Status.COMPLETE
        assert found["a"].to_python() == json.loads(text + "}")["a"]
        assert document.root.status is not Status.COMPLETE


def test_a_string_before_zeros_in_which_another_ends_is_whole() -> None:
    with pparse.open(
        b'{"a": "abc"' + bytes(16) + b'": 0.5, "b": [null, {"c": "d"}]}, "e": 1}', format="json"
    ) as document:
        found = {node.key: node for node in document.root.children()}
        assert (found["a"].status, found["a"].load()) == (Status.COMPLETE, "abc")
        assert document.root.status is Status.DAMAGED


@pytest.mark.parametrize("text", ['{"a": 12', '{"a": "b\\"', '{"a": [1, 2', '{"a": tru'])
def test_a_value_that_zeros_may_have_cut_is_not_whole(text) -> None:
    with pparse.open(text.encode() + bytes(40), format="json") as document:
        assert next(iter(document.root.children())).status is not Status.COMPLETE


def test_a_member_with_a_gap_before_its_key_ends_is_read_as_far_as_it_goes() -> None:
    content = b'{"a": 1, "b" 5, "' + b"k" * 9_000 + b'": 2, "c": 3}'
    data = GappyData(content, [(4_000, 3_000)])
    with pparse.open(data, format="json") as document:
        assert {node.key: node.status for node in document.root.children()}["a"] is Status.COMPLETE


def test_text_before_a_gap_is_read_once_however_many_values_it_has():
    """Each value asks for more text than there is up to the gap."""
    text = b"[" + b",".join(b"%d" % number for number in range(60_000)) + b"]"
    source = GappyData(text, [(200_000, 50)])
    with pparse.open(source, format="json") as document:
        assert document.get("[30000]") == 30_000
    assert sum(min(length, len(text) - offset) for offset, length in source.asked) < 12 * len(text)


def test_a_check_of_damaged_text_reads_what_is_whole_without_nodes():
    items = ["1", "[2, 1e999]", *(f'{{"id": {number}, "more": [1, 2]}}' for number in range(3000))]
    text = f'{{"m: 1, "items": [{", ".join(items)}], "list": [{"7, " * 40_000}7], "n": 1}}'
    for number in (text, text.replace("1e999", "1")):
        with pparse.open(number.encode()) as doc:
            visits = [visit.path for visit in doc.parse().walk(detail=False)]
            found = [finding.code for finding in doc.check()]
        assert doc.parse().root.status is Status.DAMAGED
        assert [name for name in visits if name.startswith("list")] == ["list"]
        assert ("items[1][1]" in visits) == ("unsupported" in found) == ("1e999" in number) == (len(visits) > 10)
