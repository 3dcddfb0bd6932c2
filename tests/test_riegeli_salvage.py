"""What comes back from damaged Riegeli files, beyond what the reference saves.

The rule: a chunk whose header and data are as they were comes back, whatever became of the others; no record comes back
that was never written; and the recovery is told of what is lost, and of nothing else.
"""

from __future__ import annotations

import faulthandler
import itertools
import random

import pytest

from pparse.riegeli import RecordPosition, RecordReader, RiegeliError
from pparse.riegeli.chunks import FILE_SIGNATURE, ChunkHeader, Layout, pack_block
from pparse.testing.fakes import UnknownSizeData
from tests import sweep
from tests.riegeli_damage import (
    Edit,
    Sound,
    apply,
    bounded,
    check_in_place,
    check_order,
    flip,
    made,
    places,
    salvaged,
    sound,
    surviving,
    written,
)
from tests.riegeli_fixtures import BLOCK, BLOCK_HEADER, CHUNK_HEADER, manifest, raw
from tests.rows import rows

SMALL = (0, 3, 20, 60)
MIXED = (0, 3, 20, 60, 3000, 9000)


@pytest.fixture(autouse=True)
def no_test_hangs():
    """A reader that goes round in circles ends the run, and says where it was."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


BLOCKS = {
    "small": ("uncompressed,chunk_size:2k", 120),
    "long": ("uncompressed,chunk_size:100k", 120),
    "zstd": ("zstd,chunk_size:30k", 120),
    "transposed": ("transpose,snappy,chunk_size:4k", 120),
}


@pytest.fixture(scope="module", params=list(BLOCKS))
def blocks(request) -> Sound:
    """A file of several blocks."""
    options, count = BLOCKS[request.param]
    return made(options, request.param, count, MIXED)


# -- one byte --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", ["uncompressed,chunk_size:120", "zstd,chunk_size:120", "uncompressed,chunk_size:1,padding:512"]
)
def test_every_flipped_byte(options):
    """At most the chunk with the byte is lost."""
    file = made(options, "flip", 24, SMALL)
    for at in sweep.some(range(len(file.data)), 8, ends=24):
        hit = file.chunk_of(at)
        for mask in sweep.values((1, 0xFF), at, 1):
            damaged = apply(file.data, flip(file.data, at, mask))
            found = check_in_place(file, damaged, [flip(file.data, at, mask)])
            lost = len(file.records) - len(found.records)
            assert lost in (0, hit.num_records), (at, mask)
            assert found.spans == ([(hit.begin, hit.end)] if lost else found.spans), (at, mask)
            assert lost or all(hit.begin <= begin and end <= hit.end for begin, end in found.spans), (at, mask)
            if not lost and hit.num_records:
                assert [(region.begin, region.end) for region in found.healed] == [(hit.begin, hit.end)], (at, mask)


def test_a_flipped_hash_of_a_header_loses_nothing():
    """The data's hash proves the chunk whole."""
    file = made("uncompressed,chunk_size:120", "flip", 24, SMALL)
    for chunk in file.chunks:
        for at in range(chunk.begin, chunk.begin + 8):
            found = salvaged(apply(file.data, flip(file.data, at, 0x55)))
            assert found.records == file.records
            assert found.regions == []


def test_a_flipped_byte_of_a_block_header_loses_nothing(blocks):
    for block in range(0, len(blocks.data), BLOCK):
        for at in range(block, block + BLOCK_HEADER):
            for mask in sweep.values((1, 0xFF), at, 1):
                found = salvaged(apply(blocks.data, flip(blocks.data, at, mask)))
                assert found.records == blocks.records, (at, mask)
                assert found.regions == []
                assert len(found.healed) == 1


