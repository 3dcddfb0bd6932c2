"""The rows about Riegeli files: hashing, reading large and small records, writing, and what a huge file costs."""

from __future__ import annotations

import statistics

import inputs
from harness import MIB, Bench, Runs, mib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

KIB = 1 << 10
BUDGET = 64 * MIB  # the default
OPTIONS = ("brotli", "zstd", "uncompressed", "snappy")


def made(bench: Bench, name: str, job: str, *words: object) -> Path:
    """Return an input that a job makes; ``TARGET`` among its words is where."""

    def make(path: Path) -> Path:
        bench.once(job, *(path if word == "TARGET" else word for word in words))
        return path

    return bench.input(name, make)


def few(bench: Bench) -> int:
    """How often jobs run that warm themselves, or take long."""
    return min(3, bench.repeat)


def per_second(run: Runs, size: float, key: str = "call_cpu") -> float:
    """Return ``size`` by the second of CPU time: one thread works, and what else runs on the machine tells little."""
    return size / run[key]


def row_i(bench: Bench) -> None:
    """Hash with HighwayHash-64 (Riegeli)."""
    rounds = {"native": 200, "python": 3, "crc32": 200}
    jobs: dict[str, tuple[object, ...]] = {how: ("highway", how, MIB, count) for how, count in rounds.items()}
    native, pure, crc = bench.by_turns(jobs, repeat=few(bench))
    if native["check"] != pure["check"]:
        raise RuntimeError("the hashes differ")
    for ours, bar in ((native, 1500), (pure, 15)):
        rate, peer = (per_second(run, MIB) / 1e6 for run in (ours, crc))
        bench.line(
            f"HighwayHash-64 of 1 MiB, {ours.name}",
            f"{rate:,.0f} MB/s",
            f"{peer:,.0f} MB/s (zlib.crc32)",
            f"{rate / peer:.2g}×",
            f"≥ {bar:,} MB/s",
            met=rate >= bar,
        )
    for size in (16, 32):
        jobs = {how: ("highway", how, size, 20_000 if how == "python" else 200_000) for how in rounds}
        native, pure, crc = bench.by_turns(jobs, repeat=few(bench))
        for ours, bar in ((native, 1), (pure, 10)):
            time, peer = ours["call_cpu"] * 1e6, crc["call_cpu"] * 1e6
            bench.line(
                f"HighwayHash-64 of {size} bytes, {ours.name}",
                f"{time:.2f} µs",
                f"{peer:.2f} µs (zlib.crc32)",
                f"{time / peer:.1f}×",
                f"≤ {bar} µs",
                met=time <= bar,
            )


def row_j(bench: Bench) -> None:
    """Read large Riegeli records."""
    copy = bench.work / "chunks"
    for options in OPTIONS:
        slow = options == "brotli"
        total = (16 if slow or bench.quick else 64) * MIB
        weights = bench.input(f"weights-{total}", inputs.weights, total)
        for size in (64 * KIB, 256 * KIB, MIB):
            name = f"{options}-{size // KIB}.riegeli"
            path = made(bench, name, "riegeli_write", "pparse", weights, "TARGET", options, size)
            bench.once("riegeli_read", "table", path, copy, 0)
            jobs: dict[str, tuple[object, ...]] = {
                how: ("riegeli_read", how, path, copy, 3 if slow else 5) for how in ("ours", "bare", "copy")
            }
            runs = ours, bare, alone = bench.by_turns(jobs, repeat=few(bench), warm=False)
            if {run["size"] for run in runs} != {total}:
                raise RuntimeError("the sizes differ")
            speeds = [f"{per_second(run, total) / 1e6:,.0f}" for run in runs]
            ratio, wall = (bare[key] / ours[key] for key in ("call_cpu", "seconds"))
            bench.line(
                f"read Riegeli records of {size // KIB} KiB, {options}",
                f"{speeds[0]} MB/s",
                f"{speeds[1]} MB/s (bare steps), {speeds[2]} (no block headers)",
                f"{ratio:.2f}× (wall {wall:.2f}×), {alone['call_cpu'] / ours['call_cpu']:.2f}×",
                "≥ 0.8×",
                met=ratio >= 0.8,
            )
            bench.drop(name)
    bench.drop(f"weights-{16 * MIB}", f"weights-{64 * MIB}")
    copy.unlink()
    copy.with_suffix(".json").unlink()


