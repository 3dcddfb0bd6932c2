"""Measure what is promised: ``python tests/bench/run.py [--quick] [ROW…]``.

Every job runs in fresh processes, ours and the peer's by turns; medians are compared. Ours runs from a wheel, in a
virtual environment of its own. Memory is VmHWM of the process that does the work. A run of all rows writes
``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import inputs  # noqa: E402 -- the folder was just added
from harness import MIB, Bench, mib  # noqa: E402
from rows_checkpoint import CHECKPOINT_ROWS  # noqa: E402
from rows_containers import CONTAINER_ROWS  # noqa: E402
from rows_convert import CONVERT_ROWS  # noqa: E402
from rows_flexbuffers import FLEXBUFFERS_ROWS  # noqa: E402
from rows_gguf import GGUF_ROWS  # noqa: E402
from rows_inside import INSIDE_ROWS  # noqa: E402
from rows_measuring import MEASURING_ROWS  # noqa: E402
from rows_msgpack import MSGPACK_ROWS  # noqa: E402
from rows_numpy import NUMPY_ROWS  # noqa: E402
from rows_onnx import ONNX_ROWS  # noqa: E402
from rows_protobuf import PROTOBUF_ROWS  # noqa: E402
from rows_pytorch import PYTORCH_ROWS  # noqa: E402
from rows_riegeli import RIEGELI_ROWS  # noqa: E402
from rows_tflite import TFLITE_ROWS  # noqa: E402
from rows_tfrecord import TFRECORD_ROWS  # noqa: E402

PEERS = ("safetensors", "orjson", "ijson", "msgpack", "gguf", "onnx")
# Large ones, installed only if their rows are asked for.
ROW_PEERS = {"ck": ("tensorflow-cpu==2.21.0",), "in": ("ztensor>=2.1",), "fx": ("flatbuffers==25.12.19",)}
BLOCK_LIMIT = 64 * MIB  # the default budget


# -- rows --------------------------------------------------------------------------------------------------------------


def row_a(bench: Bench) -> None:
    """List 200 GB in 40 shards."""
    index = bench.input("set", inputs.sharded_set, 40, 100, 50_000_000)
    ours, peer = bench.by_turns({"pparse ls": ("pparse_cli", "ls", index), "safe_open": ("safetensors_list", index)})
    bench.compare("list 200 GB, 40 shards, 4,000 tensors", ours, peer)
    bench.drop("set")


def row_b(bench: Bench) -> None:
    """List 2 GB in one file."""
    path = bench.input("two.safetensors", inputs.one_file, 1000, 2_000_000)
    ours, peer = bench.by_turns({"pparse ls": ("pparse_cli", "ls", path), "safe_open": ("safetensors_list", path)})
    bench.compare("list 2 GB, 1,000 tensors", ours, peer)
    bench.drop("two.safetensors")


def row_c(bench: Bench) -> None:
    """List a header of about 98 MB."""
    count = 100_000 if bench.quick else 800_000
    path = bench.input("wide.safetensors", inputs.wide_header, count)
    ours, peer = bench.by_turns(
        {"pparse ls": ("pparse_cli", "ls", path), "safe_open": ("safetensors_list", path)}, repeat=min(3, bench.repeat)
    )
    job = f"list a {header_size(path) / 1e6:.0f} MB header, {count:,} tensors"
    bench.line(
        f"{job}: wall",
        f"{ours['wall']:.2f} s",
        f"{peer['wall']:.2f} s (safe_open)",
        f"{ours['wall'] / peer['wall']:.2f}×",
    )
    bench.line(
        f"{job}: peak",
        mib(ours["peak"]),
        f"{mib(peer['peak'])} (safe_open)",
        f"{ours['peak'] / peer['peak']:.2f}×",
        "≤ 48 MiB",
        met=ours["peak"] <= 48 * MIB,
    )


def header_size(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(8), "little")


def row_d(bench: Bench) -> None:
    """List 5,000 shards with few descriptors."""
    count = 500 if bench.quick else 5_000
    index = bench.input("many", inputs.sharded_set, count, 2, 1_000_000)
    ours, peer = bench.by_turns(
        {"pparse ls": ("pparse_cli", "ls", index), "safe_open": ("safetensors_list", index)},
        limit_files=128,
        repeat=min(3, bench.repeat),
    )
    job = f"list {count:,} shards under ulimit -n 128"
    bench.line(
        f"{job}: wall",
        f"{ours['wall']:.2f} s",
        f"{peer['wall']:.2f} s (safe_open, one at a time)",
        f"{ours['wall'] / peer['wall']:.2f}×",
        "lists them",
        met=ours["code"] == 4,  # and tells that they are sparse
    )
    bench.line(f"{job}: peak", mib(ours["peak"]), mib(peer["peak"]), f"{ours['peak'] / peer['peak']:.2f}×")
    bench.drop("many")


def row_e(bench: Bench) -> None:
    """Read a tensor of 256 MiB."""
    path = bench.input("big.safetensors", inputs.random_tensors, [256 * MIB])
    jobs = {how: ("tensor", how, path, "t.0") for how in ("pparse", "safetensors", "np.fromfile")}
    ours, peer, floor = bench.by_turns(jobs, repeat=max(9, bench.repeat))
    if len({runs["check"] for runs in (ours, peer, floor)}) > 1:
        raise RuntimeError("the tensors differ")
    speed = [256 / 1024 / run["seconds"] for run in (ours, peer, floor)]
    for run, rate in ((peer, speed[1]), (floor, speed[2])):
        call = {"safetensors": "get_tensor"}.get(run.name, run.name)
        cells = (
            "256 MiB tensor to numpy",
            f"{speed[0]:.2f} GiB/s",
            f"{rate:.2f} GiB/s ({call})",
            f"{speed[0] / rate:.2f}× (CPU {run['call_cpu'] / ours['call_cpu']:.2f}×)",
        )
        if run is peer:
            bench.line(*cells, "≥ 2×", met=speed[0] >= 2 * rate)
        else:
            bench.line(*cells)
    bench.line(
        "the same: peak above the file's opening",
        mib(ours["above"]),
        f"{mib(peer['above'])} (get_tensor)",
        f"{ours['above'] / peer['above']:.2f}×",
    )
    bench.drop("big.safetensors")


def row_f(bench: Bench) -> None:
    """Read a tensor of 5 GiB, and all tensors of 2 GB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory >= 16 << 30 and not bench.quick:
        path = bench.input("five.safetensors", inputs.counting_tensor, 5 << 30)
        (ours,) = bench.by_turns({"pparse": ("tensor_count", path)}, repeat=1)
        right = ours["wrong"] == 0 and ours["elements"] == 5 << 27
        bench.line("one 5 GiB tensor to numpy", f"{ours['seconds']:.2f} s", "", "", "every element right", met=right)
        size = f"{ours['above'] / (5 << 30):.3f}× its size"
        bench.line("the same: peak above imports", mib(ours["above"]), "", size)
        bench.drop("five.safetensors")
    else:
        bench.notes.append("The 5 GiB tensor was not read: less than 16 GB of memory, or a quick run.")
    sizes = [128 * MIB, 1000, 64 * MIB, 0, 3 * MIB, *[(number * 37 % 61 + 1) * MIB for number in range(60)]]
    if bench.quick:
        sizes = sizes[:12]
    path = bench.input("all.safetensors", inputs.random_tensors, sizes)
    jobs = {how: ("read_all", how, path) for how in ("pparse", "safetensors")}
    ours, peer = bench.by_turns(jobs, repeat=min(3, bench.repeat))
    if ours["check"] != peer["check"]:
        raise RuntimeError("the tensors differ")
    bar = BLOCK_LIMIT + 8 * MIB + max(sizes)
    bench.line(
        f"read all {len(sizes)} tensors of {sum(sizes) / 1e9:.1f} GB: peak above imports",
        mib(ours["above"]),
        f"{mib(peer['above'])} (get_tensor)",
        f"{ours['above'] / peer['above']:.2f}×",
        f"≤ {mib(bar)}",
        met=ours["above"] <= bar,
    )
    bench.line(
        "the same: time, with a CRC of all bytes",
        f"{ours['seconds']:.2f} s",
        f"{peer['seconds']:.2f} s",
        f"{ours['seconds'] / peer['seconds']:.2f}×",
    )
    bench.drop("all.safetensors")


