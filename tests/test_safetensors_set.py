from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import textwrap

import pytest

import pparse
import pparse.data.files
from pparse import Severity, Status
from pparse.data.base import IoStats
from pparse.errors import ClosedError, MissingTensorError, PathError, PparseError, SourceError, TruncatedTensorError
from tests import sweep

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")
INDEX = "model.safetensors.index.json"


def shard_bytes(tensors):
    """A file with these tensors: a dict of names to bytes."""
    header, at = {}, 0
    for name, part in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(part)], "data_offsets": [at, at + len(part)]}
        at += len(part)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def numbered(number, total):
    return f"model-{number:05d}-of-{total:05d}.safetensors"


def content(name):
    return hashlib.sha256(name.encode()).digest()[: 5 + len(name) % 20]


class Made:
    """A sharded model on disk, and what should come out of it."""

    def __init__(self, folder, shards=3, each=4, *, index=True, metadata="metadata", **more):
        self.folder = folder
        self.names = [numbered(number, shards) for number in range(1, shards + 1)]
        self.tensors = {
            name: {f"layer.{number}.{at}": content(f"layer.{number}.{at}") for at in range(each)}
            for number, name in enumerate(self.names)
        }
        self.parts = {name: part for tensors in self.tensors.values() for name, part in tensors.items()}
        self.map = {name: shard for shard, tensors in self.tensors.items() for name in tensors}
        self.total = sum(map(len, self.parts.values()))
        for name, tensors in self.tensors.items():
            (folder / name).write_bytes(shard_bytes(tensors))
        self.index = folder / INDEX
        if index:
            self.write_index(metadata=metadata, **more)

    def write_index(self, *, metadata="metadata", total=None, weight_map=None, prefix="", **more):
        body = {
            metadata: {"total_size": self.total if total is None else total},
            "weight_map": self.map if weight_map is None else weight_map,
            **more,
        }
        self.index.write_text(json.dumps(body) + prefix)


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def summary(model):
    return {tensor.name: tensor.status for tensor in model.tensors()}


def codes(findings, severity=None):
    return [finding.code for finding in findings if severity is None or finding.severity is severity]


def both(path):
    """The viewers of an index and of the folder it lies in."""
    return [pparse.view(path / INDEX), pparse.view(path)]


# -- a good set ------------------------------------------------------------------------------------------------------


def test_index_with_shards(made):
    for model, name in zip(both(made.folder), ("safetensors-index", "safetensors-folder"), strict=True):
        with model:
            assert model.format == name
            assert list(model) == list(made.parts)
            assert len(model) == 12
            assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
            assert model["layer.2.3"].numpy().tobytes() == made.parts["layer.2.3"]
            assert "layer.0.0" in model
            assert "layer.9.0" not in model
            assert model.suggest("layer.2.9")
            with pytest.raises(KeyError, match="did you mean"):
                model["layer.2.9"]
            assert model.metadata == {"total_size": made.total}
            assert model.size_hint() == 12
            assert list(model.check()) == []
            assert list(model.check(strict=True)) == []
            assert model.status is Status.COMPLETE
            extent = model.extent()
            size = sum((made.folder / shard).stat().st_size for shard in made.names)
            assert (extent.actual, extent.expected, extent.missing_bytes) == (size, size, 0)
            assert (extent.whole, extent.count, extent.tensor_bytes) == (12, 12, made.total)
            assert (extent.first_hit, extent.resume_at, extent.resume_file) == (None, None, None)
            assert extent.parameters == {"uint8": made.total}
            assert repr(model).splitlines()[0].endswith("12 tensors, complete")
            (span,) = model["layer.1.1"].spans
            assert span.path.endswith(made.names[1])


def test_tree_of_index_and_folder(made):
    with pparse.open(made.index) as document:
        root = document.root
        assert list(root.keys()) == ["metadata", "weight_map", "shards"]
        assert document.get('weight_map["layer.1.2"]') == made.names[1]
        assert document.get("metadata.total_size") == made.total
        shards = root["shards"]
        assert {kid.key: kid.load() for kid in shards.children()} == {
            name: (made.folder / name).stat().st_size for name in made.names
        }
        for node in [*root.children(), *root["weight_map"].children(), *shards.children()]:
            assert document.node(node.path) is node
        before = root["weight_map"].to_python()
        root.unload()
        assert root["weight_map"].to_python() == before == made.map
    with pparse.open(made.folder) as document:
        assert [kid.key for kid in document.root["shards"].children()] == made.names
        assert document.get("total_size") == made.total
    with pparse.open(f"{made.index}::{made.names[2]}") as shard:
        assert shard.format == "safetensors"
        assert shard.get('tensors["layer.2.0"].data') == made.parts["layer.2.0"]


def test_long_texts_of_the_index_are_their_own(tmp_path):
    made = Made(tmp_path)
    body = json.dumps({"weight_map": made.map})[:-1] + ',"note":"' + "x" * 400 + '","note":"' + "y" * 400 + '"}'
    made.index.write_text(body)
    with pparse.open(made.index) as document:
        assert document.get("note") == "x" * 400
        assert document.get("note#2") == "y" * 400


