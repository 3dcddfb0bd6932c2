"""Arrays in .npy files, compared with numpy; headers of every kind; what is cut, odd or hostile."""

from __future__ import annotations

import io
import pickle
import time
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.findings import Severity, Status
from pparse.kernels.python_literal import MAX_DEPTH, read_literal
from pparse.tensors import DType
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.numpy_files import npy, with_header
from tests.numpy_zoo import arrays
from tests.rows import rows

PLAIN = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }"
SIX = np.arange(6, dtype="<i4").reshape(2, 3)


def only(content: bytes, **options):
    """Return the array of an .npy file as a tensor."""
    (tensor,) = pparse.view(content, **options).tensors()
    return tensor


def elements_of(content: bytes, array: np.ndarray) -> bytes:
    """Return the elements in C order as the file has them, bytes between fields included."""
    order = "F" if b"'fortran_order': True" in content else "C"
    offset = len(content) - array.nbytes
    raw = np.ndarray(array.shape, f"V{array.itemsize}", content, offset, order=order)
    return raw.tobytes()


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_every_array_that_numpy_writes_is_read_as_numpy_reads_it():
    for name, array in sweep.some(list(arrays()), 4):
        content = npy(array)
        tensor, wanted = only(content), np.load(io.BytesIO(content))
        got = tensor.numpy()
        native = wanted.dtype if wanted.dtype.names else wanted.dtype.newbyteorder("=")
        assert (got.shape, got.dtype, tensor.status) == (wanted.shape, native, Status.COMPLETE), name
        if wanted.dtype.names:
            assert got.tobytes() == elements_of(content, wanted), name
        else:
            assert got.tobytes() == wanted.astype(native).tobytes(), name
        assert b"".join(block.tobytes() for block in tensor.blocks(1024)) == got.tobytes(), name
        raw = got.view(f"V{got.itemsize}")
        if got.ndim:
            index = (slice(None, None, -1), ..., *[slice(1)] * (got.ndim > 1))
            assert np.asarray(tensor[index]).tobytes() == raw[index].tobytes(), name


def test_a_structure_is_named_by_its_description_and_made_from_that():
    dtype = np.dtype([("a", "<i4"), (("title", "b"), ">f8", (2,)), ("c", [("x", "|S3")])])
    tensor = only(npy(np.zeros(2, dtype)))
    assert str(tensor.dtype) == "[('a', '<i4'), (('title', 'b'), '>f8', (2,)), ('c', [('x', '|S3')])]"
    assert (tensor.dtype.kind, tensor.dtype.bits, tensor.itemsize) == ("other", 8 * dtype.itemsize, dtype.itemsize)
    again = DType.of(tensor.dtype.name)
    assert (again, again.numpy) == (tensor.dtype, dtype)
    assert pickle.loads(pickle.dumps(tensor.dtype)).numpy == dtype


@rows(
    "name, shown",
    [
        ("bfloat16", "bfloat16"),
        ("float8_e5m2", "float8_e5m2"),
        ("float8_e4m3fn", "|V1"),
        ("int4", "|V1"),
        ("uint2", "|V1"),
    ],
)
def test_types_of_ml_dtypes_are_read_if_only_one_is_described_so_else_bytes_or_what_the_option_says(name, shown):
    array = np.array([1, 0, 1]).astype(getattr(ml_dtypes, name))
    archive = io.BytesIO()
    np.savez(archive, x=array)
    for content in (npy(array), archive.getvalue()):
        tensor = only(content)
        assert (str(tensor.dtype), tensor.numpy().view(array.dtype).tolist()) == (shown, [1, 0, 1])
        with pparse.view(content, options={"dtype": name}) as named:
            (tensor,) = named.values()
            assert (str(tensor.dtype), tensor.numpy().tolist()) == (name, [1, 0, 1])
            assert not list(named.extraction.check())
        with pparse.open(content) as document:
            assert [found.code for found in document.check()] == ["unnamed-type"] * (shown == "|V1")


