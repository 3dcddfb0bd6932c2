"""TensorFlow checkpoints: values, tables in several blocks, what is cut or damaged, and hostile indexes."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from time import process_time

import numpy as np
import pytest

import pparse
from pparse import PparseError, Status
from pparse.viewers.checkpoint.entry import read_entry
from tests import sweep
from tests.checkpoint_files import block, closed, entry, finished, footer, header, table, varint, write

DATA = Path("tests/data/checkpoint")
EXPECTED = json.loads((DATA / "expected.json").read_text())
DATA_FILE = "m.data-00000-of-00001"


def content_of(tensor) -> object:
    value = tensor.numpy()
    if tensor.stored_dtype == "DT_STRING":
        return [bytes(text).hex() for text in np.asarray(value, object).ravel().tolist()]
    return np.asarray(value).tobytes().hex()


def read_all(path) -> dict[str, list]:
    """Return the tensors that are given out: name and numbers. All others must have a status that says why."""
    found = {}
    with pparse.view(path, format="tf-checkpoint") as model:
        for tensor in model.tensors():
            try:
                found[tensor.name] = tensor.numpy().tolist()
            except PparseError:
                assert tensor.status is not Status.COMPLETE, tensor.name
    return found


def hostile(tmp_path, *entries) -> Path:
    (tmp_path / "m.index").write_bytes(table([(b"", header()), *entries]))
    (tmp_path / DATA_FILE).write_bytes(bytes(64))
    return tmp_path / "m.index"


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_every_tensor_is_what_tensorflow_reads(name):
    with pparse.view(DATA / f"{name}.index") as model:
        assert len(model) == len(EXPECTED[name])
        for key, (_, shape, content) in EXPECTED[name].items():
            assert list(model[key].shape) == shape
            assert content_of(model[key]) == content, key
            assert model[key].status is Status.COMPLETE


@pytest.mark.parametrize("name", EXPECTED)
def test_a_checksum_agrees_for_every_tensor(run, name):
    ran = run("check", DATA / f"{name}.index")
    assert (ran.code, "a checksum agrees for each" in ran.out) == (0, True)


@pytest.mark.parametrize("packed", [False, True])
def test_small_and_compressed_blocks_have_the_same_tensors(tmp_path, packed):
    path = write(tmp_path, packed=packed)
    with pparse.view(path) as model:
        assert list(model) == [f"layer{number:04}/w" for number in range(20)]
        assert len(pparse.open(path).parse().parser.table.offsets) == 7
        assert all(model[f"layer{number:04}/w"].numpy().tolist() == [number] * 8 for number in range(20))


def test_numbers_of_a_big_endian_bundle_are_swapped(tmp_path):
    with pparse.view(write(tmp_path, big=True)) as model:
        assert model["layer0003/w"].numpy().tolist() == [3.0] * 8
        assert model.metadata["endianness"] == "big"


@pytest.mark.parametrize("big", [False, True])
def test_without_the_header_the_byte_order_is_told_to_be_a_guess(tmp_path, big):
    index = write(tmp_path, 9, big=big)
    content = bytearray(index.read_bytes())
    content[20] ^= 1
    index.write_bytes(content)
    with pparse.view(index) as model:
        assert len(model) >= 3
        assert [finding.code for finding in model.check() if finding.severity == "warning"] == ["byte-order"]
        assert "endianness" not in model.metadata


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_the_data_file_beside_it_in_an_archive_is_found(run, tmp_path, kind):
    path = write(tmp_path)
    archive = tmp_path / ("a.zip" if kind == "zip" else "a.tar.gz")
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as out:
            for name in ("m.index", DATA_FILE):
                out.write(tmp_path / name, f"run/{name}")
    else:
        with tarfile.open(archive, "w:gz") as out:
            for name in ("m.index", DATA_FILE):
                out.add(tmp_path / name, f"run/{name}")
    path.unlink()
    ran = run("ls", f"{archive}::run/m.index")
    assert (ran.code, ran.out.count("complete, ")) == (0, 21)
    assert run("check", f"{archive}::run/m.index").code == 0


def test_info_tells_version_and_table_and_what_check_found(run, tmp_path):
    out = run("info", write(tmp_path)).out
    assert "version     2\ntable       21 entries in 7 blocks\n" in out
    assert "of unknown type" not in out


# -- damage ------------------------------------------------------------------------------------------------------------


def test_an_index_cut_anywhere_keeps_all_entries_before_the_cut(run, tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    with pparse.open(path) as document:
        parsed = document.parse().parser.table
        ends = [offset + size + 5 for offset, size in zip(parsed.offsets, parsed.sizes, strict=True)]
        found = [parsed.block(*place) for place in zip(parsed.offsets, parsed.sizes, strict=True)]
        stops = [stop for block in found for _, _, stop in block.entries()]
    for size in sweep.some(range(8, len(content)), 2, keep=stops, ends=24):
        path.write_bytes(content[:size])
        with pparse.open(path, format="tf-checkpoint") as document:
            model = document.view()
            names = list(model)
            assert document.root.status is Status.TRUNCATED, size
            assert model.extent().status is Status.TRUNCATED, size
        assert len(names) == max(0, sum(stop <= size for stop in stops) - 1), size
    path.write_bytes(content[: ends[3]])
    for command in ("ls", "info"):
        ran = run(command, path)
        assert ran.code == 4
        assert f"resume the download at byte {ends[3]} of " in ran.out


@pytest.mark.parametrize(("change", "packed"), sweep.part(itertools.product((0x01, 0x80), (False, True))))
def test_no_flipped_byte_of_an_index_gives_a_wrong_value(tmp_path, change, packed):
    path = write(tmp_path, 8, packed=packed)
    content = path.read_bytes()
    wanted = read_all(path)
    assert len(wanted) == 8
    for at in sweep.some(range(len(content)), 2, ends=64):
        path.write_bytes(content[:at] + bytes((content[at] ^ change,)) + content[at + 1 :])
        found = read_all(path)
        assert all(wanted[name] == value for name, value in found.items()), at
        assert len(found) >= 5, at


def test_of_a_cut_data_file_every_whole_tensor_is_there(run, tmp_path):
    path = write(tmp_path)
    (tmp_path / DATA_FILE).write_bytes((tmp_path / DATA_FILE).read_bytes()[: 12 * 32 + 5])
    assert read_all(path) == {f"layer{number:04}/w": [number] * 8 for number in range(12)}
    with pparse.view(path) as model:
        statuses = [tensor.status for tensor in model.tensors()]
    assert statuses == [Status.COMPLETE] * 12 + [Status.TRUNCATED] + [Status.MISSING] * 7
    assert run("ls", path).code == 4
    assert f"at byte 389 of {tmp_path}/{DATA_FILE}" in run("info", path).out


def test_a_flipped_byte_of_the_data_is_told_and_not_returned(run, tmp_path):
    path = write(tmp_path)
    content = bytearray((tmp_path / DATA_FILE).read_bytes())
    content[5 * 32 + 3] ^= 1
    (tmp_path / DATA_FILE).write_bytes(content)
    found = read_all(path)
    assert (len(found), "layer0005/w" in found) == (19, False)
    ran = run("check", path)
    assert ran.code == 4
    assert "layer0005/w" in ran.out
    assert "its checksum is wrong" in ran.out
    assert "layer0004/w" not in ran.out


def test_a_part_whose_checksum_is_wrong_damages_the_whole(tmp_path):
    for name in ("parts.index", "parts.data-00000-of-00001"):
        shutil.copy(DATA / name, tmp_path)
    path = tmp_path / "parts.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    with pparse.view(tmp_path / "parts.index") as model:
        assert list(model) == ["both", "rows", "whole"]
        bad = [name for name in model if not _is_read(model[name])]
        assert len(bad) == 1
        assert model[bad[0]].status is Status.DAMAGED


def _is_read(tensor) -> bool:
    try:
        tensor.numpy()
    except PparseError:
        return False
    return True


def test_a_missing_data_file_is_named(run, tmp_path):
    path = write(tmp_path)
    (tmp_path / DATA_FILE).unlink()
    ran = run("ls", path)
    assert (ran.code, ran.out.count("  missing: "), f"fetch {tmp_path}/{DATA_FILE}" in ran.out) == (4, 20, True)
    assert read_all(path) == {}


# -- hostile indexes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        entry(1, (1 << 63,), 0, 32),
        entry(1, (8,), 1 << 63, 32),
        entry(1, (8,), -4, 32),
        entry(1, (8,), 0, -32),
        entry(1, (8,), 0, 1 << 62),
        entry(1, (1 << 40, 1 << 40), 0, 32),
        entry(1, (1,) * 300, 0, 4),
        entry(1, (8,), 0, 31),
        entry(1, (8,), 0, 32, shard=-1),
        entry(1, (8,), 0, 32, shard=1 << 31),
        entry(99, (8,), 0, 32),
        entry(7, (1 << 40,), 0, 32),
        b"\x12\xff\xff\xff\xff\x0f",
        b"\x35\0\0",
    ],
)
def test_an_entry_that_cannot_be_is_never_a_good_tensor(tmp_path, raw):
    path = hostile(tmp_path, (b"a", raw), (b"b", entry(1, (8,), 0, 32)))
    assert read_all(path) == {"b": [0.0] * 8}


def test_a_million_dimensions_are_refused_before_they_are_kept(tmp_path):
    path = hostile(tmp_path, (b"a", b"\x12" + varint(4_000_000) + b"\x12\x02\x08\x01" * 1_000_000))
    begin = process_time()
    assert read_all(path) == {}
    assert process_time() - begin < 3


def test_a_name_of_the_index_leads_to_no_other_folder(run, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    raw = write(tmp_path).read_bytes()
    with zipfile.ZipFile(folder / "a.zip", "w") as out:
        out.writestr("../m.index", raw)
    ran = run("ls", f"{folder / 'a.zip'}::../m.index")
    assert ran.code != 0
    assert "complete" not in ran.out


def test_a_block_listed_again_and_again_is_read_once(tmp_path):
    content = block([(b"", header())] + [(b"t%05d" % number, entry(1, (8,), 0, 32)) for number in range(500)])
    place = varint(0) + varint(len(content))
    path = tmp_path / "m.index"
    listed = [(b"z%07d" % number, place) for number in range(sweep.scaled(1_000_000, 10))]
    path.write_bytes(finished(closed(content), listed))
    begin = process_time()
    with pparse.view(path) as model:
        assert len(model) == 500
        assert model.extent().status is not Status.COMPLETE
    assert process_time() - begin < 8


@pytest.mark.parametrize(
    "places",
    [((0, 0), (1 << 34, 9)), ((0, 0), (0, 1 << 34)), ((0, 0), ((1 << 63) - 1, (1 << 63) - 1)), ((0, 0), (0, 0))],
)
def test_a_footer_that_points_elsewhere_hides_no_block(tmp_path, places):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-48] + footer(*places))
    with pparse.open(path) as document:
        assert len(list(document.view())) == 20
        assert document.root.status is Status.DAMAGED


@pytest.mark.parametrize("place", [(0, 1 << 34), (1 << 40, 10), ((1 << 63) - 1, (1 << 63) - 1)])
def test_a_block_beyond_the_file_is_told(tmp_path, place):
    path = tmp_path / "m.index"
    good = block([(b"", header()), (b"a", entry(1, (8,), 0, 32))])
    second = varint(place[0] or len(good) + 5) + varint(place[1])
    path.write_bytes(finished(closed(good), [(b"a", varint(0) + varint(len(good))), (b"b", second)]))
    with pparse.open(path) as document:
        assert list(document.view()) == ["a"]
        assert document.root.status is not Status.COMPLETE


def test_a_snappy_bomb_is_refused_within_the_budget(tmp_path):
    bomb = varint((1 << 32) - 1) + b"\0a" + b"\xfe\x01\0" * 100_000
    path = tmp_path / "m.index"
    path.write_bytes(finished(closed(bomb, 1), [(b"a", varint(0) + varint(len(bomb)))]))
    with pparse.open(path, format="tf-checkpoint") as document:
        try:
            assert list(document.view()) == []
            assert document.root.status is Status.DAMAGED
        except PparseError:
            pass
        assert document.session.budget.peak < 32 << 20


@pytest.mark.parametrize("content", [bytes(4), b"\0\1\0a", b"\0\1\0"])
def test_a_search_for_blocks_is_linear(tmp_path, content):
    path = tmp_path / "m.index"
    path.write_bytes(content * sweep.scaled(1 << 18))
    begin = process_time()
    with pparse.open(path, format="tf-checkpoint") as document:
        assert list(document.view()) == []
    assert process_time() - begin < sweep.scaled(40)


# -- convert and recover -----------------------------------------------------------------------------------------------


def test_convert_writes_what_it_has(run, tmp_path):
    ran = run("convert", write(tmp_path), "-o", tmp_path / "m.safetensors")
    assert ran.code == 0, ran.err
    with pparse.view(tmp_path / "m.safetensors") as model:
        assert model["layer0019/w"].numpy().tolist() == [19.0] * 8


def test_recover_keeps_the_whole_tensors_of_a_cut_data_file(run, tmp_path):
    path = write(tmp_path)
    (tmp_path / DATA_FILE).write_bytes((tmp_path / DATA_FILE).read_bytes()[: 12 * 32 + 5])
    run("recover", path, "-o", tmp_path / "out")
    (saved,) = (tmp_path / "out").rglob("*.safetensors")
    with pparse.view(saved) as model:
        assert len(model) == 12


def test_without_a_folder_the_data_files_are_not_missing_but_not_looked_for():
    with pparse.view(io.BytesIO((DATA / "object.index").read_bytes())) as model:
        assert {tensor.status for tensor in model.tensors()} == {Status.UNSUPPORTED}
        assert [finding.code for finding in model.check()] == ["data-not-read"]


@pytest.mark.parametrize(
    "wrong",
    [
        "08011204120218007c2028203534dbea3623",  # a group ends that none began
        "0801120412028b080818002035d5d7b5cb",  # a dimension that is longer than the shape
        "0801120412fd0818002080282035d5d7b5cb",
        "0801120512020808280200",  # field 0
    ],
)
def test_an_entry_that_is_no_message_is_refused(wrong):
    with pytest.raises(pparse.MalformedError):
        read_entry(bytes.fromhex(wrong))
