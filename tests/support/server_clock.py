"""A wall clock that a test sets: that of server processes which it starts meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from service.storage.channel import Channel
from tests.support.waiting import until

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) {
  long seconds = 0;
  FILE *file = fopen(getenv("SERVER_CLOCK_AHEAD"), "r");
  if (file) {
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
  }
  return seconds;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int status = real(now, zone);
  now->tv_sec += ahead();
  return status;
}

time_t time(time_t *out) {
  struct timeval now;
  gettimeofday(&now, NULL);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


class ServerClock:
    """Of processes that are started with the environment variables `environment`. Skips the test where there
    is no compiler.
    """

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler to make a clock with")
        source, library, self._ahead = (directory / name for name in ("clock.c", "clock.so", "ahead"))
        source.write_text(SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "SERVER_CLOCK_AHEAD": str(self._ahead)}
        self.jump_to(0)

    def jump_to(self, seconds: int) -> None:
        """So many seconds ahead of this machine's from now on; less than 0: behind."""
        written = self._ahead.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._ahead)

    async def jump(self, channel: Channel, seconds: int) -> None:
        """Returns when scripts have the new time: the server does not read it for every one."""
        self.jump_to(seconds)

        async def has_jumped() -> bool:
            told = int(await channel.call("EVAL", "return redis.call('TIME')[1]", 0))
            return abs(told - time.time() - seconds) <= 20

        await until(has_jumped, "the server's clock has jumped")


class CallerClock:
    """The clock of a process that calls scripts, which a test sets: `topology.clock`."""

    def __init__(self) -> None:
        self.ahead_seconds = 0

    def milliseconds(self) -> int:
        return int(1000 * (time.time() + self.ahead_seconds))
