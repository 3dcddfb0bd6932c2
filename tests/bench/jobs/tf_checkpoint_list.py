"""List the variables of a checkpoint of TensorFlow: ``pparse`` or ``tensorflow``; ``check``: compare its checksums."""

from __future__ import annotations

import os
import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
count = 0
begun = time.perf_counter()
if how == "tensorflow":
    before = memory("VmRSS")
    import tensorflow as tf

    start = time.perf_counter()
    count = len(tf.train.list_variables(path))
else:
    import pparse
    import pparse.parsers.checkpoint.parser
    import pparse.viewers.checkpoint.viewer

    before = memory("VmRSS")
    start = time.perf_counter()
    with pparse.view(path) as model:
        if how == "check":
            count = int(not list(model.check()))
        else:
            for tensor in model.tensors():
                count += bool(tensor.name and tensor.stored_nbytes)
end = time.perf_counter()
report(count=count, seconds=end - start, whole=end - begun, above=memory("VmHWM") - before)
