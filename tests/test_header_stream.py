"""A sound safetensors header is gone through once, and tells what the JSON parser tells of it."""

from __future__ import annotations

import json
import random
import struct

import pytest

import pparse
from pparse import Limits, Status
from pparse.limits import MemoryBudget
from pparse.parsers.json import damage, parser
from pparse.parsers.safetensors import header as plain_text
from pparse.parsers.safetensors import parser as safetensors_parser
from pparse.parsers.safetensors.header import PlainText
from pparse.testing import GappyData
from pparse.tree import index as key_table
from pparse.tree.index import SeenKeys
from tests import sweep

TWICE = "its name occurs more than once"


def entry(begin: int, length: int) -> str:
    return f'{{"dtype":"U8","shape":[{length}],"data_offsets":[{begin},{begin + length}]}}'


def pack(names: list[str], lengths: tuple[int, ...] = (2, 5, 1), **metadata: object) -> bytes:
    """Return a file of tensors with these names, the data one after the other."""
    rows, at = [f'"__metadata__":{json.dumps(metadata)}'] if metadata else [], 0
    for number, name in enumerate(names):
        length = lengths[number % len(lengths)]
        rows.append(f"{json.dumps(name)}:{entry(at, length)}")
        at += length
    text = ("{" + ",".join(rows) + "}").encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(number * 7 % 251 for number in range(at))


def long_names(count: int) -> list[str]:
    return [f"model.layers.{number // 24}.mlp.experts.{number % 24}.down_proj.weight" for number in range(count)]


# Some times what is read of a header in one go.
COUNT = 12_000
MANY = pack(long_names(COUNT))
HEADER = struct.unpack("<Q", MANY[:8])[0]


# -- how much is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["tensors", "values", "items", "__iter__"])
def test_a_listing_reads_the_header_once_and_gives_the_first_row_at_once(ask):
    with pparse.view(MANY) as model:
        stats = model.extraction.session.stats
        rows = iter(getattr(model, ask)())
        next(rows)
        assert stats.bytes <= 0.05 * HEADER
        assert 1 + sum(1 for _ in rows) == COUNT
        assert HEADER <= stats.bytes <= 1.05 * HEADER
        assert len(model) == COUNT
        assert stats.bytes <= 2.05 * HEADER  # by the index


def test_counting_the_tensors_and_summing_them_up_read_the_header_once():
    for ask in (len, lambda model: model.extent().count):
        with pparse.view(MANY) as model:
            assert ask(model) == COUNT
            assert model.extraction.session.stats.bytes <= 1.05 * HEADER


def test_a_look_ahead_is_not_read_again():
    with pparse.view(MANY) as model:
        stats = model.extraction.session.stats
        assert model.has_more_than(100)
        assert stats.bytes <= 0.2 * HEADER
        assert model.has_more_than(COUNT - 1)
        assert not model.has_more_than(COUNT)
        assert sum(1 for _ in model.tensors()) == COUNT
        assert stats.bytes <= 1.05 * HEADER


def test_a_listing_behind_a_look_up_reads_no_more_than_both_need():
    with pparse.view(MANY) as model:
        stats = model.extraction.session.stats
        assert "no such name" not in model  # makes the index
        before = stats.bytes
        assert sum(1 for _ in model.tensors()) == COUNT
        assert stats.bytes - before <= 1.05 * HEADER


