"""Rows on TFLite."""

from __future__ import annotations

import inputs_tflite as inputs
from harness import MIB, Bench, mib


def row_tl(bench: Bench) -> None:
    """List a model of 2 GB."""
    path = bench.input("two.tflite", inputs.model, 500, 2_000_000_000)
    (ours,) = bench.by_turns({"pparse ls": ("pparse_cli", "ls", path)})
    (bare,) = bench.by_turns({"pparse ls, of nothing": ("pparse_cli", "--version")})
    bench.line(
        "list a TFLite of 2 GB, 500 constants, 500 operators: wall",
        f"{1000 * ours['wall']:.0f} ms",
        "",
        "",
        "≤ 0.1 s",
        met=ours["wall"] <= 0.1,
    )
    above = ours["peak"] - bare["peak"]
    bench.line("the same: peak above that of `pparse --version`", mib(above), "", "", "≤ 16 MiB", met=above <= 16 * MIB)
    bench.drop("two.tflite")


TFLITE_ROWS = {"tl": row_tl}
