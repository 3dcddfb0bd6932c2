"""The reader against files of the reference C++ library, whole and damaged, and what its own reader made of them.

``data/riegeli``: ``manifest.json`` (files, options, chunk tables), ``NAME.riegeli`` with its records in ``NAME.jsonl``,
``seek.jsonl``, ``projection.jsonl``, ``corrupt.jsonl.gz`` (edits of a file and the events of the reference reader, once
strict, once recovering) and ``crafted.jsonl.gz`` (small files of odd or invalid contents, with the same events).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
from collections import Counter

import pytest

from pparse.riegeli import (
    EXISTENCE_ONLY,
    FailedPreconditionError,
    InvalidArgumentError,
    RecordPosition,
    RecordReader,
    RecordWriter,
    RiegeliError,
    SkippedRegion,
)
from tests import sweep
from tests.riegeli_fixtures import (
    BLOCK,
    FOLDER,
    SIGNATURE,
    Chunk,
    Pipe,
    chunk_table,
    digest,
    edited,
    lines,
    manifest,
    raw,
    records,
    shifts,
    surviving,
    table,
)
from tests.rows import rows

NAMES = list(manifest())
CODES = {"INVALID_ARGUMENT": 3, "UNIMPLEMENTED": 12}


def check(record: bytes | None, reader: RecordReader, expected) -> None:
    assert record is not None, f"the file ends before {expected.pos}"
    assert (str(reader.last_pos), len(record), digest(record)) == (expected.pos, expected.size, expected.digest)


# -- whole files -----------------------------------------------------------------------------------------------------


def opened(name: str, way: str, tmp_path) -> RecordReader:
    data = raw(name)
    path = FOLDER / f"{name}.riegeli"
    if not path.exists():
        path = tmp_path / f"{name}.riegeli"
        path.write_bytes(data)
    match way:
        case "path":
            return RecordReader(path)
        case "str":
            return RecordReader(str(path))
        case "file":
            return RecordReader(open(path, "rb"))
        case "bytes":
            return RecordReader(data)
        case "BytesIO":
            return RecordReader(io.BytesIO(data))
        case "pipe":
            return RecordReader(Pipe(data), assumed_pos=0)
    raise ValueError(way)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for number, name in enumerate(NAMES)
        for way in sweep.values(("path", "bytes", "BytesIO", "pipe"), number, 1)
    ],
)
def test_records_of_a_file(name, way, tmp_path):
    with opened(name, way, tmp_path) as reader:
        expected = records(name)
        count = 0
        for record in reader.read_records():
            check(record, reader, expected[count])
            count += 1
        assert count == len(expected)
        assert reader.read_record() is None


@pytest.mark.parametrize("way", ["str", "file"])
def test_records_one_call_each(way, tmp_path):
    for name in ("transpose_mixed_brotli", "chunk_size_1", "append"):
        with opened(name, way, tmp_path) as reader:
            for expected in records(name):
                here = reader.pos
                check(reader.read_record(), reader, expected)
                assert here <= reader.last_pos < reader.pos
            assert reader.read_record() is None
            assert str(reader.pos) == f"{len(raw(name))}/0"


@rows("name", NAMES)
def test_facts_of_a_file(name):
    with RecordReader(raw(name)) as reader:
        assert reader.check_file_format() is True
        assert reader.size() == len(raw(name))
        assert reader.supports_random_access
        metadata = reader.read_serialized_metadata()
        expected = bytes.fromhex(manifest()[name]["metadata_hex"] or "")
        # Nothing but a signature: nothing tells a file without metadata from one that is to go on.
        assert metadata == expected or (name == "empty" and metadata is None)
        # What was asked for changes nothing about what is read then.
        assert [digest(record) for record in reader.read_records()] == [record.digest for record in records(name)]


@rows("name", NAMES)
def test_records_are_found_backwards_from_the_end(name):
    with RecordReader(raw(name)) as reader:
        reader.seek_numeric(reader.size())
        expected = records(name)
        for record in reversed(expected[-500:]):
            assert reader.seek_back() is True
            assert str(reader.pos) == record.pos
            check(reader.read_record(), reader, record)
            reader.seek(reader.last_pos)
        if len(expected) <= 500:
            assert reader.seek_back() is False


@rows("name", NAMES)
def test_positions_lead_back(name):
    chooser = random.Random(name)
    expected = records(name)
    chosen = chooser.sample(expected, min(len(expected), 100)) + list(expected[:1] + expected[-1:])
    with RecordReader(raw(name)) as reader:
        for record in chosen:
            position = RecordPosition(record.begin, record.index)
            reader.seek(position)
            assert reader.pos == position
            check(reader.read_record(), reader, record)
            after = reader.pos
            reader.seek_numeric(position.numeric)
            assert reader.pos == position
            check(reader.read_record(), reader, record)
            assert reader.pos == after


@rows("case", lines("seek.jsonl"), ids=lambda case: case["file"])
def test_seek_numeric_arrives_where_the_reference_does(case):
    name = case["file"].removesuffix(".riegeli")
    by_pos = {record.pos: record for record in records(name)}
    with RecordReader(raw(name)) as reader:
        for numeric, arrived, following in sweep.part(case["seek_numeric"]):
            reader.seek_numeric(numeric)
            assert str(reader.pos) == arrived, f"seek_numeric({numeric})"
            record = reader.read_record()
            if following is None:
                assert record is None, f"after seek_numeric({numeric})"
            else:
                check(record, reader, by_pos[following])


@rows("case", lines("seek.jsonl"), ids=lambda case: case["file"])
def test_last_record_and_beyond_the_end(case):
    name = case["file"].removesuffix(".riegeli")
    size = len(raw(name))
    with RecordReader(raw(name)) as reader:
        reader.seek_numeric(size)
        assert reader.seek_back() is case["last_record"]["found"]
        if case["last_record"]["found"]:
            assert str(reader.pos) == case["last_record"]["pos"]
            check(reader.read_record(), reader, records(name)[-1])
            assert reader.read_record() is None
    assert not case["seek_beyond_end"]["ok"]
    reader = RecordReader(raw(name))
    with pytest.raises(InvalidArgumentError):
        reader.seek_numeric(size + 1)


@rows("case", lines("projection.jsonl"), ids=lambda case: f"{case['file']}-{case['projection']}".replace(" ", ""))
@rows("way", ["constructor", "set"])
def test_projections_give_the_bytes_of_the_reference(case, way):
    name = case["file"].removesuffix(".riegeli")
    hasher = hashlib.sha256()
    if way == "constructor":
        reader = RecordReader(raw(name), field_projection=case["projection"])
    else:
        reader = RecordReader(raw(name), field_projection=[[1, EXISTENCE_ONLY]])
        reader.read_record()
        reader.set_field_projection(case["projection"])
        reader.seek_numeric(0)
    found = list(reader.read_records())
    reader.close()
    for record in found:
        hasher.update(len(record).to_bytes(8, "little") + record)
    assert len(found) == case["count"]
    assert [record.hex() for record in found[: len(case["first"])]] == case["first"]
    assert hasher.hexdigest() == case["sha256"]


def test_projection_from_the_next_record_on():
    name = "transpose_uncompressed"
    with RecordReader(raw(name)) as whole, RecordReader(raw(name), field_projection=[[1]]) as reader:
        expected = list(whole.read_records())
        assert reader.read_record() == expected[0][:2] == b"\x08\x00"
        reader.set_field_projection([[2]])
        assert reader.read_record() == b"\x12\x06name-7"
        reader.set_field_projection([[]])
        assert reader.read_record() == expected[2]


def test_projection_taken_back():
    name = "transpose_uncompressed"
    with RecordReader(raw(name), field_projection=[[1]]) as reader:
        assert reader.read_record() == bytes.fromhex("0800")
        reader.set_field_projection(None)
        reader.seek_numeric(0)
        assert [digest(record) for record in reader.read_records()] == [record.digest for record in records(name)]


def test_existence_only_is_field_zero():
    assert EXISTENCE_ONLY == 0


def many_blocks(options: str, seed: int) -> tuple[bytes, list[bytes]]:
    """A file of some dozen blocks: chunks of all sizes, empty records, padding, signatures and metadata in between."""
    chooser = random.Random(seed)
    out = io.BytesIO()
    contents: list[bytes] = []
    for part in range(4):
        more = ["", ",final_padding:5000", ",final_padding:64k", ",initial_padding:70000,final_padding:64k"][part]
        if part == 3:  # physically concatenated
            out.write(out.getvalue())
            contents += contents
        with RecordWriter(out, owns_dest=False, options=options + more) as writer:
            for _ in range(25):
                size = chooser.choice((0, 1, 30, 500, 4000, 30_000, 90_000))
                content = b"%06d" % len(contents) + chooser.randbytes(size)
                for record in (content, *[b""] * chooser.choice((0, 0, 0, 1, 50))):
                    writer.write_record(record)
                    contents.append(record)
                if chooser.random() < 0.3:
                    writer.flush()
    return out.getvalue(), contents


MANY = [("uncompressed", 1), ("snappy,chunk_size:2k", 2), ("transpose,snappy", 3)]


@pytest.mark.parametrize(("options", "seed"), MANY)
def test_seek_numeric_over_many_blocks(options, seed):
    """To the record, if it is the position of one; else to the next chunk. Everything from there on is read."""
    data, contents = many_blocks(options, seed)
    chunks = chunk_table(data)
    first = [sum(chunk.num_records for chunk in chunks[:number]) for number in range(len(chunks) + 1)]
    chooser = random.Random(seed)
    edges = [chunk.begin + n for chunk in chunks for n in (-1, 0, 1, chunk.num_records - 1, chunk.num_records)]
    blocks = [block + n for block in range(0, len(data), BLOCK) for n in (-1, 0, 1, 24, 25)]
    places = [place for place in edges + blocks if 0 <= place <= len(data)] + [len(data)]
    places += [chooser.randrange(len(data)) for _ in range(100)]
    with RecordReader(data) as reader:
        for place in chooser.sample(places, len(places)):
            reader.seek_numeric(place)
            for number, chunk in enumerate(chunks):
                if place <= chunk.begin or place < chunk.begin + chunk.num_records:
                    index = max(0, place - chunk.begin)
                    assert str(reader.pos) == f"{chunk.begin}/{index}", place
                    expected = contents[first[number] + index : first[number] + index + 2]
                    break
            else:
                assert str(reader.pos) == f"{len(data)}/0", place
                expected = []
            found = [reader.read_record() for _ in range(2)]
            assert [record for record in found if record is not None] == expected, place


@pytest.mark.parametrize(("options", "seed"), MANY)
def test_backwards_over_many_blocks(options, seed):
    data, contents = many_blocks(options, seed)
    with RecordReader(data) as reader:
        reader.seek_numeric(len(data))
        for content in reversed(contents):
            assert reader.seek_back() is True
            here = reader.pos
            assert reader.read_record() == content
            reader.seek(here)
        assert reader.seek_back() is False
        assert reader.read_record() == contents[0]


@pytest.mark.parametrize("where", [1, 24, BLOCK + 1, BLOCK + 24])
def test_seek_to_where_no_chunk_can_begin(where):
    data = raw("blocks_uncompressed")
    reader = RecordReader(data)
    with pytest.raises(InvalidArgumentError):  # noqa: PT012 (which call it is may differ)
        reader.seek(RecordPosition(where, 0))
        reader.read_record()
    for salvage in (False, True):
        regions: list[SkippedRegion] = []
        with RecordReader(data, recovery=regions.append, salvage=salvage) as reader:
            reader.seek(RecordPosition(where, 0))
            # The chunk at 64 covers the next block's beginning, which tells of what follows it only.
            expected = records("blocks_uncompressed")[0 if salvage and where < 64 else 1]
            check(reader.read_record(), reader, expected)
        assert [(region.begin, region.end) for region in regions] == [(where, expected.begin)]


def test_seek_beyond_the_records_of_a_chunk():
    """An index that is too large stands for the next chunk's beginning."""
    with RecordReader(raw("flush")) as reader:
        for index in (10, 11, 2**40):
            reader.seek(RecordPosition(64, index))
            check(reader.read_record(), reader, records("flush")[10])


