"""Large MessagePack files that the benchmarks read; written without a library, as msgpack 1.1 and flax write them."""

from __future__ import annotations

from struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def _text(text: str) -> bytes:
    return bytes((0xA0 | len(text),)) + text.encode()


def _record(number: int) -> bytes:
    """Encode a record of 20 values in three containers."""
    head = b"\x85" + _text("id") + b"\xce" + pack(">I", number) + _text("name") + _text(f"name {number}")
    tags = _text("tags") + b"\x93" + _text("a") + _text("b") + bytes((number % 7,))
    place = _text("pos") + b"\x83" + _text("x") + b"\xcb" + pack(">d", number / 2) + _text("y") + b"\xd2"
    place += pack(">i", -number) + _text("ok") + b"\xc3"
    return head + tags + place + _text("scores") + b"\x98" + bytes(range(1, 9))


def records(path: Path, size: int) -> Path:
    """Write an array of records of at least ``size`` bytes."""
    count = size // len(_record(0)) + 1
    with path.open("wb") as file:
        file.write(b"\xdd" + pack(">I", count))
        for first in range(0, count, 1000):
            file.write(b"".join(map(_record, range(first, min(first + 1000, count)))))
    return path


def checkpoint(path: Path, count: int, size: int) -> Path:
    """Write a checkpoint of flax of ``count`` float32 arrays, two a layer, and ``size`` bytes; its data are a hole."""
    rows = size // count // 4096
    head = b"\x93\x92\xcd" + pack(">H", rows) + b"\xcd" + pack(">H", 1024) + _text("float32")
    head += b"\xc6" + pack(">I", rows * 4096)
    with path.open("wb") as file:
        file.write(b"\x81" + _text("params") + b"\xde" + pack(">H", count // 2))
        for number in range(count // 2):
            file.write(_text(f"Dense_{number}") + b"\x82")
            for name in ("kernel", "bias"):
                file.write(_text(name) + b"\xc9" + pack(">Ib", len(head) + rows * 4096, 1) + head)
                file.seek(rows * 4096, 1)
        file.truncate(file.tell())
    return path
