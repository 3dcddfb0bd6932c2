"""The truth matrix: samples in wrappings, damaged, asked in every way; see docs/truth-matrix.md."""

from __future__ import annotations

from tests.truth.cases import drawn
from tests.truth.runner import run_case


def test_what_is_said_of_a_damaged_file_is_true(truth_case, tmp_path, truth_tally):
    """What is said of a damaged file is true, whatever is around it and whoever asks."""
    problems, lines = [], []
    for number, case in enumerate(map(drawn, truth_case.splitlines())):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = run_case(case, folder)
        problems += found
        if found:
            said = "\n".join(f"  ({letter}) {sentence}" for letter, sentence in found)
            lines.append(f"{case}\n{said}\nrepeat it with:\n  pytest tests/truth --truth-case '{case}'")
    truth_tally(problems)
    if problems:
        raise AssertionError("\n".join(lines))
