"""Adding a backend touches one package and one row of the support table."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import AGREE, Scratch

# The backend serves checkpoints as they are and builds nothing.
PACKAGE = '''
"""A toy backend."""

from dataclasses import replace

from specdec.backends.facts import Engine
from specdec.backends.protocol import Backend
from specdec.backends.reference import Reference


class Toy(Reference):
    """Serves checkpoints as they are."""

    builder = None

    def repository(self, model, facts):
        engines = {
            role: Engine(role, facts.checkpoints[role].digest, {}, facts.checkpoints[role].digest)
            for role in model.models
        }
        return super().repository(model, replace(facts, engines=engines))


BACKEND: Backend = Toy()
'''
# The backend has no other feature than these: the API server refuses the others.
RULES = """
has: [draftTokens]
lacks:
  parallelism: "backend Toy has one device: set target.parallelism.tensor and .pipeline to 1"
rules:
  - field: runtime.chunkedContext
    rule: "!self.runtime.chunkedContext"
    message: "backend Toy cuts no prompt: set runtime.chunkedContext to false"
"""
ROW = """  Toy:
    served: true
    fronts: {Triton: bls}
    gpus: false
    images: {"0.19.0": {image: "toy:0.19.0", source: a test}}
    versions: ["0.19.0"]
    methods: {"None": "0.19.0", "DraftTarget": "0.19.0"}
    dtypes: [Auto]
    architectures: [LlamaForCausalLM]
"""
PROGRAM = (
    AGREE
    + """
from specdec.pipeline import validation
from specdec.api.model import SpeculativeModel
from specdec.tools.dry_run.admission import admit
from support.simulated_cluster import IMAGES, World, limits, resource, source

TARGET = {"source": source("target"), "limits": limits()}
world = World(resource(runtime={"backend": "Toy"}))
world.settle()
assert world.condition("Available")["status"] == "True", world.cr["status"]
assert world.named("engine") == []
(config,) = [
    obj["data"] for (kind, name), obj in world.ever_applied.items()
    if kind == "ConfigMap" and "expectations.json" in obj["data"]
]
assert any("/models/checkpoints/" + "a" * 64 in text for text in config.values())
for body in (
    resource(runtime={"backend": "Toy", "chunkedContext": True, "instances": 2}),
    resource(
        runtime={"backend": "Toy"},
        target={**TARGET, "parallelism": {"tensor": 2}},
        speculation={"method": "Lookahead", "lookahead": {}},
    ),
):
    refused = [problem.detail for problem in admit(body).problems]
    cause = validation.first_problem(SpeculativeModel.parse(body), IMAGES)
    assert cause.message.partition(": ")[2] == refused[0], (cause.message, refused)
    for message in refused:
        print(message)
print(world.cr["status"]["plan"]["image"], world.condition("EnginesReady")["message"])
"""
)


@pytest.mark.slow
def test_new_backend_touches_one_package_and_the_support_table(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.write("backends/toy/__init__.py", PACKAGE)
    scratch.edit(
        "api/support.yaml",
        ('  TensorRT: "1.2.1"\n', '  TensorRT: "1.2.1"\n  Toy: "0.19.0"\n'),
        ("  Reference:\n    served: true\n", ROW + "  Reference:\n    served: true\n"),
    )
    scratch.write("backends/toy/rules.yaml", RULES)
    scratch.generate_definition()

    output = scratch.run(PROGRAM)

    *refused, served = output.splitlines()
    assert served.startswith("toy:0.19.0 the backend serves checkpoints as they are")
    assert refused == [
        "backend Toy cuts no prompt: set runtime.chunkedContext to false",
        "only backend PyTorch has several instances: set runtime.instances to 1, or set "
        "spec.runtime.backend to PyTorch",
        "only backends TensorRT and Reference draft by this method: set spec.runtime.backend to "
        "TensorRT or Reference, or choose another method",
        "backend Toy has one device: set target.parallelism.tensor and .pipeline to 1",
    ]
    assert scratch.touched() == [
        "operator/specdec/api/support.yaml",
        "operator/specdec/backends/toy/__init__.py",
        "operator/specdec/backends/toy/rules.yaml",
    ]