@pytest.mark.parametrize("key", ["metadata", "__metadata__"])
def test_metadata_under_either_name(tmp_path, key):
    made = Made(tmp_path, metadata=key)
    for model in both(tmp_path):
        with model:
            assert model.metadata == {"total_size": made.total}
    made.write_index(metadata=key, total=made.total + 1)
    for model in both(tmp_path):
        with model:
            (finding,) = model.check()
            assert (finding.code, finding.severity) == ("total-size", Severity.WARNING)
            assert (finding.wanted, finding.got) == (made.total + 1, made.total)
            assert model.status is Status.COMPLETE


def test_index_without_metadata(made):
    made.index.write_text(json.dumps({"weight_map": made.map}))
    for model in both(made.folder):
        with model:
            assert dict(model.metadata) == {}
            assert list(model.check()) == []


def test_index_of_nothing(tmp_path):
    (tmp_path / INDEX).write_text('{"metadata":{},"weight_map":{}}')
    for model in both(tmp_path):
        with model:
            assert (list(model), len(model), model.get("a")) == ([], 0, None)
            assert model.status is Status.COMPLETE


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_tensors_of_a_missing_shard_are_missing_and_others_whole(made):
    (made.folder / made.names[1]).unlink()
    for model in both(made.folder):
        with model:
            assert summary(model) == {
                name: Status.MISSING if shard == made.names[1] else Status.COMPLETE for name, shard in made.map.items()
            }
            for name, shard in made.map.items():
                if shard != made.names[1]:
                    assert model[name].numpy().tobytes() == made.parts[name]
            tensor = model["layer.1.0"]
            assert (tensor.status, tensor.spans, tensor.finding.code) == (Status.MISSING, (), "missing-shard")
            with pytest.raises(MissingTensorError, match=made.names[1]):
                tensor.numpy()
            extent = model.extent()
            assert (extent.whole, extent.missing, extent.missing_files, extent.at_least) == (8, 4, 1, True)
            assert (extent.first_hit, extent.resume_file, extent.resume_at) == (
                "layer.1.0",
                str(made.folder / made.names[1]),
                0,
            )
            assert model.status is Status.TRUNCATED
            (finding,) = [f for f in model.check() if f.severity is Severity.ERROR]
            assert (finding.code, finding.path) == ("missing-shard", made.names[1])
            shards = {kid.key: kid.status for kid in model.root["shards"].children()}
            assert shards[made.names[1]] is Status.MISSING


def test_all_shards_missing(made):
    for name in made.names:
        (made.folder / name).unlink()
    with pparse.view(made.index) as model:
        assert summary(model) == dict.fromkeys(made.parts, Status.MISSING)
        assert codes(model.check(), Severity.ERROR) == ["missing-shard"] * 3


def test_tensors_of_a_cut_shard_are_truncated_or_missing(made):
    path = made.folder / made.names[1]
    size = path.stat().st_size
    os.truncate(path, size - len(made.parts["layer.1.3"]) - 2)
    for model in both(made.folder):
        with model:
            statuses = summary(model)
            assert [name for name, status in statuses.items() if status is Status.TRUNCATED] == ["layer.1.2"]
            assert [name for name, status in statuses.items() if status is Status.MISSING] == ["layer.1.3"]
            assert list(statuses.values()).count(Status.COMPLETE) == 10
            assert model["layer.1.1"].numpy().tobytes() == made.parts["layer.1.1"]
            with pytest.raises(TruncatedTensorError) as caught:
                model["layer.1.2"].numpy()
            assert caught.value.wanted - caught.value.got == 2
            extent = model.extent()
            missing = len(made.parts["layer.1.3"]) + 2
            assert (extent.missing_bytes, extent.first_hit, extent.cut_files) == (missing, "layer.1.2", 1)
            assert (extent.resume_file, extent.resume_at) == (str(made.folder / made.names[1]), size - missing)
            found = [f for f in model.check() if f.severity is Severity.ERROR]
            assert {f.code for f in found} == {"truncated"}
            assert (size, size - missing) in [(f.wanted, f.got) for f in found]
            assert model.status is Status.TRUNCATED


@pytest.mark.parametrize("damage", ["empty", "seven bytes", "zeros", "text", "folder"])
def test_shard_that_is_something_else(made, damage):
    path = made.folder / made.names[1]
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        contents = {"empty": b"", "seven bytes": b"1234567", "zeros": bytes(500), "text": b"<html>404</html>"}
        path.write_bytes(contents[damage])
    with pparse.view(made.index) as model:
        statuses = summary(model)
        assert {name for name, status in statuses.items() if status is Status.COMPLETE} == {
            name for name in made.parts if not name.startswith("layer.1.")
        }
        assert list(statuses.values()).count(Status.MISSING) == 4
        with pytest.raises(MissingTensorError):
            model["layer.1.0"].numpy()
        assert codes(model.check(), Severity.ERROR)
        assert model.status is not Status.COMPLETE


def test_a_download_resumes_at_the_first_shard_that_is_short(made):
    for name in made.names[1:]:
        path = made.folder / name
        path.write_bytes(path.read_bytes()[:-3])
    extent = pparse.view(made.index).extent()
    assert (extent.status, extent.cut_files, extent.missing_bytes) == (Status.TRUNCATED, 2, 6)
    assert (extent.resume_file, extent.resume_at) == (
        str(made.folder / made.names[1]),
        (made.folder / made.names[1]).stat().st_size,
    )


