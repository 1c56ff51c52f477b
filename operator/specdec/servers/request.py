"""A generation request to a model with text input, validated before it is sent.

The package of each kind of server encodes it. `Request.fields` has the values by the names of the
BLS, and `Request.tensors` by the input names that a model declares.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from typing_extensions import override

from specdec.servers.errors import BadRequestError
from specdec.servers.sampling import Field, Sampling, input_name
from specdec.servers.tensor import Tensor, tensor
from specdec.triton.model_names import BLS

# Optional outputs: field of `Request` -> inputs that request it, and the names of its outputs.
_OPTIONAL_OUTPUTS = {
    "log_probs": (("return_log_probs",), ("cum_log_probs", "output_log_probs")),
    "context_logits": (("return_context_logits",), ("context_logits",)),
    "generation_logits": (("return_generation_logits",), ("generation_logits",)),
    "token_counts": (
        ("return_num_input_tokens", "return_num_output_tokens"),
        ("num_input_tokens", "num_output_tokens"),
    ),
}


@dataclass(frozen=True)
class Request(Sampling):
    """One prompt for one Triton model.

    Attributes:
        prompt: the text to continue.
        model: `tensorrt_llm_bls` speculates; `ensemble` calls the target's engine without the BLS.
        max_tokens: maximum of new tokens.
        draft_tokens: per round; None applies the server's default, 0 disables speculation.
        use_draft_logits: accept by the draft's logits; None applies the server's default.
        lookup_scope: name of a group of texts. The server's lookups search this group, and the
            text of this request joins it. None names no group.
        stream: several chunks instead of one.
        log_probs, context_logits, generation_logits, token_counts: optional outputs.
        chat: the prompt is a user's message to an OpenAI endpoint, which applies its template.

    Raises:
        BadRequestError: a value no server could take.
    """

    prompt: str
    model: str = BLS
    max_tokens: int = 64
    draft_tokens: int | None = None
    use_draft_logits: bool | None = None
    lookup_scope: str | None = None
    stream: bool = True
    log_probs: bool = False
    context_logits: bool = False
    generation_logits: bool = False
    token_counts: bool = False
    chat: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prompt:
            raise BadRequestError("prompt is empty; give at least one character")
        if self.max_tokens < 1:
            raise BadRequestError(f"max tokens is {self.max_tokens}; set it to 1 or more")
        if self.draft_tokens is not None and self.draft_tokens < 0:
            raise BadRequestError(
                f"draft tokens is {self.draft_tokens}; set it to 0 (off) or more, or leave it out"
            )
        if self.draft_tokens and (self.beam_width or 1) > 1:
            raise BadRequestError(
                f"beam width is {self.beam_width} and draft tokens {self.draft_tokens}; "
                "speculation has one beam: leave out one of them"
            )

    def tensors(self, declared: Collection[str]) -> dict[str, Tensor]:
        """The request as tensors of shape [1, n], by the input names that the model declares.

        Raises:
            BadRequestError: the model has no input for a value of the request.
        """
        return {
            input_name(field, declared, self.model): value.batched()
            for field, value in self.fields(declared)
        }

    def optional_outputs(self) -> frozenset[str]:
        """The names of the optional outputs that this request asks for."""
        return frozenset(
            output
            for field, (_, outputs) in _OPTIONAL_OUTPUTS.items()
            if getattr(self, field)
            for output in outputs
        )

    def fields(self, declared: Collection[str]) -> Iterator[Field]:
        """The values of the request, by the names of the BLS, as tensors of shape [n]."""
        yield "text_input", tensor("BYTES", self.prompt)
        yield "max_tokens", tensor("INT32", self.max_tokens)
        yield "stream", tensor("BOOL", self.stream)
        # The answer contains the generated text only; the caller knows the prompt.
        yield "exclude_input_in_output", tensor("BOOL", True)
        if "return_perf_metrics" in declared:
            yield "return_perf_metrics", tensor("BOOL", True)
        if self.draft_tokens is not None:
            yield "num_draft_tokens", tensor("INT32", self.draft_tokens)
        if self.use_draft_logits is not None:
            yield "use_draft_logits", tensor("BOOL", self.use_draft_logits)
        if self.lookup_scope is not None:
            yield "lookup_scope", tensor("BYTES", self.lookup_scope)
        yield from self.numbers()
        for field in ("stop_words", "bad_words"):
            if getattr(self, field):
                yield field, tensor("BYTES", *getattr(self, field))
        if self.bias_words:
            yield "embedding_bias_words", tensor("BYTES", *self.bias_words)
            yield "embedding_bias_weights", tensor("FP32", *self.bias_weights)
        for optional, (inputs, _) in _OPTIONAL_OUTPUTS.items():
            if getattr(self, optional):
                yield from ((name, tensor("BOOL", True)) for name in inputs)
