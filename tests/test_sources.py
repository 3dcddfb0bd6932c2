"""What data say about where their bytes come from, whoever serves them."""

from __future__ import annotations

import gzip
import inspect
import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest

import pparse
from pparse.compressed.gzip_index import GzipEntryStream
from pparse.compressed.inflated import InflatedData
from pparse.compressed.resumed import ResumedData
from pparse.data import files
from pparse.data.base import BytesData, Data
from pparse.data.block_cache import BlockCache
from pparse.data.file_object import StreamData
from pparse.data.files import FileData
from pparse.data.spliced import HiddenData, MissingData, SplicedData, ZeroData
from pparse.errors import ClosedError, SourceError
from pparse.limits import MemoryBudget
from pparse.riegeli.source import SeekableData
from pparse.testing.fakes import FakeData

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"

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
    assert not files.same_file(path, none)
    assert not files.same_file(path, "\0")
    assert files.same_file(path, path)
    assert files.is_there(broken)
    assert not files.exists(broken)
    assert files.linked_name(broken) == "none"
    assert files.linked_name(path) is None
    assert sorted(files.names_in(os.fspath(tmp_path))) == ["broken", "file"]
    assert list(files.names_in(none)) == []
    with pytest.raises(SourceError):
        files.open_file(none)


def test_a_part_of_a_split_file_is_not_written_over(tmp_path):
    from pparse.proto_splitter.stream_split import is_read

    for number, part in enumerate((b'{"a": ', b"1}"), 1):
        (tmp_path / f"x.json.{number:03}").write_bytes(part)
    with pparse.open(tmp_path / "x.json.001") as document:
        assert document.get("a") == 1
        assert is_read(document, os.fspath(tmp_path / "x.json.001"))
        assert is_read(document, os.fspath(tmp_path / "x.json.002"))
        assert not is_read(document, os.fspath(tmp_path / "x.json.003"))


# -- identity ----------------------------------------------------------------------------------------------------------


def hidden(data, start=2):
    return HiddenData(data, [(start, start + 3)])


def spliced(data, start=1):
    return SplicedData([data.range(start, start + 4), data.range(0, 3)])


def inflated(data, size=None):
    return InflatedData(data.range(0, data.size), "zlib", size=size, budget=MemoryBudget())


def resumed(data, size=None):
    return ResumedData(data.range(0, data.size), "zlib", size=size, budget=MemoryBudget())


MAKERS = [hidden, spliced, inflated, resumed]


@pytest.mark.parametrize("make", MAKERS)
def test_data_of_the_same_content_made_alike_have_one_identity(make):
    one, other = make(BytesData(CONTENT)), make(BytesData(CONTENT))
    assert one.identity == other.identity
    assert hash(one.identity) == hash(other.identity)
    assert pickle.loads(pickle.dumps(one.identity)) == one.identity
    assert one.identity != BytesData(CONTENT).identity
    assert one.identity != make(BytesData(CONTENT[:-1] + b"!")).identity
    assert one.identity != make(BytesData(CONTENT), 5).identity
    assert make(FakeData(CONTENT)).identity is None  # nobody knows what it is made of


def test_ways_of_making_are_told_apart():
    data = BytesData(CONTENT)
    made = [make(data).identity for make in MAKERS] + [data.identity, BytesData(b"").identity]
    made += [ZeroData(5).identity, MissingData(5).identity, ZeroData(6).identity]
    assert len(set(made)) == len(made)


def test_an_identity_of_many_parts_is_short():
    data = BytesData(bytes(40_000))
    parts = [data.range(2 * at, 2 * at + 1) for at in range(20_000)]
    assert len(pickle.dumps(SplicedData(parts).identity)) < 300
    assert len(pickle.dumps(HiddenData(data, [(2 * at, 2 * at + 1) for at in range(20_000)]).identity)) < 300
    assert SplicedData(parts).identity != SplicedData(parts[:-1]).identity


def test_what_a_stream_was_entered_with_is_part_of_no_identity():
    def entered(budget, size, reread):
        return GzipEntryStream(0, bytes(100), budget, size, reread)

    data = BytesData(CONTENT)
    assert InflatedData(data.range(0, 9), "deflate", budget=MemoryBudget(), entered=entered).identity is None


def test_a_cache_is_what_it_caches(path):
    with FileData(path) as file:
        assert BlockCache(file, MemoryBudget()).identity == file.identity


def test_bytes_are_hashed_when_somebody_asks():
    data = BytesData(CONTENT)
    data.close()
    with pytest.raises(ClosedError):
        _ = data.identity
    asked = BytesData(bytearray(CONTENT))
    known = asked.identity
    asked.close()
    assert asked.identity == known == BytesData(memoryview(CONTENT)).identity


