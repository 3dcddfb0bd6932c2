"""Makes TFRecord files and Examples for tests, without the code under test: checksums bit by bit."""

from __future__ import annotations

import struct

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


_ZEROS: dict[int, bytes] = {}


def head(length: int) -> bytes:
    raw = struct.pack("<Q", length)
    return raw + masked(raw)


def record(data: bytes) -> bytes:
    if not data.strip(b"\0"):  # the loop takes long for large ones
        if len(data) not in _ZEROS:
            _ZEROS[len(data)] = masked(data)
        return head(len(data)) + data + _ZEROS[len(data)]
    return head(len(data)) + data + masked(data)


def tfrecord(records: list[bytes]) -> bytes:
    return b"".join(map(record, records))


def _fill(feature, values: list) -> None:
    kind = {bytes: feature.bytes_list, float: feature.float_list, int: feature.int64_list}[type(values[0])]
    kind.value.extend(values)


def example(**features: list) -> bytes:
    from pparse.protos import message_class

    made = message_class("tensorflow.Example")()
    for name, values in features.items():
        _fill(made.features.feature[name], values)
    return made.SerializeToString(deterministic=True)


def sequence_example(context: dict[str, list], lists: dict[str, list[list]]) -> bytes:
    from pparse.protos import message_class

    made = message_class("tensorflow.SequenceExample")()
    for name, values in context.items():
        _fill(made.context.feature[name], values)
    for name, steps in lists.items():
        for values in steps:
            _fill(made.feature_lists.feature_list[name].feature.add(), values)
    return made.SerializeToString(deterministic=True)


def sound_records(content: bytes) -> list[bytes]:
    """Return the records of a file; ValueError if one is not sound, as TensorFlow refuses it."""
    found, at = [], 0
    while at < len(content):
        raw = content[at : at + 8]
        if len(raw) < 8 or content[at + 8 : at + 12] != masked(raw):
            raise ValueError(f"bad length at {at}")
        end = at + 12 + struct.unpack("<Q", raw)[0]
        data = content[at + 12 : end]
        if content[end : end + 4] != masked(data):
            raise ValueError(f"bad data at {at}")
        found.append(data)
        at = end + 4
    return found
