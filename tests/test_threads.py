"""One document shared by threads: everybody gets the answers that one thread alone gets."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import sys
import tarfile
import threading
import zipfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import pparse
from pparse.compressed.inflated import InflatedData
from pparse.data.base import BytesData, IoStats
from pparse.data.range_status import Ledger, Stretches
from pparse.errors import PparseError
from pparse.findings import Finding, FindingList
from pparse.limits import MemoryBudget
from pparse.locking import GROUP, guarded, steps
from pparse.protobuf.schema import Schema
from pparse.tree.index import Retention
from tests import sweep
from tests.truth.cases import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

THREADS = 8


@contextmanager
def switching() -> Iterator[None]:
    """Switch between threads as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Return what ``work`` gives in each of several threads, which begin at one time; an error is raised again."""
    found: list[Any] = [None] * count
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        try:
            found[number] = work(number)
        except BaseException as error:
            errors.append(error)

    with switching():
        workers = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
    return found


# -- questions ---------------------------------------------------------------------------------------------------------


def value_of(node: Any) -> Any:
    """Return a node's value as something that can be compared, or the name of the error."""
    try:
        return node.to_python()
    except PparseError as error:
        return type(error).__name__


def bytes_of(give: Callable[[], Any]) -> Any:
    """Return the bytes of an array, or the name of the error."""
    try:
        return give().tobytes()
    except PparseError as error:
        return type(error).__name__


def ask_model(viewer: Any, names: list[str], order: random.Random) -> dict[Any, Any]:
    """Ask for everything of a model, in some order."""
    found: dict[Any, Any] = {}

    def ask_one(name: str) -> None:
        tensor = viewer[name]
        found["tensor", name] = (tensor.name, str(tensor.dtype), tensor.shape, str(tensor.status))
        found["bytes", name] = bytes_of(tensor.numpy)
        if tensor.shape and tensor.shape[0] > 1:
            found["slice", name] = bytes_of(lambda: tensor[1:])

    questions: list[Callable[[], Any]] = [
        lambda: found.update(names=list(viewer)),
        lambda: found.update(count=len(viewer)),
        lambda: found.update(there=[name in viewer for name in (*names, "nobody")]),
        lambda: found.update(status=str(viewer.status)),
        lambda: found.update(metadata=repr(viewer.metadata)),
        lambda: found.update(listed=[(tensor.name, tensor.shape) for tensor in viewer.tensors()]),
        lambda: found.update(root=[(kid.path, kid.kind) for kid in viewer.root.children()]),
        *(lambda name=name: ask_one(name) for name in names),
    ]
    order.shuffle(questions)
    for question in questions:
        question()
    return found


def ask_tree(document: Any, order: random.Random) -> dict[Any, Any]:
    """Ask for everything of a tree, in some order."""
    found: dict[Any, Any] = {}
    root = document.root

    def ask_members() -> None:
        parser = document.result.listing
        found["members"] = [(member.name, member.kind, member.size) for member in parser.members()]
        found["found"] = [getattr(parser.find_member(name), "path", None) for name, _, _ in found["members"][:20]]

    questions: list[Callable[[], Any]] = [
        lambda: found.update(count=len(root)),
        lambda: found.update(status=str(root.status)),
        lambda: found.update(kinds=[(kid.path, kid.kind, str(kid.status)) for kid in root.children()]),
        lambda: found.update(walk=[(visit.path, visit.kind) for visit in document.walk()]),
        lambda: found.update(values=[value_of(kid) for kid in root.children()]),
        lambda: found.update(lens=[len(kid) for kid in root.children() if kid.shape != "scalar"]),
        lambda: found.update(keys=list(map(repr, root)) if root.shape == "map" else []),
        lambda: found.update(again=[root[key].kind for key in root] if root.shape == "map" else []),
        ask_members,
    ]
    order.shuffle(questions)
    for question in questions:
        question()
    return found


