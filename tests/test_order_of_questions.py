"""One answer, whatever is asked first: a tensor says the same by its name, in a list, held, and after a check."""

from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np
import pytest

import pparse
from pparse.errors import DamagedTensorError
from pparse.findings import Status
from tests.conftest import safetensors
from tests.numpy_files import npz
from tests.pytorch_files import checkpoint, numbered

COUNT = 6000  # their header is not held: it has more than 256 KiB
FIRST, FAR = "layers.0.weight", "layers.99.weight"


def header() -> dict[str, dict]:
    return {
        f"layers.{at}.weight": {"dtype": "F32", "shape": [4], "data_offsets": [16 * at, 16 * at + 16]}
        for at in range(COUNT)
    }


def overlapping() -> bytes:
    """Return a large header whose last tensor shares bytes with the first two."""
    last = {"zz": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}
    return safetensors({**header(), **last}, bytes(16 * COUNT))


def repeated() -> bytes:
    """Return a large header whose last tensor has the name of the first."""
    more = {**header(), "a.name.that.is.replace": {"dtype": "F32", "shape": [0], "data_offsets": [16 * COUNT] * 2}}
    return safetensors(more, bytes(16 * COUNT)).replace(b'"a.name.that.is.replace"', f'"{FIRST}"        '.encode())


def mislabelled() -> bytes:
    """Return what `overlapping` does with a length of the header that is wrong, and found in another way."""
    content = overlapping()
    return (int.from_bytes(content[:8], "little") - 40).to_bytes(8, "little") + content[8:]


@pytest.mark.parametrize("made", [overlapping, repeated, mislabelled])
def test_a_tensor_of_a_large_header_is_damaged_whatever_is_asked_first(made):
    content = made()
    with pparse.view(content) as viewer:
        alone = viewer[FIRST]
        assert alone.status is Status.DAMAGED
        with pytest.raises(DamagedTensorError, match=r"shares bytes|more than once"):
            alone.numpy()
        assert viewer[FAR].status is Status.COMPLETE
    with pparse.view(content) as viewer:
        held = list(viewer.tensors())
        assert (held[0].status, held[0].claimed_status) == (Status.DAMAGED, Status.DAMAGED)
        assert held[0].finding is not None
        assert held[0].finding.code == "bad-entry"
        counted = viewer.extent().damaged
        assert counted == sum(tensor.status is Status.DAMAGED for tensor in held)
    with pparse.view(content) as viewer:
        listing = viewer.tensors()
        first = next(listing)
        list(viewer.check())
        assert first.status is viewer[FIRST].status is Status.DAMAGED
        assert viewer.extent().damaged == counted


def test_get_refuses_a_tensor_that_a_later_entry_contradicts(run, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(overlapping())
    ran = run("get", tmp_path / "x.safetensors", FIRST, "-o", tmp_path / "y.npy")
    assert ran.code == 4
    assert "it shares bytes with another tensor" in ran.err
    assert not (tmp_path / "y.npy").exists()
    assert run("get", tmp_path / "x.safetensors", FAR, "-o", tmp_path / "y.npy").code == 0


def test_a_small_header_with_bytes_behind_gives_one_answer():
    """An empty tensor whose places are wrong hides where the data ends: nothing tells that bytes came in."""
    entries = {
        "a": {"dtype": "U8", "shape": [24], "data_offsets": [0, 24]},
        "none": {"dtype": "U8", "shape": [0], "data_offsets": [24, 22]},
    }
    content = safetensors(entries, bytes(24))
    with pparse.view(content) as viewer:
        listed = [(tensor.name, tensor.status) for tensor in viewer.tensors()]
    with pparse.view(content) as viewer:
        assert [(name, viewer[name].status) for name, _ in listed] == listed
    assert listed == [("a", Status.COMPLETE), ("none", Status.DAMAGED)]


def test_an_array_that_is_held_is_damaged_after_a_check_that_finds_its_member_is():
    content = bytearray(npz(compressed=True, one=np.random.default_rng(0).random(300_000), two=np.arange(3)))
    content[1_000_000] ^= 0x10
    with pparse.view(bytes(content)) as viewer:
        held = {tensor.name: tensor for tensor in viewer.tensors()}
        assert held["one"].status is Status.COMPLETE
        list(viewer.check())
        assert (
            {name: tensor.status for name, tensor in held.items()}
            == {name: viewer[name].status for name in held}
            == {"one": Status.DAMAGED, "two": Status.COMPLETE}
        )
        assert held["one"].finding == viewer["one"].finding
    assert held["one"].status is Status.DAMAGED  # closed: what is known stays known


def test_a_tensor_that_is_held_is_doubtful_after_a_check_that_finds_the_pickle_is():
    made = checkpoint(*numbered(2, 256))
    content = made.content.replace(b"layers.1", b"layers.7", 1)
    with pparse.view(content) as viewer:
        held = list(viewer.tensors())
        before = [tensor.status for tensor in held]
        list(viewer.check())
        assert [tensor.status for tensor in held] == [viewer[tensor.name].status for tensor in held]
        assert [tensor.status for tensor in held] == [Status.DAMAGED] * 2, before


def test_a_strict_check_says_all_that_another_one_says(tmp_path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add("docs/samples/tiny-gpt.pt", "g.pt")
    packed = bytearray(gzip.compress(made.getvalue(), 0, mtime=0))  # stored: a byte hurts the same in each zlib
    packed[30_000] ^= 0x55  # in a storage
    path = tmp_path / "f.tar.gz"
    path.write_bytes(packed)
    told = []
    for strict in (False, True):
        with pparse.open(f"{path}::g.pt") as document:
            told.append({str(finding) for finding in document.check(strict=strict)})
    assert told[0] == told[1]
    assert len(told[0]) == 3  # of the storage, of the member, and of a class that is not known
