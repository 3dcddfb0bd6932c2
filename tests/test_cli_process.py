"""The command line as a process: pipes, signals, terminals, encodings, closed streams, plug-ins."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fcntl", reason="pipes and signals as POSIX has them")

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "docs" / "samples" / "tiny-gpt.safetensors"
COMMAND = shutil.which("pparse", path=sysconfig.get_path("scripts"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the command is not installed")


def environment(**more):
    return {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | more


def pparse(*words, env=None):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, env=environment(**env or {}))


def test_the_installed_command():
    ran = pparse("ls", SAMPLE, "-q")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.count(b"\n") == 21
    assert pparse("ls", "/nowhere").returncode == 2


def piped(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    """Start the command with pipes; as a context manager, all of it is gone at the end, whatever the test did."""

    class Piped(subprocess.Popen):
        def __exit__(self, *exc):
            self.kill()
            super().__exit__(*exc)

    def as_in_a_terminal():  # what runs the tests in the background may ignore interrupts, and pass that on
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    words = [COMMAND, *map(str, words)]
    return Piped(words, preexec_fn=as_in_a_terminal, stdout=stdout, stderr=stderr)


def test_a_reader_that_leaves_ends_the_command_quietly(many, tmp_path, monkeypatch):
    with piped("ls", many) as process:
        assert process.stdout.readline().startswith(b"NAME")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
    # What Python does not buffer, it may write in part only, and say nothing.
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    np.save(tmp_path / "a.npy", np.zeros(1 << 18, np.uint8))
    for form in ("--raw", "--json"):
        with piped("get", tmp_path / "a.npy", "a", form) as process:
            process.stdout.read(1)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 141


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_command_with_its_code(many, number):
    ours, theirs = os.pipe()
    try:
        with piped("ls", many, "--json", stdout=theirs) as process:
            full = select.poll()
            full.register(theirs, select.POLLOUT)
            while full.poll(0) and process.poll() is None:  # then it waits for a reader, in a call of the system
                os.sched_yield()
            process.send_signal(number)
            assert process.wait(timeout=30) == 128 + number
            assert process.stderr.read() == b""
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_interrupt_ends_a_command_whose_errors_nobody_reads():
    ours, theirs = os.pipe()
    try:
        with piped("info", *["/nowhere"] * 3000, stderr=theirs) as process:
            full = select.poll()
            full.register(theirs, select.POLLOUT)
            while full.poll(0) and process.poll() is None:
                os.sched_yield()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 130
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_interrupt_is_taken_though_the_call_that_waits_does_not_notice_it():
    # The signal comes to another thread: as if it had come just before the call.
    script = """
import os, signal, threading, time
from pparse.cli import deliver_interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in the background
deliver_interrupts()
threading.Thread(target=lambda: (time.sleep(0.2), signal.raise_signal(signal.SIGINT)), daemon=True).start()
try:
    os.read(os.pipe()[0], 1)
except KeyboardInterrupt:
    print("taken")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"taken\n", b"")


def test_an_interrupt_is_taken_though_it_was_raised_where_exceptions_are_dropped():
    script = """
import os, signal
from pparse.cli import deliver_interrupts

class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
deliver_interrupts()
dying = Dying()
try:
    del dying
    os.read(os.pipe()[0], 1)
except KeyboardInterrupt:
    print("taken")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"taken\n", b"")


def test_after_an_interrupt_nothing_waits_for_a_reader():
    script = """
import sys
from pparse.cli import tell, without_waiting

def write():
    sys.stdout.write("o" * 1_000_000)
    tell("interrupted")

for _ in range(2):
    without_waiting(write)
