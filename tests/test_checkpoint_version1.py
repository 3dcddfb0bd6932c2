"""Checkpoints of version 1: values as TensorFlow restores them; files that are cut, flipped or compressed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse import PparseError, Status
from pparse.viewers.checkpoint.entry import name_in
from tests import sweep
from tests.checkpoint_files import message, number, slice_key, table

DATA = Path("tests/data/checkpoint")
SAMPLE = DATA / "version1.ckpt"
EXPECTED = json.loads((DATA / "version1.json").read_text())


def content_of(tensor) -> object:
    value = tensor.numpy()
    if tensor.stored_dtype == "DT_STRING":
        return [text.hex() for text in value.ravel().tolist()]
    return value.tobytes().hex()


def listed(name: bytes, shape: tuple[int, ...], *slices: bytes) -> bytes:
    """Return an entry of a table of contents, of floats."""
    dims = message(2, b"".join(message(2, number(1, size)) for size in shape))
    return message(1, message(1, name) + dims + number(3, 1) + b"".join(message(4, part) for part in slices))


def values(name: bytes, numbers: list[float]) -> bytes:
    raw = message(5, struct.pack(f"<{len(numbers)}f", *numbers))
    return message(2, message(1, name) + message(3, raw))


def write(folder: Path, count: int = 8, given: int = 4, **how: object) -> Path:
    """Write vectors of four floats, all equal to their number, of which ``given`` are there."""
    names = [b"layer%d/w" % index for index in range(count)]
    pairs = [(b"", message(1, b"".join(listed(name, (4,), message(1, b"")) for name in names)))]
    pairs += [(slice_key(name, [(0, -1)]), values(name, [index] * given)) for index, name in enumerate(names)]
    path = folder / "v.ckpt"
    path.write_bytes(table(pairs, **how))
    return path


def given_out(path: Path) -> dict[str, object]:
    """Return the content of the tensors that are COMPLETE; all others must be refused."""
    found = {}
    with pparse.view(path, format="tf-checkpoint") as model:
        for tensor in model.tensors():
            if tensor.status is Status.COMPLETE:
                found[tensor.name] = content_of(tensor)
            else:
                with pytest.raises(PparseError):
                    tensor.numpy()
    return found


def test_every_tensor_is_what_tensorflow_restores():
    with pparse.view(SAMPLE) as model:
        assert set(model) == set(EXPECTED)
        for name, (_, shape, content) in EXPECTED.items():
            assert list(model[name].shape) == shape
            assert content_of(model[name]) == content, name
        assert model.find("none") is None
        assert model.metadata["version"] == 1


def test_values_in_a_block_are_proved_by_its_checksum():
    with pparse.view(SAMPLE) as model:
        assert model["float32"].verified
        assert model["float32"].shape == (2, 3)


def test_small_file_cut_anywhere_keeps_the_tensors_before_the_cut(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    with pparse.open(path) as document:
        parsed = document.parse().parser.table
        ends = [offset + size + 5 for offset, size in zip(parsed.offsets, parsed.sizes, strict=True)]
        found = [parsed.block(*place) for place in zip(parsed.offsets, parsed.sizes, strict=True)]
        stops = [stop for block in found for _, _, stop in block.entries()]
    assert len(ends) == 3
    good = given_out(path)
    borders = {place + more for place in (*ends, *stops) for more in (-1, 0)}
    for size in sweep.some(range(ends[0], len(content)), 2, keep=borders, ends=8):
        path.write_bytes(content[:size])
        some = given_out(path)
        assert some == {name: good[name] for name in list(good)[: sum(stop <= size for stop in stops) - 1]}, size


def test_a_flipped_byte_gives_no_wrong_value(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    good = given_out(path)
    assert len(good) == 8
    for at in sweep.some(range(len(content)), 2, ends=16):
        path.write_bytes(content[:at] + bytes((content[at] ^ 0x41,)) + content[at + 1 :])
        try:
            found = given_out(path)
        except PparseError:
            continue
        assert found.items() <= good.items(), at


def test_tensors_after_the_cut_are_missing_and_those_of_a_bad_block_damaged(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    with pparse.open(path) as document:
        parsed = document.parse().parser.table
        offset = parsed.offsets[2]
    path.write_bytes(content[:offset])
    with pparse.view(path, format="tf-checkpoint") as model:
        assert model["layer7/w"].status is Status.MISSING
    path.write_bytes(content[: offset + 30] + b"!" + content[offset + 31 :])
    with pparse.view(path, format="tf-checkpoint") as model:
        assert model["layer7/w"].status is Status.DAMAGED
        assert model["layer0/w"].status is Status.COMPLETE


def test_without_the_table_of_contents_names_are_known(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"!" + content[41:])
    with pparse.view(path, format="tf-checkpoint") as model:
        assert list(model) == [f"layer{index}/w" for index in range(2, 8)]
        assert "table of contents is lost" in model["layer3/w"].finding.reason
        assert {tensor.status for tensor in model.tensors()} == {Status.DAMAGED}


def test_compressed_blocks_have_the_same_values_and_are_not_held(tmp_path):
    with pparse.view(write(tmp_path, packed=True)) as model:
        assert all(model[f"layer{index}/w"].numpy().tolist() == [index] * 4 for index in range(8))
        tensor = model["layer0/w"]
        assert tensor.spans[0].data is not None
        assert not hasattr(tensor.spans[0].data, "content")


@pytest.mark.parametrize("given", [0, 1, 3, 5])
def test_another_number_of_values_is_refused_as_tensorflow_does(tmp_path, given):
    with pparse.view(write(tmp_path, given=given)) as model:
        assert model["layer3/w"].status is Status.DAMAGED
        assert model["layer3/w"].finding.reason == f"{given} values for 4 elements"


def test_parts_that_overlap_are_refused(tmp_path):
    parts = [message(1, number(1, 0) + number(2, 3)), message(1, number(1, 2) + number(2, 2))]
    pairs = [
        (b"", message(1, listed(b"a", (4,), *parts))),
        (slice_key(b"a", [(0, 3)]), values(b"a", [1, 2, 3])),
        (slice_key(b"a", [(2, 2)]), values(b"a", [3, 4])),
    ]
    (tmp_path / "a.ckpt").write_bytes(table(pairs))
    with pparse.view(tmp_path / "a.ckpt") as model:
        assert model["a"].status is Status.DAMAGED


@pytest.mark.parametrize("name", [b"", b"a", b"a\0b\xff", b"\xff\0", b"x" * 300])
def test_the_name_in_a_key_is_found(name):
    assert name_in(slice_key(name, [(0, -1), (300, 7)])) == name


@pytest.mark.parametrize("key", [b"", b"a", b"\0", b"\0ab", b"\0a\0\0", b"\0a\xff\1\0\1"])
def test_a_key_without_a_name_is_refused(key):
    with pytest.raises(PparseError):
        name_in(key)


def test_commands_work_on_it(run, tmp_path):
    assert "float32" in run("ls", SAMPLE).out
    assert run("check", SAMPLE).code == 0
    out = tmp_path / "o.safetensors"
    path = write(tmp_path)
    assert run("convert", path, "-o", out).code == 0
    with pparse.view(out) as model:
        assert np.array_equal(model["layer5/w"].numpy(), np.full(4, 5, "f4"))
    path.write_bytes(path.read_bytes()[:-60])
    run("recover", path, "-o", tmp_path / "r.safetensors")
    with pparse.view(tmp_path / "r.safetensors") as model:
        assert 5 <= len(model) <= 8
