"""The truth matrix: samples in wrappings, damaged, asked in every way; see docs/truth-matrix.md."""

from __future__ import annotations

from tests.truth.runner import run_case


def test_what_is_said_of_a_damaged_file_is_true(truth_case, tmp_path, truth_tally):
    """What is said of a damaged file is true, whatever is around it and whoever asks."""
    problems = run_case(truth_case, tmp_path)
    truth_tally(problems)
    if problems:
        lines = "\n".join(f"  ({letter}) {sentence}" for letter, sentence in problems)
        line = f"pytest tests/truth --truth-case '{truth_case}'"
        raise AssertionError(f"{truth_case}\n{lines}\nrepeat it with:\n  {line}")