def test_metadata_are_read_at_the_beginning_only():
    with RecordReader(raw("transpose_brotli")) as reader:
        check(reader.read_record(), reader, records("transpose_brotli")[0])
        with pytest.raises(FailedPreconditionError):
            reader.read_serialized_metadata()
        check(reader.read_record(), reader, records("transpose_brotli")[1])
        reader.seek_numeric(0)
        assert reader.read_serialized_metadata() == bytes.fromhex(manifest()["transpose_brotli"]["metadata_hex"])


# -- search ----------------------------------------------------------------------------------------------------------


def sorted_file(options: str, count: int = 300) -> tuple[bytes, list[bytes]]:
    """A file of numbers that are all even, some of them twice, in order."""
    numbers = sorted([*range(0, 2 * count, 2), *range(0, 2 * count, 10)])
    contents = [b"%06d %s" % (number, b"." * (number % 37)) for number in numbers]
    out = io.BytesIO()
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        writer.write_records(contents)
    return out.getvalue(), contents


def compare(record: bytes, number: int) -> int:
    here = int(record[:6])
    return (here > number) - (here < number)


@pytest.mark.parametrize(
    "options", ["uncompressed,chunk_size:1", "uncompressed,chunk_size:300", "zstd", "transpose,chunk_size:1k"]
)
def test_search_for_record(options):
    data, contents = sorted_file(options)
    with RecordReader(data) as reader:
        for number in [*range(-1, 40), 301, 302, 310, 311, 596, 597, 598]:
            result = reader.search_for_record(lambda record: compare(record, number))  # noqa: B023
            assert result == (0 if number >= 0 and number % 2 == 0 else 1), number
            found = reader.read_record()
            assert found == next(record for record in contents if int(record[:6]) >= number)
        for number in (599, 5000):
            assert reader.search_for_record(lambda record: compare(record, number)) == -1  # noqa: B023
            assert reader.read_record() is None


