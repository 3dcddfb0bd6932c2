"""Decode one tensor of a GGUF file to float32: ``pparse``, or the package ``gguf``."""

from __future__ import annotations

import sys
import time

import numpy as np
from report import memory, report

how, path, name = sys.argv[1:4]
if how == "pparse":
    import pparse

    with pparse.view(path) as model:
        tensor = model[name]
        tensor[:1]  # what is imported is not counted, and tables are made
        before = memory("VmRSS")
        start = time.perf_counter()
        array = tensor.numpy()
else:
    import gguf

    tensor = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == name)
    gguf.dequantize(np.array(tensor.data[:1]), tensor.tensor_type)
    before = memory("VmRSS")
    start = time.perf_counter()
    array = gguf.dequantize(tensor.data, tensor.tensor_type)
seconds = time.perf_counter() - start
report(count=array.size, seconds=seconds, above=memory("VmHWM") - before)
