"""Samples of tensors: types, ranks, strides, views, subclasses, sparse, quantized, nested, and those without data."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict

import torch

from tests.interop.pytorch_zoo.sample import ramp, saved

TYPES = (
    *("float32", "float64", "float16", "bfloat16", "bool", "complex32", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
SHAPES = ((), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (2, 1, 2, 3, 1))


def of_type(name: str, *shape: int) -> torch.Tensor:
    dtype = getattr(torch, name)
    if name.startswith("float8"):
        return ramp(*shape, dtype=torch.uint8).view(dtype)
    if name == "complex32":
        return ramp(*shape, dtype=torch.complex64).to(dtype)
    return ramp(*shape, dtype=dtype)


def every_type() -> dict[str, torch.Tensor]:
    return {name: of_type(name, 3, 5) for name in TYPES}


saved("dtypes.pt")(every_type)
saved("legacy/untyped.pt", "written by torch, and not read", _use_new_zipfile_serialization=False)(every_type)
saved("dtypes_protocol4.pt", pickle_protocol=4)(every_type)


@saved("legacy/dtypes.pt", "the types that the old format can hold", _use_new_zipfile_serialization=False)
def _typed():
    newer = ("float8", "complex32", "uint16", "uint32", "uint64")
    return {name: of_type(name, 3, 5) for name in TYPES if not name.startswith(newer)}


@saved("dtypes_ranks.pt", "each type with 0 to 5 dimensions")
def _ranks():
    return {f"{name}.{len(shape)}d": of_type(name, *shape) for name in TYPES for shape in SHAPES}


@saved("float4.pt", "two numbers to a byte, the first in the lower bits; torch's shape has the pairs, ours the numbers")
def _float4():
    return {"packed": torch.arange(12, dtype=torch.uint8).mul(21).reshape(3, 4).view(torch.float4_e2m1fn_x2)}


@saved("bits.pt", "types without a meaning: told as unsigned integers of their width")
def _bits():
    narrow = {
        name: ramp(2, 3, dtype=torch.uint8).view(getattr(torch, name))
        for name in ("bits8", "bits1x8", "bits2x4", "bits4x2")
    }
    return {**narrow, "bits16": ramp(2, 3, dtype=torch.int16).view(torch.bits16)}


def limits() -> dict[str, torch.Tensor]:
    inf = float("inf")
    return {
        "float32": torch.tensor([0.0, -0.0, inf, -inf, 1e-45, 3.4e38]),
        "nan": torch.tensor([0x7FC00000, 0x7F800001, -1], dtype=torch.int32).view(torch.float32),
        "bfloat16": torch.tensor([inf, -inf, 1e-40, -0.0]).bfloat16(),
        "int64": torch.tensor([-(2**63), 2**63 - 1, -1]),
        "uint64": torch.tensor([2**64 - 1, 0], dtype=torch.uint64),
        "bool": torch.tensor([True, False]),
    }


saved("limits.pt", "infinities, NaN with a payload, the least and greatest integers")(limits)


def views() -> dict[str, torch.Tensor]:
    base = ramp(6, 8)
    return {
        "base": base,
        "transposed": base.t(),
        "row": base[2],
        "column": base[:, 3],
        "stepped": base[::2, 1::3],
        "inner": base[1:4, 2:6],
        "scalar": base[5, 7],
        "diagonal": base.diagonal(1),
        "expanded": base[0, :1].expand(4, 3, 1),
        "broadcast": base[1].expand(3, 8),
        "permuted": base.view(2, 3, 8).permute(2, 0, 1),
        "windows": base.view(-1).unfold(0, 5, 3),
        "overlapping": base.view(-1).as_strided((4, 4), (2, 1), 7),
        "none": base[3:3],
    }


saved("views.pt", "many views over one storage")(views)
saved("legacy/views.pt", _use_new_zipfile_serialization=False)(views)


@saved("views_types.pt", "strides of every type")
def _views_of_types():
    return {name: of_type(name, 4, 6).t()[1::2] for name in TYPES}


@saved("channels_last.pt")
def _channels_last():
    return {
        "conv": ramp(4, 3, 2, 2).contiguous(memory_format=torch.channels_last),
        "conv3d": ramp(2, 3, 2, 2, 2).contiguous(memory_format=torch.channels_last_3d),
        "one": torch.empty_strided((1, 3), (1000, 1)).copy_(ramp(1, 3)),
    }


@saved("slice.pt", "4,000 bytes are stored for a slice of 12")
def _slice():
    return {"slice": ramp(1000)[500:503]}


@saved("overlap_storages.pt", "two slices saved together share one storage; a clone does not")
def _slices():
    base = ramp(50, dtype=torch.int32)
    return [base[:10], base[5:15], base[5:15].clone()]


def tied() -> dict[str, torch.Tensor]:
    weight = torch.nn.Parameter(ramp(5, 4))
    return OrderedDict([("embed.weight", weight), ("head.weight", weight), ("head.bias", ramp(5))])


saved("tied.pt", "one parameter under two names")(tied)
saved("legacy/tied.pt", _use_new_zipfile_serialization=False)(tied)


def empty() -> dict[str, torch.Tensor]:
    return {
        "none": torch.empty(0),
        "flat": torch.empty(3, 0, 2, dtype=torch.int16),
        "wide": torch.empty(0, 2**40, dtype=torch.uint8),
        "float8": torch.empty(0, 4, dtype=torch.float8_e5m2),
        "after": ramp(3),
    }


saved("empty.pt", "tensors without elements")(empty)


@saved("legacy/empty.pt", _use_new_zipfile_serialization=False)
def _legacy_empty():
    return {name: value for name, value in empty().items() if name != "float8"}


@saved("conj_neg.pt", "lazy bits: the stored numbers must be conjugated or negated")
def _lazy():
    base = ramp(2, 3, dtype=torch.complex64)
    return {
        "base": base,
        "conj": base.conj(),
        "conj_transposed": base.mH,
        "neg": ramp(2, 3, dtype=torch.complex64, start=6).conj().imag,
        "conj128": ramp(4, dtype=torch.complex128).conj(),
        "conj32": of_type("complex32", 4).conj(),
        "real": ramp(2, 3, dtype=torch.complex64, start=7).real,
        "neg_double": ramp(3, dtype=torch.complex128).conj().imag[1:],
    }


@saved("parameters.pt")
def _parameters():
    stated = torch.nn.Parameter(ramp(3), requires_grad=False)
    stated.note = "frozen"
    stated.scales = ramp(2, start=9)
    graded = ramp(2, 2).requires_grad_()
    return {
        "parameter": torch.nn.Parameter(ramp(2, 3)),
        "frozen": torch.nn.Parameter(ramp(2, 3, start=1), requires_grad=False),
        "stated": stated,
        "graded": graded,
        "buffer": torch.nn.Buffer(ramp(4)),
        "loose_buffer": torch.nn.Buffer(ramp(4, start=4), persistent=False),
        "float8": torch.nn.Parameter(of_type("float8_e4m3fn", 2, 2), requires_grad=False),
    }


@saved("attributes.pt", "tensors with attributes, one of them a tensor, and a subclass")
def _attributes():
    tensor = ramp(2, 3)
    tensor.note = "calibrated"
    tensor.history = [1, 2.5, {"deep": ramp(2)}]
    tagged = ramp(3).as_subclass(sys.modules["zoo_models"].Tagged)
    marked = ramp(3, start=3).as_subclass(sys.modules["zoo_models"].Tagged)
    marked.tag = "x"
    return {"tensor": tensor, "tagged": tagged, "marked": marked, "conj": ramp(2, dtype=torch.complex64).conj()}


def sparse() -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = ramp(4, 6) * (torch.arange(24).reshape(4, 6) % 3 == 0)
        doubled = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], ramp(3), (3, 4))
        return {
            "coalesced": dense.to_sparse().coalesce(),
            "doubled": doubled,
            "hybrid": torch.sparse_coo_tensor([[0, 2]], ramp(2, 3), (4, 3)),
            "none": torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (3, 3)),
            "csr": dense.to_sparse_csr(),
            "csc": dense.to_sparse_csc(),
            "bsr": dense.to_sparse_bsr((2, 3)),
            "bsc": dense.to_sparse_bsc((2, 3)),
            "csr_batch": torch.stack([dense, dense]).to_sparse_csr(),
            "csr_int32": torch.sparse_csr_tensor(
                torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), ramp(2), (2, 2)
            ),
            "half": dense.half().to_sparse(),
        }


saved("sparse.pt")(sparse)
saved("legacy/sparse.pt", _use_new_zipfile_serialization=False)(sparse)


@saved("sparse_root.pt", "the root is a sparse tensor")
def _sparse_root():
    return torch.eye(3).to_sparse()


def quantized() -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = ramp(2, 6)
        scales, points = torch.tensor([0.1, 0.25], dtype=torch.float64), torch.tensor([3, 0])
        floats = torch.tensor([0.5, 1.5]), torch.tensor([1.0, 2.0])
        return {
            "tensor_quint8": torch.quantize_per_tensor(dense, 0.1, 60, torch.quint8),
            "tensor_qint8": torch.quantize_per_tensor(dense, 0.125, -3, torch.qint8),
            "tensor_qint32": torch.quantize_per_tensor(dense, 0.001, 7, torch.qint32),
            "channel_qint8": torch.quantize_per_channel(dense, scales, points, 0, torch.qint8),
            "channel_float": torch.quantize_per_channel(dense, *floats, 0, torch.quint8),
            "channel_quint4x2": torch.quantize_per_channel(dense, *floats, 0, torch.quint4x2),
            "view": torch.quantize_per_tensor(dense, 0.1, 60, torch.quint8).t(),
        }


saved("quantized.pt")(quantized)
saved("legacy/quantized.pt", _use_new_zipfile_serialization=False)(quantized)


@saved("nested.pt")
def _nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "rows": torch.nested.nested_tensor([ramp(3), ramp(5, start=3)]),
            "matrices": torch.nested.nested_tensor([ramp(2, 3), ramp(1, 3, start=6), ramp(0, 3)]),
        }


@saved("jagged.pt", "a subclass of tensors in Python, whose parts are in its state")
def _jagged():
    return {"rows": torch.nested.nested_tensor([ramp(3), ramp(5, start=3)], layout=torch.jagged)}


@saved("meta.pt", "tensors without data, and one with")
def _meta():
    return {
        "meta": torch.empty(1000, 1000, 1000, device="meta"),
        "strided": torch.empty(4, 6, device="meta", dtype=torch.bfloat16).t(),
        "parameter": torch.nn.Parameter(torch.empty(3, 2, device="meta")),
        "real": ramp(2, 2),
    }


def storages() -> dict[str, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shared = ramp(4, dtype=torch.int16)
        return {
            "untyped": ramp(3).untyped_storage(),
            "float": ramp(5, start=2).storage(),
            "bool": ramp(6, dtype=torch.bool).storage(),
            "bfloat16": ramp(3, dtype=torch.bfloat16).storage(),
            "tensor": shared,
            "same": shared.storage(),
            "none": torch.UntypedStorage(0),
        }


saved("storages.pt", "storages pickled bare")(storages)


@saved("legacy/storages.pt", _use_new_zipfile_serialization=False)
def _legacy_storages():
    return {name: value for name, value in storages().items() if name not in ("untyped", "none")}


@saved("root_tensor.pt", 'the root is a tensor: its name is ""')
def _root():
    return ramp(2, 3)


@saved("root_parameter.pt")
def _root_parameter():
    return torch.nn.Parameter(ramp(3))


@saved("root_list.pt")
def _root_list():
    return [ramp(2), (ramp(3, start=2), "x"), ramp(1)]


@saved("root_storage.pt")
def _root_storage():
    return ramp(3).untyped_storage()


@saved("root_none.pt", "no tensors at all")
def _root_none():
    return None


@saved("root_empty_dict.pt")
def _root_empty():
    return {}
