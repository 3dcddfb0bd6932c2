from __future__ import annotations

import json

import pytest

import pparse
from pparse.errors import EndOfDataError, Fault, MalformedError
from pparse.findings import Finding, FindingList, HasStatus, Severity, Status, worst_status
from pparse.tree.visit import Member
from tests.rows import rows


def make(number: int = 0, severity: Severity = Severity.ERROR) -> Finding:
    return Finding("odd", f"reason {number}", severity=severity, offset=number)


def test_what_has_a_status_answers_every_question_about_it():
    questions = [name for name, kind in vars(HasStatus).items() if isinstance(kind, property)]
    assert questions[:2] == ["is_complete", "is_truncated"]
    with pparse.open(b'{"a": 1}') as document:
        for thing in (document, document.root, document.result, Member("m", "file", 0, 1, Status.COMPLETE)):
            assert all(getattr(thing, name) in (None, True, False) for name in questions), thing


def test_words_for_people_are_lower_case():
    assert [str(status) for status in Status] == ["complete", "truncated", "missing", "damaged", "unsupported"]
    assert [str(severity) for severity in Severity] == ["note", "warning", "error"]
    assert f"{Status.TRUNCATED}" == "truncated"


@rows(
    "status, code, error",
    [
        (Status.TRUNCATED, "truncated", EndOfDataError),
        (Status.MISSING, "missing", EndOfDataError),
        (Status.DAMAGED, "malformed", MalformedError),
        (Status.UNSUPPORTED, "unsupported", MalformedError),
    ],
)
def test_what_is_not_whole_has_a_code_and_an_error(status, code, error):
    assert (status.code, status.error) == (code, error)


@rows("status, whole, cut", [(status, status == "complete", status == "truncated") for status in Status])
def test_what_has_a_status_can_be_asked_for_it(status, whole, cut):
    row = Member("name", "file", 0, 1, status)
    assert (row.is_complete, row.is_truncated) == (whole, cut)


def test_one_damaged_part_outweighs_all_others():
    assert worst_status() is Status.COMPLETE
    assert worst_status(*Status) is Status.DAMAGED
    assert worst_status(Status.TRUNCATED, Status.MISSING, Status.UNSUPPORTED) is Status.MISSING
    assert worst_status(Status.COMPLETE, Status.UNSUPPORTED, Status.TRUNCATED) is Status.TRUNCATED


def test_a_finding_is_an_error_without_a_place_unless_more_is_known():
    finding = Finding("odd", "because")
    assert finding.severity is Severity.ERROR
    assert (finding.path, finding.source) == ("", "")
    assert (finding.offset, finding.length, finding.wanted, finding.got) == (None,) * 4


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({}, "odd: because"),
        ({"path": "a.b"}, "odd a.b: because"),
        ({"offset": 0}, "odd @0x0: because"),
        ({"offset": 255, "length": 16}, "odd @0xff+16: because"),
        ({"length": 16}, "odd: because"),
        ({"path": "p", "offset": 1, "wanted": 8, "got": 0}, "odd p @0x1: because (wanted 8, got 0)"),
        ({"got": "u8"}, "odd: because (got u8)"),
    ],
)
def test_a_findings_text_has_code_place_reason_and_numbers(numbers, text):
    finding = Finding("odd", "because", **numbers)
    assert str(finding) == text
    assert repr(finding) == f"<Finding error {text}>"


def test_to_dict_is_plain_and_complete():
    finding = Finding(
        "odd",
        "because",
        severity=Severity.NOTE,
        path="p",
        source="f",
        offset=1,
        length=2,
        wanted=3,
        got="four",
        option="--limit depth=4",
        fault=Fault.BLOCK_SIZE,
    )
    plain = finding.to_dict()
    assert plain == {
        "code": "odd",
        "severity": "note",
        "path": "p",
        "source": "f",
        "offset": 1,
        "length": 2,
        "wanted": 3,
        "got": "four",
        "reason": "because",
        "option": "--limit depth=4",
        "fault": "block-size",
    }
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == set(Finding.__slots__)
    bare = Finding("odd", "because").to_dict()
    assert (bare["offset"], bare["option"], bare["fault"]) == (None, None, None)


def test_equality_is_by_place_and_words():
    base = {"path": "p", "source": "f", "offset": 1, "length": 2}
    first, second = Finding("odd", "because", **base), Finding("odd", "because", **base)
    assert first == second
    assert hash(first) == hash(second)
    assert first != Finding("even", "because", **base)
    assert first != Finding("odd", "since", **base)
    for name, value in (("path", "q"), ("source", "g"), ("offset", 2), ("length", 3)):
        assert first != Finding("odd", "because", **{**base, name: value}), name
    assert first != "odd"


def test_list_keeps_order_and_each_once():
    findings = FindingList()
    for number in (3, 1, 2, 1, 3):
        findings.add(make(number))
    assert [finding.offset for finding in findings] == [3, 1, 2]
    assert len(findings) == 3
    assert findings.errors == 3
    assert findings[0].offset == 3
    assert findings[-1].offset == 2
    assert repr(findings) == "<FindingList of 3>"


def test_list_counts_errors_only():
    findings = FindingList()
    findings.add(make(1, Severity.NOTE))
    findings.add(make(2, Severity.WARNING))
    assert findings.errors == 0
    findings.add(make(3))
    assert findings.errors == 1
    assert not FindingList()
    assert findings


def test_list_counts_what_it_cannot_keep():
    findings = FindingList(limit=2)
    for number in range(5):
        findings.add(make(number))
    assert [finding.offset for finding in findings] == [0, 1]
    assert findings.omitted == 3
    assert len(findings) == 5
    assert findings.errors == 5
    findings.add(make(0))  # kept already: neither kept nor counted again
    assert len(findings) == 5


def test_full_list_says_so():
    findings = FindingList(limit=2)
    assert not findings.full
    findings.add(make(0))
    assert not findings.full
    findings.add(make(1))
    assert findings.full


def test_list_may_grow_while_it_is_iterated():
    findings = FindingList()
    findings.add(make(0))
    for finding in findings:
        findings.add(make(finding.offset + 1))
    assert len(findings) == 2


def test_extend_adds_each_once():
    one, two = FindingList(), FindingList()
    for number in (1, 2):
        one.add(make(number))
    for number in (2, 3):
        two.add(make(number))
    one.extend(two)
    assert [finding.offset for finding in one] == [1, 2, 3]
    assert (len(one), one.errors, one.omitted) == (3, 3, 0)
    assert len(two) == 2


def test_extend_keeps_count_of_what_was_omitted():
    small, all_of_them = FindingList(limit=1), FindingList()
    small.add(make(1, Severity.NOTE))
    small.add(make(2, Severity.NOTE))
    small.add(make(3))  # an error beyond the limit still counts as one
    assert (small.errors, small.omitted) == (1, 2)
    all_of_them.extend(small)
    assert [finding.offset for finding in all_of_them] == [1]
    assert (len(all_of_them), all_of_them.errors, all_of_them.omitted) == (3, 1, 2)


def test_extend_into_a_full_list():
    full, more = FindingList(limit=1), FindingList()
    full.add(make(1))
    more.add(make(1))
    more.add(make(2))
    full.extend(more)
    assert (len(full), full.errors, full.omitted) == (2, 2, 1)
