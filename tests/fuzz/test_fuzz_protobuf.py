"""Any bytes give a tree, or one of our errors: in bounded time, and within the budget."""

from __future__ import annotations

import io
import random

from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError, Status
from pparse.errors import EngineError, LimitError
from pparse.protos import descriptor_set, message_class
from pparse.riegeli import RecordWriter
from pparse.testing.contract import tree_of
from tests import sweep
from tests.interop.tensorflow.chunked import ALL, RandomCase, all_class, descriptors
from tests.protobuf_referee import tagged, varint
from tests.riegeli_damage import bounded

BUDGET = "4MiB"
MOST_CALLS = 1_500_000
MOST_NODES = 3_000

Metadata = message_class("tensorflow.proto_splitter.ChunkMetadata")

# -- what is tried ---------------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 17, 18, 24, 127, 128, 1 << 16, (1 << 29) - 1, 1 << 32, (1 << 64) - 1])
FIELD_NUMBERS = st.integers(1, 40) | st.sampled_from([0, 1000, (1 << 29) - 1, 1 << 29])
LEAVES = st.one_of(
    st.builds(
        lambda number, value, length: tagged(number, 0, varint(value, length)),
        FIELD_NUMBERS,
        NUMBERS,
        st.integers(1, 11),
    ),
    st.builds(lambda number, value: tagged(number, 1, value), FIELD_NUMBERS, st.binary(min_size=6, max_size=8)),
    st.builds(lambda number, value: tagged(number, 5, value), FIELD_NUMBERS, st.binary(min_size=3, max_size=4)),
    st.builds(lambda number, value: tagged(number, 2, value), FIELD_NUMBERS, st.binary(max_size=12)),
    st.builds(lambda number, value: varint(number << 3 | 2) + varint(value), FIELD_NUMBERS, NUMBERS),
    st.builds(lambda number, wire: varint(number << 3 | wire), FIELD_NUMBERS, st.integers(0, 7)),
)
MESSAGES = st.recursive(
    st.lists(LEAVES, max_size=5).map(b"".join),
    lambda below: st.lists(
        LEAVES
        | st.builds(lambda number, value: tagged(number, 2, value), FIELD_NUMBERS, below)
        | st.builds(lambda number, value: tagged(number, 3, value), FIELD_NUMBERS, below),
        max_size=5,
    ).map(b"".join),
    max_leaves=8,
)


@st.composite
def metadata(draw) -> bytes:
    """Metadata of chunks: perhaps right, perhaps nearly, perhaps nonsense."""
    made = Metadata()
    made.version.join_version = draw(st.sampled_from([0, 0, 0, 1, -1]))
    for _ in range(draw(st.integers(0, 3))):
        made.chunks.add(type=draw(st.integers(0, 3)), size=draw(NUMBERS), offset=draw(st.integers(60, 72) | NUMBERS))
    level = [made.message]
    for _ in range(draw(st.integers(0, 5))):
        node = draw(st.sampled_from(level))
        if draw(st.booleans()):
            node.chunk_index = draw(st.integers(0, 3) | NUMBERS)
        field = node.chunked_fields.add()
        if draw(st.booleans()):
            field.message.chunk_index = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(0, 4))):
            step = field.field_tag.add()
            kind = draw(st.sampled_from(["field", "field", "index", "key", "none"]))
            if kind == "field":
                step.field = draw(st.integers(0, 40))
            elif kind == "index":
                step.index = draw(st.integers(0, 3) | NUMBERS)
            elif kind == "key":
                setattr(step.map_key, *draw(st.sampled_from([("s", "a"), ("boolean", True), ("i32", -1), ("ui64", 1)])))
        level.append(field.message)
    raw = made.SerializeToString()
    if draw(st.booleans()):
        raw += draw(MESSAGES)
    return raw


def records(*contents: bytes) -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options="uncompressed") as writer:
        writer.write_records(list(contents))
    return out.getvalue()


# -- what must hold --------------------------------------------------------------------------------------------------


