"""FlatBuffers by a compiled schema that is given, and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

import pparse
from pparse import OptionError, Status
from tests.flatbuffers_files import Builder, tflite
from tests.rows import rows

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
