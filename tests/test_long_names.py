"""Names of any length: what is kept of them, in findings, rows and suggestions, fits into the budget."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

import pparse
from pparse.cli.order import Held, in_order
from pparse.data.file_object import StreamData
from pparse.errors import PathError, SourceError
from pparse.findings import KEPT_PATH, KEPT_REASON, Finding, FindingList
from pparse.limits import MIB
from pparse.tree.result import near_misses
from tests.conftest import safetensors
from tests.test_bounded_keeping import in_a_fresh_process

LONG = 200_000


def gzipped_keys(path, count: int, value: str, length: int = LONG):
    with gzip.open(path, "wb", compresslevel=1) as out:
        for number in range(count):
            out.write(b"%c" % b"{,"[number > 0] + b'"' + b"ab" * (length // 2) + f'{number}":{value}'.encode())
        out.write(b"}")
    return path


# -- findings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600"])
def test_of_a_very_long_path_and_reason_only_so_much_is_kept(letter):
    finding = Finding("odd", letter * LONG, path="head." + letter * LONG + ".tail")
    assert finding.path.startswith("head.")
    assert finding.path.endswith(".tail")
    assert len(finding.path.encode("utf-32-le")) <= KEPT_PATH
    assert len(finding.reason.encode("utf-32-le")) <= KEPT_REASON


def test_paths_of_usual_length_are_kept_as_they_are():
    path = "a" * KEPT_PATH
    assert Finding("odd", "r" * KEPT_REASON, path=path).path == path


def test_a_thousand_findings_on_long_names_take_a_few_mib(tmp_path):
    path = gzipped_keys(tmp_path / "bad.json.gz", 400, "1e400", LONG // 2)
    script = """
        with pparse.open(sys.argv[1], budget="8MiB") as doc:
            doc.root.keys()
            before = peak()
            print(sum(finding.code == "unsupported" for finding in doc.check()), peak() - before)
    """
    found, used = in_a_fresh_process(script, path)
    assert found == 400
    assert used <= 28, used  # the names are 38 MiB; 64 entries are read at a time


def test_a_node_with_a_long_name_has_its_findings():
    names = ["x" * 10_000 + str(number) for number in range(3)]
    text = json.dumps({name: {"k": 1} for name in names}).replace("1}}", "tru}}")
    with pparse.open(text.encode()) as doc:
        assert list(doc.check())
        counts = [len(doc.root[name].findings) for name in names]
    assert counts[:2] == [0, 0]
    assert counts[2]


def test_a_list_of_findings_knows_one_with_a_long_path_again():
    findings = FindingList()
    for _ in range(2):
        findings.add(Finding("odd", "because", path="p" * LONG, offset=3))
    findings.add(Finding("odd", "because", path="p" * LONG, offset=4))
    assert len(findings) == 2


@pytest.mark.parametrize("name", ["n" * 6_000, 'q"' * 6_000])
def test_a_long_name_that_occurs_twice_is_an_error_by_the_rules_of_safetensors(name, tmp_path):
    entry = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    path = tmp_path / "twice.safetensors"
    path.write_bytes(safetensors(f"{{{json.dumps(name)}:{entry},{json.dumps(name)}:{entry}}}".encode(), b"x"))
    with pparse.view(path) as model:
        assert "duplicate-name" in [finding.code for finding in model.check(strict=True)]


# -- rows that are held ----------------------------------------------------------------------------------------------


class Out:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def error(self, text: str) -> None:
        self.said.append(text)


def ordered(rows, how, *, budget="4MiB", asked=False):
    out, budget = Out(), pparse.MemoryBudget(budget)
    held = Held(budget, lambda row: row, asked=asked)
    got = list(in_order(rows, how, held, out, name=str, size=int, offset=int))
    assert budget.used == 0
    return got, out.said, budget.peak


def test_light_rows_are_sorted_and_heavy_ones_come_as_they_are():
    assert ordered([3, 20, 1], None) == ([1, 3, 20], [], 65_536 + 3)
    got, said, peak = ordered([3 * MIB, 2, 1], None)
    assert (got, said) == ([3 * MIB, 2, 1], [])
    assert peak <= MIB


def test_an_order_that_was_asked_for_gets_more_room_and_says_if_there_is_none():
    heavy = [MIB, MIB + 1, MIB - 1]
    assert ordered(heavy, None)[:2] == (heavy, [])
    assert ordered(heavy[:2], "size", asked=True)[:2] == ([MIB + 1, MIB], [])
    got, (said,), _ = ordered(heavy * 2, "size", asked=True)
    assert got == heavy * 2
    assert "order of the file" in said


def test_rows_that_others_leave_no_room_for_are_not_sorted():
    budget = pparse.MemoryBudget("1MiB")
    with budget.charge(MIB - 10, "the others"):
        held = Held(budget, lambda row: 100)
        assert list(in_order([3, 1], None, held, Out(), name=str, size=int, offset=int)) == [3, 1]


def test_tensors_with_long_names_are_listed_within_the_budget(tmp_path):
    header = {f"{'n' * 20_000}{at}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for at in range(2_000)}
    path = tmp_path / "long.safetensors"
    path.write_bytes(safetensors(header))
    script = """
        import contextlib, os
        from pparse.cli import main
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            main(["ls", sys.argv[2]])
            before = peak()
            assert main(["ls", sys.argv[1], "--budget", "4MiB"]) == 0
        print(peak() - before)
    """
    small = tmp_path / "small.safetensors"
    small.write_bytes(safetensors({}))
    (used,) = in_a_fresh_process(script, path, small)
    assert used <= 24, used  # the names are 38 MiB


def test_members_of_a_stream_with_long_names_are_listed_within_the_budget(tmp_path):
    path = gzipped_keys(tmp_path / "long.json.gz", 400, "1", LONG // 2)
    small = gzipped_keys(tmp_path / "small.json.gz", 2, "1", 10)
    script = """
        import contextlib, os
        from pparse.cli import main
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            main(["ls", sys.argv[2], "--jsonl"])
            before = peak()
            assert main(["ls", sys.argv[1], "--jsonl", "--budget", "4MiB"]) == 0
        print(peak() - before)
    """
    (used,) = in_a_fresh_process(script, path, small)
    assert used <= 32, used  # the names are 38 MiB


def test_groups_of_names_are_charged(run, tmp_path):
    header = {
        f"{'n' * 999}{'xy'[at % 2] * at}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for at in range(1_500)
    }
    path = tmp_path / "groups.safetensors"
    path.write_bytes(safetensors(header))
    assert run("ls", path, "--group").code == 0
    done = run("ls", path, "--group", "--budget", "1MiB")
    assert done.code == 2
    assert "--budget" in done.err


# -- suggestions -----------------------------------------------------------------------------------------------------


def test_what_is_near_is_found_as_before():
    assert near_misses("weigth", ["bias", "weight", "height"]) == ("weight", "height")
    assert near_misses("LAYER.1", ["encoder.layer.1.weight", "encoder.layer.2"]) == ("encoder.layer.1.weight",)
    assert near_misses("", ["a"]) == ()


def test_names_that_cannot_be_near_are_neither_kept_nor_compared(monkeypatch):
    import difflib

    compared = []

    class Counting(difflib.SequenceMatcher):
        def set_seq1(self, a):
            compared.append(a)
            if a:
                super().set_seq1(a)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    names = (f"{'ab' * (LONG // 2)}{number}" for number in range(100))
    tracemalloc.start()
    try:
        assert near_misses("abab", names) == ()
        assert near_misses("ab" * LONG, ("ab" * 90, "x")) == ()
        assert near_misses("weights", ["w", "weight", "weight" * 20]) == ("weight",)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert [name for name in compared if name] == ["weight"]


def test_a_pattern_that_matches_nothing_keeps_no_long_names():
    from pparse.cli.selection import Selection

    matches = Selection(["nosuch"])
    tracemalloc.start()
    try:
        assert not any(matches("n" * LONG + str(number)) for number in range(50))
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()
    (told,) = matches.complaints()
    assert "nosuch" in told
    assert len(told) < 1_000


def test_a_path_that_leads_nowhere_holds_no_long_keys(tmp_path):
    with pparse.open(json.dumps({f"{'k' * LONG}{at}": at for at in range(100)}).encode()) as doc:
        len(doc.root)
        tracemalloc.start()
        try:
            with pytest.raises(PathError):
                doc.node("nosuch")
            assert tracemalloc.get_traced_memory()[1] < 17 * MIB  # a group of 64 keys is read at a time
        finally:
            tracemalloc.stop()


def test_to_look_for_a_key_among_long_ones_reads_each_a_few_times(monkeypatch):
    from pparse.parsers.json import parser

    described = []
    real = parser.describe_child

    def counted(*words):
        described.append(1)
        return real(*words)

    monkeypatch.setattr(parser, "describe_child", counted)
    count = 70  # a group of 64, and some of the next
    with pparse.open(json.dumps({f"{'k' * LONG}{at}": at for at in range(count)}).encode()) as doc:
        with pytest.raises(PathError):
            doc.node("nosuch")
        assert len(described) <= 4 * count


# -- streams that fail -----------------------------------------------------------------------------------------------


class Failing:
    """A file object of three bytes, whose reads fail."""

    def __init__(self, at: str) -> None:
        self.at = at

    def seek(self, *place: int) -> int:
        if self.at == "seek":
            raise OSError("Illegal seek")
        return 3

    def read(self, size: int) -> bytes:
        raise OSError(5, "Input/output error")


def test_a_read_that_fails_at_once_is_told_in_the_words_of_the_system():
    with pytest.raises(SourceError, match="Input/output error") as caught:
        StreamData(Failing("read"))
    assert "sought" not in str(caught.value)
    with pytest.raises(SourceError, match="cannot seek"):
        StreamData(Failing("seek"))