def test_a_flipped_byte_of_a_file_of_many_blocks(blocks):
    chooser = random.Random("many")
    near = {chunk.begin + n for chunk in blocks.chunks for n in (0, 8, 17, 24, 25, 33)}
    for at in sweep.some(sorted(near | set(places(blocks, chooser, 60))), 2):
        if at < len(blocks.data):
            edit = flip(blocks.data, at, chooser.choice((1, 0x80, 0xFF)))
            check_in_place(blocks, apply(blocks.data, edit), [edit])


@pytest.mark.parametrize("name", [name for name in manifest() if name.startswith("boundary_")])
def test_a_flipped_byte_where_a_block_header_is_in_a_chunk_header(name):
    file = sound(raw(name))
    for at in range(BLOCK - CHUNK_HEADER - 1, BLOCK + BLOCK_HEADER + CHUNK_HEADER):
        if at < len(file.data):
            edit = flip(file.data, at, 0x81)
            found = check_in_place(file, apply(file.data, edit), [edit])
            assert found.records == file.records or not BLOCK <= at < BLOCK + BLOCK_HEADER


def test_a_flipped_byte_of_the_padding_loses_nothing():
    file = sound(raw("many_empty_padding"))
    [chunk] = [chunk for chunk in file.chunks if chunk.num_records]
    for at in (chunk.data_end, chunk.end - 1):
        found = salvaged(apply(file.data, flip(file.data, at, 0xFF)))
        assert found.records == file.records
        assert found.regions == found.healed == []


# -- many bytes ------------------------------------------------------------------------------------------------------


def edits(kind: str, file: Sound, chooser: random.Random, count: int) -> list[Edit]:
    found = []
    for at in places(file, chooser, count):
        size = min(chooser.choice((1, 2, 24, 100, 5000, BLOCK, 70_000)), len(file.data) - at)
        if kind == "zeroed":
            edit = Edit(at, size, bytes(size))
        elif kind == "overwritten":
            edit = Edit(at, size, chooser.randbytes(size))
        elif kind == "deleted":
            edit = Edit(at, size, b"")
        else:
            edit = Edit(at, 0, chooser.randbytes(size))
        found.append(edit)
    return found


@pytest.mark.parametrize("kind", ["zeroed", "overwritten"])
def test_bytes_that_were_overwritten(blocks, kind):
    for edit in sweep.sample(edits(kind, blocks, random.Random(kind), 40), 15):
        check_in_place(blocks, apply(blocks.data, edit), [edit])


@pytest.mark.parametrize("kind", ["deleted", "inserted"])
def test_bytes_that_were_lost_or_came_in(blocks, kind):
    """All that follows is off the grid of blocks."""
    texts = {record for _, _, record in blocks.records}
    for edit in sweep.sample(edits(kind, blocks, random.Random(kind), 50), 20):
        damaged, end = apply(blocks.data, edit), blocks.chunk_of(edit.at).end
        if end > len(damaged) or end in surviving(blocks.chunks, len(blocks.data), edit).values():
            continue  # cut, or so it seems; or a chunk begins just where the damaged one's header says that it ends
        found = salvaged(damaged)
        check_order(found, len(damaged))
        assert all(record in texts for _, _, record in found.records), edit
        delivered = set(found.records)
        lost = [record[:2] for record in blocks.after(edit) if record not in delivered]
        assert not lost, (edit, lost[:3])


def test_several_places_at_once(blocks):
    """In place: as often as one likes."""
    chooser = random.Random("several")
    for _ in range(12):
        chosen = sorted(set(places(blocks, chooser, chooser.randrange(2, 12))))
        changes = [flip(blocks.data, at, 0xFF) for at in chosen]
        damaged = apply(blocks.data, *changes)
        found = salvaged(damaged)
        check_order(found, len(damaged))
        assert set(found.records) <= set(blocks.records)
        # What lies between two places in one block may be lost: nothing proves that it is no file within a record.
        near = [(a - BLOCK, b) for a, b in itertools.pairwise(chosen) if b - a < 2 * BLOCK]
        sure = [record for record in blocks.after(*changes) if not any(a < record[0] < b for a, b in near)]
        assert set(sure) <= set(found.records)


