from __future__ import annotations

import io
import random
import tarfile

import pytest

import pparse
from pparse.data.base import Gap
from pparse.errors import PparseError
from pparse.findings import Severity, Status
from pparse.parsers.tar.headers import BLOCK
from pparse.testing.fakes import FakeData, GappyData, UnknownSizeData
from tests import sweep
from tests.rows import rows
from tests.test_tar import archive, contents, files, info, opened, read, seal, seen

FORMATS = ("ustar", "gnu", "pax")


def noise(count, seed=1):
    return random.Random(seed).randbytes(count)


PARTS = {"a.txt": b"line of text\n" * 60, "dir/b.bin": noise(3_000), "c": b"", "d": noise(700, 2), "e" * 120: b"long"}
MEMBERS = [*PARTS.items()]


def sample(format="gnu"):
    members = [
        (f"{'p' * 80}/{'e' * 60}" if format == "ustar" and len(name) > 100 else name, content)
        for name, content in MEMBERS
    ]
    return archive(members, format)


def delivered(source):
    """Return the bytes that come out of each member, gaps too."""
    return [content for _, _, _, content in contents(source)]


def header_of(content, name):
    return content.index(name.encode())


# -- cut -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_every_prefix_gives_the_members_that_end_in_it(format):
    content = sample(format)
    whole = {name: data for name, _, _, data in contents(content)}
    spans = {member.name: (member.start, member.end) for member in files(content)}
    most = 0
    for size in sweep.some([*range(3_000), *range(3_000, len(content), 37)], 3):
        with opened(content[:size]) as extraction:
            score = 0
            for member in extraction.result.parser.files():
                data, verdict = read(extraction, member)
                score += len(data)
                if member.kind == "gap":
                    continue
                if verdict.status is Status.COMPLETE:
                    assert data == whole[member.name], (size, member)
                else:
                    assert verdict.status is Status.TRUNCATED, (size, member)
                    assert whole[member.name].startswith(data) if member.name in whole else not data
            names = {member.name for member in extraction.result.parser.files()}
            for name, (start, end) in spans.items():
                if start <= size:
                    assert name in names, (size, name)
                if start <= size < end:
                    assert extraction.status is Status.TRUNCATED, (size, name)
                    assert extraction.result.parser.missing() == end - size
            assert score >= most - BLOCK, size  # a cut header comes out as it is
            most = max(most, score)


@pytest.mark.parametrize("size", [512 + 90, 800, 1023])
def test_an_archive_that_ends_in_the_padding_of_a_member_is_truncated(size):
    content = archive([("a", b"hello" * 18), ("b", b"")])[:size]
    for ask in (lambda tar: list(tar.result.parser.files()), lambda tar: list(tar.root.children()), lambda tar: None):
        with opened(content) as extraction:
            ask(extraction)
            assert extraction.status is Status.TRUNCATED
            (member,) = extraction.result.parser.files()
            assert (member.status, read(extraction, member)[0]) == (Status.COMPLETE, b"hello" * 18)
            assert extraction.result.parser.missing() is None
            (finding,) = extraction.check()
            assert (finding.code, finding.severity, finding.offset) == ("truncated", Severity.ERROR, size)


def test_a_cut_header_tells_its_name():
    content = sample()
    at = header_of(content, "dir/b.bin")
    for size in (at + 300, at + 511):
        found = contents(content[:size])
        assert [name for name, *_ in found] == ["a.txt", "dir/b.bin"]
        assert found[1][2:] == ("truncated", b"")
    assert contents(content[: at + 20])[1][:2] == (f"gap {at}", "gap")


# -- changed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_every_byte_of_headers_changed(format):
    content = sample(format)
    members = files(content)
    for member in members:
        for at in sweep.some(range(member.at, member.start), 6):
            value = (0x00, 0x31, 0x41, 0xFF)[at % 4 if at % BLOCK >= 100 else at % 2]
            if content[at] == value:
                continue
            changed = content[:at] + bytes([value]) + content[at + 1 :]
            found = contents(changed)
            came = [data for *_, data in found]
            for name, data in whole_parts(content):
                assert any(data in other for other in came), (at - member.at, name)
            others = {name: data for name, _, status, data in found if status == "complete"}
            for other in members:
                if other is not member:
                    assert others.get(other.name) == content[other.start : other.end], (at - member.at, other)


