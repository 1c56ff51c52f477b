"""Turn a validated body into a `Task`: what is generated, and how it is answered."""

from dataclasses import dataclass, replace

from specdec.client.errors import BadRequestError
from specdec.images.openai.body import shown
from specdec.images.openai.errors import ApiError, context_length, unknown_model
from specdec.images.openai.models import Chat, Common, Completion
from specdec.images.openai.sampling import sampling
from specdec.images.openai.settings import EndpointSettings
from specdec.servers.encoding import Declaration, Requests
from specdec.servers.request import Request

_COMPLETION_TOKENS = 16
_SCOPE_INPUT = "lookup_scope"


@dataclass(frozen=True)
class Served:
    """The model of Triton that answers.

    Attributes:
        requests: how it is asked.
        declared: its declaration.
        max_seq_len: most tokens of prompt and answer; 0 if unknown.
        add_special_tokens: the server adds the tokenizer's special tokens to a prompt.
    """

    requests: Requests
    declared: Declaration
    max_seq_len: int = 0
    add_special_tokens: bool = True

    @property
    def counts_tokens(self) -> bool:
        """The server reports the numbers of prompt and output tokens."""
        return self.requests.counts_tokens(self.declared)

    @property
    def gives_log_probs(self) -> bool:
        """The server can report the log probabilities of tokens."""
        return self.requests.gives_log_probs(self.declared)

    def takes(self, parameter: str) -> bool:
        """A request may have the sampling parameter."""
        return self.requests.takes_parameter(parameter, self.declared)

    @property
    def repeats_samples(self) -> bool:
        """Requests without a seed get the same samples."""
        return self.requests.repeats_samples(self.declared)

    @property
    def ends_at_stop(self) -> bool:
        """The model ends its output at a stop string."""
        return self.requests.ends_at_stop(self.declared)


@dataclass(frozen=True)
class Task:
    """A validated request.

    Attributes:
        request: for the server.
        chat: answer as a chat completion.
        stream, include_usage, include_metrics: the form of the answer.
        running_usage: each piece of a stream has the usage so far.
        echo: text before the answer.
        stop: strings that end the answer, and are no part of it.
        tools: names of functions whose calls are split from the text.
        log_probs: the answer has the log probabilities of its tokens.
        max_tokens: of the answer, as requested.
    """

    request: Request
    chat: bool
    stream: bool
    include_usage: bool
    running_usage: bool
    include_metrics: bool
    echo: str
    stop: tuple[str, ...]
    tools: frozenset[str]
    log_probs: bool
    max_tokens: int


def task(body: Common, prompt: str, served: Served, settings: EndpointSettings) -> Task:
    """The task of a validated body.

    Args:
        body: a `Completion` or a `Chat`.
        prompt: its text, for a chat the rendered template.
        served: the declaration of the model.
        settings: of the endpoint.

    Raises:
        ApiError: a value that this server cannot serve.
    """
    _refuse(body, served, settings)
    chat = isinstance(body, Chat)
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    ends = settings.ends if served.requests.one_end and not body.ignore_eos else {}
    log_probs = _log_probs(body, served)
    # The probabilities of a piece belong to its text. So the server sends pieces even if the
    # answer is not streamed to the client.
    stream = served.declared.streams and bool(body.stream or log_probs)
    limit = _max_tokens(body, served, settings)
    try:
        request = Request(
            prompt=prompt,
            model=settings.model,
            max_tokens=limit,
            draft_tokens=body.num_draft_tokens,
            stream=stream,
            # TensorRT-LLM before 1.2 reports no counts, but a probability for each token. Then the
            # probabilities are counted.
            log_probs=log_probs or (not served.counts_tokens and served.gives_log_probs),
            token_counts=served.counts_tokens,
            stop_words=(*stop, *ends),
            **sampling(body, settings.defaults, served.takes, draws_seed=served.repeats_samples),
        )
        served.requests.encode(request, served.declared)
        for text in (prompt, *stop):
            text.encode()
    except BadRequestError as error:
        raise ApiError(str(error)) from None
    except UnicodeEncodeError:
        raise ApiError("a text has half a surrogate pair; send valid Unicode") from None
    options = body.stream_options
    return Task(
        request=request,
        chat=chat,
        stream=bool(body.stream),
        include_usage=options is not None and bool(options.include_usage),
        running_usage=options is not None and bool(options.continuous_usage_stats),
        include_metrics=bool(body.include_metrics),
        echo=prompt if isinstance(body, Completion) and body.echo else "",
        stop=(*stop, *(text for text, left_out in ends.items() if not left_out)),
        tools=_functions(body),
        log_probs=log_probs,
        max_tokens=limit,
    )


