"""TFRecord files: records and Examples, laziness, damage, hostile lengths, what the commands show."""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

import pparse
from pparse.errors import EndOfDataError, MalformedError, OptionError
from pparse.findings import Severity, Status
from pparse.kernels.tfrecord_scan import chain, head_at, heads
from pparse.testing.fakes import GappyData
from tests.rows import rows
from tests.tfrecord_files import example, head, masked, record, sequence_example, sound_records, tfrecord
from tests.tfrecord_zoo import compare

RECORDS = [b"one", b"", b"three" * 30, b"\0" * 9, b"last"]
FILE = tfrecord(RECORDS)
EXAMPLES = [
    example(label=[number, -1, 2**63 - 1], image=[b"\x89PNG" + bytes([number]) * 50, b""], box=[0.5, -0.25])
    for number in range(8)
]


def starts(records: list[bytes]) -> list[int]:
    found = [0]
    for data in records:
        found.append(found[-1] + 16 + len(data))
    return found


def read(content, **options):
    """Return kind, status and value of what is in a file after everything was checked, and its findings."""
    found = []
    with pparse.open(content, format="tfrecord", options={"message": "none", **options}) as document:
        findings = list(document.check())
        for node in document.root.children():
            try:
                value = node.load()
            except pparse.PparseError as error:
                value = type(error)
            found.append((node.kind, node.status, value))
            if node.kind == "record":  # what is known to be wrong is refused, however it is come to
                assert (node.status is Status.DAMAGED) <= isinstance(value, type), node
        return found, document.status, findings


def whole(content) -> list[bytes]:
    return [value for kind, status, value in read(content)[0] if kind == "record" and status is Status.COMPLETE]


# -- what is read ------------------------------------------------------------------------------------------------------


def test_records_by_number():
    with pparse.open(FILE) as document:
        assert document.format == "tfrecord"
        assert [document.get(f"[{number}]") for number in range(5)] == RECORDS
        assert [node.spans for node in document.root.children()] == [
            ((at + 12, len(data)),) for at, data in zip(starts(RECORDS), RECORDS, strict=False)
        ]
        assert not list(document.check())
        assert document.result.listing.checksums() == (5, 5, "record")


def test_the_files_of_tensorflow():
    """Kept ones, with what TensorFlow reads from them; tests/interop/make_tfrecord_zoo.py made both."""
    assert compare(Path(__file__).parent / "data" / "tfrecord") == 12


@rows("wrap", [gzip.compress, zlib.compress, lambda raw: gzip.compress(raw[:90]) + gzip.compress(raw[90:])])
@rows("name", ["x.tfrecord", "x.tfrecord.gz", "x", "train-00000-of-00010"])
def test_compressed_files_are_recognised_whatever_their_names(tmp_path, wrap, name):
    (tmp_path / name).write_bytes(wrap(FILE))
    with pparse.open(tmp_path / name) as document:
        assert (document.format, [node.load() for node in document.root.children()]) == ("tfrecord", RECORDS)


@rows("level", [0, 6])
def test_a_stream_that_holds_records_as_they_are_is_a_stream(tmp_path, level):
    content = tfrecord([random.Random(number).randbytes(900) for number in range(20)])
    (tmp_path / "x.tfrecord").write_bytes(zlib.compress(content, level))
    with pparse.open(tmp_path / "x.tfrecord") as document:
        assert (document.status, len(document.root)) == (Status.COMPLETE, 20)


@rows("length", [0, 1, 2, 31, 40, 91, 93, 123, 128, 255, 256, 0x8B1F, 0x9C78, 0x8B1F + 65536])
def test_files_of_any_first_length_are_recognised_without_a_name(length):
    """The first bytes may be those of JSON, of a pickle, of gzip or of zlib."""
    with pparse.open(tfrecord([bytes(length), b"x"])) as document:
        assert (document.format, len(document.root)) == ("tfrecord", 2)


