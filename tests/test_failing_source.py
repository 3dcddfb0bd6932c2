"""A source that fails once: whoever asked is told, nothing wrong stays behind, and whoever asks again is answered."""

from __future__ import annotations

import io
from typing import Any

import pytest

import pparse
from pparse.errors import PASSING, PparseError
from tests import sweep
from tests.test_threads import SAMPLES
from tests.truth.cases import Case


class Failing(io.BytesIO):
    """A file of which one read, counted from 1, is refused by the system."""

    def __init__(self, content: bytes, name: str, at: int = 0) -> None:
        super().__init__(content)
        self.name = name
        self.reads, self.at = 0, at

    def _count(self) -> None:
        self.reads += 1
        if self.reads == self.at:
            raise OSError(5, "Input/output error")

    def read(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        self._count()
        return super().readinto(buffer)


def value_of(node: Any) -> Any:
    """Return a node's value, or the name of the error, if that is one of the file."""
    try:
        return node.to_python()
    except PASSING:
        raise
    except PparseError as error:
        return type(error).__name__


def ask(document: Any, inner: tuple[str, ...], is_model: bool) -> list[Any]:
    """Ask for the format, the tree, the findings, and the tensors of a model."""
    for name in inner:
        document = document.parse().parser.enter(name)
    found: list[Any] = [document.format, len(document.root)]
    found += [(kid.path, kid.kind, str(kid.status), value_of(kid)) for kid in document.root.children()]
    if is_model:
        viewer = document.view()
        for tensor in viewer.tensors():
            is_read = tensor.is_complete and tensor.dtype is not None
            found.append((tensor.name, tensor.shape, str(tensor.status), tensor.numpy().tobytes() if is_read else None))
    else:
        found += [(visit.path, visit.kind) for visit in document.walk()]
    found += [str(root_status := document.root.status), root_status]
    found += [str(finding) for finding in document.findings if finding.code != "source"]
    return found


COMBINATIONS = [
    (sample, wrapper, named)
    for named in (True, False)
    for wrapper in ("plain", "gz", "zip-stored", "zip-deflated", "tar")
    for sample in SAMPLES
]


# Eleven samples to a wrapping: from one that is looked at to the next, twelve further, both are others.
@pytest.mark.parametrize(("sample", "wrapper", "named"), sweep.some(COMBINATIONS, 4))
def test_a_read_that_fails_once_is_told_and_leaves_nothing_wrong(sample: str, wrapper: str, named: bool) -> None:
    case = Case.parse(f"{sample}/{wrapper}/none/threads")
    is_model = case.sample.kind == "tensors"
    options = {"message": case.sample.message} if case.sample.message else {}
    content, inner, name = case.wrapped.content, case.wrapped.inner, case.wrapped.name
    name = name if named else "<stream>"
    counted = Failing(content, name)
    with pparse.open(counted, options=options) as document:
        try:
            alone = ask(document, inner, is_model)
        except PparseError:
            assert not named  # the format goes by its name
            return
    told = 0
    for at in sweep.some(range(1, counted.reads + 1), 60 if wrapper != "plain" else 15, ends=3):
        source = Failing(content, name, at)
        try:
            document = pparse.open(source, options=options)
        except PASSING:
            continue
        with document:
            try:
                found = ask(document, inner, is_model)
            except PASSING:
                told += 1
                found = ask(document, inner, is_model)
            except PparseError as error:
                pytest.fail(f"read {at}: {type(error).__name__}: {error}")
            assert found == alone, at
    assert told
