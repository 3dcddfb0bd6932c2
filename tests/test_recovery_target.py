"""The folder that is written to: it is not left, nothing in it is overwritten, and there is an end to it."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import random
import stat
import sys
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.errors import ClosedError, LimitError, OptionError, SourceError
from pparse.limits import GIB, MIB, Limits, MemoryBudget
from pparse.recovery import target as target_module
from pparse.recovery.folder_writer import ANCHORED, WORK_NAME, AnchoredPlaces, PathPlaces
from pparse.recovery.names import fold
from pparse.recovery.target import Expansion, Target, default_max_output
from pparse.writers.journal import HashTable
from tests import sweep

POSIX = pytest.mark.skipif(os.name == "nt", reason="rights and descriptors of POSIX")


@pytest.fixture(params=["anchored", "paths"])
def places(request, monkeypatch):
    """Both ways to write below a folder, the one for Windows, too."""
    if request.param == "anchored" and not ANCHORED:
        pytest.skip("names relative to an open folder are not to be had here")
    kind = AnchoredPlaces if request.param == "anchored" else PathPlaces
    monkeypatch.setattr(target_module, "places", kind)
    return kind


@pytest.fixture
def out(tmp_path, places):
    with Target(tmp_path / "out") as made:
        yield made


def put(target: Target, name: str, content: bytes = b"", **known) -> str:
    with target.create(name, **known) as file:
        file.write(content)
    return file.path


def tree(folder) -> dict[str, bytes | None]:
    """What is in a folder, but for what a target has not done yet."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if WORK_NAME in name.split("/"):
            continue
        assert not path.is_symlink(), name
        found[name] = None if path.is_dir() else path.read_bytes()
    return found


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


# -- the folder --------------------------------------------------------------------------------------------------------


def test_the_folder_is_made_and_must_be_empty(tmp_path, places):
    before = descriptors()
    with Target(tmp_path / "new" / "out") as target:
        assert put(target, "a", b"1") == "a"
    assert tree(tmp_path / "new") == {"out": None, "out/a": b"1"}
    with pytest.raises(OptionError, match=r"not empty.*exist_ok=True"):
        Target(tmp_path / "new" / "out")
    with Target(str(tmp_path / "new" / "out"), exist_ok=True) as target:
        assert put(target, "a", b"2") == "a~2"
    assert tree(tmp_path / "new" / "out") == {"a": b"1", "a~2": b"2"}
    (tmp_path / "empty").mkdir()
    Target(tmp_path / "empty").close()
    with pytest.raises(OptionError, match="not a folder"):
        Target(tmp_path / "new" / "out" / "a")
    with pytest.raises(SourceError, match="cannot write"):
        Target(tmp_path / "new" / "out" / "a" / "b")
    with pytest.raises(SourceError, match="cannot write"):
        Target("a\0b")
    assert descriptors() == before


def test_a_thread_makes_the_digest_of_what_was_written(tmp_path):
    pieces = [random.Random(1).randbytes(1 << 20), bytes(100), bytes(range(256)) * 1024]
    budget = MemoryBudget("2MiB")  # less than may wait
    with (
        Target(tmp_path / "one") as one,
        Target(tmp_path / "two", threads=2) as two,
        Target(tmp_path / "three", threads=2, budget=budget) as three,
    ):
        files = [target.create("a") for target in (one, two, three)]
        tables = budget.used
        buffer = bytearray(1 << 20)
        for number in range(20):
            piece = pieces[number % 3]
            buffer[: len(piece)] = piece
            for file in files:
                file.write(memoryview(buffer)[: len(piece)])  # which changes right after
                file.write_zeros(number << 12)
            if number == 10:  # somebody else needs all of it
                budget.charge(budget.limit - tables, "all").release()
        assert budget.peak > tables + (1 << 20)
        assert {file.sha256 for file in files} == {hashlib.sha256(b"".join(_all(pieces))).hexdigest()}
        assert budget.used == tables
        assert [thread.name[:13] for thread in threading.enumerate()].count("pparse-digest") == 2
        two.create("dropped").write(pieces[0])
    assert not any(thread.name.startswith("pparse") for thread in threading.enumerate())


