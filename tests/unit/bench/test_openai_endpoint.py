"""The counts of draft tokens in a streamed answer of the OpenAI API."""

import json
from functools import partial
from typing import Any

from specdec.client import Counts, Request
from specdec.client.load.exchange import Exchange, sample
from specdec.client.load.http_endpoint import events
from specdec.servers.openai_api import OPENAI


def line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def test_totals_after_the_last_text_are_not_those_of_one_round() -> None:
    texts = [line({"choices": [{"text": text}]}) for text in ("de", "f ", "f(")]
    drafts = {"num_draft_tokens": 12, "num_accepted_draft_tokens": 5}
    totals = {
        "choices": [],
        "usage": {"completion_tokens": 8},
        "metrics": {"speculative_decoding": drafts},
    }
    bodies = [*texts, line(totals), b"data: [DONE]\n\n"]
    decoder = partial(events, url="http://server")
    exchange = Exchange(0, 0.0, [0.1, 0.2, 0.3, 0.4, 0.5], bodies, decoder=decoder)
    answer = sample(exchange, OPENAI.reader(Request("x", token_counts=True)))
    assert len(answer.chunks) == 3
    assert answer.tokens == 8
    assert answer.counts == Counts(12, 5)
    assert answer.steps == ()
