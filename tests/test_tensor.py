from __future__ import annotations

import itertools
import json
import operator
import os
import random
import struct
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.data.base import BytesData, Data
from pparse.data.files import FileData
from pparse.data.spliced import SplicedData
from pparse.errors import (
    ClosedError,
    DamagedTensorError,
    DataChangedError,
    EndOfDataError,
    MissingTensorError,
    SourceError,
    TensorError,
    TruncatedTensorError,
    UnsupportedError,
)
from pparse.findings import Finding, Status
from pparse.tensors.dtype import DTYPES, DType
from pparse.tensors.span import Span
from pparse.tensors.status import Extent, finding_by_status
from pparse.tensors.tensor import Tensor
from pparse.testing.fakes import FailingData, FakeData, GappyData, ShortData, UnknownSizeData
from pparse.viewers.safetensors.viewer import SafetensorsViewer
from tests import gguf_files, numpy_files, onnx_models, sweep
from tests.rows import rows
from tests.work_counter import instructions

# That of numpy 1 has no type of one bit.
ONE_BIT = "uint1" if hasattr(ml_dtypes, "uint1") else "uint2"
ALL = sorted(name for name in DTYPES if hasattr(ml_dtypes, name) or name in np.sctypeDict)
PACKED = [name for name in ALL if DTYPES[name].packed]
WHOLE = [name for name in ALL if not DTYPES[name].packed]
SHAPES = [(), (1,), (7,), (0,), (3, 5), (5, 0), (0, 4), (2, 3, 4), (1, 1, 1), (2, 0, 3), (2, 3, 1, 5), (2, 1, 3, 2, 2)]
BEFORE = 13  # bytes of something else before the tensor, so that nothing is aligned


def random_bytes(count: int, seed: object = 0) -> bytes:
    return random.Random(repr(seed)).randbytes(count)


def elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def make(
    name: str | DType, shape: tuple[int, ...], stored: bytes, *, how: str = "bytes", there: int | None = None, **more
) -> Tensor:
    """A tensor of these stored bytes in one piece, over spliced data, or in several spans.

    ``there`` bytes of it are in the file; it is truncated, then, unless ``status`` says otherwise.
    """
    dtype = DType.of(name) if isinstance(name, str) else name
    if there is not None:
        more.setdefault("status", Status.TRUNCATED)
    before, after = b"\xa5" * BEFORE, b"\x5a" * 9
    if how == "bytes":
        content = before + stored + after if there is None else before + stored[:there]
        spans = (Span(BytesData(content, "f"), BEFORE, len(stored), "f"),)
    elif how == "spliced":
        cuts = sorted({0, len(stored) // 3, len(stored) // 2, len(stored)})
        ranges = [BytesData(before, "head").range(0, BEFORE)]
        for start, end in itertools.pairwise(cuts):
            ranges.append(BytesData(b"##" + stored[start:end] + b"##", "part").range(2, 2 + end - start))
        spans = (Span(SplicedData([*ranges, BytesData(after).range(0, 9)], "f"), BEFORE, len(stored), "f"),)
    else:
        cuts = sorted({0, 1 % (len(stored) + 1), len(stored) // 2, len(stored)})
        spans = tuple(
            Span(BytesData(b"##" + stored[start:end] + b"##", f"f{start}"), 2, end - start, f"f{start}")
            for start, end in itertools.pairwise(cuts)
        )
    return Tensor("w", dtype, shape, spans, **more)


def slow_codes(packed: bytes, bits: int, count: int) -> np.ndarray:
    number = int.from_bytes(packed, "little")
    return np.array([number >> (bits * index) & ((1 << bits) - 1) for index in range(count)], np.uint8)


def reference(name: str, shape: tuple[int, ...], stored: bytes) -> np.ndarray:
    """The array that the stored bytes are, made in the plainest way."""
    dtype = DType.of(name)
    count = elements(shape)
    if dtype.packed:
        return slow_codes(stored, dtype.bits, count).view(dtype.numpy).reshape(shape)
    return np.frombuffer(stored, dtype.numpy, count).reshape(shape)


def same(found: object, expected: object) -> bool:
    """Whether both are the same to the bit: type, shape, element type, bytes."""
    assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray), (type(found), type(expected))
    one, two = np.asarray(found), np.asarray(expected)
    assert (one.shape, one.dtype) == (two.shape, two.dtype)
    assert one.tobytes() == two.tobytes()
    return True


def sample(name: str, shape: tuple[int, ...]) -> bytes:
    return random_bytes(DType.of(name).stored_nbytes(elements(shape)), (name, shape))


# -- whole tensors ---------------------------------------------------------------------------------------------------


@rows("how", ["bytes", "spliced", "spans"])
@rows("name", ALL)
def test_numpy_is_exact(name, how):
    for shape in SHAPES:
        stored = sample(name, shape)
        tensor = make(name, shape, stored, how=how)
        expected = reference(name, shape, stored)
        array = tensor.numpy()
        assert same(array, expected)
        assert array.flags.writeable
        assert array.flags.c_contiguous
        raw = tensor.numpy(raw=True)
        assert raw.dtype == tensor.dtype.raw_numpy
        assert raw.shape == shape
        assert raw.tobytes() == expected.tobytes()
        assert (tensor.size, tensor.ndim, tensor.nbytes) == (expected.size, expected.ndim, expected.nbytes)
        assert tensor.stored_nbytes == tensor.available_nbytes == len(stored)
        assert tensor.strides == ((0,) * len(shape) if tensor.dtype.packed else c_strides(shape, tensor.dtype.itemsize))


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * elements(shape[axis + 1 :]) for axis in range(len(shape)))


@rows("name", [*WHOLE, "datetime64[s]", "S5", "V3", "U2"])
def test_big_endian_elements_are_swapped_and_raw_ones_are_not(name):
    dtype = DType.of(name)
    width = {"complex": dtype.itemsize // 2, "other": 4 if name == "U2" else 1}.get(dtype.kind, dtype.itemsize)
    if name == "datetime64[s]":
        width = 8
    for shape in SHAPES:
        stored = np.array([65 + number % 20 for number in range(elements(shape) * dtype.itemsize)], np.uint8).tobytes()
        if name == "U2":
            stored = np.arange(65, 65 + 2 * elements(shape), dtype="u4").tobytes()
        swapped = b"".join(stored[at : at + width][::-1] for at in range(0, len(stored), width))
        tensor = make(dtype, shape, swapped, byteorder="big")
        expected = np.frombuffer(stored, dtype.numpy, elements(shape)).reshape(shape)
        assert same(tensor.numpy(), expected)
        assert tensor.numpy(raw=True).tobytes() == stored
        if shape and shape[0]:
            assert same(tensor[0], expected[0])
            assert same(tensor[::-1], np.ascontiguousarray(expected[::-1]))
        assert same(tensor[...], expected if shape else expected[()])
        assert b"".join(block.tobytes() for block in tensor.blocks(64)) == stored
        assert b"".join(tensor.raw_blocks(10)) == swapped


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "float8_e5m2", "int4"])
def test_byte_order_means_nothing_to_single_bytes(name):
    stored = sample(name, (6,))
    assert same(make(name, (6,), stored, byteorder="big").numpy(), reference(name, (6,), stored))


@pytest.mark.parametrize("name", ["datetime64[s]", "timedelta64[ns]", "S5", "V3", "U2", "longdouble"])
def test_other_fixed_widths(name):
    dtype = DType.of(name)
    stored = np.zeros(6, dtype.numpy).tobytes() if name == "longdouble" else bytes(range(65, 65 + 6 * dtype.itemsize))
    if name == "U2":
        stored = np.array(["ab", "c", "", "é", "x", "yz"]).astype("U2").tobytes()
    tensor = make(dtype, (2, 3), stored)
    expected = np.frombuffer(stored, dtype.numpy).reshape(2, 3)
    assert same(tensor.numpy(), expected)
    assert same(tensor[1, ::-1], np.ascontiguousarray(expected[1, ::-1]))
    assert same(tensor.numpy(copy=False), expected)


def test_numpy_reads_each_byte_once():
    for name in ("float32", "int4", "complex128"):
        stored = sample(name, (40, 30))
        tensor = make(name, (40, 30), stored)
        tensor.numpy()
        assert tensor.spans[0].data.stats.bytes == len(stored)


def test_nothing_is_read_before_it_is_asked_for():
    tensor = make("float32", (3, 4), bytes(48))
    repr(tensor), len(tensor), tensor.nbytes, tensor.strides, tensor.available_nbytes, bool(tensor)
    iter(tensor), tensor.blocks(), tensor.raw_blocks()
    assert tensor.spans[0].data.stats.reads == 0


# -- strides ---------------------------------------------------------------------------------------------------------


def strided(array: np.ndarray, storage: np.ndarray, name: str = "int32", **more) -> Tensor:
    """The tensor whose elements lie as those of ``array``, a view of ``storage`` that begins where it begins."""
    return make(name, array.shape, storage.tobytes(), strides=array.strides, **more)


def views(storage: np.ndarray) -> dict[str, np.ndarray]:
    ramp = storage.reshape(6, 8, 10)
    window = np.lib.stride_tricks.as_strided
    return {
        "transposed": ramp.T,
        "swapped": ramp.swapaxes(0, 1),
        "stepped": ramp[::2, ::3, ::4],
        "cut": ramp[:3, :4, :5],
        "rows apart": ramp[:, 0, :],
        "columns": ramp[0, :, ::9],
        "repeated": np.broadcast_to(storage[:10], (4, 10)),
        "repeated inside": np.broadcast_to(storage[:4, None], (4, 5)),
        "one element": np.broadcast_to(storage[0], (3, 4)),
        "overlapping": window(storage, (5, 4), (8, 4)),
        "diagonal": window(storage, (6,), (4 * 11,)),
        "long": storage[::7],
        "odd strides of single rows": window(storage, (1, 5), (999, 4)),
        "empty": window(storage, (0, 3), (4, 400)),
        "single": storage[:1],
        "plain": ramp,
    }


VIEWS = list(views(np.arange(480, dtype=np.int32)))


@rows("how", ["bytes", "spliced", "spans"])
@rows("view", VIEWS)
def test_strided_elements_are_gathered_in_their_order(view, how):
    storage = np.arange(480, dtype=np.int32)
    expected = views(storage)[view]
    tensor = strided(expected, storage, how=how)
    assert tensor.strides == expected.strides
    plain = np.ascontiguousarray(expected)
    assert same(tensor.numpy(), plain)
    assert same(tensor.numpy(raw=True), plain.view("u4"))
    assert same(tensor[...], plain)
    assert b"".join(block.tobytes() for block in tensor.blocks(24)) == plain.tobytes()
    assert all(block.nbytes <= 24 for block in tensor.blocks(24))
    assert [row.tolist() for row in tensor] == plain.tolist() if expected.ndim > 1 else True
    if expected.shape[0]:
        assert same(tensor[-1], np.ascontiguousarray(expected[-1]) if expected.ndim > 1 else expected[-1])
        assert same(tensor[::-2], np.ascontiguousarray(expected[::-2]))
    if how == "bytes":
        view_of_it = tensor.numpy(copy=False)
        assert same(view_of_it, expected)
        assert not view_of_it.flags.writeable


def test_strides_of_big_endian():
    storage = np.arange(24, dtype=">i4")
    expected = storage.reshape(4, 6).T
    tensor = make("int32", (6, 4), storage.tobytes(), strides=expected.strides, byteorder="big")
    assert same(tensor.numpy(), np.ascontiguousarray(expected.astype("=i4")))
    assert same(tensor[2, 1:], expected[2, 1:].astype("=i4"))
    complexes = np.arange(24, dtype=">c8") * (1 + 2j)
    expected = complexes.astype(">c8").reshape(4, 6).T
    tensor = make("complex64", (6, 4), expected.T.tobytes(), strides=expected.strides, byteorder="big")
    assert same(tensor.numpy(), np.ascontiguousarray(expected.astype("=c8")))


def test_strides_of_nothing_need_no_bytes():
    tensor = make("int32", (0, 3), b"", strides=(4, 4000))
    assert tensor.numpy().shape == tensor[:].shape == tensor.numpy(copy=False).shape == (0, 3)
    assert list(tensor.blocks()) == []


def test_repeated_elements_are_read_once():
    storage = np.arange(1000, dtype=np.int32)
    tensor = strided(np.broadcast_to(storage, (500, 1000)), storage)
    assert tensor.numpy().shape == (500, 1000)
    assert tensor.spans[0].data.stats.bytes == 4000


# -- indexing --------------------------------------------------------------------------------------------------------

bound = st.none() | st.integers(-9, 9)
item = (
    st.integers(-6, 5)
    | st.builds(slice, bound, bound, st.none() | st.integers(-4, 4))
    | st.just(slice(None))
    | st.integers(-3, 2).map(np.int64)
)


@st.composite
def indexes(draw, ndim: int):
    items = draw(st.lists(item, max_size=ndim + 1 if draw(st.integers(0, 9)) == 0 else ndim))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ...)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def element(found):
    """What numpy hands out for ``array[...]`` is an array of no dimensions; a tensor gives the element."""
    return found[()] if isinstance(found, np.ndarray) and not found.shape else found


