"""Files of joblib against joblib itself: the committed ones, and new ones of random arrays."""

from __future__ import annotations

import importlib
import io
import os
import random

import numpy as np
import pytest

import pparse
from pparse.findings import Status
from tests.joblib_samples import EXPECTED, FOLDER, row, rows


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


joblib = library("joblib")

TYPES = ("?", "i1", "<i2", ">i4", "<u8", "f2", ">f4", "<f8", "c8", ">c16", "<U3", ">U2", "S5", "M8[ms]", "m8[D]")
CODECS = (0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3))


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if "vendored" not in name and "two" not in name))
def test_joblib_reads_what_is_expected(name):
    from tests.interop.make_joblib_samples import arrays

    if name in ("model.joblib", "arrays.joblib.lz4"):
        library("sklearn" if name == "model.joblib" else "lz4")
    found = {key: row(array) for key, array in arrays(joblib.load(FOLDER / name))}
    assert found == EXPECTED[name]


def some_array(chance: random.Random) -> np.ndarray:
    """Return an array of any type, shape and order."""
    dtype = np.dtype(chance.choice(TYPES))
    shape = tuple(chance.choice((0, 1, 2, 3, 5)) for _ in range(chance.randrange(4)))
    if chance.random() < 0.1:
        shape = (chance.randrange(40_000, 80_000),)
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "U":
        made = np.array([chance.choice("aé漢") * dtype.itemsize for _ in range(count)], dtype)
    elif dtype.kind == "?":
        made = np.array([chance.random() < 0.5 for _ in range(count)], dtype)
    else:
        made = np.frombuffer(chance.randbytes(count * dtype.itemsize), dtype)
    made = made.reshape(shape)
    return np.asfortranarray(made) if chance.random() < 0.5 else made[::-1] if made.ndim else made


def some_value(chance: random.Random, depth: int = 0):
    """Return dicts and lists of arrays, some of them shared."""
    if depth > 2 or chance.random() < 0.4:
        return some_array(chance)
    parts = [some_value(chance, depth + 1) for _ in range(chance.randrange(1, 5))]
    parts += [chance.choice([None, 1, "text", 2.5, parts[0]])]
    if chance.random() < 0.2:
        made = np.empty(len(parts), dtype=object)
        for number, part in enumerate(parts):
            made[number] = part
        return made if chance.random() < 0.7 else tuple(parts)
    return dict(zip("abcdefgh", parts, strict=False)) if chance.random() < 0.5 else parts


@pytest.mark.parametrize("seed", range(60))
def test_random_files_are_read_as_joblib_reads_them(seed, tmp_path):
    from tests.interop.make_joblib_samples import arrays

    chance = random.Random(seed)
    path = tmp_path / "a.joblib"
    joblib.dump([some_value(chance), "end"], path, compress=chance.choice(CODECS), protocol=chance.randrange(6))
    wanted = {name: row(array) for name, array in arrays(joblib.load(path))}
    with pparse.view(path) as viewer:
        assert rows(viewer) == wanted
        assert all(tensor.status is Status.COMPLETE for tensor in viewer.tensors())
        assert not list(viewer.extraction.check())


def test_estimators_have_their_arrays(tmp_path):
    ensemble = library("sklearn.ensemble")
    data = np.random.default_rng(0).standard_normal((200, 4))
    forest = ensemble.RandomForestClassifier(20, random_state=0).fit(data, np.arange(200) % 3)
    joblib.dump(forest, tmp_path / "forest.joblib")
    with pparse.view(tmp_path / "forest.joblib") as viewer:
        for number, tree in enumerate(forest.estimators_):
            assert np.array_equal(viewer[f"estimators_.{number}.tree_.values"].numpy(), tree.tree_.value)
            nodes = viewer[f"estimators_.{number}.tree_.nodes"]
            assert nodes.numpy().dtype == tree.tree_.__getstate__()["nodes"].dtype
            assert nodes.numpy().tobytes() == tree.tree_.__getstate__()["nodes"].tobytes()


def test_a_file_on_a_file_object_behind_other_bytes():
    out = io.BytesIO()
    out.write(b"head!")
    joblib.dump([np.arange(5), np.arange(3.0)], out)
    with pparse.open(out.getvalue()[5:]) as document:
        assert [tensor.numpy().tolist() for tensor in document.view().tensors()] == [[0, 1, 2, 3, 4], [0, 1, 2]]
        assert not list(document.check())
