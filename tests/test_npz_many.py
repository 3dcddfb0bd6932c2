"""Archives of many small arrays: what is held of each is little, whatever is done with all of them."""

from __future__ import annotations

import gc
import zipfile
import zlib

import numpy as np
import pytest

import pparse
from pparse.compressed.resumed import ResumedData
from pparse.containers.archive import ENTERED
from pparse.conversion import Options, convert_view
from pparse.document.extraction import Extraction
from pparse.findings import Status
from pparse.viewers.numpy.archive import NpzViewer
from tests import sweep
from tests.numpy_files import archive, npy
from tests.rows import rows

ARRAYS = {f"layer{number:04}.w": np.arange(number, number + 4, dtype="f4") for number in range(ENTERED + 150)}


def written(compressed: bool) -> bytes:
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    return archive([(f"{name}.npy", npy(array)) for name, array in ARRAYS.items()], method)


def living(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


@rows("compressed, cut", sweep.sample([(False, 0), (True, 0), (False, 5_000), (True, 5_000)], 1))
def test_a_conversion_keeps_few_members_open(tmp_path, compressed, cut):
    content = written(compressed)
    path, out = tmp_path / "x.npz", tmp_path / "y.npz"
    path.write_bytes(content[: len(content) - cut])
    before = living(Extraction), living(ResumedData)
    counts: list[tuple[int, int]] = []

    def look(plan: object) -> None:
        counts.append((living(Extraction) - before[0], living(ResumedData) - before[1]))

    with pparse.view(path) as model:
        convert_view(model, out, Options(skip_damaged=True, force=True), look=look)
        look(model)
        assert model.parser.directory is None if cut else model.parser.directory is not None
    assert all(found <= ENTERED + 20 for count in counts for found in count), counts
    with np.load(out) as found:
        assert len(found.files) == len(ARRAYS)
        assert all(found[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())


@rows("compressed", [False, True])
def test_arrays_that_were_not_held_are_told_apart(tmp_path, compressed):
    path, out = tmp_path / "x.npz", tmp_path / "y.safetensors"
    path.write_bytes(written(compressed))
    report = pparse.convert(path, out, dedupe=True, force=True)
    assert (report.tensors, report.shared_copies) == (len(ARRAYS), 0)


def test_arrays_are_known_to_be_right_once_they_were_compared():
    with pparse.view(written(compressed=True)) as model:
        tensors = list(model.values())
        assert {tensor.verified for tensor in tensors} == {None}
        tensors[0].numpy()
        assert [tensor.verified for tensor in tensors[:2]] == [True, None]
        model.resolve_all()
        assert {tensor.verified for tensor in tensors} == {True}
        assert living(ResumedData) < ENTERED


@rows("looked", ["never", "read", "checked", "settled"])
def test_an_array_that_was_listed_before_it_was_found_to_be_damaged_is_refused(looked):
    """The stream decodes, and only its checksum tells that a byte is wrong."""
    sound = npy(np.arange(1_000, dtype="i4"))
    wrong = bytearray(sound)
    wrong[-1] ^= 1
    content = archive([("a.npy", sound), ("b.npy", npy(np.arange(3)))], zipfile.ZIP_DEFLATED)
    packed = zlib.crc32(sound).to_bytes(4, "little"), zlib.crc32(bytes(wrong)).to_bytes(4, "little")
    assert content.count(packed[0]) == 2
    with pparse.view(content.replace(*packed)) as model:
        tensor = model["a"]
        assert tensor.status is Status.COMPLETE
        if looked == "read":
            with pytest.raises(pparse.DamagedTensorError, match="CRC"):
                tensor[5]
        elif looked == "checked":
            assert [finding.code for finding in model.check()] == ["checksum"]
        elif looked == "settled":
            model.resolve_all()
        for listed in (tensor, model["a"]):
            with pytest.raises(pparse.DamagedTensorError, match="CRC"):
                listed.numpy()
            assert (listed.status, listed.verified) == (Status.DAMAGED, False)
        assert model["b"].numpy().tolist() == [0, 1, 2]


def test_small_arrays_are_listed_by_a_few_reads_and_each_that_was_just_named_is_not_searched(monkeypatch):
    """Local headers and those of arrays come out of blocks; who goes through the names gets the tensors of the list."""
    content = written(compressed=False)
    monkeypatch.setattr(NpzViewer, "find", None)
    with pparse.view(content) as model:
        names = [tensor.name for tensor in model.values()]
        assert names == list(ARRAYS)
        assert model.extraction.session.stats.reads < len(ARRAYS) // 10
        for name in model.keys():  # noqa: SIM118 -- its view is meant
            tensor = model[name]
            assert tensor.numpy().tolist() == ARRAYS[name].tolist()
            assert tensor.verified is True
        for name in model:
            assert model[name].name == name
