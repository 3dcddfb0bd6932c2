"""Runs commands while some messages of the package have other words; in a process of its own, as it compiles modules.

``python -m tests.reworded`` reads an `Order` as JSON and prints what its commands gave, and which messages were told.
A message is a text of some words in a row that is neither a docstring nor compared with anything: reasons of errors
and findings, and what these are made of. It is known by its text, with ``{}`` for what is filled in.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.machinery
import io
import json
import os
import random
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, TypedDict

# Three words in a row, in small letters: what nobody reads has fewer.
PROSE = re.compile("[a-z]+,? [a-z]+,? [a-z]+")
# Their words are for those who type commands, and do not come from a file.
NOT_LOOKED_AT = ("pparse.cli", "pparse.testing")
OUTPUT = "out"


class Order(TypedDict):
    """What to run in ``folder``; without ``reword`` all messages that are told are noted instead.

    ``modules``: those in which there are messages to be put into other words.
    """

    folder: str
    commands: list[list[str]]
    reword: list[str]
    modules: list[str]
    seed: int


def may_be_compared(node: ast.AST, field: str) -> bool:
    """Whether what stands there is no message: a text that is compared with others, or looked up; or a docstring."""
    return (
        isinstance(node, ast.Compare | ast.Expr | ast.match_case | ast.JoinedStr)
        or (isinstance(node, ast.Dict) and field == "keys")
        or (isinstance(node, ast.Subscript) and field == "slice")
    )


class Messages(ast.NodeTransformer):
    """Comes to every message of a module."""

    module = ""

    def message(self, message: ast.expr) -> ast.expr:
        raise NotImplementedError

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            is_list = isinstance(value, list)
            held = [self.held(node, field, each) for each in (value if is_list else [value])]
            setattr(node, field, held if is_list else held[0])
        return node

    def held(self, node: ast.AST, field: str, value: Any) -> Any:
        if not isinstance(value, ast.AST):
            return value
        if isinstance(value, ast.expr) and not may_be_compared(node, field) and PROSE.search(template(value)):
            return self.message(value)
        return self.visit(value)


def template(message: ast.expr) -> str:
    """Return the text of a message with ``{}`` for what is filled in."""
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return message.value
    if isinstance(message, ast.JoinedStr):
        return "".join(map(template, message.values))
    if isinstance(message, ast.BinOp) and isinstance(message.op, ast.Add):
        return template(message.left) + template(message.right)
    return "{}"


def in_other_words(text: str, seed: int) -> str:
    """Return a text with other words, and other marks between them; it is as long, so that a file of it is, too."""
    rng = random.Random(f"{seed} {text}")
    text = re.sub("[A-Za-z]+", lambda word: "".join(rng.choices("bdfglmnprtvz", k=len(word[0]))), text)
    return re.sub("[;:,.]", "~", text)


class Noted(Messages):
    """Hands each message to ``__told__`` on its way, and keeps in which modules it stands."""

    def __init__(self) -> None:
        self.places: dict[str, set[str]] = defaultdict(set)

    def message(self, message: ast.expr) -> ast.expr:
        self.places[template(message)].add(self.module)
        return ast.Call(ast.Name("__told__", ast.Load()), [ast.Constant(template(message)), message], [])


class Reworded(Messages):
    """Puts the chosen messages into other words."""

    def __init__(self, chosen: set[str], seed: int) -> None:
        self.chosen, self.seed = chosen, seed

    def message(self, message: ast.expr) -> ast.expr:
        if template(message) in self.chosen:
            self.reword(message)
        return message

    def reword(self, message: ast.expr) -> None:
        if isinstance(message, ast.Constant) and isinstance(message.value, str):
            message.value = in_other_words(message.value, self.seed)
        elif isinstance(message, ast.JoinedStr):
            for part in message.values:
                self.reword(part)
        elif isinstance(message, ast.BinOp):
            self.reword(message.left)
            self.reword(message.right)


def hook(transformer: Messages, modules: list[str] | None = None) -> None:
    """Compile the package's modules anew as they are imported: these, or all."""
    loader = importlib.machinery.SourceFileLoader
    cached = loader.get_code

    def get_code(self: Any, name: str) -> Any:
        is_ours = name.split(".")[0] == "pparse" and not name.startswith(NOT_LOOKED_AT)
        if not is_ours or (modules is not None and name not in modules):
            return cached(self, name)
        path = self.get_filename(name)
        transformer.module = name
        tree = ast.fix_missing_locations(transformer.visit(ast.parse(self.get_data(path))))
        return compile(tree, path, "exec", dont_inherit=True)

    loader.get_code = get_code  # type: ignore[method-assign]


def run(words: list[str]) -> dict[str, Any]:
    """Run a command; return its exit code, its output, and the files that it wrote."""
    from pparse.cli import main

    streams = sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    sys.stdout, sys.stderr = out, err
    try:
        code = main(words)
        out.flush()
        err.flush()
    finally:
        sys.stdout, sys.stderr = streams
    files: dict[str, Any] = {}
    for path in sorted(Path(OUTPUT).rglob("*")) if Path(OUTPUT).exists() else ():
        if path.is_file():
            content = path.read_bytes()
            is_text = path.suffix == ".json"
            files[str(path)] = (
                content.decode(errors="backslashreplace") if is_text else hashlib.sha256(content).hexdigest()
            )
    shutil.rmtree(OUTPUT, ignore_errors=True)
    return {
        "words": words,
        "code": code,
        "out": out.buffer.getvalue().decode(errors="backslashreplace"),  # type: ignore[attr-defined]
        "err": err.buffer.getvalue().decode(errors="backslashreplace"),  # type: ignore[attr-defined]
        "files": files,
    }


def main() -> None:
    order: Order = json.load(sys.stdin)
    told: dict[str, set[str]] = defaultdict(set)

    def note(text: str, message: str) -> str:
        told[text].add(message)
        return message

    builtins.__told__ = note  # type: ignore[attr-defined]
    noted = Noted()
    if order["reword"]:
        hook(Reworded(set(order["reword"]), order["seed"]), order["modules"])
    else:
        hook(noted)
    os.chdir(order["folder"])
    ran = [run(words) for words in order["commands"]]
    found = {"told": told, "places": noted.places}
    json.dump({"ran": ran} | {name: {text: sorted(found[name][text]) for text in told} for name in found}, sys.stdout)


if __name__ == "__main__":
    main()
