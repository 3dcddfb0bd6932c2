from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pparse.parsers.flatbuffers.formats import (
    CatboostParser,
    ExecutorchDataParser,
    ExecutorchParser,
    MnnParser,
    OrtParser,
)
from tests import sweep
from tests.sparse_contract import SparseContract

if TYPE_CHECKING:
    from collections.abc import Iterable

DATA = Path(__file__).parents[1] / "data" / "flatbuffers"


class RealFiles(SparseContract):
    """Files as their own libraries write them: larger than samples by hand, so fewer cuts and changes are tried."""

    changes = (0xFF,)

    def cuts(self, size: int) -> Iterable[int]:
        return sweep.some(range(size), 160, ends=8)

    def changed(self, size: int) -> Iterable[tuple[int, int]]:
        return [(at, 0xFF) for at in sweep.some(range(size), 160, ends=8)]

    def failing(self) -> Iterable[int]:
        return range(1, 4)

    def is_whole(self, name: str, prefix: bytes) -> bool:
        rest = self.samples[name][len(prefix) :]
        return len(rest) < 4 and not any(rest)


class TestOrt(RealFiles):
    parser = OrtParser
    samples = {"model": (DATA / "small.ort").read_bytes()}


class TestExecutorch(RealFiles):
    parser = ExecutorchParser
    samples = {"program": (DATA / "small.pte").read_bytes()}

    def is_whole(self, name: str, prefix: bytes) -> bool:
        return not any(self.samples[name][len(prefix) :])  # zeros that pad the last segment


class TestExecutorchData(TestExecutorch):
    parser = ExecutorchDataParser
    samples = {"tensors": (DATA / "external.ptd").read_bytes()}


class TestMnn(RealFiles):
    parser = MnnParser
    samples = {"network": (DATA / "small.mnn").read_bytes()}

    def test_recognises_its_samples(self) -> None:
        """It has no magic number: only the extension asks for it."""


class TestCatboost(RealFiles):
    parser = CatboostParser
    samples = {"trees": (DATA / "small.cbm").read_bytes()}
