"""A known fault of vLLM's CPU builds: with drafts, they sample at wrong temperatures.

vllm-project/vllm#55005: each request's temperature is repeated for its draft tokens, but into a
copy. Tests on a CPU are greedy for this reason. If a version fails this test, it has the fix: the
tests may then sample, and docs and messages that name the fault need an end version.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from support import vllm_wheel
from support.vllm_tests import installed

_PROGRAM = """
import json, torch
from vllm.platforms import current_platform
from vllm.utils import cpu_triton_utils
current_platform.import_kernels()
repeated = torch.zeros(3, dtype=torch.float32)
temperatures, ends = torch.tensor([0.5, 0.25]), torch.tensor([1, 3], dtype=torch.int32)
cpu_triton_utils._expand_kernel_impl(repeated, temperatures, ends, 0, 1, 8)
print(json.dumps(repeated.tolist()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.vllm(gibibytes=1, version=version))
        for version in vllm_wheel.VERSIONS
    ],
)
def test_temperatures_of_draft_tokens_are_lost(version: str, tmp_path: Path) -> None:
    installation = installed(version)
    environment = {**os.environ, **installation.environment(tmp_path), "PYTHONPATH": ""}
    command = [str(installation.python), "-c", _PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-1000:]
    # Without the fault: [0.5, 0.25, 0.25].
    assert json.loads(done.stdout.splitlines()[-1]) == [0.0, 0.0, 0.0]