def row_k(bench: Bench) -> None:
    """Read a million small Riegeli records."""
    count = 200_000 if bench.quick else 1_000_000
    lines = bench.input("digits.txt", inputs.lines, count)
    paths = {
        options: made(bench, f"digits-{options}.riegeli", "riegeli_make", "digits", "TARGET", options, count)
        for options in OPTIONS[:3]
    }
    jobs: dict[str, tuple[object, ...]] = {"lines": ("riegeli_count", "lines", lines)}
    for options, path in paths.items():
        jobs[options] = ("riegeli_count", "pparse", path)
        jobs[f"{options}, without the extension"] = ("riegeli_count", "pure", path)
    peer, *runs = bench.by_turns(jobs, repeat=few(bench), warm=False)
    if {run["count"] for run in runs} != {count}:
        raise RuntimeError("the counts differ")
    for run in runs:
        rate = per_second(run, count) / 1e6
        cells = (
            f"iterate {count:,} Riegeli records of 10 bytes, {run.name}",
            f"{rate:.2f} M/s (wall {per_second(run, count, 'seconds') / 1e6:.2f})",
            f"{per_second(peer, count) / 1e6:.1f} M/s (lines of a text file)",
            f"{peer['call_cpu'] / run['call_cpu']:.2f}×",
        )
        if "without" in run.name:
            bench.line(*cells)
        else:
            bench.line(*cells, "≥ 1 M/s", met=rate >= 1)
    bench.drop("digits.txt", *(f"digits-{options}.riegeli" for options in paths))


def row_l(bench: Bench) -> None:
    """Write and read transposed Riegeli chunks."""
    count = 20_000 if bench.quick else 100_000
    kinds = ("transpose", "transpose,zstd", "brotli")
    paths = {kind: bench.work / f"messages-{kind.replace(',', '-')}.riegeli" for kind in kinds}
    writing = bench.by_turns(
        {kind: ("riegeli_make", "messages", path, kind, count) for kind, path in paths.items()},
        repeat=few(bench),
        warm=False,
    )
    reading = bench.by_turns(
        {kind: ("riegeli_count", "pparse", path) for kind, path in paths.items()}, repeat=few(bench), warm=False
    )
    if {run["count"] for run in reading} != {count}:
        raise RuntimeError("the counts differ")
    for what, runs in (("decode", reading), ("encode", writing)):
        *ours, simple = runs
        for run in ours:
            rate = per_second(run, count)
            cells = (
                f"{what} {count:,} messages of {writing[0]['size'] / count:.0f} bytes, {run.name}",
                f"{rate / 1e3:,.0f} k/s (wall {per_second(run, count, 'seconds') / 1e3:,.0f})",
                f"{per_second(simple, count) / 1e3:,.0f} k/s (simple chunks, brotli)",
                f"{simple['call_cpu'] / run['call_cpu']:.2f}×",
            )
            if what == "decode":
                bench.line(*cells, "≥ 150 k/s", met=rate >= 150_000)
            else:
                bench.line(*cells)
    for path in paths.values():
        path.unlink()


