"""Far data behind a cache: the same bytes, in few requests, within the budget."""

from __future__ import annotations

import io
import json
import random
import threading
import zipfile
from pathlib import Path

import pytest

import pparse
from pparse.data.base import BytesData, Distance, Gap
from pparse.data.block_cache import BLOCK, BlockCache
from pparse.errors import ClosedError, EndOfDataError, GapError, SourceError
from pparse.limits import MemoryBudget
from tests import sweep

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"
CONTENT = random.Random(3).randbytes(3 * 1024 * 1024 + 12_345)


class FarData(BytesData):
    """Bytes that count the requests for them."""

    distance = Distance.FAR

    def __init__(self, content: bytes, name: str = "far") -> None:
        super().__init__(content, name)
        self.requests: list[tuple[int, int]] = []

    def _pread(self, offset: int, length: int) -> bytes:
        self.requests.append((offset, length))
        return super()._pread(offset, length)

    def _preadinto(self, offset: int, view: memoryview) -> int:
        self.requests.append((offset, len(view)))
        return super()._preadinto(offset, view)

    def mapped(self, offset: int, length: int) -> memoryview | None:
        return None

    @property
    def served(self) -> int:
        return sum(length for _, length in self.requests)


def cached(content: bytes = CONTENT, budget: str = "64MiB") -> tuple[FarData, BlockCache]:
    far = FarData(content)
    return far, BlockCache(far, MemoryBudget(budget))


@pytest.mark.parametrize("budget", ["1MiB", "64MiB"])
def test_every_read_gives_the_bytes_of_the_source(budget):
    _, cache = cached(budget=budget)
    rng = random.Random(sweep.offset)
    for _ in range(500):
        offset = rng.randrange(len(CONTENT) + 100)
        length = rng.choice((0, 1, 100, BLOCK, 3 * BLOCK + 1, 2 << 20))
        assert cache.pread(offset, length) == CONTENT[offset : offset + length], (offset, length)
        buffer = bytearray(length)
        count = cache.preadinto(offset, buffer)
        assert bytes(buffer[:count]) == CONTENT[offset : offset + length]
    ranges = [(rng.randrange(len(CONTENT)), rng.randrange(200_000)) for _ in range(50)]
    cache.prefetch(ranges)
    assert [cache.pread(*place) for place in ranges] == [CONTENT[at : at + length] for at, length in ranges]


def test_reads_in_one_block_are_one_request():
    far, cache = cached()
    for offset in range(0, BLOCK - 100, 97):
        cache.pread(offset, 90)
    assert far.requests == [(0, BLOCK)]