def _all(pieces):
    for number in range(20):
        yield pieces[number % 3]
        yield bytes(number << 12)


def test_the_folder_itself_may_be_named_by_a_link(tmp_path, places):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Target(tmp_path / "link") as target:
        put(target, "a/b", b"1")
    assert tree(tmp_path / "real") == {"a": None, "a/b": b"1"}
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(OptionError, match="not a folder"):
        Target(tmp_path / "dangling")


def test_nothing_is_open_afterwards(tmp_path, places):
    before = descriptors()
    target = Target(tmp_path / "out")
    put(target, "a/b/c", b"1")
    target.make_folder("a/d")
    target.create("x/y").discard()
    dropped = target.create("dropped")
    dropped.write(b"not closed, so not whole")
    del dropped
    with pytest.raises(LimitError), target.create("z") as file:
        file.skip(1 << 60)
    target.close()
    target.close()
    assert descriptors() == before
    assert tree(tmp_path / "out") == {"a": None, "a/b": None, "a/b/c": b"1", "a/d": None, "x": None}
    assert not (tmp_path / "out" / WORK_NAME).exists()
    with pytest.raises(ClosedError):
        target.create("a")
    with pytest.raises(ClosedError):
        target.make_folder("a")


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../../evil",
        "..\\..\\evil",
        "/evil",
        "C:\\evil",
        "\\\\server\\share\\evil",
        "a/../../evil",
        "CON/evil",
        "\0",
        "..",
        "a\u202etxt.exe",
        "\udcff/\udcfe",
        "x" * 2_000_000,
        "../" * 700_000,
        "d/" * 1_000_000,
        "é" * 5000 + ".txt",
    ],
    ids=lambda name: ascii(name[:20]),
)
def test_hostile_names_stay_below(tmp_path, out, name):
    path = put(out, name, b"x")
    assert tree(tmp_path / "out")[path] == b"x"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert put(out, name, b"y") != path


def test_what_was_stored_is_told_where_it_differs(out):
    for name, raw, path, stored in (
        ("a/b", None, "a/b", None),
        ("./a//c", b"./a//c", "a/c", None),
        ("a/b", b"a/b", "a/b~2", "a/b"),
        ("../x", None, "x", "../x"),
        ("caf\ufffd", b"caf\xe9", "caf%E9", "caf\\xe9"),
        ("y" * 5000, None, "y" * 255, "y" * 4096 + "…"),
    ):
        with out.create(name, raw) as file:
            assert (file.path, file.raw_name) == (path, stored)


def test_a_name_that_is_taken_gets_a_number(tmp_path, out):
    names = ["a.txt", "a.txt", "A.TXT", "a~2.txt", "a.txt", "é", "e\u0301", "É", "b", "b"]
    paths = [put(out, name, str(at).encode()) for at, name in enumerate(names)]
    assert paths == ["a.txt", "a~2.txt", "A~3.TXT", "a~2~2.txt", "a~4.txt", "é", "e\u0301~2", "É~3", "b", "b~2"]
    assert sorted(tree(tmp_path / "out").values()) == [str(at).encode() for at in range(len(names))]


def test_a_folder_where_a_file_is_moves_with_all_its_members(tmp_path, out):
    assert put(out, "a", b"file") == "a"
    assert put(out, "a/b", b"1") == "a~2/b"
    assert put(out, "x", b"") == "x"
    assert put(out, "a/c/d", b"2") == "a~2/c/d"
    assert out.make_folder("a/") == "a~2"
    assert out.make_folder("a/e") == "a~2/e"
    assert put(out, "a~2", b"3") == "a~2~2"
    assert put(out, "A/b", b"4") == "A~3/b"
    assert put(out, "A/c", b"5") == "A~3/c"
    assert put(out, "a~2/b", b"6") == "a~2~3/b"  # another folder of the archive: the two are not mixed
    assert tree(tmp_path / "out")["a"] == b"file"


