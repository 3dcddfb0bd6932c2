"""Which tensors, rows and files a command takes: filters, orders, first rows, globs; the same in every command."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

import pparse
from pparse.cli.order import Held, in_order
from tests.rows import rows
from tests.test_screen import screen  # noqa: F401 -- a fixture

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"
GOOD, CUT = SAMPLES / "tiny-gpt.safetensors", SAMPLES / "tiny-gpt.cut.safetensors"
MADE = {
    "b.10": np.arange(6, dtype="f4").reshape(2, 3),
    "b.9": np.array([[5, 0, 0]], "f2"),
    "a": np.array(-7, "i8"),
    "none": np.zeros((0, 4), "f4"),
}


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "m.safetensors"
    made.write_bytes(save(MADE))
    return made


@rows(
    "words, names",
    [
        ((), "a b.10 b.9 none"),
        (("--dtype", "float32"), "b.10 none"),
        (("--dtype", "F32"), "b.10 none"),
        (("--dtype", "single", "--dtype", "half"), "b.10 b.9 none"),
        (("--dtype", "float*"), "b.10 b.9 none"),
        (("--dtype", "[A-Z]64"), "a"),
        (("--shape", ""), "a"),
        (("--shape", "scalar"), "a"),
        (("--shape", "[]"), "a"),
        (("--shape", "[1, 3]", "--shape", "(0,4)"), "b.9 none"),
        (("--shape", "*,3"), "b.10 b.9"),
        (("--shape", "1x3", "--shape", "0,4"), "b.9 none"),
        (("--shape", "*,3", "--dtype", "half"), "b.9"),
        (("--min-size", "7"), "a b.10"),
        (("--max-size", "0"), "none"),
        (("--min-size", "6", "--max-size", "8"), "a b.9"),
        (("--status", "complete", "--status", "damaged"), "a b.10 b.9 none"),
        (("--variables", "-p", "b.*"), "b.10 b.9"),
        (("-p", "b.*", "-p", "a", "--max-size", "8"), "a b.9"),
    ],
)
def test_every_command_selects_the_same(run, path, tmp_path, words, names) -> None:
    def of(rows):
        return sorted(row["name"] for row in rows if "name" in row)

    wanted = names.split()
    assert sorted(run("ls", path, "-q", *words).lines) == wanted
    assert sorted(run("find", path, "-q", *words).lines) == wanted
    assert of(run("stats", path, "--jsonl", *words).jsonl) == wanted
    assert of(run("hash", path, "--jsonl", *words).jsonl) == wanted
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(save({}))
    assert of(run("diff", path, empty, "--jsonl", *words).jsonl) == wanted
    assert of(run("diff", empty, path, "--jsonl", *words).jsonl) == wanted
    out = tmp_path / "out.safetensors"
    written = [{"--dtype": "--only-dtype"}.get(word, word) for word in words]
    if words:
        assert run("get", path, "-o", out, *written).code == 0
        assert sorted(load_file(out)) == wanted
    written = ["--include" if word == "-p" else word for word in written]
    assert run("convert", path, "-o", out, "--force", *written).code == 0
    assert sorted(load_file(out)) == wanted


def test_if_nothing_fits_that_is_said(run, path, tmp_path) -> None:
    out = tmp_path / "out.npz"
    for code, *words in (
        (1, "ls", path, "--dtype", "int4"),
        (1, "ls", path, "--json", "--dtype", "int4"),
        (1, "stats", path, "--dtype", "int4"),
        (1, "hash", path, "--dtype", "int4"),
        (2, "diff", path, path, "--dtype", "int4"),
        (2, "convert", path, "-o", out, "--only-dtype", "int4"),
        (2, "get", path, "-o", out, "--only-dtype", "int4"),
    ):
        ran = run(*words)
        assert (ran.code, out.exists()) == (code, False), words
        assert "nothing fits: type int4; types here: F16, F32, I64, float16, float32, int64" in ran.err
    assert run("find", path, "--dtype", "int4").code == 1
    assert run("ls", path, "nothing", "--dtype", "int4").code == 2  # the pattern is what is wrong
    assert run("ls", CUT, "--dtype", "int4").code == 4
    assert run("hash", path, tmp_path / "no file", "--dtype", "int4").code == 2
    for words in (
        ("--dtype", "intt"),
        ("--status", "fine"),
        ("--shape", "[1,2"),
        ("--shape", "1;2"),
        ("-n", "0"),
        ("-n", "x"),
        ("--sort", "colour"),
    ):
        assert run("ls", path, *words).code == 2, words
    assert run("convert", path, "-o", out, "--dtype", "float16", "--only-dtype", "float32").code == 0
    with np.load(out) as found:
        assert {name: str(found[name].dtype) for name in found} == {"b.10": "float16", "none": "float16"}


def test_diff_selects_pairs_by_the_first_model(run, path, tmp_path) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(save({f"model.{name}": array.astype("f4") for name, array in MADE.items()} | {"new": MADE["a"]}))

    def verdicts(*words):
        return {row["name"]: row["verdict"] for row in run("diff", path, other, "--jsonl", *words).jsonl[:-1]}

    assert verdicts("--dtype", "half") == {"b.9": "equal after a cast"}  # under another name, and of another type
    assert verdicts("--dtype", "int64") == {"a": "equal after a cast", "new": "added"}


COLUMNS = {
    "name": ["a", "b.9", "b.10", "none"],
    "size": ["b.10", "a", "b.9", "none"],
    "dtype": ["b.9", "b.10", "none", "a"],
    "shape": ["a", "none", "b.9", "b.10"],
    "status": ["a", "b.9", "b.10", "none"],
}
FIGURES = {
    "min": ["a", "b.9", "b.10", "none"],
    "max": ["b.9", "b.10", "a", "none"],
    "mean": ["a", "b.9", "b.10", "none"],
    "std": ["b.9", "b.10", "a", "none"],
    "zeros": ["b.9", "b.10", "a", "none"],
    "nan": ["a", "b.9", "b.10", "none"],
}


def test_rows_are_sorted_by_any_column(run, path) -> None:
    for column, names in COLUMNS.items():
        for command in ("ls", "find"):
            assert run(command, path, "-q", "--sort", column).lines == names, column
            assert run(command, path, "-q", "--sort", column, "-n", "2").lines == names[:2], column
            backwards = run(command, path, "-q", "--sort", column, "--reverse").lines
            assert backwards == names[::-1], column
    for column, names in {**FIGURES, "name": COLUMNS["name"], "dtype": COLUMNS["dtype"]}.items():
        *found, whole = run("stats", path, "--jsonl", "--sort", column, "-n", "3").jsonl
        assert [row["name"] for row in found] == names[:3], column
        assert whole["whole"]["count"] == 10  # of all
    broken = [row["status"] for row in run("ls", CUT, "--sort", "status", "--jsonl").jsonl]
    assert broken == sorted(broken, key=lambda status: (status == "complete", status))
    offsets = run("ls", path, "--sort", "offset", "--jsonl", "-n", "9").jsonl
    begins = [row["spans"][0]["offset"] for row in offsets]
    assert begins == sorted(begins)
    assert (
        run("find", "--duplicates", path, "-n", "1").code == run("find", "--unused", path, "--sort", "size").code == 2
    )


def test_the_first_of_many_rows_are_held_alone() -> None:
    most, notes, budget = 0, [], pparse.MemoryBudget("4MiB")
    held = Held(budget, lambda row: 1_000, asked=True)  # of 3 MiB
    made = ((number * 7_919) % 100_003 for number in range(100_003))

    def watched():
        nonlocal most
        for number in made:
            most = max(most, len(held.items))
            yield number

    class Out:
        error = notes.append

    found = list(in_order(watched(), "offset", held, Out(), first=5, name=str, offset=int))
    assert (found, notes, budget.used) == ([0, 1, 2, 3, 4], [], 0)
    assert most <= 1_010
    rest = in_order(iter(range(10)), "none", held, Out(), first=3, name=str)
    assert list(rest) == [0, 1, 2]
    held = Held(budget, lambda row: 1 << 20, asked=True)  # they cannot be held: the first of the file, and a note
    assert list(in_order(iter(range(9, 0, -1)), "offset", held, Out(), first=4, name=str, offset=int)) == [9, 8, 7, 6]
    assert (len(notes), budget.used) == (1, 0)


def test_what_is_behind_the_first_rows_is_not_read(run, tmp_path) -> None:
    packed, zipped, noise = tmp_path / "many.tar", tmp_path / "many.tar.gz", np.random.default_rng(1)
    with tarfile.open(packed, "w") as tar, tarfile.open(zipped, "w:gz", compresslevel=1) as other:
        for number in range(500):
            entry = tarfile.TarInfo(f"{number}.bin")
            entry.size = 4_000
            tar.addfile(entry, io.BytesIO(bytes(4_000)))
            other.addfile(entry, io.BytesIO(noise.bytes(4_000)))

    def read(*words):
        ran = run(*words, "--trace-io")
        assert ran.code == 0
        return int(ran.err.split("\n")[-2].split()[1])

    assert read("ls", packed, "-n", "2") * 20 < read("ls", packed)
    assert read("ls", zipped, "-n", "2") * 5 < read("ls", zipped)
    spoilt = bytearray(zipped.read_bytes())
    spoilt[-6] ^= 1
    zipped.write_bytes(spoilt)
    assert run("ls", zipped, "-n", "2").code == 0  # the checksum is at the end
    assert all("damaged" in line for line in run("ls", zipped, "-n", "600").lines[1:-3])
    assert all("damaged" in line for line in run("ls", zipped, "7*.bin", "-n", "2").lines[1:3])
    assert run("ls", zipped, "7*.bin", "-n", "2").lines[-1].startswith("error ")
    big = tmp_path / "big.safetensors"
    big.write_bytes(save({f"{number:03}": np.zeros(100_000, "f4") for number in range(40)}))
    for words in (("find", big, "--zero"), ("stats", big), ("ls", big, "--digest")):
        assert read(*words, "-n", "2") * 10 < read(*words), words
    ran = run("ls", packed, "-n", "2")
    assert ran.lines[-1] == "ended after the first 2: what else there is was not looked at"
    assert len(ran.lines) == 4
    assert run("ls", packed, "-n", "2", "--json").json["status"] is None
    found = run("ls", GOOD, "-n", "2", "--json").json
    assert (found["status"], found["extent"], len(found["tensors"])) == (None, None, 2)
    assert run("ls", CUT, "-n", "1", "-q").code == 0  # that one is whole
    assert run("ls", CUT, "-n", "1", "--status", "missing").code == 4
    assert run("find", CUT, "-n", "1", "--status", "missing").code == 4
    assert run("ls", SAMPLES, "-n", "1", "-q").lines == ["backup.cut.tar.gz"]
    for command in ("ls", "stats", "find"):  # whether there is another name is not known
        assert run(command, GOOD, "h.0.*", "nothing", "-n", "1").code == 0
        assert run(command, GOOD, "h.0.*", "nothing", "-n", "30").code == 2


def test_members_have_a_size_and_a_status_and_no_type(run, tmp_path) -> None:
    packed = tmp_path / "a.tar"
    with tarfile.open(packed, "w") as tar:
        for name, size in (("small", 5), ("large", 5_000), ("cut", 20_000)):
            entry = tarfile.TarInfo(name)
            entry.size = size
            tar.addfile(entry, io.BytesIO(bytes(size)))
    packed.write_bytes(packed.read_bytes()[:10_000])
    assert run("ls", packed, "-q", "--min-size", "1KB").lines == ["large", "cut"]
    assert run("ls", packed, "-q", "--status", "truncated").lines == ["cut"]
    assert run("ls", packed, "-q", "--sort", "status").lines == ["large", "small", "cut"]
    ran = run("ls", packed, "-q", "--dtype", "float32")
    assert (ran.lines, ran.code) == ([], 4)
    assert run("ls", packed, "--digest").code == run("ls", SAMPLES, "--digest").code == 2
    assert run("ls", GOOD, "--digest", "--group").code == 2
    assert run("ls", SAMPLES, "-q", "--status", "truncated").lines[-1] == "tiny-gpt.cut.safetensors"


def test_digests_are_identities(run, tmp_path, screen) -> None:  # noqa: F811
    wanted = {row["name"]: row["content"] for row in run("hash", GOOD, "--jsonl").jsonl[:-1]}
    assert {row["name"]: row["content"] for row in run("ls", GOOD, "--digest", "--jsonl").jsonl} == wanted
    lines = [line.split() for line in run("ls", GOOD, "--digest", "ln_f*").lines]
    assert lines[0] == ["NAME", "DTYPE", "SHAPE", "SIZE", "DIGEST", "STATUS"]
    assert wanted["ln_f.weight"] in lines[1]
    path = tmp_path / "flipped.npz"
    np.savez(path, a=np.arange(1_000), b=np.arange(1_000))
    raw = bytearray(path.read_bytes())
    raw[2_000] ^= 1
    path.write_bytes(raw)
    for words in ((), ("-n", "1"), ("--sort", "size")):  # reading tells that it is damaged
        ran = run("ls", path, "--digest", "--jsonl", *words)
        assert (ran.code, ran.jsonl[0]["status"], ran.jsonl[0]["content"]) == (4, "damaged", None)
    from pparse.cli import main

    for words, digest in (((), wanted["ln_f.weight"][:12]), (("--long",), wanted["ln_f.weight"])):
        shown = screen(100)
        assert main(["ls", str(GOOD), "ln_f*", "--digest", *words]) == 0
        assert f" {digest}" in shown.getvalue()
        assert f"{digest}{wanted['ln_f.weight'][12]}" not in shown.getvalue()


def test_long_rows_are_whole_in_a_terminal(run, tmp_path, screen) -> None:  # noqa: F811
    from pparse.cli import main

    path = tmp_path / "long.safetensors"
    path.write_bytes(save({"n" * 90: np.arange(3)}))
    for command in ("ls", "find", "stats"):
        for words, is_whole in (((), False), (("-l",), True)):
            shown = screen(60)
            assert main([command, str(path), *words]) == 0
            assert ("n" * 90 in shown.getvalue()) is is_whole, command


def test_variables_are_what_a_model_has_learned(run, tmp_path) -> None:
    variables = ["dense/bias", "dense/kernel", "step", "words"]
    assert run("ls", SAMPLES / "saved-model", "--variables", "-q").lines == variables
    assert sorted(run("find", SAMPLES / "saved-model", "--variables", "-q").lines) == variables
    graph = tmp_path / "saved_model.pb"
    graph.write_bytes((SAMPLES / "saved-model" / "saved_model.pb").read_bytes())
    *others, left = [set(run("ls", graph, *words, "-q").lines) for words in ((), ("--variables",))]
    gone = others[0] - left
    assert all("traced_save" in name or "traced_restore" in name or name == "Const_1" for name in gone)
    assert len(gone) > 5
    assert "Const" in left


def test_files_that_a_shell_left_as_globs(run, tmp_path, monkeypatch) -> None:
    for name in ("a.safetensors", "b.safetensors", "w.bin", "b[1].safetensors"):
        (tmp_path / name).write_bytes(save({"w.x": MADE["a"]}))
    monkeypatch.chdir(tmp_path)
    three = ["a.safetensors", "b.safetensors", "b[1].safetensors"]

    def files(*words):
        return [row["file"] for row in run(*words, "--jsonl").jsonl if "file" in row]

    for command in ("ls", "find"):
        assert files(command, "*.safetensors") == three
        assert files(command, "*.safetensors", "*.bin", "w.?") == [*three, "w.bin"]
        assert run(command, "a.safetensors", "w.*", "-q").lines == ["w.x"]  # though there is such a file
    assert [row["file"] for row in run("info", "*.safetensors", "--json").json["files"]] == three
    assert [row["file"] for row in run("scan", "a.*", "w.*", "--json").json["files"]] == ["a.safetensors", "w.bin"]
    assert run("check", "a.safetensors", "*.bin").lines[-1] == "2 files: 2 ok, 0 not"
    assert run("tree", "b[1].safetensors", "-q").code == 0
    assert len(run("hash", "[ab].safetensors").lines) == 2
    missing = run("ls", "*.gguf")
    assert missing.code == 2
    assert "*.gguf" in missing.err


def test_many_files_take_no_more_memory_and_few_descriptors(tmp_path) -> None:
    resource = pytest.importorskip("resource")
    from pparse.cli import main

    raw = save(MADE)
    for number in range(200):
        (tmp_path / f"{number:03}.safetensors").write_bytes(raw)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)

    def peak(command: str, files: str) -> int:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            tracemalloc.start()
            try:
                assert main([command, str(tmp_path / files)]) == 0
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 24, hard))
    try:
        for command in ("ls", "hash"):
            few = peak(command, "00?.*")  # 10, with what is imported
            assert peak(command, "*") < few + (2 << 20), command  # a tenth of that each, until it is collected
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_how_to_leave_out_many_constants_is_said(run, tmp_path) -> None:
    from pparse.protos import message_class

    def lines(count: int) -> list[str]:
        graph = message_class("tensorflow.GraphDef")()
        for number in range(count + 1):
            node = graph.node.add(name=f"save/{number}" if number else "weights", op="Const")
            node.attr["value"].tensor.dtype = 1
            node.attr["value"].tensor.float_val.append(1)
        path = tmp_path / "graph.pb"
        path.write_bytes(graph.SerializeToString())
        assert run("ls", path, "--variables", "-q").lines == ["weights"]
        return run("ls", path).lines

    assert "100 of them are constants, or say how it was saved: --variables leaves them out" in lines(100)
    assert not any("--variables" in line for line in lines(99))


def test_cut_files_of_a_folder_ask_once_for_its_names(run, tmp_path, monkeypatch) -> None:
    from pparse.document.folder import LocalFolder

    for number in range(20):
        (tmp_path / f"{number}.safetensors").write_bytes(CUT.read_bytes())
    os.utime(tmp_path, (1_000, 1_000))  # nothing came or went for long
    asked, listed = [], LocalFolder.list
    monkeypatch.setattr(LocalFolder, "list", lambda self: asked.append(self.path) or listed(self))
    assert "beside it has" not in run("ls", tmp_path / "*").out
    assert len(asked) == 1
    (tmp_path / "00.safetensors").write_bytes(GOOD.read_bytes())  # seen at once
    assert run("ls", tmp_path / "1*").out.count("'00.safetensors' beside it has the 23,680 bytes") == 11
