"""Values of small streams and members are given only after the checksum that speaks of them was compared."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.cli import main
from pparse.containers.archive import ArchiveParser
from pparse.data.base import BytesData, Gap, IoStats
from pparse.limits import LITTLE
from tests import sweep
from tests.conftest import safetensors

rng = np.random.default_rng(3)
TENSORS = {f"layer.{number}": rng.integers(0, 7, 4_096).astype(np.float32) for number in range(8)}
MODEL = safetensors(
    {
        name: {"dtype": "F32", "shape": [4_096], "data_offsets": [number * 16_384, (number + 1) * 16_384]}
        for number, name in enumerate(TENSORS)
    },
    b"".join(array.tobytes() for array in TENSORS.values()),
)


def zipped(content: bytes, method: int, name: str = "m.safetensors") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(name, content)
    return made.getvalue()


def tarred(content: bytes, name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


GZ = gzip.compress(MODEL, mtime=0)
STORED, DEFLATED = zipped(MODEL, zipfile.ZIP_STORED), zipped(MODEL, zipfile.ZIP_DEFLATED)
STORED_IN_TAR_GZ = gzip.compress(tarred(STORED, "a.zip"), mtime=0)
WRAPPED = {  # the file, where its payload begins and ends, the path inside
    "stored": (STORED, 2_000, len(MODEL), "::m.safetensors"),
    "deflated": (DEFLATED, 500, len(DEFLATED) - 200, "::m.safetensors"),
    "gz": (GZ, 500, len(GZ) - 20, ""),
    "gz in a tar": (tarred(GZ, "m.gz"), 1_200, 8_000, "::m.gz"),
    "stored in a tar.gz": (STORED_IN_TAR_GZ, 500, len(STORED_IN_TAR_GZ) - 500, "::a.zip::m.safetensors"),
}


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_a_tensor_that_is_called_complete_is_right_whatever_was_read_before(wrapper, tmp_path):
    content, begin, end, inside = WRAPPED[wrapper]
    path = tmp_path / "file"
    draw = random.Random(wrapper)
    for _ in range(12 if sweep.full else 6):
        damaged = bytearray(content)
        at = draw.randrange(begin, min(end, len(content)))
        damaged[at] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pparse.view(f"{path}{inside}") as viewer:
            names = list(TENSORS)
            draw.shuffle(names)
            for name in names:
                tensor = viewer.find(name)
                if tensor is None:
                    continue
                try:
                    array = tensor.numpy()
                except pparse.PparseError:
                    continue
                assert np.array_equal(array, TENSORS[name]), (at, name)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_values_of_a_damaged_member_are_refused(method, tmp_path):
    content = json.dumps({"words": [f"word {number}" for number in range(3_000)]}).encode()
    damaged = bytearray(zipped(content, method, "a.json"))
    damaged[len(damaged) // 2] ^= 4
    (tmp_path / "a.zip").write_bytes(damaged)
    wrong = 0
    with pparse.open(f"{tmp_path / 'a.zip'}::a.json") as document:
        for number in range(0, 3_000, 100):
            try:
                wrong += document.node(f"words[{number}]").load() != f"word {number}"
            except pparse.PparseError:
                continue
    assert wrong == 0


def test_a_member_that_is_not_small_is_not_read_for_its_checksum(tmp_path):
    header = {
        "layer.0": {"dtype": "F32", "shape": [4_096], "data_offsets": [0, 16_384]},
        "large": {"dtype": "U8", "shape": [LITTLE], "data_offsets": [16_384, 16_384 + LITTLE]},
    }
    large = safetensors(header, TENSORS["layer.0"].tobytes() + bytes(LITTLE))
    (tmp_path / "a.zip").write_bytes(zipped(large, zipfile.ZIP_STORED))
    stats = IoStats()
    with pparse.view(f"{tmp_path / 'a.zip'}::m.safetensors", stats=stats) as viewer:
        viewer["layer.0"].numpy()
    assert stats.bytes < len(large) // 4


def test_a_member_is_read_for_its_checksum_once(tmp_path):
    (tmp_path / "a.zip").write_bytes(STORED)
    stats = IoStats()
    with pparse.view(f"{tmp_path / 'a.zip'}::m.safetensors", stats=stats) as viewer:
        viewer["layer.0"].numpy()
        before = stats.bytes
        assert before > len(MODEL)
        for name in TENSORS:
            viewer[name].numpy()
        assert stats.bytes - before <= 1.5 * len(MODEL)


@pytest.mark.parametrize(("proved", "read"), [((0, 0), True), ((0, 10), True), ((1, 0), True), ((0, None), False)])
def test_a_member_of_which_a_part_is_proved_is_read_for_its_checksum(proved, read, tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(b"{}" + b" " * 50_000, zipfile.ZIP_STORED, "a.json"))
    stats = IoStats()
    with pparse.open(f"{tmp_path / 'a.zip'}::a.json", stats=stats) as document:
        first, last = proved
        size = 50_002
        document.data.vouch(document.start + first, document.start + (size if last is None else last))
        document.data.vouch(document.start + size, document.start + size + 10)
        before = stats.bytes
        document.resolve()
        assert (stats.bytes - before >= size) is read


def test_a_piece_of_a_member_before_its_cut_is_given(tmp_path, capsysbinary):
    content = random.Random(1).randbytes(50_000)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        (tmp_path / "a.zip").write_bytes(zipped(content, method, "noise.bin")[:30_000])
        path = str(tmp_path / "a.zip")
        assert main(["get", path, "noise.bin[10:2000]"]) == 4
        assert capsysbinary.readouterr().out == content[10:2_000]
        assert main(["get", path, "noise.bin[10:40000]"]) == 4
        out, told = capsysbinary.readouterr()
        assert out == b""
        assert b"--partial prefix gives what is there" in told
        assert main(["get", path, "noise.bin[10:40000]", "--partial", "prefix"]) == 4
        out, told = capsysbinary.readouterr()
        assert content[10:40_000].startswith(out)
        assert len(out) > 29_000
        assert told == b""


def test_reading_stops_at_the_end_of_a_range_where_a_gap_begins():
    data = BytesData(b"abcdef")
    data.gaps = [Gap(3, 3)]
    reader = data.range(0, 3)
    assert reader.read(10) == b"abc"
    assert reader.read(10) == b""


def test_progress_of_a_check_is_that_of_the_outermost_file(tmp_path):
    files = {f"{number}.json": b'{"a": [1, 2, 3]}' * 1 for number in range(200)}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    path = tmp_path / "a.tar"
    path.write_bytes(tarred(made.getvalue(), "a.zip"))
    told: list[tuple[int, int | None, str]] = []
    with pparse.open(Path(path), progress=lambda *words: told.append(words)) as document:
        assert list(document.check()) == []
    assert {total for _, total, _ in told} == {path.stat().st_size}
    assert {what for _, _, what in told} == {"reading"}
    assert max(done for done, _, _ in told) > path.stat().st_size // 4


def test_nobody_reads_while_another_thread_still_compares(tmp_path, monkeypatch):
    damaged = bytearray(STORED)
    damaged[3_000] ^= 1
    (tmp_path / "a.zip").write_bytes(damaged)
    begun, go_on = threading.Event(), threading.Event()
    prove = ArchiveParser.verify_opened

    def slow(self, opened):
        begun.set()
        assert go_on.wait(20)
        return prove(self, opened)

    told: list[str] = []

    def read(tensor):
        try:
            tensor.numpy()
            told.append("given")
        except pparse.DamagedTensorError:
            told.append("refused")

    with pparse.view(f"{tmp_path / 'a.zip'}::m.safetensors") as viewer:
        tensors = [viewer["layer.0"], viewer["layer.0"]]
        monkeypatch.setattr(ArchiveParser, "verify_opened", slow)
        threads = [threading.Thread(target=read, args=(tensor,)) for tensor in tensors]
        threads[0].start()
        assert begun.wait(20)
        threads[1].start()
        threads[1].join(0.3)
        assert told == []
        go_on.set()
        for thread in threads:
            thread.join()
    assert told == ["refused", "refused"]


def test_what_could_not_be_compared_is_compared_when_somebody_asks_again(tmp_path, monkeypatch):
    damaged = bytearray(STORED)
    damaged[3_000] ^= 1
    (tmp_path / "a.zip").write_bytes(damaged)
    prove = ArchiveParser.verify_opened

    def fail(self, opened):
        monkeypatch.setattr(ArchiveParser, "verify_opened", prove)
        raise pparse.SourceError("Input/output error")

    with pparse.view(f"{tmp_path / 'a.zip'}::m.safetensors") as viewer:
        tensor = viewer["layer.0"]
        monkeypatch.setattr(ArchiveParser, "verify_opened", fail)
        with pytest.raises(pparse.SourceError):
            tensor.numpy()
        with pytest.raises(pparse.DamagedTensorError):
            tensor.numpy()
