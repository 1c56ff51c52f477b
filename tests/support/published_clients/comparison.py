"""`speculative_decoding_test`: compares texts of speculative decoding and of the ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.published_clients.draft_target import draft_target
from support.published_clients.end_to_end import end_to_end


def speculative_test(
    urls: tuple[str, str, str], records: Sequence[Mapping[str, str]], *, bls: bool
) -> tuple[int, int]:
    """Compare texts; return the number that is empty or differs from the ensemble, and the total.

    Args:
        urls: of the target, the draft and the control.
        records: input, instruction and output of each prompt.
        bls: speculate in the BLS, instead of with `draft_target`.
    """
    target, draft, control = urls
    failed = 0
    for number, record in enumerate(records, 1):
        prompt = f"{record['input']} {record['instruction']}"
        length = int(len(record["output"].split(" ")) * 1.3)
        common: dict[str, Any] = {"biased": True, "request_id": str(number)}
        expected = end_to_end(control, "ensemble", [prompt], length, **common).texts
        if bls:
            options: dict[str, Any] = {"num_draft_tokens": 5, "use_draft_logits": False}
            texts = end_to_end(
                target, "tensorrt_llm_bls", [prompt], length, **common, **options
            ).texts
        else:
            texts = [draft_target((target, draft), prompt, length, request_id=str(number))]
        failed += texts != expected or not texts[0]
    return failed, len(records)