def test_numpys_own_bytes_are_a_type_of_ml_dtypes_only_if_the_option_says_so():
    content = npy(np.ones(3, ml_dtypes.bfloat16).view("V2"))
    assert str(only(content).dtype) == "|V2"
    with pparse.view(content, options={"dtype": "bfloat16"}) as named:
        assert named["array"].numpy().tolist() == [1, 1, 1]
    with pparse.view(content, options={"dtype": "int4"}) as other:
        assert str(other["array"].dtype) == "|V2"
    with pytest.raises(pparse.OptionError):
        pparse.view(content, options={"dtype": "int3"})


def test_fortran_order_is_told_by_strides_and_slices_read_their_bytes():
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    tensor = only(npy(array))
    assert (tensor.strides, tensor[1:, 2].tolist()) == ((8, 24), [6.0, 10.0])


@rows(
    "text, version",
    [
        (PLAIN, (1, 0)),
        (PLAIN, (2, 0)),
        (PLAIN, (3, 0)),
        ("{'shape': (2, 3), 'fortran_order': False, 'descr': '<i4'}", (1, 0)),
        ("  {'descr':'<i4','fortran_order':False,'shape':(2,3)}", (1, 0)),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 3L), }", (1, 0)),
        ('{"descr": u"<i4", "fortran_order": False, "shape": (2, 3,), }', (1, 0)),
        ("{'descr': '\\x3ci4', 'fortran_order': False, 'shape': ((2), 3)}", (1, 0)),
        ("{'descr': 'int32', 'fortran_order': False, 'shape': (2, 3), }", (1, 0)),
    ],
)
def test_headers_that_numpy_reads(text, version):
    content = with_header(text, SIX.tobytes(), version)
    assert only(content).numpy().tolist() == SIX.tolist()
    if "L" not in text:  # numpy warns of those
        assert np.load(io.BytesIO(content)).tolist() == SIX.tolist()


# -- the file --------------------------------------------------------------------------------------------------------


@rows(
    "file, name",
    [("weight.npy", "weight"), ("a.b.NPY", "a.b"), ("x.npy.part", "x"), ("bare", "bare"), (".npy", "array")],
)
def test_the_array_is_called_as_the_file(tmp_path, file, name):
    path = tmp_path / file
    path.write_bytes(npy(SIX))
    with pparse.view(path) as model:
        assert list(model) == [name]
        assert model[name].numpy().tolist() == SIX.tolist()


def test_get_needs_no_name(run, tmp_path):
    path = tmp_path / "six.npy"
    path.write_bytes(npy(SIX))
    assert run("get", path).lines[0] == "six  int32  2×3  24 B  complete, unverified"
    assert run("get", path, "--json").json["data"] == SIX.tolist()
    assert run("get", path, "six[1]", "--json").json["data"] == [3, 4, 5]
    assert run("get", path, "shape", "--json").json["value"] == [2, 3]
    assert run("ls", path, "--json").json["tensors"][0]["name"] == "six"


@rows(
    "array, wanted",
    [
        (np.array([["a", "bc"], ["é", ""]]), [["a", "bc"], ["é", ""]]),
        (np.array([b"ab", b"\xff"]), ["ab", {"hex": "ff"}]),
        (np.array(["2020-01-02", "NaT"], "M8[D]"), ["2020-01-02", "NaT"]),
        (np.array([5, -1], "m8[s]"), [5, -1]),
        (np.array([(1, [0.5, 2])], [("x", ">i2"), ("y", "<f4", (2,))]), {"x": [1], "y": [[0.5, 2.0]]}),
        (np.zeros(2, "V2"), [{"hex": "0000"}] * 2),
        (np.array([1 + 2j], "c16"), [[1.0, 2.0]]),
        (np.array("one"), "one"),
    ],
)
def test_what_is_no_number_is_json_too(capsys, tmp_path, array, wanted):
    from pparse.cli import main

    path = tmp_path / "x.npy"
    path.write_bytes(npy(array))
    assert main(["get", str(path), "--json"]) == 0
    assert pparse.open(capsys.readouterr().out.encode(), format="json").root.to_python()["data"] == wanted


@rows("form", [None, "--json"])
def test_characters_that_unicode_lacks_are_refused(capsys, tmp_path_factory, form):
    from pparse.cli import main

    path = tmp_path_factory.mktemp("texts") / "x.npy"
    for descr in ("'<U2'", "[('a', '<U2')]"):
        text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}"
        path.write_bytes(with_header(text, b"\xff" * 8))
        assert main(["get", str(path), *([form] if form else [])]) == 4
        assert "characters that Unicode does not" in capsys.readouterr().err
        assert main(["get", str(path), "-o", str(path.with_suffix(".out.npy"))]) == 0
        path.with_suffix(".out.npy").unlink()


