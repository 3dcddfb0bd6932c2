"""Makes run.npz and run.cut.npz: what a small experiment kept with numpy.savez."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    """Write both files."""
    rng = np.random.default_rng(5)
    events = np.zeros(6, [("step", "<i4"), ("loss", "<f4"), ("at", "<M8[s]")])
    events["step"] = np.arange(6) * 100
    events["loss"] = 4 / (1 + np.arange(6))
    events["at"] = np.datetime64("2026-05-01T12:00:00") + np.arange(6) * 60
    arrays = {
        "features": rng.standard_normal((40, 8)).astype("f4"),
        "labels": np.array(["cat", "dog", "bird"])[rng.integers(0, 3, 40)],
        "events": events,
        "kernel": np.asfortranarray(rng.standard_normal((16, 8)).astype("f2")),
    }
    np.savez(FOLDER / "run.npz", **arrays)
    content = (FOLDER / "run.npz").read_bytes()
    (FOLDER / "run.cut.npz").write_bytes(content[:2_590])


if __name__ == "__main__":
    main()
