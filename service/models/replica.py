"""A copy of one model at one commit: loading it and applying further commits."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from model_core.learning.state import ModelState
from service.errors import IncompleteState, UnknownModel
from service.models.config.model import ModelConfig, checked_config
from service.storage.channel import Channel
from service.storage.records import (
    LOG_START,
    Checkpoint,
    Commit,
    Follows,
    LogId,
    Meta,
    ModelKeys,
    folded_rows,
    mapping_of,
    mark_of,
    meta_key,
    revision,
    rows_of,
    stored_rows,
)
from service.storage.scripts.models import read_head
from service.storage.streams import Entry, read_stream

COMMITS_A_READ = 16
FIELDS_A_SCAN = 5_000


class ModelGone(Exception):
    """The model, or the incarnation of it that was copied, no longer exists."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model


@contextlib.contextmanager
def gone_is_unknown() -> Iterator[None]:
    """Raises UnknownModel in place of ModelGone, for callers that named the model."""
    try:
        yield
    except ModelGone as gone:
        raise UnknownModel(gone.model) from None


class FellBehind(Exception):
    """The next commit does not follow on the replica, which has to be loaded again."""


@dataclass(slots=True)
class Replica:
    """Arrays (z, n) of one incarnation of a model, as of the commit that `token` names.

    `position` is the commit's place in the commits stream; `applied_number` the dense number of the next
    log example; `evaluated`, `feedback` and `follows`: see Meta.
    """

    keys: ModelKeys
    config: ModelConfig
    state: ModelState
    generation: int
    token: bytes
    commit: int
    skipped: int
    applied: LogId
    applied_number: int
    position: LogId
    evaluated: LogId = LOG_START
    feedback: bytes = b""
    follows: Follows | None = None

    @property
    def log_keys(self) -> ModelKeys:
        """Those of the model whose log it learns."""
        return self.follows.keys if self.follows else self.keys

    @property
    def revision(self) -> str:
        return revision(self.keys.incarnation, self.generation, self.commit, mark_of(self.token))

    def apply(self, position: LogId, commit: Commit) -> None:
        """Applies the rows of the next commit. Raises FellBehind if it is not the next."""
        if commit.previous_token != self.token or commit.reset:
            raise FellBehind
        self.state.forget_until(commit.discount)
        self.state.apply_rows(commit.changed["slot"], rows_of(commit.changed), commit.dropped)
        self.state.t = commit.t
        self.moved_to(position, commit)

    def moved_to(self, position: LogId, commit: Commit) -> None:
        """Applies a commit except for its state: for the learner, whose arrays have it already, or more."""
        self.token, self.commit, self.skipped = commit.token, commit.number, commit.skipped_total
        self.applied, self.applied_number = commit.applied, commit.applied_number
        self.position = position


Shortcut = Callable[[Replica, Channel], Awaitable[bool]]
"""Fills the arrays of an empty replica from another source; returns False if it cannot."""


async def load_replica(channel: Channel, model: str, shortcut: Shortcut | None = None) -> Replica:
    """Copies the whole state: reads the position, scans the rows, lays the commits since the last checkpoint
    over them, then applies the commits since that position.

    A server that went back to an earlier state meanwhile may have shown rows that no commit has: from the
    start, if the connection is another one at the end.

    Raises ModelGone, IncompleteState, ContractMismatch, and what Channel.call raises.
    """
    while True:
        incarnation = (await read_meta(channel, model)).incarnation
        connection = channel.kept
        replica, checkpoint = await _start(channel, ModelKeys(model, incarnation))
        try:
            if shortcut is None or not await shortcut(replica, channel):
                await _scan_into(replica, channel)
                await _lay_over(replica, channel, checkpoint, connection)
            target = await token_now(channel, replica.keys)
            while replica.token != target:
                commits = await read_commits(channel, replica)
                if not commits:
                    raise FellBehind
                for position, commit in commits:
                    replica.apply(position, commit)
                    if replica.token == target:
                        break
        except FellBehind:  # trimmed meanwhile, restored or rolled back: from the start
            continue
        if channel.kept == connection:
            return replica


async def _lay_over(
    replica: Replica, channel: Channel, checkpoint: Checkpoint | None, connection: int
) -> None:
    """The rows that commits have changed since the checkpoint. Raises FellBehind, IncompleteState."""
    try:
        commits = await commits_since(channel, replica, checkpoint)
    except FellBehind:
        now = (await read_meta(channel, replica.keys.model)).checkpoint
        if now != checkpoint or channel.kept != connection:
            raise
        raise IncompleteState(replica.keys.model) from None
    for _, commit in commits:
        rows = folded_rows(commit.changed, replica.state.discount)
        replica.state.apply_rows(commit.changed["slot"], rows, commit.dropped)


