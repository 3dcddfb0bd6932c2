"""Many random cases of one corner of the matrix, counted by what is wrong with them::

    python -m tests.truth.campaign --sample safetensors --wrapper zip-deflated --cases 1000 --seed 5 --ways view,recover

Runs in one process, from the root of the repository. Prints a line per failing case (``pytest tests/truth
--truth-case …`` repeats it), then cases, seconds, and how often each clause failed. ``--clauses ac`` counts only those.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.truth.cases import WAY_NAMES, Case, draw_damage
from tests.truth.damage import KINDS
from tests.truth.runner import run_case
from tests.truth.samples import SAMPLES
from tests.truth.wrappers import WRAPPERS, applies


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="many random cases of one corner of the truth matrix")
    parser.add_argument("--sample", required=True)
    parser.add_argument("--wrapper", required=True)
    parser.add_argument("--cases", type=int, default=1000, help="damaged files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default="view,check,recover", help=f"of {', '.join(WAY_NAMES)}")
    parser.add_argument("--kinds", default="bit,noise,zeros,cut", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--within", default="", help="FROM-TO: damage at these bytes only")
    parser.add_argument("--clauses", default="abcde")
    options = parser.parse_args()
    if options.sample not in SAMPLES or options.wrapper not in WRAPPERS or not applies(options.sample, options.wrapper):
        wrappers = [name for name in WRAPPERS if options.sample in SAMPLES and applies(options.sample, name)]
        parser.error(f"{options.sample} is not tried in {options.wrapper}, but in: {', '.join(wrappers) or 'nothing'}")
    return options


def main() -> int:
    options = arguments()
    rng = random.Random(f"campaign {options.seed}")
    low, _, high = options.within.partition("-")
    counts: Counter[str] = Counter()
    done, begin = 0, time.perf_counter()
    folder = Path(tempfile.mkdtemp())
    try:
        for number in range(options.cases):
            damage = draw_damage(rng, options.sample, options.wrapper, rng.choice(options.kinds.split(",")))
            if low:
                damage = type(damage).parse(
                    str(damage).replace(f":{damage.offset}", f":{rng.randint(int(low), int(high))}", 1)
                )
            for way in options.ways.split(","):
                case = str(Case(options.sample, options.wrapper, damage, way))
                place = folder / f"{number}-{way}"
                place.mkdir()
                problems = [found for found in run_case(case, place) if found[0] in options.clauses]
                shutil.rmtree(place, ignore_errors=True)
                done += 1
                counts.update({letter for letter, _ in problems})
                if problems:
                    print(f"{case}\n  ({problems[0][0]}) {problems[0][1]}"[:300], flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.perf_counter() - begin
    failed = ", ".join(f"{letter} {count}" for letter, count in sorted(counts.items())) or "none"
    print(f"{options.sample}/{options.wrapper} seed {options.seed}: {options.cases} files, {done} cases")
    print(f"{seconds:.0f} s; failures by clause: {failed}")
    return bool(counts)


if __name__ == "__main__":
    sys.exit(main())
