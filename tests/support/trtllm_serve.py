"""SIMULATION of `trtllm-serve` on a CPU: options, ports, health, metrics and unprotected POSTs.

It generates fixed text. It follows TensorRT-LLM's documentation and sources, and has the
weaknesses of the real program: `/health_generate` sends a chat (`serve/openai_server.py`), which
fails if the checkpoint has no chat template (`inputs/utils.py`). The variable SIMULATION names a
folder, in which tests and the program signal to each other with files:

    loaded, generates    the test lets the program load, and generate
    rank-died            the test ends a rank: the program refuses all requests, but does not exit
    finish               the test lets requests end whose prompt contains "hold"
    held, aborted        such a request runs; its client has disconnected
    called-NAME          a client has sent one of the POSTs that no client may send

SIMULATION_RELEASE selects the release whose `/health` and counters the program has.
"""

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from support.llm_api import options_schema

DRAFTED, ACCEPTED = 3, 2
_CLOSED = ("release_memory", "resume_memory", "update_weights", "steady_clock_offset")
_HOLD = "hold"


class Simulation:
    """A simulated server."""

    def __init__(self, model: Path, options: dict[str, Any]) -> None:
        self.folder = Path(os.environ["SIMULATION"])
        self.newer = os.environ["SIMULATION_RELEASE"] >= "1.3"
        # As in the real program, the model has the name of its directory.
        self.name, self.options = model.name, options
        self.template = _chat_template(model)
        self.requests = 0
        self.iterations: list[dict[str, Any]] = []

    def application(self) -> Starlette:
        get, post = ["GET"], ["POST"]
        routes = [
            Route("/health", self.health, methods=get),
            Route("/health_generate", self.health_generate, methods=get),
            Route("/metrics", self.statistics, methods=get),
            Route("/v1/models", self.models, methods=get),
            Route("/v1/chat/completions", self.generate, methods=post),
            Route("/v1/completions", self.generate, methods=post),
            *(Route(f"/{name}", self.closed, methods=post) for name in _CLOSED),
        ]
        if self.options.get("return_perf_metrics"):
            routes.append(Route("/prometheus/metrics", self.counters, methods=get))
        return Starlette(routes=routes)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    async def health(self, _: Request) -> Response:
        return Response(status_code=503 if self.newer and self.has("rank-died") else 200)

    async def health_generate(self, _: Request) -> Response:
        """Generate a token for a chat: without a template it fails for ever."""
        works = self.has("generates") and not self.has("rank-died") and self.template
        return Response(status_code=200 if works else 500)

    async def statistics(self, _: Request) -> Response:
        """Return the statistics and remove them: a second client would not get them."""
        taken, self.iterations = self.iterations, []
        return JSONResponse(taken)

    async def counters(self, _: Request) -> Response:
        if not self.requests:
            # A counter with labels appears only after its first increment.
            return PlainTextResponse("")
        labels = f'{{engine_type="trtllm",model_name="{self.name}"}}'
        values = {"trtllm_request_success_total": self.requests}
        if self.newer:
            values |= {
                "trtllm_spec_decode_drafted_tokens_total": DRAFTED * self.requests,
                "trtllm_spec_decode_accepted_tokens_total": ACCEPTED * self.requests,
                # Counters of these names only count if the options report iterations.
                "trtllm_spec_decode_num_draft_tokens_total": DRAFTED * len(self.iterations),
                "trtllm_spec_decode_num_accepted_tokens_total": ACCEPTED * len(self.iterations),
            }
        lines = [
            f"# TYPE {name} counter\n{name}{labels} {float(value)}\n"
            for name, value in values.items()
        ]
        return PlainTextResponse("".join(lines))

    async def models(self, _: Request) -> Response:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "tensorrt_llm"}
        return JSONResponse({"object": "list", "data": [card]})

    async def closed(self, request: Request) -> Response:
        (self.folder / f"called-{request.url.path[1:]}").touch()
        return Response()

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        if not self.has("generates") or self.has("rank-died"):
            return _error("the executor has failed", "ServiceUnavailable", 503)
        tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        if tokens > self.options["max_seq_len"]:
            return _error(f"max_tokens {tokens} is too large", "BadRequestError", 400)
        chat = "messages" in body
        if body["model"] != self.name:
            return _error(f"the model {body['model']} does not exist", "NotFoundError", 404)
        if chat and not self.template:
            return _error("the tokenizer has no chat template", "BadRequestError", 400)
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        pieces = [f"w{index} " for index in range(tokens)]
        if body.get("stream"):
            events = self._events(pieces, prompt, chat=chat)
            return StreamingResponse(events, media_type="text/event-stream")
        if _HOLD in prompt:
            await self._hold(request)
        if self.has("aborted"):
            return Response(status_code=499)
        self._count()
        content: dict[str, Any] = {"text": "".join(pieces)}
        if chat:
            content = {"message": {"role": "assistant", "content": "".join(pieces)}}
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
        return JSONResponse({**self._frame(chat=chat, **content), "usage": usage})

    async def _events(self, pieces: list[str], prompt: str, *, chat: bool) -> AsyncIterator[str]:
        for index, piece in enumerate(pieces):
            if _HOLD in prompt and index == 1:
                await self._hold(None)
            content: dict[str, Any] = {"delta": {"content": piece}} if chat else {"text": piece}
            yield f"data: {json.dumps(self._frame(chat=chat, **content))}\n\n"
        self._count()
        yield "data: [DONE]\n\n"

    async def _hold(self, request: Request | None) -> None:
        (self.folder / "held").touch()
        try:
            while not self.has("finish"):
                await asyncio.sleep(0.02)
                # The web server cancels a stream when its client leaves. For other requests, the
                # real program also checks whether the client has left.
                if request is not None and await request.is_disconnected():
                    (self.folder / "aborted").touch()
                    return
        except asyncio.CancelledError:
            (self.folder / "aborted").touch()
            raise

    def _count(self) -> None:
        self.requests += 1
        if self.options.get("enable_iter_perf_stats"):
            self.iterations.append({"iter": self.requests})

    def _frame(self, *, chat: bool, **content: Any) -> dict[str, Any]:
        kind = "chat.completion" if chat else "text_completion"
        choice = {"index": 0, "finish_reason": None, **content}
        named = {"id": "1", "object": kind, "created": 0, "model": self.name}
        return {**named, "choices": [choice]}


