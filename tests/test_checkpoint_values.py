"""Values of checkpoints that are easily wrong: large tensors, odd keys, other byte orders, and those behind damage."""

from __future__ import annotations

import itertools
import random
import struct
import tarfile
import zipfile

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.errors import FormatError
from pparse.kernels.crc32c import crc32c, masked
from pparse.kernels.table_block import entries, entries_end
from pparse.parsers.checkpoint.table import find_blocks
from pparse.viewers.checkpoint import viewer as checkpoint_viewer
from pparse.viewers.checkpoint.entry import name_prefix, slice_rest
from tests import sweep
from tests.checkpoint_files import block as block_of
from tests.checkpoint_files import closed, entry, finished, header, message, number, table, varint, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

DATA_FILE = "m.data-00000-of-00001"


@pytest.fixture
def large(tmp_path, monkeypatch) -> Path:
    """A checkpoint whose tensors are too large to be compared before they are read."""
    monkeypatch.setattr(checkpoint_viewer, "_CONFIRMED", 8)
    return write(tmp_path, 3)


def damaged(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x04
    path.write_bytes(content)


WHOLE_READS = {
    "numpy": lambda tensor: tensor.numpy(),
    "readinto": lambda tensor: tensor.readinto(bytearray(tensor.nbytes)),
    "blocks": lambda tensor: list(tensor.blocks(8)),
    "raw_blocks": lambda tensor: list(tensor.raw_blocks(8)),
    "array_blocks": lambda tensor: list(tensor.array_blocks(8)),
    "slice": lambda tensor: tensor[:],
}


@pytest.mark.parametrize("how", WHOLE_READS)
def test_the_checksum_of_a_large_tensor_is_compared_by_reading_all_of_it(large, how):
    with pparse.view(large) as model:
        tensor = model["layer0001/w"]
        WHOLE_READS[how](tensor)
        assert tensor.verified is True
    damaged(large.with_name(DATA_FILE), 32 + 5)
    with pparse.view(large) as model:
        tensor = model["layer0001/w"]
        with pytest.raises(pparse.DamagedTensorError, match="its checksum is wrong"):
            WHOLE_READS[how](tensor)
        assert (tensor.status, tensor.verified) == (Status.DAMAGED, False)
        assert [finding.code for finding in model.findings] == ["hash"]
        with pytest.raises(pparse.DamagedTensorError):
            tensor[:1]


def test_parts_of_a_large_tensor_prove_nothing(large):
    with pparse.view(large) as model:
        tensor = model["layer0001/w"]
        for part in (slice(4, 8), slice(1, None), slice(None, None, 2), slice(0, 4)):
            tensor[part]
            assert tensor.verified is None
        blocks = tensor.blocks(8)
        next(blocks)
        model["layer0002/w"].numpy()  # another tensor between two blocks
        list(blocks)
        assert (tensor.verified, model["layer0002/w"].verified) == (None, True)
        tensor.numpy()
        assert tensor.verified is True


def strings(big: bool) -> tuple[bytes, int]:
    texts = (b"ab", b"", b"c" * 200)
    order = ">" if big else "<"
    lengths = b"".join(struct.pack(order + "I", len(text)) for text in texts)
    inner = struct.pack(order + "I", masked(crc32c(lengths)))
    content = b"".join(varint(len(text)) for text in texts) + inner + b"".join(texts)
    return content, masked(crc32c(lengths + inner + b"".join(texts)))


@pytest.mark.parametrize("big", [False, True])
def test_checksums_of_strings_are_in_the_byte_order_of_the_machine(tmp_path, big):
    """TensorFlow 2.21 reads exactly these, and refuses the other order in either."""
    content, crc = strings(big)
    value = entry(7, (3,), 0, len(content)) + b"\x35" + struct.pack("<I", crc)
    for is_big in (False, True):
        (tmp_path / "m.index").write_bytes(table([(b"", header(big=is_big)), (b"s", value)]))
        (tmp_path / DATA_FILE).write_bytes(content)
        with pparse.view(tmp_path / "m.index") as model:
            if is_big is big:
                assert model["s"].numpy().tolist() == [b"ab", b"", b"c" * 200]
            else:
                with pytest.raises(pparse.DamagedTensorError):
                    model["s"].numpy()


def test_keys_that_differ_in_what_names_leave_out_have_names_of_their_own(tmp_path, run):
    raws = [struct.pack("<f", value) for value in range(3)]
    keys = (b"a", b"a/.ATTRIBUTES/VARIABLE_VALUE", b"b/.ATTRIBUTES/VARIABLE_VALUE")
    pairs = [(key, entry(1, (), 4 * at, 4, raw)) for at, (key, raw) in enumerate(zip(keys, raws, strict=True))]
    (tmp_path / "m.index").write_bytes(table([(b"", header()), *pairs]))
    (tmp_path / DATA_FILE).write_bytes(b"".join(raws))
    with pparse.view(tmp_path / "m.index") as model:
        assert {name: float(tensor.numpy()) for name, tensor in model.items()} == {
            "a": 0.0,
            "a/.ATTRIBUTES/VARIABLE_VALUE": 1.0,
            "b": 2.0,
        }
    assert run("convert", tmp_path / "m", "-o", tmp_path / "o.safetensors").code == 0


def test_names_that_begin_with_a_zero_byte_are_not_those_of_parts(tmp_path):
    raw = struct.pack("<f", 7)
    pairs = [(key, entry(1, (), 0, 4, raw)) for key in (b"\0", b"\0nul", b"\0\xff")]
    (tmp_path / "m.index").write_bytes(table([(b"", header()), *pairs]))
    (tmp_path / DATA_FILE).write_bytes(raw)
    with pparse.view(tmp_path / "m.index") as model:
        assert [float(tensor.numpy()) for tensor in model.values()] == [7.0] * 3
        assert all(float(model[name].numpy()) == 7.0 for name in model)


def test_without_name_and_first_entry_those_of_another_block_tell_a_checkpoint(tmp_path):
    write(tmp_path, 40)
    ours, other = tmp_path / "ours.bin", tmp_path / "other.bin"
    pairs = [(b"", b"value"), *((b"k%02d" % number, b"value") for number in range(40))]
    for path, content in ((ours, (tmp_path / "m.index").read_bytes()), (other, table(pairs))):
        path.write_bytes(content[:2] + b"\xff\xff\xff" + content[5:])
    with pparse.open(ours) as document:
        assert document.result.parser.name == "tf-checkpoint"
    with pytest.raises(FormatError):
        pparse.open(other).parse()


@pytest.mark.parametrize(("wrapper", "at"), sweep.part(itertools.product(["", "tar.gz", "zip"], [0, 1, 2, 3])))
def test_damage_where_an_index_begins_leaves_the_other_blocks(tmp_path, run, at, wrapper):
    write(tmp_path, 40)
    damaged(tmp_path / "m.index", at)
    whole = pparse.view(tmp_path / "m.index", format="tf-checkpoint")
    names = [name for name in whole if whole[name].status is Status.COMPLETE]
    assert len(names) > 30
    path = str(tmp_path)
    if wrapper:
        path = f"{tmp_path}/a.{wrapper}::run"
        if wrapper == "zip":
            with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for name in ("m.index", DATA_FILE):
                    archive.write(tmp_path / name, f"run/{name}")
        else:
            with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
                for name in ("m.index", DATA_FILE):
                    archive.add(tmp_path / name, f"run/{name}")
        assert run("check", "-R", tmp_path / f"a.{wrapper}").code == 4
    for given in (path, f"{path}/m", f"{path}/m.index", f"{path}/{DATA_FILE}"):
        assert run("check", given).code == 4, given
        with pparse.view(given) as model:
            for name in names:
                assert model[name].numpy().tolist() == whole[name].numpy().tolist()


def test_behind_a_large_damaged_block_the_next_ones_are_found():
    """Each of its entries would be a place where a block may begin: the search goes on behind its restarts."""
    first = closed(block_of([(b"k%05d" % at, bytes(60)) for at in range(4_000)]))
    second = closed(block_of([(b"l%05d" % at, b"x" * 60) for at in range(40)]))
    content = bytearray(finished(first + second, []))
    content[0] ^= 0x10
    found = list(find_blocks(pparse.BytesData(bytes(content)), 0, len(content), lambda: None))
    assert (len(first), len(second) - 5) in found


def test_a_prefix_leads_to_its_checkpoint_in_a_cut_archive(tmp_path):
    write(tmp_path, 3)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in (DATA_FILE, "m.index"):
            archive.add(tmp_path / name, f"run/{name}")
        archive.add(tmp_path / DATA_FILE, "other")
    path = tmp_path / "a.tar"
    with path.open("r+b") as file:
        file.truncate(512 * 6 + 1024)
    with pparse.view(f"{path}::run/m") as model:
        assert np.array_equal(model["layer0002/w"].numpy(), [2.0] * 8)
    with pytest.raises(pparse.PparseError, match=r"run/n:? "):
        pparse.view(f"{path}::run/n")


# -- indexes that are cut inside a block -------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 16])
def test_an_index_cut_inside_a_block_has_every_entry_before_the_cut(tmp_path, interval):
    raws = [struct.pack("<8f", *[value] * 8) for value in range(20)]
    pairs = [(b"", header())]
    pairs += [(b"layer%04d/w" % at, entry(1, (8,), 32 * at, 32, raw)) for at, raw in enumerate(raws)]
    block = block_of(pairs, interval)
    index = finished(closed(block), [(pairs[-1][0], varint(0) + varint(len(block)))])
    ends = [stop for *_, stop in entries(block, entries_end(block))]
    (tmp_path / DATA_FILE).write_bytes(b"".join(raws))
    for cut in sweep.some(range(3, len(block) + 4), 5, keep=ends, ends=16):
        (tmp_path / "m.index").write_bytes(index[:cut])
        with pparse.view(tmp_path / "m.index", format="tf-checkpoint") as model:
            found = {name: tensor.numpy().tolist() for name, tensor in model.items()}
            count = max(0, sum(stop <= cut for stop in ends) - 1)  # the first one is the header
            assert found == {f"layer{at:04d}/w": [float(at)] * 8 for at in range(count)}, cut
            assert model.status is Status.TRUNCATED
            assert all(model[name].numpy().tolist() == value for name, value in found.items())


@pytest.mark.parametrize("tail", ["zeros", "noise", "text"])
def test_what_overwrote_the_end_of_an_index_gives_no_entry(tmp_path, tail):
    write(tmp_path, 20, per_block=21)
    index = (tmp_path / "m.index").read_bytes()
    filler = {"zeros": bytes(4096), "noise": random.Random(5).randbytes(4096), "text": b"a line\n" * 600}[tail]
    for cut in sweep.some(range(20, len(index) - 48 - 30), 2, ends=16):
        (tmp_path / "m.index").write_bytes(index[:cut] + filler[: len(index) - cut])
        with pparse.view(tmp_path / "m.index", format="tf-checkpoint") as model:
            for name, tensor in model.items():
                at = int(name[5:9])
                if tensor.status is Status.COMPLETE:
                    assert (str(tensor.dtype), tensor.shape) == ("float32", (8,)), (cut, name)
                    assert tensor.spans[0].offset == 32 * at


def test_a_whole_block_with_a_wrong_checksum_is_not_a_cut_one(tmp_path):
    write(tmp_path, 20, per_block=21)
    index = bytearray((tmp_path / "m.index").read_bytes())
    index[40] ^= 0x01
    block_end = len(index) - 48
    for end in (block_end, len(index) - 1):
        (tmp_path / "m.index").write_bytes(index[:end])
        with pparse.view(tmp_path / "m.index", format="tf-checkpoint") as model:
            assert list(model) == []


# -- partitioned tensors that are cut ----------------------------------------------------------------------------------


def in_rows(tmp_path: Path, cut: int, *, columns: bool = False) -> Path:
    """Write a tensor of 6 rows of 4 in three parts, of two rows each (or of columns), and cut its data."""
    array = np.arange(24, dtype="<f4").reshape(6, 4)
    boxes = [((0, 6), (at, 1)) for at in range(4)] if columns else [((at, 2), (0, 4)) for at in (0, 2, 4)]
    parts, content, extents = [], b"", b""
    for (row, rows), (column, width) in boxes:
        raw = array[row : row + rows, column : column + width].tobytes()
        key = name_prefix(b"t") + slice_rest(((row, rows), (column, width)))
        parts.append((key, entry(1, (rows, width), len(content), len(raw), raw)))
        content += raw
        extents += message(
            7, b"".join(message(1, number(1, at) + number(2, size)) for at, size in ((row, rows), (column, width)))
        )
    full = entry(1, (6, 4), 0, 0) + extents
    (tmp_path / "m.index").write_bytes(table([(b"", header()), *sorted(parts), (b"t", full)]))
    (tmp_path / DATA_FILE).write_bytes(content[:cut])
    return tmp_path / "m.index"


@pytest.mark.parametrize("cut", [96, 95, 80, 72, 64, 40, 32, 17, 16, 8, 0])
def test_a_tensor_in_parts_that_is_cut_has_the_rows_before_the_cut(tmp_path, run, cut):
    with pparse.view(in_rows(tmp_path, cut)) as model:
        tensor = model["t"]
        whole = cut // 16
        array = np.arange(24, dtype="<f4").reshape(6, 4)
        expected = Status.COMPLETE if cut == 96 else Status.TRUNCATED if cut else Status.MISSING
        assert tensor.status is expected
        for row in range(6):
            if row < whole:
                assert tensor[row].tolist() == array[row].tolist()
            else:
                with pytest.raises(pparse.TensorError):
                    tensor[row]
        if 0 < cut < 96:
            assert tensor.numpy(partial="prefix").tolist() == array[:whole].tolist()
            assert tensor.available_nbytes == cut
    ran = run("recover", tmp_path / "m", "-o", tmp_path / "out")
    assert ran.code == (0 if cut == 96 else 4)
    if 0 < cut < 96:
        assert (tmp_path / "out/m.safetensors.partial/t.bin").read_bytes() == array.tobytes()[:cut]


def test_of_a_tensor_in_columns_no_row_is_before_the_cut(tmp_path):
    with pparse.view(in_rows(tmp_path, 90, columns=True)) as model:
        assert (model["t"].status, model["t"].available_nbytes) == (Status.TRUNCATED, 0)
        assert model["t"].numpy(partial="prefix").shape == (0, 4)
        with pytest.raises(pparse.TruncatedTensorError):
            model["t"][0]
    with pparse.view(in_rows(tmp_path, 96, columns=True)) as model:
        assert model["t"].numpy().tolist() == np.arange(24).reshape(6, 4).tolist()
