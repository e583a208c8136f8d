"""Debian's Prometheus as a process, with the configuration of deploy/prometheus and targets of the test's."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers import free_port
from tests.support.shared_data import REPOSITORY
from tests.support.waiting import wait_until


class PrometheusServer:
    """Scrapes and evaluates every second. `targets`: addresses by the names of the files of targets."""

    def __init__(self, directory: Path, targets: dict[str, list[str]]) -> None:
        configuration = directory / "prometheus"
        shutil.copytree(REPOSITORY / "deploy" / "prometheus", configuration)
        for name, addresses in targets.items():
            text = json.dumps([{"targets": addresses}])  # JSON is YAML
            (configuration / "targets" / f"{name}.yml").write_text(text)
        main = configuration / "prometheus.yml"
        main.write_text(main.read_text().replace("_interval: 15s", "_interval: 1s"))
        for rules in (configuration / "rules").iterdir():  # a test has no yesterday
            rules.write_text(rules.read_text().replace("offset 1d", "offset 1s"))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={main}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an API reply. Raises httpx.HTTPStatusError, as for a query that cannot be parsed."""
        reply = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10, verify=False)
        return reply.raise_for_status().json()["data"]

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The samples of now, those that are not a number left out."""
        return [one for one in self.ask("query", query=promql)["result"] if one["value"][1] != "NaN"]

    def wait_for(self, promql: str, seconds: float = 60) -> None:
        def found() -> bool:
            assert self._process.poll() is None, "Prometheus ended"
            return bool(self.query(promql))

        wait_until(found, f"{promql} finds something", seconds)

    def missing(self, promqls: Sequence[str], seconds: float = 60) -> list[str]:
        """Those that find nothing within this time: a recorded series, and its past, come a scrape later."""
        deadline = time.monotonic() + seconds
        while left := [promql for promql in promqls if not self.query(promql)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        return left

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
