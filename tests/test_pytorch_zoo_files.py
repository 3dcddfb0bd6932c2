"""The zoo itself: its files are all there, small, and the comparison with them notices what is wrong."""

from __future__ import annotations

import hashlib
import pickle
import pickletools
import re
import struct
import zipfile
import zlib
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import pparse
from tests.bench import inputs_pytorch
from tests.pytorch_zoo import FOLDER, REFUSED, SAMPLES, WITH_TENSORS, check, expected
from tests.rows import rows

# Folders of whoever made the zoo.
FOREIGN = re.compile(rb"(?:/home|/tmp|/root|/work|/Users|site-packages)[/\\]")


WITHOUT = {
    "root_none.pt",
    "root_empty_dict.pt",
    "script/plain_attributes.pt",
    *(f"pickle/plain{number}.pkl" for number in range(6)),
    *(f"pickle/{name}.pkl" for name in ("shared", "many", "many2", "frames")),
    *(f"pickle/{name}.pkl" for name in ("python2", "python2_text", "odd_memo", "odd_opcodes")),
}


def test_every_file_is_listed_and_small():
    found = {path for path in FOLDER.rglob("*") if path.is_file()} - {FOLDER / "expected.json"}
    assert found == {*SAMPLES.values(), *REFUSED}
    assert len(SAMPLES) > 150
    assert len(REFUSED) > 15
    sizes = [path.stat().st_size for path in found]
    assert max(sizes) < 60_000
    assert sum(sizes) + (FOLDER / "expected.json").stat().st_size < 1_500_000


def contents(path):
    """Return the bytes of a file, and those of its members."""
    parts = [path.read_bytes()]
    if zipfile.is_zipfile(path) and "hostile" not in path.parts:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type == zipfile.ZIP_DEFLATED:
                    parts.append(archive.read(member))
    return parts


def test_no_file_names_a_folder_of_its_maker():
    named = [path.name for path in (*SAMPLES.values(), *REFUSED) for part in contents(path) if FOREIGN.search(part)]
    assert named == []


def test_kinds_and_types_are_covered():
    rows = [row for name in SAMPLES for row in expected(name)["tensors"]]
    kinds = {"strided", "meta", "storage", "numpy", "quantized", "nested", "sparse_coo"}
    assert {row["kind"] for row in rows} == kinds | {f"sparse_{form}" for form in ("csr", "csc", "bsr", "bsc")}
    types = {row["dtype"] for row in rows if row["kind"] == "strided"}
    assert types >= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    assert types >= {"float16", "float32", "float64", "bfloat16", "bool", "complex32", "complex64", "complex128"}
    assert types >= {f"float8_{form}" for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")}
    assert {len(row["shape"]) for row in rows} == set(range(6))


LAZY = {"conj", "conj_transposed", "neg", "conj128", "conj32", "neg_double"}  # the bits of conj_neg.pt, attributes.pt
PLAIN_ZIPS = [
    name
    for name, path in SAMPLES.items()
    if zipfile.is_zipfile(path) and not name.startswith(("hostile/", "script/", "big_endian", "float4"))
]


@rows("name", [*PLAIN_ZIPS, "script/net.pt", "script/collections.pt"])
def test_strides_and_storages_lead_to_the_bytes(name):
    """Look for the numbers of each tensor where its row says they are stored, with nothing but zipfile and numpy."""
    with zipfile.ZipFile(SAMPLES[name]) as archive:
        top = archive.namelist()[0].split("/")[0]
        for row in expected(name)["tensors"]:
            if row["kind"] == "quantized" or "stride" not in row or row["storage"] is None or row["name"] in LAZY:
                continue
            info = archive.getinfo(f"{top}/data/{row['storage']}")
            raw = SAMPLES[name].read_bytes()
            begin = info.header_offset + 30 + sum(struct.unpack_from("<2H", raw, info.header_offset + 26))
            stored = raw[begin : begin + info.compress_size]
            if info.compress_type == zipfile.ZIP_DEFLATED:
                stored = zlib.decompress(stored, -15)
            dtype = row["dtype"]
            size = 4 if dtype == "complex32" else np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize
            numbers = np.frombuffer(stored, np.dtype((np.void, size)))[row["offset"] :]
            strides = [size * step for step in row["stride"]]
            view = np.lib.stride_tricks.as_strided(numbers, row["shape"], strides)
            assert hashlib.sha256(view.tobytes()).hexdigest() == row["sha256"], row


def viewer_of(**arrays):
    return {name: SimpleNamespace(dtype=a.dtype, shape=a.shape, numpy=lambda a=a: a) for name, a in arrays.items()}


def right():
    numbers = (np.arange(20) * 37 % 101 - 50).astype("f4").reshape(4, 5) / 8
    return {
        "a": numbers,
        "view": numbers.T[1:],
        "b": np.arange(6) * 37 % 101,
        "c": ((np.arange(3) * 37 % 101 - 50) / 8).astype(ml_dtypes.bfloat16),
    }


def test_the_comparison_accepts_what_torch_reads():
    check(viewer_of(**right()), "no_byteorder.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": None}, "'b' is not listed"),
        ({"d": np.zeros(3)}, "'d' is listed, and not in the file"),
        ({"b": np.arange(6)}, r"'b': int64 \(6,\), strided: other numbers"),
        ({"b": np.arange(6, dtype="i4")}, "'b': its type is int32, not int64"),
        ({"a": np.zeros((5, 4), "f4")}, r"'a': its shape is \(5, 4\), not \(4, 5\)"),
        ({"view": right()["view"].T.copy().reshape(4, 4)}, r"'view': float32 \(4, 4\), strided: other numbers"),
    ],
)
def test_the_comparison_notices(change, message):
    arrays = {name: array for name, array in {**right(), **change}.items() if array is not None}
    with pytest.raises(AssertionError, match=message):
        check(viewer_of(**arrays), "no_byteorder.pt")


