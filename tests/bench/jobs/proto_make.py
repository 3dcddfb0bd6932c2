"""Make a message file.

``constants``: a SavedModel of constants of 100 MB (weights from a file, again and again); ``graph``: a GraphDef of many
small nodes; ``floats``, ``varints``: a TensorProto of numbers that are packed.
"""

from __future__ import annotations

import random
import sys

from report import report

from pparse.kernels.varint import encode_varint
from pparse.protos import message_class

CONSTANT = 100_000_000


def field(number: int, content: bytes) -> bytes:
    return header(number, len(content)) + content


def header(number: int, length: int) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(length)


def constant(number: int) -> bytes:
    """Return what stands before the bytes of a constant: the ``node`` of the graph up to its ``tensor_content``."""
    node = message_class("tensorflow.NodeDef")(name=f"c{number}", op="Const")
    node.attr["dtype"].type = 1
    tensor = b"\x08\x01" + field(2, field(2, b"\x08" + encode_varint(CONSTANT // 4))) + header(4, CONSTANT)
    value = header(8, len(tensor) + CONSTANT) + tensor
    entry = field(1, b"value") + header(2, len(value) + CONSTANT) + value
    content = node.SerializeToString() + header(5, len(entry) + CONSTANT) + entry
    return header(1, len(content) + CONSTANT) + content


def constants(path: str, count: int, weights: str) -> None:
    with open(weights, "rb") as file:
        values = file.read()
    nodes = [constant(number) for number in range(count)]
    graph = sum(len(node) + CONSTANT for node in nodes)
    info = field(1, field(4, b"serve"))
    with open(path, "wb") as file:
        file.write(b"\x08\x01" + header(2, len(info) + len(header(2, graph)) + graph) + info + header(2, graph))
        for node in nodes:
            file.write(node)
            left = CONSTANT
            while left:
                left -= file.write(memoryview(values)[:left])


def graph(path: str, count: int) -> None:
    rng = random.Random(0)
    kind = message_class("tensorflow.GraphDef")
    operations = ("Add", "MatMul", "Relu", "Identity", "Reshape")
    part = kind()
    with open(path, "wb") as file:
        for number in range(count):
            before = max(0, number - 1)
            node = part.node.add(name=f"block_{number // 1000}/layer_{number % 1000}/op", op=rng.choice(operations))
            node.input.append(f"block_{before // 1000}/layer_{before % 1000}/op")
            if number % 3 == 0:
                node.input.append(f"^block_0/layer_{number % 1000}/op")
            node.attr["T"].type = 1
            if len(part.node) == 10_000:
                file.write(part.SerializeToString())
                part = kind()
        part.versions.producer = 1000
        file.write(part.SerializeToString())


def numbers(path: str, count: int, name: str) -> None:
    tensor = message_class("tensorflow.TensorProto")(dtype=1 if name == "float_val" else 9)
    rng = random.Random(0)
    few = [rng.random() if name == "float_val" else rng.getrandbits(rng.randrange(1, 40)) for _ in range(100_000)]
    for _ in range(count // len(few)):
        getattr(tensor, name).extend(few)
    with open(path, "wb") as file:
        file.write(tensor.SerializeToString())


what, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if what == "constants":
    constants(target, count, sys.argv[4])
elif what == "graph":
    graph(target, count)
else:
    numbers(target, count, {"floats": "float_val", "varints": "int64_val"}[what])
report()
