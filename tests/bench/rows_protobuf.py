"""The rows about protocol buffers: one field and one constant of a large ``.cpb``, merging and splitting it, a GraphDef
of many nodes, and packed numbers."""

from __future__ import annotations

import inputs
from harness import MIB, Bench, Runs, mib
from rows_riegeli import BUDGET, KIB, few, made

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

BAR = BUDGET + 8 * MIB
OPTIONS = ("brotli:6", "zstd", "uncompressed")
VALUE = 'meta_graphs[0].graph_def.node[{}].attr["value"].tensor.{}'


def message(bench: Bench) -> Path:
    """Return a SavedModel of 12 constants of 100 MB."""
    weights = bench.input(f"weights-{25 * MIB}", inputs.weights, 25 * MIB)
    return made(bench, "large.pb", "proto_make", "constants", "TARGET", constants(bench), weights)


def constants(bench: Bench) -> int:
    return 3 if bench.quick else 12


def chunked(bench: Bench) -> Path:
    """Return the same as a ``.cpb``, whose constants are chunks of their own, not compressed."""

    def make(path: Path) -> Path:
        bench.once("proto_rewrite", "split", message(bench), path.with_suffix(""), "uncompressed", "100MiB")
        return path

    return bench.input("large.cpb", make)


def graph(bench: Bench) -> Path:
    """Return a GraphDef of many small nodes."""
    return made(bench, "graph.pb", "proto_make", "graph", "TARGET", 50_000 if bench.quick else 500_000)


def times(ours: Runs, peer: Runs) -> str:
    """Return how much longer ours takes, by the clock and in CPU time."""
    return f"{ours['seconds'] / peer['seconds']:.2f}× (CPU {ours['call_cpu'] / peer['call_cpu']:.2f}×)"


def peak(bench: Bench, job: str, ours: Runs, peer: Runs, name: str, bar: float) -> None:
    """Add the line for the memory above the imports."""
    bench.line(
        job,
        mib(ours["above"]),
        f"{mib(peer['above'])} ({name})",
        f"{ours['above'] / peer['above']:.2g}×",
        f"≤ {mib(bar)}",
        met=ours["above"] <= bar,
    )


def row_p(bench: Bench) -> None:
    """Open a large .cpb and read one scalar."""
    path = chunked(bench)
    last = constants(bench) // 2 - 1
    (ours,) = bench.by_turns({"one field": ("proto_field", path, VALUE.format(last, "dtype"))}, repeat=bench.repeat)
    (merged,) = bench.by_turns({"merge all": ("proto_merge_all", path)}, repeat=1)
    job = f"open a .cpb of {ours['size'] / 1e9:.1f} GB, read one scalar"
    more = f"again in the process {ours['again'] * 1000:.1f}, CPU {ours['call_cpu'] * 1000:.1f}"
    bench.line(
        f"{job}: time after imports",
        f"{ours['seconds'] * 1000:.1f} ms ({more})",
        f"{merged['seconds']:.2f} s (our Merger, all of it)",
        f"{ours['seconds'] / merged['seconds']:.2g}×",
        "≤ 20 ms",
        met=ours["seconds"] <= 0.020,
    )
    peak(bench, "the same: peak above imports", ours, merged, "our Merger", 16 * MIB)
    allowed = ours["last"] + ours["parts"] + 64 * KIB
    bench.line(
        "the same: bytes read",
        f"{ours['bytes'] / KIB:,.1f} KiB in {ours['reads']:.0f} reads",
        f"{ours['last'] / KIB:,.1f} KiB (last chunk), {ours['parts'] / KIB:,.1f} KiB (parts of the message)",
        f"{ours['bytes'] / ours['size']:.2g}× of the file",
        f"≤ {allowed / KIB:,.1f} KiB",
        met=ours["bytes"] <= allowed,
    )


