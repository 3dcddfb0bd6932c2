from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pparse.errors import UnsupportedError
from pparse.parsers.safetensors.header import STORED_DTYPES
from pparse.tensors.dtype import DTYPES, DType
from tests import sweep
from tests.rows import rows

# An older ml_dtypes than ours lacks some.
ALL = sorted(name for name in DTYPES if hasattr(ml_dtypes, name) or name in np.sctypeDict)
PACKED = [name for name in ALL if DTYPES[name].packed]
WHOLE = [name for name in ALL if not DTYPES[name].packed]


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def slow_codes(packed: bytes, bits: int, count: int) -> list[int]:
    """The codes in ``packed``, first in the lowest bits, by arithmetic on one large number."""
    number = int.from_bytes(packed, "little")
    return [number >> (bits * index) & ((1 << bits) - 1) for index in range(count)]


def pack(codes: list[int], bits: int) -> bytes:
    number = sum(code << (bits * index) for index, code in enumerate(codes))
    return number.to_bytes(-(-len(codes) * bits // 8), "little")


def float_value(code: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The value of a small float without infinities and NaN, by its definition."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    return sign * (mantissa * 2.0 ** (1 - bias) if not exponent else (1 + mantissa) * 2.0 ** (exponent - bias))


# -- what each type is -----------------------------------------------------------------------------------------------


@rows("name", ALL)
def test_type_is_numpys(name):
    dtype = DTYPES[name]
    assert dtype.name == str(dtype) == name
    assert dtype.numpy == numpy_type(name)
    assert dtype.numpy.name == name
    assert dtype.itemsize == dtype.numpy.itemsize == dtype.raw_numpy.itemsize
    assert dtype.packed is (dtype.bits < 8)
    if not dtype.packed:
        assert dtype.bits == 8 * dtype.numpy.itemsize


@rows("name", ALL)
def test_bits_and_kind_are_what_the_library_says(name):
    dtype = DTYPES[name]
    if dtype.kind in ("int", "uint"):
        info = ml_dtypes.iinfo(dtype.numpy)
        assert dtype.bits == info.bits
        assert (info.min < 0) is (dtype.kind == "int")
    elif dtype.kind == "float":
        assert dtype.bits == ml_dtypes.finfo(dtype.numpy).bits
    else:
        assert dtype.kind == {"bool": "bool"}.get(name, "complex")


def test_raw_types_are_unsigned_and_as_wide_as_what_is_stored():
    assert DTYPES["bfloat16"].raw_numpy == np.uint16
    assert DTYPES["bool"].raw_numpy == DTYPES["int4"].raw_numpy == DTYPES["float8_e5m2"].raw_numpy == np.uint8
    assert DTYPES["complex64"].raw_numpy == np.uint64
    assert DTYPES["complex128"].raw_numpy == np.dtype("V16")


def test_every_type_of_ml_dtypes_is_known():
    theirs = {
        name for name, value in vars(ml_dtypes).items() if isinstance(value, type) and issubclass(value, np.generic)
    }
    assert theirs
    assert theirs <= set(DTYPES)


def test_every_number_type_of_numpy_is_known():
    for code in "?bBhHiIlLqQefdFD":
        assert np.dtype(code).name in DTYPES


@rows(
    ("name", "count", "nbytes"),
    [
        ("float32", 0, 0),
        ("float32", 3, 12),
        ("complex128", 2, 32),
        ("bool", 5, 5),
        ("int4", 0, 0),
        ("int4", 1, 1),
        ("int4", 2, 1),
        ("int4", 3, 2),
        ("uint2", 5, 2),
        ("uint2", 4, 1),
        ("int1", 8, 1),
        ("int1", 9, 2),
        ("float6_e2m3fn", 1, 1),
        ("float6_e2m3fn", 2, 2),
        ("float6_e2m3fn", 3, 3),
        ("float6_e2m3fn", 4, 3),
        ("float6_e2m3fn", 5, 4),
        ("uint4", (1 << 80) + 1, (1 << 79) + 1),
    ],
)
def test_stored_nbytes_rounds_packed_elements_up_to_bytes(name, count, nbytes):
    assert DTYPES[name].stored_nbytes(count) == nbytes


def test_types_are_values():
    assert DTYPES["float32"] == DType.of("float32") == "float32"
    assert DTYPES["float32"] != DTYPES["float64"]
    assert DTYPES["float32"] != "float64"
    assert DTYPES["float32"] != 32
    assert hash(DTYPES["float32"]) == hash(DType("float32", 32, "float")) == hash("float32")
    assert repr(DTYPES["int4"]) == "DType('int4')"
    again = pickle.loads(pickle.dumps(DTYPES["bfloat16"]))
    assert again == DTYPES["bfloat16"]
    assert (again.bits, again.kind, again.numpy) == (16, "float", np.dtype(ml_dtypes.bfloat16))


# -- names -----------------------------------------------------------------------------------------------------------


@rows("name", ALL)
def test_of_a_known_name(name):
    assert DType.of(name) is DTYPES[name]


@rows(
    ("text", "name"),
    [
        ("<f4", "float32"),
        (">f4", "float32"),
        ("f8", "float64"),
        ("?", "bool"),
        ("|b1", "bool"),
        ("i1", "int8"),
        ("=u2", "uint16"),
        ("c8", "complex64"),
        ("e", "float16"),
        ("double", "float64"),
        ("half", "float16"),
    ],
)
def test_of_numpys_own_strings(text, name):
    assert DType.of(text) is DTYPES[name]


@pytest.mark.parametrize(
    ("text", "name", "bits"),
    [
        ("S5", "|S5", 40),
        ("|S5", "|S5", 40),
        ("V7", "|V7", 56),
        ("datetime64[s]", "datetime64[s]", 64),
        ("<M8[ns]", "datetime64[ns]", 64),
        ("m8[D]", "timedelta64[D]", 64),
    ],
)
def test_of_other_fixed_widths(text, name, bits):
    dtype = DType.of(text)
    assert (dtype.name, dtype.bits, dtype.itemsize, dtype.kind) == (name, bits, bits // 8, "other")
    assert dtype.numpy == np.dtype(text).newbyteorder("=")
    assert DType.of(dtype.name) == dtype
    assert not dtype.packed
    assert dtype.raw_numpy.itemsize == dtype.itemsize


def test_of_text_of_fixed_width():
    dtype = DType.of("U3")
    assert (dtype.bits, dtype.numpy) == (96, np.dtype("U3"))
    assert DType.of(">U3") == dtype
    assert DType.of(">U3").numpy == np.dtype("=U3")


@rows(
    "text",
    [
        "",
        "nonsense",
        "O",
        "object",
        "|O",
        "S",
        "S0",
        "U",
        "V0",
        "str",
        "bytes",
        "void",
        "float7",
        "<x4",
        "F32",
        "BF16",
        "V",
        "f4 ",
        "(2,2)f4",
        "5f4",
        "i4,f4",
        "(,)f4",
        "f4,,",
        "f4,",
        "{'names': []}",
        "[('a', 'O')]",
        "[('a', 'f4'), ('a', 'f4')]",
        "[('a', 'f4'",
        "[]",
        "1" * 5000 + "f4",
        "(" * 300 + "f4",
        "0f4",
        "9999999999f4",
        "S99999999999",
        "|S4294967297",
        "U536870912",
        "\0",
        "\x0b",
        "é",
        "f4\n",
        "S-1",
    ],
)
def test_of_what_is_no_element_type(text):
    with pytest.raises(ValueError, match="element type"):
        DType.of(text)


def test_type_that_an_older_ml_dtypes_lacks(monkeypatch):
    monkeypatch.delattr(ml_dtypes, "bfloat16")
    dtype = DType("bfloat16", 16, "float")
    assert dtype.raw_numpy == np.uint16
    with pytest.raises(UnsupportedError, match="bfloat16") as caught:
        _ = dtype.numpy
    assert caught.value.package.startswith("ml_dtypes>=")


@settings(max_examples=sweep.examples(500))
@given(st.text(st.sampled_from(list("<>|=?0123456789bBhHiIlLqQefdFDgGSUVOmM(),[]{}:;' \n\x01")), max_size=8))
@example("1?")
def test_of_any_text_is_a_type_or_a_value_error(text):
    try:
        dtype = DType.of(text)
    except ValueError:
        return
    assert dtype.numpy.itemsize == dtype.itemsize > 0
    assert dtype.numpy.shape == ()


# -- packed types ----------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(150))
@given(st.sampled_from(PACKED), st.binary(max_size=40), st.data())
def test_unpack_is_the_slow_reference(name, packed, draw):
    dtype = DTYPES[name]
    count = draw.draw(st.integers(0, len(packed) * 8 // dtype.bits))
    codes = dtype.unpack(np.frombuffer(packed, np.uint8), count)
    assert codes.dtype == np.uint8
    assert codes.tolist() == slow_codes(packed, dtype.bits, count)
    assert codes.view(dtype.numpy).dtype == numpy_type(name)


@pytest.mark.parametrize("name", PACKED)
def test_low_bits_come_first(name):
    bits = DTYPES[name].bits
    codes = DTYPES[name].unpack(np.array([1, 0, 0], np.uint8), 2)
    assert codes.tolist() == [1, 0]
    codes = DTYPES[name].unpack(np.array([(1 << bits) & 0xFF, (1 << bits) >> 8, 0], np.uint8), 2)
    assert codes.tolist() == [0, 1]


@pytest.mark.parametrize("name", PACKED)
def test_every_code_and_any_tail(name):
    dtype = DTYPES[name]
    codes = list(range(1 << dtype.bits)) * 9
    for count in range(len(codes) - 9, len(codes) + 1):
        packed = np.frombuffer(pack(codes[:count], dtype.bits), np.uint8)
        assert dtype.unpack(packed, count).tolist() == codes[:count]


@pytest.mark.parametrize("name", [name for name in PACKED if "int" in name])
def test_packed_integers_are_ml_dtypes(name):
    dtype = DTYPES[name]
    info = ml_dtypes.iinfo(dtype.numpy)
    values = np.arange(int(info.min), int(info.max) + 1, dtype=np.int16)
    theirs = values.astype(dtype.numpy)
    packed = np.frombuffer(pack([int(value) & ((1 << dtype.bits) - 1) for value in values], dtype.bits), np.uint8)
    ours = dtype.unpack(packed, len(values)).view(dtype.numpy)
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()
    assert ours.astype(np.int16).tolist() == values.tolist()
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    ("name", "exponent_bits", "mantissa_bits"),
    [("float6_e2m3fn", 2, 3), ("float6_e3m2fn", 3, 2), ("float4_e2m1fn", 2, 1)],
)
def test_packed_floats_are_ml_dtypes(name, exponent_bits, mantissa_bits):
    dtype = DTYPES[name]
    codes = list(range(1 << dtype.bits))
    ours = dtype.unpack(np.frombuffer(pack(codes, dtype.bits), np.uint8), len(codes)).view(dtype.numpy)
    values = np.array([float_value(code, exponent_bits, mantissa_bits) for code in codes], np.float32)
    assert ours.astype(np.float32).tobytes() == values.tobytes()
    assert ours.tobytes() == values.astype(dtype.numpy).tobytes()


def test_four_bits_of_a_known_file():
    # 0x21 0x43 holds 1, 2, 3, 4: the low nibble first.
    codes = DTYPES["uint4"].unpack(np.array([0x21, 0x43], np.uint8), 4)
    assert codes.tolist() == [1, 2, 3, 4]
    signed = DTYPES["int4"].unpack(np.array([0xF8, 0x07], np.uint8), 3).view(DTYPES["int4"].numpy)
    assert signed.astype(int).tolist() == [-8, -1, 7]


def test_unpack_of_whole_bytes_is_the_bytes():
    packed = np.array([1, 2, 3], np.uint8)
    assert DTYPES["uint8"].unpack(packed, 2).tolist() == [1, 2]


# -- by the names that people use ------------------------------------------------------------------------------------


@rows(
    "meant, name",
    [
        *((word, str(dtype)) for word, dtype in STORED_DTYPES.items()),
        *((DType.of(name), name) for name in ("float32", "int4")),
        *((name, "float16") for name in ("half", "HALF", "fp16", "f16", "Float16", "torch.half", "np.float16", "<f2")),
        *((name, "bfloat16") for name in ("bf16", "BF16", "torch.bfloat16", ml_dtypes.bfloat16, "jnp.bfloat16")),
        *((name, "float32") for name in ("torch.float", "single", "f4", "f32", np.float32, np.dtype(">f4"))),
        *((name, "float64") for name in ("float", float, "double", "f8", "torch.double")),
        *((name, "int64") for name in ("i8", "torch.long", "i64")),
        ("fp8_e4m3", "float8_e4m3fn"),
        ("float8_e4m3", "float8_e4m3"),
        ("datetime64[s]", "datetime64[s]"),
    ],
)
def test_type_is_known_by_each_name_of_it(meant, name):
    assert DType.named(meant).name == name


@rows("meant", ["", "torch.nothing", "FLOAT", "x.float32", "fp8", "f128x", None, object()])
def test_name_of_no_type_is_refused(meant):
    with pytest.raises(ValueError, match="not a"):
        DType.named(meant)
