"""Checkpoints that are made to take time or memory: small files that say much. Work is counted, not timed."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import shutil
import struct
import tracemalloc
from os import urandom
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pparse
from pparse import LimitError, Limits, MalformedError, PparseError, Status
from pparse.data.base import BytesData
from pparse.kernels import table_block
from pparse.kernels.crc32c import crc32c, masked
from pparse.parsers.checkpoint import parser as parsers
from pparse.parsers.checkpoint import table as tables
from pparse.parsers.checkpoint.parser import read_state
from pparse.parsers.checkpoint.table import find_blocks
from pparse.tensors import parts
from pparse.tensors.parts import Fragment, PartsData, covers
from pparse.testing.contract import Patience
from pparse.viewers.checkpoint import entry as entries
from pparse.viewers.checkpoint.entry import name_in, name_prefix, prefix_in, read_entry
from pparse.viewers.tensorflow import meta as interface
from pparse.viewers.tensorflow.meta import functions_of
from pparse.viewers.tensorflow.saved_model import names_by_key
from tests import sweep
from tests.checkpoint_files import block as block_of
from tests.checkpoint_files import closed, entry, finished, header, message, number, slice_key, snappy, table, varint
from tests.rows import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DATA_FILE = "m.data-00000-of-00001"


def raw_block(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return a block with one restart: of each entry how much it shares, the rest of the key, and the value."""
    found = b"".join(
        varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value for shared, rest, value in entries
    )
    return found + struct.pack("<2I", 0, 1)


def of_blocks(folder: Path, *blocks: bytes, kind: int = 0) -> Path:
    """Write the index of these blocks, and a data file of zeros."""
    found, places = b"", []
    for position, content in enumerate(blocks):
        places.append((b"%08d" % position, varint(len(found)) + varint(len(content))))
        found += closed(content, kind)
    (folder / "m.index").write_bytes(finished(found, places))
    (folder / DATA_FILE).write_bytes(bytes(64))
    return folder / "m.index"


def of_entries(folder: Path, *pairs: tuple[bytes, bytes]) -> Path:
    """Write an index of these keys and values, in one block."""
    (folder / "m.index").write_bytes(table([(b"", header()), *pairs], per_block=len(pairs) + 1))
    (folder / DATA_FILE).write_bytes(bytes(64))
    return folder / "m.index"


def sharing(length: int, count: int) -> bytes:
    """Return a block of ``count`` keys that share their first ``length`` bytes, the first of them in full."""
    value = entry(1, (), 0, 4, bytes(4))
    rest = [(length, struct.pack(">I", number), value) for number in range(1, count)]
    return raw_block([(0, b"", header()), (0, b"k" * length, value), *rest])