@rows(
    "array, wanted",
    [
        (np.array(["ab"] * 3), ["ab", None, None]),
        (np.array(["2020"] * 3, "M8[Y]"), ["2020", None, None]),
        (np.ones(3, "V2"), [{"hex": "0100"}, None, None]),
        (np.ones(3, [("a", "<i4"), ("b", "<U1")]), {"a": [1, None, None], "b": ["1", None, None]}),
        (np.ones(3, "g"), ["1.0", None, None]),
    ],
)
def test_what_is_missing_is_null(capsys, tmp_path_factory, array, wanted):
    import json

    from pparse.cli import main

    path = tmp_path_factory.mktemp("cut") / "x.npy"
    path.write_bytes(npy(array)[: -2 * array.itemsize + 1])
    if array.dtype.kind == "V" and array.dtype.names is None:
        array[0] = np.void(b"\1\0")
        path.write_bytes(npy(array)[: -2 * array.itemsize + 1])
    assert main(["get", str(path), "--json", "--partial", "fill"]) == 4
    assert json.loads(capsys.readouterr().out)["data"] == wanted
    assert main(["get", str(path), "--npy", "--partial", "fill", "-o", str(path.with_suffix(".2.npy"))]) == 4
    capsys.readouterr()
    filled = np.load(path.with_suffix(".2.npy"))
    assert filled[1:].tobytes() == bytes(2 * array.itemsize)


