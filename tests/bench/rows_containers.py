"""The rows about archives and compressed streams: listing, reading, random access, extracting, recovering."""

from __future__ import annotations

import shutil

import inputs_containers as inputs
from harness import MIB, Bench, Runs, mib
from rows_riegeli import BUDGET, few

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def both(ours: Runs, peer: Runs) -> str:
    """Return how many times the peer's time ours takes, by wall and CPU of the calls."""
    return f"{ours['seconds'] / peer['seconds']:.2f}× (CPU {ours['call_cpu'] / peer['call_cpu']:.2f}×)"


def list_archive(bench: Bench, job: str, peer_name: str, path: Path) -> None:
    """Add the lines for listing an archive of many members."""
    call, whole, peer = bench.by_turns(
        {
            "members()": ("archive_list", "pparse", path),
            "pparse ls -q": ("pparse_cli", "ls", "-q", path),
            peer_name: ("archive_list", peer_name.partition(".")[0], path),
        }
    )
    if call["count"] != peer["count"]:
        raise RuntimeError("the counts differ")
    faster, by_cpu = peer["seconds"] / call["seconds"], peer["call_cpu"] / call["call_cpu"]
    bench.line(
        f"{job}: members()",
        f"{call['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s ({peer_name})",
        f"{faster:.1f}× faster (CPU {by_cpu:.1f}×)",
        "≥ 3× (CPU)",
        met=by_cpu >= 3,
    )
    bench.line(
        "the same: peak above imports",
        mib(call["above"]),
        f"{mib(peer['above'])} ({peer_name})",
        f"{call['above'] / peer['above']:.2g}×",
        "≤ 16 MiB",
        met=call["above"] <= 16 * MIB,
    )
    bench.line(
        f"{job}: pparse ls -q, whole process",
        f"{whole['wall']:.2f} s",
        f"{peer['wall']:.2f} s ({peer_name})",
        f"{peer['wall'] / whole['wall']:.1f}× faster (CPU {peer['cpu'] / whole['cpu']:.1f}×)",
    )
    bench.line("the same: peak", mib(whole["peak"]), mib(peer["peak"]), f"{whole['peak'] / peer['peak']:.2f}×")


def row_w(bench: Bench) -> None:
    """List tar archives."""
    count = 20_000 if bench.quick else 100_000
    path = bench.input("small.tar", inputs.tar_of_small, count)
    list_archive(bench, f"list a tar of {count:,} members of 1 KiB", "tarfile.getmembers", path)
    bench.drop("small.tar")
    path = bench.input("large.tar", inputs.tar_of_large, 12, 100_000_000)
    ours, peer = bench.by_turns({how: ("archive_list", how, path) for how in ("pparse", "tarfile")})
    bench.line(
        "list a tar of 12 members of 100 MB: bytes read",
        f"{ours['bytes'] / 1024:,.0f} KiB in {ours['reads']:.0f} reads",
        "",
        f"{ours['bytes'] / path.stat().st_size:.2g}× of the file",
        "≤ 1 MiB",
        met=ours["bytes"] <= MIB,
    )
    bench.line(
        "the same: time",
        f"{ours['seconds'] * 1000:.1f} ms",
        f"{peer['seconds'] * 1000:.1f} ms (tarfile.getmembers)",
        both(ours, peer),
    )
    bench.drop("large.tar")


def row_x(bench: Bench) -> None:
    """List a zip archive."""
    count = 20_000 if bench.quick else 100_000
    path = bench.input("small.zip", inputs.zip_of_small, count)
    list_archive(bench, f"list a zip of {count:,} members", "zipfile.infolist", path)
    bench.drop("small.zip")


