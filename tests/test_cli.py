"""The command line: what every command shares, and ls, info, tree, formats (``get`` and ``check`` have own files)."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import re
import stat
import sys

import pytest

import pparse
from pparse.cli import COMMANDS
from pparse.cli.arguments import parsed
from pparse.cli.common import Arguments, declare
from pparse.display.text import safe, unescaped
from tests.pytorch_files import legacy_checkpoint
from tests.rows import rows

FILE_COMMANDS = ("ls", "info", "tree", "get", "check")
FINDING_KEYS = {"code", "severity", "path", "source", "offset", "length", "wanted", "got", "reason", "option", "fault"}
EXTENT_KEYS = {
    "actual",
    "expected",
    "expected_at_least",
    "missing_bytes",
    "first_hit",
    "resume_at",
    "resume_file",
    "resume",
    "tensors",
    "whole",
    "truncated",
    "missing",
    "unlisted",
    "damaged",
    "unsupported",
    "unwritten",
    "verified",
    "tensor_bytes",
    "parameters",
}
TENSOR_KEYS = {"name", "dtype", "stored_dtype", "shape", "nbytes", "status", "verified", "spans"}
NODE_KEYS = {"path", "depth", "kind", "status", "offset", "length", "loaded"}

ODD_NAMES = [
    "a.b.c",
    "x:0",
    "save/.ATTRIBUTES/VARIABLE_VALUE",
    "br[0]",
    "sl[0:2]",
    "[3]",
    "#2",
    "a#2",
    "..",
    ".",
    "metadata",
    "tensors",
    "*",
    "?",
    "[a]",
    "sp ace",
    'q"uote',
    "back\\slash",
    "lit\\x0a",
    "::",
    "a::b",
    "é",
    "日本",
    "😀",
    "'",
    "%s",
    "{0}",
    "",
    " ",
    "$HOME",
    "~",
    "=",
    "a,b",
    "(1)",
]
NAMES_TO_ESCAPE = {
    "n\0ul": r"n\x00ul",
    "new\nline": r"new\x0aline",
    "\x1b[31mred": r"\x1b[31mred",
    "rtl\u202edcba": r"rtl\u202edcba",
    "alm\u061cx": r"alm\u061cx",
    "line\u2028x": r"line\u2028x",
    "zero\u200bx": r"zero\u200bx",
    "tab\tx": r"tab\x09x",
    "c1\x9bx": r"c1\x9bx",
    "iso\u2066x": r"iso\u2066x",
    "bom\ufeffx": r"bom\ufeffx",
    "cr\rx": r"cr\x0dx",
}


def u8(count: int, start: int = 0):
    return ("U8", [count], bytes((start + number) % 256 for number in range(count)))


@pytest.fixture
def odd(model):
    names = ODD_NAMES + list(NAMES_TO_ESCAPE)
    return model({name: u8(3, 3 * number) for number, name in enumerate(names)})


# -- files that are not what the command is for ------------------------------------------------------------------------


# What stands in files that are no models: the name of the file, and its bytes.
WRONG_BYTES = {
    "text": ("it", b"hello\n"),
    "html": ("it", b"<!DOCTYPE html><html><body>404</body></html>"),
    "html later": ("it", b"\n\n<html>404</html>"),
    "html named safetensors": ("model.safetensors", b"<!DOCTYPE html><html><body>404</body></html>"),
    "lfs pointer": (
        "model.safetensors",
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n".encode(),
    ),
    "hdf5": ("it", b"\x89HDF\r\n\x1a\n" + bytes(100)),
    "zeros": ("it", bytes(100)),
    "empty": ("it", b""),
    "empty safetensors": ("it.safetensors", b""),
    "empty json": ("it.json", b""),
    "unreadable": ("it", b"{}"),
}


def _wrong(kind, tmp_path):
    if kind == "null":
        return "/dev/null"
    name, content = WRONG_BYTES.get(kind, ("it", None))
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    match kind:
        case "no model":
            path.mkdir()
            (path / "readme.txt").write_text("nothing")
        case "pipe":
            os.mkfifo(path)
        case "several":
            path.mkdir()
            for name in ("unet.safetensors", "vae.safetensors"):
                (path / name).write_bytes(bytes(8))
        case "unreadable":
            path.chmod(0)
    return path


WRONG = {
    "text": (3, r"no parser recognises it \(it begins with 68 65 6c 6c 6f 0a\)"),
    "html": (3, "an HTML page, not a model"),
    "html later": (3, "an HTML page, not a model"),
    "html named safetensors": (3, "an HTML page, not a model"),
    "lfs pointer": (3, "a Git LFS pointer, not the file itself: run 'git lfs pull'"),
    "hdf5": (3, "an HDF5 file"),
    "empty": (4, "the file is empty"),
    "empty safetensors": (4, "the file is empty"),
    "empty json": (4, "the file is empty"),
    "no model": (3, "no model recognised in this folder"),
    "missing": (2, "cannot open: No such file or directory"),
    "pipe": (2, "is a pipe, which cannot be read at any offset; save it to a file first"),
    "null": (2, "is a device, which cannot be read at any offset"),
    "several": (
        2,
        r"several models: .*; name one .*/unet\.safetensors, or, .*/it/\*\.safetensors'\..* unet\.safetensors, v",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_wrong_files_are_named(command, kind, run, tmp_path):
    if kind == "pipe" and not hasattr(os, "mkfifo"):
        pytest.skip("no pipes here")
    path = _wrong(kind, tmp_path)
    code, words = WRONG[kind]
    if kind == "several" and command in ("ls", "info"):  # these say what is in it
        assert json.loads(run(command, path, "--json").out)["models"][0]["name"] == "unet.safetensors"
        return
    for more in ((), ("--json",)):
        ran = run(command, path, *more)
        assert ran.code == code
        assert ran.out == ""
        assert re.search(words, ran.err)
        assert ran.err.startswith(f"pparse: {path}: ")
        assert ran.err.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_a_file_that_may_not_be_read_is_named_with_exit_code_2(command, run, tmp_path):
    ran = run(command, _wrong("unreadable", tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "cannot open: Permission denied" in ran.err


@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_a_good_file(command, run, model):
    path = model({"a": u8(3)})
    ran = run(command, path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out


@pytest.mark.parametrize("command", ["ls", "info", "tree", "check"])
def test_a_cut_file(command, run, model):
    path = model({"a": u8(3), "b": u8(30)}, cut=20)
    ran = run(command, path)
    assert (ran.code, ran.err) == (4, "")
    assert "truncated" in ran.out
    quiet = run(command, path, "-q")
    assert (quiet.code, quiet.err) == (4, "")


@rows("command", ["ls", "info", "tree", "check"])
@rows("size", [1, 7, 8, 9, 20])
def test_files_cut_in_the_header(command, size, run, model):
    path = model({"a": u8(3)})
    path.write_bytes(path.read_bytes()[:size])
    assert run(command, path, "-q").code == 4
    assert run(command, path, "--json").json["schema"] == 1


def test_unfinished_downloads_are_recognised(run, model):
    for name in ("m.safetensors.part", "m.safetensors.incomplete", "m.crdownload", "m"):
        ran = run("info", model({"a": u8(3)}, name=name), "-q")
        assert (ran.code, ran.out) == (0, "safetensors complete, unverified\n")


def test_a_model_inside_of_a_path(run, model):
    path = model({"a": u8(3), "b": u8(2)})
    ran = run("ls", f"{path}::header", "-q")
    assert (ran.code, ran.lines) == (0, ["a", "b"])
    ran = run("ls", f"{path}::nothing")
    assert (ran.code, ran.out) == (2, "")
    assert "contains no 'nothing'" in ran.err


# -- the command itself ------------------------------------------------------------------------------------------------


def test_help_lists_every_command_and_no_command_shows_it_with_exit_code_2(run):
    ran = run("--help")
    assert (ran.code, ran.err) == (0, "")
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)
    assert run("-h").out == run("help").out == ran.out
    none = run()
    assert (none.code, none.out, none.err) == (2, "", ran.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_the_name_of_a_command_is_the_help_of_that(command, run):
    for word in ("help", "--help", "-h"):
        ran = run(word, command)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == run(command, "--help").out
    ran = run("help", "sl")
    assert ran.code == 2
    assert "no command 'sl'" in ran.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command, run):
    ran = run(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"usage: pparse {command}" in ran.out
    assert "examples:" in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_parse(command, run, monkeypatch, tmp_path):
    """Every example must be accepted by the command's own options (the files are not there)."""
    monkeypatch.chdir(tmp_path)
    import importlib
    import shlex

    for line in importlib.import_module(COMMANDS[command][0]).EXAMPLES.splitlines()[1:]:
        words = shlex.split(line.split("|")[0].replace("…(64 digits)", "0" * 60))
        assert words[:2] == ["pparse", command]
        ran = run(*words[1:])
        assert "--help'" not in ran.err, line
        assert ran.code == (0 if command == "formats" else 2), line


