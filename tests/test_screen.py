"""What a terminal gets: rows and lines that fit its width, and the same bytes as ever in a pipe."""

from __future__ import annotations

import io
import threading
import time
from types import SimpleNamespace

import pytest

from pparse.cli.output import Output, Table
from pparse.display.text import columns_of, fitted, folded, told_apart
from tests.rows import rows

USUAL = ("complete, unverified", "complete, verified")


class Screen(io.StringIO):
    """A terminal; COLUMNS and LINES say its size."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch):
    """Make standard output a terminal of so many columns: ``screen(80)``; returns it."""

    def make(columns: int, lines: int = 24) -> Screen:
        made = Screen()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("sys.stdout", made)
        return made

    return make


# -- columns of text ---------------------------------------------------------------------------------------------------


@rows(
    "text, columns",
    [
        ("weight", 6),
        ("模型", 4),
        ("\uff57", 2),
        ("😀", 2),
        ("e\u0301", 1),
        ("\u1100\u1161", 2),  # a Hangul syllable in two letters
        ("\x1b[31mred\x1b[0m", 3),
        ("é", 1),
    ],
)
def test_columns_are_those_of_wcwidth(text, columns):
    assert columns_of(text) == columns


@rows(
    "text, columns, head, shown",
    [
        ("layers.10.weight", 16, 0.5, "layers.10.weight"),
        ("layers.10.weight", 11, 0.5, "layer…eight"),
        ("layers.10.weight", 11, 1, "layers.10.…"),
        ("模型權重模型", 7, 1, "模型權…"),
        ("模型權重模型", 6, 0.5, "模…型"),
        ("e\u0301" * 5, 3, 0.5, "e\u0301…e\u0301"),  # a mark is not parted from its letter
        ("\x1b[31mtruncated\x1b[0m: it ends", 5, 1, "\x1b[31mtrun…\x1b[0m"),  # nor is a colour left on
        ("weight", 1, 0.5, "…"),
    ],
)
def test_what_is_left_out_is_marked(text, columns, head, shown):
    assert fitted(text, columns, head=head) == shown


@rows(
    "text, lines",
    [
        ("error   it ends here", ["error   it ends here"]),
        ("error   it ends here, at the end", ["error   it ends here,", "        at the end"]),
        ("  a.bin  resume at byte 17 of it", ["  a.bin  resume at", "        byte 17 of it"]),
        (
            "go on now: 'pparse ls a' lists",
            ["go on now:", "        'pparse ls a'", "        lists"],
        ),  # a command stays whole
        ("open " + "x" * 30 + " fails", ["open " + "x" * 30, "        fails"]),  # as does a path
        ("\x1b[31m模型模型\x1b[0m 模型模型 模型型", ["\x1b[31m模型模型\x1b[0m 模型模型", "        模型型"]),
    ],
)
def test_a_long_line_goes_on_behind_its_first_word(text, lines):
    assert folded(text, 22, 8).split("\n") == lines


LAYERS = [f"decoder.layers.{n}.attention.{p}_proj.lora_{k}.weight" for n in range(12) for p in "qkv" for k in "AB"]
FOLDERS = [
    f"models/{one}/diffusion_model{end}" for one in ("unet", "unet_2", "vae") for end in ("-q4.gguf", "-q5.gguf", ".pt")
]


@rows("columns", [24, 30, 40])
def test_names_that_are_cut_are_told_apart(columns):
    for names in (LAYERS, FOLDERS, ["a" * 50 + str(n) + "b" * 50 for n in range(3)], ["模" * 40 + n for n in "型權重"]):
        shown = told_apart((name, columns) for name in names)
        assert list(shown) == [(name, columns) for name in names]
        assert len(set(shown.values())) == len(names)
        assert max(map(columns_of, shown.values())) <= columns
    assert told_apart([("layers.10.weight", 11), ("a", 11)]) == {
        ("layers.10.weight", 11): "layer…eight",
        ("a", 11): "a",
    }


# -- tables ------------------------------------------------------------------------------------------------------------


def table(out: io.StringIO, cells: list[tuple[str, ...]], **more) -> tuple[list[str], str]:
    made = Table(Output(), ("NAME", "SIZE", "STATUS"), "<><", usual=USUAL, **more)
    for row in cells:
        made.row(*row)
    made.close()
    return out.getvalue().splitlines(), made.usual


LONG = "encoder." * 20 + "weight"


@rows("columns", [40, 80, 140])
def test_rows_fit_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for cells in (
        [(LONG, "1 B", "truncated: " + "it ends here " * 20), ("a", "12 KiB", "complete, unverified")],
        [("模型" * 50, "1 B", "missing"), ("😀", "1 B", "complete, unverified")],
        [("a", "1 B", USUAL[0])] * 150 + [(LONG, "1 B", USUAL[0])] * 10 + [(LONG, "1 B", "damaged: " + LONG)],
        [(LONG, "1 B", USUAL[0])] * 150 + [("a", "1 B", USUAL[1])],
    ):
        made = Screen()
        monkeypatch.setattr("sys.stdout", made)
        lines, _ = table(made, cells)
        assert len(lines) == len(cells) + 1
        assert max(map(columns_of, lines)) <= columns
        monkeypatch.setattr("sys.stdout", plain := io.StringIO())
        assert table(plain, cells)[0][1].startswith(cells[0][0])  # a pipe shortens nothing


def test_a_status_that_all_rows_have_is_told_once(screen):
    lines, usual = table(screen(80), [("a", "1 B", USUAL[0])] * 2)
    assert (lines, usual) == (["NAME  SIZE", "a      1 B", "a      1 B"], USUAL[0])


def test_a_row_with_another_status_shows_it_though_the_column_is_gone(screen):
    cells = [("a", "1 B", USUAL[0])] * 120 + [("b", "1 B", "damaged: a checksum differs")]
    lines, usual = table(screen(80), cells)
    assert usual == USUAL[0]
    assert lines[-2:] == ["a      1 B", "b      1 B  damaged: a checksum differs"]


@rows("at, status, shown", [(50, USUAL[1], USUAL[1]), (110, "truncated: " + LONG, "truncated: …")])
def test_a_row_with_a_status_of_its_own_is_aligned_with_those_without(screen, at, status, shown):
    cells = [("w" * 36, "12 KiB", USUAL[0])] * 120
    lines, _ = table(screen(58), [*cells[:at], ("w" * 36, "12 KiB", status), *cells[at:]])
    assert len({line.index("12 KiB") for line in lines[1:]}) == 1
    assert lines[at + 1].endswith("12 KiB  " + shown)


@rows("status, full", [("damaged", False), (USUAL[0], True)])
def test_a_column_with_more_to_tell_stays(monkeypatch, status, full):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout", made := Screen())
    lines, usual = table(made, [("a", "1 B", USUAL[0]), (LONG, "1 B", status)], full=full)
    assert usual == ""
    assert lines[1].endswith(USUAL[0])
    assert (LONG in lines[2]) is full


def test_rows_that_match_say_their_status_if_the_model_has_another(screen, run, model):
    path = model({"a": ("U8", [4], b"abcd"), "b": ("U8", [4], b"efgh")}, cut=2)
    made = screen(80)
    assert run("ls", path, "a").code == 4
    assert "listed without a status: complete, unverified" in made.getvalue().splitlines()


# -- info --------------------------------------------------------------------------------------------------------------


def test_info_fits_the_screen_and_counts_what_it_leaves_out(screen, run, model):
    metadata = {f"block{number}.training": "False" for number in range(30)}
    metadata |= {f"block.key{number}": "x" * 100 for number in range(30)}
    path = model({"a": ("U8", [4], b"abcd")}, metadata=metadata)
    made = screen(80)
    assert run("info", path).code == 0
    lines = made.getvalue().splitlines()
    assert len(lines) < 24
    assert max(map(columns_of, lines)) <= 80
    assert sum("metadata" in line for line in lines) == 16
    assert any("training = False (and in 29 other places)" in line for line in lines)
    assert lines[-2] == "metadata    … 16 more lines; -l shows all"
    made = screen(80)
    assert run("info", "-l", path).code == 0
    assert sum(" = " in line for line in made.getvalue().splitlines()) == 60


# -- tree --------------------------------------------------------------------------------------------------------------


def test_lines_of_a_tree_fit_the_terminal(screen, run, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": "' + "模型" * 90 + '", "' + "k" * 200 + '": {"b": "' + "x" * 200 + '"}}')
    made = screen(60)
    assert run("tree", path).code == 0
    lines = made.getvalue().splitlines()
    assert len(lines) == 4
    assert max(map(columns_of, lines)) <= 60
    assert all(line.endswith(")") for line in lines)  # where it is stays
    made = screen(60)
    assert run("tree", "-l", path).code == 0
    assert f"{'k' * 200}: object" in made.getvalue()


def test_what_get_wrote_is_told_in_a_terminal(run, monkeypatch, model, tmp_path):
    path = model({"a": ("U8", [4], b"abcd")})
    out = tmp_path / "a.npy"
    assert run("get", path, "a", "-o", out).err == ""
    monkeypatch.setattr("sys.stderr", stderr := Screen())
    monkeypatch.setenv("COLUMNS", "400")  # else the line is wrapped
    assert run("get", path, "a", "-o", out).code == 0
    assert stderr.getvalue() == f"pparse: wrote {out}, {out.stat().st_size} B\n"


# -- progress ----------------------------------------------------------------------------------------------------------


def test_a_pass_that_reports_nothing_is_shown_all_the_same(monkeypatch):
    from pparse.cli import output

    monkeypatch.setattr(output, "_AFTER", 0.0)
    monkeypatch.setattr(output, "_SILENT", 0.01)
    monkeypatch.setattr("sys.stderr", stderr := Screen())
    monkeypatch.setenv("COLUMNS", "40")
    reading = SimpleNamespace(doing="reading " + "x" * 99, source=SimpleNamespace(place=3 << 20, size=8 << 20))
    threads = threading.active_count()
    progress = output.Progress()
    progress.watch(reading)
    progress.start()
    deadline = time.monotonic() + 5
    while "37% reading" not in stderr.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)
    progress.stop()
    drawn = stderr.getvalue()
    assert drawn.startswith("\r\x1b[K 37% reading x")
    assert max(map(columns_of, drawn.split("\r\x1b[K"))) == 39  # a full line would wrap
    assert drawn.endswith("\r\x1b[K")  # wiped
    assert stderr.getvalue() == drawn
    monkeypatch.setattr("sys.stderr", pipe := io.StringIO())
    output.Progress().start()
    assert pipe.getvalue() == ""
    assert threading.active_count() == threads


def test_what_was_written_is_told_in_one_line(screen, run, samples, tmp_path, monkeypatch):
    made = screen(400)
    monkeypatch.setattr("sys.stderr", stderr := Screen())
    for command in ("extract", "recover"):
        assert run(command, f"{samples}/backup.tar.gz", "-o", tmp_path / command).code == 0
    assert run("graph", f"{samples}/tiny.onnx", "-o", tmp_path / "part.onnx").code == 0
    lines = [line for line in (made.getvalue() + stderr.getvalue()).splitlines() if str(tmp_path) in line]
    assert [line.partition(": ")[0] for line in lines if "RECOVERY" not in line] == [
        str(tmp_path / name) for name in ("extract", "recover", "part.onnx")
    ]