def opened(case: Case, folder: Path, budget: str) -> Any:
    """Return the document of a case."""
    target = "::".join((case.write(folder), *case.wrapped.inner))
    options = {"message": case.sample.message} if case.sample.message else {}
    return pparse.open(target, budget=budget, options=options)


def compare(case: Case, folder: Path, tries: int, budget: str = "16MiB") -> None:
    """Compare what several threads are told with what one alone is told."""
    with opened(case, folder, budget) as document:
        is_model = case.sample.kind == "tensors"
        names = list(document.view()) if is_model else []

    def ask(document: Any, viewer: Any, seed: int) -> dict[Any, Any]:
        order = random.Random(seed)
        return ask_model(viewer, names, order) if is_model else ask_tree(document, order)

    with opened(case, folder, budget) as document:
        alone = ask(document, document.view() if is_model else None, 0)
    for _ in range(tries):
        with opened(case, folder, budget) as document:
            viewer = document.view() if is_model else None
            for answers in together(lambda number: ask(document, viewer, number)):  # noqa: B023 -- called at once
                assert answers.keys() == alone.keys()
                for question, answer in alone.items():
                    assert answers[question] == answer, question


SAMPLES = (
    "riegeli-plain",
    "riegeli-brotli",
    "riegeli-transposed",
    "graph-def",
    "protobuf",
    "cpb-plain",
    "cpb-zstd",
    "cpb-transposed",
    "safetensors",
    "safetensors-meta",
    "json",
)


@pytest.mark.parametrize("sample", sweep.part(SAMPLES, 0.3))
def test_threads_that_share_a_document_get_the_answers_of_one(sample: str, tmp_path: Path) -> None:
    compare(Case.parse(f"{sample}/plain/none/threads"), tmp_path, 4 if sweep.full else 2)


ARCHIVED = [
    (sample, wrapper)
    for wrapper in ("zip-deflated", "tar-gz", "bz2", "xz", "zst", "lz4", "zip-in-zip", "gz-in-tar")
    for sample in ("riegeli-transposed", "protobuf", "graph-def", "safetensors-meta", "json")
]


# Five samples to a wrapping: from any offset, every second one meets each sample and each wrapping.
@pytest.mark.parametrize(("sample", "wrapper"), sweep.some(ARCHIVED, 2))
def test_threads_that_share_a_document_in_an_archive_get_the_answers_of_one(
    sample: str, wrapper: str, tmp_path: Path
) -> None:
    compare(Case.parse(f"{sample}/{wrapper}/none/threads"), tmp_path, 2)


def test_threads_that_share_a_sharded_model_get_the_answers_of_one(tmp_path: Path) -> None:
    compare(Case.parse("safetensors-sharded/folder/none/threads"), tmp_path, 6 if sweep.full else 3)


@pytest.mark.parametrize("sample", sweep.part(["safetensors", "json", "protobuf", "cpb-zstd", "riegeli-brotli"]))
def test_threads_that_evict_what_others_use_get_the_answers_of_one(sample: str, tmp_path: Path) -> None:
    compare(Case.parse(f"{sample}/tar-gz-of-zip/none/threads"), tmp_path, 3 if sweep.full else 2, budget="6MiB")


# Damage behind which all stays readable: every thread comes to it by itself.
@pytest.mark.parametrize(
    "line",
    sweep.part(
        [
            "safetensors/zip-stored/bit:60000:3/threads",
            "json/tar/cut:9000/threads",
            "json/bz2/noise:1347:16:205/threads",
            "cpb-plain/gz/zeros:20178:16/threads",
            "riegeli-plain/plain/zeros:40:4096/threads",
            "protobuf/zip-deflated/zeros:2527:400/threads",
        ]
    ),
)
def test_threads_that_share_a_damaged_document_meet_no_errors_but_ours(line: str, tmp_path: Path) -> None:
    case = Case.parse(line)
    for _ in range(5 if sweep.full else 3):
        try:
            document = opened(case, tmp_path, "16MiB")
            viewer = document.view() if case.sample.kind == "tensors" else None
        except PparseError:
            return

        def look(number: int) -> None:
            order = random.Random(number)
            try:
                if viewer is not None:  # noqa: B023 -- called at once
                    ask_model(viewer, list(viewer), order)  # noqa: B023
                elif document.root.shape != "scalar":  # noqa: B023
                    ask_tree(document, order)  # noqa: B023
            except pparse.EngineError:
                raise
            except PparseError:
                pass

        together(look)
        document.close()