def in_scope(task: Task, scope: str | None, served: Served) -> Task:
    """The task with the scope of its lookups, if the server has a memory of texts."""
    if not scope or _SCOPE_INPUT not in served.declared.inputs:
        return task
    return replace(task, request=replace(task.request, lookup_scope=scope))


def prompts_of(body: Completion, most: int) -> list[str]:
    """The prompts of a completion, of which a stream has one.

    Args:
        body: a validated body.
        most: prompts of one request.

    Raises:
        ApiError: several prompts of a stream or too many, token ids, or an empty prompt.
    """
    prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise ApiError("prompt has token ids; send text", param="prompt")
    count = len(prompts)
    if count != 1 and (body.stream or not 0 < count <= most):
        limit = "a stream has one" if body.stream else f"send 1 to {most}"
        raise ApiError(f"prompt has {count} items; {limit}", param="prompt")
    if "" in prompts:
        raise ApiError("prompt is empty; send at least one character", param="prompt")
    return prompts


def _refuse(body: Common, served: Served, settings: EndpointSettings) -> None:
    """Refuse what the server does not offer."""
    if body.model != settings.served_name:
        raise unknown_model(body.model, settings.served_name)
    values: dict[str, tuple[bool, str]] = {
        "n": (body.n not in (None, 1), "this server gives one answer; set it to 1"),
        "ignore_eos": (
            bool(body.ignore_eos) and not served.takes("end_id"),
            "this server always ends answers at the end token; leave it out",
        ),
        "stream_options": (
            body.stream_options is not None and not body.stream,
            "it needs stream; set stream to true, or leave it out",
        ),
    }
    if isinstance(body, Completion):
        values |= {
            "echo": (
                bool(body.echo) and body.logprobs is not None,
                "this server has no log probabilities of prompts; leave out echo or logprobs",
            ),
        }
    if isinstance(body, Chat):
        values |= _unsupported_chat(body, settings)
    for name, (is_refused, message) in values.items():
        if is_refused:
            raise ApiError(f"{name} is {shown(getattr(body, name))}, but {message}", param=name)


def _unsupported_chat(body: Chat, settings: EndpointSettings) -> dict[str, tuple[bool, str]]:
    return {
        "tool_choice": (
            body.tool_choice not in (None, "auto", "none"),
            "the model itself decides about tool calls; set it to auto or none",
        ),
        "tools": (
            bool(body.tools) and body.tool_choice != "none" and settings.tool_parser is None,
            "this service has no parser of tool calls; leave them out, or configure one",
        ),
    }


def _functions(body: Common) -> frozenset[str]:
    if not isinstance(body, Chat) or body.tool_choice == "none":
        return frozenset()
    return frozenset(tool.function.name for tool in body.tools or ())


def _log_probs(body: Common, served: Served) -> bool:
    if isinstance(body, Completion):
        name, alternatives, requested = "logprobs", body.logprobs, body.logprobs is not None
    else:
        assert isinstance(body, Chat)
        name, alternatives = "top_logprobs", body.top_logprobs
        requested = bool(body.logprobs)
        if alternatives is not None and not requested:
            raise ApiError("top_logprobs needs logprobs; set logprobs to true", param=name)
    if alternatives:
        raise ApiError(
            f"{name} is {alternatives}, but this server returns the probabilities of the chosen "
            "tokens only; set it to 0",
            param=name,
        )
    if requested and not served.gives_log_probs:
        raise ApiError(
            "logprobs is set, but this server returns no log probabilities; leave it out",
            param="logprobs",
        )
    return requested


def _max_tokens(body: Common, served: Served, settings: EndpointSettings) -> int:
    name, limit = "max_tokens", body.max_tokens
    if isinstance(body, Chat) and body.max_completion_tokens is not None:
        if limit not in (None, body.max_completion_tokens):
            raise ApiError(
                f"max_tokens is {limit} and max_completion_tokens is "
                f"{body.max_completion_tokens}; send one of them",
                param="max_tokens",
            )
        name, limit = "max_completion_tokens", body.max_completion_tokens
    longest = served.max_seq_len
    if limit is None:
        default = settings.max_tokens if isinstance(body, Chat) else _COMPLETION_TOKENS
        # The BLS shortens a limit to the room that the prompt leaves.
        shortened = served.requests.shortens_limits(served.declared)
        room = longest - 1 if longest and shortened else default
        return max(1, room if isinstance(body, Chat) else min(default, room))
    if longest and limit >= longest:
        raise context_length(f"{name} is {limit}; set it below {longest}", longest, name)
    return limit