def row_q(bench: Bench) -> None:
    """Read a constant of 100 MB in a .cpb to numpy."""
    path = chunked(bench)
    number = constants(bench) // 2 - 1
    where = (path, f"c{number}", VALUE.format(number, "tensor_content"))
    names = ("viewer", "node", "np.fromfile", "readinto", "preadv")
    jobs: dict[str, tuple[object, ...]] = {how: ("proto_constant", how, *where, "headers") for how in names}
    jobs["viewer, all hashes"] = ("proto_constant", "viewer", *where, "all")
    runs = viewer, node, floor, plain, bare, verified = bench.by_turns(jobs, repeat=max(15, bench.repeat))
    if len({run["check"] for run in runs} - {0}) > 1:
        raise RuntimeError("the constants differ")
    job = f"a constant of {viewer['nbytes'] / 1e6:.0f} MB in a .cpb to numpy"
    for peer in (floor, plain, bare):
        what = "preadv, no block headers" if peer is bare else peer.name
        cells = (
            job,
            f"{viewer['seconds'] * 1000:.1f} ms (finding it {viewer['find'] * 1000:.1f})",
            f"{peer['seconds'] * 1000:.1f} ms ({what})",
            times(viewer, peer),
        )
        if peer is floor:
            bench.line(*cells, "≤ 1.2×", met=viewer["seconds"] <= 1.2 * peer["seconds"])
        else:
            bench.line(*cells)
    for run, what in ((node, "its node's stream into an array"), (verified, "viewer, hashes checked")):
        bench.line(
            f"{job}: {what}",
            f"{run['seconds'] * 1000:.1f} ms",
            f"{floor['seconds'] * 1000:.1f} ms ({floor.name})",
            times(run, floor),
        )
    bench.line(
        "the same: peak above the file's opening",
        mib(viewer["above"]),
        f"{mib(floor['above'])} ({floor.name})",
        f"{viewer['above'] / floor['above']:.2f}×",
    )


def rewrite(bench: Bench, how: str, source: Path, target: Path, *options: object) -> None:
    """Add the lines of merging or splitting a large file, beside copying it."""
    jobs: dict[str, tuple[object, ...]] = {
        who: ("proto_rewrite", who, source, place, *options)
        for who, place in ((how, target), ("copy", bench.work / "copy"), ("blocks", bench.work / "copy"))
    }
    ours, copy, blocks = bench.by_turns(jobs, repeat=few(bench))
    job = f"{how} {ours['source'] / 1e9:.1f} GB{''.join(f', {option}' for option in options[:1])}"
    peak(bench, f"{job}: peak above imports", ours, blocks, "copy by blocks", BAR)
    for peer, what in ((copy, "shutil.copyfile"), (blocks, "copy by blocks")):
        bench.line(f"{job}: time", f"{ours['seconds']:.2f} s", f"{peer['seconds']:.2f} s ({what})", times(ours, peer))
    (bench.work / "copy").unlink()


def row_r(bench: Bench) -> None:
    """Merge a large .cpb into a .pb."""
    source, target = chunked(bench), bench.work / "merged.pb"
    rewrite(bench, "merge", source, target)
    target.unlink()


def row_s(bench: Bench) -> None:
    """Split a large .pb into a .cpb."""
    source, target = message(bench), bench.work / "split"
    rewrite(bench, "split", source, target, "uncompressed", "100MiB")
    target.with_suffix(".cpb").unlink()
    bench.drop("large.pb", "large.cpb", f"weights-{25 * MIB}")


