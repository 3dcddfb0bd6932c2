"""Damaged JSON text goes on at its next member, and so does the header of a safetensors file."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import pparse
from pparse import Status
from pparse.data import BytesData
from pparse.parsers.json_mend import Mender

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
    for at in range(8 + first, HEADER_END - 3, 24):
        status, found = complete(FILE[:at] + bytes(4) + FILE[at + 4 :])
        assert status is Status.DAMAGED, at
        assert spared(at, at + 4) <= set(found), at
        assert all(found[name] == whole(name) for name in found), at


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_header_costs_the_tensor_whose_entry_it_hit(bit):
    for at in range(8, HEADER_END, 13):
        changed = FILE[:at] + bytes([FILE[at] ^ 1 << bit]) + FILE[at + 1 :]
        status, found = complete(changed)
        try:
            json.loads(changed[8:HEADER_END])
        except ValueError:
            assert status is Status.DAMAGED, at
            assert spared(at, at + 1) <= set(found), at
            assert all(found.get(name) == whole(name) for name in found), at


def test_a_file_that_the_library_refuses_for_zeros_in_its_header_is_never_complete():
    for at in range(8, HEADER_END - 3, 7):
        changed = FILE[:at] + bytes(4) + FILE[at + 4 :]
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(changed)
        assert complete(changed)[0] is Status.DAMAGED


def test_bytes_lost_from_a_header_do_not_shift_the_data():
    for at in range(130, 2300, 41):
        for count in (1, 4, 11):
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
    assert any(finding.offset is not None and finding.length and finding.offset <= at < finding.offset + finding.length
               for finding in findings)  # fmt: skip


def test_an_index_of_a_thousand_names_loses_those_that_were_hit():
    names = {f"layer.{at}.weight": f"model-{at % 3}.safetensors" for at in range(1000)}
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": names}).encode()
    for at in range(text.index(b"layer.500"), text.index(b"layer.501")):
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
            "a": "damaged", "b": "complete", "c": "complete", "d": "complete",
        }  # fmt: skip


def test_an_array_goes_on_at_its_next_element():
    rows = json.dumps([{"id": at} for at in range(50)]).encode()
    at = rows.index(b'{"id": 20')
    with pparse.open(rows[:at] + bytes(4) + rows[at + 4 :], format="json") as document:
        found = [kid.to_python() for kid in document.root.children() if kid.status is Status.COMPLETE]
    assert found == [{"id": at} for at in range(50) if at != 20]


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
    read, search = BytesData.pread, Mender.search

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
    monkeypatch.setattr(Mender, "search", counted_search)
    took = []
    for number in (1500, 6000):
        text = HOSTILE[kind](number)
        content = text if format_name == "json" else struct.pack("<Q", len(text)) + text
        work = 0
        with pparse.open(content, format=format_name) as document:
            assert document.status is not Status.COMPLETE
            sum(1 for _ in document.root.children())
            list(document.check())
        took.append(work / len(text))
    assert took[1] < 2 * took[0] + 40, took
