"""List a GGUF file with the package gguf, as its documentation shows."""

from __future__ import annotations

import sys

from gguf import GGUFReader
from report import report

count = 0
for tensor in GGUFReader(sys.argv[1]).tensors:
    print(f"{tensor.name} {tensor.tensor_type.name} {'×'.join(map(str, tensor.shape))} {tensor.n_bytes}")
    count += 1
report(count=count)
