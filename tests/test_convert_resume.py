"""A conversion that is killed at any moment leaves nothing under its name that is not whole; the same call goes on."""

from __future__ import annotations

import errno
import gzip
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.conversion import converting as convert_module
from pparse.conversion.converting import ConversionFolder
from pparse.errors import CancelledError, DataChangedError, NotWholeError, OptionError, SourceError, WorkerDiedError
from pparse.writers.journal import Journal
from tests import sweep
from tests.rows import rows

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
SAMPLE = "docs/samples/tiny-gpt.safetensors"
CHECKPOINT = "docs/samples/tiny-gpt.pt"
WORK = ".m.safetensors.pparse-convert"
# Everything that changes the disk.
STEPS = (
    (ConversionFolder, "_write"),
    (ConversionFolder, "copy"),
    (Journal, "flush"),
    (convert_module, "_sync"),
    (os, "replace"),
    (os, "unlink"),
    (os, "mkdir"),
    (os, "rmdir"),
    (os, "ftruncate"),
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let small samples take many pieces, and the journal follow each of them."""
    monkeypatch.setattr(convert_module, "PIECE", 512)
    monkeypatch.setattr(convert_module, "COPIED", 512)
    monkeypatch.setattr(convert_module, "CHECKPOINT", 1500)
    monkeypatch.setattr(convert_module, "_WORTH_A_THREAD", 500)


def killed_at(step: int, after: bool, call) -> bool:
    """Run ``call`` in a process that is killed before, or after, its ``step``-th change of the disk.

    Return False if it ended before that.
    """
    child = os.fork()
    if not child:
        code = 3
        try:
            left = step

            def counted(function):
                def step_of(*args, **more):
                    nonlocal left
                    left -= 1
                    if not left and not after:
                        os.kill(os.getpid(), signal.SIGKILL)
                    found = function(*args, **more)
                    if left <= 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return found

                return step_of

            for place, name in STEPS:
                setattr(place, name, counted(getattr(place, name)))
            call()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0, "the process failed by itself"
    return False


def steps_of(call) -> int:
    """Return how often ``call`` changes the disk."""
    count = 0

    def counted(function):
        def step_of(*args, **more):
            nonlocal count
            count += 1
            return function(*args, **more)

        return step_of

    with pytest.MonkeyPatch.context() as patch:
        for place, name in STEPS:
            patch.setattr(place, name, counted(getattr(place, name)))
        call()
    return count


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


HOWS = [
    {},
    {"max_shard_size": "9KB"},
    {"dtype": "float16", "dedupe": True},
    {"target": "m.npz"},
    {"target": "m.npz", "dtype": "float64"},
    {"source": "packed.safetensors.gz", "max_shard_size": "9KB"},
    {"source": CHECKPOINT},
    {"source": CHECKPOINT, "target": "m.npz"},
    {"source": "packed.pt.zip"},
]


def packed(path: Path) -> Path:
    """Make a sample compressed, or in an archive."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(Path(SAMPLE).read_bytes()))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(CHECKPOINT, "m.pt")
        return Path(f"{path}::m.pt")
    return path


@POSIX
@pytest.mark.parametrize("how", sweep.sample(HOWS, 1), ids=str)
def test_a_process_killed_at_every_step(tmp_path, samples, how):
    options = dict(how)
    source = options.pop("source", SAMPLE)
    target = options.pop("target", "m.safetensors")
    if source.startswith("packed"):
        source = str(packed(tmp_path / source))
    (tmp_path / "right").mkdir()
    steps = steps_of(lambda: pparse.convert(source, tmp_path / "right" / target, **options))
    right = contents(tmp_path / "right")
    resumed = set()
    for step in sweep.some(range(1, steps + 1), steps // 20, ends=16):
        folder = tmp_path / str(step)
        folder.mkdir()
        after = step % 3 == 0
        assert killed_at(step, after, lambda: pparse.convert(source, folder / target, **options))  # noqa: B023
        found = contents(folder)
        assert all(right[name] == content for name, content in found.items()), f"killed at {step}: {set(found)}"
        if any(name.endswith("json") for name in found):
            assert found == right, "the index comes last"
        if found != right:  # else only the journal was left to remove
            resumed.add(pparse.convert(source, folder / target, **options).resumed_bytes)
            assert sorted(os.listdir(folder)) == sorted(right), f"killed at {step}"
        assert contents(folder) == right, f"killed at {step}"
    assert len(resumed) > 3, "it goes on where it was stopped, not from the beginning"
    assert max(resumed) > 9_000


@POSIX
def test_a_run_that_is_killed_again_and_again(tmp_path, samples):
    target = tmp_path / "m.safetensors"
    times = 0
    while killed_at(25, False, lambda: pparse.convert(SAMPLE, target)):
        times += 1
        assert not target.exists()
        assert times < 50, "it does not get on"
    assert times > 2
    assert target.read_bytes() == Path(SAMPLE).read_bytes()
    assert os.listdir(tmp_path) == ["m.safetensors"]


def stopped(target, after: int, source=SAMPLE, **options):
    """Convert, and let Ctrl-C come when more than ``after`` bytes are written."""

    def progress(done, total, what):
        if what == "writing" and done > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pparse.convert(source, target, progress=progress, **options)


@pytest.mark.parametrize("how", ["ctrl-c", "cancel"])
def test_an_interrupted_run_continues_at_the_very_piece(tmp_path, samples, how):
    if how == "ctrl-c":
        stopped(tmp_path / "m.safetensors", 9000)
    else:
        told: list[int] = []
        with pytest.raises(CancelledError):
            pparse.convert(
                SAMPLE,
                tmp_path / "m.safetensors",
                progress=lambda done, total, what: told.append(done if what == "writing" else 0),
                cancel=lambda: bool(told) and told[-1] > 9000,
            )
    assert os.listdir(tmp_path) == [WORK]
    report = pparse.convert(SAMPLE, tmp_path / "m.safetensors")
    assert 9000 < report.resumed_bytes <= 9000 + 2 * 512
    assert (tmp_path / "m.safetensors").read_bytes() == Path(SAMPLE).read_bytes()
    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert report.notes == []


def test_numbers_too_large_are_counted_once_over_both_runs(tmp_path, model):
    values = np.full(2000, 1e30, np.float32)
    values[::2] = 1
    source = model({"a": ("F32", (2000,), values.tobytes()), "b": ("F32", (2000,), values.tobytes())})
    stopped(tmp_path / "m.safetensors", 5000, source=source, dtype="float16")
    report = pparse.convert(source, tmp_path / "m.safetensors", dtype="float16")
    assert report.resumed_bytes > 4000
    assert report.overflowed == {"a": 1000, "b": 1000}


def test_a_run_that_is_stopped_as_it_goes_on_loses_nothing(tmp_path, model, monkeypatch):
    """While workers start: what was done, its checksum and its numbers that are too large are still known.

    What workers wrote ahead takes room, and needs no more of it.
    """
    values = np.full(1 << 20, 1e30, "<f4").tobytes()
    source, target = model({"x": ("F32", [1 << 20], values)}, "source.safetensors"), tmp_path / "m.npz"

    class Stopped(Executor):
        def submit(self, fn, /, *args, **kwargs):
            raise KeyboardInterrupt

    stopped(target, 1 << 19, source=source, dtype="float16")
    with pytest.raises(KeyboardInterrupt):
        pparse.convert(source, target, dtype="float16", executor=Stopped())

    class Dead(Executor):
        def submit(self, fn, /, *args, **kwargs):
            done: Future = Future()
            done.set_exception(WorkerDiedError("short of memory"))
            return done

    with pytest.raises(WorkerDiedError):
        pparse.convert(source, target, dtype="float16", executor=Dead())
    (part,) = (tmp_path / ".m.npz.pparse-convert").glob("*.part")
    part.write_bytes(part.read_bytes())  # without holes
    room = 1 << 20 if hasattr(part.stat(), "st_blocks") else 1 << 30
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: (1 << 40, 0, room))
        report = pparse.convert(source, target, dtype="float16")
    assert report.resumed_bytes >= 1 << 19
    assert report.overflowed == {"x": 1 << 20}
    pparse.convert(source, tmp_path / "alone.npz", dtype="float16")
    assert target.read_bytes() == (tmp_path / "alone.npz").read_bytes()


@pytest.mark.parametrize("change", ["dtype", "rename", "source"])
def test_another_run_starts_over_and_says_so(tmp_path, samples, model, change):
    content = Path(SAMPLE).read_bytes()
    source = tmp_path / "source.safetensors"
    source.write_bytes(content)
    stopped(tmp_path / "m.safetensors", 9000, source=source)
    options: dict = {}
    if change == "dtype":
        options["dtype"] = "float64"
    elif change == "rename":
        options["rename"] = ["h.=layers."]
    else:
        source.write_bytes(content[:-4] + b"\0\0\0\0")
    report = pparse.convert(source, tmp_path / "m.safetensors", **options)
    assert report.resumed_bytes == 0
    assert any("given up" in note for note in report.notes)
    pparse.convert(source, tmp_path / "again.safetensors", **options)
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_a_part_that_was_removed_or_cut_is_written_again(tmp_path, samples):
    for hurt in (lambda path: path.unlink(), lambda path: os.truncate(path, 100)):
        stopped(tmp_path / "m.safetensors", 9000)
        (part,) = (tmp_path / WORK).glob("000000-*.part")
        hurt(part)
        assert pparse.convert(SAMPLE, tmp_path / "m.safetensors").resumed_bytes == 0
        assert (tmp_path / "m.safetensors").read_bytes() == Path(SAMPLE).read_bytes()
        (tmp_path / "m.safetensors").unlink()


@rows("junk", [b"", b"junk\n", b'{"journal":1,"run":{}}\n["at"]\n', b"\0" * 100])
def test_a_journal_that_is_not_one(tmp_path, samples, junk):
    work = tmp_path / WORK
    work.mkdir()
    (work / "journal").write_bytes(junk)
    (work / "000000.part").write_bytes(b"x" * 50)
    pparse.convert(SAMPLE, tmp_path / "m.safetensors", force=True)
    assert (tmp_path / "m.safetensors").read_bytes() == Path(SAMPLE).read_bytes()
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_what_is_not_ours_in_the_folder_stays(tmp_path, samples):
    work = tmp_path / WORK
    work.mkdir()
    (work / "notes.txt").write_text("mine")
    pparse.convert(SAMPLE, tmp_path / "m.safetensors")
    assert os.listdir(work) == ["notes.txt"]
    (tmp_path / ".n.safetensors.pparse-convert").symlink_to(work)
    with pytest.raises(OptionError, match="in the way"):
        pparse.convert(SAMPLE, tmp_path / "n.safetensors")


def test_a_worker_of_a_run_that_was_given_up_does_no_harm(tmp_path, model):
    """What it still has to do comes when another run writes under the same name: with other bytes, at other places."""
    source = model({"x": ("F32", [100], np.arange(100, dtype="<f4").tobytes())}, "source.safetensors")
    target = tmp_path / "m.safetensors"
    kept: list = []

    class Stopped(Executor):
        def submit(self, fn, /, *args, **kwargs):
            kept.append(pickle.dumps((fn, args)))
            raise KeyboardInterrupt

    class Late(Executor):
        def submit(self, fn, /, *args, **kwargs):
            done: Future = Future()
            done.set_result(fn(*args))
            while kept:
                there, given = pickle.loads(kept.pop())
                assert there(*given)[0] is None  # it was refused
            return done

    with pytest.raises(KeyboardInterrupt):
        pparse.convert(source, target, dtype="float16", executor=Stopped())
    assert kept
    pparse.convert(source, target, dtype="bfloat16", executor=Late())
    pparse.convert(source, tmp_path / "alone.safetensors", dtype="bfloat16")
    assert not kept
    assert target.read_bytes() == (tmp_path / "alone.safetensors").read_bytes()


def test_two_at_a_time_are_refused(tmp_path, samples):
    entered = []

    def progress(done, total, what):
        if what == "writing" and not entered:
            entered.append(True)
            with pytest.raises(OptionError, match="another process"):
                pparse.convert(SAMPLE, tmp_path / "m.safetensors")

    pparse.convert(SAMPLE, tmp_path / "m.safetensors", progress=progress)
    assert entered
    assert (tmp_path / "m.safetensors").read_bytes() == Path(SAMPLE).read_bytes()


def test_a_source_that_changes_meanwhile_leaves_nothing(tmp_path, model):
    source = model({"a": ("U8", (50_000,), bytes(50_000))})

    def progress(done, total, what):
        if what == "writing" and done > 20_000:
            source.write_bytes(source.read_bytes() + b"!")

    with pytest.raises(DataChangedError):
        pparse.convert(source, tmp_path / "m.safetensors", progress=progress)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_full_disk_keeps_what_was_done(tmp_path, samples, monkeypatch):
    room = [40]

    def until_full(name):
        write = getattr(ConversionFolder, name)

        def write_until_full(self, *args):
            room[0] -= 1
            if room[0] < 0:
                raise SourceError("cannot write: No space left on device", errno=errno.ENOSPC)
            return write(self, *args)

        monkeypatch.setattr(ConversionFolder, name, write_until_full)

    until_full("_write")
    until_full("copy")
    with pytest.raises(SourceError):
        pparse.convert(SAMPLE, tmp_path / "m.safetensors")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == [WORK]
    assert pparse.convert(SAMPLE, tmp_path / "m.safetensors").resumed_bytes > 5000
    assert (tmp_path / "m.safetensors").read_bytes() == Path(SAMPLE).read_bytes()


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path, samples):
    target = tmp_path / "m.safetensors"

    def progress(done, total, what):
        if what == "writing" and done == total:
            target.write_bytes(b"precious")

    with pytest.raises(OptionError, match="force=True"):
        pparse.convert(SAMPLE, target, progress=progress)
    assert target.read_bytes() == b"precious"
    target.unlink()
    pparse.convert(SAMPLE, target)
    assert target.read_bytes() == Path(SAMPLE).read_bytes()


