from __future__ import annotations

import pytest

from service.settings.redis_address import RedisAddress, without_password


@pytest.mark.parametrize("url", ["redis://host:1/2", "rediss://user:pw@host", "unix:///run/redis.sock"])
def test_one_server_is_left_to_redis_py(url: str) -> None:
    assert RedisAddress.parse(url) == RedisAddress("server", url)


def test_sentinels_are_named_with_their_master_and_database() -> None:
    address = RedisAddress.parse("rediss+sentinel://user:pw@one,two:5,[::1]:7/clicks/3?ssl_check_hostname=no")
    assert address == RedisAddress(
        "sentinel",
        "rediss://user:pw@one/3?ssl_check_hostname=no",
        (("one", 26379), ("two", 5), ("::1", 7)),
        "clicks",
    )


def test_a_cluster_is_named_by_some_of_its_nodes() -> None:
    address = RedisAddress.parse("redis+cluster://one:7000,two")
    assert address == RedisAddress("cluster", "redis://one:7000/0", (("one", 7000), ("two", 6379)))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host", "must start with redis://"),
        ("redis+sentinel://", "host:port,host:port"),
        ("redis+sentinel://one:1", "ends with the name of the master"),
        ("redis+sentinel://one:1/clicks/x", "the database must be a number"),
        ("redis+cluster://one:1/1", "a cluster has only 0"),
        ("redis+cluster://one:port", "must be written host:port"),
        ("redis+cluster://one,,two", "must be written host:port"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_without_repeating_it(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        RedisAddress.parse(url)
    assert "one" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+sentinel://user:pw@one:1,two:2/clicks", "redis+sentinel://user:***@one:1,two:2/clicks"),
        ("rediss+cluster://:pw@one", "rediss+cluster://:***@one"),
        ("redis://user:p/w@host/1", "redis://user:***@host/1"),
        ("redis://host?password=pw&db=1", "redis://host?db=1"),
        ("unix:///run/s.sock?db=1&password=pw", "unix:///run/s.sock?db=1"),
        ("redis+cluster://one,two", "redis+cluster://one,two"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
