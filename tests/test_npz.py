"""Archives of arrays: numpy's own, cut and damaged ones, and those that others write."""

from __future__ import annotations

import io
import pickle
import random
import struct
import warnings
import zipfile

import numpy as np
import pytest

import pparse
from pparse.findings import Severity, Status
from tests import sweep
from tests.numpy_files import archive, npy, npz
from tests.rows import rows
from tests.zip_samples import Sink

RNG = np.random.default_rng(0)
ARRAYS = {
    "weight": RNG.standard_normal((40, 50)).astype("f4"),
    "layer/0/bias": np.arange(200, dtype=">i4"),
    "order": np.asfortranarray(RNG.standard_normal((10, 20))),
    "texts": np.array(["a", "bc"]),
    "rows": np.array([(1, [2, 3])], [("x", "<f4"), ("y", ">i2", (2,))]),
    "empty": np.zeros((0, 3)),
    "scalar": np.float16(1.5),
}
TWENTY = {f"a{number:02}": RNG.standard_normal((100, 50)).astype("f4") for number in range(20)}


def same(tensor, array) -> bool:
    got = tensor.numpy()
    return got.shape == np.shape(array) and got.astype(np.asarray(array).dtype).tobytes() == array.tobytes()


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# -- what is there ---------------------------------------------------------------------------------------------------


@rows("compressed", [False, True])
def test_arrays_are_called_and_read_as_numpy_does(compressed):
    content = npz(compressed, **ARRAYS)
    with pparse.view(content) as model, np.load(io.BytesIO(content)) as wanted:
        assert (model.format, list(model)) == ("npz", wanted.files)
        for name in wanted.files:
            assert same(model[name], wanted[name]), name
        assert (model.status, list(model.check())) == (Status.COMPLETE, [])
        assert all(tensor.verified for tensor in model.values() if not compressed)


def test_an_archive_that_was_written_to_a_pipe_is_read():
    out = Sink()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:  # type: ignore[call-overload]
        for name, array in ARRAYS.items():
            with made.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array))
    with pparse.view(bytes(out.written)) as model:
        assert all(same(model[name], array) for name, array in ARRAYS.items())


def test_members_are_arrays_by_their_first_bytes_too(run, tmp_path):
    members = [("a.npy", npy(np.arange(3))), ("b", npy(np.arange(4))), ("notes.txt", b"hello"), ("c.npy", b"no array")]
    path = tmp_path / "x.npz"
    path.write_bytes(archive(members))
    with pparse.view(path) as model:
        assert list(model) == ["a", "b", "c"]
        assert model["b"].numpy().tolist() == [0, 1, 2, 3]
        assert (model["c"].status, model["c"].finding.code) == (Status.DAMAGED, "magic")
    assert "others      1 member is no array: notes.txt" in run("info", path).lines
    assert "  notes.txt: file (not loaded)" in "\n".join(run("tree", path).lines)
    assert run("get", path, "notes.txt").out == "hello"
    assert run("get", f"{path}::a.npy", "a").lines[1] == "[0 1 2]"


def test_the_second_of_two_equal_names_has_a_number():
    members = [("x.npy", npy(np.arange(3))), ("x", npy(np.arange(4))), ("x.npy", npy(np.arange(5)))]
    with pytest.warns(UserWarning, match="Duplicate"):
        content = archive(members)
    with pparse.view(content, format="npz") as model:
        assert [(name, tensor.size) for name, tensor in model.items()] == [("x", 3), ("x#2", 4), ("x#3", 5)]
        assert [model[name].size for name in ("x", "x#2", "x#3")] == [3, 4, 5]
        assert "x#4" not in model
        (finding,) = model.findings
        assert (finding.code, finding.severity, finding.path) == ("duplicate", Severity.WARNING, "x")


def test_names_are_unique_where_a_member_is_called_as_a_second_one():
    members = [(f"{name}.npy", npy(np.arange(at + 1))) for at, name in enumerate(("x#2", "x", "x", "x#2", "x", "x#5"))]
    with pytest.warns(UserWarning, match="Duplicate"):
        content = archive(members)
    with pparse.view(content, format="npz") as model:
        found = [(tensor.name, tensor.size) for tensor in model.tensors()]
        assert found == [("x#2", 1), ("x", 2), ("x#3", 3), ("x#2#2", 4), ("x#4", 5), ("x#5", 6)]
        assert [(name, model[name].size) for name, _ in found] == found
        assert all(name not in model for name in ("x#1", "x#6", "x#03", "x#2#3"))


