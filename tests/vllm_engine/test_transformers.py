"""A real vLLM answers as Transformers does, which is installed with it. 1 GB of memory."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.shipped_pair import PAIR
from support.vllm_generate import NEW_TOKENS, Generated
from support.vllm_tests import installed

Ids = list[int]
FEW = 12
_PROGRAM = """
import json, sys
import torch
from transformers import AutoModelForCausalLM
body = json.load(sys.stdin)
model = AutoModelForCausalLM.from_pretrained(body["model"], dtype=torch.float32)
answers = []
for prompt in body["prompts"]:
    ids = torch.tensor([prompt])
    for _ in range(body["tokens"]):
        logits = model(ids).logits[0, -1]
        ids = torch.cat([ids, logits.argmax()[None, None]], dim=1)
    answers.append(ids[0, len(prompt):].tolist())
print(json.dumps(answers))
"""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.vllm(gibibytes=2)
def test_plain_answers_are_those_of_transformers(
    plain: Generated, prompts: list[Ids], tmp_path: Path
) -> None:
    body = {"model": str(PAIR / "target"), "prompts": prompts[:FEW], "tokens": NEW_TOKENS}
    installation = installed()
    done = subprocess.run(
        [str(installation.python), "-c", _PROGRAM],
        input=json.dumps(body),
        cwd=tmp_path,
        env={**os.environ, **installation.environment(tmp_path), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert plain.tokens[:FEW] == json.loads(done.stdout.splitlines()[-1])