def test_version_is_that_of_the_package(run):
    assert run("--version").out == run("-V").out == f"pparse {pparse.__version__}\n"


def test_a_file_alone_hints_at_ls(run, model):
    path = model({"a": u8(3)})
    ran = run(path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"pparse: name a command, for example: pparse ls {path}\n"
    assert "pparse ls x.tar::y" in run("x.tar::y").err


def test_an_unknown_command(run):
    ran = run("list", "file")
    assert (ran.code, ran.out) == (2, "")
    commands = (
        "ls, info, tree, get, check, scan, find, diff, stats, hash, extract, recover, convert, edit, index, graph, "
        "split, merge, formats"
    )
    assert ran.err == f"pparse: no command 'list'; did you mean 'ls'? commands: {commands}\n"
    assert "did you mean 'extract'?" in run("extarct", "file").err
    assert "did you mean" not in run("frobnicate", "file").err


def test_a_path_that_leads_nowhere_says_what_may_be_meant(run, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    ran = run("ls", tmp_path / "model.safetensor")
    assert (ran.code, f"did you mean '{tmp_path}/model.safetensors'?" in ran.err) == (2, True)
    ran = run("ls", tmp_path / "model.safetensors" / "a" / "b.zip")
    assert f"is a file: what is in it is named behind '::', {tmp_path}/model.safetensors::a/b.zip" in ran.err
    assert "did you mean" not in run("ls", tmp_path / "nowhere" / "at all").err


@rows(
    ("slice", "reason"),
    [
        ("[[0,1]]", "no lists"),
        ("[:,None]", "adds no axis"),
        ("[0", "not closed"),
        ("[a]", "numbers and ranges"),
    ],
)
def test_what_is_no_slice_is_told_for_what_it_is(run, slice, reason):
    ran = run("get", "docs/samples/tiny-gpt.safetensors", f"wpe.weight{slice}")
    assert (ran.code, reason in ran.err) == (2, True), ran.err


BAD_ARGUMENTS = {
    ("ls",): "required: FILE",
    ("tree", "f", "p", "more"): "more: not a file, and the second path",
    ("ls", "f", "--nothing"): "unrecognized arguments: --nothing",
    ("ls", "f", "--jso"): "unrecognized arguments: --jso; did you mean '--json'?; see 'pparse ls --help'",
    ("ls", "f", "--budget", "x"): "not a size: 'x' (write 64MiB, 64MB, 64M or plain bytes)",
    ("ls", "f", "--budget", "0"): "must be at least 1MiB",
    ("ls", "f", "--budget=-1"): "not a size: '-1'",
    ("ls", "f", "--limit", "height=3"): "no limit 'height'; limits: depth, entries,",
    ("ls", "f", "--limit", "depth"): "expected NAME=VALUE, not 'depth'",
    ("ls", "f", "--limit", "depth=0"): "the limit depth must be at least 1",
    ("ls", "f", "--limit", "depth=many"): "not a size: 'many'",
    ("ls", "f", "-O", "kernel"): "expected NAME=VALUE, not 'kernel'",
    ("ls", "f", "-O", "=stdlib"): "expected NAME=VALUE, not '=stdlib'",
    ("ls", "f", "-O", "colonel=stdlib"): "colonel: no format has this option (-O); there are: kernel, index, verify",
    ("ls", "f", "--sort", "colour"): "invalid choice: 'colour'",
    ("ls", "f", "--color", "blue"): "invalid choice: 'blue'",
    ("ls", "f", "--json", "--jsonl"): "not allowed with argument",
    ("get", "f", "x", "--raw", "--npy"): "not allowed with argument",
    ("get", "f", "x", "--partial", "some"): "invalid choice: 'some'",
    ("tree", "f", "-d", "deep"): "a number or 'all', not 'deep'",
    ("tree", "f", "-d=-1"): "a number or 'all'",
    ("tree", "f", "-n=-1"): "a number, 0 for all",
    ("formats", "json", "xml"): "unrecognized arguments: xml",
}


@rows("words", BAD_ARGUMENTS, ids=" ".join)
def test_bad_arguments_are_named_with_exit_code_2(words, run):
    ran = run(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert BAD_ARGUMENTS[words] in ran.err


def test_a_bad_value_of_an_option(run, model):
    for source in (model({"a": u8(3)}), model({}, name="model.json")):
        source.write_bytes(source.read_bytes() if source.suffix != ".json" else b"{}")
        ran = run("ls", source, "-O", "kernel=magic")
        assert (ran.code, ran.out) == (2, "")
        assert "kernel must be auto, numpy or stdlib" in ran.err


def test_options_may_stand_before_and_behind_the_file(run, model):
    path = model({"a": u8(3), "b": u8(2)})
    wanted = run("ls", "-q", "--color", "never", path, "b")
    assert wanted.lines == ["b"]
    for words in (("-q", path, "b"), (path, "-q", "b"), (path, "b", "-q"), ("--", path, "b"), (path, "--", "b")):
        more = () if "-q" in words else ("-q",)
        assert run("ls", *more, *words).out == wanted.out


def test_names_that_look_like_options(run, model):
    path = model({"-o": u8(3), "--json": u8(2, 5), "--": u8(1, 9)})
    assert run("get", path, "--json", "--", "-o").json["data"] == [0, 1, 2]
    assert run("get", "--json", "--", path, "--json").json["data"] == [5, 6]
    assert run("get", "--json", path, "--", "--").json["data"] == [9]
    assert run("ls", path, "-q", "--", "--*").lines == ["--", "--json"]


def test_a_bug_of_ours_says_so_and_a_missing_library_is_none(run, model, monkeypatch, tmp_path):
    from pparse.cli import ls

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "numpy", None)
        for words in (("a",), ("a[..., 0]",), ("a", "--json"), ("-p", "*", "-o", tmp_path / "a.npz")):
            ran = run("get", model({"a": u8(3)}), *words)
            assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
            assert re.fullmatch(r"pparse: this needs numpy \(.*pip install numpy\n", ran.err)
        assert run("get", model({"a": u8(3)}), "a", "--raw", "-o", tmp_path / "a.bin").code == 0

    def broken(options, out):
        out.line("half a line")
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ls, "run", broken)
    ran = run("ls", model({"a": u8(3)}))
    assert (ran.code, ran.out) == (70, "half a line\n")
    assert "Traceback" in ran.err
    assert "ZeroDivisionError: oh" in ran.err
    assert "this is a bug of pparse" in ran.err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141), (MemoryError, 2)])
