"""How much of an engine's sequence a request may fill, by the rule of TensorRT-LLM's executor.

A step writes its draft tokens behind the sequence before it knows which of them stay. The executor
therefore keeps the draft length free at the end: an engine of max_seq_len tokens gives sequences
of max_seq_len - max_draft_len tokens, or of more where a request brings fewer drafts.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from .config import EngineConfig
from .errors import RequestError
from .request import Request

log = logging.getLogger(__name__)


def fitted(request: Request, engine: EngineConfig) -> Request:
    """Check the lengths of a request, and shorten its answer to what fits, with a warning only.

    Where no token fits, the executor's result is not specified, and this engine refuses.

    Raises:
        RequestError: prompt or drafts are too long for the engine.
    """
    prompt, longest = request.prompt.size, engine.max_seq_len
    if prompt > longest - 1:
        raise RequestError(
            f"Prompt length ({prompt}) exceeds maximum input length ({longest - 1}). "
            "Shorten the prompt or build the engine with a larger maxSeqLen."
        )
    drafts = engine.max_draft_len
    if request.draft is not None:
        drafts = request.draft.size
        _check_drafts(prompt, drafts, engine)
    room = longest - prompt - drafts
    if room < 1:
        raise RequestError(
            f"prompt ({prompt}) and draft tokens of a step ({drafts}) leave no token of "
            f"max_seq_len ({longest}); shorten the prompt"
        )
    if request.max_new <= room:
        return request
    log.warning(
        "prompt (%d), new tokens (%d) and draft tokens of a step (%d) exceed max_seq_len (%d): "
        "the answer has %d tokens at most",
        prompt,
        request.max_new,
        drafts,
        longest,
        room,
    )
    return replace(request, max_new=room)


def _check_drafts(prompt: int, drafts: int, engine: EngineConfig) -> None:
    if drafts > engine.max_draft_len:
        raise RequestError(
            f"Number of draft tokens ({drafts}) is larger than maximum number of draft tokens "
            f"({engine.max_draft_len})"
        )
    # The drafts are computed together with the prompt, so that both are input.
    if prompt + drafts > engine.max_seq_len - 1:
        raise RequestError(
            f"prompt ({prompt}) and draft tokens ({drafts}) exceed max_seq_len "
            f"({engine.max_seq_len}); send fewer draft tokens"
        )
