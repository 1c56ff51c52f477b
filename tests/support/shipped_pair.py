"""Builds engines of the shipped pair of checkpoints with the operator's build program."""

import json
import subprocess
import sys
from pathlib import Path

from cluster.processes import DEADLINE_SECONDS
from support.triton_server import PAYLOAD

PAIR = PAYLOAD / "pair"
EAGLE3 = PAIR / "eagle3"
MAX_DRAFT_TOKENS = 8
LIMITS = {"maxBatchSize": 16, "maxInputLen": 448, "maxSeqLen": 512, "maxNumTokens": 4096}


def build(
    folder: Path,
    name: str,
    role: str,
    *,
    mode: str,
    sizes: tuple[int, int, int] = (4, 3, 4),
    max_seq_len: int = LIMITS["maxSeqLen"],
) -> Path:
    """Build a Reference engine of the shipped pair in `folder`; `sizes` are those of lookahead.

    As in a build of the operator, the engine has room for draft tokens beyond `max_seq_len`.
    """
    window, ngram, verification = sizes
    lookahead = {
        "windowSize": window,
        "ngramSize": ngram,
        "verificationSetSize": verification,
    }
    drafts = max(
        MAX_DRAFT_TOKENS * 2, max(ngram - 2, 0) + (window - 1 + verification) * (ngram - 1)
    )
    drafts = 0 if mode == "none" else drafts
    plan = {
        "backend": "Reference",
        "role": role,
        "checkpoint": str(PAIR / role),
        "output": str(folder / name),
        "key": name,
        "dtype": "auto",
        "limits": {**LIMITS, "maxSeqLen": max_seq_len + drafts},
        "maxDraftTokens": drafts,
        "speculativeDecodingMode": mode,
        "lookahead": lookahead if mode == "lookahead_decoding" else None,
        "tensorParallel": 1,
        "pipelineParallel": 1,
        "version": "0.19.0",
    }
    subprocess.run(
        [sys.executable, str(PAYLOAD / "build" / "build_engine.py"), "--plan", "-"],
        input=json.dumps(plan).encode(),
        check=True,
        timeout=DEADLINE_SECONDS,
        env={"SPECDEC_TERMINATION_LOG": str(folder / f"{name}.json")},
    )
    return folder / name
