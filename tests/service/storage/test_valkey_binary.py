import os
import platform
from pathlib import Path

import pytest

from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from service.storage.embedded_binary import server_environment

OURS = "glibc.malloc.tcache_count=65535"
RECENT = ("glibc", "2.36")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_the_embedded_server_runs_with_long_free_lists(tmp_path: Path) -> None:
    with EmbeddedServer(Settings(data_dir=tmp_path)) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().strip(b"\0").split(b"\0")
    if environment == [b""]:
        pytest.skip("the server's process title has overwritten what the kernel shows of its environment")
    assert any(part.startswith(b"GLIBC_TUNABLES=") and OURS.encode() in part for part in environment)


def test_the_rest_of_the_environment_and_other_tunables_stay() -> None:
    assert server_environment({"HOME": "/"}, RECENT) == {"HOME": "/", "GLIBC_TUNABLES": OURS}
    given = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    assert server_environment(given, RECENT) == {"GLIBC_TUNABLES": f"glibc.malloc.arena_max=1:{OURS}"}


def test_free_lists_that_the_environment_sets_stay() -> None:
    given = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}
    assert server_environment(given, RECENT) == given


@pytest.mark.parametrize("libc", [("glibc", "2.28"), ("musl", "1.2.4"), ("", "")])
def test_a_libc_that_cannot_do_it_is_left_alone(libc: tuple[str, str]) -> None:
    assert server_environment(dict(os.environ), libc) == dict(os.environ)
