"""Chunks that say more of themselves than their bytes can be: damage, which reading goes on behind, and no limit."""

from __future__ import annotations

import json

import pytest

import pparse
from pparse.cli import main
from pparse.errors import LimitError
from pparse.kernels.highway import hash64
from pparse.kernels.varint import encode_varint
from pparse.riegeli import RecordReader
from pparse.riegeli.chunks import METADATA, SIMPLE, TRANSPOSED, ChunkHeader
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD, PartCompressor
from pparse.riegeli.records import encode_simple
from pparse.riegeli.transposed_encoder import encode_transposed
from pparse.riegeli.writer import ChunkWriter
from tests.rows import rows

COMPRESSIONS = {"none": NONE, "brotli": BROTLI, "zstd": ZSTD, "snappy": SNAPPY}
HUGE = 10**12
RECORDS = [b"\x08%c\x12\x05hello" % number for number in range(20)]


def data_of(kind: int, compressor: PartCompressor, records=RECORDS) -> bytes:
    if kind == SIMPLE:
        return encode_simple(records, compressor)
    return encode_transposed(records, compressor)


def file_of(header: ChunkHeader, data: bytes) -> bytes:
    """A file with a chunk in the middle whose header is sound, and says what it likes."""
    out = bytearray()
    writer = ChunkWriter(out.extend, 0)
    writer.begin_file()
    for number in (1, 2, 3):
        if number == 2:
            writer.write_chunk(header, [data])
        else:
            good = encode_simple([b"good %d" % number], PartCompressor(NONE))
            writer.write_chunk(ChunkHeader(SIMPLE, len(good), hash64(good), 1, 6), [good])
    return bytes(out)


def sized(sizes: list[int], values: bytes, compressor: PartCompressor) -> bytes:
    """The data of a simple chunk that has the values, and says those sizes."""
    packed = compressor.part(b"".join(map(encode_varint, sizes)))
    return bytes((compressor.kind,)) + encode_varint(len(packed)) + packed + compressor.part(values)


def lies():
    for word, kind in COMPRESSIONS.items():
        compressor = PartCompressor(kind)
        for name, chunk_type in (("simple", SIMPLE), ("transposed", TRANSPOSED)):
            data = data_of(chunk_type, compressor)
            size, count = sum(map(len, RECORDS)), len(RECORDS)
            yield f"{name}-{word}-bytes", ChunkHeader(chunk_type, len(data), hash64(data), count, HUGE), data
            yield f"{name}-{word}-records", ChunkHeader(chunk_type, len(data), hash64(data), 400_000, size), data
            yield f"{name}-{word}-both", ChunkHeader(chunk_type, len(data), hash64(data), 400_000, HUGE), data
        data = sized([HUGE], b"little", compressor)
        yield f"simple-{word}-one-size", ChunkHeader(SIMPLE, len(data), hash64(data), 1, HUGE), data
        data = sized([5, HUGE - 5], b"little", compressor)
        yield f"simple-{word}-sizes", ChunkHeader(SIMPLE, len(data), hash64(data), 2, HUGE), data


LIES = {name: (header, data) for name, header, data in lies()}


@rows("name", LIES)
def test_a_claim_that_the_bytes_cannot_meet_is_damage_and_reading_goes_on_behind(name):
    raw = file_of(*LIES[name])
    lost = []
    with RecordReader(raw, recovery=lost.append, budget="16MiB") as reader:
        records = list(reader)
    assert [record for record in records if record.startswith(b"good")] == [b"good 1", b"good 3"]
    assert lost


@pytest.mark.parametrize("name", LIES)
def test_a_claim_that_the_bytes_cannot_meet_is_no_limit_to_a_check(name, tmp_path, capsys):
    path = tmp_path / "lie.riegeli"
    path.write_bytes(file_of(*LIES[name]))
    assert main(["check", str(path), "--json"]) == 4
    said = json.loads(capsys.readouterr().out)
    assert "limit" not in json.dumps(said)


@pytest.mark.parametrize("name", LIES)
def test_a_recovery_goes_on_behind_a_claim_that_the_bytes_cannot_meet(name, tmp_path, capsys):
    path = tmp_path / "lie.riegeli"
    path.write_bytes(file_of(*LIES[name]))
    assert main(["recover", str(path), "-o", str(tmp_path / "saved")]) == 4
    with RecordReader(str(tmp_path / "saved" / "lie.riegeli")) as reader:
        records = list(reader)
    assert [record for record in records if record.startswith(b"good")] == [b"good 1", b"good 3"]


def test_a_chunk_that_is_what_it_says_stays_a_matter_of_the_budget():
    records = [b"\x12\x80\x80\x40" + bytes(1 << 20) for _ in range(40)]
    data = data_of(TRANSPOSED, PartCompressor(ZSTD), records)
    header = ChunkHeader(TRANSPOSED, len(data), hash64(data), len(records), sum(map(len, records)))
    assert header.decoded_data_size > 64 * len(data)
    with RecordReader(file_of(header, data), budget="16MiB") as reader:
        assert reader.read_record() == b"good 1"
        with pytest.raises(LimitError, match="decoded as a whole") as caught:
            reader.read_record()
    assert caught.value.option.startswith("--budget ")
    with RecordReader(file_of(header, data), budget=caught.value.option.split()[1]) as reader:
        assert [len(record) for record in reader] == [6, *(len(record) for record in records), 6]


def test_a_chunk_whose_hash_fails_is_damaged_however_large_it_says_it_is():
    data = data_of(TRANSPOSED, PartCompressor(ZSTD))
    header = ChunkHeader(TRANSPOSED, len(data), hash64(data) ^ 1, len(RECORDS), 60 * len(data) << 20)
    lost = []
    with RecordReader(file_of(header, data), recovery=lost.append, budget="1MiB") as reader:
        assert list(reader) == [b"good 1", b"good 3"]
    assert "hash mismatch" in lost[0].message


def test_metadata_that_claim_too_much_are_damaged():
    data = data_of(TRANSPOSED, PartCompressor(ZSTD), [b"\x0a\x05hello"])
    out = bytearray()
    writer = ChunkWriter(out.extend, 0)
    writer.begin_file()
    writer.write_chunk(ChunkHeader(METADATA, len(data), hash64(data), 0, HUGE), [data])
    good = encode_simple([b"good"], PartCompressor(NONE))
    writer.write_chunk(ChunkHeader(SIMPLE, len(good), hash64(good), 1, 4), [good])
    with RecordReader(bytes(out), recovery=lambda _region: True) as reader:
        assert reader.read_serialized_metadata() == b""
        assert list(reader) == [b"good"]
    with pparse.open(bytes(out)) as document:
        assert [finding.code for finding in document.check()] == ["malformed"]
