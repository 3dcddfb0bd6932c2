"""Rows on conversion, against a plain copy of the file."""

from __future__ import annotations

import inputs
import inputs_pytorch
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


def row_ag(bench: Bench) -> None:
    """Convert a checkpoint of 2 GB, with its checksums; ``cp`` copies it."""
    size = 400_000_000 if bench.quick else 2_000_000_000
    path = bench.input("dense.pt", inputs_pytorch.checkpoint, 1000, size, True)
    jobs = {how: ("convert", how, path, bench.work / "converted") for how in ("safetensors", "cp")}
    ours, peer = bench.by_turns(jobs, repeat=max(9, bench.repeat))
    ratio = peer["seconds"] / ours["seconds"]
    bench.line(
        f"convert a .pt of {size / 1e9:.1f} GB to safetensors, checksums compared, until it is on the disk",
        f"{ours['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s (cp, and sync)",
        f"{ratio:.2f}× as fast",
        "≥ 0.8×",
        met=ratio >= 0.8,
    )
    bench.line(
        "the same: best of all runs",
        f"{min(ours.values['seconds']):.2f} s",
        f"{min(peer.values['seconds']):.2f} s (cp, and sync)",
        f"{min(peer.values['seconds']) / min(ours.values['seconds']):.2f}× as fast",
    )
    bench.line("the same: peak above imports", mib(ours["above"]), "", "", "≤ 72 MiB", met=ours["above"] <= 72 * MIB)
    bench.drop("dense.pt")


CONVERT_ROWS = {"ad": row_ad, "ag": row_ag}
