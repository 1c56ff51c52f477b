"""A fake server with target, draft, BLS and ensemble; see `fake_pair`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2
from typing_extensions import override

from unit.client.fake_pair import END, Pair, arrays, response

INPUTS = {
    "tensorrt_llm_bls": ("text_input", "max_tokens", "stream", "exclude_input_in_output"),
    "ensemble": ("text_input", "max_tokens", "stream", "exclude_input_in_output"),
    "preprocessing": ("QUERY", "REQUEST_OUTPUT_LEN"),
    "postprocessing": ("TOKENS_BATCH", "SEQUENCE_LENGTH"),
}
COUNTS = ("total_draft_tokens", "total_accepted_draft_tokens")


@dataclass
class Service(Pair):
    """Both sides of a verification: the BLS and the baseline.

    Attributes:
        wrong: the prompt for which the answer of the BLS has a wrong last letter.
        absent: models that are not served.
        drafts: whether the BLS takes `num_draft_tokens`.
        counts: whether the BLS reports draft tokens: two rounds of three, two accepted in each.
        streams: whether the BLS is decoupled.
        longest: the longest prompt that the server accepts.
        stops_at: number of the first call of the BLS that fails as unavailable; 0 for none.
    """

    wrong: str = ""
    absent: tuple[str, ...] = ()
    drafts: bool = True
    counts: bool = True
    streams: bool = True
    longest: int = 100
    stops_at: int = 0
    calls: int = 0

    @override
    def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    @override
    def ModelConfig(self, request: Any, context: Any) -> Any:
        if request.name in self.absent:
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model: '{request.name}'")
        if request.name not in INPUTS:
            return super().ModelConfig(request, context)
        config = model_config_pb2.ModelConfig(name=request.name)
        names = [*INPUTS[request.name]]
        if request.name == "tensorrt_llm_bls":
            config.model_transaction_policy.decoupled = self.streams
            names += ["num_draft_tokens"] if self.drafts else []
            counts = COUNTS if self.counts else ()
            config.output.extend(model_config_pb2.ModelOutput(name=n) for n in counts)
        config.output.extend([model_config_pb2.ModelOutput(name="text_output")])
        config.input.extend(model_config_pb2.ModelInput(name=name) for name in names)
        return service_pb2.ModelConfigResponse(config=config)

    @override
    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            if request.model_name not in ("tensorrt_llm_bls", "ensemble"):
                yield from super().ModelStreamInfer(iter([request]), context)
                continue
            given = arrays(request)
            if len(given["text_input"].item()) > self.longest:
                yield service_pb2.ModelStreamInferResponse(error_message="prompt is too long")
                continue
            self.calls += request.model_name == "tensorrt_llm_bls"
            if self.stops_at and self.calls >= self.stops_at:
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopped")
            for part in self._parts(request.model_name, given):
                yield service_pb2.ModelStreamInferResponse(infer_response=part)
            final = service_pb2.ModelStreamInferResponse()
            final.infer_response.parameters["triton_final_response"].bool_param = True
            yield final

    def _parts(self, model: str, given: dict[str, Any]) -> Iterator[Any]:
        self.seen.append((model, given))
        prompt = given["text_input"].item()
        ids = list(prompt)
        for _ in range(int(given["max_tokens"].item())):
            ids.append(self.target(ids))
            if ids[-1] == END:
                break
        text = bytes(token for token in ids[len(prompt) :] if token)
        if model == "ensemble":
            yield response(text_output=np.array([text], object))
            return
        if self.wrong and prompt == self.wrong.encode():
            text = text[:-1] + b"!"
        halves = (text[:2], text[2:], b"") if self.streams else (text,)
        drafting = self.counts and not (
            "num_draft_tokens" in given and not given["num_draft_tokens"]
        )
        for number, half in enumerate(halves):
            rounds = min(number + 1, 2) if self.streams else 2
            counts = (3 * rounds, 2 * rounds) if drafting else (0, 0)
            reported = dict(zip(COUNTS, counts, strict=True)) if self.counts else {}
            yield response(
                text_output=np.array([half], object),
                **{name: np.array([[count]], np.int32) for name, count in reported.items()},
            )
