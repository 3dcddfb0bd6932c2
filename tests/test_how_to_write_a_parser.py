"""The toy of docs/how-to-write-a-parser.md: it keeps the contract, and is what the page shows."""

from __future__ import annotations

import importlib.util
import signal
import sys
import tomllib
from pathlib import Path
from struct import pack, unpack_from
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pytest

import pparse
from pparse import DONE, Parser
from pparse.document.registry import PARSER_GROUP, VIEWER_GROUP
from pparse.testing import ParserContract, UnknownSizeData, tree_of
from pparse.testing.contract import EndlessCaseError, Patience
from tests.sparse_contract import SparseContract

if TYPE_CHECKING:
    from types import ModuleType

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"
PAGE = EXAMPLES.parent / "how-to-write-a-parser.md"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toy_parser, toy_viewer, toy_json = load("toy_parser"), load("toy_viewer"), load("toy_json")
toy_checked = load("toy_checked")


def record(kind: int, name: str | bytes, payload: bytes) -> bytes:
    name = name.encode() if isinstance(name, str) else name
    return pack("<BH", kind, len(name)) + name + pack("<I", len(payload)) + payload


def floats(*values: float) -> bytes:
    return pack(f"<{len(values)}f", *values)


def checked(kind: int, name: str, payload: bytes) -> bytes:
    return record(kind, name, payload + crc32(payload).to_bytes(4, "little"))


NESTED = record(2, "a", record(2, "b", record(3, "w", floats(1, 2)) + record(1, "n", b"x" * 300)) + record(2, "", b""))


class TestToyContract(SparseContract):
    parser = toy_parser.ToyParser
    samples = {
        "page": (EXAMPLES / "model.toy").read_bytes(),
        "nested": b"TOY1" + record(1, "", b"") + NESTED + record(1, "日本.[x]", b"z"),
        "same names": b"TOY1" + record(2, "g", record(1, "n", b"1") + record(1, "n", b"2")) + record(1, "n", b"3"),
        "empty": b"TOY1",
    }

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """A file may end behind any of its records."""
        at = 4
        while 4 <= at < len(prefix):
            _, name_length = unpack_from("<BH", prefix.ljust(at + 3), at)
            (length,) = unpack_from("<I", prefix.ljust(at + 7 + name_length), at + 3 + name_length)
            at += 7 + name_length + length
        return at == len(prefix)


class TestRecipeContract(SparseContract):
    parser = toy_json.RecipeParser
    samples = {"tea": b'{"toy-recipe": 1, "steps": ["boil", {"wait": 3.5}], "for": null}'}


# -- what the page says of it ----------------------------------------------------------------------------------------


class TestCheckedToyContract(TestToyContract):
    parser = toy_checked.CheckedToyParser
    samples = {
        "checked": b"TOY2"
        + checked(1, "", b"")
        + record(2, "g", checked(3, "w", floats(1, 2)) + checked(1, "w", b"x")),
        "empty": b"TOY2",
    }


@pytest.mark.parametrize("name", ["toy_parser.py", "toy_viewer.py", "toy_json.py", "toy_checked.py"])
def test_the_page_shows_the_files(name: str) -> None:
    listing = (EXAMPLES / name).read_text(encoding="utf-8")
    assert f"```python\n{listing}```\n" in PAGE.read_text(encoding="utf-8")