def test_what_stands_in_the_place_of_a_shard_is_no_download_to_resume(made):
    (made.folder / made.names[0]).unlink()
    (made.folder / made.names[0]).mkdir()
    extent = pparse.view(made.index).extent()
    assert (extent.status, extent.missing_files) == (Status.TRUNCATED, 1)
    assert (extent.resume_file, extent.resume_at) == (None, None)


@pytest.mark.parametrize("left", [0, 60, None])
def test_the_total_size_is_compared_only_where_all_tensors_are_known(made, left):
    path = made.folder / made.names[1]
    if left is None:
        made.write_index(total=made.total + 1)
    elif left:
        path.write_bytes(path.read_bytes()[:left])
    else:
        path.unlink()
    model = pparse.view(made.index)
    model.extent()
    assert ("total-size" in {finding.code for finding in model.findings}) is (left is None)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_whatever_shard_is_cut_in_its_header_the_size_is_a_least_one(made, number):
    path = made.folder / made.names[number]
    path.write_bytes(path.read_bytes()[:60])
    extent = pparse.view(made.index).extent()
    assert (extent.status, extent.at_least) == (Status.TRUNCATED, True)


@pytest.mark.parametrize(("damaged", "cut"), [(0, 2), (2, 0)])
def test_one_damaged_shard_makes_the_model_damaged_whatever_else_is_cut(made, damaged, cut):
    path = made.folder / made.names[damaged]
    path.write_bytes(path.read_bytes().replace(b', "layer', b", }layer", 1))  # its header ends behind the first tensor
    path = made.folder / made.names[cut]
    path.write_bytes(path.read_bytes()[:60])
    model = pparse.view(made.index)
    assert model.status is Status.DAMAGED
    assert model.extent().document_status is Status.DAMAGED


def test_an_entry_that_its_shard_does_not_have_is_missing(made):
    made.write_index(weight_map={**made.map, "gone": made.names[0]})
    for model in both(made.folder):
        with model:
            tensor = model["gone"]
            assert (tensor.status, tensor.finding.code) == (Status.MISSING, "stale-entry")
            assert made.names[0] in tensor.finding.reason
            assert "gone" in model
            statuses = summary(model)
            assert statuses.pop("gone") is Status.MISSING
            assert set(statuses.values()) == {Status.COMPLETE}
            (finding,) = [f for f in model.check() if f.severity is Severity.ERROR]
            assert (finding.code, finding.path) == ("stale-entry", "gone")
            assert model.extent().missing == 1


def test_entry_that_names_no_shard(made):
    for value in (None, 5, ["a"], {"a": "b"}, True):
        made.write_index(weight_map={**made.map, "odd": value})
        for model in both(made.folder):
            with model:
                assert summary(model)["odd"] is Status.MISSING
                assert codes(model.check(), Severity.ERROR) == ["stale-entry"]


def test_an_entry_with_the_wrong_shard_is_found_in_the_right_one(made):
    made.write_index(weight_map={**made.map, "layer.0.0": made.names[2]})
    for model in both(made.folder):
        with model:
            assert model["layer.0.0"].numpy().tobytes() == made.parts["layer.0.0"]
            statuses = summary(model)
            assert sorted(model) == sorted(made.parts)
            found = {f.code: f for f in model.check()}
            assert found["misplaced"].severity is Severity.WARNING
            assert made.names[2] in found["misplaced"].reason
            assert found["misplaced"].path == "layer.0.0"
            assert Severity.ERROR not in {f.severity for f in found.values()}
            assert set(statuses.values()) == {Status.COMPLETE}


def test_tensor_that_the_index_does_not_name(made):
    weight_map = dict(made.map)
    del weight_map["layer.1.2"]
    made.write_index(weight_map=weight_map)
    for model in both(made.folder):
        with model:
            assert model["layer.1.2"].numpy().tobytes() == made.parts["layer.1.2"]
            assert list(model) == list(made.parts)
            (finding,) = model.check()
            assert (finding.code, finding.path, finding.severity) == ("unmapped", "layer.1.2", Severity.WARNING)
            tensor = next(t for t in model.tensors() if t.name == "layer.1.2")
            assert tensor.finding == finding


@pytest.mark.parametrize("where", [0, 2])
def test_name_in_two_shards(made, where):
    """The one that is where the index says has the name, the other one is ``name#2``, whichever comes first."""
    name = "layer.1.0"
    tensors = {name: b"another", **made.tensors[made.names[where]]}
    (made.folder / made.names[where]).write_bytes(shard_bytes(tensors))
    for model in both(made.folder):
        with model:
            for _ in range(2):
                by_name = {tensor.name: tensor.numpy().tobytes() for tensor in model.tensors()}
                assert by_name == {**made.parts, f"{name}#2": b"another"}
            assert len(model) == len(set(model)) == 13
            assert model[name].numpy().tobytes() == made.parts[name]
            assert model[f"{name}#2"].numpy().tobytes() == b"another"
            assert model.get(f"{name}#3") is None
            assert model.get(f"{name}#1") is None
            (finding,) = [f for f in model.check() if f.code == "misplaced"]
            assert (finding.path, finding.severity) == (f"{name}#2", Severity.WARNING)


