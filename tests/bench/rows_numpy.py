"""Rows on numpy's archives, against numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import inputs_numpy as inputs

if TYPE_CHECKING:
    from harness import Bench


def row_an(bench: Bench) -> None:
    """List 1,000 arrays, stored and deflated."""
    for compressed in (False, True):
        name = "deflated.npz" if compressed else "stored.npz"
        path = bench.input(name, inputs.arrays, 1000, 64, compressed)
        jobs = {
            "pparse ls": ("pparse_cli", "ls", path),
            "np.load, each array": ("numpy_list", "load", path),
            "np.load, headers only": ("numpy_list", "headers", path),
        }
        ours, peer, headers = bench.by_turns(jobs)
        job = f"list an .npz of 1,000 {'deflated' if compressed else 'stored'} arrays, 16 MB"
        bench.compare(job, ours, peer)
        bench.line(
            f"{job}: wall",
            f"{ours['wall'] * 1000:,.0f} ms",
            f"{headers['wall'] * 1000:,.0f} ms ({headers.name})",
            f"{ours['wall'] / headers['wall']:.2f}×",
        )
        bench.drop(name)


NUMPY_ROWS = {"an": row_an}
