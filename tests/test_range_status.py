"""The one judge of bytes: gaps, doubts, proofs; and what streams, tensors and archives make of it."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.data.base import BytesData, GapTable
from pparse.data.range_status import Ledger, Stretches
from pparse.data.spliced import HiddenData
from pparse.data.zero_runs import zero_runs
from pparse.errors import DamagedTensorError, MissingTensorError, TruncatedTensorError
from pparse.findings import Status
from tests.rows import rows

NUMBERS = np.random.default_rng(11)
WEIGHTS = {f"layer.{number}": NUMBERS.standard_normal((40, 50)).astype("<f4") for number in range(31)}


def model() -> bytes:
    header, at = {}, 0
    for name, array in WEIGHTS.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in WEIGHTS.values())


MODEL = model()


def zipped(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(zipfile.ZipInfo("model.safetensors"), MODEL, method)
        archive.writestr(zipfile.ZipInfo("readme.txt"), b"read me\n" * 30, method)
    return made.getvalue()


def overwritten(content: bytes, at: int, count: int = 16) -> bytes:
    return content[:at] + bytes((byte ^ 0x5A) & 0xFF for byte in content[at : at + count]) + content[at + count :]


@pytest.fixture
def view(tmp_path):
    def opened(content: bytes, name: str = "x.zip"):
        path = tmp_path / name
        path.write_bytes(content)
        return pparse.view(f"{path}::model.safetensors")

    return opened


# -- stretches ---------------------------------------------------------------------------------------------------------


def test_proofs_that_meet_are_one():
    proofs = Stretches()
    for start, end in ((10, 20), (30, 40), (20, 30), (60, 70), (5, 12)):
        proofs.add(start, end)
    assert proofs.covers(5, 40)
    assert proofs.covers(60, 70)
    assert not proofs.covers(39, 41)
    assert not proofs.covers(4, 6)
    assert not proofs.covers(45, 50)


def test_a_condemned_stretch_is_found_behind_shorter_ones():
    ledger = Ledger()
    for start, end in ((50, 60), (2000, 2001), (10, 11), (0, 1000)):
        ledger.condemn(start, end, f"{start}")
    assert ledger.why_wrong(900, 901) == "0"
    assert ledger.why_wrong(1000, 2000) is None
    assert ledger.why_wrong(1999, 2001) == "2000"
    assert [ledger.is_wrong_at(start) for start in (10, 11, 2000, 2001)] == [True, False, True, False]


@rows(
    ("gap", "stretch", "status", "there"),
    [
        ((40, 20), (0, 40), Status.COMPLETE, 40),
        ((40, 20), (30, 70), Status.DAMAGED, 10),
        ((40, 20), (45, 55), Status.MISSING, 0),
        ((40, 20), (45, 70), Status.DAMAGED, 0),
        ((40, 60), (30, 70), Status.TRUNCATED, 10),
        ((40, None), (30, 70), Status.TRUNCATED, 10),
        ((40, None), (50, 70), Status.MISSING, 0),
        ((40, 20), (90, 120), Status.TRUNCATED, 10),
        ((40, 20), (100, 120), Status.MISSING, 0),
        ((40, 20), (50, 50), Status.COMPLETE, 0),
    ],
)
def test_gaps_and_the_end_decide_what_is_there(gap, stretch, status, there):
    data = BytesData(bytes(100))
    table = GapTable()
    table.add(*gap)
    data.gaps = table
    found = data.range_status(*stretch)
    assert (found.status, found.there, found.verified) == (status, there, None)


def test_what_is_condemned_is_damaged_unless_a_proof_covers_it():
    data = BytesData(bytes(100))
    assert not data.flawed
    data.condemn(10, 50, "the checksum contradicts")
    assert data.flawed
    found = data.range_status(0, 20)
    assert (found.status, found.verified, found.reason) == (Status.DAMAGED, False, "the checksum contradicts")
    data.vouch(30, 40)
    assert data.range_status(30, 40).verified is True
    assert data.range_status(29, 40).status is Status.DAMAGED
    assert data.range_status(50, 60).status is Status.COMPLETE
    assert data.suspect_ranges_in(0, 100) == [(10, 30), (40, 50)]
    assert data.suspect_ranges_in(60, 100) == []


def test_hidden_stretches_are_gaps_and_their_doubts_are_settled():
    data = BytesData(bytes(range(100)))
    data.condemn(20, 30, "wrong")
    data.condemn(60, 61, "wrong too")
    hidden = HiddenData(data, [(20, 30)])
    assert hidden.read_known(15, 20) == (bytes(range(15, 20)) + bytes(10) + bytes(range(30, 35)), [(20, 10)])
    assert hidden.why_suspect(0, 50) is None
    assert hidden.why_suspect(0, 70) == "wrong too"


# -- a member of a zip -------------------------------------------------------------------------------------------------


def test_a_deflated_member_that_reaches_beyond_the_archive_is_truncated_at_once(view):
    whole = zipped()
    with view(whole[: len(whole) * 7 // 10]) as tensors:
        assert tensors.status is Status.TRUNCATED
        statuses = [tensors[name].status for name in WEIGHTS]
        cut = statuses.index(Status.TRUNCATED)
        assert 5 < cut < 30
        assert statuses == [Status.COMPLETE] * cut + [Status.TRUNCATED] + [Status.MISSING] * (30 - cut)
        for number, (name, array) in enumerate(WEIGHTS.items()):
            if number < cut:
                assert (tensors[name].numpy() == array).all()
            else:
                with pytest.raises(TruncatedTensorError if number == cut else MissingTensorError):
                    tensors[name].numpy()
        rows = tensors[f"layer.{cut}"].numpy(partial="prefix")
        assert (rows == WEIGHTS[f"layer.{cut}"][: len(rows)]).all()


def test_damage_that_decoding_shows_makes_tensor_and_view_damaged_from_then_on(view):
    whole = zipped()
    with view(overwritten(whole, len(whole) // 2)) as tensors:
        assert tensors.status is Status.COMPLETE  # nobody has looked
        refused = []
        for name, array in WEIGHTS.items():
            try:
                got = tensors[name].numpy()
            except DamagedTensorError:
                refused.append(name)
            else:
                assert (got == array).all() or name in refused or tensors[name].status is Status.COMPLETE
        list(tensors.check())
        assert refused
        for name in refused:
            assert tensors[name].status is Status.DAMAGED
            with pytest.raises(DamagedTensorError):
                tensors[name].numpy()
        assert tensors.status is Status.DAMAGED


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_check_compares_the_checksum_of_the_member_a_model_is(view, method):
    whole = zipped(method)
    with view(whole) as tensors:
        assert list(tensors.extraction.check()) == []
        assert all(tensor.verified is True for tensor in tensors.values())
    with view(overwritten(whole, len(whole) // 2)) as tensors:
        findings = list(tensors.extraction.check())
        assert any(finding.severity.value == "error" for finding in findings)
        assert tensors.status is not Status.COMPLETE
        for name, tensor in tensors.items():  # bzip2 has lost all of them with its only block
            assert tensor.verified is not True
            if tensor.status is Status.COMPLETE:
                assert (tensor.numpy() == WEIGHTS[name]).all()


def test_what_a_check_of_the_archive_found_is_known_to_a_view_opened_later(tmp_path):
    path = tmp_path / "x.zip"
    whole = zipped(zipfile.ZIP_STORED)
    path.write_bytes(overwritten(whole, 60_000))
    with pparse.open(path) as archive:
        inner = archive.parse().parser.enter("model.safetensors")
        assert inner.view().status is Status.COMPLETE
        list(archive.check())
        assert inner.view().status is Status.DAMAGED
        assert inner.view()["layer.3"].verified is False
        assert archive.node("readme.txt").status is Status.COMPLETE


@pytest.mark.parametrize("command", ["ls", "info", "check"])
def test_commands_agree_on_a_cut_member(tmp_path, run, command):
    path = tmp_path / "x.zip"
    whole = zipped()
    path.write_bytes(whole[: len(whole) // 2])
    ran = run(command, f"{path}::model.safetensors", "--json")
    assert (ran.code, ran.json["status"]) == (4, "truncated")


def test_nothing_is_decoded_to_list_a_member_that_nothing_speaks_against(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped())
    with pparse.view(f"{path}::model.safetensors") as tensors:
        assert [tensor.status for tensor in tensors.values()] == [Status.COMPLETE] * 31
        assert not tensors.extraction.data.finished


# -- a stream that contradicts itself ----------------------------------------------------------------------------------


def test_zeros_in_deflate_data_tell_where_a_contradicted_stream_is_damaged(tmp_path):
    words = [b"alpha", b"beta", b"gamma", b"delta", b"epsilon", b"zeta", b"eta", b"theta"]
    text = b" ".join(words[number] for number in NUMBERS.integers(0, len(words), 400_000))
    compress = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = compress.compress(text) + compress.flush()
    from pparse.compressed.resumed import ResumedData
    from pparse.limits import MemoryBudget

    at = len(packed) // 2
    damaged = packed[:at] + bytes(300) + packed[at + 300 :]
    data = ResumedData(
        BytesData(damaged).range(0, len(damaged)),
        "deflate",
        size=len(text),
        budget=MemoryBudget(),
        checksum=("crc32", zlib.crc32(text)),
        suspect=True,
    )
    data.verify()
    known, unknown = b"", []
    while len(known) < len(text):
        chunk, missing = data.read_known(len(known), 1 << 20)
        unknown += missing
        known += chunk
    sure = bytearray(b"\1") * len(text)
    for start, count in unknown:
        sure[start : start + count] = bytes(count)
    assert all(known[place] == text[place] for place in range(len(text)) if sure[place])
    assert not data.is_proved(0, len(text))
    before = data.gaps[0].offset
    assert sum(sure[:before]) == before > len(text) // 3  # what precedes the zeros is as good as ever
    assert data.range_status(0, before).status is Status.COMPLETE
    assert sum(sure[before:]) > 20_000  # the text is all repetition: most of it is copied over the zeros


# -- zeros -------------------------------------------------------------------------------------------------------------


def test_runs_of_whole_pages_of_zeros_are_found_from_64_kib_on():
    page = 4096
    content = b"x" * page * 3 + bytes(page * 16) + b"y" * 100 + bytes(page * 15) + b"z" * 5000 + bytes(page * 40)
    data = BytesData(content)
    last = -(-(page * 34 + 5100) // page) * page
    assert list(zero_runs(data, 0, len(content), lambda: None)) == [
        (3 * page, 16 * page),
        (last, len(content) // page * page - last),
    ]
    assert list(zero_runs(data, 0, 19 * page - 1, lambda: None)) == []


def test_check_warns_of_long_zeros_in_a_model(tmp_path, run):
    path = tmp_path / "zeros.safetensors"
    header = json.dumps({"w": {"dtype": "U8", "shape": [200_000], "data_offsets": [0, 200_000]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\1" * 50_000 + bytes(100_000) + b"\1" * 50_000)
    ran = run("check", path, "--json")
    assert ran.code == 0
    assert [(finding["code"], finding["severity"]) for finding in ran.json["findings"]] == [("zeros", "warning")]


@rows(
    "name, zeros, severity",
    [
        ("a.safetensors", 100_000, "warning"),
        ("a.safetensors", 9_000, "note"),
        ("a.safetensors", 4_000, None),
        ("a.npy", 100_000, "warning"),
        ("a.gguf", 9_000, "note"),
        ("a.safetensors.gz", 9_000, None),  # its checksum says more
    ],
)
def test_check_says_that_a_file_ends_with_zeros(tmp_path_factory, run, samples, name, zeros, severity):
    path = tmp_path_factory.mktemp("zeros") / name
    header = json.dumps({"w": {"dtype": "U8", "shape": [200_000], "data_offsets": [0, 200_000]}}).encode()
    np.save(array := io.BytesIO(), np.full(200_000, 1, np.uint8))
    content = {
        "safetensors": struct.pack("<Q", len(header)) + header + b"\1" * 200_000,
        "npy": array.getvalue(),
        "gguf": Path(samples, "tiny.gguf").read_bytes(),
    }[name.split(".")[1]]
    content = content[:-zeros] + bytes(zeros)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    ran = run("check", path, "--json")
    told = [(found["code"], found["severity"], found["offset"]) for found in ran.json["findings"]]
    start = len(content[:-zeros].rstrip(b"\0"))
    assert (ran.code, told) == (0, [("zeros", severity, start)] if severity else [])
    assert run("check", "--strict", path).code == (4 if severity == "warning" else 0)
