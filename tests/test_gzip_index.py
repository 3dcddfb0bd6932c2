"""The index of gzip files: what it holds, that reads by way of it are right, and that no damage makes them wrong."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.compressed import gzip_index
from pparse.compressed import gzip_index as gzip_indexing
from pparse.compressed.gzip_index import FOOTER, MAGIC, POINT, GzipIndex, IndexedData, build_index, check_index
from pparse.compressed.resumed import ResumedData
from pparse.data import index_files
from pparse.data.base import BytesData
from pparse.data.files import FileData
from pparse.data.index_files import cache_path, fingerprint
from pparse.errors import (
    CancelledError,
    EndOfDataError,
    GapError,
    LimitError,
    MalformedError,
    PparseError,
    SourceError,
    UnsupportedError,
)
from pparse.findings import Severity
from pparse.limits import KIB, MIB, Limits, MemoryBudget
from tests import sweep

SPACING = 64 * KIB
FRONT, BACK = b"in front of it", b"behind it"


@cache
def content(size: int, seed: int = 1) -> bytes:
    """Text, noise and numbers in turn."""
    rng = random.Random(seed)
    words = [bytes(rng.choices(b"abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(2000)]
    parts: list[bytes] = []
    while sum(map(len, parts)) < size:
        parts.append(b" ".join(rng.choices(words, k=6000)))
        parts.append(rng.randbytes(7000))
        parts.append(b"".join(struct.pack("<f", rng.gauss(0, 1)) for _ in range(3000)))
    return b"".join(parts)[:size]


def pack(data: bytes, level: int = 6, memory: int = 8, strategy: int = 0) -> bytes:
    writer = zlib.compressobj(level, zlib.DEFLATED, 31, memory, strategy)
    return writer.compress(data) + writer.flush()


def bgzf(data: bytes) -> bytes:
    """Blocks of up to 60,000 bytes, each a member that says how long it is."""
    members = []
    for at in range(0, len(data), 60_000):
        part = data[at : at + 60_000]
        writer = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = writer.compress(part) + writer.flush()
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(body) + 25)
        members.append(head + body + struct.pack("<II", zlib.crc32(part), len(part)))
    return b"".join(members)


def ranged(packed: bytes):
    """Return a range in the middle of a source."""
    return BytesData(FRONT + packed + BACK).range(len(FRONT), len(FRONT) + len(packed))


def make(packed: bytes, spacing: int = SPACING, **options):
    """Return the index file, and the report."""
    file = io.BytesIO()
    report = build_index(ranged(packed), file, spacing=spacing, budget=MemoryBudget(), **options)
    assert report.file_size == len(file.getvalue())
    return file.getvalue(), report


def load(raw: bytes, budget: MemoryBudget | None = None) -> GzipIndex:
    return GzipIndex(BytesData(raw, "the index"), budget or MemoryBudget())


def indexed(packed: bytes, raw: bytes, **options) -> IndexedData:
    budget = MemoryBudget()
    source = ranged(packed)
    index = load(raw, budget)
    assert index.matches(source)
    return IndexedData(source, "gzip", index=index, budget=budget, concatenated=True, **options)


def resumed(packed: bytes, raw: bytes) -> ResumedData:
    budget = MemoryBudget()
    return ResumedData(ranged(packed), "gzip", budget=budget, concatenated=True, index=load(raw, budget))


DATA = content(1_200_000)
FILES = {
    "fast": pack(DATA, 1),
    "usual": pack(DATA),
    "best": pack(DATA, 9),
    "small blocks": pack(DATA, 6, 2),
    "stored": pack(DATA, 0),
    "huffman": pack(DATA, 6, 8, zlib.Z_HUFFMAN_ONLY),
    "members": b"".join(pack(DATA[at : at + 250_000]) for at in range(0, len(DATA), 250_000)),
    "small members": b"".join(pack(DATA[at : at + 5_000]) for at in range(0, len(DATA), 5_000)),
    "padded": pack(DATA[:600_000]) + bytes(700) + pack(DATA[600_000:]) + bytes(300_000),
    "bgzf": bgzf(DATA) + bgzf(b"") + b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0" + bytes(8),
    "named": gzip.compress(DATA[:100]) + b"\x1f\x8b\x08\x08\0\0\0\0\0\x03a name\0" + pack(DATA[100:])[10:],
}


# Where members begin in the output.
STARTS = {
    "members": range(0, len(DATA), 250_000),
    "small members": range(0, len(DATA), 5_000),
    "padded": (0, 600_000),
    "named": (0, 100),
}


@pytest.fixture(scope="module")
def made():
    return {name: make(packed) for name, packed in FILES.items()}


# -- what an index holds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_points_are_where_they_say(name, made):
    raw, report = made[name]
    packed = FILES[name]
    assert report.error is None
    index = load(raw)
    assert (index.size, index.complete, index.points) == (len(DATA), True, report.points)
    assert index.source_size == report.source == len(packed)
    assert index.points > len(DATA) / SPACING / 2.2
    for number in range(index.points):
        point = index.point(number)
        window = index.window(point)
        if window:
            assert DATA[: point.out].endswith(window)
            before = point.out - max(start for start in STARTS.get(name, (0,)) if start <= point.out)
            assert len(window) == min(32 * KIB, before)
        assert point.checksum == zlib.crc32(packed[point.start : point.end])
        following = index.point(number + 1) if number + 1 < index.points else None
        assert point.next_out == (len(DATA) if following is None else following.out)
        assert point.next_out - point.out < 4 * SPACING
    check_index(index, ranged(packed), budget=MemoryBudget())


def test_members_are_counted_and_need_no_window(made):
    counts = {name: report.members for name, (_, report) in made.items()}
    assert counts["usual"] == 1
    assert counts["members"] == 5
    assert counts["small members"] == 240
    assert counts["padded"] == 2
    assert counts["bgzf"] == 21
    assert counts["named"] == 2
    index = load(made["bgzf"][0])
    assert all(index.point(number).window[1] == 0 for number in range(index.points))
    assert len(made["bgzf"][0]) < 1000


@pytest.mark.parametrize("name", FILES)
def test_reads_are_right_and_near(name, made):
    packed = FILES[name]
    data = indexed(packed, made[name][0])
    rng = random.Random(name)
    for _ in range(60):
        offset = rng.randrange(len(DATA) + 10)
        length = rng.choice((1, 100, 70_000, 300_000))
        assert data.pread(offset, length) == DATA[offset : offset + length]
    assert data.index.problem is None
    data = indexed(packed, made[name][0])
    before = data._source.data.stats.bytes
    assert data.pread(1_000_000, 1000) == DATA[1_000_000:1_001_000]
    assert data._source.data.stats.bytes - before < 0.6 * len(packed)
    assert data.produced == 0
    buffer = bytearray(200_000)
    assert data.preadinto(900_000, buffer) == 200_000
    assert buffer == DATA[900_000:1_100_000]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 200_000)), max_size=12), st.sampled_from(list(FILES))
)
def test_reads_in_any_order_equal_zlib(reads, name):
    raw, _ = make_once(name)
    data = resumed(FILES[name], raw)
    assert data.size == len(DATA)
    for offset, length in reads:
        assert data.pread(offset, length) == DATA[offset : offset + length]
    data.verify()
    assert (data.error, data.gaps, data.problems) == (None, (), [])


@cache
def make_once(name):
    return make(FILES[name])


def test_reading_from_the_start_goes_without_it(made):
    data = indexed(FILES["usual"], made["usual"][0])
    assert data.open().read() == DATA
    assert (data.produced, data._open) == (len(DATA), {})
    data.verify()
    assert data.error is None


def test_a_file_without_places_to_begin():
    """Blocks of fixed codes cannot be found: one point, and what is read is right."""
    data = b" ".join(b"%d bottles" % number for number in range(80_000))
    packed = pack(data, 6, 8, zlib.Z_FIXED)
    raw, report = make(packed)
    assert (report.points, report.size, report.error) == (1, len(data), None)
    assert indexed(packed, raw).pread(1_000_000, 99) == data[1_000_000:1_000_099]


def test_an_index_of_zeros_takes_little_and_reads_around_them():
    zeros = bytes(20 * MIB)
    packed = pack(zeros + DATA[:100_000] + zeros)
    raw, report = make(packed, MIB)
    assert report.size == 2 * len(zeros) + 100_000
    assert report.points >= 5
    assert len(raw) < 3_000
    data = indexed(packed, raw)
    assert data.pread(len(zeros) - 10, 100_020) == bytes(10) + DATA[:100_000] + bytes(10)
    check_index(load(raw), ranged(packed), budget=MemoryBudget())


def test_small_and_empty_files():
    for data in (b"", b"x", DATA[:1000]):
        raw, report = make(pack(data))
        assert (report.points, report.size, report.members, report.error) == (1, len(data), 1, None)
        assert indexed(pack(data), raw).pread(0, 2000) == data


def test_what_only_looks_like_a_block_is_no_point(monkeypatch):
    """Each candidate must prove itself."""
    from pparse.kernels.deflate_blocks import BlockStart

    find = gzip_indexing.find_blocks

    def find_too_much(buffer, first, last):
        for block in find(buffer, first, last):
            for bit in range(max(first, block.bit - 3), block.bit):
                yield BlockStart(bit, "dynamic", False)
            yield block

    monkeypatch.setattr(gzip_indexing, "find_blocks", find_too_much)
    raw, report = make(FILES["usual"])
    assert report.points > 6
    check_index(load(raw), ranged(FILES["usual"]), budget=MemoryBudget())


def test_the_end_of_a_member_that_was_entered():
    """The trailer is taken byte by byte; what follows is not; without all of it the stream is cut short."""
    packed = FILES["usual"]
    index = load(make_once("usual")[0])
    point = index.point(index.points - 1)
    window = index.window(point)

    def decode(data):
        stream = gzip_index.GzipEntryStream(point.bit & 7, window, None, None, None)
        out = b""
        for at in range(len(data)):
            while not stream.eof and (piece := stream.decompress(b"", 5000)):
                out += piece
            out += stream.decompress(data[at : at + 1], 5000)
        stream.finish()
        while not stream.eof and (piece := stream.decompress(b"", 5000)):
            out += piece
        return out, stream

    out, stream = decode(packed[point.start :] + b"what follows")
    assert out == DATA[point.out :]
    assert (stream.consumed, stream.unused_data) == (len(packed) - point.start, b"what follows")
    for cut in sweep.sample(range(1, 9), 3):
        with pytest.raises(EndOfDataError):
            decode(packed[point.start : -cut])


# -- damaged files ---------------------------------------------------------------------------------------------------


def test_the_index_of_a_cut_file_serves_what_is_there():
    packed = FILES["usual"]
    for cut in (5, 20, 1000, len(packed) // 2, len(packed) - 9, len(packed) - 3):
        part = packed[:cut]
        raw, report = make(part)
        held = zlib.decompressobj(31).decompress(part)
        assert isinstance(report.error, EndOfDataError)
        assert (report.size, report.end) == (len(held), cut)
        index = load(raw)
        assert not index.complete
        data = resumed(part, raw)
        assert data.size is None
        if len(held) > 500_000:
            assert data.pread(len(held) - 9_000, 5000) == held[-9000:-4000]
            assert data._head._open
            assert data.pread(len(held) - 10, 100) == held[-10:]
            with pytest.raises(GapError):
                data.pread(len(held) + 100, 10)
        check_index(load(raw), ranged(part), budget=MemoryBudget())


def test_what_was_decoded_before_damage_is_not_indexed():
    data = content(6_000_000)
    packed = bytearray(pack(data))
    at = len(packed) * 3 // 4
    packed[at : at + 100_000] = random.Random(4).randbytes(100_000)
    raw, report = make(bytes(packed))
    assert isinstance(report.error, MalformedError)
    assert "check" not in report.error.reason
    assert len(packed) // 4 < report.end < at - MIB
    index = load(raw)
    assert (index.size, index.complete) == (report.size, False)
    with IndexedData(ranged(bytes(packed)), "gzip", index=index, budget=MemoryBudget(), concatenated=True) as found:
        assert found.pread(index.size - 1000, 1000) == data[index.size - 1000 : index.size]
        assert found._open


@pytest.mark.parametrize("place", [-8, -4], ids=["data", "length"])
def test_a_member_with_a_wrong_checksum_is_not_indexed(place):
    first, second = pack(DATA[:300_000]), bytearray(pack(DATA))
    second[place] ^= 1
    raw, report = make(first + bytes(second))
    assert "check" in report.error.reason
    assert (report.size, report.end, report.members) == (300_000, len(first), 1)
    assert load(raw).point(load(raw).points - 1).end == len(first)
    check_index(load(raw), ranged(first + bytes(second)), budget=MemoryBudget())


def test_nothing_of_one_large_member_with_a_wrong_checksum():
    packed = bytearray(pack(content(6_000_000)))
    packed[-8] ^= 1
    _, report = make(bytes(packed))
    assert (report.size, report.end, report.members, report.points) == (0, 0, 0, 1)


def test_bytes_behind_the_stream():
    raw, report = make(FILES["members"] + b"something else")
    assert (report.size, report.end) == (len(DATA), len(FILES["members"]))
    assert report.error.reason.startswith("bytes follow")
    assert not load(raw).complete


def test_gaps_of_the_source():
    from pparse.testing.fakes import GappyData

    packed = FILES["usual"]
    source = GappyData(packed, [(len(packed) * 2 // 3, 100)])
    file = io.BytesIO()
    report = build_index(source.range(0, len(packed)), file, spacing=SPACING, budget=MemoryBudget())
    assert isinstance(report.error, GapError)
    assert report.size < len(DATA)
    load(file.getvalue())


def test_no_gzip_file():
    raw, report = make(b"nothing of the kind " * 100)
    assert (report.size, report.members) == (0, 0)
    assert isinstance(report.error, MalformedError)
    load(raw)


def test_what_stops_the_builder():
    with pytest.raises(CancelledError):
        make(FILES["usual"], cancel=lambda: True)
    with pytest.raises(LimitError, match="inflated_bytes"):
        make(FILES["usual"], limits=Limits(inflated_bytes=500_000))
    with pytest.raises(ValueError, match="nearer"):
        make(FILES["usual"], spacing=1000)
    seen = []
    make(FILES["usual"], progress=lambda done, total, what: seen.append((done, total)))
    assert seen[0] == (0, len(FILES["usual"]))
    assert sorted(seen) == seen
    assert len(seen) > 1


def test_a_small_budget_suffices():
    budget = MemoryBudget(MIB)
    file = io.BytesIO()
    source = ranged(FILES["usual"])
    build_index(source, file, spacing=SPACING, budget=budget)
    assert budget.used == 0
    index = load(file.getvalue(), budget)
    assert budget.used == index.points * (POINT.size + 1)
    data = IndexedData(source, "gzip", index=index, budget=budget, concatenated=True)
    for offset in (1_100_000, 300_000, 700_000, 0, 500_000, 900_000, 200_000):
        assert data.pread(offset, 100_000) == DATA[offset : offset + 100_000]
    assert index.problem is None
    data.close()
    assert budget.used == 0


# -- damaged and foreign indexes -------------------------------------------------------------------------------------


def test_every_byte_of_an_index_flipped(monkeypatch):
    """The index is refused, or what is read by way of it is right; a damaged window is noticed when it is used."""
    monkeypatch.setattr(gzip_index, "_NEARER", 0)
    rng = random.Random(5)
    words = [rng.randbytes(100) for _ in range(16)]
    data = b"".join(rng.choices(words, k=4000))
    packed = pack(data, 6, 2)
    raw, report = make(packed)
    assert report.points >= 3
    assert len(raw) < 12_000
    noticed = 0
    places = sweep.some(range(len(raw)), 3, ends=64)
    for at in places:
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 8
        try:
            index = load(bytes(changed))
        except (MalformedError, UnsupportedError):
            noticed += 1
            continue
        found = IndexedData(ranged(packed), "gzip", index=index, budget=MemoryBudget(), concatenated=True)
        for number in range(1, report.points):
            out = index.point(number).out
            assert found.pread(out, 30) == data[out : out + 30]
        noticed += index.problem == "the index is damaged: a window is wrong"
    assert noticed == len(places)


def test_every_cut_of_an_index():
    raw, _ = make(FILES["bgzf"])
    for cut in range(len(raw)):
        with pytest.raises(MalformedError):
            load(raw[:cut])
    with pytest.raises(MalformedError):
        load(raw + b"\0")


def forged(raw: bytes, *, rows=None, **fields) -> bytes:
    """Return an index with other contents and right sums."""
    names = ["place", "points", "source_size", "mtime", "print", "end", "size", "members", "last", "spacing"]
    names += ["flags", "table_sum", "footer_sum"]
    footer = dict(zip(names, FOOTER.unpack(raw[-FOOTER.size :]), strict=True))
    table = raw[footer["place"] : -FOOTER.size]
    if rows is not None:
        table = b"".join(POINT.pack(*row) for row in rows([list(row) for row in POINT.iter_unpack(table)]))
        footer["points"] = len(table) // POINT.size
    body = raw[: footer["place"]] + table
    footer |= fields
    footer["table_sum"] = zlib.crc32(table)
    packed = FOOTER.pack(*footer.values())[:-4]
    return body + packed + struct.pack("<I", zlib.crc32(packed))


def test_forged_indexes_are_refused(made):
    raw = made["usual"][0]
    load(forged(raw))
    top = (1 << 64) - 1
    for fields in (
        {"points": top},
        {"points": 0},
        {"points": 1 << 59},
        {"place": top},
        {"place": 0},
        {"place": 15},
        {"source_size": top},
        {"end": top},
        {"size": 10},
        {"last": top},
    ):
        with pytest.raises(MalformedError):
            load(forged(raw, **fields))

    def change(row, column, value):
        def rows(found):
            found[row][column] = value
            return found

        return rows

    for row, column, value in (
        (0, 0, 8),
        (0, 1, 1),
        (3, 0, 0),
        (3, 0, top),
        (3, 1, 0),
        (3, 1, top),
        (3, 2, 0),
        (3, 3, 0),
        (3, 3, 1 << 31),
        (-1, 1, len(DATA) + 1),
        (-1, 3, 1),
    ):
        with pytest.raises(MalformedError):
            load(forged(raw, rows=change(row, column, value)))
    with pytest.raises(MalformedError):
        load(forged(raw, rows=lambda rows: rows[:2] + rows[3:]))


def test_another_version_is_refused(made):
    raw = made["usual"][0]
    assert raw.startswith(MAGIC)
    with pytest.raises(UnsupportedError, match="version 2"):
        load(raw[:15] + b"\2" + raw[16:])
    for other in (b"", b"x" * 1000, FILES["usual"]):
        with pytest.raises(MalformedError, match="not an index"):
            load(other)


def test_an_index_above_the_budget_is_refused(made):
    budget = MemoryBudget(MIB)
    held = budget.charge(MIB - 100, "other things")
    with pytest.raises(LimitError, match="index"):
        load(made["usual"][0], budget)
    held.release()


def test_a_window_that_is_a_bomb_is_refused(made):
    index = load(made["usual"][0])
    point = index.point(3)
    bomb = zlib.compress(bytes(MIB))
    index.data = BytesData(bomb)
    point = point._replace(window=(0, len(bomb), zlib.crc32(bomb)))
    with pytest.raises(MalformedError, match="window"):
        index.window(point)


def test_a_changed_file_does_not_match(made):
    packed, raw = FILES["bgzf"], made["bgzf"][0]
    index = load(raw)
    assert index.matches(ranged(packed))
    assert not index.matches(ranged(packed + b"\0"))
    assert not index.matches(ranged(packed[:-1]))
    assert not index.matches(ranged(FILES["usual"][: len(packed)].ljust(len(packed), b"\0")))
    for at in (0, 3000, len(packed) - 1):
        changed = bytearray(packed)
        changed[at] ^= 1
        assert not index.matches(ranged(bytes(changed)))


def test_every_byte_of_a_small_file_counts():
    packed = pack(DATA[:3000])
    index = load(make(packed)[0])
    for at in range(len(packed)):
        changed = bytearray(packed)
        changed[at] ^= 1 << at % 8
        assert not index.matches(ranged(bytes(changed)))


def test_a_change_between_the_samples_is_noticed_when_it_is_read(made):
    """The file looks the same; what lies in the changed stretch is not read by way of the index, all else is."""
    packed, raw = bytearray(FILES["members"]), made["members"][0]
    at = len(packed) // 2 + 2000
    packed[at] ^= 0x10
    data = indexed(bytes(packed), raw)
    index = data.index
    assert data.pread(1_100_000, 100) == DATA[1_100_000:1_100_100]
    (number,) = (n for n in range(index.points) if index.point(n).start <= at < index.point(n).end)
    offset = index.point(number).out
    assert data.pread(offset - 100, 50) == DATA[offset - 100 : offset - 50]
    assert index.problem is None
    assert data.pread(offset - 20, 40) == DATA[offset - 20 : offset + 20]  # the rest decoded from the start
    assert index.problem == "the file was changed since it was indexed"
    assert data.produced > offset


def test_fingerprints_look_at_size_and_samples():
    data = content(500_000)
    one = fingerprint(BytesData(data).range(0, len(data)))
    assert len(one) == 16
    assert one == fingerprint(BytesData(FRONT + data).range(len(FRONT), len(FRONT) + len(data)))
    assert one != fingerprint(BytesData(data).range(0, len(data) - 1))
    for at in (0, 4095, 33_100, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        assert one != fingerprint(BytesData(changed).range(0, len(data)))


def test_checking_finds_what_is_wrong(made):
    raw = made["usual"][0]

    def shift(rows):
        rows[3][1] += 1
        return rows

    with pytest.raises(PparseError, match="differs from the file"):
        check_index(load(forged(raw, rows=shift)), ranged(FILES["usual"]), budget=MemoryBudget())
    short = forged(raw, size=len(DATA) - 1)
    with pytest.raises(MalformedError, match="size"):
        check_index(load(short), ranged(FILES["usual"]), budget=MemoryBudget())
    assert not load(short).matches(ranged(FILES["usual"]))


# -- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture
def document(tmp_path, monkeypatch):
    """A gzip file with an index beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "data.gz"
    path.write_bytes(FILES["usual"])
    (tmp_path / "data.gz.pindex").write_bytes(make_once("usual")[0])
    return path


