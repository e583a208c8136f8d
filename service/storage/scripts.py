"""The atomic verbs that run in Redis: one Lua file each, and the function that calls it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError

from service.storage.channel import Channel
from service.storage.keys import WAITING_SHARDS


class Script:
    """One Lua file of `service/lua`, run by its digest and sent whole only to a server that lacks it.

    `after`: further files, with what several scripts share, that come before it.
    """

    def __init__(self, name: str, keys: int, after: Sequence[str] = ()) -> None:
        self.name = name
        files = resources.files(__package__).joinpath("lua")
        self.text = b"".join(files.joinpath(f"{part}.lua").read_bytes() for part in (*after, name))
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        self._keys = keys

    async def __call__(self, channel: Channel, *keys_then_arguments: str | bytes | int | float) -> Any:
        try:
            return await channel.call("EVALSHA", self.digest, self._keys, *keys_then_arguments)
        except NoScriptError:  # it did not run
            return await channel.call("EVAL", self.text, self._keys, *keys_then_arguments)


_CLOSING = ("log_writer", "waiting", "closing")

read_head = Script("head", keys=2)
read_lag = Script("log_lag", keys=2)
append_examples = Script("append", keys=3, after=("log_writer", "slice_names"))
note_slices = Script("note_slices", keys=2, after=("slice_names",))
lost_entries = Script("lost_entries", keys=2, after=("log_ids",))
commit_learned = Script("commit", keys=5, after=("log_ids", "set_slots"))
read_evaluation = Script("evaluation", keys=3)
read_since = Script("since", keys=3)
store_figures = Script("figures", keys=2)
create_model = Script("create_model", keys=1)
delete_model = Script("delete_model", keys=7 + WAITING_SHARDS)
log_predictions = Script("log_predictions", keys=5, after=("waiting",))
expose_predictions = Script("expose", keys=5, after=_CLOSING)
label_predictions = Script("label", keys=5, after=_CLOSING)
sweep_predictions = Script("sweep", keys=5, after=_CLOSING)
swap_feedback = Script("change_feedback", keys=2)
count_unknown = Script("count_unknown", keys=2)
new_generation = Script("new_generation", keys=1)
fill_state = Script("fill_state", keys=1, after=("set_slots",))
switch_generation = Script("switch_generation", keys=5)
take_lease = Script("lease", keys=1)
claim_alias = Script("claim_alias", keys=2)
set_alias = Script("set_alias", keys=1)
remember_former = Script("remember_former", keys=1)
release_lease = Script("release_lease", keys=1)
push = Script("push", keys=1)
switch_to_restored = Script("restore", keys=5, after=("log_ids",))
create_model_filled = Script("create_filled", keys=2)
