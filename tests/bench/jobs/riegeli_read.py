"""Read a file of records, by turns with the bare steps: read, hash and decompress the same chunks, one after the other.

The table of chunks is made beforehand, and so is a copy of their data without block headers, back to back: the peer
makes no records and looks at no header. ``ours`` and ``peer`` are medians; ``ratio`` is of pairs of passes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

from report import report

from pparse.kernels.highway import NATIVE, hash64
from pparse.kernels.varint import read_varint
from pparse.riegeli import RecordReader
from pparse.riegeli.chunks import ChunkReader
from pparse.riegeli.source import Source

if not NATIVE:
    sys.exit("pparse was installed without its extension")
path, copy, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])


def table() -> list[tuple[int, int, int, int, int]]:
    """Write the data of all chunks with records, back to back; return (offset, size, hash, values, decoded)."""
    source = Source(path)
    chunks, found, pos, offset = ChunkReader(source), [], 64, 0
    with open(copy, "wb") as file:
        while pos < source.size():
            chunk = chunks.header(pos)
            data = chunks.data(chunk)
            at, begin = read_varint(data, 1, len(data))
            begin += at
            if data[0]:
                _, begin = read_varint(data, begin, len(data))
            header = chunk.header
            found.append((offset, header.data_size, header.data_hash, begin, header.decoded_data_size))
            offset += file.write(data)
            pos = chunk.end
    source.close(0)
    return found


def bare(kind: int):
    """Return the function that decompresses the values of a chunk."""
    if kind == ord("b"):
        import brotli

        return lambda data, size: brotli.decompress(data)
    if kind == ord("z"):
        import zstandard

        stream = zstandard.ZstdDecompressor()
        return lambda data, size: stream.decompress(data, max_output_size=size)
    if kind == ord("s"):
        import cramjam

        return lambda data, size: cramjam.snappy.decompress_raw(data)
    return lambda data, size: data


def run_peer() -> int:
    total = 0
    file = os.open(copy, os.O_RDONLY)
    for offset, size, wanted, begin, decoded in chunks:
        data = os.pread(file, size, offset)
        if hash64(data) != wanted:
            sys.exit("a hash is wrong")
        total += len(decompress(memoryview(data)[begin:], decoded))
    os.close(file)
    return total


def run_ours() -> int:
    total = 0
    with RecordReader(path) as reader:
        for record in reader:
            total += len(record)
    return total


chunks = table()
with open(copy, "rb") as file:
    decompress = bare(file.read(1)[0])
totals = {run_ours(), run_peer()}  # warm
if len(totals) > 1:
    sys.exit(f"the bytes differ: {totals}")
times: dict[str, list[float]] = {"ours": [], "peer": [], "ours_cpu": [], "peer_cpu": []}
for number in range(pairs):
    for name, run in [("peer", run_peer), ("ours", run_ours)][:: 1 if number % 2 else -1]:
        start, cpu = time.perf_counter(), time.process_time()
        run()
        times[name].append(time.perf_counter() - start)
        times[f"{name}_cpu"].append(time.process_time() - cpu)
middle = {name: statistics.median(values) for name, values in times.items()}
ratios = [peer / ours for peer, ours in zip(times["peer"], times["ours"], strict=True)]
cpu_ratios = [peer / ours for peer, ours in zip(times["peer_cpu"], times["ours_cpu"], strict=True)]
report(**middle, ratio=statistics.median(ratios), cpu_ratio=statistics.median(cpu_ratios), size=totals.pop())