def counted_entries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of each key of a table that is made from now on."""
    made: list[int] = []
    entries = table_block.entries

    def counting(*arguments: Any) -> Iterator[tuple[bytes, int, int, int, int]]:
        for found in entries(*arguments):
            made.append(len(found[0]))
            yield found

    monkeypatch.setattr(table_block, "entries", counting)
    monkeypatch.setattr(tables, "entries", counting)
    monkeypatch.setattr(parsers, "block_entries", counting)
    return made


# -- keys --------------------------------------------------------------------------------------------------------------


def test_keys_that_would_be_many_times_as_long_as_the_table_are_refused(tmp_path, monkeypatch):
    path = of_blocks(tmp_path, sharing(1 << 18, 1 << 14))
    made = counted_entries(monkeypatch)
    with pparse.view(path) as model, pytest.raises(LimitError, match="more than 32 times") as refused:
        list(model.tensors())
    assert "Limits(name_bytes=" in str(refused.value)
    assert sum(made) < 1000


def test_the_limit_of_keys_can_be_lifted(tmp_path):
    path = of_blocks(tmp_path, sharing(8 << 10, 300))
    with pparse.view(path) as model, pytest.raises(LimitError):
        list(model.tensors())
    with pparse.view(path, limits=Limits(name_bytes=4 << 20)) as model:
        assert len(model) == 300
        assert all(tensor.status is Status.COMPLETE for tensor in model.tensors())


def test_keys_of_a_table_as_tensorflow_writes_it_are_never_refused(tmp_path):
    pairs = [(b"k" * 5000 + b"%06d" % number, b"") for number in range(sweep.scaled(4000, 2))]
    with pparse.view(of_entries(tmp_path, *pairs)) as model:
        assert len(model) == len(pairs)


def test_a_key_above_the_limit_for_names_is_refused(tmp_path):
    path = of_entries(tmp_path, (b"k" * 5000, entry(1, (), 0, 4)))
    with pparse.view(path, limits=Limits(name_bytes=4999)) as model, pytest.raises(LimitError, match="name_bytes=4999"):
        list(model.tensors())
    with pparse.view(path, limits=Limits(name_bytes=5000)) as model:
        assert len(model) == 1


def test_the_index_of_a_table_has_keys_of_bounded_length_too(tmp_path):
    handle = varint(0) + varint(len(sharing(4, 1)))
    far = varint(1 << 40) + varint(0)
    places = raw_block([(0, b"k" * (1 << 15), handle), *[(1 << 15, b"", far)] * (1 << 12)])
    found = closed(sharing(4, 1))
    at = len(found)
    found += closed(places)
    (tmp_path / "m.index").write_bytes(
        found + (varint(0) * 2 + varint(at) + varint(len(places))).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    )
    with pparse.view(tmp_path / "m.index") as model, pytest.raises(LimitError, match="more than 32 times"):
        list(model.tensors())


def test_first_keys_of_blocks_are_charged(tmp_path):
    blocks = [raw_block([(0, b"%04d" % number + b"k" * 100_000, b"")]) for number in range(40)]
    path = of_blocks(tmp_path, raw_block([(0, b"", header())]), *blocks)
    with pparse.open(path, budget="8MiB") as document:
        assert document.parse().parser.table.count == 41
        assert document.session.budget.used > 40 * 100_000
    with pparse.open(path, budget="3MiB") as document, pytest.raises(LimitError, match="memory budget"):
        _ = document.parse().parser.table.count


def test_a_search_reads_few_entries_of_a_block_with_one_restart(tmp_path, monkeypatch):
    made = counted_entries(monkeypatch)
    names = [b"layer%05d" % number for number in range(3000)]
    rest = [(0, name, entry(1, (), 0, 4, bytes(4))) for name in names]
    with pparse.view(of_blocks(tmp_path, raw_block([(0, b"", header()), *rest]))) as model:
        assert all(model.find(name.decode()) is not None for name in names)
        assert model.find("layer00000a") is None
    assert len(made) < 30 * len(names)


def test_every_key_is_found_whatever_the_restarts_say():
    keys = sorted({b"%d" % (number * number) for number in range(200)})
    content = raw_block([(0, key, key) for key in keys])
    end = table_block.entries_end(content)
    known = table_block.stops(content, end)
    assert len(known[0]) == len(keys) // 16 + 1
    for key in keys:
        start, stop = table_block.find_entry(content, end, key, known)
        assert content[start:stop] == key
        assert table_block.find_entry(content, end, key + b"\0", known) is None
    assert table_block.survey(content, end) == (len(keys), max(map(len, keys)), sum(map(len, keys)))


def test_blocks_that_cannot_be_read_are_counted_and_the_first_of_them_listed(tmp_path):
    path = of_blocks(tmp_path, raw_block([(0, b"", header())]))
    with pparse.open(path, limits=Limits(findings=10)) as document:
        found = document.parse().parser.table
        for number in range(100):
            found.add(10_000 + number, 5)
        assert (len(found.broken), found.broken_count) == (10, 100)


def test_a_compressed_block_is_charged_before_it_is_decompressed(tmp_path, monkeypatch):
    monkeypatch.setattr("pparse.codecs.decompress", lambda *_: pytest.fail("decompressed"))
    content = snappy(bytes(60))
    path = of_blocks(tmp_path, varint(8 << 20) + content[1:] * 6000, kind=1)
    with (
        pparse.open(path, budget="4MiB", format="tf-checkpoint") as document,
        pytest.raises(LimitError, match="a block of the table"),
    ):
        _ = document.parse().parser.table.count


# -- the file `checkpoint` ---------------------------------------------------------------------------------------------


def named(folder: Path, text: bytes) -> Path:
    of_entries(folder, (b"a", entry(1, (2,), 0, 8, bytes(8))))
    (folder / "checkpoint").write_bytes(text)
    return folder


@pytest.mark.parametrize("name", ["checkpoint", "a.index", "b.index", "z.index"])
def test_what_stands_for_a_checkpoint_does_not_stand_for_another(tmp_path, name):
    folder = named(tmp_path, b'model_checkpoint_path: "checkpoint"')
    (folder / "a.index").write_bytes(b'model_checkpoint_path: "a"')
    (folder / "b.index").write_bytes(b'model_checkpoint_path: "a"')
    (folder / "z.index").write_bytes(gzip.compress(b'model_checkpoint_path: "z"'))
    patience = Patience(30)
    patience.begin(name)
    try:
        with pparse.open(folder / name) as document, contextlib.suppress(PparseError):
            assert document.status in (Status.MISSING, Status.DAMAGED)
    finally:
        patience.end()


def test_a_folder_whose_file_names_itself_has_no_checkpoint(tmp_path, run):
    patience = Patience(30)
    patience.begin("ls")
    try:
        ran = run("ls", named(tmp_path, b'model_checkpoint_path: "checkpoint"'))
    finally:
        patience.end()
    assert (ran.code, "checkpoint is beside it, but is no index" in ran.out + ran.err) == (4, True)


@pytest.mark.parametrize(
    ("text", "name"), [(rb"\8", "8"), (rb"\9\xg\x4\101", "9xg\x04A"), (rb"\1234", "S4"), (rb"a\"b\n", 'a"b\n')]
)
def test_an_escape_of_a_path_has_octal_or_hexadecimal_digits_or_stands_for_itself(text, name):
    data = BytesData(b'model_checkpoint_path: "' + text + b'"', "checkpoint")
    assert read_state(data.range(0, data.size))[0] == [name + ".index", name]


def test_a_pattern_that_does_not_tell_how_many_files_there_are_is_opened(tmp_path):
    sample = Path("tests/data/checkpoint/version1.ckpt")
    (tmp_path / "x00000y").write_bytes(sample.read_bytes())
    (tmp_path / "checkpoint").write_bytes(b'model_checkpoint_path: "x?????y"')
    with pparse.view(tmp_path / "checkpoint") as model, pparse.view(sample) as same:
        assert list(model) == list(same)


# -- entries, and tensors in parts -------------------------------------------------------------------------------------


def shape_of(*sizes: int) -> bytes:
    return message(2, b"".join(message(2, number(1, size)) for size in sizes))


def box(*extents: tuple[int, int]) -> bytes:
    return message(7, b"".join(message(1, number(1, start) + number(2, length)) for start, length in extents))


def test_repeated_shapes_are_one_as_protobuf_merges_them():
    assert read_entry(shape_of(2) + shape_of() + shape_of(3, 4)).shape == (2, 3, 4)


def test_a_shape_of_many_fields_ends_at_the_most_dimensions_that_tensorflow_has(monkeypatch):
    read = []
    monkeypatch.setattr(entries, "_number", lambda *arguments: read.append(1) or 1)
    with pytest.raises(MalformedError, match="more than 254 dimensions"):
        read_entry(shape_of(1 << 62) * 5000)
    assert len(read) == 255


def test_parts_of_an_entry_are_read_anew_and_those_that_are_none_refused():
    found = read_entry(number(1, 1) + box((0, 2), (1, 3)) + shape_of(4, 4) + box((2, 2), (0, 4)) + number(5, 9))
    assert found.part_count == 2
    assert list(found.slices()) == [((0, 2), (1, 3)), ((2, 2), (0, 4))]
    with pytest.raises(MalformedError):
        read_entry(message(7, b"\x0a\x7f"))


def tiled(seed: int) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Return a shape, and boxes that cover it, made by splitting boxes again and again."""
    chance = random.Random(seed)
    shape = tuple(chance.randint(1, 6) for _ in range(chance.randint(1, 4)))
    boxes = [(tuple([0] * len(shape)), shape)]
    for _ in range(chance.randint(0, 12)):
        starts, lengths = boxes.pop(chance.randrange(len(boxes)))
        dim = chance.randrange(len(shape))
        cut = chance.randint(0, lengths[dim])
        low, high, begin = list(lengths), list(lengths), list(starts)
        low[dim], high[dim], begin[dim] = cut, lengths[dim] - cut, starts[dim] + cut
        boxes += [(starts, tuple(low)), (tuple(begin), tuple(high))]
    return shape, boxes


