"""Make an array of one initializer: ``pparse``; ``onnx``, of the loaded message."""

from __future__ import annotations

import sys
import time

import numpy as np
from report import report

how, path, name = sys.argv[1:4]
if how == "pparse":
    import pparse

    with pparse.view(path) as model:
        tensor = model[name]
        tensor[:1]  # what is imported is not counted
        start = time.perf_counter()
        array = tensor.numpy()
        seconds = time.perf_counter() - start
else:
    import onnx
    from onnx import numpy_helper

    stored = next(tensor for tensor in onnx.load(path).graph.initializer if tensor.name == name)
    start = time.perf_counter()
    array = np.array(numpy_helper.to_array(stored))  # an array of its own, as ours is
    seconds = time.perf_counter() - start
report(count=array.size, seconds=seconds)
