"""Rows on TFRecord files, against TensorFlow's reader where it is installed, and on CRC-32C."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from harness import Bench, mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedWriter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))


def _records(path: Path, count: int) -> Path:
    from tests.tfrecord_files import masked

    with open(path, "wb") as stream:
        for number in range(count):
            _write(stream, b"record %d " % number + bytes(number % 50), masked)
    return path


def _write(stream: BufferedWriter, data: bytes, masked: object) -> None:
    head = struct.pack("<Q", len(data))
    stream.write(head + masked(head) + data + masked(data))  # type: ignore[operator]


def row_ta(bench: Bench) -> None:
    """Go through a million small records."""
    count = 100_000 if bench.quick else 1_000_000
    path = bench.input("million.tfrecord", _records, count)
    jobs: dict[str, tuple[object, ...]] = {how: ("tfrecord_read", how, path) for how in ("index", "list", "check")}
    if not subprocess.run([bench.python, "-c", "import tensorflow"], capture_output=True).returncode:
        jobs["tensorflow"] = ("tfrecord_read", "tensorflow", path)
    ran = dict(zip(jobs, bench.by_turns(jobs), strict=True))
    peer = ran.get("tensorflow")
    for how, what in (("index", "count"), ("list", "list the lengths of"), ("check", "compare the checksums of")):
        ours = ran[how]
        beside = ("", "")
        if peer is not None:
            beside = f"{peer['call_cpu']:.2f} s (tf_record_iterator)", f"{ours['call_cpu'] / peer['call_cpu']:.2f}×"
        bench.line(f"{what} {count:,} small records: CPU", f"{ours['call_cpu']:.2f} s", *beside, "")
    per = ran["index"]["kept"] / count
    bench.line("the same: index", f"{per:.3f} bytes a record", "", "", "≤ 8", met=per <= 8)
    bench.line(
        "the same: peak above imports",
        mib(ran["check"]["above"]),
        "",
        "",
        "≤ 16 MiB",
        met=ran["check"]["above"] <= 16 << 20,
    )
    bench.drop("million.tfrecord")


def row_tb(bench: Bench) -> None:
    """CRC-32C, and the search for records behind damage."""
    jobs = {how: ("crc32c", how) for how in ("native", "pure", "scan", "zlib")}
    native, pure, scan, zlib = bench.by_turns(jobs)
    beside = f"{zlib['rate'] / 1e9:.2f} GB/s (zlib.crc32)"
    bench.line(
        "CRC-32C of 256 MB, in C", f"{native['rate'] / 1e9:.2f} GB/s", beside, "", "≥ 1 GB/s", met=native["rate"] >= 1e9
    )
    bench.line("CRC-32C of 256 MB, with numpy", f"{pure['rate'] / 1e6:.0f} MB/s", beside, "", "")
    bench.line(
        "search noise for records", f"{scan['rate'] / 1e6:.0f} MB/s", "", "", "≥ 20 MB/s", met=scan["rate"] >= 20e6
    )


TFRECORD_ROWS = {"ta": row_ta, "tb": row_tb}