def test_a_file_where_a_folder_is_gets_a_number(out):
    assert put(out, "a/b") == "a/b"
    assert put(out, "a") == "a~2"
    assert put(out, "a/c") == "a/c"
    assert out.make_folder("v1.0") == "v1.0"
    assert put(out, "V1.0/x") == "V1.0~2/x"
    assert put(out, "v1.0/x") == "v1.0/x"


def test_a_folder_is_made_once(tmp_path, out):
    assert out.make_folder("a/b/") == "a/b"
    assert out.make_folder("a/b") == "a/b"
    assert out.make_folder("./") == out.make_folder("") == out.make_folder("/") == ""
    assert out.entries == 2
    assert tree(tmp_path / "out") == {"a": None, "a/b": None}


def test_the_name_of_the_report_is_kept_free(out):
    assert put(out, "RECOVERY.json") == "RECOVERY~2.json"
    assert put(out, "recovery.JSON/x") == "recovery.JSON~2/x"
    assert put(out, "a/RECOVERY.json") == "a/RECOVERY.json"
    out.close()
    with pytest.raises(ClosedError):
        out.atomic()


def test_many_members_of_one_name(out):
    paths = [put(out, "same.txt") for _ in range(300)]
    assert paths == ["same.txt", *(f"same~{number}.txt" for number in range(2, 301))]


def test_what_was_there_before_is_left_alone(tmp_path, places):
    folder = tmp_path / "out"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a").write_bytes(b"old")
    (folder / "docs" / "a~2").write_bytes(b"old, too")
    (folder / "link").symlink_to(tmp_path)
    with Target(folder, exist_ok=True) as target:
        assert put(target, "docs/a", b"new") == "docs/a~3"
        assert put(target, "link/x", b"new") == "link~2/x"
        assert put(target, "link/y", b"new") == "link~2/y"
        assert put(target, "link", b"new") == "link~3"
    assert (folder / "docs" / "a").read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out"]


NAMES = st.lists(
    st.lists(
        st.sampled_from(["a", "A", "b", "é", "e\u0301", "a~2", "..", "", "CON", "a.txt", "A.TXT"]), max_size=4
    ).map("/".join),
    max_size=25,
)


@settings(max_examples=sweep.examples(150))
@given(NAMES, st.sampled_from([AnchoredPlaces, PathPlaces]), st.randoms(use_true_random=False))
def test_every_member_is_there_under_a_name_of_its_own(tmp_path_factory, names, kind, source):
    if kind is AnchoredPlaces and not ANCHORED:
        return
    folder = tmp_path_factory.mktemp("many")
    members = [(name, source.random() < 0.2) for name in names]
    told = []
    for turn in ("1", "2"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target_module, "places", kind)
            with Target(folder / turn) as target:
                told.append(
                    [
                        target.make_folder(name) if is_folder else put(target, name, str(at).encode())
                        for at, (name, is_folder) in enumerate(members)
                    ]
                )
    assert told[0] == told[1]
    found = tree(folder / "1")
    assert len({"/".join(map(fold, path.split("/"))) for path in found}) == len(found)
    for at, ((_, is_folder), path) in enumerate(zip(members, told[0], strict=True)):
        assert path == "" or found[path] == (None if is_folder else str(at).encode())
    by_folder = {}  # members of one folder stay together, those of two are not mixed
    for (name, is_folder), path in zip(members, told[0], strict=True):
        parts = tuple(part for part in name.split("/") if part not in ("", ".."))
        if parts and not is_folder:
            assert by_folder.setdefault(parts[:-1], path.rpartition("/")[0]) == path.rpartition("/")[0]
    assert len(set(by_folder.values())) == len(by_folder)


