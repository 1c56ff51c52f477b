"""Adding a source of checkpoints touches four production files."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import AGREE, Scratch

PROGRAM = (
    AGREE
    + """
import json
from support.simulated_cluster import World, resource
from specdec.jobs import sources
from specdec.jobs.artifact_kind import ArtifactKind
from specdec.jobs.egress_proxy import EgressProxy

secret = {"name": "key", "key": "token"}
cr = resource()
cr["spec"]["target"]["source"] = {"shelf": {"resource": "a/b:1", "authSecretRef": secret}}
world = World(cr)
world.settle()
fetch = world.jobs[world.job("fetch")]
(container,) = fetch["spec"]["template"]["spec"]["containers"]
(variable,) = [item for item in container["env"] if item["name"] == "SHELF_KEY_TARGET"]
assert variable["valueFrom"]["secretKeyRef"] == secret, variable

arguments = [*container.get("command", []), *container.get("args", [])]
(plan,) = [json.loads(argument) for argument in arguments if argument.startswith("{")]
source = plan["models"]["target"]
proxy = EgressProxy.__new__(EgressProxy)
proxy.url = proxy.limited_url = "http://127.0.0.1:1"
with sources.remote("target", ArtifactKind.CHECKPOINT, source, proxy) as remote:
    print(type(remote).__module__)
"""
)


@pytest.mark.slow
def test_new_source_touches_four_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.copy("jobs/ngc.py", "jobs/shelf.py", ("NGC_API_KEY", "SHELF_KEY"))
    row = '    "s3": "specdec.jobs.s3",\n'
    scratch.edit("jobs/sources.py", (row, row + '    "shelf": "specdec.jobs.shelf",\n'))
    shelf = (
        "class ShelfSource(NgcSource):\n"
        '    """A model version on a shelf."""\n\n'
        "    @property\n"
        "    def secrets(self) -> tuple[SecretVariable, ...]:\n"
        '        return _variable("SHELF_KEY", self.auth_secret_ref)\n\n\n'
    )
    scratch.edit(
        "api/source.py",
        ("class Source(Value):\n", f"{shelf}class Source(Value):\n"),
        (
            "    ngc: NgcSource | None = None\n",
            "    ngc: NgcSource | None = None\n    shelf: ShelfSource | None = None\n",
        ),
    )
    block = scratch.definition_block("ngc")
    scratch.edit_definition(
        (block, block + block.replace("ngc:", "shelf:", 1)),
        ("has(self.oci), has(self.ngc)]", "has(self.oci), has(self.ngc), has(self.shelf)]"),
    )

    assert scratch.run(PROGRAM).strip() == "specdec.jobs.shelf"
    assert scratch.touched() == [
        "crds/speculativemodels.yaml",
        "operator/specdec/api/source.py",
        "operator/specdec/jobs/shelf.py",
        "operator/specdec/jobs/sources.py",
    ]