@rows("seed", range(100))
def test_boxes_cover_a_shape_just_if_each_element_is_in_one(seed):
    shape, boxes = tiled(seed)
    chance = random.Random(seed)
    assert covers(shape, boxes)
    changed = list(boxes)
    at = chance.randrange(len(changed))
    starts, lengths = changed[at]
    dim = chance.randrange(len(shape))
    moved = tuple(max(0, start - (index == dim)) for index, start in enumerate(starts))
    changed[at] = moved, lengths
    if chance.random() < 0.5:
        changed.append(chance.choice(changed))
    counts = np.zeros(shape, int)
    for starts, lengths in changed:
        counts[tuple(slice(start, start + length) for start, length in zip(starts, lengths, strict=True))] += 1
    assert covers(shape, changed) is bool((counts == 1).all())


def test_boxes_around_a_middle_one_which_no_plane_divides_cover_the_shape():
    wheel = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]
    assert covers((3, 3), wheel)
    assert not covers((3, 3), [*wheel[:-1], wheel[0]])


def test_columns_are_compared_in_one_pass(monkeypatch):
    drawn = []
    monkeypatch.setattr(parts, "urandom", lambda count: drawn.append(1) or urandom(count))
    assert covers((7, 5000), [((0, index), (7, 1)) for index in range(5000)])
    assert len(drawn) == 5001 + 2


