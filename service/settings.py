"""Every setting of the service, once: variables with the prefix FTRL_, and flags of the same names."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import unquote

from pydantic import ByteSize, Field, FilePath, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Mode = Literal["server", "sentinel", "cluster"]
DEFAULT_PORTS = {"sentinel": 26379, "cluster": 6379}
FORMS = "redis://, rediss:// or unix://, or redis+sentinel:// or redis+cluster:// (rediss+... with TLS)"

_URL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<mode>sentinel|cluster)://(?P<user>[^@/?]*@)?(?P<hosts>[^/?@]+)"
    r"(?P<path>/[^?]*)?(?P<query>\?.*)?"
)
_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+)(:(?P<port>\d{1,5}))?", re.ASCII)


class RedisAddress(NamedTuple):
    """FTRL_REDIS_URL, taken apart: `url` is that of the only server, or of the first of `hosts`.

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


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["human", "json"]
AppendFsync = Literal["always", "everysec", "no"]


class Settings(BaseSettings):
    """Frozen. An explicit value wins over the environment, the environment over the default.

    Byte sizes are integers or texts such as `64MiB`. An environment variable that is empty counts as unset.
    Raises pydantic.ValidationError, which names the field, on any value out of bounds.
    """

    model_config = SettingsConfigDict(
        env_prefix="FTRL_", env_ignore_empty=True, frozen=True, extra="forbid", validate_default=True
    )

    # listening
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of /metrics and /readyz of a learner that runs alone; unset: the one after `port`.",
    )
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="API processes; 1 runs API and learner in one process, more add one learner.",
    )
    shutdown_grace_seconds: Seconds = Field(
        10.0,
        description="At a stop, wait this long for requests in flight, then for a snapshot being written.",
    )
    max_live_streams: Count = Field(
        100, description="Most pages that may be connected to one process for their live figures."
    )

    drain_seconds: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="At a stop, first say that this is not ready and go on answering for this long.",
    )

    # security
    tokens_file: FilePath | None = Field(
        None, description="File of the tokens that callers need (`ftrl token create`); unset: none is needed."
    )
    allow_anonymous: bool = Field(
        False, description="Listen beyond this machine although no token is needed."
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the API's /livez, /readyz and /metrics, without tokens; unset: `port`.",
    )

    # logging
    log_level: LogLevel = Field("info", description="Least severe log lines that are written.")
    log_format: LogFormat = Field("human", description="Log lines for people, or one JSON object a line.")

    # Redis
    redis_url: str | None = Field(
        None,
        repr=False,  # it may hold a password
        description="Address of a Redis or Valkey (redis://, rediss://, unix://, redis+sentinel://,"
        " redis+cluster://); unset: the embedded one.",
    )
    redis_username: str | None = Field(None, description="ACL user of Redis.")
    redis_password: SecretStr | None = Field(None, description="Password of Redis, kept out of its URL.")
    redis_sentinel_username: str | None = Field(None, description="ACL user of the Sentinels.")
    redis_sentinel_password: SecretStr | None = Field(None, description="Password of the Sentinels.")
    redis_ca_cert: FilePath | None = Field(None, description="Certificate authority to trust for rediss://.")
    redis_client_cert: FilePath | None = Field(None, description="Client certificate for rediss://.")
    redis_client_key: FilePath | None = Field(
        None, description="Key of the client certificate for rediss://."
    )
    redis_timeout_seconds: Seconds = Field(0.5, description="Longest wait for one answer of Redis.")
    allow_eviction: bool = Field(
        False,
        description="Start although the server's maxmemory-policy may evict keys, that is lose a model.",
    )
    memory_share_limit: float = Field(
        0.85, gt=0, le=1, description="Refuse new examples above this share of the server's maxmemory."
    )

    # embedded server
    data_dir: Path = Field(
        Path("data"), description="Directory of the embedded server's data and of snapshots."
    )
    appendfsync: AppendFsync = Field(
        "everysec", description="When the embedded server forces its append-only file to disk."
    )
    embedded_maxmemory_bytes: ByteSize = Field(
        ByteSize(0), ge=0, description="The embedded server's maxmemory; 0 is no limit."
    )

    # updates and the example log
    update_timeout_seconds: Seconds = Field(
        2.0, description="Longest that /update waits for its examples to be appended and learned."
    )
    backlog_limit_examples: Count = Field(
        1_000_000, description="Refuse new examples while this many wait to be learned."
    )
    pending_log_bytes: ByteSize = Field(
        ByteSize(16 * MIB),
        ge=0,
        description="Most memory, in each process and for each model, for predictions that wait to be kept"
        ' while nobody waits for it (`"wait": false`).',
    )
    event_id_retention_seconds: Seconds = Field(
        3600.0, description="A repeated event_id is recognised for at least this long."
    )
    log_retention_seconds: float = Field(
        3600.0, ge=0, allow_inf_nan=False, description="Keep learned examples in the log for this long."
    )
    log_retention_bytes: ByteSize = Field(
        ByteSize(GIB), ge=0, description="Trim learned examples once the log is larger than this."
    )

    # learner
    lease_seconds: float = Field(
        10.0, ge=1, le=3600, description="A learner that is silent for this long is replaced by a standby."
    )
    learner_read_examples: Count = Field(
        2048, description="Examples that the learner reads and commits together."
    )
    commit_slots: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="Most slots that one commit changes; more block Redis longer.",
    )
    commits_bytes: ByteSize = Field(
        ByteSize(256 * MIB),
        ge=MIB,
        description="Size of the commits stream; a mirror further behind loads again.",
    )

    # snapshots
    snapshots: str | None = Field(
        None,
        repr=False,  # its query may hold a key
        description="Directory or URL (s3://bucket/prefix) of snapshots; unset: `snapshots` in `data_dir`.",
    )
    snapshot_seconds: float = Field(
        900.0,
        ge=0,
        allow_inf_nan=False,
        description="Take a snapshot of each model that learned, this often; 0 is never.",
    )
    snapshot_examples: int = Field(
        0, ge=0, description="Take a snapshot also after this many examples; 0 is never."
    )
    log_archive_seconds: float = Field(
        0,
        ge=0,
        allow_inf_nan=False,
        description="Keep what leaves the log this long in the snapshot store; 0 is not at all.",
    )
    start_from_snapshot: bool = Field(
        False,
        description="Begin with a model's newest snapshot and the log since, not with its state in Redis.",
    )
    snapshots_kept: Count = Field(
        24, description="Snapshots kept of each model; tagged ones stay beside them."
    )

    # mirrors and models
    stale_after_seconds: Seconds = Field(
        5.0, description="A mirror that has not heard from Redis for this long counts as stale."
    )
    default_model: FilePath | None = Field(
        None,
        description="JSON file with the configuration of the model `default`, used when it is first created.",
    )

    # limits of a request
    max_body_bytes: ByteSize = Field(ByteSize(MIB), ge=KIB, description="Largest request body.")
    body_timeout_seconds: Seconds = Field(10.0, description="Longest wait for the whole of a request body.")
    max_update_body_bytes: ByteSize = Field(
        ByteSize(16 * MIB), ge=KIB, description="Largest request body of an update."
    )
    max_instances: Count = Field(1000, description="Most instances in one predict request.")
    max_examples: Count = Field(10_000, description="Most examples in one update request.")
    max_features: int = Field(
        1024, ge=1, le=1 << 20, description="Most features of one example, crosses included."
    )
    max_name_bytes: int = Field(256, ge=1, le=65535, description="Longest feature name, in bytes of UTF-8.")
    max_value: float = Field(1e6, gt=0, le=1e9, description="Largest magnitude of a feature's value.")
    header_timeout_seconds: Seconds = Field(
        10.0, description="Longest wait for the whole of a request's headers."
    )
    send_timeout_seconds: Seconds = Field(
        10.0, description="Longest wait for a caller to take the next part of what it is answered."
    )
    max_connections: Count = Field(
        4096,
        description="Most connections of a process; beyond it, the one that has waited longest is closed.",
    )
    max_weight: float = Field(1e6, gt=0, le=1e9, description="Largest importance weight of an example.")

    @field_validator("port", "metrics_port", "health_port", mode="before")
    @classmethod
    def _not_a_service_link(cls, value: object) -> object:
        # Kubernetes sets FTRL_PORT=tcp://... in every pod beside a Service that is called `ftrl`.
        if isinstance(value, str) and value.startswith("tcp://"):
            raise ValueError(
                f"{value!r} is a Kubernetes service link: set enableServiceLinks: false on the pod"
            )
        return value

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        if value is not None:
            RedisAddress.parse(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.redis_client_cert is None) != (self.redis_client_key is None):
            raise ValueError("redis_client_cert and redis_client_key belong together: set both or neither")
        if self.redis_ca_cert is not None and not (self.redis_url or "").startswith("rediss"):
            raise ValueError("redis_ca_cert needs a redis_url that starts with rediss")
        if self.lease_seconds <= 2 * self.redis_timeout_seconds:
            raise ValueError(
                "lease_seconds must be over twice redis_timeout_seconds, or no renewal fits into it"
            )
        return self

    @property
    def learner_port(self) -> int:
        """Where a learner that runs alone listens; 0 takes any free one."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.port + 1 if 0 < self.port < 65535 else 0

    @property
    def anonymous_abroad(self) -> bool:
        """Whether everyone who reaches this machine might call what listens on `host`, unasked."""
        return self.tokens_file is None and not self.allow_anonymous and not is_loopback(self.host)

    @property
    def embedded(self) -> bool:
        """Whether the data lives in the embedded server rather than at `redis_url`."""
        return self.redis_url is None

    @property
    def snapshot_store(self) -> str:
        """Where snapshots are kept: a path or a URL."""
        return str(self.data_dir / "snapshots") if self.snapshots is None else self.snapshots

    @property
    def public_redis_url(self) -> str | None:
        """`redis_url` without its password, for logs and messages."""
        if self.redis_url is None:
            return None
        return without_password(self.redis_url)


def is_loopback(host: str) -> bool:
    """Any other name counts as reachable from elsewhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def environment(settings: Settings) -> dict[str, str]:
    """The FTRL_ variables from which a child process reads the same settings (flags would show in `ps`)."""
    values = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if value is not None:
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            values[f"FTRL_{name.upper()}"] = text
    return values