def outcome(act):
    try:
        return act()
    except (IndexError, ValueError) as error:
        return type(error)


@settings(max_examples=sweep.examples(700))
@given(st.data())
def test_any_index_is_numpys(data):
    name = data.draw(st.sampled_from(["uint8", "float32", "bfloat16", "complex128", "int4", "float6_e2m3fn", ONE_BIT]))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    stored = sample(name, shape)
    array = reference(name, shape, stored)
    tensor = make(name, shape, stored, how=data.draw(st.sampled_from(["bytes", "spliced", "spans"])))
    index = data.draw(indexes(len(shape)))
    expected = outcome(lambda: array[index])
    found = outcome(lambda: tensor[index])
    if isinstance(expected, type):
        assert isinstance(found, type)  # of several mistakes in one index, either may be named
    else:
        assert not isinstance(found, type), found
        assert same(found, element(expected))
        if isinstance(found, np.ndarray):
            assert found.flags.c_contiguous
            assert found.flags.writeable


@settings(max_examples=sweep.examples(300))
@given(st.data())
def test_any_index_into_strides_is_numpys(data):
    storage = np.arange(480, dtype=np.int32)
    array = views(storage)[data.draw(st.sampled_from(VIEWS))]
    tensor = strided(array, storage)
    index = data.draw(indexes(array.ndim))
    expected = outcome(lambda: array[index])
    found = outcome(lambda: tensor[index])
    if isinstance(expected, type):
        assert isinstance(found, type)  # of several mistakes in one index, either may be named
    else:
        assert same(found, element(expected))


