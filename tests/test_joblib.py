"""Files of joblib: the arrays between the opcodes are what joblib reads, and nothing else is said to be whole."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pparse
from pparse.cli import main
from pparse.errors import PparseError
from pparse.findings import Status
from pparse.recovery.recover import recover
from pparse.testing.contract import Patience
from tests import sweep
from tests.joblib_samples import FOLDER, described, one_array, padded, row, rows, state, told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = (FOLDER / "arrays4.joblib").read_bytes()
OLD = ("joblib-0.9.4.joblib", "joblib-0.9.4-compressed.joblib")
WHOLE = sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".json" and path.name not in OLD)
# Trees and encoders also have arrays that are no attributes, but arguments.
ARGUMENTS = ("model.joblib",)


@pytest.mark.parametrize("name", WHOLE)
def test_arrays_are_those_of_joblib(name: str) -> None:
    source = "arrays4.joblib" if name == "joblib-1.1.0-compressed.joblib" else name
    with pparse.view(FOLDER / name) as viewer:
        found = rows(viewer)
        wanted = told(source)
        if name in ARGUMENTS:
            found = {key: found[key] for key in found if key in wanted}
        assert found == wanted
        assert not viewer.extraction.findings.errors
        assert all(tensor.status is Status.COMPLETE for tensor in viewer.tensors() if tensor.dtype is not None)


@pytest.mark.parametrize("name", WHOLE)
def test_nodes_are_whole(name: str) -> None:
    with pparse.open(FOLDER / name) as document:
        assert not list(document.check())


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("name", ["arrays0.joblib", "arrays4.joblib", "vendored4.joblib"])
def test_blocks_may_end_anywhere(name: str, chunk: int) -> None:
    with pparse.open(FOLDER / name, block_size=chunk) as document:
        assert rows(document.view()) == told(name)


def test_pages_are_read_again_if_somebody_looks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the first pages nothing that is memoized is noted, before an array is described by it."""
    monkeypatch.setattr("pparse.parsers.pickle.program.PAGE", 64)
    monkeypatch.setattr("pparse.parsers.pickle.program._PAGES_KEPT", 1)
    monkeypatch.setattr("pparse.parsers.pickle.program._MOST_AGAIN", 1000)
    for name in ("arrays4.joblib", "arrays5.joblib", "two.joblib"):
        content = (FOLDER / name).read_bytes()
        late = content[:2] + b"K00" * 160 + content[2:]  # numbers that are taken away again
        for block_size in (0, 7):
            with pparse.open(late, block_size=block_size) as document:
                assert not list(document.check()), name
                assert rows(document.view()) == told(name), name


def test_arrays_and_their_descriptions_are_nodes() -> None:
    with pparse.open(FOLDER / "arrays4.joblib") as document:
        node = document.root.find("matrix")
        assert [(kid.key, kid.kind) for kid in node.children()] == [
            ("callable", "global"),
            ("args", "tuple"),
            ("state", "dict"),
            ("array", "raw"),
        ]
        assert node.find("array").load() == np.arange(12, dtype="f4").tobytes()
        assert node.to_python().state["shape"] == (3, 4)
        objects = document.root.find("objects").find("array")
        assert objects.find("callable").load().name == "_reconstruct"


def test_a_tree_has_tensors_in_place_of_arrays() -> None:
    with pparse.view(FOLDER / "arrays4.joblib") as viewer:
        tree = viewer.tree()
        assert tree["matrix"].shape == (3, 4)
        assert tree["list"][3][0].name == "list.3.0"
        assert tree["objects"].name.endswith("_reconstruct")
        assert viewer.metadata["objects.1"] == "a"


def test_globals_of_arrays_of_objects_are_told(capsys: Any) -> None:
    assert main(["info", str(FOLDER / "arrays4.joblib")]) in (0, 4)
    assert "numpy._core.multiarray._reconstruct" in capsys.readouterr().out


def test_files_beside_are_named() -> None:
    with pparse.view(FOLDER / OLD[0]) as viewer:
        tensor = viewer["matrix"]
        assert tensor.status is Status.UNSUPPORTED
        assert tensor.finding is not None
        assert tensor.finding.code == "external"
        assert "joblib-0.9.4.joblib_01.npy" in tensor.finding.reason
        assert "list.3.0" in viewer
    with pytest.raises(pparse.FormatError, match=r"joblib before 0\.10"), pparse.open(FOLDER / OLD[1]) as document:
        document.parse()