def whole_parts(content):
    return [(member.name, content[member.start : member.end]) for member in files(content) if member.size]


@pytest.mark.parametrize("at", [136, 148, 150, 154, 116, 5, 0, 124, 257])
def test_a_header_with_a_wrong_checksum_is_a_header(at):
    content = bytearray(sample())
    header = header_of(content, "dir/b.bin")
    content[header + at] ^= 1
    found = files(bytes(content))
    assert [member.status.value for member in found] == ["complete", "damaged", "complete", "complete", "complete"]
    assert found[1].finding.code in ("malformed", "size")
    assert delivered(bytes(content))[1][:3_000] == PARTS["dir/b.bin"]


@pytest.mark.parametrize("size", [700, 1024])
def test_a_header_with_a_wrong_checksum_keeps_its_size_where_the_end_of_the_archive_follows(size):
    """Whatever stands behind that end: the zeros of the end are none of the member."""
    text = noise(size)
    content = bytearray(archive([("first", b"1"), ("last", text)]))
    last = files(bytes(content))[1]
    content[last.at + 140] ^= 1  # of its time
    for tail in (b"", archive([("other", b"2")])):
        found = contents(bytes(content) + tail)
        assert found[0][0] == "first"
        assert found[1][0] == "last"
        assert found[1][3] == text
        assert [(name, data) for name, _, _, data in found[2:]] == ([("other", b"2")] if tail else [])


def test_one_byte_that_no_number_has_is_mended_by_the_checksum():
    content = bytearray(sample())
    header = header_of(content, "dir/b.bin")
    content[header + 130] = 0xEE
    assert contents(bytes(content))[1] == ("dir/b.bin", "file", "damaged", PARTS["dir/b.bin"])
    content[header + 131] = 0xEE  # two are too many for it; but only one size ends before the next header
    assert contents(bytes(content))[1] == ("dir/b.bin", "file", "damaged", PARTS["dir/b.bin"])
    content[header + 133] = 0xEE  # with that there are several: up to the next header
    found = contents(bytes(content))[1]
    assert found[:3] == ("dir/b.bin", "file", "damaged")
    assert found[3] == PARTS["dir/b.bin"] + bytes(-3_000 % BLOCK)


# -- destroyed -------------------------------------------------------------------------------------------------------


@rows("wreck", [bytes(BLOCK), noise(BLOCK), b"text " * 102 + b"\n\n"])
@rows("name", ["a.txt", "dir/b.bin", "d"])
@rows("format", FORMATS)
def test_a_destroyed_header_costs_one_name(format, name, wreck):
    content = sample(format)
    member = next(member for member in files(content) if member.name == name)
    at = member.start - BLOCK
    found = contents(content[:at] + wreck + content[at + BLOCK :])
    others = {other: data for other, _, status, data in found if status == "complete"}
    assert {other: others.get(other) for other in PARTS if other != name and format != "ustar"} == {
        other: data for other, data in PARTS.items() if other != name and format != "ustar"
    }
    lost = [data for _, kind, status, data in found if status == "damaged"]
    assert len(lost) == 1
    assert PARTS[name] in lost[0]
    with opened(content[:at] + wreck + content[at + BLOCK :]) as extraction:
        list(extraction.result.parser.members())
        assert extraction.status is Status.DAMAGED
        assert any(finding.severity is Severity.ERROR for finding in extraction.findings)


def test_an_extended_header_names_what_follows_it():
    content = archive([("first", b"1"), ("x" * 150, b"content"), ("last", b"2")])
    member = files(content)[1]
    at = member.start - BLOCK
    found = contents(content[:at] + noise(BLOCK) + content[at + BLOCK :])
    assert [name for name, *_ in found] == ["first", "x" * 150, "last"]
    assert found[1][1:3] == ("file", "damaged")
    assert found[1][3].startswith(b"content")


