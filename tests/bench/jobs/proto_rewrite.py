"""Split, merge or copy a file, with the peak above the imports; what is written is removed by the caller.

``split``: by the stream; ``eager``: parsed by protobuf, split by GraphDefSplitter; ``merge``: back; ``copy`` and
``gzip`` are only beside it. ``seconds`` of ``eager`` leave the parsing out.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

from report import memory, report
from warm import import_all

from pparse.codecs.base import ZSTD

how, source, target, options, max_size = [*sys.argv[1:], "", ""][:5]
import_all("brotli", ZSTD, "google.protobuf.message_factory", "gzip")

import gzip  # noqa: E402

from pparse.proto_splitter import GraphDefSplitter  # noqa: E402
from pparse.proto_splitter.stream_merge import merge_to_file  # noqa: E402
from pparse.proto_splitter.stream_split import split_file  # noqa: E402
from pparse.protos import message_class  # noqa: E402

before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
parsed = 0.0
if how == "split":
    split_file(source, target, max_size=max_size, writer_options=options)
    target += ".cpb"
elif how == "eager":
    with open(source, "rb") as file:
        graph = message_class("tensorflow.GraphDef").FromString(file.read())
    parsed = time.perf_counter() - start
    target = GraphDefSplitter(graph, max_size=max_size).write(target, options)
elif how == "merge":
    merge_to_file(source, target)
elif how == "copy":
    shutil.copyfile(source, target)
elif how == "blocks":  # a copy through memory, as a program makes it that looks at the bytes
    with open(source, "rb") as file, open(target, "wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
else:
    with open(source, "rb") as file, gzip.open(target, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(file, packed, 1 << 20)
seconds, cpu_seconds = time.perf_counter() - start - parsed, time.process_time() - cpu
report(
    seconds=seconds,
    call_cpu=cpu_seconds,
    parsed=parsed,
    above=memory("VmHWM") - before,
    size=os.path.getsize(target),
    source=os.path.getsize(source),
)
