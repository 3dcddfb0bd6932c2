from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import pytest

import pparse
from pparse.findings import Status
from pparse.kernels.json_fold import Carry
from tests.rows import rows

ROWS = [{"t": number, "text": "wörd {[" * (number % 3), "v": [number, None, {"k": True}]} for number in range(200)]
TEXT = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in ROWS)


def opened(content, name="rows.jsonl", **options):
    return pparse.open(io.BytesIO(content), format=None, **options) if name is None else named(content, name, options)


def named(content, name, options):
    return pparse.open(Named(content, name), **options)


class Named(io.BytesIO):
    def __init__(self, content, name):
        super().__init__(content)
        self.name = name


def statuses(document):
    return [node.status for node in document.root.children()]


@rows(
    ("content", "kind", "values"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "rows", [{"a": 1}, {"a": 2}]),
        (b'{"a": 1}\n[2]', "rows", [{"a": 1}, [2]]),
        (b"\xef\xbb\xbf[1]\r\n\r\n  \n [2] \r\n\n", "rows", [[1], [2]]),
        (b'{\n "a": 1\n}\n\n{\n "a": [2]\n}', "documents", [{"a": 1}, {"a": [2]}]),
        (b'{"a": "}{"}{"a": 2}[3]', "documents", [{"a": "}{"}, {"a": 2}, [3]]),
        (b"[" * 50 + b"]" * 50 + b" " + b"[1]", "documents", [None, [1]]),
        (b'{"a": NaN}\n{"a": -Infinity}\n', "rows", None),
    ],
)
def test_documents_one_after_another_are_rows(content, kind, values):
    with pparse.open(content) as document:
        assert (document.format, document.root.kind) == ("json-lines", kind)
        assert document.status is Status.COMPLETE
        for number, value in enumerate(values or ()):
            assert value is None or document.node(f"[{number}]").to_python() == value
        if values and None not in values:
            assert document.root.to_python() == values
        assert [finding for finding in document.check() if finding.is_fault] == []


@rows(
    ("content", "name", "format"),
    [
        (b'{"a": 1}\n', "one.jsonl", "json-lines"),
        (b'{"a": 1}\n', "one.json", "json"),
        (b"1\n2\n", "numbers.ndjson", "json-lines"),
        (b'[\n{"a":1},\n{"a":2}\n]\n', "list.json", "json"),
        (b'{"a":\n[1]\n,"b":\n[2]\n}', "odd.json", "json"),
        (b'{"x": "y"}#', "rest.json", "json"),
        (b'{"a": 1]\n{"a": 2}\n{"a": 3}\n', "first.txt", "json-lines"),
        (b'{"a": "' + bytes(70_000).replace(b"\0", b"x") + b'"}\n{"a": 2}\n', "long.txt", "json-lines"),
    ],
)
def test_json_lines_are_told_from_json(content, name, format):
    with named(content, name, {}) as document:
        assert document.format == format


def test_a_bad_row_is_told_by_its_number_and_the_others_are_unharmed():
    content = TEXT.replace(b'{"t": 10, ', b'{"t": 10 ', 1)
    with pparse.open(content) as document:
        assert [at for at, status in enumerate(statuses(document)) if status is not Status.COMPLETE] == [10]
        assert document.node("[11].t").load() == 11
        (finding,) = [finding for finding in document.check() if finding.is_fault]
        assert (finding.path, finding.offset) == ("[10]", content.index(b'"text"', content.index(b'"t": 10')))
        assert document.status is Status.DAMAGED
        with pytest.raises(pparse.MalformedError, match=r"\[10\]"):
            document.root.to_python()


@rows(
    ("old", "new"),
    [
        (b'}\n{"t": 50,', b'}x{"t": 50,'),  # two rows became one
        (b'"t": 50,', b'"t":\n50,'),  # one became two
        (b'{"t": 50,', b"\0\0\0\0\0\0\0\0\0"),
    ],
)
def test_where_rows_may_be_lost_the_numbers_behind_are_uncertain(old, new):
    with pparse.open(TEXT.replace(old, new, 1)) as document:
        found = statuses(document)
        assert set(found[:49]) == {Status.COMPLETE}
        assert set(found[51:]) == {Status.DAMAGED}
        assert any(finding.code == "unsure-number" for finding in document.findings)


