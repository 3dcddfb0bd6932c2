"""Rows on what happens within a process, after all imports: CPU of the call, against the library of the format."""

from __future__ import annotations

import subprocess

import inputs_inside as inputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness import Bench, Runs

MANY = 20_000
# What: the job, the file, the peer with its bar (ours over the peer's); several peers, several lines.
JOBS: tuple[tuple[str, str, tuple[tuple[str, float | None], ...]], ...] = (
    ("list", "49.safetensors", (("ztensor", 2), ("safe_open", None))),
    ("list", "49.pt", (("ztensor", 3), ("torch", None))),
    ("list", "49.gguf", (("ztensor", 3), ("gguf", None))),
    ("list", "many.safetensors", (("safe_open", None), ("ztensor", None))),
    ("list", "many.pt", (("torch", 1),)),
    ("list", "many.npz", (("numpy", 1),)),
    ("list", "many.onnx", (("onnx", 3),)),
    ("list", "many.gguf", (("gguf", 1),)),
    ("values", "many.safetensors", (("safe_open", 3),)),
    ("values", "many.pt", (("torch", 3),)),
    ("values", "many.npz", (("numpy", 3),)),
    ("values", "many.onnx", (("onnx", 3),)),
    ("check", "rows.json", (("loads", 4),)),
    ("check", "rows.msgpack", (("loads", 4),)),
    ("check", "rows.pkl", (("loads", 3),)),
)
# Ours alone: the job, the file, the bar in seconds of each thing that it goes through.
ALONE = (
    ("each", "many.safetensors", 7.5e-6),
    ("walk", "many.safetensors", 20e-6),
    ("tree", "rows.json", 25e-6),
)
WORDS = {
    "list": "names, shapes, dtypes",
    "values": "every tensor by name, as an array",
    "each": "`for k in f.keys(): f[k]`",
}


def row_in(bench: Bench) -> None:
    """List, read, check and walk within one process."""
    has_torch = not subprocess.run([bench.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode
    if not has_torch:
        bench.notes.append("torch was not measured: it is not in the environment (--environment names one).")
    for what, name, peers in JOBS:
        peers = tuple(peer for peer in peers if has_torch or peer[0] != "torch")
        path = _input(bench, name)
        jobs = {who: ("inside", who, what, path) for who in ("pparse", *dict(peers))}
        if not peers:
            continue
        ours, *others = bench.by_turns(jobs, repeat=3, warm=False)
        for run, (_, bar) in zip(others, peers, strict=True):
            _line(bench, what, name, ours, run, bar)
    for what, name, most in ALONE:
        (ours,) = bench.by_turns({"pparse": ("inside", "pparse", what, _input(bench, name))}, repeat=3, warm=False)
        each = ours["call_cpu"] / ours["calls"]
        job = f"{WORDS.get(what, what)}, {name}: CPU of each"
        bench.line(job, f"{each * 1e6:.1f} us", "", "", f"≤ {most * 1e6:g} us", met=each <= most)


def _input(bench: Bench, name: str) -> object:
    count = 49 if name.startswith("49") else MANY if not bench.quick else 2_000
    return bench.input(name, inputs.rows if name.startswith("rows") else inputs.many, count)


def _line(bench: Bench, what: str, name: str, ours: Runs, peer: Runs, bar: float | None) -> None:
    ratio = ours["call_cpu"] / peer["call_cpu"]
    cells = (
        f"{WORDS.get(what, what)}, {name}: CPU",
        f"{ours['call_cpu'] * 1000:,.2f} ms",
        f"{peer['call_cpu'] * 1000:,.2f} ms ({peer.name})",
        f"{ratio:.2f}×",
    )
    if bar is None:
        bench.line(*cells)
    else:
        bench.line(*cells, f"≤ {bar:g}×", met=ratio <= bar)


INSIDE_ROWS = {"in": row_in}