def row_y(bench: Bench) -> None:
    """Read a gzip file from front to end."""
    size = (50 if bench.quick else 200) * 1_000_000
    path = bench.input("read.gz", inputs.gzip_of, size)
    ours, peer = bench.by_turns({how: ("stream_read", how, "gzip", path) for how in ("pparse", "bare")})
    if ours["check"] != peer["check"] or ours["size"] != size:
        raise RuntimeError("the bytes differ")
    bench.line(
        f"read {size / 1e6:.0f} MB of a gzip file, 1 MiB at a time, with a CRC",
        f"{ours['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s (zlib.decompressobj)",
        both(ours, peer),
        "≤ 1.15× (CPU)",
        met=ours["call_cpu"] <= 1.15 * peer["call_cpu"],
    )
    bench.line(
        "the same: peak above imports", mib(ours["above"]), mib(peer["above"]), f"{ours['above'] / peer['above']:.2g}×"
    )
    bench.drop("read.gz")


def row_z(bench: Bench) -> None:
    """Read at random in a gzip file, with an index and without."""
    size = (100 if bench.quick else 500) * 1_000_000
    path, index = bench.input("random.gz", inputs.gzip_of, size), bench.work / "random.gz.pindex"
    (built,) = bench.by_turns({"build": ("gzip_random", "build", path, index)}, repeat=few(bench), warm=False)
    read, passed = bench.by_turns(
        {how: ("gzip_random", how, path, index, size) for how in ("index", "passed")}, repeat=few(bench)
    )
    (peer,) = bench.by_turns({"bare": ("stream_read", "bare", "gzip", path)}, repeat=few(bench), warm=False)
    megabytes = f"{size / 1e6:.0f} MB"
    bench.line(
        f"index a gzip file of {megabytes} ({built['file'] / 1e6:.0f} MB packed)",
        f"{built['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s (zlib.decompressobj, all of it)",
        both(built, peer),
    )
    bench.line(
        "the same: size of the index",
        f"{built['size'] / 1e6:.2f} MB, {built['points']:.0f} points",
        "",
        f"{built['size'] / built['file']:.2%} of the file",
    )
    bench.line(
        "the same: peak above imports",
        mib(built["above"]),
        mib(peer["above"]),
        f"{built['above'] / peer['above']:.2g}×",
    )
    job = f"read 1 MiB at random of {megabytes} in a gzip file"
    for run, what in ((read, "with an index"), (passed, "without, after one pass")):
        median, worst, cpu = (f"{run[key] * 1000:.1f}" for key in ("median", "worst", "median_cpu"))
        cells = (
            f"{job}, {what}",
            f"{median} ms (CPU {cpu}, slowest of 50: {worst})",
            f"{peer['seconds'] / 2 * 1000:.0f} ms (decoding half of it)",
            f"{run['median'] / (peer['seconds'] / 2):.2g}×",
        )
        if run is read:
            bench.line(*cells, "≤ 30 ms (CPU)", met=run["median_cpu"] <= 0.030)
            anew = f"{run['first'] * 1000:.1f} ms (CPU {run['first_cpu'] * 1000:.1f})"
            bench.line("the same: index opened anew", anew, "", "", "≤ 30 ms (CPU)", met=run["first_cpu"] <= 0.030)
            bench.line("the same: peak of the process", mib(run["peak"]), "", "", "≤ 40 MB", met=run["peak"] <= 40e6)
        else:
            bench.line(*cells)
            bench.line("the same: peak above imports", mib(run["above"]))
    index.unlink()
    bench.drop("random.gz")