def test_broken_pax_records_cost_only_themselves():
    headers = {"path": "y" * 120, "comment": "words", "mtime": "12.5"}
    content = archive([(info("x", pax_headers=headers), b"body"), ("z", b"2")], "pax")
    records = content.index(b"130 path=")
    for wreck in (b"999 ", b"\xff\xff\xff ", b"131 ", b"129 ", b"000 ", b"1 3 "):
        broken = content[:records] + wreck + content[records + 4 :]
        assert contents(broken) == [("y" * 120, "file", "damaged", b"body"), ("z", "file", "complete", b"2")]
        assert files(broken)[0].mtime == 12.5
    start = content.index(b"17 comment=") if b"17 comment=" in content else content.index(b" comment=") - 2
    broken = content[:start] + b"\xff\xff" + content[start + 2 :]
    assert contents(broken)[0][:2] == ("y" * 120, "file")


def test_a_member_whose_header_is_destroyed_has_the_size_of_its_pax_records():
    headers = {"path": "y" * 120, "size": "1024"}
    content = archive([(info("x", pax_headers=headers), b"a" * 1024), ("z", b"2")], "pax")
    at = content.index(b"a" * 1024) - BLOCK
    member, following = files(content[:at] + noise(BLOCK) + content[at + BLOCK :])
    assert (member.name, member.size, member.start, member.end) == ("y" * 120, 1024, at + BLOCK, at + 3 * BLOCK)
    assert (following.name, following.status) == ("z", Status.COMPLETE)


# -- lies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [600, 1_000, 0, 1 << 30, (1 << 33) - 1])
def test_a_size_that_lies(size):
    content = bytearray(sample())
    at = header_of(content, "dir/b.bin")
    content[at + 124 : at + 136] = b"%011o\0" % size
    seal(content, at)
    found = contents(bytes(content))
    assert [other for other in found if other[2] == "complete" and other[0] != "dir/b.bin"] == [
        (name, "file", "complete", data) for name, data in PARTS.items() if name != "dir/b.bin"
    ]
    came = b"".join(data for name, *_, data in found if name == "dir/b.bin" or name.startswith("gap"))
    assert came.startswith(PARTS["dir/b.bin"])
    assert any(status == "damaged" for _, _, status, _ in found)


@pytest.mark.parametrize("size", [2_000, 9_000, 33_000])
def test_a_size_that_lies_about_headers(size):
    parts = {"one": noise(5_000), "two": noise(30_000, 2), "three": noise(20_000, 3), "four": b"4"}
    content = bytearray(archive(parts.items()))
    content[124:136] = b"%011o\0" % size
    seal(content, 0)
    found = contents(bytes(content))
    rest = [
        ("two", "file", "complete", parts["two"]),
        ("three", "file", "complete", parts["three"]),
        ("four", "file", "complete", b"4"),
    ]
    assert found[-3:] == rest
    assert found[0][:3] == ("one", "file", "damaged")
    assert found[0][3].startswith(parts["one"])
    assert len(found) == 4


ABSURD = [b"\x80" + b"\xff" * 11, b"\x80\0\0\0\x40" + bytes(7), b"\xff" * 12, b"\xff" + bytes(11)]


@pytest.mark.parametrize("field", ABSURD)
def test_absurd_sizes_are_harmless(field):
    content = bytearray(sample())
    at = header_of(content, "dir/b.bin")
    content[at + 124 : at + 136] = field
    seal(content, at)
    for source in (bytes(content), UnknownSizeData(bytes(content))):
        found = contents(source)
        assert [name for name, *_ in found][-3:] == ["c", "d", "e" * 120]
        assert any(PARTS["dir/b.bin"] in data for *_, data in found)


def test_an_archive_in_an_archive_is_one_member():
    inner = sample()
    content = archive([("in.tar", inner), ("next", b"n"), ("last", b"l")])
    assert [name for name, *_ in contents(content)] == ["in.tar", "next", "last"]
    # The header behind it is destroyed, or the archive is cut in it: it is still no list of members.
    at = content.index(b"next")
    broken = contents(content[:at] + noise(BLOCK) + content[at + BLOCK :])
    assert [name for name, *_ in broken] == ["in.tar", f"gap {at}", "last"]
    assert broken[0][3] == inner
    for size in (6_000, 512 + len(inner) - 200):  # the latter in the zeros that end it
        cut = contents(content[:size])
        assert [(name, status) for name, _, status, _ in cut] == [("in.tar", "truncated")]


