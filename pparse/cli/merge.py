"""Merge the chunks of a .cpb into one plain protocol buffer message.

FILE is a .cpb; OUT is the message file (- for standard output). FOLDER is a SavedModel folder with a saved_model.cpb;
OUT is then the new folder, with all other files copied and a new fingerprint. If OUT ends in .pb, only the message is
written. The chunks are checked before the first byte is written; if one is lost or damaged, nothing is left behind. The
message need not fit into memory.
"""

from __future__ import annotations

import os
import sys

from pparse.cli.common import DAMAGED, OK, exit_code_of, open_file, resources
from pparse.cli.output import refuse_terminal, write
from pparse.data.files import is_folder
from pparse.display.text import safe
from pparse.errors import Fault, FormatError, MalformedError, OptionError, PparseError
from pparse.limits import count_words, format_size
from pparse.writers.files import refuse_existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.folders import FolderReport
    from pparse.proto_splitter.stream_merge import MergeReport


EXAMPLES: Final = """examples:
  pparse merge saved_model.cpb -o saved_model.pb
  pparse merge my_model_chunked -o my_model
  pparse merge graph.cpb --type tensorflow.GraphDef -o - | sha256sum
  pparse merge big.cpb -o big.binpb --type my.Message -O descriptor=my.binpb
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE|FOLDER", "a .cpb, a SavedModel folder with one, - or outer::inner", dest="file")
    parser.add("-o --output OUT", "the message file, or the folder", required=True)
    verify = "which hashes of chunks are checked: all (the default), those of up to 4 MiB, none"
    parser.add("--verify", verify, choices=("all", "touched", "headers"))
    add_folder_arguments(parser)


def run(options: Any, out: Output) -> int:
    """Run the command."""
    if options.verify is None:
        options.verify = dict(options.options).get("verify", "all")
    try:
        return _merge_folder(options, out) if is_folder_job(options) else _merge_file(options, out)
    except PparseError as error:
        if exit_code_of(error) != DAMAGED:
            raise
        out.error(str(error))
        is_misfit = type(error) is MalformedError and error.fault is not Fault.UNREADABLE
        if options.type is not None and is_misfit:  # chunks can be read, and do not match the type
            out.error(f"check --type: the chunks do not fit {options.type}, or are damaged")
        out.error(
            f"nothing was written; 'pparse check {options.file}' lists all errors, and 'pparse ls', 'tree' and "
            "'get' still show what is whole"
        )
        return DAMAGED


def _merge_folder(options: Any, out: Output) -> int:
    from pparse.proto_splitter.folders import merge_folder

    report = merge_folder(options.file, options.output, verify=options.verify, **folder_options(options, out))
    _tell(options, out, report.model, report)
    return OK


def _merge_file(options: Any, out: Output) -> int:
    from pparse.proto_splitter.stream_merge import check_output, merge_document, merge_to_stream

    to_stdout = options.output == "-"
    if to_stdout and options.json:
        raise OptionError("--json and the message cannot both go to standard output; name a file with -o")
    if to_stdout and sys.stdout.isatty():
        return refuse_terminal(out)
    special = is_special(options.output)
    options.options = [*options.options, ("verify", options.verify)]
    if options.type is not None:
        options.options.append(("message", options.type))
    with open_file(options, out) as document:
        _refuse_unmergeable(document, options)
        if not to_stdout and not special:
            check_output(document, options.output)
            refuse_existing([options.output], options.file, force=options.force)
        if to_stdout or special:
            path = None if to_stdout else options.output
            report = write(path, out, lambda stream: merge_to_stream(document, stream, out.progress))
            report = report._replace(path=options.output)
        else:
            report = merge_document(document, options.output, out.progress)
    if not to_stdout:
        _tell(options, out, report)
    for warning in _warnings(report) if to_stdout else ():
        out.error(warning)
    return OK


def _refuse_unmergeable(document: Extraction, options: Any) -> None:
    """Raise `OptionError` if the document is not in chunks, or its type is not known."""
    from pparse.parsers.cpb.parser import CpbParser
    from pparse.parsers.protobuf.parser import ProtobufParser
    from pparse.proto_splitter.stream_merge import check_end, check_first

    try:
        parser = document.parse().parser
    except FormatError as error:
        raise FormatError(f"{error.reason}; only a .cpb can be merged", source=error.source) from error
    if isinstance(parser, CpbParser) and (parser.chunks is not None or parser.problem is not None):
        if parser.chunks is not None and parser.root_type is None:
            check_end(parser)  # in a truncated or damaged file, that is why the type is not known
            check_first(parser)
            raise OptionError(
                f"the message type of {document.name} is not known, and a .cpb does not name it; use --type NAME "
                "(tensorflow.SavedModel, tensorflow.GraphDef, …); a type of your own needs -O descriptor=FILE"
            )
        return
    if isinstance(parser, ProtobufParser):
        raise OptionError(f"{options.file} is a plain message already ({parser.name}): there is nothing to merge")
    if parser.name == "riegeli":
        raise OptionError(
            f"{document.name} is a Riegeli file whose last record is not chunk metadata: not a .cpb, or truncated; "
            "'-f cpb' lists the chunks that are there"
        )
    raise OptionError(f"{document.name} is not a .cpb, but {parser.name} ({parser.description})")


def _warnings(report: MergeReport) -> list[str]:
    warning = (
        f"the message takes {report.size:,} bytes: protobuf, and so TensorFlow, cannot parse more than 2,147,483,647 "
        "(2 GiB - 1); pparse can read it"
    )
    return [warning] if report.too_large else []


def _tell(options: Any, out: Output, report: MergeReport, folder: FolderReport | None = None) -> None:
    """Report what was written."""
    if options.json:
        found = {
            "file": options.file,
            "output": report.path,
            "type": report.type,
            "size": report.size,
            "chunks": report.chunks,
            "merged_messages": report.touched,
            "verify": options.verify,
            "too_large_for_protobuf": report.too_large,
            **folder_to_dict(folder),
            "notes": _warnings(report) + (folder.notes if folder is not None else []),
        }
        out.json(found)
        return
    chunks = count_words(report.chunks, "chunk")
    out.say(f"{safe(report.path)}: {safe(report.type)}, {format_size(report.size)}, of {chunks}")
    if folder is not None:
        tell_folder(folder, out)
    out.notes(_warnings(report))


# -- What ``split`` and ``merge`` share: outputs, notes, and errors ----------------------------------------------------

SUFFIXES: Final = (".cpb", ".pb")


def add_folder_arguments(parser: Arguments) -> None:
    """Declare the arguments that the two commands share."""
    parser.add("--type NAME", "the message type, if the file does not show it")
    parser.add("--force", "replace an existing output")
    parser.add("--follow-links", "of a folder: copy the targets of links that lead out of it")
    parser.add("--no-fingerprint", "of a folder: write no fingerprint.pb")
    parser.add_json()


def is_folder_job(options: Any) -> bool:
    """Say whether to write a whole folder: the input is one, and the output is not named as a file."""
    output = options.output
    return is_folder(options.file) and not (output.endswith(SUFFIXES) or output == "-" or is_special(output))


def is_special(path: str) -> bool:
    """Say whether a path is a device or a pipe, which is written to and not replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def folder_options(options: Any, out: Output) -> dict[str, Any]:
    """Return the keyword arguments of `pparse.proto_splitter.folders.FolderOptions`."""
    given = {name for name, _ in options.options} - {"verify"}
    if options.type not in (None, "tensorflow.SavedModel") or given or options.format:
        raise OptionError(
            "a folder is split and merged as a SavedModel, without --type, -f and -O; name a file in it to use these"
        )
    return {
        "overwrite": options.force,
        "follow_links": options.follow_links,
        "fingerprint": not options.no_fingerprint,
        "scratch": options.scratch,
        **resources(options, out),
    }


def tell_folder(report: FolderReport, out: Output) -> None:
    """Report what else is in the folder that was written."""
    files = f"{report.files:,} other file{'s' if report.files != 1 else ''}, {format_size(report.bytes)}, copied"
    values = report.fingerprint
    out.say(f"{safe(report.path)}: {files}; " + (f"fingerprint {values.singleprint}" if values else "no fingerprint"))
    out.notes(report.notes)


def folder_to_dict(report: FolderReport | None) -> dict[str, object]:
    """Return the report on a folder as plain data for JSON; for a file, that there is none."""
    if report is None:
        return {"folder": None, "copied_files": 0, "copied_bytes": 0, "fingerprint": None}
    print_of = report.fingerprint.singleprint if report.fingerprint is not None else None
    counts = {"copied_files": report.files, "copied_bytes": report.bytes}
    return {"folder": report.path, **counts, "fingerprint": print_of}
