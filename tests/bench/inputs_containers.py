"""Archives and compressed streams that the benchmarks read."""

from __future__ import annotations

import io
import json
import lzma
import random
import struct
import tarfile
import zipfile
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
# What is compressed comes again after so many bytes: further back than the windows used here reach.
PERIOD = 32 * MIB


def mixed(size: int = PERIOD) -> bytes:
    """Return words, hex digits, floats and JSON, by turns of 64 KiB: what gzip makes half as large."""
    import numpy as np

    rng, numbers = random.Random(1), np.random.default_rng(1)
    vocabulary = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(2, 11))) for _ in range(5_000)]
    turn = 64 << 10
    pieces = []
    for _ in range(0, size, 4 * turn):
        words = " ".join(rng.choices(vocabulary, k=turn // 4)).encode()
        records = "\n".join(
            json.dumps({"id": number, "score": rng.random(), "tags": rng.choices(vocabulary, k=3)})
            for number in range(turn // 60)
        )
        floats = numbers.standard_normal(turn // 4, dtype=np.float32).tobytes()
        pieces += [words[:turn], rng.randbytes(turn // 2).hex().encode(), floats, records.encode()[:turn]]
    return b"".join(pieces)[:size]


def gzip_of(path: Path, size: int) -> Path:
    """Write one gzip member that holds ``size`` bytes, level 6."""
    content = mixed()
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    # A full flush forgets what came before, so that the same bytes may follow each other.
    body = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    with path.open("wb") as file:
        file.write(struct.pack("<4BIBB", 0x1F, 0x8B, 8, 0, 0, 0, 255))
        for _ in range(size // len(content)):
            file.write(body)
            check = zlib.crc32(content, check)
        rest = content[: size % len(content)]
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        file.write(packer.compress(rest) + packer.flush())
        file.write(struct.pack("<II", zlib.crc32(rest, check), size & 0xFFFFFFFF))
    return path


def xz_of(path: Path, size: int) -> Path:
    """Write one xz stream of one block that holds ``size`` bytes, preset 0."""
    content = mixed()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0}]

    def chunks(data: bytes) -> bytes:  # each time they begin with a reset, so that they may follow each other
        return lzma.compress(data, lzma.FORMAT_RAW, filters=filters)[:-1]

    def summed(data: bytes) -> bytes:
        data += bytes(-len(data) % 4)
        return data + struct.pack("<I", zlib.crc32(data))

    def number(value: int) -> bytes:
        digits = []
        while value > 0x7F:
            digits.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*digits, value))

    body, rest, flags = chunks(content), content[: size % len(content)], b"\0\1"  # checked by CRC-32
    check = packed = 0
    header = summed(b"\2\0\x21\1\x0c")  # LZMA2, 256 KiB
    with path.open("wb") as file:
        file.write(b"\xfd7zXZ\0" + flags + struct.pack("<I", zlib.crc32(flags)) + header)
        for _ in range(size // len(content)):
            packed += file.write(body)
            check = zlib.crc32(content, check)
        packed += file.write((chunks(rest) if rest else b"") + b"\0")
        file.write(bytes(-packed % 4) + struct.pack("<I", zlib.crc32(rest, check)))
        index = summed(b"\0\1" + number(len(header) + packed + 4) + number(size))
        footer = struct.pack("<I", len(index) // 4 - 1) + flags
        file.write(index + struct.pack("<I", zlib.crc32(footer)) + footer + b"YZ")
    return path


def zstd_of(path: Path, size: int) -> Path:
    """Write one Zstandard frame that holds ``size`` bytes and says so, as the command does."""
    from pparse.codecs import compressor

    content = mixed()
    packer = compressor("zstd", size=size)
    with path.open("wb") as file:
        for at in range(0, size, len(content)):
            file.write(packer.compress(content[: size - at]))
        file.write(packer.flush())
    return path


# -- archives ----------------------------------------------------------------------------------------------------------


def names(count: int) -> list[str]:
    """Return names as an image data set has them."""
    return [f"train/class-{number % 1000:04}/image-{number:08}.bin" for number in range(count)]


def tar_of_small(path: Path, count: int) -> Path:
    """Write a tar of ``count`` members of 1 KiB, as `tarfile` makes them."""
    content = bytes(range(256)) * 4
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(names(count)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_700_000_000 + number
            archive.addfile(info, io.BytesIO(content))
    return path


def tar_of_large(path: Path, count: int, size: int) -> Path:
    """Write a tar of ``count`` members of ``size`` bytes, which are holes of the file."""
    with path.open("wb") as file:
        for number in range(count):
            info = tarfile.TarInfo(f"shards/part-{number:02}.bin")
            info.size = size
            file.write(info.tobuf())
            file.seek(size + -size % 512, io.SEEK_CUR)
        file.truncate(file.tell() + 1024)
    return path


def zip_of_small(path: Path, count: int) -> Path:
    """Write a zip of ``count`` stored members of 1 KiB."""
    content = bytes(range(256)) * 4
    with zipfile.ZipFile(path, "w") as archive:
        for name in names(count):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), content)
    return path


def tar_gz(path: Path, size: int) -> Path:
    """Write a tar.gz that holds about ``size`` bytes, half in files of 1 MiB, half in files of 64 KiB."""
    content = mixed()
    made, number = 0, 0
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        while made < size:
            for length in (MIB, *[64 << 10] * 16):
                at = number * 77_777 % (len(content) - length)
                info = tarfile.TarInfo(f"data/{number % 10}/file-{number:05}.bin")
                info.size = length
                archive.addfile(info, io.BytesIO(content[at : at + length]))
                made += length
                number += 1
    return path


def damaged(path: Path, source: Path) -> Path:
    """Write a copy of ``source`` with 512 bytes in its middle turned into others."""
    data = bytearray(source.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 512] = random.Random(2).randbytes(512)
    path.write_bytes(data)
    return path
