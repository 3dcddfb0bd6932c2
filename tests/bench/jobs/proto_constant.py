"""One constant of a ``.cpb`` to numpy; only the call is timed, and, apart, reading every page of the result.

``viewer``: by name, in a view that was opened before; ``node``: from the stream of its node into an array;
``np.fromfile`` and ``readinto``: as many bytes from the same place of the file, block headers among them;
``preadv``: the bytes themselves, where they lie between block headers, by the bare call.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from report import memory, report
from warm import import_all

how, path, name, node, verify = sys.argv[1:6]
import_all()

import pparse  # noqa: E402

with pparse.view(path, options={"verify": "headers"}) as document:
    tensor = document[name]
    nbytes, spans = tensor.nbytes, [(span.offset, span.length) for span in tensor.spans]
    head = bytes(next(tensor.raw_blocks(4096)))
if how == "viewer":
    view = pparse.view(path, options={"verify": verify})
elif how == "node":
    extraction = pparse.open(path, options={"verify": verify})
    found = extraction.node(node)


def viewer() -> object:
    found = view[name]
    looked_up.append(time.perf_counter())
    return found.numpy()


def by_node() -> object:
    array = np.empty(nbytes, np.uint8)
    if found.open().readinto(memoryview(array)) != nbytes:
        sys.exit("the stream is short")
    return array


def fromfile() -> object:
    return np.fromfile(path, np.float32, nbytes // 4, offset=spans[0][0])


def readinto() -> object:
    array = np.empty(nbytes, np.uint8)
    with open(path, "rb", buffering=0) as file:
        file.seek(spans[0][0])
        if file.readinto(memoryview(array)) != nbytes:
            sys.exit("the file is short")
    return array


def preadv() -> object:
    array = np.empty(nbytes, np.uint8)
    views, gap, at = memoryview(array), memoryview(bytearray(64)), 0
    group = 500  # two buffers a block: the block, and the header after it; a call takes 1024
    with open(path, "rb", buffering=0) as file:
        for first in range(0, len(spans), group):
            buffers = []
            for number in range(first, min(first + group, len(spans))):
                buffers.append(views[at : at + spans[number][1]])
                at += spans[number][1]
                if number + 1 < len(spans):
                    buffers.append(gap[: spans[number + 1][0] - sum(spans[number])])
            os.preadv(file.fileno(), buffers, spans[first][0])
    return array


run = {"viewer": viewer, "node": by_node, "np.fromfile": fromfile, "readinto": readinto, "preadv": preadv}[how]
before, looked_up = memory("VmRSS"), list[float]()
start, cpu = time.perf_counter(), time.process_time()
array = run()
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
above = memory("VmHWM") - before
octets = np.asarray(array).reshape(-1).view(np.uint8)
find, start = looked_up[0] - start if looked_up else 0.0, time.perf_counter()
touched = int(octets[::4096].sum())
seconds += time.perf_counter() - start
if octets[: len(head)].tobytes() != head:
    sys.exit("not the bytes of the constant")
check = 0 if how in ("np.fromfile", "readinto") else int(octets.view(np.uint32).sum(dtype=np.uint64)) % (1 << 40)
report(seconds=seconds, call_cpu=cpu_seconds, above=above, nbytes=nbytes, check=check, touched=touched, find=find)
