"""The pages say what is so: links resolve, snippets run, transcripts are what the commands print.

- ```` ```python ````: run, a page's blocks in order in one namespace, at the repository's root. A line that ends in
  ``# -> TEXT`` is an expression whose ``repr`` is TEXT. Blocks that import torch are left out where there is none.
- ```` ```console ````: lines after ``$ `` are run, by a shell if it takes one, in a copy of the samples, a
  page's blocks in order in one folder; what follows is their output, both streams. A line ``…`` stands for any lines.
- ```` ```console with-toy ````: the same, with the toy of docs/examples installed as a plug-in.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.forked_commands import SHOWN_CODE, ForkedCommands, words_of
from tests.rows import rows

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINKED = [*PAGES, *(page for page in (ROOT / name for name in OUTSIDE) if page.exists())]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[tuple[int, str, str]]:
    """Return ``(line, language, text)`` of the fenced blocks of a page in these languages."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match[1] in languages:
            found.append((text.count("\n", 0, match.start()) + 2, match[1], match[2]))
    return found


def pages_with(*languages: str) -> list[Path]:
    return [page for page in LINKED if blocks(page, *languages)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# -- links -----------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made on the web."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


@rows("page", LINKED, ids=name_of)
def test_every_link_leads_to_a_page_or_a_heading(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / unquote(name)).resolve() if name else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            lost.append(target)
    assert not lost


# -- the site ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="not a clone")
def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", text, re.MULTILINE))
    assert {page.relative_to(DOCS).as_posix() for page in PAGES} <= listed


def test_the_reference_has_every_public_name() -> None:
    """By name, or with all of its module: the names themselves are looked up when the site is built."""
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    some = re.findall(r"^::: ([\w.]+)\n(?: +.*\n)*? +members: \[(.*)\]$", text, re.MULTILINE)
    shown |= {f"{module}.{name.strip()}" for module, names in some for name in names.split(",")}
    for package in ("pparse", "pparse.riegeli", "pparse.proto_splitter", "pparse.testing", "pparse.codecs"):
        module = importlib.import_module(package)
        pages = [importlib.import_module(name) for name in ("pparse.errors", f"{package}.errors") if name in shown]
        missing = [name for name in module.__all__ if f"{package}.{name}" not in shown]
        lost = [name for name in missing if not any(hasattr(page, name) for page in pages)]
        assert not lost, f"{package}: not on a page of docs/api"


def test_the_page_of_benchmarks_ends_with_what_was_measured_once() -> None:
    once = (ROOT / "tests" / "bench" / "measured_once.md").read_text(encoding="utf-8")
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8").endswith(once)


# -- the command reference -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse words its help differently from Python 3.13 on")
def test_cli_page_is_what_its_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_cli_reference", DOCS / "examples" / "make_cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.make()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made, "run: python docs/examples/make_cli_reference.py"


# -- Python ----------------------------------------------------------------------------------------------------------


class Shown(ast.NodeTransformer):
    """Turns ``expression  # -> TEXT`` into a comparison of its repr with TEXT."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        line = self.lines[(node.end_lineno or node.lineno) - 1]
        _, mark, wanted = line.partition("# -> ")
        if not mark:
            return node
        call = ast.Call(ast.Name("_shown", ast.Load()), [node.value, ast.Constant(wanted.strip())], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def shown(value: object, wanted: str) -> None:
    assert repr(value) == wanted


@pytest.mark.parametrize("page", [page for page in pages_with("python") if page.parent == DOCS], ids=name_of)
def test_python_on_the_pages_runs_and_shows_what_they_say(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    namespace: dict[str, object] = {"__name__": "__page__", "_shown": shown}
    try:
        for line, _, text in blocks(page, "python"):
            if ("import torch" in text or ".torch()" in text) and importlib.util.find_spec("torch") is None:
                continue
            tree = Shown(text.splitlines()).visit(ast.parse(text))
            ast.increment_lineno(tree, line - 1)
            with warnings.catch_warnings():
                if "torch" in text:
                    warnings.simplefilter("ignore")  # torch's own
                exec(compile(tree, str(page), "exec", dont_inherit=True), namespace)
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("toy_"):
                del sys.modules[name]


# -- transcripts -----------------------------------------------------------------------------------------------------


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a transcript with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, "a transcript begins with '$ '"
            found[-1][1].append(line)
    return found


def pattern(lines: list[str]) -> str:
    pieces = [r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line) + r"[ ]*\n" for line in lines]
    return "".join(pieces)


def plugin(folder: Path) -> str:
    """Install the toy as the page tells, and return what to put on the module path."""
    page = DOCS / "how-to-write-a-parser.md"
    project = next(tomllib.loads(text) for _, _, text in blocks(page, "toml"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items()) for group, rows in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join((str(folder), str(DOCS / "examples")))


def has_holes(folder: Path) -> bool:
    """Say whether the file system tells what of a file was never written, page by page."""
    path = folder / "holes"
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
        file.truncate(1 << 20)
        file.flush()
        return hasattr(os, "SEEK_HOLE") and os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 4096


@pytest.mark.skipif(os.name == "nt", reason="transcripts are of a POSIX shell")
@pytest.mark.parametrize("page", pages_with("console", "console with-toy"), ids=name_of)
def test_commands_on_the_pages_print_what_they_say(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    shutil.copytree(DOCS / "samples", folder / "docs" / "samples")
    shutil.copytree(DOCS / "examples", folder / "docs" / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    scripts = Path(sys.executable).parent
    if not (scripts / "pparse").exists():
        pytest.skip("the command is not installed beside this Python")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FORCE_COLOR")}
    env |= {
        "PATH": f"{scripts}{os.pathsep}{env.get('PATH', '')}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONIOENCODING": "utf-8",
        "LC_ALL": "C",
    }
    toy = plugin(tmp_path / "plugin") if blocks(page, "console with-toy") else ""
    holes = has_holes(tmp_path)
    with contextlib.ExitStack() as stack:
        forked: dict[str, ForkedCommands] = {}
        for line, language, text in blocks(page, "console", "console with-toy"):
            if "truncate " in text and not holes:
                continue
            env["PYTHONPATH"] = toy if language == "console with-toy" else ""
            if language not in forked:
                forked[language] = stack.enter_context(ForkedCommands(env, tmp_path / "output"))
            for command, wanted in commands(text):
                words = words_of(command)
                if words is None:
                    told = through_a_shell(command, folder, env)
                else:
                    code, told = forked[language].run(words, folder)
                    told += f"exit code {code}\n" if command.endswith(SHOWN_CODE) else ""
                assert re.fullmatch(pattern(wanted), told), (
                    f"{name_of(page)}:{line}: $ {command}\n--- the page says\n"
                    + "\n".join(wanted)
                    + f"\n--- it is\n{told}"
                )


def through_a_shell(command: str, folder: Path, env: dict[str, str]) -> str:
    """Return what a command writes, both streams."""
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=env,
        text=True,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ).stdout


# -- the first screen ------------------------------------------------------------------------------------------------


def test_the_readme_tells_how_to_try_it_on_the_first_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = "\n".join(lines[:24])
    assert "python3 docs/try.py" in first
    assert ". .venv/bin/activate" in first


def test_the_transcripts_of_the_readme_need_only_what_pparse_brings() -> None:
    text = "".join(block for _, _, block in blocks(ROOT / "README.md", "console", "python"))
    brought = {"pparse", "numpy", "ml_dtypes", "brotli", "backports", "cramjam", "google"}
    imported = set(re.findall(r"(?:^|[\s\";])(?:(?<!pparse )import|from)\s+([a-z_]+)", text))
    assert imported <= brought | set(sys.stdlib_module_names), imported
