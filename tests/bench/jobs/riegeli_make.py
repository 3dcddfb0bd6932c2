"""Make a file of small records: ``digits`` (10 bytes each), or ``messages`` (protocol buffers of 5 to 10 fields).

``seconds`` are of writing and closing.
"""

from __future__ import annotations

import random
import sys
import time

from report import report

from pparse.riegeli import RecordWriter


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number: int, rng: random.Random) -> bytes:
    """Return a message as logs and data sets have them: an id, a name, a score, flags, a place; some fields absent."""
    name = f"user-{rng.randrange(50_000)}".encode()
    fields = [
        b"\x08" + varint(number),
        b"\x12" + varint(len(name)) + name,
        b"\x1d" + rng.randbytes(4),
        b"\x20" + varint(rng.randrange(1 << 28)),
        b"\x28" + varint(rng.randrange(3)),
    ]
    more = [
        b"\x31" + rng.randbytes(8),
        b"\x3a\x04" + b"\x08" + varint(rng.randrange(128)) + b"\x10" + varint(rng.randrange(128)),
        b"\x42\x05" + (b"red  ", b"green", b"blue ")[rng.randrange(3)],
        b"\x48" + varint(rng.randrange(1 << 14)),
        b"\x50\x01",
    ]
    return b"".join(fields + [field for field in more if rng.random() < 0.5])


what, target, options, count = *sys.argv[1:4], int(sys.argv[4])
if what == "digits":
    records = [b"%010d" % number for number in range(count)]
else:
    rng = random.Random(1)
    records = [message(number, rng) for number in range(count)]
with RecordWriter("/dev/null", options=options) as writer:  # warm: what it needs is imported
    writer.write_record(records[0])
start, cpu = time.perf_counter(), time.process_time()
with RecordWriter(target, options=options) as writer:
    writer.write_records(records)
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
report(seconds=seconds, call_cpu=cpu_seconds, count=len(records), size=sum(map(len, records)))