def test_how_it_ends(error, code, run, model, monkeypatch):
    from pparse.cli import ls

    monkeypatch.setattr("pparse.cli.silence", lambda stream: None)

    def stop(options, out):
        raise error

    monkeypatch.setattr(ls, "run", stop)
    ran = run("ls", model({"a": u8(3)}))
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err


def test_a_file_that_changes_while_it_is_read(run, model, monkeypatch):
    from pparse.data.files import FileData

    path = model({"a": u8(3)})
    original = FileData._pread

    def pread(self, offset, length):
        os.utime(path, ns=(1, 1))
        chunk = original(self, offset, length)
        self.check_unchanged()
        return chunk

    monkeypatch.setattr(FileData, "_pread", pread)
    ran = run("ls", path)
    assert ran.code == 4
    assert "the file changed while it was open: it was written to" in ran.err


# -- colour ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(run, monkeypatch):
    """Run as if standard output were a terminal."""

    def call(*words, **environment):
        import sys

        monkeypatch.setenv("TERM", "xterm")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        return run(*words)

    return call


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "0"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colour_on_a_terminal(environment, coloured, terminal, model):
    path = model({"a": u8(3)})
    assert ("\x1b[" in terminal("ls", path, **environment).out) is coloured


def test_colour_when_told(run, terminal, model, monkeypatch):
    path = model({"a": u8(3), "b": u8(3)}, cut=4)
    plain = run("ls", path)
    assert "\x1b" not in plain.out
    monkeypatch.setenv("NO_COLOR", "1")
    always = run("ls", path, "--color", "always")
    assert "\x1b[31mtruncated\x1b[0m" in always.out
    assert re.sub(r"\x1b\[\d+m", "", always.out) == plain.out
    monkeypatch.delenv("NO_COLOR")
    assert terminal("ls", path, "--color", "never", COLUMNS="400").out == plain.out
    for command in ("info", "check", "tree"):
        assert "\x1b[31m" in run(command, path, "--color", "always").out
    assert run("ls", path, "--color", "always", "--json").json["status"] == "truncated"


# -- ls ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def layers(model):
    return model(
        {
            "h.10.w": ("F16", [4, 2], bytes(16)),
            "h.2.w": ("F16", [4, 2], bytes(16)),
            "h.1.w": ("F16", [2, 2], bytes(8)),
            "out": ("F32", [16], bytes(64)),
            "b": ("BF16", [], bytes(2)),
            "none": ("I64", [0, 3], b""),
        },
        metadata={"format": "pt"},
    )


def test_ls_has_a_row_for_every_tensor_and_sums_them_up(run, layers):
    ran = run("ls", layers)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.lines] == [
        ["NAME", "DTYPE", "SHAPE", "SIZE", "STATUS"],
        ["b", "bfloat16", "scalar", "2", "B", "complete,", "unverified"],
        ["h.1.w", "float16", "2×2", "8", "B", "complete,", "unverified"],
        ["h.2.w", "float16", "4×2", "16", "B", "complete,", "unverified"],
        ["h.10.w", "float16", "4×2", "16", "B", "complete,", "unverified"],
        ["none", "int64", "0×3", "0", "B", "complete,", "unverified"],
        ["out", "float32", "16", "64", "B", "complete,", "unverified"],
        ran.lines[-1].split(),
    ]
    assert ran.lines[-1] == (
        "6 tensors, 106 B, 37 parameters (float16 20, float32 16, bfloat16 1, int64 0): complete, unverified"
    )


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["b", "h.1.w", "h.2.w", "h.10.w", "none", "out"]),
        (("--sort", "name"), ["b", "h.1.w", "h.2.w", "h.10.w", "none", "out"]),
        (("--sort", "size"), ["out", "h.2.w", "h.10.w", "h.1.w", "b", "none"]),
        (("--sort", "offset"), ["h.10.w", "h.2.w", "h.1.w", "out", "b", "none"]),
        (("--sort", "none"), ["h.10.w", "h.2.w", "h.1.w", "out", "b", "none"]),
        (("h.*",), ["h.1.w", "h.2.w", "h.10.w"]),
        (("h.?.w",), ["h.1.w", "h.2.w"]),
        (("[bo]*",), ["b", "out"]),
        (("H.*",), []),
        (("--regex", r"\d\d"), ["h.10.w"]),
        (("--regex", "^(out|b)$"), ["b", "out"]),
    ],
)
def test_ls_chooses_and_sorts(words, names, run, layers):
    ran = run("ls", layers, "-q", *words)
    assert (ran.code, ran.lines) == (0 if names else 2, names)
    assert [row["name"] for row in run("ls", layers, "--jsonl", *words).jsonl] == names if names else True
    assert ("no name matches 'H.*'" in ran.err) is (not names)
    if words and words[0] != "--sort":
        assert f"{len(names)} of 6 tensors match" in run("ls", layers, *words).out


