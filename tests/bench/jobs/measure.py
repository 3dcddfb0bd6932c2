"""Hash, measure or compare all tensors of a file: as pparse does, or in the bare steps, block by block."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from report import memory, report

BLOCK, PIECE = 1 << 20, 32 << 10
how, what, *paths = sys.argv[1:]


def header(path: str) -> list[tuple[str, int, int]]:
    """Return type, offset and size of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        told = json.loads(file.read(size))
    places = [(one["dtype"], *one["data_offsets"]) for one in told.values()]
    return [(dtype, 8 + size + start, end - start) for dtype, start, end in places]


def blocks(path: str):
    """Yield type and bytes of each block: one buffer, filled again and again."""
    buffer = memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as file:
        for dtype, offset, size in header(path):
            file.seek(offset)
            while size:
                got = file.readinto(buffer[: min(size, BLOCK)])
                size -= got
                yield dtype, buffer[:got]


def hash_floor() -> float:
    from blake3 import blake3

    made = blake3()
    for _, block in blocks(paths[0]):
        made.update(block)
    return 0.0


def stats_floor() -> float:
    """Range, sum, sum of squares, NaN and a histogram of the exponents; of 16 bits, of the codes: that tells it all."""
    total = 0.0
    counts = np.zeros(512, np.int64)
    codes = np.zeros(1 << 16, np.int64)
    for dtype, block in blocks(paths[0]):
        if dtype == "BF16":
            codes += np.bincount(np.frombuffer(block, np.uint16), minlength=1 << 16)
            continue
        for at in range(0, len(block) // 4, PIECE):
            values = np.frombuffer(block, np.float32)[at : at + PIECE]
            bits = values.view(np.uint32)
            counts += np.bincount((bits >> np.uint32(23)).astype(np.intp), minlength=512)
            values.min(), values.max(), np.count_nonzero(np.isnan(values))
            wide = values.astype(np.float64)
            total += float(wide.sum())
            wide *= wide
            float(wide.sum())
    found = np.flatnonzero(codes).astype(np.uint32) << np.uint32(16)
    return total + float((found.view(np.float32).astype(np.float64) * codes[codes > 0]).sum())


def diff_floor() -> float:
    """Bytes are compared; where they differ, how many values, how far they are apart, and the cosine."""
    changed = 0
    for dtype, offset, size in header(paths[0]):
        kind = np.float32 if dtype == "F32" else np.uint16
        a, b = (np.memmap(path, kind, "r", offset, size // np.dtype(kind).itemsize) for path in paths)
        if np.array_equal(a, b):
            continue
        for at in range(0, len(a), 2 * PIECE):
            mine, others = a[at : at + 2 * PIECE], b[at : at + 2 * PIECE]
            differ = (mine != others) & ~(np.isnan(mine) & np.isnan(others))
            changed += int(np.count_nonzero(differ))
            x, y = mine.astype(np.float64), others.astype(np.float64)
            steps = np.abs(x - y)
            steps.max(), steps.sum(), (x * y).sum(), (x * x).sum(), (y * y).sum()
    return float(changed)


def ours() -> float:
    import pparse

    if what == "hash":
        pparse.hash(paths[0])
        return 0.0
    if what == "stats":
        found = pparse.stats(paths[0]).whole
        return found.mean * found.finite
    told = pparse.diff(*paths)
    return float(sum(one.distance.changed for one in told.tensors if one.distance is not None))


if how == "pparse":
    import pparse

    pparse.stats  # noqa: B018 -- imports come before
    import pparse.measuring.difference
    import pparse.measuring.statistics
before = memory("VmHWM")
start = time.perf_counter()
cpu = time.process_time()
check = ours() if how == "pparse" else {"hash": hash_floor, "stats": stats_floor, "diff": diff_floor}[what]()
seconds, call_cpu = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=call_cpu, check=check, above=memory("VmHWM") - before)