def test_zeros_in_the_middle_are_not_the_end():
    one, two = sample(), archive([("z", b"zz")])
    assert [name for name, *_ in contents(one[:-512] + two)] == [*PARTS, "z"]


def test_one_block_of_zeros_is_no_end_that_something_may_follow():
    content = archive([("a", b"content")])[:1024]
    for zeros, status, severity in (
        (0, Status.DAMAGED, Severity.ERROR),
        (1, Status.DAMAGED, Severity.ERROR),
        (2, Status.COMPLETE, Severity.WARNING),
    ):
        with opened(content + bytes(512 * zeros) + noise(1024)) as extraction:
            assert extraction.status is status
            assert severity in {finding.severity for finding in extraction.check()}


def test_a_gap_in_the_padding_costs_no_content():
    content = archive([("a", b"content"), ("b", b"more")])
    for data in (GappyData(content, [(512 + 7, 505)]), Holed(content, 512 + 7, 1024, 505)):
        with opened(data) as extraction:
            found = [member for member in extraction.result.parser.files() if member.kind == "file"]
            assert [(member.name, member.status) for member in found] == [
                ("a", Status.COMPLETE),
                ("b", Status.COMPLETE),
            ]
            assert read(extraction, found[0])[0] == b"content"
    with opened(GappyData(content, [(512 + 6, 1)])) as extraction:
        assert [member.status for member in extraction.result.parser.files()] == [Status.DAMAGED, Status.COMPLETE]


def test_what_follows_the_end_is_shown():
    found = contents(sample() + b"somebody else's bytes" * 50)
    assert found[-1][1] == "gap"
    with opened(sample() + b"somebody else's bytes" * 50) as extraction:
        assert [finding.severity for finding in extraction.check()][:1] == [Severity.WARNING]
        assert extraction.status is Status.COMPLETE


@pytest.mark.parametrize("shift", [1, 100, 511, 513, 700])
def test_bytes_that_are_gone_shift_what_follows(shift):
    content = sample()
    at = header_of(content, "dir/b.bin") + BLOCK + 1_000
    found = contents(content[:at] + content[at + shift :])
    complete = {name: data for name, _, status, data in found if status == "complete"}
    assert {name: complete.get(name) for name in ("a.txt", "c", "d", "e" * 120)} == {
        name: PARTS[name] for name in ("a.txt", "c", "d", "e" * 120)
    }
    assert found[1][2] == "damaged"


@pytest.mark.parametrize("shift", [1, 100, 511, 513, 2_000])
def test_bytes_that_came_in_shift_what_follows(shift):
    content = sample()
    at = header_of(content, "dir/b.bin") + BLOCK + 1_000
    found = contents(content[:at] + noise(shift, 3) + content[at:])
    complete = {name: data for name, _, status, data in found if status == "complete"}
    assert {name: complete.get(name) for name in ("a.txt", "c", "d", "e" * 120)} == {
        name: PARTS[name] for name in ("a.txt", "c", "d", "e" * 120)
    }
    assert any(status == "damaged" for _, _, status, _ in found)


# -- gaps ------------------------------------------------------------------------------------------------------------


class Holed(FakeData):
    """Bytes of which a stretch ``[first, last)`` is lost; the gap says that ``said`` bytes are missing."""

    def __init__(self, content, first, last, said, *more):
        pieces, gaps, at = [], [], 0
        for begin, end, length in ((first, last, said), *more):
            pieces += [content[at:begin], bytes(length)]
            gaps.append(Gap(sum(map(len, pieces)) - length, length, exact=False))
            at = end
        super().__init__(b"".join((*pieces, content[at:])))
        self.gaps = tuple(gaps)


def test_exact_gaps_show_through():
    content = sample()
    at = header_of(content, "dir/b.bin") + BLOCK + 1_000
    found = contents(GappyData(content, [(at, 100)]))
    assert [(name, status) for name, _, status, _ in found] == [
        (name, "damaged" if name == "dir/b.bin" else "complete") for name in PARTS
    ]
    wanted = bytearray(PARTS["dir/b.bin"])
    wanted[1_000:1_100] = bytes(100)
    assert found[1][3] == wanted


