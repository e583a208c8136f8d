"""What /models/{name}/snapshots answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class SnapshotDescription(BaseModel):
    id: str = Field(description="Sorts by the order of writing.")
    model: str
    tags: list[str]
    time: str = Field(description="When the state was copied; RFC 3339, UTC.")
    reason: str = Field(description="Why it was taken: `schedule`, `shutdown`, `request`, ...")
    revision: str
    applied: str = Field(description="The last log entry that it has learned.")
    applied_number: int = Field(description="Examples of the log that it has learned.")
    t: int = Field(description="Completed rounds.")
    features_seen: int
    nonzero: int = Field(description="Features whose weight is not 0.")
    density: float
    bytes: int = Field(description="Size of its file.")
    fingerprint: str = Field(description="Of the hash contract.")
    config: dict[str, Any] = Field(description="The model's configuration at that time.")
    evaluation: dict[str, Any] | None = Field(description="The figures at that time, where there were some.")


class SnapshotList(BaseModel):
    snapshots: list[SnapshotDescription] = Field(description="Oldest first.")
    damaged: list[str] = Field(description="What is wrong with files that cannot be read.")


class RestoreRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    snapshot: str = Field(
        description="Its id, a tag (the newest that has it), or `newest`: but for what restores saved.",
        min_length=1,
        max_length=256,
    )
    replay_log: bool = Field(
        description="Whether what came after the snapshot is learned again; else learning goes on from now."
    )
    hyper: dict[str, Any] | None = Field(
        None, description="Hyperparameters of the same family, with which the log is learned again."
    )


class RestoreReply(BaseModel):
    model: str
    snapshot: str
    before: str | None = Field(description="The snapshot of what was replaced; null: there was no model.")
    t: int = Field(description="Completed rounds at the switch.")
    replayed: int = Field(description="Examples that were learned again before the switch.")
    seconds: float
