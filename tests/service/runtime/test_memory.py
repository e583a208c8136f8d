"""What a process gives back to the system of the memory that it has freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
from service.runtime.memory import return_large_blocks

def resident():
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0]) / 1024

if sys.argv[1] == "set":
    assert return_large_blocks()
np.ones(1 << 21)  # 16 MiB that are freed: by default glibc takes later blocks from its heap
arrays = [np.ones(1 << 17) for _ in range(128)]
filled = resident()
held = arrays[::16]
del arrays
print(filled - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the threshold is that of glibc")
def test_freed_arrays_are_given_back_while_others_are_held() -> None:
    assert given_back("set") > 100
    assert given_back("unset") < 60, "glibc gives back without it: the test does not test"


def given_back(setting: str) -> float:
    """MiB of 120 that were freed."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, setting], capture_output=True, check=True, text=True
    )
    return float(ended.stdout)