def test_ls_with_a_bad_pattern(run, layers):
    ran = run("ls", layers, "(", "--regex")
    assert (ran.code, ran.out) == (2, "")
    assert "not a regular expression: missing )" in ran.err
    assert run("ls", layers, "[", "-q").code == 2


def test_ls_pattern_of_an_exact_name(run, odd):
    for name in ("br[0]", "sl[0:2]", "[3]", "*", "?", "[a]"):
        assert name in run("ls", odd, "-q", name).lines
    assert run("ls", odd, "-q", "[3]").lines == ["[3]"]


def test_with_bytes_sizes_are_plain_numbers(run, model):
    path = model({"a": ("F32", [1000], bytes(4000))})
    assert "  3.9 KiB  " in run("ls", path).out
    assert "  4000  " in run("ls", path, "--bytes").out
    assert "1 tensor, 4000, 1,000 parameters" in run("ls", path, "--bytes").out


def test_with_group_numbered_names_share_a_row(run, layers, model):
    ran = run("ls", layers, "--group")
    rows = [line.split()[:3] for line in ran.lines]
    assert rows[1:-1] == [
        ["b", "1", "bfloat16"],
        ["h.1.w", "1", "float16"],
        ["h.{2..10}.w", "2", "float16"],
        ["none", "1", "int64"],
        ["out", "1", "float32"],
    ]
    assert ran.lines[-1] == run("ls", layers).lines[-1]
    two = model({f"a.{x}.b.{y}": u8(1) for x in range(3) for y in (5, 7)})
    assert run("ls", two, "--group").lines[1].split()[:2] == ["a.{0..2}.b.{5..7}", "6"]
    assert run("ls", two, "a.{0..2}.b.{5..7}", "-q").lines == run("ls", two, "-q").lines
    cut = model({f"a.{x}": u8(10) for x in range(4)}, cut=15)
    rows = run("ls", cut, "--group").lines[1:4]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("a.{0..1}", "unverified"),
        ("a.2", "truncated"),
        ("a.3", "missing"),
    ]


def test_ls_sorts_numbers_as_numbers(run, model):
    names = [f"layers.{number}.w" for number in (0, 1, 2, 9, 10, 11, 99, 100)]
    names += ["layers.a.w", "layers.w10", "layers.w9"]
    path = model({name: u8(1) for name in sorted(names)})
    assert run("ls", path, "-q").lines == [*names[:9], "layers.w9", "layers.w10"]
    digits = "9" * 40
    assert run("ls", model({digits: u8(1), "1": u8(1), "²": u8(1)}), "-q").lines == ["1", digits, "²"]


def test_ls_streams_long_lists_in_file_order(run, several, monkeypatch):
    monkeypatch.setattr("pparse.cli.order.SORT_UP_TO", 5_000)
    ran = run("ls", several, "-q")
    assert ran.lines == [f"layers.{(number * 7919) % 6_000}.weight" for number in range(6_000)]
    assert run("ls", several, "-q", "--sort", "name").lines == [f"layers.{number}.weight" for number in range(6_000)]
    assert run("ls", several, "--sort", "size").lines[1].startswith("layers.0.weight ")
    # Few of many are sorted: it is the rows that are held.
    assert run("ls", several, "layers.1?.weight", "--sort", "name", "-q").lines[0] == "layers.10.weight"
    assert len(run("ls", several, "--jsonl").jsonl) == 6_000
    assert run("ls", several).lines[-1].startswith("6,000 tensors, 5.9 KiB, 6,000 parameters (uint8 6,000): complete")


def test_columns_grow_but_not_without_end(run, model):
    path = model({"short": u8(1), "n" * 300: u8(1), "m" * 70: u8(1)})
    lines = run("ls", path).lines
    assert len(lines[0].split("DTYPE")[0]) == 72
    assert all("  uint8" in line for line in lines[1:4])


def test_odd_names_are_shown(run, odd):
    shown = run("ls", odd, "-q").out.split("\n")[:-1]
    assert sorted(shown) == sorted([*ODD_NAMES, *NAMES_TO_ESCAPE.values()])
    exact = [tensor["name"] for tensor in run("ls", odd, "--json").json["tensors"]]
    assert sorted(exact) == sorted([*ODD_NAMES, *NAMES_TO_ESCAPE])
    assert [row["name"] for row in run("ls", odd, "--jsonl").jsonl] == exact
    for command in ("ls", "tree", "check"):
        out = run(command, odd).out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", out)


def test_escapes_can_be_read_again():
    for name, shown in NAMES_TO_ESCAPE.items():
        assert safe(name) == shown
        assert unescaped(shown) == name
    assert unescaped(r"\U0001f600 \xe9 \u65e5") == "😀 é 日"
    for name in ("back\\slash", "\\", "\\x", "\\x0", "\\uzzzz", "\\U00110000", "plain"):
        assert unescaped(name) == name


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_of_the_terminal(encoding, run, odd, monkeypatch):
    """As with PYTHONIOENCODING=ascii: nothing crashes, and JSON is JSON."""
    import io
    import sys

    for words in (("ls",), ("ls", "-q"), ("info",), ("tree",), ("check",), ("get", "日本"), ("ls", "--json")):
        raw = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding, errors="strict"))
            assert run(words[0], odd, *words[1:]).code == 0
            sys.stdout.flush()
            shown = raw.getvalue().decode(encoding)
            sys.stdout.detach()
        if "--json" in words:
            assert {row["name"] for row in json.loads(shown)["tensors"]} == {*ODD_NAMES, *NAMES_TO_ESCAPE}
        elif words[0] != "info":
            assert r"\u65e5\u672c" in shown or words[0] == "check"


