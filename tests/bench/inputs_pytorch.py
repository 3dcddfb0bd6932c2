"""Large PyTorch checkpoints and pickles that the benchmarks read; written without torch, as torch 2.13 writes them."""

from __future__ import annotations

import functools
import io
import os
import pickle
import random
import struct
import zlib
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, BinaryIO

MIB = 1 << 20
ALIGNMENT = 64
WIDTH = 256  # elements of a row
# The distinct blocks of the nested pickle; they come again in a drawn order.
BLOCKS = 32
RECORDS = 1_000  # of a block, as many as a pickler puts into a batch


# -- checkpoint ------------------------------------------------------------------------------------------------------


class _Global:
    """A class or function that is only named."""

    def __init__(self, module: str, name: str) -> None:
        self.text = f"c{module}\n{name}\n".encode()

    def __call__(self) -> None: ...


_REBUILD = _Global("torch._utils", "_rebuild_tensor_v2")
_FLOATS = _Global("torch", "FloatStorage")


class _Storage:
    """A persistent id."""

    def __init__(self, key: int, count: int) -> None:
        self.pid = ("storage", _FLOATS, str(key), "cpu", count)


class _Tensor:
    """A float32 tensor of rows of `WIDTH` elements."""

    def __init__(self, key: int, count: int) -> None:
        shape = (count // WIDTH, WIDTH)
        self.arguments = (_Storage(key, count), 0, shape, (WIDTH, 1), False, OrderedDict())

    def __reduce__(self) -> Any:
        return _REBUILD, self.arguments


class _Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    dispatch = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def persistent_id(self, value: object) -> object:
        return value.pid if isinstance(value, _Storage) else None

    def save_named(self, value: _Global) -> None:
        self.write(value.text)
        self.memoize(value)

    dispatch[_Global] = save_named


def _hole_crc(size: int) -> int:
    """Return the CRC-32 of that many zeros."""
    crc, block = 0, bytes(MIB)
    while size:
        crc = zlib.crc32(block[:size], crc)
        size -= min(size, MIB)
    return crc


class Archive:
    """Writes records as PyTorch's writer does: aligned, with sizes behind the data and in a directory."""

    def __init__(self, file: BinaryIO, top: str) -> None:
        self.file = file
        self.top = top
        self.directory = bytearray()
        self.count = 0

    def begin(self, name: str) -> tuple[bytes, int]:
        at = self.file.tell()
        full = f"{self.top}/{name}".encode()
        room = -(at + 34 + len(full)) % ALIGNMENT
        head = struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x0808, 0, 0, 0, 0, 0, 0, len(full), room + 4)
        self.file.write(head + full + struct.pack("<2sH", b"FB", room) + b"Z" * room)
        return full, at

    def end(self, full: bytes, at: int, size: int, crc: int) -> None:
        self.file.write(struct.pack("<4s3I", b"PK\7\10", crc, size, size))
        head = struct.pack("<4s6H3I", b"PK\1\2", 0, 0, 0x0808, 0, 0, 0, crc, size, size)
        self.directory += head + struct.pack("<5H2I", len(full), 0, 0, 0, 0, 0, at) + full
        self.count += 1

    def add(self, name: str, content: bytes) -> None:
        full, at = self.begin(name)
        self.file.write(content)
        self.end(full, at, len(content), zlib.crc32(content))

    def add_hole(self, name: str, size: int, crc: int) -> None:
        full, at = self.begin(name)
        self.file.seek(size, os.SEEK_CUR)
        self.end(full, at, size, crc)

    def close(self) -> None:
        at, size = self.file.tell(), len(self.directory)
        self.file.write(self.directory)
        numbers = (44, 0x031E, 45, 0, 0, self.count, self.count, size, at)
        self.file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", *numbers))
        self.file.write(struct.pack("<4sIQI", b"PK\6\7", 0, at + size, 1))
        self.file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, self.count, self.count, size, at, 0))


