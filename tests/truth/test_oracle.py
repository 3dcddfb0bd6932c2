"""A planted bug is caught: what makes the matrix worth running."""

from __future__ import annotations

import os
import signal

import pytest

from pparse.errors import DamagedTensorError
from pparse.findings import Status
from tests import sweep
from tests.rows import rows
from tests.truth.cases import DRAWN, WAY_NAMES, Case, choose
from tests.truth.damage import Damage, Reach
from tests.truth.oracle import has_rival
from tests.truth.runner import run_case, watched
from tests.truth.samples import SAMPLES, load
from tests.truth.samples_proto import numbers_behind
from tests.truth.wrappers import WRAPPERS, applies, wrap

BIT = load("safetensors").values["h.2.mlp.weight"].place[0] + 100
CUT = "safetensors/plain/cut:60000"
STORED = wrap("safetensors", "zip-stored").files["pack/model.safetensors"].chain[0].start


def clauses(case: str, folder) -> set[str]:
    return {letter for letter, _ in run_case(case, folder)}


# -- bugs, one each: what is patched, the case that meets it, the clauses that may tell ------------------------------


def plant_all_complete(monkeypatch):
    from pparse.tensors.tensor import Tensor

    monkeypatch.setattr(Tensor, "status", property(lambda tensor: Status.COMPLETE, lambda tensor, value: None))


def plant_all_verified(monkeypatch):
    from pparse.tensors.tensor import Tensor

    monkeypatch.setattr(Tensor, "verified", property(lambda tensor: True, lambda tensor, value: None))


def plant_wrong_byte_recovered(monkeypatch):
    from pparse.recovery.target import TargetFile

    write = TargetFile.write

    def wrong(file, content):
        if file.path.endswith(".safetensors") and len(content) > 1000:
            content = bytes(content[:-1]) + bytes([content[-1] ^ 1])
        return write(file, content)

    monkeypatch.setattr(TargetFile, "write", wrong)


def plant_member_dropped(monkeypatch):
    from pparse.parsers.tar.parser import TarParser

    files = TarParser.files
    monkeypatch.setattr(
        TarParser, "files", lambda parser: (member for member in files(parser) if member.name != "pack/table.csv")
    )


def plant_checksum_forgotten(monkeypatch):
    from pparse.containers import archive, content

    def forgetful(*words, checksum=None, **more):
        return content.read_through(*words, **more)

    monkeypatch.setattr(archive, "read_through", forgetful)


def plant_tensor_dropped(monkeypatch):
    from pparse.viewers.safetensors.viewer import SafetensorsViewer

    tensors = SafetensorsViewer.tensors
    monkeypatch.setattr(
        SafetensorsViewer, "tensors", lambda viewer: (one for one in tensors(viewer) if one.name != "h.0.mask")
    )


def plant_status_forgotten(monkeypatch):
    from pparse.tensors.tensor import Tensor

    def numpy(tensor, **more):
        raise DamagedTensorError("planted", name=tensor.name)

    monkeypatch.setattr(Tensor, "numpy", numpy)


def plant_block_of_another_place(monkeypatch):
    from pparse.data.block_cache import BLOCK, BlockCache

    pieces = BlockCache._kept

    def wrong(cache, start, end):
        shift = BLOCK if start >= BLOCK else 0
        return pieces(cache, start - shift, end - shift)

    monkeypatch.setattr(BlockCache, "_kept", wrong)


def plant_handle_that_forgets_what_is_inside(monkeypatch):
    from pparse.document import handles

    monkeypatch.setattr(handles, "_part", lambda opened, handle: opened.topmost)


def plant_foreign_error(monkeypatch):
    from pparse.tensors.tensor import Tensor

    monkeypatch.setattr(Tensor, "numpy", lambda tensor, **more: {}["planted"])


def plant_bug_in_command(monkeypatch):
    from pparse.cli import ls

    monkeypatch.setattr(ls, "run", lambda options, out: {}["planted"])


def plant_read_again_and_again(monkeypatch):
    from pparse.tensors.tensor import Tensor

    numpy = Tensor.numpy

    def wasteful(tensor, **more):
        for _ in range(20):
            for span in tensor.spans:
                span.data.pread(0, span.data.size)
        return numpy(tensor, **more)

    monkeypatch.setattr(Tensor, "numpy", wasteful)


def plant_small_steps(monkeypatch):
    from pparse.tensors.tensor import Tensor

    numpy = Tensor.numpy

    def slow(tensor, **more):
        for _ in range(2000):
            tensor.spans[0].data.pread(0, 1)
        return numpy(tensor, **more)

    monkeypatch.setattr(Tensor, "numpy", slow)