def row_m(bench: Bench) -> None:
    """Write weights as Riegeli records."""
    total = (32 if bench.quick else 256) * MIB
    weights = bench.input(f"weights-{total}", inputs.weights, total)
    target = bench.work / "written.riegeli"
    kinds = ("brotli", "zstd")
    jobs: dict[str, tuple[object, ...]] = {}
    for kind in kinds:
        jobs[f"{kind}, bare"] = ("riegeli_write", "bare", weights, target, kind, MIB)
        for parallelism in (0, 2):
            options = f"{kind},parallelism:{parallelism}"
            jobs[options] = ("riegeli_write", "pparse", weights, target, options, MIB)
    runs = bench.by_turns(jobs, repeat=min(2, bench.repeat), warm=False)
    for at in range(0, len(runs), 3):
        bare, alone, parallel = runs[at : at + 3]
        for run, peer, name in ((alone, bare, "bare steps"), (parallel, alone, "parallelism:0")):
            rate, other = (per_second(one, total, "seconds") / 1e6 for one in (run, peer))
            bench.line(
                f"write {total >> 20} MiB of weights, {run.name}",
                f"{rate:,.0f} MB/s",
                f"{other:,.0f} MB/s ({name})",
                f"{rate / other:.2f}× (CPU {peer['call_cpu'] / run['call_cpu']:.2f}×)",
            )
    target.unlink()
    bench.drop(f"weights-{total}")


def row_n(bench: Bench) -> None:
    """Find the last record of a Riegeli file of more than 2 GB."""
    total = 200_000_000 if bench.quick else 2_200_000_000
    weights = bench.input(f"weights-{64 * MIB}", inputs.weights, 64 * MIB)
    long = made(bench, "long.riegeli", "riegeli_long", weights, "TARGET", "zstd:1,chunk_size:1M", 64 * KIB, total)
    (run,) = bench.by_turns({"last record": ("riegeli_last", long)}, repeat=few(bench), warm=False)
    job = f"last record of {run['size'] / 1e9:.1f} GB (zstd:1, chunks of 1 MiB)"
    bar = run["chunk"] + 64 * KIB
    bench.line(
        f"{job}: bytes read",
        f"{run['bytes'] / KIB:,.0f} KiB in {run['reads']:.0f} reads",
        f"{run['chunk'] / KIB:,.0f} KiB (the last chunk)",
        f"{run['bytes'] / run['chunk']:.3f}×",
        f"≤ {bar / KIB:,.0f} KiB",
        met=run["bytes"] <= bar,
    )
    beside = statistics.median(
        whole - alone for whole, alone in zip(run.values["seconds"], run.values["chunk_seconds"], strict=True)
    )
    bench.line(
        "the same: time beside the chunk's own",
        f"{beside * 1000:.2f} ms",
        f"{run['chunk_seconds'] * 1000:.2f} ms (the chunk)",
        "",
        "≤ 10 ms",
        met=beside <= 0.010,
    )
    bench.drop("long.riegeli", f"weights-{64 * MIB}")


def row_o(bench: Bench) -> None:
    """Write and read a Riegeli record of 1 GiB."""
    total = (128 if bench.quick else 1024) * MIB
    weights = bench.input(f"weights-{total}", inputs.weights, total)
    target = bench.work / "large.riegeli"
    bar = BUDGET + 8 * MIB
    for options in ("brotli:1", "uncompressed"):
        for how in ("write", "read"):
            # Once: it takes long, and what is promised is memory.
            ours, peer = bench.by_turns(
                {who: ("riegeli_large", who, how, target, weights, options) for who in ("pparse", "bare")},
                repeat=1,
                warm=False,
            )
            if {run["size"] for run in (ours, peer)} != {total}:
                raise RuntimeError("the sizes differ")
            times = (ours["seconds"] / peer["seconds"], ours["call_cpu"] / peer["call_cpu"])
            job = f"{how} a record of {total >> 20:,} MiB, {options}"
            bench.line(
                f"{job}: peak above imports",
                mib(ours["above"]),
                f"{mib(peer['above'])} (bare steps)",
                f"{ours['above'] / peer['above']:.2f}×",
                f"≤ {mib(bar)}",
                met=ours["above"] <= bar,
            )
            bench.line(
                "the same: time",
                f"{ours['seconds']:.2f} s",
                f"{peer['seconds']:.2f} s (bare steps)",
                f"{times[0]:.2f}× (CPU {times[1]:.2f}×)",
            )
        target.unlink()
        target.with_suffix(".bare").unlink()
    bench.drop(f"weights-{total}")


RIEGELI_ROWS = {"i": row_i, "j": row_j, "k": row_k, "l": row_l, "m": row_m, "n": row_n, "o": row_o}