def checkpoint(path: Path, tensors: int, size: int, dense: bool = False) -> Path:
    """Write a ``.pt`` of float32 tensors, together of about ``size`` bytes; they are holes, or ``dense`` random bytes.

    ``checkpoint(path, 1000, 2 << 30)`` has 2 GiB and takes some 4 MB of disk; ``checkpoint(path, 500,
    200_000_000)`` has 200 MB. Below 4 GiB only: behind that, PyTorch's headers are others.
    """
    each = size // tensors // (4 * WIDTH) * 4 * WIDTH
    assert each > 0, "less than a row for each tensor"
    assert tensors * (each + 1024) < 1 << 32, "4 GiB or more"
    value = OrderedDict((f"model.layers.{number}.weight", _Tensor(number, each // 4)) for number in range(tensors))
    described = io.BytesIO()
    _Pickler(described, 2).dump(value)
    crc = _hole_crc(each)
    with path.open("wb") as file:
        archive = Archive(file, path.stem)
        archive.add("data.pkl", described.getvalue())
        for name, content in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
            archive.add(name, content)
        for number in range(tensors):
            if dense:
                archive.add(f"data/{number}", os.urandom(each))
            else:
                archive.add_hole(f"data/{number}", each, crc)
        archive.add("version", b"3\n")
        archive.add(".data/serialization_id", b"0" * 40)
        archive.close()
    return path


# -- nested pickle ---------------------------------------------------------------------------------------------------

KEYS = (
    "id",
    "name",
    "score",
    "tags",
    "place",
    "x",
    "y",
    "flags",
    "history",
    "parent",
    "active",
    "children",
    "text",
    "place_of",
)


def _record(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randrange(1 << 31),
        "name": f"item-{rng.getrandbits(32):08x}",
        "score": rng.random(),
        "tags": [rng.randrange(256) for _ in range(6)],
        "place": {"x": rng.randrange(256), "y": rng.randrange(65_536)},
        "flags": [rng.random() < 0.5 for _ in range(4)],
        "history": [[rng.randrange(256), [], {}] for _ in range(rng.randrange(1, 6))],
        "text": "lorem ipsum dolor sit amet, "[: rng.randrange(28)] * rng.randrange(1, 4),
        "place_of": [rng.random(), rng.random()],
        "parent": None,
        "children": [{"id": rng.randrange(256), "active": True, "children": [[]]} for _ in range(rng.randrange(3))],
    }


def _encoded(value: object) -> bytes:
    """Return the opcodes of a value of a record; keys are taken from the memo, and each other object goes into it."""
    if isinstance(value, dict):
        items = b"".join(b"h" + bytes([KEYS.index(key) + 2]) + _encoded(one) for key, one in value.items())
        few = items + b"s" if len(value) == 1 else b"(" + items + b"u"
        return b"}\x94" + (few if value else b"")
    if isinstance(value, list):
        items = b"".join(map(_encoded, value))
        return b"]\x94" + (items + b"a" if len(value) == 1 else b"(" + items + b"e" if value else b"")
    if isinstance(value, str):
        return b"\x8c" + bytes([len(value)]) + value.encode() + b"\x94"
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    assert isinstance(value, int)
    if value < 256:
        return b"K" + bytes([value])
    return b"M" + struct.pack("<H", value) if value < 65_536 else b"J" + struct.pack("<i", value)


def _block(number: int) -> list[dict[str, object]]:
    rng = random.Random(number)
    return [_record(rng) for _ in range(RECORDS)]


@functools.cache
def _frame(number: int) -> bytes:
    return b"(" + b"".join(map(_encoded, _block(number))) + b"e"


def _first_frame() -> bytes:
    """Return the opcodes of the outer list, and of the list of keys in it, which go to the memo as numbers 2, 3 …"""
    return b"]\x94]\x94(" + b"".join(map(_encoded, KEYS)) + b"ea"


def _order(size: int) -> list[int]:
    """Return which blocks a file of that size has."""
    rng = random.Random(2)
    chosen: list[int] = []
    done = len(_first_frame()) + 12
    while done < size:
        chosen.append(rng.randrange(BLOCKS))
        done += len(_frame(chosen[-1])) + 9
    return chosen


def nested_pickle(path: Path, size: int) -> Path:
    """Write a pickle (protocol 4) of at least ``size`` bytes: a list of records, behind a list of their keys.

    Dicts, lists, short texts, integers, floats and flags, nested 5 deep; two bytes an opcode; the same each time.
    `nested_value` returns what it holds. Of 200 MB, pickle.load takes some gigabytes.
    """
    with path.open("wb") as file:
        file.write(b"\x80\x04")
        for frame in (_first_frame(), *map(_frame, _order(size))):
            file.write(b"\x95" + struct.pack("<Q", len(frame)) + frame)
        file.write(b".")
    return path


def nested_value(size: int) -> list[object]:
    """Return what a file of `nested_pickle` holds; for small ones."""
    return [list(KEYS), *(record for number in _order(size) for record in _block(number))]