async def commits_since(
    channel: Channel, replica: Replica, checkpoint: Checkpoint | None
) -> list[tuple[LogId, Commit]]:
    """The commits that lead from a checkpoint to the replica, in order; none from None.

    Raises FellBehind if some are not there any more, since another checkpoint was completed, or the model was
    restored.
    """
    token, position = replica.token, checkpoint.position if checkpoint else replica.position
    found: list[tuple[LogId, Commit]] = []
    while position < replica.position:
        commits = parsed(await read_stream(channel, replica.keys.commits, position, COMMITS_A_READ))
        if not commits:
            break
        found += commits
        position = commits[-1][0]
    # Backwards: a commit that none follows was run by half, and is not part of the model (commit.lua).
    leading: list[tuple[LogId, Commit]] = []
    for place, commit in reversed(found):
        if commit.token == token and not commit.reset:
            leading.append((place, commit))
            token = commit.previous_token
    if checkpoint and token != checkpoint.token:
        raise FellBehind
    return leading[::-1]


async def read_commits(channel: Channel, replica: Replica) -> list[tuple[LogId, Commit]]:
    """The commits after the replica's position, at most COMMITS_A_READ."""
    return parsed(await read_stream(channel, replica.keys.commits, replica.position, COMMITS_A_READ))


def parsed(entries: Iterable[Entry]) -> list[tuple[LogId, Commit]]:
    """The commits in entries of the commits stream, each with its position."""
    return [(LogId.parse(entry_id), Commit.parse(fields)) for entry_id, fields in entries]


async def token_now(channel: Channel, keys: ModelKeys) -> bytes:
    """The server's token. Raises ModelGone if the incarnation no longer exists."""
    return (await _now(channel, keys))[0]


async def refresh_feedback(channel: Channel, replica: Replica) -> bytes:
    """The server's token. The replica takes over the feedback settings if they have changed.

    Raises ModelGone, ContractMismatch, and what Channel.call raises.
    """
    token, feedback = await _now(channel, replica.keys)
    if feedback != replica.feedback:
        meta = await read_meta(channel, replica.keys.model)
        if meta.incarnation != replica.keys.incarnation:
            raise ModelGone(replica.keys.model)
        in_force = checked_config(replica.keys.model, meta).feedback
        replica.feedback, replica.config = meta.feedback, replace(replica.config, feedback=in_force)
    return token


async def _now(channel: Channel, keys: ModelKeys) -> tuple[bytes, bytes]:
    incarnation, token, feedback = await channel.call("HMGET", keys.meta, "incarnation", "token", "feedback")
    if incarnation is None or incarnation.decode() != keys.incarnation:
        raise ModelGone(keys.model)
    return token, feedback or b""


async def read_meta(channel: Channel, model: str) -> Meta:
    """Raises ModelGone."""
    return _meta(model, await channel.call("HGETALL", meta_key(model)))


async def load_head(channel: Channel, model: str) -> Replica:
    """The replica of the last commit without its rows: what is known of a model beside its state.

    Raises ModelGone, ContractMismatch, and what Channel.call raises.
    """
    incarnation = (await read_meta(channel, model)).incarnation
    return (await _start(channel, ModelKeys(model, incarnation)))[0]


async def _start(channel: Channel, keys: ModelKeys) -> tuple[Replica, Checkpoint | None]:
    """A replica without rows, and the checkpoint of the state that it is to have."""
    fields, position = await read_head(channel, keys)
    meta = _meta(keys.model, fields)
    if meta.incarnation != keys.incarnation:
        raise ModelGone(keys.model)
    config = checked_config(keys.model, meta)
    state = config.empty_state()
    state.t, state.discount = meta.t, meta.discount
    replica = Replica(
        keys,
        config,
        state,
        meta.generation,
        meta.token,
        meta.commit,
        meta.skipped,
        meta.applied,
        meta.applied_number,
        position,
        meta.evaluated,
        feedback=meta.feedback,
        follows=meta.follows,
    )
    return replica, meta.checkpoint


async def _scan_into(replica: Replica, channel: Channel) -> None:
    key, cursor = replica.keys.state(replica.generation), b"0"
    while True:
        cursor, flat = await channel.call("HSCAN", key, cursor, "COUNT", FIELDS_A_SCAN)
        slots = np.frombuffer(b"".join(flat[::2]), dtype="<u4")
        replica.state.apply_rows(slots, stored_rows(flat[1::2], replica.state.discount))
        if cursor == b"0":
            return


def _meta(model: str, flat: list[bytes]) -> Meta:
    if not flat:
        raise ModelGone(model)
    return Meta.parse(mapping_of(flat))
