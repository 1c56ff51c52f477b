"""Adding a field that only sets a key of `config.pbtxt` touches three production files."""

from pathlib import Path

import pytest

from unit.ten_changes.scratch import AGREE, Scratch

PROGRAM = (
    AGREE
    + """
from unit.pipeline.tensorrt import parameters, plans, tensorrt

cr = tensorrt(runtime={"overlap": True}, version="1.2.1")
(plan,) = plans(cr).values()
print(parameters(plan)["enable_trt_overlap"], parameters(plan, "tensorrt_llm_draft"))
"""
)


@pytest.mark.slow
def test_new_field_of_config_pbtxt_touches_three_production_files(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    scratch.edit(
        "api/model.py",
        (
            "    chunked_context: bool | None = None\n",
            "    chunked_context: bool | None = None\n    overlap: bool | None = None\n",
        ),
    )
    line = '        "enable_chunked_context": "true" if runtime.chunked_context else "",\n'
    more = '        "enable_trt_overlap": "true" if runtime.overlap else "",\n'
    scratch.edit("backends/repository.py", (line, line + more))
    block = scratch.definition_block("chunkedContext")
    scratch.edit_definition((block, block + block.replace("chunkedContext:", "overlap:")))

    target, _, draft = scratch.run(PROGRAM).partition(" ")

    assert target == "true"
    assert "'enable_trt_overlap': 'true'" in draft
    assert scratch.touched() == [
        "crds/speculativemodels.yaml",
        "operator/specdec/api/model.py",
        "operator/specdec/backends/repository.py",
    ]