def row_g(bench: Bench) -> None:
    """Index large JSON documents."""
    size, count = (20_000_000, 100_000) if bench.quick else (120_000_000, 800_000)
    wide = bench.input("wide.safetensors", inputs.wide_header, count)
    documents = {
        "records": (bench.input("records.json", inputs.records, size), "array"),
        "safetensors header": (bench.input("header.json", inputs.header_as_json, wide), "object"),
    }
    for name, (path, shape) in documents.items():
        names = ("pparse-numpy", "pparse-stdlib", "json.loads", "orjson.loads", "ijson")
        jobs = {how: ("json_index", how, path, shape) for how in names}
        runs = bench.by_turns(jobs, repeat=min(3, bench.repeat))
        if len({run["count"] for run in runs}) > 1:
            raise RuntimeError("the counts differ")
        job = f"index {path.stat().st_size / 1e6:.0f} MB of JSON ({name}, {int(runs[0]['count']):,} members)"
        for ours, bar in zip(runs[:2], (4, 1.2), strict=True):
            kernel = ours.name.partition("-")[2]
            for peer in runs[2:]:
                ratio = peer["seconds"] / ours["seconds"]
                cells = [
                    f"{job}, {kernel}",
                    f"{ours['seconds']:.2f} s",
                    f"{peer['seconds']:.2f} s ({peer.name})",
                    f"{ratio:.1f}× faster (CPU {peer['call_cpu'] / ours['call_cpu']:.1f}×)",
                ]
                if peer.name == "json.loads":
                    bench.line(*cells, f"≥ {bar}×", met=ratio >= bar)
                else:
                    bench.line(*cells)
            peaks = ", ".join(f"{mib(peer['peak'])} {peer.name}" for peer in runs[2:])
            bench.line(f"{job}, {kernel}: peak", mib(ours["peak"]), peaks, "", "≤ 48 MiB", met=ours["peak"] <= 48 * MIB)
    bench.drop("records.json", "header.json")


