"""Open a ``.cpb`` and read one scalar, after all imports; ``allowed``: the bytes that may be read.

These are the last chunk of the file (the metadata), and the chunks that are parts of the message: those whose records
are messages. The first call is reported: nothing was opened before.
"""

from __future__ import annotations

import sys
import time

from report import memory, report
from warm import import_all

import_all()

import pparse  # noqa: E402
from pparse.data.base import IoStats  # noqa: E402

path, field = sys.argv[1:3]
before = memory("VmRSS")
stats = IoStats(log=True)
start, cpu = time.perf_counter(), time.process_time()
with pparse.open(path, stats=stats, options={"verify": "headers"}) as document:
    value = document.get(field)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
above = memory("VmHWM") - before
if value is None:
    sys.exit("the field has no value")
again = []
for _ in range(5):
    start = time.perf_counter()
    with pparse.open(path, options={"verify": "headers"}) as document:
        document.get(field)
    again.append(time.perf_counter() - start)

# What belongs to the message: found in another way, by the metadata and the positions in it.
from pparse.data.files import FileData  # noqa: E402
from pparse.protos import message_class  # noqa: E402
from pparse.riegeli import RecordReader  # noqa: E402

with FileData(path) as data, RecordReader(data) as reader:
    size = data.size or 0
    reader.seek_numeric(size)
    reader.seek_back()
    metadata = message_class("tensorflow.proto_splitter.ChunkMetadata").FromString(reader.read_record())
    last = reader.last_pos.chunk_begin
parts = [chunk for chunk in metadata.chunks if chunk.type == 1]
report(
    seconds=seconds,
    call_cpu=cpu_seconds,
    above=above,
    bytes=stats.bytes,
    reads=stats.reads,
    last=size - last,
    parts=sum(part.size for part in parts),
    part_count=len(parts),
    size=size,
    again=sorted(again)[2],
)