def test_examples_are_recognised_and_read_field_by_field():
    with pparse.open(tfrecord(EXAMPLES)) as document:
        assert document.node("[3]").kind == "tensorflow.Example"
        assert document.get('[3].features.feature["label"].int64_list.value[0]') == 3
        assert document.get("[3].features.feature.label.int64_list.value[2]") == 2**63 - 1
        assert document.get("[3].features.feature.image.bytes_list.value[1]") == b""
        assert document.node("[3].features.feature.box").to_python() == {"float_list": {"value": [0.5, -0.25]}}
        assert document.node("[3]").open().read() == EXAMPLES[3]


def test_numbers_that_are_not_packed_are_read_too():
    feature = b"\x1a\x04\x08\x05\x08\x07"  # int64_list, with 5 and 7 one by one
    floats = b"\x12\x0a\x0d\x00\x00\x00\x3f\x0d\x00\x00\x80\x3f"
    pairs = [b"\x0a\x01" + name + b"\x12" + bytes([len(raw)]) + raw for name, raw in ((b"i", feature), (b"f", floats))]
    features = b"".join(b"\x0a" + bytes([len(pair)]) + pair for pair in pairs)
    with pparse.open(tfrecord([b"\x0a" + bytes([len(features)]) + features])) as document:
        values = document.node("[0].features.feature").to_python()
    assert values == {"i": {"int64_list": {"value": [5, 7]}}, "f": {"float_list": {"value": [0.5, 1.0]}}}


def test_sequence_examples_are_recognised_by_any_of_the_first_records():
    plain = sequence_example({"id": [b"a"]}, {})  # reads as an Example, too
    lists = sequence_example({"id": [b"b"]}, {"tokens": [[1, 2], [3]]})
    with pparse.open(tfrecord([plain, lists])) as document:
        assert document.node("[0]").kind == "tensorflow.SequenceExample"
        found = document.node("[1].feature_lists.feature_list.tokens.feature").to_python()
    assert [step["int64_list"]["value"] for step in found] == [[1, 2], [3]]


@rows(
    "records", [[b"hello"], [b"\x0a\x00"], [b""], [EXAMPLES[0], b"hello"], [EXAMPLES[0] + b"\x18\x01"], [b'{"a": 1}']]
)
def test_what_is_no_example_is_bytes(records):
    with pparse.open(tfrecord(records)) as document:
        assert [node.kind for node in document.root.children()] == ["record"] * len(records)
        assert [node.load() for node in document.root.children()] == records


def test_the_options_name_the_type():
    content = tfrecord(EXAMPLES)
    with pparse.open(content, options={"message": "none"}) as document:
        assert document.get("[0]") == EXAMPLES[0]
    with pparse.open(content, options={"message": "tensorflow.SequenceExample"}) as document:
        assert list(document.node("[0]").keys()) == ["context"]
    with pytest.raises(OptionError, match="nothing"), pparse.open(content, options={"message": "nothing"}) as document:
        len(document.root)
    with (
        pytest.raises(OptionError, match="headers, touched, all"),
        pparse.open(content, options={"verify": "x"}) as document,
    ):
        len(document.root)


def test_a_type_of_ones_own_is_checked():
    """Whole by its checksum, and no message: who named the type is told."""
    content = tfrecord([EXAMPLES[0], b"hello"])
    with pparse.open(content, options={"message": "tensorflow.Example"}) as document:
        assert [finding.severity for finding in document.check()] == [Severity.ERROR]
    with pparse.open(content) as document:  # nobody did
        assert not list(document.check())


def test_descriptors_of_a_file():
    samples = Path(__file__).resolve().parent.parent / "docs" / "samples"
    with pparse.open(samples / "records.riegeli") as riegeli:
        records = [riegeli.get(f"[533][{number}]") for number in range(3)]
    options = {"descriptor": str(samples / "reading.binpb"), "message": "samples.Reading"}
    with pparse.open(tfrecord(records), options=options) as document:
        assert document.node("[0]").kind == "samples.Reading"
        assert document.get("[0].station") == "Säntis"


# -- laziness ----------------------------------------------------------------------------------------------------------