@pytest.mark.parametrize("length", [1, 3, 8, 30, 60])
def test_unknown_bytes_in_a_header(length):
    content = sample()
    header = header_of(content, "dir/b.bin")
    for at in range(0, BLOCK - length, 5):
        found = contents(GappyData(content, [(header + at, length)]))
        complete = {name: data for name, _, status, data in found if status == "complete"}
        for name in ("a.txt", "c", "d", "e" * 120):
            assert complete[name] == PARTS[name], at
        assert any(PARTS["dir/b.bin"] in data for *_, data in found), at
        if at + length < 9 and length > 1:
            assert found[1][0] == "dir/b.bin"[:at] + "?" * length + "dir/b.bin"[at + length :]
        if "dir/b.bin" in complete:
            assert complete["dir/b.bin"] == PARTS["dir/b.bin"]


@rows("lost", [1, 100, 1_000, 1_999])
@rows("said", [0.5, 1, 2])
def test_a_gap_of_unknown_length_in_a_member(lost, said):
    """The size of the member, and the header behind it, tell how many bytes are lost."""
    content = sample()
    at = header_of(content, "dir/b.bin") + BLOCK + 900
    data = Holed(content, at, at + lost, int(lost * said) + 1)
    with opened(data) as extraction:
        members = list(extraction.result.parser.files())
        assert [member.name for member in members] == [*PARTS]
        assert [member.status.value for member in members] == ["complete", "damaged", *["complete"] * 3]
        inside, start, end = extraction.result.parser.content(members[1])
        assert (start, end, inside.size) == (0, 3_000, 3_000)
        found, unknown = inside.read_known(0, 3_000)
        assert unknown == [(900, lost)]
        wanted = bytearray(PARTS["dir/b.bin"])
        wanted[900 : 900 + lost] = bytes(lost)
        assert found == wanted
        assert [read(extraction, member)[0] for member in members[2:]] == [b"", PARTS["d"], b"long"]
        assert [seen(node.note) for node in extraction.root.children()] == [seen(member) for member in members]


def test_two_gaps_of_unknown_length_in_a_member():
    content = archive([("big", noise(50_000)), ("next", b"n")])
    data = Holed(content, 10_000, 13_000, 2_500, (30_000, 34_000, 4_500))
    with opened(data) as extraction:
        first, second = extraction.result.parser.files()
        inside, _, _ = extraction.result.parser.content(first)
        assert inside.size == 50_000
        found, unknown = inside.read_known(0, 50_000)
        assert [at for at, _ in unknown] == [10_000 - BLOCK, 29_488 + unknown[0][1] - 3_000]
        assert sum(length for _, length in unknown) == 7_000
        assert not any(gap.exact for gap in inside.gaps)
        assert found[33_488:] == noise(50_000)[33_488:]
        assert (second.name, second.status) == ("next", Status.COMPLETE)


def test_a_gap_that_takes_headers_with_it():
    content = archive([("one", noise(9_000)), ("two", noise(40_000, 2)), ("three", b"3" * 100), ("four", b"4")])
    two = content.index(b"two\0")
    data = Holed(content, 4_000, two + 1_500, two - 2_500)
    found = contents(data)
    names = [name for name, *_ in found]
    assert names[0] == "one"
    assert names[1].startswith("gap ")
    assert names[2:] == ["three", "four"]
    assert found[0][2] == "damaged"
    assert found[0][3] == noise(9_000)[: 4_000 - BLOCK]
    assert found[1][3].startswith(noise(40_000, 2)[988:])


def test_the_tail_of_another_member_is_not_taken():
    """Where the padding of the size is not zeros, what lies before the next header is the tail of another member."""
    content = archive([("one", noise(30_000)), ("two", noise(17 * BLOCK, 2)), ("three", b"3")])
    three = content.index(b"three\0")
    found = contents(Holed(content, 5_000, three - 2_000, three - 7_000))
    assert [name for name, *_ in found][::2] == ["one", "three"]
    assert found[0][3] == noise(30_000)[: 5_000 - BLOCK]
    assert found[1][3] == noise(17 * BLOCK, 2)[-2_000:]


