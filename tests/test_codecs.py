from __future__ import annotations

import base64
import bz2
import gc
import gzip
import io
import itertools
import lzma
import os
import random
import struct
import sys
import tracemalloc
import zlib
from functools import cache

import brotli
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.codecs import CHECKPOINT, CODECS, compress, compressor, decompress, decompressor, standard
from pparse.codecs.base import ZSTD
from pparse.codecs.brotli import window_log
from pparse.compressed.resync import module_of
from pparse.containers.stream import StreamParser
from pparse.data.scratch import Scratch
from pparse.document.registry import builtin, import_dotted
from pparse.errors import (
    ClosedError,
    EndOfDataError,
    LimitError,
    MalformedError,
    PparseError,
    UnsupportedError,
)
from pparse.kernels.lz4 import short_xxh32
from pparse.limits import KIB, MIB, MemoryBudget
from tests import sweep, zstd
from tests.rows import rows


def raw_deflate(data):
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def lz4_frame(data):
    stream = cramjam.lz4.Compressor()  # linked blocks of 64 KiB, checksums of blocks and content
    stream.compress(data)
    return bytes(stream.finish())


# How the real libraries write each codec.
MAKE = {
    "zlib": zlib.compress,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": raw_deflate,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "brotli": lambda data: brotli.compress(data, quality=5),
    "zstd": lambda data: zstd.compress(data, checksum=True),
    "lz4": lz4_frame,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
ALL = list(MAKE)
CHECKED = ["zlib", "gzip", "bz2", "xz", "zstd", "lz4"]
# 3,656 bytes in a stream with a window of 2^30, as the reference implementation of Riegeli wrote it.
LARGE_WINDOW = base64.b85decode(
    "5ndcQ0Pr}#&GEohEp3g$Qfo8pi?CP^?kE?BUt`#_E&u``0CaFj8sJ_p00JOD0w4g~U~FE}2!H?x0C+!7z+h2#{kz15Gyon=5MHbeP{3g"
    "Eef~p@NqgD651|Nyu;3^7Ul2_siJVWq=|kIiK<`<hksPAilvHc9x|(;ULCmYi9Laa%&@zwVPYRHTDGsON=$_$N(y{(3@?=VnO}XDaqj7"
    "of`T"
)


@cache
def text(size, seed=1):
    """Text that compresses by a factor of about 3."""
    source = random.Random(seed)
    words = [bytes(source.choices(b"abcdefghijklmnop", k=source.randint(2, 9))) for _ in range(3000)]
    return b" ".join(source.choices(words, k=size // 4 + 1))[:size]


@cache
def mixed(size, seed=1):
    """Text, noise, zeros and repetitions."""
    source = random.Random(seed)
    parts = [text(size // 4, seed), source.randbytes(size // 4), bytes(size // 4)]
    parts.append((b"hello world, " * (size // 50 + 1))[: size - 3 * (size // 4)])
    return b"".join(parts)


def stream(codec, data, chunk=1 << 16, room=1 << 17, **options):
    """Decode ``data`` piece by piece; return what came, the error that ended it, and the decompressor."""
    decoder = decompressor(codec, **options)
    out, at, error = [], 0, None
    try:
        while not decoder.eof:
            piece = b""
            if decoder.needs_input:
                piece = data[at : at + chunk]
                at += len(piece)
                if not piece:
                    decoder.finish()
            out.append(decoder.decompress(piece, room))
            assert len(out[-1]) <= room
    except PparseError as caught:
        error = caught
    whole = b"".join(out)
    assert decoder.total_out == len(whole)
    return whole, error, decoder


def reread(data):
    """Return what gives the compressed bytes once more."""
    return lambda offset, length: data[offset : offset + length]


# -- round trips -----------------------------------------------------------------------------------------------------

SIZES = [0, 1, 65535, 65536, 65537, (2 * MIB if sweep.full else MIB) + 17]


@rows("codec, size", sweep.part(itertools.product(ALL, SIZES)))
def test_a_whole_stream_gives_its_content_and_a_byte_more_or_less_is_malformed(codec, size):
    for content in (bytes(size), mixed(size)):
        data = MAKE[codec](content)
        assert decompress(codec, data, size) == content
        assert decompress(codec, data, 1 << 40) == content
        with pytest.raises(MalformedError):
            decompress(codec, data + b"\0", size + 100)
        with pytest.raises(MalformedError):
            decompress(codec, data[:-1], size)
        if size:
            with pytest.raises(MalformedError):
                decompress(codec, data, size - 1)


@rows("codec, size", sweep.part(itertools.product(ALL, SIZES)))
def test_streams_piece_by_piece(codec, size):
    for content in (bytes(size), mixed(size)):
        data = MAKE[codec](content)
        ways = ((1 << 16, 1 << 17), (1000, 777 + size // 100), (1 << 30, 1 << 30))
        for chunk, room in ways if size < 100_000 else sweep.values(ways, SIZES.index(size), 1):
            whole, error, decoder = stream(
                codec, data + b"what follows", chunk, room, reread=reread(data + b"what follows")
            )
            assert whole == content
            assert error is None
            assert decoder.consumed == len(data)
            assert b"what follows".startswith(decoder.unused_data)
            assert not decoder.needs_input
            assert decoder.decompress(b"", 10) == b""


@rows("codec", ALL)
def test_byte_by_byte(codec):
    content = mixed(900)
    whole, error, decoder = stream(codec, MAKE[codec](content), 1, 1)
    assert (whole, error) == (content, None)
    assert decoder.unused_data == b""


@pytest.mark.parametrize("codec", ALL)
@settings(max_examples=25)
@given(content=st.binary(max_size=3000), chunk=st.integers(1, 500), room=st.integers(1, 500))
def test_any_content_any_steps(codec, content, chunk, room):
    data = MAKE[codec](content)
    assert stream(codec, data, chunk, room)[:2] == (content, None)
    assert decompress(codec, data, len(content)) == content


@rows("kind", [bytearray, memoryview])
@rows("codec", ALL)
def test_any_buffer_is_taken(codec, kind):
    content = mixed(100_000)
    data = MAKE[codec](content)
    assert decompress(codec, kind(data), len(content)) == content
    assert stream(codec, kind(data))[:2] == (content, None)


@rows("codec", ALL)
def test_unused_data_is_what_was_fed_beyond_the_end(codec):
    content = mixed(2000)
    decoder = decompressor(codec)
    data = MAKE[codec](content)
    assert decoder.decompress(data + b"tail", 1 << 20) == content
    assert decoder.eof
    assert decoder.unused_data == b"tail"
    assert decoder.consumed == len(data)
    assert decoder.decompress(b"more", 10) == b""
    assert decoder.unused_data == b"tailmore"
    assert decoder.consumed == len(data)


# -- the protocol ----------------------------------------------------------------------------------------------------


@rows("codec", ALL)
def test_needs_input_tells_when_to_feed(codec):
    content = bytes(300_000)
    decoder = decompressor(codec)
    assert decoder.needs_input
    assert decoder.decompress(b"", 100) == b""
    assert decoder.needs_input
    first = decoder.decompress(MAKE[codec](content), 100)
    assert len(first) == 100
    assert not decoder.needs_input
    assert decoder.decompress(b"", 0) == b""
    rest = []
    while not decoder.eof:
        rest.append(decoder.decompress(b"", 1 << 16))
    assert first + b"".join(rest) == content


@rows("codec", ALL)
def test_calls_that_mean_nothing_are_refused(codec):
    decoder = decompressor(codec)
    with pytest.raises(ValueError, match="negative"):
        decoder.decompress(b"", -1)
    decoder.finish()
    with pytest.raises(ValueError, match="after finish"):
        decoder.decompress(b"x", 1)
    with pytest.raises(EndOfDataError, match="cut short"):
        decoder.decompress(b"", 1)
    decoder.close()
    decoder.close()
    with pytest.raises(ClosedError):
        decoder.decompress(b"", 1)
    with pytest.raises(ValueError, match="negative"):
        decompressor(codec, size=-1)
    with pytest.raises(ValueError, match="negative"):
        decompress(codec, b"", -1)


def test_an_unknown_codec_is_refused_with_those_there_are():
    for call in (lambda: decompress("rar", b"", 1), lambda: decompressor("rar")):
        with pytest.raises(UnsupportedError, match=r"no such codec: 'rar' .*gzip"):
            call()


@pytest.mark.parametrize(
    ("codec", "library"), [("brotli", "brotli"), ("zstd", ZSTD), ("lz4", "cramjam"), ("snappy", "cramjam")]
)
def test_a_missing_library_is_named(codec, library, monkeypatch):
    data = MAKE[codec](b"abc")
    monkeypatch.setitem(sys.modules, library, None)
    calls = [lambda: decompress(codec, data, 3)]
    calls += [] if codec == "snappy" else [lambda: decompressor(codec).decompress(data, 3)]  # that is our own
    calls += [] if codec == "lz4" else [lambda: compress(codec, b"abc")]
    for call in calls:
        with pytest.raises(UnsupportedError, match=f"this needs {library} ") as caught:
            call()
        if library.startswith("compression."):  # no package brings it
            assert caught.value.package is None
            assert "this Python was built without it" in str(caught.value)
        else:
            assert caught.value.package == library
            assert f"pip install {library}" in str(caught.value)


def test_the_table_of_codecs():
    assert list(CODECS) == ["gzip", "bz2", "xz", "lzma", "zstd", "lz4", "zlib", "deflate", "brotli", "snappy"]
    for name, codec in CODECS.items():
        data = MAKE[name](b"abc")
        assert codec.name == name
        assert codec.begins(data)
        assert codec.begins(data[:1])
        assert codec.begins(b"")
        assert not codec.magics or not codec.begins(b"nothing of the kind")
        assert codec.copies == (name in ("zlib", "gzip", "deflate"))
        assert codec.joins == (name in ("gzip", "bz2", "xz", "zstd", "lz4"))
    assert CODECS["zstd"].begins(b"\x5f\x2a\x4d\x18")
    assert not CODECS["zstd"].begins(b"\x60\x2a\x4d\x18")


def test_a_descriptor_is_all_that_a_codec_needs():
    for name, codec in CODECS.items():
        known = builtin(name)
        assert (known is not None) == bool(codec.told_by)
        if known is not None:
            parser = import_dotted(known.parser)
            assert issubclass(parser, StreamParser)
            assert (parser.name, parser.codec, parser.__module__) == (name, name, "pparse.parsers.streams")
            assert parser.extensions == known.extensions == codec.extensions
            assert parser.suffixes == codec.suffixes
            assert set(codec.tar_extensions) <= set(codec.extensions)
            assert parser.references
            assert import_dotted(known.parser) is parser
        assert (module_of(name) is not None) == (codec.resync is not None)
        assert callable(codec.implementation("whole"))
        assert callable(codec.implementation("stream"))


# -- damage ----------------------------------------------------------------------------------------------------------

SMALL = text(300) + b"hello world " * 20 + random.Random(3).randbytes(100)


@rows("codec", ALL)
def test_every_prefix_gives_a_prefix_of_the_content_and_says_that_it_is_cut(codec):
    data = MAKE[codec](SMALL)
    come = []
    for cut in sweep.some(range(len(data)), 3, ends=24):
        for chunk, room in ((1 << 16, 1 << 17), (5, 3)):
            whole, error, decoder = stream(codec, data[:cut], chunk, room)
            assert SMALL.startswith(whole)
            assert type(error) is EndOfDataError
            assert not decoder.eof
            come.append(len(whole))
        assert come[-1] == come[-2]
        with pytest.raises(MalformedError):
            decompress(codec, data[:cut], 1 << 20)
    assert come == sorted(come)  # a longer prefix gives no less
    if codec not in ("bz2", "zstd"):  # those decode whole blocks
        assert come[-1] > len(SMALL) - 10
        assert come[len(come) // 2] > len(SMALL) // 4


@rows("codec", ALL)
def test_every_changed_byte(codec):
    data = MAKE[codec](SMALL)
    for at in sweep.some(range(len(data)), 8, ends=24):
        for mask in sweep.values((0x01, 0x80, 0xFF), at):
            bad = bytearray(data)
            bad[at] ^= mask
            bad = bytes(bad)
            whole, error, decoder = stream(codec, bad, size=len(SMALL))
            again, other, _ = stream(codec, bad, 5, 3, size=len(SMALL))
            assert (whole, type(error)) == (again, type(other))  # whatever the steps
            assert isinstance(error, (MalformedError, EndOfDataError, UnsupportedError, type(None)))
            assert len(whole) <= len(SMALL)
            if error is None and codec in CHECKED:
                assert whole == SMALL  # a byte that means nothing: a time, a flag
            elif error is not None:
                with pytest.raises(PparseError):  # for good
                    decoder.decompress(b"", 1)
                assert not decoder.eof
            try:
                assert decompress(codec, bad, len(SMALL)) == whole
                assert error is None
            except (MalformedError, UnsupportedError):
                assert error is not None or decoder.unused_data


@rows("codec", sweep.part(ALL))
def test_a_cut_stream_gives_the_same_in_large_steps_and_small_ones(codec):
    """Libraries hold output back although they could take more input."""
    data = MAKE[codec](text(600_000))[:-500]
    fine, error, _ = stream(codec, data, 50, 1 << 20)
    coarse, other, _ = stream(codec, data)
    assert fine == coarse
    assert type(error) is type(other) is EndOfDataError
    assert len(fine) > (450_000 if codec in ("bz2", "zstd") else 590_000) or codec == "bz2"


@rows("codec", ALL)
def test_mutations_give_the_same_whole_and_piece_by_piece(codec):
    source = random.Random(codec)
    seeds = [MAKE[codec](content) for content in (b"", b"hello " * 50, SMALL, text(3000))]
    for _ in range(400 if sweep.full else 150):
        data = bytearray(source.choice(seeds))
        for _ in range(source.choice((1, 1, 2, 5))):
            at = source.randrange(len(data) + 1)
            size = source.randrange(1, 12)
            data[at : at + source.choice((0, 1, size))] = source.choice(
                (b"", b"\0", b"\xff", source.randbytes(1), source.randbytes(size), data[:size])
            )
        whole, error, decoder = stream(codec, bytes(data), size=1 << 20, budget=MemoryBudget(64 * MIB))
        try:
            assert decompress(codec, data, 1 << 20) == whole
            assert error is None
            assert decoder.unused_data == b""
        except (MalformedError, UnsupportedError):
            assert error is not None or decoder.unused_data
        assert isinstance(error, (MalformedError, UnsupportedError, EndOfDataError, LimitError, type(None)))


def best_prefix(codec, data, sound):
    """Return what the library itself gives in the smallest steps; the first ``sound`` bytes are whole."""
    out = bytearray()
    wbits = {"zlib": 15, "gzip": 31, "deflate": -15}
    if codec in wbits:
        library = zlib.decompressobj(wbits[codec])
    else:
        library = {"bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor, "lzma": lzma.LZMADecompressor}[codec]()
    try:
        for piece in itertools.chain([data[:sound]], (data[at : at + 1] for at in range(sound, len(data)))):
            while True:
                got = library.decompress(piece, 32)
                out += got
                piece = getattr(library, "unconsumed_tail", b"")
                if len(got) < 32:
                    break
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        pass
    return bytes(out)


@pytest.mark.parametrize("codec", ["zlib", "gzip", "deflate", "bz2", "xz", "lzma"])
def test_what_precedes_damage_is_delivered(codec):
    """A library that raises keeps what it had produced in that call: 128 KiB would be lost without care."""
    content = text(400_000 if sweep.full else 200_000)
    good = bytearray(bz2.compress(content, 1) if codec == "bz2" else MAKE[codec](content))
    source = random.Random(7)
    for at in [len(good) // 3, len(good) - 2, source.randrange(100, len(good))]:
        bad = bytearray(good)
        bad[at] ^= 0x55
        bad = bytes(bad)
        wanted = best_prefix(codec, bad, at)
        for options in ({"reread": reread(bad)}, {}):
            whole, error, _ = stream(codec, bad, **options)
            assert whole == wanted
            assert error is not None or codec == "deflate"


def test_damage_far_into_a_stream_needs_a_way_to_read_again():
    content = random.Random(1).randbytes(900_000)
    for codec in ("brotli", "lzma", "bz2"):
        data = MAKE[codec](content) + b"trailing bytes"
        if codec != "brotli":  # the others can tell what follows the end
            data = data[:-14]
            middle = len(data) - 4
            data = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
        whole, error, decoder = stream(codec, data, reread=reread(data))
        if codec == "brotli":
            assert (whole, error) == (content, None)
            assert decoder.consumed == len(data) - 14
        else:
            assert len(whole) > len(content) - 40
            assert content.startswith(whole[:-40])
        # Without it, nothing wrong comes, and the loss is that of one call.
        whole, error, decoder = stream(codec, data)
        assert isinstance(error, MalformedError)
        assert content.startswith(whole[:-40])
        assert len(whole) > len(content) - 128 * KIB or codec == "bz2"


def test_only_the_last_slice_before_damage_is_decoded_again_in_small_steps(monkeypatch):
    """The way there takes a few calls for each slice of input, however much output that has."""
    source = random.Random(5)
    content = b"".join(source.randbytes(4) + bytes(60) for _ in range(10_000))
    data = bytearray(lzma.compress(content))
    assert len(data) > 2 * 16 * KIB
    data[-200:-100] = bytes(100)
    feed, calls = standard._StandardCore.feed, []

    def counted(self, piece, limit):
        calls.append(limit)
        return feed(self, piece, limit)

    monkeypatch.setattr(standard._StandardCore, "feed", counted)
    whole, error, _ = stream("xz", bytes(data), reread=reread(bytes(data)))
    assert isinstance(error, MalformedError)
    assert content.startswith(whole[:-1000])
    assert len(whole) > 600_000
    assert len(calls) < 16 * KIB


def test_a_source_that_changed_meanwhile_is_only_damage():
    content = random.Random(1).randbytes(500_000)
    data = bytearray(MAKE["bz2"](content))
    data[-8] ^= 0xFF
    for again in (lambda offset, length: b"", lambda offset, length: bytes(length)):
        whole, error, _ = stream("bz2", bytes(data), reread=again)
        assert isinstance(error, MalformedError)
        assert content.startswith(whole[:1000])


def test_errors_tell_where():
    data = MAKE["zstd"](text(1 * MIB))
    block = 10 + (int.from_bytes(data[9:12], "little") >> 3)
    bad = data[: block + 500] + b"\xff" * 200 + data[block + 700 :]
    _, error, _ = stream("zstd", bad)
    assert isinstance(error, MalformedError)
    assert 0 < error.offset < len(bad)
    whole, error, _ = stream("gzip", MAKE["gzip"](b"abc")[:-1])
    assert (whole, error.offset) == (b"abc", len(MAKE["gzip"](b"abc")) - 1)


def test_errors_hold_no_tracebacks():
    """A kept error that held its traceback would keep frames, and through them the decoder and its memory."""
    budget = MemoryBudget(64 * MIB)
    gc.collect()
    gc.disable()
    try:
        for codec in ALL:
            _, error, decoder = stream(codec, MAKE[codec](SMALL)[:-1] + b"\xff" * 50, budget=budget)
            with pytest.raises(PparseError) if error else gzip.GzipFile(fileobj=io.BytesIO()):
                decoder.decompress(b"", 10)
            del decoder, error
            assert budget.used == 0, codec
            decoder = decompressor(codec, budget=budget)
            decoder.decompress(MAKE[codec](bytes(100_000)), 10)
            assert budget.used, codec
            del decoder
            assert budget.used == 0, codec
    finally:
        gc.enable()


# -- sizes and budgets -----------------------------------------------------------------------------------------------


@rows("codec", ALL)
def test_size_is_a_cap(codec):
    content = mixed(200_000)
    data = MAKE[codec](content)
    for size in (len(content), len(content) + 1, len(content) + 10_000_000):
        assert stream(codec, data, size=size)[:2] == (content, None)
    for size in (len(content) - 1, 1000, 1, 0):
        for room in (1 << 17, 100):
            if room == 100 and size > 1000:
                continue
            whole, error, decoder = stream(codec, data, room=room, size=size)
            assert whole == content[:size]
            assert isinstance(error, MalformedError)
            assert "more bytes than" in str(error) or codec in ("lz4", "brotli")
            assert not decoder.eof


@rows("codec", ALL)
def test_the_window_is_charged_and_given_back(codec):
    budget = MemoryBudget(64 * MIB)
    data = MAKE[codec](text(500_000))
    decoder = decompressor(codec, budget=budget)
    assert budget.used == decoder.window == 0
    decoder.decompress(data[: len(data) // 2], 10)
    assert budget.used == decoder.window > 0
    decoder.close()
    assert budget.used == decoder.window == 0
    decoder = decompressor(codec, budget=budget)
    while not decoder.eof:
        decoder.decompress(data if decoder.needs_input else b"", 1 << 20)
    assert budget.used == decoder.window == 0
    decoder = decompressor(codec, budget=budget)
    decoder.decompress(data[: len(data) // 2], 10)
    del decoder
    assert budget.used == 0


def wide(codec, content):
    """Return streams that ask for a large window."""
    if codec == "zstd":
        writer = zstd.compressor(window_log=27, chain_log=6, hash_log=6, strategy=1, content_size=False)
        return writer.compress(content) + writer.flush()  # in one call, the window would be as large as the content
    if codec == "xz":
        return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 256 * MIB}])
    if codec == "lzma":
        data = bytearray(lzma.compress(content, lzma.FORMAT_ALONE))
        struct.pack_into("<I", data, 1, 3 << 29)
        return bytes(data)
    return lzma.compress(
        content,
        filters=[
            {"id": lzma.FILTER_DELTA, "dist": 4},
            {"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 256 * MIB},
        ],
    )


@pytest.mark.parametrize("codec", ["zstd", "xz", "lzma", "xz with a filter"])
def test_a_window_above_the_budget_is_a_limit_that_names_it(codec):
    content = mixed(100_000)
    data = wide(codec, content)
    codec = codec.partition(" ")[0]
    assert decompress(codec, data, len(content)) == content
    budget = MemoryBudget(64 * MIB)
    decoder = decompressor(codec, budget=budget)
    for _ in range(2):  # the call may be repeated
        with pytest.raises(LimitError, match=r'budget="\d+MiB"') as caught:
            decoder.decompress(data if decoder.needs_input else b"", 1 << 20)
        assert caught.value.wanted >= 128 * MIB
        assert budget.used == 0
    assert stream(codec, data, budget=MemoryBudget(2 << 30))[:2] == (content, None)
    # With a size it is narrowed.
    assert stream(codec, data, budget=budget, size=len(content))[:2] == (content, None)
    assert budget.peak < 1 * MIB


@pytest.mark.parametrize("codec", sweep.part(["brotli", "zstd", "xz", "lzma"]))
def test_a_narrowed_window_reaches_back_to_the_start(codec):
    content = random.Random(1).randbytes(1_020_000)
    content += content[:25_000]
    data = {
        "brotli": lambda: brotli.compress(content, quality=9, lgwin=24),
        "zstd": lambda: (writer := compressor("zstd", level=19, window_log=27)).compress(content) + writer.flush(),
        "xz": lambda: wide("xz", content),
        "lzma": lambda: wide("lzma", content),
    }[codec]()
    assert len(data) < len(content) - 5_000  # it was found
    assert decompress(codec, data, len(content)) == content
    assert stream(codec, data, size=len(content))[:2] == (content, None)


def test_a_narrowed_brotli_window_leaves_its_dictionary_alone():
    """Distances beyond what can be reached are words of a dictionary: where that begins depends on the window."""
    front = bytes(random.Random(1).choices(b"abc def", k=1 << 18))
    for word in (b"Information", b"development"):
        for short in sweep.some((0, 1, 2, 3, 17), 3, keep=(0,)):
            content = front[: (1 << 18) - short - len(word)] + word
            data = brotli.compress(content, quality=11, lgwin=24)
            assert decompress("brotli", data, len(content)) == content
            assert stream("brotli", data, size=len(content))[:2] == (content, None)


def test_a_limit_is_lifted_when_there_is_room_again():
    content = mixed(100_000)
    data = MAKE["bz2"](content)
    budget = MemoryBudget(4 * MIB)
    charge = budget.charge(2 * MIB, "something else")
    decoder = decompressor("bz2", budget=budget)
    with pytest.raises(LimitError):
        decoder.decompress(data, 1 << 20)
    charge.release()
    assert decoder.decompress(b"", 1 << 20) == content


def test_bz2_is_charged_by_its_block_size():
    for level in (1, 5, 9):
        decoder = decompressor("bz2", budget=MemoryBudget(64 * MIB))
        decoder.decompress(bz2.compress(bytes(5_000_000), level)[:30], 1)
        assert level * 400_000 <= decoder.window <= level * 400_000 + 500_000


def test_resting_makes_the_window_evictable():
    budget = MemoryBudget(8 * MIB)
    data = MAKE["bz2"](text(500_000))
    decoder = decompressor("bz2", budget=budget)
    first = decoder.decompress(data, 1000)
    evicted = []
    decoder.park(lambda: evicted.append(1))
    budget.charge(2 * MIB, "small")
    assert not evicted
    decoder.resume()
    with pytest.raises(LimitError):
        budget.charge(6 * MIB, "large")
    assert first + decoder.decompress(b"", 500_000) == text(500_000)[: 1000 + 500_000]
    decoder = decompressor("bz2", budget=budget)
    decoder.decompress(data, 1000)
    decoder.park(lambda: evicted.append(2))
    charge = budget.charge(6 * MIB, "large")
    assert evicted == [2]
    with pytest.raises(LimitError):
        decoder.resume()
    charge.release()
    decoder.resume()
    assert budget.used == decoder.window


def xz_of_blocks(*blocks):
    """Join the first blocks of xz streams into one stream."""
    body = records = b""
    for data, size in blocks:
        footer = data[-12:]
        index = (struct.unpack_from("<I", footer, 4)[0] + 1) * 4
        block = data[12 : len(data) - 12 - index]
        body += block
        unpadded = len(data) - 12 - index - 12
        at = len(data) - 12 - index + 2
        unpadded = 0
        shift = 0
        while True:
            byte = data[at]
            unpadded |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        records += varint(unpadded) + varint(size)
    index = b"\0" + varint(len(blocks)) + records
    index += bytes(-len(index) % 4)
    index += struct.pack("<I", zlib.crc32(index))
    head = blocks[0][0][:12]
    tail = struct.pack("<I", len(index) // 4 - 1) + head[6:8]
    return head + body + index + struct.pack("<I", zlib.crc32(tail)) + tail + b"YZ"


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_a_later_block_of_xz_may_need_more_memory():
    contents = [text(100_000, seed) for seed in (1, 2, 3)]
    blocks = [
        (lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": size}]), len(content))
        for content, size in zip(contents, (64 * KIB, 8 * MIB, 128 * MIB), strict=True)
    ]
    small, large = xz_of_blocks(*blocks[:2]), xz_of_blocks(*blocks)
    assert lzma.decompress(large) == b"".join(contents)  # the referee
    budget = MemoryBudget(64 * MIB)
    assert stream("xz", small, budget=budget)[:2] == (b"".join(contents[:2]), None)
    assert 8 * MIB < budget.peak < 20 * MIB
    whole, error, _ = stream("xz", large, budget=budget)
    assert b"".join(contents[:2]) == whole
    assert isinstance(error, LimitError)
    assert "budget=" in str(error)
    assert budget.used == 0
    assert stream("xz", large)[:2] == (b"".join(contents), None)
    assert decompress("xz", large, 300_000) == b"".join(contents)


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "again"), sweep.part(itertools.product(["zlib", "gzip", "deflate"], [True, False])))
def test_a_checkpoint_goes_on_from_where_it_stands(codec, again):
    content = text(2 * MIB)
    data = MAKE[codec](content)
    budget = MemoryBudget(64 * MIB)
    decoder = decompressor(codec, budget=budget, reread=reread(data) if again else None)
    assert decoder.copy() is None
    saved, at = [], 0
    while not decoder.eof:
        piece = data[at : at + 5000] if decoder.needs_input else b""
        at += len(piece)
        decoder.decompress(piece, 50_000)
        copied = decoder.copy()
        if copied is not None:
            assert 0 <= decoder.total_out - copied.total_out <= 600_000
            saved.append(copied)
            assert copied.window == 0  # nothing is charged for it before it is used
    assert budget.used == 0
    # One for each 256 KiB that were read or written.
    assert 4 < len({copied.total_out for copied in saved}) <= (len(data) + len(content)) // (256 * KIB)
    for copied in saved[:: len(saved) // 7]:
        for twin in (copied.copy(), copied):  # a checkpoint may be used more than once
            begin = twin.total_out
            assert twin.needs_input
            out = b""
            at = twin.consumed
            while not twin.eof:
                piece = data[at : at + 7000] if twin.needs_input else b""
                at += len(piece)
                out += twin.decompress(piece, 50_000)
            assert content[begin:] == out
            assert twin.consumed == len(data)
    assert CHECKPOINT > 32 * KIB


def test_a_checkpoint_comes_to_the_same_end_in_a_damaged_stream():
    content = text(2 * MIB)
    data = bytearray(MAKE["gzip"](content))
    data[-2000:-1990] = b"\xff" * 10
    data = bytes(data)
    wanted, error, _ = stream("gzip", data)
    assert isinstance(error, MalformedError)
    decoder = decompressor("gzip")
    saved = {}
    at = 0
    while at < len(data) * 3 // 4:
        decoder.decompress(data[at : at + 5000], 1 << 20)
        at += 5000
        if (copied := decoder.copy()) is not None:
            saved[copied.total_out] = copied
    for begin, copied in saved.items():
        out = b""
        at = copied.consumed
        last = None
        while last is None:
            piece = data[at : at + 999]
            at += len(piece)
            if not piece:
                copied.finish()
            try:
                out += copied.decompress(piece, 1 << 20)
            except PparseError as caught:
                last = caught
        assert wanted[begin:] == out
        assert type(last) is type(error)


@pytest.mark.parametrize("codec", ["bz2", "xz", "lzma", "brotli", "zstd", "lz4", "snappy"])
def test_the_others_have_no_checkpoints(codec):
    data = MAKE[codec](text(300_000))
    decoder = decompressor(codec)
    decoder.decompress(data[:60_000], 100_000)
    assert decoder.copy() is None


# -- zstd ------------------------------------------------------------------------------------------------------------

SKIPPABLE = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"


def zstd_frame(*blocks, window=0, checksum=b""):
    """Return a frame of ``(kind, bytes or (size, byte))`` blocks; window exponent above 2^10."""
    out = b"\x28\xb5\x2f\xfd" + bytes([4 if checksum else 0, window << 3])
    for number, (kind, body) in enumerate(blocks):
        size = body[0] if kind == 1 else len(body)
        out += (int(number == len(blocks) - 1) | kind << 1 | size << 3).to_bytes(3, "little")
        out += body[1] if kind == 1 else body
    return out + checksum


def test_zstd_frames_one_after_the_other():
    one = MAKE["zstd"](b"abc" * 1000)
    for data in (one + one, SKIPPABLE, SKIPPABLE + one, one + SKIPPABLE, b"", one[:3], b"\x28"):
        with pytest.raises(MalformedError):
            decompress("zstd", data, 1 << 20)
    whole, error, decoder = stream("zstd", one + one)
    assert (whole, error, decoder.unused_data) == (b"abc" * 1000, None, one)
    for chunk in (1, 5, 100):
        whole, error, decoder = stream("zstd", SKIPPABLE + one, chunk)
        assert (whole, error, decoder.consumed) == (b"", None, len(SKIPPABLE))


def test_zstd_windows_up_to_two_gib():
    for log in range(10, 32):
        data = zstd_frame((0, b"hello"), (1, (1000, b"x")), window=log - 10)
        assert decompress("zstd", data, 1005) == b"hello" + b"x" * 1000
        assert stream("zstd", data, size=1005, budget=MemoryBudget(1 * MIB))[0] == b"hello" + b"x" * 1000
    with pytest.raises(UnsupportedError, match="above 2 GiB"):
        decompressor("zstd").decompress(zstd_frame((0, b"hello"), window=23), 10)
    for most in (10, 1 << 40):  # as it ends here, it needs no such window
        assert decompress("zstd", zstd_frame((0, b"hello"), window=23), most) == b"hello"
    single = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 50) + b"\x01\0\0"
    with pytest.raises(UnsupportedError, match="above 2 GiB"):
        decompressor("zstd").decompress(single, 10)
    with pytest.raises(MalformedError, match="than allowed"):
        decompress("zstd", single, 1 << 20)
    with pytest.raises(MalformedError, match="than it can"):
        decompress("zstd", single, 1 << 60)


def test_zstd_narrowed_windows_decode_what_reaches_back_far():
    source = random.Random(1)
    content = source.randbytes(3 * MIB)
    content += content[:100_000] + text(1 * MIB) + content[-50_000:]
    for log in (22, 25, 27, 31):
        data = compress("zstd", content, level=3, window_log=log)
        writer = compressor("zstd", window_log=log)
        streamed = writer.compress(content) + writer.flush()
        for made in (data, streamed):
            assert decompress("zstd", made, len(content)) == content
            assert decompress("zstd", made, 1 << 50) == content
            assert stream("zstd", made, size=len(content), budget=MemoryBudget(64 * MIB))[:2] == (content, None)
    budget = MemoryBudget(64 * MIB)
    stream("zstd", streamed, size=len(content), budget=budget)
    assert budget.peak < 10 * MIB


def test_zstd_gives_what_there_is_of_a_raw_block():
    data = zstd_frame((0, bytes(range(200)) * 500), window=10)
    for cut in (9, 10, 500, 50_000, len(data) - 1):
        whole, error, _ = stream("zstd", data[:cut], 777)
        assert whole == (bytes(range(200)) * 500)[: cut - 9]
        assert isinstance(error, EndOfDataError)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x28\xb5\x2f\xfe\0\0", "not a zstd frame"),
        (b"\x27\xb5\x2f\xfd\x24\x00\x01\0\0", "not a zstd frame"),
        (b"\x28\xb5\x2f\xfd\x08\0\0\0\0\0", "reserved"),
        (zstd_frame((3, b"abc")), "damaged|not a zstd block"),
        (zstd_frame((2, b"abc")), "damaged"),
        (zstd_frame((0, bytes(2000))), "damaged"),  # larger than its window
        (zstd_frame((0, b"abc"), checksum=b"\0\0\0\0"), "damaged"),
    ],
)
def test_malformed_zstd_is_said_to_be_in_what_way(data, words):
    with pytest.raises(MalformedError, match=words):
        decompress("zstd", data, 1 << 20)
    _, error, _ = stream("zstd", data)
    assert isinstance(error, MalformedError)


def test_zstd_dictionaries_are_unsupported():
    head = b"\x28\xb5\x2f\xfd\x01\x00\x07\x01\x00\x00"
    for call in (lambda: decompress("zstd", head, 10), lambda: decompressor("zstd").decompress(head, 10)):
        with pytest.raises(UnsupportedError, match="dictionary 7"):
            call()


def test_zstd_content_size_is_checked():
    data = bytearray(zstd.compress(b"abc" * 1000))
    assert data[4] & 0xC0 == 0x40  # two bytes, plus 256
    for wrong in (2744 - 1, 2744 + 1):
        struct.pack_into("<H", data, 5, wrong)
        with pytest.raises(MalformedError):
            decompress("zstd", bytes(data), 1 << 20)
        assert isinstance(stream("zstd", bytes(data))[1], MalformedError)


def test_zstd_empty_frames_are_looked_at_too():
    empty = zstd.compress(b"", checksum=True)
    assert empty.hex() == "28b52ffd240001000099e9d851"
    assert decompress("zstd", empty, 0) == b""
    for at in (5, 6, 9, 12):  # content size, block, checksum
        bad = bytearray(empty)
        bad[at] ^= 0x40
        with pytest.raises(MalformedError):
            decompress("zstd", bytes(bad), 1000)
        whole, error, _ = stream("zstd", bytes(bad))
        assert whole == b""
        assert isinstance(error, (MalformedError, EndOfDataError))


def test_zstd_whole_frames_larger_than_what_is_decoded_at_once():
    size = 40 * 128 * KIB
    data = zstd_frame(*[(1, (128 * KIB, b"x"))] * 40, window=10)
    tracemalloc.start()
    try:
        content = decompress("zstd", data, 1 << 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content == b"x" * size
    assert peak < size * 5 // 4  # it is never there twice
    with pytest.raises(MalformedError, match="than allowed"):
        decompress("zstd", data, size - 1)


# -- lz4 -------------------------------------------------------------------------------------------------------------


def lz4_custom(blocks, flags=0x60, block=0x70, extra=b"", end=b"\0\0\0\0", header_check=None):
    """Return a frame; blocks are ``(stored, bytes)``."""
    head = bytes([flags, block]) + extra
    check = short_xxh32(head) >> 8 & 0xFF if header_check is None else header_check
    out = b"\x04\x22\x4d\x18" + head + bytes([check])
    for stored, body in blocks:
        out += struct.pack("<I", len(body) | stored << 31) + body
    return out + end


def lz4_block(data):
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


@rows("options", [{}, {"block_linked": False}, {"content_checksum": False}, {"level": 9}])
@rows("size", [0, 1, 65536, 65537, 1_000_000])
def test_lz4_kinds_of_frames(options, size):
    for content in (text(size), random.Random(1).randbytes(size), bytes(size)):
        writer = cramjam.lz4.Compressor(**options)
        writer.compress(content)
        data = bytes(writer.finish())
        assert decompress("lz4", data, size) == content
        assert stream("lz4", data, 999)[:2] == (content, None)


def test_lz4_large_blocks_and_sizes():
    content = text(9 * MIB)
    pieces = [content[at : at + 4 * MIB] for at in range(0, len(content), 4 * MIB)]
    data = lz4_custom([(0, lz4_block(piece)) for piece in pieces], 0x68, extra=struct.pack("<Q", len(content)))
    assert bytes(cramjam.lz4.decompress(data)) == content  # the referee
    budget = MemoryBudget(16 * MIB)
    assert stream("lz4", data, budget=budget)[:2] == (content, None)
    assert 12 * MIB < budget.peak < 14 * MIB
    assert isinstance(stream("lz4", data, budget=MemoryBudget(8 * MIB))[1], LimitError)
    for wrong in (-1, 1):
        bad = lz4_custom(
            [(0, lz4_block(piece)) for piece in pieces], 0x68, extra=struct.pack("<Q", len(content) + wrong)
        )
        assert isinstance(stream("lz4", bad)[1], MalformedError)


def test_lz4_linked_blocks_reach_into_the_ones_before():
    random_part = random.Random(5).randbytes(60_000)
    content = random_part * 5 + text(100_000) + random_part
    data = lz4_frame(content)
    assert len(data) < len(content) // 2  # so they do
    assert stream("lz4", data)[:2] == (content, None)


def test_lz4_salvages_a_cut_or_damaged_block():
    content = text(3 * MIB)
    data = lz4_custom([(0, lz4_block(content))])
    for cut in (len(data) // 2, len(data) - 20):
        whole, error, _ = stream("lz4", data[:cut])
        assert content.startswith(whole)
        assert len(whole) > len(content) * cut // len(data) * 0.9
        assert isinstance(error, EndOfDataError)
    bad = bytearray(data)
    at = len(data) // 2
    bad[at : at + 9000] = b"\xff" * 9000  # a literal that is longer than the rest
    whole, error, _ = stream("lz4", bytes(bad))
    assert isinstance(error, MalformedError)
    assert len(content) // 3 < len(whole) < len(content) * 2 // 3
    assert content.startswith(whole[:-100])
    stored = lz4_custom([(1, content[:100_000])])
    assert stream("lz4", stored)[:2] == (content[:100_000], None)
    whole, error, _ = stream("lz4", stored[:50_011], 1000)
    assert (whole, type(error)) == (content[:50_000], EndOfDataError)


@rows(
    ("data", "words"),
    [
        (b"\x04\x22\x4d\x19" + bytes(20), "not an lz4 frame"),
        (lz4_custom([], header_check=0), "checksum of the lz4 frame header"),
        (lz4_custom([], flags=0xA0), "not a header"),
        (lz4_custom([], flags=0x62), "not a header"),
        (lz4_custom([], block=0x30), "not a header"),
        (lz4_custom([(1, bytes(65537))], block=0x40), "above the lz4 frame's"),
        (lz4_custom([(0, b"\x10")]), "damaged"),
        (lz4_custom([(0, lz4_block(bytes(65537)))], block=0x40), "damaged"),
        (lz4_custom([(1, b"abc")], flags=0x64, end=bytes(8)), "checksum of the lz4 frame"),
        (lz4_custom([(1, b"abc\0\0\0\0")], flags=0x70), "checksum|cut short"),
    ],
)
def test_malformed_lz4_is_said_to_be_in_what_way(data, words):
    with pytest.raises(MalformedError, match=words):
        decompress("lz4", data, 1 << 20)


def test_lz4_dictionaries_are_unsupported():
    data = lz4_custom([], flags=0x61, extra=b"\7\0\0\0")
    with pytest.raises(UnsupportedError):
        decompress("lz4", data, 10)
    assert isinstance(stream("lz4", data)[1], UnsupportedError)


def lz4_legacy(*contents):
    """A frame as ``lz4 -l`` writes it: a block for each of ``contents``, without an end mark."""
    blocks = map(lz4_block, contents)
    return b"\x02\x21\x4c\x18" + b"".join(len(block).to_bytes(4, "little") + block for block in blocks)


FULL_LEGACY = b"12345678" * (1 << 20)  # what every block holds but the last one


@rows(
    "data, content, error, taken",
    [
        (lz4_legacy(), b"", None, 4),
        (lz4_legacy(b"abc"), b"abc", None, 12),
        (lz4_legacy(FULL_LEGACY, b"abc"), FULL_LEGACY + b"abc", None, None),
        (lz4_legacy(b"abc") + lz4_frame(b"d"), b"abc", None, 12),  # another frame ends it
        (lz4_legacy(b"abc") + lz4_legacy(b"d"), b"abc", None, 12),
        (lz4_legacy(b"abc") + SKIPPABLE, b"abc", None, 12),
        (lz4_legacy(b"abc") + b"\0\0\0\7", b"abc", None, 12),  # a size, as the kernel of Linux has it
        (lz4_legacy(b"abc") + b"\0\0\0\7\0", b"abc", "above what 8 MiB can take", 12),
        (lz4_legacy(b"abc", b"d"), b"abc", "behind one of fewer than 8 MiB", 12),
        (lz4_legacy(b"abc")[:-1], b"ab", "cut short", 11),
        (lz4_legacy(b"abc") + b"\1\0", b"abc", "cut short", 12),
    ],
)
def test_lz4_legacy_frames_end_with_their_input_or_where_another_begins(data, content, error, taken):
    for chunk in (1, 7, 1 << 20) if len(content) < 100 else (1 << 20,):
        whole, failure, decoder = stream("lz4", data, chunk)
        assert whole == content
        assert error in str(failure) if error else failure is None
        assert taken in (None, decoder.consumed)


def test_lz4_skippable_frames_are_empty_ones():
    with pytest.raises(MalformedError, match="skippable"):
        decompress("lz4", SKIPPABLE, 10)
    for chunk in (1, 3, 100):
        whole, error, decoder = stream("lz4", SKIPPABLE + lz4_frame(b"abc"), chunk)
        assert (whole, error, decoder.consumed) == (b"", None, len(SKIPPABLE))


# -- snappy ----------------------------------------------------------------------------------------------------------


@rows("size", [0, 1, 59, 60, 61, 255, 256, 257, 65536, 65537, 300_000])
def test_snappy_lengths_of_literals(size):
    content = random.Random(size).randbytes(size)
    data = MAKE["snappy"](content)
    for chunk in (1, 7, 1 << 16):
        if chunk < 1000 and size > 1000:
            continue
        assert stream("snappy", data, chunk)[:2] == (content, None)
    for width in (1, 2, 3, 4):  # lengths in more bytes than needed
        if 4 < size <= 1 << 8 * width:  # the referee wants four bytes to follow
            element = bytes([59 + width << 2]) + (size - 1).to_bytes(width, "little") + content
            assert bytes(cramjam.snappy.decompress_raw(varint(size) + element)) == content
            assert stream("snappy", varint(size) + element, 50 + size // 10)[:2] == (content, None)


def test_snappy_copies_of_every_kind():
    literal = bytes([39 << 2]) + bytes(range(40))
    copies = [
        bytes([1 | (5 - 4) << 2 | 0 << 5, 40]),  # 11 bits of offset
        bytes([2 | (64 - 1) << 2]) + struct.pack("<H", 1),  # overlapping
        bytes([2 | (50 - 1) << 2]) + struct.pack("<H", 45),
        bytes([3 | (64 - 1) << 2]) + struct.pack("<I", 3),
        bytes([1 | (11 - 4) << 2, 7]),
    ]
    data = varint(40 + 5 + 64 + 50 + 64 + 11) + literal + b"".join(copies)
    wanted = bytes(cramjam.snappy.decompress_raw(data))
    for chunk in (1, 2, 3, 1000):
        assert stream("snappy", data, chunk)[:2] == (wanted, None)


@pytest.mark.parametrize(
    "data",
    [
        varint(5) + bytes([2, 0, 0]),  # an offset of 0
        varint(5) + b"\0a" + bytes([2 | 3 << 2, 2, 0]),  # before the start
        varint(5) + bytes([9 << 2]) + bytes(10),  # more than declared
        varint(5) + b"\0a" + bytes([2 | 63 << 2, 1, 0]),
        b"\x80\x80\x80\x80\x80\x01",
        b"\xff\xff\xff\xff\xff",
        b"\x80\x80\x80\x80\x10",
    ],
)
def test_malformed_snappy_is_so_in_any_steps(data):
    with pytest.raises(MalformedError):
        decompress("snappy", data, 1 << 40)
    for chunk in (1, 100):
        _, error, _ = stream("snappy", data, chunk)
        assert isinstance(error, MalformedError)


def test_snappy_declares_no_more_than_it_can_hold():
    with pytest.raises(MalformedError, match=r"declares more|than allowed|damaged"):
        decompress("snappy", varint(1 << 31) + b"\0a", 1 << 40)


def test_snappy_copies_beyond_the_history_are_refused_by_streams():
    literal = random.Random(1).randbytes(70_000)
    data = varint(70_064) + bytes([62 << 2]) + (69_999).to_bytes(3, "little") + literal
    for offset, fits in ((65_536, True), (65_537, False)):
        made = data + bytes([3 | 63 << 2]) + struct.pack("<I", offset)
        content = decompress("snappy", made, 1 << 20)
        for chunk in (1000, 1 << 20):
            whole, error, _ = stream("snappy", made, chunk)
            assert whole == (content if fits else content[:70_000])
            assert fits or isinstance(error, UnsupportedError)


# -- brotli ----------------------------------------------------------------------------------------------------------


class Bits:
    """Bits, low ones first."""

    def __init__(self):
        self.value = self.count = 0

    def put(self, value, count):
        self.value |= value << self.count
        self.count += count
        return self

    def raw(self, data):
        self.count += -self.count % 8
        return self.put(int.from_bytes(data, "little"), 8 * len(data))

    def bytes(self):
        return self.value.to_bytes((self.count + 7) // 8, "little")


def large_brotli(content, log=30):
    """Return a large-window stream of stored meta-blocks."""
    bits = Bits().put(0x11, 8).put(log, 6)
    for at in range(0, len(content), 65536):
        piece = content[at : at + 65536]
        bits.put(0, 3).put(len(piece) - 1, 16).put(1, 1).raw(piece)
    return bits.put(3, 2).bytes()


def test_brotli_window_bits():
    for log in range(10, 25):
        assert window_log(brotli.compress(b"abc" * 1000, lgwin=log, quality=5)) in (log, 16, 17, 18)
    # The table of RFC 7932, section 9.1.
    table = {0x21: 10, 0x31: 11, 0x41: 12, 0x51: 13, 0x61: 14, 0x71: 15, 0x00: 16, 0x01: 17, 0x03: 18, 0x05: 19}
    table |= {0x07: 20, 0x09: 21, 0x0B: 22, 0x0D: 23, 0x0F: 24}
    for first, log in table.items():
        assert window_log(bytes([first])) == log
        assert window_log(bytes([first | 0x80])) == log
    assert window_log(b"\x11\xde") == 30
    assert window_log(b"\x11") is window_log(b"") is None


def test_brotli_is_charged_by_its_window():
    for log in (10, 18, 22, 24):
        budget = MemoryBudget(64 * MIB)
        writer = brotli.Compressor(quality=5, lgwin=log)
        data = writer.process(text(1 * MIB)) + writer.finish()
        decoder = decompressor("brotli", budget=budget, reread=reread(data))
        decoder.decompress(data[:1000], 1)
        assert 1 << window_log(data) <= budget.used <= (1 << window_log(data)) + 300 * KIB
        budget = MemoryBudget(64 * MIB)
        assert stream("brotli", data, size=1 * MIB, budget=budget)[0] == text(1 * MIB)
        assert budget.peak < 3 * MIB


def test_large_windows_as_the_reference_wrote_them():
    with pytest.raises(brotli.error):
        brotli.decompress(LARGE_WINDOW)  # else none of this would be needed
    content = decompress("brotli", LARGE_WINDOW, 3656)
    assert content.startswith(b"record 0 record 0 ")
    assert len(content) == 3656
    for chunk, room in ((1, 1), (10, 1000), (1000, 100_000)):
        assert stream("brotli", LARGE_WINDOW, chunk, room)[:2] == (content, None)
    for bad in (LARGE_WINDOW[:-1], LARGE_WINDOW + b"\0"):
        with pytest.raises(MalformedError):
            decompress("brotli", bad, 1 << 20)
    with pytest.raises(MalformedError, match="than allowed"):
        decompress("brotli", LARGE_WINDOW, 3655)
    with pytest.raises(MalformedError):
        decompress("brotli", b"\x11", 10)


@pytest.mark.parametrize("size", [0, 1, 65536, 9 * MIB])
def test_large_windows_of_any_size(size):
    content = random.Random(size).randbytes(size)
    data = large_brotli(content)
    assert decompress("brotli", data, size) == content
    assert decompress("brotli", data, 1 << 50) == content
    for options in ({}, {"size": size}, {"budget": MemoryBudget(64 * MIB)}):
        assert stream("brotli", data, **options)[:2] == (content, None)
    if size:
        whole, error, _ = stream("brotli", data, size=size - 1)
        assert (whole, type(error)) == (content[:-1], MalformedError)
        whole, error, _ = stream("brotli", data[: size // 2 + 5])
        assert content.startswith(whole)
        assert len(whole) >= size // 2 - 10_000
        assert isinstance(error, PparseError)


def test_large_windows_tell_where_they_end():
    data = large_brotli(b"hello" * 100)
    decoder = decompressor("brotli")
    decoder.decompress(data + b"what follows", 10)
    decoder.finish()
    out = b""
    while not decoder.eof:
        out += decoder.decompress(b"", 100)
    assert out == b"hello" * 100
    assert decoder.consumed == len(data)
    assert decoder.unused_data == b"what follows"


def test_large_windows_within_the_budget_or_in_scratch(tmp_path):
    content = random.Random(1).randbytes(5 * MIB)
    data = large_brotli(content, 25)
    small = MemoryBudget(20 * MIB)
    whole, error, _ = stream("brotli", data, budget=small)
    assert whole == b""
    assert isinstance(error, LimitError)
    assert "budget=" in str(error)
    # 5 MiB of input three times, a window of 10 MiB, and as much for the output, which may be in a file.
    middle = MemoryBudget(30 * MIB)
    scratch = Scratch(str(tmp_path), 1 << 30)
    whole, error, _ = stream("brotli", data, budget=middle, scratch=scratch)
    assert (whole, error) == (content, None)
    assert scratch.used == 0
    assert middle.used == 0
    capped = Scratch(str(tmp_path), 10 * MIB)
    whole, error, _ = stream("brotli", data, budget=middle, scratch=capped)
    assert isinstance(error, LimitError)
    assert capped.used == 0
    assert stream("brotli", data, budget=MemoryBudget(64 * MIB), size=5 * MIB)[0] == content


# -- writing ---------------------------------------------------------------------------------------------------------

WRITTEN = [
    ("brotli", {}),
    ("brotli", {"level": 0}),
    ("brotli", {"level": 4, "window_log": 10}),
    ("brotli", {"window_log": 24}),
    ("zstd", {}),
    ("zstd", {"level": 0}),
    ("zstd", {"level": -131072}),
    ("zstd", {"level": 12}),
    ("zstd", {"window_log": 10}),
    ("zstd", {"window_log": 31, "level": 1}),
    ("zstd", {"window_log": 27, "level": -5}),
]


@rows(("codec", "options"), WRITTEN)
@rows("size", [0, 1, 65537, 1 * MIB])
def test_what_is_written_can_be_read(codec, options, size):
    content = mixed(size)
    data = compress(codec, content, **options)
    assert decompress(codec, data, size) == content
    writer = compressor(codec, **options)
    streamed = b"".join([writer.compress(content[at : at + 70_000]) for at in range(0, size, 70_000)]) + writer.flush()
    assert decompress(codec, streamed, size) == content
    if codec == "brotli":
        assert brotli.decompress(data) == brotli.decompress(streamed) == content
    else:
        assert zstd.decompressor().decompress(data) == zstd.decompressor().decompress(streamed) == content


def test_snappy_is_written():
    for level in (None, 1, 2):
        data = compress("snappy", mixed(200_000), level=level)
        assert bytes(cramjam.snappy.decompress_raw(data)) == mixed(200_000)


def test_levels_and_windows_are_obeyed():
    content = text(300_000)
    assert len(compress("brotli", content, level=9)) < len(compress("brotli", content, level=0))
    assert (
        len(compress("zstd", content, level=19))
        < len(compress("zstd", content))
        == len(compress("zstd", content, level=0))
    )
    assert len(compress("zstd", content, level=3)) < len(compress("zstd", content, level=-1000))
    assert len(compress("zstd", content, level=-1000, window_log=17)) == len(compress("zstd", content, level=-1000))
    assert window_log(compress("brotli", content, window_log=20)) == 20
    assert window_log(compress("brotli", content)) == 22
    writer = compressor("zstd", window_log=25)
    head = writer.compress(content) + writer.flush()
    assert head[5] >> 3 == 25 - 10


def test_the_size_is_in_the_frame_only_if_promised():
    content = text(300_000)
    for options in ({}, {"window_log": 20}):
        for size in (None, 300_000):
            frame = compress("zstd", content, pledged=size is not None, **options)
            assert (zstd.content_size(frame), frame[4] & 4) == (size, 0)  # and no checksum
            writer = compressor("zstd", size=size, **options)
            frame = writer.compress(content) + writer.flush()
            assert (zstd.content_size(frame), frame[4] & 4) == (size, 0)


def test_a_promise_that_is_not_kept():
    for size in (9, 11):
        writer = compressor("zstd", size=size)
        with pytest.raises(ValueError, match="cannot"):
            writer.compress(b"0123456789") + writer.flush()


@rows(
    ("codec", "options", "words"),
    [
        ("brotli", {"level": 12}, "0 to 11"),
        ("brotli", {"level": -1}, "0 to 11"),
        ("brotli", {"window_log": 9}, "10 to 30"),
        ("brotli", {"window_log": 31}, "10 to 30"),
        ("zstd", {"level": 23}, "-131072 to 22"),
        ("zstd", {"level": -131073}, "-131072 to 22"),
        ("zstd", {"window_log": 32}, "10 to 31"),
        ("zstd", {"window_log": 9}, "10 to 31"),
        ("snappy", {"level": 3}, "1 to 2"),
        ("snappy", {"window_log": 20}, "no window"),
    ],
)
def test_levels_that_do_not_exist(codec, options, words):
    with pytest.raises(ValueError, match=words):
        compress(codec, b"abc", **options)
    if codec != "snappy":
        with pytest.raises(ValueError, match=words):
            compressor(codec, **options)


def test_what_cannot_be_written():
    for log in range(25, 31):
        with pytest.raises(UnsupportedError, match="window_log of"):
            compress("brotli", b"abc", window_log=log)
        with pytest.raises(UnsupportedError, match="window_log of"):
            compressor("brotli", window_log=log)
    for write in (lambda: compress("gzip", b"abc"), lambda: compressor("snappy"), lambda: compressor("xz")):
        with pytest.raises(UnsupportedError, match="cannot be written"):
            write()


# -- the real tools --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "codec", "options"),
    [
        ("gzip", "gzip", ["-9"]),
        ("bzip2", "bz2", []),
        ("xz", "xz", ["-0", "--block-size=100000"]),
        ("xz", "xz", ["--check=crc32"]),
        ("xz", "xz", ["--check=none", "--delta=dist=4", "--lzma2=dict=1MiB"]),
        ("xz", "xz", ["-T2", "--block-size=65536"]),
        ("xz", "lzma", ["--format=lzma"]),
        ("zstd", "zstd", ["-q"]),
        ("zstd", "zstd", ["-q", "--long=27", "--no-check"]),
        ("lz4", "lz4", ["-q"]),
        ("lz4", "lz4", ["-q", "-B4", "-BD", "-9"]),
        ("lz4", "lz4", ["-q", "-BX", "--no-frame-crc", "--content-size"]),
    ],
)
def test_files_of_the_usual_tools(tool, codec, options, tmp_path):
    import shutil
    import subprocess

    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"no {tool} here")
    content = mixed(700_000)
    source = tmp_path / "content"
    source.write_bytes(content)
    ran = subprocess.run([path, *options, "-c", os.fspath(source)], capture_output=True)
    if ran.returncode:
        pytest.skip(f"this {tool} does not know {options}: {ran.stderr!r}")
    assert decompress(codec, ran.stdout, len(content)) == content
    assert stream(codec, ran.stdout, budget=MemoryBudget(200 * MIB))[:2] == (content, None)


# -- bombs -----------------------------------------------------------------------------------------------------------


def brotli_bomb(count, log=24):
    """Return a stream of ``count`` meta-blocks of 16 MiB, each of one literal and one copy of it."""
    large = log > 24
    bits = Bits()
    if large:
        bits.put(0x11, 8).put(log, 6)
    else:
        bits.put(1, 1).put(log - 17, 3)
    for _ in range(count):
        bits.put(0, 1).put(2, 2).put((1 << 24) - 1, 24).put(0, 1)  # not the last, six nibbles of length, not stored
        bits.put(0, 3).put(0, 6).put(0, 2).put(0, 2)  # one block type each, no postfix; one tree each
        bits.put(1, 2).put(0, 2).put(0x61, 8)  # the only literal
        bits.put(1, 2).put(0, 2).put(384 + 8 + 7, 10)  # the only command: insert 1, copy 2118 and 24 bits more
        bits.put(1, 2).put(0, 2).put(16, 8 if large else 6)  # the only distance: 1, and a bit more
        bits.put((1 << 24) - 1 - 2118, 24).put(0, 1)
    return bits.put(3, 2).bytes()


def test_the_bomb_is_what_it_should_be():
    assert brotli.decompress(brotli_bomb(2)) == b"a" * (32 * MIB)
    content = decompress("brotli", brotli_bomb(2, 30), 32 * MIB)
    assert content == b"a" * (32 * MIB)
    with pytest.raises(MalformedError, match="than allowed"):
        decompress("brotli", brotli_bomb(1000), 1000)
    with pytest.raises(MalformedError, match="than allowed"):
        decompress("brotli", brotli_bomb(1000, 26), 1000)


BOMB = """
import sys
from pparse.limits import MemoryBudget
from pparse.codecs import decompress, decompressor
from pparse.codecs.base import ZSTD, package
from pparse.errors import LimitError, PparseError
import bz2, lzma, zlib, brotli, cramjam, mmap, ctypes
package(ZSTD)

def memory(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

codec, path, size, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
with open(path, "rb") as file:
    data = file.read()
before = memory("VmRSS")
if mode == "whole":
    try:
        decompress(codec, data, size)
        print("too much came")
    except PparseError:
        pass
else:
    budget = MemoryBudget("32MiB")
    decoder = decompressor(codec, budget=budget)
    at = total = 0
    try:
        while not decoder.eof:
            piece = b""
            if decoder.needs_input:
                piece = data[at : at + 1024]
                at += len(piece)
                if not piece:
                    decoder.finish()
            got = decoder.decompress(piece, 1 << 16)
            total += len(got)
            if len(got) > 1 << 16:
                print("a call gave", len(got))
        if total != size:
            print("wrong size", total)
    except LimitError as error:
        if mode != "limit":
            raise
    print("peak", budget.peak)
print("grown", memory("VmHWM") - before)
"""


def bomb(codec, size):
    """Return a stream of ``size`` zeros (or so), made without holding them."""
    block = bytes(1 << 20)
    writers = {
        "gzip": lambda: zlib.compressobj(9, zlib.DEFLATED, 31),
        "bz2": bz2.BZ2Compressor,
        "xz": lambda: lzma.LZMACompressor(preset=0),
        "lzma": lambda: lzma.LZMACompressor(lzma.FORMAT_ALONE, preset=0),
        "zstd": zstd.compressor,
    }
    if codec == "brotli":
        return brotli_bomb(size >> 24)
    if codec == "lz4":
        return lz4_custom([(0, lz4_block(bytes(4 * MIB)))] * (size // (4 * MIB)))
    if codec == "snappy":
        copies = (bytes([2 | 63 << 2]) + b"\1\0") * ((size - 1) // 64)
        rest = (size - 1) % 64
        return varint(size) + b"\0\0" + copies + bytes([2 | rest - 1 << 2]) + b"\1\0"
    writer = writers[codec]()
    return b"".join([writer.compress(block) for _ in range(size >> 20)]) + writer.flush()


def grown(*arguments):
    """Run `BOMB` in a fresh interpreter; return the bytes by which its memory grew, and the peak of the budget."""
    import subprocess

    ran = subprocess.run([sys.executable, "-c", BOMB, *map(str, arguments)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    words = dict(line.rsplit(" ", 1) for line in ran.stdout.splitlines())
    assert set(words) <= {"grown", "peak"}, ran.stdout
    return int(words["grown"]), int(words.get("peak", 0))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
@pytest.mark.parametrize("codec", sweep.some(["gzip", "bz2", "xz", "lzma", "brotli", "zstd", "lz4", "snappy"], 2))
def test_bombs_are_bounded(codec, tmp_path):
    size = 8 * MIB if codec == "snappy" else 48 * MIB
    path = tmp_path / "bomb"
    path.write_bytes(bomb(codec, size))
    more, peak = grown(codec, path, size, "stream")
    assert more < peak + 4 * MIB
    assert peak < 18 * MIB
    more, _ = grown(codec, path, 1 * MIB, "whole")
    assert more < (16 if codec == "lz4" else 8) * MIB  # its blocks have 4 MiB


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
def test_bombs_with_large_windows_are_bounded(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(brotli_bomb(1000, 30))
    more, peak = grown("brotli", path, 0, "limit")
    assert peak <= 32 * MIB
    assert more < 36 * MIB
    more, _ = grown("brotli", path, 1 * MIB, "whole")
    assert more < 16 * MIB
    path.write_bytes(wide("zstd", bytes(1000)))
    more, _ = grown("zstd", path, 500, "whole")
    assert more < 4 * MIB
    for codec in ("xz", "lzma"):
        path.write_bytes(wide(codec, bytes(1000)))
        more, _ = grown(codec, path, 500, "whole")
        assert more < 4 * MIB
