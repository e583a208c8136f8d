"""A model that this version does not learn: its learner has ended, and the metrics say so."""

from __future__ import annotations

from service.storage.records import meta_key
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

NOT_LED = b'ftrl_learner_active{model="clicks"} 0.0'


async def test_a_model_of_another_hash_contract_is_not_led(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        await system.model()
        await system.client.hset(meta_key("clicks"), "fingerprint", "f" * 16)
        system.learn()
        await until(lambda: NOT_LED in system.metrics.render())
        await system.models.delete("clicks")
        await until(lambda: b"ftrl_learner_active{" not in system.metrics.render())
