"""Adding a backend touches one package and two data files."""

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

    def default_image(self, images, version, frontend):
        return f"toy:{version}"

    def engines(self, model, facts):
        return ()

    def repositories(self, model, facts):
        engines = {
            role: Engine(role, facts.checkpoints[role].digest, {}, facts.checkpoints[role].digest)
            for role in model.models
        }
        return super().repositories(model, replace(facts, engines=engines))


BACKEND: Backend = Toy()
'''
ROW = """  Toy:
    served: true
    gpus: false
    versions: ["0.19.0"]
    methods: {"None": "0.19.0", "DraftTarget": "0.19.0"}
    dtypes: [Auto]
    architectures: [LlamaForCausalLM]
"""
PROGRAM = (
    AGREE
    + """
from support.simulated_cluster import World, resource

world = World(resource(runtime={"backend": "Toy"}))
world.settle()
assert world.condition("Available")["status"] == "True", world.cr["status"]
assert world.named("engine") == []
(config,) = [
    obj["data"] for (kind, name), obj in world.ever_applied.items()
    if kind == "ConfigMap" and "expectations.json" in obj["data"]
]
assert any("/models/checkpoints/" + "a" * 64 in text for text in config.values())
print(world.cr["status"]["plan"]["image"], world.condition("EnginesReady")["message"])
"""
)


@pytest.mark.slow
def test_new_backend_touches_one_package_and_two_data_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.write("backends/toy/__init__.py", PACKAGE)
    scratch.edit(
        "api/support.yaml",
        ('  TensorRT: "1.2.1"\n', '  TensorRT: "1.2.1"\n  Toy: "0.19.0"\n'),
        ("  Reference:\n    served: true\n", ROW + "  Reference:\n    served: true\n"),
    )
    scratch.edit_definition(
        ("enum: [TensorRT, PyTorch, Reference]", "enum: [TensorRT, PyTorch, Toy, Reference]")
    )

    output = scratch.run(PROGRAM)

    assert output.startswith("toy:0.19.0 the backend serves checkpoints as they are")
    assert scratch.touched() == [
        "crds/speculativemodels.yaml",
        "operator/specdec/api/support.yaml",
        "operator/specdec/backends/toy/__init__.py",
    ]
