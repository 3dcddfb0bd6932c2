"""Handles: tensors, viewers, extractions and nodes in other processes, and that only the same bytes are read there."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import os
import pickle
import shutil
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pparse
from pparse.data.base import BytesData
from pparse.document import handles
from pparse.tensors.pickling import Unopened
from pparse.tensors.tensor import Tensor

SAMPLES = Path(__file__).parent.parent / "docs" / "samples"
METHODS = multiprocessing.get_all_start_methods()
MODELS = (
    "tiny-gpt.safetensors",
    "tiny-gpt.cut.safetensors",
    "sharded",
    "sharded/model.safetensors.index.json",
    "chunked-model.cut.cpb",
    "chunked-model",
    "backup.tar.gz::backup/models.zip::tiny-gpt.safetensors",
)


@pytest.fixture(autouse=True)
def _no_documents() -> None:
    handles.at_fork()  # each test begins as a new process does


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a model in several files, which tests may change."""
    return Path(shutil.copytree(SAMPLES / "sharded", tmp_path / "sharded"))


def again(thing: object) -> object:
    return pickle.loads(pickle.dumps(thing))


def mean(tensor: Tensor) -> float:
    return float(tensor.numpy().astype(np.float64).mean())


@pytest.mark.parametrize("name", MODELS)
def test_a_tensor_that_was_pickled_is_the_same_in_everything(name):
    with pparse.view(SAMPLES.as_posix() + "/" + name) as model:
        for tensor in model.values():
            found = again(tensor)
            assert isinstance(found, Tensor)
            told = (found.name, found.shape, found.dtype, found.stored_dtype, found.encoding, found.byteorder)
            assert told == (
                tensor.name,
                tensor.shape,
                tensor.dtype,
                tensor.stored_dtype,
                tensor.encoding,
                tensor.byteorder,
            )
            assert isinstance(found, Unopened)
            assert (found.status, found.verified, found.spans) == (tensor.status, tensor.verified, tensor.spans)
            assert type(found) is type(tensor)
            if tensor.is_complete and tensor.dtype is not None:
                assert found.numpy().tobytes() == tensor.numpy().tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_viewer_a_node_and_an_extraction_that_were_pickled_are_the_same(name):
    with pparse.view(SAMPLES.as_posix() + "/" + name) as model:
        found = again(model)
        assert isinstance(found, Unopened)
        assert list(found) == list(model)
        assert type(found) is type(model)
        assert (found.status, found.format, dict(found.metadata)) == (model.status, model.format, dict(model.metadata))
        node = again(model.root.child(0))
        assert (node.path, node.kind, node.start) == (
            model.root.child(0).path,
            model.root.child(0).kind,
            model.root.child(0).start,
        )
        extraction = again(model.extraction)
        assert (extraction.path.endswith(name), extraction.format) == (True, model.extraction.format)


def test_a_handle_takes_a_few_hundred_bytes():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        for thing in (*model.values(), model, model.extraction, model.root):
            assert len(pickle.dumps(thing)) <= 600
    with pparse.view(SAMPLES / "sharded") as model:
        assert max(len(pickle.dumps(tensor)) for tensor in model.values()) <= 700


def test_unpickling_opens_nothing(folder):
    with pparse.view(folder) as model:
        tensors, viewer = pickle.dumps(list(model.values())), pickle.dumps(model)
        count = len(model)
    shutil.rmtree(folder)
    found = pickle.loads(tensors)
    assert len(found) == count
    assert found[0].shape
    assert found[0].ndim == len(found[0].shape)
    assert pickle.dumps(found) == tensors  # nor does pickling it once more
    with pytest.raises(pparse.SourceError):
        found[0].numpy()
    with pytest.raises(pparse.SourceError):
        len(pickle.loads(viewer))


def test_handles_of_one_document_share_one_document():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        first, second, viewer = again(list(model.values())[:2] + [model])
        assert first.numpy() is not None
        assert second.numpy() is not None
        assert first._owner is second._owner
        assert viewer.extraction is first._owner.extraction
        assert first._owner is not model


def test_a_document_that_was_closed_is_opened_again():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        kept = pickle.dumps(model)
    with pickle.loads(kept) as found:
        assert len(found) == 21
    with pickle.loads(kept) as found:
        assert len(found) == 21


