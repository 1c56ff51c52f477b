"""Builds engines with the operator's build program, and sends requests to their schedulers."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.processes import DEADLINE_SECONDS
from specdec.images.backend.tensorrtllm.reference_engine.config import EngineConfig
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama
from specdec.images.backend.tensorrtllm.reference_engine.request import Request, Ticket, Update
from specdec.images.backend.tensorrtllm.reference_engine.scheduler import Scheduler
from specdec.images.backend.tensorrtllm.reference_engine.weights import load

PAYLOAD = Path(__file__).resolve().parents[2] / "operator" / "specdec" / "images"
BUILD = PAYLOAD / "build" / "build_engine.py"
_DRAFTS = 16


def plan(checkpoint: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """Return a build plan."""
    return {
        "backend": "Reference",
        "role": "target",
        "checkpoint": str(checkpoint),
        "output": str(output),
        "key": output.name,
        "dtype": "auto",
        "limits": {
            "maxBatchSize": 8,
            "maxInputLen": 256,
            "maxSeqLen": 384,
            "maxNumTokens": 1024,
        },
        "maxDraftTokens": _DRAFTS,
        "speculativeDecodingMode": "draft_tokens_external",
        "tensorParallel": 1,
        "pipelineParallel": 1,
        "version": "0.19.0",
        **changes,
    }


def engine_values(role: str, limits: dict[str, int]) -> dict[str, Any]:
    """Return values of a plan as the operator sets them; a target has room for its draft tokens.

    Args:
        role: target or draft; a draft decodes without speculation.
        limits: limits of the spec, by name.
    """
    drafts = _DRAFTS if role == "target" else 0
    return {
        "role": role,
        "limits": {**limits, "maxSeqLen": limits["maxSeqLen"] + drafts},
        "maxDraftTokens": drafts,
        "speculativeDecodingMode": "draft_tokens_external" if drafts else "none",
    }


def build(checkpoint: Path, output: Path, **changes: Any) -> Path:
    """Build an engine directory."""
    subprocess.run(
        [sys.executable, str(BUILD), "--plan", "-"],
        input=json.dumps(plan(checkpoint, output, **changes)),
        text=True,
        check=True,
        capture_output=True,
        env={"SPECDEC_TERMINATION_LOG": str(output.parent / "termination.json")},
    )
    return output


def open_engine(directory: Path) -> Llama:
    """Load an engine directory."""
    return Llama(EngineConfig.read(directory), load(directory / "rank0.engine"))


class Gate:
    """Blocks a model's steps until a test releases them; records the row sizes of each step."""

    def __init__(self, model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[list[int]] = []
        self._permits = threading.Semaphore(0)
        self._entered = threading.Semaphore(0)
        self._open = False
        forward: Callable[[Any], Any] = model.forward

        def gated(batch: Any) -> Any:
            self._entered.release()
            if not self._open:
                assert self._permits.acquire(timeout=DEADLINE_SECONDS)
            self.sizes.append([rows.tokens.size for rows in batch])
            return forward(batch)

        monkeypatch.setattr(model, "forward", gated)

    def await_step(self) -> None:
        """Wait until a step has begun."""
        assert self._entered.acquire(timeout=DEADLINE_SECONDS)

    def step(self) -> None:
        """Release one step, and wait until the next step has begun."""
        self._permits.release()
        self.await_step()

    def open(self) -> None:
        """Release this and all later steps."""
        self._open = True
        self._permits.release()


class Call:
    """Collects the updates of a request until the last update."""

    def __init__(self, scheduler: Scheduler, request: Request) -> None:
        self.updates: list[Update] = []
        self._done = threading.Event()
        self.ticket: Ticket = scheduler.ticket(request, self._listen)

    def _listen(self, update: Update) -> None:
        self.updates.append(update)
        if update.finished:
            self._done.set()

    def wait(self) -> Update:
        """Return the last update."""
        assert self._done.wait(DEADLINE_SECONDS), "no answer"
        return self.updates[-1]

    def tokens(self) -> list[int]:
        """Return the tokens of the whole answer."""
        assert not self.wait().error, self.updates[-1].error
        return [token for update in self.updates for token in update.tokens]


def ask(scheduler: Scheduler, prompt: list[int], max_new: int, **fields: Any) -> Call:
    """Submit a request whose tokens are plain lists."""
    return ask_all(scheduler, [prompt], max_new, **fields)[0]


def ask_all(
    scheduler: Scheduler, prompts: list[list[int]], max_new: int, **fields: Any
) -> list[Call]:
    """Submit the rows of one call."""
    if fields.get("draft") is not None:
        fields["draft"] = np.array(fields["draft"], np.int64)
    rows = [
        Call(scheduler, Request(np.array(prompt, np.int64), max_new, **fields))
        for prompt in prompts
    ]
    [refusal] = scheduler.submit([[row.ticket for row in rows]])
    if refusal is not None:
        raise refusal
    return rows


def rounds(
    target: Scheduler, draft: Scheduler, prompt: list[int], new: int, k: int, **fields: Any
) -> tuple[list[int], int, int]:
    """Decode in rounds, as a BLS does; return (tokens, drafted, accepted)."""
    ids, drafted, accepted = list(prompt), 0, 0
    while len(ids) < len(prompt) + new:
        length = min(k, len(prompt) + new - len(ids) - 1)
        proposal = ask(draft, ids, length, **fields).tokens() if length else None
        call = ask(target, ids, length + 1, draft=proposal or None, **fields)
        fresh = call.tokens()
        drafted, accepted = drafted + call.wait().drafted, accepted + call.wait().accepted
        if not fresh:
            break
        ids += fresh
    return ids[len(prompt) :], drafted, accepted
