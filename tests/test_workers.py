"""Tasks that others do: results in order, the same whoever made them, also if workers die or the run is stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import pparse
from pparse.conversion import stretch
from pparse.errors import DataError, MalformedError, OptionError, SourceError, WorkerDiedError
from pparse.limits import MemoryBudget
from pparse.measuring import statistics
from pparse.measuring.difference import diff
from pparse.measuring.hashing import content_hash, hash
from pparse.measuring.statistics import stats
from pparse.workers.notes import Notes
from pparse.workers.pool import ProcessPool
from pparse.workers.results import Workers

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"


class Task:
    """Returns the square of a number; ``how`` says what happens before, ``where`` counts how often it was begun."""

    nbytes, together, needs = 24 << 20, 64 << 20, ["textwrap"]  # so two go out together

    def __init__(self, number: int, how: str = "", where: Path | None = None, *, is_local: bool = False) -> None:
        self.number, self.how, self.where, self.is_local = number, how, where, is_local

    def key(self) -> str | None:
        return None if self.how == "nameless" else f"{self.number}"

    def run(self) -> object:
        begun = 0
        if self.where is not None:
            with open(self.where, "a") as file:
                file.write("x")
            begun = self.where.stat().st_size
        if self.how == "bad" or (self.how == "bad there" and os.environ.get("HERE") != "yes"):
            raise MalformedError("no number")
        if self.how == "dies" or (self.how == "dies once" and begun == 1):
            os._exit(3)
        if self.how == "killed" and begun <= 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.number**2

    def noted(self, result: object) -> object:
        return [result]

    def known(self, noted: list) -> object:
        return noted[0]

    def __reduce__(self) -> object:
        if self.how == "stays":
            raise SourceError("it cannot be sent")
        return (Task, (self.number, self.how, self.where))


def results_of(workers: Workers, tasks: list[Task]) -> list[object]:
    """Return the results of tasks, or the classes of their errors."""
    found: list[object] = []
    for result in workers.results(tasks):
        try:
            found.append(result())
        except DataError as error:
            found.append(type(error))
    return found


def test_results_come_in_order_whatever_happens(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HERE", "no")
    tasks = [Task(number, is_local=number % 5 == 0) for number in range(20)]
    tasks += [Task(20, "bad"), Task(21, "stays"), Task(22, "dies once", tmp_path / "once"), Task(23)]
    tasks += [Task(24, "dies", tmp_path / "dies"), Task(25), Task(26, "killed", tmp_path / "killed")]
    tasks += [Task(27, "bad there")]
    wanted: list[object] = [number**2 for number in range(28)]
    wanted[20], wanted[24] = MalformedError, WorkerDiedError
    done: list[int] = []
    with ProcessPool(2) as pool:
        pool.submit(int).result()  # the environment of workers is that of now
        monkeypatch.setenv("HERE", "yes")
        assert results_of(Workers(pool, 2, progress=done.append), tasks) == wanted
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 7, 0).result()
    assert (tmp_path / "dies").stat().st_size == 2 + 2  # with the task that went out with it, and by itself
    assert (tmp_path / "killed").stat().st_size == 6
    assert done == sorted(done)
    assert done[-1] == 26 * Task.nbytes
    with ThreadPoolExecutor(3) as threads:
        assert results_of(Workers(threads, 3), tasks[:22]) == wanted[:22]
    monkeypatch.setattr("pparse.workers.pool._Process", lambda *how: os.lseek(-1, 0, 0))  # the system refuses
    with ProcessPool(2) as pool:
        assert results_of(Workers(pool, 2), tasks[:22]) == wanted[:22]
    assert results_of(Workers(), tasks[:22]) == wanted[:22]


def test_a_program_without_a_guard_gets_its_results(tmp_path) -> None:
    """Copies of it go on. Other processes run it once more and end: no tensor is to blame."""
    sample = str(SAMPLES / "tiny-gpt.safetensors")
    lines = (
        f"print(pparse.stats({sample!r}, executor=pool).whole.count)\n"
        "import time\nbefore = time.monotonic()\nwhile time.monotonic() < before + 60:\n"
        "    try:\n        pool.submit(os.kill, pool.submit(os.getpid).result(), 9).result()\n"
        "    except pparse.WorkerDiedError:\n        pass\n"
        "    except pparse.SourceError as error:\n        print(error)\n        break\n"
    )
    for how in ("", ", waiting=0"):
        program = tmp_path / "program.py"
        program.write_text(f"import os, pparse\npool = pparse.ProcessPool(2{how})\n{lines}")
        told = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100, check=True)
        assert told.stdout.startswith("11008\n")
        assert "\nworker processes end before they have anything to do" in told.stdout
        assert told.stderr.count("Traceback") <= 4


def test_a_pool_keeps_nothing_of_its_program_and_may_be_in_any_process(tmp_path) -> None:
    """A pipe of the program ends when it closes it; where no process can be started, the work is done."""
    sample = str(SAMPLES / "tiny-gpt.safetensors")
    (tmp_path / "program.py").write_text(
        "import multiprocessing, subprocess, sys, pparse\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "def inner(what):\n    with pparse.ProcessPool(1) as pool:\n"
        f"        done = len(pparse.hash({sample!r}, executor=pool).model)\n        try:\n"
        "            return done, pool.submit(str).result()\n"
        "        except pparse.SourceError as error:\n            return done, str(error)\n"
        "if __name__ == '__main__':\n    cat = [sys.executable, '-c', 'import sys; print(sys.stdin.read())']\n"
        "    cat = subprocess.Popen(cat, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "    with pparse.ProcessPool(1) as pool:\n"
        "        print(cat.communicate('seen', timeout=20)[0].strip())\n        print(pool.submit(inner, 0).result())\n"
        "    with multiprocessing.Pool(1) as pool:\n        print(*pool.map(inner, [0]))\n"
        "    with ProcessPoolExecutor(1) as pool:\n        print(*pool.map(inner, [0]))\n"
    )
    command = [sys.executable, tmp_path / "program.py"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.splitlines()
    daemonic = "(64, 'a daemonic process, such as a worker of multiprocessing.Pool, cannot start worker processes')"
    assert told[:3] == ["seen", daemonic, daemonic]
    started = "(64, '')", "(64, 'worker processes cannot be started: "  # by the server of the one that forked it
    assert told[3].startswith(started)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no terminals that hang up")
def test_workers_outlive_the_terminal_if_the_command_does(tmp_path) -> None:
    """A program that nohup starts ignores that its terminal ends; so do copies of it."""
    program = (
        "import os, signal, pparse\nif __name__ == '__main__':\n"
        "    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "    with pparse.ProcessPool(1, waiting=0) as pool:\n"
        "        process = pool.submit(os.getpid).result()\n        os.kill(process, signal.SIGHUP)\n"
        "        print(pool.submit(os.getpid).result() == process)\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, tmp_path / "program.py"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "True\n"


def test_notes_go_on_where_a_run_ended(tmp_path, monkeypatch) -> None:
    path, about = tmp_path / "run.notes", {"run": ["test"]}
    counted = tmp_path / "counted"
    tasks = [Task(n, "nameless" if n == 2 else "bad" if n == 3 else "", counted) for n in range(8)]
    wanted = [n**2 if n != 3 else MalformedError for n in range(8)]

    def run(tasks: list[Task], about: dict = about) -> list[object]:
        with Notes(str(path), about, MemoryBudget(1 << 20)) as notes:
            return results_of(Workers(notes=notes), tasks)

    assert run(tasks[:5]) == wanted[:5]
    with open(path, "ab") as file:
        file.write(b'["result","5",[2')  # killed while it was written
    counted.unlink()
    assert run(tasks) == wanted
    assert counted.stat().st_size == 5  # the two that are never noted, and the last three
    counted.unlink()
    assert run(tasks) == wanted
    assert counted.stat().st_size == 2
    other = [Task(100 + n, "", counted) for n in range(3)]
    assert run([*tasks[:2], *other]) == [0, 1, 10000, 10201, 10404]  # a file changed: what is behind it is made again
    assert len(path.read_bytes().splitlines()) == 1 + 5
    with pytest.raises(OptionError, match="another command"):
        run(tasks, {"run": ["other"]})
    for other in (b"a text of somebody", b'{"journal":10, "of": "somebody"}'):
        path.write_bytes(other)
        with pytest.raises(OptionError, match="something else"):
            run(tasks)
        assert path.read_bytes() == other
    path.unlink()
    with Notes(str(path), about, MemoryBudget(1 << 20)) as notes, monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: os.lseek(-1, 0, 0))  # fails
        with pytest.raises(SourceError, match=re.escape(f"{path}: cannot write")):
            notes.note("key", "x" * (1 << 20))


@pytest.fixture
def models(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """Two models whose tensors are measured in many parts."""
    hashing, difference = map(sys.modules.get, ("pparse.measuring.hashing", "pparse.measuring.difference"))
    for module in (statistics, difference):
        monkeypatch.setattr(module, "PART", 16 << 10)
    monkeypatch.setattr(hashing._Pieces, "most", 16 << 10)
    monkeypatch.setattr(hashing, "PIECE", 4 << 10)
    rng = np.random.default_rng(5)
    arrays = {
        "w": rng.standard_normal((70, 1000)).astype(np.float32),
        "h": rng.standard_normal(30_000).astype(np.float16),
        "i": rng.integers(-9, 9, 50_001),
        "none": np.zeros((0, 3), np.float32),
    }
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    save_file(arrays, old)
    arrays["w"][69, 999] = np.nan
    arrays["h"] = arrays["h"] + np.float16(1)
    save_file(arrays, new)
    return old, new


def test_workers_measure_what_one_process_does(models) -> None:
    """In parts: a pool of threads divides as this process does; and with processes, of samples of many formats."""
    old, new = models
    with ThreadPoolExecutor(3) as threads:
        for measure in (hash, stats):
            assert measure(old, executor=threads).to_dict() == measure(old).to_dict()
        with pparse.view(old) as model:
            whole = content_hash(model["w"])
        assert next(one for one in hash(old).tensors if one.name == "w").content == whole
        found = diff(old, new, executor=threads).to_dict()
    assert found == diff(old, new).to_dict()
    changed = {one["name"]: one["distance"]["changed"] for one in found["tensors"]}
    assert changed == {"w": 1, "h": 30_000}
    a, b = (pparse.view(path)["w"].numpy().astype(np.float64).ravel()[:-1] for path in models)
    told = next(one for one in found["tensors"] if one["name"] == "w")["distance"]
    assert told["cosine"] == pytest.approx(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    with pparse.view(old) as model:
        whole = stats(model).to_dict()["tensors"]
        for one in (one for one in whole if one["statistics"]["count"]):
            values = model[one["name"]].numpy().astype(np.float64)
            assert one["statistics"]["mean"] == pytest.approx(values.mean())
            assert one["statistics"]["std"] == pytest.approx(values.std())
    samples = ["tiny-gpt.pt", "tiny-gpt.cut.safetensors", "sharded", "saved-model", "tiny-gpt.safetensors"]
    with ProcessPool(1) as pool:
        for name in samples:
            for measure in (hash, stats):
                assert measure(SAMPLES / name, executor=pool).to_dict() == measure(SAMPLES / name).to_dict(), name
        content = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
        assert hash(content, executor=pool).to_dict() == hash(content).to_dict()  # not sent: it would travel whole


def test_who_asked_for_long_work_can_end_it() -> None:
    good = SAMPLES / "tiny-gpt.safetensors"
    with ThreadPoolExecutor(1) as threads:
        for measure, sources in ((stats, [good]), (hash, [good]), (diff, [good, SAMPLES / "sharded"])):
            for executor in (None, threads):
                asked: list[int] = []
                told: list[int] = []
                how = {"cancel": lambda asked=asked: asked.append(1) or len(asked) > 5, "executor": executor}
                with pytest.raises(pparse.CancelledError):
                    measure(*sources, **how, progress=lambda done, total, what, told=told: told.append(done))
                assert told


def test_jobs_of_commands(run, tmp_path) -> None:
    good, notes = str(SAMPLES / "tiny-gpt.safetensors"), str(tmp_path / "run.notes")
    for command in (["stats", good], ["hash", "-t", good], ["diff", good, str(SAMPLES / "tiny-gpt.pt")]):
        alone = vars(run(*command))
        assert vars(run(*command, "-j", "2")) == alone
        assert vars(run(*command, "--resume", notes)) == alone
        lines = Path(notes).read_text().splitlines()
        assert len(lines) == 1 + 21
        assert alone["out"]
        assert json.loads(lines[0])["run"]["run"][0] == command[0]
        assert vars(run(*command, "--resume", notes)) == alone
        assert Path(notes).read_text().splitlines() == lines
        first = json.loads(lines[1])
        for line in (lines[1].replace("[", "[[", 1), json.dumps([*first[:2], {"odd": 1}, *first[3:]])):
            Path(notes).write_text("\n".join([lines[0], line, *lines[2:], ""]))
            assert vars(run(*command, "--resume", notes)) == alone  # what somebody changed is not believed
            assert Path(notes).read_text().splitlines() == lines
        other = run("stats", str(SAMPLES / "tiny-gpt.pt"), "--resume", notes)
        assert (other.code, "of another command" in other.err) == (2, True)
        os.unlink(notes)
    assert run("stats", good, "-j", "many").code == 2
    assert run("stats", good, "-j", "2", "--scheduler", "tcp://127.0.0.1:1").code == 2


def test_workers_write_what_one_process_does(tmp_path, monkeypatch) -> None:
    """Casts and blocks in stretches, with checksums; also if the run is stopped, and goes on with another engine."""
    monkeypatch.setattr(stretch, "_ELEMENTS", 1 << 15)
    monkeypatch.setattr(stretch, "PART", 1 << 15)
    begun, run = [], stretch.Stretch.run
    monkeypatch.setattr(stretch.Stretch, "run", lambda one: begun.append(one.start) or run(one))
    rng = np.random.default_rng(6)
    values = rng.standard_normal((3, 1 << 15)).astype(np.float32)
    values[1, 7] = 1e30  # too large for float16
    source = tmp_path / "source.safetensors"
    save_file({"a": values, "b": values[0, :1001] * 2, "i": np.arange(9)}, source)

    def halt(done: int, total: int | None, what: str) -> None:
        if done > values.nbytes // 4:
            raise KeyboardInterrupt

    for name, dtype in (("m.safetensors", "bfloat16"), ("m.npz", "float16"), ("m.gguf", "Q8_0")):
        target = tmp_path / name
        told = pparse.convert(source, target, dtype=dtype)
        wanted = target.read_bytes()
        target.unlink()
        for engine in (ProcessPool(2), ThreadPoolExecutor(2)):
            with engine:
                found = pparse.convert(source, target, dtype=dtype, executor=engine)
                assert (target.read_bytes(), found.overflowed) == (wanted, told.overflowed), name
                target.unlink()
                with pytest.raises(KeyboardInterrupt):
                    pparse.convert(source, target, dtype=dtype, executor=engine, progress=halt)
            found = pparse.convert(source, target, dtype=dtype)
            assert (target.read_bytes(), found.overflowed) == (wanted, told.overflowed), name
            assert found.resumed_bytes
            target.unlink()
    assert {0, 1 << 15, 2 << 15} == set(begun)
    with ProcessPool(1) as pool:
        pool.submit(int).result()
        monkeypatch.chdir(tmp_path)  # not of the worker any more
        begun.clear()
        pparse.convert("source.safetensors", "m.gguf", dtype="Q8_0", executor=pool)
        assert not begun  # nothing was left to this process


def test_files_are_checked_by_workers(run, tmp_path) -> None:
    """What is told is the same, in the same order, also of files that cannot be opened."""
    names = ["tiny-gpt.safetensors", "tiny-gpt.cut.pt", "none", "tiny-gpt.pt", "tiny-gpt.cut.safetensors"]
    paths, notes = [str(SAMPLES / name) for name in names], str(tmp_path / "notes")
    for command in (["check"], ["check", "--json"], ["check", "--jsonl"], ["check", "-q"], ["scan", "-a"]):
        alone = vars(run(*command, *paths))
        assert vars(run(*command, *paths, "-j", "2")) == alone
        if command[0] == "check":
            assert vars(run(*command, *paths, "--resume", notes)) == alone
            assert vars(run(*command, *paths, "--resume", notes)) == alone
            assert len(Path(notes).read_text().splitlines()) == 1 + 5
            other = run("check", "--strict", *paths, "--resume", notes)
            assert (other.code, "of other options" in other.err) == (2, True)
            os.unlink(notes)


def test_notes_do_not_hold_once_a_file_beside_was_changed(run, tmp_path) -> None:
    """Shards behind an index, scales in another shard, a list of identities."""
    notes, codes, scales = tmp_path / "notes", tmp_path / "codes.safetensors", tmp_path / "scales.safetensors"
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": codes.name, "w_scale_inv": scales.name}}))
    head = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [8, 8], "data_offsets": [0, 64]}}).encode()
    codes.write_bytes(len(head).to_bytes(8, "little") + head + bytes(range(64)))
    for command in (["stats", str(index)], ["check", str(index), str(codes)]):
        for scale, lost in ((2, 0), (3, 0), (3, 1)):
            save_file({"w_scale_inv": np.full(1, scale, np.float32)}, scales)
            os.truncate(scales, scales.stat().st_size - lost)
            assert vars(run(*command, "--resume", str(notes))) == vars(run(*command)), (command, scale, lost)
        notes.unlink()
    command = ["check", str(codes), str(scales), "--resume", str(notes)]
    run(*command)
    run("hash", "--save", str(codes))
    assert "agree" in run(*command).out
    notes.unlink()
    sums = tmp_path / "SHA256SUMS"
    for digest, code in ((sha256(codes.read_bytes()).hexdigest(), 0), ("0" * 64, 4)):
        sums.write_text("".join(f"{digest}  {one.name}\n" for one in (codes, codes)))
        assert run("check", str(codes), str(codes), "--sha256", "--resume", str(notes)).code == code


def test_check_compares_a_list_beside_the_file(run, tmp_path) -> None:
    content = bytearray((SAMPLES / "tiny-gpt.safetensors").read_bytes())
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    listed = tmp_path / "m.safetensors.hashes"
    assert run("hash", "--save", str(path)).code == 0
    assert run("hash", "-t", str(path)).out.replace(str(path), "m.safetensors") == listed.read_text()
    good = run("check", str(path))
    assert (good.code, "the list of identities agrees" in good.out) == (0, True)
    content[-1] ^= 1
    path.write_bytes(content)
    assert run("ls", str(path)).code == 0
    found = run("check", "--json", str(path))
    assert found.code == 4
    assert [one["code"] for one in found.json["findings"]] == ["identity"]
    assert run("hash", "--check", str(listed), str(path)).code == 1
    path.write_bytes(content[:-1])
    assert run("hash", "--save", str(path)).code == 4
    assert listed.stat().st_size > 2000  # what is not whole leaves it alone
    path.write_bytes(content)
    for text in ("", "x", "Q 1 2\n"):  # of another program
        listed.write_text(text)
        told = run("check", str(path))
        assert (told.code, "nothing was compared with the list" in told.out) == (0, True)
    assert run("check", "--strict", str(path)).code == 4
    assert run("hash", "--save", "-").code == 2


def test_what_is_read_is_not_written_over(run, tmp_path) -> None:
    path = tmp_path / "m.svg"  # a name that a picture may have
    path.write_bytes((SAMPLES / "tiny-gpt.safetensors").read_bytes())
    for command in (["stats", str(path), "--svg", str(path)], ["stats", str(path), "--svg", str(tmp_path / "m.txt")]):
        assert run(*command).code == 2
    model = tmp_path / "g.svg"
    model.write_bytes((SAMPLES / "tiny.onnx").read_bytes())
    assert run("graph", str(model), "-o", str(model)).code == 2
    assert path.read_bytes() == (SAMPLES / "tiny-gpt.safetensors").read_bytes()
    assert model.read_bytes() == (SAMPLES / "tiny.onnx").read_bytes()


def test_what_is_cut_is_not_said_to_be_gone(run, tmp_path) -> None:
    """Names that are lost are not `removed`, a list does not agree, and what was not read has no NaN."""
    whole, cut = tmp_path / "a.npz", tmp_path / "b.npz"
    pparse.convert(SAMPLES / "tiny-gpt.safetensors", whole)
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    for both in ((whole, cut), (cut, whole)):
        assert not {one.verdict for one in diff(*both).tensors} & {"added", "removed"}
    told = run("find", str(SAMPLES / "tiny-gpt.cut.safetensors"), "--nan")
    assert ("could not be looked at" in told.out, "not all of it is whole" in told.err) == (True, True)
    path = tmp_path / "m.safetensors"
    path.write_bytes((SAMPLES / "tiny-gpt.safetensors").read_bytes())
    assert run("hash", "--save", str(path)).code == 0
    path.write_bytes((SAMPLES / "tiny-gpt.cut.safetensors").read_bytes())
    told = run("check", str(path))
    assert (told.code, "12 of 23 lines" in told.out, "all 23" in told.out) == (4, True, False)


def test_diff_believes_lists(run, tmp_path) -> None:
    """Without reading tensors, as far as they are whole; not a list that is older than its model."""
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    arrays = {"a": np.arange(99_000.0), "b": np.zeros(9)}
    save_file(arrays, old)
    save_file({**arrays, "b": np.ones(9)}, new)
    command = ["diff", "--lists", "--json", str(old), str(new)]
    missing = run(*command)
    assert (missing.code, "hash --save" in missing.err) == (2, True)
    assert run("hash", "--save", str(old), str(new)).code == 0
    found = run(*command)
    assert [(one["name"], one["verdict"]) for one in found.json["tensors"]] == [("b", "values")]
    assert (found.code, found.json["equal"]) == (1, 1)
    assert int(run(*command, "--trace-io").err.splitlines()[-1].split()[1]) < 20_000
    listed = Path(f"{new}.hashes")
    listed.write_text(listed.read_text().replace("blake3:", "sha256:"))
    assert (run(*command).code, "two algorithms" in run(*command).err) == (2, True)
    run("hash", "--save", str(new))
    os.truncate(new, new.stat().st_size - 1)
    os.utime(new, (0, 0))
    assert run(*command).code == 4
    os.utime(new)
    os.utime(f"{new}.hashes", (0, 0))
    stale = run(*command)
    assert (stale.code, "was written after" in stale.err) == (2, True)
    shutil.copytree(SAMPLES / "sharded", tmp_path / "sharded")
    index = tmp_path / "sharded" / "model.safetensors.index.json"
    assert run("hash", "--save", str(index)).code == 0
    assert run("diff", "--lists", str(index), str(index)).code == 0
    os.utime(next((tmp_path / "sharded").glob("*-00002-*")), (1 << 32, 1 << 32))  # not the index itself
    stale = run("diff", "--lists", str(index), str(index))
    assert (stale.code, "00002-of-00003.safetensors was written after" in stale.err) == (2, True)