def test_damage_that_shows_while_reading_is_left_out_by_a_second_attempt(tmp_path, samples, monkeypatch):
    from pparse.errors import DamagedTensorError
    from pparse.tensors.tensor import Tensor

    read = Tensor.readinto_from

    def fail(self, offset, buffer):
        if self.name == "wpe.weight":
            raise DamagedTensorError("a bad sector", name=self.name)
        return read(self, offset, buffer)

    monkeypatch.setattr(Tensor, "readinto_from", fail)
    with pytest.raises(NotWholeError) as caught:
        pparse.convert(SAMPLE, tmp_path / "m.safetensors")
    assert [name for name, _, _ in caught.value.lost] == ["wpe.weight"]
    assert os.listdir(tmp_path) == []
    report = pparse.convert(SAMPLE, tmp_path / "m.safetensors", skip_damaged=True)
    assert ([entry.name for entry in report.left_out], report.is_whole, report.tensors) == (["wpe.weight"], False, 20)
    with pparse.view(tmp_path / "m.safetensors") as written:
        assert len(written) == 20


SCRIPT = """
import sys
from pparse.cli import main
from pparse.conversion import converting
converting.PIECE = 4096
converting.CHECKPOINT = 1 << 20
sys.exit(main(sys.argv[1:]))
"""