@pytest.mark.skipif(not ANCHORED, reason="stands in for a file system")
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ])
@pytest.mark.parametrize("early", [True, False], ids=["looking", "naming"])
def test_a_file_system_that_takes_plain_names_only(tmp_path, monkeypatch, code, early):
    class Fussy(AnchoredPlaces):
        def check(self, name):
            if not name.isascii() or len(name) > 140:
                raise OSError(code, "not here", name)

        def enter(self, place, name):
            self.check(name)
            return super().enter(place, name)

        def make_folder(self, place, name):
            self.check(name)
            super().make_folder(place, name)

        def move(self, source, old, place, new, claiming):
            self.check(new)
            super().move(source, old, place, new, claiming)

        def look(self, place, name):
            if early:
                self.check(name)
            return super().look(place, name)

    monkeypatch.setattr(target_module, "places", Fussy)
    with Target(tmp_path / "out") as target:
        assert put(target, "é/ü.txt") == "_/_.txt"
        assert put(target, "é/ö.txt") == "_/_~2.txt"
        assert put(target, "ä/ö.txt") == "_~2/_.txt"
        assert put(target, "a" * 200 + ".bin") == "a" * 96 + ".bin"
        assert put(target, "é/x") == "_/x"


# -- links that somebody plants ----------------------------------------------------------------------------------------


def test_a_folder_replaced_by_a_link_is_not_entered(tmp_path, out):
    outside = tmp_path / "outside"
    outside.mkdir()
    assert put(out, "a/b/one") == "a/b/one"
    (tmp_path / "out" / "a" / "b").rename(tmp_path / "moved")
    (tmp_path / "out" / "a" / "b").symlink_to(outside)
    assert put(out, "a/b/two", b"2") == "a/b~2/two"
    assert put(out, "a/b/three", b"3") == "a/b~2/three"
    assert out.make_folder("a/b/four") == "a/b~2/four"
    assert list(outside.iterdir()) == []
    assert [entry.name for entry in (tmp_path / "moved").iterdir()] == ["one"]


@pytest.mark.parametrize("where", ["", "folder/"])
def test_a_link_under_the_name_of_a_file_is_not_written_through(tmp_path, out, where):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    out.make_folder("folder")
    (tmp_path / "out" / where / "a").symlink_to(victim)
    (tmp_path / "out" / where / "b").symlink_to(tmp_path / "missing")
    assert put(out, f"{where}a", b"x") == f"{where}a~2"
    assert put(out, f"{where}b", b"x") == f"{where}b~2"
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "missing").exists()


def test_what_took_the_place_of_a_file_is_not_discarded(tmp_path, out):
    file = out.create("a")
    file.write(b"mine")
    (temporary,) = (tmp_path / "out" / WORK_NAME).glob("*.partial")
    temporary.unlink()
    temporary.write_bytes(b"somebody else's")
    (tmp_path / "out" / "a").write_bytes(b"somebody else's, too")
    file.discard()
    assert tree(tmp_path / "out") == {"a": b"somebody else's, too"}
    assert temporary.read_bytes() == b"somebody else's"
    temporary.unlink()
    gone = out.create("b")
    (temporary,) = (tmp_path / "out" / WORK_NAME).glob("*.partial")
    temporary.unlink()
    gone.discard()


@POSIX
def test_a_pipe_in_the_way_does_not_stop_the_show(tmp_path, out):
    os.mkfifo(tmp_path / "out" / "a")
    os.mkfifo(tmp_path / "out" / "b")
    assert put(out, "a", b"x") == "a~2"
    assert put(out, "b/c", b"x") == "b~2/c"


# -- content -----------------------------------------------------------------------------------------------------------


