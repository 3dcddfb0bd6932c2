"""Conversion takes the same little memory whatever the size of a tensor: measured in processes of their own."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest

from tests import sweep
from tests.rows import rows
from tests.test_memory import MIB, SLACK, run

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file with one tensor of 48 MiB, and one of 24 MiB; without holes, which would be refused."""
    sizes = {"a": ("F64", 48 * MIB // 8, 48 * MIB), "b": ("BF16", 12 * MIB, 24 * MIB)}
    header, at = {}, 0
    for name, (dtype, count, size) in sizes.items():
        header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path = tmp_path_factory.mktemp("large") / "large.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        block = np.random.default_rng(1).normal(size=MIB // 8).tobytes()
        for _ in range(at // MIB):
            file.write(block)
    return path


WAYS = [
    (target, options, budget)
    for target in ("out.safetensors", "out.npz")
    for options in ("{}", "{'dtype': 'float32'}", "{'dtype': 'bfloat16'}")
    for budget in ("2MiB", "64MiB")
]


@rows("target, options, budget", sweep.sample(WAYS, 2))
def test_large_tensors_are_written_within_the_budget(tmp_path, large, target, options, budget):
    result = run(
        """
        import pparse.conversion.converting, pparse.conversion.forms, pparse.tensors.dtype, threading
        small = np.ones(1000); pparse.tensors.dtype.cast(small, pparse.tensors.DTYPES["bfloat16"])
        before = memory("VmRSS")
        report = pparse.convert(sys.argv[1], sys.argv[2], budget=sys.argv[3], **eval(sys.argv[4]))
        finish(bytes=report.tensor_bytes, size=report.bytes)
        """,
        large,
        str(tmp_path / target),
        budget,
        options,
    )
    (tmp_path / target).unlink()
    assert result["bytes"] >= 36 * MIB
    assert result["grown"] <= (2 * MIB if budget == "2MiB" else 12 * MIB) + SLACK


def test_a_turned_tensor_too(tmp_path):
    """Elements that lie far apart are gathered a piece at a time."""
    result = run(
        """
        import os, threading
        from pparse.tensors import DTYPES, Span, Tensor
        rows, columns = 2048, 3072
        array = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        array.tofile(sys.argv[1])
        del array
        header = b'{"w":{"dtype":"F32","shape":[2048,3072],"data_offsets":[0,25165824]}}'
        with open(sys.argv[2], "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            with open(sys.argv[1], "rb") as data:
                while block := data.read(1 << 20):
                    file.write(block)
        small = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
        pparse.convert(len(small).to_bytes(8, "little") + small + bytes(8), sys.argv[3])  # all that it imports
        os.unlink(sys.argv[3])
        viewer = pparse.view(sys.argv[2], budget="4MiB")
        (tensor,) = viewer.tensors()
        turned = Tensor("w", tensor.dtype, (columns, rows), tensor.spans, strides=(4, 4 * columns), owner=viewer)
        viewer.tensors = lambda: iter([turned])
        pid = os.fork()
        if pid:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        open("/proc/self/clear_refs", "w").write("5")
        before = memory("VmRSS")
        pparse.convert(viewer, sys.argv[3])
        grown = memory("VmHWM") - before
        with pparse.view(sys.argv[3]) as written:
            block = written["w"][2500:2502]
        right = block.tolist() == (np.arange(rows) * columns + np.array([[2500], [2501]])).astype(np.float32).tolist()
        print(json.dumps({"grown": grown, "right": right}))
        """,
        str(tmp_path / "raw"),
        str(tmp_path / "in.safetensors"),
        str(tmp_path / "out.safetensors"),
    )
    assert result["right"]
    assert result["grown"] <= 10 * MIB