def test_search_passes_over_records_without_an_order():
    data, contents = sorted_file("uncompressed,chunk_size:200")

    def test(record: bytes) -> int | None:
        number = int(record[:6])
        return None if number % 10 else compare(record, 150)

    with RecordReader(data) as reader:
        assert reader.search_for_record(test) == 0
        record = reader.read_record()
        assert record in contents
        assert int(record[:6]) == 150


def test_search_can_be_cancelled():
    data, _ = sorted_file("zstd,chunk_size:300")

    def cancel(record: bytes) -> int:
        raise StopIteration

    with RecordReader(data) as reader:
        assert reader.search_for_record(cancel) is None


def test_search_is_a_binary_search_with_the_reader_itself():
    data, contents = sorted_file("uncompressed,chunk_size:200")
    looked = []

    def test(reader: RecordReader) -> int:
        record = reader.read_record()
        assert record is not None
        looked.append(record)
        return compare(record, 444)

    with RecordReader(data) as reader:
        assert reader.search(test) == 0
        assert int((reader.read_record() or b"")[:6]) == 444
    assert len(looked) < len(contents) / 4


def test_errors_of_the_test_go_through():
    data, _ = sorted_file("zstd")

    def test(record: bytes) -> int:
        raise KeyError("mine")

    with RecordReader(data) as reader, pytest.raises(KeyError, match="mine"):
        reader.search_for_record(test)


