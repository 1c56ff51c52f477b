"""Requests to the BLS and to the ensemble, which have the inputs of TensorRT-LLM's guides."""

from typing_extensions import override

from specdec.servers.chunk import ALWAYS, Deltas
from specdec.servers.encoding import Declaration, Requests, TensorCall, refuse_chat
from specdec.servers.errors import BadRequestError
from specdec.servers.request import Request
from specdec.servers.tensor import Tensor, tensor
from specdec.triton.model_names import BLS, PREPROCESSING, TARGET

_DRAFT_LENGTH, _STOP = "num_draft_tokens", "stop"
_ENGINE_INPUTS = ("input_ids", "input_lengths", "request_output_len")


class BlsRequests(Requests):
    """Models with the inputs `text_input` and `max_tokens`; each response has new text only."""

    model = BLS
    drafts_by_request = True
    tokenizer = PREPROCESSING
    one_end = True

    @override
    def takes(self, inputs: frozenset[str]) -> bool:
        return {"text_input", "max_tokens"} <= inputs

    @override
    def takes_draft_length(self, declared: Declaration) -> bool:
        return _DRAFT_LENGTH in declared.inputs

    @override
    def counts_tokens(self, declared: Declaration) -> bool:
        return "return_num_output_tokens" in declared.inputs

    @override
    def streams_rounds(self, declared: Declaration) -> bool:
        return declared.streams and self.takes_draft_length(declared)

    @override
    def ends_at_stop(self, declared: Declaration) -> bool:
        # An ensemble compares token ids.
        return self.takes_draft_length(declared)

    @override
    def shortens_limits(self, declared: Declaration) -> bool:
        return self.takes_draft_length(declared)

    @override
    def repeats_samples(self, declared: Declaration) -> bool:
        # TensorRT-LLM seeds each request, with the same number by default.
        return self.takes_parameter("seed", declared)

    @override
    def encode(self, request: Request, declared: Declaration) -> TensorCall:
        """Tensors of shape [1, n], by the input names that the model declares."""
        refuse_chat(request)
        if request.draft_tokens is not None and not self.takes_draft_length(declared):
            raise BadRequestError(
                f"model {declared.name} has no input {_DRAFT_LENGTH}; use model {BLS}, or leave "
                "draft tokens out"
            )
        names = (*ALWAYS, *sorted(request.optional_outputs()))
        outputs = tuple(name for name in names if name in declared.outputs)
        return TensorCall(declared.name, request.tensors(declared.inputs), outputs)

    @override
    def reader(self, request: Request) -> Deltas:
        return Deltas(request.optional_outputs())

    @override
    def stop(self, declared: Declaration) -> TensorCall | None:
        if _STOP in declared.inputs:
            return TensorCall(declared.name, {"text_input": _one("BYTES", ""), **_stopped()})
        if declared.ensemble:
            # Triton gives the calls of an ensemble the id of its request.
            lengths = {name: _one("INT32", 1) for name in _ENGINE_INPUTS}
            return TensorCall(TARGET, {**lengths, **_stopped()})
        return None


def _stopped() -> dict[str, Tensor]:
    return {_STOP: _one("BOOL", True)}


def _one(dtype: str, value: object) -> Tensor:
    return tensor(dtype, value).batched()


REQUESTS = BlsRequests()