sys.exit(3)
"""
    ours, theirs = os.pipe()
    try:
        ran = subprocess.run([sys.executable, "-c", script], stdout=theirs, stderr=theirs, timeout=30)
        assert ran.returncode == 3
        assert os.get_blocking(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_errors_stand_behind_the_output_that_precedes_them():
    words = [COMMAND, "ls", SAMPLE, __file__, SAMPLE, "-q"]
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), text=True)
    lines = ran.stdout.splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith("pparse:")] == [21]
    assert (ran.returncode, len(lines)) == (3, 43)


def test_streams_that_were_closed():
    """Who has closed the output hears that there is none; but nobody asks for errors, or gives input, in vain."""
    for redirection, code, told in (
        (">&-", 2, b"pparse: cannot write: Bad file descriptor\n"),
        ("2>&-", 0, b""),
        (">&- 2>&-", 2, b""),
        ("<&-", 0, b""),
    ):
        words = ["/bin/sh", "-c", f'exec "$0" ls "$1" {redirection}', COMMAND, SAMPLE]
        ran = subprocess.run(words, capture_output=True)
        assert (ran.returncode, ran.stderr) == (code, told)
    ran = subprocess.run(["/bin/sh", "-c", '"$0" ls - <&-', COMMAND], capture_output=True)
    assert (ran.returncode, ran.stderr) == (2, b"pparse: <stdin>: standard input is closed\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk():
    for words in (("ls", SAMPLE), ("get", SAMPLE, "ln_f.weight", "--raw"), ("ls", SAMPLE, "--json")):
        with open("/dev/full", "wb", buffering=0) as full:
            ran = subprocess.run([COMMAND, *words], stdout=full, stderr=subprocess.PIPE)
        assert ran.returncode == 2
        assert ran.stderr == b"pparse: cannot write: No space left on device\n"
    ran = pparse("get", SAMPLE, "ln_f.weight", "--raw", "-o", "/dev/full")
    assert (ran.returncode, ran.stderr) == (2, b"pparse: /dev/full: cannot write: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("ls",), ("ls", "--bogus", "x"), ("ls", "/nowhere"), ("bogus",)])
def test_errors_that_cannot_be_written(words):
    with open("/dev/full", "wb", buffering=0) as full:
        assert subprocess.run([COMMAND, *words], stderr=full).returncode == 2


def test_a_terminal_without_unicode(tmp_path):
    path = tmp_path / "é日.json"
    path.write_text('{"日本": "é"}', encoding="utf-8")
    ran = pparse("ls", path, env={"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"\u65e5\u672c" in ran.stdout
    ran = pparse("get", path, r"\u65e5\u672c", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 2
    ran = pparse("get", path, "日本", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert json.loads(ran.stdout)["value"] == "é"
    ran = pparse("ls", tmp_path / "ü", env={"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 2
    assert rb"\xfc: cannot open" in ran.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are text there")
def test_a_file_name_that_is_not_text(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"m\xff\x1b.safetensors")
    shutil.copy(SAMPLE, path)
    ran = subprocess.run([COMMAND, "info", path], capture_output=True, env=environment())
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"m\udcff\x1b.safetensors" in ran.stdout
    ran = subprocess.run([COMMAND, "ls", path, "--json"], capture_output=True, env=environment())
    assert os.fsencode(json.loads(ran.stdout)["file"]) == path
    ran = subprocess.run([COMMAND, "ls", path + b"x"], capture_output=True, env=environment())
    assert ran.returncode == 2
    assert rb"m\udcff\x1b.safetensorsx: cannot open" in ran.stderr


def on_a_terminal(*words, **env):
    """Run with a terminal as standard output; return the exit code, what it showed, and standard error."""
    import pty

    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [COMMAND, *map(str, words)], stdout=theirs, stderr=subprocess.PIPE, env=environment(TERM="xterm", **env)
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the other side was closed
                chunk = b""
            if not chunk:
                break
            shown += chunk
        err = process.stderr.read()
        process.stderr.close()
        return process.wait(), shown, err
    finally:
        os.close(ours)


def test_a_terminal_gets_colours_and_no_binary_data():
    code, shown, err = on_a_terminal("get", SAMPLE, "ln_f.weight", "--raw")
    assert (code, shown) == (2, b"")
    assert b"binary data is not for a terminal" in err
    code, shown, err = on_a_terminal("info", SAMPLE)
    assert (code, err) == (0, b"")
    assert b"\x1b[32mcomplete, unverified\x1b[0m" in shown
    code, shown, err = on_a_terminal("info", SAMPLE, NO_COLOR="1")
    assert b"\x1b" not in shown


# -- plug-ins ----------------------------------------------------------------------------------------------------------

TOY = '''
from __future__ import annotations

import os

with open(os.environ["TOY_LOG"], "a") as log:
    log.write("imported\\n")

from pparse import Tensor, Viewer
from pparse.parsers.json.parser import JsonParser
from pparse.tree.parser import Confidence


class ToyParser(JsonParser):
    """JSON documents that begin with the key "toy"."""

    name = "toy"
    description = "toy models"
    extensions = (".toy",)
    refines = ("json",)
    options = {"speed": "how fast to play"}

    @classmethod
    def match(cls, excerpt):
        return Confidence.CERTAIN if excerpt.head(8).startswith(b'{"toy"') else Confidence.NO


class ToyViewer(Viewer):
    """Shows one tensor."""

    @property
    def metadata(self):
        return {}

    def tensors(self):
        yield Tensor("toy.tensor", None, (3,), (), stored_dtype="TOY")

    def find(self, name):
        return next((tensor for tensor in self.tensors() if tensor.name == name), None)

    def extent(self):
        from pparse.tensors.status import Extent

        extent = Extent(0, 0)
        for tensor in self.tensors():
            extent.add(tensor)
        return extent
'''


@pytest.fixture
def plugins(tmp_path):
    """Install plug-ins as a package manager does: modules, and a dist-info folder with their entry points."""
    folder = tmp_path / "site"
    log = tmp_path / "log"

    def install(name, module, entry_points):
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        if module is not None:
            (folder / f"{name}.py").write_text(module)

    def run(*words):
        log.write_text("")
        return pparse(*words, env={"PYTHONPATH": str(folder), "TOY_LOG": str(log)}), log.read_text()

    install(
        "pparse_toy",
        TOY,
        "[pparse_parsers_v1]\ntoy = pparse_toy:ToyParser\n\n[pparse_viewers_v1]\ntoy = pparse_toy:ToyViewer\n",
    )
    run.install = install
    return run


def test_a_plugin_that_recognises_a_file_reads_it_and_no_other(plugins, tmp_path):
    toy, plain = tmp_path / "a.json", tmp_path / "b.json"
    toy.write_text('{"toy": 1, "more": 2}')
    plain.write_text('{"game": 1}')

    ran, log = plugins("ls", toy, "--json")
    assert ran.stderr == b""
    found = json.loads(ran.stdout)
    assert (found["format"], [row["name"] for row in found["tensors"]]) == ("toy", ["toy.tensor"])
    ran, log = plugins("tree", toy, "-q")
    assert ran.stdout == b"(root)\ntoy\nmore\n"
    ran, log = plugins("info", toy, "-q", "-O", "speed=3")
    assert (ran.returncode, ran.stdout) == (0, b"toy complete, unverified\n") or ran.stdout.startswith(b"toy ")

    # It is asked of other JSON, and wins there only if it is named.
    ran, log = plugins("info", plain, "-q")
    assert (ran.stdout, log) == (b"json complete, unverified\n", "imported\n")
    ran, log = plugins("ls", toy, "-f", "json", "-q")
    assert ran.stdout == b"toy\nmore\n"
    ran, log = plugins("info", plain, "-f", "toy", "-q")
    assert ran.stdout.startswith(b"toy ")

    # It is not even looked for where a format of ours is certain.
    ran, log = plugins("ls", SAMPLE, "-q")
    assert (ran.returncode, log) == (0, "")


def test_formats_shows_plugins(plugins):
    ran, _ = plugins("formats")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert any(line.split()[:3] == [b"toy", b".toy", b"plug-in"] for line in ran.stdout.splitlines())
    ran, _ = plugins("formats", "toy", "--json")
    row = json.loads(ran.stdout)["formats"][0]
    assert (row["from"], row["viewer"], row["refines"], row["extensions"]) == ("plug-in", True, ["json"], [".toy"])
    ran, _ = plugins("formats", "toys")
    assert b"did you mean 'toy'?" in ran.stderr


def test_plugins_that_do_not_load(plugins, tmp_path):
    fails = "raise RuntimeError('no luck')"
    plugins.install("pparse_broken", fails, "[pparse_parsers_v1]\nbroken = pparse_broken:It\n")
    plugins.install("pparse_gone", None, "[pparse_parsers_v1]\ngone = pparse_gone:It\n")
    plugins.install("pparse_empty", "", "[pparse_viewers_v1]\nempty = pparse_empty:It\n")
    toy = tmp_path / "a.json"
    toy.write_text('{"toy": 1}')
    ran, _ = plugins("info", toy, "-q")
    assert (ran.stdout[:4], ran.stderr) == (b"toy ", b"")
    ran, _ = plugins("ls", SAMPLE, "-q")
    assert (ran.returncode, ran.stderr) == (0, b"")
    ran, _ = plugins("formats")
    assert ran.returncode == 0
    assert b"'broken' could not be loaded: RuntimeError: no luck" in ran.stderr
    assert b"'gone' could not be loaded: ModuleNotFoundError" in ran.stderr
    assert b"\ntoy " in ran.stdout
    assert b"\nbroken " not in ran.stdout
    failed = json.loads(plugins("formats", "--json")[0].stdout)["failed"]
    assert set(failed) >= {"broken", "gone"}


MATCH_FAILS = """
from pparse.parsers.json.parser import JsonParser

