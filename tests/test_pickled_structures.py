"""Structures, times, masked arrays and subclasses of numpy in pickles and joblib's files: what numpy makes of them."""

from __future__ import annotations

import io
import json
import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.lib.recfunctions import repack_fields

import pparse
from pparse.cli import main
from pparse.findings import Status
from tests.rows import rows

if TYPE_CHECKING:
    from pparse.tensors.viewer import Viewer

RNG = np.random.default_rng(0)


def filled(dtype: Any, shape: tuple[int, ...] = (5,)) -> np.ndarray:
    """Return an array with any bytes; those that no field has are zeros."""
    array = np.zeros(shape, dtype)
    for index in np.ndindex(shape):
        for name in array.dtype.names or ():
            field = array.dtype.fields[name][0]  # type: ignore[index]
            content = RNG.integers(0, 100, field.itemsize, "u1").tobytes()
            array[name][index] = np.frombuffer(content, field.base).reshape(field.shape)[()]
    return array


STRUCTURES: dict[str, Any] = {
    "plain": [("a", "<i4"), ("b", "<f8")],
    "big": [("a", ">i4"), ("b", ">f8"), ("c", "<u2")],
    "nested": [("p", [("x", "<f4"), ("q", [("y", ">i2"), ("z", "u1")])]), ("s", "S3")],
    "arrays": [("m", "<f4", (2, 3)), ("n", [("k", "<i2", (2,)), ("l", "u1")], (3,))],
    "titles": {"names": ["a", "b"], "formats": ["<i4", "<f8"], "titles": ["Alpha", "Beta"]},
    "gaps": {"names": ["a", "b"], "formats": ["<i2", "<i4"], "offsets": [1, 8], "itemsize": 15},
    "times": [("at", "<M8[25s]"), ("took", ">m8[ns]"), ("any", "<m8")],
    "words": [("with space", "<U3"), ("ü", "S2"), ("v", "V3"), ("c", "<c8"), ("g", "g"), ("t", "?")],
}


pytestmark = pytest.mark.filterwarnings("ignore:The chararray class:DeprecationWarning")