def row_t(bench: Bench) -> None:
    """Index a GraphDef of many nodes, read names at random, check it."""
    path = graph(bench)
    index, names, check, parse = bench.by_turns(
        {how: ("proto_index", how, path) for how in ("index", "names", "check", "parse")}, repeat=bench.repeat
    )
    if index["count"] != parse["count"]:
        raise RuntimeError("the counts differ")
    job = f"{parse['count']:,.0f} nodes of a GraphDef ({path.stat().st_size / 1e6:.0f} MB)"
    beside = f"{parse['seconds']:.2f} s (protobuf parses it)"
    for run, what in ((index, "open and index"), (check, "check")):
        cells = (f"{what} {job}", f"{run['seconds']:.2f} s", beside, times(run, parse))
        if run is index:
            bench.line(*cells, "≤ 1×", met=run["seconds"] <= parse["seconds"])
        else:
            bench.line(*cells)
        cells = (
            "the same: peak above imports",
            mib(run["above"]),
            f"{mib(parse['above'])} (protobuf)",
            f"{run['above'] / parse['above']:.2g}×",
        )
        if run is index:
            bench.line(*cells, "≤ 0.1×", met=run["above"] <= parse["above"] / 10)
        else:
            bench.line(*cells)
    for key, what in (("median", "median"), ("late", "99 of 100")):
        bench.line(
            f"the name of any of them, by path, 1,000 at random: {what}",
            f"{names[key] * 1000:.3f} ms (CPU {names[key + '_cpu'] * 1000:.3f})",
            "",
            "",
            "≤ 1 ms",
            met=names[key] <= 0.001,
        )


def row_u(bench: Bench) -> None:
    """Split a GraphDef of many nodes."""
    path, target, limit = graph(bench), bench.work / "chunks", "1MiB" if bench.quick else "8MiB"
    jobs: dict[str, tuple[object, ...]] = {
        options: ("proto_rewrite", "split", path, target, options, limit) for options in OPTIONS
    }
    for options in OPTIONS:
        jobs[f"{options}, GraphDefSplitter"] = ("proto_rewrite", "eager", path, target, options, limit)
    jobs["gzip -6"] = ("proto_rewrite", "gzip", path, target.with_suffix(".gz"))
    *runs, packed = bench.by_turns(jobs, repeat=few(bench))
    size = path.stat().st_size
    for run in runs:
        more = f", {run['parsed']:.2f} s of parsing before" if run["parsed"] else ""
        bench.line(
            f"split a GraphDef of {size / 1e6:.0f} MB in many nodes, {run.name}",
            f"{run['seconds']:.2f} s{more}; {run['size'] / 1e6:.2f} MB",
            f"{packed['seconds']:.2f} s; {packed['size'] / 1e6:.2f} MB (gzip -6)",
            f"{run['seconds'] / packed['seconds']:.2f}×; {run['size'] / packed['size']:.2f}×",
        )
        bench.line(
            "the same: peak above imports",
            mib(run["above"]),
            f"{mib(packed['above'])} (gzip)",
            f"{run['above'] / packed['above']:.2g}×",
        )
    for suffix in (".cpb", ".gz"):
        target.with_suffix(suffix).unlink()
    bench.drop("graph.pb")


def row_v(bench: Bench) -> None:
    """Read packed numbers of a message to numpy."""
    count = 1_000_000 if bench.quick else 10_000_000
    for what, name in (("floats", "float_val"), ("varints", "int64_val")):
        path = made(bench, f"{what}.pb", "proto_make", what, "TARGET", count)
        ours, peer = bench.by_turns({how: ("proto_numbers", how, path, name) for how in ("pparse", "protobuf")})
        if ours["check"] != peer["check"]:
            raise RuntimeError("the numbers differ")
        bench.line(
            f"{count:,} packed {what} ({path.stat().st_size / 1e6:.0f} MB) to numpy",
            f"{ours['seconds'] * 1000:.0f} ms",
            f"{peer['seconds'] * 1000:.0f} ms (protobuf, np.array)",
            times(ours, peer),
        )
        bench.line(
            "the same: peak above imports",
            mib(ours["above"]),
            f"{mib(peer['above'])} (protobuf, np.array)",
            f"{ours['above'] / peer['above']:.2f}×",
        )
        bench.drop(f"{what}.pb")


PROTOBUF_ROWS = {"p": row_p, "q": row_q, "r": row_r, "s": row_s, "t": row_t, "u": row_u, "v": row_v}
