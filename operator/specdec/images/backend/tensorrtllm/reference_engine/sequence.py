"""A request in flight: its tokens, its KV cache, and the choice of tokens from a step's logits."""

from __future__ import annotations

import time

import numpy as np

from .errors import RequestError
from .kv import BLOCK, KVBuffer, Reservation, Tokens
from .llama import Llama, Rows
from .lookahead import Branches, Proposer
from .request import Ticket, Update, Usage
from .sampling import adjust, choose, log_probability
from .verify import accept_by_logits
from .weights import Floats
from .word_lists import ends_with

# Prompt rows a sequence computes in one step, so that a long prompt does not hold up the others.
PREFILL_ROWS = 256


class Sequence:
    """One request in flight. The scheduler calls `rows`, runs the step, then calls `advance`."""

    def __init__(
        self,
        ticket: Ticket,
        model: Llama,
        reservation: Reservation,
        proposer: Proposer | None,
        *,
        normalize_log_probs: bool = False,
    ) -> None:
        request = ticket.request
        self.ticket = ticket
        self.buffer: KVBuffer = reservation.buffer
        self.reused = reservation.reused
        self._request = request
        self._model = model
        self._proposer = proposer
        self._candidate_count = request.rules.candidate_count if normalize_log_probs else 0
        self._tokens: Tokens = np.empty(request.prompt.size + request.max_new + 1, np.int64)
        self._tokens[: request.prompt.size] = request.prompt
        self._length = request.prompt.size
        self._reported = self._length
        self._prefill = min(PREFILL_ROWS, model.config.max_num_tokens)
        self._branches: Branches | None = None
        self._log_probs: list[float] = []
        self._logits: list[Floats] = []
        self._context: list[Floats] = []
        self._cum_log_prob = 0.0
        self._drafted = self._accepted = self._steps = 0
        self._scheduled = time.monotonic()
        self._first_token = self._last_token = 0.0
        self.finished = False

    @property
    def tokens(self) -> Tokens:
        """Prompt and answer so far."""
        return self._tokens[: self._length]

    def rows(self) -> Rows:
        """Return what this sequence computes next: prompt, one token, drafts or branches."""
        pending = self.tokens[self.buffer.length :]
        request = self._request
        if pending.size > self._prefill:
            pending = pending[: self._prefill]
            return Rows(self.buffer, pending, pending.size if request.want_context_logits else 0)
        self._branches = None
        if request.draft is not None:
            pending = np.concatenate([pending, request.draft])
            logit_rows = request.draft.size + 1
        elif self._proposer is not None and pending.size == 1 and self._steps:
            self._branches = self._proposer.propose(self.tokens)
            mask, positions = self._branches.mask, self._branches.offsets + self._length - 1
            tokens = self._branches.tokens
            return Rows(self.buffer, tokens, tokens.size, positions, mask)
        else:
            logit_rows = 1
        if request.want_context_logits:
            logit_rows = pending.size
        return Rows(self.buffer, pending, logit_rows)

    def advance(self, rows: Rows, logits: Floats) -> None:
        """Take a step's logits, [logit_rows, vocabulary], and choose tokens from them."""
        start = self.buffer.length
        if self._branches is not None:
            self._advance_branches(self._branches, logits)
            return
        prompt_rows = max(0, min(self._request.prompt.size - start, rows.tokens.size))
        if self._request.want_context_logits and prompt_rows:
            self._context.append(logits[:prompt_rows])
        if start + rows.tokens.size < self._length:
            self._commit(start, rows.tokens)
            return
        self._steps += 1
        if self._request.draft is None:
            self._commit(start, rows.tokens)
            self._append(logits[-1])
            return
        self._commit(start, rows.tokens)
        self._verify(logits[-self._request.draft.size - 1 :])

    def _commit(self, start: int, tokens: Tokens) -> None:
        self.buffer.tokens[start : start + tokens.size] = tokens
        self.buffer.length = start + tokens.size

    def _verify(self, logits: Floats) -> None:
        """One round over the request's draft tokens; the request ends with it."""
        request = self._request
        drafts = request.draft if request.draft is not None else np.empty(0, np.int64)
        known = self._length
        self._drafted += drafts.size
        by_logits = request.draft_logits is not None and not request.rules.greedy
        for index in range(drafts.size + 1):
            drafted = int(drafts[index]) if index < drafts.size else None
            if by_logits and drafted is not None:
                forced = self._reject_or_keep(index, drafted, logits[index])
                token = self._append(logits[index], forced)
            else:
                token = self._append(logits[index])
            accepted = drafted is not None and token == drafted
            self._accepted += accepted
            if self.finished or not accepted:
                break
        self.finished = True
        # Rows of refused drafts stay in the buffer beyond its length and are written over.
        self.buffer.length = min(known + self._accepted, self._length)

    def _reject_or_keep(self, index: int, drafted: int, logits: Floats) -> int:
        request = self._request
        generated = self._length - request.prompt.size
        draft_logits = request.draft_logits
        assert draft_logits is not None
        return accept_by_logits(
            request.rules,
            adjust(request.rules, logits, self.tokens, generated),
            adjust(request.rules, draft_logits[index], self.tokens, generated),
            drafted,
            self._length,
            request.threshold,
        )

    def _advance_branches(self, branches: Branches, logits: Floats) -> None:
        """Lookahead: accept candidate tokens for as long as they equal the target's choices."""
        start, known = self.buffer.length, self._length
        self._steps += 1
        kept = [0]
        alive = list(range(branches.candidates))
        self._drafted += branches.depth if branches.candidates else 0
        for depth in range(branches.depth + 1):
            token = self._append(logits[kept[-1]])
            if self.finished or depth == branches.depth:
                break
            alive = [index for index in alive if branches.token(index, depth) == token]
            if not alive:
                break
            self._accepted += 1
            kept.append(branches.row(alive[0], depth))
        self.buffer.move([start + row for row in kept], start)
        end = start + len(kept)
        self.buffer.tokens[start:end] = self._tokens[start:end]
        self.buffer.length = end
        assert self._proposer is not None
        if not self.finished:
            self._proposer.learn(branches, logits, self.tokens, self._length - known)

    def _append(self, logits: Floats, forced: int | None = None) -> int:
        """Choose the next token, or take the forced one, and see whether the answer ends."""
        self._last_token = time.monotonic()
        self._first_token = self._first_token or self._last_token
        request, rules = self._request, self._request.rules
        generated = self._length - request.prompt.size
        adjusted = adjust(rules, logits, self.tokens, generated)
        token = forced if forced is not None else self._choose(adjusted, logits, generated)
        if token == rules.end_id:
            self.finished = True
            return token
        self._tokens[self._length] = token
        self._length += 1
        if request.want_log_probs:
            self._log_probs.append(log_probability(adjusted, token, self._candidate_count))
            self._cum_log_prob += self._log_probs[-1]
        if request.want_generation_logits:
            self._logits.append(logits.copy())
        if generated + 1 >= request.max_new or ends_with(self.tokens, request.stop_words):
            self.finished = True
        return token

    def _choose(self, adjusted: Floats, logits: Floats, generated: int) -> int:
        """Choose, and where rounding could have decided, decide by the canonical pass instead."""
        rules = self._request.rules
        noise = self._noise(logits)
        choice = choose(rules, adjusted, self._length, noise)
        if choice.sure:
            return choice.token
        canonical = self._model.canonical(self.tokens)
        adjusted = adjust(rules, canonical, self.tokens, generated)
        return choose(rules, adjusted, self._length, 0.0).token

    def _noise(self, logits: Floats) -> float:
        penalty = self._request.rules.repetition_penalty
        scale = max(float(np.maximum.reduce(logits)), -float(np.minimum.reduce(logits)))
        return self._model.noise * scale * max(penalty, 1.0 / penalty)

    @property
    def has_update(self) -> bool:
        """Whether there is an update to report."""
        return self.finished or (self._request.streaming and self._length > self._reported)

    def update(self, error: RequestError | None = None) -> Update:
        """Return the new tokens and the totals so far; with an error it is the last update."""
        fresh = self._tokens[self._reported : self._length].tolist()
        self._reported = self._length
        probs, self._log_probs = self._log_probs, []
        logits, self._logits = self._logits, []
        done = self.finished or error is not None
        context = np.concatenate(self._context) if self._context and done else None
        return Update(
            tokens=fresh,
            log_probs=probs,
            cum_log_prob=self._cum_log_prob,
            generation_logits=logits,
            context_logits=context,
            finished=done,
            drafted=self._drafted,
            accepted=self._accepted,
            steps=self._steps,
            reused=self.reused,
            error=error,
            usage=self._usage(),
        )

    def _usage(self) -> Usage:
        reused = -(-self.reused // BLOCK)
        return Usage(
            new_blocks=self.buffer.capacity // BLOCK - reused,
            reused_blocks=reused,
            arrived=self.ticket.arrived,
            scheduled=self._scheduled,
            first_token=self._first_token,
            last_token=self._last_token,
        )
