"""Riegeli files in bounded memory: huge records, many chunks, wide windows, headers that claim what is not there."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import textwrap

import pytest

from pparse.data.files import FileData
from pparse.limits import parse_size
from pparse.riegeli import RecordReader, RecordWriter
from tests import sweep

STATUS = os.path.exists("/proc/self/status")
measured = pytest.mark.skipif(not STATUS, reason="no /proc/self/status here")

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
SLACK = 8 * MIB
DEFAULT = 64 * MIB
# Twice what may be held, so that a copy of it would show.
HUGE = 200_000_000 if sweep.full else 56_000_000

# What every script below begins with: everything imported, codecs used once, then `finish()` prints the growth.
PRELUDE = """
import json, sys, zlib
import brotli, cramjam, numpy
import pparse, pparse.codecs, pparse.compressed.inflated, pparse.data.spliced, pparse.parsers.riegeli
import pparse.riegeli.lookup, pparse.riegeli.salvage, pparse.riegeli.transposed, pparse.riegeli.transposed_encoder
from pparse.limits import MemoryBudget
from pparse.codecs.base import ZSTD, package
from pparse.data.files import FileData
from pparse.errors import LimitError, PparseError
from pparse.riegeli import RecordReader, RecordWriter

def memory(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

for codec in ("brotli", "zstd", "snappy"):
    assert pparse.codecs.decompress(codec, pparse.codecs.compress(codec, b"warm"), 4) == b"warm"
before = memory("VmRSS")

def finish(**more):
    print(json.dumps({"grown": memory("VmHWM") - before, **more}))

def crc_of(pieces):
    crc = size = 0
    while piece := pieces.read(1 << 20):
        crc, size = zlib.crc32(piece, crc), size + len(piece)
    return [size, crc]
"""


def run(script, *arguments):
    """Run the script in a fresh interpreter; return what it prints: bytes that its memory grew by at most, and more."""
    code = PRELUDE + textwrap.dedent(script)
    words = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def records_of(size, total, seed=1):
    """Yield records of ``size`` random bytes, about ``total`` in all: little that a window of a few MiB finds again."""
    pool = random.Random(seed).randbytes(max(8 * MIB, 2 * size))
    for number in range(-(-total // size)):
        at = number * 7919 * 512 % (len(pool) - size)
        yield pool[at : at + size]


def write(path, options, records):
    with RecordWriter(path, options=options) as writer:
        writer.write_records(records)
    return path


@measured
def test_the_measure_itself_notices_memory():
    """What is allocated and touched shows, also if it is gone at the end: else the tests below could not fail."""
    grown = run("block = bytearray(b'x') * (30 << 20); del block; finish()")["grown"]
    assert 29 * MIB < grown < 30 * MIB + SLACK
    assert run("finish()")["grown"] < SLACK


# -- one huge record -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A file of 200 MB of random bytes, which come again after 8 MiB: beyond any window used here."""
    path = tmp_path_factory.mktemp("huge") / "bytes"
    pool = random.Random(1).randbytes(8 * MIB)
    with path.open("wb") as file:
        left = HUGE
        while left:
            left -= file.write(pool[:left])
    yield path
    path.unlink()


@measured
@pytest.mark.parametrize("options", sweep.some(["uncompressed", "zstd", "snappy", "brotli:1"], 2))
def test_a_huge_record_is_written_and_read_in_pieces(tmp_path, huge, options):
    """Neither the record nor what it is compressed to is ever held: by the writer, the reader, and the tree."""
    path = tmp_path / "huge.riegeli"
    result = run(
        """
        source, path, options = sys.argv[1:]
        with open(source, "rb") as file:
            wanted = crc_of(file)
        with FileData(source) as data, RecordWriter(path, options=options) as writer:
            writer.write_record_from(data)
        written = memory("VmHWM") - before
        budget, tree_budget = MemoryBudget("16MiB"), MemoryBudget("16MiB")
        with RecordReader(path, budget=budget) as reader:
            streamed = crc_of(reader.open_record())
            more = reader.open_record()
        with RecordReader(path, budget=MemoryBudget("16MiB"), verify="all") as reader:
            first = reader.open_record().read(1000)
            verified = reader.verified
        with pparse.open(path, budget=tree_budget) as document:
            chunk = document.root[64]
            node = chunk[0]
            tree = crc_of(node.open())
            counts = [list(document.root), len(chunk)]
        finish(wanted=wanted, streamed=streamed, tree=tree, counts=counts, written=written, more=more is None,
               verified=[verified, len(first)], peaks=[budget.peak, tree_budget.peak])
        """,
        huge,
        path,
        options,
    )
    assert HUGE < path.stat().st_size < HUGE + 100 * KIB  # so the compressed bytes would show as well
    assert result["wanted"][0] == HUGE
    assert result["streamed"] == result["tree"] == result["wanted"]
    assert result["counts"] == [[0, 64], 1]
    assert result["verified"] == [True, 1000]
    assert result["more"]
    assert max(result["peaks"]) <= 16 * MIB
    assert result["written"] <= 16 * MIB
    assert result["grown"] <= 16 * MIB + SLACK
    path.unlink()


# -- many chunks -----------------------------------------------------------------------------------------------------

READ_ALL = """
path, how = sys.argv[1:3]
limit = sys.argv[3] if len(sys.argv) > 3 else "64MiB"
budget, count, size, option = MemoryBudget(limit), 0, 0, None
try:
    if how == "reader":
        with RecordReader(path, budget=budget) as reader:
            for record in reader:
                count, size = count + 1, size + len(record)
    else:
        with pparse.open(path, budget=budget) as document:
            for chunk in document.root.children():
                if chunk.kind in ("simple", "transposed"):
                    for node in chunk.children():
                        count, size = count + 1, size + len(node.load())
except LimitError as error:
    option = error.option
finish(count=count, size=size, peak=budget.peak, option=option)
"""


@measured
@pytest.mark.parametrize(
    ("options", "most", "how"),
    [
        (options, most, how)
        for number, (options, most) in sweep.part(
            enumerate(
                [
                    ("snappy", SLACK),  # chunks of 1 MiB: nothing adds up
                    ("snappy,chunk_size:7M", DEFAULT),  # just small enough to be decoded whole
                    ("zstd:1,chunk_size:20M", DEFAULT),  # too large for that
                    ("uncompressed,chunk_size:40M", SLACK),
                ]
            )
        )
        for how in sweep.values(("reader", "tree"), sweep.offset + number, 1)
    ],
)
def test_many_chunks_keep_within_the_default_budget(tmp_path, options, most, how):
    path = write(tmp_path / "many.riegeli", options, records_of(100_000, 60_000_000))
    result = run(READ_ALL, path, how)
    assert (result["count"], result["size"], result["option"]) == (600, 60_000_000, None)
    assert result["peak"] <= DEFAULT
    assert result["grown"] <= most + SLACK


@measured
@pytest.mark.parametrize(("size", "how"), sweep.part(itertools.product(["12M", "20M"], ["reader", "tree"])))
def test_large_transposed_chunks_keep_within_the_default_budget(tmp_path, size, how):
    """Each takes most of the budget while it is decoded, so the one before must be let go first; or it is refused."""
    path = write(tmp_path / "many.riegeli", f"transpose,snappy,chunk_size:{size}", records_of(100_000, 42_000_000))
    result = run(READ_ALL, path, how)
    assert result["peak"] <= DEFAULT
    assert result["grown"] <= DEFAULT + SLACK
    if size == "12M" or result["option"] is None:
        assert (result["count"], result["size"], result["option"]) == (420, 42_000_000, None)
    else:
        assert result["count"] == 0
        assert DEFAULT < parse_size(result["option"].removeprefix("--budget ")) <= 2 * DEFAULT


@measured
@pytest.mark.parametrize("how", sweep.part(["reader", "tree"]))
def test_transposed_chunks_of_tiny_records_are_refused_beyond_the_budget(tmp_path, how):
    """A record of 3 bytes costs many times that: what decides is what is held, not what the header says is decoded."""
    rng = random.Random(1)
    path = tmp_path / "tiny.riegeli"
    write(path, "transpose,snappy,chunk_size:4M", (b"\x08" + rng.randbytes(2) for _ in range(400_000)))
    result = run(READ_ALL, path, how, "8MiB")
    assert result["grown"] <= 8 * MIB + SLACK
    assert result["count"] == 400_000 or result["option"].startswith("--budget ")


# -- windows ---------------------------------------------------------------------------------------------------------


@measured
@pytest.mark.parametrize("options", sweep.part(["zstd,window_log:27", "zstd,window_log:31", "brotli,window_log:24"]))
def test_a_window_above_the_budget_is_refused_by_name(tmp_path, options):
    """The chunk needs a window of 16 MiB or more: a `LimitError` says which budget would do, and that one does."""
    source, path = tmp_path / "zeros", tmp_path / "window.riegeli"
    with source.open("wb") as file:
        file.truncate(24 * MIB)
    with FileData(source) as data, RecordWriter(path, options=options) as writer:
        writer.write_record_from(data)
    result = run(
        """
        def read(how, budget):
            if how == "tree":
                with pparse.open(sys.argv[1], budget=budget) as document:
                    return crc_of(document.root[64][0].open())[0]
            with RecordReader(sys.argv[1], budget=budget) as reader:
                if how == "open":
                    return crc_of(reader.open_record())[0]
                return sum(map(len, reader)) if how == "iterate" else len(reader.read_record())

        refused = {}
        for how in ("read", "iterate", "open", "tree"):
            try:
                refused[how] = read(how, "8MiB")
            except LimitError as error:
                refused[how] = error.option
        grown = memory("VmHWM") - before
        finish(refused=refused, small=grown, lifted=[read(how, refused[how].split()[1]) for how in ("open", "tree")])
        """,
        path,
    )
    for option in result["refused"].values():
        assert re.fullmatch(r"--budget \d+MiB", option)
        assert 16 * MIB < parse_size(option.split()[1]) <= 26 * MIB
    assert result["small"] <= 8 * MIB + SLACK
    assert result["lifted"] == [24 * MIB] * 2


# -- claims ----------------------------------------------------------------------------------------------------------

# Files of some hundred bytes whose hashes are right, and which say 2 GiB somewhere: where, is the key.
CLAIMS = """
from pparse.kernels.highway import hash64
from pparse.kernels.varint import encode_varint
from pparse.riegeli.chunks import ChunkHeader, FILE_SIGNATURE, METADATA, PADDING, SIMPLE, TRANSPOSED

GIB2 = 2 << 30
huge, zstd = encode_varint(GIB2), package(ZSTD).compress
snappy = lambda data: bytes(cramjam.snappy.compress_raw(data))
# Its window is 1 KiB: a wide one may be reserved, if the budget has room for it. One empty block.
frame = b"\\x28\\xb5\\x2f\\xfd\\xc0\\0" + GIB2.to_bytes(8, "little") + b"\\x01\\x00\\x00"

def claim(kind, data, records, decoded, size=None):
    header = ChunkHeader(kind, len(data) if size is None else size, hash64(data), records, decoded)
    return FILE_SIGNATURE + header.pack() + data

def simple(kind, sizes, values):
    return bytes([kind]) + encode_varint(len(sizes)) + sizes + values

def part(stream, size=GIB2):
    return encode_varint(size) + stream

def machine(head):
    return bytes([0, len(head)]) + head + b"x" * 101

claims = {
    "data of a simple chunk": claim(SIMPLE, simple(0, huge, b"x" * 200), 1, GIB2, GIB2 + 7),
    "data of a transposed chunk": claim(TRANSPOSED, bytes(100), 1, GIB2, GIB2),
    "data of the metadata": claim(METADATA, bytes(100), 0, GIB2, GIB2),
    "data of padding": claim(PADDING, bytes(100), 0, 0, GIB2),
    "size of a record": claim(SIMPLE, simple(0, huge, b"x" * 100), 1, GIB2),
    "content of a zstd frame": claim(SIMPLE, simple(0x7A, part(zstd(huge), 5), part(frame)), 1, GIB2),
    "size before a zstd frame": claim(SIMPLE, simple(0x7A, part(zstd(huge), 5), part(zstd(b"x" * 99))), 1, GIB2),
    "size of a snappy block": claim(SIMPLE, simple(0x73, part(snappy(huge), 5), part(part(b"\\xf0x"))), 1, GIB2),
    "size before brotli": claim(
        SIMPLE, simple(0x62, part(brotli.compress(huge), 5), part(brotli.compress(b"x" * 99))), 1, GIB2
    ),
    "number of records": claim(SIMPLE, simple(0, bytes(100), b""), GIB2, 0),
    "number of records, compressed": claim(SIMPLE, simple(0x7A, part(zstd(bytes(100))), part(zstd(b""), 0)), GIB2, 0),
    "decoded size of a transposed chunk": claim(
        TRANSPOSED, machine(b"\\2\\2\\x64\\1\\x64\\1\\1\\1\\0\\0\\0\\0"), 1, GIB2
    ),
    "bucket of a transposed chunk": claim(
        TRANSPOSED, machine(b"\\2\\2" + huge + b"\\1" + huge + b"\\1\\1\\1\\0\\0\\0\\0"), 1, 100
    ),
    "states of a transposed chunk": claim(TRANSPOSED, machine(b"\\0\\0" + huge + b"\\1\\1"), 1, 100),
    "buckets of a transposed chunk": claim(TRANSPOSED, machine(huge + b"\\0\\1\\1"), 1, 100),
    "buffers of a transposed chunk": claim(TRANSPOSED, machine(b"\\0" + huge + b"\\1\\1"), 1, 100),
}
"""


@measured
@pytest.mark.parametrize("budget", ["64MiB", "64GiB"])  # with the second it is not the budget that protects us
def test_claims_of_2_gib_in_a_small_file_allocate_nothing(tmp_path, budget):
    result = run(
        CLAIMS
        + textwrap.dedent(
            """
            path, budget = sys.argv[1:]

            def read_all(reader):
                return sum(map(len, reader))

            def read_piece(reader):
                record = reader.open_record()
                return 0 if record is None else len(record.read(1 << 20))

            def look(document):
                for chunk in document.root.children():
                    if chunk.kind in ("simple", "transposed", "metadata"):
                        for node in chunk.children():
                            if node.kind == "record":
                                node.open().read(1 << 20)
                                node.load()
                return 0

            def check(document):
                return sorted({finding.code for finding in document.check()})

            def outcome(action, how):
                try:
                    if action in (look, check):
                        with pparse.open(path, budget=budget) as document:
                            return action(document)
                    with RecordReader(path, budget=budget, **how) as reader:
                        return action(reader)
                except PparseError as error:
                    return type(error).__name__

            found, grown, reserved = {}, {}, memory("VmPeak")
            for name, content in claims.items():
                with open(path, "wb") as file:
                    file.write(content)
                assert len(content) < 500
                found[name] = [
                    outcome(read_all, {}), outcome(read_piece, {}), outcome(look, {}),
                    outcome(RecordReader.read_serialized_metadata, {}) in (b"", "InvalidArgumentError", "LimitError"),
                    outcome(read_all, {"recovery": lambda region: None}), outcome(check, {}),
                ]
                grown[name] = memory("VmHWM") - before
            # What is reserved but never touched does not show in the growth.
            finish(found=found, by=grown, reserved=memory("VmPeak") - reserved)
            """
        ),
        tmp_path / "claim.riegeli",
        budget,
    )
    assert len(result["found"]) == 16
    for name, (everything, piece, tree, metadata, recovered, checked) in result["found"].items():
        # Never bytes that are not there: an error, or, where one record is asked for piece by piece, what there is.
        assert everything in ("InvalidArgumentError", "LimitError"), name
        assert piece in ("InvalidArgumentError", "LimitError", "GapError") or piece <= 200, name
        assert tree == 0 or tree in ("LimitError", "MalformedError", "EndOfDataError", "GapError"), (name, tree)
        assert metadata, name
        assert recovered in (0, "LimitError"), name
        assert isinstance(checked, list), (name, checked)
        assert set(checked) & {"truncated", "malformed", "limit"}, name
    assert result["grown"] <= SLACK, result["by"]
    assert result["reserved"] <= 512 * MIB


# -- the last record -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ("snappy", 1000),
        ("snappy,chunk_size:4M", 100_000),
        ("brotli:1", MIB),
        ("uncompressed", 1000),
        ("uncompressed", 100_000),
        ("uncompressed,chunk_size:100", 40),  # more than a thousand chunks begin in each block
        ("transpose,snappy", 1000),
        ("snappy,final_padding:64K", 1000),
        ("snappy,final_padding:4M", 1000),  # behind it a chunk of padding that many blocks lie in
    ],
)
def test_the_last_record_costs_the_last_chunk_and_a_block(tmp_path, options, size):
    total = 1_500_000 if size < 100 else 9_000_000
    records = list(records_of(size, total))
    path = write(tmp_path / "last.riegeli", options, records)
    with FileData(path) as data, RecordReader(data) as reader:
        reader.seek_numeric(reader.size())
        assert data.stats.bytes <= 64 * KIB
        assert reader.seek_back()
        assert reader.read_record() == records[-1]
        begin, after = reader.last_pos.chunk_begin, reader.pos.chunk_begin
        chunk = after - begin
        assert chunk < total // 2
        assert data.stats.bytes <= chunk + 64 * KIB
        if "chunk_size:100" not in options:
            assert data.stats.reads <= 64  # at most one for each chunk that begins in the last block, and a few
        assert reader.read_record() is None


def test_the_last_record_costs_as_much_in_a_longer_file(tmp_path):
    costs = []
    for total in (3_000_000, 30_000_000):
        path = write(tmp_path / "last.riegeli", "uncompressed,chunk_size:256K", records_of(250_000, total))
        with FileData(path) as data, RecordReader(data) as reader:
            reader.seek_numeric(reader.size())
            assert reader.seek_back()
            assert len(reader.read_record()) == 250_000
            costs.append((data.stats.bytes, data.stats.reads))
    (short_bytes, short_reads), (long_bytes, long_reads) = costs
    assert long_bytes <= short_bytes + 64 * KIB
    assert long_reads <= short_reads + 2
