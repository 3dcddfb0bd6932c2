"""A tensor that counts from 0: is every element right?"""

from __future__ import annotations

import sys
import time

import numpy as np
from report import memory, report

import pparse

with pparse.view(sys.argv[1]) as model:
    tensor = model["count"]
    before = memory("VmRSS")
    start = time.perf_counter()
    array = tensor.numpy()
    seconds = time.perf_counter() - start
    above = memory("VmHWM") - before
    step = 1 << 22
    wrong = sum(
        int((array[at : at + step] != np.arange(at, min(len(array), at + step), dtype=np.uint64)).sum())
        for at in range(0, len(array), step)
    )
report(seconds=seconds, above=above, wrong=wrong, elements=len(array))
