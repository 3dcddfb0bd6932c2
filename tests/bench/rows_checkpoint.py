"""Rows on checkpoints of TensorFlow, against TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import MIB, Bench, mib

if TYPE_CHECKING:
    from pathlib import Path


def row_ck(bench: Bench) -> None:
    """List a checkpoint, and compare its checksums."""
    size = (64 if bench.quick else 512) * MIB

    def make(path: Path) -> Path:
        path.mkdir()
        bench.once("checkpoint_make", path / "ckpt", 1000, size)
        return path

    folder = bench.input("checkpoint", make)
    path = folder / "ckpt"
    jobs = {how: ("tf_checkpoint_list", how, path) for how in ("pparse", "tensorflow", "check")}
    ours, peer, check = bench.by_turns(jobs, repeat=min(5, bench.repeat))
    what = f"list a TensorFlow checkpoint of {size // MIB:,} MiB, 1,000 variables"
    ratio = ours["whole"] / peer["whole"]
    bench.line(
        f"{what}: the call",
        f"{1000 * ours['seconds']:.0f} ms",
        f"{peer['whole']:.1f} s (tf.train.list_variables, with its import)",
        f"{ratio:.3f}×",
        "≤ 50 ms",
        met=ours["seconds"] <= 0.05,
    )
    bench.line(
        "the same: memory above the imports",
        mib(ours["above"]),
        f"{mib(peer['above'])} (TensorFlow)",
        f"{ours['above'] / peer['above']:.4f}×",
        "≤ 16 MiB",
        met=ours["above"] <= 16 * MIB,
    )
    speed = size / check["seconds"] / 1e9
    bench.line("the same: all checksums compared", f"{speed:.1f} GB/s", "", "", "≥ 1 GB/s", met=speed >= 1)
    bench.drop("checkpoint")


CHECKPOINT_ROWS = {"ck": row_ck}