def index_of(found):
    return found.parse("gzip").parser.content._head.__class__ is IndexedData


def test_an_index_beside_the_file_is_used(document):
    with pparse.open(document) as found:
        parser = found.parse("gzip").parser
        assert dict(parser.details())["index"].startswith(f"{document}.pindex: ")
        assert parser.content.size == len(DATA)
        assert parser.content.pread(1_000_000, 10) == DATA[1_000_000:1_000_010]
        assert parser.content._head.produced == 0
        assert not list(found.findings)
        pool = found.session.pool
        assert pool.open_count == 2
    assert pool.open_count == 0


def test_an_index_can_be_named_or_refused(document, tmp_path):
    with pparse.open(document, options={"index": "none"}) as found:
        assert not index_of(found)
    other = tmp_path / "other"
    (tmp_path / "data.gz.pindex").rename(other)
    with pparse.open(document) as found:
        assert not index_of(found)
    with pparse.open(document, options={"index": str(other)}) as found:
        assert index_of(found)
    with pytest.raises(SourceError), pparse.open(document, options={"index": "missing"}) as found:
        index_of(found)


def test_an_index_in_the_cache_is_used_for_copies(document, tmp_path):
    with FileData(document) as data:
        place = cache_path(data.range(0, data.size))
    assert place.startswith(str(tmp_path / "cache"))
    (tmp_path / "cache" / "pparse" / "gzip-index").mkdir(parents=True)
    (tmp_path / "data.gz.pindex").rename(place)
    copied = tmp_path / "copy.gz"
    copied.write_bytes(document.read_bytes())
    with pparse.open(copied) as found:
        assert index_of(found)


