"""Read all records of a file; or take the bare steps: read, hash and decompress the same chunks, one after the other.

``table`` makes what the bare steps need: a table of the chunks, and a copy of their data. ``bare`` looks at no header
and makes no records; block headers it has to take out of the data, as everybody who reads the file. ``copy`` is spared
that: it reads the copy, where the chunks' data stand back to back. ``seconds`` and ``call_cpu`` are medians of passes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from report import report

from pparse.codecs.base import ZSTD, package
from pparse.kernels.highway import NATIVE, hash64

BLOCK_SIZE, BLOCK_HEADER_SIZE = 1 << 16, 24
how, path, copy, passes = *sys.argv[1:4], int(sys.argv[4])
if not NATIVE:
    sys.exit("pparse was installed without its extension")


def make_table() -> None:
    """Write the copy, and of each chunk: begin, end, place in the copy, size, hash, where its values begin, decoded."""
    from pparse.kernels.varint import read_varint
    from pparse.riegeli.chunks import ChunkReader
    from pparse.riegeli.source import Source

    source = Source(path)
    reader, found, pos, at, kind = ChunkReader(source), [], 64, 0, 0
    with open(copy, "wb") as file:
        while pos < source.size():
            chunk = reader.header(pos)
            data = reader.data(chunk)
            kind = data[0]
            size, begin = read_varint(data, 1, len(data))
            values = begin + size
            if kind:
                _, values = read_varint(data, values, len(data))
            header = chunk.header
            found.append(
                [chunk.data_begin, chunk.data_end, at, len(data), header.data_hash, values, header.decoded_data_size]
            )
            at += file.write(data)
            pos = chunk.end
    source.close(0)
    with open(f"{copy}.json", "w") as file:
        json.dump([kind, found], file)


def library(kind: int):
    """Return the function that decompresses the values of a chunk."""
    if kind == ord("b"):
        import brotli

        return lambda data, size: brotli.decompress(data)
    if kind == ord("z"):
        return lambda data, size: package(ZSTD).decompress(data)
    if kind == ord("s"):
        import cramjam

        return lambda data, size: cramjam.snappy.decompress_raw(data)
    return lambda data, size: data


def read_ours() -> int:
    total = 0
    with RecordReader(path) as reader:
        for record in reader:
            total += len(record)
    return total


def read_bare() -> int:
    total = 0
    file = os.open(path, os.O_RDONLY)
    buffer = memoryview(bytearray(max(end - begin for begin, end, *_ in chunks)))  # one for all: no fresh memory
    for begin, end, _, size, wanted, values, decoded in chunks:
        os.preadv(file, [buffer[: end - begin]], begin)
        first = -begin % BLOCK_SIZE
        for at in range(first, end - begin, BLOCK_SIZE):
            after = min(at + BLOCK_SIZE, end - begin)
            length = after - at - BLOCK_HEADER_SIZE
            buffer[first : first + length] = buffer[at + BLOCK_HEADER_SIZE : after]
            first += length
        data = buffer[:size]
        if hash64(data) != wanted:
            sys.exit("a hash is wrong")
        total += len(decompress(data[values:], decoded))
    os.close(file)
    return total


def read_copy() -> int:
    total = 0
    file = os.open(copy, os.O_RDONLY)
    buffer = memoryview(bytearray(max(size for _, _, _, size, *_ in chunks)))
    for _, _, at, size, wanted, values, decoded in chunks:
        data = buffer[:size]
        os.preadv(file, [data], at)
        if hash64(data) != wanted:
            sys.exit("a hash is wrong")
        total += len(decompress(data[values:], decoded))
    os.close(file)
    return total


if how == "table":
    make_table()
    report()
    sys.exit()
if how == "ours":
    from pparse.riegeli import RecordReader

    read = read_ours
else:
    read = read_bare if how == "bare" else read_copy
    with open(f"{copy}.json") as file:
        kind, chunks = json.load(file)
    decompress = library(kind)
size = read()  # warm
seconds, cpu_seconds = [], []
for _ in range(passes):
    start, cpu = time.perf_counter(), time.process_time()
    read()
    seconds.append(time.perf_counter() - start)
    cpu_seconds.append(time.process_time() - cpu)
report(seconds=statistics.median(seconds), call_cpu=statistics.median(cpu_seconds), size=size)
