"""Writes results: to standard output, to a file (completely or not at all), or to a pipe."""

from __future__ import annotations

import os
import sys

from pparse.cli.exit_codes import USAGE
from pparse.errors import PathError
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from pparse.cli.output import Output
    from pparse.data.reader import Range


def write(path: str | None, out: Output, give: Callable[[BinaryIO], object]) -> None:
    """Let ``give`` write to a file, completely or not at all; without ``path``, to standard output."""
    if path is None:
        give(out.binary())
        out.binary().flush()
        return
    if os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise PathError("is a folder; name a file in it", path=path)
        with open(path, "wb") as device:  # a pipe or a device must not be replaced
            give(device)
        return
    from pparse.writers.files import AtomicFile

    with AtomicFile(path) as file:
        give(file.stream)


def write_binary(path: str | None, out: Output, give: Callable[[BinaryIO], object], code: int) -> int:
    """`write` binary data, and return ``code``; refuse to write to a terminal."""
    if path is None and sys.stdout.isatty():
        return refuse_terminal(out)
    write(path, out, give)
    return code


def refuse_terminal(out: Output, instead: str = "") -> int:
    """Report that binary data do not go to a terminal, and what else to do ``instead``; return the exit code."""
    out.error("binary data is not for a terminal; use -o FILE or a pipe" + (f", or {instead}" if instead else ""))
    return USAGE


def copy(reader: Range, stream: BinaryIO) -> None:
    """Write the rest of ``reader``, a mebibyte at a time."""
    while chunk := reader.read(MIB):
        stream.write(chunk)


def pieces(text: str) -> Iterator[str]:
    """Yield a text and a line break, encoded, a mebibyte at a time: encoded as a whole it would be in memory twice."""
    for at in range(0, len(text), MIB):
        yield text[at : at + MIB]
    yield "\n"


def write_lines(text: str, stream: BinaryIO) -> None:
    """Write a text and a line break."""
    for piece in pieces(text):
        stream.write(piece.encode("utf-8", "backslashreplace"))
