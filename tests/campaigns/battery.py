"""Malformed requests of thousands of kinds: after each, the server answers a valid request.

`make campaign NAME=battery` sends kinds of `campaigns/malformed.py`, drawn over all models, to
every layout on a real tritonserver. The valid request's text must be the same each time. No error
may show a traceback or a path of the server. At the end, memory and /dev/shm may be at most 5 %
larger than after the kinds of the warm-up.
"""

import argparse
import http.client
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2

from campaigns.good import GOOD, Kind
from campaigns.malformed import kinds
from specdec.backends.methods import lookahead
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support.bench_report import Report
from support.server_memory import memory_of
from support.shipped_pair import PAIR, build
from support.triton_client import RefusedError, ask, ask_once, text
from support.triton_server import Server, installed_server

KINDS = 2000
GROWTH = 0.05
# Share of the kinds that warm up the server: then every model has handled many sizes.
_WARM = 0.3
# Size of an engine's cache, whose memory grows until it is full. A few of the longest answers fill
# it: the cache keeps the tokens of each, because no request continues an earlier answer.
_KV_TOKENS = 2048
_LONGEST = 6
# The server's limit for a prompt before encoding, for checkpoints with short tokens.
_PROMPT_BYTES = 65_536
# The BLS encodes prompts of up to 32 KiB on two threads, and longer ones on a third.
_SHORT_PROMPT_BYTES = 32_000
_SHORT_PROMPTS = 8
_MODELS = ("tensorrt_llm_bls", "ensemble")
_SECONDS = 60.0
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_GOOD = {"text_input": "def f(", "max_tokens": 4, "exclude_input_in_output": True}
# Signs of the server's code and files, which no error message may contain.
_LEAKS = ("Traceback", 'File "', ", line ", "site-packages")
# Each layout has its release, streaming or not, and its method.
LAYOUTS: dict[str, tuple[str, bool, str]] = {
    "streaming": ("0.19.0", True, "DraftTarget"),
    "unary": ("0.18.0", False, "DraftTarget"),
    "newest": ("1.2.1", True, "DraftTarget"),
    "baseline": ("0.19.0", True, "None"),
    "lookahead": ("0.19.0", True, "Lookahead"),
}


@dataclass
class Tally:
    """The results of a layout.

    Attributes:
        ends: requests by how they ended: answered, refused, silent or closed.
        wrong: a message for each violation.
        memory, shared: growth since the warm-up, as a share.
    """

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: float = 0.0
    shared: float = 0.0


@contextmanager
def served(layout: str) -> Iterator[Server]:
    """Yield a server of a layout with the shipped pair."""
    version, decoupled, method = LAYOUTS[layout]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mode = {"Lookahead": "lookahead_decoding", "None": "none"}
        target = build(folder, "target", "target", mode=mode.get(method, "draft_tokens_external"))
        plan = RepositoryPlan(
            version=version,
            decoupled=decoupled,
            tokenizer_dir=str(PAIR / "target"),
            target=ModelPlan(str(target), (0,), max_tokens_in_paged_kv_cache=_KV_TOKENS),
            max_batch_size=16,
            max_seq_len=512,
        )
        if method == "DraftTarget":
            draft = ModelPlan(str(build(folder, "draft", "draft", mode="none")), (0,))
            draft = replace(draft, max_tokens_in_paged_kv_cache=_KV_TOKENS)
            plan = replace(plan, draft=draft, draft_tokens=4, max_draft_tokens=8)
            plan = replace(plan, rows_per_call=16 if decoupled else 1)
        if method == "Lookahead":
            own = lookahead.parameters(4, 3, 4)
            plan = replace(plan, target=replace(plan.target, parameters=own))
        with Server(installed_server(), render(plan), folder / "server") as server:
            yield server


def chosen(layout: str, count: int | None = None) -> list[Kind]:
    """Return at most `count` kinds for all models of a layout, in its own random order."""
    version, _, method = LAYOUTS[layout]
    models = [model for model in GOOD if model != "tensorrt_llm_draft" or method == "DraftTarget"]
    every = {
        (kind.model, kind.route, kind.body, kind.headers): kind
        for model in models
        for kind in kinds(model, version)
    }
    shuffled = list(every.values())
    random.Random(layout).shuffle(shuffled)
    return shuffled[:count]