def many(count: int, size: int) -> bytes:
    """Return a list of arrays of ``size`` bytes."""
    made = b"\x80\x02]("
    for number in range(count):
        array = np.full(size, number, dtype="u1")
        made += described(state(array))
        made += padded(len(made), array.tobytes())
    return made + b"e."


def test_large_arrays_are_listed_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "large.joblib"
    path.write_bytes(many(20, 1 << 20))
    with pparse.open(path) as document:
        viewer = document.view()
        assert [tensor.nbytes for tensor in viewer.tensors()] == [1 << 20] * 20
        assert document.session.stats.bytes < 20 * 4096
        assert viewer["7"].numpy().tolist() == [7] * (1 << 20)


def test_a_large_array_of_objects_is_gone_through_by_its_nodes() -> None:
    array = np.array([[str(number)] * 3 for number in range(30_000)], dtype=object)
    head = b"\x80\x02}X\1\0\0\0o" + described(state(array)) + pickle.dumps(array, 5)
    with pparse.open(head + b"sX\1\0\0\0zK\7s.") as document:
        found = document.view().metadata
        assert [found[f"o.{number}"] for number in range(5)] == ["0", "0", "0", "1", "1"]


def test_what_is_shared_is_found_behind_large_pages() -> None:
    """Types, and the keys of states, are named again far behind where they were memoized."""
    array = np.arange(4, dtype="<i8")

    class Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
        def save(self, value: Any, save_persistent_id: bool = True) -> Any:
            if type(value) is not tuple or value[:1] != ("array",):
                return super().save(value, save_persistent_id)
            self.write(b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81")
            self.save(state(value[1], numpy_array_alignment_bytes=None))
            self.write(b"b" + value[1].tobytes())
            return None

    out = io.BytesIO()
    rest = ["x" * 200 + str(number) for number in range(12_000)]  # more than two of the pages of a mebibyte
    Pickler(out, 2).dump({"a": ("array", array), "rest": rest, "b": ("array", array)})
    with pparse.open(out.getvalue()) as document:
        viewer = document.view()
        assert [(tensor.name, tensor.numpy().tolist()) for tensor in viewer.tensors()] == [
            ("a", [0, 1, 2, 3]),
            ("b", [0, 1, 2, 3]),
        ]
        assert document.root.find("b").find("array").load() == array.tobytes()


# -- cut, and changed --------------------------------------------------------------------------------------------------


def places() -> dict[str, tuple[int, int]]:
    """Return begin and end of the bytes of each array that stands between opcodes."""
    with pparse.view(SMALL) as viewer:
        return {
            tensor.name: (span.offset, span.offset + span.length)
            for tensor in viewer.tensors()
            for span in tensor.spans
            if span.data is viewer.extraction.data
        }


def asked(content: bytes) -> tuple[dict[str, tuple[Status, list[Any] | None]], bool]:
    """Return status and row of each array, and whether anything is said to be wrong."""
    found: dict[str, tuple[Status, list[Any] | None]] = {}
    try:
        with pparse.open(content, format="pickle") as document:
            wrong = bool(list(document.check())) or document.root.status is not Status.COMPLETE
            for tensor in document.view().tensors() if document.root.children() is not None else ():
                array = None
                try:
                    array = row(np.asarray(tensor.numpy()).reshape(tensor.shape)) if tensor.dtype else None
                except PparseError:
                    pass
                found[tensor.name] = tensor.status, array
                wrong = wrong or tensor.status not in (Status.COMPLETE, Status.UNSUPPORTED)
    except PparseError:
        return found, True
    return found, wrong


def test_every_prefix_has_the_arrays_whose_bytes_are_there() -> None:
    wanted, spans = told("arrays4.joblib"), places()
    assert len(spans) == 12
    borders = [place for span in spans.values() for place in span]
    for length in sweep.some(range(len(SMALL)), 24, keep=borders, ends=8):
        found, wrong = asked(SMALL[:length])
        assert wrong, length
        for name, (begin, end) in spans.items():
            if begin == end:
                continue
            if end <= length:
                # A tuple that is not made yet is not in its name.
                one = found.get(name) or found[name.rpartition(".")[0]]
                assert one == (Status.COMPLETE, wanted[name]), (length, name)
            elif begin < length:
                one = found.get(name) or found[name.rpartition(".")[0]]
                assert one == (Status.TRUNCATED, None), (length, name)
            else:
                assert found.get(name, (Status.MISSING,))[0] is Status.MISSING, (length, name)


def test_no_changed_byte_makes_other_arrays_that_are_called_whole() -> None:
    """A byte of an array or of its description changes that array, and those that share its type: no others."""
    wanted, spans = told("arrays4.joblib"), places()
    for at in sweep.some(range(len(SMALL)), 18):
        changed = bytearray(SMALL)
        (bit,) = sweep.values((1, 0x80), at, 1)
        changed[at] ^= bit
        found, wrong = asked(bytes(changed))
        if wrong:
            continue
        inside = any(first <= at < last for first, last in spans.values())
        for name, (status, array) in found.items():
            if status is not Status.COMPLETE or name not in wanted or array == wanted[name]:
                continue
            first, last = spans.get(name, (0, len(SMALL)))
            assert at < last, (at, name)  # nothing before it
            assert first <= at or not inside, (at, name)  # and bytes of others do not matter


@pytest.mark.parametrize("padding", [0, 1, 3, 15, 16, 17, 200])
def test_padding_that_is_not_of_joblib_is_damage(padding: int) -> None:
    whole = one_array()
    assert asked(whole) == ({"0": (Status.COMPLETE, row(np.arange(10, dtype="<i4")))}, False)
    right = whole[len(described(state(np.arange(10, dtype="<i4")))) + 4]
    if padding != right:
        found, wrong = asked(one_array(padding))
        assert wrong
        assert found["0"][0] in (Status.DAMAGED, Status.TRUNCATED)


def test_padding_is_not_judged_by_its_length_alone() -> None:
    whole = bytearray(one_array())
    place = whole.index(b"\xff\xff\x00\x00\x00\x00\x01\0\0\0")
    whole[place] = 0xFE
    found, wrong = asked(bytes(whole))
    assert wrong
    assert found["0"][0] is Status.DAMAGED


def test_a_file_in_a_file_may_be_aligned_otherwise() -> None:
    """Where joblib wrote behind other bytes, all arrays are off by the same."""
    array = np.arange(6, dtype="<i2")
    made = b"\x80\x02]("
    for _ in range(3):
        made += described(state(array))
        made += padded(len(made) + 5, array.tobytes())
    found, wrong = asked(made + b"e.")
    assert not wrong
    assert {name: status for name, (status, _) in found.items()} == dict.fromkeys("012", Status.COMPLETE)


# -- made to be costly -------------------------------------------------------------------------------------------------


class Type:
    """A type with another word and state."""

    def __init__(self, word: Any, *state: Any) -> None:
        self.word, self.state = word, state

    def __reduce__(self) -> Any:
        return np.dtype, (self.word, False, True), self.state or (3, "<", None, None, None, -1, -1, 0)


HOSTILE: dict[str, tuple[dict[str, Any], tuple[Status, ...]]] = {
    "2^60 bytes": ({"shape": (1 << 57,)}, (Status.TRUNCATED,)),
    "2^70 bytes": ({"shape": (1 << 35, 1 << 35)}, (Status.DAMAGED,)),
    "a product of 2^64": ({"shape": (1 << 32, 1 << 32)}, (Status.DAMAGED,)),
    "a product of 2^64 + 10": ({"shape": (10, (1 << 64) // 10 + 1)}, (Status.DAMAGED,)),
    "a negative length": ({"shape": (-1,)}, (Status.DAMAGED,)),
    "two negative lengths": ({"shape": (-5, -2)}, (Status.DAMAGED,)),
    "a length of 2^1000": ({"shape": (1 << 1000, 0)}, (Status.DAMAGED,)),
    "a length that is text": ({"shape": ("10",)}, (Status.DAMAGED,)),
    "a length that is true": ({"shape": (True,)}, (Status.DAMAGED,)),
    "a shape that is a list": ({"shape": [10]}, (Status.DAMAGED,)),
    "70 dimensions": ({"shape": (1,) * 70}, (Status.DAMAGED,)),
    "no shape": ({"shape": None}, (Status.DAMAGED,)),
    "an unknown type": ({"dtype": Type("q8")}, (Status.UNSUPPORTED,)),
    "a type of no bytes": ({"dtype": Type("S0")}, (Status.UNSUPPORTED,)),
    "a type of 2^40 bytes": ({"dtype": Type("S1099511627776")}, (Status.UNSUPPORTED,)),
    "a type of 9 bytes": ({"dtype": Type("f9")}, (Status.UNSUPPORTED,)),
    "digits": ({"dtype": Type("S" + "9" * 5000)}, (Status.UNSUPPORTED,)),
    "a type with two sizes": ({"dtype": Type("S4", 3, "|", None, None, None, 5, 1, 0)}, (Status.UNSUPPORTED,)),
    "an unknown byte order": ({"dtype": Type("i4", 3, "?", None, None, None, -1, -1, 0)}, (Status.UNSUPPORTED,)),
    "a type that is text": ({"dtype": "i4"}, (Status.UNSUPPORTED,)),
    "no type": ({"dtype": None}, (Status.UNSUPPORTED,)),
    "an unknown order": ({"order": "A"}, (Status.DAMAGED,)),
    "an order that is a list": ({"order": ["C"]}, (Status.DAMAGED,)),
    "objects that are none": ({"dtype": np.dtype(object)}, (Status.DAMAGED, Status.TRUNCATED)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_descriptions_that_cannot_be_are_refused(name: str) -> None:
    changed, wanted = HOSTILE[name]
    patience = Patience()
    patience.begin(name)
    with pparse.open(one_array(**changed), format="pickle", budget="64MiB") as document:
        assert document.root.status in wanted
        for _ in document.check():
            pass
        for tensor in document.view().tensors():
            assert tensor.status is not Status.COMPLETE, tensor
        assert document.findings.errors
    patience.end()


@pytest.mark.parametrize("alignment", [0, -16, 1 << 70, "16", True])
def test_alignments_that_cannot_be_are_damage(alignment: Any) -> None:
    found, wrong = asked(one_array(numpy_array_alignment_bytes=alignment))
    assert wrong
    assert found["0"][0] is Status.DAMAGED


def test_types_far_away_are_not_looked_up_without_end() -> None:
    """Each array names a type of its own, in another page than the one before: each page would be read again."""
    made = io.BytesIO()
    made.write(b"\x80\x02(")
    pages, types = 8, 50
    for nth in range(pages * types):
        made.write(b"cnumpy\ndtype\nX\2\0\0\0i4\x89\x88\x87Rr" + struct.pack("<I", nth))
        made.write(b"(K\x03X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb")
        if nth % types == types - 1:
            made.write((b"B\0\x80\0\0" + bytes(1 << 15)) * 40)
    body = described(state(np.arange(1, dtype="i4"), dtype=None, numpy_array_alignment_bytes=None))
    before, after = body.split(b"X\x05\0\0\0dtypeN")
    for number in range(pages * types):
        named = b"j" + struct.pack("<I", number % pages * types + number // pages)
        made.write(before + b"X\x05\0\0\0dtype" + named + after + struct.pack("<I", number))
    made.write(b"t.")
    with pparse.open(made.getvalue(), format="pickle", budget="64MiB") as document:
        assert document.root.status is Status.UNSUPPORTED
        assert "too far away, too often" in next(iter(document.findings)).reason
        found = [tensor.numpy().tolist() for tensor in document.view().tensors() if tensor.status is Status.COMPLETE]
        assert found == [[number] for number in range(len(found))]
        assert 10 < len(found) < pages * types


def test_a_wrapper_in_an_array_of_objects_has_no_bytes() -> None:
    """As in joblib, which reads that pickle with a plain unpickler."""
    inner = b"\x80\x02" + described(state(np.arange(2, dtype="u1"))) + b"."
    whole = b"\x80\x02](" + described(state(np.array([1], dtype=object))) + inner + b"X\1\0\0\0ze."
    with pparse.open(whole, format="pickle") as document:
        assert document.root.status is Status.COMPLETE
        assert not list(document.view().tensors())
        assert document.root[1].load() == "z"


def test_plain_objects_of_that_name_need_its_module() -> None:
    made = b"\x80\x02](" + described(state(np.arange(2, dtype="u1")), "x.numpy_pickle") + b"K\1e."
    with pparse.open(made, format="pickle") as document:
        assert document.root.status is Status.COMPLETE
        assert len(document.root) == 2


# -- in archives, converted, recovered ---------------------------------------------------------------------------------


def archives(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of archives with a file ``in/a.joblib``."""
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("odd", b"12345")
            archive.writestr("in/a.joblib", content)
        yield f"{method}.zip", out.getvalue()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("in/a.joblib")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    yield "a.tar.gz", out.getvalue()


def test_files_in_archives_are_read_there(tmp_path: Path) -> None:
    for name, content in archives(SMALL):
        path = tmp_path / name
        path.write_bytes(content)
        with pparse.view(f"{path}::in/a.joblib") as viewer:
            assert rows(viewer) == told("arrays4.joblib"), name


def test_arrays_are_converted(tmp_path: Path) -> None:
    target = tmp_path / "a.safetensors"
    source = FOLDER / "model.joblib"
    assert main(["convert", str(source), "-o", str(target), "--skip-unsupported"]) == 0
    with pparse.view(source) as before, pparse.view(target) as after:
        found, kept = rows(after), rows(before)
        assert "pipeline.steps.1.1.coef_" in found
        assert kept.pop("tree.tree_.nodes")[0] == "|V64"  # no number
        assert found == kept


def test_of_a_cut_file_the_whole_arrays_are_saved(tmp_path: Path) -> None:
    content = many(10, 4096)
    cut = content[: len(content) * 55 // 100]
    source = tmp_path / "many.joblib"
    source.write_bytes(cut)
    with pparse.open(source) as document:
        recover(document, tmp_path / "saved")
    with pparse.view(tmp_path / "saved" / "many.safetensors") as viewer:
        found = {tensor.name: tensor.numpy().tolist() for tensor in viewer.tensors()}
    assert found == {str(number): [number] * 4096 for number in range(5)}
    told = json.loads((tmp_path / "saved" / "RECOVERY.json").read_text())
    assert [row["status"] for row in told["files"] if row["path"].endswith(".bin")] == ["truncated"]


def test_an_array_with_wrong_padding_is_not_saved_as_whole(tmp_path: Path) -> None:
    source = tmp_path / "one.joblib"
    source.write_bytes(one_array(3))
    with pparse.open(source) as document:
        recover(document, tmp_path / "saved")
    assert not (tmp_path / "saved" / "one.safetensors").exists()


def changed_array(change: int) -> bytes:
    """Return three arrays, and bytes that went from the middle of the second one (or, above 0, came in)."""
    content = many(3, 1000)
    at = content.index(b"\1" * 1000) + 500
    return content[:at] + (content[at - change :] if change < 0 else b"\x3f" * change + content[at:])


@pytest.mark.parametrize("change", [-100, -1, 1, 100])
def test_the_last_array_before_a_break_is_in_doubt(change: int) -> None:
    for asked_alone in (False, True):
        with pparse.view(changed_array(change)) as viewer:
            if asked_alone:
                viewer["1"].status  # noqa: B018 -- it is asked first
            listed = {tensor.name: tensor.status for tensor in viewer.tensors()}
            finding = viewer["1"].finding
            assert listed == {"0": Status.COMPLETE, "1": Status.DAMAGED}
            assert finding is not None
            assert finding.code == "shifted"


def test_bytes_behind_a_pickle_put_its_last_array_in_doubt() -> None:
    with pparse.view(many(2, 100) + b"more") as viewer:
        assert [tensor.status for tensor in viewer.tensors()] == [Status.COMPLETE, Status.DAMAGED]
    with pparse.view(many(2, 100) + bytes(100)) as viewer:
        assert [tensor.status for tensor in viewer.tensors()] == [Status.COMPLETE, Status.COMPLETE]