def test_two_places_where_bytes_were_lost():
    """Far apart: two new grids, one after the other."""
    file = made("uncompressed,chunk_size:2k", "two", 320, MIXED)
    assert len(file.data) > 8 * BLOCK
    changes = [Edit(100_003, 1001, b""), Edit(400_001, 17, b"")]
    found = salvaged(apply(file.data, *changes))
    assert set(file.after(*changes)) <= set(found.records)
    assert {record for _, _, record in found.records} <= {record for _, _, record in file.records}


def test_as_much_is_saved_of_a_source_whose_size_is_not_known():
    """A compressed file, say: how long it is shows at its end."""
    file = made("uncompressed,chunk_size:20000", "unknown", 90, (3000,))
    for edit in (Edit(1000, 500, b""), Edit(70_000, 1000, b""), Edit(70_000, 0, b"y" * 1000)):
        damaged = apply(file.data, edit)
        found = salvaged(damaged)
        assert len(found.records) >= len(file.records) - 6
        assert salvaged(UnknownSizeData(damaged)) == found


def test_damage_on_a_grid_that_moved(blocks):
    """Bytes were lost near the beginning; then one byte is wrong, in each chunk in turn."""
    for lost in (1, 24, 1000):
        first = Edit(100, lost, b"")
        near = [block + n for block in range(BLOCK, len(blocks.data) - 200, BLOCK) for n in (-9, lost - 3, lost + 40)]
        near = [at for at in near if at < len(blocks.data)]
        for at in sweep.sample([chunk.data_end - 1 for chunk in blocks.chunks[2::5]], 6) + sweep.some(near, 2):
            second, chunk = flip(blocks.data, at, 0xFF), blocks.chunk_of(at)
            if not chunk.num_records or chunk.begin < 100:
                continue
            damaged = apply(blocks.data, first, second)
            found = salvaged(damaged)
            check_order(found, len(damaged))
            delivered = set(found.records)
            # Between two damaged places within a block nothing proves a chunk to be the file's own, and none of a
            # file within a record: such are not delivered.
            sure = [record for record in blocks.after(first, second) if chunk.begin > BLOCK or record[0] > at - lost]
            assert [record for record in sure if record not in delivered] == [], chunk


def test_damage_of_all_kinds_in_two_places(blocks):
    """Not all can come back then; what does is right, and regions are in order and apart from it."""
    chooser = random.Random("two places")
    texts = {record for _, _, record in blocks.records}
    kinds = [chooser.choices(("zeroed", "overwritten", "deleted", "inserted"), k=2) for _ in range(120)]
    pairs = [sorted(edits(kind, blocks, chooser, 1)[0] for kind in pair) for pair in kinds]
    for first, second in sweep.sample(pairs, 40):
        if first.at + first.lost > second.at:
            continue
        damaged = apply(blocks.data, first, second)
        found = salvaged(damaged)
        check_order(found, len(damaged))
        assert all(record in texts for _, _, record in found.records), (first, second)
        for begin, _, _ in found.records:
            assert not any(region.begin <= begin < region.end for region in found.regions), (first, second, begin)


def test_what_came_in_reaches_over_a_block(blocks):
    """Chunks that lie where a block header would be, if nothing had come in."""
    for size in (57_776, 60_000, 66_000):
        for at in (BLOCK + 32, 2 * BLOCK + 5000):
            edit = Edit(at, 0, random.Random(size).randbytes(size))
            damaged = apply(blocks.data, edit)
            found = salvaged(damaged)
            check_order(found, len(damaged))
            delivered = set(found.records)
            assert [record[:2] for record in blocks.after(edit) if record not in delivered] == [], edit