def run(server: Server, layout: str, every: Sequence[Kind]) -> Tally:
    """Send each kind and then a valid request; stop if the server has ended."""
    client = _Client(server, decoupled=LAYOUTS[layout][1])
    desired, tally, before = client.good(), Tally(), memory_of(server)
    for number, kind in enumerate(every):
        if number == int(len(every) * _WARM):
            client.fill_caches()
            before = memory_of(server)
        try:
            end, message = client.send(kind)
            tally.ends[end] += 1
            if any(leak in message for leak in (*_LEAKS, str(server.repository))):
                tally.wrong.append(f"{kind.name} shows the server's inside: {message[:300]}")
            if end == "silent":
                tally.wrong.append(f"{kind.name} had no end in {_SECONDS:g} s")
            if (actual := client.good()) != desired:
                tally.wrong.append(f"after {kind.name} the answer was {actual!r}")
        except Exception as error:  # noqa: BLE001 - a lost answer is a result, not the end
            tally.wrong.append(f"after {kind.name}: {type(error).__name__} {error}"[:300])
        if not server.processes() or not client.alive():
            tally.wrong.append(f"{kind.name} ended the server")
            return tally
    if "Traceback" in server.log():
        tally.wrong.append("the server's log has a traceback")
    after = memory_of(server)
    tally.memory = after.memory / before.memory - 1
    tally.shared = after.shared / before.shared - 1
    return tally


class _Client:
    """Sends kinds unchanged, over gRPC or HTTP."""

    def __init__(self, server: Server, *, decoupled: bool) -> None:
        self._server = server
        self._decoupled = decoupled
        self._channel = grpc.insecure_channel(server.url)
        self._stream = self._channel.stream_stream(
            _STREAM,
            request_serializer=None,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )

    def good(self, **values: int) -> str:
        """Return the answers of the BLS and the ensemble to the valid request with these values.

        The ensemble uses every model except the BLS.
        """
        return " | ".join(self._ask(model, **values) for model in _MODELS)

    def _ask(self, model: str, **values: int | str) -> str:
        request = {**_GOOD, **values}
        if self._decoupled:
            return text(ask(self._server.url, model, **request))
        return text([ask_once(self._server.url, model, **request)])

    def fill_caches(self) -> None:
        """Fill every engine's cache with long answers, and have long prompts encoded.

        A thread that has encoded a long prompt keeps its memory.
        """
        for _ in range(_LONGEST):
            self.good(max_tokens=10_000, end_id=-1)
        for model in _MODELS:
            self._encode(model, _PROMPT_BYTES)
            with ThreadPoolExecutor(_SHORT_PROMPTS) as pool:
                list(pool.map(self._encode, [model] * _SHORT_PROMPTS, repeat(_SHORT_PROMPT_BYTES)))

    def _encode(self, model: str, size: int) -> None:
        # The server encodes the prompt, then refuses it for its number of tokens.
        with suppress(RefusedError):
            self._ask(model, text_input="x" * size)

    def alive(self) -> bool:
        """Return whether the server reports that it is live."""
        try:
            return self._http("GET", "/v2/health/live", b"", ())[0] == 200
        except OSError:
            return False

    def send(self, kind: Kind) -> tuple[str, str]:
        """Send a kind; return how the request ended, and its error message."""
        if kind.route == "grpc":
            return self._over_grpc(kind)
        try:
            path = f"/v2/models/{kind.model}/{kind.route}"
            status, body = self._http("POST", path, kind.body, kind.headers)
        except TimeoutError:
            return "silent", ""
        except (OSError, http.client.HTTPException):
            return "closed", ""
        return ("answered", "") if status == 200 else ("refused", body)

    def _over_grpc(self, kind: Kind) -> tuple[str, str]:
        end = "closed", ""
        try:
            # Read to the end: Triton keeps the memory of a call that its client cancels.
            for response in self._stream(iter([kind.body]), timeout=_SECONDS):
                if response.error_message:
                    end = "refused", response.error_message
                elif response.infer_response.parameters["triton_final_response"].bool_param:
                    end = "answered", ""
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return "silent", ""
            return "refused", str(error.details())
        return end

    def _http(
        self, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]]
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._server.http_port, timeout=_SECONDS
        )
        try:
            connection.request(method, path, body, dict(headers))
            reply = connection.getresponse()
            return reply.status, reply.read().decode("utf-8", "replace")
        finally:
            connection.close()


def main() -> int:
    """Run the campaign; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.battery", description=__doc__)
    parser.add_argument("--kinds", type=int, default=KINDS, help="of each layout (%(default)s)")
    parser.add_argument("--layout", choices=LAYOUTS, action="append", help="(all)")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    total = 0
    for layout in options.layout or LAYOUTS:
        every = chosen(layout, options.kinds)
        total += len(every)
        with served(layout) as server:
            judge(layout, run(server, layout, every), report)
    report.figure("battery.kinds", [total], "kinds", goal=1000, better="higher")
    report.figure("battery.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


def judge(layout: str, tally: Tally, report: Report) -> None:
    """Report the results of a layout with their goals."""
    for end, count in sorted(tally.ends.items()):
        report.figure(f"battery.{layout}_{end}", [count], "requests")
    report.figure(f"battery.{layout}_wrong", [len(tally.wrong)], "requests", goal=0)
    report.figure(f"battery.{layout}_memory_growth", [tally.memory], "", goal=GROWTH)
    report.figure(f"battery.{layout}_shm_growth", [tally.shared], "", goal=GROWTH)
    for sentence in tally.wrong[:20]:
        report.note(sentence)


if __name__ == "__main__":
    raise SystemExit(main())
