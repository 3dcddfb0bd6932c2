"""Tables that are one test: every row is gone through, and what fails is named."""

from __future__ import annotations

import inspect

import pytest

from tests import rows as rows_module
from tests.rows import rows


@pytest.fixture
def all_rows(monkeypatch):
    monkeypatch.setattr(rows_module, "stop_at_first", False)


def test_every_row_of_stacked_tables_is_gone_through() -> None:
    seen = []

    @rows("a", [1, 2])
    @rows(("b", "c"), [("x", None), ("y", ...)])
    def test(a, b, c):
        seen.append((a, b, c))

    test()
    assert seen == [(1, "x", None), (1, "y", ...), (2, "x", None), (2, "y", ...)]


def test_fixtures_and_other_parameters_stay_arguments() -> None:
    @rows("a", [1])
    @pytest.mark.parametrize("b", [2])
    def test(tmp_path, a, b):
        return None

    assert list(inspect.signature(test).parameters) == ["tmp_path", "b"]
    assert [mark.args[0] for mark in test.pytestmark] == ["b"]


@pytest.mark.usefixtures("all_rows")
def test_rows_behind_one_that_fails_are_gone_through_and_all_that_fail_are_named() -> None:
    seen = []

    @rows("a", [3, 4, 5, 6])
    def test(a):
        seen.append(a)
        assert a in (3, 5)

    with pytest.raises(AssertionError) as caught:
        test()
    assert seen == [3, 4, 5, 6]
    assert caught.value.__notes__ == ["2 of 4 rows fail, the first of them like this: 1 (4), 3 (6)"]


def test_the_first_row_that_fails_is_enough_if_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(rows_module, "stop_at_first", True)
    seen = []

    @rows("a", [3, 4, 5])
    def test(a):
        seen.append(a)
        assert a == 3

    with pytest.raises(AssertionError):
        test()
    assert seen == [3, 4]


@pytest.mark.usefixtures("all_rows")
def test_rows_have_the_names_that_are_given() -> None:
    @rows("a", [1, 2], ids={"one": 1, "two": 2})
    @rows("b", [pytest.param(3, id="three")])
    @rows("c", [4], ids=lambda value: f"c{value}")
    def test(a, b, c):
        raise ValueError(a)

    with pytest.raises(ValueError, match="1") as caught:
        test()
    assert [note.partition(": ")[2] for note in caught.value.__notes__] == ["0 c4", "0 three", "0 one, 1 two"]


def test_a_row_that_is_skipped_does_not_hide_the_others() -> None:
    @rows("a", [1, 2])
    def test(a):
        if a == 1:
            pytest.skip("not here")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        test()


def test_a_table_of_which_every_row_is_skipped_is_skipped() -> None:
    @rows("a", [1, 2])
    def test(a):
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        test()


def test_a_table_without_rows_or_with_a_wrong_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rows of a"):
        rows("a", [])
    with pytest.raises(ValueError, match="row 0 has 1 values for a, b"):
        rows("a, b", [(1,)])
    with pytest.raises(ValueError, match="marks"):
        rows("a", [pytest.param(1, marks=pytest.mark.skip)])
    with pytest.raises(TypeError, match="no argument a"):
        rows("a", [1])(lambda b: None)
