"""List names, types and shapes with the safetensors library: a file, or an index and its shards."""

from __future__ import annotations

import sys

from safetensors import safe_open

source = sys.argv[1]
count = 0
if source.endswith(".index.json"):
    import json
    import os

    with open(source) as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
    files = [os.path.join(os.path.dirname(source), shard) for shard in shards]
else:
    files = [source]
for path in files:
    with safe_open(path, framework="np") as opened:
        for name in opened.keys():  # noqa: SIM118 -- it is no mapping
            piece = opened.get_slice(name)
            print(name, piece.get_dtype(), piece.get_shape())
            count += 1

from report import report  # noqa: E402 -- after the work

report(count=count)