def chararray(texts: list[str]) -> Any:
    """Return an array of a class that numpy is about to remove: files hold it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return np.array(texts).view(np.char.chararray)


ARRAYS: dict[str, np.ndarray] = {
    **{name: filled(dtype) for name, dtype in STRUCTURES.items()},
    "aligned": filled(np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True), (2, 3)),
    "fortran": np.asfortranarray(filled(STRUCTURES["plain"], (3, 4))),
    "none": filled(STRUCTURES["plain"], (0, 2)),
    "one": filled(STRUCTURES["plain"], ()),
    "void": np.frombuffer(RNG.bytes(15), "V5"),
    "moments": np.array(["2026-01-01", "NaT"], "M8[D]"),
    "record": np.rec.array([(1, 2.5), (3, 4.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
    "texts": chararray(["a", "bc"]),
}
MASKED: dict[str, Any] = {
    "some": np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=9),
    "unmasked": np.ma.array(np.arange(4, dtype=">i2")),
    "columns": np.ma.array(np.asfortranarray(np.arange(6).reshape(2, 3)), mask=np.eye(2, 3, dtype=bool), order="F"),
    "fields": np.ma.array(filled(STRUCTURES["nested"], (2,)), mask=[((True, (False, True)), False)] * 2),
    "aligned": np.ma.array(ARRAYS["aligned"][0], mask=[(0, 1, 1)] * 3),
    "listed": np.ma.array(filled(STRUCTURES["arrays"], (1,))),
}


def kept(array: Any) -> tuple[Any, ...]:
    """Return what must be equal of an array; numbers come in the byte order of the machine."""
    plain = np.asarray(array)
    if plain.dtype.names is None:
        plain = plain.astype(plain.dtype.newbyteorder("="))
        return plain.dtype, plain.shape, plain.tobytes()
    # What lies between fields is not copied by numpy, and so is anything.
    return plain.dtype, plain.shape, repack_fields(plain, recurse=True).tobytes()


def by_pickle(value: object, protocol: int) -> tuple[bytes, Any]:
    content = pickle.dumps(value, protocol)
    return content, pickle.loads(content)


def by_joblib(value: object, protocol: int) -> tuple[bytes, Any]:
    out = io.BytesIO()
    joblib = pytest.importorskip("joblib")
    joblib.dump(value, out, protocol=protocol)
    return out.getvalue(), joblib.load(io.BytesIO(out.getvalue()))


WRITERS = [*((by_pickle, protocol) for protocol in range(6)), *((by_joblib, protocol) for protocol in (2, 4, 5))]


@rows(("write", "protocol"), WRITERS)
def test_arrays_of_any_type_are_those_that_were_saved(write, protocol):
    content, loaded = write(ARRAYS, protocol)
    with pparse.view(content) as model:
        assert list(model) == list(ARRAYS)
        for name, array in loaded.items():
            assert kept(model[name].numpy()) == kept(array), name
            assert model[name].status is Status.COMPLETE
        assert kept(model["plain"][1:4:2]) == kept(loaded["plain"][1:4:2])
        assert not list(model.check())


@rows(("write", "protocol"), WRITERS)
def test_masked_arrays_have_their_elements_and_their_mask(write, protocol):
    content, loaded = write(MASKED, protocol)
    with pparse.view(content) as model:
        for name, array in loaded.items():
            assert kept(model[name].numpy()) == kept(np.ma.getdata(array)), name
            assert kept(model[f"{name}.mask"].numpy()) == kept(np.ma.getmaskarray(array)), name
        assert model["some.fill_value"].numpy() == 9
        assert "unmasked.fill_value" not in model
        tree = model.tree()
        assert {name: list(one) for name, one in tree.items()} == {name: ["elements", "mask"] for name in MASKED}
        assert tree["some"]["mask"].numpy().tolist() == [False, True, False]


@rows("protocol", [0, 2, 4])
def test_large_masked_arrays_are_not_read_to_be_listed(protocol):
    array = np.ma.array(RNG.standard_normal(200_000), mask=RNG.random(200_000) < 0.5)
    with pparse.view(pickle.dumps({"big": array}, protocol)) as model:
        assert list(model) == ["big", "big.mask"]
        if protocol == 4:
            assert model.extraction.session.stats.bytes < 2_200_000  # scanned, and not read again
        assert kept(model["big"].numpy()) == kept(np.ma.getdata(array))
        assert kept(model["big.mask"].numpy()) == kept(np.ma.getmaskarray(array))


OVERLAPPING = np.zeros(2, np.dtype({"names": ["all", "low"], "formats": ["<i4", "u1"], "offsets": [0, 0]}))


def test_why_a_structure_cannot_be_read_is_told_everywhere(tmp_path, capsys):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"fine": np.arange(3), "odd": OVERLAPPING}))
    for command in ("ls", "info", "check"):
        assert main([command, str(path)]) == 4
        shown = capsys.readouterr().out
        assert shown.count("odd: in its structure, fields overlap") == 1, command
        assert "not whole" not in shown
    out = tmp_path / "y.safetensors"
    assert main(["convert", str(path), "-o", str(out), "--skip-unsupported"]) == 0
    assert list(pparse.view(out)) == ["fine"]


def changed_state(**parts: Any) -> Viewer:
    """Return the view of a pickle of an array of a structure with other parts in the state of its type."""

    class Type:
        def __init__(self, dtype: Any) -> None:
            self.dtype = dtype

        def __reduce__(self) -> Any:
            call, args, state = self.dtype.__reduce__()
            numbers = {"names": 3, "fields": 4, "size": 5}
            state = list(state)
            for name, value in parts.items():
                state[numbers[name]] = value(state[numbers[name]]) if callable(value) else value
            return call, args, tuple(state)

    class Saved:
        def __reduce__(self) -> Any:
            call, args, state = ARRAYS["plain"].__reduce__()
            return call, args, (*state[:2], Type(state[2]), *state[3:])

    return pparse.view(pickle.dumps({"x": Saved()}, 4))


@rows(
    ("parts", "words"),
    [
        ({}, None),
        ({"size": 13}, "contradict each other"),
        ({"size": -1}, "the size is none"),
        ({"size": "12"}, "the size is none"),
        ({"names": ("a", "b", "c")}, "'c' is not described"),
        ({"names": (5,)}, "5 is not described"),
        ({"names": ("b", "a")}, "overlap, or are not in the order"),
        ({"fields": lambda found: {**found, "b": (found["b"][0], 9)}}, "larger than its 12 bytes"),
        ({"fields": lambda found: {**found, "b": (found["b"][0], -4)}}, "overlap"),
        ({"fields": lambda found: {**found, "b": ("f8", 4)}}, "'b' has no type"),
        ({"fields": lambda found: {**found, "a": (np.dtype("O"), 0)}}, "Python objects"),
        ({"fields": None}, "'a' is not described"),
        ({"fields": lambda found: {**found, "a": (np.dtype(("<i4", (1 << 13, 1 << 13))), 0)}}, "larger than its 12"),
    ],
)
def test_structures_that_contradict_themselves_are_refused(parts, words):
    with changed_state(**parts) as model:
        tensor = model["x"]
        if words is None:
            assert kept(tensor.numpy()) == kept(ARRAYS["plain"])
            return
        assert tensor.status is Status.UNSUPPORTED
        assert words in tensor.finding.reason
        with pytest.raises(pparse.UnsupportedError):
            tensor.numpy()


def test_a_type_that_names_itself_often_is_not_gone_through_to_its_end():
    """Each of 28 structures has the one before it twice."""
    dtype = b"cnumpy\ndtype\n(X\2\0\0\0i1\x89\x88tR(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbq\x000"
    made = b"\x80\x02" + dtype
    size = 1
    for number in range(1, 29):
        size, inner = 2 * size, size
        word = f"V{size}".encode()
        field = b"h%c" % (number - 1)
        made += b"cnumpy\ndtype\n(X" + len(word).to_bytes(4, "little") + word + b"\x89\x88tR(K\3X\1\0\0\0|N"
        made += b"X\1\0\0\0aX\1\0\0\0b\x86}(X\1\0\0\0a" + field + b"K\0\x86X\1\0\0\0b" + field
        made += b"J" + inner.to_bytes(4, "little") + b"\x86uJ" + size.to_bytes(4, "little") + b"K\1K\x10tbq%c0" % number
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR(K\1K\0\x85h\x1c\x89C\0tb"
    with pparse.view(made + array + b".") as model:
        (tensor,) = model.values()
        assert tensor.status is Status.UNSUPPORTED
        assert "more than 10,000 fields" in tensor.finding.reason


@rows("size", [10, 300_000])
def test_an_array_that_numpy_refuses_is_damaged_and_named(size: int) -> None:
    content = b"B" + size.to_bytes(4, "little") + bytes(size)
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR(K\1K\1K\1K\1K\1" + content + b"tb"
    with pparse.view(b"\x80\x03}(U\1a" + array + b"U\1bK\1u.", format="pickle") as model:
        assert [(tensor.name, tensor.status, tensor.finding.code) for tensor in model.values()] == [
            ("a", Status.DAMAGED, "bad-array")
        ]
        assert dict(model.metadata) == {"b": 1}


def _create_array(*args: Any) -> None:
    """Stand for dill's function, by name only: nothing calls it."""