def look(data: bytes, name: str, **options) -> list:
    """Look at everything, twice; return the tree."""
    try:
        extraction = pparse.open(data, format=name, options=options, budget=BUDGET)
    except EngineError:
        raise
    except PparseError:
        return []
    with extraction as doc:
        leaves = tree_of(doc, MOST_NODES)
        for leaf in leaves:
            assert leaf.start >= 0
            assert leaf.status in (None, *Status)
        try:
            said = list(doc.check())
        except LimitError as error:  # a window that a flipped bit made larger than the budget
            if "--budget" not in error.option:
                raise
            return leaves
        damaged = [leaf for leaf in leaves if leaf.status in (Status.DAMAGED, Status.TRUNCATED)]
        assert said or not damaged, damaged[:3]
        for leaf in leaves[:: max(1, len(leaves) // 30)]:
            node = doc.node(leaf.path)
            assert (node.kind, node.path) == (leaf.kind, leaf.path)
        assert doc.session.budget.peak <= doc.session.budget.limit
        doc.root.unload()
        # A check may have found damage in what a later value replaces, and changed the status of a message.
        again = tree_of(doc, MOST_NODES)
        assert [(leaf.path, leaf.kind, repr(leaf.value)) for leaf in again] == [
            (leaf.path, leaf.kind, repr(leaf.value)) for leaf in leaves
        ]
        return leaves


def survives(data: bytes) -> None:
    with bounded(MOST_CALLS):
        plain = look(data, "protobuf")
        typed = look(data, "protobuf", message=ALL, descriptor=descriptors())
        look(data, "protobuf", message="tensorflow.GraphDef")
        for leaves in (plain, typed):
            assert all(leaf.start <= len(data) for leaf in leaves)
    try:
        all_class().FromString(data)
    except DecodeError:
        return
    if typed and typed[0].status is not Status.COMPLETE:
        # upb passes over unknown groups without a look at the numbers in them.
        with pparse.open(data, format="protobuf", options={"message": ALL, "descriptor": descriptors()}) as doc:
            wrong = [finding for finding in doc.check() if finding.code != "unknown-fields"]  # that one is a doubt
            assert wrong
            assert all("field number 0" in finding.reason for finding in wrong)


# -- and now ---------------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(60))
@given(data=st.binary(max_size=120))
@example(data=b"")
@example(data=b"\x0b" * 20)
@example(data=b"\x8a\x01\x40\x9b\x06\x08\x01")
def test_any_bytes(data):
    survives(data)


@settings(max_examples=sweep.examples(150))
@given(data=MESSAGES)
@example(data=tagged(17, 2, b"\x0b\x0b"))
@example(data=b"\x8a\x01\xff\x01\x0b\x08\x01")
@example(data=b"\xc0>\x00\x0b\x00\x00\x0c")
def test_fields_of_any_contents(data):
    survives(data)


@settings(max_examples=sweep.examples(60))
@given(seed=st.integers(0, 50), data=st.data())
def test_messages_that_are_nearly_right(seed, data):
    raw = bytearray(RandomCase(seed).body(2).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3) | LEAVES)
    survives(bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw))


@settings(max_examples=sweep.examples(100))
@given(about=metadata(), contents=st.lists(MESSAGES | st.sampled_from([b"5", b"true", b"text"]), max_size=3))
def test_chunks_with_any_metadata(about, contents):
    with bounded(MOST_CALLS):
        data = records(*contents, about)
        look(data, "cpb", message=ALL, descriptor=descriptors(), versions="any")
        look(data, "cpb")


@settings(max_examples=sweep.examples(60))
@given(seed=st.integers(0, 200), data=st.data())
def test_chunked_files_that_are_nearly_right(seed, data):
    raw = bytearray(RandomCase(seed).data())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    with bounded(2 * MOST_CALLS):
        look(bytes(raw), "cpb", message=ALL, descriptor=descriptors())


def test_trees_that_come_back_to_themselves():
    """A chunk that is used at each level costs each level, and no more."""
    made = Metadata()
    raw = all_class()(int32=1).SerializeToString()
    made.chunks.add(type=1, size=len(raw), offset=64)
    node = made.message
    for _ in range(90):
        node.chunk_index = 0
        field = node.chunked_fields.add()
        field.field_tag.add(field=17)
        node = field.message
    node.chunk_index = 0
    with bounded(MOST_CALLS):
        leaves = look(records(raw, made.SerializeToString()), "cpb", message=ALL, descriptor=descriptors())
    assert leaves[-1].path.startswith("one.one.one")


def test_lengths_that_would_take_all_memory():
    """What is claimed is not allocated."""
    import tracemalloc

    raw = descriptor_set()[: None if sweep.full else 6_000]
    chooser = random.Random(0)
    large = [b"\x12" + varint(1 << power) for power in (31, 62)]
    large += [tagged(17, 2, head + bytes(20)) for head in large] + [b"\xaa\x01" + varint(1 << 40) + b"\x01" * 50]
    for data in [*sweep.sample(large, 1), raw[: chooser.randrange(len(raw))]]:
        tracemalloc.start()
        try:
            look(data, "protobuf", message=ALL, descriptor=descriptors())
            look(data, "protobuf")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20
