"""Go through a TFRecord file: ``index``, ``list``, ``check`` with pparse, or with the iterator of ``tensorflow``."""

from __future__ import annotations

import sys
import time

from report import memory, report

how, path = sys.argv[1:3]
kept = 0
if how == "tensorflow":
    import tensorflow as tf

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    count = sum(1 for _ in tf.compat.v1.io.tf_record_iterator(path))
else:
    import pparse
    import pparse.parsers.tfrecord.parser

    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    with pparse.open(path) as document:
        if how == "index":
            count = len(document.root)
            kept = document.root.index.memory
        elif how == "list":
            count = sum(1 for member in document.result.listing.members() if member.size >= 0)
        else:
            assert not list(document.check())
            count = document.result.listing.checksums()[1]
seconds, used = time.perf_counter() - start, time.process_time() - cpu
report(count=count, kept=kept, seconds=seconds, call_cpu=used, above=memory("VmHWM") - before)