def test_texts_are_no_csv(run, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(npy(np.array(["a"])))
    ran = run("get", path, "-o", tmp_path / "x.csv")
    assert (ran.code, "a .csv holds numbers" in ran.err) == (2, True)
    ran = run("get", path, "--dtype", "float32")
    assert (ran.code, "--dtype float32" in ran.err) == (2, True)


def test_python_objects_are_a_pickle_and_no_array(run, tmp_path):
    path = tmp_path / "things.npy"
    path.write_bytes(npy(np.array([1, "two", None, {"three": [4]}], object)))
    with pparse.view(path) as model:
        tensor = model["things"]
        assert (tensor.status, tensor.dtype, tensor.shape) == (Status.UNSUPPORTED, None, (4,))
        with pytest.raises(pparse.UnsupportedError, match="they are a pickle, which NAME"):
            tensor.numpy()
        assert (model.root.status, model.root.find("data").kind) == (Status.COMPLETE, "pickle")
    assert run("check", path).code == 0
    with pparse.open(f"{path}::pickle") as document:
        assert document.format == "pickle"
        assert document.root.find("state")[4].to_python() == [1, "two", None, {"three": [4]}]
    with pparse.open(path.read_bytes()[:-20]) as cut:
        assert cut.root.status is Status.TRUNCATED


def test_objects_in_a_field_are_a_pickle_too():
    tensor = only(npy(np.zeros(2, [("a", "<i4"), ("b", "O")])))
    assert (tensor.status, tensor.finding.code) == (Status.UNSUPPORTED, "objects")


@rows(
    ("more", "words", "status"),
    [
        (b"??", "other bytes follow", Status.DAMAGED),
        (npy(SIX), "another array follows", Status.COMPLETE),
        (bytes(-len(npy(np.ones(6))) % 512), "other bytes follow", Status.COMPLETE),  # a block of a disk
    ],
)
def test_what_follows_the_array_is_told_and_it_may_have_been_shifted(more, words, status):
    content = npy(np.ones(6))
    for at in (len(content), len(content) - 9) if status is Status.DAMAGED else (len(content),):
        with pparse.open(content[:at] + more + content[at:]) as document:
            finding, *others = document.check()
            assert [other.code for other in others] == (["shifted"] if status is Status.DAMAGED else [])
            severity = Severity.ERROR if status is Status.DAMAGED else Severity.WARNING
            assert (finding.code, finding.severity, finding.length) == ("trailing", severity, len(more))
            assert words in finding.reason
            assert document.view()["array"].status is status


def test_a_header_longer_than_numpy_takes_is_read_and_told():
    array = np.zeros(2, [(f"field {number}", "<f4") for number in range(600)])
    content = npy(array)
    with pytest.raises(ValueError, match="max_header_size"):
        np.load(io.BytesIO(content))
    with pparse.view(content) as model:
        assert model["array"].numpy().dtype == array.dtype
        (finding,) = model.check()
        assert (finding.code, finding.severity) == ("long-header", Severity.WARNING)


def test_a_header_above_the_limit_names_the_option():
    content = with_header(PLAIN + " " * 300_000, SIX.tobytes(), (2, 0))
    tensor = only(content)
    assert (tensor.status, "Limits(leaf_bytes=" in tensor.finding.reason) == (Status.UNSUPPORTED, True)
    lifted = only(content, limits=pparse.Limits(leaf_bytes=1 << 20))
    assert lifted.numpy().tolist() == SIX.tolist()


def test_a_slice_reads_its_bytes_only(tmp_path):
    path = tmp_path / "big.npy"
    np.lib.format.open_memmap(path, "w+", "<f4", (4096, 1024))[:] = 1
    with pparse.view(path) as model:
        assert model["big"][17, :4].tolist() == [1, 1, 1, 1]
        assert model.extraction.session.stats.bytes < 12_000


# -- cut, damaged, hostile -------------------------------------------------------------------------------------------


def test_every_cut_is_told():
    content = npy(SIX)
    for size in range(6, len(content)):
        tensor = only(content[:size])
        told = b"(2, 3)" in content[:size]
        wanted = Status.TRUNCATED if size > 128 or not told else Status.MISSING
        assert tensor.status is wanted, size
        assert not tensor.is_complete
        if size > 128:
            assert tensor.numpy(partial="prefix").tolist() == SIX[: (size - 128) // 12].tolist()


def test_the_extent_of_a_cut_array_is_known():
    with pparse.view(npy(SIX)[:-5]) as model:
        extent = model.extent()
        assert (extent.missing_bytes, extent.first_hit, extent.at_least) == (5, "array", False)


@rows(
    "text, status, words",
    [
        ("", "damaged", "ends early"),
        ("{", "damaged", "ends early"),
        ("[]", "damaged", "no dict"),
        ("{'descr': '<i4', 'shape': (2, 3)}", "damaged", "no dict of"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "damaged", "no dict of"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3)} x", "damaged", "follows"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), 'shape': (1,)}", "damaged", "twice"),
        ("{'descr': '<i4', 'fortran_order': 0, 'shape': (2, 3)}", "damaged", "fortran_order"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (3)}", "damaged", "shape"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': [2, 3]}", "damaged", "shape"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (True,)}", "damaged", "shape"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2, -3)}", "damaged", "negative"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807, 9)}", "damaged", "cannot exist"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 9)}", "damaged", "cannot exist"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (2305843009213693952,)}", "damaged", "cannot exist"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}", "damaged", "expected"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (" + "1," * 65 + ")}", "unsupported", "dimensions"),
        ("{'descr': '<q4', 'fortran_order': False, 'shape': (2,)}", "unsupported", "type"),
        ("{'descr': '<M8[eon]', 'fortran_order': False, 'shape': (2,)}", "unsupported", "unit"),
        ("{'descr': '|S0', 'fortran_order': False, 'shape': (2,)}", "unsupported", "no bytes, so any number"),
        ("{'descr': '|V99999999999', 'fortran_order': False, 'shape': (2,)}", "unsupported", "type"),
        ("{'descr': '<U999999999', 'fortran_order': False, 'shape': (2,)}", "unsupported", "larger"),
        ("{'descr': 5, 'fortran_order': False, 'shape': (2,)}", "unsupported", "neither"),
        ("{'descr': ('<i4', (2,)), 'fortran_order': False, 'shape': (2,)}", "unsupported", "neither"),
        ("{'descr': [], 'fortran_order': False, 'shape': (2,)}", "unsupported", "no bytes"),
        ("{'descr': [('a', '<i4'), ('a', '<i4')], 'fortran_order': False, 'shape': (2,)}", "unsupported", "two fields"),
        ("{'descr': [('a',)], 'fortran_order': False, 'shape': (2,)}", "unsupported", "field"),
        ("{'descr': [(5, '<i4')], 'fortran_order': False, 'shape': (2,)}", "unsupported", "name"),
        ("{'descr': [('a', '<i4', (-2,))], 'fortran_order': False, 'shape': (2,)}", "unsupported", "shape"),
        ("{'descr': [('a', '<i4', (65536, 65536))], 'fortran_order': False, 'shape': (2,)}", "unsupported", "larger"),
        ("{'descr': " + "[('a', " * 40 + "'<i4'" + ")]" * 40 + ", 'fortran_order': False}", "damaged", "deep"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (10**9,)}", "damaged", "expected"),
        ("__import__('os').abort()", "damaged", "expected"),
    ],
)
def test_odd_headers_are_told(text, status, words):
    content = with_header(text, bytes(24))
    tensor = only(content)
    assert tensor.status == status
    assert words in tensor.finding.reason
    with pytest.raises(pparse.PparseError):
        tensor.numpy()
    with pparse.open(content) as document:
        assert [finding.severity for finding in document.check()] == [Severity.ERROR]


