"""A tokenizer of one character a token, as a tokenizer directory: text and tokens are the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

# No text has these letters by chance, and no tokenizer takes one of them for white space.
FIRST = 0x100


def write(folder: Path, size: int, end: int = 0) -> Path:
    """Write the files of a tokenizer with so many tokens, of which `end` ends an answer."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = {letter: token for token, letter in enumerate(text(range(size)))}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token=text([end])))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"eos_token": text([end])}
    (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
    return folder


def text(tokens: Sequence[int]) -> str:
    """What these tokens decode to."""
    return "".join(chr(FIRST + token) for token in tokens)


def tokens(letters: str) -> list[int]:
    """The tokens of such a text."""
    return [ord(letter) - FIRST for letter in letters]
