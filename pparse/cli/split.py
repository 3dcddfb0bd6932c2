"""Split a big protocol buffer message into chunks: a .cpb, as TensorFlow's proto_splitter writes them.

FILE is a SavedModel, a GraphDef, or any message whose type is given (--type); PREFIX.cpb is written, or a copy in
PREFIX.pb if the message is within the limit. FOLDER is a SavedModel folder; PREFIX is then the new folder, with all
other files copied and a new fingerprint. If PREFIX ends in .cpb, only the message is split. The message is read from
disk while it is split, and need not fit into memory.
"""

from __future__ import annotations

import os

from pparse.cli import merge
from pparse.cli.common import OK, USAGE, open_file, refused_argument, size_from
from pparse.display.text import safe
from pparse.errors import FormatError, OptionError, PparseError, SplitError
from pparse.limits import count_words, format_size
from pparse.writers.files import refuse_existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.document.extraction import Extraction
    from pparse.proto_splitter.folders import FolderReport
    from pparse.proto_splitter.stream_split import SplitReport

EXAMPLES: Final = """examples:
  pparse split saved_model.pb -o chunked/saved_model
  pparse split my_model -o my_model_chunked --max-size 512MiB
  pparse split frozen.pb -o frozen --type tensorflow.GraphDef --compression zstd
  pparse split big.binpb -o big --type my.Message -O descriptor=my.binpb --max-size 64MiB
"""
# What TensorFlow's own splitter allows.
_DEFAULT: Final = "1GiB"
_TYPE_HINT: Final = (
    "name it with --type (tensorflow.SavedModel, tensorflow.GraphDef, …); your own type needs -O descriptor=FILE"
)


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE|FOLDER", "a message file, a SavedModel folder, - or outer::inner", dest="file")
    prefix = "write PREFIX.cpb (a suffix .cpb is dropped), or the folder PREFIX"
    parser.add("-o --output PREFIX", prefix, required=True)
    most = size_from(1, "one byte")
    parser.add("--max-size SIZE", f"the largest message chunk ({_DEFAULT})", type=most, default=_DEFAULT)
    how = "brotli:6 (the default), zstd, snappy, uncompressed, or other options of Riegeli, such as transpose,zstd:9"
    parser.add("--compression OPTIONS", how, default="", type=_riegeli_options)
    merge.add_folder_arguments(parser)


def _riegeli_options(text: str) -> str:
    from pparse.riegeli.writer import parse_options

    try:
        parse_options(text)
    except PparseError as error:
        raise refused_argument(str(error)) from error
    return text


def run(options: Any, out: Output) -> int:
    """Run the command."""
    try:
        return _split_folder(options, out) if merge.is_folder_job(options) else _split_file(options, out)
    except SplitError as error:
        out.error(f"{options.file}: {error}; raise --max-size (now {format_size(options.max_size)})")
        return USAGE


def _split_folder(options: Any, out: Output) -> int:
    from pparse.proto_splitter.folders import split_folder

    report = split_folder(
        options.file,
        options.output,
        max_size=options.max_size,
        writer_options=options.compression,
        **merge.folder_options(options, out),
    )
    _tell(options, out, report.model, report.notes, report)
    return OK


def _split_file(options: Any, out: Output) -> int:
    from pparse.proto_splitter.stream_split import is_read, split_document

    prefix = _prefix(options.output)
    with _open(options, out) as document:
        _refuse_unsplittable(document)
        outputs = (f"{prefix}.cpb", f"{prefix}.pb")
        own = [path for path in outputs if is_read(document, path)]  # which the splitter does not touch
        refuse_existing([path for path in outputs if path not in own], options.file, force=options.force)
        report = split_document(
            document, prefix, limit=options.max_size, writer_options=options.compression, progress=out.progress
        )
    notes = _merge_line(options, report)
    if report.removed:
        notes.append(f"{report.removed} was removed, since it belonged to an earlier output")
    if report.chunked and own:
        notes.append(f"{prefix}.pb was left as it is; if both exist, the .cpb takes precedence")
    _tell(options, out, report, notes)
    return OK