class Details(io.BytesIO):
    """What fsspec's file objects look like."""

    def __init__(self, content: bytes, **details: object) -> None:
        super().__init__(content)
        self.path = "bucket/key"
        self.details = details


@pytest.mark.parametrize("read", [StreamData, SeekableData])
def test_a_file_object_is_what_it_tells_of_itself(read, path, tmp_path):
    def identity_of(stream):
        found = read(stream).identity
        assert hash(found) == hash(pickle.loads(pickle.dumps(found)))
        return found

    with open(path, "rb") as one, open(path, "rb") as other:
        assert identity_of(one) == identity_of(other)
        before = identity_of(one)
    os.utime(path, (1, 1))
    with open(path, "rb") as one:
        assert identity_of(one) != before
    with gzip.open(tmp_path / "x.gz", "wb") as out:
        out.write(CONTENT)
    with gzip.open(tmp_path / "x.gz") as inside, open(tmp_path / "x.gz", "rb") as outside:
        assert identity_of(inside) != identity_of(outside)
    assert identity_of(io.BytesIO(CONTENT)) is None
    assert identity_of(Details(CONTENT, ETag="1")) == identity_of(Details(CONTENT, ETag="1"))
    assert identity_of(Details(CONTENT, ETag="1")) != identity_of(Details(CONTENT, ETag="2"))
    assert identity_of(Details(CONTENT)) == identity_of(Details(CONTENT))
    assert identity_of(Details(CONTENT)) != identity_of(Details(CONTENT + b"!"))


def test_a_record_and_values_of_a_model_have_identities():
    found: dict[str, set[object]] = {}
    for name in ("chunked-model.cut.cpb", "chunked-model"):
        for _ in range(2):
            with pparse.view(SAMPLES / name) as model:
                for tensor in model.values():
                    for span in tensor.spans:
                        key = f"{name} {tensor.name} {type(span.data).__name__}"
                        found.setdefault(key, set()).add(span.data.identity)
    assert {key: len(identities) for key, identities in found.items()} == dict.fromkeys(found, 1)
    assert None not in set().union(*found.values())


# Pieces of a stream behind damage, which only `ResumedData` sees, and what cannot be compared.
WITHOUT = {
    "pparse.compressed.resync.blocks": "Blocks",
    "pparse.compressed.resync.bz2": "_Shifted",
    "pparse.compressed.resync.deflate_source": "EnteredData",
    "pparse.data.file_object": "SpooledData",  # a pipe
    "pparse.riegeli.source": "ForwardData",  # a pipe
    "pparse.testing.fakes": "FakeData",  # misbehaves on purpose
}


def test_all_data_say_what_identifies_them():
    import importlib

    from tests.test_architecture import MODULES

    for module, path in MODULES:
        if "Data)" in path.read_text():
            importlib.import_module(module)
    waiting: list[type[Data]] = [Data]
    silent: set[tuple[str, str]] = set()
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            inherits = kind.__mro__[1] is not Data
            says = "identity" in vars(kind) or "self.identity" in inspect.getsource(kind)
            if kind.__module__.startswith("pparse.") and not says and not inherits:
                silent.add((kind.__module__, kind.__name__))
    assert silent == set(WITHOUT.items())


def test_whole_files_with_numbered_names_are_no_parts_of_one(tmp_path):
    (tmp_path / "log.jsonl.0").write_text('{"a":1}\n{"a":2}\n')
    (tmp_path / "log.jsonl.1").write_text('{"b":1}\n{"a":2}\n')
    with pparse.open(tmp_path / "log.jsonl.0") as document:
        assert document.root.load() == [{"a": 1}, {"a": 2}]


def test_a_first_part_that_is_cut_moves_nothing(tmp_path):
    whole = Path("docs/samples/tiny-gpt.safetensors").read_bytes()
    for number, start in enumerate(range(0, len(whole), 5000)):
        (tmp_path / f"m.safetensors.part-a{chr(97 + number)}").write_bytes(whole[start + (not number) : start + 5000])
    first = tmp_path / "m.safetensors.part-aa"
    first.write_bytes(whole[:4999])
    with pparse.view(first) as cut, pparse.view("docs/samples/tiny-gpt.safetensors") as sound:
        found = {tensor.name: tensor for tensor in cut.values() if tensor.status is pparse.Status.COMPLETE}
        assert 15 < len(found) < 21
        assert all(found[name].numpy().tobytes() == sound[name].numpy().tobytes() for name in found)


def test_a_zip_that_begins_with_a_mark_is_no_safetensors_file_whatever_it_holds():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.write("docs/samples/tiny-gpt.safetensors", "m.safetensors")
    with pparse.open(b"PK\7\10" + made.getvalue()) as document:
        assert document.format == "zip"