def test_a_read_looks_at_the_parts_that_have_its_bytes(monkeypatch):
    content = BytesData(bytes(range(200)), "parts")
    rows = [Fragment((row, 0), (1, 2), content.range(2 * row, 2 * row + 2)) for row in reversed(range(100))]
    made = PartsData("made", (100, 2), 1, rows)
    looked = []
    read = PartsData._read
    monkeypatch.setattr(PartsData, "_read", lambda *arguments: looked.append(1) or read(*arguments))
    assert made.pread(101, 6) == bytes(range(101, 107))
    assert len(looked) == 4
    assert made.pread(0, 200) == content.pread(0, 200)


def test_a_part_that_is_named_twice_is_damage(tmp_path):
    whole = number(1, 1) + shape_of(0) + box((0, 0)) * 3
    part = slice_key(b"a", [(0, 0)]), entry(1, (0,), 0, 0)
    with pparse.view(of_entries(tmp_path, part, (b"a", whole))) as model:
        assert model["a"].status is Status.DAMAGED
        assert "named twice" in model["a"].finding.reason


def test_a_tensor_of_too_many_parts_for_the_budget_is_not_put_together_and_the_others_are(tmp_path):
    whole = number(1, 1) + shape_of(5000) + b"".join(box((index, 1)) for index in range(5000))
    path = of_entries(tmp_path, (b"a", whole), (b"b", entry(1, (2,), 0, 8, bytes(8))))
    with pparse.view(path, budget="4MiB") as model:
        assert [tensor.status for tensor in model.tensors()] == [Status.UNSUPPORTED, Status.COMPLETE]
        assert "memory budget" in model["a"].finding.reason
    with pparse.view(path) as model:
        assert model["a"].status is Status.MISSING  # its parts have no entries


# -- version 1 ---------------------------------------------------------------------------------------------------------


def of_version_1(folder: Path, contents: bytes, *pairs: tuple[bytes, bytes]) -> Path:
    (folder / "v.ckpt").write_bytes(table([(b"", message(1, contents)), *pairs], per_block=len(pairs) + 1))
    return folder / "v.ckpt"


def listed(name: bytes) -> bytes:
    return message(1, message(1, name) + shape_of(1) + number(3, 1) + message(4, message(1, b"")))


def test_a_name_that_is_listed_often_is_numbered_without_counting_anew(tmp_path, monkeypatch):
    class Counting(dict):
        looked = 0

        def __contains__(self, key: object) -> bool:
            Counting.looked += 1
            return super().__contains__(key)

    path = of_version_1(tmp_path, listed(b"a") * 1000 + listed(b"a#7") + listed(b"b"))
    with pparse.view(path) as model:
        model._listed_at = Counting()
        assert list(model) == ["a", *[f"a#{index}" for index in range(2, 1001)], "a#7#2", "b"]
        assert Counting.looked < 5000


def test_keys_of_version_1_are_charged_with_their_length(tmp_path):
    pairs = [(slice_key(b"k" * 30_000 + b"%03d" % index, [(0, -1)]), b"") for index in range(150)]
    path = of_version_1(tmp_path, listed(b"a"), *pairs)
    with pparse.view(path, budget="3MiB") as model, pytest.raises(LimitError, match="keys of the checkpoint"):
        list(model.tensors())
    with pparse.view(path, budget="16MiB") as model:
        assert len(model) == 1
        assert model.extraction.session.budget.used > 150 * 30_000


