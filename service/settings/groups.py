"""The settings of the service, in groups; a class is given the group that it uses.

Each setting is declared once. It is an environment variable (prefix FTRL_) and a flag of the same name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ByteSize, Field, FilePath, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.settings.redis_address import RedisAddress, without_password

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["human", "json"]
AppendFsync = Literal["always", "everysec", "no"]


class SettingsGroup(BaseSettings):
    """Settings that are used together; `topic` is their title in help and documentation."""

    model_config = SettingsConfigDict(
        env_prefix="FTRL_",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,  # most processes use `Settings` alone
    )
    topic: ClassVar[str]


class ListeningSettings(SettingsGroup):
    """Ports, processes and connections."""

    topic = "Listening"

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of /metrics and /readyz of a learner that runs alone, or of a consumer of Kafka;"
        " unset: `port` + 1, or + 2.",
    )
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the API's /livez, /readyz and /metrics, without tokens; unset: `port`.",
    )
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="API processes; 1 runs API and learner in one process (see `separate_learner`), more add"
        " one learner.",
    )
    separate_learner: bool = Field(
        False,
        description="`ftrl serve` runs the learner in a process of its own also with one API process: updates"
        " are faster where there are two processors, and its metrics are on `metrics_port`.",
    )
    max_live_streams: Count = Field(100, description="Max dashboards connected to one process.")
    max_update_streams: Count = Field(64, description="Max updates of one process whose bodies are streamed.")
    stream_idle_seconds: Seconds = Field(
        60.0, description="A streamed update of which nothing has come for this long is ended."
    )
    max_connections: Count = Field(
        4096,
        description="Max connections of a process; beyond it, the one idle for longest is closed.",
    )
    keep_alive_seconds: Count = Field(
        75,
        description="An idle connection is closed after this time; set it longer than the load balancer's.",
    )
    header_timeout_seconds: Seconds = Field(
        10.0, description="Longest wait for the whole of a request's headers."
    )
    body_timeout_seconds: Seconds = Field(10.0, description="Longest wait for the whole of a request body.")
    send_timeout_seconds: Seconds = Field(
        10.0, description="Longest wait for a client to read the next part of a reply."
    )

    @property
    def learner_port(self) -> int:
        """Where a learner that runs alone listens; 0 takes any free one."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.port + 1 if 0 < self.port < 65535 else 0

    @property
    def consumer_port(self) -> int:
        """Where a consumer of Kafka has its metrics; 0 takes any free one."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.port + 2 if 0 < self.port < 65534 else 0

    @field_validator("port", "metrics_port", "health_port", mode="before")
    @classmethod
    def _not_a_service_link(cls, value: object) -> object:
        # Kubernetes sets FTRL_PORT=tcp://... in every pod beside a Service that is called `ftrl`.
        if isinstance(value, str) and value.startswith("tcp://"):
            raise ValueError(
                f"{value!r} is a Kubernetes service link: set enableServiceLinks: false on the pod"
            )
        return value


class StopSettings(SettingsGroup):
    """The end of a process."""

    topic = "Stopping"

    drain_seconds: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="At a stop, report not ready and keep answering for this long first.",
    )
    shutdown_grace_seconds: Seconds = Field(
        10.0,
        description="At a stop, wait this long for requests in flight, then for a snapshot being written.",
    )


class SecuritySettings(SettingsGroup):
    """Tokens."""

    topic = "Security"

    tokens_file: FilePath | None = Field(
        None,
        description="File of the tokens that clients need (`ftrl token create`); unset: no token is needed.",
    )
    allow_anonymous: bool = Field(False, description="Listen beyond this machine without requiring tokens.")


class LoggingSettings(SettingsGroup):
    """Log lines."""

    topic = "Logging"

    log_level: LogLevel = Field("info", description="Least severe level that is logged.")
    log_format: LogFormat = Field("human", description="Readable log lines, or one JSON object per line.")


class RedisSettings(SettingsGroup):
    """The server that holds the data, and the connections to it."""

    topic = "Redis"

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
    redis_timeout_seconds: Seconds = Field(0.5, description="Longest wait for one reply of Redis.")
    allow_eviction: bool = Field(
        False,
        description="Start even if the server's maxmemory-policy may evict keys, and so lose a model.",
    )
    memory_share_limit: float = Field(
        0.85, gt=0, le=1, description="Refuse new examples above this share of the server's maxmemory."
    )

    @property
    def embedded(self) -> bool:
        """Return whether the data lives in the embedded server rather than at `redis_url`."""
        return self.redis_url is None

    @property
    def public_redis_url(self) -> str | None:
        """`redis_url` without its password, for logs and messages."""
        if self.redis_url is None:
            return None
        return without_password(self.redis_url)

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        if value is not None:
            RedisAddress.parse(value)
        return value

    @model_validator(mode="after")
    def _certificates_fit(self) -> Self:
        if (self.redis_client_cert is None) != (self.redis_client_key is None):
            raise ValueError("redis_client_cert and redis_client_key belong together: set both or neither")
        if self.redis_ca_cert is not None and not (self.redis_url or "").startswith("rediss"):
            raise ValueError("redis_ca_cert needs a redis_url that starts with rediss")
        return self


class EmbeddedServerSettings(SettingsGroup):
    """The server that this service starts by itself if there is no `redis_url`."""

    topic = "Embedded server"

    data_dir: Path = Field(
        Path("data"), description="Directory of the embedded server's data and of snapshots."
    )
    appendfsync: AppendFsync = Field(
        "everysec", description="When the embedded server forces its append-only file to disk."
    )
    embedded_maxmemory_bytes: ByteSize = Field(
        ByteSize(0), ge=0, description="The embedded server's maxmemory; 0 is no limit."
    )


class LogSettings(SettingsGroup):
    """Appending to the example log."""

    topic = "Updates and the example log"

    update_timeout_seconds: Seconds = Field(
        2.0, description="Longest that /update waits for its examples to be appended and learned."
    )
    backlog_limit_examples: Count = Field(
        1_000_000, description="Refuse new examples while this many are not learned yet."
    )
    backlog_limit_bytes: ByteSize = Field(
        ByteSize(GIB),
        ge=KIB,
        description="Refuse new examples while as many bytes of them are not learned yet.",
    )
    event_id_retention_seconds: Seconds = Field(
        3600.0, description="A repeated event_id is recognised for at least this long."
    )


class FeedbackSettings(LogSettings, RedisSettings):
    """Predictions that await their labels: they are in Redis, and end in the log."""

    topic = "Late labels"

    pending_log_bytes: ByteSize = Field(
        ByteSize(16 * MIB),
        ge=0,
        description="Max memory, per process and model, for predictions that are being logged"
        ' while no request waits for them (`"wait": false`).',
    )


class LearnerSettings(SettingsGroup):
    """Reading the log, committing, and trimming what has been learned."""

    topic = "Learner"

    lease_seconds: float = Field(
        10.0,
        ge=1,
        le=3600,
        description="A learner that does not renew its lease for this long is replaced by a standby.",
    )
    learner_read_examples: Count = Field(
        2048, description="Examples that the learner reads and commits together."
    )
    commit_slots: int = Field(
        40_000,
        ge=100,
        le=1_000_000,
        description="Max slots that one commit changes; more block Redis longer.",
    )
    commits_bytes: ByteSize = Field(
        ByteSize(256 * MIB),
        ge=MIB,
        description="Size of the commits stream; a mirror further behind reloads.",
    )
    checkpoint_seconds: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="The rows that commits changed are written into the state this much later, each once;"
        " longer after a checkpoint that took long.",
    )
    log_retention_seconds: float = Field(
        3600.0, ge=0, allow_inf_nan=False, description="Keep learned examples in the log for this long."
    )
    log_retention_bytes: ByteSize = Field(
        ByteSize(GIB), ge=0, description="Trim learned examples once the log is larger than this."
    )
    followers_log_bytes: ByteSize = Field(
        ByteSize(256 * MIB),
        ge=0,
        description="Max size of the log beyond `log_retention_bytes` for challengers that have not learned"
        " it yet; one that is further behind starts again.",
    )


class SnapshotSettings(EmbeddedServerSettings, StopSettings):
    """Taking and keeping snapshots, by default in `data_dir`."""

    topic = "Snapshots"

    snapshots: str | None = Field(
        None,
        repr=False,  # its query may hold a key
        description="Directory or URL (s3://bucket/prefix) of snapshots; unset: `snapshots` in `data_dir`.",
    )
    snapshot_seconds: float = Field(
        900.0,
        ge=0,
        allow_inf_nan=False,
        description="Interval between snapshots of a model that learns; 0 is never.",
    )
    snapshot_examples: int = Field(
        0, ge=0, description="Also take a snapshot after this many examples; 0 is never."
    )
    log_archive_seconds: float = Field(
        0,
        ge=0,
        allow_inf_nan=False,
        description="Keep what leaves the log in the snapshot store for this long; 0 is not at all.",
    )
    start_from_snapshot: bool = Field(
        False,
        description="Start from a model's newest snapshot and the log since, not from its state in Redis.",
    )
    snapshots_kept: Count = Field(
        24, description="Snapshots kept of each model; tagged ones are kept in addition."
    )

    @property
    def snapshot_store(self) -> str:
        """The place of snapshots: a path or a URL."""
        return str(self.data_dir / "snapshots") if self.snapshots is None else self.snapshots


class ModelSettings(SettingsGroup):
    """Mirrors, and the model `default`."""

    topic = "Mirrors and models"

    stale_after_seconds: Seconds = Field(
        5.0, description="A mirror that has not heard from Redis for this long counts as stale."
    )
    default_model: FilePath | None = Field(
        None,
        description="JSON file with the configuration of the model `default`, used when it is first created.",
    )
    allow_new_default: bool = Field(
        False,
        description="Create the model `default`, untrained, even if Redis seems to have lost it.",
    )
    feature_names: bool = Field(
        True,
        description="Store the names of each model's 10,000 most seen features in Redis, for people; if not,"
        " they are deleted, and only hashes are stored.",
    )


class LimitSettings(SettingsGroup):
    """Limits of one request."""

    topic = "Limits of a request"

    max_body_bytes: ByteSize = Field(ByteSize(MIB), ge=KIB, description="Largest request body.")
    max_update_body_bytes: ByteSize = Field(
        ByteSize(16 * MIB), ge=KIB, description="Largest request body of an update."
    )
    max_instances: Count = Field(1000, description="Max instances in one predict request.")
    max_examples: Count = Field(10_000, description="Max examples in one update request.")
    max_features: int = Field(
        1024, ge=1, le=1 << 20, description="Max features of one example, crosses included."
    )
    max_name_bytes: int = Field(256, ge=1, le=65535, description="Longest feature name, in bytes of UTF-8.")
    max_value: float = Field(
        1e6,
        gt=0,
        le=1e9,
        description="Largest magnitude of a feature's value; not of numbers that become buckets.",
    )
    max_weight: float = Field(1e6, gt=0, le=1e9, description="Largest importance weight of an example.")


class ServerSettings(StopSettings, ListeningSettings):
    """The HTTP server."""


class LearningSettings(SnapshotSettings, LearnerSettings, LogSettings, EmbeddedServerSettings, StopSettings):
    """A learner with its snapshots; its sweeper appends to the log."""