def test_files_without_tensors_are_few_and_known():
    assert {name for name in SAMPLES if name not in WITH_TENSORS} == WITHOUT


def test_the_pickle_of_the_benchmarks_holds_what_it_says(tmp_path):
    path = inputs_pytorch.nested_pickle(tmp_path / "nested.pkl", 300_000)
    value = pickle.loads(path.read_bytes())
    assert value == inputs_pytorch.nested_value(300_000)
    assert len(value) > 1000
    assert path.read_bytes() == inputs_pytorch.nested_pickle(tmp_path / "again.pkl", 300_000).read_bytes()
    # As in the pickles that are measured against: some two bytes an opcode.
    opcodes = sum(1 for _ in pickletools.genops(path.read_bytes()))
    assert 1.8 < path.stat().st_size / opcodes < 2.2


def test_the_checkpoint_of_the_benchmarks_is_a_sparse_zip(tmp_path):
    path = inputs_pytorch.checkpoint(tmp_path / "model.pt", 4, 40 << 20)
    assert 40 << 20 < path.stat().st_size < 41 << 20
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[0] == "model/data.pkl"
        assert [info.file_size for info in archive.infolist() if "/data/" in info.filename] == [10 << 20] * 4
        assert archive.read("model/version") == b"3\n"


def test_a_checkpoint_is_told_by_its_directory(tmp_path):
    """torch goes by it, and runs what it names, whatever the header of the pickle calls that."""
    for name in ("module.pt", "state_dict.pt", "dtypes.pt"):
        content = SAMPLES[name].read_bytes()
        with zipfile.ZipFile(SAMPLES[name]) as archive:
            (listed,) = [member for member in archive.namelist() if member.endswith("/data.pkl")]
        at = content.index(listed.encode()) + len(listed) - len("/data.pkl")
        (tmp_path / name).write_bytes(content[:at] + b"_" + content[at + 1 :])
        with pparse.view(tmp_path / name) as hit, pparse.view(SAMPLES[name]) as whole:
            assert (hit.format, list(hit)) == ("pytorch", list(whole))
    with zipfile.ZipFile(tmp_path / "no.zip", "w") as archive:
        for name in ("readme.txt", "x/data.pkl"):
            archive.writestr(name, "no checkpoint")
    with pparse.open(tmp_path / "no.zip") as document:
        assert document.format == "zip"
