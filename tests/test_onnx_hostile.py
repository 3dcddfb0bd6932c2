"""ONNX models made to mislead: what contradicts itself, reaches out of its folder, is cut, flipped or endless."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import zipfile
from struct import pack
from time import process_time

import pytest

import pparse
from pparse import PparseError, Status, TensorError, UnsupportedError
from tests import onnx_files as wire
from tests import sweep
from tests.onnx_files import (
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    STRING,
    UINT4,
    UINT8,
    block,
    external,
    floats,
    graph_attribute,
    model,
    model_of,
    node,
    tensor,
    tensor_attribute,
    typed,
)
from tests.rows import rows


def view(content):
    return pparse.view(content, format="onnx")


def is_refused(found):
    """Check that a tensor tells why it is not whole, and that nothing reads elements from it."""
    assert found.status is not Status.COMPLETE
    assert found.finding is not None
    assert found.finding.reason
    reads = [
        found.numpy,
        lambda: found.numpy(raw=True),
        lambda: found.numpy(partial="fill"),
        lambda: list(found.blocks()),
    ]
    if found.status is Status.TRUNCATED:
        reads = reads[:2]
    for read in reads:
        with pytest.raises((TensorError, UnsupportedError)):
            read()
    if found.is_text:
        with pytest.raises((TensorError, PparseError)):
            list(found.strings())


# -- what contradicts itself -------------------------------------------------------------------------------------------

HALF = 1 << 32
WRONG = {
    "negative": ([-1], FLOAT, b"", b"abcd"),
    "negative and empty": ([-1], FLOAT, b"", b""),
    "two negative ones": ([-2, -2], UINT8, b"", b"abcd"),
    "negative beside zero": ([0, -1], FLOAT, b"", b""),
    "least number": ([-1 << 63], INT8, b"", b"a"),
    "product overflows to zero": ([HALF, HALF], FLOAT, b"", b""),
    "product overflows to four": ([HALF + 1, HALF - 1, 2, 2], INT8, b"", b"abcd"),
    "bytes overflow": ([1 << 62], DOUBLE, b"", b""),
    "too few bytes": ([3], FLOAT, b"", b"abcdefgh"),
    "too many bytes": ([1], FLOAT, b"", b"abcdefgh"),
    "half an element": ([2], FLOAT, b"", b"abcdef"),
    "bytes of nothing": ([0], FLOAT, b"", b"abcd"),
    "bytes of a scalar": ([], INT64, b"", b"abcd"),
    "no bytes": ([2], FLOAT, b"", b""),
    "too few nibbles": ([5], UINT4, b"", b"ab"),
    "too many nibbles": ([5], UINT4, b"", b"abcd"),
    "no data": ([2], FLOAT, b"", None),
    "no data of a scalar": ([], FLOAT, b"", None),
    "one value is not repeated": ([2], FLOAT, typed(4, [b"abcd"]), None),
    "too many values": ([1], FLOAT, typed(4, [b"abcd", b"efgh"]), None),
    "values of nothing": ([0], FLOAT, typed(4, [b"abcd"]), None),
    "too few varints": ([3], INT32, typed(5, [1, 2]), None),
    "too many varints": ([3], INT64, typed(7, [1, 2, 3, 4]), None),
    "too few halves": ([3], FLOAT16, typed(5, [1, 2]), None),
    "half a complex number": ([2], COMPLEX64, typed(4, [b"abcd"] * 3), None),
    "nibbles one by one": ([4], UINT4, typed(5, [1, 2, 3, 4]), None),
    "values in another field": ([1], FLOAT, typed(5, [1]), None),
    "whole numbers in the field of long ones": ([1], INT32, typed(7, [1]), None),
    "too few strings": ([2], STRING, typed(6, [b"a"]), None),
    "too many strings": ([1], STRING, typed(6, [b"a", b"b"]), None),
    "strings as bytes": ([2], STRING, b"", b"ab"),
    "a piece of a float": ([2], FLOAT, wire.block(4, b"abcdef"), None),
    "a varint without end": ([1], INT32, wire.block(5, b"\x80"), None),
}


@rows("name", list(WRONG))
def test_what_contradicts_itself_is_damaged_and_never_read(name):
    dims, type, listed, raw = WRONG[name]
    with view(model_of(floats("before", 1), tensor("wrong", dims, type, listed, raw=raw), floats("after", 2))) as found:
        assert found["wrong"].status is Status.DAMAGED
        is_refused(found["wrong"])
        assert [found[good].numpy().tolist() for good in ("before", "after")] == [[1], [2]]
        assert found.extent().status is not Status.COMPLETE


@rows("name", list(WRONG))
def test_what_contradicts_itself_in_an_attribute_is_damaged(name):
    dims, type, listed, raw = WRONG[name]
    attribute = tensor_attribute("value", tensor("", dims, type, listed, raw=raw))
    nodes = [
        node("Constant", "", ["c"], [attribute]),
        node("Constant", "", ["d"], [tensor_attribute("value", floats("", 4))]),
    ]
    with view(model_of(nodes=nodes)) as found:
        assert found["c"].status is Status.DAMAGED
        is_refused(found["c"])
        assert found["d"].numpy().tolist() == [4]


def test_fourteen_bytes_that_claim_sixteen_gibibytes():
    content = bytes.fromhex("08083a0a2a08") + wire.count(1, 1 << 32) + wire.count(2, FLOAT)
    assert len(content) == 14
    with pparse.view(content) as found:
        (only,) = found.values()
        assert (only.shape, only.status) == ((1 << 32,), Status.DAMAGED)
        is_refused(only)


def test_data_whose_length_reaches_beyond_the_end():
    """Bytes that are claimed are no bytes: not of the tensor, not of its graph."""
    raw = wire.varint(9 << 3 | 2) + wire.varint(1 << 34) + b"abcd"
    head = tensor("huge", [1 << 32], FLOAT)
    total = len(head) + len(raw) + (1 << 34)
    content = wire.count(1, 8) + b"\x3a" + wire.varint(total + 7) + b"\x2a" + wire.varint(total) + head + raw
    with view(content) as found:
        assert found["huge"].status is Status.TRUNCATED
        assert found["huge"].available_nbytes == 4
        is_refused(found["huge"])


@rows("number", [27 + 100, 99, 0x7FFFFFFF, -1])
def test_a_type_that_nobody_knows_is_unsupported(number):
    with view(model_of(tensor("odd", [2], number, raw=b"ab"), floats("good", 1))) as found:
        assert found["odd"].status is Status.UNSUPPORTED
        is_refused(found["odd"])
        assert found["good"].numpy().tolist() == [1]


def test_a_tensor_without_a_type_has_no_values():
    with view(model_of(tensor("odd", [2], 0, raw=b"ab"), wire.block(8, "none") + wire.block(9, b"ab"))) as found:
        for name in ("odd", "none"):
            is_refused(found[name])


@rows("segment", [wire.block(3, wire.count(1, 0) + wire.count(2, 2)), wire.block(3, b"")])
def test_a_segment_is_not_taken_for_the_whole(segment):
    with view(model_of(tensor("part", [2], UINT8, segment, raw=b"ab"), floats("good", 1))) as found:
        assert found["part"].status is Status.UNSUPPORTED
        is_refused(found["part"])
        assert found["good"].numpy().tolist() == [1]


@rows("count", [65, 254, 255, 100_000])
def test_more_dimensions_than_arrays_have(count):
    with view(
        model_of(tensor("deep", [1] * count, UINT8, raw=b"a"), tensor("most", [1] * 64, UINT8, raw=b"b"))
    ) as found:
        assert found["most"].numpy().shape == (1,) * 64
        is_refused(found["deep"])


# -- data in other files -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder for the model, beside what nothing in it may reach."""
    made = tmp_path / "model"
    (made / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"outside!")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret.bin").write_bytes(b"outside!")
    (made / "good.bin").write_bytes(b"01234567")
    return made