def test_ls_of_members(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"b": [1, 2], "a": {"x": 1}, "c": "text", "n": null, "b": 3}')
    assert run("ls", path, "-q").lines == ["b", "a", "c", "n", "b"]
    assert run("ls", path, "-q", "--sort", "name").lines == ["a", "b", "b", "c", "n"]
    assert run("ls", path, "-q", "[bc]").lines == ["b", "c", "b"]
    ran = run("ls", path)
    assert ran.lines[2].split()[:4] == ["a", "object", "8", "B"]
    assert "json object, 5 members, 60 B: complete, unverified" in ran.out
    path.write_text("[1, [2], 3]")
    assert run("ls", path, "-q").lines == ["[0]", "[1]", "[2]"]
    path.write_text('"text"')
    assert run("ls", path).out == "json string, 0 members, 6 B: complete, unverified\n"


def test_ls_of_cut_members(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"a": 1, "b": [1, 2')
    ran = run("ls", path)
    assert ran.code == 4
    assert "b     array    5 B  truncated" in ran.out
    assert "the document ends at byte 19 inside its object" in ran.out
    assert "resume the download at byte 19" in ran.out
    found = run("ls", path, "--json").json
    assert [row["status"] for row in found["members"]] == ["complete", "truncated"]
    assert found["status"] == "truncated"


# -- what is said of a cut file ----------------------------------------------------------------------------------------


def test_a_cut_file_says_where_to_resume(run, model):
    path = model({"a": u8(100), "b": u8(500), "c": u8(300), "d": u8(0)})
    whole = path.stat().st_size
    os.truncate(path, whole - 450)
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code == 4
        assert f"truncated: {whole - 450:,} of {whole:,} bytes are there, 450 bytes are missing" in ran.out
        assert "first tensor hit: b" in ran.out
        assert "whole: 2 of 4 tensors, 1 truncated, 1 missing" in ran.out
        assert f"resume the download at byte {whole - 450} of {path}" in ran.out
        extent = run(command, path, "--json").json["extent"]
        assert extent == {
            "actual": whole - 450,
            "expected": whole,
            "expected_at_least": False,
            "missing_bytes": 450,
            "first_hit": "b",
            "resume_at": whole - 450,
            "resume_file": str(path),
            "resume": [{"file": str(path), "at": whole - 450}],
            "tensors": 4,
            "whole": 2,
            "truncated": 1,
            "missing": 1,
            "unlisted": 0,
            "damaged": 0,
            "unsupported": 0,
            "unwritten": 0,
            "verified": 0,
            "tensor_bytes": 900,
            "parameters": {"uint8": 900},
        }
    assert "first tensor hit: b (350 of its 500 bytes are there)" in run("ls", path).out
    statuses = {row["name"]: row["status"] for row in run("ls", path, "--json").json["tensors"]}
    assert statuses == {"a": "complete", "b": "truncated", "c": "missing", "d": "complete"}


def test_a_cut_header_says_at_least(run, model):
    path = model({name: u8(100) for name in "abc"})
    header = int.from_bytes(path.read_bytes()[:8], "little")
    os.truncate(path, 8 + header // 2)
    for command in ("ls", "info", "check"):
        ran = run(command, path)
        assert ran.code == 4
        assert re.search(r"truncated: \d+ of at least \d+ bytes are there, at least \d+ bytes are missing", ran.out)
        assert f"resume the download at byte {8 + header // 2}" in ran.out
        assert run(command, path, "--json").json["extent"]["expected_at_least"] is True


def test_the_first_tensor_hit_is_first_in_the_file(run, tmp_path):
    places = {"z": 0, "a": 20, "b": 10}
    header = {name: {"dtype": "U8", "shape": [10], "data_offsets": [at, at + 10]} for name, at in places.items()}
    text = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(15))
    assert "first tensor hit: b (5 of its 10 bytes are there)" in run("ls", path).out


def test_holes_are_told(run, model):
    path = model({"a": u8(100), "b": ("U8", [1 << 20], bytes(1 << 20))})
    size = path.stat().st_size
    head = path.read_bytes()[: size - (1 << 20)]
    path.write_bytes(head)
    os.truncate(path, size)
    if not path.stat().st_blocks * 512 < size:
        pytest.skip("this file system has no holes")
    ran = run("ls", path)
    assert "complete, unverified, never written" in ran.out
    # The zeros before the hole count: a file system keeps whole blocks, of which the last may be written in part.
    end = max(len(head.rstrip(bytes(1))), size - (1 << 20))
    assert f"unwritten b @{end:#x}+{size - end}: {size - end} of 1048576 bytes were never written" in ran.out
    assert "the file has its full size, but parts of it, with 1 tensor, were never written" in ran.out
    # The last byte before the hole that is not a zero, not the hole's own start at a whole block.
    assert f"resume the download at byte {len(head.rstrip(bytes(1)))}" in ran.out
    check = run("check", path)
    assert check.code == 4
    assert f"unwritten @{end:#x}" in check.out
    assert run("check", path, "--json").json["ok"] is False
    for words in (("get", path, "-p", "*", "-o"), ("convert", path, "--skip-damaged", "-o"), ("recover", path, "-o")):
        out = path.with_name(words[0])
        name = out if words[0] == "recover" else out.with_suffix(".safetensors")
        assert run(*words, name).code == 4
        written = name / path.name if words[0] == "recover" else name
        with pparse.view(written) as saved:
            assert list(saved) == ["a"]


# -- sets of shards ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(model, tmp_path):
    folder = tmp_path / "set"
    names = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
    for number, name in enumerate(names):
        model({f"h.{number}.{part}": u8(50) for part in "ab"}, name=f"set/{name}")
    weight_map = {f"h.{number}.{part}": names[number] for number in range(3) for part in "ab"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 300}, "weight_map": weight_map}))
    return folder


