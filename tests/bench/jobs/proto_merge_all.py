"""Merge a ``.cpb`` into a message of protobuf's, all of it in memory, for one field."""

from __future__ import annotations

import sys
import time

from report import memory, report
from warm import import_all

prefix = sys.argv[1].removesuffix(".cpb")
import_all("google.protobuf.message_factory")

from pparse.proto_splitter import Merger  # noqa: E402
from pparse.protos import message_class  # noqa: E402

kind = message_class("tensorflow.SavedModel")
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
message = kind()
Merger.read(prefix, message)
value = message.meta_graphs[0].graph_def.node[1].attr["value"].tensor.dtype
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu_seconds, above=memory("VmHWM") - before, value=value)