@pytest.mark.parametrize("change", ["another", "longer", "written"])
def test_a_shard_that_was_replaced_is_refused_and_the_others_are_read(folder, change):
    with pparse.view(folder / "model.safetensors.index.json") as model:
        kept = {tensor.name: (pickle.dumps(tensor), mean(tensor), tensor.spans[0].path) for tensor in model.values()}
        whole = pickle.dumps(model)
    shard = sorted(folder.glob("*.safetensors"))[0]
    before = shard.stat()
    if change == "another":
        other = shard.with_suffix(".new")
        shutil.copyfile(shard, other)
        other.replace(shard)
    else:
        with shard.open("ab" if change == "longer" else "r+b") as file:
            file.write(b"\0" if change == "longer" else shard.read_bytes()[:1])
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused = 0
    for content, value, path in kept.values():
        handles.at_fork()
        if os.path.basename(path.rpartition("::")[2]) == shard.name:
            with pytest.raises(pparse.DataChangedError, match="not the one that was pickled"):
                pickle.loads(content).numpy()
            refused += 1
        else:
            assert mean(pickle.loads(content)) == value
    assert 0 < refused < len(kept)
    with pytest.raises(pparse.DataChangedError):
        list(pickle.loads(whole).values())


def test_a_file_that_is_another_now_is_refused_while_the_old_one_is_still_open(folder):
    with pparse.view(folder) as model:
        kept = [pickle.dumps(tensor) for tensor in model.values()]
    old = pickle.loads(kept[0])
    assert old.numpy() is not None
    for shard in folder.glob("*.safetensors"):
        os.utime(shard, ns=(1, 1))
    with pparse.view(folder) as model:
        new = [pickle.dumps(tensor) for tensor in model.values()]
    for content in new:
        with pytest.raises(pparse.DataChangedError):
            pickle.loads(kept[0]).numpy()
        assert mean(pickle.loads(content)) == mean(pickle.loads(content))


def test_on_another_machine_size_and_time_are_compared(folder, monkeypatch):
    with pparse.view(folder / "model.safetensors.index.json") as model:
        count = len(list(model.values()))
        kept = pickle.dumps(model)
    monkeypatch.setattr(handles, "_host", lambda: "elsewhere")
    moved = folder.with_name("moved")
    folder.rename(moved)
    shutil.copytree(moved, folder)  # other inodes, the same times
    found = pickle.loads(kept)
    assert len(list(found.values())) == count
    handles.at_fork()
    os.utime(sorted(folder.glob("*.safetensors"))[0], ns=(1, 1))
    with pytest.raises(pparse.DataChangedError):
        list(pickle.loads(kept).values())


def test_a_relative_path_is_found_from_another_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    with pparse.view("sharded/model.safetensors.index.json") as model:
        kept = pickle.dumps(model)
        names = list(model)
    monkeypatch.chdir("/")
    assert list(pickle.loads(kept)) == names


def test_bytes_travel_with_the_handle():
    content = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
    for source in (content, bytearray(content), memoryview(content), [content[:100], content[100:]]):
        with pparse.view(source) as model:
            assert mean(again(model["ln_f.weight"])) == mean(model["ln_f.weight"])


def test_how_it_was_opened_travels_with_the_handle():
    limits = pparse.Limits(nesting=3)
    path = SAMPLES / "tiny-gpt.safetensors"
    with pparse.open(path, format="json", budget="2MiB", limits=limits, retain=1000, include=["a"]) as document:
        pass
    found = handles.reopen(handles.handle_of(document))
    session = found.session
    assert (found.format, session.budget.limit, session.limits.nesting) == ("json", 2 << 20, 3)
    assert (session.retain, session.include) == (1000, ("a",))


def test_what_cannot_be_opened_again_is_refused():
    content = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
    for source, word in ((io.BytesIO(content), "BytesIO"), (BytesData(content), "BytesData")):
        with pparse.view(source) as model, pytest.raises(pparse.SourceError, match=word):
            pickle.dumps(model)
    with pytest.raises(pparse.SourceError, match="belongs to no document"):
        pickle.dumps(Tensor("made", None, (), ()))


def test_a_tensor_is_copied_by_handing_it_on():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        tensor = model["ln_f.weight"]
        assert copy.copy(tensor) is tensor
        assert copy.deepcopy({"a": tensor})["a"] is tensor