def test_what_came_in_pushes_the_rest_over_a_block_boundary():
    """No block header is left behind it: only the chunks themselves tell of the new grid, which has none there."""
    file = made("uncompressed,chunk_size:2k", "pushed", 60, (20, 500, 3000))
    assert len(file.data) < BLOCK
    for at in (70, 1000, 10_000):
        for size in (BLOCK - len(file.data) + 1000, 30_000, 60_000):
            edit = Edit(at, 0, random.Random(size).randbytes(size))
            damaged = apply(file.data, edit)
            found = salvaged(damaged)
            check_order(found, len(damaged))
            delivered = set(found.records)
            assert [record[:2] for record in file.after(edit) if record not in delivered] == [], edit


# -- the beginning, the end, and what is before and behind -----------------------------------------------------------


HEADS = [
    1,
    10,
    23,
    24,
    25,
    39,
    41,
    63,
    65,
    104,
    105,
    5000,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    BLOCK + 24,
    BLOCK + 25,
    2 * BLOCK,
    2 * BLOCK + 1,
]


def without_head(file: Sound, lost: int) -> None:
    edit = Edit(0, lost, b"")
    damaged = apply(file.data, edit)
    found = salvaged(damaged)
    check_order(found, len(damaged))
    # A chunk that begins right behind a block header begins before it, as positions go.
    assert [record for _, _, record in found.records] == [record for _, _, record in file.after(edit)], lost


@rows("lost", HEADS)
def test_a_lost_beginning(blocks, lost):
    without_head(blocks, lost)


@pytest.mark.parametrize("where", [-1, 1])
def test_a_lost_beginning_next_to_a_chunk(blocks, where):
    for chunk in blocks.chunks[1:24]:
        if any(other.begin == chunk.begin + where for other in blocks.chunks):
            continue
        without_head(blocks, chunk.begin + where)


def test_a_lost_beginning_up_to_a_chunk(blocks):
    for chunk in blocks.chunks[1:24]:
        without_head(blocks, chunk.begin)


def test_a_lost_beginning_within_the_signature(blocks):
    """Of the signature its chunk header is lost, and no more: the first chunk stands right behind a block header."""
    without_head(blocks, CHUNK_HEADER)


@rows("size", [1, 24, 64, 100, BLOCK - 1, BLOCK, BLOCK + 1, 200_000])
@rows("junk", [b"\0", b"\xff", b"junk "])
def test_junk_in_front(blocks, size, junk):
    edit = Edit(0, 0, (junk * size)[:size])
    damaged = apply(blocks.data, edit)
    found = salvaged(damaged)
    assert found.records == blocks.after(edit)
    assert [region.begin for region in found.regions] == [0]
    # The signature came through too.
    assert found.spans[0][1] in (size, size + len(FILE_SIGNATURE))


@rows("size", [1, 24, 39, 40, 64, 100, BLOCK, 200_000])
@rows("junk", [b"\0", b"\xff", b"junk "])
def test_junk_behind_the_end_costs_no_record(blocks, size, junk):
    damaged = blocks.data + (junk * size)[:size]
    found = salvaged(damaged)
    assert found.records == blocks.records
    assert found.spans == [(len(blocks.data), len(damaged))]


@rows("gap", [0, 1, 64, 1000])
def test_files_one_after_the_other(blocks, gap):
    """Not aligned to blocks: the second one has a grid of its own."""
    second = made("zstd,chunk_size:5k", "second", 90, MIXED)
    damaged = blocks.data + b"\xee" * gap + second.data
    found = salvaged(damaged)
    moved = len(blocks.data) + gap
    assert found.records == blocks.records + [(begin + moved, n, record) for begin, n, record in second.records]
    check_order(found, len(damaged))


