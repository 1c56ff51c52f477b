"""The model of the LLM API on a real Triton with Python packages like those of image 26.07.

The image there has openai 1.107.3, which TensorRT-LLM 1.2.1 cannot import. A pod has a newer copy
(`specdec.desired.packages`). A stand-in for upstream's program shows which one the process of the
model and a process that it starts import: the ranks of the LLM API are such processes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specdec.triton.llm_api import LlmApiPlan, files
from support.image_tree import distribution
from support.triton_server import ServerError
from triton.conftest import Serve

PROGRAM = """\
import subprocess, sys
import triton_python_backend_utils as pb_utils

RANK = "import openai; print(openai.__version__)"

class TritonPythonModel:
    def initialize(self, args):
        import openai
        rank = subprocess.check_output([PYTHON, "-c", RANK], text=True).strip()
        raise pb_utils.TritonModelException(f"openai {openai.__version__}, rank {rank}")
"""


@pytest.mark.parametrize(
    ("own", "imported"), [("1.107.3", "1.109.1"), ("1.109.0", "1.109.0")], ids=["old", "fitting"]
)
def test_the_model_and_its_ranks_import_the_copy_only_if_the_image_needs_it(
    own: str, imported: str, serve: Serve, tmp_path: Path
) -> None:
    site, copy, program = (tmp_path / name for name in ("site", "packages", "program"))
    distribution(site, "openai", own)
    distribution(site, "tensorrt_llm", "1.2.1")
    distribution(copy, "openai", "1.109.1")
    program.mkdir()
    (program / "model.py").write_text(f"PYTHON = {sys.executable!r}\n{PROGRAM}")
    made = files(LlmApiPlan("triton_config: {}\n"))
    moved = {
        "tensorrt_llm/1/model.py": ('Path("/app/all_models") / _MODEL', f"Path({str(program)!r})"),
        "tensorrt_llm/1/image_packages.py": ('"/specdec/packages"', repr(str(copy))),
    }
    for path, (old, new) in moved.items():
        assert made[path].count(old) == 1
        made[path] = made[path].replace(old, new)
    # The wheel's server has the packages of the tests. Those of the image come before them.
    first = f"import sys\nsys.path.insert(0, {str(site)!r})\n"
    made["tensorrt_llm/1/model.py"] = first + made["tensorrt_llm/1/model.py"]
    with (
        pytest.raises(ServerError, match=f"openai {imported}, rank {imported}"),
        serve(made, env={"PYTHONPATH": str(site)}),
    ):
        pass
