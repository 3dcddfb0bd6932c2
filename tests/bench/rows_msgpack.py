"""Rows on MessagePack, against the package msgpack in pure Python."""

from __future__ import annotations

import inputs_msgpack as inputs
from harness import MIB, Bench, mib


def row_am(bench: Bench) -> None:
    """Index a MessagePack file of nested records."""
    size = 20_000_000 if bench.quick else 200_000_000
    path = bench.input("records.msgpack", inputs.records, size)
    jobs = {"pparse": ("msgpack_index", "pparse", path), "fallback": ("msgpack_index", "fallback", path)}
    ours, peer = bench.by_turns(jobs, repeat=1 if not bench.quick else 3, warm=False)
    bench.line(
        f"index {size / 1e6:.0f} MB of MessagePack records: CPU",
        f"{ours['call_cpu']:.1f} s",
        f"{peer['call_cpu']:.1f} s (msgpack.fallback.Unpacker.skip)",
        f"{peer['call_cpu'] / ours['call_cpu']:.1f}× faster",
        "≥ 3×",
        met=peer["call_cpu"] >= 3 * ours["call_cpu"],
    )
    bench.line("the same: peak above imports", mib(ours["above"]), "", "", "≤ 16 MiB", met=ours["above"] <= 16 * MIB)
    bench.drop("records.msgpack")


def row_ap(bench: Bench) -> None:
    """List a flax checkpoint of 2 GB and 1,000 arrays."""
    path = bench.input("flax.msgpack", inputs.checkpoint, 1000, 2 << 30)
    (ours,) = bench.by_turns({"pparse": ("msgpack_index", "flax", path)})
    bench.line(
        "list a flax checkpoint of 2 GB, 1,000 arrays",
        f"{1000 * ours['seconds']:.0f} ms",
        "",
        "",
        "≤ 0.2 s",
        met=ours["seconds"] <= 0.2,
    )
    bench.line("the same: peak above imports", mib(ours["above"]), "", "", "≤ 16 MiB", met=ours["above"] <= 16 * MIB)
    bench.drop("flax.msgpack")


MSGPACK_ROWS = {"am": row_am, "ap": row_ap}
