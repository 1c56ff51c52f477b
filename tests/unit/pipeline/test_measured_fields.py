"""Whatever a measuring Job sends, or the repository has, is in the hash of its measurement."""

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from specdec.api.model import SpeculativeModel
from support.simulated_cluster import World
from unit.backends.engine_key_fields import BUILD, NEITHER, RUN
from unit.pipeline.tensorrt import put, tensorrt

Json = dict[str, Any]
JOBS = ("verify", "benchmark")
# A replica more gives the same figures, but its counters cannot be read at one address any more.
UNMEASURED = {"planHash", "report", "metrics"}
FIELDS = {**BUILD, **RUN, **NEITHER}


def base(topology: str) -> Json:
    cr = tensorrt(benchmark={"mode": "OnReady"})
    if topology == "TwoServers":
        put(cr, "speculation.draftTarget.topology", topology)
        put(cr, "speculation.draftTarget.placement", "Dedicated")
        put(cr, "target.parallelism.tensor", 2)
    return cr


def measured(cr: Json) -> dict[str, tuple[str, Json]]:
    """Return hash and requests of each measurement; empty if this backend refuses the resource."""
    try:
        SpeculativeModel.parse(cr)
        world = World(cr)
        world.settle()
    except (ValidationError, RuntimeError):
        return {}
    plans = {}
    for component in JOBS:
        for name in world.named(component):
            (container,) = world.jobs[name]["spec"]["template"]["spec"]["containers"]
            plan = json.loads(container["command"][-1])
            sent = {key: value for key, value in plan.items() if key not in UNMEASURED}
            sent["repository"] = world.cr["status"]["repository"]["hash"]
            plans[component] = (plan["planHash"], sent)
    return plans


BEFORE = {topology: measured(base(topology)) for topology in ("SingleServer", "TwoServers")}


@pytest.mark.slow
@pytest.mark.parametrize("topology", BEFORE)
@pytest.mark.parametrize("path", FIELDS)
def test_a_field_that_changes_the_requests_or_the_repository_measures_again(
    path: str, topology: str
) -> None:
    before = BEFORE[topology]
    assert set(before) == set(JOBS)
    after = measured(put(copy.deepcopy(base(topology)), path, FIELDS[path]))
    for component in set(after):
        old, new = before[component], after[component]
        assert (old[0] == new[0]) <= (old[1] == new[1]), (component, old[1], new[1])


@pytest.mark.parametrize("component", JOBS)
def test_with_two_servers_another_draft_length_measures_again(component: str) -> None:
    """The client of two servers sets it: neither server's repository has it."""
    cr = put(base("TwoServers"), "speculation.draftTokens", 2)
    assert measured(cr)[component][0] != BEFORE["TwoServers"][component][0]
