"""With which state a rebuild begins, so that the log goes on from there without a gap."""

from __future__ import annotations

from dataclasses import dataclass

from model_core.state import ModelState
from service.errors import CommandFailure
from service.redis_client import Channel
from service.redis_keys import LOG_START, LogEntry, LogId
from service.replica import Replica
from service.snapshots.base import Base, read_base
from service.snapshots.catalogue import Catalogue, Entry
from service.snapshots.errors import UnknownSnapshot
from service.snapshots.fitting import is_of_state, restored_config

NOTHING = "nothing"


@dataclass(frozen=True)
class Start:
    """What a rebuild begins with: a state, and after which entry and how many examples the log goes on."""

    what: str
    state: ModelState
    applied: LogId
    number: int


async def start_of(channel: Channel, catalogue: Catalogue, replica: Replica, wanted: str | None) -> Start:
    """As rebuild says it of `wanted`."""
    if wanted == NOTHING:
        return _nothing(replica)
    if wanted is not None:
        return _from_snapshot(catalogue, catalogue.find(wanted), replica)
    base = await read_base(channel, replica.keys.meta)
    in_log = await _first_in_log(channel, replica)
    first = catalogue.log_archive(replica.keys.incarnation).reaches_back_from(in_log)
    start = _from_base(catalogue, replica, base, first) or _from_earliest(catalogue, replica, first)
    if start is None:
        raise CommandFailure(
            f"nothing to rebuild {catalogue.model} from: its log begins at example {first}, and the snapshot"
            " store has no snapshot of this state since; is it that of the service (FTRL_DATA_DIR or"
            " FTRL_SNAPSHOTS)? If so, take one with `ftrl snapshot create`"
        )
    return start


def _from_base(catalogue: Catalogue, replica: Replica, base: Base, first: int) -> Start | None:
    """What the state itself began with, where the log reaches back to that and it is there."""
    if base.snapshot == "" or first > base.number:
        return None
    if base.snapshot is None:
        return _nothing(replica)
    try:
        entry = catalogue.find(base.snapshot)
    except UnknownSnapshot:
        return None
    return _from_snapshot(catalogue, entry, replica, base)


def _from_earliest(catalogue: Catalogue, replica: Replica, first: int) -> Start | None:
    """The earliest snapshot of the state that the log reaches back to."""
    for entry in catalogue.entries():
        header = catalogue.header(entry)
        if is_of_state(header, replica) and first <= header.applied_number <= replica.applied_number:
            return _from_snapshot(catalogue, entry, replica)
    return None


def _nothing(replica: Replica) -> Start:
    return Start(NOTHING, ModelState.empty(replica.config.hashing.bits), LOG_START, 0)


def _from_snapshot(catalogue: Catalogue, entry: Entry, replica: Replica, base: Base | None = None) -> Start:
    snapshot = catalogue.load(entry)
    restored_config(snapshot.header, replica.config, None)
    if base is None:
        applied, number = LogId.parse(snapshot.header.applied), snapshot.header.applied_number
    else:
        applied, number = base.applied, base.number
    return Start(f"snapshot {entry.id}", snapshot.state(), applied, number)


async def _first_in_log(channel: Channel, replica: Replica) -> int:
    """The dense number of the first example in the log; of the next one where it is empty."""
    found = await channel.call("XRANGE", replica.keys.log, "-", "+", "COUNT", 1)
    if not found:
        return replica.applied_number
    return LogEntry.parse(*found[0]).first_number or 0
