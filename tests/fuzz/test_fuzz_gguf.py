"""Damaged GGUF files: a tree and tensors, or one of our errors, the same whatever the block size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import EngineError, PparseError
from tests import sweep
from tests.contract.test_gguf_contract import mixed

SAMPLES = [mixed(), mixed(order=">"), mixed(version=1)]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "drop", "insert", "number"]),
        st.integers(0, 1_200),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, edits) -> bytes:
    out = bytearray(content)
    for what, at, some in edits:
        at = min(at, len(out))
        if what == "set":
            out[at : at + len(some)] = some
        elif what == "cut":
            del out[at:]
        elif what == "drop":
            del out[at : at + 4 * len(some)]
        elif what == "insert":
            out[at:at] = some
        else:
            out[at : at + 8] = (1 << (some[0] % 64)).to_bytes(8, "little")
    return bytes(out)


def look(content: bytes, **how: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    with pparse.view(content, format="gguf", budget="8MiB", **how) as model:
        for tensor in model.values():
            try:
                value = tensor.numpy(raw=True).tobytes()
            except EngineError:
                raise
            except PparseError as error:
                value = type(error).__name__
            found.append((tensor.name, tensor.type_name, tensor.shape, tensor.status, value))
        found.append((model.extent().status, sorted(str(finding) for finding in model.check())))
        found.append(tuple(model.metadata))
    return found


@settings(max_examples=sweep.examples(200))
@given(st.sampled_from(SAMPLES), EDITS)
def test_damaged_files(content, edits):
    content = damaged(content, edits)
    assert look(content) == look(content, block_size=7)
