"""Damaged TFRecord files, with gaps or without: a tree or one of our errors, and no record that was not there."""

from __future__ import annotations

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.data.base import Gap
from pparse.errors import EngineError, PparseError
from pparse.findings import Status
from pparse.testing.fakes import FakeData
from tests import sweep
from tests.contract.test_tfrecord_contract import TestTfrecord as Contract
from tests.tfrecord_files import example, head, sound_records, tfrecord

LARGE = tfrecord([example(number=[number], data=[bytes([number]) * number * 9]) for number in range(12)])
SAMPLES = [*Contract.samples.values(), LARGE]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "drop", "insert", "head", "copy"]),
        st.integers(0, len(LARGE)),
        st.binary(min_size=1, max_size=12),
        st.integers(0, 2**64 - 1) | st.integers(0, 300),
    ),
    min_size=1,
    max_size=5,
)
GAPS = st.lists(st.tuples(st.integers(0, len(LARGE)), st.integers(1, 300) | st.none(), st.booleans()), max_size=3)


def damaged(content, edits):
    out = bytearray(content)
    for what, at, some, number in edits:
        at = min(at, len(out))
        if what == "set":
            out[at : at + len(some)] = some
        elif what == "cut":
            del out[at:]
        elif what == "drop":
            del out[at : at + 9 * len(some)]
        elif what == "insert":
            out[at:at] = some * 5
        elif what == "head":  # whose checksum is right
            out[at : at + 12] = head(number)
        elif what == "copy":
            out[at:at] = out[: 20 * len(some)]
    return bytes(out)


def gaps_of(found):
    gaps, end = [], 0
    for at, length, exact in sorted(found, key=lambda gap: gap[0]):
        if at > end:
            gaps.append(Gap(at, length, exact))
            if length is None:
                break
            end = at + length
    return tuple(gaps)


@settings(max_examples=sweep.examples(250))
# A record that is wrong reaches into one that is sound.
@hypothesis.example(SAMPLES[0], [("head", 72, b"\0", 13), ("copy", 84, b"\0\0", 0)], [])
@given(st.sampled_from(SAMPLES), EDITS, GAPS)
def test_damaged_files(content, edits, gaps):
    data = FakeData(damaged(content, edits))
    data.gaps = gaps_of(gaps)
    known = set(sound_records(content))
    copied = any(what in ("head", "insert", "set", "copy") for what, *_ in edits)
    try:
        with pparse.open(data, format="tfrecord", options={"message": "none"}) as document:
            found = read(document)
            whole = [value for _, status, value in found if status is Status.COMPLETE and value is not None]
            if document.status is Status.COMPLETE and not copied and not data.gaps:
                assert set(whole) <= known
            document.root.unload()
            assert read(document) == found
        with pparse.open(data, format="tfrecord", block_size=7, options={"message": "none"}) as document:
            assert read(document) == found
    except EngineError:
        raise
    except PparseError:
        pass


def read(document):
    """Return kind, status and value of each record once all is checked."""
    list(document.check())
    found = []
    for node in document.root.children():
        try:
            value = node.load() if node.kind == "record" else None
        except EngineError:
            raise
        except PparseError:
            value = None
        found.append((node.kind, node.status, value))
    return found


@settings(max_examples=sweep.examples(200))
@given(st.sampled_from(SAMPLES), EDITS)
def test_damaged_files_as_messages(content, edits):
    try:
        with pparse.open(damaged(content, edits), format="tfrecord") as document:
            for _ in document.walk():
                pass
            list(document.check())
            list(document.result.listing.details())
            for member in document.result.listing.members():
                assert document.result.listing.find_member(member.name) is not None
    except EngineError:
        raise
    except PparseError:
        pass