def test_a_damaged_header_in_fortran_order_leaves_a_tensor_without_a_shape(run, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, -3), }", bytes(24)))
    with pparse.view(path) as model:
        tensor = model["x"]
        assert (tensor.status, tensor.shape, tensor.strides) == (Status.DAMAGED, (), ())
    assert run("recover", path, "-o", tmp_path / "out").code != 70


@rows("form", ["<M8", "<M8[s]", "<m8[D]", "<U3", "|S3", "|b1", ">c8"])
def test_a_cut_array_of_any_type_is_filled_up(form):
    array = np.zeros(5, form)
    with pparse.view(npy(array)[:-1], format="npy") as model:
        filled = model["array"].numpy(partial="fill")
    empty = np.array([np.iinfo("i8").min], "<i8").view(form)[0] if form == "<M8" else np.zeros(1, form)[0]
    assert filled.mask.tolist() == [False] * 4 + [True]
    assert filled.dtype == array.dtype.newbyteorder("=")
    assert str(filled.data[4]) == str(filled.fill_value) == str(empty)


def test_a_value_of_another_type_fills_nothing():
    with pparse.view(npy(np.zeros(5))[:-1], format="npy") as model, pytest.raises(ValueError, match="cannot fill"):
        model["array"].numpy(partial="fill", fill_value="none")


def test_a_later_version_is_not_guessed():
    tensor = only(b"\x93NUMPY\x04\x00" + npy(SIX)[8:])
    assert (tensor.status, "version 4.0" in tensor.finding.reason) == (Status.UNSUPPORTED, True)


def test_names_that_are_not_utf_8_are_told():
    content = with_header(b"{'descr': [('\xff', '<i4')], 'fortran_order': False, 'shape': (6,), }", bytes(24), (3, 0))
    assert (only(content).status, "not UTF-8" in only(content).finding.reason) == (Status.DAMAGED, True)


def test_a_huge_claim_allocates_nothing():
    tensor = only(with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }", bytes(64)))
    assert tensor.status is Status.TRUNCATED
    with pytest.raises(pparse.TruncatedTensorError):
        tensor.numpy()
    assert tensor.numpy(partial="prefix").tolist() == [0.0] * 8