def test_reading_on_reads_ahead_twice_as_much_each_time():
    far, cache = cached()
    for offset in range(0, len(CONTENT), 1000):
        cache.pread(offset, 1000)
    assert far.served == len(CONTENT)
    assert [length // BLOCK for _, length in far.requests] == [1, 2, 4, 8, 16, 17]
    far, cache = cached(CONTENT * 6)
    for offset in range(0, 6 * len(CONTENT), 9_000):
        cache.pread(offset, 9_000)
    lengths = [length // BLOCK for _, length in far.requests]
    assert lengths[:-1] == [1, 2, 4, 8, 16, 32, 64, 64, 64]  # 4 MiB at most
    far, cache = cached(budget="4MiB")  # 8 blocks are kept
    for offset in range(0, len(CONTENT), 9_000):
        cache.pread(offset, 9_000)
    assert {length // BLOCK for _, length in far.requests[2:-1]} == {4}


def test_reads_of_several_blocks_in_order_read_ahead_too():
    far, cache = cached()
    reads = range(0, len(CONTENT), 150_000)
    for offset in reads:
        assert cache.pread(offset, 150_000) == CONTENT[offset : offset + 150_000]
    assert [length // BLOCK for _, length in far.requests] == [3, 2, 4, 8, 16, 15]
    assert far.served == len(CONTENT)


@pytest.mark.parametrize(("back", "ahead"), [(0, 2), (BLOCK, 2), (BLOCK + 1, 1), (-BLOCK, 2), (-BLOCK - 1, 1)])
def test_who_reads_on_behind_a_long_read_reads_in_order(back, ahead):
    """Where it ended, or a block before or behind."""
    far, cache = cached()
    long = 20 * BLOCK
    assert cache.pread(0, long) == CONTENT[:long]
    cache.pread(long - back, 1)
    assert far.requests[0] == (0, long)
    assert far.requests[1] == ((long - back) // BLOCK * BLOCK, ahead * BLOCK)


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize(("length", "kept"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_what_is_longer_than_a_mebibyte_is_not_kept(into, length, kept):
    far, cache = cached()
    for _ in range(2):
        buffer = bytearray(length)
        if into:
            assert cache.preadinto(BLOCK, buffer) == length
        else:
            buffer[:] = cache.pread(BLOCK, length)
        assert buffer == CONTENT[BLOCK : BLOCK + length]
    assert len(far.requests) == (1 if kept else 2)


def test_a_jump_reads_no_more_than_a_block():
    far, cache = cached()
    for offset in (0, 2 << 20, 1 << 20, 3 << 20):
        cache.pread(offset, 10)
    assert all(length <= BLOCK for _, length in far.requests)
    assert len(far.requests) == 4


def test_ranges_near_each_other_are_one_request():
    far, cache = cached()
    ranges = [(number * 20_000, 100) for number in range(50)] + [(2_500_000, 10)]
    cache.prefetch(ranges)
    assert len(far.requests) == 2
    assert [cache.pread(*place) for place in ranges] == [CONTENT[at : at + length] for at, length in ranges]
    assert len(far.requests) == 2


def test_up_to_half_of_the_cache_is_read_ahead_of_a_use_and_more_is_left_to_the_source():
    far, cache = cached(budget="8MiB")  # 1 MiB of blocks
    asked: list[list[tuple[int, int]]] = []
    far.prefetch = asked.append  # type: ignore[method-assign]
    half = 8 * BLOCK
    cache.prefetch([(BLOCK, half)])
    assert (far.requests, asked) == ([(BLOCK, half)], [])
    assert cache.pread(BLOCK, half) == CONTENT[BLOCK : BLOCK + half]
    assert len(far.requests) == 1
    cache.prefetch([(20 * BLOCK, half + 1)])
    assert (len(far.requests), asked) == (1, [[(20 * BLOCK, half + 1)]])
    cache.prefetch([(len(CONTENT) - 10, 100), (len(CONTENT) + BLOCK, 1)])
    assert far.requests[1:] == [(len(CONTENT) // BLOCK * BLOCK, len(CONTENT) % BLOCK)]


@pytest.mark.parametrize(("apart", "requests"), [(256 << 10, 1), ((256 << 10) + 1, 2)])
def test_ranges_are_read_together_if_what_is_between_costs_less_than_a_request(apart, requests):
    far, cache = cached()
    ranges = [(BLOCK, 100), (BLOCK + 50, 10), (BLOCK + 100 + apart, 100)]
    cache.prefetch(ranges)
    assert [cache.pread(*place) for place in ranges] == [CONTENT[at : at + length] for at, length in ranges]
    assert len(far.requests) == requests


def test_what_is_kept_is_charged_and_given_back():
    far = FarData(CONTENT)
    budget = MemoryBudget("1MiB")
    cache = BlockCache(far, budget)
    for offset in range(0, len(CONTENT), BLOCK):
        cache.pread(offset, 10)
        assert budget.used <= 1 << 20
    held = budget.used
    assert 0 < held <= (1 << 20) // 8 + 5 * BLOCK
    other = budget.charge((1 << 20) - 1000, "something else")  # evicts the blocks
    before = len(far.requests)
    assert cache.pread(2_990_000, 100) == CONTENT[2_990_000:2_990_100]  # it was kept before
    assert len(far.requests) > before
    other.release()
    assert cache.pread(2 << 20, 100) == CONTENT[2 << 20 : (2 << 20) + 100]
    cache.close()
    assert budget.used == 0
    with pytest.raises(ClosedError):
        cache.pread(0, 1)


def test_an_eighth_of_the_budget_is_kept_and_the_block_that_was_used_last_goes_last():
    far, cache = cached(budget="4MiB")
    for number in (0, 10, 20, 30, 2, 12, 22, 32):
        cache.pread(number * BLOCK, 10)
    assert len(far.requests) == 8
    for number in (32, 22, 12, 2, 30, 20, 10, 0):
        assert cache.pread(number * BLOCK + 5, 10) == CONTENT[number * BLOCK + 5 : number * BLOCK + 15]
    assert len(far.requests) == 8
    cache.pread(40 * BLOCK, 10)
    for number in (22, 12, 2, 30, 20, 10, 0, 32):
        cache.pread(number * BLOCK, 10)
    assert far.requests[8:] == [(40 * BLOCK, BLOCK), (32 * BLOCK, BLOCK)]


def test_a_gap_that_begins_with_a_block_is_not_asked_for():
    far, cache = cached()
    far.gaps = (Gap(2 * BLOCK, BLOCK),)
    with pytest.raises(GapError):
        cache.pread(2 * BLOCK, 10)
    assert far.requests == []


def test_gaps_are_those_of_the_source():
    far, cache = cached()
    far.gaps = (Gap(100_000, 50_000), Gap(3_000_000, len(CONTENT) - 3_000_000))
    assert cache.pread(90_000, 50_000) == CONTENT[90_000:100_000]
    with pytest.raises(GapError):
        cache.pread(120_000, 10)
    assert cache.pread(150_000, 100_000) == CONTENT[150_000:250_000]
    chunk, unknown = cache.read_known(99_000, 60_000)
    assert chunk == CONTENT[99_000:100_000] + bytes(50_000) + CONTENT[150_000:159_000]
    assert unknown == [(100_000, 50_000)]
    assert cache.pread(2_990_000, 50_000) == CONTENT[2_990_000:3_000_000]


def test_an_error_of_the_source_is_passed_on_and_nothing_wrong_is_kept():
    far, cache = cached()
    fail = True
    read = far._pread

    def sometimes(offset: int, length: int) -> bytes:
        if fail:
            raise SourceError("the network is down", source="far")
        return read(offset, length)

    far._pread = sometimes  # type: ignore[method-assign]
    with pytest.raises(SourceError):
        cache.pread(0, 10)
    fail = False
    assert cache.pread(0, 10) == CONTENT[:10]


def test_threads_share_a_cache():
    _, cache = cached(budget="1MiB")
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            offset, length = rng.randrange(len(CONTENT)), rng.randrange(200_000)
            if cache.pread(offset, length) != CONTENT[offset : offset + length]:
                wrong.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def model(count: int) -> bytes:
    rows = {f"t{n}": {"dtype": "U8", "shape": [4], "data_offsets": [4 * n, 4 * n + 4]} for n in range(count)}
    header = json.dumps(rows).encode()
    return len(header).to_bytes(8, "little") + header + bytes(range(256)) * (count // 64)


def test_all_values_of_a_far_model_take_a_few_requests():
    content = model(1_024)
    far = FarData(content)
    with pparse.view(far) as found, pparse.view(content) as near:
        values = [tensor.numpy().tolist() for tensor in found.values()]
        assert values == [tensor.numpy().tolist() for tensor in near.values()]
    assert len(far.requests) <= 4
    assert far.served == len(content)


def test_listing_a_far_archive_takes_a_few_requests():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for number in range(1_000):
            made.writestr(f"m{number}", b"x" * 3_000)
    far = FarData(out.getvalue())
    with pparse.open(far) as document:
        assert sum(1 for _ in document.parse().parser.members()) == 1_000
    assert len(far.requests) <= 3


def test_a_far_chunked_proto_takes_a_few_requests():
    path = SAMPLES / "chunked-model.cut.cpb"
    far = FarData(path.read_bytes(), path.name)
    with pparse.view(far) as found, pparse.view(path) as near:
        for tensor in near.values():
            assert found[tensor.name].status == tensor.status
            if tensor.is_complete:
                assert found[tensor.name].numpy().tobytes() == tensor.numpy().tobytes()
    assert len(far.requests) <= 6


def test_what_the_source_knows_of_its_bytes_the_cache_knows():
    class Known(FarData):
        def holes(self, start, end):
            yield start, start + 10

    far = Known(CONTENT)
    cache = BlockCache(far, MemoryBudget())
    assert list(cache.holes(5, 100)) == [(5, 15)]
    assert cache.distance is Distance.FAR
    assert cache.why_suspect(0, 10) is None
    far.condemn(0, 5, "a checksum says so")
    assert cache.why_suspect(0, 10) == "a checksum says so"
    far.error = EndOfDataError("cut")
    assert cache.error is far.error
    with pparse.open(cache) as document:
        assert document.data is cache  # not a cache of a cache