def test_a_set_by_its_folder_and_by_its_index(run, shards):
    names = [f"h.{number}.{part}" for number in range(3) for part in "ab"]
    index = shards / "model.safetensors.index.json"
    for source, kind in ((shards, "safetensors-folder"), (index, "safetensors-index")):
        assert run("ls", source, "-q").lines == names
        found = run("ls", source, "--json").json
        assert (found["format"], found["status"]) == (kind, "complete")
        assert {span["file"].split("::")[-1] for row in found["tensors"] for span in row["spans"]} == {
            f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)
        }
        assert "shards      3" in run("info", source).out
        assert run("check", source).code == 0
        assert run("get", source, "h.2.b[1:3]", "--json").json["data"] == [1, 2]
    index.unlink()
    assert run("ls", shards, "-q").lines == names
    assert run("info", shards, "-q").out == "safetensors-folder complete, unverified\n"


def test_a_set_that_lacks_a_shard(run, shards):
    (shards / "model-00002-of-00003.safetensors").unlink()
    for command in ("ls", "info", "check"):
        ran = run(command, shards)
        assert ran.code == 4
        assert "1 file missing" in ran.out
        assert "first tensor hit: h.1.a" in ran.out
        assert f"fetch {shards / 'model-00002-of-00003.safetensors'}" in ran.out
    statuses = {row["name"]: row["status"] for row in run("ls", shards, "--json").json["tensors"]}
    assert [name for name, status in statuses.items() if status != "complete"] == ["h.1.a", "h.1.b"]
    assert run("get", shards, "h.0.a", "--raw").code == 0
    words = r"^h\.1\.a  \?      \?       0 B  missing: model-00002-of-00003.safetensors is not there$"
    assert re.search(words, run("ls", shards).out, re.MULTILINE)
    there = sum(path.stat().st_size for path in shards.glob("*.safetensors"))
    assert f"truncated: {there} bytes are there; 1 file missing" in run("ls", shards).out


def test_a_tensor_whose_shard_is_missing(run, shards):
    (shards / "model-00002-of-00003.safetensors").unlink()
    for more in ((), ("--json",), ("--raw",), ("[0]",)):
        ran = run("get", shards, f"h.1.a{more[0]}") if more == ("[0]",) else run("get", shards, "h.1.a", *more)
        assert ran.code == 4
        assert "model-00002-of-00003.safetensors is not there" in ran.err


def test_a_set_with_a_cut_shard(run, shards):
    path = shards / "model-00003-of-00003.safetensors"
    os.truncate(path, path.stat().st_size - 60)
    for command in ("ls", "info", "check"):
        ran = run(command, shards)
        assert ran.code == 4
        assert "60 bytes are missing" in ran.out
        assert "first tensor hit: h.2.a" in ran.out
        assert re.search(rf"resume the download at byte {path.stat().st_size} of \S*{path.name}", ran.out)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html>403</html>", "an HTML page"),
        (f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n", "a Git LFS pointer"),
    ],
)
def test_a_shard_that_is_something_else(text, words, run, shards):
    (shards / "model-00001-of-00003.safetensors").write_text(text)
    ran = run("ls", shards)
    assert ran.code == 4
    assert "h.1.a" in ran.out
    assert "h.0.a" in ran.out
    assert words in ran.out
    assert words in run("get", shards, "h.0.a").err
    assert ran.out.count("\nerror") == 1  # not one for each of its tensors


# -- info --------------------------------------------------------------------------------------------------------------


def test_info_shows_format_size_tensors_parameters_and_metadata(run, layers):
    ran = run("info", layers)
    assert (ran.code, ran.err) == (0, "")
    fields = dict(line.split(None, 1) for line in ran.lines)
    assert fields["file"] == str(layers)
    assert fields["format"] == "safetensors: safetensors model file"
    assert fields["size"].startswith(f"{layers.stat().st_size:,} bytes")
    assert fields["tensors"] == "6 in 106 B"
    assert fields["parameters"] == "37 (float16 20, float32 16, bfloat16 1, int64 0)"
    assert fields["metadata"] == "format = pt"
    assert fields["status"] == "complete, unverified"
    assert run("info", layers, "-q").out == "safetensors complete, unverified\n"


def test_info_shows_metadata_in_measure(run, model):
    path = model({}, metadata={f"key{number}": "x" * 1000 for number in range(30)} | {"esc\x1b": "\x1b[2J"})
    out = run("info", path).out
    assert "… 11 more; 'pparse get FILE metadata' shows all" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 260
    assert run("info", path, "--json").json["metadata"]["esc\x1b"] == "\x1b[2J"


def test_info_of_a_document(run, tmp_path):
    path = tmp_path / "it.json"
    path.write_text('{"a": 1, "b": 2}')
    assert "root        object of 2 members" in run("info", path).out
    path.write_text('{"a": 1, "b": 2')
    ran = run("info", path)
    assert ran.code == 4
    assert "the document ends at byte 15 inside its object; json does not tell how much is missing" in ran.out
    assert "resume the download at byte 15" in ran.out


# -- tree --------------------------------------------------------------------------------------------------------------


def test_tree_shows_nodes_with_their_bytes_as_deep_as_asked(run, layers):
    ran = run("tree", layers)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^\(root\): safetensors \{…\}  \[0x0\.\.0x[0-9a-f]+\)$", ran.out, re.MULTILINE)
    assert re.search(r'^    format: string "pt"', ran.out, re.MULTILINE)
    assert run("tree", layers, "-d", "0").out.count("\n") == 1
    assert run("tree", layers, "metadata", "-d", "1", "-q").lines == ["metadata", "metadata.format"]
    deep = run("tree", layers, "-d", "all", "-q").lines
    assert 'tensors["h.10.w"].data_offsets[1]' in deep
    assert 'tensors["h.10.w"].data' in deep
    for path in deep[1:]:
        assert run("get", layers, path).code == 0
    ran = run("tree", layers, "nothing")
    assert (ran.code, ran.out) == (2, "")


def test_tree_says_what_it_leaves_out(run, several, tmp_path):
    assert "… 5,950 more (-n 0 shows all)" in run("tree", several).out
    assert run("tree", several, "--json").json["omitted"] == 5_950
    assert "5,950 children are not shown" in run("tree", several, "-q").err
    assert "5,950 children are not shown" in run("tree", several, "--jsonl").err
    path = tmp_path / "list.json"
    path.write_text("[1, 2, 3]")
    assert run("tree", path, "-n", "0", "--json").json["omitted"] == 0
    assert len(run("tree", path, "-n", "1", "-d", "all", "-q").lines) == 4
    assert len(run("tree", path, "-n", "2", "-q").lines) == 3


