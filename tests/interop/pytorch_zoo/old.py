"""Files of the formats before zip, as only old versions wrote them: put together by hand.

The tar of PyTorch 0.1.1 to 0.1.9, and legacy files with views of storages, the strings of Python 2, the rebuild
function of PyTorch 0.2, or the system information of a big-endian machine. torch.load is the referee of all.
"""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections import OrderedDict

import torch

from tests.interop.pytorch_zoo.sample import ramp, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAGIC = 0x1950A86A20F9469CFC6C


class Stored:
    """A persistent id."""

    def __init__(self, pid: Any) -> None:
        self.pid = pid


class Rebuilt:
    """A call of one of torch's rebuild functions."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


class Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Writes `Stored` as persistent ids."""

    def persistent_id(self, value: Any) -> Any:
        return value.pid if isinstance(value, Stored) else None


class Python2Pickler(Pickler):
    """Writes text as the byte strings of Python 2."""

    dispatch = dict(Pickler.dispatch)

    def save_str(self, text: str) -> None:
        raw = text.encode()
        self.write(b"U" + bytes([len(raw)]) + raw if len(raw) < 256 else b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(text)

    dispatch[str] = save_str


def dumped(value: Any, kind: Any = Pickler, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    kind(file, protocol).dump(value)
    return file.getvalue()


def storage_bytes(tensor: torch.Tensor) -> bytes:
    """Return the count of elements and the bytes of a dense tensor."""
    return struct.pack("<q", tensor.numel()) + tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def legacy(value: Any, storages: dict[str, torch.Tensor], kind: Any = Pickler, little: bool = True) -> bytes:
    """Return a legacy file with these storages, by key."""
    system = {
        "protocol_version": 1001,
        "little_endian": little,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    head = [dumped(part, kind) for part in (MAGIC, 1001, system, value, list(storages))]
    return b"".join(head) + b"".join(map(storage_bytes, storages.values()))


def stored(key: str, tensor: torch.Tensor, view: Any = None) -> Stored:
    kind = getattr(torch, tensor.storage()._pickle_storage_type())
    return Stored(("storage", kind, key, "cpu", tensor.numel(), view))


def rebuilt(storage: Stored, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Rebuilt:
    return Rebuilt(torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, OrderedDict())


@written("legacy/storage_views.pt", "view_metadata: storages that are stretches of others; written by hand")
def _views(path):
    base = ramp(20)
    numbers = ramp(6, dtype=torch.int16)
    value = {
        "whole": rebuilt(stored("100", base), 0, (4, 5), (5, 1)),
        "view": rebuilt(stored("100", base, ("101", 5, 10)), 0, (2, 5), (5, 1)),
        "inside_view": rebuilt(stored("100", base, ("101", 5, 10)), 3, (2, 2), (1, 2)),
        "other_view": rebuilt(stored("100", base, ("102", 18, 2)), 0, (2,), (1,)),
        "only_view": rebuilt(stored("200", numbers, ("201", 1, 4)), 1, (3,), (1,)),
        "bare_view": stored("100", base, ("102", 18, 2)),
    }
    path.write_bytes(legacy(value, {"200": numbers, "100": base}))


def python2_value() -> tuple[Any, dict[str, torch.Tensor]]:
    weight, bias = ramp(2, 3), ramp(3, dtype=torch.float64)
    value = OrderedDict(
        [
            ("weight", rebuilt(stored("139", weight), 0, (2, 3), (3, 1))),
            ("bias", rebuilt(stored("140", bias), 1, (2,), (1,))),
            ("name", "x" * 300),
            ("count", 5),
            ("large", 2**40),
        ]
    )
    return value, {"140": bias, "139": weight}


@written("legacy/python2.pt", "texts as byte strings, as Python 2 wrote them; written by hand")
def _python2(path):
    path.write_bytes(legacy(*python2_value(), kind=Python2Pickler))


@written("legacy/big_endian.pt", "the system information says big-endian; storages are little-endian all the same")
def _big(path):
    path.write_bytes(legacy(*python2_value(), little=False))


@written("legacy/rebuild_tensor.pt", "_rebuild_tensor with four arguments, as in PyTorch 0.2; written by hand")
def _first(path):
    weight = ramp(2, 3)
    tensor = Rebuilt(torch._utils._rebuild_tensor, stored("7", weight), 1, (2, 2), (3, 1))
    parameter = Rebuilt(torch._utils._rebuild_parameter, tensor, True, OrderedDict())
    path.write_bytes(legacy({"tensor": tensor, "parameter": parameter}, {"7": weight}))


@written("rebuild_rare.pt", "functions that devices without storages of their own write; the calls put in by hand")
def _rare(path):
    utils = torch._utils
    array = ramp(2, 3).numpy()
    value = {
        "from_numpy": Rebuilt(utils._rebuild_device_tensor_from_numpy, array, torch.float32, "cpu", False),
        "from_numpy_half": Rebuilt(utils._rebuild_device_tensor_from_numpy, array, torch.bfloat16, "cpu", True),
        "from_cpu": Rebuilt(utils._rebuild_device_tensor_from_cpu_tensor, ramp(3), torch.float32, "cpu", False),
        "first": Rebuilt(utils._rebuild_tensor, ramp(6).storage(), 1, (2, 2), (1, 2)),
    }
    torch.save(value, path)


@written("legacy/trailing.pt", "bytes behind the last storage")
def _trailing(path):
    torch.save({"a": ramp(3)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes() + b"trailing")


@written("legacy/cut.pt", "cut within the last storage")
def _cut(path):
    torch.save({"a": ramp(30), "b": ramp(30, start=3)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-50])


@written("legacy/unused_storage.pt", "a storage that nothing refers to; written by hand", meant=lambda: [ramp(2, 3)])
def _unused(path):
    weight, other = ramp(2, 3), ramp(4)
    path.write_bytes(legacy([rebuilt(stored("7", weight), 0, (2, 3), (3, 1))], {"7": weight, "8": other}))


# -- tar -------------------------------------------------------------------------------------------------------------


def tar(value: Any, storages: Any, views: Any, tensors: Any, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a file as PyTorch 0.1.1 wrote it; ``storages`` and ``tensors`` have their keys first."""
    stores = dumped(len(storages))
    for key, tensor in storages:
        stores += dumped((key, "cpu", getattr(torch, tensor.storage()._pickle_storage_type())))
        stores += storage_bytes(tensor)
    stores += dumped(views)
    described = dumped(len(tensors))
    for key, storage, kind, size, stride, offset in tensors:
        described += dumped((key, storage, kind)) + struct.pack("<i4x", len(size))
        described += struct.pack(f"<{2 * len(size) + 1}q", *size, *stride, offset)
    system = dumped({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}})
    parts = {"sys_info": system, "pickle": dumped(value), "storages": stores, "tensors": described}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def tar_parts() -> Any:
    base, numbers = ramp(12), ramp(5, dtype=torch.int64)
    storages = [(11, base), (12, numbers)]
    views = [(13, 11, 4, 6)]
    tensors = [
        (21, 11, torch.FloatTensor, (3, 4), (4, 1), 0),
        (22, 11, torch.FloatTensor, (4, 3), (1, 4), 0),
        (23, 13, torch.FloatTensor, (2, 2), (3, 1), 1),
        (24, 12, torch.LongTensor, (5,), (1,), 0),
    ]
    value = {
        "weight": Stored("21"),
        "transposed": Stored("22"),
        "view": Stored("23"),
        "numbers": [Stored("24"), "x"],
        "epoch": 3,
        "again": Stored("21"),
    }
    return value, storages, views, tensors


@written("tar/model.pt", "the format of PyTorch 0.1.1 to 0.1.9, written by hand")
def _tar(path):
    path.write_bytes(tar(*tar_parts()))


@written("tar/ustar.pth.tar", "the same in ustar; written by hand")
def _ustar(path):
    path.write_bytes(tar(*tar_parts(), form=tarfile.USTAR_FORMAT))


@written("tar/storages_only.pt", "bare storages instead of tensors; written by hand")
def _tar_storages(path):
    _, storages, views, _ = tar_parts()
    path.write_bytes(tar([Stored("11"), Stored("13")], storages, views, []))
