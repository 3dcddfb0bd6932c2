"""Rows on hashing, statistics and comparing, against the bare steps: the same blocks, read and given to numpy."""

from __future__ import annotations

import inputs_measuring as inputs
from harness import Bench, mib

_BAR = 0.95


def row_me(bench: Bench) -> None:
    """Hash, measure and compare 800 MB."""
    counts = {"F32": 2, "BF16": 4} if bench.quick else {"F32": 12, "BF16": 24}
    for dtype, count in counts.items():
        name = f"{dtype}.safetensors"
        path = bench.input(name, inputs.weights, dtype, count)
        size = path.stat().st_size
        for what in ("hash", "stats") if dtype == "F32" else ("stats",):
            _compare(bench, f"{what} of {size / 1e6:,.0f} MB of {dtype}", size, (what, path), _BAR)
        if dtype == "F32":
            other, changed = (
                bench.input(f"{dtype}-{n}.safetensors", inputs.weights, dtype, count, bool(n)) for n in (0, 1)
            )
            _compare(bench, f"diff of two equal files of {size / 1e6:,.0f} MB", 2 * size, ("diff", path, other))
            _compare(bench, "diff of two, one value of each tensor changed", 2 * size, ("diff", path, changed))
            bench.drop(other.name, changed.name)
        bench.drop(name)


def _compare(bench: Bench, job: str, size: int, words: tuple[object, ...], bar: float = 0.0) -> None:
    jobs = {"pparse": ("measure", "pparse", *words), "bare steps": ("measure", "bare", *words)}
    ours, floor = bench.by_turns(jobs)
    if abs(ours["check"] - floor["check"]) > 1e-6 * abs(floor["check"]) + 1e-6:
        raise RuntimeError("the results differ")
    ratio = floor["call_cpu"] / ours["call_cpu"]
    bench.line(
        job,
        f"{size / ours['call_cpu'] / 1e9:.2f} GB/s of CPU time, {mib(ours['above'])} more memory",
        f"{size / floor['call_cpu'] / 1e9:.2f} GB/s (bare steps)",
        f"{ratio:.2f}×",
        *((f"≥ {bar}×",) if bar else ()),
        met=ratio >= bar if bar else None,
    )


MEASURING_ROWS = {"me": row_me}
