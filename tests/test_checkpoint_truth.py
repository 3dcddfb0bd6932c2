"""Checkpoints of TensorFlow, and other models, in archives that are damaged: what the truth matrix found."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

import pparse
from pparse import Status
from pparse.parsers.tar.headers import read_header
from tests.checkpoint_files import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

DATA_FILE = "m.data-00000-of-00001"


def tar_of(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in (DATA_FILE, "m.index"):
            archive.add(folder / name, name)
    return out.getvalue()


@pytest.mark.parametrize("asked", ["list", "name"])
def test_in_a_stream_that_is_in_doubt_the_checksum_of_a_tensor_decides(tmp_path, asked):
    """The stream's own checksum contradicts; of 20 tensors, all but the one that was hit are whole."""
    write(tmp_path)
    content = bytearray(tar_of(tmp_path))
    crc = zlib.crc32(content)
    content[512 + 32 * 7 + 3] ^= 1  # in layer0007/w
    packed = gzip.compress(bytes(content), 6, mtime=0)
    (tmp_path / "it.tar.gz").write_bytes(packed[:-8] + crc.to_bytes(4, "little") + packed[-4:])
    with pparse.open(f"{tmp_path}/it.tar.gz::m.index") as document:
        list(document.check())  # now all that was decoded is in doubt
        model = document.view()
        tensors = list(model.tensors()) if asked == "list" else [model[f"layer{number:04}/w"] for number in range(20)]
        assert [tensor.name for tensor in tensors if tensor.status is not Status.COMPLETE] == ["layer0007/w"]
        for number, tensor in enumerate(tensors):
            if number == 7:
                with pytest.raises(pparse.DamagedTensorError):
                    tensor.numpy()
            else:
                assert tensor.numpy().tolist() == [number] * 8
                assert tensor.verified


def test_in_a_member_of_a_tar_that_has_grown_tensors_before_that_place_are_whole(tmp_path):
    write(tmp_path)
    content = tar_of(tmp_path)
    at = 512 + 32 * 7 + 3
    (tmp_path / "it.tar").write_bytes(content[:at] + b"?" + content[at:])
    with pparse.view(f"{tmp_path}/it.tar::m.index") as model:
        whole = [tensor.name for tensor in model.tensors() if tensor.status is Status.COMPLETE]
        assert whole == [f"layer{number:04}/w" for number in range(7)]
        assert all(model[name].verified for name in whole)


def test_a_damaged_index_in_an_archive_is_kept_as_found(run, tmp_path):
    write(tmp_path)
    content = bytearray((tmp_path / "m.index").read_bytes())
    content[60] ^= 1
    (tmp_path / "m.index").write_bytes(content)
    (tmp_path / "it.tar").write_bytes(tar_of(tmp_path))
    ran = run("recover", "--json", tmp_path / "it.tar", "-o", tmp_path / "out")
    rows = json.loads(ran.out)["files"]
    (data,) = (row for row in rows if row["path"] == DATA_FILE)
    (index,) = (row for row in rows if row["path"] == "m.index.partial/as-found.bin")
    assert (data["status"], index["status"]) == ("complete", "damaged")
    assert (tmp_path / "out" / index["path"]).read_bytes() == content
    assert "m.safetensors" in [row["path"] for row in rows]


def test_a_header_that_moved_by_a_byte_is_none_although_its_sum_is_right():
    """Of two names that begin alike, one comes in for the other, and so do two zeros of checksum and type."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, size in (("pack/blob", 2000), ("pack/empty", 0), ("pack/last", 700)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(b"?" * size))
    content = out.getvalue()
    moved = content[:900] + content[901:]
    assert read_header(content[2560:3072]) is not None
    header = moved[2560:3072]
    assert sum(header[:148] + b" " * 8 + header[156:]) == int(header[148:153], 8)
    assert read_header(header) is None
    with pparse.open(moved) as document:
        found = {node.key: str(node.status) for node in document.root.children() if node.note.kind == "file"}
    assert found == {"pack/blob": "damaged", "pack/empty": "complete", "pack/last": "complete"}


def test_a_model_that_ends_before_the_stream_around_its_archive_does_is_not_cut(tmp_path):
    arrays, inner, outer = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(arrays, a=np.arange(50), b=np.ones(70))
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("arrays.npz", arrays.getvalue())
        archive.writestr("noise", np.random.default_rng(1).bytes(50_000))
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in.zip", inner.getvalue())
    (tmp_path / "it.zip").write_bytes(outer.getvalue()[:20_000])
    with pparse.view(f"{tmp_path}/it.zip::in.zip::arrays.npz") as model:
        assert model["b"].numpy().tolist() == [1.0] * 70
        assert model.extent().status is Status.COMPLETE
        assert model.status is Status.COMPLETE
