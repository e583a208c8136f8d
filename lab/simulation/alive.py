"""The health check of the demo: `python -m lab.simulation.alive FILE` exits with 0 if FILE is recent.

An engine may split the words of a check at spaces, so this is a module rather than a line of code.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

MAX_AGE_SECONDS = 60.0


def main() -> int:
    file = Path(sys.argv[1])
    try:
        age = time.time() - file.stat().st_mtime
    except FileNotFoundError:
        sys.stdout.write(f"{file} is not there yet\n")
        return 1
    sys.stdout.write(f"{file} was touched {age:.0f} seconds ago\n")
    return 0 if age <= MAX_AGE_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
