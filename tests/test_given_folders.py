"""Files of a set that lie in a folder which the caller gives: in memory, elsewhere, far away."""

from __future__ import annotations

import errno
import io
import pickle
import shutil
import sys
from pathlib import Path

import pytest

import pparse
from pparse.data.base import BytesData
from pparse.document import handles
from pparse.document.folder import LocalFolder
from pparse.errors import (
    ClosedError,
    DataChangedError,
    FormatError,
    OptionError,
    PathError,
    SourceError,
)

SHARDED = Path(__file__).parent.parent / "docs" / "samples" / "sharded"
FILES = {path.name: path.read_bytes() for path in sorted(SHARDED.iterdir())}
INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00003.safetensors"


class Memory(pparse.Folder):
    """Files in memory; ``form`` is what each is given as."""

    def __init__(self, files=FILES, form=bytes):
        self.files = dict(files)
        self.form = form
        self.opened = []
        self.made = []

    def list(self):
        return list(self.files)

    def open(self, name):
        self.opened.append(name)
        if name not in self.files:
            raise FileNotFoundError(name)
        self.made.append(self.form(self.files[name]))
        return self.made[-1]


class Mute(Memory):
    def list(self):
        return None


@pytest.fixture(autouse=True)
def _no_documents():
    handles.at_fork()


@pytest.fixture(scope="module")
def whole():
    with pparse.view(SHARDED) as model:
        return {name: tensor.numpy().tobytes() for name, tensor in model.items()}


def content(model):
    return {name: tensor.numpy().tobytes() for name, tensor in model.items()}


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO, BytesData])
def test_an_index_in_memory_finds_its_shards_in_a_folder_of_the_caller(form, whole):
    with pparse.view(FILES[INDEX], folder=Memory(form=form)) as model:
        assert content(model) == whole
        assert model.status is pparse.Status.COMPLETE
        assert list(model.check()) == []
        assert model.extraction.node("shards").child(0).load() == len(FILES[SHARD])


@pytest.mark.parametrize("give", [str, Path])
def test_an_index_in_memory_finds_its_shards_in_a_folder_of_the_system(give, whole):
    with pparse.view(io.BytesIO(FILES[INDEX]), folder=give(SHARDED)) as model:
        assert content(model) == whole


def test_the_given_folder_counts_even_if_the_index_lies_in_another(tmp_path, whole):
    shutil.copyfile(SHARDED / INDEX, tmp_path / INDEX)
    (tmp_path / SHARD).write_bytes(b"another one")
    with pparse.view(tmp_path / INDEX, folder=SHARDED) as model:
        assert content(model) == whole


def test_an_index_in_an_archive_finds_its_shards_in_the_given_folder(tmp_path, whole):
    from tests.test_folders_in_archives import zip_of

    (tmp_path / "a.zip").write_bytes(zip_of({INDEX: FILES[INDEX]}))
    with pparse.view(f"{tmp_path}/a.zip::{INDEX}", folder=Memory()) as model:
        assert content(model) == whole


def test_a_packed_index_lies_in_the_given_folder_too(whole):
    import gzip

    with pparse.view(gzip.compress(FILES[INDEX]), folder=Memory()) as model:
        assert content(model) == whole


def test_without_a_folder_the_shards_are_not_read():
    with pparse.view(FILES[INDEX]) as model:
        assert {tensor.status for tensor in model.values()} == {pparse.Status.UNSUPPORTED}
        assert [finding.code for finding in model.findings] == ["shards-not-read"]


def test_a_folder_of_the_caller_is_a_source_itself(whole):
    shards = {name: content for name, content in FILES.items() if name != INDEX}
    for files in (FILES, shards):
        with pparse.view(Memory(files)) as model:
            assert content(model) == whole
            assert model.status is pparse.Status.COMPLETE
    with pytest.raises(FormatError):
        pparse.view(Mute())  # what cannot be listed cannot be recognised


def test_shards_that_the_folder_lacks_are_missing_and_the_others_are_read(whole):
    folder = Memory({name: content for name, content in FILES.items() if name != SHARD})
    with pparse.view(FILES[INDEX], folder=folder) as model:
        lacking = {name for name, tensor in model.items() if tensor.status is pparse.Status.MISSING}
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items() if name not in lacking} == {
            name: found for name, found in whole.items() if name not in lacking
        }
        assert lacking
        assert [(finding.code, finding.path) for finding in model.findings] == [("missing-shard", SHARD)]
        with pytest.raises(SourceError) as caught:
            model.extraction.sibling(SHARD)
        assert caught.value.errno == errno.ENOENT
        resumed = [(each.file, each.at) for each in model.extent().resume]
        assert resumed == [(SHARD, 0)]


def test_an_index_is_read_from_a_folder_that_cannot_be_listed(whole):
    with pparse.view(FILES[INDEX], folder=Mute()) as model:
        assert content(model) == whole
        assert list(model.check()) == []


