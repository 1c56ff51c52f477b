"""The end of a tritonserver whose model runs vLLM."""

import json
from pathlib import Path

import pytest

from specdec.triton import vllm
from support.vllm_generate import SMALL, TARGET
from support.vllm_tests import installed
from support.vllm_triton import serving

pytestmark = [pytest.mark.slow, pytest.mark.triton, pytest.mark.vllm(gibibytes=2)]


def test_model_ends_without_a_crash(tmp_path: Path) -> None:
    """In a file of its own, because only one server of vLLM runs at a time."""
    files = vllm.files(vllm.VllmPlan(json.dumps(SMALL | TARGET)))
    with serving(installed(), files, tmp_path) as server:
        server.stop()
        log = server.log()
    assert "Segfault encountered" not in log
    assert "Traceback" not in log
