"""Damaged ONNX models: a tree, tensors and a graph, or one of our errors, the same whatever the block size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import EngineError, PparseError
from tests import sweep
from tests.contract.test_onnx_contract import small
from tests.fuzz.test_fuzz_gguf import EDITS, damaged
from tests.onnx_models import branching

SAMPLES = [small(), branching().SerializeToString()]


def attempt(ask):
    try:
        return ask()
    except EngineError:
        raise
    except PparseError as error:
        return type(error).__name__


def look(content: bytes, **how: int) -> list[object]:
    found: list[object] = []
    with pparse.view(content, format="onnx", budget="8MiB", **how) as model:
        for tensor in model.tensors():
            value = attempt(lambda tensor=tensor: tensor.numpy().tolist().__repr__())
            found.append((tensor.name, tensor.type_name, tensor.shape, tensor.status, value))
            if tensor.status is pparse.Status.COMPLETE and tensor.dtype is not None:
                assert tensor.nbytes == tensor.size * tensor.itemsize
        found.append((model.extent().status, sorted(str(finding) for finding in model.check())))
        found.append(attempt(lambda: repr(dict(model.metadata))))
        found.append(attempt(lambda: sorted(str(finding) for finding in model.graph.check())))
        found.append(attempt(lambda: [list(body.rows()) for body in model.graph.bodies.values()]))
    return found


@settings(max_examples=sweep.examples(200))
@given(st.sampled_from(SAMPLES), EDITS)
def test_damaged_files(content, edits):
    content = damaged(content, edits)
    assert look(content) == look(content, block_size=7)
