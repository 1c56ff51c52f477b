"""The bodies that the proxy passes on to `trtllm-serve`.

Source: TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py.
"""

from typing import Literal

from pydantic import Field

from specdec.servers.openai_body import INT32, Body
from specdec.servers.passed_body import (
    Chat,
    Completion,
    Count,
    Generated,
    Operation,
    Operations,
    Share,
)


class TextFormat(Body):
    """The only form of answers: others compile a grammar of the client."""

    type: Literal["text"]


class _Own(Generated):
    """The fields that only this server has."""

    # It has no value that turns the limit off.
    top_k: int | None = Field(None, ge=0, le=INT32)
    top_p_min: Share | None = None
    prompt_ignore_length: Count | None = None
    response_format: TextFormat | None = None
    # Its sources do not show whether it drafts for several answers.
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    return_context_logits: Literal[False] | None = None


class TrtllmCompletion(_Own, Completion):
    """The body of /v1/completions."""


class TrtllmChat(_Own, Chat):
    """The body of /v1/chat/completions."""


BODIES: Operations = {
    "/v1/completions": Operation(TrtllmCompletion),
    "/v1/chat/completions": Operation(TrtllmChat),
}
