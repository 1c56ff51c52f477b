"""Jobs and pods are read by two requests: no stage reports a failure that the gap feigns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from specdec.api import names
from specdec.api.conditions import FAILED
from specdec.pipeline.decide import Decision
from specdec.pipeline.observed import POD_JOB, Observed
from support.simulated_cluster import NOW, World, resource

Json = dict[str, Any]
COMPONENTS = {"fetch", "engine", "publish", "verify", "benchmark"}


class TornWorld(World):
    """Shows each ended Job once with its pods as they were before its end.

    Attributes:
        earlier: the pod's status in the older read; None where the pod is missing from it.
        torn: the components whose Jobs were shown so.
    """

    def __init__(self, cr: Json, earlier: Json | None) -> None:
        super().__init__(cr)
        self.earlier = earlier
        self.torn: set[str] = set()
        self._shown: set[str] = set()

    @override
    def observed(self) -> Observed:
        live = super().observed()
        fresh = {name for name, job in self.jobs.items() if "status" in job} - self._shown
        self._shown |= fresh
        self.torn |= {self.jobs[n]["metadata"]["labels"][names.COMPONENT] for n in fresh}
        for name in fresh:
            self.jobs[name]["status"]["conditions"][0]["lastTransitionTime"] = NOW.isoformat()
        pods = [
            {**pod, "status": self.earlier} if self._belongs(pod, fresh) else pod
            for pod in live.pods
            if self.earlier is not None or not self._belongs(pod, fresh)
        ]
        return replace(live, jobs=dict(self.jobs), pods=tuple(pods))

    @override
    def step(self) -> Decision:
        decision = super().step()
        failed = [c for c in decision.conditions if c.reason in FAILED]
        assert not failed, failed
        assert not [ref for ref in decision.delete if ref.kind == "Job"]
        return decision

    def _belongs(self, pod: Mapping[str, Any], jobs: set[str]) -> bool:
        return pod["metadata"]["labels"].get(POD_JOB) in jobs


@pytest.mark.parametrize("earlier", [{"phase": "Running"}, {"phase": "Pending"}, None])
def test_no_stage_fails_or_repeats_a_job_that_ended_between_the_two_reads(
    earlier: Json | None,
) -> None:
    cr = resource(benchmark={"mode": "OnReady"})
    world = TornWorld(cr, earlier)

    world.settle()

    assert world.torn == COMPONENTS
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("SpeculationActive")["status"] == "True"
    assert world.condition("BenchmarkCompleted")["status"] == "True"