# -- archives and streams ----------------------------------------------------------------------------------------------


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def nested_archive() -> tuple[bytes, dict[str, bytes]]:
    """Return a tar.gz that holds a zip, and the members of that."""
    files = {f"f{number}": noise(40_000, number) + bytes(40_000) for number in range(6)}
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    outer = io.BytesIO()
    with tarfile.open(fileobj=outer, mode="w:gz") as tar:
        info = tarfile.TarInfo("inner.zip")
        info.size = len(inner.getvalue())
        tar.addfile(info, io.BytesIO(inner.getvalue()))
    return outer.getvalue(), files


def test_threads_read_members_of_an_archive_while_others_list_and_check_it() -> None:
    content, files = nested_archive()
    for _ in range(3):
        with pparse.open(content, budget="2MiB") as document:
            inner = document.result.parser.enter("inner.zip")
            parser = inner.result.parser

            def work(number: int) -> Any:
                if number % 4 == 0:
                    return [member.name for member in parser.members()] == list(files)  # noqa: B023
                if number % 4 == 1:
                    return not list(inner.check())  # noqa: B023
                name = f"f{number % 6}"
                child = parser.enter(name)  # noqa: B023
                return child.data.pread(0, 90_000) == files[name] and inner.node(name).load() == files[name]  # noqa: B023

            assert together(work) == [True] * THREADS


def test_one_member_is_one_extraction_whoever_enters_it() -> None:
    content, _ = nested_archive()
    for _ in range(5):
        with pparse.open(content) as document:
            found = together(lambda _: document.result.parser.enter("inner.zip"))
        assert all(one is found[0] for one in found)


def test_a_stream_comes_to_its_end_while_the_sessions_lock_is_taken() -> None:
    document = pparse.open(gzip.compress(noise(300_000)), format="gzip")
    data = document.result.parser.content
    with document.session.lock:
        reader = threading.Thread(target=data.verify, daemon=True)
        reader.start()
        reader.join(60)
        assert not reader.is_alive(), "it waits for the session's lock"
    assert data.finished
    document.close()


def test_a_stream_whose_decoder_is_evicted_between_two_steps_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(600_000)
    packed = BytesData(gzip.compress(content))
    data = InflatedData(packed.range(0, packed.size or 0), "gzip", budget=MemoryBudget("8MiB"))
    near, dropped = InflatedData._go_near, []

    def go_near(self: InflatedData, offset: int) -> None:
        near(self, offset)
        if len(dropped) in (0, 2, 5):  # as another thread does that needs the room
            self._run.drop()
        dropped.append(offset)

    monkeypatch.setattr(InflatedData, "_go_near", go_near)
    assert data.pread(0, len(content)) == content
    data.verify()
    assert data.finished
    assert len(dropped) > 6


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_a_child_is_one_object_whichever_thread_asks_for_it() -> None:
    for _ in range(20):
        with pparse.open(b'{"a": {"b": [1, 2, 3]}, "c": 4}') as document:
            found = together(lambda _: (document.root, document.root["a"], document.root["a"]["b"]))
            for one in found:
                assert all(mine is first for mine, first in zip(one, found[0], strict=True))


def test_a_node_that_others_unload_still_loads() -> None:
    with pparse.open(b"[" + b",".join(b"[%d, 2]" % number for number in range(300)) + b"]") as document:
        root = document.root

        def work(number: int) -> list[int]:
            found = []
            for _ in range(10):
                if number % 2:
                    root.unload()
                found.append(len(root) + root[7][0].load() + len(root.load()))
            return found

        assert together(work) == [[607] * 10] * THREADS