def test_listing_reads_heads_and_a_record_its_own_bytes():
    content = tfrecord([bytes(500_000)] * 40)
    with pparse.open(content, options={"message": "none"}) as document:
        assert len(document.root) == 40
        assert document.session.stats.bytes < 40 * 4_200 + 300_000  # the beginning is searched for other formats, too
        before = document.session.stats.bytes
        document.get("[20]")
        assert 500_000 <= document.session.stats.bytes - before < 1_100_000


def test_a_field_of_a_large_record_is_read_without_the_others():
    large = example(a=[bytes(4_300_000)], b=[7])
    with pparse.open(tfrecord([large, EXAMPLES[0]])) as document:
        assert document.get("[0].features.feature.b.int64_list.value[0]") == 7
        assert document.session.stats.bytes < 300_000
    with pparse.open(tfrecord([large]), options={"verify": "all"}) as document:
        document.get("[0].features.feature.b.int64_list.value[0]")
        assert document.session.stats.bytes > 4_300_000


def test_the_index_takes_an_eighth_of_a_byte_a_record():
    content = record(b"12345") * 200_000
    with pparse.open(content) as document:
        assert len(document.root) == 200_000
        assert document.root.index.memory <= 200_000 // 8 + 1_000
        assert document.root.child(199_999).load() == b"12345"
        assert document.session.budget.peak < 4 << 20


def test_many_empty_records():
    content = record(b"") * 400_000
    with pparse.open(content) as document:
        assert len(document.root) == 400_000
        assert document.get("[399999]") == b""


# -- cuts --------------------------------------------------------------------------------------------------------------


