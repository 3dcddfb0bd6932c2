"""A run that is killed at any moment leaves nothing under its name that is not whole; the same command goes on."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import random
import tarfile
import zipfile

import pytest

import pparse
from pparse.errors import CancelledError, LimitError, OptionError
from pparse.limits import Limits
from pparse.recovery import target as target_module
from pparse.recovery.folder_writer import ANCHORED, JOURNAL_NAME, WORK_NAME, AnchoredPlaces, PathPlaces
from pparse.recovery.recover import extract, is_unfinished, recover
from pparse.recovery.target import REPORT_NAME, Target
from pparse.writers.journal import Journal
from tests import sweep
from tests.conftest import safetensors
from tests.pytorch_files import checkpoint, numbered
from tests.test_recover_documents import sharded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")

# What changes a disk, and is counted.
CALLS = ("open", "write", "link", "unlink", "rename", "mkdir", "rmdir", "utime", "ftruncate")


def zip_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


def tar_of(*members: tuple[str, bytes | None]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mtime = 1_500_000_000
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
                continue
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def model() -> bytes:
    data = bytes(range(256)) * 4
    header = {f"t{at}": {"dtype": "F32", "shape": [64], "data_offsets": [256 * at, 256 * at + 256]} for at in range(4)}
    return safetensors(header, data)[:-300]


def sample() -> bytes:
    """A tar with folders, names that clash, a zip that was hit, an empty container and a model that was cut."""
    generator = random.Random(3)
    inner = bytearray(zip_of(("one.txt", b"1" * 3000), ("two.bin", generator.randbytes(900)), ("Two.bin", b"again")))
    inner[len(inner) // 2] ^= 0xFF
    return tar_of(
        ("folder/", None),
        ("folder/a.txt", b"a" * 700),
        ("folder/A.TXT", b"A" * 600),
        ("Folder/b", generator.randbytes(100)),
        ("folder/a.txt/below", b"a folder where a file is"),
        ("inner.zip", bytes(inner)),
        ("empty.tar", bytes(1024)),
        ("model.safetensors", model()),
        ("plain.gz", gzip.compress(b"text" * 200, mtime=0)),
        ("last", b""),
    )


def run(command: str, source: Path, folder: Path, **options):
    with pparse.open(source) as document:
        if command == "recover":
            return recover(document, folder, **options)
        return extract(document, folder, recursive=True, **options)


def contents(folder: Path) -> dict[str, object]:
    """All that is in a folder but what is marked as unfinished: bytes, and times of files that have one stored."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == WORK_NAME:
            continue
        info = path.lstat()
        stored = int(info.st_mtime) if info.st_mtime < 1_600_000_000 else None
        found[name] = None if path.is_dir() else (path.read_bytes(), stored)
    return found


