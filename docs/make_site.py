"""What the site needs beside the pages: a hook of MkDocs, and an extension of Griffe, which reads the docstrings.

The pages are written for the code host: they link to files of the repository by relative paths. On the site

- README.md, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md are pages (the first is where it starts),
- a file of code that a page links to is a page that shows it, a folder one that lists it,
- ``pparse`` is one package, as it is when it is installed: parsers, viewers and protos lie inside of it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
# Pages of the site that lie outside of docs.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".yml": "yaml", ".json": "json"}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
NAME = re.compile(r"(?<!`)`([A-Za-z][\w.]*)`(?!`)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_staged: list[Path] = []


# -- pages -------------------------------------------------------------------------------------------------------------


def _place(target: Path) -> str:
    """Return the page, or the file, of the site that shows a file of the repository."""
    path = target.relative_to(ROOT).as_posix()
    if path in OUTSIDE:
        return OUTSIDE[path]
    inside = target.is_relative_to(DOCS)
    path = re.sub(r"(^|/)\.", r"\1", path)  # what begins with a dot is left out of a site
    if target.is_dir():
        return f"source/{path}/index.md"
    if inside and target.suffix != ".py":
        return target.relative_to(DOCS).as_posix()
    return f"source/{path}.md"


class _Links:
    """Turns the links of a page into those of the site, and collects what has to be made for them."""

    def __init__(self) -> None:
        self.sources: set[Path] = set()

    def turn(self, text: str, origin: Path, place: str) -> str:
        """Return the text of the file ``origin`` as that of the page ``place``."""

        def replace(match: re.Match[str]) -> str:
            name, mark, anchor = match[1].partition("#")
            target = (origin.parent / name).resolve()
            if not name or ":" in name or not target.exists() or not target.is_relative_to(ROOT):
                return match[1]
            page = _place(target)
            if page.startswith("source/"):
                self.sources.add(target)
            return posixpath.relpath(page, posixpath.dirname(place) or ".") + mark + anchor

        pieces, at = [], 0
        for fence in FENCED.finditer(text):
            pieces += [
                LINK.sub(replace, text[at : fence.start()]),
                fence[0].replace("```console with-toy", "```console"),
            ]
            at = fence.end()
        return "".join([*pieces, LINK.sub(replace, text[at:])])


def _shown(target: Path, place: str) -> str:
    """Return the page of a file of code, or of a folder."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {target.relative_to(ROOT).as_posix()}\n\n"
    if target.is_dir():
        rows = []
        for path in sorted(path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            link = posixpath.relpath(_place(path), posixpath.dirname(place))
            rows.append(f"| [{path.relative_to(target).as_posix()}]({link}) | {path.stat().st_size:,} |\n")
        return f"{head}| file | bytes |\n|---|---:|\n{''.join(rows)}"
    text = target.read_text(encoding="utf-8")
    return f"{head}````` {LANGUAGES.get(target.suffix, 'text')}\n{text}`````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs, and those that show code."""
    links = _Links()
    for name, place in OUTSIDE.items():
        text = links.turn((ROOT / name).read_text(encoding="utf-8"), ROOT / name, place)
        files.append(File.generated(config, place, content=text))
    for file in files.documentation_pages():
        if file.generated_by is None:
            links.turn(file.content_string, DOCS / file.src_uri, file.src_uri)
    for folder in [target for target in links.sources if target.is_dir()]:
        links.sources |= {path for path in folder.rglob("*.py") if "__pycache__" not in path.parts}
    for target in sorted(links.sources):
        place = _place(target)
        files.append(File.generated(config, place, content=_shown(target, place)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn the links of a page in docs."""
    if page.file.generated_by is not None:
        return markdown
    return _Links().turn(markdown, DOCS / page.file.src_uri, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Take the backslash away that a bar in a cell of a table needs on the code host, in code too."""
    return re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html)


# -- docstrings --------------------------------------------------------------------------------------------------------


@event_priority(100)  # before mkdocstrings reads where to look
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the package together in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="pparse-site-"))
    _staged.append(folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.c")
    shutil.copytree(ROOT / "pparse", folder / "pparse", ignore=ignored)
    for name in ("parsers", "viewers", "protos"):
        shutil.copytree(ROOT / name, folder / "pparse" / name, ignore=ignored)
    handlers = config.plugins["mkdocstrings"].config["handlers"]
    handlers["python"]["paths"] = [os.fspath(folder)]
    return config


def on_shutdown() -> None:
    """Remove what was put together."""
    while _staged:
        shutil.rmtree(_staged.pop(), ignore_errors=True)


class Docstrings(griffe.Extension):
    """Takes a comment at an attribute for its docstring, ``::`` before an example for a colon, `Name` for a link."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment behind the attribute, or the lines of comment above it."""
        if attr.docstring is not None or attr.lineno is None or not isinstance(attr.filepath, Path):
            return
        lines = attr.lines_collection[attr.filepath]
        _, mark, comment = lines[(attr.endlineno or attr.lineno) - 1].partition("  # ")
        if not mark:
            above, number = [], attr.lineno - 2
            while number >= 0 and (line := lines[number].strip()).startswith("# ") and not line.startswith("# --"):
                above.append(line[2:])
                number -= 1
            comment = " ".join(reversed(above))
        if comment and not re.match(r"(type|noqa|pragma|fmt):", comment):
            text = comment[0].upper() + comment[1:] + ("" if comment.endswith((".", "?", ":")) else ".")
            attr.docstring = griffe.Docstring(text, parent=attr)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Turn what is left of reStructuredText into markdown, once every name is known."""
        todo: list[Any] = [pkg]
        while todo:
            found = todo.pop()
            todo += [member for member in found.members.values() if not member.is_alias]
            if found.docstring is not None:
                found.docstring.value = self._as_markdown(found, found.docstring.value)

    @staticmethod
    def _as_markdown(owner: Any, text: str) -> str:
        def link(match: re.Match[str]) -> str:
            try:
                target = owner.resolve(match[1])
            except griffe.NameResolutionError:
                return match[0]
            # Without a page of its own, the name stays what it is.
            return f'<autoref identifier="{target}" optional><code>{match[1]}</code></autoref>'

        text = re.sub(r"(?m)^::\n", "", text)
        text = re.sub(r"(?m)::$(?=\n\n {4})", ":", text)
        lines = text.split("\n")
        return "\n".join(line if line.startswith("    ") else NAME.sub(link, line) for line in lines)