class It(JsonParser):
    name = "it"

    @classmethod
    def match(cls, excerpt):
        return 1 / 0
"""


@pytest.mark.parametrize("module", ["def It(): pass", MATCH_FAILS], ids=["no parser", "match fails"])
def test_plugins_that_misbehave(module, plugins, tmp_path):
    plugins.install("pparse_bad", module, "[pparse_parsers_v1]\nbad = pparse_bad:It\n")
    plain = tmp_path / "b.json"
    plain.write_text('{"game": 1}')
    ran, _ = plugins("info", plain, "-q")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"json complete, unverified\n", b"")
    ran, _ = plugins("formats")
    assert ran.returncode == 0
    assert module is MATCH_FAILS or b"'bad' could not be loaded" in ran.stderr


def test_a_pipe_is_a_file_for_every_command(tmp_path):
    def piped(*words):
        content = (SAMPLE.parent / "tiny.onnx" if words[0] == "graph" else SAMPLE).read_bytes()
        ran = subprocess.run([COMMAND, *words], input=content, capture_output=True, cwd=tmp_path)
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()

    for words in (("ls",), ("info",), ("tree",), ("check",), ("graph", "-q"), ("get", "ln_f.weight")):
        code, out, err = piped(words[0], "-", *words[1:])
        assert (code, bool(out), err) == (0, True, ""), words
    assert piped("ls", "/dev/stdin", "-q") == piped("ls", "-", "-q")
    for command, output in (("convert", "a.npz"), ("recover", "b")):
        assert piped(command, "-", "-o", output)[::2] == (0, "")
    with np.load(tmp_path / "a.npz") as found:
        assert len(found.files) == 21
    code, _, err = piped("ls", "-", "--limit", "scratch_bytes=1000")
    assert (code, "lift it with --limit scratch_bytes=" in err) == (2, True)
    assert "cannot make a scratch file" in piped("ls", "-", "--scratch", "nowhere")[2]
