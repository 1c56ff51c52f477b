"""A slow API server with a Lease, and candidates for the Lease."""

import asyncio
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from specdec.api import names
from specdec.controller.leader_election import Lease
from support.fake_cluster import FakeCluster, Json

SECONDS = 15.0


class Server(FakeCluster):
    """Responds after `latency` seconds, and writes after half of this time."""

    def __init__(self, latency: float = 0.0) -> None:
        super().__init__()
        self.latency = latency

    async def pass_time(self) -> None:
        await asyncio.sleep(self.latency / 2)

    @override
    async def get(
        self, api_version: str, kind: str, namespace: str | None, name: str
    ) -> Json | None:
        await self.pass_time()
        live = await super().get(api_version, kind, namespace, name)
        await self.pass_time()
        return live

    @override
    async def create(self, body: Mapping[str, Any], manager: str = names.MANAGER) -> Json | None:
        await self.pass_time()
        created = await super().create(body, manager)
        await self.pass_time()
        return created

    @override
    async def update(self, body: Mapping[str, Any]) -> Json:
        await self.pass_time()
        updated = await super().update(body)
        await self.pass_time()
        return updated

    @property
    def spec(self) -> Json:
        spec: Json = self.objects["Lease", "operator"]["spec"]
        return spec

    def holder(self) -> str:
        return str(self.spec["holderIdentity"])


def now() -> float:
    return asyncio.get_running_loop().time()


def candidate(server: FakeCluster, name: str) -> Lease:
    return Lease(server, "system", "operator", name, SECONDS)


async def acquire_and_renew(lease: Lease) -> None:
    await lease.acquire()
    await lease.renew()
