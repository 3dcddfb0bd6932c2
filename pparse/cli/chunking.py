"""What ``split`` and ``merge`` share: outputs, notes, and errors."""

from __future__ import annotations

import os

from pparse.cli.common import add_option
from pparse.data.files import is_folder, same_file
from pparse.display.text import safe
from pparse.errors import OptionError
from pparse.limits import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from typing import Any, Final

    from pparse.cli.output import Output
    from pparse.proto_splitter.folders import FolderReport

SUFFIXES: Final = (".cpb", ".pb")


def add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that the two commands share."""
    add_option(parser, "--type NAME", "the message type, if the file does not show it")
    add_option(parser, "--force", "replace an existing output")
    add_option(parser, "--follow-links", "of a folder: copy the targets of links that lead out of it")
    add_option(parser, "--no-fingerprint", "of a folder: write no fingerprint.pb")
    add_option(parser, "--json", 'one JSON document ("schema": 1)')
    parser.set_defaults(jsonl=False)


def is_folder_job(options: Any) -> bool:
    """Say whether to write a whole folder: the input is one, and the output is not named as a file."""
    output = options.output
    return is_folder(options.file) and not (output.endswith(SUFFIXES) or output == "-" or is_special(output))


def is_special(path: str) -> bool:
    """Say whether a path is a device or a pipe, which is written to and not replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def folder_options(options: Any, out: Output) -> dict[str, Any]:
    """Return the keyword arguments of `pparse.proto_splitter.folders.FolderOptions`."""
    from pparse.data.base import IoStats
    from pparse.limits import Limits

    given = {name for name, _ in options.options} - {"verify"}
    if options.type not in (None, "tensorflow.SavedModel") or given or options.format:
        raise OptionError(
            "a folder is split and merged as a SavedModel, without --type, -f and -O; name a file in it to use these"
        )
    out.stats = IoStats(log=True) if options.trace_io else None
    return {
        "overwrite": options.force,
        "follow_links": options.follow_links,
        "fingerprint": not options.no_fingerprint,
        "budget": options.budget,
        "limits": Limits(**dict(options.limits)),
        "scratch": options.scratch,
        "progress": out.progress,
        "stats": out.stats,
    }


def refuse_existing(paths: Iterable[str], options: Any) -> None:
    """Raise `OptionError` for outputs that exist, or that are the input."""
    for path in paths:
        if not os.path.lexists(path):
            continue
        if same_file(path, options.file):
            raise OptionError(f"the output {path} is the file being read; name another one")
        if os.path.isdir(path):
            raise OptionError(f"the output {path} is a folder")
        if not options.force:
            raise OptionError(f"{path} exists already; name another output, or replace it with --force")


def tell_folder(report: FolderReport, out: Output) -> None:
    """Report what else is in the folder that was written."""
    files = f"{report.files:,} other file{'s' if report.files != 1 else ''}, {format_size(report.bytes)}, copied"
    values = report.fingerprint
    out.line(f"{safe(report.path)}: {files}; " + (f"fingerprint {values.singleprint}" if values else "no fingerprint"))
    out.notes(report.notes)


def folder_to_dict(report: FolderReport | None) -> dict[str, object]:
    """Return the report on a folder as plain data for JSON; for a file, that there is none."""
    if report is None:
        return {"folder": None, "copied_files": 0, "copied_bytes": 0, "fingerprint": None}
    print_of = report.fingerprint.singleprint if report.fingerprint is not None else None
    counts = {"copied_files": report.files, "copied_bytes": report.bytes}
    return {"folder": report.path, **counts, "fingerprint": print_of}
