"""Write dashboards/*.json; with `--check`, fail if they differ from what the Python modules here produce."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from quality_dashboard import QUALITY
from service_dashboard import SERVICE

DIRECTORY = Path(__file__).parent / "dashboards"


def main() -> None:
    for name, made in (("service", SERVICE), ("model-quality", QUALITY)):
        path, text = DIRECTORY / f"{name}.json", json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        if "--check" in sys.argv and path.read_text() != text:
            sys.exit(f"{path} is out of date: run {Path(__file__).name}")
        path.write_text(text)


if __name__ == "__main__":
    main()
