"""Reference: Vowpal Wabbit over a text file: `python -m bench.reference_vw FILE BITS`.

VW's C++ parser reads the file itself (in a thread of its own) and its learner consumes it; Python only
starts it, as the package brings no executable. Prints one JSON object; `seconds` is VW from its creation to
the end of the file, without the interpreter's start.
"""

import json
import sys
from time import perf_counter

from vowpalwabbit import Workspace

OPTIONS = "--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --l1 0 --l2 0 --loss_function logistic --quiet"


def main(path: str, bits: str) -> None:
    started = perf_counter()
    workspace = Workspace(f"-d {path} -b {bits} {OPTIONS}")
    seconds = perf_counter() - started
    rows = workspace.get_weighted_examples()
    print(json.dumps({"rows": rows, "log_loss": workspace.get_sum_loss() / rows, "seconds": seconds}))
    workspace.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
