"""/models/{name}/log: how far a model's example log is learned, and entries of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import FastAPI, Query
from pydantic import Field

from model_core.errors import InvalidInput
from service.api.openapi import MODEL_PROBLEMS
from service.api.schemas import ModelName, Reply
from service.api.security.access import READ
from service.api.services import Services
from service.errors import CommandFailure
from service.example_log.inspect import describe_log
from service.storage.records import checked_name

MAX_ENTRIES = 1000


class LogLineReply(Reply):
    """An entry of the log, or a place where examples are missing."""

    entry: str = Field(
        description="Its id; of a gap, the id through which `ftrl log skip` leaves the gap behind."
    )
    status: Literal["examples", "gap", "unreadable"] = Field(
        description="`gap`: examples are missing here. `unreadable`: the learner stops here."
    )
    first: int | None = Field(description="Number of its first example.")
    last: int | None = Field(description="Number of its last example.")
    clicks: int | float | None = Field(description="Sum of the labels of its examples.")
    features: int | None = Field(description="Number of features of its examples together.")
    problem: str | None = Field(description="What is missing, or why it cannot be read.")


class LogReply(Reply):
    """How far the log is learned, and entries of it."""

    model: str = Field(description="The model.")
    entries: int = Field(description="Number of entries in the log, learned ones included.")
    learned_through: str = Field(description="Id of the last entry that is learned.")
    waiting: int = Field(description="Examples that are not learned yet.")
    lines: list[LogLineReply] = Field(description="In the order of the log.")


def add_log_routes(app: FastAPI, services: Services) -> None:
    @app.get("/models/{name}/log", tags=["models"], responses=MODEL_PROBLEMS, **READ.declared)
    async def get_log(
        name: ModelName,
        first: Annotated[
            str | None,
            Query(
                alias="from",
                description="First entry; by default the first that is not learned.",
                json_schema_extra={"pattern": "^[0-9]{1,18}(-[0-9]{1,18})?$"},
            ),
        ] = None,
        count: Annotated[int, Query(ge=1, le=MAX_ENTRIES, description="How many entries.")] = 20,
    ) -> LogReply:
        """Describe the example log of a model.

        How far it is learned, and entries of it; without their features, which are stored as hashes.
        """
        model = await services.aliases.named(checked_name(name))
        async with services.models.channel() as channel:
            try:
                described = await describe_log(channel, model, first, count)
            except CommandFailure as wrong:  # of no more than `from`
                raise InvalidInput(("from",), str(wrong)) from wrong
        return LogReply.model_validate(asdict(described))
