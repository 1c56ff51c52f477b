"""The fields that the proxy passes on to `trtllm-serve`, with the limits of each value.

The server has many more. Those that are missing here multiply the work of one request, return
tensors of the vocabulary's size, compile a grammar or a template of the client, or name files and
other servers. Source: TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from specdec.images.openai.limits import (
    BIASES,
    MESSAGES,
    STOP,
    TEMPLATE_TEXT,
    TEMPLATE_VARIABLES,
    TOOLS,
)
from specdec.images.openai.models import (
    FIRST_ERROR,
    INT32,
    Body,
    Message,
    Number,
    Text,
    Tool,
    at_most,
)

_LOG_PROBS = 20
# Parameters of `apply_chat_template` in Transformers, which gets the variables as arguments.
_RESERVED = frozenset(
    {
        *("add_generation_prompt", "chat_template", "continue_final_message", "conversation"),
        *("documents", "max_length", "messages", "padding", "processor_kwargs"),
        *("return_assistant_tokens_mask", "return_dict", "return_tensors", "self", "tokenize"),
        *("tokenizer_kwargs", "tools", "truncation"),
    }
)


def _free(name: str) -> str:
    if name in _RESERVED:
        raise PydanticCustomError("reserved", "the server sets it; leave it out")
    return name


_Count = Annotated[int, Field(ge=0, le=INT32)]
_Penalty = Annotated[Number, Field(ge=-2, le=2)]
_Share = Annotated[Number, Field(ge=0, le=1)]
_Name = Annotated[str, StringConstraints(max_length=TEMPLATE_TEXT), AfterValidator(_free)]
_Scalar = bool | int | Number | Annotated[str, StringConstraints(max_length=TEMPLATE_TEXT)] | None


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class TextFormat(Body):
    """The only form of answers: others compile a grammar of the client."""

    type: Literal["text"]


class Passed(Body):
    """The fields of both kinds of completion."""

    model: Text
    max_tokens: int | None = Field(None, ge=1, le=INT32)
    min_tokens: _Count | None = None
    temperature: Number | None = Field(None, ge=0, le=2)
    top_p: _Share | None = None
    top_p_min: _Share | None = None
    min_p: _Share | None = None
    top_k: _Count | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Text | Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")] | None = None
    stop_token_ids: Annotated[list[_Count], FIRST_ERROR, at_most(STOP)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: Number | None = Field(None, gt=0, le=100)
    logit_bias: Annotated[dict[str, Number], at_most(BIASES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: TextFormat | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=1, le=INT32)
    prompt_ignore_length: _Count | None = None
    thinking_token_budget: _Count | None = None
    user: str | None = None
    # One answer, whose work is that of one request.
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    use_beam_search: Literal[False] | None = None
    return_context_logits: Literal[False] | None = None


class PassedCompletion(Passed):
    """The body of /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1), at_most(1, "prompts")]
    logprobs: int | None = Field(None, ge=0, le=_LOG_PROBS)
    echo: bool | None = None


class PassedChat(Passed):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], FIRST_ERROR, at_most(MESSAGES)] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=INT32)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_LOG_PROBS)
    tools: Annotated[list[Tool], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    cache_salt: str | None = None
    chat_template_kwargs: (
        Annotated[dict[_Name, _Scalar], at_most(TEMPLATE_VARIABLES, "variables")] | None
    ) = None