def test_name_in_two_files_without_an_index(tmp_path):
    made = Made(tmp_path, 2, 2, index=False)
    (tmp_path / made.names[1]).write_bytes(shard_bytes({"layer.0.1": b"another", **made.tensors[made.names[1]]}))
    with pparse.view(tmp_path) as model:
        by_name = {tensor.name: tensor.numpy().tobytes() for tensor in model.tensors()}
        assert by_name == {**made.parts, "layer.0.1#2": b"another"}
        assert {name: model[name].numpy().tobytes() for name in model} == by_name


def test_names_in_many_files_are_found_in_any_order_without_opening_all_again(tmp_path, monkeypatch):
    """Behind the second search it is known which file has which name; a cut file only has what is left of it."""
    for number in range(30):
        part = shard_bytes({"w": bytes([number]), "b": b"x"} if number % 3 else {"w": bytes([number])})
        (tmp_path / f"part-{number}.safetensors").write_bytes(part if number != 29 else part[:-1])
    with pparse.view(tmp_path) as model:
        listed = {tensor.name: tensor.status for tensor in model.tensors()}
    names = list(listed)
    assert len(names) == 50
    random.Random(1).shuffle(names)
    with pparse.view(tmp_path) as model:
        assert {name: model[name].status for name in names[:3]} == {name: listed[name] for name in names[:3]}
        turns, turn = [], type(model).open_shard
        monkeypatch.setattr(type(model), "open_shard", lambda self, shard: turns.append(shard) or turn(self, shard))
        assert {name: model[name].status for name in names} == {name: listed[name] for name in names}
        found = model["w#11"]
        assert found.numpy().tolist() == [int(found.spans[0].path.rpartition("-")[2].split(".")[0])]
        assert all(name not in model for name in ("w#31", "b#21", "c", "w#1"))
        assert len(turns) < 2 * len(names)
    for number, part in enumerate(({"w": b"0", "w#2": b"1"}, {"w": b"2"}, {"w": b"3", "w#4": b"4"})):
        (tmp_path / "taken").mkdir(exist_ok=True)
        (tmp_path / "taken" / f"part-{number}.safetensors").write_bytes(shard_bytes(part))
    wanted = {"w": b"0", "w#2": b"1", "w#3": b"2", "w#5": b"3", "w#4": b"4"}  # no name that a tensor has itself
    for names in (sorted(wanted), sorted(wanted, reverse=True), list(wanted)):
        with pparse.view(tmp_path / "taken") as model:
            assert [model[name].numpy().tobytes() for name in names] == [wanted[name] for name in names]
            assert {tensor.name: tensor.numpy().tobytes() for tensor in model.tensors()} == wanted
            assert all(name not in model for name in ("w#6", "w#2#2", "w#999999999"))


def test_extra_shard_file(made):
    extra = made.folder / "model-00004-of-00004.safetensors"
    extra.write_bytes(shard_bytes({"more": b"x"}))
    for model in both(made.folder):
        with model:
            (finding,) = model.check()
            assert (finding.code, finding.path, finding.severity) == ("extra-shard", extra.name, Severity.WARNING)
            assert list(model) == list(made.parts)


def test_other_files_in_the_folder_are_no_shards(made):
    for name in ("config.json", "tokenizer.json", "README.md", "model.safetensors.index.json.bak", "pytorch_model.bin"):
        (made.folder / name).write_text("{}")
    (made.folder / "sub.safetensors").mkdir()
    for model in both(made.folder):
        with model:
            assert list(model.check()) == []
            assert list(model) == list(made.parts)


OUTSIDE = (
    "../x.safetensors",
    "../../x.safetensors",
    "a/../../x.safetensors",
    "./../x.safetensors",
    "..",
    ".",
    "",
    "/",
    "\\x.safetensors",
    "..\\x.safetensors",
    "a\\b.safetensors",
    "C:x.safetensors",
    "C:\\x.safetensors",
    "C:/x.safetensors",
    "a\0b.safetensors",
    "\0",
    "a//b.safetensors",
    "./model.safetensors",
    "a/./b.safetensors",
    "sub/..",
    "//server/share/x.safetensors",
    "x.safetensors/",
)


@pytest.fixture
def opened(monkeypatch):
    """The paths that are opened during a test."""
    paths = []
    real = pparse.data.files.open_descriptor

    def note(path):
        paths.append(path)
        return real(path)

    monkeypatch.setattr(pparse.data.files, "open_descriptor", note)
    return paths


@pytest.mark.parametrize("name", [*OUTSIDE, "ABSOLUTE"])
def test_shard_names_that_leave_the_folder_are_never_opened(tmp_path, opened, name):
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    target = tmp_path / "outer" / "x.safetensors"
    for place in (target, tmp_path / "x.safetensors"):
        place.write_bytes(shard_bytes({"secret": b"xyz"}))
    name = os.fspath(target) if name == "ABSOLUTE" else name
    made = Made(folder, 1, 2)
    made.write_index(weight_map={**made.map, "secret": name})
    for source in (made.index, folder):
        opened.clear()
        with pparse.view(source) as model:
            assert summary(model) == {**dict.fromkeys(made.parts, Status.COMPLETE), "secret": Status.MISSING}
            tensor = model["secret"]
            assert (tensor.status, tensor.finding.code) == (Status.MISSING, "missing-shard")
            with pytest.raises(MissingTensorError):
                tensor.numpy()
            (finding,) = [f for f in model.check() if f.severity is Severity.ERROR]
            assert (finding.code, finding.path) == ("missing-shard", name)
            assert "leads out of its folder" in finding.reason
            assert [kid.status for kid in model.root["shards"].children()].count(Status.MISSING) == 1
        inside = os.path.realpath(folder) + os.sep
        assert opened
        assert all((os.path.realpath(path) + os.sep).startswith(inside) for path in opened if "\0" not in path)
        assert not any("\0" in path or os.path.realpath(path) == os.path.realpath(target) for path in opened)
    with pytest.raises(PathError):
        pparse.open(f"{made.index}::../x.safetensors")


