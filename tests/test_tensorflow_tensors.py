"""TensorProtos to tensors: every type, every way to write elements, what is cut, damaged or absurd."""

from __future__ import annotations

import numpy as np
import pytest

import pparse
from pparse.errors import DamagedTensorError, LimitError, MissingTensorError, TruncatedTensorError, UnsupportedError
from pparse.findings import Severity, Status
from pparse.protos import message_class
from tests.rows import rows

GRAPH = message_class("tensorflow.GraphDef")
TENSOR = message_class("tensorflow.TensorProto")

# number of the type, field that lists its elements, name of the dtype, elements, and what the array has
LISTED = [
    (1, "float_val", "float32", [1.5, -2.0, 3.25]),
    (2, "double_val", "float64", [1.5, -2.0, 1e300]),
    (3, "int_val", "int32", [1, -2, 2**31 - 1]),
    (4, "int_val", "uint8", [1, 200, 255]),
    (5, "int_val", "int16", [1, -2, -30000]),
    (6, "int_val", "int8", [1, -2, -128]),
    (9, "int64_val", "int64", [1, -2, 2**62]),
    (10, "bool_val", "bool", [True, False, True]),
    (11, "int_val", "int8", [1, -2, -128]),
    (12, "int_val", "uint8", [1, 200, 255]),
    (13, "int_val", "int32", [1, -2, -(2**31)]),
    (15, "int_val", "int16", [1, -2, -30000]),
    (16, "int_val", "uint16", [1, 2, 65535]),
    (17, "int_val", "uint16", [1, 2, 65535]),
    (22, "uint32_val", "uint32", [1, 2, 2**32 - 1]),
    (23, "uint64_val", "uint64", [1, 2, 2**64 - 1]),
    (29, "int_val", "int4", [1, -2, -8]),
    (30, "int_val", "uint4", [1, 2, 15]),
    (31, "int_val", "int2", [1, -2, 0]),
    (32, "int_val", "uint2", [1, 2, 3]),
]