def test_without_the_padding_of_the_last_chunk():
    for name in ("many_empty_padding", "many_empty_boundary"):
        file = sound(raw(name))
        chunk = [chunk for chunk in file.chunks if chunk.num_records][-1]
        assert chunk.data_end < chunk.end
        for size in {chunk.data_end, chunk.data_end + 1, chunk.end - 1}:
            found = salvaged(file.data[:size])
            assert found.records == [record for record in file.records if record[0] <= chunk.begin]
            assert found.regions == []
            assert [(region.begin, region.end) for region in found.healed] == [(chunk.data_end, chunk.end)]
            with RecordReader(file.data[:size], recovery=lambda region: None, salvage=False) as reader:
                assert reader.read_record() is None


@pytest.mark.parametrize(
    "options", ["uncompressed,chunk_size:120", "zstd,chunk_size:120", "uncompressed,chunk_size:120,padding:512"]
)
def test_cut_at_every_byte(options):
    """Every chunk that is whole, the last record from behind too; the rest is one region."""
    file = made(options, "cut", 30, SMALL)
    for size in sweep.some(range(len(file.data) + 1), 8, keep=(chunk.end for chunk in file.chunks), ends=24):
        cut = file.data[:size]
        whole = [chunk for chunk in file.chunks if chunk.end <= size]
        begins = {chunk.begin for chunk in whole}
        expected = [record for record in file.records if record[0] in begins]
        found = salvaged(cut)
        assert found.records == expected, size
        end = whole[-1].end if whole else 0
        assert found.spans == ([(end, size)] if end < size else []), size
        for recovery in (lambda region: None, None):
            reader = RecordReader(cut, recovery=recovery)
            reader.seek_numeric(size)
            assert reader.seek_back() is bool(expected), size
            if expected:
                begin, index, record = expected[-1]
                assert reader.pos == RecordPosition(begin, index)
                assert reader.read_record() == record


# -- files within records --------------------------------------------------------------------------------------------


INNER = written("uncompressed,chunk_size:60", [b"inner %03d" % n for n in range(9)])
TINY = written("uncompressed", [b"inner"])
LARGE = made("uncompressed,chunk_size:3k", "large", 50, (1500,)).data
NESTED = {
    "file": [b"a", TINY, b"z"],
    "file in the first record": [TINY, b"z" * 20],
    "file in the middle of a record": [b"a", b"<" * 50 + INNER + b">" * 50, b"z" * 9],
    "files": [b"a", INNER, INNER, b"b", TINY, TINY, b"z"],
    "chunk": [b"a", TINY[64:], b"z"],
    "chunks": [b"a", INNER[64:], b"z", b"<" + INNER[64:] + b">", b"z" * 30],
    "chunk headers": [b"a", TINY[64:104], b"b", TINY[64:104] + b"z" * 9, b"z"],
    "block header of a chunk's beginning": [b"a", pack_block(0, 64), b"z"],
    "block header within a chunk": [b"a", pack_block(24, 40), b"z"],
    "block headers and a chunk": [b"a", pack_block(0, 64) + pack_block(5, 100) + TINY[64:], b"z"],
}
EACH, ALL = "uncompressed,chunk_size:1", "uncompressed,chunk_size:1M"


def nested(name: str, options: str) -> Sound:
    return sound(written(options, NESTED[name]))


@rows("options", [EACH, ALL], ids=["each", "all"])
@rows("name", NESTED)
def test_every_flipped_byte_around_files_within_records(name, options):
    """The records of an inner file are none of the outer one's."""
    file = nested(name, options)
    failed = {}
    for at in sweep.some(range(len(file.data)), 8, ends=24):
        for mask in sweep.values((1, 0xFF), at, 1):
            edit = flip(file.data, at, mask)
            try:
                check_in_place(file, apply(file.data, edit), [edit])
            except AssertionError as error:
                failed[at, mask] = str(error)
    assert not failed


@rows("name", NESTED)
def test_every_cut_through_files_within_records(name):
    for options in (EACH, ALL):
        file = nested(name, options)
        for size in sweep.some(range(len(file.data)), 8, keep=(chunk.end for chunk in file.chunks)):
            found = salvaged(file.data[:size])
            whole = {chunk.begin for chunk in file.chunks if chunk.end <= size}
            assert found.records == [record for record in file.records if record[0] in whole], (options, size)


