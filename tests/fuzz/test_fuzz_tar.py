"""Damaged tar archives, with gaps or without: a tree or one of our errors, the same by both ways of listing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pparse.data.base import Gap
from pparse.errors import EngineError, PparseError
from pparse.findings import Status
from pparse.testing.fakes import FakeData
from tests import sweep
from tests.contract.test_tar_contract import sparse
from tests.test_tar import archive, info, opened, read, seal, seen

SAMPLES = [
    archive([("a", b"x" * 700), ("n" * 130, b"y"), ("c", b"")])[:5_632],
    archive([(info("p", pax_headers={"path": "q" * 90, "mtime": "1.5"}), b"z" * 1_100), ("d", b"e")], "pax")[:6_000],
    sparse(),
]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "drop", "insert", "zero", "number", "copy"]),
        st.integers(0, 6_000),
        st.binary(min_size=1, max_size=12),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
GAPS = st.lists(st.tuples(st.integers(0, 6_000), st.integers(1, 700) | st.none(), st.booleans()), max_size=4)


def damaged(content, edits):
    out = bytearray(content)
    for what, at, some, sealed in edits:
        at = min(at, len(out))
        if what == "set":
            out[at : at + len(some)] = some
        elif what == "cut":
            del out[at:]
        elif what == "drop":
            del out[at : at + 40 * len(some)]
        elif what == "insert":
            out[at:at] = some * 5
        elif what == "zero":
            out[at : at + 512] = bytes(len(out[at : at + 512]))
        elif what == "copy":
            out[at:at] = out[: 512 * len(some)]
        elif what == "number":
            at = at // 512 * 512
            out[at + 124 : at + 136] = b"%011o\0" % (int.from_bytes(some[:4], "big") % 8**11)
        if sealed and at // 512 * 512 + 512 <= len(out):
            seal(out, at // 512 * 512)
    return bytes(out)


@settings(max_examples=sweep.examples(250))
@given(st.sampled_from(SAMPLES), EDITS, GAPS)
def test_damaged_archives(content, edits, gaps):
    data = FakeData(damaged(content, edits))
    end = 0
    found = []
    for offset, length, exact in sorted(gaps, key=lambda gap: gap[0]):
        if end is not None and offset >= end and offset < len(data.content):
            found.append(Gap(offset, length, exact or length is None))
            end = None if length is None else offset + length
    data.gaps = tuple(found)
    try:
        with opened(data) as extraction:
            members = list(extraction.result.parser.files())
            last = 0
            for member in members:
                assert last <= member.at <= member.end
                last = member.at
                read(extraction, member)
            assert [seen(node.note) for node in extraction.root.children()] == [seen(member) for member in members]
            list(extraction.check())
            assert extraction.session.budget.peak < 4 << 20
    except EngineError:
        raise
    except PparseError:
        pass


def test_what_is_lost_behind_the_end_is_told_before_it_is_read():
    content = SAMPLES[0]
    data = FakeData(content + bytes(512) + b"\1" * 512)
    data.gaps = (Gap(len(content) + 512 + 100, 1, True),)
    with opened(data) as extraction:
        members = list(extraction.result.parser.files())
        before = [seen(member) for member in members]
        for member in members:
            read(extraction, member)
        assert [seen(node.note) for node in extraction.root.children()] == before
        assert members[-1].status is Status.DAMAGED
