"""Sixty-four clients of one server: no answer is wrong or lost, and memory does not grow.

`make campaign NAME=serving` mixes streams, unary answers, long prompts, cancelled and bad
requests for five minutes on a real tritonserver, and compares every answer with the target's
own. Then, without cancelled requests, the server's counters must equal the clients' own counts.
During 10 000 requests with 1 000 cancelled and 1 000 refused ones, memory may grow by at most 2 %
and /dev/shm not at all.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from campaigns.traffic import (
    CANCELLED_LIMIT,
    CLIENTS,
    MIX,
    Baseline,
    Client,
    Tally,
    await_end,
    counts,
    drive,
    for_seconds,
)
from cluster.errors import ClusterError
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support.bench_report import Report
from support.reference_engines import build, engine_values
from support.server_memory import memory_of
from support.triton_server import PAYLOAD, Server, installed_server

SECONDS = 300.0
REQUESTS = 12_000
GROWTH = 0.02
_WITHOUT_CANCELS = {kind: share for kind, share in MIX.items() if kind != "cancel"}
_KV_TOKENS = 16384
_ALONE = 40
# Characters of a dead server's log that the report shows.
_LOG_TAIL = 2000
PAIR = PAYLOAD / "pair"
_LIMITS = {"maxBatchSize": 16, "maxInputLen": 448, "maxSeqLen": 512, "maxNumTokens": 4096}


def prompts(count: int = 16) -> list[str]:
    """Return the first prompts of the pair."""
    lines = (PAIR / "prompts.jsonl").read_text("utf-8").splitlines()
    return [str(json.loads(line)["prompt"]) for line in lines[:count]]


def _engine(folder: Path, role: str) -> ModelPlan:
    directory = build(PAIR / role, folder / role, **engine_values(role, _LIMITS))
    return ModelPlan(str(directory), (0,), max_tokens_in_paged_kv_cache=_KV_TOKENS)


@contextmanager
def served() -> Iterator[Server]:
    """Yield a server of the pair in the layout of 1.2.1, which reports token counts to clients."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = RepositoryPlan(
            version="1.2.1",
            tokenizer_dir=str(PAIR / "target"),
            target=_engine(folder, "target"),
            draft=_engine(folder, "draft"),
            max_batch_size=_LIMITS["maxBatchSize"],
            draft_tokens=4,
            max_draft_tokens=8,
            draft_ahead=4,
            rows_per_call=_LIMITS["maxBatchSize"],
            max_seq_len=_LIMITS["maxSeqLen"],
        )
        with Server(installed_server(), render(plan), folder / "server") as server:
            yield server


def mixed(server: Server, baseline: Baseline, seconds: float, report: Report) -> Tally:
    """Send all kinds; the counters may exceed clients' counts by cancelled answers only."""
    before = counts(server)
    tally = drive(server, baseline, for_seconds(seconds))
    _judge("mixed", tally, report)
    await_end(server)
    for name, value in counts(server).items():
        surplus = value - before[name] - tally.counted[name]
        # The length of a cancelled answer is unknown.
        most = tally.did["cancel"] * CANCELLED_LIMIT * (8 if name == "drafted" else 1)
        outside = max(-surplus, surplus - most, 0)
        report.figure(f"serving.mixed_{name}_outside", [outside], "tokens", goal=0)
    return tally


def counted(server: Server, baseline: Baseline, seconds: float, report: Report) -> Tally:
    """Send requests without cancels; the counters must equal the clients' own counts."""
    before = counts(server)
    tally = drive(server, baseline, for_seconds(seconds), _WITHOUT_CANCELS, first=CLIENTS)
    # The BLS pipelines drafting only if few requests are in flight: use a single client.
    alone = Client(server, baseline, _WITHOUT_CANCELS, 4 * CLIENTS)
    for _ in range(_ALONE):
        alone.request()
    tally.add(alone.tally)
    _judge("counted", tally, report)
    await_end(server)
    for name, value in counts(server).items():
        off = abs(value - before[name] - tally.counted[name])
        report.figure(f"serving.counted_{name}", [tally.counted[name]], "tokens")
        report.figure(f"serving.counted_{name}_off", [off], "tokens", goal=0)
    early = server.metric("specdec_early_rounds_total")
    report.figure("serving.early_rounds", [early], "rounds", goal=1, better="higher")
    return tally


def growth(server: Server, baseline: Baseline, requests: int, report: Report) -> Tally:
    """Send requests after a warm-up, and report the memory that they leave behind."""
    each = -(-requests // CLIENTS)
    drive(server, baseline, lambda done: done < max(each // 8, 1), first=2 * CLIENTS)
    await_end(server)
    before = memory_of(server)
    tally = drive(server, baseline, lambda done: done < each, first=3 * CLIENTS)
    _judge("growth", tally, report)
    await_end(server)
    after = memory_of(server)
    report.figure("serving.memory_before", [before.memory / 1e6], "MB")
    report.figure("serving.memory_growth", [after.memory / before.memory - 1], "", goal=GROWTH)
    report.figure("serving.shm_before", [before.shared / 1e6], "MB")
    report.figure("serving.shm_growth", [(after.shared - before.shared) / 1e6], "MB", goal=0)
    return tally


def _judge(part: str, tally: Tally, report: Report) -> None:
    for kind, count in sorted(tally.did.items()):
        report.figure(f"serving.{part}_{kind}", [count], "requests")
    report.figure(f"serving.{part}_wrong_or_lost", [len(tally.wrong)], "requests", goal=0)
    for message in tally.wrong[:20]:
        report.note(message)


def main() -> int:
    """Run the campaign; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.serving", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="mixed (%(default)s)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of all (%(default)s)")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    with served() as server:
        alive = _campaign(server, options.seconds, options.requests, report)
        report.figure("serving.alive", [alive], "", goal=1, better="higher")
        if not alive:
            report.note(f"the log of the server ends with: {server.log()[-_LOG_TAIL:]}")
        report.figure("serving.tracebacks", [server.log().count("Traceback")], "", goal=0)
    report.figure("serving.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


def _campaign(server: Server, seconds: float, requests: int, report: Report) -> bool:
    """Run all parts in sequence; return whether the server has completed all requests."""
    try:
        baseline = Baseline(server, prompts())
        mixed(server, baseline, seconds, report)
        counted(server, baseline, seconds / 5, report)
        growth(server, baseline, requests, report)
    except (urllib.error.URLError, ClusterError) as error:
        report.note(str(error))
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