# -- damaged files ---------------------------------------------------------------------------------------------------


def drive(data: bytes, *, metadata: bool = False, **options) -> list[tuple]:
    """Read a file to its end; what happened, in order, as ``reference`` gives it."""
    events: list[tuple] = []
    reader = RecordReader(data, **options)
    try:
        if metadata:
            found = reader.read_serialized_metadata()
            events.append(("metadata", None if found is None else found.hex(), None))
    except RiegeliError as error:
        events.append(("metadata", None, error.code))
    try:
        while (record := reader.read_record()) is not None:
            events.append(("record", str(reader.last_pos), digest(record)))
        events.append(("end", str(reader.pos), None))
    except RiegeliError as error:
        events.append(("end", str(reader.pos), error.code))
    try:
        reader.close()
        events.append(("close", None))
    except RiegeliError as error:
        events.append(("close", error.code))
    return events


def recovering(data: bytes, **options) -> list[tuple]:
    """``drive`` with recovery: skipped regions stand among the events."""
    events: list[tuple] = []

    def skip(region: SkippedRegion) -> None:
        assert isinstance(region, SkippedRegion)
        assert isinstance(region.message, str)
        assert region.length == region.end - region.begin
        regions.append(("skipped", region.begin, region.end))

    regions: list[tuple] = []
    reader = RecordReader(data, recovery=skip, **{key: value for key, value in options.items() if key != "metadata"})

    def note(*event) -> None:
        events.extend(regions)
        regions.clear()
        events.append(event)

    if options.get("metadata"):
        found = reader.read_serialized_metadata()
        note("metadata", None if found is None else found.hex(), None)
    while (record := reader.read_record()) is not None:
        note("record", str(reader.last_pos), digest(record))
    note("end", str(reader.pos), None)
    reader.close()
    note("close", None)
    return events


def code(status: str | None) -> int | None:
    return None if status is None else CODES[status.partition(":")[0]]


def reference(events: list[list], base: str = "") -> list[tuple]:
    """What the reference reader reported, in the form of ``drive``."""
    found: list[tuple] = []
    for event in events:
        match event:
            case ["records", begin, index, first, count]:
                expected = records(base)[first : first + count]
                assert len(expected) == count
                found += [("record", f"{begin}/{index + n}", record.digest) for n, record in enumerate(expected)]
            case ["record", pos, text]:
                found.append(("record", pos, digest(bytes.fromhex(text))))
            case ["skipped", begin, end, _]:
                found.append(("skipped", begin, end))
            case ["end", pos, status]:
                found.append(("end", pos, code(status)))
            case ["close", status]:
                found.append(("close", code(status)))
            case ["metadata", text, status]:
                found.append(("metadata", text, code(status)))
            case _:
                raise ValueError(f"an event of no known kind: {event}")
    return found


