"""Pings a Redis server without a pause: `python -m bench.ping SOCKET`, until its standard input ends.

The longest wait for a reply is how long the server stalled, for whatever reason. Prints one JSON object.
"""

import json
import select
import socket
import sys
from time import perf_counter


def sorted_waits(path: str) -> list[float]:
    """Seconds of the waits, the longest last."""
    waits: list[float] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        while not select.select([sys.stdin], [], [], 0)[0]:
            asked = perf_counter()
            server.sendall(b"PING\r\n")
            server.recv(64)
            waits.append(perf_counter() - asked)
    return sorted(waits)


if __name__ == "__main__":
    waits = sorted_waits(sys.argv[1])
    print(json.dumps({"longest_ms": 1000 * waits[-1], "median_ms": 1000 * waits[len(waits) // 2]}))