def put(folder, **places):
    """Write a model whose tensors of 8 bytes are at these places, and one that is whole."""
    tensors = [tensor(name, [8], UINT8, place) for name, place in places.items()]
    tensors += [tensor("good", [8], UINT8, external(location="good.bin", length=8)), floats("inline", 1)]
    path = folder / "model.onnx"
    path.write_bytes(model_of(*tensors))
    return path


def others_are_whole(found):
    assert found["good"].numpy().tobytes() == b"01234567"
    assert found["inline"].numpy().tolist() == [1]


def opened():
    """Return the files that are open here."""
    found: set[str] = set()
    if not os.path.isdir("/proc/self/fd"):
        return set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.path.basename(os.readlink(f"/proc/self/fd/{number}")))
        except OSError:
            continue
    return found


LINKED = ("link.bin", "dangling.bin", "dir/secret.bin", "loop.bin")
LOCATIONS = (
    "../secret.bin",
    "sub/../../secret.bin",
    "./../secret.bin",
    "..",
    ".",
    "sub",
    "",
    "../model/../secret.bin",
    "/etc/hostname",
    "/proc/self/environ",
    "/dev/zero",
    "C:\\secret.bin",
    "..\\secret.bin",
    "\\\\host\\share",
    "file:///etc/hostname",
    "good.bin/x",
    "good.bin/../../secret.bin",
    "a\0b",
    "x" * 5000,
    "missing.bin",
    *LINKED,
)


