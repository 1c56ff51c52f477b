"""A tritonserver whose BLS speculates with table engines."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from campaigns import letters
from campaigns.served_pairs import Drafts, speculating
from campaigns.table import LONGEST, Floats
from specdec.images.backend.tensorrtllm.reference_engine.request import Request
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import ModelPlan, RepositoryPlan
from support.triton_server import ROOT, Server, installed_server

ROWS = 32
# A prompt starts with tokens that the table does not read. They encode whether the engines follow
# the calls' seeds, and the number of the answer.
_FOLLOWS_SEED, _IGNORES_SEED = 1, 2
_DIGITS = 8
_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
_MODEL = Path(__file__).with_name("table_model.py")


def prompt(
    number: int, last: tuple[int, ...], vocabulary: int, *, ignores_seed: bool
) -> list[int]:
    """Return a prompt that contains the number of its answer.

    Args:
        ignores_seed: the engines sample with one seed for all calls of this answer, and ignore
            the seeds of the requests.
    """
    base = vocabulary - 1
    digits = [1 + number // base**place % base for place in range(_DIGITS)]
    return [_IGNORES_SEED if ignores_seed else _FOLLOWS_SEED, *digits, *last]


def seed(request: Request) -> int:
    """Return the seed with which an engine samples for this request."""
    if request.prompt[0] == _FOLLOWS_SEED:
        return request.rules.seed
    return int.from_bytes(bytes(request.prompt[1 : 1 + _DIGITS].tolist()), "big")


@contextmanager
def serving(target: Floats, draft: Floats, drafts: Drafts = "Model") -> Iterator[Server]:
    """Yield a server with these logits [vocabulary, vocabulary]; token 0 is the end token."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = RepositoryPlan(
            version="0.19.0",
            tokenizer_dir=str(letters.write(folder / "letters", len(target))),
            target=ModelPlan(str(folder)),
            draft=None if drafts == "Lookup" else ModelPlan(str(folder)),
            # One token is a match, so nearly every text has matches.
            lookup_min_match=0 if drafts == "Model" else 1,
            max_batch_size=ROWS,
            draft_tokens=4,
            max_draft_tokens=8,
            # Used for requests without a draft length.
            adaptive=DraftLengths(1, 8),
            draft_ahead=0 if drafts == "Lookup" else 1,
            rows_per_call=ROWS,
            max_seq_len=LONGEST,
            bls_max_in_flight=4 * ROWS,
        )
        files = speculating(plan)
        for model, logits in zip(_MODELS, (target, draft), strict=True):
            if f"{model}/config.pbtxt" in files:
                files |= _files(model, files[f"{model}/config.pbtxt"], logits)
        with Server(installed_server(), files, folder / "server") as server:
            yield server


def _files(model: str, config: str, logits: Floats) -> dict[str, str]:
    """Return the model's files; the program adds this tree to the path of the server's Python."""
    places = [str(ROOT / "tests"), str(ROOT / "operator")]
    future = "from __future__ import annotations\n"
    program = _MODEL.read_text("utf-8").replace(
        future, f"{future}\nimport sys\n\nsys.path[:0] = {places!r}\n"
    )
    return {
        f"{model}/config.pbtxt": config.replace('"tensorrtllm"', '"python"'),
        f"{model}/1/model.py": program,
        f"{model}/1/table.json": json.dumps(np.asarray(logits).tolist()),
    }