def of_kind(kind: str, events: list[tuple]) -> list[tuple]:
    return [event for event in events if event[0] == kind]


def label(number: int, case: dict) -> str:
    words = "+".join("-".join(str(word)[:10] for word in edit) for edit in case["edits"])
    return f"{number:03}-{case['base'].removesuffix('.riegeli')}-{words}"


CORRUPT = [
    pytest.param(case["base"].removesuffix(".riegeli"), case, id=label(number, case))
    for number, case in enumerate(lines("corrupt.jsonl"))
]
# An impossible boundary, asserted away in the reference's debug builds: what it does then is no example.
FORGED = [
    param for param in CORRUPT if any(event[0] == "skipped" and not event[3] for event in param.values[1]["recover"])
]
# So many of them are looked at in the ways that the reference has no answer for.
SAMPLED = 250
CRAFTED = [pytest.param(case, id=case["name"]) for case in lines("crafted.jsonl")]
WITH_METADATA = [param for param in CRAFTED if "strict_metadata" in param.values[0]]


@rows(("base", "case"), CORRUPT)
def test_damaged_files_end_as_in_the_reference(base, case):
    assert drive(edited(raw(base), case["edits"])) == reference(case["strict"], base)


@rows(("base", "case"), [param for param in CORRUPT if param not in FORGED])
def test_damaged_recovered_as_the_reference_does(base, case):
    found = recovering(edited(raw(base), case["edits"]), salvage=False)
    assert found == reference(case["recover"], base)


@pytest.mark.parametrize(("base", "case"), FORGED)
def test_boundaries_that_cannot_be_are_recovered_from_as_in_the_reference(base, case):
    found = recovering(edited(raw(base), case["edits"]), salvage=False)
    assert of_kind("record", found) == of_kind("record", reference(case["recover"], base))
    in_order(base, case, found)


@rows("case", CRAFTED)
def test_crafted_files_end_as_in_the_reference(case):
    assert drive(bytes.fromhex(case["hex"])) == reference(case["strict"])


@rows("salvage", [False, True], ids=["reference", "salvage"])
@rows("case", CRAFTED)
def test_crafted_files_are_recovered_as_in_the_reference(case, salvage):
    """Damage within a chunk whose frame is whole: no better can be done than the reference does."""
    found = recovering(bytes.fromhex(case["hex"]), salvage=salvage)
    expected = reference(case["recover"])
    if salvage:
        assert of_kind("record", found) == of_kind("record", expected)
        assert of_kind("skipped", found) == of_kind("skipped", expected)
    else:
        assert found == expected


@pytest.mark.parametrize("case", WITH_METADATA)
def test_crafted_metadata_are_read_as_in_the_reference(case):
    data = bytes.fromhex(case["hex"])
    assert drive(data, metadata=True) == reference(case["strict_metadata"])
    assert recovering(data, metadata=True, salvage=False) == reference(case["recover_metadata"])


# -- damaged files, at our best --------------------------------------------------------------------------------------


def in_order(base: str, case: dict, events: list[tuple]) -> None:
    """What must hold of every recovering reader: true records, in order, and regions that do not touch them."""
    size = len(edited(raw(base), case["edits"]))
    truth = {(record.begin, record.index): record.digest for record in records(base)}
    ends = {chunk.begin: chunk.data_end for chunk in table(base)}
    reached = 0
    current: int | None = None
    previous = None
    for event in events:
        if event[0] == "record":
            position = RecordPosition.from_str(event[1])
            begin = position.chunk_begin
            # It stood there, or as far before or behind as bytes were inserted or lost.
            origins = [
                begin - shift
                for shift in shifts(case["edits"])
                if truth.get((begin - shift, position.record_index)) == event[2]
            ]
            assert origins, f"{event}: no such record of {base} belongs here"
            assert previous is None or position > previous
            assert current == begin or begin >= reached, f"{event}, though all up to {reached} is done with"
            current, previous = begin, position
            reached = min(ends[origin] + begin - origin for origin in origins)
        elif event[0] == "skipped":
            _, begin, end = event
            assert reached <= begin < end <= size, f"{event}, though all up to {reached} is done with"
            reached = end
            current = None