def test_nothing_outside_of_the_folder_is_read(folder, tmp_path):
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "dangling.bin").symlink_to(tmp_path / "nothing.bin")
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    (folder / "dir").symlink_to(tmp_path / "out")
    places = {f"t{number}": external(location=where, length=8) for number, where in enumerate(LOCATIONS)}
    places["absolute"] = external(location=str(tmp_path / "secret.bin"), length=8)
    places["absolute_inside"] = external(location=str(folder / "good.bin"), length=8)
    with pparse.view(put(folder, **places)) as found:
        for name in places:
            is_refused(found[name])
            assert "secret.bin" not in opened()
        others_are_whole(found)
        assert found.extent().status is not Status.COMPLETE
        assert len([finding for finding in found.check() if finding.severity.value == "error"]) >= len(places)
        assert "secret.bin" not in opened()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_a_folder_is_no_file_of_data(folder):
    os.mkfifo(folder / "pipe")
    with pparse.view(put(folder, pipe=external(location="pipe"), sub=external(location="sub", length=8))) as found:
        is_refused(found["pipe"])
        is_refused(found["sub"])
        others_are_whole(found)


@rows("change, number", [(-1, 2), (-1, 5), (-1, 8), (-100, 5), (1, 2), (100, 9)])
def test_bytes_that_went_from_a_small_model_leave_the_tensors_before_and_the_one_hit_is_in_doubt(change, number):
    head = wire.count(1, 200) + wire.count(2, UINT8)
    tensors = [head + wire.block(8, f"t{at}") + wire.block(9, bytes([at]) * 200) for at in range(10)]
    content = model_of(*tensors)
    at = content.index(bytes([number]) * 200) + 100
    changed = content[:at] + (content[at - change :] if change < 0 else b"\x3f" * change + content[at:])
    with view(changed) as found:
        listed = {one.name: one.status for one in found.tensors()}
        assert list(listed)[: number + 1] == [f"t{before}" for before in range(number + 1)]
        assert listed[f"t{number}"] is Status.DAMAGED
        assert found[f"t{number}"].finding.code == "shifted"
        whole = [name for name, status in listed.items() if status is Status.COMPLETE]
        assert whole[:number] == [f"t{before}" for before in range(number)]
        for name in whole:
            assert found[name].numpy().tobytes() == bytes([int(name[1:])]) * 200
    with view(changed) as found:
        assert found[f"t{number}"].status is Status.DAMAGED  # asked for alone
        assert found["t0"].status is Status.COMPLETE


def test_of_a_file_that_is_longer_all_tensors_may_have_moved(folder):
    first, second = (external(location="both.bin", offset=at, length=8) for at in (0, 8))
    for behind, status in ((b"", Status.COMPLETE), (b"more", Status.DAMAGED), (bytes(496), Status.COMPLETE)):
        (folder / "both.bin").write_bytes(bytes(range(1, 17)) + behind)
        path = put(folder, first=first, second=second)
        with pparse.view(path) as found:
            assert found["first"].status is status  # asked for alone, before anything is known of the second
        with pparse.view(path) as found:
            assert [tensor.status for tensor in found.tensors()][:2] == [status, status]
            finding = found["second"].finding
            assert (finding.code, finding.offset) == ("shifted", 8) if behind == b"more" else finding is None
            others_are_whole(found)
            found.extent()
            assert ("trailing-bytes" in {finding.code for finding in found.findings}) is (behind == b"more")


