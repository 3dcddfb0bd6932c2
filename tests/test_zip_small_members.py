"""Small members of a zip are verified by one read; whatever is odd gets the answer that all other members get."""

from __future__ import annotations

import gzip
import io
import random
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse.compressed.resumed import ResumedData
from pparse.containers.content import Collector
from pparse.parsers.zip import members
from tests import numpy_files, sweep
from tests.zip_samples import Sink, add

if TYPE_CHECKING:
    from pparse.containers.member import ArchiveMember
    from pparse.parsers.zip.parser import ZipParser

TEXT = b"a few words, and the same a few words again; "


def archive(method: int, *, count: int = 6, streamed: bool = False, extra: bytes = b"") -> bytes:
    out = Sink() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for number in range(count):
            add(made, f"m{number}", TEXT[: 7 * number] * number, method, extra=extra)
        made.writestr(zipfile.ZipInfo("folder/"), b"")
    return bytes(out.written) if isinstance(out, Sink) else out.getvalue()


SAMPLES = {
    "stored": archive(zipfile.ZIP_STORED),
    "deflated": archive(zipfile.ZIP_DEFLATED),
    "streamed": archive(zipfile.ZIP_DEFLATED, streamed=True),
    "streamed and stored": archive(zipfile.ZIP_STORED, streamed=True),
    "much extra": archive(zipfile.ZIP_DEFLATED, count=3, extra=b"\xfe\xca\xc0\x00" + bytes(192)),
    "zip64": numpy_files.archive([(f"m{n}", TEXT[: 7 * n] * n) for n in range(6)], zipfile.ZIP_DEFLATED),
    "bz2": archive(zipfile.ZIP_BZIP2, count=3),
    "many": archive(zipfile.ZIP_DEFLATED, count=3) + b"trailing",
}


def answer(content: bytes) -> object:
    """Return all that a check and a reading of each member say."""
    try:
        with pparse.open(content) as document:
            result = document.parse()
            said: list[object] = [str(finding) for finding in result.check()]
            if result.parser.name == "zip":
                said += [read(result.parser, member) for member in result.parser.files()]
            return said, sorted(str(finding) for finding in result.findings)
    except pparse.PparseError as error:
        return repr(error)


def read(parser: ZipParser, member: ArchiveMember) -> tuple[object, ...]:
    """Return the verdict on ``member``, and its bytes."""
    keep = Collector(bool)
    verdict = parser.verify(member, keep)
    where = list(verdict.gaps), verdict.suspect
    return member.name, verdict.status, verdict.verified, verdict.size, verdict.reason, where, keep.content()


def both_answers(content: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    quick = answer(content)
    with monkeypatch.context() as patch:
        patch.setattr(members, "SMALL", -1)
        return quick, answer(content)


def no_decoder(*args: object, **options: object) -> None:
    raise AssertionError("a decoder was made")


@pytest.mark.parametrize("name", ["stored", "deflated", "streamed", "streamed and stored", "much extra", "zip64"])
def test_whole_small_members_are_verified_without_a_decoder(name, monkeypatch):
    monkeypatch.setattr(ResumedData, "__init__", no_decoder)
    with pparse.open(SAMPLES[name], format="zip") as document:
        assert not list(document.check())
        parser = document.parse().parser
        found = [read(parser, member) for member in parser.files()]
    contents = [row[-1] for row in found if row[0] != "folder/"]
    assert contents == [TEXT[: 7 * number] * number for number in range(len(contents))]
    assert len(contents) >= 3
    assert all(verified is True for _, _, verified, *_ in found)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_changed_byte_gets_the_answer_of_a_reading_through_a_decoder(name, monkeypatch):
    content = SAMPLES[name]
    for place in sweep.some(range(len(content)), 30, ends=8):
        for change in sweep.values((0x01, 0x80, 0xFF), place, 1):
            damaged = bytearray(content)
            damaged[place] ^= change
            quick, slow = both_answers(bytes(damaged), monkeypatch)
            assert quick == slow, (place, change)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_prefix_and_hole_gets_the_answer_of_a_reading_through_a_decoder(name, monkeypatch):
    content = SAMPLES[name]
    for place in sweep.some(range(1, len(content)), 50, ends=4):
        for damaged in (
            content[:place],
            content[: place - 1] + content[place:],
            content[:place] + b"x" + content[place:],
        ):
            quick, slow = both_answers(damaged, monkeypatch)
            assert quick == slow, place


def test_in_a_damaged_stream_the_answer_is_that_of_a_reading_through_a_decoder(monkeypatch):
    random_bytes = random.Random(5).randbytes(3_000)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as outer:
        for number in range(40):
            outer.writestr(f"m{number}", random_bytes[40 * number :][:300] + TEXT * number)
    content = gzip.compress(made.getvalue(), mtime=0)
    for place in sweep.some(range(20, len(content)), 400):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        quick, slow = both_answers(bytes(damaged), monkeypatch)
        assert quick == slow, place


@pytest.mark.parametrize("place", [14, 18, 22])
@pytest.mark.parametrize("small", [True, False])
def test_values_before_a_streamed_member_must_be_zeros_or_right(place, small, monkeypatch):
    if not small:
        monkeypatch.setattr(members, "SMALL", -1)
    content = bytearray(SAMPLES["streamed"])
    assert content[place : place + 4] == bytes(4)
    content[place] = 7
    with pparse.open(bytes(content)) as document:
        found = list(document.check())
        assert [(finding.code, str(finding.severity), finding.path) for finding in found] == [
            ("contradiction", "warning", "m0")
        ]
        assert read(document.parse().parser, next(iter(document.parse().parser.files())))[2] is True


def test_a_limit_on_decoded_bytes_applies(monkeypatch):
    content = archive(zipfile.ZIP_DEFLATED, count=6)
    with pparse.open(content, limits=pparse.Limits(inflated_bytes=50)) as document:
        verdicts = [document.parse().parser.verify(member) for member in document.parse().parser.files()]
    assert [verdict.code for verdict in verdicts] == ["", "", "", "limit", "limit", "limit", ""]


def test_a_check_of_many_small_members_takes_few_calls_for_each():
    def calls(count: int) -> int:
        content, number = archive(zipfile.ZIP_DEFLATED, count=count), 0

        def count_call(frame: object, event: str, arg: object) -> None:
            nonlocal number
            number += event == "call"

        with pparse.open(content) as document:
            sys.setprofile(count_call)
            try:
                for _ in document.check():
                    pass
            finally:
                sys.setprofile(None)
        return number

    few, many = calls(100), calls(400)
    assert (many - few) / 300 <= 80