@settings(max_examples=sweep.examples(300))
@given(st.data())
def test_any_index_is_read_in_pieces_as_at_once(data):
    """With pieces and gaps so small that every way of reading is taken."""
    storage = np.arange(480, dtype=np.int32)
    array = views(storage)[data.draw(st.sampled_from(VIEWS))]
    tensor = strided(array, storage, how=data.draw(st.sampled_from(["bytes", "spans"])))
    items = tuple(
        slice(*data.draw(st.tuples(bound, bound, st.none() | st.integers(-4, 4).filter(bool)))) for _ in array.shape
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pparse.tensors.selection.PIECE", data.draw(st.integers(1, 400)))
        patch.setattr("pparse.tensors.selection.MAX_GAP", data.draw(st.integers(0, 100)))
        patch.setattr("pparse.tensors.tensor._PIECE", data.draw(st.integers(1, 50)))
        assert same(tensor[items], np.ascontiguousarray(array[items]))
        assert same(tensor.numpy(), np.ascontiguousarray(array))


@rows("name", ["float32", "int4"])
@rows("index", [None, True, 1.0, "a", [0, 1], np.array([0, 1]), (0, None), (True,), np.bool_(True)])
def test_other_indexes_are_refused(name, index):
    tensor = make(name, (3, 4), sample(name, (3, 4)))
    with pytest.raises(TypeError):
        tensor[index]


def test_indexes_that_numpy_refuses_are_refused():
    tensor = make("float32", (3, 4), bytes(48))
    with pytest.raises(IndexError, match="out of bounds for axis 1 with size 4"):
        tensor[0, 4]
    with pytest.raises(IndexError, match="too many indices"):
        tensor[0, 0, 0]
    with pytest.raises(IndexError, match="ellipsis"):
        tensor[..., ...]
    with pytest.raises(ValueError, match="zero"):
        tensor[::0]


def test_integer_likes_are_integers():
    tensor = make("uint8", (5,), bytes(range(5)))
    assert tensor[np.uint8(3)] == 3
    assert tensor[np.array(2)] == 2

    class Three:
        def __index__(self):
            return 3

    assert tensor[Three()] == 3


def test_elements_are_scalars():
    assert isinstance(make("float32", (2,), bytes(8))[0], np.float32)
    assert isinstance(make("bfloat16", (2,), bytes(4))[0], ml_dtypes.bfloat16)
    assert isinstance(make("int4", (2,), b"\x21")[1], ml_dtypes.int4)
    assert make("int4", (2,), b"\x21")[1] == 2
    assert isinstance(make("float32", (), bytes(4))[()], np.float32)
    assert isinstance(make("int4", (), b"\x07")[()], ml_dtypes.int4)


@pytest.mark.parametrize("name", ["float32", "int4"])
def test_iteration_and_length(name):
    stored = sample(name, (4, 3))
    tensor, expected = make(name, (4, 3), stored), reference(name, (4, 3), stored)
    assert len(tensor) == 4
    assert [row.tobytes() for row in tensor] == [row.tobytes() for row in expected]
    row = make(name, (4,), sample(name, (4,)))
    assert list(row) == list(reference(name, (4,), sample(name, (4,))))
    assert list(make(name, (0, 3), b"")) == []
    scalar = make(name, (), sample(name, ()))
    with pytest.raises(TypeError):
        len(scalar)
    with pytest.raises(TypeError):
        iter(scalar)
    assert scalar
    assert make(name, (0,), b"")


# -- what is read ----------------------------------------------------------------------------------------------------


class Watched:
    """A float32 tensor of 50 rows of 2,000 (8,000 bytes each), and what was read of it."""

    def __init__(self) -> None:
        self.shape = (50, 2000)
        self.array = np.arange(100_000, dtype=np.float32).reshape(self.shape)
        self.data = FakeData(b"\0" * BEFORE + self.array.tobytes())
        self.tensor = Tensor("w", DTYPES["float32"], self.shape, (Span(self.data, BEFORE, 400_000, "f"),))

    def read(self, index) -> list[tuple[int, int]]:
        self.data.asked.clear()
        assert same(
            self.tensor[index],
            np.ascontiguousarray(self.array[index]) if np.ndim(self.array[index]) else self.array[index],
        )
        return [(offset - BEFORE, length) for offset, length in self.data.asked]


def test_rows_read_exactly_their_bytes():
    watched = Watched()
    assert watched.read(slice(0, 2)) == [(0, 16_000)]
    assert watched.read(slice(10, 13)) == [(80_000, 24_000)]
    assert watched.read(-1) == [(392_000, 8_000)]
    assert watched.read((3, 5)) == [(24_020, 4)]
    assert watched.read((3, slice(5, 9))) == [(24_020, 16)]
    assert watched.read(...) == [(0, 400_000)]
    assert watched.read((slice(10, 12), slice(None))) == [(80_000, 16_000)]
    assert watched.read(slice(13, 10, -1)) == [(88_000, 24_000)]


def test_nothing_selected_reads_nothing():
    watched = Watched()
    assert watched.read(slice(5, 5)) == []
    assert watched.read((3, slice(7, 2))) == []
    packed = make("int4", (1 << 40, 1 << 20), b"", status=Status.COMPLETE)
    assert packed[7:7].shape == (0, 1 << 20)
    assert packed[7:7, :5].shape == (0, 5)
    assert packed[5, 3:3].shape == (0,)
    assert make("float32", (1 << 40, 1 << 20), b"")[7:7, 0].shape == (0,)


def test_rows_far_apart_are_read_alone():
    watched = Watched()
    assert watched.read(slice(0, 50, 20)) == [(0, 8_000), (160_000, 8_000), (320_000, 8_000)]
    assert watched.read(slice(49, None, -20)) == [(72_000, 8_000), (232_000, 8_000), (392_000, 8_000)]
    assert watched.read((slice(None, None, 25), 7)) == [(28, 4), (200_028, 4)]
    assert watched.read((slice(0, 2), slice(0, 10))) == [(0, 40), (8_000, 40)]


def test_runs_close_together_are_read_together():
    watched = Watched()
    assert watched.read((0, slice(0, 10, 2))) == [(0, 36)]
    assert watched.read((0, slice(0, 2000, 1000))) == [(0, 4_004)]
    assert watched.read((slice(4, 6), slice(0, 1500))) == [(32_000, 14_000)]


def test_many_short_runs_are_read_together():
    data = FakeData(bytes(range(250)) * 80_000)
    tensor = Tensor("w", DTYPES["uint8"], (1_000_000, 20), (Span(data, 0, 20_000_000, "f"),))
    expected = np.frombuffer(data.content, "u1").reshape(1_000_000, 20)
    assert same(tensor[:, :10], np.ascontiguousarray(expected[:, :10]))
    assert len(data.asked) == 5
    data.asked.clear()
    assert same(tensor[::-3, 7], np.ascontiguousarray(expected[::-3, 7]))
    assert len(data.asked) == 5
    assert sum(length for _, length in data.asked) <= 20_000_000


def test_large_selections_come_in_pieces():
    columns = 1 << 20
    data = FakeData(bytes(range(256)) * (16 * columns // 256))
    tensor = Tensor("w", DTYPES["uint8"], (16, columns), (Span(data, 0, 16 * columns, "f"),))
    expected = np.frombuffer(data.content, "u1").reshape(16, columns)
    assert same(tensor[:, ::2], np.ascontiguousarray(expected[:, ::2]))
    assert max(length for _, length in data.asked) <= 4 << 20
    assert len(data.asked) <= 8
    data.asked.clear()
    assert same(tensor[:, :-1], np.ascontiguousarray(expected[:, :-1]))
    assert sum(length for _, length in data.asked) <= 16 * columns


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        (slice(0, 2), [(0, 10)]),
        (slice(3, 4), [(15, 5)]),
        (-1, [(35, 5)]),
        ((2, 3), [(11, 1)]),
        ((2, slice(3, 6)), [(11, 2)]),
        ((slice(2, 3), slice(None, None, -2)), [(10, 5)]),
        ((slice(2, 4), 3), [(10, 10)]),
        (slice(6, 3, -1), [(20, 15)]),
        (slice(None), [(0, 40)]),
    ],
)
def test_packed_rows_read_exactly_their_bytes(index, asked):
    stored = sample("int4", (8, 10))
    data = FakeData(stored)
    tensor = Tensor("w", DTYPES["int4"], (8, 10), (Span(data, 0, 40, "f"),))
    expected = reference("int4", (8, 10), stored)[index]
    assert same(tensor[index], np.ascontiguousarray(expected) if np.ndim(expected) else expected)
    assert data.asked == asked


def test_packed_rows_that_begin_inside_a_byte():
    stored = sample("float6_e3m2fn", (5, 3))
    data = FakeData(stored)
    tensor = Tensor("w", DTYPES["float6_e3m2fn"], (5, 3), (Span(data, 0, len(stored), "f"),))
    expected = reference("float6_e3m2fn", (5, 3), stored)
    for row in range(5):
        data.asked.clear()
        assert same(tensor[row], expected[row])
        ((offset, length),) = data.asked
        assert offset % 3 == 0  # four elements fill three bytes
        assert offset * 8 <= row * 18
        assert offset + length == -(-(row + 1) * 18 // 8)


# -- streaming -------------------------------------------------------------------------------------------------------


@rows("name", ["uint8", "float32", "bfloat16", "complex128", "int4", "float6_e2m3fn", ONE_BIT])
@rows("how", ["bytes", "spans"])
def test_blocks_within_any_limit_make_up_the_tensor(name, how):
    shape = (7, 11)
    stored = sample(name, shape)
    tensor, expected = make(name, shape, stored, how=how), reference(name, shape, stored)
    for limit in (16, 17, 100, "1KiB", "4MiB"):
        blocks = list(tensor.blocks(limit))
        most = {"1KiB": 1024, "4MiB": 4 << 20}.get(limit, limit)
        assert all(block.ndim == 1 and block.dtype == expected.dtype and 0 < block.nbytes <= most for block in blocks)
        assert b"".join(block.tobytes() for block in blocks) == expected.tobytes()
    raw = list(tensor.blocks(16, raw=True))
    assert all(block.dtype == tensor.dtype.raw_numpy for block in raw)
    assert b"".join(block.tobytes() for block in raw) == expected.tobytes()


def test_blocks_of_nothing():
    for shape in ((0,), (3, 0), (0, 5)):
        assert list(make("float32", shape, b"").blocks()) == []
        assert list(make("int4", shape, b"").blocks()) == []
        assert list(make("int4", shape, b"").raw_blocks()) == []
    assert [block.shape for block in make("float32", (), bytes(4)).blocks()] == [(1,)]


@pytest.mark.parametrize(("name", "limit"), [("float32", 3), ("int4", 7), ("uint8", 0), ("float32", "0")])
def test_blocks_too_small(name, limit):
    with pytest.raises(ValueError, match="cannot hold"):
        list(make(name, (8,), sample(name, (8,))).blocks(limit))


def test_blocks_of_no_size():
    tensor = make("float32", (8,), bytes(32))
    with pytest.raises(ValueError, match="size"):
        list(tensor.blocks("much"))
    with pytest.raises(ValueError, match="negative"):
        list(tensor.blocks(-1))
    with pytest.raises(ValueError, match="0"):
        list(tensor.raw_blocks(0))
    with pytest.raises(ValueError, match="negative"):
        list(tensor.raw_blocks(-1))


@pytest.mark.parametrize("how", ["bytes", "spliced", "spans"])
def test_raw_blocks_within_any_limit_make_up_the_bytes(how):
    stored = random_bytes(100)
    tensor = make("int4", (200,), stored, how=how)
    for limit in (1, 7, 100, 1000):
        pieces = list(tensor.raw_blocks(limit))
        assert b"".join(pieces) == stored
        assert all(isinstance(piece, bytes) and 0 < len(piece) <= limit for piece in pieces)


def test_readinto_fills_buffers_of_the_right_size():
    stored = sample("float32", (3, 4))
    for how in ("bytes", "spliced", "spans"):
        tensor = make("float32", (3, 4), stored, how=how)
        for buffer in (bytearray(48), memoryview(bytearray(48)), np.zeros((3, 4), np.float32), np.zeros(48, np.uint8)):
            assert tensor.readinto(buffer) == 48
            assert bytes(buffer if isinstance(buffer, bytearray | memoryview) else buffer.tobytes()) == stored
    larger = bytearray(b"\xee" * 60)
    assert tensor.readinto(larger) == 48
    assert larger == stored + b"\xee" * 12


@rows("name", [*WHOLE, "datetime64[s]"])
def test_readinto_an_array_of_its_own_type(name):
    dtype = DType.of(name)
    for shape in ((), (5,), (2, 3), (0,), (2, 0)):
        stored = bytes(elements(shape) * dtype.itemsize) if name == "datetime64[s]" else sample(name, shape)
        array = np.ones(shape, dtype.raw_numpy).view(dtype.numpy)
        assert make(dtype, shape, stored).readinto(array) == len(stored)
        assert array.tobytes() == stored


def test_readinto_packed_gives_the_stored_bytes():
    stored = sample("int4", (5,))
    buffer = bytearray(3)
    assert make("int4", (5,), stored).readinto(buffer) == 3
    assert buffer == stored


def test_readinto_what_cannot_take_it():
    tensor = make("float32", (3, 4), bytes(48))
    with pytest.raises(ValueError, match="has 47 bytes, but the tensor has 48"):
        tensor.readinto(bytearray(47))
    with pytest.raises((TypeError, ValueError, BufferError)):
        tensor.readinto(bytes(48))
    with pytest.raises((TypeError, ValueError, BufferError)):
        tensor.readinto(np.zeros((4, 8), np.float32)[:, ::2])
    frozen = np.zeros(12, np.float32)
    frozen.flags.writeable = False
    with pytest.raises((TypeError, ValueError, BufferError)):
        tensor.readinto(frozen)
    assert not frozen.any()


# -- without a copy --------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"#" * BEFORE + np.arange(1000, dtype=np.float32).tobytes())
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def in_file(data: Data, name: str = "float32", shape: tuple[int, ...] = (10, 100), **more) -> Tensor:
    return Tensor("w", DTYPES[name], shape, (Span(data, BEFORE, 4000, data.name),), **more)


@rows("name", WHOLE)
def test_without_a_copy(name):
    for shape in SHAPES:
        stored = sample(name, shape)
        tensor, expected = make(name, shape, stored), reference(name, shape, stored)
        array = tensor.numpy(copy=False)
        assert same(array, expected)
        assert not array.flags.writeable
        raw = tensor.numpy(copy=False, raw=True)
        assert raw.dtype == tensor.dtype.raw_numpy
        assert raw.tobytes() == stored
        assert tensor.spans[0].data.stats.reads == 0


def test_nothing_is_had_without_a_copy_and_without_spans():
    array = Tensor("w", DTYPES["float32"], (0, 3), ()).numpy(copy=False)
    assert (array.shape, array.dtype) == ((0, 3), np.float32)
    assert not array.flags.writeable


def test_without_a_copy_shows_the_bytes_themselves():
    content = bytearray(8)
    array = Tensor("w", DTYPES["uint16"], (4,), (Span(BytesData(content), 0, 8, "f"),)).numpy(copy=False)
    content[2] = 7
    assert array.tolist() == [0, 7, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_file_serves_what_is_asked_for(path):
    with FileData(path) as data:
        tensor = in_file(data)
        assert tensor[2:4].tolist() == np.arange(200, 400).reshape(2, 100).tolist()
        assert data.stats.bytes == 800
        assert tensor[5, 50] == 550
        assert data.stats.bytes == 804
        assert sum(block.sum() for block in tensor.blocks(100)) == 999 * 500
        assert data.stats.bytes == 4804


def test_map_of_a_file(path):
    with FileData(path) as data:
        array = in_file(data).numpy(copy=False)
        assert data.stats.bytes == 0
        assert not array.flags.writeable
        with pytest.raises(ValueError, match=r"(?i)writeable"):
            array.flags.writeable = True
    assert array[9, 99] == 999  # outlives the data


def test_no_view_where_bytes_must_change():
    four = sample("int4", (8,))
    cases = {
        "changed or joined": [
            make("int4", (8,), four),
            make("float32", (4,), bytes(16), byteorder="big"),
            make("uint16", (4,), bytes(8), byteorder="big"),
            make("float32", (4,), bytes(16), how="spans"),
            make("uint8", (2,), bytes(2), how="spans"),
        ],
        "cannot be mapped": [
            make("float32", (4,), bytes(16), how="spliced"),
            Tensor("w", DTYPES["uint8"], (4,), (Span(FakeData(bytes(4)), 0, 4, "f"),)),
        ],
    }
    for words, tensors in cases.items():
        for tensor in tensors:
            with pytest.raises(ValueError, match=words) as caught:
                tensor.numpy(copy=False)
            assert "'w'" in str(caught.value)
    assert make("uint8", (4,), b"abcd", byteorder="big").numpy(copy=False).tobytes() == b"abcd"


def test_view_of_a_changed_or_closed_file(path):
    data = FileData(path)
    tensor = in_file(data)
    os.utime(path, (5, 5))
    for act in (
        lambda: tensor.numpy(copy=False),
        tensor.numpy,
        lambda: tensor[0],
        lambda: list(tensor.blocks()),
        lambda: tensor.readinto(bytearray(4000)),
        lambda: list(tensor.raw_blocks()),
    ):
        with pytest.raises(DataChangedError):
            act()
    data.close()
    for act in (lambda: tensor.numpy(copy=False), tensor.numpy, lambda: tensor[0], lambda: list(tensor.blocks())):
        with pytest.raises(ClosedError):
            act()


def test_view_of_closed_bytes():
    tensor = make("uint8", (4,), b"abcd")
    tensor.spans[0].data.close()
    with pytest.raises(ClosedError):
        tensor.numpy(copy=False)


def test_file_that_shrinks_between_reads(path):
    with FileData(path) as data:
        tensor = in_file(data)
        assert tensor[9, 99] == 999
        os.truncate(path, 2000)
        for act in (tensor.numpy, lambda: tensor.numpy(copy=False), lambda: tensor[9], lambda: tensor[0]):
            with pytest.raises(DataChangedError):
                act()


# -- a sound tensor of a file, in few steps ---------------------------------------------------------------------------


def test_tensor_of_a_file_as_it_is_in_memory(tmp_path):
    for name, shape in itertools.product(WHOLE, SHAPES):
        stored = sample(name, shape)
        (tmp_path / "w").write_bytes(bytes(BEFORE) + stored)
        with FileData(str(tmp_path / "w")) as data:
            tensor = Tensor("w", DTYPES[name], shape, (Span(data, BEFORE, len(stored), data.name),))
            array, raw = tensor.numpy(), tensor.numpy(raw=True)
            assert same(array, reference(name, shape, stored))
            assert array.flags.writeable
            assert raw.dtype == tensor.dtype.raw_numpy
            assert raw.tobytes() == stored
            assert data.stats.bytes == 2 * len(stored)
            # As soon as anything differs, the other way is taken, and gives the same.
            swapped = Tensor("w", DTYPES[name], shape, tensor.spans, byteorder="big")
            assert same(swapped.numpy(), make(name, shape, stored, byteorder="big").numpy())


def test_work_for_a_tensor_of_a_file(path, monkeypatch):
    calls = []
    with FileData(path) as data:
        tensor = in_file(data)
        expected = tensor.numpy()
        for name in ("pread", "preadv", "fstat"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *args, real=real, name=name: calls.append(name) or real(*args))
        modules = [sys.modules[kind.__module__] for kind in (Data, FileData, DType, Tensor)]
        assert instructions(lambda: calls.append(tensor.numpy()), *modules) < 620  # once 1,100
        assert calls[:2] == ["preadv", "fstat"]
        assert same(calls[2], expected)
        assert len(calls) == 3


def test_formats_whose_tensors_take_few_steps(tmp_path, monkeypatch):
    array = np.arange(6, dtype="f4").reshape(2, 3)
    table = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    made = onnx_models.model()
    made.graph.initializer.add(name="w", data_type=1, dims=[2, 3], raw_data=array.tobytes())
    files = {
        "m.safetensors": struct.pack("<Q", len(table)) + table + array.tobytes(),
        "m.gguf": gguf_files.plain(),
        "m.npy": numpy_files.npy(array),
        "m.onnx": made.SerializeToString(),
    }
    read = []
    real = FileData.read_unchanged
    monkeypatch.setattr(FileData, "read_unchanged", lambda *args: read.append(real(*args)) or read[-1])
    for number, (name, content) in enumerate(files.items(), 1):
        (tmp_path / name).write_bytes(content)
        with pparse.view(tmp_path / name) as model:
            (tensor, *_) = model.values()
            assert name == "m.gguf" or same(tensor.numpy(), array)
            assert name != "m.gguf" or tensor.numpy().tobytes() == bytes(tensor[:].tobytes())
        assert read == [True] * number


def test_a_class_that_is_mixed_in_may_compare(tmp_path):
    class Comparing:
        def resolve(self, tensor):
            raise DamagedTensorError("its checksum is another one", name=tensor.name)

    class Mixed(Comparing, SafetensorsViewer):
        pass

    class Below(Mixed):
        pass

    table = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(table)) + table + b"1234")
    with pparse.open(tmp_path / "m.safetensors") as document:
        for viewer in (Mixed, Below):
            with pytest.raises(DamagedTensorError, match="another one"):
                viewer(document)["w"].numpy()
        assert bytes(SafetensorsViewer(document)["w"].numpy()) == b"1234"


def test_what_speaks_against_few_steps(path, monkeypatch):
    class Counting(FileData):
        asked = 0

        def _preadinto(self, offset, view):
            self.asked += 1
            return super()._preadinto(offset, view)

    with Counting(path) as data:
        assert in_file(data).numpy()[9, 99] == 999
        assert data.asked == 1
    with FileData(path) as data:
        end = BEFORE + 3999
        for span in (Span(data, BEFORE, 4000, "w", end), Span(data, BEFORE + 1, 4000, "w"), Span(None, 0, 4000, "w")):
            with pytest.raises(TruncatedTensorError):
                Tensor("w", DTYPES["float32"], (1000,), (span,)).numpy()
        asked = []
        owner = SimpleNamespace(
            _compares=True, resolve=asked.append, checker=asked.append, _has_news=False, places_by_offset=False
        )
        tensor = in_file(data, owner=owner)
        assert tensor.numpy()[9, 99] == 999
        assert asked == [tensor, tensor]

        def refuse(*args):
            raise OSError(5, "broken")

        monkeypatch.setattr(os, "preadv", refuse)
        with pytest.raises(SourceError, match="broken"):
            in_file(data).numpy()


# -- what numpy asks -------------------------------------------------------------------------------------------------


def test_numpy_takes_a_tensor_for_an_array():
    stored = np.arange(6, dtype=np.float32).tobytes()
    tensor = make("float32", (2, 3), stored)
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same(np.asarray(tensor), expected)
    assert same(np.array(tensor), expected)
    assert same(np.asarray(tensor, dtype=np.float64), expected.astype(np.float64))
    assert same(np.array(tensor, dtype=np.int8), expected.astype(np.int8))
    assert same(tensor.__array__(np.float32), expected)
    assert (np.asarray(tensor) + 1).tolist() == (expected + 1).tolist()
    assert operator.eq(np.sum(tensor), 15)
    copied = np.array(tensor, copy=True)
    copied[0, 0] = 9
    assert np.asarray(tensor)[0, 0] == 0


def test_array_protocol_without_a_copy():
    tensor = make("float32", (2, 3), np.arange(6, dtype=np.float32).tobytes())
    array = tensor.__array__(copy=False)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not array.flags.writeable
    assert tensor.__array__(np.float32, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(np.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        make("int4", (2,), b"\x21").__array__(copy=False)
    if int(np.__version__.partition(".")[0]) >= 2:
        assert not np.asarray(tensor, copy=False).flags.writeable
        with pytest.raises(ValueError, match="copy"):
            np.asarray(tensor, dtype=np.float64, copy=False)


# -- tensors that are not whole --------------------------------------------------------------------------------------


@pytest.fixture
def cut():
    """A tensor of 4 rows of 12 bytes, of which 29 bytes are there."""
    return make("float32", (4, 3), np.arange(12, dtype=np.float32).tobytes(), there=29)


def test_truncated_says_so_with_numbers(cut):
    assert (cut.stored_nbytes, cut.available_nbytes) == (48, 29)
    assert "truncated" in repr(cut)
    for act in (
        cut.numpy,
        lambda: cut.numpy(copy=False),
        lambda: cut.numpy(raw=True),
        lambda: cut.readinto(bytearray(48)),
        lambda: np.asarray(cut),
        lambda: cut[:],
    ):
        with pytest.raises(TruncatedTensorError) as caught:
            act()
        error = caught.value
        assert (error.name, error.offset, error.wanted, error.got, error.source) == ("w", BEFORE, 48, 29, "f")


def test_whole_rows_of_a_truncated_tensor(cut):
    assert cut[0].tolist() == [0, 1, 2]
    assert cut[0:2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert cut[1::-1].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert cut[2, 0] == 6
    assert cut[:2, 2].tolist() == [2, 5]
    assert cut[4:].shape == (0, 3)
    assert cut[3:3].shape == (0, 3)
    for index, wanted in ((2, 36), ((2, 1), 32), (slice(1, 4), 48), (-1, 48), (slice(None, None, 3), 48)):
        with pytest.raises(TruncatedTensorError) as caught:
            cut[index]
        assert (caught.value.wanted, caught.value.got) == (wanted, 29)


def test_whole_rows_of_a_truncated_packed_tensor():
    stored = sample("int4", (4, 3))
    cut = make("int4", (4, 3), stored, there=4)  # eight of twelve elements: two rows and a bit
    expected = reference("int4", (4, 3), stored)
    assert same(cut[0], expected[0])
    assert same(cut[:2], expected[:2])
    with pytest.raises(TruncatedTensorError) as caught:
        cut[2]
    assert (caught.value.wanted, caught.value.got) == (5, 4)
    with pytest.raises(TruncatedTensorError):
        cut[:]
    assert cut[4:].shape == (0, 3)


def until_cut(pieces) -> tuple[list, TruncatedTensorError]:
    """What an iteration gives before it raises, and what it raises."""
    found = []
    with pytest.raises(TruncatedTensorError) as caught:
        found.extend(pieces)
    return found, caught.value


@rows("name", ["float32", "int4", "float6_e2m3fn", ONE_BIT, "complex128", "bfloat16"])
@rows("order", ["little", "big"])
def test_prefix_and_fill_for_every_cut(name, order):
    shape = (4, 3)
    stored = sample(name, shape)
    whole = make(name, shape, stored, byteorder=order).numpy()
    bits = DTYPES[name].bits
    for there in range(len(stored)):
        cut = make(name, shape, stored, there=there, byteorder=order)
        count = min(12, there * 8 // bits)
        assert same(cut.numpy(partial="prefix"), whole[: count // 3])
        with pytest.raises(TruncatedTensorError, match=r"rows (is|are) whole; numpy\(partial=\"prefix\"\) gives"):
            cut.numpy()
        filled = cut.numpy(partial="fill")
        assert isinstance(filled, np.ma.MaskedArray)
        assert (filled.shape, filled.dtype) == (shape, whole.dtype)
        assert filled.mask.shape == shape
        assert (~filled.mask).sum() == count
        assert filled.mask.reshape(-1)[count:].all()
        assert filled.data.reshape(-1)[:count].tobytes() == whole.reshape(-1)[:count].tobytes()
        assert not filled.data.reshape(-1)[count:].view("u1").any()
        pieces, error = until_cut(cut.blocks(128))
        assert (error.wanted, error.got) == (len(stored), there)
        assert b"".join(piece.tobytes() for piece in pieces) == whole.reshape(-1)[:count].tobytes()


def test_raw_blocks_of_a_truncated_tensor(cut):
    pieces, error = until_cut(cut.raw_blocks(10))
    assert list(map(len, pieces)) == [10, 10, 9]
    assert b"".join(pieces) == np.arange(12, dtype=np.float32).tobytes()[:29]
    assert (error.wanted, error.got) == (48, 29)


def test_a_cut_tensor_is_filled_up_with_the_value_asked_for(cut):
    filled = cut.numpy(partial="fill", fill_value=-1)
    assert filled.data[3].tolist() == [-1, -1, -1]
    assert filled.mask[2:].tolist() == [[False, True, True], [True, True, True]]
    assert filled.filled().tolist()[3] == [-1, -1, -1]
    assert np.isnan(cut.numpy(partial="fill", fill_value=np.nan).data[3]).all()
    raw = cut.numpy(partial="fill", raw=True)
    assert raw.dtype == np.uint32
    assert filled.sum() == sum(range(7))


@rows("name", ALL)
def test_fill_of_every_type(name):
    stored = sample(name, (16,))
    cut = make(name, (16,), stored, there=len(stored) - 1)
    filled = cut.numpy(partial="fill")
    assert filled.dtype == cut.dtype.numpy
    assert 0 < filled.mask.sum() < 16
    if name != "float8_e8m0fnu":  # which has no zero
        assert not filled.data[filled.mask].view("u1").any()
    raw = cut.numpy(partial="fill", raw=True)
    assert raw.dtype == cut.dtype.raw_numpy
    assert raw.data[~raw.mask].tobytes() == filled.data[~filled.mask].tobytes()
    assert not raw.data[raw.mask].view("u1").any()


def test_partial_of_several_spans():
    stored = np.arange(12, dtype=np.float32).tobytes()
    spans = (
        Span(BytesData(stored[:20], "a"), 0, 20, "a"),
        Span(BytesData(stored[20:30], "b"), 0, 20, "b"),
        Span(BytesData(bytes(8), "c"), 0, 8, "c"),
    )
    tensor = Tensor("w", DTYPES["float32"], (4, 3), spans, status=Status.TRUNCATED)
    assert tensor.available_nbytes == 30  # what follows the cut does not count
    assert tensor.numpy(partial="prefix").tolist() == [[0, 1, 2], [3, 4, 5]]
    filled = tensor.numpy(partial="fill")
    assert filled.mask.sum() == 5
    assert tensor[1].tolist() == [3, 4, 5]
    with pytest.raises(TruncatedTensorError):
        tensor[3]
    gone = Tensor("w", DTYPES["float32"], (4, 3), (spans[0], Span(None, 0, 20, "b"), spans[2]), status=Status.TRUNCATED)
    assert gone.available_nbytes == 20
    assert gone[0].tolist() == [0, 1, 2]
    with pytest.raises(TruncatedTensorError):
        gone[3]


def test_partial_of_a_scalar():
    cut = make("float32", (), bytes(4), there=3)
    with pytest.raises(TruncatedTensorError):
        cut.numpy(partial="prefix")
    assert cut.numpy(partial="fill").mask.tolist() is True
    with pytest.raises(TruncatedTensorError):
        cut[()]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_partial_of_nothing(shape):
    for name in ("float32", "int4"):
        tensor = make(name, shape, b"", there=0)
        assert tensor.numpy(partial="prefix").shape == shape
        assert tensor.numpy(partial="fill").shape == shape


def test_partial_of_a_whole_tensor_is_the_tensor():
    tensor = make("float32", (3,), np.arange(3, dtype=np.float32).tobytes())
    for partial in ("prefix", "fill"):
        assert tensor.numpy(partial=partial).tolist() == [0, 1, 2]


def test_partial_must_be_known(cut):
    with pytest.raises(ValueError, match="'prefix' or 'fill'"):
        cut.numpy(partial="some")


def test_partial_of_strides():
    storage = np.arange(12, dtype=np.float32)
    cut = make("float32", (3, 4), storage.tobytes(), strides=(4, 12), there=29)
    for partial in ("prefix", "fill"):
        with pytest.raises(TruncatedTensorError):
            cut.numpy(partial=partial)
    assert cut[:, 0].tolist() == [0, 1, 2]  # the first column is the first row as stored
    with pytest.raises(TruncatedTensorError):
        cut[0]
    with pytest.raises(TruncatedTensorError):
        list(cut.blocks())


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Status.MISSING, MissingTensorError),
        (Status.DAMAGED, DamagedTensorError),
        (Status.UNSUPPORTED, UnsupportedError),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_tensor_that_is_not_whole_raises_the_error_of_its_status(status, error, known):
    finding = Finding("odd", "because of this")
    tensor = Tensor(
        "w",
        DTYPES["float32"] if known else None,
        (2, 3),
        (Span(None, 100, 24, "f"),),
        status=status,
        finding=finding,
        stored_dtype="F32",
    )
    for act in (
        tensor.numpy,
        lambda: tensor.numpy(partial="prefix"),
        lambda: tensor.numpy(partial="fill"),
        lambda: tensor.numpy(copy=False),
        lambda: tensor[0],
        lambda: tensor[0:0],
        lambda: list(tensor.blocks()),
        lambda: list(tensor.raw_blocks()),
        lambda: tensor.readinto(bytearray(24)),
        lambda: np.asarray(tensor),
        lambda: list(tensor),
    ):
        with pytest.raises(error, match="because of this") as caught:
            act()
        assert caught.value.path == "w"
        assert caught.value.offset == 100
        if isinstance(caught.value, MissingTensorError):
            assert (caught.value.wanted, caught.value.got, caught.value.source) == (24, 0, "f")
        if isinstance(caught.value, TensorError):
            assert caught.value.name == "w"


def test_not_whole_without_a_finding():
    tensor = Tensor("w", DTYPES["float32"], (2, 3), (), status=Status.DAMAGED)
    with pytest.raises(DamagedTensorError, match="the tensor is damaged"):
        tensor.numpy()


def test_unknown_type_or_encoding():
    unknown = Tensor("w", None, (3,), (Span(BytesData(b"abc"), 0, 3, "f"),), stored_dtype="Q4_K")
    for act in (unknown.numpy, lambda: unknown[0], lambda: list(unknown.blocks()), unknown.torch):
        with pytest.raises(UnsupportedError, match="Q4_K"):
            act()
    assert unknown.nbytes == 3
    assert unknown.strides == (0,)
    assert "Q4_K" in repr(unknown)
    assert b"".join(unknown.raw_blocks()) == b"abc"
    buffer = bytearray(3)
    assert unknown.readinto(buffer) == 3
    assert buffer == b"abc"
    encoded = make("uint8", (3,), b"abc", encoding="rle")
    with pytest.raises(UnsupportedError, match="rle"):
        encoded.numpy()
    assert b"".join(encoded.raw_blocks()) == b"abc"


def test_file_that_ends_although_the_tensor_is_called_complete():
    tensor = make("float32", (4, 3), bytes(48), there=29, status=Status.COMPLETE)
    for act in (tensor.numpy, lambda: tensor[3], lambda: tensor.readinto(bytearray(48)), lambda: list(tensor.blocks())):
        with pytest.raises((TruncatedTensorError, EndOfDataError)) as caught:
            act()
        assert (caught.value.wanted, caught.value.got) == (48, 29)
    with pytest.raises(TruncatedTensorError):
        tensor.numpy(copy=False)


@pytest.mark.parametrize("name", ["float32", "int4"])
def test_span_that_is_too_short_for_the_shape(name):
    # A parser has to see to it; but no byte of a neighbour may ever be handed out.
    dtype = DTYPES[name]
    stored = sample(name, (4, 4))
    tensor = make(name, (100, 4), stored)
    for act in (tensor.numpy, lambda: tensor[50], lambda: list(tensor.blocks()), lambda: tensor.numpy(copy=False)):
        with pytest.raises(TruncatedTensorError):
            act()
    assert same(tensor[3], reference(name, (4, 4), stored)[3])
    huge = make(name, (1 << 60, 4), stored)  # and nothing is allocated for it
    with pytest.raises(TruncatedTensorError) as caught:
        huge.numpy()
    assert caught.value.wanted == dtype.stored_nbytes(1 << 62)


# -- sources that misbehave ------------------------------------------------------------------------------------------


def over(data: Data, name: str = "uint8", shape: tuple[int, ...] = (100,)) -> Tensor:
    return Tensor("w", DTYPES[name], shape, (Span(data, 0, DTYPES[name].stored_nbytes(elements(shape)), "f"),))


def test_a_read_that_fails_is_told_and_can_be_repeated():
    content = random_bytes(100)
    for fail_at in range(1, 5):
        failing = FailingData(content, fail_at)
        tensor = over(failing)
        for read in range(1, 5):
            if read == fail_at:
                with pytest.raises(SourceError):
                    tensor.numpy()
            else:
                assert tensor.numpy().tobytes() == content


def test_short_reads_are_made_up_for():
    content = random_bytes(100)
    for most in (1, 7, 99):
        tensor = over(ShortData(content, short_at=None, most=most))
        assert tensor.numpy().tobytes() == content
        assert tensor[10:90].tobytes() == content[10:90]
        assert over(ShortData(content, None, most), "int4", (200,)).numpy(raw=True).tolist() == (
            slow_codes(content, 4, 200).tolist()
        )


def test_stream_that_ends_early():
    data = UnknownSizeData(random_bytes(50))
    tensor = Tensor("w", DTYPES["uint8"], (100,), (Span(data, 10, 100, "f"),))
    with pytest.raises(EndOfDataError) as caught:
        tensor.numpy()
    assert (caught.value.offset, caught.value.wanted, caught.value.got) == (50, 100, 40)
    assert (caught.value.path, caught.value.source) == ("w", data.name)


def test_gap_in_the_source():
    content = random_bytes(100)
    tensor = over(GappyData(content, [(40, 20)]))
    assert tensor.status is Status.DAMAGED
    with pytest.raises(DamagedTensorError, match="lost"):
        tensor.numpy()
    assert tensor[:40].tobytes() == content[:40]
    assert tensor[60:].tobytes() == content[60:]
    with pytest.raises(DamagedTensorError):
        tensor[40]


# -- what it says of itself ------------------------------------------------------------------------------------------


def test_repr_shows_type_shape_size_and_status():
    assert repr(make("float32", (2, 3), bytes(24))) == "<Tensor 'w' float32 2×3, 24 B>"
    assert repr(make("int4", (), b"\0")) == "<Tensor 'w' int4 scalar, 1 B>"
    assert repr(make("bfloat16", (1024, 512), bytes(1 << 20), there=5)) == (
        "<Tensor 'w' bfloat16 1024×512, 1.0 MiB, truncated>"
    )


def test_a_tensor_is_complete_raw_and_little_endian_unless_said():
    tensor = make("float32", (2,), bytes(8))
    assert tensor.status is Status.COMPLETE
    assert tensor.verified is None
    assert tensor.finding is None
    assert (tensor.encoding, tensor.byteorder, tensor.stored_dtype) == ("raw", "little", "")


def test_a_tensor_can_be_used_after_its_with_block():
    with make("float32", (2,), bytes(8), how="spans") as tensor:
        assert tensor.numpy().tolist() == [0, 0]
    assert tensor.numpy().tolist() == [0, 0]


def test_tensor_keeps_its_owner():
    import gc
    import weakref

    class Document:
        pass

    document = Document()
    ref = weakref.ref(document)
    tensor = make("float32", (2,), bytes(8), owner=document)
    del document
    gc.collect()
    assert ref() is not None
    del tensor
    gc.collect()
    assert ref() is None


def test_a_span_compares_by_place_and_file():
    data = BytesData(bytes(100))
    span = Span(data, 10, 20, "f")
    assert span == Span(None, 10, 20, "f")
    assert hash(span) == hash(Span(None, 10, 20, "f"))
    assert span != Span(data, 10, 21, "f")
    assert span != Span(data, 11, 20, "f")
    assert span != Span(data, 10, 20, "g")
    assert span != "span"
    assert span.to_dict() == {"file": "f", "offset": 10, "length": 20}
    assert repr(span) == "Span('f', 10, 20)"
    assert span.there == 20
    assert Span(data, 90, 20, "f").there == 10
    assert Span(data, 200, 20, "f").there == 0
    assert Span(data, 100, 0, "f").there == 0
    assert Span(None, 10, 20, "f").there == 0


def test_larger_than_any_memory_is_only_numbers():
    tensor = Tensor(
        "w", DTYPES["float32"], (1 << 40, 1 << 20), (Span(BytesData(b""), 8, 1 << 62, "f"),), status=Status.MISSING
    )
    assert tensor.size == 1 << 60
    assert tensor.nbytes == 1 << 62
    assert tensor.available_nbytes == 0
    assert "PiB" in repr(tensor)


# -- torch -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


TORCH = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "complex64",
    "complex128",
    "uint16",
    "uint32",
    "uint64",
    "complex32",
]


@pytest.mark.parametrize("name", TORCH)
def test_torch_gets_type_shape_and_bytes(torch, name):
    if not hasattr(torch, name) or name not in ALL:
        pytest.skip("too old for this type")
    dtype = DTYPES[name]
    for shape in ((), (7,), (3, 4), (0,), (2, 0), (2, 3, 2)):
        count = elements(shape)
        stored = bytes(number % 2 for number in range(count)) if name == "bool" else sample(name, shape)
        for order in ("little", "big"):
            tensor = make(name, shape, stored, byteorder=order)
            found = tensor.torch()
            assert found.dtype == getattr(torch, name)
            assert tuple(found.shape) == shape
            assert found.is_contiguous()
            if count:
                assert bytes(found.untyped_storage()) == tensor.numpy(raw=True).tobytes()
        assert dtype.stored_nbytes(count) == len(stored)


def test_torch_is_a_copy(torch):
    tensor = make("float32", (3,), bytes(12))
    found = tensor.torch()
    found[0] = 1
    assert tensor.numpy().tolist() == [0, 0, 0]


def test_torch_gets_the_values_of_narrow_floats(torch):
    values = np.array([0.5, -2, 448, 0.001953125], np.float32)
    for name in ("bfloat16", "float8_e4m3fn", "float16"):
        stored = values.astype(DTYPES[name].numpy).tobytes()
        assert make(name, (4,), stored).torch().to(torch.float32).tolist() == values.tolist()


def test_torch_packed_fours(torch):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("too old for this type")
    stored = sample("float4_e2m1fn", (3, 4))
    found = make("float4_e2m1fn", (3, 4), stored).torch()
    assert found.dtype == torch.float4_e2m1fn_x2
    assert tuple(found.shape) == (3, 2)
    assert found.view(torch.uint8).numpy().tobytes() == stored
    for shape in ((0, 4), (4, 0)):
        assert make("float4_e2m1fn", shape, b"").torch().numel() == 0
    for shape in ((3,), ()):
        with pytest.raises(UnsupportedError, match="torch has no type"):
            make("float4_e2m1fn", shape, sample("float4_e2m1fn", shape)).torch()


@pytest.mark.parametrize("name", ["int4", "uint4", "int1", "float6_e2m3fn", "float8_e3m4", "float8_e4m3b11fnuz"])
def test_torch_has_no_such_type(torch, name):
    if name not in ALL:
        pytest.skip("too old for this type")
    with pytest.raises(UnsupportedError, match="torch has no type"):
        make(name, (8,), sample(name, (8,))).torch()


def test_torch_of_what_is_not_whole(torch, cut):
    with pytest.raises(TruncatedTensorError):
        cut.torch()
    with pytest.raises(TruncatedTensorError):
        make("float4_e2m1fn", (4,), bytes(2), there=1).torch()
    with pytest.raises(MissingTensorError):
        Tensor("w", None, (2,), (), status=Status.MISSING).torch()


def test_torch_of_strides(torch):
    storage = np.arange(12, dtype=np.float32)
    tensor = make("float32", (4, 3), storage.tobytes(), strides=(4, 16))
    assert tensor.torch().tolist() == storage.reshape(3, 4).T.tolist()


def test_torch_is_not_there(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match="torch") as caught:
        make("float32", (1,), bytes(4)).torch()
    assert caught.value.package == "torch"


def test_numbers_are_converted_to_a_type_of_any_name():
    tensor = make("float32", (3,), np.array([1.5, 65520.0, 1.00390625], "<f4").tobytes())
    assert tensor.numpy(dtype="torch.half").tolist() == [1.5, np.inf, 1.00390625]
    assert tensor.numpy(dtype="bf16").astype("f4").tolist() == [1.5, 65536.0, 1.0]
    assert tensor.numpy(dtype=np.int8, partial="fill").dtype == np.int8
    assert tensor.numpy(dtype="F32", copy=True).dtype == np.float32
    for refused in ({"dtype": "f2", "copy": False}, {"dtype": "f4", "raw": True}, {"dtype": "S4"}, {"dtype": "x"}):
        with pytest.raises(ValueError, match=r"not an element type|only a copy of numbers"):
            tensor.numpy(**refused)


def test_the_worst_status_of_a_document_counts_and_a_cut_one_lacks_a_byte():
    document = Extent(10)
    for found, kept in (("unsupported", "unsupported"), ("truncated", "truncated"), ("missing", "truncated")):
        document.worsen(Status(found))
        assert (document.document_status, document.is_sound) == (kept, False)
    document.end_early(-3)
    assert (document.expected, document.resume_at, document.at_least) == (11, 10, True)
    document.worsen(Status.DAMAGED)
    assert document.status == "damaged"
    assert Extent().is_sound


def test_a_doubt_counts_for_what_is_claimed_to_be_whole():
    def told(status: Status) -> tuple[Status, str | None]:
        tensor = Tensor("t", DTYPES["uint8"], (0,), (), status=status)
        tensor.doubt(Finding("doubt", "why"))
        return tensor.status, tensor.finding and tensor.finding.code

    assert told(Status.COMPLETE) == ("damaged", "doubt")
    assert [told(status)[0] for status in (Status.MISSING, Status.UNSUPPORTED)] == ["missing", "unsupported"]


@rows("status, code, severity", [("damaged", "bad-entry", "error"), ("unsupported", "unsupported", "warning")])
def test_the_status_of_a_tensor_tells_code_and_severity(status, code, severity):
    finding = finding_by_status(Status(status), "why")
    assert (finding.code, finding.severity) == (code, severity)
    assert finding_by_status(Status(status), "why", "hash").code == "hash"
