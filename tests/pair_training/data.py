"""The training text: the running Python's standard library, its tokenizer, windows and prompts."""

from __future__ import annotations

import hashlib
import random
import re
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
Tokens = NDArray[np.uint16]

# Left out, because completions of it are not useful: tests, generated tables, lists of words.
SKIPPED = {
    "__pycache__", "encodings", "idle_test", "idlelib", "lib2to3", "pydoc_data", "site-packages",
    "test", "tests", "turtledemo",
}  # fmt: skip
HELD_OUT_ONE_IN = 26
PROMPT_TOKENS = range(32, 65)


@dataclass(frozen=True)
class Corpus:
    """Source texts by path relative to the standard library, split by a hash of that path."""

    train: dict[str, str]
    held_out: dict[str, str]


def read_corpus(root: Path | None = None) -> Corpus:
    """Read every chosen `.py` file under `root` (default: the running Python's standard library).

    Raises:
        ValueError: the folder holds no Python file.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(root.rglob("*.py"))
        if _is_chosen(path.relative_to(root))
    }
    if not texts:
        raise ValueError(f"--source {root} holds no Python file: name a standard library folder")
    held_out = {name for name in texts if is_held_out(name)}
    return Corpus(
        train={name: text for name, text in texts.items() if name not in held_out},
        held_out={name: text for name, text in texts.items() if name in held_out},
    )


def _is_chosen(path: Path) -> bool:
    # Left out: files that Python's build wrote about its own machine, which differ between
    # machines.
    about_build = any(part.startswith(("config-", "_sysconfigdata")) for part in path.parts)
    return not about_build and not SKIPPED & set(path.parts)


def is_held_out(name: str) -> bool:
    """Whether the file of this relative path is kept from training, the same on every machine."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE (Sennrich et al. 2016), `END` as token 0; decoding gives the bytes back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def end_id(tokenizer: Tokenizer) -> int:
    """The id of `END`.

    Raises:
        ValueError: the tokenizer was not made by `train_tokenizer`.
    """
    token = tokenizer.token_to_id(END)
    if token is None:
        raise ValueError(f"the tokenizer has no {END} token: run the step tokenizer again")
    return int(token)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """All texts as one token row, each closed by `END`."""
    end = [end_id(tokenizer)]
    rows = [encoding.ids + end for encoding in tokenizer.encode_batch(list(texts))]
    return np.asarray([token for row in rows for token in row], dtype=np.uint16)


def windows(
    tokens: Tokens, indices: NDArray[np.int64], length: int, seed: int
) -> NDArray[np.int32]:
    """The windows number `indices` of an endless shuffled pass over `tokens`, `[len, length]`.

    Each epoch shifts the window borders and shuffles anew, both from `seed`, so any index can be
    drawn without those before it: an interrupted training resumes on the very next batch.
    """
    per_epoch = len(tokens) // length - 1
    rows = []
    for epoch in np.unique(indices // per_epoch):
        draw = np.random.default_rng([seed, int(epoch)])
        shift, order = draw.integers(length), draw.permutation(per_epoch)
        starts = order[indices[indices // per_epoch == epoch] % per_epoch] * length + shift
        rows += [tokens[start : start + length] for start in starts]
    drawn: NDArray[np.int32] = np.stack(rows).astype(np.int32)
    return drawn


def opening_rows(
    tokenizer: Tokenizer, texts: dict[str, str], count: int, length: int, seed: int
) -> NDArray[np.int32]:
    """`count` rows `[count, length]`, each from the first line of a function or class onwards.

    Raises:
        ValueError: the texts hold too few functions and classes.
    """
    openings = [
        (name, match.start())
        for name, text in texts.items()
        for match in re.finditer(r"^[ \t]*(?:def|class) ", text, re.MULTILINE)
    ]
    if len(openings) < count:
        raise ValueError(f"the texts hold {len(openings)} of {count} functions: lower --rows")
    chosen = random.Random(seed).sample(openings, count)
    # No token has more than some twenty characters, and most have three: eight per token suffice.
    encoded = tokenizer.encode_batch([texts[name][at : at + 8 * length] for name, at in chosen])
    rows = np.full((count, length), end_id(tokenizer), np.int32)
    for row, encoding in zip(rows, encoded, strict=True):
        ids = encoding.ids[:length]
        row[: len(ids)] = ids
    return rows


def cut_prompts(
    tokenizer: Tokenizer, texts: dict[str, str], count: int, seed: int = 7
) -> list[dict[str, str]]:
    """`count` prompts from `texts`: a function's opening lines, 32 to 64 tokens, whole lines.

    Raises:
        ValueError: the texts hold too few functions.
    """
    prompts: dict[str, dict[str, str]] = {}
    for name, text in texts.items():
        lines = text.splitlines(keepends=True)
        for number, line in enumerate(lines):
            if line.lstrip().startswith(("def ", "class ")):
                prompt = _grow(tokenizer, lines[number:])
                if prompt:
                    prompts[prompt] = {"prompt": prompt, "file": name, "line": str(number + 1)}
    if len(prompts) < count:
        raise ValueError(f"the held-out files hold {len(prompts)} of {count} prompts")
    chosen = random.Random(seed).sample([*prompts.values()], count)
    return sorted(chosen, key=lambda prompt: (prompt["file"], int(prompt["line"])))


def _grow(tokenizer: Tokenizer, lines: Sequence[str]) -> str | None:
    text = ""
    for line in lines:
        text += line
        count = len(tokenizer.encode(text).ids)
        if count in PROMPT_TOKENS:
            return text
        if count > PROMPT_TOKENS[-1]:
            return None
    return None
