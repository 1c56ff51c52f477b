"""Adding a method touches five production files."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import AGREE, Scratch

PROGRAM = (
    AGREE
    + """
from specdec.pipeline import validation
from specdec.api.model import SpeculativeModel
from support.simulated_cluster import IMAGES, World, fetched, resource
from unit.pipeline.tensorrt import engines, parameters, plans, tensorrt

cr = tensorrt(speculation={"method": "Echo", "echo": {"ngramSize": 3}})
assert validation.first_problem(SpeculativeModel.parse(cr), IMAGES) is None
plan = engines(cr)["target"].plan
assert plan["echo"]["ngramSize"] == 3, plan
assert plan["maxDraftTokens"] == 27, plan
assert parameters(plans(cr)[""])["lookahead_ngram_size"] == "3"

cr["spec"]["speculation"]["lookahead"] = {}
problem = validation.first_problem(SpeculativeModel.parse(cr), IMAGES)
assert "spec.speculation.lookahead is set and method is Echo" in problem.message

world = World(resource(speculation={"method": "Echo"}))
world.settle()
assert world.condition("Available")["status"] == "True", world.cr["status"]
print(world.condition("Accepted")["message"])
"""
)


@pytest.mark.slow
def test_new_method_touches_five_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    names = (
        ("Lookahead", "Echo"),
        ("lookahead import", "echo import"),
        ("spec.speculation.lookahead", "spec.speculation.echo"),
        (".lookahead or", ".echo or"),
        ('{"lookahead":', '{"echo":'),
    )
    scratch.copy("api/methods/lookahead.py", "api/methods/echo.py", *names)
    scratch.copy("backends/methods/lookahead.py", "backends/methods/echo.py", *names)
    scratch.edit(
        "api/speculation.py",
        (
            "from specdec.api.methods.lookahead",
            "from specdec.api.methods.echo import Echo\nfrom specdec.api.methods.lookahead",
        ),
        ('    LOOKAHEAD = "Lookahead"\n', '    LOOKAHEAD = "Lookahead"\n    ECHO = "Echo"\n'),
        (
            "    lookahead: Lookahead | None = None\n",
            "    lookahead: Lookahead | None = None\n    echo: Echo | None = None\n",
        ),
    )
    scratch.edit(
        "api/support.yaml",
        ('      Lookahead: "0.19.0"\n', '      Lookahead: "0.19.0"\n      Echo: "0.19.0"\n'),
        ("      Lookahead: NGram\n", "      Lookahead: NGram\n      Echo: NGram\n"),
        ('"Lookahead": "0.19.0", ', '"Lookahead": "0.19.0", "Echo": "0.19.0", '),
    )
    block = scratch.definition_block("lookahead")
    scratch.edit_definition(
        ("ReDrafter, Lookahead, ", "ReDrafter, Lookahead, Echo, "),
        (block, block + block.replace("lookahead:", "echo:")),
    )

    message = scratch.run(PROGRAM)

    assert "serves method Echo" in message
    assert scratch.touched() == [
        "crds/speculativemodels.yaml",
        "operator/specdec/api/methods/echo.py",
        "operator/specdec/api/speculation.py",
        "operator/specdec/api/support.yaml",
        "operator/specdec/backends/methods/echo.py",
    ]
