"""Redis memory per feature of a million: of a model and of mixtures, and in the system's Redis."""

import asyncio
import shutil
from typing import NamedTuple

from redis import Redis

from bench.experts import mixture
from bench.filled_model import CONFIG, FEATURES, created_model, fill
from bench.processes import redis_server
from bench.result import Options, Result, Target
from service.models.config.model import ModelConfig
from service.storage.embedded_binary import binary_path


class Memory(NamedTuple):
    version: str
    bytes_per_feature: float


def measure(options: Options) -> list[Result]:  # noqa: ARG001  memory does not vary from round to round
    bundled = _memory(str(binary_path()))
    results = [
        Result(
            "state-memory",
            f"bundled server ({bundled.version}), memory per feature of 1,000,000",
            "bytes",
            (bundled.bytes_per_feature,),
            target=Target("<=", 70),
        )
    ]
    for experts, target in ((4, Target("<=", 120)), (8, None)):
        memory = _memory(str(binary_path()), ModelConfig(mixture(experts)))
        what = f"bundled server, a mixture of {experts} experts"
        results.append(Result("state-memory", what, "bytes", (memory.bytes_per_feature,), target=target))
    if system := shutil.which("redis-server"):
        memory = _memory(system)
        what = f"the system's server ({memory.version}), memory per feature of 1,000,000"
        results.append(Result("state-memory-redis", what, "bytes", (memory.bytes_per_feature,)))
    return results


def _memory(executable: str, config: ModelConfig = CONFIG) -> Memory:
    with redis_server(executable) as url, Redis.from_url(url) as client:
        before = client.info()
        asyncio.run(_fill(url, config))
        after = client.info()
    name = "Valkey" if "valkey_version" in after else "Redis"
    version = after.get("valkey_version") or after["redis_version"]
    return Memory(f"{name} {version}", (_dataset(after) - _dataset(before)) / FEATURES)


async def _fill(url: str, config: ModelConfig) -> None:
    async with created_model(url, config) as client:
        await fill(client)


def _dataset(info: dict[str, int]) -> int:
    # The buffers of clients and of the append-only file come and go.
    return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"]