def test_shards_in_a_folder_below(tmp_path):
    made = Made(tmp_path, 2, 2)
    (tmp_path / "parts").mkdir()
    for name in made.names:
        (tmp_path / name).rename(tmp_path / "parts" / name)
    made.write_index(weight_map={name: f"parts/{shard}" for name, shard in made.map.items()})
    with pparse.view(made.index) as model:
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
        assert list(model.check()) == []


def test_symbolic_links_of_a_download_cache(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abcd"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    made = Made(snapshot)
    for name in [*made.names, INDEX]:
        path = snapshot / name
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        path.symlink_to(os.path.join("..", "..", "blobs", blob.name))
    for model in both(snapshot):
        with model:
            assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
            assert list(model.check(strict=True)) == []
    with pparse.view(snapshot / made.names[0]) as model:
        assert list(model) == list(made.tensors[made.names[0]])


def test_a_set_is_opened_by_relative_paths_from_anywhere(made, monkeypatch):
    monkeypatch.chdir(made.folder)
    for source in (INDEX, ".", os.path.join("..", made.folder.name, INDEX)):
        with pparse.view(source) as model:
            assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts


def test_index_without_a_folder_names_the_tensors_and_says_that_shards_were_not_read(made):
    with pparse.view(made.index.read_bytes()) as model:
        assert summary(model) == dict.fromkeys(made.parts, Status.UNSUPPORTED)
        assert codes(model.check(), Severity.NOTE) == ["shards-not-read"]
        assert not codes(model.check(), Severity.ERROR)


def test_index_that_is_an_open_file_finds_its_shards_by_the_name_of_the_file(made):
    with open(made.index, "rb") as file, pparse.view(file) as model:
        assert summary(model) == dict.fromkeys(made.parts, Status.COMPLETE)


def test_link_that_leads_nowhere_is_a_missing_shard(made):
    path = made.folder / made.names[0]
    path.unlink()
    path.symlink_to("../../blobs/none")
    for model in both(made.folder):
        with model:
            assert list(summary(model).values()).count(Status.MISSING) == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_shard_that_is_a_pipe_is_not_waited_for(made):
    path = made.folder / made.names[0]
    path.unlink()
    os.mkfifo(path)
    with pparse.view(made.index) as model:
        assert list(summary(model).values()).count(Status.MISSING) == 4


# -- opening ---------------------------------------------------------------------------------------------------------


def test_shards_are_opened_on_demand_and_once(made, opened):
    shards = [os.fspath(made.folder / name) for name in made.names]
    for source in (made.index, made.folder):
        opened.clear()
        with pparse.view(source) as model:
            assert [opened.count(shard) for shard in shards] == [0, 0, 0]
            assert model["layer.1.2"].numpy().tobytes() == made.parts["layer.1.2"]
            assert [opened.count(shard) for shard in shards] == [0, 1, 0]
            assert model["layer.1.3"].numpy().tobytes() == made.parts["layer.1.3"]
            assert "layer.2.0" in model
            assert [opened.count(shard) for shard in shards] == [0, 1, 1]
            list(model.tensors())
            list(model.check())
            for name in made.parts:
                model[name].numpy()
            model.extent()
            assert [opened.count(shard) for shard in shards] == [1, 1, 1]
            assert opened.count(os.fspath(made.index)) == 1


def test_one_tensor_reads_one_shard(made):
    stats = IoStats(log=True)
    with pparse.view(made.index, stats=stats) as model:
        model["layer.2.1"].numpy()
    read = {os.path.basename(source) for source, _, _ in stats.log}
    assert read == {INDEX, made.names[2]}


def test_changed_shard_is_noticed(made):
    with pparse.view(made.index) as model:
        tensor = model["layer.0.0"]
        path = made.folder / made.names[0]
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(pparse.DataChangedError):
            tensor.numpy()


def test_closing_closes_the_shards(made):
    for model in both(made.folder):
        tensor = model["layer.0.0"]
        model.close()
        with pytest.raises(ClosedError):
            tensor.numpy()
        with pytest.raises(PparseError):
            list(model)


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_NOFILE here")
def test_120_shards_with_40_descriptors(tmp_path):
    made = Made(tmp_path, 120, 2)
    script = textwrap.dedent(
        """
        import hashlib, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        import pparse
        from pparse.limits import Limits

        def content(name):
            return hashlib.sha256(name.encode()).digest()[: 5 + len(name) % 20]

        for source in sys.argv[1:]:
            with pparse.view(source, limits=Limits(open_files=16)) as model:
                tensors = dict(model)
                assert len(tensors) == 240
                for name, tensor in tensors.items():
                    assert tensor.numpy().tobytes() == content(name)
                for name in reversed(list(tensors)):
                    assert model[name].numpy().tobytes() == content(name)
                assert list(model.check(strict=True)) == []
        print("good")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, os.fspath(made.index), os.fspath(tmp_path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_NOFILE here")
def test_120_shards_with_40_descriptors_by_default(tmp_path):
    """The pool's own 64 are more than the system gives here: it must do with fewer."""
    made = Made(tmp_path, 300, 1)
    script = textwrap.dedent(
        """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        import pparse

        with pparse.view(sys.argv[1]) as model:
            tensors = dict(model)
            assert len(tensors) == 300
            assert {tensor.status.value for tensor in tensors.values()} == {"complete"}
            assert all(tensor.numpy().size for tensor in tensors.values())
        print("good")
        """
    )
    done = subprocess.run([sys.executable, "-c", script, os.fspath(made.index)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


# -- folders ---------------------------------------------------------------------------------------------------------


def test_folder_without_an_index(tmp_path):
    made = Made(tmp_path, index=False)
    with pparse.view(tmp_path) as model:
        assert model.format == "safetensors-folder"
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
        assert model["layer.2.0"].numpy().tobytes() == made.parts["layer.2.0"]
        assert list(model.check(strict=True)) == []
        assert model.get("none") is None


def test_folder_without_an_index_and_a_number_missing(tmp_path):
    made = Made(tmp_path, index=False)
    (tmp_path / made.names[1]).unlink()
    with pparse.view(tmp_path) as model:
        assert set(summary(model)) == {name for name in made.parts if not name.startswith("layer.1.")}
        (finding,) = [f for f in model.check() if f.severity is Severity.ERROR]
        assert (finding.code, finding.path) == ("missing-shard", made.names[1])
        extent = model.extent()
        assert (extent.missing_files, extent.at_least, extent.whole) == (1, True, 8)
        assert (extent.resume_file, extent.resume_at) == (str(made.folder / made.names[1]), 0)
        assert model.status is Status.TRUNCATED
        assert {kid.key: kid.status for kid in model.root["shards"].children()}[made.names[1]] is Status.MISSING


def test_folder_with_the_last_number_missing(tmp_path):
    made = Made(tmp_path, index=False)
    (tmp_path / made.names[2]).unlink()
    with pparse.view(tmp_path) as model:
        assert codes(model.check(), Severity.ERROR) == ["missing-shard"]


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["m-00000-of-00003.safetensors", "m-00002-of-00003.safetensors"], ["m-00001-of-00003.safetensors"]),
        (["m-0.safetensors", "m-1.safetensors", "m-3.safetensors"], []),  # nobody says how many there are
        (["part1.safetensors", "part2.safetensors"], []),
        (["m-1-of-2.safetensors", "m-2-of-2.safetensors"], []),
        (["m-1-of-2.safetensors"], ["m-2-of-2.safetensors"]),
        (["m_rank0.safetensors", "m_rank1.safetensors"], []),
        (["m-00001-of-00002.safetensors", "m-00007-of-00002.safetensors"], []),  # a number that cannot be
    ],
)
def test_shards_numbered_otherwise_are_taken_in_order(tmp_path, names, missing):
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(shard_bytes({f"t{number}": b"abc"}))
    with pparse.view(tmp_path) as model:
        assert list(model) == [f"t{number}" for number in range(len(names))]
        assert [f.path for f in model.check() if f.severity is Severity.ERROR] == missing


def test_folder_with_one_file(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(shard_bytes({"a": b"abc", "b": b""}))
    (tmp_path / "config.json").write_text("{}")
    with pparse.view(tmp_path) as model:
        assert list(model) == ["a", "b"]
        assert model["a"].numpy().tobytes() == b"abc"
        assert list(model.check(strict=True)) == []


def test_metadata_of_a_folder_without_an_index_is_the_first_files(tmp_path):
    text = b'{"__metadata__":{"format":"pt"}}'
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pparse.view(tmp_path) as model:
        assert model.metadata == {"format": "pt"}


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors", "adapter.safetensors"],
        ["a-00001-of-00001.safetensors", "b-00001-of-00001.safetensors"],
        ["model.safetensors.index.json", "model.fp16.safetensors.index.json", "model-00001-of-00001.safetensors"],
    ],
)
def test_folder_with_several_models_lists_them(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b'{"weight_map":{}}' if name.endswith(".json") else shard_bytes({"a": b"x"}))
    models = [name for name in names if name.endswith(".json")] or names
    with pytest.raises(PathError) as caught:
        pparse.view(tmp_path)
    assert all(name in str(caught.value) for name in models)
    assert "several models" in str(caught.value)
    with pparse.view(tmp_path / models[0]) as model:  # as it says
        list(model)


