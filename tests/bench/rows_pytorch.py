"""Rows on checkpoints and pickles, against the standard library."""

from __future__ import annotations

import inputs_pytorch as inputs
from harness import MIB, Bench, mib


def row_ae(bench: Bench) -> None:
    """List a checkpoint of 2 GB and 1,000 tensors."""
    path = bench.input("two.pt", inputs.checkpoint, 1000, 2 << 30)
    jobs = {"pparse": ("checkpoint_list", "pparse", path), "genops": ("checkpoint_list", "genops", path)}
    ours, peer = bench.by_turns(jobs)
    bench.line(
        "list a .pt of 2 GB, 1,000 tensors",
        f"{1000 * ours['seconds']:.0f} ms",
        f"{1000 * peer['seconds']:.0f} ms (zipfile and genops)",
        f"{ours['seconds'] / peer['seconds']:.2f}×",
        "≤ 0.1 s",
        met=ours["seconds"] <= 0.1,
    )
    bench.line(
        "the same: whole process",
        f"{ours['wall']:.2f} s",
        f"{peer['wall']:.2f} s (zipfile and genops)",
        f"{ours['wall'] / peer['wall']:.2f}×",
        "≤ 1.3×",
        met=ours["wall"] <= 1.3 * peer["wall"],
    )
    bench.line(
        "the same: peak above imports",
        mib(ours["above"]),
        f"{mib(peer['above'])} (zipfile and genops)",
        "",
        "≤ 16 MiB",
        met=ours["above"] <= 16 * MIB,
    )
    bench.drop("two.pt")


def row_af(bench: Bench) -> None:
    """Go through a pickle of nested lists and dicts."""
    size = 20_000_000 if bench.quick else 200_000_000
    path = bench.input("nested.pkl", inputs.nested_pickle, size)
    jobs = {"pparse": ("pickle_walk", "pparse", path), "genops": ("pickle_walk", "genops", path)}
    ours, peer = bench.by_turns(jobs, repeat=1 if not bench.quick else 3, warm=False)
    bench.line(
        f"go through {size / 1e6:.0f} MB of nested pickle: CPU",
        f"{ours['call_cpu']:.1f} s",
        f"{peer['call_cpu']:.1f} s (genops)",
        f"{peer['call_cpu'] / ours['call_cpu']:.1f}× faster",
        "≥ 2×",
        met=peer["call_cpu"] >= 2 * ours["call_cpu"],
    )
    bench.line("the same: peak above imports", mib(ours["above"]), "", "", "≤ 32 MiB", met=ours["above"] <= 32 * MIB)
    bench.drop("nested.pkl")


PYTORCH_ROWS = {"ae": row_ae, "af": row_af}
