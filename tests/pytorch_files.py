"""PyTorch checkpoints of contiguous tensors, as torch writes them (2.13, and before 1.6), made without torch."""

from __future__ import annotations

import io
import pickle
import struct
from dataclasses import dataclass
from math import prod

from tests.bench.inputs_pytorch import Archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Names of storages, and bytes of an element, by numpy's names of the types.
STORAGES = {
    "float64": ("DoubleStorage", 8),
    "float32": ("FloatStorage", 4),
    "float16": ("HalfStorage", 2),
    "bfloat16": ("BFloat16Storage", 2),
    "int64": ("LongStorage", 8),
    "uint8": ("ByteStorage", 1),
    "bool": ("BoolStorage", 1),
}
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


@dataclass(frozen=True)
class Made:
    """A checkpoint; ``places`` of the bytes of each tensor, ``needs``: what leads to all, ``own``: what leads to each.

    ``head``: where the part with the names ends.
    """

    content: bytes
    places: dict[str, tuple[int, int]]
    head: int
    needs: tuple[tuple[int, int], ...]
    own: dict[str, tuple[tuple[int, int], ...]]


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _numbers(numbers: list[int]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def described(tensors: Mapping[str, tuple[str, list[int]]], *, legacy: bool = False) -> bytes:
    """Return the pickle of a dict of tensors, of types and shapes as given, each with a storage of its own."""
    out = b"\x80\x02}("
    for number, (name, (dtype, shape)) in enumerate(tensors.items()):
        storage = f"ctorch\n{STORAGES[dtype][0]}\n".encode() + _text(str(number)) + _text("cpu") + _number(prod(shape))
        storage = b"(" + _text("storage") + storage + (b"N" if legacy else b"") + b"tQ"
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        arguments = (
            storage + _number(0) + _numbers(list(shape)) + _numbers(strides) + b"\x89ccollections\nOrderedDict\n)R"
        )
        out += _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"
    return out + b"u."


def checkpoint(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes], top: str = "model") -> Made:
    """Return a checkpoint in a zip, with the storages in the order of the tensors."""
    out = io.BytesIO()
    archive = Archive(out, top)
    ends, entries = {}, {}

    def add(name: str, content: bytes) -> None:
        at, entry = out.tell(), len(archive.directory)
        archive.add(name, content)
        entries[name] = (entry, len(archive.directory))
        ends[name] = (at, out.tell(), len(content))

    add("data.pkl", described(tensors))
    for name, content in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
        add(name, content)
    for number, name in enumerate(tensors):
        add(f"data/{number}", contents[name])
    add("version", b"3\n")
    directory = out.tell()
    archive.close()
    places, own = {}, {}
    for number, name in enumerate(tensors):
        at, end, size = ends[f"data/{number}"]
        begin, entry = end - 16 - size, entries[f"data/{number}"]
        places[name] = (begin, begin + size)
        own[name] = ((at, begin), (begin + size, end), (directory + entry[0], directory + entry[1]))
    head = ends["byteorder"][1]
    needs = ((0, head), (directory + entries["data.pkl"][0], directory + entries["byteorder"][1]))
    return Made(out.getvalue(), places, head, needs, own)


def legacy_checkpoint(tensors: Mapping[str, tuple[str, list[int]]], contents: Mapping[str, bytes]) -> Made:
    """Return a checkpoint as torch wrote it before 1.6."""
    parts = [pickle.dumps(value, 2) for value in (MAGIC, VERSION, SYSTEM)]
    parts.append(described(tensors, legacy=True))
    parts.append(pickle.dumps([str(number) for number in range(len(tensors))], 2))
    out = bytearray(b"".join(parts))
    head, places, counts = len(out), {}, []
    for name, (dtype, _) in tensors.items():
        counts.append((len(out), len(out) + 8))
        out += struct.pack("<q", len(contents[name]) // STORAGES[dtype][1])
        places[name] = (len(out), len(out) + len(contents[name]))
        out += contents[name]
    # The numbers of elements say that nothing came in or was lost before them.
    own = {name: tuple(counts[: number + 2]) for number, name in enumerate(tensors)}
    return Made(bytes(out), places, head, ((0, head),), own)


def legacy_values(value: object) -> bytes:
    """Return a checkpoint of before torch 1.6 that holds a value without tensors."""
    return b"".join(pickle.dumps(part, 2) for part in (MAGIC, VERSION, SYSTEM, value, []))


def numbered(count: int, nbytes: int, seed: int = 0) -> tuple[dict[str, tuple[str, list[int]]], dict[str, bytes]]:
    """Return ``count`` float32 matrices of ``nbytes`` each, and their bytes."""
    import random

    rng = random.Random(seed)
    tensors = {f"layers.{number}.weight": ("float32", [nbytes // 64, 16]) for number in range(count)}
    return tensors, {name: rng.randbytes(nbytes) for name in tensors}
