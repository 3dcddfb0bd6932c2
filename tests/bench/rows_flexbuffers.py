"""Rows on FlexBuffers, against the library's Python."""

from __future__ import annotations

import inputs_flexbuffers as inputs
from harness import MIB, Bench, mib


def row_fx(bench: Bench) -> None:
    """Read values of a FlexBuffer by path."""
    count = 20_000 if bench.quick else 200_000
    path = bench.input("rows.flexbuf", inputs.rows, count)
    jobs = {how: ("flexbuffer_path", how, path, str(count)) for how in ("pparse", "flatbuffers")}
    ours, peer = bench.by_turns(jobs, repeat=3)
    bench.line(
        f"200 values by path in a FlexBuffer of {path.stat().st_size / 1e6:.0f} MB: CPU",
        f"{ours['call_cpu']:.2f} s",
        f"{peer['call_cpu']:.2f} s (flatbuffers.flexbuffers)",
        f"{peer['call_cpu'] / ours['call_cpu']:.0f}× faster",
        "≥ 20×",
        met=bench.quick or peer["call_cpu"] >= 20 * ours["call_cpu"],
    )
    bench.line("the same: peak above imports", mib(ours["above"]), "", "", "≤ 4 MiB", met=ours["above"] <= 4 * MIB)
    bench.drop("rows.flexbuf")


FLEXBUFFERS_ROWS = {"fx": row_fx}