def test_a_bracket_too_many_between_documents_makes_the_numbers_behind_uncertain():
    with pparse.open(b'{\n "a": 1\n}\n{\n "a": }[2]\n}\n{\n "a": 3\n}', format="json-lines") as document:
        assert statuses(document)[0] is Status.COMPLETE
        assert Status.COMPLETE not in statuses(document)[1:]


def test_a_row_that_is_two_does_not_make_up_for_two_that_are_one():
    content = b'{"a": 1},{"b": 2}\n[[1]\n[2]]\n{"c": 3}\n' * 2 + TEXT * 40  # long: not looked at before it is shown
    with pparse.open(content, format="json-lines") as document:
        assert [finding.path for finding in document.check() if finding.code == "malformed"] == [
            f"[{number}]" for number in (0, 1, 2, 4, 5, 6)
        ]
        with pytest.raises(pparse.MalformedError):
            document.root.to_python()


def test_values_are_streamed_up_to_the_row_that_is_wrong():
    from pparse.data import IoStats

    stats = IoStats()
    lines = TEXT * 200
    with pparse.open(lines, stats=stats) as document:
        assert next(document.root.values()) == ROWS[0]
        assert stats.bytes < len(lines) // 2
        assert list(document.root.values()) == ROWS * 200
        assert list(document.node("[3].v").values()) == ROWS[3]["v"]
    with pparse.open(lines.replace(b'{"t": 10, ', b'{"t": 10 ', 1)) as document:
        found = []
        with pytest.raises(pparse.MalformedError, match=r"\[10\]"):
            found.extend(iter(document.root.values()))
        values = document.root.values()
        assert [next(values) for _ in range(10)] == ROWS[:10]


def test_every_prefix_has_the_rows_that_are_whole():
    text = TEXT[:700]
    for size in range(1, len(text)):
        with named(text[:size], "rows.jsonl", {}) as document:
            whole = text[:size].count(b"\n")
            found = list(document.root.children())
            assert [kid.to_python() for kid in found[:whole]] == ROWS[:whole], size
            assert len(found) in (whole, whole + 1), size
            last = text[:size].rpartition(b"\n")[2]
            assert not last or last.endswith(b"}") or found[-1].status is not Status.COMPLETE, size


def test_rows_in_a_cut_archive(tmp_path):
    path = tmp_path / "rows.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("rows.jsonl")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    path.write_bytes(path.read_bytes()[:-300])
    there = gzip.GzipFile(path)
    with pparse.open(f"{path}::rows.jsonl") as document:
        assert document.format == "json-lines"
        assert document.node("[3]").to_python() == ROWS[3]
        found = list(document.root.children())
        assert 10 < len(found) < 200
        assert [kid.to_python() for kid in found[:-1]] == ROWS[: len(found) - 1]
        assert document.status is Status.TRUNCATED
    there.close()


def test_a_gap_costs_the_row_that_it_is_in(tmp_path):
    from pparse.data import BytesData
    from pparse.data.spliced import HiddenData

    start = TEXT.index(b'"t": 20,')
    with pparse.open(HiddenData(BytesData(TEXT, "rows.jsonl"), [(start, start + 4)])) as document:
        found = list(document.root.children())
        assert [kid.to_python() for kid in found[:20]] == ROWS[:20]
        assert found[20].status is Status.DAMAGED
        assert document.status is Status.DAMAGED


def test_a_far_row_is_reached_by_the_index_of_every_64th():
    text = b"".join(b'{"n": %d, "s": "%s"}\n' % (number, b"x" * (number % 40)) for number in range(150_000))
    with pparse.open(text) as document:
        assert document.node("[149999].n").load() == 149_999
        index = document.root.index
        assert index is not None
        assert index.memory < 150_000 * 8 // 64 + 4096
        assert document.node("[70001].n").load() == 70_001
        assert sum(1 for _ in document.check()) == 0


@rows("size", [1, 2, 3, 7, 64, 1 << 20])
def test_documents_are_found_whatever_the_blocks_are(size):
    from array import array

    from pparse.parsers.json.lines import find_documents, find_lines

    text = b'{"a": "}\\"]{"}[[1], [2]]\n\n{"b":\n {}}  [3]\n'
    for kernel, wanted in ((find_documents, [14, 24, 36, 41]), (find_lines, [25, 32, 42])):
        carry, found = Carry(), array("q")
        for start in range(0, len(text), size):
            kernel(text[start : start + size], 0, carry, start, found)
        assert list(found) == wanted