def test_content_holes_and_their_hashes(tmp_path, out):
    source = random.Random(3)
    expected = bytearray()
    holes = 1000
    with out.create("a") as file:
        for _ in range(40):
            if source.random() < 0.5:
                piece = source.randbytes(source.choice((0, 1, 5000)))
                file.write(source.choice((bytes, bytearray, memoryview))(piece))
                expected += piece
            else:
                count = source.choice((0, 1, 300_000))
                file.skip(count)
                expected += bytes(count)
                holes += count
            assert file.bytes == len(expected)
        file.skip(1000)
        expected += bytes(1000)
    assert (tmp_path / "out" / "a").read_bytes() == expected
    assert file.sha256 == hashlib.sha256(expected).hexdigest()
    assert file.crc32 == zlib.crc32(expected)
    assert (file.bytes, out.bytes, out.hole_bytes) == (len(expected), len(expected) - holes, holes)
    assert (file.hole_bytes, out.entries) == (holes, 1)
    with pytest.raises(ClosedError):
        file.write(b"x")
    with pytest.raises(ClosedError):
        file.skip(1)
    file.close()
    file.discard()
    assert out.bytes == len(expected) - holes
    with out.create("empty") as empty:
        pass
    assert empty.sha256 == hashlib.sha256().hexdigest()
    with pytest.raises(ValueError, match="negative"), out.create("b") as file:
        file.skip(-1)


@POSIX
def test_holes_take_no_room_and_nothing_is_allocated_ahead(tmp_path, out):
    with out.create("sparse") as file:
        file.skip(64 * MIB)
        (temporary,) = (tmp_path / "out" / WORK_NAME).glob("*.partial")
        assert temporary.stat().st_size == 0
        file.write(b"end")
    found = os.stat(tmp_path / "out" / "sparse")
    assert found.st_size == 64 * MIB + 3
    assert found.st_blocks * 512 < MIB


@POSIX
def test_rights_are_those_the_umask_gives(tmp_path, places):
    old = os.umask(0o027)
    try:
        with Target(tmp_path / "out") as target:
            put(target, "folder/file", b"#!/bin/sh")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / "out" / "folder" / "file").st_mode) == 0o640
    assert stat.S_IMODE(os.stat(tmp_path / "out" / "folder").st_mode) == 0o750


def test_times_are_set_within_what_the_system_takes(tmp_path, out):
    for name, time, expected in (("a", 1_000_000_000.5, 1_000_000_000.5), ("b", 0, 0), ("c", 2**31 + 5, 2**31 + 5)):
        put(out, name, b"x", mtime=time)
        assert os.stat(tmp_path / "out" / name).st_mtime == expected
    for at, time in enumerate((1e300, -1e300, float("inf"), float("nan"), 2**200, -(2**200), -1)):
        assert put(out, f"odd{at}", b"x", mtime=time) == f"odd{at}"


def test_a_file_is_discarded_when_an_error_comes_through(tmp_path, out):
    with pytest.raises(LimitError), out.create("a/b") as file:
        _ = file.write(b"half"), file.skip(1 << 60)
    assert tree(tmp_path / "out") == {"a": None}
    assert (out.bytes, out.entries) == (0, 1)
    assert put(out, "a/b", b"again") == "a/b"  # its name is free again