def test_the_time_of_a_hostile_header_grows_with_its_length():
    def seconds(text: str) -> float:
        begin = time.process_time()
        only(with_header(text, b"", (2, 0)), limits=pparse.Limits(leaf_bytes=1 << 22))
        return time.process_time() - begin

    pieces = ("(", "'a',", "[('a','<i4'),", "\\\\x41", " ", "1,", "'" + "a" * 50)
    for piece in sweep.part(pieces):
        texts = ["{'descr': [" + piece * (count // len(piece)) for count in (40_000, 320_000)]
        times = [min(seconds(text), seconds(text)) for text in texts]
        assert times[1] < 40 * times[0] + 0.2, (piece, times)


def test_literals_are_those_of_python():
    import ast
    import random

    rng = random.Random(sweep.offset)
    good = "{'descr': [('a', '<f4', (2,)), (('t', 'b'), '|S3')], 'fortran_order': False, 'shape': (3, -4, ), }"
    read = 0
    for _ in range(5_000):
        text = list(good)
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(2)] = rng.choice(("", *"{}[](),:'\"\\ abu019-\n"))
        try:
            value = read_literal("".join(text))
        except pparse.MalformedError:
            continue
        read += 1
        assert value == ast.literal_eval("".join(text).strip())
    assert read > 500


def test_literals_nest_only_so_deep():
    assert read_literal("(" * MAX_DEPTH + "5" + ",)" * MAX_DEPTH)
    with pytest.raises(pparse.MalformedError, match="deep"):
        read_literal("(" * (MAX_DEPTH + 1))


def test_a_gap_in_the_header_is_damage_and_no_cut():
    data = GappyData(npy(SIX), [(40, 10)])
    tensor = only(data, format="npy")
    assert (tensor.status, tensor.finding.code, tensor.finding.offset) == (Status.DAMAGED, "gap", 40)


@rows(
    ("array", "told"),
    [
        (np.zeros((2, 3), "<f8"), ("float64 (<f8)", "2×3", "C (the last dimension runs fastest)")),
        (
            np.zeros((2, 3), ">i2", "F"),
            ("int16, big-endian (>i2)", "2×3", "Fortran (the first dimension runs fastest)"),
        ),
        (np.array(None), ("Python objects (|O)", "scalar", "C (the last dimension runs fastest)")),
    ],
)
def test_info_tells_type_shape_and_order(array, told, tmp_path, run):
    np.save(tmp_path / "x.npy", array)
    lines = [" ".join(line.split()) for line in run("info", tmp_path / "x.npy").lines]
    assert lines[3:6] == [f"dtype {told[0]}", f"shape {told[1]}", f"order {told[2]}"]


def test_a_shape_that_is_cut_off_is_not_known(tmp_path):
    """Neither a scalar nor an array without elements: `get` says what is missing, `ls` shows a question mark."""
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    content = io.BytesIO()
    np.save(content, array)
    path = tmp_path / "a.npy"
    for cut in (10, 30, content.getvalue().index(b"(3, 4)") + 5, 100, 127, 128):
        path.write_bytes(content.getvalue()[:cut])
        with pparse.view(path) as viewer:
            tensor, extent = viewer["a"], viewer.extent()
            if cut >= 100:
                assert (tensor.shape, tensor.status) == ((3, 4), Status.MISSING)
                continue
            assert tensor.status is Status.TRUNCATED
            assert not tensor.is_shape_known
            assert (tensor.size, tensor.nbytes, tensor.shape_text, extent.parameters) == (0, 0, "?", {})
            for read in (
                tensor.numpy,
                partial(tensor.numpy, partial="fill"),
                lambda one=tensor: list(one.raw_blocks()),
            ):
                with pytest.raises(pparse.TruncatedTensorError, match="ends inside its header") as caught:
                    read()
                assert caught.value.wanted is None


def test_an_array_that_went_through_a_text_mode_transfer_is_named(run, tmp_path) -> None:
    """Each line feed became two bytes, the one that ends the header, too: every element is displaced."""
    (tmp_path / "a.npy").write_bytes(npy(np.arange(1000)).replace(b"\n", b"\r\n"))
    ran = run("check", tmp_path / "a.npy")
    assert (ran.code, (ran.out + ran.err).count(": text-mode @0x7f:")) == (4, 1)
    with pparse.view(tmp_path / "a.npy") as model, pytest.raises(pparse.PparseError, match="text mode"):
        model["a"].numpy()
    # The other way round bytes are lost, but not at the end: no download is to be resumed.
    content = npy(np.random.default_rng(1).standard_normal(1 << 17))
    (tmp_path / "a.npy").write_bytes(content.replace(b"\r\n", b"\n"))
    ran = run("check", tmp_path / "a.npy")
    assert (ran.code, (ran.out + ran.err).count(": text-mode @0x80:")) == (4, 1)
    assert "resume" not in ran.out + run("info", tmp_path / "a.npy").out
    for cut in (content[:-16], content[:-1000], content.replace(b"\r\n", b"\n")[: len(content) // 2]):
        (tmp_path / "a.npy").write_bytes(cut)
        assert "resume the download" in run("info", tmp_path / "a.npy").out