@rows(("base", "case"), CORRUPT)
def test_salvage_finds_all_records_that_the_reference_finds(base, case):
    data = edited(raw(base), case["edits"])
    found = recovering(data)
    in_order(base, case, found)

    # All that the reference finds.
    expected = reference(case["recover"], base)
    missing = Counter(of_kind("record", expected)) - Counter(of_kind("record", found))
    assert not missing

    # What the reference says was skipped was skipped, or was read, or is whole.
    accounted = bytearray(len(data))
    delivered = {RecordPosition.from_str(event[1]).chunk_begin for event in of_kind("record", found)}
    spans = [(begin, end) for _, begin, end in of_kind("skipped", found)]
    for chunk in table(base):
        for begin in (chunk.begin + shift for shift in shifts(case["edits"])):
            if begin in delivered or surviving(base, data, begin, chunk):
                spans.append((begin, min(begin + chunk.end - chunk.begin, len(data))))
    for begin, end in spans:
        accounted[begin:end] = b"\1" * (end - begin)
    for _, begin, end in of_kind("skipped", expected):
        silent = accounted.find(0, begin, end)
        assert silent < 0, f"nothing is said of {silent}, in [{begin}..{end})"


def in_place(param) -> bool:
    """Whether the edits of a case left everything where it was."""
    return all(edit[0] not in ("insert", "delete") for edit in param.values[1]["edits"])