def _chat_template(model: Path) -> bool:
    config = model / "tokenizer_config.json"
    return config.is_file() and "chat_template" in json.loads(config.read_text("utf-8"))


def _error(message: str, kind: str, code: int) -> Response:
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": code}
    return JSONResponse(body, code)


def main() -> None:
    parser = argparse.ArgumentParser(prog="trtllm-serve", allow_abbrev=False)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", choices=["pytorch", "tensorrt"], default="pytorch")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=8000)
    # The other flags of 1.1 and 1.2 that the operator sets. The options file has precedence.
    for flag in ("max_batch_size", "max_num_tokens", "max_seq_len", "tp_size", "pp_size"):
        parser.add_argument(f"--{flag}", type=int)
    parser.add_argument("--config", "--extra_llm_api_options", dest="config", type=Path)
    given = parser.parse_args()
    options = yaml.safe_load(given.config.read_text("utf-8"))
    release = os.environ["SIMULATION_RELEASE"]
    for problem in Draft202012Validator(options_schema(release)).iter_errors(options):
        sys.exit(f"SIMULATION: {problem.message}")
    if not given.model.is_dir():
        sys.exit(f"SIMULATION: {given.model} is no directory")
    simulation = Simulation(given.model, options)
    # The program binds its port before the model loads; the port refuses connections until then.
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((given.host, given.port))
        asyncio.run(_serve(simulation, bound))


async def _serve(simulation: Simulation, bound: socket.socket) -> None:
    while not simulation.has("loaded"):  # noqa: ASYNC110 -- another process signals
        await asyncio.sleep(0.02)
    config = uvicorn.Config(
        simulation.application(), lifespan="off", access_log=False, log_level="warning"
    )
    await uvicorn.Server(config).serve([bound])


if __name__ == "__main__":
    main()