def test_a_full_disk_is_told_and_what_is_written_counts(tmp_path, out, monkeypatch):
    real = os.write
    left = [3]

    def write(descriptor, data):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: left.pop()])

    file = out.create("a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(SourceError, match="cannot write: No space left") as caught:
            file.write(b"abcdef")
    assert (caught.value.errno, caught.value.source) == (errno.ENOSPC, "a")
    assert file.bytes == out.bytes == 3
    file.write_zeros(1)
    file.close()
    assert (tmp_path / "out" / "a").read_bytes() == b"abc\0"
    assert file.sha256 == hashlib.sha256(b"abc\0").hexdigest()


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_whole_output_has_a_limit(tmp_path, places):
    with Target(tmp_path / "out", max_bytes=100) as target:
        put(target, "a", b"x" * 60)
        file = target.create("b")
        file.write(b"y" * 30)
        with pytest.raises(LimitError, match=r'max_output="1MiB"') as caught:
            file.write(b"y" * 11)
        assert (caught.value.wanted, caught.value.got, caught.value.option) == (101, 100, "--max-output 1MiB")
        with pytest.raises(LimitError, match=r"Limits\(hole_bytes="):
            file.skip(1 << 70)
        file.write_zeros(10)
        with pytest.raises(LimitError, match="max_output="):
            file.write_zeros(1)
        file.skip(10)  # no output
        file.close()
        assert (file.bytes, target.bytes, target.hole_bytes) == (50, 100, 10)
        with pytest.raises(LimitError), target.create("c") as more:
            more.write(b"z")
    assert tree(tmp_path / "out") == {"a": b"x" * 60, "b": b"y" * 30 + bytes(20)}


def test_the_default_depends_on_the_source(tmp_path):
    assert default_max_output(0) == 64 * MIB
    assert default_max_output(MIB) == 264 * MIB
    assert default_max_output(GIB) == default_max_output(None) == 16 * GIB
    assert default_max_output(20 * GIB) == 20 * GIB + 64 * MIB  # a copy
    with Target(tmp_path / "out", source_size=10) as target:
        assert target.max_bytes == 64 * MIB + 2000


def test_entries_have_a_limit_and_folders_count(tmp_path, places):
    with Target(tmp_path / "out", limits=Limits(extracted_entries=3)) as target:
        put(target, "a/b")
        put(target, "c")
        target.make_folder("a")
        for make in (target.create, target.make_folder):
            with pytest.raises(LimitError, match=r"Limits\(extracted_entries=6") as caught:
                make("d")
            assert (caught.value.wanted, caught.value.got) == (4, 3)
    assert list(tree(tmp_path / "out")) == ["a", "a/b", "c"]


def test_depth_has_a_limit(tmp_path, places):
    with Target(tmp_path / "out", max_depth=3) as target:
        assert put(target, "a/b/c/d/e") == "a/b/e"


def test_a_stream_that_gives_too_much_is_stopped(out):
    stream = Expansion(1 * MIB)
    stream.add(1_100 * MIB)
    with pytest.raises(LimitError, match=r"Limits\(expansion_ratio=2200") as caught:
        stream.add(1)
    assert (caught.value.wanted, caught.value.got) == (1_100 * MIB + 1, 1_100 * MIB)
    assert stream.bytes == 1_100 * MIB
    Expansion(40).add(64 * MIB)  # a megabyte of zeros is a few bytes of bz2
    with pytest.raises(LimitError):
        Expansion(0).add(64 * MIB + 1)
    block = bytes(MIB)
    with out.create("a", compressed_size=10) as file:
        for _ in range(64):
            file.write(block)
        with pytest.raises(LimitError, match="expansion_ratio"):
            file.write(block)
    assert file.bytes == 64 * MIB
    with out.create("b", compressed_size=10) as file:
        file.skip(100 * MIB)  # holes do not come out of the stream
        with pytest.raises(LimitError, match="expansion_ratio"):
            file.write_zeros(65 * MIB)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_names_are_charged_to_the_budget(tmp_path, places):
    budget = MemoryBudget("1MiB")
    with Target(tmp_path / "out", budget=budget) as target:
        for at in range(2000):
            put(target, f"{at}")
        assert 8 * 2000 < budget.used < 100_000
        put(target, "f")
        before = budget.used
        put(target, "f/x")
        assert budget.used > before
    assert budget.used == 0


def test_a_table_that_finds_no_memory_says_so(tmp_path):
    budget = MemoryBudget("1MiB")
    with Target(tmp_path / "out", budget=budget) as target:
        rest = budget.charge((1 << 20) - budget.used, "something else")
        with pytest.raises(LimitError, match="budget="):
            _ = [put(target, f"{at}") for at in range(2000)]
        rest.release()
        put(target, "more")
    assert len(tree(tmp_path / "out")) < 1000


def test_the_table_is_a_set():
    source = random.Random(sweep.offset)
    budget = MemoryBudget()
    table, model = HashTable(budget), set()
    keys = [source.getrandbits(64) for _ in range(3000)] + [at << 20 for at in range(2, 500)]
    for _ in range(sweep.scaled(20_000, 2)):
        key = source.choice(keys)
        if source.random() < 0.6:
            table.add(key)
            model.add(key)
        else:
            table.discard(key)
            model.discard(key)
        assert (key in table) == (key in model)
    assert {key for key in keys if key in table} == model
    assert budget.used == 8 * len(table._slots) <= 8 * (1 << 13)
    for key in (0, 1):
        assert key not in table
        table.add(key)
        assert key in table
    table.close()
    assert budget.used == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts slots")
def test_the_table_takes_less_than_25_bytes_a_name():
    budget = MemoryBudget()
    table = HashTable(budget)
    source = random.Random(7)
    for _ in range(50_000):
        table.add(source.getrandbits(64))
    assert budget.used <= 8 * (1 << 17)
    assert budget.peak <= 12 * (1 << 17)


# -- the report --------------------------------------------------------------------------------------------------------


def test_a_report_appears_under_its_name_when_it_is_committed_and_once(tmp_path, places):
    before = descriptors()
    with Target(tmp_path / "out") as target:
        report = target.atomic()
        report.write(b"whole")
        assert tree(tmp_path / "out") == {}
        report.commit()
        (tmp_path / "out" / "RECOVERY.json").write_bytes(b"somebody's")
        report.commit()  # harmless
        report.discard()
        assert tree(tmp_path / "out") == {"RECOVERY.json": b"somebody's"}
        with pytest.raises(ClosedError):
            report.write(b"more")
    assert os.listdir(tmp_path / "out") == ["RECOVERY.json"]
    assert descriptors() == before


def test_a_report_that_was_discarded_is_not_committed(tmp_path, places):
    before = descriptors()
    with Target(tmp_path / "out") as target:
        report = target.atomic()
        report.discard()
        report.commit()
        report.discard()
        dropped = target.atomic()
        dropped.write(b"half")
        del dropped
    assert os.listdir(tmp_path / "out") == []
    assert descriptors() == before


@pytest.mark.parametrize("call", ["rename", "finish"])
def test_nothing_is_left_of_a_report_that_cannot_get_its_name(tmp_path, places, monkeypatch, call):
    before = descriptors()
    real = getattr(places, call)

    def fail(self, *args):
        if call == "finish":
            real(self, *args)
        raise OSError(errno.EIO, "Input/output error")

    with Target(tmp_path / "out") as target:
        report = target.atomic()
        report.write(b"whole")
        with monkeypatch.context() as patch:
            patch.setattr(places, call, fail)
            with pytest.raises(SourceError, match="cannot write: Input/output error") as caught:
                report.commit()
        assert (caught.value.errno, caught.value.source) == (errno.EIO, "RECOVERY.json")
        del caught  # its traceback holds the folders
        report.commit()  # once is enough
        report.discard()
        assert list((tmp_path / "out" / WORK_NAME).glob("*.partial")) == []
        again = target.atomic()
        again.write(b"now")
        again.commit()
    assert tree(tmp_path / "out") == {"RECOVERY.json": b"now"}
    assert descriptors() == before


@pytest.mark.parametrize("call", ["move", "finish"])
def test_nothing_is_left_of_a_file_that_cannot_get_its_name(tmp_path, places, monkeypatch, call):
    before = descriptors()
    real = getattr(places, call)

    def fail(self, *args):
        if call == "finish":
            real(self, *args)
        raise OSError(errno.EIO, "Input/output error")

    with Target(tmp_path / "out") as target:
        file = target.create("a")
        file.write(b"whole")
        file.skip(7)
        with monkeypatch.context() as patch:
            patch.setattr(places, call, fail)
            with pytest.raises(SourceError, match="cannot write: Input/output error"):
                file.close()
        file.close()
        file.discard()
        assert (target.bytes, target.hole_bytes, target.entries) == (0, 0, 0)
        assert put(target, "a", b"again") == "a"
    assert tree(tmp_path / "out") == {"a": b"again"}
    assert descriptors() == before


def test_a_file_that_is_closed_after_its_target_is_not_kept(tmp_path, places):
    before = descriptors()
    target = Target(tmp_path / "out")
    file = target.create("a")
    target.close()
    with pytest.raises(ClosedError):
        file.close()
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    assert descriptors() == before


def test_what_was_discarded_is_free_again(tmp_path, places):
    with Target(tmp_path / "out", max_bytes=10, limits=Limits(hole_bytes=10, extracted_entries=1)) as target:
        for _ in range(3):
            file = target.create("a")
            file.write(b"12345")
            file.write_zeros(5)
            file.skip(10)
            file.discard()
        assert (target.bytes, target.hole_bytes, target.entries) == (0, 0, 0)
        with target.create("a") as file:
            file.write(b"12345")
            file.write_zeros(5)
            file.skip(10)
        assert file.path == "a"
        assert (target.bytes, target.hole_bytes, target.entries, target.is_full) == (10, 10, 1, True)
    assert (tmp_path / "out" / "a").read_bytes() == b"12345" + bytes(15)


def test_a_folder_that_was_there_before_takes_its_name(tmp_path, places):
    (tmp_path / "out" / "Docs").mkdir(parents=True)
    with Target(tmp_path / "out", exist_ok=True) as target:
        assert put(target, "Docs/a") == "Docs/a"
        assert put(target, "docs") == "docs~2"


def test_a_name_that_could_not_be_had_once_is_free_the_next_time(tmp_path, places, monkeypatch):
    def fail(self, place, name):
        raise OSError(errno.EIO, "Input/output error")

    with Target(tmp_path / "out") as target:
        put(target, "first")
        for call, name in (("make_folder", "b/c"), ("look", "a"), ("create", "d")):
            with monkeypatch.context() as patch:
                patch.setattr(places, call, fail)
                with pytest.raises(SourceError, match="Input/output error"):
                    target.create(name)
            assert put(target, name) == name
        assert target.entries == 5


def test_the_hidden_folder_keeps_its_name_free(tmp_path, places):
    with Target(tmp_path / "out") as target:
        assert put(target, f"{WORK_NAME}/a") == f"{WORK_NAME}~2/a"
        assert put(target, WORK_NAME.upper()) == f"{WORK_NAME.upper()}~3"


def test_what_the_system_cannot_leave_out_does_not_count(out):
    out.max_bytes, out.limits = 1 << 80, Limits(hole_bytes=1 << 80)
    with out.create("a") as file:
        for leave in (file.skip, file.write_zeros):
            with pytest.raises(SourceError, match="cannot write"):
                leave(1 << 70)
    assert (file.bytes, out.bytes, out.hole_bytes) == (0, 0, 0)


@POSIX
def test_times_before_1970_are_kept(tmp_path, out):
    put(out, "a", mtime=-1)
    assert os.stat(tmp_path / "out" / "a").st_mtime == -1


def test_a_stored_name_is_told_as_far_as_names_go(out):
    with out.create("x", b"\xe9" + b"y" * 8190 + b"z") as file:
        pass
    assert file.raw_name is None  # the path is the name
    with out.create("/x", b"/\xe9" + b"y" * 100) as file:
        pass
    assert file.raw_name == "/\\xe9" + "y" * 100
