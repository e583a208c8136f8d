"""The most memory that processes have taken, whichever of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.background import Watcher

MIB = 1 << 20
EVERY_SECONDS = 0.5


class PeakMemory(Watcher):
    """`with PeakMemory(pids) as peak:` polls every half second. `pids()` returns the processes of each kind;
    `peak.bytes` has for each kind the largest resident memory of any one. Empty where there is no /proc.
    """

    def __init__(self, pids: Callable[[], Mapping[str, Sequence[int]]]) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}
        self._pids = pids

    def __str__(self) -> str:
        return ", ".join(f"{kind} {size / MIB:.0f} MiB" for kind, size in sorted(self.bytes.items()))

    def watch(self) -> None:
        while not self.stopping.wait(EVERY_SECONDS):
            for kind, pids in self._pids().items():
                self.bytes[kind] = max([self.bytes.get(kind, 0), *map(high_water, pids)])


def high_water(pid: int) -> int:
    """The most resident memory that a process ever had, in bytes; 0 where it is not known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line for line in lines if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) * 1024 if found else 0