def test_what_the_table_of_contents_lists_is_charged(tmp_path):
    path = of_version_1(tmp_path, b"".join(listed(b"%05d" % index) for index in range(5000)))
    with pparse.view(path, budget="2MiB") as model, pytest.raises(LimitError, match="keys of the checkpoint"):
        list(model.tensors())


@pytest.mark.parametrize("name", [b"", b"\0\xff\xff\0\0\1", b"\xff\0" * 50, b"plain/\1", bytes(range(256))])
def test_the_beginning_of_the_keys_of_a_tensor_is_told_from_the_rest(name):
    key = slice_key(name, [(0, -1), (1 << 40, 3)])
    assert prefix_in(key) == name_prefix(name)
    assert name_in(key) == name_in(name_prefix(name)) == name
    assert prefix_in(b"x" + key) is None
    assert prefix_in(name_prefix(name)[:-1]) is None


# -- names, and data files ---------------------------------------------------------------------------------------------


def test_of_very_many_data_files_those_that_the_folder_lists_are_opened(tmp_path, monkeypatch):
    (tmp_path / "m.index").write_bytes(table([(b"", header(1 << 18)), (b"a", entry(1, (2,), 0, 8, shard=70_000))]))
    (tmp_path / "m.data-70000-of-262144").write_bytes(bytes(8))
    with pparse.view(tmp_path / "m.index") as model:
        asked = []
        opened = type(model.extraction).sibling
        monkeypatch.setattr(
            type(model.extraction), "sibling", lambda self, name: asked.append(name) or opened(self, name)
        )
        assert [name for name, _ in model.files_beside()] == asked == ["m.data-70000-of-262144"]
        assert model["a"].status is Status.COMPLETE


def test_data_files_that_cannot_be_are_not_remembered_and_those_that_can_are_charged(tmp_path):
    names = [(b"%05d" % index, entry(1, (2,), 0, 8, shard=index + 1)) for index in range(3000)]
    with pparse.view(of_entries(tmp_path, *names)) as model:
        assert all(tensor.status is Status.MISSING for tensor in model.tensors())
        assert not model._files._files
    (tmp_path / "m.index").write_bytes(table([(b"", header(5000)), *names], per_block=100))
    with pparse.view(tmp_path / "m.index", budget="2MiB") as model, pytest.raises(LimitError, match="data files"):
        list(model.tensors())


def test_what_only_look_like_slots_of_optimizers_are_not_counted(tmp_path):
    for count, told in ((3, {"s0": 1, "s1": 1, "s2": 1}), (1001, None)):
        names = sorted(b"a/.OPTIMIZER_SLOT/s%d" % index for index in range(count))
        with pparse.view(of_entries(tmp_path, *[(name, entry(1, (), 0, 4)) for name in names])) as model:
            assert model.metadata.get("optimizer_slots") == told


def test_keys_that_the_object_graph_does_not_have_are_charged_with_its_names(tmp_path):
    names = [(b"%06d" % index, entry(1, (), 0, 4)) for index in range(6000)]
    with pparse.view(of_entries(tmp_path, *names), budget="2MiB") as model:
        model.parser.other_names = lambda: {"000001": "one"}
        model._object_graph = failing
        assert sum(1 for _ in model.tensors()) == 6000
        assert "memory budget" in next(item.reason for item in model.findings if item.code == "names")
        assert "000001" in model
    with pparse.view(tmp_path / "m.index") as model:
        model.parser.other_names = lambda: {"000001": "one"}
        model._object_graph = failing
        assert model["one"].key == "000001"
        assert model.extraction.session.budget.used > 6000 * 400


def failing() -> None:
    raise MalformedError("lost")


# -- SavedModel folders ------------------------------------------------------------------------------------------------


def saved(folder: Path, objects: bytes) -> Path:
    """Return the saved_model.pb of a model with this object graph."""
    (folder / "saved_model.pb").write_bytes(number(1, 1) + message(2, message(7, objects)))
    return folder / "saved_model.pb"


