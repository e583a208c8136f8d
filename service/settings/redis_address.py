"""The address of one Redis server or of several, as FTRL_REDIS_URL gives it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import unquote

Mode = Literal["server", "sentinel", "cluster"]
DEFAULT_PORTS = {"sentinel": 26379, "cluster": 6379}
FORMS = "redis://, rediss:// or unix://, or redis+sentinel:// or redis+cluster:// (rediss+... with TLS)"

_URL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<mode>sentinel|cluster)://(?P<user>[^@/?]*@)?(?P<hosts>[^/?@]+)"
    r"(?P<path>/[^?]*)?(?P<query>\?.*)?"
)
_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+)(:(?P<port>\d{1,5}))?", re.ASCII)


class RedisAddress(NamedTuple):
    """A parsed address: `url` is that of the only server, or of the first of `hosts`.

    The forms for several servers are those of other libraries: `redis+sentinel://host:port,host:port/service/db`
    and `redis+cluster://host:port,host:port`, `rediss+...` with TLS.
    """

    mode: Mode
    url: str
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Raises ValueError, whose text repeats nothing of the URL."""
        if url.startswith(("redis://", "rediss://", "unix://")):
            return cls("server", url)
        parts = _URL.fullmatch(url)
        if parts is None:
            raise ValueError(f"must start with {FORMS}, followed by host:port,host:port")
        mode: Mode = "sentinel" if parts["mode"] == "sentinel" else "cluster"
        service, _, database = (parts["path"] or "").strip("/").partition("/")
        if mode == "sentinel" and not service:
            raise ValueError("redis+sentinel:// ends with the name of the master: .../mymaster")
        if mode == "cluster":
            service, database = "", service
        if database and not (database.isdecimal() and (mode == "sentinel" or int(database) == 0)):
            raise ValueError("the database must be a number, and a cluster has only 0")
        hosts = tuple(_host(text, DEFAULT_PORTS[mode]) for text in parts["hosts"].split(","))
        place = f"{parts['user'] or ''}{parts['hosts'].split(',')[0]}/{database or 0}"
        return cls(mode, f"{parts['scheme']}://{place}{parts['query'] or ''}", hosts, unquote(service))


def _host(text: str, default_port: int) -> tuple[str, int]:
    parts = _HOST.fullmatch(text)
    if parts is None:
        raise ValueError("the servers must be written host:port,host:port")
    return parts["host"].strip("[]"), int(parts["port"] or default_port)


def without_password(url: str) -> str:
    """For logs and messages."""
    shown = re.sub(r"(?<=://)(?P<user>[^:@/?]*):[^@]*(?=@)", r"\g<user>:***", url)
    return re.sub(r"(?<=[?&])(password|ssl_password)=[^&]*&?", "", shown).rstrip("?&")
