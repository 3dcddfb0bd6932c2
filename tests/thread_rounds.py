"""Ask 8 threads at once about every format, many times: ``python -m tests.thread_rounds --rounds 1000``.

Each round opens a file anew; every thread asks everything of it in an order of its own, and has to be told what one
thread alone is told. Slow: nothing that the suite does, but before a release, and on an interpreter without the GIL.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.test_threads import SAMPLES, compare
from tests.truth.cases import Case

WRAPPED = ("gz", "zip-deflated", "tar-gz", "zst", "gz-in-tar")


def main() -> int:
    """Go through formats and wrappings; say how long each took, and which gave another answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1000, help="of each format; a wrapping gets a twentieth")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases that have this in their name")
    options = parser.parse_args()
    cases = {f"{sample}/plain": options.rounds for sample in SAMPLES}
    cases["safetensors-sharded/folder"] = options.rounds
    cases |= {f"{sample}/{wrapper}": max(1, options.rounds // 20) for sample in SAMPLES for wrapper in WRAPPED}
    failed = 0
    for case, rounds in cases.items():
        if options.only not in case:
            continue
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                compare(Case.parse(f"{case}/none/threads"), Path(folder), rounds)
            said = "the answers of one"
        except Exception as error:
            failed += 1
            said = f"{type(error).__name__}: {error}"[:300]
        print(f"{case}: {rounds} rounds in {time.monotonic() - began:.0f} s: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