@rows(
    "content, stated, whole, codes",
    [
        (b"01234567abcdefgh", b"01234567abcdefgh", 2, set()),
        (b"01234567abcdefgX", b"01234567abcdefgh", 0, {"hash"}),
        # Bytes that are known to be missing explain it: the tensor before them is whole.
        (b"01234567abc", b"01234567abcdefgh", 1, {"truncated"}),
    ],
)
def test_the_checksum_of_another_file_is_compared(content, stated, whole, codes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "good.bin").write_bytes(b"01234567")
    (folder / "both.bin").write_bytes(content)
    digest = hashlib.sha1(stated).hexdigest().upper()
    places = {f"t{at}": external(location="both.bin", offset=at, length=8, checksum=digest) for at in (0, 8)}
    with pparse.view(put(folder, **places)) as found:
        assert {finding.code for finding in found.check()} == codes
        tensors = [found["t0"], found["t8"]]
        assert sum(one.status is Status.COMPLETE for one in tensors) == whole
        assert all(one.verified is True for one in tensors) is (not codes)
        others_are_whole(found)


def test_behind_a_gap_of_unknown_length_in_the_other_file_tensors_are_in_doubt(tmp_path):
    size, count = 1000, 200
    data = bytes(random.Random(5).choices(range(90), k=size * count))
    places = [external(location="d.bin", offset=at * size, length=size) for at in range(count)]
    model = model_of(*(tensor(f"t{at}", [size], UINT8, place) for at, place in enumerate(places)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("m.onnx", model)
        archive.writestr("d.bin", data, zipfile.ZIP_DEFLATED)
        packed = archive.getinfo("d.bin").compress_size
    content, at = out.getvalue(), out.getvalue().index(b"d.bin") + 5 + packed // 2
    (tmp_path / "it.zip").write_bytes(content[:at] + random.Random(6).randbytes(100) + content[at:])
    with pparse.view(f"{tmp_path / 'it.zip'}::m.onnx") as found:
        tensors = list(found.tensors())
        gap = next(gap for _, file in found.files_beside() for gap in file.data.gaps if not gap.exact)
    behind = [one for at, one in enumerate(tensors) if gap.end <= at * size <= len(data) - 2 * size]
    assert len(behind) > 90
    assert {(one.status, one.finding.code) for one in behind} == {(Status.DAMAGED, "shifted")}


@rows(
    "place, status",
    [
        ({"location": "gone.bin", "length": 8}, Status.MISSING),
        ({"location": "gone.bin"}, Status.MISSING),
        ({"location": "short.bin", "length": 8}, Status.TRUNCATED),
        ({"location": "short.bin", "offset": 1, "length": 8}, Status.TRUNCATED),
        ({"location": "good.bin", "offset": 1, "length": 8}, Status.TRUNCATED),
        ({"location": "good.bin", "offset": 8, "length": 8}, Status.MISSING),
        ({"location": "good.bin", "offset": 9, "length": 8}, Status.MISSING),
        ({"location": "good.bin", "offset": 1 << 40, "length": 8}, Status.MISSING),
        ({"location": "empty.bin", "length": 8}, Status.MISSING),
    ],
)
def test_what_the_other_file_lacks_is_counted(place, status, folder):
    (folder / "short.bin").write_bytes(b"012")
    (folder / "empty.bin").write_bytes(b"")
    with pparse.view(put(folder, bad=external(**place))) as found:
        assert found["bad"].status is status
        is_refused(found["bad"])
        others_are_whole(found)


@rows(
    "place",
    [
        {"location": "good.bin", "offset": "zero", "length": 8},
        {"location": "good.bin", "offset": "", "length": 8},
        {"location": "good.bin", "offset": "-1", "length": 8},
        {"location": "good.bin", "offset": "0x0", "length": 8},
        {"location": "good.bin", "offset": "1e0", "length": 8},
        {"location": "good.bin", "offset": "9" * 10_000, "length": 8},
        {"location": "good.bin", "offset": str(1 << 62), "length": 8},
        {"location": "good.bin", "offset": str(1 << 64), "length": 8},
        {"location": "good.bin", "length": "eight"},
        {"location": "good.bin", "length": "-8"},
        {"location": "good.bin", "length": 7},
        {"location": "good.bin", "length": 9},
        {"location": "long.bin", "length": 9},
        {"location": "good.bin", "length": "9" * 10_000},
        {"offset": 0, "length": 8},
        {},
    ],
)
def test_a_place_that_is_none_is_told(place, folder):
    (folder / "long.bin").write_bytes(b"0123456789")
    with pparse.view(put(folder, bad=external(**place))) as found:
        is_refused(found["bad"])
        others_are_whole(found)


def test_strings_do_not_lie_in_other_files(folder):
    path = folder / "model.onnx"
    path.write_bytes(model_of(tensor("s", [8], STRING, external(location="good.bin", length=8)), floats("inline", 1)))
    with pparse.view(path) as found:
        is_refused(found["s"])
        assert found["inline"].numpy().tolist() == [1]


def test_links_within_the_folder_are_followed(folder):
    (folder / "sub" / "link.bin").symlink_to("../good.bin")
    with pparse.view(put(folder, linked=external(location="sub/link.bin", length=8))) as found:
        assert found["linked"].numpy().tobytes() == b"01234567"
        others_are_whole(found)


def test_a_model_of_links_into_a_store_finds_its_data_there(folder, tmp_path):
    """The layout of caches of downloads: a snapshot of links into a folder of blobs."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "one"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "1").write_bytes(put(folder, linked=external(location="w.bin", length=8)).read_bytes())
    (blobs / "2").write_bytes(b"01234567")
    for name, blob in (("model.onnx", "1"), ("w.bin", "2"), ("good.bin", "2")):
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    with pparse.view(snapshot / "model.onnx") as found:
        assert found["linked"].numpy().tobytes() == b"01234567"
        others_are_whole(found)


def test_a_model_without_a_folder_has_no_other_files():
    with view(model_of(tensor("out", [8], UINT8, external(location="good.bin", length=8)), floats("in", 1))) as found:
        is_refused(found["out"])
        assert found["in"].numpy().tolist() == [1]


def test_data_in_the_model_file_itself_is_bounded_by_it(folder):
    """A location that is the model: its bytes, at most to its end."""
    path = put(folder, itself=external(location="model.onnx", offset=1 << 40, length=8))
    with pparse.view(path) as found:
        is_refused(found["itself"])
        others_are_whole(found)


# -- endless ones ------------------------------------------------------------------------------------------------------


def nested(depth, each=False):
    """Return a model of If in If …, with a tensor in the innermost body, or in each."""
    content = wire.graph([floats("w", 7)])
    for level in range(depth):
        one = node("If", "n", ["o"], [graph_attribute("g", content)])
        content = wire.graph([floats("w", level)] if each or level == depth - 1 else [], [one])
    return model(content)


@pytest.mark.parametrize("each", sweep.part([False, True]))
def test_thousands_of_bodies_in_one_another(each):
    """The limit of levels is told, or the last is found: never a RecursionError, and what is outside stays whole."""
    levels = sweep.scaled(5_000)  # Python itself recurses 1,000 deep
    started = process_time()
    with view(nested(levels, each)) as found:
        names = list(found)
        assert found["w"].numpy().tolist() == [levels - 1]
        deepest = [name for name in names if name == "n.g/" * levels + "w"]
        assert deepest or [finding for finding in found.check() if finding.severity.value != "note"]
        assert deepest or found.extent().status is not Status.COMPLETE
        assert not deepest or found[deepest[0]].numpy().tolist() == [7]
    assert process_time() - started < 60


def test_some_bodies_in_one_another_are_read():
    with view(nested(30)) as found:
        assert found["n.g/" * 30 + "w"].numpy().tolist() == [7]
        assert found["w"].numpy().tolist() == [29]


def test_functions_that_call_themselves_are_read_once():
    def function(name, calls):
        nodes = [node(calls, "call", ["y"]), node("Constant", "", ["k"], [tensor_attribute("value", floats("", 5))])]
        return wire.block(25, wire.block(1, name) + b"".join(wire.block(7, one) for one in nodes) + wire.block(10, "d"))

    more = function("Self", "Self") + function("A", "B") + function("B", "A")
    with view(model_of(floats("w", 1), nodes=[node("Self", "", ["x"])], more=more)) as found:
        assert sorted(found) == ["@d.A/k", "@d.B/k", "@d.Self/k", "w"]
        assert all(found[name].numpy().tolist() == [5] for name in found if name != "w")


def test_very_many_empty_nodes():
    content = wire.block(1, b"") * sweep.scaled(1_000_000, 16) + wire.block(5, floats("w", 3))
    started = process_time()
    with view(model(content)) as found:
        assert list(found) == ["w"]
        assert found["w"].numpy().tolist() == [3]
    assert process_time() - started < 60


def test_very_many_initializers_without_bytes():
    started = process_time()
    half = sweep.scaled(50_000, 16)
    empty = [tensor(f"e{number}", [0], FLOAT) for number in range(half)]
    without = [tensor(f"n{number}", [1], FLOAT) for number in range(half)]
    with view(model_of(*empty, *without)) as found:
        assert len(found) == 2 * half
        assert found[f"e{half - 1}"].numpy().tolist() == []
        is_refused(found[f"n{half - 1}"])
        statuses = [one.status for one in found.values()]
        assert statuses.count(Status.COMPLETE) == statuses.count(Status.DAMAGED) == half
    assert process_time() - started < 120


def test_names_that_are_all_the_same_are_told_apart_in_no_time():
    started = process_time()
    with view(model_of(*[floats("a", 1)] * 3_000)) as found:
        assert len(set(found)) == 3_000
        assert "a#3000" in found
    assert process_time() - started < 20


def test_names_with_numbers_do_not_take_those_of_others():
    with view(model_of(floats("a", 1), floats("a#2", 2), floats("a", 3), floats("a#2", 4))) as found:
        assert len(set(found)) == 4
        assert sorted(one.numpy().tolist()[0] for one in found.values()) == [1, 2, 3, 4]
        assert found["a"].numpy().tolist() == [1]


# -- cut and flipped ---------------------------------------------------------------------------------------------------

SMALL = {
    "alpha": floats("alpha", 1.5, -2.5, 3.5),
    "beta": tensor("beta", [2, 2], INT64, typed(7, [-1, 1 << 40, 3, 4])),
    "gamma": tensor("gamma", [2], STRING, typed(6, [b"one", b"two"])),
    "delta": wire.block(9, b"\x12\x34\x05") + wire.count(1, 5) + wire.count(2, UINT4) + wire.block(8, "delta"),
}
ATTRIBUTE = floats("", 9.0, 8.0)
CONSTANT = node("Constant", "", ["omega"], [tensor_attribute("value", ATTRIBUTE)])
CONTENT = model(wire.graph(SMALL.values(), [CONSTANT]), wire.block(14, wire.block(1, "key") + wire.block(2, "value")))
# Where each tensor ends, and the bytes that say anything of it.
PLACES = {name: (CONTENT.index(body), CONTENT.index(body) + len(body)) for name, body in SMALL.items()}
GRAPH = (CONTENT.index(b"by hand") + len("by hand"), CONTENT.rindex(wire.block(8, wire.count(2, 21))))
BEHIND_TAGS = [start - 1 for start, _ in PLACES.values()]
PLACES["omega"] = (CONTENT.index(CONSTANT), CONTENT.index(CONSTANT) + len(CONSTANT))
# Where the message of each tensor ends; behind that of the constant its node goes on.
WHOLE_AT = {name: end for name, (_, end) in PLACES.items()}
WHOLE_AT["omega"] = CONTENT.index(ATTRIBUTE) + len(ATTRIBUTE)


def values(found):
    """Return the elements of a tensor, comparable."""
    if found.is_text:
        return "text", found.shape, tuple(found.strings())
    return found.dtype.name, found.shape, found.numpy(raw=True).tobytes()


@pytest.fixture(scope="module")
def whole():
    with view(CONTENT) as found:
        assert found.extent().status is Status.COMPLETE
        assert sorted(found) == sorted(PLACES)
        return {name: values(found[name]) for name in found}


def test_the_small_model_is_what_was_written(whole):
    assert whole["alpha"] == ("float32", (3,), pack("<3f", 1.5, -2.5, 3.5))
    assert whole["beta"] == ("int64", (2, 2), pack("<4q", -1, 1 << 40, 3, 4))
    assert whole["gamma"] == ("text", (2,), (b"one", b"two"))
    assert whole["delta"] == ("uint4", (5,), bytes([2, 1, 4, 3, 5]))
    assert whole["omega"] == ("float32", (2,), pack("<2f", 9.0, 8.0))


def test_a_model_that_is_cut_keeps_what_stands_before_the_cut(whole):
    for size in sweep.some(range(1, len(CONTENT)), 2, keep=BEHIND_TAGS, ends=24):
        with view(CONTENT[:size]) as found:
            kept = [name for name, (_, end) in PLACES.items() if end <= size]
            assert set(kept) <= set(found), size
            assert [values(found[name]) for name in kept] == [whole[name] for name in kept], size
            list(found.check())


def test_what_is_cut_is_not_called_whole(whole):
    """Neither the model nor a tensor whose message goes on: its name may be missing, or other data that wins."""
    for size in sweep.some(range(1, len(CONTENT)), 2, keep=BEHIND_TAGS, ends=24):
        with view(CONTENT[:size]) as found:
            for name, one in found.items():
                if one.status is not Status.COMPLETE:
                    is_refused(one)
                    continue
                assert values(one) == whole.get(name), (size, name)
                assert WHOLE_AT[name] <= size, (size, name)
            if GRAPH[0] < size < GRAPH[1]:
                assert found.extent().status is not Status.COMPLETE, size


# Bits to flip: each alone, several, all.
FLIPS = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF, 0x7F, 0x55)


def test_a_flipped_byte_changes_only_what_it_belongs_to(whole):
    for at in sweep.some(range(len(CONTENT)), 2, ends=24):
        for bits in sweep.values(FLIPS, at, 2):
            flipped = bytearray(CONTENT)
            flipped[at] ^= bits
            try:
                with view(bytes(flipped)) as found:
                    survives(found, whole, at, bits)
                    list(found.check())
            except PparseError:
                continue


def survives(found, whole, at, bits):
    """Check that tensors that are said to be whole are as they were, but where the byte was flipped."""
    for name, one in found.items():
        if one.status is not Status.COMPLETE:
            assert one.finding is not None, (at, bits, name)
            continue
        now = values(one)
        if name in whole and now != whole[name]:
            start, end = PLACES[name]
            assert start - 8 <= at < end, (at, bits, name)


@rows(
    "head",
    [b"", b"\x08", b"\x08\x0a", b"\x3a", b"\x3a\x00", b"\x3a\x80", b"\x3a" + b"\xff" * 10, b"\0" * 64, b"\xff" * 64],
)
def test_beginnings_of_models_have_no_tensors(head):
    with contextlib.suppress(PparseError), view(head) as found:
        assert not list(found)


def test_a_listing_and_the_look_ups_in_it_go_through_the_model_once(monkeypatch):
    from pparse.viewers.onnx.places import OnnxPlaces

    passes = []
    places = OnnxPlaces.places
    monkeypatch.setattr(OnnxPlaces, "places", lambda self, **how: passes.append(how) or places(self, **how))
    content = model_of(*(floats(f"w{number}" * (1 + number % 40), number, 0.5) for number in range(300)))
    with view(content) as viewer:
        assert [each.numpy()[0] for each in viewer.values()] == list(range(300))
        assert [viewer[name].numpy()[0] for name in viewer] == list(range(300))
        assert len(passes) == 2
    names = [f"w{number % 290}" for number in range(300)]
    with view(model_of(*(floats(name, number, 0.5) for number, name in enumerate(names)))) as viewer:
        assert list(viewer.keys()) == names[:290] + [f"{name}#2" for name in names[290:]]
        wanted = dict(zip(viewer.keys(), range(300), strict=True))
        for name in sorted(wanted, key=hash):  # in any order
            assert viewer[name].numpy()[0] == wanted[name]


def test_tensors_in_nodes_are_read_as_initializers_are(monkeypatch):
    """Plain ones by the head of their message; what is not plain, or has too many dimensions, as a message."""
    from pparse.viewers.onnx.tensors import OnnxMaker

    def constant(name: str, content: bytes) -> bytes:
        return node("Constant", outputs=[name], attributes=[tensor_attribute("value", content)])

    def plain(shape: list[int]) -> bytes:
        return tensor("t", shape, UINT8, raw=b"ab", packed=False)

    others = [tensor("", [2], INT32, data=block(5, b"\x01\x02")), tensor("t", [3], UINT8, raw=b"ab", packed=False)]
    contents = [plain([2]), plain([1, 2]), *others]
    nodes = [constant(name, content) for name, content in zip("abcd", contents, strict=True)]
    messages: list[str] = []
    read = OnnxMaker.read
    monkeypatch.setattr(OnnxMaker, "read", lambda self, name, of: messages.append(name) or read(self, name, of))
    content = model_of(*contents[1:2], nodes=nodes)
    with view(content) as viewer:
        found = {each.name: each for each in viewer.values()}
        assert messages == ["c", "d"]
        assert [found[name].numpy().tolist() for name in "tabc"] == [[[97, 98]], [97, 98], [[97, 98]], [1, 2]]
        assert found["d"].status is Status.DAMAGED
        assert viewer["b"].spans == found["b"].spans
        assert [place.name for place in viewer.constants.places(most=3)] == ["t", "a", "b"]
    with pparse.view(content, format="onnx", limits=pparse.Limits(tensor_rank=1)) as viewer:
        assert [viewer[name].status for name in "tba"] == [Status.UNSUPPORTED] * 2 + [Status.COMPLETE]


@rows(
    "damaged, told",
    [
        (b"\x0a\x01x\x12\x01y\x22\x03Add", False),
        (b"\x0a\x01x\x12\x01y\x22\x7fAdd", True),  # beyond the node
        (b"\x0a\x01x\x12\x01y\x02\x03Add", False),  # field 0, which is no node's: the tensors in it are the same
        (b"\x0a\x01x\x12\x01y\x22\x03Add\x0f", True),  # no wire type
        (b"\x0a\x01x\x12\x01y\x22\x03Add\xaa\x00\x00", False),  # an attribute, its tag longer than it must be
        (b"\x0a\x01x\x12\x01y\x22\x80\x80\x80", True),
    ],
)
def test_nodes_that_are_left_out_have_nothing_to_tell(damaged, told):
    """A node without attributes is left out of the places of tensors only if nothing is wrong with it."""
    from pparse.viewers.onnx.places import is_bare

    held = tensor_attribute("value", tensor("", [1], UINT8, raw=b"a"))
    nodes = [node("Add", outputs=["a"], attributes=[]), damaged, node("Constant", outputs=["k"], attributes=[held])]
    with view(model_of(nodes=nodes)) as viewer:
        everything = [place.name for place in viewer.constants.places(most=1 << 30)]
        found = [finding.reason for finding in viewer.findings]
    with view(model_of(nodes=nodes)) as viewer:
        assert [place.name for place in viewer.constants.places()] == everything == ["k"]
        assert [finding.reason for finding in viewer.findings] == found
    assert bool(found) is told
    assert is_bare(damaged + bytes(20), 0, len(damaged)) is (damaged[6:] == b"\x22\x03Add")


def test_what_is_read_quickly_is_what_the_whole_message_says(monkeypatch):
    quick = [floats("one", 1, 2), tensor("two", [2, 3], UINT8, raw=b"abcdef"), tensor("", [300], INT8, raw=bytes(300))]
    odd = [
        tensor("none", [0, 4], FLOAT, raw=b""),
        tensor("a" * 500, [2], UINT8, raw=b"xy"),
        tensor("x", [], INT8, raw=b"z"),
    ]
    held = node("Constant", "", ["c"], [tensor_attribute("value", tensor("", [2, 2], INT8, raw=b"wxyz"))])
    content = model_of(*quick, *odd, nodes=[held])

    def listed(content):
        with contextlib.closing(view(content)) as found:
            return [
                (one.name, one.dtype, one.shape, one.stored_dtype, one.status, [span.to_dict() for span in one.spans])
                for one in found.values()
            ]

    def both(content):
        fast = listed(content)
        with monkeypatch.context() as slowly:
            slowly.setattr("pparse.viewers.onnx.places.read_head", lambda *given: None)
            assert listed(content) == fast
        return fast

    assert len(both(content)) == 7
    for at in sweep.some(range(len(content)), 5, ends=20):
        for bit in (1, 8, 128):
            both(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