@pytest.mark.parametrize("options", [EACH, "uncompressed,chunk_size:1k", ALL])
def test_a_flipped_byte_around_a_large_file_within_a_record(options):
    """The inner file has blocks of its own, which are off the outer one's."""
    file = sound(written(options, [b"a" * 9, LARGE, b"z" * 9, INNER, b"z", LARGE, b"end"]))
    chooser = random.Random(options)
    near = {chunk.begin + n for chunk in file.chunks for n in range(CHUNK_HEADER)}
    near |= {block + n for block in range(0, len(file.data), BLOCK) for n in range(0, BLOCK_HEADER, 3)}
    for at in sorted({at for at in near if at < len(file.data)} | set(places(file, chooser, 100))):
        edit = flip(file.data, at, chooser.choice((1, 0x80, 0xFF)))
        check_in_place(file, apply(file.data, edit), [edit])


def test_a_file_within_a_record_is_not_the_outer_file_on_a_grid_that_moved():
    """The headers of the chunk around it, and of the next one, are damaged: its own block headers lead nowhere."""
    inner = made("uncompressed,chunk_size:3k", "inner", 90, (1500,))
    assert len(inner.data) > 2 * BLOCK
    file = sound(written(EACH, [b"a" * 9, inner.data, b"z" * 9, b"end"]))
    edits = [flip(file.data, chunk.begin + 9, 0xFF) for chunk in file.chunks[2:4]]
    found = check_in_place(file, apply(file.data, *edits), edits)
    assert [record for _, _, record in found.records] == [b"a" * 9, b"end"]


def test_a_number_of_records_that_leads_into_another_chunk():
    """A chunk is at least as long as it has records: a wrong number of them may lead to where an inner chunk begins."""
    begin, wrong = 64, 1 + (1 << 8)
    target = begin + wrong
    second = begin + CHUNK_HEADER + len(b"\0\x01\x01a")
    pad = target - second - CHUNK_HEADER - len(b"\0\x02\xff\x01")  # sizes above 127 take two bytes
    file = sound(written(EACH, [b"a", b"-" * pad + TINY[64:], b"z"]))
    assert file.data[target:].startswith(TINY[64:])
    edit = flip(file.data, begin + 26, 1)
    check_in_place(file, apply(file.data, edit), [edit])


