"""Engine pairs with which a real tritonserver speculates, each with its target alone."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from threadpoolctl import threadpool_limits

from campaigns import letters
from campaigns.inprocess import InProcess
from specdec.triton.plan import DraftLengths
from specdec.triton.repository import ModelPlan, RepositoryPlan, render
from support.oracle import Tiny
from support.payload import load
from support.reference_engines import build, engine_values, open_engine
from support.triton_server import PAYLOAD, Server, installed_server

Drafts = Literal["Model", "Lookup", "Both"]
PAIR = PAYLOAD / "pair"
MAX_DRAFT_TOKENS = 8
_LIMITS = {"maxBatchSize": 16, "maxInputLen": 448, "maxSeqLen": 512, "maxNumTokens": 4096}
_KV_TOKENS = 16384
_VOCABULARY = 96
_TWINS = {
    "target": Tiny(vocab=_VOCABULARY, twins=1e-7, seed=2),
    "draft": Tiny(vocab=_VOCABULARY, twins=1e-7, seed=2, gain=8.02),
}


@dataclass(frozen=True)
class ServedPair:
    """A target in process, a server that speculates with the same target, and their tokenizer.

    The target in process is built without speculation, so it reserves no room for draft tokens.

    Attributes:
        max_seq_len: most tokens of a prompt and its answer together.
        minimum: name of this release's input for the minimum length.
        drafts: source of the draft tokens.
    """

    name: str
    target: InProcess
    server: Server
    tokenizer: Any
    minimum: str
    drafts: Drafts
    max_seq_len: int = _LIMITS["maxSeqLen"]

    def spelt(self, text: str) -> str:
        """Return the text in letters that the tokenizer knows."""
        if self.name == "pair":
            return text
        first, last = letters.FIRST, letters.FIRST + _VOCABULARY
        known = (ord(letter) if first <= ord(letter) < last else None for letter in text)
        return "".join(
            chr(code or first + ord(letter) % _VOCABULARY)
            for code, letter in zip(known, text, strict=True)
        )


@contextmanager
def pair(drafts: Drafts = "Model") -> Iterator[ServedPair]:
    """Yield the shipped pair, in the layout of 0.19.0."""
    checkpoints = {role: PAIR / role for role in ("target", "draft")}
    with tempfile.TemporaryDirectory() as folder:
        yield from _serve("pair", checkpoints, PAIR / "target", "0.19.0", Path(folder), drafts)


@contextmanager
def twins(drafts: Drafts = "Model") -> Iterator[ServedPair]:
    """Yield random engines whose every choice is a near tie, in the layout of 1.2.1."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = {role: tiny.write(folder / f"{role}-hf") for role, tiny in _TWINS.items()}
        tokenizer = letters.write(folder / "letters", _VOCABULARY)
        yield from _serve("twins", written, tokenizer, "1.2.1", folder, drafts)


# Each pair is served with every source of drafts.
_SOURCES: tuple[Drafts, ...] = ("Model", "Lookup", "Both")
PAIRS = tuple(partial(opened, drafts) for drafts in _SOURCES for opened in (pair, twins))


def speculating(plan: RepositoryPlan) -> dict[str, str]:
    """Return the files of the BLS and its engines, without models that it does not need."""
    beside = ("ensemble/", "preprocessing/", "postprocessing/")
    return {path: text for path, text in render(plan).items() if not path.startswith(beside)}


def _serve(
    name: str,
    checkpoints: dict[str, Path],
    tokenizer: Path,
    version: str,
    folder: Path,
    drafts: Drafts,
) -> Iterator[ServedPair]:
    engines = {
        role: build(checkpoint, folder / role, **engine_values(role, _LIMITS))
        for role, checkpoint in checkpoints.items()
    }
    plain = build(checkpoints["target"], folder / "plain", **engine_values("draft", _LIMITS))
    target, draft = (
        ModelPlan(str(engines[role]), (0,), max_tokens_in_paged_kv_cache=_KV_TOKENS)
        for role in ("target", "draft")
    )
    plan = RepositoryPlan(
        version=version,
        tokenizer_dir=str(tokenizer),
        target=target,
        draft=None if drafts == "Lookup" else draft,
        # One token is a match, so nearly every text has matches, and most of them are wrong.
        lookup_min_match=0 if drafts == "Model" else 1,
        max_batch_size=_LIMITS["maxBatchSize"],
        draft_tokens=4,
        max_draft_tokens=MAX_DRAFT_TOKENS,
        # A request without a draft length gets an adaptive length, which can be 0 for a while.
        adaptive=DraftLengths(0, MAX_DRAFT_TOKENS),
        draft_ahead=0 if drafts == "Lookup" else 4,
        # One pair has calls of a single row, the other has calls of many rows.
        rows_per_call=1 if version == "1.2.1" else _LIMITS["maxBatchSize"],
        max_seq_len=_LIMITS["maxSeqLen"],
    )
    reader = load("specdec_text").Tokenizer(str(tokenizer))
    minimum = "min_tokens" if version == "1.2.1" else "min_length"
    with threadpool_limits(1):
        alone = InProcess(open_engine(plain))
        try:
            with Server(installed_server(), speculating(plan), folder / "server") as server:
                yield ServedPair(name, alone, server, reader, minimum, drafts)
        finally:
            alone.close()
