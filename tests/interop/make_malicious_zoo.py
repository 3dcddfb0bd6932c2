"""Writes malicious and harmless model files, and asks the scanners of model files about them.

    python -m tests.interop.make_malicious_zoo write FOLDER          # needs nothing
    python -m tests.interop.make_malicious_zoo harmless FOLDER       # needs torch, scikit-learn …: benign_pickles.py
    python -m tests.interop.make_malicious_zoo ask FOLDER TOOL       # see TOOLS
    python -m tests.interop.make_malicious_zoo table FOLDER

Each call may have an interpreter of its own, with what it needs. ``write`` writes to FOLDER/malicious, ``harmless`` to
FOLDER/harmless, ``ask`` what a tool says to FOLDER/TOOL.json. The files are never loaded. ``table`` prints, for each
class of files, in how many of them each tool finds something dangerous, and how many it suspects besides: names that it
does not know, files that it cannot read. `ANSWERS` says which words of a tool count as which.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[[str], str]

#: What a tool may say of a file.
ANSWERS = {
    "dangerous": "picklescan, modelscan: an issue; fickling: LIKELY_OVERTLY_MALICIOUS and more; modelaudit: critical",
    "suspicious": "picklescan: suspicious; fickling: up to LIKELY_UNSAFE; modelaudit: a warning; pparse: unknown",
    "failed": "an error, or an exception",
    "unread": "it does not look at such files",
    "clean": "it found nothing",
}


def write(folder: Path) -> None:
    """Write the malicious files: FOLDER/malicious/class/number/name."""
    from tests.malicious_files import malicious_files

    rows = []
    for number, (kind, name, data) in enumerate(malicious_files()):
        path = folder / "malicious" / kind.replace(" ", "-") / f"{number:04}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        rows.append([kind, str(path.relative_to(folder))])
    _note(folder, "malicious", rows)


def harmless(folder: Path) -> None:
    """Write the harmless files: FOLDER/harmless/class/name."""
    from tests.interop.benign_pickles import benign_files

    rows = []
    for kind, name, save in benign_files():
        path = folder / "harmless" / kind.replace(" ", "-") / name.replace(" ", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save(path)
        except Exception as error:  # not everything can be saved in every way
            print(f"not written: {kind}, {name}: {error}")
            path.unlink(missing_ok=True)
            continue
        rows.append([kind, str(path.relative_to(folder))])
    _note(folder, "harmless", rows)


def _note(folder: Path, which: str, rows: list[list[str]]) -> None:
    (folder / f"{which}-files.json").write_text(json.dumps(rows))
    print(f"{len(rows)} {which} files in {folder / which}")


# -- the tools -------------------------------------------------------------------------------------------------------


def _picklescan() -> Ask:
    from picklescan.scanner import scan_file_path

    def ask(path: str) -> str:
        found = scan_file_path(path)
        if found.issues_count:
            return "dangerous"
        return "failed" if found.scan_err else "suspicious" if found.suspicious_count else "clean"

    return ask


def _fickling() -> Ask:
    from fickling.analysis import Severity, check_safety
    from fickling.fickle import Pickled

    def ask(path: str) -> str:
        data = Path(path).read_bytes()
        pickles = [data]
        if data.startswith(b"PK"):  # it takes one pickle
            with zipfile.ZipFile(path) as file:
                pickles = [file.read(name) for name in file.namelist() if name.endswith(".pkl")]
        worst = max((check_safety(Pickled.load(io.BytesIO(one))).severity for one in pickles), default=None)
        if worst is None:
            return "unread"
        if worst >= Severity.LIKELY_OVERTLY_MALICIOUS:
            return "dangerous"
        return "clean" if worst == Severity.LIKELY_SAFE else "suspicious"

    return ask


def _modelscan() -> Ask:
    from modelscan.modelscan import ModelScan

    def ask(path: str) -> str:
        scan = ModelScan()
        told = scan.scan(path)
        if scan.issues.all_issues:
            return "dangerous"
        return "failed" if told["errors"] else "clean" if told["summary"]["scanned"]["total_scanned"] else "unread"

    return ask


def _modelaudit() -> Ask:
    from modelaudit.core import scan_model_directory_or_file

    def ask(path: str) -> str:
        found = scan_model_directory_or_file(path, cache_enabled=False)
        words = {str(getattr(issue.severity, "value", issue.severity)) for issue in found.issues}
        if "critical" in words:
            return "dangerous"
        return "suspicious" if "warning" in words else "clean" if found.success else "failed"

    return ask


def _pparse() -> Ask:
    import pparse

    def ask(path: str) -> str:
        try:
            worst = min((use.grade for use in pparse.scan(path)), default=pparse.Grade.HARMLESS)
        except pparse.FormatError:
            return "unread"
        return {"dangerous": "dangerous", "unknown": "suspicious"}.get(worst.value, "clean")

    return ask


TOOLS = {
    "picklescan": _picklescan,
    "fickling": _fickling,
    "modelscan": _modelscan,
    "modelaudit": _modelaudit,
    "pparse": _pparse,
}


def ask(folder: Path, tool: str) -> None:
    """Ask a tool about all files, and write down what it says."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    asked = TOOLS[tool]()
    said = []
    for which in ("malicious", "harmless"):
        listed = folder / f"{which}-files.json"
        for kind, name in json.loads(listed.read_text()) if listed.exists() else []:
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    answer = asked(str(folder / name))
            except Exception as error:  # a tool that fails has not found it
                answer = f"failed: {type(error).__name__}: {error}"[:200]
            said.append([which, kind, name, answer])
    (folder / f"{tool}.json").write_text(json.dumps(said, indent=0))
    print(tool, dict(Counter((which, answer.split(":")[0]) for which, _, _, answer in said)))


def table(folder: Path) -> None:
    """Print how many files of each class each tool calls dangerous, and suspects besides."""
    answers: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    tools = [tool for tool in TOOLS if (folder / f"{tool}.json").exists()]
    for tool in tools:
        for which, kind, _, answer in json.loads((folder / f"{tool}.json").read_text()):
            answers.setdefault((which, kind), {}).setdefault(tool, Counter())[answer.split(":")[0]] += 1
    sums: dict[tuple[str, str], Counter[str]] = {}
    print(f"{'dangerous + suspicious':28}{'files':>6}" + "".join(f"{tool:>14}" for tool in tools))
    for which in ("malicious", "harmless"):
        for (one, kind), told in answers.items():
            if one == which:
                _row(f"{which}: {kind}", told, tools)
                for tool in tools:
                    sums.setdefault((which, tool), Counter()).update(told.get(tool, Counter()))
        if any(one == which for one, _ in answers):
            _row(f"{which}: all", {tool: sums[which, tool] for tool in tools}, tools)


def _row(label: str, told: dict[str, Counter[str]], tools: list[str]) -> None:
    cells = [f"{told[tool]['dangerous']} + {told[tool]['suspicious']}" if tool in told else "" for tool in tools]
    files = max(sum(one.values()) for one in told.values())
    print(f"{label:28}{files:>6}" + "".join(f"{cell:>14}" for cell in cells))


def main(args: list[str]) -> None:
    commands: dict[str, Any] = {"write": write, "harmless": harmless, "ask": ask, "table": table}
    command, folder, *more = args if len(args) > 1 else [*args, tempfile.mkdtemp(prefix="malicious-")]
    commands[command](Path(folder), *more)


if __name__ == "__main__":
    main(sys.argv[1:])
