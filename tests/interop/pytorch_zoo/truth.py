"""What is in a checkpoint, as the real torch reads it: its tensors, and everything else, by dotted names.

Names: dict keys as ``str(key)``, list and tuple positions as numbers, attributes by their names; of a module its
parameters, buffers (persistent or not), other attributes (those that begin with ``_`` left out) and submodules. What
lies directly at the root has no dot before it; a tensor that is itself the root has the name "". The second of two
equal names becomes ``name#2``. Shared objects are told at each place; an object inside itself is not followed again.
"""

from __future__ import annotations

import enum
import hashlib
import pickle
import types
import zipfile

import numpy as np
import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

# numpy's and ml_dtypes' names where torch has another one; quantized types are told as their codes.
NAMES = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "quint4x2": "uint4",
    "quint2x4": "uint2",
    "bits8": "uint8",
    "bits1x8": "uint8",
    "bits2x4": "uint8",
    "bits4x2": "uint8",
    "bits16": "uint16",
    "float4_e2m1fn_x2": "float4_e2m1fn",
}
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
TORCH_LEAVES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
LONG = 500  # of longer texts and bytes the hash is kept
PLAIN = (bool, int, float, str)


def dtype_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return NAMES.get(name, name)


def split_bytes(packed: bytes, bits: int, count: int) -> bytes:
    """Return the first ``count`` codes of ``bits`` bits, one per byte; the first is in the lowest bits."""
    per = 8 // bits
    codes = (byte >> bits * place & (1 << bits) - 1 for byte in packed for place in range(per))
    return bytes(codes)[:count]


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Return the values of a dense tensor, in order, as little-endian bytes."""
    flat = tensor.detach().resolve_conj().resolve_neg()
    if flat.dtype.is_complex or flat.dtype.is_floating_point or not flat.is_contiguous():
        flat = flat.contiguous()
    return flat.reshape(-1).view(torch.uint8).numpy().tobytes()


class Recording(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """An unpickler that notes by which key torch asked for each storage."""

    keys: dict[int, str]
    alive: list[Any]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "persistent_load":
            load = value

            def value(pid: Any) -> Any:
                found = load(pid)
                if isinstance(pid, tuple) and pid[0] == "storage":
                    self.keys[found._untyped_storage._cdata] = str(pid[2])
                    self.alive.append(found)
                return found

        super().__setattr__(name, value)


def recording() -> tuple[Any, dict[int, str]]:
    """Return a stand-in for the module pickle, and the keys it will note: of each storage, by its address."""
    keys: dict[int, str] = {}

    class Unpickler(Recording):
        pass

    Unpickler.keys = keys
    Unpickler.alive = []
    module = types.ModuleType("pickle")
    vars(module).update(Unpickler=Unpickler, load=lambda file, **options: Unpickler(file, **options).load())
    return module, keys


class Truth:
    """The tensors and other leaves of one object."""

    def __init__(self, keys: dict[int, str] | None = None) -> None:
        self.keys = keys or {}
        self.tensors: list[dict[str, Any]] = []
        self.composites: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.opaque = False
        self._names: dict[str, int] = {}

    def to_dict(self) -> dict[str, Any]:
        # What a subclass keeps beside its tensors differs with the version of torch.
        metadata = {} if self.opaque else self.metadata
        found: dict[str, Any] = {"tensors": self.tensors, "metadata": metadata}
        if self.composites:
            found["composites"] = self.composites
        return found

    # -- rows ----------------------------------------------------------------------------------------------------

    def row(self, name: str, dtype: str, shape: Any, raw: bytes | None, kind: str, **more: Any) -> None:
        count = self._names[name] = self._names.get(name, 0) + 1
        self.tensors.append(
            {
                "name": name if count == 1 else f"{name}#{count}",
                "dtype": dtype,
                "shape": list(shape),
                "kind": kind,
                "sha256": None if raw is None else hashlib.sha256(raw).hexdigest(),
                **more,
            }
        )

    def dense(self, name: str, tensor: torch.Tensor, kind: str = "strided") -> None:
        """Note a tensor with strides, or one without data."""
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if tensor.device.type == "meta":
            self.row(name, dtype_name(tensor.dtype), shape, None, "meta")
            return
        raw = raw_bytes(tensor)
        if dtype == "float4_e2m1fn_x2":
            shape[-1] *= 2
            raw = split_bytes(raw, 4, 2 * len(raw))
        more = {
            "storage": self.keys.get(tensor.untyped_storage()._cdata),
            "offset": tensor.storage_offset(),
            "stride": list(tensor.stride()),
        }
        self.row(name, dtype_name(tensor.dtype), shape, raw, kind, **more)

    def quantized(self, name: str, tensor: torch.Tensor) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        codes = tensor.int_repr().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        bits = {"quint4x2": 4, "quint2x4": 2}.get(dtype)
        if bits:
            codes = split_bytes(codes, bits, tensor.numel())
        scheme = str(tensor.qscheme()).removeprefix("torch.")
        facts: dict[str, Any] = {"scheme": scheme}
        if scheme.startswith("per_tensor"):
            facts.update(scale=tensor.q_scale(), zero_point=tensor.q_zero_point())
        else:
            facts.update(
                scale=tensor.q_per_channel_scales().tolist(),
                zero_point=tensor.q_per_channel_zero_points().tolist(),
                axis=tensor.q_per_channel_axis(),
            )
        storage = self.keys.get(tensor.untyped_storage()._cdata)
        more = {"storage": storage, "quantized": facts, "torch_dtype": dtype}
        self.row(name, dtype_name(tensor.dtype), tensor.shape, codes, "quantized", **more)

    def sparse(self, name: str, tensor: torch.Tensor) -> None:
        kind = str(tensor.layout).removeprefix("torch.")
        facts = {"name": name, "kind": kind, "shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)}
        if tensor.layout is torch.sparse_coo:
            facts["coalesced"] = tensor.is_coalesced()
            parts = {"indices": tensor._indices(), "values": tensor._values()}
        else:
            parts = {part: getattr(tensor, part)() for part in COMPRESSED[tensor.layout]}
            parts["values"] = tensor.values()
        self.composites.append(facts)
        for part, found in parts.items():
            self.dense(joined(name, part), found, kind)

    def nested(self, name: str, tensor: torch.Tensor) -> None:
        facts = {"name": name, "kind": "nested", "dtype": dtype_name(tensor.dtype)}
        facts["sizes"] = tensor._nested_tensor_size().tolist()
        facts["strides"] = tensor._nested_tensor_strides().tolist()
        facts["offsets"] = tensor._nested_tensor_storage_offsets().tolist()
        self.composites.append(facts)
        self.dense(joined(name, "values"), tensor.values(), "nested")

    def tensor(self, name: str, tensor: torch.Tensor) -> None:
        if type(tensor).__module__.startswith("torch.nested"):  # jagged: only its parts have bytes
            facts = {"name": name, "kind": "jagged", "dtype": dtype_name(tensor.dtype), "ndim": tensor.dim()}
            self.composites.append(facts)
            self.opaque = True
        elif tensor.is_nested:
            self.nested(name, tensor)
        elif tensor.is_quantized:
            self.quantized(name, tensor)
        elif tensor.layout is not torch.strided:
            self.sparse(name, tensor)
        else:
            self.dense(name, tensor)

    def array(self, name: str, array: np.ndarray) -> None:
        plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        dtype = array.dtype.newbyteorder("<")
        self.row(name, dtype.str if dtype.kind in "SUV" else dtype.name, array.shape, plain.tobytes(), "numpy")

    def storage(self, name: str, storage: Any) -> None:
        untyped = storage if isinstance(storage, torch.UntypedStorage) else storage._untyped_storage
        dtype = torch.uint8 if untyped is storage else storage.dtype
        raw = bytes(untyped.tolist())
        count = len(raw) // torch._utils._element_size(dtype)
        self.row(name, dtype_name(dtype), [count], raw, "storage", storage=self.keys.get(untyped._cdata))

    # -- the walk ------------------------------------------------------------------------------------------------

    def walk(self, value: Any, name: str | None = None, above: tuple[int, ...] = ()) -> Truth:
        """Note everything in ``value``, whose name is that; ``above`` are the objects around it."""
        if id(value) in above:
            return self
        if isinstance(value, torch.Tensor):
            self.tensor(name or "", value)
        elif isinstance(value, torch.UntypedStorage | torch.TypedStorage):
            self.storage(name or "", value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.array(name or "", value)
        elif not children(value):
            self.metadata[name or ""] = leaf(value)
        for key, child in children(value):
            self.walk(child, joined(name, key), (*above, id(value)))
        return self


def joined(name: str | None, key: Any) -> str:
    """Return the name of what lies under a key; classes are named as in a pickle, with their module."""
    if isinstance(key, type):
        key = f"{key.__module__}.{key.__qualname__}"
    return str(key) if name is None or (name == "" and key in ("indices", "values")) else f"{name}.{key}"


def _module_children(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    found = [(key, child) for key, child in module._parameters.items() if child is not None]
    found += [(key, child) for key, child in module._buffers.items() if child is not None]
    found += [(key, child) for key, child in vars(module).items() if not key.startswith("_")]
    return found + list(module._modules.items())


def children(value: Any) -> list[tuple[Any, Any]]:
    """Return what lies in a container or object, with its key, position or attribute name."""
    if isinstance(value, torch.nn.Module):
        return _module_children(value)
    if isinstance(value, dict):
        return [*value.items(), *getattr(value, "__dict__", {}).items()]
    if isinstance(value, list | tuple):
        return [*enumerate(value)]
    if isinstance(value, np.ndarray):
        return [*enumerate(value.reshape(-1).tolist())] if value.dtype.hasobject else []
    simple = (type, enum.Enum, types.FunctionType, torch.UntypedStorage, torch.TypedStorage)
    if isinstance(value, simple) or not hasattr(value, "__reduce_ex__"):
        return []
    slots = [(key, getattr(value, key)) for key in getattr(type(value), "__slots__", ()) if hasattr(value, key)]
    return [*slots, *getattr(value, "__dict__", {}).items()]


def leaf(value: Any) -> Any:
    """Return a value as JSON can tell it."""
    if isinstance(value, np.generic):
        return {"numpy": value.dtype.name, "value": leaf(value.item())}
    if isinstance(value, str | bytes | bytearray) and len(value) > LONG:
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        return {"long": type(value).__name__, "length": len(value), "sha256": hashlib.sha256(raw).hexdigest()}
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(leaf, value), key=repr)}
    if isinstance(value, TORCH_LEAVES):
        return {"torch": str(value)}
    if isinstance(value, enum.Enum):
        return {"object": f"{type(value).__module__}.{type(value).__qualname__}", "value": leaf(value.value)}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return {"global": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, dict | list | tuple):
        return {"empty": type(value).__name__}
    return {"object": f"{type(value).__module__}.{type(value).__qualname__}"}


# -- files ---------------------------------------------------------------------------------------------------------


def of_torch(path: Path) -> dict[str, Any]:
    """Return what torch.load finds in a file."""
    module, keys = recording()
    value = torch.load(path, map_location="cpu", weights_only=False, pickle_module=module)
    return Truth(keys).walk(value).to_dict()


def of_pickle(path: Path, unpickler: Any = pickle.Unpickler) -> dict[str, Any]:
    """Return what pickle.load, or that unpickler, finds in a file."""
    with path.open("rb") as file:
        return Truth().walk(unpickler(file).load()).to_dict()


class _Part:
    """Stands for an object, class or function of a TorchScript file."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Named(pickle._Unpickler):  # type: ignore[name-defined,misc]
    def find_class(self, module: str, name: str) -> Any:
        if name.startswith("_rebuild_tensor"):
            return lambda storage, *_: ("tensor", storage)
        if module == "torch.jit._pickle":
            return lambda found, *_: found
        if module == "collections":
            return dict
        return type(name, (_Part,), {"kind": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        return pid[2]


def _script_names(value: Any, name: str, found: dict[str, str]) -> None:
    if isinstance(value, tuple) and value[:1] == ("tensor",):
        found[name] = value[1]
        return
    inside: Any = ()
    if isinstance(value, _Part):
        inside = vars(value).items()
    elif isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
    for key, child in inside:
        if key != "args":
            _script_names(child, f"{name}/{key}" if name else str(key), found)


def of_script(path: Path) -> dict[str, Any]:
    """Return the tensors that torch.jit.load gives the attributes of a module, and the constants of its code.

    The keys of storages come from the two pickles, read with classes that stand for those of the file.
    """
    names: list[dict[str, str]] = []
    with zipfile.ZipFile(path) as archive:
        for record in ("data.pkl", "constants.pkl"):
            member = next(name for name in archive.namelist() if name.split("/", 1)[1] == record)
            with archive.open(member) as file:
                found: dict[str, str] = {}
                _script_names(_Named(file).load(), "", found)
                names.append(found)
    module = torch.jit.load(path)
    truth = Truth()
    for name, key in names[0].items():
        value: Any = module
        for part in name.split("/"):
            if isinstance(value, dict):
                value = value[part]
            else:
                value = value[int(part)] if isinstance(value, list | tuple) else getattr(value, part)
        truth.dense(name.replace("/", "."), value)
        truth.tensors[-1]["storage"] = key
    told = truth.to_dict()
    weights = set(module.state_dict())
    assert weights <= {row["name"] for row in told["tensors"]}, weights
    constants = _constants(module)
    assert len(constants) == len(names[1]), (constants, names[1])
    truth = Truth()
    for (number, key), value in zip(names[1].items(), constants, strict=True):
        truth.dense(f"CONSTANTS.c{number}", value)
        truth.tensors[-1]["storage"] = f"constants/{key}"
    return {**told, "constants": truth.tensors}


def _constants(module: Any) -> list[torch.Tensor]:
    """Return the tensors that are constants of a module's code, in order."""
    return list(module.code_with_constants[1].const_mapping.values())
