"""The start waits for the resource definition, for a limited time."""

import pytest
from typing_extensions import override

from specdec.cluster import ClusterError, Transient
from specdec.controller.runtime import DEFINITION_ATTEMPTS, wait_for_definition
from unit.controller.clock import run
from unit.controller.fakes import FakeCluster


class Discovery(FakeCluster):
    """Serves the kind after `after` requests; every second request fails."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.requests = 0

    @override
    async def serves(self, api_version: str, kind: str) -> bool:
        self.requests += 1
        if self.requests % 2:
            raise Transient("no answer")
        return self.requests >= self.after


def test_start_waits_until_the_definition_is_served() -> None:
    discovery = Discovery(after=6)
    run(wait_for_definition(discovery))
    assert discovery.requests == 6


def test_start_fails_with_a_fix_if_the_definition_is_missing() -> None:
    discovery = Discovery(after=10_000)
    with pytest.raises(ClusterError, match=r"apply crds/speculativemodels\.yaml"):
        run(wait_for_definition(discovery))
    assert discovery.requests == DEFINITION_ATTEMPTS
