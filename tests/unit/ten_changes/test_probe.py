"""Changing a probe of the server touches one production file."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import Scratch

PROGRAM = """
from support.simulated_cluster import World, resource

world = World(resource())
world.settle()
(server,) = [obj for (kind, _), obj in world.ever_applied.items() if kind == "Deployment"]
(container,) = server["spec"]["template"]["spec"]["containers"]
probe = container["readinessProbe"]
print(probe["timeoutSeconds"], probe["periodSeconds"])
"""


@pytest.mark.slow
def test_changed_probe_touches_one_production_file(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.edit(
        "desired/probes.py",
        ("_HANGS = 30", "_HANGS = 20"),
        ("failures, _PERIOD, _HANGS", "failures, 7, _HANGS"),
    )

    assert scratch.run(PROGRAM).split() == ["20", "7"]
    assert scratch.touched() == ["operator/specdec/desired/probes.py"]