def plant_check_blind(monkeypatch):
    from pparse.cli import check

    run = check.run
    monkeypatch.setattr(check, "run", lambda options, out: run(options, out) and 0)


def plant_zeros_to_other_threads(monkeypatch):
    import threading

    from pparse.tensors.tensor import Tensor

    read = Tensor._read_into

    def racy(tensor, offset, view):
        read(tensor, offset, view)
        if threading.current_thread() is not threading.main_thread() and len(view) > 4000:
            view[:] = bytes(len(view))

    monkeypatch.setattr(Tensor, "_read_into", racy)


def plant_sound_called_damaged(monkeypatch):
    def judge(reading, *words):
        reading._verdict.worsen(Status.DAMAGED, "planted", "planted")

    monkeypatch.setattr("pparse.containers.content._ContentPass._judge", judge)


def plant_over_budget(monkeypatch):
    from pparse.limits import MemoryBudget

    monkeypatch.setattr(
        MemoryBudget, "peak", property(lambda budget: 1 << 30, lambda budget, value: None), raising=False
    )


def plant_recovered_file_unreadable(monkeypatch):
    from pparse.recovery.target import TargetFile

    write = TargetFile.write
    monkeypatch.setattr(
        TargetFile, "write", lambda file, content: write(file, content[1:] if len(content) > 1000 else content)
    )


def plant_hashes_ignored(monkeypatch):
    from pparse.riegeli import chunks

    monkeypatch.setattr(chunks.ChunkReader, "_compare", lambda *words: None)


def plant_second_question_forgets(monkeypatch):
    from pparse.tensors.tensor import Tensor

    numpy = Tensor.numpy
    asked = set()

    def forgetful(tensor, **more):
        if tensor.name not in asked:
            asked.add(tensor.name)
            raise DamagedTensorError("planted", name=tensor.name)
        return numpy(tensor, **more)

    monkeypatch.setattr(Tensor, "numpy", forgetful)


def plant_wrong_node(monkeypatch):
    from pparse.tree.node import Node

    to_python = Node.to_python
    monkeypatch.setattr(Node, "to_python", lambda node, *words: "planted" if node.key == "key 7" else to_python(node))


def plant_wrong_value_printed(monkeypatch):
    from pparse.tensors.tensor import Tensor

    blocks = Tensor.raw_blocks
    monkeypatch.setattr(Tensor, "raw_blocks", lambda tensor: (bytes(len(block)) for block in blocks(tensor)))


def plant_records_dropped(monkeypatch):
    from pparse.riegeli.writer import RecordWriter

    write = RecordWriter.write_record
    monkeypatch.setattr(RecordWriter, "write_record", lambda writer, record: len(record) % 2 and write(writer, record))


def plant_info_believes_all(monkeypatch):
    from pparse.tensors.status import Extent

    monkeypatch.setattr(Extent, "status", Status.COMPLETE)


def plant_end_withheld(monkeypatch):
    from pparse.recovery.target import TargetFile

    write = TargetFile.write
    monkeypatch.setattr(
        TargetFile, "write", lambda file, content: write(file, content[:-1000] if len(content) > 5000 else content)
    )


def plant_holes_ignored(monkeypatch):
    from pparse.data.files import FileData

    monkeypatch.setattr(FileData, "holes", lambda data, start, end: iter(()))


def plant_checksums_of_tensors_ignored(monkeypatch):
    from pparse.viewers.checkpoint.viewer import CheckpointViewer

    monkeypatch.setattr(CheckpointViewer, "_compare", lambda *words: iter(()))


def plant_index_dropped(monkeypatch):
    from pparse.parsers.tar.parser import TarParser

    files = TarParser.files
    monkeypatch.setattr(
        TarParser, "files", lambda parser: (member for member in files(parser) if member.name != "pack/m.index")
    )


PLAIN = load("riegeli-plain").values["15062/0"].place[0] + 3000

TENSOR = f"tf-checkpoint/plain/bit:{load('tf-checkpoint').values['h2/up'].place[0] + 100}"

