"""Rows on GGUF, against the package gguf."""

from __future__ import annotations

import inputs_gguf as inputs
from harness import MIB, Bench, mib

# Some types of each family: number, elements and bytes of a block.
KINDS = {
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q6_K": (14, 256, 210),
    "IQ2_XS": (17, 256, 74),
    "IQ4_XS": (23, 256, 136),
    "MXFP4": (39, 32, 17),
}


def row_ga(bench: Bench) -> None:
    """List a model of 2 GB with a vocabulary of 150,000 texts."""
    path = bench.input("two.gguf", inputs.model, 1000, 2 << 30, 150_000)
    jobs = {"pparse ls": ("pparse_cli", "ls", path), "GGUFReader": ("gguf_list", path)}
    ours, peer = bench.by_turns(jobs, repeat=min(3, bench.repeat))
    bench.line(
        "list a GGUF of 2 GB, 1,000 tensors, 150,000 texts: wall",
        f"{1000 * ours['wall']:.0f} ms",
        f"{peer['wall']:.1f} s (GGUFReader)",
        f"{ours['wall'] / peer['wall']:.3f}×",
        "≤ 0.1 s",
        met=ours["wall"] <= 0.1,
    )
    bench.line(
        "the same: peak of the process",
        mib(ours["peak"]),
        f"{mib(peer['peak'])} (GGUFReader)",
        f"{ours['peak'] / peer['peak']:.2f}×",
    )
    bench.drop("two.gguf")


def row_gb(bench: Bench) -> None:
    """Decode blocks."""
    elements = (4 if bench.quick else 32) * MIB
    path = bench.input("blocks.gguf", inputs.blocks, KINDS, elements)
    for name in KINDS:
        jobs = {how: ("gguf_decode", how, path, name) for how in ("pparse", "gguf")}
        ours, peer = bench.by_turns(jobs, repeat=min(5, bench.repeat))
        ratio = peer["seconds"] / ours["seconds"]
        bench.line(
            f"decode {elements // MIB} million elements of {name}",
            f"{1000 * ours['seconds']:.0f} ms",
            f"{1000 * peer['seconds']:.0f} ms (gguf)",
            f"{ratio:.1f}× as fast",
            "≥ 1×",
            met=ratio >= 1,
        )
    bench.drop("blocks.gguf")


GGUF_ROWS = {"ga": row_ga, "gb": row_gb}