@rows(
    "names, words",
    [(("x.npy", "x.npy"), "the last"), (("x", "x.npy"), "the one without"), (("x.npy", "x"), "the one without")],
)
def test_which_of_several_members_numpy_takes_is_told(run, tmp_path, names, words):
    path = tmp_path / "x.npz"
    with warnings.catch_warnings(action="ignore"):
        path.write_bytes(archive([(name, npy(np.arange(at))) for at, name in enumerate(names)]))
    with np.load(path) as made:
        assert made["x"].size == (1 if words == "the last" else names.index("x"))
    wanted = f"duplicate x: several members have this name: numpy.load takes {words}"
    assert wanted in run("ls", path).out + run("ls", path).err
    assert wanted in run("check", path).out


def test_what_is_wrong_with_an_array_in_a_whole_member_is_told(run, tmp_path):
    whole = npy(np.arange(9))
    members = [("a.npy", b"hello"), ("b.npy", whole[:30]), ("c.npy", whole[:-8]), ("d.npy", whole)]
    path = tmp_path / "x.npz"
    path.write_bytes(archive(members))
    with np.load(path) as made:
        assert made["a"] == b"hello"
    words = "magic a: it does not begin as an .npy array: numpy.load returns it as bytes"
    for command in ("ls", "info", "check"):
        done = run(command, path)
        assert words in done.out + done.err, command
    told = run("check", path)
    assert told.code == 4
    assert "truncated b @0x" in told.out
    assert "truncated c @0x148: 64 of its 72 bytes are there" in told.out
    assert run("convert", path, "--include", "d", "-o", tmp_path / "d.safetensors").code == 0


@rows(
    "names, file, form",
    [
        (("a.npy", "b.npy"), "bare", "npz"),
        (("a.npy", "b.npy"), "x.zip", "npz"),
        (("a.npy", "b.txt"), "x.zip", "zip"),
        (("b.txt", "a.npy"), "x.zip", "zip"),
        (("b.txt", "a.npy"), "x.npz", "npz"),
        ((), "x.npz", "npz"),
        ((), "x.zip", "zip"),
    ],
)
def test_an_archive_of_arrays_is_told_by_its_name_or_its_members(tmp_path, names, file, form):
    path = tmp_path / file
    path.write_bytes(archive([(name, npy(np.arange(3))) for name in names]))
    with pparse.open(path) as document:
        assert document.format == form
        assert document.parse("zip").format == "zip"


def test_python_objects_are_shown_as_their_pickle(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, o=np.array([None, "two"], object), a=np.arange(3))
    with pparse.view(path) as model:
        assert (model["o"].status, model["a"].status) == (Status.UNSUPPORTED, Status.COMPLETE)
    with pparse.open(f"{path}::o.npy::pickle") as document:
        assert document.root.find("state")[4].to_python() == [None, "two"]


def test_a_sparse_matrix_is_told():
    arrays = {
        "indices": np.arange(2),
        "indptr": np.arange(3),
        "data": np.ones(2),
        "shape": np.array([2, 2]),
        "format": np.array(b"csr"),
    }
    with pparse.view(npz(**arrays)) as model:
        assert model.metadata == {"matrix": "scipy.sparse", "format": "csr", "shape": [2, 2]}
        assert list(model) == list(arrays)
    for beyond in (b"\0\1\2\3", b"\xff" * 4):  # numpy makes a text of it, on which Python breaks
        with pparse.view(npz(**{**arrays, "format": np.frombuffer(beyond, "<U1").reshape(())})) as model:
            assert model.metadata == {}
    del arrays["indptr"]
    with pparse.view(npz(**arrays)) as model:
        assert model.metadata == {}


# -- how much is read ------------------------------------------------------------------------------------------------


@rows("compressed", [False, True])
def test_a_list_reads_headers_only(compressed):
    content = npz(compressed, **{f"a{number}": RNG.standard_normal(20_000) for number in range(50)})
    with pparse.view(content) as model:
        assert [tensor.shape for tensor in model.tensors()] == [(20_000,)] * 50
        assert model.extraction.session.stats.bytes < len(content) // 40


