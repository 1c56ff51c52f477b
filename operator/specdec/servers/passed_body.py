"""Bodies that the proxy passes on to a server with an OpenAI API, with the limits of each value.

Each kind of server behind the proxy has the rest in its module `bodies`. Such a server has many
more fields. Those that are missing multiply the work of one request, return tensors of the
vocabulary's size, name files and other servers, or run a template of the client.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError
from typing_extensions import override

from specdec.servers.openai_body import (
    BIASES,
    FIRST_ERROR,
    INT32,
    MESSAGES,
    STOP,
    TEMPLATE_TEXT,
    TEMPLATE_VARIABLES,
    TOOLS,
    Body,
    Message,
    Number,
    Text,
    Tool,
    at_most,
)

LOG_PROBS = 20
# Of one request; each takes a place among the requests in flight.
ANSWERS = 16
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


Answers = Annotated[int, Field(ge=1, le=ANSWERS)]
Count = Annotated[int, Field(ge=0, le=INT32)]
Limit = Annotated[int, Field(ge=1, le=INT32)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
Repetition = Annotated[Number, Field(gt=0, le=100)]
Share = Annotated[Number, Field(ge=0, le=1)]
Temperature = Annotated[Number, Field(ge=0, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Stop = Text | Annotated[list[Text], FIRST_ERROR, at_most(STOP, "strings")]
Short = Annotated[str, StringConstraints(max_length=TEMPLATE_TEXT)]
_Name = Annotated[Short, AfterValidator(_free)]
Variables = Annotated[
    dict[_Name, bool | int | Number | Short | None], at_most(TEMPLATE_VARIABLES, "variables")
]


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Passed(Body):
    """A body with the name of a model."""

    model: Text

    @property
    def answers(self) -> int:
        """How many answers the body asks for."""
        return 1


class Generated(Passed):
    """The fields of both kinds of completion."""

    max_tokens: Limit | None = None
    min_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32)] | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    stop_token_ids: Annotated[list[Count], FIRST_ERROR, at_most(STOP)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None
    logit_bias: Annotated[dict[str, Number], at_most(BIASES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: Limit | None = None
    thinking_token_budget: Count | None = None
    user: str | None = None
    n: Answers | None = None
    use_beam_search: Literal[False] | None = None

    @property
    @override
    def answers(self) -> int:
        return self.n or 1


class Completion(Generated):
    """The body of /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1), at_most(1, "prompts")]
    logprobs: int | None = Field(None, ge=0, le=LOG_PROBS)
    echo: bool | None = None


class Chat(Generated):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], FIRST_ERROR, at_most(MESSAGES)] = Field(min_length=1)
    max_completion_tokens: Limit | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=LOG_PROBS)
    tools: Annotated[list[Tool], FIRST_ERROR, at_most(TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    cache_salt: str | None = None
    chat_template_kwargs: Variables | None = None


@dataclass(frozen=True)
class Operation:
    """A POST that the proxy passes on.

    Attributes:
        body: what its body may have.
        named_events: the events of its stream have names, so that an error needs one.
        hides_refusals: the server answers a request that is at fault with status 500, too. So a
            server that reports itself as healthy has refused the request.
    """

    body: type[Passed]
    named_events: bool = False
    hides_refusals: bool = False


# By path.
Operations = Mapping[str, Operation]
