"""Writes the table of built-in formats from the parsers' classes: ``python tests/make_builtin_formats.py``.

The table tells the registry of every format without importing a parser. Run this after a change of a parser's name,
signatures, extensions, viewer or place; a new parser goes into ``PARSERS``, in the order in which formats are listed.
The parsers of compressed streams are not here: `pparse.codecs.table` describes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pparse.document.registry import import_dotted  # noqa: E402 -- the folder was just added
from pparse.tree.parser import Parser  # noqa: E402

TABLE = ROOT / "pparse/document/builtin_formats.py"
PARSERS = (
    "pparse.parsers.safetensors.parser:SafetensorsParser",
    "pparse.parsers.safetensors.index:SafetensorsIndexParser",
    "pparse.parsers.safetensors.folder:SafetensorsFolderParser",
    "pparse.parsers.json.parser:JsonParser",
    "pparse.parsers.json.lines:JsonLinesParser",
    "pparse.parsers.riegeli.parser:RiegeliParser",
    "pparse.parsers.cpb.parser:CpbParser",
    "pparse.parsers.tensorflow:SavedModelParser",
    "pparse.parsers.tensorflow:GraphDefParser",
    "pparse.parsers.tensorflow:MetaGraphParser",
    "pparse.parsers.tensorflow:SavedModelFolderParser",
    "pparse.parsers.tensorflow_text:TensorflowTextParser",
    "pparse.parsers.onnx.parser:OnnxParser",
    "pparse.parsers.onnx.json_model:OnnxJsonParser",
    "pparse.parsers.checkpoint.parser:CheckpointParser",
    "pparse.parsers.checkpoint.beside:CheckpointDataParser",
    "pparse.parsers.checkpoint.beside:CheckpointStateParser",
    "pparse.parsers.checkpoint.beside:CheckpointFolderParser",
    "pparse.parsers.protobuf.parser:ProtobufParser",
    "pparse.parsers.tfrecord.parser:TfrecordParser",
    "pparse.parsers.gguf.parser:GgufParser",
    "pparse.parsers.pickle.parser:PickleParser",
    "pparse.parsers.pytorch.index:PyTorchIndexParser",
    "pparse.parsers.pytorch.folder:PyTorchFolderParser",
    "pparse.parsers.pytorch.legacy:PyTorchLegacyParser",
    "pparse.parsers.pytorch.tar:PyTorchTarParser",
    "pparse.parsers.pytorch.zip:PyTorchZipParser",
    "pparse.parsers.numpy.npy:NpyParser",
    "pparse.parsers.numpy.npz:NpzParser",
    "pparse.parsers.msgpack.parser:MsgpackParser",
    "pparse.parsers.msgpack.flax:FlaxParser",
    "pparse.parsers.zip.parser:ZipParser",
    "pparse.parsers.tar.parser:TarParser",
    "pparse.parsers.model_folder:ModelFolderParser",
)
HEAD = '''"""What the parsers' classes say, for the registry: written by ``python tests/make_builtin_formats.py``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# The arguments of `pparse.document.registry.Builtin`, a format a row.
# fmt: off
ROWS: Final[tuple[tuple[Any, ...], ...]] = (
'''


def row(dotted: str) -> tuple[object, ...]:
    """Return the row of one parser."""
    parser: type[Parser] = import_dotted(dotted)
    return (
        parser.name,
        dotted,
        parser.viewer,
        tuple((mark.at, mark.magic) for mark in parser.signatures),
        parser.extensions,
        parser.is_generic,
        parser.reads == "folder",
        parser.named_is_enough,
        # What refines a format is not looked for where even that one does not begin.
        not parser.refines and parser.match_further.__func__ is not Parser.match_further.__func__,  # type: ignore[attr-defined]
        parser.is_data_set,
    )


def line(dotted: str) -> str:
    """Return the line of one parser."""
    found = f"    {row(dotted)!r},"
    return found + ("  # noqa: E501\n" if len(found) > 120 else "\n")


def table() -> str:
    """Return the module's text."""
    return HEAD + "".join(map(line, PARSERS)) + ")\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