def test_a_deflated_array_may_be_longer_than_the_archive():
    with pparse.view(npz(True, zeros=np.zeros(1 << 20))) as model:
        extent = model.extent()
        assert (extent.status, extent.missing_bytes) == (Status.COMPLETE, 0)
        assert model["zeros"][-1] == 0


def test_a_tensor_can_be_sent_to_another_process(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{"layer/0/bias": np.arange(3), "b": np.zeros(2, [("x", "<f4")])})
    with pparse.view(path) as model:
        assert pickle.loads(pickle.dumps(model["layer/0/bias"])).numpy().tolist() == [0, 1, 2]
        assert pickle.loads(pickle.dumps(model["b"])).numpy().dtype.names == ("x",)


# -- cut and damaged -------------------------------------------------------------------------------------------------


@rows("compressed", [False, True])
def test_of_an_archive_cut_to_60_percent_12_of_20_arrays_are_whole(compressed):
    content = npz(compressed, **TWENTY)
    with pparse.view(content[: len(content) * 6 // 10]) as model:
        tensors = list(model.values())
        whole = [tensor for tensor in tensors if tensor.status is Status.COMPLETE]
        assert [tensor.name for tensor in whole] == list(TWENTY)[:12]
        assert all(same(tensor, TWENTY[tensor.name]) for tensor in whole)
        (cut,) = tensors[12:]
        assert (cut.name, cut.status, cut.shape) == ("a12", Status.TRUNCATED, (100, 50))
        found = cut.numpy(partial="prefix")
        assert found.tobytes() == TWENTY["a12"][: len(found)].tobytes()
        extent = model.extent()
        assert (extent.status, extent.whole, extent.truncated, extent.at_least) == (Status.TRUNCATED, 12, 1, True)


@rows("compressed", [False, True])
def test_an_array_whose_checksum_is_wrong_is_damaged(run, tmp_path, compressed):
    content = npz(compressed, **TWENTY)
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        info = made.getinfo("a03.npy")
    path = tmp_path / "x.npz"
    path.write_bytes(flipped(content, info.header_offset + 30 + 7 + 20 + info.compress_size - 2000))
    with pparse.view(path) as model:
        with pytest.raises((pparse.DamagedTensorError, pparse.TruncatedTensorError)):
            model["a03"].numpy()
        assert same(model["a04"], TWENTY["a04"])
        model.resolve_all()
        assert {name: tensor.status for name, tensor in model.items() if not tensor.is_complete} == {
            "a03": Status.DAMAGED
        }
        assert model["a03"].verified is not True
    assert run("check", path).code == 4


def test_a_large_array_is_compared_before_it_is_converted(tmp_path):
    path, out = tmp_path / "x.npz", tmp_path / "y.npz"
    content = npz(a=np.zeros(5 << 20, "u1"), b=np.ones(3))
    path.write_bytes(flipped(content, 3 << 20))
    with pparse.view(path) as model:
        assert model["a"].status is Status.COMPLETE  # 5 MiB are not read for that
        model.resolve_all()
        assert (model["a"].status, model["a"].verified) == (Status.DAMAGED, False)
    with pytest.raises(pparse.NotWholeError):
        pparse.convert(path, out)


@rows("compressed", [False, True])
def test_nothing_damaged_is_vouched_for(compressed):
    content = npz(compressed, **ARRAYS)
    rng = random.Random(sweep.offset)
    for number in range(sweep.scaled(60, 2)):
        damaged = bytearray(content)
        at = rng.randrange(len(content))
        damaged[at : at + rng.choice((1, 1, 16))] = rng.randbytes(rng.choice((1, 1, 16)))
        del damaged[len(content) - (rng.randrange(len(content)) if number % 4 == 0 else 0) :]
        try:
            with pparse.view(bytes(damaged), format="npz") as model:
                model.resolve_all()
                for tensor in model.values():
                    if tensor.is_complete and tensor.verified:
                        wanted = ARRAYS.get(tensor.name.partition("#")[0])  # no checksum covers a name
                        assert wanted is None or same(tensor, wanted), (number, at, tensor)
                list(model.check())
        except pparse.PparseError:
            continue


@rows("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_hostile_members_are_told(method):
    header = npy(np.zeros(0))[:-1]
    claims = struct.pack("<I", 0xFFFFFFFF)
    members = [
        ("a.npy", b"\x93NUMPY\x02\x00" + claims),
        ("b.npy", header[:20]),
        ("c.npy", b""),
        ("d.npy", b"PK\x03\x04" * 30),
        ("e.npy", npy(np.arange(9))[:-8]),
        ("f.npy", npy(np.arange(9)) + b"x"),
        ("x" * 60_000 + ".npy", npy(np.arange(2))),
    ]
    with pparse.view(archive(members, method)) as model:
        found = {name[:3]: tensor.status for name, tensor in model.items()}
        assert found == {
            "a": Status.UNSUPPORTED,
            "b": Status.TRUNCATED,
            "c": Status.TRUNCATED,
            "d": Status.DAMAGED,
            "e": Status.TRUNCATED,
            "f": Status.DAMAGED,
            "xxx": Status.COMPLETE,
        }


# -- written ---------------------------------------------------------------------------------------------------------


@rows("compressed", [False, True])
def test_what_is_converted_is_what_was_read(tmp_path, compressed):
    source, target = tmp_path / f"x{compressed}.npz", tmp_path / f"y{compressed}.npz"
    source.write_bytes(npz(compressed, **ARRAYS, times=np.array(["2020"], "M8[Y]"), voids=np.zeros(2, "V3")))
    pparse.convert(source, target)
    with pparse.view(target) as model, np.load(source) as wanted, np.load(target) as written:
        assert list(model) == wanted.files == written.files
        for name in wanted.files:
            assert np.array_equal(written[name], wanted[name]), name
            assert model[name].numpy().tobytes() == written[name].tobytes(), name
            kept = wanted[name].dtype if wanted[name].dtype.names else wanted[name].dtype.newbyteorder("=")
            assert written[name].dtype == kept, name


@rows("name", list(ARRAYS))
def test_get_writes_what_numpy_reads(capsys, tmp_path_factory, name):
    from pparse.cli import main

    folder = tmp_path_factory.mktemp("get")
    source, target = folder / "x.npz", folder / "y.npy"
    source.write_bytes(npz(**ARRAYS))
    assert main(["get", str(source), name, "-o", str(target)]) == 0
    assert np.array_equal(np.load(target), ARRAYS[name])
    assert capsys.readouterr().err == ""


def test_recover_saves_every_whole_array(run, tmp_path):
    path = tmp_path / "x.npz"
    content = npz(**TWENTY, texts=np.array(["a"]))
    path.write_bytes(content[: len(content) * 6 // 10])
    ran = run("recover", path, "-o", tmp_path / "out")
    assert ran.code == 4
    with pparse.view(tmp_path / "out" / "x.safetensors") as model:
        assert all(same(model[name], TWENTY[name]) for name in list(TWENTY)[:12])
        assert len(model) == 12


@rows("compressed", [False, True])
def test_a_checksum_that_is_wrong_everywhere_damages_the_array(compressed):
    content = bytearray(npz(compressed, a=np.arange(2_000), b=np.arange(3)))
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        crc = struct.pack("<I", made.getinfo("a.npy").CRC)
    assert content.count(crc) == 2
    with pparse.view(bytes(content).replace(crc, b"\1\2\3\4")) as model:
        model.resolve_all()
        assert {name: tensor.status for name, tensor in model.items()} == {"a": Status.DAMAGED, "b": Status.COMPLETE}
        with pytest.raises(pparse.DamagedTensorError, match="CRC"):
            model["a"].numpy()


def test_what_precedes_the_archive_is_an_error_since_numpy_refuses_it(run, tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"more" + npz(a=np.arange(3)))
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(path)
    assert run("check", path).code == 4
    assert run("recover", path, "-o", tmp_path / "out").code == 4
    with pparse.view(tmp_path / "out" / "x.safetensors") as model:
        assert model["a"].numpy().tolist() == [0, 1, 2]


def test_a_method_that_there_is_not_is_an_error_though_the_local_header_has_the_right_one(run, tmp_path):
    content = bytearray(npz(a=np.arange(3), b=np.arange(9)))
    content[content.index(b"PK\1\2") + 11] ^= 0x80
    with zipfile.ZipFile(io.BytesIO(content)) as archive, pytest.raises(NotImplementedError):
        archive.read("a.npy")
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    assert [run(*words, path).code for words in (("ls",), ("check",), ("recover", "-o", tmp_path / "out"))] == [4, 4, 4]
