"""Tensors as those of torch."""

from __future__ import annotations

from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pparse.tensors.dtype import DType


def to_torch(tensor: Any, dtype: DType, stored_nbytes: int) -> Any:
    """Return a copy of a tensor, which has that many bytes as stored. Raises `UnsupportedError` without torch."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError("torch() needs the package torch", package="torch") from error
    target = getattr(torch, {"float4_e2m1fn": "float4_e2m1fn_x2"}.get(dtype.name, dtype.name), None)
    if dtype.name == "float4_e2m1fn" and target is not None and tensor.shape and not tensor.shape[-1] % 2:
        import numpy as np

        packed = np.empty(stored_nbytes, np.uint8)
        tensor.readinto(packed)
        shape = (*tensor.shape[:-1], tensor.shape[-1] // 2)
        return torch.from_numpy(packed).view(target).reshape(shape)
    if target is None or dtype.packed:
        raise UnsupportedError(f"torch has no type for {dtype}")
    array = tensor.numpy()
    if array.dtype.isbuiltin != 1:  # a type of ml_dtypes: pass its bits to torch as integers
        signed = {1: "i1", 2: "i2", 4: "i4"}[dtype.itemsize]
        return torch.from_numpy(array.view(signed)).view(target)
    return torch.from_numpy(array)
