"""The flags of `ftrl consume`, and the process around the consumer: signals, health routes, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.errand import with_redis_url
from service.cli.flags import FileFlags, checked_model_name, with_settings
from service.cli.serve import listen, run_app, start_logging, stoppable, url_of
from service.errors import CommandFailure, ServiceError
from service.settings import Settings

if TYPE_CHECKING:
    from service.api.services import Services
    from service.cli.consume.consumer import ConsumePlan
    from service.cli.consume.target import Reading
    from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


@with_settings
def consume(
    settings: Settings,
    brokers: Annotated[str, typer.Option(help="Brokers to begin with: HOST:PORT,HOST:PORT.")],
    topic: Annotated[list[str], typer.Option(help="A topic of examples; may be given several times.")],
    model: Annotated[
        str, typer.Option(help="The model that learns them.", callback=checked_model_name)
    ] = "default",
    schema: Annotated[
        str | None,
        typer.Option(
            help="What the members of the messages mean: a file of JSON, which `ftrl inspect` drafts. Without"
            " it, a message is what POST /update takes: features, a label and so on.",
            metavar="FILE|NAME",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Consumers of one group share the partitions; default ftrl-MODEL.")
    ] = None,
    start: Annotated[
        Literal["earliest", "latest"],
        typer.Option(help="Where a partition begins of which the model has learned nothing yet."),
    ] = "earliest",
    on_gap: Annotated[
        Literal["stop", "earliest", "latest"],
        typer.Option(help="Where to go on if the next messages are not in the topic any more."),
    ] = "stop",
    on_error: Annotated[
        Literal["stop", "skip"], typer.Option(help="What to do at a message that is no example.")
    ] = "stop",
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(help="Send messages that are no examples to this topic, with the reason in a header."),
    ] = None,
    kafka_config: Annotated[
        Path | None,
        typer.Option(
            help="Properties of librdkafka, as of TLS and SASL: a file of lines name=value.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Learn from topics of Kafka, each message exactly once.

    The positions in the topics are stored with the examples, in the model. Runs until a signal stops it.
    """
    from service.cli.consume.broker import read_properties, require_kafka
    from service.cli.consume.consumer import ConsumePlan

    if dead_letter_topic is not None and on_error == "skip":
        raise typer.BadParameter(
            "gives a way already: leave --on-error out", param_hint="--dead-letter-topic"
        )
    if dead_letter_topic in topic:
        raise typer.BadParameter("must be another topic", param_hint="--dead-letter-topic")
    require_kafka()
    plan = ConsumePlan(
        brokers=brokers,
        topics=tuple(dict.fromkeys(topic)),
        group=group or f"ftrl-{model}",
        model=model,
        reading=_reading(schema, settings),
        properties={} if kafka_config is None else read_properties(kafka_config),
        start=start,
        on_gap=on_gap,
        on_error=on_error,
        dead_letter_topic=dead_letter_topic,
    )
    start_logging(settings)
    _run(plan, settings)


def _reading(schema: str | None, settings: Settings) -> Reading:
    """Raises typer.BadParameter."""
    from service.cli.consume.target import Reading

    flags = FileFlags(schema=schema)
    document = flags.schema_document()
    if document is not None and document.format not in (None, "records"):
        raise typer.BadParameter(
            f"{schema} is of {document.format}; messages are JSON objects: set its format to records",
            param_hint="--schema",
        )
    return Reading("jsonl" if document is None else "records", flags.options(settings), flags.contract())


def _run(plan: ConsumePlan, settings: Settings) -> None:
    """Consume until a signal. Raises CommandFailure, ServiceError."""
    from service.app import create_consumer_app

    with (
        stoppable(),
        listen(settings.host, settings.consumer_port, "--metrics-port") as listener,
        with_redis_url(settings) as found,
    ):
        work = _Work(plan, found)
        announce = partial(log.info, "the consumer's metrics are at %s/metrics", url_of(listener))
        at_once = found.model_copy(update={"drain_seconds": 0.0})  # no client awaits its replies
        run_app(create_consumer_app(found, work.running), at_once, [listener], on_start=announce)
    if work.failure is not None:
        raise work.failure


class _Work:
    """failure: what ended the consumer, and with it the process."""

    def __init__(self, plan: ConsumePlan, settings: Settings) -> None:
        self.failure: Exception | None = None
        self._plan = plan
        self._settings = settings

    @contextlib.asynccontextmanager
    async def running(self, services: Services, metrics: Metrics) -> AsyncIterator[None]:
        """Consume while the body runs; at its end, complete the step under way and leave the group."""
        from service.cli.consume.consumer import Consumer

        consumer = Consumer(self._plan, services.topology, services.health, self._settings, metrics)
        task = asyncio.create_task(consumer.run(), name="consumer")
        task.add_done_callback(self._ended)
        try:
            yield
        finally:
            consumer.stop(self._settings.shutdown_grace_seconds)
            await asyncio.wait([task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, CommandFailure):
            self.failure = failure
        elif isinstance(failure, ServiceError):
            self.failure = CommandFailure(failure.detail)
        elif failure is not None:
            log.error("the consumer failed", exc_info=failure)
            self.failure = CommandFailure(f"the consumer failed: {failure!r}")
        if failure is not None:
            os.kill(os.getpid(), signal.SIGTERM)
