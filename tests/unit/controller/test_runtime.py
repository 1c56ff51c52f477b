"""The start waits for the definition of the resource, but not for ever."""

import pytest
from typing_extensions import override

from specdec.cluster import ClusterError, Transient
from specdec.controller.runtime import DEFINED_TRIES, defined
from unit.controller.clock import run
from unit.controller.fakes import FakeCluster


class Discovery(FakeCluster):
    """Serves the kind from the n-th look on; every other look breaks."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.looks = 0

    @override
    async def serves(self, api_version: str, kind: str) -> bool:
        self.looks += 1
        if self.looks % 2:
            raise Transient("no answer")
        return self.looks >= self.after


def test_the_start_waits_until_the_definition_is_served() -> None:
    discovery = Discovery(after=6)
    run(defined(discovery))
    assert discovery.looks == 6


def test_a_definition_that_never_comes_ends_the_start_with_what_to_do() -> None:
    discovery = Discovery(after=10_000)
    with pytest.raises(ClusterError, match=r"apply crds/speculativemodels\.yaml"):
        run(defined(discovery))
    assert discovery.looks == DEFINED_TRIES