def test_folder_of_many_models_lists_some(tmp_path):
    for number in range(30):
        (tmp_path / f"{chr(97 + number % 26) * (1 + number // 26)}.safetensors").write_bytes(shard_bytes({"a": b"x"}))
    with pytest.raises(PathError, match="and 22 more"):
        pparse.view(tmp_path)


def test_folder_with_no_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(pparse.FormatError, match="folder"):
        pparse.view(tmp_path)
    with pytest.raises(SourceError):
        pparse.view(tmp_path / "none")


# -- indexes ---------------------------------------------------------------------------------------------------------


def test_index_above_a_mebibyte_gives_the_same(tmp_path):
    """A small index is decoded whole, a large one is read through its nodes: the answers are one."""
    rng = random.Random(7)
    made = Made(tmp_path, 4, 15)
    names = list(made.map)
    rng.shuffle(names)
    weight_map = {name: made.map[name] for name in names}
    weight_map["stale \u00e9\n"] = made.names[0]
    weight_map["odd"] = 5
    weight_map["moved"] = made.names[1]
    weight_map["layer.0.7"] = made.names[3]
    del weight_map["layer.2.9"]
    weight_map["nowhere"] = "none.safetensors"
    weight_map["outside"] = "../none.safetensors"

    def answers():
        with pparse.view(made.index) as model:
            listed = [(t.name, t.status, t.shape, t.finding) for t in model.tensors()]
            found = [
                (name, t.status, t.finding and t.finding.code)
                for name in [*weight_map, "layer.2.9", "not there"]
                if (t := model.find(name)) is not None
            ]
            data = [model[name].numpy().tobytes() for name in made.parts]
            return {
                "listed": listed,
                "found": found,
                "data": data,
                "metadata": dict(model.metadata),
                "hint": model.size_hint(),
                "extent": model.extent().to_dict(),
                "findings": set(model.check()),
                "format": model.format,
                "keys": list(model.root["shards"].keys()),
                "status": model.status,
            }

    made.write_index(weight_map=weight_map)
    assert made.index.stat().st_size < 1 << 20
    small = answers()
    assert small["data"] == list(made.parts.values())
    made.write_index(weight_map=weight_map, filler="x" * (1 << 20))
    assert made.index.stat().st_size > 1 << 20
    assert answers() == small
    made.write_index(weight_map=weight_map, prefix=" " * (1 << 20))
    assert answers() == small


