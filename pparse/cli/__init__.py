"""The command line: one module per command, imported only when it runs.

Exit codes: 0 complete; 1 a bug in pparse; 2 usage, or cannot open; 3 format not recognised; 4 something is truncated,
damaged or missing (the readable part was still printed or written); 128 + the number of a signal (130, 141).
"""

from __future__ import annotations

import gc
import sys

from pparse.cli.streams import deliver_interrupts, end_interrupts, fill_buffers, flush_errors, prepare, silence, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

# name: (module, one line for the help)
COMMANDS: Final = {
    "ls": ("pparse.cli.ls", "list tensors, or the members of a document"),
    "info": ("pparse.cli.info", "format, counts, sizes, metadata, status; where a truncated file ends"),
    "tree": ("pparse.cli.tree", "the tree of nodes, with errors where they are"),
    "get": ("pparse.cli.get", "one node or tensor: text, --json, --raw, --npy; slices"),
    "check": ("pparse.cli.check", "check everything; each finding with its byte range"),
    "extract": ("pparse.cli.extract", "write the members of an archive to a folder, safely"),
    "recover": ("pparse.cli.recover", "save everything that can be saved of a damaged file"),
    "convert": ("pparse.cli.convert", "tensors of any format into safetensors, .npz or GGUF"),
    "index": ("pparse.cli.index", "index a file of gzip or JSON Lines, for fast reads in its middle"),
    "graph": ("pparse.cli.graph", "nodes and edges of a graph (TensorFlow, ONNX); what some outputs need"),
    "split": ("pparse.cli.split", "cut a big protocol buffer message into chunks (.cpb)"),
    "merge": ("pparse.cli.merge", "merge the chunks of a .cpb"),
    "formats": ("pparse.cli.formats", "formats, limitations, plug-ins"),
}

_HELP = """usage: pparse COMMAND FILE ...

Look into files that are too big, too broken or too dangerous to load.

{commands}

examples:
  pparse ls model.safetensors               every tensor with its status
  pparse ls model.safetensors '*.weight'    those that match
  pparse info half-a-download.safetensors   what is there, and where to resume
  pparse get model.safetensors 'h.0.attn.weight[0:2]'

'pparse COMMAND --help' describes a command. Exit code 4 means that something in the
file is truncated, damaged or missing; what could be read was still delivered.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # modules are many objects without cycles
        deliver_interrupts()
        fill_buffers()
    prepare()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        code = end_interrupts()
        silence(sys.stdout)
        silence(sys.stderr)  # perhaps nobody reads that either
        return code
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except OSError as error:  # of an output
        return _cannot_write(error)
    finally:
        flush_errors()
        if argv is None:
            gc.freeze()  # the process ends: what is left is not scanned for cycles once more


def _cannot_write(error: OSError) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # it is standard output that takes no more
        silence(sys.stdout)
    # What cannot be written to has no name here: outputs that have one raise errors of ours.
    what = "cannot write" if error.filename is None and error.errno is not None else error.filename
    tell(f"pparse: {f'{what}: ' if what else ''}{error.strerror or error}")
    return 2


def _dispatch(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] in ("-h", "--help", "help"):
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {name:8} {text}" for name, (_, text) in COMMANDS.items())
        stream = sys.stdout if arguments else sys.stderr
        stream.write(_HELP.format(commands=rows))
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        import pparse

        sys.stdout.write(f"pparse {pparse.__version__}\n")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        return _unknown(command, arguments)
    import importlib

    from pparse.cli.common import run_command

    return run_command(importlib.import_module(COMMANDS[command][0]), command, arguments[1:])


# What other programs call the commands.
_OTHER_WORDS: Final = {
    **dict.fromkeys(("list", "dir", "l"), "ls"),
    **dict.fromkeys(("show", "stat", "file", "inspect", "describe"), "info"),
    **dict.fromkeys(("cat", "read", "print", "load", "head"), "get"),
    **dict.fromkeys(("dump", "walk"), "tree"),
    **dict.fromkeys(("verify", "test", "validate", "fsck"), "check"),
    **dict.fromkeys(("unzip", "untar", "unpack", "x"), "extract"),
    **dict.fromkeys(("repair", "salvage", "fix", "rescue"), "recover"),
    **dict.fromkeys(("export", "save", "transcode"), "convert"),
    **dict.fromkeys(("draw", "plot"), "graph"),
    **dict.fromkeys(("join", "concat"), "merge"),
}


def _unknown(command: str, arguments: list[str]) -> int:
    from pparse.data.files import exists

    if exists(command) or "::" in command:
        tell(f"pparse: name a command, for example: pparse ls {' '.join(arguments)}")
    else:
        from difflib import get_close_matches

        near = [_OTHER_WORDS[command]] if command in _OTHER_WORDS else get_close_matches(command, COMMANDS, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        tell(f"pparse: no command {command!r}; {meant}commands: {', '.join(COMMANDS)}")
    return 2
