"""What the rows of the benchmark share: fresh processes by turns, their medians, and the lines of the table."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MIB = 1 << 20


class Line(NamedTuple):
    """One line of the table; ``met`` is None where nothing is promised."""

    job: str
    ours: str
    peer: str
    ratio: str
    bar: str
    met: bool | None


class Runs:
    """What repeated runs of one job gave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, list[float]] = {}

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> float:
        return statistics.median(self.values[name])

    def __str__(self) -> str:
        spread = f"{min(self.values['wall']) * 1000:,.0f}–{max(self.values['wall']) * 1000:,.0f}"
        more = f", call {self['seconds'] * 1000:,.0f} ms" if "seconds" in self.values else ""
        return (
            f"{self.name}: wall {self['wall'] * 1000:,.0f} ms ({spread}){more}, CPU {self['cpu'] * 1000:,.0f} ms, "
            f"peak {self['peak'] / MIB:,.1f} MiB"
        )


class Bench:
    """The environment, the inputs, and the lines of the table."""

    def __init__(self, work: Path, python: Path, quick: bool, repeat: int) -> None:
        self.work = work
        self.python = python
        self.quick = quick
        self.repeat = repeat
        self.lines: list[Line] = []
        self.notes: list[str] = []
        self._made: dict[str, Path] = {}

    def input(self, name: str, make: object, *arguments: object) -> Path:
        """Return an input, made when it is first asked for."""
        if name not in self._made:
            start = time.perf_counter()
            self._made[name] = make(self.work / name, *arguments)  # type: ignore[operator]
            print(f"  made {name} in {time.perf_counter() - start:.1f} s", flush=True)
        return self._made[name]

    def drop(self, *names: str) -> None:
        """Remove inputs that no later row needs."""
        for name in names:
            path = self._made.pop(name, None)
            if path is not None:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def once(self, job: str, *words: object, limit_files: int = 0) -> dict[str, float]:
        """Run a job in a fresh process and return what it tells, with the wall time that we saw."""
        read, write = os.pipe()
        command = [str(self.python), str(HERE / "jobs" / f"{job}.py"), *map(str, words)]
        if limit_files:
            command = ["/bin/sh", "-c", f'ulimit -n {limit_files} && exec "$@"', "sh", *command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PPARSE"))}
        start = time.perf_counter()
        ran = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(write,),
            env=environment | {"BENCH_FD": str(write)},
        )
        wall = time.perf_counter() - start
        os.close(write)
        with os.fdopen(read) as file:
            told = dict(line.split() for line in file)
        if ran.returncode or not told:
            raise RuntimeError(f"{job} {words} failed ({ran.returncode}): {ran.stderr.decode()[-2000:]}")
        return {"wall": wall, **{name: float(value) for name, value in told.items()}}

    def by_turns(
        self, jobs: dict[str, tuple[object, ...]], repeat: int = 0, warm: bool = True, **options: int
    ) -> list[Runs]:
        """Run jobs by turns, each ``repeat`` times; ``warm``: a first round fills the caches and does not count."""
        runs = [Runs(name) for name in jobs]
        for number in range(0 if warm else 1, (repeat or self.repeat) + 1):
            for run, words in zip(runs, jobs.values(), strict=True):
                values = self.once(str(words[0]), *words[1:], **options)
                if number:
                    run.add(values)
        for run in runs:
            print(f"    {run}", flush=True)
        return runs

    def line(self, *cells: str, met: bool | None = None) -> None:
        """Add a line to the table: job, ours, peer, ratio, bar; the last ones may be left out."""
        self.lines.append(Line(*cells, *[""] * (5 - len(cells)), met))
        print("  " + " | ".join(self.lines[-1][:5]) + {None: "", True: " | met", False: " | MISSED"}[met], flush=True)

    def compare(self, job: str, ours: Runs, peer: Runs) -> None:
        """Add the lines for whole processes: wall time, CPU time and peak, ours over the peer's."""
        for key in ("wall", "cpu", "peak"):
            ratio = ours[key] / peer[key]
            shown = [mib(run[key]) if key == "peak" else f"{run[key] * 1000:,.0f} ms" for run in (ours, peer)]
            cells = (f"{job}: {key}", shown[0], f"{shown[1]} ({peer.name})", f"{ratio:.2f}×")
            if key == "cpu":
                self.line(*cells)
            else:
                self.line(*cells, "≤ 1×", met=ratio <= 1)


def mib(size: float) -> str:
    return f"{size / MIB:,.1f} MiB"
