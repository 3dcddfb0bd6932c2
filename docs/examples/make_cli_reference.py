"""Write docs/cli.md from the commands' own help and output: ``python docs/examples/make_cli_reference.py``.

The tables of JSON keys are compared with what the commands print for the samples: a key that is not told of here, or is
no longer there, stops the script.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

from pparse.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "cli.md"

GOOD = "docs/samples/tiny-gpt.safetensors"
CUT = "docs/samples/tiny-gpt.cut.safetensors"
INDEX = "docs/samples/sharded/model.safetensors.index.json"
RECORDS = "docs/samples/records.cut.riegeli"
ARCHIVE = "docs/samples/backup.tar.gz"
CUT_ARCHIVE = "docs/samples/backup.cut.tar.gz"
OUTPUTS = ("split", "folder", "pb", "merged", "extracted", "recovered")
CHUNKED = "docs/samples/chunked-model"

HEAD = """# Command line

*Made by [make_cli_reference.py](examples/make_cli_reference.py) from the commands themselves; change it there.*
A tour with real files is in the [user guide](user-guide.md); how paths are written, in [concepts](concepts.md#paths).

- [Commands](#commands)
- [Exit codes](#exit-codes)
- [Output](#output)
- [JSON](#json)

## Commands
"""

EXIT_CODES = """## Exit codes

| code | meaning |
|---|---|
| 0 | complete: nothing that was looked at is cut, damaged or missing |
| 1 | a bug of pparse |
| 2 | usage; the file cannot be opened; a path or name that leads nowhere; a limit or budget; no digest; cannot write |
| 3 | the format is not recognised, or there is no such format |
| 4 | something is truncated, damaged or missing; what could be had was still delivered. Also: nothing, or zeros only |
| 130 | interrupted (Ctrl-C) |
| 141 | the reader of the output went away (`\\| head`) |

`ls`, `info`, `tree` and `get` judge by what they looked at; `check` and `recover` look at everything. Of an archive,
`check` reads every member and compares its checksum, and `check -R` and `recover` look into the documents in it, too:
those two come to the same code, and so do all three for a file that is no archive. A finding of severity `error` means
4; notes do not change the code, warnings only with `--strict` (`ls`, `info`, `check`, `extract`, `recover`).

`ls`, `info`, `tree` and `check` take several files. One that cannot be read does not keep the others from being looked
at; the code is the first of 1, 2, 3 and 4 that one of them has. A pattern of `ls` must match in one of them (else 2).
"""

OUTPUT = """## Output

What was asked for goes to standard output; errors, the trace of reads and progress go to standard error. Progress is
shown on a terminal only, after half a second. Names are made safe to show: control characters and marks that change
the direction of text appear as `\\x1b`, `\\u202e`. Colours are used on a terminal, unless `NO_COLOR` is set.

Text for people may change between versions. `--json` (one document) and `--jsonl` (one object a line, streamed) are
the contract; `"schema"` counts up when a key changes its meaning or goes. Keys may be added. Of several files,
`--json` is one document, `{"schema": 1, "files": [...]}`, with what it is of one file for each (`file`, `error` and
`code` for one that could not be read), and rows of `--jsonl` begin with `file`.
"""

JSON_HEAD = """## JSON

Sizes and offsets are bytes, counted from 0. `null` means unknown. A key marked *(optional)* is left out where it has
nothing to say. `status` is one of `complete`, `truncated`, `missing`, `damaged`, `unsupported`.
"""

SCHEMA = {"schema": "1"}
FILE = {"file": "as it was given"}
FORMAT = {"format": "name of the format"}
COPIED = {
    "folder": "the folder written; null if it is one file",
    "copied_files": "number of other files of the folder",
    "copied_bytes": "bytes of those",
    "fingerprint": "the singleprint in the new `fingerprint.pb`; null if none was written",
    "notes": "sentences on what one may not expect",
}
FINDINGS = {"findings": "list of [findings](#finding)"}

# Name of the object: (what it is, where to find it: commands and the way to it in their output, keys).
# A way is a list of keys; "*" goes into each member of a list.
OBJECTS = {
    "ls --json": (
        "Tensors, or members where a format has no tensors. `--jsonl` prints the tensors or members alone.",
        [(["ls", "--json", GOOD], []), (["ls", "--json", CUT], []), (["ls", "--json", INDEX, "-f", "json"], [])],
        SCHEMA
        | FILE
        | FORMAT
        | {
            "tensors": "list of [tensors](#tensor); empty where there are members",
            "members": "list of [members](#member); empty where there are tensors",
            "status": "of the whole document",
            "extent": "[extent](#extent) of a model",
        }
        | FINDINGS,
    ),
    "info --json": (
        "One document about the file.",
        [
            (["info", "--json", GOOD], []),
            (["info", "--json", CUT], []),
            (["info", "--json", INDEX, "-f", "json"], []),
            (["info", "--json", RECORDS], []),
        ],
        SCHEMA
        | FILE
        | FORMAT
        | {
            "description": "the format in words",
            "status": "of the whole document",
            "size": "bytes that are there (of a sharded model: of all shards)",
            "extent": "[extent](#extent) of a model",
            "metadata": "what the file says of itself, as plain JSON",
            "kind": "of the root, where there are no tensors",
            "members": "number of members of the root, where there are no tensors",
            "missing_bytes": "bytes that a cut document without tensors lacks at least; null where it does not say, "
            "and where it comes out of a compressed stream",
            "resume_at": "where to resume its download: at its end if it is cut, at the first hole if parts were "
            "never written; null if it is whole or damaged otherwise",
            "resume": "which file that is, as in an [extent](#extent); inside an archive, the outermost one",
            "details": "what only this format knows, label to text, where there are no tensors",
        }
        | FINDINGS,
    ),
    "tree --json": (
        "Nodes, depth first. `--jsonl` prints the nodes alone.",
        [(["tree", "--json", GOOD, "-d", "all"], []), (["tree", "--json", "-n", "1", CUT], [])],
        SCHEMA
        | FILE
        | FORMAT
        | {"nodes": "list of [nodes](#node)", "omitted": "number of children not shown because of `-n`"}
        | FINDINGS,
    ),
    "get --json, of a tensor": (
        "A tensor, or a slice of one.",
        [(["get", "--json", GOOD, "ln_f.weight[:2]"], [])],
        SCHEMA
        | FILE
        | {
            "name": "of the tensor",
            "dtype": "name of the element type in numpy or ml_dtypes",
            "shape": "of what was asked for",
            "status": "of the tensor",
            "data": "nested lists of numbers; `NaN`, `Infinity` and `-Infinity` are strings, complex numbers pairs",
        },
    ),
    "get --json, of a node": (
        "A node and all below it.",
        [(["get", "--json", GOOD, "metadata"], []), (["get", "--json", RECORDS, "348/0[0:4]"], [])],
        SCHEMA
        | FILE
        | {
            "path": "of the node",
            "kind": "the format's word for it",
            "status": "of the node",
            "value": 'plain JSON; bytes as `{"hex": "…"}`',
            "offset": "of a slice: where it begins in the record or the member (bytes), or in the text (characters)",
        },
    ),
    "check --json": (
        "Everything that was found. `--jsonl` prints the findings alone, as they are made.",
        [(["check", "--json", GOOD], []), (["check", "--json", CUT], []), (["check", "--json", RECORDS], [])],
        SCHEMA
        | FILE
        | FORMAT
        | {
            "strict": "whether `--strict` was given",
            "status": "of the whole document",
            "ok": "true if the exit code is 0",
            "extent": "[extent](#extent) of a model, else null",
            "missing_bytes": "bytes that a cut document without tensors lacks at least; null where it does not say, "
            "and where it comes out of a compressed stream",
            "resume_at": "where to resume its download: at its end if it is cut, at the first hole if parts were "
            "never written; null if it is whole or damaged otherwise",
            "resume": "which file that is, as in an [extent](#extent); inside an archive, the outermost one",
        }
        | FINDINGS,
    ),
    "graph --json": (
        "The graph of a TensorFlow model, or what `--outputs` need of it. `--jsonl` prints nodes, then edges.",
        [(["graph", "--json", "GRAPH"], []), (["graph", "--json", "GRAPH", "--function", "twice"], [])],
        SCHEMA
        | FILE
        | FORMAT
        | {
            "function": "the function whose body it is; null for the graph",
            "node_count": "number of nodes",
            "edge_count": "number of edges, of data and control",
            "control_edge_count": "how many of them are of control",
            "operations": "number of nodes per operation, the most frequent first",
            "inputs": "names of what must be fed: placeholders, or the arguments of a function",
            "outputs": "names of nodes that no other consumes; with `--outputs`, those",
            "functions": "names of the functions of the graph",
            "results": "of a function: name to what it is (`argument` or `node:output:0`)",
            "signatures": "of a SavedModel: name to [signature](#signature)",
            "nodes": "list of [graph nodes](#graph-node)",
            "edges": "list of [edges](#edge)",
            "status": "of the document; `damaged` if the graph has a finding of severity `error`",
        }
        | FINDINGS,
    ),
    "extract --json": (
        "What was written; `recover --json` prints the same.",
        [
            (["extract", "--json", ARCHIVE, "-o", "OUT.extracted"], []),
            (["recover", "--json", CUT_ARCHIVE, "-o", "OUT.recovered"], []),
        ],
        SCHEMA
        | FILE
        | {
            "output": "the folder",
            "files": "list of files, as in [RECOVERY.json](recovery.md#recoveryjson), without the gaps",
            "summary": "numbers of files by status, of those verified and not written, of bytes and gaps",
            "limits": "list of limits that cost files something: the `option` that lifts one, and how many `files`",
        }
        | FINDINGS,
    ),
    "split --json": (
        "What was written.",
        [
            (["split", "--json", "GRAPH", "-o", "OUT.split"], []),
            (["split", "--json", "MODEL", "-o", "OUT.folder", "--max-size", "20KiB"], []),
        ],
        SCHEMA
        | FILE
        | {
            "output": "the file with the message: a `.cpb`, or a `.pb` if it is within the limit",
            "type": "full name of the message type",
            "chunked": "whether it is a `.cpb`",
            "message_size": "bytes of the whole message",
            "size": "bytes of the file written",
            "limit": "the largest size that a message chunk may have",
            "chunks": "number of chunks; 0 in a `.pb`",
            "chunked_fields": "number of chunks that are for a part of the message: all but the first",
            "largest_chunk": "bytes of the largest chunk (of raw bytes, it may be above the limit)",
            "compression": "the options of the Riegeli writer, as given",
        }
        | COPIED,
    ),
    "merge --json": (
        "What was written.",
        [(["merge", "--json", CHUNKED, "-o", "OUT.pb"], []), (["merge", "--json", CHUNKED, "-o", "OUT.merged"], [])],
        SCHEMA
        | FILE
        | {
            "output": "the file with the message",
            "type": "full name of the message type",
            "size": "bytes of the message",
            "chunks": "number of chunks that it was in",
            "merged_messages": "number of messages in it that were put together anew",
            "verify": "which hashes of chunks were checked: `all`, `touched`, `headers`",
            "too_large_for_protobuf": "true above 2 GiB - 1, where protobuf and TensorFlow cannot parse it",
        }
        | COPIED,
    ),
    "formats --json": (
        "The registry.",
        [(["formats", "--json"], [])],
        SCHEMA
        | {
            "formats": "list of [formats](#format)",
            "named": "formats that are recognised but not read yet: `name`, `extensions`, `description`, `told_by`, "
            "`read_by`",
            "failed": "plug-ins that could not be loaded: name to reason",
        },
    ),
    "tensor": (
        "One tensor in `ls`.",
        [(["ls", "--json", CUT], ["tensors", "*"]), (["ls", "--json", "BAD"], ["tensors", "*"])],
        {
            "name": "the second of two of one name is `name#2`",
            "dtype": "name of the element type in numpy or ml_dtypes; null if it is not known",
            "stored_dtype": "the format's own word",
            "shape": "list of lengths",
            "nbytes": "bytes of the array in memory",
            "status": "of the tensor",
            "verified": "true: a checksum confirmed it; false: contradicts; null: none exists, or none was checked",
            "spans": "list of [spans](#span): where its bytes are",
            "finding": "[finding](#finding): what is wrong with it",
        },
    ),
    "span": (
        "A stretch of bytes.",
        [(["ls", "--json", GOOD], ["tensors", "*", "spans", "*"])],
        {"file": "the file, as an extraction path", "offset": "of the first byte", "length": "in bytes"},
    ),
    "member": (
        "One member in `ls` of a document without tensors.",
        [
            (["ls", "--json", INDEX, "-f", "json"], ["members", "*"]),
            (["ls", "--json", RECORDS], ["members", "*"]),
            (["ls", "--json", ARCHIVE], ["members", "*"]),
        ],
        {
            "name": "key, `[3]` in a list, or a name that the format has for it (`64/3`)",
            "size": "in bytes, as stored; of a record in a compressed chunk, its own",
            "status": "as far as it was looked into",
            "kind": "the format's word for it",
            "packed": "bytes it takes in the archive (this and what follows: of members of archives)",
            "offset": "where they begin",
            "method": "of compression; `stored` if there is none",
            "mtime": "time of the last change, in seconds since 1970; null if unknown",
            "mode": "permission bits; null if unknown",
            "link": "where a link leads",
            "crc32": "CRC-32 of the content, eight hex digits; null where the archive has none",
        },
    ),
    "extent": (
        "How large a model is, and should be.",
        [(["info", "--json", GOOD], ["extent"]), (["info", "--json", CUT], ["extent"])],
        {
            "actual": "bytes that are there",
            "expected": "bytes that should be there",
            "expected_at_least": "true if there may be more, because the header itself is cut",
            "missing_bytes": "the difference",
            "first_hit": "first tensor that is not whole, in the order of bytes",
            "resume_at": "byte from which a download should go on",
            "resume_file": "the file of that byte; inside an archive, the outermost one",
            "resume": "every file to resume (`file`, and `at` which byte) or to fetch (`at` 0)",
            "tensors": "number of tensors",
            "whole": "how many of them are complete",
            "truncated": "how many begin inside the file and end beyond it",
            "missing": "how many lie wholly beyond it, or in a file that is not there",
            "damaged": "how many fail a check",
            "unsupported": "how many cannot be read",
            "unwritten": "how many lie in holes of the file, which read as zeros",
            "verified": "how many whole ones a checksum confirmed",
            "tensor_bytes": "bytes of all tensors as stored",
            "parameters": "number of elements per dtype",
        },
    ),
    "node": (
        "One node in `tree`.",
        [(["tree", "--json", GOOD, "-d", "all"], ["nodes", "*"]), (["tree", "--json", "BAD.json"], ["nodes", "*"])],
        {
            "path": "from the root; the root's is empty",
            "depth": "below the node that was asked for",
            "kind": "the format's word for it",
            "status": "null while only loading could tell",
            "offset": "of the first byte",
            "length": "in bytes; null while its end is not known",
            "loaded": "whether the value is there",
            "value": "of a scalar that is loaded",
            "reason": "what is wrong with it",
        },
    ),
    "graph-node": (
        "One node in `graph`.",
        [(["graph", "--json", "GRAPH"], ["nodes", "*"])],
        {
            "name": "of the node",
            "op": "the operation",
            "inputs": "what it consumes: `node`, `node:1`, `^node`; in a function also `argument` and `node:output:0`",
            "device": "where it is to run; often empty",
        },
    ),
    "edge": (
        "One edge in `graph`.",
        [(["graph", "--json", "GRAPH"], ["edges", "*"])],
        {
            "source": "name of the node, or argument, that it comes from",
            "output": "number of its output; in a function `name:number`, null for an argument; null of control",
            "target": "name of the node that it goes to",
            "input": "number of its input; null of control",
            "control": "whether it is an edge of control, which says only what runs first",
        },
    ),
    "signature": (
        "One signature of a SavedModel in `graph`.",
        [(["graph", "--json", "GRAPH"], ["signatures", "serving_default"])],
        {
            "inputs": "name to the name of a tensor (`node:0`)",
            "outputs": "likewise",
            "method_name": "as the file has it",
        },
    ),
    "finding": (
        "One thing that is odd or wrong.",
        [(["check", "--json", CUT], ["findings", "*"])],
        {
            "code": "a word that stays the same between versions",
            "severity": "`note`, `warning` or `error`",
            "path": "of the node or tensor; empty for the document",
            "source": "the file",
            "offset": "of the first byte concerned",
            "length": "in bytes",
            "wanted": "a number or text, as the reason says",
            "got": "likewise",
            "reason": "a sentence for people",
            "option": "what lifts the limit that it is about; null where it is about none",
            "fault": "what kind of contradiction it is, where one was found: `checksum`, `length`, `trailing` …",
        },
    ),
    "format": (
        "One format in `formats`.",
        [(["formats", "--json"], ["formats", "*"])],
        {
            "name": "for `-f`",
            "description": "in words",
            "extensions": "of file names",
            "media_type": "MIME type",
            "from": "`built in` or `plug-in`",
            "refines": "generic formats it is made of",
            "root_at": "`front` or `back`: where its map is",
            "viewer": "whether it has tensors",
            "options": "for `-O`: name to meaning",
            "limitations": "what it does not do",
            "references": "where the format is described",
        },
    ),
}


def run(*arguments: str) -> str:
    """Return what a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(arguments)
    return out.getvalue()


def broken(folder: Path) -> dict[str, str]:
    """Write files with something wrong in them."""
    header = b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'
    (folder / "bad.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    (folder / "bad.json").write_text('{"a": tru}')
    (folder / "saved_model.pb").write_bytes(small_model())
    run("merge", CHUNKED, "-o", str(folder / "model"))
    return {
        "BAD": str(folder / "bad.safetensors"),
        "BAD.json": str(folder / "bad.json"),
        "GRAPH": str(folder / "saved_model.pb"),
        "MODEL": str(folder / "model"),
        **{f"OUT.{name}": str(folder / f"out.{name}") for name in OUTPUTS},
    }


def small_model() -> bytes:
    """Return a SavedModel with three nodes and a function."""
    from pparse.protos import message_class

    model = message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    graph = meta.graph_def
    graph.node.add(name="x", op="Placeholder")
    graph.node.add(name="ready", op="NoOp")
    graph.node.add(name="y", op="twice", input=["x:0", "^ready"])
    function = graph.library.function.add()
    function.signature.name = "twice"
    function.signature.input_arg.add(name="a")
    function.node_def.add(name="sum", op="AddV2", input=["a", "a"])
    function.ret["out"] = "sum:z:0"
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name, signature.outputs["y"].name = "x:0", "y:0"
    return bytes(model.SerializeToString())


def follow(found: object, way: list[str]) -> list[dict[str, object]]:
    """Return the objects that ``way`` leads to."""
    reached = [found]
    for step in way:
        if step == "*":
            reached = [item for items in reached for item in items]
        else:
            reached = [item[step] for item in reached]
    return reached


def table(name: str, files: dict[str, str]) -> str:
    """Return the section on one object, after comparing it with real ones."""
    text, places, keys = OBJECTS[name]
    found = []
    for arguments, way in places:
        found += follow(json.loads(run(*(files.get(word, word) for word in arguments))), way)
    seen = {key for item in found for key in item}
    if seen != set(keys):
        raise SystemExit(f"{name}: not told of {sorted(seen - set(keys))}; not there {sorted(set(keys) - seen)}")
    rows = []
    for key, meaning in keys.items():
        optional = "" if all(key in item for item in found) else " *(optional)*"
        rows.append(f"| `{key}` | {meaning}{optional} |")
    title = f"`pparse {name.partition(',')[0]}`{''.join(name.partition(',')[1:])}" if " " in name else name
    return f"### {title}\n\n{text}\n\n| key | |\n|---|---|\n" + "\n".join(rows) + "\n"


def make() -> str:
    """Return the page."""
    before = os.environ.get("COLUMNS"), Path.cwd()
    os.environ["COLUMNS"] = "100"
    os.chdir(ROOT)
    try:
        parts = [HEAD, f"```text\n{run('--help')}```\n"]
        parts += [f"### pparse {name}\n\n```text\n{run(name, '--help')}```\n" for name in COMMANDS]
        parts += [EXIT_CODES, OUTPUT, JSON_HEAD]
        with tempfile.TemporaryDirectory() as folder:
            files = broken(Path(folder))
            parts += [table(name, files) for name in OBJECTS]
        return "\n".join(parts)
    finally:
        os.chdir(before[1])
        if before[0] is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before[0]


if __name__ == "__main__":
    PAGE.write_text(make(), encoding="utf-8")