def test_a_file_cut_to_60_percent_has_all_whole_records():
    records = [random.Random(number).randbytes(number * 11 % 400) for number in range(300)]
    content = tfrecord(records)
    cut = content[: len(content) * 6 // 10]
    count = sum(end <= len(cut) for end in starts(records)[1:])
    found, status, findings = read(cut)
    assert status is Status.TRUNCATED
    assert [value for _, state, value in found if state is Status.COMPLETE] == records[:count]
    assert [(kind, state, value) for kind, state, value in found[count:]] == [
        ("record", Status.TRUNCATED, EndOfDataError)
    ]
    assert [finding.code for finding in findings] == ["truncated"]


def test_fields_of_a_cut_record():
    content = tfrecord(EXAMPLES[:2])
    with pparse.open(content[:-30]) as document:
        cut = document.node("[1]")
        assert cut.status is Status.TRUNCATED
        assert document.get("[1].features.feature.box.float_list.value[0]") == 0.5
        assert document.result.listing.missing() == 30
        with pytest.raises(EndOfDataError):
            cut.to_python()


@rows("there", [1, 12, 13, 15, 40])
def test_the_type_is_known_by_the_whole_records(there):
    with pparse.open(tfrecord(EXAMPLES[:1]) + record(EXAMPLES[1])[:there]) as document:
        assert document.root.child(0).kind == "tensorflow.Example"


@rows("size", range(12))
def test_a_cut_head(size):
    found, status, _ = read(FILE + record(b"more")[:size])
    assert [value for _, _, value in found] == RECORDS
    assert status is (Status.TRUNCATED if size else Status.COMPLETE)


def test_data_without_their_checksum_are_there_and_not_proved(run, tmp_path):
    found, status, _ = read(FILE[:-2])
    assert ([value for _, _, value in found], status) == (RECORDS, Status.TRUNCATED)
    (tmp_path / "x.tfrecord").write_bytes(FILE[:-2])
    assert run("recover", tmp_path / "x.tfrecord", "-o", tmp_path / "out").code == 4
    assert sound_records((tmp_path / "out" / "x.tfrecord").read_bytes()) == RECORDS[:-1]


def test_an_empty_file_has_no_records(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(b"")
    with pparse.open(tmp_path / "x.tfrecord") as document:
        assert (document.format, len(document.root), document.status) == ("tfrecord", 0, Status.COMPLETE)
        assert [finding.code for finding in document.findings] == ["empty"]


# -- damage ------------------------------------------------------------------------------------------------------------


def changed(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


def test_a_record_with_a_wrong_checksum_is_damaged_and_its_neighbours_are_whole():
    bad = changed(FILE, starts(RECORDS)[2] + 20, b"X")
    with pparse.open(bad) as document:
        with pytest.raises(MalformedError, match=r"record's data is wrong.*anyway with options=.*headers"):
            document.get("[2]")
        assert document.node("[2]").status is Status.DAMAGED
        assert [document.get(f"[{number}]") for number in (0, 1, 3, 4)] == [RECORDS[number] for number in (0, 1, 3, 4)]
        assert [finding.path for finding in document.check()] == ["[2]"]
    with pparse.open(bad, options={"verify": "headers"}) as document:
        assert document.get("[2]")[8:9] == b"X"


def test_no_field_of_a_record_with_a_wrong_checksum_is_handed_out():
    content = tfrecord(EXAMPLES)
    bad = changed(content, content.index(bytes([3]) * 50), b"X")
    with pparse.open(bad) as document:
        assert document.node("[2].features.feature.label.int64_list.value[0]").load() == 2
        with pytest.raises(MalformedError, match="checksum"):
            document.get("[3].features.feature.label.int64_list.value[0]")
        with pytest.raises(MalformedError, match="checksum"):
            document.node("[3]").to_python()
        assert document.node("[3]").status is Status.DAMAGED
        assert list(document.node("[3]").keys()) == []
    with pparse.open(bad, options={"verify": "headers"}) as document:
        value = document.node("[3].features.feature.label.int64_list.value[0]")
        assert (value.load(), value.status) == (3, Status.COMPLETE)
        list(document.check())
        assert value.status is document.node("[3]").status is Status.DAMAGED  # who holds it learns of it


@rows("number", range(5))
@rows("place", [0, 7, 8, 11])
def test_a_damaged_head_loses_no_record(number, place):
    at = starts(RECORDS)[number] + place
    found, status, findings = read(changed(FILE, at, bytes([FILE[at] ^ 0x40])))
    assert ([value for _, _, value in found], status) == (RECORDS, Status.DAMAGED)
    assert "its data are whole" in findings[0].reason


def test_what_is_lost_is_a_gap_with_its_place():
    at = starts(RECORDS)
    bad = changed(FILE, at[2] + 4, b"#" * 100)
    found, status, findings = read(bad)
    assert [value for kind, _, value in found if kind == "record"] == [*RECORDS[:2], *RECORDS[3:]]
    assert found[2][:2] == ("gap", Status.DAMAGED)
    assert (findings[0].offset, findings[0].length) == (at[2], at[3] - at[2])
    assert status is Status.DAMAGED
    # Which bytes are lost, the checksum of the data tells: carriage returns, and the end of the file is there.
    parts = [b"a", b"some\r\ntext\nmore" * 2, b"b" * 20, b"\n\r\n\n"]
    found, status, findings = read(tfrecord(parts).replace(b"\r\n", b"\n"))
    assert [told for _, told, _ in found] == [Status.COMPLETE, Status.DAMAGED, Status.COMPLETE, Status.DAMAGED]
    assert status is Status.DAMAGED
    named = [finding.offset for finding in findings if finding.code == "text-mode"]
    assert named == [starts(parts)[1], starts(parts)[3] - 2]
    assert "text-mode" not in {finding.code for finding in read(tfrecord(parts)[:-1])[2]}


@rows("count", [1, 5, 30, 140])
@rows("number", [0, 2, 4])
def test_records_behind_lost_and_inserted_bytes_are_found(number, count):
    records = [bytes([65 + number]) * 150 for number in range(6)]
    content, at = tfrecord(records), starts(records)[number]
    others = [data for data in records if data != records[number]]
    assert whole(content[: at + 5] + content[at + 5 + count :]) == others
    assert whole(content[: at + 5] + b"!" * count + content[at + 5 :]) == others
    assert whole(content[: at + 20] + content[at + 20 + count :]) == others


def test_a_record_that_claims_others_is_refused_before_anything_was_checked():
    records = [bytes([65 + number]) * 150 for number in range(6)]
    content, at = tfrecord(records), starts(records)[2]
    with pparse.open(content[: at + 20] + content[at + 60 :]) as document:
        nodes = list(document.root.children())
        assert [node.load() for node in nodes if node is not nodes[2]] == records[:2] + records[3:]
        with pytest.raises(MalformedError, match="checksum"):
            nodes[2].load()
        assert nodes[2].status is Status.DAMAGED


def test_two_damaged_heads_one_after_the_other():
    at = starts(RECORDS)
    assert whole(changed(changed(FILE, at[2], b"\xff" * 8), at[3], b"\xff" * 12)) == [*RECORDS[:2], RECORDS[4]]


def test_random_damage_never_gives_a_record_that_was_not_there():
    rng = random.Random(7)
    for _ in range(150):
        records = [rng.randbytes(rng.choice([0, 1, 4, 40, 200])) for _ in range(rng.randint(1, 10))]
        content, ends = tfrecord(records), starts(records)
        at, count = rng.randrange(len(content)), rng.randint(1, 60)
        bad = changed(content, at, rng.randbytes(count))[: len(content)]
        found = whole(bad)
        sure = [
            data for data, (begin, end) in zip(records, pairwise(ends), strict=True) if end <= at or begin >= at + count
        ]
        places = iter(found)
        assert all(any(data == other for other in places) for data in sure)
        places = iter(records)
        assert all(any(data == other for other in places) for data in found)


@rows("length", [30, 100])
def test_records_around_a_gap_in_the_data(length):
    at = starts(RECORDS)
    found, status, _ = read(GappyData(FILE, [(at[2] + 3, length)]))  # in a head
    assert [value for kind, _, value in found if kind == "record"] == [*RECORDS[:2], *RECORDS[3:]]
    assert (found[2][0], status) == ("gap", Status.DAMAGED)
    found, status, _ = read(GappyData(FILE, [(at[2] + 20, length)]))  # in data: the next place is known
    assert [value for _, state, value in found if state is Status.COMPLETE] == [*RECORDS[:2], *RECORDS[3:]]
    assert (found[2][:2], len(found)) == (("record", Status.DAMAGED), 5)


# -- hostile -----------------------------------------------------------------------------------------------------------


@rows("length", [2**63, 2**64 - 1, 2**63 - 1, 2**62, 2**32, 10**6])
def test_lengths_beyond_the_file_with_a_right_checksum(length):
    with pparse.open(FILE + head(length) + b"abc") as document:
        cut = document.root.child(5)
        assert (cut.status, document.status) == (Status.TRUNCATED, Status.TRUNCATED)
        with pytest.raises(EndOfDataError):
            cut.load()
        assert document.session.budget.peak < 4 << 20
    assert whole(head(length) + FILE) == RECORDS  # they lead to the end: nothing is cut


def test_lengths_that_lie_cost_no_more_than_the_file():
    """Heads with right checksums everywhere, each with a length that spans the rest, and no data that fit it."""
    size = 400_000
    content = bytearray(b"\x01" * 12)  # no head
    while len(content) < size:
        content += head(size + 64 - len(content) - 16)
    content += bytes(64)
    with pparse.open(bytes(content), format="tfrecord") as document:
        list(document.check())
        assert document.session.stats.bytes < 20 * len(content) + (80 << 20)
        assert document.session.stats.reads < len(content) // 4


def test_nested_claims_are_not_followed_for_ever():
    """Each record holds another that begins inside of it, and all their data are wrong."""
    inner = b"x" * 100
    for _ in range(300):
        inner = head(len(inner)) + inner + b"bad!"
    content = record(b"first") + inner + b"no head at the end"
    with pparse.open(content, format="tfrecord") as document:
        assert len(document.root) < 1_000
        list(document.check())
        assert document.session.stats.bytes < 400 * len(content)


def test_many_wrong_records_are_told_within_the_budget():
    wrong = head(3) + b"abc" + b"bad!"
    with pparse.open(wrong * 15_000, budget="8MiB") as document:
        assert sum(1 for _ in document.check()) >= 1_000
        assert document.session.budget.peak <= 8 << 20
        assert document.root.child(14_999).status is Status.DAMAGED


def test_noise_is_scanned_at_a_fair_speed():
    noise = random.Random(1).randbytes(3_000_000)
    found, status, _ = read(record(b"a") + noise + record(b"b") + record(b"c"))
    assert [value for kind, _, value in found if kind == "record"] == [b"a", b"b", b"c"]
    assert status is Status.DAMAGED


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_heads_are_found_at_every_offset():
    for shift in range(20):
        block = b"\x07" * shift + FILE
        assert heads(block, len(block)) == [shift + at for at in starts(RECORDS)[:-1]]
    assert heads(bytes(100_000), 2**63) == []
    assert heads(record(b"12345"), 4) == []
    assert heads(b"", 5) == heads(bytes(11), 5) == []


def test_heads_across_the_pieces_of_a_large_block():
    records = [b"x" * (number % 23) for number in range(9_000) if number % 23 != 8]  # whose checksum makes a head
    assert heads(tfrecord(records), 2**40) == starts(records)[:-1]


@pytest.mark.parametrize("native", [True, False])
def test_a_chain_stops_at_the_first_wrong_head(native, monkeypatch):
    monkeypatch.setattr("pparse.kernels.tfrecord_scan.NATIVE", native)
    records = [bytes(number % 5) for number in range(1_000)]
    content, at = tfrecord(records), starts(records)
    found, lengths, end = chain(content, 0, len(content))
    assert (list(found), list(lengths), end) == (at[:-1], [len(data) for data in records], len(content))
    found, _, end = chain(changed(content, at[700] + 9, b"\0"), 0, len(content))
    assert (list(found), end) == (at[:700], at[700])
    found, _, end = chain(content, 0, at[500] + 15)
    assert (list(found), end) == (at[:500], at[500])
    assert head_at(content, at[3]) == 3
    assert head_at(content[: at[3] + 11], at[3]) is None


# -- what the commands show --------------------------------------------------------------------------------------------


@pytest.fixture(name="folder")
def _folder(tmp_path):
    content = tfrecord(EXAMPLES)
    (tmp_path / "x.tfrecord").write_bytes(content)
    at = starts(EXAMPLES)
    (tmp_path / "bad.tfrecord").write_bytes(changed(changed(content, at[2] + 30, b"##"), at[5] + 1, bytes(90)))
    return tmp_path


def test_ls_and_info(run, folder):
    ran = run("ls", folder / "x.tfrecord")
    assert "tfrecord, 8 records" in ran.out
    assert "[7]   record" in ran.out
    told = run("info", folder / "x.tfrecord").out
    assert "8" in told
    assert "tensorflow.Example" in told
    assert "features    box (float), image (bytes), label (int64) (of record 0)" in told
    assert (
        f"{sum(map(len, EXAMPLES)):,} bytes; a record has {min(map(len, EXAMPLES))} to {max(map(len, EXAMPLES))}"
        in told
    )
    assert "gap" in run("ls", folder / "bad.tfrecord").out


def test_get(run, folder):
    path = folder / "x.tfrecord"
    assert run("get", path, "[3].features.feature.label.int64_list.value[0]").out.strip() == "3"
    assert run("get", path, "[3]", "--json").json["value"]["features"]["feature"]["box"]["float_list"]["value"] == [
        0.5,
        -0.25,
    ]
    assert run("get", path, "--json").json["value"][3] == run("get", path, "[3]", "--json").json["value"]
    (folder / "bytes.tfrecord").write_bytes(tfrecord([b"\xff no message", b"\xff nor this"]))  # of no schema
    assert run("get", folder / "bytes.tfrecord", "--json").json["kind"] == "tfrecord"
    run("get", path, "[3]", "--raw", "-o", folder / "r.bin")
    assert (folder / "r.bin").read_bytes() == EXAMPLES[3]
    ran = run("get", folder / "bad.tfrecord", "[2].features")
    assert (ran.code, "checksum" in ran.err) == (4, True)
    assert run("get", path, "[8]").code == 2
    assert run("get", path, "[3].features.feature.labels").code == 2


def test_check_and_convert(run, folder):
    assert "8 records; a checksum agrees for each" in run("check", folder / "x.tfrecord").out
    assert run("check", folder / "bad.tfrecord").code == 4
    ran = run("convert", folder / "x.tfrecord", "-o", folder / "y.safetensors")
    assert (ran.code, "holds no tensors" in ran.err) == (2, True) or "holds no tensors" in ran.err


def test_recover_keeps_what_is_sound_and_lists_the_rest(run, folder):
    assert run("recover", folder / "bad.tfrecord", "-o", folder / "out").code == 4
    saved = sound_records((folder / "out" / "bad.tfrecord").read_bytes())
    assert saved == [*EXAMPLES[:2], *EXAMPLES[3:5], *EXAMPLES[6:]]
    rest = json.loads((folder / "out" / "bad.tfrecord.rest.json").read_text())
    assert [entry["record"] for entry in rest["lost"]] == [2, 5]
    assert b"##" in (folder / "out" / "bad.tfrecord.partial" / "record-2.bin").read_bytes()


def test_recover_of_a_damaged_head_makes_it_anew(run, folder):
    content = tfrecord(EXAMPLES)
    (folder / "h.tfrecord").write_bytes(changed(content, 3, b"\x55"))
    assert run("recover", folder / "h.tfrecord", "-o", folder / "out").code == 4
    assert (folder / "out" / "h.tfrecord").read_bytes() == content


def test_recover_of_a_whole_file_copies_it(run, folder):
    assert run("recover", folder / "x.tfrecord", "-o", folder / "out").code == 0
    assert (folder / "out" / "x.tfrecord").read_bytes() == tfrecord(EXAMPLES)


def test_recover_of_what_has_no_sound_record_keeps_it_under_another_name(run, folder):
    (folder / "n.tfrecord").write_bytes(head(500) + b"abc")
    assert run("recover", folder / "n.tfrecord", "-o", folder / "out").code == 4
    assert not (folder / "out" / "n.tfrecord").exists()
    assert (folder / "out" / "n.tfrecord.partial" / "as-found.bin").read_bytes() == head(500) + b"abc"


def test_records_in_a_cut_archive_are_saved(run, tmp_path):
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("a/x.tfrecord")
        content = tfrecord([random.Random(number).randbytes(3_000) for number in range(60)])
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    (tmp_path / "x.tar.gz").write_bytes(out.getvalue()[: len(out.getvalue()) // 2])
    assert run("recover", tmp_path / "x.tar.gz", "-o", tmp_path / "out").code == 4
    [path] = (tmp_path / "out").rglob("x.tfrecord")
    saved = sound_records(path.read_bytes())
    assert len(saved) >= 25
    assert saved == sound_records(content)[: len(saved)]


def test_the_writer_writes_what_is_read():
    import io

    from pparse.data.base import BytesData
    from pparse.writers.tfrecord import TfrecordWriter

    out = io.BytesIO()
    writer = TfrecordWriter(out)
    for data in RECORDS:
        writer.write(data)
    large = random.Random(3).randbytes(2_500_000)
    writer.write_from(BytesData(b"??" + large).range(2, 2 + len(large)))
    assert writer.records == 6
    assert out.getvalue()[: len(FILE)] == FILE
    assert out.getvalue()[len(FILE) :] == head(len(large)) + large + masked(large)
    assert struct.unpack_from("<Q", out.getvalue(), len(FILE)) == (len(large),)


def test_an_event_file_of_tensorboard_is_named(run, tmp_path) -> None:
    """Its first record is the version of the format; later ones may be of any kind."""
    version = b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"
    path = tmp_path / "log"
    for first, told in ((version, True), (version[:9], False), (b"brain.Event:2", False)):
        path.write_bytes(tfrecord([first, b"\x09" + bytes(8) + b"\x10\x01"]))
        ran = run("info", path)
        assert (ran.code, "tfevents: TensorBoard event file" in ran.out) == (0, told)
        assert ("a TensorBoard event file" in run("info", "-f", "tfrecord", path).out) is told