def test_the_second_of_two_equal_names_is_found_again():
    row = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    header = b"{" + row % (0, 1) + b"," + row % (1, 2) + b"}"
    with pparse.view(len(header).to_bytes(8, "little") + header + b"\1\2") as model:
        assert [(tensor.name, again(tensor).spans) for tensor in model.values()] == [
            (tensor.name, tensor.spans) for tensor in model.values()
        ]


@pytest.mark.parametrize("method", METHODS)
def test_workers_read_every_tensor_of_a_set_from_handles(method):
    with (
        pparse.view(SAMPLES / "sharded") as model,
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool,
    ):
        tensors = list(model.values())
        assert list(pool.map(mean, tensors)) == [mean(tensor) for tensor in tensors]


def test_a_worker_that_meets_another_file_fails_at_its_task(folder):
    with pparse.view(folder / "model.safetensors.index.json") as model:
        tensors = list(model.values())
        kept = pickle.dumps(tensors)
    for shard in folder.glob("*.safetensors"):
        os.utime(shard, ns=(1, 1))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(pparse.DataChangedError):
            pool.submit(mean, pickle.loads(kept)[0]).result()
        assert pool.submit(len, [1]).result() == 1  # the pool is not broken


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no /proc")
def test_a_forked_process_goes_on_reading_through_descriptors_of_its_own():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        tensor = model["ln_f.weight"]
        wanted = mean(tensor)
        before = opened()
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(write, repr((opened() < before, mean(tensor) == wanted)).encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"(True, True)"
        os.close(read)
        assert mean(tensor) == wanted


def opened() -> int:
    """Return how many descriptors of the sample this process has."""
    return sum(
        "tiny-gpt" in os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{name}")
    )


def test_a_tensor_is_an_array_for_numpy():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        tensor = model["h.0.attn.c_attn.weight"] if "h.0.attn.c_attn.weight" in model else next(iter(model.values()))
        assert np.dtype(tensor.dtype) == tensor.numpy().dtype
        assert (tensor.ndim, tensor.size, tensor.itemsize) == (
            tensor.numpy().ndim,
            tensor.numpy().size,
            tensor.numpy().itemsize,
        )
        assert np.array_equal(np.from_dlpack(tensor), tensor.numpy())
        assert tensor.__dlpack_device__() == (1, 0)


def test_a_type_without_a_place_in_dlpack_is_refused():
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    with (
        pparse.view(len(header).to_bytes(8, "little") + header + bytes(4)) as model,
        pytest.raises(pparse.UnsupportedError, match=r"bfloat16.*torch\(\)"),
    ):
        np.from_dlpack(model["a"])


# -- what is shared ----------------------------------------------------------------------------------------------------


def test_a_handle_of_another_file_opens_another_document_and_leaves_the_old_one_as_it_is(folder):
    index, last = folder / "model.safetensors.index.json", folder / "model-00003-of-00003.safetensors"
    with pparse.view(index) as model:
        name = next(tensor.name for tensor in model.values() if tensor.spans[0].path.endswith(last.name))
        first = next(iter(model))
        old = pickle.dumps(model)
    found = pickle.loads(old)
    assert found[first].numpy() is not None  # another shard: the last one is not open yet
    other = last.with_suffix(".new")
    content = last.read_bytes()
    other.write_bytes(content[:-2000] + bytes(2000))
    other.replace(last)
    with pparse.view(index) as model:
        new, wanted = pickle.dumps(model[name]), model[name].numpy()
    assert np.array_equal(pickle.loads(new).numpy(), wanted)
    with pytest.raises(pparse.DataChangedError, match="not the one that was pickled"):
        found[name].numpy()


@pytest.mark.parametrize("kind", ["tensors", "viewer"])
def test_threads_that_use_what_was_unpickled_at_once_get_the_same(kind):
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        wanted = {tensor.name: tensor.numpy().tobytes() for tensor in model.values()}
        kept = pickle.dumps(list(model.values()) if kind == "tensors" else model)
    errors: list[BaseException] = []

    def work(found: object) -> None:
        try:
            tensors = found if isinstance(found, list) else [found[name] for name in wanted]
            assert {tensor.name: tensor.numpy().tobytes() for tensor in tensors} == wanted
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(30):
            found = pickle.loads(kept)
            threads = [threading.Thread(target=work, args=(found,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


def test_closing_what_was_unpickled_does_not_close_it_for_others():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        kept = pickle.dumps((model, model["ln_f.weight"]))
    _, tensor = pickle.loads(kept)
    wanted = tensor.numpy()
    with pickle.loads(kept)[0] as viewer:
        assert len(viewer) == 21
    assert np.array_equal(tensor.numpy(), wanted)
    with pickle.loads(kept)[0] as viewer:
        assert len(viewer) == 21
        assert viewer.extraction.session is not tensor._owner.extraction.session


def test_what_is_known_of_unopened_things_is_shown_without_opening_them(folder):
    with pparse.view(folder) as model:
        kept = pickle.dumps((next(iter(model.values())), model))
    shutil.rmtree(folder)
    tensor, viewer = pickle.loads(kept)
    assert repr(tensor).endswith("not opened yet>")
    assert "16" in repr(tensor)
    assert repr(viewer).endswith("not opened yet>")
    for thing in (tensor, viewer):
        assert "not opened yet" in thing._repr_html_()
        with thing:
            pass
    viewer.close()
    assert not hasattr(tensor, "compute")
    assert isinstance(tensor, Unopened)
    assert isinstance(viewer, Unopened)


def test_a_tensor_can_be_used_after_a_with_block():
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        found = again(model["ln_f.weight"])
        with found:
            pass
        assert np.array_equal(found.numpy(), model["ln_f.weight"].numpy())


def test_the_four_documents_used_last_stay_open(tmp_path):
    kept = []
    for number in range(6):
        path = tmp_path / f"{number}.safetensors"
        shutil.copyfile(SAMPLES / "tiny-gpt.safetensors", path)
        with pparse.view(path) as model:
            kept.append(pickle.dumps(model["ln_f.weight"]))
    opened = []
    real = handles._part

    def part(document: pparse.Extraction, handle: handles.Handle) -> pparse.Extraction:
        opened.append(Path(document.name).stem)
        return real(document, handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handles, "_part", part)
        for number in (0, 1, 0, 2, 0, 3, 0, 4, 0):
            assert pickle.loads(kept[number]).numpy() is not None
            gc.collect()
    assert opened == ["0", "1", "2", "3", "4"]
    assert len(handles._latest) == 4


def test_all_tensors_of_a_folder_come_from_one_document():
    with pparse.view(SAMPLES / "sharded") as model:
        found = [again(tensor) for tensor in model.values()]
        assert len({id(tensor.numpy()) and id(tensor._owner.extraction.session) for tensor in found}) == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle_works(protocol):
    with pparse.view(SAMPLES / "tiny-gpt.safetensors") as model:
        list(model.check())
        things = pickle.dumps((model["ln_f.weight"], model, model.root, model.extraction, model.findings), protocol)
        tensor, viewer, root, extraction, findings = pickle.loads(things)
        assert tensor.numpy().tobytes() == model["ln_f.weight"].numpy().tobytes()
        assert (len(viewer), root.kind, extraction.format) == (21, "safetensors", "safetensors")
        assert list(findings) == list(model.findings)


def test_bytes_are_copied_once_whatever_they_were_given_as():
    content = (SAMPLES / "tiny-gpt.safetensors").read_bytes()
    for source in (content, bytearray(content), memoryview(content)):
        with pparse.view(source) as model:
            assert len(pickle.dumps(list(model.values()))) < 1.5 * len(content)


def test_attributes_that_changed_are_refused_as_such(folder):
    shard = sorted(folder.glob("*.safetensors"))[0]
    with pparse.view(shard) as model:
        kept = pickle.dumps(next(iter(model.values())))
    shard.chmod(0o600)
    with pytest.raises(pparse.DataChangedError, match="its attributes changed"):
        pickle.loads(kept).numpy()


def test_a_member_that_is_not_there_is_no_file_beside_the_archive(tmp_path):
    shutil.copyfile(SAMPLES / "backup.tar.gz", tmp_path / "a.tar.gz")
    shutil.copyfile(SAMPLES / "tiny-gpt.safetensors", tmp_path / "tiny-gpt.safetensors")
    with pparse.open(tmp_path / "a.tar.gz") as document:
        handle = handles.handle_of(document)
    handle.inner = ("tiny-gpt.safetensors",)
    with pytest.raises(pparse.PathError):
        handles.reopen(handle)
