"""/livez, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse

from service.api.openapi import Responses, problems
from service.api.schemas import Liveness, Readiness
from service.api.security.access import ANYBODY, PUBLIC
from service.api.services import Services
from service.settings.groups import ModelSettings
from service.telemetry.metrics import Metrics


def add_health_routes(app: FastAPI, services: Services, settings: ModelSettings, metrics: Metrics) -> None:
    metrics.refresh_with(functools.partial(refresh_health, services, settings, metrics))

    async def livez() -> Liveness:
        """Check that the process answers.

        This does not depend on Redis, so that an outage of Redis restarts no process.
        """
        return Liveness(status="alive")

    async def readyz(
        response: Response,
        purpose: Annotated[
            Literal["predict", "update"], Query(alias="for", description="What is to be possible.")
        ] = "predict",
    ) -> Readiness:
        """Check that the process can serve.

        200 while predictions can be answered, from a stale copy too; `?for=update` while updates can.
        """
        report = readiness(services, settings)
        wanted = report.predict if purpose == "predict" else report.update
        if wanted == "unavailable":
            response.status_code = 503
        return report

    @app.get(
        "/metrics",
        tags=["health"],
        operation_id="metrics",
        response_class=PlainTextResponse,
        **ANYBODY.declared,
    )
    async def prometheus() -> Response:
        """Report metrics.

        In the text format of Prometheus; of all API processes if several share a port.
        """
        metrics.refresh()
        if metrics.shared is None:  # in a thread it would wait for the interpreter longer than it works
            text = metrics.render()
        else:
            text = await asyncio.to_thread(metrics.render)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    replies: Responses = problems(_422="The request is not valid.") | {
        503: {"model": Readiness, "description": "Not ready."}
    }
    app.get("/livez", tags=["health"], **PUBLIC.declared)(livez)
    app.get("/readyz", tags=["health"], responses=replies, **PUBLIC.declared)(readyz)
    for path, handler in (("/livez", livez), ("/readyz", readyz)):  # some load balancers ask with HEAD
        app.head(path, include_in_schema=False, **PUBLIC.declared)(handler)


def readiness(services: Services, settings: ModelSettings) -> Readiness:
    """The oldest mirror counts. Without a loaded one, a model that Redis can be asked for counts as fresh."""
    health, models = services.health, services.models
    age = max((model.mirror.age_seconds for model in models.opened()), default=None)
    has_model = models.exist if age is None else True
    reasons = []
    if not services.phase.prepared:
        reasons.append(health.unfit or services.phase.obstacle)
    elif not has_model and not models.lost.reports:
        reasons.append("There is no model: create one with PUT /models/{name}, or restore a snapshot.")
    reasons.extend(models.lost.reports.values())
    if not health.up:
        reasons.append("Redis does not answer.")
    elif health.refusal:
        reasons.append(f"Redis refuses writes: {health.refusal}")
    if health.shedding:
        reasons.append("Redis is nearly full; examples are refused.")
    if health.connection_limit:
        reasons.append(health.connection_limit)
    if health.may_evict:
        reasons.append(f"Redis may evict models (maxmemory-policy {health.policy}).")
    if health.persists is False:
        reasons.append("Redis persists nothing; a restart of it loses every model.")
    if services.phase.stopping:
        reasons.append("This process is stopping.")
    updates = health.up and not health.refusal and not health.shedding and not health.connection_limit
    serving = services.phase.prepared and not services.phase.stopping and has_model
    fresh = age is None or age <= settings.stale_after_seconds
    return Readiness(
        predict=("fresh" if fresh else "stale")
        if serving and (age is not None or health.up)
        else "unavailable",
        mirror_age_seconds=age,
        update="available" if serving and updates else "unavailable",
        reasons=reasons,
    )


def refresh_health(services: Services, settings: ModelSettings, metrics: Metrics) -> None:
    """Sets what is not counted but read: ages, sizes, and what Redis says of itself."""
    health = services.health
    report = readiness(services, settings)
    metrics.ready.labels("predict").set(report.predict != "unavailable")
    metrics.ready.labels("update").set(report.update != "unavailable")
    metrics.redis_up.set(health.up)
    metrics.redis_memory_used_bytes.set(health.used_bytes)
    metrics.redis_memory_limit_bytes.set(health.limit_bytes)
    metrics.redis_policy_ok.set(not health.may_evict)
    metrics.redis_persists.set(health.persists is not False)
    metrics.redis_persistence_ok.set(health.persistence_ok)
    metrics.redis_shedding.set(health.shedding)
    metrics.refused_connections(health.connections_refused)
    opened = services.models.opened()
    metrics.retain_mirrors(model.name for model in opened)
    for model in opened:
        mirror = model.mirror
        metrics.mirrored(
            model.name,
            age_seconds=mirror.age_seconds,
            rounds=mirror.replica.state.t,
            loads=mirror.loads,
            mixed_names=len(model.encoder.mixed_names),
            unmet_names=len(model.unmet_names),
        )
