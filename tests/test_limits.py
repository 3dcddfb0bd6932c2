from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pparse
from pparse.errors import LimitError
from pparse.limits import GIB, KIB, MIB, Limits, count_words, exact_size, format_size, parse_size
from tests import sweep
from tests.rows import rows


@rows(
    ("text", "count"),
    [
        ("64MiB", 64 << 20),
        ("64MB", 64_000_000),
        ("64M", 64 << 20),
        ("64mib", 64 << 20),
        ("64mb", 64_000_000),
        ("64 MiB", 64 << 20),
        ("  64M\n", 64 << 20),
        ("1k", 1024),
        ("1K", 1024),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("2G", 2 << 30),
        ("2GiB", 2 << 30),
        ("2GB", 2_000_000_000),
        ("3T", 3 << 40),
        ("3TiB", 3 << 40),
        ("3TB", 3 * 10**12),
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("17b", 17),
        ("1.5k", 1536),
        ("0.5GiB", 1 << 29),
        ("1.1MB", 1_100_000),
        ("8.19kB", 8190),
        ("0.000001TB", 1_000_000),
        ("1.000001MB", 1_000_001),
        ("1.9", 1),
        ("999999999999999999", 10**18 - 1),
        ("123456789012345678.5k", 123456789012345678 * 1024 + 512),
        (0, 0),
        (12345, 12345),
        (1 << 70, 1 << 70),
    ],
)
def test_sizes_are_parsed_with_and_without_units(text, count):
    assert parse_size(text) == count


@rows(
    "text",
    [
        "",
        " ",
        "M",
        "MiB",
        "-1",
        "-1M",
        "+1",
        "64X",
        "64MiBs",
        "64 M B",
        "1e6",
        "0x10",
        "1,5k",
        "1.",
        ".5",
        "1.5.5",
        "1.1234567k",
        "inf",
        "nan",
        "64PiB",
        "1_000",
        "1" * 19,
        "9" * 10_000,
        "1k 1k",
        "64\x00M",
        "½",
        -1,
        -(1 << 70),
    ],
)
def test_parse_size_refuses(text):
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@settings(max_examples=sweep.examples(200))
@given(st.text(max_size=12))
def test_parse_size_raises_only_value_error(text):
    try:
        assert parse_size(text) >= 0
    except ValueError:
        pass


@settings(max_examples=sweep.examples(200))
@given(st.integers(0, 10**12), st.integers(0, 999), st.sampled_from([("kB", 1000), ("MB", 10**6), ("GB", 10**9)]))
def test_decimal_fractions_are_exact(whole, thousandths, unit):
    assert parse_size(f"{whole}.{thousandths:03}{unit[0]}") == (whole * 1000 + thousandths) * unit[1] // 1000


@rows(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (99 * KIB, "99.0 KiB"),
        (100 * KIB, "100 KiB"),
        (MIB - 1, "1024 KiB"),
        (MIB, "1.0 MiB"),
        (64 * MIB, "64.0 MiB"),
        (20_000_000_000, "18.6 GiB"),
        (GIB, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 70, "1048576 PiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(count, text):
    assert format_size(count) == text
    assert exact_size(count) == count_words(count, "byte") + (f" ({text})" if count >= KIB else "")


@settings(max_examples=sweep.examples(200))
@given(st.integers(0, 1 << 49))
def test_formatted_size_reads_as_about_the_same(count):
    assert parse_size(format_size(count)) == pytest.approx(count, rel=0.05, abs=1)


def test_limits_have_their_defaults():
    limits = Limits()
    for name, value in Limits.DEFAULTS.items():
        assert getattr(limits, name) == value
        assert value >= 1


def test_limits_of_what_comes_out_of_compressed_streams():
    assert Limits().scratch_bytes == 64 * GIB
    assert Limits().inflated_bytes == 1 << 44


def test_limits_change_one():
    limits = Limits(depth=5)
    assert limits.depth == 5
    assert limits.entries == Limits.DEFAULTS["entries"]
    assert Limits().depth == Limits.DEFAULTS["depth"]


def test_limits_replace_derives_another_set():
    first = Limits(depth=5)
    second = first.replace(entries=7)
    assert (second.depth, second.entries) == (5, 7)
    assert first.entries == Limits.DEFAULTS["entries"]
    with pytest.raises(ValueError, match="no such limit: nonsense"):
        first.replace(nonsense=1)


def test_limits_are_immutable():
    limits = Limits()
    with pytest.raises(AttributeError, match="immutable"):
        limits.depth = 3
    with pytest.raises(AttributeError):
        limits.nonsense = 3
    with pytest.raises(AttributeError):
        del limits.depth
    assert limits.depth == Limits.DEFAULTS["depth"]


def test_limits_refuse_unknown_names_and_name_the_known():
    with pytest.raises(ValueError, match=r"no such limit: dept .*depth, entries"):
        Limits(dept=3)
    with pytest.raises(TypeError, match=r"pass pparse\.Limits\(depth=…\), not a dict"):
        pparse.open(b"{}", limits={"depth": 3})


def test_limits_of_one_are_the_least():
    least = Limits(**dict.fromkeys(Limits.DEFAULTS, 1))
    assert all(getattr(least, name) == 1 for name in Limits.DEFAULTS)


@pytest.mark.parametrize("value", [0, -1])
def test_limits_must_be_positive(value):
    with pytest.raises(ValueError, match="depth must be at least 1"):
        Limits(depth=value)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda limits: pickle.loads(pickle.dumps(limits))])
def test_limits_can_be_copied_and_pickled(again):
    limits = again(Limits(depth=5))
    assert limits.depth == 5
    assert limits.entries == Limits.DEFAULTS["entries"]


def test_check_names_the_limit_and_carries_the_numbers():
    limits = Limits(depth=5)
    limits.check("depth", 5, "the depth")
    with pytest.raises(LimitError) as caught:
        limits.check("depth", 6, "the depth", offset=16, path="a.b")
    error = caught.value
    assert (error.wanted, error.got, error.offset, error.path) == (6, 5, 16, "a.b")
    assert error.option == "--limit depth=20"
    assert "the depth is above the limit depth=5" in str(error)
    Limits(depth=int(error.option.rpartition("=")[2])).check("depth", 6, "the depth")


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "tensor", "1 tensor"),
        (1200, "tensor", "1,200 tensors"),
        (0, "entry", "0 entries"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
    ],
)
def test_numbers_and_nouns_agree(count, noun, words):
    assert count_words(count, noun) == words