def test_headers_without_magic_are_found_on_the_grid():
    content = bytearray(sample("ustar"))
    for member in files(bytes(content)):
        at = member.start - BLOCK
        content[at + 257 : at + BLOCK] = bytes(255)
        seal(content, at)
    at = header_of(content, "dir/b.bin")
    content[at : at + BLOCK] = noise(BLOCK)
    found = contents(bytes(content))
    assert [(name, status) for name, _, status, _ in found][:4] == [
        ("a.txt", "complete"),
        (f"gap {at}", "damaged"),
        ("c", "complete"),
        ("d", "complete"),
    ]


@pytest.mark.parametrize("said", [1, 512, 700])
def test_a_header_in_a_gap_of_unknown_length(said):
    content = sample()
    at = header_of(content, "dir/b.bin")
    for first, last in ((at, at + BLOCK), (at - 5, at + 700), (at + 100, at + 300), (at + 511, at + 513)):
        found = contents(Holed(content, first, last, said))
        complete = {name: data for name, _, status, data in found if status == "complete"}
        assert {name: complete.get(name) for name in ("c", "d", "e" * 120)} == {
            name: PARTS[name] for name in ("c", "d", "e" * 120)
        }, (first - at, last - at)
        assert found[0][0] == "a.txt"
        assert found[0][3] == PARTS["a.txt"]
        assert any(PARTS["dir/b.bin"][max(0, last - at - BLOCK) :] in data for *_, data in found)


def test_a_gap_behind_which_no_header_is_left():
    content = archive([("one", b"1"), ("two", noise(9_000))])
    data = Holed(content, 4_000, 5_000, 1_000)
    first, second = contents(data)
    body = noise(9_000)
    start = 3 * BLOCK
    assert first[3] == b"1"
    assert second[:3] == ("two", "file", "damaged")
    assert second[3] == body[: 4_000 - start] + body[5_000 - start :]


def test_a_gap_without_end():
    content = sample()
    at = header_of(content, "dir/b.bin") + BLOCK + 1_000
    found = contents(GappyData(content, [(at, None)]))
    assert [(name, status) for name, _, status, _ in found] == [("a.txt", "complete"), ("dir/b.bin", "truncated")]
    assert found[1][3] == PARTS["dir/b.bin"][:1_000]


def test_gaps_everywhere_are_survived():
    content = sample("pax")
    for exact in (True, False):
        for start in range(0, len(content), 173):
            for length in (1, 200, 3_000):
                data = GappyData(content, [])
                data.gaps = (Gap(start, min(length, len(content) - start), exact),)
                try:
                    for member in files(data):
                        assert member.end >= member.start >= 0
                    contents(data)
                except PparseError as error:
                    pytest.fail(f"{start} {length} {exact}: {error!r}")


def test_a_sparse_map_that_contradicts_itself():
    from pparse.parsers.tar.sparse import SparseMap, old_map

    header = bytearray(info("s", 1024, b"S").tobuf(1))
    pairs = [(0, 512), (4_096, 512), (1_000, 10), (8_192, 0)]
    for number, (offset, length) in enumerate(pairs):
        header[386 + 24 * number : 410 + 24 * number] = b"%011o\0%011o\0" % (offset, length)
    header[483:495] = b"%011o\0" % 8_192
    seal(header, 0)
    content = bytes(header) + b"a" * 512 + b"b" * 512 + archive([("next", b"n")])
    found = contents(content)
    assert [(name, status) for name, _, status, _ in found] == [("s", "damaged"), ("next", "complete")]
    assert found[0][3] == b"a" * 512 + bytes(3_584) + b"b" * 512  # what the map says no more of is lost, not zeros
    map, more = old_map(bytes(header))
    assert not more
    map.check(1024)
    assert (list(map.pairs), map.problem) == ([0, 512, 4_096, 512], "its sparse map is not in ascending order")
    for bad, word in (([0, 1 << 62], "beyond"), ([0, 10, 20, 30], "more bytes than"), ([5, 5, 7], "middle")):
        from array import array

        map = SparseMap(array("q", bad), 100)
        map.check(20)
        assert word in map.problem


