"""How many members has a JSON document? Only the call is timed; the imports are done before."""

from __future__ import annotations

import sys
import time

from report import report

how, path, shape = sys.argv[1:4]
if how.startswith("pparse"):
    import pparse
    import pparse.document.opening
    import pparse.parsers.json.parser

    kernel = how.partition("-")[2]
    if kernel == "numpy":
        import numpy  # noqa: F401

    start, cpu = time.perf_counter(), time.process_time()
    with pparse.open(path, format="json", options={"kernel": kernel}) as document:
        count = len(document.root)
elif how == "json.loads":
    import json

    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        count = len(json.loads(file.read()))
elif how == "orjson.loads":
    import orjson

    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        count = len(orjson.loads(file.read()))
else:
    import ijson

    start, cpu = time.perf_counter(), time.process_time()
    with open(path, "rb") as file:
        count = sum(1 for _ in (ijson.items(file, "item") if shape == "array" else ijson.kvitems(file, "")))
report(seconds=time.perf_counter() - start, call_cpu=time.process_time() - cpu, count=count)
