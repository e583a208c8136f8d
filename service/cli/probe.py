"""Exit with 0 if this host's process is ready to predict, else with 1: `python -m service.cli.probe [PORT]`.

The port is that of FTRL_HEALTH_PORT, or else of FTRL_PORT, unless it is given. The health check of a
container runs this every few seconds, so it uses http.client: importing httpx takes longer than the request.
"""

from __future__ import annotations

import http.client
import os
import sys

TIMEOUT_SECONDS = 2.0


def main() -> int:
    settings_port = os.environ.get("FTRL_HEALTH_PORT") or os.environ.get("FTRL_PORT") or "8000"
    port = sys.argv[1] if len(sys.argv) > 1 else settings_port
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        reply = connection.getresponse()
        text = reply.read().decode()
    except (OSError, http.client.HTTPException) as failure:
        sys.stdout.write(f"port {port}: {failure}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{text}\n")
    return 0 if reply.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
