"""What is still under way for a model when it is deleted."""

from __future__ import annotations

import pytest

from service.errors import StateUnavailable
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until


async def test_who_still_has_a_deleted_model_opens_nothing_for_it(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(fresh_valkey)) as system:
        model = await system.model()
        await system.models.delete(model.name)
        await until(lambda: not system.models.opened())

        def refused() -> bool:
            try:
                system.feedback.of(model)
            except StateUnavailable:
                return True
            return False

        await until(refused)
        with pytest.raises(StateUnavailable, match="deleted"):
            await system.update(model, 1)
