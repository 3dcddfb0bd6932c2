"""Writes the zoo of PyTorch files and pickles, and what is in them.

``python -m tests.interop.make_pytorch_zoo [FOLDER]``. Made with torch 2.13.0, numpy 2.4 and Python 3.11; FOLDER is
``tests/data/pytorch`` by default. Files that torch.save or torch.jit.save no longer write are put together by hand
(``pytorch_zoo/by_hand.py``, ``old.py``); their notes say so. ``expected.json`` holds, under "files", for each file what
the real torch (or pickle) reads: see ``tests/pytorch_zoo.py``. Under "refused" are files that torch refuses, with its
reason, and what was put into those whose tensors are all there.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import torch

from tests.interop.pytorch_zoo import by_hand, foreign, objects, old, pickles, sample, scripts, tensors, truth

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "data" / "pytorch"
MODULES = (tensors, objects, by_hand, old, scripts, pickles)
REFEREES = {
    "torch": truth.of_torch,
    "script": truth.of_script,
    "pickle": truth.of_pickle,
    "joblib": lambda path: truth.of_pickle(path, pickles.JoblibUnpickler),
}


def index(folder: Path, samples: dict[str, sample.Sample]) -> dict[str, Any]:
    """Write the index of the sharded model; return what is in all its shards."""
    shards = sorted(name for name in samples if name.startswith("sharded/"))
    tensors, weight_map = [], {}
    for shard in shards:
        found = truth.of_torch(folder / shard)["tensors"]
        tensors += found
        weight_map.update({row["name"]: shard.removeprefix("sharded/") for row in found})
    told = {"metadata": {"total_size": 24 * len(weight_map)}, "weight_map": weight_map}
    (folder / "sharded" / "pytorch_model.bin.index.json").write_text(json.dumps(told, indent=2) + "\n")
    return {"tensors": tensors, "metadata": {}}


def read(path: Path, referee: str) -> dict[str, Any]:
    """Return what the referee finds in a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return REFEREES[referee](path)


def add_second(told: dict[str, Any], meant: list[dict[str, Any]]) -> None:
    """Note what may be read as well: other numbers, or other tensors."""
    if [row["name"] for row in told["tensors"]] != [row["name"] for row in meant]:
        told["or_tensors"] = meant
        return
    for row, other in zip(told["tensors"], meant, strict=True):
        if row["sha256"] != other["sha256"]:
            row["or_sha256"] = other["sha256"]


def reason(error: Exception) -> str:
    """Return the first words of an error, without what differs from run to run."""
    return f"{type(error).__name__}: {re.sub(r'in file .*?/', '', str(error)).splitlines()[0][:80]}"


def make(folder: Path) -> dict[str, Any]:
    """Write all files into a folder; return what expected.json holds."""
    files: dict[str, Any] = {}
    refused: dict[str, Any] = {}
    with foreign.importable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, one in sample.SAMPLES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            one.write(path)
            entry = {"referee": one.referee, "note": one.note}
            try:
                files[name] = {**entry, **read(path, one.referee)}
                if one.meant is not None:
                    add_second(files[name], truth.Truth().walk(one.meant()).tensors)
            except Exception as error:  # whatever torch raises
                held = {} if one.meant is None else truth.Truth().walk(one.meant()).to_dict()
                refused[name] = {**entry, "reason": reason(error), **held}
        entry = {"referee": "torch", "note": "the index of three shards"}
        files["sharded/pytorch_model.bin.index.json"] = {**entry, **index(folder, sample.SAMPLES)}
    return {"torch": torch.__version__, "files": files, "refused": refused}


def dumped(expected: dict[str, Any]) -> str:
    """Return the text of expected.json, a line for each tensor."""

    def entries(files: dict[str, Any]) -> str:
        texts = []
        for name, told in files.items():
            fields = []
            for field, value in told.items():
                text = json.dumps(value)
                if isinstance(value, list) and value:
                    text = "[\n    " + ",\n    ".join(json.dumps(row) for row in value) + "\n  ]"
                fields.append(f"  {json.dumps(field)}: {text}")
            texts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n}")
        return "{\n" + ",\n".join(texts) + "\n}"

    parts = [f'"torch": {json.dumps(expected["torch"])}']
    parts += [f'"{part}": {entries(expected[part])}' for part in ("files", "refused")]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    expected = make(folder)
    (folder / "expected.json").write_text(dumped(expected))
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    rows = sum(len(told["tensors"]) for told in expected["files"].values())
    print(f"{len(sizes)} files, {sum(sizes):,} bytes, the largest {max(sizes):,}; {rows} tensors")
    for name, told in expected["refused"].items():
        print("refused:", name, told["reason"])


if __name__ == "__main__":
    main()