def row_h(bench: Bench) -> None:
    """Start on a small file."""
    sample = ROOT / "docs" / "samples" / "tiny-gpt.safetensors"
    repeat = 9 if bench.quick else 41
    jobs: dict[str, tuple[object, ...]] = {
        "pparse ls": ("pparse_cli", "ls", sample),
        "import pparse": ("import_pparse",),
        "python": ("bare",),
        "safe_open": ("safetensors_list", sample),
    }
    listing, importing, bare, peer = bench.by_turns(jobs, repeat=repeat)
    others = f"{bare['wall'] * 1000:.1f} ms (python alone)"
    for run, what, beside in (
        (listing, "pparse ls on a small file", f"{others}, {peer['wall'] * 1000:.1f} ms (safe_open)"),
        (importing, "import pparse", others),
    ):
        more = f"fastest {min(run.values['wall']) * 1000:.1f}, CPU {run['cpu'] * 1000:.1f}"
        bench.line(
            f"{what}: whole process",
            f"{run['wall'] * 1000:.1f} ms ({more})",
            beside,
            f"{run['wall'] / bare['wall']:.2f}×",
            "≤ 40 ms",
            met=run["wall"] <= 0.040,
        )


ROWS = {
    "a": row_a,
    "b": row_b,
    "c": row_c,
    "d": row_d,
    "e": row_e,
    "f": row_f,
    "g": row_g,
    "h": row_h,
    **RIEGELI_ROWS,
    **PROTOBUF_ROWS,
    **CONTAINER_ROWS,
    **CONVERT_ROWS,
    **PYTORCH_ROWS,
    **NUMPY_ROWS,
    **TFRECORD_ROWS,
    **MSGPACK_ROWS,
    **FLEXBUFFERS_ROWS,
    **TFLITE_ROWS,
    **GGUF_ROWS,
    **ONNX_ROWS,
    **CHECKPOINT_ROWS,
    **INSIDE_ROWS,
    **MEASURING_ROWS,
}


# -- environment -------------------------------------------------------------------------------------------------------


