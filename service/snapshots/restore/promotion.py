"""Promotion of a challenger: it and its champion exchange states and configurations, while requests go on.

The names stay, and with them the log, the event ids and the pending predictions: so no update is lost or
learned twice, and labels of earlier predictions are learned by the model that is there then. First the
champion is restored to the challenger's state, with the log since; one script switches, and notes the
promotion. Then the learner of the challenger gives it what the champion was, from the snapshot taken of it.
If it dies in between, its successor finds the note; until then both are the same model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.errors import ChallengerRefused, RestoreConflict
from service.models.aliases import Aliases
from service.models.bulk_load import check_memory
from service.models.config.model import ModelConfig, checked_config, config_at_creation
from service.models.promotions import Promotion, newest_promotion
from service.models.registry import Models
from service.models.replica import ModelGone, Replica, gone_is_unknown, read_meta
from service.snapshots.restore.beginning import begin_again, beginning_of, champion_meta, digest_at
from service.snapshots.restore.restore import Restoration, RestorePlan, revision_followed, run, save
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import config_of
from service.snapshots.take.capture import Capture, capture_stored
from service.storage.channel import Channel
from service.storage.records import Meta, ModelKeys
from service.storage.scripts.models import LogPoint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Promoted:
    """A promotion. `model`: the champion's name; `replayed`: examples that the promoted state learned before
    the switch; `revision`: of the model after it, empty if it was not read.
    """

    model: str
    promotion: Promotion
    replayed: int
    seconds: float
    revision: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"promotion": self.promotion.to_json()}


async def promote_model(
    models: Models, aliases: Aliases, store: SnapshotStore, challenger: str, number: int | None, reason: str
) -> Promoted:
    """Promote a challenger, as `promote` does, and wait until this process predicts from the new state.

    Raises ServiceError.
    """
    await aliases.refuse(challenger)
    async with models.channel() as channel:
        promoted = await promote(channel, store, challenger, number, reason)
        return replace(promoted, revision=await revision_followed(models, channel, promoted.model))


async def promote(
    channel: Channel, store: SnapshotStore, challenger: str, number: int | None, reason: str
) -> Promoted:
    """Give the champion of `challenger` its state and configuration.

    `number`: that the promotion is to have; if the champion has had it, of this challenger, nothing happens,
    so that the call can be repeated. None: the next one.

    Raises ChallengerRefused, UnknownModel, and what `restore` raises; the champion is then unchanged.
    """
    with gone_is_unknown():
        follows = (await read_meta(channel, challenger)).follows
    if follows is None:
        raise ChallengerRefused(
            f"Model {challenger!r} is no challenger: only one that follows another model can take its place."
        )
    champion = follows.keys
    meta = await champion_meta(channel, champion)
    last = await newest_promotion(channel, champion)
    if last and (number, challenger) == (last.number, last.challenger):
        return Promoted(champion.model, last, 0, 0.0)
    following = (last.number if last else 0) + 1
    if number not in (None, following):
        raise ChallengerRefused(f"The next promotion has number {following}, not {number}.")
    if last and await _is_open(channel, last):
        raise RestoreConflict(
            f"Challenger {last.challenger!r} has not yet got the state of the former champion: its learner"
            " does that within a second. Try again."
        )
    with gone_is_unknown():
        copied = await capture_stored(channel, challenger)
        await _check_position(channel, champion, copied)
    return await _promote(channel, store, champion, meta, copied, following, reason)


async def _promote(
    channel: Channel,
    store: SnapshotStore,
    champion: ModelKeys,
    meta: Meta,
    copied: Capture,
    number: int,
    reason: str,
) -> Promoted:
    """`meta`: of the champion; `copied`: the challenger. What would be in vain is refused before anything is
    saved: retries would push other snapshots out of the store.
    """
    started = time.monotonic()
    snapshot = await asyncio.to_thread(copied.snapshot, f"promotion of {copied.keys.model}")
    await check_memory(channel, snapshot.header.slots, snapshot.header.experts)
    entry = await asyncio.to_thread(store.of(champion.model).write, snapshot)
    archive = await asyncio.to_thread(store.log_archive, champion.model, champion.incarnation)
    plan = RestorePlan(champion.model, entry.id, replay_log=True, may_create=False)
    config = promoted_config(config_at_creation(champion.model, meta), copied.config)
    restoration = Restoration(plan, entry, snapshot, meta, config)
    try:
        await restoration.replay(channel, archive).check_reaches_back()
        before = await save(channel, store, champion.model, entry)
        promotion = Promotion(
            number=number,
            challenger=copied.keys.model,
            incarnation=copied.keys.incarnation,
            generation=copied.generation,
            snapshot=entry.id,
            before=before or "",
            t=copied.t,
            reason=reason,
            milliseconds=channel.clock.milliseconds(),
        )
        replay = await run(channel, archive, replace(restoration, promotion=promotion.packed()))
    except ModelGone:
        raise RestoreConflict(f"Model {champion.model!r} was deleted meanwhile.") from None
    seconds = time.monotonic() - started
    log.warning(
        "challenger %s is promoted to %s (t = %d, %d examples replayed, %.1f s; before: snapshot %s): %s",
        *(copied.keys.model, champion.model, replay.state.t, replay.examples, seconds, before, reason),
    )
    return Promoted(champion.model, promotion, replay.examples, seconds)


def promoted_config(champion: ModelConfig, challenger: ModelConfig) -> ModelConfig:
    """The champion's configuration with what learning depends on from the challenger. How requests are read,
    evaluation, feedback and snapshots belong to the name, and stay.
    """
    hashing = replace(challenger.hashing, strict=champion.hashing.strict)
    return replace(champion, hyper=challenger.hyper, hashing=hashing)


async def exchange(channel: Channel, store: SnapshotStore, challenger: Replica, promotion: Promotion) -> None:
    """Give a challenger that was promoted the state and configuration that its champion had before.

    Raises UnknownSnapshot if the snapshot of it is not there any more, and what `begin_again` raises.
    """
    champion = challenger.log_keys
    catalogue = await asyncio.to_thread(store.of, champion.model)
    entry = await asyncio.to_thread(catalogue.find, promotion.before)
    snapshot = await asyncio.to_thread(catalogue.load, entry)
    stored = checked_config(challenger.keys.model, await read_meta(channel, challenger.keys.model))
    config = promoted_config(stored, config_of(snapshot.header))
    begins = await beginning_of(channel, store, challenger.keys.model, champion, snapshot)
    await begin_again(channel, challenger, config, begins)
    log.info("challenger %s goes on as what %s was before", challenger.keys.model, champion.model)


async def _check_position(channel: Channel, champion: ModelKeys, copied: Capture) -> None:
    """Check that the champion's log still has what the challenger learned: its server may have lost the end.

    Raises RestoreConflict, ModelGone.
    """
    own = await read_meta(channel, copied.keys.model)
    held = await digest_at(channel, champion, LogPoint(own.applied, own.applied_number))
    if own.generation != copied.generation or (held and own.learned_digest not in ("", held)):
        raise RestoreConflict(f"Challenger {copied.keys.model!r} starts again. Try again later.")


async def _is_open(channel: Channel, last: Promotion) -> bool:
    """Return whether the challenger of the last promotion still has the state that was promoted."""
    try:
        meta = await read_meta(channel, last.challenger)
    except ModelGone:
        return False
    return (meta.incarnation, meta.generation) == (last.incarnation, last.generation)
