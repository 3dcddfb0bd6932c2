"""Zip archives for tests, by the standard library or made by hand."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

STAMP = (2024, 5, 6, 7, 8, 10)


class Sink(io.RawIOBase):
    """A file that cannot be sought: what is written to it is streamed."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.written += data  # type: ignore[arg-type]
        return len(data)  # type: ignore[arg-type]


def add(archive: zipfile.ZipFile, name: str, content: bytes, method: int = 0, **more: int) -> None:
    info = zipfile.ZipInfo(name, STAMP)
    info.compress_type = method
    info.external_attr = 0o100644 << 16
    for key, value in more.items():
        setattr(info, key, value)
    archive.writestr(info, content)


def deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


class Made:
    """One member made by hand; ``descriptor`` is the length of its data descriptor (0: none, else 12, 16, 20, 24)."""

    def __init__(
        self,
        name: str,
        content: bytes,
        *,
        method: int = 0,
        descriptor: int = 0,
        extra: bytes = b"",
        flags: int = 0,
        compressed_size: bytes | None = None,
        crc: int | None = None,
        local_name: str | None = None,
        local_packed: int | None = None,
        local_crc: int | None = None,
        mode: int = 0o100644,
    ) -> None:
        self.name = name
        self.content = content
        self.method = method
        self.descriptor = descriptor
        self.extra = extra
        self.flags = flags | (8 if descriptor else 0)
        self.compressed_size = (
            compressed_size if compressed_size is not None else deflated(content) if method == 8 else content
        )
        self.crc = zlib.crc32(content) if crc is None else crc
        self.local_name = name if local_name is None else local_name
        self.local_packed = local_packed
        self.local_crc = local_crc
        self.mode = mode
        self.at = self.start = self.end = 0

    def local(self) -> bytes:
        name = self.local_name.encode()
        crc, packed, size = self.crc, len(self.compressed_size), len(self.content)
        if self.descriptor:
            crc = packed = size = 0
        if self.local_packed is not None:
            packed = self.local_packed
        if self.local_crc is not None:
            crc = self.local_crc
        return (
            struct.pack(
                "<4sHHHHHIIIHH",
                b"PK\3\4",
                20,
                self.flags,
                self.method,
                0x3905,
                0x58A6,
                crc,
                packed,
                size,
                len(name),
                len(self.extra),
            )
            + name
            + self.extra
        )

    def trailer(self) -> bytes:
        if not self.descriptor:
            return b""
        layout = "<III" if self.descriptor in (12, 16) else "<IQQ"
        signature = b"PK\7\x08" if self.descriptor in (16, 24) else b""
        return signature + struct.pack(layout, self.crc, len(self.compressed_size), len(self.content))

    def central(self, shift: int = 0) -> bytes:
        name = self.name.encode()
        return (
            struct.pack(
                "<4sHHHHHHIIIHHHHHII",
                b"PK\1\2",
                0x0314,
                20,
                self.flags,
                self.method,
                0x3905,
                0x58A6,
                self.crc,
                len(self.compressed_size),
                len(self.content),
                len(name),
                0,
                0,
                0,
                0,
                self.mode << 16,
                self.at - shift,
            )
            + name
        )


class Archive:
    """An archive of members made by hand: ``body`` without a directory, ``directory``, ``end``, and ``whole``."""

    def __init__(self, *members: Made, prefix: bytes = b"", shift: int = 0, comment: bytes = b"") -> None:
        out = bytearray(prefix)
        self.members = members
        for member in members:
            member.at = len(out)
            out += member.local()
            member.start = len(out)
            out += member.compressed_size
            member.end = len(out)
            out += member.trailer()
        self.body = bytes(out)
        self.directory = b"".join(member.central(shift) for member in members)
        self.end = (
            struct.pack(
                "<4sHHHHIIH",
                b"PK\5\6",
                0,
                0,
                len(members),
                len(members),
                len(self.directory),
                len(self.body) - shift,
                len(comment),
            )
            + comment
        )
        self.whole = self.body + self.directory + self.end


def noise(count: int, seed: int = 1) -> bytes:
    import random

    return random.Random(seed).randbytes(count)


def torch_like(sizes: tuple[int, ...] = (3000, 64, 5000), name: str = "model") -> Archive:
    """An archive as torch.save writes it: stored, streamed, zeros in the local header, data at multiples of 64."""
    members = []
    at = 0
    contents = [("data.pkl", noise(333, 9)), ("byteorder", b"little")]
    contents += [(f"data/{number}", noise(size, number)) for number, size in enumerate(sizes)]
    contents += [("version", b"3\n")]
    for label, content in contents:
        full = f"{name}/{label}"
        padding = -(at + 30 + len(full) + 4) % 64
        member = Made(
            full, content, descriptor=16, flags=0x0800, extra=b"FB" + struct.pack("<H", padding) + b"Z" * padding
        )
        members.append(member)
        at += 30 + len(full) + 4 + padding + len(content) + 16
    return Archive(*members)
