"""Rows on conversion, against a plain copy of the file."""

from __future__ import annotations

import inputs
from harness import MIB, Bench, mib


def row_ad(bench: Bench) -> None:
    """Convert 2 GB of tensors; ``cp`` copies them."""
    count = 50 if bench.quick else 250
    path = bench.input("two.safetensors", inputs.random_tensors, [8_000_000] * count)
    runs = []
    for hows in (("safetensors", "cp"), ("npz", "bfloat16")):  # a job finds the memory that the one before set free
        jobs = {how: ("convert", how, path, bench.work / "converted") for how in hows}
        runs += bench.by_turns(jobs, repeat=max(9, bench.repeat))
    ours, peer, npz, cast = runs
    size = path.stat().st_size
    for run, what in (
        (ours, "to safetensors"),
        (npz, "to .npz, with checksums"),
        (cast, "to safetensors, as bfloat16"),
    ):
        bench.line(
            f"convert {size / 1e9:.1f} GB {what}, until it is on the disk",
            f"{run['seconds']:.2f} s",
            f"{peer['seconds']:.2f} s (cp, and sync)",
            f"{peer['seconds'] / run['seconds']:.2f}× as fast",
            *(("≥ 0.8×",) if run is ours else ()),
            met=peer["seconds"] / run["seconds"] >= 0.8 if run is ours else None,
        )
    bench.line(
        "the same: peak above imports",
        mib(ours["above"]),
        f"{mib(npz['above'])} (.npz), {mib(cast['above'])} (bfloat16)",
        "",
        "≤ 72 MiB",
        met=max(run["above"] for run in (ours, npz, cast)) <= 72 * MIB,
    )
    bench.drop("two.safetensors")


CONVERT_ROWS = {"ad": row_ad}
