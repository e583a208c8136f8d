"""What a process gives back to the system of the memory that it has freed, and what it retains."""

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

FAULTS_SCRIPT = """
import resource, sys
import numpy as np
from service.runtime.memory import retain_large_blocks, return_large_blocks

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

assert return_large_blocks()
if sys.argv[1] == "set":
    assert retain_large_blocks()
np.ones(1 << 18)
before = faults()
for _ in range(100):
    np.ones(1 << 18)  # 2 MiB
print(faults() - before)
"""

BUFFERS_SCRIPT = """
import resource, sys
import numpy as np
from service.runtime.memory import return_large_blocks

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "set":
    assert return_large_blocks()
def work():
    [np.ones(1 << 13) for _ in range(64)]  # 4 MiB in blocks of 64 KiB
work()
before = faults()
for _ in range(100):
    work()
print(faults() - before)
"""

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the threshold is that of glibc")


@on_glibc
def test_freed_arrays_are_given_back_while_others_are_held() -> None:
    assert given_back("set") > 100
    assert given_back("unset") < 60, "glibc gives back without it: the test does not test"


@on_glibc
def test_buffers_of_a_request_are_used_again_by_the_next() -> None:
    assert printed(BUFFERS_SCRIPT, "set") < 1000
    assert printed(BUFFERS_SCRIPT, "unset") > 20_000, "glibc retains them without it: nothing is tested"


@on_glibc
def test_a_replay_uses_freed_blocks_again() -> None:
    assert printed(FAULTS_SCRIPT, "set") < 1000
    assert printed(FAULTS_SCRIPT, "unset") > 20_000, "pages of blocks are kept without it: nothing is tested"


def given_back(setting: str) -> float:
    """MiB of 120 that were freed."""
    return printed(SCRIPT, setting)


def printed(script: str, setting: str) -> float:
    ended = subprocess.run(
        [sys.executable, "-c", script, setting], capture_output=True, check=True, text=True
    )
    return float(ended.stdout)
