"""Damaged .npy files: a tensor or one of our errors; and what numpy reads, too, is the same."""

from __future__ import annotations

import io
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import EngineError
from pparse.findings import Status
from tests import sweep
from tests.numpy_files import npy

SAMPLES = [
    npy(np.arange(6, dtype="<i4").reshape(2, 3)),
    npy(np.asfortranarray(np.arange(6.0).reshape(2, 3)), version=(2, 0)),
    npy(np.zeros(2, [("a", "<f4", (2,)), ("b", [("c", ">i2")]), ("d", "|S3")])),
    npy(np.array(["2020-01-01"], "M8[D]")),
]
PIECES = st.sampled_from(b"'\"()[]{},:<>|0123456789fiucbSUVMm \n".decode()) | st.characters(max_codepoint=255)
EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "insert"]), st.integers(0, 150), PIECES), min_size=1, max_size=4
)


def damaged(content: bytes, edits: list[tuple[str, int, str]]) -> bytes:
    out = bytearray(content)
    for what, at, piece in edits:
        at = min(at, len(out) - 1)
        raw = piece.encode("latin-1")
        out[at : at + (what != "insert")] = b"" if what == "drop" else raw
    return bytes(out)


@settings(max_examples=4_000 if sweep.full else 150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SAMPLES), EDITS)
def test_a_damaged_array_is_what_numpy_reads_or_told(sample, edits):
    content = damaged(sample, edits)
    try:
        with pparse.view(content, format="npy") as model:
            (tensor,) = model.tensors()
            list(model.check())
            got = tensor.numpy() if tensor.status is Status.COMPLETE else None
    except EngineError:
        raise
    except pparse.PparseError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = np.load(io.BytesIO(content))
        except Exception:  # whatever numpy raises: it refuses it, and may do so for fewer reasons than we know
            return
    if got is not None:
        assert got.shape == wanted.shape
        assert got.astype(wanted.dtype).tobytes() == np.ascontiguousarray(wanted).tobytes()
    else:
        assert tensor.finding is not None or tensor.status in (Status.TRUNCATED, Status.MISSING)