def with_a_map_in_two_blocks():
    """A sparse member of 1,024 stored bytes whose map goes on in a block behind its header, and a member after it."""
    header = bytearray(info("s", 1024, b"S").tobuf(1))
    lengths = (256, 256, 256, 128)
    for number, length in enumerate(lengths):
        header[386 + 24 * number : 410 + 24 * number] = b"%011o\0%011o\0" % (4096 * number, length)
    header[482] = 1
    header[483:495] = b"%011o\0" % 16_512
    seal(header, 0)
    more = (b"%011o\0%011o\0" % (16_384, 128)).ljust(BLOCK, b"\0")
    return bytes(header) + more + b"a" * 1024 + archive([("next", b"n")])


@pytest.mark.parametrize("size", [BLOCK, 700, 2 * BLOCK - 1])
def test_a_sparse_map_that_is_cut_in_its_second_block_ends_with_the_file(size):
    content = with_a_map_in_two_blocks()
    assert [status for _, _, status, _ in contents(content)] == ["complete", "complete"]
    (member,) = files(content[:size])
    assert (member.status, member.start, member.end) == (Status.TRUNCATED, BLOCK, size)
    assert (member.finding.offset, member.finding.length or 0) == (BLOCK, size - BLOCK)


@pytest.mark.parametrize(("start", "length"), [(600, 50), (BLOCK, BLOCK), (2 * BLOCK - 1, 1)])
def test_a_sparse_map_whose_second_block_is_lost_moves_no_data(start, length):
    member, following = files(GappyData(with_a_map_in_two_blocks(), [(start, length)]))
    assert (member.status, member.start, member.end) == (Status.DAMAGED, 2 * BLOCK, 4 * BLOCK)
    assert member.finding.reason == "its sparse map is lost or truncated"
    assert (following.name, following.status) == ("next", Status.COMPLETE)


def test_hostile_lengths_cost_nothing():
    entry = info("L", (1 << 33) - 1, b"L").tobuf(1)
    with opened(entry + b"name" + bytes(508) + sample()) as extraction:
        assert [member.name for member in extraction.result.parser.files()][-4:] == [*PARTS][-4:]
        assert extraction.session.budget.peak < 4 << 20
    many = b"".join(info("x", 0, b"x").tobuf(0) for _ in range(3_000)) + sample()
    assert [member.name for member in files(many)] == [*PARTS]


@rows("size", [30_000, 512 * 40])
@rows("place", [1, 100, 200, 300])
@rows("change", ["insert", "remove"])
def test_damage_to_a_header_that_shifts_what_follows_leaves_the_member_before_it_whole(size, place, change) -> None:
    content = bytes(number % 251 + 1 for number in range(size))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("one", "two", "three"):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(content))
    whole = out.getvalue()
    at = 512 + size + -size % 512 + place
    damaged = whole[:at] + (b"xy" + whole[at:] if change == "insert" else whole[at + 2 :])
    with pparse.open(damaged, format="tar") as document:
        found = {member.name: member.status for member in document.parse().parser.members() if member.kind == "file"}
        assert found["one"] is found["three"] is Status.COMPLETE
        assert document.get("one") == content


@pytest.mark.parametrize("change", ["insert", "remove"])
def test_bytes_that_came_into_a_member_or_went_are_told_by_its_padding(change) -> None:
    content = bytes(number % 251 + 1 for number in range(30_000))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("one", "two"):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    whole = out.getvalue()
    damaged = whole[:5000] + (b"xy" + whole[5000:] if change == "insert" else whole[5002:])
    with pparse.open(damaged, format="tar") as document:
        found = {member.name: member.status for member in document.parse().parser.members() if member.kind == "file"}
        assert found == {"one": Status.DAMAGED, "two": Status.COMPLETE}


@pytest.mark.parametrize("start", [9_800, 10_100, 10_239])
def test_a_gap_of_unknown_length_at_the_end_ends_the_walk(start) -> None:
    content = sample("pax")
    data = GappyData(content, [])
    data.gaps = (Gap(start, len(content) - start, False),)
    for count, member in enumerate(files(data)):
        assert count < 50, "it goes round in circles"
        assert member.end >= member.start
