"""FlatBuffers by a compiled schema that is given, and without one."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import pparse
from pparse import OptionError, Status
from pparse.data.base import BytesData
from pparse.parsers.flatbuffers.schemaless import SchemalessParser
from pparse.tree.parser import Confidence
from tests.flatbuffers_files import Builder, tflite
from tests.rows import rows
from tests.truth.samples import SAMPLES, load

DATA = Path(__file__).parent / "data" / "flatbuffers"
# What monster.bin was made of: flatc 24.3.25, -b (--schema --bfbs-builtins) monster.fbs, and this as JSON.
MONSTER = {
    "pos": {"x": 1.0, "y": 2.0, "t": [1, 2, 3], "c": "Red"},
    "mana": 7,
    "name": "Orc",
    "inventory": b"\1\2\3",
    "color": "Green",
    "weapons": [{"name": "Axe"}, {"name": "Sword", "damage": 9}],
    "equipped_type": "N",
    "equipped": {"text": "hi"},
    "many_type": ["Weapon", "N", "V"],
    "many": [{"name": "Bow"}, {"text": "nn"}, {"x": 1.0, "y": 2.0, "t": [1, 2, 3], "c": "Red"}],
    "flags": 5,
    "path": [{"x": 1.0, "y": 2.0, "t": [1, 2, 3], "c": "Red"}],
    "names": ["one", "two"],
    "colors": ["Red", "Blue"],
}


def opened(content: object, **options: object) -> pparse.Extraction:
    return pparse.open(content, format="flatbuffers", options=options)


@rows("schema", [str(DATA / "monster.bfbs"), (DATA / "monster.bfbs").read_bytes()], ids=["path", "bytes"])
def test_a_compiled_schema_names_and_types_the_fields(schema):
    with opened(DATA / "monster.bin", schema=schema) as document:
        assert document.root.to_python() == MONSTER
        assert not list(document.check())
        types = document.parse().parser.schema
        fields = {field.name: field for field in types.root_type.fields}
        assert (types.identifier, fields["mana"].default, fields["ratio"].default) == ("MONS", 150, 1.5)
        assert (fields["inner"].type.holds, fields["flex"].type.holds) == ("Weapon", "flexbuffer")
        assert fields["big"].type.wide == 2


def test_a_size_before_the_buffer_is_passed_over():
    content = (DATA / "monster.bin").read_bytes()
    with opened(struct.pack("<I", len(content)) + content, schema=str(DATA / "monster.bfbs")) as document:
        assert document.root.to_python() == MONSTER
        assert not list(document.check())


def test_a_compiled_schema_is_read_itself():
    with pparse.open(DATA / "monster.bfbs") as document:
        assert document.status is Status.COMPLETE
        assert document.node("objects[0].name").value == "game.one.Monster"
        assert document.node("enums[0].is_union").value is True


def test_without_a_schema_kinds_are_guessed():
    with opened(DATA / "monster.bin") as document:
        assert document.status is Status.COMPLETE
        kinds = {node.key: node.kind for node in document.root.children()}
        assert [kinds[slot] for slot in ("0", "1", "2", "6", "8", "14")] == [
            *("bytes?", "uint16?", "text?", "[table?]", "table?", "[text?]"),
        ]
        assert document.node("6[1].0").value == "Sword"
        assert [node.value for node in document.node("14").children()] == ["one", "two"]


def test_numbers_are_told_by_their_room_and_size():
    build = Builder()
    fields = [(0, "B", 200), (1, "H", 60_000), (2, "i", -5), (3, "f", 0.5), (4, "d", -0.25), (5, "q", 1 << 40)]
    content = build.finish(build.table(**{f"f{field[0]}": field for field in fields}))
    with opened(content) as document:
        assert [node.value for node in document.root.children()] == [200, 60_000, -5, 0.5, -0.25, 1 << 40]


def test_bytes_at_the_end_that_nothing_reaches_are_told():
    build = Builder()
    content = build.finish(build.table(name=(0, "@", build.text("a name")), more=(1, "@", build.text("t" * 50))))
    with opened(content[:-30]) as document:
        assert document.status is Status.TRUNCATED
        assert "belong to no field" in document.root.finding.reason
        assert document.node("1").value == "t" * 50 or document.root.find("0") is not None


@rows(
    "schema, words",
    [
        (str(DATA / "monster.bin"), "is no compiled schema"),
        ((DATA / "monster.bfbs").read_bytes()[:-400], "is no compiled schema"),
        ((DATA / "monster.bfbs").read_bytes().replace(b"Monster", b"Mon ter"), "is no name"),
    ],
    ids=["data", "cut", "name"],
)
def test_a_schema_that_cannot_be_read_is_refused(schema, words):
    with pytest.raises(OptionError, match=words), opened(DATA / "monster.bin", schema=schema) as document:
        document.root.to_python()


def test_tables_of_a_schema_that_are_shared_are_not_gone_through_for_ever():
    build = Builder()
    field = build.table(name=(0, "@", build.text("f")), type=(1, "@", build.table(base=(0, "b", 7))))
    thing = build.table(name=(0, "@", build.text("T")), fields=(1, "@", build.references([field] * 3000)))
    things = build.references([thing] * 3000)
    root = build.table(objects=(0, "@", things), enums=(1, "@", build.references([])), root=(4, "@", thing))
    with pytest.raises(OptionError, match="share"), opened(tflite([]), schema=build.finish(root, b"BFBS")) as document:
        document.root.to_python()


def told(content: bytes) -> bool:
    """Say whether bytes are taken for a FlatBuffer that nothing else marks; of all formats these are asked last."""
    data = Counting(content)
    try:
        found = SchemalessParser.match_further(data.range(0, len(content)), thorough=True)
    except pparse.DataError:
        return False
    assert data.count <= 1 << 19
    return found is Confidence.LIKELY


class Counting(BytesData):
    count = 0

    def pread(self, offset: int, length: int) -> bytes:
        found = super().pread(offset, length)
        self.count += len(found)
        return found


@rows(
    ("name", "format"),
    [
        *[(name, "flatbuffers") for name in ("small.ort", "int8.tflite", "monster.bin")],
        *[("small.pte", "executorch"), ("external.ptd", "executorch-data"), ("small.mnn", "mnn")],
    ],
)
def test_a_flatbuffer_is_told_by_its_tables(run, tmp_path, name, format):
    content = (DATA / name).read_bytes()
    changed = content if name == "small.mnn" else content[:4] + b"ABCD" + content[8:]
    path = tmp_path / "noname"
    path.write_bytes(changed)
    with pparse.open(path) as document:
        assert document.format == format
        assert ("guessed" in {finding.code for finding in document.check()}) is (format == "flatbuffers")
    assert run("ls", path).out.startswith("NAME  KIND") is (format == "flatbuffers")
    prefixed = struct.pack("<I", len(changed)) + changed
    assert told(prefixed)
    with opened(prefixed) as document, opened(changed) as other:
        found, wanted = ([(node.key, node.kind) for node in one.root.children()] for one in (document, other))
        assert found == wanted != []
    assert not told(changed[1:])
    assert not told(b"\0" + changed[:-1])


def test_of_a_cut_file_numbers_that_may_lead_far_behind_the_end_say_so():
    content = (DATA / "small.ort").read_bytes()
    content = content[:4] + b"ABCD" + content[8:]
    unseen = []
    for size in range(600, len(content), 100):
        with opened(content[:size]) as document:
            if document.status is not Status.TRUNCATED:
                unseen.append(size)
    assert len(unseen) <= 4  # of 50: no other table has what lies behind these


def codes(content: bytes) -> tuple[Status, set[str]]:
    with opened(content) as document:
        return document.status, {finding.code for finding in document.check()} - {"guessed"}


def test_a_table_whose_numbers_all_lead_behind_the_end_may_be_cut():
    """They are what references were: the first leads right there, and a text lies between two of them at least."""
    content = load("flatbuffers").content
    assert codes(content) == (Status.COMPLETE, set())
    with opened(content[:168]) as document:
        assert {node.status for node in document.root.children()} == {Status.MISSING}
        assert document.status is Status.TRUNCATED
    build = Builder()
    numbers = [32, 8, 4096, 11008, 32, 4096, 32000, 128, 12]
    content = build.finish(build.table(**{f"f{slot}": (slot, "i", number) for slot, number in enumerate(numbers)}))
    assert codes(content) == (Status.COMPLETE, set())


@rows("word", [0, 4, 0xFFFFFFFF])
def test_bytes_that_a_damaged_reference_led_to_are_told(word):
    """Of a text, and of a table with all below it; what lies behind elements of unknown length may be theirs."""
    content = load("flatbuffers").content
    for at in range(76, 160, 4):
        assert codes(content[:at] + struct.pack("<I", word) + content[at + 4 :])[1], at
    content = (DATA / "monster.bin").read_bytes()
    assert codes(content)[1] == set()
    with opened(content) as document:
        places = [slot for slot in range(0, 120, 4) if content[slot : slot + 4] != b"\0\0\0\0"]
        told = [at for at in places if codes(content[:at] + struct.pack("<I", word) + content[at + 4 :])[1]]
        assert document.node("2").value == "Orc"
        assert len(told) >= 6


def test_nothing_else_is_taken_for_a_flatbuffer():
    own = {".tflite", ".ort", ".mnn", ".pte", ".ptd", ".fb"}
    for name in SAMPLES:
        sample = load(name)
        assert Path(sample.file).suffix in own or not told(sample.content), name
    rng = random.Random(5)
    small = [struct.pack("<i", number) for number in range(-40, 41, 4)]
    for number in range(10_000):
        count = rng.randrange(8, 200)
        parts = [*small, b"abcdefgh", b"name\0\0\0\0", *(struct.pack("<HH", rng.randrange(32), 8) for _ in range(9))]
        made = rng.randbytes(4 * count) if number & 1 else b"".join(rng.choices(parts, k=count))
        assert not told(made), number


def test_hostile_tables_are_not_gone_through_for_ever():
    build = Builder()
    leaf = build.table(number=(0, "I", 7))
    vector = build.references([leaf] * 100_000)
    root = build.table(**{f"f{slot}": (slot, "@", vector) for slot in range(200)})
    assert not told(build.finish(root))