def test_an_index_that_is_evicted_while_it_is_used_is_made_again() -> None:
    content = b"{" + b",".join(b'"key %d": %d' % (number, number) for number in range(20_000)) + b"}"
    with pparse.open(content, budget="2MiB", retain="64KiB") as document:
        root = document.root

        def work(number: int) -> bool:
            if number == 0:
                for _ in range(200):
                    try:
                        document.session.budget.charge(2 << 20, "all there is").release()
                    except pparse.LimitError:
                        pass
                return True
            return all(holds(wanted) for wanted in range(number, 20_000, 1_500))

        def holds(wanted: int) -> bool:
            while True:  # the other thread may hold all there is just now
                with suppress(pparse.LimitError):
                    return root[f"key {wanted}"].load() == wanted and f"no {wanted}" not in root

        assert together(work) == [True] * THREADS


def test_listings_of_a_sharded_model_that_overlap_number_names_as_one_alone(tmp_path: Path) -> None:
    for shard in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        header = json.dumps(
            {f"t{number}": {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]} for number in range(4)}
        ).encode()
        (tmp_path / shard).write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pparse.view(str(tmp_path)) as viewer:
        alone = list(viewer)
        assert alone[4] == "t0#2"
        first = viewer.tensors()
        found = [next(first).name for _ in range(5)]
        assert list(viewer) == alone
        assert found + [tensor.name for tensor in first] == alone


# -- the lock ----------------------------------------------------------------------------------------------------------


def free(lock: Any) -> bool:
    """Say whether another thread could take the lock now."""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    worker = threading.Thread(target=take)
    worker.start()
    worker.join()
    return found[0]


def test_a_listing_does_not_hold_the_lock_while_it_is_suspended() -> None:
    viewer = pparse.view("docs/samples/tiny-gpt.safetensors")
    lock = viewer.extraction.session.lock
    streams: list[Callable[[], Any]] = [
        viewer.tensors,
        lambda: iter(viewer),
        viewer.root.children,
        viewer.root.keys,
        viewer.extraction.walk,
        lambda: viewer.extraction.result.parser.walk(viewer.root),
    ]
    for make in streams:
        stream = make()
        next(stream)
        assert free(lock)
    viewer.close()


def test_the_bytes_of_a_tensor_are_read_without_the_lock() -> None:
    with open("docs/samples/tiny-gpt.safetensors", "rb") as file:
        content = file.read()
    taken: list[bool] = []

    class Watched(BytesData):
        def _preadinto(self, offset: int, view: memoryview) -> int:
            taken.append(viewer.extraction.session.lock._is_owned())
            return super()._preadinto(offset, view)

    viewer = pparse.view(Watched(content))
    tensor = viewer["h.0.attn.c_attn.weight"]
    tensor.numpy()
    assert taken
    assert not any(taken)
    viewer.close()


def test_a_stream_in_steps_gives_what_came_before_an_error_first() -> None:
    lock = threading.RLock()

    def source() -> Iterator[int]:
        for number in range(100):
            assert lock._is_owned()  # type: ignore[attr-defined]
            yield number
        raise ValueError("here")

    found: list[int] = []
    with pytest.raises(ValueError, match="here"):
        found.extend(steps(lock, source()))  # type: ignore[arg-type]
    assert found == list(range(100))


def test_an_interrupt_in_a_stream_comes_before_the_items_that_precede_it() -> None:
    # Whoever takes these may wait for a reader that never comes.
    def source() -> Iterator[int]:
        yield from range(100)
        raise KeyboardInterrupt

    found: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(steps(threading.RLock(), source()))  # type: ignore[arg-type]
    assert len(found) == 63  # of the groups of 1, 2, 4 … that were whole


