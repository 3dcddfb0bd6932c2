"""Any bytes give records, regions, a tree, or one of our errors: in bounded time, and within the budget."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

import pparse
from pparse import PparseError, Status
from pparse.errors import EngineError
from pparse.kernels.varint import encode_varint
from pparse.riegeli import RecordReader, SkippedRegion
from pparse.riegeli.chunks import FILE_SIGNATURE, pack_block
from tests import sweep
from tests.riegeli_damage import bounded, forged, written
from tests.riegeli_fixtures import BLOCK, Pipe, raw

BUDGET = "4MiB"
MOST_CALLS = 1_000_000
LISTS = ("simple", "transposed")

# -- what is tried ---------------------------------------------------------------------------------------------------

SMALL = [
    raw(name)
    for name in (
        "simple_zstd",
        "simple_snappy",
        "simple_brotli",
        "transpose_example",
        "transpose_nonproto_only",
        "chunk_size_1",
        "flush",
        "append_padding",
        "empty_meta",
        "blocks_zero_zstd",
    )
] + [written("uncompressed,chunk_size:60", [b"number %d" % n for n in range(12)])]
SIZES = st.integers(0, 40)
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 127, 128, 255, 1 << 16, (1 << 32) - 1, 1 << 32, (1 << 56) - 1]) | SIZES
HUGE = st.sampled_from([0, 1, 5, 100, 1 << 20, 1 << 32, 1 << 62, (1 << 64) - 1]) | SIZES
OFFSETS = st.integers(0, 3 * BLOCK)
TAGS = st.sampled_from([0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18]) | NUMBERS
VARINTS = st.lists(NUMBERS, max_size=8).map(lambda numbers: b"".join(map(encode_varint, numbers)))
PART = st.binary(max_size=12) | VARINTS
KIND = st.sampled_from([b"\0", b"\0", b"b", b"z", b"s", b"\x01"])


@st.composite
def simple(draw) -> tuple[str, bytes, int, int]:
    """A simple chunk: perhaps valid, perhaps nearly."""
    contents = draw(st.lists(st.binary(max_size=6), max_size=4))
    sizes, values = b"".join(encode_varint(len(content)) for content in contents), b"".join(contents)
    if draw(st.booleans()):
        sizes = draw(PART)
    data = draw(KIND) + encode_varint(len(sizes)) + sizes + values + draw(st.sampled_from([b"", b"", b"x"]))
    count = len(contents) if draw(st.booleans()) else draw(NUMBERS)
    return "r", data, count % (1 << 12), len(values) if draw(st.booleans()) else draw(HUGE)


@st.composite
def transposed(draw) -> tuple[str, bytes, int, int]:
    """A transposed chunk: a state machine of a few states, most of which make no sense."""
    states = draw(st.integers(0, 4))
    tags = draw(st.lists(TAGS, min_size=states, max_size=states))
    moves = draw(st.lists(st.integers(0, 2 * states + 1), min_size=states, max_size=states))
    buffers = draw(st.lists(st.binary(max_size=5), max_size=3))
    bucket = b"".join(buffers)
    header = encode_varint(1 if buffers else 0) + encode_varint(len(buffers))
    header += encode_varint(len(bucket)) if buffers else b""
    header += b"".join(encode_varint(len(buffer)) for buffer in buffers) + encode_varint(states)
    header += b"".join(map(encode_varint, tags)) + b"".join(map(encode_varint, moves)) + draw(PART)
    data = draw(KIND) + encode_varint(len(header)) + header + bucket + draw(st.binary(max_size=6))
    return draw(st.sampled_from("ttm")), data, draw(st.integers(0, 4)), draw(HUGE)


ANYTHING = st.tuples(
    st.sampled_from("smprtZ\0"), st.binary(max_size=30), NUMBERS.map(lambda number: number % (1 << 12)), HUGE
)
CHUNKS = st.lists(simple() | transposed() | ANYTHING, max_size=4)


@st.composite
def mutated(draw) -> bytes:
    """A file with a few bytes changed, lost or put in, perhaps doubled, perhaps cut."""
    data = bytearray(draw(st.sampled_from(SMALL)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        new = draw(st.binary(max_size=3) | st.sampled_from([bytes(24), bytes(40), FILE_SIGNATURE, pack_block(0, 64)]))
        data[at : at + draw(st.integers(0, 3) | st.sampled_from([len(new), 24, 64]))] = new
    if draw(st.booleans()):
        data += draw(st.sampled_from(SMALL))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


# -- what must hold --------------------------------------------------------------------------------------------------


def read(data, **options) -> tuple[list[bytes], PparseError | None]:
    found: list[bytes] = []
    try:
        with RecordReader(data, budget=BUDGET, **options) as reader:
            budget = reader._budget
            for record in reader:
                found.append(record)
    except EngineError:
        raise
    except PparseError as error:
        return found, error
    assert budget.peak <= budget.limit
    return found, None


def recovered(data: bytes, **options) -> list[bytes]:
    regions: list[SkippedRegion] = []
    found, error = read(data, recovery=regions.append, **options)
    assert error is None or "budget" in str(error), error
    reached = 0
    for region in regions:
        assert reached <= region.begin < region.end <= len(data)
        reached = region.end
    return found


def about(data: bytes, **options) -> None:
    """Seek, go back, search, and open records."""
    for pos in sorted({0, 1, 24, 64, 65, len(data) // 2, len(data)}):
        for calls in (("seek_numeric", "read_record", "seek_back", "open_record"), ("seek_numeric", "seek_back")):
            reader = RecordReader(data, budget=BUDGET, **options)
            for call in calls:
                try:
                    getattr(reader, call)(*((min(pos, len(data)),) if call == "seek_numeric" else ()))
                except EngineError:
                    raise
                except PparseError:
                    break
    for word in (b"", b"number 7", b"\xff"):
        reader = RecordReader(data, budget=BUDGET, **options)
        try:
            reader.search_for_record(lambda record: (record > word) - (record < word))  # noqa: B023
        except EngineError:
            raise
        except PparseError:
            pass
    try:
        RecordReader(data, budget=BUDGET, **options).read_serialized_metadata()
    except EngineError:
        raise
    except PparseError:
        pass


def look(data: bytes, **options) -> list[bytes]:
    """Look at everything of the tree; the records of chunks that are whole, after a check."""
    with pparse.open(data, format="riegeli", budget=BUDGET, **options) as extraction:
        kids = list(extraction.root.children())
        list(extraction.check())
        found = []
        for kid in kids:
            assert 0 <= kid.start <= len(data)
            assert kid.end is None or kid.start < kid.end
            assert extraction.node(kid.path) is kid
            if kid.shape == "scalar":
                continue
            try:
                records = list(kid.children())
            except EngineError:
                raise
            except PparseError:
                continue
            for record in records:
                try:
                    content = record.load()
                except EngineError:
                    raise
                except PparseError:
                    assert record.status is not Status.COMPLETE or kid.status is not Status.COMPLETE
                    continue
                if kid.kind in LISTS and kid.status is Status.COMPLETE:
                    found.append(content)
        names = [member.name for member in extraction.parse().parser.members()]
        assert len(names) == len(set(names))
        for name in names[:20]:
            try:
                extraction.parse().parser.find_member(name)
            except EngineError:
                raise
            except PparseError:
                pass
        assert extraction.session.budget.peak <= extraction.session.budget.limit
        return found


def survives(data: bytes, *, moved: bool = False) -> None:
    """``moved``: bytes may have been lost or put in, so that a cut chunk and a damaged one look alike."""
    with bounded(MOST_CALLS):
        strict, _ = read(data)
        assert read(Pipe(data, 7), assumed_pos=0)[0] == strict
        reference = recovered(data, salvage=False)
        saved = recovered(data)
        shown = look(data)
        assert reference[: len(strict)] == saved[: len(strict)] == strict
        assert not Counter(reference) - Counter(saved), "the reference finds more"
        assert moved or not Counter(saved) - Counter(shown), "the reader finds more than the tree"
    with bounded(3 * MOST_CALLS):
        for options in ({}, {"recovery": lambda region: None, "salvage": False}, {"recovery": lambda region: None}):
            about(data, **options)


# -- and now -------------------------------------------------------------------------------------------------------


@settings(max_examples=sweep.examples(60))
@given(data=st.binary(max_size=200), signed=st.booleans())
@example(data=b"", signed=False)
@example(data=b"", signed=True)
@example(data=bytes(100), signed=True)
def test_any_bytes(data, signed):
    survives(FILE_SIGNATURE + data if signed else data)


@settings(max_examples=sweep.examples(45))
@given(data=mutated())
def test_files_that_are_nearly_right(data):
    survives(data, moved=True)


@settings(max_examples=sweep.examples(50))
@given(chunks=CHUNKS)
@example(chunks=[("r", b"\0\x01\x01x", 1, 1)])
@example(chunks=[("r", b"", 1, 1 << 62)])
@example(chunks=[("t", b"\0\x01\0", 1, 1 << 62)])
def test_chunks_with_right_hashes_and_any_contents(chunks):
    survives(forged(*chunks))


@settings(max_examples=sweep.examples(24))
@given(
    seed=st.integers(0, 5),
    headers=st.lists(st.tuples(HUGE, HUGE) | st.tuples(OFFSETS, OFFSETS), max_size=3),
    flips=st.lists(OFFSETS, max_size=3),
)
def test_block_headers_with_right_hashes_and_any_contents(seed, headers, flips):
    chooser = random.Random(seed)
    contents = [b"%04d" % n + chooser.randbytes(chooser.choice((0, 100, 9000))) for n in range(50)]
    data = bytearray(written(("uncompressed", "snappy")[seed % 2] + ",chunk_size:8k", contents))
    for number, pair in enumerate(headers):
        block = number * BLOCK
        if block + 24 <= len(data):
            data[block : block + 24] = pack_block(*pair)
    for at in flips:
        data[at % len(data)] ^= 0x55
    survives(bytes(data))


def test_numbers_that_would_take_all_memory():
    """What is claimed is not allocated."""
    import tracemalloc

    large = encode_varint(1 << 60)
    for kind in "rtm":
        for count in (0, 1, 4000):
            for decoded in (1 << 31, 1 << 40, (1 << 64) - 1):
                for data in (b"", b"\0", b"\0\x01\0", b"z\x05" + large, b"b\x01\x3b" + large):
                    file = forged((kind, data, count, decoded))
                    tracemalloc.start()
                    try:
                        read(file)
                        recovered(file)
                        look(file)
                        _, peak = tracemalloc.get_traced_memory()
                    finally:
                        tracemalloc.stop()
                    assert peak < 16 << 20, (kind, count, decoded, data)