PLANTED = {
    "hashes_ignored": (plant_hashes_ignored, "cpb-plain/plain/noise:11000:16:1/recover", {"b", "c"}),
    "hashes_ignored by check": (plant_hashes_ignored, "cpb-plain/plain/noise:11000:16:1/check", {"a", "b"}),
    "end_withheld": (plant_end_withheld, "text/tar-gz/cut:12000/recover", {"d"}),
    "records_dropped": (plant_records_dropped, f"riegeli-plain/plain/cut:{PLAIN}/recover", {"d"}),
    "second_question_forgets": (plant_second_question_forgets, "safetensors/plain/none/view", {"b"}),
    "wrong_node": (plant_wrong_node, "json/zip-stored/none/open", {"a", "d"}),
    "wrong_value_printed": (plant_wrong_value_printed, "safetensors/plain/none/get", {"a"}),
    "info_believes_all": (plant_info_believes_all, f"{CUT}/info", {"a"}),
    "all_complete": (plant_all_complete, f"{CUT}/view", {"a"}),
    "all_complete in a list": (plant_all_complete, f"{CUT}/ls", {"a"}),
    "all_verified": (plant_all_verified, f"safetensors/plain/bit:{BIT}:3/view", {"a"}),
    "wrong_byte_recovered": (plant_wrong_byte_recovered, f"{CUT}/recover", {"c", "d"}),
    "recovered_file_unreadable": (plant_recovered_file_unreadable, f"{CUT}/recover", {"c"}),
    "member_dropped": (plant_member_dropped, "text/tar/none/extract", {"d"}),
    "member_dropped in recovery": (plant_member_dropped, "safetensors/tar-gz/none/recover", {"d"}),
    "checksum_forgotten": (
        plant_checksum_forgotten,
        f"safetensors/zip-stored/bit:{STORED + BIT}:3/recover",
        {"a", "b"},
    ),
    "checksum_forgotten by check": (
        plant_checksum_forgotten,
        f"safetensors/zip-stored/bit:{STORED + BIT}:3/view",
        {"a"},
    ),
    "tensor_dropped": (plant_tensor_dropped, "safetensors/zip-deflated/none/view", {"d"}),
    "tensor_dropped from a list": (plant_tensor_dropped, "safetensors/plain/none/ls", {"d"}),
    "tensor_dropped in recovery": (plant_tensor_dropped, f"{CUT}/recover", {"d"}),
    "status_forgotten": (plant_status_forgotten, "safetensors/plain/none/view", {"b"}),
    "block_of_another_place": (plant_block_of_another_place, "safetensors/plain/none/far", {"a", "d"}),
    "handle_that_forgets": (plant_handle_that_forgets_what_is_inside, "json/zip-stored/none/handle", {"d"}),
    "foreign_error": (plant_foreign_error, "safetensors/gz/none/view", {"e"}),
    "bug_in_command": (plant_bug_in_command, "json/plain/none/ls", {"e"}),
    "read_again_and_again": (plant_read_again_and_again, "safetensors/plain/none/view", {"e"}),
    "small_steps": (plant_small_steps, "safetensors/plain/none/view", {"e"}),
    "check_blind": (plant_check_blind, f"{CUT}/recover", {"b"}),
    "check_blind to a checksum": (plant_check_blind, f"safetensors/zip-stored/bit:{STORED + BIT}:3/check", {"b"}),
    "zeros_to_other_threads": (plant_zeros_to_other_threads, "safetensors/plain/none/threads", {"a", "d"}),
    "sound_called_damaged": (plant_sound_called_damaged, "text/tar/none/extract", {"b", "d"}),
    "holes_ignored": (plant_holes_ignored, "text/tar/unwritten:20000/recover", {"a", "b"}),
    "holes_ignored by a list": (plant_holes_ignored, "text/tar/unwritten:20000/ls", {"a"}),
    "checksums_of_tensors_ignored": (plant_checksums_of_tensors_ignored, f"{TENSOR}:3/view", {"a"}),
    "checksums_of_tensors_ignored by check": (plant_checksums_of_tensors_ignored, f"{TENSOR}:3/check", {"a", "b"}),
    "checksums_of_tensors_ignored in recovery": (plant_checksums_of_tensors_ignored, f"{TENSOR}:3/recover", {"b", "c"}),
    "index_dropped": (plant_index_dropped, "tf-checkpoint-index/tar/none/recover", {"d"}),
    "over_budget": (plant_over_budget, "json/plain/none/open", {"e"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name, tmp_path, monkeypatch):
    plant, case, expected = PLANTED[name]
    plant(monkeypatch)
    assert clauses(case, tmp_path) >= expected


@pytest.mark.parametrize("case", sorted({case for _, case, _ in PLANTED.values() if "/bit:" not in case}))
def test_nothing_is_told_where_no_bug_is_planted(case, tmp_path):
    assert run_case(case, tmp_path) == []


def test_a_case_that_does_not_end_is_named():
    if not hasattr(signal, "SIGALRM"):
        pytest.skip("no alarms here")
    case = Case.parse("json/plain/none/open")
    with pytest.raises(TimeoutError, match="--truth-case 'json/plain/none/open'"), watched(case):
        os.kill(os.getpid(), signal.SIGALRM)


# -- the truth itself ------------------------------------------------------------------------------------------------


@rows("name", SAMPLES)
def test_a_sample_has_its_values_where_it_says(name):
    sample = load(name)
    for value in sample.values.values():
        start, end = value.place
        assert 0 <= start <= end <= len(sample.content)
        if sample.layout == "offset":
            assert sample.content[start:end] == value.part


@rows("wrapper", WRAPPERS)
def test_a_sound_file_is_reached_by_nothing_and_each_file_in_it_by_its_own_bytes(wrapper):
    sample = "safetensors-sharded" if wrapper == "folder" else "safetensors"
    wrapped = wrap(sample, wrapper)
    for file in wrapped.files.values():
        assert file.reach(Reach()).is_clean
        if file.content:
            assert not file.reach(Reach(((0, len(wrapped.content)),), cut=True)).is_clean


def test_a_cut_stream_reaches_what_the_library_no_longer_gives():
    wrapped = wrap("safetensors", "gz")
    reach = wrapped.reach(Damage("cut", len(wrapped.content) // 2))
    assert reach.first is not None
    assert 0 < reach.first < len(wrapped.sample.content)


def test_bytes_that_come_into_a_member_of_a_tar_push_as_many_beyond_the_end_that_its_header_names():
    size = len(load("riegeli-plain").content)
    wrapped = wrap("riegeli-plain", "tar")
    start = wrapped.files[wrapped.main].chain[0].start
    assert wrapped.reach(Damage("insert", start + 100, 7)).ranges == ((100, 100), (size - 7, size))
    assert wrapped.reach(Damage("remove", start + 100, 7)).ranges == ((100, 107),)
    assert wrap("riegeli-plain", "plain").reach(Damage("insert", 100, 7)).ranges == ((100, 100),)


def test_a_field_behind_bytes_that_came_in_may_be_of_any_number_and_no_other_is_exempt():
    sample = load("protobuf")
    start, end = sample.values["14"].place
    fields = b"\x22\x02hi\x32\x00\x07"  # the fields 4 and 6, and what is none
    damaged = sample.content[:end] + fields + sample.content[end:]
    assert numbers_behind(damaged, end) == {"4", "6"}
    assert numbers_behind(sample.content, start) == {"15"}
    case = Case.parse("protobuf/plain/insert:5437:100:242/view")
    assert [name for name in sample.values if has_rival(case, name)] == ["4"]
    assert not has_rival(Case.parse("protobuf/plain/zeros:5437:100/view"), "4")


TEXTS = ("none", "cut:7", "bit:9:3", "noise:1:16:5", "remove:3:4", "insert:0:2:9", "unwritten:7")


@pytest.mark.parametrize("text", TEXTS)
def test_damage_is_made_again_of_its_text(text):
    damage = Damage.parse(text)
    assert str(damage) == text
    content = bytes(range(1, 41))
    assert (damage.apply(content) == content) == (text == "none")
    assert damage.reach(content).is_clean == (text == "none")


@pytest.mark.parametrize("text", ["cut", "cut:x", "melt:3", "bit:1"])
def test_a_text_that_is_no_damage_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 -- of int, or ours
        Damage.parse(text)


def test_the_cases_of_a_default_run_and_of_another_seed_cover_every_pair():
    cover_every_pair(choose())
    cover_every_pair(choose(300, 1 + sweep.offset % 100))


def cover_every_pair(chosen):
    assert len(set(chosen)) == len(chosen)
    cases = [Case.parse(text) for text in chosen]
    assert [str(case) for case in cases] == chosen
    seen = {(case.sample_name, case.wrapper) for case in cases}
    assert seen == {(one, other) for one in SAMPLES for other in WRAPPERS if applies(one, other)}
    # A hole is spelled as zeros.
    met = [case.wrapper for case in cases if case.damage.kind == "unwritten"]
    assert set(met) == set(WRAPPERS)
    kinds = {
        (case.sample_name, "hole" if case.damage.kind == "zeros" and case.damage.length == 4096 else case.damage.kind)
        for case in cases
        if case.damage.kind != "unwritten"
    }
    assert kinds == {(sample, kind) for sample in SAMPLES for kind in DRAWN}
    assert {(case.way, case.wrapper) for case in cases} == {(way, wrapper) for way in WAY_NAMES for wrapper in WRAPPERS}
