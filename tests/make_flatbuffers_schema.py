"""Makes a schema of ours from public FlatBuffers schemas: ``python tests/make_flatbuffers_schema.py model.fbs …``.

Prints the lines of a file in ``parsers/flatbuffers/schemas``; the docstring of `pparse.parsers.flatbuffers.schema`
has their notation. Namespaces, comments, and attributes that do not change how a file is read are left out. The root is
that of the last file; included files come before those that include them. A field may be marked as holding another
format by ``--holds TABLE.FIELD=flexbuffer``, where only the runtime's sources say so.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|[-+]?[\d.][\w.+-]*|[{}\[\]():;,=]')
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
NAMES = {
    "byte": "int8",
    "ubyte": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
    "float": "float32",
    "double": "float64",
}


class Reader:
    """Takes the tokens of one file."""

    def __init__(self, text: str) -> None:
        self.tokens = TOKEN.findall(COMMENT.sub("", text))
        self.at = 0

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def have(self, *wanted: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] in wanted

    def took(self, wanted: str) -> bool:
        self.at += (found := self.have(wanted))
        return found

    def until(self, end: str) -> list[str]:
        taken = []
        while not self.took(end):
            taken.append(self.take())
        return taken

    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.took("("):
            while not self.took(")"):
                name = self.take()
                found[name] = self.take().strip('"') if self.took(":") else ""
                self.took(",")
        return found

    def type(self) -> str:
        if not self.took("["):
            return self.short(self.take())
        inner = self.type()
        if self.took(":"):
            inner += f":{self.take()}"
        assert self.take() == "]"
        return f"[{inner}]"

    @staticmethod
    def short(name: str) -> str:
        name = name.rpartition(".")[2]
        return NAMES.get(name, name)


def fields(reader: Reader, table: str, holds: dict[str, str]) -> list[str]:
    """Return the fields of a table or struct, in the order of their slots."""
    found: list[tuple[int, str]] = []
    assert reader.take() == "{"
    while not reader.took("}"):
        name = reader.take()
        assert reader.take() == ":"
        kind = reader.type()
        default = reader.take() if reader.took("=") else ""
        told = reader.attributes()
        reader.took(";")
        kind += "^^" if "vector64" in told else "^" if "offset64" in told else ""
        inner = told.get(
            "nested_flatbuffer", "flexbuffer" if "flexbuffer" in told else holds.get(f"{table}.{name}", "")
        )
        text = f"{name}:{kind}" + (f"<{reader.short(inner)}>" if inner else "")
        if default not in ("", "0", "0.0", "false", "null"):
            text += f"={default}"
        found.append((int(told.get("id", len(found))), text))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def numbered(reader: Reader, *, union: bool) -> list[str]:
    """Return the names of an enum or union; with a number where it is not the one behind the last."""
    found, following = [], int(union)
    assert reader.take() == "{"
    while not reader.took("}"):
        text = name = reader.take()
        if union:
            kind = Reader.short(reader.take()) if reader.took(":") else Reader.short(name)
            text = kind if kind == Reader.short(name) else f"{name}:{kind}"
        if reader.took("="):
            number = int(reader.take(), 0)
            text += "" if number == following else f"={number}"
            following = number
        reader.attributes()
        reader.took(",")
        following += 1
        found.append(text)
    return found


def lines_of(text: str, holds: dict[str, str]) -> list[str]:
    """Return a line for each type of a schema, and the root first."""
    reader, found, root, mark = Reader(text), [], "", ""
    while reader.at < len(reader.tokens):
        word = reader.take()
        if word in ("table", "struct"):
            name = reader.take()
            reader.attributes()
            found.append(" ".join((word, name, *fields(reader, name, holds))))
        elif word in ("enum", "union"):
            name = reader.take()
            kind = [Reader.short(reader.take())] if reader.took(":") else []
            flags = reader.attributes()
            names = numbered(reader, union=word == "union")
            word = "flags" if "bit_flags" in flags else word
            found.append(" ".join((word, name, *kind, *names)))
        elif word == "root_type":
            root = Reader.short(reader.take())
        elif word == "file_identifier":
            mark = reader.take().strip('"')
        elif word == "rpc_service":
            reader.until("}")
        elif word != ";":  # include, namespace, attribute, file_extension
            reader.until(";")
    return ([f"root {root} {mark}".strip()] if root else []) + found


def main() -> None:
    """Print the lines of the schemas that are named, wrapped; what continues a line is indented."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--holds", action="append", default=[])
    told = parser.parse_args()
    holds = dict(each.split("=") for each in told.holds)
    texts = [open(name, encoding="utf-8").read() for name in told.files]  # noqa: SIM115
    for text in texts:
        for line in lines_of(text, holds):
            if not (line.startswith("root ") and text is not texts[-1]):
                wrapped = textwrap.wrap(
                    line, 118, subsequent_indent=" ", break_long_words=False, break_on_hyphens=False
                )
                sys.stdout.write("\n".join(wrapped) + "\n")


if __name__ == "__main__":
    main()