@POSIX
@pytest.mark.parametrize("how", sweep.part([signal.SIGINT, signal.SIGKILL]))
def test_the_command_goes_on_after_a_signal(tmp_path, model, how):
    generator = np.random.default_rng(3)
    count = 6
    source = model({f"t{at}": ("U8", (8 << 20,), generator.bytes(1 << 20) * 8) for at in range(count)})
    target = tmp_path / "m.safetensors"
    command = [sys.executable, "-c", SCRIPT, "convert", str(source), "-o", str(target)]
    root = Path(pparse.__file__).resolve().parent.parent
    running = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
    part = tmp_path / WORK / "journal"
    while running.poll() is None and not (part.exists() and part.stat().st_size > 1000):
        time.sleep(0.002)
    running.send_signal(how)
    told = running.communicate()[1]
    if running.returncode == 0:
        pytest.skip("it was faster than the signal")
    assert not target.exists()
    assert (running.returncode, "the same command continues" in told) == (
        (130, True) if how is signal.SIGINT else (-9, False)
    )
    done = subprocess.run([*command, "--json"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"resumed_bytes": 0' not in done.stdout
    with pparse.view(source) as before, pparse.view(target) as after:
        assert all(bytes(tensor.numpy()) == bytes(after[name].numpy()) for name, tensor in before.items())
