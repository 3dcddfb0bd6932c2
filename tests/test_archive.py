from __future__ import annotations

import io
import random
import tarfile
from collections import Counter

import pytest

import pparse
from pparse.containers.archive import NameCounter
from pparse.errors import LimitError
from pparse.findings import Status
from pparse.testing.fakes import FakeData


def test_names_are_counted_however_many_there_are() -> None:
    source = random.Random(1)
    names = NameCounter()
    expected: Counter[str] = Counter()
    for _ in range(50_000):
        name = f"member {source.randrange(40_000)}"
        expected[name] += 1
        assert names.add(name) == expected[name]


def test_names_with_the_hashes_that_are_special() -> None:
    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return {97: 0, 98: 1024, 99: -1024, 100: 2048}[ord(self)]

        __eq__ = str.__eq__

    names = NameCounter()
    assert [names.add(Name(letter)) for letter in "abcdabcd"] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_name_takes_16_to_32_bytes_and_64_while_there_are_few() -> None:
    names = NameCounter()
    each = []
    for count in range(1, 300_000):
        names.add(f"member {count}")
        if count >= 512:
            each.append((count, 8 * len(names._table) / count))
    assert max(size for _, size in each) <= 64
    assert max(size for count, size in each if count > 262_144) <= 32
    assert min(size for _, size in each) >= 16


def tar_of(count: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(count):
            info = tarfile.TarInfo(f"member-{number}")
            info.size = 2
            archive.addfile(info, io.BytesIO(b"ab"))
    return out.getvalue()


def test_a_format_that_leaves_no_bytes_unclaimed_yields_none() -> None:
    with pparse.open(tar_of(3)) as document:
        parser = document.parse().parser
        assert not parser.leaves_unclaimed
        assert list(parser.unclaimed([(0, 512)])) == []


def test_what_was_listed_whole_needs_no_second_walk() -> None:
    with pparse.open(tar_of(300)) as document:
        listing = document.parse().parser.members()
        next(listing)
        assert document.root.known_status is None
        assert len(list(listing)) == 299
        assert document.root.known_status is Status.COMPLETE


@pytest.mark.parametrize("when", ["it is opened", "it is read"])
def test_a_member_that_a_limit_refuses_is_unsupported_and_says_how_to_lift_it(monkeypatch, when) -> None:
    class Refused(FakeData):
        def _pread(self, offset: int, length: int) -> bytes:
            raise LimitError("the window is too large", option="--budget 2GiB")

    with pparse.open(tar_of(1)) as document:
        parser = document.parse().parser
        (member,) = parser.files()
        data = Refused(b"ab")
        monkeypatch.setattr(
            parser, "content", lambda member: data._pread(0, 1) if when == "it is opened" else (data, 0, 2)
        )
        verdict = parser.verify(member)
    assert (verdict.status, verdict.code) == (Status.UNSUPPORTED, "limit")
    assert verdict.reason == 'the window is too large; lift it with budget="2GiB"'


def test_a_cut_archive_is_no_complete_one_when_it_was_listed() -> None:
    with pparse.open(tar_of(300)[: 1024 * 200 + 513]) as document:
        assert len(list(document.parse().parser.members())) == 201
        assert document.root.known_status is Status.TRUNCATED
