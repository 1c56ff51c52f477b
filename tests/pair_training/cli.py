"""Tokenizer, target, draft, heads, figures: the steps that make the pair, each resumable."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from pair_training.checkpoint import (
    draft_state,
    heads_state,
    read_checkpoint,
    write_bytes,
    write_checkpoint,
    write_heads,
)
from pair_training.data import (
    Corpus,
    cut_prompts,
    encode,
    opening_rows,
    read_corpus,
    train_tokenizer,
)
from pair_training.distil import broad_lessons, generated_lessons, kept, train_draft
from pair_training.evaluate import write_figures, write_prompts
from pair_training.heads import train_heads, written_rows
from pair_training.heads_figures import write_heads_figures
from pair_training.model import DRAFT, TARGET
from pair_training.target import train_target

PROMPTS = 50
STEPS = ("tokenizer", "target", "draft", "figures", "eagle3", "eagle3-figures")
_PAIR = Path(__file__).parents[2] / "operator" / "specdec" / "images" / "pair"


def cache_folder() -> Path:
    """Where an unfinished training is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SPECDEC_CACHE") or Path(base) / "specdec") / "pair"


def parser() -> argparse.ArgumentParser:
    """The options, each with its default."""
    options = argparse.ArgumentParser(
        prog="python -m pair_training",
        description="Train the Reference image's target and draft on Python's standard library.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    options.add_argument(
        "steps",
        nargs="*",
        metavar="STEP",
        default=STEPS,
        help=f"any of {', '.join(STEPS)}, in this order",
    )
    options.add_argument("--out", type=Path, default=_PAIR, help="the pair")
    options.add_argument("--work", type=Path, default=cache_folder(), help="unfinished training")
    options.add_argument(
        "--source", type=Path, help="Python files; default: this Python's library"
    )
    options.add_argument("--target-steps", type=int, default=2000)
    options.add_argument("--draft-steps", type=int, default=2800)
    options.add_argument(
        "--rows",
        type=int,
        default=2048,
        help="rows from anywhere in the corpus that the target continues; it also continues twice "
        "as many rows from functions and classes",
    )
    options.add_argument("--head-steps", type=int, default=540)
    options.add_argument(
        "--head-rows",
        type=int,
        default=1024,
        help="rows from functions and classes that the target continues for the heads; it also "
        "continues half as many rows from anywhere in the corpus",
    )
    return options


def print_progress(line: str) -> None:
    """One progress line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def make_tokenizer(args: argparse.Namespace, corpus: Corpus) -> None:
    """Train the tokenizer and cut the held-out prompts with it."""
    tokenizer = train_tokenizer(corpus.train.values(), TARGET.vocabulary)
    write_bytes(args.work / "tokenizer.json", tokenizer.to_str().encode())
    write_prompts(args.out / "prompts.jsonl", cut_prompts(tokenizer, corpus.held_out, PROMPTS))
    print_progress(f"tokenizer of {tokenizer.get_vocab_size()} tokens, {PROMPTS} prompts")


def make_target(args: argparse.Namespace, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Train the target and write its checkpoint."""
    tokens = encode(tokenizer, list(corpus.train.values()))
    print_progress(f"target: {len(corpus.train)} files, {len(tokens)} tokens")
    params = train_target(tokens, args.target_steps, args.work / "target.npz", print_progress)
    write_checkpoint(args.out / "target", params, TARGET, tokenizer)


def make_draft(args: argparse.Namespace, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Let the target teach the draft and write its checkpoint."""
    tokens = encode(tokenizer, list(corpus.train.values()))
    target = read_checkpoint(args.out / "target")
    # Named by the target's digest, so that a new target does not reuse the rows of an old one.
    state_file = draft_state(args.out, args.work)
    broad = kept(
        state_file.with_name(f"lessons-{state_file.name}"),
        lambda: broad_lessons(target, tokens, args.rows, print_progress),
    )
    openings = opening_rows(tokenizer, corpus.train, 2 * args.rows, TARGET.context, seed=5)
    narrow = kept(
        state_file.with_name(f"openings-{state_file.name}"),
        lambda: generated_lessons(target, openings, 0.0, print_progress),
    )
    params = train_draft(broad, narrow, args.draft_steps, state_file, print_progress)
    write_checkpoint(args.out / "draft", params, DRAFT, tokenizer)


def make_heads(args: argparse.Namespace, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Let the target teach EAGLE-3 heads and write them."""
    target = read_checkpoint(args.out / "target")
    state_file = heads_state(args.out, args.work)
    rows = written_rows(
        target,
        encode(tokenizer, list(corpus.train.values())),
        opening_rows(tokenizer, corpus.train, args.head_rows, TARGET.context, seed=5),
        state_file.with_name(f"rows-{state_file.name}"),
        print_progress,
    )
    params = train_heads(target, rows, args.head_steps, state_file, print_progress)
    write_heads(args.out / "eagle3", params, args.out / "target")


def read_tokenizer(args: argparse.Namespace) -> Tokenizer:
    """The tokenizer of an unfinished training, else that of the pair."""
    stored = args.work / "tokenizer.json"
    if not stored.exists():
        stored = args.out / "target" / "tokenizer.json"
    return Tokenizer.from_str(stored.read_text(encoding="utf-8"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen steps; returns the exit status."""
    options = parser()
    args = options.parse_args(argv)
    unknown = set(args.steps) - set(STEPS)
    if unknown:
        options.error(f"unknown step {min(unknown)}: choose among {', '.join(STEPS)}")
    try:
        run(args)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(args: argparse.Namespace) -> None:
    """Run the chosen steps in order.

    Raises:
        ValueError: the corpus or a stored state does not fit.
        OSError: a file cannot be read or written.
    """
    corpus = read_corpus(args.source)
    if "tokenizer" in args.steps:
        make_tokenizer(args, corpus)
    tokenizer = read_tokenizer(args)
    if "target" in args.steps:
        make_target(args, corpus, tokenizer)
    if "draft" in args.steps:
        make_draft(args, corpus, tokenizer)
    if "figures" in args.steps:
        print_progress(write_figures(args.out, args.work, corpus, tokenizer))
    if "eagle3" in args.steps:
        make_heads(args, corpus, tokenizer)
    if "eagle3-figures" in args.steps:
        print_progress(write_heads_figures(args.out, args.work, tokenizer))
