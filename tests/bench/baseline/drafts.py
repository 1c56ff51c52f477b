"""What the shipped draft model proposes after each token of the shipped target's answers."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from specdec.images.backend.tensorrtllm.reference_engine.kv import KVBuffer
from specdec.images.backend.tensorrtllm.reference_engine.llama import Llama, Rows
from specdec.images.backend.tensorrtllm.reference_engine.sampling import log_probability
from specdec.images.backend.tensorrtllm.reference_engine.weights import Floats
from support.reference_engines import build, open_engine
from support.shipped_pair import PAIR

_CAPACITY = 384


@dataclass(frozen=True)
class Answer:
    """A prompt and the target's greedy answer, in tokens.

    Attributes:
        drafts: for each token of prompt and answer, the draft's proposal from its position on,
            with log probabilities. Proposals for tokens of the prompt are empty.
    """

    prompt: list[int]
    answer: list[int]
    drafts: list[list[tuple[int, float]]]

    def right(self) -> list[bool]:
        """Return for each token of the answer whether the draft proposes it."""
        firsts = [proposed[0][0] for proposed in self.drafts[len(self.prompt) :]]
        return [first == token for first, token in zip(firsts, self.answer, strict=True)]


def answers(folder: Path, tokens: int, drafted: int) -> list[Answer]:
    """Return answers to the pair's prompts, with proposals of `drafted` tokens."""
    target, draft = (
        open_engine(build(PAIR / role, folder / role)) for role in ("target", "draft")
    )
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    prompts = [tokenizer.encode(json.loads(line)["prompt"]).ids for line in lines]
    return [_answer(target, draft, prompt, tokens, drafted) for prompt in prompts]


def _answer(target: Llama, draft: Llama, prompt: list[int], tokens: int, drafted: int) -> Answer:
    buffer = KVBuffer(target.config, _CAPACITY)
    answer = [token for token, _ in _greedy(target, buffer, prompt, tokens)]
    buffer = KVBuffer(draft.config, _CAPACITY)
    drafts: list[list[tuple[int, float]]] = [[] for _ in prompt]
    known: list[int] = []
    for index in range(tokens):
        prefix = prompt + answer[:index]
        proposed = _greedy(draft, buffer, prefix[len(known) :], drafted)
        drafts.append(proposed)
        known = prefix
        # The next proposal overwrites the draft's keys and values after the prefix.
        buffer.length = len(prefix)
    return Answer(prompt, answer, drafts)


def _greedy(
    model: Llama, buffer: KVBuffer, new: list[int], tokens: int
) -> list[tuple[int, float]]:
    """Add `new` to the buffer; return the likeliest next tokens with log probabilities."""
    generated: list[tuple[int, float]] = []
    logits = _step(model, buffer, new)
    while True:
        token = int(logits.argmax())
        generated.append((token, log_probability(logits, token)))
        if len(generated) == tokens:
            return generated
        logits = _step(model, buffer, [token])


def _step(model: Llama, buffer: KVBuffer, tokens: list[int]) -> Floats:
    rows = Rows(buffer, np.array(tokens, np.int64), 1)
    logits: Floats = model.forward([rows])[0][-1]
    buffer.length += len(tokens)
    return logits