def test_large_index_of_many_names(tmp_path):
    made = Made(tmp_path, 2, 3)
    name = "model.layers.{}.self_attn.q_proj.weight"
    weight_map = {name.format(number): made.names[0] for number in range(6_000)}
    made.write_index(weight_map={**weight_map, **made.map}, filler="x" * (1 << 20))
    assert made.index.stat().st_size > 1 << 20  # a smaller index is decoded whole
    with pparse.view(made.index) as model:
        assert model["layer.1.2"].numpy().tobytes() == made.parts["layer.1.2"]
        assert model[name.format(5_999)].status is Status.MISSING
        assert model.get(name.format(6_000)) is None
        extent = model.extent()
        assert (extent.whole, extent.missing) == (6, 6_000)
        assert model.size_hint() == 6_006


def test_cut_index_gives_what_is_whole(made):
    body = made.index.read_text()
    for at in sweep.some(range(len(body)), 5, ends=16):
        made.index.write_text(body[:at])
        whole = [name for name in made.map if f'"{name}": "{made.map[name]}"' in body[:at]]
        with pparse.view(made.index, format="safetensors-index") as model:
            statuses = summary(model)
            assert {name for name, status in statuses.items() if status is Status.COMPLETE} >= set(whole), at
            for name in whole:
                assert model[name].numpy().tobytes() == made.parts[name]
            assert codes(model.check(), Severity.ERROR), at
            assert model.status is not Status.COMPLETE, at


def test_every_changed_byte_of_the_index_is_survived(tmp_path):
    made = Made(tmp_path, 2, 1)
    body = made.index.read_bytes()
    rng = random.Random(5)
    for at in sweep.some(range(len(body)), 2, ends=8):
        for value in sweep.values((*b'"{],\\', 0xFF, rng.randrange(256)), at, 3):
            changed = bytearray(body)
            changed[at] = value
            made.index.write_bytes(changed)
            with pparse.view(made.index, format="safetensors-index") as model:
                for tensor in model.tensors():
                    if tensor.status is Status.COMPLETE and tensor.name in made.parts:
                        assert tensor.numpy().tobytes() == made.parts[tensor.name]
                list(model.check())
                model.get("layer.0.0")
                list(model.root.children())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"metadata":{"total_size":1},"weight_map":%s}x', "trailing-data"),
        ('{"metadata":{"total_size":1,},"weight_map":%s}', "malformed"),
        ('{"metadata":{},"other":[1,,2],"weight_map":%s}', "malformed"),
        ('\ufeff{"weight_map":%s}', "byte-order-mark"),
    ],
)
def test_damaged_index_gives_what_is_whole(made, body, code):
    made.index.write_text(body % json.dumps(made.map))
    with pparse.view(made.index, format="safetensors-index") as model:
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
        assert code in codes(model.check())


def test_damaged_entry_of_the_map_costs_only_itself(made):
    text = json.dumps(made.map).replace('"layer.1.1": "', '"layer.1.1": x"')
    made.index.write_text('{"weight_map":' + text + "}")
    with pparse.view(made.index) as model:
        # Its shard is known from the others, and has it.
        assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
        assert model["layer.1.1"].numpy().tobytes() == made.parts["layer.1.1"]
        assert {"malformed", "unmapped"} <= set(codes(model.check()))


@pytest.mark.parametrize(
    "body", ["", "[]", "null", '"x"', "{}", '{"weight_map":[]}', '{"weight_map":"x"}', '{"weight_map":null}']
)
def test_index_without_a_map(made, body):
    made.index.write_text(body)
    with pparse.view(made.index, format="safetensors-index") as model:
        assert list(model) == []
        assert model.get("layer.0.0") is None
        assert codes(model.check(), Severity.ERROR)
        assert model.status is not Status.COMPLETE