def test_a_file_whose_data_are_cut_is_listed_in_one_reading():
    with pparse.view(MANY[: -COUNT // 2]) as model:
        found = [tensor.status for tensor in model.tensors()]
        assert found.count(Status.MISSING) > 100
        assert model.extraction.session.stats.bytes <= 1.05 * HEADER


def test_a_file_with_bytes_behind_its_data_is_read_twice_as_every_status_depends_on_them():
    with pparse.view(MANY + b"behind") as model:
        found = list(model.tensors())
        assert {tensor.status for tensor in found} == {Status.DAMAGED}
        assert {tensor.finding.code for tensor in found} == {"shifted"}
        assert model.extraction.session.stats.bytes <= 2.1 * HEADER


def test_rows_before_damage_come_before_it_is_read():
    at = MANY.index(b'"', 8 + 9 * HEADER // 10)
    with pparse.view(MANY[:at] + b"\0" + MANY[at + 1 :]) as model:
        stats = model.extraction.session.stats
        rows = model.tensors()
        early = [next(rows) for _ in range(COUNT // 3)]
        assert stats.bytes <= 0.7 * HEADER
        assert {tensor.status for tensor in early} == {Status.COMPLETE}
        assert [tensor.name for tensor in early] == long_names(COUNT // 3)
        rest = list(rows)
        assert {tensor.status for tensor in rest} == {Status.COMPLETE, Status.DAMAGED}
        assert len(rest) >= COUNT - COUNT // 3 - 2
        assert model.status is Status.DAMAGED


# -- what it tells ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Treat small headers as large ones, in small pieces."""
    monkeypatch.setattr(safetensors_parser, "SMALL", 40)
    monkeypatch.setattr(damage, "LOOK_FIRST", 40)
    monkeypatch.setattr(plain_text, "_FIRST_BLOCK", 90)
    monkeypatch.setattr(plain_text, "_BLOCK", 150)
    monkeypatch.setattr(plain_text, "HELD_TEXT", 400)
    monkeypatch.setattr(parser, "DECODE_BATCH", 150)


def opened(source, block_size: int):
    return pparse.view(source(), format="safetensors", block_size=block_size, limits=Limits(leaf_bytes=500))


def row(tensor) -> tuple:
    about = tensor.finding and (tensor.finding.code, tensor.finding.reason, tensor.finding.path, tensor.finding.offset)
    return tensor.name, str(tensor.dtype), tensor.shape, tensor.spans, tensor.status, about


def answers(source, block_size: int) -> tuple[dict[str, object], bool]:
    """Return what a viewer tells, and whether its rows came while the header was read."""
    told: dict[str, object] = {}
    with opened(source, block_size) as model:
        streams = model.parser.streams
        extent, names, rows = model.new_extent(), [], []
        for tensor in model.tensors():
            extent.add(tensor)
            names.append(tensor.name)
            rows.append(tensor)
        told["rows"] = [row(tensor) for tensor in rows]
        told["extent"] = model.close_extent(extent).to_dict()
        told["status"] = model.status
        told["findings"] = {str(finding) for finding in model.findings}
        told["listed again"] = [row(tensor) for tensor in model.tensors()]
        told["nodes"] = [(kid.key, kid.status, kid.kind) for kid in model.root["tensors"].children()] if names else []
    with opened(source, block_size) as model:
        told["asked at once"] = [row(tensor) for tensor in model.tensors()]
        told["names"] = list(model)
    with opened(source, block_size) as model:
        told["extent alone"] = model.extent().to_dict()
        told["searched"] = [(name, row(model[name]) if name in model else None) for name in names]
        told["count"] = len(model), model.has_more_than(len(names)), model.has_more_than(len(names) - 1)
        told["metadata"] = model.metadata
    for strict in (False, True):
        with opened(source, block_size) as model:
            try:
                told[f"checked {strict}"] = [str(finding) for finding in model.check(strict=strict)]
            except pparse.PparseError as error:  # a gap
                told[f"checked {strict}"] = str(error)
    return told, streams


def by_json(monkeypatch, source, block_size: int) -> dict[str, object]:
    """Return the `answers` where the JSON parser reads the header."""
    with monkeypatch.context() as context:
        context.setattr(PlainText, "read_on", lambda self, hold=True: self._stop())
        return answers(source, block_size)[0]


def assert_same(monkeypatch, source, block_size: int, label: object) -> bool:
    """Compare both ways; return whether there were rows that came before it was known that their names occur twice."""
    try:
        known = by_json(monkeypatch, source, block_size)
    except pparse.PparseError as error:  # a gap where the header begins or may end
        with pytest.raises(type(error)):
            answers(source, block_size)
        return False
    told, streams = answers(source, block_size)
    late = {text for text in told["findings"] - known["findings"] if streams and TWICE in text}
    told["findings"] -= late
    for key, value in known.items():
        assert told[key] == value, (label, key)
    return bool(late)


NAMES = ["a1", "a2", "b", "a2#2", "c,d", "c.e", "z{9", "z[9", "last"]
SAMPLE = pack(NAMES, format="pt")
SAMPLE_END = 8 + struct.unpack("<Q", SAMPLE[:8])[0]
ODD = (*b'\0"\\,:[]{} a019\x80\xc3', None)  # None: another bit


@pytest.mark.parametrize("block_size", [0, 37])
def test_every_prefix_is_told_of_as_by_the_json_parser(small, monkeypatch, block_size):
    for size in sweep.some(range(len(SAMPLE) + 1), 9, keep=[SAMPLE_END], ends=12):
        assert not assert_same(monkeypatch, lambda size=size: SAMPLE[:size], block_size, size)


def test_every_changed_byte_is_told_of_as_by_the_json_parser(small, monkeypatch):
    streamed = 0
    for at in sweep.some(range(SAMPLE_END), 10):
        for value in sweep.values(ODD, at, 2):
            changed = bytearray(SAMPLE)
            changed[at] = changed[at] ^ 1 << at % 8 if value is None else value
            assert_same(monkeypatch, lambda changed=changed: bytes(changed), (0, 11, 37, 64)[at % 4], (at, value))
            with opened(lambda changed=changed: bytes(changed), 37) as model:
                streamed += model.parser.streams
    assert streamed > 20


def test_bytes_lost_and_put_in_are_told_of_as_by_the_json_parser(small, monkeypatch):
    for at in sweep.some(range(8, SAMPLE_END), 25):
        for lost in sweep.values((1, 3, 30), at, 1):
            assert_same(monkeypatch, lambda at=at, lost=lost: SAMPLE[:at] + SAMPLE[at + lost :], 37, (at, lost))
        assert_same(monkeypatch, lambda at=at: SAMPLE[:at] + b'"a1":1,' + SAMPLE[at:], 37, at)


def test_gaps_are_told_of_as_by_the_json_parser(small, monkeypatch):
    for at in sweep.some(range(9, SAMPLE_END), 25):
        for length in (1, 40):
            assert_same(monkeypatch, lambda at=at, n=length: GappyData(SAMPLE, [(at, n)]), 37, (at, length))


@pytest.mark.parametrize(
    "names",
    [
        ["a", "b", "a", "c"],
        ["a", "a#2", "b", "c", "a", "d"],
        ["a", "b", "c", "a", "a#2", "d", "a"],
        ["a", "b", "b", "a", "a", "b"],
        [*long_names(24), *long_names(4), "end"],
    ],
    ids=lambda names: f"{len(names)} names",
)
def test_repeated_names_are_told_of_as_by_the_json_parser(small, monkeypatch, names):
    content = pack(names, format="pt")
    early = [
        assert_same(monkeypatch, lambda source=source: source, block_size, (len(source), block_size))
        for source in (content, content[:-2], content[: len(content) * 2 // 3], content + b"x")
        for block_size in (11, 37)
    ]
    assert any(early)
    with opened(lambda: content, 37) as model:
        found = [tensor.name for tensor in model.tensors()]
        assert len(set(found)) == len(names)
        assert model[found[0]].name == names[0]


def test_repeated_metadata_is_told_of_as_by_the_json_parser(small, monkeypatch):
    rows = f'{{"__metadata__":{{"a":"b"}},"a":{entry(0, 2)},"b":{entry(2, 2)},"__metadata__":{{}},"c":{entry(4, 1)}}}'
    content = struct.pack("<Q", len(rows)) + rows.encode() + bytes(5)
    assert not assert_same(monkeypatch, lambda: content, 37, "metadata")


def test_long_metadata_are_no_obstacle(small, monkeypatch):
    content = pack(NAMES, text="x" * 3_000)
    assert not assert_same(monkeypatch, lambda: content, 37, "long")
    with opened(lambda: content, 37) as model:
        assert [tensor.name for tensor in model.tensors()] == NAMES
        assert model.parser.is_plain  # nothing was left to be read as damaged


def test_a_space_behind_a_comma_may_begin_a_block(small):
    for length in range(1, 60):
        rows = [("n" * length, 0, 2), *((f"t{number}", 2 * number, 2 * number + 2) for number in range(1, 30))]
        text = "{" + ", ".join(f'"{name}": {entry(begin, end - begin)}' for name, begin, end in rows) + "}"
        with pparse.view(struct.pack("<Q", len(text)) + text.encode() + bytes(range(60))) as model:
            assert [tensor.name for tensor in model.tensors()] == [name for name, _, _ in rows]
            assert model.parser.is_plain
            assert model["t29"].numpy().tolist() == [58, 59]


def test_nothing_but_long_metadata_is_read_again():
    content = pack(long_names(COUNT), text="x" * 400_000)
    with pparse.view(content) as model:
        assert sum(1 for _ in model.tensors()) == COUNT
        assert model.extraction.session.stats.bytes <= HEADER + 5 * 400_000


def test_rows_that_are_not_held_are_read_again(small, monkeypatch):
    content = pack(long_names(60), format="pt")
    for most in (0, 900, 1 << 20):
        monkeypatch.setattr(plain_text, "_MOST_ROWS", most)
        for held in (0, 1 << 20):
            monkeypatch.setattr(plain_text, "HELD_TEXT", held)
            with opened(lambda: content, 256) as model:
                model.has_more_than(30)
                assert [tensor.name for tensor in model.tensors()] == long_names(60)
                assert all(model[name].name == name for name in reversed(long_names(60)))
                assert list(model) == long_names(60)
                model.extraction.session.budget.charge(model.extraction.session.budget.limit, "all").release()
                assert [tensor.name for tensor in model.tensors()] == long_names(60)
                assert all(model[name].name == name for name in reversed(long_names(60)))
            with opened(lambda: content, 256) as model:  # looked for before anything is listed
                assert [model[name].spans for name in long_names(60)] == [tensor.spans for tensor in model.tensors()]
                assert "model.layers" not in model


ROW = '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{ }",
        "",
        "[]",
        "{" + ROW + "}",
        "{" + ROW + "} \n ",
        "{" + ROW + "} x",
        "{" + ROW + "}}",
        "{" + ROW + ",}",
        "{" + ROW + ", }",
        "{," + ROW + "}",
        "{" + ROW,
        "{" + ROW + ",",
        "{" + ROW + ',"a',
        ROW + "}",
        "\ufeff{" + ROW + "}",
        "{" + ROW.replace(":", ": ").replace(",", ", ") + "}",
        "{" + ROW.replace(":", " : ") + "}",
        "{" + ROW.replace('"a"', '"\u00e4\u4e00\U0001f600"') + ',"b":' + entry(2, 1) + "}",
        "{" + ROW.replace('"a"', '"a\\u0041"') + "}",
        "{" + ROW.replace('"a"', '"a\tb"') + "}",
        "{" + ROW.replace('"a"', '""') + "}",
        "{" + ROW.replace('"a"', '"__metadata__"') + "}",
        "{" + ROW + ',"__metadata__":' + entry(2, 2) + "}",
        "{" + ROW + ',"b":' + entry(2, 2) + ',"__metadata__":' + entry(4, 2) + ',"c":' + entry(6, 2) + "}",
        "{" + ROW.replace("[2]", "[02]") + "}",
        "{" + ROW.replace("[2]", "[-2]") + "}",
        "{" + ROW.replace("[2]", "[2.0]") + "}",
        "{" + ROW.replace("[2]", "[]") + "}",
        "{" + ROW.replace("[2]", "[2,]") + "}",
        "{" + ROW.replace("[2]", "[1,2,1]") + "}",
        "{" + ROW.replace("[2]", "[" + "1," * 70 + "2]") + "}",
        "{" + ROW.replace("[0,2]", "[00,2]") + "}",
        "{" + ROW.replace("[0,2]", "[2,0]") + "}",
        "{" + ROW.replace("[0,2]", "[0,9999999999999999999999]") + "}",
        "{" + ROW.replace("[0,2]", "[0,2,3]") + "}",
        "{" + ROW.replace("U8", "Q8") + "}",
        "{" + ROW.replace("U8", "F4").replace("[2]", "[3]") + "}",
        "{" + ROW.replace("[2]", "[0]").replace("[0,2]", "[0,0]") + ',"b":' + entry(0, 2) + "}",
        "{" + ROW + ',"z":' + entry(1, 0) + ',"b":' + entry(2, 2) + "}",
        "{" + ROW + ',"b":' + entry(1, 2) + ',"c":' + entry(3, 2) + "}",
        "{" + ROW + ',"b":' + entry(4, 2) + ',"c":' + entry(2, 2) + "}",
        "{" + ROW + ',"b":' + entry(3, 2) + "}",
        "{" + ROW[:-1] + ',"more":1}}',
        "{" + ROW[:-1] + ',"dtype":"U8"}}',
        '{"__metadata__":null,' + ROW + "}",
        '{"__metadata__":{},' + ROW + "}",
        '{"__metadata__":{"a":"b" ,"c":"\\u00e4\\n"},' + ROW + "}",
        '{"__metadata__":{"a":"b","a":"c"},' + ROW + "}",
        '{"__metadata__":{"a":"b",},' + ROW + "}",
        '{"__metadata__":{"a":"b""c":"d"},' + ROW + "}",
        '{"__metadata__":{"a":"\\x"},' + ROW + "}",
        '{"__metadata__":{"a":1},' + ROW + "}",
        '{"__metadata__":7,' + ROW + "}",
        "{" + ROW + ',"__metadata__":{"a":"b"}}',
    ],
)
@pytest.mark.parametrize("data", [b"wxyzab", b"wx", b"w"])
def test_odd_headers_are_told_of_as_by_the_json_parser(monkeypatch, text, data):
    content = struct.pack("<Q", len(text.encode())) + text.encode() + data
    assert_same(monkeypatch, lambda: content, 37, text)


def test_rows_go_on_where_the_document_is_asked_for_other_things_meanwhile(small):
    content = pack(long_names(60), format="pt")
    for what in ("search", "forget", "count", "list"):
        with opened(lambda: content, 64) as model:
            found = []
            for tensor in model.tensors():
                found.append(tensor.name)
                root = model.parser.header.root
                if what == "search":
                    assert model[long_names(60)[len(found) * 17 % 60]].shape
                elif what == "forget" and len(found) in (5, 40):
                    root.unload()
                elif what == "count" and len(found) == 9:
                    assert len(root) == 61
                elif what == "list" and len(found) == 20:
                    assert len(model) == 60
            assert found == long_names(60), what


def test_a_read_that_fails_ends_the_listing_and_not_the_next_one():
    with pparse.view(MANY) as model:
        rows = model.tensors()
        next(rows)
        data, read = model.extraction.data, model.extraction.data.pread
        data.pread = lambda *_: (_ for _ in ()).throw(pparse.SourceError("it fails"))
        with pytest.raises(pparse.SourceError):
            list(rows)
        data.pread = read
        assert sum(1 for _ in model.tensors()) == COUNT


# -- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def doubled(tmp_path):
    """A file with a large header in which the names of the first tensor and one in the middle are the same."""
    names = long_names(3_000)
    names[1_500] = names[0]
    path = tmp_path / "doubled.safetensors"
    path.write_bytes(pack(names))
    return path, names[0]


def test_ls_tells_of_a_repeated_name_in_its_findings_totals_and_exit_code(doubled, run):
    path, name = doubled
    done = run("ls", path, "--json")
    rows = {tensor["name"]: tensor["status"] for tensor in done.json["tensors"]}
    assert len(rows) == 3_000
    assert rows[f"{name}#2"] == "damaged"
    assert done.code == 4
    assert done.json["status"] == "damaged"
    assert done.json["extent"]["damaged"] == 2
    assert [(found["path"], found["reason"]) for found in done.json["findings"]] == [
        (name, TWICE),
        (f"{name}#2", TWICE),
    ]
    done = run("ls", path, "--sort", "none", name)
    assert done.code == 4
    assert done.out.count(TWICE) == 1
    assert "damaged" in done.lines[-2]


def test_check_and_get_take_neither_of_two_tensors_with_one_name(doubled, run, tmp_path):
    path, name = doubled
    checked = run("check", path, "--json")
    assert checked.code == 4
    assert {found["path"] for found in checked.json["findings"] if found["reason"] == TWICE} == {name, f"{name}#2"}
    got = run("get", path, "-p", name, "-p", "model.layers.1.mlp.experts.1.*", "-o", tmp_path / "out.npz")
    assert got.code == 4
    assert f"{name}: damaged" in got.err
    assert run("recover", path, "-o", tmp_path / "saved").code == 4
    with pparse.view(tmp_path / "saved" / "doubled.safetensors") as saved:
        assert name not in saved
        assert len(saved) == 2_998


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [3, 50, 1 << 20])
def test_keys_that_came_are_known_in_slices_of_any_size(monkeypatch, most):
    monkeypatch.setattr(key_table, "_MANY", most)
    monkeypatch.setattr(key_table, "_LATEST", most)
    draw = random.Random(most)
    numbers = [draw.getrandbits(64) - (1 << 63) for _ in range(2_000)]
    seen = SeenKeys(MemoryBudget())
    for at in range(0, 2_000, 8):
        assert seen.are_new(numbers[at : at + 8])
        for old in (0, at // 2, at, at + 7):
            assert not seen.are_new([5, numbers[old], 6])
    assert not seen.are_new([7, 8, 7])
    assert seen.are_new([5, 6, 7, 8])


def test_keys_are_charged_and_refused_without_room():
    budget = MemoryBudget("1MiB")
    seen, first = SeenKeys(budget), 0
    while seen.are_new(range(first, first + 100)):
        first += 100
    assert 5_000 < first < 100_000  # fewer where numpy is not in use
    assert 400_000 < budget.used <= 3 << 18
    seen.release()
    assert budget.used == 0


def test_without_room_for_the_names_the_rows_are_the_same():
    with pparse.view(MANY, budget="1MiB") as model:
        assert [tensor.name for tensor in model.tensors()] == long_names(COUNT)


def test_places_out_of_order_need_no_room_beside_the_names():
    order = random.Random(3).sample(range(COUNT), COUNT)
    rows = ",".join(f'"{number}":{entry(3 * number, 3)}' for number in order)
    text = f"{{{rows}}}".encode()
    with pparse.view(struct.pack("<Q", len(text)) + text + bytes(range(1, 4)) * COUNT, budget="1MiB") as model:
        assert {tensor.status for tensor in model.tensors()} == {Status.COMPLETE}
        assert model.status is Status.COMPLETE


@pytest.mark.parametrize("repeated", [False, True])
def test_listings_that_go_on_side_by_side_are_whole(small, repeated):
    names = long_names(300)
    if repeated:
        names[200] = names[10]
    for other in (
        len,
        lambda model: list(model.values()),
        lambda model: model.extent(),
        lambda model: model.keys()[5:9],
    ):
        with opened(lambda: pack(names), 64) as model:
            found = []
            for number, tensor in enumerate(model.tensors()):
                found.append(tensor.name)
                if number in (3, 150):
                    other(model)
            assert len(found) == 300
            assert len(set(found)) == 300
    with opened(lambda: pack(names), 64) as model:
        pairs = list(zip(model.keys(), model.values(), strict=True))
        assert all(name == tensor.name for name, tensor in pairs)
        assert len(pairs) == 300
