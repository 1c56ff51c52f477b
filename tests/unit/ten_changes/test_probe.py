"""Changing a probe of the server touches one production file."""

from pathlib import Path

from unit.ten_changes.scratch import Scratch

PROGRAM = """
from support.simulated_cluster import World, resource

world = World(resource())
world.settle()
(server,) = [obj for (kind, _), obj in world.ever_applied.items() if kind == "Deployment"]
(container,) = server["spec"]["template"]["spec"]["containers"]
probe = container["readinessProbe"]
print(probe["timeoutSeconds"], probe["httpGet"]["path"])
"""


def test_changed_probe_touches_one_production_file(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.edit(
        "desired/front.py",
        ('"timeoutSeconds": 4', '"timeoutSeconds": 7'),
        ('ready="/v2/health/ready"', 'ready="/ready"'),
    )

    assert scratch.run(PROGRAM).split() == ["7", "/ready"]
    assert scratch.touched() == ["operator/specdec/desired/front.py"]