def test_an_error_behind_a_thousand_warnings_is_not_lost(tmp_path):
    made = Made(tmp_path, 2, 1100)
    made.write_index(weight_map={"layer.0.0": made.names[0], "gone": made.names[1]})
    with pparse.view(made.index) as model:
        found = list(model.check())
    assert codes(found).count("unmapped") <= 1000
    assert codes(found, Severity.ERROR) == ["findings-omitted"]
    assert "1 of them are errors" in found[-1].reason


def test_names_that_occur_twice_in_the_map(made):
    text = json.dumps(made.map)[:-1] + f', "layer.0.0": "{made.names[2]}"}}'
    made.index.write_text('{"weight_map":' + text + "}")
    with pparse.view(made.index) as model:
        assert model["layer.0.0"].numpy().tobytes() == made.parts["layer.0.0"]
        assert set(model) == set(made.parts)
        assert set(summary(model).values()) == {Status.COMPLETE}
        assert "duplicate-key" in codes(model.check())


def test_other_words_in_the_index_are_shown(made):
    made.write_index(weight_map=None, format="pt", version=3)
    with pparse.open(made.index) as document:
        assert (document.get("format"), document.get("version")) == ("pt", 3)


# -- memory ----------------------------------------------------------------------------------------------------------


@needs_proc
def test_listing_500_shards_keeps_little(tmp_path):
    made = Made(tmp_path, 500, 3)
    script = textwrap.dedent(
        """
        import gc, sys, tracemalloc
        import pparse

        for source in sys.argv[1:]:
            with pparse.view(source) as model:  # what is imported for it is not counted
                assert sum(1 for _ in model.tensors()) == 1500
            tracemalloc.start()
            model = pparse.view(source)
            assert sum(1 for _ in model.tensors()) == 1500
            gc.collect()
            kept, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert model.extent().whole == 1500
            assert model.extraction.session.pool.open_count <= 64
            print(kept)
            model.close()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, os.fspath(made.index), os.fspath(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for kept in map(int, done.stdout.split()):
        assert kept < 5 << 18


def test_tensors_that_are_held_keep_their_shards_alone(made):
    with pparse.view(made.index) as model:
        held = model["layer.1.1"]
        for _ in range(3):
            list(model.tensors())
        gc.collect()
        assert held.numpy().tobytes() == made.parts["layer.1.1"]


# -- an index that is cut --------------------------------------------------------------------------------------------


def test_all_shards_beside_a_cut_index_are_shown_with_where_to_resume_it(made, run):
    text = made.index.read_text()
    for size in (text.index('"weight_map": {') + 15, text.index(".safetensors") + 20, len(text) - 2):
        made.index.write_text(text[:size])
        for source in (made.index, made.index.parent):
            with pparse.view(source, **({"format": "safetensors-index"} if source is made.index else {})) as model:
                assert {name: tensor.numpy().tobytes() for name, tensor in model.items()} == made.parts
                assert model[next(reversed(made.parts))].status is Status.COMPLETE
                assert model.status is Status.TRUNCATED
                if model.parser.index.unnamed_shards():
                    (finding,) = [one for one in model.findings if one.code == "extra-shard"]
                    assert (finding.severity, finding.source.endswith(made.index.name)) == (Severity.ERROR, True)
                    assert f"resume its download at byte {size}" in finding.reason
                    named = made.tensors[made.names[0]]  # of the others, one finding says it for all
                    assert all(one.path in named for one in model.findings if one.code == "unmapped")
        for command in ("ls", "info", "check"):
            ran = run(command, made.index, "-f", "safetensors-index")
            assert ran.code == 4


@pytest.fixture
def lacking(tmp_path):
    """An index of 30 shards, none of which is there."""
    shards = {f"t{number}": f"s{number}.safetensors" for number in range(30)}
    path = tmp_path / INDEX
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": shards}))
    return path


def test_of_an_index_without_its_shards_get_says_that_these_are_missing(run, lacking):
    done = run("get", lacking, "t7x")
    assert done.code == 4
    assert "30 shards that may hold it are missing" in done.err
    assert "header" not in done.err


@pytest.mark.parametrize("command", ["info", "ls"])
def test_of_many_missing_shards_ten_are_named_and_the_rest_counted(command, run, lacking):
    lines = run(command, lacking).out.splitlines()
    assert sum(line.endswith("fetch it") for line in lines) == 10
    assert any("… and 20 more; 'pparse check' names all" in line for line in lines)


def test_check_names_all_missing_shards(run, lacking):
    lines = run("check", lacking).out.splitlines()
    assert sum(line.endswith("fetch it") for line in lines) == 30


def test_an_empty_shard_is_to_be_fetched_from_its_first_byte(tmp_path):
    shutil.copytree("docs/samples/sharded", tmp_path / "m")
    shard = tmp_path / "m" / "model-00002-of-00003.safetensors"
    shard.write_bytes(b"")
    with pparse.view(tmp_path / "m") as model:
        extent = model.extent()
        assert [(file.file, file.at) for file in extent.resume] == [(str(shard), 0)]
        assert (extent.missing_files, extent.cut_files, extent.missing_bytes) == (0, 1, 8)