def test_what_is_no_index_of_the_file_is_a_warning(document, tmp_path):
    beside = tmp_path / "data.gz.pindex"
    good = beside.read_bytes()
    for raw, reason in (
        (b"not at all" * 100, "not an index"),
        (good[:-1], "damaged"),
        (make_once("bgzf")[0], "another file"),
        (good[:15] + b"\7" + good[16:], "version 7"),
    ):
        beside.write_bytes(raw)
        with pparse.open(document) as found:
            assert not index_of(found)
            (finding,) = found.findings
            assert (finding.severity, finding.code, finding.source) == (Severity.WARNING, "index", str(beside))
            assert reason in finding.reason


def test_an_index_that_fails_in_use_is_a_warning(document, tmp_path):
    beside = tmp_path / "data.gz.pindex"
    raw = bytearray(beside.read_bytes())
    index = load(bytes(raw))
    last = index.point(index.points - 1)
    raw[last.window[0] + 100] ^= 1
    beside.write_bytes(raw)
    with pparse.open(document) as found:
        content = found.parse("gzip").parser.content
        assert content.pread(last.out - 30, 10) == DATA[last.out - 30 : last.out - 20]
        assert content._head._open
        assert content.pread(last.out, 10) == DATA[last.out : last.out + 10]
        content.verify()
        (finding,) = found.findings
        assert "a window is wrong" in finding.reason
        assert finding.severity is Severity.WARNING


def test_nested_files_look_for_none(document, tmp_path):
    assert index_files.SUFFIX == ".pindex"
    outer = tmp_path / "outer.gz"
    outer.write_bytes(pack(FILES["usual"]))
    with pparse.open(outer) as found:
        inner = found.parse("gzip").parser.inner()
        assert not index_of(inner)
