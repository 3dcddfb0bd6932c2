"""One large record, written from a file and read in pieces of 1 MiB; with the peak above the imports.

``bare``: the library alone does the same with a file beside it (of nothing but the compressed bytes).
"""

from __future__ import annotations

import sys
import time

import brotli
import numpy as np  # noqa: F401 -- all have imported it when the peak begins to count
from report import memory, report

import pparse.codecs.brotli
import pparse.compressed.inflated  # noqa: F401 -- what reading and writing import later
from pparse.data.files import FileData
from pparse.kernels.highway import Highway64
from pparse.riegeli import RecordReader, RecordWriter

PIECE = 1 << 20
who, how, path, source, options = sys.argv[1:6]
compressed = options.startswith("brotli")


def write() -> int:
    with FileData(source) as data, RecordWriter(path, options=options) as writer:
        writer.write_record_from(data)
        return data.size or 0


def read() -> int:
    size = 0
    with RecordReader(path) as reader:
        record = reader.open_record()
        while record is not None and (piece := record.read(PIECE)):
            size += len(piece)
    return size


def bare_write() -> int:
    """Compress and hash; where nothing is compressed, hash first, then copy, as the format wants it."""
    digest, size = Highway64(), 0
    stream = brotli.Compressor(quality=int(options.partition(":")[2] or 6)) if compressed else None
    with open(source, "rb", buffering=0) as file, open(f"{path[: path.rindex('.')]}.bare", "wb") as target:
        while piece := file.read(PIECE):
            size += len(piece)
            data = stream.process(piece) if stream else piece
            digest.update(data)
            if stream:
                target.write(data)
        if stream:
            target.write(stream.finish())
            return size
        file.seek(0)
        while piece := file.read(PIECE):
            target.write(piece)
    return size


def bare_read() -> int:
    stream, size = brotli.Decompressor() if compressed else None, 0
    with open(f"{path[: path.rindex('.')]}.bare", "rb", buffering=0) as file:
        while piece := file.read(64 << 10 if stream else PIECE):
            if stream is None:
                size += len(piece)
                continue
            while out := stream.process(piece, output_buffer_limit=64 << 10):
                size += len(out)
                piece = b""
    return size


run = {("pparse", "write"): write, ("pparse", "read"): read, ("bare", "write"): bare_write, ("bare", "read"): bare_read}
brotli.decompress(brotli.compress(b"warm"))
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
size = run[who, how]()
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu_seconds, above=memory("VmHWM") - before, size=size)
