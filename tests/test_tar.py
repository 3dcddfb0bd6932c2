from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import PathError
from pparse.findings import Severity, Status
from pparse.parsers.tar.headers import BLOCK
from pparse.parsers.tar.parser import TarParser, TarWalker
from pparse.testing.fakes import FakeData, RestartData, UnknownSizeData
from pparse.tree.parser import Confidence
from tests import sweep
from tests.recognising import confidence
from tests.rows import rows

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}


def opened(source, **more):
    return pparse.open(source, parsers=[TarParser], format="tar", **more)


def info(name, size=0, kind=tarfile.REGTYPE, **more):
    made = tarfile.TarInfo(name)
    made.size, made.type, made.mtime, made.mode = size, kind, 1_700_000_000, 0o640
    for key, value in more.items():
        setattr(made, key, value)
    return made


def archive(members, format="gnu", **more):
    """Return a tar archive of ``[(name or TarInfo, content)]``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=FORMATS[format], **more) as made:
        for what, content in members:
            entry = what if isinstance(what, tarfile.TarInfo) else info(what)
            if entry.isreg():
                entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def read(extraction, member):
    """Return the bytes of a member that are there, and its verdict."""
    chunks = []
    verdict = extraction.result.parser.verify(member, lambda at, chunk, unknown: chunks.append(chunk))
    return b"".join(chunks), verdict


def files(source):
    with opened(source) as extraction:
        return list(extraction.result.parser.files())


def contents(source):
    """Return what there is of each member: ``[(name, kind, status, bytes)]``; both ways of listing must agree."""
    with opened(source) as extraction:
        found = []
        members = list(extraction.result.parser.files())
        for member in members:
            content, verdict = read(extraction, member)
            found.append((member.name, member.kind, verdict.status.value, content))
        nodes = [node.note for node in extraction.root.children()]
        assert [seen(member) for member in nodes] == [seen(member) for member in members]
        return found


def seen(member):
    pieces = None if member.pieces is None else tuple((part.start, part.end) for part in member.pieces)
    return (
        member.name,
        member.raw_name,
        member.kind,
        member.at,
        member.start,
        member.end,
        member.size,
        member.mtime,
        member.mode,
        member.link,
        member.status,
        pieces,
        str(member.finding),
    )


def same_as_tarfile(content, **more):
    with tarfile.open(fileobj=io.BytesIO(content), **more) as wanted:
        referee = wanted.getmembers()
        data = [wanted.extractfile(member).read() if member.isreg() else b"" for member in referee]
    with opened(content) as extraction:
        members = list(extraction.result.parser.files())
        assert [member.name.rstrip("/") for member in members] == [member.name.rstrip("/") for member in referee]
        for mine, his, bytes_of in zip(members, referee, data, strict=True):
            assert mine.kind == KINDS.get(his.type, "file") or his.issparse()
            assert mine.mode == his.mode & 0o7777
            assert mine.mtime == his.mtime
            assert mine.status is Status.COMPLETE
            if mine.kind in ("symlink", "hardlink"):
                assert mine.link == his.linkname
            found, verdict = read(extraction, mine)
            assert verdict.status is Status.COMPLETE
            assert found == bytes_of
            assert mine.size == his.size or mine.kind == "hardlink"
        assert [seen(node.note) for node in extraction.root.children()] == [seen(member) for member in members]
        assert extraction.status is Status.COMPLETE
        assert not [finding for finding in extraction.check() if finding.severity is Severity.ERROR]


# -- what is whole ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_names_of_every_length(format):
    members = []
    for length in range(1, 301):
        name = ("d" * 60 + "/" + "e" * 39 + "/" + "n" * 300)[:length].rstrip("/") + str(length)
        if format != "ustar" or len(name) <= 100 or length in range(160, 190):
            members.append((name, b"%d" % length))
    same_as_tarfile(archive(members, format))


@pytest.mark.parametrize("format", FORMATS)
def test_kinds_of_members_are_told_with_their_links(format):
    members = [
        (info("folder/", kind=tarfile.DIRTYPE), b""),
        (info("folder/file"), b"content"),
        (info("soft", kind=tarfile.SYMTYPE, linkname="folder/file"), b""),
        (info("hard", kind=tarfile.LNKTYPE, linkname="folder/file"), b""),
        (info("fifo", kind=tarfile.FIFOTYPE), b""),
        (info("null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3), b""),
        (info("disk", kind=tarfile.BLKTYPE, devmajor=8, devminor=0), b""),
        (info("far", kind=tarfile.SYMTYPE, linkname="x/" * (20 if format == "ustar" else 200)), b""),
        (info("odd", kind=b"Q"), b""),
        (info("setuid", mode=0o4755), b"#!"),
    ]
    same_as_tarfile(archive(members, format))


ODD_NAMES = ["日本語/ファイル", "é" * 45, "naïve.txt", "raw\udcff\udc80name", "tab\tnew\nline", " "]


@rows("format", FORMATS)
@rows("name", ODD_NAMES)
def test_names_that_are_not_plain(format, name):
    more = {} if format == "pax" and "\udcff" in name else {"errors": "surrogateescape", "encoding": "utf-8"}
    content = archive([(name, b"x"), (info("l", kind=tarfile.SYMTYPE, linkname=name), b"")], format, **more)
    same_as_tarfile(content)
    member = files(content)[0]
    assert member.raw_name.decode("utf-8", "surrogateescape") == member.name == name


def test_numbers_beyond_octal():
    entry = info("old", mtime=-3_600, uid=1 << 40)
    same_as_tarfile(archive([(entry, b"x"), (info("future", mtime=1 << 35), b"y")], "gnu"))
    huge = info("huge", size=(1 << 33) + 5).tobuf(tarfile.GNU_FORMAT)
    member = files(FakeHuge(huge, (1 << 33) + 5))[0]
    assert (member.size, member.status) == ((1 << 33) + 5, Status.COMPLETE)


class FakeHuge(FakeData):
    """A header, and zeros without end as its content."""

    def __init__(self, header, size):
        super().__init__(header)
        self.size = BLOCK + size + (-size % BLOCK) + 1024

    def _pread(self, offset, length):
        self.asked.append((offset, length))
        return self.content[offset : offset + length].ljust(length, b"\0")


def test_large_members_are_jumped_over():
    header = info("huge", size=1 << 40).tobuf(tarfile.GNU_FORMAT)
    data = FakeHuge(header, 1 << 40)
    with opened(data) as extraction:
        assert [member.size for member in extraction.result.parser.members()] == [1 << 40]
        assert sum(length for _, length in data.asked) < 64 << 10
    assert len(files(UnknownSizeData(archive([("a", b"x" * 100_000), ("b", b"y")])))) == 2


def test_pax_headers_say_more_than_the_header():
    headers = {"mtime": "1700000000.25", "comment": "x", "SCHILY.xattr.user.a": "1"}
    content = archive([(info("n", pax_headers=headers), b"body"), ("m", b"")], "pax")
    assert files(content)[0].mtime == 1_700_000_000.25
    same_as_tarfile(content)


def test_global_pax_headers():
    content = archive(
        [("a", b"1"), ("b", b"22"), ("c", b"333")], "pax", pax_headers={"mtime": "5.5", "comment": "of a commit"}
    )
    same_as_tarfile(content)
    with opened(content) as extraction:
        assert [member.mtime for member in extraction.result.parser.files()] == [5.5, 5.5, 5.5]
        assert extraction.root.child(1).note.mtime == 5.5


def test_global_pax_records_add_up_and_the_later_ones_win():
    content = archive([("a", b"")], "pax", pax_headers={"mtime": "5.5", "path": "named"})
    content = content[: content.rstrip(b"\0").rfind(b"ustar") // 512 * 512 + 512]
    content += archive([("b", b"")], "pax", pax_headers={"mtime": "7.5"})
    assert [(member.name, member.mtime) for member in files(content)] == [("named", 5.5), ("named", 7.5)]


def test_a_slash_behind_a_name_makes_a_folder_of_the_oldest_kind_of_file_only():
    """As tarfile has it: type NUL is of a time when there was none for folders."""
    for kind, found in ((b"\0", "folder"), (b"0", "file")):
        content = bytearray(archive([("name", b"")], "ustar"))
        content[:5], content[156:157] = b"name/", kind
        seal(content, 0)
        assert [member.kind for member in files(bytes(content))] == [found]
        with tarfile.open(fileobj=io.BytesIO(content)) as made:
            assert [member.isdir() for member in made] == [found == "folder"]


def test_an_archive_from_before_ustar_is_read():
    out = bytearray(archive([("old", b"content"), ("folder/", b"")], "ustar"))
    for at in (0, 1024):
        out[at + 156] = 0
        out[at + 257 : at + 512] = bytes(255)
        seal(out, at)
    same_as_tarfile(bytes(out))
    assert [member.kind for member in files(bytes(out))] == ["file", "folder"]
    assert confidence(TarParser, io_range(out)) is Confidence.LIKELY


def seal(content, at, total=None):
    """Write the checksum of the header at ``at``."""
    content[at + 148 : at + 156] = b" " * 8
    total = sum(content[at : at + BLOCK]) if total is None else total
    content[at + 148 : at + 156] = b"%06o\0 " % total


def io_range(content):
    return opened(bytes(content)).reader


def test_a_member_without_a_type_whose_name_ends_in_a_slash_is_a_folder():
    """As tar of the seventh edition of Unix wrote it, and as every tar reads it."""
    content = bytearray(archive([("one", b"1"), (info("dir/"), b""), ("two", b"2")]))
    for at in (0, 2 * BLOCK, 3 * BLOCK):
        content[at + 156] = 0
        seal(content, at)
    found = [(name, kind, status) for name, kind, status, _ in contents(bytes(content))]
    assert found == [("one", "file", "complete"), ("dir/", "folder", "complete"), ("two", "file", "complete")]


def test_headers_of_the_usual_form_are_passed_without_the_general_code(monkeypatch):
    steps = []
    step = TarWalker.step
    monkeypatch.setattr(TarWalker, "step", lambda self, pos, **more: steps.append(pos) or step(self, pos, **more))
    assert len(files(archive([(f"{number}", b"x") for number in range(300)]))) == 300
    assert len(steps) < 5


def test_signed_checksums_of_old_writers():
    content = bytearray(archive([("é", b"1")], "gnu"))
    content[148:156] = b" " * 8
    seal(content, 0, sum(byte - 256 * (byte > 127) for byte in content[:BLOCK]))
    same_as_tarfile(bytes(content))


def test_concatenated_archives_are_one():
    one, two = archive([("a", b"1")]), archive([("b", b"2"), ("c", b"3")], "pax")
    assert contents(one + two) == [
        ("a", "file", "complete", b"1"),
        ("b", "file", "complete", b"2"),
        ("c", "file", "complete", b"3"),
    ]


def test_zeros_before_the_first_header():
    content = bytes(5 * BLOCK) + archive([("a", b"1")])
    assert contents(content) == [("a", "file", "complete", b"1")]
    with pparse.open(content, parsers=[TarParser]) as extraction:
        assert extraction.format == "tar"


def test_an_empty_archive_and_ends_without_marks():
    for content, codes in (
        (bytes(1024), []),
        (bytes(10_240), []),
        (b"", ["empty"]),
        (archive([("a", b"1")])[:1024], ["no-end-mark"]),
        (archive([("a", b"1")])[:1536], ["no-end-mark"]),
        (archive([("a", b"1")])[:2000], ["no-end-mark"]),
    ):
        with opened(content) as extraction:
            assert extraction.status is (Status.COMPLETE if content else Status.TRUNCATED)
            assert [finding.code for finding in extraction.check()] == codes, len(content)


def test_equal_names_are_told_apart():
    with opened(archive([("a", b"1"), ("a", b"22"), ("b/", b"")])) as extraction:
        parser = extraction.result.parser
        assert [member.name for member in parser.members()] == ["a", "a#2", "b/"]
        assert parser.enter("a#2").reader.read(9) == b"22"
        assert parser.enter("b").size == 0
        with pytest.raises(PathError):
            parser.enter("c")
        assert extraction.root.child(1).load() == b"22"


def test_links_hold_nothing_and_folders_may_claim_a_size():
    content = bytearray(archive([(info("h", kind=tarfile.LNKTYPE, linkname="a"), b""), ("a", b"1")]))
    content[124:136] = b"00000001750\0"
    seal(content, 0)
    assert [(name, data) for name, _, _, data in contents(bytes(content))] == [("h", b""), ("a", b"1")]


def test_decoded_data_are_read_forward():
    sizes = (10, 5_000, 60_000, 150_000)
    members = [("n" * (120 if number % 3 else 9) + str(number), bytes(sizes[number % 4])) for number in range(60)]
    data = RestartData(archive(members))
    with opened(data) as extraction:
        assert len(list(extraction.result.parser.members())) == 60
        assert data.restarts == 0


def test_a_sound_header_is_certain_and_a_damaged_one_likely():
    sample = archive([("a", b"1")])
    assert confidence(TarParser, io_range(sample)) is Confidence.CERTAIN
    assert confidence(TarParser, io_range(b"X" + sample[1:])) is Confidence.LIKELY
    for zeros in (512, 1024, 60 << 10):
        assert confidence(TarParser, io_range(bytes(zeros) + sample)) is Confidence.LIKELY
        assert confidence(TarParser, io_range(bytes(zeros) + b"X" + sample[1:])) is Confidence.LIKELY
    broken = b"X" + sample[1:512]
    assert TarParser.match_further(io_range(broken + sample[:512]), thorough=True) is Confidence.LIKELY
    assert TarParser.match_further(io_range(broken + sample[:512]), thorough=False) is Confidence.NO
    assert TarParser.match_further(io_range(broken + sample[:511]), thorough=True) is Confidence.NO
    for other in (b"", b"x", bytes(4096), b"ustar" * 400, os.urandom(4096), b"text\n" * 400):
        assert confidence(TarParser, io_range(other)) is Confidence.NO


@settings(max_examples=sweep.examples(60))
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=140),
            st.integers(0, 3_000),
        ),
        max_size=8,
    ),
    st.sampled_from(["gnu", "pax"]),
)
def test_any_names_and_sizes(members, format):
    same_as_tarfile(archive([(name.rstrip("/") or "x", bytes([size % 256]) * size) for name, size in members], format))


# -- sparse files ----------------------------------------------------------------------------------------------------

GNU_TAR = shutil.which("tar")
PATTERNS = {
    "one": [(1 << 20, b"x" * 4_096)],
    "many": [(number << 17, bytes([number + 1]) * 4_096) for number in range(40)],
    "front": [(0, b"front" * 1_000), (1 << 19, b"")],
    "hole": [(1 << 20, b"")],
}


def sparse_file(path, pattern):
    with open(path, "wb") as file:
        for at, content in pattern:
            file.seek(at)
            file.write(content)
            file.truncate(at + len(content))
    return path.read_bytes()


@pytest.mark.skipif(GNU_TAR is None, reason="needs GNU tar")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("version", ["gnu", "0.0", "0.1", "1.0"])
def test_sparse_files_of_gnu_tar(tmp_path, version, pattern):
    wanted = sparse_file(tmp_path / "image", PATTERNS[pattern])
    (tmp_path / "after").write_bytes(b"after")
    how = ["--format=gnu"] if version == "gnu" else ["--format=pax", f"--sparse-version={version}"]
    command = [GNU_TAR, *how, "--sparse", "--hole-detection=raw", "-cf", "made.tar", "image", "after"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this tar writes no sparse files")
    content = (tmp_path / "made.tar").read_bytes()
    assert len(content) < len(wanted)
    found = contents(content)
    assert [(name, status) for name, _, status, _ in found] == [("image", "complete"), ("after", "complete")]
    assert found[0][3] == wanted
    assert found[1][3] == b"after"
    with opened(content) as extraction:
        inside = extraction.result.parser.enter("image")
        middle = len(wanted) // 2
        assert inside.data.pread(middle, 9_000) == wanted[middle : middle + 9_000]
    # What is cut of it is not made up.
    with opened(content[: len(content) // 3]) as extraction:
        first = next(extraction.result.parser.files())
        data, verdict = read(extraction, first)
        assert verdict.status is not Status.COMPLETE or data == wanted


@pytest.mark.skipif(GNU_TAR is None, reason="needs GNU tar")
@pytest.mark.parametrize("format", ["v7", "ustar", "oldgnu", "gnu", "pax"])
def test_archives_of_gnu_tar(tmp_path, format):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ("n" * (60 if format in ("v7", "ustar") else 200))).write_bytes(b"content" * 999)
    (folder / "empty").touch()
    os.symlink("empty", folder / "soft")
    os.link(folder / "empty", folder / "twice")
    subprocess.run([GNU_TAR, f"--format={format}", "-cf", "made.tar", "folder"], cwd=tmp_path, check=True)
    same_as_tarfile((tmp_path / "made.tar").read_bytes())


@pytest.mark.skipif(GNU_TAR is None, reason="needs GNU tar")
def test_archives_of_dumps_labels_and_volumes(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"x" * 30_000)
    subprocess.run([GNU_TAR, "-cf", "1.tar", "-V", "label", "-g", "snap", "d"], cwd=tmp_path, check=True)
    kinds = {name: kind for name, kind, _, _ in contents((tmp_path / "1.tar").read_bytes())}
    assert (kinds["d/"], kinds["d/a"]) == ("folder", "file")
    assert "other" in kinds.values()
    command = [GNU_TAR, "-cML", "20", "-f", "2.tar", "-f", "3.tar", "-f", "4.tar", "d"]
    subprocess.run(command, cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    first, second = (contents((tmp_path / name).read_bytes()) for name in ("2.tar", "3.tar"))
    assert first[-1][2] == second[0][2] == "truncated"
    joined = first[-1][3] + second[0][3]
    assert second[0][0] == "d/a"
    assert joined == b"x" * len(joined)
    assert len(joined) == 30_000


def test_the_root_opens_as_the_archive():
    content = archive([("a", b"text")])
    with opened(content) as extraction:
        assert extraction.root.open().read() == content


def test_a_document_whose_member_is_cut_where_it_could_end(run, tmp_path):
    """A message may end behind any of its fields; that it is a member, and how long that is, says more."""
    content = archive([("m.binpb", b"\x0a\x03abc" * 400)])
    (tmp_path / "a.tar").write_bytes(content[: BLOCK + 500])
    for command in ("ls", "info", "check"):
        ran = run(command, f"{tmp_path / 'a.tar'}::m.binpb")
        assert (ran.code, "truncated" in ran.out) == (4, True)