@rows(("base", "case"), sweep.sample([param for param in CORRUPT if in_place(param)], SAMPLED))
def test_damaged_records_by_their_positions(base, case):
    """A position that was given leads back to its record, be the chunk as it should or mended."""
    data = edited(raw(base), case["edits"])
    found = of_kind("record", recovering(data))
    for _, pos, expected in found[:: max(1, len(found) // 5)]:
        position = RecordPosition.from_str(pos)
        with RecordReader(data, recovery=lambda region: None) as reader:
            for numeric in (False, True):
                if numeric and any(edit[0] == "write" for edit in case["edits"]):
                    continue  # a forged block header leads astray
                if numeric:
                    reader.seek_numeric(position.numeric)
                else:
                    reader.seek(position)
                record = reader.read_record()
                assert record is not None, pos
                assert (str(reader.last_pos), digest(record)) == (pos, expected)
                reader.seek_numeric(0)


@rows(("base", "case"), sweep.sample(CORRUPT, SAMPLED))
def test_damaged_files_have_the_same_records_from_the_end(base, case):
    """From the end the same records are found as from the beginning; without recovery, an error of ours may come."""
    data = edited(raw(base), case["edits"])
    expected = of_kind("record", recovering(data))
    found: list[tuple] = []
    with RecordReader(data, recovery=lambda region: None) as reader:
        reader.seek_numeric(reader.size())
        while len(found) <= len(expected) and reader.seek_back():
            here = reader.pos
            record = reader.read_record()
            assert record is not None, here
            found.append(("record", str(here), digest(record)))
            reader.seek(here)
    assert found[::-1] == expected

    reader = RecordReader(data)
    with contextlib.suppress(RiegeliError):
        reader.seek_numeric(len(data))
        while found and reader.seek_back():
            assert found[0][1] == str(reader.pos)
            del found[0]


def untouched(base: str, data: bytes) -> list[Chunk]:
    """The chunks that stand where they stood, whole but perhaps for the end of their padding."""
    whole = raw(base)
    return [
        chunk
        for chunk in table(base)
        if chunk.num_records
        and len(data) >= chunk.data_end
        and data[chunk.begin : chunk.end] == whole[chunk.begin : min(chunk.end, len(data))]
    ]


@rows(("base", "case"), sweep.sample([param for param in CORRUPT if in_place(param)], SAMPLED))
def test_all_that_is_whole_is_salvaged(base, case):
    """However bad the neighbours: a chunk none of whose bytes changed is found."""
    data = edited(raw(base), case["edits"])
    found = Counter(int(event[1].partition("/")[0]) for event in of_kind("record", recovering(data)))
    assert [chunk for chunk in untouched(base, data) if found[chunk.begin] != chunk.num_records] == []


def test_a_lost_beginning_is_no_loss_of_the_rest():
    """The chunks of a block whose header is lost are found where they stand, not only those of the next block."""
    data = bytearray(raw("chunk_size_1"))
    data[:64] = bytes(64)
    found = recovering(bytes(data))
    assert of_kind("skipped", found) == [("skipped", 0, 64)]
    assert [event[1] for event in of_kind("record", found)] == [record.pos for record in records("chunk_size_1")]


def test_the_last_record_of_a_truncated_file():
    """Whole chunks precede the cut: seeking to the end and back finds the last of their records."""
    name = "chunk_size_1"
    data = raw(name)[:1100]
    whole = [record for record in records(name) if record.begin < 1070]
    regions: list[SkippedRegion] = []
    with RecordReader(data, recovery=regions.append) as reader:
        reader.seek_numeric(reader.size())
        assert reader.seek_back() is True
        check(reader.read_record(), reader, whole[-1])
        assert reader.seek_back() is True
        assert reader.seek_back() is True
        check(reader.read_record(), reader, whole[-2])
    assert all(0 <= region.begin < region.end <= len(data) for region in regions)


MOVED = [
    pytest.param(size, options, id=f"{size:+d}-{options}")
    for size in (1, 3, 16, 23, 24, 1000, 40_000, 65_535, 65_536, 100_000, -1, -40, -1000, -30_000, -65_536, -90_001)
    for options in ("uncompressed,chunk_size:1", "snappy,chunk_size:20k")
]


@rows(("size", "options"), sweep.sample(MOVED, 12))
@rows("place", ["within a chunk", "within a chunk of two blocks", "between chunks"])
def test_bytes_inserted_or_lost_cost_what_they_hit(size, options, place):
    """All that follows stands off the multiples of the block size then; it is found there all the same."""
    chooser = random.Random(7)
    out = io.BytesIO()
    contents = [chooser.randbytes(chooser.choice((0, 20, 500, 9000, 30_000, 70_000))) for _ in range(40)]
    with RecordWriter(out, owns_dest=False, options=options) as writer:
        writer.write_records(contents)
    data = out.getvalue()
    chunks = chunk_table(data)
    first = [sum(chunk.num_records for chunk in chunks[:number]) for number in range(len(chunks) + 1)]
    hit = next(
        chunk
        for chunk in chunks
        if chunk.begin > 2.4 * BLOCK
        and chunk.data_size > 5000
        and (place != "within a chunk of two blocks" or (chunk.begin + 2000) // BLOCK < chunk.end // BLOCK)
    )
    at = hit.begin + (2000 if place != "between chunks" else 0)
    if size > 0:
        damaged = data[:at] + chooser.randbytes(size) + data[at:]
    else:
        damaged = data[:at] + data[at - size :]
    expected = []
    for number, chunk in enumerate(chunks):
        whole = chunk.end <= at or chunk.begin >= at - min(size, 0)
        expected += contents[first[number] : first[number + 1]] if whole else []
    assert len(expected) > 20
    regions: list[SkippedRegion] = []
    with RecordReader(damaged, recovery=regions.append) as reader:
        assert list(reader.read_records()) == expected
    assert regions or (size < 0 and place == "between chunks")


@pytest.mark.parametrize("lost", [1, 63, 64, 100, 5000, 65_535, 65_536, 65_600, 200_001])
def test_a_file_whose_beginning_is_lost(lost):
    data, contents = many_blocks("snappy,chunk_size:2k", 2)
    chunks = chunk_table(data)
    expected = contents[sum(chunk.num_records for chunk in chunks if chunk.begin < lost) :]
    with RecordReader(data[lost:], recovery=lambda region: None) as reader:
        assert list(reader.read_records()) == expected


# -- a file that grows, callbacks, errors ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["boundary_20", "flush", "blocks_transpose_zstd", "padding_4k"])
def test_a_growing_file_is_followed(name):
    data = raw(name)
    stream = io.BytesIO()
    chooser = random.Random(name)
    cuts = sorted({*chooser.sample(range(len(data)), 12), *(chunk.begin for chunk in table(name)), 1, 40, len(data)})
    reader = RecordReader(stream, owns_src=False)
    found: list[str] = []
    for cut in cuts:
        here = stream.tell()
        stream.seek(0, io.SEEK_END)
        stream.write(data[stream.tell() : cut])
        stream.seek(here)
        while (record := reader.read_record()) is not None:
            found.append(digest(record))
        assert len(found) == sum(chunk.num_records for chunk in table(name) if chunk.end <= cut)
    reader.close()
    assert found == [record.digest for record in records(name)]


def test_a_recovery_callback_can_end_the_reading():
    data = bytearray(raw("chunk_size_1"))
    data[64 + 50] ^= 1

    def stop(region: SkippedRegion) -> None:
        regions.append(region)
        raise StopIteration

    regions: list[SkippedRegion] = []
    with RecordReader(bytes(data), recovery=stop) as reader:
        assert reader.read_record() is None
    assert [(region.begin, region.end) for region in regions] == [(64, 134)]


def test_a_recovery_callback_may_raise():
    data = bytearray(raw("chunk_size_1"))
    data[64 + 50] ^= 1

    def refuse(region: SkippedRegion) -> None:
        raise KeyError(str(region))

    with RecordReader(bytes(data), recovery=refuse) as reader, pytest.raises(KeyError, match=r"\[64\.\.134\): "):
        reader.read_record()


def test_an_error_stays():
    data = bytearray(raw("chunk_size_1"))
    data[134 + 50] ^= 1
    reader = RecordReader(bytes(data))
    check(reader.read_record(), reader, records("chunk_size_1")[0])
    for _ in range(3):
        with pytest.raises(InvalidArgumentError):
            reader.read_record()
    with pytest.raises(InvalidArgumentError):
        reader.close()


@pytest.mark.parametrize("size", [0, 1, 23, 39, 63])
def test_too_short_to_tell(size):
    reader = RecordReader(SIGNATURE[:size])
    assert reader.check_file_format() is False


@pytest.mark.parametrize("recovery", [None, lambda region: None], ids=["strict", "recovering"])
def test_not_such_a_file(recovery):
    with pytest.raises(InvalidArgumentError):
        RecordReader(b"something else " * 10, recovery=recovery).check_file_format()


def test_a_file_of_zeros_is_not_such_a_file():
    with pytest.raises(InvalidArgumentError):
        RecordReader(bytes(2 * BLOCK)).read_record()


class Broken(io.BytesIO):
    """A file that cannot be read beyond a certain place."""

    def __init__(self, data: bytes, good: int, error: Exception) -> None:
        super().__init__(data)
        self.good = good
        self.error = error

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or (size and self.tell() + size > self.good):
            raise self.error
        return super().read(size)

    def readinto(self, buffer) -> int:
        if self.tell() + len(buffer) > self.good:
            raise self.error
        return super().readinto(buffer)


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("error", [OSError(5, "the disk is broken"), KeyError("the disk is broken")], ids=["OS", "own"])
def test_errors_of_the_file_go_through(error, salvage):
    """They are no damage of the file: nothing is skipped for them."""
    regions: list[SkippedRegion] = []
    options = {"recovery": regions.append} if salvage else {}
    reader = RecordReader(Broken(raw("blocks_uncompressed"), 140_000, error), **options)
    with pytest.raises(type(error), match="the disk is broken"):
        reader.read_record()
    assert regions == []


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="nothing"):
        RecordReader(tmp_path / "nothing").read_record()


@pytest.mark.parametrize("owns", [True, False])
def test_who_closes_the_source(owns):
    source = io.BytesIO(raw("flush"))
    with RecordReader(source, owns_src=owns) as reader:
        assert reader.src is source
        reader.read_record()
    assert source.closed is owns


def test_a_pipe_cannot_be_sought_in():
    with RecordReader(Pipe(raw("flush")), assumed_pos=0) as reader:
        assert not reader.supports_random_access
        assert reader.read_record() is not None


def test_reading_can_start_in_the_middle():
    """A source that stands at a chunk boundary is read from there."""
    name = "chunk_size_1"
    source = io.BytesIO(raw(name))
    source.seek(134)
    with RecordReader(source) as reader:
        for expected in records(name)[1:]:
            check(reader.read_record(), reader, expected)
        assert reader.read_record() is None
    with RecordReader(Pipe(raw(name)[134:]), assumed_pos=134) as reader:
        for expected in records(name)[1:]:
            check(reader.read_record(), reader, expected)


@pytest.mark.parametrize(
    "buffer", [{"buffer_size": 1}, {"buffer_size": 100}, {"min_buffer_size": 64, "max_buffer_size": 64}]
)
def test_small_buffers_read_the_same_records(buffer):
    for name in ("boundary_01", "blocks_transpose_zstd"):
        with RecordReader(io.BytesIO(raw(name)), **buffer) as reader:
            assert [digest(record) for record in reader.read_records()] == [record.digest for record in records(name)]


def test_a_closed_reader_says_so():
    reader = RecordReader(raw("flush"))
    reader.close()
    reader.close()
    for call in (reader.read_record, lambda: reader.seek_numeric(0), reader.seek_back, reader.size):
        with pytest.raises((RiegeliError, ValueError)):
            call()


def test_a_skipped_region_explains_itself():
    region = SkippedRegion(10, 30, "a reason")
    assert (region.begin, region.end, region.length, region.message) == (10, 30, 20, "a reason")
    assert str(region) == "[10..30): a reason"
