"""A short scale campaign: every change of the replicas takes effect, and no request fails."""

import pytest

from campaigns import scale
from e2e.traffic import asking
from e2e.world import World
from specdec.api import names

pytestmark = pytest.mark.when_changed("product")

CHANGES = 9


def test_scale_changes_under_load_are_followed_and_lose_no_request(
    world: World, served: str
) -> None:
    before = world.get(served)["metadata"]["generation"]
    with asking(world, served) as seen:
        last = scale.burst(world, served, 1, CHANGES)
        scale.settled(world, served, last)
        seen.more(world)
    assert last == 2
    assert seen.failures == []
    assert world.get(served)["metadata"]["generation"] == before + CHANGES
    writers = scale.spec_writers(world, served)
    assert any(writer.startswith("kubectl") for writer in writers)
    assert names.MANAGER not in writers
