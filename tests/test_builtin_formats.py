"""The table of built-in formats says what the parsers' classes say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pparse.codecs.table import CODECS
from pparse.document.builtin_formats import ROWS
from pparse.document.registry import BUILTINS, import_dotted
from pparse.tree.parser import Confidence, Parser
from tests import make_builtin_formats as make

TESTS = Path(__file__).parent


def test_the_table_has_every_parser_and_is_what_the_classes_say() -> None:
    assert tuple(make.row(dotted) for dotted in make.parsers()) == ROWS


# Files that belong to another format, whose contract and samples have them, or what such a file is written as.
PARTS = {"safetensors-index", "pytorch-index", "tf-checkpoint-data", "tf-checkpoint-state"}
AS_TEXT = {"tensorflow-text", "onnx-json", "coreml-mil"}
# Layouts of a format that has a contract; formats whose samples another one has; those that samples are wrapped in.
NO_CONTRACT = PARTS | AS_TEXT | {"pytorch-tar"}
NO_SAMPLE = PARTS | AS_TEXT | {"meta-graph"} | {"zip", "tar"}


def test_every_format_has_a_contract_and_a_sample_of_the_truth() -> None:
    """A new format gets both: CONTRIBUTING.md tells where."""
    contracts = "".join(path.read_text(encoding="utf-8") for path in (TESTS / "contract").glob("test_*.py"))
    held = set(re.findall(r"^    parser = (\w+)$", contracts, re.M))
    files = [known for known in BUILTINS if not known.folder and known.name not in CODECS]
    assert {known.name for known in files if known.parser.partition(":")[2] not in held} == NO_CONTRACT
    made = "".join(path.read_text(encoding="utf-8") for path in (TESTS / "truth").glob("samples*.py"))
    samples = {name.replace("_", "-") for name in re.findall(r"^@sample\ndef make_(\w+)", made, re.M)}
    without = {known.name for known in files if not any(f"{name}-".startswith(f"{known.name}-") for name in samples)}
    assert without == NO_SAMPLE


@pytest.mark.parametrize("codec", [codec for codec in CODECS.values() if codec.told_by], ids=lambda codec: codec.name)
def test_the_rows_of_codecs_are_what_their_parsers_say(codec) -> None:
    known = next(known for known in BUILTINS if known.name == codec.name)
    parser = import_dotted(known.parser)
    assert known.magic == make.magic(parser)
    assert (known.extensions, known.generic, known.folder) == (parser.extensions, parser.is_generic, False)
    assert known.named_is_enough is parser.named_is_enough


def test_a_signature_that_is_enough_is_believed() -> None:
    """A class with a strong signature needs no `match`."""
    from pparse import Signature, open

    class Marked(Parser):
        """Marked data."""

        name = "marked"
        description = "marked"
        signatures = (Signature(b"MARK", 2), Signature(b"M", 2, Confidence.POSSIBLE))

    assert open(b"..MARK", parsers=[Marked]).format == "marked"
    with pytest.raises(Exception, match="no parser"):
        open(b"..mARK", parsers=[Marked]).format  # noqa: B018 -- a property that looks


def test_the_table_is_all_that_is_imported_to_recognise_a_file(tmp_path) -> None:
    """Recognising a safetensors file imports no other parser."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((10).to_bytes(8, "little") + b'{"__":{}  ')
    code = f"import sys, pparse; pparse.open({str(path)!r}).format; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    parsers = set(re.findall(r"pparse\.parsers\.(\w+)\.parser", said))
    assert parsers <= {"safetensors", "json"}
