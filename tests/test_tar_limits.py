"""How long the names and records of extended headers may be: at the limit they are read, above it passed over."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

import pparse
from pparse.findings import Status
from pparse.limits import Limits
from pparse.parsers.tar.headers import BLOCK
from tests.test_tar_headers import header, record

if TYPE_CHECKING:
    from pparse.containers.archive import ArchiveMember

PASSED_OVER = "an extended header of {:,} bytes was skipped"


def extended(letter: bytes, content: bytes) -> bytes:
    """Return an archive: an extended header of that letter, which the one member comes behind."""
    first = header(name="extended", size=len(content), type=letter)
    member = header(name="short", size=0, type=tarfile.SYMTYPE, linkname="target")
    return first + content + bytes(-len(content) % BLOCK) + member + bytes(2 * BLOCK)


def only_member(content: bytes, **limits: int) -> ArchiveMember:
    with pparse.open(content, format="tar", limits=Limits(**limits)) as document:
        (member,) = document.parse().parser.files()
        return member


@pytest.mark.parametrize("letter", [b"L", b"K"])
def test_a_long_name_is_read_up_to_the_limit_and_passed_over_above(letter):
    name = b"n" * 700
    archive = extended(letter, name)
    member = only_member(archive, name_bytes=700)
    assert member.status is Status.COMPLETE
    assert (member.name if letter == b"L" else member.link) == name.decode()
    member = only_member(archive, name_bytes=699)
    assert (member.name, member.link) == ("short", "target")
    assert (member.status, member.finding.reason) == (Status.DAMAGED, PASSED_OVER.format(700))
    assert only_member(archive, name_bytes=700, header_bytes=1).status is Status.COMPLETE


def test_pax_records_are_read_up_to_the_limit_and_passed_over_above():
    content = record(b"path", b"n" * 700)
    archive = extended(b"x", content)
    assert only_member(archive, header_bytes=len(content), name_bytes=1).name == "n" * 700
    member = only_member(archive, header_bytes=len(content) - 1)
    assert (member.name, member.status) == ("short", Status.DAMAGED)
    assert member.finding.reason == PASSED_OVER.format(len(content))


@pytest.mark.parametrize("more", [0, 1])
def test_no_pax_header_of_more_than_4_mib_is_read(more):
    head = record(b"path", b"n" * 700)
    size = (4 << 20) + more
    rest = size - len(head)
    content = head + record(b"comment", b"c" * (rest - len(record(b"comment", b"c" * rest)) + rest))
    assert len(content) == size
    member = only_member(extended(b"x", content))
    assert member.name == ("short" if more else "n" * 700)
    assert member.status is (Status.DAMAGED if more else Status.COMPLETE)


@pytest.mark.parametrize("more", [0, 1])
def test_global_pax_records_of_64_kib_are_kept_and_no_more(more):
    value = b"n" * ((64 << 10) - len(b"path") + more)
    member = only_member(extended(b"g", record(b"path", value)))
    assert member.raw_name == (b"short" if more else value)
    assert (member.finding.reason if more else member.finding) == (
        "there are too many global pax records; these were skipped" if more else None
    )


@pytest.mark.parametrize("count", [256, 257])
def test_256_global_pax_headers_are_kept_and_no_more(count):
    headers = b"".join(extended(b"g", record(b"path", b"%d" % nth))[: 2 * BLOCK] for nth in range(count))
    member = only_member(headers + extended(b"g", b"")[BLOCK:])
    assert (member.name, member.status) == ("255", Status.COMPLETE if count == 256 else Status.DAMAGED)
