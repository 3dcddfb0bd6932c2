"""Casts of floating numbers, against a table of all numbers of the target: the nearest, ties to even."""

from __future__ import annotations

import os
import struct

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.conversion.forms import CASTS, cast_target
from pparse.errors import OptionError
from pparse.tensors import DTYPES
from pparse.tensors.dtype import cast
from tests.rows import rows
from tests.test_convert import bytes_of

# The oracle overflows on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SMALL = [name for name in CASTS if name not in ("float64", "float32")]


def all_numbers(name: str) -> np.ndarray:
    """Return all finite numbers of a type that are not negative, in order, as float64."""
    dtype = DTYPES[name]
    codes = np.arange(1 << (dtype.bits - 1), dtype=np.uint16 if dtype.bits == 16 else np.uint8)
    values = codes.view(dtype.numpy).astype(np.float64)
    return values[np.isfinite(values)]


def nearest(values: np.ndarray, name: str) -> np.ndarray:
    """Return what the finite ``values`` become, as float64: found in the table, with nothing rounded on the way."""
    table = all_numbers(name)
    step = table[-1] - table[-2]
    sizes = np.abs(values)
    above = np.minimum(np.searchsorted(table, sizes), len(table) - 1)
    below = np.maximum(above - 1, 0)
    far, near = table[above] - sizes, sizes - table[below]  # exact: neighbours in float64, or one of them is 0
    tie = np.where(below % 2 == 0, below, above)
    place = np.where(far < near, above, np.where(near < far, below, tie))
    place = np.where(table[above] == sizes, above, place)
    found = table[place]
    limit = table[-1] + step / 2
    lost = (sizes > limit) | ((sizes == limit) & (len(table) % 2 == 0))  # the last number is odd, so a tie goes up
    return np.copysign(np.where(lost, np.inf, found), values)


def samples(name: str) -> np.ndarray:
    """Return float64 numbers near all that matter for a type: its numbers, their middles, and just beside these."""
    table = all_numbers(name)
    middles = (table[1:] + table[:-1]) / 2
    limit = table[-1] + (table[-1] - table[-2]) / 2
    exact = np.concatenate([table, middles, [limit, limit * 2, 1e300, 5e-324, 1e-45, 2e-46]])
    beside = np.concatenate([np.nextafter(exact, np.inf), np.nextafter(exact, 0), exact * (1 + 2**-40)])
    found = np.concatenate([exact, beside])
    return np.concatenate([found, -found])


@rows("name", SMALL)
def test_from_float64_numbers_are_rounded_once(name):
    values = samples(name)
    found, lost = cast(values, DTYPES[name])
    expected = nearest(values, name)
    got = found.astype(np.float64)
    gone = np.isinf(expected)
    assert not np.isfinite(got[gone]).any()
    assert lost == np.count_nonzero(gone)
    assert np.array_equal(got[~gone], expected[~gone])
    if name not in ("float8_e4m3fnuz", "float8_e5m2fnuz"):  # which have no negative zero
        assert np.array_equal(np.signbit(got[~gone]), np.signbit(expected[~gone]))


@rows("name", SMALL)
def test_from_float32_too(name):
    values = samples(name).astype(np.float32)
    values = values[np.isfinite(values)]
    found, _ = cast(values, DTYPES[name])
    expected = nearest(values.astype(np.float64), name)
    assert np.array_equal(found.astype(np.float64)[np.isfinite(expected)], expected[np.isfinite(expected)])


def test_every_small_number_is_kept_in_a_type_that_has_it():
    for source in (*SMALL, "float8_e3m4", "float4_e2m1fn", "float6_e2m3fn", "float8_e8m0fnu"):
        dtype = DTYPES[source]
        codes = np.arange(1 << dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8)
        values = codes.view(dtype.numpy)
        for target in ("float32", "float64"):
            found, lost = cast(values, DTYPES[target])
            assert lost == 0
            assert np.array_equal(found.astype(np.float64), values.astype(np.float64), equal_nan=True), (source, target)


def test_infinite_numbers_and_nan_are_no_overflow():
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 65519.9, 65520.0, -1e30, 1e-300])
    found, lost = cast(values, DTYPES["float16"])
    assert lost == 2
    assert found.tolist()[:2] == [np.inf, -np.inf]
    assert np.isnan(found[2])
    assert np.signbit(found[3])
    assert found.tolist()[4:] == [65504.0, np.inf, -np.inf, 0.0]


@rows("name", ["q8_0", "Q8_0", "bf16", "BFloat16", "FLOAT8_E4M3FN"])
def test_targets_are_known_in_any_case(name):
    wanted = {"q8_0": "Q8_0", "bf16": "bfloat16"}.get(name.lower(), name.lower())
    assert cast_target(name).name == wanted


@rows("name", ["int8", "float8_e8m0fnu", "float4_e2m1fn", "complex64", "nothing", ""])
def test_other_targets_are_refused(name):
    with pytest.raises(OptionError, match=r"can be cast to .*, and for GGUF to Q8_0, not to"):
        cast_target(name)


@rows(("form", "held"), [("gguf", "bfloat16, Q8_0"), ("npz", "float8_e5m2fnuz"), ("safetensors", "float8_e5m2fnuz")])
def test_the_types_of_the_target_are_named(form, held):
    with pytest.raises(OptionError, match=rf"tensors of a \.{form} can be cast to float64, .*{held}, not to 'int8'"):
        cast_target("int8", form)


@rows("suffix", [".safetensors", ".npz"])
def test_only_floating_tensors_are_cast(tmp_path, model, suffix):
    target = tmp_path / f"{len(os.listdir(tmp_path))}{suffix}"
    values = np.array([1.0, 2.5, 1e39, -1e39], np.float64)
    source = model(
        {
            "double": ("F64", (2, 2), values.tobytes()),
            "half": ("F16", (), np.float16(0.1).tobytes()),
            "none": ("F32", (0, 3), b""),
            "whole": ("I64", (2,), struct.pack("<2q", 1 << 60, -1)),
            "complex": ("C64", (1,), bytes(8)),
            "flag": ("BOOL", (1,), b"\1"),
            "packed": ("F4", (2, 8), bytes(range(8))),
        }
    )
    report = pparse.convert(source, target, dtype="float32")
    assert report.overflowed == {"double": 2}
    assert any(
        "2 numbers in 1 tensor are too large for float32, and written as infinity" in note for note in report.notes
    )
    packed = np.array([code for byte in range(8) for code in (byte & 15, byte >> 4)], np.uint8)
    expected = {
        "double": values.astype(np.float32).reshape(2, 2),
        "half": np.array(np.float32(np.float16(0.1))),
        "none": np.zeros((0, 3), np.float32),
        "whole": np.array([1 << 60, -1]),
        "complex": np.zeros(1, np.complex64),
        "flag": np.array([True]),
        "packed": packed.view(ml_dtypes.float4_e2m1fn).astype(np.float32).reshape(2, 8),
    }
    if suffix == ".npz":
        with np.load(target) as arrays:
            found = {name: (str(arrays[name].dtype), arrays[name].tolist()) for name in arrays}
        assert found == {name: (str(array.dtype), array.tolist()) for name, array in expected.items()}
        return
    rows_of = bytes_of(target)
    assert {name: (shape, content) for name, (_, shape, content) in rows_of.items()} == {
        name: (list(array.shape), array.tobytes()) for name, array in expected.items()
    }
    assert {rows_of[name][0] for name in ("double", "half", "none", "packed")} == {"F32"}
