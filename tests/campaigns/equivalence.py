"""Greedy answers of the BLS equal the target's own answers, with all kinds of options.

`make campaign NAME=equivalence` requests answers to 10 000 random prompts twice: from the target's
engine alone, in process, and from the BLS of a tritonserver that speculates with the same engine.
A third of the servers draft with a draft model, a third by lookups, a third by both. Options are
chosen so that they affect the answer: stop words and end tokens come from the expected answer.
They also cross token boundaries and split characters, and length limits end answers inside rounds.
Many prompts end within twice the draft length before the sequence limit, where the executor
reserves room for drafts. A request has one to four prompts, each with its own options. Drafting
with a draft model is pipelined. Half of the cases come from sixteen clients at once, whose rounds
share engine calls; the others come from two clients or one. The engines are the shipped pair, and
random engines in which every choice of a token is a near tie.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

from campaigns import served_pairs
from campaigns.cases import Case, Maker
from campaigns.exchange import Asker, counts
from support.bench_report import Report

CASES = 10_000
# Prompts whose expected answers are computed before the first is sent to the server. So all
# clients send requests at the same time, and none computes an expected answer.
_CHUNK = 320
# For a single client, the BLS extends proposals by further calls of the draft.
_CLIENTS = (16, 2, 16, 1)


def run(count: int, first: int = 0) -> Iterator[tuple[list[Case], dict[str, float]]]:
    """Run `count` cases, an equal share on each served pair.

    Yields:
        the answered cases of a chunk, and its counts by the server, keys as in `exchange.counts`.
    """
    for place, opened in enumerate(served_pairs.PAIRS):
        numbers = [n for n in range(first, first + count) if n % len(served_pairs.PAIRS) == place]
        with opened() as served:
            maker, asker = Maker(served), Asker(served.server)
            # Small chunks, so that few cases also use all numbers of clients.
            size = min(_CHUNK, -(-len(numbers) // len(_CLIENTS)))
            for turn, start in enumerate(range(0, len(numbers), size)):
                cases = maker.cases(numbers[start : start + size])
                before = counts(served.server)
                asker.ask(cases, _CLIENTS[turn % len(_CLIENTS)])
                after = counts(served.server)
                yield cases, {name: after[name] - before[name] for name in after}


def main() -> int:
    """Run the campaign; return 1 if an answer differs or another goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.equivalence", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="prompts (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (%(default)s)")
    options = parser.parse_args()
    report, begun = Report(), time.monotonic()
    totals: Counter[str] = Counter()
    for cases, counted in run(options.cases, options.first):
        totals.update({name: int(value) for name, value in counted.items()})
        for case in cases:
            totals["prompts"] += 1
            totals["differing"] += not case.equal
            totals["streamed"] += bool(case.values["stream"])
            totals["beside_others"] += case.beside > 0
            way = "streamed" if case.values["stream"] else "whole"
            totals[f"drafts of {case.drafts} {way}".lower()] += 1
            totals[f"ended by {case.end}"] += 1
            if not case.equal:
                print(case.complaint(), file=sys.stderr, flush=True)
    report.figure("equivalence.prompts", [totals.pop("prompts")], "prompts")
    report.figure("equivalence.differing", [totals.pop("differing")], "prompts", goal=0)
    early = totals.pop("early_rounds")
    report.figure("equivalence.early_rounds", [early], "rounds", goal=1, better="higher")
    looked_up = totals.pop("looked_up")
    report.figure("equivalence.looked_up", [looked_up], "tokens", goal=1, better="higher")
    for name, value in sorted(totals.items()):
        report.figure(f"equivalence.{name.replace(' ', '_')}", [value], "")
    report.figure("equivalence.seconds", [time.monotonic() - begun], "s")
    return report.exit_status()


if __name__ == "__main__":
    raise SystemExit(main())
