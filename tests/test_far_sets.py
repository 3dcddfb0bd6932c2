"""Sets of far shards: their heads are asked for at once, by few requests, and an error of one stays its own."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter

import pytest

import pparse
from pparse.data.base import Distance
from pparse.data.block_cache import BLOCK, THREADS, in_parallel
from pparse.errors import SourceError
from tests.test_block_cache import FarData

SHARDS = 40
INDEX = "model.safetensors.index.json"


class Shard(FarData):
    """A far file that knows which threads asked for its bytes."""

    def __init__(self, folder, content, name):
        super().__init__(content, name)
        self.folder = folder
        self.askers = []

    def _pread(self, offset, length):
        self.askers.append(threading.current_thread())
        with self.folder.request(self.name):
            return super()._pread(offset, length)


class Far(pparse.Folder):
    """A far folder, each of whose answers takes a request; ``together`` so many of them must be under way at once."""

    def __init__(self, files, together=0):
        self.files = files
        self.made = {}
        self.asked = Counter()
        self.broken = {}
        self.most = self._now = 0
        self._lock = threading.Lock()
        self._gate = threading.Barrier(together) if together else None

    class _Request:
        def __init__(self, folder, name):
            self.folder = folder
            self.name = name

        def __enter__(self):
            folder = self.folder
            with folder._lock:
                folder.asked[self.name] += 1
                folder._now += 1
                folder.most = max(folder.most, folder._now)
                gate = folder._gate
            if gate is not None:
                gate.wait(30)
                folder._gate = None
            if self.name in folder.broken and folder.asked[self.name] > folder.broken[self.name]:
                raise SourceError("the network is down", source=self.name)

        def __exit__(self, *error):
            with self.folder._lock:
                self.folder._now -= 1

    def request(self, name):
        return self._Request(self, name)

    def list(self):
        return list(self.files)

    def open(self, name):
        if name not in self.files:
            raise FileNotFoundError(name)
        shard = self.made[name] = Shard(self, self.files[name], name)
        return shard

    @property
    def readers(self):
        return {thread for shard in self.made.values() for thread in shard.askers}


def made_set(tensors, width=0, shards=SHARDS):
    """Return the files of a set; longer names make longer headers."""
    files, mapped = {}, {}
    for number in range(1, shards + 1):
        name = f"model-{number:05}-of-{shards:05}.safetensors"
        names = [f"layer.{number}.{each}{'x' * width}" for each in range(tensors)]
        rows = {
            tensor: {"dtype": "U8", "shape": [100], "data_offsets": [100 * at, 100 * at + 100]}
            for at, tensor in enumerate(names)
        }
        mapped |= dict.fromkeys(names, name)
        header = json.dumps(rows).encode()
        files[name] = len(header).to_bytes(8, "little") + header + bytes(range(100)) * tensors
    index = json.dumps({"metadata": {}, "weight_map": mapped}).encode()
    return files, index


def rows_of(model):
    return [(tensor.name, tensor.shape, str(tensor.dtype), tensor.status) for tensor in model.tensors()]


@pytest.fixture(scope="module")
def short():
    return made_set(20)


@pytest.fixture(scope="module")
def long():
    files, index = made_set(200, 300, 20)
    assert BLOCK < int.from_bytes(next(iter(files.values()))[:8], "little") < 4 * BLOCK
    return files, index


def far_model(files, index, *, together=0, **options):
    folder = Far(files, together)
    return folder, pparse.view(FarData(index, INDEX), folder=folder, **options)


def near_rows(files, index, tmp_path):
    for name, content in {**files, INDEX: index}.items():
        (tmp_path / name).write_bytes(content)
    with pparse.view(tmp_path / INDEX) as model:
        return rows_of(model)


def test_heads_of_a_far_set_are_read_at_once_by_one_request_each(short, tmp_path):
    folder, model = far_model(*short, together=THREADS)  # 16 must be under way at once, or it waits in vain
    with model:
        assert rows_of(model) == near_rows(*short, tmp_path)
        assert model.extent().document_status is pparse.Status.COMPLETE
        assert folder.asked == dict.fromkeys(short[0], 1)
        assert folder.most == THREADS
        assert threading.main_thread() not in folder.readers
        before = folder.asked.total()
        assert model["layer.7.3"].numpy().tolist() == list(range(100))
        assert folder.asked.total() - before <= 2


def test_longer_heads_take_a_second_request_each(long, tmp_path):
    folder, model = far_model(*long)
    with model:
        assert rows_of(model) == near_rows(*long, tmp_path)
    assert folder.asked == dict.fromkeys(long[0], 2)
    assert threading.main_thread() not in folder.readers


@pytest.mark.parametrize("budget", ["1MiB", "4MiB"])
def test_a_small_budget_holds_while_heads_are_fetched(long, tmp_path, budget):
    folder, model = far_model(*long, budget=budget)
    with model:
        assert rows_of(model) == near_rows(*long, tmp_path)
        account = model.extraction.session.budget
        assert account.peak <= account.limit
    assert max(folder.asked.values()) <= 4


def test_an_index_too_large_to_be_held_decoded_is_read_through_its_nodes(tmp_path):
    files, index = made_set(100, 300, 10)
    assert 4 * len(index) > 1 << 20 > len(index)
    rows = near_rows(files, index, tmp_path)
    with pparse.view(tmp_path / INDEX, budget="1MiB") as model:
        assert rows_of(model) == rows


def test_headers_of_a_mebibyte_take_two_requests(tmp_path):
    files, index = made_set(1000, 1200, 2)
    assert int.from_bytes(files[min(files)][:8], "little") > 1 << 20
    folder, model = far_model(files, index)
    with model:
        assert rows_of(model) == near_rows(files, index, tmp_path)
    assert folder.asked == dict.fromkeys(files, 2)


def test_one_tensor_of_a_far_set_takes_few_requests(short, long):
    for files, index in (short, long):
        folder, model = far_model(files, index)
        with model:
            name = next(name for name in json.loads(index)["weight_map"] if name.startswith("layer.7.3"))
            assert model[name].numpy().tolist() == list(range(100))
            assert list(folder.made) == ["model-00007-of-000" + f"{len(files)}.safetensors"]
            assert folder.asked.total() <= 2


def test_shards_are_listed_in_a_tree_at_once(short):
    folder, model = far_model(*short, together=THREADS)
    with model:
        sizes = [kid.load() for kid in model.extraction.node("shards").children()]
        assert sizes == [len(content) for content in short[0].values()]
        assert folder.most == THREADS


def test_a_far_folder_without_an_index_is_a_set_too(short, tmp_path):
    folder = Far(short[0], THREADS - 1)  # the first shard tells that they are far
    folder._gate, gate = None, folder._gate
    with pparse.view(folder) as model:
        tensors = model.tensors()
        next(tensors)
        folder._gate = gate
        assert 1 + sum(1 for _ in tensors) == 20 * SHARDS
        assert folder.asked == dict.fromkeys(short[0], 1)
        folder.asked.clear()
    with pparse.view(Far(short[0])) as model:
        assert rows_of(model) == near_rows(*short, tmp_path)
        assert model["layer.40.3"].numpy().tolist() == list(range(100))


class Objects(Far):
    """A far folder that gives file objects."""

    distance = Distance.FAR

    class _Object(io.BytesIO):
        def __init__(self, folder, content, name):
            super().__init__(content)
            self.name = name
            self.folder = folder
            self.askers = []

        def read(self, count=-1):
            if not count:
                return b""  # whether it is binary
            self.askers.append(threading.current_thread())
            with self.folder.request(self.name):
                return super().read(count)

    def open(self, name):
        self.made[name] = self._Object(self, self.files[name], name)
        return self.made[name]


def test_file_objects_of_a_far_folder_are_read_through_a_cache_too(short, tmp_path):
    folder = Objects(short[0], THREADS)
    with pparse.view(short[1], folder=folder) as model:
        assert rows_of(model) == near_rows(*short, tmp_path)
        assert folder.asked == dict.fromkeys(short[0], 1)
        assert folder.most == THREADS
        assert threading.main_thread() not in folder.readers
        assert model["layer.7.3"].numpy().tolist() == list(range(100))
    assert all(made.closed for made in folder.made.values())
    near = Objects(short[0])
    near.distance = Distance.NEAR
    with pparse.view(short[1], folder=near) as model:
        assert rows_of(model) == near_rows(*short, tmp_path)
    assert near.readers == {threading.main_thread()}


def test_a_folder_of_fsspec(short, tmp_path):
    fsspec = pytest.importorskip("fsspec")

    class Remote(pparse.Folder):
        distance = Distance.FAR

        def __init__(self, url):
            self.files, self.path = fsspec.core.url_to_fs(url)

        def list(self):
            return [name.rpartition("/")[2] for name in self.files.ls(self.path, detail=False)]

        def open(self, name):
            return self.files.open(f"{self.path}/{name}")

    url = f"memory://{tmp_path.name}"
    for name, content in {**short[0], INDEX: short[1]}.items():
        with fsspec.open(f"{url}/{name}", "wb") as out:
            out.write(content)
    rows = near_rows(*short, tmp_path)
    with pparse.view(Remote(url)) as model:
        assert rows_of(model) == rows
    with fsspec.open(f"{url}/{INDEX}") as index, pparse.view(index, folder=Remote(url)) as model:
        assert rows_of(model) == rows
        assert model["layer.7.3"].numpy().tolist() == list(range(100))


def test_an_error_of_one_shard_stays_with_it(short):
    files = dict(short[0])
    gone, broken = sorted(files)[3], sorted(files)[5]
    del files[gone]
    folder, model = far_model(files, short[1])
    folder.broken[broken] = 0
    with model:
        found = {tensor.name: tensor.status for tensor in model.tensors()}
        missing = {name for name, status in found.items() if status is pparse.Status.MISSING}
        assert missing == {f"layer.{number}.{each}" for number in (4, 6) for each in range(20)}
        assert set(found.values()) == {pparse.Status.MISSING, pparse.Status.COMPLETE}
        assert {(finding.code, finding.path) for finding in model.findings} == {
            ("missing-shard", gone),
            ("missing-shard", broken),
        }
        folder.files = short[0]  # it is there now
        folder.broken.clear()
        assert {tensor.status for tensor in model.tensors()} == {pparse.Status.COMPLETE}


def test_a_head_whose_length_is_nonsense_is_not_fetched(short, tmp_path):
    files = dict(short[0])
    name = sorted(files)[2]
    files[name] = b"\xff" * 7 + b"\x7f" + files[name][8:]
    _, model = far_model(files, short[1])
    with model:
        assert rows_of(model) == near_rows(files, short[1], tmp_path)


def test_far_sets_of_more_shards_than_are_opened_at_once_are_read_in_turns(tmp_path):
    files, index = made_set(2, shards=150)
    folder, model = far_model(files, index)
    with model:
        assert rows_of(model) == near_rows(files, index, tmp_path)
    assert folder.asked == dict.fromkeys(files, 1)
    assert folder.most <= THREADS


def test_no_thread_is_started_for_near_shards(short, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    rows = near_rows(*short, tmp_path)
    assert len(rows) == 20 * SHARDS
    with pparse.view(tmp_path) as model:
        assert rows_of(model) == rows
        assert sum(1 for _ in model.extraction.node("shards").children()) == SHARDS
    assert not started


# -- several at once ---------------------------------------------------------------------------------------------------


def test_what_is_done_at_once_comes_back_in_order_with_its_errors():
    def work(number):
        if number % 3 == 0:
            raise ValueError(number)
        return -number

    found = in_parallel(work, range(100))
    assert [value for value, _ in found] == [None if number % 3 == 0 else -number for number in range(100)]
    assert [str(error) for _, error in found if error is not None] == [str(number) for number in range(0, 100, 3)]
    assert in_parallel(work, []) == []


def test_no_more_threads_run_than_are_allowed():
    lock, now, most = threading.Lock(), 0, 0
    gate = threading.Barrier(3)

    def work(number):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        if number < 3:
            gate.wait(30)
        with lock:
            now -= 1

    in_parallel(work, range(50), most=3)
    assert most == 3


def test_nothing_more_is_begun_after_an_interruption(monkeypatch):
    begun, go = [], threading.Event()

    def work(number):
        begun.append(number)
        go.wait(30)

    def interrupt(self, timeout=None):
        raise KeyboardInterrupt

    threads = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (threads.append(self), start(self)))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupt)
        with pytest.raises(KeyboardInterrupt):
            in_parallel(work, range(50), most=2)
    go.set()
    for thread in threads:
        thread.join(30)
    assert len(begun) <= 2