def test_tree_shows_trouble_in_its_place(run, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"a": [1, nul], "b": {"c": [tru')
    for words in ((), ("-d", "all")):
        ran = run("tree", path, "-d", "9", *words)
        assert ran.code == 4
        assert re.search(r"^    \[1\]: .*damaged", ran.out, re.MULTILINE)
        assert re.search(r"^    c: .*truncated" if not words else r"truncated b\.c\[0\] @0x1f", ran.out, re.MULTILINE)
    ran = run("tree", path, "--limit", "depth=1")
    assert ran.code == 4
    assert "! @0x6: the depth of the tree is above the limit depth=1; lift it with --limit depth=4" in ran.out
    ran = run("tree", path, "--limit", "depth=1", "--jsonl")
    assert ran.code == 4
    assert "lift it with --limit depth=4" in ran.err
    found = run("tree", path, "--limit", "depth=1", "--json").json
    assert any("lift it with --limit depth=4" in finding["reason"] for finding in found["findings"])


# -- JSON --------------------------------------------------------------------------------------------------------------


def _check_findings(found):
    for finding in found:
        assert set(finding) == FINDING_KEYS
        assert finding["severity"] in ("note", "warning", "error")


@pytest.mark.parametrize("cut", [0, 40, 120])
def test_json_of_tensors(cut, run, model):
    path = model({"a": u8(20), "b": ("F4", [20], bytes(10)), "c": ("NEW8", [2], bytes(2)), "d": u8(40)})
    os.truncate(path, path.stat().st_size - cut)
    found = run("ls", path, "--json").json
    assert set(found) == {"schema", "file", "format", "tensors", "members", "status", "extent", "findings"}
    assert (found["schema"], found["file"], found["format"], found["members"]) == (1, str(path), "safetensors", [])
    assert set(found["extent"]) == EXTENT_KEYS
    _check_findings(found["findings"])
    for row in found["tensors"]:
        assert set(row) in (TENSOR_KEYS, TENSOR_KEYS | {"finding"})
        assert all(set(span) == {"file", "offset", "length"} for span in row["spans"])
        assert row["verified"] is None
        assert row["status"] in ("complete", "truncated", "missing", "damaged", "unsupported")
    assert run("ls", path, "--jsonl").jsonl == found["tensors"]

    info = run("info", path, "--json").json
    assert set(info) == {
        "schema",
        "file",
        "format",
        "description",
        "status",
        "size",
        "extent",
        "graph",
        "interface",
        "metadata",
        "globals",
        "findings",
    }
    assert (info["extent"], info["status"]) == (found["extent"], found["status"])

    check = run("check", path, "--json").json
    assert set(check) == {
        "schema",
        "file",
        "format",
        "strict",
        "rules",
        "status",
        "ok",
        "dangerous",
        "extent",
        "findings",
    }
    assert check["extent"] == found["extent"]
    _check_findings(check["findings"])
    assert run("check", path, "--jsonl").jsonl == check["findings"]
    assert check["ok"] is (run("check", path, "-q").code == 0)


def test_json_of_nodes(run, layers, tmp_path):
    broken = tmp_path / "bad.json"
    broken.write_text('{"a": [1, nul], "b": "\\u00e9", "c": {"d": [tru')
    for path in (layers, broken):
        for words in ((), ("-d", "all"), ("-d", "0"), ("-d", "9", "-n", "1")):
            ran = run("tree", path, "--json", *words)
            found = ran.json
            assert set(found) == {"schema", "file", "format", "nodes", "omitted", "findings"}
            _check_findings(found["findings"])
            for node in found["nodes"]:
                assert NODE_KEYS <= set(node) <= NODE_KEYS | {"value", "reason"}
            if not found["omitted"]:
                assert run("tree", path, "--jsonl", *words).jsonl == found["nodes"]
    found = run("ls", broken, "--json").json
    assert set(found) == {"schema", "file", "format", "tensors", "members", "status", "findings"}
    assert [set(row) - {"reason"} for row in found["members"]] == [{"name", "size", "status", "kind"}] * 3
    assert all(("reason" in row) is (row["status"] != "complete") for row in found["members"])
    assert run("ls", broken, "--jsonl").jsonl == found["members"]
    info = run("info", broken, "--json").json
    assert set(info) == {
        "schema",
        "file",
        "format",
        "description",
        "status",
        "size",
        "kind",
        "members",
        "metadata",
        "details",
        "globals",
        "missing_bytes",
        "resume_at",
        "resume",
        "findings",
    }


# -- common options ----------------------------------------------------------------------------------------------------


def test_trace_io_names_every_range_that_was_read_and_changes_no_output(run, model):
    path = model({"a": u8(100), "big": ("U8", [1 << 20], bytes(1 << 20))})
    plain, traced = run("ls", path), run("ls", path, "--trace-io")
    assert traced.out == plain.out
    ranges = re.findall(r"^read (\S+) \[0x([0-9a-f]+), 0x([0-9a-f]+)\) (\d+) bytes$", traced.err, re.MULTILINE)
    total = re.search(r"^read (\d+) bytes in (\d+) reads$", traced.err, re.MULTILINE)
    assert ranges
    assert all(name == str(path) and int(end, 16) - int(start, 16) == int(size) for name, start, end, size in ranges)
    assert int(total[1]) == sum(int(size) for _, _, _, size in ranges) < 16_384
    traced = run("get", path, "big[5:9]", "--json", "--trace-io")
    assert " 4 bytes\n" in traced.err
    assert json.loads(traced.out)["data"] == [0, 0, 0, 0]
    ran = run("ls", path.parent / "missing", "--trace-io")
    assert ran.code == 2


def test_budget_and_limits(run, many, several, layers, tmp_path):
    assert run("ls", many, "--budget", "1M", "-q").out == run("ls", many, "-q").out
    assert run("check", many, "--budget", "1MiB", "-q").code == 0
    ran = run("ls", several, "--limit", "entries=10")
    assert (ran.code, ran.out) == (2, "")
    assert "above the limit entries=10; lift it with --limit entries=" in ran.err
    lifted = re.search(r"--limit (entries=\d+)", ran.err)[1]
    while ran.code == 2:  # it is counted on from where the limit was met
        ran = run("ls", several, "--limit", lifted, "-q")
        lifted = re.search(r"--limit (entries=\d+)", ran.err)[1] if ran.code == 2 else ""
    assert len(ran.lines) == 6_000
    path = tmp_path / "deep.json"
    path.write_text("[" * 20 + "]" * 20)
    ran = run("get", path, "[0]" * 15, "--limit", "depth=10")
    assert ran.code == 2
    assert "--limit depth=" in ran.err


def test_both_json_kernels_list_the_same(run, tmp_path):
    path = tmp_path / "it.json"
    path.write_text(json.dumps({f"k{number}": {"v": [number, 'x\\"y']} for number in range(500)}))
    assert run("ls", path, "-O", "kernel=stdlib").out == run("ls", path, "-O", "kernel=numpy").out


def test_format_by_name(run, model, tmp_path):
    path = model({"a": u8(3)})
    ran = run("ls", path, "-f", "json")
    assert ran.code == 4
    assert "json invalid" in ran.out
    ran = run("ls", path, "-f", "jsom")
    assert (ran.code, ran.out) == (3, "")
    assert "there is no format 'jsom'; did you mean 'json'?" in ran.err
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model.safetensors"}}')
    assert run("ls", index, "-f", "json", "-q").lines == ["weight_map"]
    assert run("ls", index, "-q").lines == ["a"]
    # What it is by its content is told, and no download to resume; a format is none that others refine.
    legacy = tmp_path / "legacy.pt"
    legacy.write_bytes(legacy_checkpoint({"w": ("float32", [4])}, {"w": bytes(16)}).content)
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(b"[1]"))
    page = tmp_path / "page.pt"
    page.write_bytes(b"<html>no</html>" * 9)
    for file, is_it in ((path, "safetensors"), (legacy, "pytorch-legacy"), (packed, "gzip"), (page, "an HTML page")):
        for name in ("pytorch", "npz", "zip", "tar", "xz", "npy", "gguf", "tf-checkpoint", "msgpack", "deflate"):
            for command in ("ls", "info", "check"):
                ran = run(command, file, "-f", name)
                assert (ran.code, f"it is no {name}: by its content it is {is_it}" in ran.out) == (4, True)
                assert "resume the download" not in ran.out
    for file, name in ((index, "json"), (legacy, "pickle"), (packed, "gzip"), (path, "safetensors")):
        assert "by its content" not in run("check", file, "-f", name).out


def test_a_folder_format_on_a_file_and_the_reverse(run, model):
    path = model({"a": u8(3)})
    ran = run("ls", path, "-f", "safetensors-folder")
    assert ran.code in (2, 3)
    assert "folder" in ran.err
    for name in ("json", "safetensors"):
        ran = run("ls", path.parent, "-f", name)
        assert ran.code in (2, 3)
        assert "folder" in ran.err


# -- progress ----------------------------------------------------------------------------------------------------------


def test_progress_is_for_terminals_and_for_the_patient(capsys, monkeypatch, model):
    import sys

    from pparse.cli import output

    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    silent = output.Progress()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = output.Progress()
    for second, done in ((0.1, 1 << 20), (0.4, 2 << 20), (0.6, 3 << 20), (0.65, 4 << 20), (0.8, 5 << 20)):
        now[0] = second
        silent(done, 8 << 20, "reading")
        shown(done, 8 << 20, "reading")
    lines = ("\r\x1b[K 37% reading (3.0 MiB of 8.0 MiB)", "\r\x1b[K 62% reading (5.0 MiB of 8.0 MiB)")
    assert capsys.readouterr() == ("", "".join(lines))
    shown(8 << 20, 8 << 20, "reading")
    shown(8 << 20, 8 << 20, "reading")
    now[0] = 2.0
    shown(7, None, "looking")
    shown.clear()
    assert capsys.readouterr().err == "\r\x1b[K\r\x1b[Klooking\r\x1b[K"
    # How long the content of a stream is shows only at its end: decoding up to there is told.
    path = model({"w": ("U8", (1 << 20,), random.Random(1).randbytes(1 << 20))})
    packed = gzip.compress(path.read_bytes())
    told = []
    with pparse.open(packed[: len(packed) // 2], progress=lambda *what: told.append(what)) as document:
        before = len(told)
        document.parsed.find_end()
    assert len({done for done, _, _ in told[before:]}) > 2


# -- formats -----------------------------------------------------------------------------------------------------------


def test_formats_lists_every_format_with_its_fields(run):
    ran = run("formats")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.lines[1:-1]][:4] == [
        "safetensors",
        "safetensors-index",
        "safetensors-folder",
        "json",
    ]
    assert run("formats", "-q").lines[:4] == ["safetensors", "safetensors-index", "safetensors-folder", "json"]
    found = run("formats", "--json").json
    assert set(found) == {"schema", "formats", "named", "failed"}
    for row in found["formats"]:
        assert set(row) == {
            "name",
            "description",
            "extensions",
            "media_type",
            "from",
            "refines",
            "root_at",
            "viewer",
            "options",
            "limitations",
            "references",
        }


def test_formats_of_one_name_shows_its_options_and_references(run):
    ran = run("formats", "json")
    assert ran.code == 0
    assert "-O kernel=…: how to scan" in ran.out
    assert "RFC 8259" in ran.out
    assert run("formats", "json", "--json").json["formats"][0]["name"] == "json"
    ran = run("formats", "safetensor")
    assert (ran.code, ran.out) == (3, "")
    assert "did you mean 'safetensors'?" in ran.err


def test_writing_where_nothing_can_be_written(model, capfd):
    import sys

    path = model({"a": u8(3)})
    if not os.path.exists("/dev/full") or not stat.S_ISCHR(os.stat("/dev/full").st_mode):
        pytest.skip("no /dev/full here")
    from pparse.cli import main

    with pytest.MonkeyPatch.context() as patch, open("/dev/full", "w") as full:
        patch.setattr(sys, "stdout", full)
        assert main(["ls", str(path)]) == 2
    assert "cannot write: No space left on device" in capfd.readouterr().err


def test_words_without_an_option_are_parsed_as_argparse_does():
    taken = set()
    for name, (path, _) in COMMANDS.items():
        module = importlib.import_module(path)
        for words in ([], ["a"], ["-"], ["a", "b*"], ["a", "-", ""], ["a", "b", "c", "d"]):
            declared = Arguments()
            declare(declared, module, name)
            plain = declared.plain(words)
            if plain is not None:
                taken.add(name)
                assert vars(plain) == vars(parsed(module, name, words)), (name, words)
        assert declared.plain(["a", "--json"]) is None
    assert taken >= {"ls", "info", "tree", "get", "check", "diff", "stats", "hash", "graph", "formats"}