def test_a_stream_in_steps_runs_ahead_by_no_more_than_was_taken() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(10_000):
            made.append(number)
            yield number

    for taken, _ in enumerate(steps(threading.RLock(), source()), 1):  # type: ignore[arg-type]
        assert len(made) <= min(2 * taken, taken + GROUP)


def test_a_door_gives_a_stream_as_it_is_to_who_is_inside() -> None:
    class House:
        lock = threading.RLock()

        def rooms(self) -> Iterator[int]:
            yield 1

    house = House()
    door = guarded(House.rooms)
    with house.lock:
        assert door(house).__name__ == "rooms"
    assert door(house).__name__ == "steps"


# -- what is shared below the lock -------------------------------------------------------------------------------------


def test_counters_lose_nothing() -> None:
    stats = IoStats(log=True)

    def work(number: int) -> None:
        for at in range(2_000):
            stats.count(f"source {number}", at, 2)
            stats.discover()

    together(work)
    assert (stats.reads, stats.bytes, stats.discoveries) == (16_000, 32_000, 16_000)


def test_findings_are_kept_once_each() -> None:
    findings = FindingList()
    together(lambda _: [findings.add(Finding("code", str(number))) for number in range(500)])
    assert sorted(int(finding.reason) for finding in findings) == list(range(500))
    assert (findings.errors, findings.omitted) == (500, 0)


def test_stretches_are_noted_and_looked_up_at_one_time() -> None:
    proofs, ledger = Stretches(), Ledger()
    far = 1 << 40  # behind all the others: its place in the tables changes all the time
    proofs.add(far, far + 10)
    ledger.condemn(far, far + 10, "bad")

    def work(number: int) -> bool:
        for at in range(200):
            start = 20 * (THREADS * (at * 37 % 200) + number)
            proofs.add(start, start + 10)
            ledger.condemn(start, start + 10, "bad")
            if not proofs.covers(far + 2, far + 5) or ledger.why_wrong(far + 2, far + 5) is None:
                return False
        return True

    assert together(work) == [True] * THREADS


def test_what_is_retained_is_dropped_by_the_budget_while_it_is_used() -> None:
    budget = MemoryBudget("1MiB")
    with pparse.open(b"[" + b",".join(b"%d" % number for number in range(500)) + b"]") as document:
        nodes = list(document.root.children())
        retention = Retention(budget, "64KiB")  # fewer than there are: the oldest one goes all the time
        lock = threading.Lock()  # the session's, which the budget does not take

        def work(number: int) -> None:
            for _ in range(10):
                if number == 0:
                    budget.charge(1 << 20, "all there is").release()
                    continue
                for node in nodes:
                    with lock:
                        retention.touch(node)

        together(work)
        for node in nodes:
            retention.forget(node)
        assert (len(retention), retention.held) == (0, 0)
        retention.clear()
        assert budget.used == 0


def test_a_charge_that_is_evicted_while_it_is_resized_counts_what_it_holds() -> None:
    budget = MemoryBudget("1MiB")
    charge = budget.charge(1_000, "mine", lambda: None)

    def work(number: int) -> bool:
        for turn in range(10_000):
            if number:
                charge.release()
                continue
            wanted = 1_000 + turn % 2
            charge.resize(wanted)
            if charge.amount not in (0, wanted):
                return False
        return True

    assert together(work, 2) == [True, True]
    assert budget.used == charge.amount


def test_types_of_a_schema_are_the_same_objects_in_every_thread() -> None:
    from pparse.protos import descriptor_set

    for _ in range(5):
        schema = Schema(descriptor_set())
        wanted = ("tensorflow.SavedModel", "tensorflow.NodeDef", "tensorflow.GraphDef")
        found = together(
            lambda _: [(kind := schema.message(name), kind.fields, kind.by_name) for name in wanted]  # noqa: B023
        )
        for one in found:
            for mine, first in zip(one, found[0], strict=True):
                assert all(a is b for a, b in zip(mine, first, strict=True))
                assert all(mine[1][field.number] is field for field in mine[2].values())
