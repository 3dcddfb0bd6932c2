"""Event files of TensorBoard for tests, written with protobuf's own classes."""

from __future__ import annotations

import struct
from typing import Any

from pparse.protos import message_class
from tests.tfrecord_files import record

VERSION = "brain.Event:2"


def event(step: int, time: float = 0.0, **values: Any) -> bytes:
    """Return an event with a value for each tag: a float, or the fields of a Value."""
    found = message_class("tensorflow.Event")(wall_time=time, step=step)
    for tag, value in values.items():
        fields = value if isinstance(value, dict) else {"simple_value": value}
        found.summary.value.add(tag=tag, **fields)
    return found.SerializeToString()


def events(contents: list[bytes]) -> bytes:
    """Return a file with these events, behind the version."""
    first = b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a" + bytes([len(VERSION)]) + VERSION.encode()
    return b"".join(map(record, [first, *contents]))


def tensor(kind: int, shape: list[int], **values: Any) -> dict[str, Any]:
    """Return the fields of a Value that is a tensor."""
    sizes = {"dim": [{"size": size} for size in shape]}
    return {"tensor": {"dtype": kind, "tensor_shape": sizes, **values}}
