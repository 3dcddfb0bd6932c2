"""`StateDict`: the tensors of a viewer as torch has them, one at a time."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, ValuesView

from pparse.errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pparse.tensors.dtype import DType


class StateDict(Mapping[str, "Any"]):
    """A mapping of names to torch tensors, each read when it is asked for."""

    def __init__(self, viewer: Mapping[str, Any], prefix: str = "") -> None:
        self._viewer = viewer
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        return self._viewer[self._prefix + name].torch()

    def __iter__(self) -> Iterator[str]:
        start = len(self._prefix)
        return (name[start:] for name in self._viewer if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the tensors, read one after the other."""
        return _TensorValues(self)

    def items(self) -> ItemsView[str, Any]:
        """Return a view of names and tensors, read one after the other."""
        return _Items(self)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        start = len(self._prefix)
        for tensor in self._viewer.values():
            if tensor.name.startswith(self._prefix):
                yield tensor.name[start:], tensor.torch()

    def __repr__(self) -> str:
        return f"<StateDict of {len(self)} tensors, whose names began with {self._prefix!r}>"


class _TensorValues(ValuesView["Any"]):
    __slots__ = ()
    _mapping: StateDict

    def __iter__(self) -> Iterator[Any]:
        return (tensor for _, tensor in self._mapping._pairs())


class _Items(ItemsView[str, "Any"]):
    __slots__ = ()
    _mapping: StateDict

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping._pairs()


# -- Tensors as those of torch -----------------------------------------------------------------------------------------


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
