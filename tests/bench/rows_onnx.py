"""Rows on ONNX, against the package onnx and against the least that has to be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import inputs_onnx as inputs
from harness import MIB, Bench, Runs, mib

if TYPE_CHECKING:
    from pathlib import Path

NAME = "model.layers.0.weight"


def forget(path: Path) -> None:
    """Drop a file from the caches of the system."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def cold(bench: Bench, path: Path, *ways: str, repeat: int) -> list[Runs]:
    """Run the ways to list a model by turns, each of which finds none of it in the caches."""
    runs = [Runs(f"{how}, cold") for how in ways]
    for number in range(repeat + 1):
        for run, how in zip(runs, ways, strict=True):
            forget(path)
            values = bench.once("onnx_list", how, path)
            if number:  # the first round fills the caches with the programs
                run.add(values)
    for run in runs:
        print(f"    {run}", flush=True)
    return runs


def row_on(bench: Bench) -> None:
    """List a model whose weights are in it."""
    size = (256 if bench.quick else 1536) * MIB
    path = bench.input("inline.onnx", inputs.model, 750, size)
    jobs = {how: ("onnx_list", how, path) for how in ("pparse", "onnx", "floor")}
    ours, peer, floor = bench.by_turns(jobs, repeat=min(3, bench.repeat))
    what = f"list an ONNX model of {size // MIB:,} MiB, 750 initializers in it"
    wall = f"{1000 * ours['wall']:.0f} ms"
    ratio = ours["wall"] / peer["wall"]
    bench.line(
        f"{what}: wall", wall, f"{peer['wall']:.1f} s (onnx.load)", f"{ratio:.3f}×", "≤ 0.5 s", met=ours["wall"] <= 0.5
    )
    bench.line(
        "the same: memory above the imports",
        mib(ours["above"]),
        f"{mib(peer['above'])} (onnx.load)",
        f"{ours['above'] / peer['above']:.4f}×",
        "≤ 16 MiB",
        met=ours["above"] <= 16 * MIB,
    )
    bench.line(
        "the same: the call",
        f"{1000 * ours['seconds']:.0f} ms",
        f"{1000 * floor['seconds']:.0f} ms (lengths by os.pread)",
        f"{ours['seconds'] / floor['seconds']:.2f}×",
    )
    ours, floor, peer = cold(bench, path, "pparse", "floor", "onnx", repeat=min(5, bench.repeat))
    ratio = ours["seconds"] / floor["seconds"]
    bench.line(
        "the same, none of it in the caches: the call",
        f"{1000 * ours['seconds']:.0f} ms",
        f"{1000 * floor['seconds']:.0f} ms (lengths by os.pread); {peer['seconds']:.1f} s (onnx.load)",
        f"{ratio:.2f}×",
        "≤ 1.2× of the lengths",
        met=ratio <= 1.2,
    )
    bench.drop("inline.onnx")
    if not bench.quick:
        path = bench.input("above.onnx", inputs.model, 750, 2_500_000_000)
        (ours,) = bench.by_turns({"pparse": ("onnx_list", "pparse", path)}, repeat=min(3, bench.repeat))
        try:
            bench.once("onnx_list", "onnx", path)
            theirs = "loads it (onnx.load)"
        except RuntimeError:
            theirs = "refuses it (onnx.load)"
        bench.line(
            "list an ONNX model of 2.5 GB, 750 initializers in it: wall",
            f"{1000 * ours['wall']:.0f} ms",
            theirs,
            "",
            "≤ 0.5 s",
            met=ours["wall"] <= 0.5 and ours["count"] == 750,
        )
        bench.drop("above.onnx")


def row_oq(bench: Bench) -> None:
    """Make an array of a large initializer."""
    size = (64 if bench.quick else 256) * MIB
    path = bench.input("one.onnx", inputs.model, 1, size)
    jobs = {how: ("onnx_array", how, path, NAME) for how in ("pparse", "onnx")}
    ours, peer = bench.by_turns(jobs, repeat=min(5, bench.repeat))
    ratio = peer["seconds"] / ours["seconds"]
    bench.line(
        f"array of an initializer of {size // MIB} MiB",
        f"{size / MIB / 1024 / ours['seconds']:.1f} GiB/s",
        f"{size / MIB / 1024 / peer['seconds']:.1f} GiB/s (numpy_helper, of the loaded message)",
        f"{ratio:.2f}× as fast",
        "≥ 0.5×",
        met=ratio >= 0.5,
    )
    bench.drop("one.onnx")


ONNX_ROWS = {"on": row_on, "oq": row_oq}
