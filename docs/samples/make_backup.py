"""Make ``backup*.tar.gz``: a tar.gz that holds a zip that holds a model, whole, cut and damaged.

Run from the repository's root: ``python docs/samples/make_backup.py``. The cut copy ends in the model; in the
damaged one four bytes in the middle differ.
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHEN = 1_760_000_000
CUT = 36_000
MIDDLE = 40_016  # in the zip's first member, behind the cut


def table(rows: int, seed: int) -> bytes:
    """Return a CSV of sensor readings."""
    generator = random.Random(seed)
    lines = ["time,sensor,value,unit"]
    for row in range(rows):
        lines.append(f"{WHEN + 60 * row},{generator.choice('abcdef')}{row % 7},{generator.gauss(20, 4):.3f},degC")
    return ("\n".join(lines) + "\n").encode()


def models() -> bytes:
    """Return a zip with a model (stored, as it is too dense to compress), and notes on it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content, method in (
            ("tiny-gpt.safetensors", (HERE / "tiny-gpt.safetensors").read_bytes(), zipfile.ZIP_STORED),
            ("notes.md", table(600, 3), zipfile.ZIP_DEFLATED),
        ):
            info = zipfile.ZipInfo(name, (2025, 10, 9, 8, 53, 20))
            info.compress_type = method
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return out.getvalue()


def backup() -> bytes:
    """Return the tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (
            ("backup/readings-1.csv", table(3_000, 1)),
            ("backup/models.zip", models()),
            ("backup/readings-2.csv", table(2_500, 2)),
            ("backup/README.txt", b"Readings of two weeks, and the model that was made of them.\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), WHEN, 0o644
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def main() -> None:
    """Write the files."""
    whole = gzip.compress(backup(), 6, mtime=WHEN)
    (HERE / "backup.tar.gz").write_bytes(whole)
    (HERE / "backup.cut.tar.gz").write_bytes(whole[:CUT])
    damaged = bytearray(whole)
    for at in range(MIDDLE, MIDDLE + 4):
        damaged[at] ^= 0x55
    (HERE / "backup.damaged.tar.gz").write_bytes(damaged)


if __name__ == "__main__":
    main()
