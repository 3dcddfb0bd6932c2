"""Read what a compressed stream holds, 1 MiB at a time: ``pparse``, ``bare`` (the library), from the front.

``backward``: as ``pparse``, from the end; ``scratch`` is the folder for what does not fit into memory.
"""

from __future__ import annotations

import sys
import time
import zlib

from report import memory, report

from pparse.codecs.base import ZSTD, package

MIB = 1 << 20
INPUT = 64 << 10

how, codec, path = sys.argv[1:4]
scratch = sys.argv[4] if len(sys.argv) > 4 else None
if how == "bare":
    if codec == "gzip":
        stream = zlib.decompressobj(31)
    elif codec == "xz":
        library = package("lzma").LZMADecompressor()
    else:
        library = package(ZSTD).ZstdDecompressor()
else:
    import pparse
    import pparse.compressed.resumed
    import pparse.parsers.streams
    import pparse.tensors.viewer

    if codec != "gzip":
        package({"xz": "lzma", "zstd": ZSTD}[codec])
check = size = 0
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
if how == "bare":
    with open(path, "rb", buffering=0) as file:
        if codec == "gzip":
            while not stream.eof:
                block = stream.decompress(stream.unconsumed_tail or file.read(INPUT), MIB)
                check, size = zlib.crc32(block, check), size + len(block)
        else:
            while not library.eof:
                block = library.decompress(file.read(INPUT) if library.needs_input else b"", MIB)
                check, size = zlib.crc32(block, check), size + len(block)
elif how == "pparse":
    with pparse.open(path, format=codec) as document:
        content = document.parse().parser.content
        while block := content.pread(size, MIB):
            check, size = zlib.crc32(block, check), size + len(block)
else:
    with pparse.open(path, format=codec, scratch=scratch) as document:
        content = document.parse().parser.content
        content.verify()
        at = size = content.size
        while at:
            first = max(0, at - MIB)
            check ^= zlib.crc32(content.read_exact(first, at - first))
            at = first
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu, above=memory("VmHWM") - before, check=check, size=size)