def proto(dtype: int, shape: tuple[int, ...] = (), **fields: object):
    made = TENSOR(dtype=dtype, **fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    if not shape:
        made.tensor_shape.SetInParent()
    return made


def serialized(*tensors) -> bytes:
    graph = GRAPH()
    for number, tensor in enumerate(tensors):
        node = graph.node.add(name=f"t{number}", op="Const")
        node.attr["value"].tensor.CopyFrom(tensor)
    return graph.SerializeToString()


def view(*tensors):
    return pparse.view(serialized(*tensors), format="graph-def")


@rows(("number", "field", "name", "values"), LISTED)
def test_listed_elements_of_every_type(number, field, name, values):
    viewer = view(
        proto(number, (3,), **{field: values}),
        proto(number, (2, 2), **{field: values[:1]}),
        proto(number, (5,), **{field: values}),
        proto(number, (2,)),
        proto(number + 100, (3,), **{field: values}),
        proto(number, (), **{field: values[-1:]}),
        proto(number, (0, 3)),
    )
    dtype = pparse.tensors.dtype.DType.of(name).numpy
    expected = np.array(values, "u8" if name == "uint64" else None).astype(dtype)
    assert viewer["t0"].dtype.name == name
    for got, wanted in (
        (viewer["t0"], expected),
        (viewer["t1"], np.full((2, 2), expected[0])),
        (viewer["t2"], expected[[0, 1, 2, 2, 2]]),
        (viewer["t3"], np.zeros(2, dtype)),
        (viewer["t4"], expected),
        (viewer["t5"], expected[-1]),
        (viewer["t6"], np.zeros((0, 3), dtype)),
    ):
        array = got.numpy()
        assert array.dtype == dtype
        assert array.shape == wanted.shape
        assert np.array_equal(array, wanted)
    assert viewer["t1"].encoding == "splat"
    assert viewer["t2"].encoding == "repeat"
    assert viewer["t3"].encoding == "zeros"
    assert viewer["t4"].stored_dtype.endswith("_REF")


@pytest.mark.parametrize("number", [8, 18])
def test_complex_numbers_are_listed_in_pairs(number):
    field = {8: "scomplex_val", 18: "dcomplex_val"}[number]
    viewer = view(proto(number, (3,), **{field: [1, 2, 3, 4]}), proto(number, (2,), **{field: [1, 2, 3, 4]}))
    assert viewer["t0"].numpy().tolist() == [1 + 2j, 3 + 4j, 3 + 4j]
    assert viewer["t1"].numpy().tolist() == [1 + 2j, 3 + 4j]
    assert viewer["t1"].encoding == "raw"  # the pairs as they stand in the file


@pytest.mark.parametrize(("number", "bits"), [(19, [0x3C00, 0xC000, 0x7C00]), (14, [0x3F80, 0xC000, 0x7F80])])
def test_halves_are_bits(number, bits):
    tensor = view(proto(number, (4,), half_val=bits))["t0"]
    assert tensor.numpy(raw=True).tolist() == [*bits, bits[-1]]
    assert tensor.numpy().astype("f4").tolist() == [1.0, -2.0, np.inf, np.inf]


@pytest.mark.parametrize("number", range(24, 29))
def test_eighths_are_bytes(number):
    viewer = view(proto(number, (3,), float8_val=b"\x01\x80\x7f"), proto(number, (3,), float8_val=b"\x01\x80"))
    assert viewer["t0"].numpy(raw=True).tolist() == [1, 128, 127]
    assert viewer["t0"].encoding == "raw"
    assert viewer["t1"].numpy(raw=True).tolist() == [1, 128, 128]


@pytest.mark.parametrize("number", [29, 30, 31, 32, 33])
def test_types_below_a_byte_take_a_byte_each(number):
    tensor = view(proto(number, (2, 2), tensor_content=b"\x01\x00\x01\x01"))["t0"]
    assert tensor.numpy(raw=True).tolist() == [[1, 0], [1, 1]]
    assert tensor[1, 0] == tensor.numpy()[1, 0]
    assert tensor[:, 1].tolist() == tensor.numpy()[:, 1].tolist()


def test_content_has_its_place_in_the_file():
    array = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    raw = serialized(proto(1, (2, 3, 4), tensor_content=array.tobytes()))
    tensor = pparse.view(raw, format="graph-def")["t0"]
    (span,) = tensor.spans
    assert raw[span.offset : span.offset + span.length] == array.tobytes()
    assert np.array_equal(tensor.numpy(), array)
    assert np.array_equal(tensor[1, ::2], array[1, ::2])
    assert np.array_equal(tensor.numpy(copy=False), array)


def test_content_wins_over_listed_elements_and_empty_content_does_not():
    viewer = view(
        proto(1, (2,), tensor_content=np.array([1, 2], "<f4").tobytes(), float_val=[9, 9]),
        proto(1, (2,), tensor_content=b"", float_val=[9]),
    )
    assert viewer["t0"].numpy().tolist() == [1, 2]
    assert viewer["t1"].numpy().tolist() == [9, 9]


def test_content_of_another_size_is_damaged():
    tensor = view(proto(1, (2,), tensor_content=bytes(7)))["t0"]
    assert tensor.status is Status.DAMAGED
    assert (tensor.finding.wanted, tensor.finding.got) == (8, 7)
    with pytest.raises(DamagedTensorError, match="need 8"):
        tensor.numpy()


def test_too_many_elements_are_warned_of():
    tensor = view(proto(3, (2,), int_val=[1, 2, 3]))["t0"]
    assert tensor.numpy().tolist() == [1, 2]
    assert tensor.finding.code == "extra-values"
    assert tensor.finding.severity is Severity.WARNING
    assert tensor.status is Status.COMPLETE


def test_a_splat_costs_what_is_asked_for():
    tensor = view(proto(1, (1 << 20, 1 << 15), float_val=[2.5]))["t0"]
    assert tensor.nbytes == 1 << 37
    assert tensor.stored_nbytes == 4
    assert tensor[12345, 3:6].tolist() == [2.5] * 3
    assert next(tensor.blocks(1 << 16)).tolist() == [2.5] * (1 << 14)
    with pytest.raises(LimitError):
        view(proto(1, (1 << 50,), float_val=[2.5]))["t0"].numpy()


def test_what_repeats_is_right_at_every_offset():
    values = np.array([1, 2, 3], "<i8")
    tensor = view(proto(9, (10,), int64_val=values.tolist()))["t0"]
    whole = np.concatenate((values, np.full(7, 3))).astype("<i8")
    data = tensor._content.data
    for start in range(80):
        for length in (1, 3, 8, 17, 40):
            assert data.pread(start, length) == whole.tobytes()[start : start + length]


def test_many_listed_elements_are_read_piece_by_piece():
    numbers = [(number * 7919) % 100_000 - 50_000 for number in range(30_000)]
    viewer = view(
        proto(3, (40_000,), int_val=numbers), proto(10, (300, 100), bool_val=[n % 3 == 0 for n in range(30_000)])
    )
    whole = np.array(numbers + numbers[-1:] * 10_000, "i4")
    assert np.array_equal(viewer["t0"].numpy(), whole)
    assert viewer["t0"][4_095:4_098].tolist() == whole[4_095:4_098].tolist()
    assert viewer["t0"][29_998:30_003].tolist() == whole[29_998:30_003].tolist()
    assert np.array_equal(np.concatenate(list(viewer["t0"].blocks(1000))), whole)
    assert viewer["t1"][7].tolist() == [n % 3 == 0 for n in range(700, 800)]


def test_elements_that_stand_one_by_one_and_packed_ones_add_up():
    loose = b"".join(b"\x38" + bytes([number]) for number in (1, 2, 3))  # int_val, not packed
    packed = b"\x3a\x02\x04\x05"
    head = proto(3, (7,)).SerializeToString()
    for body in (loose, loose + packed, packed + loose):
        graph = GRAPH()
        node = graph.node.add(name="t", op="Const")
        node.attr["value"].tensor.ParseFromString(head + body)
        expected = list(node.attr["value"].tensor.int_val)
        # protobuf writes them packed: put them back as they were
        raw = graph.SerializeToString()
        canonical = node.attr["value"].tensor.SerializeToString()
        assert canonical in raw
        tensor_bytes = head + body
        value = b"\x42" + bytes([len(tensor_bytes)]) + tensor_bytes
        pair = b"\x0a\x05value\x12" + bytes([len(value)]) + value
        node_bytes = b"\x0a\x01t\x12\x05Const\x2a" + bytes([len(pair)]) + pair
        viewer = pparse.view(b"\x0a" + bytes([len(node_bytes)]) + node_bytes, format="graph-def")
        assert viewer["t"].numpy().tolist() == expected + expected[-1:] * (7 - len(expected))


def test_strings_of_a_tensor_are_given_one_by_one():
    viewer = view(
        proto(7, (3,), string_val=[b"a", b"", b"\xff\0"]),
        proto(7, (2, 2), string_val=[b"x"]),
        proto(7, (2,)),
        proto(7, (3,), tensor_content=b"\x01\x00\x02a\xff\0"),
        proto(7, (3,), tensor_content=b"\x01\x00\x03a\xff\0"),
        proto(7, (1,), string_val=[b"a", b"b"]),
    )
    assert list(viewer["t0"].strings()) == [b"a", b"", b"\xff\0"]
    assert list(viewer["t1"].strings()) == [b"x"] * 4
    assert list(viewer["t2"].strings()) == [b"", b""]
    assert list(viewer["t3"].strings()) == [b"a", b"", b"\xff\0"]
    with pytest.raises(pparse.MalformedError, match="do not fill"):
        list(viewer["t4"].strings())
    assert list(viewer["t5"].strings()) == [b"a"]
    assert viewer["t5"].finding.code == "extra-values"
    assert viewer["t0"].dtype is None
    assert viewer["t0"].stored_dtype == "DT_STRING"
    with pytest.raises(UnsupportedError, match="not of strings"):
        next(view(proto(1, ()))["t0"].strings())


def test_texts_are_arrays_of_bytes_and_take_slices():
    viewer = view(
        proto(7, (3,), string_val=[b"a", b"", b"\xff\0"]),
        proto(7, (2, 2), string_val=[b"x", b"y"]),
        proto(7, (1 << 40,), string_val=[b"x"]),
        proto(7, (3,), tensor_content=b"\x01\x00\x03a\xff\0"),
    )
    assert viewer["t0"].numpy().dtype == object
    assert viewer["t0"].numpy().tolist() == [b"a", b"", b"\xff\0"]
    assert viewer["t0"][0] == b"a"
    assert viewer["t0"][::2].tolist() == [b"a", b"\xff\0"]
    assert viewer["t1"][1].tolist() == [b"y", b"y"]
    assert viewer["t1"][..., 0].tolist() == [b"x", b"y"]
    with pytest.raises(IndexError):
        viewer["t0"][3]
    with pytest.raises(pparse.LimitError):
        viewer["t2"].numpy()
    with pytest.raises(pparse.MalformedError):
        viewer["t3"].numpy()


def test_what_is_no_number():
    viewer = view(proto(20, ()), proto(21, (2,)), proto(77, (2,)))
    for name, stored in (("t0", "DT_RESOURCE"), ("t1", "DT_VARIANT"), ("t2", "DT_77")):
        tensor = viewer[name]
        assert (tensor.status, tensor.dtype, tensor.stored_dtype) == (Status.UNSUPPORTED, None, stored)
        with pytest.raises(UnsupportedError):
            tensor.numpy()


def test_shapes_that_no_constant_has():
    unknown_rank = proto(1, (), float_val=[4])
    unknown_rank.tensor_shape.unknown_rank = True
    both = proto(1, (2,), float_val=[4])
    both.tensor_shape.unknown_rank = True
    viewer = view(
        proto(1, (-1, 3), float_val=[1]),
        unknown_rank,
        both,
        proto(1, (1 << 40, 1 << 40), float_val=[1]),
        proto(1, (1 << 40, 1 << 40, 0)),
        TENSOR(dtype=1, float_val=[7]),
    )
    assert (viewer["t0"].shape, viewer["t0"].status) == ((-1, 3), Status.DAMAGED)
    assert viewer["t1"].numpy().tolist() == 4.0  # TensorFlow takes it for a scalar
    assert viewer["t2"].status is Status.DAMAGED
    assert viewer["t3"].status is Status.DAMAGED
    assert viewer["t5"].numpy() == 7.0


def test_every_cut_gives_a_prefix_or_nothing():
    arrays = [np.arange(5, dtype="<f4"), np.arange(300, 306, dtype="<i8").reshape(3, 2), np.array([True, False, True])]
    raw = serialized(
        proto(1, (5,), tensor_content=arrays[0].tobytes()),
        proto(9, (3, 2), int64_val=arrays[1].reshape(-1).tolist()),
        proto(10, (3,), bool_val=arrays[2].tolist()),
        proto(1, (4,), float_val=[1.5]),
    )
    arrays.append(np.full(4, 1.5, "f4"))
    seen = set()
    for end in range(len(raw)):
        viewer = pparse.view(raw[:end], format="graph-def")
        for tensor in viewer.tensors():
            whole = arrays[int(tensor.name[1:])] if tensor.name[1:].isdigit() else None
            seen.add(tensor.status)
            if tensor.status is Status.COMPLETE:
                assert np.array_equal(tensor.numpy(), whole)
            elif tensor.status is Status.TRUNCATED:
                part = tensor.numpy(partial="prefix")
                assert np.array_equal(part, whole[: len(part)])
                filled = tensor.numpy(partial="fill")
                assert np.array_equal(filled.compressed(), whole.reshape(-1)[: filled.count()])
                with pytest.raises(TruncatedTensorError):
                    tensor.numpy()
            else:
                with pytest.raises((MissingTensorError, UnsupportedError)):
                    tensor.numpy()
    assert seen == {Status.COMPLETE, Status.TRUNCATED, Status.MISSING}


def test_a_length_that_is_wrong_damages_one_tensor_only():
    raw = bytearray(serialized(proto(1, (2,), tensor_content=b"abcdefgh"), proto(1, (), float_val=[5])))
    at = raw.index(b"\x08abcdefgh")
    raw[at] = 9
    viewer = pparse.view(bytes(raw), format="graph-def")
    assert viewer["t0"].status is Status.DAMAGED
    assert viewer["t0"].shape == (2,)
    assert viewer["t1"].numpy() == 5


def test_a_closed_document_gives_nothing():
    viewer = view(proto(1, (2,), float_val=[1]))
    tensor = viewer["t0"]
    tensor.numpy()
    viewer.close()
    with pytest.raises(pparse.ClosedError):
        tensor.numpy()