def test_the_parser_is_short() -> None:
    lines = [line for line in (EXAMPLES / "toy_parser.py").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 60


def test_the_entry_points_lead_to_the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert set(groups) == {PARSER_GROUP, VIEWER_GROUP}
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for rows in groups.values():
        for name, target in rows.items():
            module, _, attribute = target.partition(":")
            found = getattr(importlib.import_module(module), attribute)
            monkeypatch.delitem(sys.modules, module)
            # A viewer is found by the name of its parser.
            assert name == toy_parser.ToyParser.name
            assert issubclass(found, pparse.Parser | pparse.Viewer)


# -- states that the contract does not reach -------------------------------------------------------------------------


def open_toy(source: object, **options: object) -> pparse.Extraction:
    return pparse.open(source, parsers=[toy_parser.ToyParser], format="toy", **options)


def test_a_wrong_checksum_is_told_by_whoever_meets_it() -> None:
    sample = b"TOY2" + checked(1, "good", b"1") + record(1, "short", b"12") + record(1, "bad", b"2wrong") + b"\1"
    with pparse.open(sample, parsers=[toy_checked.CheckedToyParser]) as document:
        assert [finding.path for finding in document.check() if finding.code == "checksum"] == ["short", "bad"]
    with pparse.open(sample, parsers=[toy_checked.CheckedToyParser]) as document:
        assert document.get("good") == b"1"
        with pytest.raises(pparse.MalformedError, match="its checksum is wrong"):
            document.get("bad")
        assert document.node("bad").status is pparse.Status.DAMAGED


def test_damage_is_passed_over() -> None:
    good = record(1, "good", b"1")
    for bad in (record(9, "kind", b"22"), record(1, b"\xff", b"333")):
        with open_toy(b"TOY1" + good + bad + record(1, "last", b"4")) as document:
            assert list(document.root.keys()) == ["good", "last"]
            assert document.get("last") == b"4"
            assert document.status is pparse.Status.DAMAGED
            assert next(finding.offset for finding in document.check()) >= 4 + len(good)


def test_a_record_that_leaves_its_group() -> None:
    for inner in (b"\1", b"\1\7\0", record(1, "n", b"12")[:-1]):
        with open_toy(b"TOY1" + record(2, "g", record(1, "ok", b"1") + inner) + record(1, "after", b"2")) as document:
            group = document.node("g")
            assert group.status is pparse.Status.DAMAGED
            assert list(group.keys()) == ["ok"]
            assert group.finding.reason in (
                "the bytes node leaves the group around it",
                "the group ends inside a record",
            )
            assert document.get("after") == b"2"


def test_cut_inside_nested_groups() -> None:
    sample = b"TOY1" + NESTED
    cut = sample[: sample.index(b"x" * 300) + 10]
    with open_toy(cut) as document:
        assert np.frombuffer(document.get("a.b.w"), "<f4").tolist() == [1, 2]
        for path in ("", "a", "a.b", "a.b.n"):
            document.node(path).load() if path != "a.b.n" else None
            assert document.node(path).status is pparse.Status.TRUNCATED
        with pytest.raises(pparse.EndOfDataError) as caught:
            document.get("a.b.n")
        assert (caught.value.wanted, caught.value.got) == (300, 10)


def test_a_cut_stream_of_unknown_size() -> None:
    sample = b"TOY1" + record(1, "first", b"1") + record(1, "second", bytes(5000))
    with open_toy(UnknownSizeData(sample[:-100])) as document:
        tree_of(document)
        assert document.status is pparse.Status.TRUNCATED
        assert document.get("first") == b"1"


def test_a_piece_of_a_larger_file_ends_where_it_ends() -> None:
    sample = b"TOY1" + record(1, "n", b"12345")
    with pparse.open(b"before" + sample + b"after", parsers=[toy_parser.ToyParser], format="json") as outer:
        inner = outer.child("inner", outer.data, 6, 6 + len(sample) - 2, "toy")
        assert inner.node("n").status is pparse.Status.TRUNCATED
        assert inner.status is pparse.Status.TRUNCATED


def test_many_records_and_laziness() -> None:
    count = 150_000
    sample = (
        b"TOY1" + b"".join(record(1, f"n{number}", b"") for number in range(count)) + record(1, "big", bytes(1 << 20))
    )
    with open_toy(sample) as document:
        assert len(document.root) == count + 1
        assert document.root.index.memory < count  # a checkpoint per 64
        assert document.root.child(123_456).key == "n123456"
        served = document.session.stats.bytes
        assert served < len(sample) - (1 << 20) + (1 << 19)  # the large payload was not read


# -- the viewer ------------------------------------------------------------------------------------------------------


def view_toy(source: bytes) -> pparse.Viewer:
    registry = pparse.Registry(plugins=False)
    registry.add(toy_parser.ToyParser, toy_viewer.ToyViewer)
    return pparse.view(source, registry=registry)


def test_the_toy_viewer_gives_the_tensors_of_the_example() -> None:
    sample = (EXAMPLES / "model.toy").read_bytes()
    with view_toy(sample) as model:
        assert list(model) == ["layers.up", "layers.down", "last"]
        assert model["layers.down"].numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert model["last"][2:4].tolist() == [2, 3]
        assert "note" not in model
        assert "nothing" not in model
        assert model.status is pparse.Status.COMPLETE
        assert not list(model.check())


def test_viewer_of_what_is_not_whole() -> None:
    sample = (EXAMPLES / "model.toy").read_bytes()
    with view_toy(sample[:-8]) as model:
        assert model["last"].status is pparse.Status.TRUNCATED
        assert model["last"].numpy(partial="prefix").tolist() == [0, 1, 2, 3, 4, 5]
        extent = model.extent()
        assert (extent.status, extent.missing_bytes, extent.resume_at) == (pparse.Status.TRUNCATED, 8, len(sample) - 8)
    with view_toy(b"TOY1" + record(3, "odd", b"12345")) as model:
        with pytest.raises(pparse.DamagedTensorError):
            model["odd"].numpy()
        assert model.status is pparse.Status.DAMAGED
    with view_toy(b"TOY1" + record(7, "what", b"")) as model:
        assert model.status is pparse.Status.DAMAGED


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that interrupts here")
def test_the_contract_names_the_case_that_has_no_end():
    class Endless(Parser):
        """Loops over one input."""

        name = "endless"
        description = "toy"
        shapes = {"endless": "list"}

        def begin(self, ctx):
            while ctx.node.end == 3:
                pass
            return ctx.node.start, DONE, 0

    class Contract(ParserContract):
        parser = Endless
        samples = {"one": b"abcd"}
        patience = Patience(0.2)

    contract = Contract()
    try:
        with pytest.raises(EndlessCaseError, match=r"3 bytes: b'abc': no end after 0.2 seconds"):
            contract.test_every_prefix()
    finally:
        contract.teardown_method()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
