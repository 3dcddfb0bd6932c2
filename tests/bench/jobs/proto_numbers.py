"""Packed numbers of a TensorProto to numpy: from the file, by pparse or by protobuf and ``np.array``."""

from __future__ import annotations

import sys
import time

import numpy as np
from report import memory, report
from warm import import_all

how, path, name = sys.argv[1:4]
import_all("google.protobuf.message_factory")

import pparse  # noqa: E402
from pparse.protos import message_class  # noqa: E402

kind = message_class("tensorflow.TensorProto")
dtype = {"float_val": np.float32, "int64_val": np.int64}[name]
before = memory("VmRSS")
start, cpu = time.perf_counter(), time.process_time()
if how == "pparse":
    document = pparse.open(path, format="protobuf", options={"message": "tensorflow.TensorProto"})
    array = document.node(name).index_to(None).note.array()
else:
    with open(path, "rb") as file:
        message = kind.FromString(file.read())
    array = np.array(getattr(message, name), dtype)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
check = int(np.ascontiguousarray(array).view(np.uint8).sum(dtype=np.uint64))
report(seconds=seconds, call_cpu=cpu_seconds, above=memory("VmHWM") - before, count=array.size, check=check)
