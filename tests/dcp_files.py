"""Distributed checkpoints as torch.distributed.checkpoint writes them (torch 2.13), made without torch."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import numpy as np

from tests.pytorch_files import STORAGES, _Members, _rebuilt

METADATA = ".metadata"
_MODULE = "torch.distributed.checkpoint.metadata"
Chunk = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Number of the shard, offsets, sizes."""


class _Attributes:
    """An object that is pickled by its attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def _named(module: str, *names: str) -> dict[str, type]:
    return {name: type(name, (_Attributes,), {"__module__": module, "__qualname__": name}) for name in names}


KINDS = _named(_MODULE, "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties")
KINDS |= _named(_MODULE, "ChunkStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")
KINDS |= _named("torch.distributed.checkpoint.filesystem", "_StorageInfo")
KINDS |= _named("torch", *STORAGES, "float4_e2m1fn_x2", "odd")
_LAYOUT = _named("torch.serialization", "_get_layout")["_get_layout"]


class _Call:
    """What is pickled as a call."""

    def __init__(self, function: type, *args: Any) -> None:
        self.made = function, args

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.made


_SIZE = type("Size", (), {"__module__": "torch", "__qualname__": "Size", "__call__": None})


class _Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes the names of classes, whether there are such or not."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        self.save(obj.__module__)
        self.save(obj.__qualname__)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch[type] = save_global


def size(numbers: Any) -> _Call:
    return _Call(_SIZE, tuple(numbers))


def properties(dtype: str) -> Any:
    """Return the properties of a tensor; their state is a tuple."""
    memory = _Call(KINDS["_MEM_FORMAT_ENCODING"], 0)
    state = KINDS[dtype], _Call(_LAYOUT, "torch.strided"), False, memory, False

    class Made:
        def __reduce_ex__(self, protocol: Any) -> Any:
            return _Call(KINDS["TensorProperties"]).made + (state,)

    return Made()


def tensor(dtype: str, shape: Any, chunks: list[tuple[Any, Any]]) -> Any:
    found = [KINDS["ChunkStorageMetadata"](offsets=size(starts), sizes=size(lengths)) for starts, lengths in chunks]
    return KINDS["TensorStorageMetadata"](properties=properties(dtype), size=size(shape), chunks=found)


def index(name: str, offsets: Any) -> Any:
    told = {} if offsets is None else {"offset": size(offsets)}
    return KINDS["MetadataIndex"](fqn=name, index=None if offsets is None else 0, **told)


def place(path: str, offset: int, length: int, **more: Any) -> Any:
    return KINDS["_StorageInfo"](relative_path=path, offset=offset, length=length, **more)


def metadata(described: dict[str, Any], places: dict[Any, Any]) -> bytes:
    """Return the file .metadata; ``places`` by `index`."""
    import io

    planner = {name: ("model", name) for name in described}
    told = {"state_dict_metadata": described, "planner_data": planner, "storage_data": places}
    meta = KINDS["StorageMeta"](checkpoint_id="c", save_id="1", load_id=None, modules=[])
    out = io.BytesIO()
    _Pickler(out, 4).dump(KINDS["Metadata"](**told, storage_meta=meta, version="1.0.0"))
    return out.getvalue()


def archive(value: bytes, storage: bytes | None = None) -> tuple[bytes, tuple[int, int]]:
    """Return what torch.save writes of a pickled value, and where its storage, if it has one, lies."""
    made = _Members("archive")
    made.add("data.pkl", value)
    for name, content in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
        made.add(name, content)
    if storage is not None:
        made.add("data/0", storage)
    made.add("version", b"3\n")
    return made.close(), made.place("data/0") if storage is not None else (0, 0)


def chunk_of(dtype: str, content: np.ndarray) -> tuple[bytes, tuple[int, int]]:
    """Return the archive of a chunk."""
    raw = content.tobytes()
    value = b"\x80\x02" + _rebuilt(0, dtype, list(content.shape[: content.ndim])) + b"."
    return archive(value, raw)


def shard_name(number: int) -> str:
    return f"__{number}_0.distcp"


class Dcp:
    """A checkpoint: ``files`` by name; ``spans``: of each tensor, shard, begin and end of the bytes of each chunk."""

    def __init__(self, tensors: dict[str, tuple[np.ndarray, list[Chunk]]], objects: dict[str, Any]) -> None:
        shards: dict[str, bytearray] = {}
        self.described: dict[str, Any] = {}
        self.places: dict[Any, Any] = {}
        self.spans: dict[str, list[tuple[str, int, int, int, int]]] = {}
        for name, (array, chunks) in tensors.items():
            dtype = str(array.dtype)
            self.described[name] = tensor(dtype, array.shape, [box for _, *box in chunks])
            for number, starts, lengths in chunks:
                part = array[tuple(slice(at, at + count) for at, count in zip(starts, lengths, strict=True))]
                content, (begin, end) = chunk_of(dtype, np.ascontiguousarray(part).reshape(lengths))
                shard = shards.setdefault(shard_name(number), bytearray())
                at = len(shard)
                shard += content
                self.places[index(name, starts)] = place(shard_name(number), at, len(content))
                self.spans.setdefault(name, []).append(
                    (shard_name(number), at, at + begin, at + end, at + len(content))
                )
        for name, value in objects.items():
            content, _ = archive(pickle.dumps(value, 2))
            shard = shards.setdefault(shard_name(0), bytearray())
            self.described[name] = KINDS["BytesStorageMetadata"]()
            self.places[index(name, None)] = place(shard_name(0), len(shard), len(content))
            shard += content
        self.files = {METADATA: metadata(self.described, self.places)}
        self.files |= {name: bytes(content) for name, content in shards.items()}


def rows_of(shape: tuple[int, ...], count: int) -> list[Chunk]:
    """Return chunks of whole rows, as FSDP makes them: the last are smaller, or empty."""
    step = -(-shape[0] // count)
    begins = [min(shape[0], number * step) for number in range(count + 1)]
    zeros = (0,) * (len(shape) - 1)
    return [
        (number, (begin, *zeros), (begins[number + 1] - begin, *shape[1:])) for number, begin in enumerate(begins[:-1])
    ]


def sample() -> tuple[Dcp, dict[str, np.ndarray]]:
    """Return a checkpoint of three shards: tensors in rows, columns, a grid, one chunk, none; and objects."""
    rng = np.random.default_rng(5)
    arrays = {
        "w": rng.standard_normal((7, 5)).astype("float32"),
        "col": rng.integers(0, 1 << 40, (4, 6)),
        "grid": rng.standard_normal((6, 4)).astype("float16"),
        "one": rng.standard_normal((3, 3)),
        "bias": np.arange(4, dtype="float32"),
        "step": np.array(3.5, "float32"),
    }
    grid = [(2 * row + column, (3 * row, 2 * column), (3, 2)) for row in range(2) for column in range(2)]
    chunks = {
        "w": rows_of((7, 5), 3),
        "col": [(number, (0, 2 * number), (4, 2)) for number in range(3)],
        "grid": [(number % 3, starts, lengths) for number, starts, lengths in grid],
        "one": [(1, (0, 0), (3, 3))],
        "bias": rows_of((4,), 3),
        "step": [(2, (), ())],
    }
    return Dcp({name: (array, chunks[name]) for name, array in arrays.items()}, {"epoch": 7, "lr": [0.5, 0.25]}), arrays
