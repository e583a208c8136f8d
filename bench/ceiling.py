"""How fast the load generator itself is: no figure near this one says anything about a server."""

import sys

from bench.criteo import complete_rows, write_bodies
from bench.processes import answers, free_port, load, running
from bench.result import Options, Result


def measure(options: Options) -> list[Result]:
    bodies = write_bodies(options, "ceiling", ({"features": row.features} for row in complete_rows(1000)))
    port = free_port()
    url = f"http://127.0.0.1:{port}/predict"
    with running([sys.executable, "-m", "bench.trivial_server", str(port)], lambda: answers(url)):
        runs = [load(url, bodies, options, connections=16) for _ in range(options.rounds)]
    return [
        Result(
            name="ceiling",
            what="the load generator itself, 16 connections, a constant reply",
            unit="requests/s",
            ours=tuple(run["requests_per_second"] for run in runs),
        )
    ]
