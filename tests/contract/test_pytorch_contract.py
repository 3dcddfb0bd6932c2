from __future__ import annotations

from pathlib import Path

from pparse import open as open_document
from pparse.data.base import BytesData
from pparse.parsers.pytorch.dcp import DcpParser
from pparse.parsers.pytorch.distcp import DistcpParser
from pparse.parsers.pytorch.exported import ExportedProgramParser
from pparse.parsers.pytorch.legacy import PyTorchLegacyParser
from pparse.parsers.pytorch.zero import ZeroParser
from pparse.parsers.pytorch.zip import PyTorchZipParser
from tests.dcp_files import METADATA, sample
from tests.pytorch_files import checkpoint, exported, exported_before, legacy_checkpoint, legacy_values, numbered
from tests.sparse_contract import SparseContract

FOLDER = Path(__file__).parent.parent / "data" / "pytorch"


class TestPyTorch(SparseContract):
    parser = PyTorchZipParser
    samples = {
        "two": checkpoint(*numbered(2, 64)).content,
        "tied": (FOLDER / "tied.pt").read_bytes(),
        "deflated": (FOLDER / "deflated.pt").read_bytes(),
    }
    changes = (0x00, 0x01, 0x50, 0x7F, 0xFF)

    def large(self) -> bytes:
        return checkpoint(*numbered(9, 1 << 20)).content


class TestExportedProgram(SparseContract):
    parser = ExportedProgramParser
    samples = {
        "two": exported(*numbered(2, 64)).content,
        "older": exported_before({"state_dict": checkpoint(*numbered(2, 64)).content}, numbered(2, 64)[0]),
    }
    changes = (0x00, 0x50, 0xFF)

    def large(self) -> bytes:
        return exported(*numbered(9, 1 << 20)).content


class TestZero(SparseContract):
    """Alone, without the optimizer's files: a checkpoint as any."""

    parser = ZeroParser
    samples = {"two": checkpoint(*numbered(2, 64)).content}
    changes = (0x00, 0x50, 0xFF)

    def test_recognises_its_samples(self) -> None:
        """By its name only."""
        for name, wanted in (
            ("mp_rank_00_model_states.pt", "deepspeed-zero"),
            ("mp_rank_01_model_states.pt", "pytorch"),
        ):
            with open_document(BytesData(self.samples["two"], name)) as document:
                assert document.format == wanted


class TestDistcp(SparseContract):
    parser = DistcpParser
    samples = {"three": 3 * checkpoint(*numbered(2, 64)).content}
    changes = (0x00, 0x50, 0xFF)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        """It may end behind any archive."""
        return len(prefix) > 0 and not len(prefix) % (len(self.samples["three"]) // 3)

    def test_recognises_its_samples(self) -> None:
        """By its name only: elsewhere archives behind each other are what torch makes of the last one."""
        for name, wanted in (("__0_0.distcp", "pytorch-distcp"), ("model.pt", "pytorch")):
            with open_document(BytesData(self.samples["three"], name)) as document:
                assert document.format == wanted


class TestDcp(SparseContract):
    """Alone, without its shards: the tree of its pickle."""

    parser = DcpParser
    samples = {"made": sample()[0].files[METADATA]}
    changes = (0x00, 0x50, 0xFF)

    def test_every_prefix(self) -> None:
        """Left to ``test_dcp.py``: what a value belongs to is known at its end, so a cut changes paths."""


class TestPyTorchLegacy(SparseContract):
    parser = PyTorchLegacyParser
    samples = {"plain": legacy_values({"epoch": 3, "rates": [0.5, 0.25], "on": [True, None]})}

    def large(self) -> bytes:
        return legacy_checkpoint(*numbered(9, 1 << 20)).content


class TestPyTorchLegacyTensors(SparseContract):
    parser = PyTorchLegacyParser
    samples = {
        "two": legacy_checkpoint(*numbered(2, 64)).content,
        "views": (FOLDER / "legacy" / "storage_views.pt").read_bytes(),
    }

    def test_every_prefix(self) -> None:
        """Left to ``test_pytorch_prefixes.py``: that a tuple is an id is known at its end, so a cut changes paths."""

    def large(self) -> bytes:
        return legacy_checkpoint(*numbered(9, 1 << 20)).content
