"""What data say about where their bytes come from, whoever serves them."""

from __future__ import annotations

import gzip
import os

import pytest

import pparse
from pparse.budget import MemoryBudget
from pparse.compressed.inflated import InflatedData
from pparse.data import local
from pparse.data.base import BytesData
from pparse.data.block_cache import BlockCache
from pparse.data.files import FileData
from pparse.data.hidden import HiddenData
from pparse.data.spliced import SplicedData
from pparse.errors import SourceError

CONTENT = b"some bytes of a file, and some more"


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "file"
    found.write_bytes(CONTENT)
    return os.fspath(found)


# -- is it that file? --------------------------------------------------------------------------------------------------


def test_data_know_the_file_they_read_under_any_name(path, tmp_path):
    link, copy = os.fspath(tmp_path / "link"), os.fspath(tmp_path / "copy")
    os.link(path, link)
    (tmp_path / "copy").write_bytes(CONTENT)
    with FileData(path) as file, BytesData(CONTENT) as memory:
        made = [
            file,
            HiddenData(file, [(2, 3)]),
            SplicedData([memory.range(0, 4), file.range(1, 5)]),
            BlockCache(file, MemoryBudget()),
            SplicedData([HiddenData(file, [(2, 3)]).range(0, 9)]),
        ]
        for data in made:
            assert data.same_source(path), data
            assert data.same_source(link), data
            assert not data.same_source(copy), data
            assert not data.same_source(path + ".none"), data
        assert not memory.same_source(path)


def test_what_was_unpacked_comes_from_its_file(tmp_path):
    path = os.fspath(tmp_path / "file.gz")
    (tmp_path / "file.gz").write_bytes(gzip.compress(CONTENT))
    with FileData(path) as file:
        data = InflatedData(file.range(0, file.size or 0), "gzip", budget=MemoryBudget())
        assert data.same_source(path)
        assert not data.same_source(os.fspath(tmp_path))


def test_only_bytes_as_they_stand_are_plain(path):
    class Damaged(BytesData):
        pass

    with FileData(path) as file, BytesData(CONTENT) as memory:
        assert file.is_plain
        assert file.is_file
        assert memory.is_plain
        assert not memory.is_file
        assert not Damaged(CONTENT).is_plain  # it may come to know of gaps
        assert not SplicedData([file.range(0, 4)]).is_plain
        assert not HiddenData(file, [(2, 3)]).is_plain


def test_a_file_that_grew_is_opened_again_and_another_one_is_not(path, tmp_path):
    with FileData(path) as file:
        assert file.grown() is None
        with open(path, "ab") as more:
            more.write(b"!")
        now = file.grown()
        assert now is not None
        with now:
            assert now.pread(0, 100) == CONTENT + b"!"
        (tmp_path / "other").write_bytes(CONTENT * 2)
        os.replace(tmp_path / "other", path)
        assert file.grown() is None
        os.unlink(path)
        assert file.grown() is None
    assert BytesData(CONTENT).grown() is None


def test_size_time_and_inode_tell_a_later_run_which_file_it_is(path, tmp_path):
    with FileData(path) as file:
        info = os.stat(path)
        assert file.stamp == [info.st_size, info.st_mtime_ns, info.st_ino]
        assert file.modified_ns == info.st_mtime_ns
        os.rename(path, tmp_path / "moved")
        with FileData(tmp_path / "moved") as moved:
            assert moved.stamp == file.stamp
    assert BytesData(CONTENT).stamp is None
    assert BytesData(CONTENT).modified_ns == 0


def test_questions_about_paths_that_do_not_exist_have_answers(path, tmp_path):
    none = os.fspath(tmp_path / "none")
    os.symlink(none, tmp_path / "broken")
    broken = os.fspath(tmp_path / "broken")
    assert not local.same_file(path, none)
    assert not local.same_file(path, "\0")
    assert local.same_file(path, path)
    assert local.is_there(broken)
    assert not local.exists(broken)
    assert local.linked_name(broken) == "none"
    assert local.linked_name(path) is None
    assert sorted(local.names_in(os.fspath(tmp_path))) == ["broken", "file"]
    assert list(local.names_in(none)) == []
    with pytest.raises(SourceError):
        local.open_file(none)


def test_a_part_of_a_split_file_is_not_written_over(tmp_path):
    from pparse.proto_splitter.sources import is_read

    for number, part in enumerate((b'{"a": ', b"1}"), 1):
        (tmp_path / f"x.json.{number:03}").write_bytes(part)
    with pparse.open(tmp_path / "x.json.001") as document:
        assert document.get("a") == 1
        assert is_read(document, os.fspath(tmp_path / "x.json.001"))
        assert is_read(document, os.fspath(tmp_path / "x.json.002"))
        assert not is_read(document, os.fspath(tmp_path / "x.json.003"))
