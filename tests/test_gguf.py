"""GGUF: values of every type, what is cut, what contradicts itself, and how little is read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from struct import pack
from time import process_time

import numpy as np
import pytest

import pparse
from pparse import PathError, PparseError, Status, TruncatedTensorError, UnsupportedError
from pparse.data.base import IoStats
from pparse.kernels.text_starts import text_starts
from pparse.parsers.gguf import parser as gguf_parser
from pparse.parsers.gguf.parser import GgufLayout, GgufPlace
from pparse.testing.fakes import GappyData
from tests import sweep
from tests.gguf_files import F32, Q4_0, Q8_0, Writer, plain
from tests.rows import rows

DATA = Path("tests/data/gguf")
EXPECTED = json.loads((DATA / "expected.json").read_text())
LAYERS = (DATA / "layers.gguf").read_bytes()


def sha(array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def layer(number: int) -> np.ndarray:
    return np.random.default_rng(number).standard_normal((4, 32)).astype("f4")


# -- values ------------------------------------------------------------------------------------------------------------


def test_every_type_has_the_elements_that_the_library_dequantises():
    for file, tensors in EXPECTED.items():
        with pparse.view(DATA / file) as model:
            assert list(model) == list(tensors)
            for name, told in tensors.items():
                tensor = model[name]
                assert (tensor.stored_dtype, list(tensor.shape)) == (told["type"], told["shape"])
                assert hashlib.sha256(b"".join(tensor.raw_blocks(100))).hexdigest() == told["stored"]
                if told["elements"] is None:
                    with pytest.raises(UnsupportedError, match="cannot be decoded"):
                        tensor.numpy()
                    assert tensor.numpy(raw=True).shape[:-1] == tensor.shape[:-1]
                    continue
                if told["type"] == "BF16":
                    array = tensor.numpy().view("u2").astype("u4") << 16  # the library makes float32 of them
                else:
                    array = tensor.numpy()
                assert sha(array) == told["elements"], name


def test_parts_of_quantised_tensors_are_the_same_as_parts_of_the_whole():
    indexes = (
        0,
        -1,
        slice(1, None),
        slice(None, None, -2),
        (slice(0, 2), slice(3, 40)),
        (1, slice(60, 3, -7)),
        (2, 33),
    )
    indexes += ((slice(None), 5), (slice(2, 0, -1), slice(None, None, 31)), ..., (slice(3, 3), 0), (0, slice(4, 4)))
    with np.errstate(all="ignore"), pparse.view(DATA / "types.gguf") as model:
        for tensor in model.values():
            if tensor.type_name in ("float32", "Q8_1", "Q8_K", "Q1_0") or len(tensor.shape) < 2 or tensor.shape[1] < 64:
                continue
            whole = tensor.numpy()
            for index in indexes:
                part, wanted = tensor[index], whole[index]
                assert np.shape(part) == np.shape(wanted), (tensor.name, index)
                assert np.asarray(part).tobytes() == np.ascontiguousarray(wanted).tobytes(), (tensor.name, index)
            for size in (132, 2000, 1 << 20):
                assert np.concatenate(list(tensor.blocks(size))).tobytes() == whole.tobytes()
            assert np.concatenate(list(tensor.blocks(140, start=37))).tobytes() == whole.reshape(-1)[37:].tobytes()
            assert b"".join(tensor.array_blocks(400)) == whole.tobytes()
            assert len(tensor.numpy(raw=True).tobytes()) == tensor.stored_nbytes == tensor.readinto(bytearray(10_000))


def wide(rows_: int = 3, columns: int = 70_400) -> bytes:
    """Encode a Q8_0 tensor whose rows are larger than what is read at once."""
    content = np.arange(rows_ * columns // 32 * 34, dtype=np.uint32).astype(np.uint8).tobytes()
    return Writer().file([], [("q", (rows_, columns), Q8_0, 0)], content)


def test_of_a_long_row_only_the_blocks_that_are_touched_are_read():
    stats = IoStats()
    content = wide()
    with np.errstate(all="ignore"), pparse.view(content) as model:
        whole = model["q"].numpy()
    with np.errstate(all="ignore"), pparse.view(content, stats=stats) as model:
        tensor = model["q"]
        before = stats.bytes
        assert tensor[1:, 100:164:3].tobytes() == np.ascontiguousarray(whole[1:, 100:164:3]).tobytes()
        assert tensor[2, ::-70_399].tobytes() == whole[2, ::-70_399].tobytes()
        assert stats.bytes - before < 80_000
        before = stats.bytes
        assert tensor[1].tobytes() == whole[1].tobytes()
        assert stats.bytes - before == 70_400 // 32 * 34


def test_the_whole_rows_of_a_cut_quantised_tensor_can_be_read():
    content = wide(3, 320)
    with np.errstate(all="ignore"), pparse.view(content) as model:
        whole = model["q"].numpy()
    with np.errstate(all="ignore"), pparse.view(content[:-341]) as model:
        tensor = model["q"]
        assert tensor.status is Status.TRUNCATED
        assert tensor.numpy(partial="prefix").tobytes() == whole[:1].tobytes()
        assert tensor.numpy(partial="fill")[1, :280].tobytes() == whole[1, :280].tobytes()
        assert tensor[1, :280].tobytes() == whole[1, :280].tobytes()
        for read in (lambda: tensor[1], lambda: tensor[2, 319], tensor.numpy, lambda: list(tensor.blocks())):
            with pytest.raises(TruncatedTensorError):
                read()
        assert tensor.numpy(raw=True, partial="prefix").shape == (1, 340)


@rows("how", [{"version": 1}, {"version": 2}, {"version": 3}, {"order": ">"}, {"version": 2, "order": ">"}])
def test_all_versions_and_byte_orders(how):
    pairs = [("n", ("int32", -7)), ("words", ["a", "bc"]), ("many", ("float64", [0.5] * 3)), ("deep", [["a"], []])]
    writer = Writer(**how)
    data = writer.pack("6f", *range(6)).ljust(32, b"\0") + writer.pack("e", 0.5) + bytes(range(32))
    content = writer.file(pairs, [("w", (2, 3), F32, 0), ("q", (32,), Q8_0, 32)], data)
    with pparse.view(content) as model:
        assert model.metadata == {"n": -7, "words": ["a", "bc"], "many": [0.5] * 3, "deep": [["a"], []]}
        assert model["w"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert model["q"].numpy().tolist() == [number / 2 for number in range(32)]
        assert (model.parser.version, model.extent().status) == (how.get("version", 3), Status.COMPLETE)


def test_types_that_big_endian_files_do_not_have_are_raw_only():
    content = Writer(order=">").file([], [("q", (32,), 3, 0)], bytes(range(20)))
    with pparse.view(content) as model:
        assert model["q"].numpy(raw=True).tolist() == list(range(20))
        with pytest.raises(UnsupportedError):
            model["q"].numpy()


# -- cut ---------------------------------------------------------------------------------------------------------------


def test_of_a_file_cut_to_60_percent_11_of_20_tensors_are_whole(tmp_path):
    with pparse.view(LAYERS[: len(LAYERS) * 6 // 10]) as model:
        statuses = [tensor.status.value for tensor in model.values()]
        assert statuses == ["complete"] * 11 + ["truncated"] + ["missing"] * 8
        for number in range(11):
            assert model[f"blk.{number}.weight"].numpy().tobytes() == layer(number).tobytes()
        assert model[f"blk.11.weight"].numpy(partial="prefix").tobytes() == b""  # noqa: F541
        extent = model.extent()
        assert (extent.first_hit, extent.expected, extent.resume_at) == ("blk.11.weight", len(LAYERS), 6854)
        found = pparse.hash(model)  # nothing but tensors was cut: what they are called and look like is known
        assert (found.structure, found.model) == (pparse.hash(LAYERS).structure, None)
        assert pparse.convert(model, tmp_path / "some.safetensors", include=["blk.3.*"]).is_whole
        assert not pparse.convert(model, tmp_path / "m.safetensors", skip_damaged=True).is_whole
    for size in (3000, len(LAYERS) - 1):
        with pparse.view(LAYERS[:size]) as model:
            assert model.extent().status is not Status.COMPLETE
            assert (pparse.hash(model).structure is None) == (model.table.status is not Status.COMPLETE)


def test_a_cut_in_the_key_values_and_in_the_table_is_told():
    for size in (30, 150, 400, 1100):
        with pparse.view(LAYERS[:size]) as model:
            assert model.extent().status is Status.TRUNCATED
            assert all(tensor.status is Status.MISSING for tensor in model.values())
            assert model.extent().at_least


def test_the_padding_behind_the_last_tensor_may_be_missing():
    content = plain(2, 5)
    with pparse.view(content[:-12]) as model:
        assert model.extent().status is Status.COMPLETE


# -- contradictions ----------------------------------------------------------------------------------------------------


def findings_of(content: bytes) -> dict[str, str]:
    with pparse.view(content) as model:
        list(model.check())
        model.extent()
        return {finding.code: finding.severity.value for finding in model.findings}


def test_tensors_that_ggml_refuses_are_read_with_a_finding():
    writer, body = Writer(), pack("<64f", *range(64))
    unaligned = writer.file([], [("a", (3,), F32, 0), ("b", (2,), F32, 12)], body[:32])
    with pparse.view(unaligned) as model:
        assert model["b"].numpy().tolist() == [3, 4]
        assert model.extent().status is Status.COMPLETE
    assert findings_of(unaligned) == {"unaligned": "warning"}
    assert findings_of(writer.file([], [("a", (3,), F32, 0), ("b", (2,), F32, 64)], body[:96])) == {"gap": "warning"}
    twice = writer.file([], [("a", (8,), F32, 0), ("a", (8,), F32, 32)], body[:64])
    with pparse.view(twice) as model:
        assert list(model) == ["a", "a#2"]
        assert model["a#2"].numpy()[0] == 8
    assert findings_of(twice) == {"duplicate-name": "warning"}
    assert findings_of(writer.file([("k", "a"), ("k", "b")], [])) == {"duplicate-key": "warning"}


@rows(
    ("keys", "shown"),
    [
        (["a#2", "a", "a"], ["a#2", "a", "a#2#2"]),
        (["a", "a", "a#2"], ["a", "a#2#2", "a#2"]),
        (["a", "a", "a", "a#2", "a#2", "a#2#2"], ["a", "a#2#3", "a#3", "a#2", "a#2#2#2", "a#2#2"]),
        (["a", "a", "a#2", "a#2", "a#2#2", "a#2#3"], ["a", "a#2#3#2", "a#2", "a#2#2#2", "a#2#2", "a#2#3"]),
        (["", "", "#2"], ["", "#2#2", "#2"]),
    ],
)
def test_each_name_that_is_shown_is_that_of_one_tensor(keys, shown):
    tensors = [(key, (8,), F32, 32 * number) for number, key in enumerate(keys)]
    pairs = [(key, ("uint8", number)) for number, key in enumerate(keys)]
    content = Writer().file(pairs, tensors, pack(f"<{8 * len(keys)}f", *range(8 * len(keys))))
    with pparse.view(content) as model:
        assert list(model) == list(model.metadata) == shown
        for number, name in enumerate(shown):
            assert model[name].numpy()[0] == 8 * number
            assert model.metadata[name] == model.fact_node(name).load() == number
        others = ("a#4", "a#2#4", "a#2#2#3", "a#02", "a#1", "a#2#1", "a#", "b#2", "a#" + "9" * 5000)
        assert [name for name in others if name in model or model.fact_node(name) is not None] == []


@rows("most", [10, 1 << 14])
def test_a_table_is_read_twice_to_be_listed_and_knows_its_repeated_names(most, monkeypatch):
    names = [f"blk.{number}" for number in range(298)]
    names[7:7] = ["a"]
    taken = []
    take = gguf_parser.GgufParser._take_tensor
    monkeypatch.setattr(gguf_parser.GgufParser, "_take_tensor", lambda *given: (take(*given), taken.append(1)))
    monkeypatch.setattr(gguf_parser, "_MOST_HASHES", most)
    content = Writer().file([], [(name, (1,), F32, 32 * number) for number, name in enumerate(names)], bytes(9568))
    with pparse.view(content) as model:
        assert [tensor.name for tensor in model.values()] == names
        if most > len(names):
            assert len(taken) < 2.2 * len(names)
    names[290] = names[297] = "a"
    content = Writer().file([], [(name, (1,), F32, 32 * number) for number, name in enumerate(names)], bytes(9568))
    names[290], names[297] = "a#2", "a#3"
    with pparse.view(content) as model:
        assert [tensor.name for tensor in model.values()] == names
        assert model["a#3"].spans[0].offset == model["a"].spans[0].offset + 290 * 32


@rows(
    ("alignment", "used"),
    [(("uint32", 8), 8), (("uint32", 24), 24), (("uint32", 0), 32), (("int8", -1), 32), ("8", 32)],
)
def test_odd_alignments(alignment, used):
    content = Writer().file([("general.alignment", alignment)], [("a", (2,), F32, 0)], pack("<2f", 1, 2), used)
    with pparse.view(content) as model:
        assert model["a"].numpy().tolist() == [1, 2]
    assert list(findings_of(content)) == ([] if alignment == ("uint32", 8) else ["alignment"])


def test_tensors_that_share_bytes_are_damaged_and_the_others_are_not():
    tensors = [("a", (8,), F32, 0), ("b", (8,), F32, 16), ("c", (8,), F32, 64)]
    content = Writer().file([], tensors, pack("<24f", *range(24)))
    with pparse.view(content) as model:
        assert [tensor.status.value for tensor in model.values()] == ["damaged", "damaged", "complete"]
        assert model["c"].numpy()[0] == 16
        assert model.extent().status is Status.DAMAGED
    assert findings_of(content)["overlap"] == "error"


def test_tensors_out_of_order_that_share_nothing_are_read():
    content = Writer().file([], [("a", (8,), F32, 32), ("b", (8,), F32, 0)], pack("<16f", *range(16)))
    with pparse.view(content) as model:
        assert (model["a"].numpy()[0], model["b"].numpy()[0]) == (8, 0)
        assert model.extent().status is Status.COMPLETE


def test_an_unknown_type_costs_no_other_tensor():
    tensors = [("a", (8,), F32, 0), ("new", (7, 9), 99, 32), ("old", (32,), 4, 64), ("b", (8,), F32, 96)]
    with pparse.view(Writer().file([], tensors, pack("<32f", *range(32)))) as model:
        assert [tensor.status.value for tensor in model.values()] == [
            "complete",
            "unsupported",
            "unsupported",
            "complete",
        ]
        assert "its type is 99" in model["new"].finding.reason
        assert "Q4_2" in model["old"].finding.reason
        assert model["b"].numpy()[0] == 24


@rows(
    ("shape", "kind", "offset"),
    [
        ((33,), Q4_0, 0),
        ((1 << 40, 1 << 40), F32, 0),
        ((1 << 63,), 24, 0),
        ((8,), F32, (1 << 64) - 8),
        ((), Q8_0, 0),
        ((0, 1 << 63, 1 << 63, 1 << 63), F32, 1 << 63),
    ],
)
def test_sizes_that_cannot_be_damage_one_tensor_only(shape, kind, offset):
    tensors = [("odd", shape, kind, offset), ("a", (8,), F32, 0)]
    with pparse.view(Writer().file([], tensors, pack("<8f", *range(8)))) as model:
        assert model["odd"].status is Status.DAMAGED
        assert model["a"].numpy()[7] == 7
        with pytest.raises(PparseError):
            model["odd"].numpy()


def test_a_tensor_that_claims_more_than_the_file_is_cut_and_costs_no_memory():
    tensors = [("a", (8,), F32, 0), ("huge", (1 << 50, 32), Q8_0, 32)]
    with pparse.view(Writer().file([], tensors, bytes(100))) as model:
        assert model["huge"].status is Status.TRUNCATED
        for read in (
            model["huge"].numpy,
            lambda: model["huge"][:],
            lambda: model["huge"][:, 3],
            lambda: model["huge"][-1],
        ):
            with pytest.raises(TruncatedTensorError):
                read()
        assert model["huge"][0].shape == (32,)
        assert model["huge"].numpy(partial="prefix").shape == (2, 32)


def claims(tensors: int, pairs: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + pack("<IQQ", 3, tensors, pairs) + rest


@rows(
    ("content", "status"),
    [
        (claims(0, 1 << 63), Status.TRUNCATED),
        (claims((1 << 64) - 1, 0), Status.TRUNCATED),
        (claims(0, 1, pack("<Q", 1 << 62)), Status.DAMAGED),
        (claims(0, 1, pack("<Q1sIQ", 1, b"k", 8, 1 << 62)), Status.DAMAGED),
        (claims(0, 1, pack("<Q1sIIQ", 1, b"k", 9, 8, 1 << 62)), Status.DAMAGED),
        (claims(0, 1, pack("<Q1sIIQ", 1, b"k", 9, 8, 1 << 30)), Status.TRUNCATED),
        (claims(0, 1, pack("<Q1sIIQ", 1, b"k", 9, 6, 1 << 29)), Status.TRUNCATED),
        (claims(0, 1, pack("<Q1sIIQ", 1, b"k", 9, 13, 1)), Status.DAMAGED),
        (claims(0, 1, pack("<Q1sI", 1, b"k", 77) + bytes(8)), Status.DAMAGED),
        (claims(1, 0, pack("<Q1sI", 1, b"t", 1 << 31) + bytes(64)), Status.DAMAGED),
        (b"GGUF" + pack("<IQQ", 4, 0, 0), Status.UNSUPPORTED),
        (b"GGUF" + pack("<IQQ", 0, 0, 0), Status.UNSUPPORTED),
    ],
)
def test_claims_that_cannot_be_true(content, status):
    with pparse.open(content, format="gguf") as document:
        list(document.check())
        assert document.status is status
        assert document.findings


def test_arrays_in_arrays_end_at_a_limit_and_not_in_a_crash():
    start = process_time()
    content = claims(0, 1, pack("<Q1sI", 1, b"k", 9) + pack("<IQ", 9, 1) * 100_000)
    with pparse.open(content) as document, pytest.raises(PparseError):
        document.get("metadata")
    assert process_time() - start < 20


def test_a_name_that_is_not_utf_8_costs_nothing():
    content = Writer().file([(b"k\xff", "v")], [(b"w\xff", (2,), F32, 0)], pack("<2f", 1, 2))
    with pparse.view(content) as model:
        assert model.metadata == {"k\\xff": "v"}
        assert model["w\\xff"].numpy().tolist() == [1, 2]


def test_a_text_that_is_not_utf_8_is_damaged_alone():
    content = Writer().file([("words", ["a", b"\xff", "c"]), ("last", ("uint8", 1))], [])
    with pparse.open(content) as document:
        assert [str(kid.status) for kid in document.node("metadata.words").children()] == [
            "complete",
            "damaged",
            "complete",
        ]
        assert document.get("metadata.last") == 1
        assert [finding.code for finding in document.check()] == ["malformed"]


# -- how little is read ------------------------------------------------------------------------------------------------

TOKENS = [f"token {number}" * (number % 3) for number in range(120_000)]


@pytest.fixture(scope="module")
def tokens() -> bytes:
    pairs = [("words", TOKENS), ("scores", ("float32", [0.5] * 120_000)), ("last", ("uint8", 9))]
    return Writer().file(pairs, [("t", (1 << 19,), F32, 0)], bytes(4 << 19))


def test_long_arrays_are_found_by_number_and_take_no_object_per_element(tokens):
    stats = IoStats()
    with pparse.view(tokens, stats=stats) as model:
        assert [tensor.name for tensor in model.tensors()] == ["t"]
        texts = sum(len(token) + 8 for token in TOKENS)
        assert stats.bytes < texts + (
            256 << 10
        )  # the texts are passed over once, the numbers and the tensor not at all
        assert model.metadata == {"words": "120,000 elements", "scores": "120,000 elements", "last": 9}
        words = model.root.find("metadata").find("words")
        assert len(words.index.offsets) <= 120_000 // 64 + 1
        before = stats.bytes
        assert [words[number].load() for number in (0, 1, 77_777, 119_999)] == [
            TOKENS[at] for at in (0, 1, 77_777, 119_999)
        ]
        assert stats.bytes - before < 100_000
        scores = model.root.find("metadata").find("scores")
        assert (len(scores), scores[119_999].load()) == (120_000, 0.5)
        with pytest.raises(PathError):
            model.extraction.node("metadata.scores[120000]")


def test_reading_a_token_again_gives_what_reading_all_gave(tokens):
    with pparse.open(tokens) as document:
        assert document.get("metadata.words") == TOKENS
        assert document.get("metadata.words[99999]") == TOKENS[99_999]


def test_texts_are_found_as_by_hand():
    words = [b"", b"a", b"x" * 300, b"", b"yz"]
    block = b"##" + b"".join(pack(">I", len(word)) + word for word in words)
    starts, places = [], []
    at = 2
    for word in words:
        starts.append(at + 1000)
        at += 4 + len(word)
        places.append(at)
    for size in range(2, len(block) + 1):
        whole = sum(place <= size for place in places)
        found, end = text_starts(block[:size], 2, 1000, ">I", 9)
        assert (found.tolist(), end) == (starts[:whole], 1000 + ([2, *places][whole]))
    assert text_starts(block, 2, 0, ">I", 2)[0].tolist() == [2, 6]


def test_the_layout_of_a_table_takes_no_memory_for_tensors():
    layout = GgufLayout(32)
    for number in range(1000):
        layout.add(GgufPlace(F32, (9,), 64 * number))
    assert (layout.overlaps, layout.holes, layout.unaligned, layout.end) == (False, 0, 0, 64 * 999 + 36)


# -- several files -----------------------------------------------------------------------------------------------------

PARTS = [DATA / "split" / f"model-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


@rows("part", PARTS)
def test_any_part_opens_all(part):
    with pparse.view(part) as model:
        assert list(model) == [f"blk.{number}.weight" for number in range(20)]
        assert model.metadata["general.name"] == "layers"
        assert model["blk.19.weight"].numpy().tobytes() == layer(19).tobytes()
        assert (model.extent().status, list(model.check())) == (Status.COMPLETE, [])


def test_a_missing_and_a_cut_part_are_told_and_cost_no_others(tmp_path):
    first, second, third = (tmp_path / part.name for part in PARTS)
    second.write_bytes(PARTS[1].read_bytes()[:2000])
    third.write_bytes(PARTS[2].read_bytes())
    with pparse.view(third) as model:
        statuses = {tensor.name: tensor.status.value for tensor in model.values()}
        assert list(statuses.values()) == ["complete"] * 2 + ["truncated"] + ["missing"] * 4 + ["complete"] * 6
        extent = model.extent()
        assert (extent.status, extent.missing_files, extent.at_least) == (Status.TRUNCATED, 1, True)
        assert [Path(file.file).name for file in extent.resume] == [first.name, second.name]
        told = {finding.code: finding.reason for finding in model.findings}
        assert (
            told["split"]
            == "split.tensors.count says 20 tensors, 13 are known, the others in 1 file that cannot be read"
        )
        assert len({str(finding) for finding in model.check()}) == len(list(model.check()))


def part(number: int, count: int, names: str, total: int = 6) -> bytes:
    pairs = [("split.no", ("uint16", number)), ("split.count", ("uint16", count))]
    tensors = [(name, (8,), F32, 32 * at) for at, name in enumerate(names)]
    content = pack(f"<{8 * len(names)}f", *range(8 * len(names)))
    return Writer().file([*pairs, ("split.tensors.count", ("int32", total))], tensors, content)


SOUND = {1: part(0, 3, "ab"), 2: part(1, 3, "cd"), 3: part(2, 3, "ef")}


@rows(
    ("wrong", "known", "told"),
    [
        ({3: part(1, 3, "cd")}, "abcd", {3: "split.no is 1, not 2"}),
        ({2: SOUND[3], 3: SOUND[2]}, "ab", {2: "split.no is 2, not 1", 3: "split.no is 1, not 2"}),
        ({2: part(1, 5, "z")}, "abef", {2: "split.count is 5, not 3"}),
        ({1: part(0, 0, "ab")}, "cdef", {1: "split.count is 0, not 3"}),
        ({2: Writer().file([], [("c", (8,), F32, 0)], bytes(32))}, "abef", {2: "it has no number split.no"}),
    ],
)
def test_a_file_in_the_place_of_a_part_is_no_part(wrong, known, told, tmp_path):
    paths = {number: tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)}
    for number, content in (SOUND | wrong).items():
        paths[number].write_bytes(content)
    with pparse.view(paths[2 if 3 in wrong else 3]) as model:
        assert "".join(model) == known
        assert (model.extent().status, model.extent().missing_files) == (Status.DAMAGED, len(wrong))
        found = [(finding.path, finding.severity.value, finding.reason) for finding in model.check()]
        assert found[:-1] == [
            (name, "error", f"{name} cannot be read: it is not the part that its name says: {why}")
            for name, why in ((paths[number].name, why) for number, why in told.items())
        ]
        assert f"says 6 tensors, {len(known)} are known" in found[-1][2]
    with pytest.raises(pparse.errors.NotWholeError):
        pparse.convert(paths[2 if 3 in wrong else 3], tmp_path / "out.safetensors")


def test_too_few_tensors_are_an_error_in_parts_and_in_one_file(tmp_path):
    paths = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, path in enumerate(paths):
        path.write_bytes(part(number, 2, "xy"[number], total=2 + number))
    (tmp_path / "one.gguf").write_bytes(part(0, 0, "ab", total=3))
    for path, known in ((paths[0], 2), (tmp_path / "one.gguf", 2)):
        with pparse.view(path) as model:
            reasons = [(finding.severity.value, finding.reason) for finding in model.check()]
            assert reasons == [("error", f"split.tensors.count says 3 tensors, {known} are known")]
            assert (len(model), model.extent().status) == (2, Status.DAMAGED)


def test_a_part_that_is_alone_is_read_alone():
    with pparse.view(PARTS[1].read_bytes()) as model:
        assert list(model) == [f"blk.{number}.weight" for number in range(7, 14)]


def test_a_file_that_is_only_named_like_a_part_is_a_model(tmp_path):
    path = tmp_path / "model-00001-of-00002.gguf"
    path.write_bytes(LAYERS)
    with pparse.view(path) as model:
        assert (len(model), model.is_set) == (20, False)


# -- commands ----------------------------------------------------------------------------------------------------------


def packed(content: bytes, how: str) -> bytes:
    out = io.BytesIO()
    if how == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("m.gguf", content)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            info = tarfile.TarInfo("m.gguf" if how == "tar" else "m.zip")
            content = content if how == "tar" else packed(content, "zip")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@rows(("how", "inner"), [("zip", "m.gguf"), ("tar", "m.gguf"), ("zip in tar", "m.zip::m.gguf")])
def test_in_archives(how, inner, tmp_path, run):
    (tmp_path / "outer").write_bytes(packed(LAYERS, how))
    ran = run("ls", f"{tmp_path / 'outer'}::{inner}")
    assert (ran.code, ran.out.count("complete")) == (0, 21)
    ran = run("get", f"{tmp_path / 'outer'}::{inner}", "blk.7.weight[2,3]")
    assert f"{layer(7)[2, 3]:.4f}"[:6] in ran.out


def test_info_tells_the_types_and_the_bits_of_each_weight(run):
    ran = run("info", DATA / "types.gguf")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "version 3, little-endian" in lines
    assert "alignment 32" in lines
    assert "Q4_K 1 tensor, 1,536 parameters, 864 B, 4.50 bits each" in lines
    assert "metadata tokenizer.ggml.tokens = 120 elements" in lines
    assert any(line.startswith("key-values 16 (") and "array of text 1" in line for line in lines)


def test_quantised_tensors_are_converted_to_their_values(tmp_path):
    with np.errstate(all="ignore"):
        report = pparse.convert(DATA / "types.gguf", tmp_path / "t.safetensors", skip_unsupported=True)
        assert [entry.name for entry in report.left_out] == ["any.Q8_1", "any.Q8_K", "any.Q1_0"]
        with pparse.view(DATA / "types.gguf") as one, pparse.view(tmp_path / "t.safetensors") as other:
            for name in other:
                assert other[name].numpy().tobytes() == one[name].numpy().tobytes()
                assert other[name].shape == one[name].shape


@rows("order", ["little", "big"])
def test_whole_tensors_of_a_cut_file_are_recovered_as_they_are(order, tmp_path, run):
    """Blocks are copied, those that nothing decodes, too; a name that came twice has a number."""
    cut, content = tmp_path / "m.gguf", (DATA / "types.gguf").read_bytes()[:-80]
    if order == "big":
        table = [("w", (2, 32), Q8_0, 0), ("w", (8,), F32, 128), ("lost", (8,), F32, 192), ("cut", (8,), F32, 256)]
        pairs = [("general.alignment", ("uint32", 64)), ("n", ("uint16", 7))]
        content = Writer(order=">").file(pairs, table, bytes(range(256)) + bytes(20))
    cut.write_bytes(content)
    ran = run("recover", cut, "-o", tmp_path / order)
    assert ran.code == 4
    assert not list((tmp_path / order).glob("*.safetensors*"))
    with pparse.view(cut) as one, pparse.view(tmp_path / order / "m.gguf") as other:
        whole = [tensor for tensor in one.values() if tensor.is_complete]
        assert len(whole) == (42 if order == "little" else 3)
        assert list(other) == [tensor.name for tensor in whole]
        for tensor in whole:
            new = other[tensor.name]
            assert (new.type_name, new.shape, new.byteorder) == (tensor.type_name, tensor.shape, tensor.byteorder)
            assert b"".join(new.raw_blocks(1 << 20)) == b"".join(tensor.raw_blocks(1 << 20))
        assert other.metadata == one.metadata
        assert list(other.check()) == [] or order == "big"


def test_blocks_are_quantised_the_same_from_any_place_on():
    from pparse.conversion.forms import _BlockItem

    values = np.random.default_rng(8).standard_normal((40, 64)).astype("f4")
    with pparse.view(Writer().file([], [("w", (40, 64), F32, 0)], values.tobytes())) as model:
        item = _BlockItem(model["w"], "w", 0, "Q8_0")
        pieces = list(item.pieces(0, 4096 * 3, iter(())))
        assert len(pieces) > 5
        whole = b"".join(pieces)
        assert len(whole) == item.nbytes == 40 * 2 * 34
        done = 0
        for piece in pieces:
            assert b"".join(item.pieces(done, 4096 * 3, iter(()))) == whole[done:]
            done += len(piece)


@rows(("name", "shape", "why"), [("n" * 64, (2,), "63 bytes"), ("a", (1,) * 5, "4 dimensions")])
def test_what_ggml_does_not_read_is_not_written(name, shape, why, tmp_path):
    with pytest.raises(UnsupportedError, match=why):
        pparse.convert(Writer().file([], [(name, shape, F32, 0)], bytes(32)), tmp_path / "out.gguf")
    assert not list(tmp_path.iterdir())


def test_key_values_that_are_not_copied_are_told(tmp_path):
    source, target = tmp_path / "m.gguf", tmp_path / "out.gguf"
    pairs = [("n", ("uint8", 7)), ("many", ("uint8", [0] * (9 << 20)))]
    source.write_bytes(Writer().file(pairs, [("a", (8,), F32, 0)], bytes(32)))
    assert pparse.convert(source, target).notes == []
    notes = pparse.convert(source, target, force=True, budget="32MiB").notes
    with pparse.view(target) as model:
        assert model.metadata["n"] == "7"
    assert "did not keep their types, but became texts: they take 9.0 MiB, and only up to 8.0 MiB are" in notes[-1]


def test_of_a_split_model_whose_first_part_is_cut_key_values_are_not_copied(tmp_path):
    for number, path in enumerate(PARTS):
        (tmp_path / path.name).write_bytes(path.read_bytes()[: None if number else 180])
    report = pparse.convert(tmp_path / PARTS[1].name, tmp_path / "out.gguf", skip_damaged=True)
    assert "but became texts: they are not whole" in report.notes[-1]
    with pparse.view(tmp_path / "out.gguf") as model:
        assert (len(model), list(model.check())) == (13, [])


@rows(("target", "dtype"), [("out.gguf", "F16"), ("out.safetensors", None), ("out.npz", None)])
def test_what_cannot_be_decoded_is_told_so(target, dtype, tmp_path):
    with np.errstate(all="ignore"):
        report = pparse.convert(DATA / "types.gguf", tmp_path / target, dtype=dtype, skip_unsupported=True)
    assert {entry.reason for entry in report.left_out} == {
        f"its type {name!r} cannot be decoded (numpy(raw=True) gives its blocks)" for name in ("Q8_1", "Q8_K", "Q1_0")
    }


def test_blocks_that_nothing_decodes_are_copied_from_gguf_to_gguf(tmp_path):
    report = pparse.convert(DATA / "types.gguf", tmp_path / "out.gguf")
    assert (report.left_out, report.notes) == ([], [])  # all key-values are there, the long ones, too
    with pparse.view(DATA / "types.gguf") as one, pparse.view(tmp_path / "out.gguf") as other:
        assert {tensor.name: tensor.type_name for tensor in other.values()} == {
            tensor.name: tensor.type_name for tensor in one.values()
        }
        for name in ("any.Q8_1", "any.Q8_K", "any.Q1_0"):
            assert other[name].dtype is None
            assert other[name].numpy(raw=True).tobytes() == one[name].numpy(raw=True).tobytes()
        assert list(other.metadata) == [key for key in one.metadata if key != "general.alignment"]


def test_blocks_of_a_big_endian_file_that_nothing_decodes_are_not_copied(tmp_path):
    q8_1 = 9
    source = Writer(order=">").file([], [("w", (2, 32), q8_1, 0)], bytes(80))
    with pytest.raises(UnsupportedError, match="'Q8_1' cannot be decoded"):
        pparse.convert(source, tmp_path / "out.gguf")


def test_only_gguf_files_are_quantised(tmp_path):
    with pytest.raises(pparse.errors.OptionError, match="only GGUF"):
        pparse.convert(DATA / "layers.gguf", tmp_path / "out.npz", dtype="Q8_0")


def test_tensors_that_were_never_written_are_told(tmp_path, run):
    path = tmp_path / "m.gguf"
    head = Writer().file([], [("a", (1 << 18,), F32, 0), ("b", (1 << 18,), F32, 1 << 20)])
    with path.open("wb") as file:
        file.write(head + b"\1" * (1 << 20))
        file.truncate(len(head) + (2 << 20))
    with pparse.view(path) as model:
        if not model.holes:
            pytest.skip("the file system has no holes")
        assert [bool(tensor.unwritten_nbytes) for tensor in model.values()] == [False, True]
        assert "never written" in model["b"].finding.reason
        assert model.extent().resume_at == len(head) + (1 << 20)
    assert (run("check", path).code, "never written" in run("ls", path).out) == (4, True)


@rows(("kind", "shape"), [(F32, (0, 1 << 63)), (F32, (1 << 60, 0)), (Q8_0, (1 << 63, 0)), (Q8_0, (1 << 62, 0, 32))])
def test_an_array_without_elements_whose_other_lengths_no_array_has_is_not_read(kind, shape) -> None:
    content = Writer().file([], [("a", shape, kind, 0), ("b", (8,), F32, 0)], bytes(32))
    with pparse.view(content) as model:
        assert model["a"].status is Status.UNSUPPORTED
        assert "too large for an array" in model["a"].finding.reason
        with pytest.raises(UnsupportedError, match="too large for an array"):
            model["a"].numpy()
        assert model["b"].status is Status.COMPLETE


def test_a_part_under_another_name_is_not_the_model() -> None:
    pairs = [("split.no", ("uint16", 0)), ("split.count", ("uint16", 3)), ("split.tensors.count", ("int32", 5))]
    part = Writer().file(pairs, [("a", (8,), F32, 0), ("b", (8,), F32, 32)], bytes(64))
    for content, codes in ((part, {"split": "error"}), (part + part, {"split": "error", "trailing-bytes": "error"})):
        assert findings_of(content) == codes
        with pparse.view(content) as model:
            extent = model.extent()
            assert (extent.whole, extent.unlisted, extent.missing_files) == (2, 3, 2)
            assert extent.status is not Status.COMPLETE
            assert [each.status for each in model.tensors()] == [Status.COMPLETE] * 2


@rows("table", [[], [("a", (0, 4), F32, 0)]])
def test_the_padding_of_a_file_without_data_is_no_damage(table):
    """gguf.GGUFWriter pads what has a vocabulary only, too."""
    head = Writer().file([("n", "x" * 11)], table, alignment=1)
    assert len(head) % 32
    padded = head + bytes(-len(head) % 32)
    assert findings_of(padded) == findings_of(head) == {}
    with pparse.view(padded) as model:
        assert model.extent().status is Status.COMPLETE
    assert findings_of(padded + b"more")["trailing-bytes"] == "error"


def test_parts_in_an_archive_that_are_named_as_what_they_are_lack_nothing(tmp_path, run):
    archive, names = tmp_path / "a.zip", [path.name for path in PARTS]
    with zipfile.ZipFile(archive, "w") as out:
        for path in PARTS:
            out.write(path, path.name)
    ran = run("check", "-R", archive, "--jsonl")
    told = [json.loads(line) for line in ran.out.splitlines()]
    found = [(each["source"], each["code"], each["severity"]) for each in told if "code" in each]
    assert (ran.code, found) == (0, [(name, "shards-not-read", "note") for name in names])
    assert run("recover", archive, "-o", tmp_path / "saved").code == 0
    for path in PARTS:
        assert (tmp_path / "saved" / path.name).read_bytes() == path.read_bytes()
    with zipfile.ZipFile(archive, "w") as out:
        out.write(PARTS[0], names[1])  # in the place of another one
    ran = run("check", "-R", archive)
    assert ran.code == 4
    assert "number 1 of 3 parts of a model, and not named as one" in ran.out


def test_the_metadata_tell_that_a_long_array_is_cut() -> None:
    whole = Writer().file([("n", ("uint32", [*range(100)]))], [("a", (8,), F32, 0)], bytes(32))
    with pparse.view(whole) as model:
        assert model.metadata["n"] == "100 elements"
    with pparse.view(whole[: whole.index(pack("<2I", 90, 91))]) as model:
        assert model.metadata["n"] == "truncated: 90 elements are there"


def test_tensors_of_a_file_that_is_longer_than_its_table_says_may_have_moved() -> None:
    content = Writer().file([], [("a", (8,), F32, 0), ("b", (8,), F32, 32)], pack("<16f", *range(16)))
    for at in (len(content) - 64, len(content) - 20, len(content)):
        longer = content[:at] + b"inserted" + content[at:]
        assert findings_of(longer)["trailing-bytes"] == "error"
        with pparse.view(longer) as model:
            assert [each.status for each in model.tensors()] == [Status.DAMAGED] * 2
    padded = content + bytes(-len(content) % 512)
    assert findings_of(padded) == {}
    with pparse.view(padded) as model:
        assert [each.status for each in model.tensors()] == [Status.COMPLETE] * 2


def test_blocks_of_the_newest_type_have_a_size() -> None:
    with pparse.view(Writer().file([], [("w", (2, 128), 42, 0)], bytes(96))) as model:
        assert (model["w"].stored_dtype, model["w"].stored_nbytes) == ("Q2_0", 72)


def test_what_check_says_of_texts_at_once_is_what_their_nodes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = "pparse.parsers.gguf.parser.GgufParser.is_sound_inside"

    def said(content: bytes) -> list[str]:
        with pparse.open(content, format="gguf") as document:
            return [*map(str, document.check()), str(document.status)]

    texts = ["a", "ö" * 130, "", "x" * 256, "y" * 300, "end"]
    content = Writer().file([("texts", texts), ("numbers", ("int32", [1, 2, 3]))], [("a", (8,), F32, 0)], bytes(32))
    damaged = [content[:at] + b"\xff" + content[at + 1 :] for at in sweep.some(range(24, len(content) - 32), 3)]
    for one in (content, *damaged, *(content[:at] for at in sweep.some(range(24, len(content)), 20))):
        found = said(one)
        with monkeypatch.context() as slowly:
            slowly.setattr(nodes, lambda *_: None)
            assert said(one) == found, one
    visits = []
    monkeypatch.setattr("pparse.tree.visit.Visit.of", lambda node, *_: visits.append(node.key))
    with pparse.open(content, format="gguf") as document:
        list(document.parse().parser.check())
    assert "texts" in visits
    assert visits.count(None) == 1  # the root: nothing in a list


def test_every_version_and_byte_order_becomes_the_same_file(tmp_path):
    """Their key-values are written again for version 3, whatever they hold."""
    pairs = [
        *(("general.architecture", "llama"), ("u8", ("uint8", 7)), ("i16", ("int16", -3)), ("f64", ("float64", 1.5))),
        *(("flag", ("bool", True)), ("texts", ["x", "yy", ""]), ("lists", [["p", "q"], ["r"]]), ("none", [])),
        *(("numbers", ("uint32", [1, 2, 3])), ("deep", [("uint16", [1, 2]), ("uint16", [3])])),
        *(("wide", ("int64", [-1, 1 << 40])), ("flags", ("bool", [True, False]))),
    ]
    made = set()
    for version, order in ((1, "<"), (2, "<"), (3, "<"), (1, ">"), (2, ">"), (3, ">")):
        writer = Writer(version, order)
        content = writer.file(pairs, [("t", (8,), F32, 0)], writer.pack("8f", *range(8)))
        pparse.convert(content, tmp_path / "out.gguf", force=True)
        made.add((tmp_path / "out.gguf").read_bytes())
        with pparse.view(content) as old, pparse.view(tmp_path / "out.gguf") as new:
            assert dict(old.metadata) == dict(new.metadata)
            assert new["t"].numpy().tolist() == [*range(8)]
    assert len(made) == 1


def test_a_gap_in_a_list_behind_many_keys_damages_the_list():
    pairs = [*((f"k{number}", ("uint32", number)) for number in range(100)), ("list", ["text"] * 20)]
    content = Writer().file(pairs, [], b"")
    source = GappyData(content, [(content.index(b"list") + 60, 10)])
    with pparse.open(source) as document:
        assert any(finding.code == "malformed" for finding in document.check())
        metadata = document.root.find("metadata")
        assert [kid.key for kid in metadata.children()] == [key for key, _ in pairs]
        assert metadata.find("list").status is Status.DAMAGED
        assert metadata.find("k99").load() == 99


def test_scan_does_not_pass_over_metadata_beyond_a_limit():
    template = ("tokenizer.chat_template", "{{ ''.__class__.__mro__[1].__subclasses__() }}")
    content = Writer().file([*((f"k{number}", ("uint32", number)) for number in range(100)), template], [], b"")
    assert [use.grade.name for use in pparse.scan(content)] == ["DANGEROUS"]
    (use,) = pparse.scan(content, limits=pparse.Limits(entries=50))
    assert (use.name, use.grade.name) == ("?", "UNKNOWN")


def test_a_table_that_is_cut_lacks_what_the_header_counts(tmp_path, run):
    path, content = tmp_path / "m.gguf", plain(5)
    path.write_bytes(content[: content.index(b"t3") + 4])
    assert "whole: 0 of at least 5 tensors, 5 missing" in run("ls", path).out
    path.write_bytes(content[:8] + (1 << 40).to_bytes(8, "little") + content[16 : content.index(b"t3") + 4])
    assert "whole: 0 of at least 3 tensors, 3 missing" in run("ls", path).out, "the header is wrong"
