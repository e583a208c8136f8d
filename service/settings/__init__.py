"""All settings of the service: every group, and what concerns several of them."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Self

from pydantic import SecretStr, model_validator

from service.settings.groups import (
    EmbeddedServerSettings,
    FeedbackSettings,
    LearnerSettings,
    LearningSettings,
    LimitSettings,
    ListeningSettings,
    LoggingSettings,
    LogSettings,
    ModelSettings,
    RedisSettings,
    SecuritySettings,
    ServerSettings,
    SettingsGroup,
    SnapshotSettings,
    StopSettings,
)


class Settings(
    LimitSettings,
    ModelSettings,
    LearningSettings,
    SnapshotSettings,
    LearnerSettings,
    FeedbackSettings,
    LogSettings,
    EmbeddedServerSettings,
    RedisSettings,
    LoggingSettings,
    SecuritySettings,
    ServerSettings,
    StopSettings,
    ListeningSettings,
):
    """All settings. An explicit value wins over the environment, the environment over the default.

    Byte sizes are integers or texts such as `64MiB`. An environment variable that is empty counts as unset.
    Raises pydantic.ValidationError, which names the field, on any value out of bounds. Help and documentation
    list the groups from the last base to the first.
    """

    @model_validator(mode="after")
    def _lease_is_renewed_in_time(self) -> Self:
        if self.lease_seconds <= 2 * self.redis_timeout_seconds:
            raise ValueError(
                "lease_seconds must be over twice redis_timeout_seconds, or no renewal fits into it"
            )
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        """A port of 0 is any free one."""
        if self.port and self.port == self.health_port:
            raise ValueError("health_port must not be port: leave it unset to have both on one port")
        return self

    @property
    def data_place(self) -> str:
        """The place of the data in a sentence: `in` a directory or `at` an address."""
        return f"in {self.data_dir.absolute()}" if self.embedded else f"at {self.public_redis_url}"

    @property
    def snapshot_place(self) -> str:
        """The place of snapshots, for messages: an absolute path, or a URL without its query, which may hold
        a key.
        """
        place = self.snapshot_store.partition("?")[0]
        return place if "://" in place else str(Path(place).absolute())

    @property
    def anonymous_abroad(self) -> bool:
        """Return whether any client that reaches this machine could call the service without a token."""
        return self.tokens_file is None and not self.allow_anonymous and not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Any other name counts as reachable from elsewhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def topic_of(setting: str) -> str:
    """The title of the group in which a setting is declared."""
    return next(
        group.topic
        for group in Settings.__mro__
        if issubclass(group, SettingsGroup) and setting in group.__annotations__
    )


def environment(settings: Settings) -> dict[str, str]:
    """The FTRL_ variables from which a child process reads the same settings (flags would show in `ps`)."""
    values = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if value is not None:
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            values[f"FTRL_{name.upper()}"] = text
    return values