def killed_at(number: int, work, *, torn: bool = False) -> bool:
    """Run ``work`` in a process that dies at its ``number``-th call that changes the disk. False if it came through.

    ``torn``: only calls that write count, and half of the last one is done.
    """
    child = os.fork()
    if child == 0:
        left = number

        def dying(name: str, real):
            def call(*args, **known):
                nonlocal left
                left -= 1
                if not left:
                    if torn:
                        real(args[0], bytes(args[1])[: len(args[1]) // 2])
                    os._exit(99)
                return real(*args, **known)

            return call

        code = 1
        try:
            for name in ("write",) if torn else CALLS:
                setattr(os, name, dying(name, getattr(os, name)))
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 99)
    return os.waitstatus_to_exitcode(status) == 99


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.tar"
    path.write_bytes(sample())
    return path


def damaged_stream() -> bytes:
    content = bytearray(gzip.compress(sample() + tar_of(("noise", random.Random(1).randbytes(40_000))), mtime=0))
    content[len(content) // 2] ^= 0x55
    return bytes(content[:-3000])


def assert_goes_on(tmp_path, source, command, *, step: int = 1, torn: bool = False, claims: bool = False) -> int:
    """Kill a run at every ``step``-th call, and compare what the same command makes of it; return how many there are.

    A default run takes a twelfth of these calls. ``claims``: names are taken by empty files first.
    """
    run(command, source, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    assert not (tmp_path / "whole" / WORK_NAME).exists()
    step = step if sweep.full else 12 * step
    number, alive = 1 + sweep.offset % step, False
    while not alive:
        folder = tmp_path / str(number)
        alive = not killed_at(number, lambda folder=folder: run(command, source, folder), torn=torn)
        left = contents(folder) if folder.exists() else {}
        odd = [name for name, content in left.items() if whole[name] != content]
        assert not odd or (claims and [left[name][0] for name in odd] == [b""]), (number, odd)
        if left != whole or is_unfinished(folder):
            assert not alive
            run(command, source, folder)
        assert contents(folder) == whole, number
        assert not is_unfinished(folder)
        number += step
    return number


@POSIX
@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("command", sweep.part(["recover", "extract"]))
def test_killed_at_any_call_the_same_command_comes_to_the_same(tmp_path, source, command, torn):
    assert assert_goes_on(tmp_path, source, command, torn=torn) > 40


@POSIX
def test_killed_in_a_damaged_stream_the_same_command_comes_to_the_same(tmp_path, source):
    source.write_bytes(damaged_stream())
    assert assert_goes_on(tmp_path, source, "recover", step=5) > 80


@POSIX
def test_killed_in_a_checkpoint_the_same_command_comes_to_the_same(tmp_path):
    made = checkpoint(*numbered(6, 256))
    changed = bytearray(made.content[: made.places["layers.5.weight"][0] + 100])
    changed[made.places["layers.1.weight"][0]] ^= 1
    path = tmp_path / "x.pt"
    path.write_bytes(changed)
    assert assert_goes_on(tmp_path, path, "recover") > 40


@POSIX
def test_killed_in_a_set_of_shards_the_same_command_comes_to_the_same(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    sharded(folder)
    cut = folder / "model-00002-of-00003.safetensors"
    cut.write_bytes(cut.read_bytes()[:-3])
    assert assert_goes_on(tmp_path, folder, "recover", step=3) > 40


@POSIX
def test_killed_on_a_system_without_places_below_folders(tmp_path, source, monkeypatch):
    monkeypatch.setattr(target_module, "places", PathPlaces)
    assert assert_goes_on(tmp_path, source, "recover", step=3) > 40


def no_link(*args, **known):
    raise OSError(errno.EPERM, "no hard links here")


@POSIX
@pytest.mark.parametrize(("kind", "torn"), [(AnchoredPlaces, False), (AnchoredPlaces, True), (PathPlaces, False)])
def test_killed_on_a_file_system_without_hard_links(tmp_path, source, monkeypatch, kind, torn):
    monkeypatch.setattr(target_module, "places", kind)
    monkeypatch.setattr(os, "link", no_link)
    assert assert_goes_on(tmp_path, source, "recover", step=3, torn=torn, claims=True) > 40


@POSIX
def test_killed_again_and_again_it_comes_to_its_end(tmp_path, source):
    run("recover", source, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    count = 0
    for seed in sweep.sample(range(8), 4):
        generator = random.Random(seed)
        folder = tmp_path / str(seed)
        while killed_at(
            generator.randrange(15, 45),
            lambda folder=folder: run("recover", source, folder),
            torn=generator.random() < 0.5,
        ):
            count += 1
            assert count < 100
            if contents(folder) == whole and not is_unfinished(folder):
                break  # all that was left to do was to remove an empty folder
        assert contents(folder) == whole
    assert count >= 4


# -- what is not done again --------------------------------------------------------------------------------------------


class Stop(BaseException):
    """What a user does who has no patience, or a system that ends."""


def stopped_after(count: int, command: str, source: Path, folder: Path, error: BaseException, **options) -> None:
    """Run ``command`` until it has told of ``count`` files."""
    told = []

    def tell(file):
        told.append(file)
        if len(told) == count:
            raise error

    with pytest.raises(type(error)):
        run(command, source, folder, tell=tell, **options)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError("enough"), Stop()], ids=str)
@pytest.mark.parametrize("command", ["recover", "extract"])
def test_a_run_that_was_interrupted_goes_on(tmp_path, source, command, error):
    told = []
    run(command, source, tmp_path / "whole", tell=lambda file: told.append(str(file)))
    for count in range(1, 8):
        folder = tmp_path / str(count)
        stopped_after(count, command, source, folder, error)
        assert not (folder / REPORT_NAME).exists()
        assert sorted(os.listdir(folder / WORK_NAME)) == [JOURNAL_NAME]  # nothing half-written is left
        again = []
        outcome = run(command, source, folder, tell=lambda file, again=again: again.append(str(file)))
        assert contents(folder) == contents(tmp_path / "whole")
        assert again == told
        assert outcome.resumed or count == 1
        with pytest.raises(OptionError, match=r"RECOVERY\.json|not empty"):
            run(command, source, folder)


@pytest.mark.parametrize(
    "pack",
    [
        lambda big: tar_of(("big", big), ("small", b"1"), ("last", b"2")),
        lambda big: zip_of(("big", big), ("small", b"1"), ("last", b"2")),
    ],
    ids=["tar", "zip"],
)
def test_a_member_that_is_done_is_not_read_again(tmp_path, source, pack):
    big = random.Random(1).randbytes(4 << 20)
    source.write_bytes(pack(big))
    stopped_after(2, "extract", source, tmp_path / "out", KeyboardInterrupt())
    before = os.stat(tmp_path / "out" / "big")
    with pparse.open(source) as document:
        outcome = extract(document, tmp_path / "out", recursive=True)
        assert document.session.stats.bytes < len(big) // 8
    assert outcome.summary.files == 3
    after = os.stat(tmp_path / "out" / "big")
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (tmp_path / "out" / "last").read_bytes() == b"2"


@pytest.mark.parametrize("options", [{"max_output": 1500}, {"max_output": 4000}])
def test_limits_count_what_is_done(tmp_path, source, options):
    run("recover", source, tmp_path / "whole", **options)
    for count in (3, 6):
        folder = tmp_path / str(count)
        stopped_after(count, "recover", source, folder, KeyboardInterrupt(), **options)
        assert run("recover", source, folder, **options).limits
        assert contents(folder) == contents(tmp_path / "whole")


def test_the_limit_of_entries_counts_what_is_done(tmp_path, source):
    def go(folder, tell=None):
        with pparse.open(source, limits=Limits(extracted_entries=7)) as document:
            recover(document, folder, tell=tell)

    def stop(file):
        if file.path == "folder/A~2.TXT":
            raise KeyboardInterrupt

    with pytest.raises(LimitError, match="extracted_entries=14"):
        go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "out", stop)
    with pytest.raises(LimitError, match="extracted_entries=14"):
        go(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_findings_of_what_is_done_are_told_again(tmp_path, source):
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a", b"first" * 100)
        archive.writestr("b", b"other" * 100)
        archive.writestr("c", b"third" * 100)
    content = bytearray(source.read_bytes())
    content[14] ^= 0xFF  # the CRC-32 in the local header of the first contradicts the directory
    source.write_bytes(content)
    assert run("recover", source, tmp_path / "whole").warnings
    stopped_after(2, "recover", source, tmp_path / "out", KeyboardInterrupt())
    assert run("recover", source, tmp_path / "out").warnings
    assert json.loads((tmp_path / "out" / REPORT_NAME).read_text())["findings"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_files_that_were_changed_or_removed_meanwhile_are_written_again(tmp_path, source):
    run("recover", source, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    for damage in ("remove", "cut", "touch", "folder"):
        folder = tmp_path / damage
        stopped_after(8, "recover", source, folder, KeyboardInterrupt())
        victim = folder / "folder" / "a.txt"
        if damage == "remove":
            victim.unlink()
        elif damage == "cut":
            os.truncate(victim, 5)
        elif damage == "touch":
            os.utime(victim, (1, 1))
        else:
            (folder / "folder").rename(tmp_path / "moved")
        outcome = run("recover", source, folder)
        assert contents(folder) == whole, damage
        assert outcome.resumed


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_nothing_foreign_is_touched_when_a_run_goes_on(tmp_path, source, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    folder = tmp_path / "out"
    stopped_after(8, "recover", source, folder, KeyboardInterrupt())
    other = tmp_path / "other"
    other.write_bytes(b"somebody else's")
    os.replace(other, folder / "folder" / "a.txt")
    (folder / "last").write_bytes(b"")
    (folder / WORK_NAME / "note").write_bytes(b"and this")
    run("recover", source, folder)
    found = contents(folder)
    assert found["folder/a.txt"][0] == b"somebody else's"
    assert found["last"][0] == b""
    entries = {entry["raw_name"] or entry["path"]: entry for entry in json.loads(found[REPORT_NAME][0])["files"]}
    assert found[entries["folder/a.txt"]["path"]][0] == b"a" * 700
    assert (entries["last"]["path"], found["last~2"][0]) == ("last~2", b"")
    assert (folder / WORK_NAME / "note").read_bytes() == b"and this"


def test_a_name_that_is_taken_while_the_file_is_written_stays(tmp_path):
    for kind in (AnchoredPlaces, PathPlaces) if ANCHORED else (PathPlaces,):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target_module, "places", kind)
            with Target(tmp_path / kind.__name__) as target:
                with target.create("a.txt") as file:
                    file.write(b"ours")
                    (tmp_path / kind.__name__ / "a.txt").symlink_to(tmp_path / "nowhere")
                assert (file.path, file.raw_name) == ("a~2.txt", "a.txt")
            assert (tmp_path / kind.__name__ / "a~2.txt").read_bytes() == b"ours"
            assert not (tmp_path / "nowhere").exists()


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_another_run_into_the_folder_of_an_unfinished_one_is_refused(tmp_path, source):
    folder = tmp_path / "out"
    stopped_after(4, "recover", source, folder, KeyboardInterrupt())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    refused = r"unfinished 'pparse recover' of source\.tar.*the very same command.*another folder"
    with pytest.raises(OptionError, match=refused):
        run("extract", source, folder)
    for options in ({"max_output": 1 << 20}, {"exist_ok": True}):
        with pytest.raises(OptionError, match=refused):
            run("recover", source, folder, **options)
    with pparse.open(source, limits=Limits(nesting=3)) as document, pytest.raises(OptionError, match=refused):
        recover(document, folder)
    os.utime(source, (1, 1))
    with pytest.raises(OptionError, match=refused):
        run("recover", source, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_members_that_nobody_can_name_again_are_not_gone_on_with(tmp_path, source):
    with pytest.raises(KeyboardInterrupt), pparse.open(source) as document:
        extract(
            document,
            tmp_path / "out",
            members=lambda name: True,
            tell=lambda file: (_ for _ in ()).throw(KeyboardInterrupt()),
        )
    with pytest.raises(OptionError, match="unfinished"), pparse.open(source) as document:
        extract(document, tmp_path / "out", members=lambda name: True)


@POSIX
def test_two_at_the_same_time_are_refused(tmp_path, source):
    with pparse.open(source) as document:

        def tell(file):
            with pytest.raises(OptionError, match="another process is writing"):
                run("recover", source, tmp_path / "out")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            recover(document, tmp_path / "out", tell=tell)
    run("recover", source, tmp_path / "out")


def test_a_source_without_a_file_goes_on_by_its_content(tmp_path):
    content = sample()

    def go(content, folder, tell=None):
        with pparse.open(content) as document:
            return recover(document, folder, tell=tell)

    def stop(file):
        if file.path == "last":
            raise KeyboardInterrupt

    go(content, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(content, tmp_path / "out", stop)
    with pytest.raises(OptionError, match="unfinished"):
        go(content[:-1], tmp_path / "out")
    assert go(content, tmp_path / "out").resumed > 3
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"{",
        b'{"journal": 9}\n',
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
        b"no line end" * 10_000,
    ],
)
def test_a_journal_that_is_none_does_not_count(tmp_path, source, odd):
    folder = tmp_path / "out"
    (folder / WORK_NAME).mkdir(parents=True)
    (folder / WORK_NAME / JOURNAL_NAME).write_bytes(odd)
    run("recover", source, folder)
    run("recover", source, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b"7",
        b'["unit"]',
        b'["unit", -1, "x"]',
        b'["unit", 99, "x"]',
        b'["done"]',
        b'["file"]',
        b'["folder"]',
        b'["unit", 0, 5]',
        b'["name", "../../x", 3]',
        b'["told", {}]',
        b'["unit", true, 3]',
        b'["name", 1, 3]',
    ],
)
def test_lines_that_are_none_of_ours_end_the_journal_or_are_passed_over(tmp_path, source, line):
    for place in sweep.values((2, 9, 20), len(line)):
        folder = tmp_path / str(place)
        stopped_after(8, "recover", source, folder, KeyboardInterrupt())
        journal = folder / WORK_NAME / JOURNAL_NAME
        lines = journal.read_bytes().splitlines(keepends=True)
        lines.insert(place, line + b"\n")
        journal.write_bytes(b"".join(lines))
        run("recover", source, folder)
        assert (folder / REPORT_NAME).exists()
        assert not is_unfinished(folder)


def test_something_else_under_the_name_of_the_hidden_folder_is_left_alone(tmp_path, source):
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / WORK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(pparse.SourceError, match="cannot write"):
        run("recover", source, folder, exist_ok=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sorted(os.listdir(folder)) == [WORK_NAME]


def test_no_member_gets_into_the_hidden_folder(tmp_path, source):
    source.write_bytes(tar_of((f"{WORK_NAME}/{JOURNAL_NAME}", b"x"), (f"{WORK_NAME.upper()}/y", b"y")))
    run("recover", source, tmp_path / "out")
    assert set(contents(tmp_path / "out")) >= {f"{WORK_NAME}~2/{JOURNAL_NAME}", f"{WORK_NAME.upper()}~3/y"}
    assert not (tmp_path / "out" / WORK_NAME).exists()


def test_a_journal_of_many_units_takes_8_bytes_each(tmp_path):
    from pparse.limits import MemoryBudget

    descriptor = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        journal = Journal(descriptor, MemoryBudget(), hash)
        journal.begin({})
        for number in range(20_000):
            journal.put("unit", number, "key")
            journal.put("done")
        journal.flush()
        budget = MemoryBudget()
        again = Journal(descriptor, budget, hash)
        assert (again.unit(19_999) is not None, again.unit(20_000)) == (True, None)
        assert budget.used < 20_000 * 8 + 10_000
        assert [entry for _, _, entry in again.entries(again.unit(19_999))] == [["unit", 19_999, "key"], ["done"]]
        assert again.unit(20_000) is None
        again.close()
        assert budget.used == 0
    finally:
        os.close(descriptor)


# -- a full disk -------------------------------------------------------------------------------------------------------


def with_room(monkeypatch, room: int, work) -> None:
    """Run ``work`` on a disk with room for so many bytes; raises what it raises."""
    left, real = room, os.write

    def write(descriptor, data):
        nonlocal left
        if not left and len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(descriptor, bytes(data)[:left])
        left -= done
        return done

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        work()


@pytest.mark.parametrize("command", ["recover", "extract"])
def test_on_a_full_disk_nothing_is_lost_and_with_more_room_it_goes_on(tmp_path, source, monkeypatch, command):
    run(command, source, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    room, met = 0, set()
    while True:
        folder = tmp_path / str(room)
        try:
            with_room(monkeypatch, room, lambda folder=folder: run(command, source, folder))
            break
        except pparse.SourceError as error:
            met.add((error.source, error.errno))
        left = contents(folder)
        report = left.pop(REPORT_NAME, None)
        if report is not None:
            assert "stopped" in [finding["code"] for finding in json.loads(report[0])["findings"]]
        assert [name for name, content in left.items() if whole[name] != content] == []
        assert os.listdir(folder / WORK_NAME) == [JOURNAL_NAME]  # nothing half-written is left, and it may go on
        run(command, source, folder)
        assert contents(folder) == whole
        assert not (folder / WORK_NAME).exists()
        room += 149 if sweep.full else 1000 + sweep.offset % 197
    assert len(met) > 5
    assert {number for _, number in met} == {errno.ENOSPC}
    sources = {source for source, _ in met}
    assert "the journal" in sources
    assert (REPORT_NAME in sources) is (command == "recover")


def test_a_hidden_folder_that_a_killed_run_left_empty_is_removed(tmp_path, source):
    for command in ("recover", "extract"):
        folder = tmp_path / command
        run(command, source, folder)
        whole = contents(folder)
        (folder / WORK_NAME).mkdir()
        with pytest.raises(OptionError):
            run(command, source, folder)
        assert not (folder / WORK_NAME).exists()
        assert contents(folder) == whole