def test_paths_of_a_chain_of_objects_are_charged(tmp_path):
    chain = b"".join(message(1, message(1, number(1, index + 1) + message(2, b"abcdefgh"))) for index in range(1000))
    path = saved(tmp_path, chain + message(1, message(7, number(1, 1) + message(6, b"v"))))
    with pparse.open(path) as document:
        graph = document.node("meta_graphs").child(0)
        budget = document.session.budget
        with budget.charge(0, "paths") as charge:
            assert list(names_by_key(graph, charge).values()) == ["v"]
            assert charge.amount > sum(9 * index for index in range(1000))
        room = budget.limit - budget.used - (2 << 20)
        with (
            budget.charge(room, "all else"),
            budget.charge(0, "paths") as charge,
            pytest.raises(LimitError, match="memory budget"),
        ):
            names_by_key(graph, charge)


def test_functions_are_told_once_each_and_up_to_so_many_arguments(tmp_path, monkeypatch):
    spec = message(53, message(1, number(13, 5)) * 50)
    function = message(1, message(6, message(1, b"f") * 100))
    children = b"".join(message(1, number(1, 1) + message(2, b"call%02d" % index)) for index in range(20))
    concrete = message(2, message(1, b"f") + message(2, message(4, spec)))
    with pparse.open(saved(tmp_path, message(1, children) + function + concrete)) as document:
        graph = document.node("meta_graphs").child(0)
        assert [len(concrete) for _, concrete in functions_of(graph)] == [1] * 20
        monkeypatch.setattr(interface, "_MOST_ARGUMENTS", 6)
        assert len(list(functions_of(graph))) < 20


# -- preallocated files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", ["version1.ckpt", "object.index"])
def test_a_preallocated_download_of_a_terabyte_is_searched_in_no_time(tmp_path, sample):
    """Its unwritten part reads as zeros, each of which might begin a block."""
    for path in Path("tests/data/checkpoint").glob(sample.split(".")[0] + ".*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pparse.view(tmp_path / sample) as model:
        names = list(model)
    size = (tmp_path / sample).stat().st_size
    try:
        os.truncate(tmp_path / sample, size - 48)
        os.truncate(tmp_path / sample, 1 << 40)
    except OSError:
        pytest.skip("the file system has no files of that size")
    patience = Patience(30)
    patience.begin(sample)
    try:
        with pparse.view(tmp_path / sample) as model:
            assert list(model) == names
            assert model.status is Status.TRUNCATED
    finally:
        patience.end()


@pytest.mark.parametrize("zeros", [0, 1, 2, 3, 7, 65_533, 65_534, 65_535, 65_536, 65_537, 200_000])
def test_a_block_behind_zeros_is_found_wherever_they_end(zeros):
    block = closed(block_of([(b"key%d" % at, b"value") for at in range(3)]))
    first = closed(block_of([(b"", b"x")]))
    for begins in (block, first):
        data = BytesData(b"\1damage" + bytes(zeros) + begins)
        assert list(find_blocks(data, 0, data.size, lambda: None)) == [(7 + zeros, len(begins) - 5)]


def test_lengths_of_strings_are_not_held(tmp_path):
    """There may be as many as bytes: a list of them would take eight times the bytes."""
    count = 100_000
    content = bytes(count) + struct.pack("<I", masked(crc32c(bytes(4 * count))))
    (tmp_path / "m.index").write_bytes(table([(b"", header()), (b"s", entry(7, (count,), 0, len(content)))]))
    (tmp_path / "m.data-00000-of-00001").write_bytes(content)
    with pparse.view(tmp_path / "m.index") as model:
        strings = model["s"].strings()
        assert next(strings) == b""
        tracemalloc.start()
        try:
            assert sum(map(len, strings)) == 0
            assert tracemalloc.get_traced_memory()[1] < 1 << 18
        finally:
            tracemalloc.stop()


def test_keras_metadata_and_texts_stay_within_the_budget(tmp_path):
    root = message(3, b"root") + message(5, b"[" + b"{}," * 500_000 + b"{}]")
    folder = tmp_path / "model"
    shutil.copytree("docs/samples/saved-model", folder)
    (folder / "keras_metadata.pb").write_bytes(message(1, root))
    with pparse.view(folder, budget="8MiB") as model:
        assert "keras" not in model.metadata
    text = tmp_path / "saved_model.pbtxt"
    text.write_text("meta_graphs { graph_def {" + "node{}" * 60_000 + "}}")
    with pytest.raises(LimitError, match="the text of the model"):
        pparse.view(text, budget="8MiB").extent()