def row_aa(bench: Bench) -> None:
    """Read an xz and a Zstandard file backwards."""
    size = (100 if bench.quick else 500) * 1_000_000
    scratch = bench.work / "scratch"
    scratch.mkdir()
    for codec, make in (("xz", inputs.xz_of), ("zstd", inputs.zstd_of)):
        path = bench.input(f"back.{codec}", make, size)
        jobs: dict[str, tuple[object, ...]] = {
            how: ("stream_read", how, codec, path, scratch) for how in ("backward", "pparse", "bare")
        }
        back, ours, peer = bench.by_turns(jobs, repeat=1, warm=not bench.quick and codec == "zstd")
        if back["size"] != size or {ours["check"], ours["size"]} != {peer["check"], size}:
            raise RuntimeError("the bytes differ")
        what = "an xz file, one block" if codec == "xz" else "a zstd file, one frame"
        job = f"read {size / 1e6:.0f} MB of {what}"
        bench.line(
            f"{job}, 1 MiB at a time",
            f"{ours['seconds']:.2f} s",
            f"{peer['seconds']:.2f} s (bare library)",
            both(ours, peer),
        )
        bench.line(
            f"{job}, backwards, with scratch",
            f"{back['seconds']:.2f} s",
            f"{ours['seconds']:.2f} s (ours, forwards)",
            both(back, ours),
            "≤ 2.5× (CPU)",
            met=back["call_cpu"] <= 2.5 * ours["call_cpu"],
        )
        bar = BUDGET + 8 * MIB
        bench.line(
            "the same: peak above imports",
            mib(back["above"]),
            f"{mib(ours['above'])} (ours, forwards)",
            f"{back['above'] / ours['above']:.2g}×",
            f"≤ {mib(bar)}",
            met=back["above"] <= bar,
        )
        bench.drop(f"back.{codec}")
    scratch.rmdir()


def row_ab(bench: Bench) -> None:
    """Extract a tar.gz."""
    size = (50 if bench.quick else 200) * 1_000_000
    path = bench.input("data.tar.gz", inputs.tar_gz, size)
    target = bench.work / "extracted"
    hows = ["extract", "tarfile"] + (["tar"] if shutil.which("tar") else [])
    ours, *peers = bench.by_turns({how: ("archive_extract", how, path, target) for how in hows}, repeat=few(bench))
    if len({run["size"] for run in (ours, *peers)}) > 1:
        raise RuntimeError("the files differ")
    job = f"extract {ours['count']:,.0f} files of {ours['size'] / 1e6:.0f} MB from a tar.gz"
    for peer in peers:
        name = "tar xzf" if peer.name == "tar" else "tarfile.extractall"
        bench.line(job, f"{ours['seconds']:.2f} s", f"{peer['seconds']:.2f} s ({name})", both(ours, peer))
    bench.line(
        "the same: peak above imports",
        mib(ours["above"]),
        f"{mib(peers[0]['above'])} (tarfile.extractall)",
        f"{ours['above'] / peers[0]['above']:.2g}×",
    )


def row_ac(bench: Bench) -> None:
    """Recover a damaged tar.gz."""
    size = (50 if bench.quick else 200) * 1_000_000
    whole = bench.input("data.tar.gz", inputs.tar_gz, size)
    path = bench.input("damaged.tar.gz", inputs.damaged, whole)
    target = bench.work / "recovered"
    ours, peer = bench.by_turns(
        {how: ("archive_extract", how, file, target) for how, file in (("recover", path), ("extract", whole))},
        repeat=few(bench),
    )
    packed = path.stat().st_size
    kept = ours["size"] / peer["size"]
    bench.line(
        f"recover a tar.gz of {packed / 1e6:.0f} MB with 512 bytes damaged: time",
        f"{ours['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s (ours extracts it undamaged)",
        both(ours, peer),
    )
    bench.line("the same: files written", f"{ours['count']:,.0f}", f"{peer['count']:,.0f}", f"{kept:.4f}× the bytes")
    bench.line(
        "the same: peak of the process",
        mib(ours["peak"]),
        mib(peer["peak"]),
        f"{ours['peak'] / peer['peak']:.2f}×",
        "≤ 96 MiB",
        met=ours["peak"] <= 96 * MIB,
    )
    bench.drop("data.tar.gz", "damaged.tar.gz")


CONTAINER_ROWS = {"w": row_w, "x": row_x, "y": row_y, "z": row_z, "aa": row_aa, "ab": row_ab, "ac": row_ac}
