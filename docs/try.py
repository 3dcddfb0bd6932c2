"""See what pparse does, on a fresh clone, with nothing but Python: ``python3 docs/try.py``.

Sets up a virtual environment, ``.venv``, with pparse in it, then runs a few commands on the samples.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from run import environment  # noqa: E402 -- the folder was just added

COMMANDS = (
    ("ls", "docs/samples/tiny-gpt.safetensors", "h.0.*"),
    ("get", "docs/samples/tiny-gpt.safetensors", "h.0.attn.c_attn.weight[0, :6]"),
    ("info", "docs/samples/tiny-gpt.cut.safetensors"),
    ("ls", "docs/samples/records.damaged.riegeli"),
)


def main() -> int:
    python = environment(editable=False)
    pparse = python.parent / "pparse"
    for command in COMMANDS:
        print("\n$ pparse", *(f"'{word}'" if set(word) & set("*[ ") else word for word in command), flush=True)
        code = subprocess.run([pparse, *command], cwd=ROOT).returncode
        if code not in (0, 4):
            return code
    print("\nIt is installed in this environment:", pparse)
    return 0


if __name__ == "__main__":
    sys.exit(main())
