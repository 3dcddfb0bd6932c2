"""Do one thing within a process, again and again, and tell the least CPU that it took: ``inside.py WHO WHAT PATH``.

``WHO``: pparse, or a peer; ``WHAT``: ``list`` (names, shapes, dtypes), ``each`` (every tensor by its name), ``values``
(every tensor as an array), ``check`` (a peer: all of it parsed or gone through), ``walk`` (every node), ``tree`` (as
JSON). ``calls`` is how many things it went through.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

from report import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def pparse(what: str, path: str) -> Callable[[], int]:
    import pparse

    if what == "tree":
        from pparse.cli import main

        def tree() -> int:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                main(["tree", "-d", "all", "--json", path])
            return out.getvalue().count('"path"')

        return tree

    def listed() -> int:
        with pparse.view(path) as view:
            return len([(tensor.name, tensor.shape, tensor.dtype) for tensor in view.values()])

    def each() -> int:
        with pparse.view(path) as view:
            return len([view[name] for name in view.keys()])  # noqa: SIM118 -- as everybody writes it

    def values() -> int:
        with pparse.view(path) as view:
            return sum(view[name].numpy().size >= 0 for name in view.keys())  # noqa: SIM118

    def check() -> int:
        with pparse.open(path) as document:
            if any(finding.severity >= finding.severity.WARNING for finding in document.check()):
                sys.exit("findings in a sound file")
        return 1

    def walk() -> int:
        with pparse.open(path) as document:
            return sum(1 for _ in document.walk())

    return {"list": listed, "each": each, "values": values, "check": check, "walk": walk}[what]


def safe_open(what: str, path: str) -> Callable[[], int]:
    from safetensors import safe_open

    def listed() -> int:
        with safe_open(path, "np") as file:
            parts = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118
            return len([(name, part.get_shape(), part.get_dtype()) for name, part in parts])

    def values() -> int:
        with safe_open(path, "np") as file:
            return sum(file.get_tensor(name).size >= 0 for name in file.keys())  # noqa: SIM118

    return values if what == "values" else listed


def ztensor(what: str, path: str) -> Callable[[], int]:
    import ztensor

    def listed() -> int:
        with ztensor.open(path) as source:
            return len([(name, source[name].shape, source[name].dtype) for name in source])

    return listed


def torch(what: str, path: str) -> Callable[[], int]:
    import torch

    def listed() -> int:
        return len([(name, value.shape, value.dtype) for name, value in torch.load(path).items()])

    def values() -> int:
        return sum(value.numpy().size >= 0 for value in torch.load(path).values())

    return values if what == "values" else listed


def numpy(what: str, path: str) -> Callable[[], int]:
    import numpy

    def values() -> int:
        with numpy.load(path) as archive:
            return sum(archive[name].size >= 0 for name in archive.files)

    return values


def onnx(what: str, path: str) -> Callable[[], int]:
    import onnx
    from onnx.numpy_helper import to_array

    def listed() -> int:
        return len([(part.name, tuple(part.dims), part.data_type) for part in onnx.load(path).graph.initializer])

    def values() -> int:
        return sum(to_array(part).size >= 0 for part in onnx.load(path).graph.initializer)

    return values if what == "values" else listed


def gguf(what: str, path: str) -> Callable[[], int]:
    from gguf import GGUFReader

    def listed() -> int:
        return len([(part.name, tuple(part.shape), part.tensor_type) for part in GGUFReader(path).tensors])

    return listed


def loads(what: str, path: str) -> Callable[[], int]:
    """The standard library, or the package of the format: all of the file as Python's objects."""
    import pickletools

    import msgpack

    def read(make: Callable[[bytes], Any]) -> Callable[[], int]:
        def run() -> int:
            with open(path, "rb") as file:
                return len([make(file.read())])

        return run

    kind = path.rpartition(".")[2]
    return read(
        {"json": json.loads, "msgpack": msgpack.unpackb, "pkl": lambda raw: list(pickletools.genops(raw))}[kind]
    )


def main() -> None:
    who, what, path = sys.argv[1:4]
    run = globals()[who](what, path)
    least, began, calls = float("inf"), time.perf_counter(), 0
    for number in range(20):
        start = time.process_time()
        calls = run()
        spent = time.process_time() - start
        if number or spent > 1:  # the first one imports
            least = min(least, spent)
        if number and time.perf_counter() - began > 2:
            break
    report(call_cpu=least, calls=calls)


main()
