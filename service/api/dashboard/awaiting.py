"""Pending predictions, as the dashboard describes them: no examples yet, so no lag includes them."""

from __future__ import annotations

from typing import NamedTuple

from service.storage.channel import Channel
from service.storage.records import WAITING_IMPRESSIONS, WAITING_UNSHOWN, ModelKeys


class Awaiting(NamedTuple):
    """`impressions`: shown, until their windows end. `unshown`: to be shown, with a label or not."""

    impressions: int = 0
    unshown: int = 0

    @property
    def sentence(self) -> str:
        """Empty if there are no pending predictions."""
        parts = []
        if self.impressions:
            windows = "its window" if self.impressions == 1 else "their windows"
            parts.append(f"{_wait(self.impressions, 'impression')} for the end of {windows}")
        if self.unshown:
            parts.append(f"{_wait(self.unshown, 'logged prediction')} to be shown")
        return f"{', '.join(parts)}." if parts else ""


async def read_awaiting(channel: Channel, keys: ModelKeys) -> Awaiting:
    """Raises what Channel.call raises."""
    numbers = await channel.call("HMGET", keys.feedback, WAITING_IMPRESSIONS, *WAITING_UNSHOWN)
    impressions, *unshown = (int(number or 0) for number in numbers)
    return Awaiting(impressions, sum(unshown))


def _wait(count: int, what: str) -> str:
    return f"1 {what} waits" if count == 1 else f"{count:,} {what}s wait"