def test_recover_writes_the_rows_that_are_sound_and_lists_the_others(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = TEXT.splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"text"', b'"text', 1)
    lines[5] = b"INFO\n"
    deep = b'{"d": ' + b"[" * 70_000 + b"]" * 69_999 + b"\n"
    long = b'{"s": "' + b"x" * 400_000 + b'", "v": [' + b"1, " * 200_000 + b"1]}\n"
    spoilt = long.replace(b"1, 1]}", b"1, 1}}", 1)
    Path("rows.jsonl").write_bytes(b"".join([*lines[:8], long, deep, spoilt, b"  \n", *lines[8:]])[:-20])
    assert run("recover", "rows.jsonl", "-o", "saved").code == 4
    kept = [*lines[:3], lines[4], *lines[6:8], long, *lines[8:-1]]
    assert Path("saved/rows.jsonl").read_bytes() == b"".join(kept)
    assert json.loads(Path("saved/rows.jsonl").read_bytes().splitlines()[-1]) == ROWS[-2]
    told = json.loads(Path("saved/rows.jsonl.rest.json").read_bytes())
    assert [lost["row"] for lost in told["lost"]] == [3, 5, 9, 10, 202]
    assert Path("saved/rows.jsonl.partial/row-5.txt").read_bytes() == b"INFO"
    assert Path("saved/rows.jsonl.partial/row-202.txt").read_bytes() == lines[-1][:-20]
    for entry in json.loads(Path("saved/RECOVERY.json").read_bytes())["files"]:
        assert entry["status"] == ("truncated" if entry["path"].endswith("row-202.txt") else "damaged")


def test_recover_leaves_what_it_cannot_better(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = b'{\n "a": 1\n}\n{\n "b": 1 2\n}\n{\n "a": 3\n}\n'
    for name, content, wanted in (
        ("whole.jsonl", TEXT, TEXT),
        ("server.log", TEXT + b"INFO\n", TEXT + b"INFO\n"),  # nobody reads it line by line as JSON
        ("none.jsonl", b'{"a": 1]\n{"b": 2]\n', b'{"a": 1]\n{"b": 2]\n'),
        ("several.jsonl", documents, b'{\n "a": 1\n}\n{\n "a": 3\n}\n'),
    ):
        Path(name).write_bytes(content)
        run("recover", name, "-o", f"of-{name}")
        assert Path(f"of-{name}/{name}").read_bytes() == wanted, name


@rows("number", [0, 1, 62, 63, 64, 65, 127, 128, 250, 298, 299])
def test_a_wrong_element_of_a_long_list_is_told_by_its_place(number):
    elements = [b"%d" % at for at in range(300)]
    elements[number] = b"1."
    text = b"[" + b",".join(elements) + b"]"
    with pparse.open(b" " * 300_000 + text, format="json") as document:
        (finding,) = [finding for finding in document.check() if finding.code == "malformed"]
        assert finding.path == f"[{number}]"
        assert finding.offset is not None
        assert 300_001 + text.index(b"1.") <= finding.offset <= 300_001 + text.index(b"1.") + 2


@rows(
    ("row", "reason"),
    [
        (b"INFO", "expected a value"),
        (b"\xef\xbb\xbf[1]", "a byte order mark before the row"),
        (b'{"a": 1},', "a comma behind the row"),
        (b"\0\0\0", "zeros, where a row was never written or is lost"),
        (b'{"a": ', "expected a value"),
        (b'{"a": [tru', "expected a value"),
        (b'{"a": 1,', "expected a key in double quotes"),
        (b'{"a": 1 {"b": 2', None),
        (b'{"a": 1}, {"b": 2}', None),
        (b"IN\x01FO", None),
    ],
)
def test_a_row_that_is_surely_one_does_not_make_numbers_uncertain(row, reason):
    for before in (b'{"n": 1}\n' * 3, b"" if row.isalpha() else b"[0]\n"):
        with named(before + row + b'\n{"n": 2}\n', "rows.jsonl", {}) as document:
            found = list(document.root.children())
            sure = reason is not None and b"\0" not in row  # zeros may have been several rows
            assert found[-1].status is (Status.COMPLETE if sure else Status.DAMAGED)
            assert reason is None or found[-2].finding.reason == reason


@rows(
    ("content", "format"),
    [
        (b'1\n"x"\nnull\n', "json-lines"),
        (b'INFO\n{"a": 1}\n', "json-lines"),
        (b"\n" * 5000, "json-lines"),
        (b'[\n{"a": 1},\n{"a": 2}\n]\n', None),
        (b'[{"a": 1},\n{"a": 2}]\n', None),
        (b"<html>\n</html>\n", None),
        (b"Not Found\n", None),
    ],
)
def test_the_name_is_believed_if_the_content_may_be_rows(content, format):
    if format is None:
        with pytest.raises(pparse.FormatError), named(content, "rows.jsonl", {}) as document:
            document.root  # noqa: B018 -- recognised now
    else:
        with named(content, "rows.jsonl", {}) as document:
            assert document.format == format


def test_the_first_row_with_a_repeated_key_is_named():
    content = b'{"n": 1}\n' * 1000 + b'{"n": 1, "n": 2}\n' * 2
    with pparse.open(content) as document:
        (finding,) = document.check()
        assert (finding.code, finding.path, finding.offset) == ("duplicate-key", "[1000]", 9000)
        assert finding.reason.startswith("2 keys")


def test_an_index_whose_rows_begin_elsewhere_is_not_believed(tmp_path, run):
    """Its checksums are right, as those of one that was made to mislead."""
    header = struct.Struct("<15sBQQQqqQ16sII")
    path, index = tmp_path / "h.jsonl", tmp_path / "h.jsonl.pindex"
    path.write_text("".join(f'{{"i":{number}}}\n' for number in range(1000)))
    run("index", path)
    fields = list(header.unpack(index.read_bytes()[: header.size]))
    for step in (1, 501):
        table = struct.pack("<16Q", *range(0, 16 * step, step))
        fields[9] = zlib.crc32(table)
        head = header.pack(*fields[:-1], 0)[:-4]
        index.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + table)
        ran = run("get", path, "[777]")
        assert (ran.code, json.loads(ran.out)) == (0, {"i": 777})
        assert "the index is not used" in run("ls", path).out


LONG = TEXT * 40  # above 256 KiB: not looked at before it is shown


def test_a_row_that_just_ends_early_is_one_row_if_the_next_line_is_sound():
    cut = TEXT[TEXT.index(b"\n{") + 1 : TEXT.index(b"{[")] + b"\n"
    for row, text in ((cut, TEXT), (cut, LONG), (b'{"t": 1,\n', LONG)):
        with pparse.open(row.join((TEXT, text))) as document:
            assert [at for at, status in enumerate(statuses(document)) if status is not Status.COMPLETE] == [200]
    for before, after in (
        (b"", b'rd"}\n'),  # the other half of it
        (b"\0", b""),
    ):
        with pparse.open(TEXT + before + cut + after + TEXT, format="json-lines") as document:
            assert statuses(document)[-1] is Status.DAMAGED
    pretty = b'{\n "a": "x"\n}\n' * 3
    with pparse.open(pretty + b'{\n "a": "x\n{"b": 1}\n}\n' + pretty) as document:  # a line begins no document
        assert statuses(document)[-1] is not Status.COMPLETE


@rows("row", [b'{"a": 1}, {"b": 2}', b'{"a": 1 {"b": ', b'"x": {[]}}', b'{"a": "\xff\xff"', b"[1]]", b"\0\0"])
def test_whoever_asks_for_a_row_hears_that_its_number_is_uncertain(run, tmp_path, row):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(LONG + row + b"\n" + LONG)
    for arguments in (("get", path, "[16000]"), ("get", path, "[16000].t"), ("ls", path), ("check", path)):
        ran = run(*arguments)
        assert (ran.code, "uncertain" in ran.out + ran.err) == (4, True), arguments
    for _ in range(2):  # without an index, and with one
        with pparse.open(path) as document:
            assert document.node("[16000]").status is Status.DAMAGED
            assert document.node("[7999]").status is Status.COMPLETE
            assert {finding.code for finding in document.findings} >= {"unsure-number"}
        assert run("index", path).code == 0
        assert run("index", path, "--check").code == 0


def test_a_plain_text_needs_no_decoding_to_know_that_its_numbers_are_certain():
    from pparse.parsers.json.lines import are_plain

    assert are_plain(TEXT, 200)
    assert are_plain(b'{"a": "\\\\\\"}{"}\r\n\n  \n{"a": [[], {}], b}\r\n', 2)
    for wrong in (b"INFO", b'{"a": "', b'{"a": 1}}', b'{"a": 1},{"b": 2}', b"[1]", b'{"a": "\x00"}', b'{"\xff": 1}'):
        assert not are_plain(b'{"a": 1}\n' + wrong + b"\n", 2), wrong
        assert not are_plain(b'{"a": 1}\n' + wrong + b'\n{"a": "\n', 3), wrong


def test_a_check_behind_a_row_that_may_be_two_makes_no_nodes(monkeypatch):
    from pparse.tree.node import Node

    made = []
    child = Node.child
    monkeypatch.setattr(Node, "child", lambda node, at: made.append(at) or child(node, at))
    with pparse.open(b'[0]\n{"a": 1}{"b": 2}\n' + LONG) as document:
        assert [finding.code for finding in document.check()] == ["malformed", "unsure-number"]
    assert made == [1]


def test_blank_lines_and_documents_on_one_line_are_passed_over_at_once(monkeypatch):
    from array import array

    from pparse.kernels import json_fold
    from pparse.parsers.json.lines import find_documents, find_lines

    asked = []

    class Counting(bytes):
        def find(self, *arguments):
            asked.append(arguments)
            return super().find(*arguments)

    found = array("q")
    find_lines(Counting(b"[1]\n" + b" \n" * 10_000 + b"[2]\n"), 0, Carry(), 0, found)
    assert (list(found), len(asked)) == ([4, 20_008], 4)
    monkeypatch.setattr(json_fold, "leave_nested", None)
    find_documents(b'{"a": [{"b": "}\\""}]}' * 3 + b"x" + b"[] " * 2, 0, Carry(), 0, found := array("q"))
    assert list(found) == [21, 42, 63, 66, 69]


def test_rows_are_listed_many_at_a_time_as_one_by_one(monkeypatch):
    from pparse.parsers.json.lines import JsonLinesParser
    from pparse.tree.parser import Listing

    def told(members):
        return [
            (member.name, member.kind, member.start, member.size, member.status, member.reason) for member in members
        ]

    odd = b'  [1] \r\n\n{"a": 1 2}\n"x"\n{"s": "' + b"x" * 300_000 + b'"}\n' + TEXT + b'{"cut": ['
    with pparse.open(LONG + odd) as document, pparse.open(LONG + odd) as other:
        assert told(document.result.listing.members()) == told(Listing.members(other.result.listing))
    monkeypatch.setattr(JsonLinesParser, "describe", None)
    with pparse.open(LONG) as document:
        assert len(told(document.result.listing.members())) == 8000


def test_repeated_keys_are_told_by_every_command_once_a_file(run, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1 2}\n{"n": 1}\n' + b'{"n": 1, "n": 2}\n' * 2)
    for command in ("ls", "check"):
        assert run(command, path).out.count("duplicate-key [2]") == 1
    path.write_bytes(b'{"n": 1}\n' + b'{"n": 1, "n": 2}\n' * 2)
    assert "note: 2 keys occur more than once" in run("get", path).err
    assert "note: 1 key occurs more than once" in run("get", path, "[2]").err
    assert run("get", path, "[0]").err == ""


@rows(
    ("cut", "behind", "status"),
    [
        (b'{\n "a": [1,\n', b'{\n "a": 1\n}\n' * 9, Status.DAMAGED),
        (b'{\n "a": [1,\n', b'{\n "a": 1\n}\n' * 50_000, Status.DAMAGED),
        (b'{\n "a": [1,\n', b"", Status.TRUNCATED),
        (b"[\n", b'{\n "a": 1\n},\n' * 9 + b"{", Status.TRUNCATED),  # elements of a list that is cut
        (b'{\n "a": [1,\n ', b' {\n "a": 1\n }\n' * 9, Status.TRUNCATED),
    ],
)
def test_a_document_that_whole_ones_follow_is_damaged_and_not_the_end_of_a_download(cut, behind, status):
    whole = b'{\n "a": 1\n}\n' * 3
    with pparse.open(whole + cut + behind) as document:
        assert [node.status for node in document.root.children()] == [Status.COMPLETE] * 3 + [status]
        assert document.status is status
        reasons = [f"begin again at byte {len(whole + cut)}" in finding.reason for finding in document.check()]
        assert any(reasons) is (status is Status.DAMAGED)