@pytest.mark.parametrize("padding", [512, 4096, BLOCK])
def test_a_number_of_records_that_leads_to_the_end(padding):
    """In the signature: the whole file would be taken for its padding."""
    file = made(f"uncompressed,chunk_size:60,padding:{padding}", "end", 9, (20,))
    assert len(file.data) % padding == 0
    for bit in range(8 * 7):
        edit = flip(file.data, 24 + 25 + bit // 8, 1 << bit % 8)
        found = check_in_place(file, apply(file.data, edit), [edit])
        assert found.records == file.records


# -- by position -----------------------------------------------------------------------------------------------------


def navigate(damaged: bytes, positions: list[int]) -> None:
    """Wherever one seeks to: the record there, or the next that reading from one end to the other gives."""
    listed = salvaged(damaged).records
    for pos in positions:
        expected = next((record for record in listed if record[0] + record[1] == pos or record[0] >= pos), None)
        with RecordReader(damaged, recovery=lambda region: None) as reader:
            reader.seek_numeric(pos)
            record = reader.read_record()
            got = None if record is None else (reader.last_pos.chunk_begin, reader.last_pos.record_index, record)
            assert got == expected, pos
            reader.seek_numeric(pos)
            before = [record for record in listed if expected is None or record[:2] < expected[:2]]
            assert reader.seek_back() is bool(before), pos
            if before:
                assert (reader.pos.chunk_begin, reader.pos.record_index) == before[-1][:2], pos
                assert reader.read_record() == before[-1][2]
    walked = []
    with RecordReader(damaged, recovery=lambda region: None) as reader:
        reader.seek_numeric(len(damaged))
        while reader.seek_back():
            here = reader.pos
            walked.append((here.chunk_begin, here.record_index, reader.read_record()))
            assert len(walked) <= len(listed)
            reader.seek(here)
    assert walked[::-1] == listed


@rows("kind", ["flipped", "zeroed", "overwritten", "cut", "inserted", "deleted"])
def test_positions_of_a_damaged_file(blocks, kind):
    chooser = random.Random(kind)
    for edit in sweep.sample(edits(kind, blocks, chooser, 12), 1):
        if kind == "flipped":
            edit = flip(blocks.data, edit.at, 0xFF)
        elif kind == "cut":
            edit = Edit(edit.at, len(blocks.data) - edit.at, b"")
        damaged = apply(blocks.data, edit)
        chosen = {0, 1, 64, len(damaged), len(damaged) // 2, *(chooser.randrange(len(damaged) + 1) for _ in range(4))}
        chosen |= {chunk.begin + n for chunk in chooser.sample(blocks.chunks, 2) for n in (0, 1)}
        navigate(damaged, sorted(pos for pos in chosen if pos <= len(damaged)))


def test_search_in_a_damaged_file(blocks):
    """What is found is the first record, of those that are left, that is not less."""
    chooser = random.Random("search")
    for at in places(blocks, chooser, 20):
        damaged = apply(blocks.data, flip(blocks.data, at, 0xFF))
        left = [record for _, _, record in salvaged(damaged).records]
        with RecordReader(damaged, recovery=lambda region: None) as reader:
            for wanted in (b"0000", b"0017", b"0059", b"0119", b"0120"):
                result = reader.search_for_record(lambda record: (record[:4] > wanted) - (record[:4] < wanted))  # noqa: B023
                expected = next((record for record in left if record[:4] >= wanted), None)
                assert result == (-1 if expected is None else int(expected[:4] != wanted)), (at, wanted)
                assert reader.read_record() == expected, (at, wanted)


# -- hostile files ---------------------------------------------------------------------------------------------------


def walk(data: bytes, **options) -> None:
    with RecordReader(data, **options) as reader:
        while reader.read_record() is not None:
            pass


def seek_about(data: bytes, **options) -> None:
    for pos in {0, 1, 24, 64, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 25, 2 * BLOCK, len(data) - 1, len(data)}:
        with RecordReader(data, **options) as reader:
            reader.seek_numeric(min(pos, len(data)))
            reader.read_record()
            reader.seek_numeric(min(pos, len(data)))
            reader.seek_back()


def go_back(data: bytes, **options) -> None:
    with RecordReader(data, **options) as reader:
        reader.seek_numeric(len(data))
        last = None
        while reader.seek_back():
            assert last is None or reader.pos < last
            last = reader.pos


def search_about(data: bytes, **options) -> None:
    for wanted in (b"", b"0011", b"9"):
        with RecordReader(data, **options) as reader:
            reader.search_for_record(lambda record: (record[:4] > wanted) - (record[:4] < wanted))  # noqa: B023


MODES = {
    "strict": {},
    "reference": {"recovery": lambda region: None, "salvage": False},
    "salvage": {"recovery": lambda region: None},
}
WAYS = (walk, seek_about, go_back, search_about)


def survives(data: bytes, most: int = 2_000_000) -> None:
    for options in MODES.values():
        for way in WAYS:
            with bounded(most):
                try:
                    way(data, **options)
                except RiegeliError:
                    assert not options, (way, options)


@pytest.fixture(scope="module")
def victim() -> Sound:
    return made("uncompressed,chunk_size:8k", "victim", 70, (3000,))


FORGED = [0, 1, 23, 24, 25, 64, 100, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 25, 2 * BLOCK, 2**32, 2**63, 2**64 - 1]


@pytest.mark.parametrize("block", [0, BLOCK, 2 * BLOCK, 3 * BLOCK])
def test_a_forged_block_header_ends_no_loop(victim, block):
    assert len(victim.data) > 3 * BLOCK
    chooser = random.Random(block)
    pairs = [(0, 0), (2**64 - 1, 0), (0, 2**64 - 1), (block, 0), (0, BLOCK), (block, 1), (1, block)]
    pairs += [(chooser.choice(FORGED), chooser.choice(FORGED)) for _ in range(10)]
    # Three of the plain ones, others at the next block.
    for previous, following in [*sweep.values(pairs[:7], block // BLOCK, 3), *sweep.sample(pairs[7:], 1)]:
        data = apply(victim.data, Edit(block, BLOCK_HEADER, pack_block(previous, following)))
        survives(data)
        if block:
            assert salvaged(data).records == victim.records, (previous, following)


@pytest.mark.parametrize("block", [BLOCK, 2 * BLOCK])
def test_positions_behind_a_forged_block_header(victim, block):
    """It lies about the chunk that it interrupts; the chunks themselves are whole."""
    chunk = victim.chunk_of(block)
    true = (block - chunk.begin, chunk.end - block)
    others = [(0, true[1]), (true[0], 40), (true[0] - 1, true[1] + 1), (block - 64, true[1]), (2**40, 2**40), (64, 64)]
    for previous, following in others:
        data = apply(victim.data, Edit(block, BLOCK_HEADER, pack_block(previous, following)))
        navigate(data, [64, block - 1, block, block + 1, block + 5000, block + 60_000, 2 * BLOCK + 1, len(data)])


@rows("seed", range(6))
def test_forged_block_headers_everywhere_end_no_loop(victim, seed):
    chooser = random.Random(seed)
    headers = [
        Edit(block, BLOCK_HEADER, pack_block(chooser.choice([*FORGED, block]), chooser.choice(FORGED)))
        for block in range(BLOCK, len(victim.data), BLOCK)
    ]
    data = apply(victim.data, *headers)
    survives(data)
    assert salvaged(data).records == victim.records


def test_block_headers_that_name_each_other():
    """No chunk at all, only block headers that lead to one another."""
    block = bytes(BLOCK - BLOCK_HEADER)
    pairs = ((BLOCK, BLOCK), (0, 0), (BLOCK, 0), (24, 2 * BLOCK), (2 * BLOCK, BLOCK + 25), (1, 1))
    for pair in sweep.part(pairs):
        survives(FILE_SIGNATURE + bytes(BLOCK - 64) + (pack_block(*pair) + block) * 4)
        survives((pack_block(*pair) + block) * 4)


def test_chunk_headers_that_claim_everything():
    """Many chunks with right headers, all of which go on to the end of the file, and wrong data."""
    size = 6000
    data = bytearray(FILE_SIGNATURE + b"\xff" * CHUNK_HEADER)
    while len(data) < size - CHUNK_HEADER:
        claimed = Layout().distance(len(data), size) - CHUNK_HEADER
        data += ChunkHeader(0x72, claimed, 12_345, 1, claimed).pack()
    data += bytes(size - len(data))
    survives(bytes(data))


def test_the_work_grows_with_the_file_and_no_faster():
    """Twice as many damaged chunks: about twice the calls."""
    made_of = []
    for count in (600, 1200):
        data = bytearray(written("uncompressed,chunk_size:1", [b"%06d" % n + bytes(20) for n in range(count)]))
        for chunk in sound(bytes(data)).chunks[1::2]:
            data[chunk.begin + 9] ^= 0x55
        with bounded(10**8) as calls:
            walk(bytes(data), recovery=lambda region: None)
        made_of.append(calls())
    assert made_of[1] < 3.5 * made_of[0]