def _merge_line(options: Any, report: SplitReport) -> list[str]:
    """Return a hint how to merge a message whose type cannot be recognised by its content."""
    import shlex

    import pparse
    from pparse.parsers.protobuf.parser import ProtobufParser

    if not report.chunked:
        return []
    try:
        with pparse.open(report.path) as document:
            parser = document.parse().parser
            seen = parser.root_type if isinstance(parser, ProtobufParser) else None
    except PparseError:
        seen = None
    if seen is not None and seen.full_name == report.type:
        return []
    words = ["pparse", "merge", report.path, "--type", report.type]
    descriptor = dict(options.options).get("descriptor")
    if descriptor is not None:
        words += ["-O", f"descriptor={descriptor}"]
    return [f"a .cpb does not name its type; merge it with: {shlex.join(words)} -o OUT"]


def _prefix(output: str) -> str:
    """Return the output without the suffix that will be added to it."""
    suffix = next((suffix for suffix in merge.SUFFIXES if output.endswith(suffix)), "")
    prefix = output[: len(output) - len(suffix)]
    if not suffix and (prefix.endswith(os.sep) or os.path.isdir(prefix)):
        raise OptionError(f"{output} is a folder; name a file in it: {os.path.join(output, 'saved_model')}")
    if not os.path.basename(prefix):
        raise OptionError(f"{output} is not a file name")
    return prefix


def _open(options: Any, out: Output) -> Extraction:
    """Open the file; as a message of the given type if its format is not recognised."""
    if options.type is not None:
        options.options = [*options.options, ("message", options.type)]
    document = open_file(options, out)
    try:
        document.parse()
        return document
    except BaseException as error:
        document.close()
        if not isinstance(error, FormatError):
            raise
        if options.type is None or options.format is not None:
            reason = f"{error.reason}; if it is a protocol buffer message, {_TYPE_HINT}"
            raise FormatError(reason, source=error.source) from error
    options.format = "protobuf"
    return open_file(options, out)


def _refuse_unsplittable(document: Extraction) -> None:
    """Raise `OptionError` if the document is in chunks already, is not a message, or has no known type."""
    from pparse.parsers.cpb.parser import CpbParser
    from pparse.parsers.protobuf.parser import ProtobufParser

    parser = document.parse().parser
    if isinstance(parser, CpbParser) and (parser.chunks is not None or parser.problem is not None):
        raise OptionError(
            f"{document.name} is in chunks already (.cpb); to split it again, merge it first: "
            f"pparse merge {document.name} -o OUT"
        )
    if not isinstance(parser, ProtobufParser):
        raise OptionError(f"{document.name} is not a protocol buffer message, but {parser.name} ({parser.description})")
    if parser.root_type is None:
        raise OptionError(f"the message type of {document.name} is not known: {_TYPE_HINT}")


def _tell(options: Any, out: Output, report: SplitReport, notes: list[str], folder: FolderReport | None = None) -> None:
    """Report what was written."""
    if options.max_size > report.limit:
        notes.append(f"--max-size was lowered to {report.limit:,} (2 GiB - 1): protobuf cannot parse a larger message")
    if options.json:
        found = {
            "file": options.file,
            "output": report.path,
            "type": report.type,
            "chunked": report.chunked,
            "message_size": report.message_size,
            "size": report.size,
            "limit": report.limit,
            "chunks": report.chunks,
            "chunked_fields": report.fields,
            "largest_chunk": report.largest,
            "compression": options.compression,
            **merge.folder_to_dict(folder),
            "notes": notes,
        }
        out.json(found)
        return
    whole = f"{safe(report.path)}: {safe(report.type)}, {format_size(report.message_size)}"
    if report.chunked:
        share = f"{100 * report.size / report.message_size:.1f}%" if report.message_size else "0%"
        why = ": it is one value, which is never cut" if report.largest > report.limit else ""
        out.say(
            f"{whole}, in {count_words(report.chunks, 'chunk')}, the largest {format_size(report.largest)} (limit "
            f"{format_size(report.limit)}{why}); {format_size(report.size)} on disk, "
            f"{share} of the message"
        )
    else:
        out.say(
            f"{whole}, written whole: it is within the limit of {format_size(report.limit)} (--max-size), so there is "
            "nothing to split"
        )
    if folder is not None:
        merge.tell_folder(folder, out)
    else:
        out.notes(notes)