def make_environment(folder: Path) -> Path:
    """Install a wheel of this tree, and the peers, in a virtual environment; return its Python."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
        pip(python, "install", *PEERS)
    source, wheels = folder / "source", folder / "wheels"
    for path in (source, wheels):
        shutil.rmtree(path, ignore_errors=True)
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in ("pparse", "parsers", "viewers", "protos"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    pip(python, "wheel", "--no-deps", "--wheel-dir", wheels, source)
    pip(python, "install", "--force-reinstall", "--no-deps", *wheels.glob("*.whl"))
    pip(python, "install", *wheels.glob("*.whl"))  # what it depends on
    return python


def pip(python: Path, *words: object) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    if subprocess.run(command).returncode:
        sys.exit(f"failed: {' '.join(command)}")


def facts(python: Path) -> list[tuple[str, str]]:
    """Return what must be known of the machine."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    code = (
        "import sys, importlib.metadata as m; print('Python', sys.version.split()[0], end='');"
        "[print(f', {name} {m.version(name)}', end='') for name in sys.argv[1:]];"
        "from pparse.codecs.base import ZSTD, package; print(', zstd', package(ZSTD).zstd_version, end='')"
    )
    names = ("lazy-pparse", "numpy", "ml_dtypes", *PEERS, "brotli", "cramjam")
    versions = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True).stdout
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout
    return [
        ("date", datetime.date.today().isoformat()),
        ("processor", f"{model}, {os.cpu_count()} cores"),
        ("memory", f"{memory:.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("versions", versions),
        ("commit", commit.strip() or "unknown"),
        ("load at the start", f"{os.getloadavg()[0]:.1f}"),
    ]


# What the page ends with: figures that no job here makes.
ONCE = Path(__file__).with_name("measured_once.md")
PAGE = """# Benchmarks

*Made by `python tests/bench/run.py`; do not edit.*

{met} of {promised} bars are met. Each job runs in fresh processes, ours and the peer's by turns, after one round that
only fills the caches; the table has medians (of {repeat} runs; of 3 where one takes long; of 41 for the start). Wall
times are of whole processes, from start to exit; where only a call is timed (tensors, JSON, messages), imports are done
before.
Peak is VmHWM of the process: all its memory, Python itself and file pages that it maps included. Ours runs from a
wheel; peers are used as their documentation shows. Files of 2 GB and 200 GB are sparse where only headers are read,
which costs us a little: `pparse ls` looks for holes and reports them. Other work may have run on the machine: read
ratios rather than times.

The peer of reading large Riegeli records are the bare steps: they have a table of the chunks, read the same data into
one buffer, take the block headers out, compare the hash and decompress with the bare library, one chunk after the
other; they look at no header and make no records. ("No block headers": the same from a copy of the data, back to back.)
These rates, and those of hashing and of small records, are by CPU time: one thread works, and waits for nothing.

{facts}

| job | ours | peer | ratio | bar | met |
| --- | ---: | ---: | ---: | ---: | :---: |
{lines}
"""


def as_markdown(bench: Bench, known: list[tuple[str, str]]) -> str:
    """Return the page."""
    met = [line.met for line in bench.lines if line.met is not None]
    words = {None: "", True: "yes", False: "**no**"}
    lines = ["| " + " | ".join((*line[:5], words[line.met])) + " |" for line in bench.lines]
    page = PAGE.format(
        met=sum(met),
        promised=len(met),
        repeat=bench.repeat,
        lines="\n".join(lines),
        facts="\n".join(f"- {name}: {value}" for name, value in known),
    )
    return page + "".join(f"\n{note}\n" for note in bench.notes) + ONCE.read_text(encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="ROW", nargs="*", help="; ".join(f"{k}: {f.__doc__}" for k, f in ROWS.items()))
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer runs")
    parser.add_argument("--repeat", type=int, default=0, help="runs of each job (7; quick: 3)")
    parser.add_argument("--environment", type=Path, help="keep the virtual environment here, or use the one there")
    parser.add_argument("--write", type=Path, help="write the page here (of a full run: docs/benchmarks.md)")
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; there are: {', '.join(ROWS)}")
    with tempfile.TemporaryDirectory(prefix="pparse-bench-") as folder:
        python = make_environment(options.environment or Path(folder))
        for name in options.rows or ROWS:
            if name in ROW_PEERS:
                pip(python, "install", *ROW_PEERS[name])
        known = facts(python)
        print("\n".join(f"{name}: {value}" for name, value in known), flush=True)
        repeat = options.repeat or (3 if options.quick else 7)
        bench = Bench(Path(folder), python, options.quick, repeat)
        for name in options.rows or ROWS:
            print(f"{name}. {ROWS[name].__doc__}", flush=True)
            start = time.perf_counter()
            ROWS[name](bench)
            print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    page = as_markdown(bench, known)
    target = options.write or (ROOT / "docs" / "benchmarks.md" if not options.rows and not options.quick else None)
    if target is not None:
        target.write_text(page, encoding="utf-8")
        print(f"written: {target}")
    return 0 if all(line.met is not False for line in bench.lines) else 4


if __name__ == "__main__":
    sys.exit(main())