class Dill(pickle.Pickler):
    """Pickles arrays as dill does (dill/_dill.py, ``save_numpy_array``)."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return NotImplemented
        maker, args, state = value.__reduce__()
        return _create_array, (maker, args, state, {"note": 1}) if value.size % 2 else (maker, args, state)


@rows("protocol", [0, 2, 5])
def test_arrays_of_dill_are_those_of_pickle(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_create_array, "__module__", "dill._dill")
    for name in ("dill", "dill._dill"):
        monkeypatch.setitem(sys.modules, name, sys.modules[__name__])
    shared = np.arange(3.0)
    value: dict[str, Any] = {
        "w": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "below": [shared, shared],
        "large": np.arange(50_001),
        "objects": np.array([np.arange(40_000), "x"], dtype=object),
        "dates": np.array(["2026-05-01"], "M8[D]"),
        "function": len,
    }
    out, plain = io.BytesIO(), pickle.dumps(value, protocol)
    Dill(out, protocol).dump(value)
    with pparse.view(out.getvalue()) as found, pparse.view(plain) as wanted:
        assert list(found) == list(wanted)
        assert [tensor.numpy().tolist() for tensor in found.values()] == [t.numpy().tolist() for t in wanted.values()]
        assert [tensor.status for tensor in found.values()] == [Status.COMPLETE] * 6
        assert found["large"][-1:].tolist() == [50_000]
        assert found.metadata == wanted.metadata


@rows("size", [12, 50_000])
def test_bytes_that_stand_as_a_text_are_damaged_with_it(size: int, run: Any, tmp_path: Any) -> None:
    """Of protocol 0 numpy's bytes are a text with escapes: who reads them all knows, and from then on all do."""
    content = pickle.dumps({"a": np.arange(size, dtype="f8")}, 0)
    at = content.index(b"\\u0000\\u0000")
    path = tmp_path / "a.pkl"
    path.write_bytes(content[: at + 2] + b"z" + content[at + 3 :])
    assert run("check", path).code == run("recover", path, "-o", tmp_path / str(size)).code == 4
    with pparse.view(path) as viewer:
        with pytest.raises(pparse.PparseError):
            viewer["a"].numpy()
        assert viewer["a"].status is Status.DAMAGED


def test_scalars_are_what_get_and_info_say_they_are(run: Any, tmp_path: Any) -> None:
    path = tmp_path / "m.pkl"
    held = {"f": np.float64(2.5), "i": np.int16(-7), "b": np.bool_(True), "t": np.str_("hi"), "v": np.void(b"ab")}
    path.write_bytes(pickle.dumps(held | {"l": [np.float32(1.5)] * 2, "d": np.datetime64("2020-01-02")}))
    told = json.loads(run("get", path, "--json", "--bare").out)
    assert told == {"f": 2.5, "i": -7, "b": True, "t": "hi", "v": "b'ab'", "l": [1.5, 1.5], "d": "2020-01-02"}
    for name in ("f", "i", "b", "t", "d"):
        assert f"{name} = {told[name]}" in run("info", path).out, name
        assert json.loads(run("get", path, name).out) == told[name]
    assert run("get", path, "l[1]").out == "1.5\n"