def test_a_shard_that_the_index_does_not_name_is_reported():
    extra = SHARD.replace("1-of", "9-of")
    with pparse.view(FILES[INDEX], folder=Memory({**FILES, extra: FILES[SHARD]})) as model:
        assert [(finding.code, finding.path) for finding in model.check()] == [("extra-shard", extra)]


def test_no_name_leads_out_of_the_folder():
    folder = Memory()
    for name in ("../x.safetensors", "/x.safetensors", "a//b.safetensors", "C:x.safetensors"):
        index = FILES[INDEX].replace(SHARD.encode(), name.encode())
        with pparse.view(index, folder=folder) as model:
            assert {tensor.status for tensor in model.values()} == {pparse.Status.COMPLETE, pparse.Status.MISSING}
            with pytest.raises(PathError):
                model.extraction.sibling(name)
        assert name not in folder.opened


def test_errors_of_the_folder_are_errors_of_the_source():
    class Failing(Memory):
        def list(self):
            raise PermissionError(errno.EACCES, "Permission denied")

        def open(self, name):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pparse.view(FILES[INDEX], folder=Failing()) as model:
        assert {tensor.status for tensor in model.values()} == {pparse.Status.MISSING}
        with pytest.raises(SourceError) as caught:
            model.extraction.sibling(SHARD)
        assert (caught.value.errno, caught.value.source) == (errno.EACCES, SHARD)
    with pytest.raises(SourceError, match="cannot list: Permission denied"):
        pparse.open(Failing())


def test_what_the_folder_opened_is_closed_with_the_document():
    for form in (io.BytesIO, BytesData):
        folder = Memory(form=form)
        with pparse.view(FILES[INDEX], folder=folder) as model:
            tensor = next(iter(model.values()))
            assert tensor.numpy() is not None
        assert folder.made
        assert all(made.closed for made in folder.made)
        with pytest.raises(ClosedError):
            tensor.numpy()


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(TypeError, match="not a dict"):
        pparse.open(FILES[INDEX], folder={})
    with pytest.raises(SourceError, match="is not a folder"):
        pparse.open(FILES[INDEX], folder=tmp_path / "none")
    with pytest.raises(OptionError, match="a folder has its own files"):
        pparse.open(SHARDED, folder=tmp_path)


# -- handles -----------------------------------------------------------------------------------------------------------


def test_tensors_of_a_given_folder_are_opened_again(whole, monkeypatch, tmp_path):
    monkeypatch.chdir(SHARDED.parent)
    opened = [(FILES[INDEX], Memory()), (FILES[INDEX], "sharded"), (Memory(), None)]
    for source, folder in opened:
        with pparse.view(source, folder=folder) as model:
            kept = pickle.dumps(list(model.values()))
            viewer = pickle.dumps(model)
        handles.at_fork()
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(tmp_path)
            assert {tensor.name: tensor.numpy().tobytes() for tensor in pickle.loads(kept)} == whole
            assert content(pickle.loads(viewer)) == whole


def test_a_file_of_a_given_folder_that_is_another_now_is_refused():
    folder = Memory()
    with pparse.view(FILES[INDEX], folder=folder) as model:
        tensors = list(model.values())
        shard = model.extraction.sibling(SHARD)
        assert shard.size == len(FILES[SHARD])
        inside = next(tensor for tensor in tensors if tensor.spans[0].data is shard.data)
        folder.files[SHARD] = folder.files[SHARD][:-1] + bytes((folder.files[SHARD][-1] ^ 1,))
        kept = pickle.dumps(inside)  # with the folder as it is now
        assert inside.numpy() is not None  # the document that is open has what it opened
    handles.at_fork()
    with pytest.raises(DataChangedError, match="not the one that was pickled"):
        pickle.loads(kept).numpy()


def test_a_folder_that_cannot_be_pickled_is_refused():
    folder = Memory()
    folder.handle = sys._getframe()
    with pparse.view(FILES[INDEX], folder=folder) as model, pytest.raises(SourceError, match="cannot be pickled"):
        pickle.dumps(model)


# -- what a folder is --------------------------------------------------------------------------------------------------


def test_folders_say_what_identifies_them(tmp_path, monkeypatch):
    from tests.test_folders_in_archives import zip_of

    monkeypatch.chdir(SHARDED.parent)
    assert LocalFolder("sharded").identity == LocalFolder(str(SHARDED)).identity
    assert LocalFolder("sharded").identity != LocalFolder("").identity
    archive = zip_of({f"{folder}/{name}": content for folder in "ab" for name, content in FILES.items()})
    with pparse.open(archive) as document:
        found = {
            name: document.parse().parser.enter(name).folder for name in ("a/" + INDEX, "b/" + INDEX, "a/" + SHARD)
        }
        assert found["a/" + INDEX].identity == found["a/" + SHARD].identity != found["b/" + INDEX].identity
        assert found["a/" + INDEX].open(SHARD).pread(0, 1 << 20) == FILES[SHARD]
